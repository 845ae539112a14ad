"""Reading tables and writing files, so that bad input is named and half-written output never looks whole."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from fnmatch import fnmatch
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from deccaf.data.csv_files import not_utf8, read_csv
from deccaf.data.excel_files import read_excel
from deccaf.data.headers import check_header, check_width
from deccaf.data.names import as_text
from deccaf.data.pandas_index import PandasIndex
from deccaf.data.sources import EXTENSIONS, Source, address_of, shown, sources
from deccaf.data.times import parse_times
from deccaf.errors import ConfigError, DataError, DeccafError

CHUNK_ROWS = 65_536
TABLES = (".parquet", ".pq", ".csv")
"""The extensions of tables that are written."""
SUCCESS = "_SUCCESS"
"""What a folder of parts holds when it is whole."""
_PROBE = 1 << 16
_BUFFER = 1 << 18
"""Bytes of a column that are read at a time, where a row group may hold a million rows."""


def read_frame(path: str | Path, text: Collection[str] = (), category: Collection[str] = ()) -> pd.DataFrame:
    """Read a table; whatever is wrong with it is a `DataError`.

    The path is a file (.parquet, .csv, .tsv, these packed as .gz, .xlsx), a folder or a pattern of such
    files, a pipe, `-` for standard input, or the address of a table in a database. Columns named in `text`
    are names: text exactly as it stands, of which only the empty one is missing. Columns in `category` are
    text too, where `NA` and its like are missing.
    """
    return _to_pandas(_together(sources(path), text, category))


def read_frames(
    path: str | Path,
    rows: int = CHUNK_ROWS,
    columns: Collection[str] | None = None,
    text: Collection[str] = (),
    category: Collection[str] = (),
    time: str | None = None,
    time_format: str | None = None,
) -> Iterator[pd.DataFrame]:
    """Read a table some rows at a time; only these `columns`, those of them that exist.

    A text file or workbook is read whole, because only the whole tells the types of its columns. So is the
    column `time` where it is text, whose format must be one.
    """
    parts = sources(path)
    if all(part.kind == "parquet" for part in parts):
        chunks = _parquet_chunks(parts, rows, columns, text)
        form = time_format or _format_of(_parquet_texts(parts, time), time)
    else:
        whole = _together(parts, text, category)
        chunks = (whole.slice(at, rows) for at in range(0, whole.num_rows, rows))
        form = time_format or _format_of(whole[time] if time in whole.column_names else None, time)
    start = 0
    for chunk in chunks:
        frame = _to_pandas(chunk)
        frame.index = pd.RangeIndex(start, start + len(frame))
        start += len(frame)
        if form is not None and time in frame:
            frame[time] = parse_times(frame[time], form).values
        yield frame
    pa.default_memory_pool().release_unused()  # what was read is mostly gone, and Arrow would keep its room


def write_frame(frame: pd.DataFrame, path: str | Path) -> None:
    """Write a table as parquet or CSV, chosen by the extension, whole or not at all; no index column."""
    path = Path(path)
    _check_extension(path)
    table = pa.Table.from_pandas(frame, preserve_index=False)
    with replacing(path) as beside:
        if path.suffix.lower() == ".csv":
            pa.csv.write_csv(table, beside)
        else:
            pa.parquet.write_table(table, beside)


def write_frames(frames: Iterable[pd.DataFrame], path: str | Path) -> None:
    """Write a table that comes in parts, whole or not at all.

    A name with an extension is one file, written part by part; one without is a folder of parquet files, with
    the mark `_SUCCESS`, that takes the place of an earlier one.
    """
    path = Path(path)
    if not path.suffix:
        _write_folder(frames, path)
        return
    _check_extension(path)
    csv, schema, writer = path.suffix.lower() == ".csv", None, None
    with replacing(path) as beside, ExitStack() as stack:
        for frame in frames:
            table = pa.Table.from_pandas(frame, schema=schema, preserve_index=False)
            if writer is None:
                schema = table.schema
                make = pa.csv.CSVWriter if csv else pa.parquet.ParquetWriter
                writer = stack.enter_context(make(beside, schema))
            writer.write_table(table)
        stack.close()


def _write_folder(frames: Iterable[pd.DataFrame], path: Path) -> None:
    """A folder of parts, made beside its place and then moved there."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        if path.exists() and not _is_ours(path):
            raise ConfigError(f"{path}: holds something else than a plan; name a new folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir()
        for number, frame in enumerate(frames):
            write_frame(frame, beside / f"part-{number:05d}.parquet")
        (beside / SUCCESS).touch()
        if path.exists():
            old = path.with_name(f".{path.name}.{os.getpid()}.old")
            path.replace(old)
            beside.replace(path)
            shutil.rmtree(old)
        else:
            beside.replace(path)
    except OSError as error:
        raise _cannot_write(path, error) from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _is_ours(path: Path) -> bool:
    """Whether a folder is empty, or one that `write_frames` made."""
    if not path.is_dir():
        return False
    names = [part.name for part in path.iterdir()]
    return all(name == SUCCESS or fnmatch(name, "part-*.parquet") for name in names)


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
        raise _cannot_write(path, error) from error
    finally:
        with suppress(OSError):
            beside.unlink()


def check_output(
    path: Path, inputs: Collection[str | Path | None], extensions: Collection[str] = TABLES
) -> None:
    """Refuse an output that would fail, or overwrite an input, before any work is done; nothing is left.

    Without `extensions` the output is a folder.
    """
    if extensions:
        _check_extension(path, extensions)
        if path.is_dir():
            raise ConfigError(f"{path}: is a folder; name a file in it")
    for given in inputs:
        if given is not None and _same_file(path, given):
            raise ConfigError(
                f"{path}: is an input too ({shown(given)}), which would be overwritten; name another file"
            )
    place = path if not extensions else path.parent
    while not place.exists():
        place = place.parent
    try:
        if not place.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        with tempfile.TemporaryFile(dir=place) as probe:
            probe.write(b"\0" * _PROBE)
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        raise _cannot_write(path, error) from error


def _same_file(path: Path, given: str | Path) -> bool:
    """Whether writing to `path` would change what `given` is read from."""
    address = address_of(given)
    if str(given) == "-" or (address is not None and address.kind != "duckdb"):
        return False
    given = Path(given if address is None else address.where)
    if path.exists() and given.exists() and path.samefile(given):
        return True
    if given.is_dir():
        return path.resolve().is_relative_to(given.resolve()) and path.suffix.lower() in EXTENSIONS
    return (
        given.name != path.name
        and path.parent.resolve() == given.parent.resolve()
        and fnmatch(path.name, given.name)
    )


def _check_extension(path: Path, extensions: Collection[str] = TABLES) -> None:
    if path.suffix.lower() not in extensions:
        known = " or ".join(extensions)
        raise ConfigError(f"{path}: unknown extension {path.suffix!r}; use {known}")


def _cannot_write(path: Path, error: OSError) -> DeccafError:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return DeccafError(f"{path}: the disk is full; nothing was written")
    return ConfigError(f"{path}: cannot be written: {error.strerror or error}")


@contextmanager
def about(path: str | Path) -> Iterator[None]:
    """Errors about data name the file that it came from."""
    name = shown(path)
    try:
        yield
    except DataError as error:
        if str(error).startswith(name):
            raise
        raise DataError(f"{name}: {error}") from error


def plain_types(table: pa.Table, name: str) -> pa.Table:
    """Turn decimals into floats and refuse nested columns other than lists of numbers (vectors)."""
    for position, field in enumerate(table.schema):
        column = table.column(position)
        unknown = pa.types.is_boolean(field.type) and column.null_count
        if pa.types.is_decimal(field.type) or unknown:
            table = table.set_column(position, field.name, _as_floats(column))
        elif _is_vector(field.type):
            table = table.set_column(position, field.name, column.cast(pa.large_list(pa.float64())))
        elif pa.types.is_nested(field.type) or pa.types.is_binary(field.type):
            raise DataError(
                f"{name}: column {field.name!r}: holds {field.type}; use numbers, text in UTF-8, or lists of "
                "numbers"
            )
    return table


def _is_vector(kind: pa.DataType) -> bool:
    listed = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return bool(listed and (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)))


def _as_floats(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return (
        column.cast(pa.int8()).cast(pa.float64())
        if pa.types.is_boolean(column.type)
        else column.cast(pa.float64())
    )


def _read(source: Source, text: Collection[str], category: Collection[str]) -> pa.Table:
    """One file, with its names as text."""
    try:
        if source.kind == "csv":
            table = read_csv(source, text, category)
        elif source.kind == "excel":
            table = read_excel(source, text, category)
        else:
            _check_parquet(source)
            with pa.parquet.ParquetFile(source.path) as parquet:
                table = PandasIndex.of(parquet.schema_arrow).settled(parquet.read())
        return _named(table, source, text)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _unreadable(source, error) from error


def _unreadable(source: Source, error: BaseException) -> DataError:
    said = str(error).strip().split("\n", 1)[0][:300]
    if source.kind == "csv" and "UTF8" in said:
        return not_utf8(source)
    return DataError(f"{source.shown}: cannot be read: {said}")


def _named(table: pa.Table, source: Source, text: Collection[str]) -> pa.Table:
    """Names as text, everything else as numbers or text; columns that folders name stand last."""
    for key, value in source.partition.items():
        if key not in table.column_names:
            table = table.append_column(key, pa.array([value] * table.num_rows, pa.string()))
    with about(source.shown):
        for position, name in enumerate(table.column_names):
            if name in text:
                table = table.set_column(position, name, as_text(table.column(position), name))
        return plain_types(table, source.shown)


def _together(parts: Sequence[Source], text: Collection[str], category: Collection[str]) -> pa.Table:
    """All files as one table; they have the same columns."""
    tables = [_read(part, text, category) for part in parts]
    _check_alike({part.shown: table.column_names for part, table in zip(parts, tables, strict=True)})
    try:
        whole = pa.concat_tables(tables, promote_options="permissive") if len(tables) > 1 else tables[0]
    except pa.ArrowException as error:
        raise DataError(f"{parts[0].path.parent}: the files hold different kinds: {error}") from error
    return _with_numbered_folders(whole, parts, {*text, *category})


def _check_alike(names: Mapping[str, Sequence[str]]) -> None:
    (first, known), *others = names.items()
    for other, found in others:
        odd = sorted(set(known) ^ set(found))
        if odd:
            here, there = (first, other) if odd[0] in known else (other, first)
            raise DataError(
                f"{here} has a column {odd[0]!r} that {there} has not; files that are read together "
                "have the same columns"
            )


def _with_numbered_folders(table: pa.Table, parts: Sequence[Source], names: Collection[str]) -> pa.Table:
    """`month=3` is a number where all folders say numbers, and it is no name."""
    for key in parts[0].partition:
        if key not in names and all(part.partition[key].isdecimal() for part in parts):
            place = table.schema.get_field_index(key)
            table = table.set_column(place, key, table.column(place).cast(pa.int64()))
    return table


def _parquet_chunks(
    parts: Sequence[Source], rows: int, columns: Collection[str] | None, text: Collection[str]
) -> Iterator[pa.Table]:
    for part in parts:
        try:
            _check_parquet(part)
        except (pa.ArrowException, OSError) as error:
            raise _unreadable(part, error) from error
    schemas = {part.shown: pa.parquet.read_schema(part.path) for part in parts}
    _check_alike({name: PandasIndex.of(schema).names(schema.names) for name, schema in schemas.items()})
    for part in parts:
        schema, first_row = schemas[part.shown], 0
        index = PandasIndex.of(schema)
        names = [name for name in schema.names if name not in index.unnamed]
        wanted = names if columns is None else [name for name in names if name in set(columns)]
        if columns is not None and index.name not in columns:
            index = PandasIndex()
        try:
            with pa.parquet.ParquetFile(part.path, buffer_size=_BUFFER, pre_buffer=False) as parquet:
                for batch in parquet.iter_batches(batch_size=rows, columns=wanted):
                    table = index.settled(pa.Table.from_batches([batch]), first_row)
                    first_row += batch.num_rows
                    yield _with_numbered_folders(_named(table, part, text), parts, text)
        except (pa.ArrowException, OSError) as error:
            raise _unreadable(part, error) from error


def _parquet_texts(parts: Sequence[Source], name: str | None) -> pa.ChunkedArray | None:
    """A column of text from all files, or None where it is none."""
    found = []
    for part in parts:
        try:
            schema = pa.parquet.read_schema(part.path)
            place = schema.get_field_index(name or "")
            if place < 0 or not (
                pa.types.is_string(schema.types[place]) or pa.types.is_large_string(schema.types[place])
            ):
                return None
            found.append(
                pa.parquet.read_table(part.path, columns=[name], partitioning=None)
                .column(0)
                .cast(pa.string())
            )
        except (pa.ArrowException, OSError) as error:
            raise _unreadable(part, error) from error
    return pa.chunked_array([chunk for column in found for chunk in column.chunks], pa.string())


def _format_of(column: pa.ChunkedArray | None, name: str | None) -> str | None:
    """The format of times that are text."""
    if column is None or not pa.types.is_string(column.type):
        return None
    return parse_times(pd.Series(column.to_pandas(), name=name)).format


def _check_parquet(source: Source) -> None:
    with source.path.open("rb") as file:
        head = file.read(4)
        file.seek(0, os.SEEK_END)
        size = file.tell()
        file.seek(-min(size, 4), os.SEEK_END)
        if size < 12 or head != b"PAR1" or file.read(4) != b"PAR1":
            raise DataError(f"{source.shown}: is not a parquet file, or a truncated one")
    with pa.parquet.ParquetFile(source.path) as parquet:
        check_width(parquet.metadata.num_columns, source.shown)  # before the schema, slow when very wide
        check_header(parquet.schema_arrow.names, source.shown)


def _to_pandas(table: pa.Table) -> pd.DataFrame:
    # Index metadata that pandas wrote is dropped, so that an index named case_id is an ordinary column.
    frame: pd.DataFrame = table.replace_schema_metadata(None).to_pandas(date_as_object=False)
    return frame


def same_file(one: str | Path, other: str | Path) -> bool:
    """Whether two paths lead to one file, or two addresses to one table."""
    if address_of(one) is not None or address_of(other) is not None:
        return address_of(one) == address_of(other)
    one, other = Path(one), Path(other)
    return one == other or (one.exists() and other.exists() and one.samefile(other))
