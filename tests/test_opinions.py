"""How several opinions become one: by hand, and against all that can be said."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from deccaf import ConfigError, Costs, DataError
from deccaf.assign import Opinions
from deccaf.data.costs import expected_loss

RULES = ("majority", "first positive", "cost-optimal")


def world(classes: int = 2, cases: int = 4, experts: int = 3, seed: int = 0):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(classes), cases)
    q = rng.dirichlet(np.ones(classes), (cases, experts, classes))
    matrix = rng.random((classes, classes)) * (1 - np.eye(classes))
    return p, q, Costs.from_matrix(matrix, list(range(classes))).array()


def by_hand(opinions: Opinions, i: int, members: list[int], what: str) -> float:
    """Sum over truths and votes, each decided by `decide`."""
    total, classes = 0.0, opinions.p.shape[1]
    for truth in range(classes):
        for votes in product(range(classes), repeat=len(members)):
            chance = opinions.p[i, truth]
            for j, vote in zip(members, votes, strict=True):
                chance *= opinions.q[i, j, truth, vote]
            decided = int(opinions.decide([i], [members], [votes])[0]) if len(members) > 1 else votes[0]
            if what == "loss":
                total += chance * opinions.costs[0, truth, decided]
            elif what == "fpr":
                total += chance * (truth == 0 and decided != 0)
            else:
                total += chance * (truth != 0 and decided == 0)
    return total


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("classes", [2, 3])
def test_loss_and_errors_are_sums_over_all_votes(rule: str, classes: int) -> None:
    opinions = Opinions.of(*world(classes), rule=rule)
    for members in ([1], [0, 2], [1, 2], [1, 2, 3]):
        for i in range(4):
            case, group = np.array([i]), np.array([members], np.int32)
            assert opinions.loss(case, group)[0] == pytest.approx(by_hand(opinions, i, members, "loss"))
            for measure in ("fpr", "fnr"):
                assert opinions.wrong(case, group, measure)[0] == pytest.approx(
                    by_hand(opinions, i, members, measure)
                )


def test_one_opinion_costs_what_the_engine_says() -> None:
    p, q, costs = world()
    opinions = Opinions.of(p, q, costs, review_cost=[0.1, 0.2, 0.3])
    single = opinions.loss(np.repeat(np.arange(4), 4), np.tile(np.arange(4, dtype=np.int32), 4)[:, None])
    assert single.reshape(4, 4) == pytest.approx(expected_loss(p, q, costs, [0.1, 0.2, 0.3]))
    pair = opinions.loss(np.array([0]), np.array([[1, 3]], np.int32))
    free = Opinions.of(p, q, costs).loss(np.array([0]), np.array([[1, 3]], np.int32))
    assert pair - free == pytest.approx(0.4)


def test_the_rules_by_hand() -> None:
    # a missed fraud costs 1, a false alarm 0.1; ann is nearly always right, bob tosses a coin
    p = np.array([[0.5, 0.5]])
    ann, bob = [[0.99, 0.01], [0.01, 0.99]], [[0.5, 0.5], [0.5, 0.5]]
    costs = Costs.binary(0.1, 1.0).array()
    weighed, most, first = (
        Opinions.of(p, np.array([[ann, bob]]), costs, rule=rule)
        for rule in ("cost-optimal", "majority", "first positive")
    )
    pair = [[1, 2]]
    assert weighed.decide([0], pair, [[0, 1]]).tolist() == [0]  # ann counts, bob does not
    assert weighed.decide([0], pair, [[1, 0]]).tolist() == [1]
    assert first.decide([0], pair, [[0, 1]]).tolist() == [1]
    assert first.decide([0], pair, [[0, 0]]).tolist() == [0]
    assert most.decide([0], pair, [[0, 1]]).tolist() == [1]  # a tie: positive is cheaper here
    assert most.decide([0, 0], [[1, 2], [1, 2]], [[0, 0], [1, 1]]).tolist() == [0, 1]


def test_a_second_opinion_never_hurts_when_it_is_weighed() -> None:
    p, q, costs = world(cases=50, seed=3)
    opinions = Opinions.of(p, q, costs)
    case = np.arange(50)
    pair = opinions.loss(case, np.tile(np.array([1, 2], np.int32), (50, 1)))
    triple = opinions.loss(case, np.tile(np.array([1, 2, 3], np.int32), (50, 1)))
    for j in (1, 2):
        assert (pair <= opinions.loss(case, np.full((50, 1), j, np.int32)) + 1e-12).all()
    assert (triple <= pair + 1e-12).all()


def test_costs_may_differ_by_case() -> None:
    p, q, _ = world()
    costs = np.random.default_rng(1).random((4, 2, 2)) * (1 - np.eye(2))
    opinions = Opinions.of(p, q, costs)
    found = opinions.loss(np.array([3]), np.array([[1, 2]], np.int32))
    alone = Opinions.of(p[3:], q[3:], costs[3:]).loss(np.array([0]), np.array([[1, 2]], np.int32))
    assert found == pytest.approx(alone)


def test_wrong_input_is_named() -> None:
    p, q, costs = world()
    with pytest.raises(ConfigError, match="rule: expected one of majority"):
        Opinions.of(p, q, costs, rule="unanimous")
    with pytest.raises(DataError, match="cases x experts x truth x decision"):
        Opinions.of(p, q[0], costs)
