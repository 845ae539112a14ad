"""One case at a time: limits hold in every order, regret is small, a saved day goes on as if never stopped."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deccaf import CapacityError, ConfigError, DataError
from deccaf.assign import Forecast, StreamAssigner, solve
from deccaf.assign.stream.outlook import _with_alike

MAKERS = ["machine", "ann", "bob", "eve"]


def losses(seed: int, cases: int, makers: int = 4) -> np.ndarray:
    rng = np.random.default_rng(seed)
    skill = rng.normal(0, 1, (3, makers))
    return 1 / (1 + np.exp(1 + rng.normal(size=(cases, 3)) @ skill + rng.normal(size=(cases, 1))))


def day_of(cases: int = 400, **limits) -> StreamAssigner:
    forecast = Forecast.of(losses(1, 600), cases, exact=limits.pop("exact", True))
    return StreamAssigner(MAKERS, limits.get("upper", [np.inf, 80, 80, 40]), limits.get("lower"), forecast)


def test_the_better_use_of_scarce_time_is_kept_for_later() -> None:
    # ann saves 0.1 on an easy case and 0.8 on a hard one; she has time for one of two
    past = np.array([[0.2, 0.1], [0.9, 0.1]] * 50)
    desk = StreamAssigner(["machine", "ann"], [np.inf, 1], forecast=Forecast.of(past, arrivals=2, exact=True))
    assert [desk.route(row).maker for row in ([0.2, 0.1], [0.9, 0.1])] == ["machine", "ann"]
    found = desk.regret()
    assert found.cost == found.hindsight == pytest.approx(0.3)
    assert found.greedy == pytest.approx(1.0)  # greedy spends ann on the first
    assert found.share == 0
    assert found.greedy_share == pytest.approx(0.7 / 0.3)


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_limits_hold_in_every_order_of_arrival(data: st.DataObject) -> None:
    cases = data.draw(st.integers(1, 40))
    upper = data.draw(st.lists(st.integers(0, 20), min_size=3, max_size=3))
    lower = [data.draw(st.integers(0, most)) for most in upper]
    exact = data.draw(st.booleans())
    guess = cases if exact else data.draw(st.integers(1, 60))
    rows = np.round(losses(data.draw(st.integers(0, 99)), cases, 4), data.draw(st.integers(1, 6)))
    rows = rows[data.draw(st.permutations(range(cases)))]
    if exact and sum(lower) > cases:
        with pytest.raises(CapacityError, match="lower limits ask for"):
            StreamAssigner(MAKERS, [cases, *upper], [0, *lower], Forecast.of(rows, cases, exact=True))
        return
    desk = StreamAssigner(MAKERS, [cases, *upper], [0, *lower], Forecast.of(rows[:5], guess, exact=exact))
    for row in rows:
        desk.route(row)
        assert (desk.used <= [cases, *upper]).all()
    assert desk.used.sum() == cases
    assert (np.bincount(desk.routed, minlength=4) == desk.used).all()
    if exact:
        assert (desk.used >= [0, *lower]).all()


@pytest.mark.parametrize("exact", [True, False])
def test_regret_is_small_where_the_past_is_like_today(exact: bool) -> None:
    today = losses(1, 1200)[600:]
    desk = day_of(600, upper=[np.inf, 100, 100, 50], exact=exact)
    for row in today:
        desk.route(row)
    found = desk.regret()
    assert found.hindsight == pytest.approx(solve(today, [600, 100, 100, 50]).objective)
    assert 0 <= found.share < 0.015
    assert found.greedy_share > 2 * found.share


def test_equalities_are_met_exactly() -> None:
    desk = day_of(100, upper=[40, 20, 20, 20], lower=[40, 20, 20, 20])
    for row in losses(3, 100):
        desk.route(row)
    assert desk.used.tolist() == [40, 20, 20, 20]
    with pytest.raises(CapacityError, match=r"nobody who may take it has room \(machine, ann, bob, eve\)"):
        desk.route(losses(3, 1)[0])


def test_without_a_forecast_it_learns_from_the_day() -> None:
    desk = StreamAssigner(MAKERS, {"machine": np.inf, "ann": 50, "bob": 50})
    for row in losses(2, 300):
        desk.route(row)
    assert desk.used[3] == 0  # eve is not on the roster
    assert desk.used[1] == desk.used[2] == 50
    assert desk.prices[3] == np.inf


@pytest.mark.parametrize("stop", [0, 1, 57, 200, 399])
def test_a_saved_day_goes_on_with_the_same_assignments(stop: int) -> None:
    whole, first = day_of(upper=[200, 80, 80, 40], lower=[200, 80, 80, 40]), None
    rows = losses(5, 400)
    clock = np.linspace(0, 1, 400)
    for k, row in enumerate(rows):
        if k == stop:
            first = json.loads(json.dumps(whole.to_dict(), allow_nan=False))
        if k == 150:
            whole.hand_back("case 100")
        whole.route(row, case=f"case {k}", at=clock[k])
    restored = StreamAssigner.from_dict(first)
    for k in range(stop, 400):
        if k == 150:
            restored.hand_back("case 100")
        restored.route(rows[k], case=f"case {k}", at=clock[k])
    assert restored.routed.tolist() == whole.routed.tolist()
    assert restored.prices.tolist() == whole.prices.tolist()
    assert restored.regret() == whole.regret()


def test_a_case_handed_back_goes_to_somebody_else_and_frees_the_unit() -> None:
    desk = day_of(10)
    went = desk.route([0.9, 0.1, 0.5, 0.6], case="a17")
    assert went.maker == "ann"
    assert desk.hand_back("a17").maker == "bob"
    assert desk.used.tolist() == [0, 0, 1, 0]
    assert desk.routed.tolist() == [-1, 2]
    assert desk.hand_back("a17").maker == "eve"  # never to ann or bob again
    with pytest.raises(DataError, match="case 'a71' was never routed by name; did you mean 'a17'"):
        desk.hand_back("a71")
    with pytest.raises(DataError, match="case 'a17' was routed before"):
        desk.route([0.1] * 4, case="a17")


def test_a_case_that_only_one_may_take_cannot_be_handed_back() -> None:
    desk = day_of(10)
    desk.route([np.inf, 0.1, np.inf, np.inf], case="a1")
    with pytest.raises(CapacityError, match="nobody but 'ann'"):
        desk.hand_back("a1")
    assert desk.used.tolist() == [0, 1, 0, 0]


def test_the_roster_changes_at_noon() -> None:
    desk = day_of(400, exact=False)
    rows = losses(6, 400)
    for row in rows[:200]:
        desk.route(row)
    before = desk.used.copy()
    desk.absent("ann")
    desk.change({"eve": 150, "bob": 1})
    for row in rows[200:]:
        desk.route(row)
    assert desk.used[1] == before[1]
    assert desk.used[2] == before[2]  # who has more than a new limit keeps it, and gets no more
    assert desk.used[3] > 40
    with pytest.raises(DataError, match="'anna' is not one of the makers; did you mean 'ann'"):
        desk.absent("anna")


def test_a_change_that_cannot_work_is_refused_and_undone() -> None:
    desk = day_of(100, upper=[40, 20, 20, 20])
    with pytest.raises(CapacityError, match="100 cases in all, capacity 80"):
        desk.change({"ann": 0})
    assert desk.upper.tolist() == [40, 20, 20, 20]
    with pytest.raises(CapacityError, match="100 cases in all, but lower limits ask for"):
        day_of(100, upper=[60, 30, 30, 30], lower=[60, 30, 30, 0])


def test_the_pattern_of_the_day_is_used() -> None:
    # mornings bring easy cases and evenings hard ones: ann's time is kept for the evening only if that is known
    easy, hard = np.tile([0.2, 0.1], (50, 1)), np.tile([0.9, 0.1], (50, 1))
    easy[:, 1] -= np.linspace(0, 0.01, 50)
    known = Forecast.of_days([np.vstack([easy, hard])])
    assert known.arrivals == 100
    assert known.remaining(10, None) == 90
    assert known.rest_of_day(60, None, 500, np.random.default_rng(0))[:, 0].min() == 0.9
    desk = StreamAssigner(["machine", "ann"], [np.inf, 50], forecast=known)
    for k, row in enumerate(np.vstack([easy, hard])):
        desk.route(row, at=k / 100)
    assert desk.regret().share < 0.01


def test_a_busy_morning_raises_the_forecast() -> None:
    forecast = Forecast.of(losses(1, 100), 100)
    assert forecast.remaining(50, 0.5) == pytest.approx(50, rel=0.05)
    assert 50 < forecast.remaining(80, 0.5) < 75  # the clock was never kept: it may be an early day too
    dated = Forecast.of(losses(1, 100), 100, at=np.linspace(0, 1, 100))
    assert 60 < dated.remaining(80, 0.5) < 80
    assert forecast.remaining(500, 1.0) == 1  # late arrivals
    assert forecast.remaining(500, None) == 10


def in_order(
    seed: int, cases: int, evening: bool = False, harder: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Times of the clock, and losses: the machine's are worst where cases are hard."""
    rng = np.random.default_rng([seed, cases])
    late = rng.random(cases) < (0.8 if evening else 0.0)
    at = np.sort(np.where(late, 0.7 + 0.3 * rng.random(cases), rng.random(cases)))
    hard = rng.normal(harder, 1, (cases, 1))
    slope = np.array([1.2, 0.5, 0.5, 0.5])
    return at, 1 / (1 + np.exp(1.5 - hard * slope - rng.normal(0, 0.4, (cases, 4))))


def lived(desk: StreamAssigner, at: np.ndarray, rows: np.ndarray) -> StreamAssigner:
    for when, row in zip(at, rows, strict=True):
        desk.route(row, at=float(when))
    return desk


def test_an_evening_rush_is_known_from_the_times_of_past_days() -> None:
    days = [in_order(seed, 200, evening=True) for seed in range(5)]
    known = Forecast.of_days([rows for _, rows in days], [at for at, _ in days])
    assert known.clock
    assert known.remaining(25, 0.6) > 150
    found = lived(
        StreamAssigner(MAKERS, [np.inf, 25, 25, 25], forecast=known), *in_order(9, 200, True)
    ).regret()
    assert found.share < 0.05
    assert found.share < found.greedy_share / 3
    with pytest.raises(DataError, match="times of the cases of each of 2 days"):
        Forecast.of_days([days[0][1]] * 2, [days[0][0]])


def test_without_times_a_late_start_is_not_taken_for_a_quiet_day() -> None:
    days = [losses(seed, count) for seed, count in enumerate((195, 205, 200, 198, 202))]
    by_order = Forecast.of_days(days)
    assert not by_order.clock
    assert by_order.firm > Forecast.of_days([losses(1, n) for n in (100, 300, 150, 250, 200)]).firm
    assert by_order.remaining(28, 0.5) > 120  # 14 % by noon: rather a rush to come than a third of the cases
    assert 75 < by_order.remaining(100, 0.5) < 125
    again = Forecast.from_dict(by_order.to_dict(), 4)
    assert again.remaining(28, 0.5) == by_order.remaining(28, 0.5)


def test_on_a_first_day_people_are_alike_until_cases_tell_them_apart() -> None:
    first = np.array([[0.5, 0.1, 0.3, 0.3]])
    limited = np.array([False, True, True, True])
    few, chance = _with_alike(first, limited)
    assert few.shape == (3, 4)
    assert chance is not None
    means = chance @ few
    assert chance.sum() == pytest.approx(1)
    assert means[0] == 0.5
    assert np.ptp(means[1:]) < 0.02
    many, chance = _with_alike(np.repeat(first, 60, axis=0), limited)
    assert chance is not None
    assert np.ptp((chance @ many)[1:]) > 0.1


def test_the_clock_alone_tells_how_many_will_come() -> None:
    found = lived(StreamAssigner(MAKERS, [np.inf, 25, 25, 25]), *in_order(9, 200)).regret()
    assert found.share < 0.10
    assert found.share < found.greedy_share / 2


def test_a_quiet_day_is_noticed() -> None:
    days = [in_order(seed, 300) for seed in range(5)]
    known = Forecast.of_days([rows for _, rows in days], [at for at, _ in days])
    desk = lived(StreamAssigner(MAKERS, [np.inf, 40, 40, 40], forecast=known), *in_order(9, 180))
    assert desk.used[1:].sum() >= 108
    assert desk.regret().share < min(0.05, desk.regret().greedy_share)


def test_a_hard_day_raises_prices() -> None:
    days = [in_order(seed, 200) for seed in range(5)]
    known = Forecast.of_days([rows for _, rows in days], [at for at, _ in days])
    usual, hard = (
        lived(
            StreamAssigner(MAKERS, [np.inf, 25, 25, 25], forecast=known),
            *(part[:60] for part in in_order(9, 200, harder=h)),
        )
        for h in (0.0, 1.5)
    )
    assert hard.prices[1:].min() > 1.3 * usual.prices[1:].max()


def test_who_may_not_take_a_case_does_not_get_it() -> None:
    rows = losses(8, 300)
    rows[:, 1] = np.where(np.arange(300) % 2, np.inf, rows[:, 1])
    desk = StreamAssigner(MAKERS, [np.inf, 80, 80, 40], forecast=Forecast.of(rows, 300))
    for row in rows:
        desk.route(row)
    assert np.isfinite(rows[np.arange(300), desk.routed]).all()
    state = json.dumps(desk.to_dict(), allow_nan=False)
    assert StreamAssigner.from_dict(json.loads(state)).regret() == desk.regret()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: day_of().route([0.1, 0.2]), DataError, "expected 4 numbers, one per maker"),
        (lambda: day_of().route([np.nan] * 4), DataError, "no usable loss"),
        (lambda: day_of().route([-np.inf] * 4), DataError, "no usable loss"),
        (lambda: day_of().route([0.1] * 4, at=1.5), DataError, "share of the day from 0 to 1, got 1.5"),
        (lambda: StreamAssigner(["a", "a"], [1, 1]), ConfigError, "different names"),
        (lambda: StreamAssigner(["a", "b"], [1]), ConfigError, "1 limits for 2 makers"),
        (lambda: StreamAssigner(["a"], [1.5]), ConfigError, "upper limit of a: expected a whole number"),
        (lambda: StreamAssigner(["a"], [1], [2]), ConfigError, "a: lower limit 2 above upper 1"),
        (lambda: StreamAssigner(["ann"], {"anne": 1}), DataError, "did you mean 'ann'"),
        (lambda: StreamAssigner.from_dict({"format": 9}), DataError, "format 9"),
        (lambda: StreamAssigner.from_dict({"format": 1}), DataError, "makers"),
        (lambda: Forecast.of(losses(1, 3), at=[0, 1, 2]), DataError, "share of the day"),
        (lambda: Forecast.of(losses(1, 3), -1), ConfigError, "arrivals"),
        (lambda: Forecast.of([0.1]), DataError, "expected cases x makers"),
        (lambda: Forecast.of_days([]), DataError, "no past days"),
        (
            lambda: StreamAssigner(["a"], [1], forecast=Forecast.of(losses(1, 3))),
            DataError,
            "4 columns for 1",
        ),
    ],
)
def test_wrong_input_is_named(call, error, message) -> None:
    with pytest.raises(error, match=message):
        call()
