"""Monitoring: every minute the latest cases and labels are compared with what the model in force expects."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any

import pandas as pd
import sqlalchemy as sa
from prometheus_client import CollectorRegistry, Gauge

from deccaf.service.decide.registry import Model, Registry
from deccaf.service.monitor import checks, daily, watching, windows
from deccaf.service.monitor.alerts import keep_alerts
from deccaf.service.monitor.earlier import Earlier
from deccaf.service.monitor.health import DAY, HealthReport
from deccaf.service.monitor.limits import Limits, read_limits
from deccaf.service.store import database

CHECK_SECONDS = 60.0


class Monitor:
    """Checks every minute, keeps the latest report, sets the gauges, and writes alerts into the trail."""

    def __init__(self, engine: sa.Engine, models: Registry, registry: CollectorRegistry) -> None:
        self._engine, self._models = engine, models
        self._lock = threading.Lock()
        self._reference: tuple[int, dict[str, Any]] | None = None
        self._watched = watching.Watched(0, 0)
        self.every = CHECK_SECONDS
        self.report = HealthReport(0.0)
        self.limits = Limits()
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

    def check(self) -> None:
        """Check if it is time to."""
        if time.time() >= self.report.at + self.every:
            self.check_now(time.time())

    def check_now(self, at: float, since: float | None = None) -> HealthReport:
        """Check the cases and labels of the last day (or since a time), and raise or clear alerts."""
        with self._lock:
            began = time.perf_counter()
            self._look_at_labels(at)
            with database.reading(self._engine) as connection:
                self.limits = read_limits(connection)
                report = self._examine(connection, at, at - DAY if since is None else since)
            report = replace(report, seconds=time.perf_counter() - began)
            self.report = report
        self._publish(report)
        keep_alerts(self._engine, report.alerts, at)
        self._keep_day(report)
        return report

    def _look_at_labels(self, at: float) -> None:
        """Add what new labels say to the evidence; what does not fit in now comes with the next check."""
        model = self._models.active
        if model is None:
            return
        with database.reading(self._engine) as connection:
            before = watching.read(connection, model)
            labelled = windows.labels_after(connection, before.label, at)
        self._watched = before
        if labelled:
            now = before.with_labels(model, labelled)
            with database.writing(self._engine) as connection:
                if watching.keep(connection, before, now):
                    self._watched = now

    def _examine(self, connection: sa.Connection, at: float, since: float) -> HealthReport:
        model = self._models.active
        delay, late = windows.label_delays(connection, since)
        report = HealthReport(at, delay=delay, late=late, longest_delay=self.limits.label_days * DAY)
        if model is None:
            return report
        frame = windows.latest_cases(connection, since, at, model)
        report = replace(report, model=model.name, cases=len(frame))
        if len(frame) >= checks.FEWEST_CASES:
            earlier = Earlier(connection, model, since, at, self.limits.drift)
            drift = checks.feature_drift(model, frame, self.limits.drift)
            report = replace(report, features=earlier.confirmed(drift, frame))
            report = self._with_score(report, connection, model, frame, earlier)
        false_days = self.limits.false_days
        people, classes = self._watched.people(false_days), self._watched.classes(false_days)
        decided = windows.decided_by_people(connection, since, at)
        report = replace(report, experts=checks.expert_errors(model, decided, people))
        labelled = windows.freshly_labelled(connection, since, at)
        if not labelled:
            return report
        return replace(report, labels=len(labelled), **checks.calibration(model, labelled, classes))

    def _with_score(
        self,
        report: HealthReport,
        connection: sa.Connection,
        model: Model,
        frame: pd.DataFrame,
        earlier: Earlier,
    ) -> HealthReport:
        """The report with the drift of the scores, once enough cases have come under this model."""
        if self._reference is None or self._reference[0] != model.id:
            first = windows.first_cases(connection, model)
            if len(first) < windows.SCORE_REFERENCE:
                return report
            self._reference = (model.id, checks.score_profile(model, first))
        index, is_odd = checks.score_drift(model, frame, self._reference[1], self.limits.drift)
        return replace(report, score=index, score_odd=is_odd and earlier.score_too(frame, self._reference[1]))

    def _keep_day(self, report: HealthReport) -> None:
        """Write the day's measures down, for pages that show them over time."""
        model = self._models.active
        people = {} if model is None else self._watched.people(self.limits.false_days)
        found = daily.measures(report, self.limits, people)
        if found:
            with database.writing(self._engine) as connection:
                daily.keep(connection, found, None if model is None else model.id, report.at)

    def _publish(self, report: HealthReport) -> None:
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
