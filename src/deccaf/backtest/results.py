"""What a backtest found, put together from its splits: every figure is computed here, once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.backtest import outcomes as o
from deccaf.backtest.agreement import Agreement, Shared
from deccaf.backtest.options import Options
from deccaf.backtest.outcomes import Log, Outcome, Trace
from deccaf.backtest.split import Part, Rooms, Split, of_truth
from deccaf.backtest.verdict import HISTORY, OURS, SIMPLE, Verdict, best_simple, open_verdict, verdict_of
from deccaf.data.costs import MACHINE, Class
from deccaf.data.history import MANY_GROUPS, History, splitting_group
from deccaf.data.notebook import card
from deccaf.errors import ConfigError
from deccaf.evaluate.fairness import by_group
from deccaf.evaluate.hidden_reasons import STRENGTHS, lower_costs, strength_that_undoes, upper_costs
from deccaf.evaluate.off_policy import Estimate, mean_with_interval
from deccaf.policies import Decided

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

IPS = "deccaf (inverse propensity)"
LOT = "deccaf (cases given by lot)"
FEWEST_BY_LOT = 100
"""Test cases given by lot from which on an estimate from them alone is shown."""


@dataclass(frozen=True)
class Question:
    """What is asked of a policy: its plan as it is, or with other hours of the team, or at another ratio."""

    policy: str
    hours: float | None = None
    ratio: float = 1.0


@dataclass(frozen=True, eq=False)
class Tested:
    """What one split found."""

    part: Part
    outcomes: Mapping[Question, Outcome]
    """Where they are known."""
    traces: Mapping[Question, Trace]
    """Where they have to be estimated."""
    log: Log | None
    plans: tuple[tuple[Decided, Rooms], ...]
    """deccaf's plans, one per draw."""
    right: pd.DataFrame
    """One row per decision and draw: see `right_chances`."""
    makers: Mapping[float, Ints]
    """Who decides each case by ratio of costs, in the first draw."""
    shared: Shared
    """Cases that several people decided."""


@dataclass(frozen=True, eq=False)
class Hidden:
    """How strong an unseen reason would have to be to undo the saving against one alternative."""

    against: str
    undoes: float
    """The strength at which the saving is gone; infinite beyond the strongest that was tried."""
    undoes_interval: float
    """The strength at which its interval holds 0; 1 where it does already."""
    table: pd.DataFrame
    """By strength: the least saving, `saved`, and the lower end of its interval, `low`, per 100 cases."""


@dataclass(frozen=True, eq=False)
class Backtest:
    """What a backtest found."""

    known: bool
    """Whether every outcome is known, or costs are estimates from one decision per case."""
    verdict: Verdict
    costs: pd.DataFrame
    """By policy: `cost`, `low`, `high` per 100 cases, and `deferred`, the share of cases given to people."""
    savings: pd.DataFrame
    """By other policy: what deccaf saves against it per 100 cases, `saved`, `low`, `high`, `error`."""
    curve: pd.DataFrame
    """Cost of deccaf's plan by hours of the team: `hours`, `cost`, `low`, `high`, `deferred`."""
    ratios: pd.DataFrame
    """By factor on the ratio of costs: `cost`, `against`, `saved`, `low`, `high`, and `moved`, the share of
    the cases that somebody else decides; empty for more than two classes."""
    groups: Mapping[str, pd.DataFrame]
    """By group column: costs and rates with counts and intervals (see `by_group`)."""
    hidden: Hidden | None
    received: pd.DataFrame
    """By expert: decisions in the test part, capacity, cases that deccaf gave."""
    plan: pd.DataFrame
    """One row per test case and draw: case_id, split, draw, maker, decision (empty: not known), truth, its
    cost where it is known, `term` (whose mean is the estimated cost), weight, propensity, and groups."""
    calibration: pd.DataFrame
    """One row per test decision: expert, whether it was right, and the chance that was given to that."""
    notes: tuple[str, ...]
    split: str
    """Which split was used, and why."""
    capacity_share: float
    roster: bool
    train_cases: int
    test_cases: int
    folds: int
    classes: tuple[Class, ...]
    effective_cases: float | None
    open: pd.DataFrame | None = None
    """Where nobody saw the truth of rejected cases, by policy and per 100 cases: the least and the greatest
    ends of intervals over all that the truth may be, `cost_low`, `cost_high`, `saved_low`, `saved_high`."""
    agreement: Agreement | None = None
    """How far people agree; None where too few test cases were decided by several."""

    def plot(self, what: Literal["costs", "hours", "calibration"] = "costs") -> Any:
        """Costs by policy, cost against hours of the team, or calibration, as in the report.

        A matplotlib figure; it needs the extra `report`.
        """
        from deccaf.backtest import report

        figures = {"costs": report.cost_figure, "hours": report.curve_figure}
        figures |= {"calibration": report.calibration_figure}
        if what not in figures:
            raise ConfigError(f"plot: expected one of {', '.join(figures)}, got {what!r}")
        return figures[what](self)

    def _repr_html_(self) -> str:
        return card(self.verdict.headline, [*self.verdict.sentences, *self.notes], self.costs)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and text, for programs; `costs` is the table as it is printed."""
        return {
            "verdict": self.verdict.to_dict(),
            "known": self.known,
            "split": self.split,
            "train_cases": self.train_cases,
            "test_cases": self.test_cases,
            "folds": self.folds,
            "effective_cases": self.effective_cases,
            "capacity_share": self.capacity_share,
            "costs": _records(self.costs.rename_axis("policy").reset_index()),
            "savings": _records(self.savings.rename_axis("policy").reset_index()),
            "curve": _records(self.curve),
            "ratios": _records(self.ratios),
            "groups": {name: _records(table) for name, table in self.groups.items()},
            "hidden_reason": self._hidden(),
            "open": None if self.open is None else _records(self.open.rename_axis("policy").reset_index()),
            "received": _records(self.received.reset_index()),
            "agreement": self._agreement(),
            "notes": list(self.notes),
        }

    def _agreement(self) -> dict[str, Any] | None:
        if self.agreement is None:
            return None
        return {
            "overall": _records(self.agreement.overall),
            "kinds": {name: _records(table) for name, table in self.agreement.kinds.items()},
            "pairs": _records(self.agreement.pairs),
            "meeting": _records(self.agreement.meeting),
            "together": [] if self.agreement.together is None else _records(self.agreement.together.frame()),
        }

    def _hidden(self) -> dict[str, Any] | None:
        if self.hidden is None:
            return None
        ends = {"undoes": self.hidden.undoes, "undoes_interval": self.hidden.undoes_interval}
        return {
            "against": self.hidden.against,
            **{name: value if np.isfinite(value) else None for name, value in ends.items()},
            "table": _records(self.hidden.table),
        }


def collected(
    tested: Sequence[Tested],
    history: History,
    split: Split,
    options: Options,
    share: float,
    notes: tuple[str, ...],
    unit: str = "",
    agreement: Agreement | None = None,
) -> Backtest:
    """One result from all splits; `unit` is what costs are counted in."""
    one = _Together(tested, history, options)
    costs, savings = one.costs(), one.savings()
    people = len(history.log.experts)
    verdict = verdict_of(
        costs, savings, one.cases, worth=options.worth, effective=one.effective, experts=people, unit=unit
    )
    best = best_simple(costs)
    return Backtest(
        known=one.log is None,
        verdict=verdict,
        costs=costs,
        savings=savings,
        curve=one.curve(),
        ratios=one.ratios(best),
        groups=one.groups(),
        hidden=None if one.log is None else one.hidden(best or HISTORY),
        received=one.received(),
        plan=one.plan(),
        calibration=one.calibration(),
        notes=(*notes, *one.notes()),
        split=split.sentence(),
        capacity_share=share,
        roster=options.capacity is not None,
        train_cases=int(np.mean([(~mask).sum() for mask in split.folds])),
        test_cases=one.cases,
        folds=len(split.folds),
        classes=history.cases.classes,
        effective_cases=one.effective,
        agreement=agreement,
    )


def bounded(middle: Backtest, *ends: Backtest) -> Backtest:
    """The same where truths are open: bounds beside the middle, and a verdict only where all agree."""
    rows = {}
    for name in middle.costs.index:
        costs = pd.DataFrame([one.costs.loc[name] for one in (middle, *ends)])
        rows[name] = {"cost_low": costs["low"].min(), "cost_high": costs["high"].max()}
        if name in middle.savings.index:
            saved = pd.DataFrame([one.savings.loc[name] for one in (middle, *ends)])
            rows[name] |= {"saved_low": saved["low"].min(), "saved_high": saved["high"].max()}
    table = pd.DataFrame(rows).T.reindex(columns=["cost_low", "cost_high", "saved_low", "saved_high"])
    return replace(
        middle, open=table, verdict=open_verdict(middle.verdict, [one.verdict for one in ends], table)
    )


@dataclass(frozen=True, eq=False)
class _Together:
    """The test cases of all splits, one below the other."""

    tested: Sequence[Tested]
    history: History
    options: Options

    @cached_property
    def rows(self) -> Ints:
        """Positions of the test cases."""
        return np.concatenate([one.part.rows for one in self.tested])

    @property
    def cases(self) -> int:
        return len(self.rows)

    @cached_property
    def member(self) -> NDArray[Any] | None:
        """What belongs together, for intervals."""
        group = splitting_group(self.history.cases)
        return None if group is None else group.to_numpy()[self.rows]

    @cached_property
    def stands(self) -> Array:
        """How much each test case counts, 1 on average."""
        each = np.concatenate([one.part.stands for one in self.tested])
        return np.asarray(each / each.mean())

    @cached_property
    def truth(self) -> Ints:
        return np.concatenate([one.part.truth for one in self.tested])

    def cost_of(self, ratio: float = 1.0) -> Array:
        """(cases, K): what each decision costs, given the truth."""
        table = np.concatenate([of_truth(one.part.cost_table, one.part.truth) for one in self.tested])
        if ratio != 1.0:
            table[self.truth == 0, 1] *= ratio
        return table

    @cached_property
    def log(self) -> Log | None:
        logs = [one.log for one in self.tested if one.log is not None]
        return o.joined(logs) if logs else None

    @cached_property
    def traces(self) -> dict[Question, Trace]:
        return {q: o.joined([one.traces[q] for one in self.tested]) for q in self.tested[0].traces}

    @cached_property
    def outcomes(self) -> dict[Question, Outcome]:
        """What every policy decides, known or estimated."""
        found = {q: o.stacked([one.outcomes[q] for one in self.tested]) for q in self.tested[0].outcomes}
        for q, trace in self.traces.items():
            assert self.log is not None
            found[q] = self._sized(o.estimated(trace, self.log, self.cost_of(q.ratio)))
        if self.log is None:
            return found
        ours = self.traces[Question(OURS)]
        found[Question(IPS)] = o.by_inverse_propensity(ours, self.log, found[Question(OURS)])
        lots = self.log.by_lot
        if lots.sum() >= FEWEST_BY_LOT and not lots.all():
            found[Question(LOT)] = self._sized(o.estimated(ours, self.log, self.cost_of(), lots))
        return found

    @property
    def ours(self) -> Outcome:
        return self.outcomes[Question(OURS)]

    @property
    def effective(self) -> float | None:
        """Effective cases behind deccaf's estimate, over all splits; None where nothing is estimated."""
        if self.ours.logged is None or not self.ours.asked.any():
            return None
        return replace(self.ours.logged, weight=self.ours.logged.weight * self.stands).effective_cases()

    def mean(self, terms: Array, event: float = 0.0, below: float = 0.0, bias: float = 0.0) -> Estimate:
        """The mean over all that the test cases stand for: a ratio, whose terms are those of its slope."""
        middle = float((self.stands * terms).mean())
        counts = middle + self.stands * (terms - middle)
        return mean_with_interval(counts, self.member, self.options.confidence, event, below, bias)

    def _sized(self, found: Outcome) -> Outcome:
        """The same with events as large as the cases that stand for others make them."""
        if found.logged is None or not found.asked.any() or self.history.stands is None:
            return found
        weight, propensity = found.logged.weight * self.stands, found.logged.propensity / self.stands
        return replace(found, event=replace(found.logged, weight=weight, propensity=propensity).event())

    def cost(self, q: Question) -> Estimate:
        """Per 100 cases, never below 0."""
        found = self.outcomes[q]
        terms = found.cost(self.cost_of(q.ratio))
        return self.mean(terms, found.event, bias=found.bias).per_100(least=0.0)

    def saved(self, other: Question, mine: Question) -> Estimate:
        """What deccaf saves per 100 cases; both sides have the same allowance for rare events."""
        theirs, ours, of = self.outcomes[other], self.outcomes[mine], self.cost_of(mine.ratio)
        bias = float(np.hypot(theirs.bias, ours.bias))
        return self.mean(theirs.cost(of) - ours.cost(of), theirs.event, ours.event, bias).per_100()

    def costs(self) -> pd.DataFrame:
        rows = {}
        for q, found in self.outcomes.items():
            if q == Question(q.policy):
                one = self.cost(q)
                share = float((self.stands * found.asked).mean())
                rows[q.policy] = {"cost": one.value, "low": one.low, "high": one.high, "deferred": share}
        return pd.DataFrame(rows).T

    def savings(self) -> pd.DataFrame:
        mine, rows = Question(OURS), {}
        for q in self.outcomes:
            if q == Question(q.policy) and q.policy not in (OURS, IPS, LOT):
                one = self.saved(q, mine)
                rows[q.policy] = {"saved": one.value, "low": one.low, "high": one.high, "error": one.error}
        return pd.DataFrame(rows).T

    def curve(self) -> pd.DataFrame:
        rows = []
        for q, found in self.outcomes.items():
            if q.hours is not None:
                one, share = self.cost(q), float((self.stands * found.asked).mean())
                rows.append((q.hours, one.value, one.low, one.high, share))
        return pd.DataFrame(rows, columns=["hours", "cost", "low", "high", "deferred"])

    def ratios(self, best: str | None) -> pd.DataFrame:
        names = ["ratio", "cost", "against", "saved", "low", "high", "moved"]
        asked = sorted({q.ratio for q in self.outcomes} | {1.0})
        if len(asked) == 1 or best is None:
            return pd.DataFrame(columns=names)
        usual, rows = self._makers(1.0), []
        for ratio in asked:
            mine = Question(OURS, ratio=ratio)
            simple = {
                name: self.cost(Question(name, ratio=ratio)).value
                for name in SIMPLE
                if Question(name, ratio=ratio) in self.outcomes
            }
            other = min(simple, key=lambda name: simple[name])
            one = self.saved(Question(other, ratio=ratio), mine)
            moved = float((self.stands * (self._makers(ratio) != usual)).mean())
            rows.append((ratio, self.cost(mine).value, other, one.value, one.low, one.high, moved))
        return pd.DataFrame(rows, columns=names)

    def _makers(self, ratio: float) -> NDArray[Any]:
        """Who decides each case at a ratio of costs, in the first draw."""
        return np.concatenate([one.makers[ratio] for one in self.tested])

    def groups(self) -> dict[str, pd.DataFrame]:
        if self.history.stands is not None:
            return {}  # rates within groups would need cases let through in each of them
        table, found = self.history.cases.groups.iloc[self.rows], self.ours
        cost = found.cost(self.cost_of())
        size = 0.0 if found.logged is None else found.logged.usual()
        return {
            str(name): by_group(
                self.truth,
                found.decided,
                cost,
                table[name],
                member=self.member,
                confidence=self.options.confidence,
                event=size,
                cost_event=found.event,
            )
            for name in table
            if 1 < table[name].nunique(dropna=False) < MANY_GROUPS
        }

    def hidden(self, other: str) -> Hidden:
        """The saving in the worst case by the strength of an unseen reason."""
        assert self.log is not None
        theirs, of = self.outcomes[Question(other)], self.cost_of()
        rows = []
        for strength in STRENGTHS:
            most, least = (f(of, self.log.team, strength) for f in (upper_costs, lower_costs))
            terms = theirs.bound(of, least) - self.ours.bound(of, most)
            bias = float(np.hypot(theirs.bias, strength * self.ours.bias))
            one = self.mean(terms, theirs.event / strength, strength * self.ours.event, bias).per_100()
            rows.append((strength, one.value, one.low))
        table = pd.DataFrame(rows, columns=["strength", "saved", "low"])
        table[["saved", "low"]] = table[["saved", "low"]].cummin()  # a reason may be weaker than its bound
        strengths = np.array(STRENGTHS)
        return Hidden(
            other,
            strength_that_undoes(strengths, table["saved"].to_numpy()),
            strength_that_undoes(strengths, table["low"].to_numpy()),
            table,
        )

    def received(self) -> pd.DataFrame:
        tables = []
        for one in self.tested:
            makers = 1 + len(one.part.experts)
            given = np.mean([np.bincount(d.maker, one.part.stands, makers) for d, _ in one.plans], axis=0)
            upper = np.sum([room.upper for _, room in one.plans[0][1]], axis=0)
            tables.append(
                pd.DataFrame(
                    {"decided": one.part.loads, "capacity": upper[1:], "received": given[1:]},
                    index=pd.Index(one.part.experts, name="expert"),
                )
            )
        return pd.concat(tables).groupby(level=0).sum()

    def plan(self) -> pd.DataFrame:
        tables, terms = [], self.ours.cost(self.cost_of())
        start = 0
        for number, one in enumerate(self.tested, 1):
            stop = start + len(one.part.rows)
            for draw, (found, _) in enumerate(one.plans, 1):
                tables.append(_plan(one, found, number, draw).assign(term=terms[start:stop]))
                if self.ours.logged is not None:
                    people = found.maker > 0
                    weight = self.ours.logged.weight[start:stop]
                    tables[-1]["weight"] = np.where(people, weight, np.nan)
            start = stop
        return pd.concat(tables, ignore_index=True)

    def calibration(self) -> pd.DataFrame:
        """Every decision once: where there are draws, with its mean chance."""
        right = pd.concat([one.right for one in self.tested])
        return right.groupby("decision").agg({"expert": "first", "right": "first", "chance": "mean"})

    def notes(self) -> list[str]:
        found = self.ours.logged
        if found is None or self.effective is None:
            return []
        notes = [f"the estimate for deccaf rests on {self.effective:,.0f} effective cases given to people"]
        if np.isfinite(found.cap):
            notes.append(
                f"weights above {found.cap:.1f} were capped: predictions stand in for what is cut off, which "
                f"moves the estimate by about {100 * found.likely_bias:.2f} per 100 cases if they are as far "
                f"off there as elsewhere, and by at most {100 * found.bias_bound:.2f}"
            )
        if not found.overlaps():
            notes.append(
                f"no overlap: history reaches {found.reached():.0%} of what the plan gives to people; for "
                "the rest nobody like that ever got such a case, and the model's word is all there is"
            )
        return notes


def _plan(one: Tested, found: Decided, number: int, draw: int) -> pd.DataFrame:
    """deccaf's plan for the test cases of one split."""
    part, log = one.part, one.log
    makers = np.array([MACHINE, *part.experts], dtype=object)
    if log is None:
        said = o.known_table(part)[np.arange(len(part.rows)), np.maximum(found.maker - 1, 0)]
    else:
        said = np.where(log.who == found.maker - 1, log.decision, -1)
    decision = np.where(found.maker == 0, found.machine_says, said)
    known = decision >= 0
    of = of_truth(part.cost_table, part.truth)
    cost = of[np.arange(len(decision)), np.maximum(decision, 0)] + o.paid(part, found.maker)
    classes = pd.Series([*part.cases.classes, None], dtype=object)
    table = pd.DataFrame(
        {
            "case_id": part.cases.ids[part.rows],
            "split": number,
            "draw": draw,
            "maker": makers[found.maker],
            "decision": classes.iloc[decision].to_numpy(),
            "truth": classes.iloc[part.truth].to_numpy(),
            "cost": np.where(known, cost, np.nan),
            "propensity": np.nan if log is None else log.propensity,
        }
    ).convert_dtypes()
    groups = part.cases.groups.iloc[part.rows].reset_index(drop=True)
    return pd.concat([table, groups[[name for name in groups if name not in table]]], axis=1)


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows of plain values; what is missing is None."""
    plain = table.astype(object).where(table.notna(), None)
    return [
        {str(name): value.item() if isinstance(value, np.generic) else value for name, value in row.items()}
        for row in plain.to_dict(orient="records")
    ]
