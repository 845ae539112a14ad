"""The paper's expertise models: HEM and one-vs-all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import expit, logit

from deccaf import DeCCaF
from deccaf.errors import DataError, DeccafWarning
from deccaf.models.paper.expertise import HumanExpertiseModel, OneVsAll
from deccaf.models.paper.paper_classifier import OFFSETS
from deccaf.models.paper.spaces import Budget, Search
from models_world import World, make_world, stored

CANDIDATES = [
    {"boosting_type": "dart", "n_estimators": 30, "max_depth": 2, "learning_rate": 0.2},
    {"boosting_type": "dart", "n_estimators": 150, "num_leaves": 200, "min_child_samples": 1},
]
KINDS = [HumanExpertiseModel, OneVsAll]


@pytest.fixture(scope="module")
def world() -> World:
    return make_world(2000)


@pytest.mark.parametrize("kind", KINDS)
def test_probability_of_being_right(world: World, kind: type[HumanExpertiseModel]) -> None:
    held = (world.time == 7).to_numpy()
    model = kind(candidates=CANDIDATES).fit(*world.log, validation=held)
    chosen = model.params_ if kind is HumanExpertiseModel else model.params_[0]
    assert chosen["n_estimators"] == 30
    chance = model.predict(world.features)
    assert chance.shape == (2000, 5)
    p = expit(logit(0.4) + 0.8 * world.features["x"].to_numpy() - 0.32)  # N(0, 1) against N(0.8, 1)
    right = np.einsum("iy,ijyy->ij", np.column_stack([1 - p, p]), world.chance)
    assert np.abs(chance.mean(axis=0) - right.mean(axis=0)).max() < 0.08
    assert np.corrcoef(chance.ravel(), right.ravel())[0, 1] > 0.1


@pytest.mark.parametrize("kind", KINDS)
def test_validation_rows_are_not_learned_from_unless_asked(
    world: World, kind: type[HumanExpertiseModel]
) -> None:
    held = (world.time == 7).to_numpy()
    decision = np.where(held, world.truth, world.decision)  # only right there
    plain = kind(candidates=CANDIDATES[:1]).fit(*world.log[:3], decision, validation=held)
    early = kind(candidates=CANDIDATES[:1]).fit(*(part[~held] for part in world.log))
    again = kind(candidates=CANDIDATES[:1]).fit(*world.log[:3], decision, validation=held, refit=True)
    new = world.features[:50]
    np.testing.assert_array_equal(plain.predict(new), early.predict(new))
    assert again.predict(new).mean() > plain.predict(new).mean()


@pytest.mark.parametrize("kind", KINDS)
def test_costs_weigh(world: World, kind: type[HumanExpertiseModel]) -> None:
    # everyone errs on truth 1 only: the more that counts, the lower the chance of being right
    decision = np.where((world.truth == 1) & (np.arange(2000) % 2 == 0), 0, world.truth)
    light, heavy = (
        kind(candidates=CANDIDATES).fit(*world.log[:3], decision, np.where(world.truth == 1, cost, 1.0))
        for cost in (0.1, 10.0)
    )
    assert light.predict(world.features).mean() > heavy.predict(world.features).mean() + 0.2


@pytest.mark.parametrize("kind", KINDS)
def test_names_and_files(world: World, kind: type[HumanExpertiseModel]) -> None:
    model = kind(candidates=CANDIDATES).fit(*world.log)
    table = model.predict(world.features, ["e3", "stranger", "e0"])
    everyone = model.predict(world.features)
    np.testing.assert_allclose(
        table, np.column_stack([everyone[:, 3], everyone.mean(axis=1), everyone[:, 0]])
    )
    again = kind.from_dict(stored(model.to_dict()))
    np.testing.assert_array_equal(again.predict(world.features), everyone)


@pytest.mark.parametrize("kind", KINDS)
def test_bad_input(world: World, kind: type[HumanExpertiseModel]) -> None:
    expert, decision, truth = world.expert.copy(), world.decision.copy(), world.truth.copy()
    expert[0] = "once"
    decision[expert == "e1"] = world.truth[expert == "e1"]  # always right
    truth[5:15] = -1
    held = np.arange(2000) >= 1990  # hardly anybody in it
    with pytest.warns(DeccafWarning, match="10 of 2000"):
        model = kind(candidates=CANDIDATES).fit(world.features, truth, expert, decision, validation=held)
    chance = model.predict(world.features.assign(new=1.0), ["once", "e1", "e2"])
    assert np.isfinite(chance).all()
    assert chance[:, 1].mean() > 0.9
    with pytest.raises(DataError, match="nothing to learn"):
        kind().fit(*world.log, np.zeros(2000))
    alone = world.expert == "e2"
    assert kind(candidates=CANDIDATES).fit(*(part[alone] for part in world.log)).predict(
        world.features
    ).shape == (2000, 1)


@pytest.mark.parametrize("method", ["paper", "ova"])
def test_the_budget_paper_makes_the_searches_of_the_appendix(
    world: World, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The classifier in both spaces for every initial score, then the experts; here with two trials each."""
    tuning = pytest.importorskip("deccaf.models.paper.tuning")
    asked: list[tuple[str, str, float | None]] = []
    tune = tuning.tune

    def counted(objective: Any, search: Search, budget: str, *, seed: int) -> Any:
        asked.append((search.name, budget, search.space.get("offset")))
        space = {**search.space, "n_estimators": 5}
        return tune(objective, replace(search, space=space), Budget(2, 1), seed=seed)

    monkeypatch.setattr(tuning, "tune", counted)
    few = world.take(np.arange(2000) < 400)
    model = DeCCaF(method=method, budget="paper")
    model.fit(few.features, few.truth, expert=few.expert, decision=few.decision, time=few.time)
    assert {budget for _, budget, _ in asked} == {"paper"}
    for name in ("classifier", "classifier-depth-2"):
        assert [offset for found, _, offset in asked if found == name] == list(OFFSETS)
    experts = [name for name, _, _ in asked if name == "expertise"]
    assert len(experts) == (1 if method == "paper" else 5)
    assert model.expected_loss(few.features[:3]).shape == (3, 6)
