"""*Team*: how often everybody errs, whether that was expected, and who would disagree with whom.

People are compared on cases that were given out by lot wherever there are enough of these: whoever gets the
hardest cases is not the worst.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import sqlalchemy as sa
from fastapi import APIRouter, Request, Response

from deccaf.data.costs import MACHINE
from deccaf.service.core import Service
from deccaf.service.errors import invalid
from deccaf.service.ledger import people
from deccaf.service.ledger.machines import seats
from deccaf.service.ledger.review import golden
from deccaf.service.ledger.review.golden import MOST_GOLDEN, GoldenRecord
from deccaf.service.reports.agreement_report import MEETING_COLUMNS, AgreementReport, report_agreement
from deccaf.service.reports.expert_report import ErrorsByTruth, ExpertReport
from deccaf.service.reports.team_report import CostCurve, Disagreement, cost_curves
from deccaf.service.web.common import Here, number
from deccaf.service.web.pages.access import LeadHere, checked_form
from deccaf.service.web.pages.charts import ErrorBar
from deccaf.service.web.pages.render import PageRoute, go, page
from deccaf.service.web.pages.words import percent
from deccaf.service.web.questions import download

router = APIRouter(route_class=PageRoute, include_in_schema=False)

FEWEST_BY_LOT = 20


@dataclass(frozen=True)
class Record:
    """Somebody's errors, on cases given out by lot where enough of these have a label."""

    name: str
    decisions: int
    errors: ErrorsByTruth
    by_lot: bool

    @classmethod
    def of(cls, report: ExpertReport) -> Record:
        """On which cases they are judged."""
        by_lot = report.assigned_by_lot.labelled >= FEWEST_BY_LOT
        errors = report.assigned_by_lot if by_lot else report.all_cases
        return cls(report.maker, report.decisions, errors, by_lot)

    @property
    def bar(self) -> ErrorBar:
        """For the chart."""
        low, high = self.errors.interval or (0.0, 1.0)
        return ErrorBar(self.name, self.errors.error_rate, low, high, f"of {self.errors.labelled}")


@dataclass(frozen=True)
class _Looked:
    """What the page about the team shows."""

    records: list[Record]
    as_of: float
    out_of_use: set[str]
    machines: frozenset[str]
    golden: list[GoldenRecord]
    curves: list[CostCurve]
    matrix: Disagreement | None


@router.get("/team")
def team(here: Here, visitor: LeadHere) -> Response:
    """Everybody's record, with intervals."""
    model = here.models.active

    def look(connection: sa.Connection) -> _Looked:
        found, at = here.records.read(connection, time.time())
        return _Looked(
            [Record.of(row) for row in found if row.maker != MACHINE],  # it gets other cases: no person
            at,
            {person.name for person in people.list_experts(connection) if not person.active},
            seats.machine_names(connection),
            golden.records(connection),
            [] if model is None else cost_curves(connection, model),
            None if model is None else here.disagreements.read(connection, model),
        )

    seen = here.read(look)
    records, matrix = seen.records, seen.matrix
    persons = [record for record in records if record.name not in seen.machines]
    bars = [replace(record.bar, name=visitor.called(record.name)) for record in persons]
    theirs = [r.errors for r in persons if r.errors.labelled]
    if matrix is not None:
        matrix = replace(matrix, names=[visitor.called(name) for name in matrix.names])
    mean = sum(e.wrong for e in theirs) / sum(e.labelled for e in theirs) if theirs else None
    return page(
        "team.html",
        visitor,
        finding=_finding(bars, mean),
        mean=mean,
        most=max([min(bar.high, 1.0) for bar in bars if bar.rate is not None] or [1.0]),
        bars=bars,
        records=records,
        as_of=seen.as_of,
        out_of_use=seen.out_of_use,
        golden=seen.golden,
        machines=seen.machines,
        people=[record.name for record in persons if record.name not in seen.out_of_use],
        curves=seen.curves,
        matrix=matrix,
        disagreement=None if matrix is None else _most_and_least(matrix),
    )


@router.post("/team/golden")
async def set_golden(request: Request, here: Here, visitor: LeadHere) -> Response:
    """How many golden cases somebody gets for 100 others."""
    form = await checked_form(request, visitor)
    given = number("golden cases for 100 others", form.get("rate"))
    rate = -1.0 if given is None else given / 100
    if not 0 <= rate <= MOST_GOLDEN:
        raise invalid("bad-rate", f"golden cases: 0 to {100 * MOST_GOLDEN:.0f} for 100 others")
    name = str(form.get("person", ""))
    await here.writer.run(lambda c: golden.set_rate(c, name, rate, visitor.actor, time.time()))
    return go("/team#golden")


@router.get("/team/agreement")
def agreement(here: Here, visitor: LeadHere) -> Response:
    """What takes a moment: how far people agree where several decided the same case."""
    return page("agreement.html", visitor, report=_agreement(here))


@router.get("/team/meeting.csv")
def meeting(here: Here, visitor: LeadHere) -> Response:
    """The cases for a calibration meeting."""
    found = _agreement(here)
    rows = [] if found is None else [[row[name] for name in MEETING_COLUMNS] for row in found.meeting]
    return download("meeting.csv", MEETING_COLUMNS, [rows])


def _agreement(here: Service) -> AgreementReport | None:
    model = here.models.active
    return None if model is None else here.read(lambda c: report_agreement(c, model))


def _finding(people: list[ErrorBar], mean: float | None) -> str:
    rated = [bar for bar in people if bar.rate is not None]
    if not rated or mean is None:
        return "No labels have come yet for anybody's decisions"
    if not [bar for bar in rated if bar.low > mean or bar.high < mean]:
        return f"Nobody differs clearly from the mean of {percent(mean, 1)} errors"
    worst, best = max(rated, key=lambda bar: bar.low), min(rated, key=lambda bar: bar.high)
    least = f"{best.name} errs least ({percent(best.rate, 1)})" if best.high < mean else ""
    most = f"{worst.name} errs most ({percent(worst.rate, 1)})" if worst.low > mean else ""
    return "; ".join(part for part in (least, most) if part) + f"; the mean is {percent(mean, 1)}"


def _most_and_least(matrix: Disagreement) -> str:
    names, share = matrix.names, matrix.share
    pairs = [(share[a][b], names[a], names[b]) for a in range(len(names)) for b in range(a)]
    top, low = max(pairs), min(pairs)
    return (
        f"{top[2]} and {top[1]} would disagree most often, on {percent(top[0])} of the cases; "
        f"{low[2]} and {low[1]} least, on {percent(low[0])}"
    )
