"""The policies by name: each has a step plan of a few lines, and the memory rules of the engine that it models."""

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
    """As in vLLM V1: running requests in the order of admission, then waiting requests. No cap on a lone request."""
    cap = NO_LIMIT
    if s.long_prefill_token_threshold > 0 and s.num_running + s.num_waiting > 1:
        cap = s.long_prefill_token_threshold
    return StepPlan(NO_LIMIT, NO_LIMIT, cap, IN_ORDER)


def plan_decode_first(s: StepState) -> StepPlan:
    """All decodes first, then prompt tokens. Only one prompt is in progress at a time."""
    cap = s.long_prefill_token_threshold if s.long_prefill_token_threshold > 0 else NO_LIMIT
    return StepPlan(1 if s.num_prefilling == 0 else 0, NO_LIMIT, cap, DECODES_FIRST)


def plan_prefill_first(s: StepState) -> StepPlan:
    """Prompts first, in a mixed step. Decodes fill the rest of the token budget."""
    cap = s.long_prefill_token_threshold if s.long_prefill_token_threshold > 0 else NO_LIMIT
    return StepPlan(NO_LIMIT, NO_LIMIT, cap, PROMPTS_FIRST)


def plan_chunked(s: StepState) -> StepPlan:
    """As in Sarathi-Serve: decodes, then prompts in progress, then new prompts, within one token budget."""
    return StepPlan(NO_LIMIT, NO_LIMIT, NO_LIMIT, DECODES_FIRST)


def plan_prefill_only(s: StepState) -> StepPlan:
    """As in vLLM V0 and nano-vllm: a step of new prompts if any can be admitted, else a step of decodes."""
    return StepPlan(NO_LIMIT, NO_LIMIT, NO_LIMIT, PROMPTS_ALONE)


def plan_taking_turns(s: StepState) -> StepPlan:
    """Prompt steps and decode steps alternate. No request is admitted while a prompt is in progress."""
    if s.last_step_had_prompts == 1 and s.num_running > s.num_prefilling:
        return StepPlan(0, 0, NO_LIMIT, PROMPTS_ALONE)
    return StepPlan(NO_LIMIT if s.num_prefilling == 0 else 0, NO_LIMIT, NO_LIMIT, PROMPTS_ALONE)


def plan_orca(s: StepState) -> StepPlan:
    """As in Orca: all decodes, and whole prompts if KV blocks for the maximum length are free."""
    return StepPlan(NO_LIMIT, NO_LIMIT, NO_LIMIT, DECODES_FIRST)


def plan_static(s: StepState) -> StepPlan:
    """As in FasterTransformer: a new batch starts only after all requests of the last batch have finished."""
    return StepPlan(NO_LIMIT if s.num_running == 0 else 0, NO_LIMIT, NO_LIMIT, DECODES_FIRST)


def plan_sglang(s: StepState) -> StepPlan:
    """As in SGLang 0.5.23: a step of prompts if any can run, else a step of decodes.

    A prompt that does not fit into `chunked_prefill_size` (here `max_num_batched_tokens`) is cut, one at a time. It
    continues first in the next step, and no decode runs until it is complete. `max_prefill_tokens` ends admissions and
    cuts nothing. Tokens are charged in whole pages (KV blocks). Memory: see `planner.loop.reservation`. A request that
    does not fit shuts the queue until one leaves, a prompt is cut, or a batch becomes the running one. Output limit:
    the trace's `max_output_tokens`, as far as context and KV cache allow. A retracted request waits behind all others.
    Prefixes are in a radix tree (`planner.loop.memory.radix`). In a pipeline, each batch has its share of
    `max_num_seqs` (`pp_max_micro_batch_size`). Releases up to 0.5.16 (`--engine-version`): an ended request counts as
    running until a decode step is composed. Sources: sglang/srt/managers/scheduler.py (`get_next_batch_to_run`,
    `get_new_batch_prefill`, `update_running_batch`), schedule_policy.py (`PrefillAdder`), schedule_batch.py
    (`retract_decode`), mem_cache/radix_cache.py.

    Approximate: with KV tiers or a pipeline, prefixes are cached block by block as in vLLM. Of
    `--schedule-policy`, random, dfs-weight, hrrn, shortest-prefill-first and routing-key are not modelled. The engine's
    rule for ignore_eos is not modelled either.
    """
    return StepPlan(NO_LIMIT, NO_LIMIT, NO_LIMIT, PROMPTS_ALONE)


def plan_trtllm(s: StepState) -> StepPlan:
    """As in TensorRT-LLM: decodes, then prompt chunks in order of arrival. A prompt is cut after a whole block.

    `max_num_seqs` is TensorRT-LLM's `max_batch_size`. In a pipeline, each batch may have that many requests (the
    capacity scheduler admits `max_batch_size * pp_size`). `max_num_batched_tokens` is `max_num_tokens`. A request takes
    the blocks of its whole prompt with its first chunk. The policies differ in preemption. trtllm-no-evict
    (GUARANTEED_NO_EVICT) admits a request only if all requests could reach their output limits
    (`planner.loop.reservation`): `max_output_tokens`, else the room up to `max_model_len`. trtllm-max-utilization
    (MAX_UTILIZATION) admits each request that fits now. If blocks run out, it preempts the newest request, which is
    computed again and admitted before all other requests. A prompt for which the budget has no whole block lets shorter
    ones pass; for equal chunks see `planner.loop.equal_chunks`. Sources: tensorrt_llm/_torch/pyexecutor/scheduler
    (`PyMicroBatchScheduler`, `GuaranteedNoEvictPolicy`, `MaxUtilizationPolicy`), which follow
    cpp/tensorrt_llm/batch_manager/capacityScheduler.cpp and microBatchScheduler.cpp.

    Approximate: a request does not wait for blocks of its prefix that another request is computing.
    """
    return StepPlan(NO_LIMIT, NO_LIMIT, NO_LIMIT, DECODES_FIRST)


def plan_trtllm_static(s: StepState) -> StepPlan:
    """As TensorRT-LLM's STATIC_BATCH: as GUARANTEED_NO_EVICT, but prompts run only while no decode does."""
    limit = 0 if s.num_running > s.num_prefilling else NO_LIMIT
    return StepPlan(limit, limit, NO_LIMIT, DECODES_FIRST)


def plan_atom(s: StepState) -> StepPlan:
    """As in ATOM: a step of prompts if any can run, else a step of decodes.

    Prompts in progress go first, then new ones. A prompt that the budget cuts is cut after a multiple of 64 tokens, or
    of a block if that is larger. A request takes the blocks of its whole prompt with its first chunk. A decode runs
    only if there is room for one token more than it takes; else the newest request yields and is computed again. Tokens
    count before they are there (`planner.loop.placeholders`). Sources: atom/model_engine/scheduler.py (`schedule`,
    `preempt`, `postprocess`), block_manager.py, block_pool.py.

    Not modelled: pipelines that hand tokens over at once, and the prefill delayer of data-parallel ranks.
    """
    cap = s.long_prefill_token_threshold if s.long_prefill_token_threshold > 0 else NO_LIMIT
    return StepPlan(NO_LIMIT, NO_LIMIT, cap, PROMPTS_ALONE)


def by_priority(requests: Columns) -> NDArray[np.float64]:
    """Smallest priority first, as in vLLM. With ageing, each second of waiting subtracts `priority_ageing_per_s`.

    priority − rate·(now − arrival) sorts like priority + rate·arrival, because all requests have the same now.
    """
    return requests["priority"] + requests["priority_ageing_per_s"] * requests["arrival_s"]


def by_predicted_work(requests: Columns) -> NDArray[np.float64]:
    """Shortest job first, by prompt and predicted output."""
    return requests["input_tokens"] + requests["predicted_output_tokens"]


def by_true_work(requests: Columns) -> NDArray[np.float64]:
    """Shortest job first, by prompt and true output: a bound that no real scheduler reaches."""
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
        Policy(name="chunked", plan_step=plan_chunked, reserve="prompt", watermark_when_idle=True,
               needs_spare_block=True),
        Policy(name="vllm-v0", plan_step=plan_prefill_only, reserve="prompt", cut="none", watermark_when_idle=True,
               needs_spare_block=True),
        Policy(name="simple-chunking", plan_step=plan_taking_turns, reserve="prompt", watermark_when_idle=True,
               needs_spare_block=True),
        Policy(name="orca", plan_step=plan_orca, reserve="model-len", cut="none", budget="nothing"),
        Policy(name="static", plan_step=plan_static, reserve="model-len", cut="none", budget="nothing"),
        Policy(name="nano-vllm", plan_step=plan_prefill_only, reserve="prompt", cut="first", seats="batch",
               cache_latest=True),
        Policy(name="sglang", plan_step=plan_sglang, promises="share", victim="least-output", requeue="back",
               chunk_unit="block", budget="prompts", seats="share", cache_tree=True),
        Policy(name="atom", plan_step=plan_atom, reserve="prompt", chunk_unit="64", cache_latest=True,
               empty_first=True, placeholders=True),
        Policy(name="trtllm-no-evict", plan_step=plan_trtllm, reserve="prompt", promises="all", chunk_unit="block",
               passes_over=True, seats="each"),
        Policy(name="trtllm-max-utilization", plan_step=plan_trtllm, reserve="prompt", chunk_unit="block",
               passes_over=True, seats="each"),
        Policy(name="trtllm-static", plan_step=plan_trtllm_static, reserve="prompt", promises="all",
               chunk_unit="block", passes_over=True, seats="each"),
    )
}
