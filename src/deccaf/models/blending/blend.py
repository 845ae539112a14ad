"""A blend of parts: fitted on what is not held out, weighed and calibrated on what is, fitted again on all.

`CaseClassifier` and `DecisionModel` are blends; they say what a row is and what a part predicts of it.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.errors import ConfigError, DeccafWarning, ModelFileError
from deccaf.models.blending.calibrate import Calibrator
from deccaf.models.blending.holdout import Mask, holdouts
from deccaf.models.blending.kept_parts import each_kept
from deccaf.models.blending.weights import held_out_losses, mix, pruned_weights
from deccaf.models.contributions import contribution_table
from deccaf.models.protocols import Part, PartOptions, Rows
from deccaf.plugins import Registry

Array = NDArray[np.float64]

P = TypeVar("P", bound=Part[Any])
R = TypeVar("R", bound=Rows)


class Blend(Generic[P, R]):
    """Parts that are weighed by how well they predict what they did not see.

    Parameters
    ----------
    classes
        K.
    parts
        Which parts to blend, from simple to rich: names, or objects; None: `defaults`.
    half_life
        Age at which a row counts half: a number, or a length of time where times are dates.
    validation_share
        About how much is held out to blend and calibrate; see `holdouts`.
    budget
        How many settings the parts try; see `deccaf.models.budgets`.
    candidates
        LightGBM settings that boosted parts choose from, in place of the budget's.

    Attributes
    ----------
    parts_ : the fitted parts by name, those that the blend uses
    weights_ : the weight of every part in the blend
    held_out_ : log-loss of each part and of the blend on the held-out rows
    calibrators_ : the correction that held-out rows chose, one per stratum
    """

    registry: ClassVar[Registry[Any]]
    """Where parts are found by name."""
    defaults: ClassVar[tuple[str, ...]]
    """The parts that are blended unless others are asked for."""
    drift: ClassVar[bool] = False
    """Whether classes may have become more or less frequent: weights are then fitted beside a shift that is
    forgotten, and the shift of the calibration is fitted again on the latest rows."""

    def __init__(
        self,
        classes: int = 2,
        *,
        parts: Sequence[str | P] | None = None,
        half_life: Any = None,
        validation_share: float = 0.25,
        budget: str = "quick",
        candidates: Sequence[Mapping[str, Any]] | None = None,
        seed: int = 0,
    ) -> None:
        self.classes = classes
        self.parts = parts
        self.half_life = half_life
        self.validation_share = validation_share
        self.budget = budget
        self.candidates = candidates
        self.seed = seed

    @property
    def strata(self) -> int:
        """How many calibrations there are."""
        return 1

    @abstractmethod
    def _predicted(self, part: P, rows: R) -> Array:
        """(rows, K): a part's log-chances of the target."""

    def _learn(self, rows: R, time: pd.Series | None, group: pd.Series | None) -> None:
        """Try the parts, weigh them, and fit those that count on everything."""
        kinds = self._kinds(len(rows))
        masks = holdouts(len(rows), time=time, group=group, share=self.validation_share, seed=self.seed)
        trials = _trials(kinds, rows, masks)
        together = [
            None if values is None or not masks else pd.concat([values[mask] for mask in masks])
            for values in (group, time)
        ]
        self._weigh(list(kinds), [rows.take(mask) for mask in masks], trials, *together)
        settled = {name: part.settled([trial[name] for trial in trials]) for name, part in kinds.items()}
        self._fit_parts({name: part for name, part in settled.items() if self.weights_[name] > 0}, rows)
        if self.drift and masks:
            self._recentre(rows, masks)

    def _fit_parts(self, parts: Mapping[str, P], rows: R) -> None:
        """Fit the parts that the blend uses on everything."""
        self.parts_: dict[str, P] = dict(zip(parts, each_kept(_fitted, [*parts.values()], rows), strict=True))

    def _kinds(self, rows: int) -> dict[str, P]:
        """The unfitted parts by name, without those that need more rows."""
        options = PartOptions(self.classes, self.budget, self.seed, self.candidates)
        kinds = {name: part.made(options) for name, part in self._named().items()}
        return {name: part for name, part in kinds.items() if rows >= part.fewest_rows} or kinds

    def _named(self) -> dict[str, P]:
        """The parts that were asked for, found by name where they were named."""
        what = self.registry.what
        if self.classes < 2:
            raise ConfigError(f"classes: at least two are needed, got {self.classes}")
        asked = self.defaults if self.parts is None else self.parts
        found = [self.registry.find(part) if isinstance(part, str) else part for part in asked]
        if not found:
            raise ConfigError(f"parts: expected at least one {what}, known are {', '.join(self.registry)}")
        odd = [part for part in found if getattr(part, "role", None) != self.registry.role]
        if odd:
            raise ConfigError(f"parts: {odd[0]!r} is no {what}; see deccaf.models.protocols")
        named = {part.name: part for part in found}
        if len(named) < len(found):
            raise ConfigError(f"parts: two have the same name among {[part.name for part in found]}")
        return named

    def _weigh(
        self,
        names: Sequence[str],
        held: Sequence[R],
        trials: Sequence[Mapping[str, P]],
        group: pd.Series | None,
        time: pd.Series | None,
    ) -> None:
        """Weigh and calibrate the parts on what they did not see; group and time are of all held-out rows."""
        if not held:  # too little to hold anything out: the simplest part, as it is
            self.weights_ = {name: float(name == names[0]) for name in names}
            self.held_out_: dict[str, float] = {}
            self.calibrators_ = [Calibrator.identity(self.classes) for _ in range(self.strata)]
            return
        log_p = np.stack(
            [
                np.concatenate(
                    [self._predicted(trial[name], rows) for trial, rows in zip(trials, held, strict=True)]
                )
                for name in names
            ]
        )
        target = np.concatenate([rows.target for rows in held])
        weight = np.concatenate([rows.weight for rows in held])
        stratum = np.concatenate([rows.stratum for rows in held])
        weights = pruned_weights(log_p, target, weight, drift=self.drift)
        blended = mix(list(log_p), weights)
        self.weights_ = dict(zip(names, weights.tolist(), strict=True))
        self.held_out_ = held_out_losses(names, log_p, blended, target, weight)
        self.calibrators_ = []
        for s in range(self.strata):
            mine = stratum == s
            beside = [None if values is None else values.to_numpy()[mine] for values in (group, time)]
            new = Calibrator(seed=self.seed).fit(blended[mine], target[mine], weight[mine], *beside)
            self.calibrators_.append(new)

    def _recentre(self, rows: R, masks: Sequence[Mask]) -> None:
        latest = rows.take(np.any(masks, axis=0))
        log_p = self._mixed(lambda part: self._predicted(part, latest))
        for s, calibrator in enumerate(self.calibrators_):
            mine = latest.stratum == s
            calibrator.recentre(log_p[mine], latest.target[mine], latest.weight[mine])

    def _mixed(self, predict: Callable[[P], Array]) -> Array:
        """The blend's log-chances before calibration, from what its parts predict."""
        return mix([predict(part) for part in self.parts_.values()], self._used_weights())

    def _used_weights(self) -> Array:
        return np.array([self.weights_[name] for name in self.parts_])

    def _moved(self, case: pd.DataFrame, stratum: int, moved: Callable[[P], Array]) -> pd.DataFrame:
        """The contributions of all parts, as the blend and its calibration weigh them; a row per feature."""
        stretch = self.calibrators_[stratum].stretch
        return contribution_table(
            case,
            (
                (part.family, stretch * self.weights_[name] * moved(part))
                for name, part in self.parts_.items()
            ),
        )

    def to_dict(self) -> dict[str, Any]:
        """What was learned, for a file, which names the parts."""
        for name, part in self.parts_.items():
            if name not in self.registry or type(self.registry.find(name)) is not type(part):
                warnings.warn(
                    f"{self.registry.what} {name!r} is known to this process alone, so that a saved model "
                    f"cannot be loaded elsewhere; declare it as an entry point of {self.registry.group!r}",
                    DeccafWarning,
                    stacklevel=2,
                )
        return {
            "classes": self.classes,
            "weights": self.weights_,
            "held_out": self.held_out_,
            "calibrators": [calibrator.to_dict() for calibrator in self.calibrators_],
            "parts": {name: part.to_dict() for name, part in self.parts_.items()},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Rebuild what `to_dict` gave; parts are those that are installed under the names in it."""
        weights = {str(name): float(weight) for name, weight in data["weights"].items()}
        used = sum(weights[name] for name in data["parts"])
        if min(weights.values()) < 0 or abs(used - 1.0) > 1e-6:
            raise ModelFileError(f"weights {weights}: expected numbers from 0 on that sum to 1")
        model = cls(int(data["classes"]), parts=list(weights))
        model.weights_, model.held_out_ = weights, dict(data["held_out"])
        model.calibrators_ = [Calibrator.from_dict(item) for item in data["calibrators"]]
        if len(model.calibrators_) != model.strata:
            raise ModelFileError(f"{len(model.calibrators_)} calibrations where {model.strata} belong")
        model.parts_ = {
            name: cls.registry.named_in_file(name).from_dict(item) for name, item in data["parts"].items()
        }
        return model


def _trials(kinds: Mapping[str, P], rows: R, masks: Sequence[Mask]) -> list[dict[str, P]]:
    """Every part, fitted for every holdout: first for the first one, then for all others side by side."""
    trials: list[dict[str, P]] = []
    for wave in (masks[:1], masks[1:]):
        before = {name: [trial[name] for trial in trials] for name in kinds}
        pieces = [(part.next_trial(before[name]), mask) for mask in wave for name, part in kinds.items()]
        done = each_kept(_tried, pieces, rows)
        trials += [{name: next(done) for name in kinds} for _ in wave]
    return trials


def _tried(piece: tuple[P, Mask], rows: Rows) -> P:
    part, mask = piece
    return part.fit(rows.take(~mask), rows.take(mask))


def _fitted(part: P, rows: Rows) -> P:
    return part.fit(rows)
