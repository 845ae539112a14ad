"""Files of golden cases: features as in a file of cases, and the truth; checked row by row, entered whole."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from deccaf.service.decide.registry import Model
from deccaf.service.errors import invalid
from deccaf.service.imports import case_import, reading
from deccaf.service.imports.case_import import Checked, Expected, RowError, first_errors

Class = int | str


class GoldenFile(NamedTuple):
    """A file that was checked, with features and truth (both JSON) of the rows that are good."""

    checked: Checked
    rows: list[tuple[str, str]]


def read_golden(path: Path, out: Path, size: tuple[int, int], model: Model) -> GoldenFile:
    """Read and check a file of golden cases; `out` is a file to work with.

    The truth stands in the column that the model has for it. A column `case_id` is not needed: a golden case
    gets an id when it is given out.
    """
    label = model.system.columns_.label or "label"
    facts = reading.confined(_read, path, out, size, Expected.of(model), list(model.classes), label)
    rows = [(str(features), str(truth)) for features, truth in reading.read_rows(out)]
    errors = [RowError(**error) for error in facts.pop("errors")]
    return GoldenFile(Checked(arrivals=[], places=[], errors=errors, **facts), rows)


def _read(
    path: Path, out: Path, size: tuple[int, int], expected: Expected, classes: Sequence[Class], label: str
) -> dict[str, Any]:
    frame = reading.read_table(path, *size, text=[label] if isinstance(classes[0], str) else [])
    if label not in frame:
        raise invalid("no-label-column", f"column {label!r}: missing; a golden case has a known truth")
    cases = frame.drop(columns=[label])
    if "case_id" not in cases:
        cases.insert(0, "case_id", [f"row-{row}" for row in range(1, len(cases) + 1)])
    checked = case_import.check_frame(cases, expected)
    found = pd.Index(list(classes), dtype=object).get_indexer(pd.Index(frame[label].astype(object)))
    allowed = ", ".join(map(repr, classes))
    wrong = [
        RowError(row, None, label, f"must be one of the classes: {allowed}")
        for row, code in enumerate(found.tolist(), 1)
        if code < 0
    ]
    bad = {error.row for error in wrong}
    kept = [
        (arrival.features, json.dumps(classes[int(found[place - 1])]))
        for place, arrival in zip(checked.places, checked.arrivals, strict=True)
        if place not in bad
    ]
    reading.write_rows(out, kept)
    whole = replace(
        checked,
        errors=first_errors([*checked.errors, *wrong]),
        error_count=checked.error_count + len(wrong),
        rejected=len(frame) - len(kept),
    )
    return whole.facts()
