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
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.backtest import outcomes as o
from deccaf.backtest.agreement import Shared, agreement_of, several_of, shared
from deccaf.backtest.options import Options
from deccaf.backtest.outcomes import Outcome, Trace
from deccaf.backtest.policies import Models, decide, needs_of, priced, right_chances, taken
from deccaf.backtest.results import Backtest, Question, Tested, bounded, collected
from deccaf.backtest.split import (
    MANY,
    Chances,
    Part,
    Rooms,
    Split,
    batches_of,
    chances_of,
    one_each,
    rooms_of,
    split_of,
    usable,
)
from deccaf.backtest.verdict import HISTORY, OURS, SIMPLE
from deccaf.data.config import Config, LabelsTable
from deccaf.data.costs import MACHINE, Costs
from deccaf.data.history import History
from deccaf.data.makers import machines_of
from deccaf.evaluate.audit import audit
from deccaf.evaluate.hidden_truth import counted, possible_truths
from deccaf.policies import Beliefs, Decided

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
Step = Callable[[str], None]

HOURS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5)
"""Hours of the team that the curve shows, as shares of what it really worked, or of the roster."""
RATIOS = (0.5, 2**-0.5, 2**0.5, 2.0)
"""Factors on the ratio of costs, from half to double."""


def backtest(history: History, config: Config, options: Options, step: Step = lambda _: None) -> Backtest:
    """Split, learn, plan, and count what it would have cost; `step` hears what is being done."""
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
    desk = _Desk(history, config, options, found, share, batch, several_of(ready.whole))
    tested = []
    for number, mask in enumerate(ready.split.folds, 1):
        where = f"Split {number} of {len(ready.split.folds)}: "
        part = Part(history, config, desk.costs, history.log.experts, mask & ready.decided, ~mask)
        tested.append(desk.test(part, lambda text, where=where: step(where + text)))  # type: ignore[misc]
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


@dataclass(frozen=True, eq=False)
class _Desk:
    """What all splits share."""

    history: History
    config: Config
    options: Options
    chances: Chances | None
    """None where every outcome is known."""
    share: float
    batch: pd.Series | None
    """The batch of every case, where there are several."""
    several: Mask
    """Cases that several people decided."""

    @cached_property
    def costs(self) -> Costs:
        """What errors cost."""
        return self.config.costs.build()

    def notes(self) -> list[str]:
        """What the roster leaves out."""
        capacity, people = self.options.capacity, set(self.history.log.experts)
        if capacity is None:
            return []
        on = {name for name in capacity.makers if name != MACHINE}
        notes = []
        if on - people:
            notes.append(f"{len(on - people)} on the roster are not in the log and get nothing here")
        if people - on:
            notes.append(f"{len(people - on)} of the log are not on the roster and get nothing")
        return notes

    @cached_property
    def truths(self) -> tuple[Ints, ...]:
        """What the truth may be; more than one where nobody saw that of rejected cases."""
        return possible_truths(self.history, self.config.labels, self.options.seed)

    def test(self, part: Part, step: Step) -> tuple[Tested, ...]:
        """Learn, plan and count on one split, once for everything that the truth may be."""
        models = Models(part, needs_of(self.options.policies), step)
        return (
            self._known(part, models, step) if self.chances is None else self._estimated(part, models, step)
        )

    def _counted(self, part: Part) -> tuple[list[Part], Mask]:
        """The part with only those test cases whose costs are counted, by truth; and which these are."""
        seen = part.stands > 0
        test = part.test.copy()
        test[part.rows] = seen
        return [replace(part, test=test, label=label) for label in self.truths], seen

    def _known(self, part: Part, models: Models, step: Step) -> tuple[Tested, ...]:
        """Learn from one drawn decision per case; every outcome in the test part is known."""
        options, classes = self.options, len(self.costs.classes)
        said = o.known_table(part)
        eligible = np.hstack([np.ones((len(said), 1), bool), said >= 0])
        parts, seen = self._counted(part)
        mine = np.flatnonzero(seen)
        draws: list[dict[Question, Outcome]] = []
        plans, right = [], []
        first: dict[float, Ints] = {}
        people: Shared | None = None
        for draw in range(options.draws):
            rng = np.random.default_rng([options.seed, draw])
            beliefs = models.beliefs(_drawn(part, rng))
            people = people or shared(part, beliefs, self.several)
            step(f"planning {len(said):,} cases, draw {draw + 1} of {options.draws}")
            made = self._plans(part, beliefs, eligible, options.seed + draw, all_questions=draw == 0)
            made = {q: (_of(one, mine), rooms) for q, (one, rooms) in made.items()}
            draws.append({q: o.known(parts[0], said[mine], one, classes) for q, (one, _) in made.items()})
            right.append([right_chances(each, taken(beliefs, mine)) for each in parts])
            plans.append(made[Question(OURS)])
            first = first or _makers(made)
        outcomes = {q: o.averaged([one[q] for one in draws if q in one]) for q in draws[0]}
        outcomes[Question(HISTORY)] = o.known_history(parts[0], said[mine], classes)
        assert people is not None
        return tuple(
            Tested(each, outcomes, {}, None, tuple(plans), pd.concat(chances), first, people)
            for each, chances in zip(parts, zip(*right, strict=True), strict=True)
        )

    def _estimated(self, part: Part, models: Models, step: Step) -> tuple[Tested, ...]:
        """Learn from one decision per case; what others would have said in the test part is estimated."""
        assert self.chances is not None
        beliefs = models.beliefs(np.flatnonzero(part.train[part.position]))
        step(f"planning {len(part.rows):,} cases")
        made = self._plans(part, beliefs, self._present(part), self.options.seed)
        parts, seen = self._counted(part)
        mine = np.flatnonzero(seen)
        kept = {q: (_of(one, mine), rooms) for q, (one, rooms) in made.items()}
        found, people = [], shared(part, beliefs, self.several)
        for sub in parts:
            whole = replace(part, label=sub.label)
            log = o.log_of(whole, beliefs, self.chances)
            traces: dict[Question, Trace] = {
                q: o.taken(o.trace_of(q.policy, whole, beliefs, one, rooms, log.who), seen)
                for q, (one, rooms) in made.items()
            }
            log = o.taken(log, seen)
            past = {Question(HISTORY): o.history_of(log, part.review[seen], len(self.costs.classes))}
            right = right_chances(sub, taken(beliefs, mine))
            ours = (kept[Question(OURS)],)
            found.append(Tested(sub, past, traces, log, ours, right, _makers(kept), people))
        return tuple(found)

    def _present(self, part: Part) -> Mask | None:
        """(test cases, makers): who was there; nobody gets a case from a time when they were away."""
        assert self.chances is not None
        if self.chances.present is None:
            return None
        mine = part.decisions[np.argsort(part.position[part.decisions], kind="stable")]
        there = self.chances.present[mine]
        return np.hstack([np.ones((len(there), 1), bool), there])

    def _plans(
        self, part: Part, beliefs: Beliefs, eligible: Mask | None, seed: int, all_questions: bool = True
    ) -> dict[Question, tuple[Decided, Rooms]]:
        """Every policy's plan; beside it plans for other hours and for other ratios of costs."""
        options = self.options

        def rooms(share: float) -> Rooms:
            return rooms_of(part, share, eligible, options.capacity, self.batch)

        usual = rooms(self.share)
        made = {Question(name): (decide(name, beliefs, usual, seed), usual) for name in options.policies}
        if not all_questions:
            return made
        for hours in HOURS:
            here = rooms(hours)
            same = np.isclose(hours, self.share)
            plan = made[Question(OURS)][0] if same else decide(OURS, beliefs, here, seed)
            made[Question(OURS, hours=hours)] = (plan, here)
        for ratio in RATIOS if len(self.costs.classes) == 2 else ():
            other = priced(beliefs, at_ratio(beliefs.costs, ratio))
            for name in (*(name for name in SIMPLE if name in options.policies), OURS):
                made[Question(name, ratio=ratio)] = (decide(name, other, usual, seed), usual)
        return made


def _of(found: Decided, rows: Ints) -> Decided:
    """The same for some of the cases."""
    return Decided(found.maker[rows], found.machine_says[rows])


def _makers(made: dict[Question, tuple[Decided, Rooms]]) -> dict[float, Ints]:
    """Who decides each case, by ratio of costs."""
    return {q.ratio: one.maker for q, (one, _) in made.items() if q.policy == OURS and q.hours is None}


def at_ratio(table: NDArray[np.float64], ratio: float) -> NDArray[np.float64]:
    """Two-class costs with the cost of a false positive times `ratio`."""
    other = np.array(table)
    other[:, 0, 1] *= ratio
    return other


def _drawn(part: Part, rng: np.random.Generator) -> Ints:
    """One decision of each training case, drawn at random."""
    mine = rng.permutation(np.flatnonzero(part.train[part.position]))
    return np.sort(mine[np.unique(part.position[mine], return_index=True)[1]])
