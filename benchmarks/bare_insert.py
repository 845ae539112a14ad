"""The yardstick of `service.py`: a FastAPI handler that writes one row, and nothing else.

python benchmarks/bare_insert.py URL PORT
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import sqlalchemy as sa
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

from deccaf.service.store import database

metadata = sa.MetaData()
rows = sa.Table(
    "bare",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("case_id", sa.Text, nullable=False),
    sa.Column("features", sa.Text, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
)


class Case(BaseModel):
    case_id: str
    features: dict[str, Any]


def create(url: str) -> FastAPI:
    engine = database.connect(url)
    metadata.create_all(engine)
    app = FastAPI()

    @app.post("/v1/cases", status_code=201)
    def add(case: Case) -> dict[str, str]:
        with database.writing(engine) as connection:
            values = {"case_id": case.case_id, "features": json.dumps(case.features), "at": time.time()}
            connection.execute(sa.insert(rows).values(**values))
        return {"case_id": case.case_id}

    @app.get("/readyz")
    def ready() -> dict[str, str]:
        return {"status": "ready"}

    return app


if __name__ == "__main__":
    uvicorn.run(create(sys.argv[1]), port=int(sys.argv[2]), log_level="error", access_log=False)
