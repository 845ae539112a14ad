"""What a user may give where a table is expected: a file, a folder, a pattern, a pipe, standard input, or the
address of a table in a database."""

from __future__ import annotations

import atexit
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

from deccaf.data.databases import Address
from deccaf.errors import DataError, did_you_mean

Kind = Literal["parquet", "csv", "excel"]

EXTENSIONS: Mapping[str, Kind] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".xlsx": "excel",
    ".xlsm": "excel",
}
PACKED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
"""How a text file may be compressed, by its last extension."""

_MAGIC: tuple[tuple[bytes, Kind, str], ...] = (
    (b"PAR1", "parquet", ".parquet"),
    (b"PK\x03\x04", "excel", ".xlsx"),
    (b"\x1f\x8b", "csv", ".csv.gz"),
    (b"BZh", "csv", ".csv.bz2"),
    (b"\x28\xb5\x2f\xfd", "csv", ".csv.zst"),
)


@dataclass(frozen=True)
class Source:
    """One file to read."""

    path: Path
    kind: Kind
    shown: str
    """What the user calls it."""
    packed: str | None = None
    """How it is compressed, if it is."""
    sheet: str | None = None
    partition: Mapping[str, str] = field(default_factory=dict)
    """Columns that the names of its folders hold: `month=3/part-0.parquet`."""


def sources(path: str | Path) -> list[Source]:
    """The files that a path stands for, in order; none, or of different kinds, is a `DataError`."""
    address = address_of(path)
    if address is not None:
        return [_of_address(address)]
    path = Path(path)
    if str(path) == "-" or _is_pipe(path):
        return [_of_pipe(path)]
    if path.is_dir():
        return _of_many(path, sorted(part for part in path.rglob("*") if part.is_file()), path)
    if path.is_file():
        return [_of_file(path)]
    if _is_pattern(path):
        root = next(folder for folder in path.parents if not _is_pattern(folder))
        found = sorted(part for part in root.glob(str(path.relative_to(root))) if part.is_file())
        return _of_many(path, found, root)
    book, mark, sheet = str(path).rpartition("#")
    if mark and Path(book).is_file():
        return [_of_file(Path(book), sheet)]
    hint = (
        did_you_mean(path.name, [part.name for part in path.parent.iterdir()]) if path.parent.is_dir() else ""
    )
    raise DataError(f"{path}: no such file{hint}")


def shown(path: str | Path) -> str:
    """What a path is called in messages."""
    address = address_of(path)
    if address is not None:
        return address.shown
    return "standard input" if str(path) == "-" else str(path)


def short_name(path: str | Path) -> str:
    """What a path is called in titles."""
    return shown(path) if address_of(path) is not None else Path(path).name


def address_of(path: str | Path) -> Address | None:
    """The address of a table in a database, where the path is one; a file `*.duckdb` is one too."""
    text = str(path)
    address = Address.of(text)
    if address is None and text.lower().endswith(".duckdb"):
        return Address("duckdb", text)
    return address


def _of_file(path: Path, sheet: str | None = None) -> Source:
    if path.stat().st_size == 0:
        raise DataError(f"{path}: the file is empty")
    suffix = path.suffix.lower()
    packed = PACKED.get(suffix)
    kind = EXTENSIONS.get(path.with_suffix("").suffix.lower() if packed else suffix)
    if kind is None or (packed and kind != "csv") or (sheet is not None and kind != "excel"):
        old = " (save it as .xlsx)" if suffix in {".xls", ".ods"} else ""
        raise DataError(
            f"{path}: unknown extension {suffix!r}{old}; give a .parquet, .csv, .csv.gz, .tsv or .xlsx file"
        )
    if kind == "csv" and packed is None:
        _check_plain_text(path)
    return Source(path, kind, str(path), packed, sheet)


def _check_plain_text(path: Path) -> None:
    with path.open("rb") as file:
        start = file.read(4)
    for magic, _, name in _MAGIC:
        if start.startswith(magic):
            raise DataError(f"{path}: is no text, but looks like a {name} file; give it that extension")


def _of_many(path: Path, found: list[Path], root: Path) -> list[Source]:
    """The tables among some files; hidden ones and marks such as `_SUCCESS` are none."""
    parts = []
    for part in found:
        inside = part.relative_to(root).parts if part.is_relative_to(root) else (part.name,)
        if any(name.startswith((".", "_")) for name in inside) or not _known(part):
            continue
        keys = dict(name.split("=", 1) for name in inside[:-1] if "=" in name)
        file = _of_file(part)
        parts.append(Source(file.path, file.kind, file.shown, file.packed, partition=keys))
    if not parts:
        what = "the folder holds" if path.is_dir() else "no such file; the pattern finds"
        raise DataError(f"{path}: {what} no .parquet, .csv or .xlsx file")
    other = next((part for part in parts if part.kind != parts[0].kind), None)
    if other is not None:
        raise DataError(f"{path}: holds files of two kinds, {parts[0].path.name} and {other.path.name}")
    other = next((part for part in parts if part.partition.keys() != parts[0].partition.keys()), None)
    if other is not None:
        raise DataError(f"{path}: {parts[0].path} and {other.path} lie in folders of different columns")
    return parts


def _known(path: Path) -> bool:
    suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
    return bool(suffixes) and (
        suffixes[-1] in EXTENSIONS or (suffixes[-1] in PACKED and suffixes[0] in EXTENSIONS)
    )


def _is_pattern(path: Path) -> bool:
    return any(mark in str(path) for mark in "*?[")


def _is_pipe(path: Path) -> bool:
    return path.exists() and not path.is_file() and not path.is_dir()


_copies: dict[Any, Path] = {}
"""Copies of pipes, which can be read only once, and of tables in databases, which change: a command may ask
for them twice."""


_kept = False


@contextmanager
def pipes_kept() -> Iterator[None]:
    """While a command runs, a named pipe or a database is read once; who asks again gets the copy."""
    global _kept
    before, known = _kept, set(_copies)
    _kept = True
    try:
        yield
    finally:
        _kept = before
        for key in set(_copies) - known:
            if isinstance(key, Address) or (isinstance(key, str) and "/fd/" not in key):
                del _copies[key]


def _of_pipe(path: Path) -> Source:
    """A pipe or standard input, copied to a file of its own so that it is read as any other."""
    name = shown(path)
    lasting = _kept or "/fd/" in str(path)
    once = sys.stdin if str(path) in {"-", "/dev/stdin"} else str(path) if lasting else None
    if once is None or once not in _copies:
        copy = _copied(path, name)
        if once is None:
            return _sniffed(copy, name)
        _copies[once] = copy
    return _sniffed(_copies[once], name)


def _of_address(address: Address) -> Source:
    """A table in a database, copied to a file of its own."""
    copy = _copies.get(address)
    if copy is None:
        copy = _own_folder() / "input.parquet"
        address.copy(copy)
        if _kept:
            _copies[address] = copy
    return Source(copy, "parquet", address.shown)


def _own_folder() -> Path:
    """A folder that only this user can read, gone when the process ends."""
    folder = Path(tempfile.mkdtemp(prefix="deccaf-input-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _copied(path: Path, name: str) -> Path:
    copy = _own_folder() / "input"
    try:
        with copy.open("wb") as file:
            if str(path) == "-":
                _copy_standard_input(file)
            else:
                with path.open("rb") as pipe:
                    shutil.copyfileobj(pipe, file, 1 << 20)
    except OSError as error:
        raise DataError(f"{name}: cannot be read: {error.strerror or error}") from error
    return copy


def _copy_standard_input(file: IO[bytes]) -> None:
    stream = sys.stdin
    if stream is None:
        raise DataError("standard input: is closed")
    if hasattr(stream, "buffer"):
        shutil.copyfileobj(stream.buffer, file, 1 << 20)
    else:  # a stand-in that holds text
        file.write(stream.read().encode())


def _sniffed(path: Path, name: str) -> Source:
    with path.open("rb") as file:
        start = file.read(4)
    if not start:
        raise DataError(f"{name}: is empty")
    kind, extension = next(((k, e) for magic, k, e in _MAGIC if start.startswith(magic)), ("csv", ".csv"))
    return Source(path, kind, name, PACKED.get(Path(extension).suffix))
