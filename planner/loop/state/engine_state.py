"""The loop's memory: one record for the engine, one per request, and the settings; queue entries are in `entries`.

Structured records read like objects, compiled or not; a request is one or two cache lines. SI seconds, tokens, blocks.
"""

import functools
from typing import Annotated, Any, NamedTuple

import numpy as np

from planner.loop.compiled.jit import numba
from planner.loop.rows import GAP_ROW, NUM_STOPS, PREEMPTION_ROW, SCHEDULE_ROW, STEP_ROW
from planner.loop.state.engine_settings import SETTINGS
from planner.loop.state.entries import (
    ADAPTER,
    BLOCK,
    ENTRY,
    FETCH,
    FILLED,
    FLIGHT,
    FLOAT_HEAP,
    INT_HEAP,
    LINK,
    NODE,
    PLACE,
    PULL,
    RING,
    SLOT,
    STAND,
    TIER,
    TIER_BLOCK,
)
from planner.loop.state.terms import CURVE, STEP_TIME

# A request is in exactly one of these states, and in the queue that belongs to it.
NOT_ARRIVED, WAITING, LOADING, PROMPT, DECODE, COMPLETED, REJECTED, FAILED, CANCELLED = range(9)
# Ends that a client may try again after: too long a wait, a full queue, a used-up quota, no open replica, a failure.
TIMED_OUT, OVERLOADED, THROTTLED, UNAVAILABLE, LOST = range(9, 14)

# KV blocks that a request takes when it is admitted.
RESERVE_CHUNK, RESERVE_PROMPT, RESERVE_OUTPUT, RESERVE_MODEL_LEN = range(4)

# Which prompts may be cut into chunks.
CUT_ANY, CUT_FIRST, CUT_NONE = range(3)

# The memory that admissions leave free for output to come.
PROMISE_NOTHING, PROMISE_ALL, PROMISE_SHARE = range(3)

# The order of a waiting list: as it came, by `Ranks.admit`, or by the longest prefix in the tree.
BY_ARRIVAL, BY_RANK, BY_PREFIX = range(3)

# The victim when KV blocks run out.
VICTIM_NEWEST, VICTIM_LARGEST_KEY, VICTIM_FEWEST_GENERATED, VICTIM_LEAST_OUTPUT = range(4)

# When a block is written to the tier below: as soon as it is computed, when it is used again, or when it is evicted.
WRITE_THROUGH, WRITE_SELECTIVE, WRITE_BACK = range(3)

# Rows of `State.links`.
CPU, REMOTE = range(2)

# Why the loop returned. PAUSED: `until_s` is reached, or a routed request has left.
DONE, FLUSH, STUCK, BAD_PLAN, PAUSED, BAD_SCORE = range(6)

NONE = -1  # the end of a linked list

REQUEST = np.dtype(
    [
        ("arrival_s", "f8"),  # when the client sent it; set by the loop if the load is closed
        ("reached_s", "f8"),  # when it was through the API server
        ("first_scheduled_s", "f8"),
        ("first_token_s", "f8"),
        ("finished_s", "f8"),
        ("last_token_s", "f8"),  # last emission; for an undisturbed decode `Engine.last_decode_s` is later and holds
        ("waiting_since_s", "f8"),
        ("preempted_s", "f8"),  # time spent waiting after preemptions
        ("stalled_s", "f8"),  # time spent running without a token in the step
        ("decode_offset", "i8"),  # of an aggregated decode: tokens emitted = Engine.decode_step - decode_offset
        ("input_tokens", "i4"),
        ("output_tokens", "i4"),  # known to the loop only, never to a policy
        ("max_output_tokens", "i4"),
        ("num_output_tokens", "i4"),  # emitted so far; of an aggregated decode see `decode_offset`
        ("num_computed_tokens", "i4"),
        ("num_scheduled_tokens", "i4"),  # in the step being composed, or in flight
        ("num_offered_tokens", "i4"),  # a prompt's, until all are known to fit; the emission of a decode served alone
        ("num_flying_tokens", "i4"),  # emitted in the last step, whose result is not processed yet; not aggregated ones
        ("num_refused_tokens", "i4"),  # drafts of the last step that its result, not processed yet, refuses
        ("num_blocks", "i4"),  # held; of an aggregated decode see `blocks.num_held`
        ("num_beside", "i4"),  # other blocks held: of recurrent states, and of sliding layers' windows
        ("num_cached_tokens", "i4"),  # prefix hit at the first admission; -1 before
        ("num_missing_tokens", "i4"),  # lost by preemption; `input_tokens` is higher by as many
        ("num_known_refused", "i4"),  # refused drafts of the last row whose tokens have been handed over
        ("num_lost_tokens", "i4"),  # computed before the last preemption
        ("num_recomputed_tokens", "i4"),
        ("num_preemptions", "i4"),
        ("admission_order", "i4"),  # place in the order of admission; with `keeps_order`, in the order of arrival
        ("next", "i4"),  # in the list of requests to come, waiting or running
        ("previous", "i4"),
        ("num_skipped_tokens", "i1"),  # emitted, but never computed; `input_tokens` is lower by as many
        ("state", "i1"),
        ("is_swapped", "i1"),
        ("is_seen", "i1"),  # its next token has been counted: it was dropped when the request was retracted
        ("runs_on", "i1"),  # it has ended, and the scheduler does not know: it has one more row
        ("is_stalled", "i1"),  # an aggregated decode that was left out of the last step
        ("flight", "i1"),  # pipeline slot of the batch it is in, or -1
    ],
    align=True,
)

# Fields of a request for prefix caching only, keyed policies only, and recorded steps only; empty otherwise.
PREFIX = np.dtype(
    [
        ("slot_start", "i8"),  # its first row in the block table, and its rows
        ("num_slots", "i8"),
        ("cached_tokens", "i4"),  # prefix hit that the trace recorded, or 0
        ("ring_next", "i4"),  # in the list of decodes that reach a block's end together
        ("ring_previous", "i4"),
    ],
    align=True,
)
RANKS = np.dtype(
    [
        ("admit", "i4"),  # place in the waiting queue
        ("victim", "i4"),  # the largest yields first; equal keys share a rank
        ("urgency", "f8"),  # by SGLang's priority, the smallest first
        ("entered", "i8"),  # how many had been queued before it was, the last time
    ],
    align=True,
)

PHASES = np.dtype(
    [
        ("prefill_s", "f8"),  # running before the first token
        ("decode_s", "f8"),  # as a decode; of one that is, less the instant at which it became one
        ("interference_s", "f8"),  # of that, in which steps worked on prompts; less the engine's total when it began
        ("transfer_s", "f8"),  # the same for the host link
    ],
    align=True,
)

ENGINE = np.dtype(
    [
        # clock
        ("now_s", "f8"),
        ("last_start_s", "f8"),  # start of the step that has just finished
        ("composed_s", "f8"),  # with placeholders: when the next step is composed
        ("late_s", "f8"),  # end of the last step whose tokens are handed over, and its start
        ("late_start_s", "f8"),
        ("prompt_latency_s", "f8"),  # from the composition of the last step with prompts to the next composition
        ("last_decode_s", "f8"),  # end of the last step in which aggregated decodes ran
        ("until_s", "f8"),  # no step starts then or later
        ("laid_out_until_s", "f8"),  # requests that arrive later are not in memory yet
        ("frontend_free_s", "f8"),  # when the API server is through with the requests so far
        ("next_request", "i8"),
        ("num_steps", "i8"),
        ("num_admissions", "i8"),
        ("first_order", "i8"),  # the least of all `admission_order`
        ("last_prompt_step", "i8"),  # number of the last step with prompts
        ("left_waiting", "i8"),  # the last composition that held nothing back left requests in the queue
        ("num_decode_only_steps", "i8"),  # in a row, up to now
        ("last_step_had_prompts", "i8"),
        ("num_empty_turns", "i8"),  # in a row, steps in which everyone yielded
        ("num_held_steps", "i8"),  # in a row, steps in which prompts were held back
        ("released_step", "i8"),  # the step in which all attention ranks had prompts last
        ("polled_until_s", "f8"),  # arrivals up to then have been seen
        ("steps_to_poll", "i8"),
        # queues
        ("waiting_head", "i8"),
        ("waiting_tail", "i8"),
        ("num_heaped", "i8"),
        ("num_waiting", "i8"),
        ("num_entered", "i8"),  # times that a request was put at the end of the waiting list
        ("running_head", "i8"),
        ("running_tail", "i8"),
        ("num_running", "i8"),
        ("num_prompts", "i8"),  # running requests in state PROMPT: the length of `prompts`
        ("num_decodes", "i8"),  # running requests in state DECODE
        ("num_stalled", "i8"),
        ("num_ended", "i8"),  # requests whose end is in flight: length of `ended`
        # requests whose prompt in flight enters the radix tree, or that lost the tokens in flight: length of `arrived`
        ("num_arrived", "i8"),
        ("num_over", "i8"),  # requests of these with one more row
        ("over_context", "i8"),  # tokens computed, summed over these
        ("num_adapters", "i8"),  # in use
        ("adapter_clock", "i8"),  # times that one ceased to be
        ("num_loading", "i8"),  # admitted requests in state LOADING
        ("num_loads", "i8"),  # length of `loads`
        ("num_pulls", "i8"),  # since the fleet was told last: length of `pulled`
        ("num_held", "i8"),  # requests that are through and whose blocks are held
        ("link_free_s", "f8"),  # when the last transfer to this engine ends
        ("is_even", "i8"),  # each decode of the last step emitted its token before at the step's start
        ("is_paused", "i8"),  # the last step left every decode out
        # aggregated decodes
        ("decode_step", "i8"),  # decode steps so far
        ("decode_context_tokens", "i8"),  # tokens computed, summed over the decodes
        ("terms_decodes", "i8"),  # the decodes, tokens that experts see, and adapters of the terms below
        ("terms_shared", "i8"),
        ("terms_adapters", "i8"),
        ("terms_gpu_s", "f8"),  # of a step of `terms_decodes`: the GPU's time without their context,
        ("terms_slope_s", "f8"),  # more time per token of context, and per token in a window,
        ("terms_window_slope_s", "f8"),
        ("terms_least_s", "f8"),  # the least time, and the time on top
        ("terms_extra_s", "f8"),
        ("terms_bytes", "f8"),  # HBM traffic without their context
        ("longest_start", "i8"),  # of the decode with most of them, less `decode_step`
        ("num_finish_entries", "i8"),
        ("num_cancel_entries", "i8"),
        # memory
        ("num_free_blocks", "i8"),
        ("num_free_cpu_blocks", "i8"),
        ("free_head", "i8"),
        ("free_tail", "i8"),
        ("beside_head", "i8"),  # in the list of blocks that hold no context
        ("num_evictable", "i8"),  # free blocks that are in the radix tree
        ("oldest_node", "i8"),  # ends of the list of its nodes in the order of their last touch
        ("newest_node", "i8"),
        ("free_node", "i8"),
        ("tree_clock", "i8"),
        ("num_looks", "i8"),  # at the queue, as it came or by rank
        ("num_prefix_looks", "i8"),  # by prefix
        ("blocked_request", "i8"),  # the head that did not fit when it was last looked at
        ("blocked_lack", "i8"),  # blocks that must come back before it is looked at again
        ("blocked_content", "i8"),  # the first content that it missed in the prefix cache
        ("num_lingering", "i8"),  # requests that have ended and count as running until decodes are composed again
        ("lingering_output", "i8"),  # output to come that counts of these
        ("passes_to_hold", "i8"),  # steps before one may have prompts again
        ("is_full", "i8"),  # a request did not fit, and none has left since
        ("promised_blocks", "i8"),  # blocks of running requests at their largest outputs
        ("shared_blocks", "i8"),  # users of blocks, less blocks in use
        ("promised_tokens", "f8"),  # left free when requests are admitted: output to come, and the step's prompts
        ("ratio", "f8"),  # share of output to come that is promised, before the decode steps since
        ("ratio_steps", "i8"),
        ("first_filled", "i8"),  # in the list of blocks to be written to tiers when the step ends
        ("last_load_s", "f8"),  # when all KV is there that tiers were asked for
        ("found_cpu", "i8"),  # blocks that the last lookup found in tiers, after the GPU's
        ("found_remote", "i8"),
        # the step being composed
        ("budget", "i8"),
        ("prompt_budget", "i8"),
        ("has_tight_plan", "i8"),  # the policy's plan allows fewer prompt tokens than the engine
        ("input_budget", "i8"),  # of SGLang's max_prefill_tokens, beside the chunk's in `prompt_budget`
        ("max_tokens_per_prompt", "i8"),
        ("step_decodes", "i8"),
        ("step_decode_context", "i8"),
        ("step_prompts", "i8"),
        ("step_prompt_tokens", "i8"),
        ("step_prompt_context", "i8"),
        ("step_prompt_pairs", "i8"),
        ("step_window_pairs", "i8"),
        ("step_pulled", "i8"),  # of the prompts, with KV from another engine: one token, as a decode has
        ("step_pulled_context", "i8"),  # tokens before these
        ("step_pulled_window", "i8"),  # of their pairs, pairs within the sliding window
        ("step_sampled", "i8"),
        ("step_cut", "i8"),  # drafts that its decodes lack
        ("num_drafts", "i8"),  # tokens drafted in the last step for each decode of the next
        ("step_pads", "i8"),  # a prompt of one token is padded to the tokens of a decode with drafts
        ("step_dropped", "i8"),  # of its decodes, rows of requests that have ended: nothing is emitted
        ("step_accepted", "i8"),  # drafted tokens that its decodes emit
        ("step_passed", "i8"),  # waiting prompts that fit but have no chunk, and the blocks kept for them
        ("step_passed_blocks", "i8"),  # and for requests that are sure to end
        ("step_swapped", "i8"),
        ("step_preempted", "i8"),
        ("step_displaced", "i8"),  # of these, for a more urgent request
        ("step_image_s", "f8"),  # vision encoder
        ("step_adapter_s", "f8"),  # bringing adapters to the GPU; of a cold engine also the first use of kernels
        ("step_wait_s", "f8"),  # more time because other ranks of data-parallel attention have more
        ("step_spared", "i8"),  # tokens that experts see fewer of each rank, since others have less
        ("is_held", "i8"),  # it has no prompts since `passes_to_hold` was not 0
        ("next_in_order", "i8"),  # served after a request that had to yield itself
        ("step_marks_decodes", "i8"),  # decodes of this step carry their own `num_scheduled_tokens`
        # pipeline
        ("oldest_flight", "i8"),
        ("num_flights", "i8"),
        # totals
        ("busy_s", "f8"),
        ("kv_block_s", "f8"),  # blocks in use, integrated over busy time
        ("peak_blocks", "i8"),
        ("max_running", "i8"),
        ("max_waiting", "i8"),
        ("total_prompt_tokens", "i8"),
        ("total_decode_tokens", "i8"),  # emitted by decodes
        ("total_dropped", "i8"),  # rows of requests that have ended
        ("total_adapter_loads", "i8"),
        ("total_accepted_tokens", "i8"),  # of these, drafted
        ("total_context_tokens", "i8"),
        ("total_prompt_pairs", "i8"),
        ("total_window_pairs", "i8"),
        ("total_sampled", "i8"),
        ("total_hbm_bytes", "f8"),
        ("total_wait_s", "f8"),  # of `busy_s`, waiting for other ranks of data-parallel attention
        ("total_stopped_s", "f8", (NUM_STOPS,)),  # request-seconds that the queue stood, by the reason
        ("num_preemptions", "i8"),
        ("num_recomputed_tokens", "i8"),
        ("num_swapped_tokens", "i8"),
        ("num_queried_tokens", "i8"),
        ("num_hit_tokens", "i8"),
        ("num_done", "i8"),
        ("last_to_leave", "i8"),  # of the requests that the fleet has not been told of; NONE if there are none
        ("interference_s", "f8"),  # of recorded steps: waits of decodes for prompts, and for the host link
        ("transfer_s", "f8"),
        # rows waiting to be taken out
        ("num_gap_rows", "i8"),
        ("num_step_rows", "i8"),
        ("num_schedule_rows", "i8"),
        ("num_preemption_rows", "i8"),
    ],
    align=True,
)


def records(size: int, dtype: np.dtype[np.void]) -> np.recarray:
    """Return `size` zeroed records whose fields read as attributes."""
    return np.zeros(size, _with_attributes(dtype)).view(np.recarray)


_with_attributes = functools.cache(lambda dtype: np.dtype((np.record, dtype)))  # else made anew at each view
FIXED = (SETTINGS, STEP_TIME, CURVE)  # records that the loop only reads
INTS, FLOATS = np.dtype("i8"), np.dtype("f8")


class State(NamedTuple):
    """All that the loop works on; its helpers get it through `state.binding`.

    Each annotation has the element type of an array, or `[record]` for a single record: `STATE_TYPE` is made of them.
    """

    engine: Annotated[Any, [ENGINE]]
    settings: Annotated[Any, [SETTINGS]]
    step_time: Annotated[Any, [STEP_TIME]]
    curve: Annotated[Any, CURVE]  # shape [count_table.NUM_NODES]; one record if the step time is a line
    requests: Annotated[Any, REQUEST]
    prefixes: Annotated[Any, PREFIX]
    phases: Annotated[Any, PHASES]
    ranks: Annotated[Any, RANKS]
    prompts: Annotated[Any, INTS]  # running requests in state PROMPT, in the order of admission, shape [num_prompts]
    ended: Annotated[Any, INTS]  # requests whose end is in flight, in running order, shape [num_ended]
    arrived: Annotated[Any, INTS]  # requests whose prompt in flight enters the tree, in running order, [num_arrived]
    waiting_heap: Annotated[Any, INT_HEAP]
    finishes: Annotated[Any, INT_HEAP]  # (value of `decode_step` at which a decode finishes, request)
    cancels: Annotated[Any, FLOAT_HEAP]  # (instant, request)
    cancel_after_s: Annotated[Any, FLOATS]  # shape [num_requests], or empty if no client cancels
    first_token_within_s: Annotated[Any, FLOATS]  # the same for clients that wait for the first token only
    departed_s: Annotated[Any, FLOATS]  # instants in order of departure, shape [num_requests]; empty in an open load
    pulls: Annotated[Any, PULL]  # shape [num_requests], or one row
    loads: Annotated[Any, FLOAT_HEAP]  # (instant at which its KV is there, request)
    pulled: Annotated[Any, INTS]  # requests whose transfers began since the fleet was told last; each has a seat
    left_before: Annotated[Any, INTS]  # the last to leave the engine before each, [num_requests]; empty without router
    seen_s: Annotated[Any, FLOATS]  # when the client last saw tokens, [num_requests]; empty if it sees each at once
    seen_steps: Annotated[Any, INTS]  # steps after the first token, the same; empty unless they fill groups
    token_before_s: Annotated[Any, FLOATS]  # emission before the last if that was uneven, [num_requests], or empty
    acceptance: Annotated[Any, FLOATS]  # chance that at least 1, 2, … drafts are accepted, [num_speculative_tokens]
    draft_lengths: Annotated[Any, INTS]  # tokens drafted after a step, by its requests; empty if the number is constant
    image_s_per_token: Annotated[Any, FLOATS]  # encoder of a prompt's images, by prompt token, [num_requests], or empty
    adapters: Annotated[Any, INTS]  # of each request, NONE for none, shape [num_requests]; empty without adapters
    adapter_states: Annotated[Any, ADAPTER]  # shape [num_adapters], or one row
    adapter_slots: Annotated[Any, INTS]  # adapters on the GPU, then in host memory, shape [max_loras + max_cpu_loras]
    draws: Annotated[Any, INTS]  # state of each request's generator, shape [num_requests]; empty without drafts
    ring: Annotated[Any, RING]
    blocks: Annotated[Any, BLOCK]
    entries: Annotated[Any, ENTRY]
    slots: Annotated[Any, SLOT]
    nodes: Annotated[Any, NODE]  # of the radix tree, the root first, shape [num_gpu_blocks + 1]; one row without
    stands: Annotated[Any, STAND]  # shape [num_requests], or one row
    stems: Annotated[Any, INTS]  # equal for requests that share their first tokens, [num_requests]; empty without lpm
    stem_looks: Annotated[Any, INTS]  # the last look at the queue that came upon each, shape [num_stems]
    links: Annotated[Any, LINK]  # to the tiers below: CPU, REMOTE
    cpu: Annotated[Any, TIER]  # the host's tier: its record,
    cpu_blocks: Annotated[Any, TIER_BLOCK]  # its blocks, shape [its capacity],
    cpu_places: Annotated[Any, PLACE]  # and the place of each content in it
    remote: Annotated[Any, TIER]  # the same of the remote tier, which all engines share
    remote_blocks: Annotated[Any, TIER_BLOCK]
    remote_places: Annotated[Any, PLACE]
    filled: Annotated[Any, FILLED]  # shape [num_gpu_blocks]
    fetches: Annotated[Any, FETCH]  # shape [num_requests]
    scratch: Annotated[Any, INTS]
    flights: Annotated[Any, FLIGHT]
    gaps: Annotated[Any, GAP_ROW]
    steps: Annotated[Any, STEP_ROW]
    schedule: Annotated[Any, SCHEDULE_ROW]
    preemptions: Annotated[Any, PREEMPTION_ROW]


def numba_record(dtype: np.dtype[Any]) -> numba.types.Type:
    """Return Numba's type of one record, or number."""
    return numba.from_dtype(dtype)


def numba_records(dtype: np.dtype[Any]) -> numba.types.Array:
    """Return Numba's type of an array of records, or numbers."""
    return numba.from_dtype(dtype)[::1]


def memory_type(memory: Any) -> numba.types.NamedTuple:
    """Return Numba's type of a memory, by the annotations of its fields."""
    elements = [hint.__metadata__[0] for hint in memory.__annotations__.values()]
    fields = [numba_record(field[0]) if isinstance(field, list) else numba_records(field) for field in elements]
    return numba.types.NamedTuple(fields, memory)


STATE_TYPE = memory_type(State)
