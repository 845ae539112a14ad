"""How far people agree on the test cases that several of them decided, beside what the models expected.

The list for a calibration meeting comes with it: the cases on which it mattered most who decided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.backtest.split import Part, of_truth
from deccaf.data.amounts import named
from deccaf.data.costs import Costs
from deccaf.data.history import History
from deccaf.evaluate.inter_rater import ALPHA, Ratings, agreement, by_kind, by_pair, for_a_meeting
from deccaf.models.decisions.dependence import Dependence
from deccaf.policies import Beliefs
from deccaf.report.page import Section

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

FEWEST = 20
"""Test cases decided by several people from which on agreement is measured."""
_MOST_KINDS = 12
_SHOWN = 12
"""Pairs that the page shows."""
TRUTH = "truth"


@dataclass(frozen=True, eq=False)
class Shared:
    """Test cases of one split that several people decided, and what the models expected of these."""

    rows: Ints
    chances: Array
    """(cases, people, K): given the truth."""
    people: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Agreement:
    """What was found on all of them."""

    overall: pd.DataFrame
    kinds: Mapping[str, pd.DataFrame]
    """By truth, and by group column."""
    pairs: pd.DataFrame
    meeting: pd.DataFrame
    """Cases to talk about: case_id, said, truth, apart, at_stake."""
    together: Dependence | None = None
    """Who errs on the same cases, beyond what truth and features tell."""


def several_of(history: History) -> Mask:
    """Cases with a known truth that two people or more decided."""
    pairs = np.unique(np.stack([history.case, pd.factorize(history.expert)[0]]), axis=1)
    return np.asarray((np.bincount(pairs[0], minlength=len(history.cases)) > 1) & (history.label >= 0))


def shared(part: Part, beliefs: Beliefs, several: Mask) -> Shared:
    """Of one split; `several` is by position of the case."""
    mine = several[part.rows]
    rows, q = part.rows[mine], np.asarray(beliefs.q)[mine]
    truth = part.history.label[rows]
    return Shared(rows, np.ascontiguousarray(q[np.arange(len(q)), :, truth]), beliefs.experts)


def agreement_of(
    history: History, parts: Sequence[Shared], costs: Costs, machines: Sequence[str] = ()
) -> Agreement | None:
    """Of all splits together; None where too few cases were decided by several people."""
    rows = np.concatenate([part.rows for part in parts])
    if len(rows) < FEWEST:
        return None
    order = np.argsort(rows)
    every = Ratings.of(history)
    rows = rows[order]
    chances = np.concatenate([_of_people(part, every.people) for part in parts])[order]
    at = every.case.get_indexer(history.cases.features.index[rows])
    found = every.take(at)
    ratings = Ratings(found.said, found.people, found.classes, found.case, found.unit, chances)
    truth = history.label[rows]
    names = np.array([str(name) for name in history.cases.classes], dtype=object)[truth]
    kinds: dict[str, pd.DataFrame] = {TRUTH: by_kind(ratings, names)}
    for column in history.cases.groups:
        values = history.cases.groups[column].iloc[rows]
        if values.nunique() <= _MOST_KINDS:
            kinds[str(column)] = by_kind(ratings, values)
    amounts = history.cases.amounts.iloc[rows]
    meeting = for_a_meeting(ratings, of_truth(costs.array(amounts), truth))
    told = pd.Series(names, index=ratings.case.astype(str))
    meeting.insert(2, "truth", told.reindex(meeting["case_id"].astype(str)).to_numpy())
    together = _together(ratings, truth, machines)
    return Agreement(agreement(ratings), kinds, by_pair(ratings), meeting, together)


def _together(ratings: Ratings, truth: Ints, machines: Sequence[str]) -> Dependence | None:
    """Who errs together on cases that the models had not seen."""
    assert ratings.chances is not None
    case, who = np.nonzero(ratings.said >= 0)
    right = ratings.chances[case, who, truth[case]]
    wrong = ratings.said[case, who] != truth[case]
    return Dependence.learn(ratings.people, case, who, wrong, 1.0 - right, machines)


def _of_people(part: Shared, people: Sequence[str]) -> Array:
    """The chances of these people; those whom the models do not know are like the team."""
    at = pd.Index(part.people).get_indexer(pd.Index(people))
    theirs = part.chances[:, np.maximum(at, 0)]
    return np.where((at >= 0)[None, :, None], theirs, part.chances.mean(axis=1, keepdims=True))


def sections(found: Agreement, unit: str) -> list[Section]:
    """What the page of a backtest says of it."""
    alpha = found.overall.set_index("measure").loc[ALPHA]
    cases = int(found.overall["cases"].iloc[0])
    text = (
        f"{cases:,} test cases were decided by several people. Krippendorff's alpha is {alpha['value']:.2f} "
        f"({alpha['low']:.2f} to {alpha['high']:.2f}), where the models expect {alpha['expected']:.2f}."
    )
    return [
        Section("Do people agree?", text, _printed(found.overall), note=_NOTE),
        *(
            Section(f"Agreement by {name}", "", _printed(table), note="95 % intervals in brackets.")
            for name, table in found.kinds.items()
        ),
        *([] if found.pairs.empty else [_pairs(found.pairs)]),
        *([] if found.together is None or not found.together.pairs else [_errors_together(found.together)]),
        meeting_section(found, unit),
    ]


def meeting_section(found: Agreement, unit: str) -> Section:
    """The list for a calibration meeting."""
    table = found.meeting
    stake = named("At stake", unit)
    return Section(
        "Cases for a calibration meeting",
        "Cases on which it mattered most who decided them."
        if len(table)
        else "Nobody disagreed on anything that costs something.",
        pd.DataFrame(
            {
                "Case": table["case_id"].astype(str),
                "Who said what": table["said"],
                "Truth": table["truth"],
                "Two of them differ": table["apart"].map("{:.0%}".format),
                stake: table["at_stake"].map("{:.3g}".format),
            }
        ),
        note=f"{stake}: how far the costs of two reviewers' decisions lie apart on average.",
    )


_NOTE = (
    "95 % intervals in brackets. 1 is full agreement, 0 what chance alone gives. Expected: the same from "
    "what the models, which had not seen these cases, expected of these people. More than expected: people "
    "go by something that no column shows. Less: their rules differ, or their days."
)


def _printed(table: pd.DataFrame) -> pd.DataFrame:
    """Rows of `agreement` or `by_kind`, ready to print."""
    shown = pd.DataFrame({"Measure": table["measure"], "Cases": table["cases"].map("{:,}".format)})
    if "kind" in table:
        shown.insert(0, "Kind", table["kind"])
    shown["Value"] = [_with_interval(row) for _, row in table.iterrows()]
    shown["Expected"] = table["expected"].map(_number)
    return shown


def _pairs(table: pd.DataFrame) -> Section:
    least = table.iloc[0]
    shown = table.head(_SHOWN)
    return Section(
        "Agreement by pair",
        f"{least['first']} and {least['second']} agree least: Cohen's kappa {_number(least['kappa'])} on "
        f"{least['cases']:,} cases that both decided.",
        pd.DataFrame(
            {
                "Pair": shown["first"] + ", " + shown["second"],
                "Cases": shown["cases"].map("{:,}".format),
                "Say the same": shown["share"].map("{:.0%}".format),
                "Cohen's kappa": [
                    _with_interval(row) for _, row in shown.rename(columns={"kappa": "value"}).iterrows()
                ],
                "Expected": shown["expected"].map(_number),
                "Alpha": shown["alpha"].map(_number),
                "AC1": shown["ac1"].map(_number),
            }
        ),
        note=f"Of {len(table):,} pairs those with the least kappa." if len(table) > _SHOWN else "",
    )


def _errors_together(found: Dependence) -> Section:
    shown = found.frame().head(_SHOWN)
    return Section(
        "Who errs together?",
        ". ".join(line[0].upper() + line[1:] for line in found.lines(3)) + ".",
        pd.DataFrame(
            {
                "Pair": shown["first"] + ", " + shown["second"],
                "Cases": shown["cases"].map("{:,}".format),
                "Both wrong": shown["both_wrong"].map("{:,}".format),
                "Expected": shown["expected"].map("{:,.1f}".format),
                "Correlation": shown["correlation"].map(_number),
                "p": shown["p_value"].map("{:.2g}".format),
            }
        ),
        note="Expected: of errors that are independent given the truth and the features. Correlation: of "
        "what makes a case hard for both, shrunk where few cases tell. A second opinion of somebody who errs "
        "on the same cases is worth less, and is counted so in plans with several reviewers. p: of "
        "independence, corrected for the number of pairs.",
    )


def _with_interval(row: pd.Series) -> str:
    return f"{_number(row['value'])} ({_number(row['low'])} to {_number(row['high'])})"


def _number(value: float) -> str:
    return "" if pd.isna(value) else f"{value:.2f}"
