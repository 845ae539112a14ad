"""Audit samples: how often the intervals hold, and how wide they are.

    python benchmarks/audit.py [--samples 500] [--seed 0]

20,000 decisions of people and machine; 6 % say "fraud", of which 60 % are; of the others one in 100, 300 or
1,000 is a miss, twice as often among the older quarter of the customers. Samples of 300 and 1,000 decisions,
drawn by decision and maker. *Wald*: the usual interval of a weighted share, +- 1.96 standard errors, for
comparison. Exit code 1 where ours holds less often than 93 %.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
import pandas as pd

from deccaf.evaluate.audit_sample import draw, estimate

DECISIONS = 20_000


def desk(missed: float, rng: np.random.Generator) -> pd.DataFrame:
    """All decisions with their truth."""
    age = np.where(rng.random(DECISIONS) < 0.25, "old", "young")
    decision = (rng.random(DECISIONS) < 0.06).astype(int)
    rate = missed * np.where(age == "old", 1.6, 0.8)
    return pd.DataFrame(
        {
            "case_id": [f"c{k}" for k in range(DECISIONS)],
            "decision": decision,
            "maker": np.where(rng.random(DECISIONS) < 0.4, "machine", "people"),
            "age": age,
            "label": (rng.random(DECISIONS) < np.where(decision == 1, 0.6, rate)).astype(int),
        }
    )


def recall_by_wald(sample: pd.DataFrame) -> tuple[float, float]:
    """Recall with weights 1 / inclusion, and a normal interval by linearisation."""
    weight, true = 1 / sample["inclusion"].to_numpy(), sample["label"].to_numpy() == 1
    said = sample["decision"].to_numpy() == 1
    total = (weight * true).sum()
    if not total:
        return 0.0, 1.0
    value = (weight * true * said).sum() / total
    terms = pd.Series(weight * true * (said - value) / total)
    variance = 0.0
    for name, mine in terms.groupby(sample["stratum"].to_numpy()):
        share = sample["inclusion"].to_numpy()[(sample["stratum"] == name).to_numpy()][0]
        variance += len(mine) * mine.var(ddof=1) * (1 - share) if len(mine) > 1 else 0.0
    reach = 1.96 * np.sqrt(variance)
    return value - reach, value + reach


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--samples", type=int, default=500)
    options.add_argument("--seed", type=int, default=0)
    chosen = options.parse_args()
    print(
        "| misses | drawn | precision | recall | accuracy | by age: recall | width of recall | Wald, recall |"
    )
    print("|---|---|---|---|---|---|---|---|")
    least = 1.0
    for missed in (0.01, 1 / 300, 0.001):
        for count in (300, 1000):
            rng = np.random.default_rng([chosen.seed, round(1 / missed), count])
            held: dict[str, list[bool]] = {}
            width = []
            table = desk(missed, rng)
            bare, label = table.drop(columns="label"), table.set_index("case_id")["label"]
            truths = {"all": _truth(table)} | {str(a): _truth(mine) for a, mine in table.groupby("age")}
            for _ in range(chosen.samples):
                audited = draw(bare, count, int(rng.integers(2**31)), by=["maker"])
                audited["label"] = label[audited["case_id"]].to_numpy()
                found = estimate(bare, audited, 1, by=["maker"], group="age")
                for row in found.itertuples():
                    truth = truths[row.group][row.measure]
                    name = row.measure if row.group == "all" else f"by age: {row.measure}"
                    held.setdefault(name, []).append(row.low - 1e-9 <= truth <= row.high + 1e-9)
                    if row.group == "all" and row.measure == "recall":
                        width.append(row.high - row.low)
                low, high = recall_by_wald(audited)
                held.setdefault("wald", []).append(low <= truths["all"]["recall"] <= high)
            names = ["precision", "recall", "accuracy", "by age: recall"]
            shares = {name: float(np.mean(values)) for name, values in held.items()}
            least = min(least, *(shares[name] for name in names))
            cells = [f"1 in {round(1 / missed):,}", str(count), *(f"{shares[name]:.1%}" for name in names),
                     f"{np.mean(width):.2f}", f"{shares['wald']:.1%}"]  # fmt: skip
            print("| " + " | ".join(cells) + " |", flush=True)
    sys.exit(1 if least < 0.93 else 0)


def _truth(table: pd.DataFrame) -> dict[str, float]:
    said, true = table["decision"] == 1, table["label"] == 1
    return {
        "precision": true[said].mean(),
        "recall": said[true].mean(),
        "accuracy": (table["decision"] == table["label"]).mean(),
    }


if __name__ == "__main__":
    main()
