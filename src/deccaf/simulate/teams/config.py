"""How to describe a synthetic team: groups of experts, each a few distributions; the file `team.toml`.

.. code-block:: toml

    [columns]
    label = "fraud_bool"
    time = "month"

    [costs]
    false_positive = 0.057
    false_negative = 1.0

    [features]
    score = "model_score"
    protected = ["customer_age"]
    thresholds = { customer_age = 50 }

    [fit]
    time = 6

    [[group]]
    name = "standard"
    experts = 9
    slab = { share = 0.3 }
    score_weight = { mean = -2.0, deviation = 0.5 }
    weights = { customer_age = { mean = -1.0, deviation = 0.1 } }
    sharpness = { mean = 4.0, deviation = 0.2 }
    cost = { mean = 1.0, deviation = 0.2, cap = 0.7 }

    [[group]]
    name = "hasty"
    inherits = "standard"
    experts = 3
    sharpness = { mean = 1.0 }

    [[group]]
    name = "llm"
    inherits = "standard"
    kind = "machine"
    experts = 1
    shared = 0.8
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from deccaf.data.config import CostsTable, Table, read_toml
from deccaf.data.schema import Columns
from deccaf.errors import ConfigError, did_you_mean
from deccaf.simulate.teams.features import ScoreScale

Share = float
_TARGETS = ("cost", "fpr", "fnr", "error_rate")


class Normal(Table):
    """A normal distribution; `deviation = 0` is a constant."""

    mean: float
    deviation: float = Field(0.0, ge=0)


class Slab(Table):
    """Spike and slab: a weight is drawn from the normal with probability `share`, else it is 0."""

    share: Share = Field(0.3, ge=0, le=1)
    mean: float = 0.0
    deviation: float = Field(1.0, ge=0)


class CostTarget(Table):
    """The expected cost of an expert: a normal draw, kept between `floor` and `cap`.

    `unit` says what 1.0 means: the classifier's cost (the paper), the cost of rejecting everything, or a cost
    per case in the money of `[costs]`. `floor` and `cap` are shares of the cost of rejecting everything, that
    is, of deciding the last class always.
    """

    mean: float = Field(1.0, gt=0)
    deviation: float = Field(0.2, ge=0)
    unit: Literal["classifier", "rejecting", "absolute"] = "classifier"
    floor: Share = Field(0.01, ge=0)
    cap: Share = Field(0.7, gt=0)

    @model_validator(mode="after")
    def _in_order(self) -> CostTarget:
        if self.floor > self.cap:
            raise ValueError(f"floor {self.floor} lies above cap {self.cap}")
        return self


Bounds = tuple[float, float]


class Group(Table):
    """Experts drawn from the same distributions. What is not said is as in the paper.

    Performance is one of: `cost`; `fpr` and `fnr` (two classes); `error_rate` (any number of classes, drawn
    for each truth). Without any it is the paper's cost target.
    """

    name: str = Field("standard", min_length=1)
    kind: Literal["person", "machine"] = "person"
    """Machines decide every case of a history; a machine that is alone in its group has the group's name."""
    experts: int = Field(9, ge=1)
    inherits: str | None = None
    slab: Slab = Slab()
    """Weights of all features that `weights` does not name."""
    weights: dict[str, Normal] = Field(default_factory=dict)
    """A distribution for each named feature: protected attributes, or all of them."""
    score_weight: Normal = Normal(mean=-2.0, deviation=0.5)
    sharpness: Normal = Normal(mean=4.0, deviation=0.2)
    """How far features move the chance of an error; 0: not at all, large: decisions without chance."""
    cost: CostTarget | None = None
    fpr: Normal | None = None
    fnr: Normal | None = None
    error_rate: Normal | None = None
    bounds: Bounds = (0.0, 1.0)
    """Limits of every error rate; the ends themselves are never reached."""
    fpr_bounds: Bounds | None = None
    fnr_bounds: Bounds | None = None
    fatigue: Normal = Normal(mean=0.0)
    """Added to the logit of an error for each 100 cases already handled in the batch; below 0: learning."""
    shared: float = Field(0.0, ge=0, lt=1)
    """How far errors follow the difficulty that a case has for everybody, unseen: two experts' errors have
    the product of theirs as correlation, given the truth and the case. How far they follow the alert model is
    `score_weight`."""

    @field_validator("bounds", "fpr_bounds", "fnr_bounds", mode="before")
    @classmethod
    def _as_pair(cls, value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value

    @model_validator(mode="after")
    def _one_target(self) -> Group:
        if (self.fpr is None) != (self.fnr is None):
            raise ValueError("fpr and fnr go together")
        if sum(target is not None for target in (self.cost, self.fpr, self.error_rate)) > 1:
            raise ValueError("give one performance: cost, or fpr and fnr, or error_rate")
        for low, high in filter(None, (self.bounds, self.fpr_bounds, self.fnr_bounds)):
            if not 0 <= low < high <= 1:
                raise ValueError(f"bounds must rise from 0 to at most 1, got [{low}, {high}]")
        return self


class FeaturesTable(Table):
    """The `[features]` table: what the experts see, and which attributes are protected."""

    score: str | None = None
    score_scale: ScoreScale = "quantile"
    protected: tuple[str, ...] = ()
    """Attributes by which errors are reported."""
    thresholds: dict[str, float] = Field(default_factory=dict)
    """Where a number falls into two groups."""
    binary: tuple[str, ...] = ()
    """Features of which the experts see only the side of the threshold."""

    @field_validator("protected", "binary", mode="before")
    @classmethod
    def _as_tuple(cls, value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value


class FitTable(Table):
    """The `[fit]` table: which cases the rates are met on, and what the classifier costs there."""

    time: int | float | str | None = None
    """The time (month) of the fitting cases; all cases where not given."""
    classifier_cost: float | None = Field(None, gt=0)
    """Expected cost per case of the classifier; where not given, of the best threshold on the score."""


class TeamConfig(Table):
    """All of a `team.toml`."""

    columns: Columns = Columns()
    costs: CostsTable
    features: FeaturesTable = FeaturesTable()
    fit: FitTable = FitTable()
    group: list[Group] = Field(default_factory=lambda: [Group()], min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _inherit(cls, data: Any) -> Any:
        groups = data.get("group") if isinstance(data, Mapping) else None
        if not isinstance(groups, list) or not all(isinstance(group, Mapping) for group in groups):
            return data
        return {**data, "group": inherited(groups)}

    @model_validator(mode="after")
    def _different_names(self) -> TeamConfig:
        names = [group.name for group in self.group]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise ValueError(f"two groups have the name {twice[0]!r}")
        return self

    @classmethod
    def read(cls, path: str | Path) -> TeamConfig:
        """Read a TOML file; whatever is wrong with it is a `ConfigError` that names the key."""
        config = read_toml(path, cls)
        try:
            config.costs.build()
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from error
        return config


def inherited(groups: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each group with what it does not say taken from the group that it inherits from."""
    by_name = {str(group.get("name", "standard")): group for group in groups}
    return [_resolved(group, by_name, ()) for group in groups]


def _resolved(
    group: Mapping[str, Any], by_name: Mapping[str, Mapping[str, Any]], heirs: tuple[str, ...]
) -> dict[str, Any]:
    parent, name = group.get("inherits"), str(group.get("name", "standard"))
    if parent is None:
        return dict(group)
    if parent not in by_name:
        raise ValueError(f"group {name!r} inherits from {parent!r}, which no group is called"
                         + did_you_mean(str(parent), by_name))  # fmt: skip
    if parent == name or parent in heirs:
        raise ValueError(f"group {name!r} inherits from itself")
    base = _resolved(by_name[parent], by_name, (*heirs, name))
    if any(key in group for key in _TARGETS):
        # Another way to say how good the experts are replaces the baseline's way, it does not join it.
        ways = {"cost": "cost", "fpr": "rates", "fnr": "rates", "error_rate": "error_rate"}
        kept = {ways[key] for key in _TARGETS if key in group}
        base = {key: value for key, value in base.items() if ways.get(key, "") in {"", *kept}}
    return _merged(base, group)


def _merged(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """`change` over `base`, table by table."""
    both = dict(base)
    for key, value in change.items():
        old = both.get(key)
        both[key] = _merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return both
