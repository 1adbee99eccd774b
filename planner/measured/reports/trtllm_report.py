"""The report of trtllm-bench: TensorRT-LLM's own benchmark, which runs the engine in its process."""

import math
from collections.abc import Mapping
from typing import Any

from planner.engines.releases import stated_release
from planner.measured.reports.reported import Reported, number_at, statistics_of
from planner.traces.reader import first_at, value_at

TOOL = "trtllm-bench's report"
# ModelOpt's algorithms, by the formats of ours that a command names.
_FORMATS = {"FP8": "fp8", "FP8_BLOCK_SCALES": "fp8_block", "NVFP4": "nvfp4", "W4A16_AWQ": "awq", "W4A16_GPTQ": "gptq",
            "W8A16": "w8a16", "W8A8_SQ_PER_CHANNEL": "int8"}
_POLICIES = {"GUARANTEED_NO_EVICT": "trtllm-no-evict", "MAX_UTILIZATION": "trtllm-max-utilization"}
_STREAMED = 4.0  # requests that are all sent at once are sent this many times as fast as they are answered, or faster


def is_trtllm(document: Mapping[str, Any]) -> bool:
    """Tell whether a document is such a report."""
    return {"engine", "world_info", "request_info", "performance"} <= set(document)


def read_trtllm(where: str, document: Mapping[str, Any]) -> list[Reported]:
    """Return a report's run: all requests are sent at once, or as many are in flight as were on average.

    Raises
    ------
    TraceError : a statistic is no number.
    """
    performance, sent = document["performance"], document["request_info"]
    measured = statistics_of(where, performance.get("request_latency_percentiles_ms"), "e2el", 1.0)
    for metric, path in (("ttft", "ttft_percentiles"), ("tpot", "tpot_percentiles")):
        measured |= statistics_of(where, value_at(document, f"streaming_metrics.{path}"), metric, 1.0)
    for name, path in (("mean_e2el_ms", "performance.avg_request_latency_ms"),
                       ("mean_ttft_ms", "streaming_metrics.avg_ttft_ms"),
                       ("mean_tpot_ms", "streaming_metrics.avg_tpot_ms"),
                       ("output_tput_per_gpu", "performance.output_throughput_per_gpu_tok_s")):
        if (value := number_at(where, document, path)) is not None:
            measured[name] = value
    world = document["world_info"]
    gpus = (number_at(where, world, "world_size")
            or (number_at(where, world, "tp_size") or 1) * (number_at(where, world, "pp_size") or 1))
    output = number_at(where, performance, "system_output_throughput_tok_s")
    if output is not None:
        measured.setdefault("output_tput_per_gpu", output / gpus)
    total_ms = number_at(where, performance, "total_latency_ms")
    rate, answered = (number_at(where, world, "issue_rate"),
                      number_at(where, performance, "request_throughput_req_s"))
    is_closed = rate is not None and answered is not None and rate < _STREAMED * answered
    return [Reported(
        tool=TOOL, client="trtllm-bench", measured=measured, num_requests=number_at(where, sent, "num_requests"),
        lengths={"input": {"mean": sent.get("avg_input_length")}, "output": {"mean": sent.get("avg_output_length")}},
        duration_s=None if total_ms is None else total_ms / 1e3, rate_per_s=None if is_closed else math.inf,
        concurrency=number_at(where, sent, "avg_num_concurrent_requests") if is_closed else None,
        options=_options(document))]


def _options(document: Mapping[str, Any]) -> dict[str, Any]:
    engine, world = document["engine"], document["world_info"]
    options = {
        "model": engine.get("model") or engine.get("model_path"), "gpu": first_at(document, ("machine.name",)),
        "engine": "trtllm", "tensor_parallel_size": world.get("tp_size"),
        "pipeline_parallel_size": world.get("pp_size"),
        "engine_version": stated_release(engine.get("version")),
        "quantization": _FORMATS.get(str(engine.get("quantization")).upper()),
        "kv_cache_dtype": "fp8" if str(engine.get("kv_cache_dtype")).upper() == "FP8" else None,
        "max_num_seqs": world.get("max_batch_size"), "max_num_batched_tokens": world.get("max_num_tokens"),
        "gpu_memory_utilization": world.get("kv_cache_percentage"),
        "policy": _POLICIES.get(str(world.get("scheduling_policy")).upper())}
    return {name: value for name, value in options.items() if value is not None}
