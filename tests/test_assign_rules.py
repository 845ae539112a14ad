"""Ties, determinism, time limits, memory, batches, labels."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tracemalloc
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from deccaf.assign import AssignmentProblem, solve, solve_batches, solve_problem, verify
from deccaf.assign.exact import scan
from deccaf.assign.solve import _jobs
from deccaf.errors import CapacityError, ConfigError, SolverError


@pytest.mark.parametrize("n", [1_000, 60_000])
@pytest.mark.parametrize("columns", [[0, 1], [3, 1], [0, 2, 3]])
def test_tied_makers_get_equal_shares(n, columns):
    loss = np.ones((n, 4))
    loss[:, columns] = 0.25
    load = solve(loss, upper=[n] * 4, seed=1).load
    share = 1 / len(columns)
    assert load.sum() == load[columns].sum()
    assert np.abs(load[columns] - n * share).max() < 5 * np.sqrt(n * share * (1 - share))


def test_ties_in_every_row_differently():
    rng = np.random.default_rng(0)
    loss = rng.integers(0, 3, (50_000, 8)).astype(float)
    plan = solve(loss, upper=[50_000] * 8)
    assert plan.objective == loss.min(axis=1).sum()
    chosen, tied = plan.load, (loss == loss.min(axis=1)[:, None])
    expected = (tied / tied.sum(axis=1)[:, None]).sum(axis=0)
    assert np.abs(chosen - expected).max() < 5 * np.sqrt(expected.max())


def test_tied_makers_share_what_the_limits_leave():
    n = 9_000
    plan = solve(np.zeros((n, 3)), upper=[1_000, n, n])
    assert plan.load[0] == 1_000
    assert abs(int(plan.load[1]) - int(plan.load[2])) < 5 * np.sqrt(n)


def test_the_seed_breaks_ties_and_nothing_else():
    rng = np.random.default_rng(2)
    loss = np.round(rng.random((5_000, 6)), 1)
    first, again, other = (solve(loss, upper=[900] * 6, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(first.maker, again.maker)
    assert not np.array_equal(first.maker, other.maker)
    assert first.objective == pytest.approx(other.objective, rel=1e-13)


PRINT_PLAN = """
import hashlib, numpy as np
from deccaf.assign import solve
from deccaf.assign.exact import scan
scan.threads_available = lambda: {threads}
scan.THREAD_ELEMENTS, scan.CHUNK_ELEMENTS = 1000, {chunk}
loss = np.round(np.random.default_rng(0).random((20_000, 9)), {decimals})
plan = solve(loss, upper=[2_300] * 9, seed=5)
print(hashlib.sha256(plan.maker.tobytes() + plan.prices.tobytes()).hexdigest(), plan.gap)
"""


@pytest.mark.parametrize("decimals", [2, 15])
def test_same_plan_in_every_process_and_with_any_number_of_threads(decimals):
    runs = [(1, 1 << 17), (2, 1 << 17), (3, 5_000)]
    scripts = [PRINT_PLAN.format(threads=t, chunk=c, decimals=decimals) for t, c in runs]
    printed = [subprocess.check_output([sys.executable, "-c", script], text=True) for script in scripts]
    assert len(set(printed)) == 1


@pytest.mark.parametrize(("dtype", "order"), [("f8", "C"), ("f4", "C"), ("f8", "F")])
def test_the_matrix_is_not_copied(dtype, order):
    loss = np.asarray(np.random.default_rng(0).random((150_000, 40)), dtype=dtype, order=order)
    before = hashlib.sha256(loss.tobytes()).digest()
    tracemalloc.start()
    plan = solve(loss, upper=[4_000] * 40)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert plan.method == "priced"
    assert peak < loss.nbytes
    assert hashlib.sha256(loss.tobytes()).digest() == before


def test_a_time_limit_too_short_for_the_full_graph():
    loss = np.random.default_rng(0).random((3_000, 20))
    with pytest.raises(SolverError, match="time limit"):
        solve(loss, upper=[200] * 20, method="flow", time_limit=1e-4)


@pytest.mark.parametrize("method", ["priced", "cpsat", "lp"])
@pytest.mark.parametrize("seconds", [1e-3, 0.3])
def test_out_of_time_means_an_honest_gap_or_an_error(method, seconds):
    rng = np.random.default_rng(1)
    n = 60_000 if method == "priced" else 400
    loss = rng.random((n, 1)) * rng.random((1, 10))
    problem = AssignmentProblem.of(loss, [n // 10] * 10)
    best = solve_problem(problem).objective
    try:
        plan = solve_problem(problem, method, time_limit=seconds)
    except SolverError:
        return
    verify(problem, plan)
    assert plan.objective - best <= plan.gap + 1e-12 * best


def test_a_rejected_time_limit_and_method():
    with pytest.raises(ConfigError, match="time_limit"):
        solve([[1.0]], upper=[1], time_limit=0)
    with pytest.raises(ConfigError, match="method"):
        solve([[1.0]], upper=[1], method="simplex")


def batches(count: int, n: int = 400) -> list[AssignmentProblem]:
    rng = np.random.default_rng(0)
    return [
        AssignmentProblem.of(rng.random((n, 5)), [n // 5] * 5, name=f"batch {number}")
        for number in range(count)
    ]


def test_batches_in_parallel_are_the_same_as_one_by_one():
    problems = batches(6)
    alone = [solve_problem(problem) for problem in problems]
    together = solve_batches(problems, n_jobs=2)
    for one, other, problem in zip(alone, together, problems, strict=True):
        assert np.array_equal(one.maker, other.maker)
        verify(problem, other)


def test_batches_start_processes_only_where_it_pays():
    assert _jobs(batches(6)) == 1
    loss = np.broadcast_to(np.zeros(1), (4_000_000, 20))  # no memory: only its size counts
    large = AssignmentProblem(loss, np.full(20, 4_000_000), np.zeros(20, np.int64))
    assert _jobs([large, large, large]) == min(scan.threads_available(), 1 + 160 // 30)
    assert _jobs([large]) == 1


def test_batches_from_given_prices():
    problems = batches(3)
    plans = solve_batches(problems)
    again = solve_batches(problems, warm_prices=[plan.prices for plan in plans])
    assert all(np.array_equal(a.maker, b.maker) for a, b in zip(plans, again, strict=True))


def test_prices_given_by_label_and_refused():
    loss = pd.DataFrame(np.random.default_rng(0).random((900, 3)), columns=["a", "b", "machine"])
    plan = solve(loss, [300] * 3)
    prices = pd.Series(plan.prices, index=loss.columns)[["machine", "a", "b"]]
    assert np.array_equal(solve(loss, [300] * 3, warm_prices=prices, method="priced").maker, plan.maker)
    for wrong in ([1.0, 2.0], [0, 0, np.nan], prices.drop("a")):
        with pytest.raises(ConfigError, match="one finite price for each of 3 makers"):
            solve(loss, [300] * 3, warm_prices=wrong)


def test_the_certificate_keeps_one_graph_of_makers(monkeypatch):
    """A J x J block a chunk, kept until the end, would be many times the matrix."""
    monkeypatch.setattr(scan, "CHUNK_ELEMENTS", 20_000)
    loss = np.random.default_rng(0).random((4_000, 400))
    losses = scan.Losses(loss, None, scan.Jitter.of(0, 400), np.empty(0, np.int64))
    maker = np.repeat(np.arange(400), 10).astype(np.int32)
    tracemalloc.start()
    graph = scan.residual_pass(losses, maker)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * graph.nbytes
    own = loss[np.arange(4_000), maker]
    assert graph[7, 9] == pytest.approx((loss[70:80, 9] - own[70:80]).min(), abs=1e-13)


def test_an_error_names_the_batch():
    problems = [*batches(2), AssignmentProblem.of(np.ones((120, 2)), [40, 55], name="batch 3")]
    with pytest.raises(CapacityError, match="batch 3: 120 cases, capacity 95"):
        solve_batches(problems, n_jobs=1)


def test_frames_keep_their_labels():
    loss = pd.DataFrame({"ana": [1.0, 5.0, 2.0], "machine": [2.0, 2.0, 2.0]}, index=["a", "b", "c"])
    plan = solve(loss, upper={"machine": np.inf, "ana": 1})
    assert plan.labels.to_dict() == {"a": "ana", "b": "machine", "c": "machine"}
    assert plan.labels.index.equals(loss.index)
    assert plan.labels.name == "maker"
    eligible = pd.DataFrame({"machine": [True, True, False], "ana": True}, index=["c", "b", "a"])
    assert solve(loss, pd.Series({"ana": 3, "machine": 3}), eligible=eligible).labels["a"] == "ana"


def test_chunks_cover_the_matrix_once():
    matrix = np.broadcast_to(0.0, (100_001, 60))
    covered = scan.map_chunks(lambda start, stop: (start, stop), matrix)
    assert covered[0][0] == 0
    assert covered[-1][1] == 100_001
    assert all(a[1] == b[0] for a, b in pairwise(covered))
