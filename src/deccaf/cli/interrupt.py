"""Ctrl-C while the libraries are loaded: one line and the usual code, no traceback from inside them."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

STOPPED = 130


@contextmanager
def stopped_quietly() -> Iterator[None]:
    """End the process at once on an interrupt; nothing has begun that could be left half done."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:  # somebody else's affair, or ignored
        yield
        return
    signal.signal(signal.SIGINT, _stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _stop(number: int, frame: Any) -> None:
    del number, frame
    os.write(2, b"stopped\n")
    os._exit(STOPPED)
