"""Pages about programs that talk with the service: what the API takes and gives."""
