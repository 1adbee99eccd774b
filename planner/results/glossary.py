"""The glossary: unit and meaning of every key of a summary, and of every column of the tables that a replay writes."""

from collections.abc import Mapping

from planner.schema import Term

STATISTICS = {"mean": "mean", "median": "median", "std": "standard deviation", "p90": "90th percentile",
              "p95": "95th percentile", "p99": "99th percentile"}
LATENCIES = {
    "ttft": "time to first token of completed requests, from arrival",
    "tpot": "time per output token, (last − first token) / (output tokens − 1), of completed requests of two or more",
    "itl": "inter-token latency: all gaps between tokens that a client sees, of all requests; tokens that one step "
           "emits are seen at once",
    "e2el": "end-to-end latency of completed requests, from arrival to the last token",
    "queue": "time in the scheduler's queue until the first step, of completed requests",
    "load": "time that completed requests waited for KV from host memory or the remote store; null without such tiers",
}
TIERS = {"cpu": "host memory", "remote": "the remote store"}
SUMMARY: Mapping[str, Term] = {
    "completed": Term("1", "requests that got all their tokens"),
    "failed": Term("1", "requests that outgrew the KV cache after their first token, were cancelled, timed out, or "
                        "were lost with a replica"),
    "rejected": Term("1", "requests that can never run, a prompt beyond max_model_len or the KV cache, or that were "
                          "turned away: by a full queue, a quota, or for want of a replica"),
    "rejected_by_reason": Term("1", "rejected, by reason: too_long (a prompt that fills max_model_len), token_budget "
                                    "(one that must run whole and exceeds max_num_batched_tokens), kv_cache (more KV "
                                    "blocks than a replica has), queue_full, quota, no_replica; those that occur"),
    "unfinished": Term("1", "requests that were still there at the end"),
    "num_cancelled": Term("1", "requests whose client hung up; they count as failed"),
    "num_truncated": Term("1",
                          "completed requests whose output was cut at max_model_len, or at their max_output_tokens"),
    "duration": Term("s", "from the first arrival to the last departure, warm-up and drain included"),
    "total_input_tokens": Term("tokens", "prompts of completed requests, cached tokens included"),
    "total_output_tokens": Term("tokens", "tokens that were emitted"),
    "num_computed_prompt_tokens": Term("tokens", "prompt tokens that were run; cached ones are not"),
    "request_throughput": Term("requests/s", "completed over duration"),
    "output_throughput": Term("tokens/s", "total_output_tokens over duration"),
    "total_token_throughput": Term("tokens/s", "input and output tokens over duration"),
    "request_goodput": Term("requests/s", "requests that meet every objective of a request, over duration: those of "
                                          "--slo or of their tenant, and their deadline_s, by which they must have "
                                          "ended; null where requests have none"),
    "slo_attainment": Term("1", "share of requests that meet every objective of a request, deadlines included; failed "
                                "and rejected ones miss, and a one-token output passes tpot"),
    "slo_attainment_by_metric": Term("1", "the same, by objective: ttft, tpot, e2el, and deadline where the trace has "
                                          "deadline_s"),
    "objectives": Term("1", "each objective with name, limit [ms], value, unit of the value, and is_met. A statistic "
                            "such as p99_ttft has its value over all requests [ms], null where too many have no "
                            "answer; ttft, tpot and e2el have the share of requests within their limit; attainment "
                            "has the share within all of them, its limit is --attainment. A limit is null where "
                            "requests have their own"),
    "tenants": Term("1", "where the trace has tenants, by name, those with the most requests first: num_requests, "
                         "completed, failed, rejected, unfinished, throughputs, goodput, slo_attainment, and mean, "
                         "median and p99 of TTFT, TPOT and end-to-end latency, each as in the summary; slo and "
                         "objectives where --tenants gives the tenant its own"),
    **{f"{key}_{name}_ms": Term("ms", f"{statistic} of the {meaning}")
       for name, meaning in LATENCIES.items() for key, statistic in STATISTICS.items()},
    "num_attempts": Term("1", "of all requests, where clients or the router have rules for overload; so are the next"),
    "num_retries": Term("1", "attempts after a request's first"),
    "max_attempts": Term("1", "of one request"),
    "num_attempts_timed_out": Term("1", "attempts that their client ended"),
    "num_attempts_queue_full": Term("1", "attempts that an engine's queue or the router's had no place for"),
    "num_attempts_over_quota": Term("1", "attempts beyond their tenant's quota"),
    "num_attempts_no_replica": Term("1", "attempts while no replica was open"),
    "num_attempts_lost": Term("1", "attempts that were at a replica when it failed"),
    "num_wasted_computed_tokens": Term("tokens", "computed for attempts that brought no whole answer"),
    "num_wasted_output_tokens": Term("tokens", "emitted by such attempts"),
    "wasted_work": Term("1", "share of computed tokens that is wasted"),
    "router_max_queued": Term("1", "most requests that waited at once in the router's queue"),
    "num_steps": Term("1", "steps of all replicas"),
    "num_preemptions": Term("1", "times that a request had to give its KV blocks back"),
    "num_recomputed_tokens": Term("tokens", "tokens run again after preemptions"),
    "num_swapped_tokens": Term("tokens", "tokens whose KV went to the host"),
    "mean_acceptance_length": Term("tokens", "that a decode emits a step under speculative decoding, its own included"),
    "num_adapter_loads": Term("1", "times that a LoRA adapter was brought to the GPU"),
    "prefix_cache_hit_rate": Term("1", "prompt tokens found in the prefix cache, KV tiers included, over those "
                                       "looked up"),
    "num_gpu_hit_tokens": Term("tokens", "of these, found on the GPU; null where there are no KV tiers below it"),
    "gpu_hit_rate": Term("1", "the same over the tokens looked up"),
    **{key: term for name, tier in TIERS.items() for key, term in {
        f"num_{name}_hit_tokens": Term("tokens", f"of these, found in {tier} when a request was first admitted"),
        f"{name}_hit_rate": Term("1", "the same over the tokens looked up"),
        f"{name}_read_bytes": Term("B", f"KV that came to the GPUs from {tier}"),
        f"{name}_written_bytes": Term("B", f"KV that was written to {tier}, without swapped requests'"),
    }.items()},
    "kv_cache_usage_mean": Term("1", "share of KV blocks in use, mean over the busy time"),
    "kv_cache_usage_peak": Term("1", "the largest share of KV blocks in use"),
    "num_gpu_blocks": Term("1", "KV blocks of a replica; null where pools differ in them"),
    "max_running": Term("1", "most requests that ran at once in a replica"),
    "max_waiting": Term("1", "most requests that waited at once in a replica"),
    "gpu_busy_fraction": Term("1", "share of duration in which a step ran, mean over GPUs; no measure of load, since "
                                   "one decode keeps a GPU busy"),
    "pools": Term("1", "of --fleet, a row for each pool: what its replicas are, its requests, their mean TTFT and "
                       "TPOT, how hard its GPUs worked, and what they cost; gpu_hours, cost_usd and energy_kwh add up"),
    "replica_imbalance": Term("1", "tokens of the replica that had most, over the mean of all"),
    "rank_wait_fraction": Term("1", "share of their steps' time that ranks of data-parallel attention spent because "
                                    "another had more, on padding or waiting; null where there are none"),
    "mfu": Term("1", "model FLOP utilization: the model's arithmetic over the GPUs' dense peak, while busy"),
    "mbu": Term("1", "memory bandwidth utilization: bytes that steps must move over the HBM's peak, while busy"),
    "gpu_hours": Term("GPU h", "GPUs times duration; with an autoscaler, while their replicas were paid for"),
    "cost_usd": Term("USD", "gpu_hours at the catalog's price"),
    "cost_usd_per_million_output_tokens": Term("USD", "cost_usd over output tokens, times a million"),
    "energy_kwh": Term("kWh", "of the GPU boards: idle power while nothing runs; while steps run, what their "
                              "arithmetic and HBM traffic draw besides, up to the power limit. Hosts, network, "
                              "cooling and power supplies are not in it"),
    "bottleneck": Term("1", "which limit binds: max_num_seqs, token_budget, kv_cache, max_loras or policy, whichever "
                            "most waiting requests waited for, else compute, memory_bandwidth, or arrivals for none"),
    **{f"{name}_interval": Term(unit, f"interval of {name} by --interval, from held-out errors: lower and upper")
       for name, unit in (("mean_ttft_ms", "ms"), ("mean_tpot_ms", "ms"), ("mean_e2el_ms", "ms"),
                          ("request_throughput", "requests/s"), ("output_throughput", "tokens/s"))},
    "replicas_mean": Term("1", "with an autoscaler: replicas that were paid for, their start-up and draining in it, in "
                               "the mean over duration"),
    "replicas_peak": Term("1", "likewise: most replicas that were paid for at once"),
    "num_scale_ups": Term("1", "likewise: times that it added replicas"),
    "num_scale_downs": Term("1", "likewise: times that it took replicas away"),
    "autoscale": Term("1", "likewise: its file, bounds and start-up, events (as --scale-events), and replicas, each "
                           "with start_s, ready_s, drain_s and end_s on the trace's clock; of --fleet pools, each with "
                           "its own"),
    "simulated_requests_per_s": Term("requests/s", "speed of the replay's loop"),
    "wall_s": Term("s", "what the replay took"),
    "notes": Term("1", "what a reader of the result should know, as texts"),
    "deployment": Term("1", "the deployment as resolved: every option, its GPUs and its memory"),
    "workload": Term("1", "the trace's source, rows read, kept and dropped, and the options of the load"),
    "slo": Term("s", "the objectives by name"),
    "policy": Term("1", "the scheduling as resolved: the policy's name, memory rules and limits"),
    "versions": Term("1", "of the planner, Python and the libraries that compute"),
    "trace_sha256": Term("1", "hash of the trace's bytes"),
    "explanation": Term("1", "of --explain: phases, limits, little, work, advice, and the sentence that says it"),
}
REQUESTS: Mapping[str, Term] = {
    "request_id": Term("1", "of the trace; the row number from 0 where it has none"),
    "arrival_s": Term("s", "when the client sent it"),
    "input_tokens": Term("tokens", "of the prompt"),
    "output_tokens": Term("tokens", "emitted"),
    "status": Term("1", "completed, failed, rejected, cancelled, timed_out or unfinished"),
    "frontend_s": Term("s", "in the API server, on the way to the scheduler"),
    "queue_s": Term("s", "from the scheduler's queue to the first step"),
    "ttft_s": Term("s", "from arrival to the first token"),
    "tpot_s": Term("s", "(last − first token) / (output tokens − 1); null for one token"),
    "e2e_s": Term("s", "from arrival to the last token; frontend_s, queue_s, load_s, prefill_s, handover_s, "
                       "decode_s, preempted_s and recompute_s add up to it"),
    "prefill_s": Term("s", "from the first step to the first token; with KV tiers without load_s"),
    "decode_s": Term("s", "from the first to the last token, without what preemption cost"),
    "interference_s": Term("s", "of decode_s, what went to others' prompts, or to waiting for other ranks of "
                                "data-parallel attention; null where steps are not recorded"),
    "transfer_s": Term("s", "of decode_s, what went to KV over the host link; null likewise"),
    "recompute_s": Term("s", "from a preempted request's next step to its next token"),
    "stalled_s": Term("s", "running, but without a token in the step"),
    "preempted_s": Term("s", "waiting after preemptions"),
    "first_scheduled_at_s": Term("s", "instant of its first step"),
    "first_token_at_s": Term("s", "instant of its first token"),
    "finished_at_s": Term("s", "instant at which it left"),
    "num_preemptions": Term("1", "times that it had to yield"),
    "num_cached_tokens": Term("tokens", "of its prompt, found in the prefix cache, KV tiers included"),
    **{f"{name}_cached_tokens": Term("tokens", f"with KV tiers: of these, found in {tier}")
       for name, tier in TIERS.items()},
    "load_s": Term("s", "likewise: waiting, admitted, for KV from them"),
    "num_recomputed_tokens": Term("tokens", "run again after preemptions"),
    "replica": Term("1", "that it was sent to, from 0"),
    "decode_replica": Term("1", "where some replicas prefill and others decode: the one that decodes it"),
    "handover_s": Term("s", "likewise: from the first token until its KV is where it is decoded"),
    "reason": Term("1", "why it is not completed: too_long, token_budget, kv_cache, client, timeout, queue_full, "
                        "quota, no_replica or replica_failed; where clients or the router have rules for overload, as "
                        "the next three"),
    "num_attempts": Term("1", "of it; its times count from the first, other numbers are of the last"),
    "retry_s": Term("s", "of e2e_s, earlier attempts and the pauses between them"),
    "gateway_s": Term("s", "of e2e_s, delayed by a quota or in the router's queue, in the last attempt"),
    "pool": Term("1", "of --fleet: the pool of its replica"),
    "decode_pool": Term("1", "likewise: of its decode_replica"),
    "tenant": Term("1", "the trace's, where it has them"),
    "session_id": Term("1", "likewise"),
    "deadline_s": Term("s", "likewise: from arrival, until which the request must have ended"),
    "priority": Term("1", "likewise; smaller is more urgent"),
}
STEPS: Mapping[str, Term] = {
    "step": Term("1", "number of the replica's step, from 0"),
    "start_s": Term("s", "instant at which it began"),
    "duration_s": Term("s", "what it took"),
    "num_prompts": Term("1", "requests with prompt tokens in it"),
    "num_prompt_tokens": Term("tokens", "of prompts"),
    "prompt_context_tokens": Term("tokens", "computed before, of these requests"),
    "prompt_pairs": Term("1", "pairs of a prompt token and one that it attends to"),
    "window_pairs": Term("1", "the same in layers of a sliding window"),
    "num_decodes": Term("1", "requests that decode in it"),
    "decode_context_tokens": Term("tokens", "computed before, of these"),
    "longest_context_tokens": Term("tokens", "the most of one of these; 0 where no kernel waits for it"),
    "num_sampled": Term("1", "tokens that it emits"),
    "num_adapters": Term("1", "LoRA adapters in use"),
    "adapter_load_s": Term("s", "bringing adapters to the GPU before it; in adapters_s"),
    "num_accepted_tokens": Term("1", "of these, drafted by speculative decoding and accepted"),
    "num_swapped_tokens": Term("tokens", "whose KV goes over the host link"),
    "num_running": Term("1", "requests running as it begins"),
    "num_waiting": Term("1", "requests waiting then"),
    "num_used_blocks": Term("1", "KV blocks in use then"),
    "num_preempted": Term("1", "requests that yielded for it"),
    "decodes_alone_s": Term("s", "what its decodes would have taken by themselves"),
    "stopped_by": Term("1", "why the head of the queue is not in it: max_num_seqs, token_budget, kv_cache or policy; "
                            "null where nobody waits"),
    "replica": Term("1", "whose step it is, from 0"),
    "pool": Term("1", "of --fleet: that replica's"),
    "linear_s": Term("s", "its dense products"),
    "experts_s": Term("s", "its experts' products"),
    "activations_s": Term("s", "its small kernels: norms, activations, embeddings"),
    "attention_prompt_s": Term("s", "attention of prompts"),
    "attention_decode_s": Term("s", "attention of decodes"),
    "lm_head_s": Term("s", "logits of what it samples"),
    "collectives_s": Term("s", "communication between GPUs"),
    "overhead_s": Term("s", "what the GPU waits for: time that nothing hides, and the host's beyond the GPU's"),
    "swap_s": Term("s", "KV over the host link"),
    "adapters_s": Term("s", "kernels of LoRA adapters, and bringing adapters to the GPU"),
    "rank_wait_s": Term("s", "beyond what it would take if no rank of data-parallel attention had more than its own: "
                             "others' tokens, padding, and waiting for the slowest"),
    "draft_s": Term("s", "passes of the draft of speculative decoding, without what their attention reads"),
    "compute_s": Term("s", "its arithmetic at the GPU's dense peak"),
    "memory_s": Term("s", "its HBM traffic at the peak bandwidth"),
}
SCHEDULE: Mapping[str, Term] = {
    "step": STEPS["step"],
    "request_id": REQUESTS["request_id"],
    "num_scheduled_tokens": Term("tokens", "of the request in the step"),
    "replica": STEPS["replica"]._replace(meaning="whose step it is, where there are several"),
    "pool": STEPS["pool"],
}
PREEMPTIONS: Mapping[str, Term] = {
    "step": STEPS["step"],
    "request_id": REQUESTS["request_id"],
    "replica": SCHEDULE["replica"],
    "pool": STEPS["pool"],
}
SCALE_EVENTS: Mapping[str, Term] = {
    "at_s": Term("s", "instant of the change"),
    "before": Term("1", "replicas that served or started before it"),
    "after": Term("1", "and after it"),
    "metric": Term("1", "the autoscaler that asked for the most"),
    "value": Term("1", "its metric"),
    "target": Term("1", "its target; null where it has none"),
    "wanted": Term("1", "replicas that it asked for"),
    "limited_by": Term("1", "what stood against that: minimum, maximum, stabilization, step, cooldown or draining; "
                            "empty where nothing did"),
    "pool": Term("1", "of --fleet: whose replicas"),
}
ATTEMPTS: Mapping[str, Term] = {
    "request_id": REQUESTS["request_id"],
    "attempt": Term("1", "number of the request's attempt, from 1"),
    "replica": Term("1", "that it went to, from 0; null where it was turned away before"),
    "decode_replica": REQUESTS["decode_replica"],
    "sent_at_s": Term("s", "instant at which its client sent it"),
    "first_scheduled_at_s": REQUESTS["first_scheduled_at_s"],
    "first_token_at_s": REQUESTS["first_token_at_s"],
    "ended_at_s": Term("s", "instant at which it left its replica or was turned away"),
    "status": Term("1", "completed, failed, rejected, cancelled or timed_out"),
    "reason": REQUESTS["reason"]._replace(meaning="as of requests; null where it is completed"),
    "output_tokens": Term("tokens", "emitted"),
    "num_computed_tokens": Term("tokens", "run for it, cached ones left out"),
}
