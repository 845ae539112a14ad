from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from deccaf import __version__
from deccaf.errors import CapacityError, ConfigError, DataError, ModelFileError, SolverError

CONFIG = '[costs]\nfalse_positive = 0.5\nfalse_negative = 1.0\n[columns]\ncase = "case_id"\n'


@pytest.fixture
def files(tmp_path: Path, cases_frame: pd.DataFrame, decisions_frame: pd.DataFrame) -> dict[str, Path]:
    """A set of files that can be used; each test spoils one."""
    paths = {name: tmp_path / f"{name}.csv" for name in ("cases", "decisions", "capacity")}
    cases_frame.to_csv(paths["cases"], index=False)
    decisions_frame.to_csv(paths["decisions"], index=False)
    paths["capacity"].write_text("expert_id,upper\nann,3\nbob,3\n")
    paths["config"] = tmp_path / "deccaf.toml"
    paths["config"].write_text(CONFIG)
    return paths


def arguments(files: dict[str, Path]) -> list[object]:
    return [part for name, path in files.items() for part in (f"--{name}", path)]


def test_version_and_help(run) -> None:
    assert run("--version") == (0, f"deccaf {__version__}\n", "")
    code, out, _ = run("--help")
    assert code == 0
    assert "simulate" in out
    assert "Exit codes" in out


def test_each_error_has_its_exit_code() -> None:
    codes = [
        error.exit_code for error in (ConfigError, DataError, CapacityError, SolverError, ModelFileError)
    ]
    assert codes == [2, 3, 4, 5, 6]


def test_check_says_what_was_understood(run, files: dict[str, Path]) -> None:
    code, out, _ = run("check", *arguments(files), "--json")
    found = json.loads(out)["facts"]
    assert code == 0
    assert found["cases"] == "8"
    assert found["features"] == "amount, channel (1 numbers, 1 categories)"
    assert found["labels"] == "0: 62.5%, 1: 37.5%"
    assert found["experts"].startswith("2, with 4 to 4")


WIDE = "case_id," + ",".join(f"c{k}" for k in range(10**5)) + "\n"


@pytest.mark.parametrize(
    ("name", "text", "code", "message"),
    [
        ("cases", "", 3, "the file is empty"),
        ("cases", "case_id,label,time\na0,0,1\n", 3, "no feature column"),
        ("cases", "a,b;c,d\n1,2;3,4\n", 3, "columns may be separated in two ways"),
        ("cases", "case_id,x\na0,1\na0,2\n", 3, "'case_id': 1 value(s) stand for more than one case, first: 'a0'"),
        ("cases", "case_id,x,label\na0,1,7\n", 3, "'label': 1 value(s) outside {0, 1}, first: 7 in case 'a0'"),
        ("cases", "case_id,x\na0,1\na1,2\na2,oops\n", 3, "1 of 3 value(s) are no numbers, first: 'oops'"),
        ("cases", WIDE, 3, "100,001 columns; at most 10,000"),
        ("decisions", "case_id,expert_id,decision\nzz,ann,1\n", 3, "'case_id': 1 value(s) name no known case"),
        ("decisions", "case_id,expert\na0,ann\n", 3, "'expert_id': missing"),
        ("capacity", "expert_id,upper\nann,-3\n", 3, "first: -3 for 'ann'"),
        ("capacity", "expert_id,upper\nann,2.5\n", 3, "first: 2.5 for 'ann'"),
        ("capacity", "expert_id,upper,lower\nann,2,3\n", 3, "3 > 2 for 'ann'"),
        ("capacity", "expert_id,upper\nann,2\nmachine,5\n", 4, "8 cases, capacity 7"),
        ("config", CONFIG + 'lable = "y"\n', 2, "[columns] lable: unknown key"),
        ("config", "[costs]\nfalse_positive = inf\nfalse_negative = 1\n", 2, "must be finite"),
        ("config", "[costs]\nfalse_positive = -1\nfalse_negative = 1\n", 2, "not negative"),
        ("config", "[costs]\nmatrix = [[1, 2], [3, 0]]\nclasses = [0, 1]\n", 2, "must cost 0, got 1"),
        ("config", '[costs]\nfalse_positive = "fee"\nfalse_negative = 1\n', 3, "column 'fee': missing"),
    ],
)  # fmt: skip
def test_bad_input_ends_in_its_code_and_names_the_offender(
    run, files: dict[str, Path], name: str, text: str, code: int, message: str
) -> None:
    files[name].write_text(text)
    before = sorted(files["cases"].parent.iterdir())
    started = time.process_time()
    got, out, err = run("check", *arguments(files))
    assert time.process_time() - started < 2
    assert got == code
    assert message in " ".join(err.split())
    assert out == ""
    assert sorted(files["cases"].parent.iterdir()) == before


def test_usage_errors_are_two(run) -> None:
    assert run("check")[0] == 2
    assert run("no-such-command")[0] == 2
    assert run("simulate", "applications", "--rows", "0", "--out", "x.csv")[0] == 2


def test_applications_and_alerts_as_files(run, tmp_path: Path) -> None:
    code, _, err = run("simulate", "applications", "--rows", 60_000, "--out", tmp_path / "a.csv")
    assert code == 0
    assert "60,000 applications" in err
    code, out, _ = run(
        "simulate", "alerts", "--applications", tmp_path / "a.csv", "--out", tmp_path / "b.parquet", "--json"
    )
    alerts = pd.read_parquet(tmp_path / "b.parquet")
    assert code == 0
    assert sum(row["alerts"] for row in json.loads(out)) == len(alerts)
    assert {"case_id", "model_score", "month", "fraud_bool"} <= set(alerts)
    assert alerts["case_id"].is_unique
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.csv", "b.parquet"]
    (tmp_path / "team.toml").write_text(
        "[costs]\nfalse_positive = 1\nfalse_negative = 5\n[[group]]\nname = 'a'\nexperts = 1\n"
    )
    given = ("--cases", tmp_path / "b.parquet", "--config", tmp_path / "team.toml", "--out", tmp_path / "t")
    code, _, err = run("simulate", "team", *given)
    assert code == 3
    assert "b.parquet: column 'label': missing; name the column of labels so" in err


def test_an_output_that_cannot_be_written_leaves_nothing(run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, _, err = run("simulate", "applications", "--rows", 100, "--out", tmp_path / "file" / "a.csv")
    assert code == 2
    assert "cannot be written" in " ".join(err.split())
    code, _, err = run("simulate", "applications", "--rows", 100, "--out", tmp_path / "a.xlsx")
    assert code == 2
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_the_demo_writes_its_report(run, tmp_path: Path) -> None:
    code, out, err = run("demo", "--rows", 100_000, "--out", tmp_path, "--json")
    costs = {row["who decides"]: row["expected cost per 100 cases"] for row in json.loads(out)}
    assert code == 0
    assert costs["deccaf"] < costs["analysts at random"] < costs["everything rejected"]
    assert "report.html" in " ".join(err.split())
    page = (tmp_path / "report.html").read_text()
    for_newcomers, for_the_papers_reader = page.split("<h2>For readers of the paper</h2>")
    assert "An hour more saves" in for_newcomers
    assert "deccaf-paper" not in for_newcomers  # a name that means nothing yet
    assert "deccaf-paper" in for_the_papers_reader
    assert page.count("data:image/png;base64,") == len(list(tmp_path.glob("*.png")))
    assert "http://" not in page
    assert "https://" not in page


def test_the_installed_command_keeps_its_word() -> None:
    script = Path(sys.executable).with_name("deccaf")
    done = subprocess.run(
        [script, "check", "--cases", "none.csv", "--config", "none.toml"], capture_output=True
    )
    assert done.returncode == 2
    assert b"none.toml" in done.stderr
    assert done.stdout == b""
