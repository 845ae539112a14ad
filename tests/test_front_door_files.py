"""Ordinary files as people have them: they are read right, or the command line says why not."""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import string
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deccaf import Capacity, Cases, Columns, ConfigError, Costs, DataError, DeCCaF, Decisions
from deccaf.assign import solve
from deccaf.data.files import check_output, read_frame, read_frames

CONFIG = "[costs]\nfalse_positive = 0.5\nfalse_negative = 1.0\n"
PEOPLE = ("007", "7", "ann")
PADDED = ["000007", "865000000000000000000001", "1e1", "2024-01-01", "7", "TRUE", "0x1F", "+5"]
excel = pytest.mark.skipif(importlib.util.find_spec("openpyxl") is None, reason="needs the extra `excel`")


def write(frame: pd.DataFrame, path: Path) -> Path:
    """A table as another program would write it, by the name of the file."""
    if path.name.endswith(".semi.csv"):
        frame.to_csv(path, index=False, sep=";", decimal=",")
    elif ".csv" in path.name:
        frame.to_csv(path, index=False)
    elif path.suffix == ".tsv":
        frame.to_csv(path, index=False, sep="\t")
    elif path.suffix == ".xlsx":
        frame.to_excel(path, index=False)
    else:
        frame.to_parquet(path, index=False)
    return path


FORMATS = [
    "t.csv",
    "t.csv.gz",
    "t.semi.csv",
    "t.tsv",
    "t.parquet",
    pytest.param("t.xlsx", marks=excel),
]


def history(cases: int = 120) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "case_id": [f"{k:06d}" for k in range(cases)],
            "amount": rng.normal(size=cases).round(4),
            "channel": rng.choice(["web", "phone", "branch"], cases),
            "expert_id": rng.choice(PEOPLE, cases),
        }
    )
    frame["label"] = (frame["amount"] + rng.normal(size=cases) > 0.5).astype(int)
    frame["decision"] = np.where(rng.random(cases) < 0.8, frame["label"], 1 - frame["label"])
    return frame


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model of three people, two of whom differ by leading zeros."""
    path = tmp_path_factory.mktemp("model") / "m.deccaf"
    frame = history()
    fitted = DeCCaF(
        Costs.binary(0.5, 1.0), case_parts=("logistic",), decision_parts=("rates",), columns=Columns()
    )
    X = frame[["amount", "channel"]]
    fitted.fit(X, frame["label"], expert=frame["expert_id"], decision=frame["decision"]).save(path)
    return path


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """A history that can be used, as CSV; each test spoils some of it."""
    frame, paths = (
        history(40),
        {name: tmp_path / f"{name}.csv" for name in ("cases", "decisions", "capacity")},
    )
    frame[["case_id", "amount", "channel", "label"]].to_csv(paths["cases"], index=False)
    frame[["case_id", "expert_id", "decision"]].to_csv(paths["decisions"], index=False)
    paths["capacity"].write_text("expert_id,upper\n007,5\n7,5\n")
    paths["config"] = tmp_path / "deccaf.toml"
    paths["config"].write_text(CONFIG)
    return paths


def options(files: dict[str, Path], *names: str) -> list[object]:
    return [part for name in names or files for part in (f"--{name}", files[name])]


def said(err: str) -> str:
    return " ".join(err.split())


def new_cases(ids: list[str]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "case_id": ids,
            "amount": np.linspace(-1.5, 1.75, len(ids)),
            "channel": ["web", "phone"] * (len(ids) // 2),
        }
    )


@pytest.mark.parametrize("name", FORMATS)
def test_ids_come_back_as_they_were_given(run, model: Path, tmp_path: Path, name: str) -> None:
    cases = write(new_cases(PADDED), tmp_path / name)
    roster = tmp_path / "roster.csv"
    roster.write_text("expert_id,upper\n007,2\nann,2\n")
    out = tmp_path / "plan.csv"
    code, _, err = run("assign", "--model", model, "--cases", cases, "--capacity", roster, "--out", out)
    assert code == 0, err
    plan = pd.read_csv(out, dtype=str)
    assert plan["case_id"].tolist() == PADDED
    assert set(plan["maker"]) <= {"machine", "007", "ann"}
    code, text, _ = run(
        "explain", "--model", model, "--cases", cases, "--capacity", roster, "--case", "000007", "--json"
    )
    assert (code, json.loads(text)["maker"]) == (0, plan["maker"].iloc[0])


def test_the_same_person_in_a_number_column_and_in_text(run, model: Path, tmp_path: Path) -> None:
    cases = write(new_cases(PADDED), tmp_path / "cases.csv")
    costs = {}
    for name, ids in {
        "text.csv": ["7", "ann"],
        "mixed.parquet": ["7", "ann"],
        "other.csv": ["007", "ann"],
    }.items():
        roster = write(pd.DataFrame({"expert_id": ids, "upper": [3, 0]}), tmp_path / name)
        arguments = [
            "--model",
            model,
            "--cases",
            cases,
            "--capacity",
            roster,
            "--out",
            tmp_path / "p.csv",
            "--json",
        ]
        code, out, err = run("assign", *arguments)
        assert code == 0, err
        costs[name] = json.loads(out)["cost"]
        assert not any("never seen" in note for note in json.loads(out)["notes"])
    assert costs["text.csv"] == costs["mixed.parquet"] != costs["other.csv"]


@pytest.mark.parametrize(
    ("cases", "log", "code", "message"),
    [
        ([7, 8], ["7", "8"], 0, ""),
        (["7", "8"], [7.0, 8.0], 0, ""),
        (["007", "008"], ["007", "008"], 0, ""),
        (["007", "008"], ["7", "8"], 3, "'7' here and '007' among the cases are two spellings"),
        (["a1", "a2"], ["a1 ", "a2 "], 3, "'a1 ' here and 'a1' among the cases are two spellings"),
        (["A1", "A2"], ["a1", "a2"], 3, "'a1' here and 'A1' among the cases are two spellings"),
        (["a1", "a2"], ["7.0", "8.0"], 3, "2 value(s) name no known case, first: '7.0'; among the cases are 'a1', 'a2'"),
    ],
)  # fmt: skip
def test_ids_match_across_formats_by_their_text(
    run, files: dict[str, Path], cases: list, log: list, code: int, message: str
) -> None:
    folder = files["cases"].parent
    files["cases"] = write(
        pd.DataFrame({"case_id": cases, "x": [0.5, 1.5], "label": [0, 1]}), folder / "c.parquet"
    )
    write(pd.DataFrame({"case_id": log, "expert_id": "ann", "decision": [0, 1]}), folder / "log.parquet")
    write(
        pd.DataFrame({"case_id": log, "expert_id": "ann", "decision": [0, 1]}).astype({"case_id": str}),
        folder / "log.csv",
    )
    for name in ("log.parquet",) if isinstance(log[0], float) else ("log.parquet", "log.csv"):
        files["decisions"] = folder / name
        got, _, err = run("check", *options(files, "cases", "decisions", "config"))
        assert got == code, err
        assert message in said(err)
        assert code == 0 or name in err


def test_a_roster_in_another_spelling_is_refused(run, model: Path, tmp_path: Path) -> None:
    cases = write(new_cases(PADDED), tmp_path / "cases.csv")
    (tmp_path / "roster.csv").write_text("expert_id,upper\nAnn,5\n")
    out = tmp_path / "plan.csv"
    code, _, err = run(
        "assign", "--model", model, "--cases", cases, "--capacity", tmp_path / "roster.csv", "--out", out
    )
    assert code == 3
    assert "'Ann' on the roster and 'ann' in the model's history look like one person" in said(err)
    assert not out.exists()


def test_blanks_and_marks_in_names_are_said(run, files: dict[str, Path]) -> None:
    files["cases"].write_text("case_id,x,label\n a1,0.5,0\nNA,1.5,1\n")
    code, _, err = run("check", *options(files, "cases", "config"))
    assert code == 0
    assert "note: column 'case_id': 1 value(s) begin or end with a blank, which is part of the name" in said(
        err
    )
    assert (
        "note: column 'case_id': 1 value(s) are taken as names; where they mean that nothing is known"
        in said(err)
    )
    assert "schema.py" not in err


DATES = {
    "day first": ["31/03/2024", "01/04/2024", "02/04/2024", "15/02/2024"],
    "two readings": ["03/04/2024", "05/04/2024", "06/07/2024", "01/02/2024"],
    "two kinds": ["31/03/2024", "2024-04-01", "02/04/2024", "15/02/2024"],
    "quarters": ["Q1", "Q2", "Q3", "Q4"],
    "months": ["Jan 2024", "Feb 2024", "Mar 2024", "Apr 2024"],
    "packed": ["31032024", "01042024", "02042024", "15022024"],
    "no such day": ["2024-02-30", "2024-04-01", "2024-04-02", "2024-02-15"],
}


@pytest.mark.parametrize(
    ("times", "stated", "code", "message"),
    [
        ("day first", None, 0, "2024-02-15 00:00:00 to 2024-04-02 00:00:00"),
        ("day first", "%d/%m/%Y", 0, "2024-02-15 00:00:00 to 2024-04-02 00:00:00"),
        ("day first", "%m/%d/%Y", 3, "are not written as time_format '%m/%d/%Y' says, first: '31/03/2024'"),
        ("two readings", None, 3, "'03/04/2024' has two readings, 3 April 2024 and 4 March 2024"),
        ("two readings", "%d/%m/%Y", 0, "2024-02-01 00:00:00 to 2024-07-06 00:00:00"),
        ("two readings", "%m/%d/%Y", 0, "2024-01-02 00:00:00 to 2024-06-07 00:00:00"),
        ("two kinds", None, 3, "1 of 4 different values are no dates like '31/03/2024'"),
        ("quarters", None, 3, "times need an order, first: 'Q1'"),
        ("months", None, 3, "times need an order, first: 'Jan 2024'"),
        ("months", "%b %Y", 0, "2024-01-01 00:00:00 to 2024-04-01 00:00:00"),
        ("packed", None, 3, "looks like a day packed into a number"),
        ("packed", "%d%m%Y", 0, "2024-02-15 00:00:00 to 2024-04-02 00:00:00"),
        ("no such day", None, 3, "are no dates of the calendar, first: '2024-02-30'"),
        ("quarters", "quarter", 2, "time_format: 'quarter' is no format"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["c.csv", "c.parquet"])
def test_dates_as_text(
    run, files: dict[str, Path], name: str, times: str, stated: str | None, code: int, message: str
) -> None:
    frame = pd.DataFrame(
        {"case_id": list("abcd"), "x": [0.5, 1.5, 2.5, 3.5], "time": DATES[times], "label": 0}
    )
    files["cases"] = write(frame, files["cases"].with_name(name))
    if stated is not None:
        files["config"].write_text(CONFIG + f'[columns]\ntime_format = "{stated}"\n')
    got, out, err = run("check", *options(files, "cases", "config"), "--json")
    assert got == code, err
    assert message in said(out + err)


def test_one_format_for_all_chunks_of_a_file(tmp_path: Path) -> None:
    """Alone, the first half of the file has two readings."""
    frame = pd.DataFrame(
        {"case_id": list("abcd"), "time": ["01/02/2024", "03/02/2024", "30/01/2024", "31/01/2024"]}
    )
    for name in ("t.csv", "t.parquet"):
        write(frame, tmp_path / name)
        chunks = list(read_frames(tmp_path / name, rows=2, text=["case_id"], time="time"))
        assert [chunk["time"].iloc[0] for chunk in chunks] == [datetime(2024, 2, 1), datetime(2024, 1, 30)]
        assert [chunk.index[0] for chunk in chunks] == [0, 2]


@pytest.mark.parametrize(
    ("until", "code", "message"),
    [
        ("15/02/2024", 2, "--until 15/02/2024: the times are numbers, up to 40"),
        ("soon", 2, "--until soon: the times are numbers"),
        ("-5", 3, "--until -5: no case is earlier"),
    ],
)
def test_until_beside_numbers(run, files: dict[str, Path], until: str, code: int, message: str) -> None:
    frame = pd.read_csv(files["cases"], dtype={"case_id": str})
    frame.assign(time=range(1, 41)).to_csv(files["cases"], index=False)
    model = files["cases"].with_name("m.deccaf")
    got, _, err = run(
        "fit", *options(files, "cases", "decisions", "config"), "--out", model, f"--until={until}"
    )
    assert got == code
    assert message in said(err)
    assert not model.exists()


@pytest.mark.parametrize(
    ("until", "kept", "message"),
    [
        ("15/01/2024", 14, ""),
        ("2024-01-15", 14, ""),
        ("05/01/2024", 4, ""),
        ("31/02/2024", 0, "--until 31/02/2024: 1 of 1 different values are"),
        ("Q1", 0, "--until Q1: 1 of 1 different values are"),
        ("7", 0, "--until 7: "),
    ],
)
def test_until_is_read_as_the_times_of_the_cases_are(
    run, files: dict[str, Path], until: str, kept: int, message: str
) -> None:
    from deccaf.data.config import Config
    from deccaf.data.history import History

    frame = pd.read_csv(files["cases"], dtype={"case_id": str})
    frame["time"] = pd.date_range("2024-01-01", periods=40).strftime("%d/%m/%Y")
    frame.to_csv(files["cases"], index=False)
    if not message:
        read = History.read(files["cases"], files["decisions"], Config.read(files["config"]))
        assert len(read.before(until).cases) == kept
        return
    out = files["cases"].with_name("m.deccaf")
    code, _, err = run("fit", *options(files, "cases", "decisions", "config"), "--out", out, "--until", until)
    assert code == 2
    assert message in said(err)
    assert not out.exists()


@pytest.mark.parametrize("command", ["check", "fit", "assign"])
@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("number,amount,channel,label", "column 'case_id': missing"),
        (
            " Case_ID ,amount,channel,label",
            "column ' Case_ID ': did you mean 'case_id'? Names are taken exactly",
        ),
    ],
)
def test_cases_without_ids_are_refused(
    run, files: dict[str, Path], model: Path, command: str, header: str, message: str
) -> None:
    rows = files["cases"].read_text().splitlines()
    files["cases"].write_text("\n".join([header, *rows[1:]]))
    out = files["cases"].with_name("out.csv" if command == "assign" else "out.deccaf")
    arguments = {
        "check": options(files, "cases", "decisions", "config"),
        "fit": [*options(files, "cases", "decisions", "config"), "--out", out],
        "assign": ["--model", model, *options(files, "cases", "capacity"), "--out", out],
    }
    code, _, err = run(command, *arguments[command])
    assert code == 3
    assert message in said(err)
    assert str(files["cases"]) in err
    assert not out.exists()


@pytest.mark.parametrize(
    ("name", "header", "message"),
    [
        ("decisions", "case_id,Expert_ID,decision", "column 'Expert_ID': did you mean 'expert_id'?"),
        ("decisions", "case_id,expert_id,decision,Seconds", "column 'Seconds': did you mean 'seconds'?"),
        ("capacity", "expert_id, upper", "column ' upper': did you mean 'upper'?"),
        ("cases", "case_id,amount,channel,Label", "column 'Label': did you mean 'label'?"),
        ("cases", "case_id,Time,channel,label", "or say [columns] time = 'Time'"),
    ],
)
def test_a_header_in_another_spelling_is_named(
    run, files: dict[str, Path], name: str, header: str, message: str
) -> None:
    rows = files[name].read_text().splitlines()
    extra = ",1" if header.count(",") > rows[0].count(",") else ""
    files[name].write_text("\n".join([header, *[row + extra for row in rows[1:]]]))
    code, _, err = run("check", *options(files))
    assert code == 3
    assert message in said(err)
    assert str(files[name]) in err


def test_outputs_are_tried_before_the_work(run, files: dict[str, Path], model: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    (tmp_path / "link.csv").symlink_to(files["cases"])
    plan = ["assign", "--model", model, *options(files, "cases", "capacity"), "--out"]
    learn = ["fit", *options(files, "cases", "decisions", "config"), "--out"]
    for arguments, message in [
        ([*plan, files["cases"]], "is an input too"),
        ([*plan, tmp_path / "link.csv"], "is an input too"),
        ([*plan, files["capacity"]], "is an input too"),
        ([*plan, tmp_path / "plan.xlsx"], "unknown extension '.xlsx'"),
        ([*plan, files["cases"] / "plan.csv"], "cannot be written: Not a directory"),
        ([*plan, "/proc/plan.csv"], "cannot be written"),
        ([*learn, files["cases"] / "m.deccaf"], "cannot be written: Not a directory"),
        (["backtest", *learn[1:], files["cases"]], "cannot be written: Not a directory"),
        (["simulate", "applications", "--rows", 10, "--out", files["cases"] / "a.csv"], "cannot be written"),
        (
            ["simulate", "alerts", "--applications", files["cases"], "--out", files["cases"]],
            "is an input too",
        ),
    ]:
        code, out, err = run(*arguments)
        assert (code, out) == (2, ""), err
        assert message in said(err)
    (tmp_path / "link.csv").unlink()
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_an_output_among_the_files_of_a_folder_is_an_input(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    for out, given_path in [("parts/plan.parquet", "parts"), ("parts/part-9.csv", "parts/part-*.csv")]:
        with pytest.raises(ConfigError, match="is an input too"):
            check_output(tmp_path / out, [tmp_path / given_path])
    check_output(tmp_path / "new" / "folder" / "plan.csv", [tmp_path / "parts", None])
    assert [path.name for path in tmp_path.iterdir()] == ["parts"]


CSV = {
    "returns": (b"case_id,x,k\r007,0.5,a\r8,1.5,b\r", [0.5, 1.5]),
    "semicolons": (b"case_id;x;k\n007;0,5;a\n8;1,5;b\n", [0.5, 1.5]),
    "semicolons and points": (b"case_id;x;k\n007;0.5;a\n8;1.5;b\n", [0.5, 1.5]),
    "thousands": (b"case_id;x;k\n007;1.234,5;a\n8;12;b\n", [1234.5, 12.0]),
    "tabs": (b"case_id\tx\tk\n007\t0.5\ta\n8\t1.5\tb\n", [0.5, 1.5]),
    "commas in quotes": (b'case_id,x,k\n007,"1,234.5","a,b"\n8,"12",b\n', [1234.5, 12.0]),
    "mark in a name": (b"case_id;x;k, k2\n007;0,5;a\n8;1;b\n", [0.5, 1.0]),
    "a line for Excel": (b"sep=;\r\ncase_id;x;k\r\n007;0,5;a\r\n8;1,5;b\r\n", [0.5, 1.5]),
    "another column decides": (b"case_id;x;k\n007;1,234;0,5\n8;5;0,25\n", [1.234, 5.0]),
}


@pytest.mark.parametrize("name", list(CSV))
def test_text_files_as_programs_write_them(tmp_path: Path, name: str) -> None:
    content, numbers = CSV[name]
    (tmp_path / "t.csv").write_bytes(content)
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(content[:9]) + gzip.compress(content[9:]))
    for path in (tmp_path / "t.csv", tmp_path / "t.csv.gz"):
        frame = read_frame(path, text=["case_id"])
        assert frame["case_id"].tolist() == ["007", "8"]
        assert frame["x"].tolist() == numbers


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("c.csv", b"case_id;x\na;1,234\nb;5\n", "column 'x': '1,234' may be 1.234 or 1234"),
        ("c.csv", b"case_id;x\na;1.234\nb;12.500\n", "column 'x': '1.234' may be 1.234 or 1234"),
        ("c.csv", b'case_id,x\na,"1,234"\nb,"5,678"\n', "column 'x': '1,234' may be 1.234 or 1234"),
        ("c.csv", b"case_id,x;y,z\n1,2;3,4\n", "columns may be separated in two ways"),
        ("c.csv", gzip.compress(b"case_id,x\na,1\n", mtime=0), "looks like a .csv.gz file; give it that extension"),
        ("c.csv.gz", gzip.compress(b"case_id,x\na,1\n" * 999, mtime=0)[:-9], "cannot be read: Truncated compressed stream"),
        ("c.csv.gz", b"case_id,x\na,1\n", "cannot be read"),
        ("c.csv", "case_id,x\na,1\n".encode("utf-16"), "is text in UTF-16; save it as UTF-8"),
        ("c.csv", b"case_id,x\na,1\nb,\xe9\n", "byte 0xe9 in line 3; save it as UTF-8"),
        ("c.xls", b"\xd0\xcf\x11\xe0", "save it as .xlsx"),
        ("c.json", b"{}", "unknown extension '.json'; give a .parquet, .csv, .csv.gz, .tsv or .xlsx file"),
    ],
)  # fmt: skip
def test_files_with_two_readings_or_none_are_named(
    run, files: dict[str, Path], name: str, content: bytes, message: str
) -> None:
    files["cases"] = files["cases"].with_name(name)
    files["cases"].write_bytes(content)
    code, out, err = run("check", *options(files, "cases", "config"))
    assert (code, out) == (3, "")
    assert message in said(err)
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "index",
    [
        pd.RangeIndex(1000, 1005, name="case_id"),  # pandas keeps it in the metadata alone
        pd.RangeIndex(5, 0, -1, name="case_id"),
        pd.Index([3, 1, 4, 15, 9], name="case_id"),
        pd.Index(list("abcde"), name="case_id"),
        pd.Index([3, 1, 4, 15, 9]),  # what is left after rows were picked: no column of anybody's
        pd.Index(list("abcde")),
        pd.RangeIndex(5),
    ],
    ids=str,
)
def test_the_index_that_pandas_wrote(tmp_path: Path, index: pd.Index) -> None:
    """A named index is a column, in whole files and in pieces; one without a name is nothing."""
    path, frame = tmp_path / "cases.parquet", pd.DataFrame({"x": np.arange(5.0)}, index=index)
    frame.to_parquet(path)
    wanted = {"x": frame["x"].tolist()}
    if index.name:
        wanted["case_id"] = [str(name) for name in index]
    pieces = [
        pd.concat(read_frames(path, rows=2, text=("case_id",), columns=c)) for c in (None, ["case_id", "x"])
    ]
    for found in (read_frame(path, text=("case_id",)), *pieces):
        assert found.to_dict("list") == wanted
    (only,) = read_frames(path, columns=["x"])
    assert list(only) == ["x"]


def test_folders_and_patterns(run, files: dict[str, Path]) -> None:
    whole = pd.read_csv(files["cases"], dtype={"case_id": str})
    folder = files["cases"].with_name("parts")
    for month, part in enumerate((whole.iloc[:25], whole.iloc[25:]), 1):
        (folder / f"month={month}").mkdir(parents=True)
        part.to_parquet(folder / f"month={month}" / "part-0.parquet", index=False)
    (folder / "_SUCCESS").write_text("")
    frame = read_frame(folder, text=["case_id"])
    assert frame["case_id"].tolist() == whole["case_id"].tolist()
    assert frame["month"].tolist() == [1] * 25 + [2] * 15
    assert pd.concat(read_frames(folder, rows=10, text=["case_id"])).equals(frame)
    for path in (folder, folder / "month=*" / "*.parquet"):
        code, _, err = run("check", "--cases", path, *options(files, "decisions", "config"))
        assert code == 0, err
    whole.iloc[:3].rename(columns={"amount": "sum"}).to_parquet(
        folder / "month=2" / "part-1.parquet", index=False
    )
    code, _, err = run("check", "--cases", folder, *options(files, "config"))
    assert code == 3
    assert "has a column 'amount' that" in said(err)
    code, _, err = run("check", "--cases", folder / "nothing-*.csv", *options(files, "config"))
    assert code == 3
    assert "the pattern finds no" in said(err)


def test_standard_input_and_pipes(run, files: dict[str, Path], model: Path) -> None:
    text = files["cases"].read_text()
    code, _, err = run("check", "--cases", "-", *options(files, "decisions", "config"), stdin=text)
    assert code == 0, err
    arguments = ["--model", model, "--cases", "-", *options(files, "capacity")]
    code, out, err = run("explain", *arguments, "--case", "000003", "--json", stdin=text)
    assert (code, json.loads(out)["case"]) == (0, "000003")
    code, _, err = run("check", "--cases", "-", *options(files, "config"), stdin="")
    assert (code, said(err)) == (3, "error: standard input: is empty")
    pipe = files["cases"].with_name("pipe")
    os.mkfifo(pipe)
    parquet = write(
        pd.read_csv(files["cases"], dtype={"case_id": str}), pipe.with_name("c.parquet")
    ).read_bytes()
    for content in (text.encode(), gzip.compress(text.encode()), parquet):
        writer = threading.Thread(target=pipe.write_bytes, args=(content,))
        writer.start()
        code, _, err = run("check", "--cases", pipe, *options(files, "decisions", "config"))
        writer.join()
        assert code == 0, err


@excel
def test_workbooks(run, files: dict[str, Path]) -> None:
    import openpyxl

    book = openpyxl.Workbook()
    sheet = book.active
    for row in (
        ["case_id", "x", "time", "label"],
        ["0008", 0.5, datetime(2024, 1, 31), 0],
        [7, 2, datetime(2024, 2, 1), 1],
    ):
        sheet.append(row)
    sheet["A3"].number_format = "0000"
    files["cases"] = files["cases"].with_name("cases.xlsx")
    book.save(files["cases"])
    cases = Cases.read(files["cases"])
    assert list(cases.ids) == ["0008", "0007"]
    assert cases.time is not None
    assert cases.time.tolist() == [datetime(2024, 1, 31), datetime(2024, 2, 1)]
    for change, message in [
        (lambda: sheet.__setitem__("B2", "=1+1"), "cell B2 holds the formula '=1+1' without its result"),
        (lambda: (sheet.__setitem__("B2", 1), sheet.__setitem__("A2", 10**16)), "more than 15 digits"),
        (lambda: (sheet.__setitem__("A2", "a"), book.create_sheet("notes").append(["by me"])), "say which: cases.xlsx#Sheet"),
    ]:  # fmt: skip
        change()
        book.save(files["cases"])
        code, _, err = run("check", *options(files, "cases", "config"))
        assert code == 3
        assert message in said(err)
    code, _, err = run("check", "--cases", f"{files['cases']}#Sheet", *options(files, "config"))
    assert code == 0, err


def test_a_workbook_without_the_extra_says_what_to_install(
    run, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    files["cases"] = files["cases"].with_name("cases.xlsx")
    files["cases"].write_bytes(b"PK\x03\x04")
    code, _, err = run("check", *options(files, "cases", "config"))
    assert code == 2
    assert "pip install 'deccaf[excel]'" in said(err)


def command(*arguments: object, **environment: str) -> subprocess.CompletedProcess[bytes]:
    script = "from deccaf.cli import main; main()"
    given_arguments = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(given_arguments, capture_output=True, env={**os.environ, **environment})


def test_a_full_device_and_a_terminal_without_accents_are_no_tracebacks(files: dict[str, Path]) -> None:
    script = "from deccaf.cli import main; main()"
    for arguments in (["--help"], ["check", *options(files, "cases", "decisions", "config"), "--json"]):
        with Path("/dev/full").open("wb") as full:
            done = subprocess.run(
                [sys.executable, "-c", script, *map(str, arguments)], stdout=full, stderr=subprocess.PIPE
            )
        assert (done.returncode, done.stderr) == (
            1,
            b"error: standard output cannot be written: No space left on device\n",
        )
    name = files["cases"].with_name("Zoë 李.csv")
    name.write_text("case_id,x\na,1\n")
    (name.parent / "log.csv").write_text("case_id,expert_id,decision\nZoë 李,ann,1\n")
    arguments = ["--cases", name, "--decisions", name.parent / "log.csv", *options(files, "config")]
    done = command("check", *arguments, PYTHONIOENCODING="ascii")
    assert done.returncode == 3
    assert rb"first: 'Zo\xeb \u674e'" in done.stderr
    assert b"Traceback" not in done.stderr


def test_an_interrupt_while_libraries_load_is_one_line() -> None:
    script = """
import os, signal, sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "pandas":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
signal.signal(signal.SIGINT, signal.default_int_handler)
from deccaf.cli import main
main()
"""
    done = subprocess.run([sys.executable, "-c", script, "check", "--help"], capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"stopped\n")


def test_an_interrupt_at_work_is_one_line(
    run, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*given: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Cases, "read_with_rows", interrupted)
    assert run("check", *options(files, "cases", "config")) == (130, "", "stopped\n")


def test_warnings_on_the_command_line_name_no_source_files(
    run, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def loud(*given: object, **options: object) -> None:
        warnings.warn("something is old", UserWarning, stacklevel=1)
        warnings.warn("something is old", UserWarning, stacklevel=1)
        raise DataError("bad")

    monkeypatch.setattr(Capacity, "read", loud)
    model = files["cases"].with_name("m.deccaf")
    monkeypatch.setattr(DeCCaF, "load", lambda *given: None)
    code, _, err = run("explain", "--model", model, *options(files, "cases", "capacity"), "--case", "a")
    assert (code, err) == (3, "warning: something is old\nerror: bad\n")


def test_warnings_of_the_library_point_at_the_users_line() -> None:
    frame = pd.DataFrame({"x": [1.0, 2.0], "seen": pd.Timestamp("2024-01-01")})
    with pytest.warns(UserWarning, match="'seen' is left out") as told:
        Cases.from_frame(frame)
    assert told[0].filename == __file__


def test_costs_that_are_no_costs_are_named() -> None:
    with pytest.raises(ConfigError, match=r"costs: expected Costs, got dict; make them with Costs\.binary"):
        DeCCaF(costs={"false_positive": 1.0}).fit(pd.DataFrame({"x": [0.0, 1.0]}), [0, 1])  # type: ignore[arg-type]


LOSS = np.array([[0.1, 0.9], [0.2, 0.8], [0.3, 0.1]])
MAKERS = ["ann", "bob"]


def test_masked_cells_are_nobodys() -> None:
    masked = np.ma.array(LOSS, mask=[[True, False], [False, False], [False, False]])
    assert solve(masked, [3, 3]).maker.tolist() == [1, 0, 1]
    assert solve(np.ma.array(LOSS), [3, 3]).maker.tolist() == [0, 0, 1]
    allowed = np.array([[True, True], [False, True], [True, True]])
    assert solve(masked, [3, 3], eligible=allowed).maker.tolist() == [1, 1, 1]
    assert solve(LOSS, [3, 3], eligible=np.ma.array(allowed, mask=masked.mask)).maker.tolist() == [1, 1, 1]
    with pytest.raises(ConfigError, match="upper: some limits are masked"):
        solve(LOSS, np.ma.array([1, 2], mask=[False, True]))


KINDS: dict[str, Callable[[pd.DataFrame], object]] = {
    "plain": lambda frame: frame,
    "masked": lambda frame: frame.convert_dtypes(),
    "arrow": lambda frame: frame.convert_dtypes(dtype_backend="pyarrow"),
    "polars": pl.from_pandas,
}


@pytest.mark.parametrize("kind", list(KINDS))
def test_frames_of_every_kind_are_taken(kind: str) -> None:
    make = KINDS[kind]
    loss = make(pd.DataFrame(LOSS, columns=MAKERS))
    assert solve(loss, {"bob": 2, "ann": 1}, {"ann": 0, "bob": 0}).labels.tolist() == ["ann", "bob", "bob"]
    past = history(80)
    past.loc[3, "amount"] = np.nan
    past["flag"] = past["amount"] > 0
    roles = Columns(features=("amount", "channel", "flag"))
    cases = Cases.from_frame(
        make(past.drop(columns=["expert_id", "decision"])), columns=roles, require=["label"]
    )
    assert [feature.kind for feature in cases.schema.features] == ["number", "category", "number"]
    log = Decisions.from_frame(make(past[["case_id", "expert_id", "decision"]]), cases=cases)
    assert log.experts == PEOPLE
    roster = Capacity.from_frame(make(pd.DataFrame({"expert_id": ["007", "ann"], "upper": [3, 4]})))
    X = make(past[["amount", "channel", "flag"]])
    fitted = DeCCaF(case_parts=("logistic",), decision_parts=("rates",)).fit(
        X, past["label"], expert=past["expert_id"], decision=past["decision"]
    )
    plan = fitted.assign(X, roster)
    assert type(plan.table) is type(X)
    assert plan.frame["maker"].value_counts().to_dict() == {"machine": 73, "ann": 4, "007": 3}


def test_the_library_compares_ids_as_text_and_keeps_the_callers_index() -> None:
    past = history(60)
    X = past[["amount", "channel"]].set_axis(range(100, 160))
    log = pd.DataFrame({"case_id": [f"{k}" for k in range(100, 160)], **past[["expert_id", "decision"]]})
    fitted = DeCCaF(case_parts=("logistic",), decision_parts=("rates",)).fit(X, past["label"], decisions=log)
    assert fitted.experts_ == PEOPLE
    plan = fitted.assign(X.iloc[:5], {"ann": 2}, batch=None)
    assert plan.table.index.tolist() == [100, 101, 102, 103, 104]
    assert plan.frame["case_id"].tolist() == [100, 101, 102, 103, 104]
    with pytest.raises(DataError, match="'0100' here and '100' in X are two spellings"):
        fitted.fit(X, past["label"], decisions=log.assign(case_id="0100"))


# Any frame, in any format: the same ids, the same roles, the same plan.

NASTY = [
    "000007",
    "7",
    "7.0",
    "1e1",
    "NA",
    "nan",
    "null",
    "TRUE",
    "2024-01-01",
    "31/03/2024",
    "1,5",
    "a;b",
    'q"t',
    " x",
    "=1",
    "Zoë",
    "9" * 24,
    "-0",
    "0x1F",
]
ids = st.one_of(
    st.sampled_from([name for name in NASTY if not name.startswith("=")]),
    st.text(string.ascii_letters + string.digits + " .,;:_-/#'\"äß李", min_size=1, max_size=12),
)


@st.composite
def frames(draw: st.DrawFn) -> pd.DataFrame:
    names = draw(st.lists(ids, min_size=2, max_size=8, unique=True))
    size = len(names)

    def column(values: st.SearchStrategy) -> list:
        return draw(st.lists(values, min_size=size, max_size=size))

    amount = st.one_of(st.none(), st.integers(-999, 999).map(lambda value: value / 4))
    frame = pd.DataFrame(
        {
            "case_id": names,
            "amount": pd.array(column(amount), dtype="Float64").to_numpy(float, na_value=np.nan),
        }
    )
    frame["channel"] = pd.Series(column(st.sampled_from(["web", "phone", None])), dtype="str")
    frame["member"] = column(st.sampled_from(["yes", "no"]))
    frame["branch"] = column(st.sampled_from(["007", "07", "12"]))
    frame["region"] = column(ids)
    frame["batch"] = column(st.sampled_from(["007", "7", "2024-01-01", "1e1"]))
    frame["time"] = pd.to_datetime(
        column(st.dates(datetime(2000, 1, 1).date(), datetime(2024, 12, 31).date()))
    )
    return frame


@pytest.mark.filterwarnings("ignore::deccaf.errors.DeccafWarning")
@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(frame=frames())
def test_any_frame_in_any_format_is_the_same(wide_model: DeCCaF, tmp_path: Path, frame: pd.DataFrame) -> None:
    columns = Columns(group=("region",), categorical=("branch",))
    roster = Capacity.from_frame(
        pd.DataFrame(
            {"expert_id": ["007", "7"] * 4, "batch": ["007", "7", "2024-01-01", "1e1"] * 2, "upper": 1}
        )
        .sort_values("batch")
        .assign(expert_id=["007", "7"] * 4)
    )
    names = ["t.parquet", "t.csv", "t.csv.gz", "t.semi.csv"]
    names += ["t.xlsx"] if importlib.util.find_spec("openpyxl") else []
    found = {}
    for name in names:
        path = write(frame, tmp_path / name)
        cases = Cases.read(path, columns=columns)
        plan = wide_model.assign(path, roster).frame
        found[name] = (cases, plan)
        assert list(cases.ids) == frame["case_id"].tolist(), name
        assert cases.groups["region"].tolist() == frame["region"].tolist(), name
        assert cases.batch is not None
        assert cases.batch.tolist() == frame["batch"].tolist(), name
        assert cases.time is not None
        assert cases.time.tolist() == frame["time"].tolist(), name
        assert plan["case_id"].tolist() == frame["case_id"].tolist(), name
    first, planned = found["t.parquet"]
    for name, (cases, plan) in found.items():
        assert cases.schema == first.schema, name
        pd.testing.assert_frame_equal(cases.features, first.features, check_index_type=False)
        pd.testing.assert_frame_equal(plan, planned, check_dtype=False)


@pytest.fixture(scope="module")
def wide_model() -> DeCCaF:
    past = history().drop(columns=["case_id", "expert_id", "label", "decision"])
    rng = np.random.default_rng(1)
    past["member"] = rng.choice(["yes", "no"], len(past))
    past["branch"] = rng.choice(["007", "07", "12"], len(past))
    past["region"] = "north"
    told = history()
    roles = Columns(group=("region",), categorical=("branch",))
    return DeCCaF(
        Costs.binary(0.5, 1.0), columns=roles, case_parts=("logistic",), decision_parts=("rates",)
    ).fit(past, told["label"], expert=told["expert_id"], decision=told["decision"])


def test_numbers_beside_missing_values_are_the_same_names(tmp_path: Path) -> None:
    table = pa.table({"case_id": pa.array([7.0, 8.0]), "region": pa.array([12.0, None]), "x": [0.5, 1.5]})
    pa.parquet.write_table(table, tmp_path / "t.parquet")
    cases = Cases.read(tmp_path / "t.parquet", columns=Columns(group=("region",)))
    assert list(cases.ids) == ["7", "8"]
    assert cases.groups["region"].iloc[0] == "12"
    assert cases.groups["region"].isna().tolist() == [False, True]
    lost = pa.table({"case_id": pa.array([1e20, 2e20]), "x": [0.5, 1.5]})
    pa.parquet.write_table(lost, tmp_path / "t.parquet")
    with pytest.raises(DataError, match="whose last digits are lost; store names as text"):
        Cases.read(tmp_path / "t.parquet")
