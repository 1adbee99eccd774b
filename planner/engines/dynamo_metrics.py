"""Metrics of NVIDIA Dynamo's frontend, which counts the requests of all its workers."""

from planner.engines.package import Metrics

# `frontend_service` in lib/runtime/src/metrics/prometheus_names.rs; `cached_tokens` is a histogram of requests.
DYNAMO = Metrics(
    prefix="dynamo_frontend", separator="_", running="inflight_requests",
    histograms={"ttft": ("time_to_first_token_seconds",), "itl": ("inter_token_latency_seconds",),
                "e2el": ("request_duration_seconds",),
                "input": ("input_sequence_tokens",), "output": ("output_sequence_tokens",)},
    totals={"input": "input_sequence_tokens_sum", "output": "output_sequence_tokens_sum"},
    cache=("cached_tokens_sum", "input_sequence_tokens_sum"),
    requests="requests_total", waiting="queued_requests", runs_waiting=True, model="model")
