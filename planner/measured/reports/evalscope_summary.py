"""EvalScope's benchmark_summary.json: means of a run with a number of requests in flight."""

from collections.abc import Mapping
from typing import Any

from planner.measured.reports.reported import Reported, number_at

TOOL = "EvalScope's summary"
KEYS = ("Succeed requests", "Average latency (s)", "Average input tokens per request")
METRICS = {"mean_ttft_ms": "Average time to first token (s)", "mean_tpot_ms": "Average time per output token (s)",
           "mean_itl_ms": "Average inter-token latency (s)", "mean_e2el_ms": "Average latency (s)"}


def is_evalscope(document: Mapping[str, Any]) -> bool:
    """Tell whether a document is EvalScope's summary."""
    return all(key in document for key in KEYS)


def read_evalscope(where: str, document: Mapping[str, Any]) -> list[Reported]:
    """Return a summary's run. It has means alone, so all requests have the mean lengths.

    Raises
    ------
    TraceError : a value is no number.
    """
    times = {name: number_at(where, {"it": document.get(key)}, "it") for name, key in METRICS.items()}
    lengths = {side: {"mean": document.get(f"Average {side} tokens per request")} for side in ("input", "output")}
    return [Reported(
        tool=TOOL, client="evalscope", lengths=lengths,
        measured={name: 1e3 * value for name, value in times.items() if value is not None},
        num_requests=number_at(where, document, "Succeed requests"),
        concurrency=number_at(where, document, "Number of concurrency") or None,
        duration_s=number_at(where, {"it": document.get("Time taken for tests (s)")}, "it"))]
