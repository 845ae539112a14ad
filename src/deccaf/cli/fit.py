"""`deccaf fit`: learn from a history on files, and keep the model in one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from deccaf.cli.common import JsonOption, KeyOption, read_key, say, show_table, steps, warnings_said
from deccaf.data.config import Config
from deccaf.data.tables import Cases, Decisions
from deccaf.errors import ConfigError, DataError


def fit(
    cases: Annotated[Path, typer.Option(help="Past cases: case_id, features, label, optional time, batch.")],
    decisions: Annotated[Path, typer.Option(help="Decision log: case_id, expert_id, decision.")],
    config: Annotated[Path, typer.Option(help="TOML with the tables columns, costs and model.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Model file to write: .deccaf.")],
    until: Annotated[str | None, typer.Option(help="Learn only from cases before this time.")] = None,
    key_file: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Learn from history how likely each truth is and how each expert decides; write one model file.

    The log needs one decision per case or more. Cases without a label yet are counted, and their decisions
    are learned from by what the label probably is. Nothing is retrained when costs or the roster change.
    """
    from deccaf.data.history import check_history
    from deccaf.estimator import DeCCaF

    settings = Config.read(config)
    costs = settings.costs.build()
    if out.suffix != ".deccaf":
        raise ConfigError(f"{out}: a model file ends in .deccaf")
    with steps(3) as step, warnings_said():
        step("Reading")
        table = Cases.read(cases, columns=settings.columns, costs=costs)
        if table.label is None:
            raise DataError(f"{cases}: column {settings.columns.label!r}: missing; fitting needs the truth")
        log = Decisions.read(decisions, classes=costs.classes, cases=table)
        check_history(table, log)
        if until is not None:
            table, log = before(table, log, until)
        step("Learning")
        model = DeCCaF(
            costs,
            method=settings.model.method,
            budget=settings.model.budget,
            review_cost=settings.costs.review_cost,
            half_life=settings.model.half_life,
            case_parts=tuple(settings.model.case_parts),
            decision_parts=tuple(settings.model.decision_parts),
            seed=settings.model.seed,
        ).fit_cases(table, log, columns=settings.columns)
        step("Writing")
        model.save(out, read_key(key_file))
    show_table(_facts(model), title="What was learned from", as_json=as_json)
    say(f"Model: {out}")


def before(cases: Cases, log: Decisions, until: str) -> tuple[Cases, Decisions]:
    """The cases before a time, and their decisions."""
    if cases.time is None:
        raise ConfigError("--until: the cases have no time column; name it under [columns] time")
    try:
        numeric = pd.api.types.is_numeric_dtype(cases.time.dtype)
        stop = float(until) if numeric else pd.Timestamp(until)
    except ValueError as error:
        raise ConfigError(f"--until {until}: the times are {cases.time.dtype}") from error
    past = cases.between(stop=stop)
    if not len(past):
        raise DataError(f"--until {until}: no case is earlier; the first is from {cases.time.min()}")
    return past, log.of(past)


def _facts(model: object) -> pd.DataFrame:
    facts = model.training_  # type: ignore[attr-defined]
    shares = ", ".join(f"{name}: {share:.1%}" for name, share in facts["class_shares"].items())
    each = pd.Series(facts["decisions"])
    rows = [
        ("cases", f"{facts['cases']:,}, {facts['without_label']:,} of them without a label yet"),
        ("labels", shares),
        ("decisions", f"{each.sum():,} by {len(each)} experts ({each.min():,} to {each.max():,} each)"),
        ("method", facts["method"]),
    ]
    if "time" in facts:
        rows.insert(1, ("time", f"{facts['time'][0]} to {facts['time'][1]}"))
    return pd.DataFrame(rows, columns=["what", "found"])
