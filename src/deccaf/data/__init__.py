"""What comes in: tables of cases, decisions and rosters, costs, the configuration; checked once, at the door.

- `schema`: which column plays which part, and the features that a model remembers.
- `cases`, `decisions`, `history`: tables that have been checked, and what there is to learn from.
- `names`, `times`, `values`, `headers`: what a column means: names are text, times have an order.
- `frames`, `rows`: pandas, polars and arrays, and single cases, on their way to the models.
- `capacity`, `costs`, `config`: limits, prices of errors, the TOML file.
- `files`: reading tables, and writing files whole or not at all; `sources`, `csv_files`, `excel_files`: what
  a path stands for, and text files and workbooks as people have them.
"""
