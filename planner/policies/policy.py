"""A scheduling policy as a frozen value: the step's plan, the order of admission, the victim, and KV reservation."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from planner.policies.functions import check_choice, check_function
from planner.schema import Term

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

# The requests' columns, which sort keys read.
KEY_COLUMNS = {
    "arrival_s": Term("s", "Arrival at the client."),
    "input_tokens": Term("tokens", "Length of the prompt."),
    "output_tokens": Term("tokens", "True length of the output, which no real scheduler knows: for bounds."),
    "max_output_tokens": Term("tokens", "The client's limit on the output; `max_model_len` without one."),
    "predicted_output_tokens": Term("tokens", "Predicted length of the output; `max_output_tokens` without one."),
    "priority": Term("1", "Priority, the smallest is the most urgent; 0 without one."),
    "deadline_s": Term("s", "Deadline of the last token, counted from arrival; infinite without one."),
    "priority_ageing_per_s": Term("1/s", "`--priority-ageing`, the same for all requests."),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A scheduling policy.

    Parameters
    ----------
    name : how reports call it.
    plan_step : pure function from `StepState` to `StepPlan`; it is compiled, so it uses numbers, comparisons and
        arithmetic only.
    admit_key : function from the requests' columns (`KEY_COLUMNS`), shape [num_requests] each, to an array of sort keys
        of that shape; the smallest is admitted first, equal keys by arrival. None: the order of arrival, preempted
        requests first.
    victim_key : the same for preemption: the largest key yields first. None: as `victim` says.
    victim : who yields: the "newest" admitted, or, as in SGLang, the one with the "least-output", of those the longest
        prompt, of those the newest.
    requeue : where a preempted request waits, if no key says so: at the "front", or at the "back" as in SGLang.
    reserve : KV blocks taken at admission: those of this step's "chunk", of the "prompt", of the prompt and the largest
        "output", or of a whole "model-len".
    promises : what admissions leave free for output to come: "nothing"; "all" that running requests may still emit; a
        "share" of it that shrinks with every decode step and grows when a request has to yield (`engine.promises`).
    cut : which prompts may be cut into chunks: "any", the "first" of a batch, or "none".
    chunk_unit : a prompt is cut after any "token", or after whole "block"s.
    budget : what `max_num_batched_tokens` limits: all tokens of a "step", its "prompts" only, or "nothing".
    watermark_when_idle : the watermark holds also when nothing runs.
    needs_spare_block : a decode runs only while a block is free, whether it needs one or not.
    seats : what `max_num_seqs` limits: the sequences that are "running"; these, of which each of a pipeline's batches
        has an equal "share"; those of "each" of its batches, so that as many times more run as it has stages; those of
        a "batch", whatever runs.
    cache_latest : prefix cache as in nano-vllm: blocks are findable at the end of the step, the latest duplicate wins.

    Raises
    ------
    PolicyError : a field has a value that it cannot have.
    """

    name: str
    plan_step: Callable[[StepState], StepPlan]
    admit_key: Key | None = None
    victim_key: Key | None = None
    victim: Literal["newest", "least-output"] = "newest"
    requeue: Literal["front", "back"] = "front"
    reserve: Literal["chunk", "prompt", "output", "model-len"] = "chunk"
    promises: Literal["nothing", "all", "share"] = "nothing"
    cut: Literal["any", "first", "none"] = "any"
    chunk_unit: Literal["token", "block"] = "token"
    budget: Literal["step", "prompts", "nothing"] = "step"
    watermark_when_idle: bool = False
    needs_spare_block: bool = False
    seats: Literal["running", "share", "each", "batch"] = "running"
    cache_latest: bool = False

    def __post_init__(self) -> None:
        owner = f"policy {self.name!r}"
        check_function(owner, "plan_step", self.plan_step, ("s",))
        for field in ("admit_key", "victim_key"):
            if getattr(self, field) is not None:
                check_function(owner, field, getattr(self, field), ("requests",))
        for field, hint in get_type_hints(type(self)).items():
            if get_origin(hint) is Literal:
                check_choice(owner, field, getattr(self, field), get_args(hint))
            if hint is bool:
                check_choice(owner, field, getattr(self, field), (False, True))
