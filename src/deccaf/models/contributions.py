"""Which features moved an estimate: exact for the logistic parts, SHAP values (LightGBM's own) for the trees.

All contributions are differences of log-odds against the average: of a truth or a decision against the first
class, or of being right. The parts of a blend are weighted as the blend weighs them, and stretched as its
calibration does where that is a sigmoid, so that a row's contributions and its base add up to the estimate.
"""

from __future__ import annotations

from typing import Any

import lightgbm as lgb
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.models.cases.classifier import CaseClassifier
from deccaf.models.cases.parts import BoostedCases
from deccaf.models.decisions.boosted import BoostedDecisions
from deccaf.models.decisions.model import DecisionModel
from deccaf.models.linear.encoding import LinearEncoder
from deccaf.models.linear.pooled import PooledLogistic
from deccaf.models.paper.expertise import HumanExpertiseModel, OneVsAll
from deccaf.models.paper.paper_classifier import PaperClassifier

Array = NDArray[np.float64]
COLUMNS = ("logistic", "trees", "total")


def truth_contributions(model: CaseClassifier | PaperClassifier, case: pd.DataFrame, k: int) -> pd.DataFrame:
    """What moved the log-odds of truth k against truth 0 for one case; one row per feature."""
    names = [str(name) for name in case.columns]
    if isinstance(model, PaperClassifier):
        matrix = model.encoder_.transform(case)
        return _table(
            names, np.zeros(len(names)), _shap(model.booster_, matrix, k, model.classes)[: len(names)]
        )
    logistic, trees = np.zeros(len(names)), np.zeros(len(names))
    stretch = _stretch(model.calibrator_)
    for name, part in model.parts_.items():
        weight = stretch * model.weights_[name]
        if isinstance(part, BoostedCases):
            matrix = part.encoder_.transform(case)
            trees += weight * _shap(part.booster_, matrix, k, model.classes)[: len(names)]
        else:
            slopes = part.posterior_.weights[-1][:, k - 1]
            logistic += weight * _linear(part.encoder_, case, slopes, names)
    return _table(names, logistic, trees)


def decision_contributions(
    model: DecisionModel, case: pd.DataFrame, expert: str, truth: int, k: int
) -> pd.DataFrame:
    """What moved the log-odds that the expert says k and not 0 if the truth is `truth`; a row per feature."""
    names, place = [str(name) for name in case.columns], int(model.positions([expert])[0])
    logistic, trees = np.zeros(len(names)), np.zeros(len(names))
    stretch = _stretch(model.calibrators_[truth])
    for name, part in model.parts_.items():
        weight = stretch * model.weights_[name]
        if isinstance(part, PooledLogistic):
            logistic += weight * _linear(part.encoder_, case, part.slopes(place, truth, k), names)
        elif isinstance(part, BoostedDecisions):
            known = place if place < len(model.experts_) else np.nan
            matrix = part.encoder_.transform(case, extra=2)
            matrix[:, -2], matrix[:, -1] = truth, known
            trees += weight * _shap(part.booster_, matrix, k, model.classes)[: len(names)]
    return _table(names, logistic, trees)


def right_contributions(
    model: HumanExpertiseModel | OneVsAll, case: pd.DataFrame, expert: str
) -> pd.DataFrame:
    """What moved the log-odds that the expert is right (the paper's models); one row per feature."""
    names = [str(name) for name in case.columns]
    place = model.experts_.index(expert) if expert in model.experts_ else None
    if isinstance(model, OneVsAll):
        matrix = model.encoder_.transform(case)
        boosters = model.boosters_ if place is None else [model.boosters_[place]]
        trees = np.mean([_shap(booster, matrix, 1, 2)[: len(names)] for booster in boosters], axis=0)
        return _table(names, np.zeros(len(names)), trees)
    matrix = model.encoder_.transform(case, extra=1)
    matrix[:, -1] = np.nan if place is None else place
    return _table(names, np.zeros(len(names)), _shap(model.booster_, matrix, 1, 2)[: len(names)])


def _linear(encoder: LinearEncoder, case: pd.DataFrame, slopes: Array, names: list[str]) -> Array:
    """The sum of column x slope over the columns of each feature; exact, as columns are centred."""
    products = encoder.transform(case)[0] * slopes[: len(encoder.groups_)]
    parts = np.split(products, np.cumsum(encoder.widths)[:-1])
    moved = {part.name: float(values.sum()) for part, values in zip(encoder.parts_, parts, strict=True)}
    return np.array([moved.get(name, 0.0) for name in names])


def _shap(booster: lgb.Booster, matrix: Array, k: int, classes: int) -> Array:
    """SHAP values of one row, the base value last: of class k against class 0."""
    values: Array = np.asarray(booster.predict(matrix, pred_contrib=True), np.float64)[0]
    if classes == 2:
        return values
    by_class = values.reshape(classes, -1)
    return np.asarray(by_class[k] - by_class[0])


def _stretch(calibrator: Any) -> float:
    return float(calibrator.slope_) if calibrator.kind_ == "sigmoid" else 1.0


def _table(names: list[str], logistic: Array, trees: Array) -> pd.DataFrame:
    values = np.column_stack([logistic, trees, logistic + trees])
    return pd.DataFrame(values, index=pd.Index(names, name="feature"), columns=list(COLUMNS))
