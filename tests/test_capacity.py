from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deccaf import MACHINE, Capacity, CapacityError, ConfigError, DataError

MAKERS = [MACHINE, *(f"analyst_{k}" for k in range(1, 10))]


def test_the_machine_is_unlimited_unless_said() -> None:
    capacity = Capacity.of({"ann": 40, "bob": 25})
    lower, upper = capacity.limits([MACHINE, "ann", "bob", "carl"], cases=100)
    assert upper.tolist() == [100, 40, 25, 0]
    assert lower.tolist() == [0, 0, 0, 0]
    limited = Capacity.of({"ann": 40, MACHINE: 70}, lower={"ann": 10})
    assert [limit.tolist() for limit in limited.limits([MACHINE, "ann"], 100)] == [[0, 10], [70, 40]]


def test_equal_shares_sum_to_the_cases() -> None:
    lower, upper = Capacity.equal(MAKERS, 4457).limits(MAKERS, 4457)
    assert lower.tolist() == upper.tolist()
    assert upper.sum() == 4457
    assert upper.max() - upper.min() == 1


@given(st.integers(0, 100_000), st.integers(1, 60), st.floats(0, 3), st.integers(0, 10**6))
def test_sampled_loads_are_whole_and_sum(cases: int, makers: int, spread: float, seed: int) -> None:
    names = [f"m{k}" for k in range(makers)]
    capacity = Capacity.sample(names, cases, np.random.default_rng(seed), spread=spread)
    lower, upper = capacity.limits(names, cases)
    assert upper.sum() == cases
    assert (lower == upper).all()
    assert (upper >= 0).all()


def test_samples_follow_the_papers_distribution() -> None:
    rng = np.random.default_rng(0)
    loads = np.array([Capacity.sample(MAKERS, 4457, rng).limits(MAKERS, 4457)[1] for _ in range(200)])
    assert loads.mean() == pytest.approx(445.7)
    assert loads.std() == pytest.approx(4457 / 50, rel=0.1)


def test_a_file_with_batches(tmp_path: Path) -> None:
    (tmp_path / "capacity.csv").write_text(
        "batch,expert_id,upper,lower\nmon,ann,40,10\nmon,bob,25,0\ntue,ann,5,0\ntue,machine,50,0\n"
    )
    capacity = Capacity.read(tmp_path / "capacity.csv")
    assert capacity.batches == ("mon", "tue")
    makers = [MACHINE, "ann", "bob"]
    assert [limit.tolist() for limit in capacity.limits(makers, 60, "mon")] == [[0, 10, 0], [60, 40, 25]]
    assert capacity.limits(makers, 55, "tue")[1].tolist() == [50, 5, 0]
    with pytest.raises(CapacityError, match="batch tue: 56 cases, capacity 55"):
        capacity.limits(makers, 56, "tue")
    with pytest.raises(CapacityError, match="batch 'wed' has no row.*mon, tue"):
        capacity.limits(makers, 10, "wed")


def test_absence_of_one_batch_or_all() -> None:
    frame = pd.DataFrame({"batch": [1, 1, 2, 2], "expert_id": ["ann", "bob"] * 2, "upper": [5, 6, 7, 8]})
    capacity = Capacity.from_frame(frame)
    away = capacity.absent("ann", "1")
    assert away.upper["ann"].tolist() == [0, 7]
    assert capacity.absent("bob").upper["bob"].tolist() == [0, 0]
    assert capacity.upper["ann"].tolist() == [5, 7]
    with pytest.raises(DataError, match="'anne' is not on the roster; did you mean 'ann'"):
        capacity.absent("anne")


def test_eligibility_is_a_mask_in_the_order_asked() -> None:
    capacity = Capacity.of({"ann": 1, "bob": 1})
    cases = pd.Index(["a", "b", "c"])
    assert capacity.mask(cases, ["ann"]) is None
    table = pd.DataFrame({"bob": [False, True]}, index=["b", "a"])
    mask = capacity.only(table).mask(cases, ["ann", "bob"])
    assert mask is not None
    assert mask.tolist() == [[True, True], [True, False], [True, True]]
    with pytest.raises(DataError, match="eligibility of 'bob': must be True or False"):
        capacity.only(pd.DataFrame({"bob": ["no"]}))


def test_a_batch_that_does_not_fit() -> None:
    capacity = Capacity.of({"ann": 50, "bob": 45, MACHINE: 0})
    with pytest.raises(CapacityError, match="^120 cases, capacity 95; raise upper limits") as caught:
        capacity.limits([MACHINE, "ann", "bob"], 120)
    assert caught.value.exit_code == 4
    with pytest.raises(CapacityError, match="5 cases, but lower limits ask for 10"):
        Capacity.of({"ann": 50}, lower={"ann": 10}).limits([MACHINE, "ann"], 5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Capacity.of({"ann": -1}), r"'upper': 1 value\(s\).*first: -1 for 'ann'"),
        (lambda: Capacity.of({"ann": 1.5}), r"first: 1.5 for 'ann'"),
        (lambda: Capacity.of({"ann": 5, "bob": 1}, lower={"bob": 2}), "'lower': 1 .*2 > 1 for 'bob'"),
        (lambda: Capacity.of({"ann": 5}, lower={"anne": 2}), "'anne', who has no upper.*mean 'ann'"),
        (lambda: Capacity.from_frame(pd.DataFrame({"expert_id": ["a"]})), "'upper': missing"),
        (lambda: Capacity.from_frame(pd.DataFrame({"expert_id": ["a"], "upper": ["many"]})), "'many' for 'a'"),
        (lambda: Capacity.from_frame(pd.DataFrame({"expert_id": ["a"], "upper": [None]})), "for 'a'"),
        (lambda: Capacity.from_frame(pd.DataFrame({"expert_id": ["a", "a"], "upper": [1, 2]})), "two rows"),
        (lambda: Capacity.from_frame(pd.DataFrame({"expert_id": ["a"], "upper": [1], "x": [1]})), "column 'x'"),
    ],
)  # fmt: skip
def test_impossible_limits_are_refused(make, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        make()
    assert caught.value.exit_code == 3


def test_no_makers_is_a_usage_error() -> None:
    with pytest.raises(ConfigError):
        Capacity.equal([], 5)
