"""How several opinions on one case become one decision, and what that is expected to cost.

Opinions are taken to be independent given the truth and the features of the case: two reviewers may both find
a case hard because of what can be seen in it, but nothing unseen misleads them together. Where that does not
hold, a second opinion is worth less than is computed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deccaf.assign.exact.scan import Floats, Ints
from deccaf.data.costs import machine_losses
from deccaf.errors import ConfigError, DataError

Rule = Literal["majority", "first positive", "cost-optimal"]

CHUNK = 1 << 21  # numbers in one table of votes


@dataclass(frozen=True, eq=False)
class Opinions:
    """What each maker says on each case, and the rule that joins several of them.

    - `majority`: most votes win; a tie goes to the tied class that is expected to cost least.
    - `first positive`: one positive vote is enough (with more classes, the highest class voted for).
    - `cost-optimal`: the votes are weighed by the makers' own error rates; the cheapest decision wins.

    `p[i, y]` is P(truth y), `q[i, j, y, m]` the chance that maker j says m when the truth is y, `costs` as
    `Costs.array` gives them. Build it with `of`, which adds the machine as one more maker.
    """

    p: Floats
    q: Floats
    costs: Floats
    rule: Rule = "cost-optimal"
    review_cost: Floats | None = None

    @classmethod
    def of(
        cls,
        p: ArrayLike,
        q: ArrayLike,
        costs: Floats,
        rule: Rule = "cost-optimal",
        review_cost: ArrayLike = 0.0,
    ) -> Opinions:
        """The machine first, which says what costs least given `p`, then the experts of `q`."""
        p, experts = np.asarray(p, np.float64), np.asarray(q, np.float64)
        if rule not in get_args(Rule):
            raise ConfigError(f"rule: expected one of {', '.join(get_args(Rule))}, got {rule!r}")
        if experts.ndim != 4 or experts.shape[0] != len(p) or experts.shape[2:] != (p.shape[1],) * 2:
            raise DataError(f"q: expected cases x experts x truth x decision, got shape {experts.shape}")
        says = np.eye(p.shape[1])[machine_losses(p, costs).argmin(axis=1)]
        machine = np.broadcast_to(says[:, None, None, :], (len(p), 1, p.shape[1], p.shape[1]))
        paid = np.asarray(review_cost, np.float64)
        paid = np.broadcast_to(
            paid, (*paid.shape[:-1], experts.shape[1]) if paid.ndim > 1 else experts.shape[1]
        )
        free = np.zeros((*paid.shape[:-1], 1))
        every = np.concatenate([free, paid], axis=-1)
        return cls(p, np.concatenate([machine, experts], axis=1), costs, rule, every)

    @classmethod
    def concat(cls, parts: Sequence[Opinions]) -> Opinions:
        """Those of several chunks of cases, by the same makers."""
        costs = parts[0].costs if len(parts[0].costs) == 1 < len(parts[0].p) else None
        if costs is None:
            costs = np.concatenate([np.broadcast_to(o.costs, (len(o.p), *o.costs.shape[1:])) for o in parts])
        p, q = (np.concatenate([getattr(o, name) for o in parts]) for name in ("p", "q"))
        paid = parts[0].review_cost
        if paid is not None and paid.ndim == 2:
            paid = np.concatenate([np.asarray(o.review_cost) for o in parts])
        return replace(parts[0], p=p, q=q, costs=costs, review_cost=paid)

    def take(self, rows: Ints) -> Opinions:
        """Some of the cases."""
        costs = self.costs if len(self.costs) == 1 else self.costs[rows]
        paid = self.review_cost
        paid = paid if paid is None or paid.ndim == 1 else paid[rows]
        return replace(self, p=self.p[rows], q=self.q[rows], costs=costs, review_cost=paid)

    def loss(self, case: Ints, members: NDArray[np.int32]) -> Floats:
        """Expected cost of giving each case to its members (-1: nobody), their time included."""
        return self._sums(case, members, "loss") + self._effort(case, members)

    def wrong(self, case: Ints, members: NDArray[np.int32], measure: Literal["fpr", "fnr"]) -> Floats:
        """The chance of a false positive (truth 0, decision not) or of a false negative (the reverse)."""
        return self._sums(case, members, measure)

    def positives(self, measure: Literal["fpr", "fnr"]) -> Floats:
        """The chance that an error of this kind is possible: of truth 0 for fpr, of another for fnr."""
        return np.asarray(self.p[:, 0] if measure == "fpr" else 1.0 - self.p[:, 0])

    def decide(self, case: ArrayLike, members: ArrayLike, votes: ArrayLike) -> NDArray[np.int64]:
        """The decision that the rule makes of the members' votes (classes by position)."""
        who, said = np.atleast_2d(np.asarray(members, np.int32)), np.atleast_2d(np.asarray(votes, np.int64))
        rows = np.atleast_1d(np.asarray(case, np.int64))
        weight = self.p[rows]
        for k in range(who.shape[1]):
            weight = weight * self.q[rows, who[:, k], :, said[:, k]]
        pays = self._costs(rows)
        one = np.einsum("cy,cyd->cd", weight, pays)[:, None, :]
        decided = np.empty(len(rows), np.int64)
        for at, row in enumerate(said):
            decided[at] = self._decisions(row[None], one[at : at + 1], self._prior(rows[at : at + 1]))[0, 0]
        return decided

    def _effort(self, case: Ints, members: NDArray[np.int32]) -> Floats:
        if self.review_cost is None:
            return np.zeros(len(members))
        paid = self.review_cost
        each = paid[members] if paid.ndim == 1 else paid[np.asarray(case)[:, None], members]
        effort: Floats = np.where(members >= 0, each, 0.0).sum(axis=1)
        return effort

    def _sums(self, case: Ints, members: NDArray[np.int32], what: str) -> Floats:
        out = np.empty(len(case))
        sizes = (members >= 0).sum(axis=1)
        classes = self.p.shape[1]
        for size in np.unique(sizes):
            mine = np.flatnonzero(sizes == size)
            step = max(1, CHUNK // int(classes ** (size + 1)))
            for start in range(0, len(mine), step):
                some = mine[start : start + step]
                out[some] = self._chunk(case[some], members[some, :size], what)
        return out

    def _chunk(self, case: Ints, members: NDArray[np.int32], what: str) -> Floats:
        classes, size = self.p.shape[1], members.shape[1]
        votes = np.array(list(product(range(classes), repeat=size)))
        weight = np.repeat(self.p[case][:, None, :], len(votes), axis=1)  # [column, votes, truth]
        for k in range(size):
            weight *= self.q[case, members[:, k]].transpose(0, 2, 1)[:, votes[:, k], :]
        pays = self._costs(case)
        each = np.einsum("cvy,cyd->cvd", weight, pays)
        if size == 1:  # one opinion is the decision
            decided = np.broadcast_to(votes[:, 0], weight.shape[:2])
        else:
            decided = self._decisions(votes, each, self._prior(case))
        if what == "loss":
            return np.asarray(np.take_along_axis(each, decided[..., None], axis=2)[..., 0].sum(axis=1))
        if what == "fpr":
            return np.asarray((weight[..., 0] * (decided != 0)).sum(axis=1))
        return np.asarray((weight[..., 1:].sum(axis=2) * (decided == 0)).sum(axis=1))

    def _decisions(self, votes: NDArray[Any], each: Floats, prior: Floats) -> NDArray[np.int64]:
        """(columns, votes): the class that the rule makes of every pattern of votes."""
        classes = each.shape[2]
        if self.rule == "cost-optimal":
            return np.asarray(each.argmin(axis=2))
        if self.rule == "first positive":
            return np.asarray(np.broadcast_to(votes.max(axis=1), each.shape[:2]))
        counts = np.stack([(votes == k).sum(axis=1) for k in range(classes)], axis=1)
        tied = counts == counts.max(axis=1, keepdims=True)
        return np.asarray(np.where(tied[None], prior[:, None, :], np.inf).argmin(axis=2))

    def _costs(self, case: Ints) -> Floats:
        if len(self.costs) == 1:
            return np.broadcast_to(self.costs, (len(case), *self.costs.shape[1:]))
        return self.costs[case]

    def _prior(self, case: Ints) -> Floats:
        return machine_losses(self.p[case], self._costs(case))
