"""A server's traffic from an address or a file, with lengths of a second file, and as a table of rates."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from planner.errors import TraceError, UsageError
from planner.measured.counted_traffic import SIDES, CountedLengths, CountedTraffic, counted_traffic
from planner.measured.metric_source import source_of_file, source_of_server
from planner.measured.scrape import is_scrape
from planner.traces.shaping.rate_series import read_rate_series


def read_traffic(source: str, place: Mapping[str, Any], *, model_name: str | None, lengths: Path | None,
                 request_rate: float | None) -> CountedTraffic:
    """Read traffic of a server's metrics.

    Parameters
    ----------
    source : address of a Prometheus server, or a file of scrapes, of query_range, or of rates.
    place : the range of time and the access to a server, as `source_of_server` has them.
    model_name : in the metrics; None if they have one model.
    lengths : scrape whose lengths and prefix hits count in place of the source's.
    request_rate : of a scrape without times [1/s].

    Raises
    ------
    TraceError, UsageError : the source cannot be read, or has no traffic.
    """
    if request_rate is not None and not 0 < request_rate < math.inf:
        raise UsageError(f"--request-rate {request_rate:g}; must be finite and > 0 requests per second")
    if source.startswith(("http://", "https://")):
        traffic = counted_traffic(source_of_server(source, **place), model_name, request_rate)
    elif _has_names(Path(source)):
        traffic = counted_traffic(source_of_file(Path(source)), model_name, request_rate)
    else:
        traffic = _traffic_of_rates(source)
    return traffic if lengths is None else _with_lengths(traffic, lengths)


def _has_names(path: Path) -> bool:
    """Tell whether a file has metrics with their names; a query with rate() or sum() loses them."""
    if not is_scrape(path):
        return False
    text = path.read_text(encoding="utf-8", errors="replace")
    return not text.lstrip().startswith("{") or '"__name__"' in text


def _traffic_of_rates(source: str) -> CountedTraffic:
    series = read_rate_series(Path(source))
    edges_s = np.append(series.start_s, series.start_s[-1] + series.duration_s[-1])
    return CountedTraffic(source=source, edges_s=edges_s, requests=series.rate_rps * series.duration_s, lengths={},
                          latencies={}, gauges={}, notes=series.notes)


def _with_lengths(traffic: CountedTraffic, path: Path) -> CountedTraffic:
    """Return traffic with the lengths and the prefix hits of a scrape, the same in all windows."""
    scraped = counted_traffic(replace(source_of_file(path), has_times=True), None, None)
    missing = [word for side, word in SIDES.items() if side not in scraped.lengths]
    if missing:
        raise TraceError(f"{path}: has no lengths of {' and '.join(missing)}; must be a scrape with histograms or "
                         f"totals of prompt and output tokens")
    num = len(traffic.requests)

    def everywhere(lengths: CountedLengths) -> CountedLengths:
        whole = lengths.over(slice(None))
        share = traffic.requests / traffic.requests.sum()
        return CountedLengths(edges=whole.edges, counts=share[:, None] * whole.counts, num=share * whole.num,
                              sums=share * whole.sums)

    cached = None if scraped.cached is None else np.broadcast_to(scraped.cached.sum(axis=0), (num, 2))
    return replace(traffic, lengths={side: everywhere(part) for side, part in scraped.lengths.items()}, cached=cached,
                   notes=(*traffic.notes, f"all windows have the lengths of {path}"))


def rates_csv(traffic: CountedTraffic) -> str:
    """Return the rate, the mean lengths and the prefix hits of each window as CSV; the last row is the end."""
    lines = ["start_s,rate_rps,input_tokens,output_tokens,cached_share"]
    for k, start_s in enumerate(traffic.edges_s[:-1]):
        means = [_mean(traffic.lengths[side], k) if side in traffic.lengths else "" for side in ("input", "output")]
        hits, queries = (0.0, 0.0) if traffic.cached is None else traffic.cached[k]
        cached = f"{hits / queries:.4f}" if queries > 0 else ""
        lines.append(f"{start_s:.3f},{traffic.requests[k] / traffic.window_s[k]:.6g},{means[0]},{means[1]},{cached}")
    return "\n".join([*lines, f"{traffic.edges_s[-1]:.3f},,,,", ""])


def _mean(lengths: CountedLengths, k: int) -> str:
    return f"{lengths.sums[k] / lengths.num[k]:.1f}" if lengths.num[k] > 0 else ""
