"""Backtest: what plans would have cost on a user's own history, against what one would do otherwise.

The cases are split (later time, or whole groups); models learn from one part and plan the other.

- *Known outcomes.* Where several experts decided most cases, models learn from one drawn decision per case,
  and a test case may go to the machine or to anyone who really decided it: every outcome is known.
- *Estimated.* Where one expert decided each case, the costs are doubly-robust estimates from the log (see
  `deccaf.evaluate.off_policy`), with propensities given, or estimated among those present.

Everybody's room is a share of what they really decided in the test part, or that of a roster. Beside the plan
itself, plans for more and fewer hours of the team and for other ratios of costs are made from the same
models.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deccaf.backtest.agreement import agreement_of, several_of
from deccaf.backtest.desk import Desk
from deccaf.backtest.kept import Kept
from deccaf.backtest.options import Options
from deccaf.backtest.policies import needs_of
from deccaf.backtest.results import Backtest, bounded, collected
from deccaf.backtest.split import MANY, Split, batches_of, chances_of, one_each, split_of, usable
from deccaf.data.config import Config, LabelsTable
from deccaf.data.history import History
from deccaf.data.makers import machines_of
from deccaf.evaluate.audit import audit
from deccaf.evaluate.hidden_truth import counted

Mask = NDArray[np.bool_]
Step = Callable[[str], None]


def backtest(
    history: History,
    config: Config,
    options: Options,
    step: Step = lambda _: None,
    scratch: str | Path | None = None,
) -> Backtest:
    """Split, learn, plan, and count what it would have cost; `step` hears what is being done.

    With `scratch`, a folder, what the models of each split and draw said stays there, and the next run of the
    same does not learn it again. Splits and draws are spread over the workers in force
    (`deccaf.cluster.workers_of`), who see that folder.
    """
    config = config.model_copy(update={"model": config.model.model_copy(update={"seed": options.seed})})
    looked = audit(history, config.columns, config.labels)
    ready = _ready(looked.history, options)
    history, found = ready.history, None
    notes = [*config.notes(), *looked.notes, *ready.notes]
    batch = batches_of(history.cases, options.batch, options.capacity)
    if not ready.known:
        step("Who got which case")
        found, more = chances_of(history, options.seed)
        notes += more
    share = _share(history, ready.split.folds, ready.decided, options)
    kept = None if scratch is None else Kept.of(scratch, history, ready.split.folds, config, options)
    several = several_of(ready.whole)
    desk = Desk(
        history, config, options, ready.split.folds, ready.decided, found, share, batch, several, kept
    )
    tested = desk.test(step)
    step("Intervals and bounds")
    machines = tuple(machines_of(config.makers))
    agreed = agreement_of(ready.whole, [one[0].shared for one in tested], desk.costs, machines)
    each = [
        collected(
            one, history, ready.split, options, share, (*notes, *desk.notes()), config.costs.unit, agreed
        )
        for one in zip(*tested, strict=True)
    ]
    return each[0] if len(each) == 1 else bounded(*each)


def steps_of(history: History, options: Options, labels: LabelsTable = LabelsTable()) -> int:  # noqa: B008
    """How many steps `backtest` will tell of."""
    ready = _ready(counted(history, labels).history, options)
    each = len(needs_of(options.policies)) + 1
    return len(ready.split.folds) * each * (options.draws if ready.known else 1) + 1 + (not ready.known)


@dataclass(frozen=True, eq=False)
class _Ready:
    """A history that can be tested, and how."""

    history: History
    decided: Mask
    """Cases that somebody decided."""
    known: bool
    """Whether several people decided most cases."""
    split: Split
    notes: tuple[str, ...]
    whole: History
    """The same with all decisions on every case."""


def _ready(history: History, options: Options) -> _Ready:
    history, notes = usable(history)
    decided = np.bincount(history.case, minlength=len(history.cases)) > 0
    known, whole = bool(len(history.log) >= MANY * decided.sum()), history
    if not known:
        history, dropped = one_each(history, options.seed)
        if dropped:
            notes.append(f"{dropped:,} further decisions on cases that had one already were left out")
    split = split_of(history.cases, options.split, options.folds, options.test_share, options.seed)
    return _Ready(history, decided, known, split, tuple(notes), whole)


def _share(history: History, folds: tuple[Mask, ...], decided: Mask, options: Options) -> float:
    """The share of everybody's observed load, or of the roster, that is planned with."""
    if options.capacity is not None:
        return 1.0
    if options.capacity_share is not None:
        return options.capacity_share
    cases = sum(int((mask & decided).sum()) for mask in folds)
    return 0.5 * cases / max(sum(int(mask[history.case].sum()) for mask in folds), 1)
