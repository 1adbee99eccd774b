"""The glossary: unit and meaning of every key of a summary, and of every column of a replay's tables."""

from collections.abc import Mapping

from planner.schema import Term

STATISTICS = {"mean": "Mean", "median": "Median", "std": "Standard deviation", "p90": "90th percentile",
              "p95": "95th percentile", "p99": "99th percentile"}
LATENCIES = {
    "ttft": "time to first token (TTFT) of completed requests, from arrival at the API server. It includes the "
            "time in the API server and the way of the first token back to the client",
    "tpot": "time per output token (TPOT), (last − first token) / (output tokens − 1), of completed requests with two "
            "or more output tokens",
    "itl": "inter-token latency (ITL): all gaps between tokens as clients see them, of all requests. Tokens of one "
           "step arrive together",
    "e2el": "end-to-end latency of completed requests, from arrival to the last token",
    "queue": "time in the scheduler's queue until the first admission, of completed requests",
    "load": "time that completed requests waited for KV from host memory or the remote store; null without these tiers",
}
TIERS = {"cpu": "host memory", "remote": "the remote store"}
SUMMARY: Mapping[str, Term] = {
    "completed": Term("1", "Requests that finished, including truncated requests"),
    "failed": Term("1", "Requests that were cancelled, timed out, were lost with a replica, or outgrew the KV cache "
                        "after their first token"),
    "rejected": Term("1", "Requests that can never run (prompt longer than max_model_len or than the KV cache), or "
                          "were turned away by a full queue or a quota, or because no replica was open"),
    "rejected_by_reason": Term("1", "Rejected requests by reason: too_long (the prompt fills max_model_len), "
                                    "token_budget (an uncut prompt exceeds max_num_batched_tokens), kv_cache (more KV "
                                    "blocks than a replica has), queue_full, quota, no_replica. Only reasons that "
                                    "occurred"),
    "unfinished": Term("1", "Requests that had not finished when the replay ended"),
    "num_cancelled": Term("1", "Requests that their client cancelled. They count as failed"),
    "num_truncated": Term("1", "Completed requests with output cut at max_model_len or at max_output_tokens"),
    "duration": Term("s", "Time from the first arrival to the last departure, or that of --measure-s"),
    "saturated": Term("1", "Whether more requests come than the deployment can serve: yes, no or unknown. If yes, "
                           "the queue grows while requests come, so latencies depend on the trace's length. Requests "
                           "that are turned away, or time out before their first token, count as if they still "
                           "waited. Closed loops: no. In targets and sweeps: 1, 0 and 0.5"),
    "saturated_since_s": Term("s", "Time from which on the queue grows; null if saturated is not yes"),
    "offered_request_rate": Term("requests/s", "Arrivals, from saturated_since_s (or the first arrival) to the last "
                                               "arrival. Without requests that can never run"),
    "served_request_rate": Term("requests/s", "Requests that got their first token in the same time; if the queue "
                                              "grows: until the last first token. If no queue grows but the seats are "
                                              "too few: the most that they can serve"),
    "saturation_confidence": Term("1", "Confidence of saturated: the probability that a deployment exactly at its "
                                       "capacity would have looked otherwise. Null without a comparison"),
    "saturation_reason": Term("1", "Finding that saturated rests on, in words"),
    "total_input_tokens": Term("tokens", "Prompt tokens of completed requests, including cached tokens"),
    "total_output_tokens": Term("tokens", "Emitted tokens of all requests. 0 with a pooling model"),
    "num_computed_prompt_tokens": Term("tokens", "Computed prompt tokens, without cached tokens"),
    "request_throughput": Term("requests/s", "Completed requests / duration"),
    "output_throughput": Term("tokens/s", "total_output_tokens / duration. Null with a pooling model"),
    "total_token_throughput": Term("tokens/s", "(total_input_tokens + total_output_tokens) / duration"),
    "request_goodput": Term("requests/s", "Requests that meet all their objectives / duration. The objectives are "
                                          "--slo, or their tenant's, and deadline_s for the last token. Null if "
                                          "requests have no objectives"),
    "slo_attainment": Term("1", "Share of requests that meet all their objectives, including deadlines. Failed and "
                                "rejected requests miss. A request with one output token meets tpot"),
    "slo_attainment_by_metric": Term("1", "Share of requests that meet each objective: ttft, tpot, e2el, and deadline "
                                          "if the trace has deadline_s"),
    "objectives": Term("1", "Each objective with name, limit [ms], value, unit of the value, and is_met. The value of "
                            "a statistic such as p99_ttft is over all requests [ms]; null if too many requests have no "
                            "answer. The value of ttft, tpot and e2el is the share of requests within the limit. The "
                            "value of attainment is the share within all limits; its limit is --attainment. The limit "
                            "is null if requests have limits of their own"),
    "tenants": Term("1", "If the trace has tenants: a table for each tenant by name, most requests first, with "
                         "num_requests, completed, failed, rejected, unfinished, throughputs, goodput, slo_attainment, "
                         "and mean, median and p99 of TTFT, TPOT and end-to-end latency, as in the summary. With slo "
                         "and objectives if --tenants gives the tenant its own"),
    **{f"{key}_{name}_ms": Term("ms", f"{statistic} of the {meaning}")
       for name, meaning in LATENCIES.items() for key, statistic in STATISTICS.items()},
    "num_attempts": Term("1", "Attempts of all requests. This key and the next keys up to router_max_queued exist if "
                              "clients or the router have overload options"),
    "num_retries": Term("1", "Attempts after a request's first attempt"),
    "max_attempts": Term("1", "Largest number of attempts of one request"),
    "num_attempts_timed_out": Term("1", "Attempts that timed out at their client"),
    "num_attempts_queue_full": Term("1", "Attempts rejected by a full queue of an engine or of the router"),
    "num_attempts_over_quota": Term("1", "Attempts rejected by their tenant's quota"),
    "num_attempts_no_replica": Term("1", "Attempts rejected because no replica was open"),
    "num_attempts_lost": Term("1", "Attempts that were at a replica when it failed"),
    "num_wasted_computed_tokens": Term("tokens", "Computed tokens of attempts without a complete answer"),
    "num_wasted_output_tokens": Term("tokens", "Emitted tokens of attempts without a complete answer"),
    "wasted_work": Term("1", "num_wasted_computed_tokens as a share of all computed tokens"),
    "router_max_queued": Term("1", "Largest number of requests in the router's queue"),
    "num_steps": Term("1", "Steps of all replicas"),
    "num_preemptions": Term("1", "Preemptions: a running request gave its KV blocks back"),
    "num_recomputed_tokens": Term("tokens", "Tokens computed again after preemptions"),
    "num_swapped_tokens": Term("tokens", "Tokens with KV swapped over the host link, in and out"),
    "mean_acceptance_length": Term("tokens", "Tokens that a decode emits per step with speculative decoding: accepted "
                                             "drafts and its own token"),
    "num_adapter_loads": Term("1", "Loads of a LoRA adapter to a GPU"),
    "prefix_cache_hit_rate": Term("1", "Prompt tokens found in the prefix cache or a KV tier, as a share of the tokens "
                                       "looked up"),
    "num_gpu_hit_tokens": Term("tokens", "Prompt tokens found in the prefix cache on the GPU; null without KV tiers"),
    "gpu_hit_rate": Term("1", "num_gpu_hit_tokens as a share of the tokens looked up"),
    **{key: term for name, tier in TIERS.items() for key, term in {
        f"num_{name}_hit_tokens": Term("tokens", f"Prompt tokens found in {tier} at a request's first admission"),
        f"{name}_hit_rate": Term("1", f"num_{name}_hit_tokens as a share of the tokens looked up"),
        f"{name}_read_bytes": Term("B", f"KV read from {tier} to the GPUs"),
        f"{name}_written_bytes": Term("B", f"KV written to {tier}, without the KV of swapped requests"),
    }.items()},
    "kv_cache_usage_mean": Term("1", "Share of KV blocks in use, mean over the busy time"),
    "kv_cache_usage_peak": Term("1", "Share of KV blocks in use, maximum"),
    "num_gpu_blocks": Term("1", "KV blocks of a replica; null if pools have different numbers"),
    "max_running": Term("1", "Largest number of running requests in a replica"),
    "max_waiting": Term("1", "Largest number of waiting requests in a replica"),
    "gpu_busy_fraction": Term("1", "Share of duration in which a step ran, mean over GPUs. It does not measure load: "
                                   "one decode keeps a GPU busy"),
    "pools": Term("1", "With --fleet: a row for each pool with its replicas, its requests, their mean TTFT and TPOT, "
                       "the utilization of its GPUs, and its cost. gpu_hours, cost_usd and energy_kwh of the pools add "
                       "up to the fleet's"),
    "replica_imbalance": Term("1", "Tokens of the replica with the most tokens / mean over all replicas"),
    "rank_wait_fraction": Term("1", "Share of step time that ranks of data-parallel attention lose to padding and to "
                                    "waiting for a rank with more work; null without such ranks"),
    "mfu": Term("1", "Model FLOP utilization: the model's arithmetic / the GPUs' dense peak, while busy"),
    "mbu": Term("1", "Memory bandwidth utilization: bytes that steps must move / the HBM's peak, while busy"),
    "gpu_hours": Term("GPU h", "GPUs × duration. With an autoscaler: only while replicas are paid for"),
    "cost_usd": Term("USD", "gpu_hours at the catalog's price"),
    "cost_usd_per_million_output_tokens": Term("USD", "cost_usd per million output tokens"),
    "cost_usd_per_million_input_tokens": Term("USD", "cost_usd per million prompt tokens. Only with a pooling model"),
    "cost_usd_per_thousand_results": Term("USD", "cost_usd per 1,000 embeddings or scores. Only with a pooling model"),
    "cost_usd_per_session": Term("USD", "cost_usd / sessions of the trace; null if the trace has no sessions"),
    "energy_kwh": Term("kWh", "Energy of the GPU boards: idle power; in steps also the power of arithmetic and HBM "
                              "traffic, up to the power limit. Without hosts, network, cooling and power supplies"),
    "bottleneck": Term("1", "Limit that binds. If requests wait: max_num_seqs, token_budget, kv_cache, max_loras or "
                            "policy, the limit that stops most of them. Else arrivals, if the engine rests most of the "
                            "time. Else the larger of two times at peak rates: compute, of all arithmetic, or "
                            "memory_bandwidth, of all HBM traffic. --explain also knows the host and the links"),
    **{f"{name}_interval": Term(unit, f"Interval of {name} for --interval, from held-out errors: lower and upper bound")
       for name, unit in (("mean_ttft_ms", "ms"), ("mean_tpot_ms", "ms"), ("mean_e2el_ms", "ms"),
                          ("request_throughput", "requests/s"), ("output_throughput", "tokens/s"))},
    "replicas_mean": Term("1", "With an autoscaler: replicas that are paid for, mean over duration, including start-up "
                               "and draining"),
    "replicas_peak": Term("1", "With an autoscaler: largest number of replicas that are paid for"),
    "num_scale_ups": Term("1", "With an autoscaler: number of times it added replicas"),
    "num_scale_downs": Term("1", "With an autoscaler: number of times it removed replicas"),
    "autoscale": Term("1", "With an autoscaler: its file, bounds and start-up, its events (as in --scale-events), and "
                           "its replicas with start_s, ready_s, drain_s and end_s on the trace's clock. With --fleet: "
                           "for each pool"),
    "simulated_requests_per_s": Term("requests/s", "Speed of the replay's loop"),
    "wall_s": Term("s", "Wall-clock time of the replay"),
    "would_not_start": Term("1", "Why the engine would not start with this deployment. Null if it starts"),
    "notes": Term("1", "Notes for the reader of the result, as texts"),
    "deployment": Term("1", "The deployment as resolved: each option, its GPUs and its memory"),
    "workload": Term("1", "The trace's source, the rows read, kept and dropped, and the options of the load"),
    "slo": Term("s", "The objectives by name"),
    "policy": Term("1", "The scheduling as resolved: name of the policy, memory rules and limits"),
    "versions": Term("1", "Versions of the planner, Python and the numeric libraries"),
    "trace_sha256": Term("1", "SHA-256 of the trace's bytes"),
    "replay_command": Term("1", "Command that replays this result. Only in the output of planner replay and compare"),
    "explanation": Term("1", "With --explain: phases, limits, little, work, advice, and a sentence that sums them up"),
}
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
