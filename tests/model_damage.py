"""Ways to damage a model file, and to forge one: sums made right again over changed content."""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from deccaf.models.model_file import MANIFEST, SIGNATURE, _sealed


def damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """The file with something wrong: a bit, a byte, a hole, a cut, something added, lost or swapped."""
    where = int(rng.integers(len(data)))
    size = int(rng.integers(1, 64))
    kind = int(rng.integers(7))
    if kind == 0:
        return data[:where] + bytes([data[where] ^ (1 << int(rng.integers(8)))]) + data[where + 1 :]
    if kind == 1:
        return data[:where] + bytes([(data[where] + int(rng.integers(1, 256))) % 256]) + data[where + 1 :]
    if kind == 2:
        return data[:where]
    if kind == 3:
        return data[:where] + rng.bytes(size) + data[where:]
    if kind == 4:
        return data[:where] + data[where + size :]
    if kind == 5:
        return data[:where] + b"\x00" * (len(data) - where)
    other = int(rng.integers(len(data)))
    swapped = bytearray(data)
    swapped[where], swapped[other] = data[other], data[where]
    return bytes(swapped) if bytes(swapped) != data else data[:-1]


def members(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def forged(data: bytes, change: Callable[[dict[str, bytes]], None]) -> bytes:
    """The file with changed members and with all sums made right again, as a forger would."""
    content = members(data)
    change(content)
    manifest = json.loads(content[MANIFEST])
    manifest["members"] = {
        name: {"bytes": len(part), "sha256": hashlib.sha256(part).hexdigest()}
        for name, part in content.items()
        if name not in {MANIFEST, SIGNATURE}
    }
    content[MANIFEST] = json.dumps(manifest).encode()
    return _sealed(content)


def forged_at_random(data: bytes, rng: np.random.Generator) -> bytes:
    """A forgery whose one member is damaged."""

    def change(content: dict[str, bytes]) -> None:
        names = sorted(set(content) - {MANIFEST})
        name = names[int(rng.integers(len(names)))]
        content[name] = damaged(content[name], rng)

    return forged(data, change)


class _Trap:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (self.target,)


def trapped(target: Path) -> bytes:
    """A pickle that creates `target` when it is loaded."""
    return pickle.dumps(_Trap(target))
