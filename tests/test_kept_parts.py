"""A fit that was stopped goes on where it was, and what it then finds is the same to the last bit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from deccaf import Costs, DeCCaF
from deccaf.data.fingerprint import fingerprint
from deccaf.errors import ConfigError
from deccaf.models.blending.kept_parts import parts_kept_in
from deccaf.models.decisions.pooled import PooledLogistic
from deccaf.models.decisions.rates import ShrunkenRates

CONFIG = "[costs]\nfalse_positive = 0.2\nfalse_negative = 1.0\n"


def history(rows: int, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = pd.DataFrame(
        {"a": rng.normal(size=rows), "b": rng.normal(size=rows), "c": rng.choice(list("pqr"), rows)}
    )
    truth = (rng.random(rows) < 1 / (1 + np.exp(-x["a"]))).astype(int)
    who = rng.choice(["ann", "bob", "cyd"], rows)
    said = np.where(rng.random(rows) < 0.8, truth, 1 - truth)
    return x, truth, who, said


def learned(folder: Path | None, rows: int = 900, seed: int = 0, **settings: object) -> DeCCaF:
    x, truth, who, said = history(rows, seed)
    model = DeCCaF(costs=Costs.binary(false_positive=0.2, false_negative=1.0), **settings)
    with parts_kept_in(folder):
        return model.fit(x, truth, expert=who, decision=said)


def saved(model: DeCCaF, path: Path) -> bytes:
    model.save(path)
    return path.read_bytes()


def stamps(folder: Path) -> dict[str, int]:
    return {file.name: file.stat().st_mtime_ns for file in folder.glob("*.part")}


def test_what_was_fitted_is_not_fitted_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "kept"
    plain = saved(learned(None), tmp_path / "plain.deccaf")
    assert saved(learned(kept), tmp_path / "first.deccaf") == plain
    before = stamps(kept)
    assert len(before) > 4

    def fail(*_: object) -> None:
        raise AssertionError("fitted again")

    monkeypatch.setattr(PooledLogistic, "fit", fail)
    monkeypatch.setattr(ShrunkenRates, "fit", fail)
    assert saved(learned(kept), tmp_path / "again.deccaf") == plain
    assert stamps(kept) == before


def test_what_is_missing_or_damaged_is_fitted(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    plain = saved(learned(kept), tmp_path / "plain.deccaf")
    files = sorted(kept.glob("*.part"))
    for number, file in enumerate(files):
        if number % 3 == 0:
            file.unlink()
        elif number % 3 == 1:
            file.write_bytes(file.read_bytes()[:-100])
    assert saved(learned(kept), tmp_path / "again.deccaf") == plain
    assert sorted(kept.glob("*.part")) == files


@pytest.mark.parametrize("other", [{"rows": 901}, {"seed": 1}])
def test_other_rows_find_nothing(tmp_path: Path, other: dict[str, int]) -> None:
    kept = tmp_path / "kept"
    learned(kept)
    before = set(stamps(kept))
    model = learned(kept, **other)
    assert len(set(stamps(kept)) - before) > 4
    assert saved(model, tmp_path / "a.deccaf") == saved(learned(None, **other), tmp_path / "b.deccaf")


def test_fewer_parts_are_among_those_that_are_there(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    learned(kept)
    before = stamps(kept)
    learned(kept, decision_parts=("rates",), case_parts=("logistic",))
    assert stamps(kept) == before


def test_a_killed_fit_goes_on_where_it_was(tmp_path: Path) -> None:
    x, truth, who, said = history(6_000)
    ids = [f"n{k}" for k in range(len(x))]
    x.assign(case_id=ids, label=truth).to_parquet(tmp_path / "cases.parquet")
    log = pd.DataFrame({"case_id": ids, "expert_id": who, "decision": said})
    log.to_parquet(tmp_path / "log.parquet")
    (tmp_path / "deccaf.toml").write_text(CONFIG)
    files = ["--cases", "cases.parquet", "--decisions", "log.parquet", "--config", "deccaf.toml"]

    def fit(out: str, *more: str) -> list[str]:
        return [sys.executable, "-m", "deccaf", "fit", *files, "--out", out, *more]

    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": tmp_path}
    killed = subprocess.Popen(fit("killed.deccaf", "--scratch", "kept"), **quiet)  # type: ignore[call-overload]
    deadline = time.monotonic() + 120
    while len(stamps(tmp_path / "kept")) < 2 and killed.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    before = stamps(tmp_path / "kept")
    assert len(before) >= 2
    subprocess.run(fit("again.deccaf", "--scratch", "kept"), check=True, **quiet)  # type: ignore[call-overload]
    after = stamps(tmp_path / "kept")
    assert {name: after[name] for name in before} == before
    subprocess.run(fit("plain.deccaf"), check=True, **quiet)  # type: ignore[call-overload]
    assert (tmp_path / "again.deccaf").read_bytes() == (tmp_path / "plain.deccaf").read_bytes()


def test_a_file_is_no_folder_to_keep_parts_in(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("")
    with pytest.raises(ConfigError, match="kept is a file; name a folder"):
        learned(tmp_path / "kept")


def test_fingerprints_tell_things_apart() -> None:
    @dataclass
    class Pair:
        first: object
        second: object

    table = pd.DataFrame({"a": [1.0, 2.0], "b": pd.Categorical(["x", "y"])})
    other_levels = table.assign(b=pd.Categorical(["x", "y"], ["x", "y", "z"]))
    things = [
        1, 1.0, "1", None, [1], [[1]], [1, 1], {"a": 1}, {"a": [1]}, np.array([1]), np.array([1.0]), np.array([[1]]),
        table, table.iloc[::-1], table.rename(columns={"a": "c"}), other_levels, Pair(1, 2), Pair(2, 1),
    ]  # fmt: skip
    assert len({fingerprint(thing) for thing in things}) == len(things)
    vectors = [
        pd.DataFrame({"v": [np.zeros(2), np.array([0.0, last])], "t": ["a", "b"]}) for last in (1.0, 1.0, 2.0)
    ]
    assert fingerprint(vectors[0]) == fingerprint(vectors[1]) != fingerprint(vectors[2])
    assert fingerprint(table.copy(), Pair(1, [2.0])) == fingerprint(table, Pair(1, [2.0]))
    with pytest.raises(TypeError, match="object cannot be told"):
        fingerprint(object())
