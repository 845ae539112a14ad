"""Staffing: the best hours against all rosters of small teams; lessons against all lessons; the command."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from deccaf import Costs, DeCCaF
from deccaf.assign import solve
from deccaf.assign.staffing import Hours, StaffedDay, Week
from deccaf.cli.app import app
from deccaf.data.staffing import StaffingTable
from deccaf.errors import ConfigError
from deccaf.planning.scored import Scored
from deccaf.planning.staffing import past_days, staffed


def a_day(rng: np.random.Generator, people: int, cases: int = 9, weight: float = 1.0) -> StaffedDay:
    """Cases of all risks, some of them empty days; everybody is good at something."""
    losses = []
    for _ in range(2):
        risk = rng.beta(1, 3, rng.poisson(cases))
        machine = 8 * np.minimum(risk, 0.3 * (1 - risk))
        losses.append(
            np.column_stack([machine, 8 * risk[:, None] * rng.uniform(0, 0.8, (len(risk), people))])
        )
    return StaffedDay("a day", tuple(losses), weight)


@pytest.mark.parametrize("seed", range(3))
def test_no_roster_of_a_small_team_is_cheaper(seed: int) -> None:
    rng = np.random.default_rng(seed)
    days, people = 2, 2
    week = Week([a_day(rng, people, weight=1.0 + 0.3 * seed) for _ in range(days)])
    hours = Hours(
        wage=rng.uniform(0.3, 1.5, people),
        pace=np.array([3.0, 2.5]),
        most=np.full((days, people), 2.0),
        week=np.array([3.0, 4.0]),
        budget=[None, 2.5, 1.0][seed],
    )
    best = week.best(hours, precision=1e-9)
    rosters = [np.array(each, float).reshape(days, people) for each in itertools.product(range(3), repeat=4)]
    allowed = [
        roster
        for roster in rosters
        if (roster.sum(axis=0) <= hours.week).all()
        and (hours.budget is None or (roster @ hours.wage).sum() <= hours.budget)
    ]
    costs = [_cost(week, hours, roster) for roster in allowed]
    assert best.cost == pytest.approx(min(costs), abs=1e-7)
    assert best.gap <= 1e-6
    assert best.cost == pytest.approx(_cost(week, hours, best.hours))


def _cost(week: Week, hours: Hours, roster: np.ndarray) -> float:
    """Wages, and the errors of each past day by the plain solver."""
    total = float((roster @ hours.wage).sum())
    for day, given in zip(week.days, roster, strict=True):
        room = np.floor(given * hours.pace / day.weight + 1e-9)
        costs = [solve(loss, [len(loss), *room]).objective if len(loss) else 0.0 for loss in day.losses]
        total += day.weight * float(np.mean(costs))
    return total


def test_a_larger_week_is_proved_within_its_precision() -> None:
    rng = np.random.default_rng(7)
    week = Week([a_day(rng, 3, cases=25) for _ in range(2)])
    hours = Hours(np.full(3, 2.0), np.full(3, 4.0), np.full((2, 3), 4.0), np.full(3, 6.0))
    best = week.best(hours)
    assert 0 <= best.gap <= 0.003 * best.cost + 1e-9
    less = week.best(replace(hours, budget=best.wages / 2))
    assert less.wages <= best.wages / 2
    assert less.cost >= best.cost - best.gap - 1e-9


def test_hand_solved() -> None:
    """Four cases cost 10 each with the machine and 0 with ann, who does one an hour for 4: four hours pay."""
    loss = np.column_stack([np.full(4, 10.0), np.zeros(4)])
    scored = Scored(pd.RangeIndex(4), ("machine", "ann"), loss, loss, np.zeros(4, np.int64), (0, 1))
    table = StaffingTable(wage=4.0, cases=4, days=5, minutes=60)
    found = staffed(scored, table, {})
    assert (found.wages, found.errors, found.machine) == (80.0, 0.0, 200.0)
    assert found.people.loc["ann", "saves"] == pytest.approx(120.0)
    assert staffed(scored, table.model_copy(update={"wage": 11.0}), {}).wages == 0.0
    half = staffed(scored, table.model_copy(update={"budget": 40.0}), {})
    assert (half.wages, half.errors) == (40.0, 100.0)
    assert half.people.loc["ann", "next_hour"] == pytest.approx(10.0)


def test_lessons_are_the_best_of_all() -> None:
    rng = np.random.default_rng(3)
    loss = np.column_stack([np.full(40, 3.0), rng.uniform(0, 4, (40, 3))])
    kind = pd.Series(np.where(np.arange(40) % 3 == 0, "cards", "loans"))
    scored = Scored(
        pd.RangeIndex(40), ("machine", "ann", "bob", "cyd"), loss, loss, np.zeros(40, np.int64), (0, 1)
    )
    table = StaffingTable(wage=0.5, cases=40, days=1, minutes=20, hours=4)
    found = staffed(scored, table, {}, kind=kind, lessons=3)
    room = found.hours.iloc[0].to_numpy() * 3
    now = solve(loss, [40, *room]).objective
    saves = []
    for who, other in itertools.permutations(range(3), 2):
        for name in ("cards", "loans"):
            taught, rows = loss.copy(), (kind == name).to_numpy()
            taught[rows, 1 + who] = np.minimum(loss[rows, 1 + who], loss[rows, 1 + other])
            saves.append(now - solve(taught, [40, *room]).objective)
    assert found.training["saves"].tolist() == pytest.approx(sorted(saves, reverse=True)[:3])


def test_machines_have_no_hours() -> None:
    """A machine without limit decides what nobody's hours are spent on; one that is too slow is left out."""
    rng = np.random.default_rng(5)
    loss = np.column_stack([np.full(40, 3.0), rng.uniform(0, 4, (40, 4))])
    names = ("machine", "ann", "bob", "llm", "slow")
    scored = Scored(pd.RangeIndex(40), names, loss, loss, np.zeros(40, np.int64), (0, 1))
    table = StaffingTable(wage=0.5, cases=40, days=1, minutes=20, hours=4)
    found = staffed(scored, table, {}, machines={"llm": 40, "slow": 39})
    best = np.minimum(loss[:, 0], loss[:, 3])
    alone = replace(scored, makers=names[:3], loss=np.column_stack([best, loss[:, 1:3]]))
    assert found.hours.columns.tolist() == found.people.index.tolist() == ["ann", "bob"]
    assert found.cost == pytest.approx(staffed(alone, table, {}).cost)
    assert found.machine == pytest.approx(best.sum())
    assert any("slow" in note and "39" in note for note in found.notes)
    assert not any("llm" in note for note in found.notes)


def test_past_mondays_stand_for_the_next_one() -> None:
    days = pd.date_range("2026-03-02", "2026-03-29")  # four weeks from a Monday
    dates = pd.Series(np.repeat(days, [5 if day.weekday() < 5 else 0 for day in days]))
    dates = pd.concat([dates, pd.Series([pd.Timestamp("2026-03-07")])])  # one Saturday: still closed
    table = StaffingTable(wage=1.0, growth=2.0, expected={"friday": 25})
    found, times = past_days(table, len(dates), dates)
    assert times == 1
    assert [(name, len(rows), expected) for name, rows, expected in found] == [
        *[(name, 4, 10.0) for name in ("monday", "tuesday", "wednesday", "thursday")],
        ("friday", 4, 25),
    ]
    with pytest.raises(ConfigError, match="no sunday of the past 4 weeks had cases"):
        past_days(StaffingTable(wage=1.0, expected={"sunday": 3}), len(dates), dates)
    with pytest.raises(ConfigError, match="say how many cases come a day"):
        past_days(StaffingTable(wage=1.0), 10, pd.Series(np.arange(10)))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, the cases of three weeks, and a configuration."""
    folder, rng, n = tmp_path_factory.mktemp("staff"), np.random.default_rng(0), 450
    y = (rng.random(n) < 0.3).astype(int)
    X = pd.DataFrame({"amount": rng.normal(size=n) + y, "product": rng.choice(["card", "loan"], n)})
    who = rng.integers(3, size=n)
    skill = np.where((X["product"] == "card") == (who == 0), 3.0, 1.0)
    said = rng.random(n) < 1 / (1 + np.exp(-skill * (2 * y - 1)))
    model = DeCCaF(
        Costs.binary(false_positive=3.0, false_negative=10.0, unit="EUR"),
        decision_parts=("rates", "pooled"),
        case_parts=("logistic",),
    )
    people = np.array(["ann", "bob", "cyd"])
    model.fit(X, y, expert=people[who], decision=said.astype(int)).save(folder / "m.deccaf")
    days = pd.bdate_range("2026-03-02", periods=15)
    cases = X.assign(case_id=[f"c{k}" for k in range(n)], time=np.repeat(days, n // 15))
    cases.to_parquet(folder / "cases.parquet")
    (folder / "deccaf.toml").write_text(
        '[costs]\nfalse_positive = 3.0\nfalse_negative = 10.0\nunit = "EUR"\n'
        '[staffing]\nwage = { ann = 6, bob = 5 }\nhours = 4\nminutes = 12\nkind = "product"\n'
    )
    return folder


def test_the_command(world: Path) -> None:
    files = ["--model", str(world / "m.deccaf"), "--cases", str(world / "cases.parquet")]
    files += ["--config", str(world / "deccaf.toml")]
    done = CliRunner().invoke(app, ["staff", *files, "--json", "--out", str(world / "roster.csv")])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert [day["day"] for day in found["days"]] == ["monday", "tuesday", "wednesday", "thursday", "friday"]
    assert {row["expert"] for row in found["people"]} == {"ann", "bob"}
    assert found["cost"] < found["machine"]
    assert found["cost"] == pytest.approx(found["errors"] + found["wages"])
    assert {row["kind"] for row in found["training"]} <= {"card", "loan"}
    roster = pd.read_csv(world / "roster.csv")
    assert (roster["upper"] == roster["hours"] * 5).all()
    shown = CliRunner().invoke(app, ["staff", *files, "--budget", "0", "--lessons", "0"])
    assert "0.0 hours for 0.00 EUR" in shown.stdout


def test_a_machine_among_those_who_were_learned_from(world: Path) -> None:
    model, cases = DeCCaF.load(world / "m.deccaf"), pd.read_parquet(world / "cases.parquet")
    asked = {"wage": 6.0, "hours": 4, "minutes": 12}
    with_people = model.staff(cases, asked, dates=cases["time"])
    model.makers = {"cyd": {"kind": "machine", "price": 0.01}}
    found = model.staff(cases, asked, dates=cases["time"])
    assert with_people.people.index.tolist() == ["ann", "bob", "cyd"]
    assert found.people.index.tolist() == ["ann", "bob"]
    assert found.machine < with_people.machine
    with pytest.raises(ConfigError, match="'cyd' is a machine: it has a price"):
        model.staff(cases, {**asked, "wage": {"ann": 6, "cyd": 1}}, dates=cases["time"])


def test_what_is_missing_is_said(world: Path) -> None:
    files = ["--model", str(world / "m.deccaf"), "--cases", str(world / "cases.parquet"), "--config"]
    for text, said in (
        ("", "has no [staffing]"),
        ("[staffing]\nwage = { anna = 3 }\nminutes = 5", "knows nobody called 'anna'"),
        ("[staffing]\nwage = 3", "the log had no seconds"),
        ("[staffing]\nwage = -3", "from 0 on"),
        ("[staffing]\nwage = 3\nminutes = 5\nkind = 'colour'", "column 'colour'"),
    ):
        config = world / "other.toml"
        config.write_text("[costs]\nfalse_positive = 3.0\nfalse_negative = 10.0\n" + text)
        done = CliRunner().invoke(app, ["staff", *files, str(config)])
        assert done.exception is not None
        assert said in str(done.exception)
