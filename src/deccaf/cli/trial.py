"""`deccaf trial`: how many cases a trial needs, and what one has shown so far."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deccaf.cli.common import JsonOption, say, show_table, warnings_said
from deccaf.data.sources import pipes_kept, shown
from deccaf.errors import ConfigError, DataError, show

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from deccaf.evaluate.trial import Rules, Terms

trial = typer.Typer(
    help="Plan a trial of a candidate beside today's practice, and read what it has shown so far.",
    no_args_is_help=True,
)

Bound = Annotated[float | None, typer.Option(help="The most that a case costs; more counts as this.")]
Chance = Annotated[float, typer.Option(help="Of a false 'better' ever, and of a false 'harm' ever.")]


@trial.command("plan")
@pipes_kept()
def plan(
    saving: Annotated[float, typer.Option(help="The saving to see, as a share of today's mean cost.")],
    cost: Annotated[float | None, typer.Option(help="Mean cost of a case today; or give a log.")] = None,
    spread: Annotated[
        float | None,
        typer.Option(help="Standard deviation of a case's cost; by default the largest possible."),
    ] = None,
    bound: Bound = None,
    cases: Annotated[str | None, typer.Option(help="Past cases, to take the costs from.")] = None,
    decisions: Annotated[str | None, typer.Option(help="Their decision log.")] = None,
    config: Annotated[Path | None, typer.Option(help="TOML with the tables columns and costs.")] = None,
    share: Annotated[
        list[float] | None, typer.Option(help="Share of the cases for the candidate; may be repeated.")
    ] = None,
    per_day: Annotated[float | None, typer.Option(min=1, help="Cases a day, to count in days too.")] = None,
    power: Annotated[float, typer.Option(help="Chance of having seen the saving by then.")] = 0.8,
    chance: Chance = 0.05,
    as_json: JsonOption = False,
) -> None:
    """Say how many cases are needed to see a saving of a given size.

    `fixed`: for a test of fixed size, which may be looked at once, at the end. `looking`: for a trial whose
    intervals hold however often one looks, to have decided by then with the same chance; `half`: when half of
    such trials have decided.
    """
    import pandas as pd

    from deccaf.evaluate.trial import plan as planned

    if cases is not None and decisions is not None and config is not None:
        with warnings_said():
            known = _costs_of(cases, decisions, config)
        cost = float(known.mean()) if cost is None else cost
        spread = float(known.std(ddof=1)) if spread is None else spread
        bound = float(known.max()) if bound is None else bound
        say(f"{len(known):,} decisions: mean cost {cost:.4g}, deviation {spread:.4g}, at most {bound:.4g}")
    if cost is None or bound is None:
        raise ConfigError("give --cost and --bound, or --cases, --decisions and --config to take them from")
    rows = []
    for part in share or [0.1, 0.25, 0.5]:
        found = planned(cost, saving * cost, part, bound, spread=spread, power=power, chance=chance)
        counts = {"fixed": found.fixed, "looking": found.looking, "half": found.half}
        row: dict[str, object] = {"share": part, **counts}
        if per_day is not None:
            row |= {f"{name}_days": math.ceil(count / per_day) for name, count in counts.items()}
        rows.append(row)
    title = f"Cases of both arms to see a saving of {saving:.0%} of {cost:.4g} with a chance of {power:.0%}"
    show_table(pd.DataFrame(rows), title=title, as_json=as_json)


@trial.command("look")
def look(
    file: Annotated[str, typer.Argument(help="Costs in the order in which they became known: cost, arm "
                                              "(1 the candidate), optional block, expected, time.")],
    share: Annotated[float, typer.Option(help="Share of the cases that went to the candidate by lot.")],
    bound: Annotated[float, typer.Option(help="The most that a case costs; more counts as this.")],
    saving: Annotated[
        float | None, typer.Option(help="Saving per case that the trial was planned for: sooner seen.")
    ] = None,
    spread: Annotated[
        float | None, typer.Option(help="With --saving: standard deviation of a case's cost as planned.")
    ] = None,
    worth: Annotated[float, typer.Option(min=0, help="Least saving per case that is a success.")] = 0.0,
    tolerated: Annotated[float, typer.Option(min=0, help="Loss per case that is not yet harm.")] = 0.0,
    chance: Chance = 0.05,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Read a trial: the saving per case, bounds that hold however often one looks, and the verdict.

    With a column `time` there is a row for every day. With a column `block` whole blocks are compared;
    without, every case was drawn alone. The saving, spread, worth and share must be those settled before the
    trial began.
    """
    import numpy as np
    import pandas as pd

    from deccaf.data.files import about, read_frame
    from deccaf.evaluate import trial as t

    if (saving is None) != (spread is None):
        raise ConfigError("--saving and --spread belong together: both as the trial was planned")
    aim = None if saving is None or spread is None else saving * share * (1 - share) / spread**2
    rules = t.Rules(share, bound, worth, tolerated, chance, aim)
    with about(file):
        frame = _checked(read_frame(file, text=["block"]))
        terms = _terms(frame, rules)
        day, ends = _days(frame)
    above = int((frame["cost"] > bound).sum())
    if above:
        say(f"note: {above:,} of {len(frame):,} costs lie above the bound {bound:g} and count as it")
    found = t.looks(terms, rules, np.searchsorted(terms.after, ends, side="right"))
    table = pd.DataFrame([vars(one) for one in found]).round({"saving": 5, "low": 5, "high": 5})
    if day is not None:
        table.insert(0, "day", day)
    show_table(
        table, title=f"Saving per case, bounds wrong ever with chance {chance:g} each", as_json=as_json
    )


def _costs_of(cases: str, decisions: str, config: Path) -> NDArray[np.float64]:
    """What every labelled decision of a log cost."""
    import numpy as np

    from deccaf.data.config import Config
    from deccaf.data.history import History

    settings = Config.read(config)
    history = History.read(cases, decisions, settings)
    truth = history.label[history.case]
    known = truth >= 0
    if known.sum() < 2:
        raise DataError(
            f"{shown(decisions)}: {known.sum()} decisions have a known truth; costs need at least 2"
        )
    each = settings.costs.build().array(history.amounts)
    rows = history.case[known] if len(each) > 1 else 0
    return np.asarray(each[rows, truth[known], history.decision[known]])


def _checked(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of a trial's file: numbers where numbers belong, nothing missing."""
    import pandas as pd

    from deccaf.data.values import number_in

    missing = [name for name in ("cost", "arm") if name not in frame]
    if missing:
        raise DataError(f"column {missing[0]!r}: missing; a trial needs cost and arm")
    if frame.empty:
        raise DataError("no rows; a trial that has shown nothing yet cannot be read")
    rows = pd.Series(range(1, len(frame) + 1))
    for name, high in (("cost", math.inf), ("arm", 1.0), ("expected", math.inf)):
        found = number_in(frame, name, rows, 0.0, high, row="row")
        if found is not None:
            frame[name] = found
    wrong = {"arm": ~frame["arm"].isin((0.0, 1.0))}
    if "block" in frame:
        wrong["block"] = frame["block"].isna()
    if "time" in frame:
        wrong["time"] = frame["time"].isna()
    said = {"arm": "neither 0 (today's practice) nor 1 (the candidate)"}
    for name, odd in wrong.items():
        if odd.any():
            first = int(odd.to_numpy().argmax())
            raise DataError(
                f"column {name!r}: {odd.sum()} value(s) are {said.get(name, 'missing')}, first: "
                f"{show(frame[name].iloc[first])} in row {rows[first]}"
            )
    return frame


def _terms(frame: pd.DataFrame, rules: Rules) -> Terms:
    from deccaf.evaluate import trial as t

    expected = frame.get("expected", None)
    if "block" not in frame:
        return t.terms_by_case(frame["cost"], frame["arm"], rules, expected)
    size = t.block_of(rules.share)[0]
    return t.terms_by_block(frame["cost"], frame["arm"], frame["block"], rules, expected, size)


def _days(frame: pd.DataFrame) -> tuple[list[str] | None, NDArray[np.int64]]:
    """The days, and how many costs were known at the end of each."""
    import numpy as np
    import pandas as pd

    from deccaf.data.times import parse_times

    if "time" not in frame:
        return None, np.array([len(frame)])
    times = parse_times(frame["time"]).values
    if not pd.api.types.is_datetime64_any_dtype(times.dtype):
        raise DataError(
            f"column 'time': numbers such as {show(times.iloc[0])} are no days; use ISO dates, or leave the "
            "column out for one look at all rows"
        )
    day = times.dt.strftime("%Y-%m-%d")
    back = (day < day.shift(fill_value=day.iloc[0])).to_numpy()
    if back.any():
        first = int(back.argmax())
        raise DataError(
            f"column 'time': {back.sum()} row(s) are earlier than the row before, first: row {first + 1} "
            f"({day.iloc[first]}); rows must stand in the order in which their costs became known"
        )
    counts = day.value_counts(sort=False)
    return list(counts.index), counts.to_numpy().cumsum()
