"""Searches for the settings of the paper's models, over its spaces; what they find competes with fixed ones.

A search is one piece of work: its trials run one after the other, so that it finds the same wherever it runs.
Searches of different models and scenarios run side by side.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from deccaf.benchmark.scene import Scene, Setting
from deccaf.benchmark.store import Found
from deccaf.data.costs import Costs
from deccaf.data.history import History
from deccaf.models.budgets import Choice
from deccaf.models.paper.expertise import HumanExpertiseModel, OneVsAll
from deccaf.models.paper.paper_classifier import OFFSETS, PaperClassifier
from deccaf.models.paper.spaces import SEARCHES, Budget, Search

_OFFSET = "offset"
Params = dict[str, Any]


@dataclass(frozen=True)
class Wanted:
    """One search: whose settings, in which space, with which budget."""

    model: str
    """`classifier`, `hem` or `ova`."""
    space: str
    """A name in `deccaf.models.paper.spaces.SEARCHES`."""
    budget: str | int
    """A name, or the number of trials."""
    keep: int
    offset: float | None = None
    """Of the classifier: the one initial score to search with; None: it is searched too."""
    expert: int | None = None
    """Of one-vs-all: whose own model; None: one set of settings for all experts' models together."""

    @property
    def name(self) -> str:
        """For a folder."""
        part = self.offset if self.offset is not None else self.expert
        kind = self.space if self.model == "classifier" else self.model
        return kind + ("" if part is None else f"-{part:g}")

    @property
    def trials(self) -> Budget:
        """The budget; of a bare number three fifths are drawn at random."""
        if isinstance(self.budget, str):
            return SEARCHES[self.space].budget(self.budget)
        return Budget(self.budget, round(0.6 * self.budget))


def wanted(
    classifier: str | int, expertise: str | int, keep: int, *, apart: bool, experts: int
) -> tuple[list[Wanted], list[Wanted]]:
    """The searches of the classifier, and those of the expertise models; `apart` as the paper made them."""
    first: list[Wanted] = []
    if classifier != "none" and not apart:
        first = [Wanted("classifier", "classifier", classifier, keep)]
    elif classifier != "none":
        spaces = ("classifier", "classifier-depth-2")
        first = [Wanted("classifier", space, classifier, keep, offset=o) for space in spaces for o in OFFSETS]
    second: list[Wanted] = []
    if expertise != "none":
        people: Sequence[int | None] = range(experts) if apart else [None]
        space = "expertise" if apart else "expertise-shallow"
        second = [Wanted("hem", space, expertise, keep)]
        second += [Wanted("ova", space, expertise, keep, expert=j) for j in people]
    return first, second


def check_tools(searches: tuple[list[Wanted], list[Wanted]]) -> None:
    """Fail before the work begins where there is something to search for and nothing to search with."""
    if any(searches):
        from deccaf.models.paper import tuning  # noqa: F401  (raises without the extra `search`)


def run_search(setting: Setting, ratio: float, share: float, seed: int, what: Wanted) -> Found:
    """The best settings on the validation month; `seed` is that of the history."""
    from deccaf.models.paper.tuning import tune  # its library is an extra

    started = time.perf_counter()
    scene, costs = setting.scene(share), Costs.binary(ratio)
    if what.model == "classifier":
        objective, search = _classifier(setting, scene, costs, what)
    else:
        log = setting.crew(ratio, seed).log(scene)
        objective, search = _expertise(scene, log, costs, what), SEARCHES[what.space]
    tuned = tune(objective, search, what.trials, seed=setting.seed)
    best = tuned.trials.sort_values(["loss", "trial"]).head(what.keep)
    fixed = {k: v for k, v in tuned.params.items() if k not in tuned.trials}
    names = [name for name in tuned.trials if name not in {"trial", "loss", "seconds"}]
    shortlist = [{**fixed, **_plain(row)} for row in best[names].to_dict("records")]
    return Found(
        {
            "shortlist": shortlist,
            "losses": best["loss"].tolist(),
            "trials": len(tuned.trials),
            "seconds": time.perf_counter() - started,
        },
        {"trials": tuned.trials},
    )


def _classifier(
    setting: Setting, scene: Scene, costs: Costs, what: Wanted
) -> tuple[Callable[[Params], float], Search]:
    features, weight = paper_features(setting, scene), costs.case_weights(scene.label)
    base = SEARCHES[what.space]
    offset: Any = Choice(OFFSETS) if what.offset is None else what.offset
    search = replace(base, space={**base.space, _OFFSET: offset})

    def loss(params: Params) -> float:
        settings, start = split_offset(params)
        model = PaperClassifier(candidates=[settings], offsets=[start])
        return float(model.fit(features, scene.label, weight, validation=scene.held).losses_[0])

    return loss, search


def _expertise(scene: Scene, log: History, costs: Costs, what: Wanted) -> Callable[[Params], float]:
    names = sorted(log.expert.unique())
    mine = np.ones(len(log.case), bool)
    if what.expert is not None:
        mine = (log.expert == names[what.expert]).to_numpy()
    case, who, said = log.case[mine], log.expert[mine], log.decision[mine]
    features, label, held = scene.past.features.iloc[case], scene.label[case], scene.held[case]
    weight = costs.case_weights(label)
    of_expert = [weight[held & (who == name).to_numpy()].sum() for name in sorted(who.unique())]

    def loss(params: Params) -> float:
        kind = HumanExpertiseModel if what.model == "hem" else OneVsAll
        model = kind(candidates=[params]).fit(features, label, who, said, weight, validation=held)
        if what.model == "hem":
            return float(model.losses_[0])
        return float(np.average([losses[0] for losses in model.losses_], weights=of_expert))

    return loss


def paper_features(setting: Setting, scene: Scene) -> Any:
    """What the paper's classifier sees: everything but the alert model's score."""
    return scene.past.features.drop(columns=setting.score, errors="ignore")


def split_offset(params: Params) -> tuple[Params, float]:
    """LightGBM's settings, and the addition to the initial score."""
    return {name: value for name, value in params.items() if name != _OFFSET}, float(params[_OFFSET])


def _plain(row: Mapping[Any, Any]) -> Params:
    """Numbers as JSON has them; whole ones stay whole."""
    return {str(name): value.item() if hasattr(value, "item") else value for name, value in row.items()}
