"""*Set-up*, step 2: what each column is, what errors and reviews cost, and a model learned so."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from fastapi import APIRouter, Request, Response
from pydantic import ValidationError
from starlette.datastructures import FormData

from deccaf.data.config import Config
from deccaf.errors import ConfigError
from deccaf.service.core import Service
from deccaf.service.errors import invalid
from deccaf.service.imports import past_columns, past_records
from deccaf.service.imports.past_columns import CHOICES, Column
from deccaf.service.jobs import kinds
from deccaf.service.jobs.learning import SETTING, config_of
from deccaf.service.ledger import trail
from deccaf.service.store.settings import read_setting, write_setting
from deccaf.service.web.common import Here, class_of
from deccaf.service.web.pages.access import LeadHere, checked_form
from deccaf.service.web.pages.learning.past import PART_WORDS, chosen_parts
from deccaf.service.web.pages.render import PageRoute, go

router = APIRouter(route_class=PageRoute, include_in_schema=False)

MOST_ENTRIES = 20
_PAIR = ("false_positive", "false_negative")
_OWN = ("group", "categorical", "text", "vectors", "features", "ignore")
"""Keys of `[columns]` that the page's choices replace."""


@dataclass(frozen=True)
class LessonForm:
    """What the form shows: the columns with what is chosen, and costs as they are in force."""

    columns: list[Column]
    """Features of the entries that stand, each with what is chosen for it now."""
    classes: list[int | str]
    """The positive one last."""
    matrix: list[list[str]]
    """What deciding (column) costs when the truth is (row), as text."""
    is_matrix: bool
    review_cost: str
    known: bool
    """Whether anybody has said what errors cost."""
    parts: dict[str, str]
    """What can be chosen for a column, with its words."""

    @property
    def pair(self) -> tuple[str, str]:
        """Cost of a false alarm and of a missed case, where there are two classes."""
        return (self.matrix[0][1], self.matrix[1][0]) if len(self.matrix) == 2 else ("", "")

    @property
    def amounts(self) -> list[str]:
        """Columns that can be a cost."""
        return [column.name for column in self.columns if column.part == "amount"]


def read_form(here: Service, connection: sa.Connection) -> LessonForm:
    """The form as it is filled: what was set, else what the model in force was fitted with."""
    set_ = read_setting(connection, SETTING)
    active = here.models.active
    if set_ is None and active is not None:
        set_ = config_of(active.system).model_dump(mode="json", exclude_unset=True)
    tables: Mapping[str, Any] = set_ or {}
    entries = past_records.latest_entries(connection, MOST_ENTRIES)
    standing = [entry for entry in entries if entry.withdrawn_at is None]
    columns = {column.name: column for entry in standing for column in entry.columns}
    classes = [name for entry in standing for name in entry.facts["classes"]]
    costs = tables.get("costs", {})
    classes = list(costs.get("classes") or ([0, 1] if costs else dict.fromkeys(classes)) or [0, 1])
    matrix = _matrix(costs, len(classes))
    amounts = [cell for row in matrix for cell in row if not _is_number(cell)]
    features = [column for column in columns.values() if column.part in CHOICES]
    chosen = past_columns.chosen_in(tables.get("columns", {}), features, amounts)
    return LessonForm(
        columns=[past_columns.with_part(column, chosen[column.name]) for column in features],
        classes=classes,
        matrix=matrix,
        is_matrix=len(classes) > 2 or any(matrix[k][k] != "0" for k in range(len(matrix))),
        review_cost=_as_text(costs.get("review_cost", 0)),
        known=bool(costs) and not costs.get("example"),
        parts={part: PART_WORDS[part] for part in CHOICES},
    )


@router.post("/setup/model")
async def fit_model(request: Request, here: Here, visitor: LeadHere) -> Response:
    """What columns are, what errors cost, and a model fitted on the history, in the background.

    It comes into force by itself only where none is.
    """
    form = await checked_form(request, visitor)
    chosen = chosen_parts(form)

    def change(connection: sa.Connection) -> None:
        at, who = time.time(), visitor.actor
        before = read_setting(connection, SETTING) or {}
        scale = before.get("costs", {}).get("scale")
        tables = {**before, "costs": _costs(form) | ({} if scale is None else {"scale": scale})}
        if chosen:
            kept = {key: value for key, value in before.get("columns", {}).items() if key not in _OWN}
            tables["columns"] = {**kept, **past_columns.columns_table(chosen)}
        _check(tables)
        name = str(form.get("name") or "model")[:100]
        kinds.ask(connection, "refit", {"name": name, "activate": False, "if_none": True}, who, at)
        write_setting(connection, SETTING, tables)
        trail.record(connection, "settings changed", at, who, **tables)

    await here.writer.run(change)
    return go("/setup#model")


def _check(tables: Mapping[str, Any]) -> None:
    try:
        Config.model_validate(tables).costs.build()
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise invalid("bad-settings", f"{where}: {first['msg']}") from error
    except (ConfigError, ValueError) as error:
        raise invalid("bad-settings", str(error)[:1000]) from error


def _costs(form: FormData) -> dict[str, Any]:
    """The `[costs]` table that a form describes."""
    review = _review_cost(str(form.get("review_cost", "")))
    classes = [class_of(str(value)) for name, value in form.multi_items() if name == "class"] or [0, 1]
    positive = form.get("positive")
    if positive is not None and len(classes) == 2 and class_of(str(positive)) == classes[0]:
        classes = classes[::-1]
    if form.get("form") == "matrix" or len(classes) > 2:
        size, order = range(len(classes)), [str(value) for n, value in form.multi_items() if n == "class"]
        place = [order.index(str(name)) for name in classes]
        cells = [[str(form.get(f"cost:{place[y]}:{place[m]}", "0")) for m in size] for y in size]
        matrix = [[_cost(text, "every cost of the matrix") for text in row] for row in cells]
        return {"matrix": matrix, "classes": classes, "review_cost": review}
    pair = {key: _cost(str(form.get(key, "")), key.replace("_", " ")) for key in _PAIR}
    named = {} if classes == [0, 1] else {"classes": classes}
    return {**pair, **named, "review_cost": review}


def _cost(text: str, what: str) -> float | str:
    """A number, or the name of a column that holds the amount."""
    text = text.strip()
    if not text:
        raise invalid("bad-costs", f"{what}: give a number from 0 on, or the name of a column")
    try:
        return float(text)
    except ValueError:
        return text


def _review_cost(text: str) -> float | dict[str, float]:
    """One number for everybody, or "ann = 0.1, bob = 0.2"."""
    try:
        if "=" not in text:
            return float(text.strip() or "0")
        pairs = [part.partition("=") for part in text.split(",") if part.strip()]
        return {name.strip(): float(cost) for name, _, cost in pairs}
    except ValueError as error:
        raise invalid("bad-costs", 'cost of a review: give a number, or "ann = 0.1, bob = 0.2"') from error


def _matrix(costs: Mapping[str, Any], size: int) -> list[list[str]]:
    given = costs.get("matrix")
    if given is None:
        given = [["" if y != m else 0 for m in range(size)] for y in range(size)]
        if size == 2:
            given[0][1], given[1][0] = (costs.get(key, "") for key in _PAIR)
    return [[_as_text(cell) for cell in row] for row in given]


def _as_text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} = {cost:g}" for name, cost in value.items())
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def _is_number(text: str) -> bool:
    try:
        float(text or "0")
    except ValueError:
        return False
    return True
