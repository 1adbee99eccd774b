"""What each engine starts with where its user gives nothing: its policy, its limits, its switches."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineDefaults:
    """The defaults of one engine, by the names of the scenario's options.

    `async_scheduling` is on where a step is composed while the one before it runs: vLLM's async scheduling, SGLang's
    overlap scheduler (`event_loop_overlap`), TensorRT-LLM's (`_executor_loop_overlap`); each is its engine's default.
    """

    policy: str
    max_num_seqs: int
    max_num_batched_tokens: int
    max_prefill_tokens: int  # 0 is no limit
    enable_chunked_prefill: bool
    async_scheduling: bool


# vllm: 128 and 2048 are the planner's contract; vLLM itself asks for more on large GPUs.
# sglang: chunked_prefill_size, max_prefill_tokens; max_running_requests is 2,048 to 4,096 by the size of the KV pool.
# trtllm: max_batch_size, max_num_tokens and enable_chunked_prefill of tensorrt_llm/llmapi/llm_args.py.
ENGINE_DEFAULTS = {
    "vllm": EngineDefaults(policy="fcfs", max_num_seqs=128, max_num_batched_tokens=2048, max_prefill_tokens=0,
                           enable_chunked_prefill=True, async_scheduling=True),
    "sglang": EngineDefaults(policy="sglang", max_num_seqs=2048, max_num_batched_tokens=8192, max_prefill_tokens=16384,
                             enable_chunked_prefill=True, async_scheduling=True),
    "trtllm": EngineDefaults(policy="trtllm-no-evict", max_num_seqs=2048, max_num_batched_tokens=8192,
                             max_prefill_tokens=0, enable_chunked_prefill=False, async_scheduling=True),
}

# SGLang's chunked_prefill_size on GPUs with less memory than so many GiB (sglang/srt/server_args.py).
CHUNKED_PREFILL_SIZES = ((35, 2048), (60, 4096), (160, 8192))
LARGEST_CHUNKED_PREFILL_SIZE = 16384


def engine_defaults(engine: str, gpu_capacity_bytes: float | None, num_ranks: int = 1) -> EngineDefaults:
    """Return an engine's defaults, those that depend on the GPU's memory included.

    Parameters
    ----------
    num_ranks : of data-parallel attention, of which each has its part of SGLang's chunk (`_handle_data_parallelism`).

    >>> engine_defaults("sglang", 24 * 2**30).max_num_batched_tokens
    2048
    """
    defaults = ENGINE_DEFAULTS[engine]
    if engine != "sglang":
        return defaults
    tokens = defaults.max_num_batched_tokens
    if gpu_capacity_bytes is not None:
        fitting = [size for below_gib, size in CHUNKED_PREFILL_SIZES if gpu_capacity_bytes < below_gib * 2**30]
        tokens = fitting[0] if fitting else LARGEST_CHUNKED_PREFILL_SIZE
    return replace(defaults, max_num_batched_tokens=max(tokens // num_ranks, 1))


def vllm_serve_limits(gpu: str, gpu_capacity_bytes: float) -> dict[str, int]:
    """Return the limits of `vllm serve` where its command gives none: more where there is memory, but not on an A100.

    Source: `get_batch_defaults` in vllm/engine/arg_utils.py, of the OpenAI server.

    >>> vllm_serve_limits("h100-sxm", 79.1 * 2**30)
    {'max_num_seqs': 1024, 'max_num_batched_tokens': 8192}
    """
    is_large = gpu_capacity_bytes >= 70 * 2**30 and "a100" not in gpu
    return {"max_num_seqs": 1024 if is_large else 256, "max_num_batched_tokens": 8192 if is_large else 2048}


def defaults_text(name: str) -> str:
    """Return each engine's default of an option, for its help.

    >>> defaults_text("max_num_seqs")
    "[engine's: vllm 128, sglang 2048, trtllm 2048]"
    """
    words = {True: "on", False: "off"}
    values = {engine: getattr(defaults, name) for engine, defaults in ENGINE_DEFAULTS.items()}
    texts = (f"{engine} {words[value] if isinstance(value, bool) else value}" for engine, value in values.items())
    return f"[engine's: {', '.join(texts)}]"
