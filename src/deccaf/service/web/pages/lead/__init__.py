"""Pages with which a lead looks and acts beyond today: `find` cases, `move` work, `staff` (people and their
keys, one person's page), `audit` (the trail; a person's data, and its erasure)."""
