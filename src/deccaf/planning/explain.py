"""Why a case went where it went: everybody's expected loss, the prices, and the features behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.data.costs import MACHINE, Class
from deccaf.data.notebook import card
from deccaf.data.schema import Schema
from deccaf.models.contributions import COLUMNS
from deccaf.models.methods import Learned
from deccaf.planning.intake import Chunk
from deccaf.planning.plan import Choice, Why
from deccaf.planning.reason import reason
from deccaf.planning.words import shortened, word_effects

Array = NDArray[np.float64]
_SHOWN = 5


@dataclass(frozen=True, eq=False)
class Explanation:
    """One case, explained."""

    case: Any
    makers: pd.DataFrame
    """By maker, the cheapest first: `expected_loss`, `price`, and `total`, which the plan compares."""
    chosen: str
    runner_up: str | None
    """Who would get the case if the chosen one could not, as the plan says it."""
    why: Why
    reason: str
    chances: pd.Series
    """Chance of each truth."""
    features: pd.DataFrame
    """`about` (the machine, or an expert), `truth`, `says`, `feature`, `value`, and what it added to the
    log-odds: `logistic`, `trees` and `total`. For the machine, `says` is the truth that became likelier."""
    words: pd.DataFrame
    """Of texts: `about`, `truth`, `says`, `feature`, `word`, and `total`, by which the log-odds would be
    lower without the word."""

    def _repr_html_(self) -> str:
        return card(f"Case {self.case}: {self.chosen}", self.text().splitlines(), self.makers)

    def text(self) -> str:
        """The explanation as a person would tell it."""
        chances = ", ".join(f"{name} {chance:.1%}" for name, chance in self.chances.items())
        lines = [f"Case {self.case}: {self.chosen}. {self.reason}", f"Chance of each truth: {chances}."]
        for about in dict.fromkeys(self.features["about"]):
            mine = self.features[self.features["about"] == about]
            strongest = mine.loc[mine["total"].abs().sort_values(ascending=False, kind="stable").index]
            top = strongest.drop_duplicates("feature").head(_SHOWN)
            said = "; ".join(
                f"{row.feature} = {row.value}: {row.total:+.2f} to {row.says}"
                + (f" if the truth is {row.truth}" if row.truth is not None else "")
                for row in top.itertuples()
            )
            lines.append(f"What moved the estimate of {about} (log-odds): {said}.")
            lines += self._words_of(about)
        return "\n".join(lines)

    def _words_of(self, about: str) -> list[str]:
        lines = []
        mine = self.words[self.words["about"] == about]
        for feature in dict.fromkeys(mine["feature"]):
            of = mine[mine["feature"] == feature]
            order = of["total"].abs().sort_values(ascending=False, kind="stable").index
            top = of.loc[order].drop_duplicates("word").head(_SHOWN)
            said = "; ".join(f"{row.word} {row.total:+.2f} to {row.says}" for row in top.itertuples())
            lines.append(f"  Words of {feature} that did: {said}.")
        return lines


def explain_case(
    learned: Learned,
    schema: Schema,
    chunk: Chunk,
    loss: pd.Series,
    objective: pd.Series,
    p: np.ndarray,
    classes: Sequence[Class],
    costs: Array,
    choice: Choice | None = None,
) -> Explanation:
    """Explain one case (a chunk of one row) by what was believed of it and by what the plan says of it.

    Without a plan the best maker is explained, as if everyone had room.
    """
    prices = pd.Series({} if choice is None else choice.prices, dtype=float)
    makers = pd.DataFrame({"expected_loss": loss, "price": prices.reindex(loss.index).fillna(0.0)})
    makers["total"] = objective + makers["price"]
    makers = makers.sort_values("total", kind="stable").rename_axis("maker")
    winner = str(makers.index[0]) if choice is None else choice.maker
    second = next((str(name) for name in makers.index if name != winner), None)
    if choice is not None:
        second = choice.runner_up
    about = dict.fromkeys([winner, *([second] if second else []), str(objective.idxmin()), MACHINE])
    parts = [_features(learned, schema, chunk, name, classes) for name in about]
    return Explanation(
        case=chunk.ids[0],
        makers=makers,
        chosen=winner,
        runner_up=second,
        why="best" if choice is None else choice.why,
        reason=reason(
            _by_maker(loss),
            _by_maker(makers["price"]),
            winner,
            objective=_by_maker(objective),
            runner_up=second,
            why="best" if choice is None else choice.why,
        ),
        chances=pd.Series(p, index=list(classes)),
        features=pd.concat(parts, ignore_index=True),
        words=word_effects(learned, schema, chunk, list(about), classes, costs),
    )


def _by_maker(values: pd.Series) -> dict[str, float]:
    return {str(name): float(value) for name, value in values.items()}


def _features(
    learned: Learned, schema: Schema, chunk: Chunk, maker: str, classes: Sequence[Class]
) -> pd.DataFrame:
    """Contributions of one maker in long form; the columns of a text or vector are one feature."""
    table = learned.contributions(chunk.features, maker, classes)
    table = table.assign(feature=table["feature"].map(schema.origin()))
    if schema.spaces:
        keys = ["truth", "says", "feature"]
        table = table.groupby(keys, sort=False, dropna=False)[list(COLUMNS)].sum().reset_index()
        table["truth"] = table["truth"].astype(object).where(table["truth"].notna(), None)
    values = {name: _shown(chunk, name) for name in schema.names}
    order = ["about", "truth", "says", "feature", "value", *COLUMNS]
    return table.assign(about=maker, value=table["feature"].map(values))[order]


def _shown(chunk: Chunk, name: str) -> str:
    value: Any = (chunk.features if name in chunk.features else chunk.wide)[name].iloc[0]
    if isinstance(value, list | tuple | np.ndarray):
        return f"{len(value)} numbers"
    if isinstance(value, float | np.floating):
        return "missing" if np.isnan(value) else f"{value:.6g}"
    return "missing" if pd.isna(value) else shortened(str(value))
