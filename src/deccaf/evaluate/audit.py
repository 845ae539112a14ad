"""A look at a history before anybody learns from it: leaks, missing labels, values that stand for none.

`check`, `fit`, `backtest` and the service go through `audit`, so that all of them say the same and learn from
the same columns.
"""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass
from typing import Any

from deccaf.data.config import LabelsTable
from deccaf.data.history import History
from deccaf.data.learnable import Learnable, learnable
from deccaf.data.schema import Columns
from deccaf.errors import DeccafWarning
from deccaf.evaluate.hidden_truth import Hidden, counted
from deccaf.evaluate.leaks import Leaks, find_leaks
from deccaf.evaluate.selective import LabelsByDecision, missing_labels_by_decision
from deccaf.evaluate.sentinels import Sentinel, find_sentinels


@dataclass(frozen=True, eq=False)
class Audit:
    """What was found."""

    history: History
    """Without the columns that are certainly leaks, and with what labels hide weighed or guessed."""
    leaks: Leaks
    learnable: Learnable
    labels: LabelsByDecision
    hidden: Hidden
    """What is learned where labels are selective."""
    sentinels: tuple[Sentinel, ...]
    """Values that seem to stand for "missing"."""
    faults: tuple[str, ...]
    """Leaks, selective labels, values that stand for "missing", and what the log cannot tell: what makes
    results wrong."""
    notes: tuple[str, ...]
    """The faults, and what can be learned only vaguely."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for programs."""
        people = self.learnable.people.rename_axis("expert").reset_index()
        return {
            "leaks": [asdict(leak) for leak in self.leaks.found],
            "alone": [asdict(one) for one in self.leaks.alone],
            "sentinels": [asdict(one) for one in self.sentinels],
            "missing_labels": [asdict(part) for part in self.labels.shares],
            "learnable": {
                "cases": {str(name): count for name, count in self.learnable.cases.items()},
                "unlabelled": self.learnable.unlabelled,
                "contradictions": self.learnable.contradictions,
                "repetitions": self.learnable.repetitions,
                "refusal": self.learnable.refusal(),
                "people": people.astype(object).where(people.notna(), None).to_dict("records"),
            },
        }

    def warn(self) -> None:
        """Say the faults as warnings, for those who call the library."""
        for fault in self.faults:
            warnings.warn(fault, DeccafWarning, stacklevel=3)


def audit(history: History, columns: Columns, labels: LabelsTable = LabelsTable()) -> Audit:  # noqa: B008 frozen
    """Look at a history; nothing is refused here."""
    counts = learnable(history)
    leaks, missing = find_leaks(history), missing_labels_by_decision(history)
    kept = columns.features or ()
    hidden = counted(history.without([name for name in leaks.certain if name not in kept]), labels)
    said = [*leaks.notes(kept), *missing.notes(labels, history.cases.classes), *hidden.notes]
    sentinels = find_sentinels(history)
    said += [*(one.said() for one in sentinels), *counts.impossible()]
    return Audit(
        hidden.history,
        leaks,
        counts,
        missing,
        hidden,
        sentinels,
        tuple(said),
        (*said, *counts.vague()),
    )
