"""What comes in: tables of cases, decisions and rosters, costs, the configuration; checked once, at the door.

- `schema`: which column plays which part, and the features that a model remembers.
- `tables`: `Cases` and `Decisions`.
- `frames`, `rows`: pandas, polars and arrays, and single cases, on their way to the models.
- `capacity`, `costs`, `config`: limits, prices of errors, the TOML file.
- `files`: reading tables, and writing files whole or not at all.
"""
