"""What a benchmark runs, as data: a TOML file read once into frozen tables.

The profiles that come with deccaf (`quick`, `standard`, `paper`, `own-alerts`, `fifar`) are in
`experiments/`; a path to a file of your own may stand in place of their names.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from deccaf.data.config import PartsTable, Table, read_toml
from deccaf.data.schema import Columns
from deccaf.errors import ConfigError, did_you_mean
from deccaf.policies import find
from deccaf.simulate.testbed import PAPER_SETTINGS

BudgetName = Literal["none", "quick", "standard", "paper"]


class WorldTable(Table):
    """Where the alerts come from when no alert file is given."""

    rows: int = Field(1_000_000, ge=20_000)
    """Applications to generate, unless a file of applications is given."""
    seed: int = Field(0, ge=0)
    base_rate: float = Field(0.05, gt=0, lt=1)
    """Higher alert rates are sampled down to as many alerts per month as this one has."""
    alert_search: int = Field(0, ge=0)
    """Trials of the search for the alert model's settings (the paper made 100); 0: those that it selected."""


class MonthsTable(Table):
    """Which months are learned from, which choose between settings, and which is decided."""

    train: list[int] = Field([3, 4, 5], min_length=1)
    validation: int = 6
    test: int = 7

    @property
    def past(self) -> list[int]:
        """All months but the one that is decided."""
        return [*self.train, self.validation]

    def shifted(self, by: int) -> MonthsTable:
        """The same protocol `by` months earlier; the earliest training months fall away, as none precede."""
        first = min(self.train)
        train = [month - by for month in self.train if month - by >= first]
        if not train:
            raise ConfigError(f"months: nothing to train on when the protocol moves {by} months earlier")
        return MonthsTable(train=train, validation=self.validation - by, test=self.test - by)


class WorkloadTable(Table):
    """A way to cut the test month into batches and to share them out, beside the paper's five settings."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")
    batch: int | None = Field(None, ge=1)
    """Cases of a batch, shuffled for every history; None: the whole month is one batch."""
    deferral_rate: float | None = Field(None, ge=0, le=1)
    """Share of each batch that goes to people; None: the machine is one maker among equals."""
    absent: float = Field(0.0, ge=0, lt=1)
    """Share of the team that is away."""
    spread: float = Field(0.2, ge=0)
    """How far shares differ, relative to their mean, in all draws but the first."""
    per_batch: bool = False
    """Whether shares and absences are drawn anew for each batch."""
    exact: bool = True
    """Whether loads are equalities, or upper limits with no limit for the machine."""
    draws: list[int] = Field([0, 1, 2, 3, 4], min_length=1)
    """0 is everyone alike, the others are draws."""

    @field_validator("draws")
    @classmethod
    def _draws(cls, values: list[int]) -> list[int]:
        if min(values) < 0 or len(set(values)) != len(values):
            raise ValueError("draws are different whole numbers from 0 on")
        return values


class GridTable(Table):
    """The variations: every combination of these is one cell."""

    alert_rates: list[float] = Field([0.05, 0.15], min_length=1)
    ratios: list[float] | Literal["threshold"] = Field([0.0114, 0.057, 0.285], min_length=1)
    """Cost of a false positive relative to a false negative (the paper's lambda). `threshold`: that of the
    alert model's threshold at the lowest alert rate, a fifth of it and five times it, as in the paper."""
    shares: list[float] = Field([1.0], min_length=1)
    """Shares of the past cases that are learned from."""
    seeds: list[int] = Field([0, 1, 2, 3, 4], min_length=1)
    """Of the histories: who got which case."""
    capacities: list[int] = Field([0, 1, 2, 3, 4])
    """The month as one batch: 0 is everyone alike, the others are draws. May be empty where there are
    workloads."""
    workloads: list[WorkloadTable] = Field([])
    """More ways to share the month out: batches, absences, deferral rates."""
    policies: list[str] = Field(min_length=1)

    @property
    def cost_ratios(self) -> list[float]:
        """The ratios as numbers."""
        if isinstance(self.ratios, str):
            raise ConfigError("ratios: those of the threshold are known once the alerts are")
        return self.ratios

    @model_validator(mode="after")
    def _something_to_share_out(self) -> GridTable:
        names = [workload.name for workload in self.workloads]
        if len(set(names)) != len(names):
            raise ValueError("two workloads have one name")
        if not self.capacities and not names:
            raise ValueError("capacities: none, and no workloads either")
        return self

    @field_validator("alert_rates", "ratios", "shares", "seeds", "capacities", "policies")
    @classmethod
    def _no_repeats(cls, values: list[Any] | str) -> list[Any] | str:
        if not isinstance(values, str) and len(set(values)) != len(values):
            raise ValueError("the same value stands twice")
        return values

    @field_validator("alert_rates")
    @classmethod
    def _rates(cls, values: list[float]) -> list[float]:
        if not all(0 < value < 1 for value in values):
            raise ValueError("rates lie between 0 and 1")
        return values

    @field_validator("ratios")
    @classmethod
    def _ratios(cls, values: list[float] | str) -> list[float] | str:
        if not isinstance(values, str) and not all(0 < value < float("inf") for value in values):
            raise ValueError("cost ratios are positive")
        return values

    @field_validator("shares")
    @classmethod
    def _shares(cls, values: list[float]) -> list[float]:
        if not all(0 < value <= 1 for value in values):
            raise ValueError("shares lie above 0 and up to 1")
        return values

    @field_validator("seeds")
    @classmethod
    def _seeds(cls, values: list[int]) -> list[int]:
        if min(values) < 0:
            raise ValueError("seeds are not negative")
        return values

    @field_validator("capacities")
    @classmethod
    def _capacities(cls, values: list[int]) -> list[int]:
        if not all(0 <= value < len(PAPER_SETTINGS) for value in values):
            raise ValueError(f"capacities are numbered 0 to {len(PAPER_SETTINGS) - 1}")
        return values

    @field_validator("policies")
    @classmethod
    def _policies(cls, values: list[str]) -> list[str]:
        for name in values:
            find(name)
        return values


class SearchTable(Table):
    """How the paper's models find their settings; ours choose among a few fixed ones by themselves."""

    classifier: BudgetName | int = "none"
    expertise: BudgetName | int = "none"
    """Trials of each search, or a budget of `models.paper.spaces`; `none`: only fixed candidates compete."""
    shortlist: int = Field(3, ge=1)
    """How many settings of each search compete, beside the fixed ones, for every history."""
    as_published: bool = False
    """Search for every history, every expert's model and every initial score apart, with deep trees too."""
    most: int | None = Field(None, ge=1)
    """Trials after which every search ends, with what its full budget would have found by then."""


class TeamTable(Table):
    """Who the experts are."""

    size: int = Field(9, ge=1)
    seed: int = Field(0, ge=0)
    protected: str = "customer_age"
    """The feature that everyone has a leaning on, and by which errors are counted apart."""
    threshold: float = 50.0
    """Where that feature is a number: from here on a case is of the other group."""
    around: Literal["classifier", "threshold"] = "classifier"
    """What simulated people cost on average in the validation month: as much as the paper's classifier does
    there with all of the data (the paper), or as the best threshold on the alert score."""
    pool: int | None = Field(None, ge=1)
    """People of whom each team has `size`; None: there is one team, with everybody in it."""
    teams: int = Field(5, ge=1)
    """Different teams of a pool: the histories take turns."""

    @model_validator(mode="after")
    def _enough(self) -> TeamTable:
        if self.pool is not None and self.pool < self.size:
            raise ValueError(f"a pool of {self.pool} has no teams of {self.size}")
        return self

    def team_of(self, seed: int) -> int:
        """Which team the history of this seed has."""
        return seed % self.teams

    def shuffle_of(self, seed: int) -> int:
        """Which order of the test cases goes with the history of this seed."""
        return seed if self.pool is None else seed // self.teams


class Profile(Table):
    """All of a benchmark's configuration."""

    columns: Columns = Columns(label="fraud_bool", time="month")
    score: str = "model_score"
    """The alert model's score: seen by the experts and by all models but the paper's classifier."""
    world: WorldTable = WorldTable()
    months: MonthsTable = MonthsTable()
    grid: GridTable
    search: SearchTable = SearchTable()
    team: TeamTable = TeamTable()
    model: PartsTable = PartsTable()
    """What `deccaf` blends."""

    def with_grid(self, changes: Mapping[str, Any]) -> Profile:
        """The same with another grid, as the command line asks for; None leaves a list as it is."""
        wanted = {name: value for name, value in changes.items() if value is not None}
        try:
            grid = GridTable.model_validate({**self.grid.model_dump(), **wanted})
        except ValidationError as error:
            first = error.errors()[0]
            where = f"--{first['loc'][0]}: ".replace("_", "-") if first["loc"] else ""
            raise ConfigError(where + first["msg"].removeprefix("Value error, ")) from None
        return self.model_copy(update={"grid": grid})

    def with_team(self, changes: Mapping[str, Any]) -> Profile:
        """The same with another team."""
        try:
            team = TeamTable.model_validate({**self.team.model_dump(), **changes})
        except ValidationError as error:
            raise ConfigError(f"team: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None
        return self.model_copy(update={"team": team})


def read_profile(name: str | Path) -> Profile:
    """A profile by its name, or from a TOML file."""
    known = {path.name.removesuffix(".toml"): path for path in _folder().iterdir() if path.suffix == ".toml"}
    if str(name) in known:
        return read_toml(known[str(name)], Profile)
    if not str(name).endswith(".toml"):
        hint = did_you_mean(str(name), known)
        raise ConfigError(
            f"profile {str(name)!r}: known are {', '.join(sorted(known))}, or a .toml file{hint}"
        )
    return read_toml(name, Profile)


def _folder() -> Path:
    """`experiments/`: inside the installed package, or at the root of a work tree."""
    installed = Path(str(resources.files("deccaf"))) / "experiments"
    return installed if installed.is_dir() else Path(__file__).parents[3] / "experiments"
