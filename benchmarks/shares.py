"""Where a plan's time goes: shares of reading, encoding, each part, loss, solve, check, intervals, writing.

    python benchmarks/shares.py --sizes 100000x50 100000x200

A team is simulated and learned from as in `benchmarks/scale.py`; the plan is made in this process, with a
clock around each stage that stops while another stage inside it runs. Seconds are the processor's, of all
threads.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import wraps
from inspect import isgenerator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import scale
from deccaf.data.capacity import Capacity
from deccaf.fitted import FittedTeam


class Clock:
    """Processor seconds by stage; a stage inside another one does not count for the outer one."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """From nothing again."""
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._stack, self._since = ["the rest"], time.process_time()

    def enter(self, stage: str | None) -> None:
        """Another stage begins, or (None) the last one ends."""
        now = time.process_time()
        self.seconds[self._stack[-1]] += now - self._since
        self._since = now
        if stage is None:
            self._stack.pop()
        else:
            self._stack.append(stage)

    def _pieces(self, pieces: Iterator[Any], stage: str) -> Iterator[Any]:
        """A generator, whose work is done between its pieces."""
        while True:
            self.enter(stage)
            try:
                piece = next(pieces)
            except StopIteration:
                return
            finally:
                self.enter(None)
            yield piece

    def around(self, home: Any, name: str, stage: str) -> None:
        """Put the clock around a function or method."""
        found = getattr(home, name)
        inner: Callable[..., Any] = getattr(found, "__func__", found)

        @wraps(inner)
        def timed(*args: Any, **kwargs: Any) -> Any:
            self.enter(stage)
            try:
                result = inner(*args, **kwargs)
            finally:
                self.enter(None)
            return self._pieces(result, stage) if isgenerator(result) else result

        setattr(home, name, classmethod(timed) if isinstance(vars(home).get(name), classmethod) else timed)


def clocked() -> Clock:
    """Clocks around all stages of a plan."""
    from deccaf import fitted
    from deccaf.data import cases
    from deccaf.models import expected_cost
    from deccaf.models.cases import classifier
    from deccaf.models.cases.boosted import BoostedCases
    from deccaf.models.cases.logistic import LogisticCases
    from deccaf.models.decisions.boosted import BoostedDecisions
    from deccaf.models.decisions.pooled import PooledLogistic
    from deccaf.models.decisions.rates import ShrunkenRates
    from deccaf.models.linear import encoding
    from deccaf.planning import intake, plan, planner

    clock = Clock()
    for home, name, stage in (
        (fitted, "read_model_file", "reading the model"),
        (cases, "read_frames", "reading"),
        (cases.Cases, "from_frame", "checking features"),
        (intake.Intake, "_count", "comparing with the history"),
        (encoding.LinearEncoder, "transform", "encoding for linear models"),
        (encoding.TreeEncoder, "transform", "encoding for trees"),
        (classifier.CaseClassifier, "predict", "truths: blend and calibration"),
        (LogisticCases, "log_chances", "truths: logistic"),
        (BoostedCases, "log_chances", "truths: trees"),
        (expected_cost.DecisionModel, "log_odds", "decisions: blend and calibration"),
        (ShrunkenRates, "log_odds", "decisions: rates"),
        (PooledLogistic, "log_odds", "decisions: logistic"),
        (BoostedDecisions, "log_odds", "decisions: trees"),
        (expected_cost, "two_class_losses", "loss"),
        (planner, "solve_batches", "solve"),
        (planner, "verify", "check"),
        (planner, "random_cost", "random sharing"),
        (fitted, "make_plan", "the plan's table"),
        (fitted.FittedTeam, "_with_intervals", "intervals"),
        (plan.Plan, "write", "writing"),
    ):
        clock.around(home, name, stage)
    return clock


def shares(size: str, past: int, model: Path | None, clock: Clock) -> None:
    """Print the table of one size; with a `model` of such a team nothing is learned."""
    count, people = (int(part) for part in size.split("x"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        scale.write_world(folder, count, people, past)
        known = ["--cases", "past.parquet", "--decisions", "log.parquet", "--config", "deccaf.toml"]
        if model is None:
            scale.run(scale.HERE, folder, "fit", *known, "--out", "team.deccaf")
        else:
            shutil.copy(model, folder / "team.deccaf")
        clock.begin()
        team = FittedTeam.load(folder / "team.deccaf")
        plan = team.assign(folder / "cases.parquet", Capacity.read(folder / "roster.csv"), time_limit=600)
        plan.write(folder / "plan.parquet")
        clock.enter(None)
    total = sum(clock.seconds.values())
    print(f"{count:,} x {people}: {total:.1f} s")
    for stage, seconds in sorted(clock.seconds.items(), key=lambda item: -item[1]):
        print(f"{seconds:8.2f} s {100 * seconds / total:5.1f} %  {stage}", flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Print a table for every size."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--sizes", nargs="+", default=["100000x50"])
    parser.add_argument("--past", type=int, default=40_000, help="decisions to learn from")
    parser.add_argument("--model", type=Path, help="a model that was fitted on such a history before")
    asked = parser.parse_args(arguments)
    clock = clocked()
    for size in asked.sizes:
        shares(size, asked.past, asked.model, clock)
    return 0


if __name__ == "__main__":
    sys.exit(main())
