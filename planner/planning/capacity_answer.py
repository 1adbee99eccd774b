"""The answer of `planner capacity`: the largest load within the objectives, its certainty, and its assumptions."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from planner.catalog.pooling import RATES
from planner.files.keys import Key
from planner.planning.bracket import RATE, UNKNOWNS, Unknown
from planner.planning.missed import Missed
from planner.planning.size_answer import Lowered
from planner.results.answers import Answer
from planner.settings.objectives import Required

UNIT = "requests/s, users or sessions"  # the unit of `of`
OF_RATES = {"concurrency": "", "sessions": ""}  # keys of a rate alone
OF_USERS = {"requests": ""}
CAPACITY = {"requests": "capacity_rps", "concurrency": "users", "sessions": "users"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadBracket:
    """The loads between which the objectives stop being met."""

    lower: Annotated[float, Key(UNIT, "Largest load that meets the objectives, with all tried loads below",
                                names={"requests": "lower_rps"})]
    upper: Annotated[float | None, Key(UNIT, "Smallest tried load above that misses them. If no load meets them: the "
                                       "lowest tried load, null if requests ran alone",
                                       names={"requests": "upper_rps"})]


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A load that was tried."""

    load: Annotated[float, Key(UNIT, "Load", names=CAPACITY | {"requests": "rate_rps"})]
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
    capacity: Annotated[float, Key(UNIT, "Capacity of that load", names=CAPACITY)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Confidence:
    """Quantiles of the capacity over parts of the trace and errors of the step times."""

    p10: Annotated[float, Key(UNIT, "Load that 90 % of the replicates serve")]
    p50: Annotated[float, Key(UNIT, "Load that 50 % of the replicates serve")]
    p90: Annotated[float, Key(UNIT, "Load that 10 % of the replicates serve")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingCapacity:
    """The capacity by one way of scaling."""

    scaling: Annotated[str, Key("", "Way of scaling")]
    capacity: Annotated[float | None, Key(UNIT, "Capacity by it. Null if there is none", names=CAPACITY)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterCapacity:
    """The capacity behind one router."""

    router: Annotated[str, Key("", "Router")]
    capacity: Annotated[float | None, Key(UNIT, "Capacity behind it. Null if there is none", names=CAPACITY)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchedTraffic:
    """The traffic whose amount was changed."""

    source: Annotated[str, Key("", "Trace")]
    num_requests: Annotated[int, Key("1", "Requests of the trace after --limit, --start-at and --duration")]
    recorded_rps: Annotated[float, Key("requests/s", "Rate of the trace", names=OF_RATES)] = 0.0
    scaling: Annotated[str, Key("", "Way of scaling", names=OF_RATES)] = ""
    num_sessions: Annotated[int | None, Key("1", "Sessions of the requests. Null with --of concurrency",
                                            names=OF_USERS)] = None
    seed: Annotated[int, Key("1", "Seed of the draws")]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CapacityAnswer(Answer):
    """The output of `planner capacity --json`."""

    of: Annotated[str, Key("", "Unit of the load: requests (a second), concurrency (users: requests in flight) or "
                           "sessions (open sessions)")] = "requests"
    feasible: Annotated[bool, Key("", "Whether a load meets the objectives")]
    lowered: Lowered = None
    missed: Annotated[tuple[Missed, ...], Key("", "Objectives that no load meets, with their best values, worst first. "
                                              "Empty if feasible")]
    capacity: Annotated[float, Key(UNIT, "Largest load that meets the objectives. 0 if not feasible",
                                   names={of: f"capacity_{of}" for of in UNKNOWNS} | {"requests": "capacity_rps"})]
    capacity_per_gpu: Annotated[float, Key(UNIT, "Capacity / num_gpus", names={"requests": "capacity_rps_per_gpu"})]
    rate_scale: Annotated[float, Key("1", "capacity_rps / rate of the trace", names=OF_RATES)] = 0.0
    request_throughput: Annotated[float | None, Key("requests/s", "Completed requests / duration at capacity. Null "
                                                    "if not feasible", names=OF_USERS)] = None
    attainment_at_capacity: Annotated[float | None, Key("1", "Share of requests within their own limits at "
                                                        "capacity. Null if not feasible")]
    limiting_metric: Annotated[str, Key("", "Objective that is met worst just above the capacity")]
    bracket: Annotated[LoadBracket, Key("", "Loads between which the objectives stop being met")]
    is_monotone: Annotated[bool, Key("", "Whether every tried load below the capacity meets the objectives and every "
                                     "one above misses them")]
    kept_above: Annotated[tuple[float, ...], Key(UNIT, "Tried loads above the capacity that meet the objectives",
                                                 names={"requests": "kept_above_rps"})]
    missed_below: Annotated[tuple[float, ...], Key(UNIT, "Tried loads below the capacity that miss the objectives",
                                                   names={"requests": "missed_below_rps"})]
    probes: Annotated[tuple[Probe, ...], Key("", "Loads whose replay was tried to its end, in ascending order")]
    slo: Annotated[Required, Key("", "Objectives")]
    attainment: Annotated[float | None, Key("1", "Share of requests that must be within their own limits. Null if "
                                            "none is required")]
    scaling: Annotated[str, Key("", "How the traffic gets another rate (--scaling)", names=OF_RATES)] = ""
    think_time_s: Annotated[float | None, Key("s", "Median pause of a user between an answer and the next request. 0 "
                                              "without a pause; null if the trace's gaps count instead",
                                              names=OF_USERS)] = None
    router: Annotated[str | None, Key("", "Router. Null with one replica")]
    assumptions: Annotated[tuple[str, ...], Key("", "Assumptions, a sentence each")]
    num_gpus: Annotated[int, Key("1", "GPUs of the deployment, of all replicas")]
    notes: Annotated[tuple[str, ...], Key("", "Notes, a sentence each")]
    workload: Annotated[SearchedTraffic, Key("", "Traffic whose amount was changed")]
    deployment: Annotated[Mapping[str, Any], Key("", "Resolved deployment, as in a replay's summary")]
    trace_sha256: Annotated[str, Key("", "Hash of the trace's file")]
    scalings: Annotated[tuple[ScalingCapacity, ...], Key("", "Capacity by each way of scaling, the used one first. "
                                                         "Empty if not feasible", names=OF_RATES)] = ()
    routers: Annotated[tuple[RouterCapacity, ...], Key("", "Capacity behind other routers, the used one first. Empty "
                                                       "with one replica, and if not feasible")] = ()
    stationary: Annotated[bool | None, Key("", "Whether twice the load's length gives the same capacity within 2 %. "
                                           "Null if it was not tried")]
    horizon: Annotated[tuple[Horizon, ...], Key("", "Capacity by length of the load")]
    confidence: Annotated[Confidence | None, Key("", "Quantiles of the capacity over the replicates. Null with "
                                                 "--replicates 0, and if not feasible")]
    replay_command: Annotated[str | None, Key("", "Command that replays the trace at the capacity. Null if not "
                                              "feasible")] = None
    sentence: Annotated[str | None, Key("", "What the lightest load misses", only="if not feasible")] = None

    @property
    def unknown(self) -> Unknown:
        """The unknown of the search."""
        of_results = RATES.get(self.deployment.get("pooling")) if self.is_rate else None
        return UNKNOWNS[self.of] if of_results is None else replace(RATE, unit=of_results)

    @property
    def is_rate(self) -> bool:
        """Whether the capacity is a rate."""
        return UNKNOWNS[self.of] == RATE
