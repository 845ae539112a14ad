"""What was tried beside the pooled logistic model: expert embeddings, other priors, per-expert calibration.

    python benchmarks/model_variants.py [--alerts FILE] [--data VIPER]

Alerts: learn from months 3-5 (settings chosen by learning from 3-4 and looking at 5), test on month 6;
expected log-loss of the decision given the truth, above that of the true probabilities. VIPER: five folds of
women, log-loss of the decision given the truth. `docs/models.md` has the figures.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, log_expit, logit

from deccaf import Cases, Columns, Costs
from deccaf.models.decisions.log import DecisionLog
from deccaf.models.decisions.pooled import PooledLogistic
from deccaf.models.linear.encoding import LinearEncoder
from deccaf.simulate.history import random_history
from deccaf.simulate.teams.build import paper_group, threshold_cost
from deccaf.simulate.teams.team import SyntheticTeam

SHARED = Path(__file__).parents[2] / "shared" / "data"
Array = NDArray[np.float64]
Fitted = Callable[[pd.DataFrame, NDArray[np.int64], NDArray[np.int64]], Array]
"""From features, truth and expert to P(decision = 1)."""


def main() -> int:
    """Print the comparison."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--alerts", type=Path, default=SHARED / "baf_alerts_months_3_to_6.parquet")
    parser.add_argument("--data", type=Path, default=SHARED / "viper_mammography")
    options = parser.parse_args()
    on_alerts(options.alerts)
    on_viper(options.data)
    return 0


def variants(log: DecisionLog, late: NDArray[np.bool_]) -> dict[str, Fitted]:
    """Every variant fitted on the whole log; `late` rows chose their settings."""
    early, validation = log.take(~late), log.take(late)
    out = {"pooled (Cauchy)": as_fitted(PooledLogistic().fit(log))}
    out["pooled (difficulty)"] = as_fitted(PooledLogistic(form="difficulty").fit(log))
    out["pooled (Gaussian)"] = as_fitted(PooledLogistic(tails=np.inf).fit(log))
    trial = as_fitted(PooledLogistic().fit(early))
    out["pooled + expert calibration"] = calibrated(trial, out["pooled (Cauchy)"], validation)
    for rank in (1, 2, 4):
        best = min((0.3, 3.0, 30.0), key=lambda s: loss_of(embeddings(early, rank, s), validation))
        out[f"embeddings, rank {rank}"] = embeddings(log, rank, best)
    return out


def as_fitted(model: PooledLogistic) -> Fitted:
    """A pooled model as a function."""
    return lambda features, truth, expert: np.exp(model.log_rows(features, truth, expert)[:, 1])


def loss_of(fitted: Fitted, log: DecisionLog) -> float:
    """Log-loss of the decisions of a log."""
    p = np.clip(fitted(log.features, log.truth, log.expert), 1e-7, 1 - 1e-7)
    return float(-np.where(log.decision == 1, np.log(p), np.log1p(-p)).mean())


def calibrated(trial: Fitted, final: Fitted, validation: DecisionLog) -> Fitted:
    """Shift each expert's log-odds, per truth, to its held-out rate shrunk to the prediction (Beta prior)."""
    p = trial(validation.features, validation.truth, validation.expert)
    cell = validation.expert * 2 + validation.truth
    size = 2 * len(validation.experts)
    n, hits, mean = (np.bincount(cell, w, minlength=size) for w in (np.ones(len(p)), validation.decision, p))
    mean = np.where(n > 0, mean / np.maximum(n, 1), 0.5)

    def shifts(strength: float, n: Array, hits: Array) -> Array:
        return logit((hits + strength * mean) / (n + strength)) - logit(mean)

    def held_out(strength: float) -> float:
        half = np.arange(len(p)) % 2 == 0
        total = 0.0
        for one, other in ((half, ~half), (~half, half)):
            counts = [
                np.bincount(cell[one], w[one], minlength=size) for w in (np.ones(len(p)), validation.decision)
            ]
            q = expit(logit(p) + shifts(strength, *counts)[cell])[other]
            total -= np.log(np.where(validation.decision[other] == 1, q, 1 - q)).sum()
        return total

    strength = min((3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 1e4), key=held_out)
    moved = shifts(strength, n, hits)
    return lambda features, truth, expert: expit(
        logit(final(features, truth, expert)) + moved[expert * 2 + truth]
    )


def embeddings(log: DecisionLog, rank: int, strength: float) -> Fitted:
    """Factor model: an expert's slopes are team + u_j V, u_j of `rank` numbers; own intercepts."""
    encoder = LinearEncoder().fit(log.features)
    x, experts = encoder.transform(log.features), len(log.experts)
    columns = x.shape[1]
    shapes = [(columns,), (experts, rank), (rank, columns), (experts, 2), (2,)]
    ends = np.cumsum([0, *(int(np.prod(shape)) for shape in shapes)])

    def split(values: Array) -> list[Array]:
        return [values[a:b].reshape(s) for a, b, s in zip(ends[:-1], ends[1:], shapes, strict=True)]

    def score(values: Array, x: Array, truth: NDArray[np.int64], expert: NDArray[np.int64]) -> Array:
        team, u, v, own, base = split(values)
        return x @ team + ((x @ v.T) * u[expert]).sum(axis=1) + own[expert, truth] + base[truth]

    def cost(values: Array) -> tuple[float, Array]:
        team, u, v, own, base = split(values)
        eta = score(values, x, log.truth, log.expert)
        error = expit(eta) - log.decision
        by_cell = np.bincount(log.expert * 2 + log.truth, error, minlength=2 * experts).reshape(experts, 2)
        pulled = error[:, None] * (x @ v.T)
        gradient = [
            x.T @ error + 0.5 * team,
            np.stack([np.bincount(log.expert, pulled[:, r], minlength=experts) for r in range(rank)], 1) + u,
            (u[log.expert] * error[:, None]).T @ x + strength * v,
            by_cell + own,
            by_cell.sum(axis=0) + 0.01 * base,
        ]
        penalty = 0.5 * (0.5 * (team**2).sum() + (u**2).sum() + strength * (v**2).sum() + (own**2).sum())
        loss = -(log_expit(np.where(log.decision == 1, eta, -eta))).sum() + penalty + 0.005 * (base**2).sum()
        return float(loss), np.concatenate([part.ravel() for part in gradient])

    start = np.random.default_rng(0).normal(0, 0.3, ends[-1])
    found = minimize(cost, start, jac=True, method="L-BFGS-B", options={"maxiter": 300}).x
    return lambda features, truth, expert: expit(score(found, encoder.transform(features), truth, expert))


def on_alerts(path: Path) -> None:
    """Teams of 9 and 50 on the alerts."""
    cases = Cases.read(path, columns=Columns(label="fraud_bool", time="month"), require=("label", "time"))
    costs, fit, past, test = (
        Costs.binary(0.057),
        cases.between(5, 6),
        cases.between(3, 6),
        cases.between(6, 7),
    )
    rows = []
    for experts in (9, 50):
        for seed in range(2):
            team = SyntheticTeam.sample(
                [paper_group(experts)], fit, costs, seed, classifier_cost=threshold_cost(fit, costs)
            )
            log = random_history(team, past, seed)
            told = DecisionLog.of(past.features, past.label, log["expert_id"], log["decision"].to_numpy())
            true = team.decision_probabilities(test)[np.arange(len(test)), :, test.label]
            for name, fitted in variants(told, (past.time == 5).to_numpy()).items():
                excess = 0.0
                for j, expert in enumerate(team.experts):
                    place = np.full(len(test), told.experts.index(expert))
                    p = np.clip(fitted(test.features, test.label, place), 1e-7, 1 - 1e-7)
                    q = np.column_stack([1 - p, p])
                    excess += (true[:, j] * (np.log(true[:, j]) - np.log(q))).sum(axis=1).mean() / experts
                rows.append({"team": f"{experts} experts", "variant": name, "excess": excess})
    table = pd.DataFrame(rows).pivot_table(index="variant", columns="team", values="excess", sort=False)
    print(
        "alerts: excess log-loss given the truth, mean of two teams\n", table.round(5).to_string(), flush=True
    )


def on_viper(folder: Path) -> None:
    """All decisions of the radiologists, five folds of women."""
    cases = Cases.read(folder / "cases.parquet", columns=Columns(group=("group",)), require=("label",))
    log = pd.read_parquet(folder / "decisions.parquet")
    at = cases.positions(log["case_id"])
    whole = DecisionLog.of(
        cases.features.iloc[at], cases.label[at], log["expert_id"], log["decision"].to_numpy()
    )
    fold = np.random.default_rng(0).permutation(10_000)[cases.groups["group"].to_numpy()[at] % 10_000] % 20
    rows = []
    for k in range(5):
        test, train = whole.take(fold % 5 == k), fold % 5 != k
        for name, fitted in variants(whole.take(train), fold[train] // 5 == 0).items():
            rows.append({"variant": name, "log-loss": loss_of(fitted, test)})
    means = pd.DataFrame(rows).groupby("variant", sort=False)["log-loss"].mean()
    print("VIPER: log-loss given the truth\n", means.round(5).to_string())


if __name__ == "__main__":
    sys.exit(main())
