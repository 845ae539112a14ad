"""`deccaf serve`: setting up, where it may listen, the demo, jobs that survive."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from deccaf import ConfigError
from deccaf.cli import app
from deccaf.service import run
from deccaf.service.core import Service
from deccaf.service.decide import pricing
from deccaf.service.demo import Play, Stage, build_stage, furnish
from deccaf.service.ledger import claims, shifts
from deccaf.service.store import database
from deccaf.service.store import tables as t
from deccaf.service.store.keys import Actor, KeyRing
from service_world import first_key, history, world


def test_init_prints_the_first_key_once(database_url: str) -> None:
    runner = CliRunner()
    first = runner.invoke(app, ["serve", "--init", "--database", database_url])
    secret = first.stdout.strip()
    assert first.exit_code == 0
    assert secret.startswith("deccaf_")
    engine = database.connect(database_url)
    assert KeyRing(engine).look_up(secret).role == "lead"
    with database.reading(engine) as connection:
        assert secret not in str(connection.execute(sa.select(t.keys)).all()), "only a hash is stored"
    engine.dispose()
    with pytest.raises(ConfigError, match="set up already"):
        run.initialise(database_url)


def test_a_lost_key_is_replaced_on_the_machine_itself(database_url: str) -> None:
    runner = CliRunner()
    with pytest.raises(ConfigError, match="--init first"):
        run.new_lead_key(database_url)
    lost = run.initialise(database_url)
    made = runner.invoke(app, ["serve", "--new-lead-key", "--database", database_url])
    assert made.exit_code == 0, made.output
    engine = database.connect(database_url)
    keys = KeyRing(engine)
    found = keys.look_up(made.stdout.strip())
    assert (found.role, found.key_id) != ("lead", keys.look_up(lost).key_id)
    with database.reading(engine) as connection:
        line = connection.execute(sa.select(t.history).order_by(t.history.c.id.desc()).limit(1)).one()
    assert (line.kind, json.loads(line.data)["by"]) == ("key added", "--new-lead-key")
    engine.dispose()


def test_prices_are_renewed_without_new_cases(database_url: str) -> None:
    with world(database_url, {"ann": 60, "bob": 60}, housekeeping=False) as desk:
        for k in range(40):
            losses = {"machine": 0.9, "ann": 0.1 + 0.01 * k, "bob": 0.2}
            assert desk.machine.post("/v1/cases", json=desk.case(f"c{k}", **losses)).status_code == 201
        service, later = desk.service, time.time() + 6.0
        assert service.read(lambda c: pricing.due(c, later)) == [desk.shift]
        assert pricing.renew(service.engine, service.writer, desk.shift)
        assert service.read(lambda c: pricing.due(c, time.time())) == [], "just renewed"
        count = sa.select(sa.func.count()).select_from(t.pricings)
        before = service.read(lambda c: c.execute(count).scalar_one())
        for _ in range(5):
            assert pricing.renew(service.engine, service.writer, desk.shift)
        assert service.read(lambda c: c.execute(count).scalar_one()) == before, "nothing moved"
        assert service.read(lambda c: shifts.read_shift(c, desk.shift)).priced_at >= later - 6.0


def test_it_listens_beyond_loopback_only_with_keys(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/d.db"
    with pytest.raises(ConfigError, match="run deccaf serve --init first"):
        run.check_place(url, "127.0.0.1", 1)
    run.upgrade(url)
    for host in ("127.0.0.1", "::1", "localhost"):
        run.check_place(url, host, 1)
    for host in ("0.0.0.0", "192.168.1.5", "example.org", "::"):
        with pytest.raises(ConfigError, match="nobody has a key yet"):
            run.check_place(url, host, 1)
    run.initialise(url)
    run.check_place(url, "0.0.0.0", 1)
    with pytest.raises(ConfigError, match="several processes need PostgreSQL"):
        run.check_place(url, "127.0.0.1", 2)


@pytest.mark.parametrize("url", ["mysql://x/y", "sqlite://", "not a url", "sqlite:///:memory:"])
def test_other_databases_are_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="expected sqlite:///path or postgresql"):
        database.connect(url)


def test_a_database_that_is_away_is_named() -> None:
    with pytest.raises(ConfigError, match="does not answer"):
        run.check_place("postgresql://nobody@127.0.0.1:9/none", "127.0.0.1", 1)


@pytest.fixture(scope="module")
def stage() -> Stage:
    return build_stage(applications=30_000)


@contextmanager
def playing(stage: Stage, folder: Path, **options: float) -> Iterator[tuple[Service, str]]:
    url = f"sqlite:///{folder}/demo.db"
    first_key(url)
    service = Service(url)
    secret = furnish(service, stage)
    play = Play(service, stage, per_second=200.0, **options)
    play.start()
    yield service, secret
    play.stop()
    service.close()


def wait_for(service: Service, table: sa.Table, rows: int) -> int:
    deadline, found = time.monotonic() + 300, 0
    while found < rows and time.monotonic() < deadline:
        time.sleep(0.2)
        found = service.read(lambda c: c.execute(sa.select(sa.func.count()).select_from(table)).scalar_one())
    return found


def test_the_demo_is_alive(stage: Stage, tmp_path: Path) -> None:
    with playing(stage, tmp_path) as (service, secret):
        assert wait_for(service, t.decisions, 30) >= 30
        assert KeyRing(service.engine).look_up(secret).role == "lead"


@pytest.mark.parametrize("trouble", [True, False])
def test_the_demo_shows_its_trouble(stage: Stage, tmp_path: Path, trouble: bool) -> None:
    options = {"trouble_after": 0.0} if trouble else {}
    with playing(stage, tmp_path, **options) as (service, _):
        assert wait_for(service, t.cases, 300) >= 300
        alerts = service.monitor.check_now(time.time()).alerts
    shifted = {alert.subject for alert in alerts if alert.kind == "drift"}
    assert ("credit_risk_score" in shifted) == trouble
    assert trouble or alerts == []


def test_a_refit_is_done_in_the_background(tmp_path: Path) -> None:
    with world(f"sqlite:///{tmp_path}/d.db", {"ann": 500, "bob": 500, "cat": 500}) as desk:
        past = history(240)
        cases = [
            {
                "case_id": row.case_id,
                "features": {"amount": row.amount, "channel": row.channel},
                "losses": {row.expert: 0.1},
            }
            for row in past.itertuples()
        ]
        desk.machine.post("/v1/cases/bulk", json={"cases": cases})
        plan = desk.lead.post("/v1/plans", json={}).json()["id"]
        assert desk.lead.post(f"/v1/plans/{plan}/commit").status_code == 200
        said = [{"case_id": row.case_id, "label": row.label} for row in past.itertuples()]
        with database.writing(desk.service.engine) as connection:
            for row in past.itertuples():
                claims.decide(
                    connection,
                    row.case_id,
                    row.expert,
                    json.dumps(row.decision),
                    5.0,
                    Actor(None),
                    1.0,
                )
        assert desk.machine.post("/v1/labels", json={"labels": said}).status_code == 200
        settings = {"costs": {"false_positive": 0.2, "false_negative": 1.0}}
        desk.lead.put("/v1/settings", json=settings)
        started = desk.lead.post("/v1/models/refit", json={"name": "from the ledger", "activate": True})
        assert started.status_code == 202
        assert desk.lead.post("/v1/models/refit", json={}).status_code == 409
        job = started.json()["job"]
        deadline = time.monotonic() + 300
        while (state := desk.lead.get(f"/v1/jobs/{job}").json())["state"] in {"queued", "running"}:
            assert time.monotonic() < deadline, state
            time.sleep(0.5)
        assert state["state"] == "done", state
        models = desk.lead.get("/v1/models").json()
        assert models["active"] == state["result"]["model"]
        deadline = time.monotonic() + 10
        while desk.service.models.active is None and time.monotonic() < deadline:
            time.sleep(0.1)
        found = desk.machine.post(
            "/v1/cases", json={"case_id": "new", "features": {"amount": 1.0, "channel": "web"}}
        )
        assert found.json()["model"] == models["active"]
        desk.assert_sound()


def test_the_service_says_when_it_is_not_ready(tmp_path: Path) -> None:
    service = Service(f"sqlite:///{tmp_path}/d.db", housekeeping=False)
    assert "this version needs v" in (service.ready() or "")
    service.close()
