"""Advice: a machine's answer is bought first, and then it is decided who decides.

For a case and a machine b that may be asked for the price r_b there is a plan for every answer a: with
P(a) = sum_y p(y) q_b(a | y), the truth is p(y | a), and everybody else decides as b's answer lets expect,
given how they err together (`deccaf.data.together`). Asking is expected to cost

    r_b + price_b + sum_a P(a) min_k (L_k(a) + price_k)

where deciding at once costs min_k (L_k + price_k). Prices are those of everybody's time. They are found by
maximising the dual of the plan in which each case is decided at once or after one answer, and everybody's
*expected* load keeps within their limits; a cutting-plane method in as many dimensions as there are makers,
with its gap. It is one step ahead: what a second answer would add is seen when the first is there. With the
answers, a plan is made like any other (`after_answers`), and holds all limits exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.assign import AssignmentProblem, Opinions
from deccaf.data.amounts import cost
from deccaf.data.costs import MACHINE
from deccaf.errors import DataError, show

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

GAP = 1e-6
"""Of the cost: the search for prices ends here."""
_MOST_ROUNDS = 300
_ROWS = 20_000
"""Cases whose answers are looked at together."""
MOST_ANSWERS = 2
"""Answers that a case may have before it is planned."""


@dataclass(frozen=True, eq=False)
class Advice:
    """On which cases a machine is asked first, and what that is worth."""

    asked: Ints
    """For every case, the place of the machine among the makers; -1: decided at once."""
    saves: Array
    """What asking saves on the case at the prices, its own price counted; 0 where nobody is asked."""
    cost: float
    """Expected cost of all cases, answers and reviews paid."""
    gap: float
    """By how much `cost` may lie below what is possible at most."""
    paid: float
    """What the answers cost."""
    prices: Array
    loads: Array
    """Expected cases by maker, answers that were bought counted."""


@dataclass(frozen=True)
class AdviceSummary:
    """What advice is worth to a whole plan."""

    cost: float
    without: float
    paid: float
    gap: float
    cases: Mapping[str, int]
    """Cases on which each machine is asked first."""

    def lines(self, unit: str) -> list[str]:
        """Sentences for people."""
        if not self.cases:
            return ["advice: no machine's answer is worth its price before it is decided who decides"]
        asked = ", ".join(f"{name} on {count:,} cases" for name, count in self.cases.items())
        saved = 1.0 - self.cost / self.without if self.without > 0 else 0.0
        return [
            f"advice: ask {asked} first (for {cost(self.paid, unit, 2)}), then decide who: expected cost "
            f"{cost(self.cost, unit, 2)} instead of {cost(self.without, unit, 2)} ({saved:.1%} less)"
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and names, for JSON."""
        return {
            "cost": self.cost,
            "without": self.without,
            "paid": self.paid,
            "gap": self.gap,
            "cases": dict(self.cases),
        }


@dataclass(frozen=True, eq=False)
class _Answers:
    """What follows from asking one machine."""

    maker: int
    paid: Array
    """(cases,)"""
    chance: Array
    """(cases, K): of each answer."""
    cost: Array
    """(cases, K, makers): chance of the answer x what it then costs to let a maker decide."""


def answers_of(opinions: Opinions, advisors: Sequence[int], allowed: NDArray[np.bool_]) -> list[_Answers]:
    """For each machine that may be asked, what everybody would cost after each of its answers."""
    return [_after(opinions, b, allowed) for b in advisors]


def _after(opinions: Opinions, asked: int, allowed: NDArray[np.bool_]) -> _Answers:
    n, makers, classes = opinions.q.shape[:3]
    votes = np.array(list(product(range(classes), repeat=2)))
    table = np.full((n, classes, makers), np.inf)
    chance = np.einsum("iy,iya->ia", opinions.p, opinions.q[:, asked])
    paid = _paid(opinions, n)
    for start in range(0, n, _ROWS):
        case = np.arange(start, min(start + _ROWS, n))
        costs = np.broadcast_to(opinions.costs, (n, classes, classes))[case]
        weight = opinions.p[case][:, :, None] * opinions.q[case, asked]  # [case, truth, answer]
        table[case, :, 0] = np.einsum("iya,iyd->iad", weight, costs).min(axis=2)
        for k in range(1, makers):
            if k == asked:
                continue
            members = np.tile(np.array([asked, k], np.int32), (len(case), 1))
            said = opinions.said(case, members, votes).reshape(len(case), classes, classes, classes)
            table[case, :, k] = np.einsum("iy,iamy,iym->ia", opinions.p[case], said, costs)
            table[case, :, k] += chance[case] * paid[case, k][:, None]
    table = np.where(allowed[:, None, :], table, np.inf)
    return _Answers(asked, paid[:, asked], chance, table)


def _paid(opinions: Opinions, cases: int) -> Array:
    if opinions.review_cost is None:
        return np.zeros((cases, opinions.q.shape[1]))
    return np.broadcast_to(opinions.review_cost, (cases, opinions.q.shape[1]))


def find_advice(problem: AssignmentProblem, answers: Sequence[_Answers], start: Array) -> Advice:
    """The cases on which asking first is worth its price, at the prices that are best for all of them
    together.

    `start` are the prices of the plan without advice.
    """
    loss = np.where(problem.eligible, problem.loss, np.inf) if problem.eligible is not None else problem.loss
    loss = np.asarray(loss, np.float64)
    upper, lower = problem.upper.astype(np.float64), problem.lower.astype(np.float64)
    cuts: list[tuple[float, Array]] = []
    best, at = -np.inf, np.asarray(start, np.float64).copy()
    most = 2.0 * float(np.abs(loss[np.isfinite(loss)]).max(initial=1.0)) + 1.0
    reach, prices, bound = 0.05 * most, at, np.inf
    for _ in range(_MOST_ROUNDS):
        own, loads, _, _ = _at(loss, answers, prices)
        cuts.append((own, loads))
        value = own + float(loads @ prices) - _limits(prices, lower, upper)
        if value > best:
            reach *= 2.0 if best > -np.inf and value > best + 0.1 * (bound - best) else 1.0
            best, at = value, prices
        else:
            reach *= 0.5
        bound, found = _master(cuts, lower, upper, np.full(len(at), -most), np.full(len(at), most))
        if bound - best <= GAP * max(abs(best), 1e-9):
            break
        if (np.abs(found - at) > reach).any():
            _, found = _master(cuts, lower, upper, at - reach, at + reach)
        prices = found
    own, loads, asked, saves = _at(loss, answers, at)
    spent = sum(float(one.paid[asked == one.maker].sum()) for one in answers)
    return Advice(asked, saves, best, max(bound - best, 0.0), spent, at, loads)


def _at(loss: Array, answers: Sequence[_Answers], prices: Array) -> tuple[float, Array, Ints, Array]:
    """At some prices: cost without them, expected loads, who is asked first, and what that saves."""
    here = np.arange(len(loss))
    total = loss + prices
    maker = total.argmin(axis=1)
    direct = total[here, maker]
    worth, which, picks = direct.copy(), np.full(len(loss), -1), []
    for place, one in enumerate(answers):
        then = one.cost + one.chance[:, :, None] * prices
        pick = then.argmin(axis=2)
        value = (
            one.paid + prices[one.maker] + np.take_along_axis(then, pick[..., None], axis=2).sum(axis=(1, 2))
        )
        better = value < worth - 1e-12
        worth, which = np.where(better, value, worth), np.where(better, place, which)
        picks.append(pick)
    loads = np.bincount(maker[which < 0], minlength=len(prices)).astype(np.float64)
    for place, one in enumerate(answers):
        mine = np.flatnonzero(which == place)
        loads[one.maker] += len(mine)
        np.add.at(loads, picks[place][mine].ravel(), one.chance[mine].ravel())
    asked = np.array([one.maker for one in answers] + [-1])[which]
    return float(worth.sum() - loads @ prices), loads, asked, np.where(which >= 0, direct - worth, 0.0)


def _limits(prices: Array, lower: Array, upper: Array) -> float:
    """What the prices pay for everybody's room."""
    return float(np.maximum(prices * upper, prices * lower).sum())


def _master(
    cuts: Sequence[tuple[float, Array]], lower: Array, upper: Array, least: Array, most: Array
) -> tuple[float, Array]:
    """The best prices as far as the cuts tell, within bounds: above and below 0 apart, as limits differ
    there."""
    from scipy.optimize import linprog

    makers = len(lower)
    rows = np.array([[1.0, *(-loads), *loads] for _, loads in cuts])
    right = np.array([own for own, _ in cuts])
    bounds = [
        (None, None),
        *zip(np.maximum(least, 0.0), np.maximum(most, 0.0), strict=True),
        *zip(np.maximum(-most, 0.0), np.maximum(-least, 0.0), strict=True),
    ]
    found = linprog(np.concatenate([[-1.0], upper, -lower]), rows, right, bounds=bounds, method="highs")
    if found.x is None:
        return np.inf, np.zeros(makers)
    return -float(np.asarray(found.fun)), np.asarray(found.x[1 : 1 + makers] - found.x[1 + makers :])


def after_answers(
    opinions: Opinions, makers: Sequence[str], said: Mapping[str, Ints]
) -> tuple[Array, Array, Ints]:
    """(p, loss, what the machine says) once some makers' answers are known: positions of classes, -1 for
    none.

    Who has answered is not asked again: the machine decides with the answer, and what it cost is spent.
    """
    n, _, classes = opinions.q.shape[:3]
    p, paid = opinions.p.copy(), _paid(opinions, n)
    costs = np.broadcast_to(opinions.costs, (n, classes, classes))
    place = {name: list(makers).index(name) for name in said if name in makers}
    given = np.stack([said[name] for name in place], axis=1) if place else np.empty((n, 0), np.int64)
    who = np.array(list(place.values()), np.int64)
    loss = np.empty((n, len(makers)))
    codes = (given >= 0) @ (1 << np.arange(len(who)))
    for code in np.unique(codes):
        case = np.flatnonzero(codes == code)
        named = [k for k in range(len(who)) if code >> k & 1]
        if len(named) > MOST_ANSWERS:
            raise DataError(
                f"answers: {len(case)} case(s) have {len(named)}, but at most {MOST_ANSWERS} count"
            )
        told = given[case][:, named]
        p[case] *= _chance(opinions, case, who[named], told)
        total = p[case].sum(axis=1, keepdims=True)
        p[case] = np.where(total > 0, p[case] / np.maximum(total, 1e-300), opinions.p[case])
        loss[case, 0] = np.einsum("iy,iyd->id", p[case], costs[case]).min(axis=1)
        before = _chance(opinions, case, who[named], told)
        for k in range(1, len(makers)):
            if k in who[named]:
                loss[case, k] = np.inf
                continue
            each = [
                _chance(
                    opinions, case, np.append(who[named], k), np.column_stack([told, np.full(len(case), m)])
                )
                for m in range(classes)
            ]
            q = np.stack(each, axis=2) / np.maximum(before, 1e-300)[:, :, None]
            loss[case, k] = np.einsum("iy,iym,iym->i", p[case], q, costs[case]) + paid[case, k]
    says = np.einsum("iy,iyd->id", p, costs).argmin(axis=1)
    return p, loss, says


def _chance(opinions: Opinions, case: Ints, who: Ints, told: Ints) -> Array:
    """(cases, K): the chance of these answers by truth."""
    if not len(who):
        return np.ones((len(case), opinions.p.shape[1]))
    votes = np.array(list(product(range(opinions.p.shape[1]), repeat=len(who))))
    members = np.tile(who.astype(np.int32), (len(case), 1))
    row = told @ (opinions.p.shape[1] ** np.arange(len(who))[::-1])
    return np.asarray(opinions.said(case, members, votes)[np.arange(len(case)), row])


def read_answers(table: pd.DataFrame, ids: pd.Index, codes: Ints) -> dict[str, Ints]:
    """Answers by maker for cases in this order; `codes` are the decisions of the table as positions of
    classes."""
    found: dict[str, Ints] = {}
    at = pd.Index(ids.astype(str)).get_indexer(pd.Index(table["case_id"].astype(str)))
    if (at < 0).any():
        first = table["case_id"].iloc[int((at < 0).argmax())]
        raise DataError(f"answers: {(at < 0).sum()} row(s) name no case, first: {show(first)}")
    makers = table["expert_id"].astype(str).to_numpy()
    if MACHINE in makers:
        raise DataError(f"answers: {MACHINE!r} is deccaf's own classifier, whose answer is known anyway")
    for name in dict.fromkeys(makers):
        mine = makers == name
        found[str(name)] = np.full(len(ids), -1, np.int64)
        found[str(name)][at[mine]] = codes[mine]
    return found
