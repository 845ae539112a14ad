"""A case as people read it: labels, units, groups and order from `[display]`, and what is unusual."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup

from deccaf.data.amounts import number
from deccaf.data.display import DisplayTable, FieldTable
from deccaf.evaluate.drift import unusual
from deccaf.service.decide.registry import Model
from deccaf.service.web.pages import words


@dataclass(frozen=True)
class Fact:
    """One value of a case."""

    label: str
    value: str | Markup
    long: bool = False
    """Whether it needs room of its own."""
    odd: str | None = None
    """Why it is unusual, against the cases that the model learned from."""


@dataclass(frozen=True)
class Look:
    """Everything that is shown of a case."""

    groups: list[tuple[str, list[Fact]]]
    """By heading; the empty one comes first."""
    links: list[tuple[str, str]]
    images: list[tuple[str, str]]
    """Label and address."""
    hosts: tuple[str, ...]
    """Where images come from."""
    guidelines: str

    @property
    def odd(self) -> list[Fact]:
        """What is unusual."""
        return [fact for _, facts in self.groups for fact in facts if fact.odd]


def look(case_id: str, features: Mapping[str, Any], display: DisplayTable, model: Model | None) -> Look:
    """How a case is shown."""
    profiles = {} if model is None else model.system.training_.get("profile") or {}
    fields = {field.name: field for field in display.field}
    order = [name for name in fields if name in features] + [n for n in features if n not in fields]
    groups: dict[str, list[Fact]] = {"": []}
    for name in order:
        field = fields.get(name) or FieldTable(name=name)
        if field.format != "hidden":
            odd = unusual(profiles[name], features[name]) if name in profiles else None
            groups.setdefault(field.group, []).append(_fact(field, features[name], odd))
    return Look(
        groups=[(name, facts) for name, facts in groups.items() if facts],
        links=[(one.label, url) for one in display.link if (url := one.of(case_id, features))],
        images=[(one.label, url) for one in display.image if (url := one.of(case_id, features))],
        hosts=tuple(dict.fromkeys(one.origin for one in display.image)),
        guidelines=display.guidelines,
    )


def _fact(field: FieldTable, value: Any, odd: str | None) -> Fact:
    long = field.format == "long" or (field.format == "auto" and words.is_long(value))
    shown = _shown(field, value)
    if field.unit and value is not None:
        shown = Markup("{} {}").format(shown, field.unit)
    return Fact(field.label or field.name, shown, long, odd)


def _shown(field: FieldTable, value: Any) -> str | Markup:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if field.format == "time" and value is not None:
        return _time(value)
    if is_number and field.format == "percent":
        return words.percent(value, 0 if field.digits is None else field.digits)
    if is_number and field.digits is not None:
        return f"{value:,.{field.digits}f}"
    if is_number and field.format == "number":
        return f"{value:,}" if isinstance(value, int) else number(value)
    return str(words.fact(value))


def _time(value: Any) -> str | Markup:
    try:
        when = (
            datetime.fromtimestamp(value, UTC)
            if isinstance(value, int | float)
            else datetime.fromisoformat(str(value))
        )
    except (ValueError, OverflowError, OSError):
        return str(value)
    if when.tzinfo is None:
        return when.strftime("%Y-%m-%d %H:%M")
    shown = when.astimezone(UTC).strftime("%Y-%m-%d %H:%M")
    return Markup('<time datetime="{}">{}</time>').format(when.isoformat(), shown)
