"""The fewest GPUs, and the cheapest fleet, that serve a trace within its objectives."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import joblib
import numpy as np

from planner.catalog.entries import load_gpu, load_model
from planner.catalog.gpus import Gpu
from planner.deployment.deploy import Deployment, Pool, pools_of, resolve, shape_load
from planner.errors import CapacityError, CatalogError, UsageError
from planner.files.finite import number_in
from planner.fleet.replicas import serve
from planner.fleet.shares import Share, shares
from planner.launch import describe_launch
from planner.metrics.notes import notes
from planner.metrics.power import mean_power_w
from planner.metrics.summary import summarize
from planner.planning.bracket import UnlimitedError, UnreachableError, find_bracket
from planner.planning.fewest import Divided, apart, cheapest_split, fewest_replicas, of_two_kinds, together
from planner.replays.results import ReplayResult
from planner.settings.objectives import Objectives, Verdict, judge
from planner.settings.scenario import Scenario, attention_ranks
from planner.steptime.roofline import priors
from planner.trace import Trace
from planner.traffic.rate_series import RateSeries
from planner.traffic.rescaling import MOST_REQUESTS, compressed, lasting, rate_of, repeated
from planner.traffic.workload import slice_time

LONGER = 8  # times a trace that shows whether a queue grows: replicas are whole, so twice may show nothing
LEVELS = 20  # of a series' rates that are told apart
RANKS = (1, 2, 4, 8)  # tensor-parallel sizes that are tried where none are given
NO_INTERVAL = "--interval does nothing here: planner capacity says how sure a rate is"
HEADROOM_TOLERANCE = 0.02


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
    decode_gpus, decode_ranks : what those that decode are made of; None for the same as those that prefill.
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
    decode_gpus: Sequence[str] | None = None
    decode_ranks: Sequence[int] | None = None
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
    scenario : of one replica, but for its GPU, layout and weight format, which `choices` has; with data-parallel
        attention its ranks are `data_parallel_size`, and all of them one replica.
    objectives : what the load must keep.
    choices : what fleets are made of.

    Returns
    -------
    dict
        The cheapest fleet: `gpu`, `tensor_parallel_size`, `data_parallel_size` (attention ranks of a replica),
        `quantization`, `decode_gpu`, `decode_tensor_parallel_size` (None where those that decode are of the same kind),
        `num_replicas`, `prefill_replicas` (of them, those that prefill only; 0 where all do both), `num_gpus`,
        `cost_usd_per_hour`, `cost_usd_per_million_output_tokens`, `power_kw`, `attainment`, `limiting_metric` with one
        replica less, `headroom` (growth of the rate that the replicas which are not spare bear; None without an end),
        `priors` (operators whose kernels nobody measured on the GPU), `notes`, the `command` that launches a replica
        and what it lacks, `schedule`; `stationary` (whether a longer trace needs as many; None where no rate is asked
        for); then `fewest_gpus` and all `alternatives`, cheapest first, those that cannot do it with their `reason`.

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
    if not scenario.data_parallel_attention:
        scenario = replace(scenario, data_parallel_size=1, prefill_replicas=0)
    shaped = _load(trace, scenario, choices)
    made = _kinds(scenario, choices.gpus, choices.ranks, choices.quantizations)
    jobs = [joblib.delayed(_fleet)(shaped, prefill, decode, objectives, choices, divided)
            for prefill, decode, divided in _fleets(scenario, made, choices)]
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


def _kinds(scenario: Scenario, gpus: Sequence[str], ranks: Sequence[int],
           quantizations: Sequence[str | None]) -> list[Scenario]:
    """Return a scenario for each kind of replica that fits a node."""
    found = [replace(scenario, gpu=gpu if gpu.endswith(".toml") else load_gpu(gpu).name, tensor_parallel_size=size,
                     quantization=quantization)
             for gpu, size, quantization in itertools.product(gpus, ranks, quantizations)
             if _fits(scenario, size, load_gpu(gpu))]
    if not found:
        raise UsageError(f"no node of {', '.join(gpus)} has {min(ranks) * attention_ranks(scenario)} GPUs; give other "
                         f"--tensor-parallel-size{', or fewer ranks' * scenario.data_parallel_attention}")
    return found


def _fits(scenario: Scenario, size: int, gpu: Gpu) -> bool:
    """Tell whether ranks of such a tensor-parallel size are in one node, or the network between nodes is given."""
    is_spread = scenario.data_parallel_attention and scenario.inter_node_bandwidth is not None
    return size * (1 if is_spread else attention_ranks(scenario)) <= gpu.gpus_per_node


def _fleets(scenario: Scenario, made: Sequence[Scenario],
            choices: Choices) -> list[tuple[Scenario, Scenario | None, Divided]]:
    """Return the fleets to try: a kind for all, or for those that prefill and for those that decode, None the same."""
    found: list[tuple[Scenario, Scenario | None, Divided]] = [(kind, None, together) for kind in made]
    if choices.decode_gpus is None and choices.decode_ranks is None:
        return found + [(kind, None, apart) for kind in made if choices.splits]
    if not choices.splits:
        raise UsageError("--decode-gpu, --decode-tensor-parallel-size: need --disaggregate")
    others = _kinds(scenario, choices.decode_gpus or choices.gpus, choices.decode_ranks or choices.ranks,
                    choices.quantizations)
    return found + [(one, None if other == one else other, apart) for one in made for other in others
                    if other.quantization == one.quantization]


def _fleet(trace: Trace, scenario: Scenario, decode: Scenario | None, objectives: Objectives, choices: Choices,
           divided: Divided) -> dict[str, Any]:
    """Return the fewest replicas of one kind, or of one that prefills and another that decodes; or why there are none.

    Of two kinds the cheapest that `cheapest_split` finds.
    """
    plain = {"gpu": load_gpu(str(scenario.gpu)).name, "tensor_parallel_size": scenario.tensor_parallel_size,
             "data_parallel_size": attention_ranks(scenario),
             "quantization": scenario.quantization or load_model(str(scenario.model)).quantization or "bf16",
             "decode_gpu": None if decode is None else load_gpu(str(decode.gpu)).name,
             "decode_tensor_parallel_size": None if decode is None else decode.tensor_parallel_size}
    try:
        deployment = resolve(scenario, trace)
        if decode is not None:
            deployment = of_two_kinds(deployment, resolve(decode, trace))
        count, served, limiting, stationary = _settled(trace, deployment, objectives, scenario, divided)
    except (CapacityError, CatalogError, UnreachableError) as error:
        return {**plain, "reason": str(error)}
    if decode is not None:
        one, other = (_replica_price(pool, choices) for pool in served.deployment.pools)
        served = cheapest_split(served, objectives, (one, other))
        count = sum(pool.num_groups for pool in served.deployment.pools)
    deployment, summary = served.deployment, summarize(served, None)
    parts = shares(served, summary["duration"])
    num_gpus = count_gpus(served) + _spare_gpus(deployment, choices, divided)
    cost = sum((part.pool.num_groups + choices.num_spare) * _replica_price(part.pool, choices) for part in parts)
    per_request: Any = trace.requests["output_tokens"].mean()
    mean_rps = rate_of(trace) if choices.series is None else choices.series.mean_rps
    return {
        **plain, **describe_launch(scenario),
        "decode_command": None if decode is None else describe_launch(decode)["command"],
        "num_replicas": count + _num_spare(choices, divided),
        "prefill_replicas": sum(part.pool.num_groups for part in parts if part.pool.role == "prefill"),
        "num_spare": choices.num_spare, "num_gpus": num_gpus,
        "cost_usd_per_hour": cost, "price_usd_per_gpu_hour": cost / num_gpus,
        "cost_usd_per_million_output_tokens": cost / (3600 * mean_rps * float(per_request)) * 1e6,
        "power_kw": sum(_power_kw(part, summary["duration"], choices) for part in parts),
        "attainment": judge(objectives, served.times_s).attainment, "limiting_metric": limiting,
        "busy_fraction": summary["gpu_busy_fraction"] or 0.0,
        "priors": list(dict.fromkeys(name for part in parts if part.pool.deployment.stack is not None
                                     for name in priors(part.pool.deployment.stack))),
        "notes": [*notes(deployment, trace), *([NO_INTERVAL] if scenario.interval is not None else [])],
        "headroom": _headroom(trace, deployment, objectives, count), "stationary": stationary,
        "schedule": _schedule(trace, deployment, objectives, choices, num_gpus, divided),
    }


def _replica_price(pool: Pool, choices: Choices) -> float:
    """Return what a replica of a pool costs [USD/h]."""
    gpu = pool.deployment.gpu
    assert gpu is not None
    return pool.deployment.layout.num_gpus * choices.prices.get(gpu.name, gpu.price_usd_per_hour)


def _power_kw(part: Share, duration_s: float, choices: Choices) -> float:
    """Return the mean draw of a pool, its spare replicas idle [kW]."""
    pool, gpu = part.pool, part.pool.deployment.gpu
    assert gpu is not None
    total_w = pool.num_groups * mean_power_w(part, duration_s) + choices.num_spare * gpu.idle_w
    return total_w * pool.deployment.layout.num_gpus / 1e3


def count_gpus(served: ReplayResult) -> int:
    """Return the GPUs of all replicas of a replay."""
    return sum(pool.num_gpus for pool in pools_of(served.deployment, served.num_replicas))


def _spare_gpus(deployment: Deployment, choices: Choices, divided: Divided) -> int:
    """Return the GPUs of the spare replicas."""
    if deployment.pools:
        return choices.num_spare * sum(pool.deployment.layout.num_gpus for pool in deployment.pools)
    return _num_spare(choices, divided) * deployment.layout.num_gpus


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
              static_gpus: int, divided: Divided = together) -> dict[str, Any] | None:
    """Return how many replicas each part of the time needs by itself, against so many GPUs all the time."""
    if choices.series is not None:
        return _schedule_of_series(trace, deployment, objectives, choices, choices.series, static_gpus, divided)
    if choices.period_s is None:
        return None
    if not choices.period_s > 0:
        raise UsageError(f"--period {choices.period_s}: must be above 0 s")
    arrivals = trace.requests["arrival_s"]
    first, last, spare = float(arrivals[0]), float(arrivals[-1]), _num_spare(choices, divided)
    parts, num_gpus = [], 0
    for k in range(int((last - first) // choices.period_s) + 1):
        start = first + k * choices.period_s
        inside = int(((arrivals >= start) & (arrivals < start + choices.period_s)).sum())
        count = 0
        num_gpus += _spare_gpus(deployment, choices, divided)
        if inside:
            part = slice_time(trace, start, choices.period_s)
            count, served, _ = fewest_replicas(part, deployment, objectives, divided=divided)
            num_gpus += count_gpus(served)
        parts.append({"start_s": start - first, "duration_s": choices.period_s, "num_requests": inside,
                      "rate_rps": inside / choices.period_s, "num_replicas": count + spare})
    hours = choices.period_s / 3600
    return {"parts": parts, "gpu_hours": num_gpus * hours, "static_gpu_hours": static_gpus * len(parts) * hours}


def _schedule_of_series(trace: Trace, deployment: Deployment, objectives: Objectives, choices: Choices,
                        series: RateSeries, static_gpus: int, divided: Divided = together) -> dict[str, Any]:
    """Return how many replicas each window of a series needs, its rate rounded up to a twentieth of the peak's.

    A level is judged over a window's length. More traffic is taken to need no fewer replicas.
    """
    levels = [_level(rate / series.peak_rps) for rate in series.rate_rps.tolist()]
    mean_level = _level(series.mean_rps / series.peak_rps)
    needed, gpus, guess, last_gpus = {0: 0}, {0: 0}, 1, 0
    for level in sorted({*levels, mean_level} - {0}):
        load = lasting(trace, series.peak_rps * level / LEVELS, float(series.duration_s.max()))
        count, served, _ = fewest_replicas(load, deployment, objectives, guess, divided)
        if count >= guess:
            guess, last_gpus = count, count_gpus(served)
        needed[level], gpus[level] = guess, last_gpus
    spare = _num_spare(choices, divided)
    counts = np.array([needed[level] + spare for level in levels])
    highest = {needed[level]: level for level in sorted(needed)}  # that a number of replicas was replayed to serve
    served_rps = [series.peak_rps * highest[needed[level]] / LEVELS for level in levels]
    columns = {"start_s": series.start_s.tolist(), "duration_s": series.duration_s.tolist(),
               "rate_rps": series.rate_rps.tolist(), "num_replicas": counts.tolist(), "served_rps": served_rps}
    parts = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    hours, spare_gpus = series.duration_s / 3600, _spare_gpus(deployment, choices, divided)
    num_gpus = np.array([gpus[level] + spare_gpus for level in levels])
    return {"parts": parts, "peak_rps": series.peak_rps, "mean_rps": series.mean_rps,
            "num_replicas_at_mean": needed[mean_level] + spare,
            "gpu_hours": float((num_gpus * hours).sum()),
            "static_gpu_hours": static_gpus * float(hours.sum())}


def _level(share: float) -> int:
    """Return the level that a share of the peak is rounded up to."""
    return int(np.ceil(share * LEVELS - 1e-9))


def _cost(fleet: Mapping[str, Any]) -> tuple[float, int]:
    return fleet["cost_usd_per_hour"], fleet["num_gpus"]


def _name(fleet: Mapping[str, Any]) -> str:
    decode = f" + {fleet['decode_tensor_parallel_size']} × {fleet['decode_gpu']}" if fleet["decode_gpu"] else ""
    return f"{fleet['tensor_parallel_size']} × {fleet['gpu']}{decode} {fleet['quantization']}"


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
        price = number_in(value)
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
