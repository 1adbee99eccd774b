"""inference-perf's reports of a stage and of a whole run, and AIPerf's and genai-perf's summaries."""

from collections.abc import Mapping
from typing import Any

from planner.errors import TraceError
from planner.measured.reports.reported import STEADY, Reported, number_at, statistics_of
from planner.traces.reader import first_at, value_at

STAGE = "inference-perf's report of a stage"
SUMMARY = "AIPerf's summary"
_STAGE_METRICS = {"ttft": "time_to_first_token", "tpot": "time_per_output_token", "itl": "inter_token_latency",
                  "e2el": "request_latency"}
_SUMMARY_METRICS = {"ttft": "time_to_first_token", "tpot": "inter_token_latency", "e2el": "request_latency"}
_TO_MS = {"ms": 1.0, "s": 1e3, "sec": 1e3, "us": 1e-3, "ns": 1e-6}


def is_stage(document: Mapping[str, Any]) -> bool:
    """Tell whether a document is inference-perf's report of a stage."""
    return {"load_summary", "successes", "failures"} <= set(document)


def read_stage(where: str, document: Mapping[str, Any]) -> list[Reported]:
    """Return a stage as a run: its requests come at the requested rate, or keep a number in flight.

    Raises
    ------
    TraceError : a statistic is no number.
    """
    done, load = document["successes"], document["load_summary"]
    measured: dict[str, float] = {}
    for metric, name in _STAGE_METRICS.items():
        measured |= statistics_of(where, value_at(done, f"latency.{name}"), metric, 1e3)
    concurrency = number_at(where, load, "concurrency")
    rates = [number_at(where, load, name) for name in ("requested_rate", "achieved_rate")]
    return [Reported(
        tool=STAGE, client="inference-perf", measured=measured,
        lengths={"input": value_at(done, "prompt_len") or {}, "output": value_at(done, "output_len") or {}},
        num_requests=number_at(where, done, "count"), concurrency=concurrency,
        rate_per_s=None if concurrency else next(filter(None, rates), None))]


def is_summary(document: Mapping[str, Any]) -> bool:
    """Tell whether a document is AIPerf's or genai-perf's summary."""
    return all(isinstance(document.get(name), Mapping) and "unit" in document[name]
               for name in ("request_latency", "request_throughput"))


def read_summary(where: str, document: Mapping[str, Any]) -> list[Reported]:
    """Return a summary's run.

    Raises
    ------
    TraceError : a statistic is no number, or its unit is unknown.
    """
    measured: dict[str, float] = {}
    for metric, name in _SUMMARY_METRICS.items():
        table = document.get(name)
        if not isinstance(table, Mapping):
            continue
        if table.get("unit") not in _TO_MS:
            raise TraceError(f"{where}: {name}.unit = {table.get('unit')!r}; must be one of {', '.join(_TO_MS)}")
        measured |= statistics_of(where, table, metric, _TO_MS[table["unit"]])
    sent = _measured_phase(document) or first_at(
        document, ("input_config.loadgen", "input_config.perf_analyzer.stimulus", "input_config")) or {}
    concurrency = number_at(where, sent, "concurrency")
    rate = number_at(where, sent, "rate") or number_at(where, sent, "request_rate")
    steady = STEADY if value_at(sent, "type") == "constant" else 1.0
    count = number_at(where, document, "request_count.avg") or number_at(where, document, "request_latency.count")
    return [Reported(
        tool=SUMMARY, client="aiperf", measured=measured, num_requests=count, rate_per_s=rate,
        lengths={"input": document.get("input_sequence_length") or {},
                 "output": document.get("output_sequence_length") or {}},
        burstiness=number_at(where, sent, "smoothness") or steady, concurrency=concurrency if rate is None else None,
        duration_s=number_at(where, document, "benchmark_duration.avg"))]


def _measured_phase(document: Mapping[str, Any]) -> Any:
    """Return the load of a summary's measured phase, which AIPerf lists from 0.13 on; None without one."""
    phases = value_at(document, "input_config.phases")
    listed = phases if isinstance(phases, list) else []
    return next((phase for phase in listed if value_at(phase, "kind") == "profiling"), None)
