"""Policies: what each one decides, within everybody's limits."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deccaf.assign import Opinions
from deccaf.data.costs import Costs
from deccaf.errors import CapacityError, ConfigError
from deccaf.policies import (
    MIXTURES,
    POLICIES,
    Beliefs,
    Correctness,
    Decided,
    Room,
    find,
    greedy,
    mixture,
    optimal,
    policy,
)

WITH_PEOPLE = (
    "random",
    "random-experts",
    "rejection",
    "deccaf-blind",
    "ova",
    "ova-optimal",
    "hem-greedy",
    "deccaf-paper",
    "deccaf-paper-refit",
    "deccaf",
    "deccaf-banded",
    "oracle",
    *(name for name in MIXTURES.values() if name not in ("deccaf", "deccaf-paper")),
)


def beliefs(cases=60, experts=3, classes=2, seed=0):
    rng = np.random.default_rng(seed)

    def chances(*shape):
        return rng.dirichlet(np.ones(classes), shape)

    costs = Costs.from_matrix(rng.uniform(0.1, 1, (classes, classes)) * (1 - np.eye(classes)), range(classes))
    paper = {
        name: Correctness(chances(cases), rng.uniform(size=(cases, experts)))
        for name in ("hem", "hem-refit", "ova")
    }
    names = tuple(f"analyst_{j}" for j in range(experts))
    q, true_q = chances(cases, experts, classes), chances(cases, experts, classes)
    group = np.where(np.arange(cases) % 3 == 0, "old", "young")
    return Beliefs(names, costs.array(), chances(cases), q, true_q, paper, group=group)


def equal_room(known):
    loads = np.full(len(known.makers), len(known) // len(known.makers))
    loads[0] += len(known) - loads.sum()
    return Room(loads, loads)


@pytest.mark.parametrize("name", WITH_PEOPLE)
@pytest.mark.parametrize("classes", [2, 3])
def test_every_policy_with_people_meets_equalities(name, classes):
    known = beliefs(classes=classes)
    room = equal_room(known)
    found = find(name).decide(known, room, 0)
    assert np.bincount(found.maker, minlength=4).tolist() == room.upper.tolist()
    assert found.machine_says.shape == (60,)


def test_policies_without_people():
    known = beliefs()
    room = equal_room(known)
    assert set(find("full-rejection").decide(known, room, 0).machine_says) == {1}
    alone = find("machine").decide(known, room, 0)
    assert (alone.maker == 0).all()
    costs = known.costs[0]
    cheaper = known.p[:, 0] * costs[0, 1] < known.p[:, 1] * costs[1, 0]
    assert (alone.machine_says == cheaper).all()
    paper = find("only-classifier").decide(known, room, 0)
    assert (paper.machine_says == known.paper["hem"].p.argmax(axis=1)).all()


def test_rejection_gives_people_what_the_classifier_is_least_sure_of():
    known = beliefs()
    room = Room(np.array([0, 0, 0, 0]), np.array([60, 5, 5, 0]))
    found = find("rejection").decide(known, room, 1)
    assert np.bincount(found.maker, minlength=4).tolist() == [50, 5, 5, 0]
    sure = known.method("hem").p.max(axis=1)
    assert sure[found.maker > 0].max() <= sure[found.maker == 0].min()


def test_the_corners_of_the_mixture_are_the_two_methods():
    """With two classes P~ and expected cost are one belief, so the cube's ends are the methods themselves."""
    known = beliefs(seed=3)
    room = equal_room(known)
    for made_of in (("paper", "hem", "correct"), ("ours", "decisions", "cost")):
        name = MIXTURES[made_of]
        found, asked = mixture(*made_of)(known, room, 0), find(name).decide(known, room, 0)
        assert found.maker.tolist() == asked.maker.tolist(), name
        assert found.machine_says.tolist() == asked.machine_says.tolist()


def test_expected_cost_from_correctness_is_the_expected_cost():
    """(sum of c p) (1 - P~(right)) with the decision model's P~ plans as its expected cost does."""
    known = beliefs(seed=4)
    weight = known.costs.sum(axis=2)
    bent = known.p * weight
    right = np.einsum("iy,ijyy->ij", bent / bent.sum(axis=1, keepdims=True), known.q)
    as_hem = replace(known, paper={"hem": Correctness(known.p, right)})
    room = equal_room(known)
    found = mixture("ours", "hem", "cost")(as_hem, room, 0)
    assert found.maker.tolist() == find("deccaf").decide(known, room, 0).maker.tolist()


def test_the_band_brings_the_groups_together():
    """Within the same limits: expected false-positive rates at most 5 points apart, at a price."""
    known = beliefs(cases=200, seed=5)
    room = equal_room(known)
    opinions, rows = Opinions.of(known.p, known.q, known.costs), np.arange(len(known))

    def apart(found):
        wrong = opinions.wrong(rows, found.maker[:, None].astype(np.int32), "fpr")
        rates = [wrong[known.group == g].sum() / known.p[known.group == g, 0].sum() for g in ("old", "young")]
        return abs(rates[0] - rates[1]), known.loss(known.q)[rows, found.maker].sum()

    plain, banded = (apart(find(name).decide(known, room, 0)) for name in ("deccaf", "deccaf-banded"))
    assert banded[0] <= 0.05 + 1e-9
    assert plain[1] <= banded[1] + 1e-9
    with pytest.raises(ConfigError, match="groups"):
        find("deccaf-banded").decide(replace(known, group=None), room, 0)


def test_beliefs_of_some_of_the_cases():
    known = beliefs()
    rows = np.array([3, 1, 50])
    part = known.take(rows)
    assert len(part) == 3
    np.testing.assert_array_equal(part.loss(part.q), known.loss(known.q)[rows])
    np.testing.assert_array_equal(part.method("ova").correct, known.method("ova").correct[rows])
    assert part.group.tolist() == ["old", "young", "young"]


def test_the_exact_plan_is_never_dearer_than_the_greedy_one():
    for seed in range(20):
        known = beliefs(seed=seed)
        room, loss = equal_room(known), known.loss(known.q)
        rows = np.arange(len(known))
        best = optimal(loss, known.machine_says(), room, 0)
        first_come = greedy(loss, known.machine_says(), room)
        assert best.plan is not None
        assert loss[rows, best.maker].sum() <= loss[rows, first_come.maker].sum() + 1e-9


def test_greedy_takes_the_best_maker_with_room_in_order_of_arrival():
    loss = np.array([[0.5, 0.1, 0.3], [0.5, 0.1, 0.3], [0.5, 0.1, 0.6]])
    room = Room(np.array([0, 0, 0]), np.array([3, 1, 1]))
    assert greedy(loss, np.zeros(3, int), room).maker.tolist() == [1, 2, 0]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.lists(st.integers(0, 6), min_size=2, max_size=4))
def test_greedy_and_random_hold_lower_and_upper_limits(seed, slack):
    rng = np.random.default_rng(seed)
    lower = rng.integers(0, 4, len(slack))
    upper = lower + np.array(slack)
    cases = int(rng.integers(lower.sum(), upper.sum() + 1))
    known = beliefs(cases, len(slack) - 1, seed=seed)
    room = Room(lower, upper)
    for found in (
        greedy(known.loss(known.q), known.machine_says(), room),
        find("random-experts").decide(known, room, seed),
    ):
        load = np.bincount(found.maker, minlength=len(slack))
        assert (load >= lower).all()
        assert (load <= upper).all()


def test_greedy_and_random_say_when_there_is_no_room():
    known = beliefs(cases=10)
    room = Room(np.zeros(4, int), np.full(4, 2))
    with pytest.raises(CapacityError, match="nobody has room for case 8 of 10"):
        greedy(known.loss(known.q), known.machine_says(), room)
    with pytest.raises(CapacityError, match="10 cases, limits from 0 to 8"):
        find("random").decide(known, room, 0)


def test_random_is_seeded_and_differs_by_seed():
    known = beliefs()
    first, same, other = (find("random").decide(known, equal_room(known), seed).maker for seed in (1, 1, 2))
    assert (first == same).all()
    assert (first != other).any()


@pytest.mark.parametrize("name", [*WITH_PEOPLE, "oracle-without-limits"])
def test_every_policy_with_people_knows_who_may_get_what(name):
    known = beliefs()
    rng = np.random.default_rng(3)
    eligible = rng.random((60, 4)) < 0.7
    eligible[:, 0] = True
    room = Room(np.array([0, 2, 2, 2]), np.array([60, 12, 12, 12]), eligible)
    found = find(name).decide(known, room, 0)
    assert eligible[np.arange(60), found.maker].all()
    if name != "oracle-without-limits":
        load = np.bincount(found.maker, minlength=4)
        assert ((room.lower <= load) & (load <= room.upper)).all()


@pytest.mark.parametrize("name", ["random", "random-experts", "rejection", "deccaf-blind"])
def test_policies_that_draw_say_how_likely_everybody_was(name):
    known = beliefs()
    room = Room(np.zeros(4, int), np.array([60, 10, 20, 5]))
    found = find(name).decide(known, room, 0)
    load = np.bincount(found.maker, minlength=4)
    assert found.chances.sum(axis=1) == pytest.approx(1)
    assert found.chances.sum(axis=0) == pytest.approx(load)
    assert find("deccaf").decide(known, room, 0).chances is None


def test_a_method_of_ones_own_stands_beside_the_others():
    @policy("test-last-expert", needs=("q",))
    def last(beliefs, room, seed):
        return Decided(np.full(len(beliefs), len(beliefs.experts)), beliefs.machine_says())

    try:
        assert (find("test-last-expert").decide(beliefs(), equal_room(beliefs()), 0).maker == 3).all()
        with pytest.raises(ConfigError, match="registered already"):
            policy("test-last-expert")(last)
    finally:
        del POLICIES["test-last-expert"]


def test_what_a_policy_lacks_is_named():
    known = beliefs()
    bare = Beliefs(known.experts, known.costs, known.p)
    with pytest.raises(ConfigError, match="needs 'hem'"):
        find("deccaf-paper").decide(bare, equal_room(known), 0)
    with pytest.raises(ConfigError, match="decision model"):
        find("deccaf").decide(bare, equal_room(known), 0)
    with pytest.raises(ConfigError, match="did you mean 'deccaf-paper'"):
        find("deccaf-papr")
