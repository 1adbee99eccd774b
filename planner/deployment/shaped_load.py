"""The load that a scenario asks for: a trace cut, scaled, and with sessions under way."""

import math

from planner.errors import UsageError
from planner.settings.scenario import Scenario
from planner.traces import Trace
from planner.traces.shaping.client_load import NAME, at_client_rate
from planner.traces.shaping.session_start import check_sessions, parse_fractions, under_way
from planner.traces.shaping.window_and_rate import at_request_rate, limit, scale_rate, slice_time


def shape_load(scenario: Scenario, trace: Trace) -> Trace:
    """Cut and scale a trace: window, number of requests, then rate."""
    if scenario.start_at > 0 or scenario.duration is not None:
        kept_s = math.inf if scenario.duration is None else scenario.duration
        trace = slice_time(trace, scenario.start_at, kept_s)
    if scenario.limit is not None:
        trace = limit(trace, scenario.limit)
    if scenario.rate_scale is not None and scenario.request_rate is not None:
        raise UsageError("--rate-scale and --request-rate exclude each other; give one of them")
    if scenario.rate_scale is not None:
        trace = scale_rate(trace, scenario.rate_scale)
    if trace.arrivals == "absent" and scenario.request_rate is None and not scenario.is_closed_loop:
        raise UsageError(f"{trace.source}: has no arrival times; give --request-rate for Poisson "
                         f"arrivals, or --max-concurrency for a closed loop (capacity: --scaling poisson)")
    if scenario.request_rate is not None and (trace.format == NAME or trace.arrivals == "absent"):
        trace = at_client_rate(trace, scenario.request_rate, seed=scenario.seed or 0)
    elif scenario.request_rate is not None:
        trace = at_request_rate(trace, scenario.request_rate)
    return _with_sessions(scenario, trace)


def _with_sessions(scenario: Scenario, trace: Trace) -> Trace:
    """Return a trace whose first sessions are under way, where that is asked for; check the limit of sessions."""
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
