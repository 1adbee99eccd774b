"""GuideLLM's benchmarks.json saved without requests: the statistics of each benchmark."""

from collections.abc import Mapping
from typing import Any

from planner.measured.reports.reported import STEADY, Reported, number_at, statistics_of
from planner.traces.reader import first_at, value_at

TOOL = "GuideLLM's summary"


def is_guidellm(document: Mapping[str, Any]) -> bool:
    """Tell whether a document has benchmarks with statistics and without requests."""
    benchmarks = document.get("benchmarks")
    return isinstance(benchmarks, list) and bool(benchmarks) and not any(map(_has_requests, benchmarks)) and any(
        isinstance(value_at(row, "metrics"), Mapping) for row in benchmarks)


def without_requests(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return GuideLLM's report in YAML with its statistics alone, since a trace is not YAML; another one as it is."""
    benchmarks = document.get("benchmarks")
    if not isinstance(benchmarks, list):
        return document
    return {**document, "benchmarks": [
        {name: value for name, value in benchmark.items() if name != "requests"} if isinstance(benchmark, Mapping)
        else benchmark for benchmark in benchmarks]}


def _has_requests(benchmark: Any) -> bool:
    requests = value_at(benchmark, "requests")
    return isinstance(requests, Mapping) and any(
        isinstance(rows, list) and rows for rows in (requests.get(name) for name in ("successful", "incomplete")))


def read_guidellm(where: str, document: Mapping[str, Any]) -> list[Reported]:
    """Return a report's benchmarks.

    GuideLLM's time per output token has the first token in it, and its time between tokens has not; both are weighted
    by tokens.

    Raises
    ------
    TraceError : a statistic is no number.
    """
    return [_run(f"{where} benchmark {k}", benchmark) for k, benchmark in enumerate(document["benchmarks"])]


def _run(where: str, benchmark: Mapping[str, Any]) -> Reported:
    metrics = {name: value_at(table, "successful") or {} for name, table in benchmark["metrics"].items()
               if isinstance(table, Mapping)}
    lengths = {"input": metrics.get("prompt_token_count", {}), "output": metrics.get("output_token_count", {})}
    measured = statistics_of(where, metrics.get("time_to_first_token_ms"), "ttft", 1.0)
    measured |= statistics_of(where, metrics.get("request_latency"), "e2el", 1e3)
    measured |= _between_tokens(where, metrics, measured.get("mean_ttft_ms"),
                                number_at(where, lengths["output"], "mean"))
    strategy = first_at(benchmark, ("config.strategy", "args.strategy", "scheduler.strategy")) or {}
    kind = str(strategy.get("type_"))
    rate = number_at(where, strategy, "rate")
    in_flight = {"synchronous": 1.0, "concurrent": first_at(strategy, ("streams", "max_concurrency"))}.get(kind)
    if kind == "throughput":
        in_flight = strategy.get("max_concurrency")
    counts = [number_at(where, table, "count") for table in metrics.values()]
    return Reported(
        tool=TOOL, client="guidellm", lengths=lengths, measured=measured,
        num_requests=next((count for count in counts if count), None),
        duration_s=number_at(where, benchmark, "duration"),
        rate_per_s=float("inf") if kind == "throughput" and in_flight is None else
        rate if kind in ("constant", "poisson", "async") else None,
        burstiness=STEADY if kind == "constant" else 1.0,
        concurrency=None if in_flight is None else float(in_flight))


def _between_tokens(where: str, metrics: Mapping[str, Any], ttft_ms: float | None,
                    output_tokens: float | None) -> dict[str, float]:
    """Return times between tokens; of the time per token with the first one in it, the mean without it."""
    gaps = statistics_of(where, metrics.get("inter_token_latency_ms"), "tpot", 1.0)
    with_first = number_at(where, metrics.get("time_per_output_token_ms"), "mean")
    if gaps or with_first is None or ttft_ms is None or not output_tokens or output_tokens <= 1:
        return gaps
    return {"mean_tpot_ms": max(with_first * output_tokens - ttft_ms, 0.0) / (output_tokens - 1)}
