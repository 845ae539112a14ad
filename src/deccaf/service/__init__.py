"""The running service: a ledger of cases, people and decisions, behind an HTTP API."""
