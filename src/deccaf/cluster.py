"""Where work is done: in this process, or on a Dask cluster, by pieces.

A cluster is worker processes of this machine (`local:N`), or a scheduler by its address. Every worker has the
same version of deccaf installed. A piece of work whose worker dies is done again by another one; its result
is the same.

    with workers_of("tcp://10.0.0.1:8786"):
        DeCCaF().fit(...)                  # what `each` is asked to do within is spread over the workers
"""

from __future__ import annotations

import re
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from deccaf.errors import ConfigError, DeccafError, DeccafWarning
from deccaf.optional import extra
from deccaf.threads import one_thread

_LOCAL = re.compile(r"local:([1-9]\d*)")
_AHEAD = 2
"""Pieces that wait for each worker."""
_RETRIES = 3
_PATIENCE = 300
"""Seconds after which it is looked whether there are workers at all."""


def check_installed(cluster: str | None) -> None:
    """Fail before the work begins where a cluster is wanted and Dask is not there."""
    if cluster is not None:
        with extra("dask", "--cluster"):
            import distributed  # noqa: F401


@contextmanager
def client_of(cluster: str) -> Iterator[Any]:
    """A Dask client of `local:N`, N worker processes here, or of a scheduler's address (`tcp://...`)."""
    check_installed(cluster)
    import dask
    from distributed import Client, LocalCluster

    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"}):  # cases are large
        found = _LOCAL.fullmatch(cluster)
        if found:
            with (
                LocalCluster(  # type: ignore[no-untyped-call]
                    n_workers=int(found[1]), threads_per_worker=1, dashboard_address=None
                ) as local,
                Client(local) as client,  # type: ignore[no-untyped-call]
            ):
                yield client
            return
        if "://" not in cluster:
            raise ConfigError(
                f"--cluster {cluster!r}: expected an address such as tcp://host:8786, or local:4"
            )
        try:
            client = Client(cluster, timeout=20)  # type: ignore[no-untyped-call]
        except (OSError, ValueError) as error:
            raise ConfigError(f"--cluster {cluster}: no Dask scheduler answers there: {error}") from error
        with client:
            yield client


def _with(function: Callable[..., Any], piece: Any, common: tuple[Any, ...]) -> Any:
    return function(piece, *common)


@dataclass(frozen=True, eq=False)
class Workers:
    """The workers of a cluster: one function, many pieces, results in order."""

    client: Any

    def map(self, function: Callable[..., Any], pieces: Iterable[Any], *common: Any) -> Iterator[Any]:
        """`function(piece, *common)` for every piece; a few are on their way at a time.

        What the pieces have in `common` is sent once, and then from worker to worker.
        """
        from distributed import KilledWorker

        try:
            shared = self.client.submit(tuple, common, pure=False, retries=_RETRIES)
            waiting: deque[Any] = deque()
            for piece in pieces:
                waiting.append(
                    self.client.submit(_with, function, piece, shared, pure=False, retries=_RETRIES)
                )
                if len(waiting) > _AHEAD * self.count:
                    yield self._result(waiting.popleft())
            while waiting:
                yield self._result(waiting.popleft())
        except (KilledWorker, TimeoutError) as error:
            raise DeccafError(
                f"--cluster: workers died, or none is there: {error}; give them more memory, start workers, "
                "and start the same command again; with a --scratch folder it goes on where it was"
            ) from error

    def _result(self, future: Any) -> Any:
        """Of a piece, however long it takes, as long as there is somebody to do it."""
        while True:
            try:
                return future.result(timeout=_PATIENCE)
            except TimeoutError:
                if future.done() or not self._there():
                    raise

    @property
    def count(self) -> int:
        """Workers that are there now."""
        return max(1, self._there())

    def _there(self) -> int:
        return len(self.client.scheduler_info(n_workers=-1)["workers"])


_IN_FORCE: ContextVar[Workers | None] = ContextVar("workers", default=None)


@contextmanager
def workers_of(cluster: str | None) -> Iterator[Workers | None]:
    """The workers of a cluster, in force for everything within; None: what is within is done here."""
    with ExitStack() as stack:
        workers = None if cluster is None else Workers(stack.enter_context(client_of(cluster)))
        before = _IN_FORCE.set(workers)
        try:
            yield workers
        finally:
            _IN_FORCE.reset(before)


def in_force() -> Workers | None:
    """The workers that pieces go to; None: they are done here."""
    return _IN_FORCE.get()


@dataclass(frozen=True)
class _Done:
    """What comes back from a worker: a result, and what was told and warned of on the way."""

    result: Any
    told: tuple[str, ...]
    warned: tuple[str, ...]


def each(
    function: Callable[..., Any],
    pieces: Sequence[Any],
    *common: Any,
    tell: Callable[[str], None] | None = None,
) -> Iterator[Any]:
    """`function(piece, *common)` for every piece, in order: here, or on the workers in force.

    Equal to the last bit wherever it is done, as linear algebra has one thread in either place. A single
    piece is done here, so that the pieces that it consists of are spread. With `tell` the function takes a
    keyword of that name, by which it says what it does; from a worker that is heard when the piece is done.
    """
    workers = in_force()
    if workers is None or len(pieces) < 2:
        more: dict[str, Any] = {} if tell is None else {"tell": tell}
        for piece in pieces:
            yield _by_one_thread(function, piece, *common, **more)
        return
    for done in workers.map(_done, pieces, function, common, tell is not None):
        for text in done.told:
            if tell is not None:
                tell(text)
        for text in done.warned:
            warnings.warn(text, DeccafWarning, stacklevel=2)
        yield done.result


def _by_one_thread(function: Callable[..., Any], *given: Any, **more: Any) -> Any:
    with one_thread():
        return function(*given, **more)


def _done(piece: Any, function: Callable[..., Any], common: tuple[Any, ...], telling: bool) -> _Done:
    """On a worker."""
    told: list[str] = []
    more: dict[str, Any] = {"tell": told.append} if telling else {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DeccafWarning)
        result = _by_one_thread(function, piece, *common, **more)
    warned = dict.fromkeys(str(one.message) for one in caught if issubclass(one.category, DeccafWarning))
    return _Done(result, tuple(told), tuple(warned))
