"""The load that a scenario asks for: a trace cut, repeated, scaled, and with sessions under way."""

import math
from dataclasses import replace

from planner.deployment.pools import read_fleet
from planner.errors import UsageError
from planner.settings.scenario import Scenario
from planner.traces import Trace
from planner.traces.results import generates, pooled
from planner.traces.shaping.client_load import NAME, at_client_rate
from planner.traces.shaping.closed_load import in_turn, load_of, with_pauses
from planner.traces.shaping.rescaling import SCALINGS, at_rate, part_words, rate_of, repeated
from planner.traces.shaping.session_start import check_sessions, parse_fractions, under_way
from planner.traces.shaping.window_and_rate import at_request_rate, limit, scale_rate, slice_time


def shape_load(scenario: Scenario, trace: Trace) -> Trace:
    """Cut a trace, repeat it and scale it: window, number of requests, copies, then rate.

    Raises
    ------
    UsageError : an option of the load is out of range, needs another one, or contradicts it.
    """
    _check(scenario)
    trace = _cut(scenario, trace if _generates(scenario) else pooled(trace))
    if scenario.ready_at_start:
        return _with_sessions(scenario, _of_users(scenario, trace))
    if trace.arrivals == "absent" and scenario.request_rate is None and not scenario.is_closed_loop:
        raise UsageError(f"{trace.source}: has no arrival times; give --request-rate for Poisson "
                         f"arrivals, or --max-concurrency for a closed loop (capacity: --scaling poisson)")
    return _with_sessions(scenario, _at_its_rate(scenario, trace))


def _generates(scenario: Scenario) -> bool:
    """Tell whether the requests of a scenario, or of its fleet's pools, generate tokens."""
    if scenario.fleet is None:
        return generates(scenario)
    return all(generates(spec.scenario) for spec in read_fleet(scenario.fleet, scenario))


def kept_part(scenario: Scenario, trace: Trace) -> str | None:
    """Return in words which part of a trace `shape_load` keeps at the scenario's rate; None if it keeps all of it."""
    if scenario.scaling is None or trace.format == NAME or trace.arrivals == "absent":
        return None
    cut = _cut(scenario, trace)
    return part_words(repeated(cut, scenario.trace_copies), _rate(scenario, cut), scenario.scaling)


def _cut(scenario: Scenario, trace: Trace) -> Trace:
    """Return the window and the number of requests that a scenario keeps."""
    if scenario.start_at > 0 or scenario.duration is not None:
        kept_s = math.inf if scenario.duration is None else scenario.duration
        trace = slice_time(trace, scenario.start_at, kept_s)
    return trace if scenario.limit is None else limit(trace, scenario.limit)


def _rate(scenario: Scenario, cut: Trace) -> float:
    """Return the rate that a scenario asks for, of a trace that is cut [1/s]."""
    return rate_of(cut) * (scenario.rate_scale or 1.0) if scenario.request_rate is None else scenario.request_rate


def _check(scenario: Scenario) -> None:
    """Raise UsageError if options of the load contradict each other or lack one that they need."""
    if scenario.rate_scale is not None and scenario.request_rate is not None:
        raise UsageError("--rate-scale and --request-rate exclude each other; give one of them")
    if scenario.trace_copies < 1:
        raise UsageError(f"--trace-copies {scenario.trace_copies}: must be at least 1")
    has_rate = scenario.rate_scale is not None or scenario.request_rate is not None
    if scenario.scaling is not None and scenario.scaling not in SCALINGS:
        raise UsageError(f"--scaling {scenario.scaling}: must be one of {', '.join(SCALINGS)}")
    if scenario.scaling is not None and not has_rate:
        raise UsageError(f"--scaling {scenario.scaling}: needs --request-rate or --rate-scale")
    if scenario.ready_at_start and not scenario.is_closed_loop:
        raise UsageError("--ready-at-start: needs --max-concurrency or --max-sessions")
    if scenario.ready_at_start and has_rate:
        raise UsageError("--ready-at-start: a closed loop of users has no rate; leave out --request-rate and "
                         "--rate-scale")
    if scenario.think_time is not None and not scenario.ready_at_start:
        raise UsageError(f"--think-time {scenario.think_time:g}: needs --ready-at-start")


def _of_users(scenario: Scenario, trace: Trace) -> Trace:
    """Return requests or sessions that are all ready at 0, with the pauses that are asked for."""
    of = "concurrency" if scenario.max_sessions is None else "sessions"
    users = scenario.max_concurrency if scenario.max_sessions is None else scenario.max_sessions
    turns = repeated(in_turn(with_pauses(trace, of, scenario.think_time), of), scenario.trace_copies)
    return load_of(turns, of, users or 1, scenario.think_time)


def _at_its_rate(scenario: Scenario, trace: Trace) -> Trace:
    """Return the copies of a trace at the rate that is asked for."""
    rate, scaling, seed = scenario.request_rate, scenario.scaling, scenario.seed or 0
    if rate is not None and (trace.format == NAME or trace.arrivals == "absent"):
        if scaling not in (None, "poisson"):
            raise UsageError(f"--scaling {scaling}: {trace.source} has no arrival times to change; must be poisson")
        if scaling is None:
            return repeated(at_client_rate(trace, rate, seed=seed), scenario.trace_copies)
        trace = replace(at_client_rate(trace, 1.0, seed=seed), arrivals="recorded")  # the order alone matters
    if scaling not in (None, "compress"):
        return at_rate(repeated(trace, scenario.trace_copies), _rate(scenario, trace), scaling, seed)
    trace = repeated(trace, scenario.trace_copies)
    if scenario.rate_scale is not None:
        return scale_rate(trace, scenario.rate_scale)
    return trace if rate is None else at_request_rate(trace, rate)


def _with_sessions(scenario: Scenario, trace: Trace) -> Trace:
    """Return a trace with its first sessions under way, if the user asks for that; check the limit of sessions."""
    most, fractions = scenario.max_sessions, scenario.session_start_fraction
    if most is None:
        if fractions is not None:
            raise UsageError(f"--session-start-fraction {fractions}: needs --max-sessions, the number of sessions that "
                             f"are open at the start")
        return trace
    check_sessions(trace, most)
    if not scenario.wait_for_parents:
        raise UsageError(f"--max-sessions {most}: without --wait-for-parents no request waits for another; leave one "
                         f"of them out")
    return trace if fractions is None else under_way(trace, most, parse_fractions(fractions), scenario.seed or 0)
