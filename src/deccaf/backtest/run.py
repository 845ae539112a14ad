"""Backtest: what plans would have cost on a user's own history, against what one would do otherwise.

The cases are split (later time, or whole groups); models learn from one part and plan the other.

- *Known outcomes.* Where several experts decided most cases, models learn from one drawn decision per case,
  and a test case may go to the machine or to anyone who really decided it: every outcome is known.
- *Estimated.* Where one expert decided each case, the costs are doubly-robust estimates from the log (see
  `deccaf.evaluate.off_policy`), with propensities given, or estimated.

Everybody's room is a share of what they really decided in the test part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.backtest.parts import BLIND, HISTORY, Part, Tested, estimated_part, known_part, registered
from deccaf.data.cases import Cases, latest_share
from deccaf.data.config import Config
from deccaf.data.history import History, splitting_group
from deccaf.errors import ConfigError, DataError
from deccaf.evaluate.audit import audit
from deccaf.evaluate.off_policy import Estimate, mean_with_interval
from deccaf.evaluate.propensity import estimate_propensities, given_propensities_notes

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

DEFAULT = ("full-rejection", "machine", "random", "deccaf-paper", BLIND, "deccaf")
MANY = 1.5
"""Decisions per case from which on outcomes are known often enough."""
_GROUP_FOLDS = 5


@dataclass(frozen=True)
class Options:
    """How to test."""

    policies: tuple[str, ...] = DEFAULT
    capacity_share: float | None = None
    """Share of everybody's observed load; None: the team can review half of the cases."""
    split: Literal["auto", "time", "group", "random"] = "auto"
    folds: int | None = None
    """Refits; None: one for time, five for groups."""
    test_share: float = 0.25
    draws: int = 3
    """Draws of one decision per training case, where cases have several."""
    seed: int = 0
    confidence: float = 0.95

    def __post_init__(self) -> None:
        if self.capacity_share is not None and not self.capacity_share > 0:
            raise ConfigError(f"capacity share: expected more than 0, got {self.capacity_share}")
        if not 0 < self.test_share < 1 or self.draws < 1 or (self.folds is not None and self.folds < 1):
            raise ConfigError("test share must lie between 0 and 1, folds and draws must be at least 1")
        if "deccaf" not in self.policies:
            raise ConfigError("policies: 'deccaf' must be among them, it is what is tested")
        for name in self.policies:
            registered(name)


@dataclass(frozen=True, eq=False)
class Backtest:
    """What a backtest found."""

    known: bool
    """Whether every outcome is known, or costs are estimates from one decision per case."""
    costs: pd.DataFrame
    """By policy: `cost`, `low`, `high` per 100 cases, and `deferred`, the share of cases given to people."""
    savings: pd.DataFrame
    """By other policy: what deccaf saves against it per 100 cases, `saved`, `low`, `high`."""
    received: pd.DataFrame
    """By expert: decisions in the test part, capacity, cases that deccaf gave."""
    rows: pd.DataFrame
    """One row per test case and draw: case, maker and decision of deccaf (-1: not known), truth, cost, weight
    and the group columns."""
    calibration: pd.DataFrame
    """One row per test decision: expert, whether it was right, and the chance that was given to that."""
    notes: tuple[str, ...]
    train_cases: int
    test_cases: int
    folds: int
    classes: tuple[Any, ...]

    def verdict(self) -> list[str]:
        """What to make of it, in sentences; says so where there is nothing to gain."""
        mine = self.costs.loc["deccaf"]
        simple = [name for name in ("machine", "random", "full-rejection") if name in self.costs.index]
        lines = [f"deccaf: {mine['cost']:.2f} per 100 cases ({mine['low']:.2f} to {mine['high']:.2f})."]
        if simple:
            best = min(simple, key=lambda name: float(self.costs["cost"][name]))
            lines.append(_against(best, self.savings.T[best], float(self.costs["cost"][best])))
        past = self.savings.T[HISTORY]
        words = f"{past['saved']:.2f} per 100 ({past['low']:.2f} to {past['high']:.2f})"
        lines.append(f"Against what really happened, with people on every case, the difference is {words}.")
        if BLIND in self.savings.index:
            lines.append(_among(self.savings.T[BLIND]))
        return lines


def _against(other: str, saved: pd.Series, cost: float) -> str:
    words = f"{saved['saved']:.2f} per 100 ({saved['low']:.2f} to {saved['high']:.2f})"
    if saved["low"] > 0:
        return f"It saves {saved['saved'] / cost:.0%} against {other}, the best without it: {words}."
    return f"No gain over {other} that these data show: the difference is {words}."


def _among(saved: pd.Series) -> str:
    words = f"{saved['saved']:.2f} per 100 ({saved['low']:.2f} to {saved['high']:.2f})"
    if saved["low"] > 0:
        return f"Choosing among the experts, and not just when to ask one, saves {words}."
    return (
        "No gain from choosing among the experts: they differ by nothing that these data show, and giving "
        f"each case to whoever has room costs the same (difference {words})."
    )


def backtest(
    history: History, config: Config, options: Options, step: Callable[[str], None] = lambda _: None
) -> Backtest:
    """Split, learn, plan, and count what it would have cost; `step` hears what is being done."""
    config = config.model_copy(update={"model": config.model.model_copy(update={"seed": options.seed})})
    looked = audit(history, config.columns, config.labels)
    history, notes = _usable(looked.history)
    notes = [*config.notes(), *looked.notes, *notes]
    cases, experts = history.cases, history.log.experts
    decided = np.bincount(history.case, minlength=len(cases)) > 0
    known = bool(len(history.log) >= MANY * decided.sum())
    if not known:
        history, dropped = _one_each(history, options.seed)
        notes += (
            [f"{dropped:,} further decisions on cases that had one already were left out"] if dropped else []
        )
    folds = _folds(cases, options)
    test_decisions = sum(int(mask[history.case].sum()) for mask in folds)
    test_cases = sum(int((mask & decided).sum()) for mask in folds)
    share = options.capacity_share
    if share is None:
        share = 0.5 * test_cases / max(test_decisions, 1)
    propensity = None
    if not known:
        propensity, more = _propensities(history, experts, options.seed)
        notes += more
    costs = config.costs.build()
    tested: list[Tested] = []
    for number, mask in enumerate(folds, 1):
        part = Part(history, config, costs, experts, mask & decided, ~mask, share, propensity)
        if known:
            for draw in range(options.draws):
                step(f"Split {number} of {len(folds)}, draw {draw + 1} of {options.draws}")
                tested.append(known_part(part, options, draw))
        else:
            step(f"Split {number} of {len(folds)}")
            tested.append(estimated_part(part, options))
    train = int(np.mean([(~mask).sum() for mask in folds]))
    return _collected(tested, cases, options, known, tuple(notes), train, len(folds))


def _usable(history: History) -> tuple[History, list[str]]:
    """Cases whose truth is known, with notes on what was left out."""
    known = history.label >= 0
    notes = []
    if not known.all():
        notes.append(f"{(~known).sum():,} cases without a label yet were left out")
        history = history.take(known)
    cases, log = history.cases, history.log
    undecided = len(cases) - log.case.nunique()
    if undecided:
        notes.append(f"{undecided:,} cases that nobody decided were learned from, but not tested on")
    few = log.expert.value_counts()
    few = few[few < 30]
    if len(few):
        notes.append(f"{len(few)} experts have fewer than 30 decisions; the least has {few.min()}")
    missing = cases.features.isna().mean()
    if missing.max() > 0.2:
        notes.append(f"feature {missing.idxmax()!r} is missing in {missing.max():.0%} of the cases")
    if len(log) < 100:
        raise DataError(f"a backtest needs at least 100 decisions on labelled cases, got {len(log)}")
    return history, notes


def _one_each(history: History, seed: int) -> tuple[History, int]:
    """One decision per case, drawn at random."""
    order = np.random.default_rng(seed).permutation(len(history.log))
    rows = np.sort(order[np.unique(history.case[order], return_index=True)[1]])
    return history.take(np.arange(len(history.cases)), rows), len(history.log) - len(rows)


def _folds(cases: Cases, options: Options) -> list[NDArray[np.bool_]]:
    """Masks of test cases. Time: consecutive windows of the latest cases, each tested by the cases before."""
    group = splitting_group(cases)
    split: str = options.split
    if split == "auto":
        split = "group" if group is not None else "time" if cases.time is not None else "random"
    if split == "time":
        if cases.time is None:
            raise ConfigError("--split time: the cases have no time column; name it under [columns] time")
        if (options.folds or 1) > 1:
            raise ConfigError("--split time has one split; use --test-share for its size")
        return [latest_share(cases.time, options.test_share)]
    if split == "group" and group is None:
        raise ConfigError("--split group: [columns] group names no column with at least 50 groups")
    units = np.arange(len(cases)) if split == "random" or group is None else pd.factorize(group)[0]
    count, folds = int(units.max()) + 1, options.folds or _GROUP_FOLDS
    if folds < 2 or count < folds:
        raise ConfigError(f"--folds {folds}: expected at least 2, and {count} groups allow at most {count}")
    place = np.random.default_rng(options.seed).permutation(count)[units] % folds
    return [place == fold for fold in range(folds)]


def _propensities(history: History, experts: tuple[str, ...], seed: int) -> tuple[Array, list[str]]:
    log = history.log
    if log.propensity is not None:
        given = log.propensity.to_numpy(np.float64)
        return given, given_propensities_notes(given)
    codes = pd.Index(experts).get_indexer(pd.Index(log.expert))
    found = estimate_propensities(history.features.iloc[history.case], codes, len(experts), seed)
    how = "everybody's share of the work" if found.random else "a model of who got which case"
    return found.of(codes), [f"propensities were not given: estimated as {how}", *found.notes()]


def _collected(
    tested: list[Tested],
    cases: Cases,
    options: Options,
    known: bool,
    notes: tuple[str, ...],
    train: int,
    folds: int,
) -> Backtest:
    terms = pd.concat([part.terms for part in tested]).groupby(level=0).mean()
    group = splitting_group(cases)
    member = None if group is None else group.to_numpy()[terms.index]

    event = max(part.event for part in tested)

    def estimate(values: pd.Series, weighted: bool) -> Estimate:
        size = event if weighted else 0.0
        return mean_with_interval(values.to_numpy(), member, options.confidence, size).per_100()

    deferred = pd.concat([part.deferred for part in tested], axis=1).mean(axis=1)
    # a policy that lets no person decide, or what really happened, needs no weights
    found = {name: estimate(terms[name], name != HISTORY and deferred[str(name)] > 0) for name in terms}
    table = pd.DataFrame(
        {
            name: {"cost": e.value, "low": e.low, "high": e.high, "deferred": deferred[str(name)]}
            for name, e in found.items()
        }
    ).T
    others = [name for name in terms if name != "deccaf"]
    saved = {name: estimate(terms[name] - terms["deccaf"], False) for name in others}
    savings = pd.DataFrame({n: {"saved": e.value, "low": e.low, "high": e.high} for n, e in saved.items()}).T
    draws = len(tested) / folds
    received = pd.concat([part.received for part in tested]).groupby(level=0).sum() / draws
    if not known:
        effective = min(part.effective for part in tested)
        notes = (*notes, f"the estimate for deccaf rests on {effective:,.0f} effective cases given to people")
    return Backtest(
        known=known,
        costs=table,
        savings=savings,
        received=received,
        rows=pd.concat([part.rows for part in tested], ignore_index=True),
        calibration=pd.concat([part.calibration for part in tested], ignore_index=True),
        notes=notes,
        train_cases=train,
        test_cases=len(terms),
        folds=folds,
        classes=cases.classes,
    )
