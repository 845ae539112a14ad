"""What to learn from where labels are selective: a let-through sample, or as far as leniency reaches.

- *Let through.* Some rejects were accepted by lot, so that their truth was seen. When costs are counted, each
  stands for 1 / chance of the rejects and the others are left out. Models learn from all: rejects that nobody
  saw count once for every truth, by a chance that the let-through ones (each weighted by 1 / chance) teach.
  To learn from the let-through ones alone, each for 20, is right in the mean but so noisy that plans were no
  better than with labels of accepted cases only (`benchmarks/edges.py selective`).
- *Leniency.* Without such a sample, reviewers who reject less show the truth of cases like those that others
  reject. Among comparable cases (strata of the chance of a rejection) that came to reviewers by chance, the
  share of a truth is at least what any reviewer's accepted cases show of it, and at most that and all of
  their rejects (Manski 1990, with the reviewer as instrument; Lakkaraju et al. 2017 contract rejects alike).
  In between nothing is identified: models learn from the middle, reports give both ends.

Either way the shares of the truths among comparable cases are the same for every reviewer: what the accepted
cases of one do not hold of a truth, their rejects must.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.data.config import LabelsTable
from deccaf.data.history import History
from deccaf.data.log_odds import deviations
from deccaf.evaluate.propensity import design

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

STRATA = 5
"""Strata of comparable cases, at most..."""
PER_CELL = 100
"""...and cases that a reviewer should have in each on average."""
FEWEST = 25
"""Cases of a reviewer in a stratum below which they bound nothing..."""
SURE = deviations(0.99)
"""...and standard errors that are allowed for, as the best of several bounds is taken."""
FEW_LET_THROUGH = 30
"""Rejects let through below which the chances learned from them are said to be vague."""


@dataclass(frozen=True, eq=False)
class Hidden:
    """A history in which every case counts for what it stands for."""

    history: History
    """With guesses of the truths that nobody saw, and where rejects were let through with what each `stands`
    for."""
    notes: tuple[str, ...] = ()
    ends: tuple[Array, Array] | None = None
    """Guesses with the rejecting truths as rare and as frequent as leniency allows; None: all is told."""


def counted(history: History, labels: LabelsTable) -> Hidden:
    """Weigh and guess what labels hide; without `[labels] selective` the history is as it was."""
    names = labels.classes_of(history.cases.classes)
    if not names or not len(history.case):
        return Hidden(history)
    bad = np.isin(
        np.arange(len(history.cases.classes)), [history.cases.classes.index(name) for name in names]
    )
    rejected = np.zeros(len(history.cases), bool)
    rejected[history.case[bad[history.decision]]] = True
    unseen = rejected & (history.label < 0)
    if not unseen.any() or not (history.label >= 0).any():
        return Hidden(history)
    cells = _Cells.of(history, rejected, unseen)
    chance = history.cases.let_through
    drawn = np.zeros(len(rejected), bool) if chance is None else chance.notna().to_numpy() & rejected
    drawn &= history.label >= 0
    return _let_through(history, rejected, drawn, cells) if drawn.any() else _lenient(history, bad, cells)


def possible_truths(history: History, labels: LabelsTable, seed: int) -> tuple[Ints, ...]:
    """Labels of all cases: with unseen ones drawn from the guesses, then at least and at most rejecting.

    One set of labels where nothing is open; an unseen truth that counts nothing is then the first class.
    """
    if history.guess is None or history.stands is not None:
        return (np.maximum(history.label, 0),)
    ends = counted(history, labels).ends
    names, draw = history.cases.classes, np.random.default_rng(seed).random((len(history.label), 1))
    bad_first = np.argsort([name not in labels.classes_of(names) for name in names], kind="stable")
    found = []
    for table in (
        history.guess,
        *(ends or ()),
    ):  # the same draws for all, so that rejecting truths are nested
        place = (np.nan_to_num(table[:, bad_first]).cumsum(axis=1) < draw).sum(axis=1)
        drawn = bad_first[np.minimum(place, len(names) - 1)]
        found.append(np.where(history.label < 0, drawn, history.label))
    return tuple(found)


def _let_through(history: History, rejected: Mask, drawn: Mask, cells: _Cells) -> Hidden:
    """Guess from the rejects that were let through; count costs from them alone."""
    chance = history.cases.let_through
    assert chance is not None
    stands = np.where(rejected, 0.0, 1.0)
    stands[drawn] = 1.0 / chance.to_numpy()[drawn]
    by_luck = rejected & ~drawn & (history.label >= 0)
    total, count = float(stands[drawn].sum()), int(drawn.sum())
    notes = [
        f"{count:,} rejected cases were let through by lot; each stands for 1 / chance, together for "
        f"{total:,.0f} of the {int(rejected.sum()):,} rejected cases"
    ]
    if count < FEW_LET_THROUGH:
        notes.append(
            f"fewer than {FEW_LET_THROUGH} were let through: what is learned of rejected cases is vague; a "
            "larger share, or more time, makes it sure"
        )
    if by_luck.any():
        notes.append(
            f"{int(by_luck.sum()):,} rejected cases have a label but no chance in the column of cases let "
            "through; they are no fair sample of the rejected, and count for themselves only"
        )
    if abs(total - rejected.sum()) > 4 * np.sqrt((stands[drawn] ** 2).sum()):
        notes.append("that is too far off to be luck: the chances on record cannot be right")
    shape = _fitted(cells.scores, history.label, drawn, stands, cells.as_seen().mean(axis=0))
    guess = np.where(cells.unseen[:, None], cells.guesses(cells.completed_by(shape), shape), np.nan)
    return Hidden(replace(history, guess=guess, stands=stands), tuple(notes))


def _lenient(history: History, bad: Mask, cells: _Cells) -> Hidden:
    """Guess the truths that nobody saw from the middle of what leniency leaves open."""
    low, high = cells.bounds()
    # reviewers are taken to be no worse than chance: rejecting truths are no rarer among their rejects
    floor = np.minimum(np.where(bad, np.maximum(low, cells.as_seen()), low), high)
    middle = (floor + high) / 2
    middle /= middle.sum(axis=1, keepdims=True)
    seen, even = history.label >= 0, np.ones(len(history.label))
    shape = _fitted(cells.scores, history.label, seen, even, cells.as_seen().mean(axis=0))
    guess = np.where(cells.unseen[:, None], cells.guesses(middle, shape), np.nan)
    ends = [cells.guesses(cells.completed(part, bad), shape) for part in (low, high)]
    size = np.bincount(cells.stratum, minlength=cells.strata) / len(even)
    least, most = (float(size @ part[:, bad].sum(axis=1).clip(0, 1)) for part in (low, high))
    named = ", ".join(repr(name) for name, one in zip(history.cases.classes, bad, strict=True) if one)
    note = (
        f"nobody saw the truth of {int(cells.unseen.sum()):,} rejected cases, and none was let through by "
        f"lot: reviewers who differ in leniency leave open whether {least:.1%} or {most:.1%} of the cases "
        f"are {named}. Models learn from the middle; a share of the rejects let through by lot would tell"
    )
    return Hidden(replace(history, guess=guess), (note,), (ends[0], ends[1]))


def _fitted(scores: Array, label: Ints, rows: Mask, weight: Array, prior: Array) -> Array:
    """(cases, K): chances of the truths by a small logistic model of some rows, a little of `prior` added."""
    from sklearn.linear_model import LogisticRegression

    out, found = np.tile(prior, (len(label), 1)), np.unique(label[rows])
    share = weight[rows] / weight[rows].mean()
    if len(found) > 1:
        model = LogisticRegression(C=1.0).fit(scores[rows], label[rows], sample_weight=share)
        out[:] = 0.0
        out[:, model.classes_] = model.predict_proba(scores)
    count = float(rows.sum())
    return np.asarray((count * out + prior) / (count + 1.0))


@dataclass(frozen=True, eq=False)
class _Cells:
    """Cases by stratum of comparable ones and by reviewer; -1: nobody."""

    scores: Array
    """(cases, 2): log-odds of a rejection, and of the truths among what is seen; of unit variance."""
    stratum: Ints
    reviewer: Ints
    unseen: Mask
    label: Ints
    classes: int
    strata: int

    @classmethod
    def of(cls, history: History, rejected: Mask, unseen: Mask) -> _Cells:
        """Strata are parts of the chance of a rejection, which is known without any label."""
        matrix, label = design(history.features), history.label
        reviewer = np.full(len(unseen), -1, np.int64)
        reviewer[history.case] = pd.factorize(history.expert)[0]
        seen = (label >= 0) & ~rejected
        columns = [
            _score(matrix, target, rows)
            for target, rows in ((rejected.astype(np.int64), np.ones(len(label), bool)), (label, seen))
        ]
        scores = np.hstack(columns)
        first, people = scores[:, 0], int(reviewer.max(initial=0)) + 1
        strata = int(np.clip(len(label) // (PER_CELL * people), 1, STRATA))
        stratum = np.searchsorted(np.quantile(first, np.linspace(0, 1, strata + 1)[1:-1]), first)
        classes = len(history.cases.classes)
        return cls(scores, stratum.astype(np.int64), reviewer, unseen, label, classes, strata)

    def _means(self, reviewer: int | None = None) -> tuple[Array, Array, Array]:
        """By stratum: cases, the share seen with each truth, and the share unseen."""
        mine = (self.label >= 0) | self.unseen
        if reviewer is not None:
            mine &= self.reviewer == reviewer
        count = np.bincount(self.stratum[mine], minlength=self.strata).astype(np.float64)
        seen = np.zeros((self.strata, self.classes))
        known = mine & (self.label >= 0)
        np.add.at(seen, (self.stratum[known], self.label[known]), 1.0)
        safe = np.maximum(count, 1.0)
        lost = np.bincount(self.stratum[mine & self.unseen], minlength=self.strata) / safe
        return count, seen / safe[:, None], lost

    @property
    def _reviewers(self) -> range:
        return range(int(self.reviewer.max(initial=-1)) + 1)

    def as_seen(self) -> Array:
        """(strata, K): the shares among what is seen."""
        _, seen, lost = self._means()
        return np.asarray(seen / np.maximum(1.0 - lost, 1e-9)[:, None])

    def bounds(self) -> tuple[Array, Array]:
        """(strata, K): the least and the greatest share of each truth that all reviewers agree with."""
        _, seen, lost = self._means()
        low, high = seen, np.minimum(seen + lost[:, None], 1.0)
        for j in self._reviewers:
            count, mine, gone = self._means(j)
            enough = (count >= FEWEST)[:, None]
            top = np.minimum(mine + gone[:, None], 1.0)
            reach = SURE / np.sqrt(np.maximum(count, 1.0))[:, None]
            low = np.where(enough, np.maximum(low, mine - reach * np.sqrt(mine * (1 - mine))), low)
            high = np.where(enough, np.minimum(high, top + reach * np.sqrt(top * (1 - top))), high)
        return low, np.maximum(high, low)

    def completed(self, share: Array, bad: Mask) -> Array:
        """Shares that sum to 1: the rejecting truths as they are, the others as what is left allows."""
        out = share.copy()
        out[:, bad] *= np.minimum(1.0, 1.0 / np.maximum(out[:, bad].sum(axis=1, keepdims=True), 1e-12))
        left = 1.0 - out[:, bad].sum(axis=1, keepdims=True)
        rest = self.as_seen()[:, ~bad] + 1e-9
        out[:, ~bad] = left * rest / rest.sum(axis=1, keepdims=True)
        return out

    def completed_by(self, shape: Array) -> Array:
        """Shares of the truths, if those unseen have these chances."""
        _, seen, lost = self._means()
        return np.asarray(seen + lost[:, None] * self._mean_of(shape, self.unseen))

    def guesses(self, share: Array, shape: Array) -> Array:
        """(cases, K): chances of an unseen case's truths, if the shares in its stratum are these.

        Within a stratum and a reviewer they follow `shape`. Few rejects of a reviewer are taken for
        everybody's.
        """
        _, seen, lost = self._means()
        common = _rest(share, seen, lost)
        wanted = common[self.stratum]
        for j in self._reviewers:
            count, mine, gone = self._means(j)
            trust = (count * gone / (count * gone + FEWEST))[:, None]
            own = trust * _rest(share, mine, gone) + (1.0 - trust) * common
            here = self.reviewer == j
            wanted[here] = own[self.stratum[here]]
        scaled = shape * wanted / np.maximum(self._mean_of(shape, self.unseen)[self.stratum], 1e-9)
        return np.asarray(scaled / scaled.sum(axis=1, keepdims=True))

    def _mean_of(self, values: Array, rows: Mask) -> Array:
        """(strata, K): means over some of the rows."""
        count = np.maximum(np.bincount(self.stratum[rows], minlength=self.strata), 1)
        sums = [np.bincount(self.stratum[rows], column[rows], minlength=self.strata) for column in values.T]
        return np.asarray(np.column_stack(sums) / count[:, None])


def _score(matrix: Array, target: Ints, rows: Mask) -> Array:
    """(cases, 1 or K): log-odds of a target, learned on some rows; of unit variance."""
    if not matrix.shape[1] or len(np.unique(target[rows])) < 2:
        return np.zeros((len(target), 1))
    from sklearn.linear_model import LogisticRegression

    found = LogisticRegression(C=0.1).fit(matrix[rows], target[rows]).decision_function(matrix)
    found = found.reshape(len(target), -1)
    return np.asarray((found - found.mean(axis=0)) / np.maximum(found.std(axis=0), 1e-9))


def _rest(share: Array, seen: Array, lost: Array) -> Array:
    """(strata, K): what is left of the shares for those unseen, as chances."""
    left = np.clip(share - seen, 1e-6, None) / np.maximum(lost, 1e-6)[:, None]
    return np.asarray(left / left.sum(axis=1, keepdims=True))
