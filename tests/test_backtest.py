"""Backtests: known outcomes and estimates, gains and no gains, and what the report says."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from deccaf import Capacity, Costs, History
from deccaf.backtest.options import Options
from deccaf.backtest.report import backtest_report, calibration_table, cost_table
from deccaf.backtest.results import Backtest
from deccaf.backtest.run import backtest, steps_of
from deccaf.backtest.split import one_each, whole_shares
from deccaf.backtest.verdict import compare
from deccaf.cli import main
from deccaf.data.config import Config
from deccaf.errors import ConfigError, DataError

COSTS = Costs.binary(1.0, 1.0)
QUICK = ("machine", "random", "deccaf-blind", "deccaf")


def team(
    n: int, *, differ: bool, per_case: int, seed: int = 0, lean: float = 0.0
) -> tuple[pd.DataFrame, pd.DataFrame, np.ndarray]:
    """Cases of two kinds and four experts; where they differ, ann and bob are seldom wrong.

    Gives cases, log, and the chance of error of every expert on every case. With `lean` the first two get
    more of the cases of kind p.
    """
    rng = np.random.default_rng(seed)
    kind = rng.integers(2, size=n)
    truth = rng.integers(2, size=n)
    cases = pd.DataFrame(
        {
            "case_id": [f"c{k}" for k in range(n)],
            "x": rng.normal(size=n) + 0.4 * truth,
            "kind": np.array(["p", "q"])[kind],
            "label": truth,
            "time": np.arange(n) * 10 // n,
            "patient": np.arange(n) // 3,
        }
    )
    error = np.tile([0.05, 0.05, 0.35, 0.35] if differ else [0.2] * 4, (n, 1))
    said = np.where(rng.random((n, 4)) < error, 1 - truth[:, None], truth[:, None])
    pull = np.exp(lean * np.where(kind[:, None] == 0, [1, 1, 0, 0], [0, 0, 1, 1]))
    share = pull / pull.sum(axis=1, keepdims=True)
    order = np.argsort(-np.log(rng.random((n, 4))) / share, axis=1)[:, :per_case]
    row, expert = np.repeat(np.arange(n), per_case), order.ravel()
    log = pd.DataFrame(
        {
            "case_id": cases["case_id"].to_numpy()[row],
            "expert_id": np.array(["ann", "bob", "cyd", "dan"])[expert],
            "decision": said[row, expert],
            "propensity": share[row, expert],
        }
    )
    return cases, log, error


def tables(
    cases: pd.DataFrame, log: pd.DataFrame, review_cost: object = 0.0, **columns: object
) -> tuple[History, Config]:
    config = Config.model_validate(
        {
            "columns": {"group": ("patient",), **columns},
            "costs": {"false_positive": 1.0, "false_negative": 1.0, "review_cost": review_cost},
        }
    )
    return History.from_frames(cases, log, config), config


@pytest.fixture(scope="module")
def gain() -> Backtest:
    """Experts who differ, three of four decide each case."""
    cases, log, _ = team(1200, differ=True, per_case=3)
    options = Options(QUICK, split="time", draws=2, capacity_share=0.6)
    return backtest(*tables(cases, log.drop(columns="propensity"), {"ann": 0.01}), options)


def test_known_outcomes_show_what_choosing_among_experts_saves(gain: Backtest) -> None:
    assert gain.known
    assert gain.test_cases == 360
    costs = gain.costs["cost"]
    assert costs["deccaf"] < costs["deccaf-blind"] < costs["machine"]
    assert costs["deccaf"] < costs["random"]
    assert gain.savings.loc["deccaf-blind", "low"] > 0
    assert "It saves" in gain.verdict.sentences[1]
    assert "Choosing among the experts" in gain.verdict.sentences[3]
    assert (gain.received["received"] <= gain.received["capacity"] + 1e-9).all()
    assert gain.received.loc[["ann", "bob"], "received"].min() > gain.received.loc["cyd", "received"]
    assert gain.plan["decision"].notna().all()
    assert 0.03 < gain.costs.loc["as it was", "cost"] / 100 - 0.16 < 0.08  # (0.05 + 0.35) / 2
    found = gain.agreement
    assert found is not None
    least, most = found.pairs.iloc[0], found.pairs.iloc[-1]
    assert {least["first"], least["second"]} == {"cyd", "dan"}
    assert {most["first"], most["second"]} == {"ann", "bob"}
    assert most["low"] < 0.81 < most["high"]  # 1 - 2 (0.05 x 0.95 x 2) on even classes
    assert np.abs(found.overall["expected"] - found.overall["value"]).max() < 0.1
    assert set(found.kinds) == {"truth"}  # patients are too many for kinds
    assert (found.meeting["at_stake"].diff().dropna() <= 0).all()


def test_the_report_has_every_section(gain: Backtest, tmp_path: Path) -> None:
    page = backtest_report(gain).write(tmp_path)
    html = page.read_text()
    for words in (
        "What it would have cost",
        "Can the chances be trusted",
        "would have received",
        "About the data",
        "Do people agree?",
        "Cases for a calibration meeting",
    ):
        assert words in html
    assert (tmp_path / "backtest-costs.png").stat().st_size > 5000
    table = cost_table(gain)
    assert table["policy"].tolist()[-1] == "deccaf"
    assert table["deccaf saves"].iloc[-1] == ""
    trust = calibration_table(gain).set_index("expert")
    assert set(trust.index) == {"ann", "bob", "cyd", "dan", "all"}


@pytest.mark.long
def test_equal_experts_give_no_gain_or_the_report_cannot_tell() -> None:
    cases, log, _ = team(600, differ=False, per_case=2, seed=3)
    given = tables(cases, log)
    found = backtest(*given, Options(QUICK, split="group", folds=2, draws=1))
    assert found.folds == 2
    assert found.test_cases == 600
    assert "rows of one 'patient' belong together" in backtest(*given, Options(QUICK, draws=1)).split
    among = found.verdict.against("deccaf-blind")
    assert among.kind == "cannot tell"
    assert among.low <= 0 <= among.high
    assert among.worth == pytest.approx(0.02 * found.costs.loc["deccaf-blind", "cost"])
    assert f"{among.more_cases:,} more test cases would tell" in found.verdict.sentences[-1]
    # the same figures exclude a gain of a tenth of the cost
    found = backtest(*given, Options(QUICK, split="group", folds=2, draws=1, worth=0.1))
    assert found.verdict.against("deccaf-blind").kind == "no gain"
    assert "No gain from choosing among the experts" in found.verdict.sentences[-1]


@pytest.mark.parametrize(
    ("saving", "effective", "kind"),
    [
        ((1.0, 0.1, 1.9), None, "gain"),
        ((1.0, 0.1, 1.9), 29.0, "cannot tell"),
        ((0.05, -0.05, 0.15), 500.0, "no gain"),
        ((0.1, 0.05, 0.15), None, "no gain"),  # a gain, but not one worth having
        ((0.3, -0.5, 1.1), 500.0, "cannot tell"),
        ((-1.0, -1.5, -0.5), None, "no gain"),
    ],
)
def test_three_verdicts(saving: tuple[float, ...], effective: float | None, kind: str) -> None:
    """The alternative costs 10, so a gain worth having is 0.2."""
    values = pd.Series(saving, ["saved", "low", "high"])
    found = compare("machine", values, 10.0, 1000, worth=0.02, effective=effective)
    assert (found.kind, found.worth) == (kind, 0.2)
    assert (found.more_cases is not None) == (kind == "cannot tell")
    if effective == 500.0 and kind == "cannot tell":  # (0.8 / 0.3)^2 times as many
        assert found.more_cases == 6200


@pytest.fixture(scope="module", params=[0.0, 1.5], ids=["random history", "other history"])
def estimated(request: pytest.FixtureRequest) -> tuple[Backtest, float, pd.DataFrame]:
    cases, log, error = team(1600, differ=True, per_case=1, seed=5, lean=request.param)
    found = backtest(*tables(cases, log, group=()), Options(QUICK, capacity_share=2.0))
    return found, request.param, pd.DataFrame(error)


def test_estimates_from_one_decision_agree_with_the_simulators_truth(
    estimated: tuple[Backtest, float, pd.DataFrame],
) -> None:
    found, lean, error = estimated
    assert not found.known
    assert found.agreement is None
    plan = found.plan
    people = (plan["maker"] != "machine").to_numpy()
    rows = plan["case_id"].str.removeprefix("c").astype(int).to_numpy()
    makers = pd.Index(["machine", "ann", "bob", "cyd", "dan"]).get_indexer(plan["maker"])
    true = error.to_numpy()[rows, np.maximum(makers - 1, 0)]
    truth = 100 * np.where(people, true, plan["cost"].astype(float)).mean()
    for name in ("deccaf", "deccaf (inverse propensity)"):
        low, high = found.costs.loc[name, ["low", "high"]]
        width = high - low
        assert low - width / 2 <= truth <= high + width / 2, name  # 4 standard errors
    notes = " ".join(found.notes)
    assert ("history was not random: propensities range" in notes) == (lean > 0)
    assert "effective cases" in notes
    assert plan.loc[people, "decision"].isna().any()
    assert plan.loc[~people, "decision"].notna().all()
    assert plan["term"].mean() == pytest.approx(found.costs.loc["deccaf", "cost"] / 100)


def test_propensities_are_estimated_where_they_were_not_kept() -> None:
    cases, log, _ = team(800, differ=True, per_case=1, seed=6, lean=2.0)
    found = backtest(*tables(cases, log.drop(columns="propensity"), group=()), Options(QUICK))
    notes = " ".join(found.notes)
    assert "estimated as a model of who got which case" in notes
    assert "history was not random: the features predict who got a case" in notes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"policies": ("machine",)}, "'deccaf' must be among them"),
        ({"policies": ("deccaf", "decaf-paper")}, "did you mean"),
        ({"capacity_share": 0.0}, "capacity share"),
        ({"test_share": 1.0}, "test share"),
    ],
)
def test_options_that_make_no_sense(options: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Options(**options)


def test_blanks_among_propensities_are_estimated_and_cases_given_by_lot_stand_beside() -> None:
    cases, log, _ = team(1200, differ=True, per_case=1, seed=8)
    log.loc[np.arange(1200) % 2 == 0, "propensity"] = np.nan
    found = backtest(*tables(cases, log, group=()), Options(QUICK))
    assert "600 propensities were not given: estimated as everybody's share of the work" in found.notes
    low, high = found.costs.loc["deccaf (cases given by lot)", ["low", "high"]]
    assert low < found.costs.loc["deccaf", "cost"] < high
    assert found.hidden.table["saved"].is_monotonic_decreasing
    assert found.hidden.undoes >= found.hidden.undoes_interval >= 1


@pytest.mark.parametrize("per_case", [1, 2])
def test_progress_says_what_is_done(per_case: int) -> None:
    cases, log, _ = team(300, differ=True, per_case=per_case)
    options, said = Options(QUICK, draws=2, split="time"), []
    given = tables(cases, log, group=())
    backtest(*given, options, said.append)
    assert len(said) == steps_of(given[0], options)
    assert any(text.startswith("Split 1 of 1: learning from") for text in said)
    assert said[-1] == "Intervals and bounds"


def test_one_drawn_of_several_decisions_has_the_chance_of_both() -> None:
    """P(got the case) x P(this decision was drawn): half where a case has two."""
    cases, log, _ = team(300, differ=True, per_case=1)
    again = log.iloc[:100].assign(
        expert_id=[
            {"ann": "bob", "bob": "cyd", "cyd": "dan", "dan": "ann"}[e] for e in log["expert_id"][:100]
        ]
    )
    history, _ = tables(cases, pd.concat([log, again]), group=())
    each, left_out = one_each(history, 0)
    assert left_out == 100
    kept = each.log.propensity.groupby(each.log.case.isin(log["case_id"][:100])).unique()
    assert (kept[True].tolist(), kept[False].tolist()) == ([0.125], [0.25])


def test_nobody_gets_a_case_from_a_time_when_they_were_away() -> None:
    cases, log, _ = team(1200, differ=True, per_case=1, seed=9)
    cases["time"] = np.arange(1200)
    away = (log["expert_id"] == "ann") & (np.arange(1200) >= 1050)
    log.loc[away, "expert_id"] = "dan"
    found = backtest(*tables(cases, log.drop(columns="propensity"), group=()), Options(QUICK))
    assert any("people came and went: of 4 between 3 and 4" in note for note in found.notes)
    given = found.plan.loc[found.plan["maker"] == "ann", "case_id"].str.removeprefix("c").astype(int)
    assert given.between(900, 1080).all()


def test_a_real_roster_in_batches() -> None:
    cases, log, _ = team(800, differ=True, per_case=1, seed=10)
    given = tables(cases, log, group=())
    roster = Capacity.of({"ann": 7, "bob": 3, "eve": 9})
    found = backtest(*given, Options(QUICK, capacity=roster, batch="time"))
    plan = found.plan.merge(cases[["case_id", "time"]], on="case_id")
    loads = plan.groupby(["time", "maker"]).size().unstack(fill_value=0)
    assert (loads[["ann", "bob"]].to_numpy() <= [7, 3]).all()
    assert set(plan["maker"]) <= {"ann", "bob", "machine"}
    assert "1 on the roster are not in the log and get nothing here" in found.notes
    assert found.received["capacity"].to_dict() == {"ann": 21, "bob": 9, "cyd": 0, "dan": 0}
    curve = found.curve.set_index("hours")
    assert curve.loc[1.0, "cost"] == found.costs.loc["deccaf", "cost"]
    assert curve.loc[0.0, "deferred"] == 0
    assert curve.loc[0.0, "cost"] == pytest.approx(found.costs.loc["machine", "cost"])
    for wrong, message in (({"batch": "tyme"}, "did you mean 'time'"), ({"batch": "day"}, "holds dates")):
        with pytest.raises(ConfigError, match=message):
            backtest(*given, Options(QUICK, **wrong))
    with pytest.raises(ConfigError, match="not both"):
        Options(capacity=roster, capacity_share=0.5)


def test_every_figure_is_computed_once(gain: Backtest) -> None:
    """Each decision counts once, whatever the draws; costs are never below 0; the curve meets the table."""
    assert len(gain.calibration) == 3 * gain.test_cases
    assert (gain.costs[["cost", "low"]] >= 0).all().all()
    usual = gain.ratios.set_index("ratio").loc[1.0]
    assert usual["saved"] == gain.verdict.comparisons[0].saved
    assert usual["moved"] == 0
    assert set(gain.ratios["ratio"].round(2)) == {0.5, 0.71, 1.0, 1.41, 2.0}
    assert "asked for" in gain.split
    trust = calibration_table(gain).set_index("expert").loc["all"]
    assert trust["decisions"] == "1,080"
    assert trust["calibration error"] in backtest_report(gain).sections[4].text


def test_histories_that_cannot_be_tested() -> None:
    cases, log, _ = team(300, differ=True, per_case=1)
    with pytest.raises(ConfigError, match="no time column"):
        backtest(*tables(cases.drop(columns="time"), log), Options(QUICK, split="time"))
    with pytest.raises(ConfigError, match="at least 50 groups"):
        backtest(*tables(cases, log, group=()), Options(QUICK, split="group"))
    with pytest.raises(DataError, match="no label column"):
        backtest(*tables(cases.drop(columns="label"), log), Options(QUICK))
    with pytest.raises(DataError, match="at least 100 decisions"):
        backtest(*tables(cases, log.iloc[:50]), Options(QUICK))


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cases, log, _ = team(400, differ=True, per_case=1, seed=7)
    cases.loc[390:, "label"] = np.nan
    cases.assign(branch=np.where(np.arange(400) % 2, "north", "south")).to_parquet(tmp_path / "cases.parquet")
    log.to_csv(tmp_path / "log.csv", index=False)
    (tmp_path / "c.toml").write_text(
        '[columns]\ngroup = ["branch"]\n[costs]\nfalse_positive = 1.0\nfalse_negative = 1.0\n'
    )
    given = ["--cases", tmp_path / "cases.parquet", "--decisions", tmp_path / "log.csv", "--config",
             tmp_path / "c.toml", "--out", tmp_path / "report", "--policies", "machine,deccaf"]  # fmt: skip
    for more, expected in ((["--split", "group"], 2), (["--json"], 0)):
        monkeypatch.setattr(sys, "argv", ["deccaf", "backtest", *map(str, given), *more])
        with pytest.raises(SystemExit) as stop:
            main()
        assert int(stop.value.code or 0) == expected
        out = capsys.readouterr().out
    found = json.loads(out)
    assert found == json.loads((tmp_path / "report" / "backtest.json").read_text())
    assert found["verdict"]["kind"] in ("gain", "no gain", "cannot tell")
    plan = pd.read_parquet(tmp_path / "report" / "plan.parquet")
    assert len(plan) == plan["case_id"].nunique() == found["test_cases"]
    assert {row["policy"] for row in found["costs"]} >= {"machine", "deccaf", "as it was"}
    assert any("10 cases without a label yet" in note for note in found["notes"])
    assert "By branch" in (tmp_path / "report" / "report.html").read_text()


@pytest.mark.parametrize(
    ("shares", "whole"),
    [([0.4, 10.5, 3.2], [0, 11, 3]), ([2.0, 3.0], [2, 3]), ([0.9, 0.2, 0.8, 0.1], [1, 0, 1, 0]), ([], [])],
)
def test_shares_of_what_people_did_keep_their_total(shares: list[float], whole: list[int]) -> None:
    found = whole_shares(np.array(shares))
    assert found.sum() == int(sum(shares))
    assert sorted(found.tolist()) == sorted(whole)
    assert (np.abs(found - shares) < 1).all()


def test_a_team_of_many_with_few_decisions_each_still_has_room() -> None:
    assert whole_shares(np.full(300, 1 / 3)).sum() == 100
