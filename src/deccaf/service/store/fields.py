"""Which ids, names, counts and times the service accepts, for requests and for files alike."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field

from deccaf.service.errors import invalid

_UNSEEN = r"\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
"""Characters that nobody sees: two names that differ in these only look alike."""


def _words(most: int) -> str:
    """Any characters that can be seen, spaces inside."""
    return rf"^[^\s{_UNSEEN}](?:[^{_UNSEEN}]{{0,{most - 2}}}[^\s{_UNSEEN}])?$"


CASE_ID, MAKER, NAME = _words(200), _words(100), _words(100)
NAME_RULE = (
    "may hold letters, digits, signs and spaces inside, at most {most}; no part between slashes is . or .."
)
LONGEST_TEXT = 10_000
"""Characters of one text among a case's features."""
LONGEST_CLASS = 200
"""Characters of a label or a decision."""
MOST_CASES = 10_000_000


def is_name(text: str, pattern: str = CASE_ID) -> bool:
    """Whether a text can be an id or a name; one like `a/../b` would be another one in an address."""
    return re.fullmatch(pattern, text) is not None and not {".", ".."} & set(text.split("/"))


def _addressable(text: str) -> str:
    if {".", ".."} & set(text.split("/")):
        raise ValueError("no part between slashes may be . or ..")
    return text


CaseId = Annotated[str, Field(pattern=CASE_ID, examples=["a17"]), AfterValidator(_addressable)]
Maker = Annotated[str, Field(pattern=MAKER, examples=["analyst_1"]), AfterValidator(_addressable)]
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


def known_class(value: int | str, classes: tuple[int | str, ...]) -> str:
    """A decision or a label as JSON, if it is one of the classes; without a model anything may be one."""
    if classes and value not in classes:
        allowed = ", ".join(map(repr, classes))
        raise invalid("unknown-class", f"{value!r} is none of the classes: {allowed}")
    return json.dumps(value)
