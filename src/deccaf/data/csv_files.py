"""Text files of tables: commas, semicolons or tabs, decimal points or commas, wherever that is certain."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Collection, Sequence
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from deccaf.data.headers import check_header
from deccaf.data.marks import without_signs
from deccaf.data.names import MISSING
from deccaf.data.sources import Source
from deccaf.errors import DataError, warn

_START_BYTES = 8 << 20
_LINES = 1_000
"""So many tell how columns are separated, where the header leaves a doubt."""
_MARKS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_DECIMAL_COMMA = r"^[+-]?(\d+|\d{1,3}(\.\d{3})+)(,\d+)?$"
_THOUSANDS_COMMA = r"^[+-]?(\d+|[1-9]\d{0,2}(,\d{3})+)(\.\d+)?$"
_THOUSANDS_POINT = r"^[+-]?([1-9]\d{0,2}(\.\d{3})+|\d+)$"


def read_csv(source: Source, text: Collection[str], category: Collection[str]) -> pa.Table:
    """A table whose columns `text` and `category` are text, and whose other columns find their own types.

    Of `text` only the empty cell is missing; elsewhere `NA` and its like are.
    """
    start = _start(source)
    skipped, mark = _separator(start, source.shown)
    names = _rows(start, mark, skipped + 1)[skipped]
    check_header([name for name in names if name.strip()] or names, source.shown)
    fixed = dict.fromkeys([*text, *category], pa.string())
    try:
        table = _typed(source, names, mark, skipped, fixed)
    except pa.ArrowInvalid as error:
        if "Expected" not in str(error):
            raise
        raise _uneven(source, mark, len(names), skipped) from error
    table = without_blanks(_without_missing(table, text), source.shown)
    check_header(table.column_names, source.shown)
    table, commas = comma_numbers(table, fixed, source.shown)
    if commas or mark == ";":
        _check_points(table, source, mark, skipped)
    return table


def _typed(
    source: Source, names: Sequence[str], mark: str, skipped: int, fixed: dict[str, pa.DataType]
) -> pa.Table:
    try:
        return _arrow(source, mark, skipped, fixed)
    except pa.ArrowInvalid as error:
        if "conversion error" not in str(error) or "UTF8" in str(error):
            raise
    # Arrow infers a column's type from the first block. Where a later block disagrees, read everything
    # as text and let each column find its own type; a truly mixed one stays text and is named later.
    table = _arrow(source, mark, skipped, dict.fromkeys(names, pa.string()))
    table = _without_missing(table, [name for name in names if name in fixed])
    for position, name in enumerate(names):
        if name not in fixed:
            table = table.set_column(position, name, _own_type(table.column(position)))
    return table


def _arrow(
    source: Source, mark: str, skipped: int, types: dict[str, pa.DataType], only: list[str] | None = None
) -> pa.Table:
    read = pa.csv.ReadOptions(block_size=16 << 20, skip_rows=skipped)
    parse = pa.csv.ParseOptions(delimiter=mark, newlines_in_values=True)
    convert = pa.csv.ConvertOptions(null_values=list(MISSING), column_types=types, include_columns=only)
    if source.packed is None:
        table = pa.csv.read_csv(source.path, read, parse, convert)
    else:
        with pa.input_stream(source.path, compression=source.packed) as stream:
            table = pa.csv.read_csv(stream, read, parse, convert)
    binary = [field.name for field in table.schema if pa.types.is_binary(field.type)]
    if binary:
        raise pa.ArrowInvalid(f"column {binary[0]!r}: invalid UTF8")
    return table


def _own_type(column: pa.ChunkedArray) -> pa.ChunkedArray:
    trimmed = pc.utf8_trim_whitespace(column)
    for kind in (pa.int64(), pa.float64(), pa.bool_(), pa.timestamp("us")):
        try:
            return trimmed.cast(kind)
        except pa.ArrowInvalid:
            continue
    return column


def _without_missing(table: pa.Table, names: Collection[str]) -> pa.Table:
    """Text that stands for an empty cell becomes one; in columns of names only the empty text."""
    for position, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            empty = pa.array([""] if field.name in names else MISSING)
            column = table.column(position)
            found = pc.is_in(column, value_set=empty)
            if pc.any(found).as_py():
                table = table.set_column(position, field.name, pc.if_else(found, None, column))
    return table


def without_blanks(table: pa.Table, shown: str) -> pa.Table:
    """A table without rows that are empty throughout (said), and without empty columns that have no name."""
    filled = [
        place
        for place, name in enumerate(table.column_names)
        if name.strip() or table.column(place).null_count < table.num_rows
    ]
    table = table.select(filled) if len(filled) < table.num_columns else table
    if not table.num_columns or not table.column(0).null_count:
        return table
    blank = pc.is_null(table.column(0))
    for column in table.columns[1:]:
        blank = pc.and_(blank, pc.is_null(column))
    count = pc.sum(blank).as_py()
    if count:
        warn(f"{shown}: {count:,} empty row(s) are left out")
    return table.filter(pc.invert(blank)) if count else table


def _start(source: Source) -> str:
    """The beginning of the file as text."""
    with pa.input_stream(source.path, compression=source.packed) as stream:
        start: bytes = stream.read(_START_BYTES)
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise DataError(f"{source.shown}: is text in UTF-16; save it as UTF-8" + _convert("UTF-16"))
    if b"\x00" in start:
        raise DataError(f"{source.shown}: is not a text file in UTF-8 (it holds NUL bytes)")
    start = start.removeprefix(codecs.BOM_UTF8)
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(start)
    except UnicodeDecodeError as error:
        raise not_utf8(source) from error


def not_utf8(source: Source) -> DataError:
    """Where a file stops being UTF-8, and what to do."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    line = 1
    with pa.input_stream(source.path, compression=source.packed) as stream:
        while block := stream.read(1 << 20):
            try:
                line += decoder.decode(block).count("\n")
            except UnicodeDecodeError as error:
                line += bytes(error.object[: error.start]).count(b"\n")
                byte = error.object[error.start]
                return DataError(
                    f"{source.shown}: is not text in UTF-8: byte 0x{byte:02x} in line {line:,}; "
                    "save it as UTF-8" + _convert("WINDOWS-1252")
                )
    return DataError(f"{source.shown}: is not text in UTF-8; save it as UTF-8" + _convert("WINDOWS-1252"))


def _uneven(source: Source, mark: str, width: int, skipped: int) -> DataError:
    """The first row that has more or fewer columns than the header."""
    with pa.input_stream(source.path, compression=source.packed) as stream:
        rows = csv.reader(io.TextIOWrapper(stream, "utf-8", newline=""), delimiter=mark)
        for row in islice(rows, skipped + 1, None):
            if row and len(row) != width:
                said = f"{len(row)} column(s) where the header has {width}: {mark.join(row)!r:.80}"
                return DataError(f"{source.shown}: line {rows.line_num:,} has {said}; correct that line")
    return DataError(
        f"{source.shown}: some rows have more or fewer columns than the header, which has {width}"
    )


def _convert(encoding: str) -> str:
    return f' ("CSV UTF-8" in Excel, or: iconv -f {encoding} -t UTF-8)'


def _rows(start: str, mark: str, count: int) -> list[list[str]]:
    return list(islice(csv.reader(io.StringIO(start, newline=""), delimiter=mark), count)) or [[]]


def _separator(start: str, shown: str) -> tuple[int, str]:
    """How many lines stand above the header, and what separates columns; a doubt is a `DataError`."""
    said = re.match(r"\"?sep=(.)\"?\r?\n?", start)
    if said is not None:  # a line for Excel
        return 1, said[1]
    try:
        header = re.split(r"\r|\n", start, maxsplit=1)[0]
        likely = [mark for mark in _MARKS if mark in header and len(_rows(start, mark, 1)[0]) > 1]
        if len(likely) <= 1:
            return 0, likely[0] if likely else ","
        even = [mark for mark in likely if _is_even(start, mark)]
    except csv.Error as error:
        raise DataError(f"{shown}: the first line is no header: {error}") from error
    if len(even) == 1:
        return 0, even[0]
    ways = [f"with {_MARKS[mark]} {_rows(start, mark, 1)[0]!r:.200}" for mark in even or likely]
    raise DataError(
        f"{shown}: columns may be separated in two ways, {' or '.join(ways[:2])}; use one mark only, "
        "or save it as parquet"
    )


def _is_even(start: str, mark: str) -> bool:
    """Whether all rows have as many columns as the header; the last one that was read may be cut off."""
    rows = [row for row in _rows(start, mark, _LINES) if row]
    if len(rows) > 1 and len(rows) < _LINES and len(start) >= _START_BYTES // 4:
        rows = rows[:-1]
    return all(len(row) == len(rows[0]) for row in rows)


def comma_numbers(table: pa.Table, fixed: Collection[str], shown: str) -> tuple[pa.Table, bool]:
    """Columns of text that are numbers with commas become numbers; two readings are a `DataError`.

    Whether some have decimal commas beyond doubt comes with it.
    """
    free = [
        field.name for field in table.schema if pa.types.is_string(field.type) and field.name not in fixed
    ]
    for name in list(free):
        given = table[name]
        plain = without_signs(given, name)
        if plain is given or (_has(plain, ".") and _all_match(plain, _THOUSANDS_POINT)):
            continue  # 1.234 € may be a thousand: left as text, which is refused as a feature
        if not _has(plain, ","):
            plain = _own_type(plain)
            free.remove(name)
        table = _set(table, name, plain)
    free = [name for name in free if _has(table[name], ",")]  # text of digits alone is a name: 00127
    decimal = {name for name in free if _all_match(table[name], _DECIMAL_COMMA)}
    thousands = {name for name in free if _all_match(table[name], _THOUSANDS_COMMA)}
    doubtful, commas = sorted(decimal & thousands), bool(decimal - thousands)
    if doubtful and commas == bool(thousands - decimal):
        raise _two_readings(table[doubtful[0]], ",", doubtful[0], shown)
    for name in decimal | thousands:
        as_decimal = commas if name in doubtful else name in decimal
        plain = pc.replace_substring(table[name], "." if as_decimal else ",", "")
        table = _set(table, name, _own_type(pc.replace_substring(plain, ",", ".")))
    return table, commas


def _set(table: pa.Table, name: str, column: pa.ChunkedArray) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), name, column)


def _has(column: pa.ChunkedArray, mark: str) -> bool:
    return bool(pc.any(pc.match_substring(column.drop_null(), mark)).as_py())


def _all_match(column: pa.ChunkedArray, pattern: str) -> bool:
    known = column.drop_null()
    if not len(known) or re.match(pattern, known[0].as_py()) is None:
        return False
    return bool(pc.all(pc.match_substring_regex(known, pattern)).as_py())


def _check_points(table: pa.Table, source: Source, mark: str, skipped: int) -> None:
    """`1.234` beside decimal commas (or semicolons) may be a thousand: refused where all of a column may."""
    doubtful = [
        field.name
        for field in table.schema
        if pa.types.is_floating(field.type) and _may_be_thousands(table[field.name].drop_null())
    ]
    if not doubtful:
        return
    written = _without_missing(
        _arrow(source, mark, skipped, dict.fromkeys(doubtful, pa.string()), doubtful), ()
    )
    for name in doubtful:
        column = written[name].drop_null()
        if _all_match(column, _THOUSANDS_POINT):
            raise _two_readings(column, ".", name, source.shown)


def _may_be_thousands(values: pa.ChunkedArray) -> bool:
    """Whether no number has more than three decimals, and none but 0 is below 1."""
    size = pc.abs(values)
    milli = pc.multiply(size, 1000.0)
    short = pc.less(pc.abs(pc.subtract(milli, pc.round(milli))), 1e-6)
    large = pc.or_(pc.greater_equal(size, 1.0), pc.equal(size, 0.0))
    return len(values) > 0 and bool(pc.all(pc.and_(short, large)).as_py())


def _two_readings(column: pa.ChunkedArray, point: str, name: str, shown: str) -> DataError:
    known = column.drop_null()
    first: str = known.filter(pc.match_substring(known, point))[0].as_py()
    small = first.replace(point, ".", 1)
    return DataError(
        f"{shown}: column {name!r}: {first!r} may be {small} or {first.replace(point, '')}; write numbers "
        "with a decimal point and without marks between thousands, or name it under [columns] categorical"
    )
