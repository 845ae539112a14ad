"""What the ledger should answer and hold, in plain Python: no database, no HTTP, one request after another.

`Ledger.after(request, answer, seen)` is the ledger after a request that was answered so, or the reason why no
such answer could have been given. A history is right if some order of the requests that ran at the same time
explains all their answers and what is on record afterwards (`explain`): every request then took effect at one
moment between its sending and its answer.
"""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import Any

MACHINE = "machine"
NAMED = ("key-reused", "unknown-class", "out-of-use")
"""Refusals that must be given for this very reason; of others the status says enough."""


@dataclass(frozen=True)
class Request:
    """What a client asks for; `args` are those of the method of `Ledger` that `kind` names."""

    kind: str
    args: Mapping[str, Any]
    client: str = "lead"
    key: str | None = None

    @property
    def content(self) -> str:
        """What makes two requests the same."""
        return json.dumps([self.kind, self.args], sort_keys=True)

    def __str__(self) -> str:
        words = ", ".join(f"{name}={value}" for name, value in self.args.items())
        return f"{self.client}: {self.kind}({words})" + (f" under {self.key}" if self.key else "")


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    text: str = ""
    replayed: bool = False

    @property
    def body(self) -> dict[str, Any]:
        found = json.loads(self.text or "{}")
        return found if isinstance(found, dict) else {}

    @property
    def problem(self) -> str:
        return str(self.body.get("type", "")).removeprefix("urn:deccaf:problem:")

    def __str__(self) -> str:
        return f"{self.status} {self.text[:300]}" + (" (replayed)" if self.replayed else "")


class RefusedError(Exception):
    """The model refuses a request."""

    def __init__(self, status: int, kind: str) -> None:
        super().__init__(f"{status} {kind}")
        self.status, self.kind = status, kind


@dataclass
class Seat:
    capacity: int | None
    used: int = 0
    absent: bool = False
    active: bool = True

    @property
    def room(self) -> float:
        if self.absent or not self.active:
            return 0
        return float("inf") if self.capacity is None else self.capacity - self.used

    @property
    def has_room(self) -> bool:
        return self.room > 0


@dataclass
class Case:
    losses: dict[str, float]
    says: Any
    excluded: list[str] = field(default_factory=list)
    status: str = "waiting"
    maker: str | None = None
    state: str | None = None
    turn: int = 0
    """When it was given to its maker: queues are worked through in this order."""
    urgency: int = 0
    """Of those in a queue, the most urgent come first."""
    decision: Any = None
    labels: list[Any] = field(default_factory=list)
    parked: bool = False
    undone: list[Any] = field(default_factory=list)
    when: int = 0
    """When it was decided by a person: only the last decision can be taken back."""
    wanted: bool = False
    """A lead wants a second opinion."""
    opinions: list[tuple[str, Any, int]] = field(default_factory=list)
    """Answers beside the decision: who, what and when."""
    barred: bool = False
    """The machine may not get it because of them."""
    listed: bool = False
    """It waits for the lead's word."""
    settled: bool = False


@dataclass
class Plan:
    state: str
    rows: dict[str, str]
    """Who would get which case."""
    labelled: frozenset[str]
    """Cases whose label was known when it was drafted."""


@dataclass(frozen=True)
class Seen:
    """What is on record after some requests: what the model must arrive at, and what it cannot foresee."""

    cases: dict[str, Any]
    seats: dict[str, Any]
    plans: dict[int, str]
    prices: dict[str, float]
    drafts: dict[int, dict[str, str]]
    """The rows of plans that are drafts."""
    desk: dict[str, Any] = field(default_factory=dict)
    """Trials by number, how many golden cases were entered, everybody's rate of them."""


@dataclass
class Ledger:
    """One shift and everything that happens in it."""

    seats: dict[str, Seat]
    prices: dict[str, float]
    classes: tuple[Any, ...] = ()
    """What may be decided; empty: anything."""
    is_open: bool = True
    cases: dict[str, Case] = field(default_factory=dict)
    plans: dict[int, Plan] = field(default_factory=dict)
    answers: dict[tuple[str, str], tuple[str, Answer]] = field(default_factory=dict)
    teams: frozenset[str] = frozenset()
    turn: int = 0
    active: int | None = None
    """The model in force."""
    trials: dict[int, str] = field(default_factory=dict)
    golden: int = 0
    rates: dict[str, float] = field(default_factory=dict)

    def after(self, request: Request, answer: Answer, seen: Seen, alone: bool = False) -> Ledger | str:
        """The ledger after a request that was answered so; a text: why that answer is wrong."""
        seat = self.seats.get(request.client)
        if seat is not None and not seat.active and (alone or answer.status == 403):
            wrong = _differs(answer, 403, {}, "out-of-use")
            return wrong or self
        before = None if request.key is None else self.answers.get((request.client, request.key))
        if before is not None:
            return self._again(request, answer, *before)
        then = copy.deepcopy(self)
        try:
            status, fields = getattr(then, request.kind)(answer=answer, seen=seen, **request.args)
        except RefusedError as refused:
            return _differs(answer, refused.status, {}, refused.kind) or self
        wrong = _differs(answer, status, fields, "")
        if wrong is None and answer.replayed:
            wrong = "is called a replay, and nothing was answered before"
        if wrong is not None:
            return wrong
        if request.key is not None:
            then.answers[request.client, request.key] = (request.content, answer)
        return then

    def view(self) -> tuple[dict[str, Any], dict[str, Any], dict[int, str], dict[str, Any]]:
        """What must be on record: of cases, seats, plans, and beside them."""
        cases = {
            name: (
                c.status,
                c.maker,
                c.state,
                sorted(c.excluded),
                c.decision,
                tuple(c.labels),
                c.parked,
                tuple(c.undone),
                tuple((who, said) for who, said, _ in c.opinions),
                c.listed,
            )
            for name, c in self.cases.items()
        }
        seats = {name: (s.capacity, s.used, s.absent) for name, s in self.seats.items()}
        desk = {f"trial {number}": state for number, state in self.trials.items()}
        desk |= {f"rate of {name}": rate for name, rate in self.rates.items()}
        desk |= {"golden": self.golden} if self.golden else {}
        return cases, seats, {number: plan.state for number, plan in self.plans.items()}, desk

    def _again(self, request: Request, answer: Answer, content: str, first: Answer) -> Ledger | str:
        if request.content != content:
            return _differs(answer, 422, {}, "key-reused") or self
        if (answer.status, answer.text) != (first.status, first.text):
            return f"the answer before was {first}"
        # an answer without a body (204) has no headers to say that it is a replay
        return self if answer.replayed or answer.status == 204 else "is not called a replay"

    # --- the requests: each gives the status and what the answer must hold, or raises --------------------

    def case(self, name: str, losses: dict[str, float], says: Any, excluded: list[str], **_: Any) -> Any:
        self._check_class(says)
        if name in self.cases:
            raise RefusedError(409, "known-case")
        self.cases[name] = Case(losses, says, list(excluded))
        return self._place(name)

    def bulk(self, cases: Sequence[tuple[str, dict[str, float], Any]], **_: Any) -> Any:
        if any(self._unknown_class(says) for _, _, says in cases):
            raise RefusedError(422, "bad-rows")
        if any(name in self.cases for name, _, _ in cases):
            raise RefusedError(409, "known-case")
        for name, losses, says in cases:
            self.cases[name] = Case(losses, says)
        return 201, {"accepted": len(cases)}

    def import_file(self, names: Sequence[str], **_: Any) -> Any:
        if any(name in self.cases for name in names):
            raise RefusedError(422, "bad-rows")
        self.cases |= {name: Case({}, None) for name in names}
        return 201, {"accepted": len(names), "rejected": 0}

    def label(self, labels: Mapping[str, Any], **_: Any) -> Any:
        for value in labels.values():
            self._check_class(value)
        if any(name not in self.cases for name in labels):
            raise RefusedError(404, "not-found")
        for name, value in labels.items():
            self.cases[name].labels.append(value)
        return 200, {"accepted": len(labels)}

    def next_case(self, maker: str, **_: Any) -> Any:
        mine = [(-c.urgency, c.turn, name) for name, c in self.cases.items() if c.maker == maker]
        for state in ("claimed", "assigned"):
            found = sorted(
                place
                for place in mine
                if self.cases[place[-1]].state == state and not self.cases[place[-1]].parked
            )
            if found:
                self.cases[found[0][-1]].state = "claimed"
                return 200, {"case_id": found[0][-1], "status": "assigned"}
        return 204, {}

    def decide(self, name: str, maker: str, decision: Any, answer: Answer, **_: Any) -> Any:
        self._check_class(decision)
        case = self._theirs(name, maker)
        fields = {"case_id": name, "maker": maker, "decision": decision}
        if case.wanted and maker != MACHINE and decision not in [said for _, said, _ in case.opinions]:
            self._ask_others(name, maker, decision)
            # only a lead is told that others are asked
            return 200, fields | (
                {} if answer.body.get("status") in ("assigned", "decided") else {"status": ""}
            )
        case.status, case.state, case.decision = "decided", "decided", decision
        case.parked, case.when = False, self._next()
        return 200, {**fields, "status": "decided"}

    def want(self, name: str, **_: Any) -> Any:
        if name not in self.cases:
            raise RefusedError(404, "not-found")
        case = self.cases[name]
        if case.status == "decided":
            raise RefusedError(409, "already-decided")
        known, case.wanted = case.wanted, True
        return 200, {"changed": 0 if known else 1}

    def settle(self, name: str, decision: Any, **_: Any) -> Any:
        self._check_class(decision)
        if name not in self.cases:
            raise RefusedError(404, "not-found")
        case = self.cases[name]
        if not case.listed:
            raise RefusedError(409, "not-on-list")
        chosen = next((one for one in case.opinions if one[1] == decision), None)
        if chosen is None:
            raise RefusedError(422, "nobody-said-so")
        case.opinions.remove(chosen)
        case.maker, case.decision, case.when = chosen
        case.status, case.state, case.listed, case.settled = "decided", "decided", False, True
        return 200, {"case_id": name, "status": "decided", "maker": case.maker, "decision": decision}

    def hand_back(self, name: str, maker: str, answer: Answer, **_: Any) -> Any:
        self._theirs(name, maker)
        _, fields = self._move(name)
        told = (
            ("case_id", "status", "maker") if "maker" in answer.body else ("case_id",)
        )  # a lead is told more
        return 200, {key: fields.get(key) for key in told}

    def undo(self, name: str, maker: str, **_: Any) -> Any:
        if name not in self.cases:
            raise RefusedError(404, "not-found")
        case = self.cases[name]
        theirs = [c.when for c in self.cases.values() if c.maker == maker and c.state == "decided"]
        theirs += [when for c in self.cases.values() for who, _, when in c.opinions if who == maker]
        if any(who == maker for who, _, _ in case.opinions):
            return self._undo_answer(name, maker, max(theirs))
        if case.maker != maker or case.state != "decided" or case.labels or case.when < max(theirs):
            raise RefusedError(409, "not-decided")
        if case.settled:
            raise RefusedError(409, "acted-on")
        if not self.seats[maker].active:
            raise RefusedError(409, "out-of-use")
        self._put_down(maker)
        case.undone.append(case.decision)
        case.status, case.state, case.decision = "assigned", "claimed", None
        return 200, {"case_id": name, "status": "assigned"}

    def park(self, name: str, maker: str, **_: Any) -> Any:
        case = self._theirs(name, maker)
        case.state, case.parked = "assigned", True
        return 200, {"case_id": name, "status": "assigned"}

    def take_up(self, name: str, maker: str, **_: Any) -> Any:
        case = self._theirs(name, maker)
        self._put_down(maker)
        case.state, case.parked = "claimed", False
        return 200, {"case_id": name, "status": "assigned"}

    def extend(self, name: str, maker: str, **_: Any) -> Any:
        if name not in self.cases:
            raise RefusedError(404, "not-found")
        if self.cases[name].maker != maker or self.cases[name].state != "claimed":
            raise RefusedError(409, "not-claimed")
        return 200, {"case_id": name, "status": "assigned"}

    def reassign(self, names: Sequence[str], to: str | None, begun: bool, answer: Answer, **_: Any) -> Any:
        """In order of the queue; room that is left behind is not given out again."""
        if to is not None and to not in self.seats:
            raise RefusedError(409, "nothing-moved")
        states = ("assigned", "claimed") if begun else ("assigned",)
        known = [n for n in names if n in self.cases and self.cases[n].state in states]
        room = {maker: seat.room for maker, seat in self.seats.items()}
        moved = {}
        for name in sorted(known, key=lambda n: self.cases[n].turn):
            case = self.cases[name]
            able = [
                (case.losses[maker] + self.prices[maker], maker != MACHINE, maker)
                for maker in self.seats
                if room[maker] > 0 and maker in case.losses and maker not in (case.maker, *case.excluded)
                if to in (None, maker) and self.is_open
            ]
            if able:
                moved[name] = min(able)[2]
                room[moved[name]] -= 1
        if not moved:
            raise RefusedError(409, "nothing-moved")
        for name in moved:
            before = self.cases[name].maker
            assert before is not None
            self.seats[before].used -= 1
        for name, maker in moved.items():
            self._give(name, maker)
        found = answer.body.get("moved", [])
        if {move["case_id"]: move["to"] for move in found} != moved:
            return 0, {"moved": f"{moved} was expected"}
        return 200, {}

    def prioritise(self, name: str, priority: str, **_: Any) -> Any:
        if name not in self.cases:
            raise RefusedError(404, "not-found")
        if self.cases[name].status == "decided":
            raise RefusedError(409, "already-decided")
        self.cases[name].urgency = {"low": -1, "normal": 0, "high": 1, "urgent": 2}[priority]
        return 200, {"priority": priority}

    def plan(self, names: Sequence[str], answer: Answer, seen: Seen) -> Any:
        if not self.is_open:
            raise RefusedError(409, "shift-closed")
        if any(name not in self.cases or self.cases[name].status != "waiting" for name in names):
            raise RefusedError(409, "not-waiting")
        if answer.status == 409 and any(MACHINE not in self.cases[name].losses for name in names):
            raise RefusedError(409, "no-feasible-plan")  # perhaps there is no room: nobody solves plans here
        number = answer.body.get("id", 0)
        rows = seen.drafts.get(number, {})
        for name, maker in rows.items():
            if maker in self.cases[name].excluded or not self.seats[maker].has_room:
                return 0, {f"{name} is given to": f"{maker}, who may not get it"}
        labelled = frozenset(name for name in names if self.cases[name].labels)
        self.plans[number] = Plan("draft", dict(rows), labelled)
        return 201, {"state": "draft"}

    def commit(self, number: int, seen: Seen, **_: Any) -> Any:
        plan = self._draft(number)
        if not self.is_open:
            raise RefusedError(409, "shift-closed")
        for name, maker in plan.rows.items():
            case = self.cases[name]
            if (
                case.status != "waiting"
                or maker in case.excluded
                or (case.labels and name not in plan.labelled)
            ):
                raise RefusedError(409, "plan-stale")
        for maker, count in Counter(plan.rows.values()).items():
            seat = self.seats[maker]
            full = seat.capacity is not None and seat.used + count > seat.capacity
            if full or seat.absent or not seat.active:
                raise RefusedError(409, "plan-stale")
        for name, maker in plan.rows.items():
            self._give(name, maker)
        plan.state, self.prices = "committed", dict(seen.prices)
        return 200, {"id": number, "state": "committed"}

    def discard(self, number: int, **_: Any) -> Any:
        self._draft(number).state = "discarded"
        return 200, {"id": number, "state": "discarded"}

    def roster(self, maker: str, capacity: int | None, absent: bool | None, release: bool, **_: Any) -> Any:
        seat = self.seats[maker]
        capacity = seat.capacity if capacity is None else capacity
        assert capacity is not None, "people have a limit here"
        away = seat.absent if absent is None else absent
        seat.absent, moved = True, []
        if release:
            excess = None if away else max(seat.used - capacity, 0)
            theirs = sorted(self._held(maker, "assigned"), key=lambda name: -self.cases[name].turn)
            moved = theirs if excess is None else theirs[:excess]
            for name in moved:
                self._move(name)
        if seat.used > capacity:
            raise RefusedError(409, "capacity-below-used")
        seat.capacity, seat.absent = capacity, away
        return 200, {"released": len(moved)}

    def shift(self, state: str, **_: Any) -> Any:
        self.is_open = state == "open"
        return 200, {"state": state}

    def person(self, maker: str, active: bool, **_: Any) -> Any:
        if maker == MACHINE:
            raise RefusedError(404, "not-found")
        self.seats[maker].active = active
        if not active:
            for name in sorted(self._held(maker, "assigned", "claimed"), key=lambda n: -self.cases[n].turn):
                self._move(name)
        return 200, {"active": active}

    def expire(self, **_: Any) -> Any:
        claimed = [name for name, c in self.cases.items() if c.state == "claimed"]
        for name in sorted(claimed, key=lambda name: self.cases[name].turn):
            self._move(name)
        return 200, {"expired": len(claimed)}

    def team(self, name: str, **_: Any) -> Any:
        if name in self.teams:
            raise RefusedError(409, "known-team")
        self.teams |= {name}
        return 201, {"name": name}

    def activate(self, number: int, classes: Sequence[Any], **_: Any) -> Any:
        self.classes, self.active = tuple(classes), number
        return 200, {"active": number}

    def trial(self, number: int, classes: Sequence[Any], answer: Answer, **_: Any) -> Any:
        """One at a time, of another model than the one in force that decides the same."""
        other = self.active is not None and self.classes != tuple(classes)
        if other or self.active == number or any(state != "ended" for state in self.trials.values()):
            raise RefusedError(409, "trial-runs")
        self.trials[answer.body.get("id", 0)] = "shadow"
        return 201, {"state": "shadow"}

    def begin(self, number: int, **_: Any) -> Any:
        return self._trial(number, ("shadow",), "trial")

    def end(self, number: int, **_: Any) -> Any:
        return self._trial(number, ("shadow", "trial"), "ended")

    def golden_case(self, label: Any, **_: Any) -> Any:
        if self.active is None:
            raise RefusedError(409, "no-model")
        self._check_class(label)
        self.golden += 1
        return 201, {"entered": 1}

    def golden_rate(self, maker: str, rate: float, **_: Any) -> Any:
        if not self.seats[maker].active:
            raise RefusedError(404, "not-found")
        self.rates[maker] = rate
        return 200, {"expert": maker, "rate": rate}

    def report(self, **_: Any) -> Any:
        return 200, {"sound": True}

    # --- what they share ------------------------------------------------------------------------------------

    def _trial(self, number: int, before: Sequence[str], after: str) -> Any:
        if number not in self.trials:
            raise RefusedError(404, "not-found")
        if self.trials[number] not in before:
            raise RefusedError(409, "not-a-shadow")
        self.trials[number] = after
        return 200, {"id": number, "state": after}

    def _unknown_class(self, value: Any) -> bool:
        return value is not None and bool(self.classes) and value not in self.classes

    def _check_class(self, value: Any) -> None:
        if self._unknown_class(value):
            raise RefusedError(422, "unknown-class")

    def _theirs(self, name: str, maker: str) -> Case:
        if name not in self.cases:
            raise RefusedError(404, "not-found")
        case = self.cases[name]
        if case.maker != maker or case.state not in ("assigned", "claimed"):
            raise RefusedError(409, "not-assigned")
        return case

    def _ask_others(self, name: str, maker: str, decision: Any) -> None:
        """An answer that is not the decision: the next best person is asked, or the lead."""
        case, count = self.cases[name], len(self.cases[name].opinions)
        if not count:
            case.barred = MACHINE not in case.excluded
        case.opinions.append((maker, decision, self._next()))
        case.excluded = list(dict.fromkeys([*case.excluded, maker, MACHINE]))
        case.maker, case.state, case.parked = None, None, False
        if count < 2:
            self._place(name)
        case.listed = case.maker is None

    def _undo_answer(self, name: str, maker: str, latest: int) -> Any:
        case = self.cases[name]
        who, said, when = case.opinions[-1]
        begun = case.maker is not None and (case.state != "assigned" or case.parked)
        if who != maker or when < latest or begun or case.labels:
            raise RefusedError(409, "acted-on")
        if not self.seats[maker].active:
            raise RefusedError(409, "out-of-use")
        self._put_down(maker)
        if case.maker is not None:
            self.seats[case.maker].used -= 1
        case.opinions.pop()
        again = {maker, MACHINE} if case.barred and not case.opinions else {maker}
        case.excluded = [name for name in case.excluded if name not in again]
        case.undone.append(said)
        case.status, case.maker, case.state, case.listed = "assigned", maker, "claimed", False
        return 200, {"case_id": name, "status": "assigned"}

    def _put_down(self, maker: str) -> None:
        for name in self._held(maker, "claimed"):
            self.cases[name].state = "assigned"

    def _next(self) -> int:
        self.turn += 1
        return self.turn

    def _draft(self, number: int) -> Plan:
        if number not in self.plans:
            raise RefusedError(404, "not-found")
        if self.plans[number].state != "draft":
            raise RefusedError(409, "plan-not-draft")
        return self.plans[number]

    def _held(self, maker: str, *states: str) -> list[str]:
        return [name for name, c in self.cases.items() if c.maker == maker and c.state in states]

    def _move(self, name: str) -> Any:
        """Take a case from whoever has it and give it to the next best."""
        case = self.cases[name]
        assert case.maker is not None
        self.seats[case.maker].used -= 1
        case.excluded = list(dict.fromkeys([*case.excluded, case.maker]))
        case.status, case.maker, case.state, case.parked = "waiting", None, None, False
        placed = self._place(name)
        if case.maker is None and case.opinions:
            case.status, case.listed = "assigned", True
        return placed

    def _place(self, name: str) -> Any:
        """Least loss + price among those who may get it and have room."""
        case = self.cases[name]
        able = [
            (case.losses[maker] + self.prices[maker], maker != MACHINE, maker)
            for maker, seat in self.seats.items()
            if seat.has_room and maker in case.losses and maker not in case.excluded
        ]
        if not able or not self.is_open:
            return 202, {"case_id": name, "status": "waiting"}
        self._give(name, min(able)[2])
        found = {"case_id": name, "status": case.status, "maker": case.maker, "decision": case.decision}
        return 201, found

    def _give(self, name: str, maker: str) -> None:
        case = self.cases[name]
        self.seats[maker].used += 1
        case.maker, case.state, case.status, case.turn = maker, "assigned", "assigned", self._next()
        case.parked = False
        if maker == MACHINE and case.says is not None:
            case.state, case.status, case.decision = "decided", "decided", case.says


def explain(
    ledgers: Iterable[Ledger], sent: Sequence[tuple[Request, Answer]], seen: Seen
) -> tuple[list[Ledger], list[str]]:
    """Every ledger that some order of the requests leads to and that is what was seen; else what is wrong."""
    found: dict[str, Ledger] = {}
    wrong: Counter[str] = Counter()
    for ledger in ledgers:
        for order in permutations(sent):
            then: Ledger | str = ledger
            for request, answer in order:
                assert isinstance(then, Ledger)
                then = then.after(request, answer, seen, alone=len(sent) == 1)
                if isinstance(then, str):
                    wrong[f"{request} -> {answer}: {then}"] += 1
                    break
            if isinstance(then, Ledger):
                differences = _differences(then, seen)
                if differences:
                    wrong[differences] += 1
                else:
                    found.setdefault(repr(replace(then, answers={})), then)
    return list(found.values()), [text for text, _ in wrong.most_common(3)]


def _differs(answer: Answer, status: int, fields: Mapping[str, Any], kind: str) -> str | None:
    """How an answer is not the one that the model gives."""
    if answer.status != status:
        return f"{status} {kind} was expected" + (f" {dict(fields)}" if fields else "")
    if kind in NAMED and answer.problem != kind:
        return f"the problem should be {kind}"
    body = answer.body
    odd = {name: value for name, value in fields.items() if body.get(name) != value}
    return f"expected {odd}" if odd else None


def _differences(ledger: Ledger, seen: Seen) -> str:
    """What is on record and should not be."""
    for what, mine, theirs in zip(
        ("case", "seat", "plan", "desk"),
        ledger.view(),
        (seen.cases, seen.seats, seen.plans, seen.desk),
        strict=True,
    ):
        if mine != theirs:
            odd = sorted({str(n) for n in {*mine, *theirs} if mine.get(n) != theirs.get(n)})  # type: ignore[attr-defined]
            pairs = [(n, mine.get(n), theirs.get(n)) for n in {*mine, *theirs} if str(n) == odd[0]]  # type: ignore[attr-defined]
            return f"{what} {odd[0]}: the model has {pairs[0][1]}, the ledger {pairs[0][2]}"
    if ledger.prices != seen.prices:
        return f"prices: the model has {ledger.prices}, the ledger {seen.prices}"
    return ""
