"""People and several machines: what plans with and without advice cost, beside what one would do otherwise.

    python benchmarks/machines.py    # simulated: two analysts, a classifier, a language model
    python benchmarks/machines.py --viper ../shared/data/viper_mammography

Costs per 100 cases, errors, reviews and answers together, of decisions that were really made (drawn once by
the simulated makers, or by VIPER's readers). Models learn from other cases than those that are planned.

- *best machine*: the maker that is no person and costs least on the test cases themselves, for all of them.
- *threshold cascade*: the classifier decides where it is sure; else a machine is asked, and where the two
  differ a person with room. Threshold and machine are the best on the test cases themselves.
- *people only*: everybody's mean, as if they had room for all cases.
- *plan*: deccaf's, machines among the makers. *plan with advice*: answers bought first where they are worth
  it, then planned with the answers. *independent*: the same, with errors taken as independent.
"""

from __future__ import annotations

import argparse
import copy
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from deccaf import Capacity, Cases, Costs, DeCCaF
from deccaf.data.costs import MACHINE
from deccaf.simulate.history import random_history
from deccaf.simulate.teams.config import Group
from deccaf.simulate.teams.team import SyntheticTeam

COSTS = Costs.binary(false_positive=1.0, false_negative=5.0)
PARTS = {"case_parts": ("logistic",), "decision_parts": ("rates", "pooled")}


@dataclass(frozen=True, eq=False)
class World:
    """What is learned from, and test cases with what everybody says on them (-1: nobody knows)."""

    train: pd.DataFrame
    label: np.ndarray
    log: pd.DataFrame
    test: pd.DataFrame
    truth: np.ndarray
    said: pd.DataFrame
    people: tuple[str, ...]
    prices: dict[str, float]
    review: float
    room: int
    """Cases that each person has time for."""

    @property
    def machines(self) -> list[str]:
        return [name for name in self.said if name not in self.people]


def simulated(cases: int, seed: int, together: float) -> World:
    """Two analysts, a cheap classifier and a language model, which share what makes a case hard."""
    rng = np.random.default_rng(seed)
    n = 2 * cases
    truth = (rng.random(n) < 0.25).astype(int)
    frame = pd.DataFrame(rng.normal(size=(n, 4)), columns=list("abcd"))
    frame["a"] += 0.9 * truth
    frame["b"] -= 0.6 * truth
    frame["model_score"] = 1 / (
        1 + np.exp(-(1.2 * frame["a"] - 0.7 * frame["b"] - 1.5 + 0.7 * rng.normal(size=n)))
    )
    frame["label"], frame["case_id"] = truth, [f"c{i}" for i in range(n)]
    table = Cases.from_frame(frame, costs=COSTS)
    machine = {"kind": "machine", "experts": 1, "shared": together**0.5}
    groups = [
        Group.model_validate({"name": "analyst", "experts": 2, "fpr": {"mean": 0.10}, "fnr": {"mean": 0.12}}),
        Group.model_validate({"name": "classifier", **machine, "fpr": {"mean": 0.25}, "fnr": {"mean": 0.25},
                              "score_weight": {"mean": -4.0}}),
        Group.model_validate({"name": "llm", **machine, "fpr": {"mean": 0.16}, "fnr": {"mean": 0.18}}),
    ]  # fmt: skip
    team = SyntheticTeam.sample(groups, table, COSTS, seed)
    early, late = table.take(np.arange(n) < cases), table.take(np.arange(n) >= cases)
    X = frame.set_index("case_id").drop(columns="label")
    return World(
        X.iloc[:cases],
        truth[:cases],
        random_history(team, early, seed),
        X.iloc[cases:],
        truth[cases:],
        team.decide(late, seed + 1),
        ("analyst_1", "analyst_2"),
        {"classifier": 0.002, "llm": 0.03},
        0.15,
        cases // 8,
    )


def viper(folder: Path, seed: int) -> World:
    """Radiologists, and two scores of a panel as machines that recall above a threshold; split by woman."""
    cases = pd.read_parquet(folder / "cases.parquet").set_index("case_id")
    log = pd.read_parquet(folder / "decisions.parquet")
    women = cases["group"].unique()
    late = cases["group"].isin(np.random.default_rng(seed).permutation(women)[: len(women) // 2]).to_numpy()
    truth = cases["label"].to_numpy()
    said = log.pivot_table(index="case_id", columns="expert_id", values="decision").reindex(cases.index)
    people = tuple(map(str, said.columns))
    for name in ("FFDM", "SFM"):
        score = cases[f"panel_score_{name}"]
        cuts = np.quantile(score[~late], np.linspace(0.05, 0.95, 19))
        paid = [(COSTS.array()[0][truth[~late], (score[~late] > cut).astype(int)]).mean() for cut in cuts]
        said[f"panel_{name}"] = (score > cuts[int(np.argmin(paid))]).astype(float)
    said = said.fillna(-1).astype(int)
    told = (
        said[~late]
        .rename_axis("case_id")
        .reset_index()
        .melt("case_id", var_name="expert_id", value_name="decision")
    )
    X = cases[["modalityID", "subStudyLabel"]].astype(object)
    return World(
        X[~late],
        truth[~late],
        told[told["decision"] >= 0],
        X[late],
        truth[late],
        said[late],
        people,
        {"panel_FFDM": 0.03, "panel_SFM": 0.03},
        0.15,
        int(late.sum()) // (4 * len(people)),
    )


def fitted(world: World, seed: int) -> DeCCaF:
    makers = {name: {"kind": "machine", "price": price} for name, price in world.prices.items()}
    model = DeCCaF(COSTS, review_cost=world.review, makers=makers, seed=seed, **PARTS)
    return model.fit(world.train, world.label, decisions=world.log)


def capacity(world: World) -> Capacity:
    """Everybody's room; who did not decide a case cannot be asked about it now."""
    room = Capacity.of(dict.fromkeys(world.people, world.room))
    known = world.said[list(world.people)] >= 0
    return room if known.all(axis=None) else room.only(known)


def errors(world: World, decision: np.ndarray) -> np.ndarray:
    return COSTS.array()[0][world.truth, decision]


def price(world: World, maker: np.ndarray) -> np.ndarray:
    each = {MACHINE: 0.0, **dict.fromkeys(world.people, world.review), **world.prices}
    return np.array([each[name] for name in maker])


def cost_of(world: World, plan: Any) -> float:
    """What a plan really costs per case."""
    maker = plan.frame["maker"].astype(str).to_numpy()
    own = plan.frame["decision"].fillna(0).astype(int).to_numpy()
    column = world.said.columns.get_indexer(maker)
    said = world.said.to_numpy()[np.arange(len(maker)), np.maximum(column, 0)]
    decided = np.where(maker == MACHINE, own, said)
    return float((errors(world, decided) + price(world, maker)).mean())


def with_advice(world: World, model: DeCCaF, room: Capacity) -> dict[str, float]:
    plan = model.assign(world.test, room, advice=True, intervals=False)
    asked = plan.frame["advice"].notna().to_numpy()
    who = plan.frame["advice"].astype(object).to_numpy()
    found = plan.summary.advice
    facts = {
        "asked": float(asked.mean()),
        "expected": found.cost / len(asked),
        "without": found.without / len(asked),
    }
    if not asked.any():
        return {"cost": cost_of(world, plan), **facts}
    place = world.said.columns.get_indexer(who[asked])
    answers = pd.DataFrame(
        {
            "case_id": plan.frame["case_id"].to_numpy()[asked],
            "expert_id": who[asked],
            "decision": world.said.to_numpy()[np.flatnonzero(asked), place],
        }
    )
    then = model.assign(world.test, room, answers=answers, intervals=False)
    bought = float(price(world, who[asked].astype(str)).sum()) / len(asked)
    return {"cost": cost_of(world, then) + bought, **facts}


def cascade(world: World, model: DeCCaF) -> float:
    """The best cascade by a threshold on the classifier's confidence, chosen on the test cases."""
    loss = (model.predict_proba(world.test) @ COSTS.array()[0]).min(axis=1)
    own = model.predict_decision(world.test)
    best = np.inf
    people = world.said[list(world.people)].to_numpy()
    first = np.where((people >= 0).any(axis=1), people[np.arange(len(own)), (people >= 0).argmax(axis=1)], -1)
    for name in world.machines:
        answer = world.said[name].to_numpy()
        for cut in np.quantile(loss, np.linspace(0.0, 1.0, 41)):
            ask = loss > cut
            apart = ask & (answer != own) & (first >= 0)
            order = np.argsort(-np.where(apart, loss, -1.0), kind="stable")
            person = np.zeros(len(own), bool)
            person[order[: world.room * len(world.people)]] = True
            person &= apart
            decided = np.where(person, first, np.where(ask, answer, own))
            paid = ask * world.prices[name] + person * world.review
            best = min(best, float((errors(world, decided) + paid).mean()))
    return best


def compared(world: World, seed: int) -> dict[str, float]:
    """Costs per 100 cases."""
    model, room = fitted(world, seed), capacity(world)
    single = [errors(world, model.predict_decision(world.test)).mean()]
    single += [
        errors(world, world.said[name].to_numpy()).mean() + world.prices[name] for name in world.machines
    ]
    known = [world.said[name].to_numpy() for name in world.people]
    people = [errors(world, np.maximum(one, 0))[one >= 0].mean() for one in known]
    alone = replace_dependence(model)
    ours, naive = with_advice(world, model, room), with_advice(world, alone, room)
    plan = model.assign(world.test, room, intervals=False)
    found = {
        "best machine": min(single),
        "threshold cascade": cascade(world, model),
        "people only": float(np.mean(people)) + world.review,
        "plan": cost_of(world, plan),
        "plan with advice, independent": naive["cost"],
        "plan with advice": ours["cost"],
    }
    costs = {name: 100 * float(value) for name, value in found.items()}
    return costs | {
        "asked, %": 100 * ours["asked"],
        "expected with advice": 100 * ours["expected"],
        "expected without": 100 * ours["without"],
        **worth(world, model, room, 100 * ours["expected"]),
    }


def worth(world: World, model: DeCCaF, room: Capacity, whole: float) -> dict[str, float]:
    """What 100 cases are expected to cost more without a maker, advice counted."""
    makers = {name: {"kind": "machine", "price": price} for name, price in world.prices.items()}
    found = {}
    for name in world.prices:
        other = model.with_costs(COSTS, makers={**makers, name: {"kind": "machine", "cases_per_day": 0}})
        plan = other.assign(world.test, room, advice=True, intervals=False)
        found[f"worth of {name}"] = 100 * plan.summary.advice.cost / len(world.test) - whole
    nobody = Capacity.of(dict.fromkeys(world.people, 0))
    plan = model.assign(world.test, nobody, advice=True, intervals=False)
    found["worth of all people"] = 100 * plan.summary.advice.cost / len(world.test) - whole
    return found


def replace_dependence(model: DeCCaF) -> DeCCaF:
    """The same model with errors taken as independent."""
    other = copy.copy(model)
    other.learned_ = copy.copy(model.learned_)
    other.learned_.dependence = None
    return other


def worlds(options: argparse.Namespace) -> Iterator[tuple[str, int, World]]:
    for seed in range(options.seeds):
        if options.viper is not None:
            yield "VIPER", seed, viper(options.viper, seed)
            continue
        for together in options.together:
            yield f"simulated, correlation {together:g}", seed, simulated(options.cases, seed, together)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=2000, help="to learn from, and as many to test on")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--together", type=float, nargs="*", default=[0.0, 0.7], help="correlation of the machines"
    )
    parser.add_argument("--viper", type=Path, help="folder of the VIPER reader study")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows, began = [], time.process_time()
    for name, seed, world in worlds(options):
        rows.append({"world": name, "seed": seed, **compared(world, seed)})
    table = pd.DataFrame(rows)
    each = table.drop(columns="seed").groupby("world").agg(["mean", "sem"])
    for name in each.index:
        print(name)
        for column in dict.fromkeys(each.columns.get_level_values(0)):
            mean, error = each.loc[name, (column, "mean")], each.loc[name, (column, "sem")]
            print(f"  {column:32s} {mean:8.2f} +- {error:.2f}")
    print(f"{len(rows)} worlds, {time.process_time() - began:.0f} processor seconds")


if __name__ == "__main__":
    main()
