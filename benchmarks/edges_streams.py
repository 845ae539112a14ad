"""Streams: what routing on arrival costs above the best plan in hindsight, on days unlike the forecast.

    python benchmarks/edges.py streams [--seeds 6] [--before SRC] [--world NAME ...]

Ten past days are known, with the times of their cases by the clock; every case of today comes with its time.
A desk has eight people with 30 cases each and 600 cases a day, the machine takes the rest; the small one has
three people with 5 each and 40 cases. Each world changes one thing:

    stationary       days alike, all hours alike
    front-heavy      most cases come in the morning, today as ever
    evening rush     most come in the last third of the day, today as ever
    50 % more        than on past days; and 40 % fewer
    all harder       than on past days
    harder later     by a deviation through the day, on past days too; and on no past day; and by half more
    rush and fewer   an evening rush with 40 % fewer cases
    small desk       as the first, with 3 people and 40 cases
    no forecast      the clock alone; and with the number of cases; and the small desk
    no clock kept    an evening rush; past days have an order of arrival but no times; and the same with all
                     hours alike, with most cases in the morning, and with 40 % fewer
    no clock         as the first, without any times at all

Regret is the excess over the hindsight optimum; greedy gives every case to the best who has room; `beaten` is
the share of days on which greedy was better. Before is
version 0.1.0, measured by `--before SRC` where SRC is its `src` folder, else taken from `BEFORE`. Rules were
chosen on seeds from 1,000 on (`--first 1000`). Small desks have four times as many days: chance is larger
there. Exit code 1 where regret is above the bar or above greedy's.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from deccaf.assign import Forecast, StreamAssigner

BEFORE: dict[str, float] = {
    "stationary": 1.5,
    "front-heavy": 34.0,
    "evening rush": 28.8,
    "50 % more": 1.6,
    "40 % fewer": 8.2,
    "all harder": 7.4,
    "harder later, as ever": 1.4,
    "harder later, new": 7.1,
    "much harder later, new": 9.7,
    "rush and fewer": 30.0,
    "rush and more": 20.9,
    "small desk": 6.4,
    "no forecast": 48.2,
    "no forecast, number": 10.3,
    "no forecast, small": 35.2,
    "no clock kept": 28.8,
    "no clock": 2.3,
}
"""Regret of version 0.1.0 in per cent, on seeds 0 to 5."""
PAST_DAYS = 10


@dataclass(frozen=True)
class World:
    """How today differs from past days, and what is known of these."""

    bar: float = 5.0
    arrive: str = "even"
    cases: int = 600
    people: int = 8
    room: int = 30
    times: float = 1.0
    """Today's number of cases over that of past days."""
    harder: float = 0.0
    later: float = 0.0
    """How much harder cases get through the day."""
    ever: bool = False
    """Whether that was so on past days."""
    known: str = "times"
    """Of past days: `times` of cases, their `order`, only the `number` of cases, or `nothing`."""
    clock: bool = True


SMALL = {"cases": 40, "people": 3, "room": 5, "bar": 10.0}
WORLDS = {
    "stationary": World(),
    "front-heavy": World(arrive="front"),
    "evening rush": World(arrive="evening"),
    "50 % more": World(times=1.5),
    "40 % fewer": World(times=0.6),
    "all harder": World(harder=1.0),
    "harder later, as ever": World(later=1.0, ever=True),
    "harder later, new": World(later=1.0),
    "much harder later, new": World(10.0, later=1.5),
    "rush and fewer": World(10.0, arrive="evening", times=0.6),
    "rush and more": World(arrive="evening", times=1.5),
    "small desk": World(**SMALL),
    "no forecast": World(10.0, known="nothing"),
    "no forecast, number": World(10.0, known="number"),
    "no forecast, small": World(**SMALL, known="nothing"),
    "no clock kept": World(arrive="evening", known="order"),
    "no clock kept, even": World(known="order"),
    "no clock kept, front": World(arrive="front", known="order"),
    "no clock kept, fewer": World(times=0.6, known="order"),
    "no clock": World(clock=False),
}


def times(world: World, count: int, rng: np.random.Generator) -> np.ndarray:
    """When cases come, as shares of the day."""
    if world.arrive == "front":
        at = rng.beta(1.0, 4.0, count)
    elif world.arrive == "evening":
        at = np.where(rng.random(count) < 0.2, rng.random(count), 0.7 + 0.3 * rng.random(count))
    else:
        at = rng.random(count)
    return np.sort(at)


def losses(
    world: World, at: np.ndarray, today: bool, skill: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """(cases, makers): the machine first; hard cases are harder for it than for people."""
    x, hard = rng.normal(size=(len(at), 3)), rng.normal(size=len(at))
    hard += world.harder * today + world.later * at * (today or world.ever)
    people = expit(-1.7 + x @ skill[:, 1:] + 0.7 * hard[:, None])
    machine = expit(-1.2 + x @ skill[:, 0] + 1.1 * hard)
    return np.column_stack([machine, people])


def day(world: World, seed: int) -> tuple[StreamAssigner, np.ndarray, np.ndarray]:
    """An empty desk with what is known of past days, and today's cases with their times."""
    rng = np.random.default_rng([seed, world.people])
    skill = rng.normal(0, 0.5, (3, world.people + 1))
    past_at = [times(world, int(rng.poisson(world.cases)), rng) for _ in range(PAST_DAYS)]
    past = [losses(world, at, False, skill, rng) for at in past_at]
    count = int(rng.poisson(world.times * world.cases))
    at = times(world, count, rng)
    cases = losses(world, at, True, skill, rng)
    upper = [np.inf] + [world.room] * world.people
    forecast = None
    if world.known == "times":
        forecast = _of_days(past, past_at)
    elif world.known == "order":
        forecast = Forecast.of_days(past)
    elif world.known == "number":
        forecast = Forecast.of(np.empty((0, world.people + 1)), world.cases)
    return StreamAssigner([f"m{j}" for j in range(world.people + 1)], upper, forecast=forecast), cases, at


def _of_days(past: list[np.ndarray], past_at: list[np.ndarray]) -> Forecast:
    try:
        return Forecast.of_days(past, past_at)
    except TypeError:  # version 0.1 cannot be told the times
        return Forecast.of_days(past)


def regret(world: World, seed: int) -> tuple[float, float]:
    """Of the stream and of greedy, in per cent."""
    desk, cases, at = day(world, seed)
    for row, when in zip(cases, at, strict=True):
        desk.route(row, at=float(when) if world.clock else None)
    found = desk.regret()
    return 100 * found.share, 100 * found.greedy_share


def measured(worlds: list[str], seeds: range) -> dict[str, list[float]]:
    """Mean and worst regret, and greedy's mean, by world."""
    out = {}
    for name in worlds:
        days = range(seeds.start, seeds.start + len(seeds) * (4 if WORLDS[name].cases < 100 else 1))
        found = np.array([regret(WORLDS[name], seed) for seed in days])
        out[name] = [
            *found.mean(axis=0).tolist(),
            float(found[:, 0].max()),
            float((found[:, 0] > found[:, 1] + 1e-9).mean()),
        ]
    return out


def _old(source: str, worlds: list[str], seeds: range) -> dict[str, float]:
    command = [
        sys.executable,
        __file__,
        "--old",
        "--seeds",
        len(seeds),
        "--first",
        seeds.start,
        "--world",
        *worlds,
    ]
    env = {**os.environ, "PYTHONPATH": source}
    done = subprocess.run([*map(str, command)], env=env, check=True, capture_output=True, text=True)
    return {name: found[0] for name, found in json.loads(done.stdout).items()}


def main(arguments: list[str] | None = None) -> int:
    """Print the table; 0 if all bars are met."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--world", nargs="+", choices=list(WORLDS), default=list(WORLDS))
    parser.add_argument("--before", metavar="SRC")
    parser.add_argument("--old", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    seeds = range(options.first, options.first + options.seeds)
    if options.old:
        print(json.dumps(measured(options.world, seeds)))
        return 0
    past = BEFORE if options.before is None else _old(options.before, options.world, seeds)
    print(f"regret in per cent, {len(seeds)} days of each world")
    print(f"{'world':24}{'before':>8}{'greedy':>8}{'after':>8}{'worst':>8}{'beaten':>8}{'bar':>6}")
    good = True
    for name in options.world:
        mean, greedy, worst, beaten = measured([name], seeds)[name]
        held = mean <= min(WORLDS[name].bar, greedy)
        good &= held
        before = f"{past[name]:8.1f}" if name in past else f"{'':8}"
        print(
            f"{name:24}{before}{greedy:8.1f}{mean:8.1f}{worst:8.1f}{beaten:8.0%}{WORLDS[name].bar:6.0f}"
            f"{'' if held else '  above'}",
            flush=True,
        )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
