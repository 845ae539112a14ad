"""Golden cases: what a lead enters, how many somebody gets, how they did and what it cost in time."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import APIRouter, Request, Response
from pydantic import Field

from deccaf.client.answers import Looked
from deccaf.client.lead_answers import Entered, GoldenImported, GoldenRate, GoldenRecords
from deccaf.service.errors import conflict, invalid
from deccaf.service.imports.golden_import import GoldenFile, read_golden
from deccaf.service.ledger.review import golden
from deccaf.service.store.fields import Class, Strict, known_class
from deccaf.service.store.idempotency import Call
from deccaf.service.store.scratch import scratch_folder
from deccaf.service.web.api.cases import Features
from deccaf.service.web.api.common import (
    FILE_BODY,
    IdempotencyKey,
    Lead,
    call_of,
    file_suffix,
    gives,
    problems,
    receive_file,
    send,
)
from deccaf.service.web.common import Here, MakerPath, classes_of, in_reader

router = APIRouter(prefix="/v1/golden", tags=["golden cases"], responses=problems(404, 409))

MOST = 1_000
"""Golden cases that are entered in one request."""
MOST_IN_FILE = 10_000


class Source(Strict):
    """A case with its truth."""

    features: Features
    label: Class


class Sources(Strict):
    """Cases to be given out as golden ones."""

    cases: Annotated[list[Source], Field(min_length=1, max_length=MOST)]


class Rate(Strict):
    """Golden cases for each other case that somebody gets."""

    rate: Annotated[float, Field(ge=0, le=golden.MOST_GOLDEN, allow_inf_nan=False)]


@router.get("", responses=gives(GoldenRecords), operation_id="get_golden")
def read(here: Here, who: Lead) -> dict[str, Any]:
    """Everybody's rate, golden cases given, decided and right, and the seconds that they took."""
    return {"people": [asdict(one) for one in here.read(golden.records)]}


@router.post("", status_code=201, responses=gives(Entered, 201), operation_id="enter_golden")
async def enter(
    wanted: Sources, request: Request, here: Here, who: Lead, key: IdempotencyKey = None
) -> Response:
    """Enter cases with a known truth; they are given out beside labelled cases that somebody has not seen."""
    model = here.models.active

    def change(connection: sa.Connection, at: float) -> dict[str, Any]:
        if model is None:
            raise conflict("no-model", "golden cases need a model in force: it says whom they tell about")
        rows = []
        for case in wanted.cases:
            model.check(case.features)
            rows.append((json.dumps(case.features), known_class(case.label, classes_of(here))))
        return {"entered": len(golden.add_sources(connection, rows, who, at))}

    return send(await here.change(await call_of(request, who, key), change, 201))


@router.post(
    "/import",
    status_code=201,
    openapi_extra=FILE_BODY,
    responses=gives(GoldenImported, 201) | gives(Looked, 200, "Looked at only (dry_run)."),
    operation_id="import_golden_cases",
)
async def import_file(
    request: Request,
    here: Here,
    who: Lead,
    dry_run: bool = False,
    skip_bad: bool = False,
    key: IdempotencyKey = None,
) -> Response:
    """Enter a file of golden cases (CSV or parquet, as the body): the model's features, and the truth.

    With `dry_run` the file is only looked at. A file with bad rows is refused, and the rows are named, unless
    `skip_bad` asks for the good rows alone.
    """
    model = here.models.active
    if model is None:
        raise conflict("no-model", "golden cases need a model in force: it says whom they tell about")
    with scratch_folder() as folder:
        path, digest = await receive_file(request, folder, file_suffix(request))

        def check() -> GoldenFile:
            return read_golden(path, folder / "rows", (MOST_IN_FILE, here.limits.columns), model)

        def change(connection: sa.Connection, at: float, found: GoldenFile) -> dict[str, Any]:
            told = found.checked.to_dict() | {"accepted": len(found.rows)}
            if found.checked.rejected and not skip_bad:
                detail = f"{found.checked.rejected} of {found.checked.rows} rows cannot be used"
                raise invalid("bad-rows", detail, **told)
            return told | {"entered": len(golden.add_sources(connection, found.rows, who, at))}

        if not dry_run:
            request_ = hashlib.sha256(f"golden import {request.url.query} {digest}".encode()).hexdigest()
            return send(await here.prepared_change(Call(who, key, request_), check, change, 201, in_reader))
        found = await in_reader(check)
    told = found.checked.to_dict() | {"accepted": len(found.rows)}
    return Response(json.dumps(told), 200, media_type="application/json")


@router.put("/rates/{expert}", responses=gives(GoldenRate), operation_id="set_golden_rate")
async def set_rate(
    expert: MakerPath, wanted: Rate, request: Request, here: Here, who: Lead, key: IdempotencyKey = None
) -> Response:
    """Say how many golden cases somebody gets for each other case, from now on; 0: none."""

    def change(connection: sa.Connection, at: float) -> dict[str, Any]:
        golden.set_rate(connection, expert, wanted.rate, who, at)
        return {"expert": expert, "rate": wanted.rate}

    return send(await here.change(await call_of(request, who, key), change))
