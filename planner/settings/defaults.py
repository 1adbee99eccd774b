"""Each engine's defaults: its policy, its limits, its switches."""

import math
from dataclasses import dataclass, replace
from typing import Any

from planner.settings.releases import is_before


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineDefaults:
    """The defaults of one engine, by the names of the scenario's options.

    `gpu_memory_utilization` is SGLang's `mem_fraction_static` and TensorRT-LLM's `free_gpu_memory_fraction`.
    `async_scheduling` is on where a step is composed while the one before it runs: vLLM's async scheduling, SGLang's
    overlap scheduler (`event_loop_overlap`), TensorRT-LLM's (`_executor_loop_overlap`); each is its engine's default.
    """

    policy: str
    max_num_seqs: int
    max_num_batched_tokens: int
    max_prefill_tokens: int  # 0 is no limit
    enable_chunked_prefill: bool
    async_scheduling: bool
    gpu_memory_utilization: float


# vllm: 128 and 2048 are the planner's contract; vLLM itself asks for more on large GPUs.
# sglang: chunked_prefill_size, max_prefill_tokens; max_running_requests is 2,048 to 4,096 by the size of the KV pool.
# trtllm: max_batch_size, max_num_tokens and enable_chunked_prefill of tensorrt_llm/llmapi/llm_args.py.
ENGINE_DEFAULTS = {
    "vllm": EngineDefaults(policy="fcfs", max_num_seqs=128, max_num_batched_tokens=2048, max_prefill_tokens=0,
                           enable_chunked_prefill=True, async_scheduling=True, gpu_memory_utilization=0.9),
    "sglang": EngineDefaults(policy="sglang", max_num_seqs=2048, max_num_batched_tokens=8192, max_prefill_tokens=16384,
                             enable_chunked_prefill=True, async_scheduling=True, gpu_memory_utilization=0.88),
    "trtllm": EngineDefaults(policy="trtllm-no-evict", max_num_seqs=2048, max_num_batched_tokens=8192,
                             max_prefill_tokens=0, enable_chunked_prefill=False, async_scheduling=True,
                             gpu_memory_utilization=0.9),
}

# SGLang's chunked_prefill_size on GPUs with less memory than so many GiB, and its cuda_graph_max_bs at a tp_size below
# four and from there on (`_handle_gpu_memory_settings` in sglang/srt/server_args.py).
SGLANG_SIZES = ((20, 2048, (8, 8)), (35, 2048, (24, 80)), (60, 4096, (32, 160)), (160, 8192, (256, 512)),
                (math.inf, 16384, (512, 512)))


def engine_defaults(engine: str, gpu_capacity_bytes: float | None, *, num_ranks: int = 1, num_gpus: int = 1,
                    num_stages: int = 1, chunk_tokens: int | None = None,
                    draft_method: str | None = None) -> EngineDefaults:
    """Return an engine's defaults, those that depend on the GPU's memory included.

    Parameters
    ----------
    num_ranks : of data-parallel attention, of which each has its part of SGLang's chunk (`_handle_data_parallelism`).
    num_gpus : of the engine.
    num_stages : of its pipeline, whose GPUs SGLang's tp_size leaves out.
    chunk_tokens : a rank's chunk where it is given [tokens], by which SGLang keeps memory for activations.
    draft_method : what drafts tokens, for which SGLang keeps memory too; None where nothing does.

    >>> engine_defaults("sglang", 24 * 2**30).max_num_batched_tokens
    2048
    >>> engine_defaults("sglang", None, num_ranks=4).max_num_batched_tokens
    2048
    """
    defaults = ENGINE_DEFAULTS[engine]
    if engine != "sglang":
        return defaults
    if gpu_capacity_bytes is None:
        return replace(defaults, max_num_batched_tokens=max(defaults.max_num_batched_tokens // num_ranks, 1))
    tokens, graph_seqs = _sglang_sizes(gpu_capacity_bytes, num_gpus // num_stages)
    share = sglang_memory_share(gpu_capacity_bytes, chunk_tokens * num_ranks if chunk_tokens else tokens, graph_seqs,
                                num_gpus=num_gpus, num_ranks=num_ranks, draft_method=draft_method)
    return replace(defaults, max_num_batched_tokens=max(tokens // num_ranks, 1), gpu_memory_utilization=share)


def graph_capture_size(engine: str, gpu_capacity_bytes: float | None, *, num_ranks: int, max_num_seqs: int,
                       tokens_per_decode: int) -> int:
    """Return the size up to which an engine captures CUDA graphs by itself: of tokens in vLLM, else of sequences [1].

    Source: `_set_cudagraph_sizes` in vllm/config/vllm.py; cuda_graph_max_bs of SGLang, which its batches limit;
    `CudaGraphConfig` in tensorrt_llm/llmapi/llm_args.py.

    Parameters
    ----------
    num_ranks : GPUs of a pipeline stage, which SGLang's tp_size is the number of.
    max_num_seqs : of a rank; 0 for no limit.
    tokens_per_decode : that are checked in a step.

    >>> [graph_capture_size(engine, 80 * 2**30, num_ranks=1, max_num_seqs=2048, tokens_per_decode=1)
    ...  for engine in ("vllm", "sglang", "trtllm")]
    [512, 256, 128]
    """
    if engine == "vllm":
        return min(2 * (max_num_seqs or 256) * tokens_per_decode, 512)
    size = 128 if engine == "trtllm" else _sglang_sizes(gpu_capacity_bytes or math.inf, num_ranks)[1]
    return min(size, max_num_seqs or size)


def _sglang_sizes(gpu_capacity_bytes: float, num_ranks: int) -> tuple[int, int]:
    """Return SGLang's chunk [tokens] and its largest graph [sequences]."""
    return next((tokens, seqs[num_ranks >= 4]) for below_gib, tokens, seqs in SGLANG_SIZES
                if gpu_capacity_bytes < below_gib * 2**30 or math.isinf(below_gib))


def sglang_memory_share(gpu_capacity_bytes: float, chunk_tokens: int, graph_seqs: int, *, num_gpus: int = 1,
                        num_ranks: int = 1, draft_method: str | None = None) -> float:
    """Return SGLang's mem_fraction_static: what is left once activations and CUDA graphs have theirs [1].

    1.5 MiB a token of the chunk, 2 MiB a sequence of the largest graph, with attention DP more; 10 GiB at least on
    GPUs above 60; on top 2 GiB for a draft, 6 where it is a model of its own, none for n-grams. Source:
    `_handle_gpu_memory_settings` in sglang/srt/server_args.py, 2025-09 to 2026-08.

    >>> sglang_memory_share(79.65 * 2**30, 8192, 256)  # a log of one H100 has 0.83
    0.835
    """
    capacity = gpu_capacity_bytes / 2**20
    reserved = 512 + 1.5 * max(chunk_tokens, 2048) + 2 * graph_seqs + 128 * num_gpus
    if num_ranks > 1:
        reserved += num_ranks * graph_seqs * (4.5 if graph_seqs > 300 else 3)
    if capacity > 60 * 1024:
        reserved = max(reserved, 10 * 1024)
    if draft_method not in (None, "ngram"):
        reserved += (6 if draft_method == "draft_model" else 2) * 1024
    return round((capacity - reserved) / capacity, 3)


def vllm_serve_defaults(gpu: str, gpu_capacity_bytes: float, version: str | None) -> dict[str, Any]:
    """Return what `vllm serve` takes of the options where it has defaults of its own, other than the planner's.

    Larger batches where there is memory, but not on an A100 (`get_batch_defaults` in vllm/engine/arg_utils.py, of the
    OpenAI server), and more of the memory since 0.20 (`CacheConfig` in vllm/config/cache.py).

    Parameters
    ----------
    version : of the release; None for the newest.

    >>> vllm_serve_defaults("h100-sxm", 79.1 * 2**30, "0.19.1")
    {'max_num_seqs': 1024, 'max_num_batched_tokens': 8192, 'gpu_memory_utilization': 0.9}
    """
    is_large = gpu_capacity_bytes >= 70 * 2**30 and "a100" not in gpu
    return {"max_num_seqs": 1024 if is_large else 256, "max_num_batched_tokens": 8192 if is_large else 2048,
            "gpu_memory_utilization": 0.9 if is_before(version, "0.20") else 0.92}


def defaults_text(name: str) -> str:
    """Return each engine's default of an option, for its help.

    >>> defaults_text("max_num_seqs")
    "[engine's: vllm 128, sglang 2048, trtllm 2048]"
    """
    words = {True: "on", False: "off"}
    values = {engine: getattr(defaults, name) for engine, defaults in ENGINE_DEFAULTS.items()}
    texts = (f"{engine} {words[value] if isinstance(value, bool) else value}" for engine, value in values.items())
    return f"[engine's: {', '.join(texts)}]"
