"""The estimator: learn from history how everyone decides, then plan new cases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

import deccaf
from deccaf.assign import Opinions
from deccaf.data.capacity import Capacity
from deccaf.data.config import ConstraintsTable
from deccaf.data.costs import MACHINE, Costs
from deccaf.data.frames import CASE, Input, as_pandas, default_names, feature_frame, read_input, same_kind
from deccaf.data.history import History
from deccaf.data.schema import Columns, Schema
from deccaf.data.tables import Cases, Decisions, class_codes, names_of
from deccaf.errors import ConfigError, DataError, ModelFileError, did_you_mean, show
from deccaf.evaluate.drift import profile
from deccaf.models.methods import METHODS, Learned, Scores, Settings, learn
from deccaf.models.model_file import read_model_file, write_model_file
from deccaf.models.protocols import CasePart, DecisionPart
from deccaf.planning.constraints import (
    Granter,
    all_columns,
    needs_opinions,
    plan_with_wishes,
    read_constraints,
)
from deccaf.planning.explain import Explanation, explain_case
from deccaf.planning.plan import Plan, Scored, check_batches, make_plan, roster_notes

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

CELLS = 4_000_000
"""Chances (cases x experts x truths x decisions) that are held at once while scoring."""
MANY_GROUPS = 50
"""A group column with at least so many groups names what belongs together; with fewer, a kind of case."""
_NOBODY = pd.Series([], dtype=str)


class DeCCaF(ClassifierMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Learn from history how likely everyone is to be right about what; plan who decides new cases.

    Parameters
    ----------
    costs
        What errors cost; without it every error costs 1. Columns that it names hold amounts per case.
    method
        `"deccaf"` (expected cost, the default), `"paper"` (the paper's method) or `"ova"` (one model per
        expert, with the same exact plan).
    budget
        How many settings of the trees to try: `"quick"`, `"standard"` or `"paper"`.
    review_cost
        What it costs to ask an expert: one number, or a number by name (anyone else: 0).
    half_life
        Age at which history counts half: a number, or a length of time where times are dates.
    categorical
        Columns of numbers that are names.
    case_parts, decision_parts
        Which models to blend: names (`deccaf.plugins.CASE_PARTS`, `DECISION_PARTS`) or objects of your own
        (`deccaf.models.protocols`).
    seed
        The same seed gives the same model and the same plans.

    Attributes
    ----------
    experts_ : everyone who was learned from, sorted
    classes_ : the classes, in the order of the costs
    costs_, schema_ : the costs in force, and the features that were seen
    training_ : facts about the history, for a file or a person
    """

    def __init__(
        self,
        costs: Costs | None = None,
        *,
        method: str = "deccaf",
        budget: str = "quick",
        review_cost: float | Mapping[str, float] = 0.0,
        half_life: Any = None,
        categorical: Sequence[str] = (),
        case_parts: Sequence[str | CasePart] = ("logistic", "boosted"),
        decision_parts: Sequence[str | DecisionPart] = ("rates", "pooled", "boosted"),
        seed: int = 0,
    ) -> None:
        self.costs = costs
        self.method = method
        self.budget = budget
        self.review_cost = review_cost
        self.half_life = half_life
        self.categorical = categorical
        self.case_parts = case_parts
        self.decision_parts = decision_parts
        self.seed = seed

    def fit(
        self,
        X: Any,
        y: ArrayLike,
        *,
        expert: Any = None,
        decision: Any = None,
        decisions: Decisions | pd.DataFrame | None = None,
        time: Any = None,
        group: Any = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Learn from one row per case: features, truth (missing: not known yet), who decided, what.

        One decision per case: `expert` and `decision`, one value per row, an empty expert where nobody
        decided. Several: `decisions`, a table with `case_id`, `expert_id` and `decision`, whose ids are the
        `case_id` column or the index of X. Without either only the machine is learned. With `time` the
        latest cases are held out to choose between models; rows of one `group` are never split.
        """
        X, names = self._remember_columns(X)
        costs, label = self._classes(y)
        table = read_input(X, costs, names)
        _same_length("y", label, len(table))
        columns = Columns(categorical=tuple(self.categorical))
        schema = Schema.infer(table.frame, columns, {CASE, *costs.columns})
        times, groups = _series(time, len(table), "time"), _series(group, len(table), "group")
        case, who, said, when = _decisions(table, costs, expert, decision, decisions)
        weight = _weights(sample_weight)
        features = feature_frame(table, schema)
        history = History(features, label, table.amounts, times, groups, weight, case, who, said, when)
        return self._learn(history, costs, schema)

    def fit_cases(
        self, cases: Cases, decisions: Decisions | None = None, *, columns: Columns | None = None
    ) -> Self:
        """Learn from checked tables, as the command line does.

        Rows of one group are kept together by the first group column of at least 50 groups (patients, not age
        bands). `columns` is remembered to read new files.
        """
        if cases.label is None:
            raise DataError("cases have no label column; name it under [columns] label")
        costs = self._given_costs(cases.classes)
        self.classes_ = np.array(costs.classes)
        self.n_features_in_ = len(cases.schema.names)
        self.feature_names_in_ = np.array(cases.schema.names, dtype=object)
        case, who, said, when = np.zeros(0, np.int64), _NOBODY, np.zeros(0, np.int64), None
        if decisions is not None:
            case, who, said = cases.positions(decisions.case), decisions.expert, decisions.decision
            when = decisions.time
        group = splitting_group(cases)
        history = History(
            cases.features, cases.label, cases.amounts, cases.time, group, None, case, who, said, when
        )
        self.columns_ = columns or Columns()
        if decisions is not None and decisions.seconds is not None:
            each = decisions.seconds.groupby(decisions.expert.to_numpy()).median()
            self.pace_ = {str(name): 3600.0 / value for name, value in each.items() if value > 0}
        return self._learn(history, costs, cases.schema)

    def predict_proba(self, X: Any) -> Array:
        """(cases, K): the chance of each truth."""
        table = self._read(X)
        p = np.empty((len(table), len(self.classes_)))
        for part, scores in self._chunks(table, ()):
            p[part] = scores.p
        return p

    def predict_decision(self, X: Any) -> NDArray[Any]:
        """What the machine would decide: the class of least expected cost."""
        table = self._read(X)
        says = np.empty(len(table), np.int64)
        for part, scores in self._chunks(table, ()):
            says[part] = scores.says
        return np.asarray(self.classes_[says])

    def predict(self, X: Any) -> NDArray[Any]:
        """The same as `predict_decision`, as scikit-learn calls it."""
        return self.predict_decision(X)

    def expected_loss(self, X: Any, experts: Sequence[str] | None = None) -> Any:
        """Cases x makers: what it is expected to cost to let the machine, or each expert, decide.

        The same kind of frame and the same index as X. `experts` asks for other people than those learned
        from; anyone never seen is the team's average.
        """
        table = self._read(X)
        makers = [MACHINE, *(self.experts_ if experts is None else experts)]
        loss = self.scored(table, makers[1:]).loss
        return same_kind(pd.DataFrame(loss, index=table.frame.index, columns=makers), table.given)

    def transform(self, X: Any) -> Array:
        """`expected_loss` as an array; `set_output` makes it a frame."""
        table = self._read(X)
        return self.scored(table, self.experts_).loss

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """The makers: the columns of `transform`."""
        check_is_fitted(self)
        return np.array([MACHINE, *self.experts_], dtype=object)

    def assign(
        self,
        X: Any,
        capacity: Capacity | Mapping[str, int],
        batch: Any = None,
        *,
        constraints: ConstraintsTable | Mapping[str, Any] | None = None,
        time_limit: float = 60.0,
    ) -> Plan:
        """Say for every case who should decide it, within everyone's limits, at least expected cost.

        The roster may name people never seen (the team's average) and leave people out (they get nothing).
        `batch` names the batch of each case, whose limits the capacity must have; a `Cases` brings its own.
        `constraints` are wishes beside the limits, as a `[constraints]` table has them; `plan.wishes` tells
        what each costs.
        """
        table = self._read(X)
        limits = capacity if isinstance(capacity, Capacity) else Capacity.of(capacity)
        batches = X.batch if batch is None and isinstance(X, Cases) else _series(batch, len(table), "batch")
        check_batches(limits, batches)
        experts = [name for name in limits.makers if name != MACHINE]
        scored = self.scored(table, experts)
        scored = replace(scored, notes=(*roster_notes(self.experts_, limits), *scored.notes))
        pace = getattr(self, "pace_", {})
        if constraints is None:
            plan = make_plan(scored, limits, batches, pace=pace, time_limit=time_limit, seed=self.seed)
        else:
            wanted = read_constraints(constraints)
            opinions = self._opinions(table, experts) if needs_opinions(wanted) else None
            columns = all_columns(X) if isinstance(X, Cases) else table.frame
            granter = Granter(wanted, columns, scored.makers, opinions, pace, time_limit)
            plan = plan_with_wishes(granter, scored, limits, batches, self.seed)
        shown = plan.table.set_axis(table.frame.index)
        return replace(plan, table=same_kind(shown, table.given))

    def explain(self, X: Any, plan: Plan | None = None, *, case: Any = None) -> Explanation:
        """Why a case went (or would go) to whom: losses, prices, and the features behind the estimates.

        `X` holds the case; `case` names it where X holds more than one. With the `plan` its prices and its
        choice are explained, without it what would be best if everyone had room.
        """
        table = self._read(X)
        row = _row_of(table, case)
        one = replace(table, frame=table.frame.iloc[[row]], amounts=table.amounts.iloc[[row]])
        name = table.ids[row]
        chosen, prices, experts = None, {MACHINE: 0.0}, list(self.experts_)
        if plan is not None:
            chosen, prices = plan.about(name)
            experts = [maker for maker in prices if maker != MACHINE]
        found = next(scores for _, scores in self._chunks(one, experts))
        makers = [MACHINE, *experts]
        return explain_case(
            self.learned_,
            feature_frame(one, self.schema_).set_axis([name]),
            pd.Series(found.loss[0], index=makers),
            pd.Series(found.objective[0], index=makers),
            prices,
            chosen,
            found.p[0],
            self.classes_.tolist(),
        )

    def save(self, path: str | Path, key: bytes | None = None) -> None:
        """Write a model file; with `key` it is signed, so that `load` can tell where it comes from."""
        check_is_fitted(self)
        write_model_file(
            path,
            {
                "settings": _plain_settings(self.get_params(deep=False)),
                "costs": self.costs_.to_dict(),
                "classes": self.classes_.tolist(),
                "columns": self.feature_names if hasattr(self, "feature_names_in_") else None,
                "width": self.n_features_in_,
                "pace": getattr(self, "pace_", None),
                "roles": self.columns_.model_dump(mode="json") if hasattr(self, "columns_") else None,
                "learned": self.learned_.to_dict(),
            },
            schema=self.schema_.to_dict(),
            training=self.training_,
            deccaf_version=deccaf.__version__,
            key=key,
        )

    @classmethod
    def load(cls, path: str | Path, key: bytes | None = None) -> Self:
        """Read a model file, checked before anything of it is used; nothing in it is executed.

        With `key` the file must be signed with it.
        """
        found = read_model_file(path, key)
        try:
            return cls._rebuilt(found.model, found.manifest)
        except ModelFileError as error:
            raise ModelFileError(f"{path}: {error}") from error
        except Exception as error:  # content that fits its sums but makes no model
            raise ModelFileError(f"{path}: holds no usable model: {type(error).__name__}: {error}") from error

    @classmethod
    def _rebuilt(cls, data: Mapping[str, Any], manifest: Mapping[str, Any]) -> Self:
        costs = Costs.from_dict(data["costs"])
        model = cls(costs, **{name: _as_tuple(value) for name, value in data["settings"].items()})
        model._check_settings()
        model.costs_, model.classes_ = costs, np.array(data["classes"])
        model.schema_ = Schema.from_dict(manifest["schema"])
        model.learned_ = Learned.from_dict(data["learned"])
        model.experts_, model.training_ = model.learned_.experts, manifest["training"]
        model.n_features_in_ = int(data["width"])
        if data["columns"] is not None:
            model.feature_names_in_ = np.array(data["columns"], dtype=object)
        if data["roles"] is not None:
            model.columns_ = Columns(**data["roles"])
        if data["pace"] is not None:
            model.pace_ = {str(name): float(value) for name, value in data["pace"].items()}
        return model

    def scored(self, X: Any, experts: Sequence[str]) -> Scored:
        """What is believed about cases, chunk by chunk, ready for a plan."""
        table = X if isinstance(X, Input) else self._read(X)
        shape = (len(table), 1 + len(experts))
        loss, says = np.empty(shape), np.empty(len(table), np.int64)
        objective = loss if self.method == "deccaf" else np.empty(shape)
        for part, scores in self._chunks(table, experts):
            loss[part], says[part] = scores.loss, scores.says
            if objective is not loss:
                objective[part] = scores.objective
        classes = tuple(self.classes_.tolist())
        notes = tuple(self._notes(table))
        return Scored(table.ids, (MACHINE, *experts), loss, objective, says, classes, notes)

    def __sklearn_tags__(self) -> Tags:
        tags: Tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags

    def _read(self, X: Any) -> Input:
        """New cases as pandas, with every feature that the model was fitted on."""
        check_is_fitted(self)
        if isinstance(X, Input):
            return X
        if _is_array(X):
            X = validate_data(self, X, reset=False, dtype=None, ensure_all_finite=False)
        return read_input(X, self.costs_, list(self.feature_names))

    def _chunks(self, table: Input, experts: Sequence[str]) -> Iterator[tuple[slice, Scores]]:
        """Scores of as many cases at a time as memory is meant for."""
        if experts and not self.experts_:
            raise ConfigError(f"the model learned from no decisions, so nothing is known of {experts[0]!r}")
        review = self.review_costs(experts)
        rows = max(1, CELLS // max(len(experts) * len(self.classes_) ** 2, len(self.schema_.names)))
        for start in range(0, max(len(table), 1), rows):
            part = slice(start, start + rows)
            features = self.schema_.cast(table.frame.iloc[part])
            costs = self.costs_.array(table.amounts.iloc[part])
            if len(features):
                yield part, self.learned_.score(features, experts, costs, review)

    def _opinions(self, table: Input, experts: Sequence[str]) -> Opinions:
        """What everyone would say on every case, which rules for several opinions need."""
        if self.method != "deccaf" or self.learned_.decisions is None:
            raise ConfigError(
                f"constraints: reviewers and bands of fpr or fnr need method 'deccaf' and decisions to learn"
                f" from; this model has method {self.method!r} and {len(self.experts_)} experts"
            )
        features = feature_frame(table, self.schema_)
        q = self.learned_.decisions.predict(features, experts)
        p = self.learned_.classifier.predict(features)
        return Opinions.of(p, q, self.costs_.array(table.amounts), review_cost=self.review_costs(experts))

    def review_costs(self, experts: Sequence[str]) -> Array:
        """What it costs to ask each of these people."""
        if not isinstance(self.review_cost, Mapping):
            return np.full(len(experts), float(self.review_cost))
        return np.array([float(self.review_cost.get(name, 0.0)) for name in experts])

    def _notes(self, table: Input) -> list[str]:
        """Counts of what is missing or new in the features."""
        frame = table.frame
        missing = frame[self.schema_.names].isna().sum()
        missing = missing[missing > 0].sort_values(ascending=False)
        notes = []
        if len(missing):
            worst = ", ".join(f"{name} {count:,}" for name, count in missing.iloc[:3].items())
            notes.append(f"missing features: {missing.sum():,} values in {len(missing)} columns ({worst})")
        unseen = self.schema_.unseen(frame)
        if unseen:
            worst = ", ".join(f"{name} {count:,}" for name, count in list(unseen.items())[:3])
            notes.append(f"category levels never seen, taken as missing: {worst}")
        return notes

    @property
    def feature_names(self) -> list[str]:
        """The columns that X must have: features, then amounts."""
        return list(getattr(self, "feature_names_in_", default_names(self.n_features_in_)))

    def _remember_columns(self, X: Any) -> tuple[Any, list[str]]:
        """X with n_features_in_ and feature_names_in_ remembered, as scikit-learn has them."""
        self._check_settings()
        if _is_array(X):
            X = validate_data(self, X, reset=True, dtype=None, ensure_all_finite=False)
            return X, default_names(self.n_features_in_)
        names = list(as_pandas(X).columns)
        self.n_features_in_ = len(names)
        self.feature_names_in_ = np.array(names, dtype=object)
        return X, names

    def _classes(self, y: ArrayLike) -> tuple[Costs, Ints]:
        """The costs in force, and the labels as positions of classes."""
        if y is None:
            raise DataError("requires y to be passed, but the target y is None")
        values = y if isinstance(y, pd.Series) else pd.Series(np.asarray(column_or_1d(y, warn=True)))
        values = values.reset_index(drop=True).rename("y")
        if self.costs is None:
            known = values.dropna()
            if len(known) < len(values):
                raise DataError(
                    f"y: {len(values) - len(known)} label(s) are NaN; give the costs, with classes"
                )
            check_classification_targets(known)
            self.classes_ = np.unique(known.to_numpy())
            if len(self.classes_) < 2:
                raise DataError(f"y holds one class only, {show(self.classes_[0])}; at least two are needed")
            names = [name.item() if hasattr(name, "item") else name for name in self.classes_]
            if not all(isinstance(name, int | str) and not isinstance(name, bool) for name in names):
                names = list(range(len(names)))  # floats and truth values: known by their place
            costs = Costs.from_matrix((1.0 - np.eye(len(names))).tolist(), names)
            return costs, np.searchsorted(self.classes_, known.to_numpy()).astype(np.int64)
        self.classes_ = np.array(self.costs.classes)
        return self.costs, class_codes(values, self.costs.classes, values.index)

    def _given_costs(self, classes: Sequence[Any]) -> Costs:
        self._check_settings()
        if self.costs is not None:
            return self.costs
        return Costs.from_matrix((1.0 - np.eye(len(classes))).tolist(), classes)

    def _check_settings(self) -> None:
        if self.method not in METHODS:
            hint = did_you_mean(str(self.method), METHODS)
            raise ConfigError(f"method: expected one of {', '.join(METHODS)}, got {self.method!r}{hint}")
        given = self.review_cost.values() if isinstance(self.review_cost, Mapping) else [self.review_cost]
        if not all(np.isfinite(cost) and cost >= 0 for cost in given):
            raise ConfigError(f"review_cost: expected numbers from 0 on, got {self.review_cost!r}")

    def _learn(self, history: History, costs: Costs, schema: Schema) -> Self:
        settings = Settings(
            method=self.method,
            classes=len(costs.classes),
            half_life=self.half_life,
            case_parts=tuple(self.case_parts),
            decision_parts=tuple(self.decision_parts),
            budget=self.budget,
            seed=self.seed,
        )
        self.costs_, self.schema_ = costs, schema
        self.learned_: Learned = learn(history, settings, costs)
        self.experts_ = self.learned_.experts
        self.training_ = _facts(history, self.method, costs)
        return self


def splitting_group(cases: Cases) -> pd.Series | None:
    """The group column whose rows belong together: the first with many groups; None if there is none."""
    for name in cases.groups:
        if cases.groups[name].nunique() >= MANY_GROUPS:
            return cases.groups[name]
    return None


def _plain_settings(params: Mapping[str, Any]) -> dict[str, Any]:
    """Constructor arguments for a file; the costs are written on their own."""
    settings = {name: value for name, value in params.items() if name != "costs"}
    for name in ("case_parts", "decision_parts"):  # a file names the parts, whatever they were given as
        settings[name] = [part if isinstance(part, str) else part.name for part in settings[name]]
    if settings["half_life"] is not None and not isinstance(settings["half_life"], int | float):
        settings["half_life"] = str(settings["half_life"])
    return settings


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _row_of(table: Input, case: Any) -> int:
    if case is None:
        if len(table) != 1:
            raise DataError(f"explain: X holds {len(table)} cases; say which one with case=")
        return 0
    found = np.flatnonzero((table.ids == case) | (table.ids.astype(str) == str(case)))
    if not len(found):
        raise DataError(f"explain: no case of X is called {show(case)}")
    return int(found[0])


def _is_array(X: Any) -> bool:
    """Whether X has no columns by name: an array, a list, or a sparse matrix that will be refused."""
    return not hasattr(X, "columns") and not isinstance(X, Cases)


def _series(values: Any, rows: int, name: str) -> pd.Series | None:
    """One value per row as a series by position, or None."""
    if values is None:
        return None
    raw = values.to_pandas() if hasattr(values, "to_pandas") else values
    series = raw.reset_index(drop=True) if isinstance(raw, pd.Series) else pd.Series(np.asarray(raw))
    _same_length(name, series, rows)
    return series.rename(name)


def _weights(given: ArrayLike | None) -> Array | None:
    if given is None:
        return None
    weight = np.asarray(given, np.float64)
    if not weight.any():
        raise DataError(f"sample_weight: all {weight.size} weights are zero; nothing is left to learn from")
    return weight


def _same_length(name: str, values: Any, rows: int) -> None:
    if len(values) != rows:
        raise DataError(
            f"{name}: {len(values)} value(s) for {rows} rows of X, inconsistent numbers of samples"
        )


def _decisions(
    table: Input, costs: Costs, expert: Any, decision: Any, decisions: Decisions | pd.DataFrame | None
) -> tuple[Ints, pd.Series, Ints, pd.Series | None]:
    """Position of the case, expert, decision and time of every decision."""
    if (expert is None) != (decision is None) or (expert is not None and decisions is not None):
        raise ConfigError("give expert and decision, or decisions, or neither")
    if decisions is not None:
        log = decisions
        if not isinstance(log, Decisions):
            log = Decisions.from_frame(as_pandas(log), classes=costs.classes)
        found = table.ids.get_indexer(pd.Index(log.case))
        if (found < 0).any():
            first = log.case.iloc[int((found < 0).argmax())]
            raise DataError(f"decisions: {(found < 0).sum()} row(s) name no case of X, first: {show(first)}")
        return found.astype(np.int64), log.expert, log.decision, log.time
    if expert is None:
        return np.zeros(0, np.int64), _NOBODY, np.zeros(0, np.int64), None
    who, said = _series(expert, len(table), "expert"), _series(decision, len(table), "decision")
    assert who is not None
    assert said is not None
    made = np.flatnonzero(who.notna())
    who, said = who.iloc[made], said.iloc[made]
    log = Decisions.from_frame(
        pd.DataFrame({"case_id": made, "expert_id": names_of(who), "decision": said}), classes=costs.classes
    )
    return made.astype(np.int64), log.expert, log.decision, None


def _facts(history: History, method: str, costs: Costs) -> dict[str, Any]:
    """What a person wants to know of the history that a model was fitted on."""
    known = history.label >= 0
    shares = np.bincount(history.label[known], minlength=len(costs.classes)) / max(known.sum(), 1)
    facts: dict[str, Any] = {
        "method": method,
        "cases": len(history.label),
        "without_label": int((~known).sum()),
        "class_shares": {str(name): float(share) for name, share in zip(costs.classes, shares, strict=True)},
        "decisions": {
            str(name): int(count) for name, count in history.expert.value_counts().sort_index().items()
        },
        "profile": {str(name): profile(history.features[name]) for name in history.features},
    }
    if history.time is not None and len(history.time):
        facts["time"] = [_plain_time(history.time.min()), _plain_time(history.time.max())]
    return facts


def _plain_time(value: Any) -> Any:
    """A number, or a date as text."""
    return value.item() if hasattr(value, "item") else value if isinstance(value, int | float) else str(value)
