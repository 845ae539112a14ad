"""The HTTP API, one module for each thing that programs and people ask for; `common` is what these share."""
