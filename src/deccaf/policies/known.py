"""Policies: deccaf, the paper's methods, everything between the two, and what one would do without either."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from deccaf.errors import ConfigError
from deccaf.models.cases.classifier import reweighted, unweighted
from deccaf.policies.base import (
    POLICIES,
    Beliefs,
    Correctness,
    Decided,
    Policy,
    Room,
    by_lot,
    drawn_plan,
    greedy,
    optimal,
    policy,
    shuffled,
    without_limits,
)


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


@policy("only-classifier-fixed", needs=("fixed",))
def only_classifier_fixed(beliefs: Beliefs, room: Room, seed: int) -> Decided:
    """The same with the best of a few fixed settings, without what a search found."""
    return Decided(np.zeros(len(beliefs), np.int64), beliefs.method("fixed").p.argmax(axis=1))


@policy("random", needs=("hem",))
def random(beliefs: Beliefs, room: Room, seed: int) -> Decided:
    """Everybody's room is filled at random; the paper's classifier decides what the machine gets."""
    says = beliefs.method("hem").p.argmax(axis=1)
    if room.eligible is not None:
        return drawn_plan(len(beliefs), says, room, seed)
    found = Decided(shuffled(len(beliefs), room, seed), says)
    return by_lot(found, np.ones(len(beliefs), bool), len(beliefs.makers))


@policy("random-experts")
def random_experts(beliefs: Beliefs, room: Room, seed: int) -> Decided:
    """Everybody's room is filled with random cases that they may get; the calibrated classifier decides the
    rest."""
    return drawn_plan(len(beliefs), beliefs.machine_says(), room, seed)


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
    maker[unsure] = shuffled(to_people, people, seed)
    return by_lot(Decided(maker, known.argmax(axis=1)), maker > 0, len(beliefs.makers))


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
    if room.eligible is not None:
        return found
    # whom it asks is chance, in the shares of what everybody gets
    return by_lot(found, found.maker > 0, len(beliefs.makers))


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
