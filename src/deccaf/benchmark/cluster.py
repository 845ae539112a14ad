"""Where the work is done: in this process, in processes of this machine, or on a Dask cluster."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import joblib

from deccaf.errors import ConfigError
from deccaf.optional import extra

_LOCAL = re.compile(r"local:([1-9]\d*)")


@contextmanager
def cluster_of(cluster: str | None, jobs: int) -> Iterator[Callable[[], joblib.Parallel]]:
    """Give a maker of `joblib.Parallel` whose results come as they end.

    `cluster` is the address of a Dask scheduler (`tcp://...`), or `local:N` for N worker processes here.
    """
    if jobs < 1:
        raise ConfigError(f"jobs: at least one is needed, got {jobs}")
    with ExitStack() as stack:
        many: dict[str, Any] = {"n_jobs": jobs}
        check_installed(cluster)
        if cluster is not None:
            stack.enter_context(_client(cluster))
            stack.enter_context(joblib.parallel_config(backend="dask", wait_for_workers_timeout=60))
            many = {"n_jobs": -1}

        def parallel() -> joblib.Parallel:
            return joblib.Parallel(**many, return_as="generator_unordered", batch_size=1, max_nbytes=None)

        yield parallel


def check_installed(cluster: str | None) -> None:
    """Fail before the work begins where a cluster is wanted and Dask is not there."""
    if cluster is not None:
        with extra("dask", "--cluster"):
            import distributed  # noqa: F401


@contextmanager
def _client(cluster: str) -> Iterator[Any]:
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
