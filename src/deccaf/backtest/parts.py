"""One split of a backtest: learn from one part, let every policy plan the other, count what it cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.data.cases import Cases
from deccaf.data.config import Config
from deccaf.data.costs import Costs, review_costs
from deccaf.data.decisions import Decisions
from deccaf.data.history import History
from deccaf.estimator import DeCCaF
from deccaf.evaluate.off_policy import logged
from deccaf.models.methods import Learned
from deccaf.policies import Beliefs, Correctness, Decided, Registered, Room, find

if TYPE_CHECKING:
    from deccaf.backtest.run import Options

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

HISTORY = "as it was"
BLIND = "deccaf-blind"


_CALLED = {"random": "random-experts"}
"""Policies that a backtest calls otherwise: it compares with the calibrated machine, not with the paper's."""


def registered(name: str) -> Registered:
    """The policy that a backtest knows by this name."""
    return find(_CALLED.get(name, name))


def needs_of(policies: Sequence[str]) -> set[str]:
    """What the policies need to know: `q`, `hem`, `ova`."""
    return {"q"}.union(*(registered(name).needs for name in policies))


@dataclass(frozen=True, eq=False)
class Part:
    """One split of the history."""

    history: History
    config: Config
    costs: Costs
    experts: tuple[str, ...]
    test: Mask
    train: Mask
    share: float
    propensity: Array | None

    @property
    def cases(self) -> Cases:
        """All cases, of both parts."""
        return self.history.cases

    @property
    def log(self) -> Decisions:
        """All decisions, of both parts."""
        return self.history.log

    @property
    def position(self) -> Ints:
        """For every decision, the position of its case."""
        return self.history.case

    @cached_property
    def rows(self) -> Ints:
        """Positions of the test cases."""
        return np.flatnonzero(self.test)

    @cached_property
    def truth(self) -> Ints:
        """The truth of the test cases."""
        return np.asarray(self.cases.label)[self.rows]

    @cached_property
    def cost_of(self) -> Array:
        """(test cases, K): what each decision costs, given the truth."""
        table = self.costs.array(self.cases.amounts.iloc[self.rows])
        return np.asarray(np.broadcast_to(table, (len(self.rows), *table.shape[1:]))[
            np.arange(len(self.rows)), self.truth
        ])  # fmt: skip

    @cached_property
    def review(self) -> Array:
        """What it costs to ask each expert."""
        return review_costs(self.config.costs.review_cost, self.experts)

    @cached_property
    def decisions(self) -> Ints:
        """Positions in the log of the decisions on test cases."""
        return np.flatnonzero(self.test[self.position])

    @cached_property
    def expert(self) -> Ints:
        """For every decision of the log, the position of its expert."""
        return np.asarray(pd.Index(self.experts).get_indexer(pd.Index(self.log.expert)), np.int64)

    @cached_property
    def loads(self) -> Ints:
        """How many test cases each expert really decided."""
        return np.bincount(self.expert[self.decisions], minlength=len(self.experts))

    def room(self, eligible: Mask | None) -> Room:
        """Everybody has their share of what they really had; the machine has no limit."""
        upper = np.append(len(self.rows), _whole_shares(np.asarray(self.share * self.loads, np.float64)))
        return Room(np.zeros(len(upper), np.int64), np.minimum(upper, len(self.rows)), eligible, "test part")


def _whole_shares(shares: Array) -> Ints:
    """Whole numbers next to the shares, with the shares' total: the largest remainders are rounded up.

    Where everybody has decided a few cases only, rounding down would leave the team without any room. Equal
    remainders go by lot, always the same.
    """
    whole = np.floor(shares + 1e-9).astype(np.int64)
    spare = int(np.floor(shares.sum() + 1e-9)) - int(whole.sum())
    lot = np.random.default_rng(0).permutation(len(shares))
    order = np.lexsort((lot, -(shares - whole).round(9)))
    whole[order[:spare]] += 1
    return whole


@dataclass(frozen=True, eq=False)
class Tested:
    """What one split found."""

    terms: pd.DataFrame
    """Test cases (positions) x policies: cost, or its doubly-robust terms."""
    deferred: pd.Series
    """By policy: share of the cases given to people."""
    received: pd.DataFrame
    rows: pd.DataFrame
    calibration: pd.DataFrame
    effective: float = np.inf
    event: float = 0.0
    """How large a costly decision counts in an estimate, for its interval."""


def known_part(part: Part, options: Options, draw: int) -> Tested:
    """Learn from one drawn decision per case; every outcome in the test part is known."""
    said = np.full((len(part.rows), len(part.experts)), -1, np.int64)
    place = np.cumsum(part.test) - 1
    mine = part.decisions
    said[place[part.position[mine]], part.expert[mine]] = part.log.decision[mine]
    rng = np.random.default_rng([options.seed, draw])
    beliefs = _beliefs(part, options, _drawn(part, rng))
    room = part.room(np.hstack([np.ones((len(said), 1), bool), said >= 0]))
    here, decided = np.arange(len(said)), {}
    terms = {}
    for name in options.policies:
        decided[name] = found = registered(name).decide(beliefs, room, options.seed + draw)
        decision = np.where(found.maker == 0, found.machine_says, said[here, np.maximum(found.maker - 1, 0)])
        terms[name] = part.cost_of[here, decision] + np.where(
            found.maker == 0, 0.0, np.append(0.0, part.review)[found.maker]
        )
    everyone = np.bincount(place[part.position[mine]], _costs_of_decisions(part), minlength=len(said))
    terms[HISTORY] = everyone / np.maximum((said >= 0).sum(axis=1), 1)
    found = decided["deccaf"]
    chosen = np.where(found.maker == 0, found.machine_says, said[here, np.maximum(found.maker - 1, 0)])
    rows = _rows(part, found.maker, chosen, terms["deccaf"], np.ones(len(said)))
    return _tested(part, terms, decided, room, beliefs, rows)


def estimated_part(part: Part, options: Options) -> Tested:
    """Learn from one decision per case; costs in the test part are doubly-robust terms."""
    mine = part.decisions[np.argsort(part.position[part.decisions])]
    beliefs = _beliefs(part, options, np.flatnonzero(part.train[part.position]))
    room, n = part.room(None), len(part.rows)
    who, observed = part.expert[mine], _costs_of_decisions(part, mine)
    here, propensity = np.arange(n), np.asarray(part.propensity)[mine]
    # what each expert's decision is expected to cost, given the truth
    q = np.asarray(beliefs.q)[here, :, part.truth]
    predicted = np.einsum("ijm,im->ij", q, part.cost_of) + part.review
    terms, decided, effective, weight = {}, {}, 0.0, np.ones(n)
    for name in options.policies:
        decided[name] = found = registered(name).decide(beliefs, room, options.seed)
        chances = _chances(found, room)
        own = chances[:, 0] * part.cost_of[here, found.machine_says]
        expected = (chances[:, 1:] * predicted).sum(axis=1)
        both = logged(chances[here, 1 + who], propensity, observed, own, predicted[here, who], expected)
        terms[name] = both.doubly_robust()
        if name == "deccaf":
            effective, weight = both.effective_cases(), np.where(found.maker == 0, 1.0, both.weight)
            terms["deccaf (inverse propensity)"] = both.inverse_propensity()
    terms[HISTORY] = observed
    found = decided["deccaf"]
    matched = found.maker == who + 1
    chosen = np.where(found.maker == 0, found.machine_says, np.where(matched, part.log.decision[mine], -1))
    own = np.where(found.maker == 0, part.cost_of[here, found.machine_says], observed)
    rows = _rows(part, found.maker, chosen, own, weight)
    tested = _tested(part, terms, decided, room, beliefs, rows, effective)
    return replace(tested, event=both.event())


def _drawn(part: Part, rng: np.random.Generator) -> Ints:
    """One decision of each training case, drawn at random."""
    mine = rng.permutation(np.flatnonzero(part.train[part.position]))
    return np.sort(mine[np.unique(part.position[mine], return_index=True)[1]])


def _beliefs(part: Part, options: Options, drawn: Ints) -> Beliefs:
    """What the models say of the test cases, after learning from the drawn decisions."""
    history = part.history.take(part.train, drawn)
    features = part.cases.features.iloc[part.rows]
    methods = {"q": "deccaf", "hem": "paper", "ova": "ova"}
    fitted: dict[str, Learned] = {}
    classifier = None
    for need, method in methods.items():
        if need in needs_of(options.policies):
            model = DeCCaF.from_config(part.config).set_params(method=method)
            fitted[need] = model.fit_history(history, classifier if need == "ova" else None).learned_
            classifier = fitted[need].classifier if need == "hem" else classifier
    paper = {
        name: Correctness(m.classifier.predict(features), m.decisions.predict(features, part.experts))  # type: ignore[union-attr]
        for name, m in fitted.items()
        if name != "q"
    }
    ours = fitted["q"]
    return Beliefs(
        part.experts,
        part.costs.array(part.cases.amounts.iloc[part.rows]),
        ours.classifier.predict(features),
        ours.decisions.predict(features, part.experts),  # type: ignore[union-attr]
        paper=paper,
        review_cost=part.review,
    )


def _costs_of_decisions(part: Part, mine: Ints | None = None) -> Array:
    """What each decision on a test case cost, reviews included."""
    mine = part.decisions if mine is None else mine
    place = np.cumsum(part.test) - 1
    cost = part.cost_of[place[part.position[mine]], part.log.decision[mine]]
    return np.asarray(cost + part.review[part.expert[mine]])


def _chances(found: Decided, room: Room) -> Array:
    """(cases, makers): chance of each maker to get each case under a policy."""
    if found.chances is not None:
        return found.chances
    return np.asarray(found.maker[:, None] == np.arange(len(room.upper)), np.float64)


def _rows(part: Part, maker: Ints, decision: Ints, cost: Array, weight: Array) -> pd.DataFrame:
    table = pd.DataFrame(
        {"case": part.rows, "maker": maker, "decision": decision, "truth": part.truth, "cost": cost}
    ).assign(weight=weight)
    groups = part.cases.groups.iloc[part.rows].reset_index(drop=True)
    return pd.concat([table, groups.add_prefix("group: ")], axis=1)


def _tested(
    part: Part,
    terms: Mapping[str, Array],
    decided: Mapping[str, Decided],
    room: Room,
    beliefs: Beliefs,
    rows: pd.DataFrame,
    effective: float = np.inf,
) -> Tested:
    deferred = pd.Series({name: float((found.maker > 0).mean()) for name, found in decided.items()})
    for name in terms:
        if name not in deferred:
            deferred[name] = deferred["deccaf"] if name.startswith("deccaf") else 1.0
    received = pd.DataFrame(
        {
            "decided": part.loads,
            "capacity": room.upper[1:],
            "received": np.bincount(decided["deccaf"].maker, minlength=len(room.upper))[1:],
        },
        index=pd.Index(part.experts, name="expert"),
    )
    mine = part.decisions
    place, who = (np.cumsum(part.test) - 1)[part.position[mine]], part.expert[mine]
    q = np.asarray(beliefs.q)[place, who]
    right = np.einsum("iyy,iy->i", q, beliefs.p[place])
    calibration = pd.DataFrame(
        {
            "expert": np.array(part.experts, dtype=object)[who],
            "right": (part.log.decision[mine] == part.truth[place]).astype(float),
            "chance": np.clip(right, 0.0, 1.0),
        }
    )
    frame = pd.DataFrame(dict(terms), index=part.rows)
    return Tested(frame, deferred, received, rows, calibration, effective)
