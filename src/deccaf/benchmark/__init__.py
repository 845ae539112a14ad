"""Experiments and their reports: what is run, drawn and written down."""
