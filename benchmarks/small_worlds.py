"""Small desks: what deccaf saves with a short history, and what its plans believe against what comes of them.

    python benchmarks/small_worlds.py --alerts FILE [--parts 10] [--desks 6] [--ratio 0.057]

FILE are alerts of months 3 to 6 with the alert model's score (`world/rate-0.05/alerts.parquet` of a
benchmark's folder). Months 3 to 5 are cut at random into parts; each part is all that one desk has to learn
from. Every desk plans the whole of month 6 in days of 240 cases, 20 for each of nine analysts, the rest for
the machine: so the figures show what a short history costs, not what a short month hides. Teams are drawn
around the cost of the paper's classifier (one fixed setting, two initial scores), and around that of the
score's best threshold.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from deccaf.benchmark.cells import Batches, decide, outcome
from deccaf.benchmark.profile import MonthsTable, TeamTable
from deccaf.benchmark.scene import Crew, Scene, Setting
from deccaf.benchmark.search import paper_features
from deccaf.benchmark.tasks import our_settings
from deccaf.data.cases import Cases
from deccaf.data.costs import Costs
from deccaf.data.files import read_frame
from deccaf.data.history import History
from deccaf.data.schema import Columns
from deccaf.models.expected_cost import learn_cases, learn_decisions
from deccaf.models.paper.paper_classifier import QUICK, PaperClassifier
from deccaf.policies import Beliefs, Room, find

SCORE, A_DAY, EACH = "model_score", 240, 20
COLUMNS = Columns(label="fraud_bool", time="month")
SHRUNK = (0.25, 0.5, 0.75)
"""How far everybody's chances are moved towards the team's mean: do plans trust differences too far?"""


def main() -> int:
    """Print one line per desk and kind of team, and their means."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--alerts", type=Path, required=True)
    parser.add_argument("--parts", type=int, default=10)
    parser.add_argument("--desks", type=int, default=6)
    parser.add_argument("--ratio", type=float, default=0.057)
    options = parser.parse_args()
    costs = Costs.binary(options.ratio)
    found = []
    for desk, setting in enumerate(desks(read_frame(options.alerts), options.parts, options.desks)):
        for around, scene, crew, known in learned(setting, options.ratio):
            row = {"team": around, "desk": desk, **measured(known, scene, crew, costs)}
            print(
                {name: round(value, 3) if isinstance(value, float) else value for name, value in row.items()}
            )
            found.append(row)
    summary(pd.DataFrame(found))
    return 0


def desks(frame: pd.DataFrame, parts: int, wanted: int) -> Iterator[Setting]:
    """Each with a part of months 3 to 5 as its past, and all of month 6 to decide."""
    frame = frame[frame["month"].between(3, 6)]
    part = np.random.default_rng(0).integers(0, parts, len(frame))
    months = MonthsTable(train=[3, 4], validation=5, test=6)
    for desk in range(wanted):
        mine = frame[(part == desk) | (frame["month"] == 6)]
        cases = Cases.from_frame(mine, columns=COLUMNS, require=("label", "time"))
        yield Setting(cases, months, TeamTable(seed=desk), SCORE)


def learned(setting: Setting, ratio: float) -> Iterator[tuple[str, Scene, Crew, Beliefs]]:
    """What the models of a desk believe of month 6, for either kind of team."""
    scene, costs = setting.scene(), Costs.binary(ratio)
    p = learn_cases(History.of(scene.past), our_settings(setting)).predict(scene.test.features)
    features, weight = paper_features(setting, scene), costs.case_weights(scene.label)
    paper = PaperClassifier(2, candidates=QUICK[:1], offsets=(0.0, 1.0))
    says = paper.fit(features, scene.label, weight, validation=scene.held).predict(features).argmax(axis=1)
    cost = float((weight * (says != scene.label))[scene.held].mean())
    rejecting = float((weight * (scene.label == 0))[scene.held].mean())
    print(f"month 5: the paper's classifier costs {cost / rejecting:.0%} of rejecting everything")
    around = replace(setting, classifier_cost={ratio: cost})
    threshold = replace(setting, team=TeamTable(seed=setting.team.seed, around="threshold"))
    for name, one in (("classifier", around), ("threshold", threshold)):
        crew = one.crew(ratio, 0)
        q = learn_decisions(crew.log(scene), our_settings(one)).predict(
            scene.test.features, list(crew.experts)
        )
        yield name, scene, crew, Beliefs(crew.experts, costs.array(), p, q, crew.true_q)


def measured(known: Beliefs, scene: Scene, crew: Crew, costs: Costs) -> dict[str, Any]:
    """Expected cost per 100 cases by policy; of deccaf's plan what was believed, by kind of maker."""
    days = _days(len(known), len(known.experts))
    row: dict[str, Any] = {}
    for name in ("machine", "random-experts", "deccaf-blind", "deccaf", "oracle"):
        decided = decide(find(name), known, days, 0)[0]
        row[name] = outcome(decided, scene, crew, costs)["expected_cost_per_100"]
    for share in SHRUNK:
        moved = replace(known, q=_shrunk(known.q, share))
        row[f"shrunk {share:g}"] = outcome(decide(find("deccaf"), moved, days, 0)[0], scene, crew, costs)[
            "expected_cost_per_100"
        ]
    maker = decide(find("deccaf"), known, days, 0)[0].maker
    case, truth, price = np.arange(len(known)), scene.truth, costs.array()[0]
    people = (known.true_q[case, :, truth] * price[truth][:, None]).sum(axis=2)
    came = np.column_stack([price[truth, known.machine_says()], people])[case, maker]
    believed, known_people = known.loss(known.q)[case, maker], known.loss(known.true_q)[case, maker]
    row |= {"fraud": float(truth.mean()), "believed fraud": float(known.p[:, 1].mean())}
    for kind, mine in (("people", maker > 0), ("machine", maker == 0)):
        row |= {f"{kind}: cases": int(mine.sum()), f"{kind}: believed": 100 * float(believed[mine].mean())}
        if kind == "people":
            row[f"{kind}: if known"] = 100 * float(known_people[mine].mean())
        row[f"{kind}: came"] = 100 * float(came[mine].mean())
    return row


def _days(cases: int, people: int) -> Batches:
    order, found = np.random.default_rng(0).permutation(cases), []
    for start in range(0, cases, A_DAY):
        rows = np.sort(order[start : start + A_DAY])
        upper = np.array([len(rows), *[EACH] * people])
        found.append((rows, Room(np.zeros_like(upper), upper)))
    return found


def _shrunk(q: Any, share: float) -> Any:
    """Chances a share of the way to the team's mean of the same case and truth."""
    return (1 - share) * q + share * q.mean(axis=1, keepdims=True)


def summary(found: pd.DataFrame) -> None:
    """Means over the desks, and differences from random sharing with their standard errors."""
    for team, rows in found.groupby("team"):
        print(f"\nteams around the {team}, {len(rows)} desks")
        for name in rows.columns.drop(["team", "desk"]):
            print(f"{name:>20} {rows[name].mean():8.3f}")
        for name in ("deccaf", "oracle", *(f"shrunk {share:g}" for share in SHRUNK)):
            apart = rows[name] - rows["random-experts"]
            error = apart.std() / np.sqrt(len(apart))
            print(
                f"{name:>20} - random: {apart.mean():6.3f} ± {error:.3f}, less at {(apart < 0).sum()} desks"
            )


if __name__ == "__main__":
    sys.exit(main())
