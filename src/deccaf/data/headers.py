"""The names of columns: few enough, each there once, and spelled as they are asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from deccaf.errors import DataError

MAX_COLUMNS = 10_000


def check_width(columns: int, shown: str) -> None:
    """Refuse a table with more columns than anyone means to have."""
    if columns > MAX_COLUMNS:
        raise DataError(f"{shown}: {columns:,} columns; at most {MAX_COLUMNS:,} can be read")


def check_header(names: Sequence[str], shown: str) -> None:
    """Refuse a header that no later message could talk about: too wide, unnamed or ambiguous."""
    check_width(len(names), shown)
    unnamed = [k for k, name in enumerate(names, 1) if not name.strip()]
    if unnamed:
        raise DataError(
            f"{shown}: {len(unnamed)} column(s) without a name, first: column number {unnamed[0]}; the "
            "header is the first line: name every column, and take titles, or an index that pandas wrote, out"
        )
    seen: set[str] = set()
    repeated = [name for name in names if name in seen or seen.add(name)]  # type: ignore[func-returns-value]
    if repeated:
        raise DataError(f"{shown}: {len(repeated)} column name(s) stand twice, first: {repeated[0]!r}")


def check_spelling(names: Iterable[str], wanted: Mapping[str, str | None]) -> None:
    """Refuse a column that is one of the `wanted` but for case or blanks: it would be taken for another.

    `wanted` gives for each name the key of `[columns]` that could name the column instead, if there is one.
    """
    exact = list(names)
    loose = {str(name).strip().casefold(): name for name in exact}
    for name, key in wanted.items():
        other = loose.get(name.strip().casefold())
        if name not in exact and other is not None:
            remedy = "rename it" if key is None else f"rename it, or say [columns] {key} = {other!r}"
            raise DataError(f"column {other!r}: did you mean {name!r}? Names are taken exactly: {remedy}")
