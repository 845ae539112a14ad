"""The index that pandas wrote into a parquet file: named, it is a column; without a name, it is nobody's.

pandas keeps an index of consecutive numbers in the metadata alone, so that ids kept there would be lost; any
other index without a name it writes as a column `__index_level_0__`, which would be taken for a feature.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

_UNNAMED = "__index_level_"


@dataclass(frozen=True)
class PandasIndex:
    """What a file's metadata says of the index."""

    unnamed: frozenset[str] = frozenset()
    """Columns that are no columns."""
    name: str | None = None
    """Of an index of consecutive numbers, which has no column."""
    start: int = 0
    step: int = 1

    @classmethod
    def of(cls, schema: pa.Schema) -> Self:
        """From the schema of a file; metadata of others, or none, say nothing."""
        try:
            written = json.loads((schema.metadata or {})[b"pandas"])["index_columns"]
            ranges = [each for each in written if isinstance(each, dict) and each.get("kind") == "range"]
            unnamed = [each for each in written if isinstance(each, str) and each.startswith(_UNNAMED)]
            found = cls(frozenset(unnamed) & frozenset(schema.names))
            if len(written) == 1 and ranges and isinstance(ranges[0].get("name"), str):
                name, start, step = ranges[0]["name"], int(ranges[0]["start"]), int(ranges[0]["step"])
                if name not in schema.names and abs(start) < 1 << 53 and abs(step) < 1 << 20:
                    found = cls(found.unnamed, name, start, step)
        except (KeyError, TypeError, ValueError):
            return cls()
        return found

    def names(self, columns: list[str]) -> list[str]:
        """The file's columns with the index as it should be."""
        return [name for name in columns if name not in self.unnamed] + ([self.name] if self.name else [])

    def settled(self, table: pa.Table, first_row: int = 0) -> pa.Table:
        """Rows of the file, from `first_row` on, with the index as it should be."""
        table = table.drop_columns([name for name in table.column_names if name in self.unnamed])
        if self.name:
            rows = np.arange(first_row, first_row + table.num_rows)
            table = table.append_column(self.name, pa.array(self.start + self.step * rows, pa.int64()))
        return table
