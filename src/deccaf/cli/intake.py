"""New cases from files, chunk by chunk, so that a million of them need no more memory than their losses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from deccaf.data.capacity import Capacity
from deccaf.data.costs import MACHINE
from deccaf.data.schema import Columns
from deccaf.data.tables import Cases
from deccaf.errors import DataError, show
from deccaf.estimator import DeCCaF
from deccaf.planning.plan import Scored, check_batches, roster_notes


@dataclass(eq=False)
class Intake:
    """Cases that wait for a plan: what is believed of them, and in which batches they are."""

    scored: Scored
    batch: pd.Series | None
    kept: Cases | None = None
    """The case that was asked for by name, to explain."""


@dataclass
class _Counts:
    """What is odd about the cases, added up over the chunks."""

    missing: Counter[str] = field(default_factory=Counter)
    unseen: Counter[str] = field(default_factory=Counter)
    earlier: int = 0
    first_earlier: str = ""

    def notes(self, known_until: Any) -> list[str]:
        notes = []
        if self.missing:
            worst = ", ".join(f"{name} {count:,}" for name, count in self.missing.most_common(3))
            total = self.missing.total()
            notes.append(f"missing features: {total:,} values in {len(self.missing)} columns ({worst})")
        if self.unseen:
            worst = ", ".join(f"{name} {count:,}" for name, count in self.unseen.most_common(3))
            notes.append(f"category levels never seen, taken as missing: {worst}")
        if self.earlier:
            notes.append(
                f"time runs backwards: {self.earlier:,} cases are from before {known_until}, the end of the "
                f"history that the model learned from, first: {self.first_earlier}"
            )
        return notes


def take_in(
    model: DeCCaF,
    frames: Iterable[pd.DataFrame],
    capacity: Capacity,
    *,
    score: bool = True,
    keep: Sequence[Any] = (),
) -> Intake:
    """Check chunks of a cases file against the model and the roster, and score them.

    Without `score` the losses are zeros: enough to check that a plan exists. `keep` names cases whose
    features are kept.
    """
    experts = [name for name in capacity.makers if name != MACHINE]
    # new cases need no group columns: those are for splits and reports
    columns = getattr(model, "columns_", Columns()).model_copy(update={"group": ()})
    counts, ids, batches, losses, says, kept = _Counts(), [], [], [], [], []
    objectives: list[np.ndarray] = []
    for frame in frames:
        cases = Cases.from_frame(frame, columns=columns, costs=model.costs_, schema=model.schema_)
        _count(counts, cases, frame, model)
        part = model.scored(cases, experts) if score else None
        ids.append(cases.ids)
        batches.append(cases.batch)
        losses.append(np.zeros((len(cases), 1 + len(experts))) if part is None else part.loss)
        objectives.append(losses[-1] if part is None else part.objective)
        says.append(np.zeros(len(cases), np.int64) if part is None else part.says)
        wanted = cases.ids.astype(str).isin([str(name) for name in keep])
        if wanted.any():
            kept.append(cases.take(wanted))
    if not ids:
        raise DataError("the cases file holds no rows")
    index = _joined(ids)
    batch = None if batches[0] is None else pd.concat(batches)
    check_batches(capacity, batch)
    loss = _stacked(losses)
    notes = (*roster_notes(model.experts_, capacity), *counts.notes(_known_until(model)))
    scored = Scored(
        index,
        (MACHINE, *experts),
        loss,
        loss if model.method == "deccaf" or not score else _stacked(objectives),
        np.concatenate(says),
        tuple(model.classes_.tolist()),
        notes,
    )
    if len(keep) and not kept:
        raise DataError(f"no case is called {show(keep[0])} in the cases file")
    return Intake(scored, batch, kept[0] if kept else None)


def _count(counts: _Counts, cases: Cases, frame: pd.DataFrame, model: DeCCaF) -> None:
    missing = frame[model.schema_.names].isna().sum()
    counts.missing.update({str(name): int(count) for name, count in missing.items() if count})
    counts.unseen.update(model.schema_.unseen(frame))
    until = _known_until(model)
    if cases.time is None or until is None:
        return
    if pd.api.types.is_datetime64_any_dtype(cases.time.dtype) != isinstance(until, pd.Timestamp):
        kinds = "dates" if isinstance(until, pd.Timestamp) else "numbers"
        raise DataError(f"column {cases.time.name!r}: holds {cases.time.dtype}, the model knows {kinds}")
    earlier = (cases.time < until).to_numpy()
    if earlier.any() and not counts.earlier:
        first = int(earlier.argmax())
        counts.first_earlier = f"{cases.time.iloc[first]} in case {show(cases.ids[first])}"
    counts.earlier += int(earlier.sum())


def _known_until(model: DeCCaF) -> Any:
    """The latest time of the history, a number or a date; None where there were no times."""
    if "time" not in model.training_:
        return None
    latest = model.training_["time"][1]
    return pd.Timestamp(latest) if isinstance(latest, str) else latest


def _joined(parts: list[pd.Index]) -> pd.Index:
    index = parts[0].append(parts[1:]) if len(parts) > 1 else parts[0]
    twice = index.duplicated()
    if twice.any():
        first = index[int(twice.argmax())]
        raise DataError(
            f"column {index.name!r}: {twice.sum()} value(s) stand for more than one case, "
            f"first: {show(first)}"
        )
    return index


def _stacked(parts: list[np.ndarray]) -> np.ndarray:
    """The chunks as one array; each is let go once it is copied."""
    whole = np.empty((sum(map(len, parts)), parts[0].shape[1]))
    start = 0
    while parts:
        part = parts.pop(0)
        whole[start : start + len(part)] = part
        start += len(part)
    return whole
