"""Makers who err together: the test on a log, correlations, and what panels of them cost."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.special import expit, ndtri
from scipy.stats import multivariate_normal

from deccaf.assign import Opinions
from deccaf.data.costs import Costs
from deccaf.data.together import both_wrong, patterns
from deccaf.models.decisions.dependence import Dependence

COSTS = Costs.binary(false_positive=1.0, false_negative=4.0).array()
NAMES = ("ann", "bob", "clf", "llm", "twin")
MACHINES = ("clf", "llm", "twin")
R = np.eye(5)
R[2:, 2:] = 0.6
R[:2, :2] = 0.15
R[:2, 2:] = R[2:, :2] = 0.2
R[3, 4] = R[4, 3] = 1.0  # the twin is a copy of the language model
np.fill_diagonal(R, 1.0)


class Correlated:
    """Cases with known p and q, and makers whose errors share a latent difficulty."""

    def __init__(self, n: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.p1 = expit(rng.normal(-0.8, 1.2, n))
        self.truth = (rng.random(n) < self.p1).astype(int)
        self.p = np.column_stack([1 - self.p1, self.p1])
        level = np.array([-1.8, -1.4, -1.2, -1.5, -1.5])
        error = expit(level + 0.6 * rng.normal(size=(n, 1, 1)) + np.array([-0.3, 0.4])[:, None])
        self.error = error  # (cases, truths, makers)
        self.q = np.empty((n, 5, 2, 2))
        for y in (0, 1):
            self.q[:, :, y, y], self.q[:, :, y, 1 - y] = 1 - error[:, y], error[:, y]
        self.mine = error[np.arange(n), self.truth]
        self.wrong = self.latent(rng) < ndtri(self.mine)

    def latent(self, rng: np.random.Generator) -> np.ndarray:
        """What makes each case hard for everybody, unseen."""
        return rng.normal(size=(len(self.p), 5)) @ np.linalg.cholesky(R + 1e-9 * np.eye(5)).T

    def learned(self) -> Dependence:
        case, who = np.nonzero(np.ones_like(self.wrong))
        found = Dependence.learn(NAMES, case, who, self.wrong[case, who], self.mine[case, who], MACHINES)
        assert found is not None
        return found


@pytest.fixture(scope="module")
def learned() -> Dependence:
    return Correlated(3000, 7).learned()


def test_both_wrong_is_the_normal_orthant() -> None:
    rng = np.random.default_rng(0)
    for r in (0.0, 0.3, 0.7, 0.95, 0.99, -0.4):
        a, b = rng.uniform(0.01, 0.6, 2)
        exact = multivariate_normal([0, 0], [[1, r], [r, 1]]).cdf(ndtri([a, b]))
        assert both_wrong(np.array(a), np.array(b), np.array(r)) == pytest.approx(exact, abs=2e-4)
    copies = both_wrong(np.full(3, 0.1), np.full(3, 0.1), np.full(3, 1.0))
    assert copies == pytest.approx(0.1, rel=0.05)


def test_patterns_keep_everybodys_own_errors_and_meet_a_simulation() -> None:
    errors, r = np.array([0.1, 0.25, 0.3]), np.array([0.7, 0.3, 0.4])
    cells = patterns(errors, r)
    bits = (np.arange(8)[:, None] >> np.arange(3)[::-1]) & 1
    assert cells.sum() == pytest.approx(1.0)
    assert cells @ bits == pytest.approx(errors, abs=1e-9)
    full = np.array([[1, 0.7, 0.3], [0.7, 1, 0.4], [0.3, 0.4, 1]])
    z = np.random.default_rng(1).multivariate_normal(np.zeros(3), full, 400_000)
    drawn = np.bincount((z < ndtri(errors)) @ (1 << np.arange(3)[::-1]), minlength=8) / len(z)
    assert cells == pytest.approx(drawn, abs=0.004)
    assert patterns(errors, np.zeros(3)) == pytest.approx(
        np.where(bits, errors, 1 - errors).prod(axis=1), abs=1e-6
    )


def test_the_log_shows_who_errs_together(learned: Dependence) -> None:
    found, estimate = learned, learned.among(NAMES)
    assert estimate[3, 4] > 0.97
    assert estimate[2, 3] == pytest.approx(0.6, abs=0.1)
    assert estimate[0, 1] == pytest.approx(0.15, abs=0.12)
    pairs = {(pair.first, pair.second): pair for pair in found.pairs}
    assert pairs["clf", "llm"].p_value < 1e-6
    assert pairs["clf", "llm"].both_wrong > 1.5 * pairs["clf", "llm"].expected
    assert found.lines()[0].startswith("llm and twin err together: both wrong on")
    again = Dependence.from_dict(found.to_dict())
    assert np.array_equal(again.among(NAMES), estimate)
    assert again.among(("ann", "new"))[0, 1] == found.kinds["people"]


def test_independent_makers_are_found_independent() -> None:
    rng = np.random.default_rng(6)
    error = rng.uniform(0.05, 0.3, (2000, 4))
    case, who = np.nonzero(np.ones_like(error))
    wrong = rng.random(error.shape) < error
    found = Dependence.learn(("a", "b", "c", "d"), case, who, wrong[case, who], error[case, who])
    assert found is not None
    assert found.among(found.experts)[np.triu_indices(4, 1)].max() < 0.1
    assert found.lines() == [
        "errors go together no more than chance brings about (6 pairs who decided the same cases)"
    ]
    one = Dependence.learn(("a", "b"), np.arange(6), np.arange(6) % 2, np.zeros(6, bool), np.full(6, 0.1))
    assert one is None  # nobody shares a case


GROUPS = [(1, 2), (3, 4), (4, 5), (1, 4), (2, 3), (1, 2, 3), (3, 4, 5), (1, 4, 5)]
"""Makers by place in `Opinions`, where 0 is the machine."""


def test_panels_cost_what_they_are_expected_to(learned: Dependence) -> None:
    """Within 3 % for pairs and triples, with correlations from a log; independence is off by far more."""
    world = Correlated(8000, 8)
    rng, case = np.random.default_rng(1), np.arange(len(world.p))
    latent = [world.latent(rng) for _ in range(12)]
    joint = Opinions.of(world.p, world.q, COSTS, correlation=learned.among(NAMES))
    alone = Opinions.of(world.p, world.q, COSTS)

    def off(opinions: Opinions, group: tuple[int, ...]) -> float:
        members = np.tile(np.array(group, np.int32), (len(case), 1))
        return float(opinions.loss(case, members).mean() / _cost(opinions, group, world, latent) - 1.0)

    assert max(abs(off(joint, group)) for group in GROUPS) < 0.03
    assert min(off(alone, group) for group in GROUPS) < -0.2


def _cost(opinions: Opinions, group: tuple[int, ...], world: Correlated, latent: list[np.ndarray]) -> float:
    """What the panel really costs, if it decides by what these opinions make of its votes."""
    case, who = np.arange(len(world.p)), [k - 1 for k in group]
    votes = np.array(list(product((0, 1), repeat=len(group))))
    said = opinions.said(case, np.tile(np.array(group, np.int32), (len(case), 1)), votes)
    decided = np.einsum("cvy,yd->cvd", world.p[:, None, :] * said, COSTS[0]).argmin(axis=2)
    total = 0.0
    for z in latent:
        for y in (0, 1):
            wrong = z[:, who] < ndtri(world.error[:, y][:, who])
            vote = np.where(wrong, 1 - y, y) @ (1 << np.arange(len(group))[::-1])
            total += float((world.p[:, y] * COSTS[0][y, decided[case, vote]]).mean())
    return total / len(latent)


def test_two_copies_are_not_two_opinions(learned: Dependence) -> None:
    world = Correlated(2000, 9)
    joint = Opinions.of(world.p, world.q, COSTS, correlation=learned.among(NAMES))
    case = np.arange(2000)

    def cost(*who: int) -> float:
        return float(joint.loss(case, np.tile(np.array(who, np.int32), (2000, 1))).mean())

    single = _with_machine(joint, case, 4)
    assert cost(4, 5) == pytest.approx(single, rel=0.02)
    assert cost(4, 1) < 0.9 * cost(4, 5)


def _with_machine(opinions: Opinions, case: np.ndarray, maker: int) -> float:
    """One opinion, decided by least expected cost: the machine (0) adds nothing but the rule."""
    members = np.tile(np.array((0, maker), np.int32), (len(case), 1))
    return float(opinions.loss(case, members).mean())
