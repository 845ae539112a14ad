"""Search budgets: how many LightGBM settings are tried on held-out cases before a model is chosen.

`quick` tries the few settings that the models come with, `standard` and `paper` draw more from the search
spaces. For trial-by-trial searches that can be resumed, see `deccaf.models.paper.tuning`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from deccaf.errors import ConfigError, did_you_mean
from deccaf.models.cases import parts
from deccaf.models.decisions import boosted
from deccaf.models.paper import expertise, paper_classifier
from deccaf.models.paper.spaces import CLASSIFIER, EXPERTISE, Choice, Range, Space

BUDGETS = {"quick": 0, "standard": 20, "paper": 120}
"""Settings that are drawn beside those that the models come with."""

_BOOSTED: Space = {
    "n_estimators": 2000,
    "learning_rate": Range(0.02, 0.12, log=True),
    "num_leaves": Range(4, 32),
    "min_child_samples": Range(10, 200, log=True),
    "reg_lambda": Range(0.5, 50.0, log=True),
    "feature_fraction": Range(0.3, 1.0),
    "bagging_fraction": Range(0.5, 1.0),
    "bagging_freq": 1,
}
_MODELS: dict[str, tuple[Sequence[Mapping[str, Any]], Space]] = {
    "cases": (parts.QUICK, _BOOSTED),
    "decisions": (boosted.QUICK, _BOOSTED),
    "paper-cases": (paper_classifier.QUICK, CLASSIFIER.space),
    "paper-experts": (expertise.QUICK, EXPERTISE.space),
}


def candidates(model: str, budget: str, seed: int) -> list[Mapping[str, Any]]:
    """The settings that a model chooses from."""
    if budget not in BUDGETS:
        hint = did_you_mean(str(budget), BUDGETS)
        raise ConfigError(f"budget: expected one of {', '.join(BUDGETS)}, got {budget!r}{hint}")
    known, space = _MODELS[model]
    rng = np.random.default_rng(seed)
    return [*known, *[_drawn(space, rng) for _ in range(BUDGETS[budget])]]


def _drawn(space: Space, rng: np.random.Generator) -> dict[str, Any]:
    return {name: _value(values, rng) for name, values in space.items()}


def _value(values: Any, rng: np.random.Generator) -> Any:
    if isinstance(values, Choice):
        return values.options[int(rng.integers(len(values.options)))]
    if not isinstance(values, Range):
        return values
    if values.log:
        drawn = float(np.exp(rng.uniform(np.log(values.low), np.log(values.high))))
    else:
        drawn = float(rng.uniform(values.low, values.high))
    return round(drawn) if values.whole else drawn
