"""Random streams that belong to a name: what one expert draws does not depend on who else is in the team."""

from __future__ import annotations

import hashlib

import numpy as np

Seed = int | np.random.SeedSequence | np.random.Generator
"""Randomness is passed: a number, a seed sequence, or a generator (which it advances by one draw)."""


def root_of(seed: Seed) -> int:
    """One number from which named streams grow."""
    return int(np.random.default_rng(seed).integers(2**63))


def stream(root: int, *names: str | int) -> np.random.Generator:
    """The generator of these names; the same on every machine and in every process."""
    text = "\x1f".join(map(str, names)).encode()
    key = int.from_bytes(hashlib.blake2b(text, digest_size=16).digest(), "big")
    return np.random.default_rng(np.random.SeedSequence([root, key]))
