"""The twin's /metrics: the names and histograms of the engine, from the fleet's own counters."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

from planner.engines.package import Metrics
from planner.loop.state import engine_state as st
from planner.twin.live_fleet import LiveFleet
from planner.twin.pace import Stream

# Bounds of vLLM's histograms (vllm/v1/metrics/loggers.py); other engines' series have these bounds too.
FIRST_S = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
           160.0, 640.0, 2560.0)
TOKEN_S = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
WHOLE_S = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
           1920.0, 7680.0)
LENGTH = tuple(digit * 10**power for power in range(6) for digit in (1, 2, 5))
BOUNDS = {"ttft": FIRST_S, "tpot": TOKEN_S, "itl": TOKEN_S, "e2el": WHOLE_S, "input": LENGTH, "output": LENGTH}


class Buckets:
    """Values counted by bucket; prometheus-client's own histogram counts one value at a time.

    Parameters
    ----------
    bounds : upper edges, ascending; the last bucket has none.
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds, self._counts, self.sum = bounds, [0] * (len(bounds) + 1), 0.0

    def see(self, value: float, count: int = 1) -> None:
        """Count a value `count` times."""
        self._counts[bisect_left(self._bounds, value)] += count
        self.sum += count * value

    def cumulated(self) -> list[tuple[str, int]]:
        """Return each upper edge with how many values are at most it."""
        return list(zip([*map(str, map(float, self._bounds)), "+Inf"], accumulate(self._counts), strict=True))


class Exposition:
    """Counters, gauges and histograms of a live fleet, as prometheus-client's registry reads and writes them.

    Parameters
    ----------
    metrics : the engine's names.
    model : label of all series.
    scale : seconds of a client's view in one of the fleet's clock [1].
    """

    def __init__(self, fleet: LiveFleet, metrics: Metrics, model: str, scale: float) -> None:
        from prometheus_client import CollectorRegistry, generate_latest

        self._fleet, self._metrics, self._labels, self._scale = fleet, metrics, {metrics.model: model}, scale
        self.registry, self._generate = CollectorRegistry(), generate_latest
        self._histograms = {content: Buckets(BOUNDS[content]) for content in metrics.histograms}
        self._num_prompt = self._num_output = self._num_done = 0
        self.registry.register(self)

    def _name(self, name: str) -> str:
        return f"{self._metrics.prefix}{self._metrics.separator}{name}"

    def text(self) -> bytes:
        """Return all series in Prometheus's text format."""
        written: bytes = self._generate(self.registry)
        return written

    def observe(self, stream: Stream, count: int, at_s: float) -> None:
        """Count the tokens that have come since the last, `count` then."""
        if stream.num_tokens == 0:
            self._num_prompt += stream.arrival.input_tokens
            self._see("ttft", at_s - stream.arrival.at_s)
        else:
            num_new = count - stream.num_tokens
            self._see("itl", (at_s - stream.last_s) / num_new, num_new)  # the engine sees the tokens one by one
        self._num_output += count - stream.num_tokens

    def end(self, stream: Stream) -> None:
        """Count a request that has been answered."""
        if stream.state != st.COMPLETED:
            return
        self._num_done += 1
        self._see("e2el", stream.last_s - stream.arrival.at_s)
        if stream.num_tokens > 1:
            self._see("tpot", (stream.last_s - stream.first_s) / (stream.num_tokens - 1))
        self._see("input", stream.arrival.input_tokens / self._scale)
        self._see("output", stream.num_tokens / self._scale)

    def _see(self, content: str, value: float, count: int = 1) -> None:
        if content in self._histograms:
            self._histograms[content].see(value * self._scale, count)

    def collect(self) -> Iterator[Any]:
        """Yield the counters and gauges as they are now; prometheus-client calls it."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        metrics, engines = self._metrics, [state.engine for state in self._fleet.states]
        sums = {name: sum(float(getattr(engine, name)) for engine in engines)
                for name in ("num_running", "num_waiting", "num_hit_tokens", "num_queried_tokens")}
        counters = {metrics.totals["input"]: self._num_prompt, metrics.totals["output"]: self._num_output,
                    metrics.cache[0]: sums["num_hit_tokens"], metrics.requests: self._num_done}
        counters.setdefault(metrics.cache[1], sums["num_queried_tokens"])
        gauges = {metrics.running: sums["num_running"] + metrics.runs_waiting * sums["num_waiting"],
                  metrics.waiting: sums["num_waiting"]}
        if metrics.kv_use:
            gauges[metrics.kv_use[0]] = self._fleet.kv_cache_usage
        for family, values in ((CounterMetricFamily, counters), (GaugeMetricFamily, gauges)):
            for name, value in values.items():
                if name:
                    series = family(self._name(name), name.replace("_", " "), labels=list(self._labels))
                    series.add_metric(list(self._labels.values()), value)
                    yield series
        for content, histogram in self._histograms.items():
            series = HistogramMetricFamily(self._name(self._metrics.histograms[content][0]), f"{content} of requests",
                                           labels=list(self._labels))
            series.add_metric(list(self._labels.values()), buckets=histogram.cumulated(), sum_value=histogram.sum)
            yield series
