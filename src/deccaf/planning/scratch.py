"""A folder for scores that are larger than memory: a file for every chunk of cases, whole or not there.

What is there already is not scored again, as long as its fingerprint (the model, the costs, the roster, the
files of cases) is the same; so a run that was stopped goes on where it was.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deccaf.assign.stored import StoredMatrix
from deccaf.data.files import replacing
from deccaf.errors import DeccafError
from deccaf.models.methods import Scores

Array = NDArray[np.float64]


class Scratch:
    """Scores of chunks of cases, in files of plain float64."""

    def __init__(self, folder: Path, makers: int, classes: int):
        self.folder, self.makers, self.classes = folder, makers, classes
        folder.mkdir(parents=True, exist_ok=True)

    def scores(self, number: int, cases: int) -> Scores | None:
        """What was kept of a chunk, without its losses; None: nothing, or of another length."""
        path = self._path("beliefs", number)
        if not path.is_file():
            return None
        found = np.fromfile(path).reshape(-1, self.classes + 1)
        if len(found) != cases or self._path("loss", number).stat().st_size != 8 * cases * self.makers:
            return None
        none = np.empty((0, self.makers))
        return Scores(found[:, :-1], found[:, -1].astype(np.int64), none, none)

    def keep(self, number: int, scores: Scores) -> None:
        """Write a chunk; its beliefs come last, so that they tell that it is whole."""
        self._write("loss", number, scores.loss)
        if scores.objective is not scores.loss:
            self._write("objective", number, scores.objective)
        self._write("beliefs", number, np.column_stack([scores.p, scores.says.astype(np.float64)]))

    def matrix(self, kind: str, chunks: int) -> StoredMatrix:
        """The losses, or what the plan minimises, of all chunks."""
        parts = [self._path(kind, number) for number in range(chunks)]
        if kind == "objective" and not (parts and parts[0].is_file()):
            kind, parts = "loss", [self._path("loss", number) for number in range(chunks)]
        return StoredMatrix.of(parts, self.makers)

    @property
    def own_objective(self) -> bool:
        """Whether the plan minimises something else than the losses."""
        return self._path("objective", 0).is_file()

    def _path(self, kind: str, number: int) -> Path:
        return self.folder / f"{kind}-{number:06d}.f64"

    def _write(self, kind: str, number: int, values: Array) -> None:
        with replacing(self._path(kind, number)) as beside:
            np.ascontiguousarray(values, np.float64).tofile(beside)


def open_scratch(given: str | Path | None, mark: str, makers: int, classes: int) -> tuple[Scratch, Any]:
    """The folder of this fingerprint inside a folder that was given, which stays; or a temporary one.

    Whoever holds the second value keeps the temporary one.
    """
    if given is not None:
        return Scratch(Path(given) / mark[:16], makers, classes), None
    try:
        held = tempfile.TemporaryDirectory(prefix="deccaf-scratch-")
    except OSError as error:
        raise DeccafError(f"no folder for scores can be made: {error}; name one with scratch=") from error
    return Scratch(Path(held.name), makers, classes), held


def room_for(size: float) -> bool:
    """Whether temporary files of so many bytes have room, twice over."""
    try:
        return _free(Path(tempfile.gettempdir())) > 2.0 * size
    except OSError:  # no folder for them at all
        return False


def _free(folder: Path) -> int:
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def check_room(folder: Path, size: float) -> None:
    """Refuse before the work begins where the disk cannot take so many bytes."""
    free = _free(folder)
    if free < size:
        raise DeccafError(
            f"{folder}: scores take {size / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free there; name "
            "another folder with --scratch (scratch=), or plan files of fewer cases"
        )


def stamps(paths: Sequence[Path]) -> list[tuple[str, int, int]]:
    """What tells files apart from what they were: name, size and time."""
    return [(os.fspath(path), path.stat().st_size, path.stat().st_mtime_ns) for path in paths]
