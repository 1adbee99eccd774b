"""Requests, lengths and latencies of a server's traffic, window by window, from its counters and histograms."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from planner.engines import METRICS
from planner.engines.dynamo_metrics import DYNAMO
from planner.engines.package import Metrics
from planner.errors import TraceError, UsageError
from planner.files.counts import count_text
from planner.files.finite import number_in
from planner.measured.metric_source import MetricSource
from planner.measured.prometheus_server import Points
from planner.measured.scrape import Labels, upper_edges
from planner.measured.scraped import Histogram

Floats = NDArray[np.float64]
Increases = Callable[[str], Mapping[Labels, NDArray[np.float64]]]

SIDES = {"input": "prompts", "output": "outputs"}
LATENCIES = ("ttft", "tpot", "itl", "e2el")
GAUGES = ("running", "waiting", "kv_use")
ROLES = ("engine_type",)  # labels of a server's role, of which a request meets several


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedLengths:
    """Lengths of requests, window by window.

    Parameters
    ----------
    edges : upper edges of the buckets, the last may be inf; empty if only sums are known [tokens].
    counts : of requests in each bucket [num_windows, num_edges].
    num : of requests [num_windows].
    sums : of their tokens [num_windows].
    """

    edges: Floats
    counts: Floats
    num: Floats
    sums: Floats

    @property
    def mean(self) -> float:
        """Mean length [tokens]."""
        return float(self.sums.sum() / self.num.sum())

    def over(self, windows: slice) -> "CountedLengths":
        """Return the lengths of some windows together, as one window."""
        return CountedLengths(edges=self.edges, counts=self.counts[windows].sum(axis=0, keepdims=True),
                              num=self.num[windows].sum(keepdims=True), sums=self.sums[windows].sum(keepdims=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedTraffic:
    """The traffic of a server.

    Parameters
    ----------
    source : the file or the address.
    engine, model : the prefix of the metrics, and the model's name in their labels; "" if there is none.
    edges_s : of the windows, from 1970 if the source has dates, shape [num_windows + 1] [s].
    requests : that arrive in each window [num_windows].
    counts_ends : whether they are the finished ones, since the numbers of running and waiting requests are unknown.
    lengths : of "input" and "output"; a side that is unknown is missing.
    cached : tokens of prompts that the prefix cache had, over all, shape [num_windows, 2]; None if not counted.
    latencies : histograms of the whole range, by `LATENCIES` [s].
    gauges : mean and maximum of "running", "waiting" and "kv_use", over time.
    scrape_interval_s : time between two scrapes; None if it is not known [s].
    notes : sentences for the user.
    """

    source: str
    engine: str = ""
    model: str = ""
    edges_s: Floats
    requests: Floats
    counts_ends: bool = True
    lengths: Mapping[str, CountedLengths]
    cached: Floats | None = None
    latencies: Mapping[str, Histogram]
    gauges: Mapping[str, tuple[float, float]]
    scrape_interval_s: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def window_s(self) -> Floats:
        """Length of each window [s]."""
        return np.diff(self.edges_s)


def counted_traffic(source: MetricSource, model_name: str | None, request_rate: float | None) -> CountedTraffic:
    """Count a source's traffic.

    Parameters
    ----------
    model_name : in the series' labels; None if there is only one.
    request_rate : of a source without times [1/s].

    Raises
    ------
    TraceError, UsageError : the source has no series of an engine, several models or engines, or no requests.
    """
    metrics = _metrics_of(source)
    names = _names(source, metrics)
    counters = source.read(names["requests"], {})
    model = _model_of(source, metrics, counters, model_name)
    labels = {metrics.model: model} if model else {}
    counters = {pairs: points for pairs, points in counters.items() if labels.items() <= dict(pairs).items()}
    _check_roles(source, counters)
    source, notes = _with_data(source, counters)

    def increases(name: str) -> dict[Labels, Floats]:
        return {pairs: _increase(points, source.edges_s) for pairs, points in source.read(name, labels).items()}

    requests = _sum(increases(names["requests"]).values(), source.edges_s)
    if not requests.sum() >= 1:
        raise TraceError(f"{source.where}: {names['requests']} counts no finished request in the range; choose a range "
                         f"with traffic by --start and --end")
    notes += [f"{count_text(resets, 'counter')} of requests started anew, as a server does when it restarts; it counts "
              f"from 0 from there on"] if (resets := sum(map(_restarts, counters.values()))) else []
    lengths = {side: _lengths(source, names, side, increases, requests) for side in SIDES
               if side in names or f"{side} total" in names}
    cached = np.stack([_sum(increases(names[part]).values(), source.edges_s) for part in ("hits", "queries")], axis=1
                      ) if {"hits", "queries"} <= names.keys() else None
    latencies = {what: whole for what in LATENCIES if what in names
                 and (whole := _whole(source, names[what], increases)).count > 0}
    gauges = {what: list(source.read(names[what], labels).values()) for what in GAUGES if what in names}
    inside = [what for what in GAUGES[:2] if what == "running" or not metrics.runs_waiting]
    counts_ends = not source.has_times or not all(gauges.get(what) for what in inside)
    if not counts_ends:
        in_system = np.sum([_level(points, source.edges_s) for what in inside for points in gauges[what]], axis=0)
        requests = np.maximum(requests + np.diff(in_system), 0.0)
    traffic = CountedTraffic(source=source.where, engine=metrics.prefix, model=model, edges_s=source.edges_s,
                             requests=requests, counts_ends=counts_ends, lengths=lengths, cached=cached,
                             latencies=latencies,
                             gauges={what: (float(np.mean(values)), max(values)) for what, series in gauges.items()
                                     if (values := _gauge(series, source.edges_s, is_share=what == "kv_use"))},
                             scrape_interval_s=source.scrape_interval_s, notes=tuple(notes))
    return traffic if source.has_times else _lasting(traffic, request_rate)


def _metrics_of(source: MetricSource) -> Metrics:
    """Return the series to read: the frontend's, which counts a request once, or else the engine's."""
    known = [metrics for metrics in METRICS if "requests" in _names(source, metrics)]
    if DYNAMO in known:
        return DYNAMO
    if len(known) > 1:
        raise UsageError(f"{source.where}: has series of {', '.join(metrics.prefix for metrics in known)}; choose one "
                         f"by its labels, as in --match 'job=\"{known[0].prefix}\"'")
    if not known:
        wanted = ", ".join(f"{metrics.prefix}:{metrics.requests}" for metrics in METRICS if metrics.requests)
        raise TraceError(f"{source.where}: has none of the counters {wanted}; {source.others}; scrape /metrics of the "
                         f"engine (SGLang: --enable-metrics; TensorRT-LLM: return_perf_metrics), or choose another "
                         f"range")
    return known[0]


def _names(source: MetricSource, metrics: Metrics) -> dict[str, str]:
    """Return the name of each content that the source has; "requests" is the first counter of requests."""
    def first(*names: str, ending: str = "") -> str | None:
        whole = [f"{metrics.prefix}:{name}" for name in names if name]
        return next((name for name in whole if f"{name}{ending}" in source.names), None)

    histograms = {what: first(*names, ending="_count") for what, names in metrics.histograms.items()}
    counts = [*(f"{name}_count" for name in metrics.histograms.get("input", ())), metrics.requests,
              *(f"{name}_count" for name in metrics.histograms.get("ttft", ()))]
    series = {"requests": first(*counts), "hits": first(metrics.cache[0]), "queries": first(metrics.cache[1]),
              **{f"{side} total": first(total) for side, total in metrics.totals.items()},
              "running": first(metrics.running), "waiting": first(metrics.waiting), "kv_use": first(*metrics.kv_use)}
    return {what: name for what, name in (histograms | series).items() if name is not None}


def _model_of(source: MetricSource, metrics: Metrics, counters: Mapping[Labels, Points], model_name: str | None) -> str:
    models = sorted({dict(pairs).get(metrics.model, "") for pairs in counters})
    if model_name is not None and model_name not in models:
        raise TraceError(f"{source.where}: has no requests of --model-name {model_name} in the range; it has "
                         f"{', '.join(models)} (label {metrics.model})")
    if model_name is None and len(models) > 1:
        raise UsageError(f"{source.where}: has the models {', '.join(models)}; choose one by --model-name")
    return models[0] if model_name is None else model_name


def _check_roles(source: MetricSource, counters: Mapping[Labels, Points]) -> None:
    for label in ROLES:
        values = sorted({dict(pairs)[label] for pairs in counters if label in dict(pairs)})
        if len(values) > 1:
            raise UsageError(f"{source.where}: counts requests of servers with {label} {', '.join(values)}, and each "
                             f"of them counts a request; choose one, as in --match '{label}=\"{values[0]}\"'")


def _with_data(source: MetricSource, counters: Mapping[Labels, Points]) -> tuple[MetricSource, list[str]]:
    """Leave out the time before the first value of any server and after the last, about which nothing is known."""
    times = [at_s for points in counters.values() for at_s, value in points if math.isfinite(value)]
    kept = source.edges_s[(source.edges_s >= min(times, default=math.inf)) & (source.edges_s <= max(times, default=0))]
    if len(kept) < 2:
        raise TraceError(f"{source.where}: has {count_text(len(kept), 'instant')} with values in the range; must be "
                         f"two or more (widen --start and --end, or shorten --step)")
    missing_s = float(np.ptp(source.edges_s) - np.ptp(kept))
    note = [f"{missing_s:g} s at the ends of the range have no values and are left out"] if missing_s else []
    return replace(source, edges_s=kept), note


def _restarts(points: Points) -> int:
    return int((np.diff(_finite(points)[1]) < 0).sum())


def _increase(points: Points, edges_s: Floats) -> Floats:
    """Return by how much a counter grew in each window, over restarts, and evenly over gaps.

    A counter that begins after the first edge belongs to a server that started then, so it counts from 0.

    >>> _increase([(0.0, 5.0), (10.0, 7.0), (30.0, 3.0)], np.array([0.0, 10.0, 20.0, 30.0]))
    array([2. , 1.5, 1.5])
    >>> _increase([(20.0, 4.0), (30.0, 6.0)], np.array([0.0, 10.0, 20.0, 30.0]))
    array([0., 4., 2.])
    """
    times_s, values = _finite(points)
    if not len(times_s):
        return np.zeros(len(edges_s) - 1)
    steps = np.diff(values)
    grown = np.cumsum(np.concatenate(([0.0], np.where(steps < 0, values[1:], steps))))
    earlier = edges_s[edges_s < times_s[0]]
    if len(earlier):
        times_s, grown = np.append(earlier[-1], times_s), np.append(0.0, grown + values[0])
    return np.diff(np.interp(edges_s, times_s, grown))


def _finite(points: Points) -> tuple[Floats, Floats]:
    known = np.array([point for point in points if math.isfinite(point[1])], np.float64).reshape(-1, 2)
    return known[:, 0], known[:, 1]


def _sum(increases: Iterable[Floats], edges_s: Floats) -> Floats:
    total: Floats = np.sum([np.zeros(len(edges_s) - 1), *increases], axis=0)
    return total


def _buckets(source: MetricSource, name: str, increases: Increases) -> tuple[Floats, Floats]:
    """Return a histogram's upper edges, and the values in each bucket, window by window."""
    by_labels = increases(f"{name}_bucket")
    edges = [edge for edge, _ in upper_edges({pairs: float(grown.sum()) for pairs, grown in by_labels.items()},
                                             f"{source.where}: {name}")]
    upto = np.array([_sum((grown for pairs, grown in by_labels.items() if number_in(dict(pairs)["le"]) == edge),
                          source.edges_s) for edge in edges]).reshape(len(edges), len(source.edges_s) - 1)
    return np.array(edges), np.diff(upto, axis=0, prepend=0.0).T


def _lengths(source: MetricSource, names: Mapping[str, str], side: str, increases: Increases,
             requests: Floats) -> CountedLengths:
    if side in names:
        edges, counts = _buckets(source, names[side], increases)
        num, sums = (_sum(increases(f"{names[side]}_{part}").values(), source.edges_s) for part in ("count", "sum"))
    else:
        edges, counts, num = np.zeros(0), np.zeros((len(requests), 0)), requests
        sums = _sum(increases(names[f"{side} total"]).values(), source.edges_s)
    return CountedLengths(edges=edges, counts=np.maximum(counts, 0.0), num=num, sums=sums)


def _whole(source: MetricSource, name: str, increases: Increases) -> Histogram:
    edges, counts = _buckets(source, name, increases)
    count, total = (float(_sum(increases(f"{name}_{part}").values(), source.edges_s).sum())
                    for part in ("count", "sum"))
    return Histogram(list(zip(edges.tolist(), np.cumsum(counts.sum(axis=0)).tolist(), strict=True)), count, total)


def _level(points: Points, edges_s: Floats) -> Floats:
    """Return a gauge at each edge, evenly over gaps; 0 before its first value and after its last."""
    times_s, values = _finite(points)
    return np.interp(edges_s, times_s, values, left=0.0, right=0.0) if len(times_s) else np.zeros(len(edges_s))


def _gauge(series: Iterable[Points], edges_s: Floats, *, is_share: bool) -> list[float]:
    """Return a gauge's values over time: the servers' sum, or their mean if it is a share."""
    by_time: dict[float, list[float]] = {}
    for points in series:
        for at_s, value in points:
            if math.isfinite(value) and edges_s[0] <= at_s <= edges_s[-1]:
                by_time.setdefault(at_s, []).append(value)
    return [math.fsum(at_once) / (len(at_once) if is_share else 1) for at_once in by_time.values()]


def _lasting(traffic: CountedTraffic, request_rate: float | None) -> CountedTraffic:
    """Return traffic of one window of unknown length at a rate."""
    if request_rate is None:
        raise UsageError(f"{traffic.source}: has no times, so the rate is unknown; give --request-rate, or two scrapes "
                         f"with a line `# at SECONDS` before each")
    duration_s = float(traffic.requests.sum()) / request_rate
    return replace(traffic, edges_s=np.array([0.0, duration_s]))
