"""How quick the service is: streaming at a fixed rate, at saturation, and a large file planned.

    python benchmarks/service.py                      # SQLite and PostgreSQL, five minutes of streaming each
    python benchmarks/service.py --minutes 0.5        # a look

The load comes from other processes, on loopback. At the fixed rate, latency counts from the moment a request
should have been sent, so a service that stalls cannot hide it. Saturation is compared with a bare FastAPI
handler that writes one row into the same kind of database, in the same run, in turns.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from deccaf.estimator import DeCCaF  # noqa: E402
from deccaf.service.demo import Stage, build_stage  # noqa: E402
from service_databases import free_port, postgres_server  # noqa: E402
from service_processes import Client, Server, ready  # noqa: E402
from service_world import first_key, shift_body  # noqa: E402

BARS = {
    "p50 ms": 15.0,
    "p99 ms": 80.0,
    "5xx": 0.0,
    "memory growth %": 5.0,
    "share of a bare insert": 0.4,
    "file of 50,000 x 50, s": 30.0,
}


@dataclass(frozen=True)
class Load:
    """What one load process saw."""

    seconds: list[float]
    statuses: Counter[int]


def _send(port: int, secret: str, name: str, features: dict[str, Any], kept: threading.local) -> int:
    if not hasattr(kept, "connection"):
        kept.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {secret}"}
    kept.connection.request("POST", "/v1/cases", json.dumps({"case_id": name, "features": features}), headers)
    answer = kept.connection.getresponse()
    answer.read()
    return answer.status


def _at_rate(
    port: int, secret: str, tag: str, cases: list[Any], rate: float, seconds: float, out: Any
) -> None:
    """Send at fixed moments, whatever the answers do."""
    start, total = time.perf_counter() + 0.5, int(rate * seconds)
    lock, position, kept = threading.Lock(), [0], threading.local()
    took, statuses = [0.0] * total, Counter[int]()

    def work() -> None:
        while True:
            with lock:
                k = position[0]
                position[0] += 1
            if k >= total:
                return
            due = start + k / rate
            time.sleep(max(due - time.perf_counter(), 0.0))
            status = _send(port, secret, f"{tag}-{k}", cases[k % len(cases)], kept)
            took[k] = time.perf_counter() - due
            with lock:
                statuses[status] += 1

    _threads(work, 24)
    out.put(Load(took, statuses))


def _flat_out(
    port: int, secret: str, tag: str, cases: list[Any], clients: int, seconds: float, out: Any
) -> None:
    """Send as fast as answers come."""
    end, statuses, lock = time.perf_counter() + seconds, Counter[int](), threading.Lock()
    number, kept = [0], threading.local()

    def work() -> None:
        while time.perf_counter() < end:
            with lock:
                number[0] += 1
                k = number[0]
            status = _send(port, secret, f"{tag}-{k}", cases[k % len(cases)], kept)
            with lock:
                statuses[status] += 1

    _threads(work, clients)
    out.put(Load([], statuses))


def _threads(work: Any, count: int) -> None:
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def run_load(kind: Any, processes: int, *arguments: Any) -> Load:
    """Load from other processes, put together."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    port, secret, tag, *rest = arguments
    children = [
        context.Process(target=kind, args=(port, secret, f"{tag}{k}", *rest, queue)) for k in range(processes)
    ]
    for child in children:
        child.start()
    parts = [queue.get() for _ in children]
    for child in children:
        child.join()
    return Load(
        [s for part in parts for s in part.seconds], sum((part.statuses for part in parts), Counter())
    )


@contextmanager
def served(url: str, log: Path) -> Iterator[tuple[Server, str]]:
    """The service in a process of its own, and a lead's key."""
    secret = first_key(url)
    server = Server(url, log)
    server.start(wait=300)
    try:
        yield server, secret
    finally:
        server.stop()


@contextmanager
def bare(url: str, log: Path) -> Iterator[int]:
    port = free_port()
    command = [sys.executable, str(ROOT / "benchmarks" / "bare_insert.py"), url, str(port)]
    with log.open("ab") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file)
    try:
        while not ready(port):
            time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait()


def furnish(server: Server, secret: str, stage: Stage, folder: Path, capacity: int) -> None:
    """A team, a model in force and a shift."""
    client = Client(server.port, secret)
    assert client.call("POST", "/v1/teams", {"name": "desk"})[0] == 201
    for name in stage.experts:
        assert client.call("POST", "/v1/experts", {"name": name, "team": "desk"})[0] == 201
    path = folder / "model.deccaf"
    stage.model.save(path)
    made = upload(server.port, secret, "/v1/models", path.read_bytes(), "application/octet-stream")
    assert client.call("POST", f"/v1/models/{made['id']}/activate")[0] == 200
    body = shift_body(dict.fromkeys(stage.experts, capacity), expected_cases=30_000)
    assert client.call("POST", "/v1/shifts", body)[0] == 201


def upload(port: int, secret: str, path: str, content: bytes, kind: str) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    connection.request("POST", path, content, {"Authorization": f"Bearer {secret}", "Content-Type": kind})
    answer = connection.getresponse()
    found = json.loads(answer.read())
    assert answer.status == 201, found
    return found


def streaming(url: str, folder: Path, stage: Stage, rate: float, minutes: float) -> dict[str, float]:
    """Latency at a fixed rate, and throughput at saturation against a bare insert."""
    with served(url, folder / "service.log") as (server, secret):
        furnish(server, secret, stage, folder, capacity=3_000)
        run_load(_at_rate, 1, server.port, secret, "warm", stage.cases, rate, min(10.0, 60 * minutes))
        before, spent = server.resident(), server.cpu_seconds()
        load = run_load(_at_rate, 2, server.port, secret, "rate", stage.cases, rate / 2, 60 * minutes)
        growth, spent = server.resident() / before - 1.0, server.cpu_seconds() - spent
        ours, theirs = saturation(server.port, secret, url, folder, stage.cases)
    p50, p99 = (1000 * float(np.quantile(load.seconds, q)) for q in (0.5, 0.99))
    return {
        "requests": float(len(load.seconds)),
        "p50 ms": p50,
        "p99 ms": p99,
        "5xx": float(sum(n for status, n in load.statuses.items() if status >= 500)),
        "memory growth %": 100 * growth,
        "processor ms a request": 1000 * spent / len(load.seconds),
        "requests/s at saturation": ours,
        "bare insert, requests/s": theirs,
        "share of a bare insert": ours / theirs,
    }


def saturation(port: int, secret: str, url: str, folder: Path, cases: list[Any]) -> tuple[float, float]:
    """Requests a second, ours and a bare insert's, in turns; medians of three."""
    found: dict[int, list[float]] = {}
    with bare(url, folder / "bare.log") as other:
        for turn in range(3):
            for target in (port, other):
                flat = run_load(_flat_out, 2, target, secret, f"flat{turn}", cases, 16, 10.0)
                assert set(flat.statuses) <= {201, 202}, flat.statuses
                found.setdefault(target, []).append(sum(flat.statuses.values()) / 10.0)
        return float(np.median(found[port])), float(np.median(found[other]))


def large_stage(stage: Stage, cases: int, experts: int) -> tuple[Stage, pd.DataFrame]:
    """Fifty experts learned from, and a file of cases like the demo's."""
    frame = pd.DataFrame(stage.cases)
    rng = np.random.default_rng(1)
    past = frame.iloc[rng.integers(0, len(frame), 6_000)].reset_index(drop=True)
    label = rng.random(len(past)) < 0.15
    expert = np.array([f"expert_{k:02d}" for k in range(experts)])[rng.integers(0, experts, len(past))]
    wrong = (
        rng.random(len(past))
        < rng.uniform(0.05, 0.4, experts)[np.char.replace(expert, "expert_", "").astype(int)]
    )

    model = DeCCaF(stage.model.costs_, decision_parts=("rates", "pooled"), case_parts=("logistic",))
    model.fit(past, label.astype(int), expert=expert, decision=(label ^ wrong).astype(int))
    many = frame.iloc[rng.integers(0, len(frame), cases)].reset_index(drop=True)
    numbers = many.select_dtypes("number").columns
    many[numbers] = many[numbers] + rng.normal(0, 1e-3, (cases, len(numbers)))
    many.insert(0, "case_id", [f"file-{k}" for k in range(cases)])
    return replace(stage, experts=tuple(sorted(set(expert.tolist()))), model=model), many


def large_file(url: str, folder: Path, stage: Stage, file: pd.DataFrame) -> dict[str, float]:
    """A file in, planned, committed."""
    file.to_parquet(folder / "cases.parquet")
    content = (folder / "cases.parquet").read_bytes()
    with served(url, folder / "file.log") as (server, secret):
        furnish(server, secret, stage, folder, capacity=400)
        client, times = Client(server.port, secret), [time.perf_counter()]
        upload(server.port, secret, "/v1/imports", content, "application/vnd.apache.parquet")
        times.append(time.perf_counter())
        status, _, plan = client.call("POST", "/v1/plans", {}, timeout=300)
        assert status == 201, plan
        times.append(time.perf_counter())
        status, _, done = client.call("POST", f"/v1/plans/{plan['id']}/commit", timeout=300)
        assert status == 200, done
        times.append(time.perf_counter())
        sound = client.call("GET", "/v1/reports/ledger", timeout=300)[2]
        assert sound["sound"], sound
        spent = server.cpu_seconds()
    entered, planned, committed = np.diff(times)
    name = f"file of {len(file):,} x {len(stage.experts)}, s"
    return {
        "entered, s": entered,
        "planned, s": planned,
        "committed, s": committed,
        name: times[-1] - times[0],
        "processor s, start included": spent,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--rate", type=float, default=100.0)
    parser.add_argument("--cases", type=int, default=50_000)
    parser.add_argument("--experts", type=int, default=50)
    parser.add_argument("--database", choices=["sqlite", "postgresql", "both"], default="both")
    parser.add_argument("--part", choices=["stream", "file", "both"], default="both")
    wish = parser.parse_args()
    stage = build_stage()
    large = large_stage(stage, wish.cases, wish.experts) if wish.part != "stream" else None
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as name, postgres_server() as postgres:
        for kind in ("sqlite", "postgresql") if wish.database == "both" else (wish.database,):
            numbers: dict[str, float] = {}
            for part in ("stream", "file") if wish.part == "both" else (wish.part,):
                folder = Path(name) / kind / part
                folder.mkdir(parents=True)
                url = (
                    f"sqlite:///{folder}/d.db"
                    if postgres is None or kind == "sqlite"
                    else postgres.new_database(part)
                )
                if part == "stream":
                    numbers |= streaming(url, folder, stage, wish.rate, wish.minutes)
                elif large is not None:
                    numbers |= large_file(url, folder, *large)
                print(kind, part, {name: round(value, 3) for name, value in numbers.items()}, file=sys.stderr)
            found[kind] = numbers
    table = pd.DataFrame(found)
    table["bar"] = [BARS.get(row, np.nan) for row in table.index]
    print(table.round(3).to_string(na_rep=""))


if __name__ == "__main__":
    main()
