"""Whether estimates from a log tell the truth at the edges: worlds whose truth is known, before and after.

    python benchmarks/edges_off_policy.py [--repetitions 200] [--cases 3000] [--world NAME ...]
    python benchmarks/edges_off_policy.py --rules [--repetitions 100]      what the rules were chosen on
    python benchmarks/edges_off_policy.py --crowd [--before SRC]         a crowd's backtest in seconds

Nine people decide one case each; a plan gives half of the cases to people. Each world breaks one thing:

    lot           everybody gets every case alike, propensities recorded
    skilled       better people get harder cases, by a rule that the features show; nothing recorded
    turnover      people come and go, and the last third of the log is tested; nothing recorded
    blanks        a fifth of the cases by lot and recorded, the rest by a sharp rule and not
    opinions      a third of the cases has a second opinion; P(got the case) recorded, one decision drawn
    rare          2 % positives and few errors
    overlap       a sharp rule, recorded: some pairs of case and person hardly ever meet
    hidden        an unseen reason makes cases harder and keeps them from the better people; a fifth by lot
    few           the first world with 400 cases

For each: bias and root mean square error of the estimated cost (doubly robust; inverse propensity in
brackets), how often 95 % intervals of cost and saving hold the truth, and what the verdict on the saving is.
Before is version 0.1.0: its figures are measured by `--before SRC`, where SRC is its `src` folder, else taken
from `BEFORE`. The seeds of `--rules` are others than those of the table. Exit code 1 if an interval holds the
truth in less than 93 of 100, or more than 97, by more than chance.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import expit, softmax

from deccaf.assign import solve
from deccaf.evaluate.off_policy import logged, mean_with_interval
from deccaf.evaluate.propensity import estimate_propensities

WORLDS = ("lot", "skilled", "turnover", "blanks", "opinions", "rare", "overlap", "hidden", "few")
PEOPLE = 9
_NAMES = (
    "true",
    "bias",
    "rmse",
    "inverse bias",
    "inverse rmse",
    "cost covered",
    "saving covered",
    "saving",
    "gain",
    "no gain",
    "cannot tell",
    "effective",
)
BEFORE: dict[str, dict[str, float]] = {
    world: dict(zip(_NAMES, figures, strict=True))
    for world, figures in {
        "lot": (9.99, 0.04, 0.86, 0.07, 1.02, 96.0, 94.5, 5.07, 99.5, 0.5, 0.0, 156.53),
        "skilled": (9.88, 0.02, 0.77, 0.08, 0.85, 97.5, 95.5, 5.1, 99.5, 0.5, 0.0, 151.29),
        "turnover": (10.23, -0.57, 1.45, 3.28, 3.64, 95.0, 93.0, 4.86, 90.0, 10.0, 0.0, 177.59),
        "blanks": (9.8, -2.83, 25.33, 1.05, 9.88, 99.0, 96.5, 5.27, 87.0, 13.0, 0.0, 50.21),
        "opinions": (10.02, 0.15, 0.71, -0.53, 1.0, 98.0, 96.5, 5.04, 100.0, 0.0, 0.0, 145.3),
        "rare": (1.26, -0.0, 0.25, 0.0, 0.25, 98.5, 92.5, 1.89, 98.0, 2.0, 0.0, 93.54),
        "overlap": (9.79, -0.11, 1.82, -0.11, 1.62, 96.0, 97.5, 5.3, 88.5, 11.5, 0.0, 75.69),
        "hidden": (10.26, -0.67, 1.12, -0.46, 1.12, 89.5, 88.5, 4.75, 100.0, 0.0, 0.0, 171.81),
        "few": (10.05, 0.11, 2.26, 0.17, 2.59, 99.0, 94.0, 5.03, 42.5, 57.5, 0.0, 20.8),
    }.items()
}
"""Version 0.1.0 on the same worlds, 200 repetitions of 3,000 cases (measured by `--before`)."""

_TEAM = np.random.default_rng(99)
SKILL, TASTE = _TEAM.normal(0, 0.5, PEOPLE), _TEAM.normal(0, 0.8, (PEOPLE, 3))
NOISE = _TEAM.normal(0, 0.2, PEOPLE)
START = np.array([0, 0, 0, 0, 0.3, 0.5, 0.6, 0.7, 0.8])
END = np.array([0.3, 0.4, 0.6, 1, 1, 1, 1, 0.9, 1])
PULL = 0.7
"""How strongly the unseen reason of `hidden` keeps hard cases from those who are good at such cases."""


@dataclass(frozen=True, eq=False)
class Sim:
    """A log, what a model that is not quite right believes, and the truth."""

    features: pd.DataFrame
    truth: np.ndarray
    error: np.ndarray
    """(cases, people): true chance of error, given the truth."""
    believed: np.ndarray
    """(cases, people): the model's."""
    cost: np.ndarray
    """What an error costs."""
    machine: np.ndarray
    """What the machine decides."""
    loss: np.ndarray
    """(cases, makers): what the plan minimises."""
    who: np.ndarray
    wrong: np.ndarray
    recorded: np.ndarray
    """Propensities as recorded, NaN where not."""
    drawn: np.ndarray
    """Out of how many decisions on the case this one was drawn."""
    time: np.ndarray | None
    test: np.ndarray
    """Positions of the cases that are tested on; all have a logged decision."""
    strength: float
    """Of an unseen reason."""


def simulate(world: str, cases: int, seed: int) -> Sim:
    """One draw of a world."""
    rng = np.random.default_rng([seed, WORLDS.index(world)])
    n = {"few": 400, "turnover": 3 * cases}.get(world, cases)
    x, unseen = rng.normal(size=(n, 3)), rng.integers(2, size=n) * 2.0 - 1
    level, base = (-4.0, 2.0) if world == "rare" else (-0.8, 1.0)
    truth = (rng.random(n) < expit(level + x[:, 0] + 0.6 * x[:, 1])).astype(np.int64)
    harder = 0.8 * unseen[:, None] if world == "hidden" else 0.0
    error = expit(-base - SKILL - x @ TASTE.T + 0.3 * truth[:, None] + harder)
    believed = expit(0.8 * (-base - 0.8 * SKILL - 0.7 * x @ TASTE.T) + NOISE)
    chance, time = _chances(world, x, unseen, n)
    who = _picked(chance, rng)
    recorded = chance[np.arange(n), who]
    drawn = np.ones(n)
    if world in ("skilled", "turnover"):
        recorded = np.full(n, np.nan)
    if world in ("blanks", "hidden"):
        lot = rng.random(n) < 0.2
        who = np.where(lot, rng.integers(PEOPLE, size=n), who)
        recorded = np.where(lot, 1 / PEOPLE, np.nan)
    if world == "opinions":
        second = rng.random(n) < np.where(x[:, 0] > 0, 0.6, 0.1)
        drawn = 1.0 + second
        recorded = np.where(second, 2 / PEOPLE, 1 / PEOPLE)  # the chance to get the case at all
    wrong = rng.random(n) < error[np.arange(n), who]
    p = expit(level + 0.9 * x[:, 0] + 0.4 * x[:, 1])
    cost = np.where(truth == 1, 1.0, 0.3)
    loss = np.column_stack([np.minimum(p, 0.3 * (1 - p)), believed * (p + 0.3 * (1 - p))[:, None]])
    features = pd.DataFrame(x, columns=["a", "b", "c"])
    machine = (p > 0.3 * (1 - p)).astype(np.int64)
    test = np.arange(n - cases, n) if world == "turnover" else np.arange(n)
    strength = 1.0
    if world == "hidden":  # how far the chances are from what they are on average over the reason
        mean = (_chances(world, x, 0 * unseen + 1, n)[0] + _chances(world, x, 0 * unseen - 1, n)[0]) / 2
        strength = float(np.maximum(chance / mean, mean / chance).max())
    return Sim(
        features,
        truth,
        error,
        believed,
        cost,
        machine,
        loss,
        who,
        wrong,
        recorded,
        drawn,
        time,
        test,
        strength,
    )


def _chances(world: str, x: np.ndarray, unseen: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray | None]:
    """(cases, people): with what chance the desk gave each case to each person."""
    score = np.zeros((n, PEOPLE))
    sharp = {"skilled": 0.7, "overlap": 2.0, "blanks": 2.0}.get(world, 0.0)
    score += sharp * (np.outer(x[:, 2], SKILL / SKILL.std()) + 0.5 * x @ TASTE.T / 0.8)
    if world == "hidden":
        good = np.clip((SKILL + x @ TASTE.T) / 1.5, -1.5, 1.5)
        score -= PULL * unseen[:, None] * good
    if world == "turnover":
        at = np.arange(n) / n
        score = np.where((at[:, None] >= START) & (at[:, None] < END), score, -np.inf)
    return softmax(score, axis=1), np.arange(n) if world == "turnover" else None


def _picked(chance: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.minimum((chance.cumsum(axis=1) < rng.random((len(chance), 1))).sum(axis=1), PEOPLE - 1)


def tested(sim: Sim, chance: np.ndarray) -> tuple[Sim, np.ndarray]:
    """The test part, and its propensities."""
    t = sim.test
    columns = {name: getattr(sim, name)[t] for name in (
        "truth", "error", "believed", "cost", "machine", "loss", "who", "wrong", "recorded", "drawn"
    )}  # fmt: skip
    return replace(sim, features=sim.features.iloc[t], **columns), chance[t]


def plan(sim: Sim, present: np.ndarray | None) -> np.ndarray:
    """The maker of every case (0: the machine); everybody may get half of the cases that they had."""
    n = len(sim.truth)
    upper = np.append(n, np.bincount(sim.who, minlength=PEOPLE) // 2)
    eligible = None if present is None else np.column_stack([np.ones(n, bool), present])
    return np.asarray(solve(sim.loss, upper, eligible=eligible).maker)


@dataclass(frozen=True)
class Found:
    """One repetition: the plan's true cost and saving against the machine, and what was said of them."""

    true: float
    true_saving: float
    estimate: float
    low: float
    high: float
    inverse: float
    saving_low: float
    saving_high: float
    verdict: str
    effective: float
    worst_low: float = np.nan
    by_lot: float = np.nan


def before(sim: Sim) -> Found:
    """As version 0.1.0 did it: blanks make a column useless, P(got the case) stays, weights have no bound."""
    chance = sim.recorded
    if np.isnan(chance).any():
        chance = estimate_propensities(sim.features, sim.who, PEOPLE, 0).of(sim.who)
    sim, chance = tested(sim, chance)
    here, maker = np.arange(len(sim.truth)), plan(sim, None)
    people, target = maker > 0, np.maximum(maker - 1, 0)
    predicted = sim.believed * sim.cost[:, None]
    own = np.where(people, 0.0, (sim.machine != sim.truth) * sim.cost)
    both = logged(
        people & (target == sim.who),
        chance,
        sim.wrong * sim.cost,
        own,
        predicted[here, sim.who],
        np.where(people, predicted[here, target], 0.0),
    )
    terms, machine = both.doubly_robust(), (sim.machine != sim.truth) * sim.cost
    cost, saved = mean_with_interval(terms, event=both.event()), mean_with_interval(machine - terms)
    true = float((own + people * sim.error[here, target] * sim.cost).mean())
    inverse = float(both.inverse_propensity().mean())
    verdict = "gain" if saved.low > 0 else "no gain"
    return Found(
        true, float(machine.mean()) - true, cost.value, cost.low, cost.high, inverse, saved.low, saved.high,
        verdict, both.effective_cases(),
    )  # fmt: skip


def after(sim: Sim) -> Found:
    """As it is done now, by the functions of the backtest."""
    from deccaf.backtest.outcomes import Log, Trace, by_inverse_propensity, estimated
    from deccaf.backtest.verdict import compare
    from deccaf.evaluate.hidden_reasons import upper_costs

    chance, present = sim.recorded / sim.drawn, None
    blank = np.isnan(chance)
    if blank.any():
        time = None if sim.time is None else sim.time[blank]
        found = estimate_propensities(sim.features[blank], sim.who[blank], PEOPLE, 0, time=time)
        chance[blank] = found.of(sim.who[blank])
        present = None if found.present is None or not blank.all() else found.present[sim.test]
    sim, chance = tested(sim, chance)
    n, here, blank = len(sim.truth), np.arange(len(sim.truth)), blank[sim.test]
    maker = plan(sim, present)
    people, target = maker > 0, np.maximum(maker - 1, 0)
    cost_of = np.zeros((n, 2))
    cost_of[here, 1 - sim.truth] = sim.cost
    said = np.empty((n, PEOPLE, 2))
    said[here, :, sim.truth], said[here, :, 1 - sim.truth] = 1 - sim.believed, sim.believed
    decision = np.where(sim.wrong, 1 - sim.truth, sim.truth)
    log = Log(sim.who, decision, chance, ~blank, said[here, sim.who], said.mean(axis=1))
    trace = Trace(
        maker, sim.machine, people.astype(float), (people & (target == sim.who)).astype(float),
        people[:, None] * said[here, target], np.zeros(n),
    )  # fmt: skip
    out = estimated(trace, log, cost_of)
    machine = cost_of[here, sim.machine]
    terms = out.cost(cost_of)
    cost = mean_with_interval(terms, event=out.event, bias=out.bias)
    saved = mean_with_interval(machine - terms, event_below=out.event, bias=out.bias)
    inverse = by_inverse_propensity(trace, log, out).cost(cost_of).mean()
    assert out.logged is not None
    effective = out.logged.effective_cases()
    saving = pd.Series([saved.value, saved.low, saved.high, saved.error], ["saved", "low", "high", "error"])
    verdict = compare("machine", saving, machine.mean(), n, worth=0.02, effective=effective)
    true = float((np.where(people, sim.error[here, target], sim.machine != sim.truth) * sim.cost).mean())
    worst = machine - out.bound(cost_of, upper_costs(cost_of, log.team, sim.strength))
    worst_low = mean_with_interval(worst, event_below=sim.strength * out.event).low
    by_lot = np.nan
    if blank.any() and not blank.all():
        by_lot = float(estimated(trace, log, cost_of, ~blank).cost(cost_of).mean())
    return Found(
        true, float(machine.mean()) - true, cost.value, cost.low, cost.high, float(inverse), saved.low,
        saved.high, verdict.kind, effective, worst_low, by_lot,
    )  # fmt: skip


def summary(runs: list[Found]) -> dict[str, float]:
    """The figures of one world, per 100 cases and per cent."""
    true, saving = (float(np.mean([getattr(run, name) for run in runs])) for name in ("true", "true_saving"))
    value, inverse = (np.array([getattr(run, name) for run in runs]) for name in ("estimate", "inverse"))
    kinds = [run.verdict for run in runs]
    return {
        "true": 100 * true,
        "bias": 100 * (float(value.mean()) - true),
        "rmse": 100 * float(np.sqrt(((value - true) ** 2).mean())),
        "inverse bias": 100 * (float(inverse.mean()) - true),
        "inverse rmse": 100 * float(np.sqrt(((inverse - true) ** 2).mean())),
        "cost covered": 100 * float(np.mean([run.low <= true <= run.high for run in runs])),
        "saving covered": 100 * float(np.mean([run.saving_low <= saving <= run.saving_high for run in runs])),
        "saving": 100 * saving,
        **{kind: 100 * kinds.count(kind) / len(kinds) for kind in ("gain", "no gain", "cannot tell")},
        "effective": float(np.mean([run.effective for run in runs])),
        "worst holds": 100 * float(np.mean([run.worst_low <= saving for run in runs])),
        "lot bias": 100 * (float(np.nanmean([run.by_lot for run in runs])) - true)
        if any(np.isfinite(run.by_lot) for run in runs)
        else float("nan"),
    }


def measured(worlds: list[str], repetitions: int, cases: int, old: bool, first: int = 0) -> dict[str, dict]:
    """Figures by world."""
    once = before if old else after
    seeds = range(first, first + repetitions)
    return {world: summary([once(simulate(world, cases, seed)) for seed in seeds]) for world in worlds}


def row(world: str, when: str, found: dict[str, float]) -> str:
    """One line of the table."""
    hits = f"{found['cost covered']:6.1f} {found['saving covered']:6.1f}"
    verdict = "/".join(f"{found[kind]:.0f}" for kind in ("gain", "no gain", "cannot tell"))
    return (
        f"{world:9s} {when:7s}{found['true']:7.2f} {found['bias']:+6.2f} ({found['inverse bias']:+6.2f}) "
        f"{found['rmse']:6.2f} ({found['inverse rmse']:6.2f}) {hits}   {found['saving']:5.2f}  {verdict:>9s}"
        f"  {found['effective']:5.0f}"
    )


def table(repetitions: int, cases: int, worlds: list[str], source: str | None) -> int:
    """Print before and after; 0 if the intervals hold."""
    past = BEFORE if source is None else _old(source, repetitions, cases, worlds)
    print(
        "world     when      true   bias (inverse)   rmse (inverse)  cost%  sav.%  saving  g/n/c  eff. cases"
    )
    noise = 2 * 100 * np.sqrt(0.97 * 0.03 / repetitions)
    held = True
    for world in worlds:
        found = measured([world], repetitions, cases, old=False)[world]
        if world in past:
            print(row(world, "before", past[world]))
        print(row(world, "after", found), flush=True)
        if world == "hidden":
            print(
                f"          by lot alone: bias {found['lot bias']:+.2f}; the bound at the true strength "
                f"holds the true saving in {found['worst holds']:.0f} %"
            )
            continue  # nothing in the data shows it: that the plain interval is off is the point
        for name in ("cost covered", "saving covered"):
            held &= 93 - noise <= found[name] <= 97 + noise
    return 0 if held else 1


def _old(source: str, repetitions: int, cases: int, worlds: list[str]) -> dict[str, dict[str, float]]:
    command = [
        sys.executable,
        __file__,
        "--old",
        "--repetitions",
        repetitions,
        "--cases",
        cases,
        "--world",
        *worlds,
    ]
    env = {**os.environ, "PYTHONPATH": source}
    done = subprocess.run([*map(str, command)], env=env, check=True, capture_output=True, text=True)
    found: dict[str, dict[str, float]] = json.loads(done.stdout)
    return found


def rules(repetitions: int, cases: int) -> int:
    """What the rules were chosen on: other seeds than the table's, from 10,000 on."""
    print("intervals by effective cases (worlds lot, skilled, rare, overlap; cases 150 to 3,000)")
    runs = []
    for world in ("lot", "skilled", "rare", "overlap"):
        for size in (150, 300, 600, 1200, cases):
            here = [after(simulate(world, size, seed)) for seed in range(10_000, 10_000 + repetitions)]
            saving, true = np.mean([r.true_saving for r in here]), np.mean([r.true for r in here])
            runs += [
                (r.effective, r.low <= true <= r.high, r.saving_low <= saving <= r.saving_high) for r in here
            ]
    frame = pd.DataFrame(runs, columns=["effective", "cost", "saving"])
    cut = pd.cut(frame["effective"], [0, 10, 20, 30, 50, 100, 200, np.inf], right=False)
    shown = frame.groupby(cut, observed=True).agg(
        runs=("cost", "size"), cost=("cost", "mean"), saving=("saving", "mean")
    )
    print(shown.round(3).to_string())
    return 0


def crowd_files(folder: Path, people: int, cases: int, per_case: int) -> list[str]:
    """A crowd's files: everybody decides few cases, several people decide each."""
    rng = np.random.default_rng(0)
    x, kind = rng.normal(size=(cases, 6)), rng.integers(5, size=cases)
    logit = x[:, 0] + 0.7 * x[:, 1] - 0.5 * x[:, 2] * x[:, 3] + 0.3 * (kind - 2)
    truth = (rng.random(cases) < expit(logit)).astype(int)
    skill, lean = rng.normal(1.2, 0.6, people), rng.normal(0, 0.5, people)
    slope, busy = rng.normal(0, 0.4, (people, 6)), rng.gamma(1.0, size=people) + 0.1
    row = np.repeat(np.arange(cases), per_case)
    who = np.argsort(-np.log(rng.random((cases, people))) / busy, axis=1)[:, :per_case].ravel()
    toward = (
        np.where(truth[row] == 1, skill[who], -skill[who]) + lean[who] + (x[row] * slope[who]).sum(axis=1)
    )
    table = pd.DataFrame(x, columns=[f"x{k}" for k in range(6)]).assign(kind=np.array(list("abcde"))[kind])
    table = table.assign(case_id=[f"c{k}" for k in range(cases)], label=truth, patient=np.arange(cases) // 2)
    table["patient"] = "p" + table["patient"].astype(str)
    table.to_parquet(folder / "cases.parquet")
    pd.DataFrame(
        {
            "case_id": table["case_id"].to_numpy()[row],
            "expert_id": [f"e{w:03d}" for w in who],
            "decision": (rng.random(len(row)) < expit(toward)).astype(int),
        }
    ).to_parquet(folder / "log.parquet")
    (folder / "c.toml").write_text(
        '[columns]\ngroup = ["patient"]\n[costs]\nfalse_positive = 0.5\nfalse_negative = 1.0\n'
    )
    files = {"cases": "cases.parquet", "decisions": "log.parquet", "config": "c.toml"}
    return [str(part) for name, file in files.items() for part in (f"--{name}", folder / file)]


def crowd(source: str | None, people: int, cases: int, per_case: int) -> int:
    """Processor seconds of `deccaf backtest` on a crowd's log, and its costs."""
    print(f"{people} people, {cases * per_case:,} decisions on {cases:,} cases, split by group")
    with tempfile.TemporaryDirectory() as name:
        files = crowd_files(Path(name), people, cases, per_case)
        for when, path in (("before", source), ("after", os.environ.get("PYTHONPATH", ""))):
            if path is None:
                continue
            used = resource.getrusage(resource.RUSAGE_CHILDREN)
            env = {**os.environ, "PYTHONPATH": path}
            code = "from deccaf.cli import main; main()"
            done = subprocess.run(
                [sys.executable, "-c", code, "backtest", *files, "--json"],
                env=env,
                check=True,
                capture_output=True,
                text=True,
            )
            now = resource.getrusage(resource.RUSAGE_CHILDREN)
            seconds = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
            costs = {
                r["policy"]: r.get("cost", r.get("cost per 100")) for r in json.loads(done.stdout)["costs"]
            }
            words = ", ".join(f"{policy} {cost:.3f}" for policy, cost in sorted(costs.items()))
            print(f"{when}: {seconds:.0f} s of the processors; {words}", flush=True)
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Run what was asked for; 0 if it holds."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=200)
    parser.add_argument("--cases", type=int, default=3000)
    parser.add_argument("--world", nargs="+", choices=WORLDS, default=list(WORLDS))
    parser.add_argument("--before", metavar="SRC")
    parser.add_argument("--rules", action="store_true")
    parser.add_argument("--crowd", action="store_true")
    parser.add_argument("--people", type=int, default=170)
    parser.add_argument("--old", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.old:
        print(json.dumps(measured(options.world, options.repetitions, options.cases, old=True)))
        return 0
    if options.rules:
        return rules(min(options.repetitions, 100), options.cases)
    if options.crowd:
        return crowd(options.before, options.people, options.cases, 5)
    return table(options.repetitions, options.cases, options.world, options.before)


if __name__ == "__main__":
    sys.exit(main())
