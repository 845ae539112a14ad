"""Plans with advice: the plan as it is, and on which cases a machine is asked before it is decided who
decides."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deccaf.data.capacity import Capacity
from deccaf.data.config import ConstraintsTable, WaitingTable
from deccaf.data.decisions import Decisions
from deccaf.errors import ConfigError, DataError, did_you_mean
from deccaf.planning.advice import AdviceSummary, after_answers, answers_of, find_advice, read_answers
from deccaf.planning.plan import Plan
from deccaf.planning.planner import problem_of, rows_by_batch
from deccaf.planning.scored import Scored

Ints = NDArray[np.int64]


def check_advice(constraints: ConstraintsTable | None, waiting: WaitingTable | None, scratch: Any) -> None:
    """Refuse what advice and answers cannot be planned with."""
    beside = {"[constraints]": constraints, "[waiting]": waiting, "scratch (--scratch)": scratch}
    for name, given in beside.items():
        if given is not None:
            raise ConfigError(f"advice: is not planned together with {name} yet; leave one of them out")


def answered(scored: Scored, answers: Decisions) -> Scored:
    """What is believed once some answers are there; a case is not asked of whoever answered it."""
    assert scored.opinions is not None
    table = pd.DataFrame({"case_id": answers.case.to_numpy(), "expert_id": answers.expert.to_numpy()})
    stray = [name for name in dict.fromkeys(map(str, table["expert_id"])) if name not in scored.makers]
    if stray:
        raise DataError(f"answers: {stray[0]!r} is not on the roster" + did_you_mean(stray[0], scored.makers))
    said = read_answers(table, scored.ids, answers.decision)
    p, loss, says = after_answers(scored.opinions, scored.makers, said)
    count = len(np.unique(table["case_id"].astype(str)))
    note = f"{count:,} cases have an answer that was bought before; its price is spent, and not counted"
    return replace(scored, p=p, loss=loss, objective=loss, says=says, notes=(*scored.notes, note))


def advised(plan: Plan, scored: Scored, capacity: Capacity) -> Plan:
    """The plan with `advice`: the machine to ask first, where its answer is worth its price; and
    `advice_saves`.

    `maker` stays who decides if nobody is asked, or if the machine does not answer.
    """
    if plan.summary.waiting is not None and plan.summary.waiting.cost > 0:
        raise ConfigError("advice: is not planned together with waiting yet; leave due and waiting_cost out")
    assert scored.opinions is not None
    names = np.array([*scored.makers, None], dtype=object)
    asked, saves = np.full(len(scored.ids), -1), np.zeros(len(scored.ids))
    total, paid, gap = 0.0, 0.0, 0.0
    for batch, rows in rows_by_batch(scored.batch, len(scored.ids)).items():
        problem = problem_of(scored, capacity, batch, rows)
        allowed = np.isfinite(problem.loss) if problem.eligible is None else problem.eligible
        open_ = problem.upper > 0
        may = [k for k, name in enumerate(scored.makers) if name in scored.machines and open_[k]]
        answers = answers_of(scored.opinions.take(rows), may, np.asarray(allowed) & open_)
        done = ~np.isfinite(np.asarray(problem.loss)).all(axis=1)  # these have an answer already
        for one in answers:
            one.cost[done | ~np.asarray(allowed)[:, one.maker]] = np.inf
        found = find_advice(problem, answers, plan.prices.loc[batch].to_numpy(np.float64))
        asked[rows], saves[rows] = found.asked, found.saves
        total, paid, gap = total + found.cost, paid + found.paid, gap + found.gap
    counts = pd.Series(names[asked[asked >= 0]]).value_counts()
    cases = {str(name): int(count) for name, count in counts.items()}
    summary = AdviceSummary(total, plan.summary.cost, paid, gap, cases)
    shown = pd.Series(names[asked], dtype="str").array
    plan = plan.extended(advice=shown, advice_saves=np.where(asked >= 0, saves, np.nan))
    return plan.summed(replace(plan.summary, advice=summary))
