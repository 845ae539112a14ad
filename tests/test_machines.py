"""Machines among the makers: kinds, prices, limits, and what their own scores tell."""

from __future__ import annotations

import json
import zipfile

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from deccaf import Capacity, Costs, DeCCaF
from deccaf.data.config import Config
from deccaf.data.review import review_costs
from deccaf.errors import ConfigError, DataError
from deccaf.fitted import FittedTeam

COSTS = Costs.binary(false_positive=1.0, false_negative=4.0)
LLM = {"llm": {"kind": "machine", "price": 0.05}}
WAITS = """
[costs]
false_positive = 1.0
false_negative = 4.0
[waiting]
minutes = 30
[makers.llm]
kind = "machine"
cases_per_day = 2
"""
FAST = {"case_parts": ("logistic",), "decision_parts": ("rates", "pooled")}


def desk(n: int = 1500, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray, pd.DataFrame]:
    """Cases with a person's decision and a machine's on each; the machine's score knows more than x does.

    The twin is another name for the machine.
    """
    rng = np.random.default_rng(seed)
    truth = (rng.random(n) < 0.3).astype(int)
    X = pd.DataFrame(
        {"x": rng.normal(size=n) + 0.7 * truth, "tokens": rng.integers(100, 900, n).astype(float)}
    )
    score = 2.0 * truth - 1.0 + rng.normal(size=n)
    X["score_llm"] = score
    X.index = [f"c{i}" for i in range(n)]
    who = rng.choice(["ann", "bob"], n)
    right = rng.random(n) < expit(np.where(who == "ann", 1.5, 0.8))
    log = pd.DataFrame(
        {
            "case_id": np.tile(X.index, 3),
            "expert_id": np.concatenate([who, np.repeat(["llm", "twin"], n)]),
            "decision": np.concatenate([np.where(right, truth, 1 - truth), *[(score > 0).astype(int)] * 2]),
        }
    )
    return X, truth, log


@pytest.fixture(scope="module")
def world() -> tuple[pd.DataFrame, np.ndarray, pd.DataFrame]:
    return desk()


@pytest.fixture(scope="module")
def team(world: tuple[pd.DataFrame, np.ndarray, pd.DataFrame]) -> DeCCaF:
    X, truth, log = world
    return DeCCaF(COSTS, makers=LLM, **FAST).fit(X, truth, decisions=log)


def test_review_costs_by_number_by_column_and_both() -> None:
    columns = pd.DataFrame({"tokens": [100.0, 300.0], "fee": ["1", "2.5"]})
    paid = {"ann": 0.5, "vendor": "fee", "llm": {"fixed": 0.01, "column": "tokens", "rate": 0.001}, "*": 0.2}
    found = review_costs(paid, ["ann", "vendor", "llm", "new"], columns)
    assert found == pytest.approx(np.array([[0.5, 1.0, 0.11, 0.2], [0.5, 2.5, 0.31, 0.2]]))
    assert review_costs(paid, ["ann", "new"]).tolist() == [0.5, 0.2]  # no column is needed for these
    assert review_costs(0.1, ["ann", "new"]).tolist() == [0.1, 0.1]
    assert review_costs({"ann": 0.1}, ["ann", "new"]).tolist() == [0.1, 0.0]
    with pytest.raises(DataError, match="column 'fee': 1 value.*first: 'dear' in case 1"):
        review_costs("fee", ["ann"], columns.assign(fee=["1", "dear"]))


@pytest.mark.parametrize(
    ("makers", "said"),
    [
        ({"machine": {"kind": "machine"}}, "deccaf's own classifier"),
        ({"llm": {"kind": "robot"}}, "kind"),
        ({"llm": {"kind": "machine", "price": -1.0}}, "from 0 on"),
        ({"llm": {"kind": "machine", "price": {"rate": 2.0}}}, "name the column"),
        ({"ann": {"cases_per_day": 5}}, "is for machines"),
        ({"llm": {"kind": "machine", "speed": 3}}, "speed"),
    ],
)
def test_what_is_wrong_with_a_maker_is_named(makers: dict[str, object], said: str) -> None:
    table = {"costs": {"false_positive": 1.0, "false_negative": 4.0}, "makers": makers}
    with pytest.raises(ValueError, match=said):
        Config.model_validate(table)
    with pytest.raises(ConfigError, match=said):
        DeCCaF(COSTS, makers=makers)._check_settings()  # type: ignore[arg-type]


def test_a_configuration_gives_prices_and_scores() -> None:
    table = {
        "costs": {"false_positive": 1.0, "false_negative": 4.0, "review_cost": 0.3},
        "makers": {"llm": {"kind": "machine", "price": "fee"}, "old": {"kind": "machine"}, "ann": {}},
    }
    config = Config.model_validate(table)
    # one number for everybody is for people
    assert config.review_cost == {"*": 0.3, "llm": "fee", "old": 0.0}
    assert config.columns.scores == {"llm": "score_llm", "old": "score_old"}
    table["costs"]["review_cost"] = {"llm": 0.1}  # type: ignore[index]
    with pytest.raises(ValueError, match="'llm' has a price under .makers. and another"):
        Config.model_validate(table)
    with pytest.raises(ConfigError, match=r"\[makers.old\]: 'old' is none of the 2 people and machines"):
        config.check_people(["llm", "ann"])


def test_a_roster_has_kinds(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "roster.csv"
    path.write_text("expert_id,upper,kind\nann,5,person\nllm,,machine\nvendor,7,machine\n")
    found = Capacity.read(path)
    assert found.machines == {"llm", "vendor"}
    assert found.limits(("machine", "ann", "llm", "vendor"), 50)[1].tolist() == [50, 5, 50, 7]
    path.write_text("expert_id,upper,kind\nann,,person\n")
    with pytest.raises(DataError, match="column 'upper': 1 value"):
        Capacity.read(path)
    path.write_text("expert_id,upper,kind\nann,3,robot\n")
    with pytest.raises(DataError, match="column 'kind': 1 value.*'robot' for 'ann'"):
        Capacity.read(path)


def test_machines_are_there_without_hours_and_within_their_limits(
    team: DeCCaF, world: tuple[pd.DataFrame, np.ndarray, pd.DataFrame]
) -> None:
    X = world[0].iloc[:200].drop(columns="score_llm")  # not bought yet
    plan = team.assign(X, {"ann": 30}, intervals=False)
    assert plan.summary.makers["cases"]["llm"] > 30
    few = team.with_costs(COSTS, makers={"llm": {"kind": "machine", "cases_per_day": 12}})
    assert few.assign(X, {"ann": 30}, intervals=False).summary.makers["cases"]["llm"] == 12
    slow = team.with_costs(COSTS, makers={"llm": {"kind": "machine", "cases_per_minute": 0.005}})
    assert slow.assign(X, {"ann": 30, "llm": 40}, intervals=False).summary.makers["cases"]["llm"] == 7
    unknown = team.with_costs(COSTS, makers={"gpu": {"kind": "machine"}})
    plan = unknown.assign(X, {"ann": 30, "llm": 0}, intervals=False)
    assert "gpu" not in plan.summary.makers.index
    assert any("machine 'gpu'" in note for note in plan.summary.notes)


def test_prices_by_a_column_move_the_plan(
    team: DeCCaF, world: tuple[pd.DataFrame, np.ndarray, pd.DataFrame]
) -> None:
    X = world[0].iloc[:300].drop(columns="score_llm")  # not bought yet
    free = team.with_costs(COSTS, makers={"llm": {"kind": "machine"}})
    paid = team.with_costs(
        COSTS, {"*": 0.2}, {"llm": {"kind": "machine", "price": {"column": "tokens", "rate": 2e-4}}}
    )
    loss, base = paid.expected_loss(X), free.expected_loss(X)
    assert loss["llm"].to_numpy() == pytest.approx(base["llm"] + 2e-4 * X["tokens"])
    assert loss["ann"].to_numpy() == pytest.approx(base["ann"] + 0.2)
    assert loss["machine"].to_numpy() == pytest.approx(base["machine"])
    plan = paid.assign(X, {"ann": 30, "bob": 30})
    chosen = plan.frame["maker"] == "llm"
    assert chosen.any()
    tokens = X["tokens"].to_numpy()
    assert tokens[chosen].mean() < tokens[~chosen].mean()
    assert "0.0002 x column 'tokens'" in plan.summary.terms.words()
    with pytest.raises(DataError, match="column 'tokens': missing"):
        paid.expected_loss(X.drop(columns="tokens"))


def test_an_own_score_is_seen_by_its_machine_alone(
    team: DeCCaF, world: tuple[pd.DataFrame, np.ndarray, pd.DataFrame]
) -> None:
    X = world[0].iloc[:50]
    other = X.assign(score_llm=X["score_llm"].to_numpy()[::-1])
    learned = team.learned_
    assert "score_llm" not in [part.name for part in learned.classifier.parts_["logistic"].encoder_.parts_]
    q, moved = (learned.decision_chances(team.schema_.cast(one), ["ann", "bob", "llm"]) for one in (X, other))
    assert np.array_equal(q[:, :2], moved[:, :2])
    assert not np.allclose(q[:, 2], moved[:, 2])


def test_own_scores_tell_answers_and_truths(team: DeCCaF) -> None:
    """On new cases: the answer is nearly certain, and what the makers cost is what they are expected to."""
    X, truth, log = desk(4000, seed=1)
    said = log["decision"].to_numpy()[len(X) : 2 * len(X)]
    q = team.learned_.decision_chances(team.schema_.cast(X), ["llm"])[np.arange(len(X)), 0, truth, said]
    assert np.log(q).mean() > -0.12
    for table, slack in ((X, 0.1), (X.drop(columns="score_llm"), 0.2)):
        loss = team.expected_loss(table)
        wrong = np.where(truth == 1, 4.0, 1.0) * (said != truth)
        assert loss["llm"].mean() - 0.05 == pytest.approx(wrong.mean(), rel=slack)
        own = team.predict_decision(table)
        wrong = np.where(truth == 1, 4.0, 1.0) * (own != truth)
        assert loss["machine"].mean() == pytest.approx(wrong.mean(), rel=slack)
    with_score, without = team.predict_proba(X), team.predict_proba(X.drop(columns="score_llm"))
    assert (
        np.log(with_score[np.arange(len(X)), truth]).mean()
        > np.log(without[np.arange(len(X)), truth]).mean() + 0.1
    )


def test_a_team_with_machines_is_saved_and_loaded(
    team: DeCCaF, world: tuple[pd.DataFrame, np.ndarray, pd.DataFrame], tmp_path
) -> None:  # type: ignore[no-untyped-def]
    X = world[0].iloc[:40]
    team.save(tmp_path / "m.deccaf")
    again = FittedTeam.load(tmp_path / "m.deccaf")
    pd.testing.assert_frame_equal(again.expected_loss(X), team.expected_loss(X))
    pd.testing.assert_frame_equal(
        again.assign(X, {"ann": 9}, intervals=False).frame,
        team.assign(X, {"ann": 9}, intervals=False).frame,
        check_exact=True,
    )


def test_a_stream_has_machines_all_day_up_to_their_limits(
    team: DeCCaF, world: tuple[pd.DataFrame, np.ndarray, pd.DataFrame], tmp_path, run
) -> None:  # type: ignore[no-untyped-def]
    http = {"address": "http://127.0.0.1:9/decide", "secret_variable": "LLM_SECRET"}
    makers = {
        "llm": {"kind": "machine", "cases_per_day": 2, "cases_per_minute": 30.0, "http": http},
        "new": {"kind": "machine"},
    }
    team.with_costs(COSTS, makers=makers).save(tmp_path / "m.deccaf")
    with zipfile.ZipFile(tmp_path / "m.deccaf") as file:
        assert not [name for name in file.namelist() if b"LLM_SECRET" in file.read(name)]
    (tmp_path / "roster.csv").write_text("expert_id,upper\nann,2\nmachine,0\n")
    lines = [json.dumps({"case_id": case, **row}) for case, row in world[0].iloc[:4].to_dict("index").items()]
    arguments = ("stream", "--model", tmp_path / "m.deccaf", "--capacity", tmp_path / "roster.csv")
    code, out, said = run(*arguments, stdin="\n".join(lines))
    assert code == 0, said
    got = [json.loads(line)["maker"] for line in out.splitlines()]
    assert sorted(got) == ["ann", "ann", "llm", "llm"]
    assert "left out, as no decision of it was learned from: machine 'new'" in said
    waits = [json.dumps({**json.loads(line), "at": 0.1, "waiting_cost": 60.0}) for line in lines]
    (tmp_path / "w.toml").write_text(WAITS)
    more = ("--hours", "8", "--config", tmp_path / "w.toml")
    code, out, said = run(*arguments, *more, stdin="\n".join(waits))
    assert code == 0, said
    cost = [one["waiting_cost"] for one in map(json.loads, out.splitlines()) if one["maker"] == "llm"]
    assert cost == [0.0, 0.0], "it answers at once"


def test_without_machines_everything_is_as_it_was(
    world: tuple[pd.DataFrame, np.ndarray, pd.DataFrame],
) -> None:
    """A maker that nobody calls a machine is a person, and `score_llm` a feature like any other."""
    X, truth, log = (world[0].iloc[:600], world[1][:600], world[2])
    log = log[log["case_id"].isin(X.index)]
    plain = DeCCaF(COSTS, review_cost=0.05, **FAST).fit(X, truth, decisions=log)
    assert plain.schema_.names == ["x", "tokens", "score_llm"]
    assert plain.schema_.own == {}
    assert plain.learned_.own is None
    plan = plain.assign(X, {"ann": 60}, intervals=False)
    assert list(plan.summary.makers.index) == ["machine", "ann"]
    kinds = DeCCaF(COSTS, review_cost=0.05, makers={"ann": {"kind": "person"}}, **FAST)
    named = kinds.fit(X, truth, decisions=log).assign(X, {"ann": 60}, intervals=False)
    pd.testing.assert_frame_equal(named.frame, plan.frame, check_exact=True)


def test_machines_have_no_minutes_and_are_no_people(
    team: DeCCaF, world: tuple[pd.DataFrame, np.ndarray, pd.DataFrame]
) -> None:
    X = world[0].iloc[:60].drop(columns="score_llm")  # not bought yet
    rules = {"random": {"share": 0.5}, "minutes": {"minutes": 5.0, "capacity": {"ann": 100.0, "llm": 1.0}}}
    plan = team.assign(X, {"ann": 60, "bob": 60}, constraints=rules, intervals=False)
    assert set(plan.frame.loc[plan.frame["random"], "maker"]) <= {"ann", "bob"}
    assert (plan.frame["maker"] == "ann").sum() <= 20
    assert (plan.frame["maker"] == "llm").sum() > 5
    two = {"reviewers": {"count": 2}}
    plan = team.assign(X, {"ann": 60, "bob": 60}, constraints=two, intervals=False)
    assert set(plan.frame["maker"]) | set(plan.frame["reviewer_2"]) == {"ann", "bob"}


def test_what_if_counts_people_alone(
    team: DeCCaF, world: tuple[pd.DataFrame, np.ndarray, pd.DataFrame]
) -> None:
    X = world[0].head(60).drop(columns="score_llm")  # not bought yet
    found = team.what_ifs(X, {"ann": 5, "bob": 5}, [{"llm": "0"}])
    makers = [found.now.frame["maker"], found.answers[0].then.frame["maker"]]
    assert found.table["people"].tolist() == [int(each.isin(["ann", "bob", "twin"]).sum()) for each in makers]
    assert (makers[0] == "llm").any()


def test_a_copy_is_known_for_one(team: DeCCaF) -> None:
    found = team.learned_.correlation(["ann", "llm", "twin"])
    assert found[1, 2] > 0.97
    assert found[0, 1] < 0.2
    assert "llm and twin err together" in team.learned_.dependence.lines()[0]
