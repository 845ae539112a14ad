"""Instances for the tests of `deccaf.assign`, and slow, obviously right answers to compare with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import numpy as np

from deccaf.assign import AssignmentProblem, verify
from deccaf.assign.solve import solve_problem
from deccaf.errors import CapacityError

SCALE = 1 << 1074  # makes every double a whole number


@dataclass
class Instance:
    loss: np.ndarray
    upper: np.ndarray
    lower: np.ndarray
    eligible: np.ndarray | None

    def problem(self, name: str = "") -> AssignmentProblem:
        return AssignmentProblem.of(self.loss, self.upper, self.lower, self.eligible, name)


def exact(value: float) -> int:
    return int(Fraction(float(value)) * SCALE)


def plan_cost(instance: Instance, maker: np.ndarray) -> int:
    return sum(exact(instance.loss[i, j]) for i, j in enumerate(maker))


def cheapest(instance: Instance) -> int | None:
    """The optimum in exact arithmetic, case by case over all loads that can still end within limits."""
    upper, lower = instance.upper.tolist(), instance.lower.tolist()
    best = {(0,) * len(upper): 0}
    for i, row in enumerate(instance.loss):
        costs = [exact(value) for value in row]
        following: dict[tuple[int, ...], int] = {}
        for load, cost in best.items():
            for j, more in enumerate(costs):
                if load[j] >= upper[j] or (instance.eligible is not None and not instance.eligible[i, j]):
                    continue
                key = (*load[:j], load[j] + 1, *load[j + 1 :])
                if key not in following or cost + more < following[key]:
                    following[key] = cost + more
        best = following
    final = [cost for load, cost in best.items() if all(a >= b for a, b in zip(load, lower, strict=True))]
    return min(final, default=None)


def tiny(rng: np.random.Generator) -> Instance:
    """At most 8 cases and 4 makers; ties, zeros, huge and tiny losses, limits of all kinds, some infeasible."""
    n, makers = int(rng.integers(0, 9)), int(rng.integers(1, 5))
    loss = [
        lambda: rng.random((n, makers)),
        lambda: rng.integers(-2, 3, (n, makers)).astype(float),
        lambda: np.zeros((n, makers)),
        lambda: rng.choice([0, 1e-300, 1e300, -1e300, 1, 1e-9, 5.0], (n, makers)),
        lambda: rng.random((n, makers)) * 10.0 ** rng.integers(-300, 300),
        lambda: np.round(rng.random((n, makers)), 1),
        lambda: rng.random((n, makers)) * 10.0 ** rng.integers(-8, 9, (n, 1)),
        lambda: np.tile(rng.random(makers), (n, 1)),
    ][rng.integers(8)]()
    if rng.random() < 0.2 and np.abs(loss).max(initial=0) < 1e30:
        loss = loss.astype(np.float32)
    if rng.random() < 0.3:
        loss = np.asfortranarray(loss)
    upper = rng.integers(0, n + 2, makers)
    lower = np.zeros(makers, int)
    kind = rng.random()
    if kind < 0.4:
        lower = np.minimum(rng.integers(0, max(1, n // 2) + 1, makers), upper)
    elif kind < 0.6:
        upper = np.bincount(rng.integers(0, makers, n), minlength=makers)
        lower = upper.copy()
    eligible = rng.random((n, makers)) < 0.7 if rng.random() < 0.4 else None
    return Instance(loss, upper, lower, eligible)


def structured(rng: np.random.Generator, n: int, makers: int) -> Instance:
    """Feasible, of any size, with the structures that make pruning, sampling and ties hard."""
    base = rng.random((n, makers))
    loss = [
        lambda: base,
        lambda: np.round(base, 1),
        lambda: np.round(base, 2),
        lambda: np.zeros((n, makers)),
        lambda: np.tile(base[0], (n, 1)),
        lambda: rng.random((n, 1)) * rng.random((1, makers)),
        lambda: base[rng.integers(0, min(n, 5), n)],
        lambda: base[rng.integers(0, min(n, 50), n)],
        lambda: base * 10.0 ** rng.integers(-6, 7, (n, 1)),
        lambda: base * np.where(rng.random((n, 1)) < 0.01, 1e9, 1),
        lambda: base - rng.random((1, makers)),
        lambda: base + ((np.arange(n) % 2)[:, None] != (np.arange(makers) % 2)),
        lambda: np.sort(base, axis=0),
        lambda: (base < 0.5).astype(float),
        lambda: np.clip(base, 0.3, 0.7),
        lambda: np.exp(5 * rng.standard_normal((n, makers))),
    ][rng.integers(16)]()
    some = rng.integers(0, makers, n)
    count = np.bincount(some, minlength=makers)
    shut = count.copy()
    shut[0], shut[1 % makers] = shut[0] + (shut[1] if makers > 1 else 0), 0 if makers > 1 else n
    upper, lower = [
        (count, count),
        (count + rng.integers(0, n, makers), np.zeros(makers, int)),
        (np.append(count[1:] // 2, n), np.zeros(makers, int)),
        (count + 1, np.maximum(count - 1, 0)),
        (shut, np.zeros(makers, int)),
        (np.full(makers, n), count // 2),
    ][rng.integers(6)]
    eligible = None
    if rng.random() < 0.3:
        eligible = rng.random((n, makers)) < 0.6
        eligible[np.arange(n), some] = True
        upper, lower = np.maximum(upper, count), np.minimum(lower, count)
    if rng.random() < 0.2:
        loss = loss.astype(np.float32)
    return Instance(loss, upper, lower, eligible)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def uneven_limits(rng: np.random.Generator, n: int, makers: int) -> np.ndarray:
    """Unequal shares that add up to the cases."""
    share = rng.uniform(0.5, 1.5, makers)
    upper = np.floor(share / share.sum() * n).astype(np.int64)
    upper[: n - upper.sum()] += 1
    return upper


def fitted(rng: np.random.Generator, n: int, makers: int) -> Instance:
    """Expected losses as a pooled model of many people makes them; the last column is the machine.

    What moves a decision is nearly the same for everyone; personal parts are small. People's limits and the
    machine's add up to a little more than the cases.
    """
    people, x = makers - 1, rng.normal(size=(n, 6))
    p = sigmoid(-3 + 1.5 * x[:, 0] + 0.7 * rng.normal(size=n))[:, None]
    common = 0.8 * x @ rng.normal(0, 0.6, (6, 1))
    personal = 0.15 * rng.normal(size=people) + x @ (0.08 * rng.normal(size=(6, people)))
    skill = 2.4 + 0.3 * rng.normal(size=people)
    says_yes = sigmoid(np.stack([common + personal - skill / 2, common + personal + skill / 2]) - 0.3)
    loss = p * (1 - says_yes[1]) + (1 - p) * 0.057 * says_yes[0]
    machine = np.minimum(p, 0.057 * (1 - p))
    upper = np.append(uneven_limits(rng, n - n // 10, people), n // 8)
    return Instance(np.hstack([loss, machine]), upper, np.zeros(makers, int), None)


def two_traits(rng: np.random.Generator, n: int, makers: int) -> Instance:
    """People who differ in skill and taste alone, with a little room, and a machine as the last column."""
    people, x = makers - 1, rng.normal(size=(n, 1))
    skill, taste = rng.normal(size=people), rng.normal(size=people)
    p = rng.beta(0.5, 5, (n, 1))
    wrong, right = (sigmoid(2.5 * y - 1 + 0.8 * skill * (y - 0.5) + 0.5 * taste * x) for y in (0, 1))
    loss = np.hstack([p * (1 - right) + (1 - p) * 0.057 * wrong, np.minimum(p, 0.057 * (1 - p))])
    return Instance(loss, np.full(makers, n // makers + 3), np.zeros(makers, int), None)


def roomy_machine(rng: np.random.Generator, n: int, makers: int) -> Instance:
    """Two traits, and a machine without a limit that is best for half of the cases, by far."""
    skill, taste = rng.normal(size=(2, makers))
    p, x = rng.beta(0.5, 2, size=(n, 1)), rng.normal(size=(n, 1))
    missed = sigmoid(-1.5 - 0.4 * skill - 0.5 * taste * x)
    alarmed = sigmoid(-1 - 0.4 * skill + 0.5 * taste * x)
    loss = p * missed + (1 - p) * 0.2 * alarmed
    loss[:, 0] = np.minimum(p, 0.2 * (1 - p))[:, 0]
    upper = np.full(makers, 6 * n // (10 * (makers - 1)))
    upper[0] = n
    return Instance(loss, upper, np.zeros(makers, int), None)


def low_rank(rank: int, rng: np.random.Generator, n: int, makers: int) -> Instance:
    """Losses that a few numbers per case and maker explain; all limits are equalities."""
    upper = uneven_limits(rng, n, makers)
    return Instance(rng.random((n, rank)) @ rng.random((rank, makers)), upper, upper, None)


def duplicates(rng: np.random.Generator, n: int, makers: int) -> Instance:
    """Every maker has four copies."""
    loss = sigmoid(rng.normal(size=(n, 4)) @ rng.normal(0, 0.8, (4, -(-makers // 4))))
    upper = uneven_limits(rng, n, makers)
    return Instance(np.repeat(loss, 4, axis=1)[:, :makers], upper, upper // 2, None)


def outliers(rng: np.random.Generator, n: int, makers: int) -> Instance:
    """Ordinary losses, and a few of 1e14 that nobody should take, or some cases must."""
    loss = rng.random((n, makers))
    loss[rng.random((n, makers)) < 0.001] = 1e14
    loss[rng.integers(0, n, 5)] *= 1e14
    upper = uneven_limits(rng, n, makers)
    return Instance(loss, upper, upper, None)


def near_ties(rng: np.random.Generator, n: int, makers: int) -> Instance:
    """Losses on a grid of 1/100, or of few distinct rows, and differences of 1e-9 on top."""
    loss = np.round(rng.random((n, makers)), 2)
    if rng.random() < 0.5:
        loss = loss[rng.integers(0, min(n, 20), n)]
    upper = uneven_limits(rng, n, makers)
    return Instance(loss + 1e-9 * rng.random((n, makers)), upper, upper, None)


def chained(rng: np.random.Generator, n: int, makers: int) -> Instance:
    """A case may go to maker k or to k + 1, and limits leave hardly any choice."""
    home = rng.integers(0, makers - 1, n)
    some = home + (rng.random(n) < rng.choice([0, 0.002, 0.02, 0.5, 0.98, 1]))
    eligible = np.zeros((n, makers), bool)
    eligible[np.arange(n), home] = eligible[np.arange(n), home + 1] = True
    upper = np.bincount(some, minlength=makers)
    return Instance(rng.random((n, makers)), upper, upper if rng.random() < 0.5 else 0 * upper, eligible)


def amounts(rng: np.random.Generator, n: int, makers: int) -> Instance:
    """Losses of a fitted model, each case with its own amount at risk, some a hundred times as large."""
    made = fitted(rng, n, makers)
    return Instance(made.loss * np.exp(1.5 * rng.normal(size=(n, 1))), made.upper, made.lower, None)


def rounded(rng: np.random.Generator, n: int, makers: int) -> Instance:
    """Losses of a fitted model to three digits: ties by the thousand among people who are nearly alike."""
    made = fitted(rng, n, makers)
    return Instance(np.round(made.loss, 3), made.upper, made.lower, None)


def clusters(rng: np.random.Generator, n: int, makers: int) -> Instance:
    """Five kinds of people, all of a kind nearly alike."""
    kind = rng.integers(0, 5, makers)
    upper = uneven_limits(rng, n, makers)
    return Instance(rng.random((n, 5))[:, kind] + 0.01 * rng.random((n, makers)), upper, upper // 2, None)


def departments(rng: np.random.Generator, n: int, makers: int) -> Instance:
    """Cases and people of four departments, few may help out, and a machine without a limit."""
    made = fitted(rng, n, makers)
    eligible = rng.integers(0, 4, n)[:, None] == rng.integers(0, 4, makers)
    eligible |= rng.random((n, makers)) < 0.05
    eligible[:, -1] = True
    return Instance(made.loss, np.append(made.upper[:-1], n), made.lower, eligible)


def ladder(rng: np.random.Generator, n: int, makers: int) -> Instance:
    """Everybody is best at cases of one difficulty, one after the other: prices hang together in a chain."""
    upper = uneven_limits(rng, n, makers)
    return Instance((rng.random((n, 1)) - np.linspace(0, 1, makers)) ** 2, upper, upper, None)


ADVERSARIAL: dict[str, Callable[[np.random.Generator, int, int], Instance]] = {
    "fitted": fitted,
    "two traits": two_traits,
    "roomy machine": roomy_machine,
    "rank 1": partial(low_rank, 1),
    "rank 2": partial(low_rank, 2),
    "rank 3": partial(low_rank, 3),
    "duplicates": duplicates,
    "outliers": outliers,
    "near-ties": near_ties,
    "chained": chained,
    "amounts": amounts,
    "fitted and rounded": rounded,
    "clusters": clusters,
    "departments": departments,
    "ladder": ladder,
}


def excess_over_search(instance: Instance, method: str, seed: int) -> tuple[Fraction, Fraction]:
    """How far a verified plan is above the cheapest of all, and its gap; 0 and 0 where there is none."""
    best = cheapest(instance)
    try:
        problem = instance.problem()
        plan = solve_problem(problem, method, seed=seed)
    except CapacityError:
        assert best is None
        return Fraction(0), Fraction(0)
    assert best is not None
    verify(problem, plan)
    return Fraction(plan_cost(instance, plan.maker) - best, SCALE), Fraction(plan.gap)


def check_against_search(instance: Instance, method: str, seed: int) -> None:
    """Beyond what the gap allows, optimal to the last digits of the losses compared."""
    excess, gap = excess_over_search(instance, method, seed)
    assert 0 <= excess <= gap
    assert excess <= Fraction(float(np.abs(instance.loss).max(initial=0.0))) / 10**13
