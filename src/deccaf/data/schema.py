"""Which column plays which part, and what the features are: the schema that a model remembers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, field_validator, model_validator

from deccaf.data.kinds import Feature, Kind, cast_feature, infer_feature, of_the_log, own_score, useless
from deccaf.data.vectors import LONGEST_VECTOR
from deccaf.errors import DataError, did_you_mean, show

LOG_COLUMNS = ("expert_id", "decision", "propensity", "seconds")
"""What a decision log says beside the case; in a table of cases it is known only afterwards."""
WAITING = ("due", "waiting_cost")
"""The parts of columns that price waiting."""
_NAMING = {
    "case",
    "label",
    "time",
    "let_through",
    "due",
    "waiting_cost",
    "group",
    "categorical",
    "text",
    "vectors",
    "features",
    "ignore",
}
"""The parts whose values are names of columns."""


class Columns(BaseModel):
    """Which column plays which part; the `[columns]` table of a configuration file."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    case: str = "case_id"
    label: str = "label"
    time: str = "time"
    expert: str = "expert_id"
    """Of decisions, which may stand in the file of the cases: who decided."""
    decision: str = "decision"
    """Of decisions: what was decided."""
    time_format: str | None = None
    """How dates are written as text, "%d/%m/%Y" say; needed only where their own look leaves a doubt."""
    let_through: str = "let_through"
    """Where labels are selective: the chance with which a rejected case was let through by lot, so that its
    truth was seen; empty for all others."""
    due: str = "due"
    """When a case is late: a date, or hours from the start of the plan; empty: never. For new cases."""
    waiting_cost: str = "waiting_cost"
    """What an hour of waiting costs, by case; empty: as `[waiting]` says. For new cases."""
    group: tuple[str, ...] = ()
    """Columns to report on or to split by; no features, unless `features` names them."""
    categorical: tuple[str, ...] = ()
    """Columns of numbers that are names (a branch code); text columns are categorical anyway."""
    text: tuple[str, ...] = ()
    """Columns of texts, where their look leaves a doubt: many different values, of several words each."""
    vectors: tuple[str, ...] = ()
    """Columns of lists of numbers, all of one length (embeddings)."""
    features: tuple[str, ...] | None = None
    """All columns without another part, unless named here."""
    ignore: tuple[str, ...] = ()
    """Columns without any part; only without `features`."""
    scores: dict[str, str] = {}
    """Columns that hold a machine's own score, by machine: known before its decision, and a feature of its
    decisions alone. Machines of `[makers]` have `score_<maker>`, where there is such a column."""

    @field_validator("group", "categorical", "text", "vectors", "features", "ignore", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        if isinstance(value, str):
            return (value,)
        return tuple(value) if isinstance(value, list) else value

    @model_validator(mode="after")
    def _one_part_each(self) -> Self:
        if self.features is not None and self.ignore:
            raise ValueError(
                "features and ignore together: features alone says which columns count, so leave ignore out"
            )
        kinds = (*self.categorical, *self.text, *self.vectors)
        written = [getattr(self, part) for part in WAITING if part in self.model_fields_set]
        named = {self.case, self.label, self.time, self.let_through, *written, *kinds, *self.group}
        both = sorted(set(self.ignore) & named)
        if both:
            raise ValueError(f"column {both[0]!r} is to be ignored, and has another part besides")
        self._one_kind_each(kinds)
        of_log = [part for part in ("expert", "decision") if part in self.model_fields_set]
        apart = {getattr(self, part): part for part in ("label", "case", *of_log)}
        never = [name for name in (*(self.features or ()), *kinds) if name in apart]
        if never:
            raise ValueError(f"column {never[0]!r} is the {apart[never[0]]}, so it cannot be a feature")
        parts = [self.case, self.label, self.time, self.let_through, self.due, self.waiting_cost]
        parts += [getattr(self, one) for one in of_log]
        own = [
            name for name in self.scores.values() if name in {*named, *(self.features or ()), *self.ignore}
        ]
        if own:
            raise ValueError(f"column {own[0]!r} is a machine's own score, and has another part besides")
        twice = [
            name for name in parts if parts.count(name) > 1 or (name == self.label and name in self.group)
        ]
        if twice:
            raise ValueError(
                f"column {twice[0]!r} has two parts among case, label, time, let_through, due, waiting_cost, "
                "expert, decision and group"
            )
        return self

    def _one_kind_each(self, kinds: Sequence[str]) -> None:
        twice = [name for name in kinds if kinds.count(name) > 1]
        if twice:
            raise ValueError(f"column {twice[0]!r} has two kinds among categorical, text and vectors")
        apart = [name for name in (*self.text, *self.vectors) if name not in (self.features or kinds)]
        if apart:
            raise ValueError(f"column {apart[0]!r} is text or a vector, but not among the features; add it")

    @property
    def log(self) -> dict[str, str]:
        """The columns of a log of decisions: what each is called, by the name it has everywhere else."""
        return {"case_id": self.case, "expert_id": self.expert, "decision": self.decision}

    @property
    def known_after(self) -> set[str]:
        """Columns that somebody said belong to the decisions."""
        return {getattr(self, part) for part in ("expert", "decision") if part in self.model_fields_set}

    @property
    def waiting(self) -> dict[str, str]:
        """The columns that say what waiting costs, by part: no features, unless somebody says they are."""
        taken = {*(self.features or ()), *self.ignore, *self.categorical, *self.text, *self.vectors}
        return {
            part: name
            for part in WAITING
            if (name := getattr(self, part)) not in taken or part in self.model_fields_set
        }

    def kind_of(self, name: str) -> Kind | None:
        """The kind that somebody gave a column, if anybody did."""
        told: dict[Kind, tuple[str, ...]] = {
            "category": self.categorical,
            "text": self.text,
            "vector": self.vectors,
        }
        return next((kind for kind, names in told.items() if name in names), None)

    def check(self, names: Collection[Any], optional: Collection[str] = ()) -> None:
        """Every column that somebody wrote a part for is there, and the table holds cases, not decisions.

        A part that has its default name may be absent, and so may the parts that are `optional` ("label" for
        new cases, say). What is missing is a `DataError` that names the part and a column of a like name.
        """
        self._refuse_a_log(names)
        optional = {*optional, *WAITING}  # a history has none
        optional |= {"let_through"} if "label" in optional else set()  # new cases have neither
        written = [part for part in type(self).model_fields if part in self.model_fields_set]
        for part in [part for part in written if part in _NAMING and part not in optional]:
            given = getattr(self, part)
            wanted = (given,) if isinstance(given, str) else given or ()
            missing = [name for name in wanted if name not in names]
            if missing:
                count = f" ({len(missing)} of its {len(wanted)} names are none)" if len(wanted) > 1 else ""
                raise DataError(
                    f"[columns] {part}: the cases have no column {missing[0]!r}{count}"
                    + did_you_mean(missing[0], map(str, names))
                )

    def _refuse_a_log(self, names: Collection[Any]) -> None:
        found = set(names) - {self.case, self.time, None}
        log = {self.expert, self.decision}
        if log <= found <= {*LOG_COLUMNS, *log, "case_id", "time", "batch"}:
            raise DataError(
                f"cases: these are the columns of a decision log ({', '.join(filter(None, names))}), with no "
                "feature among them; give the cases here, and this table as decisions"
            )


class Space(Protocol):
    """How a column of texts or vectors becomes columns of numbers; learned with a model (`models.texts`)."""

    @property
    def columns(self) -> list[str]:
        """The names of the columns of numbers."""

    @property
    def familiar(self) -> str:
        """The column that tells how like those learned from a value is."""

    @property
    def told(self) -> list[str]:
        """The columns that mean something to people."""

    def transform(self, values: pd.Series) -> NDArray[np.float64]:
        """(cases, columns): the numbers; NaN where they are not known."""


@dataclass(frozen=True)
class Schema:
    """The features that a model was fitted on, in order; new cases are cast to it.

    A schema of files keeps texts and vectors as they are. That of a model has learned a `Space` for each, and
    its cast gives the columns of numbers instead: the one place where columns become what models see.
    """

    features: tuple[Feature, ...]
    spaces: Mapping[str, Space] = field(default_factory=dict, hash=False)

    @property
    def names(self) -> list[str]:
        """The features' names, in order."""
        return [feature.name for feature in self.features]

    @property
    def wide(self) -> list[Feature]:
        """The texts and vectors."""
        return [feature for feature in self.features if feature.kind in ("text", "vector")]

    @property
    def own(self) -> dict[str, str]:
        """Columns of machines' own scores, by machine: features of that machine's decisions alone."""
        return {feature.of: feature.name for feature in self.features if feature.of}

    @property
    def needed(self) -> list[str]:
        """The features that every case must have; a machine's own score may be missing."""
        return [feature.name for feature in self.features if not feature.of]

    @property
    def told(self) -> list[str]:
        """The columns of the cast that mean something to people: of a space, not its directions."""
        found: list[str] = []
        for name in self.needed:
            found += self.spaces[name].told if name in self.spaces else [name]
        return found

    def plain(self) -> Schema:
        """What the cast's columns are: numbers and categories alone, once every space is learned."""
        found: list[Feature] = []
        for feature in self.features:
            space = self.spaces.get(feature.name)
            found += [feature] if space is None else [Feature(name, "number") for name in space.columns]
        return Schema(tuple(found))

    def origin(self) -> dict[str, str]:
        """For every column of the cast, the feature that it comes from."""
        return {
            column: feature.name
            for feature in self.features
            for column in (
                self.spaces[feature.name].columns if feature.name in self.spaces else [feature.name]
            )
        }

    @classmethod
    def infer(cls, frame: pd.DataFrame, columns: Columns, reserved: Collection[str]) -> Schema:
        """The features of a training table: what `columns` names, or else all that has no other part.

        Columns that nobody named and nothing can be learned from (dates, text that is different in most
        rows) are left out with a `DeccafWarning`.
        """
        if columns.features is not None:
            names = list(columns.features)
        else:
            apart = {*reserved, *columns.ignore, *columns.known_after}
            names = [name for name in frame.columns if name not in apart]
            told = {*columns.categorical, *columns.text, *columns.vectors}
            names = [name for name in names if name in told or not useless(frame[name])]
            names = [name for name in names if not of_the_log(name, frame)]
        own = {column: maker for maker, column in columns.scores.items()}
        written = [column for column, maker in own.items() if column != f"score_{maker}"]
        require_columns(frame, written)
        names = [name for name in names if name not in own]
        require_columns(frame, [*names, *columns.categorical, *columns.text, *columns.vectors])
        if not names:
            raise DataError("no feature column is left; name some under [columns] features")
        found = [infer_feature(frame[name], columns.kind_of(name)) for name in names]
        return cls((*found, *(own_score(frame[name], own[name]) for name in own if name in frame)))

    def cast(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The features of `frame` as float64 and categories; an unseen level becomes missing.

        Texts and vectors become the columns of their space, or stay as they are where none is learned yet.
        """
        require_columns(frame, self.needed)
        columns: dict[str, Any] = {}
        for feature in self.features:
            if feature.of and feature.name not in frame:
                columns[feature.name] = np.full(len(frame), np.nan)
                continue
            values, space = cast_feature(frame[feature.name], feature), self.spaces.get(feature.name)
            if space is None:
                columns[feature.name] = values
            else:
                columns |= zip(space.columns, space.transform(values).T, strict=True)
        return pd.DataFrame(columns, index=frame.index)

    def unseen(self, frame: pd.DataFrame, cast: pd.DataFrame) -> dict[str, int]:
        """How many values of each category are levels that the schema does not know; `cast` is their cast."""
        categories = [feature.name for feature in self.features if feature.kind == "category"]
        counts = {name: int((cast[name].isna() & frame[name].notna()).sum()) for name in categories}
        return {name: count for name, count in counts.items() if count}

    def to_dict(self) -> list[dict[str, Any]]:
        """Plain lists and names, for a file."""
        return [
            {"name": f.name, "kind": f.kind, "levels": list(f.levels)}
            | ({"width": f.width} if f.width else {})
            | ({"of": f.of} if f.of else {})
            for f in self.features
        ]

    @classmethod
    def from_dict(cls, data: Sequence[Mapping[str, Any]]) -> Schema:
        """Rebuild what `to_dict` gave."""
        found = [
            Feature(f["name"], f["kind"], tuple(f["levels"]), int(f.get("width", 0)), str(f.get("of", "")))
            for f in data
        ]
        for one in found:
            if one.kind not in get_args(Kind) or not 0 <= one.width <= LONGEST_VECTOR:
                raise ValueError(f"feature {one.name!r}: kind {one.kind!r} of width {one.width}")
        return cls(tuple(found))


def require_columns(frame: pd.DataFrame, names: Collection[str]) -> None:
    """Every named column is there, or a `DataError` names the first that is not."""
    missing = [name for name in dict.fromkeys(names) if name not in frame.columns]
    if missing:
        others = f" (and {len(missing) - 1} of {len(set(names))} others)" if missing[1:] else ""
        raise DataError(
            f"column {missing[0]!r}: missing{others}" + did_you_mean(missing[0], map(str, frame.columns))
        )


def no_missing(values: pd.Series, ids: pd.Series | None = None) -> pd.Series:
    """The values themselves, or a `DataError` where one is missing."""
    missing = values.isna().to_numpy()
    if missing.any():
        first = int(missing.argmax())
        start = values.index.start if isinstance(values.index, pd.RangeIndex) else 0  # a chunk of a file
        where = f"row {start + first + 1}" if ids is None else f"case {show(ids.iloc[first])}"
        raise DataError(f"column {values.name!r}: {missing.sum()} value(s) missing, first: in {where}")
    return values
