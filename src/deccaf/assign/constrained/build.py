"""The columns of a programme: all ways to handle a case that eligibility, reviewers and the draw allow."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deccaf.assign.constrained.columns import Columns
from deccaf.assign.constrained.constraints import Reviewers
from deccaf.assign.constrained.random_quota import RandomDraw
from deccaf.assign.exact.scan import Bools, Ints
from deccaf.assign.problem import AssignmentProblem
from deccaf.errors import CapacityError, ConfigError

MOST_COLUMNS = 30_000_000


def build_columns(
    problem: AssignmentProblem, reviewers: Reviewers | None = None, drawn: RandomDraw | None = None
) -> Columns:
    """All ways to handle every case: who is eligible, in groups where several must see it."""
    n = problem.shape[0]
    reviewers = reviewers or Reviewers(1)
    counts = reviewers.counts(problem)
    most = np.maximum(counts, reviewers.up_to or 1)
    widest = int(most.max(initial=1))
    case_parts, member_parts, cost_parts = [], [], []
    for size in range(int(counts.min(initial=widest)), widest + 1):
        rows = np.flatnonzero((counts <= size) & (size <= most))
        if not len(rows):
            continue
        sets = reviewers.sets(problem, size)
        if len(rows) * len(sets) > MOST_COLUMNS:
            raise ConfigError(f"{len(rows):,} cases x {len(sets):,} groups of {size}: name fewer in `among`")
        at, which = np.nonzero(_allowed(problem, rows, sets, drawn))
        case, members = rows[at], sets[which]
        if size == 1 or reviewers.opinions is None:
            cost_parts.append(problem.loss[case[:, None], members].astype(np.float64).mean(axis=1))
        else:
            cost_parts.append(reviewers.opinions.loss(case, members))
        case_parts.append(case)
        member_parts.append(np.pad(members, ((0, 0), (0, widest - size)), constant_values=-1))
    if not case_parts:
        return Columns(np.zeros(0, np.int64), np.zeros((0, 1), np.int32), np.zeros(0), 0)
    case = np.concatenate(case_parts)
    order = np.argsort(case, kind="stable")
    columns = Columns(case[order], np.concatenate(member_parts)[order], np.concatenate(cost_parts)[order], n)
    _check_every_case(problem, columns)
    return columns


def _allowed(
    problem: AssignmentProblem, rows: Ints, sets: NDArray[np.int32], drawn: RandomDraw | None
) -> Bools:
    """(rows, sets): everyone in the set may get the case and has capacity, the drawn maker among them."""
    allowed = np.broadcast_to((problem.upper[sets] > 0).all(axis=1), (len(rows), len(sets))).copy()
    if problem.eligible is not None:
        for k in range(sets.shape[1]):
            allowed &= problem.eligible[rows][:, sets[:, k]]
    if drawn is not None:
        want = drawn.maker[rows]
        allowed &= (want < 0)[:, None] | (sets[None] == want[:, None, None]).any(axis=2)
    return allowed


def _check_every_case(problem: AssignmentProblem, columns: Columns) -> None:
    count = np.bincount(columns.case, minlength=columns.cases)
    if (count == 0).any():
        first = problem.case_name(int((count == 0).argmax()))
        raise CapacityError(
            f"{int((count == 0).sum())} cases may go to nobody under these constraints, first: {first};"
            " widen eligibility, or ask for fewer reviewers"
        )
