"""A draft: a plan that nobody is bound by yet, with everything that it was made from.

So it can be verified again before it is committed, and asked "what if" without scoring anything twice.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from deccaf.assign import Assignment, AssignmentProblem, verify
from deccaf.data.capacity import Capacity
from deccaf.planning.scored import Scored

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class DraftedCase:
    """Who would get a case, and what everybody was expected to cost."""

    case_id: str
    maker: str
    expected_loss: float | None
    losses: dict[str, float | None]


@dataclass(frozen=True, eq=False)
class Draft:
    """A plan that nobody is bound by yet."""

    scored: Scored
    roster: pd.DataFrame
    """maker, upper (what is left), lower (what is still owed)."""
    excluded: list[str]
    """Who may not get each case, as JSON."""
    lot: Ints
    """The maker drawn by lot for each case; -1: none."""
    propensity: NDArray[np.float64]
    maker: NDArray[np.int32]
    objective: float
    gap: float
    prices: NDArray[np.float64]
    summary: dict[str, Any]
    """As the API gives it."""
    model_id: int | None

    @property
    def loads(self) -> Ints:
        """Cases of every maker."""
        return np.bincount(self.maker, minlength=len(self.scored.makers))

    def allowed(self) -> Bools:
        """Who may get each case."""
        return allowed(self.scored, self.excluded)

    def capacity(self) -> Capacity:
        """The limits that the draft was made within, lottery included."""
        return only(roster_capacity(self.roster), self.scored, self.allowed(), self.lot)

    def verify(self) -> None:
        """Check the draft against its own losses and limits, independently of how it was solved."""
        capacity = self.capacity()
        lower, upper = capacity.limits(self.scored.makers, len(self.maker))
        mask = capacity.mask(self.scored.ids, self.scored.makers)
        problem = AssignmentProblem.of(self.scored.loss, upper, lower, mask)
        verify(problem, Assignment(self.maker, self.objective, self.prices, self.gap, "stored", 0.0))

    def rows(self, start: int, count: int) -> list[DraftedCase]:
        """Some of its cases."""
        part = slice(start, start + count)
        return [
            DraftedCase(
                case_id=str(case),
                maker=self.scored.makers[int(j)],
                expected_loss=_number(losses[int(j)]),
                losses={m: _number(v) for m, v in zip(self.scored.makers, losses.tolist(), strict=True)},
            )
            for case, j, losses in zip(
                self.scored.ids[part], self.maker[part], self.scored.loss[part], strict=True
            )
        ]


def allowed(scored: Scored, excluded: Sequence[str]) -> Bools:
    """Who may get each case: those with a finite loss who are not excluded (lists as JSON)."""
    found = np.isfinite(scored.loss)
    for row, text in enumerate(excluded):
        if text != "[]":
            barred = set(json.loads(text))
            found[row] &= [maker not in barred for maker in scored.makers]
    return found


def roster_capacity(roster: pd.DataFrame) -> Capacity:
    """The limits of a draft's roster."""
    return Capacity.from_frame(roster.rename(columns={"maker": "expert_id"}))


def only(capacity: Capacity, scored: Scored, may: Bools, lot: Ints) -> Capacity:
    """The capacity for those who may get each case; a case drawn by lot may go to its maker alone."""
    drawn = np.flatnonzero(lot >= 0)
    if len(drawn):
        may = may.copy()
        may[drawn] = False
        may[drawn, lot[drawn]] = True
    if may.all():
        return capacity
    return capacity.only(pd.DataFrame(may, index=scored.ids, columns=list(scored.makers)))


def pack(draft: Draft) -> bytes:
    """One parquet file in memory: cases, their losses, the choice; all else as its metadata."""
    loss = {f"loss {j}": draft.scored.loss[:, j] for j in range(len(draft.scored.makers))}
    table = pa.table(
        {
            "case_id": pa.array([str(case) for case in draft.scored.ids]),
            "maker": draft.maker,
            "says": draft.scored.says,
            "excluded": pa.array(draft.excluded),
            "lot": draft.lot,
            "propensity": draft.propensity,
            **loss,
        }
    )
    more = {
        "makers": list(draft.scored.makers),
        "classes": list(draft.scored.classes),
        "objective": draft.objective,
        "gap": draft.gap,
        "prices": draft.prices.tolist(),
        "roster": draft.roster.to_dict("list"),
    }
    out = io.BytesIO()
    pq.write_table(table.replace_schema_metadata({"deccaf": json.dumps(more)}), out, compression="zstd")
    return out.getvalue()


def unpack(payload: bytes, summary: dict[str, Any], model_id: int | None) -> Draft:
    """Rebuild what `pack` gave."""
    table = pq.read_table(io.BytesIO(payload))
    more = json.loads(table.schema.metadata[b"deccaf"])
    makers = tuple(more["makers"])
    loss = np.column_stack([table.column(f"loss {j}").to_numpy() for j in range(len(makers))])
    ids = pd.Index(table.column("case_id").to_pylist(), dtype=object)
    scored = Scored(ids, makers, loss, loss, table.column("says").to_numpy(), tuple(more["classes"]))
    return Draft(
        scored=scored,
        roster=pd.DataFrame(more["roster"]),
        excluded=table.column("excluded").to_pylist(),
        lot=table.column("lot").to_numpy(),
        propensity=table.column("propensity").to_numpy(),
        maker=table.column("maker").to_numpy().astype(np.int32),
        objective=more["objective"],
        gap=more["gap"],
        prices=np.array(more["prices"]),
        summary=summary,
        model_id=model_id,
    )


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
