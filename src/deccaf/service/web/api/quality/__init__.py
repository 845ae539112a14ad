"""Routes about how good the desk is: golden cases, trials of a candidate."""
