"""From a scenario and a trace to a result and its summary: every command and the library call this."""

import math
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from planner.deployment.deploy import resolve
from planner.deployment.shaped_load import kept_part, shape_load
from planner.deployment.starting import would_not_start
from planner.errors import UsageError
from planner.loop.state.engine_settings import Recording
from planner.replays.fleet.replicas import NOTHING, serve
from planner.replays.result_tables import ReplayResult
from planner.results.answers import to_html
from planner.results.graph_notes import graph_notes
from planner.results.measured_window import window_note, window_of
from planner.results.notes import notes
from planner.results.pool_rows import describe_pools
from planner.results.rejections import rejection_notes
from planner.results.resolved import describe_deployment, describe_policy, fitted_deployments
from planner.results.summary import HEADLINES, summarize
from planner.results.summary_answer import Summary
from planner.results.uncertainty import summary_intervals
from planner.results.utilization import utilization
from planner.settings.objectives import Objectives, parse_objectives
from planner.settings.scenario import Scenario, names_in
from planner.traces import Trace
from planner.traces.results import check_objectives
from planner.traces.shaping.client_load import read_load
from planner.traces.shaping.recycling import only_sessions, recycled
from planner.traces.shaping.session_start import session_numbers
from planner.versions import versions

MOST_COPIES = 10_000  # of a trace, for a measurement that outlasts it
AnyTrace = Trace | str | Path  # as read, or a path or sample to read
OPEN_LOOP = "throughput has no interval: in an open loop it follows the arrivals, not the step times"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Outcome:
    """A replayed scenario: the outcome of each request, and the summary."""

    result: ReplayResult
    summary: Summary

    @property
    def requests(self) -> pl.DataFrame:
        """One row a request; see `ReplayResult.requests_table`."""
        return self.result.requests_table()

    @property
    def steps(self) -> pl.DataFrame:
        """One row a step if they were recorded; see `ReplayResult.steps_table`."""
        return self.result.steps_table()

    @property
    def headlines(self) -> dict[str, float]:
        """The numbers of the summary that one looks at first."""
        values = self.summary.values_by_key
        return {key: values[key] for key, _, _ in HEADLINES if type(values[key]) in (int, float)}

    def __repr__(self) -> str:
        return "\n".join([self._title(), *(f"{key} {value:,.6g}" for key, value in self.headlines.items())])

    def _repr_html_(self) -> str:
        table = pl.DataFrame({"metric": list(self.headlines), "value": [float(v) for v in self.headlines.values()]})
        return to_html(self._title(), table)

    def _title(self) -> str:
        deployment, policy = self.summary.deployment, self.summary.policy
        return (f"{deployment['model'] or 'model not named'} on {deployment['num_gpus']} × "
                f"{deployment['gpu'] or 'GPU'}, policy {policy['name']}")


def any_trace(trace: AnyTrace, scenario: Scenario) -> Trace:
    """Return a trace, read if it is a path or the name of a sample."""
    return trace if isinstance(trace, Trace) else read_load(str(trace), scenario, None, "error")


def replay(trace: AnyTrace, scenario: Scenario, *, slo: Objectives | str | None = None,
           recording: Recording = NOTHING) -> Outcome:
    """Replay a trace through a scenario.

    Parameters
    ----------
    trace : as read, or a path or sample to read; the scenario's load options are applied to it here.
    scenario : deployment, scheduling and load.
    slo : objectives, of each request and of statistics, or None; as text in ms, "ttft:500 tpot:50 p99_ttft:1000".
    recording : whether to keep a row per step, and per request and step.

    Raises
    ------
    PlannerError : any of its kinds; see the modules called here.
    """
    begin = time.perf_counter()
    trace = any_trace(trace, scenario)
    objectives = parse_objectives(slo) if isinstance(slo, str) else slo
    check_objectives(objectives, scenario)
    window = window_of(scenario)
    shaped = shape_load(scenario, trace)
    result = _recycled(shaped, scenario, recording) if scenario.recycle_sessions else serve(
        shaped, resolve(scenario, shaped), recording=recording)
    shaped, deployment = result.trace, result.deployment
    figures = summarize(result, objectives, window)
    intervals = None
    about_intervals: list[str] = []
    if scenario.interval is not None:
        fitted = fitted_deployments(deployment)
        if len(fitted) > 1:
            raise UsageError(f"--interval {scenario.interval}: pools of {scenario.fleet} differ in engine, calibration "
                             f"or measured GPU, so their step times have different errors; leave "
                             f"it out")
        intervals, about_intervals = summary_intervals(figures, fitted[0], scenario.interval)
        about_intervals += [] if scenario.is_closed_loop else [OPEN_LOOP]
    refusal = would_not_start(deployment)
    return Outcome(result=result, summary=Summary(
        figures=figures,
        utilization=utilization(result, result.duration_s, 0 if deployment.pooling else int(
            result.records.requests.num_output_tokens.sum())),
        pools=describe_pools(result, result.duration_s) if deployment.pools else None, intervals=intervals,
        would_not_start=refusal, simulated_requests_per_s=shaped.requests.height / result.records.loop_s,
        wall_s=time.perf_counter() - begin,
        notes=(*filter(None, [refusal, kept_part(scenario, trace)]),
               *rejection_notes(deployment, figures.rejected_by_reason or {}),
               *notes(deployment, shaped, num_followers=result.num_followers, num_truncated=figures.num_truncated),
               *graph_notes(result), *about_intervals,
               *([] if window is None else [window_note(figures, window, result.duration_s)])),
        deployment=describe_deployment(deployment, result.num_replicas),
        workload=describe_workload(scenario, shaped),
        slo=None if objectives is None else objectives.slo.limits_s or None,
        policy=describe_policy(deployment), versions=versions(), trace_sha256=shaped.sha256))


def _recycled(trace: Trace, scenario: Scenario, recording: Recording) -> ReplayResult:
    """Replay a trace's sessions again and again until the measurement is over.

    No session begins after it, and the open ones go on to their ends. How many repetitions it takes follows from when
    the last session of a replay begins.
    """
    if scenario.max_sessions is None or scenario.measure_s is None:
        raise UsageError("--recycle-sessions: needs --max-sessions, the sessions that are open, and --measure-s, how "
                         "long they are replayed")
    end_s, copies = (scenario.warmup_s or 0.0) + scenario.measure_s, 1
    while True:
        repeated = recycled(trace, copies)
        sent_s = np.asarray(serve(repeated, resolve(scenario, repeated)).records.requests.arrival_s)
        _, first = np.unique(session_numbers(repeated), return_index=True)
        begun_s = sent_s[first] - np.nanmin(sent_s)
        if begun_s[-1] >= end_s:
            break
        if copies >= MOST_COPIES:
            raise UsageError(f"--recycle-sessions: {copies:,} repetitions of {trace.source} last {begun_s[-1]:.6g} s, "
                             f"and --warmup-s and --measure-s ask for {end_s:g} s; lower --measure-s")
        copies = min(max(2 * copies, math.ceil(1.2 * copies * end_s / max(begun_s[-1], 1e-9))), MOST_COPIES)
    needed = only_sessions(repeated, begun_s < end_s)
    return serve(needed, resolve(scenario, needed), recording=recording)


def describe_workload(scenario: Scenario, trace: Trace) -> dict[str, Any]:
    """Return the replayed workload as plain values, for the summary."""
    account = trace.account
    arrivals = trace.requests["arrival_s"]
    return {
        "source": trace.source,
        "format": trace.format,
        "num_requests": trace.requests.height,
        "first_arrival_s": float(arrivals[0]),
        "last_arrival_s": float(arrivals[-1]),
        "first_arrival_at": _clock_time(scenario, trace),
        "rows_read": account.rows_read,
        "rows_kept": account.rows_kept,
        "dropped": dict(account.dropped),
        **{name: getattr(scenario, name) for name in names_in("Load")},
        "request_rate": "inf" if scenario.request_rate == math.inf else scenario.request_rate,  # which JSON has not
    }


def _clock_time(scenario: Scenario, trace: Trace) -> str | None:
    """Return the instant of the first arrival in UTC, if the log has dates and the load keeps its times."""
    plain = replace(scenario, start_at=0.0, duration=None, limit=None)
    if trace.zero_at_s is None or any(getattr(plain, name) != getattr(Scenario(), name) for name in names_in("Load")):
        return None
    return datetime.fromtimestamp(trace.zero_at_s + float(trace.requests["arrival_s"][0]), UTC).isoformat()
