"""Trials: terms solved by hand, bounds that hold at every look, plans beside the fixed test."""

import itertools
import json

import numpy as np
import pandas as pd
import pytest
from scipy.special import logsumexp

from deccaf.errors import ConfigError, DataError
from deccaf.evaluate import trial as t


def test_terms_by_hand():
    rules = t.Rules(0.25, 2.0)
    terms = t.terms_by_case([1.0, 3.0], [0, 1], rules)
    assert terms.saved.tolist() == [1.0 / 0.75, -2.0 / 0.25]  # 3 counts as the bound 2
    assert (terms.lowest, terms.highest) == (-8.0, pytest.approx(2.0 / 0.75))
    # block a: (1 + 0 + 2) / 3 - 0 over four cases; block b is still open; c has no case of the candidate
    cost, arm, block = [1, 1, 0, 0, 2, 1], [0, 0, 0, 1, 0, 0], list("abaaac")
    found = t.terms_by_block(cost, arm, block, rules, size=4)
    assert found.saved.tolist() == [4.0]
    assert found.cases.tolist() == [4.0]
    assert found.after.tolist() == [5]
    expected = t.terms_by_block(cost, arm, block, rules, expected=[0.5] * 6, size=4)
    assert expected.saved.tolist() == [4.0]
    assert expected.highest == (2.0 + 0.5) * 4


def test_every_lot_together_gives_the_saving_exactly():
    rng = np.random.default_rng(0)
    ours, theirs, before = rng.random((3, 4))
    saving, rules = float((theirs - ours).sum()), t.Rules(0.25, 1.0)
    blocks = []
    for one in range(4):  # the candidate gets one of four
        arm = np.arange(4) == one
        blocks.append(t.terms_by_block(np.where(arm, ours, theirs), arm, [0] * 4, rules, before).saved.sum())
    assert np.mean(blocks) == pytest.approx(saving)
    member, group = np.array([True, False, True, True]), []
    for one in range(4):  # of a group whose members the lot did not look at
        arm = np.arange(4) == one
        cost = np.where(arm, ours, theirs)
        terms = t.terms_by_group(cost, arm, [0] * 4, member, rules, before, 4)
        assert terms.lowest <= terms.saved[0] <= terms.highest
        assert terms.cases.tolist() == [3.0]
        group.append(terms.saved[0])
    assert np.mean(group) == pytest.approx(float((theirs - ours)[member].sum()))
    assert len(t.terms_by_group([1.0], [1], [0], [True], rules, size=4).saved) == 0  # no whole block
    cases = 0.0
    for arms in itertools.product([0, 1], repeat=4):  # each case alone
        arm = np.array(arms, bool)
        chance = 0.25 ** arm.sum() * 0.75 ** (~arm).sum()
        terms = t.terms_by_case(np.where(arm, ours, theirs), arm, rules, before)
        assert (terms.saved >= terms.lowest).all()
        assert (terms.saved <= terms.highest).all()
        cases += chance * terms.saved.sum()
    assert cases == pytest.approx(saving)


@pytest.mark.parametrize("aim", [None, 0.02])
def test_the_bound_is_where_the_mixture_reaches_one_over_the_chance(aim):
    rules, squares, c = t.Rules(0.5, 1.0, aim=aim), np.array([0.0, 3.0, 5e4]), 2.2
    for v, s in zip(squares, t._reach(squares, c, rules), strict=True):
        bets = t._BETS / c
        each = t._mixture(bets, aim) + bets * s - (-np.log1p(-t._BETS) - t._BETS) * v / c**2
        assert logsumexp(each) == pytest.approx(np.log(20.0))
    assert np.exp(t._mixture(t._BETS / c, aim)).sum() == pytest.approx(1.0)


def test_the_lot_gives_each_block_its_number_and_every_place_its_chance():
    assert [t.block_of(share) for share in (0.1, 0.25, 0.5)] == [(10, 1), (4, 1), (2, 1)]
    drawn = [t.arm_of(7, "kind A", position, 0.25) for position in range(4000)]
    arm = np.array([mine for _, mine in drawn]).reshape(-1, 4)
    assert (arm.sum(axis=1) == 1).all()
    assert [block for block, _ in drawn[:8]] == [0] * 4 + [1] * 4
    assert np.abs(arm.mean(axis=0) - 0.25).max() < 0.06  # four standard errors
    other = [t.arm_of(7, "kind B", position, 0.25)[1] for position in range(4000)]
    assert 0.5 < np.mean(np.array(other) == arm.ravel()) < 0.75


def test_looking_every_day_keeps_the_promise_and_sees_what_is_there():
    mean, trials, rng = 0.1, 120, np.random.default_rng(1)
    plan = t.plan(mean, 0.5 * mean, 0.25, 1.0)
    said = {}
    for name, factor in {"same": 1.0, "less": 0.5, "more": 1.5}.items():
        verdicts = []
        for _ in range(trials):
            arm = rng.permuted(np.tile([1, 0, 0, 0], (plan.looking // 4, 1)), axis=1).ravel()
            cost = (rng.random(len(arm)) < mean * np.where(arm == 1, factor, 1.0)).astype(float)
            terms = t.terms_by_block(cost, arm, np.arange(len(arm)) // 4, plan.rules, size=4)
            found = t.looks(terms, plan.rules, np.arange(25, len(terms.saved), 25))
            verdicts.append(next((look.verdict for look in found if look.verdict != "open"), "open"))
        said[name] = {verdict: verdicts.count(verdict) / trials for verdict in ("better", "harm")}
    # at most 5 %, and two standard errors of 120 trials
    assert max(said["same"]["better"], said["same"]["harm"], said["more"]["better"]) <= 0.09
    assert said["less"]["harm"] <= 0.09
    assert said["less"]["better"] > 0.75
    assert said["more"]["harm"] > 0.5


def test_verdicts_follow_the_rules_and_harm_comes_first():
    rules = t.Rules(0.5, 1.0, worth=0.1, tolerated=0.2)
    bounds = [(0.15, 0.5), (-0.5, -0.3), (-0.15, 0.05), (-0.3, 0.3), (0.05, 0.2)]
    assert [t.verdict(*one, rules) for one in bounds] == ["better", "harm", "alike", "open", "open"]
    nothing = t.looks(t.terms_by_case([], [], rules), rules)[0]
    assert (nothing.cases, nothing.low, nothing.high, nothing.verdict) == (0, -1.0, 1.0, "open")


def test_a_plan_stands_beside_the_fixed_test():
    plan = t.plan(0.05, 0.01, 0.5, 1.0)
    assert plan.fixed == 11747  # (1.6449 + 0.8416)^2 x 0.05 x 0.95 / 0.25 / 0.01^2
    assert plan.half < plan.looking
    assert 1.2 < plan.looking / plan.fixed < 2.5
    assert t.plan(0.05, 0.01, 0.1, 1.0).fixed > plan.fixed
    assert t.plan(0.05, 0.01, 0.5, 1.0, spread=0.1).fixed < plan.fixed


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        (lambda: t.Rules(0.0, 1.0), ConfigError),
        (lambda: t.Rules(0.5, 0.0), ConfigError),
        (lambda: t.block_of(0.333), ConfigError),
        (lambda: t.plan(0.05, 0.06, 0.5, 1.0), ConfigError),
        (lambda: t.terms_by_case([-1.0], [0], t.Rules(0.5, 1.0)), DataError),
        (lambda: t.terms_by_case([1.0], [2], t.Rules(0.5, 1.0)), DataError),
        (lambda: t.terms_by_block([1.0], [1], [1, 2], t.Rules(0.5, 1.0)), DataError),
    ],
)
def test_what_makes_no_sense_is_refused(wrong, kind):
    with pytest.raises(kind, match="trial"):
        wrong()


def test_commands_plan_a_trial_and_read_it(run, tmp_path, cases_frame, decisions_frame):
    code, out, _ = run("trial", "plan", "--cost", 0.05, "--bound", 1, "--saving", 0.2, "--share", 0.5,
                       "--per-day", 300, "--json")  # fmt: skip
    row = json.loads(out)[0]
    assert code == 0
    assert row["fixed"] == 11747
    assert row["fixed_days"] == 40
    assert row["looking"] > row["half"]
    assert run("trial", "plan", "--saving", 0.2)[0] == 2  # no cost
    cases_frame.to_csv(tmp_path / "cases.csv", index=False)
    decisions_frame.to_csv(tmp_path / "log.csv", index=False)
    (tmp_path / "c.toml").write_text("[costs]\nfalse_positive = 0.5\nfalse_negative = 1.0\n")
    code, out, err = run("trial", "plan", "--saving", 0.2, "--cases", tmp_path / "cases.csv", "--decisions",
                         tmp_path / "log.csv", "--config", tmp_path / "c.toml", "--json")  # fmt: skip
    assert code == 0
    assert "decisions: mean cost" in err
    assert len(json.loads(out)) == 3

    arm = np.tile([1, 0], 400)
    table = pd.DataFrame({"cost": np.where(arm == 1, 0.0, 2.0), "arm": arm, "block": np.arange(800) // 2})
    table["time"] = np.where(np.arange(800) < 3, "2026-01-05", "2026-01-06")
    table.to_csv(tmp_path / "trial.csv", index=False)
    code, out, err = run("trial", "look", tmp_path / "trial.csv", "--share", 0.5, "--bound", 1, "--json")
    first, last = json.loads(out)
    assert code == 0
    assert "400 of 800 costs lie above the bound 1" in err
    assert (first["day"], first["cases"], first["verdict"]) == ("2026-01-05", 2, "open")
    assert (last["cases"], last["saving"], last["verdict"]) == (800, 1.0, "better")
    table.drop(columns="arm").to_csv(tmp_path / "trial.csv", index=False)
    code, _, err = run("trial", "look", tmp_path / "trial.csv", "--share", 0.5, "--bound", 1)
    assert code == 3
    assert "column 'arm': missing" in err


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("", "no rows"),
        ("0.5,1,a,2026-01-05\nhigh,0,a,2026-01-05\n", "'cost': 1 value(s) are no numbers, first: 'high' in row 2"),
        ("0.5,1,a,2026-01-05\n,0,a,2026-01-05\n", "'cost': 1 value(s) outside [0, inf], first: nan in row 2"),
        ("0.5,1,a,2026-01-05\n0.5,-1,a,2026-01-05\n", "'arm': 1 value(s) outside [0, 1], first: -1.0 in row 2"),
        ("0.5,1,a,2026-01-05\n0.5,0.5,a,2026-01-05\n", "'arm': 1 value(s) are neither 0"),
        ("0.5,1,a,2026-01-05\n0.5,0,,2026-01-05\n", "'block': 1 value(s) are missing, first: nan in row 2"),
        ("0.5,1,a,soon\n0.5,0,a,2026-01-05\n", "different values are no dates"),
        ("0.5,1,a,7\n0.5,0,a,8\n", "'time': numbers such as 7 are no days"),
        ("0.5,1,a,2026-01-06\n0.5,0,a,2026-01-05\n", "'time': 1 row(s) are earlier than the row before, first: row 2"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_read_is_named_with_column_count_and_row(run, tmp_path, rows, said):
    (tmp_path / "trial.csv").write_text("cost,arm,block,time\n" + rows)
    code, out, err = run("trial", "look", tmp_path / "trial.csv", "--share", 0.5, "--bound", 1)
    assert (code, out) == (3, "")
    assert said in err
    assert f"{tmp_path / 'trial.csv'}: " in err
