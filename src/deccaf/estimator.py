"""The estimator: learn from history how everyone decides, then plan new cases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from deccaf.data.config import Config
from deccaf.data.costs import MACHINE, Costs
from deccaf.data.decisions import Decisions
from deccaf.data.frames import as_pandas, default_names, read_input
from deccaf.data.history import History
from deccaf.data.learnable import learnable
from deccaf.data.makers import machines_of, read_makers, score_columns
from deccaf.data.schema import Columns
from deccaf.data.values import class_codes
from deccaf.errors import DataError, show
from deccaf.evaluate.audit import audit
from deccaf.evaluate.training import training_facts
from deccaf.fitted import FittedTeam, as_tuple, is_array
from deccaf.models.blending.holdout import described, holdouts
from deccaf.models.methods import Learned, Settings, learn
from deccaf.models.texts.spaces import encoded, with_spaces
from deccaf.planning.intake import stacked
from deccaf.progress import Step, silent

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


class DeCCaF(ClassifierMixin, TransformerMixin, FittedTeam, BaseEstimator):  # type: ignore[misc]
    """Learn from history how likely everyone is to be right about what; plan who decides new cases.

    Parameters
    ----------
    costs
        What errors cost; without it every error costs 1. Columns that it names hold amounts per case.
    method
        `"deccaf"` (expected cost, the default), `"paper"` (the paper's method) or `"ova"` (one model per
        expert, with the same exact plan).
    budget
        How many settings of the trees to try: `"quick"`, a few fixed ones; `"standard"`, 20 more that are
        drawn at random from the space; `"paper"`, with the methods `paper` and `ova` the searches of the
        paper's appendix (2,000 trials for each of 11 initial scores of the classifier, 120 for every model of
        the experts: hours; extra `search`), with `deccaf` 120 draws.
    review_cost
        What it costs to ask an expert: a number, the name of a column of the cases, or `{"fixed": ...,
        "column": ..., "rate": ...}`, both; one for everybody, or by name (anyone else: what `"*"` says, or
        0).
    half_life
        Age at which history counts half: a number, or a length of time where times are dates.
    categorical
        Columns of numbers that are names.
    columns
        Which column plays which part, where X has more than features (as a `[columns]` table says it).
    selective
        Decisions after which the truth is seldom seen: `"positive"` (the second of two classes), or classes.
    case_parts, decision_parts
        Which models to blend: names (`deccaf.plugins.CASE_PARTS`, `DECISION_PARTS`) or objects of your own
        (`deccaf.models.protocols`).
    makers
        Who is a machine beside `machine`, by name: `{"llm": {"kind": "machine", "price": 0.002,
        "cases_per_minute": 30, "cases_per_day": 5000}}`, as a `[makers]` table has it. Its own score, where X
        has a column `score_llm`, is a feature of its decisions alone, and may be missing in new cases.
    seed
        The same seed gives the same model and the same plans.

    Attributes
    ----------
    experts_ : everyone who was learned from, sorted
    classes_ : the classes, in the order of the costs
    costs_, schema_ : the costs in force, and the features that were seen
    columns_ : the parts that columns play in files of cases
    pace_ : decisions an hour, by expert, where the log has seconds
    training_ : facts about the history, for a file or a person
    """

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
        let_through: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Learn from one row per case: features, truth (missing: not known yet), who decided, what.

        One decision per case: `expert` and `decision`, one value per row, an empty expert where nobody
        decided. Several: `decisions`, a table with `case_id`, `expert_id` and `decision`, whose ids are the
        `case_id` column or the index of X. Without either only the machine is learned. With `time` the
        latest cases are held out to choose between models; rows of one `group` are never split.
        `let_through` holds, where labels are `selective`, the chance with which a rejected case was accepted
        by lot so that its truth was seen; missing for the others.

        Columns that are certainly leaks (the label or the decision itself, an id) are left out unless
        `columns` names them as features; they, and what looks like a leak, are said as a `DeccafWarning`.
        """
        X, names = self._remember_columns(X)
        costs, label = self._classes(y)
        roles = self.columns or Columns()
        scores = score_columns(read_makers(self.makers))
        history = History.from_arrays(
            read_input(X, costs, names, roles.case),
            label,
            costs,
            columns=self.columns if self.columns is None else self._roles(),
            categorical=tuple(self.categorical),
            scores=scores,
            expert=expert,
            decision=decision,
            decisions=decisions,
            time=time,
            group=group,
            let_through=let_through,
            weight=sample_weight,
        )
        found = audit(history, roles, self._labels())
        found.warn()
        return self._learn(found.history, costs)

    def fit_history(self, history: History, classifier: Any = None, *, step: Step = silent) -> Self:
        """Learn from a history, as the command line, the service and the backtest do.

        A `classifier` that the same method fitted on the same cases before is taken as it is. `step` hears
        what is being learned.
        """
        self._check_settings()
        costs = self.costs
        if costs is None:
            classes = history.cases.classes
            costs = Costs.from_matrix((1.0 - np.eye(len(classes))).tolist(), classes)
        self.classes_ = np.array(costs.classes)
        self.n_features_in_ = len(history.schema.names)
        self.feature_names_in_ = np.array(history.schema.names, dtype=object)
        return self._learn(history, costs, classifier, step)

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """An estimator as a configuration file describes it."""
        return cls(
            config.costs.build(),
            review_cost=config.costs.review_cost,
            makers=config.makers or None,
            columns=config.columns,
            selective=as_tuple(config.labels.selective),
            **{name: as_tuple(value) for name, value in config.model.model_dump().items()},
        )

    def predict_proba(self, X: Any) -> Array:
        """(cases, K): the chance of each truth."""
        found = [scores.p for _, scores in self._scores(self._intake(), X, ())]
        return stacked(found) if found else np.empty((0, len(self.classes_)))

    def predict_decision(self, X: Any) -> NDArray[Any]:
        """What the machine would decide: the class of least expected cost."""
        found = [scores.says for _, scores in self._scores(self._intake(), X, ())]
        return np.asarray(self.classes_[stacked(found) if found else np.zeros(0, np.int64)])

    def predict(self, X: Any) -> NDArray[Any]:
        """The same as `predict_decision`, as scikit-learn calls it."""
        return self.predict_decision(X)

    def transform(self, X: Any) -> Array:
        """`expected_loss` as an array; `set_output` makes it a frame."""
        check_is_fitted(self)
        return np.asarray(self.scored(X, self.experts_).loss)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """The makers: the columns of `transform`."""
        check_is_fitted(self)
        return np.array([MACHINE, *self.experts_], dtype=object)

    def __sklearn_tags__(self) -> Tags:
        tags: Tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags

    def _remember_columns(self, X: Any) -> tuple[Any, list[str]]:
        """X with n_features_in_ and feature_names_in_ remembered, as scikit-learn has them."""
        self._check_settings()
        if is_array(X):
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

    def _learn(self, history: History, costs: Costs, classifier: Any = None, step: Step = silent) -> Self:
        learnable(history).refuse()
        settings = Settings(
            method=self.method,
            classes=len(costs.classes),
            half_life=self.half_life,
            case_parts=tuple(self.case_parts),
            decision_parts=tuple(self.decision_parts),
            budget=self.budget,
            seed=self.seed,
            machines=tuple(machines_of(read_makers(self.makers))),
            step=step,
        )
        self.costs_, self.columns_ = costs, self._roles()
        if history.schema.wide:
            step("Reading texts and vectors")
        self.schema_ = with_spaces(history.schema, history.features, self.seed)
        ready = encoded(history, self.schema_)
        self.learned_: Learned = learn(ready, settings, costs, classifier)
        self.experts_, self.pace_ = self.learned_.experts, history.pace
        told = ready.features[self.schema_.told]
        facts = training_facts(history, self.method, costs, told) | {"held_out": self._held_out(history)}
        for feature in self.schema_.wide:
            space = self.schema_.spaces[feature.name]
            for column in set(space.told) - {space.familiar}:  # a short text is no other text
                del facts["profile"][column]
            facts["profile"][space.familiar] |= {"of": feature.name, "kind": feature.kind}
        self.training_ = facts
        return self

    def _held_out(self, history: History) -> str:
        """What chose between models, in words."""
        known = history.label >= 0
        time, group = (None if values is None else values[known] for values in (history.time, history.group))
        return described(holdouts(int(known.sum()), time=time, group=group, seed=self.seed), time, group)


def learn_from(history: History, config: Config, note: Callable[[str], None], step: Step = silent) -> DeCCaF:
    """What `deccaf fit` and a refit do: look at a history, and learn from it without certain leaks.

    `note` hears what makes the model doubtful, before anything is learned.
    """
    looked = audit(history, config.columns, config.labels)
    for fault in (*config.notes(), *looked.notes):
        note(fault)
    return DeCCaF.from_config(config).fit_history(looked.history, step=step)
