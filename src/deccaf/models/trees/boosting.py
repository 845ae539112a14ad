"""LightGBM with the project's habits: K classes alike, repeatable, probabilities in one layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deccaf.data.log_odds import log_expit, log_softmax
from deccaf.models.trees.expert_scorer import ExpertScorer
from deccaf.models.trees.forest import Boosted
from deccaf.models.trees.stored_trees import StoredTrees

if TYPE_CHECKING:
    import lightgbm as lgb

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Params = Mapping[str, Any]

_ALWAYS = {
    "verbosity": -1,
    "deterministic": True,
    "force_row_wise": True,
    "feature_pre_filter": False,
}
_BINNING = ("enable_bundle", "max_bin", "min_data_in_bin", "bin_construct_sample_cnt", "linear_tree")
"""Settings that change how rows are binned; LightGBM refuses rows that were binned with others."""
_FLOOR = 1e-7
"""No class is less likely than this: a class absent in training must not make a blend infinite."""
_LARGE, _HUGE = 4_000_000, 40_000_000
"""Numbers in a matrix from which it is predicted, and boosted, by two threads. For each tree they wait for
each other dozens of times, and where other work has the cores every wait lasts as long as its turn."""
_MANY_WALKS, _MANY_ROWS = 200_000, 1_024
"""Rows x trees, and rows, from which it pays to prepare the forest. Only these decide, whatever was prepared
before: another way to add up is another last digit."""


class Prepared:
    """A booster's forest once it is prepared: a model in use is asked again and again. Copies begin anew."""

    scorer: ExpertScorer | None = None

    def __reduce__(self) -> tuple[type[Prepared], tuple[()]]:
        return Prepared, ()


class TrainingRows:
    """Rows to learn from, binned once for as many fits as are wanted, with other settings and initial scores.

    What is learned is the same to the last bit as from rows that are binned for every fit.
    """

    def __init__(
        self,
        matrix: Array,
        target: Ints,
        *,
        classes: int,
        categorical: Sequence[int] = (),
        weight: Array | None = None,
        seed: int = 0,
    ) -> None:
        self.matrix = matrix
        self.target = target
        self.classes = classes
        self.categorical = list(categorical)
        self.weight = weight
        self.seed = seed
        self._binned: dict[tuple[Any, ...], lgb.Dataset] = {}

    def train(
        self,
        params: Params,
        *,
        start: Array | None = None,
        validation: tuple[Array, Ints, Array | None] | None = None,
        patience: int = 50,
    ) -> lgb.Booster:
        """Boost trees for P(target = k).

        `params` are LightGBM's, with `n_estimators` for the number of rounds. `start` is a log-odds per class
        but the first (K - 1 numbers) that boosting starts from; the caller adds it again after prediction
        (`log_chances`). `validation` (matrix, target, weight) stops early where boosting can be (not with
        dart).
        """
        import lightgbm as lgb

        always = {**_ALWAYS, "seed": self.seed, "num_threads": _threads(self.matrix, _HUGE)}
        settings = {**always, **params, **_objective(self.classes)}
        rounds = int(settings.pop("n_estimators", 100))
        if start is not None:
            settings["boost_from_average"] = False
        data = self._rows(settings, start)
        if validation is None or settings.get("boosting_type") == "dart":
            return lgb.train(settings, data, rounds)
        held_out = self._dataset(*validation, settings, start, data)
        stop = lgb.early_stopping(patience, verbose=False)
        return lgb.train(settings, data, rounds, valid_sets=[held_out], callbacks=[stop])

    def _rows(self, settings: Mapping[str, Any], start: Array | None) -> lgb.Dataset:
        """The rows as these settings bin them, with this initial score."""
        key = (start is None, *(settings.get(name) for name in _BINNING))
        if key not in self._binned:
            self._binned[key] = self._dataset(self.matrix, self.target, self.weight, settings, start)
        elif start is not None:
            self._binned[key].set_init_score(_start_scores(start, len(self.matrix)))
        return self._binned[key]

    def _dataset(
        self,
        x: Array,
        y: Ints,
        w: Array | None,
        settings: Mapping[str, Any],
        start: Array | None,
        reference: lgb.Dataset | None = None,
    ) -> lgb.Dataset:
        import lightgbm as lgb

        return lgb.Dataset(
            x,
            y,
            weight=w,
            init_score=None if start is None else _start_scores(start, len(x)),
            # real names may hold what LightGBM's files cannot
            feature_name=[f"f{place}" for place in range(x.shape[1])],
            categorical_feature=self.categorical,
            reference=reference,
            params=dict(settings),
        )


def train(
    matrix: Array,
    target: Ints,
    *,
    classes: int,
    params: Params,
    categorical: Sequence[int] = (),
    weight: Array | None = None,
    start: Array | None = None,
    validation: tuple[Array, Ints, Array | None] | None = None,
    patience: int = 50,
    seed: int = 0,
) -> lgb.Booster:
    """One fit; see `TrainingRows.train`."""
    rows = TrainingRows(matrix, target, classes=classes, categorical=categorical, weight=weight, seed=seed)
    return rows.train(params, start=start, validation=validation, patience=patience)


def log_chances(booster: Boosted, matrix: Array, classes: int, start: Array | None = None) -> Array:
    """(rows, K) log-probabilities; `start` as in `train`."""
    return log_from_raw(_raw(booster, matrix), classes, start)


def _raw(booster: Boosted, matrix: Array) -> Array:
    """Raw scores; of many rows by the prepared forest, which is several times as fast as LightGBM."""
    if not pays_to_prepare(booster, len(matrix)):
        return np.asarray(booster.predict(matrix, raw_score=True, num_threads=_threads(matrix, _LARGE)))
    prepared: Prepared | None = getattr(booster, "_prepared", None)
    if prepared is None:
        prepared = booster._prepared = Prepared()  # type: ignore[attr-defined]
    if prepared.scorer is None:
        prepared.scorer = ExpertScorer(booster, (), np.empty((1, 0)))
    return prepared.scorer.raw(matrix)[:, 0]


def pays_to_prepare(booster: Boosted, rows: int) -> bool:
    """Whether there is so much to score that preparing the forest for it takes less."""
    return rows >= _MANY_ROWS and rows * booster.num_trees() >= _MANY_WALKS


def log_from_raw(raw: Array, classes: int, start: Array | None = None) -> Array:
    """Raw scores, (...) for two classes or (..., K), as (..., K) log-probabilities."""
    if classes == 2:
        raw = raw + (0.0 if start is None else start[0])
        log_p = np.stack([log_expit(-raw), log_expit(raw)], axis=-1)
    else:
        log_p = log_softmax(raw + (0.0 if start is None else np.append(0.0, start)), axis=-1)
    return np.asarray(np.maximum(log_p, np.log(_FLOOR)))


def floored(odds: Array) -> Array:
    """Log-odds of two classes, neither less likely than `_FLOOR`, in place."""
    most = float(np.log((1.0 - _FLOOR) / _FLOOR))
    return np.clip(odds, -most, most, out=odds)


def weighted_log_loss(log_p: Array, target: Ints, weight: Array | None = None) -> float:
    """Mean of -log p(target), weighted."""
    losses = -np.maximum(log_p[np.arange(len(target)), target], np.log(_FLOOR))
    return float(np.average(losses, weights=weight))


def rounds_of(booster: lgb.Booster) -> int:
    """How many rounds were best, or were made."""
    return max(booster.best_iteration, 0) or max(booster.current_iteration(), 1)


def from_text(text: str) -> StoredTrees:
    """A booster from its own text. The text must be checked before: LightGBM crashes on a damaged one."""
    return StoredTrees(text)


def _threads(matrix: Array, large: int) -> int:
    """One thread unless there is much to do; however many cores there are, so that trees are the same."""
    return 2 if matrix.size > large else 1


def _objective(classes: int) -> dict[str, Any]:
    if classes == 2:
        return {"objective": "binary", "metric": "binary_logloss"}
    return {"objective": "multiclass", "num_class": classes, "metric": "multi_logloss"}


def _start_scores(start: Array, rows: int) -> Array:
    if len(start) == 1:
        return np.full(rows, start[0])
    return np.tile(np.append(0.0, start), (rows, 1))
