"""Background jobs: one of a kind at a time, whoever lost one cannot end it, nothing new is no failure."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter

import pytest
import sqlalchemy as sa

from deccaf.service.jobs import process, records, refit
from deccaf.service.jobs.kinds import ask
from deccaf.service.ledger import versions
from deccaf.service.store import database
from deccaf.service.store import tables as t
from deccaf.service.store.keys import Actor
from model_damage import forged
from service_world import World, first_key, model_file, shift_body, small_model, world


@pytest.fixture
def engine(database_url: str) -> sa.Engine:
    first_key(database_url)
    engine = database.connect(database_url)
    yield engine
    engine.dispose()


def queued(engine: sa.Engine, activate: bool = True) -> int:
    with database.writing(engine) as connection:
        return records.enqueue(connection, "refit", {"name": "x", "activate": activate}, 1, 0.0)


def taken(engine: sa.Engine, worker: str, at: float, gone: bool = False) -> int | None:
    with database.writing(engine) as connection:
        return records.take(connection, worker, at, lambda _: gone)


def test_eight_refits_at_once_make_one_job(database_url: str) -> None:
    with world(database_url, housekeeping=False) as desk:
        statuses: Counter[int] = Counter()

        def send() -> None:
            statuses[desk.lead.post("/v1/models/refit", json={}).status_code] += 1

        threads = [threading.Thread(target=send) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert statuses == {202: 1, 409: 7}
        assert len(desk.lead.get("/v1/jobs").json()["items"]) == 1


def test_two_open_jobs_of_a_kind_cannot_be_written(engine: sa.Engine) -> None:
    queued(engine)
    with pytest.raises(sa.exc.IntegrityError):
        queued(engine)
    with database.writing(engine) as connection:
        assert ask(connection, "backtest", {"name": "x"}, Actor(1), 0.0) > 1


def test_a_live_job_is_not_taken_over_while_the_machine_is_busy(engine: sa.Engine) -> None:
    job = queued(engine)
    assert taken(engine, "one", 0.0) == job
    assert taken(engine, "two", 60.0) is None
    assert taken(engine, "two", records.DEAD_SECONDS + 1) == job


def test_a_job_whose_process_is_known_to_be_gone_is_taken_at_once(engine: sa.Engine) -> None:
    job = queued(engine)
    assert taken(engine, "one", 0.0) == job
    assert taken(engine, "two", 1.0, gone=True) == job


def test_who_lost_a_job_cannot_end_it(engine: sa.Engine) -> None:
    job = queued(engine)
    taken(engine, "one", 0.0)
    taken(engine, "two", 1000.0)
    with database.writing(engine) as connection:
        made: list[int] = []
        assert not records.finish(connection, job, "one", "failed", lambda: made.append(1) or {}, 1001.0)
        assert made == []
        assert records.read_job(connection, job).state == "running"
        assert records.finish(connection, job, "two", "done", lambda: {"a": 1}, 1001.0)
        assert records.read_job(connection, job).result == {"a": 1}


def test_processes_of_this_machine_are_known_to_be_gone_or_not() -> None:
    assert not process.is_gone(process.process_name())
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    node = os.uname().nodename
    assert process.is_gone(f"{node}:{child.pid}:1")
    assert not process.is_gone(f"elsewhere:{child.pid}:1")
    assert not process.is_gone("one")


def test_a_refit_with_nothing_new_is_done_and_says_so(
    engine: sa.Engine, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refit, "read_lesson", lambda connection: None)
    monkeypatch.setattr(refit, "fit", lambda lesson, note: small_model())
    results = []
    for _ in range(2):
        job = queued(engine)
        taken(engine, "one", time.time())
        process.run(database_url, job, "one")
        with database.reading(engine) as connection:
            row = connection.execute(sa.select(t.jobs).where(t.jobs.c.id == job)).one()
        assert row.state == "done", row.result
        results.append(json.loads(row.result))
    assert [(r["model"], r["new"]) for r in results] == [(1, True), (1, False)]
    assert "nothing new" in results[1]["notes"][-1]
    with database.reading(engine) as connection:
        assert versions.active_id(connection) == 1
        assert len(versions.activations(connection)) == 1


def test_metrics_forget_who_was_on_an_earlier_shift(tmp_path) -> None:
    with world(f"sqlite:///{tmp_path}/d.db", {"ann": 2, "bob": 2}, housekeeping=False) as desk:
        assert 'deccaf_used{maker="bob"}' in desk.machine.get("/metrics").text
        assert desk.lead.patch(f"/v1/shifts/{desk.shift}", json={"state": "closed"}).status_code == 200
        assert desk.lead.post("/v1/shifts", json=shift_body({"ann": 1}, "next")).status_code == 201
        text = desk.machine.get("/metrics").text
        assert 'deccaf_used{maker="ann"}' in text
        assert "bob" not in text


@pytest.mark.parametrize("name", ["../evil.txt", "/etc/evil", "a/../../b"])
def test_a_model_file_with_odd_members_is_refused(desk_and_model: tuple[World, bytes], name: str) -> None:
    desk, model = desk_and_model
    answer = desk.lead.post("/v1/models", content=forged(model, lambda content: content.update({name: b"x"})))
    assert (answer.status_code, "member" in answer.json()["detail"]) == (422, True), answer.text


def test_a_model_file_with_nan_is_refused(desk_and_model: tuple[World, bytes]) -> None:
    desk, model = desk_and_model

    def spoil(content: dict[str, bytes]) -> None:
        name = next(n for n in sorted(content) if n.endswith(".npy") and b"<f8" in content[n][:100])
        content[name] = content[name][:-8] + b"\x00\x00\x00\x00\x00\x00\xf8\x7f"

    answer = desk.lead.post("/v1/models", content=forged(model, spoil))
    assert answer.status_code == 422, answer.text
    assert desk.lead.get("/v1/models").json()["items"] == []


@pytest.fixture(scope="module")
def desk_and_model(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("odd-models")
    with world(f"sqlite:///{folder}/d.db", housekeeping=False) as desk:
        yield desk, model_file(folder)


def test_a_job_whose_process_died_is_taken_up_again_a_few_times(engine: sa.Engine) -> None:
    job, long = queued(engine, activate=False), records.DEAD_SECONDS
    assert taken(engine, "one", 0.0) == job
    assert taken(engine, "two", 0.9 * long) is None, "the first one may still live"
    with database.writing(engine) as connection:
        assert records.beat(connection, job, "one", 0.9 * long)
    assert taken(engine, "two", 1.8 * long) is None
    assert taken(engine, "two", 2 * long) == job
    with database.writing(engine) as connection:
        assert not records.beat(connection, job, "one", 2 * long), "the first one has lost it"
    assert taken(engine, "three", 3.1 * long) == job
    assert taken(engine, "four", 4.2 * long) is None
    with database.reading(engine) as connection:
        row = connection.execute(sa.select(t.jobs)).one()
    assert (row.state, json.loads(row.result)) == ("failed", {"error": "gave up after 3 attempts"})


def test_a_refit_that_cannot_be_says_why(engine: sa.Engine, database_url: str) -> None:
    job = queued(engine, activate=False)
    taken(engine, "one", time.time())
    process.run(database_url, job, "one")
    with database.reading(engine) as connection:
        row = connection.execute(sa.select(t.jobs)).one()
    assert row.state == "failed"
    assert "nobody said what errors cost" in json.loads(row.result)["error"]
