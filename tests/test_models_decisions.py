"""The decision model: parts, blend, names, intervals, files; and each kind of bad input."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, log_expit

from deccaf.data.costs import Costs, expected_loss, expert_losses, two_class_losses
from deccaf.errors import ConfigError, DataError, DeccafWarning
from deccaf.models.blending.calibrate import Calibrator
from deccaf.models.decisions.boosted import BoostedDecisions
from deccaf.models.decisions.log import DecisionLog
from deccaf.models.decisions.model import PARTS, DecisionModel
from deccaf.models.decisions.rates import ShrunkenRates
from deccaf.models.rows import aged
from deccaf.models.trees import boosting
from models_world import World, excess, make_world, stored

N = 1600
FAST = [{"n_estimators": 25, "learning_rate": 0.3, "num_leaves": 6, "min_data_per_group": 10}]


def model(classes: int = 2, **options: object) -> DecisionModel:
    return DecisionModel(classes, candidates=FAST, **options)


@pytest.fixture(scope="module")
def world() -> World:
    return make_world(N)


@pytest.fixture(scope="module")
def fitted(world: World) -> DecisionModel:
    return model().fit(*world.log, time=world.time)


def test_the_blend_is_close_to_the_truth_and_to_its_best_part(world: World, fitted: DecisionModel) -> None:
    new = world
    assert excess(fitted.predict(new.features, new.names), new) < 0.02
    assert fitted.held_out_["blend"] <= min(fitted.held_out_[part] for part in PARTS) + 1e-3
    assert fitted.held_out_["pooled"] < fitted.held_out_["rates"]
    assert sum(fitted.weights_.values()) == pytest.approx(1.0)


def test_layout_is_that_of_expected_loss(world: World, fitted: DecisionModel) -> None:
    q = fitted.predict(world.features[:7], ["e2", "e0"])
    assert q.shape == (7, 2, 2, 2)
    np.testing.assert_allclose(q.sum(axis=-1), 1.0)
    np.testing.assert_allclose(q[:, 1], fitted.predict(world.features[:7])[:, 0])
    loss = expected_loss(np.full((7, 2), 0.5), q, Costs.binary(0.1).array())
    np.testing.assert_allclose(loss[:, 1], 0.5 * (0.1 * q[:, 0, 0, 1] + q[:, 0, 1, 0]))


def test_rows_are_cells_of_the_table(world: World, fitted: DecisionModel) -> None:
    q = fitted.predict(world.features)
    rows = fitted.predict_rows(world.features, world.truth, world.expert)
    place = np.arange(len(world.truth))
    np.testing.assert_allclose(rows, q[place, fitted.positions(world.expert), world.truth], atol=1e-12)


def test_log_odds_say_what_the_tables_say(world: World, fitted: DecisionModel) -> None:
    experts = np.array([2, 0, 1, len(world.names)])  # in another order, and one never seen
    for part in fitted.parts_.values():
        table = part.log_table(world.features, experts)
        odds = np.broadcast_to(part.log_odds(world.features, experts), (len(world.features), 2, len(experts)))
        expected = np.swapaxes(table[..., 1] - table[..., 0], 1, 2)
        np.testing.assert_allclose(odds, expected, atol=2e-6)
        known = np.broadcast_to(part.log_odds(world.features, experts[:3]), (len(odds), 2, 3))
        np.testing.assert_allclose(known, expected[:, :, :3], atol=2e-6)


@pytest.mark.parametrize("prepared", [False, True])
def test_log_odds_of_rows_are_those_of_the_table(
    monkeypatch: pytest.MonkeyPatch, world: World, fitted: DecisionModel, prepared: bool
) -> None:
    """Also where trees are prepared for a plan, and with one never seen."""
    monkeypatch.setattr(boosting, "pays_to_prepare", lambda *_: prepared)
    rows = np.arange(len(world.features))
    for newcomers in (0, 1):
        expert = rows % (len(world.names) + newcomers)
        for part in fitted.parts_.values():
            table = part.log_table(world.features, np.arange(len(world.names) + 1))[rows, expert]
            wanted = table[..., 1] - table[..., 0]
            np.testing.assert_allclose(part.log_odds_rows(world.features, expert), wanted, atol=2e-6)


class Moody(ShrunkenRates):
    """Somebody's own part, which knows nothing of rows without a truth: it leans with the case."""

    name = "moody"

    def log_rows(self, features: pd.DataFrame, truth: np.ndarray, expert: np.ndarray) -> np.ndarray:
        plain = super().log_rows(features, truth, expert)
        lean = 2.0 * features["x"].to_numpy()
        odds = plain[:, 1] - plain[:, 0] + lean
        return np.stack([log_expit(-odds), log_expit(odds)], axis=1)


def test_a_part_of_others_is_asked_what_it_knows(world: World) -> None:
    model = DecisionModel(parts=[Moody()]).fit(*world.log)
    expert = world.expert.tolist()
    _, _, q = model.interval_rows(world.features, expert)
    for y in range(2):
        rows = model.predict_rows(world.features, np.full(len(expert), y), expert)
        np.testing.assert_allclose(q[:, y], rows, atol=1e-9)


def test_a_copied_model_is_asked_alike(monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    monkeypatch.setattr(boosting, "pays_to_prepare", lambda *_: True)
    model, expert = DecisionModel(parts=["boosted"]).fit(*world.log), world.expert.tolist()
    first = model.interval_rows(world.features, expert)
    model.predict(world.features)
    other = pickle.loads(pickle.dumps(model))
    assert not [name for name in vars(other.parts_["boosted"]) if name.startswith("_kept")]
    for mine, theirs in zip(other.interval_rows(world.features, expert), first, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_intervals_of_rows_are_those_of_the_table(world: World, fitted: DecisionModel) -> None:
    low, high = fitted.interval(world.features)
    found_low, found_high, q = fitted.interval_rows(world.features, world.expert.tolist())
    place, who = np.arange(len(world.features)), fitted.positions(world.expert)
    np.testing.assert_allclose(found_low, low[place, who], atol=1e-6)
    np.testing.assert_allclose(found_high, high[place, who], atol=1e-6)
    np.testing.assert_allclose(q, fitted.predict(world.features)[place, who], atol=1e-6)


@pytest.mark.parametrize("kind", ["none", "sigmoid", "isotonic"])
def test_calibrated_log_odds_are_those_of_the_chances(kind: str) -> None:
    rng = np.random.default_rng(3)
    odds = rng.normal(size=500)
    target = (rng.random(500) < expit(2 * odds + 0.5)).astype(np.int64)
    log_p = np.stack([log_expit(-odds), log_expit(odds)], axis=1)
    calibrator = Calibrator(("none",))
    calibrator._reset(2)
    calibrator.kind_ = kind
    calibrator._fit_kind(kind, log_p, target, np.ones(500))
    both = calibrator.transform(log_p)
    np.testing.assert_allclose(calibrator.log_odds(odds), both[:, 1] - both[:, 0], atol=1e-10)


def test_losses_of_two_classes_are_those_of_every_number_of_classes(
    world: World, fitted: DecisionModel
) -> None:
    rng = np.random.default_rng(1)
    chance = rng.random(len(world.features))
    p, odds = np.stack([1 - chance, chance], axis=1), fitted.log_odds(world.features)
    costs = np.zeros((len(p), 2, 2))
    costs[:, 0, 1], costs[:, 1, 0] = rng.random(len(p)), 5 * rng.random(len(p))
    for some in (costs, costs[:1]):
        out = np.empty((len(p), odds.shape[2]))
        two_class_losses(p, odds.copy(), some, out)
        np.testing.assert_allclose(out, expert_losses(p, fitted.predict(world.features), some), rtol=1e-9)


def test_an_expert_never_seen_is_the_team(world: World) -> None:
    for part in PARTS:
        one = model(parts=[part]).fit(*world.log, time=world.time)
        q = one.predict(world.features[:50], ["stranger", "e1", "other"])
        np.testing.assert_array_equal(q[:, 0], q[:, 2])
        everyone = one.predict(world.features[:50])
        assert (q[:, 0] > everyone.min(axis=1) - 0.05).all()
        assert (q[:, 0] < everyone.max(axis=1) + 0.05).all()
        rows = one.predict_rows(world.features[:50], world.truth[:50], ["stranger"] * 50)
        np.testing.assert_allclose(rows, q[np.arange(50), 0, world.truth[:50]])


def test_three_classes(world: World) -> None:
    three = make_world(1600, 4, classes=3)
    fitted = model(3).fit(*three.log, time=three.time)
    q = fitted.predict(three.features, three.names)
    assert q.shape == (1600, 4, 3, 3)
    rates = model(3, parts=["rates"]).fit(*three.log, time=three.time)
    assert excess(q, three) < 0.6 * excess(rates.predict(three.features, three.names), three)
    low, high = fitted.interval(three.features[:20])
    error = 1 - np.einsum("ijyy->ijy", fitted.predict(three.features[:20]))
    assert ((low < error) & (error < high)).all()


def test_intervals_cover_the_truth(world: World, fitted: DecisionModel) -> None:
    low, high = fitted.interval(world.features, world.names, level=0.9)
    error = 1 - np.einsum("ijyy->ijy", world.chance)
    assert ((low <= error) & (error <= high)).mean() > 0.8
    stranger = fitted.interval(world.features, ["stranger"])
    assert (stranger[1] - stranger[0]).mean() > (high - low).mean()
    with pytest.raises(ConfigError, match="level"):
        fitted.interval(world.features, level=1.5)


def test_json_round_trip(world: World) -> None:
    fitted = model().fit(*world.log, time=world.time)
    fitted.weights_ = dict.fromkeys(PARTS, 1 / 3)  # so that every part has a say
    log = DecisionLog.of(*world.log)
    fitted.parts_ = {
        "rates": ShrunkenRates().fit(log),
        "pooled": fitted.parts_["pooled"],
        "boosted": BoostedDecisions(FAST).fit(log),
    }
    again = DecisionModel.from_dict(stored(fitted.to_dict()))
    np.testing.assert_allclose(again.predict(world.features), fitted.predict(world.features), atol=1e-12)
    for one, other in zip(
        again.interval(world.features[:9]), fitted.interval(world.features[:9]), strict=True
    ):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_same_seed_same_model(world: World, fitted: DecisionModel) -> None:
    again = model().fit(*world.log, time=world.time)
    np.testing.assert_array_equal(again.predict(world.features[:50]), fitted.predict(world.features[:50]))


def test_rates_shrink_by_evidence() -> None:
    # Two experts who differ completely keep their rates; ten who are alike are pulled together.
    rng = np.random.default_rng(0)
    x = pd.DataFrame({"x": np.zeros(4000)})
    who = np.arange(4000) % 10
    alike = (rng.random(4000) < 0.3).astype(int)
    differ = (rng.random(4000) < np.where(who < 5, 0.05, 0.9)).astype(int)
    zero = np.zeros(4000, int)
    names = [f"e{j}" for j in who]
    close = ShrunkenRates().fit(DecisionLog.of(x, zero, names, alike))
    apart = ShrunkenRates().fit(DecisionLog.of(x, zero, names, differ))
    assert close.strength_[0] > 20 * apart.strength_[0]
    assert close.rates_[:, 0, 1].std() < 0.01
    assert apart.rates_[0, 0, 1] == pytest.approx(differ[who == 0].mean(), abs=0.02)
    # the truth that the log does not hold: as accurate as over all truths
    assert close.rates_[0, 1, 1] == pytest.approx((4000 - alike.sum()) / 4000, abs=0.01)


def test_half_life_follows_an_expert_who_changed() -> None:
    rng = np.random.default_rng(0)
    n = 4000
    time = pd.Series(np.arange(n) // 500)
    said = np.where(time < 6, 0, 1)  # turned around two periods ago
    log = (pd.DataFrame({"x": rng.normal(size=n)}), np.zeros(n, int), ["a", "b"] * (n // 2), said)
    old = model(parts=["rates"]).fit(*log, time=time)
    new = model(parts=["rates"], half_life=0.5).fit(*log, time=time)
    assert old.predict(log[0][:1])[0, 0, 0, 1] < 0.4
    assert new.predict(log[0][:1])[0, 0, 0, 1] > 0.8


def test_ageing() -> None:
    np.testing.assert_allclose(aged(np.ones(3), pd.Series([0, 2, 4]), 2), [0.25, 0.5, 1.0])
    days = pd.Series(pd.to_datetime(["2024-01-01", "2024-01-11"]))
    np.testing.assert_allclose(aged(np.ones(2), days, "10D"), [0.5, 1.0])
    for wrong in (0, -1, "soon"):
        with pytest.raises(ConfigError, match="half_life"):
            aged(np.ones(3), pd.Series([0, 1, 2]), wrong)
    with pytest.raises(ConfigError, match="no time"):
        aged(np.ones(3), None, 1.0)


# Bad input


def test_an_expert_with_one_decision(world: World) -> None:
    expert = world.expert.copy()
    expert[7] = "once"
    fitted = model().fit(world.features, world.truth, expert, world.decision, time=world.time)
    q = fitted.predict(world.features[:100], ["once", "stranger"])
    assert np.abs(q[:, 0] - q[:, 1]).max() < 0.15


@pytest.mark.parametrize("said", ["right", "one"])
def test_an_expert_always_right_or_always_the_same(world: World, said: str) -> None:
    decision, mine = world.decision.copy(), world.expert == "e3"
    decision[mine] = world.truth[mine] if said == "right" else 1
    fitted = model().fit(world.features, world.truth, world.expert, decision, time=world.time)
    q = fitted.predict(world.features, ["e3"])
    assert np.isfinite(np.log(q)).all()
    if said == "right":
        assert q[:, 0, 0, 0].mean() > 0.93
        assert q[:, 0, 1, 1].mean() > 0.93
    else:
        assert q[:, 0, :, 1].mean() > 0.93


def test_a_class_absent_in_training(world: World) -> None:
    fitted = model(3).fit(*world.log, time=world.time)
    q = fitted.predict(world.features)
    assert np.isfinite(np.log(q)).all()
    assert q[:, :, :2, 2].max() < 0.2
    assert q[:, :, 2].min() > 0


def test_constant_all_missing_and_extra_features(world: World) -> None:
    odd = world.features.assign(constant=1.0, empty=np.nan, nobody=pd.Categorical([None] * N, ["u"]))
    fitted = model().fit(odd, world.truth, world.expert, world.decision, time=world.time)
    plain = model().fit(*world.log, time=world.time)
    np.testing.assert_allclose(fitted.predict(odd), plain.predict(world.features), atol=0.05)
    more = fitted.predict(odd.assign(new_at_predict_time=3.0))
    np.testing.assert_array_equal(more, fitted.predict(odd))
    changed = odd[:20].assign(constant=7.0, empty=2.0, gap=np.nan)
    assert np.isfinite(np.log(fitted.predict(changed))).all()
    with pytest.raises(DataError, match="'gap': missing"):
        fitted.predict(odd.drop(columns="gap"))


def test_levels_unseen_or_in_another_order(world: World, fitted: DecisionModel) -> None:
    q = fitted.predict(world.features[:200])
    other = world.features[:200].assign(
        kind=pd.Categorical(world.features["kind"][:200].astype(str), ["z", "r", "q", "p"])
    )
    np.testing.assert_allclose(fitted.predict(other), q)
    unseen = world.features[:200].assign(kind=pd.Categorical(["z"] * 200))
    assert np.isfinite(np.log(fitted.predict(unseen))).all()


def test_time_that_leaves_no_validation(world: World) -> None:
    fitted = model().fit(*world.log, time=np.zeros(N))
    assert set(fitted.held_out_) == {*PARTS, "blend"}  # folds instead


def test_weights_of_zero(world: World) -> None:
    weight = (world.time < 7).to_numpy(float)
    used = weight > 0
    fitted = model().fit(*world.log, time=world.time, weight=weight)
    without = model().fit(*(part[used] for part in world.log), time=world.time[used])
    np.testing.assert_allclose(fitted.predict(world.features[:9]), without.predict(world.features[:9]))
    with pytest.raises(DataError, match="nothing to learn from"):
        model().fit(*world.log, weight=np.zeros(N))
    with pytest.raises(DataError, match=r"weight: 1 value\(s\)"):
        model().fit(*world.log, weight=np.append(np.ones(N - 1), -1.0))


def test_one_expert_only(world: World) -> None:
    mine = world.take(world.expert == "e1")
    fitted = model().fit(*mine.log, time=mine.time)
    assert fitted.predict(mine.features).shape[1] == 1
    assert excess(fitted.predict(mine.features, ["e1"] * 5)[:, 1:2], _only(mine, 1)) < 0.05


def _only(world: World, j: int) -> World:
    return World(**{**vars(world), "chance": world.chance[:, j : j + 1]})


def test_labels_missing_for_part_of_the_log(world: World) -> None:
    truth = world.truth.copy()
    truth[:400] = -1
    with pytest.warns(DeccafWarning, match=f"400 of {N} decisions are on cases without a truth"):
        fitted = model().fit(world.features, truth, world.expert, world.decision, time=world.time)
    known = world.take(np.arange(N) >= 400)
    without = model().fit(*known.log, time=known.time)
    np.testing.assert_array_equal(fitted.predict(world.features[:9]), without.predict(world.features[:9]))


def test_rows_without_truth_teach_by_what_it_probably_is(world: World) -> None:
    truth = world.truth.copy()
    truth[np.arange(N) % 10 > 0] = -1
    p = np.eye(2)[world.truth] * 0.9 + 0.05
    told = (world.features, truth, world.expert, world.decision)
    with pytest.warns(DeccafWarning, match="they count by what it probably is"):
        used = model(parts=["pooled"]).fit(*told, time=world.time, p=p)
    with pytest.warns(DeccafWarning, match="left out"):
        dropped = model(parts=["pooled"]).fit(*told, time=world.time)
    better, worse = (excess(m.predict(world.features, world.names), world) for m in (used, dropped))
    assert better < 0.7 * worse
    with pytest.raises(DataError, match="p: expected"):
        model().fit(*told, p=p[:, :1])


@pytest.mark.parametrize("rows", [1, 2, 12])
def test_very_short_logs(world: World, rows: int) -> None:
    short = world.take(np.arange(N) < rows)
    q = model().fit(*short.log, time=short.time).predict(world.features[:5], world.names)
    assert np.isfinite(np.log(q)).all()


def test_arguments_that_make_no_sense(world: World) -> None:
    with pytest.raises(ConfigError, match="did you mean 'pooled'"):
        model(parts=["poled"]).fit(*world.log)
    with pytest.raises(ConfigError, match="classes"):
        DecisionModel(1).fit(*world.log)
    with pytest.raises(DataError, match="decision: 1 value"):
        model().fit(*world.log[:3], np.append(world.decision[:-1], 5))
    with pytest.raises(DataError, match="expert: 2 value"):
        model().fit(world.features, world.truth, ["a", "b"], world.decision)
    with pytest.raises(DataError, match=f"decision: 1 of {N}"):
        model().fit(*world.log[:3], np.append(world.decision[:-1], -1))
    with pytest.raises(DataError, match="whole numbers"):
        model().fit(world.features, world.truth * 0.5, world.expert, world.decision)
    with pytest.raises(DataError, match="time: 1 value"):
        model().fit(*world.log, time=np.append(np.arange(N - 1.0), np.nan))
