"""The calls of the API: one method for each operation that programs need, by the operation's name."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import quote, urlencode

from pydantic import BaseModel, TypeAdapter

from deccaf.addresses import web_address
from deccaf.client.answers import (
    Accepted,
    All,
    Case,
    CaseBrief,
    CaseInHand,
    Claimed,
    Health,
    ImportMade,
    InForce,
    Job,
    JobAsked,
    KeyMade,
    LearningSettings,
    ModelMade,
    Models,
    Page,
    Person,
    Placed,
    PlanMade,
    PlanRow,
    Queue,
    Shift,
    Team,
)
from deccaf.errors import ConfigError, DeccafError

Found = TypeVar("Found", bound=BaseModel)
Class = int | str
Features = Mapping[str, Any]

_TRY_AGAIN = {429, 503}
_SECONDS = 30.0
_LONGEST_WAIT = 10.0
_TABLES = {".csv": "text/csv", ".parquet": "application/vnd.apache.parquet"}


class ApiError(DeccafError):
    """What the service refused: `status`, the `kind` of the problem, its words, and all that it said."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        self.status, self.problem = status, dict(problem)
        self.kind = str(problem.get("type", ""))
        super().__init__(f"{status}: {problem.get('detail') or problem.get('title') or 'no words'}")


class Client:
    """The service at an address, with a key.

    Every change has an idempotency key of its own, so that it is done once however often it is sent: where
    the service is away or busy, a call is sent again, at most `attempts` times.
    """

    def __init__(
        self, address: str, key: str | None = None, *, seconds: float = _SECONDS, attempts: int = 5
    ) -> None:
        if web_address(address) is None:
            raise ConfigError(
                f"{address!r}: an address of the service begins with http:// or https:// and a host"
            )
        self.address, self._key = address.rstrip("/"), key
        self._seconds, self._attempts = seconds, max(attempts, 1)

    def health(self) -> Health:
        """Whether the process answers."""
        return self._get("/healthz", Health)

    # people and shifts

    def add_team(self, name: str) -> Team:
        """Add a team."""
        return self._post("/v1/teams", Team, {"name": name})

    def add_expert(self, name: str, team: str, display: str | None = None) -> Person:
        """Add a person to a team."""
        return self._post("/v1/experts", Person, {"name": name, "team": team, "display": display})

    def list_experts(self) -> All[Person]:
        """Everyone, by name."""
        return self._get("/v1/experts", All[Person])

    def add_key(
        self,
        name: str,
        role: Literal["lead", "reviewer", "machine"],
        expert: str | None = None,
        *,
        expires_at: datetime | None = None,
    ) -> KeyMade:
        """A new key; its secret is told here only."""
        until = None if expires_at is None else _time(expires_at)
        body = {"name": name, "role": role, "expert": expert, "expires_at": until}
        return self._post("/v1/keys", KeyMade, body)

    def add_shift(
        self,
        name: str,
        team: str,
        starts_at: datetime,
        ends_at: datetime,
        roster: Mapping[str, int | None],
        *,
        expected_cases: int | None = None,
    ) -> Shift:
        """Open a shift; `roster` says how many cases everybody can take, None: no limit."""
        return self._post(
            "/v1/shifts",
            Shift,
            {
                "name": name,
                "team": team,
                "starts_at": _time(starts_at),
                "ends_at": _time(ends_at),
                "roster": [{"maker": maker, "capacity": capacity} for maker, capacity in roster.items()],
                "expected_cases": expected_cases,
            },
        )

    def get_current_shift(self) -> Shift:
        """The shift that runs now."""
        return self._get("/v1/current-shift", Shift)

    # cases and labels

    def add_case(
        self,
        case_id: str,
        features: Features | None = None,
        *,
        losses: Mapping[str, float] | None = None,
        machine_decision: Class | None = None,
        excluded: Sequence[str] = (),
        due: datetime | None = None,
        waiting_cost: float | None = None,
    ) -> Placed:
        """Enter a case and have it routed at once; `status` is `waiting` where nobody has room."""
        case = _case(case_id, features, losses, machine_decision, excluded, due, waiting_cost)
        return self._post("/v1/cases", Placed, case)

    def add_cases(self, cases: Sequence[Mapping[str, Any]]) -> Accepted:
        """Enter many cases, which wait for the next plan; each is a mapping as `add_case` takes it."""
        return self._post("/v1/cases/bulk", Accepted, {"cases": [_case(**case) for case in cases]})

    def import_file(
        self, path: str | Path, *, skip_bad: bool = False, filename: str | None = None
    ) -> ImportMade:
        """Enter a .csv or .parquet file of cases, which wait for the next plan."""
        path = Path(path)
        if path.suffix.lower() not in _TABLES:
            raise ConfigError(f"{path}: unknown extension {path.suffix!r}; use .csv or .parquet")
        asked = {"filename": filename or path.name, "skip_bad": skip_bad or None}
        return self._send(
            "POST", "/v1/imports", ImportMade, path.read_bytes(), _TABLES[path.suffix.lower()], asked
        )

    def list_cases(
        self,
        status: Literal["waiting", "assigned", "decided"] | None = None,
        *,
        limit: int = 100,
        after: int | None = None,
    ) -> Page[CaseBrief]:
        """Cases in order of arrival."""
        return self._get("/v1/cases", Page[CaseBrief], status=status, limit=limit, after=after)

    def get_case(self, case_id: str) -> Case:
        """A case with who has or decided it and why, and its history."""
        return self._get(f"/v1/cases/{_part(case_id)}", Case)

    def add_labels(self, labels: Mapping[str, Class]) -> Accepted:
        """Write down what the truth of cases turned out to be; all of them, or none."""
        rows = [{"case_id": case, "label": label} for case, label in labels.items()]
        return self._post("/v1/labels", Accepted, {"labels": rows})

    # a reviewer's day

    def claim_next_case(self, expert: str | None = None) -> CaseInHand | None:
        """Claim the next case; None where nothing is assigned. A lead says for whom."""
        return self._maybe("/v1/queue/next", CaseInHand, {"expert": expert})

    def get_queue(self, expert: str | None = None, *, limit: int = 100) -> Queue:
        """What is assigned, the oldest first."""
        return self._get("/v1/queue", Queue, expert=expert, limit=limit)

    def decide_case(
        self, case_id: str, decision: Class, *, seconds: float | None = None, expert: str | None = None
    ) -> Placed:
        """Decide a case; once."""
        body = {"decision": decision, "seconds": seconds, "expert": expert}
        return self._post(f"/v1/cases/{_part(case_id)}/decision", Placed, body)

    def hand_back_case(self, case_id: str, reason: str = "", *, expert: str | None = None) -> Placed:
        """Give a case back; it goes to the next best with room, or waits."""
        body = {"reason": reason, "expert": expert}
        return self._post(f"/v1/cases/{_part(case_id)}/hand-back", Placed, body)

    def extend_claim(self, case_id: str, *, expert: str | None = None) -> Claimed:
        """More time for the case in hand."""
        return self._post(f"/v1/cases/{_part(case_id)}/extend", Claimed, {"expert": expert})

    # plans and models

    def draft_plan(self, *, shift: int | None = None, case_ids: Sequence[str] | None = None) -> PlanMade:
        """Draft the plan of least expected cost for the cases that wait; nobody is bound by it."""
        some = None if case_ids is None else list(case_ids)
        return self._post("/v1/plans", PlanMade, {"shift": shift, "case_ids": some})

    def get_plan_rows(self, plan_id: int, *, limit: int = 100, after: int = 0) -> Page[PlanRow]:
        """The cases of a draft: who would get them."""
        return self._get(f"/v1/plans/{plan_id}/rows", Page[PlanRow], limit=limit, after=after)

    def commit_plan(self, plan_id: int) -> PlanMade:
        """Turn a draft into assignments, whole or not at all."""
        return self._post(f"/v1/plans/{plan_id}/commit", PlanMade)

    def upload_model(self, path: str | Path, name: str = "model") -> ModelMade:
        """Send a `.deccaf` file; it is not activated yet."""
        content = Path(path).read_bytes()
        asked = {"name": name}
        return self._send("POST", "/v1/models", ModelMade, content, "application/octet-stream", asked)

    def list_models(self, *, limit: int = 100, after: int | None = None) -> Models:
        """All models, and which is in force."""
        return self._get("/v1/models", Models, limit=limit, after=after)

    def activate_model(self, model_id: int) -> InForce:
        """Put a model in force."""
        return self._post(f"/v1/models/{model_id}/activate", InForce)

    def refit_model(self, name: str = "refit", *, activate: bool = False) -> JobAsked:
        """Fit a new model on the ledger in the background."""
        return self._post("/v1/models/refit", JobAsked, {"name": name, "activate": activate})

    def get_job(self, job_id: int) -> Job:
        """A background job."""
        return self._get(f"/v1/jobs/{job_id}", Job)

    def put_settings(self, costs: Mapping[str, Any], **tables: Mapping[str, Any]) -> LearningSettings:
        """Say how refits learn: tables of a configuration file (`costs`, `columns`, `model`, `labels`)."""
        return self._send_json("PUT", "/v1/settings", LearningSettings, {"costs": costs, **tables})

    # how it goes over the wire

    def _get(self, path: str, model: type[Found], **asked: Any) -> Found:
        return self._send("GET", path, model, None, None, asked)

    def _post(self, path: str, model: type[Found], body: Mapping[str, Any] | None = None) -> Found:
        return self._send_json("POST", path, model, body)

    def _maybe(self, path: str, model: type[Found], body: Mapping[str, Any]) -> Found | None:
        content = self._exchange("POST", path, json.dumps(_given(body)).encode(), "application/json", {})
        return None if not content else TypeAdapter(model).validate_json(content)

    def _send_json(self, method: str, path: str, model: type[Found], body: Mapping[str, Any] | None) -> Found:
        content = None if body is None else json.dumps(_given(body)).encode()
        return self._send(method, path, model, content, "application/json", {})

    def _send(
        self,
        method: str,
        path: str,
        model: type[Found],
        content: bytes | None,
        kind: str | None,
        asked: Mapping[str, Any],
    ) -> Found:
        return TypeAdapter(model).validate_json(self._exchange(method, path, content, kind, asked))

    def _exchange(
        self, method: str, path: str, content: bytes | None, kind: str | None, asked: Mapping[str, Any]
    ) -> bytes:
        query = urlencode({name: _word(value) for name, value in _given(asked).items()})
        request = urllib.request.Request(
            f"{self.address}{path}{'?' if query else ''}{query}", data=content, method=method
        )
        request.add_header("Accept", "application/json")
        if self._key is not None:
            request.add_header("Authorization", f"Bearer {self._key}")
        if kind is not None:
            request.add_header("Content-Type", kind)
        if method != "GET":
            request.add_header("Idempotency-Key", uuid.uuid4().hex)
        for attempt in range(1, self._attempts + 1):
            last = attempt == self._attempts
            try:
                with urllib.request.urlopen(request, timeout=self._seconds) as answer:
                    return bytes(answer.read())
            except urllib.error.HTTPError as error:
                if last or error.code not in _TRY_AGAIN:
                    raise ApiError(error.code, _problem(error)) from error
                wait = _seconds(error.headers.get("Retry-After"))
            except (OSError, http.client.HTTPException) as error:  # nobody answers, or the answer was cut off
                if last:
                    reason = getattr(error, "reason", error)
                    raise DeccafError(f"{self.address}: does not answer: {reason}") from error
                wait = 0.0
            time.sleep(min(max(wait, 0.1 * 2 ** min(attempt, 10)), _LONGEST_WAIT))
        raise AssertionError("the last attempt gives or raises")


def _seconds(retry_after: str | None) -> float:
    """How long to wait; 0 where it does not say, or says it as a date."""
    text = (retry_after or "").strip()
    return float(text) if text.isdecimal() else 0.0


def _problem(error: urllib.error.HTTPError) -> Mapping[str, Any]:
    try:
        found = json.loads(error.read())
    except (ValueError, OSError):
        found = None
    return found if isinstance(found, dict) else {"title": str(error.reason)}


def _case(
    case_id: str,
    features: Features | None = None,
    losses: Mapping[str, float] | None = None,
    machine_decision: Class | None = None,
    excluded: Sequence[str] = (),
    due: datetime | None = None,
    waiting_cost: float | None = None,
) -> dict[str, Any]:
    return _given(
        {
            "case_id": case_id,
            "features": None if features is None else dict(features),
            "losses": None if losses is None else dict(losses),
            "machine_decision": machine_decision,
            "excluded": list(excluded) or None,
            "due": None if due is None else _time(due),
            "waiting_cost": waiting_cost,
        }
    )


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    """Only what was said: what is left out has the service's own default."""
    return {name: value for name, value in values.items() if value is not None}


def _time(value: datetime) -> str:
    if value.tzinfo is None:
        raise ConfigError(f"{value}: a time needs its zone, such as datetime.now(UTC)")
    return value.isoformat()


def _part(text: str) -> str:
    """An id as a part of an address; slashes may stand in it."""
    return quote(text, safe="/")


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
