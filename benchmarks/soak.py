"""Everything that can go wrong, in full numbers, and one table at the end: `make soak`.

python benchmarks/soak.py --share 0.1     # a tenth of the numbers
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import service_faults as faults  # noqa: E402
from service_databases import Postgres, postgres_server  # noqa: E402
from service_fuzz import fuzz, listening  # noqa: E402
from service_hostile import attack, attacks  # noqa: E402
from service_processes import Client, Server  # noqa: E402
from service_world import first_key, world  # noqa: E402

Row = dict[str, str]


class Soak:
    """Runs every scenario on both databases and keeps what it saw."""

    def __init__(self, folder: Path, postgres: Postgres | None, share: float) -> None:
        self.folder, self.postgres, self.share = folder, postgres, share
        self.rows: list[Row] = []
        self.kinds = ["SQLite", *(["PostgreSQL"] if postgres else [])]

    def url(self, kind: str) -> str:
        name = f"t{uuid.uuid4().hex[:10]}"
        if kind == "SQLite" or self.postgres is None:
            return f"sqlite:///{self.folder}/{name}.db"
        return self.postgres.new_database(name)

    def count(self, full: int) -> int:
        return max(round(full * self.share), 1)

    def note(self, what: str, kind: str, work: Callable[[], tuple[str, list[str]]]) -> None:
        print(f"{time.strftime('%H:%M:%S')} {what}, {kind} ...", file=sys.stderr, flush=True)
        began = time.monotonic()
        seen, wrong = work()
        row = {"what": what, "database": kind, "seen": seen, "wrong": str(len(wrong))}
        self.rows.append(
            {**row, "first": wrong[0][:80] if wrong else "", "s": f"{time.monotonic() - began:.0f}"}
        )

    def run(self) -> None:
        for kind in self.kinds:
            self.note("SIGKILL while streaming and planning", kind, lambda kind=kind: self.kills(kind))
            self.note(
                "32 clients racing for the last units; replays", kind, lambda kind=kind: self.races(kind)
            )
        if self.postgres is not None:
            self.note("PostgreSQL restarted under load", "PostgreSQL", self.restarts)
        for kind in self.kinds:
            self.note("generated requests", kind, lambda kind=kind: self.fuzzing(kind))
        self.note("hostile bodies", "SQLite", self.hostile)

    def kills(self, kind: str) -> tuple[str, list[str]]:
        found = faults.kills(self.url(kind), self.folder / "log", self.count(100))
        c, slowest = found.counts, max(found.seconds)
        said = f"{c['kills']} kills, {c['acknowledged']} answered, {c['lost']} lost, {c['doubled']} doubled, "
        late = [f"ready after {slowest:.1f} s"] if slowest > 10 else []
        return f"{said}{c['plans']} plans, ready in {slowest:.1f} s at most", [*found.wrong, *late]

    def races(self, kind: str) -> tuple[str, list[str]]:
        url = self.url(kind)
        secret = first_key(url)
        servers = [Server(url, self.folder / f"log{k}") for k in range(2 if kind == "PostgreSQL" else 1)]
        for server in servers:
            server.start()
        ports, capacity = [server.port for server in servers], {"ann": 211, "bob": 97, "machine": 31}
        raced = faults.race(ports, url, secret, self.count(20_000), 32, capacity)
        Client(ports[0], secret).call("PUT", "/v1/shifts/1/roster/machine", {"unlimited": True})
        again = faults.replays(ports[-1], url, secret, self.count(2_000))
        for server in servers:
            server.stop()
        c = raced.counts
        said = (
            f"{len(servers)} process(es), {c['201']} assigned, {c['202']} waiting, {c['overruns']} overruns; "
        )
        replayed = (
            f"{again.counts['requests']:,} requests sent three times, {again.counts['doubled']} doubled"
        )
        return said + replayed, [*raced.wrong, *again.wrong]

    def restarts(self) -> tuple[str, list[str]]:
        assert self.postgres is not None
        found = faults.database_restarts(
            self.postgres, self.url("PostgreSQL"), self.folder / "log", self.count(10)
        )
        c = found.counts
        return f"{c['restarts']} restarts, {c['201']} x 201, {c['503']} x 503, {c['lost']} lost", found.wrong

    def fuzzing(self, kind: str) -> tuple[str, list[str]]:
        url = self.url(kind)
        with world(url, housekeeping=False) as desk, listening(desk.nobody.app) as base:
            secret = first_key(url)
            seen, wrong = fuzz(base, secret, desk.nobody.app.openapi(), self.count(65))
        return (
            f"{sum(seen.values()):,} requests, {sum(n for s, n in seen.items() if s[0] == '5')} x 5xx",
            wrong,
        )

    def hostile(self) -> tuple[str, list[str]]:
        url = self.url("SQLite")
        secret = first_key(url)
        server = Server(url, self.folder / "log")
        server.start()
        attack(server.port, secret, "truncated parquet")
        before = server.resident()
        found = [attack(server.port, secret, name) for name in attacks()]
        growth = (server.resident() - before) / (1 << 20)
        server.stop()
        wrong = [str(a) for a in found if not 400 <= a.status < 500 or a.seconds > 2]
        slowest = max(answer.seconds for answer in found)
        return f"{len(found)} kinds, slowest answer {slowest:.1f} s, memory +{growth:.0f} MB", wrong


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--share", type=float, default=1.0)
    wish = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, postgres_server() as postgres:
        soak = Soak(Path(name), postgres, wish.share)
        soak.run()
    print(pd.DataFrame(soak.rows).to_string(index=False))
    sys.exit(any(row["wrong"] != "0" for row in soak.rows))


if __name__ == "__main__":
    main()
