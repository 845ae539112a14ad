"""A scenario of a benchmark: alert rate, cost ratio and training share, and the folders that belong to it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from deccaf.benchmark.profile import WorkloadTable
from deccaf.benchmark.scene import Setting
from deccaf.benchmark.search import Wanted
from deccaf.benchmark.store import Store


@dataclass(frozen=True)
class Scenario:
    """Alert rate, cost ratio and training share, with the folders that belong to them."""

    rate: float
    ratio: float
    share: float

    @property
    def name(self) -> str:
        """For folders."""
        return f"rate-{self.rate:g}_ratio-{self.ratio:g}_share-{100 * self.share:g}"

    @property
    def cases(self) -> str:
        """Our classifier, which knows no ratio."""
        return f"cases/rate-{self.rate:g}_share-{100 * self.share:g}"

    @property
    def paper(self) -> str:
        """The paper's classifier."""
        return f"paper/{self.name}"

    @property
    def team(self) -> str:
        """Facts about the people."""
        return f"teams/rate-{self.rate:g}_ratio-{self.ratio:g}"

    def experts(self, seed: int) -> str:
        """Models of the experts."""
        return f"experts/{self.name}_seed-{seed}"

    def released(self, seed: int) -> str:
        """The paper's models of the experts as its released code trains them."""
        return f"released/{self.name}_seed-{seed}"

    def rival(self, seed: int, name: str) -> str:
        """A learner of another paper."""
        return f"rivals/{self.name}_seed-{seed}_{name}"

    def cell(self, seed: int, draw: int, workload: WorkloadTable | None = None) -> str:
        """One variation."""
        how = "" if workload is None else f"_workload-{workload.name}"
        return f"cells/{self.name}_seed-{seed}{how}_capacity-{draw}"

    def search(self, what: Wanted, seed: int, end: int | None = None) -> str:
        """One search for settings; with `end` the part of it that ends after so many trials."""
        name = f"{self.name}_seed-{seed}_{what.name}"
        return f"searches/{name}" if end in (None, what.ends[-1]) else f"search-parts/{name}_trials-{end}"


def settled(store: Store, setting: Setting, s: Scenario) -> Setting:
    """The alerts with what the paper's classifier costs in the validation month, learned from all data."""
    if not setting.around_classifier:
        return setting
    cost = store.report(replace(s, share=1.0).paper)["validation"]["cost"]
    return replace(setting, classifier_cost={s.ratio: cost})
