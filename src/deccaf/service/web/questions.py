"""What a lead asks for in an address, for the API and the pages alike; lists as CSV files."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import chain
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from fastapi import Query
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from deccaf.service.core import Service
from deccaf.service.errors import invalid
from deccaf.service.ledger.moving.priority import NAMES
from deccaf.service.ledger.record.audit import Line, TrailQuestion, whole_trail
from deccaf.service.ledger.record.person_data import person_data
from deccaf.service.ledger.record.search import FoundCase, Mark, Question, all_cases
from deccaf.service.store.fields import CASE_ID
from deccaf.service.web.common import as_time, class_of, number

NO_NUL = r"^[^\x00]*$"
Text = Annotated[str, Field(max_length=200, pattern=NO_NUL)]
Named = Annotated[str, Query(max_length=200, pattern=NO_NUL)]
"""A person's name in an address."""


class Address(BaseModel):
    """The fields of a form that is sent as an address; empty ones are as good as none."""

    model_config = ConfigDict(extra="ignore")

    after: Text = ""

    @property
    def mark(self) -> Mark | None:
        """Where the page begins."""
        return Mark.read(self.after) if self.after else None

    def link(self, path: str, **changes: Any) -> str:
        """The same question under a path, from its first page on."""
        fields = {**self.model_dump(exclude={"after"}), **changes}
        kept = {name: value for name, value in fields.items() if value not in ("", None)}
        return f"{path}?{urlencode(kept)}" if kept else path


class CaseAddress(Address):
    """Which cases: see `ledger.record.search`."""

    find: Text = ""
    person: Text = ""
    status: Literal["", "all", "waiting", "assigned", "decided"] = ""
    decision: Text = ""
    since: Text = ""
    until: Text = ""
    loss_from: Text = ""
    loss_to: Text = ""
    disagreement: Literal["", "label", "machine", "people"] = ""
    sort: Literal["", "newest", "oldest", "highest", "lowest"] = ""

    def question(self) -> Question:
        """As the ledger takes it."""
        return Question(
            part=self.find.strip(),
            person=self.person or None,
            status=None if self.status in ("", "all") else self.status,
            decision=_class(self.decision),
            since=_day("from", self.since),
            until=_day("until", self.until, 1),
            loss_from=number("expected loss from", self.loss_from),
            loss_to=number("expected loss to", self.loss_to),
            disagreement=self.disagreement or None,
            sort=self.sort or "newest",
        )

    def narrow(self, beside: str = "") -> bool:
        """Whether anything but the order (and one field) is asked for."""
        fields = self.model_dump(exclude={"after", "sort", beside})
        return any(value not in ("", "all") for value in fields.values())


class TrailAddress(Address):
    """Which lines of the trail: see `ledger.record.audit`."""

    person: Text = ""
    key: Annotated[str, Field(pattern=r"^[0-9]{0,12}$")] = ""
    case: Annotated[str, Field(pattern=rf"^$|{CASE_ID}")] = ""
    kind: Text = ""
    since: Text = ""
    until: Text = ""

    def question(self) -> TrailQuestion:
        """As the ledger takes it."""
        return TrailQuestion(
            person=self.person or None,
            key=int(self.key) if self.key else None,
            case_id=self.case or None,
            kind=self.kind or None,
            since=_day("from", self.since),
            until=_day("until", self.until, 1),
        )


Cases = Annotated[CaseAddress, Query()]
Trail = Annotated[TrailAddress, Query()]


def harmless(cell: Any) -> Any:
    """A cell that no spreadsheet takes for a formula: text that begins like one gets an apostrophe."""
    if isinstance(cell, str) and cell[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return "'" + cell
    return cell


def csv_text(rows: list[list[Any]]) -> str:
    """Rows as CSV, with harmless cells."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\r\n").writerows([[harmless(cell) for cell in row] for row in rows])
    return out.getvalue()


def download(name: str, head: list[str], parts: Iterable[list[list[Any]]]) -> StreamingResponse:
    """Rows as a CSV file, sent part by part; cells that a spreadsheet would run are made harmless."""

    def lines() -> Iterator[str]:
        yield csv_text([head])
        for rows in parts:
            yield csv_text(rows)

    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(lines(), media_type="text/csv; charset=utf-8", headers=headers)


def _class(text: str) -> str | None:
    """A decision as it stands in the ledger: what reads as a number is one."""
    if not text:
        return None
    return json.dumps(class_of(text))


def _day(what: str, text: str, later: int = 0) -> float | None:
    """A day (from its beginning, UTC) or an ISO time as seconds."""
    if not text:
        return None
    try:
        if len(text) == 10:
            day = date.fromisoformat(text) + timedelta(days=later)
            return datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()
        when = datetime.fromisoformat(text)
        return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError) as error:
        raise invalid("bad-time", f"{what}: {text!r} is no day like 2026-01-31, and no time") from error


def case_file(here: Service, question: Question) -> StreamingResponse:
    """All cases that are looked for, as CSV."""
    head = ["case_id", "status", "priority", "arrived_at", "person", "method", "expected_loss"]
    head += ["machine_says", "decision", "decided_at", "label"]
    return download(
        "cases.csv", head, ([_case_row(c) for c in part] for part in all_cases(here.read, question))
    )


def trail_file(here: Service, question: TrailQuestion) -> StreamingResponse:
    """All lines of the trail that are looked for, as CSV."""
    head = ["id", "at", "kind", "case_id", "shift", "person", "key", "key_name", "role", "data"]
    return download(
        "trail.csv", head, ([_line_row(x) for x in part] for part in whole_trail(here.read, question))
    )


def data_file(here: Service, name: str) -> StreamingResponse:
    """Everything that is kept about a person; an unknown name is refused before anything is sent."""
    parts = person_data(here.read, name)
    first = next(parts)
    headers = {"Content-Disposition": 'attachment; filename="person.json"'}
    return StreamingResponse(chain([first], parts), media_type="application/json", headers=headers)


def _case_row(case: FoundCase) -> list[Any]:
    times = (as_time(case.arrived_at), as_time(case.decided_at))
    first = [case.case_id, case.status, NAMES[case.priority], times[0], case.maker, case.method]
    return [*first, case.expected_loss, case.machine_says, case.decision, times[1], case.label]


def _line_row(line: Line) -> list[Any]:
    who = [line.maker, line.key_id, line.key_name, line.role]
    return [line.id, as_time(line.at), line.kind, line.case_id, line.shift_id, *who, json.dumps(line.data)]
