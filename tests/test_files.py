from __future__ import annotations

import errno
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

from deccaf import Cases, ConfigError, DataError, DeccafError
from deccaf.data.files import read_frame, replacing, write_frame, write_text


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_what_is_written_is_read_back(tmp_path: Path, cases_frame: pd.DataFrame, name: str) -> None:
    write_frame(cases_frame, tmp_path / name)
    pd.testing.assert_frame_equal(read_frame(tmp_path / name), cases_frame, check_dtype=False)
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path: Path) -> None:
    (tmp_path / "bom.csv").write_bytes(b"\xef\xbb\xbfcase_id,x\r\na,1\r\nb,2.5\r\n")
    cases = Cases.read(tmp_path / "bom.csv")
    assert list(cases.ids) == ["a", "b"]
    assert cases.features["x"].tolist() == [1.0, 2.5]


def test_an_index_that_pandas_stored_is_a_column(tmp_path: Path) -> None:
    pd.DataFrame({"x": [1.0]}, index=pd.Index(["a"], name="case_id")).to_parquet(tmp_path / "t.parquet")
    assert list(Cases.read(tmp_path / "t.parquet").ids) == ["a"]


def test_a_late_decimal_does_not_break_a_whole_number_column(tmp_path: Path) -> None:
    rows = 4_000_000  # beyond the first block, from which types are inferred
    (tmp_path / "t.csv").write_text(
        "case_id,x\n" + "\n".join(f"{k},7" for k in range(rows)) + f"\n{rows},0.5\n"
    )
    frame = read_frame(tmp_path / "t.csv")
    assert frame["x"].dtype == np.float64
    assert frame["x"].iloc[-1] == 0.5
    assert frame["case_id"].dtype == np.int64


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.csv", None, "no such file"),
        ("empty.csv", b"", "the file is empty"),
        ("empty.parquet", b"", "the file is empty"),
        ("text.parquet", b"case_id,x\na,1\n" * 10, "is not a parquet file"),
        ("short.parquet", b"PAR1PAR1", "is not a parquet file"),
        ("liar.parquet", b"PAR1" + b"\x00" * 64 + b"PAR1", "cannot be read"),
        ("header.csv", b"case_id,x\n", "no rows"),
        ("two.csv", b"a,b;c,d\n1,2;3,4\n", r"two ways, with commas \['a', 'b;c', 'd'\] or with semicolons"),
        ("ragged.csv", b"case_id,x\na,1\nb\n", r"line 3 has 1 column\(s\) where the header has 2: 'b'"),
        ("twice.csv", b"case_id,x,x\na,1,2\n", "stand twice, first: 'x'"),
        ("unnamed.csv", b"case_id,,x\na,1,2\n", "without a name, first: column number 2"),
        ("utf16.csv", "case_id,x\na,1\n".encode("utf-16"), "text in UTF-16; save it as UTF-8"),
        ("nul.csv", b"case_id,x\na,\x00\n", "NUL bytes"),
        ("latin.csv", b"case_id,\xe9\na,1\n", "byte 0xe9 in line 1; save it as UTF-8"),
        ("latin2.csv", b"case_id,x\n\xe9,1\n", "byte 0xe9 in line 2; save it as UTF-8"),
        ("mixed.csv", b"case_id,x\na,1\nb,2\nc,oops\n", "mixes numbers and text: 1 of 3"),
        ("sheet.xls", b"PK\x03\x04", r"unknown extension '.xls' \(save it as .xlsx\)"),
        ("wide.csv", b"case_id," + b",".join(b"c%d" % k for k in range(10**5)) + b"\n" + b"1," * 10**5 + b"1\n",
         "100,001 columns; at most 10,000"),
    ],
)  # fmt: skip
def test_bad_files_are_named_within_two_seconds(tmp_path: Path, name: str, content, message: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    started = time.process_time()
    with pytest.raises(DataError, match=message) as caught:
        Cases.read(tmp_path / name)
    assert time.process_time() - started < 2
    assert caught.value.exit_code == 3


def test_a_parquet_of_a_hundred_thousand_columns_is_refused(tmp_path: Path) -> None:
    wide = pa.table({f"c{k}": pa.nulls(1, pa.int8()) for k in range(10**5)})
    pa.parquet.write_table(wide, tmp_path / "wide.parquet")
    started = time.process_time()
    with pytest.raises(DataError, match="100,000 columns"):
        Cases.read(tmp_path / "wide.parquet")
    assert time.process_time() - started < 2


def test_nested_columns_are_refused(tmp_path: Path) -> None:
    for nested, kind in (([["a", "b"]], "list"), ([{"y": 1}], "struct"), ([[[1.0]]], "list")):
        pa.parquet.write_table(pa.table({"case_id": ["a"], "x": nested}), tmp_path / "t.parquet")
        with pytest.raises(DataError, match=f"column 'x': holds {kind}"):
            read_frame(tmp_path / "t.parquet")


def test_an_error_while_writing_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    write_text("old", tmp_path / "report.html")
    with pytest.raises(RuntimeError), replacing(tmp_path / "report.html") as beside:
        beside.write_text("half")
        raise RuntimeError
    assert (tmp_path / "report.html").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


def test_a_full_disk_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    with (
        pytest.raises(DeccafError, match="disk is full") as caught,
        replacing(tmp_path / "plan.csv") as beside,
    ):
        beside.write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")
    assert caught.value.exit_code == 1
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        write_text("x", tmp_path / "file" / "report.html")
    with pytest.raises(ConfigError, match="unknown extension"):
        write_frame(pd.DataFrame({"x": [1]}), tmp_path / "t.xlsx")
