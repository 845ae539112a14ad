"""Explanations: contributions add up to the estimate, and the reason names whose room was missing."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.special import logit

from deccaf import Costs, DeCCaF
from deccaf.errors import DataError
from deccaf.models.decisions.boosted import BoostedDecisions
from models_world import make_world

WORLD = make_world(700, 3)


@pytest.fixture(scope="module")
def model() -> DeCCaF:
    return DeCCaF(Costs.binary(0.5)).fit(
        WORLD.features, WORLD.truth, expert=WORLD.expert, decision=WORLD.decision
    )


def test_contributions_of_logistic_parts_are_exact() -> None:
    """Two cases that differ in one feature: the log-odds differ by the difference of its contributions."""
    model = DeCCaF(Costs.binary(0.5), case_parts=("logistic",), decision_parts=("pooled",)).fit(
        WORLD.features, WORLD.truth, expert=WORLD.expert, decision=WORLD.decision
    )
    one, other = WORLD.features.iloc[[0]], WORLD.features.iloc[[0]].assign(x=2.5)
    team = model.learned_.decisions
    stretch = [c.kind_ == "isotonic" for c in (*team.calibrators_, *model.learned_.classifier.calibrators_)]
    assert not any(stretch), "a step function has no slope; choose another seed"
    for truth in (0, 1):
        parts = [team.contributions(case, "e1", truth, 1) for case in (one, other)]
        q = [team.predict(case, ["e1"])[0, 0, truth, 1] for case in (one, other)]
        moved = parts[1]["total"] - parts[0]["total"]
        assert moved.drop("x").abs().max() == 0
        assert moved["x"] == pytest.approx(logit(q[1]) - logit(q[0]))
    parts = [model.learned_.classifier.contributions(case, 1) for case in (one, other)]
    p = [model.predict_proba(case)[0, 1] for case in (one, other)]
    assert (parts[1] - parts[0]).loc["x", "logistic"] == pytest.approx(logit(p[1]) - logit(p[0]))


def test_contributions_of_trees_are_lightgbms() -> None:
    model = DeCCaF(Costs.binary(0.5), case_parts=("logistic",), decision_parts=("boosted",)).fit(
        WORLD.features, WORLD.truth, expert=WORLD.expert, decision=WORLD.decision
    )
    team, case = model.learned_.decisions, WORLD.features.iloc[[3]]
    part = team.parts_["boosted"]
    assert isinstance(part, BoostedDecisions)
    matrix = part.encoder_.transform(case, extra=2)
    matrix[:, -2], matrix[:, -1] = 1, 2
    values = part.booster_.predict(matrix, pred_contrib=True)[0]
    assert values.sum() == pytest.approx(part.booster_.predict(matrix, raw_score=True)[0])
    found = team.contributions(case, "e2", 1, 1)["trees"]
    slope = team.calibrators_[1].slope_ if team.calibrators_[1].kind_ == "sigmoid" else 1.0
    np.testing.assert_allclose(found, slope * values[:4], rtol=1e-9)


def test_the_reason_names_whose_room_was_missing(model: DeCCaF) -> None:
    X = WORLD.features.iloc[:40]
    plan = model.assign(X, {"e0": 3, "e1": 3})
    loss = model.expected_loss(X, ["e0", "e1"])
    for case, maker in plan.table["maker"].items():
        found = model.explain(X, plan, case=case)
        assert found.chosen == maker
        best = loss.loc[case].idxmin()
        assert ("has no room" in found.reason) == (best != maker)
        assert best in found.text()
        assert found.makers["total"].iloc[0] == pytest.approx(found.makers["total"][maker], abs=1e-9)


def test_without_a_plan_the_best_maker_is_explained(model: DeCCaF) -> None:
    found = model.explain(WORLD.features.iloc[[5]])
    assert found.chosen == model.expected_loss(WORLD.features.iloc[[5]]).iloc[0].idxmin()
    assert found.chances.sum() == pytest.approx(1)
    assert set(found.features["feature"]) == set(WORLD.features.columns)
    with pytest.raises(DataError, match="say which one"):
        model.explain(WORLD.features)
    with pytest.raises(DataError, match="no case is called 'z'"):
        model.explain(WORLD.features, case="z")


@pytest.mark.parametrize("method", ["paper", "ova"])
def test_the_papers_methods_are_explained_by_their_trees(method: str) -> None:
    world = make_world(400, 2, 3)
    costs = Costs.from_matrix((1 - np.eye(3)).tolist(), ["a", "b", "c"])
    names = pd.Series(["a", "b", "c"])
    model = DeCCaF(costs, method=method).fit(
        world.features, names[world.truth], expert=world.expert, decision=names[world.decision].to_numpy()
    )
    found = model.explain(world.features.iloc[[0]])
    assert (found.features["logistic"] == 0).all()
    assert found.features["trees"].abs().max() > 0
    assert set(found.features["says"]) == {"right", "b", "c"}
