"""Pages with which a lead looks and acts beyond today: `find` cases, `move` work, `next_week` (how many hours
of whom), `staff` (people and their keys, one person's page), `audit` (the trail; a person's data, and its
erasure)."""
