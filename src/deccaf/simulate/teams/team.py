"""Synthetic experts whose errors depend on the case, after the paper's appendix "Synthetic Experts".

With x the features and M the alert model's score as the expert sees them (`team_features`), an expert errs

    P(says 1 | truth 0, x) = sigmoid(fp_logit - sharpness * (w.x + w_M M) / |(w, w_M)|)
    P(says 0 | truth 1, x) = sigmoid(fn_logit + sharpness * (w.x + w_M M) / |(w, w_M)|)

(fp_logit, fn_logit, sharpness, feature_weights, score_weight are beta_0, beta_1, alpha, w, w_M.) This is the
case K = 2 of what the code computes: a row-stochastic confusion that depends on x,

    P(says m | truth y, x) = softmax over m of  intercept[y, m] - sharpness * w_m.x / |w_m|

where the intercept of the right decision is 0 and class 0 has no weights of its own.

Randomness is passed. Each expert draws from streams of its own name, so an expert's weights, targets and
decisions do not depend on who else is in the team; case i takes the i-th draw of a stream.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from deccaf.data.cases import Cases
from deccaf.data.costs import Class, Costs
from deccaf.data.values import Codes
from deccaf.errors import ConfigError, did_you_mean
from deccaf.simulate.seeds import Seed, root_of, stream
from deccaf.simulate.teams.config import Group
from deccaf.simulate.teams.features import Array, TeamFeatures, truth_of
from deccaf.simulate.teams.solver import solve_intercepts
from deccaf.simulate.teams.table import from_table, rate_name, to_table, wrong_pairs
from deccaf.simulate.teams.targets import Stakes, sample_expert, sample_rates

_BLOCK = 4_000_000
"""Numbers held at once while solving: 32 MB for each of a few temporary arrays."""


@dataclass(frozen=True, eq=False)
class SyntheticTeam:
    """Experts, what they look at and how they err; build it with `sample` or `from_parameters`."""

    experts: tuple[str, ...]
    groups: tuple[str, ...]
    """The group of each expert."""
    classes: tuple[Class, ...]
    features: TeamFeatures
    weights: Array
    """(experts, K - 1, features): w of each class but the first, the score's weight among them."""
    sharpness: Array
    intercepts: Array
    """(experts, K, K), 0 on the diagonal; with two classes [0, 1] is fp_logit and [1, 0] is fn_logit."""
    targets: Array
    """(experts, K, K): the error rates that were asked for, NaN where nobody asked."""
    fatigue: Array
    """Logit added to an error for each 100 cases handled before in the batch."""
    shared: Array
    """How far each expert's errors follow the difficulty that a case has for everybody (a loading, 0 to
    1)."""
    kinds: tuple[str, ...]
    """`person` or `machine`, of each expert."""

    @classmethod
    def sample(
        cls,
        groups: Sequence[Group],
        fit: Cases,
        costs: Costs,
        seed: Seed,
        *,
        features: TeamFeatures | None = None,
        classifier_cost: float | None = None,
    ) -> Self:
        """Draw a team and solve its logits, so that on the cases `fit` every expert meets its target rates.

        `features` are fitted on the same cases where not given. `classifier_cost` is what the classifier is
        expected to cost per case there: the paper's target costs are relative to it.
        """
        features = features or TeamFeatures.fit(fit, score=_default_score(fit))
        root = root_of(seed)
        members = [(_name(g, k), g) for g in groups for k in range(1, g.experts + 1)]
        drawn = [
            sample_expert(g, features, len(costs.classes), stream(root, "expert", n)) for n, g in members
        ]
        blank = np.zeros((len(members), len(costs.classes), len(costs.classes)))
        team = cls(
            experts=tuple(name for name, _ in members),
            groups=tuple(group.name for _, group in members),
            classes=costs.classes,
            features=features,
            weights=np.stack([weights for weights, _, _ in drawn]),
            sharpness=np.array([sharpness for _, sharpness, _ in drawn]),
            intercepts=blank,
            targets=blank,
            fatigue=np.array([fatigue for _, _, fatigue in drawn]),
            shared=np.array([group.shared for _, group in members]),
            kinds=tuple(group.kind for _, group in members),
        )
        if len(set(team.experts)) != len(team.experts):
            raise ConfigError("groups: two experts have one name; rename a group")
        return team._meet(groups, fit, Stakes.of(fit, costs, classifier_cost), root)

    def retarget(
        self,
        groups: Sequence[Group],
        fit: Cases,
        costs: Costs,
        seed: Seed,
        *,
        features: TeamFeatures | None = None,
        classifier_cost: float | None = None,
    ) -> Self:
        """The same people (weights, sharpness) in another scenario: other costs, fitting cases or targets.

        Encodings are fitted anew on `fit`, unless `features` are given. The same seed draws targets from the
        same places of their distributions.
        """
        if features is None:
            score, kinds = self.features.score, {e.name: e for e in self.features.encodings}
            features = TeamFeatures.fit(
                fit,
                score=score,
                score_scale="raw" if score and kinds[score].kind == "raw" else "quantile",
                thresholds={n: e.knots[0] for n, e in kinds.items() if e.kind == "binary"},
                binary=[n for n, e in kinds.items() if e.kind == "binary"],
            )
        if features.names != self.features.names or len(costs.classes) != len(self.classes):
            raise ConfigError(
                "retarget: the new scenario must have the team's features and number of classes"
            )
        team = replace(self, features=features, classes=costs.classes)
        return team._meet(groups, fit, Stakes.of(fit, costs, classifier_cost), root_of(seed))

    @classmethod
    def from_parameters(
        cls,
        table: pd.DataFrame,
        features: TeamFeatures | None = None,
        *,
        classes: Sequence[Class] = (0, 1),
    ) -> Self:
        """The team that a table of parameters describes: what `parameters` gave, or one made by hand.

        Without `features` the experts take the columns that have a weight as they are.
        """
        return cls(**from_table(table, features, tuple(classes)))

    def parameters(self) -> pd.DataFrame:
        """One row per expert with all of its parameters; `from_parameters` gives the same team back."""
        return to_table(
            self.experts,
            self.groups,
            self.classes,
            self.features,
            {part: getattr(self, part) for part in _ARRAYS},
            self.kinds,
        )

    def __len__(self) -> int:
        return len(self.experts)

    def take(self, experts: Sequence[str]) -> Self:
        """Some of the experts, in the order given; each decides as before."""
        unknown = [name for name in experts if name not in self.experts]
        if unknown:
            raise ConfigError(f"{unknown[0]!r} is not in the team" + did_you_mean(unknown[0], self.experts))
        rows = [self.experts.index(name) for name in experts]
        return replace(
            self,
            experts=tuple(experts),
            groups=tuple(self.groups[row] for row in rows),
            kinds=tuple(self.kinds[row] for row in rows),
            **{part: getattr(self, part)[rows] for part in _ARRAYS},
        )

    @property
    def machines(self) -> tuple[str, ...]:
        """Those who are machines."""
        return tuple(name for name, kind in zip(self.experts, self.kinds, strict=True) if kind == "machine")

    @cached_property
    def directions(self) -> Array:
        """(experts, K - 1, features): weights divided by their length."""
        length = np.linalg.norm(self.weights, axis=2, keepdims=True)
        # An expert without any weight is moved by nothing: the same chance of error for every case.
        return self.weights / np.where(length > 0, length, 1.0)

    def decision_probabilities(self, cases: Cases) -> Array:
        """q[i, j, y, m]: chance that expert j says m on case i if the truth is y; for `expected_loss`."""
        seen, k = self._seen(cases), len(self.classes)
        q = np.empty((len(cases), len(self), k, k))
        for j in range(len(self)):
            logits = self._logits(seen, j)
            for y in range(k):
                q[:, j, y, :] = _softmax(logits + self.intercepts[j, y][:, None]).T
        return q

    def error_probabilities(
        self, cases: Cases, truth: int | None = None, *, dtype: type[np.floating] = np.float64
    ) -> pd.DataFrame:
        """True chance of an error of every expert (columns) on every case, given its label.

        With `truth` (a position in the classes) as if that were the truth of every case. Memory is one number
        per case and expert; `dtype=np.float32` halves it.
        """
        label = truth_of(cases) if truth is None else np.full(len(cases), truth)
        seen = self._seen(cases)
        errors = np.empty((len(cases), len(self)), dtype, order="F")
        for j in range(len(self)):
            errors[:, j] = _wrong(self._given(seen, j, label), label)
        return pd.DataFrame(errors, index=cases.ids, columns=list(self.experts), copy=False)

    def decide(self, cases: Cases, seed: Seed, *, handled: ArrayLike | None = None) -> pd.DataFrame:
        """One decision of every expert on every case, as positions in `classes`.

        `handled` says how many cases of the batch each expert had done before (one number per case, or cases
        x experts); it matters only for experts with fatigue.
        """
        return next(self.judgements(cases, seed, 1, handled=handled))

    def judgements(
        self, cases: Cases, seed: Seed, times: int, *, handled: ArrayLike | None = None
    ) -> Iterator[pd.DataFrame]:
        """The same cases decided `times` times over by the same experts; the first is what `decide` gives."""
        label, seen, root = truth_of(cases), self._seen(cases), root_of(seed)
        before = None if handled is None else np.asarray(handled, np.float64)
        if before is not None:
            before = np.broadcast_to(before if before.ndim == 2 else before[:, None], (len(cases), len(self)))
        for again in range(times):
            said = np.empty((len(cases), len(self)), np.int8, order="F")
            for j in range(len(self)):
                chances = self._given(seen, j, label, None if before is None else before[:, j])
                said[:, j] = self._decided(j, chances, label, self._draws(j, root, again, len(cases)))
            yield pd.DataFrame(said, index=cases.ids, columns=list(self.experts), copy=False)

    def decide_pairs(
        self, cases: Cases, row: Codes, expert: Codes, seed: Seed, *, handled: ArrayLike | None = None
    ) -> NDArray[np.int8]:
        """Decisions for given (case, expert) positions only; without fatigue the cells of `decide`."""
        label, seen, root = truth_of(cases), self._seen(cases), root_of(seed)
        said = np.empty(len(row), np.int8)
        before = None if handled is None else np.asarray(handled, np.float64)
        for j in range(len(self)):
            here = np.flatnonzero(expert == j)
            rows = row[here]
            chances = self._given(seen[:, rows], j, label[rows], None if before is None else before[here])
            said[here] = self._decided(j, chances, label[rows], self._draws(j, root, 0, len(cases))[rows])
        return said

    def pair_errors(
        self, cases: Cases, row: Codes, expert: Codes, *, handled: ArrayLike | None = None
    ) -> Array:
        """True chance of an error for given (case, expert) positions, tired as `decide_pairs` has it."""
        label, seen = truth_of(cases), self._seen(cases)
        wrong = np.empty(len(row))
        before = None if handled is None else np.asarray(handled, np.float64)
        for j in range(len(self)):
            here = np.flatnonzero(expert == j)
            rows = row[here]
            chances = self._given(seen[:, rows], j, label[rows], None if before is None else before[here])
            wrong[here] = _wrong(chances, label[rows])
        return wrong

    def scores(self, cases: Cases, seed: Seed) -> pd.DataFrame:
        """The machines' own scores beside `decide` with the same seed: above 0 where they say the second
        class.

        Two classes only. How far a score lies from 0 tells how near the decision was.
        """
        if len(self.classes) != 2:
            raise ConfigError(f"scores: are for two classes, and the team knows {len(self.classes)}")
        label, seen, root = truth_of(cases), self._seen(cases), root_of(seed)
        found = {}
        for j, name in enumerate(self.experts):
            if self.kinds[j] != "machine":
                continue
            wrong = np.clip(_wrong(self._given(seen, j, label), label), 1e-12, 1 - 1e-12)
            right = ndtri(self._draws(j, root, 0, len(cases))) - ndtri(wrong)
            if not self.shared[j]:  # their draws are of class 1 from above, whatever the truth
                right = np.where(
                    label == 1, right, -ndtri(self._draws(j, root, 0, len(cases))) + ndtri(1 - wrong)
                )
            found[f"score_{name}"] = np.where(label == 1, right, -right)
        return pd.DataFrame(found, index=cases.ids)

    def _draws(self, j: int, root: int, again: int, cases: int) -> Array:
        """The expert's luck with each case, uniform; what the case shares with everybody in it."""
        own = stream(root, "decision", self.experts[j], again).random(cases)
        if not self.shared[j]:
            return own
        case = stream(root, "difficulty", again).standard_normal(cases)
        return np.asarray(ndtr(self.shared[j] * case + np.sqrt(1 - self.shared[j] ** 2) * ndtri(own)))

    def _decided(self, j: int, chances: Array, label: Codes, draws: Array) -> NDArray[np.int8]:
        """What an expert says; where the difficulty is shared, low draws are errors whatever the truth."""
        if not self.shared[j]:
            return _pick(chances, draws)
        wrong = chances.copy()
        wrong[label, np.arange(len(label))] = 0.0
        above = np.cumsum(wrong, axis=0) > draws
        return np.where(above.any(axis=0), above.argmax(axis=0), label).astype(np.int8)

    def rates(self, cases: Cases) -> pd.DataFrame:
        """Expected share of each wrong decision, (y, m) in the columns: fpr and fnr with two classes."""
        label, seen = truth_of(cases), self._seen(cases)
        k = len(self.classes)
        table = np.full((len(self), k, k), np.nan)
        for j in range(len(self)):
            chances = self._given(seen, j, label)
            for y in np.unique(label):
                table[j, y] = chances[:, label == y].mean(axis=1)
        columns = {rate_name(self.classes, y, m): table[:, y, m] for y, m in wrong_pairs(k)}
        return pd.DataFrame(columns, index=pd.Index(self.experts, name="expert_id"))

    def expected_cost(self, cases: Cases, costs: Costs) -> pd.Series:
        """Expected cost per case of each expert if it decided all cases, with each case's own costs."""
        label, seen = truth_of(cases), self._seen(cases)
        prices = costs.array(cases.amounts)
        of_truth = prices[np.arange(len(label)) if len(prices) > 1 else np.zeros(len(label), int), label]
        mean = [
            float((self._given(seen, j, label).T * of_truth).sum(axis=1).mean()) for j in range(len(self))
        ]
        return pd.Series(mean, index=pd.Index(self.experts, name="expert_id"), name="expected_cost")

    def _seen(self, cases: Cases) -> Array:
        """(features, cases): each feature in one piece of memory."""
        return np.ascontiguousarray(self.features.transform(cases).T)

    def _logits(self, seen: Array, j: int) -> Array:
        """(K, cases): what the case adds to the logit of each decision.

        Feature by feature, not as a matrix product: what one case means to one expert is then the same to the
        last bit, whatever cases and experts stand beside them; and most weights are 0 anyway.
        """
        logits = np.zeros((len(self.classes), seen.shape[1]))
        for m, direction in enumerate(self.directions[j], start=1):
            for f in np.flatnonzero(direction):
                logits[m] += direction[f] * seen[f]
        logits *= -self.sharpness[j]
        return logits

    def _given(self, seen: Array, j: int, label: Codes, handled: Array | None = None) -> Array:
        """(K, cases): chance of each decision of expert j, given the truth."""
        logits = self._logits(seen, j) + self.intercepts[j].T[:, label]
        if handled is not None and self.fatigue[j]:
            tired = self.fatigue[j] * handled / 100.0
            right = logits[label, np.arange(len(label))]
            logits += tired
            logits[label, np.arange(len(label))] = right
        return _softmax(logits)

    def _meet(self, groups: Sequence[Group], fit: Cases, stakes: Stakes, root: int) -> Self:
        """Draw target rates and solve the intercepts on the fitting cases, a block of experts at a time."""
        known = {group.name: group for group in groups}
        missing = [name for name in self.groups if name not in known]
        if missing:
            raise ConfigError(f"no description of group {missing[0]!r}" + did_you_mean(missing[0], known))
        pairs = zip(self.experts, self.groups, strict=True)
        drawn = [sample_rates(known[group], stakes, stream(root, "target", name)) for name, group in pairs]
        targets = np.stack(drawn)
        label, seen, k = truth_of(fit), self._seen(fit), len(self.classes)
        intercepts = np.zeros_like(targets)
        for y in range(k):
            of_truth = seen[:, label == y]
            size = max(1, _BLOCK // (k * of_truth.shape[1]))
            for start in range(0, len(self), size):
                block = slice(start, min(start + size, len(self)))
                logits = np.stack([self._logits(of_truth, j) for j in range(block.start, block.stop)])
                intercepts[block, y] = solve_intercepts(logits, y, targets[block, y])
        return replace(self, targets=targets, intercepts=intercepts)


_ARRAYS = ("weights", "sharpness", "intercepts", "targets", "fatigue", "shared")


def _name(group: Group, k: int) -> str:
    return group.name if group.kind == "machine" and group.experts == 1 else f"{group.name}_{k}"


def _default_score(fit: Cases) -> str | None:
    return "model_score" if "model_score" in fit.schema.names else None


def _softmax(logits: Array) -> Array:
    """Softmax over the first axis, in place."""
    logits -= logits.max(axis=0)
    np.exp(logits, out=logits)
    logits /= logits.sum(axis=0)
    return logits


def _wrong(chances: Array, label: Codes) -> Array:
    """The chance of any decision but the right one, added up so that a tiny one is not lost in 1 - p."""
    chances[label, np.arange(len(label))] = 0.0
    return np.asarray(chances.sum(axis=0))


def _pick(chances: Array, draws: Array) -> NDArray[np.int8]:
    """The decision whose share of [0, 1) holds the draw."""
    below = np.cumsum(chances[:-1], axis=0) <= draws
    return np.asarray(below.sum(axis=0), np.int8)
