"""A schedule: how many replicas each part of the time needs by itself, against one number all the time."""

from dataclasses import replace

import numpy as np

from planner.deployment.deploy import Deployment
from planner.errors import UsageError
from planner.files.counts import count_text, share_text
from planner.planning.fewest import Divided, fewest_replicas
from planner.planning.fleets import count_gpus, spare_gpus, spare_replicas
from planner.planning.loads import Traffic
from planner.planning.missed import UnreachableError, unreachable
from planner.planning.search_options import Choices
from planner.planning.size_answer import Schedule, SchedulePart
from planner.settings.objectives import Objectives
from planner.traces import Trace
from planner.traces.shaping.forecast import coverage, forecast
from planner.traces.shaping.rate_series import RateSeries
from planner.traces.shaping.window_and_rate import slice_time

LEVELS = 20  # parts of a series' peak that its rates are rounded up to; below one part, its half, quarter …


def schedule_of(traffic: Traffic, load: Trace, deployment: Deployment, objectives: Objectives, choices: Choices,
                static_gpus: int, divided: Divided) -> Schedule | None:
    """Return how many replicas each part of the time needs by itself; None if no schedule is asked for.

    Parameters
    ----------
    traffic, load : the traffic to serve, and all of it at the rate asked for.
    static_gpus : of the fleet that serves all of it [1].

    Raises
    ------
    UsageError : the length of a part is not above 0.
    UnreachableError : no number of replicas serves a part, which is named.
    """
    if choices.series is not None:
        return _of_series(traffic, deployment, objectives, choices, choices.series, static_gpus, divided)
    if choices.period_s is None:
        return None
    return _of_periods(load, deployment, objectives, choices, choices.period_s, static_gpus, divided)


def _of_periods(load: Trace, deployment: Deployment, objectives: Objectives, choices: Choices, period_s: float,
                static_gpus: int, divided: Divided) -> Schedule:
    """Return how many replicas each part of equal length needs."""
    arrivals = load.requests["arrival_s"]
    first, last, spare = float(arrivals[0]), float(arrivals[-1]), spare_replicas(choices, divided)
    parts = []
    for k in range(int((last - first) // period_s) + 1):
        start = first + k * period_s
        inside = int(((arrivals >= start) & (arrivals < start + period_s)).sum())
        count, gpus = 0, 0
        if inside:
            name = (f"the part from {start - first:,.6g} to {start - first + period_s:,.6g} s "
                    f"({count_text(inside, 'request')})")
            count, gpus = _needed(name, slice_time(load, start, period_s), deployment, objectives, 1, divided)
        parts.append(SchedulePart(start_s=start - first, duration_s=period_s, num_requests=inside,
                                  rate_rps=inside / period_s, num_replicas=count + spare,
                                  num_gpus=gpus + spare_gpus(deployment, choices, divided)))
    hours = period_s / 3600
    return Schedule(parts=tuple(parts), gpu_hours=sum(part.num_gpus for part in parts) * hours,
                    static_gpu_hours=static_gpus * len(parts) * hours)


def _of_series(traffic: Traffic, deployment: Deployment, objectives: Objectives, choices: Choices, series: RateSeries,
               static_gpus: int, divided: Divided) -> Schedule:
    """Return how many replicas each window of a series needs, its rate rounded up to a level.

    Levels are twentieths of the peak; below the first, each is half of the one above. A level is judged over a window's
    length. More traffic is taken to need no fewer replicas.
    """
    levels = [_level(rate / series.peak_rps) for rate in series.rate_rps.tolist()]
    mean_level = series.mean_rps / series.peak_rps
    needed, gpus, guess, last_gpus = {0.0: 0}, {0.0: 0}, 1, 0
    for level in sorted({*levels, mean_level} - {0.0}):
        rate = series.peak_rps * level
        load = traffic.lasting(rate, float(series.duration_s.max()))
        count, num_gpus = _needed(f"a window of {rate:,.4g} requests/s", load, deployment, objectives, guess, divided)
        if count >= guess:
            guess, last_gpus = count, num_gpus
        needed[level], gpus[level] = guess, last_gpus
    spare, always = spare_replicas(choices, divided), spare_gpus(deployment, choices, divided)
    highest = {needed[level]: level for level in sorted(needed)}  # that a number of replicas was replayed to serve
    windows = zip(series.start_s.tolist(), series.duration_s.tolist(), series.rate_rps.tolist(), levels, strict=True)
    parts = tuple(SchedulePart(start_s=start_s, duration_s=duration_s, rate_rps=rate_rps,
                               num_replicas=needed[level] + spare, num_gpus=gpus[level] + always,
                               served_rps=series.peak_rps * highest[needed[level]])
                  for start_s, duration_s, rate_rps, level in windows)
    hours = series.duration_s / 3600
    total = np.array([gpus[level] + always for level in levels])
    return Schedule(parts=parts, peak_rps=series.peak_rps, mean_rps=series.mean_rps,
                    num_replicas_at_mean=needed[mean_level] + spare, gpu_hours=float((total * hours).sum()),
                    static_gpu_hours=static_gpus * float(hours.sum()))


def _needed(name: str, load: Trace, deployment: Deployment, objectives: Objectives, guess: int,
            divided: Divided) -> tuple[int, int]:
    """Return the fewest replicas that serve a part by itself, and their GPUs."""
    try:
        count, served, _ = fewest_replicas(load, deployment, objectives, guess, divided)
    except UnreachableError as error:
        raise unreachable(f"{name}: {error}", error.missed) from error
    return count, count_gpus(served)


def _level(share: float) -> float:
    """Return the level that a share of the peak is rounded up to, as a share.

    >>> _level(0.51), _level(0.05), _level(0.02), _level(0.0)
    (0.55, 0.05, 0.025, 0.0)
    """
    parts = share * LEVELS - 1e-9
    if parts <= 0:
        return 0.0
    return float(np.ceil(parts) if parts > 1 else 2.0 ** np.ceil(np.log2(parts))) / LEVELS


def with_forecast(choices: Choices) -> tuple[Choices, list[str]]:
    """Return choices whose rate series is the forecast that is asked for, and notes on both.

    Raises
    ------
    UsageError : there is no series, or it makes no seasons.
    """
    series, quantile = choices.series, choices.forecast_quantile
    if choices.forecast_s is None:
        return choices, [] if series is None else [*series.notes]
    if series is None:
        raise UsageError(f"--forecast {choices.forecast_s:g}: needs the past rates; give --rate-series")
    ahead = forecast(series, choices.forecast_s, choices.season_s, quantile)
    covered = coverage(series, choices.season_s, quantile)
    held_out = "" if covered is None else (f"; forecast from the seasons before, the last one was within it in "
                                           f"{share_text(covered)} of the windows")
    return replace(choices, series=ahead), [
        *series.notes,
        f"the rates are a forecast for {choices.forecast_s:,.6g} s: the {share_text(quantile)} quantile over past "
        f"seasons of {choices.season_s:,.6g} s{held_out}"]


def check_schedule(choices: Choices) -> None:
    """Raise UsageError if a schedule's options do not fit."""
    if choices.period_s is not None and choices.series is not None:
        raise UsageError(f"--period {choices.period_s}: the rate series has its own windows; leave it out")
    if choices.period_s is not None and not choices.period_s > 0:
        raise UsageError(f"--period {choices.period_s}: must be above 0 s")
