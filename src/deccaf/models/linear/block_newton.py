"""Newton's method for a model with a common part and one part per expert: an arrow-shaped Hessian.

The coefficients are the team's and each expert's deviation from it. Experts are joined only through the team,
so a Newton step eliminates them one by one (Schur complement): a step costs decisions x columns^2, whatever
the number of experts. Coefficients are stored (columns, contrasts), where contrast k is the log-odds of class
k + 1 against class 0; flattened, contrast by contrast.

With two classes the team may have further coefficients, of its first columns times a sign that each row has,
in which nobody differs. They need no columns of their own: X' S W X is what the rows with + say less what
those with - say, and X' S W S X is X' W X.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy
from numpy.typing import NDArray

from deccaf.data.log_odds import expit, softmax

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_STEPS = 30
_CHUNK = 4096
_THREADS = min(2, os.cpu_count() or 1)
_SMALL = 64
"""Coefficients of an expert up to which all experts are eliminated at once."""
_FEW_ROWS = 100
"""Rows per expert below which they are not multiplied expert by expert."""
_MOST_OUTER = 8_000_000
"""Numbers that products of columns may take (64 MB)."""


class Rows:
    """Decisions sorted by expert, so that an expert's rows are one slice; expert -1 is the team alone.

    The team has `signed` more columns than an expert: the first ones times `sign` (1 or -1), of two classes.
    """

    def __init__(
        self,
        design: Array,
        expert: Ints,
        target: Ints,
        experts: int,
        classes: int,
        weight: Array,
        sign: Array | None = None,
        signed: int = 0,
    ) -> None:
        if signed and (sign is None or classes > 2):
            raise ValueError("columns with a sign are for two classes, and need one for each row")
        order = np.argsort(expert, kind="stable") if sign is None else np.lexsort((sign, expert))
        self.design = design[order]
        self.target = np.eye(classes)[target[order]][:, 1:]
        self.weight = weight[order]
        self.bounds = np.searchsorted(expert[order], np.arange(experts + 1))
        self.experts, self.contrasts, self.columns = experts, classes - 1, design.shape[1]
        self.sign, self.signed = None if sign is None else sign[order], signed

    @cached_property
    def outer(self) -> Array | None:
        """(decisions, columns^2): products of the columns, where a crowd has few decisions each."""
        mine = self.design[int(self.bounds[0]) :]
        if len(mine) >= _FEW_ROWS * self.experts or mine.size * self.columns > _MOST_OUTER:
            return None
        return np.asarray((mine[:, :, None] * mine[:, None, :]).reshape(len(mine), -1))

    def summed(self, factor: Array) -> scipy.sparse.csr_array:
        """(experts, decisions): sums each expert's decisions, times a factor."""
        start = int(self.bounds[0])
        places = np.arange(len(self.design) - start)
        return scipy.sparse.csr_array(
            (factor, places, self.bounds - start), shape=(self.experts, len(places))
        )

    @property
    def size(self) -> int:
        """Coefficients of each expert."""
        return int(self.columns * self.contrasts)

    @property
    def team_size(self) -> int:
        """Coefficients of the team."""
        return self.size + self.signed

    def curvature(self, rows: slice, chance: Array) -> tuple[Array, Array]:
        """What one expert's rows say about columns; and between all columns and those with a sign."""
        if self.sign is None or not self.signed:
            found = information(self.design[rows], chance[rows], self.weight[rows])
            return found, np.empty((self.size, 0))
        turn = rows.start + int(np.searchsorted(self.sign[rows], 0.0))
        minus, plus = (
            information(self.design[part], chance[part], self.weight[part])
            for part in (slice(rows.start, turn), slice(turn, rows.stop))
        )
        return plus + minus, (plus - minus)[:, : self.signed]

    def signed_sum(self, values: Array) -> Array:
        """(signed,): sums over all rows of the columns with a sign, times a value for each row."""
        if self.sign is None or not self.signed:
            return np.empty(0)
        return np.asarray((self.sign * values[:, 0]) @ self.design[:, : self.signed])

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
        if self.sign is not None and self.signed:
            eta[:, 1] = self.sign * (self.design[:, : self.signed] @ team[self.columns :, 0])
            team = team[: self.columns]
        eta[self.nobody, 1:] += self.design[self.nobody] @ team
        if len(self.design) < _FEW_ROWS * self.experts:  # a crowd: gathering costs less than many products
            mine = slice(int(self.bounds[0]), len(self.design))
            each = np.repeat(np.arange(self.experts), np.diff(self.bounds))
            eta[mine, 1:] += np.einsum("ic,ick->ik", self.design[mine], (team + expert)[each])
            return eta
        for j, rows in self.of_experts():
            eta[rows, 1:] += self.design[rows] @ (team + expert[j])
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
    """cross[j] = A_j^-1 B_j: how expert j's coefficients answer to the team's, of which there may be more."""


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
    total = np.logaddexp(0.0, eta[:, 1]) if rows.contrasts == 1 else scipy.special.logsumexp(eta, axis=1)
    fit = total - (rows.target * eta[:, 1:]).sum(axis=1)
    penalty = (at.team_precision[:, None] * at.team**2).sum()
    penalty += (at.expert_precision[:, :, None] * at.expert**2).sum()
    return float(rows.weight @ fit + penalty / 2)


def newton(rows: Rows, at: Coefficients) -> Step:
    """Solve the Newton system at a place by eliminating the experts."""
    eta = rows.logits(at.team, at.expert)
    chance = expit(eta[:, 1:]) if rows.contrasts == 1 else softmax(eta, axis=1)[:, 1:]
    error = rows.weight[:, None] * (rows.target - chance)
    free, own = rows.nobody, rows.size
    schur = np.diag(np.tile(at.team_precision, rows.contrasts))
    schur += _bordered(*rows.curvature(free, chance))
    team_gradient = -(at.team_precision[:, None] * at.team).T.ravel()
    team_gradient[:own] += (rows.design[free].T @ error[free]).T.ravel()
    team_gradient[own:] += rows.signed_sum(error)
    eliminate = _all_at_once if own <= _SMALL else _one_by_one
    gone = eliminate(rows, at, chance, error)
    schur += gone.block
    team_gradient[:own] += gone.pull
    schur_inverse = scipy.linalg.cho_solve(scipy.linalg.cho_factor(schur), np.eye(rows.team_size))
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


def _bordered(own: Array, beside: Array) -> Array:
    """The team's square matrix: of all columns, with the columns that have a sign beside and below."""
    signed = beside.shape[1]
    return np.block([[own, beside], [beside.T, own[:signed, :signed]]]) if signed else own


@dataclass(frozen=True)
class _Eliminated:
    """The experts' part of a Newton system, solved for the team's."""

    inverse: Array
    cross: Array
    gradient: Array
    block: Array
    """What the experts add to the team's curvature."""
    pull: Array
    """What their rows add to the team's gradient (but for the columns with a sign)..."""
    taken: Array
    """...and what their own moves take from it."""


def _all_at_once(rows: Rows, at: Coefficients, chance: Array, error: Array) -> _Eliminated:
    """Small matrices of many experts, stacked: a thread each would cost more than the algebra."""
    curvature, beside, pull = _by_expert(rows, chance, error)
    own, size = np.tile(at.expert_precision, (1, rows.contrasts)), rows.size
    inverse: Array = np.linalg.inv(curvature + own[:, :, None] * np.eye(size)).astype(np.float64)
    # A^-1 (A - D) without a product, D being the precisions; and so for what is left of the curvature
    cross = np.eye(size) - inverse * own[:, None, :]
    block = np.zeros((rows.team_size, rows.team_size))
    block[:size, :size] = np.diag(own.sum(axis=0))
    block[:size, :size] -= np.einsum("ja,jab,jb->ab", own, inverse, own, optimize=False)
    if rows.signed:
        answer = inverse @ beside
        cross = np.concatenate([cross, answer], axis=2)
        signed = slice(0, rows.signed)
        block[:size, size:] = np.einsum("ja,jab->ab", own, answer)
        block[size:, :size] = block[:size, size:].T
        left = curvature[:, signed, signed].sum(axis=0) - np.einsum(
            "jab,jac->bc", beside, answer, optimize=True
        )
        block[size:, size:] = (left + left.T) / 2
    gradient = pull - own * np.swapaxes(at.expert, 1, 2).reshape(own.shape)
    taken = np.einsum("jba,jb->a", cross, gradient)
    return _Eliminated(inverse, cross, gradient, block, pull.sum(axis=0), taken)


def _by_expert(rows: Rows, chance: Array, error: Array) -> tuple[Array, Array, Array]:
    """Every expert's curvature, that between all columns and those with a sign, and gradient."""
    beside = np.empty((rows.experts, rows.size, rows.signed))
    if rows.contrasts == 1 and rows.outer is not None:  # sums of outer products, as one sparse product
        mine = slice(int(rows.bounds[0]), len(rows.design))
        share = (rows.weight * chance[:, 0] * (1.0 - chance[:, 0]))[mine]
        shape = (rows.experts, rows.columns, rows.columns)
        if rows.sign is not None and rows.signed:
            turned = np.asarray(rows.summed(share * rows.sign[mine]) @ rows.outer).reshape(shape)
            beside = turned[:, :, : rows.signed]
        pulls = rows.summed(error[mine, 0]) @ rows.design[mine]
        return np.asarray(rows.summed(share) @ rows.outer).reshape(shape), beside, np.asarray(pulls)
    curvature = np.empty((rows.experts, rows.size, rows.size))
    pull = np.empty((rows.experts, rows.size))
    for j, mine in rows.of_experts():
        curvature[j], beside[j] = rows.curvature(mine, chance)
        pull[j] = (rows.design[mine].T @ error[mine]).T.ravel()
    return curvature, beside, pull


def _one_by_one(rows: Rows, at: Coefficients, chance: Array, error: Array) -> _Eliminated:
    """Large matrices, one expert after the other, in threads."""
    size = rows.size
    inverse = np.empty((rows.experts, size, size))
    cross, gradient = np.empty((rows.experts, size, rows.team_size)), np.empty((rows.experts, size))

    def eliminate(item: tuple[int, slice]) -> tuple[Array, Array, Array]:
        j, mine = item
        curvature, beside = rows.curvature(mine, chance)
        pull = (rows.design[mine].T @ error[mine]).T.ravel()
        own = np.tile(at.expert_precision[j], rows.contrasts)
        inverse[j] = _inverse(curvature + np.diag(own))
        cross[j, :, :size] = np.eye(size) - inverse[j] * own  # as in `_all_at_once`
        gradient[j] = pull - own * at.expert[j].T.ravel()
        block = np.diag(own) - own[:, None] * inverse[j] * own
        if rows.signed:
            answer = inverse[j] @ beside
            cross[j, :, size:] = answer
            left = curvature[: rows.signed, : rows.signed] - beside.T @ answer
            side = own[:, None] * answer
            block = np.block([[block, side], [side.T, (left + left.T) / 2]])
        return block, pull, cross[j].T @ gradient[j]

    block, pull = np.zeros((rows.team_size, rows.team_size)), np.zeros(size)
    taken = np.zeros(rows.team_size)
    with ThreadPoolExecutor(_THREADS) as pool:
        for parts in pool.map(eliminate, rows.of_experts()):
            block += parts[0]
            pull += parts[1]
            taken += parts[2]
    return _Eliminated(inverse, cross, gradient, block, pull, taken)


def _inverse(matrix: Array) -> Array:
    """Of a symmetric positive definite matrix, at less than half of what solving for it costs."""
    factor, lower = scipy.linalg.cho_factor(matrix, lower=True)
    found, fault = scipy.linalg.lapack.dpotri(factor, lower=lower)
    if fault:
        raise np.linalg.LinAlgError(f"the inverse of a matrix of {len(matrix)} coefficients was not found")
    below = np.tril(found, -1)
    return np.asarray(below + below.T + np.diag(np.diag(found)))


def information(design: Array, chance: Array, weight: Array) -> Array:
    """Fisher information of the coefficients, contrast by contrast: blocks X' diag(w p_k (d_kl - p_l)) X."""
    columns, contrasts = design.shape[1], chance.shape[1]
    total = np.zeros((contrasts, columns, contrasts, columns))
    for start in range(0, len(design), _CHUNK):
        part = slice(start, start + _CHUNK)
        for k in range(contrasts):
            roots = design[part] * np.sqrt(weight[part] * chance[part, k] * (1.0 - chance[part, k]))[:, None]
            total[k, :, k, :] += roots.T @ roots  # of one matrix with itself: half the work of two
            for m in range(k):
                factor = -weight[part] * chance[part, k] * chance[part, m]
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
    if step.cross.shape[-1] <= _SMALL:
        expert += np.einsum("jab,jab->ja", step.cross @ step.schur_inverse, step.cross)
        return by_column(np.diag(step.schur_inverse), contrasts), by_column(expert, contrasts)
    for j, cross in enumerate(step.cross):  # one by one: (experts, size, size) is large enough as it is
        expert[j] += ((cross @ step.schur_inverse) * cross).sum(axis=1)
    return by_column(np.diag(step.schur_inverse), contrasts), by_column(expert, contrasts)


def joint_covariance(step: Step) -> Array:
    """Covariance of team + deviation, for each expert; in columns with a sign of the team alone."""
    size, everything = step.cross.shape[1:]
    covariance = np.empty((len(step.cross), everything, everything))
    for j, (inverse, cross) in enumerate(zip(step.expert_inverse, step.cross, strict=True)):
        shift = np.eye(everything)
        shift[:size] -= cross
        covariance[j] = shift @ step.schur_inverse @ shift.T
        covariance[j, :size, :size] += inverse
    return covariance
