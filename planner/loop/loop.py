"""The replay loop: arrivals, a step's composition, its time and its tokens, until nothing is left.

Between two events (an arrival that can be admitted, a finish, a block shortage, a prompt) a batch of decodes only
grows: `run_decodes` takes such stretches in a few nanoseconds a step. Every other step is composed. The loop stops
when a buffer of rows is full or more requests are to be laid out, and goes on from the same state when called again.
"""

from typing import Any

from planner.loop.admission import admit, force_admission, must_force_admission
from planner.loop.api_server import cancel_due, hand_over_arrivals, skip_idle, wait_for_arrival
from planner.loop.batch_wait import holds_prompts_back, is_between_prompts
from planner.loop.compiled.function_rows import plan_at
from planner.loop.compiled.jit import jit
from planner.loop.decode_runs import may_run_decodes, run_decodes
from planner.loop.equal_chunks import serve_equally
from planner.loop.kv_loading import land_loads
from planner.loop.overlap import process_result, waits_for_step
from planner.loop.pauses import pause_for_room
from planner.loop.pipeline import land_flight
from planner.loop.placeholders import goes_round
from planner.loop.prefill_first import compose_by_share
from planner.loop.reservation import forget_promises
from planner.loop.serving import DECODES, PROMPTS, serve
from planner.loop.state.binding import bind_at
from planner.loop.state.engine_state import BAD_PLAN, DONE, FLUSH, NONE, PAUSED, PROMISE_SHARE, STUCK, State
from planner.loop.step import rows_left, take_step
from planner.loop.step_shape import begin_step
from planner.policies.policy import DECODES_FIRST, IN_ORDER, PROMPTS_ALONE, PROMPTS_FIRST, StepState


def advance(memories: Any, plans: Any) -> int:
    """Replay the engine of `binding.pointers` until all have left (DONE), or the policy is at fault (STUCK, BAD_PLAN).

    FLUSH: a row buffer is full, or the next requests are to be laid out.

    Parameters
    ----------
    plans : the engine's step plan, of `function_row`.
    """
    return run_until(bind_at(memories, 0), plan_at(plans, 0))


@jit
def run_until(s: State, plan_step: Any) -> int:
    """Replay the steps that start before `Engine.until_s`; of a routed engine, up to the next departure (PAUSED)."""
    engine = s.engine
    num_done = engine.num_done
    while True:
        if not rows_left(s) or engine.now_s >= engine.laid_out_until_s:
            return FLUSH
        if engine.now_s >= engine.until_s:
            return PAUSED
        hand_over_arrivals(s)
        cancel_due(s)
        land_loads(s)
        if s.settings.is_routed and engine.num_done > num_done:
            return PAUSED
        if engine.num_running == 0 and engine.num_waiting == 0 and engine.num_loads == 0:
            if engine.next_request == NONE:
                return DONE
            wait_for_arrival(s)
        elif may_run_decodes(s) and run_decodes(s):
            continue
        elif s.settings.pipeline_parallel_size > 1 and engine.num_flights == s.settings.pipeline_parallel_size:
            land_flight(s)
        else:
            if not compose_step(s, plan_step):
                return BAD_PLAN
            if engine.step_prompts + engine.step_decodes > 0:
                engine.num_empty_turns = 0
                take_step(s)
            elif waits_for_step(s):
                process_result(s)  # the scheduler waits for the step that runs, and sees arrivals of that time
                engine.last_start_s = engine.now_s
            elif engine.num_flights > 0:
                land_flight(s)
            elif engine.step_preempted > 0 and engine.num_empty_turns <= s.settings.most_running and not goes_round(s):
                engine.num_empty_turns += 1  # a step in which all yielded takes no time
            elif engine.is_held:  # a step in which no request may decode takes no time either
                forget_promises(s)
            elif not skip_idle(s):
                return STUCK


@jit
def compose_step(s: State, plan_step: Any) -> bool:
    """Compose the next step as the policy plans it; False if its return value is no plan."""
    engine = s.engine
    begin_step(s)
    plan = plan_step(step_state(s))
    if plan.max_new_seqs < 0 or plan.max_prefill_tokens < 0 or not IN_ORDER <= plan.order <= PROMPTS_ALONE:
        return False
    engine.prompt_budget = min(plan.max_prefill_tokens, engine.budget, s.settings.max_chunk_tokens)
    engine.has_tight_plan = plan.max_prefill_tokens < min(engine.budget, s.settings.max_chunk_tokens)
    engine.input_budget = s.settings.max_prefill_tokens
    engine.max_tokens_per_prompt = max(plan.max_tokens_per_prompt, 1)
    compose(s, plan.order, plan.max_new_seqs)
    return True


@jit
def step_state(s: State) -> StepState:
    """Return the state that a policy reads. The adaptive threshold is at least an equal share of the buffer."""
    e = s.engine
    threshold, present = s.settings.long_prefill_token_threshold, e.num_running + e.num_waiting
    if threshold > 0 and s.settings.long_prefill_token_threshold_adaptive and present > 1:
        threshold = max(threshold, s.settings.max_buffered_tokens // present)
    return StepState(
        e.now_s,
        e.num_running,
        e.num_prompts,
        e.num_waiting,
        e.num_free_blocks,
        s.settings.num_gpu_blocks,
        s.settings.max_num_seqs,
        s.settings.max_num_batched_tokens,
        threshold,
        e.last_step_had_prompts,
        e.num_decode_only_steps,
    )


@jit
def compose(s: State, order: int, max_new_seqs: int) -> None:
    """Fill the step in the order that the plan asks for."""
    s.engine.step_pads = 0
    is_forced = must_force_admission(s)
    if is_forced:
        force_admission(s)
    elif is_between_prompts(s):
        serve(s, DECODES)
        return
    if s.settings.keeps_order:
        max_new_seqs = pause_for_room(s, max_new_seqs)
    if order == DECODES_FIRST:
        serve(s, DECODES)
    if not is_forced and holds_prompts_back(s, max_new_seqs):
        if order != DECODES_FIRST:
            serve(s, DECODES)
        if s.engine.step_decodes > 0:
            s.engine.num_held_steps += 1
            return
    serve_and_admit(s, order, max_new_seqs)
    if s.engine.step_preempted == 0:
        s.engine.left_waiting = s.engine.num_waiting > 0


@jit
def serve_and_admit(s: State, order: int, max_new_seqs: int) -> None:
    """Fill the step in the order that the plan asks for; if decodes come first, they have their tokens."""
    if s.settings.promise == PROMISE_SHARE:
        compose_by_share(s, order, max_new_seqs)
        return
    if order == IN_ORDER:
        serve(s, DECODES | PROMPTS)
        s.engine.step_pads = s.settings.num_speculative_tokens > 0 and s.engine.step_prompts == 0
        admit(s, max_new_seqs)
        return
    if s.settings.chunks_equally:
        serve_equally(s, max_new_seqs)
    else:
        serve(s, PROMPTS)
        admit(s, max_new_seqs)
    if order == PROMPTS_FIRST or (order == PROMPTS_ALONE and s.engine.step_prompts == 0):
        serve(s, DECODES)
