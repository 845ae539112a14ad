"""Whether today's cases are harder than those of past days: weights of the forecast's rows that say so.

Of past cases from the hours that are over, and of today's, a logistic regression tells which are which, from
what bids are made of: the loss of those without a limit, and the least and the mean loss of the others. Its
odds are how much more often such cases come today (an exponential tilt), and the rest of the day is expected
to be tilted alike, or more where the tilt grew through the day. A prior on its weights keeps few cases from
changing much.
"""

from __future__ import annotations

import numpy as np

from deccaf.assign.exact.scan import Bools, Floats
from deccaf.data.log_odds import expit

DOUBT = 1.0
"""An effect is believed as far as it is more than so many times what chance brings."""
SHRINK = 2.0
"""Penalty of the squared weights, where summaries have unit variance: of how far today is off,"""
SHRINK_TREND = 1.0
"""and of how that changes through the day."""
MOST = 3.0
"""No past case counts more than exp(3) times, or less."""


def summaries(rows: Floats, limited: Bools) -> Floats:
    """(cases, 3): loss without those who are limited, least and mean loss of those who are."""
    may = np.isfinite(rows)
    some: Bools = limited if limited.any() else np.ones(rows.shape[1], bool)
    free: Bools = ~limited if (~limited).any() else some
    filled = np.where(may, rows, 0.0)
    mean = filled[:, some].sum(axis=1) / np.maximum(may[:, some].sum(axis=1), 1)
    most = np.where(may, rows, -np.inf).max(axis=1)
    least, open_ = rows[:, some].min(axis=1), rows[:, free].min(axis=1)
    columns = [np.where(np.isfinite(column), column, most) for column in (open_, least, mean)]
    return np.stack(columns, axis=1)


def tilt(
    past: Floats, past_at: Floats, today: Floats, today_at: Floats, rest: Floats, rest_at: Floats
) -> Floats:
    """Weights of the rows that stand for the rest of the day; arguments are summaries with their times."""
    both = np.concatenate([past, today])
    middle, spread = both.mean(axis=0), np.maximum(both.std(axis=0), 1e-12)
    centre = float(today_at.mean())

    def inputs(values: Floats, at: Floats) -> Floats:
        scaled = np.clip((values - middle) / spread, -4.0, 4.0)
        return np.column_stack([scaled, scaled.mean(axis=1) * (at - centre)])

    x = np.concatenate([inputs(past, past_at), inputs(today, today_at)])
    is_today = np.repeat([0.0, 1.0], [len(past), len(today)])
    # both sides count as many cases as there are today: more past cases are no more evidence of today
    weight = np.where(is_today == 1, 1.0, len(today) / len(past))
    size = past.shape[1]
    level, gain = _fitted(x[:, :size], is_today, weight, np.full(size, SHRINK))
    trend, more = _fitted(x, is_today, weight, np.append(np.full(size, SHRINK), SHRINK_TREND))
    level = np.append(level, 0.0)
    found = _believed(gain, size) * level + _believed(more - gain, 1) * (trend - level)
    log = inputs(rest, rest_at) @ found
    return np.asarray(np.exp(np.clip(log - log.mean(), -MOST, MOST)))


def _believed(gain: float, weights: int) -> float:
    """How much of an effect is believed (James and Stein): none that chance would bring."""
    return max(0.0, 1.0 - DOUBT * weights / max(2.0 * gain, 1e-12))


def _fitted(x: Floats, y: Floats, weight: Floats, penalty: Floats, steps: int = 8) -> tuple[Floats, float]:
    """Weights of a logistic regression with a free constant, and the log-likelihood that they win."""
    inputs = np.column_stack([x, np.ones(len(x))])
    penalty = np.append(penalty, 1e-6)
    at = np.zeros(len(penalty))
    for _ in range(steps):
        p = expit(inputs @ at)
        slope = inputs.T @ (weight * (y - p)) - penalty * at
        curve = (inputs * (weight * p * (1 - p))[:, None]).T @ inputs + np.diag(penalty)
        step = np.linalg.solve(curve, slope)
        at = at + step
        if np.abs(step).max() < 1e-4:
            break
    score = inputs @ at
    logs = -np.logaddexp(0.0, np.where(y == 1, -score, score))
    return at[:-1], float((weight * (logs + np.log(2.0))).sum())
