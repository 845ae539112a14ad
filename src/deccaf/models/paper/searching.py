"""The paper's searches: what a trial of each is, and all of them one after the other, as the appendix says.

The classifier is searched for every initial score apart, in two spaces; the joint expertise model once, and
one-vs-all for every expert's own model. The benchmark runs the same trials in pieces, side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.models.budgets import Choice
from deccaf.models.paper.expertise import HumanExpertiseModel, OneVsAll
from deccaf.models.paper.paper_classifier import OFFSETS, ClassifierRows
from deccaf.models.paper.spaces import CLASSIFIER, CLASSIFIER_DEPTH_2, EXPERTISE, Search

Params = dict[str, Any]
Trial = Callable[[Params], float]
_OFFSET = "offset"


def with_offset(search: Search, offset: float | None) -> Search:
    """The search of the classifier with one initial score; None: with that as one more parameter."""
    return replace(search, space={**search.space, _OFFSET: Choice(OFFSETS) if offset is None else offset})


def split_offset(params: Mapping[str, Any]) -> tuple[Params, float]:
    """LightGBM's settings, and the addition to the initial score."""
    return {name: value for name, value in params.items() if name != _OFFSET}, float(params[_OFFSET])


def classifier_trial(rows: ClassifierRows) -> Trial:
    """The validation loss of settings with their offset."""
    return lambda params: rows.tried(*split_offset(params))[2]


def expertise_trial(
    kind: type[HumanExpertiseModel] | type[OneVsAll],
    rows: tuple[pd.DataFrame, NDArray[np.int64], pd.Series, NDArray[np.int64]],
    weight: NDArray[np.float64],
    held: NDArray[np.bool_],
    expert: str | None = None,
    *,
    classes: int = 2,
    seed: int = 0,
) -> Trial:
    """The validation loss of settings; `rows` are features, truth, expert and decision.

    With `expert` of that expert's own decisions alone.
    """
    features, truth, who, said = rows
    if expert is not None:
        mine = (who == expert).to_numpy()
        features, truth, who, said = features[mine], truth[mine], who[mine], said[mine]
        weight, held = weight[mine], held[mine]
    return kind(classes, seed=seed).trial(features, truth, who, said, weight, validation=held)


def searched_classifier(rows: ClassifierRows, seed: int) -> tuple[Params, float]:
    """The best settings and offset of the appendix's searches: 2,000 trials for each initial score."""
    from deccaf.models.paper.tuning import tune  # its library is an extra

    trial = classifier_trial(rows)
    tuned = [
        tune(trial, with_offset(search, offset), "paper", seed=seed)
        for search in (CLASSIFIER, CLASSIFIER_DEPTH_2)
        for offset in OFFSETS
    ]
    return split_offset(min(tuned, key=lambda found: found.loss).params)


def searched_expertise(trials: Sequence[Trial], seed: int) -> list[Params]:
    """The best settings of each trial's search, 120 of each."""
    from deccaf.models.paper.tuning import tune  # its library is an extra

    return [tune(trial, EXPERTISE, "paper", seed=seed).params for trial in trials]
