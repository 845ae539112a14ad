"""Matrix products on one thread.

The threads of a matrix library wait for each other, on a busy machine for far longer than they work; the
products here are small, and a sum over several threads is another number in its last digits.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

_BRING_THEIR_OWN = ("numpy", "scipy.linalg", "sklearn")
"""Packages whose import loads a matrix library."""
_LOCK = Lock()
_WITHIN: list[int] = [0]
_HELD: dict[tuple[str, ...], Any] = {}
"""What holds which libraries to one thread, as long as anybody is within."""


@contextmanager
def one_thread() -> Iterator[None]:
    """Within this, one thread, in the whole process, until the last of all who are within at once leaves."""
    with _LOCK:
        _WITHIN[0] += 1
        loaded = tuple(name for name in _BRING_THEIR_OWN if name in sys.modules)
        if loaded not in _HELD:
            _HELD[loaded] = _controller(loaded).limit(limits=1, user_api="blas")
    try:
        yield
    finally:
        with _LOCK:
            _WITHIN[0] -= 1
            while _HELD and not _WITHIN[0]:
                _HELD.popitem()[1].restore_original_limits()


@cache
def _controller(loaded: tuple[str, ...]) -> ThreadpoolController:
    """Of the libraries that are there by now; finding them takes longer than many a product."""
    del loaded
    return ThreadpoolController()
