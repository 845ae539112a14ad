"""Golden cases: nobody can tell them apart, they cost nothing on record, and what they say counts."""

from __future__ import annotations

import json
import re
import time
import uuid
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sqlalchemy as sa

from deccaf.service.decide import golden_choice as hand_outs
from deccaf.service.decide.newcomers import with_newcomers
from deccaf.service.ledger.review import golden, golden_ids
from deccaf.service.ledger.review.undo import UNDO_SECONDS
from deccaf.service.monitor import windows
from deccaf.service.reports.agreement_report import report_agreement
from deccaf.service.store import tables as t
from pages_world import Person, new_key
from service_world import World, history, model_file, world


def furnished(here: World, tmp_path: Path) -> None:
    """A model in force, three cases of ann's, and golden cases to choose from."""
    put = here.lead.post(
        "/v1/models?name=first",
        content=model_file(tmp_path),
        headers={"Content-Type": "application/octet-stream"},
    )
    assert put.status_code == 201, put.text
    assert here.lead.post(f"/v1/models/{put.json()['id']}/activate").status_code == 200
    here.service.models.refresh()
    rows = history(40, seed=9)
    known = [
        {"features": {"amount": row.amount, "channel": row.channel}, "label": int(row.label)}
        for row in rows.itertuples()
    ]
    made = here.lead.post("/v1/golden", json={"cases": known})
    assert made.status_code == 201, made.text
    assert made.json() == {"entered": 40}


def hand_out(here: World, at: float | None = None) -> list[str]:
    return hand_outs.hand_out(
        here.service.engine, here.service.writer, here.service.models.active, np.random.default_rng(0), at
    )


def shape(value: Any) -> Any:
    """What a reviewer could tell cases apart by: fields and kinds of values."""
    if isinstance(value, dict):
        return {name: shape(part) for name, part in value.items()}
    return type(value).__name__


def test_a_golden_case_from_the_queue_to_its_label(database_url: str, tmp_path: Path) -> None:
    with world(database_url, {"ann": 9, "bob": 1, "machine": 0}, housekeeping=False) as here:
        furnished(here, tmp_path)
        assert here.lead.post("/v1/webhooks", json={"url": "http://127.0.0.1:9/told"}).status_code == 201
        assert here.ann.put("/v1/golden/rates/ann", json={"rate": 0.5}).status_code == 403
        assert here.lead.put("/v1/golden/rates/nobody", json={"rate": 0.5}).status_code == 404
        assert here.lead.put("/v1/golden/rates/ann", json={"rate": 0.5}).status_code == 200
        for number in range(6):
            body = {"case_id": f"a-{10**8 + number}", "features": {"amount": 0.3, "channel": "web"}}
            answer = here.machine.post("/v1/cases", json=body)
            assert answer.status_code in (201, 202), answer.text
        usual = here.lead.get("/v1/reports/shift").json()
        made = hand_out(here)
        assert made
        assert hand_out(here) == []  # nothing new since
        assert not {case for case in made if not case.startswith("a-") or len(case) != 11}
        after = here.lead.get("/v1/reports/shift").json()
        assert after["expected_cost"] == pytest.approx(usual["expected_cost"])
        assert after["machine_cost"] is not None
        loads = {row["maker"]: row for row in after["makers"]}
        before = {row["maker"]: row for row in usual["makers"]}
        assert loads["ann"]["used"] == before["ann"]["used"] + len(made)  # it takes their time
        here.assert_sound()

        shapes, decided = set(), []
        while (claim := here.ann.post("/v1/queue/next", json={})).status_code == 200:
            case = claim.json()
            own = here.ann.get(f"/v1/cases/{case['case_id']}").json()
            decision = {"decision": 0, "seconds": 30.0}
            done = here.ann.post(f"/v1/cases/{case['case_id']}/decision", json=decision)
            assert done.status_code == 200, done.text
            shapes.add(json.dumps([shape(case), shape(own), shape(done.json())], sort_keys=True))
            decided.append(case["case_id"])
        assert set(made) < set(decided)
        assert len(shapes) == 1

        truth = here.service.read(_labels)
        assert here.service.read(lambda c: golden.to_reveal(c, time.time())) == []  # may still be taken back
        hand_out(here, time.time() + UNDO_SECONDS + 1)
        labelled = here.service.read(
            lambda c: dict(c.execute(sa.select(t.cases.c.case_id, t.cases.c.label)).all())
        )
        assert {case: labelled[case] for case in made} == truth
        told = here.lead.get("/v1/webhooks/deliveries?limit=1000").json()["items"]
        assert told
        assert not {one["case_id"] for one in told} & set(made)  # nobody outside knows of them
        record = here.lead.get("/v1/golden").json()["people"][0]
        right = sum(json.loads(label) == 0 for label in truth.values())
        assert (record["maker"], record["given"], record["decided"]) == ("ann", len(made), len(made))
        assert (record["right"], record["seconds"]) == (right, 30.0 * len(made))

        lead = Person(here, new_key(here, "lead"))
        assert f"{right} of {len(made)} were decided right" in lead.get("/team").text
        assert lead.post("/team/golden", {"person": "ann", "rate": "51"}).status_code == 422
        assert lead.post("/team/golden", {"person": "ann", "rate": "often"}).status_code == 422
        lead.post("/team/golden", {"person": "ann", "rate": "2,5"})
        assert here.lead.get("/v1/golden").json()["people"][0]["rate"] == 0.025

        far = time.time() + 10**6
        watched = here.service.read(lambda c: windows.labels_after(c, 0, far))
        assert {case.case_id for case in watched if case.golden} == set(made)
        assert {case.case_id for case in here.service.read(lambda c: windows.decided_by_people(c, 0, far))}
        assert here.service.read(lambda c: windows.freshly_labelled(c, 0, far)) == []
        kinds = [line["kind"] for line in here.lead.get(f"/v1/cases/{made[0]}").json()["history"]]
        assert {"golden", "assigned", "claimed", "decided", "labelled"} <= set(kinds)
        here.assert_sound()


def test_a_golden_case_gets_no_second_opinion(database_url: str, tmp_path: Path) -> None:
    with world(database_url, {"ann": 9, "bob": 9, "machine": 0}, housekeeping=False) as here:
        furnished(here, tmp_path)
        here.lead.put("/v1/golden/rates/ann", json={"rate": 0.5})
        for number in range(6):
            body = {"case_id": f"a-{10**8 + number}", "features": {"amount": 0.3, "channel": "web"}}
            assert here.machine.post("/v1/cases", json=body).status_code in (201, 202)
        made = hand_out(here)
        assert made
        assert here.lead.put("/v1/second-opinions", json={"share": 1.0}).status_code == 200
        while (claim := here.ann.post("/v1/queue/next", json={})).status_code == 200:
            here.ann.post(f"/v1/cases/{claim.json()['case_id']}/decision", json={"decision": 0})
        asked = here.service.read(lambda c: set(c.execute(sa.select(t.opinions.c.case_id)).scalars()))
        assert asked
        assert not asked & set(made)
        here.assert_sound()


def _labels(connection: sa.Connection) -> dict[str, str]:
    g = t.golden_cases.c
    return dict(connection.execute(sa.select(g.case_id, g.label)).all())


def test_a_newcomers_golden_cases_count_and_are_chosen_for_what_they_tell(
    tmp_path: Path,
) -> None:
    with world(f"sqlite:///{tmp_path}/ledger.db", {"ann": 9, "machine": 0}, housekeeping=False) as here:
        furnished(here, tmp_path)
        model = here.service.models.active
        assert model is not None
        assert here.lead.post("/v1/experts", json={"name": "eve", "team": "desk"}).status_code == 201
        due = golden.Due("eve", here.shift, 3, 0, 0)
        chosen = hand_outs.choose(here.service.engine, model, due, np.random.default_rng(0))
        assert [one.how for one in chosen] == ["telling"] * 3
        assert len({one.candidate.source for one in chosen}) == 3
        again = hand_outs.choose(here.service.engine, model, due, np.random.default_rng(1))
        assert [one.candidate.source for one in again] == [one.candidate.source for one in chosen]
        seen = here.service.read(lambda c: with_newcomers(c, model.system))
        assert seen is model.system  # nothing decided yet


def test_the_team_page_says_how_far_people_agree(tmp_path: Path) -> None:
    """On a history that was entered, with three decisions a case."""
    with world(f"sqlite:///{tmp_path}/ledger.db", housekeeping=False) as here:
        furnished(here, tmp_path)
        lead, rng = Person(here, new_key(here, "lead")), np.random.default_rng(3)
        assert "Too few cases" in lead.get("/team/agreement").text
        rows = history(60, seed=4)
        with here.service.engine.begin() as connection:
            entry = connection.execute(
                sa.insert(t.past_entries).values(at=0.0, key_id=1, filename="p.csv", facts="{}")
            ).inserted_primary_key[0]
            for row in rows.itertuples():
                facts = json.dumps({"amount": row.amount, "channel": row.channel})
                case = {"entry_id": entry, "case_id": row.case_id}
                connection.execute(
                    sa.insert(t.past_cases).values(
                        **case, features=facts, label=json.dumps(int(row.label)), came_at=0.0
                    )
                )
                for maker, error in (("ann", 0.05), ("bob", 0.1), ("cat", 0.4)):
                    said = int(row.label) ^ int(rng.random() < error)
                    connection.execute(
                        sa.insert(t.past_decisions).values(**case, maker=maker, decision=json.dumps(said))
                    )
        model = here.service.models.active
        assert model is not None
        found = here.service.read(lambda c: report_agreement(c, model))
        assert found is not None
        assert found.cases == 60
        assert {found.pairs[-1]["first"], found.pairs[-1]["second"]} == {"ann", "bob"}
        assert all(0 < row["expected"] < 1 for row in found.overall)
        assert set(found.kinds) == {"truth", "channel"}
        assert {row["kind"] for row in found.kinds["channel"]} == set(rows["channel"])
        # second opinions: the first two answers, of people who did not know each other's, count
        said = {
            "q1": [("ann", 1), ("bob", 0), ("cat", 0)],
            "q2": [("ann", 1), ("bob", 1)],
            "q3": [("cat", 1)],
        }
        with here.service.engine.begin() as connection:
            _second_opinions(connection, said)
        more = here.service.read(lambda c: report_agreement(c, model))
        assert more is not None
        assert more.cases == 62
        shared = {(pair["first"], pair["second"]): pair["cases"] for pair in more.pairs}
        assert (shared["ann", "bob"], shared["ann", "cat"]) == (62, 60)
        page = lead.get("/team/agreement").text
        assert "People agree with alpha" in page
        assert "By channel" in page
        listed = lead.get("/team/meeting.csv").text.splitlines()
        assert listed[0] == "case_id,said,apart,at_stake"
        assert len(listed) == 1 + len(found.meeting) > 5


def _second_opinions(connection: sa.Connection, said: dict[str, list[tuple[str, int]]]) -> None:
    """Labelled cases whose last answer is the decision, the others opinions beside it."""
    facts = json.dumps({"amount": 0.3, "channel": "web"})
    for at, (name, answers) in enumerate(said.items()):
        case = {"case_id": name, "features": facts, "label": "1", "labelled_at": 9.0, "status": "decided"}
        connection.execute(sa.insert(t.cases).values(**case, arrived_at=float(at), excluded="[]"))
        asked = {"case_id": name, "state": "agreed", "why": "lot", "machine_barred": False}
        connection.execute(sa.insert(t.second_opinions).values(**asked, at=float(at)))
        for place, (maker, decision) in enumerate(answers):
            row = {"case_id": name, "maker": maker, "decision": json.dumps(decision), "at": float(place)}
            if place == len(answers) - 1:
                connection.execute(sa.insert(t.decisions).values(**row))
            else:
                connection.execute(sa.insert(t.opinions).values(**row, assignment_id=place))


def test_golden_cases_from_a_file(tmp_path: Path) -> None:
    with world(f"sqlite:///{tmp_path}/ledger.db", {"ann": 9, "machine": 0}, housekeeping=False) as here:
        furnished(here, tmp_path)
        rows = history(30, seed=11)[["amount", "channel", "label"]]
        head = {"Content-Type": "text/csv"}

        def send(frame: pd.DataFrame, asked: str = "", who: Any = None) -> Any:
            body = frame.to_csv(index=False)
            return (who or here.lead).post(f"/v1/golden/import{asked}", content=body, headers=head)

        assert send(rows, who=here.ann).status_code == 403
        assert "'label': missing" in send(rows.drop(columns="label")).json()["detail"]
        bad = rows.assign(label=[7, *rows["label"][1:]])
        refused = send(bad)
        assert refused.status_code == 422
        assert refused.json()["errors"][0] == {
            "row": 1, "case_id": None, "column": "label", "message": "must be one of the classes: 0, 1"
        }  # fmt: skip
        looked = send(bad, "?dry_run=true")
        assert (looked.status_code, looked.json()["accepted"], looked.json()["rejected"]) == (200, 29, 1)
        assert send(bad, "?skip_bad=true").json()["entered"] == 29
        assert send(rows).json()["entered"] == 30
        entered = here.service.read(lambda c: golden.candidates(c, "ann"))
        assert len(entered) == 40 + 29 + 30
        assert golden.parsed(entered[0])[0].keys() == {"amount", "channel"}


@pytest.mark.parametrize(
    "ids",
    [
        [f"a-{10**8 + k}" for k in range(60)],
        [f"{k}" for k in range(5000, 5060)],
        [f"case_{k:06d}" for k in range(60)],
        [str(uuid.UUID(int=k, version=4)) for k in np.random.default_rng(0).integers(0, 2**62, 60).tolist()],
        [f"{k:012x}" for k in np.random.default_rng(1).integers(0, 2**48, 60).tolist()],
        [f"T{k}" for k in np.random.default_rng(2).integers(10**8, 10**9, 60).tolist()],
        [f"c{k}" for k in range(7)],
    ],
    ids=["long", "short", "padded", "uuid", "hex", "random", "few"],
)
def test_ids_of_golden_cases_look_like_the_others(ids: list[str]) -> None:
    rng = np.random.default_rng(5)
    made = list(islice(golden_ids._drawn(ids, len(ids), rng), 50))
    assert len(set(made)) == 50
    assert not set(made) & set(ids)
    if len(ids) == 7:  # three thousand numbers of one digit there are not
        assert all(re.fullmatch(r"c[0-9]+", one) for one in made)
        return
    shape = {re.sub(r"[0-9a-f]", "x", one) for one in ids}
    assert {re.sub(r"[0-9a-f]", "x", one) for one in made} <= shape
    numbers = [re.sub(r"\D", "", one) for one in made]
    if ids[0].startswith("a-"):  # far enough ahead of the counting, and not at the other end of the range
        assert {int(one) // 10**7 for one in numbers} == {10}
    if ids[0] == "5000":
        assert min(map(int, numbers)) > 6000
