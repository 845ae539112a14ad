"""Which ids, names, counts and times the service accepts, for requests and for files alike."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

CASE_ID = r"^[A-Za-z0-9_.:@+=~,|-]{1,200}$"
MAKER = r"^[A-Za-z0-9_.:@+=~-]{1,100}$"
NAME = r"^[A-Za-z0-9_.:@+=~ -]{1,100}$"
LONGEST_TEXT = 10_000
"""Characters of one text among a case's features."""
LONGEST_CLASS = 200
"""Characters of a label or a decision."""
MOST_CASES = 10_000_000

CaseId = Annotated[str, Field(pattern=CASE_ID, examples=["a17"])]
Maker = Annotated[str, Field(pattern=MAKER, examples=["analyst_1"])]
Name = Annotated[str, Field(pattern=NAME, examples=["desk 1"])]
Count = Annotated[int, Field(ge=0, le=MOST_CASES)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Class = (
    Annotated[int, Field(ge=-(2**53), le=2**53)]
    | Annotated[str, Field(min_length=1, max_length=LONGEST_CLASS)]
)
Time = Annotated[
    AwareDatetime, Field(ge=datetime(2000, 1, 1, tzinfo=UTC), le=datetime(2200, 1, 1, tzinfo=UTC))
]


class Strict(BaseModel):
    """What somebody asks for: no keys but its own."""

    model_config = ConfigDict(extra="forbid")
