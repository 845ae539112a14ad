"""Rivals: ways to learn whom to ask from other papers, each by its own rule and with the exact plan.

The own rule takes for each case, in the order of arrival, whom the rival would choose among those who have
room. `NAME-optimal` minimises the sum of the same losses within the same limits. Rejection learning (Chow)
is `rejection`; the calibrated one-vs-all surrogate as the paper has it is `ova`.
"""

from __future__ import annotations

from deccaf.policies.base import Beliefs, Decided, Policy, Room, greedy, optimal, policy

RIVALS = {
    "verma-softmax": "the softmax surrogate for several experts (Verma, Barrejon, Nalisnick 2023)",
    "verma-ova": "its calibrated one-vs-all form, all models on the same features",
    "mao-two-stage": "two-stage deferral (Mao, Mohri, Mohri, Zhong 2023)",
    "nguyen-em": "probabilistic deferral by EM with missing annotations and workload control (Nguyen, Do, "
    "Carneiro 2025)",
    "bary-conformal": "conformal deferral to the most discriminating expert (Bary, Macq, Petit 2025)",
}
"""What each is; `deccaf.models.rivals` learns them."""


def _own_rule(name: str) -> Policy:
    def decide(beliefs: Beliefs, room: Room, seed: int) -> Decided:
        known = beliefs.rival(name)
        return greedy(known.loss, known.says, room)

    return decide


def _exact(name: str) -> Policy:
    def decide(beliefs: Beliefs, room: Room, seed: int) -> Decided:
        known = beliefs.rival(name)
        return optimal(known.loss, known.says, room, seed)

    return decide


for _name in RIVALS:
    policy(_name, needs=(_name,))(_own_rule(_name))
    policy(f"{_name}-optimal", needs=(_name,))(_exact(_name))
