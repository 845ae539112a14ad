"""Day one: what a newcomer's first decisions are worth, on cases that were chosen and on random ones.

A model of a team that never saw the newcomer; then 5, 10, 20 and 50 labelled cases decided by them, proposed
by `deccaf onboard` or drawn at random, and counted at once. *Log-loss* is of the newcomer's decisions given
the truth on other cases; *cost* is what the plan for 400 new cases really costs per 100, with the newcomer,
four colleagues and the machine. `team`: simulated teams, expected under the true chances. `viper`: each of
the real radiologists left out of the model in turn, on women of another fold, costs as they really decided.
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit

from deccaf import Cases, Columns
from deccaf.assign import solve
from deccaf.data.costs import expert_losses, machine_losses
from deccaf.errors import DeccafWarning
from deccaf.models.cases.classifier import CaseClassifier
from deccaf.models.decisions.model import DecisionModel
from deccaf.planning.onboarding import Stakes, best_others, propose

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

STEPS = (0, 5, 10, 20, 50)
COSTS = np.array([[[0.0, 0.5], [1.0, 0.0]]])
COLLEAGUES = 4
PARTS = ("rates", "pooled")
VIPER = Path(__file__).parents[2] / "shared" / "data" / "viper_mammography"


@dataclass(frozen=True, eq=False)
class Desk:
    """A plan to make, and what each decision in it really costs on average."""

    features: pd.DataFrame
    p: Array
    true: Array
    """(cases, 1 + people): what each maker really costs; the newcomer is the last."""
    names: list[str]

    def losses(self, model: DecisionModel) -> Array:
        people = expert_losses(
            self.p, model.predict(self.features, self.names), COSTS, np.zeros(len(self.names))
        )
        return np.column_stack([machine_losses(self.p, COSTS).min(axis=1), people])

    def plan(self, model: DecisionModel) -> tuple[float, Array, Array]:
        """Real cost per 100, losses, and prices."""
        loss, cases = self.losses(model), len(self.p)
        upper = np.array([cases] + [cases // (len(self.names) + 1)] * len(self.names))
        found = solve(loss, upper, np.zeros(len(upper), np.int64))
        return 100 * float(self.true[np.arange(cases), found.maker].mean()), loss, np.asarray(found.prices)

    def stakes(self, model: DecisionModel) -> Stakes:
        _, loss, prices = self.plan(model)
        return Stakes(self.features, self.p, COSTS, best_others(loss, prices.tolist(), loss.shape[1] - 1))


@dataclass(frozen=True, eq=False)
class Newcomer:
    """Somebody whose answers are known, or can be drawn."""

    name: str
    features: pd.DataFrame
    """Of the candidates."""
    truth: Ints
    said: Ints

    def curve(
        self, model: DecisionModel, desk: Desk, score: object, chosen: bool, rng: np.random.Generator
    ) -> list[tuple[int, float, float]]:
        """(decisions, log-loss, cost) after every step."""
        out, done = [], np.zeros(0, np.int64)
        left = np.arange(len(self.truth))
        for step in STEPS:
            count = step - len(done)
            if count:
                if chosen:
                    found = propose(
                        model,
                        self.name,
                        self.features.iloc[left],
                        self.truth[left],
                        desk.stakes(model),
                        count,
                    )
                    rows = left[found.rows]
                else:
                    rows = rng.permutation(left)[:count]
                model = model.observe(
                    self.features.iloc[rows], self.truth[rows], [self.name] * count, self.said[rows]
                )
                done, left = np.append(done, rows), np.setdiff1d(left, rows)
            out.append((step, score(model), desk.plan(model)[0]))  # type: ignore[operator]
        return out


def simulated(world: int, people: int, newcomers: int = 12) -> list[dict[str, object]]:
    """Newcomers to one simulated team."""
    rng = np.random.default_rng([world, 7])
    cases, pool, plan = 3000, 500, 400
    x = rng.normal(size=(cases + pool + plan, 6))
    chance = expit(-1.0 + x @ np.array([0.9, -0.7, 0.5, 0.3, 0.0, 0.0]))
    truth = (rng.random(len(x)) < chance).astype(np.int64)
    count = people + newcomers
    lean, skill = rng.normal(0.0, 0.8, count), rng.uniform(0.2, 2.2, count)
    slopes = rng.normal(0.0, 0.5, (count, 6)) * (rng.random((count, 6)) < 0.5) + [
        0.5,
        -0.4,
        0.2,
        0.2,
        0.0,
        0.0,
    ]
    says = expit((x @ slopes.T)[:, :, None] + lean[:, None] + skill[:, None] * np.array([-1.0, 1.0]))
    q = np.stack([1.0 - says, says], axis=-1)
    features = pd.DataFrame(x, columns=[f"x{k}" for k in range(6)])
    p = np.column_stack([1.0 - chance, chance])
    names = [f"p{j:02d}" for j in range(count)]
    past, new, last = slice(0, cases), slice(cases, cases + pool), slice(cases + pool, None)
    who = rng.integers(0, people, cases)
    said = (rng.random(cases) < q[np.arange(cases), who, truth[past], 1]).astype(np.int64)
    model = DecisionModel(parts=PARTS).fit(features[past], truth[past], [names[j] for j in who], said)
    shown = features[last].reset_index(drop=True)
    machine = machine_losses(p[last], COSTS).min(axis=1)
    rows: list[dict[str, object]] = []
    for j in range(people, count):
        team = [*rng.permutation(people)[:COLLEAGUES], j]
        true = np.column_stack(
            [machine, expert_losses(p[last], q[last][:, team], COSTS, np.zeros(len(team)))]
        )
        desk = Desk(shown, p[last], true, [names[k] for k in team])
        answers = (rng.random(pool) < q[new][np.arange(pool), j, truth[new], 1]).astype(np.int64)
        who_new = Newcomer(names[j], features[new].reset_index(drop=True), truth[new], answers)
        own = q[last][np.arange(plan), j, truth[last]]

        def score(one: DecisionModel, own: Array = own, name: str = names[j]) -> float:
            found = one.predict_rows(shown, truth[last], [name] * plan)
            return float(-(own * np.log(found)).sum(axis=1).mean())

        for way in ("random", "chosen"):
            curve = who_new.curve(model, desk, score, way == "chosen", np.random.default_rng([world, j]))
            rows += [
                {"way": way, "decisions": n, "log-loss": loss, "cost": cost, "who": (world, j)}
                for n, loss, cost in curve
            ]
    return rows


def viper(folder: Path, folds: int, newcomers: int) -> list[dict[str, object]]:
    """Each radiologist left out of the model; half of the women to learn from, half to plan."""
    cases = Cases.read(folder / "cases.parquet", columns=Columns(group=("group",)), require=("label",))
    log = pd.read_parquet(folder / "decisions.parquet")
    at, women = cases.positions(log["case_id"]), pd.factorize(cases.groups["group"])[0]
    half = np.random.default_rng(0).permutation(women.max() + 1)[women] % 2
    who, said = log["expert_id"].to_numpy(str), log["decision"].to_numpy(np.int64)
    truth = cases.label
    table = pd.DataFrame({"case": at, "who": who, "said": said}).pivot_table("said", "case", "who", "first")
    table = table.reindex(np.arange(len(cases)))
    rows: list[dict[str, object]] = []
    for fold in range(folds):
        train, test = np.flatnonzero(half != fold), np.flatnonzero(half == fold)
        classifier = CaseClassifier(parts=("logistic",)).fit(
            cases.features.iloc[train], truth[train], group=cases.groups["group"].iloc[train]
        )
        for name in table.columns[:newcomers]:
            rng = np.random.default_rng([fold, len(rows)])
            mine = np.isin(at, train) & (who != name)
            model = DecisionModel(parts=PARTS).fit(
                cases.features.iloc[at[mine]],
                truth[at[mine]],
                who[mine],
                said[mine],
                group=cases.groups["group"].iloc[at[mine]],
            )
            there = table.iloc[test].notna()
            common = there[there[name]].drop(columns=name).sum().sort_values(ascending=False, kind="stable")
            mates = [str(one) for one in common.index[:COLLEAGUES]]
            both = test[there[[*mates, name]].all(axis=1).to_numpy()]
            if len(both) < 50:
                continue
            makers = [*mates, name]
            answers = table[makers].iloc[both].to_numpy(int)
            p = classifier.predict(cases.features.iloc[both])
            machine = machine_losses(p, COSTS).argmin(axis=1)
            true = COSTS[0][truth[both][:, None], np.column_stack([machine, answers])]
            shown = cases.features.iloc[both].reset_index(drop=True)
            desk = Desk(shown, p, true, makers)
            pool = [r for r in train if not np.isnan(table[name].iloc[r])]
            person = Newcomer(
                str(name),
                cases.features.iloc[pool].reset_index(drop=True),
                truth[pool],
                table[name].iloc[pool].to_numpy(np.int64),
            )

            def score(
                one: DecisionModel, name: str = str(name), both: Ints = both, shown: pd.DataFrame = shown
            ) -> float:
                found = one.predict_rows(shown, truth[both], [name] * len(both))
                told = table[name].iloc[both].to_numpy(np.int64)
                return float(-np.log(found[np.arange(len(told)), told]).mean())

            for way in ("random", "chosen"):
                curve = person.curve(model, desk, score, way == "chosen", rng)
                rows += [
                    {"way": way, "decisions": n, "log-loss": loss, "cost": cost, "who": (fold, name)}
                    for n, loss, cost in curve
                ]
    return rows


def main(arguments: list[str]) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--worlds", type=int, default=6)
    parser.add_argument("--folds", type=int, default=1, help="halves of the women to test on")
    parser.add_argument("--radiologists", type=int, default=29, help="how many are newcomers in turn")
    parser.add_argument("--people", type=int, default=16)
    parser.add_argument("--data", type=Path, default=VIPER)
    parser.add_argument("--only", choices=("team", "viper"))
    options = parser.parse_args(arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeccafWarning)
        found = {}
        if options.only != "viper":
            found["simulated teams"] = [
                row for k in range(options.worlds) for row in simulated(k, options.people)
            ]
        if options.only != "team" and options.data.exists():
            found["VIPER"] = viper(options.data, options.folds, options.radiologists)
    for name, rows in found.items():
        table = pd.DataFrame(rows)
        wide = table.pivot_table(["log-loss", "cost"], "decisions", "way", "mean").swaplevel(axis=1)
        print(f"{name}, {table['who'].nunique()} newcomers")
        print(wide.sort_index(axis=1, ascending=False).round(4).to_string(), flush=True)
