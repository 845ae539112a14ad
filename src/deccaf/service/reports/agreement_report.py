"""How far people agree where several decided the same case: histories that were entered, golden cases, and
second opinions.

A golden case that several people got counts as one case. Of a case with second opinions the first two answers
count, which were given blind: who is asked third, or a lead, is asked because two disagree. The coefficients
are those of `deccaf.evaluate.inter_rater`, beside what the model in force expects of these people.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import sqlalchemy as sa

from deccaf.data.costs import MACHINE
from deccaf.errors import DataError
from deccaf.evaluate.inter_rater import Ratings, agreement, by_kind, by_pair, for_a_meeting
from deccaf.service.decide.registry import Model
from deccaf.service.reports.kinds import kind_columns, kinds_of
from deccaf.service.store import tables as t

MOST = 5_000
"""Decisions on cases that several people decided, the latest."""
FEWEST = 20
"""Such cases from which on agreement is shown."""
MEETING = 20
MEETING_COLUMNS = ["case_id", "said", "apart", "at_stake"]


@dataclass(frozen=True)
class AgreementReport:
    """What was found, ready for pages: rows of the tables of `inter_rater`."""

    cases: int
    overall: list[dict[str, Any]]
    kinds: dict[str, list[dict[str, Any]]]
    """By truth, and by each column that tells kinds of cases."""
    pairs: list[dict[str, Any]]
    meeting: list[dict[str, Any]]


@dataclass(frozen=True)
class _Rated:
    """One decision among several on a case."""

    case: str
    maker: str
    decision: str
    features: str
    label: str | None


def report_agreement(connection: sa.Connection, model: Model) -> AgreementReport | None:
    """None where too few cases were decided by several people."""
    rows = [*_past(connection), *_golden(connection), *_second(connection)]
    place = {json.dumps(name): k for k, name in enumerate(model.classes)}
    known = [row for row in rows if row.decision in place and row.label in place]
    by_case: dict[str, dict[str, _Rated]] = {}
    for row in known:
        by_case.setdefault(row.case, {})[row.maker] = row
    several = {case: made for case, made in by_case.items() if len(made) > 1 and _is_read(model, made)}
    if len(several) < FEWEST:
        return None
    ratings, truth = _ratings(model, several, place)
    costs = _costs(model, several, truth)
    meeting = for_a_meeting(ratings, costs, MEETING)
    names = np.array([str(name) for name in model.classes], dtype=object)[truth]
    features = [next(iter(made.values())).features for made in several.values()]
    kinds = {"truth": names, **kinds_of(features, kind_columns(connection, model))}
    return AgreementReport(
        len(several),
        _plain(agreement(ratings)),
        {column: _plain(by_kind(ratings, each)) for column, each in kinds.items()},
        _plain(by_pair(ratings)),
        _plain(meeting),
    )


def _past(connection: sa.Connection) -> list[_Rated]:
    p, k, e = t.past_decisions.c, t.past_cases.c, t.past_entries.c
    several = (
        sa.select(p.entry_id, p.case_id)
        .join_from(t.past_decisions, t.past_entries, e.id == p.entry_id)
        .where(e.withdrawn_at.is_(None), p.maker != MACHINE)
        .group_by(p.entry_id, p.case_id)
        .having(sa.func.count(sa.distinct(p.maker)) > 1)
        .order_by(sa.func.max(p.id).desc())
        .limit(MOST // 2)
        .subquery()
    )
    both = sa.and_(p.entry_id == several.c.entry_id, p.case_id == several.c.case_id)
    case = sa.and_(k.entry_id == p.entry_id, k.case_id == p.case_id)
    query = (
        sa.select(p.case_id, p.maker, p.decision, k.features, k.label)
        .join_from(t.past_decisions, several, both)
        .join(t.past_cases, case)
        .where(p.maker != MACHINE)
        .order_by(p.id)
    )
    return [_Rated(*row) for row in connection.execute(query)]


def _golden(connection: sa.Connection) -> list[_Rated]:
    g, d, k = t.golden_cases.c, t.decisions.c, t.cases.c
    query = (
        sa.select(g.source, d.maker, d.decision, k.features, g.label)
        .join_from(t.golden_cases, t.decisions, d.case_id == g.case_id)
        .join(t.cases, k.case_id == g.case_id)
        .where(d.maker != MACHINE)
        .order_by(d.at.desc())
        .limit(MOST)
    )
    return [_Rated(*row) for row in connection.execute(query)]


def _second(connection: sa.Connection) -> list[_Rated]:
    """The first two answers of each case that more than one person answered."""
    c, k = t.second_opinions.c, t.cases.c
    asked = sa.select(c.case_id).order_by(c.at.desc()).limit(MOST)
    answers = sa.union_all(
        *[
            sa.select(each.c.case_id, each.c.maker, each.c.decision, each.c.at).where(
                each.c.case_id.in_(asked), each.c.maker != MACHINE
            )
            for each, _ in t.ANSWERS
        ]
    ).subquery()
    a = answers.c
    query = (
        sa.select(a.case_id, a.maker, a.decision, k.features, k.label)
        .join_from(answers, t.cases, k.case_id == a.case_id)
        .order_by(a.at)
    )
    found: dict[str, list[_Rated]] = {}
    for row in connection.execute(query):
        found.setdefault(row.case_id, []).append(_Rated(*row))
    return [one for made in found.values() for one in made[:2]]


def _is_read(model: Model, made: dict[str, _Rated]) -> bool:
    try:
        model.check(json.loads(next(iter(made.values())).features))
    except DataError:
        return False
    return True


def _ratings(
    model: Model, several: dict[str, dict[str, _Rated]], place: dict[str, int]
) -> tuple[Ratings, np.ndarray[Any, np.dtype[np.int64]]]:
    people = tuple(sorted({maker for made in several.values() for maker in made}))
    said = np.full((len(several), len(people)), -1, np.int64)
    first = [next(iter(made.values())) for made in several.values()]
    for row, made in enumerate(several.values()):
        for maker, one in made.items():
            said[row, people.index(maker)] = place[one.decision]
    truth = np.array([place[str(one.label)] for one in first], np.int64)
    chances = _chances(model, first, people, truth)
    cases = pd.Index(list(several))
    return Ratings(said, people, model.classes, cases, np.arange(len(several)), chances), truth


def _chances(
    model: Model, first: Sequence[_Rated], people: Sequence[str], truth: np.ndarray[Any, np.dtype[np.int64]]
) -> Any:
    """What the model expects of everybody, given the truth; None where it has no model of decisions."""
    decisions = model.system.learned_.decisions
    if not hasattr(decisions, "predict"):
        return None
    frame = pd.DataFrame([json.loads(one.features) for one in first])
    q = np.asarray(decisions.predict(model.system.schema_.cast(frame), list(people)))  # type: ignore[union-attr]
    return q[np.arange(len(q)), :, truth]


def _costs(
    model: Model, several: dict[str, dict[str, _Rated]], truth: np.ndarray[Any, np.dtype[np.int64]]
) -> Any:
    costs = model.system.costs_
    features = [json.loads(next(iter(made.values())).features) for made in several.values()]
    table = costs.array(pd.DataFrame(features) if costs.columns else None)
    return table[np.arange(len(truth)) if len(table) > 1 else 0, truth]


def _plain(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows of plain values; what is missing is None."""
    rows = table.astype(object).where(table.notna(), None).to_dict("records")
    return [{str(name): value for name, value in row.items()} for row in rows]
