"""Model files of format 1 (deccaf 0.1): arrays as parquet columns, and fewer fields. Read, never written."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow.parquet
from numpy.typing import NDArray

from deccaf.errors import ModelFileError

_LARGEST = 4 << 30


def read_array(data: bytes, shape: Any) -> NDArray[Any]:
    """An array out of its parquet column."""
    sizes = [int(size) for size in shape]
    count = int(np.prod(sizes, dtype=object))
    with pyarrow.parquet.ParquetFile(io.BytesIO(data)) as parquet:
        if parquet.schema_arrow.names != ["values"] or parquet.metadata.num_rows != count:
            raise ModelFileError(f"an array of shape {sizes} holds {parquet.metadata.num_rows} values")
        if 8 * count > _LARGEST:
            raise ModelFileError(f"an array of shape {sizes} is larger than any model needs")
        values = np.asarray(parquet.read().column("values").to_numpy()).reshape(sizes)
    if values.dtype.kind != "f" or not np.isfinite(values).all():
        raise ModelFileError(f"an array of shape {sizes} holds what is no number")
    return values


def upgraded(model: dict[str, Any]) -> dict[str, Any]:
    """The content of a file of format 1 as format 2 has it."""
    learned = model["learned"]
    classifier, team = learned["classifier"], learned["decisions"]
    if "calibrator" in classifier:
        classifier["calibrators"] = [classifier.pop("calibrator")]
    pooled = {} if team is None else team.get("parts", {}).get("pooled", {})
    if pooled:  # the first files had no form but this one
        pooled.setdefault("form", "choice")
        pooled.setdefault("errors", None)
    return model
