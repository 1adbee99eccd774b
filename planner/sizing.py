"""The fewest GPUs, and the cheapest fleet, that serve a trace within its objectives."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import joblib
import numpy as np
import polars as pl

from planner.bracket import UnlimitedError, UnreachableError, find_bracket
from planner.catalog import load_gpu, load_model
from planner.deployment import Deployment, resolve, shape_load
from planner.errors import CapacityError, CatalogError, UsageError
from planner.fleet import serve
from planner.launch import describe_launch
from planner.metrics import summarize
from planner.objectives import Objectives, Verdict, judge
from planner.rate_series import RateSeries
from planner.results import ReplayResult
from planner.roofline import priors
from planner.scenario import Scenario
from planner.trace import Trace
from planner.traffic import MOST_REQUESTS, compressed, lasting, rate_of, repeated
from planner.workload import slice_time

LONGER = 8  # times a trace that shows whether a queue grows: replicas are whole, so twice may show nothing
LEVELS = 20  # of a series' rates that are told apart
RANKS = (1, 2, 4, 8)  # tensor-parallel sizes that are tried where none are given
HEADROOM_TOLERANCE = 0.02
MOST_GPUS = 100_000
MANY = 8  # replicas that miss the objectives: before more are tried, requests are tried alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What fleets are made of.

    Parameters
    ----------
    gpus, quantizations : catalog names, and weight formats; None is the checkpoint's own.
    ranks : tensor-parallel sizes; of the defaults, those that a node has GPUs for.
    prices : USD per GPU-hour, by catalog name, in place of the catalog's.
    num_spare : replicas that may fail: as many are added to those that serve the trace [1].
    period_s : length of the parts that a schedule has its own number of replicas for; None for no schedule [s].
    splits : whether fleets in which some replicas prefill and the others decode are tried besides.
    series : rates by window, which the trace's traffic takes on in turn; None for the trace as it is.
    jobs : processes; -1 for one a core.
    """

    gpus: Sequence[str]
    quantizations: Sequence[str | None]
    ranks: Sequence[int]
    prices: Mapping[str, float]
    num_spare: int = 0
    period_s: float | None = None
    splits: bool = False
    series: RateSeries | None = None
    jobs: int = -1


def size(trace: Trace, scenario: Scenario, objectives: Objectives, choices: Choices) -> dict[str, Any]:
    """Find the fewest replicas of each kind that serve a trace within its objectives.

    Requests go to the replicas by the scenario's router. Where a rate is asked for, the trace's traffic goes on at it
    until one of eight times the length needs no other number. With a rate series the fleet serves its highest window,
    as long as that lasts.

    Parameters
    ----------
    trace : as read; the scenario's window, number of requests and rate are applied to it here.
    scenario : of one replica, but for its GPU, layout and weight format, which `choices` has.
    objectives : what the load must keep.
    choices : what fleets are made of.

    Returns
    -------
    dict
        The cheapest fleet: `gpu`, `tensor_parallel_size`, `quantization`, `num_replicas`, `prefill_replicas` (of them,
        those that prefill only; 0 where all do both), `num_gpus`,
        `cost_usd_per_hour`, `cost_usd_per_million_output_tokens`, `power_kw`, `attainment`, `limiting_metric` with one
        replica less, `headroom` (growth of the rate that the replicas which are not spare bear; None without an end),
        `priors` (operators whose kernels nobody measured on the GPU), the `command` that launches a replica and what
        it lacks, `schedule`;
        `stationary` (whether a longer trace needs as many; None where no rate is asked for); then `fewest_gpus` and
        all `alternatives`, cheapest first, those that cannot do it with their `reason`.

    Raises
    ------
    UsageError : no fleet can; an option does not fit.
    PlannerError : as a replay.
    """
    if scenario.autoscale is not None:
        raise UsageError(f"--autoscale {scenario.autoscale}: a fleet is sized as one that stays as it is; leave it out")
    if choices.num_spare < 0:
        raise UsageError(f"--spare {choices.num_spare}: must be 0 or more")
    if scenario.fleet is not None:
        raise UsageError(f"fleet = {scenario.fleet}: fleets of equal replicas are looked for; leave it out")
    scenario = replace(scenario, data_parallel_size=1, prefill_replicas=0)
    shaped = _load(trace, scenario, choices)
    made = [replace(scenario, gpu=gpu if gpu.endswith(".toml") else load_gpu(gpu).name, tensor_parallel_size=ranks,
                    quantization=quantization)
            for gpu, ranks, quantization in itertools.product(choices.gpus, choices.ranks, choices.quantizations)
            if ranks <= load_gpu(gpu).gpus_per_node]
    if not made:
        raise UsageError(f"no node of {', '.join(choices.gpus)} has {min(choices.ranks)} GPUs; give other "
                         f"--tensor-parallel-size")
    divisions = (together, apart) if choices.splits else (together,)
    jobs = [joblib.delayed(_fleet)(shaped, each, objectives, choices, divided)
            for each, divided in itertools.product(made, divisions)]
    found = joblib.Parallel(n_jobs=choices.jobs)(jobs)
    able = sorted((fleet for fleet in found if "reason" not in fleet), key=_cost)
    unable = [fleet for fleet in found if "reason" in fleet]
    if not able:
        raise UsageError("no fleet keeps the objectives: " + "; ".join(f"{_name(f)}: {f['reason']}" for f in unable))
    fewest = min(able, key=lambda fleet: (fleet["num_gpus"], _cost(fleet)))
    return {**able[0], "fewest_gpus": fewest, "alternatives": [*able, *unable],
            "slo": {"limits_s": objectives.slo.limits_s, "attainment": objectives.attainment},
            "workload": {"source": trace.source, "num_requests": shaped.num_requests, "rate_rps": rate_of(shaped)},
            "trace_sha256": trace.sha256}


Divided = Callable[[Trace, Deployment, Objectives, int], tuple[ReplayResult, Verdict]]


def together(trace: Trace, deployment: Deployment, objectives: Objectives, count: int) -> tuple[ReplayResult, Verdict]:
    """Return how so many replicas serve that all prefill and decode."""
    served = serve(trace, deployment, count)
    return served, judge(objectives, served.times_s)


def apart(trace: Trace, deployment: Deployment, objectives: Objectives, count: int) -> tuple[ReplayResult, Verdict]:
    """Return how so many replicas serve of which some prefill and the others decode, in the best split that was tried.

    Where first tokens are late, more of them prefill, else fewer, until a split keeps the objectives or none is left.
    """
    low, high = 1, count - 1
    found: tuple[ReplayResult, Verdict] | None = None
    while low <= high:
        prefill = (low + high) // 2
        scenario = replace(deployment.scenario, data_parallel_size=count, prefill_replicas=prefill)
        served, verdict = together(trace, replace(deployment, scenario=scenario), objectives, count)
        if found is None or verdict.is_met or verdict.attainment > found[1].attainment:
            found = served, verdict
        if verdict.is_met:
            break
        low, high = (prefill + 1, high) if "ttft" in verdict.limiting_metric else (low, prefill - 1)
    assert found is not None, "at least two replicas"
    return found


def fewest_replicas(trace: Trace, deployment: Deployment, objectives: Objectives, guess: int = 1,
                    divided: Divided = together) -> tuple[int, ReplayResult, str]:
    """Return the fewest replicas that keep the objectives, how they serve, and what one less misses.

    One less than the answer misses them, and so does every smaller number that was tried.

    Parameters
    ----------
    guess : that the search begins with [1].
    divided : how so many replicas share the work: `together` or `apart`.

    Raises
    ------
    UnreachableError : not even a replica for each request does.
    """
    known: dict[int, tuple[ReplayResult, Verdict]] = {}

    def is_met(count: int) -> bool:
        if count not in known:
            known[count] = divided(trace, deployment, objectives, count)
        return known[count][1].is_met

    least = 1 if divided is together else 2
    most = max(min(trace.num_requests, MOST_GPUS // deployment.layout.num_gpus), least)
    high = min(max(guess, least), most)
    while not is_met(high):
        if high >= most:
            raise _unreachable(f"{high:,} replicas", known[high][1])
        if high > MANY and not (alone := divided(_apart_in_time(trace), deployment, objectives, least)[1]).is_met:
            raise _unreachable("requests, each alone on its replica,", alone)
        high = min(2 * high, most)
    low = max((count for count in known if not known[count][1].is_met), default=least - 1)
    if low == least - 1 and high > least and not is_met(high - 1):  # the guess was right
        low = high - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_met(middle) else (middle, high)
    return high, known[high][0], known[low][1].limiting_metric if low >= least else "none"


def _apart_in_time(trace: Trace) -> Trace:
    """Return the trace's requests, each an hour after the one before it: nobody waits for another."""
    hours = 3600.0 * np.arange(trace.num_requests)
    return replace(trace, requests=trace.requests.with_columns(pl.Series("arrival_s", hours)))


def _unreachable(who: str, worst: Verdict) -> UnreachableError:
    return UnreachableError(f"{who} still miss the objectives: {worst.attainment:.2%} of the requests meet their "
                            f"limits, {worst.limiting_metric} worst")


def _fleet(trace: Trace, scenario: Scenario, objectives: Objectives, choices: Choices,
           divided: Divided) -> dict[str, Any]:
    """Return the fewest replicas of one kind, or why there are none."""
    plain = {"gpu": load_gpu(str(scenario.gpu)).name, "tensor_parallel_size": scenario.tensor_parallel_size,
             "quantization": scenario.quantization or load_model(str(scenario.model)).quantization or "bf16"}
    try:
        count, served, limiting, stationary = _settled(trace, resolve(scenario, trace), objectives, scenario, divided)
    except (CapacityError, CatalogError, UnreachableError) as error:
        return {**plain, "reason": str(error)}
    deployment = served.deployment
    assert deployment.gpu is not None
    gpu, ranks = deployment.gpu, deployment.layout.num_gpus
    total = count + _num_spare(choices, divided)
    price = choices.prices.get(gpu.name, gpu.price_usd_per_hour)
    per_request: Any = trace.requests["output_tokens"].mean()
    mean_rps = rate_of(trace) if choices.series is None else choices.series.mean_rps
    busy_fraction = summarize(served, None)["gpu_busy_fraction"] or 0.0
    busy = busy_fraction * count / total
    return {
        **plain, **describe_launch(scenario),
        "num_replicas": total, "prefill_replicas": deployment.scenario.prefill_replicas,
        "num_spare": choices.num_spare, "num_gpus": total * ranks,
        "cost_usd_per_hour": total * ranks * price, "price_usd_per_gpu_hour": price,
        "cost_usd_per_million_output_tokens": total * ranks * price / (3600 * mean_rps * float(per_request)) * 1e6,
        "power_kw": total * ranks * (gpu.idle_w + (gpu.tdp_w - gpu.idle_w) * busy) / 1e3,
        "attainment": judge(objectives, served.times_s).attainment, "limiting_metric": limiting,
        "busy_fraction": busy_fraction,
        "priors": [] if deployment.stack is None else list(priors(deployment.stack)),
        "headroom": _headroom(trace, deployment, objectives, count), "stationary": stationary,
        "schedule": _schedule(trace, deployment, objectives, choices, total, divided),
    }


def _num_spare(choices: Choices, divided: Divided) -> int:
    """Return the replicas that are added because some may fail: where some prefill and others decode, of each kind."""
    return choices.num_spare * (1 if divided is together else 2)


def _load(trace: Trace, scenario: Scenario, choices: Choices) -> Trace:
    """Return what the fleet must serve: the trace at the rate asked for, or the highest window of the series."""
    if choices.series is None:
        return shape_load(scenario, trace)
    for name in ("rate_scale", "request_rate"):
        if getattr(scenario, name) is not None:
            raise UsageError(f"--{name.replace('_', '-')} {getattr(scenario, name)}: the rate series has the rates; "
                             f"leave it out")
    if choices.period_s is not None:
        raise UsageError(f"--period {choices.period_s}: the rate series has its own windows; leave it out")
    peak = int(choices.series.rate_rps.argmax())
    return lasting(shape_load(scenario, trace), choices.series.peak_rps, float(choices.series.duration_s[peak]))


def _settled(trace: Trace, deployment: Deployment, objectives: Objectives,
             scenario: Scenario, divided: Divided = together) -> tuple[int, ReplayResult, str, bool | None]:
    """Return the fewest replicas, how they serve, what one less misses, and whether a longer trace needs as many."""
    count, served, limiting = fewest_replicas(trace, deployment, objectives, divided=divided)
    if scenario.rate_scale is None and scenario.request_rate is None:
        return count, served, limiting, None
    times, most = 1, MOST_REQUESTS // trace.num_requests
    while times < most:
        times, before = min(times * LONGER, most), count
        count, served, limiting = fewest_replicas(repeated(trace, times), deployment, objectives, before, divided)
        if count == before:
            return count, served, limiting, True
    return count, served, limiting, False


def _headroom(trace: Trace, deployment: Deployment, objectives: Objectives, count: int) -> float | None:
    """Return by what share the rate may grow before the replicas miss the objectives [1]; None without an end."""
    own = rate_of(trace)

    def evaluate(rate: float) -> Verdict:
        return judge(objectives, serve(compressed(trace, rate, 0), deployment, count).times_s)

    try:
        return max(find_bracket(evaluate, own, tolerance=HEADROOM_TOLERANCE, checks=()).lower / own - 1.0, 0.0)
    except UnlimitedError:
        return None


def _schedule(trace: Trace, deployment: Deployment, objectives: Objectives, choices: Choices,
              static: int, divided: Divided = together) -> dict[str, Any] | None:
    """Return how many replicas each part of the time needs by itself, against as many all the time."""
    if choices.series is not None:
        return _schedule_of_series(trace, deployment, objectives, choices, choices.series, static, divided)
    if choices.period_s is None:
        return None
    if not choices.period_s > 0:
        raise UsageError(f"--period {choices.period_s}: must be above 0 s")
    arrivals = trace.requests["arrival_s"]
    first, last, spare = float(arrivals[0]), float(arrivals[-1]), _num_spare(choices, divided)
    parts = []
    for k in range(int((last - first) // choices.period_s) + 1):
        start = first + k * choices.period_s
        inside = int(((arrivals >= start) & (arrivals < start + choices.period_s)).sum())
        count = 0
        if inside:
            part = slice_time(trace, start, choices.period_s)
            count, _, _ = fewest_replicas(part, deployment, objectives, divided=divided)
        parts.append({"start_s": start - first, "duration_s": choices.period_s, "num_requests": inside,
                      "rate_rps": inside / choices.period_s, "num_replicas": count + spare})
    ranks, hours = deployment.layout.num_gpus, choices.period_s / 3600
    return {"parts": parts, "gpu_hours": sum(part["num_replicas"] for part in parts) * ranks * hours,
            "static_gpu_hours": static * len(parts) * ranks * hours}


def _schedule_of_series(trace: Trace, deployment: Deployment, objectives: Objectives, choices: Choices,
                        series: RateSeries, static: int, divided: Divided = together) -> dict[str, Any]:
    """Return how many replicas each window of a series needs, its rate rounded up to a twentieth of the peak's.

    A level is judged over a window's length. More traffic is taken to need no fewer replicas.
    """
    levels = [_level(rate / series.peak_rps) for rate in series.rate_rps.tolist()]
    mean_level = _level(series.mean_rps / series.peak_rps)
    needed, guess = {0: 0}, 1
    for level in sorted({*levels, mean_level} - {0}):
        load = lasting(trace, series.peak_rps * level / LEVELS, float(series.duration_s.max()))
        guess = max(guess, fewest_replicas(load, deployment, objectives, guess, divided)[0])
        needed[level] = guess
    ranks, spare = deployment.layout.num_gpus, _num_spare(choices, divided)
    counts = np.array([needed[level] + spare for level in levels])
    highest = {needed[level]: level for level in sorted(needed)}  # that a number of replicas was replayed to serve
    served_rps = [series.peak_rps * highest[needed[level]] / LEVELS for level in levels]
    columns = {"start_s": series.start_s.tolist(), "duration_s": series.duration_s.tolist(),
               "rate_rps": series.rate_rps.tolist(), "num_replicas": counts.tolist(), "served_rps": served_rps}
    parts = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    hours = series.duration_s / 3600
    return {"parts": parts, "peak_rps": series.peak_rps, "mean_rps": series.mean_rps,
            "num_replicas_at_mean": needed[mean_level] + spare,
            "gpu_hours": float((counts * hours).sum()) * ranks,
            "static_gpu_hours": static * float(hours.sum()) * ranks}


def _level(share: float) -> int:
    """Return the level that a share of the peak is rounded up to."""
    return int(np.ceil(share * LEVELS - 1e-9))


def _cost(fleet: Mapping[str, Any]) -> tuple[float, int]:
    return fleet["cost_usd_per_hour"], fleet["num_gpus"]


def _name(fleet: Mapping[str, Any]) -> str:
    return f"{fleet['tensor_parallel_size']} × {fleet['gpu']} {fleet['quantization']}"


def parse_prices(text: str | None) -> dict[str, float]:
    """Read `"h100-sxm=2.5,h200-sxm=3"`, in USD per GPU-hour.

    >>> parse_prices("h100-sxm=2.5")
    {'h100-sxm': 2.5}

    Raises
    ------
    UsageError, UnknownNameError : a part is no name and price; there is no such GPU.
    """
    found = {}
    for part in (text or "").replace(",", " ").split():
        name, _, value = part.partition("=")
        try:
            price = float(value)
        except ValueError:
            price = math.nan
        if not 0 <= price < math.inf:
            raise UsageError(f"--price {part!r}: {value!r} is no price of 0 or more, as in 'h100-sxm=2.5'")
        found[load_gpu(name).name] = price
    return found


def parse_ranks(text: str | None) -> tuple[int, ...]:
    """Read `"1,2,4"`; the sizes of RANKS where there is nothing.

    Raises
    ------
    UsageError : a part is no whole number above 0, or is given twice.
    """
    if text is None:
        return RANKS
    parts = text.replace(",", " ").split()
    if not parts or not all(part.isdecimal() and int(part) > 0 for part in parts) or len(set(parts)) < len(parts):
        raise UsageError(f"--tensor-parallel-size {text!r}: must be whole numbers above 0, each once, as in '1,2,4'")
    return tuple(int(part) for part in parts)
