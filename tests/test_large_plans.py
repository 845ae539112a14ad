"""Plans of more cases than memory is meant for are those that are made in memory, cell by cell."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from assign_instances import ADVERSARIAL
from deccaf import Capacity, DeCCaF
from deccaf.assign import AssignmentProblem, solve_problem, verify
from deccaf.assign.exact import generation, sample_prices, scan
from deccaf.assign.exact.flow import Deadline, Limits
from deccaf.assign.exact.near import Search, near
from deccaf.assign.stored import StoredMask, StoredMatrix
from deccaf.data.files import write_frames
from deccaf.errors import ConfigError, DeccafError
from deccaf.models.expected_cost import LearnedCosts
from deccaf.planning import LargePlan, planner, scratch
from models_world import make_world


def stored(loss: np.ndarray, folder: Path, rows: int = 700) -> StoredMatrix:
    parts = []
    for start in range(0, len(loss), rows):
        parts.append(folder / f"{start:06d}.f64")
        loss[start : start + rows].astype(np.float64).tofile(parts[-1])
    return StoredMatrix.of(parts, loss.shape[1])


def test_a_stored_matrix_is_indexed_as_an_array(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    loss = rng.random((5000, 7))
    matrix, some = stored(loss, tmp_path), np.sort(rng.choice(5000, 900, replace=False))
    rows, columns = rng.integers(0, 5000, 300), rng.integers(0, 7, 300)
    keys = [slice(None), slice(650, 1450), slice(3, 5000, 11), rows, some, (slice(None), 3), (rows, columns)]
    for key in keys:
        assert np.array_equal(matrix[key], loss[key])
    assert matrix[4321, 5] == loss[4321, 5]
    part, inner = matrix.subset(some), loss[some]
    for key in [
        slice(100, 700),
        np.array([5, 800, 2]),
        (slice(None), 0),
        (np.array([899, 0]), np.array([1, 6])),
    ]:
        assert np.array_equal(part[key], inner[key])
    (tmp_path / "000000.f64").write_bytes(b"1" * 100)
    with pytest.raises(DeccafError, match="whole rows of 7 numbers"):
        StoredMatrix.of([tmp_path / "000000.f64"], 7)


def test_a_stored_mask_bars_listed_rows_and_infinite_losses(tmp_path: Path) -> None:
    loss = np.random.default_rng(1).random((3000, 5))
    loss[7, 2] = loss[2999, 0] = np.inf
    listed, allowed = np.array([3, 7, 2500]), np.zeros((3, 5), np.bool_)
    allowed[:, 1] = True
    full = np.isfinite(loss)
    full[listed] &= allowed
    mask = StoredMask(stored(loss, tmp_path), listed, allowed)
    cells = (np.array([2500, 7, 100]), np.array([1, 2, 4]))
    for key in [slice(None), slice(0, 3000, 7), np.array([2500, 3, 8]), (slice(None), 2), cells]:
        assert np.array_equal(mask[key], full[key])
    some = np.array([0, 3, 6, 7, 2999])
    assert np.array_equal(mask.subset(some)[:], full[some])
    assert np.array_equal(mask.subset(np.array([1, 2]))[:], full[[1, 2]])


@pytest.mark.parametrize("kind", ["generic", "ties", "barred", *sorted(ADVERSARIAL)])
def test_the_plan_is_the_one_in_memory_to_the_last_bit(kind: str, tmp_path: Path) -> None:
    rng, eligible = np.random.default_rng(2), None
    if kind in ADVERSARIAL:
        found = ADVERSARIAL[kind](rng, 2500, 10)
        loss, upper, lower, eligible = found.loss, found.upper, found.lower, found.eligible
    else:
        loss = rng.random((4000, 12)) * rng.gamma(2.0, size=(4000, 1))
        upper, lower = np.full(12, 360), np.zeros(12, np.int64)
        if kind == "ties":
            loss = np.round(loss, 1)
        elif kind == "barred":
            eligible = rng.random(loss.shape) < 0.6
            eligible[np.arange(4000), rng.integers(0, 12, 4000)] = True
    loss = np.asarray(loss, np.float64)
    matrix = stored(loss, tmp_path)
    mask = None if eligible is None else StoredMask(matrix, np.arange(len(loss)), np.asarray(eligible))
    here = AssignmentProblem(loss, np.minimum(upper, len(loss)), lower, eligible)
    there = AssignmentProblem(matrix, np.minimum(upper, len(loss)), lower, mask)
    one, other = solve_problem(here, "priced"), solve_problem(there, "priced")
    verify(there, other)
    assert np.array_equal(one.maker, other.maker)
    assert np.array_equal(one.prices, other.prices)
    assert (one.objective, one.gap) == (other.objective, other.gap)


def test_few_arcs_for_very_many_cases_lead_to_the_same_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    found = ADVERSARIAL["two traits"](np.random.default_rng(5), 6000, 110)
    problem = AssignmentProblem.of(found.loss, found.upper, found.lower)
    plain = solve_problem(problem, "priced")
    for module in (generation, sample_prices):
        monkeypatch.setattr(module, "most_arcs", lambda n: 9000)
    few = solve_problem(problem, "priced")
    assert few.objective == pytest.approx(plain.objective, rel=1e-12)
    assert few.gap <= 1e-9 * few.objective


def test_the_cases_of_a_crowded_maker_are_not_read_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without prices one maker is best for all cases, and most have to leave: by the nearest ways out."""
    rng, (n, makers) = np.random.default_rng(3), (20_000, 30)
    loss = 1 + rng.random((n, makers))
    loss[:, 4] = 0.5 * rng.random(n)
    limits = Limits(np.zeros(makers, np.int64), np.full(makers, n // 20), n)
    losses = scan.Losses(stored(loss, tmp_path), None, scan.Jitter.of(0, makers), np.empty(0, np.int64))
    read: list[int] = []
    taken = StoredMatrix._taken
    monkeypatch.setattr(
        StoredMatrix, "_taken", lambda self, rows: read.append(len(rows)) or taken(self, rows)
    )
    search = Search(losses, limits, np.ones(n, np.int64), 0.0, near=1.5)
    found = near(search, np.zeros(makers), np.zeros(makers, np.int64)).arcs
    assert max(read) <= scan.CHUNK_ELEMENTS // makers < n / 4
    ways = loss.copy()
    ways[:, 4] = np.inf
    ways = np.argsort(ways, axis=1)[:, :3]
    for case, row in enumerate(found.rows[:500]):
        mine = set(found.maker[found.case == case].tolist())
        assert {4, *ways[row].tolist()} <= mine
    # what is known of each arc is what the matrix says
    row, priced = found.rows[found.case], loss[found.rows[found.case], found.maker]
    assert np.array_equal(found.cost, priced - loss[row, 4])
    assert np.array_equal(found.tie, losses.jitter.of_arcs(row, found.maker))
    least = np.minimum.reduceat(np.abs(priced), found.first)
    assert np.array_equal(found.rounding, scan.ROUNDING * (loss[found.rows, 4] + least))
    assert (np.diff(row * makers + found.maker) > 0).all()
    assert np.array_equal(np.flatnonzero(found.settled < 0), found.rows)
    assert found.load[4] == n - len(found.rows)


def test_more_arcs_than_memory_has_room_for_wait_for_later_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, (n, makers) = np.random.default_rng(4), (20_000, 30)
    loss = 1 + rng.random((n, makers))
    loss[:, 4] = 0.5 * rng.random(n)
    limits = Limits(np.zeros(makers, np.int64), np.full(makers, n // 20), n)
    losses = scan.Losses(loss, None, scan.Jitter.of(0, makers), np.empty(0, np.int64))
    search = Search(losses, limits, np.ones(n, np.int64), 0.0, near=1.5)
    nobody, count = np.zeros(makers), np.zeros(makers, np.int64)
    plenty = near(search, nobody, count).arcs
    monkeypatch.setattr("deccaf.assign.exact.near.most_arcs", lambda n: 12_000)
    monkeypatch.setattr("deccaf.assign.exact.near.FEWEST_MORE", 1_000)
    few = near(search, nobody, count).arcs
    assert len(few.maker) <= 16_000 < 50_000 < len(plenty.maker)


@pytest.mark.parametrize("barred", [False, True])
def test_prices_of_larger_samples_lead_to_the_same_plan(
    barred: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sample of 66 cases, one of 640 in files, corrected by what all 6,000 would do."""
    found = ADVERSARIAL["two traits"](np.random.default_rng(6), 6000, 30)
    loss, rng = np.asarray(found.loss, np.float64), np.random.default_rng(7)
    listed = np.sort(rng.choice(6000, 2000, replace=False))
    allowed = rng.random((2000, 30)) < 0.7
    allowed[:, 0] = True
    eligible = np.ones(loss.shape, np.bool_)
    eligible[listed] = allowed
    upper = np.maximum(found.upper, 6000 // 20)
    plain = solve_problem(
        AssignmentProblem(loss, upper, np.zeros(30, np.int64), eligible if barred else None), "flow"
    )
    monkeypatch.setattr(scan, "FITS", 0)
    monkeypatch.setattr(generation, "SAMPLE", 2000)
    monkeypatch.setattr(generation, "PER_MAKER", 1)
    steps: list[str] = []
    for name in ("_rounds", "_corrected"):
        step = getattr(generation, name)
        monkeypatch.setattr(
            generation,
            name,
            lambda first, *more, name=name, step=step: steps.append(name) or step(first, *more),
        )
    matrix = stored(loss, tmp_path)
    mask = StoredMask(matrix, listed, allowed) if barred else None
    losses = scan.Losses(matrix, mask, scan.Jitter.of(0, 30), np.empty(0, np.int64))
    limits = Limits(np.zeros(30, np.int64), np.minimum(upper, 6000), 6000)
    made = generation.generate(losses, limits, 0, 1e-9, Deadline(600.0))
    assert steps[:3] == ["_rounds", "_rounds", "_corrected"]
    assert made.around is not None
    arcs, maker = made.around.arcs, made.around.arcs.settled.copy()
    maker[arcs.rows[arcs.case[made.used]]] = arcs.maker[made.used]
    assert (np.bincount(maker, minlength=30) <= upper).all()
    assert loss[np.arange(6000), maker].sum() == pytest.approx(plain.objective, rel=1e-9)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> tuple[DeCCaF, Path]:
    """A model, and a folder of parquet files of 1,200 cases in three batches."""
    world, folder = make_world(900, 3), tmp_path_factory.mktemp("cases")
    model = DeCCaF(case_parts=("logistic",), decision_parts=("rates", "pooled"))
    model.fit(world.features, world.truth, expert=world.expert, decision=world.decision)
    new = make_world(1200, 4).features.astype({"kind": "str"})
    new.insert(0, "case_id", [f"n{k}" for k in range(len(new))])
    new["batch"] = [f"b{k % 7 % 3}" for k in range(len(new))]
    for k in range(3):
        new.iloc[400 * k : 400 * k + 400].to_parquet(folder / f"{k}.parquet")
    return model, folder


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes at which 1,200 cases are many."""
    monkeypatch.setattr("deccaf.fitted.CELLS", 64 * 60)
    monkeypatch.setattr(planner, "IN_MEMORY", 1500)
    monkeypatch.setattr(scan, "FITS", 10**9)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("batches", [False, True])
def test_a_folder_of_cases_is_planned_in_files_as_in_memory(
    desk: tuple[DeCCaF, Path], tmp_path: Path, batches: bool
) -> None:
    model, cases = desk
    limits = Capacity.of(dict.fromkeys(model.experts_, 70 if batches else 210))
    if not batches:
        cases = tmp_path / "all.parquet"
        pd.read_parquet(desk[1]).drop(columns="batch").to_parquet(cases)
    plan = model.assign(cases, limits)
    large = model.assign(cases, limits, scratch=tmp_path / "scratch")
    assert isinstance(large, LargePlan)
    assert not isinstance(plan, LargePlan)
    pd.testing.assert_frame_equal(large.frame, plan.frame, check_exact=True)
    pd.testing.assert_frame_equal(large.table, plan.table, check_exact=True)
    assert large.summary.to_dict() == plan.summary.to_dict()
    assert large.summary.cost_interval == plan.summary.cost_interval
    assert large.about("n17") == plan.about("n17")
    large.write(tmp_path / "plan")
    assert (tmp_path / "plan" / "_SUCCESS").is_file()
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "plan"), plan.frame, check_exact=True)
    large.write(tmp_path / "plan.parquet")
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "plan.parquet"), plan.frame, check_exact=True)


@pytest.mark.usefixtures("small")
def test_what_was_scored_is_not_scored_again(
    desk: tuple[DeCCaF, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, cases = desk
    limits, scored, plain = Capacity.of(dict.fromkeys(model.experts_, 70)), [], LearnedCosts.score

    def score(self: LearnedCosts, *given: object) -> object:
        if len(scored) == 1:
            raise KeyboardInterrupt
        scored.append(1)
        return plain(self, *given)  # type: ignore[arg-type]

    whole = model.assign(cases, limits)
    monkeypatch.setattr(LearnedCosts, "score", score)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            model.assign(cases, limits, scratch=tmp_path)
        scored.clear()
    monkeypatch.setattr(LearnedCosts, "score", plain)
    files = sorted(tmp_path.rglob("loss-*.f64"))
    assert len(files) == 2
    before = [file.stat().st_mtime_ns for file in files]
    assert model.assign(cases, limits, scratch=tmp_path).frame.equals(whole.frame)
    assert [file.stat().st_mtime_ns for file in files] == before
    assert len(list(tmp_path.iterdir())) == 1
    dearer = model.with_costs(model.costs_, 0.01)
    assert dearer.assign(cases, limits, scratch=tmp_path).summary.cost > whole.summary.cost
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.usefixtures("small")
def test_many_losses_of_a_file_go_to_a_temporary_folder(
    desk: tuple[DeCCaF, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, cases = desk
    limits = Capacity.of(dict.fromkeys(model.experts_, 70))
    monkeypatch.setattr("deccaf.fitted.LARGE", 1000)
    plan = model.assign(cases, limits)
    assert isinstance(plan, LargePlan)
    folder = plan.scored.loss.parts[0].parent
    assert folder.is_dir()
    del plan
    assert not folder.exists()
    with monkeypatch.context() as full:
        full.setattr(scratch.shutil, "disk_usage", lambda _: SimpleNamespace(free=10))
        assert not isinstance(model.assign(cases, limits), LargePlan)  # bearable in memory
        full.setattr("deccaf.fitted.BEARABLE", 1000)
        with pytest.raises(DeccafError, match="name another folder"):
            model.assign(cases, limits)
    monkeypatch.setattr("deccaf.fitted.can_tell", lambda _: False)
    unsure = model.assign(cases, limits)
    assert isinstance(unsure, LargePlan)
    assert unsure.frame["loss_low"].isna().all()
    assert not isinstance(model.assign(pd.read_parquet(cases).drop(columns="batch"), limits), LargePlan)


@pytest.mark.usefixtures("small")
def test_an_order_of_work_is_planned_in_memory_as_long_as_that_is_bearable(
    desk: tuple[DeCCaF, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, cases = desk
    limits, due = Capacity.of(dict.fromkeys(model.experts_, 70)), tmp_path / "due.parquet"
    waiting = {"cost": 0.1, "minutes": 5}
    pd.read_parquet(cases).assign(due=2.0, waiting_cost=0.1).to_parquet(due)
    wanted = [model.assign(cases, limits, waiting=waiting), model.assign(due, limits, waiting={"minutes": 5})]
    monkeypatch.setattr("deccaf.fitted.LARGE", 1000)
    found = [model.assign(cases, limits, waiting=waiting), model.assign(due, limits, waiting={"minutes": 5})]
    for one, other in zip(wanted, found, strict=True):
        assert not isinstance(other, LargePlan)
        assert other.summary.waiting is not None
        assert other.frame.equals(one.frame)


def test_where_no_temporary_files_can_be_made_plans_stay_in_memory(
    desk: tuple[DeCCaF, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def nowhere() -> str:
        raise FileNotFoundError("no usable temporary directory")

    model, cases = desk
    monkeypatch.setattr("deccaf.fitted.LARGE", 1000)
    monkeypatch.setattr(scratch.tempfile, "gettempdir", nowhere)
    assert not isinstance(model.assign(cases, Capacity.of(dict.fromkeys(model.experts_, 70))), LargePlan)


def test_scores_of_other_pieces_are_not_taken(
    desk: tuple[DeCCaF, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, cases = desk
    limits = Capacity.of(dict.fromkeys(model.experts_, 70))
    model.assign(cases, limits, scratch=tmp_path)
    monkeypatch.setattr("deccaf.fitted.CHUNK_ROWS", 7)
    model.assign(cases, limits, scratch=tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


def test_what_does_not_work_in_files_says_what_to_do(
    desk: tuple[DeCCaF, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, cases = desk
    limits = Capacity.of(dict.fromkeys(model.experts_, 70))
    with pytest.raises(ConfigError, match="made in memory; leave out scratch"):
        model.assign(cases, limits, constraints={"random": {"share": 0.1}}, scratch=tmp_path)
    with pytest.raises(ConfigError, match="a file or folder"):
        model.assign(pd.read_parquet(cases), limits, scratch=tmp_path)
    monkeypatch.setattr(scratch.shutil, "disk_usage", lambda _: SimpleNamespace(free=10))
    with pytest.raises(DeccafError, match=r"scores take 0\.0 GB, and 0\.0 GB are free there; name another"):
        model.assign(cases, limits, scratch=tmp_path)


def test_a_folder_of_parts_is_whole_or_not_there(tmp_path: Path) -> None:
    def frames(count: int, fails: bool = False) -> object:
        for k in range(count):
            yield pd.DataFrame({"a": [k, k]})
        if fails:
            raise KeyboardInterrupt

    write_frames(frames(3), tmp_path / "plan")  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        write_frames(frames(2, fails=True), tmp_path / "plan")  # type: ignore[arg-type]
    assert len(pd.read_parquet(tmp_path / "plan")) == 6
    write_frames(frames(1), tmp_path / "plan")  # type: ignore[arg-type]
    assert len(pd.read_parquet(tmp_path / "plan")) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["plan"]
    (tmp_path / "plan" / "mine.txt").touch()
    with pytest.raises(ConfigError, match="holds something else"):
        write_frames(frames(1), tmp_path / "plan")  # type: ignore[arg-type]


@pytest.mark.usefixtures("small")
@pytest.mark.long
def test_on_a_cluster_that_loses_a_worker_the_plan_is_the_same(
    desk: tuple[DeCCaF, Path], tmp_path: Path
) -> None:
    model, cases = desk
    limits = Capacity.of(dict.fromkeys(model.experts_, 70))
    here = model.assign(cases, limits, scratch=tmp_path / "here")
    distributed = pytest.importorskip("distributed")
    killed: list[int] = []
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:

        def step(stage: str, done: float = 0, of: float = 0) -> None:
            if stage == "Planning" or (done and not killed):
                killed.append(next(one.pid for one in cluster.workers.values() if one.pid))
                os.kill(killed[-1], signal.SIGKILL)

        there = model.assign(
            cases, limits, scratch=tmp_path / "there", cluster=cluster.scheduler_address, step=step
        )
    assert len(killed) == 2
    pd.testing.assert_frame_equal(there.frame, here.frame, check_exact=True)
    assert there.summary.to_dict() == here.summary.to_dict()
    assert np.array_equal(there.prices, here.prices)
    with pytest.raises(ConfigError, match="needs scratch"):
        model.assign(cases, limits, cluster="local:1")
