"""The places to which joblib sends a sweep's configurations: processes of this machine, or a Dask or Ray cluster."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import joblib

from planner.errors import UnknownNameError, UsageError
from planner.traces import Trace

BACKENDS = ("processes", "dask", "ray")


@contextmanager
def on_backend(backend: str, address: str | None, trace: Trace | None) -> Iterator[None]:
    """Let joblib send its tasks to a backend; a cluster is left as it was found. Dask's workers get the trace once.

    Raises
    ------
    UnknownNameError : there is no such backend.
    UsageError : its package is not installed, or no cluster answers at the address.
    """
    if backend not in BACKENDS:
        raise UnknownNameError("backend", backend, BACKENDS)
    if backend == "processes":
        if address is not None:
            raise UsageError(f"--address {address}: needs --backend dask or ray")
        yield
        return
    try:
        cluster, tasks = _dask(address, trace) if backend == "dask" else _ray(address)
    except ImportError as error:
        raise UsageError(f"--backend {backend}: {error}; pip install {backend}") from error
    except (OSError, ConnectionError, ValueError) as error:
        raise UsageError(f"--backend {backend}: no cluster at {address or 'the default address'}: {error}") from error
    with cluster, joblib.parallel_config(backend=tasks, n_jobs=-1):
        yield


def _dask(address: str | None, trace: Trace | None) -> tuple[Any, Any]:
    """Return a client of a Dask cluster, and joblib's backend for it."""
    from distributed import Client
    from joblib._dask import DaskDistributedBackend

    class OnWorkers(DaskDistributedBackend):  # type: ignore[misc]  # joblib has no types
        """Sends tasks to a cluster of one worker too: joblib runs them in its own process if it counts one worker."""

        def effective_n_jobs(self, n_jobs: int) -> int:
            return max(2, int(super().effective_n_jobs(n_jobs)))

    client = Client(address)
    return client, OnWorkers(client=client, scatter=None if trace is None else [trace])


def _ray(address: str | None) -> tuple[Any, str]:
    """Return the connection to a Ray cluster, and the name of joblib's backend for it."""
    import ray
    from ray.util.joblib import register_ray

    cluster = ray.init(address=address)
    register_ray()
    return cluster, "ray"
