"""Shadow prices and the optimality certificate from the J x J residual graph.

W[k, j] is the least that moving one case from maker k to maker j would cost. One more node, the outside,
stands for free capacity: it can take a case from a maker above its lower limit and give one to a maker below
its upper limit. A plan is optimal when this graph has no negative cycle; its shortest distances are the
prices.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from deccaf.assign.exact.flow import Flow, Limits
from deccaf.assign.exact.scan import Arcs, Bools, Floats, Ints

EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Distances:
    """Shortest distances to every node, or a negative cycle that stands in their way."""

    to: Floats
    cycle: list[int] | None


def residual_graph(arcs: Arcs, used: Ints, value: Floats | None = None) -> Floats:
    """W over the kept arcs; `used` are the positions of arcs that carry flow (a case may use several).

    Rounding is added, so that what looks like a gain is one.
    """
    makers, cost = len(arcs.load), arcs.cost if value is None else value
    count = arcs.count[arcs.case[used]]
    offset = arcs.first[arcs.case[used]] - (np.cumsum(count) - count)
    other = np.repeat(offset, count) + np.arange(count.sum())
    step = cost[other] - np.repeat(cost[used] - arcs.rounding[arcs.case[used]], count)
    graph = np.full(makers * makers, np.inf)
    np.minimum.at(
        graph, np.repeat(arcs.maker[used], count).astype(np.int64) * makers + arcs.maker[other], step
    )
    return graph.reshape(makers, makers)


def with_outside(graph: Floats, gives: Bools, takes: Bools, centre: Floats) -> Floats:
    """Add the outside node; `gives` marks makers above their lower limit, `takes` those below their upper."""
    makers = len(centre)
    full = np.full((makers + 1, makers + 1), np.inf)
    full[:makers, :makers] = graph
    full[makers, :makers][gives] = centre[gives]
    full[:makers, makers][takes] = -centre[takes]
    np.fill_diagonal(full, 0.0)
    return full


def with_bypass(graph: Floats, box: Floats, flow: Flow | None = None) -> Floats:
    """Add the bypass node to a graph that already has the outside."""
    size, makers = len(graph) + 1, len(box)
    full = np.full((size, size), np.inf)
    full[:-1, :-1] = graph
    full[:makers, -1] = box if flow is None else np.where(flow.bypass_in > 0, -box, box)
    full[-1, :makers] = box if flow is None else np.where(flow.bypass_out > 0, -box, box)
    full[-1, -1] = 0.0
    return full


def shortest(graph: Floats, start: Floats) -> Distances:
    """Bellman-Ford from the given starting distances, all edges at once.

    Improvements below rounding do not count, so that a cycle of weight zero is not taken for a negative one.
    """
    size = len(graph)
    distance, parent = start.copy(), np.full(size, -1)
    changed = np.flatnonzero(np.isfinite(start))
    for step in range(1, size + 2):
        through = distance[changed, None] + graph[changed]
        nearer = np.flatnonzero(through.min(axis=0, initial=np.inf) < distance)
        row = through[:, nearer].argmin(axis=0) if len(nearer) else nearer
        via, found = changed[row], through[row, nearer]
        noise = 4 * EPS * (np.abs(distance[via]) + np.abs(graph[via, nearer]))
        better = found + noise < distance[nearer]
        if not better.any():
            return Distances(distance, None)
        changed = nearer[better]
        distance[changed], parent[changed] = found[better], via[better]
        if (
            step & (step - 1) == 0 or step > size
        ):  # looking for cycles is slow: at powers of two and at the end
            cycle = _cycle(parent)
            if cycle is not None and _weight(graph, cycle) < 0:
                return Distances(distance, cycle)
    return Distances(distance, None)


def _cycle(parent: Ints) -> list[int] | None:
    """A cycle among the parents, in the direction of the edges."""
    above = parent.tolist()
    state = [0] * len(above)
    for root in range(len(above)):
        path, at = [], root
        while at >= 0 and state[at] == 0:
            state[at] = 1
            path.append(at)
            at = above[at]
        if at >= 0 and state[at] == 1:
            return path[path.index(at) :][::-1]
        for seen in path:
            state[seen] = 2
    return None


def _weight(graph: Floats, cycle: list[int]) -> float:
    """The cycle's weight, 0 when rounding could account for it."""
    edges = [float(graph[a, b]) for a, b in zip(cycle, cycle[1:] + cycle[:1], strict=True)]
    weight = math.fsum(edges)
    return weight if weight < -2 * EPS * math.fsum(map(abs, edges)) else 0.0


def negative_cycle(graph: Floats) -> list[int] | None:
    """A cycle of moves that makes the plan cheaper, if there is one.

    Where sizes differ beyond the digits of a float, small cycles are lost beside large distances: so large
    edges are left out, step by step.
    """
    while True:
        cycle = shortest(graph, np.zeros(len(graph))).cycle
        size = np.abs(graph[np.isfinite(graph) & (graph != 0)])
        if cycle is not None or not size.size or size.min() >= 1e-12 * size.max():
            return cycle
        graph = np.where(np.abs(graph) > 1e-12 * size.max(), np.inf, graph)


def shadow_prices(graph: Floats, load: Ints, limits: Limits, centre: Floats) -> Floats:
    """Prices of an optimal plan, as moves away from `centre`: what one more unit of each maker saves.

    One more unit at j draws a case along the cheapest chain of moves that starts at a maker able to give one
    up (above its lower limit). That is a shortest distance from the outside, for all makers at once, and
    these distances are a feasible dual. Two cases are special. If all limits are equalities, any maker may
    start a chain, which makes the smallest price 0. If all makers are at their lower limits and some have
    room, nothing can be given up, and prices are what one unit less of each lower limit saves, negated.
    """
    gives, takes = load > limits.lower, load < limits.upper
    if gives.any() or not takes.any():
        prices = -_distances(graph, gives if gives.any() else ~gives, centre)
    else:
        prices = _distances(graph.T, takes, -centre)
    unneeded = (limits.lower == 0) & (load == 0)
    # an empty maker that owes nothing is never worth a negative price
    prices[unneeded] = np.maximum(prices[unneeded], -centre[unneeded])
    return prices


def _distances(graph: Floats, sources: Bools, start: Floats) -> Floats:
    """Shortest distances from the sources, each beginning at its own `start`.

    Makers that no chain of moves reaches get distances consistent with the rest, and large enough: their
    prices then have the sign that a maker which cannot move needs.
    """
    np.fill_diagonal(graph := graph.copy(), 0.0)
    distance = shortest(graph, np.where(sources, start, np.inf)).to
    lost = ~np.isfinite(distance)
    if lost.any():
        inner = shortest(graph[np.ix_(lost, lost)], start[lost]).to
        bound = (distance[~lost] - graph[np.ix_(lost, ~lost)]).max(axis=1, initial=-np.inf)
        shift = max(0.0, float((bound - inner).max()), float((start[lost] - inner).max()))
        distance[lost] = inner + shift
    return distance


def box_prices(arcs: Arcs, value: Floats, flow: Flow, limits: Limits, centre: Floats, box: Floats) -> Floats:
    """Prices of a flow that may use the bypass, as moves away from `centre`."""
    makers = len(centre)
    graph = residual_graph(arcs, np.flatnonzero(flow.arcs), value)
    graph = with_outside(graph, flow.load > limits.lower, flow.load < limits.upper, centre)
    distance = shortest(with_bypass(graph, box, flow), np.zeros(makers + 2)).to
    anchor = distance[makers] if (limits.room > 0).any() else distance[makers + 1]
    prices: Floats = anchor - distance[:makers]
    return prices


def within(centre: Floats, shift: Floats, box: Floats) -> bool:
    """Whether no arc pruned around `centre` can improve a plan with prices `centre + shift`."""
    room = box - 8 * EPS * (np.abs(centre) + np.abs(shift))
    return bool((shift - room).max() <= (shift + room).min())


def priced_within(graph: Floats, load: Ints, limits: Limits, centre: Floats, box: Floats) -> bool:
    """Whether some prices in the box prove the plan optimal: then the pruned arcs cannot improve it."""
    full = with_outside(graph, load > limits.lower, load < limits.upper, centre)
    return negative_cycle(with_bypass(full, box)) is None


def worst_slack(graph: Floats, load: Ints, prices: Floats) -> float:
    """Bound on the cases' total slack, from the residual graph of the whole matrix."""
    violation = prices[:, None] - prices - graph
    return float(np.maximum(violation.max(axis=1), 0.0) @ load)


def certified_gap(slack: float, load: Ints, limits: Limits, prices: Floats, plan_losses: Floats) -> float:
    """Bound on the distance to the optimum: slack of the cases, of the limits, and of the rounding.

    Summing slacks instead of subtracting the dual value from the objective keeps the digits.
    """
    unused = np.maximum(prices, 0) @ (limits.upper - load) + np.maximum(-prices, 0) @ (load - limits.lower)
    size = float(np.abs(plan_losses).sum()) + float(np.abs(prices) @ load)
    return slack + float(unused) + 8 * EPS * size
