"""Measured runs of a server's own metrics: means and quantiles of an engine's histograms, and their load."""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from planner.engines import METRICS
from planner.errors import TraceError
from planner.measured.other_deployment import refuse_other
from planner.measured.run_table import Measurement
from planner.measured.scrape import Scrape, grown, read_scrapes, total, upper_edges
from planner.schema import MAX_TOKENS
from planner.settings.scenario import Scenario
from planner.traces import Trace
from planner.traces.shaping.client_load import at_client_rate, burst

Ints = NDArray[np.int64]

PREFIXES = {series.prefix for series in METRICS}
HISTOGRAMS = {what: tuple(f"{series.prefix}:{name}" for series in METRICS for name in series.histograms.get(what, ()))
              for what in ("ttft", "tpot", "itl", "e2el", "input", "output")}
TOTALS = {side: tuple(f"{series.prefix}:{series.totals[side]}" for series in METRICS) for side in ("input", "output")}
RUNNING = tuple(f"{series.prefix}:{series.running}" for series in METRICS)
CACHE = tuple(tuple(f"{series.prefix}:{name}" for name in series.cache) for series in METRICS)
QUANTILES = (0.5, 0.9, 0.99)
FEWEST = 20  # requests of a window
MOST_WINDOWS = 20
MOST_REQUESTS = 2000  # of a replay; more of the same load say nothing new of its means


@dataclass(frozen=True, slots=True)
class Histogram:
    """Values counted in buckets.

    Parameters
    ----------
    edges : upper edges and how many values are at most each, in order; the last edge may be inf.
    count, sum : of all values.
    """

    edges: Sequence[tuple[float, float]]
    count: float
    sum: float

    @property
    def mean(self) -> float:
        """Mean of the values."""
        return self.sum / self.count

    def bucket(self, share: float) -> tuple[float, float]:
        """Return the edges between which the quantile lies; the upper one may be inf.

        >>> Histogram([(0.1, 5.0), (0.2, 9.0), (math.inf, 10.0)], 10.0, 1.2).bucket(0.6)
        (0.1, 0.2)
        """
        low = 0.0
        for edge, upto in self.edges:
            if upto >= share * self.count:
                return low, edge
            low = edge
        return low, math.inf

    def quantile(self, share: float) -> float:
        """Return a quantile, linear within its bucket, as Prometheus's `histogram_quantile`; in the last, its edge.

        >>> round(Histogram([(0.1, 5.0), (0.2, 9.0), (math.inf, 10.0)], 10.0, 1.2).quantile(0.7), 3)
        0.15
        """
        low, high = self.bucket(share)
        if math.isinf(high):
            return low
        below = max((upto for edge, upto in self.edges if edge <= low), default=0.0)
        inside = next(upto for edge, upto in self.edges if edge == high) - below
        return low + (high - low) * (share * self.count - below) / inside if inside > 0 else high


def read_scraped(path: Path, scenario: Scenario) -> list[Measurement]:
    """Read scrapes of a server's metrics as runs: one of one or two scrapes, of more one a window.

    Measured values are mean TTFT, TPOT or latency between tokens, and end-to-end latency, and quantiles, each with
    the bucket that it lies in. The load follows the metrics: lengths drawn evenly from their histograms and scaled
    to their means, prompts and outputs paired at random; sent as a Poisson process at the counted rate if the scrapes
    have times, else as many in flight as the scenario's `max_concurrency`, or as ran in the mean.

    Raises
    ------
    TraceError : the file is no scrape, lacks a histogram, or counts too few requests.
    UsageError : the metrics name another model or engine than the scenario.
    """
    scrapes = [scrape for scrape in read_scrapes(path) if HISTOGRAMS.keys() & set(_families(scrape))]
    if not scrapes:
        raise TraceError(f"{path}: has none of the histograms {', '.join(HISTOGRAMS['ttft'])}; must be a scrape of "
                         f"/metrics of vLLM, SGLang (--enable-metrics), TensorRT-LLM or Dynamo's frontend")
    _check_one_server(path, scrapes[-1])
    refuse_other(str(path), _deployed(scrapes[-1]), scenario)
    windows = _windows(path, scrapes)
    names = [path.stem if len(windows) == 1 else f"{path.stem}#{k}" for k in range(len(windows))]
    return [_measurement(f"{path}" if len(windows) == 1 else f"{path} window {k}", name, window, scenario)
            for k, (name, window) in enumerate(zip(names, windows, strict=True))]


def _deployed(scrape: Scrape) -> dict[str, set[str]]:
    """Return the model and the engine that the metrics' labels and names say."""
    of_engines = [(name.partition(":")[0], dict(labels)) for name, labels in scrape.values]
    return {"model": {labels["model_name"] for prefix, labels in of_engines
                      if prefix in PREFIXES and "model_name" in labels},
            "engine": {prefix for prefix, _ in of_engines}}


def _families(scrape: Scrape) -> dict[str, str]:
    """Return the name of each histogram that is there."""
    counted = scrape.names()
    family_of = {what: next((name for name in names if f"{name}_count" in counted), None)
                 for what, names in HISTOGRAMS.items()}
    return {what: name for what, name in family_of.items() if name is not None}


def _check_one_server(path: Path, scrape: Scrape) -> None:
    for label, remedy in (("model_name", "scrape a server of one model"),
                          ("instance", "query one instance"), ("engine", "scrape a server of one engine"),
                          ("engine_type", "scrape a server that does both prefill and decode")):
        values = sorted({dict(labels)[label] for (name, labels) in scrape.values
                         if name.partition(":")[0] in PREFIXES and label in dict(labels)})
        if len(values) > 1:
            raise TraceError(f"{path}: has several of {label}: {', '.join(values)}; {remedy}, or leave the other "
                             f"lines out")


def _windows(path: Path, scrapes: Sequence[Scrape]) -> list[list[Scrape]]:
    """Return the scrapes of each window, its first and last included, each with FEWEST requests or more."""
    if len(scrapes) <= 2:
        return [list(scrapes)]
    name = _families(scrapes[-1]).get("ttft", "")
    counts = [total(grown(None, scrape, f"{name}_count", str(path))) for scrape in scrapes]
    least = max(FEWEST, (counts[-1] - counts[0]) / MOST_WINDOWS)
    cuts = [0]
    for place in range(1, len(scrapes)):
        if counts[place] - counts[cuts[-1]] >= least:
            cuts.append(place)
    if len(cuts) < 2:
        return [list(scrapes)]
    cuts[-1] = len(scrapes) - 1
    return [list(scrapes[begin:end + 1]) for begin, end in itertools.pairwise(cuts)]


def _measurement(where: str, name: str, window: Sequence[Scrape], scenario: Scenario) -> Measurement:
    kinds = {what: _histogram(where, window, family) for what, family in _families(window[-1]).items()}
    if "ttft" not in kinds or not {"tpot", "itl"} & kinds.keys():
        raise TraceError(f"{where}: has no {'TTFT' if 'ttft' not in kinds else 'time between tokens'}; must have "
                         f"{', '.join(HISTOGRAMS['ttft'])}, and one of {', '.join(HISTOGRAMS['tpot'])}, "
                         f"{', '.join(HISTOGRAMS['itl'])}")
    if kinds["ttft"].count < FEWEST:
        raise TraceError(f"{where}: counts {kinds['ttft'].count:g} requests; must be at least {FEWEST}, so that means "
                         f"are reliable (scrape later, or further apart)")
    measured = {f"{what}_ms": 1e3 * kinds[what].mean for what in ("ttft", "tpot", "itl", "e2el")
                if what in kinds and kinds[what].count > 0 and (what != "itl" or "tpot" not in kinds)}
    bounds: dict[str, tuple[float, float]] = {}
    for what in ("ttft", "tpot", "e2el"):
        for share in QUANTILES:
            low, high = kinds[what].bucket(share) if what in kinds else (0.0, math.inf)
            if math.isfinite(high) and kinds[what].count * (1 - share) >= 1:
                key = f"p{round(100 * share)}_{what}_ms"
                measured[key], bounds[key] = 1e3 * kinds[what].quantile(share), (1e3 * low, 1e3 * high)
    load, in_flight = _load(where, window, kinds, scenario)
    scenario = dataclasses.replace(scenario, max_concurrency=in_flight)
    if scenario.enable_prefix_caching is None and "cached_tokens" in load.requests.columns:
        scenario = dataclasses.replace(scenario, enable_prefix_caching=True)
    return Measurement(id=name, groups={"client": "metrics"}, measured=measured, bounds=bounds, scenario=scenario,
                       load=load, num_opening=min(in_flight or 0, load.num_requests // 4))


def _histogram(where: str, window: Sequence[Scrape], family: str) -> Histogram:
    before = window[0] if len(window) > 1 else None
    counts = {part: grown(before, window[-1], f"{family}_{part}", where) for part in ("bucket", "count", "sum")}
    table = Histogram(upper_edges(counts["bucket"], f"{where}: {family}"), total(counts["count"]), total(counts["sum"]))
    if table.count > 0 and (not table.edges or not table.sum >= 0):
        raise TraceError(f"{where}: {family} has no buckets, or no sum; must have _bucket, _sum and _count")
    return table


def _load(where: str, window: Sequence[Scrape], by_kind: Mapping[str, Histogram],
          scenario: Scenario) -> tuple[Trace, int | None]:
    """Return the requests, and how many are in flight in a closed loop."""
    num_requests = by_kind["ttft"].count
    count = min(round(num_requests), MOST_REQUESTS)
    rng = np.random.default_rng(0)
    lengths = {side: rng.permutation(_lengths(where, window, by_kind.get(side), side, num_requests, count))
               for side in ("input", "output")}
    load = _with_cached(window, burst(lengths["input"], lengths["output"], where))
    times = [scrape.at_s for scrape in (window[0], window[-1])]
    span_s = times[1] - times[0] if None not in times and len(window) > 1 else 0.0  # type: ignore[operator]
    if scenario.max_concurrency is None and span_s > 0:
        return at_client_rate(load, num_requests / span_s, seed=scenario.seed or 0), None
    running = [value for scrape in window for (name, _), value in scrape.values.items() if name in RUNNING]
    mean = float(np.mean(running)) if running else 0.0
    if scenario.max_concurrency is None and not math.isfinite(mean):
        raise TraceError(f"{where}: {RUNNING[0]} is {mean:g}; must be a number, or give --max-concurrency")
    in_flight = scenario.max_concurrency or round(mean)
    if in_flight < 1:
        raise TraceError(f"{where}: has no arrival rate: the scrapes have no times (write a line `# at "
                         f"SECONDS` before each), and {RUNNING[0]} is {'0' if running else 'missing'}; or give "
                         f"--max-concurrency")
    return load, in_flight


def _lengths(where: str, window: Sequence[Scrape], histogram: Histogram | None, side: str, num_requests: float,
             count: int) -> Ints:
    """Return lengths drawn evenly from a histogram and scaled to its mean; without one, all at the total's mean."""
    if histogram is not None and histogram.count > 0:
        drawn = np.clip([histogram.quantile((k + 0.5) / count) for k in range(count)], 1.0, MAX_TOKENS)
        mean = histogram.mean
    else:
        before = window[0] if len(window) > 1 else None
        totals = [total(grown(before, window[-1], name, where)) for name in TOTALS[side]]
        mean, drawn = max(totals) / num_requests, np.ones(count)
    if not 1 <= mean <= MAX_TOKENS:
        raise TraceError(f"{where}: {side} tokens of a request are {mean:g} on average; must be 1 to {MAX_TOKENS}, by "
                         f"{', '.join(HISTOGRAMS[side])} (SGLang: --collect-tokens-histogram) or by "
                         f"{', '.join(TOTALS[side])}")
    scaled: Ints = np.clip(np.rint(drawn * mean / drawn.mean()), 1, MAX_TOKENS).astype(np.int64)
    return scaled


def drawn_lengths(path: Path, count: int) -> tuple[Ints, Ints]:
    """Return lengths of prompts and outputs, drawn evenly from the histograms of scrapes and paired at random.

    Raises
    ------
    TraceError : the file is no scrape, or has no lengths.
    """
    scrapes = read_scrapes(path)
    window = [scrapes[0], scrapes[-1]] if len(scrapes) > 1 else scrapes
    by_kind = {} if not window else {what: _histogram(str(path), window, family)
                                     for what, family in _families(window[-1]).items()}
    num_requests = next((histogram.count for histogram in by_kind.values() if histogram.count > 0), 0.0)
    if not num_requests:
        raise TraceError(f"{path}: has none of the histograms {', '.join(HISTOGRAMS['input'])} with requests; must be "
                         f"a scrape of /metrics of vLLM, SGLang, TensorRT-LLM or Dynamo's frontend")
    rng = np.random.default_rng(0)
    prompts, outputs = (rng.permutation(_lengths(str(path), window, by_kind.get(side), side, num_requests, count))
                        for side in ("input", "output"))
    return prompts, outputs


def _with_cached(window: Sequence[Scrape], load: Trace) -> Trace:
    """Return the load with the share of prompts that the server found in its prefix cache."""
    before = window[0] if len(window) > 1 else None
    for hits, queries in CACHE:
        hit, asked = (total(grown(before, window[-1], name, "the prefix cache")) for name in (hits, queries))
        if hit > 0 and asked >= hit:
            cached = np.floor(load.requests["input_tokens"].to_numpy() * (hit / asked)).astype(np.int64)
            return dataclasses.replace(load, requests=load.requests.with_columns(cached_tokens=cached))
    return load
