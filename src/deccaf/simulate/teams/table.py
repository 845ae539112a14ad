"""A team's parameters as a table, and back.

With two classes the columns are `expert_id`, `group`, `sharpness`, `fatigue`, `fp_logit`, `fn_logit`,
`target_fpr`, `target_fnr`, `kind` and `shared` (of teams with machines), `score_weight` and
`weight:<feature>`. With more, `logit:<truth>><decision>`, `target:<truth>><decision>`, `score_weight:<class>`
and `weight:<class>:<feature>`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from deccaf.data.costs import MACHINE, Class
from deccaf.data.names import names_of
from deccaf.data.schema import require_columns
from deccaf.errors import DataError, show
from deccaf.simulate.teams.features import Array, TeamFeatures

SCORE = "model_score"
"""What the score is called where a table has a score weight and nobody names its column."""


def wrong_pairs(classes: int) -> list[tuple[int, int]]:
    """(truth, decision) of every kind of error."""
    return [(y, m) for y in range(classes) for m in range(classes) if y != m]


def rate_name(classes: Sequence[Class], truth: int, decision: int) -> str:
    """fpr and fnr with two classes; else 'truth>decision'."""
    if len(classes) == 2:
        return "fpr" if decision else "fnr"
    return f"{classes[truth]}>{classes[decision]}"


def logit_column(classes: Sequence[Class], truth: int, decision: int) -> str:
    """fp_logit and fn_logit with two classes."""
    name = rate_name(classes, truth, decision)
    return f"{name[:2]}_logit" if len(classes) == 2 else f"logit:{name}"


def target_column(classes: Sequence[Class], truth: int, decision: int) -> str:
    """target_fpr and target_fnr with two classes."""
    name = rate_name(classes, truth, decision)
    return f"target_{name}" if len(classes) == 2 else f"target:{name}"


def weight_column(classes: Sequence[Class], decision: int, feature: str, score: str | None) -> str:
    """Where the weight of a feature stands; with more than two classes, for the decision."""
    name = "score_weight" if feature == score else "weight"
    if len(classes) > 2:
        name += f":{classes[decision]}"
    return name if feature == score else f"{name}:{feature}"


def to_table(
    experts: Sequence[str],
    groups: Sequence[str],
    classes: Sequence[Class],
    features: TeamFeatures,
    parts: Mapping[str, Array],
    kinds: Sequence[str],
) -> pd.DataFrame:
    """One row per expert; `kind` and `shared` where anybody is a machine or shares a difficulty."""
    columns: dict[str, Any] = {"expert_id": list(experts), "group": list(groups)}
    columns["sharpness"], columns["fatigue"] = parts["sharpness"], parts["fatigue"]
    if set(kinds) - {"person"} or parts["shared"].any():
        columns["kind"], columns["shared"] = list(kinds), parts["shared"]
    pairs = wrong_pairs(len(classes))
    columns |= {logit_column(classes, y, m): parts["intercepts"][:, y, m] for y, m in pairs}
    columns |= {target_column(classes, y, m): parts["targets"][:, y, m] for y, m in pairs}
    for m in range(1, len(classes)):
        for at, feature in enumerate(features.names):
            columns[weight_column(classes, m, feature, features.score)] = parts["weights"][:, m - 1, at]
    return pd.DataFrame(columns)


def from_table(
    table: pd.DataFrame, features: TeamFeatures | None, classes: tuple[Class, ...]
) -> dict[str, Any]:
    """The parts of a `SyntheticTeam`; targets, group and fatigue may be absent."""
    require_columns(table, ["expert_id", "sharpness"])
    experts = tuple(names_of(table["expert_id"]))
    _check_names(experts)
    features = features or _features_of(table, classes)
    k = len(classes)
    intercepts, targets = np.zeros((len(table), k, k)), np.zeros((len(table), k, k))
    for y, m in wrong_pairs(k):
        intercepts[:, y, m] = _numbers(table, logit_column(classes, y, m))
        wanted = target_column(classes, y, m)
        targets[:, y, m] = table[wanted].to_numpy(np.float64) if wanted in table else np.nan
    weights = np.empty((len(table), k - 1, len(features.names)))
    for m in range(1, k):
        for at, feature in enumerate(features.names):
            weights[:, m - 1, at] = _numbers(table, weight_column(classes, m, feature, features.score))
    return {
        "experts": experts,
        "groups": tuple(map(str, table["group"])) if "group" in table else ("standard",) * len(table),
        "classes": classes,
        "features": features,
        "weights": weights,
        "sharpness": _numbers(table, "sharpness"),
        "intercepts": intercepts,
        "targets": targets,
        "fatigue": _numbers(table, "fatigue") if "fatigue" in table else np.zeros(len(table)),
        "shared": _numbers(table, "shared") if "shared" in table else np.zeros(len(table)),
        "kinds": tuple(map(str, table["kind"])) if "kind" in table else ("person",) * len(table),
    }


def _features_of(table: pd.DataFrame, classes: Sequence[Class]) -> TeamFeatures:
    prefix = weight_column(classes, 1, "", None)
    names = [str(name).removeprefix(prefix) for name in table if str(name).startswith(prefix)]
    scored = weight_column(classes, 1, SCORE, SCORE) in table
    if not names and not scored:
        raise DataError(f"column '{prefix}<feature>': no weight stands in the table of parameters")
    return TeamFeatures.of_names([*names, SCORE] if scored else names, SCORE if scored else None)


def _numbers(table: pd.DataFrame, name: str) -> Array:
    require_columns(table, [name])
    values = pd.to_numeric(table[name], errors="coerce").to_numpy(np.float64, na_value=np.nan)
    wrong = ~np.isfinite(values)
    if wrong.any():
        first = int(wrong.argmax())
        raise DataError(
            f"column {name!r}: {wrong.sum()} value(s) are no finite numbers, first: "
            f"{show(table[name].iloc[first])} for {show(table['expert_id'].iloc[first])}"
        )
    return values


def _check_names(experts: Sequence[str]) -> None:
    if MACHINE in experts:
        raise DataError(f"column 'expert_id': {MACHINE!r} is the name of the machine; rename that expert")
    twice = [name for name in experts if experts.count(name) > 1]
    if twice or not experts:
        raise DataError(
            f"column 'expert_id': {twice[0]!r} stands twice" if twice else "no experts in the table"
        )
