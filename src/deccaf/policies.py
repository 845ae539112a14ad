"""Ways to decide who decides: deccaf, the paper's methods, and what one would do without either.

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
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from deccaf.assign import Assignment, AssignmentProblem, verify
from deccaf.assign.solve import solve_problem
from deccaf.data.costs import MACHINE, expected_loss, machine_losses
from deccaf.errors import CapacityError, ConfigError
from deccaf.models.cases.classifier import reweighted, unweighted
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
    chances: Array | None = None
    """(cases, makers): how likely each maker was to get each case, for policies that draw lots. An estimate
    from a log then rests on these, which say more than one draw. None: as `maker` says."""


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
    says = beliefs.method("hem").p.argmax(axis=1)
    if room.eligible is not None:
        return _drawn(len(beliefs), says, room, seed)
    return Decided(_shuffled(len(beliefs), room, seed), says)


@policy("random-experts")
def random_experts(beliefs: Beliefs, room: Room, seed: int) -> Decided:
    """Everybody's room is filled with random cases that they may get; the calibrated classifier decides the
    rest."""
    return _drawn(len(beliefs), beliefs.machine_says(), room, seed)


@policy("rejection", needs=("hem",))
def rejection(beliefs: Beliefs, room: Room, seed: int) -> Decided:
    """Rejection learning (Chow, 1970): people get what the paper's classifier is least sure of, whoever has
    room, as nothing is known of them."""
    known, cases = beliefs.method("hem").p, len(beliefs)
    to_people = min(cases - int(room.lower[0]), int(np.minimum(room.upper[1:], cases).sum()))
    if room.eligible is not None or to_people < cases - int(room.upper[0]):
        return random(beliefs, room, seed)
    unsure = np.argsort(known.max(axis=1), kind="stable")[:to_people]
    maker = np.zeros(cases, np.int64)
    people = Room(np.append(0, room.lower[1:]), np.append(0, room.upper[1:]), name=room.name)
    maker[unsure] = _shuffled(to_people, people, seed)
    return Decided(maker, known.argmax(axis=1))


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


@policy("ova-as-released", needs=("ova-as-released",))
def ova_as_released(beliefs: Beliefs, room: Room, seed: int) -> Decided:
    """`ova` trained as the paper's released code does: the classifier's output stands for the alert score."""
    known = beliefs.method("ova-as-released")
    return greedy(known.loss(), known.p.argmax(axis=1), room)


@policy("hem-as-released", needs=("hem-as-released",))
def hem_as_released(beliefs: Beliefs, room: Room, seed: int) -> Decided:
    """`deccaf-paper` trained as the paper's released code does: the classifier's output for the score."""
    known = beliefs.method("hem-as-released")
    return optimal(known.loss(), known.p.argmax(axis=1), room, seed)


@policy("deccaf", needs=("q",))
def deccaf(beliefs: Beliefs, room: Room, seed: int) -> Decided:
    """Expected cost from the calibrated classifier and the decision model, the exact plan."""
    return optimal(beliefs.loss(beliefs.q), beliefs.machine_says(), room, seed)


@policy("deccaf-blind", needs=("q",))
def deccaf_blind(beliefs: Beliefs, room: Room, seed: int) -> Decided:
    """deccaf, but taking all experts for the same average person: it knows when to ask, not whom."""
    if beliefs.q is None:
        return machine(beliefs, room, seed)
    average = np.broadcast_to(beliefs.q.mean(axis=1, keepdims=True), beliefs.q.shape)
    found = optimal(beliefs.loss(average), beliefs.machine_says(), room, seed)
    asked, loads = found.maker > 0, np.bincount(found.maker, minlength=len(beliefs.makers))[1:]
    if room.eligible is not None or not loads.any():
        return found
    # whom it asks is chance, in the shares of what everybody gets
    return replace(found, chances=np.column_stack([~asked, np.outer(asked, loads / loads.sum())]))


def mixture(classifier: str, experts: str, objective: str) -> Policy:
    """One corner of the cube between the paper's DeCCaF and ours, with the exact plan.

    `classifier` is `paper` or `ours`, `experts` are modelled by `hem` or by `decisions`, and the plan keeps
    `correct`, the sum of P~(right), or `cost` small. Where an error costs c(y), one belief gives the other:
    p~ is proportional to c p, and the expected cost of a maker is (sum over y of c p) (1 - P~(right)).
    """

    def decide(beliefs: Beliefs, room: Room, seed: int) -> Decided:
        weight = beliefs.costs.sum(axis=2) / (beliefs.p.shape[1] - 1)
        if classifier == "paper":
            bent = beliefs.method("hem").p
            plain = unweighted(bent, weight)
        else:
            plain, bent = beliefs.p, reweighted(beliefs.p, weight)
        if objective == "cost" and experts == "decisions":
            known = replace(beliefs, p=plain)
            return optimal(known.loss(known.q), known.machine_says(), room, seed)
        if experts == "hem":
            right = beliefs.method("hem").correct
        elif beliefs.q is None:
            raise ConfigError("the policy needs a decision model, and there is none among the beliefs")
        else:
            right = np.einsum("iy,ijyy->ij", bent, beliefs.q)
        loss = Correctness(bent, right).loss()
        if objective == "cost":
            loss *= (plain * weight).sum(axis=1, keepdims=True)
            loss[:, 1:] += np.asarray(beliefs.review_cost)
        return optimal(loss, bent.argmax(axis=1), room, seed)

    return decide


MIXTURES = {
    (classifier, experts, objective): f"{classifier}-{experts}-{objective}"
    for classifier in ("paper", "ours")
    for experts in ("hem", "decisions")
    for objective in ("correct", "cost")
}
"""The corners of the cube by what they are made of; two have names of their own."""
MIXTURES["paper", "hem", "correct"], MIXTURES["ours", "decisions", "cost"] = "deccaf-paper", "deccaf"
for _made_of, _name in MIXTURES.items():
    if _name not in POLICIES:
        policy(_name, needs=("hem", "q"))(mixture(*_made_of))


@policy("oracle", needs=("true_q",))
def oracle(beliefs: Beliefs, room: Room, seed: int) -> Decided:
    """The same with the experts' true chances of error: what a perfect decision model would reach."""
    return optimal(beliefs.loss(beliefs.true_q), beliefs.machine_says(), room, seed)


def without_limits(loss: Array, machine_says: Ints, room: Room) -> Decided:
    """Every case to its best maker, however full (the paper's rejector, eq. 7)."""
    if room.eligible is not None:
        loss = np.where(room.eligible, loss, np.inf)
    return Decided(loss.argmin(axis=1), machine_says)


@policy("deccaf-paper-without-limits", needs=("hem",))
def deccaf_paper_without_limits(beliefs: Beliefs, room: Room, seed: int) -> Decided:
    """The paper's classifier and rejector if nobody's time were limited."""
    known = beliefs.method("hem")
    return without_limits(known.loss(), known.p.argmax(axis=1), room)


@policy("deccaf-without-limits", needs=("q",))
def deccaf_without_limits(beliefs: Beliefs, room: Room, seed: int) -> Decided:
    """deccaf if nobody's time were limited."""
    return without_limits(beliefs.loss(beliefs.q), beliefs.machine_says(), room)


@policy("oracle-without-limits", needs=("true_q",))
def oracle_without_limits(beliefs: Beliefs, room: Room, seed: int) -> Decided:
    """Every case to whoever errs at least cost, whatever their room: a bound that no policy can reach."""
    return without_limits(beliefs.loss(beliefs.true_q), beliefs.machine_says(), room)


def _drawn(cases: int, machine_says: Ints, room: Room, seed: int) -> Decided:
    """A random plan that fills the experts' room with cases that they may get."""
    loss = np.random.default_rng(seed).random((cases, len(room.upper)))
    loss[:, 0] = 2.0
    found = optimal(loss, machine_says, room, seed)
    if room.eligible is not None:
        return found
    loads = np.bincount(found.maker, minlength=len(room.upper))
    return replace(found, chances=np.broadcast_to(loads / max(cases, 1), loss.shape))


def _shuffled(cases: int, room: Room, seed: int) -> Ints:
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
