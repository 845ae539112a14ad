"""`deccaf show`: what a model file holds: what was learned from, and how everybody decides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pandas as pd
import typer

from deccaf.cli.common import JsonOption, KeyOption, read_key, say, show_table
from deccaf.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deccaf.evaluate.people import People

_FEATURES = 8
"""Features that are named on a terminal."""


def show(
    model: Annotated[Path, typer.Argument(help="Model file that `deccaf fit` wrote.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Picture (.png) or page (.html) to write.")
    ] = None,
    key_file: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what a model learned: classes, costs, features, the time span, and how everybody decides.

    For each person the error rates with 95 % intervals, overall and by truth, the class they lean to, their
    pace, and the parts of the cases in which they err clearly less (strong) or more (weak) than the others do
    there. These are counts of the history; whoever got harder cases errs more.
    """
    from deccaf.fitted import FittedTeam

    if out is not None and out.suffix not in {".png", ".html"}:
        raise ConfigError(f"--out {out}: a picture ends in .png, a page in .html")
    fitted = FittedTeam.load(model, read_key(key_file))
    people = fitted.people()
    if out is not None:
        from deccaf.report.people import write_people

        write_people(people, out, title=f"What {model.name} learned")
    if as_json:
        print(json.dumps(people.to_dict(), indent=2))
    else:
        _show(people, fitted.terms.words())
    if out is not None:
        say(f"Picture: {out}" if out.suffix == ".png" else f"Page: {out}")


def _show(people: People, costs: str) -> None:
    show_table(about_table(people, costs), title="The model", as_json=False)
    if len(people.table):
        show_table(people_table(people), title="How people decide", as_json=False)
    for name in people.table.index:
        for kind, words in people.told(str(name)).items():
            if words:
                print(f"{name} is {kind} where {words}")
    for words in people.missing:
        print(f"not known: {words}")


def about_table(people: People, costs: str) -> pd.DataFrame:
    """What the model is, as rows of words."""
    about = people.about
    names = [one["name"] for one in about["features"]]
    more = f" and {len(names) - _FEATURES} more" if len(names) > _FEATURES else ""
    kinds = [one["kind"] for one in about["features"]]
    rows = [
        ("method", about["method"]),
        ("learned from", f"{about['cases']:,} cases, {about['without_label']:,} of them without a label yet"),
        ("classes", ", ".join(f"{name}: {share:.1%}" for name, share in about["classes"].items())),
        ("costs", costs),
        ("features", f"{kinds.count('number')} numbers, {kinds.count('category')} categories: "
                     f"{', '.join(names[:_FEATURES])}{more}"),
    ]  # fmt: skip
    if about["time"] is not None:
        rows.insert(2, ("time", f"{about['time'][0]} to {about['time'][1]}"))
    return pd.DataFrame(rows, columns=["what", "found"])


def people_table(people: People) -> pd.DataFrame:
    """Error rates with intervals, leaning and pace, as words; the team last."""
    rows = [_words(name, row, people) for name, row in people.rows()]
    return pd.DataFrame([*rows, _words("the team", people.team.to_dict(), people)])


def _words(name: str, row: Mapping[Any, Any], people: People) -> dict[str, str]:
    found = {"who": name, "decisions": f"{row['decisions']:,}", "errors": _share(row, "")}
    found |= {f"errors if {one}": _share(row, f"_{one}") for one in people.classes}
    lean = ""
    if row["leaning"] is not None and row["leaning_low"] > 0:
        lean = f"to {row['leaning']} by {100 * row['leaning_by']:.1f} points"
    return {**found, "leans": lean, "cases an hour": "" if np.isnan(row["pace"]) else f"{row['pace']:,.0f}"}


def _share(row: Mapping[Any, Any], suffix: str) -> str:
    rate = row[f"error_rate{suffix}"]
    if np.isnan(rate):
        return ""
    return f"{rate:.1%} ({row[f'low{suffix}']:.1%} to {row[f'high{suffix}']:.1%})"
