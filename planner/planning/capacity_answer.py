"""The answer of `planner capacity`: the highest rate within the objectives, how sure it is, and what it rests on."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from planner.files.keys import Key
from planner.planning.missed import Missed
from planner.planning.size_answer import Lowered
from planner.settings.objectives import Required


@dataclass(frozen=True, slots=True, kw_only=True)
class RateBracket:
    """The rates between which the objectives stop being met."""

    lower_rps: Annotated[float, Key("requests/s", "Highest rate that meets the objectives, with all tried rates below")]
    upper_rps: Annotated[float | None, Key("requests/s", "Lowest tried rate above that misses them. If no rate meets "
                                           "them: the lowest tried rate, null if requests ran alone")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A rate that was tried."""

    rate_rps: Annotated[float, Key("requests/s", "Rate")]
    is_met: Annotated[bool, Key("", "Whether all objectives are met")]
    attainment: Annotated[float, Key("1", "Share of requests within their own limits, of the worst tenant with "
                                     "--by-tenant")]
    limiting_metric: Annotated[str, Key("", "Objective that is met worst")]
    statistics_ms: Annotated[Mapping[str, float | None] | None, Key("ms", "Mean, percentiles and objectives by name "
                                                                    "(`p99_ttft`). Null if requests without an answer "
                                                                    "leave it without an end")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Horizon:
    """The capacity of the trace, or of the trace repeated."""

    num_requests: Annotated[int, Key("1", "Requests of the load")]
    capacity_rps: Annotated[float, Key("requests/s", "Capacity of that load")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Confidence:
    """Quantiles of the capacity over windows of the trace and errors of the step times."""

    p10: Annotated[float, Key("requests/s", "Rate that 90 % of the replicates serve")]
    p50: Annotated[float, Key("requests/s", "Rate that 50 % of the replicates serve")]
    p90: Annotated[float, Key("requests/s", "Rate that 10 % of the replicates serve")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingCapacity:
    """The capacity by one way of scaling."""

    scaling: Annotated[str, Key("", "Way of scaling")]
    capacity_rps: Annotated[float | None, Key("requests/s", "Capacity by it. Null if there is none")]


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterCapacity:
    """The capacity behind one router."""

    router: Annotated[str, Key("", "Router")]
    capacity_rps: Annotated[float | None, Key("requests/s", "Capacity behind it. Null if there is none")]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchedTraffic:
    """The traffic whose rate was changed."""

    source: Annotated[str, Key("", "Trace")]
    num_requests: Annotated[int, Key("1", "Requests of the trace after --limit, --start-at and --duration")]
    recorded_rps: Annotated[float, Key("requests/s", "Rate of the trace")]
    scaling: Annotated[str, Key("", "Way of scaling")]
    seed: Annotated[int, Key("1", "Seed of the draws")]


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityAnswer:
    """What `planner capacity --json` writes."""

    feasible: Annotated[bool, Key("", "Whether a rate meets the objectives")]
    lowered: Lowered = None
    missed: Annotated[tuple[Missed, ...], Key("", "Objectives that no rate meets, worst first. Empty if feasible")]
    capacity_rps: Annotated[float, Key("requests/s", "Highest rate that meets the objectives. 0 if not feasible")]
    capacity_rps_per_gpu: Annotated[float, Key("requests/s", "capacity_rps / num_gpus")]
    rate_scale: Annotated[float, Key("1", "capacity_rps / rate of the trace")]
    attainment_at_capacity: Annotated[float | None, Key("1", "Share of requests within their own limits at "
                                                        "capacity_rps. Null if not feasible")]
    limiting_metric: Annotated[str, Key("", "Objective that is met worst just above the capacity")]
    bracket: Annotated[RateBracket, Key("", "Rates between which the objectives stop being met")]
    is_monotone: Annotated[bool, Key("", "Whether every tried rate below the capacity meets the objectives and every "
                                     "one above misses them")]
    kept_above_rps: Annotated[tuple[float, ...], Key("requests/s", "Tried rates above the capacity that meet the "
                                                     "objectives")]
    missed_below_rps: Annotated[tuple[float, ...], Key("requests/s", "Tried rates below the capacity that miss the "
                                                       "objectives")]
    probes: Annotated[tuple[Probe, ...], Key("", "Rates that were tried, in ascending order")]
    slo: Annotated[Required, Key("", "Objectives")]
    attainment: Annotated[float | None, Key("1", "Share of requests that must be within their own limits. Null if "
                                            "none is required")]
    scaling: Annotated[str, Key("", "How the traffic gets another rate (--scaling)")]
    router: Annotated[str | None, Key("", "Router. Null with one replica")]
    assumptions: Annotated[tuple[str, ...], Key("", "Assumptions, a sentence each")]
    num_gpus: Annotated[int, Key("1", "GPUs of the deployment, of all replicas")]
    notes: Annotated[tuple[str, ...], Key("", "Notes, a sentence each")]
    workload: Annotated[SearchedTraffic, Key("", "Traffic whose rate was changed")]
    deployment: Annotated[Mapping[str, Any], Key("", "Resolved deployment, as in a replay's summary")]
    trace_sha256: Annotated[str, Key("", "Hash of the trace's file")]
    scalings: Annotated[tuple[ScalingCapacity, ...], Key("", "Capacity by each way of scaling, the used one first. "
                                                         "Empty if not feasible")]
    routers: Annotated[tuple[RouterCapacity, ...], Key("", "Capacity behind other routers, the used one first. Empty "
                                                       "with one replica, and if not feasible")]
    stationary: Annotated[bool | None, Key("", "Whether twice the duration gives the same capacity within 2 %. Null if "
                                           "it was not tried")]
    horizon: Annotated[tuple[Horizon, ...], Key("", "Capacity by length of the load")]
    confidence: Annotated[Confidence | None, Key("", "Quantiles of the capacity over the replicates. Null with "
                                                 "--replicates 0, and if not feasible")]
    replay_command: Annotated[str | None, Key("", "Command that replays the trace at capacity_rps. Null if not "
                                              "feasible")] = None
    sentence: Annotated[str | None, Key("", "What the lightest load misses", only="if not feasible")] = None
