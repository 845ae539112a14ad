"""Which labelled cases tell most about a newcomer, under the costs and the plan.

A newcomer's expected loss on a case of the plan is uncertain; it matters where it decides whether they or
somebody else should get the case. Deciding a labelled case narrows what is not known of their coefficients
(see `deccaf.models.decisions.observed`), and so the losses on all cases of the plan. Cases are chosen one
after the other, each time the one that most raises what knowing better is expected to save (the knowledge
gradient, with losses linear in the coefficients):

    sum over cases of the plan of  s f(d / s),      f(z) = phi(z) - |z| Phi(-|z|)

with d = the newcomer's loss + price less that of the best other maker, and s = the deviation by which the
chosen cases are expected to move d. What is answered on them is not known beforehand; the curvature that it
will bring is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import scipy
from numpy.typing import NDArray

from deccaf.errors import ConfigError
from deccaf.models.decisions.model import DecisionModel

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

FEWEST, MOST = 1, 200


@dataclass(frozen=True, eq=False)
class Stakes:
    """Cases of a plan, as far as a newcomer could get them."""

    features: pd.DataFrame
    p: Array
    """(cases, K)."""
    costs: Array
    """(cases or 1, K, K)."""
    others: Array
    """(cases,): loss + price of the best other maker, less the newcomer's price."""


@dataclass(frozen=True, eq=False)
class Proposal:
    """Labelled cases to give to a newcomer, the most telling first."""

    rows: Ints
    """Positions among the candidates."""
    saves: Array
    """What knowing their answers, and those before, is expected to save per 100 cases of the plan."""


def propose(
    model: DecisionModel,
    expert: str,
    features: pd.DataFrame,
    truth: Ints,
    stakes: Stakes,
    count: int = 10,
) -> Proposal:
    """Choose among candidates with a known truth."""
    if not FEWEST <= count <= MOST:
        raise ConfigError(f"onboard: expected a count from {FEWEST} to {MOST}, got {count}")
    covariance = model.shift_of(expert).covariance
    apart, slope = _stakes(model, expert, stakes)
    told, size = _tellings(model, expert, features, truth)
    # in the metric of what is unknown: cov = R R', so that a candidate's answer is seen along R' z
    root = np.linalg.cholesky(covariance + 1e-10 * np.eye(len(covariance)))
    slope, told = slope @ root, told @ root
    moved, left = np.zeros(len(apart)), np.eye(len(root))
    free, rows, saves = np.ones(len(told), bool), [], []
    for _ in range(min(count, len(told))):
        seen = told @ left
        reach = slope @ seen.reshape(-1, len(root)).T
        gain = _variances(reach.reshape(len(slope), *told.shape[:2]), told, seen, size)
        value = _value(np.sqrt(moved[:, None] + gain), apart[:, None]).mean(axis=0)
        best = int(np.where(free, value, -np.inf).argmax())
        rows.append(best)
        saves.append(100 * float(value[best]))
        free[best] = False
        moved = moved + gain[:, best]
        one = seen[best]
        left = left - one.T @ np.linalg.solve(_inverse_of(size[best]) + told[best] @ one.T, one)
    return Proposal(np.array(rows, np.int64), np.array(saves))


def _stakes(model: DecisionModel, expert: str, stakes: Stakes) -> tuple[Array, Array]:
    """How far the newcomer is from the best other maker, and how that moves with their coefficients."""
    q = model.predict(stakes.features, [expert])[:, 0]
    costs = np.broadcast_to(stakes.costs, (len(q), *stakes.costs.shape[1:]))
    each = (q * costs).sum(axis=2)
    loss = (stakes.p * each).sum(axis=1)
    slope = np.zeros((len(q), len(model.shift_of(expert).covariance)))
    for y in range(q.shape[1]):
        wide = model.wide(stakes.features, np.full(len(q), y))
        if model.of_right:
            right = q[:, y, y]
            wrong = (each[:, y] - right * costs[:, y, y]) / np.maximum(1.0 - right, 1e-12)
            lever = (right * (1.0 - right) * (costs[:, y, y] - wrong))[:, None]
        else:
            lever = q[:, y, 1:] * (costs[:, y, 1:] - each[:, y, None])
        slope += np.einsum("i,ik,ikc->ic", stakes.p[:, y], lever, wide)
    return loss - stakes.others, slope


def _tellings(model: DecisionModel, expert: str, features: pd.DataFrame, truth: Ints) -> tuple[Array, Array]:
    """(candidates, contrasts, coefficients) and (candidates, contrasts, contrasts): what an answer tells."""
    q = model.predict_rows(features, truth, [expert] * len(features))
    wide = model.wide(features, truth)
    if model.of_right:
        right = q[np.arange(len(q)), truth]
        return wide, (right * (1.0 - right))[:, None, None]
    q = q[:, 1:]
    return wide, np.einsum("ik,km->ikm", q, np.eye(q.shape[1])) - q[:, :, None] * q[:, None, :]


def _variances(reach: Array, told: Array, seen: Array, size: Array) -> Array:
    """(cases, candidates): by how much an answer narrows the loss on each case of the plan."""
    inside = np.einsum("ckr,cmr->ckm", told, seen)
    middle = np.linalg.inv(_inverse_of(size) + inside)
    return np.asarray(np.clip(np.einsum("ick,ckm,icm->ic", reach, middle, reach), 0.0, None))


def _inverse_of(size: Array) -> Array:
    return np.asarray(np.linalg.inv(size + 1e-9 * np.eye(size.shape[-1])))


def _value(deviation: Array, apart: Array) -> Array:
    far = np.abs(apart)
    ratio = far / np.maximum(deviation, 1e-12)
    density = np.exp(-(ratio**2) / 2.0) / np.sqrt(2.0 * np.pi)
    return np.asarray(
        np.where(deviation > 1e-12, deviation * density - far * scipy.special.ndtr(-ratio), 0.0)
    )


def best_others(loss: Array, prices: Sequence[float], newcomer: int) -> Array:
    """(cases,): loss + price of the best maker but one, less the price of that one."""
    total = loss + np.asarray(prices, np.float64)
    total[:, newcomer] = np.inf
    return np.asarray(total.min(axis=1) - prices[newcomer])
