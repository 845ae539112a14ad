"""The estimator: what goes in, what comes out, and that nothing else happens."""

from __future__ import annotations

import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import polars
import pytest
import sklearn
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import check_estimator

from deccaf import Capacity, Cases, Costs, DeCCaF, Decisions, History, Schema, fitted
from deccaf.data.costs import expected_loss
from deccaf.errors import CapacityError, ConfigError, DataError, DeccafWarning
from models_world import World, make_world

LIGHT = {"case_parts": ("logistic",), "decision_parts": ("rates", "pooled")}
COSTS = Costs.binary(0.3, 1.0)


@pytest.fixture(scope="module")
def world() -> World:
    return make_world(1500, 4)


@pytest.fixture(scope="module")
def model(world: World) -> DeCCaF:
    return fit(DeCCaF(COSTS, **LIGHT), world)


def fit(model: DeCCaF, world: World) -> DeCCaF:
    return model.fit(
        world.features, world.truth, expert=world.expert, decision=world.decision, time=world.time
    )


def new_cases(world: World, rows: int = 60) -> pd.DataFrame:
    return world.features.iloc[:rows].set_axis([f"c{k}" for k in range(rows)])


def test_scikit_learn_checks() -> None:
    """All of them but one: a case of weight 2 is not the same as the case twice.

    What is held out to choose and calibrate the models is drawn by cases, so a repeated case draws
    otherwise than a heavy one; the fitted parts themselves treat both alike.
    """
    expected = {"check_sample_weight_equivalence_on_dense_data": "held-out cases are drawn by rows"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeccafWarning)  # one column alone tells the kinds of iris
        checks = check_estimator(
            DeCCaF(case_parts=("logistic",)), expected_failed_checks=expected, on_skip=None, on_fail=None
        )
    assert {c["check_name"] for c in checks if c["status"] == "failed"} == set()
    assert {c["check_name"] for c in checks if c["status"] == "xfail"} == set(expected)


def test_importing_deccaf_does_not_import_its_libraries() -> None:
    code = "import sys, deccaf; print([m for m in ('lightgbm', 'sklearn', 'ortools', 'optuna') if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_expected_loss_is_the_formula_of_the_parts(world: World, model: DeCCaF) -> None:
    X = new_cases(world)
    loss = model.expected_loss(X)
    assert list(loss.columns) == ["machine", "e0", "e1", "e2", "e3"]
    assert loss.index.equals(X.index)
    p = model.learned_.classifier.predict(X)
    q = model.learned_.decisions.predict(X)
    np.testing.assert_allclose(loss, expected_loss(p, q, COSTS.array()), rtol=1e-12)
    np.testing.assert_allclose(model.predict_proba(X), p)
    assert (model.predict_decision(X) == (p @ COSTS.array()[0]).argmin(axis=1)).all()


def test_scoring_in_chunks_gives_the_same_numbers(
    world: World, model: DeCCaF, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = new_cases(world)
    whole = model.expected_loss(X)
    monkeypatch.setattr(fitted, "CELLS", 7 * 16)
    np.testing.assert_allclose(model.expected_loss(X), whole, rtol=1e-12)
    assert model.expected_loss(X.iloc[:0]).shape == (0, 5)


def test_inputs_are_not_changed(world: World) -> None:
    X, truth, expert = world.features.copy(), world.truth.copy(), world.expert.copy()
    model = fit(DeCCaF(COSTS, case_parts=("logistic",), decision_parts=("rates",)), world)
    model.assign(world.features, {"e0": 5})
    pd.testing.assert_frame_equal(world.features, X)
    assert (world.truth == truth).all()
    assert (world.expert == expert).all()


def test_a_plan_keeps_the_limits_and_says_what_it_costs(world: World, model: DeCCaF) -> None:
    X = new_cases(world)
    plan = model.assign(X, Capacity.of({"e0": 5, "e3": 7}))
    table = plan.table
    assert list(table.columns) == [
        "case",
        "maker",
        "expected_loss",
        "runner_up",
        "runner_up_loss",
        "price",
        "decision",
        "why",
        "p_0",
        "p_1",
        "loss_low",
        "loss_high",
        "case_id",
    ]
    assert table.index.equals(X.index)
    assert (table["case"] == X.index).all()
    counts = table["maker"].value_counts()
    assert counts["e0"] <= 5
    assert counts["e3"] <= 7
    loss = model.expected_loss(X, ["e0", "e3"])
    chosen = [loss.loc[i, maker] for i, maker in table["maker"].items()]
    np.testing.assert_allclose(table["expected_loss"], chosen)
    assert plan.summary.cost == pytest.approx(sum(chosen))
    assert plan.summary.machine_cost == pytest.approx(loss["machine"].sum())
    assert plan.summary.cost <= plan.summary.random_cost <= plan.summary.machine_cost
    by_machine = table["maker"] == "machine"
    assert (table.loc[by_machine, "decision"] == model.predict(X)[by_machine]).all()
    assert table.loc[~by_machine, "decision"].isna().all()
    assert (table["runner_up"] != table["maker"]).all()
    assert plan.prices.loc["all", "machine"] == 0
    assert any("not on the roster" in line and "e1, e2" in line for line in plan.summary.notes)


def test_the_price_is_what_one_more_case_saves(world: World, model: DeCCaF) -> None:
    X = new_cases(world)
    plan = model.assign(X, {"e0": 5, "e3": 7})
    more = model.assign(X, {"e0": 6, "e3": 7})
    assert plan.summary.cost - more.summary.cost == pytest.approx(plan.prices.loc["all", "e0"], abs=1e-9)


def test_batches_have_their_own_limits(world: World, model: DeCCaF) -> None:
    X, day = new_cases(world), ["mon", "tue", "tue"] * 20
    capacity = Capacity.from_frame(
        pd.DataFrame(
            {"batch": ["mon", "tue", "tue"], "expert_id": ["e0", "e0", "e1"], "upper": [2, 4, 3], "lower": 2}
        )
    )
    plan = model.assign(X, capacity, batch=day)
    counts = plan.table.groupby([pd.Series(day, X.index), "maker"]).size()
    assert 2 <= counts["mon", "e0"] <= 2
    assert 2 <= counts["tue", "e0"] <= 4
    assert ("mon", "e1") not in counts
    assert list(plan.prices.index) == ["mon", "tue"]
    with pytest.raises(CapacityError, match="'wed' has no row"):
        model.assign(X, capacity, batch=["wed"] * 60)


def test_someone_never_seen_is_the_teams_average(world: World, model: DeCCaF) -> None:
    X = new_cases(world)
    loss = model.expected_loss(X, ["e0", "zoe"])
    known = model.expected_loss(X)[["e0", "e1", "e2", "e3"]]
    assert known.mean().min() < loss["zoe"].mean() < known.mean().max()
    assert any("zoe" in note for note in model.assign(X, {"zoe": 3}).summary.notes)


def test_reviews_cost_and_make_people_dearer(world: World) -> None:
    free = fit(DeCCaF(COSTS, **LIGHT), world)
    paid = fit(DeCCaF(COSTS, review_cost={"e0": 0.05}, **LIGHT), world)
    X = new_cases(world)
    extra = paid.expected_loss(X) - free.expected_loss(X)
    np.testing.assert_allclose(extra["e0"], 0.05)
    np.testing.assert_allclose(extra["e1"], 0.0, atol=1e-12)


def test_amounts_per_case_are_read_from_columns(world: World) -> None:
    X = world.features.assign(amount=np.where(np.arange(1500) % 2, 10.0, 0.0))
    model = DeCCaF(Costs.binary(0.3, "amount"), **LIGHT)
    model.fit(X, world.truth, expert=world.expert, decision=world.decision)
    assert "amount" not in model.schema_.names
    loss = model.expected_loss(X.iloc[:40])
    assert (loss["machine"].iloc[::2] == 0).all()  # nothing to lose: say yes to everything
    assert (loss["machine"].iloc[1::2] > 0).all()
    with pytest.raises(DataError, match="column 'amount': missing"):
        model.expected_loss(world.features)


@pytest.mark.parametrize("method", ["deccaf", "paper", "ova"])
def test_every_method_plans_three_classes(method: str) -> None:
    world = make_world(600, 2, 3)
    names = ["keep", "restrict", "remove"]
    costs = Costs.from_matrix([[0, 2, 5], [1, 0, 2], [8, 3, 0]], names)
    model = DeCCaF(costs, method=method, **LIGHT)
    said, truth = np.array(names)[world.decision], np.array(names)[world.truth]
    model.fit(world.features, truth, expert=world.expert, decision=said)
    plan = model.assign(world.features.iloc[:30], {"e0": 10, "e1": 10})
    assert set(plan.table["decision"].dropna()) <= set(names)
    assert plan.table["maker"].isin(["machine", "e0", "e1"]).all()
    loss = model.expected_loss(world.features.iloc[:30])
    assert ((loss > 0) & (loss < 8)).all(axis=None)


def test_several_decisions_per_case_and_cases_without_any(world: World, model: DeCCaF) -> None:
    X = world.features.set_axis([f"k{i}" for i in range(1500)])
    log = pd.DataFrame({"case_id": X.index, "expert_id": world.expert, "decision": world.decision})
    same = DeCCaF(COSTS, **LIGHT).fit(X, world.truth, decisions=log, time=world.time)
    np.testing.assert_allclose(same.expected_loss(X[:20]), model.expected_loss(world.features[:20]))
    expert = pd.Series(world.expert, dtype=object).where(np.arange(1500) % 2 == 0, None)
    half = DeCCaF(COSTS, case_parts=("logistic",), decision_parts=("rates",))
    half.fit(X, world.truth, expert=expert, decision=world.decision)
    assert sum(half.training_["decisions"].values()) == 750
    twice = pd.concat([log, log.assign(expert_id="other")])
    more = DeCCaF(COSTS, case_parts=("logistic",), decision_parts=("rates",)).fit(
        X, world.truth, decisions=twice
    )
    assert more.experts_ == ("e0", "e1", "e2", "e3", "other")


def test_checked_tables_give_the_same_model(world: World, model: DeCCaF) -> None:
    frame = world.features.assign(label=world.truth, time=world.time)
    cases = Cases.from_frame(frame, costs=COSTS)
    log = pd.DataFrame({"case_id": frame.index, "expert_id": world.expert, "decision": world.decision})
    other = DeCCaF(COSTS, **LIGHT).fit_history(
        History.of(cases, Decisions.from_frame(log.assign(seconds=90.0)))
    )
    np.testing.assert_allclose(other.expected_loss(cases), model.expected_loss(world.features))
    plan = other.assign(cases.take(np.arange(40)), {"e0": 4})
    assert plan.summary.makers.loc["e0", "next_hour"] == pytest.approx(40 * plan.prices.loc["all", "e0"])


def test_metadata_reaches_fit_through_cross_validation(world: World) -> None:
    with sklearn.config_context(enable_metadata_routing=True):
        model = DeCCaF(case_parts=("logistic",), decision_parts=("rates",))
        model.set_fit_request(expert=True, decision=True)
        given = {"expert": world.expert, "decision": world.decision}
        scores = cross_val_score(model, world.features, world.truth, cv=2, params=given)
    assert (scores > 0.6).all()


def test_clone_and_set_output(world: World, model: DeCCaF) -> None:
    again = clone(model)
    names = set(model.get_params()) - {"costs"}
    assert {name: again.get_params()[name] for name in names} == {
        name: model.get_params()[name] for name in names
    }
    assert again.costs.to_dict() == COSTS.to_dict()
    assert not hasattr(again, "learned_")
    frame = clone(model).set_output(transform="pandas")
    frame = fit(frame.set_params(decision_parts=("rates",)), world).transform(world.features[:3])
    assert list(frame.columns) == ["machine", "e0", "e1", "e2", "e3"]


def test_polars_in_polars_out(world: World, model: DeCCaF) -> None:
    X = polars.from_pandas(world.features)
    other = DeCCaF(COSTS, **LIGHT).fit(
        X,
        polars.Series(world.truth),
        expert=polars.Series(world.expert),
        decision=polars.Series(world.decision),
        time=polars.Series(world.time.to_numpy()),
    )
    loss = other.expected_loss(X[:20])
    assert isinstance(loss, polars.DataFrame)
    np.testing.assert_allclose(loss.to_numpy(), model.expected_loss(world.features[:20]).to_numpy())
    assert isinstance(other.assign(X[:20], {"e0": 3}).table, polars.DataFrame)


def test_a_model_without_decisions_has_only_the_machine(world: World) -> None:
    model = DeCCaF(COSTS, case_parts=("logistic",)).fit(world.features, world.truth)
    assert list(model.expected_loss(world.features[:3]).columns) == ["machine"]
    with pytest.raises(ConfigError, match="learned from no decisions"):
        model.assign(world.features[:3], {"e0": 1})


def test_labels_that_are_not_known_yet_are_counted(world: World) -> None:
    truth = pd.Series(world.truth, dtype="Int64").mask(np.arange(1500) > 1400)
    with pytest.warns(DeccafWarning) as said:
        model = DeCCaF(COSTS, case_parts=("logistic",), decision_parts=("rates",)).fit(
            world.features, truth, expert=world.expert, decision=world.decision
        )
    notes = [str(one.message) for one in said]
    assert any("99 of 1500 cases have no truth yet" in note for note in notes)
    assert any("99 of 1500 decisions are on cases without a truth yet" in note for note in notes)
    assert model.training_["without_label"] == 99


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"method": "decaf"}, "did you mean 'deccaf'"),
        ({"review_cost": -1.0}, "review_cost"),
        ({"decision_parts": ("trees",)}, "decision part 'trees': known are rates"),
    ],
)
def test_settings_that_make_no_sense_are_named(world: World, change: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        fit(DeCCaF(COSTS, **(LIGHT | change)), world)


def test_wrong_inputs_are_named(world: World, model: DeCCaF) -> None:
    with pytest.raises(DataError, match="column 'x': missing"):
        model.expected_loss(world.features.drop(columns="x"))
    with pytest.raises(DataError, match="expert: 3 value"):
        DeCCaF(COSTS).fit(world.features, world.truth, expert=["e0"] * 3, decision=world.decision)
    with pytest.raises(ConfigError, match="expert and decision"):
        DeCCaF(COSTS).fit(world.features, world.truth, expert=world.expert)
    with pytest.raises(DataError, match="1 row\\(s\\) name no case of X, first: 'who'"):
        log = pd.DataFrame({"case_id": ["who"], "expert_id": ["e0"], "decision": [1]})
        DeCCaF(COSTS).fit(world.features, world.truth, decisions=log)
    with pytest.raises(DataError, match="outside"):
        DeCCaF(COSTS).fit(world.features, np.full(1500, 7))
    with pytest.raises(DataError, match="one class only"):
        DeCCaF().fit(world.features, np.zeros(1500, int))


def test_missing_features_and_new_levels_are_counted(world: World, model: DeCCaF) -> None:
    X = new_cases(world).astype({"kind": "str"})
    X.loc["c0", "kind"] = "never"
    notes = model.assign(X, {"e0": 2}).summary.notes
    assert any(note.startswith("missing features") and "gap" in note for note in notes)
    assert "category levels never seen, taken as missing: kind 1" in notes
    assert isinstance(model.schema_, Schema)
