"""Reads files that strangers send, in a process of its own with little memory and little time.

Whatever a file does to its reader (a parquet file of a few kilobytes can unpack to terabytes), the service
goes on. The readers are forked from a clean process that has everything imported, so one starts in
milliseconds.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import resource
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute
import pyarrow.feather
import pyarrow.parquet

from deccaf.data.files import read_frame
from deccaf.errors import DataError, DeccafError
from deccaf.estimator import DeCCaF
from deccaf.service.errors import invalid

MEMORY = 1 << 30
CPU_SECONDS = 60
WAIT_SECONDS = 90
LONGEST_BYTES = 40_000
"""Of one text in a file."""

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["__main__", "deccaf.service.run"])  # whatever a child would import


def warm_up() -> None:
    """Start the process that readers are forked from, so that the first upload does not wait for it."""
    _in_a_child(_nothing, Path(), Path(), 0, 0)


def read_table(path: Path, rows: int, columns: int) -> pd.DataFrame:
    """A parquet or CSV file as a frame; what is wrong with it, or with its size, is refused with 422."""
    folder = Path(tempfile.mkdtemp(prefix="deccaf-upload-"))
    try:
        _in_a_child(_read_table, path, folder / "table", rows, columns)
        table = pa.feather.read_table(folder / "table", memory_map=False)
        frame: pd.DataFrame = table.to_pandas()
        return frame
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def check_model(path: Path) -> None:
    """Load a model file once where it can do no harm; what is wrong with it is refused with 422."""
    _in_a_child(_load_model, path, path, 0, 0)


def _in_a_child(work: Callable[..., None], path: Path, out: Path, rows: int, columns: int) -> None:
    ours, theirs = _context.Pipe(duplex=False)
    child = _context.Process(target=_confined, args=(theirs, work, path, out, rows, columns), daemon=True)
    child.start()
    theirs.close()
    try:
        problem: Any = ours.recv() if ours.poll(WAIT_SECONDS) else "it took too long to read"
    except EOFError:
        problem = "reading it took more memory or time than a file may take"
    finally:
        child.kill()
        child.join()
        ours.close()
    if problem is not None:
        raise invalid("unreadable-file", str(problem))


def _confined(
    answer: multiprocessing.connection.Connection,
    work: Callable[..., None],
    path: Path,
    out: Path,
    rows: int,
    columns: int,
) -> None:
    pa.allocate_buffer(64)  # Arrow's allocator reserves a gigabyte at its first use: before the limit is set
    if sys.platform == "linux":
        most = _data_bytes() + MEMORY
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    pa.set_cpu_count(1)
    try:
        work(path, out, rows, columns)
        answer.send(None)
    except DeccafError as error:
        answer.send(str(error).replace(f"{path}: ", ""))
    except (MemoryError, pa.ArrowMemoryError):
        answer.send("reading it takes more memory than a file may take")
    except Exception as error:
        answer.send(f"cannot be read: {type(error).__name__}")


def _data_bytes() -> int:
    """Memory that the process holds before it reads anything."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmData:")))


def _nothing(path: Path, out: Path, rows: int, columns: int) -> None:
    del path, out, rows, columns


def _read_table(path: Path, out: Path, rows: int, columns: int) -> None:
    if path.suffix == ".parquet":
        _check_parquet(path, rows, columns)
    frame = read_frame(path, text=("case_id", "expert_id"))
    if len(frame) > rows or frame.shape[1] > columns:
        raise DataError(f"{len(frame):,} rows x {frame.shape[1]:,} columns; at most {rows:,} x {columns:,}")
    if frame.empty:
        raise DataError("the file has no rows")
    pa.feather.write_feather(
        pa.Table.from_pandas(frame, preserve_index=False), out, compression="uncompressed"
    )


def _check_parquet(path: Path, rows: int, columns: int) -> None:
    """What the footer says of its size, before anything is unpacked."""
    try:
        facts = pa.parquet.read_metadata(path)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"is not a parquet file, or a damaged one: {str(error)[:200]}") from error
    if facts.num_rows > rows or facts.num_columns > columns:
        raise DataError(
            f"{facts.num_rows:,} rows x {facts.num_columns:,} columns; at most {rows:,} x {columns:,}"
        )
    _check_texts(path)


def _check_texts(path: Path) -> None:
    """No text is too long, checked in the dictionary: repeated texts are small until unpacked."""
    kinds = pa.parquet.read_schema(path)
    texts = [
        field.name
        for field in kinds
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type)
    ]
    with pa.parquet.ParquetFile(path, read_dictionary=texts) as file:
        for batch in file.iter_batches(columns=texts):
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                values = column.dictionary if pa.types.is_dictionary(column.type) else column
                longest = pa.compute.max(pa.compute.binary_length(values)).as_py() or 0
                if longest > LONGEST_BYTES:
                    raise DataError(
                        f"column {name!r}: a text of {longest:,} bytes; at most {LONGEST_BYTES:,}"
                    )


def _load_model(path: Path, out: Path, rows: int, columns: int) -> None:
    del out, rows, columns
    DeCCaF.load(path)
