"""Rivals of other papers: each finds whom to ask in a world where that is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from threadpoolctl import threadpool_limits

from deccaf.benchmark.rivals import LEARNERS, _table, read_rival
from deccaf.data.costs import Costs
from deccaf.errors import ConfigError
from deccaf.models.rivals.annotated import Annotated, Deferral
from deccaf.models.rivals.conformal import LEVEL, p_values
from deccaf.models.rivals.probabilistic import shared_out
from deccaf.policies import RIVALS, Beliefs, Room, find

EXPERTS = ("ann", "bob")


def world(n: int = 3000, seed: int = 0) -> Annotated:
    """The truth is a coin where |x| < 1 and certain elsewhere; ann is right where x < 0, bob where x > 0."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-3, 3, n)
    truth = np.where(np.abs(x) < 1, rng.random(n) < 0.5, x > 0).astype(np.int64)
    expert = rng.integers(0, 2, n)
    right = rng.random(n) < np.where((x < 0) == (expert == 0), 0.97, 0.55)
    return Annotated(
        features=pd.DataFrame({"x": x, "noise": rng.normal(size=n)}),
        truth=truth,
        expert=expert,
        decision=np.where(right, truth, 1 - truth),
        weight=np.ones(n),
        held=np.arange(n) % 4 == 0,
        experts=EXPERTS,
    )


@pytest.fixture(scope="module")
def known() -> Annotated:
    return world()


@pytest.fixture(scope="module")
def found(known: Annotated) -> dict[str, Deferral]:
    with threadpool_limits(1):  # as the benchmark's workers do; threads that wait for each other are slow
        return {name: learn(known, known.features, 0) for name, learn in LEARNERS.items()}


@pytest.mark.parametrize("name", ["verma-softmax", "verma-ova", "mao-two-stage", "nguyen-em"])
def test_unsure_cases_go_to_who_is_good_at_them(
    known: Annotated, found: dict[str, Deferral], name: str
) -> None:
    loss, x = found[name].loss, known.features["x"].to_numpy()
    assert loss.shape == (3000, 3)
    unsure = np.abs(x) < 0.9
    best = np.where(x[unsure] < 0, 1, 2)
    assert (loss[unsure, 1:].argmin(axis=1) + 1 == best).mean() > 0.85
    assert (loss[unsure, 0] > loss[unsure].min(axis=1)).mean() > 0.85
    sure = np.abs(x) > 1.5
    assert (found[name].says[sure] == known.truth[sure]).mean() > 0.95


def test_chances_of_being_right_come_back_from_the_softmax(
    known: Annotated, found: dict[str, Deferral]
) -> None:
    """Of one in two people each decision is known: without its weight the chances would be half as large."""
    x = known.features["x"].to_numpy()
    for name in ("verma-softmax", "verma-ova", "mao-two-stage"):
        right = 1.0 - found[name].loss[:, 1]
        assert right[x < -0.2].mean() == pytest.approx(0.97, abs=0.06)
        assert right[x > 0.2].mean() == pytest.approx(0.55, abs=0.08)


def test_who_decided_nothing_is_taken_for_the_average(known: Annotated) -> None:
    wider = replace(known, experts=(*EXPERTS, "cy"))
    loss = LEARNERS["verma-ova"](wider, known.features[:50], 0).loss
    np.testing.assert_allclose(1.0 - loss[:, 3], known.right.mean())


def test_the_conformal_set_says_whether_and_skill_says_to_whom() -> None:
    """Bob is better on the whole; deferred are the cases in which both labels are left."""
    better = world()
    decision = np.where(better.expert == 1, better.truth, better.decision)
    known = replace(better, decision=decision)
    loss, x = LEARNERS["bary-conformal"](known, known.features, 0).loss, known.features["x"].to_numpy()
    choice = loss.argmin(axis=1)
    assert set(choice) == {0, 2}
    assert (choice[np.abs(x) < 0.9] == 2).mean() > 0.4  # at the level 0.1 some labels can be excluded there
    assert (choice[np.abs(x) > 1.5] == 0).mean() > 0.95
    assert (loss[:, 1:] >= LEVEL).all()


def test_p_values_by_hand() -> None:
    """Strange are 0.1, 0.5, 0.9 with weights 1, 1, 2; the new case itself counts as one of mean weight 4/3."""
    found = p_values(np.array([0.5, 0.1, 0.9]), np.array([1.0, 1.0, 2.0]), np.array([[0.05, 0.5, 0.95]]))
    np.testing.assert_allclose(found, [[1.0, (3 + 4 / 3) / (4 + 4 / 3), (4 / 3) / (4 + 4 / 3)]])


def test_work_is_shared_out_with_the_smallest_change() -> None:
    rng = np.random.default_rng(0)
    z = rng.dirichlet([6.0, 1.0, 1.0], 500)
    moved = shared_out(z, 1 / 3)
    load = moved.mean(axis=0)
    assert (load <= 1.1 / 3 + 1e-3).all()
    assert (load >= 0.9 / 3 - 1e-3).all()
    # one price for each maker: relative to another maker everybody is moved by the same factor
    shift = np.log(moved / z)
    np.testing.assert_allclose(np.ptp(shift[:, 0] - shift[:, 1]), 0.0, atol=1e-9)
    even = np.full((4, 3), 1 / 3)
    np.testing.assert_allclose(shared_out(even, 1 / 3), even)


def test_rivals_are_policies_by_their_own_rule_and_with_the_exact_plan(found: dict[str, Deferral]) -> None:
    assert set(RIVALS) == set(LEARNERS)
    p = np.full((3000, 2), 0.5)
    room = Room(np.array([1000, 1000, 1000]), np.array([1000, 1000, 1000]))
    known = Beliefs(EXPERTS, Costs.binary(0.5).array(), p, rivals=found)
    rows = np.arange(3000)
    for name in RIVALS:
        own, exact = (find(each).decide(known, room, 0) for each in (name, f"{name}-optimal"))
        for decided in (own, exact):
            assert np.bincount(decided.maker).tolist() == [1000] * 3
        loss = found[name].loss
        assert loss[rows, exact.maker].sum() <= loss[rows, own.maker].sum() + 1e-9
    with pytest.raises(ConfigError, match="needs 'nguyen-em'"):
        find("nguyen-em").decide(Beliefs(EXPERTS, Costs.binary(0.5).array(), p), room, 0)
    again = read_rival(_table(found["nguyen-em"], EXPERTS), EXPERTS)
    np.testing.assert_array_equal(again.loss, found["nguyen-em"].loss)
