"""What is drawn for each synthetic expert from its group's description: weights, and target error rates.

For K classes the rates are a K x K matrix e[y, m], the share of cases of truth y that the expert calls m; the
diagonal is left at 0. With two classes e[0, 1] is the false-positive and e[1, 0] the false-negative rate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from deccaf.data.cases import Cases
from deccaf.data.costs import Costs
from deccaf.errors import ConfigError, DataError, did_you_mean
from deccaf.simulate.teams.config import CostTarget, Group
from deccaf.simulate.teams.features import Array, TeamFeatures, truth_of

_EDGE = 1e-6
"""Rates of exactly 0 or 1 need infinite logits: bounds are kept this far inside."""
_STEPS = 40
"""Steps of the random walk per dimension; two classes have one dimension and need one step."""


@dataclass(frozen=True, eq=False)
class Stakes:
    """What error rates cost on the fitting cases: expected cost per case = sum(at_stake * rates)."""

    at_stake: Array
    """(K, K): share of truth y times the mean cost of deciding m on it."""
    classifier_cost: float | None = None

    @classmethod
    def of(cls, cases: Cases, costs: Costs, classifier_cost: float | None = None) -> Self:
        """The stakes of labelled cases; every class must occur, or its rates could not be met."""
        if cases.classes != costs.classes:
            raise ConfigError(
                f"cases have the classes {list(cases.classes)}, the costs {list(costs.classes)}; "
                "build the cases with these costs"
            )
        label = truth_of(cases)
        counts = np.bincount(label, minlength=len(costs.classes))
        if (counts == 0).any():
            name = costs.classes[int((counts == 0).argmax())]
            raise DataError(
                f"none of the {len(cases)} fitting cases is of class {name!r}, so no error rate "
                "can be met on them; choose other fitting cases"
            )
        prices = costs.array(cases.amounts)
        of_truth = prices[np.arange(len(label)) if len(prices) > 1 else np.zeros(len(label), int), label]
        at_stake = np.stack([of_truth[label == y].sum(axis=0) for y in range(len(counts))])
        return cls(at_stake / len(label), classifier_cost)

    @property
    def rejecting(self) -> float:
        """Expected cost per case of deciding the last class always."""
        return float(self.at_stake[:, -1].sum())

    def target_cost(self, target: CostTarget, rng: np.random.Generator) -> float:
        """One draw of the expected cost: N(mean, deviation) in its unit, between floor and cap."""
        unit = {"classifier": self.classifier_cost, "rejecting": self.rejecting, "absolute": 1.0}[target.unit]
        if unit is None:
            raise ConfigError(
                "the target cost is relative to the classifier: give what it is expected to "
                "cost per case ([fit] classifier_cost), or say unit = 'rejecting' or 'absolute'"
            )
        drawn = unit * rng.normal(target.mean, target.deviation)
        return float(np.clip(drawn, target.floor * self.rejecting, target.cap * self.rejecting))


def sample_expert(
    group: Group, features: TeamFeatures, classes: int, rng: np.random.Generator
) -> tuple[Array, float, float]:
    """(weights, sharpness, fatigue) of one expert; the same number of draws whatever the description."""
    stray = [name for name in group.weights if name not in features.names]
    if stray:
        raise ConfigError(
            f"group {group.name!r}: weight of {stray[0]!r}, which is no feature"
            + did_you_mean(stray[0], features.names)
        )
    sharpness = group.sharpness.mean + group.sharpness.deviation * rng.standard_normal()
    fatigue = group.fatigue.mean + group.fatigue.deviation * rng.standard_normal()
    shape = (classes - 1, len(features.names))
    chosen, normal = rng.random(shape) < group.slab.share, rng.standard_normal(shape)
    weights = np.where(chosen, group.slab.mean + group.slab.deviation * normal, 0.0)
    own = dict(group.weights)
    if features.score is not None:
        own.setdefault(features.score, group.score_weight)
    for name, normally in own.items():
        at = features.names.index(name)
        weights[:, at] = normally.mean + normally.deviation * normal[:, at]
    return weights, max(sharpness, 0.0), fatigue


def sample_rates(group: Group, stakes: Stakes, rng: np.random.Generator) -> Array:
    """Target error rates (K, K) of one expert of the group."""
    low, high = _bounds(group, len(stakes.at_stake))
    if group.fpr is not None and group.fnr is not None:
        if len(low) != 2:
            raise ConfigError(
                f"group {group.name!r}: fpr and fnr are for two classes, here are {len(low)}; give error_rate"
            )
        means = np.array([group.fpr.mean, group.fnr.mean])
        spreads = np.array([group.fpr.deviation, group.fnr.deviation])
        return _split(_drawn(means, spreads, low, high, group, rng), rng)
    if group.error_rate is not None:
        means = np.full(len(low), group.error_rate.mean)
        spreads = np.full(len(low), group.error_rate.deviation)
        return _split(_drawn(means, spreads, low, high, group, rng), rng)
    cost = stakes.target_cost(group.cost or CostTarget(), rng)
    return _rates_of_cost(cost, stakes.at_stake, low, high, group, rng)


def _bounds(group: Group, classes: int) -> tuple[Array, Array]:
    of_truth = [group.bounds] * classes
    if classes == 2:
        of_truth = [group.fpr_bounds or group.bounds, group.fnr_bounds or group.bounds]
    elif group.fpr_bounds or group.fnr_bounds:
        raise ConfigError(f"group {group.name!r}: fpr_bounds and fnr_bounds are for two classes; give bounds")
    limits = np.clip(np.array(of_truth, dtype=np.float64), _EDGE, 1.0 - _EDGE)
    return limits[:, 0], limits[:, 1]


def _drawn(
    means: Array, spreads: Array, low: Array, high: Array, group: Group, rng: np.random.Generator
) -> Array:
    outside = (means < low) | (means > high)
    if outside.any():
        y = int(outside.argmax())
        raise ConfigError(
            f"group {group.name!r}: mean error rate {means[y]:g} lies outside its bounds "
            f"[{low[y]:g}, {high[y]:g}]"
        )
    return np.clip(rng.normal(means, spreads), low, high)


def _split(rates: Array, rng: np.random.Generator) -> Array:
    """Error rates of each truth, shared at random among the wrong decisions (two classes: there is one)."""
    matrix = np.zeros((len(rates), len(rates)))
    shares = rng.dirichlet(np.ones(len(rates) - 1), len(rates))
    matrix[~np.eye(len(rates), dtype=bool)] = (rates[:, None] * shares).ravel()
    return matrix


def _rates_of_cost(
    cost: float, at_stake: Array, low: Array, high: Array, group: Group, rng: np.random.Generator
) -> Array:
    """Rates drawn uniformly among all that cost exactly `cost` and keep the bounds.

    With two classes they lie on a segment: FNR is uniform among the values that leave FPR within its bounds,
    as in the paper. With more, a random walk within the polytope (hit and run) draws from it.
    """
    wrong = ~np.eye(len(low), dtype=bool)
    prices = at_stake[wrong].reshape(len(low), -1)
    point = _start(cost, prices, low, high, group)
    normal = prices.ravel() / np.linalg.norm(prices)
    dimensions = normal.size - 1
    for _ in range(1 if dimensions == 1 else _STEPS * dimensions):
        direction = rng.normal(size=normal.size)
        direction -= (direction @ normal) * normal
        step = (direction / np.linalg.norm(direction)).reshape(point.shape)
        least, most = _chord(point, step, low, high)
        point = point + rng.uniform(least, most) * step
    matrix = np.zeros(wrong.shape)
    matrix[wrong] = point.ravel()
    return matrix


def _start(cost: float, prices: Array, low: Array, high: Array, group: Group) -> Array:
    """A point inside the bounds that costs `cost`: on the way from the least rates to the costliest ones."""
    others = prices.shape[1]
    least = np.repeat(low[:, None], others, axis=1) / others
    even = np.repeat(high[:, None], others, axis=1) / others
    costliest = np.full_like(least, _EDGE)
    costliest[np.arange(len(low)), prices.argmax(axis=1)] = high - _EDGE * (others - 1)
    reach = [float((prices * corner).sum()) for corner in (least, even, costliest)]
    if not reach[0] < cost < reach[2]:
        raise ConfigError(
            f"group {group.name!r}: a target cost of {cost:.6g} per case cannot be met: error rates within "
            f"their bounds cost {reach[0]:.6g} to {reach[2]:.6g}; change cost or bounds"
        )
    if cost <= reach[1]:
        return np.asarray(least + (cost - reach[0]) / (reach[1] - reach[0]) * (even - least))
    return np.asarray(even + (cost - reach[1]) / (reach[2] - reach[1]) * (costliest - even))


def _chord(point: Array, step: Array, low: Array, high: Array) -> tuple[float, float]:
    """How far `point + t * step` stays inside: every rate above 0, each truth's sum within its bounds."""
    room, slope = [point.ravel() - _EDGE / 2], [step.ravel()]  # conditions: room + t * slope >= 0
    total, change = point.sum(axis=1), step.sum(axis=1)
    room += [total - low, high - total]
    slope += [change, -change]
    margin, rate = np.maximum(np.concatenate(room), 0.0), np.concatenate(slope)
    with np.errstate(divide="ignore", invalid="ignore"):
        ends = -margin / rate
    return float(ends[rate > 0].max(initial=-np.inf)), float(ends[rate < 0].min(initial=np.inf))
