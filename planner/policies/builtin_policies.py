"""The policies by name: each a step plan of a few lines, and the memory rules of the engine that it mimics."""

import numpy as np
from numpy.typing import NDArray

from planner.policies.policy import (
    DECODES_FIRST,
    IN_ORDER,
    NO_LIMIT,
    PROMPTS_ALONE,
    PROMPTS_FIRST,
    Columns,
    Policy,
    StepPlan,
    StepState,
)


def plan_in_order(s: StepState) -> StepPlan:
    """vLLM V1: running requests in the order of admission, then waiting ones; a lone request is never capped."""
    cap = NO_LIMIT
    if s.long_prefill_token_threshold > 0 and s.num_running + s.num_waiting > 1:
        cap = s.long_prefill_token_threshold
    return StepPlan(NO_LIMIT, NO_LIMIT, cap, IN_ORDER)


def plan_decode_first(s: StepState) -> StepPlan:
    """Every decode before any prompt token, and one prompt in flight at a time."""
    cap = s.long_prefill_token_threshold if s.long_prefill_token_threshold > 0 else NO_LIMIT
    return StepPlan(1 if s.num_prefilling == 0 else 0, NO_LIMIT, cap, DECODES_FIRST)


def plan_prefill_first(s: StepState) -> StepPlan:
    """Prompts before decodes in one mixed step; decodes fill the rest of the token budget."""
    cap = s.long_prefill_token_threshold if s.long_prefill_token_threshold > 0 else NO_LIMIT
    return StepPlan(NO_LIMIT, NO_LIMIT, cap, PROMPTS_FIRST)


def plan_chunked(s: StepState) -> StepPlan:
    """Sarathi-Serve: decodes, then prompts in progress, then new ones, within one budget of tokens."""
    return StepPlan(NO_LIMIT, NO_LIMIT, NO_LIMIT, DECODES_FIRST)


def plan_prefill_only(s: StepState) -> StepPlan:
    """vLLM V0 and nano-vllm: a step of new prompts whenever one can be formed, else a step of decodes."""
    return StepPlan(NO_LIMIT, NO_LIMIT, NO_LIMIT, PROMPTS_ALONE)


def plan_taking_turns(s: StepState) -> StepPlan:
    """Steps of prompts and of decodes take turns; nobody is admitted while a prompt is in progress."""
    if s.last_step_had_prompts == 1 and s.num_running > s.num_prefilling:
        return StepPlan(0, 0, NO_LIMIT, PROMPTS_ALONE)
    return StepPlan(NO_LIMIT if s.num_prefilling == 0 else 0, NO_LIMIT, NO_LIMIT, PROMPTS_ALONE)


def plan_orca(s: StepState) -> StepPlan:
    """Orca: all decodes, and whole prompts as memory reserved to the maximum length admits them."""
    return StepPlan(NO_LIMIT, NO_LIMIT, NO_LIMIT, DECODES_FIRST)


def plan_static(s: StepState) -> StepPlan:
    """FasterTransformer: a new batch only when the last one has drained."""
    return StepPlan(NO_LIMIT if s.num_running == 0 else 0, NO_LIMIT, NO_LIMIT, DECODES_FIRST)


def plan_sglang(s: StepState) -> StepPlan:
    """SGLang: a step of prompts whenever one can be formed, else a step of decodes.

    A prompt that does not fit into `chunked_prefill_size` (here `max_num_batched_tokens`) or `max_prefill_tokens` is
    cut; it takes all that is left, so there is one such at a time, and it goes on first in the next step. No decode
    runs until it is through. Memory: `engine.promises`; a request's limit of output is the trace's
    `max_output_tokens`, else the room up to `max_model_len`, as where a client sets none. A retracted request waits
    behind all others. Order: first come, first served, SGLang's default. Sources: sglang/srt/managers/scheduler.py
    (`get_next_batch_to_run`, `get_new_batch_prefill`, `update_running_batch`), schedule_policy.py (`PrefillAdder`),
    schedule_batch.py (`retract_decode`). Each of a pipeline's batches has its share of `max_num_seqs`
    (`pp_max_micro_batch_size`).

    Approximate: a page is a KV block of `block_size`, but the budget of a step is charged by tokens, not whole pages;
    a request that outgrows all memory alone fails, where SGLang would have lowered its limit when it came.
    """
    return StepPlan(NO_LIMIT, NO_LIMIT, NO_LIMIT, PROMPTS_ALONE)


def plan_trtllm(s: StepState) -> StepPlan:
    """TensorRT-LLM: generation requests, then context chunks in order of arrival, each cut after a whole block.

    `max_num_seqs` is its `max_batch_size`, which each of a pipeline's batches may have (the capacity scheduler takes
    `max_batch_size * pp_size` requests), `max_num_batched_tokens` its `max_num_tokens`. A request takes the blocks of
    its whole prompt with its first chunk. Whether what runs may be paused for memory is the policies' difference:
    trtllm-no-evict (GUARANTEED_NO_EVICT) admits while all could reach their limits of output (`engine.promises`), which
    is `max_output_tokens`, else the room up to `max_model_len`; trtllm-max-utilization (MAX_UTILIZATION) admits what
    fits now, and the newest yields, to be computed anew and admitted before all others. Sources:
    tensorrt_llm/_torch/pyexecutor/scheduler (`PyMicroBatchScheduler`, `GuaranteedNoEvictPolicy`,
    `MaxUtilizationPolicy`), which follow cpp/tensorrt_llm/batch_manager/capacityScheduler.cpp and
    microBatchScheduler.cpp.

    Approximate: where a context gets no whole block of the budget, those behind it are not looked at, though a shorter
    one might fit; a request is not delayed so that it can reuse the blocks of one that is being computed.
    """
    return StepPlan(NO_LIMIT, NO_LIMIT, NO_LIMIT, DECODES_FIRST)


def by_priority(requests: Columns) -> NDArray[np.float64]:
    """Smaller is more urgent, as in vLLM; with ageing, waiting for a second is worth `priority_ageing_per_s`.

    priority − rate·(now − arrival) sorts like priority + rate·arrival, because now is common to all.
    """
    return requests["priority"] + requests["priority_ageing_per_s"] * requests["arrival_s"]


def by_predicted_work(requests: Columns) -> NDArray[np.float64]:
    """Shortest job first on the prompt and the predicted output."""
    return requests["input_tokens"] + requests["predicted_output_tokens"]


def by_true_work(requests: Columns) -> NDArray[np.float64]:
    """Shortest job first on the true output length: a bound that no real scheduler reaches."""
    return requests["input_tokens"] + requests["output_tokens"]


def by_deadline(requests: Columns) -> NDArray[np.float64]:
    """Earliest deadline first."""
    return requests["arrival_s"] + requests["deadline_s"]


FCFS = Policy(name="fcfs", plan_step=plan_in_order)

POLICIES = {
    policy.name: policy
    for policy in (
        FCFS,
        Policy(name="priority", plan_step=plan_in_order, admit_key=by_priority, victim_key=by_priority),
        Policy(name="sjf", plan_step=plan_in_order, admit_key=by_predicted_work),
        Policy(name="sjf-oracle", plan_step=plan_in_order, admit_key=by_true_work),
        Policy(name="edf", plan_step=plan_in_order, admit_key=by_deadline),
        Policy(name="decode-first", plan_step=plan_decode_first),
        Policy(name="prefill-first", plan_step=plan_prefill_first),
        Policy(
            name="chunked",
            plan_step=plan_chunked,
            reserve="prompt",
            watermark_when_idle=True,
            needs_spare_block=True,
        ),
        Policy(
            name="vllm-v0",
            plan_step=plan_prefill_only,
            reserve="prompt",
            cut="none",
            watermark_when_idle=True,
            needs_spare_block=True,
        ),
        Policy(
            name="simple-chunking",
            plan_step=plan_taking_turns,
            reserve="prompt",
            watermark_when_idle=True,
            needs_spare_block=True,
        ),
        Policy(name="orca", plan_step=plan_orca, reserve="model-len", cut="none", budget="nothing"),
        Policy(name="static", plan_step=plan_static, reserve="model-len", cut="none", budget="nothing"),
        Policy(
            name="nano-vllm",
            plan_step=plan_prefill_only,
            reserve="prompt",
            cut="first",
            seats="batch",
            cache_latest=True,
        ),
        Policy(
            name="sglang",
            plan_step=plan_sglang,
            promises="share",
            victim="least-output",
            requeue="back",
            chunk_unit="block",
            budget="prompts",
            seats="share",
        ),
        Policy(
            name="trtllm-no-evict",
            plan_step=plan_trtllm,
            reserve="prompt",
            promises="all",
            chunk_unit="block",
            seats="each",
        ),
        Policy(
            name="trtllm-max-utilization", plan_step=plan_trtllm, reserve="prompt", chunk_unit="block", seats="each"
        ),
    )
}
