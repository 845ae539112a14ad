"""How decision makers agree, complement each other and err: pure functions of decisions and the truth.

Decisions are tables of cases x makers with positions in the classes, as `SyntheticTeam.decide` gives them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from deccaf.data.costs import Class
from deccaf.errors import DataError

Array = NDArray[np.float64]


def outcome_shares(truth: ArrayLike, decision: ArrayLike, classes: Sequence[Class] = (0, 1)) -> pd.Series:
    """Share of each outcome: fp, fn, tp, tn with two classes, else 'truth>decision' for all pairs."""
    y, m = np.asarray(truth), np.asarray(decision)
    if y.shape != m.shape or not y.size:
        raise DataError(f"outcomes need a truth for every decision, got {y.size} and {m.size}")
    k = len(classes)
    shares = np.bincount(y.astype(np.int64) * k + m.astype(np.int64), minlength=k * k) / y.size
    if k == 2:
        tn, fp, fn, tp = shares
        return pd.Series({"fp": fp, "fn": fn, "tp": tp, "tn": tn})
    names = [f"{a}>{b}" for a in classes for b in classes]
    return pd.Series(shares, index=names)


def outcome_table(
    truth: ArrayLike, decisions: pd.DataFrame, classes: Sequence[Class] = (0, 1)
) -> pd.DataFrame:
    """Outcome shares of every maker, one row each."""
    rows = {name: outcome_shares(truth, decisions[name], classes) for name in decisions}
    return pd.DataFrame(rows).T.rename_axis("expert_id")


def kappa_between(first: pd.DataFrame, second: pd.DataFrame | None = None, classes: int = 2) -> pd.DataFrame:
    """Cohen's kappa of every maker of `first` (rows) with every maker of `second` (columns).

    NaN where both always say the same one thing: then chance alone explains all agreement.
    """
    second = first if second is None else second
    agree = np.zeros((first.shape[1], second.shape[1]))
    chance = np.zeros_like(agree)
    for m in range(classes):
        a = (first.to_numpy() == m).astype(np.float64)
        b = (second.to_numpy() == m).astype(np.float64)
        agree += a.T @ b / len(first)
        chance += np.outer(a.mean(axis=0), b.mean(axis=0))
    with np.errstate(divide="ignore", invalid="ignore"):
        kappa = np.where(chance < 1.0, (agree - chance) / (1.0 - chance), np.nan)
    return pd.DataFrame(kappa, index=first.columns, columns=second.columns)


def agreement_table(first: pd.DataFrame, again: pd.DataFrame, classes: int = 2) -> pd.DataFrame:
    """Kappa between makers, with each maker's kappa with itself (two judgements) on the diagonal."""
    table = kappa_between(first, classes=classes).to_numpy().copy()
    own = [kappa_between(first[[name]], again[[name]], classes).to_numpy()[0, 0] for name in first.columns]
    np.fill_diagonal(table, own)
    return pd.DataFrame(table, index=first.columns, columns=first.columns)


def complementarity(truth: ArrayLike, decisions: pd.DataFrame) -> pd.DataFrame:
    """Share of cases on which the row's maker is right and the column's maker is wrong."""
    right = (decisions.to_numpy() == np.asarray(truth)[:, None]).astype(np.float64)
    table = right.T @ (1.0 - right) / max(len(right), 1)
    return pd.DataFrame(table, index=decisions.columns, columns=decisions.columns)


def error_by_group(
    truth: ArrayLike, errors: pd.DataFrame, group: ArrayLike, classes: Sequence[Class] = (0, 1)
) -> pd.DataFrame:
    """Mean error of every maker by truth and group: `expert_id`, `truth`, `group`, `cases`, `error_rate`.

    `errors` holds 0 and 1 for wrong decisions, or chances of error.
    """
    y, member = np.asarray(truth), np.asarray(group).astype(str)
    parts = []
    for position, name in enumerate(classes):
        for value in np.unique(member):
            here = (y == position) & (member == value)
            if here.any():
                means = errors.to_numpy()[here].mean(axis=0)
                parts.append(
                    pd.DataFrame(
                        {
                            "expert_id": list(errors.columns),
                            "truth": name,
                            "group": value,
                            "cases": int(here.sum()),
                            "error_rate": means.astype(np.float64),
                        }
                    )
                )
    if not parts:
        return pd.DataFrame(columns=["expert_id", "truth", "group", "cases", "error_rate"])
    return pd.concat(parts, ignore_index=True)
