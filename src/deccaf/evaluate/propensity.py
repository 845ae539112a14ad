"""Who would have got a case: propensities of a history, estimated where they were not kept.

Two questions, one after the other:

- *Who was there?* A person who had not come yet, or had left, could not get a case. Presence is read off the
  log: everybody all the time, between first and last decision, or whoever decided something within a window
  around that time; and everybody has the same weight throughout, or the share of the work in the window. The
  simplest of these is taken whose held-out log-loss is within two standard errors of the best.
- *Did the case say who got it?* A multinomial logistic model of the person given the features, among those
  present, fitted on other cases than it is used on. Where it predicts no better than presence alone, history
  was random as far as the features tell.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax

from deccaf.data.folds import fold_of
from deccaf.errors import DataError

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

FOLDS = 5
RARE = 0.02
"""A case that a person gets less often than this says almost nothing about them..."""
RARE_SHARE = 0.1
"""...and less often than this times an even share: in a crowd everybody's share is small."""
WINDOWS = (0.5, 0.25, 0.1, 0.05, 0.02, 0.01)
"""Widths of the windows that presence is looked for in, as shares of the log's decisions."""
PER_WINDOW = 5
"""Decisions per person that a window must hold on average."""
GAPS = 3.0
"""Mean gaps between two decisions of a person for which they may have been there without deciding."""
SLOTS = 400
"""Points of time that are told apart at most."""
RIDGE = 5.0
"""Penalty of the squared weights of the features."""
_LEAST = 1e-4
_SLIP = 0.01
_TELLING = 2.0


@dataclass(frozen=True, eq=False)
class Propensities:
    """Chances of the people to get each case, and how far they can be trusted."""

    chance: Array
    """(decisions, people); 0 for who was not there."""
    random: bool
    """Whether the case said nothing about who got it."""
    gain: float
    """Held-out log-loss that the features save, against presence and everybody's share of the work."""
    gain_error: float
    presence: str = "everybody was there all the time"
    """How presence was read off the log."""
    present: Mask | None = None
    """(decisions, people): who was there; None where everybody was all the time."""

    def of(self, expert: ArrayLike) -> Array:
        """The chance of the person who did get each case."""
        codes = np.asarray(expert, np.int64)
        return np.asarray(self.chance[np.arange(len(codes)), codes])

    def notes(self) -> list[str]:
        """Warnings with numbers; none where history was random and everybody could get everything."""
        notes = []
        if self.present is not None:
            there = self.present.sum(axis=1)
            notes.append(
                f"people came and went: of {self.chance.shape[1]} between {there.min()} and {there.max()} "
                f"were there at a time ({self.presence}); nobody gets a case from a time when they were away"
            )
        if not self.random:
            notes.append(
                f"history was not random: the features predict who got a case (held-out log-loss lower by "
                f"{self.gain:.4f}, standard error {self.gain_error:.4f}); what was not recorded but decided "
                "who got which case makes the estimates wrong"
            )
        there = self.chance > 0 if self.present is None else self.present
        rare = there & (self.chance * there.sum(axis=1, keepdims=True) < RARE_SHARE) & (self.chance < RARE)
        if rare.any():
            by_person = rare.sum(axis=0) / np.maximum(there.sum(axis=0), 1)
            notes.append(
                f"little overlap: {rare.sum() / there.sum():.1%} of the pairs of case and expert have a "
                f"chance below {RARE:.0%} (for one expert {by_person.max():.1%} of the cases); there the "
                "estimates rest on few"
            )
        return notes


def estimate_propensities(
    features: pd.DataFrame,
    expert: Ints,
    experts: int,
    seed: int = 0,
    group: ArrayLike | None = None,
    time: ArrayLike | None = None,
) -> Propensities:
    """Chances of every person for every case (`expert` holds positions), cross-fitted where features matter.

    `time` says when each decision was made; without it everybody is taken to have been there all the time.
    """
    if len(features) != len(expert) or len(expert) < 2 * FOLDS:
        raise DataError(f"propensities: {len(expert)} decisions for {len(features)} cases are too few")
    fold = fold_of(len(expert), FOLDS, group=group, seed=seed)
    slot = _slots(time, len(expert))
    presence = _presence(slot, expert, experts, fold)
    base = presence.chances(_counts(slot, expert, experts))[slot]
    there = None if (base > 0).all() else base > 0
    found = Propensities(base, True, 0.0, 0.0, presence.words(len(expert)), there)
    matrix = design(features)
    if experts < 2 or not matrix.shape[1] or not _telling(matrix, expert, base):
        return found
    model, share = np.empty_like(base), np.empty_like(base)
    for k in range(FOLDS):
        out = fold == k
        counts = _counts(slot[~out], expert[~out], experts, int(slot.max()) + 1)
        share[out] = _slipped(presence.chances(counts)[slot[out]], counts)
        weights = _fitted(matrix[~out], expert[~out], base[~out])
        model[out] = _chances(matrix[out], weights, base[out])
    rows = np.arange(len(expert))
    saved = np.log(np.maximum(model[rows, expert], _LEAST)) - np.log(share[rows, expert])
    gain, error = float(saved.mean()), float(saved.std() / np.sqrt(len(saved)))
    if gain <= 2 * error:
        return Propensities(base, True, gain, error, found.presence, there)
    floored = np.where(base > 0, np.maximum(model, _LEAST), 0.0)
    return Propensities(floored, False, gain, error, found.presence, there)


def given_propensities_notes(propensity: ArrayLike) -> list[str]:
    """What is to be said of propensities that came with the log."""
    chance = np.asarray(propensity, np.float64)
    low, high = float(chance.min()), float(chance.max())
    notes = []
    if high > 1.5 * low:
        notes.append(f"history was not random: propensities range from {low:.3f} to {high:.3f}")
    rare = chance < min(RARE, RARE_SHARE * float(np.median(chance)))
    if rare.any():
        notes.append(
            f"little overlap: {rare.mean():.1%} of the decisions had a propensity below {RARE:.0%} and far "
            "below the usual one; each of them stands for many cases"
        )
    return notes


@dataclass(frozen=True)
class _Presence:
    """One way to read off a log who was there, and how the work was shared among those."""

    kind: str
    """`always`, `span` (first to last decision), `active` (within a window), `shares` (of a window)."""
    window: float = 1.0

    def words(self, decisions: int) -> str:
        around = f"{self.window:.0%} of the log around that time, about {self.window * decisions:,.0f} of it"
        return {
            "always": "everybody was there all the time",
            "span": "from the first to the last decision of each",
            "active": f"who decided something within {around}",
            "shares": f"by everybody's share of the {around}",
        }[self.kind]

    def chances(self, counts: Array) -> Array:
        """(slots, people): chances of those present, from decisions by slot and person."""
        if self.kind == "always":
            share = counts.sum(axis=0) / counts.sum()
            return np.tile(share, (len(counts), 1))
        there = _span(counts)
        if self.kind == "span":
            return _weighted(there, counts)
        near = _within(counts, self.window)
        there &= near > 0
        if self.kind == "active":
            return _weighted(there, counts)
        share = np.where(there, near, 0.0)
        return np.asarray(share / np.maximum(share.sum(axis=1, keepdims=True), 1e-12))


def _candidates(decisions: int, people: int, slots: int) -> Iterator[_Presence]:
    """From the simplest to the finest."""
    yield _Presence("always")
    if slots < 2 or people < 2:
        return
    yield _Presence("span")
    wide = [w for w in WINDOWS if w * decisions >= PER_WINDOW * people]
    yield from (_Presence("active", w) for w in wide)
    yield from (_Presence("shares", w) for w in wide)


def _presence(slot: Ints, expert: Ints, experts: int, fold: Ints) -> _Presence:
    """The simplest way whose held-out log-loss is within two standard errors of the best."""
    slots = int(slot.max()) + 1
    candidates = list(_candidates(len(expert), experts, slots))
    logs = np.empty((len(candidates), len(expert)))
    for k in range(FOLDS if len(candidates) > 1 else 0):
        out = fold == k
        counts = _counts(slot[~out], expert[~out], experts, slots)
        for place, candidate in enumerate(candidates):
            chance = _slipped(candidate.chances(counts), counts)
            logs[place, out] = np.log(chance[slot[out], expert[out]])
    if len(candidates) == 1:
        return candidates[0]
    best = logs[int(logs.mean(axis=1).argmax())]
    behind = best - logs
    near = behind.mean(axis=1) <= 2 * behind.std(axis=1) / np.sqrt(len(expert)) + 1e-9
    return candidates[int(near.argmax())]


def _slipped(chance: Array, counts: Array) -> Array:
    """A little of everybody's overall share, so that nobody whom the other folds miss has chance 0."""
    overall = (counts.sum(axis=0) + 0.5) / (counts.sum() + 0.5 * counts.shape[1])
    return np.asarray((1 - _SLIP) * chance + _SLIP * overall)


def _slots(time: ArrayLike | None, rows: int) -> Ints:
    """The times as numbers from 0 on, at most `SLOTS` of them, all in order."""
    if time is None:
        return np.zeros(rows, np.int64)
    codes = np.asarray(pd.Series(np.asarray(time)).rank(method="dense"), np.int64) - 1
    if codes.max() < SLOTS:
        return codes
    before = np.searchsorted(np.sort(codes), codes, side="left")
    return np.asarray(pd.factorize(before * SLOTS // rows, sort=True)[0], np.int64)


def _counts(slot: Ints, expert: Ints, experts: int, slots: int | None = None) -> Array:
    """(slots, people): how many decisions."""
    slots = int(slot.max()) + 1 if slots is None else slots
    flat = np.bincount(slot * experts + expert, minlength=slots * experts)
    return np.asarray(flat.reshape(slots, experts), np.float64)


def _span(counts: Array) -> Mask:
    """(slots, people): between the first and the last decision, and as long around as chance may hide one."""
    total, made, seen = counts.sum(axis=1), counts.sum(axis=0), counts > 0
    centre = np.cumsum(total) - total / 2
    first = np.where(made > 0, centre[seen.argmax(axis=0)], np.inf)
    last = np.where(made > 0, centre[len(seen) - 1 - seen[::-1].argmax(axis=0)], -np.inf)
    reach = np.where(made > 0, GAPS * (last - first) / np.maximum(made, 1), 0.0)
    return np.asarray((centre[:, None] >= first - reach) & (centre[:, None] <= last + reach))


def _within(counts: Array, window: float) -> Array:
    """(slots, people): decisions in a window around each slot that holds this share of the log."""
    total = counts.sum(axis=1)
    ends = np.cumsum(total)
    centre, reach = ends - total / 2, window * ends[-1] / 2
    first = np.minimum(np.searchsorted(ends, centre - reach, side="right"), np.arange(len(ends)))
    last = np.maximum(np.searchsorted(ends - total, centre + reach, side="left"), np.arange(len(ends)) + 1)
    sums = np.vstack([np.zeros(counts.shape[1]), np.cumsum(counts, axis=0)])
    return np.asarray(sums[last] - sums[first])


def _weighted(there: Mask, counts: Array) -> Array:
    """Chances proportional to a weight per person among those present: the likeliest (Luce's model)."""
    total, made = counts.sum(axis=1), counts.sum(axis=0)
    weight = np.where(made > 0, made / np.maximum(there.T @ total, 1e-12), 0.0)
    for _ in range(200):
        crowd = np.maximum(there @ weight, 1e-12)
        new = made / np.maximum(there.T @ (total / crowd), 1e-12)
        done = np.abs(new - weight).max() <= 1e-6 * weight.max()
        weight = new
        if done:
            break
    chance = there * weight
    return np.asarray(chance / np.maximum(chance.sum(axis=1, keepdims=True), 1e-12))


def design(features: pd.DataFrame) -> Array:
    """Numbers as ranks and their squares, missing ones flagged, levels as columns; all of unit variance."""
    blocks: list[Array] = []
    for name in features:
        values = features[name]
        if isinstance(values.dtype, pd.CategoricalDtype):
            blocks.append(pd.get_dummies(values, dtype=float).to_numpy(np.float64))
            continue
        rank: Array = np.asarray(values.rank(pct=True).fillna(0.5), np.float64)[:, None] - 0.5
        blocks += [rank, rank**2]
        if values.isna().any():
            blocks.append(np.asarray(values.isna(), np.float64)[:, None])
    matrix = np.hstack(blocks) if blocks else np.empty((len(features), 0))
    spread = matrix.std(axis=0)
    return np.asarray((matrix - matrix.mean(axis=0))[:, spread > 1e-9] / spread[spread > 1e-9])


def _telling(matrix: Array, expert: Ints, base: Array) -> bool:
    """Whether the features could say anything: a score test, which spares fitting a model in vain."""
    left, size, _ = np.linalg.svd(matrix, full_matrices=False)
    left = left[:, size > 1e-6 * size.max()] * np.sqrt(len(matrix))
    who = np.arange(base.shape[1])
    score = np.stack([left[expert == j].sum(axis=0) for j in who]) - base.T @ left
    spread = (base * (1 - base)).T @ left**2
    usable = spread > 1e-9
    squares = float((score[usable] ** 2 / spread[usable]).sum())
    degrees = float(usable.sum()) * (1 - 1 / base.shape[1])
    return bool(squares - degrees > _TELLING * np.sqrt(2 * max(degrees, 1.0)))


def _fitted(matrix: Array, expert: Ints, base: Array) -> Array:
    """(features + 1, people): weights that shift the log-chances of those present."""
    from scipy.optimize import minimize

    inputs, offset = _inputs(matrix), _log(base)
    rows, people = np.arange(len(expert)), base.shape[1]

    def cost(flat: NDArray[np.float64]) -> tuple[float, Array]:
        weights = flat.reshape(inputs.shape[1], people)
        logs = log_softmax(offset + inputs @ weights.astype(np.float32), axis=1)
        error = np.exp(logs)
        error[rows, expert] -= 1.0
        slope = (inputs.T @ error).astype(np.float64) + 2 * RIDGE * weights
        loss = -float(logs[rows, expert].sum(dtype=np.float64)) + RIDGE * float((weights**2).sum())
        return loss, slope.ravel()

    start = np.zeros(inputs.shape[1] * people)
    found = minimize(cost, start, jac=True, method="L-BFGS-B", options={"maxiter": 100, "ftol": 1e-7})
    return np.asarray(found.x.reshape(inputs.shape[1], people))


def _chances(matrix: Array, weights: Array, base: Array) -> Array:
    logs = log_softmax(_log(base) + _inputs(matrix) @ weights.astype(np.float32), axis=1)
    chance = np.where(base > 0, np.exp(logs.astype(np.float64)), 0.0)
    return np.asarray(chance / chance.sum(axis=1, keepdims=True))


def _inputs(matrix: Array) -> NDArray[np.float32]:
    return np.column_stack([np.ones(len(matrix)), matrix]).astype(np.float32)


def _log(base: Array) -> NDArray[np.float32]:
    return np.log(np.maximum(base, 1e-12)).astype(np.float32)
