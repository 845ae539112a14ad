"""A team's own log: what plans would have cost, against what one would do otherwise."""
