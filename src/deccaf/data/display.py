"""How a case is shown to whoever decides it: the `[display]` table of a configuration.

.. code-block:: toml

    [display]
    guidelines = "Reject if the name and the document differ."
    classes = { 0 = "OK", 1 = "Fraud" }

    [[display.field]]
    name = "amount"
    label = "Amount asked for"
    unit = "EUR"
    digits = 2
    group = "The application"

    [[display.link]]
    label = "Customer file"
    url = "https://crm.example/{case_id}"

    [display.machine]
    default = "hidden"
    people = { ann = "after" }

Addresses are http or https with a host of their own; what stands in braces is the id of the case or one of
its values, percent-encoded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import quote, urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator

Mode = Literal["shown", "hidden", "after"]
"""Whether whoever decides sees what the machine thinks: at once, never, or after their first answer."""
_IN_BRACES = re.compile(r"{([^{}]+)}")
_HOST = re.compile(r"[A-Za-z0-9.-]+(:[0-9]{1,5})?")
_ADDRESS = re.compile(r"[A-Za-z0-9._~:/?#@!$&'()*+,;=%{}\[\]-]*")


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class FieldTable(_Table):
    """`[[display.field]]`: one column of the cases; they come in the order of the file, others after them."""

    name: str = Field(min_length=1, max_length=200)
    label: str = Field("", max_length=200)
    unit: str = Field("", max_length=40)
    format: Literal["auto", "number", "percent", "text", "long", "time", "hidden"] = "auto"
    """`percent` is a share, `long` a text with room of its own, `time` seconds since 1970 or ISO 8601."""
    digits: int | None = Field(None, ge=0, le=10)
    group: str = Field("", max_length=100)


class AddressTable(_Table):
    """`[[display.link]]`, `[[display.image]]`: an address with the case's id or values in braces."""

    label: str = Field(min_length=1, max_length=200)
    url: str = Field(min_length=1, max_length=1000)

    @field_validator("url")
    @classmethod
    def _only_the_web(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not _HOST.fullmatch(parts.netloc):
            raise ValueError(
                "must begin with http:// or https:// and the name of a host, without braces in it"
            )
        if not _ADDRESS.fullmatch(_IN_BRACES.sub("{}", url)):
            raise ValueError("may hold what addresses hold, and names of columns in braces")
        return url

    @property
    def origin(self) -> str:
        """Scheme and host: what a content security policy names."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"

    def of(self, case_id: str, features: Mapping[str, Any]) -> str | None:
        """The address for a case, values percent-encoded; None where one is missing."""
        known = {**features, "case_id": case_id}
        named = {name: known.get(name) for name in _IN_BRACES.findall(self.url)}
        if any(value is None or isinstance(value, list | dict) for value in named.values()):
            return None
        return _IN_BRACES.sub(lambda found: quote(str(named[found.group(1)]), safe=""), self.url)


class MachineTable(_Table):
    """`[display.machine]`: who sees what the machine thinks; what is said of a person comes first."""

    default: Mode = "hidden"
    people: dict[str, Mode] = {}
    shifts: dict[str, Mode] = {}
    """By the name of the shift."""

    def mode(self, person: str, shift: str | None) -> Mode:
        """What holds for somebody in a shift."""
        return self.people.get(person) or self.shifts.get(shift or "") or self.default


class DisplayTable(_Table):
    """The `[display]` table."""

    guidelines: str = Field("", max_length=20_000)
    """What to keep in mind, shown beside every case."""
    classes: dict[str, str] = {}
    """What decisions are called: by class, as text."""
    field: list[FieldTable] = Field([], max_length=2000)
    link: list[AddressTable] = Field([], max_length=20)
    image: list[AddressTable] = Field([], max_length=20)
    machine: MachineTable = MachineTable()

    def called(self, decision: Any) -> str:
        """What a decision is called."""
        return self.classes.get(str(decision), str(decision))
