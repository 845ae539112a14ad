from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from deccaf import Cases, Columns, Costs, DataError, DeccafWarning, Decisions, Schema
from deccaf.data.cases import latest_share


def test_every_column_gets_its_part(cases_frame: pd.DataFrame) -> None:
    before = cases_frame.copy(deep=True)
    cases = Cases.from_frame(cases_frame, require=["label", "time"])
    assert cases.schema.names == ["amount", "channel"]
    assert list(cases.ids) == list(cases_frame["case_id"])
    assert cases.label is not None
    assert cases.label.tolist() == [0, 1, 0, 0, 1, 0, 0, 1]
    assert cases.features["amount"].dtype == np.float64
    assert list(cases.features["channel"].cat.categories) == ["branch", "phone", "web"]
    assert cases.features.isna().sum().to_dict() == {"amount": 1, "channel": 1}
    pd.testing.assert_frame_equal(cases_frame, before)


def test_groups_and_costs_are_no_features_unless_named(cases_frame: pd.DataFrame) -> None:
    costs = Costs.binary(1.0, "loss")
    frame = cases_frame.assign(loss=5.0, age=[20, 30] * 4)
    cases = Cases.from_frame(frame, columns=Columns(group=("age",)), costs=costs)
    assert cases.schema.names == ["amount", "channel"]
    assert list(cases.groups) == ["age"]
    assert list(cases.amounts) == ["loss"]
    named = Columns(group=("age",), features=("amount", "age"))
    assert Cases.from_frame(frame, columns=named, costs=costs).schema.names == ["amount", "age"]


def test_new_cases_are_cast_to_the_stored_levels(cases_frame: pd.DataFrame) -> None:
    schema = Cases.from_frame(cases_frame).schema
    new = pd.DataFrame({"channel": ["web", "fax"], "amount": [1, 2]}, index=[7, 9])
    cases = Cases.from_frame(new, schema=Schema.from_dict(schema.to_dict()))
    assert cases.features["channel"].isna().tolist() == [False, True]
    assert list(cases.features["channel"].cat.categories) == ["branch", "phone", "web"]
    assert schema.unseen(new, cases.features) == {"channel": 1}
    assert list(cases.ids) == [7, 9]


def test_codes_that_are_names_stay_names_when_some_are_missing() -> None:
    columns = Columns(categorical=("branch",))
    whole = Cases.from_frame(pd.DataFrame({"branch": [12, 7, 12]}), columns=columns)
    holes = Cases.from_frame(pd.DataFrame({"branch": [12, np.nan, 7]}), schema=whole.schema)
    assert whole.schema.features[0].levels == ("12", "7")
    assert holes.features["branch"].tolist() == ["12", np.nan, "7"] or holes.features["branch"].isna()[1]
    assert holes.features["branch"].iloc[[0, 2]].tolist() == ["12", "7"]


def test_time_windows_and_subsets(cases_frame: pd.DataFrame) -> None:
    cases = Cases.from_frame(cases_frame)
    assert list(cases.between(stop=2).ids) == ["a0", "a1", "a2", "a3"]
    assert list(cases.between(start=2).ids) == ["a4", "a5", "a6", "a7"]
    one = cases.take([5])
    assert (len(one), one.label.tolist()) == (1, [0])  # type: ignore[union-attr]


def test_latest_share_never_splits_equal_times() -> None:
    time = pd.Series([1] * 6 + [2] * 3 + [3], name="month")
    assert latest_share(time, 0.35).tolist() == [False] * 6 + [True] * 4
    assert latest_share(time, 0.01).tolist() == [False] * 9 + [True]
    with pytest.raises(DataError, match="all 4 cases have one time"):
        latest_share(pd.Series([1, 1, 1, 1], name="month"), 0.2)


def test_positions_match_numbers_and_text() -> None:
    cases = Cases.from_frame(pd.DataFrame({"case_id": [3, 5], "x": [0.0, 1.0]}))
    assert cases.positions(pd.Series(["5", "3"])).tolist() == [1, 0]
    assert cases.positions(pd.Series([5, 5, 3])).tolist() == [1, 1, 0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.assign(case_id=["a0", "a1", "a1", "a1", *"bcde"]), r"'case_id': 2 value\(s\).*'a1'"),
        (lambda f: f.assign(case_id=[None, *"bcdefgh"]), r"'case_id': 1 value\(s\) missing, first: in row 1"),
        (lambda f: f.assign(label=[0, 1, 2, 7, 0, 0, 0, 0]), r"'label': 2 value\(s\) outside \{0, 1\}, first: 2 in case 'a2'"),
        (lambda f: f.assign(label=[0, 1, None, 0, 0, 0, 0, 0]), r"'label': 1 label\(s\) missing.*case 'a2'"),
        (lambda f: f.drop(columns="label").assign(lable=0), "'label': missing.*did you mean 'lable'"),
        (lambda f: f.assign(time=[1, None, 1, 1, 1, 1, 1, 1]), r"'time': 1 value\(s\) missing"),
        (lambda f: f.assign(amount=np.inf), r"'amount': 8 infinite value\(s\), first: in case 'a0'"),
        (lambda f: f.assign(amount=["1", "2", "x", "4", "5", "6", "7", "?"]), r"'amount': mixes.*2 of 8.*'x' in case 'a2'"),
        (lambda f: f.assign(amount=[1, 2, "x", 4.5, 5, 6, 7, 8]), r"'amount': mixes.*1 of 8.*'x' in case 'a2'"),
        (lambda f: f.assign(amount=["1", "2", "3", "4", "5", "6", "7", "8"]), "'amount': holds numbers stored as text"),
        (lambda f: f[["case_id", "label", "time"]], "no feature column is left"),
    ],
)  # fmt: skip
def test_bad_cases_are_named(cases_frame: pd.DataFrame, change, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        Cases.from_frame(change(cases_frame), require=["label", "time"])
    assert caught.value.exit_code == 3


def test_text_in_a_number_feature_of_new_cases_is_named(cases_frame: pd.DataFrame) -> None:
    schema = Cases.from_frame(cases_frame).schema
    with pytest.raises(DataError, match=r"column 'amount': 8 value\(s\) are no numbers, first: 'x'"):
        Cases.from_frame(cases_frame.assign(amount="x"), schema=schema)
    with pytest.raises(DataError, match="column 'channel': missing"):
        Cases.from_frame(cases_frame.drop(columns="channel"), schema=schema)


def test_an_identifier_is_no_feature() -> None:
    frame = pd.DataFrame({"uuid": [f"id-{k}" for k in range(10_001)]})
    with pytest.raises(DataError, match="column 'uuid': 10,001 different names.*identifier"):
        Cases.from_frame(frame, columns=Columns(features="uuid"))


def test_what_nothing_can_be_learned_from_is_left_out_with_a_word() -> None:
    frame = pd.DataFrame({"amount": np.arange(200.0), "branch": ["a", "b"] * 100})
    frame["note"] = [f"said {k}" for k in range(200)]
    frame["seen"] = pd.Timestamp("2024-01-01")
    with pytest.warns(DeccafWarning) as told:
        cases = Cases.from_frame(frame)
    assert cases.schema.names == ["amount", "branch"]
    said = [str(warning.message) for warning in told]
    assert said[0].startswith("column 'note' is left out: 200 different names in 200 rows")
    assert said[1].startswith("column 'seen' is left out: holds dates")
    with warnings.catch_warnings(action="error"):
        quiet = Cases.from_frame(frame, columns=Columns(ignore=("note", "seen")))
        assert quiet.schema.names == ["amount", "branch"]
        kept = Cases.from_frame(frame, columns=Columns(categorical="note", ignore="seen"))
        assert kept.schema.names == ["amount", "branch", "note"]
    with pytest.raises(DataError, match="column 'seen': holds dates"):
        Cases.from_frame(frame, columns=Columns(features=("amount", "seen")))
    with pytest.raises(DataError, match="column 'amount': mixes"):
        Cases.from_frame(frame.assign(amount=[*map(str, range(190)), *"abcdefghij"]))
    with pytest.raises(ValueError, match="'note' is to be ignored, and has another part"):
        Columns(ignore=("note",), categorical=("note",))


def test_decisions_are_read_with_their_optional_columns(
    cases_frame: pd.DataFrame, decisions_frame: pd.DataFrame, tmp_path: Path
) -> None:
    decisions_frame.assign(propensity=0.5, seconds=30).to_csv(tmp_path / "log.csv", index=False)
    log = Decisions.read(tmp_path / "log.csv", cases=Cases.from_frame(cases_frame), roster={"ann", "bob"})
    assert log.experts == ("ann", "bob")
    assert log.decision.tolist() == [0, 1, 1, 0, 1, 0, 0, 0]
    assert log.propensity is not None
    assert log.propensity.eq(0.5).all()
    assert log.seconds is not None
    assert log.seconds.eq(30).all()


def test_numbers_of_experts_are_names() -> None:
    frame = pd.DataFrame({"case_id": [1, 2], "expert_id": [3.0, 4.0], "decision": [0, 1]})
    assert Decisions.from_frame(frame).experts == ("3", "4")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.drop(columns="decision"), "column 'decision': missing"),
        (lambda f: f.assign(expert_id="anne"), r"'expert_id': 8 value\(s\) name nobody.*'anne'; did you mean 'ann'"),
        (lambda f: f.assign(case_id="zz"), r"'case_id': 8 value\(s\) name no known case, first: 'zz'"),
        (lambda f: f.assign(decision=3), r"'decision': 8 value\(s\) outside \{0, 1\}, first: 3 in case 'a0'"),
        (lambda f: f.assign(decision=[None, *[1] * 7]), r"'decision': 1 value\(s\) missing, first: in case 'a0'"),
        (lambda f: f.assign(expert_id="machine"), "'machine' is the name of the machine"),
        (lambda f: f.assign(propensity=0.0), r"'propensity': 8 value\(s\) outside \(0, 1\]"),
        (lambda f: f.assign(propensity="often"), r"'propensity': 8 value\(s\) are no numbers, first: 'often' in case 'a0'"),
        (lambda f: f.assign(seconds=-1), r"'seconds': 8 value\(s\) outside \[0, inf\]"),
    ],
)  # fmt: skip
def test_bad_decisions_are_named(
    cases_frame: pd.DataFrame, decisions_frame: pd.DataFrame, change, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        Decisions.from_frame(
            change(decisions_frame), cases=Cases.from_frame(cases_frame), roster=["ann", "bob"]
        )


def test_a_million_cases_are_checked_in_seconds() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.random((200_000, 30)), columns=[f"x{k}" for k in range(30)])
    frame["kind"] = rng.choice(["a", "b", "c"], len(frame))
    cases = Cases.from_frame(frame)
    assert len(cases) == 200_000
    assert cases.schema.features[-1].levels == ("a", "b", "c")
