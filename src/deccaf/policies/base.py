"""What every policy sees and says, how policies are registered, and the ways to plan that they share.

A policy sees what models believe about the cases of one batch (`Beliefs`) and how much everybody may get
(`Room`), and says who decides each case and what the machine would say (`Decided`). All have one signature,
so that the benchmark, the backtest and a policy of your own stand side by side::

    @policy("mine", needs=("q",))
    def mine(beliefs, room, seed):
        return optimal(my_loss(beliefs), beliefs.machine_says(), room, seed)

A package brings a policy under its name as an entry point `deccaf.policies` that leads to such a function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from deccaf.assign import Assignment, AssignmentProblem, verify
from deccaf.assign.solve import solve_problem
from deccaf.data.costs import MACHINE, expected_loss, machine_losses
from deccaf.errors import CapacityError, ConfigError
from deccaf.models.rivals.annotated import Deferral
from deccaf.plugins import Registry

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Correctness:
    """A method of the paper: probabilities under the distribution reweighted by what errors cost."""

    p: Array
    """(cases, K): P~(y | x) of the cost-weighted classifier."""
    correct: Array
    """(cases, experts): P~(the expert is right | x)."""

    def take(self, rows: Ints) -> Correctness:
        """Some of the cases."""
        return Correctness(self.p[rows], self.correct[rows])

    def loss(self) -> Array:
        """1 - P~(right) of the machine, which says its likelier class, and of each expert (the paper's eq. 8
        and 9, which prints the argmin of the correctness)."""
        return np.hstack([1.0 - self.p.max(axis=1, keepdims=True), 1.0 - self.correct])


@dataclass(frozen=True, eq=False)
class Beliefs:
    """What models believe about the cases of a batch; the makers are the machine, then `experts`."""

    experts: tuple[str, ...]
    costs: Array
    """(cases or 1, K, K): c[i, y, m]."""
    p: Array
    """(cases, K): P(y | x), plain and calibrated."""
    q: Array | None = None
    """(cases, experts, K, K): P(expert says m | x, truth y), as the decision model has it."""
    true_q: Array | None = None
    """The same as the simulator has it; nobody knows it outside a simulation."""
    paper: Mapping[str, Correctness] = field(default_factory=dict)
    """The paper's methods: `hem`, `hem-refit`, `ova`, and where asked for `hem-as-released` and the like."""
    review_cost: Array | float = 0.0
    """What it costs to ask each expert."""

    rivals: Mapping[str, Deferral] = field(default_factory=dict)
    """What learners of other papers make of the cases, where asked for."""
    group: NDArray[np.str_] | None = None
    """(cases): the protected group of each case, for policies that treat groups alike."""

    def __len__(self) -> int:
        return len(self.p)

    def take(self, rows: Ints) -> Beliefs:
        """What is believed of some of the cases."""

        def part(values: Any) -> Any:
            return None if values is None else values[rows]

        return replace(
            self,
            costs=self.costs if len(self.costs) == 1 else self.costs[rows],
            p=self.p[rows],
            q=part(self.q),
            true_q=part(self.true_q),
            paper={name: known.take(rows) for name, known in self.paper.items()},
            review_cost=self.review_cost if np.ndim(self.review_cost) < 2 else part(self.review_cost),
            rivals={
                name: Deferral(known.loss[rows], known.says[rows]) for name, known in self.rivals.items()
            },
            group=part(self.group),
        )

    @property
    def makers(self) -> tuple[str, ...]:
        """The columns of every loss."""
        return (MACHINE, *self.experts)

    def machine_says(self) -> Ints:
        """The class that costs least where the machine decides."""
        return np.asarray(machine_losses(self.p, self.costs).argmin(axis=1))

    def loss(self, q: Array | None) -> Array:
        """Expected cost of every maker with these chances of deciding."""
        if q is None:
            raise ConfigError("the policy needs a decision model, and there is none among the beliefs")
        return expected_loss(self.p, q, self.costs, self.review_cost)

    def method(self, name: str) -> Correctness:
        """One of the paper's methods."""
        if name not in self.paper:
            raise ConfigError(f"the policy needs {name!r}, which is not among {sorted(self.paper)}")
        return self.paper[name]

    def rival(self, name: str) -> Deferral:
        """What a learner of another paper makes of the cases."""
        if name not in self.rivals:
            raise ConfigError(f"the policy needs {name!r}, which is not among {sorted(self.rivals)}")
        return self.rivals[name]


@dataclass(frozen=True, eq=False)
class Room:
    """How many cases of a batch each maker must and may get, the machine first."""

    lower: Ints
    upper: Ints
    eligible: NDArray[np.bool_] | None = None
    name: str = ""


@dataclass(frozen=True, eq=False)
class Decided:
    """Who decides each case (0 is the machine), and what the machine says wherever it does."""

    maker: Ints
    machine_says: Ints
    plan: Assignment | None = None
    """The certified plan, for policies that solve one."""
    chances: Array | None = None
    """(cases, makers): how likely each maker was to get each case, for policies that draw lots: what a plan
    costs then rests on these, which say more than one draw. None: as `maker` says."""


class Policy(Protocol):
    """The signature of every policy."""

    def __call__(self, beliefs: Beliefs, room: Room, seed: int, /) -> Decided:
        """Decide who decides."""


@dataclass(frozen=True)
class Registered:
    """A policy with its name and with what it needs to know."""

    name: str
    decide: Policy
    needs: tuple[str, ...]
    """Names of beliefs, such as `q`, `true_q`, or one of the paper's methods; see `policy`."""


_REGISTRY: Registry[Registered] = Registry("policy", "deccaf.policies")
POLICIES = _REGISTRY.known
"""The policies of deccaf and those that were added, by name; `find` knows those of other packages too."""


def policy(name: str, needs: Iterable[str] = ()) -> Callable[[Policy], Policy]:
    """Register a policy under a name: a decorator.

    `needs` are the beliefs that it asks for, such as `q`, or the names of the paper's methods; whoever makes
    the beliefs of a batch makes these, and a policy whose needs cannot be met is not asked.
    """

    def add(decide: Policy) -> Policy:
        _REGISTRY.add(name, Registered(name, decide, tuple(needs)))
        return decide

    return add


def find(name: str) -> Registered:
    """A policy by its name, of deccaf, of this process, or of an installed package."""
    found = _REGISTRY.find(name)
    if not isinstance(found, Registered):
        del POLICIES[name]
        raise ConfigError(
            f"policy {name!r}: the package that brings it must register it with @policy({name!r})"
        )
    return found


def optimal(loss: Array, machine_says: Ints, room: Room, seed: int) -> Decided:
    """The exact plan of least total loss, verified."""
    problem = AssignmentProblem.of(loss, room.upper, room.lower, room.eligible, room.name)
    plan = solve_problem(problem, seed=seed)
    verify(problem, plan)
    return Decided(plan.maker.astype(np.int64), machine_says, plan)


def greedy(loss: Array, machine_says: Ints, room: Room) -> Decided:
    """Case by case in the order of arrival, the maker of least loss who has room left."""
    left, maker = room.upper.copy(), np.empty(len(loss), np.int64)
    owed, waiting = room.lower.copy(), len(loss)
    for i, row in enumerate(loss):
        allowed = left > 0 if room.eligible is None else (left > 0) & room.eligible[i]
        if owed.sum() >= waiting:
            allowed &= owed > 0  # whoever must get more gets what remains
        if not allowed.any():
            raise CapacityError(
                f"{room.name + ': ' if room.name else ''}greedy: nobody has room for case {i} of {len(loss)}"
            )
        chosen = int(np.where(allowed, row, np.inf).argmin())
        maker[i] = chosen
        left[chosen] -= 1
        owed[chosen] = max(owed[chosen] - 1, 0)
        waiting -= 1
    return Decided(maker, machine_says)


def without_limits(loss: Array, machine_says: Ints, room: Room) -> Decided:
    """Every case to its best maker, however full (the paper's rejector, eq. 7)."""
    if room.eligible is not None:
        loss = np.where(room.eligible, loss, np.inf)
    return Decided(loss.argmin(axis=1), machine_says)


def drawn_plan(cases: int, machine_says: Ints, room: Room, seed: int) -> Decided:
    """A random plan that fills the experts' room with cases that they may get."""
    loss = np.random.default_rng(seed).random((cases, len(room.upper)))
    loss[:, 0] = 2.0
    found = optimal(loss, machine_says, room, seed)
    if room.eligible is not None:
        return found
    return by_lot(found, np.ones(cases, bool), len(room.upper))


def by_lot(found: Decided, drawn: NDArray[np.bool_], makers: int) -> Decided:
    """The same with everybody's chances: the cases in `drawn` were dealt by lot among those who got them."""
    chances = np.asarray(found.maker[:, None] == np.arange(makers), np.float64)
    if drawn.any():
        chances[drawn] = chances[drawn].mean(axis=0)
    return replace(found, chances=chances)


def shuffled(cases: int, room: Room, seed: int) -> Ints:
    """Makers in a random order that fills the lower limits, then the experts' room; the machine the rest."""
    rng = np.random.default_rng(seed)
    lower, spare = room.lower, np.minimum(room.upper, cases) - room.lower
    people = rng.permutation(np.repeat(np.arange(1, len(spare)), spare[1:]))
    order = np.concatenate(
        [np.repeat(np.arange(len(lower)), lower), people, np.zeros(int(spare[0]), np.int64)]
    )
    if len(order) < cases or lower.sum() > cases:
        raise CapacityError(
            f"{room.name + ': ' if room.name else ''}{cases} cases, limits from {lower.sum()} to {len(order)}"
        )
    return np.asarray(rng.permutation(order[:cases]))
