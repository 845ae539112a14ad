"""What models said of the test cases, kept from run to run: a file of plain arrays for every split and draw.

A file is whole or not there. All of them lie in a folder named after everything that they depend on, so that
a backtest of other cases or settings, or by another version of deccaf, finds nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import deccaf
from deccaf.backtest.options import Options
from deccaf.backtest.policies import needs_of
from deccaf.backtest.split import Part
from deccaf.data.cases import Cases
from deccaf.data.config import Config
from deccaf.data.decisions import Decisions
from deccaf.data.files import replacing
from deccaf.data.history import History
from deccaf.planning.scratch import fingerprint
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
        tables = (history.cases, history.log, history)
        values = [getattr(table, one.name) for table in tables for one in fields(table)]
        known = [_plain(value) for value in values if not isinstance(value, Cases | Decisions)]
        settings = config.model_dump_json(), sorted(needs_of(options.policies)), options.seed
        return cls(
            Path(scratch).absolute() / fingerprint(deccaf.__version__, known, [*folds], *settings)[:16]
        )

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


def _plain(thing: Any) -> Any:
    """A table by the hashes of its rows, anything else as it is."""
    if isinstance(thing, pd.Series):
        thing = thing.to_frame()
    if not isinstance(thing, pd.DataFrame):
        return thing
    return [list(map(str, thing.columns)), pd.util.hash_pandas_object(thing).to_numpy()]
