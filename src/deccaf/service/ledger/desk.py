"""A shift under lock: who has room, at which price; taking capacity and giving it back."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from deccaf.data.costs import MACHINE
from deccaf.service.errors import conflict, not_found
from deccaf.service.ledger.machines.seats import HELD_UP
from deccaf.service.store import tables as t

Floats = NDArray[np.float64]

_AT_ONCE = 500


@dataclass
class Desk:
    """Who is at work in a shift, how much room they have, and the prices in force."""

    shift_id: int
    makers: tuple[str, ...]
    room: Floats
    prices: Floats
    pricing_id: int
    random_share: float
    is_open: bool
    taken: Counter[str] = field(default_factory=Counter)

    def row(self, losses: Mapping[str, float], excluded: Iterable[str]) -> Floats:
        """The losses in the desk's order; infinite for who may not get the case."""
        row = np.array([losses.get(maker, np.inf) for maker in self.makers])
        for maker in excluded:
            if maker in self.makers:
                row[self.makers.index(maker)] = np.inf
        return row


# Statements on the path of every case are built once: building one costs as much as running it.
_DESK = (
    sa.select(*t.shifts.c["state", "random_share", "pricing_id"], *t.pricings.c["makers", "prices"])
    .outerjoin_from(t.shifts, t.pricings, t.pricings.c.id == t.shifts.c.pricing_id)
    .where(t.shifts.c.id == sa.bindparam("shift"))
)
_LOCKED_DESK = _DESK.with_for_update(key_share=True, of=t.shifts)
_OUT_OF_USE = sa.or_(
    t.experts.c.active.is_(sa.false()),
    sa.exists().where(t.machines.c.maker == t.experts.c.name, HELD_UP).correlate(t.experts),
)
_ROSTER = (
    sa.select(*t.roster.c["maker", "capacity", "used"], sa.or_(t.roster.c.absent, _OUT_OF_USE).label("away"))
    .outerjoin_from(t.roster, t.experts, t.experts.c.name == t.roster.c.maker)
    .where(t.roster.c.shift_id == sa.bindparam("shift"))
)
_TAKE = (
    sa.update(t.roster)
    .where(
        t.roster.c.shift_id == sa.bindparam("shift"),
        t.roster.c.maker == sa.bindparam("of_maker"),
        t.roster.c.absent.is_(sa.false()),
        ~sa.exists().where(t.experts.c.name == sa.bindparam("of_maker"), _OUT_OF_USE),
        sa.or_(
            t.roster.c.capacity.is_(None),
            t.roster.c.used + sa.bindparam("units", type_=sa.Integer) <= t.roster.c.capacity,
        ),
    )
    .values(used=t.roster.c.used + sa.bindparam("units", type_=sa.Integer))
)


def machine_first(maker: str) -> tuple[bool, str]:
    """The order of makers everywhere: the machine, then people by name."""
    return maker != MACHINE, maker


def open_desk(connection: sa.Connection, shift_id: int, at: float) -> Desk:
    """Lock a shift and read its desk; a roster that changed gets prices for everybody on it."""
    desk = _desk(connection, shift_id, lock=True)
    if desk.pricing_id == 0:
        desk.pricing_id = write_prices(connection, shift_id, desk.makers, desk.prices, "roster", None, at)
    return desk


def read_desk(connection: sa.Connection, shift_id: int) -> Desk:
    """The same without a lock, to read only."""
    return _desk(connection, shift_id, lock=False)


def pricing(connection: sa.Connection, pricing_id: int) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """Makers and their prices, as an assignment was based on them."""
    query = sa.select(*t.pricings.c["makers", "prices"]).where(t.pricings.c.id == pricing_id)
    row = connection.execute(query).one()
    return _parsed(row.makers, row.prices)


def makers_of(connection: sa.Connection, pricing_ids: Sequence[int]) -> dict[int, tuple[str, ...]]:
    """The makers of some pricings, in the order of their losses."""
    found: dict[int, tuple[str, ...]] = {}
    c = t.pricings.c
    for start in range(0, len(pricing_ids), _AT_ONCE):
        query = sa.select(*c["id", "makers"]).where(c.id.in_(pricing_ids[start : start + _AT_ONCE]))
        found |= {row.id: tuple(json.loads(row.makers)) for row in connection.execute(query)}
    return found


def write_prices(
    connection: sa.Connection,
    shift_id: int,
    makers: Sequence[str],
    prices: Iterable[float],
    basis: str,
    model_id: int | None,
    at: float,
) -> int:
    """Put new prices in force for a shift; old ones stay on record, as assignments refer to them."""
    made = add_prices(connection, shift_id, makers, prices, basis, model_id, at)
    put_in_force(connection, shift_id, made, at)
    return made


def add_prices(
    connection: sa.Connection,
    shift_id: int,
    makers: Sequence[str],
    prices: Iterable[float],
    basis: str,
    model_id: int | None,
    at: float,
) -> int:
    """Write prices down that are not in force yet."""
    made = connection.execute(
        sa.insert(t.pricings)
        .values(
            shift_id=shift_id,
            model_id=model_id,
            makers=json.dumps(list(makers)),
            prices=json.dumps([float(price) for price in prices]),
            basis=basis,
            at=at,
        )
        .returning(t.pricings.c.id)
    ).scalar_one()
    return int(made)


def put_in_force(connection: sa.Connection, shift_id: int, pricing_id: int, at: float) -> None:
    """From now on these prices count in a shift."""
    new = {"pricing_id": pricing_id, "priced_at": at}
    connection.execute(sa.update(t.shifts).where(t.shifts.c.id == shift_id).values(**new))


def confirm_prices(connection: sa.Connection, shift_id: int, at: float) -> None:
    """The prices in force were looked at, and stay."""
    connection.execute(sa.update(t.shifts).where(t.shifts.c.id == shift_id).values(priced_at=at))


def take(connection: sa.Connection, shift_id: int, units: Mapping[str, int]) -> None:
    """Use up capacity, all of it or none: the update itself checks that there is room."""
    for maker, count in sorted(units.items()):
        done = connection.execute(_TAKE, {"shift": shift_id, "of_maker": maker, "units": count})
        if done.rowcount != 1:
            raise conflict("no-room", f"{maker} has no room for {count} more case(s) in this shift")


def give_back(connection: sa.Connection, shift_id: int, maker: str, count: int = 1) -> None:
    """Free capacity that a case no longer needs."""
    c = t.roster.c
    connection.execute(
        sa.update(t.roster).where(c.shift_id == shift_id, c.maker == maker).values(used=c.used - count)
    )


def _desk(connection: sa.Connection, shift_id: int, *, lock: bool) -> Desk:
    """The desk; `pricing_id` is 0 where the prices on record are not for everyone on the roster."""
    shift = connection.execute(_LOCKED_DESK if lock else _DESK, {"shift": shift_id}).one_or_none()
    if shift is None:
        raise not_found("shift", shift_id)
    rows = connection.execute(_ROSTER, {"shift": shift_id}).all()
    rows = sorted(rows, key=lambda row: machine_first(row.maker))
    makers = tuple(row.maker for row in rows)
    room = [0.0 if r.away else np.inf if r.capacity is None else float(r.capacity - r.used) for r in rows]
    known, prices = ((), ()) if shift.makers is None else _parsed(shift.makers, shift.prices)
    pricing_id = shift.pricing_id if known == makers else 0
    if known != makers:
        before = dict(zip(known, prices, strict=True))
        prices = tuple(before.get(maker, 0.0) for maker in makers)
    return Desk(
        shift_id,
        makers,
        np.array(room),
        np.array(prices),
        pricing_id,
        shift.random_share,
        shift.state == "open",
    )


@lru_cache(maxsize=256)
def _parsed(makers: str, prices: str) -> tuple[tuple[str, ...], tuple[float, ...]]:
    return tuple(json.loads(makers)), tuple(json.loads(prices))
