"""Workbooks: one sheet of one table, its first row the header."""

from __future__ import annotations

import datetime
import re
import warnings
from collections.abc import Collection, Iterable
from typing import Any
from zipfile import BadZipFile

import pyarrow as pa

from deccaf.data.csv_files import comma_numbers, without_blanks
from deccaf.data.headers import check_header
from deccaf.data.names import MISSING, one_as_text
from deccaf.data.sources import Source
from deccaf.errors import ConfigError, DataError

_DIGITS = 15
"""So many digits of a number Excel keeps."""


def read_excel(source: Source, text: Collection[str], category: Collection[str]) -> pa.Table:
    """The table of a workbook; its columns `text` and `category` are text as the sheet shows it."""
    try:
        import openpyxl
    except ImportError as error:
        raise ConfigError(
            f"{source.shown}: reading Excel needs openpyxl; install the extra: pip install 'deccaf[excel]', "
            "or save the sheet as CSV"
        ) from error
    # warnings are about styles and forms, which no table needs
    with warnings.catch_warnings(action="ignore"), source.path.open("rb") as file:
        try:
            book = openpyxl.load_workbook(file, read_only=True)
        except (BadZipFile, KeyError, ValueError, OSError, EOFError) as error:
            raise DataError(f"{source.shown}: is not an Excel workbook (.xlsx), or a damaged one") from error
        sheet, rows = _sheet(book, source)
        results = None
        if any(cell is not None and cell.data_type == "f" for row in rows for cell in row):
            results = _filled(openpyxl.load_workbook(file, read_only=True, data_only=True)[sheet])
    return _table(source, rows, results, text, category)


def _sheet(book: Any, source: Source) -> tuple[str, list[tuple[Any, ...]]]:
    """The one sheet that holds something, or the one that was asked for."""
    if source.sheet is not None and source.sheet not in book.sheetnames:
        raise DataError(f"{source.shown}: has no sheet {source.sheet!r}; it has {', '.join(book.sheetnames)}")
    names = [source.sheet] if source.sheet is not None else list(book.sheetnames)
    found = [(name, rows) for name in names if (rows := _filled(book[name]))]
    if not found:
        raise DataError(f"{source.shown}: no sheet holds anything")
    if len(found) > 1:
        several = ", ".join(repr(name) for name, _ in found)
        raise DataError(
            f"{source.shown}: {len(found)} sheets hold something: {several}; say which: "
            f"{source.path.name}#{found[0][0]}"
        )
    return found[0]


def _filled(sheet: Any) -> list[tuple[Any, ...]]:
    """The rows of a sheet up to the last that holds something; None for cells that do not."""
    if hasattr(sheet, "reset_dimensions"):
        sheet.reset_dimensions()  # what the file says of its size need not be true
    rows = [tuple(cell if cell.value is not None else None for cell in row) for row in sheet.iter_rows()]
    while rows and not any(cell is not None for cell in rows[-1]):
        rows.pop()
    return rows


def _table(
    source: Source,
    rows: list[tuple[Any, ...]],
    results: list[tuple[Any, ...]] | None,
    text: Collection[str],
    category: Collection[str],
) -> pa.Table:
    width = max(max((k for k, cell in enumerate(row) if cell is not None), default=-1) for row in rows) + 1
    header = [*rows[0], *[None] * width][:width]
    names = ["" if cell is None else one_as_text(cell.value) for cell in header]
    columns = {}
    for place, name in enumerate(names):
        cells = [row[place] if place < len(row) else None for row in rows[1:]]
        if results is not None:
            cells = [_result(cell, results, k, place, source) for k, cell in enumerate(cells, 1)]
        _refuse_broken(cells, source, name)
        if name in text or name in category:
            shown = [_as_shown(cell, source, name) for cell in cells]
            empty = ("",) if name in text else MISSING
            columns[place] = pa.array([None if value in empty else value for value in shown], pa.string())
        else:
            columns[place] = _own_type(cells)
    table = without_blanks(pa.Table.from_arrays(list(columns.values()), names=names), source.shown)
    check_header(table.column_names, source.shown)
    return comma_numbers(table, [*text, *category], source.shown)[0]


def _result(cell: Any, results: list[tuple[Any, ...]], row: int, place: int, source: Source) -> Any:
    """What a formula came to when the workbook was saved."""
    if cell is None or cell.data_type != "f":
        return cell
    stored = results[row][place] if row < len(results) and place < len(results[row]) else None
    if stored is None:
        raise DataError(
            f"{source.shown}: cell {cell.coordinate} holds the formula {str(cell.value)!r:.60} without its "
            "result; open and save the workbook in Excel, or keep values only"
        )
    return stored


def _refuse_broken(cells: Iterable[Any], source: Source, name: str) -> None:
    for cell in cells:
        if cell is not None and cell.data_type == "e" and cell.value != "#N/A":
            raise DataError(
                f"{source.shown}: column {name!r}: cell {cell.coordinate} is an error, {cell.value}"
            )


def _as_shown(cell: Any, source: Source, name: str) -> str | None:
    """The text of a cell; a number with leading zeros in its format has them."""
    if cell is None or cell.data_type == "e":
        return None
    value = cell.value
    if isinstance(value, int | float) and not isinstance(value, bool):
        if abs(value) >= 10**_DIGITS:
            raise DataError(
                f"{source.shown}: column {name!r}: cell {cell.coordinate} is a number of more than "
                f"{_DIGITS} digits, of which Excel loses some; make the column text and enter them again"
            )
        if re.fullmatch("0+", cell.number_format or "") and float(value).is_integer():
            return str(int(value)).zfill(len(cell.number_format))
    return one_as_text(value)


def _own_type(cells: list[Any]) -> pa.Array:
    values = [None if cell is None or cell.data_type == "e" else cell.value for cell in cells]
    values = [None if isinstance(value, str) and value in MISSING else value for value in values]
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float} and float in kinds:
        return pa.array(values, pa.float64())
    if kinds <= {datetime.datetime, datetime.date}:
        return pa.array(values, pa.timestamp("us")) if kinds else pa.nulls(len(values))
    if kinds in ({int}, {bool}, {str}):
        return pa.array(values)
    return pa.array([None if value is None else one_as_text(value) for value in values], pa.string())
