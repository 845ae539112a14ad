"""Monitoring: quiet days stay quiet; a shifted feature and a careless reviewer are seen within the day."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from deccaf.evaluate.drift import counts, drift, is_real, profile, stability
from deccaf.service.jobs import records
from deccaf.service.ledger import case_records, labels, versions
from deccaf.service.ledger.case_records import Arrival
from deccaf.service.monitor.alerts import keep_alerts, read_response
from deccaf.service.monitor.health import DAY, Alert, HealthReport
from deccaf.service.monitor.monitoring import Monitor
from deccaf.service.store import database
from deccaf.service.store import tables as t
from deccaf.service.store.keys import Actor
from pages_world import Person, new_key
from service_world import EXPERTS, World, history, model_file, small_model, world

CASES = 300
"""Cases of a simulated day."""


@dataclass
class Days:
    """Simulated days, written straight into the ledger: cases, one decision each, labels the same evening."""

    world: World
    day: int = 0

    def live(
        self,
        seed: int,
        shift: float = 0.0,
        careless: str | None = None,
        cases: int = CASES,
        wrong: str | None = None,
    ) -> HealthReport:
        start = 1e9 + self.day * DAY
        self.day += 1
        frame = history(cases, seed)
        rng = np.random.default_rng(seed)
        frame["amount"] += shift
        if careless is not None:
            mine = (frame["expert"] == careless).to_numpy()
            frame.loc[mine, "decision"] = rng.integers(0, 2, int(mine.sum()))
        if wrong is not None:
            frame.loc[frame["expert"] == wrong, "decision"] = 1 - frame["label"]
        at = start + np.sort(rng.random(cases)) * DAY * 0.4
        with database.writing(self.world.service.engine) as connection:
            self._enter(
                connection, frame.assign(case_id=f"d{self.day}-" + frame["case_id"]), at, start + DAY * 0.9
            )
        return self.world.service.monitor.check_now(start + DAY, since=start)

    def _enter(self, connection: sa.Connection, frame: pd.DataFrame, at: np.ndarray, evening: float) -> None:
        who = Actor(None, "machine")
        pricing = connection.execute(sa.select(sa.func.max(t.pricings.c.id))).scalar_one()
        for row, when in zip(frame.itertuples(), at, strict=True):
            features = json.dumps({"amount": row.amount, "channel": row.channel})
            case_records.hold(connection, [Arrival(str(row.case_id), features)], who, float(when))
        base = {"shift_id": self.world.shift, "state": "decided", "method": "stream", "pricing_id": pricing}
        rest = {"losses": "[null,null,null]", "expected_loss": 0.0, "price": 0.0, "propensity": 1.0}
        times = {"created_at": evening, "changed_at": evening}
        connection.execute(
            sa.insert(t.assignments),
            [{"case_id": r.case_id, "maker": r.expert, **base, **rest, **times} for r in frame.itertuples()],
        )
        connection.execute(
            sa.insert(t.decisions),
            [
                {"case_id": r.case_id, "maker": r.expert, "decision": json.dumps(r.decision), "at": evening}
                for r in frame.itertuples()
            ],
        )
        labels.label(
            connection, [(str(r.case_id), json.dumps(r.label)) for r in frame.itertuples()], who, evening
        )


@pytest.fixture
def days(tmp_path: Path) -> Iterator[Days]:
    with world(f"sqlite:///{tmp_path}/deccaf.db", housekeeping=False) as found:
        with database.writing(found.service.engine) as connection:
            facts = small_model().training_
            content = model_file(tmp_path)
            made = versions.add_version(connection, "m", "test", "0", content, facts, Actor(1), 1e9 - 1)
            versions.put_in_force(connection, made.id, Actor(1), 1e9 - 1)
        found.service.models.refresh()
        yield Days(found)


def test_twenty_quiet_days_then_one_shifted_feature_and_one_careless_reviewer(days: Days) -> None:
    quiet = [days.live(seed) for seed in range(100, 120)]
    assert [alert.finding for report in quiet for alert in report.alerts] == []
    assert quiet[-1].cases == CASES
    assert {expert.name for expert in quiet[-1].experts} == set(EXPERTS)
    assert quiet[-1].score is not None
    shifted = days.live(200, shift=1.0)
    assert ("drift", "amount") in {(alert.kind, alert.subject) for alert in shifted.alerts}
    assert "channel" not in {alert.subject for alert in shifted.alerts}
    careless = days.live(201, careless="ann")
    assert [(alert.kind, alert.subject) for alert in careless.alerts] == [("errors", "ann")]
    assert _on_the_page(days.world)
    assert 'deccaf_alerts{kind="errors"} 1.0' in days.world.lead.get("/metrics").text
    assert days.live(202).alerts == []
    kinds = [(row.kind, json.loads(row.data)["alert"]) for row in _events(days.world)]
    assert ("alert raised", "drift amount") in kinds
    assert ("alert raised", "errors ann") in kinds
    assert kinds[-1] == ("alert cleared", "errors ann")


def test_few_labels_a_day_add_up_and_a_restart_loses_nothing(days: Days) -> None:
    quiet = [days.live(seed, cases=15) for seed in range(400, 405)]
    assert [alert.finding for report in quiet for alert in report.alerts] == []
    for seed in range(405, 410):
        found = days.live(seed, cases=15, wrong="ann")
    assert [(alert.kind, alert.subject) for alert in found.alerts] == [("errors", "ann")]
    assert " days, " in found.alerts[0].finding
    service = days.world.service
    after = Monitor(service.engine, service.models, CollectorRegistry())
    again = after.check_now(found.at, since=found.at - DAY)
    assert [alert.finding for alert in again.alerts] == [alert.finding for alert in found.alerts]


def test_a_weekend_mix_is_no_drift(days: Days) -> None:
    for day in range(14):
        found = days.live(500 + day, shift=1.0 if day % 7 >= 5 else 0.0, cases=120)
        assert [alert.subject for alert in found.alerts if alert.kind == "drift"] == [], day
    shifted = days.live(520, shift=1.0, cases=120)
    assert "amount" in {alert.subject for alert in shifted.alerts}


def _on_the_page(desk: World) -> bool:
    lead = Person(desk, new_key(desk, "lead"))
    page = lead.get("/watch").text
    return "ann errs more than expected" in page and "Talk to ann" in page


def _events(desk: World) -> list[sa.Row]:
    h = t.history.c
    query = sa.select(t.history).where(h.kind.in_(("alert raised", "alert cleared"))).order_by(h.id)
    return list(desk.service.read(lambda c: c.execute(query).all()))


def test_an_alert_starts_one_refit_where_the_lead_wants_that(days: Days) -> None:
    engine = days.world.service.engine
    keep_alerts(engine, [Alert("drift", "x moved", "", "x")], 10.0)
    assert days.world.lead.get("/v1/jobs").json()["items"] == []
    lead = Person(days.world, new_key(days.world, "lead"))
    assert lead.post("/watch/wish", {"refit": "yes"}).headers["location"] == "/watch"
    keep_alerts(engine, [], 11.0)
    keep_alerts(engine, [Alert("drift", "x moved", "", "x")], 12.0)
    keep_alerts(engine, [Alert("drift", "x moved", "", "x"), Alert("drift", "y moved", "", "y")], 13.0)
    found = days.world.lead.get("/v1/jobs").json()["items"]
    assert [job["params"]["name"] for job in found] == ["refit after an alert"]
    with database.reading(engine) as connection:
        assert read_response(connection).refit is True
    assert records.MOST_ATTEMPTS == 3


def test_team_and_models_pages_tell_what_was_recorded(days: Days) -> None:
    days.live(300)
    lead = Person(days.world, new_key(days.world, "lead"))
    team = lead.get("/team").text
    assert "would disagree most often" in team
    assert "Too few labelled cases were given out by lot" in team
    models = lead.get("/models").text
    assert "m (version 1) is in force" in models
    assert "600 decisions of 3 people" in models
    assert "no labels yet" in models  # these decisions were not by the model
    assert lead.post("/models/2/activate").status_code == 404
    assert lead.post("/models/1/activate").headers["location"] == "/models"


@given(st.lists(st.floats(-1e6, 1e6) | st.just(float("nan")), min_size=1, max_size=200))
def test_a_column_does_not_drift_from_itself(values: list[float]) -> None:
    column = pd.Series(values, dtype="float64")
    known = profile(column)
    assert counts(known, column).sum() == len(values)
    table = drift({"x": known}, pd.DataFrame({"x": column}))
    assert table.loc["x", "index"] == pytest.approx(0.0, abs=1e-12)
    assert not table.loc["x", "real"]


def test_the_index_by_hand() -> None:
    # 100 cases half and half, then 100 with 75 and 25; half a case more in each bin
    p, q = np.array([0.5, 0.5]), np.array([75.5, 25.5]) / 101
    assert stability([50, 50], [75, 25]) == pytest.approx(((q - p) * np.log(q / p)).sum())
    assert not is_real(stability([5, 5], [8, 2]), [5, 5], [8, 2])
    assert is_real(stability([500, 500], [750, 250]), [500, 500], [750, 250])
    words = profile(pd.Series(["a", "a", "b", None]))
    assert words["levels"] == ["a", "b"]
    assert counts(words, pd.Series(["a", "new", None, None])).tolist() == [1, 0, 1, 2]


def test_the_monitor_checks_only_now_and_then(days: Days) -> None:
    monitor: Monitor = days.world.service.monitor
    monitor.check()
    first = monitor.report
    monitor.check()
    assert monitor.report is first
    assert first.cases == 0
