"""Every change of cases, assignments and rosters, as functions over an open transaction."""
