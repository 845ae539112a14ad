"""What a synthetic expert sees of a case: every feature on one scale, fitted once and then applied.

The paper's appendix "Feature Preprocessing": numbers become quantiles, shifted by -0.5; categories are put in
order of the target's prevalence, divided by their number and centred. No feature then weighs more because of
its unit. What is missing, or was never seen in the fitting cases, is 0: it moves nobody.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.data.cases import Cases
from deccaf.data.schema import require_columns
from deccaf.data.values import Codes
from deccaf.errors import ConfigError, DataError, did_you_mean

Array = NDArray[np.float64]
Kind = Literal["quantile", "order", "binary", "raw"]
ScoreScale = Literal["quantile", "raw"]

_KNOTS = 1001


@dataclass(frozen=True)
class Encoding:
    """How one column becomes a number."""

    name: str
    kind: Kind
    knots: tuple[float, ...] = ()
    """Values of the fitting cases (`quantile`), or the threshold (`binary`)."""
    levels: tuple[str, ...] = ()
    """Names of the categories (`order`), in ascending prevalence."""
    values: tuple[float, ...] = ()
    """What each knot or level becomes; for `binary` below and from the threshold on."""

    def apply(self, column: pd.Series) -> Array:
        """The column as numbers; 0 where missing or unknown."""
        if self.kind == "order":
            named = column.astype("category").cat
            place = pd.Index(self.levels, dtype="str").get_indexer(named.categories.astype("str"))
            # Position -1 (an unknown level, a missing value) takes the last element, which is 0.
            return np.asarray(np.array([*self.values, 0.0])[np.append(place, -1)[named.codes]])
        if not pd.api.types.is_numeric_dtype(column.dtype):
            raise DataError(f"column {self.name!r}: holds {column.dtype}, but the team was fitted on numbers")
        numbers = column.to_numpy(np.float64, na_value=np.nan)
        if self.kind == "quantile":
            encoded = np.interp(numbers, self.knots, self.values)
        elif self.kind == "binary":
            encoded = np.where(numbers >= self.knots[0], self.values[1], self.values[0])
        else:
            encoded = numbers
        return np.where(np.isnan(numbers), 0.0, encoded)


@dataclass(frozen=True)
class TeamFeatures:
    """The encodings of all features that a team sees, in order; `score` is the one that is the model's score.

    Build it with `fit`, `of_names` (features taken as they are) or `from_dict`.
    """

    encodings: tuple[Encoding, ...]
    score: str | None = None

    @classmethod
    def fit(
        cls,
        cases: Cases,
        *,
        score: str | None = "model_score",
        score_scale: ScoreScale = "quantile",
        thresholds: Mapping[str, float] | None = None,
        binary: Collection[str] = (),
    ) -> Self:
        """Learn the encodings on the fitting cases, which need labels for the order of categories.

        The score is a quantile like any number, as in the published experiments and as the paper asks ("so
        that the feature scale does not impact the relative importance"); `score_scale="raw"` takes M(x) as it
        is. Of a feature in `binary` an expert sees only the side of its threshold.
        """
        label = truth_of(cases)
        names = cases.schema.names
        if score is not None and score not in names:
            raise ConfigError(
                f"score column {score!r} is not among the features" + did_you_mean(score, names)
            )
        for name in binary:
            if name not in names or name not in (thresholds or {}):
                raise ConfigError(
                    f"feature {name!r}: to be seen as binary it must exist and have a threshold"
                )
        encodings = []
        for feature in cases.schema.features:
            column = cases.features[feature.name]
            if feature.kind == "category":
                encodings.append(_order(column, label))
            elif feature.name == score and score_scale == "raw":
                encodings.append(Encoding(feature.name, "raw"))
            elif feature.name in binary:
                threshold = float((thresholds or {})[feature.name])
                encodings.append(Encoding(feature.name, "binary", (threshold,), values=(-0.5, 0.5)))
            else:
                encodings.append(_quantile(column))
        return cls(tuple(encodings), score)

    @classmethod
    def of_names(cls, names: Sequence[str], score: str | None = None) -> Self:
        """Features that are on one scale already: taken as they are."""
        return cls(tuple(Encoding(name, "raw") for name in names), score)

    @property
    def names(self) -> list[str]:
        """The features' names, in order."""
        return [encoding.name for encoding in self.encodings]

    def transform(self, cases: Cases) -> Array:
        """Cases x features, as the experts see them."""
        require_columns(cases.features, self.names)
        seen = np.empty((len(cases), len(self.encodings)))
        for position, encoding in enumerate(self.encodings):
            seen[:, position] = encoding.apply(cases.features[encoding.name])
        return seen

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, numbers and names, for a JSON file."""
        rows = [
            {
                "name": e.name,
                "kind": e.kind,
                "knots": list(e.knots),
                "levels": list(e.levels),
                "values": list(e.values),
            }
            for e in self.encodings
        ]
        return {"score": self.score, "encodings": rows}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Rebuild what `to_dict` gave; anything else is a `DataError`."""
        try:
            encodings = tuple(
                Encoding(
                    str(row["name"]),
                    row["kind"],
                    tuple(map(float, row["knots"])),
                    tuple(map(str, row["levels"])),
                    tuple(map(float, row["values"])),
                )
                for row in data["encodings"]
            )
            score = data["score"]
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"team features: not what a team writes ({error!r})") from error
        return cls(encodings, score)


def truth_of(cases: Cases) -> Codes:
    """The label of every case, or a `DataError`: a synthetic expert errs around the truth."""
    if cases.label is None:
        raise DataError("cases have no label column; name it under [columns] label")
    unknown = int((cases.label < 0).sum())
    if unknown:
        raise DataError(
            f"{unknown} of {len(cases)} cases have no label; simulate experts on known cases only"
        )
    return cases.label


def _quantile(column: pd.Series) -> Encoding:
    """Quantile - 0.5: the least value is -0.5, the greatest 0.5, equal values share their middle."""
    values = column.to_numpy(np.float64, na_value=np.nan)
    values = values[~np.isnan(values)]
    name = str(column.name)
    if not len(values) or values.min() == values.max():
        return Encoding(name, "quantile", (0.0,), values=(0.0,))  # a constant tells experts nothing
    levels = np.linspace(0.0, 1.0, _KNOTS)
    # Knots are values that occur: interpolating between them would make a tie's share depend on rounding.
    quantiles = np.quantile(values, levels, method="inverted_cdf")
    knots, first, count = np.unique(quantiles, return_index=True, return_counts=True)
    places = (levels[first] + levels[first + count - 1]) / 2 - 0.5
    places[0], places[-1] = -0.5, 0.5
    return Encoding(name, "quantile", tuple(knots.tolist()), values=tuple(places.tolist()))


def _order(column: pd.Series, label: Codes) -> Encoding:
    """Rank by prevalence / number of categories, centred; equal prevalence goes by name.

    With more than two classes the prevalence is the share of cases outside the first class.
    """
    names = column.astype("str").where(column.notna())
    table = pd.DataFrame({"level": names.to_numpy(), "hit": label > 0}).dropna()
    by_level = table.groupby("level", sort=True)["hit"].agg(["mean", "size"])
    by_level = by_level.sort_values("mean", kind="stable")
    ranks = np.arange(len(by_level)) / max(len(by_level), 1)
    centre = np.average(ranks, weights=by_level["size"]) if len(by_level) else 0.0
    levels = tuple(str(name) for name in by_level.index)
    return Encoding(str(column.name), "order", levels=levels, values=tuple((ranks - centre).tolist()))
