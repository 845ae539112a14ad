"""What models said of the test cases, kept from run to run: a file of plain arrays for every split and draw.

A file is whole or not there. All of them lie in a folder named after everything that they depend on, so that
a backtest of other cases or settings, or by another version of deccaf, finds nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

import deccaf
from deccaf.backtest.options import Options
from deccaf.backtest.policies import needs_of
from deccaf.backtest.split import Part
from deccaf.data.config import Config
from deccaf.data.files import replacing
from deccaf.data.fingerprint import fingerprint
from deccaf.data.history import History
from deccaf.policies import Beliefs, Correctness

_TRUTH, _RIGHT = " truth", " right"


@dataclass(frozen=True)
class Kept:
    """The folder of one backtest."""

    folder: Path

    @classmethod
    def of(
        cls,
        scratch: str | Path,
        history: History,
        folds: Sequence[NDArray[np.bool_]],
        config: Config,
        options: Options,
    ) -> Self:
        """The folder for this history, these splits and settings, within one that was given."""
        settings = config.model_dump_json(), sorted(needs_of(options.policies)), options.seed
        mark = fingerprint(deccaf.__version__, history, [*folds], *settings)
        return cls(Path(scratch).absolute() / mark[:16])

    def has(self, fold: int, draw: int) -> bool:
        """Whether it was learned before."""
        return self._path(fold, draw).is_file()

    def read(self, fold: int, draw: int, part: Part) -> Beliefs:
        """What was believed of the test cases of this split."""
        with np.load(self._path(fold, draw), allow_pickle=False) as found:
            paper = {
                name.removesuffix(_RIGHT): Correctness(found[name.removesuffix(_RIGHT) + _TRUTH], found[name])
                for name in found.files
                if name.endswith(_RIGHT)
            }
            p, q = found["p"], found["q"]
        return Beliefs(part.experts, part.cost_table, p, q, paper=paper, review_cost=part.review)

    def write(self, fold: int, draw: int, beliefs: Beliefs) -> None:
        """Keep it."""
        parts: dict[str, Any] = {
            name + kind: values
            for name, known in beliefs.paper.items()
            for kind, values in ((_TRUTH, known.p), (_RIGHT, known.correct))
        }
        with replacing(self._path(fold, draw)) as beside, beside.open("wb") as file:
            np.savez(file, allow_pickle=False, p=beliefs.p, q=np.asarray(beliefs.q), **parts)

    def _path(self, fold: int, draw: int) -> Path:
        return self.folder / f"beliefs-{fold}-{draw}.npz"
