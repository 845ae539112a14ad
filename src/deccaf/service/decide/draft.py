"""A draft: a plan that nobody is bound by yet, with everything that it was made from.

So it can be verified again before it is committed, and asked "what if" without scoring anything twice.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from deccaf.assign import Assignment, AssignmentProblem, Harm, Opinions, verify
from deccaf.data.capacity import Capacity
from deccaf.data.config import ConstraintsTable
from deccaf.planning.plan import Plan
from deccaf.planning.scored import Scored
from deccaf.planning.waiting import Queued, Waits
from deccaf.service.ledger.trials.planned_arms import PlannedArms, row_of

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class DraftedCase:
    """Who would get a case, and what everybody was expected to cost."""

    case_id: str
    maker: str
    expected_loss: float | None
    losses: dict[str, float | None]
    order: int | None = None
    """The place in their order, where something is said about waiting; None with the machine, too."""
    finish: float | None = None
    """When it is expected to be done."""
    late: bool | None = None
    waiting_cost: float | None = None
    """What its waiting is expected to cost from now on."""


@dataclass(frozen=True, eq=False)
class Timed:
    """When each case of a draft is expected to be done; one entry per case."""

    order: Ints
    finish: NDArray[np.float64]
    """Seconds since 1970."""
    late: Bools
    cost: NDArray[np.float64]

    @classmethod
    def of(cls, plan: Plan, at: float) -> Timed | None:
        """As a plan that was made at a moment has it; None: it says nothing about waiting."""
        return None if plan.summary.waiting is None else cls.from_columns(plan.frame, at)

    @classmethod
    def from_columns(cls, columns: Any, at: float) -> Timed:
        """Of the columns that a plan has about waiting."""
        return cls(
            pd.Series(columns["order"]).fillna(0).to_numpy(np.int64),
            at + 3600.0 * np.asarray(columns["finish"], np.float64),
            np.asarray(columns["late"], np.bool_),
            np.asarray(columns["waiting_cost"], np.float64),
        )

    def row(self, place: int) -> dict[str, Any]:
        """What it says of a case."""
        return {
            "order": int(self.order[place]) or None,
            "finish": float(self.finish[place]),
            "late": bool(self.late[place]),
            "waiting_cost": float(self.cost[place]),
        }


@dataclass(frozen=True, eq=False)
class InTrial:
    """The arms of a draft that was made while a trial runs; one entry per case."""

    arms: PlannedArms
    maker: Ints
    """Whom today's practice chooses, and"""
    expert: Ints
    """whom the candidate does."""
    today_loss: NDArray[np.float64]
    """Of today's choice, by the model in force;"""
    candidate_loss: NDArray[np.float64]
    """of the candidate's, by its own;"""
    same_plan: NDArray[np.float64]
    """of today's, by the candidate's."""
    prices: NDArray[np.float64]
    """(makers,): of the candidate's plan."""

    def row(self, place: int, case_id: str, makers: Sequence[str]) -> dict[str, Any] | None:
        """A case as the trial keeps it; None: it is in no arm."""
        return row_of(
            self.arms,
            place,
            case_id,
            maker=makers[int(self.maker[place])],
            expert=makers[int(self.expert[place])],
            today_loss=float(self.today_loss[place]),
            candidate_loss=float(self.candidate_loss[place]),
            same_plan=float(self.same_plan[place]),
        )


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
    """What the plan minimises, waiting apart."""
    gap: float
    prices: NDArray[np.float64]
    summary: dict[str, Any]
    """As the API gives it."""
    model_id: int | None
    labelled: Bools
    """Whether the truth of each case was known when it was drafted."""
    constraints: ConstraintsTable | None = None
    pace: Mapping[str, float] = field(default_factory=dict)
    """Cases an hour, by expert, as the model knows it."""
    seed: int = 0
    waits: Waits | None = None
    """What waiting costs its cases."""
    timed: Timed | None = None
    in_trial: InTrial | None = None

    @property
    def in_arms(self) -> bool:
        """Whether some of the cases go by a candidate."""
        return self.in_trial is not None and self.in_trial.arms.state == "trial"

    @property
    def counts_waiting(self) -> bool:
        """Whether waiting had a say in who gets which case."""
        return self.waits is not None and self.waits.counts

    @property
    def loads(self) -> Ints:
        """Cases of every maker."""
        return np.bincount(self.maker, minlength=len(self.scored.makers))

    @property
    def options(self) -> dict[str, Any]:
        """How `make_plan` made it."""
        return {
            "constraints": self.constraints,
            "pace": self.pace,
            "seed": self.seed,
            "waits": self.waits,
        }

    def allowed(self) -> Bools:
        """Who may get each case."""
        return allowed(self.scored, self.excluded)

    def verify(self) -> None:
        """Check the draft against its own losses and limits, independently of how it was solved.

        Prices prove that a plan is the best within the limits. Under constraints, where waiting counts and
        in two arms there may be better ones: then only the limits, the makers and the sum of the losses are
        checked.
        """
        capacity = only(roster_capacity(self.roster), self.scored, self.allowed(), self.lot)
        lower, upper = capacity.limits(self.scored.makers, len(self.maker))
        mask = capacity.mask(self.scored.ids, self.scored.makers)
        problem = AssignmentProblem.of(self.scored.objective, upper, lower, mask)
        free = self.constraints is None and not self.counts_waiting and not self.in_arms
        gap = self.gap if free else np.inf
        verify(problem, Assignment(self.maker, self.objective, self.prices, gap, "stored", 0.0))

    def rows(self, start: int, count: int) -> list[DraftedCase]:
        """Some of its cases."""
        part = slice(start, start + count)
        return [
            DraftedCase(
                case_id=str(case),
                maker=self.scored.makers[int(j)],
                expected_loss=_number(losses[int(j)]),
                losses={m: _number(v) for m, v in zip(self.scored.makers, losses.tolist(), strict=True)},
                **({} if self.timed is None else self.timed.row(place)),
            )
            for place, (case, j, losses) in enumerate(
                zip(self.scored.ids[part], self.maker[part], self.scored.loss[part], strict=True), start
            )
        ]


def allowed(scored: Scored, excluded: Sequence[str]) -> Bools:
    """Who may get each case: those with a finite loss who are not excluded (lists as JSON)."""
    found: Bools = np.isfinite(scored.loss)
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
    """One parquet file in memory: cases, what is believed of them, the choice; all else as its metadata."""
    scored, count = draft.scored, len(draft.maker)
    columns: dict[str, Any] = {
        "case_id": pa.array([str(case) for case in scored.ids]),
        "maker": draft.maker,
        "says": scored.says,
        "excluded": pa.array(draft.excluded),
        "lot": draft.lot,
        "propensity": draft.propensity,
        "labelled": draft.labelled,
    }
    columns |= {f"loss {j}": scored.loss[:, j] for j in range(len(scored.makers))}
    if scored.objective is not scored.loss:
        columns |= {f"objective {j}": scored.objective[:, j] for j in range(len(scored.makers))}
    if scored.columns is not None:
        columns |= {f"column {name}": pa.array(scored.columns[name]) for name in scored.columns}
    opinions = scored.opinions
    if opinions is not None:
        columns |= {f"opinion {name}": _cells(getattr(opinions, name), count) for name in ("p", "q", "costs")}
    waits, queued = draft.waits, None
    if waits is not None and draft.timed is not None:
        columns |= {f"harm {each.name}": getattr(waits.harm, each.name) for each in fields(Harm)}
        columns |= {f"timed {each.name}": getattr(draft.timed, each.name) for each in fields(Timed)}
        columns |= {} if waits.priority is None else {"harm priority": waits.priority}
        queued = _plain_queue(waits.queued)
    columns |= _trial_columns(draft.in_trial)
    more = {
        "makers": list(scored.makers),
        "classes": list(scored.classes),
        "objective": draft.objective,
        "gap": draft.gap,
        "prices": draft.prices.tolist(),
        "roster": draft.roster.to_dict("list"),
        "constraints": None if draft.constraints is None else draft.constraints.model_dump(mode="json"),
        "pace": dict(draft.pace),
        "seed": draft.seed,
        "hours": None if waits is None else waits.hours[0].tolist(),
        "queued": queued,
        "trial": _trial_facts(draft.in_trial),
        "review_cost": None if opinions is None else np.asarray(opinions.review_cost).tolist(),
        "correlation": None if opinions is None else _listed(opinions.correlation),
    }
    out = io.BytesIO()
    table = pa.table(columns).replace_schema_metadata({"deccaf": json.dumps(more)})
    pq.write_table(table, out, compression="zstd")
    return out.getvalue()


def unpack(payload: bytes, summary: dict[str, Any], model_id: int | None) -> Draft:
    """Rebuild what `pack` gave."""
    table = pq.read_table(io.BytesIO(payload))
    more = json.loads(table.schema.metadata[b"deccaf"])
    makers, classes = tuple(more["makers"]), tuple(more["classes"])
    places = range(len(makers))
    loss = np.column_stack([table.column(f"loss {j}").to_numpy() for j in places])
    objective = loss
    if "objective 0" in table.column_names:
        objective = np.column_stack([table.column(f"objective {j}").to_numpy() for j in places])
    named, given = [n for n in table.column_names if n.startswith("column ")], more.get("constraints")
    ids = pd.Index(table.column("case_id").to_pylist(), dtype=object)
    scored = Scored(
        ids=ids,
        makers=makers,
        loss=loss,
        objective=objective,
        says=table.column("says").to_numpy(),
        classes=classes,
        columns=_named(table.select(named)) if given is not None else None,
        opinions=_opinions(table, len(makers), more),
    )
    no_labels = np.zeros(len(ids), np.bool_)  # drafts of earlier versions do not say
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
        labelled=table.column("labelled").to_numpy() if "labelled" in table.column_names else no_labels,
        constraints=None if given is None else ConstraintsTable.model_validate(given),
        pace=more.get("pace", {}),
        seed=more.get("seed", 0),
        waits=_waits(table, more),
        timed=_timed(table),
        in_trial=_in_trial(table, more.get("trial")),
    )


_ARM = ("stratum", "block", "candidate", "chance")
_CHOICE = ("maker", "expert", "today_loss", "candidate_loss", "same_plan")


def _trial_columns(trial: InTrial | None) -> dict[str, Any]:
    if trial is None:
        return {}
    arms = {f"arm {name}": pa.array(getattr(trial.arms, name)) for name in _ARM}
    return arms | {f"trial {name}": getattr(trial, name) for name in _CHOICE}


def _trial_facts(trial: InTrial | None) -> dict[str, Any] | None:
    if trial is None:
        return None
    arms = trial.arms
    found = {"id": arms.trial_id, "state": arms.state, "model": arms.model_id, "before": dict(arms.before)}
    return {**found, "prices": trial.prices.tolist()}


def _in_trial(table: pa.Table, facts: Mapping[str, Any] | None) -> InTrial | None:
    if facts is None:
        return None
    arms = PlannedArms(
        trial_id=facts["id"],
        state=facts["state"],
        model_id=facts["model"],
        stratum=table.column("arm stratum").to_pylist(),
        block=table.column("arm block").to_numpy(),
        candidate=table.column("arm candidate").to_numpy(),
        chance=table.column("arm chance").to_numpy(),
        before=facts["before"],
    )
    choices: dict[str, Any] = {name: table.column(f"trial {name}").to_numpy() for name in _CHOICE}
    return InTrial(arms=arms, prices=np.array(facts["prices"]), **choices)


def _plain_queue(queued: Queued | None) -> dict[str, Any] | None:
    if queued is None:
        return None
    harm = {each.name: getattr(queued.harm, each.name).tolist() for each in fields(Harm)}
    return {"harm": harm, "maker": queued.maker.tolist(), "priority": queued.priority.tolist()}


def _waits(table: pa.Table, more: Mapping[str, Any]) -> Waits | None:
    if "harm rate" not in table.column_names:
        return None
    hours, queue = np.array(more["hours"]), more["queued"]
    harm = Harm(*[table.column(f"harm {each.name}").to_numpy() for each in fields(Harm)])
    queued = None
    if queue is not None:
        queued = Queued(
            Harm(*[np.array(queue["harm"][each.name]) for each in fields(Harm)]),
            np.array(queue["maker"], np.int64),
            np.tile(hours, (len(queue["maker"]), 1)),
            np.array(queue["priority"], np.int64),
        )
    known = "harm priority" in table.column_names
    priority = table.column("harm priority").to_numpy() if known else None
    return Waits(harm, np.tile(hours, (len(table), 1)), priority=priority, queued=queued)


def _timed(table: pa.Table) -> Timed | None:
    if "timed order" not in table.column_names:
        return None
    return Timed(*[table.column(f"timed {each.name}").to_numpy() for each in fields(Timed)])


def _named(table: pa.Table) -> pd.DataFrame:
    return pd.DataFrame(
        {name.removeprefix("column "): table[name].to_pandas() for name in table.column_names}
    )


def _cells(values: NDArray[np.float64], count: int) -> pa.Array:
    """An array of any shape with one cell per case; one row for all cases is repeated."""
    whole = np.broadcast_to(values, (count, *values.shape[1:])).reshape(count, -1)
    return pa.FixedSizeListArray.from_arrays(pa.array(whole.ravel()), whole.shape[1])


def _opinions(table: pa.Table, makers: int, more: Mapping[str, Any]) -> Opinions | None:
    if "opinion p" not in table.column_names:
        return None

    def cells(name: str) -> NDArray[np.float64]:
        column = table.column(f"opinion {name}").combine_chunks()
        return np.asarray(column.flatten().to_numpy()).reshape(len(table), -1)

    p = cells("p")
    truths = p.shape[1]
    return Opinions(
        p=p,
        q=cells("q").reshape(len(p), makers, truths, truths),
        costs=cells("costs").reshape(len(p), truths, truths),
        review_cost=np.array(more["review_cost"]),
        correlation=None if more.get("correlation") is None else np.array(more["correlation"]),
    )


def _listed(table: NDArray[np.float64] | None) -> list[list[float]] | None:
    return None if table is None else [[float(value) for value in row] for row in table]


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
