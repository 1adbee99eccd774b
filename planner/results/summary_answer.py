"""The summary of a replay: its keys, with unit and meaning, and the parts that they come from."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from planner.files.keys import Key, Spread
from planner.results.answers import Answer
from planner.settings.judged import Judged

Number = float | None
Count = int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Statistics of a latency; None each without values."""

    mean: Annotated[Number, Key("ms", "Mean of the {}")] = None
    median: Annotated[Number, Key("ms", "Median of the {}")] = None
    std: Annotated[Number, Key("ms", "Standard deviation of the {}")] = None
    p90: Annotated[Number, Key("ms", "90th percentile of the {}")] = None
    p95: Annotated[Number, Key("ms", "95th percentile of the {}")] = None
    p99: Annotated[Number, Key("ms", "99th percentile of the {}")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Saturation:
    """The verdict on saturation, with the rates offered and served."""

    saturated: Annotated[str | None, Key("1", "Whether more requests come than the deployment can serve: yes, no or "
                                         "unknown. If yes, the queue grows while requests come, so latencies depend on "
                                         "the trace's length. Requests that are turned away, or time out before their "
                                         "first token, count as if they still waited. Closed loops: no. In targets and "
                                         "sweeps: 1, 0 and 0.5")] = None
    saturated_since_s: Annotated[Number, Key("s", "Time from which on the queue grows; null if saturated is not "
                                             "yes")] = None
    offered_request_rate: Annotated[Number, Key("requests/s", "Arrivals, from saturated_since_s (or the first arrival) "
                                                "to the last arrival. Without requests that can never run")] = None
    served_request_rate: Annotated[Number, Key("requests/s", "Requests that got their first token in the same time; if "
                                               "the queue grows: until the last first token. If no queue grows but the "
                                               "seats are too few: the most that they can serve")] = None
    saturation_confidence: Annotated[Number, Key("1", "Confidence of saturated: the probability that a deployment "
                                                 "exactly at its capacity would have looked otherwise. Null without a "
                                                 "comparison")] = None
    saturation_reason: Annotated[str | None, Key("1", "Finding that saturated rests on, in words")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineTotals:
    """Totals of the engines of a replay."""

    num_steps: Annotated[int, Key("1", "Steps of all replicas")]
    num_preemptions: Annotated[int, Key("1", "Preemptions: a running request gave its KV blocks back")]
    num_recomputed_tokens: Annotated[int, Key("tokens", "Tokens computed again after preemptions")]
    num_swapped_tokens: Annotated[int, Key("tokens", "Tokens with KV swapped over the host link, in and out")]
    prefix_cache_hit_rate: Annotated[Number, Key("1", "Prompt tokens found in the prefix cache or a KV tier, as a "
                                                 "share of the tokens looked up")]
    mean_acceptance_length: Annotated[Number, Key("tokens", "Tokens that a decode emits per step with speculative "
                                                  "decoding: accepted drafts and its own token")] = None
    num_adapter_loads: Annotated[Count, Key("1", "Loads of a LoRA adapter to a GPU")] = None
    kv_cache_usage_mean: Annotated[Number, Key("1", "Share of KV blocks in use, mean over the busy time")]
    kv_cache_usage_peak: Annotated[Number, Key("1", "Share of KV blocks in use, maximum")]
    num_gpu_blocks: Annotated[Count, Key("1", "KV blocks of a replica; null if pools have different numbers")]
    max_running: Annotated[int, Key("1", "Largest number of running requests in a replica")]
    max_waiting: Annotated[int, Key("1", "Largest number of waiting requests in a replica")]
    gpu_busy_fraction: Annotated[Number, Key("1", "Share of duration in which a step ran, mean over GPUs. It does not "
                                             "measure load: one decode keeps a GPU busy")]
    replica_imbalance: Annotated[Number, Key("1", "Tokens of the replica with the most tokens / mean over all "
                                             "replicas")]
    rank_wait_fraction: Annotated[Number, Key("1", "Share of step time that ranks of data-parallel attention lose to "
                                              "padding and to waiting for a rank with more work; null without such "
                                              "ranks")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingTotals:
    """How an autoscaled fleet grew and shrank."""

    replicas_mean: Annotated[float, Key("1", "With an autoscaler: replicas that are paid for, mean over duration, "
                                        "including start-up and draining")]
    replicas_peak: Annotated[int, Key("1", "With an autoscaler: largest number of replicas that are paid for")]
    num_scale_ups: Annotated[int, Key("1", "With an autoscaler: number of times it added replicas")]
    num_scale_downs: Annotated[int, Key("1", "With an autoscaler: number of times it removed replicas")]
    autoscale: Annotated[Mapping[str, Any], Key("1", "With an autoscaler: its file, bounds and start-up, its events "
                                                "(as in --scale-events), and its replicas with start_s, ready_s, "
                                                "drain_s and end_s on the trace's clock. With --fleet: for each pool")]

    @property
    def spans(self) -> list[tuple[Any, ...]]:
        """The lives of replicas, as `ReplicaSpan` with None for NaN."""
        return [tuple(span.values()) for span in self.autoscale["replicas"]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TierTotals:
    """Hits and traffic of KV tiers; None for each tier that no pool has."""

    num_gpu_hit_tokens: Annotated[Count, Key("tokens", "Prompt tokens found in the prefix cache on the GPU; null "
                                             "without KV tiers")] = None
    num_cpu_hit_tokens: Annotated[Count, Key("tokens", "Prompt tokens found in host memory at a request's first "
                                             "admission")] = None
    num_remote_hit_tokens: Annotated[Count, Key("tokens", "Prompt tokens found in the remote store at a request's "
                                                "first admission")] = None
    gpu_hit_rate: Annotated[Number, Key("1", "num_gpu_hit_tokens as a share of the tokens looked up")] = None
    cpu_hit_rate: Annotated[Number, Key("1", "num_cpu_hit_tokens as a share of the tokens looked up")] = None
    remote_hit_rate: Annotated[Number, Key("1", "num_remote_hit_tokens as a share of the tokens looked up")] = None
    cpu_read_bytes: Annotated[Count, Key("B", "KV read from host memory to the GPUs")] = None
    cpu_written_bytes: Annotated[Count, Key("B", "KV written to host memory, without the KV of swapped "
                                            "requests")] = None
    remote_read_bytes: Annotated[Count, Key("B", "KV read from the remote store to the GPUs")] = None
    remote_written_bytes: Annotated[Count, Key("B", "KV written to the remote store, without the KV of swapped "
                                               "requests")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptTotals:
    """Attempts: how many, how they ended, and the cost of attempts without an answer."""

    num_attempts: Annotated[int, Key("1", "Attempts of all requests. This key and the next keys up to "
                                     "router_max_queued exist if clients or the router have overload options")]
    num_retries: Annotated[int, Key("1", "Attempts after a request's first attempt")]
    max_attempts: Annotated[int, Key("1", "Largest number of attempts of one request")]
    num_attempts_timed_out: Annotated[int, Key("1", "Attempts that timed out at their client")]
    num_attempts_queue_full: Annotated[int, Key("1", "Attempts rejected by a full queue of an engine or of the router")]
    num_attempts_over_quota: Annotated[int, Key("1", "Attempts rejected by their tenant's quota")]
    num_attempts_no_replica: Annotated[int, Key("1", "Attempts rejected because no replica was open")]
    num_attempts_lost: Annotated[int, Key("1", "Attempts that were at a replica when it failed")]
    num_wasted_computed_tokens: Annotated[int, Key("tokens", "Computed tokens of attempts without a complete answer")]
    num_wasted_output_tokens: Annotated[int, Key("tokens", "Emitted tokens of attempts without a complete answer")]
    wasted_work: Annotated[Number, Key("1", "num_wasted_computed_tokens as a share of all computed tokens")]
    router_max_queued: Annotated[int, Key("1", "Largest number of requests in the router's queue")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """How hard the GPUs of some pools worked, and their cost; None if a pool names none."""

    mfu: Annotated[Number, Key("1", "Model FLOP utilization: the model's arithmetic / the GPUs' dense peak, while "
                               "busy")]
    mbu: Annotated[Number, Key("1", "Memory bandwidth utilization: bytes that steps must move / the HBM's peak, while "
                               "busy")]
    gpu_hours: Annotated[float, Key("GPU h", "GPUs × duration. With an autoscaler: only while replicas are paid for")]
    cost_usd: Annotated[Number, Key("USD", "gpu_hours at the catalog's price")]
    energy_kwh: Annotated[Number, Key("kWh", "Energy of the GPU boards: idle power; in steps also the power of "
                                      "arithmetic and HBM traffic, up to the power limit. Without hosts, network, "
                                      "cooling and power supplies")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultCosts:
    """The cost of prompts and of embeddings or scores."""

    cost_usd_per_million_input_tokens: Annotated[Number, Key("USD", "cost_usd per million prompt tokens. Only with a "
                                                             "pooling model")]
    cost_usd_per_thousand_results: Annotated[Number, Key("USD", "cost_usd per 1,000 embeddings or scores. Only with a "
                                                         "pooling model")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Utilization:
    """How hard the hardware worked, its cost, and the limit that binds."""

    hardware: Annotated[Hardware, Spread()]
    results: Annotated[ResultCosts | None, Spread(only="with a pooling model")]
    cost_usd_per_million_output_tokens: Annotated[Number, Key("USD", "cost_usd per million output tokens")]
    cost_usd_per_session: Annotated[Number, Key("USD", "cost_usd / sessions of the trace; null if the trace has no "
                                                "sessions")] = None
    bottleneck: Annotated[str, Key("1", "Limit that binds. If requests wait: max_num_seqs, token_budget, kv_cache, "
                                   "max_loras or policy, the limit that stops most of them. Else arrivals, if the "
                                   "engine rests most of the time. Else the larger of two times at peak rates: "
                                   "compute, of all arithmetic, or memory_bandwidth, of all HBM traffic. --explain "
                                   "also knows the host and the links")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """Intervals of predictions: the lower and the upper bound. None without a value or without errors."""

    mean_ttft_ms: Annotated[tuple[float, ...] | None, Key("ms", "Interval of mean_ttft_ms for --interval, from "
                                                          "held-out errors: lower and upper bound")]
    mean_tpot_ms: Annotated[tuple[float, ...] | None, Key("ms", "Interval of mean_tpot_ms for --interval, from "
                                                          "held-out errors: lower and upper bound")]
    mean_e2el_ms: Annotated[tuple[float, ...] | None, Key("ms", "Interval of mean_e2el_ms for --interval, from "
                                                          "held-out errors: lower and upper bound")]
    request_throughput: Annotated[tuple[float, ...] | None, Key(
        "requests/s", "Interval of request_throughput for --interval, from held-out errors: lower and upper bound")]
    output_throughput: Annotated[tuple[float, ...] | None, Key(
        "tokens/s", "Interval of output_throughput for --interval, from held-out errors: lower and upper bound")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures of a replay: requests, latencies, objectives, and totals of the engines."""

    completed: Annotated[int, Key("1", "Requests that finished, including truncated requests")]
    failed: Annotated[int, Key("1", "Requests that were cancelled, timed out, were lost with a replica, or outgrew the "
                               "KV cache after their first token")]
    rejected: Annotated[int, Key("1", "Requests that can never run (prompt longer than max_model_len or than the KV "
                                 "cache), or were turned away by a full queue or a quota, or because no replica was "
                                 "open")]
    rejected_by_reason: Annotated[Mapping[str, int] | None, Key(
        "1", "Rejected requests by reason: too_long (the prompt fills max_model_len), token_budget (an uncut prompt "
        "exceeds max_num_batched_tokens), kv_cache (more KV blocks than a replica has), queue_full, quota, no_replica. "
        "Only reasons that occurred")] = None
    unfinished: Annotated[int, Key("1", "Requests that had not finished when the replay ended")]
    num_cancelled: Annotated[int, Key("1", "Requests that their client cancelled. They count as failed")]
    num_truncated: Annotated[int, Key("1", "Completed requests with output cut at max_model_len or at "
                                      "max_output_tokens")]
    duration: Annotated[float, Key("s", "Time from the first arrival to the last departure, or that of --measure-s")]
    total_input_tokens: Annotated[int, Key("tokens", "Prompt tokens of completed requests, including cached tokens")]
    total_output_tokens: Annotated[int, Key("tokens", "Emitted tokens of all requests. 0 with a pooling model")]
    num_computed_prompt_tokens: Annotated[int, Key("tokens", "Computed prompt tokens, without cached tokens")]
    request_throughput: Annotated[Number, Key("requests/s", "Completed requests / duration")]
    output_throughput: Annotated[Number, Key("tokens/s", "total_output_tokens / duration. Null with a pooling model")]
    total_token_throughput: Annotated[Number, Key("tokens/s", "(total_input_tokens + total_output_tokens) / duration")]
    saturation: Annotated[Saturation, Spread()]
    request_goodput: Annotated[Number, Key("requests/s", "Requests that meet all their objectives / duration. The "
                                           "objectives are --slo, or their tenant's, and deadline_s for the last "
                                           "token. Null if requests have no objectives")]
    slo_attainment: Annotated[Number, Key("1", "Share of requests that meet all their objectives, including deadlines. "
                                          "Failed and rejected requests miss. A request with one output token meets "
                                          "tpot")]
    slo_attainment_by_metric: Annotated[Mapping[str, Number] | None, Key(
        "1", "Share of requests that meet each objective: ttft, tpot, e2el, and deadline if the trace has deadline_s")]
    objectives: Annotated[tuple[Judged, ...], Key(
        "1", "Each objective with name, limit [ms], value, unit of the value, and is_met. The value of a statistic "
        "such as p99_ttft is over all requests [ms]; null if too many requests have no answer. The value of ttft, tpot "
        "and e2el is the share of requests within the limit. The value of attainment is the share within all limits; "
        "its limit is --attainment. The limit is null if requests have limits of their own")] = ()
    tenants: Annotated[Mapping[str, Mapping[str, Any]] | None, Key(
        "1", "If the trace has tenants: a table for each tenant by name, most requests first, with num_requests, "
        "completed, failed, rejected, unfinished, throughputs, goodput, slo_attainment, and mean, median and p99 of "
        "TTFT, TPOT and end-to-end latency, as in the summary. With slo and objectives if --tenants gives the tenant "
        "its own", only="if the trace has tenants")] = None
    ttft: Annotated[Latency, Spread("time to first token (TTFT) of completed requests, from arrival at the API server. "
                                    "It includes the time in the API server and the way of the first token back to the "
                                    "client", keys="{}_ttft_ms")]
    tpot: Annotated[Latency, Spread("time per output token (TPOT), (last − first token) / (output tokens − 1), of "
                                    "completed requests with two or more output tokens", keys="{}_tpot_ms")]
    itl: Annotated[Latency | None, Spread("inter-token latency (ITL): all gaps between tokens as clients see them, of "
                                          "all requests. Tokens of one step arrive together",
                                          only="if it is asked for", keys="{}_itl_ms")] = None
    e2el: Annotated[Latency, Spread("end-to-end latency of completed requests, from arrival to the last token",
                                    keys="{}_e2el_ms")]
    queue: Annotated[Latency, Spread("time in the scheduler's queue until the first admission, of completed requests",
                                     keys="{}_queue_ms")]
    engine: Annotated[EngineTotals, Spread()]
    scaling: Annotated[ScalingTotals | None, Spread(only="with an autoscaler")]
    tiers: Annotated[TierTotals, Spread()]
    load: Annotated[Latency, Spread("time that completed requests waited for KV from host memory or the remote store; "
                                    "null without these tiers", keys="{}_load_ms")]
    attempts: Annotated[AttemptTotals | None, Spread(only="if clients or the router have overload options")]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Summary(Answer):
    """The summary of a replay."""

    figures: Annotated[Figures, Spread()]
    utilization: Annotated[Utilization, Spread()]
    pools: Annotated[tuple[Mapping[str, Any], ...] | None, Key(
        "1", "With --fleet: a row for each pool with its replicas, its requests, their mean TTFT and TPOT, the "
        "utilization of its GPUs, and its cost. gpu_hours, cost_usd and energy_kwh of the pools add up to the fleet's",
        only="with --fleet")] = None
    intervals: Annotated[Intervals | None, Spread(only="with --interval", keys="{}_interval")]
    would_not_start: Annotated[str | None, Key("1", "Why the engine would not start with this deployment. Null if it "
                                               "starts")] = None
    simulated_requests_per_s: Annotated[float, Key("requests/s", "Speed of the replay's loop")]
    wall_s: Annotated[float, Key("s", "Wall-clock time of the replay")]
    notes: Annotated[tuple[str, ...], Key("1", "Notes for the reader of the result, as texts")]
    deployment: Annotated[Mapping[str, Any], Key("1", "The deployment as resolved: each option, its GPUs and its "
                                                 "memory")]
    workload: Annotated[Mapping[str, Any], Key("1", "The trace's source, the rows read, kept and dropped, and the "
                                               "options of the load")]
    slo: Annotated[Mapping[str, float] | None, Key("s", "The objectives by name")]
    policy: Annotated[Mapping[str, Any], Key("1", "The scheduling as resolved: name of the policy, memory rules and "
                                             "limits")]
    versions: Annotated[Mapping[str, str], Key("1", "Versions of the planner, Python and the numeric libraries")]
    trace_sha256: Annotated[str, Key("1", "SHA-256 of the trace's bytes")]
    explanation: Annotated[Mapping[str, Any] | None, Key("1", "With --explain: phases, limits, little, work, advice, "
                                                         "and a sentence that sums them up",
                                                         only="with --explain")] = None
    replay_command: Annotated[str | None, Key("1", "Command that replays this result. Only in the output of planner "
                                              "replay and compare", only="of planner replay and compare")] = None

    @property
    def num_replicas(self) -> float:
        """Replicas that shared the load; if they came and went, the mean number paid for."""
        scaling = self.figures.scaling
        return (scaling.replicas_mean if scaling is not None else 0.0) or self.deployment.get("num_replicas") or 1.0

    def noted(self, before: Iterable[str | None], after: Iterable[str | None] = ()) -> "Summary":
        """Return the summary with more notes; None stands for no note."""
        return replace(self, notes=(*filter(None, before), *self.notes, *filter(None, after)))
