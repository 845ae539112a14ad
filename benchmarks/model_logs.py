"""Decision models on dense and sparse logs, on real radiologists, and at scale.

python benchmarks/model_logs.py blend --alerts FILE    the blend against its parts, 10 to 200 experts
python benchmarks/model_logs.py viper --data FOLDER    29 radiologists (VIPER), split by woman
python benchmarks/model_logs.py hard                   simulated cases that are hard whatever their truth
python benchmarks/model_logs.py wide                   many classes and experts; many features
python benchmarks/model_logs.py scale                  pooled logistic, 1,000 experts, 1,000,000 decisions
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from deccaf import Cases, Columns, Costs
from deccaf.models.cases.classifier import CaseClassifier
from deccaf.models.decisions.log import DecisionLog
from deccaf.models.decisions.model import PARTS, DecisionModel
from deccaf.models.decisions.pooled import PooledLogistic
from deccaf.models.paper.expertise import HumanExpertiseModel, OneVsAll
from deccaf.simulate.history import random_history
from deccaf.simulate.teams.build import paper_group, threshold_cost
from deccaf.simulate.teams.team import SyntheticTeam

SHARED = Path(__file__).parents[2] / "shared" / "data"
DECISIONS, EXPERTS = (10, 30, 100, 1000), (10, 50, 200)
Array = NDArray[np.float64]


def main() -> int:
    """Run one of the tables."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("table", choices=("blend", "viper", "hard", "wide", "scale"))
    parser.add_argument("--alerts", type=Path, default=SHARED / "baf_alerts_months_3_to_6.parquet")
    parser.add_argument("--data", type=Path, default=SHARED / "viper_mammography")
    parser.add_argument("--seeds", type=int, default=4)
    options = parser.parse_args()
    if options.table == "blend":
        return blend(options.alerts, options.seeds)
    if options.table == "viper":
        return viper(options.data)
    return {"hard": hard, "wide": wide, "scale": scale}[options.table]()


def blend(path: Path, seeds: int) -> int:
    """Log-loss of the decision given the truth on month 6, expected under the true probabilities."""
    cases = Cases.read(path, columns=Columns(label="fraud_bool", time="month"), require=("label", "time"))
    costs, fit, past, test = (
        Costs.binary(0.057),
        cases.between(5, 6),
        cases.between(3, 6),
        cases.between(6, 7),
    )
    rows, worse = [], 0
    for experts in EXPERTS:
        team = SyntheticTeam.sample(
            [paper_group(experts)], fit, costs, 0, classifier_cost=threshold_cost(fit, costs)
        )
        true = team.decision_probabilities(test)
        for each in DECISIONS:
            for seed in range(seeds if each < 1000 else 1):
                rows.append({"experts": experts, "each": each, **_logged(team, past, test, true, each, seed)})
            table = pd.DataFrame(rows)
            mine = table[(table["experts"] == experts) & (table["each"] == each)].mean()
            above = mine["blend"] - mine[list(PARTS)].min()
            worse += above > 0.005
            print(
                f"{experts:4d} experts x {each:4d}",
                mine[[*PARTS, "blend", "truth"]].round(4).to_dict(),
                f"blend above its best part: {above:+.4f}",
                flush=True,
            )
    print("ok" if not worse else f"FAIL: {worse} cells where the blend is worse by more than 0.005")
    return int(worse > 0)


def _logged(
    team: SyntheticTeam, past: Cases, test: Cases, true: Array, each: int, seed: int
) -> dict[str, float]:
    """Fit on a log of `each` decisions per expert, on average."""
    wanted = each * len(team)
    per_case = -(-wanted // len(past))
    rng = np.random.default_rng(seed)
    some = past.take(np.sort(rng.choice(len(past), min(wanted // per_case, len(past)), replace=False)))
    log = random_history(team, some, seed, per_case=per_case)
    at = some.positions(log["case_id"])
    told = (some.features.iloc[at], some.label[at], log["expert_id"], log["decision"].to_numpy())
    model = DecisionModel().fit(*told, time=some.time.iloc[at], group=log["case_id"])
    out = {"blend": _loss(model, test, true, team)}
    for part in PARTS:
        out[part] = _loss(DecisionModel(parts=[part]).fit(*told, time=some.time.iloc[at]), test, true, team)
    rows = np.arange(len(test))
    of_truth = true[rows, :, test.label]
    return {**out, "truth": float(-(of_truth * np.log(of_truth)).sum(axis=-1).mean())}


def _loss(model: DecisionModel, test: Cases, true: Array, team: SyntheticTeam) -> float:
    rows, total = np.arange(len(test)), 0.0
    for part in np.array_split(np.arange(len(team)), max(1, len(team) // 10)):
        q = model.predict(test.features, [team.experts[j] for j in part])
        of_truth = true[rows[:, None], part[None, :], test.label[:, None]]
        total -= (of_truth * np.log(q[rows, :, test.label])).sum()
    return float(total / len(rows) / len(team))


def viper(folder: Path) -> int:
    """Correctness of real radiologists: five folds of women; 95 % intervals by bootstrap over women."""
    cases = Cases.read(folder / "cases.parquet", columns=Columns(group=("group",)), require=("label",))
    log = pd.read_parquet(folder / "decisions.parquet")
    women = cases.groups["group"].to_numpy()
    fold_of = dict(
        zip(np.unique(women), np.random.default_rng(0).permutation(len(np.unique(women))) % 5, strict=True)
    )
    at = cases.positions(log["case_id"])
    fold = np.array([fold_of[woman] for woman in women[at]])
    for title, single in (("one decision per training case", True), ("all decisions", False)):
        marginal, given = _viper_folds(cases, log, at, fold, single)
        print(
            f"\n{title}: correctness, marginal over p(y|x) (nobody knows the truth when a case is assigned)"
        )
        right = (log["decision"].to_numpy() == cases.label[at]).astype(float)
        _intervals(marginal, right, women[at])
        print(f"{title}: correctness given the truth")
        _intervals(given, right, women[at])
    return 0


def _viper_folds(
    cases: Cases, log: pd.DataFrame, at: NDArray[np.int64], fold: NDArray[np.int64], single: bool
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Out-of-fold P(correct) of every decision, by model: without and with knowing the truth."""
    rng = np.random.default_rng(1)
    marginal: dict[str, Array] = {}
    given: dict[str, Array] = {}
    for k in range(5):
        rows = np.flatnonzero(fold != k)
        out = np.flatnonzero(fold == k)
        seen = np.unique(at[rows])
        if single:
            order = rng.permutation(rows)
            rows = order[np.unique(at[order], return_index=True)[1]]
        _viper_fold(cases, log, at, (rows, out, seen), marginal, given)
    return marginal, given


def _viper_fold(
    cases: Cases,
    log: pd.DataFrame,
    at: NDArray[np.int64],
    split: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]],
    marginal: dict[str, Array],
    given: dict[str, Array],
) -> None:
    rows, out, seen = split
    women = cases.groups["group"]
    classifier = CaseClassifier().fit(cases.features.iloc[seen], cases.label[seen], group=women.iloc[seen])
    p = classifier.predict(cases.features.iloc[at[out]])
    who, said, truth = log["expert_id"].to_numpy(), log["decision"].to_numpy(np.int64), cases.label[at]
    told = (cases.features.iloc[at[rows]], truth[rows], who[rows], said[rows])
    new = cases.features.iloc[at[out]]

    def keep(store: dict[str, Array], name: str, values: Array) -> None:
        store.setdefault(name, np.full(len(at), np.nan))[out] = values

    right = (said[rows] == truth[rows]).astype(float)
    keep(marginal, "constant", np.full(len(out), right.mean()))
    by_truth = np.array([right[truth[rows] == y].mean() for y in (0, 1)])
    keep(given, "constant", by_truth[truth[out]])
    group = women.to_numpy()[at[rows]]
    validation = pd.factorize(group)[0] % 4 == 0
    for name, kind in (("hem", HumanExpertiseModel), ("ova", OneVsAll)):
        model = kind().fit(*told, validation=validation, refit=True)
        table = model.predict(new)
        place = np.searchsorted(model.experts_, who[out])
        keep(marginal, name, table[np.arange(len(out)), place])
    prevalence = np.bincount(truth[rows], minlength=2) / len(rows)
    for name, parts in {**{part: (part,) for part in PARTS}, "blend": PARTS}.items():
        model = DecisionModel(parts=parts).fit(*told, group=group)
        chance = np.stack(
            [model.predict_rows(new, np.full(len(out), y), who[out])[:, y] for y in (0, 1)], axis=1
        )
        keep(marginal, name, (p * chance).sum(axis=1))
        keep(given, name, chance[np.arange(len(out)), truth[out]])
        if name == "rates":
            keep(marginal, "rates, no features", chance @ prevalence)


def _intervals(chances: dict[str, Array], right: Array, women: NDArray[np.int64], draws: int = 200) -> None:
    rng, groups = np.random.default_rng(2), pd.Series(np.arange(len(women))).groupby(women).indices
    names = list(groups)
    samples = [
        np.concatenate([groups[names[g]] for g in rng.integers(len(names), size=len(names))])
        for _ in range(draws)
    ]
    for name, chance in chances.items():
        chance = np.clip(chance, 1e-6, 1 - 1e-6)
        loss = -np.where(right == 1, np.log(chance), np.log1p(-chance))
        drawn = np.array([(loss[s].mean(), roc_auc_score(right[s], chance[s])) for s in samples])
        low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
        print(
            f"  {name:20s} log-loss {loss.mean():.4f} [{low[0]:.4f}, {high[0]:.4f}]"
            f"   AUC {roc_auc_score(right, chance):.4f} [{low[1]:.4f}, {high[1]:.4f}]",
            flush=True,
        )


def hard(experts: int = 20) -> int:
    """Features that make cases hard for everybody: expected log-loss above that of the true chances."""
    worse = 0
    for decisions in (1_000, 5_000, 20_000):
        rng = np.random.default_rng(decisions)
        features = pd.DataFrame(rng.normal(size=(2 * decisions, 8)), columns=[f"f{k}" for k in range(8)])
        truth = (rng.random(2 * decisions) < 0.3).astype(np.int64)
        who, skill = rng.integers(0, experts, 2 * decisions), rng.normal(1.5, 0.5, experts)
        lean = 0.5 * features["f1"] * (2 * truth - 1)  # some features still move what is said
        right = 1 / (1 + np.exp(-(skill[who] - 1.2 * features["f0"] + lean).to_numpy()))
        said = np.where(rng.random(2 * decisions) < right, truth, 1 - truth)
        names, past = np.char.mod("e%02d", who), np.arange(2 * decisions) < decisions
        log = DecisionLog.of(features[past], truth[past], names[past], said[past])
        p = right[~past]
        floor = -(p * np.log(p) + (1 - p) * np.log1p(-p)).mean()

        def excess(log_q: Array, p: Array = p, y: Array = truth[~past], floor: float = floor) -> float:
            here = np.arange(len(p))
            return float(-(p * log_q[here, y] + (1 - p) * log_q[here, 1 - y]).mean() - floor)

        plain = PooledLogistic(form="choice").fit(log)
        found = {"choice": excess(plain.log_rows(features[~past], truth[~past], who[~past]))}
        for name, parts in {"boosted": ("boosted",), "blend": PARTS}.items():
            model = DecisionModel(parts=parts).fit(features[past], truth[past], names[past], said[past])
            found[name] = excess(np.log(model.predict_rows(features[~past], truth[~past], names[~past])))
        worse += found["blend"] > min(found["choice"], found["boosted"])
        print(
            f"{decisions:6d} decisions", {name: round(value, 4) for name, value in found.items()}, flush=True
        )
    return int(worse > 0)


def wide() -> int:
    """Decision models beyond the limit of the logistic part: seconds and peak memory."""
    slow = 0
    for classes, experts, decisions, numbers in ((10, 200, 12_000, 40), (2, 50, 6_000, 600)):
        rng = np.random.default_rng(classes)
        features = pd.DataFrame(
            rng.normal(size=(decisions, numbers)), columns=[f"v{k}" for k in range(numbers)]
        )
        truth, who = rng.integers(0, classes, decisions), rng.integers(0, experts, decisions)
        right = rng.random(decisions) < rng.beta(8, 2, experts)[who]
        said = np.where(right, truth, (truth + rng.integers(1, classes, decisions)) % classes)
        start = time.perf_counter()
        DecisionModel(classes).fit(features, truth, np.char.mod("e%03d", who), said)
        seconds = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
        print(
            f"{classes} classes, {experts} experts, {decisions:,} decisions, {numbers} numbers: "
            f"{seconds:.0f} s, peak so far {peak:.1f} GB",
            flush=True,
        )
        slow += seconds > 120
    return int(slow > 0)


def scale(experts: int = 1000, decisions: int = 1_000_000) -> int:
    """Pooled logistic at scale: seconds and peak memory."""
    rng = np.random.default_rng(0)
    columns = {f"x{k}": rng.normal(size=decisions) for k in range(25)}
    columns |= {f"c{k}": pd.Categorical(rng.choice(list("abcde"), decisions)) for k in range(4)}
    features = pd.DataFrame(columns)
    truth, who = (rng.random(decisions) < 0.2).astype(int), rng.integers(experts, size=decisions)
    weights = rng.normal(size=25) / 4 + rng.normal(size=(experts, 25)) * (rng.random((experts, 25)) < 0.3) / 3
    logit = (features.iloc[:, :25].to_numpy() * weights[who]).sum(axis=1) + np.where(truth, 1.0, -1.0)
    said = (rng.random(decisions) < 1 / (1 + np.exp(-logit))).astype(int)
    log = DecisionLog.of(features, truth, np.char.mod("e%04d", who), said)
    start = time.perf_counter()
    model = PooledLogistic().fit(log)
    seconds = time.perf_counter() - start
    found = model.posterior_.weights[:-1, : 2 * 25 : 2]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
    print(
        f"{experts} experts, {decisions:,} decisions, {model.posterior_.weights.shape[1]} columns: "
        f"{seconds:.0f} s, peak {peak:.1f} GB, shape {found.shape}"
    )
    return int(seconds > 300)


if __name__ == "__main__":
    sys.exit(main())
