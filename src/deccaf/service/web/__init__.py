"""HTTP: the application, the API, the pages."""
