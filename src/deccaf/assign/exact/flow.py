"""Min-cost flow on the kept arcs, through OR-Tools.

The network: open cases -> makers -> sink. Settled cases enter at their maker. Lower limits are sent ahead, so
that the arc from maker to sink carries only what is above them, at the price the reduced costs left out.

With a box, a bypass node stands for every pruned arc: a case can leave maker j and reach maker k for
box[j] + box[k], which is no more than any pruned arc would cost. So the network is feasible whatever was
pruned, the prices it yields stay within the box, and a flow that leaves the bypass empty is optimal for the
full problem.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from deccaf.assign.exact.scan import Arcs, Floats, Ints
from deccaf.errors import SolverError

SECONDS_PER_ARC = 2e-6
COST_BITS = 59  # OR-Tools multiplies costs by the number of nodes and needs the product below about 2^61
COARSER, FEWEST_BITS = 5, 30


@dataclass(frozen=True)
class Limits:
    """Lower and upper limits by maker; upper limits are cut at the number of cases."""

    lower: Ints
    upper: Ints
    total: int

    @property
    def room(self) -> Ints:
        """What a maker may get above the lower limit."""
        return self.upper - self.lower


@dataclass(frozen=True)
class Flow:
    """Units on every arc, on the bypass (out of and into each maker), and by maker."""

    arcs: Ints
    bypass_out: Ints
    bypass_in: Ints
    load: Ints

    @property
    def bypassed(self) -> int:
        """Units that no kept arc could carry well."""
        return int(self.bypass_out.sum())


class Deadline:
    """The time limit. A flow cannot be stopped, so it is not started when it would take too long."""

    def __init__(self, seconds: float):
        self.limit, self.start = seconds, time.perf_counter()

    def spent(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.start

    def left(self) -> float:
        """Seconds to go."""
        return self.limit - self.spent()

    def allows(self, arcs: int) -> bool:
        """Whether a flow over so many arcs can be expected to end in time."""
        return arcs * SECONDS_PER_ARC <= self.left()


class InfeasibleFlowError(Exception):
    """The network has no feasible flow."""


def solve_flow(
    arcs: Arcs,
    value: Floats,
    limits: Limits,
    prices: Floats,
    box: Floats | None = None,
    supply: Ints | None = None,
) -> Flow:
    """Cheapest flow for arcs of cost `value`, which includes `prices`.

    `supply` gives each open case more than one unit (a sample stands for more cases than it has).
    """
    n_open, makers, n_arcs = len(arcs.rows), len(prices), len(arcs.maker)
    if box is not None:
        limits = _settled_limits(limits, prices, box)
    units = np.ones(n_open, np.int64) if supply is None else supply
    at = np.arange(n_open, n_open + makers)
    bypass, sink = n_open + makers, n_open + makers + 1
    # a constant per unit into the sink changes nothing, so costs there can start at 0
    at_sink = np.where(limits.room > 0, prices.max(initial=-np.inf, where=limits.room > 0) - prices, 0.0)
    tails, heads = [arcs.case, at], [arcs.maker + n_open, np.full(makers, sink)]
    room, costs = [units[arcs.case], limits.room], [value - arcs.least(value)[arcs.case], at_sink]
    if box is not None:
        tails += [at, np.full(makers, bypass)]
        heads += [np.full(makers, bypass), at]
        room += [np.full(2 * makers, limits.total)]
        costs += [box, box]
    supplies = np.concatenate([units, arcs.load - limits.lower, [0, limits.lower.sum() - limits.total]])
    flows = _run(tails, heads, room, costs, supplies)
    out, into = (
        (flows[n_arcs + makers :].reshape(2, makers)) if box is not None else np.zeros((2, makers), int)
    )
    return Flow(flows[:n_arcs], out, into, limits.lower + flows[n_arcs : n_arcs + makers])


def _settled_limits(limits: Limits, prices: Floats, box: Floats) -> Limits:
    """A price that stays above 0 in its box means a full maker, one that stays below 0 a maker at its least.

    Then the price itself drops out, and with it numbers far larger than the differences to be resolved.
    """
    lower = np.where(prices > box, limits.upper, limits.lower)
    upper = np.where(prices < -box, limits.lower, limits.upper)
    fits = lower.sum() <= limits.total <= upper.sum()
    return Limits(lower, upper, limits.total) if fits else limits


def _run(tails: list[Ints], heads: list[Ints], room: list[Ints], costs: list[Floats], supplies: Ints) -> Ints:
    """The flow; on coarser integers where the solver's potentials add up, along a chain, beyond its range."""
    from ortools.graph.python import min_cost_flow

    cost, nodes = np.concatenate(costs), np.arange(len(supplies), dtype=np.int32)
    ends = [np.concatenate(side).astype(np.int32) for side in (tails, heads)]
    most = np.concatenate(room).astype(np.int64)
    for bits in range(COST_BITS, FEWEST_BITS, -COARSER):
        solver = min_cost_flow.SimpleMinCostFlow()
        arcs = solver.add_arcs_with_capacity_and_unit_cost(*ends, most, to_integers(cost, len(nodes), bits))
        solver.set_nodes_supplies(nodes, supplies.astype(np.int64))
        status = solver.solve()
        if status != solver.BAD_COST_RANGE:
            break
    if status == solver.INFEASIBLE:
        raise InfeasibleFlowError
    if status != solver.OPTIMAL:
        raise SolverError(f"min-cost flow ended with {status.name} on {len(cost):,} arcs; try method='lp'")
    return np.asarray(solver.flows(arcs), dtype=np.int64)


def to_integers(cost: Floats, nodes: int, bits: int = COST_BITS) -> Ints:
    """Scale to the finest integers the solver can take; what is lost shows in the certificate."""
    largest = float(cost.max(initial=0.0))
    if largest <= 0.0:
        return np.zeros(len(cost), np.int64)
    return np.rint(cost / largest * (2.0**bits / (nodes + 2))).astype(np.int64)
