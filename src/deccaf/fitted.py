"""A fitted model: score new cases, plan who decides them, explain, save and load.

All that needs no learning, and no scikit-learn: `deccaf assign` and its like start in a third of the time.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import pandas as pd
import pyarrow.parquet
from numpy.typing import ArrayLike, NDArray

import deccaf
from deccaf.assign import Opinions, solve
from deccaf.cluster import Workers, workers_of
from deccaf.data.capacity import Capacity
from deccaf.data.cases import Cases
from deccaf.data.config import ConstraintsTable, LabelsTable, WaitingTable
from deccaf.data.costs import MACHINE, Costs
from deccaf.data.decisions import Decisions
from deccaf.data.files import CHUNK_ROWS
from deccaf.data.fingerprint import fingerprint
from deccaf.data.frames import as_pandas, default_names, same_kind
from deccaf.data.history import per_row
from deccaf.data.makers import Maker, machines_of, read_makers, score_columns, with_machines
from deccaf.data.names import names_of
from deccaf.data.notebook import card
from deccaf.data.review import ReviewCost, plain_review, prices, review_columns, review_costs, with_prices
from deccaf.data.schema import Columns, Schema
from deccaf.data.sources import sources
from deccaf.data.staffing import StaffingTable
from deccaf.data.values import class_codes
from deccaf.errors import ConfigError, DataError, ModelFileError, did_you_mean
from deccaf.evaluate.drift import Comparison
from deccaf.evaluate.measures import reliability
from deccaf.evaluate.people import People
from deccaf.models.decisions.model import DecisionModel
from deccaf.models.methods import METHODS, Learned, Scores
from deccaf.models.model_file import read_model_file, write_model_file
from deccaf.models.protocols import CasePart, DecisionPart
from deccaf.models.texts.spaces import spaces_from_dict, spaces_to_dict
from deccaf.optional import drawn
from deccaf.planning.advised import advised, answered, check_advice
from deccaf.planning.constraints import needs_opinions, read_constraints, read_table
from deccaf.planning.explain import Explanation, explain_case
from deccaf.planning.intake import Chunk, Intake
from deccaf.planning.intervals import can_tell, with_intervals
from deccaf.planning.large import LargePlan
from deccaf.planning.onboarding import Stakes, best_others, propose
from deccaf.planning.plan import Plan
from deccaf.planning.planner import make_plan, roster_notes
from deccaf.planning.scored import Parts, Scored, no_scores, trusted
from deccaf.planning.scratch import Scratch, check_room, open_scratch, room_for, stamps
from deccaf.planning.terms import Terms
from deccaf.planning.waiting import Waits, read_waits
from deccaf.planning.what_if import Scenario, WhatIf, WhatIfs, what_ifs
from deccaf.progress import Step, silent
from deccaf.threads import one_thread
from deccaf.tracing import traced

if TYPE_CHECKING:
    from deccaf.planning.staffing import Staffing

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

CELLS = 4_000_000
"""Losses (cases x makers), or features, that are scored at once."""
LARGE = 40_000_000
"""Losses of a file of cases beyond which they are kept in files: a third of a gigabyte..."""
BEARABLE = 125_000_000
"""...unless there is no room for files, or an order of work to plan, up to a gigabyte."""


class FittedTeam:
    """What was learned of a team, and plans by it; `DeCCaF`, which has the parameters, adds the learning."""

    costs_: Costs
    classes_: NDArray[Any]
    columns_: Columns
    schema_: Schema
    learned_: Learned
    experts_: tuple[str, ...]
    pace_: Mapping[str, float]
    training_: dict[str, Any]
    n_features_in_: int
    feature_names_in_: NDArray[Any]

    def __init__(
        self,
        costs: Costs | None = None,
        *,
        method: str = "deccaf",
        budget: str = "quick",
        review_cost: ReviewCost = 0.0,
        half_life: Any = None,
        categorical: Sequence[str] = (),
        columns: Columns | None = None,
        selective: Literal["positive"] | Sequence[int | str] = (),
        case_parts: Sequence[str | CasePart] = ("logistic", "boosted"),
        decision_parts: Sequence[str | DecisionPart] = ("rates", "pooled", "boosted"),
        makers: Mapping[str, Maker | Mapping[str, Any]] | None = None,
        seed: int = 0,
    ) -> None:
        self.costs = costs
        self.method = method
        self.budget = budget
        self.review_cost = review_cost
        self.half_life = half_life
        self.categorical = categorical
        self.columns = columns
        self.selective = selective
        self.case_parts = case_parts
        self.decision_parts = decision_parts
        self.makers = makers
        self.seed = seed

    def with_costs(
        self,
        costs: Costs,
        review_cost: ReviewCost | None = None,
        makers: Mapping[str, Maker | Mapping[str, Any]] | None = None,
    ) -> Self:
        """The same fitted model with other costs (and other prices and limits of machines): nothing is
        learned anew."""
        self._check_fitted()
        if costs.classes != self.costs_.classes:
            raise ConfigError(
                f"costs: classes {list(costs.classes)}, but the model knows {list(self.costs_.classes)}"
            )
        if not self.learned_.any_costs and costs.to_dict() != self.costs_.to_dict():
            raise ConfigError(
                f"costs: a model of method {self.method!r} is trained for its costs; fit it again with these"
            )
        other = copy.copy(self)
        other.costs = other.costs_ = costs
        if review_cost is not None:
            other.review_cost = review_cost
        if makers is not None:
            other.makers = makers
        other._check_settings()
        return other

    def observe(self, X: Any, y: ArrayLike, *, expert: Any, decision: Any) -> Self:
        """The same model after a few more decisions on cases with a known truth; nothing is fitted again.

        A newcomer counts at once: what was learned of the team is what is expected of them beforehand, and
        each decision moves it. One row of X, truth, expert and decision each. Decisions of somebody whom the
        model was fitted on must be new ones.
        """
        _, features, _ = self._read(X)
        rows = len(features)
        truth, said = self._codes(y, rows, "y"), self._codes(decision, rows, "decision")
        who = per_row(expert, rows, "expert")
        assert who is not None
        other = copy.copy(self)
        other.learned_ = self.learned_.observed(features, truth, names_of(who).tolist(), said)
        other.experts_ = other.learned_.experts
        return other

    def onboard(
        self,
        X: Any,
        y: ArrayLike,
        expert: str,
        *,
        new: Any = None,
        capacity: Capacity | Mapping[str, int] | None = None,
        count: int = 10,
    ) -> pd.DataFrame:
        """Which of these labelled cases tell most about a newcomer, under the costs and the plan.

        `new` are the cases to plan (by default the same), `capacity` is the roster with the newcomer on it
        (by default everybody that was learned from, without limits). One row per proposed case, the most
        telling first: `case_id`, `label`, and `saves`, what knowing this answer and those before is expected
        to save per 100 cases of the plan. `observe` then takes the answers.
        """
        ids, features, _ = self._read(X)
        truth = self._codes(y, len(features), "y")
        known = np.flatnonzero(truth >= 0)
        team = self.learned_.decisions
        if not isinstance(team, DecisionModel) or not len(known):
            raise ConfigError(
                "onboard: needs a model of method 'deccaf' that learned from decisions, and labelled cases"
            )
        stakes = self._stakes(X if new is None else new, expert, capacity)
        found = propose(team, expert, features.iloc[known], truth[known], stakes, count)
        rows = known[found.rows]
        return pd.DataFrame({"case_id": ids[rows], "label": self.classes_[truth[rows]], "saves": found.saves})

    def expected_loss(self, X: Any, experts: Sequence[str] | None = None) -> Any:
        """Cases x makers: what it is expected to cost to let the machine, or each expert, decide.

        The same kind of frame and the same index as X. `experts` asks for other people than those learned
        from; anyone never seen is the team's average.
        """
        found = self.scored(X, self.experts_ if experts is None else experts)
        return _like(X, pd.DataFrame(found.loss, columns=list(found.makers)), found.ids)

    def assign(
        self,
        X: Any,
        capacity: Capacity | Mapping[str, int],
        batch: Any = None,
        *,
        constraints: ConstraintsTable | Mapping[str, Any] | None = None,
        waiting: WaitingTable | Mapping[str, Any] | None = None,
        start: Any = None,
        advice: bool = False,
        answers: Any = None,
        intervals: bool = True,
        strict: bool = False,
        time_limit: float = 60.0,
        scratch: str | Path | None = None,
        cluster: str | None = None,
        step: Step = silent,
    ) -> Plan:
        """Say for every case who should decide it, within everyone's limits, at least expected cost.

        X is a table, checked `Cases`, or the path of a file. The roster may name people never seen (the
        team's average) and leave people out (they get nothing). `batch` names the batch of each case, whose
        limits the capacity must have; `Cases` and files bring their own. `constraints` come beside the
        limits, as a `[constraints]` table has them; `plan.constraints` tells what each costs. Where the cases
        have `due` or `waiting_cost`, or `waiting` says as a `[waiting]` table does what waiting costs, the
        plan says in which order everybody works, and the whole of errors and waiting is least; everybody
        begins at `start` (where due times are dates: now, unless said). `intervals`
        adds how sure the losses of people are. Cases unlike those learned from are named in
        `plan.summary.warnings`, and with `strict` they are a `DriftError`. `step` hears what is being done.

        With `advice` the plan says which machine to ask first on which cases, where its answer is worth its
        price before it is decided who decides (column `advice`; `plan.summary.advice` compares it with the
        plan without). `answers` are such answers once they are there: a table with `case_id`, `expert_id` and
        `decision`, or a file of it. What the truth is and how others decide is then believed with them.

        The losses of a file, or folder of parquet files, of many cases are kept in files while the plan is
        made (`deccaf.planning.LargePlan`): in a temporary folder, or in `scratch`, where they stay, so that
        the next run of the same does not score again. The plan is the same as in memory.

        With a `cluster` (`local:N`, or the address of a Dask scheduler, whose workers see `scratch`) its
        workers score, and look through the losses for the solver; the plan is the same to the last bit.
        """
        asked = None if constraints is None else read_constraints(constraints)
        urgency = None if waiting is None else read_table(waiting, WaitingTable, "waiting")
        limits = capacity if isinstance(capacity, Capacity) else Capacity.of(capacity)
        if cluster is not None and scratch is None:
            raise ConfigError("cluster: needs scratch (--scratch), a folder that all workers see")
        bought = None if answers is None else self._bought(answers)
        if advice or bought is not None:
            check_advice(asked, urgency, scratch)
        kept, held = self._scratch(X, limits, scratch, asked, urgency)
        with workers_of(cluster) as workers:
            scored, limits = self.believed(
                X,
                limits,
                batch,
                constraints=asked,
                waiting=urgency,
                strict=strict,
                step=step,
                scratch=kept,
                workers=workers,
                opinions=advice or bought is not None,
            )
            scored = scored if bought is None else answered(scored, bought)
            step("Planning")
            plan = make_plan(
                scored,
                limits,
                constraints=asked,
                pace=self.hourly(),
                time_limit=time_limit,
                seed=self.seed,
                waiting=self.waits(urgency, asked, start),
            )
        if advice:
            plan = advised(plan, scored, limits)
        ids = scored.ids
        del scored  # the losses have served
        if intervals and bought is None:
            plan = self._with_intervals(plan, X, step)
        if isinstance(plan, LargePlan):
            return plan.changed(held=held)
        return replace(plan, table=_like(X, plan.table, ids))

    def _bought(self, answers: Any) -> Decisions:
        """Answers of machines, checked."""
        if isinstance(answers, str | Path):
            return Decisions.read(answers, classes=self.costs_.classes)
        return Decisions.from_frame(as_pandas(answers), classes=self.costs_.classes)

    def _scratch(
        self,
        X: Any,
        capacity: Capacity,
        given: str | Path | None,
        constraints: ConstraintsTable | None,
        waiting: WaitingTable | None,
    ) -> tuple[Scratch | None, Any]:
        """Where losses are kept, if there are too many for memory or a folder is given; and what holds it."""
        twice = isinstance(X, str | Path) and not _read_once(X)
        if given is None and (constraints is not None or not twice):
            return None, None
        if not twice:
            raise ConfigError("scratch: is for cases in a file or folder, which can be read twice")
        self._check_fitted()
        capacity, _ = self._with_machines(capacity)
        experts = [name for name in capacity.makers if name != MACHINE]
        cells = known_length(X) * (1 + len(experts))
        if given is None and cells <= LARGE:
            return None, None
        if given is None and cells <= BEARABLE:
            ordered = waiting is not None or has_columns(X, self.columns_.waiting.values())
            if ordered or not room_for(8.0 * cells):
                return None, None
        mark = ""
        if given is not None:
            files = stamps([source.path for source in sources(X)])
            costs = (self.costs_.to_dict(), plain_review(self.terms.review_cost))
            pieces = (CELLS, CHUNK_ROWS)  # kept scores go by the number of their piece
            mark = fingerprint(deccaf.__version__, self.learned_.to_dict(), costs, experts, files, pieces)
        kept, held = open_scratch(given, mark, 1 + len(experts), len(self.classes_))
        check_room(kept.folder, 8.0 * cells)
        return kept, held

    def what_if(
        self,
        X: Any,
        capacity: Capacity | Mapping[str, int],
        changes: Mapping[str, str],
        batch: Any = None,
        **options: Any,
    ) -> WhatIf:
        """The plan as it is and in one scenario; `changes` and `options` are those of `what_ifs`."""
        return self.what_ifs(X, capacity, [changes], batch, **options).answers[0]

    def what_ifs(
        self,
        X: Any,
        capacity: Capacity | Mapping[str, int],
        scenarios: Sequence[Mapping[str, str]],
        batch: Any = None,
        *,
        constraints: ConstraintsTable | Mapping[str, Any] | None = None,
        waiting: WaitingTable | Mapping[str, Any] | None = None,
        start: Any = None,
        strict: bool = False,
        time_limit: float = 60.0,
        step: Step = silent,
    ) -> WhatIfs:
        """The plan as it is, and in every scenario.

        A scenario is changes by maker ("+10", "-5", or "40" to set it; people who are not on the roster come
        to it) and by cost (`costs.false_positive`, `costs.review_cost`, ...: a number).
        """
        rules = None if constraints is None else read_constraints(constraints)
        urgency = None if waiting is None else read_table(waiting, WaitingTable, "waiting")
        limits, notes = self._with_machines(capacity)

        def score(terms: Terms, experts: Sequence[str]) -> Scored:
            model = self.with_costs(terms.costs, terms.review_cost)
            scored = model.scored(X, experts, constraints=rules, waiting=urgency, step=step)
            scored = replace(scored, machines=self._machine_minutes(limits), notes=(*notes, *scored.notes))
            return _in_batches(trusted(scored, strict), batch)

        return what_ifs(
            score,
            self.terms,
            limits,
            [Scenario({name: str(change) for name, change in asked.items()}) for asked in scenarios],
            self.experts_,
            constraints=rules,
            pace=self.hourly(),
            time_limit=time_limit,
            seed=self.seed,
            waiting=self.waits(urgency, rules, start),
        )

    def staff(
        self,
        X: Any,
        staffing: StaffingTable | Mapping[str, Any],
        *,
        dates: Any = None,
        kind: Any = None,
        lessons: int = 5,
        precision: float = 0.003,
        step: Step = silent,
    ) -> Staffing:
        """How many hours of whom next week: the roster of least wages and errors, and whom to train in what.

        X are the cases of past weeks, a table, checked `Cases` or the path of a file; `staffing` is what a
        `[staffing]` table says: wages, who can be had how long, a budget. `dates` says when each case came,
        and `kind` what kind it is of, one value per row; `Cases` and files bring their own times, and the
        column that `staffing` names as the kind. The answer is within a share `precision` of the best.
        """
        from deccaf.planning.staffing import named_column, staffed

        self._check_fitted()
        table = read_table(staffing, StaffingTable, "staffing")
        if isinstance(X, str | Path):
            roles = self.columns_.model_copy(update={"group": (table.kind,) if table.kind else ()})
            optional = ("label", "time")
            X = Cases.read(X, columns=roles, costs=self.costs_, schema=self.schema_, optional=optional)
        if isinstance(X, Cases) and dates is None:
            dates = X.time
        if kind is None and table.kind:
            kind = named_column(X, table.kind, "[staffing] kind")
        known = machines_of(read_makers(self.makers))
        machines = {name: one.limit for name, one in known.items() if name in self.experts_}
        scored = self.scored(X, [*table.people(self.experts_, machines), *machines], step=step)
        when = per_row(dates, len(scored.ids), "dates")
        of = per_row(kind, len(scored.ids), "kind")
        options: dict[str, Any] = {"lessons": lessons, "precision": precision, "seed": self.seed}
        options["machines"] = machines
        return staffed(scored, table, self.hourly(), dates=when, kind=of, step=step, **options)

    def waits(
        self,
        waiting: WaitingTable | None = None,
        constraints: ConstraintsTable | None = None,
        start: Any = None,
    ) -> Callable[[Scored], Waits | None]:
        """What waiting costs, as `make_plan` asks for it."""
        return lambda scored: read_waits(scored, self.columns_, waiting, constraints, self.hourly(), start)

    def believed(
        self,
        X: Any,
        capacity: Capacity | Mapping[str, int],
        batch: Any = None,
        *,
        constraints: ConstraintsTable | None = None,
        waiting: WaitingTable | None = None,
        score: bool = True,
        strict: bool = False,
        step: Step = silent,
        scratch: Scratch | None = None,
        workers: Workers | None = None,
        opinions: bool = False,
    ) -> tuple[Scored, Capacity]:
        """All that `make_plan` needs: what is believed of the cases, for the people of the roster.

        Without `score` every loss is 0: enough to check that a plan exists.
        """
        limits, notes = self._with_machines(capacity)
        experts = [name for name in limits.makers if name != MACHINE]
        options: dict[str, Any] = {
            "constraints": constraints,
            "waiting": waiting,
            "score": score,
            "step": step,
        }
        options |= {"scratch": scratch, "workers": workers, "opinions": opinions}
        scored = trusted(self.scored(X, experts, **options), strict)
        said = (*roster_notes(self.experts_, limits), *notes, *scored.notes)
        machines = self._machine_minutes(limits)
        return replace(_in_batches(scored, batch), notes=said, machines=machines), limits

    def _with_machines(self, capacity: Capacity | Mapping[str, int]) -> tuple[Capacity, list[str]]:
        """The roster with all machines that were learned from, and what to say about it."""
        self._check_fitted()
        limits = capacity if isinstance(capacity, Capacity) else Capacity.of(capacity)
        return with_machines(limits, read_makers(self.makers), self.experts_)

    def _machine_minutes(self, capacity: Capacity) -> dict[str, float]:
        """Minutes of a case by machine, of those on the roster."""
        known = machines_of(read_makers(self.makers))
        return {name: known[name].minutes if name in known else 0.0 for name in sorted(capacity.machines)}

    def hourly(self) -> dict[str, float]:
        """Cases an hour of everybody who has hours, where the log has seconds: machines have none."""
        machines = machines_of(read_makers(self.makers))
        return {name: pace for name, pace in self.pace_.items() if name not in machines}

    @traced("score")
    def scored(
        self,
        X: Any,
        experts: Sequence[str],
        *,
        constraints: ConstraintsTable | None = None,
        waiting: WaitingTable | None = None,
        score: bool = True,
        step: Step = silent,
        scratch: Scratch | None = None,
        workers: Workers | None = None,
        opinions: bool = False,
    ) -> Scored:
        """What is believed about cases, chunk by chunk, ready for a plan.

        With `scratch` losses go there, and may be made by the `workers` of a cluster. With `opinions` what
        everyone would say on every case comes too.
        """
        extra = () if constraints is None else constraints.columns
        extra = tuple(dict.fromkeys((*extra, *(() if waiting is None else waiting.columns))))
        wants_opinions = opinions or (constraints is not None and score and needs_opinions(constraints))
        intake, done, total = self._intake(extra), 0, known_length(X)
        parts = Parts(scratch=scratch, cases=total)
        say = partial(step, "Scoring cases" if score else "Checking cases")
        say(0, total)
        found = self._scores(intake, X, experts, score, scratch, workers)
        for chunk, scores in found:
            parts.add(chunk, scores)
            if wants_opinions:
                parts.opinions.append(self._opinions(chunk, experts))
            done += len(chunk)
            say(done, total)
        return parts.together((MACHINE, *experts), tuple(self.classes_.tolist()), intake, self.terms)

    def explain(self, X: Any, plan: Plan | None = None, *, case: Any = None) -> Explanation:
        """Why a case went (or would go) to whom: losses, prices, and the features behind the estimates.

        `X` holds the case; `case` names it where X holds more than one. With the `plan` its prices and its
        choice are explained, without it what would be best if everyone had room.
        """
        self._check_fitted()
        one = self._intake().find(self._checked(X), case)
        name = one.ids[0]
        choice, experts = None, list(self.experts_)
        if plan is not None:
            choice = plan.about(name)
            experts = [maker for maker in choice.prices if maker != MACHINE]
        found, makers = self._score(one, experts), [MACHINE, *experts]
        return explain_case(
            self.learned_,
            self.schema_,
            one,
            pd.Series(found.loss[0], index=makers),
            pd.Series(found.objective[0], index=makers),
            found.p[0],
            self.classes_.tolist(),
            self.costs_.array(one.amounts),
            choice,
        )

    def comparison(self) -> Comparison:
        """To compare cases that come one by one with those that were learned from."""
        self._check_fitted()
        return Comparison(self.training_.get("profile") or {})

    def people(self) -> People:
        """Everybody that was learned from: error rates with intervals, leaning, pace, where they are strong.

        From the facts that the model file keeps of its training; `deccaf show` prints it.
        """
        self._check_fitted()
        facts = self.training_
        about = {
            "method": self.method,
            "cases": facts["cases"],
            "without_label": facts["without_label"],
            "classes": facts["class_shares"],
            "time": facts.get("time"),
            "costs": self.terms.to_dict(),
            "features": [
                {"name": one.name, "kind": one.kind, "levels": len(one.levels)}
                for one in self.schema_.features
            ],
        }
        return People.of(facts, self.classes_.tolist(), self.pace_, about)

    def plot_people(self) -> Any:
        """How everybody decides, with intervals: a matplotlib figure. It needs the extra `report`."""
        return drawn("people", "people_picture", self.people())

    def plot_calibration(self, X: Any, y: ArrayLike) -> Any:
        """What the model says of the truth of labelled cases, against what was so: a matplotlib figure.

        Cases that it did not learn from tell most. It needs the extra `report`.
        """
        scored = self.scored(X, ())
        truth = self._codes(y, len(scored.ids), "y")
        known, names = truth >= 0, self.classes_.tolist()
        assert scored.p is not None
        shown = names[1:] if len(names) == 2 else names
        curves = {
            str(name): reliability(truth[known] == place, scored.p[known, place])
            for place, name in enumerate(names)
            if name in shown
        }
        return drawn("calibration", "chances_picture", curves)

    def _repr_html_(self) -> str:
        if not hasattr(self, "learned_"):
            return card(type(self).__name__, [repr(self), "not fitted yet"])
        facts, people = self.training_, self.people()
        known = [
            f"method {self.method}; {facts['cases']:,} cases, {len(self.experts_)} people, "
            f"{len(self.schema_.features)} features; classes {', '.join(map(str, self.classes_))}",
            f"costs: {self.terms.words()}",
        ]
        shown = [name for name in ("decisions", "labelled", "error_rate", "pace") if name in people.table]
        return card(type(self).__name__, known, people.table[shown].dropna(axis=1, how="all"))

    def save(self, path: str | Path, key: bytes | None = None) -> None:
        """Write a model file; with `key` it is signed, so that `load` can tell where it comes from."""
        self._check_fitted()
        write_model_file(
            path,
            {
                "settings": _plain_settings({name: getattr(self, name) for name in _SETTINGS}),
                "costs": self.costs_.to_dict(),
                "classes": self.classes_.tolist(),
                "columns": self.feature_names if hasattr(self, "feature_names_in_") else None,
                "width": self.n_features_in_,
                "pace": self.pace_ or None,
                "roles": None
                if self.columns is None
                else self.columns.model_dump(mode="json", exclude_unset=True),
                "learned": self.learned_.to_dict(),
                **({"spaces": spaces_to_dict(self.schema_)} if self.schema_.spaces else {}),
            },
            schema=self.schema_.to_dict(),
            training=self.training_,
            deccaf_version=deccaf.__version__,
            key=key,
        )

    @classmethod
    def load(cls, path: str | Path, key: bytes | None = None) -> Self:
        """Read a model file, checked before anything of it is used; nothing in it is executed.

        With `key` the file must be signed with it.
        """
        found = read_model_file(path, key)
        try:
            return cls._rebuilt(found.model, found.manifest)
        except ModelFileError as error:
            raise ModelFileError(f"{path}: {error}") from error
        except Exception as error:  # content that fits its sums but makes no model
            raise ModelFileError(f"{path}: holds no usable model: {type(error).__name__}: {error}") from error

    @classmethod
    def _rebuilt(cls, data: Mapping[str, Any], manifest: Mapping[str, Any]) -> Self:
        costs = Costs.from_dict(data["costs"])
        model = cls(costs, **{name: as_tuple(value) for name, value in data["settings"].items()})
        model._check_settings()
        model.costs_, model.classes_ = costs, np.array(data["classes"])
        model.schema_ = spaces_from_dict(Schema.from_dict(manifest["schema"]), data.get("spaces") or {})
        model.learned_ = Learned.from_dict(data["learned"])
        model.experts_, model.training_ = model.learned_.experts, manifest["training"]
        model.n_features_in_ = int(data["width"])
        if data["columns"] is not None:
            model.feature_names_in_ = np.array(data["columns"], dtype=object)
        model.columns = None if data["roles"] is None else Columns(**data["roles"])
        model.columns_ = model._roles()
        model.pace_ = {str(name): float(value) for name, value in (data["pace"] or {}).items()}
        return model

    @property
    def terms(self) -> Terms:
        """What errors and reviews cost in plans of this model; `with_costs` changes it."""
        self._check_fitted()
        makers = read_makers(self.makers)
        told = {name: one.price for name, one in makers.items() if one.price is not None}
        known: dict[str, Any] = {**dict.fromkeys(machines_of(makers)), **told}
        return Terms(self.costs_, with_prices(self.review_cost, known))

    def review_costs(self, experts: Sequence[str], columns: pd.DataFrame | None = None) -> Array:
        """What it costs to ask each of these: (experts,), or (cases, experts) by columns of the cases."""
        return review_costs(self.terms.review_cost, experts, columns)

    @property
    def review_columns(self) -> tuple[str, ...]:
        """The columns of the cases that review costs name."""
        return review_columns(self.terms.review_cost)

    def _intake(self, extra: tuple[str, ...] = ()) -> Intake:
        """How new cases are read: with every feature that the model was fitted on."""
        extra = tuple(dict.fromkeys((*extra, *self.review_columns)))
        return Intake(
            self.schema_,
            self.costs_,
            self.columns_,
            self.feature_names,
            _known_until(self.training_),
            extra,
            profiles=self.training_.get("profile"),
            optional=tuple(set(self.columns_.waiting.values()) - set(self.schema_.names)),
        )

    def _with_intervals(self, plan: Plan, X: Any, step: Step) -> Plan:
        """The plan with how sure the losses are: of people's cases, where the method can tell.

        The cases are read once more, and only the makers that were chosen are asked.
        """
        if not can_tell(self.learned_) or _read_once(X):
            unknown = np.full(len(plan), np.nan)
            return plan.extended(loss_low=unknown, loss_high=unknown)
        intake = replace(self._intake(), profiles=None)  # they were compared when they were scored
        chunks = intake.chunks(self._checked(X), CELLS // 64)
        classes = self.classes_.tolist()
        return with_intervals(plan, chunks, self.learned_, classes, self._costs, self.review_costs, step)

    def _costs(self, chunk: Chunk) -> Array:
        return self.costs_.array(chunk.amounts)

    def _read(self, X: Any) -> tuple[pd.Index, pd.DataFrame, Array]:
        """Ids, features and costs of all cases."""
        chunks = list(self._intake().chunks(self._checked(X), CELLS // 64))
        if not chunks:
            raise DataError("X: no cases")
        ids = chunks[0].ids.append([chunk.ids for chunk in chunks[1:]])
        costs = [self.costs_.array(chunk.amounts) for chunk in chunks]
        each = [np.broadcast_to(c, (len(k), *c.shape[1:])) for c, k in zip(costs, chunks, strict=True)]
        return ids, pd.concat([chunk.features for chunk in chunks]), np.concatenate(each)

    def _codes(self, values: Any, rows: int, name: str) -> Ints:
        """Positions of classes, one per row."""
        series = per_row(values, rows, name)
        assert series is not None
        return class_codes(series, self.costs_.classes, series.index)

    def _stakes(self, X: Any, expert: str, capacity: Capacity | Mapping[str, int] | None) -> Stakes:
        """Where it matters how a newcomer decides."""
        people = [name for name in self.experts_ if name != expert]
        limits = None
        if capacity is not None:
            limits = capacity if isinstance(capacity, Capacity) else Capacity.of(capacity)
            if expert not in limits.makers:
                raise ConfigError(f"onboard: {expert!r} is not on the roster")
            people = [name for name in limits.makers if name not in (MACHINE, expert)]
        _, features, costs = self._read(X)
        makers = [MACHINE, *people, expert]
        columns = self._intake_columns(X) if self.review_columns else None
        paid = self.review_costs(makers[1:], columns)
        scores = self.learned_.score(features, makers[1:], costs, paid)
        prices = np.zeros(len(makers))
        if limits is not None:
            lower, upper = limits.limits(makers, len(features))
            prices = np.asarray(solve(scores.loss, upper, lower).prices)
        return Stakes(features, scores.p, costs, best_others(scores.loss, prices.tolist(), len(makers) - 1))

    def _intake_columns(self, X: Any) -> pd.DataFrame:
        """The columns that review costs name, of all cases."""
        return pd.concat([chunk.columns for chunk in self._intake().chunks(self._checked(X), CELLS // 64)])

    def _checked(self, X: Any) -> Any:
        if is_array(X):
            from sklearn.utils.validation import validate_data

            return validate_data(self, X, reset=False, dtype=None, ensure_all_finite=False)
        return X

    def _scores(
        self,
        intake: Intake,
        X: Any,
        experts: Sequence[str],
        score: bool = True,
        scratch: Scratch | None = None,
        workers: Workers | None = None,
    ) -> Iterator[tuple[Chunk, Scores]]:
        """Scores of as many cases at a time as memory is meant for; with `scratch`, losses are kept there."""
        if experts and not self.experts_:
            raise ConfigError(f"the model learned from no decisions, so nothing is known of {experts[0]!r}")
        rows = max(1, CELLS // max(1 + len(experts), len(self.schema_.origin())))
        chunks = (chunk for chunk in intake.chunks(self._checked(X), rows) if len(chunk))
        if not score:
            for chunk in chunks:
                yield chunk, no_scores(len(chunk), len(experts), len(self.classes_))
        elif scratch is None:
            for chunk in chunks:
                yield chunk, self._score(chunk, experts)
        elif workers is None:
            for piece in enumerate(chunks):
                yield piece[1], _kept_scores(piece, self, list(experts), scratch)
        else:
            sent: deque[Chunk] = deque()
            pieces = ((number, _noted(chunk, sent)) for number, chunk in enumerate(chunks))
            for scores in workers.map(_kept_scores, pieces, self, list(experts), scratch):
                yield sent.popleft(), scores

    def _score(self, chunk: Chunk, experts: Sequence[str]) -> Scores:
        costs, paid = self.costs_.array(chunk.amounts), self.review_costs(experts, chunk.columns)
        with one_thread():
            return self.learned_.score(chunk.features, experts, costs, paid)

    def _opinions(self, chunk: Chunk, experts: Sequence[str]) -> Opinions:
        """What everyone would say on every case, which rules for several opinions need."""
        q, costs = self.learned_.decision_chances(chunk.features, experts), self.costs_.array(chunk.amounts)
        if q is None:
            raise ConfigError(
                f"constraints: reviewers, bands of fpr or fnr, and advice need method 'deccaf' and decisions "
                f"to learn from; this model has method {self.method!r} and {len(self.experts_)} experts"
            )
        p = self.learned_.chances(chunk.features, costs)
        paid = self.review_costs(experts, chunk.columns)
        return Opinions.of(p, q, costs, review_cost=paid, correlation=self.learned_.correlation(experts))

    def _roles(self) -> Columns:
        """The parts of columns, machines' own scores among them."""
        roles = Columns(categorical=tuple(self.categorical)) if self.columns is None else self.columns
        scores = score_columns(read_makers(self.makers))
        return roles.model_copy(update={"scores": {**scores, **roles.scores}}) if scores else roles

    @property
    def feature_names(self) -> list[str]:
        """The columns that X must have: features, then amounts."""
        return list(getattr(self, "feature_names_in_", default_names(self.n_features_in_)))

    def _labels(self) -> LabelsTable:
        """What hides labels, checked."""
        given = self.selective
        try:
            return LabelsTable.model_validate({"selective": given if isinstance(given, str) else list(given)})
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f'selective: expected "positive" or a list of classes, got {given!r}'
            ) from error

    def _check_fitted(self) -> None:
        if not hasattr(self, "learned_"):
            from sklearn.utils.validation import check_is_fitted

            check_is_fitted(self)

    def _check_settings(self) -> None:
        self._labels()
        if self.costs is not None and not isinstance(self.costs, Costs):
            raise ConfigError(
                f"costs: expected Costs, got {type(self.costs).__name__}; make them with "
                "Costs.binary(false_positive=..., false_negative=...) or Costs.from_matrix(...)"
            )
        if self.method not in METHODS:
            hint = did_you_mean(str(self.method), METHODS)
            raise ConfigError(f"method: expected one of {', '.join(METHODS)}, got {self.method!r}{hint}")
        prices(self.review_cost)
        read_makers(self.makers)


_SETTINGS = tuple(name for name in signature(FittedTeam.__init__).parameters if name != "self")
"""The parameters, which a model file keeps."""


def _kept_scores(piece: tuple[int, Chunk], model: FittedTeam, experts: list[str], scratch: Scratch) -> Scores:
    """A chunk's scores without its losses, which are in the scratch folder, now or already."""
    number, chunk = piece
    found = scratch.scores(number, len(chunk))
    if found is None:
        found = model._score(chunk, experts)
        scratch.keep(number, found)
    none = np.empty((0, scratch.makers))
    return Scores(found.p, found.says, none, none)


def _noted(chunk: Chunk, sent: deque[Chunk]) -> Chunk:
    sent.append(chunk)
    return chunk


def known_length(X: Any) -> int:
    """How many cases a table, or parquet files, hold; 0 where only reading it all would tell."""
    if not isinstance(X, str | Path):
        return len(X) if hasattr(X, "__len__") else 0
    if _read_once(X):
        return 0
    try:
        files = sources(X)
        if any(source.kind != "parquet" for source in files):
            return 0
        return sum(int(pyarrow.parquet.read_metadata(source.path).num_rows) for source in files)
    except (DataError, OSError, ValueError):
        return 0  # whoever reads it will say what is wrong with it


def has_columns(X: str | Path, names: Collection[str]) -> bool:
    """Whether parquet files have one of these columns."""
    try:
        found = pyarrow.parquet.read_schema(sources(X)[0].path).names
    except (DataError, OSError, ValueError):
        return False  # whoever reads it will say what is wrong with it
    return not set(names).isdisjoint(found)


def _read_once(X: Any) -> bool:
    """Whether X can be read only once: a pipe."""
    return isinstance(X, str | Path) and (str(X) == "-" or (Path(X).exists() and not _is_plain(Path(X))))


def _is_plain(path: Path) -> bool:
    return path.is_file() or path.is_dir()


def _in_batches(scored: Scored, batch: Any) -> Scored:
    """The same with the batches that were given, one per case, if any were."""
    given = per_row(batch, len(scored.ids), "batch")
    return scored if given is None else replace(scored, batch=names_of(given))


def _like(X: Any, frame: pd.DataFrame, ids: pd.Index) -> Any:
    """An answer with the index of X, of its kind; cases and files have their ids for an index."""
    index = ids if isinstance(X, Cases | str | Path) else as_pandas(X).index
    if index.name in frame:  # a name that is an index and a column cannot be joined or sorted by
        index = index.rename(None)
    frame = frame.set_axis(index)
    return frame if isinstance(X, Cases | str | Path) else same_kind(frame, X)


def _known_until(training: Mapping[str, Any]) -> Any:
    """The latest time of the history, a number or a date; None where there were no times."""
    if "time" not in training:
        return None
    latest = training["time"][1]
    return pd.Timestamp(latest) if isinstance(latest, str) else latest


def _plain_settings(params: Mapping[str, Any]) -> dict[str, Any]:
    """Constructor arguments for a file; costs and columns are written on their own."""
    settings = {name: value for name, value in params.items() if name not in {"costs", "columns"}}
    settings["review_cost"] = plain_review(settings["review_cost"])
    makers = read_makers(settings.pop("makers"))
    if makers:
        settings["makers"] = {  # without addresses: these are of a service, not of a model
            name: one.model_dump(exclude_defaults=True, exclude={"http"}) for name, one in makers.items()
        }
    for name in ("case_parts", "decision_parts"):  # a file names the parts, whatever they were given as
        settings[name] = [part if isinstance(part, str) else part.name for part in settings[name]]
    if settings["half_life"] is not None and not isinstance(settings["half_life"], int | float):
        settings["half_life"] = str(settings["half_life"])
    return settings


def as_tuple(value: Any) -> Any:
    """Lists of a file as the tuples that parameters are."""
    return tuple(value) if isinstance(value, list) else value


def is_array(X: Any) -> bool:
    """Whether X has no columns by name: an array, a list, or a sparse matrix that will be refused."""
    return not hasattr(X, "columns") and not isinstance(X, Cases | str | Path)
