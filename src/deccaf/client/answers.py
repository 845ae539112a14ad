"""What the service answers: one model for each kind of answer.

The service names these in its OpenAPI document and does not check its own answers at run time; the tests
check every answer that they get. `Client` gives them to its callers. Times are ISO 8601 with their zone. A
field that an answer may leave out has a default.
"""

from __future__ import annotations

from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

Class = int | str
"""A decision or a truth."""
Item = TypeVar("Item")


class Answered(BaseModel):
    """An answer; fields that a later version adds do no harm."""

    model_config = ConfigDict(protected_namespaces=())


class All(Answered, Generic[Item]):
    """All of them."""

    items: list[Item]


class Records(All[Item], Generic[Item]):
    """Everybody's record, and when it was added up."""

    as_of: str


class Page(Answered, Generic[Item]):
    """Some of a list; `next` is the `after` of the page that follows, or null at the end."""

    items: list[Item]
    next: int | None


class Accepted(Answered):
    """How many were written down."""

    accepted: int = Field(examples=[250])


class Health(Answered):
    """The process answers."""

    status: str = Field(examples=["ok"])
    version: str


class Ready(Answered):
    """It can work."""

    status: str = Field(examples=["ready"])


# people


class Team(Answered):
    """A team."""

    id: int
    name: str = Field(examples=["desk 1"])


class Person(Answered):
    """A person who decides."""

    name: str = Field(examples=["ann"])
    display: str
    active: bool
    team: str


class ExpertChanged(Answered):
    """A person after a change, and how many of their open cases went to others."""

    name: str
    display: str
    active: bool
    released: int


class Key(Answered):
    """A key without its secret."""

    id: int
    name: str
    role: Literal["lead", "reviewer", "machine"]
    expert: str | None
    created_at: str
    revoked_at: str | None
    expires_at: str | None


class KeyMade(Answered):
    """A new key; the secret is told here only."""

    id: int
    name: str
    role: Literal["lead", "reviewer", "machine"]
    expert: str | None
    expires_at: str | None
    secret: str = Field(examples=["deccaf_..."])


class KeyEnded(Answered):
    """A key that is out of use."""

    id: int
    revoked: bool


# shifts


class RosterSeat(Answered):
    """Somebody on a roster: limits, what is used, and the price of their next unit of time."""

    maker: str = Field(examples=["ann"])
    capacity: int | None
    lower: int
    used: int
    absent: bool
    active: bool
    price: float
    answered: int
    machine: bool
    """Whether it is a machine of the configuration."""
    held_up: bool
    """Of a machine: that it does not answer, or is not in the configuration any more."""


class ShiftBrief(Answered):
    """A shift in a list."""

    id: int
    name: str
    state: str
    starts_at: str
    ends_at: str
    expected_cases: int | None
    random_share: float
    priced_at: str | None


class Shift(ShiftBrief):
    """A shift with its roster."""

    roster: list[RosterSeat]


class RosterChanged(Shift):
    """A shift after a change of its roster, and how many cases went to others."""

    released: int


class Repriced(Shift):
    """A shift after its prices were reckoned anew."""

    renewed: bool


# cases


class CaseBrief(Answered):
    """A case in a list."""

    id: int
    case_id: str = Field(examples=["a17"])
    status: Literal["waiting", "assigned", "decided"]
    arrived_at: str
    label: Class | None


class Reason(Answered):
    """Why an assignment was made: everybody's loss and price at that moment, and the chance of the choice."""

    losses: dict[str, float | None]
    prices: dict[str, float]
    model: int | None
    propensity: float
    method: str
    plan: int | None
    objective: dict[str, float | None] | None = None


class Assignment(Answered):
    """Who has a case."""

    maker: str
    state: str
    shift: int
    expected_loss: float
    price: float
    created_at: str
    claimed_until: str | None
    reason: Reason | None


class Decided(Answered):
    """A decision on record."""

    maker: str
    decision: Class
    at: str


class Event(Answered):
    """A line of a case's trail."""

    at: str
    kind: str
    maker: str | None
    key: int | None
    data: dict[str, Any]


class Case(CaseBrief):
    """A case; a reviewer sees its features and how long it is theirs, and no more."""

    features: dict[str, Any]
    due: str | None = None
    claimed_until: str | None = None
    excluded: list[str] = []
    priority: str = ""
    waiting_cost: float | None = None
    assignment: Assignment | None = None
    decision: Decided | None = None
    history: list[Event] = []


class CaseInHand(CaseBrief):
    """The case in hand, and what the machine thinks where it is shown."""

    features: dict[str, Any]
    due: str | None = None
    claimed_until: str | None
    machine: Any = None


class Placed(Answered):
    """Who got a case: by expected loss and price, with the chance of the choice."""

    case_id: str = Field(examples=["a17"])
    status: Literal["waiting", "assigned", "decided"]
    maker: str | None = Field(None, examples=["ann"])
    decision: Class | None = None
    expected_loss: float | None = Field(None, examples=[0.031])
    price: float | None = Field(None, examples=[0.004])
    propensity: float | None = Field(None, examples=[1.0])
    model: int | None = None
    shift: int | None = None
    reason: str = ""
    """Why nobody got it."""
    let_through: bool = False


class Claimed(Answered):
    """A case in hand, and until when."""

    case_id: str
    status: str
    claimed_until: str | None


class Parked(Answered):
    """A case that is put aside, and until when."""

    case_id: str
    status: str
    parked_until: str


class FirstAnswered(Answered):
    """What was said before the machine was seen, and what it says."""

    case_id: str
    first: Class | None
    machine: Any


class NoteMade(Answered):
    """A note in the trail of a case."""

    case_id: str
    by: str | None
    text: str


class Queued(Answered):
    """A case in somebody's queue."""

    case_id: str
    state: str
    assigned_at: str
    claimed_until: str | None
    parked_until: str | None
    due: str | None = None


class Queue(Answered):
    """What is assigned to somebody, and how far they are."""

    expert: str
    waiting: int
    decided: int
    items: list[Queued]


class RowError(Answered):
    """A row that cannot be used."""

    row: int
    case_id: str | None
    column: str | None = None
    message: str


class Looked(Answered):
    """What a file of cases holds."""

    rows: int
    accepted: int
    rejected: int
    columns: list[Any]
    errors: list[RowError]
    more_errors: int


class ImportMade(Looked):
    """A file of cases that was entered."""

    id: int


class Import(Answered):
    """A file of cases that was entered, in a list."""

    id: int
    filename: str
    rows: int
    accepted: int
    rejected: int
    at: str
    errors: list[RowError]


# plans


class PlanMaker(Answered):
    """What somebody gets in a plan; no capacity: no limit."""

    maker: str
    cases: int
    capacity: float | None
    price: float | None
    next_hour: float | None


class LotCost(Answered):
    """What the shift's lottery costs."""

    model_config = ConfigDict(extra="allow", protected_namespaces=())

    drawn: bool


class PlanSummary(Answered):
    """What a plan costs against the machine alone and random cases, and who gets how much."""

    cases: int
    cost: float | None
    cost_interval: list[float | None] | None
    machine_cost: float | None
    random_cost: float | None
    close_calls: int
    gap: float | None
    makers: list[PlanMaker]
    notes: list[str]
    costs: dict[str, Any] | None
    warnings: list[dict[str, Any]]
    waiting: dict[str, Any] | None = None
    by_lot: int = 0
    constraints: list[dict[str, Any]] = []
    plain_cost: float | None = None
    lot: LotCost | None = None


class PlanMade(PlanSummary):
    """A plan: a draft binds nobody, a committed one has become assignments."""

    id: int
    state: Literal["draft", "committed", "discarded"]
    shift: int


class Plan(PlanMade):
    """A plan on record."""

    model: int | None
    created_at: str
    committed_at: str | None


class PlanEnded(Answered):
    """A draft that was given up."""

    id: int
    state: str


class PlanRow(Answered):
    """A case of a draft: who would get it, and what everybody was expected to cost."""

    case_id: str
    maker: str
    expected_loss: float | None
    losses: dict[str, float | None]
    order: int | None = None
    finish: str | None = None
    late: bool | None = None
    waiting_cost: float | None = None


class OtherPlan(Answered):
    """What the cases of a draft would cost with other capacities."""

    cost: float
    change: float
    plan: PlanSummary


# models


class ModelMade(Answered):
    """A model file that the service keeps."""

    id: int
    name: str
    source: str
    sha256: str
    size: int
    summary: dict[str, Any]
    created_at: str


class Activation(Answered):
    """When a model was put in force, and how."""

    at: str
    kind: str


class Model(ModelMade):
    """A model, whether it is in force, and when it was."""

    active: bool
    activations: list[Activation]


class Models(Page[ModelMade]):
    """Some of the models, and which is in force."""

    active: int | None


class InForce(Answered):
    """The model that is in force now."""

    active: int


class ModelNote(Answered):
    """What somebody wrote about a model."""

    at: str
    by: str
    text: str


class ModelNoteMade(Answered):
    """A note on a model."""

    model: int
    text: str


class JobAsked(Answered):
    """A background job that waits."""

    job: int
    state: str


class Job(Answered):
    """A background job."""

    id: int
    kind: str
    state: str
    attempts: int
    params: dict[str, Any]
    result: Any
    created_at: str
    finished_at: str | None


class LearningSettings(Answered):
    """How refits learn: tables of a configuration file; null before anything was said."""

    learning: dict[str, Any] | None
