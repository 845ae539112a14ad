"""`deccaf assign` and `deccaf explain`: today's cases and roster in, a plan out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import pandas as pd
import typer

from deccaf.cli.common import JsonOption, KeyOption, c_output_on_stderr, read_key, say, show_table, steps
from deccaf.data.capacity import Capacity
from deccaf.data.config import Config, ConstraintsTable
from deccaf.data.costs import MACHINE
from deccaf.data.files import read_frames
from deccaf.data.schema import Columns
from deccaf.data.tables import Cases
from deccaf.errors import ConfigError

_MOST_SHOWN = 20
"""Makers of an explanation, on a terminal."""

if TYPE_CHECKING:
    from deccaf.cli.intake import Intake
    from deccaf.estimator import DeCCaF
    from deccaf.planning import Plan

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
    each wish costs.
    """
    from deccaf.cli.intake import take_in
    from deccaf.estimator import DeCCaF
    from deccaf.planning.plan import make_plan

    if out is None and not what_if and not dry_run:
        raise ConfigError(
            "--out: say where to write the plan, or use --what-if or --dry-run, which write nothing"
        )
    wishes = None if config is None else Config.read(config).constraints
    if wishes is not None and (what_if or dry_run):
        raise ConfigError("--config: --what-if and --dry-run do not look at [constraints]; leave it out")
    with steps(3) as step:
        step("Reading the model and the roster")
        fitted, limits = DeCCaF.load(model, read_key(key_file)), Capacity.read(capacity)
        if wishes is not None and out is not None:
            step("Scoring and planning under constraints")
            _assign_with_wishes(fitted, limits, cases, wishes, time_limit, out, as_json)
            return
        step("Checking cases" if dry_run else "Scoring cases")
        frames = read_frames(cases, columns=_needed(fitted))
        waiting = take_in(fitted, frames, limits, score=not dry_run)
        step("Planning")
        pace = getattr(fitted, "pace_", {})
        plan = make_plan(
            waiting.scored, limits, waiting.batch, pace=pace, time_limit=time_limit, seed=fitted.seed
        )
        if dry_run:
            _say_checked(plan, as_json)
            return
        if out is not None and not what_if:
            plan.write(out)
    if what_if:
        _answer(plan, waiting, limits, what_if, time_limit, fitted.seed, as_json)
        return
    _show(plan, as_json)
    say(f"Plan: {out}")


def _assign_with_wishes(
    model: DeCCaF,
    limits: Capacity,
    path: Path,
    wishes: ConstraintsTable,
    time_limit: float,
    out: Path,
    as_json: bool,
) -> None:
    """Plan under [constraints], and show what each wish costs."""
    roles = getattr(model, "columns_", Columns()).model_copy(update={"group": wishes.columns})
    table = Cases.read(path, columns=roles, costs=model.costs_, schema=model.schema_)
    with c_output_on_stderr():
        plan = model.assign(table, limits, constraints=wishes, time_limit=time_limit)
    plan.write(out)
    prices = pd.DataFrame() if plan.wishes is None else plan.wishes
    if as_json:
        found = {**plan.summary.to_dict(), "wishes": json.loads(prices.to_json(orient="records"))}
        print(json.dumps(found, indent=2))
    else:
        _show(plan, as_json=False)
        show_table(prices, title="What each wish costs", as_json=False)
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
    from deccaf.cli.intake import take_in
    from deccaf.estimator import DeCCaF
    from deccaf.planning.plan import make_plan

    fitted, limits = DeCCaF.load(model, read_key(key_file)), Capacity.read(capacity)
    waiting = take_in(fitted, read_frames(cases, columns=_needed(fitted)), limits, keep=[case])
    plan = make_plan(waiting.scored, limits, waiting.batch, seed=fitted.seed)
    found = fitted.explain(waiting.kept, plan)
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


def _needed(model: DeCCaF) -> list[str]:
    """The columns of a cases file that a plan looks at."""
    roles = model.columns_ if hasattr(model, "columns_") else None
    named = [] if roles is None else [roles.case, roles.time, roles.label, *roles.group]
    return [*model.schema_.names, *model.costs_.columns, "case_id", "batch", *named]


def _show(plan: Plan, as_json: bool) -> None:
    summary = plan.summary
    if as_json:
        print(json.dumps(summary.to_dict(), indent=2))
        return
    show_table(_makers(summary.makers), title="Who gets what", as_json=False)
    for line in summary.lines():
        print(line)


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


def _say_checked(plan: Plan, as_json: bool) -> None:
    facts = [("cases", f"{plan.summary.cases:,}"), ("batches that fit", f"{len(plan.prices):,}")]
    facts += [("note", note) for note in plan.summary.notes]
    title = "All files can be used; nothing was written"
    show_table(pd.DataFrame(facts, columns=["what", "found"]), title=title, as_json=as_json)


def _answer(
    plan: Plan,
    waiting: Intake,
    limits: Capacity,
    questions: list[str],
    time_limit: float,
    seed: int,
    as_json: bool,
) -> None:
    """Plan again with the changed roster, and show the difference."""
    from deccaf.planning.plan import changed, make_plan

    for question in questions:
        name, mark, change = question.partition("=")
        if not mark:
            raise ConfigError(f"--what-if {question}: write it as name=+10, name=-5 or name=40")
        limits = changed(limits, name.strip(), change)
    other = make_plan(waiting.scored, limits, waiting.batch, time_limit=time_limit, seed=seed)
    before, after = plan.summary, other.summary
    moved = after.makers["cases"] - before.makers["cases"]
    table = pd.DataFrame(
        {
            "maker": before.makers.index,
            "cases now": before.makers["cases"].to_numpy(),
            "cases then": after.makers["cases"].to_numpy(),
            "change": [f"{count:+,}" for count in moved],
        }
    )
    if as_json:
        answer = {"now": before.to_dict(), "then": after.to_dict(), "saves": before.cost - after.cost}
        print(json.dumps(answer, indent=2))
        return
    show_table(table, title=f"What if {', '.join(questions)}", as_json=False)
    print(
        f"expected cost {before.cost:,.4f} now, {after.cost:,.4f} then: saves "
        f"{before.cost - after.cost:,.4f}; nothing was written"
    )
