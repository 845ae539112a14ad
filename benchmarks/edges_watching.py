"""Watching: false alerts, and how soon changes are seen, for teams of 3, 10 and 50 with 5, 20 and 60 labels.

    python benchmarks/edges.py watching [--repetitions 200]

The model expects errors on a fifth of the cases, more on some than on others. People are known from 30 or 300
decisions, and the model is as far off about them as that leaves room for. *Quiet*: the chance of at least one
false alert in the team within 30 days, looking at the end of every day; labels are per person and day. Then
from day 10 on one person tosses a coin, is always wrong, or has three times the odds of an error: how often
that is seen within 20 days, and after how many days half of these are seen.

The share of fraud goes from 1 to 3 % on day 10. Weekends bring another mix of cases; in the third week a
feature shifts by a deviation on a Wednesday. Before is the rule of version 0.1.0: each day alone, 20 labels
or more, four standard deviations and 8 points (100 labels and 3 points for fraud), drift against training.
Exit code 1 where a false alert is more likely than promised.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.special import expit, logit

from deccaf.evaluate import sequential
from deccaf.evaluate.drift import counts, is_real, profile, stability
from deccaf.service.monitor import checks

DAYS, CHANGE = 30, 10


@dataclass(frozen=True)
class Seen:
    """The first day of an alert by each rule; infinite where there was none."""

    before: float
    after: float


def person(labels: int, watched: int, rng: np.random.Generator, trouble: str = "") -> Seen:
    """Thirty days of one person in a team."""
    known = float(rng.choice([30, 300]))
    off = rng.normal(0, 1 / np.sqrt(1 / sequential.PEOPLE_DIFFER**2 + 0.15 * known))
    margin, needed = sequential.margin_of(known), sequential.threshold(watched)
    tallies, first = [], [np.inf, np.inf]
    for day in range(DAYS):
        expected = expit(rng.normal(-1.6, 1.0, labels))
        true = expit(logit(expected) + off)
        if trouble and day >= CHANGE:
            true = {"coin": 0.5, "wrong": 1.0, "triple": expit(logit(true) + np.log(3.0))}[trouble]
        wrong = (rng.random(labels) < true).astype(np.float64)
        tallies.append(sequential.errors(wrong, expected, margin))
        if not np.isfinite(first[0]) and _four_sigma(wrong, expected):
            first[0] = day
        if not np.isfinite(first[1]) and sequential.change(tallies, needed).is_odd:
            first[1] = day
    return Seen(*first)


def _four_sigma(wrong: np.ndarray, expected: np.ndarray) -> bool:
    """Version 0.1.0 on one day: errors, and how unlikely each decision was."""
    if len(wrong) < 20 or wrong.mean() - expected.mean() <= 0.08:
        return False
    q = np.column_stack([1 - expected, expected])
    unlikely = -np.log(q)
    mean = (q * unlikely).sum(axis=1)
    spread = (q * (unlikely - mean[:, None]) ** 2).sum()
    said = unlikely[np.arange(len(wrong)), wrong.astype(int)]
    errors = (wrong - expected).sum() / np.sqrt((expected * (1 - expected)).sum())
    return bool(max(errors, (said - mean).sum() / np.sqrt(spread)) > 4.0)


def fraud(labels: int, rng: np.random.Generator, rises: bool) -> Seen:
    """Thirty days of labels; fraud is 1 %, and 3 % after the change."""
    tallies, first = [], [np.inf, np.inf]
    for day in range(DAYS):
        p = expit(rng.normal(-5.05, 0.95, labels))
        true = expit(logit(p) + np.log(3.1) * (rises and day >= CHANGE))
        happened = (rng.random(labels) < true).astype(np.float64)
        tallies.append(sequential.level(happened, p))
        sure = abs(happened.sum() - p.sum()) / np.sqrt((p * (1 - p)).sum())
        if (
            not np.isfinite(first[0])
            and labels >= 100
            and sure > 4
            and abs(happened.mean() - p.mean()) > 0.03
        ):
            first[0] = day
        if not np.isfinite(first[1]) and sequential.change(tallies, sequential.threshold(1)).is_odd:
            first[1] = day
    return Seen(*first)


def weekends(cases: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """(before, after) alerts on each of 28 days; a shift comes on the third Wednesday and stays."""

    def day(number: int, shift: float = 0.0) -> pd.DataFrame:
        mixed = rng.random(cases) < (0.9 if number % 7 >= 5 else 0.1)
        return pd.DataFrame({"x": rng.normal(1.5 * mixed + shift, 1.0)})

    known = profile(pd.concat([day(k) for k in range(28)])["x"])
    old = np.asarray(known["shares"]) * known["cases"]
    lived: list[pd.DataFrame] = []
    alerts = np.zeros((2, 28), bool)
    for number in range(28):
        frame = day(number, float(number >= 16))
        new = counts(known, frame["x"])
        index = stability(old, new)
        alerts[0, number] = index > checks.INDEX_LIMIT and is_real(index, old, new)
        weeks = [lived[b] for b in range(number - 7, -1, -7) if not alerts[1, b]]
        before = lived[-checks.DAYS_BEFORE :] if number >= checks.DAYS_BEFORE else []
        alerts[1, number] = alerts[0, number] and checks.unlike_its_weekday(
            lambda cases: cases["x"], known, frame, weeks, before
        )
        lived.append(frame)
    return alerts[0], alerts[1]


def _words(found: list[Seen]) -> str:
    """How often the change was seen, and after how many days in half of these, before and after."""
    parts = []
    for rule in ("before", "after"):
        days = np.array([getattr(one, rule) for one in found]) - CHANGE + 1
        seen = days[np.isfinite(days) & (days > 0)]
        parts.append(f"{len(seen) / len(days):5.0%} {f'({np.median(seen):.0f})' if len(seen) else '':>5}")
    return " ".join(parts)


def people(repetitions: int) -> bool:
    """The table of teams; whether the promise is kept."""
    print(
        "team labels   quiet: before after     coin: before, after      always wrong              three times"
    )
    kept = True
    for team in (3, 10, 50):
        for labels in (5, 20, 60):
            rng = np.random.default_rng([team, labels])
            teams = max(repetitions * 3 // team, 12) if team > 3 else repetitions
            runs = [[person(labels, team, rng) for _ in range(team)] for _ in range(teams)]
            false = [
                np.mean([any(np.isfinite(getattr(p, rule)) for p in run) for run in runs])
                for rule in ("before", "after")
            ]
            noise = 2 * np.sqrt(sequential.CHANCE * (1 - sequential.CHANCE) / teams)
            kept &= false[1] <= sequential.CHANCE + noise
            cells = [
                _words([person(labels, team, rng, kind) for _ in range(repetitions // 2)])
                for kind in ("coin", "wrong", "triple")
            ]
            print(
                f"{team:4} {labels:6}          {false[0]:6.1%} {false[1]:5.1%}   {'    '.join(cells)}",
                flush=True,
            )
    return kept


def main(arguments: list[str] | None = None) -> int:
    """Print the tables; 0 if false alerts are as rare as promised."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=200)
    options = parser.parse_args(arguments)
    kept = people(options.repetitions)
    rng = np.random.default_rng(7)
    print("\nfraud from 1 to 3 %: labels a day, quiet (before after), seen (before, after; days)")
    for labels in (60, 200, 1000):
        quiet = [fraud(labels, rng, False) for _ in range(options.repetitions)]
        false = [np.mean([np.isfinite(getattr(one, rule)) for one in quiet]) for rule in ("before", "after")]
        kept &= false[1] <= sequential.CHANCE + 0.02
        words = _words([fraud(labels, rng, True) for _ in range(options.repetitions // 2)])
        print(f"{labels:6} {false[0]:6.1%} {false[1]:6.1%}   {words}", flush=True)
    runs = [weekends(300, rng) for _ in range(options.repetitions // 10)]
    ends = [k for k in range(16) if k % 7 >= 5]
    rest = [k for k in range(16) if k % 7 < 5]
    print(
        "\n300 cases a day: alerts on weekend days, on other quiet days, and after the shift (before, after)"
    )
    for days, name in (
        (ends, "weekends"),
        (rest, "other days"),
        ([16], "day of the shift"),
        (range(16, 28), "later"),
    ):
        shares = [np.mean([run[k][list(days)] for run in runs]) for k in (0, 1)]
        print(f"{name:18} {shares[0]:6.0%} {shares[1]:6.0%}")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
