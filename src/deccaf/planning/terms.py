"""The terms of a plan: what errors cost and what it costs to ask people, and how a what-if changes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from deccaf.data.costs import Cost, Costs
from deccaf.data.review import EVERYONE, Price, ReviewCost, plain_review, prices
from deccaf.errors import ConfigError, did_you_mean

PREFIX = "costs."
"""What names of changed costs begin with; any other name is a maker's."""
_ERRORS = {"false_positive": (0, 1), "false_negative": (1, 0)}
_MOST_LISTED = 6


@dataclass(frozen=True, eq=False)
class Terms:
    """What errors and reviews cost."""

    costs: Costs
    review_cost: ReviewCost = 0.0
    """As `deccaf.data.review` has it."""

    def words(self) -> str:
        """For people, on one line."""
        unit = f" ({self.costs.unit})" if self.costs.unit else ""
        return f"{', '.join(self._errors())}; {self._reviews()}{unit}"

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and names, for JSON."""
        return {**self.costs.to_dict(), "review_cost": plain_review(self.review_cost)}

    def changed(self, changes: Mapping[str, str]) -> Terms:
        """Other costs by name.

        `costs.false_positive`, `costs.false_negative`, `costs.TRUTH.DECISION`, `costs.review_cost` and
        `costs.review_cost.NAME`, each a number.
        """
        terms = self
        for name, text in changes.items():
            terms = terms._with(name.removeprefix(PREFIX), name, _number(name, text))
        return terms

    def _with(self, key: str, name: str, value: float) -> Terms:
        if key == "review_cost":
            return replace(self, review_cost=self._with_everyone(value))
        if key.startswith("review_cost."):
            return self._with_review(key.removeprefix("review_cost."), value)
        cells = [list(row) for row in self.costs.cells]
        y, m = self._cell(key, name)
        cells[y][m] = value
        return replace(self, costs=replace(self.costs, cells=tuple(tuple(row) for row in cells)))

    def _with_review(self, person: str, value: float) -> Terms:
        paid = self.review_cost
        if not isinstance(paid, Mapping):
            if paid:
                raise ConfigError(
                    f"what if costs.review_cost.{person}: everybody's review costs {Price.of(paid).words()}; "
                    "change costs.review_cost, or give [costs] review_cost by name"
                )
            paid = {}
        return replace(self, review_cost={**paid, person: value})

    def _with_everyone(self, value: float) -> ReviewCost:
        """One number for everybody; where there is a price for anyone not named, names keep their own."""
        paid = self.review_cost
        if isinstance(paid, Mapping) and EVERYONE in paid:
            return {**paid, EVERYONE: value}
        return value

    def _cell(self, key: str, name: str) -> tuple[int, int]:
        """The truth and the decision that a name stands for, as positions."""
        names = [str(one) for one in self.costs.classes]
        known = {f"{t}.{d}": (y, m) for y, t in enumerate(names) for m, d in enumerate(names) if y != m}
        if len(names) == 2:
            known |= _ERRORS
        if key not in known:
            listed = ", ".join(f"costs.{one}" for one in ["review_cost", *reversed(known)][:_MOST_LISTED])
            raise ConfigError(f"what if {name}: no such cost; there are {listed}{did_you_mean(key, known)}")
        return known[key]

    def _errors(self) -> list[str]:
        costs = self.costs
        if len(costs.classes) == 2:
            found = [
                f"{name.replace('_', ' ')} {_shown(costs.cells[y][m])}" for name, (y, m) in _ERRORS.items()
            ]
        else:
            cells = [
                f"{decided} for {truth} {_shown(costs.cells[y][m])}"
                for y, truth in enumerate(costs.classes)
                for m, decided in enumerate(costs.classes)
                if y != m
            ]
            more = len(cells) - _MOST_LISTED
            found = cells[:_MOST_LISTED] + ([f"and {more} more"] if more > 0 else [])
        return [*found, f"times column {costs.scale!r}"] if costs.scale else found

    def _reviews(self) -> str:
        paid, free = prices(self.review_cost), Price()
        other = paid.pop(EVERYONE, free)
        rest = "free" if other in (free, Price(0.0)) else other.words()
        each = [f"{name} {price.words()}" for name, price in paid.items() if price != other]
        if not each:
            return "reviews are free" if rest == "free" else f"a review {rest}"
        more = len(each) - _MOST_LISTED
        listed = ", ".join(each[:_MOST_LISTED]) + (f" and {more} more" if more > 0 else "")
        return f"a review by {listed}, by anyone else {rest}"


def _shown(cost: Cost) -> str:
    return f"column {cost!r}" if isinstance(cost, str) else f"{cost:g}"


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"what if {name}={text}: expected a number such as 0.1") from None
