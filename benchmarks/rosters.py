"""Real rosters on the embedded world: what each constraint costs, how near its plan is to the best; streams.

    python benchmarks/rosters.py                       # everything, about ten minutes
    python benchmarks/rosters.py --quick               # small instances, about a minute
    python benchmarks/rosters.py --only constraints,stream --figures docs/images --cache world.npz

The world: generated applications, alerts at 5 %, a team of nine, models learned on months 3-5; month 6 is the
streams' forecast and month 7 (4,457 alerts) is planned. `--cache` keeps the scored months. Exit code 1 if a
bar fails.
"""

from __future__ import annotations

import argparse
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np

from assignment import Case, losses
from deccaf import Cases, Columns, Costs, Decisions
from deccaf.assign import (
    Balance,
    Forecast,
    GroupBand,
    HandlingMinutes,
    Opinions,
    RandomQuota,
    Reviewers,
    StreamAssigner,
    solve,
    solve_constrained,
)
from deccaf.data.capacity import apportion
from deccaf.data.costs import expected_loss
from deccaf.models.cases.classifier import CaseClassifier
from deccaf.models.decisions.model import DecisionModel
from deccaf.report import figures
from deccaf.simulate import (
    SyntheticTeam,
    build_alert_sets,
    generate_applications,
    paper_group,
    random_history,
    threshold_cost,
)

CASES, PEOPLE, OLD = 4_457, 9, 50
World = dict[str, np.ndarray]
failed: list[str] = []


def make_world(applications: int, cases: int) -> World:
    """Months 6 and 7 as the models see them, and the team's true chances."""
    alerts = build_alert_sets(generate_applications(applications, seed=0), (0.05,), seed=0)
    costs = Costs.binary(alerts.cost_ratio(0.05))
    columns = Columns(label="fraud_bool", time="month")
    table = Cases.from_frame(alerts.sets[0.05], columns=columns, costs=costs)
    fit, past = table.between(6, 7), table.between(stop=6)
    team = SyntheticTeam.sample([paper_group()], fit, costs, 0, classifier_cost=threshold_cost(fit, costs))
    log = Decisions.from_frame(random_history(team, past, 0), cases=past, classes=costs.classes)
    rows = past.positions(log.case)
    classifier = CaseClassifier().fit(past.features, past.label, time=past.time)
    model = DecisionModel().fit(
        past.features.iloc[rows], past.label[rows], log.expert, log.decision, time=past.time.iloc[rows]
    )
    found: World = {"costs": costs.array()}
    for month in (6, 7):
        some = table.between(month, month + 1)
        some = some.take(np.arange(min(len(some), cases))) if month == 7 else some
        p, q = classifier.predict(some.features), model.predict(some.features, team.experts)
        found |= {f"p{month}": p, f"q{month}": q, f"loss{month}": expected_loss(p, q, costs.array())}
    found |= {
        "label": some.label,
        "truth": team.decision_probabilities(some),
        "age": some.features["customer_age"].to_numpy(np.float64),
    }
    return found


def load_world(cache: Path | None, quick: bool) -> World:
    """The world, from the cache where there is one."""
    if cache is not None and cache.exists():
        with np.load(cache) as file:
            return dict(file)
    found = make_world(250_000 if quick else 1_200_000, 800 if quick else CASES)
    if cache is not None:
        np.savez(cache, **found)
    return found


def bar(name: str, held: bool) -> str:
    """Remember a bar that fails."""
    if not held:
        failed.append(name)
    return "ok" if held else "FAIL"


def limits(cases: int) -> np.ndarray:
    """A tenth of the cases for each of the people; the machine has no limit."""
    return np.append(cases, np.full(PEOPLE, cases // 10))


def constraints_of(world: World) -> dict[str, object]:
    """One constraint of each kind, tight enough to bind."""
    loss, n = world["loss7"], len(world["loss7"])
    rng = np.random.default_rng(1)
    opinions = Opinions.of(world["p7"], world["q7"], world["costs"])
    age = np.where(world["age"] >= OLD, "50 or older", "younger")
    people = range(1, PEOPLE + 1)
    minutes = np.round(rng.lognormal(1.5, 0.5, (n, 1)) * rng.lognormal(0, 0.2, (1, PEOPLE + 1)), 2)
    free = solve(loss, limits(n)).maker
    used = np.array([minutes[free == j, j].sum() for j in range(PEOPLE + 1)])
    hardest = loss.min(axis=1) >= np.quantile(loss.min(axis=1), 0.9)
    means = [loss[free == j, j].mean() for j in people]
    return {
        "minutes": HandlingMinutes(minutes, np.append(np.inf, 0.9 * used[1:])),
        "reviewers": Reviewers(1 + hardest, opinions, [(1, 2), (3, 4)], one_of=[7, 8, 9], among=people),
        "deferral": GroupBand(age, 0.01, people=people, name="deferral band"),
        "fpr": GroupBand(age, 0.005, "fpr", opinions=opinions, name="false-positive band"),
        "fnr": GroupBand(age, 0.005, "fnr", opinions=opinions, name="false-negative band"),
        "balance": Balance(0.25 * float(np.ptp(means)), makers=people),
        "quota": RandomQuota(0.05, seed=3, among=people),
    }


def run_constraints(world: World, quick: bool) -> None:
    """Each constraint alone, and three at once."""
    loss, n = world["loss7"], len(world["loss7"])
    known = constraints_of(world)
    combinations = [(name,) for name in known] + [
        ("minutes", "fpr", "balance"),
        ("minutes", "reviewers", "fpr"),
        tuple(known),
    ]
    print(f"\nconstraints, {n:,} x {PEOPLE + 1}: at most 1 % in 60 s (prices of the constraints included)")
    print(f"{'constraints':58}{'seconds':>8}{'gap':>9}{'cost/100':>10}{'price/100':>10}  ")
    free = solve(loss, limits(n)).objective
    for names in combinations:
        some = [known[name] for name in names]
        plan = solve_constrained(loss, limits(n), constraints=some, time_limit=60)
        label = ", ".join(constraint.name for constraint in some) if len(names) < 5 else f"all {len(names)}"
        held = plan.relative_gap <= 0.01 and plan.seconds <= 60.5
        verdict = bar(label, held) if len(names) <= 3 else ""  # more at once has no bar
        print(
            f"{label:58}{plan.seconds:8.1f}{plan.relative_gap:9.4%}{100 * plan.objective / n:10.4f}"
            f"{100 * (plan.objective - free) / n:10.4f}  {verdict}",
            flush=True,
        )
        if len(names) > 1:
            for paid in plan.constraints:
                parts = ", ".join(part.part for part in paid.binding[:3])
                print(
                    f"    {paid.name:54}{'':17}{'':10}{100 * paid.price / n:10.4f}  {parts}",
                    flush=True,
                )


def run_minutes(quick: bool) -> None:
    """Minutes instead of counts on a large desk."""
    case = Case(2_000, 20) if quick else Case(20_000, 50)
    loss = losses(case)
    rng = np.random.default_rng(0)
    minutes = rng.lognormal(1.5, 0.5, (case.n, 1)) * rng.lognormal(0, 0.2, (1, case.makers))
    share = rng.uniform(0.5, 1.5, case.makers)
    room = share / share.sum() * minutes.mean() * case.n * 1.05
    constraint = HandlingMinutes(minutes, room)
    plan = solve_constrained(
        loss, np.full(case.makers, np.inf), constraints=[constraint], time_limit=120, prices=False
    )
    verdict = bar("minutes, large", plan.relative_gap <= 0.02 and plan.seconds <= 120.5)
    print(f"\nminutes instead of counts, {case.n:,} x {case.makers}: at most 2 % in 120 s")
    print(f"gap {plan.relative_gap:.4%} in {plan.seconds:.1f} s  {verdict}", flush=True)


def run_quota(world: World) -> None:
    """The random quota is exact; what it costs."""
    loss, n = world["loss7"], len(world["loss7"])
    people = range(1, PEOPLE + 1)
    prices, exact = [], True
    for seed in range(10):
        plan = solve_constrained(loss, limits(n), constraints=[RandomQuota(0.05, seed, among=people)])
        prices.append(plan.constraints[0].price)
        exact &= plan.draw.drawn.sum() == round(0.05 * n) and plan.relative_gap <= 1e-9
    free = plan.constraints[0].without
    print("\nrandom quota of 5 %, ten draws: exact, and its cost")
    print(
        f"costs {100 * np.mean(prices) / n:.4f} per 100 cases, {np.mean(prices) / free:.2%} of the objective"
        f" ({min(prices) / free:.2%} to {max(prices) / free:.2%})  {bar('quota', exact)}",
        flush=True,
    )


def run_double(world: World) -> None:
    """A second opinion on the tenth of the cases with the highest expected loss, same people, same work."""
    loss, n, people = world["loss7"], len(world["loss7"]), range(1, PEOPLE + 1)
    true = true_opinions(world)
    free = solve(loss, limits(n))
    hardest = loss[np.arange(n), free.maker]
    count = 1 + (hardest >= np.sort(hardest)[-round(0.1 * n)])
    says = Opinions.of(world["p7"], world["q7"], world["costs"])
    print("\ndouble review of the 10 % with the highest expected loss: cost per 100, same limits on work")
    print(f"{'rule':24}{'units of work':>14}{'expected':>10}{'true':>10}")
    single = true.loss(np.arange(n), free.maker[:, None])
    work = int((free.maker > 0).sum())
    print(f"{'single review':24}{work:14,}{100 * free.objective / n:10.4f}{100 * single.mean():10.4f}")
    for rule in ("majority", "first positive", "cost-optimal", "where it pays"):
        chosen = rule == "where it pays"  # the plan says who gets a second opinion
        opinions = says if chosen else Opinions.of(world["p7"], world["q7"], world["costs"], rule=rule)
        constraint = Reviewers(1 if chosen else count, opinions, among=people, up_to=2 if chosen else None)
        plan = solve_constrained(loss, limits(n), constraints=[constraint], prices=False)
        paid = double_cost(plan.maker, opinions, true)
        bar(f"double review, {rule}", plan.relative_gap <= 0.01)
        work = int((plan.maker > 0).sum())
        print(f"{rule:24}{work:14,}{100 * plan.objective / n:10.4f}{100 * paid / n:10.4f}", flush=True)


def true_opinions(world: World) -> Opinions:
    """What everyone says, by the team's true chances; the machine decides on what it believes."""
    true = Opinions.of(np.eye(2)[world["label"]], world["truth"], world["costs"])
    true.q[:, 0] = Opinions.of(world["p7"], world["q7"], world["costs"]).q[:, 0]
    return true


def double_cost(maker: np.ndarray, opinions: Opinions, true: Opinions) -> float:
    """What a plan costs when votes come from the true chances and are joined by what the model believes."""
    total = 0.0
    for i, row in enumerate(maker):
        who = row[row >= 0]
        truth = int(true.p[i, 1] > 0.5)
        if len(who) == 1:
            total += float(true.loss(np.array([i]), who[:, None].astype(np.int32))[0])
            continue
        for votes in ((0, 0), (0, 1), (1, 0), (1, 1)):
            chance = true.q[i, who[0], truth, votes[0]] * true.q[i, who[1], truth, votes[1]]
            decided = int(opinions.decide([i], [who], [votes])[0])
            total += chance * true.costs[0, truth, decided]
    return total


def run_stream(world: World, quick: bool) -> None:
    """The month in random orders and with drifting difficulty, all loads equalities, as in the benchmark."""
    loss, past = world["loss7"], world["loss6"]
    n, makers = loss.shape
    exact = apportion(np.full(makers, 1 / makers), n)
    rng = np.random.default_rng(0)
    rank = np.argsort(np.argsort(loss.mean(axis=1))) / n
    orders = {
        "random": [rng.permutation(n) for _ in range(5 if quick else 25)],
        "drifting, harder": [np.argsort(rank + 0.25 * rng.random(n))],
        "drifting, easier": [np.argsort(-rank + 0.25 * rng.random(n))],
    }
    print(
        f"\nstream of {n:,} cases, forecast from the month before; regret as a share of the hindsight optimum"
    )
    print(f"{'order':20}{'limits':26}{'regret':>9}{'worst':>9}{'greedy':>9}{'us/case':>9}")
    for name, some in orders.items():
        for kind in ("equalities", "upper, arrivals guessed"):
            found = [stream(loss[order], past, exact, kind == "equalities") for order in some]
            regret, greedy, each = np.array(found).T
            held = regret.mean() <= (0.02 if name == "random" else 0.04) and np.median(each) <= 100
            print(
                f"{name:20}{kind:26}{regret.mean():9.3%}{regret.max():9.3%}{greedy.mean():9.2%}"
                f"{np.median(each):9.0f}  {bar(f'stream {name} {kind}', held)}",
                flush=True,
            )


def stream(day: np.ndarray, past: np.ndarray, exact: np.ndarray, equal: bool) -> tuple[float, float, float]:
    """Regret, greedy's regret and microseconds of processor time a case, of one order."""
    names = [f"maker {j}" for j in range(len(exact))]
    start = time.process_time()  # of all threads: another program's load does not count
    if equal:
        forecast = Forecast.of(past, len(day), exact=True)
        desk = StreamAssigner(names, exact, exact, forecast)
    else:
        desk = StreamAssigner(
            names, np.append(np.inf, exact[1:]), forecast=Forecast.of(past, 0.95 * len(day))
        )
    for row in day:
        desk.route(row)
    each = 1e6 * (time.process_time() - start) / len(day)
    assert (desk.used[1:] <= exact[1:]).all()
    found = desk.regret()
    return found.share, found.greedy_share, each


def run_fairness(world: World, folder: Path | None) -> None:
    """Cost against the false-positive gap between age groups."""
    loss, n = world["loss7"], len(world["loss7"])
    opinions = Opinions.of(world["p7"], world["q7"], world["costs"])
    age = np.where(world["age"] >= OLD, "50 or older", "younger")
    free = solve(loss, limits(n))
    at = opinions.wrong(np.arange(n), free.maker[:, None], "fpr")
    base = opinions.positives("fpr")
    rates = [at[age == g].sum() / base[age == g].sum() for g in ("younger", "50 or older")]
    widest = abs(rates[0] - rates[1])
    print(f"\nfairness: expected false-positive rates {rates[0]:.2%} (younger), {rates[1]:.2%} (50 or older)")
    print(f"{'gap allowed':>12}{'cost/100':>10}{'more':>9}{'proved gap':>12}{'true difference':>17}")
    true = true_opinions(world)
    points = []
    for within in np.linspace(widest, 0.0, 10):
        constraint = GroupBand(age, max(float(within), 1e-4), "fpr", opinions=opinions)
        plan = solve_constrained(loss, limits(n), constraints=[constraint], prices=False, gap=1e-4)
        points.append((max(float(within), 1e-4), 100 * plan.objective / n))
        more = plan.objective / free.objective - 1
        wrong = true.wrong(np.arange(n), plan.maker[:, None], "fpr")
        honest = world["label"] == 0
        apart = wrong[honest & (age != "younger")].mean() - wrong[honest & (age == "younger")].mean()
        print(
            f"{points[-1][0]:12.3%}{points[-1][1]:10.4f}{more:9.2%}{plan.relative_gap:12.4%}{apart:17.2%}",
            flush=True,
        )
    bar(
        "fairness frontier",
        len(points) == 10 and all(b[1] >= a[1] - 1e-3 for a, b in pairwise(points)),
    )
    if folder is not None:
        draw_frontier(np.array(points), folder / "fairness-frontier.png")


def draw_frontier(points: np.ndarray, path: Path) -> None:
    """The picture."""
    more = points[-1, 1] / points[0, 1] - 1
    figure, axes = figures.canvas(
        f"Treating age groups alike raises the expected cost by {more:.2%}", height=3.4
    )
    axes.plot(100 * points[:, 0], points[:, 1], color=figures.BLUE, marker="o", linewidth=2)
    axes.set_xlabel("Largest difference allowed between expected false-positive rates (points)")
    axes.set_ylabel("Expected cost per 100 cases")
    axes.margins(y=0.15)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(figures.as_png(figure))
    print(f"picture: {path}")


def main() -> int:
    """Print the tables; 0 if every bar holds."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="constraints,minutes,quota,double,stream,fairness")
    parser.add_argument("--cache", type=Path, help="keep the scored months here (.npz)")
    parser.add_argument("--figures", type=Path, help="folder for the picture of the frontier")
    options = parser.parse_args()
    world = load_world(options.cache, options.quick)
    parts = {
        "constraints": lambda: run_constraints(world, options.quick),
        "minutes": lambda: run_minutes(options.quick),
        "quota": lambda: run_quota(world),
        "double": lambda: run_double(world),
        "stream": lambda: run_stream(world, options.quick),
        "fairness": lambda: run_fairness(world, options.figures),
    }
    for name in options.only.split(","):
        parts[name]()
    print("\nall bars hold" if not failed else f"\nfailed: {', '.join(failed)}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
