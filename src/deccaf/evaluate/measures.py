"""How good probabilities are: sharpness, ranking and calibration, plain or under case weights.

Each measure is a function of (truth, p, weight): `truth` holds 0 and 1 (was it so?), `p` the chance that was
given, and `weight` makes it the measure under another distribution of cases. The paper's reweighted
distribution D~ is `Costs.case_weights`. A measure that does not exist is NaN: the AUC where only one class is
left. What is not a measure's business, such as chances outside [0, 1], is a `DataError`.

Log-loss and AUC are scikit-learn's, to the last digits but without its checks of every call, which take a
hundred times longer than the measure and are felt in a bootstrap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from deccaf.data.log_odds import deviations
from deccaf.errors import ConfigError, DataError

Array = NDArray[np.float64]
Measure = Callable[[Array, Array, Array], float]
POOLED: Final = "all"
"""The row of a table that takes all experts together."""


def log_loss(truth: ArrayLike, p: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Mean of -log(chance given to what happened); a chance of exactly 0 or 1 is moved by 2e-16."""
    y, p, w = _checked(truth, p, weight)
    tiny = float(np.finfo(np.float64).eps)
    given = np.clip(np.where(y == 1, p, 1 - p), tiny, 1 - tiny)
    return float(-np.average(np.log(given), weights=w))


def brier(truth: ArrayLike, p: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Mean squared distance of the chance from what happened."""
    y, p, w = _checked(truth, p, weight)
    return float(np.average((p - y) ** 2, weights=w))


def roc_auc(truth: ArrayLike, p: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Chance that a case that was so got a higher p than one that was not; NaN if there is only one kind."""
    y, p, w = _checked(truth, p, weight)
    _, level = np.unique(p, return_inverse=True)
    so, not_so = np.bincount(level, w * y), np.bincount(level, w * (1 - y))
    pairs = so.sum() * not_so.sum()
    below = np.cumsum(not_so) - not_so
    return float(so @ (below + not_so / 2) / pairs) if pairs > 0 else float("nan")


def ece(truth: ArrayLike, p: ArrayLike, weight: ArrayLike | None = None, *, bins: int = 10) -> float:
    """Expected calibration error: mean distance between chance and share over bins of equal weight."""
    y, p, w = _checked(truth, p, weight)
    if bins < 1:
        raise ConfigError(f"ece: {bins} bins make no sense")
    return float(np.abs(np.bincount(_bins(p, w, bins), w * (p - y))).sum() / w.sum())


def reliability(
    truth: ArrayLike,
    p: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    bins: int = 10,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """The reliability curve: a row per bin with `predicted`, `observed`, `low`, `high`, `cases`, `weight`.

    Bins hold equal shares of the weight; cases with equal chances stay together, so there can be fewer bins
    than asked for. `low` and `high` are Wilson's interval of the observed share, with the effective number
    of cases (sum of weights squared over sum of squared weights) where weights differ.
    """
    y, p, w = _checked(truth, p, weight)
    if bins < 1 or not 0 < confidence < 1:
        raise ConfigError(f"reliability: {bins} bins at confidence {confidence} make no sense")
    member = _bins(p, w, bins)
    total, squares = np.bincount(member, w), np.bincount(member, w**2)
    observed = np.bincount(member, w * y) / total
    low, high = wilson(observed, total**2 / squares, confidence)
    return pd.DataFrame(
        {
            "predicted": np.bincount(member, w * p) / total,
            "observed": observed,
            "low": low,
            "high": high,
            "cases": np.bincount(member, w > 0).astype(np.int64),
            "weight": total,
        }
    )


def wilson(share: ArrayLike, count: ArrayLike, confidence: float = 0.95) -> tuple[Array, Array]:
    """Wilson's interval of a share of `count` cases."""
    share, count = np.asarray(share, np.float64), np.asarray(count, np.float64)
    z = deviations(0.5 + confidence / 2)
    centre = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    reach = z / (1 + z**2 / count) * np.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    return np.clip(centre - reach, 0.0, share), np.clip(centre + reach, share, 1.0)


MEASURES: Final[Mapping[str, Measure]] = {"log_loss": log_loss, "brier": brier, "auc": roc_auc, "ece": ece}
"""All measures by name."""


def measure(
    truth: ArrayLike,
    p: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    measures: Mapping[str, Measure] = MEASURES,
) -> pd.Series:
    """All measures of one model."""
    y, p, w = _checked(truth, p, weight)
    return pd.Series({name: function(y, p, w) for name, function in measures.items()})


def measure_by_expert(
    truth: ArrayLike,
    p: ArrayLike,
    expert: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    measures: Mapping[str, Measure] = MEASURES,
) -> pd.DataFrame:
    """A row per expert and one, `all`, for all together: `cases`, `weight` and the measures.

    An expert whose cases all weigh nothing has no measures (NaN).
    """
    y, p, w = _checked(truth, p, weight)
    names = np.asarray(expert)
    if names.shape != y.shape:
        raise DataError(f"measures: {names.size} experts for {y.size} decisions")
    codes, experts = pd.factorize(names, sort=True)
    if POOLED in experts:
        raise DataError(f"measures: an expert is called {POOLED!r}, which names the row of all experts")
    groups = {name: codes == code for code, name in enumerate(experts)} | {POOLED: np.ones(len(y), np.bool_)}
    rows = {}
    for name, rows_of in groups.items():
        part = (y[rows_of], p[rows_of], w[rows_of])
        exists = part[2].any()
        values = {key: function(*part) if exists else float("nan") for key, function in measures.items()}
        rows[name] = {"cases": len(part[0]), "weight": float(part[2].sum()), **values}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("expert_id")


def bootstrap(
    truth: ArrayLike,
    p: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    group: ArrayLike | None = None,
    measures: Mapping[str, Measure] = MEASURES,
    repeats: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> pd.DataFrame:
    """A row per measure: `value`, and the percentile interval `low` to `high` over resampled cases.

    With `group` (a patient, a customer) whole groups are drawn: cases of one group are not independent.
    To compare models, give all of them the same seed: they are then measured on the same draws.
    """
    y, p, w = _checked(truth, p, weight)
    if repeats < 1 or not 0 < confidence < 1:
        raise ConfigError(f"bootstrap: {repeats} repeats at confidence {confidence} make no sense")
    codes = np.arange(len(y)) if group is None else pd.factorize(np.asarray(group))[0]
    if len(codes) != len(y) or codes.min() < 0:
        raise DataError(f"bootstrap: need a group for each of {len(y)} cases, got {len(codes)}, none missing")
    rng, drawn, count = np.random.default_rng(seed), [], int(codes.max()) + 1
    for _ in range(repeats):
        times = np.bincount(rng.integers(0, count, count), minlength=count)[codes]
        again = w * times
        used = again > 0
        if used.any():
            drawn.append([function(y[used], p[used], again[used]) for function in measures.values()])
    low, high = _quantiles(np.array(drawn), (1 - confidence) / 2)
    return pd.DataFrame({"value": measure(y, p, w, measures=measures), "low": low, "high": high})


def _quantiles(drawn: Array, tail: float) -> tuple[Array, Array]:
    """Quantiles of each column over the draws in which the measure exists; NaN where it never does."""
    columns = [column[np.isfinite(column)] for column in drawn.T]
    ends = [np.quantile(c, [tail, 1 - tail]) if len(c) else np.full(2, np.nan) for c in columns]
    return np.array([end[0] for end in ends]), np.array([end[1] for end in ends])


def _bins(p: Array, w: Array, bins: int) -> NDArray[np.int64]:
    """The bin of each case, numbered from 0 without gaps; equal chances share a bin; every bin has weight."""
    order = np.argsort(p, kind="stable")
    before = np.cumsum(w[order]) - w[order]
    wanted = np.minimum((before * bins / w.sum()).astype(np.int64), bins - 1)
    _, first, level = np.unique(p[order], return_index=True, return_inverse=True)
    joined = wanted[first][level]
    member = np.empty(len(p), np.int64)
    member[order] = joined
    weighty = np.bincount(member, w) > 0
    # A bin of weightless cases only is joined to the weighty one before it (or to the first).
    return np.asarray(np.maximum(np.cumsum(weighty) - 1, 0)[member], np.int64)


def _checked(truth: ArrayLike, p: ArrayLike, weight: ArrayLike | None) -> tuple[Array, Array, Array]:
    y, p = np.asarray(truth, np.float64), np.asarray(p, np.float64)
    w = np.ones(len(y)) if weight is None else np.asarray(weight, np.float64)
    if y.ndim != 1 or not y.size or y.shape != p.shape or y.shape != w.shape:
        raise DataError(
            f"measures: every case needs a truth, a chance and a weight; got {y.shape}, {p.shape}, {w.shape}"
        )
    if not np.isin(y, (0.0, 1.0)).all():
        raise DataError(f"truth: {(~np.isin(y, (0.0, 1.0))).sum()} value(s) other than 0 and 1")
    if not ((p >= 0) & (p <= 1)).all():
        raise DataError(f"chances: {(~((p >= 0) & (p <= 1))).sum()} value(s) outside [0, 1]")
    if not (np.isfinite(w) & (w >= 0)).all() or not w.any():
        raise DataError("weights: must be finite, not negative, and not all zero")
    return y, p, w
