"""Arrays as text for JSON files: exact, compact, and without code that runs on loading."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deccaf.errors import ModelFileError

_TYPES = ("float64", "float32", "int64", "bool")


def pack(array: NDArray[Any]) -> dict[str, Any]:
    """An array as type, shape and little-endian bytes in base 64."""
    kind = array.dtype.name
    if kind not in _TYPES:
        raise TypeError(f"cannot pack {kind}")
    data = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return {
        "type": kind,
        "shape": list(array.shape),
        "base64": base64.b64encode(data.tobytes()).decode("ascii"),
    }


def unpack(data: Mapping[str, Any]) -> NDArray[Any]:
    """The array that `pack` was given."""
    if data["type"] not in _TYPES:
        raise ModelFileError(f"array of unknown type {data['type']!r}; the file is damaged or too new")
    kind = np.dtype(data["type"]).newbyteorder("<")
    raw = base64.b64decode(data["base64"], validate=True)
    shape = tuple(int(size) for size in data["shape"])
    if len(raw) != kind.itemsize * int(np.prod(shape)):
        raise ModelFileError(f"array of shape {shape} holds {len(raw)} bytes; the file is damaged")
    return np.frombuffer(raw, kind).reshape(shape).astype(data["type"])
