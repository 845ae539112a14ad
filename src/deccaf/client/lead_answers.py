"""What the service answers about moving work, opinions, the past, trials, the watch and the record."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from deccaf.client.answers import Answered, Class, Looked

# moving work


class Move(Answered):
    """A case that moves, and its expected loss before and after."""

    case_id: str
    from_: str = Field(alias="from")
    to: str
    before: float | None
    after: float | None


class Unmoved(Answered):
    """A case that stays, and why."""

    case_id: str
    why: str


class Moved(Answered):
    """What a move does, or would do."""

    moved: list[Move]
    refused: list[Unmoved]
    before: float
    after: float


class PriorityChanged(Answered):
    """How urgent cases are now, and how many changed."""

    priority: str
    changed: int


class CameBack(Answered):
    """Somebody is back: cases that they have again, and those that stay where they are."""

    maker: str
    returned: int
    kept: int


# second opinions


class SecondWanted(Answered):
    """How many cases get a second opinion now that had none before."""

    changed: int


class OneAnswer(Answered):
    """What one person said."""

    maker: str
    decision: Class
    at: str


class Disagreement(Answered):
    """A case that waits for the lead's word."""

    case_id: str
    since: str
    why: str
    features: dict[str, Any]
    label: Class | None
    machine: Class | None
    answers: list[OneAnswer]


# the past


class PastLooked(Answered):
    """What a file of past decisions holds."""

    rows: int
    rejected: int
    cases: int
    labelled: int
    decisions: int
    people: Any
    first_at: str | None
    last_at: str | None
    classes: Any
    columns: list[dict[str, Any]]
    errors: list[dict[str, Any]]
    more_errors: int
    notes: list[str]
    trouble: str | None = None


class Past(PastLooked):
    """A file of past decisions that was entered, and whether it was taken back."""

    id: int
    filename: str
    at: str
    withdrawn_at: str | None


# golden cases and trials


class Entered(Answered):
    """How many golden cases were entered."""

    entered: int


class GoldenImported(Looked):
    """A file of golden cases that was entered."""

    entered: int


class ConstraintsInForce(Answered):
    """What plans grant unless they are asked for something else; null: nothing."""

    constraints: dict[str, Any] | None


class GoldenRate(Answered):
    """Golden cases for each other case that somebody gets."""

    expert: str
    rate: float


class GoldenPerson(Answered):
    """How somebody did on golden cases, and what these cost in time."""

    maker: str
    rate: float
    given: int
    decided: int
    right: int
    seconds: float | None


class GoldenRecords(Answered):
    """Everybody's golden cases."""

    people: list[GoldenPerson]


class TrialState(Answered):
    """A trial after a change; with the model where it is in force now."""

    id: int
    state: str
    model: int | None = None


class TrialRules(Answered):
    """What was settled before a trial began."""

    share: float
    bound: float
    worth: float
    tolerated: float
    chance: float
    aim: float | None


class TrialLook(Answered):
    """The saving per case with its bounds, and the verdict."""

    cases: int
    saving: float
    low: float
    high: float
    verdict: str


class TrialLoad(Answered):
    """Somebody's cases as today's practice and as the candidate would give them."""

    maker: str
    today: int
    candidate: int


class TrialGroup(Answered):
    """What a trial has shown for one kind of case."""

    column: str
    value: str
    look: TrialLook


class Trial(Answered):
    """A candidate beside today's practice, with what is known of it."""

    id: int
    model_id: int
    state: Literal["shadow", "trial", "ended"]
    rules: TrialRules
    verdict: str | None
    at: str
    ended_at: str | None
    cases: int
    otherwise: int
    in_candidate: int
    today_expected: float | None
    same_plan: float | None
    candidate_expected: float | None
    loads: list[TrialLoad]
    labelled: int
    supported: float | None
    today_cost: dict[str, Any] | None
    candidate_cost: dict[str, Any] | None
    look: TrialLook | None
    groups: list[TrialGroup]
    constraints: dict[str, Any] | None


class Trials(Answered):
    """The latest trials, the newest first."""

    trials: list[Trial]
    aside: str | None
    """Why the one that has not ended does not run."""


# the watch


class Limits(Answered):
    """From where on a measure is an alert."""

    drift: float
    label_days: float
    false_days: float


class Acknowledged(Answered):
    """Who has seen an alert, when, and what they said."""

    key: int | None
    who: str
    at: str
    note: str


class Alert(Answered):
    """Something that a lead should look at."""

    kind: str
    finding: str
    todo: str
    subject: str
    seen: Acknowledged | None


class Measure(Answered):
    """One measure on one day."""

    name: str
    value: float
    expected: float | None
    alert_at: float | None
    count: int
    odd: bool


class MeasureDays(Answered):
    """One measure over days: days since 1970, and the value."""

    name: str
    points: list[tuple[int, float]]
    alert_at: float | None
    latest: Measure


class Watch(Answered):
    """Measures, limits, and alerts in force."""

    looked_at: str | None
    limits: Limits
    alerts: list[Alert]
    measures: list[MeasureDays]


class SeenAlert(Answered):
    """An alert that was seen."""

    alert: str
    at: str


# the record


class FoundCase(Answered):
    """A case with who has it and what was decided."""

    id: int
    case_id: str
    status: str
    priority: int
    arrived_at: str
    label: Class | None
    maker: str | None
    state: str | None
    expected_loss: float | None
    method: str | None
    machine_says: Class | None
    decision: Class | None
    decided_at: str | None


class FoundCases(Answered):
    """A page of cases; where no index served, how many were looked through for it."""

    items: list[FoundCase]
    next: str | None
    looked: int | None
    beginnings: bool


class TrailLine(Answered):
    """One line of the trail, with the key that it was done with."""

    id: int
    at: str
    kind: str
    case_id: str | None
    shift_id: int | None
    maker: str | None
    key_id: int | None
    key_name: str | None
    role: str | None
    data: dict[str, Any]


class TrailLines(Answered):
    """A page of the trail."""

    items: list[TrailLine]
    next: str | None


class Erased(Answered):
    """What an erasure did."""

    pseudonym: str
    rows: int
    models: int
    released: int


class Soundness(Answered):
    """Whether the ledger adds up, and what does not."""

    sound: bool
    wrong: list[str]


# webhooks


class Webhook(Answered):
    """An address that is told what happens; a password or a query in it is not shown."""

    id: int
    url: str
    events: list[str]
    created_at: str
    ended_at: str | None


class WebhookMade(Webhook):
    """A new one; the secret that signs what it is told is in this answer only."""

    secret: str


class Webhooks(Answered):
    """All addresses."""

    items: list[Webhook]


class Delivery(Answered):
    """Something that an address was told, or is to be told."""

    id: int
    delivery: str
    """The same however often it is sent."""
    webhook: int
    event: str
    case_id: str | None
    state: Literal["waiting", "sent", "given up"]
    attempts: int
    at: str
    done_at: str | None
    status: int | None
    said: str | None
    body: dict[str, Any]
