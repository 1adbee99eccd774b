"""Limits and switches of one engine, the record that the loop reads them from, and recording options."""

from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np

from planner.errors import UsageError

_CODES = {float: "f8", int: "i8", bool: "i1"}  # in the record, by the type of a field


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """Memory for KV blocks below the GPU's.

    Parameters
    ----------
    num_blocks : that it holds.
    block_bytes : of a block, all GPUs of the engine together [bytes].
    s_per_block : time of a block on the link, each way [s].
    latency_s : more time of a transfer, in which the link is free [s].
    """

    num_blocks: int
    block_bytes: float
    s_per_block: float
    latency_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """The limits and switches of one engine, by the names of its options.

    The loop reads numbers and switches under these names in `SETTINGS`. Fields that are scenario options are copied by
    name (`deployment.deploy`), so an option that the scheduler reads is a field of the scenario, a field here, its rule
    in the loop, and its flag in the engine's file. 0 means no limit, or off.

    `victim` None leaves the choice to the policy. `swap_s_per_token` is the time of one token's KV on the host link
    [s]. Swapped KV is in `cpu_tier` if there is one; all replicas share `remote_tier`. `acceptance` is the probability
    that at least a number of drafted tokens is accepted, one for each number. `draft_lengths` are the tokens drafted
    after a step by its number of requests, empty if the length is constant. `num_lookahead_tokens` are KV slots
    that a decode holds for drafts. With `hashes_next_token` a block's content covers the token after it. `seed` seeds
    the draws of accepted drafts. `state_blocks` are KV blocks that a request takes for its recurrent states
    (`deployment.memory.pages`). Sliding layers keep `window_tokens`, and `window_chunk` more while a prompt is
    computed, in pages of `window_page_size` tokens and `window_page_bytes`; a block has `block_bytes`
    (`deployment.sliding_windows`). The vision encoder takes `image_s` for an image, or a tile of `image_tile_tokens`,
    and a time for each of its tokens and pairs of tokens. `attention_dp_size` attention ranks take prompts together,
    or after `attention_dp_timeout_iters` steps. `adapter_load_s` is the time to bring a LoRA adapter from host memory
    to the GPU, `adapter_read_s` into host memory [s]. `first_use_s` is added to the first step of a new engine [s].
    """

    num_gpu_blocks: int
    block_size: int
    max_model_len: int
    max_num_seqs: int
    max_num_active_seqs: int
    max_num_batched_tokens: int
    max_num_scheduled_tokens: int
    max_prefill_tokens: int
    long_prefill_token_threshold: int
    long_prefill_token_threshold_adaptive: bool
    prefill_schedule_interval: int
    scheduler_delay_factor: float
    enable_chunked_prefill: bool
    enable_prefix_caching: bool
    context_chunking_policy: Literal["FIRST_COME_FIRST_SERVED", "EQUAL_PROGRESS"]
    watermark: float
    preemption: Literal["recompute", "swap"]
    victim: Literal["newest", "lowest-priority", "fewest-generated"] | None
    admission: Literal["head-of-line", "first-fit"]
    max_decode_only_steps: int | None
    max_wait_s: float | None
    scheduler_reserve_full_isl: bool
    schedule_conservativeness: float
    schedule_policy: Literal["fcfs", "lpm", "lof"]
    enable_mixed_chunk: bool
    enable_priority_scheduling: bool
    schedule_low_priority_values_first: bool
    priority_scheduling_preemption_threshold: int
    prefill_decode_interval: int
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
    max_num_queued_reqs: int
    max_num_queued_tokens: int
    priority_ageing: float
    state_blocks: int = 0
    window_tokens: int = 0
    window_chunk: int = 0
    window_page_size: int = 1
    window_page_bytes: int = 0
    block_bytes: int = 1
    attention_dp_size: int = 1
    attention_dp_timeout_iters: int = 0
    acceptance: tuple[float, ...] = ()
    draft_lengths: tuple[int, ...] = ()
    image_s: float = 0.0
    image_s_per_token: float = 0.0
    image_s_per_pair: float = 0.0
    image_tile_tokens: int = 0
    num_lookahead_tokens: int = 0
    hashes_next_token: bool = False
    streams_by_step: bool = False
    rereads_prompts: bool = False
    sends_token_on: bool = False
    starts_alone: bool = False
    ends_wait: bool = False
    strict_prefill: bool = False
    seed: int = 0
    max_loras: int = 0
    max_cpu_loras: int = 0
    adapter_load_s: float = 0.0
    adapter_read_s: float = 0.0
    first_use_s: float = 0.0

    def __post_init__(self) -> None:
        if self.max_model_len < 1:
            raise UsageError(f"max_model_len = {self.max_model_len}: must be at least 1")
        if (self.cpu_tier or self.remote_tier) and not self.enable_prefix_caching:
            raise UsageError("KV tiers are found by prefix, and prefix caching is off; give a trace with hash_ids, or "
                             "--enable-prefix-caching")
        if self.enable_priority_scheduling and self.schedule_policy == "lpm":
            raise UsageError("schedule_policy = lpm with enable_priority_scheduling: SGLang orders by priority with "
                             "fcfs or lof only; leave one of them out")


# Fields that are made of the policy, of the requests, or of several settings; `replays.settings_record` fills them.
_MADE = {
    int: (
        "watermark_blocks",
        "most_running",  # length of `prompts`
        "most_finishes",  # lengths of the buffers
        "most_gap_rows",
        "most_step_rows",
        "most_schedule_rows",
        "max_buffered_tokens",  # max_num_batched_tokens, if max_num_scheduled_tokens limits the step
        "max_batch_seqs",  # sequences in one step
        "reserve",
        "promise",
        "cut",
        "chunk_tokens",  # a prompt is cut after a multiple of this number of tokens
        "max_chunk_tokens",  # prompt tokens of a step
        "queue_order",  # of a waiting list
        "victim",
        "write_policy",  # of KV tiers
        "remote_units",  # of the remote store's room that a block takes
        "first_own_content",  # of a block with a lost token: its number is by its place in the block table
        "first_remote",  # the number there of this engine's first content
        "num_speculative_tokens",  # drafted for each decode in a step, at most
        "num_draft_lengths",  # batch sizes in `draft_lengths`
        "max_concurrency",  # requests in flight that the client allows
        "max_decode_only_steps",
    ),
    float: (
        "max_wait_s",
        "first_ratio",  # share of output to come that is promised: at first, at least, and its decay a step
        "least_ratio",
        "ratio_decay",
        "batch_wait_max_tokens",  # prompts are held back while a step would have fewer tokens
        "attention_dp_backlog",  # mean prompts on a rank at which all others have one with probability ½
    ),
    bool: (
        "aggregates_decodes",  # decodes are held by counters: without a pipeline, and without drafts
        "defers_ends",  # a step is composed before the ends of the one before it are known
        "drops_tokens",  # of retracted requests, the tokens in flight
        "skips_tokens",  # a request computes again the tokens that were known at its pause, not the one in flight
        "enters_late",  # blocks of generated tokens are findable once the tokens are known, not when they are computed
        "is_keyed",  # waiting is ordered by `Ranks.admit`, not by arrival
        "displaces",  # a more urgent request takes the seats of running ones
        "mixes",  # a step of prompts takes decodes along
        "is_first_fit",
        "is_swapping",
        "caches_in_tree",  # the prefix cache is a radix tree; `enable_prefix_caching` is off then
        "cache_latest",  # nano-vllm's table: findable at the step's end, the latest duplicate wins
        "empty_first",  # blocks without content are taken first, also if the latest duplicate wins
        "has_placeholders",  # tokens count before they are there: see `placeholders`
        "watermark_when_idle",
        "passes_over",  # a prompt without a chunk lets shorter ones pass
        "keeps_order",  # requests pause for those queued before them: see `pauses`
        "chunks_equally",  # prompts share the budget, a chunk each in turn
        "fits_with_spare",  # all decodes of a step fit for certain only if a block more than they take is free
        "needs_spare_block",  # a decode runs only while a block is free, needed or not
        "limits_batch_only",  # max_num_seqs limits the prompts of a batch, not the running set
        "requeues_last",  # a preempted request waits behind all others
        "may_cancel",
        "encodes_images",  # prompts have images, which a vision encoder runs over
        "has_timeouts",  # clients end attempts; an attempt that the API server has not reached costs nothing
        "has_ttft_timeout",
        "is_retried",  # a client that ended an attempt may come again, here or elsewhere
        "pulls_kv",  # requests may bring KV from another engine
        "holds_kv",  # requests may leave theirs to another engine
        "has_tiers",  # KV tiers below the GPU
        "is_routed",  # one of several engines: it pauses when a request leaves
        "records_steps",
        "records_schedule",
    ),
}
COPIED = tuple(f.name for f in fields(EngineSettings) if f.type in _CODES)
_FIELDS: list[tuple[str, Any]] = [(f.name, f.type) for f in fields(EngineSettings) if f.type in _CODES]
_FIELDS += [(name, kind) for kind, names in _MADE.items() for name in names]
SETTINGS = np.dtype(sorted(((name, _CODES[kind]) for name, kind in _FIELDS), key=lambda field: field[1] == "i1"),
                    align=True)  # switches last: without gaps between numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """The records kept of a replay, apart from the requests: a row per step, or per request and step."""

    steps: bool = False
    schedule: bool = False
