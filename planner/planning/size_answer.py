"""The answer of `planner size`: the cheapest fleet, the one of fewest GPUs, all others, and their assumptions."""

from dataclasses import dataclass
from typing import Annotated

from planner.catalog.prices import ApiPrice, GpuPrice
from planner.files.keys import Key, Spread
from planner.planning.growth_answer import Growth
from planner.planning.missed import Missed, Reached
from planner.planning.sensitivity_answer import Sensitivity
from planner.planning.spot_answer import SpotAnswer
from planner.planning.survival_answer import Survival
from planner.results.answers import Answer
from planner.settings.objectives import Required

PerMonth = Annotated[float, Key("USD", "Price of the GPUs over 730 hours")]
Lowered = Annotated[str | None, Key("", "Why the context limit is lower than the engine's default. Null if it is not")]
Headroom = Annotated[float | None, Key("1", "Growth of the rate until the objectives are missed, without spares. Of "
                                       "fleets other than the cheapest, 9 means 9 or more. Null if there is no limit")]
PerYear = Annotated[float, Key("USD", "Price of the GPUs over 8,760 hours")]


@dataclass(frozen=True, slots=True, kw_only=True)
class KindNames:
    """The names that distinguish a kind of replica from the others."""

    gpu: Annotated[str, Key("", "GPU, of replicas that prefill only if a fleet has such")]
    tensor_parallel_size: Annotated[int, Key("1", "GPUs that share each layer")]
    data_parallel_size: Annotated[int, Key("1", "Attention ranks of a replica; 1 without --data-parallel-attention")]
    quantization: Annotated[str, Key("", "Weight format")]
    decode_gpu: Annotated[str | None, Key("", "GPU of decode replicas. Null if it is the same kind of replica")]
    decode_tensor_parallel_size: Annotated[int | None, Key("1", "GPUs that share each layer of decode replicas. Null "
                                                           "if it is the same kind of replica")]

    @property
    def words(self) -> str:
        """The kind in words, as in "1 × h100-sxm bf16"."""
        decode = f" + {self.decode_tensor_parallel_size} × {self.decode_gpu}" if self.decode_gpu else ""
        return f"{self.tensor_parallel_size} × {self.gpu}{decode} {self.quantization}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosestKind:
    """The kind of replica that misses the objectives by least."""

    gpu: Annotated[str, Key("", "GPU")]
    tensor_parallel_size: Annotated[int, Key("1", "GPUs that share each layer")]
    quantization: Annotated[str, Key("", "Weight format")]
    decode_gpu: Annotated[str | None, Key("", "GPU of decode replicas. Null if it is the same kind of replica")]
    decode_tensor_parallel_size: Annotated[int | None, Key("1", "GPUs that share each layer of decode replicas. Null "
                                                           "if it is the same kind of replica")]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulePart:
    """A part of the time with its own number of replicas."""

    start_s: Annotated[float, Key("s", "Start, from the first request or as in the file of rates")]
    duration_s: Annotated[float, Key("s", "Length")]
    num_requests: Annotated[int | None, Key("1", "Requests that arrive", only="with --period")] = None
    rate_rps: Annotated[float, Key("requests/s", "Mean rate")]
    num_replicas: Annotated[int, Key("1", "Replicas, with spares")]
    num_gpus: Annotated[int, Key("1", "GPUs, with spares")]
    served_rps: Annotated[float | None, Key("requests/s", "Highest rate that these replicas were shown to serve",
                                            only="with --rate-series")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A number of replicas for each part of the time."""

    parts: Annotated[tuple[SchedulePart, ...], Key("", "Parts in order")]
    peak_rps: Annotated[float | None, Key("requests/s", "Highest rate of a window", only="with --rate-series")] = None
    mean_rps: Annotated[float | None, Key("requests/s", "Mean rate of the windows", only="with --rate-series")] = None
    num_replicas_at_mean: Annotated[int | None, Key("1", "Replicas for the mean rate, with spares",
                                                    only="with --rate-series")] = None
    gpu_hours: Annotated[float, Key("h", "GPU-hours on the schedule")]
    static_gpu_hours: Annotated[float, Key("h", "GPU-hours with one number of replicas all the time")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """A fleet that meets the objectives, with the fewest replicas of its kind."""

    kind: Annotated[KindNames, Spread()]
    lowered: Lowered = None
    command: Annotated[str, Key("", "Command that launches a replica")]
    command_lacks: Annotated[tuple[str, ...], Key(
        "", "Options that the engine's command has no flag for, and weights that it needs")]
    decode_command: Annotated[str | None, Key("", "Command that launches a decode replica. Null without prefill apart")]
    num_replicas: Annotated[int, Key("1", "Replicas, with spares")]
    prefill_replicas: Annotated[int, Key("1", "Replicas of them that prefill only, with spares. 0 if all do both")]
    num_spare: Annotated[int, Key("1", "Spare replicas (--spare), of each kind")]
    num_gpus: Annotated[int, Key("1", "GPUs, with spares")]
    cost_usd_per_hour: Annotated[float, Key("USD/h", "Price of the GPUs")]
    cost_usd_per_month: PerMonth
    cost_usd_per_year: PerYear
    instances: Annotated[str | None, Key("", "Instances of --cloud that hold the replicas, and GPUs that stay idle",
                                         only="with --cloud")] = None
    cached_input_share: Annotated[float | None, Key("1", "Share of the input tokens that the replicas find in their "
                                                    "prefix cache", only="with --api")] = None
    price_usd_per_gpu_hour: Annotated[float, Key("USD/h", "cost_usd_per_hour / num_gpus")]
    cost_usd_per_million_output_tokens: Annotated[float | None, Key(
        "USD", "Price per million output tokens at the mean rate, of all replicas, with spares. Null with a pooling "
               "model")]
    cost_usd_per_thousand_results: Annotated[float | None, Key(
        "USD", "Price per 1,000 embeddings or pairs at the mean rate. Null if the model generates tokens")] = None
    power_kw: Annotated[float, Key("kW", "Mean power of the GPUs, spares idle")]
    attainment: Annotated[float, Key("1", "Share of requests within their own limits")]
    limiting_metric: Annotated[str, Key("", "Objective that one replica less misses; none if no fleet is smaller")]
    reached: Annotated[tuple[Reached, ...], Key("", "Each objective with the value that the fleet reaches")]
    p99_ttft_ms: Annotated[float | None, Key("ms", "99th percentile of TTFT")]
    p99_tpot_ms: Annotated[float | None, Key("ms", "99th percentile of TPOT. Null if no request has two output tokens")]
    busy_fraction: Annotated[float, Key("1", "Share of time in which a replica runs a step")]
    priors: Annotated[tuple[str, ...], Key("", "Operators whose kernels nobody measured on the GPU")]
    notes: Annotated[tuple[str, ...], Key("", "Notes, a sentence each")]
    headroom: Headroom
    headroom_precision: Annotated[float, Key("1", "Share of the rate by which headroom may be off: 0.005 for the "
                                                  "cheapest fleet, whose headroom is that of planner capacity; 0.02 "
                                                  "for the others, on the load of num_replicas, and 0.1 for those at "
                                                  "more than twice its price")] = 0.0
    step_error: Annotated[float | None, Key("1", "Share by which steps may take longer than predicted: 90 % of the "
                                            "measured runs that were left out of the fit were within. Null if the "
                                            "error is not known")] = None
    covers_error: Annotated[bool | None, Key("", "Whether the fleet meets the objectives if steps take longer by "
                                             "step_error. Null if the error is not known")] = None
    stationary: Annotated[bool | None, Key("", "Whether a longer load needs as many replicas. Null if it was not "
                                           "tried")]
    precision: Annotated[float, Key("1", "Share by which num_replicas may be too high, and headroom too low. Above 0 "
                                         "only for dozens of replicas at over three times the price of the cheapest "
                                         "fleet")] = 0.0
    trace_copies: Annotated[int, Key("1", "Repeats of the trace in the load", only="if a fleet meets the objectives")]
    schedule: Annotated[Schedule | None, Key("", "Replicas over time. Null without --period and --rate-series, and if "
                                             "no number of replicas serves a part")]
    schedule_reason: Annotated[str | None, Key("", "Why there is no schedule")]
    survival: Annotated[Survival | None, Key("", "Worst failure of a unit. Null without --survive")] = None
    replay_command: Annotated[str | None, Key("", "Command that replays the load on this fleet, without spares. Null "
                                              "if no options of a replay describe it: several rates")]
    replay_cost_usd_per_million_output_tokens: Annotated[float | None, Key(
        "USD", "cost_usd_per_million_output_tokens of replay_command: without spares, at replay_rate, at the catalog's "
               "prices. Null in answers of earlier releases")] = None
    replay_rate: Annotated[float | None, Key("requests/s", "request_throughput of replay_command: above the mean rate "
                                             "if only the busiest part of the load is replayed")] = None

    @property
    def replicas(self) -> str:
        """The number of replicas in words; with prefill apart, the number of each kind."""
        decode = self.num_replicas - self.prefill_replicas
        return f"{self.prefill_replicas:,} + {decode:,}" if self.prefill_replicas else f"{decode:,}"

    @property
    def is_pooled(self) -> bool:
        """Whether the fleet returns embeddings or scores."""
        return self.cost_usd_per_thousand_results is not None

    @property
    def unit_cost(self) -> float:
        """The price per million output tokens, or per 1,000 results of a pooling model [USD]."""
        return self.cost_usd_per_million_output_tokens or self.cost_usd_per_thousand_results or 0.0

    @property
    def unit_words(self) -> str:
        """The unit of that price in words."""
        return "per 1,000 embeddings or pairs" if self.is_pooled else "per million output tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnableFleet:
    """A kind of replica of which no number meets the objectives, or that cannot be deployed."""

    kind: Annotated[KindNames, Spread()]
    reason: Annotated[str, Key("", "Why the kind cannot serve the load")]
    missed: Annotated[tuple[Missed, ...], Key("", "Objectives that it misses, worst first. Empty if it cannot be "
                                              "deployed")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A fleet on a price term: a row of the table of options."""

    option: Annotated[str, Key("", "GPUs and term in words, as in 3 × h100-sxm on demand")]
    kind: Annotated[KindNames, Spread()]
    term: Annotated[str, Key("", "on demand, reserved, spot, or reserved + on demand")]
    is_scheduled: Annotated[bool, Key("", "Whether the GPUs on demand follow the schedule")]
    num_gpus: Annotated[float, Key("1", "GPUs, with spares; on the schedule in the mean")]
    cost_usd_per_hour: Annotated[float, Key("USD/h", "Price of the GPUs")]
    cost_usd_per_month: PerMonth
    cost_usd_per_year: PerYear
    cost_usd_per_million_output_tokens: Annotated[float | None, Key(
        "USD", "Price of the GPUs per million output tokens at the mean rate. Null with a pooling model")]
    power_kw: Annotated[float, Key("kW", "Mean power of the GPUs, all of them on")]
    power_usd_per_month: Annotated[float | None, Key("USD", "Price of the power over 730 hours. Null without "
                                                     "--power-price")]
    total_usd_per_month: Annotated[float, Key("USD", "Price of GPUs and power over 730 hours")]
    total_usd_per_year: Annotated[float, Key("USD", "Price of GPUs and power over 8,760 hours")]
    co2_kg_per_month: Annotated[float | None, Key("kg", "CO₂ of the power over 730 hours. Null without --co2-per-kwh")]
    headroom: Headroom
    attainment: Annotated[float, Key("1", "Share of requests within their own limits")]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSize:
    """The size of the cheapest fleet's kind under another assumption."""

    num_replicas: Annotated[int | None, Key("1", "Replicas, with spares. Null if it takes more than "
                                            "more_than_replicas")]
    num_gpus: Annotated[int | None, Key("1", "GPUs. Null if it takes more than more_than_replicas replicas")]
    more_than_replicas: Annotated[int | None, Key("1", "Replicas at which the search ended without an answer")]


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterSize:
    """The size behind one router."""

    router: Annotated[str, Key("", "Router")]
    size: Annotated[FleetSize, Spread()]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingSize:
    """The size by one way of scaling."""

    scaling: Annotated[str, Key("", "Way of scaling; poisson if the arrivals were drawn")]
    size: Annotated[FleetSize, Spread()]


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedTraffic:
    """The traffic that the fleet serves."""

    source: Annotated[str, Key("", "Trace")]
    num_requests: Annotated[int, Key("1", "Requests of the load, about")]
    num_recorded: Annotated[int, Key("1", "Requests of the log, which the load repeats or thins")]
    rate_rps: Annotated[float | None, Key("requests/s", "Rate of the load; with --rate-series of its highest window. "
                                          "Null if users are given")]
    recorded_rps: Annotated[float | None, Key("requests/s", "Rate of the trace. Null if it has no arrival times, or if "
                                              "users are given")]
    users: Annotated[int | None, Key("1", "Users at once: requests in flight (--max-concurrency) or open sessions "
                                     "(--max-sessions). Null if a rate is given")]
    seed: Annotated[int, Key("1", "Seed of the draws")]


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitPool:
    """A pool of a fleet that is divided by the prompt length."""

    name: Annotated[str, Key("", "Name in the fleet's file")]
    accepts: Annotated[str, Key("", "Condition of its requests, with the threshold")]
    gpu: Annotated[str, Key("", "GPU")]
    tensor_parallel_size: Annotated[int, Key("1", "GPUs that share each layer")]
    max_model_len: Annotated[int, Key("tokens", "Context limit")]
    num_requests: Annotated[int, Key("1", "Requests of the load that it serves")]
    num_replicas: Annotated[int, Key("1", "Replicas, with spares")]
    num_gpus: Annotated[int, Key("1", "GPUs, with spares")]
    cost_usd_per_hour: Annotated[float, Key("USD/h", "Price of the GPUs")]
    command: Annotated[str, Key("", "Command that launches a replica")]
    lowered: Lowered = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitFleet:
    """The cheapest fleet of two pools with a threshold that meets the objectives."""

    threshold_tokens: Annotated[int, Key("tokens", "Threshold of the prompt length")]
    pools: Annotated[tuple[SplitPool, ...], Key("", "Pools, in the order of the fleet's file")]
    num_gpus: Annotated[int, Key("1", "GPUs, with spares")]
    cost_usd_per_hour: Annotated[float, Key("USD/h", "Price of the GPUs")]
    cost_usd_per_month: PerMonth
    attainment: Annotated[float, Key("1", "Share of requests within their own limits")]
    p99_ttft_ms: Annotated[float | None, Key("ms", "99th percentile of TTFT")]
    p99_tpot_ms: Annotated[float | None, Key("ms", "99th percentile of TPOT. Null if no request has two output tokens")]
    reached: Annotated[tuple[Reached, ...], Key("", "Each objective with the value that the fleet reaches")] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """A threshold that was tried."""

    threshold_tokens: Annotated[int, Key("tokens", "Threshold of the prompt length")]
    replicas: Annotated[str | None, Key("", "Replicas of each pool, as in 5 + 2. Null if none meet the objectives")]
    num_gpus: Annotated[int | None, Key("1", "GPUs. Null if no fleet meets the objectives")]
    cost_usd_per_hour: Annotated[float | None, Key("USD/h", "Price of the GPUs. Null if no fleet meets the objectives")]
    reason: Annotated[str | None, Key("", "Why no fleet with this threshold meets the objectives")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdAnswer:
    """Two pools divided by the prompt length, against the best single pool."""

    fleet: Annotated[SplitFleet | None, Key("", "Cheapest fleet of two pools. Null if no threshold meets the "
                                            "objectives")]
    single_cost_usd_per_hour: Annotated[float | None, Key("USD/h", "Price of the cheapest fleet with one pool for all "
                                                          "requests. Null if there is none")]
    saving: Annotated[float | None, Key("1", "Share of that price that two pools save; negative if they cost more. "
                                        "Null if one of the fleets is missing")]
    thresholds: Annotated[tuple[Threshold, ...], Key("", "Thresholds that were tried, in order")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCost:
    """The cheapest fleet beside one hosted API."""

    price: Annotated[ApiPrice, Spread()]
    usd_per_month: Annotated[float, Key("USD", "Price of the traffic at the API over 730 hours, at its mean rate")]
    usd_per_million_tokens: Annotated[float, Key("USD", "That price per million tokens, input and output")]
    fleet_usd_per_month: Annotated[float, Key("USD", "Price of the fleet over 730 hours")]
    fleet_usd_per_million_tokens: Annotated[float, Key("USD", "That price per million tokens, input and output")]
    break_even_scale: Annotated[float | None, Key("1", "Lowest multiple of the traffic at which a fleet costs at most "
                                                  "as much as the API. Null if none does")]
    break_even_mean_rps: Annotated[float | None, Key("requests/s", "Mean rate at that multiple")]
    break_even_peak_rps: Annotated[float | None, Key("requests/s", "Rate of the busiest minute, or of the highest "
                                                     "window of --rate-series, at that multiple")]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SizeAnswer(Answer):
    """The output of `planner size --json`."""

    cheapest: Annotated[Fleet | None, Spread("The cheapest fleet of equal replicas. Null if none "
                                                     "meets the objectives")]
    feasible: Annotated[bool, Key("", "Whether a fleet meets the objectives")]
    missed: Annotated[tuple[Missed, ...], Key("", "Objectives that the closest kind misses, worst first. Empty if "
                                              "feasible")]
    fewest_gpus: Annotated[Fleet | None, Key("", "Fleet with the fewest GPUs")]
    alternatives: Annotated[tuple[Fleet | UnableFleet, ...], Key("", "All kinds: able fleets, cheapest first, "
                                                                 "then the others")]
    options: Annotated[tuple[Offer, ...], Key("", "Able fleets on each price term, by total_usd_per_month or --sort")]
    sorted_by: Annotated[str | None, Key("", "Column of --sort. Null without it")]
    sensitivity: Annotated[Sensitivity | None, Key("", "What the choice rests on. Null without --sensitivity")]
    growth: Annotated[Growth | None, Key("", "Cheapest path over the months. Null without --growth")]
    spot: Annotated[SpotAnswer | None, Key("", "Share on spot instances. Null without --evictions")] = None
    routers: Annotated[tuple[RouterSize, ...], Key("", "Size behind each tried router, the used one first")]
    routers_not_tried: Annotated[tuple[str, ...], Key("", "Routers that were not tried")]
    better_router: Annotated[str | None, Key("", "Tried router with over 9 % fewer GPUs. Null if there is none")]
    scalings: Annotated[tuple[ScalingSize, ...], Key("", "Size by each way of scaling, the used one first")]
    notes: Annotated[tuple[str, ...], Key("", "Notes of the cheapest fleet and of the comparisons, a sentence each")]
    priors: Annotated[tuple[str, ...], Key("", "Operators of the cheapest fleet whose kernels nobody measured on the "
                                           "GPU")]
    num_spare: Annotated[int, Key("1", "Spare replicas (--spare), of each kind")]
    slo: Annotated[Required, Key("", "Objectives")]
    request_rate: Annotated[float | None, Key("requests/s", "Rate of the load; with --rate-series of its highest "
                                              "window. Null if users are given")]
    scaling: Annotated[str, Key("", "How the traffic gets its rate; poisson if the arrivals were drawn. If users are "
                                "given: concurrency or sessions")]
    router: Annotated[str, Key("", "Router")]
    assumptions: Annotated[tuple[str, ...], Key("", "Assumptions, a sentence each")]
    workload: Annotated[SizedTraffic, Key("", "Traffic that the fleet serves")]
    trace_sha256: Annotated[str, Key("", "Hash of the trace's file")]
    doubts: Annotated[tuple[str, ...], Key("", "Reasons why the size of the cheapest fleet may not hold: the error of "
                                           "its prediction, and a sample that is too small. A sentence each")] = ()
    closest: Annotated[ClosestKind | None, Key("", "Kind that misses the objectives by least",
                                               only="if no fleet of equal replicas meets the objectives")] = None
    prices: Annotated[tuple[GpuPrice, ...], Key("", "Prices of the GPUs of all able fleets, with source and date")] = ()
    apis: Annotated[tuple[ApiCost, ...] | None, Key("", "Cheapest fleet beside hosted APIs, the cheapest API first",
                                                    only="with --api")] = None
    split: Annotated[ThresholdAnswer | None, Key("", "Two pools divided by the prompt length, against one pool",
                                                 only="with --fleet")] = None
