"""The benchmark end to end, on a world small enough to run it several times."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from deccaf.benchmark import kept, search, tasks
from deccaf.benchmark.cells import decide, group_errors, outcome
from deccaf.benchmark.cluster import cluster_of
from deccaf.benchmark.profile import MonthsTable, Profile, SearchTable, TeamTable, read_profile
from deccaf.benchmark.report import bench_report
from deccaf.benchmark.results import RESULTS, TYPES, collect
from deccaf.benchmark.run import run_benchmark
from deccaf.benchmark.scenario import Scenario, settled
from deccaf.benchmark.scene import Setting, simulated_team
from deccaf.benchmark.store import Found, Store
from deccaf.benchmark.tables import MIXED, classifiers_alone
from deccaf.benchmark.world import Source, build_world, settings, with_ratios
from deccaf.cli import app
from deccaf.data.cases import Cases
from deccaf.data.config import PartsTable
from deccaf.data.costs import Costs
from deccaf.data.schema import Columns
from deccaf.errors import ConfigError, DataError
from deccaf.models.methods import learn
from deccaf.models.paper.paper_classifier import OFFSETS
from deccaf.policies import POLICIES as POLICIES_BY_NAME
from deccaf.policies import Beliefs, Correctness, Decided, Room, policy
from deccaf.simulate import generate_applications
from deccaf.simulate.alerts import build_alert_sets

POLICIES = ["full-rejection", "only-classifier-fixed", "random", "ova", "ova-optimal", "deccaf-paper", "deccaf-paper-refit", "deccaf",
            "oracle", "oracle-without-limits", "deccaf-banded", "hem-as-released", "ova-as-released",
            "mao-two-stage-optimal", "nguyen-em", *MIXED]  # fmt: skip
SMALL = Profile.model_validate(
    {
        "world": {"rows": 30_000},
        "grid": {
            "alert_rates": [0.15],
            "ratios": [0.057],
            "seeds": [0],
            "capacities": [0, 1],
            "workloads": [
                {"name": "two-at-work", "batch": 250, "deferral_rate": 0.5, "absent": 0.34, "draws": [1]}
            ],
            "policies": POLICIES,
        },
        "search": {"classifier": 2, "expertise": 2, "shortlist": 1},
        "team": {"size": 3},
    }
)


@pytest.fixture(scope="module")
def alerts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Alerts of months 3-6 only, as the real file has them."""
    applications = generate_applications(30_000, seed=1)
    frame = build_alert_sets(applications, (0.15,), seed=1, jobs=1).sets[0.15].reset_index()
    path = tmp_path_factory.mktemp("alerts") / "alerts.parquet"
    frame[frame["month"] < 7].iloc[::4].to_parquet(path, index=False)
    return path


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pd.DataFrame]:
    """A finished run in this process."""
    folder = tmp_path_factory.mktemp("bench")
    return folder, run_benchmark(SMALL, folder)


def same(first: pd.DataFrame, second: pd.DataFrame) -> None:
    """Equal to the last bit, but for the time that it took."""
    pd.testing.assert_frame_equal(
        first.drop(columns="assign_seconds"), second.drop(columns="assign_seconds"), check_exact=True
    )


def test_the_results_have_the_fixed_columns_and_every_row_once(finished):
    folder, table = finished
    stored = pd.read_parquet(folder / RESULTS)
    assert list(stored) == list(TYPES)
    assert len(table) == 3 * len(POLICIES)
    assert not stored.duplicated(["workload", "capacity_seed", "policy"]).any()
    assert (stored[["fp", "fn", "tp", "tn"]].sum(axis=1) == stored["n"]).all()
    assert np.allclose(stored["cost_per_100"], 100 * (0.057 * stored["fp"] + stored["fn"]) / stored["n"])


def test_knowing_more_costs_less(finished):
    mean = finished[1].groupby("policy")["expected_cost_per_100"].mean()
    assert mean["oracle-without-limits"] < mean["oracle"] < mean["random"]
    assert mean["deccaf"] < mean["random"]


def test_a_workload_has_batches_absences_and_a_deferral_rate(finished):
    """Half of every batch of 250 goes to people, of whom one in three is away in all of them."""
    folder, table = finished
    key = next(key for key in Store(folder).finished("cells") if "workload" in key)
    report, n = Store(folder).report(key), int(table["n"].iloc[0])
    sizes = [250] * (n // 250) + [n % 250] * (n % 250 > 0)
    for name in ("random", "ova", "deccaf", "deccaf-banded", "oracle"):
        machine, *people = report["loads"][name]
        assert abs(machine - n / 2) <= len(sizes)
        assert sorted(people)[0] == 0 < sorted(people)[1]
    costs = table[table["workload"] == "two-at-work"].set_index("policy")["expected_cost_per_100"]
    assert costs["oracle"] < costs["random"]
    page = bench_report(folder)
    (section,) = [section for section in page.sections if section.name == "workloads"]
    assert list(section.table) == ["Policy", "the month as one batch", "two-at-work"]


def test_errors_by_group_for_every_policy(finished):
    """The whole rates are those of the groups, weighed by their sizes; the band brings them together."""
    folder, table = finished
    report = Store(folder).report("cells/rate-0.15_ratio-0.057_share-100_seed-0_capacity-0")
    for name, row in (
        table[(table["workload"] == "") & (table["capacity_seed"] == 0)].set_index("policy").iterrows()
    ):
        groups = report["groups"][name].values()
        expected = sum(0.057 * g["fpr"] * g["negatives"] + g["fnr"] * g["positives"] for g in groups)
        assert 100 * expected / row["n"] == pytest.approx(row["expected_cost_per_100"])
    assert set(report["groups"]["deccaf"]) == {"50 and above", "below 50"}
    (section,) = [section for section in bench_report(folder).sections if section.name == "groups"]
    assert set(section.table["Policy"]) == set(POLICIES)


def test_the_classifier_alone_with_searched_and_with_fixed_settings(finished):
    """What was chosen has no more log-loss than the fixed settings, whatever it costs; both are shown."""
    folder, results = finished
    alone = classifiers_alone(Store(folder)).set_index("settings")
    assert alone.loc["chosen", "loss"] <= alone.loc["fixed", "loss"]
    scene = settings(Store(folder), SMALL, Source(), lambda _: None)[0.15].scene()
    honest = (scene.label[scene.held] == 0).mean()
    assert alone["rejecting"].to_numpy() == pytest.approx(5.7 * honest)
    table = Store(folder).table("paper/rate-0.15_ratio-0.057_share-100", "predictions")
    for name, column in (("chosen", "p"), ("fixed", "fixed")):
        says = kept.read_truth(table, column, scene.test.classes).argmax(axis=1)
        assert alone.loc[name, "passed_test"] == pytest.approx((says == 0).mean())
    wrong = 100 * (np.where(scene.truth == 1, 1.0, 0.057) * (says != scene.truth)).mean()
    fixed = results[results["policy"] == "only-classifier-fixed"]["expected_cost_per_100"]
    assert fixed.to_numpy() == pytest.approx(wrong)
    (section,) = [one for one in bench_report(folder).sections if one.name == "classifier-alone"]
    assert list(section.table["settings"]) == ["fixed", "chosen"]


def test_teams_are_drawn_around_what_the_classifier_costs(finished):
    """Targets lie around the classifier's cost in the validation month, not around the threshold's."""
    folder, _ = finished
    cost = Store(folder).report("paper/rate-0.15_ratio-0.057_share-100")["validation"]["cost"]
    where = Scenario(0.15, 0.057, 1.0)
    setting = settings(Store(folder), SMALL, Source(), lambda _: None)[0.15]
    with pytest.raises(ConfigError, match="around = 'classifier'"):
        setting.crew(0.057, 0)
    assert settled(Store(folder), setting, where).classifier_cost == {0.057: cost}
    team = simulated_team(settled(Store(folder), setting, where), 0.057)
    pooled = replace(setting, team=TeamTable(size=2, pool=4, teams=3, around="threshold"))
    crews = [pooled.crew(0.057, seed) for seed in range(6)]
    assert {len(crew.experts) for crew in crews} == {2}
    assert [crew.experts for crew in crews[:3]] == [crew.experts for crew in crews[3:]]
    assert len({crew.experts for crew in crews}) > 1
    cheap = replace(settled(Store(folder), setting, where), classifier_cost={0.057: cost / 2})
    fit = setting.cases.between(6, 7)
    costs = Costs.binary(0.057)
    assert (
        simulated_team(cheap, 0.057).expected_cost(fit, costs).mean() < team.expected_cost(fit, costs).mean()
    )


def test_as_published_searches_for_every_initial_score_and_expert(tmp_path, monkeypatch):
    """The profile `paper` in small: the same pieces, ended after two trials each, and every search in two parts."""
    monkeypatch.setattr(search, "PART", 1)
    asked = read_profile("paper")
    assert asked.search.as_published
    assert asked.search.classifier == asked.search.expertise == "paper"
    few = asked.search.model_copy(update={"most": 2})
    small = SMALL.model_copy(update={"search": few})
    grid = {"policies": ["ova", "deccaf-paper"], "capacities": [0], "shares": [0.1], "workloads": []}
    small = small.with_grid(grid).with_team({"size": 2, "around": "threshold"})
    table = run_benchmark(small, tmp_path)
    searches = [key.rsplit("_", 1)[-1] for key in Store(tmp_path).finished("searches")]
    scores = [f"{offset:g}" for offset in OFFSETS]
    assert sorted(searches) == sorted(
        ["hem", "ova-0", "ova-1"]
        + [f"classifier-{s}" for s in scores]
        + [f"classifier-depth-2-{s}" for s in scores]
    )
    trials = [Store(tmp_path).report(key)["trials"] for key in Store(tmp_path).finished("searches")]
    assert set(trials) == {2}
    parts = Store(tmp_path).finished("search-parts")
    assert len(parts) == len(searches)
    assert {Store(tmp_path).report(key)["trials"] for key in parts} == {1}
    assert len(table) == 2
    assert table["expected_cost_per_100"].notna().all()
    assert "each ended after 2 trials" in bench_report(tmp_path).lead


def test_costs_of_the_decisions_that_were_drawn(finished):
    """The same page from one draw of the decisions, in place of their chances."""
    folder, table = finished
    mean = table[(table["policy"] == "deccaf") & (table["workload"] == "")]["cost_per_100"].mean()
    page = bench_report(folder, drawn=True)
    (costs,) = [section for section in page.sections if section.name == "costs"]
    (shown,) = costs.table[costs.table["Policy"] == "deccaf"].iloc[:, 2]
    assert shown.startswith(f"{mean:.2f}"[:3])
    claims = next(section for section in page.sections if section.name == "claims").table
    assert set(claims["Holds"]) <= {"yes", "no"}
    assert "5 of 6 scenarios" in set(claims["Paper"])
    chosen = next(section for section in page.sections if section.name == "chosen-settings").table
    assert chosen["model"].tolist() == ["classifier", "hem", "ova"]
    assert (chosen["max_depth"].astype(float) >= 2).all()


@pytest.mark.long
def test_ratios_of_the_alert_models_own_threshold(tmp_path):
    """A searched alert model, and lambda from its threshold: a fifth of it, itself, and five times it."""
    world = SMALL.world.model_copy(update={"rows": 20_000, "alert_search": 2})
    asked = SMALL.model_copy(update={"world": world}).with_grid({"ratios": "threshold"})
    store = Store(tmp_path)
    build_world(store, asked, Source(), lambda _: None)
    report = store.report("world/rate-0.15")
    assert report["alert_trials"] == 2
    assert set(report["alert_model"]) >= {"max_depth", "num_leaves"}
    ratios = with_ratios(store, asked).grid.cost_ratios
    assert ratios == [float(f"{report['cost_ratio'] * times:.4g}") for times in (0.2, 1.0, 5.0)]
    with pytest.raises(ConfigError, match="known once the alerts are"):
        assert asked.grid.cost_ratios
    store.write("world/rate-0.15", Found({"source": "alerts"}))
    with pytest.raises(ConfigError, match="a file of alerts has no threshold"):
        with_ratios(store, asked)


def test_a_second_run_does_nothing_again(finished):
    folder, table = finished
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("DONE")}
    heard: list[str] = []
    again = run_benchmark(SMALL, folder, progress=lambda done, total, what: heard.append(what))
    assert heard == []
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("DONE")} == before
    same(table, again)


def test_what_is_half_done_counts_for_nothing(finished, tmp_path):
    folder, table = finished
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", folder, copy], check=True)
    cell = next((copy / "cells").iterdir())
    (cell / "DONE").unlink()
    (cell / "report.json").write_text('{"outc')
    assert len(collect(Store(copy))) == len(table) - len(POLICIES)
    same(table, run_benchmark(SMALL, copy))


def test_a_policy_of_ones_own_is_added_in_other_processes_too(finished):
    @policy("test-machine-only")
    def mine(beliefs, room, seed):
        return Decided(np.zeros(len(beliefs), np.int64), beliefs.machine_says())

    try:
        more = SMALL.with_grid({"policies": [*POLICIES, "test-machine-only", "machine"]})
        found = run_benchmark(more, finished[0], jobs=2)
    finally:
        del POLICIES_BY_NAME["test-machine-only"]
    cost = found.groupby("policy")["cost_per_100"].mean()
    assert cost["test-machine-only"] == cost["machine"]


def test_other_settings_are_refused(finished):
    folder, _ = finished
    with pytest.raises(ConfigError, match="holds a run with another team"):
        run_benchmark(SMALL.with_team({"size": 4}), folder)


def test_the_report_needs_the_results_alone(finished, tmp_path):
    page = bench_report(finished[0])
    path = page.write(tmp_path)
    page.write_for_print(tmp_path)
    html = path.read_text()
    assert "http://" not in html
    assert "https://" not in html
    assert (
        html.count("data:image/png;base64,")
        == len(list(tmp_path.glob("*.png")))
        == len(list(tmp_path.glob("*.pdf")))
    )
    assert "\\begin{tabular}" in (tmp_path / "costs.tex").read_text()
    assert "classifier 2 trials, models of the experts 2 trials (the paper: 2,000" in html
    assert (tmp_path / "scheme.png").is_file()
    shown = set(pd.read_csv(tmp_path / "costs.csv")["Policy"])
    assert set(POLICIES) - set(MIXED) <= shown
    assert not set(MIXED) & shown
    assert set(MIXED) < set(pd.read_csv(tmp_path / "mixtures.csv")["Policy"])
    with pytest.raises(DataError, match="no finished cells"):
        bench_report(tmp_path)


@pytest.mark.long
def test_on_a_cluster_that_loses_a_worker_the_results_are_the_same(alerts, tmp_path):
    distributed = pytest.importorskip("distributed")
    grid = {"seeds": [0, 1], "capacities": [0], "policies": ["deccaf-paper", "deccaf"]}
    small, source = SMALL.model_copy(update={"search": SearchTable()}).with_grid(grid), Source(alerts=alerts)
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        written: list[str] = []
        killed: list[int] = []

        def progress(done: float, total: float, what: str) -> None:
            written.append(what)
            if not killed:
                victim = next(iter(cluster.workers.values())).pid
                os.kill(victim, signal.SIGKILL)
                killed.append(victim)

        spread = tmp_path / "spread"
        address = cluster.scheduler_address
        found = run_benchmark(small, spread, source=source, cluster=address, progress=progress)
    assert len(killed) == 1
    assert len(written) == len(set(written)), "something was done twice"
    same(run_benchmark(small, tmp_path / "alone", source=source), found)


@pytest.mark.long
def test_the_alerts_that_end_early_move_the_protocol(alerts, tmp_path):
    said: list[str] = []
    found = run_benchmark(SMALL, tmp_path, source=Source(alerts=alerts), say=said.append)
    assert any("deciding month 6" in message for message in said)
    assert found["n"].iloc[0] == (pd.read_parquet(alerts)["month"] == 6).sum()
    assert json.loads((next((tmp_path / "teams").iterdir()) / "report.json").read_text())["months"] == {
        "train": [3, 4], "validation": 5, "test": 6,
    }  # fmt: skip


@pytest.mark.long
def test_decisions_of_real_people(alerts, tmp_path):
    """Four people of whom three are drawn; nobody's true chances are known, so no oracle and no expected cost."""
    cases = pd.read_parquet(alerts)
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "case_id": np.repeat(cases["case_id"].to_numpy(), 4),
            "expert_id": ["ann", "bob", "cy", "di"] * len(cases),
        }
    )
    truth = np.repeat(cases["fraud_bool"].to_numpy(), 4)
    table["decision"] = np.where(rng.random(len(table)) < 0.2, 1 - truth, truth)
    table.to_parquet(tmp_path / "decisions.parquet")
    source = Source(alerts=alerts, decisions=tmp_path / "decisions.parquet")
    found = run_benchmark(SMALL, tmp_path / "out", source=source)
    assert found["expected_cost_per_100"].isna().all()
    assert "oracle" not in set(found["policy"])
    ours = found[(found["policy"] == "deccaf") & (found["workload"] == "")]
    assert ours["cost_per_100"].mean() < 5.7
    assert bench_report(tmp_path / "out").html()
    table[table["expert_id"] != "ann"].iloc[:-3].to_parquet(tmp_path / "decisions.parquet")
    with pytest.raises(DataError, match=r"decided \d+ of the \d+ test cases"):
        run_benchmark(SMALL, tmp_path / "other", source=source)


@pytest.mark.filterwarnings("ignore::deccaf.errors.DeccafWarning")
@pytest.mark.long
def test_the_files_of_a_published_set(alerts, tmp_path):
    """Wide decisions of five people, of whom the capacity names three, and batches, as FiFAR has them."""
    cases = pd.read_parquet(alerts)
    rng, truth = np.random.default_rng(0), cases["fraud_bool"].to_numpy()
    people = ["standard#0", "standard#1", "biased#0", "biased#1", "model#0"]
    wide = pd.DataFrame({name: np.where(rng.random(len(cases)) < 0.2, 1 - truth, truth) for name in people})
    wide.set_index(pd.Index(cases["case_id"], name="case_id")).to_parquet(
        tmp_path / "expert_predictions.parquet"
    )
    test = cases[cases["month"] == 6]
    half = np.where(np.arange(len(test)) < len(test) // 2, 1, 2)
    pd.DataFrame({"batch": half}, index=test["case_id"]).to_csv(tmp_path / "batches.csv")
    (tmp_path / "capacity.csv").write_text(
        f"batch_id,batch_size,{','.join(people)}\n1,{(half == 1).sum()},5,4,0,3,0\n2,{(half == 2).sum()},0,4,0,6,0\n"
    )
    small = SMALL.model_copy(update={"search": SearchTable()}).with_grid(
        {"policies": ["random", "ova", "deccaf"]}
    )
    files = [tmp_path / name for name in ("expert_predictions.parquet", "capacity.csv", "batches.csv")]
    found = run_benchmark(small, tmp_path / "out", source=Source(None, alerts, *files))
    assert set(found["workload"]) == {"given"}
    report = Store(tmp_path / "out").report(Store(tmp_path / "out").finished("cells")[0])
    assert report["makers"] == ["machine", "standard#0", "standard#1", "biased#1"]
    assert report["loads"]["random"][1:] == [5, 8, 9]
    assert (np.array(report["loads"]["deccaf"][1:]) <= [5, 8, 9]).all()
    page = bench_report(tmp_path / "out")
    (experts,) = [section for section in page.sections if section.name == "experts"]
    assert experts.table["Group"].tolist() == ["classifier", "standard", "biased"]
    assert {"dependence", "rates"} <= set(experts.pictures)
    pd.DataFrame({"batch": half[1:]}, index=test["case_id"].iloc[1:]).to_csv(tmp_path / "batches.csv")
    with pytest.raises(DataError, match=r"batches: 1 test case\(s\) have none"):
        run_benchmark(small, tmp_path / "other", source=Source(None, alerts, *files))
    with pytest.raises(ConfigError, match="give that too"):
        Source(batches=files[2])


def test_shares_lie_within_each_other(alerts):
    cases = Cases.read(alerts, columns=Columns(label="fraud_bool", time="month"))
    setting = Setting(cases, MonthsTable(train=[3, 4], validation=5, test=6), SMALL.team, "model_score")
    parts = [set(setting.scene(share).past.ids) for share in (0.25, 0.5, 1.0)]
    assert parts[0] < parts[1] < parts[2]
    assert len(parts[0]) == round(0.25 * len(parts[2]))


def test_an_outcome_by_hand():
    """Two cases for the machine, two for the only expert, who errs on both; a miss costs 1, an alarm 0.5."""
    truth = np.array([0, 1, 0, 1])
    scene = SimpleNamespace(truth=truth, test=truth)
    true_q = np.full((4, 1, 2, 2), 0.5)
    crew = SimpleNamespace(said=np.array([[0], [1], [1], [0]]), true_q=true_q)
    decided = Decided(np.array([0, 0, 1, 1]), np.array([1, 1, 0, 0]))
    found = outcome(decided, scene, crew, Costs.binary(0.5))
    assert (found["fp"], found["fn"], found["tp"], found["tn"]) == (2, 1, 1, 0)
    assert found["cost_per_100"] == pytest.approx(100 * (2 * 0.5 + 1) / 4)
    assert found["expected_cost_per_100"] == pytest.approx(100 * (0.5 + 0.5 * 0.5 + 0.5 * 1) / 4)


def test_what_lots_cost_is_the_mean_over_all_of_them():
    """Everybody's cases are drawn; one lot of twenty cases may cost anything, the mean over many does not."""
    rng, n = np.random.default_rng(0), 20
    truth, costs, room = rng.integers(0, 2, n), Costs.binary(0.1), Room(np.full(3, 6), np.full(3, 8))
    p, true_q = rng.dirichlet([1, 1], n), rng.dirichlet([1, 1], (n, 2, 2))
    known = Beliefs(("ann", "bob"), costs.array(), p, paper={"hem": Correctness(p, rng.random((n, 2)))})
    scene = SimpleNamespace(truth=truth, test=truth)
    crew = SimpleNamespace(said=rng.integers(0, 2, (n, 2)), true_q=true_q)
    half = Room(np.full(3, 3), np.full(3, 4))
    halves = [(np.arange(10), half), (np.arange(10, n), half)]
    for name, batches in (("random", [(np.arange(n), room)]), ("random", halves), ("rejection", halves)):
        lots = [decide(POLICIES_BY_NAME[name], known, batches, seed)[0] for seed in range(400)]
        told = [outcome(lot, scene, crew, costs)["expected_cost_per_100"] for lot in lots]
        one = [
            outcome(replace(lot, chances=None), scene, crew, costs)["expected_cost_per_100"] for lot in lots
        ]
        assert np.mean(told) == pytest.approx(np.mean(one), abs=3 * np.std(one) / 20)
        assert np.std(told) < np.std(one) / 2
        group = np.array(["all"] * n)
        rates = group_errors(lots[0], scene, crew, group)["all"]
        both = 0.1 * rates["fpr"] * (truth == 0).sum() + rates["fnr"] * (truth == 1).sum()
        assert 100 * both / n == pytest.approx(told[0])


def test_an_outcome_of_three_classes_by_hand():
    """The machine takes the first case for the third class and is wrong by 4; ann decides the other two."""
    costs = Costs.from_matrix([[0, 1, 4], [2, 0, 1], [3, 1, 0]], ["a", "b", "c"])
    truth = np.array([0, 1, 2])
    true_q = np.full((3, 1, 3, 3), 1 / 3)
    crew = SimpleNamespace(said=np.array([[0], [1], [0]]), true_q=true_q)
    decided = Decided(np.array([0, 1, 1]), np.array([2, 0, 0]))
    found = outcome(decided, SimpleNamespace(truth=truth, test=truth), crew, costs)
    assert [found[name] for name in ("n", "fp", "fn", "tp", "tn")] == [3, 1, 1, 1, 0]
    assert found["cost_per_100"] == pytest.approx(100 * (4 + 0 + 3) / 3)
    assert found["expected_cost_per_100"] == pytest.approx(100 * (4 + (2 + 1) / 3 + (3 + 1) / 3) / 3)


@pytest.mark.parametrize("classes", [2, 3])
def test_predictions_are_kept_for_any_number_of_classes(classes):
    rng, names = np.random.default_rng(0), ["a", "b", "c"][:classes]
    p, q = rng.dirichlet(np.ones(classes), 5), rng.dirichlet(np.ones(classes), (5, 2, classes))
    table = pd.DataFrame(
        {**kept.truth_columns("p", p, names), **kept.decision_columns(q, ["ann", "bob"], names)}
    )
    np.testing.assert_allclose(kept.read_truth(table, "p", names), p, atol=1e-15)
    again = kept.read_decisions(table, ["ann", "bob"], names)
    np.testing.assert_allclose(again, q, atol=1e-15)
    wrong = ~np.eye(classes, dtype=bool)
    np.testing.assert_array_equal(again[..., wrong], q[..., wrong])


def test_deccaf_is_what_users_learn(alerts):
    """The benchmark's `deccaf` predicts to the last bit what `learn` does from the same history."""
    cases = Cases.read(alerts, columns=Columns(label="fraud_bool", time="month"))
    cases = cases.take(np.arange(len(cases)) % 3 == 0)
    parts = PartsTable(case_parts=("logistic",), decision_parts=("rates", "pooled"))
    team = SMALL.team.model_copy(update={"around": "threshold"})
    setting = Setting(
        cases, MonthsTable(train=[3, 4], validation=5, test=6), team, "model_score", 3, model=parts
    )
    scene, crew, costs = setting.scene(), setting.crew(0.057, 0), Costs.binary(0.057)
    learned = learn(crew.log(scene), tasks.our_settings(setting), costs)
    p = learned.chances(scene.test.features, costs.array())
    found = tasks.fit_cases(setting, 1.0).tables["predictions"]
    np.testing.assert_array_equal(found["p:1"], p[:, 1])
    q = learned.decision_chances(scene.test.features, crew.experts)
    table = tasks.fit_experts(setting, 0.057, 1.0, 0, {}, p).tables["predictions"]
    np.testing.assert_array_equal(table[f"0>1:{crew.experts[1]}"], q[:, 1, 0, 1])


def test_the_protocol_of_fifar():
    profile = read_profile("fifar")
    histories = [(profile.team.team_of(s), profile.team.shuffle_of(s)) for s in profile.grid.seeds]
    assert sorted(histories) == [(team, shuffle) for team in range(5) for shuffle in range(5)]
    assert [w.batch for w in profile.grid.workloads[:2]] == [1000, 5000]
    assert {len(w.draws) for w in profile.grid.workloads} == {5}
    with pytest.raises(ConfigError, match="no teams of 60"):
        profile.with_team({"size": 60})
    with pytest.raises(ConfigError, match="no workloads either"):
        profile.with_grid({"workloads": []})


@pytest.mark.parametrize("name", ["quick", "standard", "paper", "own-alerts"])
def test_the_profiles_can_be_read(name):
    profile = read_profile(name)
    assert len(profile.grid.ratios) == 3
    assert np.allclose(profile.grid.ratios, 0.057 * np.array([1 / 5, 1, 5]))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[grid]\npolicies = ['decaf']\n", "did you mean 'deccaf'"),
        ("[grid]\npolicies = ['deccaf']\nratios = [0.0]\n", "cost ratios are positive"),
        ("[grid]\npolicies = ['deccaf']\nseeds = [1, 1]\n", "stands twice"),
        ("[grid]\npolicies = ['deccaf']\n[serch]\n", "[serch]: unknown key"),
        ("[grid]\npolicies = ['deccaf']\n[model]\ndecision_parts = ['rate']\n", "did you mean 'rates'"),
    ],
)
def test_a_bad_profile_is_named(text, message, tmp_path):
    (tmp_path / "bad.toml").write_text(text)
    with pytest.raises(ConfigError) as error:
        read_profile(tmp_path / "bad.toml")
    assert message in str(error.value)


def test_unknown_names_get_a_hint():
    with pytest.raises(ConfigError, match="did you mean 'quick'"):
        read_profile("quik")
    with pytest.raises(ConfigError, match="--capacities: capacities are numbered 0 to 4"):
        SMALL.with_grid({"capacities": [9]})
    with pytest.raises(ConfigError, match="one of them"):
        Source(Path("a.csv"), Path("b.csv"))
    with pytest.raises(ConfigError, match="expected an address"), cluster_of("nowhere", 1):
        pass


TOML = """
[world]
rows = 30000
[grid]
alert_rates = [0.15]
ratios = [0.057]
seeds = [0]
capacities = [0, 1]
policies = ["ova", "deccaf"]
[search]
classifier = 2
expertise = 2
shortlist = 1
[team]
size = 3
"""


def test_the_commands_find_a_finished_folder_and_report_it(finished, tmp_path):
    (tmp_path / "small.toml").write_text(TOML)
    command = ["bench", "run", "--profile", str(tmp_path / "small.toml"), "--out", str(finished[0])]
    done = CliRunner().invoke(app, [*command, "--policies", "deccaf,oracle", "--capacities", "1", "--json"])
    assert done.exit_code == 0
    assert [row["policy"] for row in json.loads(done.stdout)] == ["deccaf", "oracle"]
    shown = CliRunner().invoke(app, ["bench", "report", str(finished[0]), "--out", str(tmp_path / "page")])
    assert shown.exit_code == 0
    assert (tmp_path / "page" / "report.html").is_file()
    assert (tmp_path / "page" / "costs.pdf").read_bytes().startswith(b"%PDF")
    wrong = CliRunner().invoke(app, [*command, "--seeds", "0,x"])
    assert wrong.exit_code == 2
