"""What all splits of a backtest share, and the pieces that it is done by: a draw of a split each.

A piece learns, plans and counts; it is done here or by a worker of a cluster (`deccaf.cluster.each`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.backtest import outcomes as o
from deccaf.backtest.agreement import Shared, shared
from deccaf.backtest.kept import Kept
from deccaf.backtest.options import Options
from deccaf.backtest.outcomes import Log, Outcome, Trace
from deccaf.backtest.policies import Models, decide, needs_of, priced, right_chances, taken
from deccaf.backtest.results import Question, Tested
from deccaf.backtest.split import Chances, Part, Rooms, rooms_of
from deccaf.backtest.verdict import HISTORY, OURS, SIMPLE
from deccaf.cluster import each
from deccaf.data.config import Config
from deccaf.data.costs import MACHINE, Costs
from deccaf.data.history import History
from deccaf.data.makers import machines_of
from deccaf.evaluate.hidden_truth import possible_truths
from deccaf.policies import Beliefs, Decided

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
Step = Callable[[str], None]

HOURS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5)
"""Hours of the team that the curve shows, as shares of what it really worked, or of the roster."""
RATIOS = (0.5, 2**-0.5, 2**0.5, 2.0)
"""Factors on the ratio of costs, from half to double."""


@dataclass(frozen=True, eq=False)
class Piece:
    """One draw of one split."""

    fold: int
    draw: int = 0
    classifiers: Mapping[str, object] | None = None
    """Those of the split's first draw: draws differ in decisions, not in cases."""


@dataclass(frozen=True, eq=False)
class Found:
    """What a piece found; without the history, which whoever asks for it has."""

    outcomes: Mapping[Question, Outcome]
    """Where they are known."""
    traces: tuple[Mapping[Question, Trace], ...]
    """Where they have to be estimated; this, the log and the chances by what the truth may be."""
    logs: tuple[Log | None, ...]
    history: tuple[Outcome, ...]
    """What really happened."""
    plan: tuple[Decided, Rooms]
    right: tuple[pd.DataFrame, ...]
    makers: Mapping[float, Ints]
    shared: Shared
    classifiers: Mapping[str, object]


@dataclass(frozen=True, eq=False)
class Desk:
    """What all splits share."""

    history: History
    config: Config
    options: Options
    folds: tuple[Mask, ...]
    """The test cases of each split."""
    decided: Mask
    """Cases that somebody decided."""
    chances: Chances | None
    """None where every outcome is known."""
    share: float
    batch: pd.Series | None
    """The batch of every case, where there are several."""
    several: Mask
    """Cases that several people decided."""
    kept: Kept | None = None
    """Where beliefs are kept from run to run."""

    @cached_property
    def costs(self) -> Costs:
        """What errors cost."""
        return self.config.costs.build()

    def notes(self) -> list[str]:
        """What the roster leaves out, and who is no person."""
        capacity, people = self.options.capacity, set(self.history.log.experts)
        machines = sorted(people & set(machines_of(self.config.makers)))
        notes = []
        if machines:
            notes.append(f"machines that count among the people here: {', '.join(machines)}")
        if capacity is None:
            return notes
        on = {name for name in capacity.makers if name != MACHINE}
        if on - people:
            notes.append(f"{len(on - people)} on the roster are not in the log and get nothing here")
        if people - on:
            notes.append(f"{len(people - on)} of the log are not on the roster and get nothing")
        return notes

    @cached_property
    def truths(self) -> tuple[Ints, ...]:
        """What the truth may be; more than one where nobody saw that of rejected cases."""
        return possible_truths(self.history, self.config.labels, self.options.seed)

    def part(self, fold: int) -> Part:
        """One split of the history."""
        mask, experts = self.folds[fold], self.history.log.experts
        return Part(self.history, self.config, self.costs, experts, mask & self.decided, ~mask)

    def test(self, step: Step) -> list[tuple[Tested, ...]]:
        """Learn, plan and count on every split, once for everything that the truth may be."""
        folds, draws = range(len(self.folds)), 1 if self.chances is not None else self.options.draws
        first = [*each(_found, [Piece(fold) for fold in folds], self, tell=step)]
        further = [Piece(f, k, first[f].classifiers) for f in folds for k in range(1, draws)]
        rest = each(_found, further, self, tell=step)
        return [self._tested(fold, [first[fold], *(next(rest) for _ in range(1, draws))]) for fold in folds]

    def find(self, piece: Piece, step: Step) -> Found:
        """Learn, plan and count in one piece."""
        where, draws = f"Split {piece.fold + 1} of {len(self.folds)}: ", self.options.draws
        which = f", draw {piece.draw + 1} of {draws}" if self.chances is None and draws > 1 else ""

        def tell(text: str) -> None:
            step(where + text + which)

        part = self.part(piece.fold)
        models = Models(part, needs_of(self.options.policies), tell, dict(piece.classifiers or {}))
        if self.chances is None:
            drawn = _drawn(part, np.random.default_rng([self.options.seed, piece.draw]))
        else:
            drawn = np.flatnonzero(part.train[part.position])
        beliefs = self._beliefs(piece, part, models, drawn)
        tell(f"planning {len(part.rows):,} cases")
        find = self._known if self.chances is None else self._estimated
        return find(piece, part, beliefs, models.classifiers)

    def _beliefs(self, piece: Piece, part: Part, models: Models, drawn: Ints) -> Beliefs:
        """What is kept from a run before, or learned now."""
        if self.kept is None:
            return models.beliefs(drawn)
        # the first draw's classifiers are needed as long as another draw has to learn
        wanted = range(self.options.draws if self.chances is None else 1) if piece.draw == 0 else [piece.draw]
        if all(self.kept.has(piece.fold, draw) for draw in wanted):
            return self.kept.read(piece.fold, piece.draw, part)
        beliefs = models.beliefs(drawn)
        self.kept.write(piece.fold, piece.draw, beliefs)
        return beliefs

    def _tested(self, fold: int, draws: list[Found]) -> tuple[Tested, ...]:
        """The draws of one split together, by what the truth may be."""
        first = draws[0]
        known = {
            q: o.averaged([one.outcomes[q] for one in draws if q in one.outcomes]) for q in first.outcomes
        }
        return tuple(
            Tested(
                part,
                {**known, Question(HISTORY): first.history[k]},
                first.traces[k],
                first.logs[k],
                tuple(one.plan for one in draws),
                pd.concat([one.right[k] for one in draws]) if len(draws) > 1 else first.right[k],
                first.makers,
                first.shared,
            )
            for k, part in enumerate(self._counted(self.part(fold))[0])
        )

    def _counted(self, part: Part) -> tuple[list[Part], Mask]:
        """The part with only those test cases whose costs are counted, by truth; and which these are."""
        seen = part.stands > 0
        test = part.test.copy()
        test[part.rows] = seen
        return [replace(part, test=test, label=label) for label in self.truths], seen

    def _known(self, piece: Piece, part: Part, beliefs: Beliefs, classifiers: Mapping[str, object]) -> Found:
        """One drawn decision per case was learned from; every outcome in the test part is known."""
        options, classes = self.options, len(self.costs.classes)
        said = o.known_table(part)
        eligible = np.hstack([np.ones((len(said), 1), bool), said >= 0])
        parts, seen = self._counted(part)
        mine = np.flatnonzero(seen)
        made = self._plans(part, beliefs, eligible, options.seed + piece.draw, all_questions=piece.draw == 0)
        made = {q: (_of(one, mine), rooms) for q, (one, rooms) in made.items()}
        past = o.known_history(parts[0], said[mine], classes)
        nothing: Mapping[Question, Trace] = {}
        return Found(
            {q: o.known(parts[0], said[mine], one, classes) for q, (one, _) in made.items()},
            (nothing,) * len(parts),
            (None,) * len(parts),
            (past,) * len(parts),
            made[Question(OURS)],
            tuple(right_chances(one, taken(beliefs, mine)) for one in parts),
            _makers(made),
            shared(part, beliefs, self.several),
            classifiers,
        )

    def _estimated(
        self, piece: Piece, part: Part, beliefs: Beliefs, classifiers: Mapping[str, object]
    ) -> Found:
        """One decision per case was learned from; what others would have said of a test case is estimated."""
        del piece
        assert self.chances is not None
        made = self._plans(part, beliefs, self._present(part), self.options.seed)
        parts, seen = self._counted(part)
        mine = np.flatnonzero(seen)
        kept = {q: (_of(one, mine), rooms) for q, (one, rooms) in made.items()}
        traces: list[Mapping[Question, Trace]] = []
        logs: list[Log] = []
        for sub in parts:
            whole = replace(part, label=sub.label)
            log = o.log_of(whole, beliefs, self.chances)
            traces.append(
                {
                    q: o.taken(o.trace_of(q.policy, whole, beliefs, one, rooms, log.who), seen)
                    for q, (one, rooms) in made.items()
                }
            )
            logs.append(o.taken(log, seen))
        classes = len(self.costs.classes)
        return Found(
            {},
            tuple(traces),
            tuple(logs),
            tuple(o.history_of(log, part.review[seen], classes) for log in logs),
            kept[Question(OURS)],
            tuple(right_chances(sub, taken(beliefs, mine)) for sub in parts),
            _makers(kept),
            shared(part, beliefs, self.several),
            classifiers,
        )

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


def _found(piece: Piece, desk: Desk, *, tell: Step) -> Found:
    """What `each` is asked for."""
    return desk.find(piece, tell)
