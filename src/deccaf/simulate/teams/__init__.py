"""Synthetic teams: experts whose chances of error are known exactly."""
