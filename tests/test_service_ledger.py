"""The ledger on both databases: what it promises holds, under races too."""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deccaf.service.errors import RefusedError
from deccaf.service.ledger import assignments, check, claims, labels, placing
from deccaf.service.ledger import desk as desks
from deccaf.service.ledger.case_records import Arrival
from deccaf.service.ledger.routing import choose
from deccaf.service.store import database, unfinished
from deccaf.service.store import tables as t
from deccaf.service.store.keys import Actor
from service_world import world

SOMEBODY = Actor(None)
RNG = np.random.default_rng(0)


@pytest.fixture
def engine(database_url: str) -> sa.Engine:
    engine = database.connect(database_url)
    database.migrate(engine)
    yield engine
    engine.dispose()


def new_shift(
    engine: sa.Engine, capacity: dict[str, int | None], name: str = "today", random_share: float = 0.0
) -> int:
    with database.writing(engine) as connection:
        team = connection.execute(
            sa.insert(t.teams).values(name=f"team of {name}", created_at=0).returning(t.teams.c.id)
        ).scalar_one()
        shift = connection.execute(
            sa.insert(t.shifts)
            .values(
                name=name, team_id=team, starts_at=0, ends_at=1e6, random_share=random_share, state="open"
            )
            .returning(t.shifts.c.id)
        ).scalar_one()
        connection.execute(
            sa.insert(t.roster),
            [
                {"shift_id": shift, "maker": m, "capacity": c, "lower": 0, "used": 0, "absent": False}
                for m, c in capacity.items()
            ],
        )
    return shift


def arrival(case_id: str, **losses: float) -> Arrival:
    return Arrival(case_id, "{}", losses, says="0", excluded=())


def route(engine: sa.Engine, shift: int, *arrivals: Arrival, at: float = 1.0) -> list[placing.Placed | None]:
    with database.writing(engine) as connection:
        desk = desks.open_desk(connection, shift, at)
        return placing.route(connection, desk, arrivals, SOMEBODY, at, RNG)


def used(engine: sa.Engine) -> dict[str, int]:
    with database.reading(engine) as connection:
        return {row.maker: row.used for row in connection.execute(sa.select(t.roster))}


def assert_sound(engine: sa.Engine) -> None:
    with database.reading(engine) as connection:
        assert check.check(connection) == []


def test_the_migrated_schema_is_the_one_in_the_code(engine: sa.Engine) -> None:
    with engine.connect() as connection:
        context = MigrationContext.configure(connection)
        assert compare_metadata(context, t.metadata) == []
    found, needed = database.schema_state(engine)
    assert found == needed


def test_a_case_goes_to_the_least_loss_plus_price_with_room(engine: sa.Engine) -> None:
    shift = new_shift(engine, {"machine": None, "ann": 1, "bob": 5})
    with database.writing(engine) as connection:
        desks.write_prices(connection, shift, ["machine", "ann", "bob"], [0, 0.3, 0], "test", None, 0)
    # ann's price makes bob the better choice: 0.1 + 0.3 > 0.2
    first, second = route(
        engine,
        shift,
        arrival("a", machine=0.5, ann=0.1, bob=0.2),
        arrival("b", machine=0.9, ann=0.1, bob=0.8),
    )
    assert (first.maker, second.maker) == ("bob", "ann")
    # ann is full now; the machine decides at once, and its decision is on record
    third = route(engine, shift, arrival("c", machine=0.2, ann=0.0, bob=0.9))[0]
    assert (third.maker, third.decision, third.price) == ("machine", "0", 0.0)
    assert used(engine) == {"machine": 1, "ann": 1, "bob": 1}
    with database.reading(engine) as connection:
        assert connection.execute(sa.select(t.decisions.c.maker)).scalars().all() == ["machine"]
        reason = assignments.reason_of(connection, assignments.live_of(connection, "a"))
    assert reason.losses == {"machine": 0.5, "ann": 0.1, "bob": 0.2}
    assert reason.prices == {"machine": 0, "ann": 0.3, "bob": 0}
    assert reason.propensity == 1.0
    assert_sound(engine)


def test_a_case_without_room_waits(engine: sa.Engine) -> None:
    shift = new_shift(engine, {"ann": 1})
    placed = route(engine, shift, arrival("a", ann=0.1), arrival("b", ann=0.1))
    assert [p and p.maker for p in placed] == ["ann", None]
    assert_sound(engine)


def test_the_database_itself_refuses_an_overrun(engine: sa.Engine) -> None:
    shift = new_shift(engine, {"ann": 1})
    with pytest.raises(sa.exc.IntegrityError), database.writing(engine) as connection:
        connection.execute(sa.update(t.roster).values(used=2))
    with pytest.raises(RefusedError, match="ann has no room"), database.writing(engine) as connection:
        desks.take(connection, shift, {"ann": 2})
    assert used(engine) == {"ann": 0}


def test_the_database_itself_refuses_a_second_live_assignment(engine: sa.Engine) -> None:
    shift = new_shift(engine, {"ann": 5, "bob": 5})
    route(engine, shift, arrival("a", ann=0.1, bob=0.2))
    with pytest.raises(sa.exc.IntegrityError), database.writing(engine) as connection:
        columns = [c for c in t.assignments.c if c.name not in {"id", "maker"}]
        copy = sa.select(*columns, sa.literal("bob")).where(t.assignments.c.case_id == "a")
        names = [*[c.name for c in columns], "maker"]
        connection.execute(sa.insert(t.assignments).from_select(names, copy))


@pytest.mark.parametrize("table", t.APPEND_ONLY)
def test_the_record_can_only_grow(engine: sa.Engine, table: str) -> None:
    shift = new_shift(engine, {"machine": None})
    route(engine, shift, arrival("a", machine=0.1))
    with database.writing(engine) as connection:
        labels.label(connection, [("a", "1")], SOMEBODY, 2.0)
        key = connection.execute(
            sa.insert(t.keys).values(name="k", role="lead", hash="h", created_at=0).returning(t.keys.c.id)
        ).scalar_one()
        model = connection.execute(
            sa.insert(t.models)
            .values(name="m", source="upload", sha256="s", size=1, summary="{}", content=b"", created_at=0)
            .returning(t.models.c.id)
        ).scalar_one()
        connection.execute(sa.insert(t.activations).values(model_id=model, key_id=key, kind="activate", at=0))
        undone = {"case_id": "a", "maker": "ann", "decision": "1", "decided_at": 1.0, "at": 2.0}
        connection.execute(sa.insert(t.undone).values(**undone))
        answer = {"case_id": "a", "assignment_id": 1, "maker": "ann", "decision": "0", "at": 1.0}
        connection.execute(sa.insert(t.opinions).values(**answer))
    for change in (f"UPDATE {table} SET at = 0", f"DELETE FROM {table}"):
        with pytest.raises(sa.exc.DBAPIError, match="append-only"), database.writing(engine) as connection:
            connection.execute(sa.text(change))


def test_a_reviewers_day(engine: sa.Engine) -> None:
    shift = new_shift(engine, {"ann": 5, "bob": 1})
    route(engine, shift, arrival("a", ann=0.1, bob=0.9), arrival("b", ann=0.1, bob=0.9))
    with database.writing(engine) as connection:
        first = claims.claim_next(connection, "ann", SOMEBODY, 10.0, 60.0)
        again = claims.claim_next(connection, "ann", SOMEBODY, 20.0, 60.0)
    assert first == ("a", 70.0)
    assert again == ("a", 80.0), "an open claim is given again, and extended"
    with database.writing(engine) as connection:
        claims.decide(connection, "a", "ann", "1", 12.5, SOMEBODY, 30.0)
    with pytest.raises(RefusedError, match="decided already"), database.writing(engine) as connection:
        claims.decide(connection, "a", "ann", "0", None, SOMEBODY, 31.0)
    with pytest.raises(RefusedError, match="not assigned to bob"), database.writing(engine) as connection:
        claims.decide(connection, "b", "bob", "0", None, SOMEBODY, 31.0)
    with database.writing(engine) as connection:
        assert claims.claim_next(connection, "ann", SOMEBODY, 40.0, 60.0).case_id == "b"
        moved = claims.hand_back(connection, "b", "ann", "knows the applicant", SOMEBODY, 50.0, RNG)
    assert moved.maker == "bob"
    with database.writing(engine) as connection:
        assert claims.hand_back(connection, "b", "bob", "too busy", SOMEBODY, 60.0, RNG) is None
    assert used(engine) == {"ann": 1, "bob": 0}, "nobody is left for b; it waits"
    with database.reading(engine) as connection:
        events = (
            connection.execute(sa.select(t.history.c.kind).where(t.history.c.case_id == "b")).scalars().all()
        )
    assert events == ["assigned", "claimed", "returned", "assigned", "returned"]
    assert_sound(engine)


def test_expired_claims_go_to_the_next_best(engine: sa.Engine) -> None:
    shift = new_shift(engine, {"ann": 5, "bob": 5})
    route(engine, shift, arrival("a", ann=0.1, bob=0.9))
    with database.writing(engine) as connection:
        claims.claim_next(connection, "ann", SOMEBODY, 10.0, 60.0)
        assert claims.expire_claims(connection, 60.0, RNG) == []
        assert claims.expire_claims(connection, 71.0, RNG) == ["a"]
    with pytest.raises(RefusedError, match="not assigned to ann"), database.writing(engine) as connection:
        claims.decide(connection, "a", "ann", "1", None, SOMEBODY, 72.0)
    assert used(engine) == {"ann": 0, "bob": 1}
    assert_sound(engine)


def test_who_is_absent_gets_nothing_and_their_work_goes_to_others(engine: sa.Engine) -> None:
    shift = new_shift(engine, {"ann": 5, "bob": 1})
    route(engine, shift, *[arrival(f"a{k}", ann=0.1, bob=0.9) for k in range(3)])
    with database.writing(engine) as connection:
        connection.execute(sa.update(t.roster).where(t.roster.c.maker == "ann").values(absent=True))
        assert claims.release_work(connection, shift, "ann", None, "ill", SOMEBODY, 5.0, RNG) == 3
    assert used(engine) == {"ann": 0, "bob": 1}, "bob has room for one; two wait"
    assert route(engine, shift, arrival("b", ann=0.0))[0] is None
    assert_sound(engine)


def test_labels_come_late_and_can_be_corrected(engine: sa.Engine) -> None:
    shift = new_shift(engine, {"machine": None})
    route(engine, shift, arrival("a", machine=0.1))
    with database.writing(engine) as connection:
        labels.label(connection, [("a", "1")], SOMEBODY, 5.0)
        labels.label(connection, [("a", "0")], SOMEBODY, 6.0)
    with pytest.raises(RefusedError, match="no case 'z'"), database.writing(engine) as connection:
        labels.label(connection, [("z", "1")], SOMEBODY, 7.0)
    with database.reading(engine) as connection:
        assert connection.execute(sa.select(t.cases.c.label)).scalar() == "0"
        assert connection.execute(sa.select(t.labels.c.label).order_by(t.labels.c.id)).scalars().all() == [
            "1",
            "0",
        ]


def test_a_roster_that_grows_keeps_its_prices(engine: sa.Engine) -> None:
    shift = new_shift(engine, {"machine": None, "bob": 5})
    with database.writing(engine) as connection:
        desks.write_prices(connection, shift, ["machine", "bob"], [0, 0.7], "test", None, 0)
        connection.execute(
            sa.insert(t.roster).values(shift_id=shift, maker="ann", capacity=2, lower=0, used=0, absent=False)
        )
        desk = desks.open_desk(connection, shift, 1.0)
    assert desk.makers == ("machine", "ann", "bob")
    assert desk.prices.tolist() == [0, 0, 0.7]


def test_racing_clients_never_overrun_a_capacity(engine: sa.Engine) -> None:
    shift = new_shift(engine, {"ann": 7, "bob": 5})
    taken, lock = Counter(), threading.Lock()

    def client(number: int) -> None:
        for k in range(10):
            for _ in range(20):
                try:
                    placed = route(engine, shift, arrival(f"c{number}-{k}", ann=0.1, bob=0.2))[0]
                    break
                except sa.exc.OperationalError:
                    continue
            with lock:
                taken[placed.maker if placed else None] += 1

    threads = [threading.Thread(target=client, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert taken == {"ann": 7, "bob": 5, None: 68}
    assert used(engine) == {"ann": 7, "bob": 5}
    assert_sound(engine)


@given(
    losses=st.lists(st.floats(0, 1) | st.just(np.inf), min_size=1, max_size=6),
    share=st.floats(0, 1),
    data=st.data(),
)
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_a_choice_has_room_and_its_propensities_add_up(
    losses: list[float], share: float, data: st.DataObject
) -> None:
    size = len(losses)
    room = np.array(data.draw(st.lists(st.integers(0, 2), min_size=size, max_size=size)), float)
    prices = np.array(data.draw(st.lists(st.floats(0, 1), min_size=size, max_size=size)))
    row, rng = np.array(losses), np.random.default_rng(1)
    able = (room > 0) & np.isfinite(row)
    seen = {}
    for _ in range(40):
        choice = choose(row, prices, room, share, rng)
        if not able.any():
            assert choice is None
            return
        assert able[choice.position]
        seen[choice.position] = choice.propensity
        if not choice.by_lot:
            bids = np.where(able, row + prices, np.inf)
            assert bids[choice.position] == bids.min()
    if set(seen) == set(np.flatnonzero(able).tolist()):
        assert sum(seen.values()) == pytest.approx(1.0)


def test_history_rows_hold_plain_json(engine: sa.Engine) -> None:
    shift = new_shift(engine, {"machine": None})
    route(engine, shift, arrival("a", machine=0.1))
    with database.reading(engine) as connection:
        row = connection.execute(sa.select(t.history)).one()
    assert (row.kind, row.maker, json.loads(row.data)) == (
        "assigned",
        "machine",
        {"method": "stream", "decided": "0"},
    )


def test_two_thousand_cases_of_somebody_who_goes_home_are_given_to_others(database_url: str) -> None:
    """In a few statements, on SQLite in pieces: one by one it took seconds, and nobody else could write."""
    statements = 0

    def count(*_: object) -> None:
        nonlocal statements
        statements += 1

    with world(database_url, {"ann": 2000, "bob": 900, "cat": 900}, housekeeping=False) as desk:
        cases = [desk.case(f"c{k}", ann=0.1, bob=0.2, cat=0.3) for k in range(2000)]
        assert desk.machine.post("/v1/cases/bulk", json={"cases": cases}).status_code == 201
        plan = desk.lead.post("/v1/plans", json={}).json()["id"]
        assert desk.lead.post(f"/v1/plans/{plan}/commit").status_code == 200
        before = desk.roster()["ann"]["used"]
        path = f"/v1/shifts/{desk.shift}/roster/ann"
        sa.event.listen(desk.service.engine, "before_cursor_execute", count)
        moved = desk.lead.put(path, json={"absent": True, "release": True})
        assert moved.json()["released"] == before >= 1800
        desk.assert_sound()
        desk.service.large.end_open()
        sa.event.remove(desk.service.engine, "before_cursor_execute", count)
        assert statements < (400 if "sqlite" in database_url else 100)
        roster = desk.roster()
        assert (roster["ann"]["used"], roster["bob"]["used"], roster["cat"]["used"]) == (0, 900, 900)
        desk.assert_sound()


@pytest.mark.parametrize("stopped", [False, True])
def test_a_capacity_is_cut_in_pieces_and_nothing_comes_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped: bool
) -> None:
    monkeypatch.setattr(claims, "RELEASED_AT_ONCE", 2)
    with world(f"sqlite:///{tmp_path}/deccaf.db", {"ann": 9, "bob": 9}, housekeeping=False) as desk:
        for k in range(7):
            desk.machine.post("/v1/cases", json=desk.case(f"c{k}", ann=0.1, bob=0.2))
        path = f"/v1/shifts/{desk.shift}/roster/ann"
        assert desk.lead.put(path, json={"capacity": 2, "release": True}).json()["released"] == 5
        with desk.service.engine.connect() as connection:
            change = unfinished.read_open(connection)[0]
        for has in (7, 5, 3):
            seat = desk.roster()["ann"]
            assert (seat["used"], seat["capacity"]) == (has, has)
            made = desk.machine.post("/v1/cases", json=desk.case(f"d{has}", ann=0.1, bob=0.2)).json()
            assert made["maker"] == "bob"
            desk.assert_sound()
            if has > 3:
                desk.service.writer.submit(
                    lambda connection: claims.release_piece(connection, change, desk.service.rng)
                ).result()
        if stopped:  # another change of the roster comes in between: what is left stays, so does the limit
            assert desk.lead.put(path, json={"lower": 1}).status_code == 200
        desk.service.large.end_open()
        seat = desk.roster()["ann"]
        assert (seat["used"], seat["capacity"]) == ((3, 3) if stopped else (2, 2))
        desk.assert_sound()


def test_whoever_comes_back_keeps_what_has_not_gone_to_others_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "RELEASED_AT_ONCE", 2)
    with world(f"sqlite:///{tmp_path}/deccaf.db", {"ann": 9, "bob": 9}, housekeeping=False) as desk:
        for k in range(7):
            assert (
                desk.machine.post("/v1/cases", json=desk.case(f"c{k}", ann=0.1, bob=0.2)).status_code == 201
            )
        path = f"/v1/shifts/{desk.shift}/roster/ann"
        assert desk.lead.put(path, json={"absent": True, "release": True}).json()["released"] == 7
        with desk.service.engine.connect() as connection:
            change = unfinished.read_open(connection)[0]
        desk.service.writer.submit(
            lambda connection: claims.release_piece(connection, change, desk.service.rng)
        ).result()
        assert (desk.roster()["ann"]["used"], desk.roster()["bob"]["used"]) == (5, 2)
        assert desk.lead.put(path, json={"absent": False}).status_code == 200
        desk.service.large.end_open()
        assert desk.roster()["ann"]["used"] == 5
        gone = desk.lead.patch("/v1/experts/ann", json={"active": False})
        assert gone.json()["released"] == 5
        desk.service.large.end_open()
        assert (desk.roster()["ann"]["used"], desk.roster()["bob"]["used"]) == (0, 7)
        desk.assert_sound()


BROKEN = {
    "UPDATE cases SET status = 'waiting' WHERE case_id = 'c0'": "'c0': its status contradicts",
    "UPDATE cases SET status = 'decided' WHERE case_id = 'c0'": "'c0': its status contradicts",
    "UPDATE cases SET status = 'assigned' WHERE case_id = 'c2'": "'c2': its status contradicts",
    "UPDATE cases SET status = 'assigned' WHERE case_id = 'c9'": "'c9': its status contradicts",
    "UPDATE roster SET used = used - 1 WHERE maker = 'ann'": "ann: used is 1, live assignments 2",
    "UPDATE assignments SET maker = 'eve' WHERE case_id = 'c0'": "eve: 1 live cases, not on the roster",
}


def test_the_check_finds_what_does_not_add_up(database_url: str) -> None:
    with world(database_url, {"ann": 2, "machine": 1}, housekeeping=False) as desk:
        for k, maker in ((0, "ann"), (1, "ann"), (2, "machine"), (9, "machine")):
            desk.machine.post("/v1/cases", json=desk.case(f"c{k}", **{maker: 0.1}))
        assert desk.service.read(check.check) == []
        with desk.service.engine.connect() as connection:
            for broken, found in BROKEN.items():
                if connection.dialect.name == "sqlite":
                    connection.exec_driver_sql("BEGIN")
                connection.exec_driver_sql(broken)
                assert any(found in line for line in check.check(connection)), broken
                connection.rollback()
