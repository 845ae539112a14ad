"""Random histories of the service against a model of its ledger (`tests/ledger_model.py`).

python benchmarks/ledger_histories.py --histories 2000 --database sqlite
python benchmarks/ledger_histories.py --histories 2000 --database postgresql

Prints what was found, by the kinds of requests that met; the exit status tells whether anything was.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from ledger_histories import bench, run_histories  # noqa: E402
from service_databases import postgres_server  # noqa: E402

ON_ONE_DATABASE = 200
"""Histories that share a database: reports read all of it, so they slow down as it grows."""


def check_histories(
    urls: Iterator[str], folder: Path, count: int, steps: int = 12, without: Sequence[str] = ()
) -> tuple[int, list[str]]:
    """Run histories on one database after the other; how many requests were sent, and the findings."""
    requests, findings, whole = 0, list[str](), count
    while count > 0:
        with bench(next(urls), folder, stop_at_findings=False, without=without) as here:
            run_histories(here, min(count, ON_ONE_DATABASE), steps)
            count -= min(count, ON_ONE_DATABASE)
            requests += sum(here.requests.values())
            findings += here.findings
        so_far = f"{whole - count:,} of {whole:,} histories, {len(findings)} findings"
        print(so_far, file=sys.stderr, flush=True)
    return requests, findings


@contextmanager
def databases(kind: str, folder: Path) -> Iterator[Iterator[str]]:
    """One empty database after the other."""
    if kind == "sqlite":
        yield (f"sqlite:///{folder}/{uuid.uuid4().hex}.db" for _ in iter(int, 1))
        return
    with postgres_server() as server:
        if server is None:
            raise SystemExit("no PostgreSQL server programs; `sh tools/test-packages` installs them")
        yield (server.new_database(f"t{uuid.uuid4().hex[:12]}") for _ in iter(int, 1))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--histories", type=int, default=2000)
    parser.add_argument("--steps", type=int, default=12, help="at most so many steps in a history")
    parser.add_argument("--database", choices=("sqlite", "postgresql"), required=True)
    parser.add_argument(
        "--without", nargs="*", default=(), metavar="KIND", help="kinds of requests to leave out"
    )
    parser.add_argument("--show", type=int, default=3, help="findings to print in full")
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name, databases(options.database, Path(name)) as urls:
        requests, findings = check_histories(
            urls, Path(name), options.histories, options.steps, options.without
        )
    print(
        f"{options.database}: {options.histories:,} histories, {requests:,} requests, "
        f"{len(findings)} findings, {time.monotonic() - began:.0f} s"
    )
    for how, times in Counter(finding.split(":")[0] for finding in findings).most_common():
        print(f"  {times:4} {how}")
    for finding in findings[: options.show]:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    del __file__  # else every confined reader of an upload imports this script first, with all of its parts
    sys.exit(main())
