"""Metrics interval by interval: of a recorded range, or of a server while it runs."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from planner.errors import TraceError, UsageError
from planner.files.nested import parse_json
from planner.measured.metric_source import MetricSource, source_of_file, source_of_scrapes, source_of_server
from planner.measured.prometheus_server import server_at
from planner.measured.scrape import Scrape, scrapes_in

OWN = "/metrics"  # end of the address of a server's own metrics


def recorded(source: str, interval_s: float, place: Mapping[str, Any]) -> Iterator[MetricSource]:
    """Yield the intervals of a file of scrapes, or of a range of time at a Prometheus server, in order.

    Parameters
    ----------
    place : the range and the access, as `source_of_server` has them.

    Raises
    ------
    TraceError, UsageError : as `source_of_file` and `source_of_server`; the range is shorter than one interval.
    """
    if source.startswith(("http://", "https://")):
        metrics = source_of_server(source, **place, step=f"{interval_s}s")
    else:
        metrics = source_of_file(Path(source))
        if not metrics.has_times:
            raise UsageError(f"{source}: has no times; give scrapes with a line `# at SECONDS` before each")
    first_s, last_s = metrics.edges_s[[0, -1]]
    edges_s = np.arange(first_s, last_s + 1e-3, interval_s)
    if len(edges_s) < 2:
        raise UsageError(f"--interval {interval_s:g}: {source} has {last_s - first_s:g} s; give a shorter interval")
    for k in range(len(edges_s) - 1):
        yield replace(metrics, edges_s=edges_s[k:k + 2])


def running(source: str, interval_s: float, num: int | None, place: Mapping[str, Any]) -> Iterator[MetricSource]:
    """Yield the intervals of a running server, each when it is over: of Prometheus, or two scrapes of /metrics.

    Parameters
    ----------
    num : of intervals; None for no end.
    place : the access, as `source_of_server` has it.

    Raises
    ------
    TraceError : the server cannot be read at first. An interval that cannot be read later has no series.
    """
    headers, match = place["headers"], place["match"]
    if source.rstrip("/").endswith(OWN):
        before = _scraped(source, headers)

        def read() -> MetricSource:
            nonlocal before
            before, earlier = _scraped(source, headers), before
            return replace(source_of_scrapes(source, [earlier, before]), version=_version(source, headers))
    else:
        server_at(source, headers).ask("labels", [("limit", 1)])

        def read() -> MetricSource:
            return source_of_server(source, start=f"-{interval_s}s", end="now", step=f"{interval_s}s", headers=headers,
                                    match=match)

    begin_s, count = time.monotonic(), 0
    while num is None or count < num:
        count += 1
        time.sleep(max(begin_s + count * interval_s - time.monotonic(), 0.0))
        yield _read_or_empty(read, source, interval_s)


def _read_or_empty(read: Callable[[], MetricSource], source: str, interval_s: float) -> MetricSource:
    try:
        return read()
    except TraceError as error:
        now_s = time.time()
        return MetricSource(where=source, names=frozenset(), edges_s=np.array([now_s - interval_s, now_s]),
                            read=lambda name, labels: {}, others=str(error))


def _version(address: str, headers: tuple[str, ...]) -> str | None:
    """Return the release that vLLM and TensorRT-LLM tell beside their metrics; None if a server does not."""
    try:
        return str(parse_json(server_at(address.rstrip("/").removesuffix(OWN), headers).text("/version",
                                                                                           "application/json"))["version"])
    except (TraceError, ValueError, KeyError, TypeError):
        return None


def _scraped(address: str, headers: tuple[str, ...]) -> Scrape:
    """Return the series of a server's /metrics now."""
    text = server_at(address, headers).text("", "text/plain")
    scrapes = scrapes_in(address, text)
    if not scrapes:
        raise TraceError(f"{address}: has no samples; give the address of the engine's /metrics")
    return Scrape(time.time(), scrapes[-1].values)
