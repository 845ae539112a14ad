"""Why a case went where it went: everybody's expected loss, the prices, and the features behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from deccaf.data.costs import MACHINE, Class
from deccaf.models.methods import Learned
from deccaf.planning.reason import reason

_SHOWN = 5


@dataclass(frozen=True, eq=False)
class Explanation:
    """One case, explained."""

    case: Any
    makers: pd.DataFrame
    """By maker, the cheapest first: `expected_loss`, `price`, and `total`, which the plan compares."""
    chosen: str
    reason: str
    chances: pd.Series
    """Chance of each truth."""
    features: pd.DataFrame
    """`about` (the machine, or an expert), `truth`, `says`, `feature`, `value`, and what it added to the
    log-odds: `logistic`, `trees` and `total`. For the machine, `says` is the truth that became likelier."""

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
        return "\n".join(lines)


def explain_case(
    learned: Learned,
    features: pd.DataFrame,
    loss: pd.Series,
    objective: pd.Series,
    prices: Mapping[str, float],
    chosen: str | None,
    p: np.ndarray,
    classes: Sequence[Class],
) -> Explanation:
    """Explain one case (a frame of one row) by what was believed of it and by the plan's prices."""
    makers = pd.DataFrame({"expected_loss": loss, "price": pd.Series(prices, dtype=float)})
    makers["price"] = makers["price"].reindex(loss.index).fillna(0.0)
    makers["total"] = objective + makers["price"]
    makers = makers.loc[loss.index].sort_values("total", kind="stable").rename_axis("maker")
    winner = str(makers.index[0]) if chosen is None else chosen
    others = [str(name) for name in makers.index if name != winner][:1]
    about = dict.fromkeys([winner, *others, str(objective.idxmin()), MACHINE])
    parts = [_features(learned, features, name, classes) for name in about]
    return Explanation(
        case=features.index[0],
        makers=makers,
        chosen=winner,
        reason=reason(_by_name(loss), _by_name(makers["price"]), winner, objective=_by_name(objective)),
        chances=pd.Series(p, index=list(classes)),
        features=pd.concat(parts, ignore_index=True),
    )


def _by_name(values: pd.Series) -> dict[str, float]:
    return {str(name): float(value) for name, value in values.items()}


def _features(learned: Learned, case: pd.DataFrame, maker: str, classes: Sequence[Class]) -> pd.DataFrame:
    """Contributions of one maker in long form."""
    table, values = learned.contributions(case, maker, classes), case.iloc[0]
    shown = [_shown(values[name]) for name in table["feature"]]
    order = ["about", "truth", "says", "feature", "value", "logistic", "trees", "total"]
    return table.assign(about=maker, value=shown)[order]


def _shown(value: Any) -> str:
    if isinstance(value, float | np.floating):
        return "missing" if np.isnan(value) else f"{value:.6g}"
    return "missing" if pd.isna(value) else str(value)
