"""Watching the desk, and the numbers behind its reports."""
