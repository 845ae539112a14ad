"""Staffing by what decisions save, against staffing by workload (Erlang C), on simulated weeks.

python benchmarks/staffing.py [--cases 60] [--weeks 6] [--test-weeks 6]

Six people who are good at different kinds of cases and earn differently. The model learns from weeks in which
everybody got random cases; each way to staff makes a roster for the next week; weeks that nobody has seen are
then decided with it, and errors are counted with the true chances of truths and decisions.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from deccaf import Costs, DeCCaF, expected_loss
from deccaf.assign import solve
from deccaf.planning import Staffing

PEOPLE = ("ann", "bob", "cyd", "dan", "eva", "fay")
WAGE = np.array([34.0, 27.0, 27.0, 22.0, 22.0, 18.0])
KINDS = ("cards", "loans", "transfers")
SKILL = np.array(
    [[3.2, 2.8, 2.2], [3.0, 1.0, 1.2], [1.0, 3.0, 1.2], [1.2, 1.0, 2.8], [1.4, 1.6, 1.4], [1.0, 0.8, 1.0]]
)
SHARE_OF_DAY = np.array([1.3, 1.1, 1.0, 0.9, 0.7])
MINUTES, SHIFT = 10.0, 8.0
COSTS = Costs.binary(false_positive=25.0, false_negative=100.0, unit="EUR")


@dataclass(frozen=True)
class World:
    """Cases, their days, and what is true of them."""

    X: pd.DataFrame
    day: pd.Series
    p: np.ndarray
    q: np.ndarray

    def loss(self, says: np.ndarray) -> np.ndarray:
        """Cases x makers by the true chances, where the machine decides as the model `says`."""
        found = expected_loss(self.p, self.q, COSTS.array())
        found[:, 0] = (self.p * COSTS.array()[0][:, says].T).sum(axis=1)
        return found


def world(rng: np.random.Generator, cases: float, weeks: int, start: str) -> World:
    """Weeks of five days, the first days fuller than the last, and no two alike."""
    days = pd.bdate_range(start, periods=5 * weeks)
    counts = rng.poisson(cases * np.tile(SHARE_OF_DAY, weeks) * rng.gamma(40, 1 / 40, 5 * weeks))
    n, day = int(counts.sum()), pd.Series(np.repeat(days, counts))
    kind, signal = rng.integers(3, size=n), rng.normal(size=n)
    risk = 1 / (1 + np.exp(-(1.6 * signal - 1.4)))
    right = 1 / (1 + np.exp(-SKILL[:, kind].T))
    q = np.stack([np.stack([right, 1 - right], -1), np.stack([1 - right, right], -1)], 2)
    X = pd.DataFrame({"signal": signal, "kind": np.array(KINDS)[kind]})
    return World(X, day, np.column_stack([1 - risk, risk]), q)


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--cases", type=float, default=60, help="of a mean day")
    parser.add_argument("--weeks", type=int, default=6, help="to learn from")
    parser.add_argument("--test-weeks", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)

    past = world(rng, options.cases, options.weeks, "2026-01-05")
    model = learned(past, rng)
    table = {
        "wage": dict(zip(PEOPLE, WAGE.tolist(), strict=True)),
        "minutes": MINUTES,
        "kind": "kind",
        "weeks": options.weeks,
    }
    best = model.staff(past.X, table, dates=past.day)
    load = past.day.groupby(past.day).size().groupby(lambda d: d.day_of_week).mean().to_numpy()
    erlang = np.array([agents(cases / SHIFT, MINUTES / 60) * SHIFT for cases in load])
    rosters = {
        "everybody, every day": np.full((5, len(PEOPLE)), SHIFT),
        "Erlang C, the cheapest": cheapest(erlang),
        "Erlang C, everybody alike": alike(erlang),
        "for these wages, everybody alike": same_wages(best),
        "deccaf staff": best.hours.to_numpy(),
        "nobody": np.zeros((5, len(PEOPLE))),
    }
    new = world(rng, options.cases, options.test_weeks, "2026-06-01")
    beliefs = model.scored(new.X, PEOPLE)
    true = new.loss(beliefs.says)
    rows = [(name, *tried(new.day, true, beliefs.loss, hours)) for name, hours in rosters.items()]
    result = pd.DataFrame(
        rows, columns=["roster", "hours", "wages", "errors, random cases", "errors, planned"]
    )
    result["together, planned"] = result["wages"] + result["errors, planned"]
    print(result.round(0).to_string(index=False))
    print(f"\nexpected by the model: {best.cost:,.0f}, proved within {best.gap:,.1f}")
    print(best.hours.T.to_string())
    print(best.training.round(1).to_string(index=False))


def learned(past: World, rng: np.random.Generator) -> DeCCaF:
    """A model from one random person's decision a case."""
    n = len(past.X)
    who, truth = rng.integers(len(PEOPLE), size=n), (rng.random(n) < past.p[:, 1]).astype(int)
    said = (rng.random(n) < past.q[np.arange(n), who, truth, 1]).astype(int)
    model = DeCCaF(COSTS, case_parts=("logistic",), decision_parts=("rates", "pooled", "boosted"))
    return model.fit(past.X, truth, expert=np.array(PEOPLE)[who], decision=said, time=past.day)


def agents(rate: float, hours: float, share: float = 0.8, within: float = 1 / 6) -> int:
    """Erlang C: the fewest people so that a share of the cases waits less than `within` hours."""
    offered = rate * hours
    count = math.floor(offered) + 1
    while True:
        terms = [offered**k / math.factorial(k) for k in range(count)]
        last = offered**count / math.factorial(count) * count / (count - offered)
        waits = last / (sum(terms) + last)
        if 1 - waits * math.exp(-(count - offered) * within / hours) >= share:
            return count
        count += 1


def cheapest(needed: np.ndarray) -> np.ndarray:
    """Whole days of the cheapest people."""
    order, hours = np.argsort(WAGE, kind="stable"), np.zeros((5, len(PEOPLE)))
    for day, total in enumerate(needed):
        hours[day, order[: round(total / SHIFT)]] = SHIFT
    return hours


def alike(needed: np.ndarray) -> np.ndarray:
    """Everybody for as many hours as anybody."""
    return np.tile(np.minimum(needed / len(PEOPLE), SHIFT)[:, None], (1, len(PEOPLE)))


def same_wages(best: Staffing) -> np.ndarray:
    return np.full((5, len(PEOPLE)), best.wages / (5 * WAGE.sum()))


def tried(
    days: pd.Series, true: np.ndarray, believed: np.ndarray, hours: np.ndarray
) -> tuple[float, float, float, float]:
    """Hours, wages and true errors of a mean week: with random cases, and with plans by the model."""
    random, planned, weeks = 0.0, 0.0, days.nunique() / 5
    for day in days.unique():
        rows = np.flatnonzero((days == day).to_numpy())
        room = np.floor(hours[pd.Timestamp(day).day_of_week] * 60 / MINUTES + 1e-9)
        maker = solve(believed[rows], [len(rows), *room]).maker
        planned += float(true[rows, maker].sum())
        loads = room * min(1.0, len(rows) / max(room.sum(), 1.0))
        shares = np.append(len(rows) - loads.sum(), loads) / len(rows)
        random += float((true[rows] @ shares).sum())
    return float(hours.sum()), float((hours @ WAGE).sum()), random / weeks, planned / weeks


if __name__ == "__main__":
    main()
