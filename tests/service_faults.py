"""What must hold when things go wrong: kills, races, replays, a database that restarts.

Each function takes counts, so that the test suite runs a short version and `make soak` the full one, and
gives a row of facts to judge.
"""

from __future__ import annotations

import hashlib
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from deccaf.client import Client as ApiClient
from deccaf.data.second import SecondTable
from deccaf.errors import DeccafError
from deccaf.evaluate.trial import Rules
from deccaf.service.imports import past_import, past_records
from deccaf.service.jobs.kinds import ask
from deccaf.service.jobs.learning import SETTING
from deccaf.service.ledger import versions
from deccaf.service.ledger.check import check
from deccaf.service.ledger.review import second
from deccaf.service.ledger.trials import trial_records
from deccaf.service.store import database
from deccaf.service.store import tables as t
from deccaf.service.store.keys import Actor
from deccaf.service.store.settings import write_setting
from service_databases import Postgres
from service_processes import Client, Server
from service_world import EXPERTS, first_key, history, model_file, shift_body
from webhook_receiver import Receiver


@dataclass
class Facts:
    """What a scenario saw; `wrong` must be empty."""

    counts: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


PATIENCE = 1_800.0
"""Seconds after which a request that was sent again and again through kills counts as lost."""
IN_PIECES = 1_600
"""Cases of a file or a plan that SQLite writes in several pieces."""
RARE = 8
"""Of so many files and plans one is large: the ledger of a long run stays of a size that restarts soon."""


_PLANS = sa.select(t.plans.c.id, t.plans.c.state, t.plans.c.cases)


def set_up(client: Client, capacity: dict[str, int], people: Sequence[str] = EXPERTS) -> int:
    """A team (of three) and a running shift."""
    assert client.call("POST", "/v1/teams", {"name": "desk"})[0] == 201
    for name in people:
        assert client.call("POST", "/v1/experts", {"name": name, "team": "desk"})[0] in (201, 409)
    status, _, shift = client.call("POST", "/v1/shifts", shift_body(capacity))
    assert status == 201, shift
    return int(shift["id"])


def some_case(name: str, rng: random.Random, people: Sequence[str] = EXPERTS) -> dict[str, Any]:
    losses = {maker: round(rng.random(), 3) for maker in ("machine", *people)}
    return {"case_id": name, "losses": losses, "machine_decision": 0}


def ledger_faults(url: str) -> list[str]:
    """What the ledger itself finds wrong."""
    engine = database.connect(url)
    try:
        with database.reading(engine) as connection:
            return check(connection)
    finally:
        engine.dispose()


def rows_of(url: str) -> dict[str, list[tuple[str, str]]]:
    """Every assignment by case: maker and state."""
    engine = database.connect(url)
    found: dict[str, list[tuple[str, str]]] = {}
    with database.reading(engine) as connection:
        c = t.assignments.c
        for row in connection.execute(sa.select(*c["case_id", "maker", "state"])):
            found.setdefault(row.case_id, []).append((row.maker, row.state))
    engine.dispose()
    return found


def compare(url: str, answered: dict[str, str], facts: Facts) -> None:
    """Every assignment that was acknowledged is there, once, as it was told."""
    rows = rows_of(url)
    for case, maker in answered.items():
        found = rows.get(case, [])
        if not found:
            facts.counts["lost"] += 1
            facts.wrong.append(f"{case} was acknowledged for {maker} and is not there")
        elif len(found) > 1:
            facts.counts["doubled"] += 1
            facts.wrong.append(f"{case} has {len(found)} assignments")
        elif found[0][0] != maker:
            facts.wrong.append(f"{case} was told {maker}, and is {found[0]}")
    facts.counts["acknowledged"] += len(answered)
    facts.wrong += ledger_faults(url)


class Streamers:
    """Clients that send cases until told to stop, through whatever happens, and keep what was answered."""

    def __init__(self, ports: list[int], secret: str, clients: int, allowed: set[int]) -> None:
        self.answered: dict[str, str] = {}
        self.statuses: Counter[int] = Counter()
        self.wrong: list[str] = []
        self._allowed, self._ports, self._secret = allowed, ports, secret
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._stream, args=(k,)) for k in range(clients)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(120)

    def _stream(self, number: int) -> None:
        rng = random.Random(number)
        client = Client(self._ports[number % len(self._ports)], self._secret)
        count = 0
        while not self._stop.is_set():
            count += 1
            name = f"s{number}-{count}"
            body = some_case(name, rng)
            while True:
                try:
                    status, headers, found = client.call("POST", "/v1/cases", body, f"key-{name}")
                except OSError:
                    if self._stop.wait(0.05):
                        return
                    continue
                self.statuses[status] += 1
                if status == 503 and "retry-after" in headers:
                    if self._stop.wait(0.1):
                        return
                    continue
                if status not in self._allowed:
                    self.wrong.append(f"{status}: {found}")
                elif status == 201:
                    self.answered[name] = found["maker"]
                break


def kills(url: str, log: Path, count: int, clients: int = 4, seed: int = 0, jobs: bool = False) -> Facts:
    """SIGKILL the service at random moments of streaming, planning, importing and deciding, and of jobs.

    A trial runs, and every decision asks somebody for a second opinion. With `jobs` some files and plans are
    so large that SQLite writes them in pieces, and a program is told of every case.
    """
    facts, rng, large = Facts(), random.Random(seed), IN_PIECES if jobs else 60
    secret = first_key(url)
    if jobs:
        enter_history(url)
    begin_trial(url, log.parent)
    server = Server(url, log)
    started = server.start(wait=180)
    set_up(Client(server.port, secret), {"ann": 100_000, "bob": 40, "cat": 10})
    receiver = Receiver()
    if jobs:
        body = {"url": receiver.address, "events": ["case.assigned", "case.decided"]}
        assert Client(server.port, secret).call("POST", "/v1/webhooks", body)[0] == 201
    streamers = Streamers([server.port], secret, clients, {201, 202})
    ended, planned, imported = threading.Event(), dict[str, int](), dict[int, int]()
    told: dict[str, tuple[str, int]] = {}
    others = [
        threading.Thread(target=_plan_for_ever, args=(server.port, secret, ended, planned, facts, large)),
        threading.Thread(target=_import_for_ever, args=(server.port, secret, ended, imported, facts, large)),
        threading.Thread(target=_decide_for_ever, args=(server.port, secret, ended, told, facts)),
    ]
    if jobs:
        others.append(threading.Thread(target=_fit_for_ever, args=(server.port, secret, url, ended, facts)))
    for thread in others:
        thread.start()
    for _ in range(count):
        time.sleep(rng.uniform(0.05, max(0.8, 1.5 * started)))  # on a busy machine everything takes longer
        if rng.random() < 0.5:
            server.kill_all()
        else:
            server.kill()
        started = server.start(wait=180)
        facts.seconds.append(started)
        facts.counts["kills"] += 1
        if facts.counts["kills"] % 20 == 0:
            print(f"{facts.counts['kills']} of {count} kills", file=sys.stderr, flush=True)
    time.sleep(0.3)
    ended.set()
    for thread in others:
        thread.join(600)
    streamers.stop()
    facts.wrong += streamers.wrong
    if jobs:
        _finish_jobs(server.port, secret, facts)
    compare(url, streamers.answered, facts)
    if jobs:
        _compare_told(url, streamers.answered, receiver, facts)
    server.kill_all()
    receiver.close()
    facts.counts["left unfinished"] = _unfinished(url)
    _compare_plans(url, planned, facts)
    _compare_imports(url, imported, facts)
    _compare_answers(url, told, facts)
    return facts


def _compare_told(url: str, answered: Collection[str], receiver: Receiver, facts: Facts) -> None:
    """Every case that was acknowledged was told of, at least once, and what was decided after who decides."""
    engine, deadline = database.connect(url), time.monotonic() + PATIENCE
    waits = sa.select(sa.func.count()).where(t.deliveries.c.state == "waiting")
    while True:
        with database.reading(engine) as connection:
            left = connection.execute(waits).scalar_one()
        if not left or time.monotonic() > deadline:
            break
        time.sleep(0.2)
    engine.dispose()
    if left:
        facts.wrong.append(f"{left} events were not told within {PATIENCE:.0f} s")
    first: dict[str, dict[str, int]] = {"case.assigned": {}, "case.decided": {}}
    for number, one in enumerate(receiver.got):
        first[one["event"]].setdefault(one["case_id"], number)
    untold = sorted(set(answered) - set(first["case.assigned"]))
    facts.wrong += [f"nobody was told of {case}" for case in untold]
    facts.wrong += [
        f"{case} was told to be decided before it was told to be assigned"
        for case, number in first["case.decided"].items()
        if first["case.assigned"].get(case, -1) > number
    ]
    facts.counts["events"] += len({one["id"] for one in receiver.got})
    facts.counts["events told again"] += len(receiver.got) - facts.counts["events"]


def _unfinished(url: str) -> int:
    """Large changes that have begun and not ended."""
    engine = database.connect(url)
    with engine.connect() as connection:
        found = connection.execute(sa.select(sa.func.count()).select_from(t.unfinished)).scalar_one()
    engine.dispose()
    return int(found)


def enter_history(url: str, rows: int = 240) -> None:
    """Decided and labelled cases to learn from, and what errors cost."""
    engine = database.connect(url)
    past = past_import.check_past(history(rows).rename(columns={"expert": "expert_id"}))
    with database.writing(engine) as connection:
        past_records.enter_past(connection, past, "past.csv", Actor(1), time.time())
        write_setting(connection, SETTING, {"costs": {"false_positive": 0.2, "false_negative": 1.0}})
    engine.dispose()


def begin_trial(url: str, folder: Path) -> None:
    """A model in force, another with half of the cases, and a second opinion on every decision."""
    engine, who, at = database.connect(url), Actor(1), time.time()
    with database.writing(engine) as connection:
        for seed in (0, 1):
            content = model_file(folder, seed)
            digest = hashlib.sha256(content).hexdigest()
            versions.add_version(connection, f"model {seed}", "test", digest, content, {}, who, at)
        versions.put_in_force(connection, 1, who, at)
        trial = trial_records.start(connection, 2, Rules(0.5, 1.0), who, at)
        trial_records.begin(connection, trial.id, who, at)
        second.write_rule(connection, SecondTable(share=1.0), who, at)
    engine.dispose()


def _decide_for_ever(
    port: int, secret: str, ended: threading.Event, told: dict[str, tuple[str, int]], facts: Facts
) -> None:
    """Cases that the models score arrive and are decided, by the client that programs of others use."""
    desk, number = ApiClient(f"http://127.0.0.1:{port}", secret, attempts=1_000), 0
    while not ended.is_set():
        number += 1
        name, said = f"f{number}", number % 2
        try:
            placed = desk.add_case(name, {"amount": number % 7 - 3.0, "channel": "web"})
            if placed.status == "decided":  # by the machine
                continue
            desk.decide_case(name, said, expert=placed.maker)
        except DeccafError as error:
            facts.wrong.append(f"case {name}: {error}")
        else:
            told[name] = (str(placed.maker), said)


def _compare_answers(url: str, told: dict[str, tuple[str, int]], facts: Facts) -> None:
    """Every answer is there once, others were asked, and each block of the trial has its lot."""
    engine = database.connect(url)
    c, blocks = t.trial_cases.c, dict[tuple[str, int], list[bool]]()
    with database.reading(engine) as connection:
        answers = [
            (row.case_id, row.maker, int(row.decision))
            for table, _ in t.ANSWERS
            for row in connection.execute(sa.select(*table.c["case_id", "maker", "decision"]))
            if row.case_id in told
        ]
        asked = set(connection.execute(sa.select(t.second_opinions.c.case_id)).scalars())
        arms = connection.execute(sa.select(*c["case_id", "stratum", "block", "candidate"])).all()
    engine.dispose()
    facts.counts["answers"] += len(told)
    count, in_an_arm = Counter(answers), {row.case_id for row in arms}
    for name, (maker, said) in told.items():
        if count[name, maker, said] != 1:
            facts.wrong.append(
                f"{maker} answered {name} with {said}, and it is there {count[name, maker, said]} times"
            )
        if name not in asked:
            facts.wrong.append(f"nobody was asked for a second opinion on {name}")
        if name not in in_an_arm:
            facts.wrong.append(f"{name} is in no arm")
    for row in arms:
        blocks.setdefault((row.stratum, row.block), []).append(bool(row.candidate))
    facts.wrong += [
        f"block {where} has the lots {lots}"
        for where, lots in blocks.items()
        if sum(lots) > 1 or len(lots) > 2
    ]


def _import_for_ever(
    port: int, secret: str, ended: threading.Event, imported: dict[int, int], facts: Facts, large: int
) -> None:
    client, number = Client(port, secret), 0
    while not ended.is_set():
        number += 1
        count = large if number % RARE == 2 else 25
        rows = "".join(f"i{number}-{k},{k},web\n" for k in range(count))
        body, deadline = f"case_id,amount,channel\n{rows}".encode(), time.monotonic() + PATIENCE
        status, found = client.until_answered("POST", "/v1/imports", body, f"import-{number}", deadline)
        if status == 201:
            imported[found["id"]] = found["accepted"]
        else:
            facts.wrong.append(f"import: {status} {found}")


def _compare_imports(url: str, imported: dict[int, int], facts: Facts) -> None:
    """Every file that was entered is whole, and those that were acknowledged are there."""
    engine = database.connect(url)
    c, i = t.cases.c, t.imports.c
    with database.reading(engine) as connection:
        query = sa.select(c.import_id, sa.func.count()).group_by(c.import_id)
        found: dict[int, int] = dict(connection.execute(query).all())
        entered: dict[int, int] = dict(connection.execute(sa.select(i.id, i.accepted)).all())
    engine.dispose()
    facts.counts["imports"] += len(imported)
    for number, accepted in {**entered, **imported}.items():
        if found.get(number) != accepted or entered.get(number) != accepted:
            facts.wrong.append(f"import {number} has {found.get(number)} of {accepted} cases")


def _fit_for_ever(port: int, secret: str, url: str, ended: threading.Event, facts: Facts) -> None:
    """Refits and backtests, one after the other, however often they are killed."""
    client, number = Client(port, secret), 0
    engine = database.connect(url)
    while not ended.is_set():
        number += 1
        deadline = time.monotonic() + PATIENCE
        client.until_answered("POST", "/v1/models/refit", {"activate": False}, f"refit-{number}", deadline)
        if number % 3 == 1:
            with suppress(Exception), database.writing(engine) as connection:
                ask(connection, "backtest", {"name": "backtest"}, Actor(1), time.time())
        facts.counts["jobs asked for"] += 1
        ended.wait(1.0)
    engine.dispose()


def _finish_jobs(port: int, secret: str, facts: Facts) -> None:
    """All jobs end, and one that nobody disturbs is done."""
    client, deadline = Client(port, secret), time.monotonic() + 600
    for last in (False, True):
        if last:
            client.until_answered("POST", "/v1/models/refit", {}, "the-last-refit", deadline)
        while time.monotonic() < deadline:
            jobs = client.until_answered("GET", "/v1/jobs?limit=1000", None, "jobs", deadline)[1]["items"]
            if all(job["state"] in ("done", "failed") for job in jobs):
                break
            time.sleep(0.5)
        else:
            facts.wrong.append(f"a job never ends: {jobs[-1]}")
            return
    for job in jobs:
        facts.counts[f"jobs {job['state']}"] += 1
        if job["state"] == "failed" and "gave up after 3 attempts" not in str(job["result"]):
            facts.wrong.append(f"job {job['id']}, {job['kind']}: {job['result']}")
    if jobs[-1]["state"] != "done":
        facts.wrong.append(f"the last refit was disturbed by nobody: {jobs[-1]}")


def refits_through_restarts(postgres: Postgres, url: str, log: Path, count: int) -> Facts:
    """PostgreSQL restarts while a refit reads, learns and writes: the refit is done all the same."""
    facts, rng = Facts(), random.Random(3)
    secret = first_key(url)
    enter_history(url)
    server = Server(url, log)
    server.start(wait=180)
    client = Client(server.port, secret)
    for number in range(count):
        deadline = time.monotonic() + 300
        client.until_answered("POST", "/v1/models/refit", {}, f"refit-{number}", deadline)
        for _ in range(rng.randrange(1, 4)):  # somewhere among reading, learning and writing
            time.sleep(rng.uniform(0.2, 4.0))
            postgres.restart()
            facts.counts["restarts"] += 1
        while time.monotonic() < deadline:
            job = client.until_answered("GET", "/v1/jobs?limit=1000", None, "jobs", deadline)[1]["items"][-1]
            if job["state"] in ("done", "failed"):
                break
            time.sleep(0.2)
        facts.counts[str(job["state"])] += 1
        if job["state"] != "done":
            facts.wrong.append(f"refit {number}: {job['state']}, {job['result']}")
    server.stop()
    facts.wrong += ledger_faults(url)
    return facts


def _plan_for_ever(
    port: int, secret: str, ended: threading.Event, planned: dict[str, int], facts: Facts, large: int
) -> None:
    client, rng, number = Client(port, secret), random.Random(99), 0
    while not ended.is_set():
        number += 1
        count = large if number % RARE == 2 else 30
        cases = [some_case(f"p{number}-{k}", rng) for k in range(count)]
        deadline = time.monotonic() + PATIENCE
        client.until_answered("POST", "/v1/cases/bulk", {"cases": cases}, f"bulk-{number}", deadline)
        status, draft = client.until_answered("POST", "/v1/plans", {}, f"plan-{number}", deadline)
        if status != 201:
            continue
        path = f"/v1/plans/{draft['id']}/commit"
        status, found = client.until_answered("POST", path, {}, f"commit-{number}", deadline)
        if status == 200:
            planned[str(draft["id"])] = found["cases"]
        elif status != 409:
            facts.wrong.append(f"commit: {status} {found}")


def _compare_plans(url: str, planned: dict[str, int], facts: Facts) -> None:
    engine = database.connect(url)
    c = t.assignments.c
    with database.reading(engine) as connection:
        query = sa.select(c.plan_id, sa.func.count()).where(c.plan_id.is_not(None)).group_by(c.plan_id)
        found = {str(plan): int(cases) for plan, cases in connection.execute(query)}
        states = {str(row.id): (row.state, row.cases) for row in connection.execute(_PLANS)}
    engine.dispose()
    facts.counts["plans"] += len(planned)
    committed = {plan: cases for plan, (state, cases) in states.items() if state == "committed"}
    for plan in found.keys() - committed.keys():
        facts.wrong.append(f"plan {plan} is no more than a draft, and has {found[plan]} cases")
    for plan, cases in {**committed, **planned}.items():
        if found.get(plan) != cases:
            facts.wrong.append(f"plan {plan} was committed with {cases} cases and has {found.get(plan)}")


def race(
    ports: list[int], url: str, secret: str, requests: int, clients: int, capacity: dict[str, int]
) -> Facts:
    """Many clients for the last units of capacity, on one or several processes."""
    facts = Facts()
    set_up(Client(ports[0], secret), capacity)
    lock = threading.Lock()
    answered: dict[str, str] = {}

    def one(number: int) -> None:
        client, rng = Client(ports[number % len(ports)], secret), random.Random(number)
        for k in range(requests // clients):
            body = {
                "case_id": f"r{number}-{k}",
                "losses": {maker: round(rng.random(), 3) for maker in capacity},
            }
            status, found = client.until_answered(
                "POST", "/v1/cases", body, f"r{number}-{k}", time.monotonic() + 300
            )
            with lock:
                facts.counts[str(status)] += 1
                if status == 201:
                    answered[body["case_id"]] = found["maker"]
                elif status != 202:
                    facts.wrong.append(f"{status}: {found}")

    threads = [threading.Thread(target=one, args=(k,)) for k in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken = Counter(answered.values())
    for maker, most in capacity.items():
        if taken[maker] > most:
            facts.counts["overruns"] += taken[maker] - most
            facts.wrong.append(f"{maker} got {taken[maker]} of {most}")
    if sum(taken.values()) != min(sum(capacity.values()), requests // clients * clients):
        facts.wrong.append(f"{sum(taken.values())} assigned, room for {sum(capacity.values())}")
    compare(url, answered, facts)
    return facts


def replays(port: int, url: str, secret: str, requests: int) -> Facts:
    """Every request three times at once with its key: one row, one answer."""
    facts, rng = Facts(), random.Random(5)
    answered: dict[str, str] = {}
    for number in range(requests):
        body, answers = some_case(f"again-{number}", rng), []

        def send(body: Any = body, number: int = number, answers: list[Any] = answers) -> None:
            answers.append(Client(port, secret).call("POST", "/v1/cases", body, f"again-{number}"))

        threads = [threading.Thread(target=send) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        facts.counts["requests"] += 3
        if {(status, str(found)) for status, _, found in answers} != {(201, str(answers[0][2]))}:
            facts.wrong.append(f"answers differ: {[(status, found) for status, _, found in answers]}")
        answered[f"again-{number}"] = answers[0][2].get("maker")
    compare(url, answered, facts)
    return facts


def database_restarts(postgres: Postgres, url: str, log: Path, count: int, clients: int = 4) -> Facts:
    """PostgreSQL stops and starts under load: 503 with Retry-After meanwhile, and nothing broken after."""
    facts = Facts()
    secret = first_key(url)
    server = Server(url, log)
    server.start()
    set_up(Client(server.port, secret), {"ann": 10_000, "bob": 40, "cat": 10})
    streamers = Streamers([server.port], secret, clients, {201, 202})
    for _ in range(count):
        time.sleep(0.5)
        postgres.restart()
        facts.counts["restarts"] += 1
        before, deadline = len(streamers.answered), time.monotonic() + 60
        while len(streamers.answered) == before and time.monotonic() < deadline:
            time.sleep(0.02)
    time.sleep(0.5)
    streamers.stop()
    server.stop()
    facts.counts.update({str(status): n for status, n in streamers.statuses.items()})
    facts.wrong += streamers.wrong
    compare(url, streamers.answered, facts)
    return facts
