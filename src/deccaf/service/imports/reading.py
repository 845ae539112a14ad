"""Reads files that strangers send, in a process of its own with little memory and little time.

Whatever a file does to its reader (a parquet file of a few kilobytes can unpack to terabytes), the service
goes on. Everything that unfolds, casts or measures a file happens in the reader. What comes back is small
and plain: facts as JSON through a pipe, and rows as lines of JSON in a file whose size is limited. The
readers are forked from a clean process that has everything imported, so one starts in milliseconds.
"""

from __future__ import annotations

import errno
import json
import multiprocessing
import multiprocessing.connection
import resource
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet

from deccaf.data.files import read_frame
from deccaf.errors import DataError, DeccafError
from deccaf.fitted import FittedTeam
from deccaf.service.errors import RefusedError, invalid

MEMORY = 1 << 30
CPU_SECONDS = 60
WAIT_SECONDS = 90
LONGEST_BYTES = 40_000
"""Of one text in a file."""
LONGEST_NAME = 200
"""Characters of a column's name."""
MOST_FACTS = 4 << 20
"""Bytes of what a reader says of a file."""
MOST_UNFOLDED = 512 << 20
"""Bytes of all values of a file."""
MOST_ROWS = 256 << 20
"""Bytes of the rows that a reader hands over: as much as a file may have."""

_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_PLAIN = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_temporal,
    pa.types.is_null,
    *_TEXTS,
)

_context = multiprocessing.get_context("forkserver")
_WORK = ("case_import", "golden_import", "past_import")
_context.set_forkserver_preload(["__main__", *[f"deccaf.service.imports.{name}" for name in _WORK]])


def warm_up() -> None:
    """Start the process that readers are forked from, so that the first upload does not wait for it."""
    confined(_nothing)


def check_model(path: Path) -> dict[str, Any]:
    """What a model file says of its training; what is wrong with it is refused with 422."""
    found: dict[str, Any] = confined(_load_model, path)
    return found


def confined(work: Callable[..., Any], *arguments: Any) -> Any:
    """What `work` gives for these arguments in a process with little memory and time, as JSON has it.

    A path among the arguments is the file that messages are about. Whatever goes wrong is refused with 422.
    """
    ours, theirs = _context.Pipe(duplex=False)
    child = _context.Process(target=_confined, args=(theirs, work, arguments), daemon=True)
    child.start()
    theirs.close()
    try:
        if ours.poll(WAIT_SECONDS):
            answer = json.loads(ours.recv_bytes(MOST_FACTS))
        else:
            answer = {"problem": "it took too long to read"}
    except (EOFError, OSError, ValueError):
        answer = {"problem": "reading it took more memory or time than a file may take"}
    finally:
        child.kill()
        child.join()
        ours.close()
    if "problem" in answer:
        kind, more = answer.get("kind", "unreadable-file"), answer.get("more", {})
        raise invalid(kind, str(answer["problem"]), **more)
    return answer["found"]


def read_table(path: Path, rows: int, columns: int, text: Collection[str] = ()) -> pd.DataFrame:
    """A parquet or CSV file as a frame, ids and the columns of `text` as text: only for confined work."""
    if path.suffix == ".parquet":
        _check_parquet(path, rows, columns)
    frame = read_frame(path, text=("case_id", "expert_id", *text))
    if len(frame) > rows or frame.shape[1] > columns:
        raise DataError(f"{len(frame):,} rows x {frame.shape[1]:,} columns; at most {rows:,} x {columns:,}")
    if frame.empty:
        raise DataError("the file has no rows")
    long = next((str(name) for name in frame if len(str(name)) > LONGEST_NAME), None)
    if long is not None:
        raise DataError(f"column {long[:60]!r}: a name of {len(long):,} characters; at most {LONGEST_NAME}")
    return frame


def write_rows(path: Path, rows: Iterable[Any]) -> None:
    """Hand rows over, one line of JSON each."""
    with path.open("w", encoding="ascii") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=True, allow_nan=False))
            file.write("\n")


def read_rows(path: Path) -> Iterator[Any]:
    """The rows that a reader has handed over."""
    with path.open(encoding="ascii") as file:
        for line in file:
            yield json.loads(line)


def _confined(
    answer: multiprocessing.connection.Connection, work: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    pa.allocate_buffer(64)  # Arrow's allocator reserves a gigabyte at its first use: before the limit is set
    if sys.platform == "linux":
        most = _data_bytes() + MEMORY
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_ROWS, MOST_ROWS))
    pa.set_cpu_count(1)
    with suppress(OSError):  # whoever asked was killed
        answer.send_bytes(json.dumps(_attempt(work, arguments)).encode())


def _attempt(work: Callable[..., Any], arguments: tuple[Any, ...]) -> dict[str, Any]:
    try:
        return {"found": work(*arguments)}
    except RefusedError as error:
        return {"problem": error.detail, "kind": error.kind, "more": error.more}
    except DeccafError as error:
        path = next((part for part in arguments if isinstance(part, Path)), "")
        return {"problem": str(error).replace(f"{path}: ", "")[:2000]}
    except (MemoryError, pa.ArrowMemoryError):
        return {"problem": "reading it takes more memory than a file may take"}
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.EFBIG:
            return {"problem": f"its rows unfold to more than {MOST_ROWS >> 20} MB; send it in parts"}
        return {"problem": f"cannot be read: {type(error).__name__}"}


def _data_bytes() -> int:
    """Memory that the process holds before it reads anything."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmData:")))


def _nothing() -> None:
    pass


def _load_model(path: Path) -> Any:
    return json.loads(json.dumps(FittedTeam.load(path).training_, default=str))


def _check_parquet(path: Path, rows: int, columns: int) -> None:
    """What the footer says of its size and its kinds, before anything is unpacked."""
    try:
        facts = pa.parquet.read_metadata(path)
        schema = pa.parquet.read_schema(path)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"is not a parquet file, or a damaged one: {str(error)[:200]}") from error
    if facts.num_rows > rows or facts.num_columns > columns:
        raise DataError(
            f"{facts.num_rows:,} rows x {facts.num_columns:,} columns; at most {rows:,} x {columns:,}"
        )
    for field in schema:
        kind = _values_of(field.type)
        if not any(test(kind) for test in _PLAIN) and not _is_vector(kind):
            raise DataError(
                f"column {field.name[:60]!r}: holds {str(kind)[:60]}; use numbers, texts, dates, yes/no or "
                "lists of numbers"
            )
    _check_texts(path, schema, facts)


def _check_texts(path: Path, schema: pa.Schema, facts: pa.parquet.FileMetaData) -> None:
    """No text is too long, nor all of them with so many numbers: repeated values are small until unfolded."""
    texts = [field.name for field in schema if any(test(_values_of(field.type)) for test in _TEXTS)]
    groups = [facts.row_group(number) for number in range(facts.num_row_groups)]
    size = 8 * sum(one.column(place).num_values for one in groups for place in range(one.num_columns))
    _check_size(size)
    with pa.parquet.ParquetFile(path, read_dictionary=texts) as file:
        for batch in file.iter_batches(columns=texts):
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                lengths = _lengths(column)
                longest = pa.compute.max(lengths).as_py() or 0
                if longest > LONGEST_BYTES:
                    raise DataError(
                        f"column {name[:60]!r}: a text of {longest:,} bytes; at most {LONGEST_BYTES:,}"
                    )
                size += pa.compute.sum(lengths).as_py() or 0
            _check_size(size)


def _lengths(column: pa.Array) -> pa.Array:
    """Bytes of each text; of a dictionary, of each time that a text stands there."""
    if not pa.types.is_dictionary(column.type):
        return pa.compute.binary_length(column)
    return pa.compute.binary_length(column.dictionary).take(column.indices)


def _check_size(size: int) -> None:
    if size > MOST_UNFOLDED:
        raise DataError(f"its values unfold to {size >> 20:,} MB; at most {MOST_UNFOLDED >> 20:,}")


def _is_vector(kind: pa.DataType) -> bool:
    """Whether each value is a list of numbers."""
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    if not any(test(kind) for test in lists):
        return False
    return bool(pa.types.is_integer(kind.value_type) or pa.types.is_floating(kind.value_type))


def _values_of(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind
