"""Cases given out by lot: the chance on record is the chance they had."""

from __future__ import annotations

import numpy as np
import pytest

from deccaf.service.decide.lottery import draw_costs, draw_lottery, expected_lot


@pytest.mark.parametrize(
    ("room", "near_ties"),
    [
        ([10**9, 40, 40], True),
        ([10**9, 1, 40], False),
        ([3, 2, 1], True),
        ([10**9, 0, 5], False),
    ],
)
def test_the_chances_are_those_of_many_draws(room: list[int], near_ties: bool) -> None:
    cost = np.random.default_rng(1).exponential(size=20) if near_ties else None
    allowed = np.ones((20, 3), np.bool_)
    allowed[0, 1] = room[1] == 0  # case 0 is not open to everybody with room, except where nobody has any
    rng = np.random.default_rng(0)
    found = np.zeros((20, 4))
    told, share = np.zeros(3), np.zeros(20)
    draws = 2_000
    for _ in range(draws):
        lots = draw_lottery(allowed, np.array(room), 0.3, rng, cost)
        found[np.arange(20), lots.maker] += 1 / draws  # the last column: none
        told, share = told + lots.chance / draws, share + lots.share / draws
        assert (np.bincount(lots.maker[lots.maker >= 0], minlength=3) <= room).all()
    np.testing.assert_allclose(1 - found[:, 3], share, atol=0.045)
    np.testing.assert_allclose(found[1:, :3].mean(axis=0), share[1:].mean() * told, atol=0.01)
    np.testing.assert_allclose(found[1:, :3], share[1:, None] * told, atol=0.045)
    assert (share[0] == 0) == (room[1] > 0)


def test_nobody_with_room_and_nothing_to_draw() -> None:
    rng = np.random.default_rng(0)
    for room, share in (([0, 0], 1.0), ([5, 5], 0.0)):
        lots = draw_lottery(np.ones((4, 2), np.bool_), np.array(room), share, rng)
        assert (lots.maker == -1).all()
        np.testing.assert_array_equal(lots.propensity(np.ones((4, 2)), np.zeros(2), np.zeros(4, int)), 1.0)


def test_a_case_drawn_to_whom_the_plan_wanted_anyway() -> None:
    lots = draw_lottery(np.ones((8, 2), np.bool_), np.array([8, 8]), 0.5, np.random.default_rng(1))
    losses = np.tile([0.0, 1.0], (8, 1))
    chosen = np.where(lots.maker < 0, 0, lots.maker)
    chances = lots.propensity(losses, np.zeros(2), chosen)
    np.testing.assert_allclose(chances, np.where(chosen == 0, 0.5 + 0.5 * 0.5, 0.5 * 0.5))
    assert set(lots.maker) == {-1, 0, 1}


def test_a_lottery_is_drawn_where_it_costs_least_and_everywhere_a_little() -> None:
    rng = np.random.default_rng(2)
    loss = rng.exponential(size=(2_000, 4))
    loss[:300] = loss[:300, :1] + rng.exponential(0.01, (300, 4))  # near-ties: it hardly matters who decides
    allowed, room = np.ones(loss.shape, np.bool_), np.array([10**9, 200, 200, 0])
    cost = draw_costs(loss, np.zeros(4), allowed, room)
    np.testing.assert_allclose(cost, loss[:, :3].mean(axis=1) - loss.min(axis=1))
    expected = expected_lot(cost, allowed, room, 0.05)
    assert expected.cases == pytest.approx(100)
    assert expected.even == pytest.approx(0.05 * cost.sum())
    assert expected.cost < 0.25 * expected.even
    share = draw_lottery(allowed, room, 0.05, rng, cost).share
    assert share.min() >= 0.1 * 0.05
    assert share.mean() == pytest.approx(0.05)
    assert share[:300].sum() > 0.8 * share.sum()
    paid = [cost[draw_lottery(allowed, room, 0.05, rng, cost).maker >= 0].sum() for _ in range(200)]
    assert np.mean(paid) == pytest.approx(expected.cost, rel=0.2)
