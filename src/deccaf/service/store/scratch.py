"""Folders for files on their way through: gone when they have passed, or after a kill at the next start."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NAME = re.compile(r"deccaf-upload-(\d+)-")


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder that only we can read; its name says whose it is."""
    with tempfile.TemporaryDirectory(prefix=f"deccaf-upload-{os.getpid()}-") as name:
        yield Path(name)


def sweep(place: Path | None = None) -> list[Path]:
    """Remove what processes have left behind that are gone; which folders."""
    removed = []
    for folder in sorted((place or Path(tempfile.gettempdir())).glob("deccaf-upload-*")):
        owner = _NAME.match(folder.name)
        if owner is None or folder.is_symlink() or is_alive(int(owner.group(1))):
            continue
        try:
            if folder.stat().st_uid == os.getuid():
                shutil.rmtree(folder)
                removed.append(folder)
        except OSError:
            continue  # somebody else was quicker
    return removed


def is_alive(process: int) -> bool:
    """Whether a process of this machine runs."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
