"""Batches and capacities."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from deccaf import MACHINE, Cases, ConfigError
from deccaf.simulate.testbed import (
    PAPER_SETTINGS,
    Workload,
    batches_by_size,
    batches_by_time,
    paper_capacity,
    sample_capacity,
)

EXPERTS = tuple(f"e{k}" for k in range(1, 10))


def make_cases(times: list[object]) -> Cases:
    frame = pd.DataFrame({"case_id": [f"c{k}" for k in range(len(times))], "x": 1.0, "time": times})
    return Cases.from_frame(frame)


def test_batches_by_size_stay_within_a_month() -> None:
    cases = make_cases([4, 4, 4, 3, 3, 3, 3])
    assert batches_by_size(cases, 2).tolist() == ["3", "3", "4", "1", "1", "2", "2"]
    assert batches_by_size(cases, 4, within_time=False).tolist() == ["1"] * 4 + ["2"] * 3
    shuffled = batches_by_size(cases, 2, seed=1)
    assert shuffled.equals(batches_by_size(cases, 2, seed=1))
    assert shuffled.value_counts().to_dict() == {"1": 2, "2": 2, "3": 2, "4": 1}
    assert set(shuffled.iloc[:3]) == {"3", "4"}
    with pytest.raises(ConfigError, match="at least one case, got 0"):
        batches_by_size(cases, 0)


def test_batches_by_time() -> None:
    cases = make_cases([3, 3, 4, 6, 7])
    assert batches_by_time(cases).tolist() == ["3", "3", "4", "6", "7"]
    assert batches_by_time(cases, 2).tolist() == ["2", "2", "4", "6", "6"]
    dated = make_cases(list(pd.to_datetime(["2024-01-30", "2024-01-31", "2024-02-01"])))
    assert batches_by_time(dated, "M").tolist() == ["2024-01", "2024-01", "2024-02"]
    with pytest.raises(ConfigError, match="needs dates"):
        batches_by_time(cases, "D")
    with pytest.raises(ConfigError, match="positive width"):
        batches_by_time(cases, 0)
    with pytest.raises(ConfigError, match="no time column"):
        batches_by_time(Cases.from_frame(pd.DataFrame({"x": [1.0]}).rename_axis("case_id")))


def batch_of(*sizes: int) -> pd.Series:
    return pd.Series(np.repeat([f"b{k}" for k in range(1, len(sizes) + 1)], sizes))


def test_the_paper_shares_out_a_tenth_each() -> None:
    capacity = paper_capacity("homogeneous", 4457, EXPERTS)
    assert capacity.upper.equals(capacity.lower)
    assert capacity.upper.sum(axis=1).item() == 4457
    assert set(capacity.upper.iloc[0]) == {445, 446}
    same = sample_capacity(batch_of(4457), EXPERTS, Workload(), 0)
    assert same.upper.iloc[0].to_dict() == capacity.upper.iloc[0].to_dict()


def test_the_papers_four_draws() -> None:
    drawn = [paper_capacity(name, 4457, EXPERTS).upper.iloc[0] for name in PAPER_SETTINGS]
    assert len(PAPER_SETTINGS) == 5
    assert all(loads.sum() == 4457 for loads in drawn)
    assert len({tuple(loads) for loads in drawn}) == 5
    assert np.std([loads / 445.7 for loads in drawn[1:]]) == pytest.approx(0.2, abs=0.06)
    assert paper_capacity("variable-2", 100, EXPERTS).upper.equals(
        paper_capacity("variable-2", 100, EXPERTS).upper
    )
    with pytest.raises(ConfigError, match="did you mean 'variable-1'"):
        paper_capacity("varable-1", 100, EXPERTS)


def test_batches_have_limits_of_their_own() -> None:
    workload = Workload(spread=0.3)
    capacity = sample_capacity(batch_of(200, 50, 200), EXPERTS, workload, 4)
    assert capacity.batches == ("b1", "b2", "b3")
    assert capacity.upper.sum(axis=1).tolist() == [200, 50, 200]
    assert not capacity.upper.loc["b1"].equals(capacity.upper.loc["b3"])
    once = sample_capacity(batch_of(200, 50, 200), EXPERTS, Workload(spread=0.3, per_batch=False), 4)
    assert once.upper.loc["b1"].tolist() == once.upper.loc["b3"].tolist()
    again = sample_capacity(batch_of(200, 50, 200), EXPERTS, workload, 4)
    assert again.upper.equals(capacity.upper)


def test_deferral_rate_and_absences() -> None:
    workload = Workload(deferral_rate=0.6, absent=0.34)
    capacity = sample_capacity(batch_of(100, 100, 100, 100), EXPERTS, workload, 1)
    assert (capacity.upper[MACHINE] == 40).all()
    away = capacity.upper[list(EXPERTS)] == 0
    assert (away.sum(axis=1) == 3).all()  # 0.34 of 9, rounded down
    assert len({tuple(row) for row in away.to_numpy()}) > 1
    assert (capacity.upper[list(EXPERTS)].to_numpy()[~away.to_numpy()] == 10).all()
    lower, upper = capacity.limits([MACHINE, *EXPERTS], 100, "b2")
    assert lower.tolist() == upper.tolist()


def test_upper_limits_only() -> None:
    capacity = sample_capacity(batch_of(100), EXPERTS, Workload(deferral_rate=0.9, exact=False), 1)
    assert (capacity.lower == 0).all(axis=None)
    assert capacity.upper.loc["b1", "e1"] == 10
    _, upper = capacity.limits([MACHINE, *EXPERTS], 100, "b1")
    assert upper[0] == 100


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"spread": -0.1}, "spread"),
        ({"deferral_rate": 1.5}, "deferral_rate must lie between 0 and 1"),
        ({"absent": 1.0}, "absent"),
    ],
)
def test_a_wrong_workload(change: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Workload(**change)
    with pytest.raises(ConfigError, match="at least one expert"):
        sample_capacity(batch_of(3), (), Workload(), 0)
