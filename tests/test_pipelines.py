"""`fit`, `backtest` and `assign` as steps of a pipeline: one JSON document, the same bytes again, codes."""

from __future__ import annotations

import ast
import hashlib
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import yaml

DOCS = Path(__file__).parents[1] / "docs" / "pipelines.md"
FAST = '[model]\nbudget = "quick"\ncase_parts = ["logistic"]\ndecision_parts = ["rates", "pooled"]\n'


def write_world(folder: Path) -> None:
    rng = np.random.default_rng(3)
    rows = 240
    amount = rng.normal(size=rows).round(4)
    label = (amount + rng.normal(size=rows) > 0).astype(int)
    cases = pd.DataFrame({"case_id": [f"c{k}" for k in range(rows)], "amount": amount, "label": label})
    cases["time"] = np.arange(rows) // 40
    said = np.where(rng.random(rows) < 0.8, label, 1 - label)
    log = pd.DataFrame(
        {"case_id": cases["case_id"], "expert_id": ["ann", "bob"] * (rows // 2), "decision": said}
    )
    cases.to_parquet(folder / "cases.parquet")
    log.to_parquet(folder / "log.parquet")
    cases.drop(columns=["label", "time"]).tail(30).to_parquet(folder / "today.parquet")
    (folder / "roster.csv").write_text("expert_id,upper\nann,5\nbob,5\nmachine,100\n")
    (folder / "tight.csv").write_text("expert_id,upper\nann,5\nbob,5\nmachine,5\n")
    (folder / "deccaf.toml").write_text("[costs]\nfalse_positive = 0.5\nfalse_negative = 1.0\n" + FAST)


def sums(folder: Path) -> dict[str, str]:
    made = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in made}


def test_steps_give_one_json_document_and_the_same_bytes_again(run, tmp_path: Path) -> None:
    write_world(tmp_path)
    history = ["--cases", tmp_path / "cases.parquet", "--decisions", tmp_path / "log.parquet"]
    history += ["--config", tmp_path / "deccaf.toml"]
    new = ["--cases", tmp_path / "today.parquet", "--capacity", tmp_path / "roster.csv"]
    found = []
    for _ in range(2):
        out = tmp_path / "out"
        printed = []
        for step in (
            ["fit", *history, "--out", out / "model.deccaf"],
            ["backtest", *history, "--out", out / "backtest", "--folds", 1, "--draws", 1],
            ["assign", "--model", out / "model.deccaf", *new, "--out", out / "plan.parquet"],
        ):
            code, text, err = run(*step, "--json")
            assert code == 0, err
            printed.append(json.loads(text))
        assert printed[1]["verdict"]["kind"]
        found.append((sums(out), printed))
    assert {"model.deccaf", "plan.parquet", "backtest/backtest.json"} <= set(found[0][0])
    assert found[0] == found[1]
    plan = ["assign", "--model", out / "model.deccaf", "--cases", tmp_path / "today.parquet"]
    for code, arguments in {
        2: [*plan, "--capacity", tmp_path / "roster.csv", "--out", out / "plan.txt"],
        3: [*plan, "--capacity", tmp_path / "log.parquet", "--out", out / "plan.csv"],
        4: [*plan, "--capacity", tmp_path / "tight.csv", "--out", out / "plan.csv"],
        6: ["assign", "--model", tmp_path / "cases.parquet", *new, "--out", out / "plan.csv"],
    }.items():
        assert run(*arguments, "--json")[:2] == (code, "")
    assert sums(out) == found[0][0], "an error leaves nothing behind"


def test_the_examples_are_what_they_say() -> None:
    text = DOCS.read_text()
    blocks = dict(re.findall(r"```(\w+)\n(.*?)```", text, re.DOTALL))
    ast.parse(blocks["python"])
    steps = yaml.safe_load(blocks["yaml"])["jobs"]["backtest"]["steps"]
    assert any("deccaf backtest" in step.get("run", "") for step in steps)
    assert "deccaf assign" in blocks["sh"]
