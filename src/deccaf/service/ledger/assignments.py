"""Who has which case, and why: the one place that inserts assignments, and how they are read back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from deccaf.service.ledger import desk
from deccaf.service.store import rows as many
from deccaf.service.store import tables as t
from deccaf.service.store import unfinished
from deccaf.service.store.listing import from_json

Floats = NDArray[np.float64]

_CHUNK = 5_000
_AT_ONCE = 500


class NewAssignment(NamedTuple):
    """A case that somebody gets; `state` is "decided" where the decision is known at once."""

    case_id: str
    maker: str
    state: str
    method: str
    losses: str
    """Of everybody in the pricing, by `numbers`."""
    expected_loss: float
    price: float
    propensity: float
    model_id: int | None = None
    machine_says: str | None = None
    """What the machine would decide, as JSON."""
    objective: str | None = None
    """What the choice minimised, like `losses`; None: these."""
    arm: dict[str, Any] | None = None
    """Its row in `trial_cases`, where it was planned in a trial."""


@dataclass(frozen=True)
class Live:
    """The assignment that holds a case now."""

    id: int
    case_id: str
    shift_id: int
    maker: str
    state: str
    method: str
    plan_id: int | None
    pricing_id: int
    model_id: int | None
    losses: str
    objective: str | None
    machine_says: str | None
    expected_loss: float
    price: float
    propensity: float
    created_at: float
    claimed_until: float | None


@dataclass(frozen=True)
class Reason:
    """Why an assignment was made: everybody's loss and price at that moment, and the chance of the choice."""

    losses: dict[str, float | None]
    prices: dict[str, float]
    model: int | None
    propensity: float
    method: str
    plan: int | None
    objective: dict[str, float | None] | None = None
    """What the choice minimised, where that is not the loss."""


@dataclass(frozen=True)
class Outcome:
    """An assignment, live or not, with the decision and the label of its case where they are known."""

    id: int
    case_id: str
    maker: str
    state: str
    method: str
    expected_loss: float
    price: float
    propensity: float
    model_id: int | None
    plan_id: int | None
    created_at: float
    decision: int | str | None
    decided_at: float | None
    label: int | str | None


_ANY = sa.select(*[t.assignments.c[name] for name in Live.__dataclass_fields__])
_LIVE = _ANY.where(t.assignments.c.state.in_(t.LIVE), ~unfinished.unfinished_plan())


def insert(
    connection: sa.Connection,
    rows: Iterable[NewAssignment],
    shift_id: int,
    pricing_id: int,
    at: float,
    plan_id: int | None = None,
) -> None:
    """Add assignments of one shift, all under the same prices; capacity is taken by `desk.take`."""
    same: dict[str, Any] = {"shift_id": shift_id, "pricing_id": pricing_id, "plan_id": plan_id}
    same |= {"created_at": at, "changed_at": at}
    left = iter(rows)
    while part := [{**row._asdict(), **same} for row in islice(left, _CHUNK)]:
        arms = [row.pop("arm") for row in part]
        many.add(connection, t.assignments, part)
        many.add(connection, t.trial_cases, [arm for arm in arms if arm is not None])


def live_of(connection: sa.Connection, case_id: str) -> Live | None:
    """Who has a case, or has decided it."""
    row = connection.execute(_LIVE.where(t.assignments.c.case_id == case_id)).one_or_none()
    return None if row is None else Live(*row)


def answered_by(connection: sa.Connection, case_id: str, maker: str | None) -> Live | None:
    """The assignment under which somebody answered a case that others were asked about too."""
    a = t.assignments.c
    mine = _ANY.where(a.case_id == case_id, a.maker == maker, a.state == t.ANSWERED)
    row = connection.execute(mine).one_or_none()
    return None if row is None else Live(*row)


def live_where(which: sa.ColumnElement[bool]) -> sa.Select[Any]:
    """A query for live assignments, in the order of the fields of `Live`."""
    return _LIVE.where(which)


def any_where(which: sa.ColumnElement[bool]) -> sa.Select[Any]:
    """The same for assignments in whichever state."""
    return _ANY.where(which)


def lock(connection: sa.Connection, which: sa.ColumnElement[bool], most: int | None) -> list[Live]:
    """Some live assignments, newest first, which nobody else changes until the transaction ends."""
    query = _LIVE.where(which).order_by(t.assignments.c.id.desc()).limit(most)
    return [Live(*row) for row in connection.execute(query.with_for_update(key_share=True))]


def set_state(connection: sa.Connection, ids: Sequence[int], state: str, at: float) -> None:
    """Take cases from whoever has them."""
    for start in range(0, len(ids), _AT_ONCE):
        connection.execute(
            sa.update(t.assignments)
            .where(t.assignments.c.id.in_(list(ids[start : start + _AT_ONCE])))
            .values(state=state, changed_at=at, claimed_until=None)
        )


def reason_of(connection: sa.Connection, live: Live) -> Reason:
    """Why an assignment was made."""
    return reasons_of(connection, [live])[0]


def reasons_of(connection: sa.Connection, many: Sequence[Live]) -> list[Reason]:
    """Why assignments were made."""
    pricings = {number: desk.pricing(connection, number) for number in {live.pricing_id for live in many}}
    return [_reason(live, *pricings[live.pricing_id]) for live in many]


def _reason(live: Live, makers: tuple[str, ...], prices: tuple[float, ...]) -> Reason:
    return Reason(
        losses=dict(zip(makers, json.loads(live.losses), strict=True)),
        prices=dict(zip(makers, prices, strict=True)),
        model=live.model_id,
        propensity=live.propensity,
        method=live.method,
        plan=live.plan_id,
        objective=None
        if live.objective is None
        else dict(zip(makers, json.loads(live.objective), strict=True)),
    )


def list_outcomes(connection: sa.Connection, shift_id: int | None, after: int, most: int) -> list[Outcome]:
    """Assignments (of one shift, or of all) with an id above `after`, in order."""
    a, d, o, k = t.assignments.c, t.decisions.c, t.opinions.c, t.cases.c
    decision = sa.func.coalesce(d.decision, o.decision).label("decision")
    at = sa.func.coalesce(d.at, o.at).label("at")
    names = ("id", "case_id", "maker", "state", "method", "expected_loss", "price", "propensity")
    query = (
        sa.select(*a[names], a.model_id, a.plan_id, a.created_at, decision, at, k.label)
        .join_from(t.assignments, t.cases, a.case_id == k.case_id)
        .outerjoin(t.decisions, sa.and_(d.case_id == a.case_id, a.state == "decided"))
        .outerjoin(t.opinions, sa.and_(o.assignment_id == a.id, a.state == t.ANSWERED))
        .where(a.id > after)
        .order_by(a.id)
        .limit(most)
    )
    if shift_id is not None:
        query = query.where(a.shift_id == shift_id)
    return [_outcome(row) for row in connection.execute(query)]


def _outcome(row: Any) -> Outcome:
    facts = row._asdict()
    decided = {"decision": from_json(facts.pop("decision")), "decided_at": facts.pop("at")}
    return Outcome(**{**facts, **decided, "label": from_json(row.label)})


def loss_matrix(
    connection: sa.Connection, rows: Sequence[Any], makers: Sequence[str], what: str = "losses"
) -> Floats:
    """The losses of assignments (rows with `losses` and `pricing_id`) as (cases, makers).

    Infinite for who could not get the case. `what` names another column of the same form. Rows of one
    pricing are read together.
    """
    column = {name: j for j, name in enumerate(makers)}
    loss = np.full((len(rows), len(makers)), np.inf)
    by_pricing: dict[int, list[int]] = {}
    for k, row in enumerate(rows):
        by_pricing.setdefault(row.pricing_id, []).append(k)
    for pricing_id, names in desk.makers_of(connection, list(by_pricing)).items():
        places = by_pricing[pricing_id]
        known = [j for j, name in enumerate(names) if name in column]
        values = json.loads("[" + ",".join(getattr(rows[k], what) for k in places) + "]")
        table = np.array(values, np.float64).reshape(len(places), len(names))
        columns = [column[names[j]] for j in known]
        loss[np.ix_(places, columns)] = np.where(np.isnan(table), np.inf, table)[:, known]
    return loss


def numbers(values: Iterable[float | None]) -> str:
    """A JSON list with seven digits each: enough to see who won, a third of the bytes."""
    return "[" + ",".join(["null" if v is None else "%.7g" % v for v in values]) + "]"  # noqa: UP031
