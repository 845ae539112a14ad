"""A hash that is the same for the same values, in another process and on another day too.

What is kept in a folder from run to run goes by it: a run of other cases, settings or versions finds nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, timedelta
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pydantic import BaseModel

_PLAIN = (type(None), bool, int, float, str, bytes, Path, np.generic, date, timedelta, Enum)
"""What shows all that it is."""


def fingerprint(*things: Any) -> str:
    """A hash of plain values, arrays, tables, mappings, lists, dataclasses, and whatever has `to_dict`.

    A `TypeError` for anything else: how it is shown need not tell what it is.
    """
    digest = hashlib.sha256()
    _add(digest, things)
    return digest.hexdigest()


def _add(digest: Any, thing: Any) -> None:
    if isinstance(thing, _PLAIN):
        digest.update(f"{type(thing).__name__}:{thing!r};".encode())
    elif isinstance(thing, Mapping):
        digest.update(b"{")
        for key in sorted(thing, key=str):
            _add(digest, str(key))
            _add(digest, thing[key])
        digest.update(b"}")
    elif isinstance(thing, np.ndarray) and thing.dtype != object:
        digest.update(f"{thing.dtype}{thing.shape}".encode())
        digest.update(np.ascontiguousarray(thing).data)
    elif isinstance(thing, pd.DataFrame | pd.Series | pd.Index):
        _add_table(digest, thing)
    elif isinstance(thing, Sequence | np.ndarray):
        digest.update(b"[")
        for one in thing:
            _add(digest, one)
        digest.update(b"]")
    elif is_dataclass(thing):
        _add(digest, {one.name: getattr(thing, one.name) for one in fields(thing)})
    elif isinstance(thing, BaseModel):
        _add(digest, thing.model_dump_json())
    elif callable(getattr(thing, "to_dict", None)):
        _add(digest, thing.to_dict())
    else:
        raise TypeError(f"{type(thing).__name__} cannot be told from others of its kind: {thing!r}")


def _add_table(digest: Any, table: pd.DataFrame | pd.Series | pd.Index) -> None:
    """By the names and kinds of its columns, and the hashes of its rows."""
    frame = table if isinstance(table, pd.DataFrame) else table.to_frame()
    for name, kind in frame.dtypes.items():
        _add(digest, [str(name), str(kind)])
        if isinstance(kind, pd.CategoricalDtype):
            _add(digest, [str(level) for level in kind.categories])
    try:
        _add(digest, pd.util.hash_pandas_object(frame).to_numpy())
    except TypeError:  # a column of vectors: value by value
        _add(digest, frame.index)
        for name in frame:
            _add(digest, list(frame[name]))
