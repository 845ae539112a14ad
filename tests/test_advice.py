"""Advice: a machine's answer is bought where it is worth its price, and then it is decided who decides."""

from __future__ import annotations

import json
from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import linprog
from scipy.special import expit

from deccaf.assign import AssignmentProblem, Opinions, solve
from deccaf.data.costs import Costs, expected_loss
from deccaf.errors import ConfigError, DataError
from deccaf.estimator import DeCCaF
from deccaf.planning.advice import after_answers, answers_of, find_advice

COSTS = Costs.binary(false_positive=1.0, false_negative=4.0)
R = np.array([[1.0, 0.2, 0.1], [0.2, 1.0, 0.5], [0.1, 0.5, 1.0]])
MAKERS = ("machine", "ann", "llm", "vendor")


def beliefs(n: int, seed: int, price: float = 0.03) -> tuple[Opinions, np.ndarray]:
    rng = np.random.default_rng(seed)
    p1 = expit(rng.normal(-0.5, 1.5, n))
    error = expit(np.array([-2.2, -1.8, -1.2]) + rng.normal(0, 0.5, (n, 2, 3)))
    q = np.empty((n, 3, 2, 2))
    for y in (0, 1):
        q[:, :, y, y], q[:, :, y, 1 - y] = 1 - error[:, y], error[:, y]
    p, paid = np.column_stack([1 - p1, p1]), np.array([0.2, price, price / 3])
    opinions = Opinions.of(p, q, COSTS.array(), review_cost=paid, correlation=R)
    return opinions, expected_loss(p, q, COSTS.array(), paid)


def found_by_all_plans(opinions: Opinions, loss: np.ndarray, upper: np.ndarray) -> float:
    """The best plan with advice by listing every plan of every case: a maker, or a machine and a maker per answer."""
    n, makers = loss.shape
    costs, loads, case = [], [], []
    answers = answers_of(opinions, [2, 3], np.ones_like(loss, bool))
    for i in range(n):
        for k in range(makers):
            costs.append(loss[i, k])
            loads.append(np.eye(makers)[k])
            case.append(i)
        for one in answers:
            for then in product([k for k in range(makers) if k != one.maker], repeat=2):
                costs.append(one.paid[i] + sum(one.cost[i, a, k] for a, k in enumerate(then)))
                loads.append(
                    np.eye(makers)[one.maker]
                    + sum(one.chance[i, a] * np.eye(makers)[k] for a, k in enumerate(then))
                )
                case.append(i)
    each = np.eye(n)[case].T
    found = linprog(costs, np.array(loads).T, upper, each, np.ones(n), bounds=(0, 1), method="highs")
    return float(found.fun)


@pytest.mark.parametrize("upper", [[12, 3, 12, 12], [12, 12, 4, 2], [4, 2, 3, 12]])
def test_the_plan_with_advice_is_the_best_of_all(upper: list[int]) -> None:
    opinions, loss = beliefs(12, seed=sum(upper))
    limits = np.array(upper)
    problem = AssignmentProblem.of(loss, limits)
    plain = solve(loss, limits)
    found = find_advice(problem, answers_of(opinions, [2, 3], np.ones_like(loss, bool)), plain.prices)
    best = found_by_all_plans(opinions, loss, limits.astype(float))
    assert found.cost == pytest.approx(best, rel=1e-5)
    assert found.cost <= plain.objective + 1e-9
    assert found.gap < 1e-4


def test_answers_are_worth_what_comes_after_them() -> None:
    """What an answer is expected to lead to is the mean over the answers of the plan made with them."""
    opinions, loss = beliefs(50, seed=1)
    one = answers_of(opinions, [2], np.ones_like(loss, bool))[0]
    assert one.chance.sum(axis=1) == pytest.approx(1.0)
    for a in (0, 1):
        p, then, says = after_answers(opinions, MAKERS, {"llm": np.full(50, a)})
        assert then[:, [0, 1, 3]] * one.chance[:, [a]] == pytest.approx(one.cost[:, a][:, [0, 1, 3]])
        assert np.isinf(then[:, 2]).all()
        assert says.tolist() == (p @ COSTS.array()[0]).argmin(axis=1).tolist()
    # without an answer nothing changes
    p, then, _ = after_answers(opinions, MAKERS, {"llm": np.full(50, -1)})
    assert p == pytest.approx(opinions.p)
    assert then == pytest.approx(loss)


def test_a_dear_answer_and_a_copy_are_not_bought() -> None:
    for price, asked in ((0.0, True), (1.0, False)):
        opinions, loss = beliefs(60, seed=2, price=price)
        problem = AssignmentProblem.of(loss, np.array([60, 10, 60, 60]))
        answers = answers_of(opinions, [2, 3], np.ones_like(loss, bool))
        found = find_advice(problem, answers, solve(loss, [60, 10, 60, 60]).prices)
        assert (found.asked >= 0).any() == asked
    # an answer of a copy tells the one whose copy it is nothing new
    q = np.repeat(opinions.q[:, 1:2], 2, axis=1)
    both = np.array([[1.0, 1.0], [1.0, 1.0]])
    twins = Opinions.of(opinions.p, q, COSTS.array(), correlation=both)
    after = answers_of(twins, [1], np.ones((60, 3), bool))[0]
    gain = after.cost[:, :, 0].sum(axis=1) - after.cost.min(axis=2).sum(axis=1)
    assert gain.max() < 0.02  # nothing is left to win by asking the twin after the machine knows the answer


@pytest.fixture(scope="module")
def desk() -> tuple[DeCCaF, pd.DataFrame, np.ndarray]:
    """A person and two machines on every case; the cheap machine errs where the language model does."""
    rng = np.random.default_rng(3)
    n = 1600
    truth = (rng.random(n) < 0.35).astype(int)
    X = pd.DataFrame({"x": rng.normal(size=n) + 0.8 * truth}, index=[f"c{i}" for i in range(n)])
    u = rng.normal(size=n)
    level = {"ann": 1.9, "llm": 1.3, "vendor": 0.7}
    said = {}
    for name, skill in level.items():
        z = skill + (0.0 if name == "ann" else 0.8) * u + rng.logistic(size=n)
        said[name] = np.where(z > 0, truth, 1 - truth)
    log = pd.DataFrame(
        {
            "case_id": np.tile(X.index[:1200], 3),
            "expert_id": np.repeat(list(level), 1200),
            "decision": np.concatenate([said[name][:1200] for name in level]),
        }
    )
    makers = {"llm": {"kind": "machine", "price": 0.05}, "vendor": {"kind": "machine", "price": 0.01}}
    model = DeCCaF(
        COSTS, review_cost=0.3, makers=makers, case_parts=("logistic",), decision_parts=("rates", "pooled")
    )
    model.fit(X.iloc[:1200], truth[:1200], decisions=log)
    return model, X.iloc[1200:], np.stack([said[name][1200:] for name in level], axis=1)


def test_a_plan_says_whom_to_ask_first_and_goes_on_with_the_answers(
    desk: tuple[DeCCaF, pd.DataFrame, np.ndarray], tmp_path
) -> None:  # type: ignore[no-untyped-def]
    model, X, said = desk
    roster = {"ann": 60}
    plain, plan = model.assign(X, roster, intervals=False), model.assign(X, roster, advice=True)
    assert plan.frame["maker"].equals(plain.frame["maker"])
    found = plan.summary.advice
    assert found.without == pytest.approx(plain.summary.cost)
    assert found.cost < 0.97 * found.without
    asked = plan.frame["advice"].notna().to_numpy()
    assert {str(name) for name in plan.frame["advice"].dropna()} <= {"llm", "vendor"}
    assert sum(found.cases.values()) == asked.sum() > 20
    assert (plan.frame.loc[asked, "advice_saves"] > 0).all()
    assert any(line.startswith("advice: ask ") for line in plan.summary.lines())
    column = {"llm": 1, "vendor": 2}
    bought = pd.DataFrame(
        {
            "case_id": plan.frame.loc[asked, "case_id"],
            "expert_id": plan.frame.loc[asked, "advice"],
            "decision": [said[i, column[str(plan.frame["advice"].iloc[i])]] for i in np.flatnonzero(asked)],
        }
    )
    bought.to_csv(tmp_path / "answers.csv", index=False)
    then = model.assign(X, roster, answers=tmp_path / "answers.csv")
    assert then.summary.makers["cases"]["ann"] <= 60
    again = then.frame.loc[asked]
    assert not (again["maker"].astype(str) == plan.frame.loc[asked, "advice"].astype(str)).any()
    assert then.summary.cost + found.paid == pytest.approx(found.cost, rel=0.15)
    with pytest.raises(ConfigError, match=r"advice: is not planned together with \[constraints\]"):
        model.assign(X, roster, advice=True, constraints={"random": {"share": 0.1}})
    with pytest.raises(DataError, match="answers: 1 row.* name no case, first: 'nobody'"):
        model.assign(
            X, roster, answers=pd.DataFrame({"case_id": ["nobody"], "expert_id": ["llm"], "decision": [1]})
        )
    with pytest.raises(DataError, match="answers: 'lmm' is not on the roster.*llm"):
        model.assign(
            X, roster, answers=pd.DataFrame({"case_id": ["c1300"], "expert_id": ["lmm"], "decision": [1]})
        )


def test_the_command_says_whom_to_ask_first(
    desk: tuple[DeCCaF, pd.DataFrame, np.ndarray], tmp_path, run
) -> None:  # type: ignore[no-untyped-def]
    model, X, _ = desk
    model.save(tmp_path / "m.deccaf")
    X.rename_axis("case_id").reset_index().to_csv(tmp_path / "cases.csv", index=False)
    (tmp_path / "roster.csv").write_text("expert_id,upper,kind\nann,60,person\nvendor,,machine\n")
    (tmp_path / "deccaf.toml").write_text(
        "[costs]\nfalse_positive = 1.0\nfalse_negative = 4.0\nreview_cost = 0.3\n"
        '[makers.llm]\nkind = "machine"\nprice = 0.05\n[makers.vendor]\nkind = "machine"\nprice = 0.01\n'
    )
    files = ["--model", tmp_path / "m.deccaf", "--cases", tmp_path / "cases.csv"]
    files += ["--capacity", tmp_path / "roster.csv", "--config", tmp_path / "deccaf.toml"]
    code, out, _ = run("assign", *files, "--advice", "--no-intervals", "--out", tmp_path / "plan.csv")
    assert code == 0
    assert "advice: ask " in out
    plan = pd.read_csv(tmp_path / "plan.csv")
    assert set(plan["advice"].dropna()) <= {"llm", "vendor"}
    assert plan["advice"].notna().sum() > 20
    asked = plan[plan["advice"].notna()]
    answers = pd.DataFrame({"case_id": asked["case_id"], "expert_id": asked["advice"], "decision": 1})
    answers.to_csv(tmp_path / "answers.csv", index=False)
    more = ["--answers", tmp_path / "answers.csv", "--no-intervals", "--json"]
    code, out, _ = run("assign", *files, *more, "--out", tmp_path / "then.csv")
    assert code == 0
    assert f"{len(asked):,} cases have an answer" in " ".join(json.loads(out)["notes"])
    code, _, err = run("assign", *files, "--advice", "--dry-run")
    assert code == 2
    assert "--advice, --answers: are for plans that are written" in err
