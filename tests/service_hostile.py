"""Bodies that mean harm: too large, too wide, too deep, packed, or made to run somewhere."""

from __future__ import annotations

import http.client
import io
import json
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

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
    connection.close()
    return Answer(name, answer.status, took, answer.getheader("content-type", ""))


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
    long = pa.DictionaryArray.from_arrays(pa.array([0] * 100_000, pa.int32()), pa.array(["x" * (1 << 20)]))
    out = io.BytesIO()
    table = pa.table({"case_id": [str(k) for k in range(100_000)], "text": long})
    pq.write_table(table, out, compression="zstd", store_schema=False)
    return out.getvalue()


def _zip_bomb() -> bytes:
    out = io.BytesIO()
    with (
        zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("manifest.json", "w", force_zip64=True) as member,
    ):
        for _ in range(1024):
            member.write(b" " * (1 << 20))
    return out.getvalue()
