"""The state that a replay starts from: settings, policy and trace laid out as the loop's memory."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.deployment.kv_tiers import empty, forget_cpu_tier, tier_memory
from planner.loop.compiled.generator import MODULUS
from planner.loop.preemption import MOST_REVIVALS
from planner.loop.rows import GAP_ROW, PREEMPTION_ROW, SCHEDULE_ROW, STEP_ROW
from planner.loop.state import engine_state as st
from planner.loop.state.engine_settings import EngineSettings, Recording
from planner.loop.state.entries import ADAPTER, BLOCK, ENTRY, FLIGHT, FLOAT_HEAP, INT_HEAP, PULL, RING, SLOT
from planner.loop.state.terms import StepTime
from planner.policies.policy import NO_LIMIT, Policy
from planner.replays.block_ids import assign_contents
from planner.replays.prefix_tree import caches_in_tree, forget_tree, ids_under_adapters, tree_memory
from planner.replays.queue_places import rank_records
from planner.replays.request_columns import limits_of_requests, optional
from planner.replays.settings_record import settings_record
from planner.traces import Trace

_ROWS = 1 << 16  # rows that a buffer holds before it is taken out
OWN = ("ring", "blocks", "entries", "nodes", "stem_looks", "adapter_states", "adapter_slots", "links", "cpu",
       "cpu_blocks", "cpu_places", "filled")  # memory of each engine that is copied
REMOTE = ("remote", "remote_blocks", "remote_places")
FLEET_ROWS = 1 << 22  # of all of a fleet's buffers of gaps together


def initial_state(trace: Trace, policy: Policy, settings: EngineSettings, step_time: StepTime,
                  recording: Recording, requests: Any,
                  numbered_blocks: NDArray[np.int64] | None = None) -> st.State:
    """Lay out the loop's memory and fill in its first state.

    Parameters
    ----------
    requests : state.REQUEST, of `requests.RequestMemory`.
    numbered_blocks : as of `prefix.assign_contents`; None for its own.
    """
    n = trace.requests.height
    record = settings_record(policy, settings, recording)
    record.encodes_images = settings.image_s_per_token > 0 and "image_tokens" in trace.requests.columns
    seats = n if record.limits_batch_only else int(record.max_num_seqs)
    most = min(n, settings.num_gpu_blocks, seats)  # each that runs holds a block of its own
    adapters = _adapters(trace) if settings.max_loras else np.empty(0, np.int64)
    tokens = _largest(trace, policy, settings, record)
    record.caches_in_tree = caches_in_tree(trace, policy, settings)
    prefixes = _prefix_memory(trace, record, adapters, tokens, numbered_blocks)
    may_cancel = "cancel_after_s" in trace.requests.columns
    cancel = optional(trace.requests, "cancel_after_s", math.inf) if may_cancel else np.empty(0)
    scratch = n if (record.is_first_fit or settings.max_loras) and record.is_keyed else most
    record.most_running = most
    record.most_finishes = 2 * most + 64
    record.most_gap_rows = record.most_schedule_rows = _ROWS + 2 * most
    record.most_step_rows = _ROWS
    record.may_cancel = may_cancel
    return st.State(
        engine=_engine_record(record),
        settings=record,
        step_time=step_time.terms,
        curve=step_time.curve,
        requests=requests,
        **prefixes,
        phases=st.records(n if recording.steps else 1, st.PHASES),
        ranks=rank_records(trace, policy, settings),
        prompts=np.empty(most + 1, np.int64),
        ended=np.empty(most + 1, np.int64),
        arrived=np.empty(most + 1, np.int64),
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
        seen_steps=np.zeros(n if settings.stream_interval > 1 and settings.streams_by_step else 0, np.int64),
        token_before_s=np.full(n if record.drops_tokens else 0, math.nan),
        acceptance=np.array(settings.acceptance, np.float64),
        draft_lengths=np.array(settings.draft_lengths, np.int64),
        image_s_per_token=_image_s_per_token(trace, settings) if record.encodes_images else np.empty(0),
        adapters=adapters,
        adapter_states=st.records(int(adapters.max(initial=0)) + 1, ADAPTER),
        adapter_slots=np.full(int(record.max_loras + record.max_cpu_loras), st.NONE),
        draws=np.random.default_rng(settings.seed).integers(1, MODULUS, n if settings.acceptance else 0),
        ring=_ring(settings.block_size),
        **tier_memory(settings, n, len(prefixes["entries"])),
        scratch=np.empty(scratch + 1, np.int64),
        flights=st.records(settings.pipeline_parallel_size, FLIGHT),
        **_row_buffers(recording, _ROWS + 2 * most, most),
    )


def sharing_requests(states: Sequence[st.State], pulls: Any) -> list[st.State]:
    """Return the memories of several kinds of engine, laid out for the same requests, with shared arrays for these.

    A request is at one engine at a time. The places of its blocks, and each policy's order of requests, stay each
    kind's own.

    Parameters
    ----------
    pulls : the KV that each request brings, entries.PULL; None if engines pass none on.
    """
    of_requests = ("phases", "cancel_after_s", "first_token_within_s")
    shared: dict[str, Any] = {name: getattr(states[0], name) for name in of_requests}
    shared["fetches"] = max((state.fetches for state in states), key=len)  # some may have no tiers
    if pulls is not None:
        shared["pulls"] = pulls
    return [state._replace(**shared) for state in states]


def routed(state: st.State, count: int, num_replicas: int, *, shares_store: bool) -> list[st.State]:
    """Return the memories of `count` equal engines, of a fleet of `num_replicas`, that a router sends requests to.

    Requests, their prefixes and block tables are shared. Queues, KV blocks and buffers are each engine's own.

    Parameters
    ----------
    shares_store : whether the remote KV store is shared too.
    """
    most = int(state.settings.most_running)
    rows = max(min(_ROWS, FLEET_ROWS // num_replicas), 1024) + 2 * most
    state.settings.most_gap_rows = rows
    state = state._replace(gaps=st.records(rows + most, GAP_ROW), left_before=np.empty(len(state.requests), np.int64))
    state.settings.is_routed = True
    state.settings.max_concurrency = NO_LIMIT  # the fleet's client keeps it
    state.engine.next_request = st.NONE
    own = OWN if shares_store else (*OWN, *REMOTE)
    return [_own(state, own) for _ in range(count)]


def start_anew(state: st.State, *, shares_store: bool) -> None:
    """Make an engine without requests a new one: its caches are empty, and kernels are built or loaded at first use.

    Parameters
    ----------
    shares_store : whether its remote KV store is that of all replicas, which stays as it is.
    """
    state.engine.step_adapter_s = state.settings.first_use_s
    _forget_cache(state)
    if not shares_store and state.settings.enable_prefix_caching:
        empty(state.remote[0], state.remote_blocks, state.remote_places)


def _forget_cache(state: st.State) -> None:
    """Empty the prefix cache, the adapters' places and the tier in host memory of an engine that has no requests."""
    state.adapter_slots[:] = st.NONE
    state.adapter_states.is_on_gpu = state.adapter_states.is_on_host = 0
    if state.settings.caches_in_tree:
        forget_tree(state)
    if not state.settings.enable_prefix_caching:
        return
    state.blocks[:] = _free_blocks(len(state.blocks))
    state.entries.first = st.NONE
    state.entries.last = st.NONE
    state.engine.free_head, state.engine.free_tail = 0, len(state.blocks) - 1
    state.engine.beside_head = st.NONE
    forget_cpu_tier(state)


def holding(state: st.State) -> st.State:
    """Return the memory of an engine that prefills, and holds KV until another has taken it."""
    state.settings.holds_kv = True
    return state


def pulling(state: st.State) -> st.State:
    """Return the memory of an engine that decodes requests that others have prefilled."""
    state.settings.pulls_kv = True
    loads = st.records(len(state.requests), FLOAT_HEAP)  # entries of cancelled requests stay for a while
    return state._replace(loads=loads, pulled=np.empty(len(state.prompts), np.int64))


def _own(state: st.State, names: Sequence[str]) -> st.State:
    """Return a memory that shares the requests' arrays, with copies of the arrays of some names."""
    blank = {name: _blank(getattr(state, name)) for name in (
        "prompts", "ended", "arrived", "waiting_heap", "finishes", "cancels", "loads", "pulled", "scratch", "flights",
        "gaps", "steps", "schedule", "preemptions")}
    filled = {name: getattr(state, name).copy() for name in names}
    engine = st.records(1, st.ENGINE)
    engine[0] = state.engine
    return state._replace(engine=engine[0], **blank, **filled)


def _blank(array: Any) -> Any:
    """Return zeros of an array's shape, without touching the memory before it is used."""
    return np.zeros(array.shape, array.dtype).view(type(array))


def _engine_record(settings: Any) -> Any:
    engine = st.records(1, st.ENGINE)[0]
    engine.step_adapter_s = settings.first_use_s
    engine.last_start_s = engine.composed_s = engine.late_s = -math.inf
    engine.until_s = engine.laid_out_until_s = math.inf
    engine.last_decode_s = -math.inf
    engine.frontend_free_s = -math.inf
    engine.polled_until_s = -math.inf
    engine.ratio = settings.first_ratio
    engine.num_drafts = settings.num_speculative_tokens
    engine.last_prompt_step = -NO_LIMIT
    engine.terms_decodes = st.NONE
    engine.num_free_blocks = settings.num_gpu_blocks
    engine.num_free_cpu_blocks = settings.num_cpu_blocks
    for name in ("last_to_leave", "waiting_head", "waiting_tail", "running_head", "running_tail", "free_head",
                 "free_tail", "beside_head", "newest_node", "oldest_node", "blocked_request", "blocked_content",
                 "next_in_order", "first_filled"):
        setattr(engine, name, st.NONE)
    engine.free_node = 1
    if settings.enable_prefix_caching:
        engine.free_head, engine.free_tail = 0, settings.num_gpu_blocks - 1
    return engine


def _ring(block_size: int) -> Any:
    ring = st.records(block_size, RING)
    ring.head = st.NONE
    return ring


def _adapters(trace: Trace) -> NDArray[np.int64]:
    """Return the number of each request's adapter, from 0, and NONE without one, shape [num_requests]."""
    if "adapter" not in trace.requests.columns:
        return np.full(trace.requests.height, st.NONE)
    numbers = trace.requests["adapter"].rank("dense").cast(int) - 1
    return numbers.fill_null(st.NONE).to_numpy().astype(np.int64)


def _image_s_per_token(trace: Trace, settings: EngineSettings) -> NDArray[np.float64]:
    """Return the vision encoder's time for each request's images, by token of its prompt, shape [num_requests] [s].

    Each image, or tile of one, attends to itself alone; a request's images are alike.
    """
    tokens, images = (optional(trace.requests, name, default).astype(np.float64)
                      for name, default in (("image_tokens", 0), ("num_images", 1)))
    parts = np.maximum(images, 1.0)
    if settings.image_tile_tokens:
        parts = np.maximum(parts, np.ceil(tokens / settings.image_tile_tokens))
    whole_s = (parts * settings.image_s + tokens * settings.image_s_per_token
               + tokens * tokens / parts * settings.image_s_per_pair)
    per_token_s: NDArray[np.float64] = np.where(tokens > 0, whole_s, 0.0) / trace.requests["input_tokens"].to_numpy()
    return per_token_s


def _largest(trace: Trace, policy: Policy, settings: EngineSettings, record: Any) -> NDArray[np.int64]:
    """Return `most_tokens` of a trace's requests, shape [num_requests]."""
    return most_tokens(record, *limits_of_requests(policy, settings).of(trace.requests))


def most_tokens(record: Any, inputs: NDArray[np.int64], outputs: NDArray[np.int64], limits: Any) -> NDArray[np.int64]:
    """Return the tokens that requests may have KV slots for, by `Limits.of`, shape [num_requests]."""
    ahead = outputs
    if record.num_speculative_tokens:  # the row's, the refused drafts' before it, and the lookahead
        more = 2 * int(record.num_speculative_tokens) + int(record.num_lookahead_tokens)
        most = outputs + more if record.has_placeholders else int(record.max_model_len) - inputs
        ahead = np.minimum(outputs + more, np.maximum(most, outputs))
    if record.has_placeholders:
        ahead = ahead + MOST_REVIVALS * (1 + int(record.num_speculative_tokens))
    tokens: NDArray[np.int64] = inputs + (limits if record.reserve == st.RESERVE_OUTPUT else ahead)
    return tokens


def _row_buffers(recording: Recording, rows: int, most: int) -> dict[str, Any]:
    """Return the buffers of rows; there are more rows of gaps if tokens are taken back."""
    return {
        "gaps": st.records(rows + most, GAP_ROW),
        "steps": st.records(_ROWS if recording.steps else 1, STEP_ROW),
        "schedule": st.records(rows if recording.schedule else 1, SCHEDULE_ROW),
        "preemptions": st.records(rows if recording.schedule else 1, PREEMPTION_ROW),
    }


def _prefix_memory(trace: Trace, record: Any, adapters: Any, tokens: NDArray[np.int64],
                   numbered_blocks: NDArray[np.int64] | None) -> dict[str, Any]:
    """Return the memory of prefixes, of blocks and of the radix tree; in a tree, blocks are not cached one by one."""
    if record.queue_order == st.BY_PREFIX and not record.caches_in_tree:
        record.queue_order = st.BY_ARRIVAL
    prefixes, blocks, entries, slots = _block_table(trace, record, adapters, tokens, numbered_blocks)
    nodes, stands, stems, num_stems = tree_memory(trace, record, adapters)
    if record.caches_in_tree:
        record.enable_prefix_caching = record.enters_late = record.hashes_next_token = False
    looks = np.zeros(num_stems, np.int64)
    return {"prefixes": prefixes, "blocks": blocks, "entries": entries, "slots": slots, "nodes": nodes,
            "stands": stands, "stems": stems, "stem_looks": looks}


def _block_table(trace: Trace, record: Any, adapters: Any, tokens: NDArray[np.int64],
                 numbered_blocks: NDArray[np.int64] | None) -> tuple[Any, Any, Any, Any]:
    """Lay out KV blocks, contents and block tables if prefix caching follows them one by one."""
    if not record.enable_prefix_caching:
        return st.records(1, st.PREFIX), st.records(1, BLOCK), st.records(1, ENTRY), st.records(1, SLOT)
    n, size = trace.num_requests, int(record.block_size)
    inputs = trace.requests["input_tokens"].to_numpy().astype(np.int64)
    num_blocks = most_rows(record, tokens)
    start = np.concatenate(([0], np.cumsum(num_blocks)))
    slots = st.records(int(start[-1]), SLOT)
    ids, offsets, id_tokens = np.empty(0, np.int64), np.zeros(n + 1, np.int64), size
    if trace.prefix is not None:
        ids, offsets, id_tokens = trace.prefix.values, trace.prefix.offsets, trace.prefix.block_tokens
        ids = ids_under_adapters(trace.prefix, adapters)
    num_contents = assign_contents(
        ids=ids, offsets=offsets, id_tokens=id_tokens, block_size=size, input_tokens=inputs, num_blocks=num_blocks,
        numbered_blocks=num_blocks if numbered_blocks is None else numbered_blocks, slots=slots,
        slot_start=start[:-1], covers_next=record.hashes_next_token,
    )
    # a block with a lost token has a content of its own
    record.first_own_content = num_contents + 1
    entries = st.records(num_contents + 1 + (len(slots) if record.has_placeholders else 0), ENTRY)
    entries.first = st.NONE
    entries.last = st.NONE
    prefixes = st.records(n, st.PREFIX)
    prefixes.slot_start, prefixes.num_slots = start[:-1], num_blocks
    if trace.prefix is None:
        prefixes.cached_tokens = optional(trace.requests, "cached_tokens", 0)
    free = _free_blocks(1 if record.caches_in_tree else int(record.num_gpu_blocks))
    return prefixes, free, entries, slots


def most_rows(record: Any, tokens: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rows of block tables that have room for `most_tokens`; a longer prompt than the context has more."""
    rows: NDArray[np.int64] = -(-tokens // int(record.block_size))
    if record.reserve == st.RESERVE_MODEL_LEN:
        rows = np.maximum(rows, -(-int(record.max_model_len) // int(record.block_size)))
    return rows


def _free_blocks(count: int) -> Any:
    """Return the pool with all blocks in the free queue, in the order of their numbers."""
    blocks = st.records(count, BLOCK)
    numbers = np.arange(count)
    blocks.previous = numbers - 1
    blocks.next = np.where(numbers + 1 < count, numbers + 1, st.NONE)
    blocks.content = st.NONE
    return blocks
