"""`/docs`: the OpenAPI document as a page of ours, without a script and without a file from elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from markupsafe import Markup

from deccaf.service.web.pages.render import PageRoute, page

router = APIRouter(route_class=PageRoute, include_in_schema=False)

Schema = Mapping[str, Any]


@dataclass(frozen=True)
class Field:
    """A parameter or a field: its name, what it holds, and what it is for."""

    name: str
    kind: Markup
    required: bool
    words: str


@dataclass(frozen=True)
class Operation:
    """One thing that the API does."""

    id: str
    method: str
    path: str
    summary: str
    words: list[str]
    """Paragraphs."""
    parameters: list[Field]
    takes: list[Markup]
    gives: list[tuple[str, str, Markup]]
    """Status, what it means, and the answer."""


@dataclass(frozen=True)
class Model:
    """What an answer or a request is made of."""

    name: str
    words: str
    fields: list[Field]


@router.get("/docs")
def docs(request: Request) -> Response:
    """Everything that the API takes and gives."""
    parts, models = _described(request.app)
    return page("api_docs.html", None, parts=parts, models=models, here_is="")


@lru_cache(maxsize=2)
def _described(app: FastAPI) -> tuple[dict[str, list[Operation]], list[Model]]:
    document = app.openapi()
    parts: dict[str, list[Operation]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            found = _operation(path, method, operation)
            parts.setdefault(operation.get("tags", ["other"])[0], []).append(found)
    schemas = document["components"]["schemas"]
    return parts, [_model(name, schemas[name]) for name in sorted(schemas)]


def _operation(path: str, method: str, operation: Schema) -> Operation:
    words = str(operation.get("description", "")).split("\n\n")
    takes = operation.get("requestBody", {}).get("content", {})
    return Operation(
        id=operation["operationId"],
        method=method.upper(),
        path=path,
        summary=operation.get("summary", ""),
        words=[paragraph.strip() for paragraph in words if paragraph.strip()],
        parameters=[
            Field(
                one["name"],
                _kind(one.get("schema", {})),
                one.get("required", False),
                one.get("description", ""),
            )
            for one in operation.get("parameters", [])
        ],
        takes=[_content(kind, content) for kind, content in takes.items()],
        gives=[
            (status, answer.get("description", ""), _contents(answer.get("content", {})))
            for status, answer in sorted(operation["responses"].items())
        ],
    )


def _model(name: str, schema: Schema) -> Model:
    required = set(schema.get("required", ()))
    fields = [
        Field(field, _kind(one), field in required, one.get("description", ""))
        for field, one in schema.get("properties", {}).items()
    ]
    return Model(name, str(schema.get("description", "")), fields)


def _contents(contents: Schema) -> Markup:
    return Markup(", ").join(_content(kind, content) for kind, content in contents.items())


def _content(kind: str, content: Schema) -> Markup:
    held = _kind(content.get("schema", {}))
    return held if kind.endswith("json") else Markup("{} ({})").format(held, kind)


def _kind(schema: Schema) -> Markup:
    """What a schema allows, in few words; models are links to where they are described."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return Markup('<a href="#{}">{}</a>').format(name, name)
    for choice in ("anyOf", "oneOf", "allOf"):
        if choice in schema:
            return Markup(" or ").join(_kind(one) for one in schema[choice])
    if "enum" in schema:
        return Markup(" or ").join(Markup("<code>{}</code>").format(value) for value in schema["enum"])
    if "const" in schema:
        return Markup("<code>{}</code>").format(schema["const"])
    kind = schema.get("type", "anything")
    if kind == "array":
        return Markup("list of {}").format(_kind(schema.get("items", {})))
    if kind == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        return Markup("{} by name").format(_kind(schema["additionalProperties"]))
    if kind == "string" and schema.get("format") == "binary":
        return Markup("file")
    return Markup("{}").format({"null": "nothing", "string": "text"}.get(kind, kind))
