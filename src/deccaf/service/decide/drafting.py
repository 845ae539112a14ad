"""Making a draft from the cases that wait: score, draw the lottery, solve, verify; and asking "what if"."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import sqlalchemy as sa

from deccaf.assign import Opinions
from deccaf.data.capacity import UNLIMITED, Capacity
from deccaf.data.config import ConstraintsTable, CostsTable
from deccaf.data.costs import MACHINE
from deccaf.data.review import named_in
from deccaf.errors import CapacityError, DataError, did_you_mean
from deccaf.evaluate.drift import Unlike
from deccaf.planning.constraints import needs_opinions
from deccaf.planning.plan import Plan
from deccaf.planning.planner import make_plan, roster_notes
from deccaf.planning.random_sharing import random_cost
from deccaf.planning.scored import Scored, trusted
from deccaf.planning.waiting import Waits
from deccaf.planning.what_if import changed
from deccaf.planning.what_if import what_if as planning_what_if
from deccaf.service.decide.draft import Bools, Draft, Ints, Timed, allowed, only, roster_capacity
from deccaf.service.decide.lottery import (
    LotCost,
    Lottery,
    draw_costs,
    draw_lottery,
    expected_lot,
    lottery_of,
    no_lottery,
)
from deccaf.service.decide.registry import Model
from deccaf.service.errors import conflict, invalid, not_found
from deccaf.service.ledger import case_records, shifts
from deccaf.service.ledger.trials import planned_arms, trial_records
from deccaf.service.ledger.trials.trial_records import Trial
from deccaf.service.ledger.waiting.plan_waits import COLUMNS, read_plan_waits
from deccaf.service.store import tables as t

MOST_CASES = 200_000


@dataclass(frozen=True, eq=False)
class Waiting:
    """Cases without anybody, and the roster that could take them."""

    shift_id: int
    case_ids: list[str]
    features: list[str]
    given: list[str | None]
    excluded: list[str]
    roster: pd.DataFrame
    """maker, upper (what is left), lower (what is still owed)."""
    random_share: float
    """How much of it is given out by lot."""
    labelled: list[bool]
    """Whether the truth of each case is known already."""
    waits: Waits | None = None
    """What waiting costs them; None: nothing is said about it."""
    at: float = 0.0
    """When this was so."""
    constraints: ConstraintsTable | None = None
    """What plans grant unless they are asked for something else."""
    trial: Trial | None = None
    """The one that runs."""
    places: Mapping[str, int] = field(default_factory=dict)
    """How many cases of each of its strata were planned before."""

    def part(self, rows: Ints, roster: pd.DataFrame) -> Waiting:
        """Some of the cases, with a share of everybody's room."""
        return replace(
            self,
            case_ids=[self.case_ids[k] for k in rows],
            features=[self.features[k] for k in rows],
            given=[self.given[k] for k in rows],
            excluded=[self.excluded[k] for k in rows],
            labelled=[self.labelled[k] for k in rows],
            roster=roster,
            waits=None if self.waits is None else self.waits.take(rows),
        )


@dataclass(frozen=True)
class OtherPlan:
    """What the cases of a draft would cost with other capacities."""

    cost: float
    """Of errors and waiting."""
    change: float
    """Against the capacities of the draft."""
    plan: dict[str, Any]
    """The other plan's summary."""


def waiting_cases(
    connection: sa.Connection, shift_id: int, case_ids: Sequence[str] | None, at: float
) -> Waiting:
    """Everything a plan for a shift is made from, as it is at a moment.

    Cases whose truth is known need nobody's time: they are planned only if they are named.
    """
    shift = shifts.read_shift(connection, shift_id)
    if shift.state != "open":
        raise conflict("shift-closed", f"shift {shift_id} is closed; open it, or plan for another")
    c = t.cases.c
    columns = c["case_id", "features", "given", "excluded", "label"]
    query = sa.select(*columns, *[c[name] for name in COLUMNS]).where(c.status == "waiting")
    named = c.label.is_(None) if case_ids is None else c.case_id.in_(list(case_ids))
    query = query.where(named)
    rows = connection.execute(query.order_by(c.id).limit(MOST_CASES)).all()
    if case_ids is not None and len(rows) < len(set(case_ids)):
        missing = sorted(set(case_ids) - {row.case_id for row in rows})
        raise conflict("not-waiting", f"{len(missing)} case(s) do not wait for a plan, first: {missing[0]!r}")
    if not rows:
        known = case_records.waiting_count(connection)
        why = f" ({known:,} wait whose label is known; name them in case_ids to plan them)" if known else ""
        raise conflict("nothing-waits", f"no case waits for a plan{why}")
    roster, trial = left_of_roster(connection, shift_id), trial_records.running_trial(connection)
    return Waiting(
        shift_id=shift_id,
        case_ids=[row.case_id for row in rows],
        features=[row.features for row in rows],
        given=[row.given for row in rows],
        excluded=[row.excluded for row in rows],
        roster=roster,
        random_share=float(shift.random_share),
        labelled=[row.label is not None for row in rows],
        waits=read_plan_waits(connection, rows, _makers(roster), at),
        at=at,
        constraints=trial_records.constraints_in_force(connection),
        trial=trial,
        places={} if trial is None else planned_arms.places_taken(connection, trial),
    )


def _makers(roster: pd.DataFrame) -> tuple[str, ...]:
    return (MACHINE, *[name for name in roster["maker"] if name != MACHINE])


def make_draft(
    waiting: Waiting,
    model: Model | None,
    constraints: ConstraintsTable | None = None,
    costs: CostsTable | None = None,
    strict: bool = False,
    lot: bool = True,
) -> Draft:
    """Score, draw the lottery, solve, verify; nothing is written.

    Random cases that the constraints ask for take the place of the shift's own lottery; without `lot` nothing
    is drawn for the shift, and the summary says what it would cost. `costs` replace those of the model; with
    `strict`, cases unlike those that it learned from are a `DriftError`.
    """
    check_constraints(constraints)
    if costs is not None:
        model = with_costs(model, costs, waiting)
    return planned_draft(waiting, score(waiting, model, constraints, strict), model, constraints, lot)


def score(
    waiting: Waiting, model: Model | None, constraints: ConstraintsTable | None = None, strict: bool = False
) -> Scored:
    """What is believed of all waiting cases, with what is odd about them and about the roster."""
    experts = list(_makers(waiting.roster)[1:])
    scored = trusted(_scored(waiting, model, experts, constraints), strict)
    if model is None:
        return scored
    notes = roster_notes(model.system.experts_, roster_capacity(waiting.roster))
    return replace(scored, notes=(*notes, *scored.notes))


def planned_draft(
    waiting: Waiting, scored: Scored, model: Model | None, constraints: ConstraintsTable | None, lot: bool
) -> Draft:
    """The draft of cases that are scored."""
    capacity = roster_capacity(waiting.roster)
    may = allowed(scored, waiting.excluded)
    options: dict[str, Any] = {"constraints": constraints, "waits": waiting.waits}
    if model is not None:
        options |= {"pace": model.system.hourly(), "seed": model.system.seed}
    made = _planned(scored, capacity, may, waiting, options, lot)
    plan, lottery = made.plan, made.lottery
    (solved,) = plan.assignments.values()
    aim = scored.objective if plan.priced is None else plan.priced
    return Draft(
        scored=scored,
        roster=waiting.roster,
        excluded=waiting.excluded,
        lot=lottery.maker,
        propensity=lottery.propensity(np.where(may, aim, np.inf), solved.prices, solved.maker),
        maker=solved.maker,
        objective=solved.objective if plan.priced is None else plan.summary.cost,
        gap=solved.gap,
        prices=solved.prices,
        summary=_summary(plan, scored, may, lottery.maker) | made.wishes(),
        model_id=model.id if model else None,
        labelled=np.array(waiting.labelled),
        timed=Timed.of(plan, waiting.at),
        **options,
    )


def with_costs(model: Model | None, costs: CostsTable, waiting: Waiting) -> Model:
    """The model with other costs, which may only name people who are known."""
    if model is None:
        raise conflict("no-model", "costs: no model is active whose costs they could replace")
    system = model.system.with_costs(costs.build(), costs.review_cost)
    known = {*waiting.roster["maker"], *system.experts_}
    stray = next((name for name in named_in(costs.review_cost) if name not in known), None)
    if stray is not None:
        hint = did_you_mean(stray, known)
        raise invalid(
            "unknown-name", f"costs.review_cost: {stray!r} is neither on the roster nor known{hint}"
        )
    return replace(model, system=system)


def what_if(draft: Draft, changes: Mapping[str, str]) -> OtherPlan:
    """What the same cases would cost with other capacities; nothing is written.

    Cases drawn by lot stay with their maker, in both plans, as long as there is room for them.
    """
    if draft.in_trial is not None and draft.in_trial.arms.state == "trial":
        raise conflict("in-a-trial", "a plan in two arms answers no what-if; ask when the trial has ended")
    unknown = [name for name in changes if name not in set(draft.roster["maker"])]
    if unknown:
        raise not_found("maker on this plan's roster", unknown[0])
    may, capacity = draft.allowed(), roster_capacity(draft.roster)
    room = changed(capacity, changes).upper[list(draft.scored.makers)].to_numpy()[0]
    lot = _fitting(draft.lot, room)
    if draft.constraints is not None and draft.constraints.random is not None:
        lot = np.full(len(lot), -1)  # drawn again, by the constraint itself
    asked = planning_what_if(
        draft.scored, only(capacity, draft.scored, may, lot), changes, **_of_planner(draft.options)
    )
    other = _summary(asked.then, draft.scored, may, lot)
    return OtherPlan(asked.then.summary.total, -asked.saves, other)


@dataclass(frozen=True, eq=False)
class _Planned:
    """A plan, which of its cases were dealt at random, and what it would be without what was wished for."""

    plan: Plan
    lottery: Lottery
    plain: Plan
    """Of least cost within everybody's limits: without constraints, nothing by lot."""
    lot: LotCost | None = None
    """What the shift's lottery was expected to cost, before it was drawn."""

    def wishes(self) -> dict[str, Any]:
        """What the wishes cost, for the summary."""
        found: dict[str, Any] = {"plain_cost": self.plain.summary.total, "lot": None}
        if self.lot is not None:
            drawn = bool((self.lottery.maker >= 0).any())
            found["lot"] = {**asdict(self.lot), "drawn": drawn}
        return found


def _planned(
    scored: Scored,
    capacity: Capacity,
    may: Bools,
    waiting: Waiting,
    options: Mapping[str, Any],
    lot: bool,
) -> _Planned:
    """The plan without wishes first, whose prices tell where a draw costs least; then the one asked for."""
    constraints: ConstraintsTable | None = options["constraints"]
    options = _of_planner(options)
    nothing = no_lottery(*may.shape)
    limits = only(capacity, scored, may, nothing.maker)
    if constraints is not None and constraints.random is not None:
        plan = make_plan(scored, limits, **options)
        (solved,) = plan.assignments.values()
        drawn = np.where(plan.frame["random"], solved.maker, -1)
        lottery = lottery_of(drawn, plan.frame["propensity"].to_numpy(), may, len(scored.makers))
        return _Planned(plan, lottery, make_plan(scored, limits, **{**options, "constraints": None}))
    best = make_plan(scored, limits, **options)
    plain = best
    if constraints is not None:
        plain = make_plan(scored, limits, **{**options, "constraints": None})
    if not waiting.random_share:
        return _Planned(best, nothing, plain)
    room = waiting.roster["upper"].to_numpy(np.int64)
    (solved,) = plain.assignments.values()
    aim = scored.objective if plain.priced is None else plain.priced
    cost = draw_costs(aim, solved.prices, may, room)
    expected = expected_lot(cost, may, room, waiting.random_share)
    if lot:
        lottery = draw_lottery(may, room, waiting.random_share, np.random.default_rng(), cost)
        if (lottery.maker >= 0).any():
            try:
                plan = make_plan(scored, only(capacity, scored, may, lottery.maker), **options)
                return _Planned(plan, lottery, plain, expected)
            except CapacityError:  # what somebody is owed leaves nothing to draw, or it fits in no way
                pass
    return _Planned(best, nothing, plain, expected)


def _of_planner(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a draft as `make_plan` takes them."""
    waits = options.get("waits")
    found = {name: value for name, value in options.items() if name != "waits"}
    return found if waits is None else {**found, "waiting": lambda scored: waits}


def check_constraints(constraints: ConstraintsTable | None) -> None:
    """Refuse what the ledger cannot keep: a case has one decision, and a queue goes by what waiting costs."""
    if constraints is not None and constraints.on_order:
        raise invalid(
            "no-order",
            "constraints.service_level, constraints.priority: a plan of the desk promises no order, because "
            "everybody's queue goes by what waiting costs as the day goes on; say in the settings what being "
            "late costs (waiting), give single cases a priority, or plan with deccaf assign",
        )
    asked = None if constraints is None else constraints.reviewers
    if asked is not None and (asked.count != 1 or asked.up_to not in (None, 1)):
        raise invalid(
            "one-reviewer-each",
            "constraints.reviewers: in the service one person decides a case; plan several opinions with "
            "deccaf assign --config, or leave reviewers out",
        )


def left_of_roster(connection: sa.Connection, shift_id: int) -> pd.DataFrame:
    """What is left of everybody's capacity, and what they are still owed."""
    left = [
        (
            seat.maker,
            UNLIMITED if seat.room is None else seat.room,
            0 if seat.away else max(seat.lower - seat.used, 0),
        )
        for seat in shifts.read_roster(connection, shift_id)
    ]
    if not any(maker == MACHINE for maker, _, _ in left):
        left.insert(0, (MACHINE, 0, 0))  # a machine that is not on the roster decides nothing
    return pd.DataFrame(left, columns=["maker", "upper", "lower"])


def _scored(
    waiting: Waiting, model: Model | None, experts: list[str], constraints: ConstraintsTable | None
) -> Scored:
    """What is believed of all waiting cases: as given, else by the model."""
    makers = (MACHINE, *experts)
    count = len(waiting.case_ids)
    given = np.array([text is not None for text in waiting.given])
    classes: list[int | str] = list(model.classes) if model is not None else []
    loss, says = np.full((count, len(makers)), np.inf), np.full(count, -1, np.int64)
    objective, opinions = loss, None
    notes: tuple[str, ...] = ()
    warnings: tuple[Unlike, ...] = ()
    if not given.all():
        if model is None:
            raise conflict("no-model", f"{(~given).sum()} case(s) need a model, and none is active")
        rows = np.flatnonzero(~given)
        frame = pd.DataFrame([json.loads(waiting.features[k]) for k in rows])
        found = model.score_frame(frame, experts, constraints)
        columns = np.array([makers.index(name) for name in found.makers])
        loss[np.ix_(rows, columns)], says[rows] = found.loss, found.says
        notes, opinions, warnings = found.notes, found.opinions, found.warnings
        if found.objective is not found.loss:
            objective = loss.copy()
            objective[np.ix_(rows, columns)] = found.objective
    for k in np.flatnonzero(given):
        beliefs = json.loads(waiting.given[k] or "{}")
        loss[k] = objective[k] = [beliefs["losses"].get(maker, np.inf) for maker in makers]
        if beliefs["says"] is not None:
            decision = json.loads(beliefs["says"])
            classes += [] if decision in classes else [decision]
            says[k] = classes.index(decision)
    if (says < 0).any():
        classes.append("")  # the last class, which -1 points to: the machine's decision is not known
    return Scored(
        ids=pd.Index(waiting.case_ids, dtype=object),
        makers=makers,
        loss=loss,
        objective=objective,
        says=says,
        classes=tuple(classes),
        notes=notes,
        columns=_columns(waiting, constraints),
        opinions=_for_all(opinions, given, constraints),
        terms=None if model is None or given.all() else model.system.terms,
        warnings=warnings,
    )


def _columns(waiting: Waiting, constraints: ConstraintsTable | None) -> pd.DataFrame | None:
    """The columns that the constraints name."""
    if constraints is None:
        return None
    features = pd.DataFrame([json.loads(text) for text in waiting.features])
    named = list(constraints.columns)
    missing = [name for name in named if name not in features]
    if missing:
        hint = did_you_mean(missing[0], [str(name) for name in features])
        raise DataError(f"column {missing[0]!r}: missing; the constraints ask for it{hint}")
    return features[named]


def _for_all(
    opinions: Opinions | None, given: Bools, constraints: ConstraintsTable | None
) -> Opinions | None:
    """What everyone would say, where constraints need it; cases with losses of their own have none."""
    if constraints is not None and needs_opinions(constraints) and given.any():
        raise invalid(
            "no-opinions",
            f"constraints.band: measures fpr and fnr need a model that scores every case; {given.sum()} "
            "case(s) came with losses of their own",
        )
    return opinions


def _fitting(lot: Ints, room: Ints) -> Ints:
    """The draws of the lottery that still find room; who has less of it now keeps the first of theirs."""
    kept = lot.copy()
    for maker in np.unique(lot[lot >= 0]):
        kept[np.flatnonzero(lot == maker)[max(int(room[maker]), 0) :]] = -1
    return kept


def _summary(plan: Plan, scored: Scored, may: Bools, lot: Ints) -> dict[str, Any]:
    """The plan's summary as plain JSON, with the price of each constraint where there are any.

    Random sharing is reckoned over everybody who may get a case, also where the lottery has fixed its maker:
    the page Today reckons it so from the ledger, where the lottery is over.
    """
    loads = plan.summary.makers["cases"].to_numpy()
    shared = replace(plan.summary, random_cost=random_cost(scored.loss, loads, may))
    found: dict[str, Any] = _plain(shared.to_dict())
    by_constraint = "random" in plan.frame
    drawn = int(plan.frame["random"].sum() if by_constraint else (lot >= 0).sum())
    if drawn:
        asks = "the constraints ask" if by_constraint else "the shift asks"
        found["notes"].append(f"given out by lot, as {asks}: {drawn:,} of {len(lot):,} cases")
    found["by_lot"] = drawn
    if plan.constraints is not None:
        found["constraints"] = _plain(plan.constraints.drop(columns="batch").to_dict("records"))
    return found


def _plain(value: Any) -> Any:
    """JSON without NaN, infinity and NumPy's numbers."""
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not np.isfinite(value) else value
