"""What a part and a method must be, so that one of your own stands beside those of deccaf.

A *part* is a model that a blend weighs against others. A case part says P(truth | case), a decision part
P(decision | case, truth, expert), both as logarithms. Subclass `CasePart` or `DecisionPart` and write `fit`,
the predictions, `to_dict` and `from_dict`; the rest has a default. Pass an object::

    DeCCaF(decision_parts=("rates", MyPart()))

or declare it as an entry point `deccaf.parts` of your package: then its name does, also in a configuration
file, in the benchmark, and where a saved model is loaded.

A part is made in three steps. `made` gives an unfitted part for the options of a model. It is fitted on all
but the held-out rows, once for every holdout (`next_trial`), which weighs it against the other parts: first
for one holdout, then for all others side by side. At last a part with the settings that these trials chose
(`settled`) is fitted on everything. On a cluster fits are done by workers: a part of your own has to be
installed there too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.models.cases.log import CaseLog
from deccaf.models.decisions.log import DecisionLog
from deccaf.models.rows import rows_by

if TYPE_CHECKING:
    from deccaf.data.costs import Costs
    from deccaf.data.history import History
    from deccaf.models.methods import Learned, Settings

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


class Rows(Protocol):
    """What a blend learns from, one row per case or per decision."""

    def __len__(self) -> int: ...

    @property
    def weight(self) -> Array:
        """How much each row counts."""

    @property
    def target(self) -> Ints:
        """What is to be predicted: the position of a class."""

    @property
    def stratum(self) -> Ints:
        """Which calibration each row belongs to."""

    def take(self, rows: NDArray[np.bool_]) -> Self:
        """Some of the rows."""


@dataclass(frozen=True)
class PartOptions:
    """What a part may want to know before it is fitted."""

    classes: int = 2
    budget: str = "quick"
    """How many settings to try, if it tries any; see `deccaf.models.budgets`."""
    seed: int = 0
    candidates: Sequence[Mapping[str, Any]] | None = None
    """LightGBM settings to try, in place of the budget's."""


R_contra = TypeVar("R_contra", contravariant=True)


class Part(Protocol[R_contra]):
    """What every part of a blend is, unfitted or fitted."""

    name: ClassVar[str]
    """What it is called in settings, weights and model files."""
    role: ClassVar[str]
    """Whether it is a case part or a decision part."""
    family: ClassVar[str] = "other"
    """Where an explanation counts its contributions: `logistic`, `trees` or `other`."""
    fewest_rows: ClassVar[int] = 0
    """With fewer rows it is not tried, unless there is no other part."""

    def made(self, options: PartOptions) -> Self:
        """An unfitted part like this one, for these options."""
        del options
        return copy(self)

    def fit(self, rows: R_contra, validation: R_contra | None = None) -> Self:
        """Learn; `validation` may choose between settings, and is not learned from."""

    def next_trial(self, trials: Sequence[Self]) -> Self:
        """An unfitted part for a holdout; `trials` holds the one fitted for the first holdout, if any."""
        del trials
        return copy(self)

    def settled(self, trials: Sequence[Self]) -> Self:
        """An unfitted part with the settings that the trials chose; there may be none."""
        del trials
        return copy(self)

    def to_dict(self) -> dict[str, Any]:
        """What was learned, for a file: numbers, text, lists, dictionaries and arrays of numbers."""

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Rebuild what `to_dict` gave."""


class CasePart(Part[CaseLog], Protocol):
    """P(truth | case)."""

    role: ClassVar[str] = "case part"

    def log_chances(self, features: pd.DataFrame) -> Array:
        """(cases, K): log-chance of each truth."""

    def contributions(self, case: pd.DataFrame, k: int) -> Array:
        """What each feature of one case added to the log-odds of truth k against truth 0; 0: not known."""
        del k
        return np.zeros(len(case.columns))


class DecisionPart(Part[DecisionLog], Protocol):
    """P(decision | case, truth, expert); experts are positions, one past the last is one never seen."""

    role: ClassVar[str] = "decision part"

    def log_rows(self, features: pd.DataFrame, truth: Ints, expert: Ints) -> Array:
        """(rows, K): log-chance of each decision, for rows of case, truth and expert."""

    def log_table(self, features: pd.DataFrame, expert: Ints) -> Array:
        """(cases, experts, K truths, K decisions): log-chances for all pairs."""

    def log_odds(self, features: pd.DataFrame, expert: Ints) -> Array:
        """Two classes: (cases, truths, experts), log-odds of the decision 1, or what broadcasts to that.

        The same as `log_table` tells. Plans of two classes are scored by this alone, so a part that can do
        without the table is much faster.
        """
        table = self.log_table(features, expert)
        return np.asarray(np.swapaxes(table[..., 1] - table[..., 0], 1, 2))

    def log_odds_rows(self, features: pd.DataFrame, expert: Ints) -> Array:
        """Two classes: (rows, truths), the same for rows of case and expert."""
        tables = [self.log_rows(features, np.full(len(features), y), expert) for y in range(2)]
        return np.stack([table[:, 1] - table[:, 0] for table in tables], axis=1)

    def covariance(self, features: pd.DataFrame, expert: Ints) -> Array | None:
        """(cases, experts, K truths, K - 1, K - 1): posterior covariance of the log-odds against class 0.

        None: the part does not know how sure it is.
        """
        del features, expert
        return None

    def covariance_rows(self, features: pd.DataFrame, expert: Ints) -> Array | None:
        """(rows, K truths, K - 1, K - 1): the same for rows of case and expert."""
        found: Array | None = None
        for j, mine in rows_by(expert):
            table = self.covariance(features.iloc[mine], np.array([j]))
            if table is None:
                return None
            found = np.empty((len(features), *table.shape[2:])) if found is None else found
            found[mine] = table[:, 0]
        return found

    def contributions(self, case: pd.DataFrame, expert: int, truth: int, k: int) -> Array:
        """What each feature of one case added to the log-odds that an expert says k and not 0."""
        del expert, truth, k
        return np.zeros(len(case.columns))


def log_odds_of_rows(part: DecisionPart, features: pd.DataFrame, expert: Ints) -> Array:
    """`part.log_odds_rows`, or what `log_rows` says where somebody's own part knows only that."""
    order = type(part).__mro__

    def home(name: str) -> int:
        return next((place for place, kind in enumerate(order) if name in vars(kind)), len(order))

    if home("log_rows") < home("log_odds_rows"):
        return DecisionPart.log_odds_rows(part, features, expert)
    return part.log_odds_rows(features, expert)


class Method(Protocol):
    """How to learn from a history, and how to read back what was learned."""

    name: str

    def learn(self, history: History, settings: Settings, costs: Costs, classifier: Any = None) -> Learned:
        """Fit the models of the method; a `classifier` fitted on the same cases is taken as it is."""

    def from_dict(self, data: Mapping[str, Any]) -> Learned:
        """Rebuild what `Learned.to_dict` gave."""
