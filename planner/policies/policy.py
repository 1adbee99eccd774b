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
CONTEXT_KEPT_FREE = 6  # tokens of the context that no admitted prompt may take, if admission promises a share


class StepState(NamedTuple):
    """The values that a policy reads to plan a step: scalars. The length of future output is not among them."""

    now_s: float
    num_running: int  # requests admitted and not finished
    num_prefilling: int  # running requests with an incomplete prompt
    num_waiting: int
    num_free_blocks: int
    num_gpu_blocks: int
    max_num_seqs: int
    max_num_batched_tokens: int
    long_prefill_token_threshold: int
    last_step_had_prompts: int  # 1 if the last step computed prompt tokens
    num_decode_only_steps: int  # steps in a row, up to now, without prompt tokens


class StepPlan(NamedTuple):
    """A policy's decision for one step. The engine enforces all limits in addition.

    `order` is IN_ORDER (decodes and prompts in the order of admission), DECODES_FIRST, PROMPTS_FIRST, or PROMPTS_ALONE
    (if there are prompts, a step of prompts only).
    """

    max_new_seqs: int  # admissions from the waiting queue
    max_prefill_tokens: int  # prompt tokens in this step, of running and new requests
    max_tokens_per_prompt: int  # prompt tokens of one request in this step
    order: int


Columns = Mapping[str, NDArray[np.float64]]
Key = Callable[[Columns], NDArray[np.float64]]

# The requests' columns, which sort keys read.
KEY_COLUMNS = {
    "arrival_s": Term("s", "Time at which the client sent the request."),
    "input_tokens": Term("tokens", "Prompt length."),
    "output_tokens": Term("tokens", "True output length. No real scheduler knows it: only for bounds."),
    "max_output_tokens": Term("tokens", "Client's limit on the output; `max_model_len` if there is none."),
    "predicted_output_tokens": Term("tokens", "Predicted output length; `max_output_tokens` if there is none."),
    "priority": Term("1", "Priority, smallest first; 0 if there is none."),
    "deadline_s": Term("s", "Deadline of the last token, from arrival; infinite if there is none."),
    "priority_ageing_per_s": Term("1/s", "`--priority-ageing`, equal for all requests."),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A scheduling policy.

    Parameters
    ----------
    name : name in reports.
    plan_step : pure function from `StepState` to `StepPlan`. It is compiled: only numbers, comparisons and arithmetic.
    admit_key : function from the requests' columns (`KEY_COLUMNS`), shape [num_requests] each, to an array of sort keys
        of that shape. The smallest key is admitted first; equal keys by arrival. None: order of arrival, preempted
        requests first.
    victim_key : function like `admit_key` for preemption. The largest key is preempted first. None: see `victim`.
    victim : request that is preempted: the "newest" admitted; or as in SGLang the request with the "least-output", then
        the longest prompt, then the newest.
    requeue : place of a preempted request in the queue, if there is no `admit_key`: "front", or "back" as in SGLang.
    reserve : KV blocks taken at admission: for this step's "chunk", for the "prompt", for the prompt and the largest
        "output", or for a whole "model-len".
    promises : KV blocks that admission keeps free for future output of running requests: for "nothing", for "all" of
        it, or for a "share" that falls with each decode step and rises after a preemption (`planner.loop.reservation`).
        Steps are then composed as in SGLang (`planner.loop.prefill_first`), and limits of prompts and outputs are its.
    cut : prompts that may be cut into chunks: "any", the "first" of a batch, or "none".
    chunk_unit : unit of a chunk: a "token", a whole "block", or whole blocks and at least "64" tokens, as in ATOM.
    passes_over : whether a prompt for which the step's budget has no whole chunk lets shorter ones behind it pass, as
        in TensorRT-LLM. It keeps a seat and its blocks for that step. `context_chunking_policy` holds only with it.
    budget : tokens that `max_num_batched_tokens` limits: all tokens of a "step", only its "prompts", or "nothing".
    watermark_when_idle : whether the watermark also holds when no request runs.
    needs_spare_block : whether a decode runs only while a block is free, even if it needs none.
    seats : sequences that `max_num_seqs` limits: all "running" sequences; all running sequences, with an equal "share"
        for each batch of a pipeline; the sequences of "each" batch of a pipeline; or the sequences of a "batch" (step),
        however many run.
    fills_context : whether a prompt may fill the context, since no token comes after it: with pooling models.
    cache_tree : whether prefixes are kept in a radix tree, as in SGLang (`planner.loop.memory.radix`).
    cache_latest : whether the prefix cache works as in nano-vllm: blocks are found from the end of the step on, and the
        latest duplicate wins.
    empty_first : whether blocks without content are taken first, as in ATOM; without `cache_latest` they always are.
    placeholders : whether tokens count before they are there, as in ATOM (`planner.loop.placeholders`). They are handed
        over one step late, a request that ends has one more row, and a preempted one loses the token in flight.

    Raises
    ------
    PolicyError : a field has an invalid value.
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
    chunk_unit: Literal["token", "block", "64"] = "token"
    passes_over: bool = False
    budget: Literal["step", "prompts", "nothing"] = "step"
    watermark_when_idle: bool = False
    needs_spare_block: bool = False
    seats: Literal["running", "share", "each", "batch"] = "running"
    fills_context: bool = False
    cache_tree: bool = False
    cache_latest: bool = False
    empty_first: bool = False
    placeholders: bool = False

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
