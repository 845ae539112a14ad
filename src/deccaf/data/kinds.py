"""What a column of the cases is (a number, a category, a text, a vector), and its values as that kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from deccaf.data.marks import mostly_dates, mostly_marked, note_two_spellings
from deccaf.data.vectors import as_vectors, holds_vectors, width_of
from deccaf.data.words import LONGEST, reads_as_text
from deccaf.errors import DataError, show, warn

MAX_LEVELS = 10_000
SMALLEST_IDENTIFIER = 50
"""A text column with more names than this, and seldom the same one twice, is no category."""

Kind = Literal["number", "category", "text", "vector"]


@dataclass(frozen=True)
class Feature:
    """One column of the cases: a number, a category with its levels, a text, or a vector of some width."""

    name: str
    kind: Kind
    levels: tuple[str, ...] = ()
    width: int = 0
    of: str = ""
    """The machine whose own score it is, which then nobody else sees, and which may be missing."""


def useless(values: pd.Series) -> bool:
    """Whether nothing can be learned from a column as it is; says so."""
    dtype = values.dtype
    if pd.api.types.is_datetime64_any_dtype(dtype) or pd.api.types.is_timedelta64_dtype(dtype):
        _left_out(values, "holds dates; turn it into numbers to have it as a feature")
        return True
    if pd.api.types.is_numeric_dtype(dtype) or pd.api.types.is_bool_dtype(dtype) or holds_vectors(values):
        return False
    if not isinstance(dtype, pd.CategoricalDtype) and reads_as_text(values, MAX_LEVELS):
        return False
    if not isinstance(dtype, pd.CategoricalDtype) and mostly_dates(values.dropna()):
        _left_out(values, "holds dates as text; turn it into numbers to have it as a feature")
        return True
    names, rows = values.nunique(), int(values.notna().sum())
    if names <= MAX_LEVELS and (names <= SMALLEST_IDENTIFIER or names <= rows / 2):
        return False
    if not isinstance(dtype, pd.CategoricalDtype):
        _refuse_mixed(values)  # numbers that were damaged differ in most rows too
    said = f"{names:,} different names in {rows:,} rows, so it looks like an identifier"
    _left_out(values, f"{said}; name it under [columns] text or categorical to keep it")
    return True


def of_the_log(name: str, frame: pd.DataFrame) -> bool:
    """Whether a column says who decided, or what: a copy of the log in the table of cases; says so."""
    if name not in {"expert_id", "decision", "propensity"}:
        return False
    remedy = "name it under [columns] features to keep it"
    _left_out(frame[name], f"it belongs to the decisions and is not known before one; {remedy}")
    return True


def _left_out(values: pd.Series, said: str) -> None:
    warn(f"column {str(values.name)!r} is left out: {said}")


def own_score(values: pd.Series, maker: str) -> Feature:
    """A machine's own score, which is a number."""
    if not pd.api.types.is_numeric_dtype(values.dtype):
        raise DataError(
            f"column {str(values.name)!r}: the score of {maker!r} holds {values.dtype}, but must be a number"
        )
    return Feature(str(values.name), "number", of=maker)


def infer_feature(values: pd.Series, told: Kind | None) -> Feature:
    """What a column is: what somebody `told`, or by its look; a doubt is a `DataError`."""
    name, dtype = str(values.name), values.dtype
    declared_category = told == "category"
    wide = None if declared_category else _infer_wide(values, told)
    if wide is not None:
        return wide
    if not declared_category and (pd.api.types.is_numeric_dtype(dtype) or pd.api.types.is_bool_dtype(dtype)):
        return Feature(name, "number")
    if pd.api.types.is_datetime64_any_dtype(dtype) or pd.api.types.is_timedelta64_dtype(dtype):
        raise DataError(
            f"column {name!r}: holds dates; turn it into numbers, or leave it out of [columns] features"
        )
    if not declared_category and values.isna().all():
        return Feature(name, "number")
    if not declared_category and not isinstance(dtype, pd.CategoricalDtype):
        _refuse_mixed(values)
    levels = tuple(sorted(_as_text(values).dropna().unique()))
    note_two_spellings(levels, name)
    if len(levels) > MAX_LEVELS:
        raise DataError(
            f"column {name!r}: {len(levels):,} different names (at most {MAX_LEVELS:,}), "
            f"first: {levels[0]!r}; it looks like an identifier: leave it out of [columns] features"
        )
    return Feature(name, "category", levels)


def _infer_wide(values: pd.Series, told: Kind | None) -> Feature | None:
    """A text or a vector, said where nobody named it as one; None for numbers and categories."""
    name, dtype = str(values.name), values.dtype
    if told == "vector" or (told != "text" and holds_vectors(values)):
        width = width_of(values)
        if told is None:
            warn(f"column {name!r} is read as vectors: lists of {width:,} numbers")
        return Feature(name, "vector", width=width)
    if told == "text":
        if pd.api.types.is_datetime64_any_dtype(dtype) or holds_vectors(values):
            raise DataError(f"column {name!r}: holds {_held(values)}, so it cannot be read as text")
        return Feature(name, "text")
    plain = pd.api.types.is_numeric_dtype(dtype) or isinstance(dtype, pd.CategoricalDtype)
    if plain or pd.api.types.is_datetime64_any_dtype(dtype) or not reads_as_text(values, MAX_LEVELS):
        return None
    warn(
        f"column {name!r} is read as text: {values.nunique():,} different values, most of several words; "
        "name it under [columns] ignore or categorical if it is none, under text to confirm it"
    )
    return Feature(name, "text")


def _held(values: pd.Series) -> str:
    return "dates" if pd.api.types.is_datetime64_any_dtype(values.dtype) else "lists of numbers"


def _refuse_mixed(values: pd.Series) -> None:
    """Text that is mostly numbers is a damaged number column, not a category."""
    present = values.dropna()
    codes, names = pd.factorize(present.astype(str))
    numbers = pd.to_numeric(pd.Series(names), errors="coerce").notna().to_numpy()[codes]
    if 2 * numbers.sum() >= len(present):
        if numbers.all():
            offence = f"holds numbers stored as text, first: {show(present.iloc[0])}"
        else:
            first = int((~numbers).argmax())
            offence = (
                f"mixes numbers and text: {(~numbers).sum()} of {len(present)} value(s) are no numbers, "
                f"first: {show(present.iloc[first])} in case {show(present.index[first])}"
            )
        raise DataError(
            f"column {values.name!r}: {offence}; correct it, or name it under [columns] categorical"
        )
    if mostly_marked(present):
        raise DataError(
            f"column {values.name!r}: holds numbers with signs or marks, first: {show(present.iloc[0])}; "
            "write them with digits and a decimal point alone, or say [columns] categorical or ignore"
        )


def cast_feature(values: pd.Series, feature: Feature) -> pd.Series:
    """A column as its kind is kept; what cannot be is a `DataError`."""
    if feature.kind == "text":
        return _texts(values)
    if feature.kind == "vector":
        return as_vectors(values, feature.width)
    if feature.kind == "category":
        levels = pd.Index(feature.levels, dtype="str")
        codes = levels.get_indexer(pd.Index(_as_text(values)))
        return pd.Series(pd.Categorical.from_codes(codes, levels), values.index)
    if not (pd.api.types.is_numeric_dtype(values.dtype) or values.isna().all()):
        numbers = pd.to_numeric(values.astype(object), errors="coerce")
        wrong = (numbers.isna() & values.notna()).to_numpy()
        if wrong.any():
            first = int(wrong.argmax())
            raise DataError(
                f"column {feature.name!r}: {wrong.sum()} value(s) are no numbers, "
                f"first: {show(values.iloc[first])} in case {show(values.index[first])}"
            )
        values = numbers
    cast = values.astype("float64")
    infinite = np.isinf(cast.to_numpy())
    if infinite.any():
        first = int(infinite.argmax())
        raise DataError(
            f"column {feature.name!r}: {infinite.sum()} infinite value(s), first: in case "
            f"{show(values.index[first])}; leave unknown values empty"
        )
    return cast


def _texts(values: pd.Series) -> pd.Series:
    """Texts; blank ones are missing."""
    if values.dtype == object:
        odd = [isinstance(value, list | tuple | dict | np.ndarray) for value in values]
        if any(odd):
            first = odd.index(True)
            raise DataError(
                f"column {values.name!r}: {sum(odd)} value(s) are no text, first: "
                f"{str(values.iloc[first])[:60]!r} in case {show(values.index[first])}"
            )
    texts = _as_text(values)
    long = int((texts.str.len() > LONGEST).sum())
    if long:
        warn(f"column {str(values.name)!r}: {long:,} text(s) are cut after {LONGEST:,} characters")
    return texts.where(texts.str.contains(r"\S", na=False))


def _as_text(values: pd.Series) -> pd.Series:
    """Levels as text; numbers that are names lose a trailing .0, which only a missing neighbour caused."""
    if isinstance(values.dtype, pd.CategoricalDtype):
        values = values.astype(values.cat.categories.dtype)
    if pd.api.types.is_float_dtype(values.dtype) and (values.dropna() % 1 == 0).all():
        values = values.astype("Int64")
    return values if values.dtype == "str" else values.astype("str").where(values.notna())
