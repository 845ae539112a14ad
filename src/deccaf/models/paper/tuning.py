"""Search for hyper-parameters: the paper's spaces, budgets, and studies that can be stopped and resumed.

What is guaranteed. With one job, the parameters of trial k depend only on the seed, k and the k trials
completed before it: the same seed gives the same trials, also when the search was killed in between and
resumed from its storage. With several jobs it matters which trials have ended when the next one begins, so
results may differ from run to run. A study is continued to the wanted number of *completed* trials and
no completed trial is run again; a study of another space, seed, start-up or data is refused.
"""

from __future__ import annotations

import hashlib
import json
import math
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import joblib
import numpy as np
import pandas as pd

from deccaf.errors import ConfigError
from deccaf.models.budgets import Choice, Range, Space
from deccaf.models.paper.spaces import Budget, Search
from deccaf.optional import extra

with extra("search", "a search for hyper-parameters"):
    import optuna
    from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback
    from optuna.trial import FrozenTrial, Trial, TrialState

Params = dict[str, Any]
Objective = Callable[[Params], float]
Progress = Callable[[int, int, float], None]
"""Called after each trial with (completed, wanted, best loss so far)."""

HEARTBEAT, GRACE = 30, 120
"""Seconds between signs of life of a running trial, and without one until it counts as dead."""
_FINGERPRINT = "deccaf"


@dataclass(frozen=True)
class Tuned:
    """The best parameters, fixed ones included, and all completed trials in order."""

    params: Params
    loss: float
    trials: pd.DataFrame
    """`trial`, `loss`, `seconds` and one column per parameter that was searched."""


@dataclass(frozen=True)
class _Study:
    """What a worker needs to open the study and run one trial of it."""

    name: str
    storage: str | None
    space: Space
    startup: int
    seed: int
    jobs: int


def tune(
    objective: Objective,
    search: Search,
    budget: str | Budget,
    *,
    seed: int = 0,
    storage: str | None = None,
    study: str | None = None,
    data: str = "",
    jobs: int = 1,
    before: pd.DataFrame | None = None,
    progress: Progress | None = None,
) -> Tuned:
    """Minimise `objective` over a search's space.

    Parameters
    ----------
    objective
        Gives the loss of a set of parameters; NaN counts as infinitely bad. It must be picklable when
        `jobs` > 1.
    budget
        `quick`, `standard`, `paper`, or trials and start-up trials of your own.
    storage
        Database URL such as `sqlite:///studies.db`; by default nothing is kept.
    study
        Name in the storage, by which a search is resumed; by default search and budget.
    data
        Whatever identifies the data, such as a hash; a stored study of other data is refused.
    jobs
        Processes that run trials at the same time.
    before
        Completed trials of the same search (`Tuned.trials`), to go on from without a storage: with one job
        the outcome is that of a search in one go.
    """
    wanted = search.budget(budget)
    name = study or f"{search.name}-{budget if isinstance(budget, str) else wanted.trials}"
    with tempfile.TemporaryDirectory() as folder, _quiet():
        if storage is None and jobs > 1:
            storage = f"sqlite:///{folder}/study.db"
        work = _Study(name, storage, search.space, wanted.startup, seed, jobs)
        opened = _open(work)
        _check_same(opened, _fingerprint(work, data))
        if before is not None:
            opened.add_trials(_made(before, search.space))
        run = _run_serially if jobs == 1 else _run_in_parallel
        run(work, opened, objective, wanted.trials, progress)
        found = _best(_completed(opened)[: wanted.trials], search.space)
    if before is not None:
        found.trials.loc[: len(before) - 1, "seconds"] = before["seconds"].to_numpy()
    return found


def _run_serially(
    work: _Study, study: optuna.Study, objective: Objective, wanted: int, progress: Progress | None
) -> None:
    while (done := len(_completed(study))) < wanted:
        _one_trial(work, study, objective, done)
        _report(progress, study, wanted)


def _run_in_parallel(
    work: _Study, study: optuna.Study, objective: Objective, wanted: int, progress: Progress | None
) -> None:
    parallel = joblib.Parallel(n_jobs=work.jobs, return_as="generator_unordered", pre_dispatch="n_jobs")
    while (done := len(_completed(study))) < wanted:
        for _ in parallel(joblib.delayed(_in_worker)(work, objective, k) for k in range(done, wanted)):
            _report(progress, study, wanted)


def _in_worker(work: _Study, objective: Objective, number: int) -> None:
    with _quiet():
        _one_trial(work, _opened_once(work.name, work.storage, work.jobs), objective, number)


def _one_trial(work: _Study, study: optuna.Study, objective: Objective, number: int) -> None:
    """Run the trial that follows `number` completed ones; its sampler is new, so that no state is carried."""
    study.sampler = optuna.samplers.TPESampler(
        n_startup_trials=work.startup,
        seed=int(np.random.SeedSequence([work.seed, number]).generate_state(1)[0]),
        constant_liar=work.jobs > 1,
    )

    def loss(trial: Trial) -> float:
        value = float(objective(_suggest(trial, work.space)))
        return math.inf if math.isnan(value) else value

    study.optimize(loss, n_trials=1)


def _suggest(trial: Trial, space: Space) -> Params:
    params: Params = {}
    for name, values in space.items():
        if isinstance(values, Choice):
            params[name] = trial.suggest_categorical(name, values.options)
        elif isinstance(values, Range) and values.whole:
            params[name] = trial.suggest_int(name, int(values.low), int(values.high), log=values.log)
        elif isinstance(values, Range):
            params[name] = trial.suggest_float(name, values.low, values.high, log=values.log)
        else:
            params[name] = values
    return params


def _made(trials: pd.DataFrame, space: Space) -> list[FrozenTrial]:
    """Trials as a study has them, from the table of those that were completed."""
    ranges = {name: _distribution(v) for name, v in space.items() if isinstance(v, Range | Choice)}
    return [
        optuna.trial.create_trial(
            params={name: _plain(row[name]) for name in ranges},
            distributions=ranges,
            value=float(row["loss"]),
        )
        for row in trials.to_dict("records")
    ]


def _distribution(values: Range | Choice) -> optuna.distributions.BaseDistribution:
    if isinstance(values, Choice):
        return optuna.distributions.CategoricalDistribution(values.options)
    if values.whole:
        return optuna.distributions.IntDistribution(int(values.low), int(values.high), log=values.log)
    return optuna.distributions.FloatDistribution(values.low, values.high, log=values.log)


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def _open(work: _Study) -> optuna.Study:
    """The study, new or as it was left."""
    storage = None if work.storage is None else _database(work.storage, retry=work.jobs > 1)
    return optuna.create_study(study_name=work.name, storage=storage, load_if_exists=True)


@cache
def _opened_once(name: str, storage: str, jobs: int) -> optuna.Study:
    """The study in a worker, which opens the storage itself and keeps it open."""
    return optuna.load_study(study_name=name, storage=_database(storage, retry=jobs > 1))


def _database(url: str, *, retry: bool) -> RDBStorage:
    """A storage that notices trials whose process died.

    With several jobs a dead trial is queued again. With one it is not: the next trial has the same number of
    completed trials before it and therefore the same parameters anyway.
    """
    try:
        return RDBStorage(
            url,
            engine_kwargs={"connect_args": {"timeout": 60}} if url.startswith("sqlite") else None,
            heartbeat_interval=HEARTBEAT,
            grace_period=GRACE,
            heartbeat_stale_trial_callback=RetryHeartbeatStaleTrialCallback(max_retry=3) if retry else None,
        )
    except Exception as error:
        raise ConfigError(f"tuning: cannot open the storage {url!r}: {error}".splitlines()[0]) from error


def _fingerprint(work: _Study, data: str) -> str:
    spaces = {name: repr(values) for name, values in work.space.items()}
    text = json.dumps([spaces, work.startup, work.seed, data], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _check_same(study: optuna.Study, fingerprint: str) -> None:
    known = study.user_attrs.get(_FINGERPRINT)
    if known is None:
        study.set_user_attr(_FINGERPRINT, fingerprint)
    elif known != fingerprint:
        raise ConfigError(
            f"tuning: study {study.study_name!r} was begun with another space, seed, number of start-up "
            "trials or data; give another study name or delete the old one"
        )


def _completed(study: optuna.Study) -> list[FrozenTrial]:
    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))


def _report(progress: Progress | None, study: optuna.Study, wanted: int) -> None:
    if progress is not None:
        losses = [trial.value for trial in _completed(study) if trial.value is not None]
        progress(len(losses), wanted, min(losses, default=math.inf))


def _best(trials: list[FrozenTrial], space: Space) -> Tuned:
    rows = [
        {
            "trial": number,
            "loss": trial.value,
            "seconds": trial.duration.total_seconds() if trial.duration else math.nan,
            **trial.params,
        }
        for number, trial in enumerate(trials)
    ]
    table = pd.DataFrame(rows)
    best = int(table["loss"].argmin())
    if not math.isfinite(table["loss"].iloc[best]):
        raise ConfigError(f"tuning: none of {len(trials)} trials gave a finite loss")
    fixed = {name: values for name, values in space.items() if not isinstance(values, Range | Choice)}
    return Tuned({**fixed, **trials[best].params}, float(table["loss"].iloc[best]), table)


@contextmanager
def _quiet() -> Iterator[None]:
    """Optuna reports every trial on stderr and calls heartbeats experimental; here the caller reports."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(before)
