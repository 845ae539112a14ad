"""The service under load: a ledger of a million cases, a steady stream for long, a disk that fills up."""

from __future__ import annotations

import os
import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import service_million as million
from deccaf.service.store import database
from service_databases import Postgres
from service_faults import Facts, Streamers, compare, ledger_faults, set_up, some_case
from service_processes import Client, Server
from service_world import first_key, model_file

PAGE_SECONDS, REPORT_SECONDS, DELAY_SECONDS = 0.5, 2.0, 0.25
TRANSACTION_SECONDS = 0.1
LEAST_SAMPLE = 20


class Writing:
    """One client that enters cases, one after the other, and how long each took."""

    def __init__(self, port: int, secret: str) -> None:
        self.seconds: list[float] = []
        self.wrong: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, args=(Client(port, secret),), daemon=True)
        self._thread.start()

    def _write(self, client: Client) -> None:
        number = 0
        while not self._stop.is_set():
            number += 1
            name, began = f"w{id(self)}-{number}", time.perf_counter()
            body = {"case_id": name, "losses": {"machine": 0.5, "ann": 0.4}, "machine_decision": 0}
            status, _, found = client.call("POST", "/v1/cases", body, name, timeout=120.0)
            self.seconds.append(time.perf_counter() - began)
            if status not in (201, 202):
                self.wrong.append(f"{status}: {found}")

    def stop(self) -> float:
        """The slowest, in seconds."""
        self._stop.set()
        self._thread.join(300)
        return max(self.seconds)


def million_cases(
    url: str, folder: Path, cases: int, postgres: Postgres | None, tell: Callable[[str], None] = print
) -> Facts:
    """Every page and report: its processor time alone, and how long writes take meanwhile."""
    facts, secret = Facts(), first_key(url)
    engine = database.connect(url, statement_seconds=None)
    million.fill(engine, cases, model_file(folder))
    engine.dispose()
    server = Server(url, folder / "log")
    server.start(wait=180)
    client = Client(server.port, secret)
    client.sign_in(secret)
    used = lambda: server.cpu_seconds() + (postgres.cpu_seconds() if postgres else 0.0)  # noqa: E731
    paths = {**dict.fromkeys((*million.PAGES, *million.MORE_PAGES, *million.LEAD_PAGES), PAGE_SECONDS)}
    paths |= dict.fromkeys(million.REPORTS, REPORT_SECONDS)
    time.sleep(5.0)  # what is kept at hand is added up in the first seconds
    alone = Writing(server.port, secret)
    time.sleep(5.0)
    usual = alone.stop()
    facts.wrong += alone.wrong
    tell(f"writes alone: {len(alone.seconds)}, slowest {usual:.3f} s")
    for path, most in paths.items():
        took = []
        for _ in range(3):
            before, idle = used(), _idle_share(used)
            began = time.perf_counter()
            status, _, found = client.call("GET", path, timeout=120.0)
            took.append(max(used() - before - idle * (time.perf_counter() - began), 0.0))
            if status not in (200, 303):
                facts.wrong.append(f"{path}: {status} {str(found)[:200]}")
        writing = Writing(server.port, secret)
        while len(writing.seconds) < LEAST_SAMPLE:
            client.call("GET", path, timeout=120.0)
        slowest = writing.stop()
        facts.wrong += writing.wrong
        seconds = min(took)  # the others may hold what the service does by itself, once a minute
        facts.seconds.append(seconds)
        tell(f"{path}: {seconds:.2f} s of processor, writes meanwhile at most {slowest:.3f} s")
        facts.counts["slowest write, ms"] = max(facts.counts["slowest write, ms"], round(1000 * slowest))
        if seconds > most:
            facts.wrong.append(f"{path}: {seconds:.2f} s of processor; at most {most}")
        if slowest > usual + DELAY_SECONDS:
            facts.wrong.append(f"{path}: a write took {slowest:.3f} s, alone at most {usual:.3f}")
    server.stop()
    facts.wrong += ledger_faults(url)
    return facts


def _idle_share(used: Callable[[], float]) -> float:
    """Processor time a second that is used while nobody asks."""
    before = used()
    time.sleep(1.0)
    return used() - before


def long_writes(url: str, folder: Path, cases: int, people: int = 50) -> Facts:
    """The largest changes there are, one after the other: the longest write transaction so far after each.

    Cases and labels by the ten thousand, a file, the commit of a plan, an absence with a twenty-fifth of the cases, somebody
    out of use, the end of the shift; and a client that enters cases all the time.
    """
    facts, secret = Facts(), first_key(url)
    server = Server(url, folder / "log")
    server.start(wait=180)
    rng, names = random.Random(1), [f"p{k:02}" for k in range(people)]
    set_up(Client(server.port, secret), dict.fromkeys(names, 2 * cases // people), names)
    client = Client(server.port, secret)  # whose calls may take long

    def do(what: str, method: str, path: str, body: object) -> dict[str, Any]:
        status, _, found = client.call(method, path, body, timeout=600.0)
        assert status < 300, f"{what}: {status} {str(found)[:500]}"
        text = client.call("GET", "/metrics", timeout=60.0)[2].decode()
        longest = float(text.partition("\ndeccaf_longest_write_seconds ")[2].split()[0])
        facts.counts[what] = round(1000 * longest)
        return found

    writing = Writing(server.port, secret)
    rows = [some_case(f"b{k}", rng, names) for k in range(cases)]
    for start in range(0, cases, 10_000):
        do("bulk", "POST", "/v1/cases/bulk", {"cases": rows[start : start + 10_000]})
    plan = do("draft", "POST", "/v1/plans", {})
    do("commit", "POST", f"/v1/plans/{plan['id']}/commit", {})
    do("file", "POST", "/v1/imports", ("case_id,x\n" + "".join(f"f{k},{k}\n" for k in range(cases))).encode())
    labels = [{"case_id": f"b{k}", "label": 1} for k in range(min(cases, 10_000))]
    do("labels", "POST", "/v1/labels", {"labels": labels})
    do("absence", "PUT", "/v1/shifts/1/roster/p00", {"absent": True, "release": True})
    do("out of use", "PATCH", "/v1/experts/p01", {"active": False})
    do("end", "PATCH", "/v1/shifts/1", {"state": "closed"})
    if "sqlite" in url:  # PostgreSQL has several writers
        late = [what for what, longest in facts.counts.items() if longest > 1000 * TRANSACTION_SECONDS]
        facts.wrong += [f"{what}: {facts.counts[what]} ms of processor in one transaction" for what in late]
    facts.counts["slowest other write"] = round(1000 * writing.stop())
    facts.wrong += writing.wrong
    server.stop()
    facts.wrong += ledger_faults(url)
    return facts


def steady(url: str, log: Path, seconds: float, clients: int = 4) -> Facts:
    """Cases for a long time; memory after a tenth of it and at the end, and the slowest answers."""
    facts, secret = Facts(), first_key(url)
    server = Server(url, log)
    server.start(wait=180)
    set_up(Client(server.port, secret), {"ann": 1_000_000, "bob": 4000, "cat": 1000})
    ended, times, lock = threading.Event(), list[float](), threading.Lock()

    def send(number: int) -> None:
        client, rng, count = Client(server.port, secret), random.Random(number), 0
        while not ended.is_set():
            count += 1
            began = time.perf_counter()
            body = some_case(f"l{number}-{count}", rng)
            status, _, found = client.call("POST", "/v1/cases", body, f"l{number}-{count}", 60.0)
            took = time.perf_counter() - began
            with lock:
                times.append(took)
                facts.counts[str(status)] += 1
                if status != 201:
                    facts.wrong.append(f"{status}: {found}")
            ended.wait(max(0.08 - took, 0.0))

    threads = [threading.Thread(target=send, args=(k,)) for k in range(clients)]
    for thread in threads:
        thread.start()
    time.sleep(seconds / 10)
    before = server.resident()
    time.sleep(0.9 * seconds)
    growth = server.resident() / before - 1
    ended.set()
    for thread in threads:
        thread.join(120)
    server.stop()
    facts.seconds = [float(np.median(times)), float(np.quantile(times, 0.99)), max(times)]
    facts.counts["memory grown by, per mille"] = round(1000 * growth)
    if growth > 0.1:
        facts.wrong.append(f"memory has grown by {growth:.0%}")
    facts.wrong += ledger_faults(url)
    return facts


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[bool]:
    """A disk of a given size at a folder; False where this machine lets nobody mount one."""
    folder.mkdir()
    size = f"size={megabytes}m"
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(folder)], capture_output=True)
    try:
        yield done.returncode == 0
    finally:
        if done.returncode == 0:
            subprocess.run(["umount", "--lazy", str(folder)], check=False)


def disk_full(folder: Path) -> Facts:
    """Cases come until the disk is full: 503 and /readyz say so, nothing is lost, and room makes it well."""
    facts = Facts()
    with small_disk(folder / "small", 160) as there:
        if not there:
            facts.counts["not tried: nobody may mount a disk here"] += 1
            return facts
        url, ballast = f"sqlite:///{folder}/small/deccaf.db", folder / "small" / "ballast"
        ballast.write_bytes(bytes(80 << 20))
        secret = first_key(url)
        server = Server(url, folder / "log")
        server.start(wait=180)
        client = Client(server.port, secret)
        set_up(client, {"ann": 100_000})
        streamers = Streamers([server.port], secret, 2, {201, 202})
        held, status = 0, 201
        for number in range(400):
            cases = [
                {"case_id": f"b{number}-{k}", "features": {"x": os.urandom(900).hex()}} for k in range(500)
            ]
            status, _, found = client.call("POST", "/v1/cases/bulk", {"cases": cases}, f"b{number}", 120.0)
            if status != 201:
                break
            held += len(cases)
        facts.counts["held"] = held
        if status != 503 or found["type"] != "urn:deccaf:problem:disk-full":
            facts.wrong.append(f"a full disk: {status} {found}")
        ready = Client(server.port, "").call("GET", "/readyz")
        if ready[0] != 503 or "full" not in str(ready[2]):
            facts.wrong.append(f"/readyz on a full disk: {ready[0]} {ready[2]}")
        ballast.unlink()
        deadline = time.monotonic() + 60
        while Client(server.port, "").call("GET", "/readyz")[0] != 200 and time.monotonic() < deadline:
            time.sleep(0.2)
        before = len(streamers.answered)
        while len(streamers.answered) == before and time.monotonic() < deadline:
            time.sleep(0.05)
        streamers.stop()
        server.stop()
        facts.wrong += streamers.wrong
        if len(streamers.answered) == before:
            facts.wrong.append("with room again nothing is entered")
        compare(url, streamers.answered, facts)
        facts.counts["503"] = streamers.statuses[503]
    return facts
