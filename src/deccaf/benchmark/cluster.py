"""Where the work is done: in this process, in processes of this machine, or on a Dask cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import joblib

from deccaf.cluster import check_installed, client_of
from deccaf.errors import ConfigError


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
            stack.enter_context(client_of(cluster))
            stack.enter_context(joblib.parallel_config(backend="dask", wait_for_workers_timeout=60))
            many = {"n_jobs": -1}

        def parallel() -> joblib.Parallel:
            return joblib.Parallel(**many, return_as="generator_unordered", batch_size=1, max_nbytes=None)

        yield parallel
