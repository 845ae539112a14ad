"""The words of a text in any script, and the rule by which a column is text.

A word is a run of letters, digits and their marks, in lower case. Chinese, Japanese, Thai, Lao, Khmer and
Burmese write no spaces between words: there every pair of neighbouring characters counts as a word. Only the
first `LONGEST` characters of a text count.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache

import numpy as np
import pandas as pd

LONGEST = 100_000
LEAST_WORDS = 4
"""Half of the texts of a column have so many words, or it is no column of texts."""
LEAST_CHARACTERS = 8
"""The same for scripts without spaces."""
_LEAST_TEXTS = 10
_LOOKED_AT = 5_000
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_PLAIN = re.compile(r"\w+", re.ASCII)
_LETTER = re.compile(r"[^\W\d_]")


def words(text: str) -> list[str]:
    """The words of a text, in order."""
    text = text[:LONGEST]
    if text.isascii():
        return _PLAIN.findall(text.lower())
    text = unicodedata.normalize("NFKC", text).lower()
    either, unspaced = _patterns()
    return [word for run in either.findall(text) for word in (_pairs(run) if unspaced.match(run) else (run,))]


def reads_as_text(values: pd.Series, most_levels: int) -> bool:
    """Whether a column of strings is text: mostly different from row to row, and of several words each."""
    present = values.dropna()
    distinct = int(present.nunique())
    if distinct < _LEAST_TEXTS or not (2 * distinct > len(present) or distinct > most_levels):
        return False
    places = np.unique(np.linspace(0, len(present) - 1, min(len(present), _LOOKED_AT)).astype(np.int64))
    looked = [_has_several(str(value)) for value in present.iloc[places]]
    return 2 * sum(looked) >= len(looked)


def _has_several(text: str) -> bool:
    start = text[: 100 * LEAST_CHARACTERS]
    pieces = [piece for piece in start.split() if _LETTER.search(piece)]
    if len(pieces) >= LEAST_WORDS:
        return True
    return sum(map(len, _patterns()[1].findall(start))) >= LEAST_CHARACTERS


def _pairs(run: str) -> list[str]:
    return [run[k : k + 2] for k in range(len(run) - 1)] or [run]


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Runs of either kind of script, and runs of scripts without spaces; made when first needed."""
    marks = "".join(
        re.escape(sign) for sign in map(chr, range(0x300, 0x10000)) if unicodedata.category(sign)[0] == "M"
    )
    spaced = f"(?:(?![{_UNSPACED}])[\\w{marks}])+"
    unspaced = f"[{_UNSPACED}]+"
    return re.compile(f"{unspaced}|{spaced}"), re.compile(unspaced)
