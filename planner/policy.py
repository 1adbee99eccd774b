"""What a scheduling policy is, as a frozen value: how much this step, who is next, who yields, how KV is reserved."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

IN_ORDER, DECODES_FIRST, PROMPTS_FIRST, PROMPTS_ALONE = range(4)

NO_LIMIT = 2**62


class StepState(NamedTuple):
    """What a policy may look at when it plans a step: scalars, and nothing about the length of outputs to come."""

    now_s: float
    num_running: int  # requests admitted and not finished
    num_prefilling: int  # those of them whose prompt is not fully computed
    num_waiting: int
    num_free_blocks: int
    num_gpu_blocks: int
    max_num_seqs: int
    max_num_batched_tokens: int
    long_prefill_token_threshold: int
    last_step_had_prompts: int  # 1 if the last step computed prompt tokens
    num_decode_only_steps: int  # steps in a row, up to now, without prompt tokens


class StepPlan(NamedTuple):
    """What a policy decides for one step; the engine enforces every limit besides.

    `order` is IN_ORDER (as admitted, decodes and prompts alike), DECODES_FIRST, PROMPTS_FIRST, or PROMPTS_ALONE (a
    step of prompts only, where there are any).
    """

    max_new_seqs: int  # admissions from the waiting queue
    max_prefill_tokens: int  # prompt tokens in this step, of running and new requests
    max_tokens_per_prompt: int  # prompt tokens of one request in this step
    order: int


Columns = Mapping[str, NDArray[np.float64]]
Key = Callable[[Columns], NDArray[np.float64]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A scheduling policy.

    Parameters ---------- name : how reports call it. plan_step : pure function from `StepState` to `StepPlan`; it is
    compiled, so it uses numbers, comparisons and arithmetic
        only.
    admit_key : column of sort keys, shape [num_requests], from the trace's columns; the smallest is admitted first,
    equal
        keys by arrival. None: the order of arrival, preempted requests first.
    victim_key : column of sort keys; the largest yields first. None: the newest admitted yields first.
    reserve : KV blocks taken at admission: those of this step's "chunk", of the "prompt", of the prompt and the largest
        "output", or of a whole "model-len".
    cut : which prompts may be cut into chunks: "any", the "first" of a batch, or "none".
    has_token_budget : False where the engine knows no limit on tokens per step.
    watermark_when_idle : the watermark holds also when nothing runs.
    needs_spare_block : a decode runs only while a block is free, whether it needs one or not.
    limits_batch_only : `max_num_seqs` limits the sequences of a batch, not the running set.
    cache_latest : prefix cache as in nano-vllm: blocks are findable at the end of the step, the latest duplicate wins.
    """

    name: str
    plan_step: Callable[[StepState], StepPlan]
    admit_key: Key | None = None
    victim_key: Key | None = None
    reserve: Literal["chunk", "prompt", "output", "model-len"] = "chunk"
    cut: Literal["any", "first", "none"] = "any"
    has_token_budget: bool = True
    watermark_when_idle: bool = False
    needs_spare_block: bool = False
    limits_batch_only: bool = False
    cache_latest: bool = False
