"""The record of an engine's settings that the loop reads: copied by name, or made of policy and settings."""

import functools
import math
from collections.abc import Callable
from typing import Any

from planner.deployment.kv_tiers import WRITE_POLICY
from planner.loop.state import engine_state as st
from planner.loop.state.engine_settings import COPIED, SETTINGS, EngineSettings, Recording
from planner.policies.policy import NO_LIMIT, Policy
from planner.replays.queue_places import queue_order
from planner.settings.scenario import NO_LIMITS

_RESERVE = {"chunk": st.RESERVE_CHUNK, "prompt": st.RESERVE_PROMPT, "output": st.RESERVE_OUTPUT,
            "model-len": st.RESERVE_MODEL_LEN}
_PROMISE = {"nothing": st.PROMISE_NOTHING, "all": st.PROMISE_ALL, "share": st.PROMISE_SHARE}
_CUT = {"any": st.CUT_ANY, "first": st.CUT_FIRST, "none": st.CUT_NONE}
_CHUNK_UNIT: dict[str, Callable[[int], int]] = {
    "token": lambda _: 1, "block": lambda size: size, "64": lambda size: max(size, 64)}
_VICTIM = {"newest": st.VICTIM_NEWEST, "lowest-priority": st.VICTIM_LARGEST_KEY,
           "fewest-generated": st.VICTIM_FEWEST_GENERATED, "least-output": st.VICTIM_LEAST_OUTPUT}

# SGLang's new-token ratio: at first, at least as a share of that, and the decode steps from the one to the other.
_FIRST_RATIO, _LEAST_RATIO_FACTOR, _RATIO_DECAY_STEPS = 0.7, 0.14, 600

_RULES = ("cache_latest", "watermark_when_idle", "needs_spare_block", "passes_over",
          "empty_first")  # a policy's, by the same name


def settings_record(policy: Policy, settings: EngineSettings, recording: Recording) -> Any:
    """Translate settings and policy into the loop's record."""
    records = st.records(1, SETTINGS)
    records[0] = _translated(policy, settings, recording)
    return records[0]


@functools.lru_cache(maxsize=64)  # a search replays hundreds of replicas with the same settings
def _translated(policy: Policy, settings: EngineSettings, recording: Recording) -> Any:
    record = st.records(1, SETTINGS)[0]
    for source, names in ((settings, COPIED), (policy, _RULES)):
        for name in names:
            setattr(record, name, getattr(source, name))
    for name in NO_LIMITS:
        setattr(record, name, getattr(settings, name) or NO_LIMIT)
    limit = settings.max_num_batched_tokens or NO_LIMIT
    budget = limit if policy.budget == "step" else NO_LIMIT
    seqs = min(settings.max_num_seqs or NO_LIMIT, settings.max_num_active_seqs or NO_LIMIT)
    usable = settings.num_gpu_blocks
    # vLLM counts its null block in, sarathi-serve has none.
    record.watermark_blocks = int(settings.watermark * (usable if policy.watermark_when_idle else usable + 1))
    record.max_num_batched_tokens = min(budget, settings.max_num_scheduled_tokens or NO_LIMIT)
    record.max_buffered_tokens = budget
    # vLLM refuses a budget below max_num_seqs: every running request must be able to decode.
    stages = settings.pipeline_parallel_size
    record.max_batch_seqs = max(min(seqs, budget) // (stages if policy.seats == "share" else 1), 1)
    record.limits_batch_only = policy.seats == "batch"
    running = (seqs if policy.placeholders else min(seqs, budget)) * (stages if policy.seats == "each" else 1)
    record.max_num_seqs = seqs if record.limits_batch_only else min(running, NO_LIMIT)
    record.max_concurrency = settings.max_concurrency or NO_LIMIT
    record.max_decode_only_steps = settings.max_decode_only_steps or NO_LIMIT
    record.max_wait_s = math.inf if settings.max_wait_s is None else settings.max_wait_s
    record.reserve = _RESERVE[policy.reserve]
    record.cut = _CUT[policy.cut if settings.enable_chunked_prefill else "none"]
    is_equal = settings.context_chunking_policy == "EQUAL_PROGRESS" and settings.enable_chunked_prefill
    record.chunks_equally = policy.passes_over and is_equal
    record.chunk_tokens = _CHUNK_UNIT[policy.chunk_unit](settings.block_size)
    is_chunk = policy.budget == "prompts" and settings.enable_chunked_prefill
    record.max_chunk_tokens = limit if is_chunk else NO_LIMIT
    if policy.promises != "share":  # else SGLang's, which cuts nothing
        record.max_prefill_tokens = min(record.max_prefill_tokens, record.max_chunk_tokens)
        record.max_chunk_tokens = record.max_prefill_tokens
    default_victim = policy.victim if policy.victim_key is None else "lowest-priority"
    record.victim = _VICTIM[settings.victim or default_victim]
    record.requeues_last = policy.requeue == "back"
    record.is_keyed = policy.admit_key is not None
    record.is_first_fit = settings.admission == "first-fit"
    record.is_swapping = settings.preemption == "swap"
    record.records_steps = recording.steps
    record.records_schedule = recording.schedule
    if settings.batch_wait_max_tokens_ratio > 0:
        most_tokens = settings.max_num_batched_tokens or math.inf
        record.batch_wait_max_tokens = settings.batch_wait_max_tokens_ratio * most_tokens
    record.attention_dp_backlog = _likely_backlog(settings.attention_dp_size)
    record.num_speculative_tokens = len(settings.acceptance)
    record.num_draft_lengths = len(settings.draft_lengths)
    record.aggregates_decodes = settings.pipeline_parallel_size == 1 and not settings.acceptance
    record.keeps_order = (policy.passes_over and policy.promises == "nothing" and record.victim == st.VICTIM_NEWEST and
                          not (stages > 1 or settings.max_loras or settings.max_decode_only_steps or record.is_keyed or
                               record.is_first_fit or settings.max_wait_s is not None))
    record.has_tiers = settings.cpu_tier is not None or settings.remote_tier is not None
    record.write_policy = WRITE_POLICY[settings.kv_write_policy]
    record.remote_units = 1
    _set_overlap(record, policy, settings)
    _set_promises(record, policy, settings)
    return record


def _set_overlap(record: Any, policy: Policy, settings: EngineSettings) -> None:
    """Set which rules hold if a step is composed before the tokens of the last one are known."""
    record.defers_ends = settings.async_scheduling and settings.pipeline_parallel_size == 1
    recomputes = record.defers_ends and settings.preemption == "recompute"
    record.skips_tokens = recomputes and policy.passes_over
    record.has_placeholders = recomputes and policy.placeholders
    record.drops_tokens = recomputes and (policy.promises == "share" or policy.placeholders)
    record.fits_with_spare = policy.needs_spare_block or record.has_placeholders
    late = bool(record.defers_ends or settings.acceptance)
    record.enters_late = late and settings.enable_prefix_caching and not policy.cache_latest
    if not record.has_placeholders:
        record.scheduler_delay_factor = 0.0
    if policy.placeholders and not settings.enable_chunked_prefill:
        record.long_prefill_token_threshold = 0


def _set_promises(record: Any, policy: Policy, settings: EngineSettings) -> None:
    """Set the values that follow from the room that a policy promises for output: SGLang's rules, if it is a share."""
    record.promise = _PROMISE[policy.promises]
    record.first_ratio = min(_FIRST_RATIO * settings.schedule_conservativeness, 1.0)
    record.least_ratio = record.first_ratio * _LEAST_RATIO_FACTOR
    record.ratio_decay = (record.first_ratio - record.least_ratio) / _RATIO_DECAY_STEPS
    record.queue_order = queue_order(policy, settings)
    record.displaces = record.queue_order == st.BY_RANK and settings.enable_priority_scheduling
    record.mixes = policy.promises == "share" and settings.enable_mixed_chunk
    if policy.promises == "share":  # other engines' ways of holding prompts back have no part in it
        record.prefill_schedule_interval, record.batch_wait_timeout_iters = 1, 0


def _likely_backlog(num_ranks: int) -> float:
    """Return the mean backlog b of a rank at which all others are as likely as not to have a prompt.

    With Poisson counts (1 − e⁻ᵇ)ⁿ⁻¹ = ½, so b = −ln(1 − 2^(−1/(n − 1))); 0 without others.
    """
    return -math.log1p(-(0.5 ** (1.0 / (num_ranks - 1)))) if num_ranks > 1 else 0.0
