"""Rivals of other papers, learned from the same history as everybody else; see `deccaf.models.rivals`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter

import numpy as np
import pandas as pd

from deccaf.benchmark.scene import Setting
from deccaf.benchmark.store import Found
from deccaf.data.costs import MACHINE, Costs
from deccaf.models.rivals.annotated import Annotated, Deferral
from deccaf.models.rivals.conformal import conformal
from deccaf.models.rivals.probabilistic import probabilistic
from deccaf.models.rivals.surrogates import one_vs_all, softmax_surrogate, two_stage

LEARNERS: dict[str, Callable[[Annotated, pd.DataFrame, int], Deferral]] = {
    "verma-softmax": softmax_surrogate,
    "verma-ova": one_vs_all,
    "mao-two-stage": two_stage,
    "nguyen-em": probabilistic,
    "bary-conformal": conformal,
}
"""By the name of the policy."""
_SAYS = "says"


def fit_rival(setting: Setting, ratio: float, share: float, seed: int, name: str) -> Found:
    """What a rival makes of the test month; it trains on the training months and chooses on the next."""
    scene, crew, costs = setting.scene(share), setting.crew(ratio, seed), Costs.binary(ratio)
    log, started = crew.log(scene), perf_counter()
    place = pd.Index(crew.experts).get_indexer(pd.Index(log.expert))
    expert, decision = np.full(len(scene.past), -1), np.zeros(len(scene.past), np.int64)
    expert[log.case], decision[log.case] = place, log.decision
    known = Annotated(
        features=scene.past.features,
        truth=scene.label,
        expert=expert,
        decision=decision,
        weight=costs.case_weights(scene.label),
        held=scene.held,
        experts=crew.experts,
        classes=len(costs.classes),
    )
    found = LEARNERS[name](known, scene.test.features, setting.seed)
    seconds = {name: perf_counter() - started}
    return Found({"seconds": seconds}, {"predictions": _table(found, crew.experts)})


def _table(found: Deferral, experts: Sequence[str]) -> pd.DataFrame:
    table = pd.DataFrame(found.loss, columns=[MACHINE, *experts])
    return table.assign(**{_SAYS: found.says})


def read_rival(table: pd.DataFrame, experts: Sequence[str]) -> Deferral:
    """What `fit_rival` kept."""
    loss = table[[MACHINE, *experts]].to_numpy(np.float64)
    return Deferral(loss, table[_SAYS].to_numpy(np.int64))
