"""Newton's method for a model with a common part and one part per expert: an arrow-shaped Hessian.

The coefficients are the team's and each expert's deviation from it. Experts are joined only through the team,
so a Newton step eliminates them one by one (Schur complement): a step costs decisions x columns^2, whatever
the number of experts. Coefficients are stored (columns, contrasts), where contrast k is the log-odds of class
k + 1 against class 0; flattened, contrast by contrast.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.special import logsumexp, softmax

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_STEPS = 30
_CHUNK = 4096
_THREADS = min(2, os.cpu_count() or 1)
_SMALL = 64
"""Coefficients of an expert up to which all experts are eliminated at once."""
_FEW_ROWS = 100
"""Rows per expert below which they are not multiplied expert by expert."""


class Rows:
    """Decisions sorted by expert, so that an expert's rows are one slice; expert -1 is the team alone."""

    def __init__(
        self, design: Array, expert: Ints, target: Ints, experts: int, classes: int, weight: Array
    ) -> None:
        order = np.argsort(expert, kind="stable")
        self.design = design[order]
        self.target = np.eye(classes)[target[order]][:, 1:]
        self.weight = weight[order]
        self.bounds = np.searchsorted(expert[order], np.arange(experts + 1))
        self.experts, self.contrasts, self.columns = experts, classes - 1, design.shape[1]

    @property
    def size(self) -> int:
        """Coefficients of the team, and of each expert."""
        return int(self.columns * self.contrasts)

    @property
    def nobody(self) -> slice:
        """The rows that no expert decided."""
        return slice(0, int(self.bounds[0]))

    def of_experts(self) -> Iterator[tuple[int, slice]]:
        """Each expert's position and rows."""
        for j in range(self.experts):
            yield j, slice(int(self.bounds[j]), int(self.bounds[j + 1]))

    def logits(self, team: Array, expert: Array) -> Array:
        """(rows, classes): log-odds against class 0."""
        eta = np.zeros((len(self.design), self.contrasts + 1))
        eta[self.nobody, 1:] = self.design[self.nobody] @ team
        if len(self.design) < _FEW_ROWS * self.experts:  # a crowd: gathering costs less than many products
            mine = slice(int(self.bounds[0]), len(self.design))
            each = np.repeat(np.arange(self.experts), np.diff(self.bounds))
            eta[mine, 1:] = np.einsum("ic,ick->ik", self.design[mine], (team + expert)[each])
            return eta
        for j, rows in self.of_experts():
            eta[rows, 1:] = self.design[rows] @ (team + expert[j])
        return eta


@dataclass
class Coefficients:
    """The state of a fit: coefficients and the precisions of their priors.

    One precision per column for the team, and one per expert and column.
    """

    team: Array
    expert: Array
    team_precision: Array
    expert_precision: Array

    def moved(self, step: Step, length: float) -> Coefficients:
        """The same after a step."""
        return Coefficients(
            self.team + length * step.team_move,
            self.expert + length * step.expert_move,
            self.team_precision,
            self.expert_precision,
        )


@dataclass(frozen=True)
class Step:
    """One Newton system, solved: the move of all coefficients, and what the posterior needs."""

    team_move: Array
    expert_move: Array
    decrement: float
    schur_inverse: Array
    expert_inverse: Array
    cross: Array
    """cross[j] = A_j^-1 B_j: how expert j's coefficients answer to the team's."""


def climb(rows: Rows, at: Coefficients) -> tuple[Coefficients, Step]:
    """Newton to the mode, halving steps that overshoot; gives the place and the last system."""
    value = objective(rows, at)
    tolerance = 1e-6 * max(float(rows.weight.sum()), 1.0)
    for _ in range(_STEPS):
        step = newton(rows, at)
        length = 1.0
        while length > 1e-4:
            moved = at.moved(step, length)
            after = objective(rows, moved)
            if after <= value:
                break
            length /= 2
        else:
            return at, step
        at, value = moved, after
        if step.decrement < tolerance:
            break
    return at, step


def objective(rows: Rows, at: Coefficients) -> float:
    """Negative log posterior, up to a constant."""
    eta = rows.logits(at.team, at.expert)
    fit = logsumexp(eta, axis=1) - (rows.target * eta[:, 1:]).sum(axis=1)
    penalty = (at.team_precision[:, None] * at.team**2).sum()
    penalty += (at.expert_precision[:, :, None] * at.expert**2).sum()
    return float(rows.weight @ fit + penalty / 2)


def newton(rows: Rows, at: Coefficients) -> Step:
    """Solve the Newton system at a place by eliminating the experts."""
    chance = softmax(rows.logits(at.team, at.expert), axis=1)[:, 1:]
    error = rows.weight[:, None] * (rows.target - chance)
    free = rows.nobody
    schur = np.diag(np.tile(at.team_precision, rows.contrasts))
    schur += information(rows.design[free], chance[free], rows.weight[free])
    team_gradient = (rows.design[free].T @ error[free] - at.team_precision[:, None] * at.team).T.ravel()
    eliminate = _all_at_once if rows.size <= _SMALL else _one_by_one
    gone = eliminate(rows, at, chance, error)
    schur += gone.block
    team_gradient += gone.pull
    schur_inverse = cho_solve(cho_factor(schur), np.eye(rows.size))
    team_move = schur_inverse @ (team_gradient - gone.taken)
    expert_move = np.einsum("jab,jb->ja", gone.inverse, gone.gradient) - gone.cross @ team_move
    decrement = float(team_gradient @ team_move + (gone.gradient * expert_move).sum())
    return Step(
        by_column(team_move, rows.contrasts),
        by_column(expert_move, rows.contrasts),
        decrement,
        schur_inverse,
        gone.inverse,
        gone.cross,
    )


@dataclass(frozen=True)
class _Eliminated:
    """The experts' part of a Newton system, solved for the team's."""

    inverse: Array
    cross: Array
    gradient: Array
    block: Array
    """What the experts add to the team's curvature."""
    pull: Array
    """What their rows add to the team's gradient..."""
    taken: Array
    """...and what their own moves take from it."""


def _all_at_once(rows: Rows, at: Coefficients, chance: Array, error: Array) -> _Eliminated:
    """Small matrices of many experts, stacked: a thread each would cost more than the algebra."""
    curvature = np.empty((rows.experts, rows.size, rows.size))
    pull = np.empty((rows.experts, rows.size))
    roots = rows.design * np.sqrt(rows.weight * chance[:, 0] * (1.0 - chance[:, 0]))[:, None]
    for j, mine in rows.of_experts():
        if rows.contrasts == 1:  # X' diag(w p (1 - p)) X at the cost of one product
            curvature[j] = roots[mine].T @ roots[mine]
        else:
            curvature[j] = information(rows.design[mine], chance[mine], rows.weight[mine])
        pull[j] = (rows.design[mine].T @ error[mine]).T.ravel()
    own = np.tile(at.expert_precision, (1, rows.contrasts))
    inverse: Array = np.linalg.inv(curvature + own[:, :, None] * np.eye(rows.size)).astype(np.float64)
    cross = inverse @ curvature
    gradient = pull - own * np.swapaxes(at.expert, 1, 2).reshape(own.shape)
    return _Eliminated(
        inverse,
        cross,
        gradient,
        curvature.sum(axis=0) - np.tensordot(curvature, cross, axes=([0, 2], [0, 1])),
        pull.sum(axis=0),
        np.einsum("jba,jb->a", cross, gradient),
    )


def _one_by_one(rows: Rows, at: Coefficients, chance: Array, error: Array) -> _Eliminated:
    """Large matrices, one expert after the other, in threads."""
    inverse = np.empty((rows.experts, rows.size, rows.size))
    cross, gradient = np.empty_like(inverse), np.empty((rows.experts, rows.size))

    def eliminate(item: tuple[int, slice]) -> tuple[Array, Array, Array]:
        j, mine = item
        curvature = information(rows.design[mine], chance[mine], rows.weight[mine])
        pull = (rows.design[mine].T @ error[mine]).T.ravel()
        own = np.tile(at.expert_precision[j], rows.contrasts)
        inverse[j] = cho_solve(cho_factor(curvature + np.diag(own)), np.eye(rows.size))
        cross[j] = inverse[j] @ curvature
        gradient[j] = pull - own * at.expert[j].T.ravel()
        return curvature - curvature @ cross[j], pull, cross[j].T @ gradient[j]

    block, pull, taken = np.zeros((rows.size, rows.size)), np.zeros(rows.size), np.zeros(rows.size)
    with ThreadPoolExecutor(_THREADS) as pool:
        for parts in pool.map(eliminate, rows.of_experts()):
            block += parts[0]
            pull += parts[1]
            taken += parts[2]
    return _Eliminated(inverse, cross, gradient, block, pull, taken)


def information(design: Array, chance: Array, weight: Array) -> Array:
    """Fisher information of the coefficients, contrast by contrast: blocks X' diag(w p_k (d_kl - p_l)) X."""
    columns, contrasts = design.shape[1], chance.shape[1]
    total = np.zeros((contrasts, columns, contrasts, columns))
    for start in range(0, len(design), _CHUNK):
        part = slice(start, start + _CHUNK)
        for k in range(contrasts):
            for m in range(k + 1):
                factor = weight[part] * chance[part, k] * ((k == m) - chance[part, m])
                total[k, :, m, :] += (design[part].T * factor) @ design[part]
    for k in range(contrasts):
        for m in range(k):
            total[m, :, k, :] = total[k, :, m, :].T
    return total.reshape(contrasts * columns, contrasts * columns)


def by_column(flat: Array, contrasts: int) -> Array:
    """(..., contrasts x columns) to (..., columns, contrasts)."""
    return np.swapaxes(flat.reshape(*flat.shape[:-1], contrasts, flat.shape[-1] // contrasts), -1, -2)


def variances(step: Step, contrasts: int) -> tuple[Array, Array]:
    """Posterior variances of the team's and of each expert's coefficients, shaped like them."""
    expert = np.einsum("jaa->ja", step.expert_inverse).copy()
    for j, cross in enumerate(step.cross):  # one by one: (experts, size, size) is large enough as it is
        expert[j] += ((cross @ step.schur_inverse) * cross).sum(axis=1)
    return by_column(np.diag(step.schur_inverse), contrasts), by_column(expert, contrasts)


def joint_covariance(step: Step) -> Array:
    """Covariance of team + deviation, for each expert."""
    covariance = np.empty_like(step.expert_inverse)
    for j, (inverse, cross) in enumerate(zip(step.expert_inverse, step.cross, strict=True)):
        shift = np.eye(len(cross)) - cross
        covariance[j] = inverse + shift @ step.schur_inverse @ shift.T
    return covariance
