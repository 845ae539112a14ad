"""How several opinions on one case become one decision, and what that is expected to cost.

Two reviewers may both find a case hard because of what can be seen in it: that is in their chances of error.
Where something unseen misleads them together (copies of one machine, people of one school), `correlation`
tells how far their errors go together beyond that, and a second opinion is worth less. Without it opinions
are independent given the truth and the features of the case. Which wrong class somebody says, of several, is
independent in any case.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deccaf.assign.exact.scan import Floats, Ints
from deccaf.data.costs import machine_losses
from deccaf.data.together import patterns
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
    correlation: Floats | None = None
    """(makers, makers): how errors go together (`deccaf.data.together`); None: not at all."""

    @classmethod
    def of(
        cls,
        p: ArrayLike,
        q: ArrayLike,
        costs: Floats,
        rule: Rule = "cost-optimal",
        review_cost: ArrayLike = 0.0,
        correlation: ArrayLike | None = None,
    ) -> Opinions:
        """The machine first, which says what costs least given `p`, then the experts of `q`.

        `correlation` is of the experts: what the machine says is known from the case.
        """
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
        together = None
        if correlation is not None and experts.shape[1] > 1:
            together = np.eye(1 + experts.shape[1])
            together[1:, 1:] = np.asarray(correlation, np.float64)
        return cls(p, np.concatenate([machine, experts], axis=1), costs, rule, every, together)

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
        weight = np.empty_like(self.p[rows])
        for at in range(len(rows)):
            one = slice(at, at + 1)
            weight[at] = self.p[rows[at]] * self.said(rows[one], who[one], said[one])[0, 0]
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
        weight = self.p[case][:, None, :] * self.said(case, members, votes)  # [column, votes, truth]
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

    def said(self, case: Ints, members: NDArray[np.int32], votes: NDArray[Any]) -> Floats:
        """[column, votes, truth]: the chance that the members of each column vote so."""
        size, classes = members.shape[1], self.p.shape[1]
        chance = np.ones((len(case), len(votes), classes))
        for k in range(size):
            chance *= self.q[case, members[:, k]].transpose(0, 2, 1)[:, votes[:, k], :]
        if self.correlation is None or size == 1:
            return chance
        pairs = list(combinations(range(size), 2))
        r = np.stack([self.correlation[members[:, i], members[:, j]] for i, j in pairs], axis=-1)
        some = np.flatnonzero((r > 0).any(axis=1))
        if not len(some):
            return chance
        own = np.arange(classes)
        right = np.stack([self.q[case[some], members[some, k]][:, own, own] for k in range(size)], axis=-1)
        cells = patterns(1.0 - right, np.broadcast_to(r[some, None], (*right.shape[:2], len(pairs))))
        bits = (np.arange(1 << size)[:, None] >> np.arange(size)[::-1]) & 1
        alone = np.where(bits, 1.0 - right[..., None, :], right[..., None, :]).prod(axis=-1)
        wrong = votes[:, :, None] != own  # [votes, member, truth]
        pattern = (wrong * (1 << np.arange(size)[::-1])[:, None]).sum(axis=1)  # [votes, truth]
        lift = cells / np.maximum(alone, 1e-300)
        chance[some] *= lift[:, own, pattern]
        return chance

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
