"""P(truth | case): blend, calibration, the paper's weighted classifier, conversions."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, logit

from deccaf.errors import ConfigError, DataError, DeccafWarning
from deccaf.models.blending.calibrate import Calibrator
from deccaf.models.blending.weights import fit_weights, mix, pruned_weights
from deccaf.models.cases.boosted import QUICK, BoostedCases
from deccaf.models.cases.classifier import CaseClassifier, reweighted, unweighted
from deccaf.models.cases.log import CaseLog
from deccaf.models.paper.paper_classifier import OFFSETS, PaperClassifier, initial_score
from deccaf.models.trees import boosted_part, boosting
from models_world import World, make_world, stored

FAST = [{"n_estimators": 40, "learning_rate": 0.15, "num_leaves": 4}]
DART = [{"n_estimators": 20, "boosting_type": "dart", "max_depth": 2, "learning_rate": 0.3}]


@pytest.fixture(scope="module")
def world() -> World:
    return make_world(2000)


def two(p: np.ndarray) -> np.ndarray:
    return np.log(np.column_stack([1 - p, p]))


# Case classifier


def test_close_to_the_true_posterior(world: World) -> None:
    model = CaseClassifier(candidates=FAST).fit(world.features, world.truth, time=world.time)
    p = model.predict(world.features)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    true = expit(logit(0.4) + 0.8 * world.features["x"].to_numpy() - 0.32)  # N(0, 1) against N(0.8, 1)
    assert np.abs(p[:, 1] - true).mean() < 0.05
    assert model.held_out_["blend"] <= min(model.held_out_["logistic"], model.held_out_["boosted"]) + 1e-3


def test_three_classes_and_json(world: World) -> None:
    three = make_world(1500, classes=3)
    model = CaseClassifier(3, candidates=FAST).fit(three.features, three.truth)
    p = model.predict(three.features)
    assert p.shape == (1500, 3)
    base = np.bincount(three.truth) / 1500
    assert boosting.weighted_log_loss(np.log(p), three.truth) < -(base * np.log(base)).sum() - 0.05
    again = CaseClassifier.from_dict(stored(model.to_dict()))
    np.testing.assert_allclose(again.predict(three.features), p, atol=1e-12)


def test_drift_of_the_prevalence_is_followed() -> None:
    rng = np.random.default_rng(0)
    time = np.repeat([0, 1], [6000, 2000])
    label = (rng.random(8000) < np.where(time == 0, 0.1, 0.3)).astype(int)
    x = pd.DataFrame({"x": rng.normal(size=8000) + label})
    model = CaseClassifier(candidates=FAST).fit(x, label, time=time)
    assert model.calibrators_[0].kind_ == "sigmoid"
    assert model.predict(x[time == 1])[:, 1].mean() == pytest.approx(label[time == 1].mean(), abs=0.02)


def test_bad_input(world: World) -> None:
    label = world.truth.copy()
    label[:100] = -1
    odd = world.features.assign(constant=1.0, empty=np.nan)
    with pytest.warns(DeccafWarning, match="100 of 2000 cases have no truth"):
        model = CaseClassifier(3, candidates=FAST).fit(odd, label, time=np.zeros(2000))  # class 2 is absent
    p = model.predict(odd.assign(more=1.0, kind=pd.Categorical(["z"] * 2000)))
    assert p[:, 2].max() < 0.05
    assert (p > 0).all()
    with pytest.raises(DataError, match="nothing to learn"):
        CaseClassifier().fit(odd, label, weight=np.zeros(2000))
    with pytest.raises(ConfigError, match="did you mean 'boosted'"):
        CaseClassifier(parts=["bosted"]).fit(odd, label)
    single = CaseClassifier(candidates=FAST).fit(world.features[:1], world.truth[:1])
    assert np.isfinite(single.predict(world.features)).all()


def test_one_class_only(world: World) -> None:
    model = CaseClassifier(candidates=FAST).fit(world.features, np.ones(2000, int), time=world.time)
    p = model.predict(world.features)
    assert p[:, 1].min() > 0.9
    assert p[:, 0].min() > 0


# Weighted and unweighted probabilities


def test_conversion_both_ways() -> None:
    p = np.array([[0.9, 0.1], [0.5, 0.5]])
    bent = reweighted(p, [0.1, 1.0])
    np.testing.assert_allclose(bent[0], [0.09 / 0.19, 0.1 / 0.19])
    np.testing.assert_allclose(unweighted(bent, [0.1, 1.0]), p)
    rng = np.random.default_rng(0)
    many, costs = rng.dirichlet(np.ones(4), 50), rng.uniform(0.1, 5, (50, 4))
    np.testing.assert_allclose(reweighted(unweighted(many, costs), costs), many)
    np.testing.assert_allclose(unweighted(reweighted(many, costs), costs), many)
    with pytest.raises(ConfigError, match="cost nothing"):
        unweighted(p, [0.0, 1.0])
    with pytest.raises(ConfigError, match="expected 2 finite"):
        reweighted(p, [1.0, 2.0, 3.0])


def test_weighted_training_estimates_the_reweighted_probability(world: World) -> None:
    costs = np.array([0.2, 1.0])
    held = (world.time == 7).to_numpy()
    model = PaperClassifier(candidates=DART, offsets=(0.0, 0.2)).fit(
        world.features, world.truth, costs[world.truth], validation=held
    )
    true = expit(logit(0.4) + 0.8 * world.features["x"].to_numpy() - 0.32)
    plain = unweighted(model.predict(world.features), costs)[:, 1]
    assert np.abs(plain - true).mean() < 0.09
    assert plain.mean() == pytest.approx(true.mean(), abs=0.06)


# The paper's classifier


def test_initial_score_is_the_weighted_prevalence() -> None:
    # two frauds of weight 1, three others of weight 0.1: sum c y / sum c = 2 / 2.3
    label, weight = np.array([0, 0, 0, 1, 1]), np.array([0.1, 0.1, 0.1, 1.0, 1.0])
    assert initial_score(label, weight, 2)[0] == pytest.approx(logit(2 / 2.3))
    assert np.isfinite(initial_score(label[:3], weight[:3], 2)).all()


def test_grid_of_offsets_is_searched(world: World) -> None:
    assert OFFSETS == (0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0)
    weight, held = np.where(world.truth == 1, 1.0, 0.1), (world.time == 7).to_numpy()
    model = PaperClassifier(candidates=DART, offsets=(0.0, 1.0)).fit(
        world.features, world.truth, weight, validation=held
    )
    assert len(model.losses_) == 2
    assert model.offset_ == (0.0, 1.0)[int(np.argmin(model.losses_))]
    again = PaperClassifier.from_dict(stored(model.to_dict()))
    np.testing.assert_array_equal(again.predict(world.features), model.predict(world.features))
    log_p = np.log(model.predict(world.features[held]))
    loss = boosting.weighted_log_loss(log_p, world.truth[held], weight[held])
    assert loss == pytest.approx(min(model.losses_))


def test_rows_that_were_binned_once_are_learned_from_as_if_binned_anew() -> None:
    """Other settings, bundles and initial scores between, and the trees are the same to the last bit."""
    rng = np.random.default_rng(0)
    matrix, target = rng.normal(size=(400, 4)), rng.integers(0, 2, 400)
    matrix[:, 2:] *= rng.random((400, 2)) < 0.05  # sparse columns are bundled
    rows = boosting.TrainingRows(matrix, target, classes=2)
    fixed = {"boosting_type": "dart", "n_estimators": 8}
    for offset in (None, 0.0, 0.4, None):
        for more in (
            {"enable_bundle": True},
            {"enable_bundle": False},
            {"min_child_samples": 5, "max_depth": 2},
        ):
            start, params = None if offset is None else np.array([offset]), {**fixed, **more}
            again = boosting.train(matrix, target, classes=2, params=params, start=start)
            found = rows.train(params, start=start)
            np.testing.assert_array_equal(found.predict(matrix), again.predict(matrix))


def test_paper_classifier_with_three_classes_and_without_validation() -> None:
    three = make_world(600, classes=3)
    model = PaperClassifier(3, candidates=DART).fit(three.features, three.truth, np.ones(600))
    p = model.predict(three.features)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=1e-6)
    np.testing.assert_allclose(p.mean(axis=0), np.bincount(three.truth) / 600, atol=0.05)


# Calibration


def test_calibration_chooses_what_helps() -> None:
    rng = np.random.default_rng(0)
    p = rng.uniform(0.05, 0.95, 4000)
    hit = (rng.random(4000) < p).astype(int)
    assert Calibrator().fit(two(p), hit).kind_ == "none"
    bent = expit(2.0 * logit(p) + 1.0)
    sigmoid = Calibrator().fit(two(bent), hit)
    assert sigmoid.kind_ == "sigmoid"
    np.testing.assert_allclose(np.exp(sigmoid.transform(two(bent)))[:, 1], p, atol=0.03)
    steps = np.where(p < 0.5, 0.4 + 0.2 * p, 0.9 + 0.1 * p)
    rough = Calibrator().fit(two(steps), (rng.random(4000) < np.where(p < 0.5, 0.1, 0.7)).astype(int))
    assert rough.kind_ == "isotonic"
    fixed = np.exp(rough.transform(two(steps)))
    assert np.abs(fixed[:, 1] - np.where(p < 0.5, 0.1, 0.7)).mean() < 0.03
    again = Calibrator.from_dict(stored(rough.to_dict()))
    np.testing.assert_array_equal(np.exp(again.transform(two(steps))), fixed)


def test_calibration_needs_something_to_learn_from() -> None:
    assert Calibrator().fit(two(np.full(10, 0.3)), np.zeros(10, int)).kind_ == "none"
    assert Calibrator().fit(two(np.full(100, 0.3)), np.zeros(100, int)).kind_ == "none"


# Blending


def test_blend_of_two_halves_of_the_evidence() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 20000))
    hit = (rng.random(20000) < expit(a + b)).astype(int)
    parts = np.stack([two(expit(2 * a)), two(expit(2 * b))])  # the mean of their log-odds is the truth
    np.testing.assert_allclose(fit_weights(parts, hit), [0.5, 0.5], atol=0.03)
    np.testing.assert_allclose(mix(list(parts), np.array([0.5, 0.5])), two(expit(a + b)), atol=1e-9)


def test_blend_of_few_rows_is_the_best_part() -> None:
    good, poor = two(np.array([0.9, 0.1, 0.8, 0.2])), two(np.array([0.2, 0.8, 0.3, 0.7]))
    weights = fit_weights(np.stack([good, poor]), np.array([1, 0, 1, 0]))
    assert weights[0] > 0.9
    np.testing.assert_array_equal(pruned_weights(np.stack([good, poor]), np.array([1, 0, 1, 0])), [1.0, 0.0])


def test_many_rows_are_learned_from_in_larger_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_world(400)
    log = CaseLog(world.features, world.truth, np.ones(400), 2)
    assert BoostedCases().fit(log).params_["learning_rate"] == QUICK[0]["learning_rate"]
    monkeypatch.setattr(boosted_part, "_MANY", 400)
    assert BoostedCases().fit(log).params_["learning_rate"] == 0.1
    own = {**QUICK[0], "learning_rate": 0.03, "n_estimators": 20}
    assert BoostedCases([own]).fit(log).params_["learning_rate"] == 0.03  # what somebody asks for stays
