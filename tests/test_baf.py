"""Reading the real files: BAF's layout as CSV and parquet, and every way to be something else."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from deccaf.errors import DataError
from deccaf.simulate import generate_applications, load_baf
from deccaf.simulate.baf import COLUMNS


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return generate_applications(3_000, seed=2)


def write(table: pd.DataFrame, path: Path, **options: object) -> Path:
    table.to_csv(path, index=False, **options)  # type: ignore[call-overload]
    return path


def test_csv_round_trip_gives_the_generator_s_types(table: pd.DataFrame, tmp_path: Path) -> None:
    pd.testing.assert_frame_equal(load_baf(write(table, tmp_path / "Base.csv")), table)


def test_parquet_round_trip(table: pd.DataFrame, tmp_path: Path) -> None:
    table.to_parquet(tmp_path / "base.parquet", index=False)
    pd.testing.assert_frame_equal(load_baf(tmp_path / "base.parquet"), table)


def test_parquet_with_narrow_integers_and_strings(table: pd.DataFrame, tmp_path: Path) -> None:
    narrow = table.astype({"customer_age": "int8", "fraud_bool": "bool", "payment_type": str})
    narrow.to_parquet(tmp_path / "base.parquet", index=False)
    pd.testing.assert_frame_equal(load_baf(tmp_path / "base.parquet"), table)


def test_columns_in_another_order_come_in_baf_s(table: pd.DataFrame, tmp_path: Path) -> None:
    pd.testing.assert_frame_equal(load_baf(write(table[list(COLUMNS[::-1])], tmp_path / "Base.csv")), table)


def test_byte_order_mark_is_tolerated(table: pd.DataFrame, tmp_path: Path) -> None:
    path = write(table, tmp_path / "Base.csv", encoding="utf-8-sig")
    assert path.read_bytes().startswith(b"\xef\xbb\xbf")
    pd.testing.assert_frame_equal(load_baf(str(path)), table)


def spoil(column: str, row: int, value: object) -> Callable[[pd.DataFrame], pd.DataFrame]:
    def change(table: pd.DataFrame) -> pd.DataFrame:
        table = table.astype({column: object})
        table.loc[row, column] = value
        return table

    return change


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (lambda t: t.drop(columns="income"), ["1 columns missing", "'income'"]),
        (lambda t: t.assign(extra=1), ["1 columns unknown", "'extra'"]),
        (lambda t: pd.concat([t, t[["income"]]], axis=1), ["1 columns repeated", "'income'"]),
        (lambda t: t.iloc[:0], ["no rows"]),
        (spoil("month", 5, 8), ["'month'", "1 values outside 0..7", "first: ", "8", "row 5"]),
        (spoil("fraud_bool", 9, 2), ["'fraud_bool'", "1 values outside 0..1", "row 9"]),
        (spoil("source", 4, "FAX"), ["'source'", "1 values outside", "'FAX'", "row 4"]),
        (spoil("housing_status", 3, None), ["'housing_status'", "1 values missing", "row 3"]),
        (spoil("income", 3, None), ["'income'", "1 values missing", "row 3"]),
        (spoil("velocity_6h", 6, float("inf")), ["'velocity_6h'", "1 values not finite", "row 6"]),
        (
            spoil("customer_age", 7, "old"),
            ["'customer_age'", "1 values that are not of kind int", "'old'", "row 7"],
        ),
        (
            spoil("customer_age", 7, 30.5),
            ["'customer_age'", "1 values that are not of kind int", "'30.5'", "row 7"],
        ),
        (spoil("income", 7, "rich"), ["'income'", "1 values that are not of kind float", "'rich'", "row 7"]),
    ],
    ids=[
        "missing column",
        "extra column",
        "repeated column",
        "no rows",
        "month",
        "label",
        "level",
        "blank string",
        "blank number",
        "infinite",
        "mixed types",
        "fraction",
        "text",
    ],
)
def test_wrong_content(
    table: pd.DataFrame, tmp_path: Path, change: Callable[[pd.DataFrame], pd.DataFrame], parts: list[str]
) -> None:
    path = write(change(table), tmp_path / "Base.csv")
    with pytest.raises(DataError) as caught:
        load_baf(path)
    for part in [*parts, "Base.csv"]:
        assert part in str(caught.value)


def test_parquet_with_wrong_kind(table: pd.DataFrame, tmp_path: Path) -> None:
    table.assign(income="high").to_parquet(tmp_path / "base.parquet")
    with pytest.raises(DataError, match="'income'"):
        load_baf(tmp_path / "base.parquet")


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        load_baf(tmp_path / "Base.csv")
    with pytest.raises(DataError, match="no such file"):
        load_baf(tmp_path)


@pytest.mark.parametrize("name", ["Base.csv", "base.parquet"])
def test_empty_file(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(DataError, match="empty"):
        load_baf(tmp_path / name)


def test_not_a_parquet(tmp_path: Path) -> None:
    (tmp_path / "base.parquet").write_text("fraud_bool,income\n0,0.5\n")
    with pytest.raises(DataError, match="not a parquet"):
        load_baf(tmp_path / "base.parquet")


def test_binary_rubbish_as_csv(tmp_path: Path) -> None:
    (tmp_path / "Base.csv").write_bytes(bytes(range(256)) * 50)
    with pytest.raises(DataError, match="32 columns missing"):
        load_baf(tmp_path / "Base.csv")


def test_semicolons_are_named_as_missing_columns(table: pd.DataFrame, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="32 columns missing"):
        load_baf(write(table, tmp_path / "Base.csv", sep=";"))


def test_short_line(table: pd.DataFrame, tmp_path: Path) -> None:
    path = write(table, tmp_path / "Base.csv")
    path.write_text(path.read_text() + "0,0.5\n")
    with pytest.raises(DataError, match="Expected 32 columns, got 2"):
        load_baf(path)


def test_a_hundred_thousand_columns_are_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "Base.csv"
    names = [*COLUMNS, *(f"x{i}" for i in range(100_000))]
    path.write_text(",".join(names) + "\n" + ",".join(["0"] * len(names)) + "\n")
    start = time.perf_counter()
    with pytest.raises(DataError, match="100000 columns unknown, first: 'x0'"):
        load_baf(path)
    assert time.perf_counter() - start < 2


def test_the_real_alerts_have_baf_s_columns() -> None:
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    path = Path(os.environ.get("DECCAF_SHARED_DATA", default)) / "baf_alerts_months_3_to_6.parquet"
    if not path.is_file():
        pytest.skip(f"no real alerts at {path}; set DECCAF_SHARED_DATA to run this")
    with pytest.raises(DataError, match="columns unknown, first: 'model_score'"):
        load_baf(path)
