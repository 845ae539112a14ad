"""Routes about how cases are reviewed: second opinions."""
