"""A scenario: one deployment, its scheduling and its load. Each option is declared once, here."""

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
    """All options that a what-if can change. Names and defaults are vLLM's if vLLM has the option. `None`: not given.

    The command line's options, the axes of a sweep and the keys of a targets file are these fields.
    """

    model: str | None = _option(None, "Deployment", "Model: a name (llama-3.1-8b, Qwen/Qwen3-32B), or a config.json.")
    gpu: str | None = _option(None, "Deployment", "GPU: h100-sxm, a100-sxm, mi300x … `planner db list` shows all.")
    engine: str = _option("vllm", "Deployment", "Serving engine: its scheduler, defaults and time constants apply.")
    engine_version: str | None = _option(
        None, "Deployment", "Release of the engine, as in 0.5.9. Older releases lack some optimizations. [newest]")
    tensor_parallel_size: int = _option(1, "Deployment", "Tensor parallelism: GPUs that share each layer.")
    pipeline_parallel_size: int = _option(
        1, "Deployment", "Pipeline parallelism: stages with a part of the layers each.")
    inter_node_bandwidth: float | None = _option(
        None, "Deployment", "Network bandwidth between nodes, per GPU and direction [GB/s]: 50 if each GPU has 400 "
        "Gb/s. Required if a replica spans nodes.")
    inter_node_latency: float = _option(5e-6, "Deployment", "Latency of each message between nodes [s].")
    expert_parallel: bool = _option(
        False, "Deployment", "Expert parallelism: each GPU holds whole experts, not a slice of each expert (vLLM: "
        "--enable-expert-parallel; SGLang, TensorRT-LLM: ep_size).")
    quantization: str | None = _option(None, "Deployment", "Weight format: bf16, fp8, int4, mxfp4 … [the checkpoint's]")
    kv_cache_dtype: str = _option(
        "auto", "Deployment", "KV cache format: fp8 or bf16. `auto`: the checkpoint's, or 16 bit if it states none.")
    fp8_gemm_backend: Literal["auto", "flashinfer_trtllm"] = _option(
        "auto", "Deployment", "GEMM for dense layers with block-scaled FP8 weights: `auto` (the engine's kernel), or "
        "on Blackwell also FlashInfer's kernel for small batches (SGLang: --fp8-gemm-backend).")
    moe_backend: Literal["auto", "marlin", "triton", "deep_gemm", "flashinfer_trtllm"] = _option(
        "auto", "Deployment", "Kernels of the routed experts: `auto` (the engine's choice), Marlin (4 bit), Triton, "
        "DeepGEMM, or TensorRT-LLM's kernels (SGLang: --moe-runner-backend; TensorRT-LLM: moe_config.backend).")
    all2all_backend: Literal["allgather_reducescatter", "deepep"] = _option(
        "allgather_reducescatter", "Deployment", "How tokens reach the experts with data-parallel attention and expert "
        "parallelism: `allgather_reducescatter` sends each token to all GPUs; `deepep` sends each token only to the "
        "GPUs with its experts (SGLang: --moe-a2a-backend).")
    fp32_matmul: Literal["auto", "fp32", "tf32"] = _option(
        "auto", "Deployment", "GEMM for MoE routers kept in FP32, on Blackwell: `auto` (the engine's kernel, as fast "
        "as 16 bit), or cuBLAS in `fp32` or `tf32` (VLLM_FLOAT32_MATMUL_PRECISION).")
    gpu_memory_utilization: float | None = _option(
        None, "Deployment", "Share of GPU memory that the engine uses. SGLang: mem_fraction_static, by default from "
        "GPU memory and chunk size. TensorRT-LLM: free_gpu_memory_fraction, the KV cache's share of free memory. "
        f"{defaults_text('gpu_memory_utilization')}")
    max_model_len: int | None = _option(
        None, "Deployment", "Longest context [tokens] (SGLang: --context-length; TensorRT-LLM: max_seq_len). [the "
        "model's]")
    num_gpu_blocks: int | None = _option(
        None, "Deployment", "KV blocks of a replica (vLLM: --num-gpu-blocks-override). [from the memory model]")
    block_size: int = _option(
        16, "Deployment", "KV block size [tokens] (SGLang: --page-size; TensorRT-LLM: tokens_per_block). vLLM's blocks "
        "are larger if the model has linear attention.")
    max_loras: int = _option(0, "Deployment", "Maximum number of LoRA adapters in a step. 0: adapters are ignored.")
    max_cpu_loras: int | None = _option(None, "Deployment", "LoRA adapters that fit in host memory. [max_loras]")
    max_lora_rank: int = _option(
        16, "Deployment", "LoRA rank: the engine reserves memory for it, and all adapters are assumed to have it.")
    lora_disk_bandwidth: float = _option(
        2.0, "Deployment", "Read bandwidth for LoRA adapters that are not in host memory [GB/s].")
    swap_space: float = _option(
        4.0, "Deployment", "Host memory per GPU for the KV of swapped requests [GiB]. Needs --preemption swap.")
    num_cpu_blocks: int | None = _option(
        None, "Deployment", "KV blocks in host memory for swapped requests, instead of --swap-space.")

    kv_offloading_size: float | None = _option(
        None, "Cache tiers", "Host memory for KV blocks, for all GPUs of an engine [GiB]. [none]")
    kv_offloading_bandwidth: float | None = _option(
        None, "Cache tiers", "Bandwidth between a GPU and host memory, per direction [GB/s]. [the GPU's host link]")
    kv_remote_size: float | None = _option(None, "Cache tiers", "Remote KV store that all replicas share [GiB]. [none]")
    kv_remote_bandwidth: float = _option(
        50.0, "Cache tiers", "Bandwidth between a replica and the remote store, per direction [GB/s].")
    kv_remote_latency: float = _option(0.0, "Cache tiers", "Latency of each transfer from or to the remote store [s].")
    kv_write_policy: Literal["write_through", "write_through_selective", "write_back"] = _option(
        "write_through", "Cache tiers", "When KV blocks are copied to the next tier: when they are computed "
        "(write_through), when they are used again (write_through_selective), or when the GPU evicts them "
        "(write_back). SGLang: --hicache-write-policy.")

    data_parallel_size: int = _option(1, "Fleet", "Replicas of the engine behind a router.")
    data_parallel_attention: bool = _option(
        False, "Fleet", "Data-parallel attention: --data-parallel-size counts the ranks of one engine. They share the "
        "experts of an MoE model and step together (SGLang: --enable-dp-attention; TensorRT-LLM: enable_attention_dp).")
    fleet: str | None = _option(None, "Fleet", "TOML file with a [[pool]] table for each kind of replica: fleet.toml.")
    router: str | None = _option(None, "Fleet", "Router: a name, or my_router.py:name. [round-robin; size: random]")
    autoscale: str | None = _option(
        None, "Fleet", "Autoscaler: a TOML file with bounds, start-up times and metrics. It replaces "
        "--data-parallel-size. With --fleet, it applies to pools with neither `replicas` nor `autoscale`.")
    router_report_interval: float = _option(
        0.0, "Fleet", "Interval of the replicas' load reports to the router [s]. 0: it always knows the load.")
    prefill_replicas: int = _option(
        0, "Fleet", "Replicas of --data-parallel-size that only prefill. The others only decode. 0: all do both.")
    kv_transfer_bandwidth: float = _option(
        50.0, "Fleet", "Bandwidth of a replica for KV from prefill to decode, per direction [GB/s].")
    kv_transfer_latency: float = _option(0.0, "Fleet", "Latency of each KV transfer from prefill to decode [s].")
    kv_transfer: Literal["whole", "layerwise"] = _option(
        "whole", "Fleet", "KV transfer from prefill to decode: after the prompt (whole), or layer by layer during it "
        "(layerwise).")
    local_prefill_below: int = _option(
        0, "Fleet", "Prompts with fewer tokens are prefilled on the replica that decodes them. 0: none.")

    policy: str | None = _engines_option("policy", "Scheduling policy: a name, or my_policy.py:name.")
    max_num_seqs: int | None = _engines_option(
        "max_num_seqs", "Maximum number of running sequences (SGLang: --max-running-requests; TensorRT-LLM: "
        "max_batch_size). 0: no limit.")
    max_num_batched_tokens: int | None = _engines_option(
        "max_num_batched_tokens", "Maximum number of tokens in a step (SGLang: --chunked-prefill-size, by default from "
        "GPU memory; TensorRT-LLM: max_num_tokens). 0: no limit.")
    max_prefill_tokens: int | None = _engines_option(
        "max_prefill_tokens", "Maximum number of prompt tokens in a step. A prompt that must run whole may exceed it. "
        "0: no limit.")
    long_prefill_token_threshold: int = _option(
        0, "Scheduling", "Maximum number of prompt tokens of one request in a step (vLLM). 0: no limit.")
    enable_chunked_prefill: bool | None = _engines_option("enable_chunked_prefill", "Cut long prompts into chunks.")
    enable_prefix_caching: bool | None = _option(
        None, "Scheduling", "Prefix caching: reuse the KV of shared prefixes (SGLang: radix cache; TensorRT-LLM: "
        "enable_block_reuse). [on if the trace has prefixes or cached tokens]")
    watermark: float = _option(0.0, "Scheduling", "Share of KV blocks that must stay free when a request is admitted.")
    preemption: Literal["recompute", "swap"] = _option(
        "recompute", "Scheduling", "KV of a preempted request: compute it again (recompute), or keep it in host memory "
        "(swap).")
    victim: Literal["newest", "lowest-priority", "fewest-generated"] | None = _option(
        None, "Scheduling", "Running request that is preempted when KV blocks run out. [the policy's rule]")
    admission: Literal["head-of-line", "first-fit"] = _option(
        "head-of-line", "Scheduling", "Waiting request that does not fit: it blocks all requests behind it "
        "(head-of-line), or is passed over (first-fit).")
    max_decode_only_steps: int | None = _option(
        None, "Scheduling", "Decode-only steps in a row, after which the first waiting request is admitted. Decodes "
        "are preempted if it needs their place. [no limit]")
    max_wait_s: float | None = _option(
        None, "Scheduling", "Waiting time after which the first waiting request is admitted [s]. Decodes are preempted "
        "if it needs their place. [no limit]")
    scheduler_reserve_full_isl: bool = _option(
        True, "Scheduling", "Admit a request only if its whole prompt fits in the KV cache, not only its first chunk.")
    async_scheduling: bool | None = _engines_option(
        "async_scheduling", "Schedule a step while the step before it runs (SGLang, TensorRT-LLM: overlap scheduler).")
    schedule_conservativeness: float = _option(
        1.0, "Scheduling", "SGLang: factor on the share of future output that admission keeps KV blocks free for.")
    scheduler_recv_interval: int = _option(
        1, "Scheduling", "SGLang: number of decode steps after which a busy engine looks for new requests.")
    batch_wait_timeout_iters: int = _option(
        0, "Scheduling", "TensorRT-LLM: maximum number of steps in a row in which prompts wait while decodes run. 0: "
        "prompts never wait. Needs --batch-wait-max-tokens-ratio.")
    batch_wait_max_tokens_ratio: float = _option(
        0.0, "Scheduling", "TensorRT-LLM: prompts wait until the step reaches this share of --max-num-batched-tokens. "
        "0: prompts never wait. Needs --batch-wait-timeout-iters.")
    stream_interval: int = _option(
        1, "Scheduling", "Tokens per streamed group. The first token is sent at once. ITL counts gaps between groups.")
    max_queued_requests: int = _option(
        0, "Scheduling", "Maximum number of waiting requests in an engine. Further requests are rejected. 0: no limit.")
    priority_ageing: float = _option(0.0, "Scheduling", "Priority points that a request gains per second of waiting.")

    ttft_timeout: float | None = _option(
        None, "Overload", "Time without a first token after which the client ends an attempt [s]. [no limit]")
    request_timeout: float | None = _option(
        None, "Overload", "Time without a complete answer after which the client ends an attempt [s]. [no limit]")
    max_retries: int = _option(
        0, "Overload", "Maximum number of retries of a request that was turned away or timed out. If its replica "
        "failed, a request is sent again at least once.")
    retry_initial_backoff: float = _option(0.5, "Overload", "Pause before the first retry [s].")
    retry_backoff_multiplier: float = _option(2.0, "Overload", "Factor from one pause between retries to the next.")
    retry_max_backoff: float = _option(8.0, "Overload", "Longest pause before a retry [s].")
    retry_jitter_factor: float = _option(
        0.0, "Overload", "Random change of each pause, as a share: 0.2 draws it within ±20 % (--seed).")
    fail_replica: str | None = _option(
        None, "Overload", "Failures of replicas: REPLICA@AT[+DURATION] in seconds, as in '2@600+120,0@900', or a CSV "
        "file with the columns replica, at_s, duration_s.")
    router_max_concurrent_requests: int = _option(
        0, "Overload", "Maximum number of requests at all replicas. The rest wait in the router's queue. 0: no limit.")
    router_queue: Literal["fcfs", "fair"] = _option(
        "fcfs", "Overload", "Request that leaves the router's queue next: the first (fcfs), or one of the least served "
        "tenant (fair).")
    router_queue_size: int | None = _option(
        None, "Overload", "Maximum number of requests in the router's queue. Further requests are rejected. [no limit]")
    router_queue_timeout: float | None = _option(
        None, "Overload", "Waiting time in the router's queue after which a request is rejected [s]. [no limit]")
    tenants: str | None = _option(None, "Overload", "TOML file with each tenant's quota, fair-share weight, and slo.")

    step_time: str = _option(
        "roofline", "Step time", "Step-time model: roofline, or linear:BASE_S,PER_TOKEN_S[,PER_CONTEXT_TOKEN_S].")

    num_speculative_tokens: int = _option(
        0, "Step time", "Speculative decoding: drafted tokens per step (SGLang: --speculative-num-steps). 0: off.")
    speculative_method: SpeculativeMethod | None = _option(
        None, "Step time", "Method that drafts tokens. [draft_model with --speculative-model, else mtp]")
    speculative_model: str | None = _option(
        None, "Step time", "Draft model, or EAGLE head: a catalog name, or the path of a config.json.")
    speculative_acceptance: str = _option(
        "0.7", "Step time", "Probability that a drafted token is accepted if all drafted tokens before it were; or "
        "vLLM's acceptance rate of each position: 0.8,0.6,0.4.")
    cudagraph_mode: CudagraphMode | None = _option(
        None, "Step time", "Steps that run as CUDA graphs; `none`: eager mode (vLLM: --enforce-eager). [vllm: "
        "full_and_piecewise; else full_decode_only]")
    max_cudagraph_capture_size: int | None = _option(
        None, "Step time", "Largest step that runs as a CUDA graph: tokens in vLLM, sequences in SGLang "
        "(--cuda-graph-max-bs) and TensorRT-LLM (cuda_graph_config.max_batch_size). [vllm: 2 × max_num_seqs × tokens "
        "per decode, ≤ 512; sglang: from GPU memory; trtllm: 128; both ≤ max_num_seqs]")
    piecewise_cuda_graph_max_tokens: int | None = _option(
        None, "Step time", "Largest step with prompts that runs as piecewise graphs [tokens]. "
        "[max_cudagraph_capture_size]")
    fuse_allreduce_rms: bool | None = _option(
        None, "Step time", "Fused all-reduce + RMSNorm: one kernel for all-reduce, residual and norm (SGLang: "
        "--enable-flashinfer-allreduce-fusion). [on if the engine does so]")
    calibration: str | None = _option(
        None, "Step time", "TOML file with step-time constants from `planner calibrate`. [the engine's constants]")
    interval: float | None = _option(
        None, "Step time", "Share of outcomes that prediction intervals contain, by held-out errors: 0.8. [no "
        "intervals]")

    start_at: float = _option(0.0, "Load", "Skip requests that arrive before this time [s].")
    duration: float | None = _option(
        None, "Load", "Keep only requests that arrive in this period from --start-at on [s].")
    limit: int | None = _option(None, "Load", "Keep only the first N requests.")
    rate_scale: float | None = _option(
        None, "Load", "Factor on the trace's request rate: time is compressed (`planner size`: by --scaling).")
    request_rate: float | None = _option(
        None, "Load", "Mean request rate [1/s]: time is compressed or stretched (`planner size`: by --scaling). TRACE "
        "random, or a trace without arrival times: Poisson arrivals. inf: all requests at once.")
    wait_for_parents: bool = _option(
        True, "Load", "Send a request after its parents, and a turn of a session after the turn before it plus think "
        "time. Off: send all requests at their recorded times.")
    max_concurrency: int | None = _option(None, "Load", "Closed loop: maximum number of requests in flight. [no limit]")
    num_prompts: int | None = _option(None, "Load", "TRACE random: number of requests. [1000]")
    num_warmups: int | None = _option(
        None, "Load", "TRACE random: warm-up requests before the benchmark. They are not replayed. [0]")
    random_input_len: int | None = _option(None, "Load", "TRACE random: prompt length [tokens]. [1024]")
    random_output_len: int | None = _option(None, "Load", "TRACE random: output length [tokens]. [128]")
    random_range_ratio: float | None = _option(
        None, "Load", "TRACE random: lengths are drawn from length · (1 ± ratio), with ratio in [0, 1). [0]")
    seed: int | None = _option(
        None, "Load", "Random seed: TRACE random, routers, accepted drafts, retry pauses, --scaling. [0]")

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
    """Raise UsageError if ranks of data-parallel attention do not work with another option."""
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
    """Return a scenario from option values. A value None means the default of its option."""
    return Scenario(**{name: value for name, value in options.items()
                       if value is not None or OPTION_DEFAULTS[name] is None})


def parse_scenario(options: Mapping[str, Any]) -> Scenario:
    """Build a scenario from the keys and values of a file.

    >>> parse_scenario({"gpu": "h100-sxm", "watermark": 0}).watermark
    0.0

    Raises
    ------
    UnknownNameError : a key is not an option.
    UsageError : a value does not have its option's type, or is not one of its choices.
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
    """Return the data-parallel attention ranks of a replica; 1 if `data_parallel_size` counts replicas.

    >>> attention_ranks(Scenario(data_parallel_size=8)), attention_ranks(
    ...     Scenario(data_parallel_size=8, data_parallel_attention=True))
    (1, 8)
    """
    return scenario.data_parallel_size if scenario.data_parallel_attention else 1


def given_options(scenario: Scenario) -> dict[str, Any]:
    """Return the options of a scenario that differ from their defaults, as `parse_scenario` reads them.

    >>> given_options(Scenario(gpu="h100-sxm", block_size=16))
    {'gpu': 'h100-sxm'}
    """
    return {f.name: getattr(scenario, f.name) for f in fields(Scenario) if getattr(scenario, f.name) != f.default}


def _of_kind(name: str, value: Any) -> Any:
    """Return a value as the first of its option's types that fits. A whole number fits a float."""
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
