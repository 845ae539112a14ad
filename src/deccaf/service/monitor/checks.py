"""The checks: have cases changed since training, are estimates still right, has anybody's work changed?

Each has a threshold and asks besides whether chance could explain the difference, so that a quiet day stays
quiet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.evaluate.drift import counts, drift, is_real, profile, stability
from deccaf.evaluate.measures import wilson
from deccaf.service.decide.registry import Model
from deccaf.service.monitor.health import CalibrationPoint, ExpertCheck
from deccaf.service.monitor.windows import LabelledCase, as_frame

FEWEST_CASES = 100
FEWEST_LABELS = 100
FEWEST_DECISIONS = 20
INDEX_LIMIT = 0.25
SURE = 4.0
"""Standard deviations beyond which a difference is not put down to chance."""
TRUTH_GAP, ERROR_GAP = 0.03, 0.08
"""Differences that matter: of the share of a truth, and of somebody's share of errors."""

Floats = NDArray[np.float64]


def feature_drift(model: Model, frame: pd.DataFrame) -> list[tuple[str, float, bool]]:
    """Name, stability index against training, whether it is an alert; the largest first."""
    profiles = model.system.training_.get("profile")
    if not profiles:
        return []  # a model file from before profiles were kept
    cast = model.system.schema_.cast(frame)
    unseen = [name for name in profiles if name in cast and "levels" in profiles[name]]
    cast[unseen] = frame[unseen]  # levels that the model has never seen count as others, not as missing
    table = drift(profiles, cast, [name for name in profiles if name in cast])
    return [
        (str(name), float(index), bool(real) and float(index) > INDEX_LIMIT)
        for name, index, real in zip(table.index, table["index"], table["real"], strict=True)
    ]


def score_profile(model: Model, frame: pd.DataFrame) -> dict[str, Any]:
    """The distribution of the model's scores on some cases."""
    return profile(pd.Series(_score(model, frame)))


def score_drift(model: Model, frame: pd.DataFrame, reference: dict[str, Any]) -> tuple[float, bool]:
    """The stability index of the scores against a reference, and whether it is an alert."""
    before = np.asarray(reference["shares"]) * reference["cases"]
    now = counts(reference, pd.Series(_score(model, frame)))
    index = stability(before, now)
    return index, index > INDEX_LIMIT and is_real(index, before, now)


def calibration(model: Model, labelled: Sequence[LabelledCase]) -> dict[str, Any]:
    """Whether the chance of the last class is right on fresh labels: `truth_*` and `bins` of a report."""
    classes = list(model.classes)
    truth = np.array([case.label == classes[-1] for case in labelled], np.float64)
    p = _score(model, as_frame([case.features for case in labelled], model))
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


def expert_errors(model: Model, decided: Sequence[LabelledCase]) -> list[ExpertCheck]:
    """Errors of people against what the model expected on the very cases that they got."""
    decisions = model.system.learned_.decisions
    classes = list(model.classes)
    rows = [
        case
        for case in decided
        if case.label in classes and case.decision in classes and case.maker in model.system.experts_
    ]
    if not rows or not hasattr(decisions, "predict_rows"):
        return []
    truth = np.array([classes.index(case.label) for case in rows], np.int64)
    decision = np.array([classes.index(case.decision) for case in rows], np.int64)  # type: ignore[arg-type]
    makers = [case.maker for case in rows]
    features = model.system.schema_.cast(as_frame([case.features for case in rows], model))
    q = np.clip(decisions.predict_rows(features, truth, makers), 1e-6, 1.0)  # type: ignore[union-attr]
    expected = 1.0 - q[np.arange(len(rows)), truth]
    wrong = (decision != truth).astype(np.float64)
    surprise, mean, variance = _surprise(q, decision)
    who, found = np.array(makers), []
    for name in sorted(set(map(str, makers))):
        mine = who == name
        errors = _sigmas(wrong[mine], expected[mine], (expected * (1 - expected))[mine])
        strangeness = _sigmas(surprise[mine], mean[mine], variance[mine])
        found.append(_check(name, expected[mine], wrong[mine], max(errors, strangeness)))
    return found


def _check(name: str, expected: Floats, wrong: Floats, sure: float) -> ExpertCheck:
    low, high = wilson(wrong.mean(), len(wrong))
    odd = len(wrong) >= FEWEST_DECISIONS and sure > SURE and wrong.mean() - expected.mean() > ERROR_GAP
    return ExpertCheck(
        name, len(wrong), float(expected.mean()), float(wrong.mean()), float(low), float(high), bool(odd)
    )


def _score(model: Model, frame: pd.DataFrame) -> Floats:
    """The chance of the last class."""
    system = model.system
    costs = system.costs_.array(
        frame[list(system.costs_.columns)].astype("float64") if system.costs_.columns else None
    )
    return np.asarray(system.learned_.chances(system.schema_.cast(frame), costs)[:, -1], np.float64)


def _bins(p: Floats, truth: Floats, most: int = 5) -> list[CalibrationPoint]:
    parts = [part for part in np.array_split(np.argsort(p, kind="stable"), most) if len(part)]
    rows = []
    for part in parts:
        low, high = wilson(truth[part].mean(), len(part))
        rows.append(
            CalibrationPoint(float(p[part].mean()), float(truth[part].mean()), float(low), float(high))
        )
    return rows


def _surprise(q: Floats, decision: NDArray[np.int64]) -> tuple[Floats, Floats, Floats]:
    """How unlikely each decision was (minus its log), and the mean and variance of that were all as expected.

    Sees what errors alone do not: somebody who tosses a coin is wrong where they never used to be.
    """
    unlikely = -np.log(q)
    mean = (q * unlikely).sum(axis=1)
    variance = (q * (unlikely - mean[:, None]) ** 2).sum(axis=1)
    return unlikely[np.arange(len(q)), decision], mean, variance


def _sigmas(seen: Floats, expected: Floats, variance: Floats) -> float:
    """How many standard deviations a sum lies above what was expected."""
    return float((seen - expected).sum() / np.sqrt(max(variance.sum(), 1e-12)))
