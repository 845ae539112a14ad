"""The checks: have cases changed since training, are estimates still right, has anybody's work changed?

Drift has a threshold, asks whether chance could explain the difference, and whether the same weekday was like
that; errors and the share of a class are tested over days (`deccaf.evaluate.sequential`), so that few labels
a day add up and a quiet year stays quiet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.evaluate.drift import counts, drift, is_real, profile, stability
from deccaf.evaluate.measures import wilson
from deccaf.evaluate.sequential import Change
from deccaf.service.decide.registry import Model
from deccaf.service.monitor.health import CalibrationPoint, ExpertCheck
from deccaf.service.monitor.windows import LabelledCase, as_frame

FEWEST_CASES = 100
FEWEST_LABELS = 100
INDEX_LIMIT = 0.25
AT_ONCE = 2.0
"""A difference that hardly any mix of weekdays makes: that of a shift by about one and a half standard
deviations."""
DAYS_BEFORE = 2
"""Days before that must differ too, where the same weekday is not on record: a weekend has no more."""

Floats = NDArray[np.float64]


def feature_drift(
    model: Model, frame: pd.DataFrame, limit: float = INDEX_LIMIT
) -> list[tuple[str, float, bool]]:
    """Name, stability index against training, whether it is more than chance and much; the largest first."""
    profiles = model.system.training_.get("profile")
    if not profiles:
        return []  # a model file from before profiles were kept
    cast = as_seen(model, frame)
    table = drift(profiles, cast, [name for name in profiles if name in cast])
    return [
        (str(name), float(index), bool(real) and float(index) > limit)
        for name, index, real in zip(table.index, table["index"], table["real"], strict=True)
    ]


def differs(known: Mapping[str, Any], before: pd.Series, now: pd.Series, limit: float = INDEX_LIMIT) -> bool:
    """Whether two samples of a column differ much, and by more than chance, in the bins of its profile."""
    old, new = counts(known, before), counts(known, now)
    index = stability(old, new)
    return index > limit and is_real(index, old, new)


def unlike_its_weekday(
    column: Callable[[pd.DataFrame], pd.Series],
    known: Mapping[str, Any],
    frame: pd.DataFrame,
    weeks: Sequence[pd.DataFrame],
    days: Sequence[pd.DataFrame],
    limit: float = INDEX_LIMIT,
) -> bool:
    """Whether cases that differ from training also differ from those of the same weekday.

    Where no such day is on record they must have differed for `len(days)` days before too, as a weekend is
    over by then; or by more than weekdays do.
    """
    now = column(frame)
    if weeks:
        return all(differs(known, column(week), now, limit) for week in weeks)
    old = np.asarray(known["shares"], np.float64) * known["cases"]
    if stability(old, counts(known, now)) > AT_ONCE:
        return True
    for day in days:
        new = counts(known, column(day))
        index = stability(old, new)
        if not (index > limit and is_real(index, old, new)):
            return False
    return len(days) == DAYS_BEFORE


def as_seen(model: Model, frame: pd.DataFrame) -> pd.DataFrame:
    """As the model sees them; levels that it has never seen count as others, not as missing."""
    profiles = model.system.training_.get("profile") or {}
    cast = model.system.schema_.cast(frame)
    unseen = [name for name in profiles if name in cast and "levels" in profiles[name]]
    cast[unseen] = frame[unseen]
    return cast


def score_profile(model: Model, frame: pd.DataFrame) -> dict[str, Any]:
    """The distribution of the model's scores on some cases."""
    return profile(pd.Series(_score(model, frame)))


def score_drift(
    model: Model, frame: pd.DataFrame, reference: dict[str, Any], limit: float = INDEX_LIMIT
) -> tuple[float, bool]:
    """The stability index of the scores against a reference, and whether it is an alert."""
    before = np.asarray(reference["shares"]) * reference["cases"]
    now = counts(reference, pd.Series(_score(model, frame)))
    index = stability(before, now)
    return index, index > limit and is_real(index, before, now)


def calibration(
    model: Model, labelled: Sequence[LabelledCase], evidence: Mapping[str, Change]
) -> dict[str, Any]:
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
        found["bins"] = _bins(p, truth)
    return found | _level(evidence)


def _level(evidence: Mapping[str, Change]) -> dict[str, Any]:
    """What is to be said of the class whose share has changed most surely, if any."""
    if not evidence:
        return {}
    name, most = max(evidence.items(), key=lambda item: item[1].evidence)
    if not most.is_odd:
        return {}
    seen, count = most.tally, max(most.tally.count, 1)
    return {
        "truth_odd": True,
        "truth_name": name,
        "truth_seen": seen.seen / count,
        "truth_expected": seen.expected / count,
        "truth_labels": count,
        "truth_days": most.days,
    }


@dataclass(frozen=True, eq=False)
class Graded:
    """Decisions of people with a label: who, whether wrong, and with what chance they should be."""

    who: NDArray[np.str_]
    wrong: Floats
    expected: Floats


def graded(model: Model, decided: Sequence[LabelledCase]) -> Graded:
    """Errors of people, and what the model expected on the very cases that they got."""
    decisions = model.system.learned_.decisions
    classes = list(model.classes)
    rows = [
        case
        for case in decided
        if case.label in classes and case.decision in classes and case.maker in model.system.experts_
    ]
    if not rows or not hasattr(decisions, "predict_rows"):
        return Graded(np.empty(0, "U1"), np.empty(0), np.empty(0))
    truth = np.array([classes.index(case.label) for case in rows], np.int64)
    wrong = np.array([case.decision != case.label for case in rows], np.float64)
    makers = [case.maker for case in rows]
    features = model.system.schema_.cast(as_frame([case.features for case in rows], model))
    q = decisions.predict_rows(features, truth, makers)  # type: ignore[union-attr]
    expected = 1.0 - np.clip(q[np.arange(len(rows)), truth], 0.0, 1.0)
    return Graded(np.array([str(name) for name in makers]), wrong, np.asarray(expected, np.float64))


def expert_errors(
    model: Model, decided: Sequence[LabelledCase], evidence: Mapping[str, Change]
) -> list[ExpertCheck]:
    """Everybody's errors on fresh labels; of whom the evidence says that they changed, since they did."""
    found = []
    fresh = graded(model, decided)
    for name in sorted({*map(str, fresh.who), *(n for n, one in evidence.items() if one.is_odd)}):
        mine = fresh.who == name
        one = evidence.get(name)
        count, wrong, expected = int(mine.sum()), fresh.wrong[mine].sum(), fresh.expected[mine].sum()
        odd = one if one is not None and one.is_odd else None
        if odd is not None:
            count, wrong, expected = odd.tally.count, odd.tally.seen, odd.tally.expected
        low, high = wilson(wrong / count, count)
        shares = (float(expected) / count, float(wrong) / count, float(low), float(high))
        found.append(ExpertCheck(name, count, *shares, odd is not None, 1 if odd is None else odd.days))
    return found


def _score(model: Model, frame: pd.DataFrame) -> Floats:
    """The chance of the last class."""
    return class_chances(model, frame)[:, -1]


def class_chances(model: Model, frame: pd.DataFrame) -> Floats:
    """(cases, classes): the chance of every class."""
    system = model.system
    costs = system.costs_.array(
        frame[list(system.costs_.columns)].astype("float64") if system.costs_.columns else None
    )
    return np.asarray(system.learned_.chances(system.schema_.cast(frame), costs), np.float64)


def _bins(p: Floats, truth: Floats, most: int = 5) -> list[CalibrationPoint]:
    parts = [part for part in np.array_split(np.argsort(p, kind="stable"), most) if len(part)]
    rows = []
    for part in parts:
        low, high = wilson(truth[part].mean(), len(part))
        rows.append(
            CalibrationPoint(float(p[part].mean()), float(truth[part].mean()), float(low), float(high))
        )
    return rows
