"""vLLM's default limits and memory share by GPU, release and start: `EngineArgs` in vllm/engine/arg_utils.py."""

from dataclasses import replace

from planner.catalog.architecture import Architecture
from planner.engines.engine import EngineDefaults, Size
from planner.engines.releases import is_before

# Default tokens of a step on small and on large GPUs, by the program that starts the engine.
STEP_TOKENS = {"openai_api_server": (2048, 8192), "llm_class": (8192, 16384)}
LARGEST_TOKENS, LARGEST_SINCE = 16384, "0.28"  # on GPUs of 160 GiB and more
SMALL_GB10_SINCE = "0.33"  # is_gb10
# Kernels that send tokens in batches of ranks (`use_batched_dp_moe`; nixl_ep is `alltoall`), and tokens of a step.
BATCHED, BATCHED_TOKENS, BATCHED_SINCE = ("deepep_low_latency", "alltoall"), 256, "0.20"
BY_GPU = {"max_num_seqs": "1024 (A100, and below 70 GiB: 256; no GPU: 128)",
          "max_num_batched_tokens": "8192 (160 GiB and more: 16384; A100, and below 70 GiB: 2048; no GPU: 2048)",
          "gpu_memory_utilization": "0.92 (before 0.20: 0.9)"}


def sized_defaults(defaults: EngineDefaults, size: Size) -> EngineDefaults:
    """Return the defaults of vLLM on a GPU; `SchedulerConfig` alone has the defaults without one.

    Large GPUs except the A100 have larger batches, as has `LLM(...)` (`get_batch_defaults`); engines that others
    start have `SchedulerConfig`'s. There are never more sequences than given tokens of a step. vLLM 0.20 and later use
    more of the memory (`CacheConfig` in vllm/config/cache.py). N-gram drafts need the last step's tokens
    (`VllmConfig.__post_init__`).

    >>> from planner.engines.vllm import VLLM
    >>> on_h100 = Size(gpu="h100-sxm", gpu_capacity_bytes=79.1 * 2**30, version="0.19.1")
    >>> found = sized_defaults(VLLM.defaults.options, on_h100)
    >>> found.max_num_seqs, found.max_num_batched_tokens, found.gpu_memory_utilization
    (1024, 8192, 0.9)
    >>> sized_defaults(VLLM.defaults.options, replace(on_h100, usage_context="llm_class")).max_num_batched_tokens
    16384
    """
    sized = replace(defaults, async_scheduling=defaults.async_scheduling and size.draft_method != "ngram")
    if size.gpu is not None and size.gpu_capacity_bytes is not None:
        sized = replace(sized, gpu_memory_utilization=0.9 if is_before(size.version, "0.20") else 0.92)
        if size.usage_context in STEP_TOKENS:
            is_large = _is_large(size.gpu, size.gpu_capacity_bytes, size.version)
            tokens = STEP_TOKENS[size.usage_context][is_large]
            if size.gpu_capacity_bytes >= 160 * 2**30 and not is_before(size.version, LARGEST_SINCE):
                tokens = LARGEST_TOKENS
            sized = replace(sized, max_num_seqs=1024 if is_large else 256, max_num_batched_tokens=tokens)
    if size.exchange in BATCHED and not is_before(size.version, BATCHED_SINCE):
        sized = replace(sized, max_num_batched_tokens=BATCHED_TOKENS)
    if size.performance_mode == "throughput":
        sized = replace(sized, max_num_seqs=2 * sized.max_num_seqs,
                        max_num_batched_tokens=2 * sized.max_num_batched_tokens)
    most = size.chunk_tokens if size.chunk_tokens is not None and size.chunk_tokens > 0 else min(
        sized.max_num_seqs, sized.max_num_batched_tokens)
    return replace(sized, max_num_seqs=min(sized.max_num_seqs, most))


def _is_large(gpu: str, capacity_bytes: float, version: str | None) -> bool:
    """Tell whether a GPU has the default limits of large ones."""
    is_gb10 = "gb10" in gpu and not is_before(version, SMALL_GB10_SINCE)
    return capacity_bytes >= 70 * 2**30 and "a100" not in gpu and not is_gb10


def pooling_defaults(defaults: EngineDefaults, arch: Architecture) -> EngineDefaults:
    """Return the defaults with a pooling model: no async scheduling, and no chunks if a prompt must run whole.

    Source: `VllmConfig.__post_init__` of vllm/config/vllm.py; `is_chunked_prefill_supported` of vllm/config/model.py.
    """
    return replace(defaults, async_scheduling=False, enable_chunked_prefill=not arch.needs_whole_prompts)
