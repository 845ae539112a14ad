"""On a cluster a fit and a backtest are those of one machine, to the last bit, whoever dies on the way."""

from __future__ import annotations

import json
import os
import signal
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from deccaf import DeCCaF, History
from deccaf.backtest.options import Options
from deccaf.backtest.run import backtest
from deccaf.cluster import workers_of
from deccaf.data.config import Config
from deccaf.errors import DeccafWarning
from deccaf.models.decisions.log import DecisionLog
from deccaf.models.decisions.rates import ShrunkenRates
from models_world import make_world

OPTIONS = Options(("machine", "deccaf"), split="random", folds=2, draws=2)


class Dying(ShrunkenRates):
    """The first worker that fits it is killed while it does."""

    name = "dying"

    def __init__(self, died: Path) -> None:
        self.died, self.home = died, os.getpid()

    def fit(self, log: DecisionLog, validation: DecisionLog | None = None) -> Dying:
        if os.getpid() != self.home and not self.died.exists():
            self.died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().fit(log, validation)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A scheduler and three workers, each a process: two of them are going to be killed."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=3, threads_per_worker=1, dashboard_address=None) as found:
        yield found


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """240 cases, each decided by two of three people."""
    folder, world, rng = tmp_path_factory.mktemp("log"), make_world(240, 3), np.random.default_rng(0)
    cases = world.features.assign(case_id=[f"c{k}" for k in range(240)], label=world.truth)
    who = np.argsort(rng.random((240, 3)), axis=1)[:, :2].ravel()
    row = np.repeat(np.arange(240), 2)
    said = np.where(rng.random(480) < 0.1 * (1 + who), 1 - world.truth[row], world.truth[row])
    log = {
        "case_id": cases["case_id"].to_numpy()[row],
        "expert_id": np.array([*"abc"])[who],
        "decision": said,
    }
    cases.to_csv(folder / "cases.csv", index=False)
    pd.DataFrame(log).to_csv(folder / "log.csv", index=False)
    (folder / "deccaf.toml").write_text(
        "[costs]\nfalse_positive = 1.0\nfalse_negative = 1.0\n"
        '[model]\ncase_parts = ["logistic"]\ndecision_parts = ["rates", "pooled"]\n'
    )
    return folder


def command(files: Path, name: str) -> list[object]:
    tables = ["--cases", files / "cases.csv", "--decisions", files / "log.csv"]
    return [name, *tables, "--config", files / "deccaf.toml"]


def test_a_fit_whose_worker_dies_gives_the_model_of_one_machine(cluster: Any, tmp_path: Path) -> None:
    world, died = make_world(600, 4), tmp_path / "died"

    def fitted(name: str) -> bytes:
        model = DeCCaF(case_parts=("logistic",), decision_parts=(Dying(died), "pooled", "boosted"))
        model.fit(world.features, world.truth, expert=world.expert, decision=world.decision)
        with pytest.warns(DeccafWarning, match="known to this process alone"):
            model.save(tmp_path / name)
        return (tmp_path / name).read_bytes()

    here = fitted("here.deccaf")
    assert not died.exists()
    with workers_of(cluster.scheduler_address):
        there = fitted("there.deccaf")
    assert died.exists()
    assert there == here


@pytest.mark.long
def test_a_backtest_goes_on_where_it_was_on_workers_that_die(
    cluster: Any, files: Path, tmp_path: Path, run: Any
) -> None:
    config = Config.read(files / "deccaf.toml")
    history = History.read(files / "cases.csv", files / "log.csv", config)
    here = backtest(history, config, OPTIONS)
    told: list[str] = []

    def stopping(text: str) -> None:
        if text.startswith("Split 2"):
            raise KeyboardInterrupt

    def killing(text: str) -> None:
        if not told:
            os.kill(next(one.pid for one in cluster.workers.values() if one.pid), signal.SIGKILL)
        told.append(text)

    with pytest.raises(KeyboardInterrupt):
        backtest(history, config, OPTIONS, stopping, tmp_path)
    (kept,) = tmp_path.rglob("*.npz")
    assert kept.name == "beliefs-0-0.npz"
    with workers_of(cluster.scheduler_address):
        there = backtest(history, config, OPTIONS, killing, tmp_path)
    assert there.to_dict() == here.to_dict()
    pd.testing.assert_frame_equal(there.plan, here.plan, check_exact=True)
    assert sum("learning" in text for text in told) == 4
    told.clear()
    again = backtest(history, config, OPTIONS, told.append, tmp_path)
    assert again.to_dict() == here.to_dict()
    assert not any("learning" in text for text in told)
    assert len([*tmp_path.rglob("*.npz")]) == 4
    asked = ["--split", "random", "--folds", 2, "--draws", 2, "--policies", "machine,deccaf", "--json"]
    code, out, err = run(
        *command(files, "backtest"), *asked, "--scratch", tmp_path, "--cluster", cluster.scheduler_address
    )
    assert code == 0, err
    assert json.loads(out) == json.loads(json.dumps(here.to_dict()))


def test_the_command_fits_on_a_cluster(cluster: Any, files: Path, tmp_path: Path, run: Any) -> None:
    for name, more in {"here": [], "there": ["--cluster", cluster.scheduler_address]}.items():
        code, _, err = run(*command(files, "fit"), "--out", tmp_path / f"{name}.deccaf", *more)
        assert code == 0, err
    assert (tmp_path / "there.deccaf").read_bytes() == (tmp_path / "here.deccaf").read_bytes()
    code, _, err = run(*command(files, "fit"), "--out", tmp_path / "m.deccaf", "--cluster", "nowhere")
    assert code == 2
    assert "expected an address such as tcp://host:8786" in err


def test_large_pieces_are_sent_without_a_word(cluster: Any) -> None:
    with workers_of(cluster.scheduler_address) as workers, warnings.catch_warnings():
        warnings.simplefilter("error")
        assert workers is not None
        assert [*workers.map(len, [np.zeros(1_500_000), np.zeros(1_600_000)])] == [1_500_000, 1_600_000]


def test_a_fit_on_a_cluster_keeps_its_parts(cluster: Any, files: Path, tmp_path: Path, run: Any) -> None:
    asked = [*command(files, "fit"), "--scratch", tmp_path / "kept"]
    more = {"there": ["--cluster", cluster.scheduler_address], "here": []}
    kept = []
    for name, where in more.items():
        code, _, err = run(*asked, "--out", tmp_path / f"{name}.deccaf", *where)
        assert code == 0, err
        kept.append({file.name: file.stat().st_mtime_ns for file in (tmp_path / "kept").iterdir()})
    assert kept[0] == kept[1] != {}
    assert (tmp_path / "there.deccaf").read_bytes() == (tmp_path / "here.deccaf").read_bytes()
