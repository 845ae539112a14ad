"""Work on a Dask cluster: worker processes of this machine (`local:N`), or a scheduler by its address.

Every worker has the same version of deccaf installed. A piece of work whose worker dies is done again by
another one; its result is the same.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from deccaf.errors import ConfigError, DeccafError
from deccaf.optional import extra

_LOCAL = re.compile(r"local:([1-9]\d*)")
_AHEAD = 2
"""Pieces that wait for each worker."""
_RETRIES = 3


def check_installed(cluster: str | None) -> None:
    """Fail before the work begins where a cluster is wanted and Dask is not there."""
    if cluster is not None:
        with extra("dask", "--cluster"):
            import distributed  # noqa: F401


@contextmanager
def client_of(cluster: str) -> Iterator[Any]:
    """A Dask client of `local:N`, N worker processes here, or of a scheduler's address (`tcp://...`)."""
    check_installed(cluster)
    from distributed import Client, LocalCluster

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
        raise ConfigError(f"--cluster {cluster!r}: expected an address such as tcp://host:8786, or local:4")
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
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except (KilledWorker, TimeoutError) as error:
            raise DeccafError(
                f"--cluster: workers died, or none is there: {error}; give them more memory, start workers, "
                "and start the same command again: it goes on where it was"
            ) from error

    @property
    def count(self) -> int:
        """Workers that are there now."""
        return max(1, len(self.client.scheduler_info(n_workers=-1)["workers"]))


@contextmanager
def workers_of(cluster: str | None) -> Iterator[Workers | None]:
    """The workers of a cluster; None where none is asked for."""
    if cluster is None:
        yield None
        return
    with client_of(cluster) as client:
        yield Workers(client)
