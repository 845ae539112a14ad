"""Signs and marks that people put on numbers, and spellings that differ in case alone: taken off, or said."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from deccaf.errors import warn

_BLANKS = "\u00a0\u202f'\u2019"
"""What stands between thousands in some countries, and nowhere else."""
_CURRENCY = "[€$£¥]|EUR|USD|GBP|CHF|JPY|CNY|INR|BRL|CAD|AUD|SEK|NOK|DKK|PLN|CZK"
_SIGNED = rf"^[+-]?({_CURRENCY})?\s?([+-]?\d[\d.,{_BLANKS}]*?)\s?(%|{_CURRENCY})?$"
_GROUPED = rf"^[+-]?[1-9]\d{{0,2}}([{_BLANKS}]\d{{3}})+([.,]\d+)?$"
_NUMBER = rf"(?:\d{{1,3}}(?:[.,{_BLANKS}]\d{{3}})+|\d+)(?:[.,]\d+)?"
_MARKED = rf"^[+(-]?(?:{_CURRENCY})?\s?[+-]?{_NUMBER}\s?(?:%|{_CURRENCY})?[)-]?$"
_DATE = r"^\d{1,4}[./-]\d{1,2}[./-]\d{1,4}\b"


def without_signs(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Numbers with one sign throughout (%, or of a currency), or with marks between thousands, without it."""
    known = column.drop_null()
    found = re.match(_SIGNED, known[0].as_py()) if len(known) else None
    if found is None:
        return column
    sign, before, after = found[1] or found[3], re.escape(found[1] or ""), re.escape(found[3] or "")
    pattern = rf"^([+-]?)({before})\s?([+-]?\d[\d.,{_BLANKS}]*?)\s?({after})$"
    grouped = pc.match_substring_regex(known, f"[{_BLANKS}]")
    if not (sign or pc.any(grouped).as_py()) or not pc.all(pc.match_substring_regex(known, pattern)).as_py():
        return column
    plain = pc.replace_substring_regex(column, pattern, r"\1\3")
    right = pc.match_substring_regex(plain.drop_null(), _GROUPED)
    if not pc.all(pc.or_(pc.invert(grouped), right)).as_py():
        return column
    if sign:
        first, number = known[0].as_py(), plain.drop_null()[0].as_py()
        warn(f"column {name!r}: {sign!r} is taken off its numbers: {first!r} is {number}")
    return pc.replace_substring_regex(plain, f"[{_BLANKS}]", "")


def mostly_marked(present: pd.Series) -> bool:
    """Whether at least half of some texts are numbers, with signs and marks that no reader could take off."""
    return 2 * int(present.astype(str).str.match(_MARKED).sum()) >= len(present) > 0


def mostly_dates(present: pd.Series) -> bool:
    """Whether at least half of some texts are days, in digits."""
    return 2 * int(present.astype(str).str.strip().str.match(_DATE).sum()) >= len(present) > 0


def note_two_spellings(names: Iterable[str], column: str) -> None:
    """Say where names differ only in case or in blanks around them; they are taken as different."""
    known: dict[str, str] = {}
    for name in names:
        other = known.setdefault(name.strip().casefold(), name)
        if other != name:
            warn(f"column {column!r}: {other!r} and {name!r} count as two; if they are one, spell them alike")
            return
