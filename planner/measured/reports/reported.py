"""One run of a benchmark's report, and its measurement: a load of like lengths, and statistics."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.catalog.catalog_files import load_gpu, load_model
from planner.errors import TraceError, UnknownNameError
from planner.files.finite import is_number
from planner.measured.run_table import Measurement
from planner.measured.statistics import MAKESPAN
from planner.model.layout import Layout
from planner.schema import MAX_TOKENS
from planner.settings.scenario import Scenario, parse_scenario
from planner.traces import Trace
from planner.traces.reader import value_at
from planner.traces.shaping.client_load import at_client_rate, burst

Ints = NDArray[np.int64]
Table = Mapping[str, Any]

PROMPTS_PER_CONCURRENCY = 10  # if a report does not say how many requests were sent
MOST_REQUESTS = 100_000
STEADY = 1e6  # burstiness of gaps that are all alike
IDENTITY = ("model", "gpu", "engine", "tensor_parallel_size", "pipeline_parallel_size")  # a report's values go first
NAMES = {"mean": ("mean", "avg", "average"), "median": ("median", "p50"), "p90": ("p90",), "p99": ("p99",)}
_POINTS = {"min": 0.0, "minimum": 0.0, "p001": 0.001, "p01": 0.01, "p1": 0.01, "p05": 0.05, "p5": 0.05, "p10": 0.1,
           "p25": 0.25, "p50": 0.5, "median": 0.5, "p75": 0.75, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999,
           "max": 1.0, "maximum": 1.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """One run of a report.

    Parameters
    ----------
    tool : program that wrote it, for messages.
    client : program that sent the requests.
    lengths : statistics of the lengths of prompts ("input") and answers ("output"); empty without any [tokens].
    measured : statistics of the requests' times, by their names [ms, tokens/s].
    num_requests, duration_s : requests that were answered [1], and from the first's start to the last's end [s].
    rate_per_s, burstiness : rate that requests were sent at, inf for all at once [1/s], and shape of the gaps [1].
    concurrency : requests in flight at most [1].
    options : of the deployment, by the scenario's names, as far as the report says them.
    replicas : engines that shared the load [1].
    notes : sentences for the user.
    """

    tool: str
    client: str
    lengths: Mapping[str, Table]
    measured: Mapping[str, float]
    num_requests: float | None = None
    duration_s: float | None = None
    rate_per_s: float | None = None
    burstiness: float = 1.0
    concurrency: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    replicas: int = 1
    notes: tuple[str, ...] = ()


def statistics_of(where: str, table: Any, metric: str, to_ms: float) -> dict[str, float]:
    """Return a metric's mean, median and percentiles from a table of them, by the names of `statistics`.

    Raises
    ------
    TraceError : one is no number from 0 on.

    >>> statistics_of("f", {"avg": 2.0, "percentiles": {"p99": 5.0}}, "ttft", 1e3)
    {'mean_ttft_ms': 2000.0, 'p99_ttft_ms': 5000.0}
    """
    times: dict[str, float] = {}
    for name, keys in NAMES.items():
        for path in (*keys, *(f"percentiles.{key}" for key in keys)):
            if (value := number_at(where, table, path)) is not None:
                times.setdefault(f"{name}_{metric}_ms", to_ms * value)
    return times


def number_at(where: str, table: Any, path: str) -> float | None:
    """Return a number from 0 on in a report, None without one.

    Raises
    ------
    TraceError : it is something else.
    """
    value = value_at(table, path)
    if value is None:
        return None
    if not is_number(value) or value < 0:
        raise TraceError(f"{where}: {path} = {str(value)[:40]!r}; must be a number of at least 0")
    return float(value)


def measurement_of(where: str, name: str, run: Reported, scenario: Scenario) -> Measurement:
    """Return the measurement of one run of a report.

    The load has as many requests as were answered, with lengths drawn from the report's percentiles and scaled to its
    means, sent at its rate or as its closed loop. The model, the GPU, the engine and its parallelism are the report's
    as far as it names known ones; other options go before the report's.

    Raises
    ------
    TraceError : the report has no statistics, lengths, or load.
    """
    if not run.measured:
        raise TraceError(f"{where}: is {run.tool} without times of requests; must have TTFT, TPOT, end-to-end latency "
                         f"or a throughput")
    scenario, notes = _deployed(where, run, scenario)
    limit = scenario.max_concurrency
    concurrency = limit or (None if run.concurrency is None else max(round(run.concurrency / run.replicas), 1))
    rate_per_s = None if run.rate_per_s is None or limit else run.rate_per_s / run.replicas
    _check_load(where, run, scenario, is_sent=rate_per_s is not None or concurrency is not None)
    count = max(round((run.num_requests or PROMPTS_PER_CONCURRENCY * (concurrency or 100)) / run.replicas), 1)
    load = _load(where, run, scenario, min(count, MOST_REQUESTS))
    load = at_client_rate(load, rate_per_s or math.inf, seed=scenario.seed or 0, burstiness=run.burstiness)
    measured = dict(run.measured)
    if run.duration_s and count <= MOST_REQUESTS:
        measured[MAKESPAN] = run.duration_s
    layout = Layout(tensor_parallel_size=scenario.tensor_parallel_size,
                    pipeline_parallel_size=scenario.pipeline_parallel_size)
    scenario = dataclasses.replace(scenario, max_concurrency=None if concurrency is None else int(concurrency))
    return Measurement(id=name, groups={"client": run.client}, measured=measured, scenario=scenario, load=load,
                       layout=None if scenario.expert_parallel else layout, notes=(*notes, *run.notes))


def _check_load(where: str, run: Reported, scenario: Scenario, *, is_sent: bool) -> None:
    """Raise a TraceError if a report has no load that can be replayed, with all that is missing."""
    lacking = {} if is_sent else {"a request rate or a concurrency": "--max-concurrency"}
    for side, length in (("input", scenario.random_input_len), ("output", scenario.random_output_len)):
        if not length and _mean(where, run.lengths.get(side, {})) is None:
            lacking[f"{side} lengths"] = f"--random-{side}-len"
    if lacking:
        raise TraceError(f"{where}: is {run.tool} without {', '.join(lacking)}; give {', '.join(lacking.values())}")


def _mean(where: str, table: Table) -> float | None:
    """Return the mean of a table of statistics, or its substitute."""
    return next((value for key in (*NAMES["mean"], "value", *NAMES["median"])
                 if (value := number_at(where, table, key)) is not None), None)


def _deployed(where: str, run: Reported, scenario: Scenario) -> tuple[Scenario, list[str]]:
    """Return the scenario with the report's deployment, and a note on options that gave way."""
    default, options, set_aside = Scenario(), {}, []
    for name, value in run.options.items():
        option = getattr(scenario, name)
        if name not in IDENTITY:
            if option == getattr(default, name):
                options[name] = value
            continue
        known = _known(name, value)
        if known is None:
            if option == getattr(default, name):
                raise TraceError(f"{where}: names the {name} {value!r}, which is not in the catalog; give "
                                 f"--{name.replace('_', '-')}")
            continue
        if option != getattr(default, name) and _known(name, option) != known:
            set_aside.append(f"{name} = {value} (not {option})")
        options[name] = option if _known(name, option) == known else value
    aside = ", ".join(set_aside)
    notes = [f"{where}: the report says what ran, and the options give way: {aside}"] if set_aside else []
    parse_scenario({name: value for name, value in options.items() if value is not None})  # which checks them
    return dataclasses.replace(scenario, **options), notes


def _known(name: str, value: Any) -> Any:
    """Return the identity of a model, a GPU or another value, None if the catalog lacks it."""
    if value is None or name not in ("model", "gpu"):
        return value
    try:
        if name == "gpu":
            return load_gpu(str(value)).name
        arch = load_model(str(value))
        return arch.name, arch.quantization, arch.attention_quantization, arch.max_model_len
    except UnknownNameError:
        return None


def _load(where: str, run: Reported, scenario: Scenario, count: int) -> Trace:
    stated = {"input": scenario.random_input_len, "output": scenario.random_output_len}
    rng = np.random.default_rng(scenario.seed or 0)
    drawn = {side: np.full(count, tokens, np.int64) if (tokens := stated[side]) else
             rng.permutation(_lengths(where, run, side, count)) for side in stated}
    return burst(drawn["input"], drawn["output"], where)


def _lengths(where: str, run: Reported, side: str, count: int) -> Ints:
    """Return lengths at even quantiles of a report's percentiles, scaled to its mean."""
    table = run.lengths.get(side, {})
    mean = _mean(where, table)
    assert mean is not None
    if not 1 <= mean <= MAX_TOKENS:
        raise TraceError(f"{where}: {run.tool}: the {side} length of requests is {mean:g} on average; must be 1 to "
                         f"{MAX_TOKENS:,} tokens; give --random-{side}-len")
    flat = {**table, **(table.get("percentiles") or {})}
    points = sorted({(share, value) for key, share in _POINTS.items()
                     if (value := number_at(where, flat, key)) is not None})
    if len(points) < 2:
        return np.full(count, max(round(mean), 1), np.int64)
    shares, values = zip(*points, strict=True)
    drawn = np.interp((np.arange(count) + 0.5) / count, shares, values)
    scaled: Ints = np.clip(np.rint(drawn * mean / max(drawn.mean(), 1e-9)), 1, MAX_TOKENS).astype(np.int64)
    return scaled
