"""Fit on a history, plan a day, and draw who gets what and what everybody's next case would save.

python examples/plan_a_day.py [--out plan.png] [--rows 200000]
"""

from __future__ import annotations

import argparse

from matplotlib.figure import Figure

from deccaf import Capacity, Cases, Columns, Costs, DeCCaF, Decisions, History
from deccaf.simulate import (
    SyntheticTeam,
    build_alert_sets,
    generate_applications,
    paper_group,
    random_history,
    threshold_cost,
)


def main() -> None:
    """Plan 240 alerts of month 7 for nine analysts with time for 15 each."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--out", default="plan.png")
    parser.add_argument("--rows", type=int, default=200_000)
    options = parser.parse_args()

    costs = Costs.binary(false_positive=0.057, false_negative=1.0)
    alerts = build_alert_sets(generate_applications(options.rows, seed=0), (0.05,), seed=0).sets[0.05]
    cases = Cases.from_frame(alerts, columns=Columns(label="fraud_bool", time="month"), costs=costs)
    past, today = cases.between(stop=7), cases.between(start=7)
    fit = cases.between(6, 7)
    team = SyntheticTeam.sample([paper_group()], fit, costs, 0, classifier_cost=threshold_cost(fit, costs))
    log = Decisions.from_frame(random_history(team, past, 0), cases=past)

    model = DeCCaF(costs).fit_history(History.of(past, log))
    day = today.take(range(min(240, len(today))))
    plan = model.assign(day, Capacity.of(dict.fromkeys(team.experts, 15)))
    for line in plan.summary.lines():
        print(line)
    draw(plan.summary.makers, options.out)


def draw(makers, out: str) -> None:
    """Two bars side by side: cases, and what the next case would save."""
    figure = Figure(figsize=(9, 4), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    left.barh(makers.index, makers["cases"], color="#2563a8")
    left.set(title="Cases today", xlabel="cases")
    right.barh(makers.index, makers["price"], color="#d9730d")
    right.set(title="What the next case would save", xlabel="expected cost of errors")
    left.invert_yaxis()
    figure.savefig(out, dpi=130)
    print(f"Picture: {out}")


if __name__ == "__main__":
    main()
