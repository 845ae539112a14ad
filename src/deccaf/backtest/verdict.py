"""What to make of a backtest, said once: a gain, no gain, or that these data cannot tell.

- *gain*: the interval of the saving lies above 0.
- *no gain*: the interval lies below the least gain worth having (`Options.worth`, a share of what the
  alternative costs).
- *cannot tell*: neither, or the estimate rests on fewer than `FEWEST` effective cases. How many more test
  cases would tell follows from the interval, whose length falls with their square root.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import pandas as pd

from deccaf.backtest.policies import BLIND
from deccaf.data.amounts import cost
from deccaf.evaluate.off_policy import FEWEST

Kind = Literal["gain", "no gain", "cannot tell"]

HISTORY = "as it was"
SIMPLE = ("machine", "random", "full-rejection")
"""What one would do without deccaf."""
OURS = "deccaf"


@dataclass(frozen=True)
class Comparison:
    """deccaf against one alternative; amounts are per 100 cases."""

    other: str
    kind: Kind
    saved: float
    low: float
    high: float
    cost: float
    """Of the alternative."""
    worth: float
    """The least saving worth having."""
    effective_cases: float | None
    """What the estimate rests on; None where outcomes are known."""
    more_cases: int | None
    """How many more test cases would tell, where these cannot."""
    unit: str = ""
    """What costs are counted in; empty: nobody has named it."""

    @property
    def amounts(self) -> str:
        """The saving with its interval."""
        return f"{cost(self.saved, self.unit, 2)} per 100 ({self.low:.2f} to {self.high:.2f})"

    @property
    def why_not(self) -> str:
        """Why these data cannot tell, and what could."""
        more = "" if self.more_cases is None else f"; about {self.more_cases:,} more test cases would tell"
        if self.effective_cases is not None and self.effective_cases < FEWEST:
            return (
                f"it rests on {self.effective_cases:.0f} effective cases, and {FEWEST:.0f} are needed{more}"
            )
        return f"a gain worth having is {cost(self.worth, self.unit, 2)} or more{more}"


@dataclass(frozen=True)
class Verdict:
    """The one statement of what was found, for every page, file and program."""

    kind: Kind
    """Against the best that one would do without deccaf."""
    sentences: tuple[str, ...]
    comparisons: tuple[Comparison, ...]
    """Against the best without it, against what really happened, and against asking whoever has room."""
    cost: float
    low: float
    high: float
    unit: str = ""
    """What costs are counted in; empty: nobody has named it."""

    @property
    def headline(self) -> str:
        """The finding in one sentence."""
        return self.sentences[min(1, len(self.sentences) - 1)]

    def against(self, other: str) -> Comparison | None:
        """The comparison with one alternative."""
        return next((one for one in self.comparisons if one.other == other), None)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and text, for programs."""
        return {
            name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()
        }


def compare(
    other: str,
    saving: pd.Series,
    its_cost: float,
    cases: int,
    *,
    worth: float,
    effective: float | None = None,
    unit: str = "",
) -> Comparison:
    """Which of the three it is; `saving` has `saved`, `low` and `high`."""
    saved, low, high = (float(saving[name]) for name in ("saved", "low", "high"))
    least = worth * its_cost
    few = effective is not None and effective < FEWEST
    kind: Kind = "cannot tell"
    if not few and high < least:
        kind = "no gain"
    elif not few and low > 0:
        kind = "gain"
    more = None
    if kind == "cannot tell":
        tells_gain = (saved - low) / saved if saved > 0 else math.inf
        tells_none = (high - saved) / (least - saved) if saved < least else math.inf
        needed = cases * min(tells_gain, tells_none) ** 2
        if few and effective:
            needed = max(needed, cases * FEWEST / effective)
        more = _rounded(needed - cases) if math.isfinite(needed) and effective != 0 else None
    return Comparison(other, kind, saved, low, high, its_cost, least, effective, more, unit)


def verdict_of(
    costs: pd.DataFrame,
    savings: pd.DataFrame,
    cases: int,
    *,
    worth: float,
    effective: float | None,
    experts: int = 2,
    unit: str = "",
) -> Verdict:
    """The verdict from the costs by policy and the savings against each; one expert leaves no choice."""

    def against(name: str) -> Comparison:
        theirs = float(costs["cost"][name])
        return compare(name, savings.T[name], theirs, cases, worth=worth, effective=effective, unit=unit)

    mine = costs.loc[OURS]
    sentences = [
        f"deccaf: {cost(mine['cost'], unit, 2)} per 100 cases ({mine['low']:.2f} to {mine['high']:.2f})."
    ]
    found: list[Comparison] = []
    best = best_simple(costs)
    if best is not None:
        found.append(against(best))
        sentences.append(_best(found[-1]))
    past = against(HISTORY)
    found.append(past)
    sentences.append(_past(past))
    if BLIND in savings.index and experts > 1:
        found.append(against(BLIND))
        sentences.append(_among(found[-1]))
    return Verdict(
        found[0].kind,
        tuple(sentences),
        tuple(found),
        cost=float(costs["cost"][OURS]),
        low=float(costs["low"][OURS]),
        high=float(costs["high"][OURS]),
        unit=unit,
    )


def open_verdict(middle: Verdict, ends: Sequence[Verdict], table: pd.DataFrame) -> Verdict:
    """The verdict where truths are open: what all they may be agree on, and bounds instead of a number."""
    kind: Kind = middle.kind if all(one.kind == middle.kind for one in ends) else "cannot tell"
    mine, other = table.loc[OURS], middle.comparisons[0].other
    saved = table.loc[other]
    tells = "" if kind != "cannot tell" else ": whether that is a gain cannot be told without their truth"
    sentences = (
        f"deccaf: {mine['cost_low']:.2f} to {cost(mine['cost_high'], middle.unit, 2)} per 100 cases; "
        "nobody saw the truth of rejected cases, so costs can only be bounded.",
        f"It saves {saved['saved_low']:.2f} to {cost(saved['saved_high'], middle.unit, 2)} per 100 against "
        f"{other}{tells}.",
        "With the truths in the middle of what is possible:",
    )
    return replace(
        middle,
        kind=kind,
        sentences=(*sentences, *middle.sentences),
        low=float(table["cost_low"][OURS]),
        high=float(table["cost_high"][OURS]),
    )


def best_simple(costs: pd.DataFrame) -> str | None:
    """The cheapest that one would do without deccaf."""
    simple = [name for name in SIMPLE if name in costs.index]
    return min(simple, key=lambda name: float(costs["cost"][name])) if simple else None


def _best(found: Comparison) -> str:
    if found.kind == "gain":
        share = found.saved / found.cost if found.cost > 0 else 0.0
        return f"It saves {share:.0%} against {found.other}, the best without it: {found.amounts}."
    if found.kind == "no gain":
        return (
            f"No gain over {found.other}, the best without it: the difference is {found.amounts}, and a gain "
            f"worth having would be {cost(found.worth, found.unit, 2)}."
        )
    return (
        f"Cannot tell whether it saves anything against {found.other}, the best without it: the difference "
        f"is {found.amounts}; {found.why_not}."
    )


def _past(found: Comparison) -> str:
    start = f"Against what really happened, with people on every case, the difference is {found.amounts}"
    end = {
        "gain": ": a gain",
        "no gain": ": no gain worth having",
        "cannot tell": f"; these data cannot tell whether that is a gain ({found.why_not})",
    }
    return f"{start}{end[found.kind]}."


def _among(found: Comparison) -> str:
    if found.kind == "gain":
        return f"Choosing among the experts, and not just when to ask one, saves {found.amounts}."
    if found.kind == "no gain":
        return (
            "No gain from choosing among the experts: giving each case to whoever has room costs the same "
            f"(difference {found.amounts}, and a gain worth having would be "
            f"{cost(found.worth, found.unit, 2)})."
        )
    return (
        f"Cannot tell whether choosing among the experts saves anything: the difference is {found.amounts}; "
        f"{found.why_not}."
    )


def _rounded(count: float) -> int | None:
    """Two digits are all that such a number deserves."""
    if count <= 0:
        return None
    unit = 10 ** max(math.floor(math.log10(count)) - 1, 0)
    return int(math.ceil(count / unit) * unit)
