"""Reading tables and writing files, so that bad input is named and half-written output never looks whole."""

from __future__ import annotations

import csv
import errno
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from deccaf.errors import ConfigError, DataError, DeccafError

MAX_COLUMNS = 10_000
_HEADER_BYTES = 8 << 20
_MISSING = ["", "NA", "N/A", "NaN", "nan", "null", "NULL"]


def read_frame(path: str | Path) -> pd.DataFrame:
    """Read a parquet or CSV file, chosen by its extension; whatever is wrong with it is a `DataError`."""
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path}: {'is a folder, not a file' if path.is_dir() else 'no such file'}")
    if path.stat().st_size == 0:
        raise DataError(f"{path}: the file is empty")
    readers = {".parquet": _read_parquet, ".pq": _read_parquet, ".csv": _read_csv}
    if path.suffix.lower() not in readers:
        raise DataError(f"{path}: unknown extension {path.suffix!r}; give a .parquet or a .csv file")
    try:
        table = readers[path.suffix.lower()](path)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read: {_first_line(error)}") from error
    return _to_pandas(_plain_types(table, path))


def read_frames(
    path: str | Path, rows: int = 131_072, columns: Collection[str] | None = None
) -> Iterator[pd.DataFrame]:
    """Read a file some rows at a time; only these `columns` of a parquet file, those of them that exist.

    A CSV file is read whole, because only the whole file tells the types of its columns.
    """
    path = Path(path)
    if path.suffix.lower() not in {".parquet", ".pq"} or not path.is_file() or not path.stat().st_size:
        frame = read_frame(path)
        for start in range(0, len(frame), rows):
            yield frame.iloc[start : start + rows]
        return
    try:
        _check_parquet(path)
        with pa.parquet.ParquetFile(path) as parquet:
            names = parquet.schema_arrow.names
            wanted = names if columns is None else [name for name in names if name in set(columns)]
            for batch in parquet.iter_batches(batch_size=rows, columns=wanted):
                yield _to_pandas(_plain_types(pa.Table.from_batches([batch]), path))
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: cannot be read: {_first_line(error)}") from error


def write_frame(frame: pd.DataFrame, path: str | Path) -> None:
    """Write a table as parquet or CSV, chosen by the extension, whole or not at all; no index column."""
    path = Path(path)
    if path.suffix.lower() not in {".parquet", ".pq", ".csv"}:
        raise ConfigError(f"{path}: unknown extension {path.suffix!r}; use .parquet or .csv")
    table = pa.Table.from_pandas(frame, preserve_index=False)
    with replacing(path) as beside:
        if path.suffix.lower() == ".csv":
            pa.csv.write_csv(table, beside)
        else:
            pa.parquet.write_table(table, beside)


def write_text(text: str, path: str | Path) -> None:
    """Write a text file, whole or not at all."""
    with replacing(path) as beside:
        beside.write_text(text, encoding="utf-8")


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Give a path beside `path` to write to; rename it over `path` when the block ends without an error.

    A reader sees the old file or the new one, never a part; after an error nothing is left behind.
    """
    path = Path(path)
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield beside
        with beside.open("rb") as written:
            os.fsync(written.fileno())
        beside.replace(path)
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise DeccafError(f"{path}: the disk is full; nothing was written") from error
        raise ConfigError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            beside.unlink()


def check_width(columns: int, path: str | Path) -> None:
    """Refuse a table with more columns than anyone means to have."""
    if columns > MAX_COLUMNS:
        raise DataError(f"{path}: {columns:,} columns; at most {MAX_COLUMNS:,} can be read")


def check_header(names: Sequence[str], path: str | Path) -> None:
    """Refuse a header that no later message could talk about: too wide, unnamed or ambiguous."""
    check_width(len(names), path)
    unnamed = [k for k, name in enumerate(names, 1) if not name.strip()]
    if unnamed:
        raise DataError(f"{path}: {len(unnamed)} column(s) without a name, first: column number {unnamed[0]}")
    seen: set[str] = set()
    repeated = [name for name in names if name in seen or seen.add(name)]  # type: ignore[func-returns-value]
    if repeated:
        raise DataError(f"{path}: {len(repeated)} column name(s) stand twice, first: {repeated[0]!r}")


def _read_parquet(path: Path) -> pa.Table:
    _check_parquet(path)
    with pa.parquet.ParquetFile(path) as parquet:
        return parquet.read()


def _check_parquet(path: Path) -> None:
    with path.open("rb") as file:
        head = file.read(4)
        file.seek(-4, os.SEEK_END)
        if path.stat().st_size < 12 or head != b"PAR1" or file.read(4) != b"PAR1":
            raise DataError(f"{path}: is not a parquet file, or a truncated one")
    with pa.parquet.ParquetFile(path) as parquet:
        check_width(parquet.metadata.num_columns, path)  # before the schema, which is slow when very wide
        check_header(parquet.schema_arrow.names, path)


def _read_csv(path: Path) -> pa.Table:
    names = _csv_header(path)
    read = pa.csv.ReadOptions(block_size=16 << 20)
    parse = pa.csv.ParseOptions(newlines_in_values=True)
    convert = pa.csv.ConvertOptions(null_values=_MISSING, strings_can_be_null=True)
    try:
        return pa.csv.read_csv(path, read, parse, convert)
    except pa.ArrowInvalid as error:
        if "conversion error" not in str(error):
            raise
    # Arrow infers a column's type from the first block. Where a later block disagrees, read everything
    # as text and let each column find its own type; a truly mixed one stays text and is named later.
    convert = pa.csv.ConvertOptions(
        null_values=_MISSING, strings_can_be_null=True, column_types=dict.fromkeys(names, pa.string())
    )
    table = pa.csv.read_csv(path, read, parse, convert)
    for position, name in enumerate(names):
        for kind in (pa.int64(), pa.float64(), pa.bool_(), pa.timestamp("us")):
            try:
                table = table.set_column(position, name, table.column(position).cast(kind))
                break
            except pa.ArrowInvalid:
                continue
    return table


def _csv_header(path: Path) -> list[str]:
    with path.open("rb") as file:
        start = file.read(_HEADER_BYTES)
    if b"\x00" in start:
        raise DataError(f"{path}: is not a text file in UTF-8 (it holds NUL bytes)")
    line = start.removeprefix(b"\xef\xbb\xbf").split(b"\n", 1)[0].decode("utf-8").rstrip("\r")
    names = next(csv.reader([line]), [])
    if len(names) == 1 and any(mark in line for mark in ";\t|"):
        mark = next(mark for mark in ";\t|" if mark in line)
        raise DataError(f"{path}: columns are separated by {mark!r}; save it with commas, or as parquet")
    check_header(names, path)
    return names


def _plain_types(table: pa.Table, path: Path) -> pa.Table:
    """Turn decimals into floats and refuse nested columns: a feature is one number or one name."""
    for position, field in enumerate(table.schema):
        if pa.types.is_decimal(field.type):
            table = table.set_column(position, field.name, table.column(position).cast(pa.float64()))
        elif pa.types.is_nested(field.type) or pa.types.is_binary(field.type):
            raise DataError(
                f"{path}: column {field.name!r}: holds {field.type}; use numbers, or text in UTF-8"
            )
    return table


def _to_pandas(table: pa.Table) -> pd.DataFrame:
    # Index metadata that pandas wrote is dropped, so that an index named case_id is an ordinary column.
    frame: pd.DataFrame = table.replace_schema_metadata(None).to_pandas(date_as_object=False)
    return frame


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n", 1)[0][:300]
