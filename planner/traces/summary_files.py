"""Files that are no traces: benchmarks' summaries and the like, known by their heads, and the remedies."""

import re
from collections.abc import Callable
from typing import NamedTuple

from planner.traces.reader import Head, has_columns, has_statistics


class NoTrace(NamedTuple):
    """A kind of file that is no trace, and the remedy."""

    matches: Callable[[Head], bool]
    what: str
    instead: str


_TO_VALIDATE = "give it to planner validate or calibrate, with the deployment's options"
_NO_TOKENS = ("it counts no tokens; give the server's log of requests, or a result of vllm bench serve "
              "--save-detailed, AIPerf or GuideLLM")
_ONLY_TOTALS = "give a result of vllm bench serve --save-detailed or sglang.bench_serving --output-details"
_STATISTIC = re.compile(r"^(mean|median|avg|p\d\d)_(ttft|tpot|itl|e2el?)(_latency)?(_m?s)?$")
KNOWN = (
    NoTrace(has_columns("schema_version", "request_latency"), "AIPerf's summary",
            f"{_TO_VALIDATE}; or give its profile_export.jsonl"),
    NoTrace(has_columns("Metric", "avg", "p50"), "AIPerf's or genai-perf's summary", "give its profile_export.jsonl"),
    NoTrace(has_columns("request_latency", "request_throughput"), "AIPerf's or genai-perf's summary",
            f"{_TO_VALIDATE}; or give its profile_export.jsonl"),
    NoTrace(has_columns("Succeed requests", "Average latency (s)"), "EvalScope's summary", _TO_VALIDATE),
    NoTrace(has_columns("Run Info", "Request Counts"), "GuideLLM's summary", "give its benchmarks.json"),
    NoTrace(has_columns("aggregated_metrics", "individual_request_metrics"), "genai-bench's result", _TO_VALIDATE),
    NoTrace(has_columns("mean_input_tokens", "num_concurrent_requests"), "LLMPerf's summary",
            "give its individual_responses.json"),
    NoTrace(has_columns("tokens_per_second", "elapsed_time"), "the result of vllm bench throughput", _ONLY_TOTALS),
    NoTrace(has_columns("avg_latency", "latencies", "percentiles"), "the result of vllm bench latency", _ONLY_TOTALS),
    NoTrace(has_columns("successful_requests", "total_latency"), "the result of SGLang's bench_offline_throughput",
            _ONLY_TOTALS),
    NoTrace(has_columns("run_name", "batch_size", "input_len"), "the result of SGLang's bench_one_batch", _ONLY_TOTALS),
    NoTrace(has_columns("Request Count", "Failure Count"), "Locust's statistics", _NO_TOKENS),
    NoTrace(has_columns("User Count", "Total Request Count"), "Locust's history", _NO_TOKENS),
    NoTrace(has_columns("metrics", "root_group"), "k6's summary", _NO_TOKENS),
    NoTrace(lambda head: has_columns("type", "data", "metric")(head) and head.first.get("type") in ("Metric", "Point"),
            "k6's output", _NO_TOKENS),
    NoTrace(has_columns("summary", "latencyPercentiles"), "oha's result", _NO_TOKENS),
    NoTrace(has_columns("latencies", "status_codes"), "Vegeta's report", _NO_TOKENS),
    NoTrace(has_columns("model_filename", "n_prompt", "n_gen"), "llama-bench's result", _ONLY_TOTALS),
    NoTrace(has_columns("load_summary", "successes", "failures"), "inference-perf's summary of a stage",
            f"{_TO_VALIDATE}; or give per_request_lifecycle_metrics.json"),
    NoTrace(has_columns("request_info", "world_info", "performance"), "trtllm-bench's report", _TO_VALIDATE),
    NoTrace(has_columns("hw", "isl", "osl", "conc"), "a run of InferenceX", "give it to planner validate or calibrate"),
    NoTrace(lambda head: has_columns("version", "scenario")(head) and (head.has("results") or head.has("metrics")),
            "an llm-d Benchmark Report", _TO_VALIDATE),
    NoTrace(lambda head: has_statistics(head) and not any(map(head.has, ("arrival_s", "timestamp", "request_id"))),
            "a table of statistics or shares of lengths", "give single requests, or lengths with a number of requests "
            "(a column num_requests); planner trace synth draws requests from a workload file"),
    NoTrace(has_columns("window_start_s", "total_rate_req_s"), "a series of rates",
            "give it to planner size --rate-series, beside a trace"),
    NoTrace(has_columns("start_s", "rate_rps"), "a series of rates",
            "give it to planner size --rate-series, beside a trace"),
    NoTrace(has_columns("chunk_id", "token_length"), "RAGPulse's chunk lengths", "give the trace of the same folder"),
    NoTrace(has_columns("isl", "osl", "concurrency"), "a table of measured runs",
            "give it to planner validate or calibrate"),
    NoTrace(lambda head: any(map(head.has, ("request_rate", "max_concurrency", "concurrency"))) and any(
                map(_STATISTIC.match, head.columns)),
            "a table of runs", "planner validate reads it if it has the columns gpu, engine, model, isl, osl, "
            "concurrency, tp, measured_ttft_ms and measured_tpot_ms"),
    NoTrace(lambda head: has_columns("session_id", "turns")(head) and isinstance(head.first.get("turns"), list),
            "prompts as text (AIPerf multi_turn)", "count their tokens first: input_length, output_length"),
    NoTrace(lambda head: has_columns("text")(head) and not head.has("input_length"), "prompts as text",
            "count their tokens first: input_length, output_length"),
)


def what_it_is(head: Head) -> NoTrace | None:
    """Return the kind of a file that is no trace; None if it is unknown."""
    return next((known for known in KNOWN if known.matches(head)), None)
