"""What is believed about cases that wait for a plan, put together from chunks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.assign import Opinions
from deccaf.assign.stored import StoredMatrix
from deccaf.data.costs import Class
from deccaf.errors import ConfigError, DriftError
from deccaf.evaluate.drift import Unlike
from deccaf.models.methods import Scores
from deccaf.planning.intake import Chunk, Intake, joined, stacked
from deccaf.planning.scratch import Scratch
from deccaf.planning.terms import Terms

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Scored:
    """Everything about the cases that a planner looks at."""

    ids: pd.Index
    makers: tuple[str, ...]
    """The machine, then the experts of the roster."""
    loss: Any
    """(cases, makers): expected cost; infinite where a maker may not get a case. An array, or in files a
    `StoredMatrix`, as is the objective."""
    objective: Any
    """(cases, makers): what the plan minimises."""
    says: Ints
    """What the machine would decide, as positions in `classes`."""
    classes: tuple[Class, ...]
    notes: tuple[str, ...] = ()
    """What the lead should know about the cases and the roster."""
    batch: pd.Series | None = None
    """The batch of each case; None: all are one."""
    columns: pd.DataFrame | None = None
    """The columns of the cases that constraints name."""
    opinions: Opinions | None = None
    """What everyone would say on every case, where constraints look at that."""
    p: Array | None = None
    """(cases, K): chance of each truth, where the beliefs come from a model."""
    terms: Terms | None = None
    """What errors and reviews cost, where the beliefs come from a model."""
    warnings: tuple[Unlike, ...] = ()
    """How the cases are unlike those that the model learned from."""
    machines: Mapping[str, float] = field(default_factory=dict)
    """Makers that are machines beside `machine`, with the minutes that a case takes them."""

    @property
    def stored(self) -> bool:
        """Whether the losses lie in files, because there are too many for memory."""
        return isinstance(self.loss, StoredMatrix)

    @property
    def by_cost(self) -> bool:
        """Whether the plan minimises the expected cost itself."""
        return self.objective is self.loss

    def take(self, rows: Ints) -> Scored:
        """The same for some of the cases, in memory."""
        loss = self.loss[rows]
        return replace(
            self,
            ids=self.ids[rows],
            loss=loss,
            objective=loss if self.by_cost else self.objective[rows],
            says=self.says[rows],
            batch=None if self.batch is None else self.batch.iloc[rows],
            columns=None if self.columns is None else self.columns.iloc[rows],
            opinions=None if self.opinions is None else self.opinions.take(rows),
            p=None if self.p is None else self.p[rows],
        )

    def of(self, makers: Sequence[str]) -> Scored:
        """The same for some of the makers, in this order."""
        if tuple(makers) == self.makers:
            return self
        if self.stored:
            raise ConfigError(
                "these losses lie in files and are planned for one roster only; ask what-if questions of "
                "fewer cases, a file of one batch or a sample"
            )
        where = [self.makers.index(name) for name in makers]
        loss = self.loss[:, where]
        objective = loss if self.by_cost else self.objective[:, where]
        said = self.opinions
        if said is not None:
            paid = None if said.review_cost is None else said.review_cost[..., where]
            r = said.correlation
            r = None if r is None else r[np.ix_(where, where)]
            said = replace(said, q=said.q[:, where], review_cost=paid, correlation=r)
        return replace(self, makers=tuple(makers), loss=loss, objective=objective, opinions=said)


def trusted(scored: Scored, strict: bool) -> Scored:
    """The same, or with `strict` a `DriftError` where the cases are unlike those learned from."""
    if strict and scored.warnings:
        more = "; ".join(unlike.said for unlike in scored.warnings)
        raise DriftError(f"the cases are unlike those that the model learned from: {more}")
    return scored


@dataclass(eq=False)
class Parts:
    """Scored chunks, until they are put together."""

    ids: list[pd.Index] = field(default_factory=list)
    batch: list[pd.Series | None] = field(default_factory=list)
    p: list[Array] = field(default_factory=list)
    loss: list[Array] = field(default_factory=list)
    objective: list[Array] = field(default_factory=list)
    cases: int = 0
    """How many there will be, where that is known; their losses then have their place from the beginning."""
    says: list[Ints] = field(default_factory=list)
    columns: list[pd.DataFrame] = field(default_factory=list)
    opinions: list[Opinions] = field(default_factory=list)
    scratch: Scratch | None = None
    """Where the losses are, instead of in memory."""

    def add(self, chunk: Chunk, scores: Scores) -> None:
        """Another chunk; the objective is kept where it is not the loss itself."""
        self.p.append(scores.p)
        self.says.append(scores.says)
        self.batch.append(chunk.batch)
        if chunk.columns.shape[1]:
            self.columns.append(chunk.columns)
        if self.scratch is None:
            self._keep(self.loss, scores.loss)
            if scores.objective is not scores.loss:
                self._keep(self.objective, scores.objective)
        self.ids.append(chunk.ids)

    def _keep(self, kept: list[Array], new: Array) -> None:
        done = sum(map(len, self.ids))
        if self.cases < len(new) + done or (done and not kept):
            kept.append(new)
            return
        if not kept:
            kept.append(np.empty((self.cases, new.shape[1])))
        kept[0][done : done + len(new)] = new

    def together(
        self, makers: tuple[str, ...], classes: tuple[Class, ...], intake: Intake, terms: Terms
    ) -> Scored:
        """All chunks as one."""
        if not self.ids:
            empty = np.empty((0, len(makers)))
            none = np.empty((0, len(classes)))
            return Scored(
                pd.Index([]), makers, empty, empty, np.zeros(0, np.int64), classes, p=none, terms=terms
            )
        chunks, ids = len(self.ids), joined(self.ids, intake.named)
        batches = [part for part in self.batch if part is not None]
        if self.scratch is not None:
            loss: Any = self.scratch.matrix("loss", chunks)
            objective: Any = self.scratch.matrix("objective", chunks) if self.scratch.own_objective else loss
        else:
            loss = stacked(self.loss)
            objective = stacked(self.objective) if self.objective else loss
        return Scored(
            ids=ids,
            makers=makers,
            loss=loss,
            objective=objective,
            says=stacked(self.says),
            classes=classes,
            notes=tuple(intake.notes()),
            batch=pd.concat(batches) if batches else None,
            columns=pd.concat(self.columns) if self.columns else None,
            opinions=Opinions.concat(self.opinions) if self.opinions else None,
            p=stacked(self.p),
            terms=terms,
            warnings=tuple(intake.unlike()),
        )


def no_scores(cases: int, experts: int, classes: int) -> Scores:
    """Scores that say nothing, to check that a plan exists."""
    loss = np.zeros((cases, 1 + experts))
    return Scores(np.zeros((cases, classes)), np.zeros(cases, np.int64), loss, loss)
