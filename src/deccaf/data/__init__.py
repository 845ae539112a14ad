"""What comes in: tables of cases, decisions and rosters, costs, the configuration; checked once, at the door.

- `schema`: which column plays which part, and the features that a model remembers.
- `cases`, `decisions`, `history`: what is known of each case, who decided what, and both together.
- `learnable`, `profile`: what can be learned from a history; what a file's columns look like.
- `names`, `times`, `values`, `headers`: what a column means: names are text, times have an order.
- `frames`, `rows`: pandas, polars and arrays, and single cases, on their way to the models.
- `capacity`, `costs`, `config`: limits, prices of errors, the TOML file.
- `files`: reading tables, and writing files whole or not at all; `sources`, `csv_files`, `excel_files`: what
  a path stands for, and text files and workbooks as people have them.
"""

from typing import TYPE_CHECKING

from deccaf.optional import lazy_names

if TYPE_CHECKING:
    from deccaf.data.capacity import Capacity
    from deccaf.data.cases import Cases
    from deccaf.data.config import Config
    from deccaf.data.costs import MACHINE, Costs, expected_loss
    from deccaf.data.decisions import Decisions
    from deccaf.data.files import read_frame, write_frame
    from deccaf.data.history import History
    from deccaf.data.kinds import Feature
    from deccaf.data.schema import Columns, Schema

__all__ = [
    "MACHINE",
    "Capacity",
    "Cases",
    "Columns",
    "Config",
    "Costs",
    "Decisions",
    "Feature",
    "History",
    "Schema",
    "expected_loss",
    "read_frame",
    "write_frame",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "deccaf.data.capacity": "Capacity",
        "deccaf.data.config": "Config",
        "deccaf.data.costs": "Costs MACHINE expected_loss",
        "deccaf.data.files": "read_frame write_frame",
        "deccaf.data.history": "History",
        "deccaf.data.kinds": "Feature",
        "deccaf.data.schema": "Columns Schema",
        "deccaf.data.cases": "Cases",
        "deccaf.data.decisions": "Decisions",
    },
)
