"""Tables in databases: what an address says, and a copy of the table as a file of this process.

    duckdb:FILE?table=NAME                      duckdb:FILE?query=SELECT ...
    postgresql://USER@HOST/DATABASE?table=NAME  postgresql://USER@HOST/DATABASE?query=SELECT ...

`table=` or `query=` stands last, and all that follows it is taken as it stands: nothing in it is decoded. The
table is copied once, as it is at that moment, into a parquet file that is read as every other, so that types,
missing values and messages are those of files. Nothing can be written to the database: DuckDB's file is
opened for reading, PostgreSQL's transaction is read-only. No message holds a password.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from deccaf.errors import DataError, did_you_mean
from deccaf.optional import extra

CHUNK_ROWS = 131_072
_SHOWN = 80
"""Characters of a query in messages."""
_ADDRESS = re.compile(r"(?P<scheme>duckdb:|postgres(?:ql)?://)(?P<where>[^?]*)(?P<rest>\?.*)?", re.DOTALL)
_ASKED = re.compile(r"[?&](?P<key>table|query)=(?P<value>.*)", re.DOTALL)
_SECRET = re.compile(r"(password\s*=\s*)('[^']*'|[^\s&']+)", re.IGNORECASE)
_HIDDEN = "***"
_CONNECT_SECONDS = 10


@dataclass(frozen=True)
class Address:
    """Where a table is: a database, and a table of it or a query."""

    kind: Literal["duckdb", "postgresql"]
    where: str
    """DuckDB: the file. PostgreSQL: what its own client takes, password and all."""
    table: str | None = None
    query: str | None = None

    @classmethod
    def of(cls, text: str) -> Address | None:
        """The address that a text is, or None where it is the path of a file."""
        found = _ADDRESS.fullmatch(text)
        if found is None:
            return None
        scheme, where, rest = found["scheme"], found["where"], found["rest"] or ""
        asked = _ASKED.search(rest)
        known = {asked["key"]: asked["value"].strip()} if asked else {}
        settings = rest[: asked.start()] if asked else rest
        if scheme == "duckdb:":
            address = cls("duckdb", where, **known)
            if settings:
                raise DataError(
                    f"{address.shown}: {settings[1:]!r} is not understood; use ?table= or ?query="
                )
        else:
            address = cls("postgresql", f"{scheme}{where}{settings}", **known)
        if asked and not asked["value"].strip():
            raise DataError(f"{address.shown}: {asked['key']}= is empty")
        return address

    @property
    def shown(self) -> str:
        """The address without its password, and with the beginning of its query."""
        place = self.where if self.kind == "postgresql" else f"duckdb:{self.where}"
        for secret in self._secrets():
            place = place.replace(secret, _HIDDEN)
        mark = "&" if "?" in place else "?"
        if self.table is not None:
            return f"{place}{mark}table={self.table}"
        if self.query is None:
            return place
        words = _SECRET.sub(rf"\1{_HIDDEN}", " ".join(self.query.split()))
        return f"{place}{mark}query={words[:_SHOWN]}{'...' if len(words) > _SHOWN else ''}"

    def without_secrets(self, said: object) -> str:
        """What a database said, in one line."""
        lines = [line.strip() for line in str(said).split("\nLINE ", 1)[0].split("\n")]
        text = _SECRET.sub(rf"\1{_HIDDEN}", " ".join(line for line in lines if line))
        for secret in self._secrets():
            text = text.replace(secret, _HIDDEN).replace(unquote(secret), _HIDDEN)
        return text[:400]

    def copy(self, path: Path) -> None:
        """Write the table to a parquet file; whatever is wrong is a `DataError` that names the address."""
        read = _read_duckdb if self.kind == "duckdb" else _read_postgresql
        try:
            read(self, path)
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{self.shown}: cannot be read: {self.without_secrets(error)}") from error

    def _secrets(self) -> list[str]:
        """Passwords in the address, longest first, so that none is left in part."""
        if self.kind == "duckdb":
            return []
        login = self.where.partition("://")[2].rpartition("@")[0]  # however wrong the password is written
        found = [login.partition(":")[2], *(text for _, text in _SECRET.findall(self.where))]
        return sorted({one for one in found if one}, key=len, reverse=True)


def _write(batches: Iterator[pa.RecordBatch], schema: pa.Schema, path: Path) -> None:
    with pa.parquet.ParquetWriter(path, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _quoted(table: str) -> str:
    """`cases`, `audit.cases` or `"a name"."with.dots"` as identifiers."""
    parts = re.findall(r'"(?:[^"]|"")+"|[^.]+', table)
    return ".".join(
        part if part.startswith('"') else f'"{part.replace(chr(34), chr(34) * 2)}"' for part in parts
    )


def _statement(address: Address, tables: Callable[[], list[str]]) -> str:
    """The query; without one, all of the table, which may go unnamed where there is but one."""
    if address.query is not None:
        return address.query.rstrip().rstrip(";")
    name = address.table
    if name is None:
        known = tables()
        if len(known) != 1:
            some = ", ".join(known[:10]) or "none"
            raise DataError(f"{address.shown}: say which table with ?table= or ?query=; there are: {some}")
        name = known[0]
    return f"SELECT * FROM {_quoted(name)}"


def _failed(address: Address, error: Exception, tables: Callable[[], list[str]]) -> DataError:
    """What the database refused, with the nearest name where a table is not there."""
    said = address.without_secrets(error)
    hint = ""
    if address.table is not None and "exist" in said:
        hint = did_you_mean(address.table, tables())
    return DataError(f"{address.shown}: {said}{hint}")


# DuckDB


def _read_duckdb(address: Address, path: Path) -> None:
    with extra("duckdb", "a table in DuckDB"):
        import duckdb
    file = Path(address.where)
    if address.where and not file.is_file():
        names = [part.name for part in file.parent.iterdir()] if file.parent.is_dir() else []
        raise DataError(f"{address.shown}: no such file{did_you_mean(file.name, names)}")
    # nothing is fetched from elsewhere, and a name in a query is never a variable of this program
    settings = {"autoinstall_known_extensions": "false", "python_enable_replacements": "false"}
    try:
        connection = duckdb.connect(
            address.where or ":memory:", read_only=bool(address.where), config=dict(settings)
        )
    except duckdb.Error as error:
        raise DataError(f"{address.shown}: cannot be opened: {address.without_secrets(error)}") from error

    def tables() -> list[str]:
        found = connection.execute(
            "SELECT CASE table_schema WHEN 'main' THEN table_name ELSE table_schema || '.' || table_name END "
            "FROM information_schema.tables ORDER BY 1"
        ).fetchall()
        return [str(name) for (name,) in found]

    with connection:
        statement = _statement(address, tables)
        try:
            kinds = {str(one.type) for one in connection.extract_statements(statement)}
            if kinds != {"StatementType.SELECT"} or len(connection.extract_statements(statement)) != 1:
                raise DataError(f"{address.shown}: is no query; give one SELECT")
            connection.execute("SET TimeZone = 'UTC'")
            batches = connection.sql(statement).to_arrow_reader(CHUNK_ROWS)
            _write(batches, batches.schema, path)
        except duckdb.Error as error:
            raise _failed(address, error, tables) from error


# PostgreSQL

_TYPES: dict[str, pa.DataType] = {
    **dict.fromkeys(("int2", "int4", "int8", "oid"), pa.int64()),
    **dict.fromkeys(("float4", "float8", "numeric"), pa.float64()),
    "bool": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
}
_VECTORS = {"int2", "int4", "int8", "float4", "float8", "numeric"}
_REFUSED = {"json", "jsonb", "bytea", "xml", "record", "hstore"}


@dataclass(frozen=True)
class _Column:
    """A column of a query's answer: its name, how PostgreSQL is to write it, and how that is read."""

    name: str
    written: str
    kind: pa.DataType

    @classmethod
    def of(cls, place: int, described: Any, adapters: Any, source: str) -> _Column:
        """What PostgreSQL said of the column; a type that is no number, text, time or vector is refused."""
        own = f"c{place}"
        known = adapters.get(described.type_code)
        name = "text" if known is None else str(known.name)
        if known is not None and described.type_code == known.array_oid:
            if name not in _VECTORS:
                raise DataError(
                    f"{source}: column {described.name!r}: holds {name}[]; use numbers, text, or "
                    "lists of numbers"
                )
            return cls(described.name, f"to_json({own})::text", pa.list_(pa.float64()))
        if name in _REFUSED:
            raise DataError(
                f"{source}: column {described.name!r}: holds {name}; use numbers, text, or lists of numbers: "
                "name the columns in a query, such as details->>'amount'"
            )
        if name == "numeric" and described.scale == 0 and 0 < (described.precision or 0) <= 38:
            return cls(described.name, own, pa.decimal128(described.precision, 0))  # ids: every digit counts
        if name in _TYPES:
            return cls(described.name, own, _TYPES[name])
        return cls(described.name, f"{own}::text", pa.string())


def _read_postgresql(address: Address, path: Path) -> None:
    with extra("postgresql", "a table in PostgreSQL"):
        import psycopg
        from psycopg.conninfo import conninfo_to_dict, make_conninfo
    try:
        seconds = conninfo_to_dict(address.where).get("connect_timeout") or _CONNECT_SECONDS
        connection = psycopg.connect(make_conninfo(address.where, connect_timeout=seconds))
    except psycopg.Error as error:
        raise DataError(f"{address.shown}: cannot be reached: {address.without_secrets(error)}") from error
    spool = path.with_suffix(".csv")
    connection.read_only = True

    def tables() -> list[str]:
        connection.rollback()
        found = connection.execute(
            "SELECT CASE WHEN schemaname = ANY (current_schemas(false)) THEN tablename "
            "ELSE schemaname || '.' || tablename END FROM pg_tables "
            "WHERE schemaname NOT IN ('pg_catalog', 'information_schema') ORDER BY 1"
        ).fetchall()
        return [str(name) for (name,) in found]

    with connection:
        statement = _statement(address, tables)
        try:
            connection.execute("SET LOCAL TimeZone = 'UTC'")
            connection.execute("SET LOCAL DateStyle = 'ISO'")
            # the line breaks: a query may end in a comment
            asked = connection.execute(f"SELECT * FROM (\n{statement}\n) AS asked LIMIT 0".encode())
            types = connection.adapters.types
            columns = [
                _Column.of(place, column, types, address.shown)
                for place, column in enumerate(asked.description or [])
            ]
            written = ", ".join(column.written for column in columns)
            names = ", ".join(f"c{place}" for place in range(len(columns)))
            copied = (
                f"COPY (SELECT {written} FROM (\n{statement}\n) AS asked ({names})) TO STDOUT "
                "(FORMAT csv, FORCE_QUOTE *)"
            )
            with spool.open("wb") as file, connection.cursor().copy(copied.encode()) as copy:
                for block in copy:
                    file.write(block)
            connection.rollback()  # what a function in a query did all the same
        except psycopg.Error as error:
            raise _failed(address, error, tables) from error
    _write(_csv_batches(spool, columns), _schema(columns), path)
    spool.unlink()


def _schema(columns: list[_Column]) -> pa.Schema:
    return pa.schema([(column.name, column.kind) for column in columns])


def _csv_batches(spool: Path, columns: list[_Column]) -> Iterator[pa.RecordBatch]:
    """What PostgreSQL wrote: every value in quotes, so that a cell without them is a missing one."""
    if spool.stat().st_size == 0:
        return
    own = [f"c{place}" for place in range(len(columns))]
    read = [pa.string() if pa.types.is_list(column.kind) else column.kind for column in columns]
    reader = pa.csv.open_csv(
        spool,
        read_options=pa.csv.ReadOptions(column_names=own, block_size=1 << 24),
        parse_options=pa.csv.ParseOptions(newlines_in_values=True),
        convert_options=pa.csv.ConvertOptions(
            column_types=dict(zip(own, read, strict=True)),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            true_values=["t"],
            false_values=["f"],
        ),
    )
    for batch in reader:
        arrays = [
            _lists(values) if pa.types.is_list(column.kind) else values
            for column, values in zip(columns, batch.columns, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=_schema(columns))


def _lists(texts: pa.Array) -> pa.Array:
    found = [None if text is None else json.loads(text) for text in texts.to_pylist()]
    return pa.array(found, pa.list_(pa.float64()))
