"""The assignment engine against its peers: one table, one machine, one run.

    python benchmarks/assignment.py            # everything, about half an hour
    python benchmarks/assignment.py --quick    # the same on small instances, about two minutes
    python benchmarks/assignment.py --only paper,generic

Every instance and solver runs in a fresh process, so that peak memory is its own. Seconds are the process's
own, of all its threads, so that other work on the machine counts little; they start when the matrix is
ready. A peer is stopped after 120 s. Solvers that take less than 3 s run three times; the best counts, for
all alike.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import select
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from assign_instances import ADVERSARIAL, Instance, sigmoid, uneven_limits

STOP_AFTER = 120.0


@dataclass(frozen=True)
class Case:
    """One instance: its size, how its losses are made, and which peers can take part."""

    n: int
    makers: int
    kind: str = "generic"
    dtype: str = "float64"
    peers: tuple[str, ...] = ()


PEERS = ("flow", "pot", "scipy", "highs", "cpsat")
NAMES = {
    "ours": "deccaf",
    "flow": "OR-Tools min-cost flow, full graph",
    "pot": "POT emd",
    "scipy": "SciPy linear_sum_assignment",
    "highs": "HiGHS LP (SciPy)",
    "cpsat": "CP-SAT, as the reference calls it",
}
FULL = {
    "paper": Case(4_457, 10, peers=PEERS),
    "generic": Case(100_000, 20, peers=("flow", "pot", "highs", "cpsat")),
    "large": Case(1_000_000, 50, peers=("flow", "pot")),
    "largest": Case(10_000_000, 50, dtype="float32"),
    "many makers": Case(100_000, 1_000),
    "few cases each": Case(20_000, 2_000),
    "fewer cases": Case(30_000, 1_000),
    "fewer cases (tied)": Case(30_000, 1_000, "rounded"),
    "rounded": Case(1_000_000, 50, "rounded"),
    "all rows equal": Case(1_000_000, 50, "equal"),
    "clipped": Case(1_000_000, 50, "clipped"),
    "fitted": Case(40_000, 201, "fitted", peers=("flow",)),
    "two traits": Case(40_000, 201, "two traits", peers=("flow",)),
    "two traits (more)": Case(60_000, 301, "two traits", peers=("flow",)),
    "roomy machine": Case(40_000, 201, "roomy machine", peers=("flow",)),
    "rank 1": Case(20_000, 200, "rank 1", peers=("flow",)),
    "rank 2": Case(20_000, 200, "rank 2", peers=("flow",)),
    "rank 3": Case(20_000, 200, "rank 3", peers=("flow",)),
    "duplicates": Case(20_000, 200, "duplicates", peers=("flow",)),
    "outliers": Case(20_000, 200, "outliers", peers=("flow",)),
    "near-ties": Case(20_000, 200, "near-ties", peers=("flow",)),
    "chained": Case(20_000, 50, "chained", peers=("flow",)),
    "amounts": Case(40_000, 301, "amounts", peers=("flow",)),
    "fitted and rounded": Case(40_000, 301, "fitted and rounded", peers=("flow",)),
    "clusters": Case(40_000, 301, "clusters", peers=("flow",)),
    "departments": Case(40_000, 301, "departments", peers=("flow",)),
    "ladder": Case(40_000, 301, "ladder", peers=("flow",)),
}
QUICK = {
    "paper": Case(4_457, 10, peers=PEERS),
    "generic": Case(20_000, 20, peers=("flow", "pot", "highs")),
    "large": Case(100_000, 50, peers=("flow",)),
    "largest": Case(300_000, 50, dtype="float32"),
    "many makers": Case(5_000, 300),
    "rounded": Case(100_000, 50, "rounded"),
    "all rows equal": Case(100_000, 50, "equal"),
    "clipped": Case(100_000, 50, "clipped"),
    **{kind: Case(10_000, 150, kind, peers=("flow",)) for kind in ADVERSARIAL},
}


def instance(case: Case) -> Instance:
    """Adversarial ones by name; else makers of different strengths, and limits that are all equalities."""
    if case.kind in ADVERSARIAL:
        return ADVERSARIAL[case.kind](np.random.default_rng(1), case.n, case.makers)
    upper = uneven_limits(np.random.default_rng(7), case.n, case.makers)
    return Instance(losses(case), upper, upper, None)


def losses(case: Case) -> np.ndarray:
    """1 - P(correct) of makers with different strengths on cases of different difficulty."""
    rng = np.random.default_rng(20_24)
    weights = rng.normal(0, 0.8, (5, case.makers))
    level = rng.normal(-1, 0.5, case.makers)
    loss = np.empty((case.n, case.makers), case.dtype)
    for start in range(0, case.n, 50_000):
        stop = min(start + 50_000, case.n)
        features, difficulty = rng.normal(size=(stop - start, 5)), rng.normal(size=(stop - start, 1))
        loss[start:stop] = sigmoid(features @ weights + level + difficulty)
    if case.kind == "rounded":
        np.round(loss, 3, out=loss)
    elif case.kind == "clipped":
        np.clip(loss, 0.01, 0.99, out=loss)
    elif case.kind == "equal":
        loss[:] = loss[0].copy()
    return loss


def run_ours(made: Instance) -> tuple[float, float]:
    """The engine, as a user calls it."""
    from deccaf.assign import solve

    plan = solve(made.loss, made.upper, made.lower, made.eligible, time_limit=600)
    return plan.objective, plan.gap


def run_flow(made: Instance) -> tuple[float, float]:
    """OR-Tools on all arcs, losses scaled to integers: to 1e-9, or as fine as the solver takes."""
    from ortools.graph.python import min_cost_flow

    (n, makers), loss = made.loss.shape, made.loss
    case, maker = np.divmod(np.arange(n * makers), makers)
    if made.eligible is not None:
        case, maker = np.nonzero(made.eligible)
    scale = min(1e9, 2.0**52 / (n + makers) / float(np.abs(loss).max()))
    solver, room = min_cost_flow.SimpleMinCostFlow(), made.upper - made.lower
    arcs = solver.add_arcs_with_capacity_and_unit_cost(
        np.concatenate([case, np.arange(n, n + makers)]).astype(np.int32),
        np.concatenate([maker + n, np.full(makers, n + makers)]).astype(np.int32),
        np.concatenate([np.ones(len(case)), room]).astype(np.int64),
        np.concatenate([np.rint(loss[case, maker] * scale), np.zeros(makers)]).astype(np.int64),
    )
    rest = n - int(made.lower.sum())
    supplies = np.concatenate([np.ones(n), -made.lower, [-rest]]).astype(np.int64)
    solver.set_nodes_supplies(np.arange(n + makers + 1, dtype=np.int32), supplies)
    assert solver.solve() == solver.OPTIMAL
    used = np.flatnonzero(solver.flows(arcs)[: len(case)])
    return float(loss[case[used], maker[used]].sum()), n / scale


def run_pot(made: Instance) -> tuple[float, float]:
    """POT's network simplex."""
    import ot

    loss, upper, n = made.loss, made.upper, len(made.loss)
    plan = ot.emd(np.full(n, 1 / n), upper / n, loss, numItermax=10**9)
    return float((plan * loss).sum() * n), np.nan


def run_scipy(made: Instance) -> tuple[float, float]:
    """The Hungarian method, each maker's column repeated once per unit of its limit."""
    from scipy.optimize import linear_sum_assignment

    loss, upper = made.loss, made.upper
    columns = np.repeat(np.arange(loss.shape[1]), upper)
    rows, chosen = linear_sum_assignment(loss[:, columns])
    return float(loss[rows, columns[chosen]].sum()), np.nan


def run_highs(made: Instance) -> tuple[float, float]:
    """The linear programme, sparse, through SciPy."""
    from scipy import sparse
    from scipy.optimize import linprog

    loss, upper, (n, makers) = made.loss, made.upper, made.loss.shape
    rows, columns = np.divmod(np.arange(n * makers), makers)
    ones, arcs = np.ones(n * makers), np.arange(n * makers)
    matrix = sparse.vstack(
        [sparse.csr_array((ones, (rows, arcs))), sparse.csr_array((ones, (columns, arcs)))]
    )
    result = linprog(loss.ravel(), A_eq=matrix, b_eq=np.concatenate([np.ones(n), upper]), method="highs")
    assert result.status == 0
    return float(result.fun), np.nan


def run_cpsat(made: Instance) -> tuple[float, float]:
    """One Boolean per arc and a float objective, as the reference implementation has it."""
    from ortools.sat.python import cp_model

    loss, upper, (n, makers) = made.loss, made.upper, made.loss.shape
    model = cp_model.CpModel()
    taken = [[model.new_bool_var("") for _ in range(makers)] for _ in range(n)]
    for row in taken:
        model.add_exactly_one(row)
    for j in range(makers):
        model.add(sum(row[j] for row in taken) == int(upper[j]))
    model.minimize(sum(float(loss[i, j]) * taken[i][j] for i in range(n) for j in range(makers)))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = STOP_AFTER
    status = solver.solve(model)
    assert status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    return solver.objective_value, solver.objective_value - solver.best_objective_bound


def peak_bytes() -> int:
    """Peak memory since `forget_peak`, or since the start where the kernel does not tell."""
    try:
        status = Path("/proc/self/status").read_text()
        return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def forget_peak() -> None:
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def child(case: Case, solver: str) -> None:
    """One measurement, in this process; one line of JSON when ready and one when done."""
    run = globals()[f"run_{solver}"]
    if solver == "pot":
        try:
            import ot  # noqa: F401
        except ImportError:
            print(json.dumps({"note": "not installed"}), flush=True)
            return
    if solver == "ours":
        import deccaf.assign  # noqa: F401
    made = instance(case)
    forget_peak()
    before = peak_bytes()
    print(json.dumps({"ready": True}), flush=True)
    seconds = []
    while not seconds or (seconds[0] < 3 and len(seconds) < 3):
        start = time.process_time()
        objective, gap = run(made)
        seconds.append(time.process_time() - start)
    print(
        json.dumps(
            {
                "seconds": min(seconds),
                "objective": objective,
                "gap": gap,
                "peak": peak_bytes(),
                "more": peak_bytes() - before,
                "matrix": made.loss.nbytes,
            }
        ),
        flush=True,
    )


def measure(case: Case, solver: str, stop_after: float, source: Path | None = None) -> dict[str, float | str]:
    """Run a child, of another version's source tree if one is given.

    The clock for stopping it starts when its matrix is ready.
    """
    command = [sys.executable, __file__, "--child", solver, json.dumps(vars(case))]
    env = os.environ if source is None else {**os.environ, "PYTHONPATH": str(source)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, **pipes, text=True, env=env) as process:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline() or '{"note": "failed"}')
        if "ready" not in first:
            return first
        if not select.select([process.stdout], [], [], stop_after)[0]:
            process.kill()
            return {"note": f"stopped after {stop_after:.0f} s"}
        return json.loads(process.stdout.readline() or '{"note": "failed (out of memory?)"}')


def table(cases: dict[str, Case], stop_after: float) -> None:
    """The comparison, one row per instance and solver."""
    print(f"{'instance':36}{'solver':38}{'seconds':>9}{'peak GB':>9}{'+ GB':>7}{'x ours':>9}  result")
    generic: dict[tuple[int, int], dict] = {}
    for name, case in cases.items():
        ours = measure(case, "ours", 3600)
        label = f"{name}: {case.n:,} x {case.makers} {case.dtype if case.dtype != 'float64' else ''}"
        like = None if case.kind == "generic" else generic.get((case.n, case.makers))
        if case.kind == "generic":
            generic[case.n, case.makers] = ours
        extra = f"{ours['seconds'] / like['seconds']:.1f} x generic" if like and "seconds" in ours else ""
        show(label, "ours", ours, ours, extra)
        patience = (
            stop_after if case.kind == "generic" else 10 * stop_after
        )  # the flow is what they are against
        for peer in case.peers:
            show("", peer, measure(case, peer, patience), ours, "")


def show(label: str, solver: str, found: dict, ours: dict, extra: str) -> None:
    """Print a row."""
    if "note" in found:
        print(f"{label:36}{NAMES[solver]:38}  {found['note']}", flush=True)
        return
    ratio = "" if solver == "ours" else f"{found['seconds'] / ours['seconds']:.1f}"
    if solver == "ours":
        result = f"gap {found['gap'] / abs(found['objective']):.1e} of the objective. {extra}"
    else:
        result = f"objective {(found['objective'] - ours['objective']) / abs(ours['objective']):+.1e} of ours"
    print(
        f"{label:36}{NAMES[solver]:38}{found['seconds']:9.3f}{found['peak'] / 1e9:9.2f}"
        f"{found['more'] / 1e9:7.2f}{ratio:>9}  {result}",
        flush=True,
    )


def growth(quick: bool) -> None:
    """How time grows with cases and with makers."""
    by_cases = [
        Case(n, 50)
        for n in ((10_000, 30_000, 100_000) if quick else (30_000, 100_000, 300_000, 1_000_000, 3_000_000))
    ]
    fit("cases, 50 makers", by_cases, [case.n for case in by_cases])
    by_makers = [
        Case(20_000 if quick else 200_000, j)
        for j in ((10, 30, 100) if quick else (10, 20, 50, 100, 200, 500))
    ]
    fit(f"makers, {by_makers[0].n:,} cases", by_makers, [case.makers for case in by_makers])


def fit(label: str, cases: list[Case], sizes: list[int]) -> None:
    """Time each case and fit the exponent."""
    seconds = [float(measure(case, "ours", 3600)["seconds"]) for case in cases]
    exponent = np.polyfit(np.log(sizes), np.log(seconds), 1)[0]
    points = ", ".join(f"{size:,}: {t:.3f} s" for size, t in zip(sizes, seconds, strict=True))
    print(f"time grows with {label} to the power {exponent:.2f}  ({points})", flush=True)


def pruning_limit(quick: bool) -> None:
    """Where pruning and the J x J certificate stop paying: against our own flow on all arcs."""
    from deccaf.assign import solve

    for makers in (20, 100) if quick else (20, 100, 300, 1_000):
        for per_maker in (5, 20, 100):
            case = Case(makers * per_maker, makers)
            if case.n * makers > 20_000_000:
                continue
            made, seconds = instance(case), {}
            for method in ("priced", "flow"):
                times = [solve(made.loss, made.upper, made.lower, method=method).seconds for _ in range(3)]
                seconds[method] = min(times)
            print(
                f"{case.n:>8,} x {makers:<6,} {per_maker:>4} cases a maker: priced {seconds['priced']:.3f} s,"
                f" all arcs {seconds['flow']:.3f} s",
                flush=True,
            )


def batches(quick: bool) -> None:
    """Throughput of many independent batches."""
    from deccaf.assign import AssignmentProblem, solve_batches

    count = 20 if quick else 200
    case = Case(5_000, 50)
    base, upper = losses(Case(5_000 * 10, 50)), uneven_limits(np.random.default_rng(7), case.n, case.makers)
    problems = [
        AssignmentProblem.of(base[5_000 * (b % 10) : 5_000 * (b % 10 + 1)], upper, upper, name=f"batch {b}")
        for b in range(count)
    ]
    for workers in (1, 2):
        solve_batches(problems[:4], n_jobs=workers)  # start the workers
        start = time.perf_counter()
        solve_batches(problems, n_jobs=workers)
        seconds = time.perf_counter() - start
        print(
            f"{count} batches of 5,000 x 50, {workers} worker{'s'[: workers - 1]}: {seconds:.2f} s,"
            f" {count * 5_000 / seconds:,.0f} cases a second",
            flush=True,
        )


def incremental(quick: bool) -> None:
    """Fifty cases more, one maker absent: from the prices before, and anew."""
    from deccaf.assign import solve

    rng = np.random.default_rng(3)
    sizes = ((4_457, 10), (5_000, 51)) if quick else ((4_457, 10), (5_000, 51), (40_000, 201), (100_000, 20))
    for n, makers in sizes:
        made = ADVERSARIAL["fitted"](np.random.default_rng(1), n + 50, makers)
        roomy = made.upper + made.upper // 20 + 1
        before = solve(made.loss[:n], roomy)
        absent = np.where(np.arange(makers) == rng.integers(makers - 1), 0, roomy + roomy.max() // makers + 1)
        for change, loss, upper in (("50 new cases", made.loss, roomy), ("1 absent", made.loss[:n], absent)):
            seconds, plans = {}, {}
            for how, prices in (("anew", None), ("from prices", before.prices)):
                start = time.process_time()
                plans[how] = solve(loss, upper, warm_prices=prices)
                seconds[how] = time.process_time() - start
            same = "same" if np.array_equal(plans["anew"].maker, plans["from prices"].maker) else "OTHER"
            print(
                f"{n:>8,} x {makers:<4} {change:13} anew {1e3 * seconds['anew']:6.0f} ms,"
                f" from prices {1e3 * seconds['from prices']:6.0f} ms, {same} plan",
                flush=True,
            )


def main() -> None:
    """Parse the arguments and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small instances")
    parser.add_argument("--only", default="", help="instances of the table, by name, separated by commas")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(Case(**json.loads(arguments.child[1])), arguments.child[0])
        return
    cases = QUICK if arguments.quick else FULL
    wanted = [name for name in arguments.only.split(",") if name] or list(cases)
    table({name: cases[name] for name in wanted}, 10.0 if arguments.quick else STOP_AFTER)
    if not arguments.only:
        print()
        growth(arguments.quick)
        print()
        pruning_limit(arguments.quick)
        print()
        batches(arguments.quick)
        print()
        incremental(arguments.quick)


if __name__ == "__main__":
    main()
