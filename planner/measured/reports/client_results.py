"""Results of EvalScope and of genai-bench: statistics of a run with a number of requests in flight."""

from collections.abc import Mapping
from typing import Any

from planner.errors import TraceError
from planner.measured.reports.reported import Reported, number_at, statistics_of

EVALSCOPE = "EvalScope's summary"
_KEYS = ("Succeed requests", "Average latency (s)", "Average input tokens per request")
_MEANS = {"mean_ttft_ms": "Average time to first token (s)", "mean_tpot_ms": "Average time per output token (s)",
          "mean_itl_ms": "Average inter-token latency (s)", "mean_e2el_ms": "Average latency (s)"}
GENAI_BENCH = "genai-bench's result"
_METRICS = {"ttft": "ttft", "tpot": "tpot", "e2el": "e2e_latency"}
_TO_MS = {"s": 1e3, "ms": 1.0}


def is_evalscope(document: Mapping[str, Any]) -> bool:
    """Tell whether a document is EvalScope's summary."""
    return all(key in document for key in _KEYS)


def read_evalscope(where: str, document: Mapping[str, Any]) -> list[Reported]:
    """Return a summary's run. It has means alone, so all requests have the mean lengths.

    Raises
    ------
    TraceError : a value is no number.
    """
    times = {name: number_at(where, {"it": document.get(key)}, "it") for name, key in _MEANS.items()}
    lengths = {side: {"mean": document.get(f"Average {side} tokens per request")} for side in ("input", "output")}
    return [Reported(
        tool=EVALSCOPE, client="evalscope", lengths=lengths,
        measured={name: 1e3 * value for name, value in times.items() if value is not None},
        num_requests=number_at(where, document, "Succeed requests"),
        concurrency=number_at(where, document, "Number of concurrency") or None,
        duration_s=number_at(where, {"it": document.get("Time taken for tests (s)")}, "it"))]


def is_genai_bench(document: Mapping[str, Any]) -> bool:
    """Tell whether a document is a result of genai-bench."""
    return isinstance(document.get("aggregated_metrics"), Mapping) and "individual_request_metrics" in document


def read_genai_bench(where: str, document: Mapping[str, Any]) -> list[Reported]:
    """Return a result as a run, in which each user sends one request after another.

    Raises
    ------
    TraceError : a statistic is no number, or the unit of times is unknown.
    """
    run, unit = document["aggregated_metrics"], document.get("_time_unit", "s")
    if unit not in _TO_MS:
        raise TraceError(f"{where}: _time_unit = {unit!r}; must be {' or '.join(_TO_MS)}")
    stats = run.get("stats") if isinstance(run.get("stats"), Mapping) else {}
    measured: dict[str, float] = {}
    for metric, name in _METRICS.items():
        measured |= statistics_of(where, stats.get(name), metric, _TO_MS[unit])
    return [Reported(
        tool=GENAI_BENCH, client="genai-bench", measured=measured,
        lengths={"input": stats.get("num_input_tokens") or {}, "output": stats.get("num_output_tokens") or {}},
        num_requests=number_at(where, run, "num_completed_requests"), duration_s=number_at(where, run, "run_duration"),
        concurrency=number_at(where, run, "num_concurrency"))]
