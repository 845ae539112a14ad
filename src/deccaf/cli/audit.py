"""`deccaf audit`: a random sample of decisions to check, and what it says of the whole system."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deccaf.cli.common import JsonOption, SeedOption, say, show_table
from deccaf.data.files import about, check_output, read_frame, write_frame
from deccaf.errors import ConfigError

audit = typer.Typer(
    help="Draw decisions for a quality audit, and estimate precision and recall from what it found.",
    no_args_is_help=True,
)

Decisions = Annotated[
    str, typer.Option(help="All decisions, of people and machine: case_id, decision, one row a case.")
]
By = Annotated[str, typer.Option(help="Further columns of the strata beside the decision, with commas.")]


@audit.command("sample")
def sample(
    decisions: Decisions,
    count: Annotated[int, typer.Option(min=1, help="How many decisions to draw.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write the sample to.")],
    by: By = "",
    expected: Annotated[
        list[str] | None,
        typer.Option(help="'STRATUM=SHARE' of the positive class, for every stratum: narrower intervals."),
    ] = None,
    seed: SeedOption = 0,
) -> None:
    """Draw a stratified random sample of decisions, with every one's exact inclusion probability.

    The file has the decisions' columns, `stratum` and `inclusion`. Add the truth as a column `label`, for
    every row, by people who do not know what was decided; then `deccaf audit estimate`.
    """
    from deccaf.evaluate.audit_sample import draw

    check_output(out, [decisions])
    table = read_frame(decisions, text=["case_id", "decision"])
    shares = _shares(expected)
    with about(decisions):
        found = draw(table, count, seed, _columns(by), shares)
    write_frame(found, out)
    if count > len(table):
        say(f"note: --count {count:,} of {len(table):,} decisions: all of them are in the sample")
    for name, mine in found.groupby("stratum"):
        say(f"{name}: {len(mine):,} drawn, inclusion {mine['inclusion'].iloc[0]:.4g}")
    say(f"Sample: {out}")


@audit.command("estimate")
def estimate(
    decisions: Decisions,
    sample: Annotated[str, typer.Option(help="The sample with the truth in its column `label`.")],
    positive: Annotated[str, typer.Option(help="The class that precision and recall are about.")],
    by: By = "",
    group: Annotated[
        str | None, typer.Option(help="A column of the decisions, for estimates by group.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Estimate precision, recall and accuracy of people and machine together, with 95 % intervals.

    Give the decisions and the columns of the strata that the sample was drawn with.
    """
    from deccaf.evaluate.audit_sample import check_decisions
    from deccaf.evaluate.audit_sample import estimate as estimated

    table = read_frame(decisions, text=["case_id", "decision"])
    with about(decisions):
        check_decisions(table, _columns(by), group)
    audited = read_frame(sample, text=["case_id", "decision", "label"])
    with about(sample):
        found = estimated(table, audited, positive, _columns(by), group)
    show_table(found.round(4), title=f"Of {len(audited):,} audited decisions", as_json=as_json)


def _columns(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()]


def _shares(given: list[str] | None) -> dict[str, float] | None:
    if not given:
        return None
    found = {}
    for one in given:
        name, equals, share = one.rpartition("=")
        try:
            found[name] = float(share)
        except ValueError:
            equals = ""
        if not equals or not 0 <= found[name] <= 1:
            raise ConfigError(f"--expected {one!r}: expected STRATUM=SHARE with a share from 0 to 1")
    return found
