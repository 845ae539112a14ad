"""Runs a benchmark: pieces of work with a folder each, in parallel, none of them twice.

A share of training data is one round of waves: our classifier, then the paper's with its searches (simulated
people are drawn around its cost), then the models of the experts with theirs, then the cells. Workers compute
and the runner writes, so that no worker needs the runner's disk; what a lost worker had in hand goes to
another one, and is written once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from deccaf.benchmark.cells import Variation, run_cells
from deccaf.benchmark.cluster import cluster_of
from deccaf.benchmark.kept import read_truth
from deccaf.benchmark.profile import Profile
from deccaf.benchmark.results import write_results
from deccaf.benchmark.rivals import LEARNERS, fit_rival
from deccaf.benchmark.scenario import Scenario, settled
from deccaf.benchmark.scene import Setting
from deccaf.benchmark.search import Wanted, check_tools, run_search, wanted
from deccaf.benchmark.store import Found, Store
from deccaf.benchmark.tasks import (
    fit_cases,
    fit_experts,
    fit_paper_classifier,
    fit_released,
    study_team,
)
from deccaf.benchmark.world import Source, build_world, settings, with_ratios
from deccaf.cluster import check_installed
from deccaf.policies import find

Progress = Callable[[float, float, str], None]
"""Called after each piece of work with (done, all, what it was), in expected seconds."""
Results = Mapping[str, Found]

_FORMAT = 5
GIVEN = "given"
"""The workload of a capacity of the user's own."""
_SECONDS = {
    "hem": 1.2,
    "ova": 2.2,
    "classifier": 1.2,
    "cases": 10.0,
    "paper": 33.0,
    "experts": 32.0,
    "released": 15.0,
    "rivals": 12.0,
    "cell": 0.7,
}
"""About how long a trial of a search, a fit and a cell take: for the progress bar only."""


@dataclass(frozen=True, eq=False)
class Piece:
    """One piece of work: what it will take, and how to call it when its turn comes."""

    key: str
    weight: float
    prepare: Callable[[], Call]


@dataclass(frozen=True, eq=False)
class Call:
    """A function and what it gets: all that travels to a worker.

    One object, not a tuple of arguments: joblib would put large arguments on one worker of a cluster, and
    they would be lost with it.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]


def run_benchmark(
    profile: Profile,
    out: str | Path,
    *,
    source: Source | None = None,
    jobs: int = 1,
    cluster: str | None = None,
    say: Callable[[str], None] = lambda _: None,
    progress: Progress = lambda *_: None,
) -> pd.DataFrame:
    """Run what is not done yet, and give (and write) the results of the whole grid."""
    source, store = source or Source(), Store(out)
    check_installed(cluster)
    check_tools(_searches(profile))
    if source.capacity is not None:
        given = {"name": GIVEN, "draws": [0]}
        profile = profile.with_grid({"capacities": [], "workloads": [given]})
    store.settle(_identity(profile, source))
    build_world(store, profile, source, say)
    profile = with_ratios(store, profile)
    bench = Bench(store, profile, settings(store, profile, source, say))
    waves = bench.waves()
    total, done = sum(piece.weight for wave in waves for piece in wave), 0.0
    if total:
        with cluster_of(cluster, jobs) as parallel:
            for wave in waves:
                for piece, results in run_wave(wave, parallel):
                    for key, found in results.items():
                        store.write(key, found)
                    done += piece.weight
                    progress(done, total, piece.key)
    return write_results(store, profile)


def _searches(profile: Profile) -> tuple[list[Wanted], list[Wanted]]:
    """Those that the profile asks for."""
    search = profile.search
    return wanted(
        search.classifier,
        search.expertise,
        search.shortlist,
        apart=search.as_published,
        experts=profile.team.size,
        most=search.most,
    )


def run_wave(
    wave: Iterable[Piece], parallel: Callable[[], joblib.Parallel]
) -> Iterator[tuple[Piece, Results]]:
    """Run pieces that do not wait for each other; each comes as it ends."""
    pieces = {piece.key: piece for piece in wave}
    work = (joblib.delayed(_work)(piece.key, piece.prepare()) for piece in pieces.values())
    for key, results in parallel()(work) if pieces else ():
        yield pieces[key], results


def _work(key: str, call: Call) -> tuple[str, Results]:
    """In a worker: one thread, so that sums have one order and processes do not crowd each other out."""
    with threadpool_limits(1):
        found = call.function(*call.arguments)
    return key, {key: found} if isinstance(found, Found) else found


class Bench:
    """The pieces of work of a profile."""

    def __init__(self, store: Store, profile: Profile, settings: Mapping[float, Setting]) -> None:
        self.store = store
        self.profile = profile
        self.settings = settings
        self.searches = _searches(profile)

    def waves(self) -> list[list[Piece]]:
        """What is left to do, largest training share first; a wave needs the waves before it."""
        grid, waves = self.profile.grid, []
        planned: set[str] = set()
        for share in sorted(grid.shares, reverse=True):
            scenarios = [
                Scenario(rate, ratio, share) for rate in grid.alert_rates for ratio in grid.cost_ratios
            ]
            for wave in self._round(scenarios):
                new = [piece for piece in wave if piece.key not in planned]
                planned |= {piece.key for piece in new}
                waves.append(sorted(new, key=lambda piece: -piece.weight))
        return waves

    def _round(self, scenarios: list[Scenario]) -> list[list[Piece]]:
        """The waves of some scenarios; the classifier first, around whose cost teams are drawn."""
        classifier, expertise = self._searched()
        whole = [replace(s, share=1.0) for s in scenarios] if self._around_classifier() else []
        both = list(dict.fromkeys([*whole, *scenarios]))
        ours = [
            Piece(s.cases, _size(s) * _SECONDS["cases"], self._call(fit_cases, s, s.share)) for s in scenarios
        ]
        theirs = [Piece(s.paper, _size(s) * _SECONDS["paper"], self._paper(s)) for s in both]
        return [
            self._left(ours),
            *self._searching(both, classifier),
            self._left(theirs),
            *self._searching(scenarios, expertise),
            self._second(scenarios),
            [*self._released(scenarios), *self._others(scenarios)],
            self._third(scenarios),
        ]

    def _around_classifier(self) -> bool:
        return any(setting.around_classifier for setting in self.settings.values())

    def _searching(self, scenarios: list[Scenario], searches: list[tuple[Wanted, int]]) -> list[list[Piece]]:
        """The searches: a wave for each part of the longest."""
        waves: list[dict[str, Piece]] = []
        for s in scenarios:
            at = self._searched_at(s)
            for what, seed in searches:
                for place, piece in enumerate(self._parts(at, what, seed)):
                    if place == len(waves):
                        waves.append({})
                    waves[place][piece.key] = piece
        return [self._left(wave.values()) for wave in waves]

    def _parts(self, s: Scenario, what: Wanted, seed: int) -> list[Piece]:
        """What is left of one search: part after part, each from the trials of the one before."""
        keys = [s.search(what, seed, end) for end in what.ends]
        done = max((place for place, key in enumerate(keys) if self.store.done(key)), default=-1)
        pieces, start = [], what.ends[done] if done >= 0 else 0
        for place in range(done + 1, len(keys)):
            end = what.ends[place]
            seconds = _size(s) * (end - start) * _SECONDS[what.model] / (1 if what.expert is None else 9)
            before = keys[place - 1] if place else None
            pieces.append(Piece(keys[place], seconds, self._search(s, what, seed, end, before)))
            start = end
        return pieces

    def _search(
        self, s: Scenario, what: Wanted, seed: int, end: int, before: str | None
    ) -> Callable[[], Call]:
        def prepare() -> Call:
            trials = None if before is None else self.store.table(before, "trials")
            setting = self.settings[s.rate] if what.model == "classifier" else self._setting(s)
            return Call(run_search, (setting, s.ratio, s.share, seed, what, end, trials))

        return prepare

    def _second(self, scenarios: list[Scenario]) -> list[Piece]:
        """The models of the experts."""
        pieces = []
        for s in scenarios:
            for seed in self.profile.grid.seeds:
                pieces.append(Piece(s.experts(seed), _size(s) * _SECONDS["experts"], self._experts(s, seed)))
        return self._left(pieces)

    def _released(self, scenarios: list[Scenario]) -> list[Piece]:
        """Models that learn with the output of the paper's classifier, where a policy asks for them."""
        if not self._as_released():
            return []
        pieces = []
        for s in scenarios:
            for seed in self.profile.grid.seeds:
                seconds = _size(s) * _SECONDS["released"]
                pieces.append(Piece(s.released(seed), seconds, self._released_experts(s, seed)))
        return self._left(pieces)

    def _needs(self) -> set[str]:
        return {need for name in self.profile.grid.policies for need in find(name).needs}

    def _as_released(self) -> bool:
        return bool(self._needs() & {"hem-as-released", "ova-as-released"})

    def _rivals(self) -> list[str]:
        """Learners of other papers that a policy asks for."""
        return sorted(self._needs() & set(LEARNERS))

    def _others(self, scenarios: list[Scenario]) -> list[Piece]:
        """Rivals, each for every history."""

        def prepare(s: Scenario, seed: int, name: str) -> Callable[[], Call]:
            return lambda: Call(fit_rival, (self._setting(s), s.ratio, s.share, seed, name))

        seconds = _SECONDS["rivals"]
        return self._left(
            Piece(s.rival(seed, name), _size(s) * seconds, prepare(s, seed, name))
            for s in scenarios
            for seed in self.profile.grid.seeds
            for name in self._rivals()
        )

    def _third(self, scenarios: list[Scenario]) -> list[Piece]:
        """The cells, those of one history together, and the facts about the teams."""
        grid, pieces = self.profile.grid, []
        for s in scenarios:
            if s.share == max(grid.shares):
                pieces += self._left([Piece(s.team, 1.0, self._team(s))])
            for seed in grid.seeds:
                known = [
                    Variation(s.cell(seed, draw, workload), draw, workload)
                    for workload, draws in [
                        (None, grid.capacities),
                        *((workload, workload.draws) for workload in grid.workloads),
                    ]
                    for draw in draws
                ]
                left = [variation for variation in known if not self._decided(variation)]
                if left:
                    key = f"{s.name}_seed-{seed}"
                    pieces.append(Piece(key, len(left) * _SECONDS["cell"], self._cells(s, seed, left)))
        return pieces

    def _left(self, pieces: Iterable[Piece]) -> list[Piece]:
        return [piece for piece in pieces if not self.store.done(piece.key)]

    def _decided(self, variation: Variation) -> bool:
        """Whether a cell is finished with all policies that are asked for, and was the same workload."""
        if not self.store.done(variation.key):
            return False
        report = self.store.report(variation.key)
        same = report["workload"] == variation.described
        return same and set(report["asked"]) >= set(self.profile.grid.policies)

    def _setting(self, s: Scenario) -> Setting:
        """The alerts of a scenario, with what its people depend on."""
        return settled(self.store, self.settings[s.rate], s)

    def _searched(self) -> tuple[list[tuple[Wanted, int]], list[tuple[Wanted, int]]]:
        """Searches with the seed of the history they look at: the first one's, or every one's."""
        seeds = self.profile.grid.seeds if self.profile.search.as_published else self.profile.grid.seeds[:1]
        classifier, expertise = self.searches
        return [(w, seeds[0]) for w in classifier], [(w, seed) for seed in seeds for w in expertise]

    def _searched_at(self, s: Scenario) -> Scenario:
        """Settings are searched with all past cases and serve every share, unless it is done as published."""
        return s if self.profile.search.as_published else replace(s, share=1.0)

    def _shortlist(self, s: Scenario, model: str, seed: int) -> list[dict[str, Any]]:
        """What the searches of a model found, for the history of this seed where each has its own."""
        classifier, expertise = self._searched()
        chosen = [(w, at) for w, at in [*classifier, *expertise] if w.model == model]
        if self.profile.search.as_published and model != "classifier":
            chosen = [(w, at) for w, at in chosen if at == seed]
        where = self._searched_at(s)
        return [params for w, at in chosen for params in self.store.report(where.search(w, at))["shortlist"]]

    def _call(self, function: Callable[..., Any], s: Scenario, *arguments: Any) -> Callable[[], Call]:
        return lambda: Call(function, (self.settings[s.rate], *arguments))

    def _paper(self, s: Scenario) -> Callable[[], Call]:
        def prepare() -> Call:
            shortlist = self._shortlist(s, "classifier", self.profile.grid.seeds[0])
            return Call(fit_paper_classifier, (self.settings[s.rate], s.ratio, s.share, shortlist))

        return prepare

    def _experts(self, s: Scenario, seed: int) -> Callable[[], Call]:
        def prepare() -> Call:
            shortlists = {model: self._shortlist(s, model, seed) for model in ("hem", "ova")}
            p = self._truth(s.cases, s)
            return Call(fit_experts, (self._setting(s), s.ratio, s.share, seed, shortlists, p))

        return prepare

    def _released_experts(self, s: Scenario, seed: int) -> Callable[[], Call]:
        def prepare() -> Call:
            shortlists = {model: self._shortlist(s, model, seed) for model in ("hem", "ova")}
            p = self._truth(s.paper, s, "past")
            return Call(fit_released, (self._setting(s), s.ratio, s.share, seed, shortlists, p))

        return prepare

    def _truth(self, key: str, s: Scenario, table: str = "predictions") -> NDArray[np.float64]:
        """What a classifier believes about the test cases, or about the past ones."""
        return read_truth(self.store.table(key, table), "p", self.settings[s.rate].cases.classes)

    def _team(self, s: Scenario) -> Callable[[], Call]:
        def prepare() -> Call:
            p = self._truth(s.paper, s)
            return Call(study_team, (self._setting(s), s.ratio, self.profile.grid.seeds[0], p))

        return prepare

    def _cells(self, s: Scenario, seed: int, variations: list[Variation]) -> Callable[[], Call]:
        def prepare() -> Call:
            folders = {"cases": s.cases, "paper": s.paper, "experts": s.experts(seed)}
            if self._as_released():
                folders["released"] = s.released(seed)
            folders |= {name: s.rival(seed, name) for name in self._rivals()}
            kept = {name: self.store.table(key, "predictions") for name, key in folders.items()}
            # The policies themselves, not their names: a worker knows only those that deccaf registers.
            policies = [find(name) for name in self.profile.grid.policies]
            return Call(run_cells, (self._setting(s), s.ratio, seed, variations, policies, kept))

        return prepare


def _size(s: Scenario) -> float:
    """Work on a share of the data, relative to all of it."""
    return 0.1 + 0.9 * s.share


def _identity(profile: Profile, source: Source) -> dict[str, Any]:
    """What must not change between runs into one folder; the grid may."""
    tables = profile.model_dump(mode="json", exclude={"grid"})
    if profile.search.most is None:
        tables["search"].pop("most")  # folders from before there was an end can be extended
    if source.alerts is not None:
        tables.pop("world")
    return {**tables, "files": source.identity(), "format": _FORMAT}
