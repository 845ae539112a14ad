"""From a description and cases to a team: choose fitting cases, encode, price the classifier, draw, solve."""

from __future__ import annotations

import numpy as np
import pandas as pd

from deccaf.data.cases import Cases
from deccaf.data.costs import Costs
from deccaf.errors import ConfigError, DataError, did_you_mean
from deccaf.simulate.seeds import Seed
from deccaf.simulate.teams.config import FeaturesTable, Group, Normal, TeamConfig
from deccaf.simulate.teams.features import TeamFeatures, truth_of
from deccaf.simulate.teams.team import SyntheticTeam


def paper_group(experts: int = 9, protected: str = "customer_age") -> Group:
    """The paper's experts: the defaults of `Group`, and a weight N(-1, 0.1) of the protected attribute."""
    return Group(experts=experts, weights={protected: Normal(mean=-1.0, deviation=0.1)})


def build_team(config: TeamConfig, cases: Cases, seed: Seed) -> SyntheticTeam:
    """The team that a `team.toml` describes, fitted on its share of the cases."""
    costs, fit = config.costs.build(), fitting_cases(config, cases)
    features = fit_features(config.features, fit)
    cost = reference_cost(config, fit, costs)
    return SyntheticTeam.sample(config.group, fit, costs, seed, features=features, classifier_cost=cost)


def fitting_cases(config: TeamConfig, cases: Cases) -> Cases:
    """The cases on which the rates are met: those of `[fit] time`, or all."""
    wanted = config.fit.time
    if wanted is None:
        return cases
    if cases.time is None:
        raise DataError(f"column {config.columns.time!r}: missing; [fit] time = {wanted!r} asks for it")
    if isinstance(wanted, str) and pd.api.types.is_datetime64_any_dtype(cases.time.dtype):
        chosen = cases.time.dt.to_period(pd.Period(wanted).freqstr) == pd.Period(wanted)
    else:
        chosen = cases.time == wanted
    if not chosen.any():
        raise DataError(
            f"[fit] time = {wanted!r}: no case has it; times go from {cases.time.min()} to {cases.time.max()}"
        )
    return cases.take(chosen.to_numpy())


def fit_features(table: FeaturesTable, fit: Cases) -> TeamFeatures:
    """The encodings that `[features]` asks for."""
    return TeamFeatures.fit(
        fit,
        score=table.score,
        score_scale=table.score_scale,
        thresholds=table.thresholds,
        binary=table.binary,
    )


def reference_cost(config: TeamConfig, fit: Cases, costs: Costs) -> float | None:
    """What the classifier costs per case: as configured, or the best threshold on the score, or unknown."""
    if config.fit.classifier_cost is not None:
        return config.fit.classifier_cost
    if config.features.score is None or len(costs.classes) != 2:
        return None
    return threshold_cost(fit, costs, config.features.score)


def threshold_cost(cases: Cases, costs: Costs, score: str = "model_score") -> float:
    """Least cost per case that a threshold on the score reaches: a stand-in for a classifier's cost.

    On the paper's alerts of month 6 it is within 2 % of a boosted classifier's cost, at every cost ratio.
    """
    if len(costs.classes) != 2:
        raise ConfigError("a threshold decides between two classes; give [fit] classifier_cost")
    if score not in cases.features:
        raise ConfigError(
            f"no column {score!r} to find a threshold on" + did_you_mean(score, cases.schema.names)
        )
    label = truth_of(cases)
    if not len(label):
        raise DataError("no cases to find a threshold on")
    prices = costs.array(cases.amounts)
    missed = np.where(label == 1, prices[:, 1, 0], 0.0)
    bothered = np.where(label == 0, prices[:, 0, 1], 0.0)
    by_score = cases.features[score].to_numpy(np.float64)
    order = np.argsort(by_score, kind="stable")
    # Cost of calling the k lowest negative and the rest positive, for k = 0 ... n.
    accepted = np.concatenate([[0.0], np.cumsum(missed[order])])
    rejected = bothered.sum() - np.concatenate([[0.0], np.cumsum(bothered[order])])
    distinct = np.concatenate([[True], np.diff(by_score[order]) > 0, [True]])  # no cut through equal scores
    return float((accepted + rejected)[distinct].min() / len(label))


def protected_groups(table: FeaturesTable, cases: Cases) -> pd.DataFrame:
    """The group of each case by each protected attribute: its level, or its side of the threshold."""
    groups = {}
    for name in table.protected:
        if name not in cases.features:
            raise ConfigError(f"[features] protected: {name!r} is not among the features")
        column = cases.features[name]
        if not pd.api.types.is_numeric_dtype(column.dtype):
            groups[name] = column.astype("str").where(column.notna(), "unknown")
            continue
        threshold = table.thresholds.get(name, float(column.median()))
        sides = np.where(column >= threshold, f"{threshold:g} and above", f"below {threshold:g}")
        groups[name] = pd.Series(sides, cases.ids).where(column.notna(), "unknown")
    return pd.DataFrame(groups, index=cases.ids)
