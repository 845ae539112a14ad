"""Searches give the same result for the same seed, and go on where they were killed."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import optuna
import pandas as pd
import pytest

from deccaf.errors import ConfigError
from deccaf.models.budgets import Choice, Range, candidates
from deccaf.models.paper.spaces import (
    CLASSIFIER,
    CLASSIFIER_DEPTH_2,
    EXPERTISE,
    SEARCHES,
    Budget,
    Search,
)
from deccaf.models.paper.tuning import Tuned, tune

SMALL = Search(
    "small",
    {"x": Range(-2.0, 3.0), "k": Range(1, 100, log=True), "kind": Choice(("a", "b")), "fixed": "dart"},
    {"quick": Budget(4, 2)},
)
TRIALS = Budget(8, 4)


def bowl(params: dict[str, Any]) -> float:
    """Least at x = 1, k = 10, kind = 'b'."""
    return float((params["x"] - 1) ** 2 + math.log10(params["k"] / 10) ** 2 + (params["kind"] == "a"))


def same(a: Tuned, b: Tuned) -> bool:
    pd.testing.assert_frame_equal(a.trials.drop(columns="seconds"), b.trials.drop(columns="seconds"))
    return a.params == b.params and a.loss == b.loss


def url(folder: Path) -> str:
    return f"sqlite:///{folder / 'studies.db'}"


def test_the_appendix() -> None:
    assert {
        name: (b.budgets["paper"].trials, b.budgets["paper"].startup) for name, b in SEARCHES.items()
    } == {
        "classifier": (300, 200),
        "classifier-depth-2": (1700, 1500),
        "expertise": (120, 100),
        "expertise-shallow": (120, 100),
    }
    assert CLASSIFIER.space["learning_rate"] == Range(0.001, 1.0, log=False)
    assert CLASSIFIER_DEPTH_2.space["max_depth"] == 2
    assert EXPERTISE.space["num_leaves"] == Range(100, 1000, log=True)
    assert EXPERTISE.space["max_depth"].whole
    assert not EXPERTISE.space["reg_alpha"].whole
    for search in SEARCHES.values():
        assert search.space["boosting_type"] == "dart"
        sizes = [search.budgets[name].trials for name in ("quick", "standard", "paper")]
        assert sizes == sorted(sizes)


def test_parts_of_a_search_find_what_it_finds_in_one_go(tmp_path: Path) -> None:
    """Also where the trials of the earlier part went through a file."""
    whole, part = tune(bowl, SMALL, TRIALS, seed=3), None
    for end in (3, 6, 8):
        before = None
        if part is not None:
            part.trials.to_parquet(tmp_path / "trials.parquet")
            before = pd.read_parquet(tmp_path / "trials.parquet")
        part = tune(bowl, SMALL, Budget(end, TRIALS.startup), seed=3, before=before)
    assert part is not None
    assert same(whole, part)


def test_the_best_trial_with_fixed_parameters() -> None:
    seen: list[dict[str, Any]] = []
    found = tune(lambda params: seen.append(params) or bowl(params), SMALL, Budget(40, 10), seed=1)  # type: ignore[func-returns-value]
    assert found.loss == min(map(bowl, seen)) == bowl(found.params)
    assert found.loss < 0.2
    assert found.params["fixed"] == "dart"
    assert list(found.trials.columns) == ["trial", "loss", "seconds", "x", "k", "kind"]
    assert all(isinstance(params["k"], int) and 1 <= params["k"] <= 100 for params in seen)


def test_the_same_seed_gives_the_same_trials() -> None:
    first, second = (tune(bowl, SMALL, TRIALS, seed=5) for _ in range(2))
    assert same(first, second)
    other = tune(bowl, SMALL, TRIALS, seed=6)
    assert not first.trials["x"].equals(other.trials["x"])
    assert first.trials["x"].nunique() == 8, "no trial is drawn twice"


def test_kept_in_a_database_or_not_is_the_same(tmp_path: Path) -> None:
    assert same(tune(bowl, SMALL, TRIALS, seed=5), tune(bowl, SMALL, TRIALS, seed=5, storage=url(tmp_path)))


def test_finished_trials_are_not_run_again(tmp_path: Path) -> None:
    calls: list[float] = []

    def counted(params: dict[str, Any]) -> float:
        calls.append(params["x"])
        return bowl(params)

    half = tune(counted, SMALL, Budget(3, 4), seed=5, storage=url(tmp_path), study="s")
    whole = tune(counted, SMALL, TRIALS, seed=5, storage=url(tmp_path), study="s")
    assert len(half.trials) == 3
    assert len(calls) == 8
    assert same(whole, tune(counted, SMALL, TRIALS, seed=5, storage=url(tmp_path), study="s"))
    assert len(calls) == 8
    assert same(half, tune(counted, SMALL, Budget(3, 4), seed=5, storage=url(tmp_path), study="s"))
    assert same(whole, tune(bowl, SMALL, TRIALS, seed=5))


def test_an_interrupted_search_goes_on(tmp_path: Path) -> None:
    calls = 0

    def stops(params: dict[str, Any]) -> float:
        nonlocal calls
        calls += 1
        if calls == 6:
            raise KeyboardInterrupt
        return bowl(params)

    with pytest.raises(KeyboardInterrupt):
        tune(stops, SMALL, TRIALS, seed=5, storage=url(tmp_path))
    assert same(tune(stops, SMALL, TRIALS, seed=5, storage=url(tmp_path)), tune(bowl, SMALL, TRIALS, seed=5))
    assert calls == 9


CHILD = """
import sys, time
sys.path.insert(0, sys.argv[1])
from test_tuning import SMALL, TRIALS, bowl
from deccaf.models.paper.tuning import tune
def slow(params):
    with open(sys.argv[3], "a") as log:
        log.write("x")
    time.sleep(0.15)
    return bowl(params)
tune(slow, SMALL, TRIALS, seed=5, storage=sys.argv[2], study="killed")
"""


def test_a_killed_process_is_resumed_to_the_same_result(tmp_path: Path) -> None:
    log = tmp_path / "calls"
    command = [sys.executable, "-c", CHILD, str(Path(__file__).parent), url(tmp_path), str(log)]
    child = subprocess.Popen(command, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"})
    limit = time.monotonic() + 30
    while not (log.exists() and log.stat().st_size >= 3) and time.monotonic() < limit:
        time.sleep(0.02)
    child.send_signal(signal.SIGKILL)
    child.wait()
    begun = log.stat().st_size
    assert 3 <= begun < TRIALS.trials

    left = optuna.load_study(study_name="killed", storage=url(tmp_path))
    states = [trial.state.name for trial in left.trials]
    finished = states.count("COMPLETE")
    assert finished >= begun - 1
    calls: list[float] = []
    whole = tune(
        lambda params: calls.append(0.0) or bowl(params),  # type: ignore[func-returns-value]
        SMALL,
        TRIALS,
        seed=5,
        storage=url(tmp_path),
        study="killed",
    )
    assert len(calls) == TRIALS.trials - finished
    assert same(whole, tune(bowl, SMALL, TRIALS, seed=5))


@pytest.mark.parametrize("stored", [True, False])
def test_parallel_trials(tmp_path: Path, stored: bool) -> None:
    reports: list[tuple[int, int, float]] = []
    storage = url(tmp_path) if stored else None
    found = tune(
        bowl, SMALL, Budget(6, 3), seed=2, storage=storage, jobs=2, progress=lambda *now: reports.append(now)
    )
    assert len(found.trials) == 6
    assert found.loss == found.trials["loss"].min()
    assert found.trials["x"].nunique() == 6
    assert reports[-1] == (6, 6, found.loss)
    if stored:
        assert same(found, tune(bowl, SMALL, Budget(6, 3), seed=2, storage=storage))


def test_progress_is_reported_after_each_trial() -> None:
    reports: list[tuple[int, int, float]] = []
    found = tune(bowl, SMALL, "quick", progress=lambda *now: reports.append(now))
    assert [(done, wanted) for done, wanted, _ in reports] == [(k, 4) for k in range(1, 5)]
    best = [loss for *_, loss in reports]
    assert best == sorted(best, reverse=True)
    assert best[-1] == found.loss


def test_nothing_is_printed(
    capfd: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder, tmp_path: Path
) -> None:
    tune(bowl, SMALL, "quick", storage=url(tmp_path))
    assert capfd.readouterr() == ("", "")
    assert not list(recwarn)


@pytest.mark.parametrize(
    "change", [{"seed": 6}, {"data": "other"}, {"search": EXPERTISE}, {"budget": Budget(12, 3)}]
)
def test_another_search_under_the_same_name_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    options: dict[str, Any] = {"search": SMALL, "budget": Budget(1, 6), "seed": 5, "data": "d"}
    tune(bowl, **options, storage=url(tmp_path), study="s")
    with pytest.raises(ConfigError, match="study 's' was begun with another"):
        tune(bowl, **{**options, **change}, storage=url(tmp_path), study="s")


def test_losses_that_are_not_numbers() -> None:
    found = tune(lambda params: math.nan if params["kind"] == "a" else bowl(params), SMALL, TRIALS, seed=3)
    assert found.params["kind"] == "b"
    assert len(found.trials) == 8
    with pytest.raises(ConfigError, match="none of 4 trials gave a finite loss"):
        tune(lambda _: math.nan, SMALL, "quick")


def test_an_error_in_the_objective_is_the_callers() -> None:
    with pytest.raises(ZeroDivisionError):
        tune(lambda _: 1 / 0, SMALL, "quick")


def test_unknown_budget_and_storage() -> None:
    with pytest.raises(ConfigError, match="did you mean 'quick'"):
        tune(bowl, SMALL, "quik")
    with pytest.raises(ConfigError, match="cannot open the storage"):
        tune(bowl, SMALL, "quick", storage="sqlite:////nowhere/at/all.db")
    with pytest.raises(ConfigError, match="too few"):
        Budget(0, 0)
    with pytest.raises(ConfigError, match="empty"):
        Range(2, 2)


def test_larger_budgets_try_more_settings_within_their_spaces() -> None:
    known = [{"max_depth": 2}]
    quick, standard = (candidates(known, EXPERTISE.space, budget, 0) for budget in ("quick", "standard"))
    assert quick == known
    assert standard[:1] == known
    assert len(standard) == 21
    assert all(2 <= setting["max_depth"] <= 20 for setting in standard)
    assert all(0.005 <= setting["learning_rate"] <= 0.5 for setting in standard[1:])
    assert candidates(known, EXPERTISE.space, "standard", 0) == standard
    with pytest.raises(ConfigError, match="did you mean 'quick'"):
        candidates(known, EXPERTISE.space, "quik", 0)
