"""Fitted parts in a folder, so that a fit that was stopped goes on where it was.

    with parts_kept_in("scratch"):
        DeCCaF().fit(...)          # started again with the same rows and settings, it fits what is missing

A part is kept under what it was made of: its settings, the rows it saw, and the versions of what computes
it. It is written as model files are, whole or not at all, and checked before it is used. Parts of other
packages whose settings are not plain are fitted again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.metadata import version
from pathlib import Path
from typing import Any

import deccaf
from deccaf.cluster import each
from deccaf.data.fingerprint import fingerprint
from deccaf.errors import ConfigError, ModelFileError
from deccaf.models.model_file import read_model_file, write_model_file

_FOLDER: ContextVar[Path | None] = ContextVar("folder", default=None)
_COMPUTE = ("numpy", "scipy", "lightgbm", "pandas")


@contextmanager
def parts_kept_in(folder: str | Path | None) -> Iterator[None]:
    """Within it, parts are kept in this folder, and taken from it; None: they are not."""
    if folder is not None and Path(folder).exists() and not Path(folder).is_dir():
        raise ConfigError(f"scratch: {folder} is a file; name a folder")
    before = _FOLDER.set(None if folder is None else Path(folder))
    try:
        yield
    finally:
        _FOLDER.reset(before)


def each_kept(function: Callable[..., Any], pieces: Sequence[Any], rows: Any) -> Iterator[Any]:
    """`cluster.each` for pieces whose result is a fitted part; those that are done are not done again.

    A piece is an unfitted part, or begins with one.
    """
    folder = _FOLDER.get()
    if folder is None:
        yield from each(function, pieces, rows)
        return
    known = fingerprint(deccaf.__version__, [version(name) for name in _COMPUTE], function.__name__, rows)
    files = [_file(folder, known, piece) for piece in pieces]
    found = [_read(file, _part(piece)) for file, piece in zip(files, pieces, strict=True)]
    done = each(function, [piece for piece, part in zip(pieces, found, strict=True) if part is None], rows)
    for file, part in zip(files, found, strict=True):
        if part is not None:
            yield part
            continue
        new = next(done)
        if file is not None:
            write_model_file(file, new.to_dict(), schema=[], training={}, deccaf_version=deccaf.__version__)
        yield new


def _part(piece: Any) -> Any:
    return piece[0] if isinstance(piece, tuple) else piece


def _file(folder: Path, known: str, piece: Any) -> Path | None:
    """Where a piece's result is kept; None: it cannot be told from others."""
    part, *rest = piece if isinstance(piece, tuple) else (piece,)
    kind = f"{type(part).__module__}.{type(part).__qualname__}"
    try:
        mark = fingerprint(known, kind, vars(part), rest)
    except (TypeError, AttributeError):
        return None
    return folder / f"{part.name}-{mark[:32]}.part"


def _read(file: Path | None, part: Any) -> Any:
    """The fitted part, or None where there is none, or a damaged one."""
    if file is None or not file.exists():
        return None
    try:
        return type(part).from_dict(read_model_file(file).model)
    except ModelFileError:
        return None
