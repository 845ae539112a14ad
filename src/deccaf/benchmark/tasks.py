"""What is learned in a scenario: classifiers and models of the experts; what they predict of the test month.

The paper's methods (`hem`, `ova`, their classifier) train on the training months, weighted by what errors
cost, and choose their settings on the validation month; `refit` is the same with those settings on all past
months. The classifier does not see the alert model's score; the expertise models do, as the experts do. Our
models are what `DeCCaF` learns from the same history: they choose by themselves, on the latest part of the
past, and are then fitted on all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.benchmark.kept import decision_columns, expert_columns, truth_columns
from deccaf.benchmark.scene import Crew, Scene, Setting
from deccaf.benchmark.search import paper_features
from deccaf.benchmark.store import Found
from deccaf.data.costs import Costs
from deccaf.data.history import History
from deccaf.evaluate.agreement import complementarity, outcome_shares
from deccaf.evaluate.dependence import dependence, group_of
from deccaf.evaluate.measures import ece, log_loss, roc_auc
from deccaf.models.cases.classifier import reweighted
from deccaf.models.expected_cost import learn_cases, learn_decisions
from deccaf.models.methods import Settings
from deccaf.models.paper.expertise import QUICK, HumanExpertiseModel, OneVsAll
from deccaf.models.paper.paper_classifier import PaperClassifier
from deccaf.models.paper.searching import split_offset

Array = NDArray[np.float64]
Shortlist = Sequence[Mapping[str, Any]]
_T = TypeVar("_T")
_Rows = tuple[pd.DataFrame, NDArray[np.int64], pd.Series, NDArray[np.int64]]
"""One row per decision: features, truth, expert, decision."""


class _Clock:
    """Seconds by stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def __call__(self, stage: str, work: Callable[[], _T]) -> _T:
        started = perf_counter()
        result = work()
        self.seconds[stage] = perf_counter() - started
        return result


def fit_cases(setting: Setting, share: float) -> Found:
    """Our classifier: one for every cost ratio."""
    scene, clock, classes = setting.scene(share), _Clock(), setting.cases.classes
    model = clock("classifier", lambda: learn_cases(History.of(scene.past), our_settings(setting)))
    p = model.predict(scene.test.features)
    measures = _measures(scene.truth > 0, _not_first(p), np.ones(len(p)))
    return Found(
        {"cases": len(scene.past), "plain": measures, "seconds": clock.seconds, "weights": model.weights_},
        {"predictions": pd.DataFrame(truth_columns("p", p, classes))},
    )


def our_settings(setting: Setting) -> Settings:
    """How `deccaf` learns in this benchmark."""
    return Settings(
        classes=len(setting.cases.classes),
        case_parts=setting.model.case_parts,
        decision_parts=setting.model.decision_parts,
        seed=setting.seed,
    )


def fit_paper_classifier(setting: Setting, ratio: float, share: float, shortlist: Shortlist) -> Found:
    """The paper's classifier: the best of the fixed and the searched settings, and the same fitted again."""
    scene, clock, costs = setting.scene(share), _Clock(), Costs.binary(ratio)
    features, weight = paper_features(setting, scene), costs.case_weights(scene.label)
    classes = len(costs.classes)

    def chosen() -> tuple[PaperClassifier, PaperClassifier]:
        models = [PaperClassifier(classes).fit(features, scene.label, weight, validation=scene.held)]
        for params in shortlist:
            settings, offset = split_offset(params)
            model = PaperClassifier(classes, candidates=[settings], offsets=[offset])
            models.append(model.fit(features, scene.label, weight, validation=scene.held))
        return min(models, key=lambda model: min(model.losses_)), models[0]

    model, fixed = clock("paper classifier", chosen)
    again = PaperClassifier(classes, candidates=[model.params_], offsets=[model.offset_])
    clock("paper classifier, refit", lambda: again.fit(features, scene.label, weight))
    p, refit = model.predict(scene.test.features), again.predict(scene.test.features)
    past, of_fixed = model.predict(features), fixed.predict(scene.test.features)
    held = scene.held
    label, on_held, on_test = scene.label[held], weight[held], costs.case_weights(scene.truth)
    alone = {
        "chosen": _alone(past[held], p, label, on_held),
        "fixed": _alone(fixed.predict(features[held]), of_fixed, label, on_held),
    }
    return Found(
        {
            "paper": _measures(scene.truth > 0, _not_first(p), on_test),
            "refit": _measures(scene.truth > 0, _not_first(refit), on_test),
            "validation": {
                "fixed": min(fixed.losses_),
                "chosen": min(model.losses_),
                "cost": alone["chosen"]["cost"],
            },
            "alone": {**alone, "rejecting": float((on_held * (label != classes - 1)).mean())},
            "params": {**model.params_, "offset": model.offset_},
            "seconds": clock.seconds,
        },
        {
            "predictions": pd.DataFrame(
                {
                    **truth_columns("p", p, costs.classes),
                    **truth_columns("refit", refit, costs.classes),
                    **truth_columns("fixed", of_fixed, costs.classes),
                }
            ),
            "past": pd.DataFrame(truth_columns("p", past, costs.classes)),
        },
    )


def fit_experts(
    setting: Setting, ratio: float, share: float, seed: int, shortlists: Mapping[str, Shortlist], p: Array
) -> Found:
    """All models of the experts, from one history; `p` is our classifier's P(y | x) of the test cases."""
    scene, crew, clock = setting.scene(share), setting.crew(ratio, seed), _Clock()
    costs, names, test = Costs.binary(ratio), list(crew.experts), scene.test.features
    log = crew.log(scene)
    label, held = scene.label[log.case], scene.held[log.case]
    rows: _Rows = (scene.past.features.iloc[log.case], label, log.expert, log.decision)
    classes = len(costs.classes)
    weight = costs.case_weights(label)
    hem, ova = _chosen(classes, rows, weight, held, shortlists, clock)
    again = HumanExpertiseModel(classes, candidates=[hem.params_])
    refit: HumanExpertiseModel = clock("hem, refit", lambda: again.fit(*rows, weight))
    decisions = clock("decision model", lambda: learn_decisions(log, our_settings(setting)))
    paper: dict[str, HumanExpertiseModel | OneVsAll] = {"hem": hem, "refit": refit, "ova": ova}
    correct = {name: model.predict(test, names) for name, model in paper.items()}
    q = decisions.predict(test, names)
    bent = reweighted(p, costs.case_weights(np.arange(classes)))
    right = {**correct, "deccaf": np.einsum("iy,ijyy->ij", bent, q)}
    return Found(
        {
            "experts": names,
            "decisions": len(log.case),
            "outcomes": outcome_shares(label, log.decision, costs.classes).to_dict(),
            "classifier": _measures(scene.truth > 0, _not_first(bent), costs.case_weights(scene.truth)),
            "measures": {name: _by_expert(chance, crew, scene, costs) for name, chance in right.items()},
            "validation": {
                "hem": {"fixed": min(hem.losses_[: len(QUICK)]), "chosen": min(hem.losses_)},
                "ova": _ova_losses(ova, len(QUICK)),
            },
            "params": {"hem": hem.params_, "ova": ova.params_},
            "weights": decisions.weights_,
            "seconds": clock.seconds,
        },
        {"predictions": _expert_table(correct, q, names, costs)},
    )


def fit_released(
    setting: Setting, ratio: float, share: float, seed: int, shortlists: Mapping[str, Shortlist], p: Array
) -> Found:
    """The paper's models of the experts as its released code trains them.

    There the column of the alert model's score holds the classifier's output while the models learn (`p`, of
    the past cases), and the score itself when they predict.
    """
    scene, crew, clock = setting.scene(share), setting.crew(ratio, seed), _Clock()
    costs, names = Costs.binary(ratio), list(crew.experts)
    log = crew.log(scene)
    label, held = scene.label[log.case], scene.held[log.case]
    features = scene.past.features.assign(**{setting.score: _not_first(p)})
    rows: _Rows = (features.iloc[log.case], label, log.expert, log.decision)
    hem, ova = _chosen(len(costs.classes), rows, costs.case_weights(label), held, shortlists, clock)
    paper: dict[str, HumanExpertiseModel | OneVsAll] = {"hem": hem, "ova": ova}
    correct = {name: model.predict(scene.test.features, names) for name, model in paper.items()}
    columns: dict[str, Array] = {}
    for name, chance in correct.items():
        columns |= expert_columns(name, chance, names)
    return Found(
        {
            "experts": names,
            "measures": {
                f"{name}-as-released": _by_expert(chance, crew, scene, costs)
                for name, chance in correct.items()
            },
            "seconds": {f"{stage}, as released": value for stage, value in clock.seconds.items()},
        },
        {"predictions": pd.DataFrame(columns)},
    )


def _expert_table(correct: Mapping[str, Array], q: Array, names: Sequence[str], costs: Costs) -> pd.DataFrame:
    columns = decision_columns(q, names, costs.classes)
    for model, chance in correct.items():
        columns |= expert_columns(model, chance, names)
    return pd.DataFrame(columns)


def _chosen(
    classes: int,
    rows: _Rows,
    weight: Array,
    held: NDArray[np.bool_],
    shortlists: Mapping[str, Shortlist],
    clock: _Clock,
) -> tuple[HumanExpertiseModel, OneVsAll]:
    """The paper's HEM and one-vs-all with the best of the fixed and the searched settings."""

    def candidates(kind: str) -> Shortlist:
        return [*QUICK, *shortlists.get(kind, ())]

    joint = HumanExpertiseModel(classes, candidates=candidates("hem"))
    hem: HumanExpertiseModel = clock("hem", lambda: joint.fit(*rows, weight, validation=held))
    apart = OneVsAll(classes, candidates=candidates("ova"))
    return hem, clock("ova", lambda: apart.fit(*rows, weight, validation=held))


def study_team(setting: Setting, ratio: float, seed: int, p: Array) -> Found:
    """Facts about the people of a scenario on the test month; `p` is the paper's classifier there."""
    scene, crew, costs = setting.scene(), setting.crew(ratio, seed), Costs.binary(ratio)
    truth, names = scene.truth, ["classifier", *crew.experts]
    said = pd.DataFrame(np.column_stack([p.argmax(axis=1), crew.said]), columns=names)
    wrong = said.to_numpy() != truth[:, None]
    rates = pd.DataFrame(
        {"maker": names, "fpr": wrong[truth == 0].mean(axis=0), "fnr": wrong[truth > 0].mean(axis=0)}
    )
    groups = crew.team.groups if crew.team is not None else [group_of(name) for name in crew.experts]
    tables = {
        "rates": rates.assign(group=["classifier", *groups]),
        "complementarity": complementarity(truth, said),
        "dependence": dependence(scene.test.features, truth, crew.said, crew.experts),
    }
    if crew.team is not None:
        looks = crew.team.directions[:, -1, :]
        tables["weights"] = pd.DataFrame(looks, columns=list(crew.team.features.names))
    classes = np.arange(len(costs.classes))
    at_stake = (truth[:, None] == classes).mean(axis=0) * costs.case_weights(classes)
    stakes = {"fp": float(at_stake[0]), "fn": float(at_stake[1:].sum())}
    report = {
        "experts": list(crew.experts),
        "cases": len(truth),
        "months": setting.months.model_dump(),
        "stakes": stakes,
    }
    return Found(report, tables)


def _alone(held: Array, test: Array, label: NDArray[np.int64], weight: Array) -> dict[str, float]:
    """What a classifier costs per case of the validation month if it decides alone, and the shares of the
    cases there and in the test month that it lets pass."""
    return {
        "cost": float((weight * (held.argmax(axis=1) != label)).mean()),
        "passed": float((held.argmax(axis=1) == 0).mean()),
        "passed_test": float((test.argmax(axis=1) == 0).mean()),
    }


def _not_first(p: Array) -> Array:
    """The chance of any class but the first."""
    return np.asarray(p[:, 1:].sum(axis=1))


def _measures(truth: NDArray[Any], p: Array, weight: Array) -> dict[str, float]:
    return {
        "auc": roc_auc(truth, p, weight),
        "ece": ece(truth, p, weight),
        "log_loss": log_loss(truth, p, weight),
    }


def _by_expert(chance: Array, crew: Crew, scene: Scene, costs: Costs) -> dict[str, Any]:
    """Measures of P~(right) under the reweighted distribution, expert by expert and pooled."""
    right = (crew.said == scene.truth[:, None]).astype(np.float64)
    weight = costs.case_weights(scene.truth)
    each = [_measures(right[:, j], chance[:, j], weight) for j in range(right.shape[1])]
    many = np.repeat(weight, right.shape[1])
    pooled = _measures(right.ravel(), np.clip(chance.ravel(), 0.0, 1.0), many)
    return {"each": {name: [row[name] for row in each] for name in pooled}, "pooled": pooled}


def _ova_losses(model: OneVsAll, fixed: int) -> dict[str, float]:
    """Mean over the experts of the best validation loss, of fixed settings and of all."""
    known = [losses for losses in model.losses_ if losses]
    if not known:
        return {}
    return {
        "fixed": float(np.mean([min(losses[:fixed]) for losses in known])),
        "chosen": float(np.mean([min(losses) for losses in known])),
    }
