"""Arrays as `.npy` members of a model file: exact, the same bytes for the same array, nothing that runs."""

from __future__ import annotations

import io
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deccaf.errors import ModelFileError

_TYPES = ("float64", "float32", "int64", "bool")


def array_bytes(array: NDArray[Any]) -> bytes:
    """The array in NumPy's own format; one that `read_array` would refuse is a `ModelFileError`."""
    if array.dtype.name not in _TYPES:
        raise ModelFileError(f"an array of {array.dtype.name}: a model file holds {', '.join(_TYPES)}")
    _check_finite(array)
    buffer = io.BytesIO()
    plain = np.asarray(array, array.dtype.newbyteorder("<"), order="C")
    np.lib.format.write_array(buffer, plain, version=(1, 0), allow_pickle=False)
    return buffer.getvalue()


def read_array(data: bytes, kind: Any, shape: Any) -> NDArray[Any]:
    """The array that `array_bytes` was given; its type and shape must be those that the model says."""
    stream = io.BytesIO(data)
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ModelFileError("an array in an unknown version of NumPy's format")
    found, by_column, dtype = np.lib.format.read_array_header_1_0(stream)
    if dtype.name not in _TYPES or by_column or dtype.str[0] == ">":
        raise ModelFileError(f"an array of {dtype}, which no model holds")
    if dtype.name != kind or list(found) != list(shape):
        raise ModelFileError(f"an array of {dtype.name} {list(found)} where {kind} {shape} belongs")
    content = data[stream.tell() :]
    if min(found, default=0) < 0 or len(content) != dtype.itemsize * prod(found):
        raise ModelFileError(f"an array of shape {list(found)} in {len(content)} bytes; the file is damaged")
    array = np.frombuffer(content, dtype).reshape(found).astype(dtype.name)
    _check_finite(array)
    return array


def _check_finite(array: NDArray[Any]) -> None:
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        count = int((~np.isfinite(array)).sum())
        raise ModelFileError(f"an array of shape {list(array.shape)} holds {count} NaN or infinite number(s)")
