"""All experts at once gives LightGBM's own numbers, for every kind of model."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import lightgbm as lgb
import numpy as np
import pytest
from numpy.typing import NDArray

from deccaf.errors import ConfigError, DataError
from deccaf.models.trees import boosting
from deccaf.models.trees import expert_scorer as scoring
from deccaf.models.trees.expert_scorer import ExpertScorer
from deccaf.models.trees.stored_trees import StoredTrees

Array = NDArray[np.float64]
EXPERT = 6
QUIET: dict[str, Any] = {"verbosity": -1, "num_threads": 1, "seed": 3, "min_data_in_leaf": 5, "num_leaves": 31,
                         "min_data_per_group": 5, "cat_smooth": 1.0, "learning_rate": 0.2, "objective": "binary"}  # fmt: skip


@pytest.fixture(autouse=True)
def _no_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small inputs would be left to LightGBM; here everything goes the long way, in several blocks."""
    monkeypatch.setattr(scoring, "_FEW", 0)
    monkeypatch.setattr(scoring, "ROWS", 150)
    monkeypatch.setattr(scoring, "_SUMMED", 64)
    monkeypatch.setattr(scoring, "_TABLE_ROWS", 300)
    monkeypatch.setattr(scoring, "_TABLE_EXPERTS", 5)


def table(rows: int, experts: int, seed: int) -> Array:
    """Four numbers (one with gaps, one mostly zero), two categories, and the expert last."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, EXPERT + 1))
    x[rng.random(rows) < 0.2, 1] = np.nan
    x[rng.random(rows) < 0.6, 2] = 0.0
    x[:, 3] = np.round(x[:, 3])
    x[:, 4] = rng.integers(0, 4, rows)
    x[:, 5] = rng.integers(0, 40, rows)
    x[rng.random(rows) < 0.1, 5] = np.nan
    x[:, EXPERT] = rng.integers(0, experts, rows)
    return x


def target(x: Array, classes: int = 2, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    expert = x[:, EXPERT].astype(int)
    slope = rng.normal(size=(expert.max() + 1, 4))
    score = (
        (np.nan_to_num(x[:, :4]) * slope[expert]).sum(axis=1) + 0.5 * (x[:, 4] == 2) + rng.normal(size=len(x))
    )
    return np.digitize(score, np.quantile(score, np.arange(1, classes) / classes)).astype(np.float64)


def train(
    experts: int = 12,
    rounds: int = 12,
    classes: int = 2,
    categories: tuple[int, ...] = (4, 5, EXPERT),
    **params: Any,
) -> lgb.Booster:
    x = table(900, experts, 1)
    dataset = lgb.Dataset(x, target(x, classes), categorical_feature=list(categories))
    return lgb.train({**QUIET, **params}, dataset, rounds)


def by_passes(booster: lgb.Booster, cases: Array, values: Array, **options: Any) -> Array:
    """One predict per expert: what the scorer must equal."""
    columns = []
    for value in values:
        columns.append(booster.predict(np.column_stack([cases, np.full(len(cases), value)]), **options))
    return np.stack(columns, axis=1)


def odd_cases(rows: int = 400, seed: int = 7) -> Array:
    """Cases with all that can be odd: missing, zero, tiny, huge, infinite, unknown and negative categories."""
    cases = table(rows, 3, seed)[:, :EXPERT]
    rng = np.random.default_rng(seed)
    odd = [
        np.nan,
        0.0,
        -0.0,
        1e-36,
        -1e-36,
        2e-35,
        1e300,
        -1e300,
        np.inf,
        -np.inf,
        3.0,
        3.7,
        -0.5,
        -1.0,
        39.0,
        1e6,
    ]
    where = rng.random(cases.shape) < 0.25
    cases[where] = rng.choice(odd, where.sum())
    return cases


KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "dart": {"boosting": "dart", "drop_rate": 0.5},
    "goss": {"data_sample_strategy": "goss"},
    "random forest": {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.6},
    "zero as missing": {"zero_as_missing": True},
    "missing not used": {"use_missing": False},
    "deep": {"num_leaves": 300, "min_data_in_leaf": 1},
    "stumps": {"num_leaves": 2},
    "few thresholds": {"max_bin": 5},
    "many thresholds": {"max_bin": 2000, "min_data_in_bin": 1, "num_leaves": 200, "min_data_in_leaf": 1},
    "one against one": {"max_cat_to_onehot": 50},
    "steep": {"sigmoid": 2.5},
    "three classes": {"objective": "multiclass", "num_class": 3, "classes": 3},
    "one against all": {"objective": "multiclassova", "num_class": 3, "classes": 3, "sigmoid": 1.5},
    "regression": {"objective": "regression"},
    "expert is a number": {"categories": [4, 5]},
}


@pytest.mark.parametrize("kind", KINDS)
def test_same_as_one_predict_per_expert(kind: str) -> None:
    booster, cases, values = train(**KINDS[kind]), odd_cases(), np.arange(12.0)
    scorer = ExpertScorer(booster, EXPERT, values, threads=2)
    expected = by_passes(booster, cases, values, raw_score=True)
    np.testing.assert_allclose(scorer.raw(cases), expected, rtol=0, atol=1e-9)
    stored = StoredTrees(booster.model_to_string())
    rows = np.column_stack([cases, np.arange(len(cases)) % 14])
    assert np.array_equal(stored._raw(rows), booster.predict(rows, raw_score=True)), "walked, to the last bit"
    if kind != "regression":
        np.testing.assert_allclose(scorer.probabilities(cases), by_passes(booster, cases, values), atol=1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_random_models(seed: int) -> None:
    rng = np.random.default_rng(seed)
    booster = train(
        experts=int(rng.integers(1, 40)), boosting=rng.choice(["gbdt", "dart"]), seed=seed,
        rounds=int(rng.integers(1, 20)), num_leaves=int(rng.integers(2, 80)), max_depth=int(rng.integers(1, 12)),
        min_data_in_leaf=int(rng.integers(1, 40)), feature_fraction=float(rng.uniform(0.3, 1.0)),
        zero_as_missing=bool(rng.random() < 0.3), max_cat_threshold=int(rng.integers(1, 40)),
    )  # fmt: skip
    values = np.array([*range(int(rng.integers(1, 45))), 99.0])
    cases = odd_cases(int(rng.integers(1, 600)), seed)
    expected = by_passes(booster, cases, values, raw_score=True)
    np.testing.assert_allclose(ExpertScorer(booster, EXPERT, values).raw(cases), expected, rtol=0, atol=1e-9)


def test_experts_never_seen_go_where_lightgbm_sends_them() -> None:
    booster, cases = train(), odd_cases(50)
    values = np.array([0.0, 11.0, 12.0, 31.0, 32.0, 5000.0, -1.0, -3.0, np.nan, 2.5])
    expected = by_passes(booster, cases, values, raw_score=True)
    np.testing.assert_allclose(ExpertScorer(booster, EXPERT, values).raw(cases), expected, rtol=0, atol=1e-9)
    assert np.ptp(expected[:, 5:9]) == np.ptp(expected[:, 5]), "all unknown experts are scored alike"


def test_a_model_that_never_asks_for_the_expert() -> None:
    x = table(600, 12, 1)
    x[:, EXPERT] = 3.0
    booster = lgb.train(QUIET, lgb.Dataset(x, target(x)), 8)
    raw = ExpertScorer(booster, EXPERT, np.arange(4)).raw(x[:, :EXPERT])
    np.testing.assert_allclose(raw[:, 2], booster.predict(x, raw_score=True), rtol=0, atol=1e-9)
    assert (raw == raw[:, :1]).all()


def test_a_model_that_asks_for_nothing_else() -> None:
    x = table(600, 12, 1)
    x[:, :EXPERT] = 1.0
    x[:, EXPERT] = np.arange(600) % 12
    booster = lgb.train(QUIET, lgb.Dataset(x, x[:, EXPERT] % 3 == 0, categorical_feature=[EXPERT]), 300)
    values = np.arange(12.0)
    raw = ExpertScorer(booster, EXPERT, values).raw(x[:, :EXPERT])
    expected = by_passes(booster, x[:2, :EXPERT], values, raw_score=True)[0]
    np.testing.assert_allclose(raw, np.tile(expected, (600, 1)), rtol=0, atol=1e-9)


def test_trees_without_splits() -> None:
    x = table(200, 4, 1)
    booster = lgb.train({**QUIET, "min_data_in_leaf": 150}, lgb.Dataset(x, target(x)), 3)
    assert "num_leaves=1\n" in booster.model_to_string()
    raw = ExpertScorer(booster, EXPERT, np.arange(4)).raw(x[:, :EXPERT])
    np.testing.assert_allclose(raw, booster.predict(x, raw_score=True)[:, None].repeat(4, axis=1), atol=1e-12)


def test_only_the_trees_that_predict_uses() -> None:
    booster = train(rounds=20)
    booster.best_iteration = 7
    cases, values = odd_cases(60), np.arange(5.0)
    expected = by_passes(booster, cases, values, raw_score=True, num_iteration=7)
    np.testing.assert_allclose(ExpertScorer(booster, EXPERT, values).raw(cases), expected, rtol=0, atol=1e-9)


def test_several_columns_belong_to_the_expert() -> None:
    """Truth (column 4) and expert together: all pairs at once, as a model of decisions needs them."""
    booster, cases = train(), odd_cases(200)
    pairs = np.array([(truth, expert) for truth in range(4) for expert in range(12)], np.float64)
    raw = ExpertScorer(booster, [4, EXPERT], pairs).raw(np.delete(cases, 4, axis=1))
    for position in (0, 17, 47):
        full = np.column_stack([cases, np.full(len(cases), pairs[position, 1])])
        full[:, 4] = pairs[position, 0]
        np.testing.assert_allclose(raw[:, position], booster.predict(full, raw_score=True), rtol=0, atol=1e-9)


def test_mixed_missing_rules_in_one_model() -> None:
    """Training can go on with other rules for missing values: then each tree keeps its own."""
    x = table(600, 12, 1)
    first = train(rounds=4, zero_as_missing=True)
    data = lgb.Dataset(x, target(x), categorical_feature=[4, 5, EXPERT], free_raw_data=False)
    booster = lgb.train({**QUIET, "use_missing": False}, data, 4, init_model=first)
    cases, values = odd_cases(), np.arange(12.0)
    expected = by_passes(booster, cases, values, raw_score=True)
    np.testing.assert_allclose(ExpertScorer(booster, EXPERT, values).raw(cases), expected, rtol=0, atol=1e-9)


def test_some_experts_and_chunks() -> None:
    scorer, cases = ExpertScorer(train(), EXPERT, np.arange(12)), odd_cases()
    whole = scorer.raw(cases)
    np.testing.assert_allclose(scorer.raw(cases, [7, 0, 7]), whole[:, [7, 0, 7]], rtol=0, atol=1e-12)
    parts = list(scorer.iter_chunks(cases, rows=130))
    assert [part.stop - part.start for part, _ in parts] == [130, 130, 130, 10]
    np.testing.assert_allclose(np.concatenate([scores for _, scores in parts]), whole, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "convert", [np.float32, np.asfortranarray, np.ndarray.tolist], ids=["f4", "F", "list"]
)
def test_other_layouts(convert: Callable[[Array], Any]) -> None:
    booster, cases = train(), table(80, 3, 5)[:, :EXPERT].astype(np.float32).astype(np.float64)
    scorer = ExpertScorer(booster, EXPERT, np.arange(5))
    given = cases.astype(np.float32) if convert is np.float32 else convert(cases)
    np.testing.assert_array_equal(scorer.raw(given), scorer.raw(cases))


def test_few_scores_and_very_deep_trees_are_left_to_lightgbm(monkeypatch: pytest.MonkeyPatch) -> None:
    booster, cases = train(), odd_cases(30)
    long_way = ExpertScorer(booster, EXPERT, np.arange(12)).raw(cases)
    monkeypatch.setattr(scoring, "_DEEPEST", 2)
    deep = ExpertScorer(booster, EXPERT, np.arange(12))
    np.testing.assert_allclose(deep.raw(cases), long_way, rtol=0, atol=1e-12)
    monkeypatch.setattr(scoring, "_FEW", 100)
    np.testing.assert_allclose(deep.raw(cases), long_way, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", ["plain", "dart", "zero as missing", "deep", "expert is a number"])
@pytest.mark.parametrize("left_to_lightgbm", ["", "_KEPT_CELLS", "_DEEPEST"])
def test_rows_with_experts_of_their_own(
    monkeypatch: pytest.MonkeyPatch, kind: str, left_to_lightgbm: str
) -> None:
    booster, cases = train(**KINDS[kind]), odd_cases()
    scorer = ExpertScorer(booster, EXPERT, np.arange(14.0))
    chosen = np.random.default_rng(5).integers(0, 14, (len(cases), 2))
    whole = scorer.raw(cases)
    if left_to_lightgbm:
        monkeypatch.setattr(scoring, left_to_lightgbm, 0)
        scorer = ExpertScorer(booster, EXPERT, np.arange(14.0))
    found = scorer.raw_rows(cases, chosen)
    np.testing.assert_allclose(found, np.take_along_axis(whole, chosen, axis=1), rtol=0, atol=1e-12)
    with pytest.raises(DataError, match="positions"):
        scorer.raw_rows(cases[:1], [[14]])


@pytest.mark.parametrize("levels", [3, 8, 9, 33, 64, 65, 200])
def test_categories_have_a_bit_each_as_long_as_there_are_bits(levels: int) -> None:
    rng = np.random.default_rng(levels)
    x = np.column_stack([rng.integers(0, levels, 4000), rng.normal(size=4000)]).astype(np.float64)
    y = (rng.normal(size=levels)[x[:, 0].astype(int)] + 0.3 * x[:, 1] > 0).astype(np.float64)
    booster = lgb.train(QUIET, lgb.Dataset(x, y, categorical_feature=[0]), 8)
    cases = np.vstack([x[:500], [[levels, 0.0], [-1.0, 0.0], [np.nan, 0.0], [1e6, 0.0]]])
    found = ExpertScorer(booster, (), np.empty((1, 0))).raw(cases)[:, 0]
    np.testing.assert_allclose(found, booster.predict(cases, raw_score=True), rtol=0, atol=1e-12)


def test_a_few_cases_are_summed_like_many() -> None:
    scorer = ExpertScorer(train(), EXPERT, np.arange(14.0))
    cases = odd_cases()
    np.testing.assert_allclose(scorer.raw(cases[:40]), scorer.raw(cases)[:40], rtol=0, atol=1e-12)


@pytest.mark.parametrize(("rows", "experts"), [(0, 3), (3, 0), (1, 1)])
def test_empty_and_single(rows: int, experts: int) -> None:
    scorer = ExpertScorer(train(), EXPERT, np.arange(3))
    assert scorer.raw(odd_cases(5)[:rows], np.arange(experts)).shape == (rows, experts)


def test_what_cannot_be_scored_is_refused() -> None:
    booster, cases = train(rounds=2), odd_cases(3)
    x = table(300, 3, 1)
    linear = lgb.train({**QUIET, "linear_tree": True, "objective": "regression"}, lgb.Dataset(x, x[:, 0]), 2)
    with pytest.raises(ConfigError, match="linear trees"):
        ExpertScorer(linear, EXPERT, np.arange(3))
    with pytest.raises(ConfigError, match="expert columns"):
        ExpertScorer(booster, 7, np.arange(3))
    with pytest.raises(ConfigError, match="expert values"):
        ExpertScorer(booster, EXPERT, np.zeros((3, 2)))
    scorer = ExpertScorer(booster, EXPERT, np.arange(3))
    with pytest.raises(DataError, match="expected 6 columns"):
        scorer.raw(table(3, 3, 0))
    with pytest.raises(DataError, match="positions"):
        scorer.raw(cases, [3])
    with pytest.raises(ConfigError, match="no probabilities"):
        ExpertScorer(train(rounds=2, objective="regression"), EXPERT, np.arange(3)).probabilities(cases)


def test_a_forest_without_an_expert_is_scored_too() -> None:
    booster, cases = train(objective="multiclass", num_class=3, classes=3), odd_cases()
    rows = np.column_stack([cases, np.arange(len(cases)) % 14])
    found = ExpertScorer(booster, (), np.empty((1, 0))).raw(rows)
    assert found.shape == (len(rows), 1, 3)
    np.testing.assert_allclose(found[:, 0], booster.predict(rows, raw_score=True), atol=1e-12)


def test_single_precision_is_close() -> None:
    booster, cases, values = train(rounds=60), odd_cases(), np.arange(14.0)
    exact = ExpertScorer(booster, EXPERT, values)
    quick = ExpertScorer(booster, EXPERT, values, single=True)
    assert quick.raw(cases).dtype == np.float32
    np.testing.assert_allclose(quick.raw(cases), exact.raw(cases), atol=3e-6)


def test_tables_are_kept_or_made_anew_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    booster, cases = train(), odd_cases()
    scorer = ExpertScorer(booster, EXPERT, np.arange(14.0))
    first, again = scorer.raw(cases), scorer.raw(cases)
    monkeypatch.setattr(scoring, "_KEPT_CELLS", 0)
    anew = ExpertScorer(booster, EXPERT, np.arange(14.0)).raw(cases)
    assert np.array_equal(first, again)
    assert np.array_equal(first, anew)


def test_many_rows_are_left_to_the_prepared_forest(monkeypatch: pytest.MonkeyPatch) -> None:
    booster, cases = train(), odd_cases()
    rows = np.column_stack([cases, np.zeros(len(cases))])
    few = boosting.log_chances(booster, rows, 2)
    monkeypatch.setattr(boosting, "_MANY_WALKS", 1)
    monkeypatch.setattr(boosting, "_MANY_ROWS", 1)
    many = boosting.log_chances(booster, rows, 2)
    assert booster._prepared.scorer is not None
    np.testing.assert_allclose(many, few, atol=1e-12)


def test_a_forest_that_is_prepared_goes_with_its_booster(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a copy of the booster begins anew: no table of one is taken for another's."""
    monkeypatch.setattr(boosting, "_MANY_WALKS", 1)
    booster, cases = train(), odd_cases(2000)
    rows = np.column_stack([cases, np.zeros(len(cases))])
    stored = StoredTrees(booster.model_to_string())
    before = boosting.log_chances(stored, rows, 2)
    gone = weakref.ref(stored._prepared.scorer)
    other = copy.deepcopy(stored)
    assert other._prepared.scorer is None
    np.testing.assert_array_equal(boosting.log_chances(other, rows, 2), before)
    del stored
    gc.collect()
    assert gone() is None


def test_a_copy_of_a_scorer_says_the_same() -> None:
    scorer, cases = ExpertScorer(train(), EXPERT, np.arange(14.0)), odd_cases()
    chosen = np.arange(len(cases))[:, None] % 14
    first = scorer.raw(cases), scorer.raw_rows(cases, chosen)
    for other in (copy.deepcopy(scorer), pickle.loads(pickle.dumps(scorer))):
        np.testing.assert_array_equal(other.raw(cases), first[0])
        np.testing.assert_array_equal(other.raw_rows(cases, chosen), first[1])


@pytest.mark.parametrize("single", [False, True])
def test_scores_do_not_depend_on_the_number_of_cores(monkeypatch: pytest.MonkeyPatch, single: bool) -> None:
    monkeypatch.setattr(scoring, "ROWS", 700)
    monkeypatch.setattr(scoring, "_SUMMED", 256)
    monkeypatch.setattr(scoring, "_PIECE", 50)
    booster, cases = train(rounds=40), odd_cases(1100)
    found = [
        ExpertScorer(booster, EXPERT, np.arange(14.0), threads=threads, single=single).raw(cases)
        for threads in (1, 2, 4, 7)
    ]
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])
