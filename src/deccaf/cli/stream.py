"""`deccaf stream`: cases as lines of JSON on stdin, assignments as lines of JSON on stdout, at once."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pandas as pd
import typer
from numpy.typing import NDArray

from deccaf.cli.assign import StartOption, with_costs_of
from deccaf.cli.common import KeyOption, read_key, say
from deccaf.data.amounts import cost
from deccaf.data.capacity import ONE_BATCH, Capacity
from deccaf.data.config import Config
from deccaf.data.costs import MACHINE
from deccaf.data.files import read_frame, write_text
from deccaf.data.makers import machines_of, read_makers, with_machines
from deccaf.data.schema import Columns
from deccaf.data.sources import pipes_kept
from deccaf.errors import CapacityError, ConfigError, DataError, DeccafError

if TYPE_CHECKING:
    from deccaf.assign import Routed, StreamAssigner
    from deccaf.cli.stream_waiting import Day, Rules
    from deccaf.evaluate.drift import Comparison
    from deccaf.fitted import FittedTeam

Answer = dict[str, Any]
Score = Callable[[Answer], tuple[list[float], Any]]


@pipes_kept()
def stream(
    capacity: Annotated[str, typer.Option(help="Roster of the day: expert_id, upper, optional lower.")],
    model: Annotated[
        Path | None, typer.Option(help="Model file; without it every line brings its losses.")
    ] = None,
    forecast: Annotated[
        str | None,
        typer.Option(help="Past cases in order of arrival; `batch` tells days apart, `at` is the clock."),
    ] = None,
    arrivals: Annotated[float | None, typer.Option(min=0, help="Cases expected today.")] = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Exactly so many arrive: lower limits hold.")
    ] = False,
    state: Annotated[
        Path | None, typer.Option(help="File to go on from and to leave the state of the day in.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            help="TOML whose [costs] replace those of the model, [waiting] says what waiting costs."
        ),
    ] = None,
    hours: Annotated[
        float | None, typer.Option(min=0.01, help="Length of the day: with it, waiting counts in the bids.")
    ] = None,
    start: StartOption = None,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same assignments.")] = 0,
    key_file: KeyOption = None,
) -> None:
    """Route cases the moment they arrive, within everyone's limits for the day.

    Every line in gives one line out. A case is {"case_id": "a17", ...} with its features, or without a model
    {"case_id": "a17", "loss": {"machine": 0.2, "ann": 0.1}}; `at` is the time, from 0 to 1 of the day. Also
    {"absent": "ann"}, {"change": {"ann": 20}} and {"hand_back": "a17"}. A line that cannot be used is
    answered with an error and changes nothing; the exit code is then 3.

    Where a case has `waiting_cost` (an hour) or `due` (hours from the start of the day, or a date with
    --start), or [waiting] says what waiting costs, what it waits in everybody's queue, and others for its
    sake, counts in the bids. That needs --hours and `at`, and minutes of a case: from the log, or [waiting]
    minutes. Everybody is taken to work through their queue at their usual pace, machines at theirs.

    Machines of [makers] that the model has learned from are there up to their limits, whether the roster
    names them or not.
    """
    from deccaf.cli.stream_waiting import STATE, Day

    roster = Capacity.read(capacity)
    settings = None if config is None else Config.read(config)
    fitted = _load(model, key_file, settings, config, roster.makers)
    if fitted is not None:  # machines have no hours: they are there all day, up to their limits
        roster, notes = with_machines(roster, read_makers(fitted.makers), fitted.experts_)
        for note in notes:
            say(f"note: {note}")
    known = _restored(state)
    desk = known[0] if known else _opened(fitted, roster, forecast, arrivals, exact, seed)
    day = Day(desk.makers, _rules(fitted, settings, hours, start))
    if known and hours is not None:
        day.go_on(known[1])
    failed, comparison = 0, None if fitted is None else fitted.comparison()
    try:
        for answer in answers(desk, sys.stdin, _scores(fitted, desk.makers, comparison), day):
            failed += "error" in answer
            print(json.dumps(answer), flush=True)
    finally:  # what was routed was routed, whatever ended the day
        if state is not None:
            left = desk.to_dict() | ({} if hours is None else {STATE: day.to_dict()})
            write_text(json.dumps(left, allow_nan=False), state)
    _report(desk, "" if fitted is None else fitted.terms.costs.unit)
    for unlike in comparison.found() if comparison is not None else []:
        say(f"warning: cases unlike those that the model learned from: {unlike.said}")
    if failed:
        raise typer.Exit(DataError.exit_code)


def answers(desk: StreamAssigner, lines: Iterable[str], score: Score, day: Day) -> Iterator[Answer]:
    """One answer for every line that is not empty."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
            if not isinstance(found, dict):
                raise DataError("expected an object of JSON")
            yield _answer(desk, found, score, day)
        except (DeccafError, ValueError) as error:
            yield {"line": number, "error": str(error)}


def _answer(desk: StreamAssigner, line: Answer, score: Score, day: Day) -> Answer:
    if "absent" in line:
        desk.absent(str(line["absent"]))
        return {"absent": line["absent"]}
    if "change" in line:
        if not isinstance(line["change"], dict):
            raise DataError('change: expected {"change": {"ann": 20}}')
        desk.change(line["change"])
        return {"change": line["change"]}
    if "hand_back" in line:
        case = str(line["hand_back"])
        return _handed_back(desk, case, day)
    if "case_id" not in line:
        raise DataError("case_id: missing; a line is a case, or absent, change or hand_back")
    case, at = str(line["case_id"]), line.get("at")
    if at is not None and not isinstance(at, int | float):
        raise DataError(f"at: expected a number from 0 to 1, got {at!r}")
    loss, says = score(line)
    came = day.arriving(line, case, loss)
    bids = None if came is None else day.bids(came)
    went = desk.route(loss, case, at, waiting=bids)
    if came is not None:
        day.placed(came, went.position)
    return _routed(case, went, says, bids)


def _handed_back(desk: StreamAssigner, case: str, day: Day) -> Answer:
    came = day.back(case)
    bids = None if came is None else day.bids(came)
    went = desk.hand_back(case, waiting=bids)
    if came is not None:
        day.take_back(case)
        day.placed(came, went.position)
    return _routed(case, went, None, bids)


def _routed(case: str, went: Routed, says: Any, waiting: NDArray[np.float64] | None) -> Answer:
    answer = {"case_id": case, "maker": went.maker, "expected_loss": went.loss, "price": went.price}
    if waiting is not None:
        answer["waiting_cost"] = float(waiting[went.position])
    if went.maker == MACHINE and says is not None:
        answer["decision"] = says
    return answer


def _scores(model: FittedTeam | None, makers: tuple[str, ...], comparison: Comparison | None = None) -> Score:
    """How a line becomes a row of losses; a comparison looks at what was scored."""
    if model is None:
        return lambda line: (_given_losses(line, makers), None)
    experts = [name for name in makers if name != MACHINE]

    def score(line: Answer) -> tuple[list[float], Any]:
        if "loss" in line:
            return _given_losses(line, makers), None
        frame = pd.DataFrame([line])
        found = model.scored(frame, experts)
        if comparison is not None:
            comparison.add(frame, model.schema_.cast(frame))
        by_name = dict(zip(found.makers, found.objective[0].tolist(), strict=True))
        return [by_name[name] for name in makers], found.classes[int(found.says[0])]

    return score


def _rules(
    model: FittedTeam | None, settings: Config | None, hours: float | None, start: str | None
) -> Rules:
    """What is known about waiting."""
    from deccaf.cli.stream_waiting import Rules

    columns = Columns() if model is None else model.columns_
    features, pace = ([], {}) if model is None else (model.schema_.names, model.hourly())
    machines = {} if model is None else machines_of(read_makers(model.makers))
    found = Rules.of(columns, features, None if settings is None else settings.waiting, pace, hours, start)
    return replace(found, machines={name: one.minutes for name, one in machines.items()})


def _given_losses(line: Answer, makers: tuple[str, ...]) -> list[float]:
    """Losses by maker; who is not named may not get the case."""
    given = line.get("loss")
    if not isinstance(given, dict):
        raise DataError(
            'loss: expected {"loss": {"machine": 0.2, "ann": 0.1}}; without a model a case needs it'
        )
    stray = [name for name in given if name not in makers]
    if stray:
        raise DataError(f"loss: {stray[0]!r} is not on the roster")
    if not all(isinstance(value, int | float) for value in given.values()):
        raise DataError("loss: expected numbers")
    return [float(given.get(name, np.inf)) for name in makers]


def _load(
    path: Path | None,
    key_file: Path | None,
    settings: Config | None,
    config: Path | None,
    makers: Sequence[str],
) -> FittedTeam | None:
    """The model, with the costs of the configuration where one is given."""
    if path is None:
        if settings is not None and settings.waiting is None:
            raise ConfigError("--config: costs need --model; without it every line brings its losses")
        return None
    from deccaf.fitted import FittedTeam

    model = FittedTeam.load(path, read_key(key_file))
    if settings is not None and config is not None:
        if settings.constraints is not None:
            say(f"note: {config}: a stream grants no [constraints]; `deccaf assign` does")
        model = with_costs_of(model, settings, config, makers)
    say(f"costs: {model.terms.words()}")
    return model


def _restored(path: Path | None) -> tuple[StreamAssigner, list[Any]] | None:
    """The day as it was left, and what is known of everybody's queue, if there is such a file."""
    from deccaf.assign import StreamAssigner
    from deccaf.cli.stream_waiting import STATE

    if path is None or not path.exists():
        return None
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: is no state of a stream: {error}") from error
    return StreamAssigner.from_dict(data), data.get(STATE, [])


def _opened(
    model: FittedTeam | None,
    roster: Capacity,
    past: str | None,
    arrivals: float | None,
    exact: bool,
    seed: int,
) -> StreamAssigner:
    """A new day."""
    from deccaf.assign import Forecast, StreamAssigner

    if roster.batches != (ONE_BATCH,):
        raise CapacityError(
            f"the roster has {len(roster.batches)} batches; a stream is one day, without batches"
        )
    if exact and arrivals is None:
        raise ConfigError("--exact: say with --arrivals how many cases arrive")
    makers = list(roster.makers)
    upper, lower = (table.loc[ONE_BATCH].to_numpy(np.float64) for table in (roster.upper, roster.lower))
    rows = np.empty((0, len(makers)))
    at = None
    if past is not None:
        if model is None:
            raise ConfigError("--forecast: past cases need --model to be scored")
        rows, days = _past_losses(model, past, makers)
        at = _past_times(past)
        if days is not None:
            parts = [days == day for day in np.unique(days)]
            mixed = Forecast.of_days([rows[p] for p in parts], None if at is None else [at[p] for p in parts])
            known = replace(mixed, arrivals=mixed.arrivals if arrivals is None else arrivals, exact=exact)
            return StreamAssigner(makers, upper, lower, known, seed)
    known = Forecast.of(rows, arrivals, at, exact)
    return StreamAssigner(makers, upper, lower, known, seed)


def _past_losses(model: FittedTeam, path: str, makers: list[str]) -> tuple[Any, Any]:
    """Scored past cases, and the day of each where the file has a batch column."""
    found = model.scored(path, [name for name in makers if name != MACHINE])
    order = [found.makers.index(name) for name in makers]
    return found.objective[:, order], None if found.batch is None else pd.factorize(found.batch)[0]


def _past_times(path: str) -> Any:
    """When in its day each past case came, by the clock, where the file has a column `at`."""
    found = read_frame(path)
    return found["at"].to_numpy(np.float64) if "at" in found else None


def _report(desk: StreamAssigner, unit: str) -> None:
    if not desk.used.sum():
        say("no cases")
        return
    found = desk.regret()
    used = ", ".join(f"{name} {count}" for name, count in zip(desk.makers, desk.used, strict=True))
    said = cost(found.cost, unit, 4)
    say(
        f"{desk.used.sum()} cases, expected cost {said}: {found.share:.2%} above the best "
        f"plan in hindsight (greedy routing: {found.greedy_share:.2%}); {used}"
    )
