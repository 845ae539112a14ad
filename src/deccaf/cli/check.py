"""`deccaf check`: what deccaf understands of a user's files, before anything is fitted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from deccaf.cli.common import JsonOption, show_table, warnings_said
from deccaf.data.capacity import Capacity
from deccaf.data.cases import Cases
from deccaf.data.config import Config
from deccaf.data.costs import MACHINE
from deccaf.data.decisions import Decisions


def check(
    cases: Annotated[Path, typer.Option(help="Cases: case_id and features, optional label, time, batch.")],
    config: Annotated[Path, typer.Option(help="TOML with the tables columns, costs and model.")],
    decisions: Annotated[
        Path | None, typer.Option(help="Decision log: case_id, expert_id, decision.")
    ] = None,
    capacity: Annotated[
        Path | None, typer.Option(help="Roster: expert_id, upper, optional batch, lower.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check files and say what was understood of them; nothing is written.

    A file that cannot be used is named with the column, how many values are wrong, the first of them, and
    what to do. With decisions, the log may only name cases of the cases file; with a roster, every batch
    of cases must fit.
    """
    settings = Config.read(config)
    with warnings_said():
        table = Cases.read(cases, columns=settings.columns, costs=settings.costs.build())
    facts = _about_cases(table)
    if decisions is not None:
        facts += _about_decisions(Decisions.read(decisions, classes=table.classes, cases=table))
    if capacity is not None:
        facts += _about_capacity(Capacity.read(capacity), table)
    show_table(pd.DataFrame(facts, columns=["what", "found"]), title="All files can be used", as_json=as_json)


def _about_cases(cases: Cases) -> list[tuple[str, str]]:
    kinds = [feature.kind for feature in cases.schema.features]
    missing = cases.features.isna().mean()
    facts = [
        ("cases", f"{len(cases):,}"),
        ("features", f"{kinds.count('number')} numbers, {kinds.count('category')} categories"),
    ]
    if missing.max() > 0:
        facts.append(("most often missing", f"{missing.idxmax()} ({missing.max():.1%})"))
    if cases.label is not None:
        names = {-1: "not known yet", **dict(enumerate(cases.classes))}
        shares = {name: float((cases.label == code).mean()) for code, name in names.items()}
        facts.append(("labels", ", ".join(f"{name}: {share:.1%}" for name, share in shares.items() if share)))
    if cases.time is not None:
        facts.append(("time", f"{cases.time.min()} to {cases.time.max()}"))
    if cases.batch is not None:
        facts.append(("batches", f"{cases.batch.nunique():,}"))
    return facts


def _about_decisions(log: Decisions) -> list[tuple[str, str]]:
    each = log.expert.value_counts()
    return [
        ("decisions", f"{len(log):,} on {log.case.nunique():,} cases"),
        (
            "experts",
            f"{len(each)}, with {each.min():,} to {each.max():,} decisions (median {each.median():,.0f})",
        ),
        ("propensities", "given" if log.propensity is not None else "not given"),
    ]


def _about_capacity(capacity: Capacity, cases: Cases) -> list[tuple[str, str]]:
    batches = ["all"] * len(cases) if cases.batch is None else cases.batch
    sizes = Counter(batches)
    for batch, size in sizes.items():
        capacity.limits(capacity.makers, size, None if cases.batch is None else batch)
    people = [name for name in capacity.makers if name != MACHINE]
    return [
        ("roster", f"{len(people)} experts"),
        ("batches that fit", f"{len(sizes):,} of {len(sizes):,}"),
    ]
