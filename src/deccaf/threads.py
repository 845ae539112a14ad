"""Matrix products on one thread.

The threads of a matrix library wait for each other, on a busy machine for far longer than they work; the
products here are small, and a sum over several threads is another number in its last digits.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from functools import cache

from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

_BRING_THEIR_OWN = ("numpy", "scipy.linalg", "sklearn")
"""Packages whose import loads a matrix library."""


def one_thread() -> AbstractContextManager[object]:
    """Within this, one thread."""
    within: AbstractContextManager[object] = _controller(
        tuple(name for name in _BRING_THEIR_OWN if name in sys.modules)
    ).limit(limits=1, user_api="blas")
    return within


@cache
def _controller(loaded: tuple[str, ...]) -> ThreadpoolController:
    """Of the libraries that are there by now; finding them takes longer than many a product."""
    del loaded
    return ThreadpoolController()
