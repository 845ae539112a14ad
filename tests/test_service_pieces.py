"""Large files and plans on SQLite: written in pieces, seen whole or not at all, also after a kill."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import sqlalchemy as sa

from deccaf.service import large_changes
from deccaf.service.decide import committing
from deccaf.service.errors import RefusedError, invalid
from deccaf.service.imports import case_import, past_records
from deccaf.service.imports.case_import import Checked, Expected
from deccaf.service.large_changes import File
from deccaf.service.ledger import labels
from deccaf.service.store import tables as t
from deccaf.service.store import unfinished
from deccaf.service.store.idempotency import KEPT_SECONDS, Answer, Call, forget_old
from deccaf.service.store.keys import Actor
from deccaf.service.web.api import cases as cases_api
from service_world import World, world

CASES = 23


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Changes of more than four rows go in pieces; nobody keeps house."""
    monkeypatch.setattr(unfinished, "PIECE", 4)
    with world(f"sqlite:///{tmp_path}/deccaf.db", {"ann": 9, "bob": 99}, housekeeping=False) as desk:
        yield desk


class KilledError(Exception):
    """In the place of a SIGKILL."""


def interrupt(patch: pytest.MonkeyPatch, pieces: int, then: Callable[[], Any]) -> None:
    """After some pieces of the next large change something happens."""
    real = large_changes._parts

    def parts(rows: Any) -> Iterator[Any]:
        for number, part in enumerate(real(rows)):
            if number == pieces:
                then()
            yield part

    patch.setattr(large_changes, "_parts", parts)


def die() -> None:
    raise KilledError


def send(desk: World, names: list[str], key: str | None = None, skip_bad: bool = False) -> Answer:
    """A file that was read and checked."""

    def accept(found: Checked) -> None:
        if found.rejected and not skip_bad:
            raise invalid("bad-rows", "bad", **found.to_dict())

    checked = case_import.check_frame(pd.DataFrame({"case_id": names, "amount": 1.0}), Expected())
    return desk.service.large.enter_file(Call(Actor(1), key, "file"), File(checked, "f.csv", accept))


def drafted(desk: World) -> int:
    cases = [desk.case(f"c{k}", machine=0.1 * (k % 3), ann=0.05, bob=0.1) for k in range(CASES)]
    assert desk.lead.post("/v1/cases/bulk", json={"cases": cases}).status_code == 201
    made = desk.lead.post("/v1/plans", json={})
    assert made.status_code == 201, made.text
    return int(made.json()["id"])


def seen(desk: World) -> dict[str, Any]:
    """What readers see of cases, people's time, decisions, plans and files."""
    cases = desk.lead.get("/v1/cases", params={"limit": 500}).json()["items"]
    trails = [desk.lead.get(f"/v1/cases/{case['case_id']}").json()["history"] for case in cases]
    return {
        "cases": {case["case_id"]: case["status"] for case in cases},
        "waiting": len(
            desk.lead.get("/v1/cases", params={"status": "waiting", "limit": 500}).json()["items"]
        ),
        "used": {maker: seat["used"] for maker, seat in desk.roster().items()},
        "lines": sum(len(lines) for lines in trails),
        "queue": desk.ann.get("/v1/queue").json()["waiting"],
        "plans": [plan["state"] for plan in desk.lead.get("/v1/plans").json()["items"]],
        "imports": desk.lead.get("/v1/imports").json()["items"],
        "ledger": desk.lead.get("/v1/reports/ledger").json(),
    }


def rows(desk: World, table: sa.Table) -> int:
    with desk.service.engine.connect() as connection:
        return int(connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one())


@pytest.mark.parametrize("pieces", [0, 1, 3, 5])
def test_a_plan_whose_commit_was_killed_is_seen_not_at_all_and_then_whole(
    desk: World, monkeypatch: pytest.MonkeyPatch, pieces: int
) -> None:
    plan = drafted(desk)
    before = seen(desk)
    assert before["ledger"]["sound"]
    with monkeypatch.context() as patch:
        interrupt(patch, pieces, die)
        asked = desk.lead.post(f"/v1/plans/{plan}/commit", headers={"Idempotency-Key": "k"})
        assert asked.status_code == 500, "killed"
    assert rows(desk, t.assignments) == 4 * pieces, "so much of it is written"
    assert seen(desk) == before, "and nobody sees any of it"
    assert desk.ann.post("/v1/queue/next", json={}).status_code == 204
    assert desk.ann.post("/v1/cases/c0/decision", json={"decision": 0}).status_code == 409

    desk.service.large.end_open()
    assert rows(desk, t.unfinished) == 0
    again = desk.lead.post(f"/v1/plans/{plan}/commit", headers={"Idempotency-Key": "k"})
    assert again.status_code == 200
    assert again.headers["Idempotency-Replayed"] == "true"
    assert again.json() == {**again.json(), "id": plan, "state": "committed", "cases": CASES}
    now = seen(desk)
    assert now["waiting"] == 0
    assert now["plans"] == ["committed"]
    assert sum(now["used"].values()) == CASES
    assert now["lines"] == before["lines"] + CASES
    assert now["ledger"]["sound"]


def test_in_pieces_and_at_once_a_plan_leaves_the_same_ledger(
    desk: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, at = drafted(desk), time.time()
    with desk.service.engine.connect() as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        committing.commit(connection, plan, Actor(1), at)
        whole = written(connection)
        connection.rollback()
    monkeypatch.setattr(large_changes.time, "time", lambda: at)
    assert desk.lead.post(f"/v1/plans/{plan}/commit").status_code == 200
    with desk.service.engine.connect() as connection:
        assert written(connection) == whole


def written(connection: sa.Connection) -> list[list[Any]]:
    """All rows that a commit touches."""
    tables = (t.assignments, t.cases, t.decisions, t.history, t.roster, t.plans, t.pricings, t.shifts)
    return [sorted(map(str, connection.execute(sa.select(table)))) for table in tables]


def test_while_a_plan_is_being_committed_others_write_and_nobody_gets_in_between(
    desk: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = drafted(desk)
    before, found = seen(desk), dict[str, Any]()
    absent = threading.Thread(
        target=lambda: found.update(
            absent=desk.lead.put(
                f"/v1/shifts/{desk.shift}/roster/ann", json={"absent": True, "release": True}
            )
        )
    )

    def meanwhile() -> None:
        absent.start()
        arrived = desk.machine.post("/v1/cases", json=desk.case("new", machine=9.0, bob=0.1))
        found.update(arrived=arrived, seen=seen(desk), labelled=label(desk, "c1"))
        waited = desk.service.writer.submit(lambda connection: absent.is_alive())
        found["waits"] = waited.result() and absent.is_alive()

    interrupt(monkeypatch, 2, meanwhile)
    assert desk.lead.post(f"/v1/plans/{plan}/commit").status_code == 200
    absent.join(30)
    assert found["arrived"].status_code == 201
    assert found["arrived"].json()["maker"] == "bob"
    assert found["labelled"].status_code == 200
    assert found["waits"], "an absence comes before the plan or after it"
    assert found["seen"]["waiting"] == before["waiting"]
    assert found["seen"]["used"] == {**before["used"], "bob": before["used"]["bob"] + 1}
    assert found["seen"]["ledger"]["sound"]
    assert found["absent"].json()["released"] == 9, "all that the plan gave to ann"
    assert desk.roster()["ann"]["used"] == 0
    means = [desk.service.read(lambda c: desk.service.live_losses.means(c, desk.shift)) for _ in range(2)]
    assert means[0] == means[1]
    desk.assert_sound()


def test_a_draft_that_went_stale_before_its_first_piece_is_refused_whole(
    desk: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = drafted(desk)
    real = committing.begin

    def begin(*args: Any) -> Any:
        labels.label(args[0], [("c7", "1")], Actor(1), time.time())  # between the look and the beginning
        return real(*args)

    monkeypatch.setattr(committing, "begin", begin)
    refused = desk.lead.post(f"/v1/plans/{plan}/commit")
    assert refused.status_code == 409
    assert refused.json()["type"].endswith("plan-stale")
    assert [each["case_id"] for each in refused.json()["changed"]] == ["c7"]
    assert rows(desk, t.unfinished) == rows(desk, t.assignments) == 0


def label(desk: World, case: str) -> Any:
    return desk.machine.post("/v1/labels", json={"labels": [{"case_id": case, "label": 1}]})


@pytest.mark.parametrize("pieces", [0, 2])
def test_a_file_whose_import_was_killed_is_gone_and_can_be_sent_again(
    desk: World, monkeypatch: pytest.MonkeyPatch, pieces: int
) -> None:
    names = [f"f{k}" for k in range(CASES)]
    before = seen(desk)
    with monkeypatch.context() as patch:
        interrupt(patch, pieces, die)
        patch.setattr(case_import, "take_out", lambda *_: False)
        with pytest.raises(KilledError):
            send(desk, names, "k")
    assert rows(desk, t.cases) == 4 * pieces
    assert seen(desk) == before
    assert label(desk, "f0").status_code == 404
    desk.service.large.end_open()
    assert rows(desk, t.cases) == rows(desk, t.imports) == rows(desk, t.unfinished) == 0
    first, again = send(desk, names, "k"), send(desk, names, "k")
    assert (first.status, again.replayed) == (201, True)
    assert json.loads(first.body).items() >= {"accepted": CASES, "rejected": 0}.items()
    assert again.body == first.body
    assert set(seen(desk)["cases"]) == set(names)


def test_many_cases_of_a_request_are_entered_in_pieces_all_or_none(
    desk: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cases_api, "TOGETHER", 4)
    body = {"cases": [desk.case(f"b{k}", bob=0.1) for k in range(CASES)]}
    bulk = lambda: desk.machine.post(  # noqa: E731
        "/v1/cases/bulk", json=body, headers={"Idempotency-Key": "k"}
    )
    with monkeypatch.context() as patch:
        interrupt(patch, 2, lambda: desk.machine.post("/v1/cases", json=desk.case("b20", bob=0.1)))
        refused = bulk()
    assert (refused.status_code, "b20" in refused.json()["detail"]) == (409, True)
    assert set(seen(desk)["cases"]) == {"b20"}
    body["cases"] = [case for case in body["cases"] if case["case_id"] != "b20"]
    first, again = bulk(), bulk()
    assert (first.status_code, first.json()) == (201, {"accepted": CASES - 1})
    assert (again.status_code, again.json()) == (201, first.json())
    assert len(seen(desk)["cases"]) == CASES
    assert rows(desk, t.unfinished) == 0
    desk.assert_sound()


@pytest.mark.parametrize("skip", [False, True])
def test_a_case_that_arrives_while_its_file_is_entered_comes_first(
    desk: World, monkeypatch: pytest.MonkeyPatch, skip: bool
) -> None:
    names = [f"f{k}" for k in range(CASES)]
    arrived = []

    def meanwhile() -> None:  # one is in a piece that is written, one in a later one
        arrived.extend(desk.machine.post("/v1/cases", json=desk.case(c, bob=0.1)) for c in ("f1", "f20"))
        assert set(seen(desk)["cases"]) == {"f1", "f20"}

    interrupt(monkeypatch, 2, meanwhile)
    try:
        found = json.loads(send(desk, names, skip_bad=skip).body)
    except RefusedError as error:
        assert not skip
        found = error.more
    assert [answer.status_code for answer in arrived] == [201, 201]
    assert [error["case_id"] for error in found["errors"]] == ["f1", "f20"]
    assert set(seen(desk)["cases"]) == (set(names) if skip else {"f1", "f20"})
    assert rows(desk, t.unfinished) == 0
    desk.assert_sound()


@pytest.mark.parametrize("pieces", [0, 2, 5])
def test_a_history_that_was_not_entered_whole_was_not_entered(
    desk: World, monkeypatch: pytest.MonkeyPatch, pieces: int
) -> None:
    """Nobody sees it while it comes in; after a kill it is taken out, and can be sent again."""
    frame = pd.DataFrame(
        {"case_id": [f"h{k}" for k in range(CASES)], "x": 1.0, "label": [0, 1, 1] * 7 + [0, 1]}
    )
    frame = frame.assign(expert_id="newcomer", decision=1)
    headers = {"Content-Type": "text/csv", "Idempotency-Key": "h"}
    send_it = lambda: desk.lead.post(  # noqa: E731
        "/v1/history", content=frame.to_csv(index=False).encode(), headers=headers
    )
    looked: list[Any] = []

    def look() -> None:
        listed = desk.service.read(lambda c: past_records.latest_entries(c, 9))
        looked.append((listed, desk.service.read(past_records.labelled_count)))
        die()

    with monkeypatch.context() as patch:
        patch.setattr(large_changes.LargeChanges, "_take_out_past", lambda self: None)  # as if killed
        interrupt(patch, pieces, look)
        assert send_it().status_code == 500
    assert looked == [([], 0)]
    desk.service.large.end_open()
    assert rows(desk, t.past_entries) == rows(desk, t.past_cases) == rows(desk, t.past_decisions) == 0
    assert "newcomer" not in {one["name"] for one in desk.lead.get("/v1/experts").json()["items"]}
    again = send_it()
    assert (again.status_code, again.json()["cases"], again.json()["decisions"]) == (201, CASES, CASES)
    assert send_it().json() == again.json()
    assert rows(desk, t.past_entries) == 1


def test_labels_whose_writing_was_killed_are_written_to_the_end_and_once(
    desk: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    drafted(desk)
    monkeypatch.setattr(labels, "AT_ONCE", 5)
    call = Call(Actor(1), "k", "labels")
    real, pieces = labels.write_piece, list[int]()

    def killed_in_the_third(connection: sa.Connection, *, change: Any, done: int, at: float) -> int | None:
        if len(pieces) == 2:
            raise KilledError
        pieces.append(done)
        return real(connection, change, done, at)

    with monkeypatch.context() as patch:
        patch.setattr(labels, "write_piece", killed_in_the_third)
        with pytest.raises(KilledError):
            desk.service.large.enter_labels(call, [(f"c{k}", "1") for k in range(CASES)])
    assert pieces == [0, 5]
    bad = [{"case_id": case, "label": 1} for case in ("c0", "c1", "c2", "c3", "c4", "nobody")]
    assert (
        desk.lead.post("/v1/labels", json={"labels": bad}).status_code == 404
    )  # what had begun is ended first
    again = desk.service.large.enter_labels(call, [])
    assert (again.replayed, json.loads(again.body)) == (True, {"accepted": CASES})
    with desk.service.engine.connect() as connection:
        for table in (t.labels, t.history):
            lines = sa.select(table.c.case_id).order_by(table.c.id)
            if table is t.history:
                lines = lines.where(t.history.c.kind == "labelled")
            assert list(connection.execute(lines).scalars()) == [f"c{k}" for k in range(CASES)]
        assert unfinished.read_open(connection) == []


def test_a_ledger_of_an_earlier_version_can_be_read(desk: World) -> None:
    with desk.service.engine.connect() as connection:
        connection.exec_driver_sql("DROP TABLE unfinished")
    assert desk.service.read(lambda c: c.execute(sa.select(t.shifts.c.name)).scalars().all()) == ["today"]


def test_old_answers_are_forgotten_in_pieces(desk: World) -> None:
    for k in range(5):
        desk.machine.post("/v1/cases", json=desk.case(f"c{k}", bob=0.1), headers={"Idempotency-Key": f"k{k}"})
    soon, late = time.time(), time.time() + KEPT_SECONDS + 60

    def forget(at: float) -> bool:
        return desk.service.writer.submit(lambda connection: forget_old(connection, at, most=2)).result()

    assert not forget(soon)
    assert rows(desk, t.answers) == 5
    assert [forget(late) for _ in range(3)] == [True, True, False]
    assert rows(desk, t.answers) == 0
