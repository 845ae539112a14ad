"""What a method learns, and what it believes about new cases: one object, whatever the method.

- `deccaf`: P(truth | case) and P(decision | case, truth, expert); the plan minimises the expected cost.
- `paper`: the paper's cost-weighted classifier and expertise model; the plan minimises 1 - P~(right).
- `ova`: the same with one model per expert.

Others are added to `METHODS`, or as entry points `deccaf.methods` of installed packages.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.data.costs import MACHINE, Class, Costs
from deccaf.data.history import History
from deccaf.errors import ConfigError
from deccaf.models.cases.classifier import PARTS as CASE_DEFAULTS
from deccaf.models.contributions import in_long_form
from deccaf.models.decisions.model import PARTS as DECISION_DEFAULTS
from deccaf.plugins import METHODS
from deccaf.progress import Step, silent

if TYPE_CHECKING:
    from deccaf.models.protocols import CasePart, DecisionPart, Method

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

__all__ = ["METHODS", "Learned", "Scores", "Settings", "learn"]


@dataclass(frozen=True, eq=False)
class Scores:
    """What a method believes about some cases; makers are the machine, then the experts asked for."""

    p: Array
    """(cases, K): chance of each truth."""
    says: Ints
    """What the machine would decide."""
    loss: Array
    """(cases, makers): expected cost."""
    objective: Array
    """(cases, makers): what the plan minimises; the loss itself, except for the paper's methods."""


@dataclass(frozen=True)
class Settings:
    """How to learn."""

    method: str = "deccaf"
    classes: int = 2
    half_life: Any = None
    case_parts: Sequence[str | CasePart] = CASE_DEFAULTS
    decision_parts: Sequence[str | DecisionPart] = DECISION_DEFAULTS
    budget: str = "quick"
    seed: int = 0
    machines: tuple[str, ...] = ()
    """Makers that are machines."""
    step: Step = field(default=silent, compare=False)
    """Hears what is being learned."""


class Learned(ABC):
    """The fitted models of a method.

    Attributes
    ----------
    method : the name that the method is registered under
    classifier : the model of the cases
    decisions : the model of the experts; None where nobody's decisions were learned from
    """

    any_costs: ClassVar[bool] = False
    """Whether costs enter only where cases are scored: then plans may use others than those of the fit."""

    def __init__(self, method: str, classifier: Any, decisions: Any | None) -> None:
        self.method = method
        self.classifier = classifier
        self.decisions = decisions

    @property
    def experts(self) -> tuple[str, ...]:
        """Everyone whose decisions were learned from, sorted."""
        return () if self.decisions is None else tuple(self.decisions.experts_)

    def observed(self, features: pd.DataFrame, truth: Ints, expert: Sequence[str], decision: Ints) -> Learned:
        """The same after more decisions with a known truth, without fitting anything again."""
        del features, truth, expert, decision
        raise ConfigError(f"a model of method {self.method!r} learns from new decisions only by a new fit")

    @abstractmethod
    def chances(self, features: pd.DataFrame, costs: Array) -> Array:
        """(cases, K): chance of each truth."""

    def sensitive_chances(self, features: pd.DataFrame, costs: Array) -> Array:
        """The same as `chances`, to compare cases that differ a little: not flattened by a calibration."""
        return self.chances(features, costs)

    @abstractmethod
    def score(self, features: pd.DataFrame, experts: Sequence[str], costs: Array, review: Array) -> Scores:
        """What the method believes; `costs` are (cases or 1, K, K), `review` is what each expert costs."""

    def decision_chances(self, features: pd.DataFrame, experts: Sequence[str]) -> Array | None:
        """q[i, j, y, m]: chance that an expert says m if the truth is y; None where that is not learned."""
        del features, experts
        return None

    def contributions(self, case: pd.DataFrame, maker: str, classes: Sequence[Class]) -> pd.DataFrame:
        """What moved the estimate of a maker on one case, as `in_long_form` has it.

        For the machine `says` is the truth that became likelier.
        """
        if maker != MACHINE:
            return in_long_form(self._expert_contributions(case, maker, classes))
        return in_long_form(
            (None, classes[k], self.classifier.contributions(case, k)) for k in range(1, len(classes))
        )

    @abstractmethod
    def _expert_contributions(
        self, case: pd.DataFrame, expert: str, classes: Sequence[Class]
    ) -> list[tuple[Class | None, Class, pd.DataFrame]]:
        """Tables by (truth, what became likelier)."""

    def correlation(self, makers: Sequence[str]) -> Array | None:
        """(makers, makers): how the errors of these go together, given truth and features; None: not
        known."""
        del makers
        return None

    def knows_more(self, expert: str) -> bool:
        """Whether more is known of somebody's decisions than the intervals of the decision model tell."""
        del expert
        return False

    def level_spread(self) -> Array | None:
        """(K,): deviation of the log-odds of each truth, for all cases together; None: not known."""
        return None

    def guessed(self, history: History) -> History | None:
        """The history with guesses of hidden truths as this sees them; None: they stay as they are."""
        del history
        return None

    def to_dict(self) -> dict[str, Any]:
        """What was learned, for a file."""
        return {
            "method": self.method,
            "classifier": self.classifier.to_dict(),
            "decisions": None if self.decisions is None else self.decisions.to_dict(),
        }

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Learned:
        """Rebuild what `to_dict` gave, by the method that it names."""
        method: Method = METHODS.named_in_file(data["method"])
        return method.from_dict(data)


def learn(history: History, settings: Settings, costs: Costs, classifier: Any = None) -> Learned:
    """Fit the models of a method; without decisions only the machine is learned.

    A `classifier` fitted on the same cases before is taken as it is.
    """
    settings.step("Learning how likely each truth is")
    method: Method = METHODS.find(settings.method)
    if not getattr(method, "own_scores", False):
        history = history.without(list(history.schema.own.values()))
    learned = method.learn(history.to_learn_from(), settings, costs, classifier)
    again = learned.guessed(history)
    return learned if again is None else method.learn(again.to_learn_from(), settings, costs, None)
