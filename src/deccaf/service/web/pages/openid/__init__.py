"""Signing in with an account of the house: away to the provider, and back with its word."""
