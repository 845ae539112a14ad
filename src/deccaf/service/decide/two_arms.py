"""Plans while a trial runs: each arm's cases are planned by its own model and constraints.

Everybody's room is shared between the arms in proportion to their cases, by lot where that is no whole
number: neither arm gets the better people. As a shadow the candidate plans all cases too, and binds nobody.
The chance on record of whoever gets a case is that over both arms, at the prices of both plans.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.assign.constrained.random_quota import whole_numbers
from deccaf.data.capacity import UNLIMITED
from deccaf.data.config import ConstraintsTable, CostsTable
from deccaf.errors import CapacityError, DeccafError
from deccaf.planning.scored import Scored
from deccaf.service.decide.draft import Draft, InTrial, Ints, Timed, allowed
from deccaf.service.decide.drafting import (
    Waiting,
    check_constraints,
    make_draft,
    planned_draft,
    score,
    with_costs,
)
from deccaf.service.decide.registry import Model, Registry
from deccaf.service.ledger.trials import planned_arms
from deccaf.service.ledger.trials.planned_arms import PlannedArms
from deccaf.service.ledger.trials.trial_records import Trial

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Asked:
    """What a lead asks of a plan."""

    constraints: ConstraintsTable | None = None
    costs: CostsTable | None = None
    strict: bool = False
    lot: bool = True


def draft_plan(waiting: Waiting, models: Registry, asked: Asked) -> Draft:
    """The draft for the cases that wait: in one plan, or in the arms of the trial that runs."""
    today, trial = models.active, waiting.trial
    constraints = waiting.constraints if asked.constraints is None else asked.constraints
    own_losses = all(text is not None for text in waiting.given)
    in_force = today is not None and trial is not None and trial.model_id == today.id
    if today is None or trial is None or own_losses or (in_force and trial.constraints is None):
        return make_draft(waiting, today, constraints, asked.costs, asked.strict, asked.lot)
    candidate = today if trial.model_id == today.id else models.version(trial.model_id)
    check_constraints(constraints)
    if asked.costs is not None:
        today, candidate = (with_costs(one, asked.costs, waiting) for one in (today, candidate))
    own = constraints if trial.constraints is None else trial.constraints
    both = _Both(waiting, trial, today, candidate, constraints, own, asked)
    return both.shadow() if trial.state == "shadow" else both.in_arms()


@dataclass(frozen=True, eq=False)
class _Both:
    """Today's practice and a candidate, with the same cases."""

    waiting: Waiting
    trial: Trial
    today: Model
    candidate: Model
    constraints: ConstraintsTable | None
    own: ConstraintsTable | None
    """Of the candidate."""
    asked: Asked

    def shadow(self) -> Draft:
        """Today's plan, and beside it whom the candidate would choose."""
        waiting, asked = self.waiting, self.asked
        scored = score(waiting, self.today, self.constraints, asked.strict)
        draft = planned_draft(waiting, scored, self.today, self.constraints, asked.lot)
        try:
            theirs = score(waiting, self.candidate, self.own)
            other = planned_draft(waiting, theirs, self.candidate, self.own, False)
        except DeccafError as error:
            notes = [*draft.summary["notes"], f"the candidate has no plan for these cases: {error}"]
            return replace(draft, summary={**draft.summary, "notes": notes})
        chosen = _chosen(scored, theirs, draft.maker, other.maker)
        return replace(draft, in_trial=InTrial(self._arms(scored), prices=other.prices, **chosen))

    def in_arms(self) -> Draft:
        """Two plans, of the cases of each arm."""
        waiting, asked = self.waiting, self.asked
        beliefs = (
            score(waiting, self.today, self.constraints, asked.strict),
            score(waiting, self.candidate, self.own),
        )
        arms = self._arms(beliefs[0])
        rows = (np.flatnonzero(~arms.candidate), np.flatnonzero(arms.candidate))
        seed = [self.trial.seed, *sorted(arms.before.values())]
        rosters = shared(waiting.roster, len(rows[1]) / len(arms.candidate), np.random.default_rng(seed))
        drafts: list[Draft | None] = [None, None]
        sides = ((self.today, self.constraints), (self.candidate, self.own))
        for side, (model, constraints) in enumerate(sides):
            if len(rows[side]):
                part = waiting.part(rows[side], rosters[side])
                try:
                    mine = beliefs[side].take(rows[side])
                    drafts[side] = planned_draft(part, mine, model, constraints, asked.lot)
                except CapacityError as error:
                    whose = "the candidate's arm" if side else "today's arm"
                    raise CapacityError(
                        f"trial {self.trial.id}, {whose}: {error}; or end the trial"
                    ) from error
        return _merged(waiting, arms, beliefs, rows, drafts, self.today)

    def _arms(self, scored: Scored) -> PlannedArms:
        """Cases with losses of their own are in no arm."""
        least = np.where(np.isfinite(scored.loss), scored.loss, np.inf).min(axis=1)
        given = self.waiting.given
        losses = [None if text is not None else float(loss) for text, loss in zip(given, least, strict=True)]
        return planned_arms.draw(self.trial, self.waiting.places, losses)


def shared(roster: pd.DataFrame, share: float, rng: np.random.Generator) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Everybody's room for today's arm and for a candidate with this share of the cases.

    Both arms together have exactly what there is, and each has room for its cases where both have.
    """
    upper, lower = (roster[name].to_numpy(np.int64) for name in ("upper", "lower"))
    bounded = upper < UNLIMITED
    ours = np.where(bounded, _rounded(np.where(bounded, upper, 0) * share, rng), UNLIMITED)
    theirs = np.where(bounded, upper - ours, UNLIMITED)
    owed = np.minimum(_rounded(lower * share, rng), ours)
    rest = np.minimum(lower - owed, theirs)
    return roster.assign(upper=theirs, lower=rest), roster.assign(upper=ours, lower=owed)


def _rounded(share: Floats, rng: np.random.Generator) -> Ints:
    """Whole numbers around the shares whose means they are, and whose sum is off by less than one."""
    rest = np.ceil(share.sum()) - share.sum()
    return whole_numbers(np.append(share, rest), rng)[:-1]


def _chosen(
    today: Scored, candidate: Scored, maker: NDArray[np.integer[Any]], expert: NDArray[np.integer[Any]]
) -> dict[str, Any]:
    """Both choices, and what is expected of them."""
    each = np.arange(len(maker))
    return {
        "maker": np.asarray(maker, np.int64),
        "expert": np.asarray(expert, np.int64),
        "today_loss": today.loss[each, maker],
        "candidate_loss": candidate.loss[each, expert],
        "same_plan": candidate.loss[each, maker],
    }


def _merged(
    waiting: Waiting,
    arms: PlannedArms,
    beliefs: Sequence[Scored],
    rows: Sequence[Ints],
    drafts: Sequence[Draft | None],
    model: Model,
) -> Draft:
    """Both plans as one draft, in the order of the cases."""
    there = [(side, draft) for side, draft in enumerate(drafts) if draft is not None]
    first = there[0][1]
    prices = [first.prices if draft is None else draft.prices for draft in drafts]
    scored = beliefs[0]
    loss, objective, says = np.array(scored.loss), np.array(scored.objective), scored.says.copy()
    maker, lot = np.zeros(len(says), np.int32), np.full(len(says), -1, np.int64)
    own, other = np.ones(len(says)), np.zeros(len(says))
    choice = [_at_prices(waiting, beliefs[side], prices[side]) for side in (0, 1)]
    for side, draft in there:
        where = rows[side]
        loss[where], objective[where] = beliefs[side].loss[where], beliefs[side].objective[where]
        says[where], maker[where], lot[where] = beliefs[side].says[where], draft.maker, draft.lot
        own[where], choice[side][where] = draft.propensity, draft.maker
        other[where] = _by_other(drafts[1 - side], choice[1 - side][where], draft.maker)
    by_cost = all(belief.by_cost for belief in beliefs)
    merged = replace(
        scored, loss=loss, objective=loss if by_cost else objective, says=says, columns=None, opinions=None
    )
    summary = _summary([draft.summary for _, draft in there], arms)
    timed = None
    if waiting.waits is not None:
        columns, waited = waiting.waits.ordered(maker.astype(np.int64), merged.makers, np.zeros(len(maker)))
        timed = Timed.from_columns(columns, waiting.at)
        summary["waiting"] = waited.to_dict()
    return Draft(
        scored=merged,
        roster=waiting.roster,
        excluded=waiting.excluded,
        lot=lot,
        propensity=arms.chance * own + (1.0 - arms.chance) * other,
        maker=maker,
        objective=float(sum(draft.objective for _, draft in there)),
        gap=float(sum(draft.gap for _, draft in there)),
        prices=prices[0],
        summary=summary,
        model_id=model.id,
        labelled=np.array(waiting.labelled),
        pace=model.system.hourly(),
        seed=model.system.seed,
        waits=waiting.waits,
        timed=timed,
        in_trial=InTrial(arms, prices=prices[1], **_chosen(beliefs[0], beliefs[1], choice[0], choice[1])),
    )


def _at_prices(waiting: Waiting, scored: Scored, prices: Floats) -> Ints:
    """Whom an arm chooses for each case at the prices of its plan."""
    may = allowed(scored, waiting.excluded)
    return np.asarray(np.where(may, scored.objective + prices, np.inf).argmin(axis=1), np.int64)


def _by_other(draft: Draft | None, choice: Ints, maker: NDArray[np.integer[Any]]) -> Floats:
    """The chance that the other arm gives each case to the maker it has: by its plan, or by its lot."""
    same = np.asarray(choice == maker, np.float64)
    if draft is None or not (draft.lot >= 0).any():
        return same
    drawn = draft.lot[draft.lot >= 0]
    share, each = len(drawn) / len(draft.lot), np.bincount(drawn, minlength=len(draft.prices)) / len(drawn)
    return np.asarray((1.0 - share) * same + share * each[maker])


def _summary(parts: Sequence[dict[str, Any]], arms: PlannedArms) -> dict[str, Any]:
    """Both plans' summaries as one: sums, and everybody's cases and room together."""
    first, ours = dict(parts[0]), int(arms.candidate.sum())
    for name in (
        "cases",
        "cost",
        "machine_cost",
        "random_cost",
        "close_calls",
        "gap",
        "by_lot",
        "plain_cost",
    ):
        first[name] = sum(part[name] for part in parts)
    weight = [part["cases"] / first["cases"] for part in parts]
    first["makers"] = [_maker(rows, weight) for rows in zip(*[part["makers"] for part in parts], strict=True)]
    told = dict.fromkeys(note for part in parts for note in part["notes"])
    said = (
        f"trial {arms.trial_id}: {ours:,} of {len(arms.candidate):,} cases go by the candidate, by lot, with "
    )
    first["notes"] = [*told, said + "their share of everybody's room"]
    first["warnings"] = [one for part in parts for one in part["warnings"]]
    first["cost_interval"] = None
    limits = [row for part in parts for row in part.get("constraints") or []]
    first |= {"constraints": limits} if limits else {}
    lots = [part["lot"] for part in parts if part["lot"]]
    if lots:
        sums = {name: sum(lot[name] for lot in lots) for name in ("cases", "cost", "even")}
        first["lot"] = {**lots[0], **sums, "drawn": any(lot["drawn"] for lot in lots)}
    return first


def _maker(rows: Sequence[dict[str, Any]], weight: Sequence[float]) -> dict[str, Any]:
    def total(name: str, weights: Sequence[float]) -> float | None:
        values = [row[name] for row in rows]
        if any(value is None for value in values):
            return None
        return float(sum(value * by for value, by in zip(values, weights, strict=True)))

    ones = [1.0] * len(rows)
    capacity = total("capacity", ones)
    return {
        **rows[0],
        "cases": sum(row["cases"] for row in rows),
        "capacity": capacity,
        "price": total("price", weight),
        "next_hour": total("next_hour", weight),
    }
