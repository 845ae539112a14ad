"""Random histories of the service, each compared with `ledger_model`: what the tests and the soak run.

A history is a shift of its own with three people. Requests come one by one, three times at once under one
idempotency key, or two and three different ones at once around the same case or person; after each of these
the answers, and everything on record, must be what the model says for some order of the requests.
"""

from __future__ import annotations

import itertools
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from deccaf import Costs
from deccaf.estimator import DeCCaF
from deccaf.service import large_changes
from deccaf.service.ledger import claims, labels
from deccaf.service.store import unfinished
from deccaf.service.web.admission import Refusals
from ledger_client import http_of, last_of_desk, read_record
from ledger_model import MACHINE, Answer, Ledger, Request, Seat, Seen, explain
from service_world import World, bearer, history, model_file, shift_body, world

PAUSE = 0.002
"""Statements on PostgreSQL are held up by random times up to this, so that transactions meet more often."""
CLASSES = {0: (0, 1), 1: ("no", "yes"), 2: (0, 1)}
LOSSES = (0.1, 0.2, 0.3, 0.4, 0.5)
SEEDS = st.integers(0, 2**32 - 1)
"""What a step does follows from one number and the state so far: what races bring about differs from run to run,
and Hypothesis wants the shape of what it draws to be the same."""


@cache
def other_model() -> DeCCaF:
    """A model with other classes: what may be said depends on the one in force."""
    past = history(300, 1)
    names = {0: "no", 1: "yes"}
    model = DeCCaF(
        Costs.binary(0.2, 1.0, classes=("no", "yes")), case_parts=("logistic",), decision_parts=("rates",)
    )
    return model.fit(
        past[["case_id", "amount", "channel"]],
        past["label"].map(names),
        expert=past["expert"],
        decision=past["decision"].map(names),
    )


@dataclass
class Bench:
    """A service that histories run on, and what they found."""

    desk: World
    models: list[int]
    histories: int = 0
    requests: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
    stop_at_findings: bool = True
    """Whether a finding is an error at once; else it is kept, and the next history begins."""
    without: frozenset[str] = frozenset()
    """Kinds of requests that are left out."""
    numbers: Iterator[int] = field(default_factory=itertools.count)
    threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(3))

    rng: random.Random = field(default_factory=lambda: random.Random(0))
    racing: bool = False

    def dawdle(self) -> None:
        """Hold a statement up for a moment while others run."""
        if self.racing:
            time.sleep(self.rng.random() * PAUSE)

    @property
    def kinds(self) -> list[str]:
        return [kind for kind in KINDS if kind not in self.without]

    @property
    def clashes(self) -> list[tuple[str, ...]]:
        return [kinds for kinds in CLASHES if not self.without & set(kinds)]


class AtOnce(Refusals):
    """Refused keys are answered at once: the wait is another test's, and there are many of them here."""

    def note(self, address: str, at: float) -> float:
        return 0.0


@contextmanager
def bench(
    url: str, folder: Path, stop_at_findings: bool = True, without: Sequence[str] = ()
) -> Iterator[Bench]:
    """A service with three models, on a database of its own; on SQLite large changes begin with two rows."""
    with in_small_pieces(lambda: found.dawdle()), world(url, housekeeping=False) as desk:
        files = [model_file(folder), model_bytes(other_model(), folder), model_file(folder, 1)]
        models = []
        for content in files:
            made = desk.lead.post("/v1/models", content=content)
            assert made.status_code == 201, made.text
            models.append(made.json()["id"])
        if desk.service.engine.dialect.name == "postgresql":
            sa.event.listen(desk.service.engine, "before_cursor_execute", lambda *_: found.dawdle())
        desk.nobody.app.state.refusals = AtOnce()
        found = Bench(desk, models, stop_at_findings=stop_at_findings, without=frozenset(without))
        yield found
        found.threads.shutdown()


@contextmanager
def in_small_pieces(between: Callable[[], None]) -> Iterator[None]:
    """Every row of a file or a plan is a piece of its own, and others come in between."""
    sizes, real = (unfinished.PIECE, labels.AT_ONCE), large_changes._parts

    def parts(rows: Iterable[Any]) -> Iterator[list[Any]]:
        for part in real(rows):
            between()
            yield part

    (unfinished.PIECE, labels.AT_ONCE), large_changes._parts = (1, 1), parts
    try:
        yield
    finally:
        (unfinished.PIECE, labels.AT_ONCE), large_changes._parts = sizes, real


def run_histories(here: Bench, count: int, steps: int = 12) -> None:
    """Run so many histories; findings are errors, or kept in `here.findings`."""
    machine = type("Histories", (History,), {"here": here})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=count,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
            print_blob=False,
        ),
    )


class History(RuleBasedStateMachine):
    """One shift, its requests, and the ledgers of the model that explain everything so far."""

    here: Bench

    @initialize(seed=SEEDS)
    def open_shift(self, seed: int) -> None:
        """Three people, little capacity."""
        rng = random.Random(seed)
        self.number = next(self.here.numbers)
        self.here.histories += 1
        self.people = [f"{name}{self.number}" for name in ("ann", "bob", "cat")]
        lead = self.here.desk.lead
        capacity = {name: rng.randint(1, 3) for name in self.people}
        for name in self.people:
            assert lead.post("/v1/experts", json={"name": name, "team": "desk"}).status_code == 201
        made = lead.post("/v1/shifts", json=shift_body(capacity, f"shift {self.number}"))
        assert made.status_code == 201, made.text
        self.shift = made.json()["id"]
        body = {"name": "reviewer", "role": "reviewer", "expert": self.people[0]}
        secret = lead.post("/v1/keys", json=body).json()["secret"]
        reviewer = TestClient(lead.app, raise_server_exceptions=False, headers=bearer(secret))
        reviewer.portal = lead.portal
        self.clients = {"lead": lead, self.people[0]: reviewer}
        makers = {MACHINE: None, **capacity}
        active = self.here.desk.service.models.active
        self.ledgers = [
            Ledger(
                {name: Seat(units) for name, units in makers.items()},
                dict.fromkeys(makers, 0.0),
                () if active is None else active.classes,
                active=None if active is None else active.id,
            )
        ]
        self.since = self.here.desk.service.read(last_of_desk)
        self.log: list[str] = []
        self.sent: list[Request] = []
        self.keys, self.names = itertools.count(), itertools.count()
        self.broken = False
        for kind in ("case", "case", "bulk"):
            self._send([self._request(rng, self._focus(rng), kind)])

    @rule(seed=SEEDS)
    def one(self, seed: int) -> None:
        """One request, with or without a key."""
        rng = random.Random(seed)
        request = self._request(rng, self._focus(rng))
        self._send([self._keyed(request) if rng.random() < 0.5 else request])

    @rule(seed=SEEDS)
    def again(self, seed: int) -> None:
        """A request of before, long after; sometimes another one under its key."""
        rng = random.Random(seed)
        before = [request for request in self.sent if request.key is not None]
        if before:
            request = rng.choice(before)
            if rng.random() < 0.2:
                other = self._request(rng, self._focus(rng))
                if other.client == request.client and other.kind != "expire":
                    request = replace(other, key=request.key)
            self._send([request])

    @rule(seed=SEEDS)
    def thrice(self, seed: int) -> None:
        """The same request three times at once."""
        rng = random.Random(seed)
        self._send([self._keyed(self._request(rng, self._focus(rng)))] * 3)

    @rule(seed=SEEDS)
    def together(self, seed: int) -> None:
        """Two or three requests at once, around one case and one person."""
        rng = random.Random(seed)
        focus = self._focus(rng)
        kinds = rng.choice(self.here.clashes)
        if rng.random() < 0.3:
            kinds = tuple(rng.choices(self.here.kinds, k=rng.randint(2, 3)))
        self._send([self._request(rng, focus, kind) for kind in kinds])

    @rule(seed=SEEDS)
    def stale(self, seed: int) -> None:
        """Two drafts for the same cases; the day goes on between their commits."""
        rng = random.Random(seed)
        known = set(self.ledgers[0].plans)
        asked = self._request(rng, self._focus(rng), "plan")
        for _ in range(2 * (asked.kind == "plan")):
            self._send([asked])
        drafts = sorted(set(self.ledgers[0].plans) - known)
        for number in drafts:
            self._send([Request("commit", {"number": number})])
            rows = self.ledgers[0].plans[number].rows
            for name in rows:
                kind = rng.choice(
                    [k for k in ("hand_back", "hand_back", "label", "person") if k in self.here.kinds]
                )
                self._send(
                    [self._request(rng, (name, self.ledgers[0].cases[name].maker or rows[name]), kind)]
                )

    def teardown(self) -> None:
        """At the end the ledger adds up; no claim is left for the next history."""
        if hasattr(self, "ledgers"):
            self._send([Request("expire", {})])
            for number, state in self.ledgers[0].trials.items():
                if state != "ended":
                    self._send([Request("end", {"number": number})])
            self._send([Request("report", {})])
            while self._run_out():
                pass

    # --- requests -----------------------------------------------------------------------------------------

    def _focus(self, rng: random.Random) -> tuple[str, str]:
        """A case and a person that requests may meet at; the person who has it where somebody has."""
        cases = self.ledgers[0].cases
        name = rng.choice(sorted(cases)) if cases else f"c{self.number}-unknown"
        maker = cases[name].maker if cases else None
        if maker in (None, MACHINE) or rng.random() < 0.2:
            maker = rng.choice(self.people)
        return name, maker

    def _request(self, rng: random.Random, focus: tuple[str, str], kind: str | None = None) -> Request:
        kind = self._possible(kind or rng.choice(self.here.kinds))
        name, maker = focus
        args: dict[str, Any] = getattr(self, f"_{kind}")(rng, name, maker)
        client = "lead"
        if maker == self.people[0] and kind in PERSONAL:
            client = rng.choice(["lead", maker])
        return Request(kind, args, client)

    def _possible(self, kind: str) -> str:
        """Rather a plan to commit than another 404."""
        ledger = self.ledgers[0]
        if kind in ("commit", "discard") and not any(p.state == "draft" for p in ledger.plans.values()):
            kind = "plan" if len(self.log) % 8 else kind
        if kind == "plan" and not any(c.status == "waiting" for c in ledger.cases.values()):
            kind = "bulk"
        return kind

    def _keyed(self, request: Request) -> Request:
        if request.kind == "expire":  # nobody asks for it
            return request
        return replace(request, key=f"h{self.number}-{next(self.keys)}")

    def _new(self) -> str:
        return f"c{self.number}-{next(self.names)}"

    def _value(self, rng: random.Random) -> Any:
        usual = self.ledgers[0].classes or (0, 1)
        return rng.choice([*usual, *usual, 1, "yes"])

    def _losses(self, rng: random.Random) -> dict[str, float]:
        """People are better than the machine, which may get half of the cases; the others can come to wait."""
        machine = {MACHINE: 0.9} if rng.random() < 0.5 else {}
        people = rng.sample(self.people, rng.randint(1, 3))
        return {**machine, **{name: rng.choice(LOSSES) for name in people}}

    def _case(self, rng: random.Random, name: str, maker: str) -> dict[str, Any]:
        known = rng.random() < 0.1
        losses = self._losses(rng)
        excluded = [maker] if rng.random() < 0.15 else []
        says = self._value(rng)
        return {"name": name if known else self._new(), "losses": losses, "says": says, "excluded": excluded}

    def _bulk(self, rng: random.Random, name: str, maker: str) -> dict[str, Any]:
        count = rng.randint(1, 3)
        return {"cases": [[self._new(), self._losses(rng), self._value(rng)] for _ in range(count)]}

    def _import_file(self, rng: random.Random, name: str, maker: str) -> dict[str, Any]:
        return {"names": [self._new() for _ in range(rng.randint(1, 2))]}

    def _label(self, rng: random.Random, name: str, maker: str) -> dict[str, Any]:
        cases = self.ledgers[0].cases
        more = rng.sample(sorted(cases), min(rng.randint(0, 2), len(cases)))
        return {"labels": {case: self._value(rng) for case in dict.fromkeys([name, *more])}}

    def _next_case(self, rng: random.Random, name: str, maker: str) -> dict[str, Any]:
        return {"maker": maker}

    def _decide(self, rng: random.Random, name: str, maker: str) -> dict[str, Any]:
        return {"name": name, "maker": maker, "decision": self._value(rng)}

    def _hand_back(self, rng: random.Random, name: str, maker: str) -> dict[str, Any]:
        return {"name": name, "maker": maker}

    _undo = _park = _take_up = _extend = _hand_back

    def _reassign(self, rng: random.Random, name: str, maker: str) -> dict[str, Any]:
        cases = self.ledgers[0].cases
        more = rng.sample(sorted(cases), min(rng.randint(0, 3), len(cases)))
        to = rng.choice([None, None, *self.people, MACHINE])
        return {"names": list(dict.fromkeys([name, *more])), "to": to, "begun": rng.random() < 0.5}

    def _prioritise(self, rng: random.Random, name: str, maker: str) -> dict[str, Any]:
        return {"name": name, "priority": rng.choice(["low", "normal", "high", "urgent"])}

    def _want(self, rng: random.Random, name: str, maker: str) -> dict[str, Any]:
        return {"name": name}

    def _settle(self, rng: random.Random, name: str, maker: str) -> dict[str, Any]:
        listed = [(n, c) for n, c in self.ledgers[0].cases.items() if c.listed]
        if not listed or rng.random() < 0.1:
            return {"name": name, "decision": self._value(rng)}
        found, case = rng.choice(listed)
        return {"name": found, "decision": rng.choice([said for _, said, _ in case.opinions])}

    def _plan(self, rng: random.Random, name: str, maker: str) -> dict[str, Any]:
        cases = self.ledgers[0].cases
        waiting = [n for n, c in cases.items() if c.status == "waiting" and c.losses]
        if rng.random() < 0.5:
            waiting = waiting[: rng.randint(1, 2)]
        taken = [n for n, c in cases.items() if c.status != "waiting"]
        if taken and rng.random() < 0.1:
            waiting.append(rng.choice(taken))
        return {"names": waiting or [f"c{self.number}-unknown"]}

    def _commit(self, rng: random.Random, name: str, maker: str) -> dict[str, Any]:
        plans_ = self.ledgers[0].plans
        drafts = [number for number, plan in plans_.items() if plan.state == "draft"]
        return {"number": rng.choice(drafts or sorted(plans_) or [10**6])}

    _discard = _commit

    def _roster(self, rng: random.Random, name: str, maker: str) -> dict[str, Any]:
        away = rng.choice([None, None, True, False])
        capacity = rng.choice((None, None, None, 0, 1, 2, 3, 4))
        return {"maker": maker, "capacity": capacity, "absent": away, "release": rng.random() < 0.5}

    def _shift(self, rng: random.Random, name: str, maker: str) -> dict[str, Any]:
        return {"state": rng.choice(["open", "open", "closed"])}

    def _person(self, rng: random.Random, name: str, maker: str) -> dict[str, Any]:
        return {"maker": maker, "active": rng.random() < 0.5}

    def _team(self, rng: random.Random, name: str, maker: str) -> dict[str, Any]:
        return {"name": f"team {self.number} {rng.randint(0, 1)}"}

    def _activate(self, rng: random.Random, name: str, maker: str) -> dict[str, Any]:
        which = rng.choice([0, 0, 1])
        return {"number": self.here.models[which], "classes": list(CLASSES[which])}

    def _trial(self, rng: random.Random, name: str, maker: str) -> dict[str, Any]:
        which = rng.choice([0, 1, 2, 2])
        return {"number": self.here.models[which], "classes": list(CLASSES[which])}

    def _begin(self, rng: random.Random, name: str, maker: str) -> dict[str, Any]:
        return {"number": rng.choice(sorted(self.ledgers[0].trials) or [10**6])}

    _end = _begin

    def _golden_case(self, rng: random.Random, name: str, maker: str) -> dict[str, Any]:
        return {"label": self._value(rng)}

    def _golden_rate(self, rng: random.Random, name: str, maker: str) -> dict[str, Any]:
        return {"maker": maker, "rate": rng.choice([0.0, 0.25, 0.5])}

    def _expire(self, *_: Any) -> dict[str, Any]:
        return {}

    def _report(self, rng: random.Random, name: str, maker: str) -> dict[str, Any]:
        return {}

    # --- sending and comparing ----------------------------------------------------------------------------

    def _send(self, requests: Sequence[Request]) -> None:
        if self.broken:
            return
        self.sent += requests[:1] if len(set(map(str, requests))) == 1 else requests
        self.here.requests.update(request.kind for request in requests)
        start = threading.Barrier(len(requests))
        self.here.racing = len(requests) > 1
        answers = list(self.here.threads.map(lambda request: self._ask(request, start), requests))
        self.here.racing = False
        sent = list(zip(requests, answers, strict=True))
        self.log.append("\n   ".join(f"{request} -> {answer}" for request, answer in sent))
        left, wrong = explain(self.ledgers, sent, self._seen())
        if left:
            self.ledgers = left[:8]
            return
        self.broken = True
        how = "+".join(sorted(request.kind for request in requests)) + (
            " (one key)" if _same(requests) else ""
        )
        finding = f"{how}: no order of the requests explains this\n" + "\n".join(
            [*[f"  wrong: {text}" for text in wrong], *[f"{n:3} {line}" for n, line in enumerate(self.log)]]
        )
        self.here.findings.append(finding)
        if self.here.stop_at_findings:
            raise AssertionError(finding)

    def _run_out(self) -> int:
        """Claims run out, as the housekeeping of the service finds it after an hour; how many."""
        service, later = self.here.desk.service, time.time() + 3600.0
        return len(service.writer.submit(lambda c: claims.expire_claims(c, later, service.rng)).result(60))

    def _ask(self, request: Request, start: threading.Barrier) -> Answer:
        if request.kind == "expire":
            start.wait(30)
            return Answer(200, json.dumps({"expired": self._run_out()}))
        method, path, content, kind = http_of(request, self.shift)
        headers = {"Content-Type": kind}
        if request.key is not None:
            headers["Idempotency-Key"] = request.key
        start.wait(30)
        found = self.clients[request.client].request(method, path, content=content, headers=headers)
        return Answer(found.status_code, found.text, "idempotency-replayed" in found.headers)

    def _seen(self) -> Seen:
        """What is on record of this history; nothing runs meanwhile."""
        prefix, known = f"c{self.number}-", self.ledgers[0].plans
        return self.here.desk.service.read(lambda c: read_record(c, prefix, self.shift, known, self.since))


KINDS = (
    *["case"] * 4,
    *["bulk"] * 3,
    "import_file",
    *["label"] * 2,
    *["next_case"] * 3,
    *["decide"] * 3,
    *["hand_back"] * 3,
    *["undo"] * 3,
    *["park"] * 2,
    *["take_up"] * 2,
    "extend",
    *["reassign"] * 3,
    "prioritise",
    *["want"] * 2,
    "settle",
    *["plan"] * 3,
    *["commit"] * 4,
    "discard",
    *["roster"] * 2,
    "shift",
    "person",
    "expire",
    "team",
    "activate",
    *["trial"] * 2,
    "begin",
    "end",
    "golden_case",
    "golden_rate",
)
PERSONAL = ("next_case", "decide", "hand_back", "undo", "park", "take_up", "extend")
"""What a reviewer may ask for too."""
CLASHES: tuple[tuple[str, ...], ...] = (
    ("next_case", "next_case", "next_case"),
    ("next_case", "next_case", "decide"),
    ("next_case", "decide"),
    ("next_case", "hand_back"),
    ("next_case", "roster"),
    ("next_case", "expire"),
    ("decide", "expire", "next_case"),
    ("hand_back", "expire"),
    ("decide", "decide", "hand_back"),
    ("hand_back", "hand_back"),
    ("label", "label", "label"),
    ("label", "commit"),
    ("case", "case", "commit"),
    ("case", "case", "case"),
    ("case", "roster", "report"),
    ("case", "hand_back", "report"),
    ("commit", "commit", "report"),
    ("commit", "hand_back"),
    ("commit", "discard"),
    ("commit", "roster"),
    ("commit", "person"),
    ("case", "person"),
    ("next_case", "person"),
    ("decide", "person"),
    ("case", "shift"),
    ("label", "activate"),
    ("undo", "undo", "next_case"),
    ("undo", "label"),
    ("undo", "decide", "next_case"),
    ("undo", "person"),
    ("undo", "expire"),
    ("park", "next_case", "take_up"),
    ("park", "roster"),
    ("take_up", "hand_back"),
    ("extend", "expire"),
    ("reassign", "reassign"),
    ("reassign", "next_case"),
    ("reassign", "decide"),
    ("reassign", "hand_back", "report"),
    ("reassign", "person"),
    ("reassign", "roster"),
    ("reassign", "commit"),
    ("reassign", "expire"),
    ("prioritise", "next_case"),
    ("want", "decide"),
    ("decide", "undo", "next_case"),
    ("settle", "undo"),
    ("settle", "settle", "report"),
    ("trial", "trial", "activate"),
    ("begin", "end"),
    ("begin", "commit"),
    ("golden_rate", "person"),
    ("golden_case", "activate"),
)


def _same(requests: Sequence[Request]) -> bool:
    return len(requests) > 1 and requests[0].key is not None


def model_bytes(model: DeCCaF, folder: Path) -> bytes:
    path = folder / "other.deccaf"
    model.save(path)
    return path.read_bytes()
