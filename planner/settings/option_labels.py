"""Each option of a scenario in words, with its unit and the engines that have it: for forms that people fill in."""

from dataclasses import dataclass
from typing import Any

_SGLANG, _TRTLLM, _VLLM = ("sglang",), ("trtllm",), ("vllm",)


@dataclass(frozen=True, slots=True)
class Label:
    """An option in words.

    Parameters
    ----------
    words : with a small first letter, unless it is a name.
    unit : of the value; "" for none.
    engines : that have the option; none for all.
    """

    words: str
    unit: str = ""
    engines: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The words with their unit, as a field has them.

        >>> Label("skip the first part of the log", "s").title
        'Skip the first part of the log [s]'
        """
        return f"{self.words[0].upper()}{self.words[1:]}" + (f" [{self.unit}]" if self._has_unit else "")

    def value_text(self, value: Any) -> str:
        """Return the words with a value.

        >>> Label("chunk size", "tokens").value_text(8192), Label("chunked prefill").value_text(False)
        ('chunk size 8,192 tokens', 'chunked prefill off')
        """
        if isinstance(value, bool):
            return f"{self.words} {'on' if value else 'off'}"
        text = f"{value:,g}" if isinstance(value, float) and abs(value) < 1e6 else (
            f"{value:,}" if isinstance(value, int | float) else str(value))
        return f"{self.words} {text}" + (f" {self.unit}" if self._has_unit else "")

    @property
    def _has_unit(self) -> bool:
        """Whether there is a unit that the words do not have already."""
        return self.unit != "" and self.unit not in self.words.replace(",", "").split()


LABELS = {
    # Deployment
    "model": Label("model"),
    "gpu": Label("GPU"),
    "engine": Label("serving engine"),
    "engine_version": Label("engine release"),
    "tensor_parallel_size": Label("tensor parallelism", "GPUs"),
    "pipeline_parallel_size": Label("pipeline parallelism", "stages"),
    "decode_context_parallel_size": Label("decode context parallelism", "GPUs", (*_VLLM, *_SGLANG)),
    "prefill_context_parallel_size": Label("prefill context parallelism", "groups", (*_VLLM, *_SGLANG)),
    "inter_node_bandwidth": Label("network between nodes, bandwidth per GPU", "GB/s"),
    "inter_node_latency": Label("network between nodes, latency", "s"),
    "pcie_p2p": Label("peer-to-peer access over PCIe"),
    "power_limit": Label("power limit of each GPU", "W"),
    "expert_parallel": Label("expert parallelism"),
    "expert_tensor_parallel_size": Label("tensor parallelism of each expert", "GPUs", (*_SGLANG, *_TRTLLM)),
    "enable_eplb": Label("expert load balancing (EPLB)"),
    "num_redundant_experts": Label("redundant experts", "experts"),
    "enable_dbo": Label("two-batch overlap", "", (*_VLLM, *_SGLANG)),
    "dbo_decode_token_threshold": Label("two-batch overlap of decodes from", "tokens", (*_VLLM, *_SGLANG)),
    "dbo_prefill_token_threshold": Label("two-batch overlap of prompts from", "tokens", (*_VLLM, *_SGLANG)),
    "enable_single_batch_overlap": Label("single-batch overlap", "", _SGLANG),
    "language_model_only": Label("without the vision encoder"),
    "quantization": Label("weight format"),
    "kv_cache_dtype": Label("KV cache format"),
    "fp8_gemm_backend": Label("FP8 GEMM kernel", "", _SGLANG),
    "moe_backend": Label("MoE kernel"),
    "all2all_backend": Label("all-to-all kernel"),
    "fp32_matmul": Label("FP32 router GEMM"),
    "gpu_memory_utilization": Label("GPU memory used by the engine", "share"),
    "kv_cache_memory_bytes": Label("KV cache of each GPU", "bytes", _VLLM),
    "max_model_len": Label("context limit", "tokens"),
    "num_gpu_blocks": Label("KV cache of a replica", "blocks"),
    "block_size": Label("KV block size", "tokens"),
    "disable_hybrid_kv_cache_manager": Label("full KV cache for sliding-window layers"),
    "swa_full_tokens_ratio": Label("KV tokens of sliding-window layers", "× the others", _SGLANG),
    "mamba_full_memory_ratio": Label("memory for recurrent states", "× the KV cache", _SGLANG),
    "max_loras": Label("LoRA adapters in a step, at most", "adapters"),
    "max_cpu_loras": Label("LoRA adapters in host memory, at most", "adapters"),
    "max_lora_rank": Label("LoRA rank"),
    "lora_disk_bandwidth": Label("read bandwidth for LoRA adapters", "GB/s"),
    "swap_space": Label("swap space per GPU", "GiB"),
    "num_cpu_blocks": Label("swap space", "blocks"),
    # Cache tiers
    "kv_offloading_size": Label("host memory for KV blocks", "GiB"),
    "kv_offloading_ratio": Label("host memory for KV blocks, relative", "× the GPU's"),
    "kv_offloading_bandwidth": Label("host link bandwidth", "GB/s"),
    "kv_remote_size": Label("remote KV store", "GiB"),
    "kv_remote_bandwidth": Label("remote KV store, bandwidth", "GB/s"),
    "kv_remote_latency": Label("remote KV store, latency", "s"),
    "kv_write_policy": Label("copies of KV blocks to the next tier"),
    # Fleet
    "data_parallel_size": Label("replicas", "replicas"),
    "data_parallel_attention": Label("data-parallel attention"),
    "fleet": Label("fleet file"),
    "router": Label("router"),
    "autoscale": Label("autoscaler file"),
    "router_report_interval": Label("interval of load reports to the router", "s"),
    "prefill_replicas": Label("replicas that only prefill", "replicas"),
    "prefill_worker_ratio": Label("time of a step on a prefill replica, relative", "× its kernels'"),
    "prefill_worker_token_time": Label("additional time of a step on a prefill replica", "µs per prompt token"),
    "kv_transfer_bandwidth": Label("KV transfer bandwidth", "GB/s"),
    "kv_transfer_latency": Label("KV transfer latency", "s"),
    "kv_transfer": Label("KV transfer"),
    "local_prefill_below": Label("local prefill of prompts below", "tokens"),
    # Scheduling
    "policy": Label("scheduling policy"),
    "max_num_seqs": Label("running sequences, at most", "sequences"),
    "max_num_active_seqs": Label("running sequences, lower limit of the scheduler", "sequences", _VLLM),
    "max_num_batched_tokens": Label("chunk size", "tokens"),
    "performance_mode": Label("performance mode", "", _VLLM),
    "usage_context": Label("start of the engine", "", _VLLM),
    "max_prefill_tokens": Label("prompt tokens per step, at most", "tokens"),
    "max_num_scheduled_tokens": Label("tokens per step, lower limit of the scheduler", "tokens", _VLLM),
    "long_prefill_token_threshold": Label("tokens per step of a long prompt, at most", "tokens", _VLLM),
    "long_prefill_token_threshold_adaptive": Label("adaptive limit for long prompts", "", _VLLM),
    "prefill_schedule_interval": Label("interval of steps with prompts", "steps", _VLLM),
    "enable_chunked_prefill": Label("chunked prefill"),
    "enable_prefix_caching": Label("prefix caching"),
    "context_chunking_policy": Label("division of tokens among prompts", "", _TRTLLM),
    "watermark": Label("KV blocks kept free at admission", "share"),
    "preemption": Label("preemption"),
    "victim": Label("preempted request"),
    "admission": Label("admission if a request does not fit"),
    "max_decode_only_steps": Label("decode-only steps in a row, at most", "steps"),
    "max_wait_s": Label("wait of the first request, at most", "s"),
    "scheduler_reserve_full_isl": Label("reserve the whole prompt at admission"),
    "async_scheduling": Label("asynchronous scheduling"),
    "schedule_conservativeness": Label("schedule conservativeness", "", _SGLANG),
    "schedule_policy": Label("order of waiting requests", "", _SGLANG),
    "enable_mixed_chunk": Label("decodes beside prompts in a step", "", _SGLANG),
    "enable_priority_scheduling": Label("priority scheduling", "", _SGLANG),
    "schedule_low_priority_values_first": Label("small priorities first", "", _SGLANG),
    "priority_scheduling_preemption_threshold": Label("priority difference for preemption", "", _SGLANG),
    "prefill_decode_interval": Label("decode steps between prompts", "steps", _SGLANG),
    "scheduler_recv_interval": Label("decode steps between looks for requests", "steps", _SGLANG),
    "batch_wait_timeout_iters": Label("wait of prompts for a batch, at most", "steps", _TRTLLM),
    "batch_wait_max_tokens_ratio": Label("tokens that end the wait for a batch", "share", _TRTLLM),
    "stream_interval": Label("tokens per streamed chunk", "tokens"),
    "max_queued_requests": Label("waiting requests, at most", "requests", _SGLANG),
    "max_num_queued_reqs": Label("waiting and running requests, at most", "requests", _VLLM),
    "max_num_queued_tokens": Label("waiting prompt tokens, at most", "tokens", _VLLM),
    "priority_ageing": Label("priority ageing", "1/s"),
    # Overload
    "ttft_timeout": Label("client's time-out for the first token", "s"),
    "request_timeout": Label("client's time-out for the answer", "s"),
    "max_retries": Label("retries, at most", "retries"),
    "retry_initial_backoff": Label("pause before the first retry", "s"),
    "retry_backoff_multiplier": Label("growth of the pause between retries", "×"),
    "retry_max_backoff": Label("pause before a retry, at most", "s"),
    "retry_jitter_factor": Label("jitter of the pause before a retry", "share"),
    "fail_replica": Label("failures of replicas", "replica@s"),
    "router_max_concurrent_requests": Label("requests at all replicas, at most", "requests"),
    "router_queue": Label("order of the router's queue"),
    "router_queue_size": Label("router's queue, at most", "requests"),
    "router_queue_timeout": Label("wait in the router's queue, at most", "s"),
    "tenants": Label("tenants file"),
    # Step time
    "step_time": Label("step-time model"),
    "num_speculative_tokens": Label("speculative decoding", "tokens"),
    "num_speculative_tokens_per_batch_size": Label("drafted tokens by batch size"),
    "speculative_method": Label("drafting method"),
    "speculative_model": Label("draft model"),
    "speculative_acceptance": Label("acceptance of drafted tokens", "share"),
    "cudagraph_mode": Label("CUDA graphs"),
    "max_cudagraph_capture_size": Label("largest step as a CUDA graph", "tokens or sequences"),
    "piecewise_cuda_graph_max_tokens": Label("largest step as piecewise graphs", "tokens", (*_SGLANG, *_TRTLLM)),
    "custom_all_reduce": Label("the engine's own all-reduce"),
    "fuse_allreduce_rms": Label("fused all-reduce + RMSNorm"),
    "calibration": Label("calibration file"),
    "interval": Label("prediction interval", "share"),
    # Load
    "start_at": Label("skip the first part of the log", "s"),
    "duration": Label("length of the part that is kept", "s"),
    "limit": Label("requests of the log, at most", "requests"),
    "rate_scale": Label("load", "× the log's rate"),
    "request_rate": Label("request rate", "requests/s"),
    "scaling": Label("method of changing the rate"),
    "trace_copies": Label("copies of the log, one after the other"),
    "ready_at_start": Label("closed loop: all users ready at the start"),
    "think_time": Label("closed loop: pause of a user", "s"),
    "wait_for_parents": Label("turns wait for earlier turns"),
    "max_concurrency": Label("closed loop: requests in flight", "requests"),
    "max_sessions": Label("closed loop: open sessions", "sessions"),
    "session_start_fraction": Label("share of a session left out at the start", "low,high"),
    "warmup_s": Label("warm-up", "s"),
    "measure_s": Label("length of the measurement", "s"),
    "recycle_sessions": Label("repeat sessions"),
    "num_prompts": Label("random load: requests", "requests"),
    "num_warmups": Label("random load: warm-up requests", "requests"),
    "random_input_len": Label("random load: prompt length", "tokens"),
    "random_output_len": Label("random load: output length", "tokens"),
    "random_range_ratio": Label("random load: range of lengths", "share"),
    "seed": Label("random seed"),
}
