"""The words of a text that moved an estimate: each is left out in turn, and what changes is its effect."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.data.costs import MACHINE, Class
from deccaf.data.schema import Schema
from deccaf.data.words import words
from deccaf.models.methods import Learned
from deccaf.planning.intake import Chunk

Array = NDArray[np.float64]

MOST = 200
"""So many different words of a text are looked at, the first ones."""
_LONGEST = 60
_COLUMNS = ["about", "truth", "says", "feature", "word", "total"]


def shortened(text: str, longest: int = _LONGEST) -> str:
    """A text in one line that can be printed beside others."""
    line = " ".join(text[: 4 * longest].split())
    return line if len(line) <= longest and len(text) <= 4 * longest else f"{line[: longest - 3].rstrip()}..."


def word_effects(
    learned: Learned,
    schema: Schema,
    chunk: Chunk,
    about: Sequence[str],
    classes: Sequence[Class],
    costs: Array,
) -> pd.DataFrame:
    """For one case: by how much the log-odds would be lower without a word, for everybody in `about`.

    Of people only where the method learns what they say.
    """
    tables = [
        _of_text(learned, schema, chunk, feature.name, about, classes, costs)
        for feature in schema.wide
        if feature.kind == "text" and feature.name in chunk.wide
    ]
    found = [table for table in tables if len(table)]
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame(columns=_COLUMNS)


def _of_text(
    learned: Learned,
    schema: Schema,
    chunk: Chunk,
    name: str,
    about: Sequence[str],
    classes: Sequence[Class],
    costs: Array,
) -> pd.DataFrame:
    text = chunk.wide[name].iloc[0]
    all_words = words(text) if isinstance(text, str) else []
    different = list(dict.fromkeys(all_words))[:MOST]
    if not different:
        return pd.DataFrame(columns=_COLUMNS)
    texts = [all_words, *([word for word in all_words if word != left_out] for left_out in different)]
    space = schema.spaces[name]
    columns = space.transform(pd.Series([" ".join(each) for each in texts], name=name))
    features = chunk.features.iloc[np.zeros(len(texts), np.int64)].reset_index(drop=True)
    features = features.assign(**dict(zip(space.columns, columns.T, strict=True)))
    rows: list[tuple[str, Class | None, Class, Array]] = []
    people = [maker for maker in about if maker != MACHINE]
    if MACHINE in about:
        odds = _log_odds(learned.sensitive_chances(features, costs))
        rows += [(MACHINE, None, classes[k], odds[:, k]) for k in range(1, len(classes))]
    q = learned.decision_chances(features, people) if people else None
    for j, maker in enumerate(people if q is not None else []):
        assert q is not None
        odds = _log_odds(q[:, j])
        rows += [
            (maker, truth, classes[k], odds[:, y, k])
            for k in range(1, len(classes))
            for y, truth in enumerate(classes)
        ]
    return pd.DataFrame(
        [
            (maker, truth, says, name, word, float(change))
            for maker, truth, says, odds in rows
            for word, change in zip(different, odds[0] - odds[1:], strict=True)
        ],
        columns=_COLUMNS,
    )


def _log_odds(chances: Array) -> Array:
    """Of every class against the first."""
    logs = np.log(np.clip(chances, 1e-12, None))
    return np.asarray(logs - logs[..., :1])
