"""The alert model: which applications are put in front of a reviewer.

As in the paper (section 5.1 and appendix A.1), a LightGBM classifier is trained on months 0-2, its
threshold is set on month 3 so that a wanted share of the legitimate applications is alerted (the
false-positive rate), and months 3-7 are screened with it. The month itself is not a feature: a tree
could only memorise months that never come again.

The threshold t of the 5 % rate also sets the paper's cost ratio, lambda_t = t / (1 - t).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import lightgbm as lgb
import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.metrics import roc_curve

from deccaf.errors import ConfigError, DataError
from deccaf.optional import extra
from deccaf.simulate.baf import CATEGORIES, COLUMNS, FEATURES, LABEL, MONTH

if TYPE_CHECKING:
    import optuna

Floats = npt.NDArray[np.float64]

TRAIN_MONTHS: Final = (0, 1, 2)
VALIDATION_MONTH: Final = 3
ALERT_MONTHS: Final = (3, 4, 5, 6, 7)

SELECTED: Final[dict[str, Any]] = {
    "n_estimators": 94,
    "max_depth": 2,
    "num_leaves": 145,
    "min_child_samples": 59,
    "learning_rate": 0.3031421,
    "reg_alpha": 0.0012637,
    "reg_lambda": 0.0017007,
}
"""The paper's selected parameters (appendix A.1); boosting is GOSS without feature bundling."""

_TREES: Final = "n_estimators"
_FIXED: Final[dict[str, Any]] = {
    "objective": "binary",
    "data_sample_strategy": "goss",
    "enable_bundle": False,
    "deterministic": True,
    "force_row_wise": True,
    "verbosity": -1,
}


def cost_ratio(threshold: float) -> float:
    """Cost of a false positive relative to a false negative at which `threshold` is optimal."""
    if not 0.0 <= threshold < 1.0:
        raise ConfigError(f"threshold is {threshold}; it must lie in [0, 1)")
    return threshold / (1.0 - threshold)


class AlertModel:
    """LightGBM fraud score with thresholds set by false-positive rate.

    Parameters
    ----------
    params
        LightGBM parameters that replace those of :data:`SELECTED`.
    seed
        Seed of the boosting's row sampling.
    jobs
        Threads for scoring. Training uses one: GOSS samples rows per thread, so that with several the
        model would depend on their number.

    Attributes
    ----------
    booster_ : lightgbm.Booster
    levels_ : levels of each categorical feature seen in training; any other level counts as missing
    validation_ : scores of all applications of month 3, lowest first
    legitimate_ : scores of its legitimate applications, highest first
    """

    def __init__(self, params: Mapping[str, Any] | None = None, *, seed: int = 0, jobs: int = 2) -> None:
        self.params = params
        self.seed = seed
        self.jobs = jobs

    def fit(self, applications: pd.DataFrame) -> AlertModel:
        """Train on months 0-2 and keep the scores of month 3 for the thresholds."""
        _require(applications, (*FEATURES, LABEL, MONTH))
        month = applications[MONTH].to_numpy()
        train = applications[np.isin(month, TRAIN_MONTHS)]
        check = applications[month == VALIDATION_MONTH]
        _check_labels(train, f"training months {TRAIN_MONTHS}")
        _check_labels(check, f"validation month {VALIDATION_MONTH}")
        self.levels_ = {name: _levels(train[name]) for name in CATEGORIES}
        settings = {**SELECTED, **(self.params or {})}
        rounds = int(settings.pop(_TREES))
        settings |= _FIXED | {"seed": self.seed, "num_threads": 1}
        data = lgb.Dataset(
            self._matrix(train),
            train[LABEL].to_numpy(),
            feature_name=list(FEATURES),
            categorical_feature=list(CATEGORIES),
        )
        self.booster_ = lgb.train(settings, data, num_boost_round=rounds)
        scores = self.score(check)
        self.validation_ = np.sort(scores)
        self.legitimate_ = np.sort(scores[check[LABEL].to_numpy() == 0])[::-1]
        return self

    def score(self, applications: pd.DataFrame) -> Floats:
        """Estimated probability of fraud of each application."""
        _require(applications, FEATURES)
        if len(applications) == 0:
            return np.zeros(0)
        return np.asarray(self.booster_.predict(self._matrix(applications), num_threads=self.jobs))

    def threshold(self, fpr: float) -> float:
        """Lowest score of month 3 from which at most a share `fpr` of its legitimate cases is alerted."""
        if not 0.0 < fpr < 1.0:
            raise ConfigError(f"false-positive rate is {fpr}; it must lie between 0 and 1")
        first_spared = self.legitimate_[int(fpr * len(self.legitimate_))]
        # Scores of trees tie: everything that ties with the first spared case is spared with it.
        above = np.searchsorted(self.validation_, first_spared, side="right")
        return float(self.validation_[above]) if above < len(self.validation_) else 1.0

    def alerts(self, applications: pd.DataFrame, fpr: float) -> pd.DataFrame:
        """Applications whose score reaches the threshold, with `case_id` index and `model_score`."""
        return _alerts(applications, self.score(applications), self.threshold(fpr))

    def _matrix(self, applications: pd.DataFrame) -> Floats:
        """Features as one float matrix: categories by their code, unseen levels as missing."""
        matrix = np.empty((len(applications), len(FEATURES)))
        for position, name in enumerate(FEATURES):
            matrix[:, position] = _codes(applications[name], self.levels_.get(name))
        return matrix


def _codes(column: pd.Series, levels: tuple[str, ...] | None) -> Floats:
    if levels is None:
        try:
            return column.to_numpy(dtype=np.float64, na_value=np.nan)
        except (TypeError, ValueError):
            raise DataError(
                f"column {column.name!r} is not numeric, first value: {column.iloc[0]!r}"
            ) from None
    known = column.astype("category").cat
    place = pd.Index(levels).get_indexer(known.categories)
    codes = np.append(place, -1)[known.codes]  # a missing value has code -1, which takes the last place
    return np.where(codes < 0, np.nan, codes)


def _levels(column: pd.Series) -> tuple[str, ...]:
    return tuple(sorted(map(str, column.dropna().unique())))


def _require(applications: pd.DataFrame, names: Sequence[str]) -> None:
    missing = [name for name in names if name not in applications.columns]
    if missing:
        raise DataError(f"applications: {len(missing)} columns missing, first: {missing[0]!r}")


def _check_labels(part: pd.DataFrame, what: str) -> None:
    found = set(part[LABEL].unique().tolist())
    if found != {0, 1}:
        raise DataError(
            f"column {LABEL!r}: {what} must hold both 0 and 1; found {sorted(found)} in {len(part)} rows"
        )


@dataclass(frozen=True)
class Roc:
    """Points of the ROC curve, from the strictest threshold to the laxest."""

    fpr: Floats
    tpr: Floats
    thresholds: Floats

    def tpr_at(self, fpr: float) -> float:
        """True-positive rate at a false-positive rate, between points by interpolation."""
        return float(np.interp(fpr, self.fpr, self.tpr))

    def at(self, threshold: float) -> tuple[float, float]:
        """(false-positive rate, true-positive rate) where scores from `threshold` on are alerted."""
        last = int(np.searchsorted(-self.thresholds, -threshold, side="right")) - 1
        return float(self.fpr[last]), float(self.tpr[last])


def roc(labels: npt.ArrayLike, scores: npt.ArrayLike) -> Roc:
    """ROC curve of `scores`; its first threshold is infinite, where nothing is alerted."""
    return Roc(*roc_curve(np.asarray(labels), np.asarray(scores)))


def month_table(applications: pd.DataFrame, scores: Floats, threshold: float) -> pd.DataFrame:
    """Per month: applications, frauds, alerts, false- and true-positive rate, fraud share of the alerts."""
    cases = pd.DataFrame(
        {MONTH: applications[MONTH], "fraud": applications[LABEL], "alert": scores >= threshold}
    )
    cases["caught"] = cases["alert"] & (cases["fraud"] == 1)
    sums = cases.groupby(MONTH).agg(
        applications=("fraud", "size"),
        frauds=("fraud", "sum"),
        alerts=("alert", "sum"),
        caught=("caught", "sum"),
    )
    caught = sums.pop("caught")
    sums["fpr"] = (sums["alerts"] - caught) / (sums["applications"] - sums["frauds"])
    sums["tpr"] = caught / sums["frauds"]
    sums["fraud_share"] = caught / sums["alerts"]
    return sums


@dataclass(frozen=True)
class AlertSets:
    """Alerts of months 3-7 at several false-positive rates, with the model that raised them."""

    model: AlertModel
    sets: dict[float, pd.DataFrame]
    thresholds: dict[float, float]
    months: dict[float, pd.DataFrame]
    roc: Roc

    def cost_ratio(self, rate: float) -> float:
        """The paper's lambda_t for one of the rates."""
        return cost_ratio(self.thresholds[rate])


def build_alert_sets(
    applications: pd.DataFrame,
    rates: Sequence[float] = (0.05, 0.15),
    *,
    seed: int = 0,
    jobs: int = 2,
    model: AlertModel | None = None,
) -> AlertSets:
    """Build the benchmark's alert sets over months 3-7.

    The lowest rate keeps all its alerts; every higher rate is sampled down, month by month, to as many
    alerts, so that the scenarios differ in what is alerted and not in how much.

    Parameters
    ----------
    applications
        In BAF's layout, all months; the row number becomes the `case_id`.
    rates
        Wanted false-positive rates on month 3.
    seed
        Of the alert model and of the sampling.
    model
        A fitted alert model to use instead of training one.
    """
    if not rates:
        raise ConfigError("rates is empty; at least one false-positive rate is needed")
    model = model or AlertModel(seed=seed, jobs=jobs).fit(applications)
    later = applications.reset_index(drop=True)
    later = later[later[MONTH].isin(ALERT_MONTHS)]
    scores = model.score(later)
    thresholds = {rate: model.threshold(rate) for rate in sorted(rates)}
    sets = {rate: _alerts(later, scores, level) for rate, level in thresholds.items()}
    fewest = sets[min(rates)].groupby(MONTH).size()
    rng = np.random.default_rng(seed)
    for rate in sorted(rates)[1:]:
        sets[rate] = _sample(sets[rate], fewest, rng)
    months = {rate: month_table(later, scores, level) for rate, level in thresholds.items()}
    return AlertSets(model, sets, thresholds, months, roc(later[LABEL], scores))


def _alerts(applications: pd.DataFrame, scores: Floats, threshold: float) -> pd.DataFrame:
    chosen = scores >= threshold
    alerts = applications.loc[chosen, [c for c in COLUMNS if c in applications.columns and c != MONTH]]
    alerts["model_score"] = scores[chosen]
    if MONTH in applications.columns:
        alerts[MONTH] = applications.loc[chosen, MONTH]
    return alerts.rename_axis("case_id")


def _sample(alerts: pd.DataFrame, counts: pd.Series, rng: np.random.Generator) -> pd.DataFrame:
    month = alerts[MONTH].to_numpy()
    picks = [rng.choice(np.flatnonzero(month == m), size=n, replace=False) for m, n in counts.items()]
    return alerts.iloc[np.sort(np.concatenate(picks))] if picks else alerts.iloc[:0]


@dataclass(frozen=True)
class Tuning:
    """Result of a search: the best parameters, their recall, and all trials in order."""

    params: dict[str, Any]
    tpr: float
    trials: pd.DataFrame


def tune_alert_model(
    applications: pd.DataFrame,
    *,
    trials: int = 100,
    fpr: float = 0.05,
    seed: int = 0,
    jobs: int = 2,
    trees: tuple[int, int] = (50, 5000),
    progress: Callable[[int, float], None] | None = None,
) -> Tuning:
    """Search the appendix's space with TPE for the highest recall on month 3 at a false-positive rate.

    `trees` narrows the range of the number of trees, which decides how long a trial takes; `progress` is
    called after every trial with its number and the best recall so far.
    """
    with extra("search", "a search for parameters"):
        import optuna

    if trials < 1:
        raise ConfigError(f"trials is {trials}; at least 1 is needed")
    _require(applications, (*FEATURES, LABEL, MONTH))
    frauds = applications[(applications[MONTH] == VALIDATION_MONTH) & (applications[LABEL] == 1)]

    def recall(trial: optuna.Trial) -> float:
        model = AlertModel(_suggest(trial, trees), seed=seed, jobs=jobs).fit(applications)
        return float((model.score(frauds) >= model.threshold(fpr)).mean())

    def report(study: optuna.Study, trial: optuna.trial.FrozenTrial) -> None:
        if progress is not None:
            progress(trial.number, study.best_value)

    talk = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # `progress` is how a caller follows the search
    try:
        study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
        study.optimize(recall, n_trials=trials, callbacks=[report])
    finally:
        optuna.logging.set_verbosity(talk)
    table = pd.DataFrame([{**t.params, "tpr": t.value} for t in study.trials])
    return Tuning(study.best_params, study.best_value, table)


def _suggest(trial: optuna.Trial, trees: tuple[int, int]) -> dict[str, Any]:
    """The search space of appendix A.1."""
    return {
        _TREES: trial.suggest_int(_TREES, *trees, log=True),
        "max_depth": trial.suggest_int("max_depth", 2, 20),
        "num_leaves": trial.suggest_int("num_leaves", 10, 1000, log=True),
        "min_child_samples": trial.suggest_int("min_child_samples", 5, 500, log=True),
        "learning_rate": trial.suggest_float("learning_rate", 0.01, 0.5, log=True),
        "reg_alpha": trial.suggest_float("reg_alpha", 1e-4, 0.1, log=True),
        "reg_lambda": trial.suggest_float("reg_lambda", 1e-4, 0.1, log=True),
    }
