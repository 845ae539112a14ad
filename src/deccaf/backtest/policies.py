"""What the policies of a backtest know, and what they do with the test cases: models, rooms, plans."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.backtest.split import Part, Rooms
from deccaf.estimator import DeCCaF
from deccaf.evaluate.hidden_truth import counted
from deccaf.policies import Beliefs, Correctness, Decided, Registered, find

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

BLIND = "deccaf-blind"
_METHODS = {"q": "deccaf", "hem": "paper", "ova": "ova"}
"""What a policy needs, and the method that learns it."""


_CALLED = {"random": "random-experts"}
"""Reports say `random` for random people with the calibrated classifier, which is what a desk could do."""


def registered(name: str) -> Registered:
    """The policy that a backtest knows by this name."""
    return find(_CALLED.get(name, name))


@dataclass
class Models:
    """The models of one split, each classifier fitted once: draws differ in decisions, not in cases."""

    part: Part
    needs: set[str]
    step: Callable[[str], None]
    classifiers: dict[str, object] = field(default_factory=dict)

    def beliefs(self, drawn: Ints) -> Beliefs:
        """What the models say of the test cases, after learning from the drawn decisions."""
        part = self.part
        # what labels hide is guessed from the training part alone
        history = counted(part.history.take(part.train, drawn), part.config.labels).history
        cases = part.cases.features.iloc[part.rows]
        paper: dict[str, Correctness] = {}
        chances: tuple[Array, Array] | None = None
        for need, method in _METHODS.items():
            if need not in self.needs:
                continue
            self.step(f"learning from {len(drawn):,} decisions of {len(part.experts)} people ({method})")
            shared = "hem" if need == "ova" and "hem" in self.classifiers else need
            model = DeCCaF.from_config(part.config).set_params(method=method)
            learned = model.fit_history(history, self.classifiers.get(shared)).learned_
            features = model.schema_.cast(cases) if model.schema_.spaces else cases
            self.classifiers.setdefault(need, learned.classifier)
            if need == "q":
                q = learned.decision_chances(features, part.experts)
                assert q is not None
                chances = (learned.chances(features, part.cost_table), q)
            else:
                p, said = (
                    learned.classifier.predict(features),
                    learned.decisions.predict(features, part.experts),
                )
                paper[need] = Correctness(p, said)
        assert chances is not None
        return Beliefs(part.experts, part.cost_table, *chances, paper=paper, review_cost=part.review)


def needs_of(policies: Sequence[str]) -> set[str]:
    """What the policies need to know: `q`, `hem`, `ova`."""
    return {"q"}.union(*(registered(name).needs for name in policies))


def decide(name: str, beliefs: Beliefs, rooms: Rooms, seed: int) -> Decided:
    """One policy on all batches."""
    run = registered(name).decide
    if len(rooms) == 1:
        return run(beliefs, rooms[0][1], seed)
    maker, says = np.zeros(len(beliefs), np.int64), np.zeros(len(beliefs), np.int64)
    for rows, room in rooms:
        found = run(taken(beliefs, rows), room, seed)
        maker[rows], says[rows] = found.maker, found.machine_says
    return Decided(maker, says)


def chances(name: str, found: Decided, rooms: Rooms) -> Array:
    """(cases, makers): chance of each maker to get each case under a policy.

    Policies that draw at random are known by their chances, which say more than one draw of them.
    """
    makers = len(rooms[0][1].upper)
    out = np.asarray(found.maker[:, None] == np.arange(makers), np.float64)
    if name not in ("random", BLIND):
        return out
    for rows, room in rooms:
        maker = found.maker[rows]
        may = np.ones((len(rows), makers - 1), bool) if room.eligible is None else room.eligible[:, 1:]
        if name == BLIND:
            may = may & (maker > 0)[:, None]
        loads = np.bincount(maker, minlength=makers)[1:]
        drawn = may * (loads / np.maximum(may.sum(axis=0), 1))
        total = drawn.sum(axis=1, keepdims=True)
        if name == BLIND:
            some = (maker > 0) & (total[:, 0] > 0)
            out[rows[some], 1:] = (drawn / np.maximum(total, 1e-12))[some]
            continue
        out[rows, 1:] = drawn / np.maximum(total, 1.0)
        out[rows, 0] = 1.0 - out[rows, 1:].sum(axis=1)
    return out


def priced(beliefs: Beliefs, costs: Array) -> Beliefs:
    """The same beliefs under other costs: nothing is learned anew."""
    return replace(beliefs, costs=costs)


def taken(beliefs: Beliefs, rows: Ints) -> Beliefs:
    """What is believed of some of the cases."""
    paper: Mapping[str, Correctness] = {
        name: Correctness(known.p[rows], known.correct[rows]) for name, known in beliefs.paper.items()
    }
    paid = np.asarray(beliefs.review_cost, np.float64)
    return replace(
        beliefs,
        costs=beliefs.costs if len(beliefs.costs) == 1 else beliefs.costs[rows],
        p=beliefs.p[rows],
        q=None if beliefs.q is None else beliefs.q[rows],
        paper=paper,
        review_cost=paid if paid.ndim < 2 else paid[rows],
    )


def right_chances(part: Part, beliefs: Beliefs) -> pd.DataFrame:
    """One row per decision on a test case: expert, whether it was right, and the chance given to that."""
    mine = part.decisions
    place, who = part.place[part.position[mine]], part.expert[mine]
    q = np.asarray(beliefs.q)[place, who]
    right = np.einsum("iyy,iy->i", q, beliefs.p[place])
    return pd.DataFrame(
        {
            "decision": mine,
            "expert": np.array(part.experts, dtype=object)[who],
            "right": (part.log.decision[mine] == part.truth[place]).astype(float),
            "chance": np.clip(right, 0.0, 1.0),
        }
    )
