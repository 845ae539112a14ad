"""Draw the price of each constraint: what a day costs when rules join everybody's limits, one at a time.

python examples/price_of_constraints.py [--out constraints.png] [--cases 2000]
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from deccaf import Costs, DeCCaF
from deccaf.report.figures import BLUE, INK, ORANGE, as_png, canvas

CONSTRAINTS: dict[str, dict[str, Any]] = {
    "minutes: 200 for each": {
        "minutes": {"minutes": "work", "capacity": dict.fromkeys(("ann", "bob", "cyd"), 200.0)}
    },
    "two people see large amounts": {"reviewers": {"count": "opinions"}},
    "a second opinion where it pays": {"reviewers": {"up_to": 2}},
    "young and old: same missed fraud": {
        "band": [{"group": "age", "cut": [0.0], "measure": "fnr", "within": 0.001}]
    },
    "nobody gets only hard cases": {"balance": {"within": 0.001}},
    "5 % of the cases at random": {"random": {"share": 0.05}},
}


def main() -> None:
    """Three experts who lean differently; the same day planned under each constraint."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--out", default="constraints.png")
    parser.add_argument("--cases", type=int, default=2_000)
    options = parser.parse_args()

    frame, expert, decision = history(options.cases)
    X = frame[["amount", "age"]]
    model = DeCCaF(Costs.binary(false_positive=0.3, false_negative=1.0))
    model.fit(X, frame["fraud"], expert=expert, decision=decision)
    day, roster = frame.iloc[:200], dict.fromkeys(model.experts_, 66)
    free = model.assign(day, roster).summary.cost
    prices = {}
    for name, constraint in CONSTRAINTS.items():
        plan = model.assign(day, roster, constraints=constraint)
        prices[name] = plan.summary.cost - free
        binds = ", ".join(part for part in plan.constraints["binds"] if part)
        print(f"{name:36} {prices[name]:+8.3f}   {binds}")
    draw(prices, free, options.out)
    print(f"Picture: {options.out}")


def draw(prices: dict[str, float], free: float, path: str) -> None:
    """One bar per constraint, in the style of deccaf's own pictures."""
    names = list(prices)[::-1]
    dearest = max(prices, key=lambda name: prices[name])
    figure, axes = canvas(f"Every constraint has its price; dearest here: {dearest}", width=8, height=3.6)
    shares = [100 * prices[name] / free for name in names]
    bars = axes.barh(names, shares, color=[ORANGE if share > 0 else BLUE for share in shares], height=0.62)
    axes.bar_label(bars, fmt="{:+.1f} %", padding=4, color=INK, fontsize=9)
    axes.axvline(0.0, color=INK, linewidth=1)
    axes.grid(visible=False, axis="y")
    axes.margins(x=0.15)
    axes.set_xlabel("Change of the day's expected cost against the plan without constraints, %")
    Path(path).write_bytes(as_png(figure))


def history(n: int) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Cases with their truth, and one random expert's decision on each."""
    rng = np.random.default_rng(0)
    fraud = (rng.random(n) < 0.3).astype(int)
    frame = pd.DataFrame({"amount": rng.normal(size=n) + fraud, "age": rng.normal(size=n), "fraud": fraud})
    frame["work"] = np.round(rng.lognormal(1.1, 0.4, n), 1)  # minutes
    frame["opinions"] = np.where(frame["amount"] > 2.0, 2, 1)
    who = rng.integers(3, size=n)
    lean = np.array([-0.5, 0.0, 0.8])[who] + np.array([0.2, 1.0, -0.8])[who] * frame["age"].to_numpy()
    says = rng.random(n) < 1 / (1 + np.exp(-(lean + 4.0 * fraud - 2.0)))
    return frame, np.array(["ann", "bob", "cyd"])[who], says.astype(int)


if __name__ == "__main__":
    main()
