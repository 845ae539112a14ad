"""Giving cases to somebody: those that arrive, and those that wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import sqlalchemy as sa

from deccaf.data.costs import MACHINE
from deccaf.service.ledger import assignments, case_records, desk, letting, trail
from deccaf.service.ledger.assignments import NewAssignment, numbers
from deccaf.service.ledger.case_records import Arrival, Rival
from deccaf.service.ledger.desk import Desk, Floats
from deccaf.service.ledger.routing import Choice, choose
from deccaf.service.ledger.waiting.bids import open_bids
from deccaf.service.store import tables as t
from deccaf.service.store.keys import Actor
from deccaf.tracing import traced

_ADD_DECISION = sa.insert(t.decisions)


@dataclass(frozen=True)
class ToPlace:
    """A case that needs somebody."""

    case_id: str
    losses: Mapping[str, float]
    says: str | None
    model_id: int | None
    excluded: tuple[str, ...] = ()
    objective: Mapping[str, float] | None = None
    """What the choice minimises, where that is not the expected loss."""
    rival: Rival | None = None
    """The other arm, where the case is in a trial."""


@dataclass(frozen=True)
class Placed:
    """Where a case went, and why."""

    case_id: str
    maker: str
    expected_loss: float
    price: float
    propensity: float
    method: str
    losses: Mapping[str, float | None]
    decision: str | None
    """The machine's decision, as JSON, where the machine decided at once."""
    objective: Mapping[str, float | None] | None = None
    let_through: bool = False
    """Whether the machine's reject is overruled by lot (see `letting`)."""
    other: str | None = None
    """Whom the other arm of a trial would have chosen."""

    @property
    def status(self) -> str:
        """Of the case and of its assignment."""
        return "assigned" if self.decision is None else "decided"


@traced("route")
def route(
    connection: sa.Connection,
    at_desk: Desk,
    arrivals: Sequence[Arrival],
    actor: Actor | Sequence[Actor],
    at: float,
    rng: np.random.Generator,
) -> list[Placed | None]:
    """Enter cases and give each to somebody at once; None where nobody has room, and the case waits."""
    actors = [actor] * len(arrivals) if isinstance(actor, Actor) else list(actor)
    items = [
        ToPlace(a.case_id, a.losses or {}, a.says, a.model_id, a.excluded, a.objective, a.rival)
        for a in arrivals
    ]
    bids = open_bids(connection, at_desk, arrivals, at) if at_desk.is_open else None
    placed = []
    for arrival, item in zip(arrivals, items, strict=True):
        delay = None if bids is None or arrival.losses is None else bids.of(arrival)
        chosen = _choose(at_desk, item, rng, delay) if at_desk.is_open else None
        placed.append(chosen)
        if bids is not None and chosen is not None:
            bids.placed(arrival, chosen.maker)
    rows = [(a, "waiting" if p is None else p.status) for a, p in zip(arrivals, placed, strict=True)]
    case_records.add(connection, rows, at)
    together = list(zip(items, placed, actors, strict=True))
    waiting = [trail.line("arrived", at, who, item.case_id) for item, p, who in together if p is None]
    trail.write(connection, waiting)
    made = [(item, p, who) for item, p, who in together if p is not None]
    return _told(placed, _write(connection, at_desk, made, at))


def place_waiting(
    connection: sa.Connection,
    at_desk: Desk,
    items: Sequence[ToPlace],
    actor: Actor,
    at: float,
    rng: np.random.Generator,
) -> list[Placed | None]:
    """Give cases that are in the ledger and wait to somebody; None where nobody has room."""
    placed = [_choose(at_desk, item, rng) if at_desk.is_open else None for item in items]
    made = [(item, p, actor) for item, p in zip(items, placed, strict=True) if p is not None]
    for status in ("assigned", "decided"):
        case_records.set_status(connection, [p.case_id for _, p, _ in made if p.status == status], status)
    return _told(placed, _write(connection, at_desk, made, at))


def _told(placed: Sequence[Placed | None], through: Mapping[str, float]) -> list[Placed | None]:
    """The same, saying which rejects of the machine are let through."""
    return [replace(p, let_through=True) if p is not None and p.case_id in through else p for p in placed]


def give(
    connection: sa.Connection,
    at_desk: Desk,
    items: Sequence[tuple[ToPlace, str]],
    method: str,
    actor: Actor,
    at: float,
) -> None:
    """Give cases to those whom somebody has chosen for them; refused where there is no room."""
    made = [(item, _placed(at_desk, item, maker, method), actor) for item, maker in items]
    at_desk.taken.update(maker for _, maker in items)
    decided = [placed.case_id for _, placed, _ in made if placed.status == "decided"]
    case_records.set_status(connection, decided, "decided")
    _write(connection, at_desk, made, at)


def best(at_desk: Desk, item: ToPlace) -> str | None:
    """Who would get a case now: the least loss + price among those with room; None: nobody has any."""
    row = at_desk.row(item.losses if item.objective is None else item.objective, item.excluded)
    bids = np.where((at_desk.room > 0) & np.isfinite(row), row + at_desk.prices, np.inf)
    position = int(bids.argmin())
    return at_desk.makers[position] if np.isfinite(bids[position]) else None


def _placed(at_desk: Desk, item: ToPlace, maker: str, method: str) -> Placed:
    row, position = at_desk.row(item.losses, item.excluded), at_desk.makers.index(maker)
    aim = None if item.objective is None else at_desk.row(item.objective, item.excluded)
    return Placed(
        case_id=item.case_id,
        maker=maker,
        expected_loss=float(row[position]),
        price=float(at_desk.prices[position]),
        propensity=1.0,
        method=method,
        losses=_by_maker(at_desk, row),
        decision=item.says if maker == MACHINE else None,
        objective=None if aim is None else _by_maker(at_desk, aim),
    )


def _choose(
    at_desk: Desk, item: ToPlace, rng: np.random.Generator, waiting: Floats | None = None
) -> Placed | None:
    """Who gets a case; what it costs that it waits counts in the bids, where that is known."""
    row = at_desk.row(item.losses, item.excluded)
    aim = row if item.objective is None else at_desk.row(item.objective, item.excluded)
    prices = at_desk.prices if waiting is None else at_desk.prices + waiting
    choice = choose(aim, prices, at_desk.room, at_desk.random_share, rng)
    if choice is None:
        return None
    maker = at_desk.makers[choice.position]
    chance, other = choice.propensity, None
    if item.rival is not None:
        chance, other = _over_both_arms(at_desk, item, item.rival, choice, prices, rng)
    at_desk.room[choice.position] -= 1
    at_desk.taken[maker] += 1
    return Placed(
        case_id=item.case_id,
        maker=maker,
        expected_loss=float(row[choice.position]),
        price=float(at_desk.prices[choice.position]),
        propensity=chance,
        method="lot" if choice.by_lot else "stream",
        losses=_by_maker(at_desk, row),
        decision=item.says if maker == MACHINE else None,
        objective=None if item.objective is None else _by_maker(at_desk, aim),
        other=other,
    )


def _over_both_arms(
    at_desk: Desk, item: ToPlace, rival: Rival, choice: Choice, prices: Floats, rng: np.random.Generator
) -> tuple[float, str | None]:
    """The chance that the chosen one gets the case, over both arms; and whom the other arm would choose."""
    row = at_desk.row(rival.losses if rival.objective is None else rival.objective, item.excluded)
    theirs = choose(row, prices, at_desk.room, 0.0, rng)
    if theirs is None:
        return rival.chance * choice.propensity, None
    able = int(((at_desk.room > 0) & np.isfinite(row)).sum())
    by_lot = at_desk.random_share / able if np.isfinite(row[choice.position]) else 0.0
    chance = by_lot + (1.0 - at_desk.random_share) * (choice.position == theirs.position)
    return rival.chance * choice.propensity + (1.0 - rival.chance) * chance, at_desk.makers[theirs.position]


def _by_maker(at_desk: Desk, row: Floats) -> dict[str, float | None]:
    values = [value if value < np.inf else None for value in row.tolist()]
    return dict(zip(at_desk.makers, values, strict=True))


def _write(
    connection: sa.Connection, at_desk: Desk, made: Sequence[tuple[ToPlace, Placed, Actor]], at: float
) -> dict[str, float]:
    """Take the capacity, write the assignments, the machine's decisions and the trail.

    Gives the chances of rejects of the machine that are let through, by case.
    """
    if not made:
        return {}
    desk.take(connection, at_desk.shift_id, at_desk.taken)
    at_desk.taken.clear()
    rows = [
        NewAssignment(
            case_id=p.case_id,
            maker=p.maker,
            state=p.status,
            method=p.method,
            losses=numbers(p.losses.values()),
            expected_loss=p.expected_loss,
            price=p.price,
            propensity=p.propensity,
            model_id=item.model_id,
            machine_says=item.says,
            objective=None if p.objective is None else numbers(p.objective.values()),
        )
        for item, p, _ in made
    ]
    assignments.insert(connection, rows, at_desk.shift_id, at_desk.pricing_id, at)
    by_machine = [
        {"case_id": p.case_id, "maker": MACHINE, "decision": p.decision, "at": at}
        for _, p, _ in made
        if p.decision is not None
    ]
    if by_machine:
        connection.execute(_ADD_DECISION, by_machine)
    shift = at_desk.shift_id
    trail.write(
        connection,
        [
            trail.line("assigned", at, who, p.case_id, shift, p.maker, method=p.method, decided=p.decision)
            for _, p, who in made
        ],
    )
    decided = [(p.case_id, p.decision, who) for _, p, who in made if p.decision is not None]
    return letting.draw_many(connection, MACHINE, decided, at) if decided else {}
