"""Speculative decoding: drafted tokens are checked beside a decode's own, and accepted ones are emitted.

As in vLLM's scheduler (`num_spec_tokens`, `num_lookahead_tokens`), a decode takes 1 + k tokens of the step's budget,
and KV slots for them and for the drafts that follow. How many are accepted is drawn for each decode and step: at least
j with the chance `acceptance[j - 1]`. Each request has its own generator, so its draws depend on nothing else that
runs.
"""

from typing import Any

from planner.loop.compiled.generator import MODULUS, following
from planner.loop.compiled.jit import jit
from planner.loop.memory.blocks import num_computed_tokens
from planner.loop.state.engine_state import COMPLETED, PROMPT, RESERVE_CHUNK, State


@jit
def tokens_of_decode(s: State, request: Any) -> int:
    """Return how many tokens of a decode a step has: its own, and the drafts that there is room for.

    The limit on one request's prompt tokens holds for drafts too, as in vLLM.
    """
    if s.settings.has_placeholders:
        n = 1 + s.settings.num_speculative_tokens
        return n if s.engine.budget >= n else 0
    room = s.settings.max_model_len - 1 - num_computed_tokens(s, request) - request.num_refused_tokens
    limit = min(s.engine.budget, s.engine.max_tokens_per_prompt, max(room, 0))
    return int(min(1 + s.engine.num_drafts, limit))


@jit
def set_drafts(s: State) -> None:
    """Set how many tokens the step just composed drafts for each decode of the next, by its number of requests.

    Source: vllm/v1/core/sched/scheduler.py (`dynamic_sd_lookup`).
    """
    if s.settings.num_draft_lengths > 0:
        requests = s.engine.step_prompts + s.engine.step_decodes
        s.engine.num_drafts = s.draft_lengths[min(requests, s.settings.num_draft_lengths - 1)]


@jit
def slots_needed(s: State, request: Any, n: int) -> int:
    """Return for how many tokens a request must have KV slots to get `n` in the step, with slots for later drafts.

    A prompt's chunk takes these too (`allocate_slots` in vLLM's kv_cache_manager.py), up to max_model_len.
    """
    computed = num_computed_tokens(s, request)
    n += int(request.num_refused_tokens)  # whose slots the scheduler still counts
    if s.settings.has_placeholders or (request.state == PROMPT and s.settings.reserve != RESERVE_CHUNK):
        return int(computed + n)  # a prompt has all its blocks
    if request.state == COMPLETED:  # it may have to yield for its row after the end
        return int(min(computed + n + s.settings.num_lookahead_tokens, s.settings.max_model_len))
    return slots_after(s, computed, n)


@jit
def slots_after(s: State, computed: int, n: int) -> int:
    """Return for how many tokens KV slots are held after `n` more than `computed`: no more than there are in all.

    With less memory than one request and its lookahead take, vLLM would not start.
    """
    if s.settings.num_lookahead_tokens == 0 and s.settings.num_speculative_tokens == 0:
        return int(computed + n)
    most = min(s.settings.max_model_len, s.settings.num_gpu_blocks * s.settings.block_size)
    return int(max(computed + 1, min(computed + n + s.settings.num_lookahead_tokens, most)))


@jit
def draw_emitted(s: State, i: int, drafted: int) -> int:
    """Return how many tokens a decode emits: its own and the accepted ones of `drafted`, up to the end of its output.

    A draw that is withdrawn, since the decode yields, is not drawn again.
    """
    if s.settings.num_speculative_tokens == 0:
        return 1
    s.draws[i] = following(s.draws[i])
    chance = s.draws[i] / MODULUS
    accepted = 0
    while accepted < drafted and chance < s.acceptance[accepted]:
        accepted += 1
    return int(1 + accepted if s.settings.has_placeholders and ends_by_length(s.requests[i]) else
               min(1 + accepted, s.requests[i].output_tokens - s.requests[i].num_output_tokens))


@jit
def ends_by_length(request: Any) -> bool:
    """Tell whether a request ends at its limit, which ATOM looks at once the whole row is there."""
    return bool(request.output_tokens + request.num_missing_tokens >= request.max_output_tokens)
