"""Bodies that mean harm: too large, too wide, too deep, packed, or made to run somewhere."""

from __future__ import annotations

import hashlib
import http.client
import io
import json
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

CSV, PARQUET, JSON = "text/csv", "application/vnd.apache.parquet", "application/json"


@dataclass(frozen=True)
class Answer:
    """How an attack was answered."""

    name: str
    status: int
    seconds: float
    kind: str
    detail: str


def attacks(large: int = 1 << 30) -> dict[str, tuple[str, str, Callable[[], Any]]]:
    """Name: path, content type, and what makes the body (bytes, or an iterator that is sent in chunks)."""
    return {
        "1 GB with its length told": ("/v1/cases", JSON, lambda: 1 << 30),
        "1 GB file with its length told": ("/v1/imports", CSV, lambda: 1 << 30),
        "a large body in chunks": ("/v1/cases", JSON, lambda: _chunks(large)),
        "a large body, all sent before the answer is read": ("/v1/cases", JSON, lambda: b" " * large),
        "10^6 columns, JSON": ("/v1/cases", JSON, _wide_json),
        "10^6 columns, CSV": (
            "/v1/imports",
            CSV,
            lambda: (",".join(f"c{k}" for k in range(10**6)) + "\n").encode(),
        ),
        "10,000 deep": ("/v1/cases", JSON, lambda: b"[" * 10_000 + b"]" * 10_000),
        "10,000 deep in features": ("/v1/cases", JSON, _deep_features),
        "parquet that unfolds to terabytes": ("/v1/imports", PARQUET, _parquet_bomb),
        "zip that unfolds to a gigabyte": ("/v1/models", "application/octet-stream", _zip_bomb),
        "pickle as a model": (
            "/v1/models",
            "application/octet-stream",
            lambda: b"cos\nsystem\n(S'true'\ntR.",
        ),
        **{
            name: ("/v1/imports?dry_run=true", PARQUET, lambda make=make: _written(make()))
            for name, make in _columns().items()
        },
        "one cell of 60 MB, CSV": ("/v1/imports", CSV, lambda: b"case_id,x\na," + b"y" * (60 << 20) + b"\n"),
        "a quote that never ends, CSV": ("/v1/imports", CSV, lambda: b'case_id,x\na,"' + b"y,\n" * (4 << 20)),
        "a name of 1 MB, CSV": ("/v1/imports", CSV, lambda: b"case_id," + b"y" * (1 << 20) + b"\na,1\n"),
        "2 million wrong items": ("/v1/cases/bulk", JSON, lambda: _items("cases", b"{}")),
        "4 million wrong labels": ("/v1/labels", JSON, lambda: _items("labels", b"0")),
        "a model of zeros that unfolds": ("/v1/models", "application/octet-stream", _model_of_zeros),
        "truncated parquet": ("/v1/imports", PARQUET, lambda: _parquet(10)[:-20]),
        "NUL bytes": ("/v1/imports", CSV, lambda: b"case_id\n\x00\x00\n"),
        "not UTF-8": ("/v1/cases", JSON, lambda: b'{"case_id": "\xff\xfe"}'),
        "lone surrogate": ("/v1/cases", JSON, lambda: b'{"case_id": "a", "features": {"x": "\\ud800"}}'),
        "numbers beyond floats": ("/v1/cases", JSON, lambda: b'{"case_id": "a", "features": {"x": 1e999}}'),
        "a thousand digits": (
            "/v1/cases",
            JSON,
            lambda: b'{"case_id": "a", "features": {"x": ' + b"9" * 1000 + b"}}",
        ),
        "NaN": ("/v1/cases", JSON, lambda: b'{"case_id": "a", "losses": {"machine": NaN}}'),
        "path in an id": ("/v1/cases", JSON, lambda: b'{"case_id": "../../etc/passwd"}'),
    }


def attack(port: int, secret: str, name: str, large: int = 1 << 30) -> Answer:
    """Send one, and time the answer."""
    path, kind, make = attacks(large)[name]
    body = make()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"Authorization": f"Bearer {secret}", "Content-Type": kind}
    began = time.perf_counter()
    if isinstance(body, int):  # only announced: an answer must come without the body
        connection.putrequest("POST", path)
        for key, value in {**headers, "Content-Length": str(body)}.items():
            connection.putheader(key, value)
        connection.endheaders()
    else:
        connection.request("POST", path, body, headers, encode_chunked=not isinstance(body, bytes))
    answer = connection.getresponse()
    took = time.perf_counter() - began
    said = answer.read(2000).decode("utf-8", "replace")
    connection.close()
    return Answer(name, answer.status, took, answer.getheader("content-type", ""), said)


def _chunks(size: int) -> Iterator[bytes]:
    part = b" " * (1 << 20)
    for _ in range(size >> 20):
        yield part


def _wide_json() -> bytes:
    return json.dumps({"case_id": "a", "features": {f"c{k}": 1 for k in range(10**6)}}).encode()


def _deep_features() -> bytes:
    return b'{"case_id": "a", "features": ' + b'{"a":' * 10_000 + b"1" + b"}" * 10_000 + b"}"


def _parquet(rows: int) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table({"case_id": [str(k) for k in range(rows)]}), out)
    return out.getvalue()


def _parquet_bomb() -> bytes:
    """One long text, 100,000 times: kilobytes as a dictionary, a hundred gigabytes unfolded."""
    long = pa.DictionaryArray.from_arrays(np.zeros(100_000, np.int32), pa.array(["x" * (1 << 20)]))
    out = io.BytesIO()
    table = pa.table({"case_id": [str(k) for k in range(100_000)], "text": long})
    pq.write_table(table, out, compression="zstd", store_schema=False)
    return out.getvalue()


def _columns() -> dict[str, Callable[[], pa.Table]]:
    """Columns that are small in a file: what pandas, Arrow and parquet can hold beside plain numbers."""
    long, many = "x" * (1 << 20), 150_000

    def ids() -> pa.Array:
        return pa.array([str(k) for k in range(many)])

    def repeated(value: Any, kind: pa.DataType | None = None) -> pa.Array:
        return pa.DictionaryArray.from_arrays(np.zeros(many, np.int32), pa.array([value], kind))

    def with_ids(column: Callable[[], pa.Array]) -> Callable[[], pa.Table]:
        return lambda: pa.table({"case_id": ids(), "x": column()})

    def nested(depth: int) -> pa.Array:
        kind = pa.int8()
        for _ in range(depth):
            kind = pa.list_(kind)
        return pa.array([[]] * many, kind)

    return {
        "a category of 1 MB texts": with_ids(lambda: repeated(long)),
        "a category of 1 MB large texts": with_ids(lambda: repeated(long, pa.large_string())),
        "a category of 9,000 letters": with_ids(lambda: repeated("x" * 9_000)),
        "a category of 39,000 letters": with_ids(lambda: repeated("x" * 39_000)),
        "ids that are a category of 1 MB": lambda: pa.table({"case_id": repeated(long)}),
        "a category of 1 MB of bytes": with_ids(lambda: repeated(long.encode())),
        "bytes": with_ids(lambda: pa.array([b"\xff\xfe"] * many)),
        "bytes of one size": with_ids(lambda: pa.array([b"\xff" * 16] * many, pa.binary(16))),
        "lists of texts": with_ids(lambda: pa.array([["x"]] * many)),
        "lists in lists in lists": with_ids(lambda: nested(12)),
        "structs": with_ids(lambda: pa.array([{"a": {"b": 1}}] * many)),
        "an extension type": with_ids(lambda: pa.array([b"x" * 16] * many, pa.uuid())),
        "400 columns of one text": lambda: pa.table(
            {"case_id": ids(), **{f"c{k}": repeated("x" * 200) for k in range(400)}}
        ),
        "50 million rows of nothing": lambda: pa.table({"case_id": pa.nulls(50_000_000)}),
    }


def _written(table: pa.Table) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, compression="zstd")
    return out.getvalue()


def _items(name: str, item: bytes) -> bytes:
    return b'{"' + name.encode() + b'":[' + b",".join([item] * ((7 << 20) // (len(item) + 1))) + b"]}"


def _model_of_zeros() -> bytes:
    """Members of 600 MB that pack to 600 kB, under the names of a model file."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("manifest.json", "model.json", "arrays/0.npy"):
            with archive.open(name, "w", force_zip64=True) as member:
                for _ in range(200):
                    member.write(bytes(1 << 20))
        archive.comment = b"deccaf model sha256:" + b"0" * 64
    sealed = out.getvalue()[:-64]
    return sealed + hashlib.sha256(sealed).hexdigest().encode()


def _zip_bomb() -> bytes:
    out = io.BytesIO()
    with (
        zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("manifest.json", "w", force_zip64=True) as member,
    ):
        for _ in range(1024):
            member.write(b" " * (1 << 20))
    return out.getvalue()
