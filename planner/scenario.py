"""A scenario: one deployment, its scheduling and its load, every option in one declaration."""

from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

Engine = Literal["vllm", "sglang", "trtllm"]


def _option(default: Any, panel: str, meaning: str) -> Any:
    return field(default=default, metadata={"panel": panel, "help": meaning})


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Everything that a what-if can change. Names and defaults are vLLM's where vLLM has them; `None` is "not given".

    The command line's options, the axes of a sweep and the keys of a targets file are these fields.
    """

    model: str | None = _option(None, "Deployment", "Model: a name (llama-3.1-8b, Qwen/Qwen3-32B) or a config.json.")
    gpu: str | None = _option(None, "Deployment", "GPU: h100-sxm, a100-sxm, mi300x … (planner db list).")
    engine: Engine = _option("vllm", "Deployment", "Serving engine whose defaults apply.")
    tensor_parallel_size: int = _option(1, "Deployment", "GPUs that share each layer.")
    pipeline_parallel_size: int = _option(1, "Deployment", "Pipeline stages.")
    quantization: str | None = _option(None, "Deployment", "Weight format: bf16, fp8, int4, mxfp4 … [checkpoint's own]")
    kv_cache_dtype: str = _option("auto", "Deployment", "KV cache: auto (16 bit), fp8.")
    gpu_memory_utilization: float = _option(0.9, "Deployment", "Share of GPU memory that the engine may use.")
    max_model_len: int | None = _option(None, "Deployment", "Longest context. [the model's]")
    num_gpu_blocks: int | None = _option(None, "Deployment", "KV blocks, in place of the memory model.")
    block_size: int = _option(16, "Deployment", "Tokens of a KV block.")
    swap_space: float = _option(4.0, "Deployment", "Host memory for swapped KV per GPU [GiB].")
    num_cpu_blocks: int | None = _option(None, "Deployment", "Host KV blocks, in place of --swap-space.")

    policy: str = _option("fcfs", "Scheduling", "Policy by name, or my_policy.py:name.")
    max_num_seqs: int = _option(128, "Scheduling", "Running sequences at most; 0 is no limit.")
    max_num_batched_tokens: int = _option(2048, "Scheduling", "Tokens of a step at most; 0 is no limit.")
    long_prefill_token_threshold: int = _option(0, "Scheduling", "Prompt tokens of one request per step; 0 is off.")
    enable_chunked_prefill: bool = _option(True, "Scheduling", "Cut prompts into chunks.")
    enable_prefix_caching: bool | None = _option(
        None, "Scheduling", "Reuse the KV of shared prefixes. [on where the trace knows them]"
    )
    watermark: float = _option(0.0, "Scheduling", "Share of KV blocks that admissions leave free.")
    preemption: Literal["recompute", "swap"] = _option("recompute", "Scheduling", "What becomes of a victim's KV.")
    victim: Literal["newest", "lowest-priority", "fewest-generated"] | None = _option(
        None, "Scheduling", "Who yields when KV runs out. [the policy's rule]"
    )
    admission: Literal["head-of-line", "first-fit"] = _option(
        "head-of-line", "Scheduling", "Whether a waiting request that does not fit blocks those behind it."
    )
    max_decode_only_steps: int | None = _option(
        None, "Scheduling", "After so many steps without prompt work the head is admitted, decodes yielding."
    )
    max_wait_s: float | None = _option(None, "Scheduling", "The same once the head has waited for so long [s].")
    scheduler_reserve_full_isl: bool = _option(True, "Scheduling", "Admit only where the whole prompt has room.")
    async_scheduling: bool | None = _option(None, "Scheduling", "Compose a step while the last one runs. [on for vllm]")
    priority_ageing: float = _option(0.0, "Scheduling", "Priority points that a second of waiting is worth.")

    step_time: str = _option("roofline", "Step time", "roofline, or linear:BASE_S,PER_TOKEN_S[,PER_CONTEXT_TOKEN_S].")

    start_at: float = _option(0.0, "Load", "Skip what arrives before [s].")
    duration: float | None = _option(None, "Load", "Keep what arrives within [s].")
    limit: int | None = _option(None, "Load", "Keep the first so many requests.")
    rate_scale: float | None = _option(None, "Load", "Compress time by this factor.")
    request_rate: float | None = _option(None, "Load", "Compress time to this mean rate [1/s]; inf: all at once.")
    max_concurrency: int | None = _option(None, "Load", "Closed loop: requests in flight at most.")


def scenario_from(options: dict[str, Any]) -> Scenario:
    """Build a scenario from option values, leaving out what is None where the option has a default of its own."""
    defaults = {f.name: f.default for f in fields(Scenario)}
    return Scenario(**{name: value for name, value in options.items() if value is not None or defaults[name] is None})


def with_model(scenario: Scenario, model: str) -> Scenario:
    """Return the scenario with another model."""
    return replace(scenario, model=model)
