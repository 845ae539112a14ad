"""What is computed without SciPy is what SciPy computes; places are those of a search; products are alone."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_info, threadpool_limits

from deccaf.data import log_odds
from deccaf.models.linear.encoding import _Number
from deccaf.models.positions import Positions
from deccaf.models.rows import rows_by
from deccaf.threads import one_thread

ODD = np.array([-np.inf, -1e5, -746.0, -37.0, -1e-9, 0.0, 1e-9, 37.0, 746.0, 1e5, np.inf])


@pytest.mark.parametrize("name", ["expit", "log_expit"])
def test_chances_of_log_odds_are_scipys(name: str) -> None:
    values = np.append(np.random.default_rng(0).normal(0, 6, 10_000), ODD)
    ours, theirs = getattr(log_odds, name)(values), getattr(scipy.special, name)(values)
    np.testing.assert_allclose(ours, theirs, rtol=1e-14, atol=0)
    assert np.isnan(getattr(log_odds, name)(np.nan))


def test_chances_are_written_where_they_are_wanted() -> None:
    values = np.array([[-2.0, 0.0], [3.0, 800.0]])
    wanted = scipy.special.expit(values)
    found = log_odds.expit(values, out=values)
    assert found is values
    np.testing.assert_allclose(values, wanted, rtol=1e-15)


@pytest.mark.parametrize(
    ("shape", "axis"),
    [((2,), 0), ((40, 2), -1), ((40, 2), 0), ((7, 3, 5), 1), ((3, 40), -1), ((0, 2), -1)],
)
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_is_scipys(name: str, shape: tuple[int, ...], axis: int) -> None:
    values = np.random.default_rng(1).normal(0, 5, shape)
    wanted = getattr(scipy.special, name)(values, axis=axis)
    np.testing.assert_allclose(getattr(log_odds, name)(values, axis=axis), wanted, rtol=1e-13)


def test_trigamma_and_quantiles_are_scipys() -> None:
    counts = np.concatenate([np.geomspace(1e-3, 1e6, 400), [0.5, 1.0, 2.0]])
    np.testing.assert_allclose(log_odds.trigamma(counts), scipy.special.polygamma(1, counts), rtol=1e-13)
    for chance in (0.001, 0.05, 0.5, 0.95, 0.999):
        assert log_odds.deviations(chance) == pytest.approx(scipy.special.ndtri(chance), rel=1e-12, abs=1e-12)


KINDS = {
    "normal": lambda rng: rng.normal(size=5_000),
    "long tail": lambda rng: np.exp(3 * rng.normal(size=5_000)),
    "two long tails": lambda rng: rng.standard_cauchy(5_000),
    "counts": lambda rng: rng.poisson(3, 5_000).astype(np.float64),
    "one far out": lambda rng: np.append(rng.normal(size=5_000), 1e12),
    "huge": lambda rng: rng.uniform(-1, 1, 5_000) * 1e300,
    "tiny": lambda rng: rng.normal(size=5_000) * 1e-310,
    "constant": lambda _: np.ones(10),
}


@pytest.mark.parametrize("upto", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_places_are_those_of_a_search(kind: str, upto: bool) -> None:
    data = KINDS[kind](np.random.default_rng(2))
    edges = np.unique(np.quantile(data, np.linspace(0, 1, 256), method="nearest"))
    near = [np.nextafter(edges, end) for end in (-np.inf, np.inf)]
    values = np.concatenate([data, edges, *near, [-np.inf, np.inf, 0.0, -0.0]])
    wanted = np.searchsorted(edges, values, "right" if upto else "left")
    np.testing.assert_array_equal(Positions(edges, upto=upto).of(values), wanted)


@given(
    st.lists(st.floats(allow_nan=False), min_size=1, max_size=40),
    st.lists(st.floats(allow_nan=False), min_size=1, max_size=40),
    st.booleans(),
)
def test_places_among_any_numbers(edges: list[float], values: list[float], upto: bool) -> None:
    sorted_edges, asked = np.unique(edges), np.array([*values, *edges])
    wanted = np.searchsorted(sorted_edges, asked, "right" if upto else "left")
    np.testing.assert_array_equal(Positions(sorted_edges, upto=upto).of(asked), wanted)


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - {"constant"}))
def test_many_values_are_interpolated_as_numpy_does(kind: str) -> None:
    data = KINDS[kind](np.random.default_rng(3))
    number = _Number.fit(data, "x")
    values = np.concatenate([np.tile(data, 3_000 // len(data) + 1), [-np.inf, np.inf]])
    np.testing.assert_array_equal(number._rank(values), np.interp(values, number.knots, number.ranks))


def test_rows_of_each_code() -> None:
    code = np.array([3, 0, 3, 3, 7, 0])
    found = {j: rows.tolist() for j, rows in rows_by(code)}
    assert found == {0: [1, 5], 3: [0, 2, 3], 7: [4]}
    assert not list(rows_by(np.empty(0, np.int64)))


def test_within_one_thread_every_matrix_library_has_one() -> None:
    import scipy.linalg  # noqa: F401

    with one_thread():
        within = [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]
    assert within
    assert set(within) == {1}


def test_the_last_of_several_who_leave_gives_the_threads_back() -> None:
    def now() -> set[int]:
        return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}

    with threadpool_limits(2, user_api="blas"):
        before = now()
        first, second = one_thread(), one_thread()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert now() == {1}
        second.__exit__(None, None, None)
        assert now() == before
