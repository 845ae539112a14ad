"""Tables in databases: a real DuckDB file and a real PostgreSQL, read as files are, with the same messages."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import psycopg
import pytest

from deccaf import Cases, Costs, DataError, Decisions
from deccaf.data.databases import Address
from deccaf.data.files import check_output, read_frame, read_frames
from deccaf.errors import ConfigError
from service_databases import Postgres

duckdb = pytest.importorskip("duckdb", reason="needs the extra `duckdb`")

CONFIG = "[costs]\nfalse_positive = 0.5\nfalse_negative = 1.0\n"
SECRET = "p%40ss:w/rd"
ROWS = """
    (1, '007',  10.5, true,  DATE '2026-05-01', TIMESTAMP '2026-05-01 08:00:00', 'web'),
    (2, '7',    NULL, false, DATE '2026-05-02', TIMESTAMP '2026-05-02 08:00:00', ''),
    (3, 'NULL', 30.0, NULL,  NULL,              TIMESTAMP '2026-05-03 08:00:00', 'a "quoted", text
in two lines')
"""


@pytest.fixture
def pg(postgres: Postgres) -> str:
    """A schema of its own in the real PostgreSQL."""
    return postgres.new_database(f"sql{uuid.uuid4().hex[:10]}")


def in_duckdb(path: Path, *statements: str, **tables: pd.DataFrame) -> Path:
    with duckdb.connect(str(path)) as connection:
        for name, frame in tables.items():
            connection.register("frame", frame)
            connection.execute(f"CREATE TABLE {name} AS SELECT * FROM frame")
        for statement in statements:
            connection.execute(statement)
    return path


def in_postgresql(url: str, **tables: pd.DataFrame) -> str:
    kinds = {"int64": "int8", "float64": "float8", "bool": "bool", "str": "text"}
    with psycopg.connect(url, autocommit=True) as connection:
        for name, frame in tables.items():
            columns = ", ".join(f'"{column}" {kinds[str(frame[column].dtype)]}' for column in frame)
            connection.execute(f"CREATE TABLE {name} ({columns})".encode())
            with connection.cursor().copy(f"COPY {name} FROM STDIN".encode()) as copy:
                for row in frame.astype(object).itertuples(index=False):
                    copy.write_row([None if pd.isna(value) else value for value in row])
    return url


def typed_sources(folder: Path, url: str) -> dict[str, str]:
    """The same rows in both databases, with the types that both have."""
    columns = "id int, name text, amount decimal(10, 2), ok boolean, day date, came timestamp, words text"
    file = in_duckdb(folder / "typed.db", f"CREATE TABLE t ({columns})", f"INSERT INTO t VALUES {ROWS}")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE t ({columns})".encode())
        connection.execute(f"INSERT INTO t VALUES {ROWS}".encode())
    return {"duckdb": f"duckdb:{file}", "postgresql": url}


def test_types_missing_values_and_names_are_those_of_files(tmp_path: Path, pg: str) -> None:
    for kind, place in typed_sources(tmp_path, pg).items():
        mark = "&" if "?" in place else "?"
        frame = read_frame(f"{place}{mark}table=t", text=["id"])
        assert list(frame["id"]) == ["1", "2", "3"], kind
        assert list(frame["name"]) == ["007", "7", "NULL"], kind
        assert frame["amount"].tolist()[::2] == [10.5, 30.0]
        assert np.isnan(frame["amount"][1]), kind
        assert frame["ok"].isna().tolist() == [False, False, True], kind
        assert frame["day"].tolist()[:2] == [pd.Timestamp("2026-05-01"), pd.Timestamp("2026-05-02")]
        assert frame["came"].dtype.kind == "M", kind
        assert frame["words"].tolist() == ["web", "", 'a "quoted", text\nin two lines'], kind
        # a query is taken as it stands: %, +, & and // are SQL's; a comment at its end does no harm
        asked = (
            "SELECT id, name FROM t WHERE words LIKE '%web%' AND id + 1 = 2 OR name = 'a&table=b' -- so // it"
        )
        found = read_frame(f"{place}{mark}query={asked}", text=["name"])
        assert found.to_dict("list") == {"id": [1], "name": ["007"]}, kind
        chunks = list(
            read_frames(f"{place}{mark}query=SELECT * FROM t ORDER BY id", rows=2, columns=["name"])
        )
        assert [chunk["name"].tolist() for chunk in chunks] == [["007", "7"], ["NULL"]], kind
        with pytest.raises(DataError, match="no rows"):
            Cases.read(f"{place}{mark}query=SELECT name AS case_id, amount FROM t WHERE id > 9")


def test_types_of_postgresql_alone(pg: str) -> None:
    with psycopg.connect(pg, autocommit=True) as connection:
        connection.execute("CREATE TYPE mood AS ENUM ('calm', 'cross')")
        connection.execute(
            "CREATE TABLE odd (id numeric(30), u uuid, feeling mood, vector float4[], at timestamptz, big numeric,"
            " padded char(5))"
        )
        connection.execute(
            "INSERT INTO odd VALUES (865000000000000000000000000001, gen_random_uuid(), 'cross', '{1,2.5}', "
            "'2026-05-01 10:00+02', 'NaN', 'ab'), (7, NULL, NULL, NULL, NULL, 1e20, NULL)"
        )
    frame = read_frame(f"{pg}&table=odd", text=["id"])
    assert list(frame["id"]) == ["865000000000000000000000000001", "7"]
    assert frame["feeling"][0] == "cross"
    assert list(frame["vector"][0]) == [1.0, 2.5]
    assert frame["vector"][1] is None
    assert frame["at"][0] == pd.Timestamp("2026-05-01 08:00", tz="UTC")
    assert np.isnan(frame["big"][0])
    assert frame["padded"][0] == "ab"
    assert uuid.UUID(frame["u"][0])
    with pytest.raises(DataError, match=r"column 'big': holds floating-point numbers .* store names as text"):
        read_frame(f"{pg}&table=odd", text=["big"])
    for column, said in (("'{}'::jsonb", "jsonb"), ("'x'::bytea", "bytea"), ("ARRAY['a']", r"text\[\]")):
        with pytest.raises(DataError, match=f"column 'made': holds {said}"):
            read_frame(f"{pg}&query=SELECT {column} AS made")


def test_the_same_checks_and_messages_as_files(
    tmp_path: Path, pg: str, cases_frame: pd.DataFrame, decisions_frame: pd.DataFrame
) -> None:
    broken = cases_frame.assign(label=[0, 1, 0, 0, 1, 0, 0, 3])
    twice = pd.concat([cases_frame, cases_frame.iloc[[0]]], ignore_index=True)
    elsewhere = decisions_frame.assign(case_id=[*decisions_frame["case_id"][:-1], "zz"])
    tables = {"broken": broken, "twice": twice, "good": cases_frame, "elsewhere": elsewhere}
    file = in_duckdb(tmp_path / "d.duckdb", **tables)
    in_postgresql(pg, **tables)
    costs = Costs.binary(false_positive=0.5, false_negative=1.0)
    for name, frame in tables.items():
        frame.to_parquet(tmp_path / f"{name}.parquet")

    def said(place: str, read: Callable[[str], object]) -> str:
        with pytest.raises(DataError) as caught:
            read(place)
        shown = Address.of(place).shown if Address.of(place) else place  # type: ignore[union-attr]
        assert str(caught.value).startswith(f"{shown}: "), str(caught.value)
        return str(caught.value).removeprefix(shown)

    reads = {
        "broken": lambda place: Cases.read(place, costs=costs),
        "twice": lambda place: Cases.read(place, costs=costs),
        "elsewhere": lambda place: Decisions.read(place, cases=Cases.from_frame(cases_frame, costs=costs)),
    }
    for name, read in reads.items():
        from_file = said(str(tmp_path / f"{name}.parquet"), read)
        assert said(f"duckdb:{file}?table={name}", read) == from_file
        assert said(f"{pg}&table={name}", read) == from_file
    with pytest.raises(DataError, match="stand twice, first: 'case_id'"):
        read_frame(f"{pg}&query=SELECT case_id, case_id FROM good")


def test_what_cannot_be_read_says_what_to_do(tmp_path: Path, pg: str, cases_frame: pd.DataFrame) -> None:
    file = in_duckdb(tmp_path / "loans.duckdb", cases=cases_frame, log=cases_frame)
    assert (
        len(read_frame(in_duckdb(tmp_path / "one.duckdb", cases=cases_frame))) == 8
    )  # one table needs no name
    in_postgresql(pg, cases=cases_frame, log=cases_frame)
    with psycopg.connect(pg, autocommit=True) as connection:
        connection.execute("CREATE SEQUENCE counter")
    faults = {
        f"duckdb:{tmp_path}/loan.duckdb?table=cases": "no such file; did you mean 'loans.duckdb'",
        f"duckdb:{file}": "say which table with ?table= or ?query=; there are: cases, log",
        f"duckdb:{file}?table=case": "did you mean 'cases'",
        f"duckdb:{file}?table=": "table= is empty",
        f"duckdb:{file}?sheet=1": "'sheet=1' is not understood; use ?table= or ?query=",
        f"duckdb:{file}?query=SELECT amount2 FROM cases": "amount2",
        f"duckdb:{file}?query=DROP TABLE cases": "is no query; give one SELECT",
        f"duckdb:{file}?query=SELECT 1; SELECT 2": "is no query; give one SELECT",
        f"duckdb:{file}?query=SELECT * FROM cases_frame": "cases_frame",  # no variable of Python
        f"{pg}": "say which table with ?table= or ?query=",
        f"{pg}&table=casse": "did you mean 'cases'",
        f"{pg}&query=SELECT amount2 FROM cases": 'column "amount2" does not exist',
        f"{pg}&query=DROP TABLE cases": "syntax error",
        f"{pg}&query=SELECT nextval('counter')": "read-only",
    }
    for place, said in faults.items():
        with pytest.raises(DataError) as caught:
            read_frame(place)
        assert said in str(caught.value), place
        assert str(caught.value).startswith(place.partition("?")[0]), place
    in_duckdb(tmp_path / "plan.csv", t=cases_frame)
    with pytest.raises(ConfigError, match="is an input too"):
        check_output(tmp_path / "plan.csv", [f"duckdb:{tmp_path}/plan.csv?table=t"])


def test_no_password_is_ever_said(run, postgres: Postgres, tmp_path: Path) -> None:
    config = tmp_path / "deccaf.toml"
    config.write_text(CONFIG)
    place = f"postgresql://deccaf:{SECRET}@127.0.0.1:{postgres.port}"
    addresses = [
        f"{place}/postgres?table=nothing_here",
        f"{place}/no_such_database?table=t",
        f"{place}/postgres",
        f"postgresql://deccaf@127.0.0.1:1/x?password={SECRET}&table=t",
        f"postgresql://deccaf:{SECRET}@[bad/x?table=t",
        f"{place}/postgres?wrong=1&query=SELECT 1",
        f"{place}/postgres?query=SELECT dblink('password={SECRET} host=x')",
    ]
    for address in addresses:
        code, out, err = run("check", "--cases", address, "--config", config)
        assert code == 3, err
        for secret in (SECRET, "p@ss:w/rd", "w/rd"):
            assert secret not in out + err
        assert "***" in err


def test_the_commands_take_addresses(run, tmp_path: Path, pg: str) -> None:
    rng = np.random.default_rng(0)
    rows = 160
    amount = rng.normal(size=rows).round(6)
    label = (amount + rng.normal(size=rows) > 0).astype(np.int64)
    cases = pd.DataFrame({"case_id": [f"{k:04d}" for k in range(rows)], "amount": amount, "label": label})
    said = np.where(rng.random(rows) < 0.8, label, 1 - label)
    log = pd.DataFrame(
        {"case_id": cases["case_id"], "expert_id": ["ann", "bob"] * (rows // 2), "decision": said}
    )
    roster = pd.DataFrame({"expert_id": ["ann", "bob"], "upper": [20, 20]})
    tables = {"cases": cases, "log": log, "roster": roster}
    file = in_duckdb(tmp_path / "desk.db", **tables)
    in_postgresql(pg, **tables)
    config = tmp_path / "deccaf.toml"
    config.write_text(CONFIG)
    for name, frame in tables.items():
        frame.to_parquet(tmp_path / f"{name}.parquet")
    new = "SELECT case_id, amount FROM cases WHERE case_id < '0050' ORDER BY case_id"
    places = {
        "files": {name: str(tmp_path / f"{name}.parquet") for name in tables},
        "duckdb": {name: f"duckdb:{file}?table={name}" for name in tables},
        "postgresql": {name: f"{pg}&table={name}" for name in tables},
    }
    cases[["case_id", "amount"]].head(50).to_parquet(tmp_path / "new.parquet")
    fresh = {
        "files": tmp_path / "new.parquet",
        "duckdb": f"duckdb:{file}?query={new}",
        "postgresql": f"{pg}&query={new}",
    }
    plans = {}
    for kind, place in places.items():
        history = ("--cases", place["cases"], "--decisions", place["log"], "--config", config)
        code, out, err = run("check", *history, "--capacity", place["roster"], "--json")
        assert code in (0, 4), err
        model, plan = tmp_path / f"{kind}.deccaf", tmp_path / f"{kind}.csv"
        assert run("fit", *history, "--out", model)[0] == 0
        code, out, err = run(
            "assign",
            "--model",
            model,
            "--cases",
            fresh[kind],
            "--capacity",
            place["roster"],
            "--out",
            plan,
            "--json",
        )
        assert code == 0, err
        assert json.loads(out)["cases"] == 50
        plans[kind] = plan.read_text()
    assert plans["duckdb"] == plans["files"] == plans["postgresql"]
    code, _, err = run(
        "init", places["duckdb"]["cases"], places["duckdb"]["log"], "--out", tmp_path / "made.toml"
    )
    assert code == 0, err
    assert f"--cases 'duckdb:{file}?table=cases'" in err
