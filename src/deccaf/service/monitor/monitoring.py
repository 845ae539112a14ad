"""Watching: do cases look as they did in training, are estimates still right, is anybody not themselves?

Every minute the latest cases and the freshest labels are compared with what the model in force expects. Each
question has a threshold and asks besides whether chance could have done it, so that a quiet day stays quiet.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import sqlalchemy as sa
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry, Gauge

from deccaf.data.costs import MACHINE
from deccaf.evaluate.drift import counts, drift, is_real, profile, stability
from deccaf.evaluate.measures import wilson
from deccaf.service.decide.registry import Model, Registry
from deccaf.service.jobs import jobs
from deccaf.service.ledger import ledger
from deccaf.service.ledger.ledger import Actor
from deccaf.service.store import database
from deccaf.service.store import tables as t

DAY = 86400.0
LOOK_SECONDS = 60.0
WINDOW = 1_000
"""The latest cases, and the latest labels, that are looked at."""
PEOPLE_WINDOW = 2_000
"""The latest labels of cases that people decided: each of them should have enough."""
FEWEST_CASES = 100
FEWEST_LABELS = 100
FEWEST_DECISIONS = 20
INDEX_LIMIT = 0.25
SCORE_REFERENCE = 400
"""The first cases under a model: what its scores look like when all is well."""
SURE = 4.0
"""Standard deviations beyond which a difference is not put down to chance."""
TRUTH_GAP, ERROR_GAP = 0.03, 0.08
"""Differences that matter: of the share of a truth, and of somebody's share of errors."""
LONG_DELAY = 60 * DAY

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Alert:
    """Something that a lead should look at: its kind, what was seen, and what to do."""

    kind: str
    said: str
    todo: str
    subject: str = ""


@dataclass(frozen=True)
class ExpertWatch:
    """One person's errors on fresh labels, against what the model expected of them on these very cases."""

    name: str
    labelled: int
    expected: float
    seen: float
    low: float
    high: float
    odd: bool


@dataclass(frozen=True)
class Report:
    """What was seen at one time."""

    at: float
    model: str | None = None
    cases: int = 0
    features: list[tuple[str, float, bool]] = field(default_factory=list)
    """Name, stability index, whether it is an alert; the largest first."""
    score: float | None = None
    score_odd: bool = False
    labels: int = 0
    truth_expected: float | None = None
    truth_seen: float | None = None
    truth_odd: bool = False
    truth_name: str = ""
    bins: list[dict[str, float]] = field(default_factory=list)
    """Calibration of the classifier: `expected`, `seen`, `low`, `high`."""
    experts: list[ExpertWatch] = field(default_factory=list)
    delay: float | None = None
    """Median seconds from a case's arrival to its label, of the latest labels."""
    late: float | None = None
    """The same for the slowest tenth."""
    seconds: float = 0.0
    """How long the look took."""

    @property
    def alerts(self) -> list[Alert]:
        """What a lead should look at."""
        refit = "Look at where these cases come from; then refit the model."
        found = [
            Alert("drift", f"{name} no longer looks as it did in training (index {index:.2f})", refit, name)
            for name, index, odd in self.features
            if odd
        ]
        if self.score_odd:
            said = f"the model's scores have moved since it was put in force (index {self.score:.2f})"
            found.append(Alert("drift", said, refit, "score"))
        if self.truth_odd:
            said = (
                f"{100 * (self.truth_seen or 0):.1f} % of the fresh labels are {self.truth_name}, "
                f"the model expected {100 * (self.truth_expected or 0):.1f} %"
            )
            found.append(Alert("calibration", said, "Refit the model on the fresh labels.", "truth"))
        found += [
            Alert(
                "errors",
                f"{w.name} was wrong on {100 * w.seen:.0f} % of {w.labelled} cases, "
                f"{100 * w.expected:.0f} % was expected",
                f"Talk to {w.name}; refit the model if it lasts.",
                w.name,
            )
            for w in self.experts
            if w.odd
        ]
        if self.late is not None and self.late > LONG_DELAY:
            said = f"a tenth of the labels take more than {self.late / DAY:.0f} days"
            found.append(
                Alert("labels", said, "Ask where they are held up: models learn from labels.", "delay")
            )
        return found


class Watcher:
    """Looks every minute, keeps the latest report, tells Prometheus, and writes alerts into the history."""

    def __init__(self, engine: sa.Engine, models: Registry, registry: CollectorRegistry) -> None:
        self._engine, self._models = engine, models
        self._lock = threading.Lock()
        self._reference: tuple[int, dict[str, Any]] | None = None
        self.every = LOOK_SECONDS
        self.report = Report(0.0)
        self._drift = Gauge(
            "deccaf_drift", "Stability index against training.", ["column"], registry=registry
        )
        self._gap = Gauge(
            "deccaf_truth_gap", "Share of the last class, seen less expected.", registry=registry
        )
        self._errors = Gauge(
            "deccaf_error_share", "Errors on fresh labels.", ["maker", "kind"], registry=registry
        )
        self._delay = Gauge("deccaf_label_delay_seconds", "Median time to a label.", registry=registry)
        self._alerts = Gauge("deccaf_alerts", "Alerts in force.", ["kind"], registry=registry)

    def look(self) -> None:
        """Look if it is time to."""
        if time.time() >= self.report.at + self.every:
            self.look_now(time.time())

    def look_now(self, at: float, since: float | None = None) -> Report:
        """Look at the cases and labels of the last day (or since a time), and raise or clear alerts."""
        with self._lock:
            began = time.perf_counter()
            with database.reading(self._engine) as connection:
                report = self._examine(connection, at, at - DAY if since is None else since)
            report = Report(**{**report.__dict__, "seconds": time.perf_counter() - began})
            self.report = report
        self._tell(report)
        keep_alerts(self._engine, report.alerts, at)
        return report

    def _examine(self, connection: sa.Connection, at: float, since: float) -> Report:
        model = self._models.active
        delay, late = _delays(connection, since)
        if model is None:
            return Report(at, delay=delay, late=late)
        found: dict[str, Any] = {"model": model.name, "delay": delay, "late": late}
        frame = _cases(connection, since, at, model)
        found["cases"] = len(frame)
        if len(frame) >= FEWEST_CASES:
            found |= _feature_drift(model, frame)
            found |= self._score_drift(connection, model, frame)
        labelled = _labelled(connection, since, at)
        found["labels"] = len(labelled)
        if len(labelled):
            found |= _truths(model, labelled)
            found["experts"] = _experts(model, _decided_by_people(connection, since, at))
        return Report(at, **found)

    def _score_drift(self, connection: sa.Connection, model: Model, frame: pd.DataFrame) -> dict[str, Any]:
        if self._reference is None or self._reference[0] != model.id:
            first = _first_cases(connection, model)
            if len(first) < SCORE_REFERENCE:
                return {}
            self._reference = (model.id, profile(pd.Series(_score(model, first))))
        known = self._reference[1]
        before = np.asarray(known["shares"]) * known["cases"]
        now = counts(known, pd.Series(_score(model, frame)))
        index = stability(before, now)
        return {"score": index, "score_odd": index > INDEX_LIMIT and is_real(index, before, now)}

    def _tell(self, report: Report) -> None:
        for gauge in (self._drift, self._errors, self._alerts):
            gauge.clear()
        for name, index, _ in report.features:
            self._drift.labels(name).set(index)
        if report.score is not None:
            self._drift.labels("score").set(report.score)
        if report.truth_seen is not None and report.truth_expected is not None:
            self._gap.set(report.truth_seen - report.truth_expected)
        for expert in report.experts:
            self._errors.labels(expert.name, "seen").set(expert.seen)
            self._errors.labels(expert.name, "expected").set(expert.expected)
        if report.delay is not None:
            self._delay.set(report.delay)
        for kind in ("drift", "calibration", "errors", "labels"):
            self._alerts.labels(kind).set(sum(alert.kind == kind for alert in report.alerts))


def keep_alerts(engine: sa.Engine, alerts: Sequence[Alert], at: float) -> None:
    """Write what came up and what went away into the history; start a refit where a lead asked for that."""
    now = {f"{alert.kind} {alert.subject}": alert.said for alert in alerts}
    with database.reading(engine) as connection:
        if set(now) == set(_setting(connection, "alerts")):
            return
    with database.writing(engine) as connection:
        before = _setting(connection, "alerts")  # again, under lock: another process may have been quicker
        for name in sorted(set(now) - set(before)):
            ledger.record(connection, "alert raised", at, Actor(None), alert=name, said=now[name])
        for name in sorted(set(before) - set(now)):
            ledger.record(connection, "alert cleared", at, Actor(None), alert=name)
        _set(connection, "alerts", now)
        wish = _setting(connection, "watch")
        new = [name for name in set(now) - set(before) if not name.startswith("labels")]
        if new and wish.get("refit") and not _fitted_lately(connection, at):
            params = {"name": "refit after an alert", "activate": bool(wish.get("activate"))}
            job = jobs.enqueue(connection, "refit", params, wish["key"], at)
            ledger.record(connection, "refit asked for", at, Actor(wish["key"]), job=job, alerts=sorted(new))


def read_wish(connection: sa.Connection) -> dict[str, Any]:
    """Whether alerts start a refit: `refit`, `activate`, and the key of who said so."""
    return _setting(connection, "watch")


def write_wish(connection: sa.Connection, refit: bool, activate: bool, who: Actor, at: float) -> None:
    """Say whether alerts start a refit."""
    _set(connection, "watch", {"refit": refit, "activate": activate, "key": who.key_id})
    ledger.record(connection, "watch changed", at, who, refit=refit, activate=activate)


# --- the ledger's side ------------------------------------------------------------------------------------


def _cases(connection: sa.Connection, since: float, at: float, model: Model) -> pd.DataFrame:
    c = t.cases.c
    query = sa.select(c.features).where(c.arrived_at >= since, c.arrived_at <= at, c.given.is_(None))
    texts = connection.execute(query.order_by(c.id.desc()).limit(WINDOW)).scalars().all()
    return _frame(texts, model)


def _first_cases(connection: sa.Connection, model: Model) -> pd.DataFrame:
    """The first cases after a model was first put in force."""
    a, c = t.activations.c, t.cases.c
    began = connection.execute(sa.select(sa.func.min(a.at)).where(a.model_id == model.id)).scalar()
    query = sa.select(c.features).where(c.arrived_at >= (began or 0.0), c.given.is_(None))
    return _frame(connection.execute(query.order_by(c.id).limit(SCORE_REFERENCE)).scalars().all(), model)


def _labelled(connection: sa.Connection, since: float, at: float) -> list[Any]:
    """The cases of the freshest labels."""
    y, c = t.labels.c, t.cases.c
    fresh = sa.select(y.case_id).where(y.at >= since, y.at <= at).order_by(y.id.desc()).limit(WINDOW)
    query = sa.select(*c["case_id", "features", "label"]).where(c.case_id.in_(fresh), c.given.is_(None))
    return list(connection.execute(query))


def _decided_by_people(connection: sa.Connection, since: float, at: float) -> list[Any]:
    """The freshest labels of cases that people decided, each with the case and the decision."""
    y, c, d = t.labels.c, t.cases.c, t.decisions.c
    query = (
        sa.select(c.case_id, c.features, c.label, d.maker, d.decision)
        .join_from(t.labels, t.cases, c.case_id == y.case_id)
        .join(t.decisions, d.case_id == c.case_id)
        .where(y.at >= since, y.at <= at, d.maker != MACHINE, c.given.is_(None))
        .order_by(y.id.desc())
        .limit(PEOPLE_WINDOW)
    )
    return list({row.case_id: row for row in connection.execute(query)}.values())


def _delays(connection: sa.Connection, since: float) -> tuple[float | None, float | None]:
    y, c = t.labels.c, t.cases.c
    query = (
        sa.select(y.at - c.arrived_at)
        .join_from(t.labels, t.cases, c.case_id == y.case_id)
        .where(y.at >= since)
        .order_by(y.id.desc())
        .limit(WINDOW)
    )
    found = np.array(connection.execute(query).scalars().all(), np.float64)
    if not len(found):
        return None, None
    return float(np.median(found)), float(np.quantile(found, 0.9))


def _setting(connection: sa.Connection, name: str) -> dict[str, Any]:
    text = connection.execute(sa.select(t.settings.c.value).where(t.settings.c.name == name)).scalar()
    return {} if text is None else dict(json.loads(text))


def _set(connection: sa.Connection, name: str, value: dict[str, Any]) -> None:
    s = t.settings.c
    done = connection.execute(sa.update(t.settings).where(s.name == name).values(value=json.dumps(value)))
    if done.rowcount == 0:
        connection.execute(sa.insert(t.settings).values(name=name, value=json.dumps(value)))


def _fitted_lately(connection: sa.Connection, at: float) -> bool:
    c = t.jobs.c
    query = sa.select(c.id).where(
        c.kind == "refit", sa.or_(c.state.in_(("queued", "running")), c.created_at > at - DAY)
    )
    return connection.execute(query.limit(1)).scalar() is not None


# --- the model's side -------------------------------------------------------------------------------------


def _frame(texts: Sequence[str], model: Model) -> pd.DataFrame:
    frame = pd.DataFrame([json.loads(text) for text in texts])
    names = [*model.system.schema_.names, *model.system.costs_.columns]
    return frame.reindex(columns=list(dict.fromkeys(names)))


def _score(model: Model, frame: pd.DataFrame) -> Floats:
    """The chance of the last class."""
    return np.asarray(_chances(model, frame)[:, -1], np.float64)


def _chances(model: Model, frame: pd.DataFrame) -> Floats:
    system = model.system
    costs = system.costs_.array(
        frame[list(system.costs_.columns)].astype("float64") if system.costs_.columns else None
    )
    return np.asarray(system.learned_.chances(system.schema_.cast(frame), costs), np.float64)


def _feature_drift(model: Model, frame: pd.DataFrame) -> dict[str, Any]:
    profiles = model.system.training_.get("profile")
    if not profiles:
        return {}  # a model file from before profiles were kept
    cast = model.system.schema_.cast(frame)
    unseen = [name for name in profiles if name in cast and "levels" in profiles[name]]
    cast[unseen] = frame[unseen]  # levels that the model has never seen count as others, not as missing
    table = drift(profiles, cast, [name for name in profiles if name in cast])
    rows = [
        (str(name), float(index), bool(real) and float(index) > INDEX_LIMIT)
        for name, index, real in zip(table.index, table["index"], table["real"], strict=True)
    ]
    return {"features": rows}


def _truths(model: Model, labelled: list[Any]) -> dict[str, Any]:
    """Calibration of the classifier on fresh labels."""
    classes = list(model.classes)
    truth = np.array([json.loads(row.label) == classes[-1] for row in labelled], np.float64)
    p = _score(model, _frame([row.features for row in labelled], model))
    found: dict[str, Any] = {
        "truth_expected": float(p.mean()),
        "truth_seen": float(truth.mean()),
        "truth_name": str(classes[-1]),
    }
    if len(truth) >= FEWEST_LABELS:
        sure = abs(truth.sum() - p.sum()) / np.sqrt(max((p * (1 - p)).sum(), 1e-12))
        found["truth_odd"] = bool(sure > SURE and abs(truth.mean() - p.mean()) > TRUTH_GAP)
        found["bins"] = _bins(p, truth)
    return found


def _bins(p: Floats, truth: Floats, most: int = 5) -> list[dict[str, float]]:
    parts = [part for part in np.array_split(np.argsort(p, kind="stable"), most) if len(part)]
    rows = []
    for part in parts:
        low, high = wilson(truth[part].mean(), len(part))
        rows.append(
            {
                "expected": float(p[part].mean()),
                "seen": float(truth[part].mean()),
                "low": float(low),
                "high": float(high),
            }
        )
    return rows


def _experts(model: Model, decided: list[Any]) -> list[ExpertWatch]:
    """Errors of people against what the model expected on the very cases that they got."""
    decisions = model.system.learned_.decisions
    classes = list(model.classes)
    rows = [
        row
        for row in decided
        if json.loads(row.label) in classes
        and json.loads(row.decision) in classes
        and row.maker in model.system.experts_
    ]
    if not rows or not hasattr(decisions, "predict_rows"):
        return []
    here = np.arange(len(rows))
    truth = np.array([classes.index(json.loads(row.label)) for row in rows], np.int64)
    said = np.array([classes.index(json.loads(row.decision)) for row in rows], np.int64)
    makers = [row.maker for row in rows]
    features = model.system.schema_.cast(_frame([row.features for row in rows], model))
    q = np.clip(decisions.predict_rows(features, truth, makers), 1e-6, 1.0)  # type: ignore[union-attr]
    expected = 1.0 - q[here, truth]
    wrong = (said != truth).astype(np.float64)
    surprise, mean, variance = _surprise(q, said)
    who, found = np.array(makers), []
    for name in sorted(set(makers)):
        mine = who == name
        errors = _sigmas(wrong[mine], expected[mine], (expected * (1 - expected))[mine])
        strangeness = _sigmas(surprise[mine], mean[mine], variance[mine])
        found.append(_watch(name, expected[mine], wrong[mine], max(errors, strangeness)))
    return found


def _surprise(q: Floats, said: NDArray[np.int64]) -> tuple[Floats, Floats, Floats]:
    """How unlikely each decision was (minus its log), and the mean and variance of that were all as expected.

    Sees what errors alone do not: somebody who tosses a coin is wrong where they never used to be.
    """
    unlikely = -np.log(q)
    mean = (q * unlikely).sum(axis=1)
    variance = (q * (unlikely - mean[:, None]) ** 2).sum(axis=1)
    return unlikely[np.arange(len(q)), said], mean, variance


def _sigmas(seen: Floats, expected: Floats, variance: Floats) -> float:
    """How many standard deviations a sum lies above what was expected."""
    return float((seen - expected).sum() / np.sqrt(max(variance.sum(), 1e-12)))


def _watch(name: str, expected: Floats, wrong: Floats, sure: float) -> ExpertWatch:
    low, high = wilson(wrong.mean(), len(wrong))
    odd = len(wrong) >= FEWEST_DECISIONS and sure > SURE and wrong.mean() - expected.mean() > ERROR_GAP
    return ExpertWatch(
        name, len(wrong), float(expected.mean()), float(wrong.mean()), float(low), float(high), bool(odd)
    )
