"""A log as most teams have it: cases, who decided and what in one file, under names of their own."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from deccaf import DeCCaF
from deccaf.data.config import Config
from deccaf.data.history import History

Run = Any
COSTS = """
[costs]
false_positive = 1.0
false_negative = 2.0
[model]
case_parts = ["logistic"]
decision_parts = ["rates"]
"""
PARTS = {"case": "ticket", "label": "fraud", "time": "opened", "expert": "Reviewer", "decision": "verdict"}


def table(rows: int = 120) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        {
            "ticket": [f"{k:05d}" for k in range(rows)],
            "opened": pd.date_range("2026-01-01", periods=rows, freq="5h"),
            "amount": rng.normal(size=rows).round(3),
            "Reviewer": rng.choice(["Ann Müller", "Bob"], rows),
        }
    )
    frame["fraud"] = (frame["amount"] + rng.normal(size=rows) > 0.4).astype(int)
    frame["verdict"] = np.where(rng.random(rows) < 0.8, frame["fraud"], 1 - frame["fraud"])
    return frame


def written(folder: Path, frame: pd.DataFrame, name: str) -> Path:
    path = folder / name
    {".csv": frame.to_csv, ".xlsx": frame.to_excel, ".parquet": frame.to_parquet}[path.suffix](
        path, index=False
    )
    return path


def config(folder: Path, **more: str) -> Path:
    lines = [f'{part} = "{name}"' for part, name in {**PARTS, **more}.items()]
    (folder / "own.toml").write_text("\n".join(["[columns]", *lines]) + COSTS)
    return folder / "own.toml"


@pytest.mark.parametrize("name", ["log.csv", "log.xlsx", "log.parquet"])
def test_init_sees_the_decisions_in_the_file_of_the_cases(tmp_path: Path, run: Run, name: str) -> None:
    file, toml = written(tmp_path, table(), name), tmp_path / "d.toml"
    code, out, err = run("init", file, "-o", toml)
    assert code == 0, err
    assert "holds the decisions too: 'Reviewer' says who decided, 'verdict' what" in out + err
    assert f"--cases {file} --decisions {file}" in (out + err).replace("\n", "")
    columns = tomllib.loads(toml.read_text())["columns"]
    assert {part: columns[part] for part in PARTS} == PARTS
    assert columns["features"] == ["amount"]
    checked = run("check", "--cases", file, "--decisions", file, "--config", toml)
    assert checked[0] == 0, checked[2]


def test_one_file_and_two_files_teach_the_same(tmp_path: Path, run: Run) -> None:
    frame = table()
    one = written(tmp_path, frame, "log.csv")
    cases = written(tmp_path, frame.drop(columns=["Reviewer", "verdict"]), "cases.csv")
    log = frame[["ticket", "Reviewer", "verdict"]]
    log = written(tmp_path, log.set_axis(["case_id", "expert_id", "decision"], axis=1), "decisions.csv")
    toml, found = config(tmp_path), []
    for pair in ((one, one), (cases, log)):
        out = tmp_path / f"{pair[0].stem}.deccaf"
        code, _, err = run("fit", "--cases", pair[0], "--decisions", pair[1], "--config", toml, "--out", out)
        assert code == 0, err
        found.append(DeCCaF.load(out))
    new = frame.iloc[:20][["amount"]]
    np.testing.assert_array_equal(found[0].expected_loss(new), found[1].expected_loss(new))
    assert found[0].experts_ == found[1].experts_ == ("Ann Müller", "Bob")


def test_a_row_for_every_decision(tmp_path: Path) -> None:
    frame = table()
    second = frame.iloc[:40].assign(Reviewer=np.where(frame["Reviewer"][:40] == "Bob", "Ann Müller", "Bob"))
    file = written(tmp_path, pd.concat([frame, second]), "log.csv")
    history = History.read(file, file, Config.read(config(tmp_path)))
    assert (len(history.cases), len(history.log)) == (120, 160)
    assert history.schema.names == ["amount"]


def test_rows_of_a_case_that_differ_are_refused_by_name(tmp_path: Path, run: Run) -> None:
    frame = table()
    second = frame.iloc[3:4].assign(amount=99.5)
    file = written(tmp_path, pd.concat([frame, second]), "log.csv")
    files = ("--cases", file, "--decisions", file, "--config", config(tmp_path))
    code, _, err = run("check", *files)
    assert code == 3
    assert "column 'amount': the rows of case '00003' differ" in err
    assert "[columns] ignore" in err


def test_a_log_with_other_names_says_how_to_name_them(tmp_path: Path, run: Run) -> None:
    file = written(tmp_path, table(), "log.csv")
    toml = tmp_path / "d.toml"
    toml.write_text('[columns]\ncase = "ticket"\nlabel = "fraud"\ntime = "opened"\n' + COSTS)
    code, _, err = run(
        "fit", "--cases", file, "--decisions", file, "--config", toml, "--out", tmp_path / "m.deccaf"
    )
    assert code == 3
    assert "column 'expert_id': missing" in err
    assert "[columns] expert" in err
    assert not (tmp_path / "m.deccaf").exists()


def test_who_decided_is_never_a_feature(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="column 'Reviewer' is the expert, so it cannot be a feature"):
        Config.model_validate({"columns": {**PARTS, "features": ["Reviewer"]}, "costs": {"example": True}})


def test_digits_as_text_in_a_workbook_are_asked_about(tmp_path: Path, run: Run) -> None:
    frame = table().assign(branch=[f"{k % 7:03d}" for k in range(120)])
    code, _, err = run("init", written(tmp_path, frame, "log.xlsx"), "-o", tmp_path / "d.toml")
    assert code == 3
    assert "column 'branch': holds numbers stored as text, first: '000'" in err
    assert 'case = "ticket"' in (tmp_path / "d.toml").read_text()


def test_rows_that_stand_twice_are_counted_aloud(tmp_path: Path, run: Run) -> None:
    frame = table()
    file = written(tmp_path, pd.concat([frame, frame.iloc[:7]]), "log.csv")
    code, out, err = run("check", "--cases", file, "--decisions", file, "--config", config(tmp_path))
    assert code == 0, err
    assert "7 row(s) of the decisions have the case, person and answer of an earlier one" in out + err


@pytest.mark.parametrize("coded", [{0: 0, 1: 2}, {0: 1, 1: 2}, {0: "ok", 1: "fraud"}])
def test_decisions_that_the_labels_do_not_know_need_a_hand(
    tmp_path: Path, run: Run, coded: dict[int, Any]
) -> None:
    frame = table()
    file = written(tmp_path, frame.assign(fraud=frame["fraud"].map(coded)), "log.csv")
    toml = tmp_path / "d.toml"
    code, _, err = run("init", file, "-o", toml)
    assert code == 3
    assert "decisions say" in err
    assert "the label 'fraud' says" in err
    checked = run("check", "--cases", file, "--decisions", file, "--config", toml)
    assert checked[0] == 3  # the classes are the label's
