"""Folds never split what belongs together, wherever something is chosen."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from deccaf.data.folds import error_of, fold_of
from deccaf.models.blending.calibrate import Calibrator
from deccaf.models.blending.holdout import holdouts


def test_groups_stay_together_and_times_are_stretches() -> None:
    group = np.repeat(np.arange(40), 5)
    fold = fold_of(200, 5, group=group, seed=3)
    assert (pd.Series(fold).groupby(group).nunique() == 1).all()
    assert np.unique(fold).tolist() == [0, 1, 2, 3, 4]
    time = np.random.default_rng(0).permutation(np.arange(200) // 4)
    by_time = fold_of(200, 5, time=time)
    spans = pd.Series(time).groupby(by_time).agg(["min", "max"])
    assert (spans["max"].to_numpy()[:-1] < spans["min"].to_numpy()[1:]).all()
    few = fold_of(200, 5, time=np.arange(200) % 2)  # two times are no five stretches
    assert np.bincount(few).tolist() == [40] * 5


def test_errors_of_means_count_groups() -> None:
    rng = np.random.default_rng(1)
    values = np.repeat(rng.normal(size=100), 9)
    assert error_of(values) == pytest.approx(values.std() / 30)
    assert error_of(values, np.repeat(np.arange(100), 9)) == pytest.approx(values.std() / 10)


def test_a_long_log_by_time_does_not_split_groups() -> None:
    rng = np.random.default_rng(2)
    time, group = pd.Series(np.sort(rng.integers(0, 50, 8000))), pd.Series(rng.integers(0, 2000, 8000))
    (mask,) = holdouts(8000, time=time, group=group, share=0.25)
    assert (pd.Series(mask).groupby(group).nunique() == 1).all()
    (plain,) = holdouts(8000, time=time, share=0.25)
    assert time[plain].min() > time[~plain].max()


def test_calibration_that_knows_groups_by_heart_is_not_chosen() -> None:
    """One prediction and one truth per group: by row isotonic learns the groups, and on new ones it is worse."""
    rng = np.random.default_rng(5)
    group, chance = np.repeat(np.arange(60), 25), np.repeat(rng.uniform(0.05, 0.95, 60), 25)
    target = np.repeat(rng.random(60) < chance[::25], 25).astype(np.int64)
    log_p = np.log(np.column_stack([1 - chance, chance]))
    by_row, by_group = Calibrator().fit(log_p, target), Calibrator().fit(log_p, target, None, group)
    assert by_row.kind_ == "isotonic"  # what choosing by row does
    assert by_group.kind_ == "none"
    new = rng.uniform(0.05, 0.95, 2000)
    new_target, fresh = (rng.random(2000) < new).astype(int), np.log(np.column_stack([1 - new, new]))

    def loss(one: Calibrator) -> float:
        return float(-one.transform(fresh)[np.arange(2000), new_target].mean())

    assert loss(by_group) < loss(by_row)


def test_there_is_one_road_for_folds() -> None:
    source = Path(__file__).parents[1] / "src" / "deccaf"
    own = re.compile(r"KFold|cross_val_(score|predict)|train_test_split|permutation\([^)]*\)(\[[^]]*\])? %")
    found = [
        str(path) for path in source.rglob("*.py") if own.search(path.read_text()) and path.name != "folds.py"
    ]
    assert found == []
