"""Audit samples: how often the intervals hold, and how wide they are.

    python benchmarks/audit.py [--samples 1000] [--seed 0]

20,000 decisions of people and machine; 6 % say "fraud", of which 60 % are; of the others one in 100, 300 or
1,000 is a miss, twice as often among the older quarter of the customers. Samples of 300 and 1,000 decisions,
drawn by decision and maker as `deccaf audit sample` does; the intervals of `deccaf audit estimate`.
*Wald*: the usual interval of a weighted ratio, +- 1.96 standard errors. Exit code 1 where ours holds less
often than 93 %.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

from deccaf.evaluate.audit_sample import Cells, allocate, recall_of, share_of

SIZES = np.array([7520, 11280, 480, 720])
"""Strata: said no by machine and people, said fraud by machine and people."""
OLD = 0.25


def population(missed: float, rng: np.random.Generator) -> np.ndarray:
    """(strata, 4): how many are young and no fraud, young and fraud, old and no fraud, old and fraud."""
    found = []
    for stratum, size in enumerate(SIZES):
        young, old = (missed * 0.8, missed * 1.6) if stratum < 2 else (0.6, 0.6)
        shares = [(1 - OLD) * (1 - young), (1 - OLD) * young, OLD * (1 - old), OLD * old]
        found.append(rng.multinomial(size, shares))
    return np.array(found)


def cells(there: np.ndarray, drawn: np.ndarray, strata: slice, kinds: list[int], so: list[int]) -> Cells:
    """Strata, within the kinds of customers, and how many of these are so."""
    whole = drawn[strata][:, [1, 3] if so[0] in (1, 3) else [0, 2]].sum(axis=1) / drawn[strata].sum(axis=1)
    parts = (there[strata][:, kinds], drawn[strata][:, kinds], drawn[strata][:, so])
    return Cells(*(part.sum(axis=1).astype(float) for part in parts), whole)


def wald(there: np.ndarray, drawn: np.ndarray) -> tuple[float, float]:
    """Recall with weights, and a normal interval by linearisation."""
    size, count = there.sum(axis=1), drawn.sum(axis=1)
    share = drawn[:, [1, 3]].sum(axis=1) / count
    total = size * share
    if not total.sum():
        return 0.0, 1.0
    value = total[2:].sum() / total.sum()
    slope = size * (np.array([0, 0, 1, 1]) - value) / total.sum()
    variance = (slope**2 * share * (1 - share) / (count - 1) * (1 - count / size)).sum()
    reach = 1.96 * np.sqrt(variance)
    return float(value - reach), float(value + reach)


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--samples", type=int, default=1000)
    options.add_argument("--seed", type=int, default=0)
    chosen = options.parse_args()
    print("| misses | drawn | precision | recall | recall of the older | width of recall | Wald: recall |")
    print("|---|---|---|---|---|---|---|")
    least, said, not_said = 1.0, slice(2, 4), slice(0, 2)
    for missed in (0.01, 1 / 300, 0.001):
        for count in (300, 1000):
            rng = np.random.default_rng([chosen.seed, round(1 / missed), count])
            number = allocate(SIZES, count)
            held, width = np.zeros((chosen.samples, 4)), []
            for k in range(chosen.samples):
                there = population(missed, rng)
                drawn = np.array(
                    [rng.multivariate_hypergeometric(row, n) for row, n in zip(there, number, strict=True)]
                )
                every, old = [0, 1, 2, 3], [2, 3]
                hits = cells(there, drawn, said, every, [1, 3])
                precision, recall = (
                    share_of(hits),
                    recall_of(hits, cells(there, drawn, not_said, every, [1, 3])),
                )
                elder = recall_of(
                    cells(there, drawn, said, old, [3]), cells(there, drawn, not_said, old, [3])
                )
                fraud = there[:, [1, 3]].sum(axis=1)
                truths = [fraud[2:].sum() / SIZES[2:].sum(), fraud[2:].sum() / fraud.sum()]
                truths += [there[2:, 3].sum() / there[:, 3].sum(), truths[1]]
                ends = [precision[1:], recall[1:], elder[1:], wald(there, drawn)]
                held[k] = [
                    low - 1e-9 <= t <= high + 1e-9 for t, (low, high) in zip(truths, ends, strict=True)
                ]
                width.append(recall[2] - recall[1])
            shares = held.mean(axis=0)
            least = min(least, *shares[:3])
            row = [f"1 in {round(1 / missed):,}", str(count), *(f"{100 * x:.1f} %" for x in shares[:3])]
            print(
                "| " + " | ".join([*row, f"{np.mean(width):.2f}", f"{100 * shares[3]:.1f} %"]) + " |",
                flush=True,
            )
    sys.exit(1 if least < 0.93 else 0)


if __name__ == "__main__":
    main()
