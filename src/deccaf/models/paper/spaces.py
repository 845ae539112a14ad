"""The paper's search spaces and budgets (appendix, "Classifier h" and "OvA Classifiers and HEM"), as data.

The alert model's space (appendix A.1) is in `deccaf.simulate.alerts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from deccaf.errors import ConfigError, did_you_mean
from deccaf.models.budgets import Choice, Range, Space


@dataclass(frozen=True)
class Budget:
    """Trials in all, of which the first `startup` are drawn at random and the others by TPE."""

    trials: int
    startup: int

    def __post_init__(self) -> None:
        if self.trials < 1 or self.startup < 0:
            raise ConfigError(f"budget of {self.trials} trials with {self.startup} at the start: too few")


@dataclass(frozen=True)
class Search:
    """A space with its budgets."""

    name: str
    space: Space
    budgets: Mapping[str, Budget]

    def budget(self, wanted: str | Budget) -> Budget:
        """A budget by name, or as it is."""
        if isinstance(wanted, Budget):
            return wanted
        if wanted not in self.budgets:
            hint = did_you_mean(wanted, self.budgets)
            raise ConfigError(f"budget {wanted!r}: choose one of {list(self.budgets)}{hint}")
        return self.budgets[wanted]


_LIGHTGBM: dict[str, Any] = {
    "boosting_type": "dart",
    "enable_bundle": Choice((False, True)),
    "n_estimators": Range(50, 250),
}

CLASSIFIER = Search(
    "classifier",
    {
        **_LIGHTGBM,
        "max_depth": Range(2, 5),
        "num_leaves": Range(100, 1000),
        "min_child_samples": Range(5, 200),
        "learning_rate": Range(0.001, 1.0),
        "reg_alpha": Range(0.001, 2.0),
        "reg_lambda": Range(0.001, 2.0),
    },
    {"quick": Budget(10, 6), "standard": Budget(50, 30), "paper": Budget(300, 200)},
)
"""The classifier h, first search (table "ML Model")."""

CLASSIFIER_DEPTH_2 = replace(
    CLASSIFIER,
    name="classifier-depth-2",
    space={**CLASSIFIER.space, "max_depth": 2},
    budgets={"quick": Budget(10, 6), "standard": Budget(80, 60), "paper": Budget(1700, 1500)},
)
"""The classifier h, second search: trees of depth 2 had won the first in every scenario."""

EXPERTISE = Search(
    "expertise",
    {
        **_LIGHTGBM,
        "max_depth": Range(2, 20),
        "num_leaves": Range(100, 1000, log=True),
        "min_child_samples": Range(5, 100, log=True),
        "learning_rate": Range(0.005, 0.5, log=True),
        "reg_alpha": Range(0.0001, 0.1, log=True),
        "reg_lambda": Range(0.0001, 0.1, log=True),
    },
    {"quick": Budget(8, 5), "standard": Budget(40, 25), "paper": Budget(120, 100)},
)
"""The joint expertise model (HEM) and each one-vs-all model."""

EXPERTISE_SHALLOW = replace(
    EXPERTISE, name="expertise-shallow", space={**EXPERTISE.space, "max_depth": Range(2, 5)}
)
"""The same without deep trees, which take most of the time and won nowhere."""

SEARCHES = {search.name: search for search in (CLASSIFIER, CLASSIFIER_DEPTH_2, EXPERTISE, EXPERTISE_SHALLOW)}
