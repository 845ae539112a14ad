"""The alert model and the benchmark's alert sets."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from deccaf.errors import ConfigError, DataError
from deccaf.simulate import (
    AlertModel,
    AlertSets,
    build_alert_sets,
    cost_ratio,
    generate_applications,
    month_table,
    roc,
    tune_alert_model,
)
from deccaf.simulate.alerts import SELECTED
from deccaf.simulate.baf import CATEGORIES, FEATURES, LABEL, MONTH


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return generate_applications(100_000, seed=1)


@pytest.fixture(scope="module")
def model(table: pd.DataFrame) -> AlertModel:
    return AlertModel().fit(table)


@pytest.fixture(scope="module")
def sets(table: pd.DataFrame, model: AlertModel) -> AlertSets:
    return build_alert_sets(table, model=model)


def test_constructor_only_stores() -> None:
    params = {"max_depth": 3}
    model = AlertModel(params, seed=4, jobs=1)
    assert vars(model) == {"params": params, "seed": 4, "jobs": 1}


def test_default_is_the_paper_s_selected_model(model: AlertModel) -> None:
    assert SELECTED["n_estimators"] == model.booster_.num_trees() == 94
    assert model.booster_.feature_name() == list(FEATURES)
    assert "data_sample_strategy: goss" in model.booster_.model_to_string()
    depths = model.booster_.trees_to_dataframe()["node_depth"]
    assert depths.max() == 3  # two splits, then the leaf


@pytest.mark.parametrize("fpr", [0.01, 0.05, 0.15, 0.5])
def test_threshold_gives_the_wanted_rate_on_month_3(
    table: pd.DataFrame, model: AlertModel, fpr: float
) -> None:
    legitimate = table[(table[MONTH] == 3) & (table[LABEL] == 0)]
    scores = model.score(legitimate)
    found = (scores >= model.threshold(fpr)).mean()
    largest_tie = pd.Series(scores).value_counts().iloc[0] / len(scores)
    assert fpr - largest_tie - 1 / len(scores) <= found <= fpr


def test_threshold_when_scores_tie() -> None:
    """Ten legitimate scores, six of them equal: 50 % cannot be met, so the tie is spared as a whole."""
    model = AlertModel()
    model.legitimate_ = np.array([0.9, 0.8, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.2, 0.1])
    model.validation_ = np.sort(np.append(model.legitimate_, 0.7))  # a fraud scores 0.7
    assert model.threshold(0.5) == 0.7
    assert model.threshold(0.2) == 0.7  # exactly the two cases above 0.5
    assert model.threshold(0.1) == 0.9
    assert model.threshold(0.05) == 1.0  # not even one case is allowed
    assert model.threshold(0.85) == 0.5


@pytest.mark.parametrize("fpr", [0.0, 1.0, -0.1, float("nan")])
def test_threshold_refuses_rates_outside_0_to_1(model: AlertModel, fpr: float) -> None:
    with pytest.raises(ConfigError, match="false-positive rate"):
        model.threshold(fpr)


def test_recall_is_in_the_published_region(sets: AlertSets) -> None:
    months = sets.months[0.05]
    recall = (months["tpr"] * months["frauds"]).sum() / months["frauds"].sum()
    assert 0.35 < recall < 0.65  # the paper has 0.52 with ten times the data
    assert (months["fraud_share"] > 4 * months["frauds"] / months["applications"]).all()


def test_label_and_month_do_not_leak(table: pd.DataFrame, model: AlertModel) -> None:
    """Scores depend on features only, and training on months 0-2 only."""
    assert LABEL not in model.booster_.feature_name()
    assert MONTH not in model.booster_.feature_name()
    bare = table.drop(columns=[LABEL, MONTH]).tail(500)
    np.testing.assert_array_equal(model.score(bare), model.score(table.tail(500)))
    changed = table.copy()
    changed.loc[changed[MONTH] > 3, LABEL] = 1 - changed.loc[changed[MONTH] > 3, LABEL]
    again = AlertModel().fit(changed)
    np.testing.assert_array_equal(again.score(bare), model.score(bare))
    assert again.threshold(0.05) == model.threshold(0.05)


def test_deterministic_whatever_the_threads(table: pd.DataFrame, model: AlertModel) -> None:
    other = AlertModel(jobs=1).fit(table)
    np.testing.assert_array_equal(other.score(table), model.score(table))
    seeded = AlertModel(seed=1).fit(table)
    assert not np.array_equal(seeded.score(table), model.score(table))


def test_categories_are_matched_by_level(table: pd.DataFrame, model: AlertModel) -> None:
    """Strings, categories in another order, and unseen levels: the code a level gets never changes."""
    part = table.tail(2000)
    expected = model.score(part)
    np.testing.assert_array_equal(model.score(part.astype(dict.fromkeys(CATEGORIES, str))), expected)
    turned = part.assign(
        **{c: part[c].cat.reorder_categories(levels[::-1]) for c, levels in CATEGORIES.items()}
    )
    np.testing.assert_array_equal(model.score(turned), expected)
    strange = part.assign(housing_status="ZZ")
    missing = part.assign(housing_status=None)
    np.testing.assert_array_equal(model.score(strange), model.score(missing))
    assert not np.array_equal(model.score(strange), expected)


def test_input_is_not_changed(table: pd.DataFrame, model: AlertModel) -> None:
    some = table.groupby(MONTH).head(2_000)
    before = some.copy()
    model.alerts(some, 0.05)
    build_alert_sets(some, model=model)
    pd.testing.assert_frame_equal(some, before)


def test_alerts_carry_case_id_and_score(table: pd.DataFrame, model: AlertModel) -> None:
    alerts = model.alerts(table, 0.05)
    assert alerts.index.name == "case_id"
    assert list(alerts.columns) == [LABEL, *FEATURES, "model_score", MONTH]
    assert alerts["model_score"].min() >= model.threshold(0.05)
    assert len(alerts) == (model.score(table) >= model.threshold(0.05)).sum()
    np.testing.assert_array_equal(alerts[FEATURES[0]], table.loc[alerts.index, FEATURES[0]])


def test_sets_cover_months_3_to_7_with_equal_counts(sets: AlertSets, table: pd.DataFrame) -> None:
    low, high = sets.sets[0.05], sets.sets[0.15]
    counts = low[MONTH].value_counts().sort_index()
    assert counts.index.tolist() == [3, 4, 5, 6, 7]
    pd.testing.assert_series_equal(high[MONTH].value_counts().sort_index(), counts)
    assert counts.tolist() == sets.months[0.05]["alerts"].tolist()
    assert high.index.is_unique
    assert high.index.is_monotonic_increasing
    assert sets.thresholds[0.15] < sets.thresholds[0.05]
    assert (high["model_score"] < sets.thresholds[0.05]).any()
    np.testing.assert_array_equal(high[LABEL], table.loc[high.index, LABEL])


def test_sampling_follows_the_seed(table: pd.DataFrame, model: AlertModel, sets: AlertSets) -> None:
    again = build_alert_sets(table, model=model)
    pd.testing.assert_frame_equal(again.sets[0.15], sets.sets[0.15])
    other = build_alert_sets(table, model=model, seed=5)
    assert not other.sets[0.15].index.equals(sets.sets[0.15].index)
    pd.testing.assert_frame_equal(other.sets[0.05], sets.sets[0.05])


def test_case_ids_are_row_numbers(table: pd.DataFrame, model: AlertModel, sets: AlertSets) -> None:
    shifted = build_alert_sets(table.set_index(table.index + 10), model=model)
    pd.testing.assert_frame_equal(shifted.sets[0.05], sets.sets[0.05])


def test_roc_is_monotone_and_agrees_with_the_month_table(sets: AlertSets) -> None:
    curve = sets.roc
    assert (curve.fpr[0], curve.tpr[0], curve.fpr[-1], curve.tpr[-1]) == (0, 0, 1, 1)
    assert (np.diff(curve.fpr) >= 0).all()
    assert (np.diff(curve.tpr) >= 0).all()
    assert (np.diff(curve.thresholds) < 0).all()
    months = sets.months[0.05]
    legitimate = months["applications"] - months["frauds"]
    fpr = (months["fpr"] * legitimate).sum() / legitimate.sum()
    tpr = (months["tpr"] * months["frauds"]).sum() / months["frauds"].sum()
    assert curve.tpr_at(fpr) == pytest.approx(tpr, abs=0.01)


def test_roc_by_hand() -> None:
    curve = roc([0, 1, 0, 1], [0.1, 0.4, 0.35, 0.8])
    assert curve.tpr_at(0.0) == 1.0  # both frauds score above both legitimate cases
    assert roc([1, 0], [0.2, 0.9]).tpr_at(0.5) == 0.0


def test_month_table_by_hand() -> None:
    table = pd.DataFrame({MONTH: [3, 3, 3, 3, 4, 4], LABEL: [1, 1, 0, 0, 1, 0]})
    found = month_table(table, np.array([0.9, 0.1, 0.9, 0.1, 0.1, 0.1]), 0.5)
    assert found.loc[3].to_dict() == {
        "applications": 4,
        "frauds": 2,
        "alerts": 2,
        "fpr": 0.5,
        "tpr": 0.5,
        "fraud_share": 0.5,
    }
    assert found.loc[4, "tpr"] == 0
    assert np.isnan(found.loc[4, "fraud_share"])  # no alert, no share


def test_cost_ratio_of_the_paper() -> None:
    """The paper's threshold of 0.050969 is quoted as lambda = 0.057; t / (1 - t) is 0.0537."""
    assert cost_ratio(0.050969) == pytest.approx(0.053706, abs=1e-6)
    assert cost_ratio(0.5) == 1.0
    with pytest.raises(ConfigError, match="threshold"):
        cost_ratio(1.0)


def test_missing_columns(table: pd.DataFrame, model: AlertModel) -> None:
    with pytest.raises(DataError, match="1 columns missing, first: 'income'"):
        model.score(table.drop(columns="income"))
    with pytest.raises(DataError, match=f"first: '{LABEL}'"):
        AlertModel().fit(table.drop(columns=LABEL))


def test_text_in_a_numeric_column(table: pd.DataFrame, model: AlertModel) -> None:
    with pytest.raises(DataError, match="'customer_age' is not numeric"):
        model.score(table.head(3).assign(customer_age="old"))


@pytest.mark.parametrize("month", [0, 3])
def test_months_without_both_labels(table: pd.DataFrame, month: int) -> None:
    part = table[(table[MONTH] >= 2) if month == 0 else (table[MONTH] != month)]
    part = part[(part[MONTH] != 2) | (part[LABEL] == 0)] if month == 0 else part
    with pytest.raises(DataError, match="must hold both 0 and 1"):
        AlertModel().fit(part)


def test_empty_rates(table: pd.DataFrame, model: AlertModel) -> None:
    with pytest.raises(ConfigError, match="rates"):
        build_alert_sets(table, (), model=model)


def test_no_rows_no_scores(table: pd.DataFrame, model: AlertModel) -> None:
    assert model.score(table.iloc[:0]).shape == (0,)


def test_tuning_is_seeded_and_keeps_the_best() -> None:
    table = generate_applications(20_000, seed=6)
    calls: list[tuple[int, float]] = []
    options = {"trials": 3, "seed": 2, "trees": (5, 20)}
    found = tune_alert_model(table, progress=lambda n, best: calls.append((n, best)), **options)
    assert [n for n, _ in calls] == [0, 1, 2]
    assert found.tpr == found.trials["tpr"].max() == calls[-1][1]
    assert set(found.params) == set(SELECTED)
    assert found.trials["n_estimators"].between(5, 20).all()
    pd.testing.assert_frame_equal(tune_alert_model(table, **options).trials, found.trials)
    check = table[(table[MONTH] == 3) & (table[LABEL] == 1)]
    best = AlertModel(found.params, seed=2).fit(table)
    assert (best.score(check) >= best.threshold(0.05)).mean() == found.tpr


def test_real_alerts_score_above_real_applications(model: AlertModel) -> None:
    """The model of the generated world knows a real alert when it sees one."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("DECCAF_SHARED_DATA", default))
    alerts = folder / "baf_alerts_months_3_to_6.parquet"
    sample = folder / "baf_applications_uniform_1pct_months_0_to_5.parquet"
    if not (alerts.is_file() and sample.is_file()):
        pytest.skip(f"no real data in {folder}; set DECCAF_SHARED_DATA to run this")
    threshold = model.threshold(0.05)
    caught = (model.score(pd.read_parquet(alerts)) >= threshold).mean()
    base = (model.score(pd.read_parquet(sample)) >= threshold).mean()
    assert caught > 6 * base
