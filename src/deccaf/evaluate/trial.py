"""Does a candidate cost less than today's practice? Intervals that hold however often one looks.

Cases go to one of two arms by lot, the candidate with a known chance. Each case costs X, at most a known
bound B (what costs more counts as B). Terms D whose mean, given all that came before, is the saving on the
cases they speak for (cost of today's practice - cost of the candidate on the same cases):

    by case     D = (X - b) / (1 - share) under today's practice, - (X - b) / share under the candidate
    by block    D = size of the block x (mean of X - b under today's practice - mean under the candidate)

`b` is what the case was expected to cost before the lot was drawn: it takes out what varies for reasons that
both arms share and moves no mean. A *block* is a few cases alike (of one stratum), of which a fixed number
goes to the candidate.

*Bounds.* With every D - centre at least -c, where the centre is known beforehand (the mean so far),
exp(l (sum D - its mean) - psi(cl) sum (D - centre)^2 / c^2), psi(x) = -log(1 - x) - x, grows on average by no
more than 1, whatever came before and however the days differ (Fan, Grama and Liu 2015; Howard, Ramdas,
McAuliffe and Sekhon 2021, theorem 4). So does a mixture over l. It ever reaches 1 / chance with at most that
chance: the mean saving over the cases seen so far lies above the lower bound at all looks together with
chance 1 - `chance`, and below the upper bound likewise. Nothing is assumed but the lot and the bound.
The mixture leans to the l that is best for the saving that the trial is planned for; bounds hold for all.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp, ndtri

from deccaf.errors import ConfigError, DataError

Array = NDArray[np.float64]
Verdict = Literal["better", "harm", "alike", "open"]

MOST_EXPECTED = 0.25
"""No case is expected to cost more than this share of the bound: the range of the terms stays small."""
CENTRE = 0.1
"""The centre lies at most this share of the terms' range from 0."""
LARGEST_BLOCK = 20
_BETS = np.geomspace(1e-4, 0.8, 64)
_SURE_OF_AIM = 0.8
"""How far the mixture spreads around the planned saving, in natural logs."""
_ELSEWHERE = 0.1
"""Share of the mixture that does not lean to the planned saving."""
_LONGEST, _LOOKS, _DRAWN = 20.0, 300, 2000
"""How a plan is drawn: up to so many times a fixed test's cases, at so many looks, so often."""


@dataclass(frozen=True)
class Rules:
    """What is settled before a trial begins."""

    share: float
    """Of the cases that go to the candidate."""
    bound: float
    """The most that a case costs; what costs more counts as this."""
    worth: float = 0.0
    """Least saving per case that is a success."""
    tolerated: float = 0.0
    """Loss per case that is not yet harm."""
    chance: float = 0.05
    """Of a false "better" ever, and of a false "harm" ever."""
    aim: float | None = None
    """Planned saving per case / variance of a case's term (`plan` reckons it); None: any saving alike."""

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise ConfigError(f"trial: the candidate's share must lie between 0 and 1, got {self.share}")
        if not (self.bound > 0 and math.isfinite(self.bound)):
            raise ConfigError(f"trial: the bound of a case's cost must be above 0, got {self.bound}")
        if not 0 < self.chance < 0.5:
            raise ConfigError(f"trial: the chance of a false verdict must lie in (0, 0.5), got {self.chance}")
        if self.worth < 0 or self.tolerated < 0:
            raise ConfigError(f"trial: worth {self.worth} and tolerated {self.tolerated} must not be below 0")
        if self.aim is not None and not self.aim > 0:
            raise ConfigError(f"trial: the planned saving must be above 0, got {self.aim}")


@dataclass(frozen=True, eq=False)
class Terms:
    """What the lot shows, in the order in which it became known."""

    saved: Array
    """D of the module's docstring."""
    cases: Array
    """How many cases each speaks for."""
    lowest: float
    highest: float
    """No term can lie outside."""
    after: NDArray[np.int64]
    """How many costs were known, in the order given, when the term was."""


@dataclass(frozen=True)
class Look:
    """What is known at one look."""

    cases: int
    saving: float
    """Mean per case so far."""
    low: float
    high: float
    verdict: Verdict


def block_of(share: float) -> tuple[int, int]:
    """How many cases a block has for this share, and how many of them go to the candidate."""
    part = Fraction(share).limit_denominator(LARGEST_BLOCK)
    if not 0 < part < 1 or abs(float(part) - share) > 1e-9:
        raise ConfigError(
            f"trial: a share of {share} does not fit into blocks of {LARGEST_BLOCK} cases or fewer; "
            "take 0.1, 0.25 or 0.5"
        )
    return part.denominator, part.numerator


def arm_of(seed: int, stratum: str, position: int, share: float) -> tuple[int, bool]:
    """The block of the stratum's case number `position` (from 0), and whether it goes to the candidate.

    Before the lot every case has exactly the chance `share`, whatever its place, and every block of a stratum
    its fixed number.
    """
    size, ours = block_of(share)
    block, place = divmod(position, size)
    key = hashlib.sha256(f"{seed}|{block}|{stratum}".encode()).digest()
    order = np.random.default_rng(np.frombuffer(key, np.uint32)).permutation(size)
    return block, bool(order[place] < ours)


def terms_by_case(
    cost: ArrayLike, candidate: ArrayLike, rules: Rules, expected: ArrayLike | None = None
) -> Terms:
    """Terms of cases that were each drawn alone; `candidate` says who went by the candidate."""
    arm, rest, most = _checked(cost, candidate, rules, expected)
    share, bound = rules.share, rules.bound
    saved = np.where(arm, -rest / share, rest / (1 - share))
    lowest, highest = -max(bound / share, most / (1 - share)), max(bound / (1 - share), most / share)
    return Terms(np.asarray(saved), np.ones(len(rest)), lowest, highest, np.arange(1, len(rest) + 1))


def terms_by_block(
    cost: ArrayLike,
    candidate: ArrayLike,
    block: ArrayLike,
    rules: Rules,
    expected: ArrayLike | None = None,
    size: int | None = None,
) -> Terms:
    """Terms of blocks, in the order in which their last cost became known.

    `size` is that of a whole block: smaller ones are still open and are left out. Without it every block
    counts as it is, for those that are waited for no longer: which costs are known must not depend on the
    arm. A block without one of the arms tells nothing.
    """
    arm, rest, most = _checked(cost, candidate, rules, expected)
    codes = pd.factorize(np.asarray(block))[0]
    if len(codes) != len(arm):
        raise DataError(f"trial: {len(codes)} blocks for {len(arm)} costs")
    theirs, ours = np.bincount(codes, ~arm), np.bincount(codes, arm)
    cases = np.asarray(theirs + ours, np.float64)
    counted = (theirs > 0) & (ours > 0) & (cases >= (size or 0))
    with np.errstate(invalid="ignore", divide="ignore"):
        apart = np.bincount(codes, rest * ~arm) / theirs - np.bincount(codes, rest * arm) / ours
    last = np.zeros(len(cases), np.int64)
    np.maximum.at(last, codes, np.arange(len(codes)))
    order = np.flatnonzero(counted)[np.argsort(last[counted], kind="stable")]
    reach = (rules.bound + most) * float(max(cases.max(initial=0.0), size or 0))
    return Terms((apart * cases)[order], cases[order], -reach, reach, last[order] + 1)


def terms_by_group(
    cost: ArrayLike,
    candidate: ArrayLike,
    block: ArrayLike,
    member: ArrayLike,
    rules: Rules,
    expected: ArrayLike | None = None,
    size: int | None = None,
) -> Terms:
    """Terms of the members of a group, in blocks that were drawn without regard to it.

    The lots of a block depend on each other, so a block is one term: the sum over its members of what each
    would be as a case drawn alone. Its mean is their saving. Only whole blocks of `size` count.
    """
    arm, rest, most = _checked(cost, candidate, rules, expected)
    mine, codes = np.asarray(member, np.bool_), pd.factorize(np.asarray(block))[0]
    whole, ours = size or int(np.bincount(codes).max(initial=1)), block_of(rules.share)[1]
    each = np.where(arm, -rest / rules.share, rest / (1 - rules.share)) * mine
    saved = np.asarray(np.bincount(codes, each), np.float64)
    members = np.asarray(np.bincount(codes, mine), np.float64)
    last = np.zeros(len(saved), np.int64)
    np.maximum.at(last, codes, np.arange(len(codes)))
    counted = (members > 0) & (np.bincount(codes) >= whole)
    order = np.flatnonzero(counted)[np.argsort(last[counted], kind="stable")]
    share, theirs = rules.share, whole - ours
    lowest = -(ours * rules.bound / share + theirs * most / (1 - share))
    highest = theirs * rules.bound / (1 - share) + ours * most / share
    return Terms(saved[order], members[order], lowest, highest, last[order] + 1)


def looks(terms: Terms, rules: Rules, at: ArrayLike | None = None) -> list[Look]:
    """What is known after so many terms each (`at`, ascending), by default after all of them."""
    count = len(terms.saved)
    where = np.asarray([count] if at is None else at, np.int64)
    total = np.concatenate([[0.0], np.cumsum(terms.saved)])
    seen = np.concatenate([[0.0], np.cumsum(terms.cases)])
    # the centre of a term is known before it: the mean of those before, kept near 0
    so_far = total[:-1] / np.maximum(seen[:-1], 1.0)
    slack = CENTRE * min(-terms.lowest, terms.highest)
    centre = np.clip(so_far * terms.cases, -slack, slack)
    squares = np.concatenate([[0.0], np.cumsum((terms.saved - centre) ** 2)])[where]
    down = _reach(squares, slack - terms.lowest, rules)
    up = _reach(squares, slack + terms.highest, rules)
    found = []
    for s, n, below, above in zip(total[where], seen[where], down, up, strict=True):
        if not n:
            found.append(Look(0, 0.0, -rules.bound, rules.bound, "open"))
            continue
        low, high = max((s - below) / n, -rules.bound), min((s + above) / n, rules.bound)
        mean = min(max(s / n, -rules.bound), rules.bound)  # chances as weights can carry it beyond
        found.append(Look(int(n), float(mean), float(low), float(high), verdict(low, high, rules)))
    return found


def verdict(low: float, high: float, rules: Rules) -> Verdict:
    """What bounds of the saving say under the rules; harm comes first."""
    if high < -rules.tolerated:
        return "harm"
    if low > rules.worth:
        return "better"
    if rules.worth and rules.tolerated and low > -rules.tolerated and high < rules.worth:
        return "alike"
    return "open"


def _reach(squares: Array, c: float, rules: Rules) -> Array:
    """How far from the sum of the terms the bound lies, for each sum of squares."""
    bets = _BETS / c
    penalty = -np.log1p(-_BETS) - _BETS
    weight, needed = _mixture(bets, rules.aim), -math.log(rules.chance)
    v = np.asarray(squares)[:, None] / c**2
    # the mixture's log is convex and rises in s: Newton's steps from the right end come down to the root
    s = ((needed - weight + penalty * v) / bets).min(axis=1)
    for _ in range(60):
        each = weight + bets * s[:, None] - penalty * v
        value = logsumexp(each, axis=1)
        slope = (np.exp(each - value[:, None]) * bets).sum(axis=1)
        step = (value - needed) / slope
        s = s - step
        if (np.abs(step) <= 1e-10 * np.abs(s)).all():
            break
    return np.asarray(s)


def _mixture(bets: Array, aim: float | None) -> Array:
    """Logs of the weights."""
    flat = np.full(len(bets), 1.0 / len(bets))
    if aim is None:
        return np.asarray(np.log(flat))
    far = np.log(bets) - np.log(np.clip(aim, bets[0], bets[-1]))
    near = np.exp(-0.5 * (far / _SURE_OF_AIM) ** 2)
    return np.asarray(np.log(_ELSEWHERE * flat + (1 - _ELSEWHERE) * near / near.sum()))


@dataclass(frozen=True)
class Planned:
    """How many cases a trial needs, of both arms together."""

    share: float
    rules: Rules
    fixed: int
    """For a test that looks once, at the end, with the wanted power."""
    looking: int
    """For one that may look every day, to have decided by then with the same chance."""
    half: int
    """Cases by which half of such trials have decided."""


def plan(
    mean: float,
    saving: float,
    share: float,
    bound: float,
    *,
    spread: float | None = None,
    power: float = 0.8,
    chance: float = 0.05,
) -> Planned:
    """Cases needed to see that the candidate saves `saving` per case where today's practice costs `mean`.

    `spread` is the standard deviation of a case's cost, as far as it was not expected; without it the largest
    that costs between 0 and the bound can have with that mean.
    """
    if not 0 < mean < bound:
        raise ConfigError(f"trial: a mean cost between 0 and the bound {bound} is needed, got {mean}")
    if not 0 < saving <= mean:
        raise ConfigError(f"trial: a saving above 0 and at most the mean cost {mean} is needed, got {saving}")
    if not 0.5 <= power < 1:
        raise ConfigError(f"trial: the power must lie in [0.5, 1), got {power}")
    wide = math.sqrt(mean * (bound - mean)) if spread is None else spread
    if not 0 < wide <= bound:
        raise ConfigError(f"trial: a spread above 0 and at most the bound {bound} is needed, got {wide}")
    variance = wide**2 / (share * (1 - share))
    rules = Rules(share, bound, chance=chance, aim=saving / variance)
    z = float(ndtri(1 - chance) + ndtri(power))
    fixed = math.ceil(z**2 * variance / saving**2)
    needed = _cases_until(saving, variance, rules, fixed, (power, 0.5))
    return Planned(share, rules, fixed, *needed)


def _cases_until(
    saving: float, variance: float, rules: Rules, fixed: int, shares: tuple[float, ...]
) -> list[int]:
    """Cases by which such shares of trials have seen the saving: drawn, with normal sums of terms."""
    cases = fixed * np.geomspace(0.02, _LONGEST, _LOOKS)
    # the range of a term by case towards harm, which is that of a block of 1 / share cases
    c = rules.bound * (1 + MOST_EXPECTED) / rules.share * (1 + CENTRE)
    reach = _reach(cases * variance, c, rules)
    rng = np.random.default_rng(0)
    steps = rng.normal(size=(_DRAWN, _LOOKS)) * np.sqrt(np.diff(cases, prepend=0.0) * variance)
    beyond = np.cumsum(steps, axis=1) + cases * saving > reach
    seen = np.where(beyond.any(axis=1), cases[beyond.argmax(axis=1)], np.inf)
    return [math.ceil(np.quantile(seen, share, method="higher")) for share in shares]


def _checked(
    cost: ArrayLike, candidate: ArrayLike, rules: Rules, expected: ArrayLike | None
) -> tuple[NDArray[np.bool_], Array, float]:
    """Arms, costs less what was expected, and the most that was."""
    price, arm = np.asarray(cost, np.float64), np.asarray(candidate)
    if price.ndim != 1 or arm.shape != price.shape:
        raise DataError(f"trial: {price.size} costs for {arm.size} arms")
    if not (np.isfinite(price).all() and (price >= 0).all()):
        raise DataError(f"trial: costs must be numbers from 0 on, got {price[~(price >= 0)][:1]}")
    if arm.dtype != bool and not np.isin(arm, (0, 1)).all():
        raise DataError("trial: the arm must be 0 (today's practice) or 1 (the candidate)")
    if expected is None:
        return arm.astype(bool), np.minimum(price, rules.bound), 0.0
    most = MOST_EXPECTED * rules.bound
    before = np.asarray(expected, np.float64)
    if before.shape != price.shape or not np.isfinite(before).all():
        raise DataError(f"trial: {before.size} expected costs for {price.size}, and none may be missing")
    return arm.astype(bool), np.minimum(price, rules.bound) - np.clip(before, 0.0, most), most
