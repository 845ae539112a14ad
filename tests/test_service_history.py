"""Histories from elsewhere: all decisions go in, what cannot is listed first, an entry is taken back whole."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pandas as pd
import pytest

from deccaf.service.imports import past_import, past_records
from deccaf.service.jobs.learning import read_lesson
from deccaf.service.ledger import claims
from deccaf.service.monitor.windows import label_delays
from deccaf.service.store import database
from deccaf.service.store.keys import Actor
from service_world import World, world

CSV = {"Content-Type": "text/csv"}
COSTS = {"costs": {"false_positive": 0.2, "false_negative": 1.0}}


def readings(cases: int = 120, each: int = 4, people: int = 29) -> pd.DataFrame:
    """Several decisions for each case, by any of many people, with a patient's number and their own times."""
    rng = np.random.default_rng(4)
    one = pd.DataFrame(
        {
            "case_id": [f"r:{k}" for k in range(cases)],
            "patient_number": rng.integers(10_000, 10_000 + cases // 2, cases),
            "density": rng.normal(size=cases).round(3),
            "ward": rng.choice(["a", "b", "c"], cases),
            "time": pd.Timestamp("2025-03-01") + pd.to_timedelta(np.arange(cases), unit="h"),
        }
    )
    one["label"] = (one["density"] + rng.normal(size=cases) > 0.5).astype(int)
    rows = one.loc[np.repeat(np.arange(cases), each)].reset_index(drop=True)
    rows["expert_id"] = [f"reader{k % people:02d}" for k in range(len(rows))]
    wrong = rng.random(len(rows)) < 0.2
    rows["decision"] = np.where(wrong, 1 - rows["label"], rows["label"])
    rows["decided_at"] = rows["time"] + pd.Timedelta("2h")
    rows["labelled_at"] = rows["time"] + pd.Timedelta("40D")
    rows["mood"] = rng.normal(size=len(rows)).round(2)
    return rows


def as_csv(frame: pd.DataFrame) -> bytes:
    return frame.to_csv(index=False).encode()


def test_all_decisions_go_in_and_come_out_as_they_were(database_url: str) -> None:
    frame = readings()
    with world(database_url, housekeeping=False) as desk:
        before = _counts(desk)
        look = desk.lead.post("/v1/history?dry_run=true", content=as_csv(frame), headers=CSV).json()
        assert (look["cases"], look["decisions"], len(look["people"])) == (120, 480, 29)
        assert desk.lead.get("/v1/history").json()["items"] == [], "a look writes nothing"
        parts = {column["name"]: column["part"] for column in look["columns"]}
        assert parts["patient_number"] == "group"
        assert (parts["density"], parts["ward"], parts["mood"]) == ("feature", "category", "-")
        made = desk.lead.post("/v1/history?filename=r.csv", content=as_csv(frame), headers=CSV)
        assert made.status_code == 201, made.text
        assert made.json()["first_at"].startswith("2025-03-01T00:00:00")
        assert desk.lead.put("/v1/settings", json=COSTS).status_code == 200
        lesson = desk.service.read(read_lesson)
        assert len(lesson.cases) == 120
        got = lesson.decisions.sort_values(["case_id", "expert_id"], ignore_index=True)
        put = frame.sort_values(["case_id", "expert_id"], ignore_index=True)
        pd.testing.assert_frame_equal(
            got[["case_id", "expert_id", "decision"]],
            put[["case_id", "expert_id", "decision"]],
            check_dtype=False,
        )
        assert "propensity" not in got
        assert sorted(lesson.cases["time"])[0] == pd.Timestamp("2025-03-01", tz="UTC").timestamp()
        assert lesson.history().cases.features.shape[0] == 120
        _nothing_happened_today(desk, before)
        desk.assert_sound()


def _counts(desk: World) -> dict[str, Any]:
    return desk.lead.get("/v1/reports/shift").json()


def _nothing_happened_today(desk: World, before: dict[str, Any]) -> None:
    assert _counts(desk) == before
    day = desk.service.read(lambda c: claims.read_work_day(c, "reader01", time.time()))
    assert (day.decided, day.latest) == (0, [])
    assert desk.service.read(lambda c: label_delays(c, 0.0)) == (None, None)
    people = {one["maker"]: one for one in desk.lead.get("/v1/reports/experts").json()["items"]}
    assert people["reader01"]["all_cases"]["labelled"] > 10, "their record counts all the same"


def test_what_cannot_go_in_is_listed_and_asked_about(database_url: str) -> None:
    frame = readings(40).astype({"expert_id": "object"})
    frame.loc[5, "expert_id"] = None
    frame.loc[9, "expert_id"] = "machine"
    frame.loc[20, "label"] = 1 - frame.loc[20, "label"]
    frame.loc[30, "decided_at"] = pd.Timestamp("2020-01-01")
    with world(database_url, housekeeping=False) as desk:
        refused = desk.lead.post("/v1/history", content=as_csv(frame), headers=CSV)
        assert (refused.status_code, refused.json()["type"]) == (422, "urn:deccaf:problem:bad-rows")
        found = {error["row"]: error["message"] for error in refused.json()["errors"]}
        assert found.keys() == {6, 10, 21, 22, 23, 24, 31}
        assert found[6] == "is empty, and there is a decision"
        assert found[22] == "the rows of this case name different truths"
        assert found[31] == "is before the case came"
        assert desk.lead.get("/v1/history").json()["items"] == []
        made = desk.lead.post("/v1/history?skip_bad=true", content=as_csv(frame), headers=CSV).json()
        assert (made["cases"], made["decisions"], made["rejected"]) == (39, 153, 7)
        again = desk.lead.post("/v1/history", content=as_csv(frame.drop(index=range(4, 40))), headers=CSV)
        assert again.status_code == 422
        assert "is in entry 1 already" in again.json()["errors"][0]["message"]


def test_an_entry_is_taken_back_as_a_whole(database_url: str) -> None:
    with world(database_url, housekeeping=False) as desk:
        assert desk.lead.put("/v1/settings", json=COSTS).status_code == 200
        keep, drop = readings(30), readings(60).assign(case_id=lambda f: "x" + f["case_id"])
        drop["expert_id"] = "other" + drop["expert_id"]
        for frame in (keep, drop):
            assert desk.lead.post("/v1/history", content=as_csv(frame), headers=CSV).status_code == 201
        assert len(desk.service.read(read_lesson).decisions) == 120 + 240
        gone = desk.lead.delete("/v1/history/2")
        assert gone.json()["withdrawn_at"] is not None
        lesson = desk.service.read(read_lesson)
        assert len(lesson.decisions) == 120
        assert not lesson.decisions["expert_id"].str.startswith("other").any()
        names = {one["name"] for one in desk.lead.get("/v1/experts").json()["items"]}
        assert "reader01" in names
        assert not any(name.startswith("other") for name in names)
        assert desk.lead.delete("/v1/history/2").status_code == 409
        assert desk.lead.delete("/v1/history/9").status_code == 404
        assert desk.lead.post("/v1/history", content=as_csv(drop), headers=CSV).status_code == 201
        shown = desk.lead.get("/v1/history").json()["items"]
        assert [entry["withdrawn_at"] is None for entry in shown] == [True, False, True]


def test_columns_of_any_name_can_be_chosen() -> None:
    frame = readings().rename(
        columns={"case_id": "scan", "expert_id": "radiologist", "decision": "recall", "label": "cancer"}
    )
    unread = past_import.check_past(frame)
    assert unread.trouble is not None
    assert "which case a row is about" in unread.trouble
    assert {one.name for one in unread.columns} == set(frame)
    past = past_import.check_past(frame, {"scan": "case", "recall": "decision", "patient_number": "-"})
    assert (past.trouble, len(past.cases), len(past.decisions)) == (None, 120, 480)
    parts = {one.name: one.part for one in past.columns}
    assert (parts["radiologist"], parts["cancer"], parts["patient_number"]) == ("expert", "label", "-")


def test_times_without_a_second_column_are_those_of_the_decisions() -> None:
    frame = readings().drop(columns=["decided_at", "labelled_at"])
    frame["time"] = frame["time"] + pd.to_timedelta(np.arange(len(frame)), unit="min")
    past = past_import.check_past(frame)
    assert past.rejected == 0
    first = min(case.came_at for case in past.cases)
    assert first == pd.Timestamp("2025-03-01", tz="UTC").timestamp()
    assert all(one.decided_at is not None for one in past.decisions)
    assert any("taken for when they were made" in note for note in past.notes)


@pytest.mark.parametrize("column", ["label", "time"])
def test_a_case_without_a_truth_or_a_date_goes_in(tmp_path: Any, column: str) -> None:
    frame = readings(40).drop(columns=["decided_at", "labelled_at"])
    if column == "label":
        frame["label"] = frame["label"].where(frame.index >= 8).astype("Int64")
    else:
        frame["time"] = np.repeat([3, 1, 2, 0], 40)  # months: an order, no dates
    past = past_import.check_past(frame)
    assert (past.rejected, len(past.cases), past.labelled) == (0, 40, 38 if column == "label" else 40)
    with world(f"sqlite:///{tmp_path}/d.db", housekeeping=False) as desk:
        with database.writing(desk.service.engine) as connection:
            past_records.enter_past(connection, past, "f", Actor(1), 1e6)
        rows = desk.service.read(lambda c: past_records.lesson(c, only_labelled=True)).cases
        assert len(rows) == past.labelled
        if column == "time":
            assert [row.came_at for row in rows] == np.repeat(
                [999_987.0, 999_988, 999_989, 999_990], 10
            ).tolist()
