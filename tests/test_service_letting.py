"""Rejects let through by lot: drawn at the set share, on record with their chance, learned with, and priced."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from deccaf.data.config import Config
from deccaf.errors import ConfigError
from deccaf.service.jobs.learning import read_config, read_lesson
from deccaf.service.reports.letting_report import report_letting
from deccaf.service.web.pages.today import _letting
from service_world import world

SETTINGS = {
    "costs": {"false_positive": 0.3, "false_negative": 1.0},
    "labels": {"selective": "positive", "let_through": 1.0},
}


def test_a_reject_is_let_through_recorded_learned_with_and_priced(tmp_path: Path) -> None:
    with world(f"sqlite:///{tmp_path}/d.db", {"ann": 9}, housekeeping=False) as desk:
        assert desk.lead.put("/v1/settings", json=SETTINGS).status_code == 200
        report = desk.lead.get("/v1/reports/let-through").json()
        assert (report["share"], report["rejects"], report["price"]) == (1.0, 0, None)
        for name, said in (("a", 1), ("b", 0), ("c", 1)):
            desk.machine.post(
                "/v1/cases", json={**desk.case(name, machine=9.0, ann=0.1), "features": {"x": 1}}
            )
            answer = desk.lead.post(f"/v1/cases/{name}/decision", json={"expert": "ann", "decision": said})
            assert answer.status_code == 200, answer.text
            assert answer.json().get("let_through", False) == (said == 1)
        assert (
            desk.lead.put("/v1/settings", json={**SETTINGS, "labels": {"selective": [1]}}).status_code == 200
        )
        desk.machine.post("/v1/cases", json={**desk.case("d", machine=9.0, ann=0.1), "features": {"x": 1}})
        answer = desk.lead.post("/v1/cases/d/decision", json={"expert": "ann", "decision": 1})
        assert "let_through" not in answer.json()
        labels = [{"case_id": "a", "label": 1}, {"case_id": "b", "label": 0}]
        assert desk.lead.post("/v1/labels", json={"labels": labels}).status_code == 200
        desk.assert_sound()
        lesson = desk.service.read(read_lesson)
        cases = lesson.cases.set_index("case_id")
        assert list(cases.index) == ["a", "b", "c", "d"]  # also those without a label
        np.testing.assert_array_equal(cases["let_through"], [1.0, np.nan, 1.0, np.nan])
        assert cases["label"].isna().tolist() == [False, False, True, True]
        assert len(lesson.decisions) == 4
        assert lesson.history().cases.let_through is not None
        desk.lead.put("/v1/settings", json={**SETTINGS, "labels": {"selective": [1], "let_through": 0.1}})
        report = desk.lead.get("/v1/reports/let-through").json()
        assert (report["rejects"], report["let_through"], report["labelled"]) == (3, 2, 1)
        assert (report["price"], report["worst"]) == (1.0, 1.0)  # the one that is known was bad
        assert report["per_100_decisions"] == pytest.approx(100 * 0.1 * 3 / 4 * 1.0)


def test_rejects_of_the_machine_have_a_share_of_their_own(tmp_path: Path) -> None:
    labels = {"selective": "positive", "let_through_machine": 1.0}
    with world(f"sqlite:///{tmp_path}/d.db", {"ann": 9}, housekeeping=False) as desk:
        assert desk.lead.put("/v1/settings", json={**SETTINGS, "labels": labels}).status_code == 200
        for name, says in (("a", 1), ("b", 0)):
            case = {**desk.case(name, machine=0.1, ann=9.0), "machine_decision": says, "features": {"x": 1}}
            answer = desk.machine.post("/v1/cases", json=case).json()
            assert (answer["maker"], answer["decision"]) == ("machine", says)
            assert answer.get("let_through", False) == (says == 1)
        desk.machine.post("/v1/cases", json={**desk.case("c", machine=9.0, ann=0.1), "features": {"x": 1}})
        answer = desk.lead.post("/v1/cases/c/decision", json={"expert": "ann", "decision": 1}).json()
        assert "let_through" not in answer  # the share of people is 0
        report = desk.lead.get("/v1/reports/let-through").json()
        assert (report["machine_share"], report["let_through"], report["share"]) == (1.0, 1, 0.0)
        assert report["machine_per_100_decisions"] == pytest.approx(100 * 1 / 2 * 1.0)  # at worst
        told = desk.service.read(lambda c: report_letting(c, read_config(c))).price_in_words
        assert (
            told == "100% of the rejects of the machine are let through by lot, at about 50 per 100 decisions"
        )
        assert desk.service.read(_letting) == told  # as Today shows it
        desk.assert_sound()


def test_a_share_needs_to_know_what_hides_labels(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text("[costs]\nfalse_positive = 1\nfalse_negative = 1\n[labels]\nlet_through = 0.1\n")
    with pytest.raises(ConfigError, match="say first after which decisions labels are missing"):
        Config.read(path)
