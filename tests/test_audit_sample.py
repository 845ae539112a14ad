"""Audit samples: exact chances, estimates by hand, intervals that hold, and the two commands."""

import json

import numpy as np
import pandas as pd
import pytest

from deccaf.errors import ConfigError, DataError
from deccaf.evaluate import audit_sample as a


def desk(n: int, seed: int = 0, missed: float = 0.01) -> pd.DataFrame:
    """Decisions of people and the machine, with the truth that an audit would find."""
    rng = np.random.default_rng(seed)
    group = np.where(rng.random(n) < 0.25, "old", "young")
    decision = (rng.random(n) < 0.08).astype(int)
    chance = np.where(decision == 1, 0.6, np.where(group == "old", 2 * missed, missed))
    return pd.DataFrame(
        {
            "case_id": [f"c{k}" for k in range(n)],
            "decision": decision,
            "maker": np.where(rng.random(n) < 0.3, "machine", "people"),
            "age": group,
            "label": (rng.random(n) < chance).astype(int),
        }
    )


def known(table: pd.DataFrame) -> dict[str, float]:
    """What an audit of everything would find."""
    said, true = table["decision"] == 1, table["label"] == 1
    right = (table["decision"] == table["label"]).mean()
    return {"precision": true[said].mean(), "recall": said[true].mean(), "accuracy": right}


def test_every_stratum_gives_its_number_with_the_chance_on_record():
    table = desk(4000).drop(columns="label")
    sample = a.draw(table, 300, seed=1, by=["maker"])
    assert len(sample) == 300
    assert not sample["case_id"].duplicated().any()
    sizes = a.strata_of(table, ["maker"]).value_counts()
    drawn = sample["stratum"].value_counts()
    assert (drawn >= a.FEWEST).all()
    for name, mine in sample.groupby("stratum"):
        assert mine["inclusion"].unique().tolist() == [drawn[name] / sizes[name]]
    pd.testing.assert_frame_equal(sample, a.draw(table, 300, seed=1, by=["maker"]))
    steered = a.draw(table, 300, seed=1, expected={"0": 0.01, "1": 0.5})
    assert (steered["decision"] == 0).sum() < (a.draw(table, 300, seed=1)["decision"] == 0).sum()
    assert a.allocate(np.array([3, 1000]), 50).tolist() == [3, 47]
    assert a.allocate(np.array([3, 10]), 50).tolist() == [3, 10]


def test_every_case_is_drawn_as_often_as_it_says():
    table = desk(60).drop(columns="label")
    hits = pd.Series(0, table["case_id"])
    for seed in range(200):
        sample = a.draw(table, 20, seed)
        hits[sample["case_id"]] += 1
        chance = sample.groupby("decision")["inclusion"].first()
    wanted = table.set_index("case_id")["decision"].map(chance)
    spread = np.sqrt(wanted * (1 - wanted) / 200).clip(lower=1e-9)
    assert (np.abs(hits / 200 - wanted) / spread).max() < 4.5


def test_by_hand():
    # 100 say 1, 20 audited, 15 true: 75 hits; 900 say 0, 90 audited, 1 true: 10 misses
    table = pd.DataFrame({"case_id": [f"c{k}" for k in range(1000)], "decision": [1] * 100 + [0] * 900})
    sample = table.iloc[[*range(20), *range(100, 190)]].assign(label=[1] * 15 + [0] * 5 + [1] + [0] * 89)
    sample["inclusion"] = np.where(sample["decision"] == 1, 0.2, 0.1)
    found = a.estimate(table, sample, 1).set_index("measure")
    assert found["value"].to_dict() == pytest.approx(
        {"precision": 0.75, "recall": 75 / 85, "accuracy": 0.965}
    )
    assert (found["low"] < found["value"]).all()
    assert (found["value"] < found["high"]).all()
    none = a.estimate(table, sample.assign(label=sample["label"] * (sample["decision"] == 1)), 1)
    recall = none.set_index("measure").loc["recall"]
    assert recall["value"] == 1.0
    assert 0.5 < recall["low"] < 0.8  # up to 37 misses of 900 could have been overlooked
    every = table.assign(label=1, inclusion=1.0)
    exact = a.estimate(table, every, 1).set_index("measure")
    assert exact["low"].to_numpy() == pytest.approx(exact["high"].to_numpy())
    assert exact.at["recall", "value"] == pytest.approx(0.1)


def test_intervals_hold_overall_and_by_group():
    table = desk(3000, seed=3)
    truth = {"all": known(table)} | {str(name): known(mine) for name, mine in table.groupby("age")}
    inside: dict[tuple[str, str], int] = {}
    for seed in range(60):
        drawn = a.draw(table.drop(columns="label"), 240, seed)
        audited = drawn.merge(table[["case_id", "label"]], on="case_id")
        for row in a.estimate(table.drop(columns="label"), audited, 1, group="age").itertuples():
            held = row.low - 1e-12 <= truth[row.group][row.measure] <= row.high + 1e-12
            inside[row.group, row.measure] = inside.get((row.group, row.measure), 0) + held
    assert min(inside.values()) >= 52  # of 60; 95 % and less three standard errors
    assert np.mean(list(inside.values())) >= 55.5


def test_what_cannot_be_estimated_is_refused():
    table = desk(500)
    bare, sample = table.drop(columns="label"), a.draw(table, 60, 0)
    with pytest.raises(ConfigError, match="strata need a sample of at least"):
        a.draw(bare, 5, 0)
    with pytest.raises(DataError, match="sampled cases have none"):
        a.estimate(bare, sample.assign(label=[None] + [1] * 59), 1)
    with pytest.raises(DataError, match="says inclusion"):
        a.estimate(bare, sample.iloc[:40], 1)
    with pytest.raises(DataError, match="stands there twice"):
        a.draw(pd.concat([bare, bare]), 60, 0)


def test_commands(run, tmp_path):
    table = desk(800)
    table.drop(columns="label").to_csv(tmp_path / "decisions.csv", index=False)
    sampled = tmp_path / "sample.csv"
    options = ["--decisions", tmp_path / "decisions.csv", "--by", "maker"]
    assert run("audit", "sample", *options, "--count", 120, "--seed", 4, "--out", sampled)[0] == 0
    sample = pd.read_csv(sampled)
    assert len(sample) == 120
    code, _, err = run("audit", "estimate", *options, "--sample", sampled, "--positive", 1)
    assert code == 3
    assert f"{sampled}: column 'label': missing" in err
    sample.merge(table[["case_id", "label"]]).to_csv(sampled, index=False)
    wanted = ["--sample", sampled, "--positive", 1, "--group", "age", "--json"]
    code, out, _ = run("audit", "estimate", *options, *wanted)
    rows = json.loads(out)
    assert code == 0
    assert [(row["group"], row["measure"]) for row in rows][:3] == [
        ("all", "precision"), ("all", "recall"), ("all", "accuracy")
    ]  # fmt: skip
    assert {row["group"] for row in rows} == {"all", "old", "young"}
    code, _, err = run("audit", "estimate", *options, *wanted[:-2], "size")
    assert code == 3
    assert f"{tmp_path / 'decisions.csv'}: column 'size': missing" in err
    code, _, err = run(
        "audit", "sample", *options[:2], "--by", "desk", "--count", 9, "--out", tmp_path / "s.csv"
    )
    assert code == 3
    assert f"{tmp_path / 'decisions.csv'}: column 'desk': missing" in err


def test_a_count_above_all_decisions_is_said(run, tmp_path):
    (tmp_path / "few.csv").write_text("case_id,decision\na,1\nb,1\nc,0\nd,0\n")
    code, _, err = run(
        "audit", "sample", "--decisions", tmp_path / "few.csv", "--count", 99, "--out", tmp_path / "s.csv"
    )
    assert code == 0
    assert "--count 99 of 4 decisions: all of them are in the sample" in err
    assert pd.read_csv(tmp_path / "s.csv")["inclusion"].tolist() == [1.0] * 4
