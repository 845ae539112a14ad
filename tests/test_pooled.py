"""The hierarchical logistic model: algebra against brute force, shrinkage, spread."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import check_grad
from scipy.special import softmax

from deccaf.models.decisions import pooled
from deccaf.models.decisions.log import DecisionLog
from deccaf.models.decisions.model import DecisionModel
from deccaf.models.decisions.pooled import PooledLogistic, most_coefficients
from deccaf.models.decisions.rates import ShrunkenRates
from deccaf.models.linear import block_newton as arrow
from deccaf.models.linear import hierarchical
from deccaf.models.linear.hierarchical import fit_posterior
from deccaf.models.linear.selection import most_informative
from models_world import stored


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


def problem(classes: int, signed: int = 0) -> tuple[arrow.Rows, arrow.Coefficients]:
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
        rng.choice([-1.0, 1.0], n) if signed else None,
        signed,
    )
    at = arrow.Coefficients(
        rng.normal(size=(columns + signed, classes - 1)),
        rng.normal(size=(experts, columns, classes - 1)),
        rng.uniform(0.5, 2, columns + signed),
        rng.uniform(0.5, 2, (experts, columns)),
    )
    return rows, at


def flat(at: arrow.Coefficients) -> np.ndarray:
    return np.concatenate([at.team.T.ravel(), *(one.T.ravel() for one in at.expert)])


def shaped(values: np.ndarray, like: arrow.Coefficients) -> arrow.Coefficients:
    contrasts = like.team.shape[1]
    team = values[: like.team.size].reshape(contrasts, -1)
    experts = values[like.team.size :].reshape(len(like.expert), contrasts, -1)
    return arrow.Coefficients(
        team.T, np.stack([one.T for one in experts]), like.team_precision, like.expert_precision
    )


@pytest.mark.parametrize(("classes", "signed"), [(2, 0), (2, 2), (3, 0)])
def test_newton_step_is_that_of_the_dense_hessian(classes: int, signed: int) -> None:
    rows, at = problem(classes, signed)
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
    team_size, size = rows.team_size, rows.size
    np.testing.assert_allclose(step.schur_inverse, inverse[:team_size, :team_size], atol=1e-4)
    pick = np.zeros((team_size, len(inverse)))
    pick[:, :team_size] = np.eye(team_size)
    pick[:size, team_size + 2 * size : team_size + 3 * size] = np.eye(size)
    np.testing.assert_allclose(arrow.joint_covariance(step)[2], pick @ inverse @ pick.T, atol=1e-4)
    team, expert = arrow.variances(step, rows.contrasts)
    np.testing.assert_allclose(team.T.ravel(), np.diag(inverse)[:team_size], atol=1e-4)
    np.testing.assert_allclose(expert[3].T.ravel(), np.diag(inverse)[team_size + 3 * size :], atol=1e-4)


@pytest.mark.parametrize("signed", [0, 2])
def test_a_crowd_is_summed_as_experts_one_by_one(monkeypatch: pytest.MonkeyPatch, signed: int) -> None:
    crowd, at = problem(2, signed)
    assert crowd.outer is not None
    one = arrow.newton(crowd, at)
    monkeypatch.setattr(arrow, "_MOST_OUTER", 0)
    few, _ = problem(2, signed)
    assert few.outer is None
    other = arrow.newton(few, at)
    monkeypatch.setattr(arrow, "_SMALL", 0)
    for found in (other, arrow.newton(few, at)):
        np.testing.assert_allclose(found.expert_move, one.expert_move, atol=1e-12)
        np.testing.assert_allclose(found.schur_inverse, one.schur_inverse, atol=1e-12)
        np.testing.assert_allclose(arrow.variances(found, 1)[1], arrow.variances(one, 1)[1], atol=1e-12)


def test_columns_with_a_sign_are_columns_in_which_nobody_differs() -> None:
    log, _ = simulate(6, 200)
    x, sign = log.features.to_numpy(), 2.0 * log.truth - 1.0
    ends = np.eye(2)[log.truth]
    short = fit_posterior(
        np.hstack([x, ends]),
        log.expert,
        log.decision,
        6,
        2,
        np.array([0, 1, 4, 4, 2, 3]),
        log.weight,
        sign=sign,
    )
    long = arrow.Rows(np.hstack([x, ends, x * sign[:, None]]), log.expert, log.decision, 6, 2, log.weight)
    stiff = short.expert_precision.copy()
    stiff[:, 4:] = 1e9
    at, step = arrow.climb(
        long, arrow.Coefficients(np.zeros((6, 1)), np.zeros((6, 6, 1)), short.team_precision, stiff)
    )
    np.testing.assert_allclose(short.weights[:-1], at.team + at.expert, atol=1e-3)
    np.testing.assert_allclose(short.covariance[:-1], arrow.joint_covariance(step), atol=1e-4)
    with pytest.raises(ValueError, match="two classes"):
        arrow.Rows(x, log.expert, log.decision, 6, 3, log.weight, sign, 1)


def test_a_long_log_is_fitted_from_where_another_fit_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    log, _ = simulate(8, 300)
    held = np.arange(len(log)) % 4 == 0
    first = PooledLogistic(form="difficulty").fit(log.take(~held))
    cold = PooledLogistic().settled([first]).fit(log)
    steps: list[int] = []
    newton = arrow.newton
    monkeypatch.setattr(arrow, "newton", lambda *args: steps.append(1) or newton(*args))
    again = PooledLogistic().settled([first]).fit(log)
    before = len(steps)
    np.testing.assert_array_equal(again.posterior_.weights, cold.posterior_.weights)  # short: as ever
    monkeypatch.setattr(hierarchical, "LONG", 1000)
    warm = PooledLogistic().settled([first]).fit(log)
    assert len(steps) - before < before / 2
    assert warm.begin is None
    here = np.arange(len(log))
    loss = [-m.log_rows(log.features, log.truth, log.expert)[here, log.decision].mean() for m in (cold, warm)]
    assert loss[1] == pytest.approx(loss[0], abs=2e-3)
    choice = PooledLogistic(form="choice").fit(log)
    renamed = PooledLogistic().settled([first])
    fewer = log.take(log.expert > 0)
    assert renamed.fit(fewer).form_ == "difficulty"
    right = PooledLogistic(form="choice")
    right.begin = first  # of another form: it cannot begin there
    np.testing.assert_array_equal(right.fit(log).posterior_.weights, choice.posterior_.weights)


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
    again = PooledLogistic.from_dict(stored(model.to_dict()))
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


def many_classes(experts: int = 30, each: int = 100, classes: int = 8) -> DecisionLog:
    """Ten features, the first of which makes a case easy; errors go to the next class, by expert."""
    rng = np.random.default_rng(3)
    n = experts * each
    features = pd.DataFrame(rng.normal(size=(n, 10)), columns=[f"f{k}" for k in range(10)])
    truth, who = rng.integers(classes, size=n), np.arange(n) % experts
    right = rng.random(n) < 1 / (1 + np.exp(-1.0 - 1.5 * features["f0"]))
    said = np.where(right, truth, (truth + 1 + who % 2) % classes)
    return DecisionLog.of(features, truth, [f"e{j:02d}" for j in who], said, classes=classes)


def test_with_many_classes_it_is_of_right_or_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pooled, "_COEFFICIENTS", (30, 100))
    log = many_classes()
    test = np.arange(len(log)) % 4 == 0
    train, held = log.take(~test), log.take(test)
    model = PooledLogistic().fit(train)
    assert model.errors_ is not None
    assert model.posterior_.weights.shape[2] == 1
    rows = model.log_rows(held.features, held.truth, held.expert)
    np.testing.assert_allclose(np.exp(rows).sum(axis=1), 1.0)
    table = model.log_table(held.features[:40], np.arange(31))
    np.testing.assert_allclose(np.exp(table).sum(axis=-1), 1.0)
    here = np.arange(40)
    np.testing.assert_allclose(table[here, held.expert[:40], held.truth[:40]], rows[:40])
    rates = ShrunkenRates().fit(train).log_rows(held.features, held.truth, held.expert)
    loss, plain = (-p[np.arange(len(held)), held.decision].mean() for p in (rows, rates))
    assert loss < plain - 0.05, "it sees that the first feature makes cases easy"
    again = PooledLogistic.from_dict(stored(model.to_dict()))
    np.testing.assert_array_equal(again.log_rows(held.features, held.truth, held.expert), rows)


def test_the_spread_of_right_or_wrong_is_that_of_its_log_odds(monkeypatch: pytest.MonkeyPatch) -> None:
    log = many_classes(experts=30, each=40, classes=5)
    model = PooledLogistic().fit(log)
    assert model.errors_ is None
    monkeypatch.setattr(pooled, "_COEFFICIENTS", (30, 60))
    model = PooledLogistic().fit(log)
    assert model.errors_ is not None
    found = model.covariance(log.features[:3], np.array([0, 30]))
    assert found.shape == (3, 2, 5, 4, 4)
    for y in range(5):
        lever = np.eye(5)[y, 1:] - np.eye(5)[y, 0]
        spread = found[:, :, y].max(axis=(-2, -1))
        assert (spread > 0).all()
        np.testing.assert_allclose(found[:, :, y], spread[..., None, None] * np.outer(lever, lever))


def test_contributions_of_right_or_wrong_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pooled, "_COEFFICIENTS", (30, 100))
    log = many_classes(each=60)
    names = [log.experts[j] for j in log.expert]
    model = DecisionModel(8, parts=("pooled",)).fit(log.features, log.truth, names, log.decision)
    (part,) = model.parts_.values()
    one, other = log.features.iloc[[0]], log.features.iloc[[1]]
    for truth, k in ((0, 3), (3, 3), (3, 5)):
        log_odds = [
            (table := part.log_rows(case, np.array([truth]), np.array([4])))[0, k] - table[0, 0]
            for case in (one, other)
        ]
        moved = [model.contributions(case, "e04", truth, k)["total"].sum() for case in (one, other)]
        stretch = model.calibrators_[truth].slope_ if model.calibrators_[truth].kind_ == "sigmoid" else 1.0
        weight = stretch * model.weights_["pooled"]
        assert moved[1] - moved[0] == pytest.approx(weight * (log_odds[1] - log_odds[0]))


def test_of_many_features_it_sees_those_that_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    log, _ = simulate(6, 200)
    rng = np.random.default_rng(0)
    noise = pd.DataFrame(rng.normal(size=(len(log), 60)), columns=[f"n{k}" for k in range(60)])
    wide = DecisionLog.of(
        pd.concat([noise, log.features.reset_index(drop=True)], axis=1),
        log.truth,
        [log.experts[j] for j in log.expert],
        log.decision,
    )
    monkeypatch.setattr(pooled, "_COEFFICIENTS", (10, 20))
    model = PooledLogistic().fit(wide)
    assert "a" in [part.name for part in model.encoder_.parts_]
    assert len(model.encoder_.groups_) <= 18
    assert most_coefficients(6) == 20
    shown = model.log_rows(wide.features, wide.truth, wide.expert)
    assert shown.shape == (len(wide), 2)


def test_the_most_telling_features_come_first() -> None:
    rng = np.random.default_rng(0)
    target, known = rng.integers(0, 2, 500), np.zeros(500, np.int64)
    matrix = rng.normal(size=(500, 6))
    matrix[:, 4] += target
    assert most_informative(matrix, [2, 1, 1, 2], target, known, np.ones(500), 2) == [3]
    assert most_informative(matrix, [1, 1, 1, 1, 2], target, known, np.ones(500), 1) != []
    assert most_informative(matrix, [1] * 6, target, target, np.ones(500), 6) == [0, 1, 2, 3, 4, 5]


def hard_cases(experts: int = 20, each: int = 150, classes: int = 2) -> DecisionLog:
    """The first feature makes cases hard, whatever their truth."""
    rng = np.random.default_rng(8)
    n = experts * each
    features = pd.DataFrame(rng.normal(size=(n, 3)), columns=list("abc"))
    truth, who = rng.integers(classes, size=n), np.arange(n) % experts
    right = rng.random(n) < 1 / (1 + np.exp(-1.5 + 1.5 * features["a"]))
    said = np.where(right, truth, (truth + rng.integers(1, classes, n)) % classes)
    return DecisionLog.of(features, truth, [f"e{j:02d}" for j in who], said, classes=classes)


def assert_covariance_is_of_the_design(model: PooledLogistic, features: pd.DataFrame) -> None:
    """v C v, for every row of the design, case by case."""
    found = model.covariance(features, np.array([3]))[:, 0]
    contrasts = model.posterior_.weights.shape[2]
    for truth in range(model.classes_):
        design = model.design(features, np.full(len(features), truth))
        blocks = model.posterior_.covariance[3].reshape(contrasts, design.shape[1], contrasts, -1)
        expected = np.einsum("ic,kcmd,id->ikm", design, blocks, design)
        if model.of_right:  # of being right: towards or away from the truth
            lever = np.eye(model.classes_)[truth][1:] - float(truth == 0)
            expected = expected * lever[:, None] * lever
        np.testing.assert_allclose(found[:, truth], expected, atol=1e-12)


@pytest.mark.parametrize(("classes", "form"), [(2, "difficulty"), (3, "right")])
def test_hard_cases_are_found_where_there_are_any(classes: int, form: str) -> None:
    log = hard_cases(classes=classes)
    late = np.arange(len(log)) >= 0.75 * len(log)
    train, held = log.take(~late), log.take(late)
    model, plain = PooledLogistic().fit(train, held), PooledLogistic().fit(train)
    assert (model.form_, plain.form_) == (form, "choice")
    rows = model.log_rows(held.features, held.truth, held.expert)
    table = model.log_table(held.features[:30], np.arange(21))
    here = np.arange(30)
    np.testing.assert_allclose(table[here, held.expert[:30], held.truth[:30]], rows[:30])
    losses = [
        -m.log_rows(held.features, held.truth, held.expert)[np.arange(len(held)), held.decision].mean()
        for m in (model, plain)
    ]
    assert losses[0] < losses[1] - 0.03
    again = PooledLogistic.from_dict(stored(model.to_dict()))
    np.testing.assert_array_equal(again.log_rows(held.features, held.truth, held.expert), rows)
    covariance = model.covariance(held.features[:5], np.array([0, 20]))
    assert (np.einsum("ijykk->ijyk", covariance) >= 0).all()
    for one in (model, plain):
        assert_covariance_is_of_the_design(one, held.features[:5])
    for truth in range(classes):
        one, other = (
            model.log_rows(held.features.iloc[[k]], np.array([truth]), np.array([3])) for k in (0, 1)
        )
        columns = model.encoder_.transform(held.features.iloc[:2])
        moved = (columns[1] - columns[0]) @ model.slopes(3, truth, 1)
        assert (other[0, 1] - other[0, 0]) - (one[0, 1] - one[0, 0]) == pytest.approx(moved)


def test_without_hard_cases_the_plain_form_stays() -> None:
    log, _ = simulate(8, 200, seed=4)
    late = np.arange(len(log)) >= 0.75 * len(log)
    assert PooledLogistic().fit(log.take(~late), log.take(late)).form_ == "choice"
    names = [log.experts[j] for j in log.expert]
    model = DecisionModel(parts=("rates", "pooled")).fit(log.features, log.truth, names, log.decision)
    assert model.parts_["pooled"].form_ == "choice"
