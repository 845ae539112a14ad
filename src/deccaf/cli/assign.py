"""`deccaf assign` and `deccaf explain`: today's cases and roster in, a plan out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pandas as pd
import typer

from deccaf.cli.common import JsonOption, KeyOption, c_output_on_stderr, read_key, say, show_table, steps
from deccaf.data.amounts import cost
from deccaf.data.capacity import Capacity
from deccaf.data.config import Config
from deccaf.data.costs import MACHINE
from deccaf.data.files import TABLES, check_output
from deccaf.data.review import named_in
from deccaf.data.sources import pipes_kept
from deccaf.errors import ConfigError, did_you_mean

_MOST_SHOWN = 20
"""Makers of an explanation, on a terminal."""
_WEIGHTS = (1.0, 10.0, 4.0, 3.0)
"""How reading, scoring, planning and intervals share the time."""

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deccaf.fitted import FittedTeam
    from deccaf.planning import Plan, Waited, WhatIf, WhatIfs

ModelOption = Annotated[Path, typer.Option(help="Model file that `deccaf fit` wrote.")]
CasesOption = Annotated[
    str, typer.Option(help="New cases: case_id, features, optional batch, time, due, waiting_cost.")
]
CapacityOption = Annotated[str, typer.Option(help="Roster: expert_id, upper, optional batch, lower, kind.")]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        help="Score and plan on a Dask cluster: tcp://HOST:8786, or local:N for N worker processes here. "
        "All workers must see the --scratch folder."
    ),
]
StartOption = Annotated[
    str | None,
    typer.Option(help="When everybody begins, where due times are dates: 2026-05-04T08:00 (now)."),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        help="TOML whose [costs] and [makers] replace those of the model, whose [constraints] are granted, "
        "and whose [waiting] says what waiting costs."
    ),
]


@pipes_kept()
def assign(
    model: ModelOption,
    cases: CasesOption,
    capacity: CapacityOption,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Plan: a .parquet or .csv file, or a folder of parquet files."),
    ] = None,
    what_if: Annotated[
        list[str] | None,
        typer.Option(
            help="Answer without writing: ann=+10, ann=-5 or ann=40 cases in every batch (also people not on "
            "the roster), costs.false_positive=0.1. Several changes of one scenario with commas; every "
            "--what-if is a scenario of its own."
        ),
    ] = None,
    advice: Annotated[
        bool,
        typer.Option(
            "--advice",
            help="Say which machine to ask first on which cases, where its answer is worth its price "
            "before it is decided who decides.",
        ),
    ] = False,
    answers: Annotated[
        Path | None,
        typer.Option(help="Answers of machines that were bought: case_id, expert_id, decision."),
    ] = None,
    config: ConfigOption = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 7 where cases are unlike those learned from.")
    ] = False,
    intervals: Annotated[bool, typer.Option(help="Say how sure the expected losses of people are.")] = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check the files.")] = False,
    start: StartOption = None,
    time_limit: Annotated[float, typer.Option(min=0.1, help="Seconds to plan one batch.")] = 60.0,
    scratch: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the losses of very many cases, in which they stay: the same command started "
            "again goes on there. Without it, a temporary folder where they take more than a third of a "
            "gigabyte."
        ),
    ] = None,
    cluster: ClusterOption = None,
    key_file: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Plan new cases: who decides each, within everyone's limits, at the least expected cost of errors.

    The plan is verified, then written whole or not at all. The summary says how many cases everybody gets,
    what the plan, the machine alone and random cases are expected to cost and by which costs, how far from
    the best plan it can be, what everybody's next case (and hour, where the log had seconds) would save, and
    how many cases were close calls. With [constraints], what each constraint costs.

    Where the cases have `due` (a date, or hours from the start) or `waiting_cost` (an hour of waiting), or
    the configuration has [waiting], the plan also says in which order everybody works and when each case is
    expected to be done; the summary says what waiting costs beside errors, how many cases will be late and
    what one more hour of whom would change. Prices on being late stand in [waiting]. Cases that are unlike
    those that the model learned from are named; with --strict nothing is then planned. Cases may be more than
    memory holds: a parquet file, or a folder of them; the plan then is best written as a folder too.

    Tables are files, folders, patterns, or addresses of tables in DuckDB and PostgreSQL (docs/files.md).

    With --advice the plan has a column `advice`: the machine to ask before it is decided who decides; `maker`
    is who decides if nobody is asked. The summary compares the cost with that of the plan without. Once the
    machines have answered, the same command with --answers plans with what they said.
    """
    from deccaf.planning import Scenario

    if out is None and not what_if and not dry_run:
        raise ConfigError(
            "--out: say where to write the plan, or use --what-if or --dry-run, which write nothing"
        )
    if out is not None:
        inputs: list[str | Path | None] = [model, cases, capacity, config, key_file, answers]
        check_output(out, inputs, TABLES if out.suffix or out.is_file() else ())
    if (scratch is not None or cluster is not None) and (what_if or dry_run):
        raise ConfigError(
            "--scratch, --cluster: are for plans that are written; leave them out with --what-if, --dry-run"
        )
    if (advice or answers is not None) and (what_if or dry_run):
        raise ConfigError(
            "--advice, --answers: are for plans that are written; leave --what-if, --dry-run out"
        )
    scenarios = [Scenario.parse(text) for text in what_if or []]
    with steps(len(_WEIGHTS), _WEIGHTS) as step, c_output_on_stderr():
        step("Reading the model and the roster")
        limits = Capacity.read(capacity)
        people = [name for scenario in scenarios for name in scenario.room]
        fitted, asked = _fitted(model, key_file, config, [*limits.makers, *people])
        options: dict[str, Any] = {**asked, "start": start, "strict": strict, "step": step}
        if dry_run and not scenarios:
            plan = _checked(fitted, cases, limits, time_limit, options)
        elif scenarios:
            changes = [scenario.changes for scenario in scenarios]
            found = fitted.what_ifs(cases, limits, changes, time_limit=time_limit, **options)
        else:
            options |= {"intervals": intervals, "scratch": scratch, "cluster": cluster}
            options |= {"advice": advice, "answers": answers}
            plan = fitted.assign(cases, limits, time_limit=time_limit, **options)
            assert out is not None
            plan.write(out)
    if scenarios:
        _show_what_ifs(found, as_json)
    elif dry_run:
        _show_checked(plan, as_json)
    else:
        _show(plan, as_json)
        say(f"Plan: {out}")


@pipes_kept()
def explain(
    model: ModelOption,
    cases: CasesOption,
    capacity: CapacityOption,
    case: Annotated[str, typer.Option(help="The case_id to explain.")],
    config: ConfigOption = None,
    start: StartOption = None,
    key_file: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say why a case goes where the plan sends it.

    Shows everybody's expected loss and price, who would have been better but for lack of room, and the
    features that moved the estimates. With the --config of `deccaf assign` it is the same plan.
    """
    limits = Capacity.read(capacity)
    fitted, asked = _fitted(model, key_file, config, limits.makers)
    with c_output_on_stderr():
        plan = fitted.assign(cases, limits, **asked, start=start, intervals=False)
    found = fitted.explain(cases, plan, case=case)
    if as_json:
        print(
            json.dumps(
                {
                    "case": case,
                    "maker": found.chosen,
                    "runner_up": found.runner_up,
                    "why": found.why,
                    "reason": found.reason,
                    "costs": fitted.terms.to_dict(),
                    "makers": found.makers.reset_index().to_dict("records"),
                    "features": json.loads(found.features.to_json(orient="records")),
                    "words": json.loads(found.words.to_json(orient="records")),
                    "warnings": [unlike.to_dict() for unlike in plan.summary.warnings],
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
    for line in plan.summary.warning_lines():
        print(line)
    print(found.text())
    print(f"costs: {fitted.terms.words()}")


def _fitted(
    path: Path, key_file: Path | None, config: Path | None, people: Sequence[str]
) -> tuple[FittedTeam, dict[str, Any]]:
    """The model with the costs of the configuration, and what it asks of a plan; without one, nothing."""
    from deccaf.fitted import FittedTeam

    model = FittedTeam.load(path, read_key(key_file))
    if config is None:
        return model, {}
    settings = Config.read(config)
    asked = {"constraints": settings.constraints, "waiting": settings.waiting}
    return with_costs_of(model, settings, config, people), asked


def with_costs_of(model: FittedTeam, settings: Config, path: Path, people: Sequence[str]) -> FittedTeam:
    """The model with the [costs] of a configuration file, which may only name people who are known."""
    if "columns" in settings.model_fields_set and settings.columns != model.columns_:
        say(f"note: {path}: [columns] differs from what the model was fitted with, which is used")
    known = [*people, *model.experts_]
    stray = [name for name in named_in(settings.costs.review_cost) if name not in known]
    if stray:
        hint = did_you_mean(stray[0], known)
        raise ConfigError(
            f"{path}: [costs] review_cost: {stray[0]!r} is neither on the roster nor known to the model{hint}"
        )
    try:
        return model.with_costs(settings.costs.build(), settings.costs.review_cost, settings.makers or None)
    except ConfigError as error:
        raise ConfigError(f"{path}: [costs]: {error}") from error


def _checked(
    fitted: FittedTeam, cases: str, limits: Capacity, time_limit: float, options: dict[str, Any]
) -> Plan:
    """A plan of losses that say nothing, where no constraint looks at them: it shows that one exists."""
    from deccaf.planning import make_plan

    constraints, start = options.get("constraints"), options.pop("start", None)
    scored, limits = fitted.believed(cases, limits, score=constraints is not None, **options)
    options["step"]("Planning")
    return make_plan(
        scored,
        limits,
        constraints=constraints,
        pace=fitted.hourly(),
        time_limit=time_limit,
        seed=fitted.seed,
        waiting=fitted.waits(options.get("waiting"), constraints, start),
    )


def _show(plan: Plan, as_json: bool) -> None:
    summary, constraints = plan.summary, plan.constraints
    if as_json:
        found = summary.to_dict()
        if constraints is not None:
            found["constraints"] = json.loads(constraints.to_json(orient="records"))
        print(json.dumps(found, indent=2))
        return
    warnings = summary.warning_lines()
    for line in warnings:
        print(line)
    show_table(_makers(summary.makers), title="Who gets what", as_json=False)
    if summary.waiting is not None:
        show_table(_waits(summary.waiting), title="Who works how long, and what waits", as_json=False)
    for line in summary.lines()[len(warnings) :]:
        print(line)
    if constraints is not None:
        show_table(constraints, title="What each constraint costs", as_json=False)


def _waits(waiting: Waited) -> pd.DataFrame:
    each = waiting.makers[waiting.makers["hours"] > 0]
    return pd.DataFrame(
        {
            "maker": each.index,
            "hours of work": [f"{value:.1f}" for value in each["hours"]],
            "late": [f"{count:,}" for count in each["late"]],
            "waiting costs": [f"{value:,.2f}" for value in each["waiting"]],
            "an hour more saves": [f"{value:,.2f}" for value in each["hour_saves"]],
        }
    )


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
    summary = plan.summary
    facts = [("cases", f"{summary.cases:,}"), ("batches that fit", f"{len(plan.prices):,}")]
    facts += [("warning", unlike.said) for unlike in summary.warnings]
    facts += [("note", note) for note in summary.notes]
    title = "All files can be used; nothing was written"
    show_table(pd.DataFrame(facts, columns=["what", "found"]), title=title, as_json=as_json)


def _show_what_ifs(asked: WhatIfs, as_json: bool) -> None:
    """The differences between the plans: one scenario by maker, several as one table."""
    if as_json:
        print(json.dumps(asked.to_dict(), indent=2, default=float))
        return
    for line in asked.now.summary.warning_lines():
        print(line)
    if len(asked.answers) == 1:
        _show_one(asked.answers[0])
    else:
        saved = ["" if np.isnan(value) else f"{value:+,.4f}" for value in asked.table["saves"]]
        shown = asked.table.assign(saves=saved)
        names = {
            "cost": "expected cost",
            "kept": "plan as it is, at these costs",
            "moved": "cases moved",
            "people": "cases to people",
        }
        for name in ("cost", "kept"):
            shown[name] = [f"{value:,.4f}" for value in shown[name]]
        show_table(shown.rename(columns=names), title=f"{len(asked.answers)} scenarios", as_json=False)
    notes = dict.fromkeys(note for answer in asked.answers for note in answer.then.summary.notes)
    for line in [*notes, "nothing was written"]:
        print(line)


def _show_one(answer: WhatIf) -> None:
    table = answer.table.reset_index(names="maker")
    table["change"] = [f"{count:+,}" for count in table["change"]]
    names = {"now": "cases now", "then": "cases then"}
    show_table(table.rename(columns=names), title=f"What if {answer.scenario.name}", as_json=False)
    then, kept = answer.then.summary.total, answer.kept
    unit = answer.then.summary.unit
    saved = cost(abs(answer.saves), unit, 4)
    worth = f"saves {saved}" if answer.saves >= 0 else f"costs {saved} more"
    if np.isnan(kept):
        said = f"expected cost {cost(then, unit, 4)} planned for it"
    elif answer.scenario.costs:
        said = (
            f"expected cost {cost(kept, unit, 4)} with the plan as it is, {then:,.4f} planned for it: {worth}"
        )
    else:
        said = f"expected cost {cost(kept, unit, 4)} now, {then:,.4f} then: {worth}"
    if answer.scenario.costs and answer.then.summary.terms is not None:
        print(f"costs then: {answer.then.summary.terms.words()}")
    print(f"{said}; {answer.moved:,} cases move")
