"""Decision logs as a company has them: few experts per case, and how likely each was to get it.

A history is a table with `case_id`, `expert_id`, `decision` and `propensity`, the chance with which that
expert got that case; `deccaf.Decisions` takes it. Who gets a case is drawn from a propensity table:

- `random_history`: everyone alike (the paper: one random expert per case), machines on every case;
- `history`: any table of cases x experts;
- `skilled_propensity`: a table in which better experts get harder cases, to test what confounding does.

The decisions are the cells of `team.decide(cases, decision_seed)`: a history with another seed shows other
cells of the same table, as in the paper. (With fatigue they differ: an expert tires of what it really gets.)
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from deccaf.data.cases import Cases
from deccaf.data.values import Codes
from deccaf.errors import ConfigError, DataError, show
from deccaf.simulate.seeds import Seed, root_of, stream
from deccaf.simulate.teams.team import SyntheticTeam

Array = NDArray[np.float64]

_BLOCK = 2_000_000
"""Cells of cases x experts that are drawn at once."""


def random_history(
    team: SyntheticTeam, cases: Cases, seed: Seed, *, per_case: int = 1, decision_seed: Seed | None = None
) -> pd.DataFrame:
    """Each case to `per_case` different experts, everyone with the same chance; machines decide every case.

    `decision_seed` is the same as `seed` where not given.
    """
    machines = team.machines
    if not machines:
        return _history(team, cases, None, seed, per_case, decision_seed)
    people = [name for name in team.experts if name not in machines]
    if isinstance(seed, np.random.Generator):  # one draw for both parts
        seed = root_of(seed)
    parts = [_history(team.take(people), cases, None, seed, per_case, decision_seed)] if people else []
    parts.append(_history(team.take(machines), cases, None, seed, len(machines), decision_seed))
    return pd.concat(parts, ignore_index=True)


def history(
    team: SyntheticTeam,
    cases: Cases,
    propensity: pd.DataFrame,
    seed: Seed,
    *,
    per_case: int = 1,
    decision_seed: Seed | None = None,
) -> pd.DataFrame:
    """Each case to `per_case` different experts, drawn by a table of cases x experts.

    Rows need not sum to 1. The `propensity` of the result is exact also for several experts per case: row
    weights are scaled to sum to `per_case`, at most 1 each, and experts are drawn with exactly these chances.
    """
    return _history(team, cases, _checked(propensity, cases, team), seed, per_case, decision_seed)


def skilled_propensity(
    team: SyntheticTeam, cases: Cases, *, strength: float = 1.0, difficulty: ArrayLike | None = None
) -> pd.DataFrame:
    """Chances to get a case, where better experts get harder cases: exp(strength * skill * difficulty).

    Skill is minus an expert's mean chance of error and difficulty is the team's mean chance of error on the
    case (or what is given), both standardised. It depends on the truth, which no model sees: confounded.
    `strength = 0` is random; below 0 the better experts get the easier cases.
    """
    errors = team.error_probabilities(cases).to_numpy()
    hard = errors.mean(axis=1) if difficulty is None else np.asarray(difficulty, np.float64)
    if hard.shape != (len(cases),):
        raise DataError(f"difficulty: {hard.size} values for {len(cases)} cases")
    lean = strength * np.outer(_standardised(hard), _standardised(-errors.mean(axis=0)))
    weights = np.exp(lean - lean.max(axis=1, keepdims=True))
    shares = weights / weights.sum(axis=1, keepdims=True)
    return pd.DataFrame(shares, index=cases.ids, columns=list(team.experts))


def handled_before(expert: Codes, batch: ArrayLike | None = None) -> Codes:
    """How many cases of the same batch each row's expert has had in the rows before."""
    table = pd.DataFrame({"expert": expert, "batch": 0 if batch is None else np.asarray(batch)})
    return np.asarray(table.groupby(["batch", "expert"], sort=False).cumcount(), np.int64)


def _history(
    team: SyntheticTeam,
    cases: Cases,
    weights: Array | None,
    seed: Seed,
    per_case: int,
    decision_seed: Seed | None,
) -> pd.DataFrame:
    if not 1 <= per_case <= len(team):
        raise ConfigError(f"per_case must lie between 1 and the {len(team)} experts, got {per_case}")
    rng = stream(root_of(seed), "assignment")
    row, expert, chance = _draw(len(cases), len(team), weights, per_case, rng)
    batch = None if cases.batch is None else cases.batch.to_numpy()[row]
    handled = handled_before(expert, batch)
    said = team.decide_pairs(
        cases, row, expert, seed if decision_seed is None else decision_seed, handled=handled
    )
    return pd.DataFrame(
        {
            "case_id": cases.ids[row],
            "expert_id": np.array(team.experts, dtype=object)[expert],
            "decision": np.array(team.classes, dtype=object)[said],
            "propensity": chance,
        }
    ).infer_objects()


def _draw(
    cases: int, experts: int, weights: Array | None, per_case: int, rng: np.random.Generator
) -> tuple[Codes, Codes, Array]:
    """(case, expert, propensity) of every pick, in the order of the cases."""
    picks = []
    size = max(1, _BLOCK // experts)
    for start in range(0, cases, size):
        stop = min(start + size, cases)
        part = np.ones((stop - start, experts)) if weights is None else weights[start:stop]
        chance = _inclusion(part, per_case)
        row, expert = np.nonzero(_systematic(chance, rng))
        picks.append((row + start, expert, chance[row, expert]))
    if not picks:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)
    row, expert, chances = (np.concatenate(part) for part in zip(*picks, strict=True))
    return row.astype(np.int64), expert.astype(np.int64), np.minimum(chances, 1.0)


def _inclusion(weights: Array, per_case: int) -> Array:
    """Chances proportional to the weights that sum to `per_case`, none above 1."""
    chance = per_case * weights / weights.sum(axis=1, keepdims=True)
    for _ in range(weights.shape[1]):
        if (chance <= 1.0 + 1e-12).all():
            break
        sure = chance >= 1.0
        free = np.where(sure, 0.0, weights)
        left = per_case - sure.sum(axis=1, keepdims=True)
        total = free.sum(axis=1, keepdims=True)
        chance = np.where(sure, 1.0, left * free / np.where(total > 0, total, 1.0))
    return np.asarray(chance)


def _systematic(chance: Array, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Pick experts with exactly these chances, and exactly as many per row as the row's sum.

    Systematic sampling (Madow 1949) over the experts in random order: the chances laid end to end, a pick at
    every whole number after a random start. The random order makes all pairs possible.
    """
    order = np.argsort(rng.random(chance.shape), axis=1)
    ends = np.cumsum(np.take_along_axis(chance, order, axis=1), axis=1)
    ends[:, -1] = np.rint(ends[:, -1])  # what rounding left of a whole number would lose a pick
    ends = np.floor(ends + rng.random((len(chance), 1)))
    hit = np.diff(ends, axis=1, prepend=0.0) > 0
    picked = np.zeros(chance.shape, bool)
    np.put_along_axis(picked, order, hit, axis=1)
    return picked


def _checked(propensity: pd.DataFrame, cases: Cases, team: SyntheticTeam) -> Array:
    missing = [name for name in team.experts if name not in propensity.columns]
    if missing:
        raise DataError(f"propensity: no column for {len(missing)} expert(s), first: {missing[0]!r}")
    found = propensity.index.get_indexer(cases.ids)
    if (found < 0).any():
        first = cases.ids[int((found < 0).argmax())]
        raise DataError(f"propensity: no row for {(found < 0).sum()} case(s), first: {show(first)}")
    weights = propensity[list(team.experts)].to_numpy(np.float64)[found]
    bad = ~(np.isfinite(weights) & (weights >= 0)).all(axis=1) | (weights.sum(axis=1) <= 0)
    if bad.any():
        first = cases.ids[int(bad.argmax())]
        raise DataError(
            f"propensity: {bad.sum()} row(s) with values that are missing, negative or all 0, first: "
            f"case {show(first)}"
        )
    return weights


def _standardised(values: Array) -> Array:
    spread = values.std()
    return np.asarray((values - values.mean()) / (spread if spread > 0 else 1.0))
