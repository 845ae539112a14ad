"""The spaces of a schema: learned once from the cases of a history, kept in the model file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from deccaf.data.history import History
from deccaf.data.schema import Schema
from deccaf.errors import DataError, ModelFileError
from deccaf.models.texts.text_space import TextSpace
from deccaf.models.texts.vector_space import VectorSpace

_Space = TextSpace | VectorSpace
_KINDS: Mapping[str, Callable[[str, Mapping[str, Any]], _Space]] = {
    "text": TextSpace.from_dict,
    "vector": VectorSpace.from_dict,
}


def with_spaces(schema: Schema, features: pd.DataFrame, seed: int) -> Schema:
    """The schema with a space for every text and vector, learned from these cases alone."""
    spaces: dict[str, _Space] = {
        one.name: TextSpace.fit(features[one.name], seed)
        if one.kind == "text"
        else VectorSpace.fit(features[one.name], one.width, seed)
        for one in schema.wide
    }
    if not spaces:
        return schema
    found = replace(schema, spaces=spaces)
    made = [column for space in spaces.values() for column in space.columns]
    clash = sorted(set(made) & set(schema.names))
    if clash:
        raise DataError(f"column {clash[0]!r}: a text or vector needs this name; call the column otherwise")
    return found


def encoded(history: History, schema: Schema) -> History:
    """The history as models see it: with the columns of the schema's spaces."""
    if not schema.spaces:
        return history
    features = schema.cast(history.features)
    return replace(history, cases=replace(history.cases, features=features, schema=schema.plain()))


def spaces_to_dict(schema: Schema) -> dict[str, Any]:
    """The spaces, for a file."""
    return {
        name: space.to_dict()
        for name, space in schema.spaces.items()
        if isinstance(space, TextSpace | VectorSpace)
    }


def spaces_from_dict(schema: Schema, data: Mapping[str, Any]) -> Schema:
    """The schema with the spaces of a file: one for each text and vector, of its kind, and no other."""
    wanted = {one.name: one.kind for one in schema.wide}
    if {name: one["kind"] for name, one in data.items()} != wanted:
        raise ModelFileError(f"the spaces of {sorted(data)} are not those of {sorted(wanted)}")
    spaces = {name: _KINDS[one["kind"]](name, one) for name, one in data.items()}
    for feature in schema.wide:
        space = spaces[feature.name]
        if isinstance(space, VectorSpace) and len(space.mean) != feature.width:
            raise ModelFileError(f"the space of {feature.name!r} is not {feature.width} wide")
    return replace(schema, spaces=spaces)
