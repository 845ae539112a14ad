"""Measures of decisions: what they cost, how they agree, how far an estimate can be trusted."""
