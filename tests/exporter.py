"""An engine's metrics of replayed requests, as Prometheus would have scraped them: OpenMetrics text with times."""

from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from planner.engines.package import Metrics
from planner.run import replay
from planner.settings.scenario import Scenario
from planner.traces import Trace

Floats = NDArray[np.float64]

TOKENS = tuple(float(digit * 10**power) for power in range(6) for digit in (1, 2, 5))  # vLLM's `build_1_2_5_buckets`
SECONDS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
LABELS = 'model_name="demo",instance="pod-{pod}"'


def served(trace: Trace, scenario: Scenario) -> pl.DataFrame:
    """Return the requests of a replay with their lengths, latencies, ends and prefix hits."""
    done = replay(trace, scenario).requests.filter(pl.col("status") == "completed")
    return done.with_columns(end_s=pl.col("arrival_s") + pl.col("e2e_s"))


def open_metrics(requests: pl.DataFrame, metrics: Metrics, *, start_s: float, every_s: float, num_pods: int = 1,
                 restart_s: float | None = None) -> str:
    """Return the metrics of servers that share the requests in turn; with a restart, counters begin anew at 0 then."""
    instants_s = np.arange(0.0, float(requests["end_s"].to_numpy().max()) + 2 * every_s, every_s)
    families: dict[str, list[str]] = {}

    def write(family: str, kind: str, name: str, labels: str, values: Floats) -> None:
        if not name:  # an engine without this series
            return
        lines = families.setdefault(f"# TYPE {metrics.prefix}:{family} {kind}", [])
        lines += [f"{metrics.prefix}:{name}{{{labels}}} {float(value):.12g} {start_s + at_s:.3f}"
                  for at_s, value in zip(instants_s, values, strict=True)]

    for pod in range(num_pods):
        mine = requests.gather_every(num_pods, pod)
        begins_s = (mine["arrival_s"], mine["arrival_s"] + mine["ttft_s"], mine["end_s"])
        arrived, started, ended = (np.searchsorted(np.sort(times_s), instants_s, side="right") for times_s in begins_s)
        for name, level in ((metrics.waiting, arrived - started), (metrics.running, started - ended)):
            write(name, "gauge", name, LABELS.format(pod=pod), level.astype(float))
        ends_s = mine["end_s"].to_numpy()
        for family, kind, name, label, values in _series(mine, metrics):
            upto = np.append(0.0, np.cumsum(values[np.argsort(ends_s, kind="stable")]))
            counted = upto[np.searchsorted(np.sort(ends_s), instants_s, side="right")]
            if restart_s is not None:
                counted -= np.where(instants_s >= restart_s, counted[np.searchsorted(instants_s, restart_s) - 1], 0.0)
            write(family, kind, name, ",".join(part for part in (LABELS.format(pod=pod), label) if part), counted)
    return "\n".join(line for head, lines in families.items() for line in (head, *lines)) + "\n# EOF\n"


def _series(requests: pl.DataFrame, metrics: Metrics) -> Iterator[tuple[str, str, str, str, Floats]]:
    """Yield the family, kind, name and label of each counter, and the increment of each request."""
    columns = {"input": ("input_tokens", TOKENS), "output": ("output_tokens", TOKENS), "ttft": ("ttft_s", SECONDS),
               "tpot": ("tpot_s", SECONDS), "e2el": ("e2e_s", SECONDS)}
    for what, names in metrics.histograms.items():
        if what in columns:
            column, edges = columns[what]
            yield from _histogram(names[0], requests[column].fill_null(0.0).to_numpy().astype(float), edges)
    one = np.ones(requests.height)
    counters = {metrics.requests: one, metrics.cache[0]: requests["num_cached_tokens"].to_numpy().astype(float),
                metrics.cache[1]: requests["input_tokens"].to_numpy().astype(float),
                metrics.totals["input"]: requests["input_tokens"].to_numpy().astype(float),
                metrics.totals["output"]: requests["output_tokens"].to_numpy().astype(float)}
    for name, values in counters.items():
        yield name.removesuffix("_total"), "counter", name, "", values


def _histogram(name: str, values: Floats, edges: Sequence[float]) -> Iterator[tuple[str, str, str, str, Floats]]:
    for edge in edges:
        yield name, "histogram", f"{name}_bucket", f'le="{edge}"', (values <= edge).astype(float)
    yield name, "histogram", f"{name}_bucket", 'le="+Inf"', np.ones(len(values))
    yield name, "histogram", f"{name}_sum", "", values
    yield name, "histogram", f"{name}_count", "", np.ones(len(values))
