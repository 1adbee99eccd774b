"""The glossary: unit and meaning of every key of a summary, and of every column of a replay's tables."""

from collections.abc import Iterator, Mapping

from planner.files.keys import Key, declared, parts_of
from planner.results.summary_answer import Summary
from planner.schema import Term

TIERS = {"cpu": "host memory", "remote": "the remote store"}


def _terms(kind: type, keys: str = "{}", words: str = "") -> Iterator[tuple[str, Term]]:
    """Yield the keys of a dataclass, each with unit and meaning. The `Spread` of a part gives `keys` and `words`."""
    for field in declared(kind):
        if isinstance(field.note, Key):
            yield keys.format(field.name), Term(field.note.unit, field.note.meaning.format(words))
        else:
            yield from _terms(parts_of(field.hint)[0], field.note.keys, field.note.meaning)


SUMMARY: Mapping[str, Term] = dict(_terms(Summary))
REQUESTS: Mapping[str, Term] = {
    "request_id": Term("1", "The trace's request id, or the row number from 0"),
    "arrival_s": Term("s", "Time at which the client sent the request"),
    "input_tokens": Term("tokens", "Prompt tokens"),
    "output_tokens": Term("tokens", "Emitted tokens"),
    "status": Term("1", "completed, failed, rejected, cancelled, timed_out or unfinished"),
    "frontend_s": Term("s", "Time in the API server before the scheduler's queue, and the way of the first token back "
                            "to the client"),
    "queue_s": Term("s", "Time in the scheduler's queue until the first admission"),
    "ttft_s": Term("s", "Time from arrival at the API server to the first token, including the way of the first token "
                        "back to the client"),
    "tpot_s": Term("s", "(last − first token) / (output tokens − 1); null for one token"),
    "e2e_s": Term("s", "Time from arrival to the last token. frontend_s, queue_s, load_s, prefill_s, handover_s, "
                       "decode_s, preempted_s and recompute_s add up to it"),
    "prefill_s": Term("s", "Time from the first admission to the end of the prompt, without load_s and preemptions"),
    "decode_s": Term("s", "Time from the end of the prompt to the last token, without handover_s, preempted_s and "
                       "recompute_s"),
    "interference_s": Term("s", "Part of decode_s: prompts of other requests in the same steps, and waiting for other "
                                "ranks of data-parallel attention; null if steps are not recorded"),
    "transfer_s": Term("s", "Part of decode_s: KV over the host link; null if steps are not recorded"),
    "recompute_s": Term("s", "Time from the first step after a preemption to the next token"),
    "stalled_s": Term("s", "Time in which the request is running, but has no token in the step"),
    "preempted_s": Term("s", "Waiting time after preemptions"),
    "first_scheduled_at_s": Term("s", "Time of the first admission"),
    "first_token_at_s": Term("s", "Time of the first token"),
    "finished_at_s": Term("s", "Time at which the request left"),
    "num_preemptions": Term("1", "Preemptions of the request"),
    "num_cached_tokens": Term("tokens", "Prompt tokens found in the prefix cache or a KV tier"),
    **{f"{name}_cached_tokens": Term("tokens", f"With KV tiers: prompt tokens found in {tier}")
       for name, tier in TIERS.items()},
    "load_s": Term("s", "With KV tiers: time after admission until the KV from them has arrived"),
    "num_recomputed_tokens": Term("tokens", "Tokens computed again after preemptions"),
    "replica": Term("1", "Number of the request's replica, from 0"),
    "decode_replica": Term("1", "If some replicas prefill and others decode: the replica that decodes the request"),
    "prefilled_at_s": Term("s", "If some replicas prefill and others decode: time at which the prompt was computed. "
                                "The first token reaches the client after the first step of the decode replica"),
    "handover_s": Term("s", "If some replicas prefill and others decode: time from prefilled_at_s until the KV is on "
                            "the decode replica"),
    "reason": Term("1", "Why the request is not completed: too_long, token_budget, kv_cache, client, timeout, "
                        "queue_full, quota, no_replica or replica_failed. This column and the next three exist if "
                        "clients or the router have overload options"),
    "num_attempts": Term("1", "Attempts. Times of the request count from the first attempt; other columns are from the "
                              "last attempt"),
    "retry_s": Term("s", "Part of e2e_s: earlier attempts and the pauses between them"),
    "gateway_s": Term("s", "Part of e2e_s: delay by a quota and time in the router's queue, in the last attempt"),
    "pool": Term("1", "With --fleet: pool of the replica"),
    "decode_pool": Term("1", "With --fleet: pool of the decode replica"),
    "tenant": Term("1", "The trace's tenant, if it has tenants"),
    "session_id": Term("1", "The trace's session, if it has sessions"),
    "deadline_s": Term("s", "The trace's deadline for the last token, from arrival, if it has deadlines"),
    "priority": Term("1", "The trace's priority, if it has priorities. A smaller value is more urgent"),
}
STEPS: Mapping[str, Term] = {
    "step": Term("1", "Number of the step in its replica, from 0"),
    "start_s": Term("s", "Time at which the step began"),
    "duration_s": Term("s", "Duration of the step"),
    "num_prompts": Term("1", "Requests with prompt tokens in the step"),
    "num_prompt_tokens": Term("tokens", "Prompt tokens in the step"),
    "prompt_context_tokens": Term("tokens", "Tokens of these prompts that were computed before the step"),
    "prompt_pairs": Term("1", "Pairs of a prompt token and a token that it attends to"),
    "window_pairs": Term("1", "prompt_pairs in layers with a sliding window"),
    "num_decodes": Term("1", "Decodes in the step"),
    "num_drafted_tokens": Term("1", "Draft tokens of speculative decoding that the step checks"),
    "decode_context_tokens": Term("tokens", "Context tokens of these decodes"),
    "longest_context_tokens": Term("tokens", "Longest context of these decodes; 0 if no kernel waits for it"),
    "num_sampled": Term("1", "Tokens that the step emits"),
    "num_adapters": Term("1", "LoRA adapters in use"),
    "adapter_load_s": Term("s", "Loading of adapters to the GPU before the step, and a cold replica's first use of "
                           "kernels; part of adapters_s"),
    "num_accepted_tokens": Term("1", "Accepted draft tokens of speculative decoding; part of num_sampled"),
    "num_dropped": Term("1", "Decodes of requests that ended in the step before by end-of-sequence; they emit nothing"),
    "num_swapped_tokens": Term("tokens", "Tokens with KV swapped over the host link"),
    "num_running": Term("1", "Running requests when the step begins"),
    "num_ended": Term("1", "Requests that ended in the step before; part of num_running, since overlap composes a step "
                           "before it sees their end"),
    "num_waiting": Term("1", "Waiting requests when the step begins"),
    "num_used_blocks": Term("1", "KV blocks in use when the step begins"),
    "num_preempted": Term("1", "Requests preempted for the step"),
    "decodes_alone_s": Term("s", "Duration of the step if it had only its decodes"),
    "stopped_by": Term("1", "Why the first waiting request is not in the step: max_num_seqs, token_budget, kv_cache, "
                            "max_loras or policy; null if no request waits"),
    "replica": Term("1", "Number of the step's replica, from 0"),
    "pool": Term("1", "With --fleet: pool of the replica"),
    "linear_s": Term("s", "Dense GEMMs"),
    "experts_s": Term("s", "GEMMs of routed experts"),
    "activations_s": Term("s", "Small kernels: norms, activations, embeddings"),
    "attention_prompt_s": Term("s", "Attention of prompts"),
    "attention_decode_s": Term("s", "Attention of decodes"),
    "lm_head_s": Term("s", "Logits of sampled tokens"),
    "collectives_s": Term("s", "Communication between GPUs"),
    "overhead_s": Term("s", "Time in which the GPU waits: overhead that nothing hides, and host time beyond GPU time"),
    "swap_s": Term("s", "KV over the host link"),
    "adapters_s": Term("s", "Kernels of LoRA adapters, and loading of adapters to the GPU"),
    "rank_wait_s": Term("s", "Time that a rank of data-parallel attention loses because another rank has more work: "
                             "tokens of other ranks, padding, and waiting for the slowest rank"),
    "draft_s": Term("s", "Draft passes of speculative decoding, without the KV that their attention reads"),
    "images_s": Term("s", "Vision encoder, spread over the tokens of the prompts"),
    "compute_s": Term("s", "Arithmetic of the step at the GPU's dense peak"),
    "memory_s": Term("s", "HBM traffic of the step at the peak bandwidth"),
}
SCHEDULE: Mapping[str, Term] = {
    "step": STEPS["step"],
    "request_id": REQUESTS["request_id"],
    "num_scheduled_tokens": Term("tokens", "Tokens of the request in the step"),
    "replica": STEPS["replica"]._replace(meaning="Number of the step's replica, if there are several"),
    "pool": STEPS["pool"],
}
PREEMPTIONS: Mapping[str, Term] = {
    "step": STEPS["step"],
    "request_id": REQUESTS["request_id"],
    "replica": SCHEDULE["replica"],
    "pool": STEPS["pool"],
}
SCALE_EVENTS: Mapping[str, Term] = {
    "at_s": Term("s", "Time of the change"),
    "before": Term("1", "Serving and starting replicas before the change"),
    "after": Term("1", "Serving and starting replicas after the change"),
    "metric": Term("1", "Metric that asked for the most replicas"),
    "value": Term("1", "Value of the metric"),
    "target": Term("1", "Target of the metric; null without a target"),
    "wanted": Term("1", "Replicas that the metric asked for"),
    "limited_by": Term("1", "Rule that limited the change: minimum, maximum, stabilization, step, cooldown or "
                            "draining; empty if none did"),
    "pool": Term("1", "With --fleet: pool of the replicas"),
}
ATTEMPTS: Mapping[str, Term] = {
    "request_id": REQUESTS["request_id"],
    "attempt": Term("1", "Number of the request's attempt, from 1"),
    "replica": Term("1", "Number of the attempt's replica, from 0; null if it was turned away before"),
    "decode_replica": REQUESTS["decode_replica"],
    "sent_at_s": Term("s", "Time at which the client sent the attempt"),
    "first_scheduled_at_s": REQUESTS["first_scheduled_at_s"],
    "first_token_at_s": REQUESTS["first_token_at_s"],
    "ended_at_s": Term("s", "Time at which the attempt left its replica or was turned away"),
    "status": Term("1", "completed, failed, rejected, cancelled or timed_out"),
    "reason": REQUESTS["reason"]._replace(meaning="Reason as in the table of requests; null if completed"),
    "output_tokens": Term("tokens", "Emitted tokens"),
    "num_computed_tokens": Term("tokens", "Computed tokens, without cached tokens"),
}
