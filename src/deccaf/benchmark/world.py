"""Where the alerts of a benchmark come from: the embedded world, a file of applications, a file of alerts."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from deccaf.benchmark.profile import MonthsTable, Profile, TeamTable
from deccaf.benchmark.scene import Roster, Setting
from deccaf.benchmark.store import Found, Store
from deccaf.data.capacity import Capacity
from deccaf.data.cases import Cases
from deccaf.data.decisions import Decisions
from deccaf.data.files import about, read_frame
from deccaf.data.names import names_of
from deccaf.errors import ConfigError, DataError
from deccaf.simulate.alerts import AlertModel, AlertSets, Roc, build_alert_sets, tune_alert_model
from deccaf.simulate.applications import generate_applications
from deccaf.simulate.baf import load_baf

_ROC_POINTS = 400


@dataclass(frozen=True)
class Source:
    """Files of the user's own; with none of them everything is generated."""

    applications: Path | None = None
    alerts: Path | None = None
    decisions: Path | None = None
    capacity: Path | None = None
    """Everybody's limits in the test month, in place of the profile's capacities and workloads."""
    batches: Path | None = None
    """The batch of each test case, for a capacity with several."""

    def __post_init__(self) -> None:
        if self.applications is not None and self.alerts is not None:
            raise ConfigError("--applications and --alerts: give one of them; alerts come from applications")
        if self.batches is not None and self.capacity is None:
            raise ConfigError("--batches: are for a --capacity with several batches; give that too")

    def identity(self) -> dict[str, Any]:
        """What tells these files from others: their contents."""
        files = {
            "applications": self.applications,
            "alerts": self.alerts,
            "decisions": self.decisions,
            "capacity": self.capacity,
            "batches": self.batches,
        }
        return {name: _digest(path) for name, path in files.items() if path is not None}


def key(rate: float) -> str:
    """The folder of one alert set."""
    return f"world/rate-{rate:g}"


def build_world(store: Store, profile: Profile, source: Source, say: Callable[[str], None]) -> None:
    """Put the alerts of every alert rate into the store, those that are not there yet."""
    missing = [rate for rate in profile.grid.alert_rates if not store.done(key(rate))]
    if not missing:
        return
    if source.alerts is not None:
        frame = read_frame(source.alerts)
        if len(profile.grid.alert_rates) > 1:
            raise ConfigError(
                "--alerts: one file is one alert rate; give --alert-rates one number to name it"
            )
        store.write(key(missing[0]), Found({"source": "alerts"}, {"alerts": frame}))
        return
    say("Reading applications" if source.applications else "Generating applications")
    world = profile.world
    applications = (
        load_baf(source.applications)
        if source.applications
        else generate_applications(world.rows, seed=world.seed)
    )
    say("Training the alert model, raising alerts")
    params, found = None, {}
    if world.alert_search:
        say(f"Searching the alert model's settings: {world.alert_search} trials")
        tuned = tune_alert_model(
            applications, trials=world.alert_search, fpr=world.base_rate, seed=world.seed, jobs=1
        )
        params, found = tuned.params, {"alert_model": tuned.params, "alert_trials": len(tuned.trials)}
    model = AlertModel(params, seed=world.seed, jobs=1).fit(applications)
    for rate in missing:
        rates = sorted({min(world.base_rate, rate), rate})
        sets = build_alert_sets(applications, rates, seed=world.seed, model=model)
        store.write(key(rate), _kept(sets, rate, found))


def with_ratios(store: Store, profile: Profile) -> Profile:
    """The profile with its cost ratios as numbers: those of the threshold, once there are alerts."""
    if profile.grid.ratios != "threshold":
        return profile
    lowest = min(profile.grid.alert_rates)
    report = store.report(key(lowest))
    if "cost_ratio" not in report:
        raise ConfigError("ratios: a file of alerts has no threshold; give the ratios as numbers")
    ratio = report["cost_ratio"]
    return profile.with_grid({"ratios": [float(f"{ratio * times:.4g}") for times in (0.2, 1.0, 5.0)]})


def _kept(sets: AlertSets, rate: float, searched: Mapping[str, Any]) -> Found:
    threshold = sets.thresholds[rate]
    report = {
        "source": "applications",
        "threshold": threshold,
        "cost_ratio": sets.cost_ratio(rate),
        "at_threshold": sets.roc.at(threshold),
        "roc": _thinned(sets.roc),
        **searched,
    }
    tables = {"alerts": sets.sets[rate].reset_index(), "months": sets.months[rate].reset_index()}
    return Found(report, tables)


def given_roster(source: Source) -> Roster | None:
    """The limits that the user gave, with the batch of each case."""
    if source.capacity is None:
        return None
    batch = None
    if source.batches is not None:
        table = read_frame(source.batches)
        case = "case_id" if "case_id" in table else str(table.columns[0])
        if "batch" not in table or case == "batch":
            raise DataError(
                f"{source.batches}: expected case_id and batch, found {', '.join(map(str, table))}"
            )
        batch = pd.Series(names_of(table["batch"]).to_numpy(), pd.Index(names_of(table[case])))
    return Roster(Capacity.read(source.capacity), batch)


def settings(
    store: Store, profile: Profile, source: Source, say: Callable[[str], None]
) -> dict[float, Setting]:
    """The alerts of each rate as every piece of work gets them."""
    found: dict[float, Setting] = {}
    roster = given_roster(source)
    for rate in profile.grid.alert_rates:
        cases = Cases.from_frame(
            store.table(key(rate), "alerts"), columns=profile.columns, require=("label", "time")
        )
        _check(cases, profile)
        months = months_within(profile.months, cases.time, say if not found else lambda _: None)
        decisions = None
        if source.decisions is not None:
            with about(source.decisions):
                decisions = Decisions.from_frame(read_frame(source.decisions), cases=cases)
        team = profile.team
        if roster is not None:
            team = TeamTable.model_validate({**team.model_dump(), "size": len(roster.people), "pool": None})
        found[rate] = Setting(
            cases,
            months,
            team,
            profile.score,
            profile.world.seed,
            decisions,
            profile.model,
            roster=roster,
        )
    return found


def months_within(months: MonthsTable, time: Any, say: Callable[[str], None]) -> MonthsTable:
    """The protocol's months, moved earlier where the alerts end before the test month."""
    last = int(time.max())
    if last >= months.test:
        return months
    moved = months.shifted(months.test - last)
    say(
        f"The alerts end with month {last}: training on months {_span(moved.train)}, choosing settings on "
        f"month {moved.validation}, deciding month {moved.test} (instead of {_span(months.train)}, "
        f"{months.validation}, {months.test})"
    )
    return moved


def _check(cases: Cases, profile: Profile) -> None:
    time, score = cases.time, profile.score
    if time is None or not pd.api.types.is_integer_dtype(time.dtype):
        raise DataError(f"column {profile.columns.time!r}: must hold whole months for the benchmark")
    if score not in cases.features:
        raise DataError(f"column {score!r}: missing; name the alert model's score as `score` in the profile")


def _span(months: Sequence[int]) -> str:
    return str(months[0]) if len(months) == 1 else f"{months[0]}-{months[-1]}"


def _thinned(curve: Roc) -> dict[str, list[float]]:
    """Enough points of the curve for a picture, most of them where it is steep."""
    places = np.searchsorted(curve.fpr, np.linspace(0.0, 1.0, _ROC_POINTS) ** 2)
    places = np.unique(np.minimum(places, len(curve.fpr) - 1))
    return {"fpr": curve.fpr[places].tolist(), "tpr": curve.tpr[places].tolist()}


def _digest(path: Path) -> str:
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
