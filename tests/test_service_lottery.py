"""Cases given out by lot: the chance on record is the chance they had."""

from __future__ import annotations

import numpy as np
import pytest

from deccaf.service.decide.lottery import draw_lottery


@pytest.mark.parametrize("room", [[10**9, 40, 40], [10**9, 1, 40], [3, 2, 1], [10**9, 0, 5]])
def test_the_chances_are_those_of_many_draws(room: list[int]) -> None:
    allowed = np.ones((20, 3), np.bool_)
    allowed[0, 1] = room[1] == 0  # case 0 is not open to everybody with room, except where nobody has any
    rng = np.random.default_rng(0)
    found = np.zeros((20, 4))
    told, share = np.zeros(3), np.zeros(20)
    draws = 4_000
    for _ in range(draws):
        lots = draw_lottery(allowed, np.array(room), 0.3, rng)
        found[np.arange(20), lots.maker] += 1 / draws  # the last column: none
        told, share = told + lots.chance / draws, share + lots.share / draws
        assert (np.bincount(lots.maker[lots.maker >= 0], minlength=3) <= room).all()
    np.testing.assert_allclose(1 - found[:, 3], share, atol=0.03)
    np.testing.assert_allclose(found[1:, :3].mean(axis=0), share[1:].mean() * told, atol=0.005)
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
