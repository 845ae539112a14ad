"""The hierarchical logistic model: algebra against brute force, shrinkage, spread."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import check_grad
from scipy.special import softmax

from deccaf.models import arrow
from deccaf.models.log import DecisionLog
from deccaf.models.pooled import PooledLogistic, fit_posterior


def simulate(experts: int, each: int, seed: int = 0, classes: int = 2) -> tuple[DecisionLog, np.ndarray]:
    """A log with two features; expert j's slope on the first is 1 + j-th deviation, on the second 0."""
    rng = np.random.default_rng(seed)
    n = experts * each
    features = pd.DataFrame({"a": rng.normal(size=n), "b": rng.normal(size=n)})
    truth, who = rng.integers(classes, size=n), np.arange(n) % experts
    slopes = rng.normal(0.8, 0.5, size=(experts, classes - 1))
    eta = np.zeros((n, classes))
    eta[:, 1:] = (
        features["a"].to_numpy()[:, None] * slopes[who]
        + 1.5 * (truth[:, None] == np.arange(1, classes))
        - 0.7
    )
    chance = softmax(eta, axis=1)
    said = (chance.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    log = DecisionLog.of(features, truth, [f"e{j:02d}" for j in who], said, classes=classes)
    return log, slopes


def problem(classes: int) -> tuple[arrow.Rows, arrow.Coefficients]:
    rng = np.random.default_rng(1)
    n, columns, experts = 60, 3, 4
    expert = rng.integers(-1, experts, size=n)
    rows = arrow.Rows(
        rng.normal(size=(n, columns)),
        expert,
        rng.integers(classes, size=n),
        experts,
        classes,
        rng.uniform(0.5, 2, n),
    )
    at = arrow.Coefficients(
        rng.normal(size=(columns, classes - 1)),
        rng.normal(size=(experts, columns, classes - 1)),
        rng.uniform(0.5, 2, columns),
        rng.uniform(0.5, 2, (experts, columns)),
    )
    return rows, at


def flat(at: arrow.Coefficients) -> np.ndarray:
    return np.concatenate([at.team.T.ravel(), *(one.T.ravel() for one in at.expert)])


def shaped(values: np.ndarray, like: arrow.Coefficients) -> arrow.Coefficients:
    contrasts = like.team.shape[1]
    team, *experts = values.reshape(1 + len(like.expert), contrasts, -1)
    return arrow.Coefficients(
        team.T, np.stack([one.T for one in experts]), like.team_precision, like.expert_precision
    )


@pytest.mark.parametrize("classes", [2, 3])
def test_newton_step_is_that_of_the_dense_hessian(classes: int) -> None:
    rows, at = problem(classes)
    start = flat(at)

    def value(values: np.ndarray) -> float:
        return arrow.objective(rows, shaped(values, at))

    size, h = len(start), 1e-4
    unit = np.eye(size) * h
    gradient = np.array([(value(start + u) - value(start - u)) / (2 * h) for u in unit])
    hessian = np.array(
        [
            [
                (value(start + u + v) - value(start + u - v) - value(start - u + v) + value(start - u - v))
                / (4 * h * h)
                for v in unit
            ]
            for u in unit
        ]
    )
    step = arrow.newton(rows, at)
    moved = flat(at.moved(step, 1.0)) - start
    np.testing.assert_allclose(moved, -np.linalg.solve(hessian, gradient), atol=2e-4)
    assert step.decrement == pytest.approx(-gradient @ moved, rel=1e-3)
    # posterior: blocks of the dense inverse
    inverse = np.linalg.inv(hessian)
    block = rows.size
    np.testing.assert_allclose(step.schur_inverse, inverse[:block, :block], atol=1e-4)
    pick = np.hstack([np.eye(block), np.zeros((block, 2 * block)), np.eye(block), np.zeros((block, block))])
    np.testing.assert_allclose(arrow.joint_covariance(step)[2], pick @ inverse @ pick.T, atol=1e-4)
    team, expert = arrow.variances(step, rows.contrasts)
    np.testing.assert_allclose(team.T.ravel(), np.diag(inverse)[:block], atol=1e-4)
    np.testing.assert_allclose(expert[3].T.ravel(), np.diag(inverse)[4 * block :], atol=1e-4)


def test_climb_ends_where_the_gradient_is_zero() -> None:
    rows, at = problem(3)
    at, _ = arrow.climb(rows, at)

    def value(values: np.ndarray) -> float:
        return arrow.objective(rows, shaped(values, at))

    assert check_grad(value, lambda v: np.zeros_like(v), flat(at)) < 0.05


def test_information_in_chunks_is_the_whole() -> None:
    rng = np.random.default_rng(0)
    design, chance = rng.normal(size=(9000, 2)), np.full((9000, 1), 0.3)
    whole = (design.T * 0.21) @ design
    np.testing.assert_allclose(arrow.information(design, chance, np.ones(9000)), whole)


def test_known_slopes_are_found_and_z_scores_are_honest() -> None:
    log, slopes = simulate(20, 400)
    model = PooledLogistic().fit(log)
    probe = pd.DataFrame({"a": [-1.0, 1.0], "b": [0.0, 0.0]})
    table = model.log_table(probe, np.arange(20))
    logit = table[..., 1] - table[..., 0]
    slope = (logit[1, :, 0] - logit[0, :, 0]) / 2
    assert np.corrcoef(slope, slopes[:, 0])[0, 1] > 0.9
    true = slopes[:, 0] * np.array([-1.0, 1.0])[:, None] - 0.7
    spread = np.sqrt(model.covariance(probe, np.arange(20))[..., 0, 0, 0])
    z = (logit[:, :, 0] - true) / spread
    assert 0.5 < z.std() < 1.6


def test_an_expert_with_few_decisions_leans_on_the_team() -> None:
    log, _ = simulate(10, 300)
    keep = (log.expert > 0) | (np.cumsum(log.expert == 0) <= 2)
    few, many = PooledLogistic().fit(log.take(keep)), PooledLogistic().fit(log)
    away = [np.abs(m.posterior_.weights[0] - m.posterior_.weights[-1]).max() for m in (few, many)]
    assert away[0] < away[1]
    wide = [m.posterior_.covariance[0].trace() for m in (few, many)]
    assert wide[0] > wide[1]


def test_a_feature_on_which_nobody_differs_is_shrunk() -> None:
    log, _ = simulate(20, 300)
    model = PooledLogistic().fit(log)
    a, b = (model.posterior_.expert_precision[:, k].mean() for k in (1, 3))  # the sizes
    assert b > 3 * a


def test_rows_and_tables_agree_for_three_classes() -> None:
    log, _ = simulate(5, 200, classes=3)
    model = PooledLogistic().fit(log)
    table = model.log_table(log.features, np.arange(6))
    np.testing.assert_allclose(np.exp(table).sum(axis=-1), 1.0)
    rows = model.log_rows(log.features, log.truth, log.expert)
    np.testing.assert_allclose(rows, table[np.arange(len(log)), log.expert, log.truth], atol=1e-12)
    better = rows[np.arange(len(log)), log.decision].mean()
    assert better > np.log(np.bincount(log.decision) / len(log))[log.decision].mean() + 0.05


def test_weight_counts_like_repetition() -> None:
    log, _ = simulate(4, 50)
    twice = log.take(np.tile(np.arange(len(log)), 2))
    design = np.column_stack([log.features.to_numpy(), np.ones(len(log))])
    groups = np.array([0, 1, 2])
    heavy = fit_posterior(design, log.expert, log.decision, 4, 2, groups, np.full(len(log), 2.0))
    again = fit_posterior(
        np.tile(design, (2, 1)), twice.expert, twice.decision, 4, 2, groups, np.ones(len(twice))
    )
    np.testing.assert_allclose(heavy.weights, again.weights, atol=1e-8)


def test_json_round_trip() -> None:
    log, _ = simulate(3, 50)
    model = PooledLogistic().fit(log)
    again = PooledLogistic.from_dict(json.loads(json.dumps(model.to_dict())))
    everyone = np.arange(4)
    np.testing.assert_array_equal(
        again.log_table(log.features, everyone), model.log_table(log.features, everyone)
    )
    np.testing.assert_allclose(
        again.covariance(log.features, everyone),
        model.covariance(log.features, everyone),
        rtol=1e-4,
        atol=1e-6,
    )
