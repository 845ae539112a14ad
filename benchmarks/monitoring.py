"""Alerts in the demo's own world: none on quiet days; a shifted feature, a careless person seen the same day.

    .venv/bin/python benchmarks/monitoring.py [--worlds 5] [--days 20]

Every world has its own cases, team and model. A day brings 1,200 cases; the best plan gives 60 to each of
nine analysts, who decide as they do, and all labels are known in the evening. Cases go to those who are
expected to be right about them, so an alert that took luck in the choice for a change would come up here.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import sqlalchemy as sa
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from deccaf.data.costs import MACHINE
from deccaf.service.core import Service
from deccaf.service.demo import CAPACITY, Stage, build_stage, furnish
from deccaf.service.ledger import case_records
from deccaf.service.ledger.case_records import Arrival
from deccaf.service.ledger.labels import label
from deccaf.service.monitor.health import DAY, HealthReport
from deccaf.service.store import database
from deccaf.service.store import tables as t
from deccaf.service.store.keys import Actor
from service_world import first_key

CASES = 1_200
APPLICATIONS = 400_000
FEATURES = ("credit_risk_score", "customer_age", "name_email_similarity", "velocity_24h", "income")
PEOPLE_BAR = 0.75
"""Of analysts who toss a coin instead of erring in a quarter of 60 cases, few more differ from bad luck."""
MACHINE_ACTOR = Actor(None, "machine")


@dataclass
class Days:
    """Simulated days, written straight into the ledger: cases, one decision each, labels the same evening."""

    service: Service
    stage: Stage
    rng: np.random.Generator
    day: int = 0

    def live(self, shifted: str | None = None, careless: str | None = None) -> HealthReport:
        """One day; a `shifted` feature is one deviation larger, a `careless` person tosses a coin."""
        start = time.time() + self.day * DAY
        self.day += 1
        rows = self.rng.choice(len(self.stage.cases), CASES, replace=False)
        frame = pd.DataFrame([self.stage.cases[k] for k in rows])
        if shifted is not None:
            spread = pd.to_numeric(pd.Series([case[shifted] for case in self.stage.cases])).std()
            frame[shifted] = pd.to_numeric(frame[shifted]) + spread
        limits = dict.fromkeys(self.stage.experts, CAPACITY)
        plan = self.stage.model.assign(frame.assign(case_id=[f"d{self.day}-{k}" for k in rows]), limits).frame
        said = self.stage.decisions.iloc[rows]
        decision = [
            machine if maker == MACHINE else int(said[maker].iloc[k])
            for k, (maker, machine) in enumerate(zip(plan["maker"], plan["decision"], strict=True))
        ]
        if careless is not None:
            for k in np.flatnonzero(plan["maker"] == careless):
                decision[k] = int(self.rng.integers(0, 2))
        features = [
            json.dumps({name: _plain(value) for name, value in row.items()})
            for row in frame.to_dict("records")
        ]
        labels = [self.stage.labels[k] for k in rows]
        with database.writing(self.service.engine) as connection:
            self._enter(connection, plan, features, decision, labels, start)
        return self.service.monitor.check_now(start + DAY, since=start)

    def _enter(
        self,
        connection: sa.Connection,
        plan: pd.DataFrame,
        features: list[str],
        decision: list[int],
        labels: list[int],
        start: float,
    ) -> None:
        ids, evening = [str(case) for case in plan["case_id"]], start + 0.9 * DAY
        arrivals = [Arrival(case, text) for case, text in zip(ids, features, strict=True)]
        case_records.hold(connection, arrivals, MACHINE_ACTOR, start + 0.1 * DAY)
        pricing = connection.execute(sa.select(sa.func.max(t.pricings.c.id))).scalar_one()
        losses = json.dumps([None] * (1 + len(self.stage.experts)))
        base = {"shift_id": 1, "state": "decided", "method": "plan", "pricing_id": pricing, "losses": losses}
        rest = {"expected_loss": 0.0, "price": 0.0, "propensity": 1.0}
        times = {"created_at": evening, "changed_at": evening}
        made = zip(ids, plan["maker"], strict=True)
        connection.execute(
            sa.insert(t.assignments),
            [{"case_id": case, "maker": maker, **base, **rest, **times} for case, maker in made],
        )
        told = zip(ids, plan["maker"], decision, strict=True)
        connection.execute(
            sa.insert(t.decisions),
            [
                {"case_id": case, "maker": maker, "decision": json.dumps(int(d)), "at": evening}
                for case, maker, d in told
            ],
        )
        truths = [(case, json.dumps(y)) for case, y in zip(ids, labels, strict=True)]
        label(connection, truths, MACHINE_ACTOR, evening)


def _plain(value: Any) -> Any:
    return None if pd.isna(value) else value.item() if isinstance(value, np.generic) else value


def one_world(seed: int, days: int, folder: Path, bar: Any) -> dict[str, Any]:
    """Quiet days, then each trouble for a day of its own."""
    url = f"sqlite:///{folder}/{seed}.db"
    first_key(url)
    service, stage = Service(url, housekeeping=False), build_stage(APPLICATIONS, seed)
    furnish(service, stage)
    world = Days(service, stage, np.random.default_rng(seed))
    false, seen_features, seen_people, others = [], 0, 0, []
    for _ in range(days):
        false += [alert.finding for alert in world.live().alerts]
        bar.update()
    for name in FEATURES:
        subjects = {alert.subject for alert in world.live(shifted=name).alerts}
        seen_features += name in subjects
        bar.update()
    for name in stage.experts:
        subjects = {alert.subject for alert in world.live(careless=name).alerts}
        seen_people += name in subjects
        others += [f"{name} careless: {other}" for other in subjects - {name}]
        bar.update()
    service.engine.dispose()
    return {
        "world": seed,
        "quiet days": days,
        "alerts": len(false),
        "features shifted": len(FEATURES),
        "seen": seen_features,
        "analysts careless": len(stage.experts),
        "seen too": seen_people,
        "accused besides": len(others),
        "first": (false + others + [""])[0],
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--worlds", type=int, default=5)
    parser.add_argument("--days", type=int, default=20)
    wish = parser.parse_args()
    rows = []
    total = wish.worlds * (wish.days + len(FEATURES) + 9)
    with tempfile.TemporaryDirectory() as folder, tqdm(total=total, unit="day", disable=None) as bar:
        for seed in range(wish.worlds):
            rows.append(one_world(seed, wish.days, Path(folder), bar))
    table = pd.DataFrame(rows)
    print(table.to_string(index=False))
    people = table["seen too"].sum() / table["analysts careless"].sum()
    print(f"careless analysts seen on the very day: {people:.0%} (60 decisions each; some coins fall well)")
    good = not table["alerts"].sum() and (table["seen"] == table["features shifted"]).all()
    return 0 if good and people >= PEOPLE_BAR else 1


if __name__ == "__main__":
    sys.exit(main())
