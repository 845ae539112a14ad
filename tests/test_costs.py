from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deccaf import ConfigError, Costs, DataError, expected_loss
from deccaf.data.costs import expert_losses, machine_losses


def test_binary_is_the_two_class_matrix() -> None:
    costs = Costs.binary(false_positive=0.057, false_negative=1.0)
    assert costs.classes == (0, 1)
    np.testing.assert_array_equal(costs.array(), [[[0, 0.057], [1, 0]]])


def test_loss_of_machine_and_experts_by_hand() -> None:
    # One case, P(fraud) = 0.2. Rejecting costs 0.8 * 0.5 = 0.4, accepting 0.2 * 1 = 0.2.
    # The expert rejects 10 % of the good (0.8 * 0.1 * 0.5 = 0.04) and accepts half the bad (0.2 * 0.5 = 0.1).
    costs = Costs.binary(false_positive=0.5, false_negative=1.0).array()
    p = np.array([[0.8, 0.2]])
    q = np.array([[[[0.9, 0.1], [0.5, 0.5]]]])
    np.testing.assert_allclose(machine_losses(p, costs), [[0.2, 0.4]])
    np.testing.assert_allclose(expert_losses(p, q, costs), [[0.14]])
    np.testing.assert_allclose(expected_loss(p, q, costs, review_cost=[0.01]), [[0.2, 0.15]])


@given(st.integers(0, 10**6), st.integers(2, 4), st.integers(1, 5), st.integers(1, 4), st.booleans())
def test_expected_loss_is_the_sum_over_truths_and_decisions(
    seed: int, classes: int, cases: int, experts: int, per_case: bool
) -> None:
    rng = np.random.default_rng(seed)
    costs = rng.random((cases if per_case else 1, classes, classes))
    costs[:, range(classes), range(classes)] = 0
    p = rng.dirichlet(np.ones(classes), cases)
    q = rng.dirichlet(np.ones(classes), (cases, experts, classes))
    review = rng.random(experts)
    slow = np.empty((cases, 1 + experts))
    for i in range(cases):
        c = costs[i if per_case else 0]
        slow[i, 0] = min(sum(p[i, y] * c[y, k] for y in range(classes)) for k in range(classes))
        for j in range(experts):
            slow[i, 1 + j] = review[j] + sum(
                p[i, y] * q[i, j, y, m] * c[y, m] for y in range(classes) for m in range(classes)
            )
    np.testing.assert_allclose(expected_loss(p, q, costs, review), slow)


def test_amounts_per_case_replace_cells_and_scale_all() -> None:
    amounts = pd.DataFrame({"loss": [10.0, 20.0], "size": [1.0, 3.0]})
    costs = Costs.binary(false_positive=2.0, false_negative="loss", scale="size")
    assert costs.columns == ("loss", "size")
    np.testing.assert_array_equal(costs.array(amounts), [[[0, 2], [10, 0]], [[0, 6], [60, 0]]])


def test_case_weight_is_the_cost_of_the_error_that_the_truth_allows() -> None:
    costs = Costs.binary(false_positive=0.057, false_negative=1.0)
    np.testing.assert_array_equal(costs.case_weights(np.array([0, 1, 0])), [0.057, 1.0, 0.057])
    amounts = pd.DataFrame({"loss": [10.0, 20.0]})
    costs = Costs.binary(false_positive=2.0, false_negative="loss")
    np.testing.assert_array_equal(costs.case_weights(np.array([0, 1]), amounts), [2.0, 20.0])
    three = Costs.from_matrix([[0, 1, 3], [4, 0, 4], [1, 1, 0]], ["low", "mid", "high"])
    np.testing.assert_array_equal(three.case_weights(np.array([0, 1, 2])), [2.0, 4.0, 1.0])


def test_costs_survive_a_file() -> None:
    costs = Costs.from_matrix([[0, "fp"], [1.5, 0]], ["ok", "bad"], scale="amount")
    again = Costs.from_dict(costs.to_dict())
    assert (again.classes, again.cells, again.scale) == (costs.classes, costs.cells, costs.scale)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Costs.binary(float("inf")), "deciding 1 when the truth is 0 must be finite"),
        (lambda: Costs.binary(-1.0), "not negative, got -1.0"),
        (lambda: Costs.binary(float("nan")), "finite"),
        (lambda: Costs.from_matrix([[0, 1], [1, 2]], [0, 1]), "right decision and must cost 0, got 2"),
        (lambda: Costs.from_matrix([[0, 1]], [0, 1]), "2 x 2 matrix"),
        (lambda: Costs.from_matrix([[0, 1], [1, 0]], ["a", "a"]), "two different classes"),
        (lambda: Costs.binary(0.0, 0.0), "every error costs 0"),
        (lambda: Costs.from_matrix([["x", 1], [1, 0]], [0, 1]), "must be 0, not column 'x'"),
    ],
)
def test_impossible_costs_are_refused(make, message) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        make()
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("bad", [-1.0, np.inf, np.nan])
def test_bad_amounts_are_named_with_count_and_case(bad: float) -> None:
    amounts = pd.DataFrame({"loss": [1.0, bad, bad]}, index=["a", "b", "c"])
    with pytest.raises(DataError, match=r"column 'loss': 2 cost\(s\).*in case 'b'") as caught:
        Costs.binary(1.0, "loss").array(amounts)
    assert caught.value.exit_code == 3


def test_missing_amount_column_is_named() -> None:
    with pytest.raises(DataError, match="column 'loss': missing"):
        Costs.binary(1.0, "loss").array(pd.DataFrame({"other": [1.0]}))


def test_whole_numbers_in_a_matrix_do_not_truncate_amounts() -> None:
    costs = Costs.from_matrix([[0, 1], ["amount", 0]], [0, 1], scale="size")
    amounts = pd.DataFrame({"amount": [0.5], "size": [1.5]})
    np.testing.assert_allclose(costs.array(amounts), [[[0.0, 1.5], [0.75, 0.0]]])
