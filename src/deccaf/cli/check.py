"""`deccaf check`: what deccaf understands of a user's files, before anything is fitted."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pandas as pd
import typer

from deccaf.cli.common import JsonOption, say, show_table, warnings_said
from deccaf.data.capacity import Capacity
from deccaf.data.cases import Cases
from deccaf.data.config import Config
from deccaf.data.costs import MACHINE
from deccaf.data.decisions import Decisions
from deccaf.data.files import same_file
from deccaf.data.history import History
from deccaf.data.profile import ColumnProfile
from deccaf.data.sources import pipes_kept

if TYPE_CHECKING:
    from deccaf.evaluate.audit import Audit


@pipes_kept()
def check(
    cases: Annotated[str, typer.Option(help="Cases: case_id and features, optional label, time, batch.")],
    config: Annotated[Path, typer.Option(help="TOML with the tables columns, costs and model.")],
    decisions: Annotated[str | None, typer.Option(help="Decision log: case_id, expert_id, decision.")] = None,
    capacity: Annotated[
        str | None, typer.Option(help="Roster: expert_id, upper, optional batch, lower, kind.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check files and say what was understood of them; nothing is written.

    Every column is shown with its part, and what looks like a leak with the reason. A file that cannot be
    used is named with the column, how many values are wrong, the first of them, and what to do. With
    decisions, the log may only name cases of the cases file; with a roster, every batch of cases must fit.
    Cases for a roster without decisions are new cases: they need no label.

    Tables are files, folders, patterns, or addresses of tables in DuckDB and PostgreSQL (docs/files.md).
    """
    from deccaf.evaluate.audit import audit
    from deccaf.evaluate.proposal import described

    settings = Config.read(config)
    new = capacity is not None and decisions is None
    costs = settings.costs.build()
    with warnings_said() as said:
        table, frame = Cases.read_with_rows(
            cases,
            columns=settings.columns,
            costs=costs,
            optional=("label", "time") if new else (),
            with_decisions=decisions is not None and same_file(cases, decisions),
        )
        facts, people, looked = _about_cases(table), set(), None
        if decisions is not None:
            form = settings.columns.time_format
            log = Decisions.read(
                decisions, classes=table.classes, cases=table, columns=settings.columns, time_format=form
            )
            facts |= _about_decisions(log)
            people |= set(log.experts)
        if capacity is not None:
            room = Capacity.read(capacity)
            facts |= _about_capacity(room, table)
            people |= set(room.makers)
        if people:
            settings.check_people(people, "the log and the roster")
        if table.label is not None:
            looked = audit(
                History.of(table, log if decisions is not None else None), settings.columns, settings.labels
            )
    columns = described(frame, settings, table, looked, said)
    notes = [*settings.notes(), *(_notes(looked, decisions is not None) if looked is not None else [])]
    _show(facts, columns, looked, notes, as_json)


def column_table(columns: list[ColumnProfile]) -> pd.DataFrame:
    """The columns as a table for people."""
    return pd.DataFrame(
        {
            "column": [one.column for one in columns],
            "part": [one.part for one in columns],
            "kind": [one.kind for one in columns],
            "missing": [f"{one.missing:.1%}" if one.missing else "" for one in columns],
            "example": [one.example for one in columns],
            "note": [one.note for one in columns],
        }
    )


def _notes(looked: Audit, decided: bool) -> list[str]:
    refusal = looked.learnable.refusal()
    notes = [] if refusal is None or not decided else [f"fit would refuse this: {refusal}"]
    return [*notes, *(looked.notes if decided else looked.faults)]


def _show(
    facts: dict[str, str], columns: list[ColumnProfile], looked: Audit | None, notes: list[str], as_json: bool
) -> None:
    if as_json:
        found: dict[str, Any] = {"facts": facts, "columns": [asdict(one) for one in columns], "notes": notes}
        if looked is not None:
            found |= looked.to_dict()
        print(json.dumps(json.loads(pd.Series([found]).to_json(orient="records"))[0], indent=2))
        return
    show_table(column_table(columns), title="Columns of the cases", as_json=False)
    table = pd.DataFrame(list(facts.items()), columns=["what", "found"])
    show_table(table, title="All files can be used", as_json=False)
    for note in notes:
        say(f"note: {note}")


def _about_cases(cases: Cases) -> dict[str, str]:
    kinds = [feature.kind for feature in cases.schema.features]
    missing = cases.features.isna().mean()
    words = {"number": "numbers", "category": "categories", "text": "texts", "vector": "vectors"}
    found = [f"{kinds.count(kind)} {word}" for kind, word in words.items() if kind in kinds]
    counts = f"({', '.join(found)})"
    facts = {"cases": f"{len(cases):,}", "features": f"{', '.join(cases.schema.names)} {counts}"}
    if missing.max() > 0:
        facts["most often missing"] = f"{missing.idxmax()} ({missing.max():.1%})"
    if cases.label is not None:
        names = {-1: "not known yet", **dict(enumerate(cases.classes))}
        shares = {name: float((cases.label == code).mean()) for code, name in names.items()}
        facts["labels"] = ", ".join(f"{name}: {share:.1%}" for name, share in shares.items() if share)
    if cases.time is not None:
        facts["time"] = f"{cases.time.min()} to {cases.time.max()}"
    if cases.batch is not None:
        facts["batches"] = f"{cases.batch.nunique():,}"
    return facts


def _about_decisions(log: Decisions) -> dict[str, str]:
    each = log.expert.value_counts()
    spread = f"{each.min():,} to {each.max():,} decisions (median {each.median():,.0f})"
    return {
        "decisions": f"{len(log):,} on {log.case.nunique():,} cases",
        "experts": f"{len(each)}, with {spread}",
        "propensities": "given" if log.propensity is not None else "not given",
    }


def _about_capacity(capacity: Capacity, cases: Cases) -> dict[str, str]:
    batches = ["all"] * len(cases) if cases.batch is None else cases.batch
    sizes = Counter(batches)
    for batch, size in sizes.items():
        capacity.limits(capacity.makers, size, None if cases.batch is None else batch)
    people = [name for name in capacity.makers if name != MACHINE and name not in capacity.machines]
    machines = f" and {len(capacity.machines)} machines" if capacity.machines else ""
    return {
        "roster": f"{len(people)} experts{machines}",
        "batches that fit": f"{len(sizes):,} of {len(sizes):,}",
    }
