"""What it costs that a case waits: so much an hour, and more once it is late.

All times are hours on one clock, whose zero the caller chooses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from deccaf.assign.exact.scan import Floats
from deccaf.data.log_odds import expit
from deccaf.errors import DataError

ROUNDING = 1e-9
"""Hours by which sums of minutes may be off: what is done on the minute is in time."""


@dataclass(frozen=True, eq=False)
class Harm:
    """One entry per case in every field."""

    rate: Floats
    """An hour of waiting."""
    due: Floats
    """When it is late; infinite: never."""
    late: Floats
    """Once, when that moment passes."""
    late_rate: Floats
    """Every hour after it, beside `rate`."""
    since: Floats
    """When it began to wait."""
    promised: Floats
    """By when it was promised, apart from when it is due; infinite: nothing was."""
    broken: Floats
    """What it costs to break the promise."""

    @classmethod
    def of(
        cls,
        cases: int,
        rate: ArrayLike = 0.0,
        due: ArrayLike = np.inf,
        late: ArrayLike = 0.0,
        late_rate: ArrayLike = 0.0,
        since: ArrayLike = 0.0,
        promised: ArrayLike = np.inf,
        broken: ArrayLike = 0.0,
    ) -> Harm:
        """Numbers for all cases, or one each; prices must be finite and not negative."""
        given = {"rate": rate, "due": due, "late": late, "late_rate": late_rate, "since": since}
        given |= {"promised": promised, "broken": broken}
        found = {
            name: np.broadcast_to(np.asarray(value, np.float64), (cases,)) for name, value in given.items()
        }
        for name in ("rate", "late", "late_rate", "broken"):
            wrong = ~(np.isfinite(found[name]) & (found[name] >= 0))
            if wrong.any():
                raise DataError(f"waiting: {name} must be a number from 0 on, got {found[name][wrong][0]}")
        if np.isnan(found["due"]).any() or not np.isfinite(found["since"]).all():
            raise DataError("waiting: due and since must be times, in hours")
        return cls(**found)

    def __len__(self) -> int:
        return len(self.rate)

    @property
    def priced(self) -> bool:
        """Whether waiting costs anything."""
        return bool(self.rate.any() or self.dated)

    @property
    def dated(self) -> bool:
        """Whether being late costs anything."""
        priced = (self.late + self.late_rate > 0) & np.isfinite(self.due)
        return bool((priced | ((self.broken > 0) & np.isfinite(self.promised))).any())

    def from_now(self) -> Harm:
        """The same without what is past at 0 on the clock: costs of before, which no plan changes."""
        over = self.due < 0
        return replace(
            self,
            since=np.zeros(len(self)),
            late=np.where(over, 0.0, self.late),
            due=np.where(over, -2.0 * ROUNDING, self.due),
        )

    def take(self, rows: Any) -> Harm:
        """Some of the cases."""
        return Harm(*[getattr(self, field.name)[rows] for field in fields(self)])

    @classmethod
    def concat(cls, parts: Sequence[Harm]) -> Harm:
        """All of them, one after the other."""
        return cls(*[np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(cls)])

    def is_late(self, finish: Floats) -> Any:
        """Whether each is late if it is done then; times may have further axes in front."""
        return finish > self.due + ROUNDING

    def cost(self, finish: Floats) -> Floats:
        """What waiting costs if each case is done then."""
        over = finish - self.due
        jump = np.where(over > ROUNDING, self.late, 0.0)
        jump = jump + np.where(finish > self.promised + ROUNDING, self.broken, 0.0)
        return np.asarray(
            self.rate * (finish - self.since) + jump + self.late_rate * np.maximum(over, 0.0), np.float64
        )

    def expected(self, finish: Floats, spread: Floats) -> Floats:
        """The same where `finish` is only expected, give or take `spread`: lateness comes by degrees."""
        wide = np.maximum(spread, 1e-6)
        x = (finish - self.due) / wide
        x = np.where(np.isfinite(x), x, -np.inf)
        behind = wide * np.logaddexp(0.0, x)
        found = self.rate * (finish - self.since) + self.late * expit(x) + self.late_rate * behind
        if self.broken.any():
            found = found + self.broken * expit((finish - self.promised) / wide)
        return np.asarray(found, np.float64)
