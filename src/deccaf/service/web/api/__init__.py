"""The HTTP API, one file for each thing that people and programs ask for."""
