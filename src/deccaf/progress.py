"""How long work tells what it is doing: the caller hands down a `Step`, and hears of every stage and part."""

from __future__ import annotations

from typing import Protocol


class Step(Protocol):
    """Called at the start of each stage, and again as its parts get done."""

    def __call__(self, stage: str, /, done: float = 0, of: float = 0) -> None:
        """Say which stage is under way, and how many of its parts are done (`of` is 0: nobody knows)."""


def silent(stage: str, /, done: float = 0, of: float = 0) -> None:
    """Nobody listens."""
    del stage, done, of
