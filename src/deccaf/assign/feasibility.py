"""Why there is no plan: totals, and with eligibility the group that cannot fit (Hall's condition).

A plan exists when all cases fit under the upper limits and all lower limits can be filled; the two can be
looked at one at a time (Mendelsohn and Dulmage). Each is a maximum flow between makers and patterns of
eligibility, and a minimum cut is a group that does not fit, which is then made smaller maker by maker.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from deccaf.assign.exact.scan import Bools, Ints, map_chunks
from deccaf.assign.problem import AssignmentProblem
from deccaf.assign.stored import Mask
from deccaf.errors import CapacityError

NAMES_SHOWN = 6


@dataclass(frozen=True)
class Patterns:
    """Distinct rows of the eligibility mask, and how many cases have each."""

    allowed: Bools
    count: Ints


def check_totals(problem: AssignmentProblem) -> None:
    """The cheap conditions: enough room for all cases, and enough cases for all lower limits."""
    n, prefix = problem.shape[0], _prefix(problem)
    room, owed = int(problem.upper.sum()), int(problem.lower.sum())
    if room < n:
        raise CapacityError(
            f"{prefix}{n} cases, capacity {room}; raise upper limits or let the machine decide"
        )
    if owed > n:
        raise CapacityError(f"{prefix}{n} cases, but lower limits ask for {owed}; lower them")
    if problem.eligible is not None:
        _check_choices(problem, problem.eligible)


def _check_choices(problem: AssignmentProblem, eligible: Mask) -> None:
    """Every case has a maker it may go to, and one with any capacity."""
    some = map_chunks(lambda a, b: eligible[a:b].any(axis=1), eligible)
    nobody = np.flatnonzero(~np.concatenate(some)) if some else np.empty(0, np.int64)
    if len(nobody):
        raise CapacityError(
            f"{_prefix(problem)}{len(nobody)} cases may go to nobody, first:"
            f" {problem.case_name(int(nobody[0]))}; widen eligibility"
        )
    opened = problem.upper > 0
    stuck = map_chunks(lambda a, b: bool((~eligible[a:b][:, opened].any(axis=1)).any()), eligible)
    if any(stuck):
        check_groups(problem)


def check_groups(problem: AssignmentProblem) -> None:
    """The full condition, group by group; the error names the smallest group found that cannot fit."""
    if problem.eligible is None:
        return  # then the totals are all there is
    patterns = eligibility_patterns(problem.eligible)
    group = _crowded(patterns, problem.upper)
    if group is not None:
        raise CapacityError(_prefix(problem) + _crowded_message(problem, patterns, group))
    group = _starved(patterns, problem.lower)
    if group is not None:
        raise CapacityError(_prefix(problem) + _starved_message(problem, patterns, group))


def eligibility_patterns(eligible: Mask) -> Patterns:
    """Merge cases that may go to the same makers."""
    parts = map_chunks(lambda a, b: np.packbits(eligible[a:b], axis=1), eligible)
    packed = np.ascontiguousarray(np.concatenate(parts))
    keys = packed.view(np.dtype((np.void, packed.shape[1]))).ravel()
    _, first, count = np.unique(keys, return_index=True, return_counts=True)
    return Patterns(eligible[first], count)


def _crowded(patterns: Patterns, upper: Ints) -> Bools | None:
    """Makers whose exclusive cases exceed their room."""
    stuck = _cut(patterns.count, patterns.allowed, upper)
    if stuck is None:
        return None
    group: Bools = np.asarray(patterns.allowed[stuck].any(axis=0))

    def excess(makers: Bools) -> int:
        return _exclusive(patterns, makers) - int(upper[makers].sum())

    return _shrink(group, excess)


def _starved(patterns: Patterns, lower: Ints) -> Bools | None:
    """Makers whose lower limits exceed the cases that may go to any of them."""
    stuck = _cut(lower, patterns.allowed.T, patterns.count)
    if stuck is None:
        return None
    group = np.zeros(len(lower), np.bool_)
    group[stuck] = True

    def excess(makers: Bools) -> int:
        return int(lower[makers].sum()) - _reaching(patterns, makers)

    return _shrink(group, excess)


def _cut(supply: Ints, arcs: Bools, room: Ints) -> Ints | None:
    """Suppliers on the source side of a minimum cut, if not everything can be shipped."""
    from ortools.graph.python import max_flow

    left, right = arcs.shape
    tails, heads = np.nonzero(arcs)
    source, sink = left + right, left + right + 1
    flow = max_flow.SimpleMaxFlow()
    flow.add_arcs_with_capacity(
        np.concatenate([np.full(left, source), tails, np.arange(left, left + right)]).astype(np.int32),
        np.concatenate([np.arange(left), heads + left, np.full(right, sink)]).astype(np.int32),
        np.concatenate([supply, supply[tails], room]).astype(np.int64),
    )
    flow.solve(source, sink)
    if flow.optimal_flow() >= supply.sum():
        return None
    side: Ints = np.asarray(flow.get_source_side_min_cut(), dtype=np.int64)
    inside: Ints = side[side < left]
    return inside


def _shrink(group: Bools, excess: Callable[[Bools], int]) -> Bools:
    """Drop makers while the rest still does not fit."""
    for j in np.flatnonzero(group):
        smaller = group.copy()
        smaller[j] = False
        if smaller.any() and excess(smaller) > 0:
            group = smaller
    return group


def _exclusive(patterns: Patterns, makers: Bools) -> int:
    return int(patterns.count[~(patterns.allowed & ~makers).any(axis=1)].sum())


def _reaching(patterns: Patterns, makers: Bools) -> int:
    return int(patterns.count[(patterns.allowed & makers).any(axis=1)].sum())


def _crowded_message(problem: AssignmentProblem, patterns: Patterns, group: Bools) -> str:
    names, one = _names(problem, group, "or")
    return (
        f"{_exclusive(patterns, group)} cases may only go to {names}, who {'has' if one else 'have'} room for"
        f" {int(problem.upper[group].sum())}; raise upper limits or widen eligibility"
    )


def _starved_message(problem: AssignmentProblem, patterns: Patterns, group: Bools) -> str:
    names, _ = _names(problem, group, "and")
    return (
        f"{names} must get at least {int(problem.lower[group].sum())} cases, but only"
        f" {_reaching(patterns, group)} may go there; lower the limits or widen eligibility"
    )


def _names(problem: AssignmentProblem, group: Bools, last: str) -> tuple[str, bool]:
    names = [problem.maker_name(int(j)) for j in np.flatnonzero(group)]
    if len(names) > NAMES_SHOWN:
        names = [*names[: NAMES_SHOWN - 1], f"{len(names) - NAMES_SHOWN + 1} others"]
    if len(names) == 1:
        return names[0], True
    return f"{', '.join(names[:-1])} {last} {names[-1]}", False


def _prefix(problem: AssignmentProblem) -> str:
    return f"{problem.name}: " if problem.name else ""
