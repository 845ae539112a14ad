"""Everything that can go wrong, in full numbers, and one table at the end: `make soak`.

    python benchmarks/soak.py --scale 0.1                    # a tenth of the numbers
    python benchmarks/soak.py --only kills power --database sqlite

Sections: kills, races, replays, restarts, refits, histories, power, disk, fuzz, hostile, million, writes,
steady. The exit status tells whether anything was wrong.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
import uuid
from collections.abc import Callable
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import service_faults as faults  # noqa: E402
import service_load as load  # noqa: E402
from ledger_histories import bench, run_histories  # noqa: E402
from service_databases import Postgres, postgres_server  # noqa: E402
from service_fuzz import fuzz, listening  # noqa: E402
from service_hostile import attack, attacks  # noqa: E402
from service_power import lose_power  # noqa: E402
from service_processes import Client, Server  # noqa: E402
from service_world import first_key, world  # noqa: E402
from test_service_replay import replay_everything  # noqa: E402

Found = tuple[str, list[str]]
HISTORIES_AT_ONCE = 200
"""Histories that share a database: reports read all of it."""


class Soak:
    """Runs scenarios on both databases and keeps what it saw."""

    def __init__(self, folder: Path, postgres: Postgres | None, scale: float, kinds: list[str]) -> None:
        self.folder, self.postgres, self.scale = folder, postgres, scale
        self.rows: list[dict[str, str]] = []
        self.kinds = kinds

    def url(self, kind: str) -> str:
        name = f"t{uuid.uuid4().hex[:10]}"
        if kind == "sqlite" or self.postgres is None:
            return f"sqlite:///{self.folder}/{name}.db"
        return self.postgres.new_database(name)

    def place(self) -> Path:
        """A folder of its own."""
        folder = self.folder / uuid.uuid4().hex[:10]
        folder.mkdir()
        return folder

    def count(self, full: float) -> int:
        return max(round(full * self.scale), 1)

    def run(self, only: list[str]) -> None:
        for name in only:
            work, kinds = SECTIONS[name]
            for kind in [kind for kind in self.kinds if kind in kinds]:
                self.note(name, kind, work)

    def note(self, what: str, kind: str, work: Callable[[Soak, str], Found]) -> None:
        print(f"{time.strftime('%H:%M:%S')} {what}, {kind} ...", file=sys.stderr, flush=True)
        began = time.monotonic()
        try:
            seen, wrong = work(self, kind)
        except Exception as error:
            traceback.print_exc()
            seen, wrong = "broke off", [f"{type(error).__name__}: {error}"]
        row = {"what": what, "database": kind, "seen": seen, "wrong": str(len(wrong))}
        self.rows.append({**row, "s": f"{time.monotonic() - began:.0f}"})
        for line in wrong[:5]:
            print(f"  wrong: {line[:300]}", file=sys.stderr, flush=True)


def kills(soak: Soak, kind: str) -> Found:
    """SIGKILL while cases stream, files and plans are entered, refits and backtests run."""
    found = faults.kills(soak.url(kind), soak.place() / "log", soak.count(200), jobs=True)
    c, slowest = found.counts, max(found.seconds)
    said = f"{c['kills']} kills, {c['acknowledged']:,} answered, {c['lost']} lost, {c['doubled']} doubled, "
    said += f"{c['plans']} plans, {c['imports']} files, {c['jobs done']} jobs done, {c['jobs failed']} not, "
    said += f"{c['events']:,} events told, {c['events told again']:,} of them again"
    return f"{said}, ready in {slowest:.1f} s at most", found.wrong


def races(soak: Soak, kind: str) -> Found:
    """32 clients for the last units of capacity; then every case three times at once."""
    url, place = soak.url(kind), soak.place()
    secret = first_key(url)
    servers = [Server(url, place / f"log{k}") for k in range(2 if kind == "postgresql" else 1)]
    for server in servers:
        server.start(wait=180)
    ports, capacity = [server.port for server in servers], {"ann": 211, "bob": 97, "machine": 31}
    raced = faults.race(ports, url, secret, soak.count(20_000), 32, capacity)
    Client(ports[0], secret).call("PUT", "/v1/shifts/1/roster/machine", {"unlimited": True})
    again = faults.replays(ports[-1], url, secret, soak.count(2_000))
    for server in servers:
        server.stop()
    c = raced.counts
    said = f"{len(servers)} process(es), {c['201']} assigned, {c['202']} waiting, {c['overruns']} overruns; "
    said += f"{again.counts['requests']:,} requests sent three times, {again.counts['doubled']} doubled"
    return said, [*raced.wrong, *again.wrong]


def replays(soak: Soak, kind: str) -> Found:
    """Every writing endpoint three times at once under one key, and once more after the day has gone on."""
    done, wrong = 0, []
    for _ in range(soak.count(40)):
        with world(soak.url(kind), {"ann": 9, "bob": 9}, housekeeping=False) as desk:
            try:
                done += replay_everything(desk, soak.place())
            except AssertionError as error:
                wrong.append(str(error))
    return f"{done:,} requests sent three times at once, and again later", wrong


def restarts(soak: Soak, kind: str) -> Found:
    """PostgreSQL stops and starts under load."""
    assert soak.postgres is not None
    found = faults.database_restarts(soak.postgres, soak.url(kind), soak.place() / "log", soak.count(10))
    c = found.counts
    return f"{c['restarts']} restarts, {c['201']} x 201, {c['503']} x 503, {c['lost']} lost", found.wrong


def refits(soak: Soak, kind: str) -> Found:
    """PostgreSQL stops and starts while refits read, learn and write."""
    assert soak.postgres is not None
    found = faults.refits_through_restarts(
        soak.postgres, soak.url(kind), soak.place() / "log", soak.count(20)
    )
    return f"{found.counts['restarts']} restarts, {found.counts['done']} refits done", found.wrong


def histories(soak: Soak, kind: str) -> Found:
    """Random histories of several clients against a model: claims, labels, drafts, keys, capacity."""
    left, requests, wrong = soak.count(2_000), 0, []
    said = f"{left:,} histories"
    while left > 0:
        with bench(soak.url(kind), soak.place(), stop_at_findings=False) as here:
            run_histories(here, min(left, HISTORIES_AT_ONCE), 12)
            requests += sum(here.requests.values())
            wrong += here.findings
        left -= HISTORIES_AT_ONCE
    return f"{said}, {requests:,} requests", wrong


def power(soak: Soak, kind: str) -> Found:
    """A disk that loses its power keeps what was flushed and any part of the rest."""
    losses = soak.count(400)
    acknowledged, wrong = lose_power(soak.place(), losses, seed=round(time.time()))
    return f"{losses} losses of power, {acknowledged:,} answered, {len(wrong)} lost", wrong


def disk(soak: Soak, kind: str) -> Found:
    """The disk fills up, and has room again."""
    found = load.disk_full(soak.place())
    said = ", ".join(f"{count:,} {name}" for name, count in found.counts.items())
    return said, found.wrong


def fuzzing(soak: Soak, kind: str) -> Found:
    """Requests generated from the OpenAPI document."""
    url = soak.url(kind)
    with world(url, housekeeping=False) as desk, listening(desk.nobody.app) as base:
        secret = first_key(url)
        seen, wrong = fuzz(base, secret, desk.nobody.app.openapi(), soak.count(205))
    return f"{sum(seen.values()):,} requests, {sum(n for s, n in seen.items() if s[0] == '5')} x 5xx", wrong


def hostile(soak: Soak, kind: str) -> Found:
    """Files and bodies that mean harm."""
    url = soak.url(kind)
    secret = first_key(url)
    server = Server(url, soak.place() / "log")
    server.start(wait=180)
    attack(server.port, secret, "truncated parquet")
    found, wrong, most = [], [], 0.0
    for name in attacks():
        before = server.resident()
        server.forget_peak()
        found.append(attack(server.port, secret, name, large=256 << 20))
        grown = (server.peak() - before) / (1 << 20)
        most = max(most, grown)
        if not 400 <= found[-1].status < 500 or grown > 50:
            wrong.append(f"{found[-1]}, memory +{grown:.0f} MB")
    server.stop()
    slowest = max(answer.seconds for answer in found)
    return f"{len(found)} kinds, slowest answer {slowest:.1f} s, memory at most +{most:.0f} MB", wrong


def million(soak: Soak, kind: str) -> Found:
    """A million cases: every page and report, while others write."""
    cases = soak.count(1_000_000)
    server = soak.postgres if kind == "postgresql" else None
    found = load.million_cases(
        soak.url(kind),
        soak.place(),
        cases,
        server,
        lambda line: print(f"  {line}", file=sys.stderr, flush=True),
    )
    slowest = max(found.seconds)
    writes = found.counts["slowest write, ms"]
    return (
        f"{cases:,} cases, slowest {slowest:.2f} s of processor, writes meanwhile {writes} ms at most",
        found.wrong,
    )


def writes(soak: Soak, kind: str) -> Found:
    """The largest changes there are, and the longest write transaction so far after each."""
    cases = soak.count(50_000)
    found = load.long_writes(soak.url(kind), soak.place(), cases)
    said = ", ".join(f"{what} {longest}" for what, longest in found.counts.items())
    return f"{cases:,} cases of 50 people, longest transaction so far, ms of processor: {said}", found.wrong


def steady(soak: Soak, kind: str) -> Found:
    """Half an hour of load."""
    seconds = max(1800 * soak.scale, 20.0)
    found = load.steady(soak.url(kind), soak.place() / "log", seconds)
    half, p99, slowest = found.seconds
    said = f"{seconds:.0f} s, {found.counts['201']:,} cases, half within {1000 * half:.0f} ms, "
    said += f"99 % within {1000 * p99:.0f} ms, slowest {1000 * slowest:.0f} ms, "
    return said + f"memory {found.counts['memory grown by, per mille'] / 10:+.1f} %", found.wrong


_BOTH = ("sqlite", "postgresql")
SECTIONS: dict[str, tuple[Callable[[Soak, str], Found], tuple[str, ...]]] = {
    "kills": (kills, _BOTH),
    "races": (races, _BOTH),
    "replays": (replays, _BOTH),
    "restarts": (restarts, ("postgresql",)),
    "refits": (refits, ("postgresql",)),
    "histories": (histories, _BOTH),
    "power": (power, ("sqlite",)),
    "disk": (disk, ("sqlite",)),
    "fuzz": (fuzzing, _BOTH),
    "hostile": (hostile, ("sqlite",)),
    "million": (million, _BOTH),
    "writes": (writes, _BOTH),
    "steady": (steady, _BOTH),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full numbers")
    parser.add_argument("--only", nargs="+", choices=list(SECTIONS), default=list(SECTIONS))
    parser.add_argument("--database", nargs="+", choices=_BOTH, default=list(_BOTH))
    wish = parser.parse_args()
    if not any(set(SECTIONS[name][1]) & set(wish.database) for name in wish.only):
        parser.error(f"{', '.join(wish.only)}: nothing to do on {', '.join(wish.database)}")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name, postgres_server() as postgres:
        if postgres is None and "postgresql" in wish.database:
            parser.error("no PostgreSQL server programs; `sh tools/test-packages` installs them")
        soak = Soak(Path(name), postgres, wish.scale, wish.database)
        soak.run(wish.only)
    pd.set_option("display.width", 250, "display.max_colwidth", 200)
    print(pd.DataFrame(soak.rows).to_string(index=False))
    sys.exit(any(row["wrong"] != "0" for row in soak.rows))


if __name__ == "__main__":
    del __file__  # else every confined reader of an upload imports this script first, with all of its parts
    main()
