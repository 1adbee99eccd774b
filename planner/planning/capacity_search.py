"""The search for the largest load that a deployment serves: over lengths of the load, and over draws of its errors."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from planner.planning.bracket import STEP, Bracket, Edge, Unknown, UnlimitedError, find_bracket, find_edge
from planner.planning.capacity_answer import Confidence
from planner.planning.fewest import LOST
from planner.planning.missed import UnreachableError
from planner.planning.sought import Sought, longer, quick_verdict, verdict
from planner.planning.strain import STEEP
from planner.progress import in_parallel, later, stage
from planner.results.resolved import fitted_deployments
from planner.results.uncertainty import step_factors
from planner.traces.shaping.rescaling import MOST_REQUESTS

NEXT = 1.06  # first step of a search from a load that is near the answer
SETTLED = 0.02  # change of the capacity from one horizon to twice it that counts as none
NEAR = 0.02  # tolerance of the capacity under another assumption
DRAWN = 0.02  # and of a replicate's: a fifth of the spread of replicates, as a rule
MANY_BLOCKS = 5_000_000  # of prompts: a replay with more of them takes seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The largest load, over lengths of the traffic.

    Parameters
    ----------
    bracket : of the longest.
    times : how often the trace follows itself in it [1].
    lengths : requests of each length, and its capacity.
    is_stationary : whether the last two agree; None if one alone was tried.
    slope : power of the load with which strain grows at the largest [1].
    """

    bracket: Bracket
    times: int
    lengths: tuple[tuple[int, float], ...]
    is_stationary: bool | None
    slope: float


def settled(sought: Sought, start: float, *, is_told: bool = True) -> Settled:
    """Find the largest load, of twice the length until it does not change.

    Parameters
    ----------
    is_told : whether the answer has the statistics of the tried loads, and tries loads above the largest.

    Raises
    ------
    UnlimitedError, UnreachableLoadError : as `find_bracket`.
    """
    with _said(sought):
        return _settled(sought, start, is_told=is_told)


@contextmanager
def _said(sought: Sought) -> Iterator[None]:
    """Show why a search with many KV blocks takes long, while it lasts."""
    block_size = int(sought.deployment.settings.block_size)
    num_blocks = int((sought.trace.requests["input_tokens"] // block_size).sum())
    if num_blocks < MANY_BLOCKS:
        yield
        return
    with stage(f"each replay looks up {num_blocks / 1e6:,.0f} million KV blocks; --limit and --replicates 0 make the "
               f"search shorter"):
        yield


def _settled(sought: Sought, start: float, *, is_told: bool) -> Settled:
    times, longest, lengths = 1, sought, list[tuple[int, float]]()
    while not lengths:
        try:
            edge = _edge(longest, start, STEEP, tolerance=SETTLED / 2, step=STEP, is_told=is_told)
            lengths.append((times, edge.load))
        except UnlimitedError:  # of users there are no more than the traffic has
            if not (sought.unknown.is_whole and _can_last(sought, 2 * times, start)):
                raise
            times *= 2
            longest = longer(sought, times)
    is_settled = sought.search.horizon == "trace"
    while not is_settled and _can_last(sought, 2 * lengths[-1][0], lengths[-1][1]):
        times = 2 * lengths[-1][0]
        longest = longer(sought, times)
        edge = _edge(longest, lengths[-1][1], edge.slope, tolerance=SETTLED / 2, is_told=is_told)
        lengths.append((times, edge.load))
        is_settled = abs(lengths[-1][1] / lengths[-2][1] - 1) <= SETTLED
    bracket = find_bracket(partial(quick_verdict, longest, is_told=is_told), edge.load, unknown=sought.unknown,
                           limits=longest.limits, known=edge.probes, jobs=sought.search.jobs, checks_above=is_told)
    probes = dict(bracket.probes)
    if is_told and probes[bracket.upper] is LOST:  # the answer states its limiting metric
        probes[bracket.upper] = verdict(longest, bracket.upper)
        bracket = replace(bracket, probes=tuple(probes.items()))
    lengths[-1] = times, bracket.lower
    requests = tuple((each * sought.num_requests_at(load), load) for each, load in lengths)
    return Settled(bracket=bracket, times=times, lengths=requests, slope=edge.slope,
                   is_stationary=is_settled if sought.search.horizon == "double" and len(lengths) > 1 else None)


def _edge(sought: Sought, start: float, slope: float, *, tolerance: float, step: float = NEXT,
          is_told: bool = False) -> Edge:
    """Return about how high the largest load is, from one that is near it unless the step is large."""
    return find_edge(partial(quick_verdict, sought, is_told=is_told), start, unknown=sought.unknown,
                     tolerance=tolerance, step=step, limits=sought.limits, slope=slope)


def _can_last(sought: Sought, times: int, load: float) -> bool:
    """Return whether the traffic, repeated `times` times, is short enough for a replay."""
    return times * max(sought.num_requests_at(load), sought.trace.num_requests) <= MOST_REQUESTS


def largest_from(sought: Sought, start: float, slope: float) -> float | None:
    """Return about the largest load, from one that is near it; None if there is none."""
    try:
        return _edge(sought, start, slope, tolerance=NEAR).load
    except (UnreachableError, UnlimitedError):
        return None


def confidence_of(sought: Sought, capacity: float, slope: float) -> Confidence:
    """Return quantiles of the capacity over resampled traffic and over errors of the step times.

    The draws of the errors are the held-out ones in TPOT of the constants in use. At a load that 90 % of the draws
    serve, `p10`, one may be 90 % confident.

    Parameters
    ----------
    slope : power of the load with which strain grows at the capacity [1].
    """
    search = sought.search
    drawn = np.random.default_rng(search.seed).permutation((np.arange(search.replicates) + 0.5) / search.replicates)
    spreads = [step_factors(each, drawn) for each in fitted_deployments(sought.deployment)]
    factors = max(spreads, key=lambda spread: float(np.ptp(spread)))  # of pools, the one that is known the least
    draws = [(1.0, None), *((factor, search.seed + 1 + k) for k, factor in enumerate(factors.tolist()))]
    calls = [later(_replicate)(sought, capacity, slope, factor, seed) for factor, seed in draws]
    undrawn, *drawn_loads = in_parallel("drawing windows and errors for the confidence", calls, len(calls), search.jobs)
    loads = np.array(drawn_loads) * capacity / undrawn
    return Confidence(**{f"p{share}": float(np.quantile(loads, share / 100)) for share in (10, 50, 90)})


def _replicate(sought: Sought, start: float, slope: float, factor: float, seed: int | None) -> float:
    """Return the capacity of one draw: 0 if no load keeps the objectives, the largest load tried if all do."""
    drawn = sought.drawn(factor, seed)
    try:
        largest = _edge(drawn, start, slope, tolerance=DRAWN).load
    except UnreachableError:
        return 0.0
    except UnlimitedError:
        if not drawn.unknown.is_whole:
            raise
        largest = drawn.limits[1]
    return drawn.at_pace(largest, factor)


def loads_text(loads: Sequence[float], unknown: Unknown) -> str:
    """Return loads in words.

    >>> from planner.planning.bracket import RATE
    >>> loads_text((1.25, 2.0), RATE)
    '1.25, 2 requests/s'
    """
    return f"{', '.join(f'{load:.4g}' for load in loads)} {unknown.unit}"


def search_notes(bracket: Bracket, settled: Settled, unknown: Unknown) -> list[str]:
    """Return notes on loads that are not as the ones around them, and on a capacity that depends on the length."""
    notes = []
    if bracket.kept_above:
        notes.append(f"attainment does not fall steadily with the {unknown.name}: "
                     f"{loads_text(bracket.kept_above, unknown)} meet the objectives, and lower "
                     f"{'numbers' if unknown.is_whole else 'rates'} miss them")
    if bracket.missed_below:
        notes.append(f"{loads_text(bracket.missed_below, unknown)} miss the objectives, although they are below the "
                     f"capacity")
    if settled.is_stationary is False:
        (before, less), (last, now) = settled.lengths[-2:]
        notes.append(f"the capacity has not converged: {loads_text((now,), unknown)} at {last:,} requests, {less:.4g} "
                     f"at {before:,}; the trace is too short, or too bursty for one draw")
    return notes
