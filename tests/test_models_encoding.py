"""Features as matrices: ranks, sizes, levels; arrays as text; what is held out."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from deccaf.errors import DataError, ModelFileError
from deccaf.models.array_files import array_bytes, read_array
from deccaf.models.blending.holdout import holdouts
from deccaf.models.linear.encoding import LinearEncoder, TreeEncoder


@pytest.fixture
def table() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "amount": [1.0, 2.0, 3.0, np.nan],
            "flag": [0.0, 1.0, 1.0, 0.0],
            "same": [5.0] * 4,
            "none": [np.nan] * 4,
            "kind": pd.Categorical(["a", "b", "a", None], ["a", "b", "c"]),
        }
    )


def test_linear_columns_by_hand(table: pd.DataFrame) -> None:
    encoder = LinearEncoder(rarest=1).fit(table)
    matrix = encoder.transform(table)
    deviation = np.sqrt(2 / 3)
    expected = np.array(
        [
            # rank, size, missing | flag's rank | a, b
            [-1 / 3, -1 / deviation, -0.25, -0.25, 0.5, -0.25],
            [0.0, 0.0, -0.25, 0.25, -0.5, 0.75],
            [1 / 3, 1 / deviation, -0.25, 0.25, 0.5, -0.25],
            [0.0, 0.0, 0.75, -0.25, -0.5, -0.25],
        ]
    )
    np.testing.assert_allclose(matrix, expected)
    assert encoder.groups_.tolist() == [0, 1, 2, 3, 4, 4]  # constant and empty columns are gone


def test_tails_are_clipped_and_unseen_levels_stand_at_the_centre(table: pd.DataFrame) -> None:
    encoder = LinearEncoder(rarest=1).fit(table)
    odd = table[:1].assign(amount=1e9, kind=pd.Categorical(["new"]))
    row = encoder.transform(odd)[0]
    np.testing.assert_allclose(row[:2], [1 / 3, 5.0])
    np.testing.assert_allclose(row[4:], [-0.5, -0.25])


def test_rare_levels_have_no_column(table: pd.DataFrame) -> None:
    assert LinearEncoder(rarest=2).fit(table).transform(table).shape == (4, 5)


@pytest.mark.parametrize("kind", [LinearEncoder, TreeEncoder])
def test_encoders_survive_a_file(table: pd.DataFrame, kind: type) -> None:
    encoder = kind().fit(table)
    again = kind.from_dict(json.loads(json.dumps(encoder.to_dict())))
    np.testing.assert_array_equal(again.transform(table), encoder.transform(table))
    with pytest.raises(DataError, match="'kind': missing"):
        again.transform(table.drop(columns="kind"))


def test_tree_codes_are_those_of_training(table: pd.DataFrame) -> None:
    encoder = TreeEncoder().fit(table)
    assert encoder.categorical == [4]
    other = table.assign(kind=pd.Categorical(["a", "b", "z", None], ["z", "b", "a"]))
    np.testing.assert_array_equal(encoder.transform(other)[:, 4], [0.0, 1.0, np.nan, np.nan])
    assert encoder.transform(table, extra=2).shape == (4, 7)


@pytest.mark.parametrize(
    "array", [np.eye(3), np.arange(4), np.zeros((0, 2)), np.float32([1.5]), np.array([True])]
)
def test_arrays_come_back_as_they_were(array: np.ndarray) -> None:
    data = array_bytes(array)
    again = read_array(data, array.dtype.name, list(array.shape))
    assert again.dtype == array.dtype
    np.testing.assert_array_equal(again, array)
    assert array_bytes(again) == data


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[:-8], "24 bytes"),
        (lambda data: data + b"\0", "33 bytes"),
        (lambda data: data.replace(b"(2, 2)", b"(4, 1)"), r"\[4, 1\] where float64 \[2, 2\] belongs"),
        (lambda data: data.replace(b"<f8", b"|O8"), "array of object"),
        (lambda data: data.replace(b"<f8", b">f8"), "which no model holds"),
        (lambda data: data.replace(b"False", b"True "), "which no model holds"),
        (lambda data: data[:-8] + np.float64(np.nan).tobytes(), "1 NaN or infinite"),
    ],
)
def test_damaged_arrays_are_refused(change: Callable[[bytes], bytes], message: str) -> None:
    data = array_bytes(np.eye(2))
    with pytest.raises(ModelFileError, match=message):
        read_array(change(data), "float64", [2, 2])


@pytest.mark.parametrize("array", [np.array(["text"]), np.array([None]), np.array([np.inf])])
def test_arrays_that_no_file_holds_are_not_written(array: np.ndarray) -> None:
    with pytest.raises(ModelFileError):
        array_bytes(array)


# Holding out


def test_a_long_log_holds_out_its_latest_part() -> None:
    time = pd.Series(np.arange(8000) // 1000)
    (mask,) = holdouts(8000, time=time, share=0.25)
    assert time[mask].min() == 6
    assert mask.sum() == 2000


def test_a_short_log_is_folded_without_splitting_groups() -> None:
    group = pd.Series(np.arange(90) // 3)
    masks = holdouts(90, time=pd.Series(np.arange(90)), group=group)
    assert len(masks) == 5
    np.testing.assert_array_equal(np.sum(masks, axis=0), 1)
    for mask in masks:
        assert not set(group[mask]) & set(group[~mask])


def test_a_long_log_without_time_holds_out_one_random_part() -> None:
    (mask,) = holdouts(10_000, group=pd.Series(np.arange(10_000) // 2))
    assert mask.sum() == 2500
    (same,) = holdouts(10_000, group=pd.Series(np.arange(10_000) // 2))
    np.testing.assert_array_equal(mask, same)


def test_nothing_can_be_held_out_of_one_row() -> None:
    assert holdouts(1) == []
    assert holdouts(5, group=pd.Series(["g"] * 5)) == []
    assert len(holdouts(3)) == 3
