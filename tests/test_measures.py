"""Measures of probabilities, by hand on small cases and against their definitions."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from sklearn import metrics

from deccaf.errors import ConfigError, DataError
from deccaf.evaluate.measures import (
    MEASURES,
    bootstrap,
    brier,
    ece,
    log_loss,
    measure,
    measure_by_expert,
    reliability,
    roc_auc,
    wilson,
)
from deccaf.report.calibration import reliability_grid, reliability_picture
from deccaf.report.figures import as_png

Y = np.array([0, 0, 1, 1])
P = np.array([0.1, 0.6, 0.4, 0.9])


def sample(n: int, seed: int = 0, slope: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Chances and what happened; with slope 1 the chances are right, above they are too bold."""
    rng = np.random.default_rng(seed)
    logit = rng.normal(0, 1.5, n)
    return (rng.random(n) < 1 / (1 + np.exp(-logit))).astype(int), 1 / (1 + np.exp(-slope * logit))


def test_by_hand() -> None:
    assert log_loss(Y, P) == pytest.approx(-(2 * math.log(0.9) + 2 * math.log(0.4)) / 4)
    assert brier(Y, P) == pytest.approx((2 * 0.01 + 2 * 0.36) / 4)
    assert roc_auc(Y, P) == pytest.approx(3 / 4)  # of four pairs only (0.6, 0.4) is the wrong way round
    assert ece(Y, P, bins=2) == pytest.approx((abs(0.25 - 0.5) + abs(0.75 - 0.5)) / 2)
    assert ece(Y, P, bins=4) == pytest.approx((0.1 + 0.6 + 0.6 + 0.1) / 4)


@pytest.mark.parametrize("name", MEASURES)
def test_a_whole_weight_is_so_many_copies(name: str) -> None:
    y, p = sample(200)
    times = np.random.default_rng(1).integers(0, 4, 200)
    copies = MEASURES[name](np.repeat(y, times), np.repeat(p, times), np.ones(times.sum()))
    assert MEASURES[name](y, p, times) == pytest.approx(copies, abs=1e-12 if name != "ece" else 0.01)
    assert MEASURES[name](y, p, 7.0 * np.ones(200)) == pytest.approx(MEASURES[name](y, p, np.ones(200)))


@pytest.mark.parametrize("digits", [1, 12])
def test_same_as_scikit_learn(digits: int) -> None:
    y, p = sample(500)
    p, w = p.round(digits), np.random.default_rng(2).random(500)
    w[:50] = 0.0
    assert log_loss(y, p, w) == pytest.approx(metrics.log_loss(y, p, sample_weight=w), rel=1e-12)
    assert roc_auc(y, p, w) == pytest.approx(metrics.roc_auc_score(y, p, sample_weight=w), rel=1e-12)
    assert brier(y, p, w) == pytest.approx(metrics.brier_score_loss(y, p, sample_weight=w), rel=1e-12)


def test_the_error_is_that_of_the_curve() -> None:
    y, p = sample(500)
    curve = reliability(y, p, np.arange(500.0), bins=7)
    gap = (curve["predicted"] - curve["observed"]).abs()
    assert ece(y, p, np.arange(500.0), bins=7) == pytest.approx(np.average(gap, weights=curve["weight"]))


def test_the_log_loss_of_certain_errors_is_large_but_finite() -> None:
    assert 30 < log_loss([1, 0], [0.0, 1.0]) < 40
    assert log_loss([1, 0], [1.0, 0.0]) == pytest.approx(0.0, abs=1e-12)


def test_one_class_only() -> None:
    assert math.isnan(roc_auc([1, 1], [0.2, 0.9]))
    assert math.isnan(roc_auc([0, 1], [0.2, 0.9], [1.0, 0.0])), "a case without weight is no case"
    assert log_loss([1, 1], [0.5, 0.5]) == pytest.approx(math.log(2))
    assert ece([1, 1], [0.75, 0.75]) == pytest.approx(0.25)


def test_constant_chances() -> None:
    y = np.array([1, 0, 0, 0])
    assert roc_auc(y, np.full(4, 0.3)) == 0.5
    table = reliability(y, np.full(4, 0.3))
    assert table[["predicted", "observed", "cases"]].to_numpy().tolist() == [[0.3, 0.25, 4.0]]


def test_weights_of_zero_count_for_nothing() -> None:
    y, p = sample(300)
    w = (np.arange(300) % 3 > 0).astype(float)
    kept = w > 0
    for name, function in MEASURES.items():
        assert function(y, p, w) == pytest.approx(function(y[kept], p[kept], w[kept])), name
    assert reliability(y, p, w)["cases"].sum() == 200
    tail = np.where(p < 0.5, 0.0, 1.0)
    assert (reliability(y, p, tail)["weight"] > 0).all()


@pytest.mark.parametrize("n", [7, 100, 1000, 1003])
def test_bins_hold_equal_shares(n: int) -> None:
    y, p = sample(n)
    table = reliability(y, p)
    assert len(table) == min(n, 10)
    assert table["cases"].max() - table["cases"].min() <= 1
    assert table["predicted"].is_monotonic_increasing
    assert ((table["low"] <= table["observed"]) & (table["observed"] <= table["high"])).all()
    w = np.random.default_rng(3).random(n)
    shares = reliability(y, p, w)["weight"] / w.sum()
    assert n < 100 or shares.between(0.1 - 3 / n, 0.1 + 3 / n).all()


def test_right_chances_have_little_error_and_bold_ones_much() -> None:
    y, p = sample(20_000)
    assert ece(y, p) < 0.012
    y, p = sample(20_000, slope=2.5)
    assert ece(y, p) > 0.08


def test_wilson() -> None:
    low, high = wilson([0.0, 0.5, 1.0], [10, 100, 10])
    # Tabulated 95 % intervals: 0 of 10, 50 of 100, 10 of 10.
    np.testing.assert_allclose(low, [0.0, 0.40383, 0.72247], atol=1e-5)
    np.testing.assert_allclose(high, [0.27753, 0.59617, 1.0], atol=1e-5)


def test_experts_and_all_of_them() -> None:
    y, p = sample(300)
    expert = np.array(["b", "a", "c"])[np.arange(300) % 3]
    w = np.where(expert == "c", 0.0, 1.0)
    table = measure_by_expert(y, p, expert, w)
    assert list(table.index) == ["a", "b", "c", "all"]
    assert table["cases"].tolist() == [100, 100, 100, 300]
    assert table.loc["a", "auc"] == pytest.approx(roc_auc(y[expert == "a"], p[expert == "a"]))
    assert table.loc["c", list(MEASURES)].isna().all()
    pd.testing.assert_series_equal(table.loc["all", list(MEASURES)], measure(y, p, w), check_names=False)
    with pytest.raises(DataError, match="called 'all'"):
        measure_by_expert(y, p, np.full(300, "all"))
    with pytest.raises(DataError, match="2 experts for 300"):
        measure_by_expert(y, p, ["a", "b"])


def test_bootstrap() -> None:
    y, p = sample(400)
    first, again = (bootstrap(y, p, repeats=200, seed=4) for _ in range(2))
    pd.testing.assert_frame_equal(first, again)
    assert list(first.index) == list(MEASURES)
    pd.testing.assert_series_equal(first["value"], measure(y, p), check_names=False)
    for name in ("log_loss", "brier", "auc"):
        assert first.loc[name, "low"] < first.loc[name, "value"] < first.loc[name, "high"]
    narrow, wide = (bootstrap(y, p, repeats=200, confidence=c).eval("high - low") for c in (0.5, 0.95))
    assert (narrow < wide).all()


def test_the_bootstrap_knows_groups() -> None:
    """Ten copies of each case are no more evidence than one: by group the interval stays as wide."""
    y, p = sample(150)
    options = {"repeats": 300, "measures": {"brier": brier}}
    once = bootstrap(y, p, **options).eval("high - low")["brier"]
    y10, p10, group = np.repeat(y, 10), np.repeat(p, 10), np.repeat(np.arange(150), 10)
    grouped = bootstrap(y10, p10, group=group, **options).eval("high - low")["brier"]
    naive = bootstrap(y10, p10, **options).eval("high - low")["brier"]
    assert grouped == pytest.approx(once, rel=0.2)
    assert naive < 0.5 * grouped


def test_a_bootstrap_of_rare_cases_leaves_out_draws_without_a_measure() -> None:
    y, p = np.array([1, *[0] * 9]), np.linspace(0.9, 0.1, 10)
    table = bootstrap(y, p, repeats=100)
    assert table.loc["auc"].tolist() == [1.0, 1.0, 1.0]
    assert bootstrap(np.zeros(5), np.full(5, 0.5), repeats=10).loc["auc"].isna().all()


@pytest.mark.parametrize(
    ("truth", "p", "weight", "message"),
    [
        ([], [], None, "every case needs"),
        ([0, 1], [0.5], None, "every case needs"),
        ([0, 1], [0.5, 0.5], [1.0], "every case needs"),
        ([0, 2], [0.5, 0.5], None, "1 value.s. other than 0 and 1"),
        ([0, 1], [0.5, 1.5], None, "1 value.s. outside"),
        ([0, 1], [0.5, math.nan], None, "outside"),
        ([0, 1], [0.5, 0.5], [0.0, 0.0], "not all zero"),
        ([0, 1], [0.5, 0.5], [-1.0, 2.0], "not negative"),
    ],
)
def test_bad_input(truth: list[float], p: list[float], weight: list[float] | None, message: str) -> None:
    for function in MEASURES.values():
        with pytest.raises(DataError, match=message):
            function(truth, p, weight)  # type: ignore[arg-type]


def test_bad_settings() -> None:
    with pytest.raises(ConfigError, match="0 bins"):
        ece(Y, P, bins=0)
    with pytest.raises(ConfigError, match="0 repeats"):
        bootstrap(Y, P, repeats=0)
    with pytest.raises(DataError, match="need a group"):
        bootstrap(Y, P, group=["a", None, "b", "b"])


def test_pictures() -> None:
    curves = {name: reliability(*sample(900, slope=slope)) for name, slope in [("ours", 1.0), ("paper", 2.0)]}
    assert as_png(reliability_picture(curves)).startswith(b"\x89PNG")
    by_expert = {f"expert {k}": curves for k in range(5)}
    figure = reliability_grid(by_expert)
    assert sum(axes.get_visible() for axes in figure.axes) == 5
    assert as_png(figure).startswith(b"\x89PNG")
    with pytest.raises(DataError, match="no curves"):
        reliability_grid({})
