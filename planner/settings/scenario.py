"""A scenario: one deployment, its scheduling and its load, every option in one declaration."""

import math
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from planner.engines import ENGINES, defaults_text
from planner.engines.releases import check_release
from planner.errors import UnknownNameError, UsageError
from planner.settings.acceptance import cumulative_acceptance
from planner.settings.option_types import of_no_type, types_in

ALIASES = {"replicas": "data_parallel_size"}  # that files may call an option by
SpeculativeMethod = Literal["mtp", "deepseek_mtp", "eagle", "eagle3", "draft_model", "medusa", "ngram"]
CudagraphMode = Literal["full_and_piecewise", "piecewise", "full_decode_only", "none"]
MOST = 2**62  # of a whole number, so that 64 bits hold it


def _option(default: Any, panel: str, meaning: str) -> Any:
    return field(default=default, metadata={"panel": panel, "help": meaning})


def names_in(panel: str) -> tuple[str, ...]:
    """Return the names of a panel's options.

    >>> names_in("Step time")[0]
    'step_time'
    """
    return tuple(f.name for f in fields(Scenario) if f.metadata["panel"] == panel)


def _engines_option(name: str, meaning: str) -> Any:
    return _option(None, "Scheduling", f"{meaning} {defaults_text(name)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Everything that a what-if can change. Names and defaults are vLLM's where vLLM has them; `None` is "not given".

    The command line's options, the axes of a sweep and the keys of a targets file are these fields.
    """

    model: str | None = _option(None, "Deployment", "Model: a name (llama-3.1-8b, Qwen/Qwen3-32B) or a config.json.")
    gpu: str | None = _option(None, "Deployment", "GPU: h100-sxm, a100-sxm, mi300x … (planner db list).")
    engine: str = _option("vllm", "Deployment", "Serving engine whose defaults apply.")
    engine_version: str | None = _option(None, "Deployment", "Its release, as 0.5.9; older ones do less. [newest]")
    tensor_parallel_size: int = _option(1, "Deployment", "GPUs that share each layer.")
    pipeline_parallel_size: int = _option(1, "Deployment", "Pipeline stages.")
    inter_node_bandwidth: float | None = _option(
        None, "Deployment", "Network between nodes, one GPU's share, one way [GB/s]: 50 for 400 Gb/s each. Needed "
        "where a replica spans nodes."
    )
    inter_node_latency: float = _option(5e-6, "Deployment", "What a message from node to node takes besides [s].")
    expert_parallel: bool = _option(False, "Deployment", "Spread whole experts over the GPUs, not slices of each.")
    quantization: str | None = _option(None, "Deployment", "Weight format: bf16, fp8, int4, mxfp4 … [checkpoint's own]")
    kv_cache_dtype: str = _option("auto", "Deployment", "KV cache: fp8, bf16; auto is the checkpoint's, else 16 bit.")
    fp8_gemm_backend: Literal["auto", "flashinfer_trtllm"] = _option(
        "auto", "Deployment", "What multiplies block-scaled FP8 in dense layers: the engine's kernel, or on Blackwell "
        "FlashInfer's for small batches."
    )
    moe_backend: Literal["auto", "marlin", "triton", "deep_gemm", "flashinfer_trtllm"] = _option(
        "auto", "Deployment", "What multiplies routed experts: the engine's choice, or the library that it is told to "
        "take, by vLLM's and SGLang's names: Marlin (4 bit), Triton, DeepGEMM, TensorRT-LLM's own kernels."
    )
    all2all_backend: Literal["allgather_reducescatter", "deepep"] = _option(
        "allgather_reducescatter", "Deployment", "How tokens of data-parallel attention come to whole experts: all to "
        "all GPUs, or by DeepEP and its like each to those that have its experts."
    )
    fp32_matmul: Literal["auto", "fp32", "tf32"] = _option(
        "auto", "Deployment", "What multiplies routers that engines keep in 32 bit: a kernel of their own, which takes "
        "what 16 bit takes, or cuBLAS, by the settings of vLLM's VLLM_FLOAT32_MATMUL_PRECISION."
    )
    gpu_memory_utilization: float | None = _option(
        None, "Deployment", "Share of GPU memory that the engine may use; SGLang's by default of GPU and chunk. "
        f"{defaults_text('gpu_memory_utilization')}"
    )
    max_model_len: int | None = _option(None, "Deployment", "Longest context. [the model's]")
    num_gpu_blocks: int | None = _option(None, "Deployment", "KV blocks, in place of the memory model.")
    block_size: int = _option(16, "Deployment", "Tokens of a KV block; vLLM's are larger for linear attention.")
    max_loras: int = _option(0, "Deployment", "LoRA adapters of a step at most; 0: a trace's are left out.")
    max_cpu_loras: int | None = _option(None, "Deployment", "LoRA adapters kept in host memory. [max_loras]")
    max_lora_rank: int = _option(16, "Deployment", "Rank that room is made for, and that adapters are taken to have.")
    lora_disk_bandwidth: float = _option(2.0, "Deployment", "Adapters that host memory lacks are read so fast [GB/s].")
    swap_space: float = _option(4.0, "Deployment", "Host memory for swapped KV per GPU [GiB].")
    num_cpu_blocks: int | None = _option(None, "Deployment", "Host KV blocks, in place of --swap-space.")

    kv_offloading_size: float | None = _option(
        None, "Cache tiers", "Host memory for KV blocks, of an engine's GPUs together [GiB]. [none]"
    )
    kv_offloading_bandwidth: float | None = _option(
        None, "Cache tiers", "A GPU's link to it, each way [GB/s]. [the GPU's host link]"
    )
    kv_remote_size: float | None = _option(
        None, "Cache tiers", "Remote memory for KV blocks that all replicas share [GiB]. [none]"
    )
    kv_remote_bandwidth: float = _option(50.0, "Cache tiers", "A replica's link to it, each way [GB/s].")
    kv_remote_latency: float = _option(0.0, "Cache tiers", "What a transfer over it takes besides [s].")
    kv_write_policy: Literal["write_through", "write_through_selective", "write_back"] = _option(
        "write_through", "Cache tiers",
        "Blocks go to the tier below when they are computed, when used again, or when evicted (SGLang's HiCache)."
    )

    data_parallel_size: int = _option(1, "Fleet", "Replicas of the engine behind a router.")
    data_parallel_attention: bool = _option(
        False, "Fleet", "These are the ranks of one engine of a mixture of experts: they share its experts and step "
        "together."
    )
    fleet: str | None = _option(None, "Fleet", "TOML of [[pool]] tables, for replicas that differ: fleet.toml.")
    router: str | None = _option(None, "Fleet", "Router by name, or my_router.py:name. [round-robin; size: random]")
    autoscale: str | None = _option(
        None, "Fleet", "Replicas come and go: TOML of an autoscaler, in place of --data-parallel-size; of --fleet, the "
        "pools that give neither replicas nor their own."
    )
    router_report_interval: float = _option(
        0.0, "Fleet", "The router hears of its replicas every so many seconds; 0: it always knows."
    )
    prefill_replicas: int = _option(
        0, "Fleet", "Replicas, of --data-parallel-size, that prefill only; the others decode. 0: all do both."
    )
    kv_transfer_bandwidth: float = _option(
        50.0, "Fleet", "KV from prefill to decode: the link of a replica, each way [GB/s]."
    )
    kv_transfer_latency: float = _option(0.0, "Fleet", "What a transfer takes besides [s].")
    kv_transfer: Literal["whole", "layerwise"] = _option(
        "whole", "Fleet", "KV is sent when the prompt is through, or layer by layer from its first step on."
    )
    local_prefill_below: int = _option(
        0, "Fleet", "Prompts of fewer tokens are prefilled where they decode; 0: none."
    )

    policy: str | None = _engines_option("policy", "Policy by name, or my_policy.py:name.")
    max_num_seqs: int | None = _engines_option("max_num_seqs", "Running sequences at most; 0 is no limit.")
    max_num_batched_tokens: int | None = _engines_option(
        "max_num_batched_tokens", "Tokens of a step at most, under sglang a chunk's (by GPU memory); 0 is no limit."
    )
    max_prefill_tokens: int | None = _engines_option(
        "max_prefill_tokens",
        "Prompt tokens of a step at most; one prompt that must run whole may exceed it; 0 is no limit.",
    )
    long_prefill_token_threshold: int = _option(0, "Scheduling", "Prompt tokens of one request per step; 0 is off.")
    enable_chunked_prefill: bool | None = _engines_option("enable_chunked_prefill", "Cut prompts into chunks.")
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
    async_scheduling: bool | None = _engines_option("async_scheduling", "Compose a step while the last one runs.")
    schedule_conservativeness: float = _option(
        1.0, "Scheduling", "SGLang: scales the share of output to come that admissions leave KV blocks for."
    )
    scheduler_recv_interval: int = _option(
        1, "Scheduling", "SGLang: a busy engine looks for new requests every so many decode steps."
    )
    batch_wait_timeout_iters: int = _option(
        0, "Scheduling", "TensorRT-LLM: prompts wait beside decodes, up to so many steps in a row; 0 is off."
    )
    batch_wait_max_tokens_ratio: float = _option(
        0.0, "Scheduling", "TensorRT-LLM: until a step has this share of --max-num-batched-tokens; 0 is off."
    )
    stream_interval: int = _option(
        1, "Scheduling", "Clients see the first token at once, then groups of so many; gaps are between groups."
    )
    max_queued_requests: int = _option(
        0, "Scheduling", "Requests that wait in an engine at most; those that come then are rejected; 0 is no limit."
    )
    priority_ageing: float = _option(0.0, "Scheduling", "Priority points that a second of waiting is worth.")

    ttft_timeout: float | None = _option(
        None, "Overload", "A client ends an attempt that has brought no token for so long [s]."
    )
    request_timeout: float | None = _option(None, "Overload", "The same for an attempt that is not through [s].")
    max_retries: int = _option(
        0, "Overload", "Attempts after the first, of requests that were rejected, timed out or lost with a replica."
    )
    retry_initial_backoff: float = _option(0.5, "Overload", "Pause before the first of these [s].")
    retry_backoff_multiplier: float = _option(2.0, "Overload", "What each further pause is longer by.")
    retry_max_backoff: float = _option(8.0, "Overload", "Longest pause [s].")
    retry_jitter_factor: float = _option(
        0.0, "Overload", "Pauses are drawn so much longer or shorter (--seed), as a share: 0.2."
    )
    fail_replica: str | None = _option(
        None, "Overload", "Failures: REPLICA@AT[+FOR] in s, as in '2@600+120,0@900', or a CSV: replica,at_s,duration_s."
    )
    router_max_concurrent_requests: int = _option(
        0, "Overload", "Requests at all replicas at most; others wait in the router's queue; 0 is no limit."
    )
    router_queue: Literal["fcfs", "fair"] = _option(
        "fcfs", "Overload", "Who leaves that queue next: the first, or the tenant that was served least."
    )
    router_queue_size: int | None = _option(
        None, "Overload", "Requests in it at most; those that come then are rejected. [no limit]"
    )
    router_queue_timeout: float | None = _option(None, "Overload", "Requests that were in it so long are rejected [s].")
    tenants: str | None = _option(None, "Overload", "TOML with tenants' quotas, weights in fair shares, and slo.")

    step_time: str = _option("roofline", "Step time", "roofline, or linear:BASE_S,PER_TOKEN_S[,PER_CONTEXT_TOKEN_S].")

    num_speculative_tokens: int = _option(0, "Step time", "Tokens drafted a step by speculative decoding; 0 is off.")
    speculative_method: SpeculativeMethod | None = _option(
        None, "Step time", "What drafts them. [draft_model with --speculative-model, else mtp]"
    )
    speculative_model: str | None = _option(
        None, "Step time", "Draft model, or an EAGLE head's config.json: a name of the catalog, or a file."
    )
    speculative_acceptance: str = _option(
        "0.7", "Step time", "Chance that a drafted token is accepted after those before it; or vLLM's acceptance rate "
        "of each position: 0.8,0.6,0.4."
    )
    cudagraph_mode: CudagraphMode | None = _option(
        None, "Step time", "Which steps run as CUDA graphs. [vllm: full_and_piecewise; else full_decode_only]"
    )
    max_cudagraph_capture_size: int | None = _option(
        None, "Step time", "Largest step that runs as one: sequences, or tokens with prompts. [vllm: 2 × "
        "max-num-seqs, ≤ 512; sglang: by the GPU's memory; trtllm: 128]"
    )
    piecewise_cuda_graph_max_tokens: int | None = _option(
        None, "Step time", "Largest step with prompts that runs as piecewise graphs, in tokens. "
        "[max-cudagraph-capture-size]"
    )
    fuse_allreduce_rms: bool | None = _option(
        None, "Step time", "All-reduces add the residual and normalise too, in one kernel. [where the engine does]"
    )
    calibration: str | None = _option(None, "Step time", "Constants fitted by `planner calibrate`. [the engine's]")
    interval: float | None = _option(
        None, "Step time", "Give intervals that hold so large a share of outcomes, by the held-out errors: 0.8."
    )

    start_at: float = _option(0.0, "Load", "Skip what arrives before [s].")
    duration: float | None = _option(None, "Load", "Keep what arrives within [s].")
    limit: int | None = _option(None, "Load", "Keep the first so many requests.")
    rate_scale: float | None = _option(None, "Load", "Rate over the trace's. Time is compressed; size: by --scaling.")
    request_rate: float | None = _option(None, "Load", "Mean rate [1/s], likewise; inf: all requests at once.")
    wait_for_parents: bool = _option(
        True, "Load", "Turns with a think time and requests with parents are sent after these; else as recorded."
    )
    max_concurrency: int | None = _option(None, "Load", "Closed loop: requests in flight at most.")
    num_prompts: int | None = _option(None, "Load", "TRACE random: requests. [1000]")
    num_warmups: int | None = _option(None, "Load", "TRACE random: requests before these, out of all metrics. [0]")
    random_input_len: int | None = _option(None, "Load", "TRACE random: prompt length [tokens]. [1024]")
    random_output_len: int | None = _option(None, "Load", "TRACE random: output length [tokens]. [128]")
    random_range_ratio: float | None = _option(
        None, "Load", "TRACE random: lengths are drawn from length · (1 ± ratio), ratio in [0, 1). [0]"
    )
    seed: int | None = _option(
        None, "Load", "TRACE random: seed of lengths and arrivals; and of routers' and drafts' draws and of pauses. [0]"
    )

    def __post_init__(self) -> None:
        if self.data_parallel_size < 1:
            raise UsageError(f"data_parallel_size = {self.data_parallel_size}: must be at least 1")
        if self.data_parallel_attention:
            _check_ranks(self)
        check_release(self.engine_version)
        if not 0 <= self.prefill_replicas < max(self.data_parallel_size, 1):
            raise UsageError(f"prefill_replicas = {self.prefill_replicas} of data_parallel_size = "
                             f"{self.data_parallel_size}: must leave one at least that decodes, and not be negative")
        if self.autoscale is not None and (self.data_parallel_size > 1 or self.prefill_replicas):
            raise UsageError(f"autoscale = {self.autoscale!r} with data_parallel_size = {self.data_parallel_size}, "
                             f"prefill_replicas = {self.prefill_replicas}: its file has the number of replicas "
                             f"(minimum, maximum, initial); leave these out, and give pools in a fleet's file where "
                             f"some prefill and others decode, each with its own autoscale")
        if self.fleet is not None and (self.data_parallel_size > 1 or self.prefill_replicas > 0):
            raise UsageError(f"data_parallel_size = {self.data_parallel_size}, prefill_replicas = "
                             f"{self.prefill_replicas} beside fleet = {self.fleet}: its pools have replicas and roles; "
                             f"leave them out")
        if not self.kv_transfer_bandwidth > 0:
            raise UsageError(f"kv_transfer_bandwidth = {self.kv_transfer_bandwidth}: must be above 0 [GB/s]")
        if not self.kv_transfer_latency >= 0 or self.local_prefill_below < 0:
            raise UsageError(f"kv_transfer_latency = {self.kv_transfer_latency} [s], local_prefill_below = "
                             f"{self.local_prefill_below}: must not be negative")
        for name in ("kv_offloading_size", "kv_offloading_bandwidth", "kv_remote_size", "kv_remote_bandwidth"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise UsageError(f"{name} = {value}: must be above 0 [{'GiB' if name.endswith('size') else 'GB/s'}]")
        if not 0 <= self.kv_remote_latency < math.inf:
            raise UsageError(f"kv_remote_latency = {self.kv_remote_latency}: must not be negative [s]")
        if self.kv_write_policy == "write_back" and self.kv_offloading_size is None:
            raise UsageError("kv_write_policy = write_back: blocks go to host memory when the GPU evicts them; give "
                             "kv_offloading_size")
        if self.kv_offloading_size is not None and self.num_cpu_blocks is not None:
            raise UsageError(f"num_cpu_blocks = {self.num_cpu_blocks} besides kv_offloading_size = "
                             f"{self.kv_offloading_size}: swapped KV is in that; leave one of them out")
        if self.num_speculative_tokens < 0:
            raise UsageError(f"num_speculative_tokens = {self.num_speculative_tokens}: must not be negative")
        cumulative_acceptance(self.speculative_acceptance, self.num_speculative_tokens)
        if self.max_loras < 0 or self.max_lora_rank < 1 or not self.lora_disk_bandwidth > 0:
            raise UsageError(f"max_loras = {self.max_loras}, max_lora_rank = {self.max_lora_rank}, lora_disk_bandwidth "
                             f"= {self.lora_disk_bandwidth} [GB/s]: must be at least 0, at least 1, and above 0")
        if self.max_cpu_loras is not None and self.max_cpu_loras < self.max_loras:
            raise UsageError(f"max_cpu_loras = {self.max_cpu_loras}: must be at least max_loras = {self.max_loras}")
        if not self.router_report_interval >= 0:
            raise UsageError(f"router_report_interval = {self.router_report_interval}: must not be negative [s]")


def _check_ranks(scenario: Scenario) -> None:
    """Raise UsageError where the ranks of data-parallel attention cannot be, or cannot do what is asked for."""
    asked = f"data_parallel_attention with data_parallel_size = {scenario.data_parallel_size}"
    if scenario.fleet is not None:
        raise UsageError(f"data_parallel_attention beside fleet = {scenario.fleet!r}: is of a pool; give it there, "
                         f"with data_parallel_size, the ranks of each of its replicas")
    if scenario.data_parallel_size < 2:
        raise UsageError(f"{asked}: one rank steps with no other; give --data-parallel-size N, the ranks")
    for name, remedy in (
        ("pipeline_parallel_size", "spread the model over tensor_parallel_size and data_parallel_size"),
        ("prefill_replicas", "give a fleet's file with a pool that prefills and one that decodes, each with its ranks"),
        ("autoscale", "replicas that come and go have no ranks; leave one of them out"),
        ("fail_replica", "a rank that fails takes all with it, which is not modelled; leave it out"),
    ):
        value = getattr(scenario, name)
        if value != OPTION_DEFAULTS[name]:
            raise UsageError(f"{asked} and {name} = {value!r}: {remedy}")


OPTION_DEFAULTS = {f.name: f.default for f in fields(Scenario)}
OPTION_TYPES = typing.get_type_hints(Scenario)  # by name; finding them out takes a while
OPTION_TYPES["engine"] = Literal[tuple(ENGINES)]
KINDS = {name: types_in(hint) for name, hint in OPTION_TYPES.items()}  # types of an option's values, without None


def scenario_from(options: dict[str, Any]) -> Scenario:
    """Build a scenario from option values, leaving out what is None where the option has a default of its own."""
    return Scenario(**{name: value for name, value in options.items()
                       if value is not None or OPTION_DEFAULTS[name] is None})


def parse_scenario(options: Mapping[str, Any]) -> Scenario:
    """Build a scenario from the keys and values of a file.

    >>> parse_scenario({"gpu": "h100-sxm", "watermark": 0}).watermark
    0.0

    Raises
    ------
    UnknownNameError : a key is no option.
    UsageError : a value is not of its option's type, or none of its choices.
    """
    found = {}
    for key, value in options.items():
        name = ALIASES.get(key, key)
        if name in found:
            raise UsageError(f"{key} = {value!r}: is {name}, which is there already; leave one of them out")
        if name not in OPTION_TYPES:
            raise UnknownNameError("option", name, OPTION_TYPES)
        found[name] = _of_kind(name, value)
    return Scenario(**found)


def attention_ranks(scenario: Scenario) -> int:
    """Return the ranks of data-parallel attention of a replica; 1 where `data_parallel_size` is of replicas.

    >>> attention_ranks(Scenario(data_parallel_size=8)), attention_ranks(
    ...     Scenario(data_parallel_size=8, data_parallel_attention=True))
    (1, 8)
    """
    return scenario.data_parallel_size if scenario.data_parallel_attention else 1


def given_options(scenario: Scenario) -> dict[str, Any]:
    """Return the options of a scenario that are not at their defaults, as `parse_scenario` takes them.

    >>> given_options(Scenario(gpu="h100-sxm", block_size=16))
    {'gpu': 'h100-sxm'}
    """
    return {f.name: getattr(scenario, f.name) for f in fields(Scenario) if getattr(scenario, f.name) != f.default}


def _of_kind(name: str, value: Any) -> Any:
    """Return a value as the first of its option's types that it fits; a whole number fits a float."""
    if type(value) is int and abs(value) >= MOST:
        raise UsageError(f"{name} = {value}: must be below {MOST}")
    if name == "speculative_acceptance" and isinstance(value, int | float | list):
        return ",".join(map(str, value)) if isinstance(value, list) else str(value)
    for kind in KINDS[name]:
        choices = typing.get_args(kind)
        if value in choices or (not choices and type(value) is kind):
            return value
        if kind is float and type(value) is int:
            return float(value)
    raise of_no_type(name, value, KINDS[name])
