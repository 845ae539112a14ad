"""Draw what more capacity is worth: the expected cost of a day against the room of every expert.

python examples/worth_of_an_hour.py [--out worth.png] [--cases 2000]
"""

from __future__ import annotations

import argparse

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from deccaf import Costs, DeCCaF


def main() -> None:
    """Three experts who lean differently; the same day planned with more and more room."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--out", default="worth.png")
    parser.add_argument("--cases", type=int, default=2_000)
    options = parser.parse_args()

    X, y, expert, decision = history(options.cases)
    model = DeCCaF(Costs.binary(false_positive=0.3, false_negative=1.0))
    model.fit(X, y, expert=expert, decision=decision)
    day = X.iloc[:200]
    rooms = range(0, 81, 8)
    plans = [model.assign(day, dict.fromkeys(model.experts_, room)) for room in rooms]

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot(rooms, [plan.summary.cost for plan in plans], marker="o", label="deccaf")
    axes.plot(rooms, [plan.summary.random_cost for plan in plans], marker="o", label="random cases")
    axes.set(xlabel="Cases that each expert has time for", ylabel="Expected cost of 200 cases")
    axes.set_title("The first hours are worth most", loc="left")
    axes.legend(frameon=False)
    figure.savefig(options.out, dpi=130)
    print(f"Picture: {options.out}")


def history(n: int) -> tuple[pd.DataFrame, np.ndarray, np.ndarray, np.ndarray]:
    """Cases, truths, and one random expert's decision on each."""
    rng = np.random.default_rng(0)
    y = (rng.random(n) < 0.3).astype(int)
    X = pd.DataFrame({"amount": rng.normal(size=n) + y, "age": rng.normal(size=n)})
    who = rng.integers(3, size=n)
    lean = np.array([-0.5, 0.0, 0.8])[who] + np.array([0.2, 1.0, -0.8])[who] * X["age"].to_numpy()
    says = rng.random(n) < 1 / (1 + np.exp(-(lean + 4.0 * y - 2.0)))
    return X, y, np.array(["ann", "bob", "cyd"])[who], says.astype(int)


if __name__ == "__main__":
    main()
