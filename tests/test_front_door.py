"""The front door, row by row: ordinary and broken files through the command line.

Every row says what is done to a set of good files, the command, its exit code, what it says, and which files
it writes: none, unless the row names them. Details are in `test_front_door_files`, `_roles` and `_plans`, and
in `test_texts`.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from deccaf import Costs, DeCCaF

CONFIG = """
[costs]
false_positive = 0.5
false_negative = 1.0
[model]
case_parts = ["logistic"]
decision_parts = ["rates"]
"""
HISTORY = "--cases cases.csv --decisions log.csv --config d.toml"
TODAY = "--model m.deccaf --cases today.csv --capacity roster.csv"


def history(rows: int = 120) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "case_id": [f"{k:06d}" for k in range(rows)],
            "amount": rng.normal(size=rows).round(4),
            "channel": rng.choice(["web", "phone"], rows),
            "time": np.arange(rows) // 10,
            "expert_id": rng.choice(["007", "ann"], rows),
        }
    )
    frame["label"] = (frame["amount"] + rng.normal(size=rows) > 0.5).astype(int)
    frame["decision"] = np.where(rng.random(rows) < 0.8, frame["label"], 1 - frame["label"])
    return frame


@dataclass
class Desk:
    """The files of a user, in the current folder."""

    folder: Path

    def cases(self, change: Callable[[pd.DataFrame], pd.DataFrame], name: str = "cases.csv") -> None:
        frame = pd.read_csv(self.folder / name, dtype={"case_id": str, "expert_id": str})
        change(frame).to_csv(self.folder / name, index=False)

    def append(self, name: str, text: str) -> None:
        with (self.folder / name).open("a") as file:
            file.write(text)

    def config(self, columns: str = "", costs: str = CONFIG) -> None:
        (self.folder / "d.toml").write_text(f"[columns]\n{columns}\n{costs}")

    def snapshot(self) -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in sorted(self.folder.rglob("*")) if path.is_file()}


def column(**values: Callable[[pd.DataFrame], object]) -> Callable[[Desk], None]:
    """Other values for columns of the cases."""
    return lambda desk: desk.cases(lambda frame: frame.assign(**values))


def today(**values: Callable[[pd.DataFrame], object]) -> Callable[[Desk], None]:
    return lambda desk: desk.cases(lambda frame: frame.assign(**values), "today.csv")


def renamed(old: str, new: str, name: str = "cases.csv") -> Callable[[Desk], None]:
    return lambda desk: desk.cases(lambda frame: frame.rename(columns={old: new}), name)


def first_rows(count: int) -> Callable[[Desk], None]:
    return lambda desk: [desk.cases(lambda frame: frame[:count], name) for name in ("cases.csv", "log.csv")]


def nothing(desk: Desk) -> None:
    del desk


@dataclass(frozen=True)
class Row:
    item: int
    name: str
    command: str
    code: int
    said: str
    spoil: Callable[[Desk], object] = nothing
    writes: set[str] = field(default_factory=set)
    look: Callable[[Desk], bool] = field(default=lambda desk: True)
    unsaid: str = "Traceback"


def ids_kept(desk: Desk) -> bool:
    plan = pd.read_csv(desk.folder / "plan.csv", dtype=str)
    return plan["case_id"].tolist() == [f"{k:06d}" for k in range(30)] and "007" in set(plan["maker"])


def plan_is_full(desk: Desk) -> bool:
    plan = pd.read_csv(desk.folder / "plan.csv")
    return {"p_0", "p_1", "loss_low", "loss_high", "why"} <= set(plan.columns)


def money(sign: str) -> Callable[[Desk], None]:
    return column(price=lambda frame: [f"{sign}{10 * k % 70}" for k in range(len(frame))])


def spelled(values: list[str]) -> Callable[[Desk], None]:
    return column(odd=lambda frame: [values[k % len(values)] for k in range(len(frame))])


def long_notes(desk: Desk) -> None:
    desk.cases(lambda frame: frame.assign(note=[f"the customer number {k} called us" for k in range(120)]))


def vectors(last: str) -> Callable[[Desk], None]:
    return column(e=lambda frame: [*["[0.5, 1.5]"] * (len(frame) - 1), last])


ASSIGN = f"assign {TODAY} --out plan.csv"
ROWS = [
    # 1 ids are text
    Row(1, "padded ids come back", ASSIGN, 0, "Plan: plan.csv", writes={"plan.csv"}, look=ids_kept),
    Row(
        1, "another spelling of a person", ASSIGN, 3, "one person spelled in two ways",
        lambda desk: desk.cases(lambda f: f.replace({"007": "7"}), "roster.csv"),
    ),
    Row(
        1, "another spelling of a case", f"check {HISTORY}", 3, "name no known case",
        lambda desk: desk.cases(lambda f: f.assign(case_id="x" + f["case_id"]), "log.csv"),
    ),
    # 2 costs at plan time
    Row(2, "costs of the configuration", f"{ASSIGN} --config d.toml", 0, "false positive 0.5", writes={"plan.csv"}),
    Row(2, "a cost as a question", f"assign {TODAY} --what-if costs.false_positive=9", 0, "false positive 9"),
    Row(2, "no such cost", f"assign {TODAY} --what-if costs.false_positiv=9", 2, "did you mean 'false_positive'"),
    Row(
        2, "costs for somebody unknown", f"{ASSIGN} --config d.toml", 2, "did you mean 'ann'",
        lambda desk: desk.config(costs=CONFIG.replace("[model]", "review_cost = { anna = 1.0 }\n[model]")),
    ),
    # 3 dates
    Row(
        3, "two readings of a date", f"check {HISTORY}", 3, "time_format",
        column(time=lambda frame: [f"0{k % 9 + 1}/0{k % 8 + 1}/2024" for k in range(len(frame))]),
    ),
    Row(
        3, "times without order", f"check {HISTORY}", 3, "Q1",
        column(time=lambda frame: [f"Q{k % 4 + 1}" for k in range(len(frame))]),
    ),
    Row(3, "until what", f"fit {HISTORY} --until 15/02/2024 --out x.deccaf", 2, "--until"),
    # 4 roles
    Row(4, "the label as a feature", f"check {HISTORY}", 2, "is the label", lambda d: d.config('features = ["label"]')),
    Row(4, "no such time", f"fit {HISTORY} --out x.deccaf", 3, "did you mean 'time'", lambda d: d.config('time = "tme"')),
    Row(4, "no such group", f"check {HISTORY}", 3, "no column 'branch'", lambda d: d.config('group = ["branch"]')),
    Row(
        4, "features and ignore", f"check {HISTORY}", 2, "leave ignore out",
        lambda d: d.config('features = ["amount"]\nignore = ["channel"]'),
    ),
    Row(4, "half of the costs", f"check {HISTORY}", 2, "missing", lambda d: d.config(costs="[costs]\nfalse_positive = 1")),
    Row(4, "decisions as cases", "check --cases log.csv --config d.toml", 3, "columns of a decision log"),
    Row(
        4, "a negative review", f"check {HISTORY}", 2, "from 0 on",
        lambda d: d.config(costs=CONFIG.replace("[model]", "review_cost = -1.0\n[model]")),
    ),
    # 5 case_id
    Row(5, "no ids", f"check {HISTORY}", 3, "column 'case_id': missing", renamed("case_id", "number")),
    Row(5, "ids in another spelling", f"check {HISTORY}", 3, "did you mean 'case_id'", renamed("case_id", " Case_ID ")),
    Row(5, "new cases without ids", ASSIGN, 3, "case_id", renamed("case_id", "number", "today.csv")),
    # 6 other data than the model saw
    Row(6, "another unit", f"{ASSIGN} --strict", 7, "amount", today(amount=lambda f: 1000 * (1 + f["amount"].abs()))),
    Row(6, "an empty column", f"{ASSIGN} --strict", 7, "empty in 30 of 30", today(amount=lambda f: np.nan)),
    Row(6, "a new category", f"{ASSIGN} --strict", 7, "never learned from", today(channel=lambda f: "fax")),
    # 7 too little
    Row(7, "three cases", f"fit {HISTORY} --out x.deccaf", 3, "cases", first_rows(3)),
    Row(7, "one class", f"fit {HISTORY} --out x.deccaf", 3, "class", column(label=lambda f: 0)),
    # 8 outputs
    Row(8, "an input as output", f"assign {TODAY} --out today.csv", 2, "is an input too"),
    Row(8, "a folder that is none", f"assign {TODAY} --out d.toml/plan.csv", 2, "cannot be written"),
    # 9 notes: what is said is so
    Row(
        9, "left out is left out", f"fit {HISTORY} --out x.deccaf", 0, "10 of 120 decisions are on cases without a truth yet: they count",
        column(label=lambda f: f["label"].where(f.index >= 10)), {"x.deccaf"}, unsaid="left out",
    ),
    Row(
        9, "the machine's own limit", ASSIGN, 0, "│ 25 ", lambda d: d.append("roster.csv", "machine,25\n"), {"plan.csv"},
    ),
    # 10 no tracebacks
    Row(
        10, "old line ends", f"check {HISTORY}", 0, "All files can be used",
        lambda d: (d.folder / "cases.csv").write_text((d.folder / "cases.csv").read_text().replace("\n", "\r"), newline=""),
    ),
    Row(
        10, "not UTF-8", f"check {HISTORY}", 3, "save it as UTF-8",
        lambda d: (d.folder / "cases.csv").write_bytes(
            (d.folder / "cases.csv").read_text().replace("web", "größe").encode("latin-1")
        ),
    ),
    # 11 init and check
    Row(11, "init", "init cases.csv log.csv --out new.toml", 0, "cases.csv: cases", writes={"new.toml"}),
    Row(11, "init does not overwrite", "init cases.csv log.csv --out d.toml", 2, "--force"),
    Row(
        11, "decisions in another spelling than labels", "init cases.csv log.csv --out new.toml", 3,
        "decisions say 'No' where the label 'label' says 'no'",
        lambda d: [
            d.cases(lambda f: f.assign(label=np.where(f["label"] == 1, "yes", "no"))),
            d.cases(lambda f: f.assign(decision=np.where(f["decision"] == 1, "yes", "No")), "log.csv"),
        ], {"new.toml"},
    ),
    Row(
        11, "decisions of other classes than labels", "init cases.csv log.csv --out new.toml", 3, "one set of classes",
        column(label=lambda f: np.where(f["label"] == 1, "fraud", "fine")), {"new.toml"},
    ),
    Row(11, "check names the features", f"check {HISTORY}", 0, "amount, channel"),
    # 12 readers
    Row(12, "two marks", f"check {HISTORY}", 3, "two ways", lambda d: (d.folder / "cases.csv").write_text("a;b,c\n1;2,3\n")),
    Row(12, "no such file", "check --cases case.csv --config d.toml", 3, "did you mean 'cases.csv'"),
    Row(12, "a folder without tables", "check --cases empty --config d.toml", 3, "no .parquet", lambda d: (d.folder / "empty").mkdir()),
    # 13 show, 14 plans
    Row(13, "show", "show m.deccaf", 0, "ann"),
    Row(14, "a plan says why", ASSIGN, 0, "no plan within the limits is better by more than", writes={"plan.csv"}, look=plan_is_full),
    Row(14, "two scenarios", f"assign {TODAY} --what-if ann=+2 --what-if costs.false_negative=3", 0, "2 scenarios"),
    Row(14, "a newcomer", f"assign {TODAY} --what-if newcomer=4", 0, "nothing was written"),
    Row(14, "a slip in a name", f"assign {TODAY} --what-if Ann=+2", 3, "did you mean 'ann'"),
    Row(14, "the same with another number is somebody else", f"assign {TODAY} --what-if 008=4", 0, "never seen"),
    # 15 backtest
    Row(15, "no such batch", f"backtest {HISTORY} --batch day --out report", 2, "day"),
    Row(15, "a roster of nobody", f"backtest {HISTORY} --capacity none.csv --out report", 3, "none.csv"),
    Row(
        15, "one person is no choice", f"backtest {HISTORY} --policies machine,random,deccaf-blind,deccaf", 0,
        "Against what really happened",
        lambda d: d.cases(lambda f: f.assign(expert_id="ann"), "log.csv"), unsaid="among the experts",
    ),
    # 16 plan files and tables, 17 progress: none off a terminal
    Row(16, "one set of columns", ASSIGN, 0, "Plan: plan.csv", writes={"plan.csv"}, look=plan_is_full),
    Row(17, "no progress off a terminal", f"fit {HISTORY} --out x.deccaf", 0, "Model: x.deccaf", writes={"x.deccaf"}),
    # 18 texts and vectors
    Row(18, "a text is said", f"check {HISTORY}", 0, "column 'note' is read as text", long_notes),
    Row(18, "a text is learned", f"fit {HISTORY} --out x.deccaf", 0, "read as text", long_notes, {"x.deccaf"}),
    Row(18, "the label as a text", f"check {HISTORY}", 2, "is the label", lambda d: d.config('text = ["label"]')),
    Row(18, "a short vector", f"check {HISTORY}", 3, "row 120 (case '000119') has 3 numbers where 2 belong", vectors("[1, 2, 3]")),
    Row(18, "a vector with a hole", f"check {HISTORY}", 3, "holds nan at place 2", vectors("[1, NaN]")),
    Row(18, "no such text", f"check {HISTORY}", 3, "did you mean 'channel'", lambda d: d.config('text = ["chanel"]')),
    # ordinary exports
    Row(4, "a summary row of cases", f"fit {HISTORY} --out x.deccaf", 3, "row 121 is called 'Total'", lambda d: d.append("cases.csv", "Total,5,,,\n")),
    Row(4, "a summary row of a roster", ASSIGN, 3, "is called 'Summe'", lambda d: d.append("roster.csv", "Summe,20\n")),
    Row(12, "percent signs", f"check {HISTORY}", 0, "'%' is taken off its numbers", column(rate=lambda f: [f"{k / 7:.1f}%" for k in range(len(f))])),
    Row(12, "dollars", f"check {HISTORY}", 0, "'$' is taken off its numbers: '$0' is 0", money("$")),
    Row(12, "a mix of signs", f"check {HISTORY}", 3, "numbers with signs or marks", spelled(["$10", "€20", "$30"])),
    Row(12, "a thousand or one", f"check {HISTORY}", 3, "numbers with signs or marks", spelled(["€1.234", "€2.500"])),
    Row(12, "accountants' negatives", f"check {HISTORY}", 3, "numbers with signs or marks", spelled(["(1,250)", "2,300"])),
    Row(12, "dashes for missing numbers", f"check {HISTORY}", 3, "mixes numbers and text", spelled(["1.5", "-", "2.5"])),
    Row(12, "an index without a name", f"check {HISTORY}", 3, "an index that pandas wrote", renamed("amount", " ")),
    Row(12, "empty rows at the end", f"check {HISTORY}", 0, "2 empty row(s) are left out", lambda d: d.append("cases.csv", ",,,,\n,,,,\n")),
    Row(12, "half an hour", ASSIGN, 3, "whole numbers of cases", lambda d: d.append("roster.csv", "bob,7:30\n")),
    Row(1, "one person in two spellings", f"check {HISTORY}", 0, "'Ann' and 'ann' count as two", lambda d: d.cases(lambda f: f.assign(expert_id=["Ann", *f["expert_id"][1:]]), "log.csv")),
    Row(4, "a class in two spellings", f"check {HISTORY}", 3, "name the classes under [costs] classes", column(label=lambda f: np.where(f["label"] == 1, "yes", "no"))),
    Row(7, "a column without any value", f"fit {HISTORY} --out x.deccaf", 0, "Model: x.deccaf", column(note=lambda f: ""), {"x.deccaf"}),
]  # fmt: skip


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Files that can be used, by name."""
    folder = tmp_path_factory.mktemp("good")
    frame = history()
    frame[["case_id", "amount", "channel", "time", "label"]].to_csv(folder / "cases.csv", index=False)
    frame[["case_id", "expert_id", "decision"]].to_csv(folder / "log.csv", index=False)
    frame[["case_id", "amount", "channel"]][:30].to_csv(folder / "today.csv", index=False)
    (folder / "roster.csv").write_text("expert_id,upper\n007,10\nann,10\n")
    (folder / "d.toml").write_text(CONFIG)
    model = DeCCaF(Costs.binary(1.0, 1.0), case_parts=("logistic",), decision_parts=("rates",))
    X = frame[["amount", "channel"]]
    model.fit(X, frame["label"], expert=frame["expert_id"], decision=frame["decision"])
    model.save(folder / "m.deccaf")
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("row", ROWS, ids=[f"{row.item}: {row.name}" for row in ROWS])
def test_row(row: Row, good: dict[str, bytes], run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, content in good.items():
        (tmp_path / name).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    desk = Desk(tmp_path)
    row.spoil(desk)
    before = desk.snapshot()
    code, out, err = run(*shlex.split(row.command))
    said = " ".join(f"{out} {err}".split())
    assert code == row.code, said
    assert row.said in said
    assert row.unsaid not in said
    after = desk.snapshot()
    assert {Path(name).name for name in after if after[name] != before.get(name)} == row.writes
    assert before.keys() <= after.keys()
    assert row.look(desk)


def test_every_item_has_a_row() -> None:
    assert {row.item for row in ROWS} == set(range(1, 19))
