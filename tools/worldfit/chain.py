"""The chain of conditional models: fitted on months 0-5, then extended to months 6-7."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import brentq, minimize
from scipy.special import logsumexp

from deccaf.simulate.baf import CATEGORIES, MONTH, MONTHS
from worldfit.bins import Link

STRENGTHS = (0.03, 0.012, 0.005, 0.002)  # penalties to choose from
LATE = (6, 7)  # months that the sample does not cover
TOLERANCE = 0.003  # of published moments, in shares or standard deviations
DRIFT = 0.3  # what months 6-7 may differ from months 3-5, in units of the scores


@dataclass
class Design:
    """Codes of the earlier features side by side, with the columns of each."""

    columns: dict[str, slice]
    matrix: np.ndarray

    @classmethod
    def of_months(cls, months: np.ndarray) -> Design:
        """Start with the month's one-hot columns."""
        return cls({MONTH: slice(0, MONTHS)}, np.eye(MONTHS)[months])

    def add(self, name: str, code: np.ndarray) -> None:
        """Append the columns of a feature."""
        start = self.matrix.shape[1]
        self.columns[name] = slice(start, start + code.shape[1])
        self.matrix = np.concatenate([self.matrix, code], axis=1)

    def rows(self, keep: np.ndarray) -> Design:
        """Some of the rows."""
        return Design(self.columns, self.matrix[keep])

    def logits(self, link: Link) -> np.ndarray:
        """Logits of the feature's bins for every row."""
        eta = sum(self.matrix[:, self.columns[n]] @ w for n, w in link.weights.items())
        return eta @ link.score.T + link.base

    def draw(self, link: Link, rng: np.random.Generator) -> np.ndarray:
        """Bins of a new feature, drawn for every row."""
        chance = np.exp(self.logits(link))
        mass = np.cumsum(chance, axis=1)
        return (mass[:, :-1] <= rng.random(len(mass))[:, None] * mass[:, -1:]).sum(axis=1)


def fit_path(
    design: Design, bins: np.ndarray, link: Link, strengths: tuple[float, ...]
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Group lasso over the parents, by iteratively reweighted ridge, from strong to weak penalties."""
    d = link.score.shape[1]
    groups = list(design.columns.values())
    sizes = np.array([g.stop - g.start for g in groups])
    base, weights = link.base, np.zeros((design.matrix.shape[1], d))
    path = []
    for strength in strengths:
        for turn in range(4):
            norms = np.array([np.linalg.norm(weights[g]) for g in groups])
            ridge = strength * np.sqrt(sizes * d) / 3 / (norms + 1e-3)
            if turn == 0:  # every parent gets a new chance at every strength
                ridge[:] = strength
            ridge[0] = 0.05 * strength  # months drift freely
            base, weights = solve_ridge(
                design.matrix, bins, link.score, base, weights, np.repeat(ridge, sizes)
            )
        path.append((base, weights))
    return path


def solve_ridge(
    design: np.ndarray,
    bins: np.ndarray,
    score: np.ndarray,
    base: np.ndarray,
    weights: np.ndarray,
    ridge: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Penalised maximum likelihood of the softmax; `ridge` is per column of the design."""
    k, rows, prior = len(base), np.arange(len(bins)), base.copy()

    def objective(theta: np.ndarray) -> tuple[float, np.ndarray]:
        b, w = theta[:k], theta[k:].reshape(weights.shape)
        share = (design @ w) @ score.T + b
        share -= share.max(axis=1, keepdims=True)
        chosen = share[rows, bins]
        np.exp(share, out=share)
        total = share.sum(axis=1)
        loss = (np.log(total) - chosen).mean()
        share /= total[:, None]
        share[rows, bins] -= 1
        loss += 0.5 * (ridge[:, None] * w**2).sum() + 5e-5 * ((b - prior) ** 2).sum()
        grad_w = design.T @ (share @ score) / len(bins) + ridge[:, None] * w
        return loss, np.concatenate([share.mean(axis=0) + 1e-4 * (b - prior), grad_w.ravel()])

    start = np.concatenate([base, weights.ravel()])
    best = minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": 30, "maxcor": 15})
    return best.x[:k], best.x[k:].reshape(weights.shape)


def log_loss(design: Design, bins: np.ndarray, link: Link, base: np.ndarray, weights: np.ndarray) -> float:
    """Mean log-loss of the softmax."""
    logits = design.matrix @ weights @ link.score.T + base
    return float((logsumexp(logits, axis=1) - logits[np.arange(len(bins)), bins]).mean())


def fit_link(link: Link, design: Design, bins: np.ndarray) -> None:
    """Choose the penalty on a quarter of the rows, then fit on all of them."""
    check = np.arange(len(bins)) % 4 == 0
    tries = fit_path(design.rows(~check), bins[~check], link, STRENGTHS)
    losses = [log_loss(design.rows(check), bins[check], link, *fitted) for fitted in tries]
    best = int(np.argmin(losses))
    link.base, weights = fit_path(design, bins, link, STRENGTHS[: best + 1])[-1]
    weights[list(LATE)] = weights[3:6].mean(axis=0)  # until calibration says otherwise
    for name, columns in design.columns.items():
        if name == MONTH or np.linalg.norm(weights[columns]) > 0.03:
            link.weights[name] = weights[columns]
    kept = f"{len(link.weights) - 1} of {len(design.columns) - 1} parents"
    print(f"{link.spec.name:34s} log-loss {losses[best]:.4f}, penalty {STRENGTHS[best]}, {kept}", flush=True)


def targets(link: Link, facts: dict[str, Any], numeric: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Published moments of a feature, as functions of its bin: (bins, moments) and their values."""
    name = link.spec.name
    if name in CATEGORIES:
        counts = facts["categorical_counts"][name]
        share = np.array([counts[level] for level in CATEGORIES[name]]) / 1e6
        return np.eye(len(share)), share
    row = numeric.loc[name]
    middle = link.middle
    functions, values = [(middle - row["mean"]) / row["std"]], [0.0]
    missing = facts["missing_minus_one"].get(name)
    if missing is not None:
        functions.append((middle == -1).astype(float))
        values.append(missing / 1e6)
    if not link.spec.levels:
        for share, quartile in ((0.25, row["25%"]), (0.5, row["50%"]), (0.75, row["75%"])):
            if quartile != -1:
                functions.append(np.array([share_below(nodes, quartile) for nodes in link.nodes]))
                values.append(share)
    return np.stack(functions, axis=1), np.array(values)


def share_below(nodes: np.ndarray, value: float) -> float:
    """Share of a bin's values below `value`."""
    if np.ptp(nodes) == 0:
        return float(nodes[0] < value) if nodes[0] != value else 0.5
    return float(np.interp(value, nodes, np.linspace(0, 1, len(nodes))))


def calibrate(
    link: Link, design: Design, months: np.ndarray, wanted: tuple[np.ndarray, np.ndarray], rows: int
) -> None:
    """Shift all months a little and the late ones more, until the published moments of all months hold.

    The sample covers months 0-5 only, so the published totals are what tells how months 6-7 look. A shift
    of all months is held back by the sample's error, one of the late months by a typical monthly drift.
    """
    functions, values = wanted
    share = np.exp(link.base - logsumexp(link.base))
    spread_of = share @ link.score**2 - (share @ link.score) ** 2
    prior = np.concatenate([1.5 / np.sqrt(rows * spread_of), np.full(len(spread_of), DRIFT)])
    groups = [np.ones(len(months), dtype=bool), np.isin(months, LATE)]
    logits = design.logits(link)
    shift = np.zeros(len(prior))
    for _ in range(6):  # Gauss-Newton
        moved = logits + sum(
            g[:, None] * (link.score @ p) for g, p in zip(groups, np.split(shift, 2), strict=True)
        )
        chance = np.exp(moved - logsumexp(moved, axis=1, keepdims=True))
        moments, means = chance @ functions, chance @ link.score
        covariances = [
            np.einsum("k,kt,kj->tj", chance[g].sum(axis=0), functions, link.score) - moments[g].T @ means[g]
            for g in groups
        ]
        jacobian = np.concatenate(covariances, axis=1) / len(months)
        gap = (values - moments.mean(axis=0) + jacobian @ shift) / TOLERANCE
        system = np.concatenate([jacobian / TOLERANCE, np.diag(1 / prior)])
        shift = np.linalg.lstsq(system, np.concatenate([gap, np.zeros(len(prior))]), rcond=None)[0]
    everywhere, late = np.split(shift, 2)
    link.weights[MONTH] = link.weights[MONTH] + everywhere
    link.weights[MONTH][list(LATE)] += late


def set_clock(link: Link, alerts: pd.DataFrame, mean: float, months: np.ndarray) -> None:
    """Months 6-7 of velocity_4w, which is nearly a clock.

    Month 6 is taken from its alerts: in months 3-5 the means of alerts and of all applications differ by
    less than 30, against steps of 200 to 400 from month to month. Month 7 is month 6 tilted so that the
    published mean of all months holds.
    """
    seen = alerts.loc[alerts[MONTH] == LATE[0], link.spec.name].to_numpy()
    counts = np.bincount(link.encode(seen), minlength=len(link.base)) + 1.0
    shares = [np.exp(link.base + link.score @ w) for w in link.weights[MONTH][:6]]
    size = np.bincount(months, minlength=MONTHS) / len(months)
    rest = sum(
        s * n for s, n in zip([x / x.sum() @ link.middle for x in [*shares, counts]], size, strict=False)
    )
    unit = (link.middle - link.middle.mean()) / link.middle.std()

    def tilted(slope: float) -> np.ndarray:
        return counts * np.exp(slope * unit)

    slope = brentq(lambda v: tilted(v) / tilted(v).sum() @ link.middle * size[7] + rest - mean, -20, 20)
    reference = int(np.flatnonzero(~link.score.any(axis=1))[0])
    for m, histogram in zip(LATE, (counts, tilted(slope)), strict=True):
        wanted = np.log(histogram) - link.base
        link.weights[MONTH][m] = np.delete(wanted - wanted[reference], reference)
