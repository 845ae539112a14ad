"""Who can decide: people, who have hours, and machines, which have a price, a speed and a limit.

`machine` is deccaf's own classifier. Others (a vendor's score, a language model) are named in the
configuration:

.. code-block:: toml

    [makers.llm]
    kind = "machine"
    price = { fixed = 0.001, column = "tokens", rate = 2e-6 }
    cases_per_minute = 30
    cases_per_day = 5000

Their decisions stand in the log like anybody's, and are learned from like anybody's. A machine has no hours:
it is there in every batch, whether the roster names it or not, up to its limit. Where a machine's own score
is logged (`score_<maker>`, a column of the cases), it tells of that machine's answer, and so of the truth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from deccaf.addresses import web_address
from deccaf.data.capacity import UNLIMITED, Capacity
from deccaf.data.costs import MACHINE
from deccaf.data.review import Price
from deccaf.errors import ConfigError

MINUTES_A_DAY = 24 * 60
"""A batch is a day where a machine's limit is counted."""
SCORE = "score_"
"""What the columns of machines' own scores begin with, unless `[columns] scores` calls them otherwise."""


class Http(BaseModel):
    """`[makers.NAME.http]`: where the service sends a machine its cases, and how long it waits for answers.

    Only `deccaf serve --config` reads it; it is in no model file.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    address: str
    """`http://` or `https://`, a host and a path; redirects are not followed."""
    secret_variable: str | None = None
    """The environment variable that holds the secret that requests are signed with; this or `secret_file`."""
    secret_file: str | None = None
    """The file that holds it, relative to the configuration."""
    timeout_seconds: float = Field(10.0, gt=0, le=600, allow_inf_nan=False)
    """A whole answer has to be there within."""
    tries: int = Field(3, ge=1, le=20)
    """Requests about a case before it goes to the next best; so many in vain in a row, and the machine is
    down."""
    at_once: int = Field(4, ge=1, le=64)
    """Requests at a time."""
    within_seconds: float = Field(300.0, gt=0, le=86400, allow_inf_nan=False)
    """A case without an answer for so long goes to the next best, whether it was sent or not."""

    @field_validator("address")
    @classmethod
    def _is_an_address(cls, given: str) -> str:
        parts = web_address(given)
        if parts is None:
            raise ValueError("an address begins with http:// or https:// and a host")
        if parts.username is not None or parts.password is not None:
            raise ValueError("no name or password in the address: requests are signed with the secret")
        return given

    @model_validator(mode="after")
    def _has_a_secret(self) -> Http:
        if (self.secret_variable is None) == (self.secret_file is None):
            raise ValueError(
                "say where the secret is, in secret_variable (an environment variable) or in secret_file; "
                "the secret itself stands in no configuration"
            )
        return self


class Maker(BaseModel):
    """`[makers.NAME]`: a person (the default), or a machine with its price and limits."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    kind: Literal["person", "machine"] = "person"
    price: float | str | dict[str, float | str] | None = None
    """What an answer costs: a number, a column of the cases, or `{fixed, column, rate}`; as `review_cost` has
    it."""
    cases_per_minute: float | None = Field(None, gt=0, allow_inf_nan=False)
    """How fast it answers: its limit in a batch, which is taken for a day, and its time where waiting
    costs."""
    cases_per_day: int | None = Field(None, ge=0)
    """Its limit in a batch."""
    http: Http | None = None
    """Where the service sends its cases."""

    @field_validator("price")
    @classmethod
    def _is_a_price(cls, given: Any) -> Any:
        if given is not None:
            try:
                Price.of(given)
            except ConfigError as error:
                raise ValueError(str(error)) from error
        return given

    @model_validator(mode="after")
    def _has_no_hours(self) -> Maker:
        own = ("cases_per_minute", "cases_per_day", "http")
        given = [name for name in own if getattr(self, name) is not None]
        if self.kind == "person" and given:
            raise ValueError(
                f"{given[0]} is for machines: say kind = 'machine', or give a person's limit on the roster"
            )
        return self

    @property
    def limit(self) -> int:
        """Cases of a batch at most."""
        limits = [UNLIMITED] if self.cases_per_day is None else [self.cases_per_day]
        if self.cases_per_minute is not None:
            limits.append(int(self.cases_per_minute * MINUTES_A_DAY))
        return min(limits)

    @property
    def minutes(self) -> float:
        """How long a case takes; 0: it answers at once."""
        return 0.0 if self.cases_per_minute is None else 1.0 / self.cases_per_minute


def read_makers(given: Mapping[str, Maker | Mapping[str, Any]] | None) -> dict[str, Maker]:
    """Makers as a `[makers]` table has them, or the same as mappings."""
    found = {}
    for name, one in (given or {}).items():
        try:
            found[str(name)] = one if isinstance(one, Maker) else Maker.model_validate(dict(one))
        except (ValidationError, TypeError, ValueError) as error:
            first = error.errors()[0] if isinstance(error, ValidationError) else None
            said = error if first is None else f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
            raise ConfigError(f"makers.{name}: {said}") from error
    if MACHINE in found:
        raise ConfigError(
            f"makers.{MACHINE}: this name is deccaf's own classifier, which costs nothing and has no limit "
            "but the roster's; give the other machine another name"
        )
    return found


def machines_of(makers: Mapping[str, Maker]) -> dict[str, Maker]:
    """The machines among them."""
    return {name: one for name, one in makers.items() if one.kind == "machine"}


def score_columns(makers: Mapping[str, Maker]) -> dict[str, str]:
    """What the columns of the machines' own scores are called, by machine."""
    return {name: f"{SCORE}{name}" for name in machines_of(makers)}


def with_machines(
    capacity: Capacity, makers: Mapping[str, Maker], known: Sequence[str]
) -> tuple[Capacity, list[str]]:
    """A roster with all machines that were learned from, within their limits; and what to say about it.

    `known` are those who were learned from. A machine that was not is left out: nobody's average tells how it
    decides.
    """
    for name in makers:
        if makers[name].kind == "person" and name in capacity.machines:
            raise ConfigError(
                f"makers.{name}: a person there and a machine on the roster; correct one of them"
            )
    machines = machines_of(makers) | {name: Maker(kind="machine") for name in capacity.machines - set(makers)}
    if not machines:
        return capacity, []
    upper, lower, new = capacity.upper.copy(), capacity.lower.copy(), []
    for name, one in machines.items():
        if name not in known:
            new.append(name)
            upper, lower = (table.drop(columns=name, errors="ignore") for table in (upper, lower))
            continue
        if name not in upper:
            upper[name], lower[name] = UNLIMITED, 0
        upper[name] = upper[name].clip(upper=one.limit)
        lower[name] = lower[name].clip(upper=upper[name])
    notes = [
        f"left out, as no decision of it was learned from: machine {name!r}; let it decide some cases on the "
        "side and fit again"
        for name in new
    ]
    kept = frozenset(machines) - set(new)
    return replace(capacity, upper=upper, lower=lower, machines=kept), notes
