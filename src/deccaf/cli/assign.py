"""`deccaf assign` and `deccaf explain`: today's cases and roster in, a plan out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pandas as pd
import typer

from deccaf.cli.common import JsonOption, KeyOption, c_output_on_stderr, read_key, say, show_table, steps
from deccaf.data.capacity import Capacity
from deccaf.data.config import Config
from deccaf.data.costs import MACHINE
from deccaf.data.files import check_output
from deccaf.errors import ConfigError

_MOST_SHOWN = 20
"""Makers of an explanation, on a terminal."""

if TYPE_CHECKING:
    from deccaf.planning import Plan, WhatIf

ModelOption = Annotated[Path, typer.Option(help="Model file that `deccaf fit` wrote.")]
CasesOption = Annotated[Path, typer.Option(help="New cases: case_id, features, optional batch, time.")]
CapacityOption = Annotated[Path, typer.Option(help="Roster: expert_id, upper, optional batch, lower.")]


def assign(
    model: ModelOption,
    cases: CasesOption,
    capacity: CapacityOption,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Plan file: .parquet or .csv.")] = None,
    what_if: Annotated[
        list[str] | None,
        typer.Option(help="Answer without writing: ann=+10, ann=-5 or ann=40 cases in every batch."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="TOML with a [constraints] table that the plan must grant.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check the files.")] = False,
    time_limit: Annotated[float, typer.Option(min=0.1, help="Seconds to plan one batch.")] = 60.0,
    key_file: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Plan new cases: who decides each, within everyone's limits, at the least expected cost of errors.

    The plan is verified, then written whole or not at all. The summary says how many cases everybody gets,
    what the plan, the machine alone and random cases are expected to cost, what everybody's next case (and
    hour, where the log had seconds) would save, and how many cases were close calls. With [constraints], what
    each constraint costs.
    """
    from deccaf.estimator import DeCCaF
    from deccaf.planning import make_plan
    from deccaf.planning import what_if as plan_twice

    if out is None and not what_if and not dry_run:
        raise ConfigError(
            "--out: say where to write the plan, or use --what-if or --dry-run, which write nothing"
        )
    if out is not None:
        check_output(out, [model, cases, capacity, config, key_file])
    changes = _changes(what_if or [])
    constraints = None if config is None else Config.read(config).constraints
    with steps(3) as step, c_output_on_stderr():
        step("Reading the model and the roster")
        fitted, limits = DeCCaF.load(model, read_key(key_file)), Capacity.read(capacity)
        step("Checking cases" if dry_run else "Scoring cases")
        score = not dry_run or constraints is not None
        scored, limits = fitted.believed(cases, limits, constraints=constraints, score=score)
        step("Planning")
        options: dict[str, Any] = {"constraints": constraints, "pace": fitted.pace_}
        options |= {"time_limit": time_limit, "seed": fitted.seed}
        if changes:
            asked = plan_twice(scored, limits, changes, **options)
        else:
            plan = make_plan(scored, limits, **options)
            if out is not None and not dry_run:
                plan.write(out)
    if changes:
        _show_what_if(asked, what_if or [], as_json)
    elif dry_run:
        _show_checked(plan, as_json)
    else:
        _show(plan, as_json)
        say(f"Plan: {out}")


def explain(
    model: ModelOption,
    cases: CasesOption,
    capacity: CapacityOption,
    case: Annotated[str, typer.Option(help="The case_id to explain.")],
    key_file: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say why a case goes where the plan sends it.

    Shows everybody's expected loss and price, who would have been better but for lack of room, and the
    features that moved the estimates.
    """
    from deccaf.estimator import DeCCaF

    fitted, limits = DeCCaF.load(model, read_key(key_file)), Capacity.read(capacity)
    found = fitted.explain(cases, fitted.assign(cases, limits), case=case)
    if as_json:
        print(
            json.dumps(
                {
                    "case": case,
                    "maker": found.chosen,
                    "reason": found.reason,
                    "makers": found.makers.reset_index().to_dict("records"),
                    "features": json.loads(found.features.to_json(orient="records")),
                },
                indent=2,
            )
        )
        return
    table = found.makers.reset_index()
    shown = table[(np.arange(len(table)) < _MOST_SHOWN) | table["maker"].isin([found.chosen, MACHINE])]
    show_table(shown, title=f"Case {case}: {found.chosen}", as_json=False)
    if len(shown) < len(table):
        print(f"{len(table) - len(shown)} more with a larger loss + price; --json has all.")
    print(found.text())


def _show(plan: Plan, as_json: bool) -> None:
    summary, constraints = plan.summary, plan.constraints
    if as_json:
        found = summary.to_dict()
        if constraints is not None:
            found["constraints"] = json.loads(constraints.to_json(orient="records"))
        print(json.dumps(found, indent=2))
        return
    show_table(_makers(summary.makers), title="Who gets what", as_json=False)
    for line in summary.lines():
        print(line)
    if constraints is not None:
        show_table(constraints, title="What each constraint costs", as_json=False)


def _makers(makers: pd.DataFrame) -> pd.DataFrame:
    table = pd.DataFrame(
        {
            "maker": makers.index,
            "cases": [f"{count:,}" for count in makers["cases"]],
            "capacity": ["no limit" if np.isnan(room) else f"{room:,.0f}" for room in makers["capacity"]],
            "next case saves": [f"{price:,.4f}" for price in makers["price"]],
        }
    )
    if makers["next_hour"].notna().any():
        table["next hour saves"] = ["" if np.isnan(v) else f"{v:,.3f}" for v in makers["next_hour"]]
    return table


def _show_checked(plan: Plan, as_json: bool) -> None:
    facts = [("cases", f"{plan.summary.cases:,}"), ("batches that fit", f"{len(plan.prices):,}")]
    facts += [("note", note) for note in plan.summary.notes]
    title = "All files can be used; nothing was written"
    show_table(pd.DataFrame(facts, columns=["what", "found"]), title=title, as_json=as_json)


def _changes(questions: list[str]) -> dict[str, str]:
    """What the options ask for, by maker."""
    changes = {}
    for question in questions:
        name, mark, change = question.partition("=")
        if not mark:
            raise ConfigError(f"--what-if {question}: write it as name=+10, name=-5 or name=40")
        if name.strip() in changes:
            raise ConfigError(f"--what-if {question}: {name.strip()!r} is changed twice")
        changes[name.strip()] = change
    return changes


def _show_what_if(asked: WhatIf, questions: list[str], as_json: bool) -> None:
    """The difference between the two plans."""
    if as_json:
        print(json.dumps(asked.to_dict(), indent=2))
        return
    table = asked.table.reset_index(names="maker")
    table["change"] = [f"{count:+,}" for count in table["change"]]
    names = {"now": "cases now", "then": "cases then"}
    show_table(table.rename(columns=names), title=f"What if {', '.join(questions)}", as_json=False)
    print(
        f"expected cost {asked.now.summary.cost:,.4f} now, {asked.then.summary.cost:,.4f} then: saves "
        f"{asked.saves:,.4f}; nothing was written"
    )
