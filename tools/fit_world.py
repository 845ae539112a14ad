"""Fit the constants of the embedded world from published facts and a uniform sample of BAF.

    python tools/fit_world.py SHARED_DATA src/deccaf/simulate/world.json

SHARED_DATA holds ``baf_facts/``, the uniform 1 % sample of months 0-5 and the 5 % alerts of months 3-6.
None of its rows is stored: what is written are rates, quantiles and penalised coefficients. Every fifth
row of the sample is held back, for ``benchmarks/realism.py`` to judge on, and alerts that are in the sample
too are left out, so that no held-back row comes in by that door. The result depends on the files
and the seed only.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pandas as pd
from worldfit.bins import Link, as_numbers, build
from worldfit.chain import Design, calibrate, fit_link, set_clock, targets
from worldfit.fraud import fit_fraud, settle
from worldfit.specs import SPECS

from deccaf.simulate.baf import CATEGORIES, MONTH, MONTHS

SEED = 20240101
CALIBRATION_ROWS = 80_000
IDENTITY = ("velocity_6h", "velocity_24h", "velocity_4w", "name_email_similarity")  # no two rows share them
ABOUT = (
    "Constants of deccaf's embedded world, written by tools/fit_world.py. Sources: published facts of the "
    "Bank Account Fraud dataset (BAF Base, Jesus et al. 2022, CC BY-NC-ND 4.0), quantiles and penalised "
    "coefficients estimated from a uniform sample of its months 0-5 and from the alerts of months 3-6. "
    "No data rows."
)


def read_sample(folder: Path) -> pd.DataFrame:
    """The uniform sample without the rows its publisher damaged."""
    table = pd.read_parquet(folder / "baf_applications_uniform_1pct_months_0_to_5.parquet")
    damaged = table[["employment_status", "has_other_cards", "source"]].isna().any(axis=1)
    damaged |= (table["customer_age"] == -1) | (table["velocity_24h"] == -1)
    return table[~damaged]


def read_alerts(folder: Path, sample: pd.DataFrame) -> pd.DataFrame:
    """The alerts that are not in the sample too: some would be held-back rows, the others count twice."""
    alerts = pd.read_parquet(folder / "baf_alerts_months_3_to_6.parquet")
    known = pd.MultiIndex.from_frame(sample[list(IDENTITY)])
    return alerts[~pd.MultiIndex.from_frame(alerts[list(IDENTITY)]).isin(known)]


def main() -> None:
    """Fit, calibrate, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    rng = np.random.default_rng(SEED)
    facts = json.loads((args.data / "baf_facts/baf_facts.json").read_text())
    numeric = pd.read_csv(args.data / "baf_facts/base_numeric_describe.csv", index_col="feature")
    sample = read_sample(args.data)
    alerts = read_alerts(args.data, sample)
    sample = sample[sample.index % 5 != 0]
    applications = [m["applications"] for m in facts["per_month"]]
    real = Design.of_months(sample[MONTH].to_numpy(dtype=int))
    months = np.repeat(np.arange(MONTHS), np.array(applications) * CALIBRATION_ROWS // 1_000_000)
    made = Design.of_months(months)
    links: list[Link] = []
    for spec in SPECS:
        values = as_numbers(sample, spec.name)
        low, high = (0.0, 0.0) if spec.name in CATEGORIES else numeric.loc[spec.name, ["min", "max"]]
        link = build(spec, values, low, high)
        fit_link(link, real, link.encode(values))
        if spec.name == "velocity_4w":
            set_clock(link, alerts, numeric.loc[spec.name, "mean"], months)
        else:
            calibrate(link, made, months, targets(link, facts, numeric), rows=len(sample))
        real.add(spec.name, link.code[link.encode(values)])
        made.add(spec.name, link.code[made.draw(link, rng)])
        links.append(link)
    content = {"about": ABOUT, "applications": applications, "features": []}
    content["fraud"] = fit_fraud(links, sample, alerts)
    settle(content, links, facts, rng)
    args.out.write_text(json.dumps(content, separators=(",", ":")).replace(',{"name"', ',\n{"name"') + "\n")


if __name__ == "__main__":
    main()
