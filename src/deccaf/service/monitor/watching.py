"""What labels say day by day: everybody's errors and the share of each class, against what is expected.

Every label is looked at once, by the model in force when it came. What it adds to the evidence is kept with
the day, in the ledger, so that a restart loses nothing and several processes see the same. A new model starts
anew, because it knows what its predecessor was surprised by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import sqlalchemy as sa

from deccaf.evaluate import sequential
from deccaf.evaluate.sequential import Change, Tally
from deccaf.service.decide.registry import Model
from deccaf.service.monitor import checks, windows
from deccaf.service.monitor.health import DAY
from deccaf.service.monitor.windows import LabelledCase
from deccaf.service.store.settings import read_setting, write_setting

_NAME = "watch by day"
_PERSON, _CLASS = "person ", "class "


@dataclass(frozen=True)
class Watched:
    """The tallies of the latest days: of each person and of each class, under one model."""

    model: int
    label: int
    """The last label that was looked at."""
    days: dict[int, dict[str, Tally]] = field(default_factory=dict)

    def people(self, false_days: float = sequential.FALSE_DAYS) -> dict[str, Change]:
        """The evidence about everybody; a false alert comes at most once in so many days on average."""
        return self._changes(_PERSON, false_days)

    def classes(self, false_days: float = sequential.FALSE_DAYS) -> dict[str, Change]:
        """The evidence about every class."""
        return self._changes(_CLASS, false_days)

    def _changes(self, kind: str, false_days: float) -> dict[str, Change]:
        names = sorted({name for day in self.days.values() for name in day if name.startswith(kind)})
        return {
            name.removeprefix(kind): sequential.change(
                [day[name] for _, day in sorted(self.days.items()) if name in day],
                sequential.threshold(len(names), false_days),
            )
            for name in names
        }

    def with_labels(self, model: Model, labelled: Sequence[LabelledCase]) -> Watched:
        """The same after more labels."""
        if not labelled:
            return self
        days = {day: dict(found) for day, found in self.days.items()}
        at = np.array([case.at // DAY for case in labelled], np.int64)
        for day in np.unique(at):
            here = days.setdefault(int(day), {})
            mine = [case for case, when in zip(labelled, at, strict=True) if when == day]
            for name, tally in _tallies(model, mine).items():
                here[name] = here[name] + tally if name in here else tally
        latest = sorted(days)[-sequential.REMEMBERED :]
        return replace(
            self, label=max(case.label_id for case in labelled), days={day: days[day] for day in latest}
        )


def read(connection: sa.Connection, model: Model) -> Watched:
    """What was kept for this model; a new one starts after the last label that was looked at."""
    found: dict[str, Any] | None = read_setting(connection, _NAME)
    if found is None:
        return Watched(model.id, windows.last_label_before(connection, model))
    if found["model"] != model.id:
        return Watched(model.id, int(found["label"]))
    days = {
        int(day): {name: Tally(int(t[0]), int(t[1]), t[2], tuple(t[3])) for name, t in tallies.items()}
        for day, tallies in found["days"].items()
    }
    return Watched(model.id, int(found["label"]), days)


def keep(connection: sa.Connection, before: Watched, now: Watched) -> bool:
    """Keep what was found, unless another process was quicker."""
    found = read_setting(connection, _NAME)
    if found is not None and int(found["label"]) != before.label:
        return False
    days = {
        str(day): {
            name: [t.count, t.seen, round(t.expected, 4), [round(e, 4) for e in t.evidence]]
            for name, t in tallies.items()
        }
        for day, tallies in now.days.items()
    }
    write_setting(connection, _NAME, {"model": now.model, "label": now.label, "days": days})
    return True


def _tallies(model: Model, labelled: Sequence[LabelledCase]) -> dict[str, Tally]:
    """A day's labels, by person and by class."""
    found: dict[str, Tally] = {}
    graded = checks.graded(model, [case for case in labelled if case.decision is not None])
    known = model.system.training_.get("decisions") or {}
    for name in sorted(set(graded.who)):
        mine = graded.who == name
        margin = sequential.margin_of(float(known.get(str(name), 0)))
        found[_PERSON + str(name)] = sequential.errors(graded.wrong[mine], graded.expected[mine], margin)
    classes = list(model.classes)
    once = [case for case in labelled if not (case.is_further or case.golden)]
    if not once:
        return found
    p = checks.class_chances(model, windows.as_frame([case.features for case in once], model))
    for k in range(len(classes) - 1 if len(classes) == 2 else 0, len(classes)):
        happened = np.array([case.label == classes[k] for case in once], np.float64)
        found[_CLASS + str(classes[k])] = sequential.level(happened, p[:, k])
    return found
