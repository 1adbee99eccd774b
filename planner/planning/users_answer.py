"""The answer of `planner capacity --of concurrency` or `--of sessions`: the most users within the objectives."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from planner.files.keys import Key
from planner.planning.missed import Missed
from planner.planning.size_answer import Lowered
from planner.settings.objectives import Required

UNIT = "users"  # requests in flight, or open sessions


@dataclass(frozen=True, slots=True, kw_only=True)
class UserBracket:
    """The numbers of users between which the objectives stop being met."""

    lower: Annotated[int, Key(UNIT, "Largest number that meets the objectives, with all tried numbers below")]
    upper: Annotated[int | None, Key(UNIT, "Smallest tried number above that misses them. 1 if no number meets them")]


@dataclass(frozen=True, slots=True, kw_only=True)
class UserProbe:
    """A number of users that was tried."""

    users: Annotated[int, Key(UNIT, "Number")]
    is_met: Annotated[bool, Key("", "Whether all objectives are met")]
    attainment: Annotated[float, Key("1", "Share of requests within their own limits, of the worst tenant with "
                                     "--by-tenant")]
    limiting_metric: Annotated[str, Key("", "Objective that is met worst")]
    statistics_ms: Annotated[Mapping[str, float | None] | None, Key("ms", "Mean, percentiles and objectives by name "
                                                                    "(`p99_ttft`). Null if requests without an answer "
                                                                    "leave it without an end")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UserHorizon:
    """The most users of the trace, or of the trace repeated."""

    num_requests: Annotated[int, Key("1", "Requests of the load")]
    users: Annotated[int, Key(UNIT, "Most users of that load")]


@dataclass(frozen=True, slots=True, kw_only=True)
class UserConfidence:
    """Quantiles of the most users over parts of the trace and errors of the step times."""

    p10: Annotated[float, Key(UNIT, "Number that 90 % of the replicates serve")]
    p50: Annotated[float, Key(UNIT, "Number that 50 % of the replicates serve")]
    p90: Annotated[float, Key(UNIT, "Number that 10 % of the replicates serve")]


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterUsers:
    """The most users behind one router."""

    router: Annotated[str, Key("", "Router")]
    users: Annotated[int | None, Key(UNIT, "Most users behind it. Null if there is none")]


@dataclass(frozen=True, slots=True, kw_only=True)
class UserTraffic:
    """The requests that users send."""

    source: Annotated[str, Key("", "Trace")]
    num_requests: Annotated[int, Key("1", "Requests after the load options")]
    num_sessions: Annotated[int | None, Key("1", "Sessions of them. Null with --of concurrency")]
    seed: Annotated[int, Key("1", "Seed of the draws")]


@dataclass(frozen=True, slots=True, kw_only=True)
class UsersAnswer:
    """What `planner capacity --of concurrency --json` and `--of sessions --json` write."""

    of: Annotated[str, Key("", "What users are: concurrency (requests in flight) or sessions (open sessions)")]
    feasible: Annotated[bool, Key("", "Whether one user meets the objectives")]
    lowered: Lowered = None
    missed: Annotated[tuple[Missed, ...], Key("", "Missed objectives with their best values, worst first. Empty if "
                                              "feasible")]
    capacity_per_gpu: Annotated[float, Key(UNIT, "Capacity / num_gpus")]
    request_throughput: Annotated[float | None, Key("requests/s", "Completed requests / duration at capacity. Null "
                                                    "if not feasible")]
    attainment_at_capacity: Annotated[float | None, Key("1", "Share of requests within their own limits at "
                                                        "capacity. Null if not feasible")]
    limiting_metric: Annotated[str, Key("", "Objective that is met worst just above the capacity")]
    bracket: Annotated[UserBracket, Key("", "Numbers between which the objectives stop being met")]
    is_monotone: Annotated[bool, Key("", "Whether every tried number below the capacity meets the objectives and every "
                                     "one above misses them")]
    kept_above: Annotated[tuple[int, ...], Key(UNIT, "Tried numbers above the capacity that meet the objectives")]
    missed_below: Annotated[tuple[int, ...], Key(UNIT, "Tried numbers below the capacity that miss the objectives")]
    probes: Annotated[tuple[UserProbe, ...], Key("", "Numbers that were tried, in ascending order")]
    slo: Annotated[Required, Key("", "Objectives")]
    attainment: Annotated[float | None, Key("1", "Share of requests that must be within their own limits. Null if "
                                            "none is required")]
    think_time_s: Annotated[float | None, Key("s", "Median pause of a user between an answer and the next request. 0 "
                                              "without a pause; null if the trace's gaps count instead")]
    router: Annotated[str | None, Key("", "Router. Null with one replica")]
    assumptions: Annotated[tuple[str, ...], Key("", "Assumptions, a sentence each")]
    num_gpus: Annotated[int, Key("1", "GPUs of the deployment, of all replicas")]
    notes: Annotated[tuple[str, ...], Key("", "Notes, a sentence each")]
    workload: Annotated[UserTraffic, Key("", "Requests that users send")]
    deployment: Annotated[Mapping[str, Any], Key("", "Resolved deployment, as in a replay's summary")]
    trace_sha256: Annotated[str, Key("", "Hash of the trace's file")]
    routers: Annotated[tuple[RouterUsers, ...], Key("", "Most users behind other routers, the used one first. Empty "
                                                    "with one replica, and if not feasible")]
    stationary: Annotated[bool | None, Key("", "Whether twice the requests give the same number within 2 %. Null if it "
                                           "was not tried")]
    horizon: Annotated[tuple[UserHorizon, ...], Key("", "Most users by length of the load")]
    confidence: Annotated[UserConfidence | None, Key("", "Quantiles of the most users over the replicates. Null with "
                                                     "--replicates 0, and if not feasible")]
    replay_command: Annotated[str | None, Key("", "Command that replays these users. Null if not feasible")] = None
    sentence: Annotated[str | None, Key("", "What one user misses", only="if not feasible")] = None
    capacity_concurrency: Annotated[int | None, Key(UNIT, "Most requests in flight within the objectives. 0 if not "
                                                    "feasible", only="with --of concurrency")] = None
    capacity_sessions: Annotated[int | None, Key(UNIT, "Most open sessions within the objectives. 0 if not feasible",
                                                 only="with --of sessions")] = None

    @property
    def capacity(self) -> int:
        """The most users within the objectives; 0 if there is no such number."""
        return (self.capacity_concurrency if self.capacity_sessions is None else self.capacity_sessions) or 0
