"""How long the pages take with 50 people and 50,000 cases of today, on SQLite and on PostgreSQL.

    .venv/bin/python benchmarks/pages.py [--cases 50000] [--people 50] [--out benchmarks/results/pages.csv]
    .venv/bin/python benchmarks/pages.py --cases 1000000 --database sqlite
    .venv/bin/python benchmarks/pages.py --million [--cases 1000000]

Times, in ms, are of one process answering itself: the first request, then the median and the slowest of five,
and the median processor time, the database server's among it, which does not depend on what else the machine
does. PostgreSQL has looked after its tables before, as it does by itself within minutes. More cases than
50,000 were decided on the days before, as many a day. A page whose median is above `--limit` ends it with
exit code 1, after the table. With `--million` the database itself writes the cases, for three people and the
machine, and the lead's pages are asked for: processor seconds of the first and of the better of two further
requests, the server's among them.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import sqlalchemy as sa

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from fastapi.testclient import TestClient

import service_million as million
from deccaf import Costs
from deccaf.data.files import write_frame
from deccaf.estimator import DeCCaF
from deccaf.service.core import Service
from deccaf.service.imports import past_import, past_records
from deccaf.service.ledger import assignments, desk, versions
from deccaf.service.store import database
from deccaf.service.store import tables as t
from deccaf.service.store.keys import Actor
from deccaf.service.web.app import create_app
from service_databases import Postgres, postgres_server
from service_world import first_key, model_file

PATHS = (
    "/",
    "/today/numbers",
    "/what-if?team=120",
    "/queue",
    "/queue?expert=p00",
    "/opinions",
    "/cases",
    "/cases/c100",
    "/team",
    "/models",
    "/models/2",
    "/models/2/compared",
    "/watch",
    "/setup",
    "/cases?find=c4&person=p07&status=assigned",
    "/cases?find=123",
    "/cases?find=c12&status=decided",
    "/cases?person=p07&sort=highest",
    "/cases?sort=lowest&loss_from=0.5",
    "/cases?disagreement=label&person=p03",
    "/cases?decision=1&loss_from=0.999",
    "/cases?disagreement=people",
    "/cases?status=waiting&since=2020-01-01",
    "/people",
    "/person?name=p07",
    "/absence?maker=p07",
    "/audit",
    "/audit?person=p07",
    "/audit?kind=signed+in",
    "/audit?since=2020-01-01&until=2020-02-01",
    "/person/data?name=p49",
)
CHUNK = 2_000
A_DAY = 50_000
"""Cases of the shift that runs; what is more was decided in earlier ones, as many in each."""
EXPORTS = ("/person/data?name=p49",)
"""Files to take away: as long as there is much to take."""
DISPUTED = 60
"""Cases on the lead's list, with two answers each."""


def build_model(people: list[str], seed: int = 0) -> DeCCaF:
    rng = np.random.default_rng(seed)
    rows = 100 * len(people)
    frame = pd.DataFrame(rng.normal(size=(rows, 12)), columns=[f"f{k}" for k in range(12)])
    label = (rng.random(rows) < 1 / (1 + np.exp(1.5 - frame["f0"]))).astype(int)
    right = rng.random(rows) < 0.85
    model = DeCCaF(Costs.binary(0.2, 1.0), case_parts=("logistic",), decision_parts=("rates", "pooled"))
    decision = np.where(right, label, 1 - label)
    return model.fit(frame, label, expert=pd.Series(rng.choice(people, rows)), decision=pd.Series(decision))


def history(people: list[str], cases: int = 2_000) -> pd.DataFrame:
    """A past with three decisions for each case."""
    rng = np.random.default_rng(2)
    one = pd.DataFrame(rng.normal(size=(cases, 12)).round(3), columns=[f"f{k}" for k in range(12)])
    one = one.assign(case_id=[f"h{k}" for k in range(cases)], label=(rng.random(cases) < 0.2).astype(int))
    rows = one.loc[np.repeat(np.arange(cases), 3)].reset_index(drop=True)
    return rows.assign(expert_id=rng.choice(people, len(rows)), decision=rows["label"])


def fill(service: Service, people: list[str], cases: int, folder: Path) -> None:
    rng, at = np.random.default_rng(1), time.time()
    makers = ["machine", *people]
    path = folder / "m.deccaf"
    model = build_model(people)
    model.save(path)
    with database.writing(service.engine) as c:
        team = c.execute(
            sa.insert(t.teams).values(name="desk", created_at=at).returning(t.teams.c.id)
        ).scalar_one()
        c.execute(
            sa.insert(t.experts),
            [{"name": p, "team_id": team, "display": p, "active": True, "created_at": at} for p in people],
        )
        content, facts, who = path.read_bytes(), model.training_, Actor(1)
        made = versions.add_version(c, "m", "benchmark", "0", content, facts, who, at - 9e4)
        versions.put_in_force(c, made.id, who, at - 9e4)
        candidate = build_model(people, 1)
        candidate.save(path)
        content, facts = path.read_bytes(), candidate.training_
        versions.add_version(c, "candidate", "benchmark", "1", content, facts, who, at - 8e4)
        past_records.enter_past(c, past_import.check_past(history(people)), "past", who, at - 9e4)
        who = rng.integers(0, len(makers), cases)
        for start in range(0, cases, A_DAY):
            days = -(-(cases - start) // A_DAY) - 1  # ago
            part = range(start, min(start + A_DAY, cases))
            shift, pricing = _shift(c, rng, team, makers, who[part.start : part.stop], days, at)
            for first in range(part.start, part.stop, CHUNK):
                numbers = range(first, min(first + CHUNK, part.stop))
                facts = {"shift_id": shift, "pricing_id": pricing, "model_id": made.id}
                _chunk(c, rng, numbers, who, makers, facts, days == 0, at - 86_400.0 * days)
        _disputed(c, makers, shift, pricing, at)
    if service.engine.dialect.name == "postgresql":
        with service.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as c:
            c.exec_driver_sql("VACUUM ANALYZE")
    service.models.refresh()


def _shift(c, rng, team, makers, who, days, at) -> tuple[int, int]:  # type: ignore[no-untyped-def]
    """A shift of some days ago, with everybody's cases counted, and its prices."""
    now = at - 86_400.0 * days
    values = {"name": f"{days} days ago" if days else "today", "team_id": team, "random_share": 0.05}
    values |= {"starts_at": now - 3600, "ends_at": now + 25200, "state": "closed" if days else "open"}
    shift = c.execute(sa.insert(t.shifts).values(**values).returning(t.shifts.c.id)).scalar_one()
    used = np.bincount(who, minlength=len(makers)).tolist()
    seats = [
        {"shift_id": shift, "maker": name, "capacity": None if k == 0 else used[k] + 50, "used": used[k]}
        for k, name in enumerate(makers)
    ]
    c.execute(sa.insert(t.roster), [{**seat, "lower": 0, "absent": False} for seat in seats])
    return shift, desk.write_prices(c, shift, makers, rng.random(len(makers)) / 10, "benchmark", None, now)


def _chunk(c, rng, numbers, who, makers, facts, is_open, at) -> None:  # type: ignore[no-untyped-def]
    size, names = len(numbers), [f"f{k}" for k in range(12)]
    truth = (rng.random(size) < 0.2).astype(int)
    table = pd.DataFrame(
        {
            "case_id": [f"c{k}" for k in numbers],
            "maker": [makers[who[k]] for k in numbers],
            "method": ["lot" if k % 20 == 0 else "stream" for k in numbers],
            "label": truth.astype(str),
            "decision": np.where(rng.random(size) < 0.9, truth, 1 - truth).astype(str),
            "state": np.where(rng.random(size) < (0.8 if is_open else 1.0), "decided", "assigned"),
        }
    )
    features = [
        json.dumps(dict(zip(names, f, strict=True))) for f in rng.normal(size=(size, 12)).round(3).tolist()
    ]
    losses = rng.random((size, len(makers)))
    own = losses[np.arange(size), who[list(numbers)]].tolist()
    facts = {**facts, "machine_says": "0", "price": 0.1}
    done = table[table["state"] == "decided"]
    c.execute(
        sa.insert(t.cases),
        [
            {
                "case_id": row.case_id,
                "status": row.state,
                "features": text,
                "excluded": "[]",
                "arrived_at": at - 3000,
                "label": row.label if row.state == "decided" else None,
                "labelled_at": at if row.state == "decided" else None,
            }
            for row, text in zip(table.itertuples(), features, strict=True)
        ],
    )
    c.execute(
        sa.insert(t.assignments),
        [
            {
                **facts,
                **{name: getattr(row, name) for name in ("case_id", "maker", "state", "method")},
                "losses": assignments.numbers(values),
                "expected_loss": loss,
                "propensity": 1.0,
                "created_at": at,
                "changed_at": at,
            }
            for row, values, loss in zip(table.itertuples(), losses.tolist(), own, strict=True)
        ],
    )
    decided = done[["case_id", "maker", "decision"]].assign(seconds=40.0, at=at)
    c.execute(sa.insert(t.decisions), decided.to_dict("records"))
    c.execute(sa.insert(t.labels), done[["case_id", "label"]].assign(at=at).to_dict("records"))


def _disputed(c, makers, shift, pricing, at) -> None:  # type: ignore[no-untyped-def]
    """Cases on which two people disagree."""
    losses = assignments.numbers([0.5] * len(makers))
    for k in range(DISPUTED):
        name, features = f"d{k}", json.dumps({f"f{j}": 0.5 for j in range(12)})
        case = {"case_id": name, "status": "assigned", "features": features, "excluded": "[]"}
        c.execute(sa.insert(t.cases).values(**case, arrived_at=at))
        for place, said in ((1, "0"), (2, "1")):
            row = {"case_id": name, "shift_id": shift, "maker": makers[place], "pricing_id": pricing}
            row |= {"state": t.ANSWERED, "method": "second", "losses": losses, "machine_says": "0"}
            row |= {"expected_loss": 0.5, "price": 0.0, "propensity": 1.0, "created_at": at, "changed_at": at}
            made = c.execute(sa.insert(t.assignments).values(**row).returning(t.assignments.c.id))
            answer = {"case_id": name, "assignment_id": made.scalar_one(), "maker": makers[place]}
            c.execute(sa.insert(t.opinions).values(**answer, decision=said, seconds=40.0, at=at))
        row = {"case_id": name, "state": "lead", "why": "lot", "machine_barred": True, "at": at}
        c.execute(sa.insert(t.second_opinions).values(**row))
    r = t.roster.c
    two = sa.and_(r.shift_id == shift, r.maker.in_(makers[1:3]))
    c.execute(sa.update(t.roster).where(two).values(used=r.used + DISPUTED, capacity=r.capacity + DISPUTED))


def measure(
    url: str, people: list[str], cases: int, folder: Path, server: Postgres | None
) -> list[dict[str, object]]:
    def used() -> float:
        return time.process_time() + (server.cpu_seconds() if server else 0.0)

    secret = first_key(url)
    service = Service(url, housekeeping=False)
    fill(service, people, cases, folder)
    rows = []
    with TestClient(create_app(service), follow_redirects=False) as client:
        client.post("/sign-in", data={"key": secret})
        look = service.monitor.check_now(time.time())
        rows.append({"page": "a look of the watch", "first": 1000 * look.seconds})
        for path in PATHS:
            times, processor = [], []
            for _ in range(6):
                before, began = used(), time.perf_counter()
                answer = client.get(path)
                times.append(1000 * (time.perf_counter() - began))
                processor.append(1000 * (used() - before))
                assert answer.status_code == 200, (path, answer.status_code, answer.text[:500])
            later = {"median": np.median(times[1:]), "slowest": max(times[1:])}
            rows.append({"page": path, "first": times[0], **later, "processor": np.median(processor[1:])})
    return [
        {"database": sa.make_url(url).get_backend_name(), "cases": cases, "people": len(people), **r}
        for r in rows
    ]


def measure_million(url: str, cases: int, server: Postgres | None) -> list[dict[str, object]]:
    secret = first_key(url)
    with tempfile.TemporaryDirectory() as name:
        million.fill(database.connect(url, None), cases, model_file(Path(name)))
    service = Service(url, housekeeping=False)
    service.models.refresh()
    with TestClient(create_app(service), follow_redirects=False) as client:
        client.post("/sign-in", data={"key": secret})
        return processor_seconds(client, server.cpu_seconds if server else lambda: 0.0)


def processor_seconds(client: TestClient, of_the_server: Callable[[], float]) -> list[dict[str, object]]:
    rows = []
    for path in million.LEAD_PAGES:
        used = []
        for _ in range(3):
            before = time.process_time() + of_the_server()
            answer = client.get(path)
            used.append(time.process_time() + of_the_server() - before)
            assert answer.status_code in (200, 303), (path, answer.status_code, answer.text[:500])
        rows.append({"page": path, "first": used[0], "later": min(used[1:])})
        print(f"{path:50} {used[0]:6.3f} {min(used[1:]):6.3f}", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int)
    parser.add_argument("--million", action="store_true")
    parser.add_argument("--people", type=int, default=50)
    parser.add_argument("--database", choices=("both", "sqlite", "postgresql"), default="both")
    parser.add_argument("--limit", type=float, default=500.0, help="milliseconds that a page may take")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    cases = args.cases or (1_000_000 if args.million else 50_000)
    people = [f"p{k:02}" for k in range(args.people)]
    found = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        here = f"sqlite:///{folder}/deccaf.db"
        if args.database != "postgresql" and args.million:
            found += measure_million(here, cases, None)
        elif args.database != "postgresql":
            found += measure(here, people, cases, folder, None)
        with postgres_server() as server:
            if server is not None and args.database != "sqlite":
                there = server.new_database("pages")
                more = measure_million(there, cases, server) if args.million else None
                found += more or measure(there, people, cases, folder, server)
    table = pd.DataFrame(found).round(3 if args.million else 1)
    print(table.to_string(index=False))
    if args.out is not None:
        write_frame(table, args.out)
    slow = pd.DataFrame()
    if not args.million:
        slow = table[(table["median"] > args.limit) & ~table["page"].isin(EXPORTS)]
    if len(slow):
        raise SystemExit(f"slower than {args.limit:g} ms: " + ", ".join(slow["page"]))


if __name__ == "__main__":
    main()
