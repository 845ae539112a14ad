"""The configuration file: TOML, read once into a frozen model; an unknown key is an error that names it.

.. code-block:: toml

    [columns]
    label = "fraud_bool"
    time = "month"

    [costs]
    false_positive = 0.057
    false_negative = 1.0      # or the name of a column: false_negative = "amount"

    [model]
    method = "deccaf"
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from deccaf.data.costs import Class, Cost, Costs
from deccaf.data.display import DisplayTable
from deccaf.data.makers import SCORE, Maker, machines_of, read_makers
from deccaf.data.review import ReviewCost, named_in, prices, with_prices
from deccaf.data.schema import Columns
from deccaf.data.second import SecondTable
from deccaf.data.staffing import StaffingTable
from deccaf.errors import ConfigError, did_you_mean
from deccaf.plugins import CASE_PARTS, DECISION_PARTS, METHODS, Registry


class Table(BaseModel):
    """A table of a configuration file: frozen, with no keys but its own."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


_PAIR = ("false_positive", "false_negative")


class CostsTable(Table):
    """The `[costs]` table: two numbers (or columns), or a matrix with its classes."""

    false_positive: Cost | None = None
    false_negative: Cost | None = None
    matrix: list[list[Cost]] | None = None
    classes: list[Class] | None = None
    scale: str | None = None
    unit: str = Field("", max_length=40, pattern=r"^[^\x00-\x1f]*$")
    """What costs are counted in, for people to read: a currency, minutes, "missed frauds"."""
    review_cost: float | str | dict[str, float | str | dict[str, float | str]] = 0.0
    """What it costs to ask an expert: a number, a column of the cases, or `{fixed, column, rate}`; one for
    everybody, or by name ("*": anyone else)."""
    example: bool = False
    """Whether these are the example costs that `deccaf init` writes, which nobody has thought about yet."""

    @field_validator("review_cost")
    @classmethod
    def _reviews_cost(cls, value: Any) -> Any:
        try:
            prices(value)
        except ConfigError as error:
            raise ValueError(str(error)) from error
        return value

    @model_validator(mode="after")
    def _one_form(self) -> CostsTable:
        pair = [self.false_positive is not None, self.false_negative is not None]
        if self.matrix is None and not all(pair):
            missing = [name for name, there in zip(_PAIR, pair, strict=True) if not there]
            raise ValueError(
                f"{' and '.join(missing)} missing: give {' and '.join(_PAIR)}, or matrix and classes"
            )
        if self.matrix is not None and (self.classes is None or any(pair)):
            raise ValueError(f"a matrix needs classes, and no {' or '.join(_PAIR)}")
        if self.matrix is None and self.classes is not None and len(self.classes) != 2:
            raise ValueError("more than two classes need a matrix")
        return self

    def build(self) -> Costs:
        """The costs that the table describes."""
        if self.matrix is not None:
            return Costs.from_matrix(self.matrix, self.classes or [], scale=self.scale, unit=self.unit)
        assert self.false_positive is not None
        assert self.false_negative is not None
        first, second = self.classes or (0, 1)
        return Costs.binary(
            self.false_positive,
            self.false_negative,
            classes=(first, second),
            scale=self.scale,
            unit=self.unit,
        )


class PartsTable(Table):
    """Which models are blended: names of those that deccaf or an installed package brings."""

    case_parts: tuple[str, ...] = Field(("logistic", "boosted"), min_length=1, strict=False)
    decision_parts: tuple[str, ...] = Field(("rates", "pooled", "boosted"), min_length=1, strict=False)

    @field_validator("case_parts", "decision_parts")
    @classmethod
    def _known_parts(cls, names: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        for name in names:
            _check_known(name, CASE_PARTS if info.field_name == "case_parts" else DECISION_PARTS)
        return names


class ModelTable(PartsTable):
    """The `[model]` table: how to learn."""

    method: str = "deccaf"
    budget: Literal["quick", "standard", "paper"] = "quick"
    seed: int = Field(0, ge=0)
    half_life: float | str | None = None
    """Age at which history counts half: a number, or a length of time where times are dates."""

    @field_validator("method")
    @classmethod
    def _known_method(cls, name: str) -> str:
        _check_known(name, METHODS)
        return name


def _check_known(name: str, registry: Registry[Any]) -> None:
    if name not in registry:
        known = f"known are {', '.join(registry)}{did_you_mean(name, registry)}"
        raise ValueError(f"{registry.what} {name!r} is not installed; {known}")


class LabelsTable(Table):
    """The `[labels]` table: what is known about missing labels."""

    selective: Literal["positive"] | list[Class] = []
    """Decisions after which the truth is seldom seen: "positive" (the second of two classes), or classes."""
    let_through: float = Field(0.0, ge=0, le=1)
    """Share of such decisions of people that the service lets through by lot, so that their truth is seen."""
    let_through_machine: float = Field(0.0, ge=0, le=1)
    """The same for the machine's: where it rejects all cases of a kind, nothing else shows what they are."""

    @model_validator(mode="after")
    def _through_what(self) -> LabelsTable:
        if (self.let_through or self.let_through_machine) and not self.selective:
            raise ValueError("let_through: say first after which decisions labels are missing (selective)")
        return self

    def classes_of(self, classes: Sequence[Class]) -> tuple[Class, ...]:
        """The decisions after which labels are missing, by their names; an unknown one is a `ConfigError`."""
        if self.selective == "positive" and "positive" not in classes:
            if len(classes) != 2:
                raise ConfigError(f"[labels] selective: of {len(classes)} classes, name those that are meant")
            return (classes[1],)
        named = [self.selective] if isinstance(self.selective, str) else self.selective
        for name in named:
            if name not in classes:
                hint = did_you_mean(str(name), map(str, classes))
                raise ConfigError(
                    f"[labels] selective: {name!r} is none of the classes {list(classes)}{hint}"
                )
        return tuple(name for name in classes if name in named)


class MinutesTable(Table):
    """`[constraints.minutes]`: cases take different minutes, and everybody has so many in a batch."""

    capacity: dict[str, float] = Field(min_length=1)
    minutes: float | str | None = None
    """Minutes of a case: a number, a column of the cases, or left out, from the seconds of the log."""


class ReviewersTable(Table):
    """`[constraints.reviewers]`: several people see a case."""

    count: int | str = 1
    """A number from 1 to 3, or a column of the cases."""
    up_to: int | None = None
    """The plan may ask more people, up to this number, where that is worth their time."""
    rule: Literal["majority", "first positive", "cost-optimal"] = "cost-optimal"
    conflicts: list[Annotated[list[str], Field(min_length=2, max_length=2)]] = []
    """Pairs who may not share a case."""
    one_of: list[str] | None = None
    """Seniors: a case that several people see has at least one of them."""
    machines: bool = False
    """Whether machines beside our own may be among the reviewers."""


class BandTable(Table):
    """`[[constraints.band]]`: groups of cases are treated alike, within a band."""

    group: str
    within: float = Field(ge=0)
    measure: Literal["deferral", "fpr", "fnr"] = "deferral"
    cut: list[float] = []
    """Where a column of numbers is cut into groups."""


class BalanceTable(Table):
    """`[constraints.balance]`: everybody's mean expected loss lies within a band."""

    within: float = Field(ge=0)
    around: float | None = None


class RandomTable(Table):
    """`[constraints.random]`: a share of the cases goes to random people."""

    share: float = Field(ge=0, le=1)
    seed: int = Field(0, ge=0)


class ServiceLevelTable(Table):
    """`[[constraints.service_level]]`: so many of a kind of case are decided within so many hours."""

    share: float = Field(gt=0, le=1)
    hours: float = Field(gt=0)
    """From the start of the plan on."""
    group: str = ""
    """The column that tells the kind; left out: all cases."""
    value: str = ""
    """The kind that is meant."""

    @property
    def name(self) -> str:
        """What messages and tables call it."""
        whose = f" of {self.group} {self.value}" if self.group else ""
        return f"{self.share:.0%}{whose} within {self.hours:g} h"


class PriorityTable(Table):
    """`[constraints.priority]`: everybody takes up cases of a higher number first, whatever waiting costs."""

    column: str


class ConstraintsTable(Table):
    """The `[constraints]` table: what a plan must grant beside everybody's limits."""

    minutes: MinutesTable | None = None
    reviewers: ReviewersTable | None = None
    band: list[BandTable] = []
    balance: BalanceTable | None = None
    random: RandomTable | None = None
    service_level: list[ServiceLevelTable] = []
    priority: PriorityTable | None = None

    @property
    def on_makers(self) -> bool:
        """Whether it asks for more than an order: who gets which case, too."""
        return bool(self.minutes or self.reviewers or self.band or self.balance or self.random)

    @property
    def on_order(self) -> bool:
        """Whether it asks for an order."""
        return bool(self.service_level or self.priority)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the cases that it names."""
        named = [band.group for band in self.band]
        named += [self.minutes.minutes] if self.minutes and isinstance(self.minutes.minutes, str) else []
        named += [self.reviewers.count] if self.reviewers and isinstance(self.reviewers.count, str) else []
        named += [level.group for level in self.service_level if level.group]
        named += [self.priority.column] if self.priority else []
        return tuple(dict.fromkeys(named))


class UrgencyTable(Table):
    """What waiting costs: by the hour, and once a case is late."""

    cost: float | None = Field(None, ge=0)
    """An hour of waiting, where a case has no `waiting_cost` of its own."""
    due: float | None = Field(None, ge=0)
    """Hours from the start of the plan after which a case is late, where it has no `due` of its own."""
    late: float | None = Field(None, ge=0)
    """What it costs once, when a case becomes late."""
    late_per_hour: float | None = Field(None, ge=0)
    """What every further hour costs then, beside `cost`."""

    @property
    def priced(self) -> bool:
        """Whether anything costs something."""
        return any((self.cost, self.late, self.late_per_hour))


class WaitingTable(UrgencyTable):
    """The `[waiting]` table: what waiting costs, by kind of case, and how long cases take."""

    kind: str = ""
    """The column that tells the kind of a case."""
    kinds: dict[str, UrgencyTable] = {}
    """What is different for a kind, by its name."""
    minutes: float | str | None = None
    """Minutes of a case: a number, a column of the cases, or left out, from the seconds of the log."""

    @model_validator(mode="after")
    def _kind_of_what(self) -> WaitingTable:
        if self.kinds and not self.kind:
            raise ValueError("kinds: say first which column tells the kind of a case (kind)")
        return self

    @property
    def priced(self) -> bool:
        """Whether anything costs something, of a kind at least."""
        return super().priced or any(kind.priced for kind in self.kinds.values())

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the cases that it names."""
        named = [self.kind] if self.kind else []
        return (*named, *([self.minutes] if isinstance(self.minutes, str) else []))


class Config(Table):
    """All of a configuration file."""

    columns: Columns = Columns()
    costs: CostsTable
    labels: LabelsTable = LabelsTable()
    model: ModelTable = ModelTable()
    waiting: WaitingTable | None = None
    constraints: ConstraintsTable | None = None
    display: DisplayTable = DisplayTable()
    second: SecondTable = SecondTable()
    staffing: StaffingTable | None = None
    makers: dict[str, Maker] = {}
    """Who is a machine, and what its answers cost; anyone else is a person."""

    @model_validator(mode="before")
    @classmethod
    def _own_scores(cls, data: Any) -> Any:
        """Machines' own scores are no features of anybody else."""
        makers = data.get("makers") if isinstance(data, Mapping) else None
        named = [
            name
            for name, one in (makers.items() if isinstance(makers, Mapping) else ())
            if (one.get("kind") if isinstance(one, Mapping) else getattr(one, "kind", None)) == "machine"
        ]
        columns = data.get("columns", {}) if named else None
        if not named or not isinstance(columns, Mapping | Columns):
            return data
        told = columns.model_dump(exclude_unset=True) if isinstance(columns, Columns) else dict(columns)
        given = told.get("scores", {})
        if not isinstance(given, Mapping):
            return data
        return {**data, "columns": {**told, "scores": {**{n: f"{SCORE}{n}" for n in named}, **given}}}

    @model_validator(mode="after")
    def _prices_are_said_once(self) -> Config:
        try:
            read_makers(self.makers)
        except ConfigError as error:
            raise ValueError(str(error)) from error
        twice = [name for name in named_in(self.costs.review_cost) if self._price(name) is not None]
        if twice:
            raise ValueError(
                f"{twice[0]!r} has a price under [makers] and another under [costs] review_cost; keep one"
            )
        return self

    def _price(self, name: str) -> Any:
        return self.makers[name].price if name in self.makers else None

    @property
    def review_cost(self) -> ReviewCost:
        """What it costs to ask everybody, machines by their prices."""
        told = {name: one.price for name, one in self.makers.items() if one.price is not None}
        return with_prices(self.costs.review_cost, {**dict.fromkeys(machines_of(self.makers)), **told})

    @model_validator(mode="after")
    def _classes_are_known(self) -> Config:
        if self.labels.selective:
            self.labels.classes_of(self.costs.build().classes)
        return self

    def notes(self) -> list[str]:
        """What to say of the configuration itself."""
        if not self.costs.example:
            return []
        return [
            "the costs are the examples that deccaf init wrote, so no plan or saving means anything yet: put "
            "your own under [costs] and take the line 'example = true' out"
        ]

    def check_people(self, known: Collection[str], where: str = "the log") -> None:
        """Everybody whom the costs or `[makers]` name is `known`, or a `ConfigError` names who is not."""
        for name in named_in(self.costs.review_cost):
            if name not in known:
                raise ConfigError(
                    f"[costs] review_cost: {name!r} is none of the {len(known)} people of {where}"
                    + did_you_mean(name, known)
                )
        for name in self.makers:
            if name not in known:
                raise ConfigError(
                    f"[makers.{name}]: {name!r} is none of the {len(known)} people and machines of {where}"
                    + did_you_mean(name, known)
                )

    @classmethod
    def read(cls, path: str | Path) -> Config:
        """Read a TOML file; whatever is wrong with it is a `ConfigError` that names the key."""
        config = read_toml(path, cls)
        try:
            config.costs.build()
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from error
        return config


_Model = TypeVar("_Model", bound=BaseModel)


def read_toml(path: str | Path, model: type[_Model]) -> _Model:
    """Read a TOML file into `model`; whatever is wrong with it is a `ConfigError` that names the key."""
    try:
        data = tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise ConfigError(f"{path}: {explain_error(error, model)}") from error


MOST_COMPLAINTS = 5


def explain_error(error: ValidationError, model: type[BaseModel], table: str | None = None) -> str:
    """What is wrong in words, the first few complaints in full; `table` names the one that `model` is."""
    found = list(dict.fromkeys(_complaint(dict(one), model, table) for one in error.errors()))
    more = len(found) - MOST_COMPLAINTS
    return "; ".join(found[:MOST_COMPLAINTS]) + (f" (and {more} more)" if more > 0 else "")


def _complaint(one: dict[str, Any], model: type[BaseModel], table: str | None) -> str:
    keys = [str(part) for part in ([] if table is None else [table]) + list(one["loc"])]
    where = f"[{keys[0]}] {'.'.join(keys[1:])}".strip() if keys else ""
    if one["type"] == "extra_forbidden":
        known = _keys_beside(model, keys)
        return f"{where}: unknown key; known are {', '.join(known)}" + did_you_mean(keys[-1], known)
    if one["type"] == "missing":
        return f"{where}: missing"
    message = f"{where}: {one['msg'].removeprefix('Value error, ')}".removeprefix(": ")
    return message + (f", got {one['input']!r}" if len(keys) > 1 else "")


def _keys_beside(model: type[BaseModel], keys: list[str]) -> list[str]:
    """The keys that may stand where the last of `keys` stands."""
    for key in keys[:-1]:
        if key in model.model_fields:
            model = _model_in(model.model_fields[key].annotation) or model
    return list(model.model_fields)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model that an annotation holds, inside a list, a dict or beside None too."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _model_in(part))), None)
