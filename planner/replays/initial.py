"""The state that a replay starts from: settings, policy and trace laid out as the loop's memory."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.deployment.kv_tiers import WRITE_POLICY, forget_cpu_tier, tier_memory
from planner.loop.compiled.generator import MODULUS
from planner.loop.rows import GAP_ROW, PREEMPTION_ROW, SCHEDULE_ROW, STEP_ROW
from planner.loop.state import engine_state as st
from planner.loop.state.entries import ADAPTER, BLOCK, ENTRY, FLIGHT, FLOAT_HEAP, INT_HEAP, PULL, RING, SLOT
from planner.loop.state.terms import StepTime
from planner.policies.policy import NO_LIMIT, Policy
from planner.replays.block_ids import assign_contents
from planner.replays.queue_places import rank_records
from planner.replays.request_columns import optional, token_limits
from planner.settings.engine_settings import EngineSettings, Recording
from planner.traces import Trace

_RESERVE = {"chunk": st.RESERVE_CHUNK, "prompt": st.RESERVE_PROMPT, "output": st.RESERVE_OUTPUT,
            "model-len": st.RESERVE_MODEL_LEN}
_PROMISE = {"nothing": st.PROMISE_NOTHING, "all": st.PROMISE_ALL, "share": st.PROMISE_SHARE}
_CUT = {"any": st.CUT_ANY, "first": st.CUT_FIRST, "none": st.CUT_NONE}
_VICTIM = {"newest": st.VICTIM_NEWEST, "lowest-priority": st.VICTIM_LARGEST_KEY,
           "fewest-generated": st.VICTIM_FEWEST_GENERATED, "least-output": st.VICTIM_LEAST_OUTPUT}

# SGLang's new-token ratio: at first, at least as a share of that, and the decode steps from the one to the other.
_FIRST_RATIO, _LEAST_RATIO_FACTOR, _RATIO_DECAY_STEPS = 0.7, 0.14, 600

_ROWS = 1 << 16  # rows that a buffer holds before it is taken out
FLEET_ROWS = 1 << 22  # of all of a fleet's buffers of gaps together


def initial_state(trace: Trace, policy: Policy, settings: EngineSettings, step_time: StepTime,
                  recording: Recording, requests: Any,
                  numbered_blocks: NDArray[np.int64] | None = None) -> st.State:
    """Lay out the loop's memory and fill in what it starts from.

    Parameters
    ----------
    requests : state.REQUEST, of `requests.RequestMemory`.
    numbered_blocks : as of `prefix.assign_contents`; None for its own.
    """
    n = trace.requests.height
    record = _settings_record(policy, settings, recording)
    seats = n if record.limits_batch_only else int(record.max_num_seqs)
    most = min(n, settings.num_gpu_blocks, seats)  # each that runs holds a block of its own
    adapters = _adapters(trace) if settings.max_loras else np.empty(0, np.int64)
    prefixes, blocks, entries, slots = _block_table(trace, record, adapters, numbered_blocks)
    may_cancel = "cancel_after_s" in trace.requests.columns
    cancel = optional(trace.requests, "cancel_after_s", math.inf) if may_cancel else np.empty(0)
    scratch = n if (record.is_first_fit or settings.max_loras) and record.is_keyed else most
    rows = _ROWS + 2 * most
    record.most_running = most
    record.most_finishes = 2 * most + 64
    record.most_gap_rows = rows
    record.most_step_rows = _ROWS
    record.most_schedule_rows = rows
    record.may_cancel = may_cancel
    return st.State(
        engine=_engine_record(record),
        settings=record,
        step_time=step_time.terms,
        curve=step_time.curve,
        requests=requests,
        prefixes=prefixes,
        phases=st.records(n if recording.steps else 1, st.PHASES),
        ranks=rank_records(trace, policy, settings),
        prompts=np.empty(most + 1, np.int64),
        waiting_heap=st.records(n + 1 if record.is_keyed else 1, INT_HEAP),
        finishes=st.records(int(record.most_finishes), INT_HEAP),
        cancels=st.records(int(np.isfinite(cancel).sum()) + 1, FLOAT_HEAP),
        cancel_after_s=cancel,
        first_token_within_s=np.empty(0),
        departed_s=np.empty(n if settings.max_concurrency else 0),
        pulls=st.records(1, PULL),
        loads=st.records(n + 1 if record.has_tiers else 1, FLOAT_HEAP),
        pulled=np.empty(0, np.int64),
        left_before=np.empty(0, np.int64),
        seen_s=np.zeros(n if settings.stream_interval > 1 else 0),
        acceptance=np.array(settings.acceptance, np.float64),
        adapters=adapters,
        adapter_states=st.records(int(adapters.max(initial=0)) + 1, ADAPTER),
        adapter_slots=np.full(int(record.max_loras + record.max_cpu_loras), st.NONE),
        draws=np.random.default_rng(settings.seed).integers(1, MODULUS, n if settings.acceptance else 0),
        ring=_ring(settings.block_size),
        blocks=blocks,
        entries=entries,
        slots=slots,
        **tier_memory(settings, n, len(entries)),
        scratch=np.empty(scratch + 1, np.int64),
        flights=st.records(settings.pipeline_parallel_size, FLIGHT),
        gaps=st.records(rows, GAP_ROW),
        steps=st.records(_ROWS if recording.steps else 1, STEP_ROW),
        schedule=st.records(rows if recording.schedule else 1, SCHEDULE_ROW),
        preemptions=st.records(rows if recording.schedule else 1, PREEMPTION_ROW),
    )


def sharing_requests(states: Sequence[st.State], pulls: Any) -> list[st.State]:
    """Return the memories of several kinds of engine, laid out for the same requests, with what the first has of these.

    A request is at one engine at a time. Where its blocks are, and in which order each policy has it, stays each kind's
    own.

    Parameters
    ----------
    pulls : what KV each request brings, entries.PULL; None where engines pass none on.
    """
    of_requests = ("phases", "cancel_after_s", "first_token_within_s")
    shared: dict[str, Any] = {name: getattr(states[0], name) for name in of_requests}
    shared["fetches"] = max((state.fetches for state in states), key=len)  # some may have no tiers
    if pulls is not None:
        shared["pulls"] = pulls
    return [state._replace(**shared) for state in states]


def routed(state: st.State, count: int, num_replicas: int) -> list[st.State]:
    """Return the memories of `count` equal engines, of a fleet of `num_replicas`, that a router sends requests to.

    Requests, their prefixes and block tables are shared. Queues, KV blocks and buffers are each engine's own.
    """
    most = int(state.settings.most_running)
    rows = max(min(_ROWS, FLEET_ROWS // num_replicas), 1024) + 2 * most
    state.settings.most_gap_rows = rows
    state = state._replace(gaps=st.records(rows, GAP_ROW), left_before=np.empty(len(state.requests), np.int64))
    state.settings.is_routed = True
    state.settings.max_concurrency = NO_LIMIT  # the fleet's client keeps it
    state.engine.next_request = st.NONE
    return [_own(state) for _ in range(count)]


def forget_cache(state: st.State) -> None:
    """Empty the prefix cache, the adapters' places and the tier in host memory of an engine that has no requests."""
    state.adapter_slots[:] = st.NONE
    state.adapter_states.is_on_gpu = state.adapter_states.is_on_host = 0
    if not state.settings.is_caching:
        return
    state.blocks[:] = _free_blocks(len(state.blocks))
    state.entries.first = st.NONE
    state.entries.last = st.NONE
    state.engine.free_head, state.engine.free_tail = 0, len(state.blocks) - 1
    forget_cpu_tier(state)


def holding(state: st.State) -> st.State:
    """Return the memory of an engine that prefills, and holds KV until another has taken it."""
    state.settings.holds_kv = True
    return state


def pulling(state: st.State) -> st.State:
    """Return the memory of an engine that decodes what others have prefilled."""
    state.settings.pulls_kv = True
    loads = st.records(len(state.requests), FLOAT_HEAP)  # entries of cancelled requests stay for a while
    return state._replace(loads=loads, pulled=np.empty(len(state.prompts), np.int64))


def _own(state: st.State) -> st.State:
    """Return a memory that shares what is of requests."""
    empty = {name: _blank(getattr(state, name)) for name in (
        "prompts", "waiting_heap", "finishes", "cancels", "loads", "pulled", "scratch", "flights", "gaps", "steps",
        "schedule", "preemptions")}
    filled = {name: getattr(state, name).copy() for name in (
        "ring", "blocks", "entries", "adapter_states", "adapter_slots", "links", "cpu", "cpu_blocks", "cpu_places",
        "filled")}
    engine = st.records(1, st.ENGINE)
    engine[0] = state.engine
    return state._replace(engine=engine[0], **empty, **filled)


def _blank(array: Any) -> Any:
    """Return zeros of an array's shape, without touching the memory before it is used."""
    return np.zeros(array.shape, array.dtype).view(type(array))


# Settings and rules that the loop has by the same name.
_SETTINGS = ("num_gpu_blocks", "num_cpu_blocks", "block_size", "state_blocks", "long_prefill_token_threshold",
             "max_model_len", "swap_s_per_token", "stage_transfer_s_per_token", "stage_transfer_latency_s",
             "batch_wait_timeout_iters", "attention_dp_timeout_iters", "scheduler_recv_interval", "stream_interval",
             "max_loras", "max_cpu_loras", "adapter_load_s", "adapter_read_s")
_RULES = ("cache_latest", "watermark_when_idle", "needs_spare_block")


def _settings_record(policy: Policy, settings: EngineSettings, recording: Recording) -> Any:
    """Translate settings and policy into the loop's record."""
    record = st.records(1, st.SETTINGS)[0]
    for source, names in ((settings, _SETTINGS), (policy, _RULES)):
        for name in names:
            setattr(record, name, getattr(source, name))
    limit = settings.max_num_batched_tokens or NO_LIMIT
    budget = limit if policy.budget == "step" else NO_LIMIT
    seqs = settings.max_num_seqs or NO_LIMIT
    usable = settings.num_gpu_blocks
    # vLLM counts its null block in, sarathi-serve has none.
    record.watermark_blocks = int(settings.watermark * (usable if policy.watermark_when_idle else usable + 1))
    record.max_num_batched_tokens = budget
    # vLLM refuses a budget below max_num_seqs: every running request must be able to decode.
    stages = settings.pipeline_parallel_size
    record.max_batch_seqs = max(min(seqs, budget) // (stages if policy.seats == "share" else 1), 1)
    record.limits_batch_only = policy.seats == "batch"
    running = min(seqs, budget) * (stages if policy.seats == "each" else 1)
    record.max_num_seqs = seqs if record.limits_batch_only else min(running, NO_LIMIT)
    record.max_concurrency = settings.max_concurrency or NO_LIMIT
    record.max_queued_requests = settings.max_queued_requests or NO_LIMIT
    record.max_decode_only_steps = settings.max_decode_only_steps or NO_LIMIT
    record.max_wait_s = math.inf if settings.max_wait_s is None else settings.max_wait_s
    record.pipeline_depth = settings.pipeline_parallel_size
    record.reserve = _RESERVE[policy.reserve]
    record.cut = _CUT[policy.cut if settings.enable_chunked_prefill else "none"]
    record.chunk_tokens = settings.block_size if policy.chunk_unit == "block" else 1
    record.max_prefill_tokens = settings.max_prefill_tokens or NO_LIMIT
    if policy.budget == "prompts" and settings.enable_chunked_prefill:
        record.max_prefill_tokens = min(record.max_prefill_tokens, limit)
    default_victim = policy.victim if policy.victim_key is None else "lowest-priority"
    record.victim = _VICTIM[settings.victim or default_victim]
    record.requeues_last = policy.requeue == "back"
    record.is_keyed = policy.admit_key is not None
    record.is_first_fit = settings.admission == "first-fit"
    record.is_swapping = settings.preemption == "swap"
    record.is_async = settings.async_scheduling
    record.is_caching = settings.enable_prefix_caching
    record.reserves_full_isl = settings.scheduler_reserve_full_isl
    record.records_steps = recording.steps
    record.records_schedule = recording.schedule
    record.promise = _PROMISE[policy.promises]
    record.first_ratio = min(_FIRST_RATIO * settings.schedule_conservativeness, 1.0)
    record.least_ratio = record.first_ratio * _LEAST_RATIO_FACTOR
    record.ratio_decay = (record.first_ratio - record.least_ratio) / _RATIO_DECAY_STEPS
    if settings.batch_wait_max_tokens_ratio > 0:
        most_tokens = settings.max_num_batched_tokens or math.inf
        record.batch_wait_max_tokens = settings.batch_wait_max_tokens_ratio * most_tokens
    record.attention_dp_backlog = _likely_backlog(settings.attention_dp_size)
    record.num_speculative_tokens = len(settings.acceptance)
    record.lookahead_tokens = settings.num_lookahead_tokens
    record.aggregates_decodes = settings.pipeline_parallel_size == 1 and not settings.acceptance
    record.has_tiers = settings.cpu_tier is not None or settings.remote_tier is not None
    record.write_policy = WRITE_POLICY[settings.kv_write_policy]
    record.remote_units = 1
    return record


def _likely_backlog(num_ranks: int) -> float:
    """Return the mean backlog b of a rank at which all others are as likely as not to have a prompt.

    With Poisson counts (1 − e⁻ᵇ)ⁿ⁻¹ = ½, so b = −ln(1 − 2^(−1/(n − 1))); 0 where there is no other.
    """
    return -math.log1p(-(0.5 ** (1.0 / (num_ranks - 1)))) if num_ranks > 1 else 0.0


def _engine_record(settings: Any) -> Any:
    engine = st.records(1, st.ENGINE)[0]
    engine.last_start_s = -math.inf
    engine.until_s = engine.laid_out_until_s = math.inf
    engine.last_decode_s = -math.inf
    engine.frontend_free_s = -math.inf
    engine.polled_until_s = -math.inf
    engine.ratio = settings.first_ratio
    engine.num_free_blocks = settings.num_gpu_blocks
    engine.num_free_cpu_blocks = settings.num_cpu_blocks
    for name in ("last_to_leave", "waiting_head", "waiting_tail", "running_head", "running_tail", "free_head",
                 "free_tail", "blocked_request", "blocked_content", "next_in_order", "first_filled"):
        setattr(engine, name, st.NONE)
    if settings.is_caching:
        engine.free_head, engine.free_tail = 0, settings.num_gpu_blocks - 1
    return engine


def _ring(block_size: int) -> Any:
    ring = st.records(block_size, RING)
    ring.head = st.NONE
    return ring


def _adapters(trace: Trace) -> NDArray[np.int64]:
    """Return the number of each request's adapter, from 0, and NONE where it has none, shape [num_requests]."""
    if "adapter" not in trace.requests.columns:
        return np.full(trace.requests.height, st.NONE)
    numbers = trace.requests["adapter"].rank("dense").cast(int) - 1
    return numbers.fill_null(st.NONE).to_numpy().astype(np.int64)


def _block_table(trace: Trace, record: Any, adapters: Any,
                 numbered_blocks: NDArray[np.int64] | None) -> tuple[Any, Any, Any, Any]:
    """Lay out KV blocks, contents and block tables where prefix caching follows them one by one."""
    if not record.is_caching:
        return st.records(1, st.PREFIX), st.records(1, BLOCK), st.records(1, ENTRY), st.records(1, SLOT)
    n, size = trace.num_requests, int(record.block_size)
    inputs, outputs, limits = token_limits(trace.requests, int(record.max_model_len))
    ahead = np.minimum(outputs + int(record.num_speculative_tokens + record.lookahead_tokens), limits)
    tokens = inputs + (limits if record.reserve == st.RESERVE_OUTPUT else ahead)
    num_blocks = -(-tokens // size)
    if record.reserve == st.RESERVE_MODEL_LEN:
        num_blocks = np.maximum(num_blocks, -(-int(record.max_model_len) // size))  # longer prompts have more
    start = np.concatenate(([0], np.cumsum(num_blocks)))
    slots = st.records(int(start[-1]), SLOT)
    ids, offsets, id_tokens = np.empty(0, np.int64), np.zeros(n + 1, np.int64), size
    if trace.prefix is not None:
        ids, offsets, id_tokens = trace.prefix.values, trace.prefix.offsets, trace.prefix.block_tokens
    if len(adapters) and len(ids):  # the same tokens have another KV under another adapter
        ids = np.unique(ids, return_inverse=True)[1].reshape(-1).astype(np.int64)
        ids = ids + (ids.max() + 1) * np.repeat(adapters + 1, np.diff(offsets))
    num_contents = assign_contents(
        ids=ids, offsets=offsets, id_tokens=id_tokens, block_size=size, input_tokens=inputs, num_blocks=num_blocks,
        numbered_blocks=num_blocks if numbered_blocks is None else numbered_blocks, slots=slots,
        slot_start=start[:-1],
    )
    entries = st.records(num_contents + 1, ENTRY)
    entries.first = st.NONE
    entries.last = st.NONE
    prefixes = st.records(n, st.PREFIX)
    prefixes.slot_start = start[:-1]
    if trace.prefix is None:
        prefixes.cached_tokens = optional(trace.requests, "cached_tokens", 0)
    return prefixes, _free_blocks(int(record.num_gpu_blocks)), entries, slots


def _free_blocks(count: int) -> Any:
    """Return the pool with all blocks in the free queue, in the order of their numbers."""
    blocks = st.records(count, BLOCK)
    numbers = np.arange(count)
    blocks.previous = numbers - 1
    blocks.next = np.where(numbers + 1 < count, numbers + 1, st.NONE)
    blocks.content = st.NONE
    return blocks
