"""Searches for the settings of the paper's models, over its spaces; what they find competes with fixed ones.

The trials of a search run one after the other, so that it finds the same wherever it runs; every `PART` of
them are a piece of work. Searches of different models and scenarios run side by side.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from deccaf.benchmark.scene import Scene, Setting
from deccaf.benchmark.store import Found
from deccaf.data.costs import Costs
from deccaf.data.history import History
from deccaf.models.paper.expertise import HumanExpertiseModel, OneVsAll
from deccaf.models.paper.paper_classifier import OFFSETS, ClassifierRows
from deccaf.models.paper.searching import Trial, classifier_trial, expertise_trial, with_offset
from deccaf.models.paper.spaces import SEARCHES, Budget

PART = 100
"""Trials after which a search is put down, to be taken up by whoever has time."""
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
    most: int | None = None
    """Trials after which it ends; None: when its budget is spent."""

    @property
    def name(self) -> str:
        """For a folder."""
        part = self.offset if self.offset is not None else self.expert
        kind = self.space if self.model == "classifier" else self.model
        return kind + ("" if part is None else f"-{part:g}")

    @property
    def ends(self) -> list[int]:
        """After how many trials each part of the search ends."""
        return [*range(PART, self.trials.trials, PART), self.trials.trials]

    @property
    def trials(self) -> Budget:
        """The budget; of a bare number three fifths are drawn at random."""
        if isinstance(self.budget, str):
            whole = SEARCHES[self.space].budget(self.budget)
        else:
            whole = Budget(self.budget, round(0.6 * self.budget))
        return whole if self.most is None else Budget(min(self.most, whole.trials), whole.startup)


def wanted(
    classifier: str | int,
    expertise: str | int,
    keep: int,
    *,
    apart: bool,
    experts: int,
    most: int | None = None,
) -> tuple[list[Wanted], list[Wanted]]:
    """The searches of the classifier, and those of the expertise models; `apart` as the paper made them.

    `most` ends every search after so many trials.
    """
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
    return [replace(one, most=most) for one in first], [replace(one, most=most) for one in second]


def check_tools(searches: tuple[list[Wanted], list[Wanted]]) -> None:
    """Fail before the work begins where there is something to search for and nothing to search with."""
    if any(searches):
        from deccaf.models.paper import tuning  # noqa: F401  (raises without the extra `search`)


def run_search(
    setting: Setting,
    ratio: float,
    share: float,
    seed: int,
    what: Wanted,
    until: int | None = None,
    before: pd.DataFrame | None = None,
) -> Found:
    """The best settings on the validation month; `seed` is that of the history.

    `until` ends the search after so many trials, and `before` are the trials that were completed: parts of a
    search find what the search in one go does.
    """
    from deccaf.models.paper.tuning import tune  # its library is an extra

    started = time.perf_counter()
    scene, costs = setting.scene(share), Costs.binary(ratio)
    if what.model == "classifier":
        rows = ClassifierRows.of(
            paper_features(setting, scene),
            scene.label,
            costs.case_weights(scene.label),
            validation=scene.held,
            classes=len(costs.classes),
        )
        trial, search = classifier_trial(rows), with_offset(SEARCHES[what.space], what.offset)
    else:
        log = setting.crew(ratio, seed).log(scene)
        trial, search = _expertise(scene, log, costs, what), SEARCHES[what.space]
    budget = what.trials if until is None else Budget(until, what.trials.startup)
    tuned = tune(trial, search, budget, seed=setting.seed, before=before)
    best = tuned.trials.sort_values(["loss", "trial"]).head(what.keep)
    fixed = {k: v for k, v in tuned.params.items() if k not in tuned.trials}
    names = [name for name in tuned.trials if name not in {"trial", "loss", "seconds"}]
    shortlist = [{**fixed, **_plain(row)} for row in best[names].to_dict("records")]
    earlier = 0.0 if before is None else float(before["seconds"].sum())
    return Found(
        {
            "shortlist": shortlist,
            "losses": best["loss"].tolist(),
            "trials": len(tuned.trials),
            "seconds": earlier + time.perf_counter() - started,
        },
        {"trials": tuned.trials},
    )


def _expertise(scene: Scene, log: History, costs: Costs, what: Wanted) -> Trial:
    expert = None if what.expert is None else sorted(log.expert.unique())[what.expert]
    label = scene.label[log.case]
    return expertise_trial(
        HumanExpertiseModel if what.model == "hem" else OneVsAll,
        (scene.past.features.iloc[log.case], label, log.expert, log.decision),
        costs.case_weights(label),
        scene.held[log.case],
        expert,
        classes=len(costs.classes),
    )


def paper_features(setting: Setting, scene: Scene) -> Any:
    """What the paper's classifier sees: everything but the alert model's score."""
    return scene.past.features.drop(columns=setting.score, errors="ignore")


def _plain(row: Mapping[Any, Any]) -> Params:
    """Numbers as JSON has them; whole ones stay whole."""
    return {str(name): value.item() if hasattr(value, "item") else value for name, value in row.items()}
