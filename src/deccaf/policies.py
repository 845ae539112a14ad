"""Ways to decide who decides: deccaf, the paper's methods, and what one would do without either.

A policy sees what models believe about the cases of one batch (`Beliefs`) and how much everybody may get
(`Room`), and says who decides each case and what the machine would say (`Decided`). All have one signature,
so that the benchmark, the backtest and a method of your own stand side by side::

    @policy("mine", needs=("q",))
    def mine(beliefs, room, seed):
        return optimal(my_loss(beliefs), beliefs.machine_says(), room, seed)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from deccaf.assign import Assignment, AssignmentProblem, verify
from deccaf.assign.solve import solve_problem
from deccaf.data.costs import MACHINE, expected_loss, machine_losses
from deccaf.errors import CapacityError, ConfigError, did_you_mean

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Correctness:
    """A method of the paper: probabilities under the distribution reweighted by what errors cost."""

    p: Array
    """(cases, K): P~(y | x) of the cost-weighted classifier."""
    correct: Array
    """(cases, experts): P~(the expert is right | x)."""

    def loss(self) -> Array:
        """1 - P~(right) of the machine, which says its likelier class, and of each expert (the paper's eq. 7,
        which prints the argmin of the correctness)."""
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
    """The paper's methods: `hem`, `hem-refit` and `ova`."""
    review_cost: Array | float = 0.0
    """What it costs to ask each expert."""

    def __len__(self) -> int:
        return len(self.p)

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
    """Out of `q`, `true_q`, and the names of the paper's methods."""


POLICIES: dict[str, Registered] = {}
"""All policies by name."""


def policy(name: str, needs: Iterable[str] = ()) -> Callable[[Policy], Policy]:
    """Register a policy under a name: a decorator."""

    def add(decide: Policy) -> Policy:
        if name in POLICIES:
            raise ConfigError(f"policy {name!r} is registered already")
        POLICIES[name] = Registered(name, decide, tuple(needs))
        return decide

    return add


def find(name: str) -> Registered:
    """A policy by its name."""
    if name not in POLICIES:
        known = ", ".join(POLICIES)
        raise ConfigError(f"policy {name!r}: known are {known}{did_you_mean(name, POLICIES)}")
    return POLICIES[name]


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


@policy("full-rejection")
def full_rejection(beliefs: Beliefs, room: Room, seed: int) -> Decided:
    """The last class for every case, without looking."""
    everything = np.zeros(len(beliefs), np.int64)
    return Decided(everything, everything + beliefs.p.shape[1] - 1)


@policy("machine")
def machine(beliefs: Beliefs, room: Room, seed: int) -> Decided:
    """The calibrated classifier decides every case."""
    return Decided(np.zeros(len(beliefs), np.int64), beliefs.machine_says())


@policy("only-classifier", needs=("hem",))
def only_classifier(beliefs: Beliefs, room: Room, seed: int) -> Decided:
    """The paper's classifier decides every case."""
    return Decided(np.zeros(len(beliefs), np.int64), beliefs.method("hem").p.argmax(axis=1))


@policy("random", needs=("hem",))
def random(beliefs: Beliefs, room: Room, seed: int) -> Decided:
    """Everybody's room is filled at random; the paper's classifier decides what the machine gets."""
    return Decided(_shuffled(len(beliefs), room, seed), beliefs.method("hem").p.argmax(axis=1))


@policy("random-experts")
def random_experts(beliefs: Beliefs, room: Room, seed: int) -> Decided:
    """Everybody's room is filled at random; the calibrated classifier decides what the machine gets."""
    return Decided(_shuffled(len(beliefs), room, seed), beliefs.machine_says())


@policy("ova", needs=("ova",))
def ova(beliefs: Beliefs, room: Room, seed: int) -> Decided:
    """One model per expert, greedy in the order of arrival, as published."""
    known = beliefs.method("ova")
    return greedy(known.loss(), known.p.argmax(axis=1), room)


@policy("ova-optimal", needs=("ova",))
def ova_optimal(beliefs: Beliefs, room: Room, seed: int) -> Decided:
    """One model per expert with the exact plan: how much of the paper's gain is the solver."""
    known = beliefs.method("ova")
    return optimal(known.loss(), known.p.argmax(axis=1), room, seed)


@policy("hem-greedy", needs=("hem",))
def hem_greedy(beliefs: Beliefs, room: Room, seed: int) -> Decided:
    """The paper's expertise model, greedy in the order of arrival."""
    known = beliefs.method("hem")
    return greedy(known.loss(), known.p.argmax(axis=1), room)


@policy("deccaf-paper", needs=("hem",))
def deccaf_paper(beliefs: Beliefs, room: Room, seed: int) -> Decided:
    """The paper's DeCCaF: its classifier, its expertise model, the exact plan."""
    known = beliefs.method("hem")
    return optimal(known.loss(), known.p.argmax(axis=1), room, seed)


@policy("deccaf-paper-refit", needs=("hem-refit",))
def deccaf_paper_refit(beliefs: Beliefs, room: Room, seed: int) -> Decided:
    """The same after a refit on training and validation time together, the data that `deccaf` learns from."""
    known = beliefs.method("hem-refit")
    return optimal(known.loss(), known.p.argmax(axis=1), room, seed)


@policy("deccaf", needs=("q",))
def deccaf(beliefs: Beliefs, room: Room, seed: int) -> Decided:
    """Expected cost from the calibrated classifier and the decision model, the exact plan."""
    return optimal(beliefs.loss(beliefs.q), beliefs.machine_says(), room, seed)


@policy("oracle", needs=("true_q",))
def oracle(beliefs: Beliefs, room: Room, seed: int) -> Decided:
    """The same with the experts' true chances of error: what a perfect decision model would reach."""
    return optimal(beliefs.loss(beliefs.true_q), beliefs.machine_says(), room, seed)


def _shuffled(cases: int, room: Room, seed: int) -> Ints:
    """Makers in a random order that fills the lower limits, then the experts' room; the machine the rest."""
    if room.eligible is not None:
        raise ConfigError("the random policies do not know who may get what; leave the eligibility out")
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
