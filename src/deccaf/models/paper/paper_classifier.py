"""The paper's classifier h: LightGBM (dart) trained on the cost-weighted log-loss (its eq. 14).

Its probabilities are those of the reweighted distribution, where an error on a case counts c_i; convert with
`classifier.unweighted`. Boosting starts from g_d + offset, with g_d the log-odds of the weighted prevalence,

    g_d = logit(sum c_i y_i / sum c_i)        (the appendix divides by sum y_i, a slip)

and offsets 0, 0.2, ..., 2: a bias towards fraud, chosen with the other settings on validation time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from deccaf.models.contributions import contribution_table, tree_contributions
from deccaf.models.linear.encoding import TreeEncoder
from deccaf.models.rows import codes, known_rows, weights_of
from deccaf.models.trees import boosting
from deccaf.models.trees.forest import Boosted

Array = NDArray[np.float64]

OFFSETS = tuple(round(0.2 * step, 1) for step in range(11))
_DART = {"boosting_type": "dart", "num_leaves": 100, "reg_alpha": 0.5, "reg_lambda": 1.0}
QUICK: tuple[Mapping[str, Any], ...] = (
    {**_DART, "n_estimators": 150, "max_depth": 2, "learning_rate": 0.3, "min_child_samples": 50},
    {**_DART, "n_estimators": 250, "max_depth": 2, "learning_rate": 0.15, "min_child_samples": 100},
    {**_DART, "n_estimators": 100, "max_depth": 3, "learning_rate": 0.2, "min_child_samples": 100},
)
"""Settings of the quick budget."""


@dataclass(frozen=True, eq=False)
class ClassifierRows:
    """Cases encoded and binned once, for every pair of settings and offset that is tried on them."""

    encoder: TreeEncoder
    train: boosting.TrainingRows
    base: Array
    """g_d."""
    held: tuple[Array, NDArray[np.int64], Array]
    """Matrix, labels and weights of the validation cases."""

    @classmethod
    def of(
        cls,
        features: pd.DataFrame,
        label: ArrayLike,
        weight: ArrayLike,
        *,
        validation: NDArray[np.bool_] | None = None,
        classes: int = 2,
        seed: int = 0,
    ) -> ClassifierRows:
        """Learn on the cases outside `validation`, measure on those inside."""
        labels, weights = codes(label, len(features), classes, "label"), weights_of(weight, len(features))
        useful = known_rows(labels, weights)
        held = np.zeros(len(features), bool) if validation is None else np.asarray(validation, bool)
        train, held = useful & ~held, useful & held
        encoder = TreeEncoder().fit(features)
        matrix = encoder.transform(features)
        rows = boosting.TrainingRows(
            matrix[train],
            labels[train],
            classes=classes,
            categorical=encoder.categorical,
            weight=weights[train],
            seed=seed,
        )
        base = initial_score(labels[train], weights[train], classes)
        return cls(encoder, rows, base, (matrix[held], labels[held], weights[held]))

    @property
    def chooses(self) -> bool:
        """Whether there are validation cases to choose by."""
        return len(self.held[1]) > 0

    def tried(self, params: Mapping[str, Any], offset: float) -> tuple[Boosted, Array, float]:
        """The trees, the initial score, and the weighted log-loss on the validation cases (0 without any)."""
        start = self.base + offset
        booster = self.train.train(params, start=start)
        if not self.chooses:
            return booster, start, 0.0
        matrix, labels, weights = self.held
        log_p = boosting.log_chances(booster, matrix, self.train.classes, start)
        return booster, start, boosting.weighted_log_loss(log_p, labels, weights)


class PaperClassifier:
    """P~(label | features) under the reweighted distribution, K classes.

    Parameters
    ----------
    candidates, offsets
        LightGBM settings and additions to the initial score; the best pair is taken on validation cases.
        With more than two classes an offset is added for every class but the first.

    Attributes
    ----------
    params_, offset_, start_ : what was taken, and the initial score per class but the first
    losses_ : weighted validation log-loss of every pair tried
    """

    def __init__(
        self,
        classes: int = 2,
        *,
        candidates: Sequence[Mapping[str, Any]] = QUICK,
        offsets: Sequence[float] = OFFSETS,
        seed: int = 0,
    ) -> None:
        self.classes = classes
        self.candidates = candidates
        self.offsets = offsets
        self.seed = seed

    def fit(
        self,
        features: pd.DataFrame,
        label: ArrayLike,
        weight: ArrayLike,
        *,
        validation: NDArray[np.bool_] | None = None,
    ) -> PaperClassifier:
        """Learn with case weights c_i on the cases outside `validation`, which choose between the settings.

        Without validation cases the first settings and the first offset are taken.
        """
        rows = ClassifierRows.of(
            features, label, weight, validation=validation, classes=self.classes, seed=self.seed
        )
        self.encoder_ = rows.encoder
        pairs = [(params, offset) for params in self.candidates for offset in self.offsets]
        self.losses_, best = [], np.inf
        for params, offset in pairs if rows.chooses else pairs[:1]:
            booster, start, loss = rows.tried(params, offset)
            self.losses_.append(loss)
            if loss < best:
                best, self.params_, self.offset_ = loss, dict(params), float(offset)
                self.booster_, self.start_ = booster, start
        return self

    def predict(self, features: pd.DataFrame) -> Array:
        """(cases, K): probabilities under the reweighted distribution."""
        matrix = self.encoder_.transform(features)
        return np.asarray(np.exp(boosting.log_chances(self.booster_, matrix, self.classes, self.start_)))

    def contributions(self, case: pd.DataFrame, k: int) -> pd.DataFrame:
        """What moved the log-odds of truth k against truth 0 for one case; one row per feature."""
        row, width = self.encoder_.transform(case), len(case.columns)
        moved = tree_contributions(self.booster_, row, k, self.classes, width)
        return contribution_table(case, [("trees", moved)])

    def to_dict(self) -> dict[str, Any]:
        """What was learned, for a file."""
        return {
            "classes": self.classes,
            "encoder": self.encoder_.to_dict(),
            "params": self.params_,
            "offset": self.offset_,
            "start": self.start_.tolist(),
            "booster": self.booster_.model_to_string(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PaperClassifier:
        """Rebuild what `to_dict` gave."""
        model = cls(int(data["classes"]), candidates=[data["params"]])
        model.encoder_ = TreeEncoder.from_dict(data["encoder"])
        model.params_, model.offset_ = dict(data["params"]), float(data["offset"])
        model.start_ = np.asarray(data["start"], np.float64)
        model.booster_ = boosting.from_text(data["booster"])
        return model


def initial_score(label: NDArray[np.int64], weight: Array, classes: int) -> Array:
    """g_d: log-odds of each class but the first under the weights; half a mean case keeps them finite."""
    totals = np.bincount(label, weight, minlength=classes)
    totals = totals + 0.5 * weight.mean() * (totals == 0)
    return np.asarray(np.log(totals[1:]) - np.log(totals[0]))
