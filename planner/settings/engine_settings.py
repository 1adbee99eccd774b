"""Limits and switches of one engine, and the recording options of a replay."""

from dataclasses import dataclass
from typing import Literal

from planner.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """Memory for KV blocks below the GPU's.

    Parameters
    ----------
    num_blocks : that it holds.
    block_bytes : of a block, all GPUs of the engine together [bytes].
    s_per_block : what a block takes on the link, each way [s].
    latency_s : what a transfer takes besides, without keeping the link busy [s].
    """

    num_blocks: int
    block_bytes: float
    s_per_block: float
    latency_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """The limits and switches of one engine, by the names of the engine that has them; 0 means no limit, or off.

    `victim` None leaves the choice to the policy. `swap_s_per_token` is what one token's KV takes over the host link
    [s]. `remote_tier` is one that all replicas share. Swapped KV is in `cpu_tier`, where there is one. `acceptance` is
    the chance that so many drafted tokens at least are accepted, one for each that is drafted; `num_lookahead_tokens`
    are KV slots that a decode holds for drafts besides; `seed` is of the draws.
    `state_blocks` are KV blocks that a request takes for its recurrent states (`deployment.memory.pages`).
    `attention_dp_size` attention ranks take prompts together, or after `attention_dp_timeout_iters` steps.
    `adapter_load_s` is what a LoRA adapter takes from host memory to the GPU, `adapter_read_s` into host memory [s].
    """

    num_gpu_blocks: int
    block_size: int
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_prefill_tokens: int
    long_prefill_token_threshold: int
    enable_chunked_prefill: bool
    enable_prefix_caching: bool
    watermark: float
    preemption: Literal["recompute", "swap"]
    victim: Literal["newest", "lowest-priority", "fewest-generated"] | None
    admission: Literal["head-of-line", "first-fit"]
    max_decode_only_steps: int | None
    max_wait_s: float | None
    scheduler_reserve_full_isl: bool
    schedule_conservativeness: float
    batch_wait_timeout_iters: int
    batch_wait_max_tokens_ratio: float
    scheduler_recv_interval: int
    stream_interval: int
    async_scheduling: bool
    pipeline_parallel_size: int
    stage_transfer_s_per_token: float
    stage_transfer_latency_s: float
    num_cpu_blocks: int
    swap_s_per_token: float
    cpu_tier: Tier | None
    remote_tier: Tier | None
    kv_write_policy: Literal["write_through", "write_through_selective", "write_back"]
    max_concurrency: int | None
    max_queued_requests: int
    priority_ageing_per_s: float
    state_blocks: int = 0
    attention_dp_size: int = 1
    attention_dp_timeout_iters: int = 0
    acceptance: tuple[float, ...] = ()
    num_lookahead_tokens: int = 0
    seed: int = 0
    max_loras: int = 0
    max_cpu_loras: int = 0
    adapter_load_s: float = 0.0
    adapter_read_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("num_gpu_blocks", "block_size", "max_model_len", "pipeline_parallel_size",
                     "scheduler_recv_interval", "stream_interval"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} = {getattr(self, name)}; must be at least 1")
        for name in ("max_num_seqs", "max_num_batched_tokens", "max_prefill_tokens", "long_prefill_token_threshold",
                     "num_cpu_blocks", "swap_s_per_token", "stage_transfer_s_per_token", "stage_transfer_latency_s",
                     "schedule_conservativeness", "batch_wait_timeout_iters", "batch_wait_max_tokens_ratio",
                     "max_queued_requests"):
            if not getattr(self, name) >= 0:
                raise UsageError(f"{name} = {getattr(self, name)}; must not be negative")
        if (self.cpu_tier or self.remote_tier) and not self.enable_prefix_caching:
            raise UsageError("KV tiers are found by prefix, and prefix caching is off; give a trace with hash_ids, or "
                             "--enable-prefix-caching")
        if self.seed < 0:
            raise UsageError(f"seed = {self.seed}; must not be negative")
        if not 0 <= self.watermark < 1:
            raise UsageError(f"watermark = {self.watermark}; must be a fraction in [0, 1)")
        if self.max_concurrency is not None and self.max_concurrency < 1:
            raise UsageError(f"max_concurrency = {self.max_concurrency}; must be at least 1")
        if self.max_decode_only_steps is not None and self.max_decode_only_steps < 1:
            raise UsageError(f"max_decode_only_steps = {self.max_decode_only_steps}; must be at least 1")
        if self.max_wait_s is not None and not self.max_wait_s >= 0:
            raise UsageError(f"max_wait_s = {self.max_wait_s}; must not be negative")
        if self.pipeline_parallel_size > 127:
            raise UsageError(f"pipeline_parallel_size = {self.pipeline_parallel_size}; at most 127 stages are modelled")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """What is kept of a replay besides the requests: a row per step, or per request and step."""

    steps: bool = False
    schedule: bool = False
