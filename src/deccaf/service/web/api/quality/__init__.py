"""Routes about how good the desk is: golden cases."""
