"""Trials that are looked at every day: false verdicts, and how long until they decide.

    python benchmarks/trial.py [--trials 1000] [--seed 0]

A desk of 300 cases a day and four kinds of cases, on which errors cost 1 (missed) or 0.057 (stopped for
nothing); a case costs 0.05 on average, more on some days of the week, and a third more from the second month
on. The candidate costs the same, 30 % less or 30 % more. A share of the cases goes to it by lot: in blocks
within each kind, or case by case with what was expected of the case taken out. Rules are settled beforehand
by `deccaf.evaluate.trial.plan` for a saving of 30 %. Looked at after every day; at most three times the cases
of a test of fixed size.

*Peeking* is how often that fixed test (z, one-sided, 5 %) would have called a candidate that is no better
"better" on some day, had it been looked at daily; *fixed* its days, with a power of 80 %. Exit code 1 where
false verdicts are more frequent than promised.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from deccaf.evaluate import trial as t

PER_DAY, BOUND, SAVING = 300, 1.0, 0.3
KINDS = (0.4, 0.3, 0.2, 0.1)
MISSED = np.array([0.005, 0.02, 0.07, 0.15])
STOPPED = np.array([0.05, 0.15, 0.3, 0.4])
WEEK = np.array([0.8, 0.9, 1.0, 1.0, 1.1, 1.3, 0.9])
TRUTHS = {"no difference": 1.0, "30 % less": 1 - SAVING, "30 % more": 1 + SAVING}
CHANCE, POWER = 0.05, 0.8


@dataclass(frozen=True)
class Ran:
    """One trial."""

    better: float
    """Day of the verdict; infinite where there was none."""
    harm: float
    peeked: bool


def usual() -> tuple[float, float]:
    """Mean cost of a case, and its deviation within its kind."""
    kinds = np.array(KINDS)
    mean = MISSED + 0.057 * STOPPED
    square = MISSED + 0.057**2 * STOPPED
    return float(kinds @ mean), float(np.sqrt(kinds @ (square - mean**2)))


def run(factor: float, plan: t.Planned, blocks: bool, rng: np.random.Generator) -> Ran:
    """One trial of at most three times the fixed test's cases."""
    days = 3 * plan.fixed // PER_DAY + 1
    count = days * PER_DAY
    kind = rng.choice(len(KINDS), count, p=KINDS)
    day = np.arange(count) // PER_DAY
    level = WEEK[day % 7] * np.where(day >= 30, 4 / 3, 1.0)
    expected = (MISSED + 0.057 * STOPPED)[kind]
    arm, block = _lot(kind, plan.share, blocks, rng)
    times = level * np.where(arm, factor, 1.0)
    happened = rng.random(count)
    missed = happened < np.minimum(MISSED[kind] * times, 0.9)
    stopped = happened > 1 - np.minimum(STOPPED[kind] * times, 0.9)
    cost = np.where(missed, 1.0, np.where(stopped, 0.057, 0.0))
    if blocks:
        terms = t.terms_by_block(cost, arm, block, plan.rules, size=t.block_of(plan.share)[0])
    else:
        terms = t.terms_by_case(cost, arm, plan.rules, expected)
    at = np.searchsorted(terms.after, PER_DAY * np.arange(1, days + 1), side="right")
    seen = t.looks(terms, plan.rules, at)
    return Ran(_first(seen, "better"), _first(seen, "harm"), _peeked(cost, arm, days))


def _lot(
    kind: np.ndarray, share: float, blocks: bool, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    if not blocks:
        return rng.random(len(kind)) < share, np.arange(len(kind))
    size, ours = t.block_of(share)
    arm, block, used = np.zeros(len(kind), bool), np.zeros(len(kind), np.int64), 0
    for one in range(len(KINDS)):
        rows = np.flatnonzero(kind == one)
        number = -(-len(rows) // size)
        order = rng.permuted(np.tile(np.arange(size), (number, 1)), axis=1).ravel()[: len(rows)]
        arm[rows] = order < ours
        block[rows] = used + np.arange(len(rows)) // size
        used += number
    return arm, block


def _first(seen: list[t.Look], wanted: str) -> float:
    """The day of the first verdict of this kind, if no other came before and ended the trial."""
    for day, look in enumerate(seen, 1):
        if look.verdict != "open":
            return float(day) if look.verdict == wanted else np.inf
    return np.inf


def _peeked(cost: np.ndarray, arm: np.ndarray, days: int) -> bool:
    """Whether a plain z-test of the two means says "better" on any day of the fixed test's time."""
    at = PER_DAY * np.arange(1, days // 3 + 1) - 1
    sums = [(np.cumsum(mine)[at], np.cumsum(mine * cost)[at], np.cumsum(mine * cost**2)[at])
            for mine in (~arm, arm)]  # fmt: skip
    mean = [s / n for n, s, _ in sums]
    variance = [(q / n - (s / n) ** 2) / n for n, s, q in sums]
    z = (mean[0] - mean[1]) / np.sqrt(variance[0] + variance[1])
    return bool((z > norm.ppf(1 - CHANCE)).any())


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--trials", type=int, default=1000)
    options.add_argument("--seed", type=int, default=0)
    chosen = options.parse_args()
    mean, spread = usual()
    print(f"Mean cost {mean:.4f}, deviation within kinds {spread:.3f}, {chosen.trials:,} trials a row")
    print('| candidate | share | lot | "better" | "harm" | undecided | days: half | 80 % | fixed | peeking |')
    print("|---|---|---|---|---|---|---|---|---|---|")
    broken = 0
    for share in (0.1, 0.25, 0.5):
        plan = t.plan(mean, SAVING * mean, share, BOUND, spread=spread, power=POWER, chance=CHANCE)
        for blocks in (True, False):
            for name, factor in TRUTHS.items():
                rng = np.random.default_rng([chosen.seed, int(100 * share), blocks, int(100 * factor)])
                ran = [run(factor, plan, blocks, rng) for _ in range(chosen.trials)]
                better = np.mean([np.isfinite(one.better) for one in ran])
                harm = np.mean([np.isfinite(one.harm) for one in ran])
                day = np.array([min(one.better, one.harm) for one in ran])
                half, most = (np.quantile(day, q, method="higher") for q in (0.5, POWER))
                peek = f"{np.mean([one.peeked for one in ran]):.1%}" if factor >= 1 else ""
                false = (better if factor >= 1 else 0.0, harm if factor <= 1 else 0.0)
                broken += max(false) > CHANCE
                cells = [name, f"{share:.0%}", "blocks" if blocks else "by case", f"{better:.1%}",
                         f"{harm:.1%}", f"{1 - better - harm:.1%}", f"{half:.0f}", f"{most:.0f}",
                         f"{plan.fixed / PER_DAY:.0f}", peek]  # fmt: skip
                print("| " + " | ".join(cells) + " |", flush=True)
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
