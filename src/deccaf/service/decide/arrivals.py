"""Cases that cannot wait: those that arrive together are scored together and routed in one transaction.

Under light load a case is alone and waits for nobody. Under heavy load the work that is the same for all
(opening the shift, scoring, the commit) is shared, so the service slows down late and gently.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import sqlalchemy as sa

from deccaf import tracing
from deccaf.data.costs import MACHINE
from deccaf.errors import DeccafError
from deccaf.service.decide import registry
from deccaf.service.decide.registry import Belief
from deccaf.service.decide.trying import Trying
from deccaf.service.errors import conflict
from deccaf.service.ledger import case_records, desk, placing, shifts
from deccaf.service.ledger.case_records import Arrival
from deccaf.service.ledger.placing import Placed
from deccaf.service.ledger.trials import arms
from deccaf.service.ledger.trials.trial_records import Trial
from deccaf.service.store import database
from deccaf.service.store.idempotency import Answer, Call, again, earlier, remember
from deccaf.service.store.writer import Writer

TOGETHER = 128
IN_FLIGHT = 2


@dataclass(frozen=True)
class Incoming:
    """A case at the door."""

    call: Call
    case_id: str
    features: Mapping[str, Any]
    losses: Mapping[str, float] | None = None
    says: str | None = None
    excluded: tuple[str, ...] = ()
    shift_id: int | None = None
    due: float | None = None
    waiting_cost: float | None = None
    refusal: Exception | None = None
    """Why it cannot be taken in, unless the same request was answered before."""
    answer: Future[Answer] = field(default_factory=Future)
    trace: Any = field(default_factory=tracing.under_way)
    """What brought it, where traces are wanted."""


@dataclass(frozen=True)
class Rivals:
    """Cases of a group as a candidate sees them, by their place."""

    trial: Trial
    arrivals: Mapping[int, Arrival]


class Intake:
    """Takes cases in and answers each when its assignment is on disk."""

    def __init__(
        self,
        engine: sa.Engine,
        writer: Writer,
        registry: registry.Registry,
        seed: int | None = None,
        trying: Trying | None = None,
    ) -> None:
        self._engine, self._writer, self._registry = engine, writer, registry
        self._trying = trying
        self._rng = np.random.default_rng(seed)
        self._waiting: queue.SimpleQueue[Incoming | None] = queue.SimpleQueue()
        self._seen: tuple[tuple[int | None, int], tuple[str, ...]] = ((None, 0), ())
        self._slots = threading.Semaphore(IN_FLIGHT)
        self._thread = threading.Thread(target=self._serve, name="deccaf-intake", daemon=True)
        self._thread.start()

    def submit(self, case: Incoming) -> Future[Answer]:
        """Route a case soon."""
        self._waiting.put(case)
        return case.answer

    def close(self) -> None:
        """Finish what waits, then stop."""
        self._waiting.put(None)
        self._thread.join(timeout=30)

    def _serve(self) -> None:
        """While one group is being written the next is scored; a third collects whatever comes meanwhile."""
        last = False
        while not last and (first := self._waiting.get()) is not None:
            self._slots.acquire()
            group = [first]
            while len(group) < TOGETHER and not last:
                try:
                    following = self._waiting.get_nowait()
                except queue.Empty:
                    break
                if following is None:
                    last = True
                else:
                    group.append(following)
            parts = [[c for c in group if c.shift_id == s] for s in dict.fromkeys(c.shift_id for c in group)]
            for part in parts[:-1]:
                self._route(part)
            self._route(parts[-1], self._slots.release)
        for _ in range(IN_FLIGHT):
            self._slots.acquire(timeout=30)

    def _route(self, group: list[Incoming], then: Callable[[], None] = lambda: None) -> None:
        """Score a group and have it written; everybody is answered from there."""
        try:
            with tracing.span("arrivals", [case.trace for case in group], cases=len(group)):
                group, arrivals = self._scored_or_refused(group)
                rivals = self._rivals(group)
                written = self._writer.submit(
                    lambda connection: self._change(connection, group, arrivals, rivals)
                )
        except Exception as error:
            then()
            self._fail(group, error)
            return
        written.add_done_callback(lambda done: self._answer(group, done, then))

    def _answer(
        self, group: list[Incoming], done: Future[list[Answer | Exception]], then: Callable[[], None]
    ) -> None:
        then()
        error = done.exception()
        if error is not None:
            self._fail(group, error)
            return
        for case, answer in zip(group, done.result(), strict=True):
            if isinstance(answer, Answer):
                case.answer.set_result(answer)
            else:
                case.answer.set_exception(answer)

    def _fail(self, group: list[Incoming], error: BaseException) -> None:
        if len(group) > 1 and not database.passes_by_itself(error):  # one of them is the reason: each alone
            for case in group:
                self._route([case])
            return
        for case in group:
            case.answer.set_exception(error)

    def _scored_or_refused(self, group: list[Incoming]) -> tuple[list[Incoming], list[Arrival]]:
        try:
            return group, self._scored(group)
        except DeccafError as error:
            if len(group) > 1:
                raise
            refused = replace(group[0], refusal=error)
            return [refused], self._scored([refused])

    def _scored(self, group: Sequence[Incoming]) -> list[Arrival]:
        """What is believed about each case: what the caller gave, or the active model."""
        model = self._registry.active
        asked = [case for case in group if case.losses is None and case.refusal is None]
        believed: dict[int, Belief] = {}
        if model is not None and asked:
            experts = [name for name in self._makers(group[0].shift_id) if name != MACHINE]
            scored = model.score_rows([case.features for case in asked], experts)
            believed = {id(case): registry.belief(scored, row) for row, case in enumerate(asked)}
        return [_arrival(case, believed.get(id(case)), model) for case in group]

    def _rivals(self, group: Sequence[Incoming]) -> Rivals | None:
        """The same cases as a candidate sees them, where one runs beside the model in force."""
        running = None if self._trying is None else self._trying.current
        if running is None or self._registry.active is None or running.trial.constraints is not None:
            return None  # constraints are about plans
        rows = [k for k, case in enumerate(group) if case.losses is None and case.refusal is None]
        if not rows:
            return None
        experts = [name for name in self._makers(group[0].shift_id) if name != MACHINE]
        try:
            scored = running.model.score_rows([group[k].features for k in rows], experts)
        except DeccafError:
            return None  # a case that the candidate cannot read goes by today's practice
        arrivals = {
            k: _arrival(group[k], registry.belief(scored, row), running.model) for row, k in enumerate(rows)
        }
        return Rivals(running.trial, arrivals)

    def _makers(self, shift_id: int | None) -> tuple[str, ...]:
        """Who is on the roster, as far as scoring must know; the transaction reads it again."""
        key = (shift_id, int(time.time()))
        if self._seen[0] != key:
            with self._engine.connect() as connection:
                shift = shifts.current_shift(connection, time.time()) if shift_id is None else shift_id
                self._seen = (key, shifts.roster_makers(connection, shift))
        return self._seen[1]

    def _change(
        self,
        connection: sa.Connection,
        group: Sequence[Incoming],
        arrivals: Sequence[Arrival],
        rivals: Rivals | None = None,
    ) -> list[Answer | Exception]:
        before = earlier(connection, [case.call for case in group])
        at = time.time()
        shift = group[0].shift_id
        if shift is None:
            shift = shifts.current_shift(connection, at)
        at_desk = None if shift is None else desk.open_desk(connection, shift, at)
        known = case_records.known_cases(connection, [case.case_id for case in group])
        new, twins, answers = _sort_out(group, before, known)
        fresh = [arrivals[place] for place in new]
        actors = [group[place].call.actor for place in new]
        placed: Sequence[Placed | None] = [None] * len(new)
        if new and at_desk is not None:
            # cases that bring losses of their own are in no arm; those that came with them are
            tried = [] if rivals is None else [k for k, place in enumerate(new) if place in rivals.arrivals]
            drawn = None
            if rivals is not None and tried:
                pairs = [(fresh[k], rivals.arrivals[new[k]]) for k in tried]
                drawn = arms.draw(connection, rivals.trial, pairs)
                for k, one in zip(tried, drawn or (), strict=drawn is not None):
                    fresh[k] = one.arrival
            placed = placing.route(connection, at_desk, fresh, actors, at, self._rng)
            if rivals is not None and drawn is not None:
                arms.write(connection, rivals.trial, drawn, [placed[k] for k in tried])
        elif new:
            for arrival, actor in zip(fresh, actors, strict=True):
                case_records.hold(connection, [arrival], actor, at)
        made = {
            place: _answer(arrival, where, shift)
            for place, arrival, where in zip(new, fresh, placed, strict=True)
        }
        remember(connection, [(group[place].call, answer) for place, answer in made.items()], at)
        answers |= made
        for place, twin in twins.items():
            answers[place] = again(group[place].call, group[twin].call, answers[twin])
        return [answers[place] for place in range(len(group))]


def _sort_out(
    group: Sequence[Incoming], before: Sequence[Answer | None], known: set[str]
) -> tuple[list[int], dict[int, int], dict[int, Answer | Exception]]:
    """Positions of new cases; of repeated requests (with that of the first); answers known already."""
    answers: dict[int, Answer | Exception] = {}
    new: list[int] = []
    twins: dict[int, int] = {}
    first: dict[tuple[int | None, str], int] = {}
    for place, (case, answer) in enumerate(zip(group, before, strict=True)):
        if answer is not None:
            answers[place] = answer
            continue
        if case.call.key is not None:
            twin = first.setdefault((case.call.actor.key_id, case.call.key), place)
            if twin != place:  # the same request again, before the first one was answered
                twins[place] = twin
                continue
        if case.refusal is not None:
            answers[place] = case.refusal
        elif case.case_id in known:
            answers[place] = conflict("known-case", f"case {case.case_id!r} is in the ledger already")
        else:
            known.add(case.case_id)
            new.append(place)
    return new, twins, answers


def _arrival(case: Incoming, believed: Belief | None, model: registry.Model | None) -> Arrival:
    arrival = Arrival(
        case.case_id,
        json.dumps(case.features),
        excluded=case.excluded,
        due=case.due,
        waiting_cost=case.waiting_cost,
    )
    if case.losses is not None:
        given = json.dumps({"losses": case.losses, "says": case.says})
        return replace(arrival, losses=case.losses, says=case.says, given=given)
    if believed is None:
        return arrival
    return replace(
        arrival,
        losses=believed.losses,
        says=believed.says,
        model_id=model.id if model else None,
        objective=believed.objective,
    )


def _answer(arrival: Arrival, placed: Placed | None, shift: int | None) -> Answer:
    if placed is None:
        why = "no shift runs now" if shift is None else "nobody who may take it has room"
        if arrival.losses is None:
            why = "no model is active"
        return Answer.of(202, {"case_id": arrival.case_id, "status": "waiting", "reason": why})
    return Answer.of(201, placed_json(placed, arrival.model_id, shift))


def placed_json(placed: Placed, model_id: int | None, shift: int | None) -> dict[str, Any]:
    """A new assignment as the API answers it (and keeps it for a replay)."""
    return {
        "case_id": placed.case_id,
        "status": placed.status,
        "maker": placed.maker,
        "decision": None if placed.decision is None else json.loads(placed.decision),
        "expected_loss": placed.expected_loss,
        "price": placed.price,
        "propensity": placed.propensity,
        "model": model_id,
        "shift": shift,
        **({"let_through": True} if placed.let_through else {}),
    }
