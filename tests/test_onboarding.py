"""Newcomers: their decisions count at once, and the cases that tell most are proposed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from deccaf import DeCCaF
from deccaf.errors import ConfigError, DataError
from deccaf.models.decisions.model import DecisionModel
from deccaf.planning.onboarding import Stakes, propose
from models_world import World, excess, make_world
from service_world import small_model, world


@pytest.fixture(scope="module")
def team() -> tuple[World, DecisionModel, np.ndarray]:
    """Everybody but e0, whose decisions come later."""
    whole = make_world(3000, experts=8, seed=4)
    past = whole.take(whole.expert != "e0")
    return (
        whole,
        DecisionModel(parts=("rates", "pooled")).fit(*past.log),
        np.flatnonzero(whole.expert == "e0"),
    )


def of(model: DecisionModel, whole: World) -> float:
    """Excess log-loss of what is believed of e0."""
    only = World(
        whole.features, whole.truth, whole.expert, whole.decision, whole.time, whole.chance[:, :1], ["e0"]
    )
    return excess(model.predict(whole.features, ["e0"]), only)


def observed(model: DecisionModel, whole: World, rows: np.ndarray) -> DecisionModel:
    return model.observe(
        whole.features.iloc[rows], whole.truth[rows], ["e0"] * len(rows), whole.decision[rows]
    )


def test_decisions_of_a_newcomer_count_at_once(team: tuple[World, DecisionModel, np.ndarray]) -> None:
    whole, model, mine = team
    after = observed(model, whole, mine)
    assert of(after, whole) < 0.4 * of(model, whole)
    rows = after.predict_rows(whole.features, whole.truth, ["e0"] * len(whole.truth))
    table = after.predict(whole.features, ["e0", "e1"])
    np.testing.assert_allclose(rows, table[np.arange(len(rows)), 0, whole.truth], rtol=1e-9)
    np.testing.assert_allclose(table[:, 1], model.predict(whole.features, ["e1"])[:, 0], rtol=1e-9)
    widths = [np.subtract(*one.interval(whole.features[:50], ["e0"])[::-1]).mean() for one in (model, after)]
    assert widths[1] < 0.6 * widths[0]
    assert model.shifts_ == {}  # the model itself is as it was


def test_one_by_one_is_nearly_all_at_once(team: tuple[World, DecisionModel, np.ndarray]) -> None:
    whole, model, mine = team
    together, each = observed(model, whole, mine[:40]), model
    for start in range(0, 40, 10):
        each = observed(each, whole, mine[start : start + 10])
    assert each.shifts_["e0"].decisions == together.shifts_["e0"].decisions == 40
    gap = each.predict(whole.features[:200], ["e0"]) - together.predict(whole.features[:200], ["e0"])
    assert np.abs(gap).max() < 0.08


@pytest.mark.parametrize("parts", [("rates",), ("rates", "pooled")])
def test_three_classes_and_blends_without_slopes(parts: tuple[str, ...]) -> None:
    whole = make_world(1500, experts=4, classes=3, seed=2)
    past, mine = whole.take(whole.expert != "e0"), np.flatnonzero(whole.expert == "e0")
    model = DecisionModel(3, parts=parts).fit(*past.log)
    after = observed(model, whole, mine)
    np.testing.assert_allclose(after.predict(whole.features, ["e0"]).sum(axis=-1), 1.0)
    assert of(after, whole) < of(model, whole)
    with pytest.raises(DataError, match="without truth or decision"):
        model.observe(whole.features[:2], [0, -1], ["e0"] * 2, [0, 1])


def test_proposed_cases_tell_more_than_random_ones(team: tuple[World, DecisionModel, np.ndarray]) -> None:
    whole, model, mine = team
    p = np.column_stack([np.full(200, 0.6), np.full(200, 0.4)])
    stakes = Stakes(whole.features[:200], p, np.array([[[0.0, 1.0], [1.0, 0.0]]]), np.full(200, 0.15))
    found = propose(model, "e0", whole.features.iloc[mine], whole.truth[mine], stakes, 20)
    assert len(set(found.rows)) == 20
    assert (np.diff(found.saves) >= -1e-9).all()
    rng = np.random.default_rng(0)

    def left(rows: np.ndarray) -> float:
        after = observed(model, whole, mine[rows])
        low, high = after.interval(whole.features[:200], ["e0"])
        return float((high - low).mean())

    assert left(found.rows) < min(left(rng.permutation(len(mine))[:20]) for _ in range(5))
    with pytest.raises(ConfigError, match="count from 1 to 200"):
        propose(model, "e0", whole.features.iloc[mine], whole.truth[mine], stakes, 0)


def test_the_estimator_and_its_file_know_newcomers(tmp_path: Path) -> None:
    model = small_model()
    rows = pd.DataFrame({"amount": np.linspace(-1, 1, 30), "channel": ["web", "phone", "branch"] * 10})
    truth = np.arange(30) % 2
    wrong = model.observe(rows, truth, expert=["new"] * 30, decision=1 - truth)
    assert "new" in wrong.experts_
    assert "new" not in model.experts_
    losses = wrong.expected_loss(rows, ["new", "never seen"])
    assert (losses["new"] > losses["never seen"]).all()
    wrong.save(tmp_path / "m.deccaf")
    again = DeCCaF.load(tmp_path / "m.deccaf")
    pd.testing.assert_frame_equal(again.expected_loss(rows, ["new"]), losses[["machine", "new"]])
    assert again.experts_ == wrong.experts_
    proposed = model.onboard(rows, truth, "new", capacity={"ann": 5, "new": 5}, count=5)
    assert list(proposed.columns) == ["case_id", "label", "saves"]
    assert len(proposed) == 5
    with pytest.raises(ConfigError, match="not on the roster"):
        model.onboard(rows, truth, "new", capacity={"ann": 5})
    assert model.onboard(rows, truth, "ann", count=1)["saves"].iloc[0] >= 0


def test_the_command_proposes_and_counts(run, tmp_path: Path) -> None:
    small_model().save(tmp_path / "m.deccaf")
    cases = pd.DataFrame({"case_id": [f"c{k}" for k in range(40)], "amount": np.linspace(-2, 2, 40)})
    cases["channel"], cases["label"] = "web", np.arange(40) % 2
    cases.to_csv(tmp_path / "cases.csv", index=False)
    files = ["--model", tmp_path / "m.deccaf", "--cases", tmp_path / "cases.csv", "--expert", "new"]
    code, out, err = run("onboard", *files, "--count", 5, "--json", "--out", tmp_path / "out.csv")
    assert code == 0, err
    first = json.loads(out)
    assert len(first) == 5
    assert pd.read_csv(tmp_path / "out.csv")["case_id"].tolist() == [row["case_id"] for row in first]
    told = cases.set_index("case_id").loc[[row["case_id"] for row in first], "label"]
    log = pd.DataFrame({"case_id": told.index, "expert_id": "new", "decision": 1 - told.to_numpy()})
    log.to_csv(tmp_path / "log.csv", index=False)
    more = ["--decisions", tmp_path / "log.csv", "--save", tmp_path / "n.deccaf", "--json"]
    code, out, err = run("onboard", *files, *more)
    assert code == 0, err
    assert not {row["case_id"] for row in json.loads(out)} & set(told.index)
    assert "new" in DeCCaF.load(tmp_path / "n.deccaf").experts_
    # one file with a row for every decision, of which the newcomer made two about the first case
    both = cases.iloc[[0, *range(40)]].assign(expert_id="new", decision=1)
    both.to_csv(tmp_path / "both.csv", index=False)
    one = ["--model", tmp_path / "m.deccaf", "--expert", "new", "--cases", tmp_path / "both.csv"]
    code, _, err = run("onboard", *one, "--decisions", tmp_path / "both.csv")
    assert "all 40 labelled cases are decided already" in err
    code, _, err = run("onboard", *files, "--save", tmp_path / "n.deccaf")
    assert code != 0
    assert "without --decisions" in err


def test_the_service_counts_newcomers_as_labels_arrive(tmp_path: Path) -> None:
    with world(f"sqlite:///{tmp_path}/d.db", {"ann": 50}, housekeeping=False) as desk:
        assert desk.lead.post("/v1/experts", json={"name": "dan", "team": "desk"}).status_code == 201
        seat = desk.lead.put(f"/v1/shifts/{desk.shift}/roster/dan", json={"capacity": 50})
        assert seat.status_code == 200, seat.text
        small_model().save(tmp_path / "m.deccaf")
        made = desk.lead.post(
            "/v1/models", content=(tmp_path / "m.deccaf").read_bytes(), params={"name": "m"}
        )
        assert made.status_code == 201, made.text
        desk.lead.post(f"/v1/models/{made.json()['id']}/activate")
        model = desk.service.models.refresh()
        assert model is not None
        case = {"amount": 0.5, "channel": "web"}
        before = model.score_rows([case], ["ann", "dan"]).loss[0]
        for k in range(12):
            sent = {
                "case_id": f"n{k}",
                "losses": {"machine": 9.0, "dan": 0.1},
                "machine_decision": 0,
                "features": case,
            }
            desk.machine.post("/v1/cases", json=sent)
            said = desk.lead.post(f"/v1/cases/n{k}/decision", json={"expert": "dan", "decision": 1})
            assert said.status_code == 200, said.text
        assert desk.service.models.refresh() is model  # no label yet
        desk.lead.post("/v1/labels", json={"labels": [{"case_id": f"n{k}", "label": 0} for k in range(12)]})
        after = desk.service.models.refresh()
        assert after is not None
        assert after.id == model.id
        losses = after.score_rows([case], ["ann", "dan"]).loss[0]
        assert losses[1] == pytest.approx(before[1])
        assert losses[2] > before[2] + 0.01  # twelve false alarms
        assert desk.service.models.refresh() is after
