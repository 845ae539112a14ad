"""Ids for golden cases: as long and of the same shape as the ids that this desk's cases have.

Ids drawn at random (hashes, UUIDs, random numbers) get another draw. Ids that count up get a number of the
same length far enough ahead that the counting does not reach it: an id that an ordinary case will have one
day would have that case refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np
import sqlalchemy as sa

from deccaf.service.ledger import case_records
from deccaf.service.store import tables as t

LATEST = 300
"""Ids that tell what ids look like."""
MANY = 10**8
"""Different ids of a shape from which on a random one is new."""
SPARSE = 1000
"""Numbers for each that is used, from which on they do not count up."""
FEW = 50
"""With fewer ids a sign that was not seen may still come."""
AHEAD = (100, 1000)
"""How far ahead of the counting, in cases that the desk has had; at least as if it had had so many."""
FEWEST_CASES = 1000
_HEX, _DIGITS = set("0123456789abcdef"), set("0123456789")
_NUMBER = re.compile(r"[0-9]{1,15}(?=[^0-9]*$)")
"""The last number of an id."""


def new_id(connection: sa.Connection, rng: np.random.Generator) -> str:
    """An id that no case has, of the shape of those that cases have."""
    known = _latest(connection)
    cases = int(connection.execute(sa.select(sa.func.max(t.cases.c.id))).scalar() or 0)
    for made in _drawn(known, cases, rng):
        if not case_records.known_cases(connection, [made]):
            return made
    raise AssertionError("unreachable: drawn without end")


def _latest(connection: sa.Connection) -> list[str]:
    """Ids of the latest cases that are not golden."""
    c, g = t.cases.c, t.golden_cases.c
    query = sa.select(c.case_id).where(~sa.exists().where(g.case_id == c.case_id))
    return [str(name) for name in connection.execute(query.order_by(c.id.desc()).limit(LATEST)).scalars()]


def _drawn(known: Sequence[str], cases: int, rng: np.random.Generator) -> Iterator[str]:
    """Ids like those that are known, without end."""
    while True:
        pattern = str(rng.choice(np.array(known, dtype=object))) if known else "case-00000000"
        alike = [one for one in known if _frame(one) == _frame(pattern)] or [pattern]
        made = _at_random(alike, rng)
        yield _counted(pattern, alike, cases, rng) if made is None else made


def _frame(text: str) -> str:
    """Where an id has signs that are neither letters nor digits, and how long it is."""
    return re.sub(r"[0-9A-Za-z]", "x", text)


def _at_random(alike: Sequence[str], rng: np.random.Generator) -> str | None:
    """Another draw of ids whose signs are drawn; None: too few of them vary."""
    signs = [_alphabet(set(seen), len(alike)) for seen in zip(*alike, strict=True)]
    if np.prod([float(len(each)) for each in signs]) < MANY or _counts(alike):
        return None
    return "".join(str(rng.choice(np.array(each))) for each in signs)


def _alphabet(seen: set[str], ids: int) -> list[str]:
    """What may stand at a place of an id; one sign where it never varies."""
    if len(seen) > 1 and ids < FEW and seen <= _HEX:
        return sorted(_DIGITS if seen <= _DIGITS else _HEX)
    return sorted(seen)


def _counts(alike: Sequence[str]) -> bool:
    """Whether ids end in numbers of which nearly all are used."""
    ends = [re.fullmatch(r"(.*?)([0-9]{1,15})", one) for one in alike]
    if not all(ends) or len({end[1] for end in ends if end}) > 1:
        return False
    numbers = [int(end[2]) for end in ends if end]
    return (max(numbers) - min(numbers)) < SPARSE * len(numbers)


def _counted(pattern: str, alike: Sequence[str], cases: int, rng: np.random.Generator) -> str:
    """A number far ahead of those that are counted up; longer only where there is no room for it."""
    found = _NUMBER.search(pattern)
    head, digits, tail = (pattern, "", "") if found is None else _split(pattern, found)
    same = [_NUMBER.search(one) for one in alike]
    top, had = max([int(one[0]) for one in same if one] or [0]), max(cases, FEWEST_CASES)
    low, high, end = top + AHEAD[0] * had, top + AHEAD[1] * had, 10 ** len(digits) - 1
    if end < high and end - top > 2 * had:  # as far as numbers of this length go, where that is far enough
        low, high = (top + end) // 2, end
    return f"{head}{str(int(rng.integers(low, high + 1))).zfill(len(digits))}{tail}"


def _split(pattern: str, found: re.Match[str]) -> tuple[str, str, str]:
    return pattern[: found.start()], found[0], pattern[found.end() :]
