"""Selective labels: whether the truth is missing because of what was decided.

A rejected application never shows whether it would have been paid back. Where labels are missing more often
after one decision than after another, cases with a label are no fair sample of all cases: chances learned
from them are off, and so is a backtest on them. Labels that are only late are missing after every decision
alike.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deccaf.data.config import LabelsTable
from deccaf.data.costs import Class
from deccaf.data.history import History

GAP = 0.05
"""Shares of missing labels that differ by less than this are not worth a word."""
CHANCE = 1e-3
"""Nor is a difference that chance would bring up more often than this."""


@dataclass(frozen=True)
class MissingLabels:
    """Decisions of one kind, and how many of their cases have no label."""

    decision: Class
    decisions: int
    missing: int
    share: float
    low: float
    high: float
    """Wilson's 95 % interval of the share."""

    def __str__(self) -> str:
        interval = f"({self.low:.0%} to {self.high:.0%})"
        return f"{self.share:.0%} {interval} of the {self.decisions:,} cases decided {self.decision!r}"


@dataclass(frozen=True)
class LabelsByDecision:
    """How often labels are missing after each decision, and how likely chance alone makes them differ so."""

    shares: tuple[MissingLabels, ...]
    """By decision, for the decisions that were made; the largest share first."""
    chance: float
    """The p-value of the chi-square test that the shares are the same."""

    @property
    def gap(self) -> float:
        """The largest share less the smallest."""
        return self.shares[0].share - self.shares[-1].share if len(self.shares) > 1 else 0.0

    @property
    def selective(self) -> bool:
        """Whether labels are missing because of the decision, as far as these data show."""
        return self.gap >= GAP and self.chance < CHANCE

    @property
    def hidden(self) -> tuple[Class, ...]:
        """The decisions after which labels are missing: nearer to the largest share than to the least."""
        if not self.selective:
            return ()
        middle = (self.shares[0].share + self.shares[-1].share) / 2.0
        return tuple(part.decision for part in self.shares if part.share > middle)

    def notes(self, labels: LabelsTable, classes: tuple[Class, ...]) -> list[str]:
        """What to say, given what `[labels] selective` says."""
        said = labels.classes_of(classes)
        found = "; ".join(str(part) for part in self.shares)
        if said and not self.selective:
            return [
                f"[labels] selective names {list(said)}, but labels are missing about as often after every "
                f"decision: {found}"
            ]
        if not self.selective:
            return []
        pattern = f"labels are missing because of the decision (selective labels): {found}"
        if set(self.hidden) <= set(said):
            return [f"{pattern}, as [labels] selective says"]
        wanted = "positive" if self.hidden == classes[1:] and len(classes) == 2 else list(self.hidden)
        wanted = f'"{wanted}"' if isinstance(wanted, str) else str(list(wanted)).replace("'", '"')
        return [
            f"{pattern}. Chances, costs and savings learned from the labelled cases alone are off; if it is "
            f"so, say [labels] selective = {wanted}, and let some such cases through by lot to learn them"
        ]


def missing_labels_by_decision(history: History) -> LabelsByDecision:
    """Compare the shares of missing labels after each decision."""
    classes = history.cases.classes
    missing = history.label[history.case] < 0
    made = np.bincount(history.decision, minlength=len(classes))
    without = np.bincount(history.decision, missing, minlength=len(classes)).astype(np.int64)
    parts = [
        _share(name, int(count), int(lost))
        for name, count, lost in zip(classes, made, without, strict=True)
        if count
    ]
    parts.sort(key=lambda part: -part.share)
    return LabelsByDecision(tuple(parts), _chance(made, without))


def _share(name: Class, made: int, missing: int) -> MissingLabels:
    from scipy import stats

    interval = stats.binomtest(missing, made).proportion_ci(method="wilson")
    return MissingLabels(name, made, missing, missing / made, float(interval.low), float(interval.high))


def _chance(made: NDArray[np.int64], missing: NDArray[np.int64]) -> float:
    from scipy import stats

    used = made > 0
    table = np.array([missing[used], (made - missing)[used]])
    if table.shape[1] < 2 or (table.sum(axis=1) == 0).any():
        return 1.0
    if table.shape[1] == 2 and table.min() < 10:
        return float(stats.fisher_exact(table).pvalue)
    return float(stats.chi2_contingency(table).pvalue)
