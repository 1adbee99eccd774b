"""Series of engines' metrics, from a Prometheus server or from a file, by name."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from planner.errors import TraceError, UsageError
from planner.measured.prometheus_server import LOOKED_AT_S, Points, instant_s, selector_of, server_at, step_s
from planner.measured.scrape import NAMES, Labels, Scrape, read_scrapes

Floats = NDArray[np.float64]

MS = 3  # digits of a time in Prometheus's answers


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSource:
    """A place of series.

    Parameters
    ----------
    where : the file or the address.
    names : of the series, with a colon after the prefix (`vllm:num_requests_running`).
    edges_s : instants between which increases are counted, from 1970 [s].
    read : the series of a name whose labels have some values.
    others : the other content of the source, for errors.
    scrape_interval_s : time between two scrapes; None if it is not known [s].
    has_times : whether the instants are known; else they are 0 and 1.
    version : release of the engine; None if the source does not tell it.
    """

    where: str
    names: frozenset[str]
    edges_s: Floats
    read: Callable[[str, Mapping[str, str]], Mapping[Labels, Points]]
    others: str
    scrape_interval_s: float | None = None
    has_times: bool = True
    version: str | None = None


def source_of_server(url: str, *, start: str | None, end: str, step: str | None, headers: Sequence[str],
                     match: str) -> MetricSource:
    """Return the series of a server in a range of time.

    Raises
    ------
    UsageError, TraceError : a time is wrong, or as `Server.ask`.
    """
    if start is None:
        raise UsageError("--start: is missing; give the begin of the range, as in --start -24h")
    end_s = instant_s("--end", end, time.time())
    start_s = instant_s("--start", start, end_s)
    if not start_s < end_s:
        raise UsageError(f"--start {start}: must be before --end {end}")
    server = server_at(url, headers)
    matches = [re.fullmatch(NAMES, name) for name in server.names(start_s, end_s, match)]
    names = frozenset(f"{name[1]}:{name[2]}" for name in matches if name is not None)

    def pattern(name: str) -> str:
        prefix, _, rest = name.partition(":")
        return rf"(?:\w*_)?{prefix}[:_]{rest}"

    interval_s = None if not names else server.scrape_interval_s(
        selector_of(pattern(min(names, key=lambda name: (not name.endswith("_count"), name))), {}, match),
        min((start_s + end_s) / 2 + LOOKED_AT_S / 2, end_s))
    window_s = step_s(step, start_s, end_s, interval_s)
    num_windows = int((end_s - start_s) // window_s)
    edges_s = np.round(np.linspace(start_s, start_s + window_s * num_windows, num_windows + 1), MS)

    def read(name: str, labels: Mapping[str, str]) -> Mapping[Labels, Points]:
        return server.series(selector_of(pattern(name), labels, match), start_s, float(edges_s[-1]), window_s)

    return MetricSource(where=server.url, names=names, edges_s=edges_s, read=read,
                        others="" if names else server.others(start_s, end_s), scrape_interval_s=interval_s)


def source_of_file(path: Path) -> MetricSource:
    """Return the series of scrapes, or of a saved answer of query_range.

    Scrapes without times, and a single one, are one window of unknown length; a single one counts from 0.

    Raises
    ------
    TraceError : as `read_scrapes`, or the file has no samples.
    """
    return source_of_scrapes(str(path), read_scrapes(path))


def source_of_scrapes(where: str, scrapes: Sequence[Scrape]) -> MetricSource:
    """Return the series of scrapes, as `source_of_file` does.

    Raises
    ------
    TraceError : there are no samples.
    """
    if not scrapes:
        raise TraceError(f"{where}: has no samples; must be scrapes of /metrics or an answer of query_range")
    has_times = len(scrapes) > 1 and all(scrape.at_s is not None for scrape in scrapes)
    if not has_times:
        before = scrapes[0] if len(scrapes) > 1 else Scrape(0.0, dict.fromkeys(scrapes[0].values, 0.0))
        scrapes = [Scrape(0.0, before.values), Scrape(1.0, scrapes[-1].values)]

    series: dict[str, dict[Labels, Points]] = {}
    for scrape in scrapes:
        for (name, pairs), value in scrape.values.items():
            series.setdefault(name, {}).setdefault(pairs, []).append((scrape.at_s or 0.0, value))

    def read(name: str, labels: Mapping[str, str]) -> Mapping[Labels, Points]:
        return {pairs: points for pairs, points in series.get(name, {}).items()
                if labels.items() <= dict(pairs).items()}

    return MetricSource(where=where, names=frozenset(series), read=read, has_times=has_times,
                        edges_s=np.array([scrape.at_s or 0.0 for scrape in scrapes]),
                        others=f"its series are {', '.join(sorted(series)[:20])}")
