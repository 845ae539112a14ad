"""Matrix products on one thread.

The threads of a matrix library wait for each other, on a busy machine for far longer than they work, and
these products are small.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache

from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()  # finding the libraries takes longer than many a product


def one_thread() -> AbstractContextManager[object]:
    """Within this, one thread."""
    within: AbstractContextManager[object] = _controller().limit(limits=1)
    return within
