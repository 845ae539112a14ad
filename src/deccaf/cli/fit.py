"""`deccaf fit`: learn from a history on files, and keep the model in one file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import pandas as pd
import typer

from deccaf.cli.common import JsonOption, KeyOption, read_key, say, show_table, steps, warnings_said
from deccaf.cluster import check_installed, workers_of
from deccaf.data.config import Config
from deccaf.data.files import check_output
from deccaf.data.sources import pipes_kept
from deccaf.errors import ConfigError

if TYPE_CHECKING:
    from deccaf.estimator import DeCCaF


@pipes_kept()
def fit(
    cases: Annotated[str, typer.Option(help="Past cases: case_id, features, label, optional time, batch.")],
    decisions: Annotated[str, typer.Option(help="Decision log: case_id, expert_id, decision.")],
    config: Annotated[Path, typer.Option(help="TOML with the tables columns, costs and model.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Model file to write: .deccaf.")],
    until: Annotated[str | None, typer.Option(help="Learn only from cases before this time.")] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            help="Fit parts and folds on a Dask cluster: tcp://HOST:8786, or local:N for N worker processes "
            "here. The model is the same to the last bit."
        ),
    ] = None,
    scratch: Annotated[
        Path | None,
        typer.Option(
            help="Keep every part of the models that is fitted in this folder: stopped and started again, it "
            "goes on where it was."
        ),
    ] = None,
    key_file: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Learn from history how likely each truth is and how each expert decides; write one model file.

    The log needs one decision per case or more. Cases without a label yet are counted, and their decisions
    are learned from by what the label probably is. Nothing is retrained when costs or the roster change.

    Tables are files, folders, patterns, or addresses of tables in DuckDB and PostgreSQL (docs/files.md).
    """
    check_installed(cluster)
    from deccaf.data.history import History
    from deccaf.estimator import learn_from
    from deccaf.models.blending.kept_parts import parts_kept_in

    settings = Config.read(config)
    if out.suffix != ".deccaf":
        raise ConfigError(f"{out}: a model file ends in .deccaf")
    check_output(out, [cases, decisions, config, key_file], (".deccaf",))
    with parts_kept_in(scratch), steps(4, (1.0, 8.0, 12.0, 1.0)) as step, warnings_said():
        step("Reading")
        history = History.read(cases, decisions, settings)
        if until is not None:
            history = history.before(until)
        with workers_of(cluster):
            model = learn_from(history, settings, lambda note: say(f"note: {note}"), step)
        step("Writing")
        model.save(out, read_key(key_file))
    show_table(_facts(model), title="What was learned from", as_json=as_json)
    say(f"Model: {out}")


def _facts(model: DeCCaF) -> pd.DataFrame:
    facts = model.training_
    shares = ", ".join(f"{name}: {share:.1%}" for name, share in facts["class_shares"].items())
    each = pd.Series(facts["decisions"])
    rows = [
        ("cases", f"{facts['cases']:,}, {facts['without_label']:,} of them without a label yet"),
        ("labels", shares),
        ("decisions", f"{each.sum():,} by {len(each)} experts ({each.min():,} to {each.max():,} each)"),
        ("features", ", ".join(model.schema_.names)),
        ("held out", f"{facts['held_out']}; to choose between models"),
        ("method", facts["method"]),
    ]
    together = getattr(model.learned_, "dependence", None)
    if together is not None:
        rows.append(("errors together", "; ".join(together.lines())))
    if "time" in facts:
        rows.insert(1, ("time", f"{facts['time'][0]} to {facts['time'][1]}"))
    return pd.DataFrame(rows, columns=["what", "found"])
