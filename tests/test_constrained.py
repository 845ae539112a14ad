"""Every constraint against every plan there is; combinations; what clashes; what stops at its time limit."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pandas as pd
import pytest

from deccaf import CapacityError, ConfigError, Costs, DataError, SolverError
from deccaf.assign import (
    Balance,
    ConstrainedPlan,
    GroupBand,
    HandlingMinutes,
    Opinions,
    RandomQuota,
    Reviewers,
    solve,
    solve_constrained,
)

COSTS = Costs.binary(0.3, 1.0).array()
TOLERANCE = 1e-6  # as the solver's


class Desk:
    """A small instance, and whether a plan grants each constraint, written down anew."""

    def __init__(self, seed: int, cases: int = 6, makers: int = 3):
        rng = np.random.default_rng(seed)
        self.n, self.makers = cases, makers
        self.p = rng.dirichlet([1, 1], cases)
        self.q = rng.dirichlet([2, 2], (cases, makers - 1, 2))
        self.opinions = Opinions.of(self.p, self.q, COSTS)
        everyone = np.repeat(np.arange(cases), makers), np.tile(np.arange(makers, dtype=np.int32), cases)
        self.loss = self.opinions.loss(everyone[0], everyone[1][:, None]).reshape(cases, makers)
        self.upper = rng.integers(cases // makers, cases + 1, makers)
        self.upper[0] = cases
        self.lower = np.minimum(rng.integers(0, 2, makers), self.upper)
        self.minutes = np.round(rng.uniform(1, 9, (cases, makers)), 1)
        self.room = np.append(np.inf, np.full(makers - 1, 0.6 * self.minutes.sum() / makers**2))
        self.group = np.array(["old", "young"])[np.arange(cases) % 2]
        self.constraints = {
            "minutes": HandlingMinutes(self.minutes, self.room),
            "deferral": GroupBand(self.group, 0.34, people=range(1, makers), name="deferral"),
            "fpr": GroupBand(self.group, 0.15, "fpr", opinions=self.opinions, name="fpr"),
            "fnr": GroupBand(self.group, 0.15, "fnr", opinions=self.opinions, name="fnr"),
            "balance": Balance(0.08, makers=range(1, makers), around=float(self.loss[:, 1:].mean())),
        }

    def wrong(self, plan: np.ndarray, measure: str) -> np.ndarray:
        rows = np.arange(self.n)
        full = self.opinions.q[rows, plan]
        if measure == "fpr":
            return self.p[:, 0] * full[:, 0, 1]
        return self.p[:, 1] * full[:, 1, 0]

    def grants(self, name: str, plan: np.ndarray) -> bool:
        rows = np.arange(self.n)
        if name == "minutes":
            spent = [self.minutes[plan == j, j].sum() for j in range(self.makers)]
            return bool((np.array(spent) <= self.room + 1e-5).all())
        if name == "balance":
            means = [self.loss[plan == j, j].mean() for j in range(1, self.makers) if (plan == j).any()]
            return all(abs(mean - self.constraints["balance"].around) <= 0.08 + 1e-5 for mean in means)
        if name == "deferral":
            share, base = (plan > 0).astype(float), np.ones(self.n)
        else:
            share = self.wrong(plan, name)
            base = self.p[:, 0] if name == "fpr" else self.p[:, 1]
        rates = [share[self.group == g].sum() / base[self.group == g].sum() for g in ("old", "young")]
        return abs(rates[0] - rates[1]) <= self.constraints[name].within + 1e-5 and len(rows) == self.n

    def best(self, names: tuple[str, ...]) -> float | None:
        """The cheapest of all plans that grants these: the first, in the order of their cost."""
        plans = np.indices((self.makers,) * self.n).reshape(self.n, -1).T
        load = (plans[:, :, None] == np.arange(self.makers)).sum(axis=1)
        plans = plans[((load <= self.upper) & (load >= self.lower)).all(axis=1)]
        costs = self.loss[np.arange(self.n), plans].sum(axis=1)
        for k in np.argsort(costs, kind="stable"):
            if all(self.grants(name, plans[k]) for name in names):
                return float(costs[k])
        return None


ALONE = ["minutes", "deferral", "fpr", "fnr", "balance"]


@pytest.mark.parametrize("names", [(name,) for name in ALONE] + list(combinations(ALONE, 2)) + [tuple(ALONE)])
def test_no_plan_that_grants_the_constraints_is_cheaper(names: tuple[str, ...]) -> None:
    solved = bound = 0
    for seed in range(6):
        desk = Desk(seed)
        best = desk.best(names)
        constraints = [desk.constraints[name] for name in names]
        if best is None:
            with pytest.raises(CapacityError, match="clash|cannot be granted"):
                solve_constrained(desk.loss, desk.upper, desk.lower, constraints=constraints, prices=False)
            continue
        plan = solve_constrained(
            desk.loss, desk.upper, desk.lower, constraints=constraints, gap=1e-9, prices=False
        )
        assert all(desk.grants(name, plan.maker) for name in names)
        assert (plan.load <= desk.upper).all()
        assert (plan.load >= desk.lower).all()
        assert plan.objective == pytest.approx(best, abs=1e-6)
        assert plan.loss == pytest.approx(desk.loss[np.arange(6), plan.maker])
        assert plan.objective == pytest.approx(plan.loss.sum())
        assert plan.bound <= best + 1e-9
        assert plan.gap <= 1e-6
        solved += 1
        bound += best > desk.best(()) + 1e-9
    assert solved > 0
    assert bound > 0  # the constraint mattered somewhere


def best_with_reviewers(
    desk: Desk, counts: np.ndarray, sets: dict[int, list[tuple[int, ...]]]
) -> float | None:
    found = []
    price = {
        (i, group): desk.opinions.loss(np.array([i]), np.array([group], np.int32))[0]
        for i in range(desk.n)
        for group in sets[int(counts[i])]
    }
    for choice in product(*[sets[int(k)] for k in counts]):
        load = np.bincount([j for group in choice for j in group], minlength=desk.makers)
        if (load <= desk.upper).all() and (load >= desk.lower).all():
            found.append(sum(price[i, group] for i, group in enumerate(choice)))
    return min(found, default=None)


@pytest.mark.parametrize("seed", range(6))
def test_reviewers_are_distinct_free_of_conflict_and_have_a_senior(seed: int) -> None:
    desk = Desk(seed, cases=5, makers=5)
    counts = np.array([1, 2, 2, 1, 3])
    pairs = [pair for pair in combinations(range(1, 5), 2) if pair != (1, 2) and {3, 4} & set(pair)]
    triples = [g for g in combinations(range(1, 5), 3) if not {1, 2} <= set(g)]
    best = best_with_reviewers(desk, counts, {1: [(j,) for j in range(5)], 2: pairs, 3: triples})
    constraint = Reviewers(counts, desk.opinions, conflicts=[(2, 1)], one_of=[3, 4], among=range(1, 5))
    if best is None:
        with pytest.raises(CapacityError):
            solve_constrained(desk.loss, desk.upper, desk.lower, constraints=[constraint])
        return
    plan = solve_constrained(desk.loss, desk.upper, desk.lower, constraints=[constraint], gap=1e-9)
    assert plan.maker.shape == (5, 3)
    assert (plan.maker >= 0).sum(axis=1).tolist() == counts.tolist()
    for row in plan.maker[1:3]:
        assert tuple(sorted(row[:2])) in pairs
    assert plan.objective == pytest.approx(best, abs=1e-6)
    assert plan.labels.shape == (5, 3)
    assert plan.labels.isna().to_numpy().sum() == 15 - counts.sum()


@pytest.mark.parametrize("seed", range(4))
def test_the_plan_may_choose_who_gets_a_second_opinion(seed: int) -> None:
    desk = Desk(seed, cases=4, makers=4)
    either = [(j,) for j in range(4)] + list(combinations(range(1, 4), 2))
    best = best_with_reviewers(desk, np.ones(4), {1: either})
    constraint = Reviewers(1, desk.opinions, among=range(1, 4), up_to=2)
    plan = solve_constrained(desk.loss, desk.upper, desk.lower, constraints=[constraint], gap=1e-9)
    assert plan.objective == pytest.approx(best, abs=1e-6)
    assert plan.objective <= solve(desk.loss, desk.upper, desk.lower).objective + 1e-9


def test_reviewers_without_opinions_cost_their_mean() -> None:
    loss = np.array([[0.4, 0.2, 0.1], [0.4, 0.2, 0.1]])
    plan = solve_constrained(loss, [2, 1, 2], constraints=[Reviewers(2)])
    # ann (column 1) has one unit: one case gets her and eve, the other the machine and eve
    assert plan.objective == pytest.approx((0.2 + 0.1) / 2 + (0.4 + 0.1) / 2)
    assert plan.load.tolist() == [1, 1, 2]


@pytest.mark.parametrize("seed", range(4))
def test_a_random_quota_is_exact_and_the_rest_is_optimal_around_it(seed: int) -> None:
    desk = Desk(seed)
    quota = RandomQuota(0.34, seed=seed, among=[1, 2])
    plan = solve_constrained(desk.loss, desk.upper, desk.lower, constraints=[quota])
    drawn = plan.draw.drawn
    assert drawn.sum() == 2
    assert (plan.maker[drawn] == plan.draw.maker[drawn]).all()
    best = min(
        desk.loss[np.arange(6), choice].sum()
        for choice in map(np.array, product(range(3), repeat=6))
        if (choice[drawn] == plan.draw.maker[drawn]).all()
        and (np.bincount(choice, minlength=3) <= desk.upper).all()
        and (np.bincount(choice, minlength=3) >= desk.lower).all()
    )
    assert plan.objective == pytest.approx(best)
    assert plan.gap <= 1e-9
    assert plan.constraints[0].price >= -1e-12


def test_propensities_of_the_random_quota_match_observed_frequencies() -> None:
    n, makers, draws = 12, 3, 4000
    loss = np.random.default_rng(0).random((n, makers))
    eligible = np.ones((n, makers), bool)
    eligible[:4, 2] = False
    seen, chance, drawn = np.zeros((n, makers)), np.zeros((n, makers)), np.zeros(n)
    for seed in range(draws):
        from deccaf.assign.constrained.random_quota import draw
        from deccaf.assign.problem import AssignmentProblem

        found = draw(AssignmentProblem.of(loss, [12, 12, 12], eligible=eligible), RandomQuota(0.5, seed))
        rows = np.flatnonzero(found.drawn)
        drawn[rows] += 1
        seen[rows, found.maker[rows]] += 1
        chance[rows, found.maker[rows]] = found.chance[rows]
        assert found.share == 0.5
    assert drawn / draws == pytest.approx(np.full(n, 0.5), abs=0.035)
    assert seen / drawn[:, None] == pytest.approx(chance, abs=0.05)
    assert chance[0].tolist() == [0.5, 0.5, 0]
    assert chance[5] == pytest.approx([1 / 3] * 3)


def test_a_random_quota_respects_limits_and_says_its_chances() -> None:
    loss = np.random.default_rng(0).random((40, 3))
    plan = solve_constrained(loss, [40, 2, 20], constraints=[RandomQuota(0.25, 1, among=[1, 2])])
    dealt = np.bincount(plan.draw.maker[plan.draw.drawn], minlength=3)
    assert dealt.tolist() == [0, 2, 8]
    assert sorted(set(np.round(plan.draw.chance[plan.draw.drawn], 9))) == [0.2, 0.8]
    with pytest.raises(CapacityError, match="random quota: asks for 20 cases, its makers have room for 3"):
        solve_constrained(loss, [40, 2, 1], constraints=[RandomQuota(0.5, 1, among=[1, 2])])


def test_all_constraints_at_once() -> None:
    desk = Desk(3, cases=60, makers=5)
    limits = np.array([60, 20, 20, 20, 20])
    constraints = [
        HandlingMinutes(desk.minutes, np.append(np.inf, np.full(4, 55.0))),
        Reviewers(
            np.where(desk.loss.min(axis=1) > np.quantile(desk.loss.min(axis=1), 0.8), 2, 1),
            desk.opinions,
            among=range(1, 5),
        ),
        GroupBand(desk.group, 0.02, "fpr", opinions=desk.opinions, name="fpr by age"),
        Balance(0.1, makers=range(1, 5)),
        RandomQuota(0.1, 0, among=range(1, 5)),
    ]
    plan = solve_constrained(desk.loss, limits, constraints=constraints, time_limit=30)
    assert plan.relative_gap <= 0.01
    assert {constraint.name for constraint in plan.constraints} == {
        "handling minutes",
        "reviewers",
        "fpr by age",
        "balance",
        "random quota",
    }
    drawn = np.flatnonzero(plan.draw.drawn)
    assert (plan.maker[drawn] == plan.draw.maker[drawn][:, None]).any(axis=1).all()
    spent = np.zeros(5)
    for i, row in enumerate(plan.maker):
        for j in row[row >= 0]:
            spent[j] += desk.minutes[i, j]
    assert (spent[1:] <= 55 + 1e-5).all()
    assert list(plan.table.columns) == ["constraint", "with", "without", "price", "binds"]
    for constraint in plan.constraints:
        assert constraint.at_least - 1e-9 <= constraint.price <= constraint.at_most + 1e-9


def test_the_price_of_a_constraint_by_hand() -> None:
    # ann saves 0.5 on each of two cases of 30 minutes, but has 45: one goes to the machine
    loss = pd.DataFrame({"machine": [0.6, 0.6, 0.1], "ann": [0.1, 0.1, 0.2]})
    plan = solve_constrained(
        loss, {"machine": 3, "ann": 3}, constraints=[HandlingMinutes([30, 30, 30], {"ann": 45})]
    )
    assert plan.objective == pytest.approx(0.8)
    (price,) = plan.constraints
    assert (price.objective, price.without) == (pytest.approx(0.8), pytest.approx(0.3))
    assert price.price == pytest.approx(0.5)
    assert [part.part for part in price.binding] == ["ann"]
    assert price.binding[0].limit == pytest.approx(45)
    assert price.binding[0].price == pytest.approx(0.5 / 30)  # of a minute, in the relaxation
    assert plan.labels["maker_1"].tolist().count("ann") == 1


def test_a_constraint_that_is_granted_anyway_costs_nothing() -> None:
    desk = Desk(0)
    free = solve(desk.loss, desk.upper, desk.lower)
    plan = solve_constrained(
        desk.loss, desk.upper, desk.lower, constraints=[HandlingMinutes(desk.minutes, [1e9] * 3)]
    )
    assert plan.objective == free.objective
    assert plan.maker.tolist() == free.maker.tolist()
    assert plan.prices == pytest.approx(free.prices)
    assert plan.constraints[0].price == 0
    assert plan.constraints[0].binding == ()
    assert solve_constrained(desk.loss, desk.upper, desk.lower).objective == free.objective
    nothing = solve_constrained(
        desk.loss[:0], desk.upper, constraints=[HandlingMinutes(desk.minutes[:0], [1, 1, 1])]
    )
    assert (nothing.objective, nothing.gap, len(nothing.maker)) == (0, 0, 0)


def test_the_smallest_set_of_constraints_that_clash_is_named() -> None:
    loss = np.random.default_rng(0).random((10, 2))
    everything = HandlingMinutes(np.ones(10), [4.0, 20.0], name="machine minutes")
    little = HandlingMinutes(np.ones(10), [20.0, 5.0], name="ann's minutes")
    harmless = GroupBand(["a", "b"] * 5, 1.0, people=[1])
    with pytest.raises(
        CapacityError, match="machine minutes and ann's minutes clash: no plan grants them together"
    ):
        solve_constrained(loss, [10, 10], constraints=[harmless, everything, little])
    with pytest.raises(CapacityError, match="today: too little cannot be granted within the limits"):
        constraints = [harmless, everything, HandlingMinutes(np.ones(10), [3.0, 3.0], name="too little")]
        solve_constrained(loss, [10, 10], constraints=constraints, name="today")
    with pytest.raises(CapacityError, match="10 cases, capacity 6"):
        solve_constrained(loss, [3, 3], constraints=[everything])


def test_a_clash_of_many_cases_is_found_quickly() -> None:
    desk = Desk(0, cases=3000, makers=8)
    constraints = [
        GroupBand(desk.group, 0.05, "fpr", opinions=desk.opinions),
        HandlingMinutes(desk.minutes, np.append(np.inf, np.full(7, 300.0)), name="little time"),
        Reviewers(2, desk.opinions, among=range(1, 8)),
    ]
    with pytest.raises(CapacityError, match="little time and reviewers clash"):
        solve_constrained(desk.loss, np.append(3000, np.full(7, 1000)), constraints=constraints)


def test_a_clash_of_whole_cases_is_found_too() -> None:
    # three cases, two groups of one and two: shares 0, 1/2, 1 cannot both be a third
    with pytest.raises(CapacityError, match="share cannot be granted"):
        solve_constrained(
            np.ones((3, 2)),
            [2, 2],
            [1, 1],
            constraints=[GroupBand(["a", "b", "b"], 0.1, people=[1], name="share")],
        )


def test_reviewers_that_do_not_fit_are_named() -> None:
    with pytest.raises(CapacityError, match="reviewers cannot be granted"):
        solve_constrained(np.ones((10, 3)), [10, 4, 4], constraints=[Reviewers(2, among=[1, 2])])


def plan_or_message(loss, limits, constraints, seconds: float) -> ConstrainedPlan | str:
    try:
        return solve_constrained(loss, limits, constraints=constraints, time_limit=seconds)
    except SolverError as error:
        return str(error)


@pytest.mark.parametrize("seconds", [1e-3, 0.05, 0.5])
def test_an_interrupted_solver_is_honest(seconds: float) -> None:
    desk = Desk(1, cases=3000, makers=8)
    constraints = [
        HandlingMinutes(desk.minutes, np.append(np.inf, np.full(7, 1200.0))),
        GroupBand(desk.group, 0.001, "fpr", opinions=desk.opinions),
    ]
    limits = np.append(3000, np.full(7, 300))
    full = solve_constrained(desk.loss, limits, constraints=constraints, time_limit=30, prices=False)
    assert full.relative_gap <= 0.002
    plan = plan_or_message(desk.loss, limits, constraints, seconds)
    if isinstance(plan, str):
        assert "raise time_limit" in plan
        return
    assert plan.bound <= full.objective + 1e-9
    assert plan.objective >= full.bound - 1e-9


@pytest.mark.parametrize("seed", range(3))
def test_larger_instances_reach_their_gap_and_hold_every_row(seed: int) -> None:
    desk = Desk(seed, cases=2500, makers=9)
    room = np.append(np.inf, np.full(8, 1100.0))
    limits = np.append(2500, np.full(8, 250))
    constraints = [
        HandlingMinutes(desk.minutes, room),
        GroupBand(desk.group, 0.01, "fnr", opinions=desk.opinions),
        Balance(0.03, makers=range(1, 9)),
    ]
    plan = solve_constrained(desk.loss, limits, constraints=constraints, prices=False)
    assert plan.relative_gap <= 0.002
    spent = np.array([desk.minutes[plan.maker == j, j].sum() for j in range(9)])
    assert (spent <= room + 1e-4).all()
    desk.constraints["fnr"] = constraints[1]
    assert desk.grants("fnr", plan.maker)
    means = [desk.loss[plan.maker == j, j].mean() for j in range(1, 9)]
    assert np.ptp(means) <= 0.06 + 1e-6
    assert plan.objective >= solve(desk.loss, limits).objective - 1e-9


@pytest.mark.parametrize(
    ("constraint", "error", "message"),
    [
        (HandlingMinutes([1, 2], [1, 1, 1]), DataError, "one number per case, or cases x makers"),
        (HandlingMinutes([-1.0] * 6, [1, 1, 1]), DataError, "finite and not negative"),
        (HandlingMinutes([1.0] * 6, [1, 1]), ConfigError, "for each of 3 makers"),
        (Reviewers(4), ConfigError, "1, 2 or 3 reviewers, not 4"),
        (Reviewers(2, conflicts=[(0, 1), (0, 2), (1, 2)]), ConfigError, "leave no group of 2"),
        (Reviewers(2, among=[0, 9]), ConfigError, "columns from 0 to 2"),
        (GroupBand(["a"], 0.1, people=[1]), DataError, "one group label per case"),
        (GroupBand(["a", None] * 3, 0.1, people=[1]), DataError, "3 cases have no group"),
        (GroupBand(["a"] * 6, -1, people=[1]), ConfigError, "within must be a distance"),
        (GroupBand(["a"] * 6, 0.1), ConfigError, "needs `people`"),
        (GroupBand(["a"] * 6, 0.1, "fpr"), ConfigError, "needs `opinions`"),
        (GroupBand(["a"] * 6, 0.1, "tpr"), ConfigError, "measure must be deferral, fpr or fnr"),
        (Balance(-0.1), ConfigError, "within must be a distance"),
        (RandomQuota(1.5), ConfigError, "share must lie between 0 and 1"),
    ],
)
def test_wrong_constraints_are_named(constraint, error, message) -> None:
    desk = Desk(0)
    with pytest.raises(error, match=message):
        solve_constrained(desk.loss, desk.upper, desk.lower, constraints=[constraint])


def test_constraints_have_different_names_and_makers_are_known() -> None:
    desk = Desk(0)
    with pytest.raises(ConfigError, match="two are called 'balance'"):
        solve_constrained(desk.loss, desk.upper, constraints=[Balance(0.1), Balance(0.2)])
    with pytest.raises(ConfigError, match="time_limit"):
        solve_constrained(desk.loss, desk.upper, time_limit=0)
    loss = pd.DataFrame(desk.loss, columns=["machine", "ann", "bob"])
    with pytest.raises(ConfigError, match="'anne' is not one of the makers; did you mean 'ann'"):
        solve_constrained(loss, [6, 6, 6], constraints=[Balance(0.1, makers=["anne"])])
