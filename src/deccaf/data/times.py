"""Times: numbers or dates, which have an order; text is read as dates only where there is one way to.

ISO dates and numbers need nothing said. `31/03/2024` is day-first without a doubt if every value of the
column can only be so; where two readings are possible, or none, the user says `time_format`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from deccaf.errors import ConfigError, DataError, show

_REMEDY = 'use ISO dates or numbers, or say how to read it: [columns] time_format = "%d/%m/%Y", say'
_ISO = r"\d{4}-\d{2}(-\d{2}.*)?"
_DAY_TEXT = re.compile(r"(\d{1,4})([-/.])(\d{1,2})\2(\d{1,4})(.*)", re.ASCII)
_MONTH_NAMES = [
    f"{date}" for d in ("%b", "%B") for date in (f"%d {d} %Y", f"%d-{d}-%Y", f"{d} %d, %Y", f"{d} %d %Y")
]
_CLOCKS = (
    "",
    " %H:%M",
    " %H:%M:%S",
    " %H:%M:%S.%f",
    "T%H:%M",
    "T%H:%M:%S",
    "T%H:%M:%S.%f",
    " %I:%M %p",
    " %I:%M:%S %p",
)


@dataclass(frozen=True, eq=False)
class Times:
    """A column of times, and the format that its text had (None: ISO dates, or no text at all)."""

    values: pd.Series
    format: str | None = None


def parse_times(values: pd.Series, time_format: str | None = None, like: str | None = None) -> Times:
    """Numbers and dates as they are, text as dates; what has no order, or two readings, is a `DataError`.

    With `time_format` text is read so; ISO dates in full are taken beside it, for they have one reading.
    `like` is the format of other times of the same history, and decides between two readings.
    """
    if isinstance(values.dtype, pd.CategoricalDtype):
        values = values.astype(values.dtype.categories.dtype)
    if isinstance(values.dtype, pd.PeriodDtype):
        values = values.dt.to_timestamp()
    if _has_order(values.dtype) and not (time_format and pd.api.types.is_integer_dtype(values.dtype)):
        _refuse_packed_dates(values)
        return Times(values)
    if pd.api.types.is_bool_dtype(values.dtype):
        raise DataError(f"column {values.name!r}: holds True and False, which are no times; {_REMEDY}")
    known = values.dropna()
    if not len(known):
        return Times(values)
    text = known.astype("str").str.strip()
    each = pd.Series(text.unique(), dtype="str", name=values.name)
    parsed, found = _parse(each, time_format, like)
    read = pd.Series(parsed.array, index=pd.Index(each))
    times = pd.Series(read.reindex(pd.Index(text)).array, known.index, parsed.dtype, name=values.name)
    return Times(times if len(known) == len(values) else times.reindex(values.index), found)


def parse_time(text: str, times: pd.Series, time_format: str | None, option: str) -> Any:
    """One time as a user gives it to be compared with a column: by the column's own format, or ISO."""
    if pd.api.types.is_numeric_dtype(times.dtype):
        try:
            return float(text)
        except ValueError as error:
            raise ConfigError(f"{option} {text}: the times are numbers, up to {times.max()}") from error
    found = _one(text, time_format, option)
    if not isinstance(found, pd.Timestamp):
        raise ConfigError(f"{option} {text}: the times are dates, up to {times.max()}")
    zone = times.dt.tz
    if zone is None:
        return found if found.tz is None else found.tz_convert("UTC").tz_localize(None)
    return found.tz_localize(zone) if found.tz is None else found.tz_convert(zone)


def _one(text: str, time_format: str | None, option: str) -> Any:
    """By the format itself, or by one that names days in the same order."""
    given = pd.Series([text], dtype="str", name=option)
    refused = None
    for stated in dict.fromkeys([time_format, None]):
        try:
            return parse_times(given, stated, time_format).values.iloc[0]
        except DataError as error:
            refused = refused or error
    raise ConfigError(f"{option} {text}: {str(refused).partition(': ')[2]}") from refused


def _parse(each: pd.Series, time_format: str | None, like: str | None) -> tuple[pd.Series, str | None]:
    """Different texts as dates (or numbers), and the format."""
    if time_format is not None:
        return _by_format(each, time_format)
    numbers = pd.to_numeric(each, errors="coerce")
    if numbers.notna().all() and np.isfinite(numbers).all():
        _refuse_packed_dates(numbers)
        return numbers, None
    if each.str.fullmatch(_ISO).all():
        return _read(each, "ISO8601"), None
    return _by_look(each, like)


def _by_format(each: pd.Series, time_format: str) -> tuple[pd.Series, str | None]:
    if "%" not in time_format:
        raise ConfigError(f'[columns] time_format: {time_format!r} is no format; write "%d/%m/%Y", say')
    try:
        parsed = pd.to_datetime(each, format=time_format, errors="coerce", utc="%z" in time_format)
    except ValueError as error:
        raise ConfigError(f"[columns] time_format: {time_format!r}: {error}") from error
    if parsed.isna().any() and each.str.fullmatch(_ISO).all():
        return _read(each, "ISO8601"), time_format
    _refuse_unread(each, parsed, f"are not written as time_format {time_format!r} says")
    return parsed, time_format


def _by_look(each: pd.Series, like: str | None) -> tuple[pd.Series, str | None]:
    """The one format that reads all; two that differ, or none, are refused."""
    formats = sorted(_formats_like(each.iloc[0]), key=lambda form: _date_part(form) != _date_part(like))
    read = {form: pd.to_datetime(each, format=form, errors="coerce") for form in formats}
    whole = [form for form in formats if read[form].notna().all()]
    if not whole:
        most = max(formats, key=lambda form: read[form].notna().sum(), default=None)
        parsed = pd.Series(pd.NaT, each.index) if most is None else read[most]
        like = "" if parsed.isna().all() else f" like {each[parsed.notna()].iloc[0]!r}"
        _refuse_unread(each, parsed, f"are no dates{like}; times need an order")
    first = whole[0]
    for other in whole[1:] if _date_part(first) != _date_part(like) else ():
        differ = (read[first] != read[other]).to_numpy()
        if differ.any():
            row = int(differ.argmax())
            raise DataError(
                f"column {each.name!r}: {show(each.iloc[row])} has two readings, "
                f"{read[first].iloc[row]:%-d %B %Y} and {read[other].iloc[row]:%-d %B %Y}; say which: "
                f'[columns] time_format = "{first}" or "{other}"'
            )
    alike = {_date_part(form) for form in whole} - {_date_part(like)}
    return read[first], first if len(alike) < 2 else None


def _date_part(form: str | None) -> str | None:
    return None if form is None else re.split(r"[ T]%[HI]", form)[0]


def _formats_like(text: str) -> list[str]:
    """All formats that a date might have been written in, going by one of them."""
    found = _DAY_TEXT.fullmatch(text)
    if found is None:
        dates = _MONTH_NAMES
    else:
        mark = found[2]
        if len(found[1]) == 4:
            dates = [f"%Y{mark}%m{mark}%d"]
        elif len(found[4]) == 4:
            dates = [f"%d{mark}%m{mark}%Y", f"%m{mark}%d{mark}%Y"]
        else:
            dates = [f"%d{mark}%m{mark}%y", f"%m{mark}%d{mark}%y", f"%y{mark}%m{mark}%d"]
    return [
        date + clock
        for date in dates
        for clock in _CLOCKS
        if not pd.isna(pd.to_datetime(text, format=date + clock, errors="coerce"))
        or (found is not None and _clock_fits(found[5], clock))
    ]


def _clock_fits(rest: str, clock: str) -> bool:
    """Whether what follows a date is a time of day written so."""
    if not clock or not rest:
        return clock == rest
    return not pd.isna(pd.to_datetime(f"2000-01-01{rest}", format=f"%Y-%m-%d{clock}", errors="coerce"))


def _read(each: pd.Series, form: str) -> pd.Series:
    zoned = each.str.contains(r"T?\d\d:\d\d.*(?:Z|[+-]\d\d:?\d\d)$", regex=True).any()
    parsed = pd.to_datetime(each, format=form, errors="coerce", utc=bool(zoned))
    _refuse_unread(each, parsed, "are no dates of the calendar")
    return parsed


def _refuse_unread(each: pd.Series, parsed: pd.Series, said: str) -> None:
    odd = parsed.isna().to_numpy()
    if odd.any():
        first = each.iloc[int(odd.argmax())]
        raise DataError(
            f"column {each.name!r}: {odd.sum()} of {len(each)} different values {said}, first: "
            f"{show(first)}; {_REMEDY}"
        )


def _refuse_packed_dates(values: pd.Series) -> None:
    """31032024 is a number, but its order is not that of the days."""
    if not pd.api.types.is_numeric_dtype(values.dtype) or not len(values):
        return
    numbers = values.to_numpy(np.float64, na_value=np.nan)
    if not np.nanmin(numbers) >= 1_011_900 or not np.nanmax(numbers) <= 31_122_100:
        return
    whole = pd.Series(np.unique(numbers[np.isfinite(numbers)]))
    text = whole.astype("int64").astype("str").str.zfill(8)
    if (whole % 1 != 0).any() or not text.str[4:].astype("int64").between(1900, 2100).all():
        return
    if any(pd.to_datetime(text, format=form, errors="coerce").notna().all() for form in ("%d%m%Y", "%m%d%Y")):
        raise DataError(
            f"column {values.name!r}: {show(text.iloc[0])} looks like a day packed into a number, which "
            'sorts by the day of the month; say how to read it: [columns] time_format = "%d%m%Y" or "%m%d%Y"'
        )


def _has_order(dtype: Any) -> bool:
    types = pd.api.types
    if types.is_bool_dtype(dtype):
        return False
    return bool(
        types.is_numeric_dtype(dtype)
        or types.is_datetime64_any_dtype(dtype)
        or types.is_timedelta64_dtype(dtype)
    )
