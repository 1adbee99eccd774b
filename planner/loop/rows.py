"""The rows that the loop writes: gaps between tokens; if asked for, steps, their schedules and preemptions."""

from typing import Any

import numpy as np

from planner.loop.compiled.jit import jit

# Why the head of the queue is not in a step: the queue is empty, or the resource that has run out.
NOBODY_WAITS, SEATS, TOKENS, BLOCKS, PLAN, ADAPTERS = range(6)
NUM_STOPS = 6

# In each of `steps` steps in a row `count` tokens came after a gap, which grew from step to step.
GAP_ROW = np.dtype([("gap_s", "f8"), ("growth_s", "f8"), ("steps", "i8"), ("count", "i8")], align=True)
STEP_ROW = np.dtype(
    [
        ("start_s", "f8"),
        ("duration_s", "f8"),
        ("num_prompts", "i8"),
        ("num_prompt_tokens", "i8"),
        ("prompt_context_tokens", "i8"),
        ("prompt_pairs", "i8"),
        ("window_pairs", "i8"),
        ("num_decodes", "i8"),
        ("num_drafted_tokens", "i8"),  # that it checks for them
        ("decode_context_tokens", "i8"),
        ("longest_context_tokens", "i8"),  # 0 if no kernel waits for it
        ("num_sampled", "i8"),  # tokens that it emits
        ("num_accepted_tokens", "i8"),  # of these, drafted
        ("num_dropped", "i8"),  # decodes of requests that have ended: they emit nothing
        ("num_swapped_tokens", "i8"),
        ("num_adapters", "i8"),
        ("adapter_load_s", "f8"),
        ("image_s", "f8"),  # vision encoder
        ("num_running", "i8"),
        ("num_ended", "i8"),  # of these, ended in the last step
        ("num_waiting", "i8"),
        ("num_used_blocks", "i8"),
        ("num_preempted", "i8"),
        ("rank_wait_s", "f8"),  # beyond its time if no rank of data-parallel attention had more than its own
        ("num_spared_tokens", "i8"),  # that the experts see fewer of each rank, since others have less
        ("decodes_alone_s", "f8"),  # time of its decodes by themselves
        ("stopped_by", "i4"),  # why the head of the queue is not in it
        ("replica", "i4"),  # of a fleet; the loop knows of one alone
    ],
    align=True,
)
SCHEDULE_ROW = np.dtype(
    [("step", "i8"), ("request", "i8"), ("num_scheduled_tokens", "i4"), ("replica", "i4")], align=True
)
PREEMPTION_ROW = np.dtype([("step", "i8"), ("request", "i8"), ("replica", "i8")], align=True)


@jit
def all_sampled(step: Any) -> Any:
    """Return the tokens that a step samples, tokens of ended requests included.

    Parameters
    ----------
    step : a row of `STEP_ROW`, or several.
    """
    return step["num_sampled"] + step["num_dropped"]
