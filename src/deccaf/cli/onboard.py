"""`deccaf onboard`: which labelled cases a newcomer should decide first; their answers count at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deccaf.cli.common import JsonOption, KeyOption, read_key, say, show_table, warnings_said
from deccaf.data.files import check_output, same_file, write_frame
from deccaf.data.sources import pipes_kept, shown
from deccaf.errors import ConfigError, DataError


@pipes_kept()
def onboard(
    model: Annotated[Path, typer.Option(help="Model file that the newcomer comes to.")],
    cases: Annotated[str, typer.Option(help="Labelled cases to choose from: case_id, features, label.")],
    expert: Annotated[str, typer.Option(help="The newcomer's name.")],
    count: Annotated[int, typer.Option(min=1, max=200, help="How many cases to propose.")] = 10,
    new: Annotated[
        str | None, typer.Option(help="Cases to plan, where the choice matters; else the labelled ones.")
    ] = None,
    capacity: Annotated[
        str | None, typer.Option(help="Roster with the newcomer on it: expert_id, upper, optional lower.")
    ] = None,
    decisions: Annotated[
        str | None,
        typer.Option(help="What they decided so far about the labelled cases: case_id, expert_id, decision."),
    ] = None,
    save: Annotated[
        Path | None, typer.Option(help="Model file to write that counts these decisions: .deccaf.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File to write the proposed cases to.")
    ] = None,
    key_file: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Propose the labelled cases that tell most about a newcomer, and count their answers at once.

    Cases are chosen for what knowing the newcomer better is expected to save in the plan, given the costs
    and the roster. With decisions the newcomer is known that well already, the next cases are proposed, and
    `--save` keeps the model that knows it. Nothing is fitted again.
    """
    from deccaf.data.capacity import Capacity
    from deccaf.data.cases import Cases
    from deccaf.data.decisions import Decisions
    from deccaf.fitted import FittedTeam

    if save is not None and decisions is None:
        raise ConfigError("--save: without --decisions there is nothing new to keep")
    if save is not None:
        check_output(save, [model, cases, decisions], (".deccaf",))
    system = FittedTeam.load(model, read_key(key_file))
    with warnings_said():
        table = Cases.read(
            cases,
            columns=system.columns_,
            costs=system.costs_,
            schema=system.schema_,
            require=("label",),
            with_decisions=decisions is not None and same_file(cases, decisions),
        )
        assert table.label is not None
        left = table
        if decisions is not None:
            log = Decisions.read(
                decisions,
                classes=table.classes,
                cases=table,
                roster=[expert],
                columns=system.columns_,
                time_format=system.columns_.time_format,
            )
            at = table.positions(log.case)
            named = system.classes_
            system = system.observe(
                table.take(at), named[table.label[at]], expert=log.expert, decision=named[log.decision]
            )
            rest = [row for row in range(len(table)) if row not in set(at.tolist())]
            if not rest:
                raise DataError(f"{shown(cases)}: all {len(table)} labelled cases are decided already")
            left = table.take(rest)
        roster = None if capacity is None else Capacity.read(capacity)
        assert left.label is not None
        found = system.onboard(
            left,
            system.classes_[left.label],
            expert,
            new=left if new is None else new,
            capacity=roster,
            count=count,
        )
    if save is not None:
        system.save(save, read_key(key_file))
        say(f"Model: {save}")
    if out is not None:
        write_frame(found, out)
    show_table(
        found.round({"saves": 4}), title=f"Cases for {expert}, the most telling first", as_json=as_json
    )
