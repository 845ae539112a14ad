"""A living desk: nine simulated analysts, cases that arrive, decisions, and labels that come late.

Everything goes through the same ledger as real work; only the people and the cases are made up.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import json
import logging
import tempfile
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import sqlalchemy as sa

from deccaf.assign import Forecast
from deccaf.assign.stream.outlook import Today
from deccaf.data.cases import Cases
from deccaf.data.costs import Costs
from deccaf.data.decisions import Decisions
from deccaf.data.history import History
from deccaf.data.schema import Columns
from deccaf.estimator import DeCCaF
from deccaf.service.core import Service
from deccaf.service.decide.arrivals import Incoming
from deccaf.service.decide.pricing import Outlook, bid_prices
from deccaf.service.ledger import claims, desk, labels, people, shifts, versions
from deccaf.service.ledger.shifts import NewShift, RosterPlace
from deccaf.service.store import database
from deccaf.service.store.idempotency import Call
from deccaf.service.store.keys import Actor, create_key
from deccaf.simulate import (
    SyntheticTeam,
    build_alert_sets,
    generate_applications,
    paper_group,
    random_history,
    threshold_cost,
)

log = logging.getLogger("deccaf.service")

RATE = 0.05
TEAM = "demo desk"
CAPACITY = 60
SHIFT = timedelta(minutes=20)
"""A day of the demo."""
CHECK_SECONDS = 10.0
LABEL_SECONDS = 30.0
"""Mean time to a label."""
PER_SECOND = 1.0
"""Cases that arrive, on average: more than twice what the team can review."""
TROUBLE_SECONDS = 60.0
SHIFTED = "credit_risk_score"
"""With trouble: the feature that moves by two standard deviations."""
_FORECAST = 500
_COMING = 0.3
"""Share of the cases that are still to come."""


@dataclass(frozen=True, eq=False)
class Stage:
    """What the demo plays with: the cases to come, and what everybody would say about them."""

    cases: list[dict[str, Any]]
    decisions: pd.DataFrame
    labels: list[int]
    experts: tuple[str, ...]
    model: DeCCaF
    past: pd.DataFrame
    """Expected losses of some past cases: the forecast of the first day."""


def build_stage(applications: int = 120_000, seed: int = 0) -> Stage:
    """Generate a world, let a team decide its past, and learn from one decision per case."""
    alerts = build_alert_sets(generate_applications(applications, seed=seed), (RATE,), seed=seed)
    costs = Costs.binary(false_positive=alerts.cost_ratio(RATE), false_negative=1.0)
    frame = alerts.sets[RATE].reset_index(drop=True)
    frame["case_id"] = [f"alert-{number}" for number in range(1, len(frame) + 1)]
    cases = Cases.from_frame(frame, columns=Columns(label="fraud_bool", time="month"), costs=costs)
    fit = cases.between(6, 7)
    team = SyntheticTeam.sample([paper_group()], fit, costs, seed, classifier_cost=threshold_cost(fit, costs))
    later = np.random.default_rng(seed).random(len(cases)) < _COMING
    past, coming = cases.take(~later), cases.take(later)  # by lot, not by time: a quiet day has no drift
    log_ = Decisions.from_frame(random_history(team, past, seed), cases=past, classes=costs.classes)
    model = DeCCaF(costs, decision_parts=("rates", "pooled")).fit_history(History.of(past, log_))
    order = np.random.default_rng(seed).permutation(len(coming))  # months mixed, for the same reason
    ids = [coming.ids[k] for k in order]
    plain = frame.set_index("case_id").loc[ids, cases.schema.names].astype(object)
    rows = plain.where(plain.notna(), None).to_dict("records")
    assert coming.label is not None
    return Stage(
        cases=[{str(name): value for name, value in row.items()} for row in rows],
        decisions=team.decide(coming, seed).iloc[order],
        labels=coming.label[order].tolist(),
        experts=tuple(team.experts),
        model=model,
        past=model.expected_loss(past.take(np.arange(len(past)) >= len(past) - _FORECAST)),
    )


def furnish(service: Service, stage: Stage) -> str:
    """Enter the team, the model and today's shift; the secret of a lead's key."""
    at = time.time()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "demo.deccaf"
        stage.model.save(path)
        content = path.read_bytes()
    with database.writing(service.engine) as connection:
        made, secret = create_key(connection, "demo lead", "lead", None, at)
        who = Actor(made)
        people.add_team(connection, TEAM, who, at)
        for name in stage.experts:
            people.add_expert(connection, name, TEAM, name.replace("_", " "), who, at)
        digest = hashlib.sha256(content).hexdigest()
        facts = stage.model.training_
        model = versions.add_version(connection, "demo model", "demo", digest, content, facts, who, at)
        versions.put_in_force(connection, model.id, who, at)
        open_day(connection, stage, 1, at)
    service.models.refresh()
    service.monitor.every = CHECK_SECONDS
    return secret


def open_day(connection: sa.Connection, stage: Stage, number: int, at: float) -> None:
    """A new shift, with prices that expect cases like those of the past."""
    start = datetime.fromtimestamp(at, UTC)
    shift = NewShift(
        name=f"demo day {number}",
        team=TEAM,
        starts_at=start,
        ends_at=start + SHIFT,
        expected_cases=int(PER_SECOND * SHIFT.total_seconds()),
        random_share=0.05,
        roster=tuple(RosterPlace(maker=name, capacity=CAPACITY) for name in stage.experts),
    )
    made = shifts.open_shift(connection, shift, Actor(None), at)
    at_desk = desk.open_desk(connection, made, at)
    sample = stage.past[list(at_desk.makers)].to_numpy()
    forecast = Forecast.of(sample, float(shift.expected_cases or 0))
    today = Today.by_clock(sample[:0], np.empty(0), 0, 0.0)
    outlook = Outlook(at_desk, np.zeros(len(at_desk.makers), np.int64), forecast, today)
    desk.write_prices(connection, made, at_desk.makers, bid_prices(outlook), "forecast", None, at)


class Play:
    """Cases arrive, people decide, labels come, days begin; until stopped.

    With `trouble_after` so many seconds a feature shifts and one analyst tosses a coin: see what alerts do.
    """

    def __init__(
        self,
        service: Service,
        stage: Stage,
        per_second: float = PER_SECOND,
        seed: int = 0,
        trouble_after: float | None = None,
    ) -> None:
        self._service, self._stage, self._pause = service, stage, 1.0 / per_second
        self._rng = np.random.default_rng(seed)
        self._trouble_at = np.inf if trouble_after is None else time.time() + trouble_after
        self._shift = 2.0 * float(np.nanstd([float(case[SHIFTED]) for case in stage.cases]))
        self._careless = stage.experts[0]
        self._decisions = {name: stage.decisions[name].to_numpy() for name in stage.experts}
        self._late: list[tuple[float, int]] = []
        """Labels to come, the next one first (a heap)."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="deccaf-demo", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._stop.set()
        self._thread.join(timeout=10)

    def _run(self) -> None:
        day, ends = 1, time.time() + SHIFT.total_seconds()
        for number in itertools.count():
            if self._stop.wait(float(self._rng.exponential(self._pause))):
                return
            try:
                if time.time() > ends:
                    day, ends = day + 1, time.time() + SHIFT.total_seconds()
                    self._service.writer.submit(
                        partial(open_day, stage=self._stage, number=day, at=time.time())
                    )
                self._arrive(number)
                self._review()
                self._label()
            except Exception:
                if not self._stop.is_set():
                    log.exception("demo")

    def _arrive(self, number: int) -> None:
        features = self._stage.cases[number % len(self._stage.cases)]
        if time.time() > self._trouble_at:
            features = {**features, SHIFTED: float(features[SHIFTED]) + self._shift}
        case = Incoming(Call(Actor(None, "machine")), f"alert-{number + 1}", features)
        self._service.intake.submit(case).result(timeout=30)
        heapq.heappush(self._late, (time.time() + float(self._rng.exponential(LABEL_SECONDS)), number))

    def _review(self) -> None:
        """Somebody takes their next case and decides it."""
        name = str(self._rng.choice(self._stage.experts))

        def change(connection: sa.Connection) -> None:
            at, me = time.time(), Actor(None, "reviewer", name)
            claim = claims.claim_next(connection, name, me, at, self._service.claim_seconds)
            if claim is None:
                return
            if self._rng.random() < 0.02:
                claims.hand_back(connection, claim.case_id, name, "not sure", me, at, self._service.rng)
                return
            decision = int(self._decisions[name][_number(claim.case_id) % len(self._stage.cases)])
            if name == self._careless and at > self._trouble_at:
                decision = int(self._rng.integers(0, 2))
            seconds = float(self._rng.lognormal(3.5, 0.5))
            claims.decide(connection, claim.case_id, name, json.dumps(decision), seconds, me, at)

        self._service.writer.submit(change).result(timeout=30)

    def _label(self) -> None:
        due: list[int] = []
        while self._late and self._late[0][0] < time.time() and len(due) < 20:
            due.append(heapq.heappop(self._late)[1])
        if due:
            truth = [self._stage.labels[number % len(self._stage.labels)] for number in due]
            rows = [(f"alert-{n + 1}", json.dumps(y)) for n, y in zip(due, truth, strict=True)]
            actor = Actor(None, "machine")
            self._service.writer.submit(lambda c: labels.label(c, rows, actor, time.time())).result(
                timeout=30
            )


def _number(case_id: str) -> int:
    return int(case_id.removeprefix("alert-")) - 1
