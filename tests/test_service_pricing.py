"""Prices of a running shift: past shifts say when in a shift cases come, and how many."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import sqlalchemy as sa

from deccaf.service.decide import pricing
from deccaf.service.ledger import case_records, desk
from deccaf.service.ledger.case_records import Arrival
from deccaf.service.store import database
from deccaf.service.store import tables as t
from deccaf.service.store.keys import Actor
from pages_world import Person, new_key
from service_world import World, world

PAST = 40


def enter(connection: sa.Connection, shift: int, name: str, times: np.ndarray) -> None:
    """Cases that were given out at these times."""
    ids = [f"{name}-{k}" for k in range(len(times))]
    case_records.hold(
        connection, [Arrival(case, "{}") for case in ids], Actor(None, "machine"), float(times[0])
    )
    made = desk.open_desk(connection, shift, float(times[0]))
    losses = "[" + ",".join(["0.3", *["0.1"] * (len(made.makers) - 1)]) + "]"
    rest = {"losses": losses, "expected_loss": 0.0, "price": 0.0, "propensity": 1.0, "maker": "machine"}
    base = {"shift_id": shift, "state": "decided", "method": "stream", "pricing_id": made.pricing_id}
    rows = [
        {"case_id": c, **base, **rest, "created_at": float(at), "changed_at": float(at)}
        for c, at in zip(ids, times, strict=True)
    ]
    connection.execute(sa.insert(t.assignments), rows)


def yesterday(desk_of: World, connection: sa.Connection) -> int:
    """A shift that is over."""
    row = connection.execute(sa.select(t.shifts).where(t.shifts.c.id == desk_of.shift)).one()._asdict()
    del row["id"]
    row |= {"name": "yesterday", "starts_at": row["starts_at"] - 86400, "ends_at": row["ends_at"] - 86400}
    made = connection.execute(sa.insert(t.shifts).values(row | {"pricing_id": None})).inserted_primary_key
    shift = int(made[0])
    for seat in connection.execute(sa.select(t.roster).where(t.roster.c.shift_id == desk_of.shift)).all():
        connection.execute(sa.insert(t.roster).values({**seat._asdict(), "shift_id": shift}))
    return shift


def test_past_shifts_say_when_cases_come(tmp_path: Path) -> None:
    with world(f"sqlite:///{tmp_path}/deccaf.db", housekeeping=False) as found:
        with database.writing(found.service.engine) as connection:
            before = yesterday(found, connection)
            starts, ends = connection.execute(
                sa.select(t.shifts.c.starts_at, t.shifts.c.ends_at).where(t.shifts.c.id == before)
            ).one()
            enter(connection, before, "past", starts + np.linspace(0.8, 0.99, PAST) * (ends - starts))
        at = time.time()  # an eighth of the shift is over
        with database.reading(found.service.engine) as connection:
            outlook = pricing.read_outlook(connection, found.shift, at)
        assert outlook.forecast.arrivals == PAST
        assert outlook.forecast.clock
        assert outlook.forecast.at.min() > 0.79
        assert len(outlook.sample) == PAST
        assert 35 < outlook.forecast.remaining(outlook.today.seen, outlook.today.now) < 45
        assert (pricing.bid_prices(outlook) >= 0).all()
        assert pricing.renew(found.service.engine, found.service.writer, found.shift)


def test_the_time_of_people_who_are_full_is_worth_something(tmp_path: Path) -> None:
    """A day that goes on with people who can take no more: nobody is said to have time to spare."""
    with world(f"sqlite:///{tmp_path}/deccaf.db", {"ann": 6, "bob": 6}, housekeeping=False) as found:
        for k in range(40):
            found.machine.post("/v1/cases", json=found.case(f"c{k}", machine=1.0, ann=0.2, bob=0.4))
        assert [found.roster()[name]["used"] for name in ("ann", "bob")] == [6, 6]
        assert pricing.renew(found.service.engine, found.service.writer, found.shift)
        prices = {name: seat["price"] for name, seat in found.roster().items()}
        assert prices["ann"] > 0.5
        assert prices["bob"] > 0.3
        assert prices["machine"] == 0.0
        page = Person(found, new_key(found, "lead")).get("/").text
        assert "time to spare" not in page
        placed = found.machine.post("/v1/cases", json=found.case("next", machine=1.0, ann=0.2, bob=0.4))
        assert placed.json()["maker"] == "machine", "prices move nothing where nobody has room"
