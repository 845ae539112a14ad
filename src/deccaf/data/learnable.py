"""What can be learned from a history, counted before anything is fitted; below a floor nothing is.

The floors are low on purpose: a pilot desk starts with little, and models that pool people take somebody with
few decisions for the team's average. What they cannot do is make something of nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from deccaf.data.costs import Class
from deccaf.data.history import History
from deccaf.errors import DataError

LEAST_CASES = 10
"""Labelled cases below which nothing is fitted."""
LEAST_OF_A_CLASS = 2
"""Labelled cases that at least two classes must have."""
LEAST_DECISIONS = 10
"""Decisions below which nothing is learned about people, where there are any at all."""
FEW_OF_A_CLASS = 30
"""Labelled cases of a class below which chances of it are said to be vague."""
ALWAYS = 10
"""Decisions from which on a person with one answer is said to always say the same."""
FEW_DECISIONS = 30
"""Decisions of a person below which they are said to be taken mostly for the team's average."""


@dataclass(frozen=True)
class Learnable:
    """Counts of what there is to learn from."""

    cases: dict[Class, int]
    """Labelled cases of each class."""
    unlabelled: int
    people: pd.DataFrame
    """By expert: `decisions`, how many of them `on` each truth, and `always`: the one thing they say."""
    contradictions: int
    """Times that a person decided a case again and said something else."""
    repetitions: int = 0
    """Times that a person decided a case again and said the same: copies of rows, perhaps."""

    @property
    def labelled(self) -> int:
        """Cases whose truth is known."""
        return sum(self.cases.values())

    @property
    def decisions(self) -> int:
        """All decisions."""
        return int(self.people["decisions"].sum())

    def refusal(self) -> str | None:
        """Why nothing can be learned, or None."""
        counts = ", ".join(f"{count} of class {name!r}" for name, count in self.cases.items())
        enough = [name for name, count in self.cases.items() if count >= LEAST_OF_A_CLASS]
        if len(enough) < 2:
            one = f"one class only, {enough[0]!r}, has" if len(enough) == 1 else "no class has"
            return (
                f"nothing can be learned: {one} {LEAST_OF_A_CLASS} labelled cases or more ({counts}, "
                f"{self.unlabelled} without a label); at least two classes need {LEAST_OF_A_CLASS}"
            )
        if self.labelled < LEAST_CASES:
            return (
                f"too little to learn from: {self.labelled} labelled cases ({counts}), at least "
                f"{LEAST_CASES} are needed"
            )
        if 0 < self.decisions < LEAST_DECISIONS:
            return (
                f"too little to learn from: {self.decisions} decisions, at least {LEAST_DECISIONS} are "
                "needed to learn how people decide"
            )
        return None

    def refuse(self) -> None:
        """Raise a `DataError` where nothing can be learned."""
        refusal = self.refusal()
        if refusal is not None:
            raise DataError(refusal)

    def notes(self) -> list[str]:
        """What can be learned only vaguely, then what cannot be learned, in sentences."""
        return [*self.vague(), *self.impossible()]

    def vague(self) -> list[str]:
        """What there is too little of to be known well."""
        notes, people = [], self.people
        few = {name: count for name, count in self.cases.items() if count < FEW_OF_A_CLASS}
        if few:
            shown = ", ".join(f"{count} of class {name!r}" for name, count in few.items())
            notes.append(
                f"few labelled cases: {shown}; below {FEW_OF_A_CLASS} the chances of a class are vague"
            )
        seldom = people[people["decisions"] < FEW_DECISIONS]
        if len(seldom):
            least = f"the least: {seldom.index[0]!r} with {seldom['decisions'].iloc[0]}"
            notes.append(
                f"{len(seldom)} of {len(people)} people have fewer than {FEW_DECISIONS} decisions ({least}) "
                "and are taken mostly for the team's average"
            )
        return notes

    def impossible(self) -> list[str]:
        """What the log says nothing about, and where it contradicts itself."""
        notes, people = [], self.people
        same = people[people["always"].notna() & (people["decisions"] >= ALWAYS)]
        if len(people) and people["always"].notna().all() and people["always"].nunique() == 1:
            only = people["always"].iloc[0]
            notes.append(
                f"all {self.decisions:,} decisions are {only!r}: how people tell cases apart cannot be "
                "learned"
            )
        elif len(same):
            each = (
                f"{name} ({row['decisions']} times {row['always']!r})" for name, row in same[:3].iterrows()
            )
            notes.append(
                f"{len(same)} of {len(people)} people always say the same: {', '.join(each)}; what would "
                "make them say something else cannot be learned"
            )
        if self.contradictions:
            notes.append(
                f"{self.contradictions:,} time(s) the same person decided a case again and said something "
                "else; every answer counts as a decision"
            )
        if self.repetitions:
            notes.append(
                f"{self.repetitions:,} row(s) of the decisions have the case, person and answer of an "
                "earlier one; each counts as a decision: take copies out"
            )
        return notes


def learnable(history: History) -> Learnable:
    """Count what there is to learn from."""
    classes, label = history.cases.classes, history.label
    counts = np.bincount(label[label >= 0], minlength=len(classes))
    log = pd.DataFrame(
        {
            "case": history.case,
            "expert": history.expert.to_numpy(),
            "decision": history.decision,
            "truth": label[history.case],
        }
    )
    again = _again(log)
    return Learnable(
        cases={name: int(count) for name, count in zip(classes, counts, strict=True)},
        unlabelled=int((label < 0).sum()),
        people=_people(log, classes),
        contradictions=int(again.sum()),
        repetitions=int((~again).sum()),
    )


def _people(log: pd.DataFrame, classes: tuple[Class, ...]) -> pd.DataFrame:
    each = log.groupby("expert")
    table = pd.DataFrame({"decisions": each.size()})
    for code, name in enumerate(classes):
        table[f"on {name}"] = (log["truth"] == code).groupby(log["expert"]).sum()
    first, same = each["decision"].first(), each["decision"].nunique() == 1
    said = [classes[int(code)] if one else None for code, one in zip(first, same, strict=True)]
    table["always"] = pd.Series(said, index=table.index, dtype=object)
    return table.sort_values("decisions", kind="stable")


def _again(log: pd.DataFrame) -> pd.Series:
    """For every further decision of a person on a case: whether it differs from the one before."""
    again = log.sort_values(["case", "expert"], kind="stable")
    same = (again["case"].diff() == 0) & (again["expert"] == again["expert"].shift())
    return again["decision"].diff()[same] != 0
