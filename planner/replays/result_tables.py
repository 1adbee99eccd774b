"""Tables of a replay: its requests, its steps and its schedule."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from planner.deployment.deploy import Deployment, pools_of
from planner.deployment.roofs import step_roofs
from planner.errors import UsageError
from planner.files.writing import write_atomically
from planner.loop.rows import ADAPTERS, BLOCKS, NOBODY_WAITS, PLAN, SEATS, TOKENS
from planner.loop.state import engine_state as st
from planner.replays.attempts import STATUS, Attempts
from planner.replays.driver import ReplayRecords
from planner.replays.reasons import reasons, why_never
from planner.replays.scaling_record import Scaling
from planner.settings.objectives import LIMIT
from planner.steptime.by_term import step_terms
from planner.traces import Trace
from planner.traces.shaping.tenants import Tenants, own_limits_s

STOPPED_BY = {  # why the head of the queue is not in a step: there are no more of these, or the policy leaves it out
    NOBODY_WAITS: None, SEATS: "max_num_seqs", TOKENS: "token_budget", BLOCKS: "kv_cache", PLAN: "policy",
    ADAPTERS: "max_loras",
}


class Replica(NamedTuple):
    """The totals of one replica."""

    engine: Any  # st.ENGINE
    settings: Any  # st.SETTINGS
    links: Any  # entries.LINK, to its KV tiers


@dataclass(frozen=True, kw_only=True)
class ReplayResult:
    """A replay's outcome. Times of requests are `None` in the tables if the request has none.

    Parameters
    ----------
    trace, deployment : the replayed trace and its deployment.
    records : the outcome, by rows of the trace.
    replicas : the totals and the settings of each, in order.
    num_replicas : engines that shared the trace [1].
    replica : which of them took each request, shape [num_requests]; None with one alone.
    scaling : how the replicas came and went if an autoscaler was at work; `num_replicas` then is the most that there
        may be. None elsewhere.
    num_followers : requests that were sent when earlier ones had left [1].
    handover : if some prefill and others decode, columns of the table of requests: `decode_replica`,
        `prefilled_at_s`, when its prompt was computed, and `handover_s`, from then until its decode replica has
        the KV; None elsewhere.
    attempts : of the requests, if clients or the router's gateway have rules for overload; None elsewhere.
    tenants : their quotas and objectives, if a file gives them.
    """

    trace: Trace
    deployment: Deployment
    records: ReplayRecords
    replicas: tuple[Replica, ...]
    num_replicas: int = 1
    replica: NDArray[np.int32] | None = None
    num_followers: int = 0
    handover: Mapping[str, NDArray[Any]] | None = None
    scaling: Scaling | None = None
    attempts: Attempts | None = None
    tenants: Tenants | None = None

    def mean_replicas(self, duration_s: float) -> float:
        """Return the replicas that are paid for, in the mean over the replay's duration [1]."""
        return self.num_replicas if self.scaling is None else self.scaling.mean_replicas(duration_s)

    @property
    def duration_s(self) -> float:
        """Time from the first arrival to the last departure [s]."""
        requests = self.records.requests
        if len(requests) == 0:
            return 0.0
        return float(np.nanmax(requests.finished_s) - np.nanmin(requests.arrival_s))

    @property
    def has_tiers(self) -> bool:
        """Whether some replica has KV tiers."""
        return any(replica.settings.has_tiers for replica in self.replicas)

    @property
    def times_s(self) -> dict[str, NDArray[np.float64]]:
        """TTFT, TPOT and end-to-end latency by the names of objectives, shape [num_requests] each [s].

        Requests' own limits are there too, as `objectives.judge` takes them.
        """
        own_s = own_limits_s(self.trace, self.tenants)
        return {"ttft": self.ttft_s, "tpot": self.tpot_s, "e2el": self.e2e_s,
                **{f"{metric}{LIMIT}": limits_s for metric, limits_s in own_s.items()}}

    @property
    def ttft_s(self) -> NDArray[np.float64]:
        """Arrival to first token, shape [num_requests]; NaN without one."""
        requests = self.records.requests
        return np.asarray(requests.first_token_s - requests.arrival_s)

    @property
    def e2e_s(self) -> NDArray[np.float64]:
        """Arrival to last token of completed requests, else NaN, shape [num_requests]."""
        requests = self.records.requests
        return np.where(requests.state == st.COMPLETED, requests.finished_s - requests.arrival_s, math.nan)

    @property
    def tpot_s(self) -> NDArray[np.float64]:
        """(last − first token) / (output tokens − 1) of completed requests; NaN for one-token outputs."""
        requests = self.records.requests
        gaps = np.where(requests.num_output_tokens > 1, requests.num_output_tokens - 1.0, math.nan)
        span = np.where(requests.state == st.COMPLETED, requests.finished_s - requests.first_token_s, math.nan)
        return np.asarray(span / gaps)

    @property
    def queue_s(self) -> NDArray[np.float64]:
        """From reaching the scheduler to the first admission, shape [num_requests]; NaN if never admitted."""
        requests = self.records.requests
        return np.asarray(requests.first_scheduled_s - requests.reached_s)

    def requests_table(self) -> pl.DataFrame:
        """Return one row a request, in order of arrival.

        The time of a completed request is the sum of `frontend_s` (the API server, on its way to the scheduler),
        `queue_s`, `preempted_s` (waiting after preemptions), and the columns of `_phases`.
        """
        r = self.records.requests
        status = np.full(len(r), "unfinished", dtype=object)
        for code, name in STATUS.items():
            status[r.state == code] = name
        table = pl.DataFrame(
            {
                "request_id": self.trace.request_id,
                "arrival_s": np.asarray(r.arrival_s),
                "input_tokens": np.asarray(r.input_tokens),
                "output_tokens": np.asarray(r.num_output_tokens),
                "status": pl.Series(status, dtype=pl.String),
                "frontend_s": np.asarray(r.reached_s - r.arrival_s - self._before_s),
                "queue_s": self.queue_s,
                "ttft_s": self.ttft_s,
                "tpot_s": self.tpot_s,
                "e2e_s": self.e2e_s,
                **self._phases(),
                **self._tiers(),
                "stalled_s": np.asarray(r.stalled_s),
                "preempted_s": np.asarray(r.preempted_s),
                "first_scheduled_at_s": np.asarray(r.first_scheduled_s),
                "first_token_at_s": np.asarray(r.first_token_s),
                "finished_at_s": np.asarray(r.finished_s),
                "num_preemptions": np.asarray(r.num_preemptions),
                "num_cached_tokens": np.maximum(r.num_cached_tokens, 0),
                "num_recomputed_tokens": np.asarray(r.num_recomputed_tokens),
                "replica": np.zeros(len(r), np.int32) if self.replica is None else self.replica,
                **(self.handover or {}),
                **self._attempts(),
            }
        )
        table = self._with_pools(self._with_pools(table), "decode_replica", "decode_pool")
        requests = self.trace.requests
        kept = [name for name in ("tenant", "session_id", "priority", "deadline_s") if name in requests.columns]
        table = table.with_columns(requests[name] for name in kept)
        return table.with_columns(pl.selectors.float().fill_nan(None))

    @property
    def _before_s(self) -> NDArray[np.float64] | float:
        """From the first attempt until the last one went to a replica [s]."""
        return 0.0 if self.attempts is None else self.attempts.retry_s + self.attempts.gateway_s

    def _attempts(self) -> dict[str, Any]:
        """Return the columns of requests that clients may send again, and why each is not completed."""
        if self.attempts is None:
            return {}
        return {"reason": self.reasons, **self.attempts.columns}

    @property
    def reasons(self) -> pl.Series:
        """Why each request has no answer; null if it has one, or is still there."""
        return reasons(self.records.requests.state, self._never)

    @property
    def _never(self) -> pl.Series:
        """Why each request could never run, if it could not."""
        return why_never(self.records.requests, [replica.settings for replica in self.replicas], self.replica)

    def _tiers(self) -> dict[str, NDArray[Any]]:
        """Return the requests' use of KV tiers: hits in each when first admitted, and how long they waited for loads.

        Nothing without tiers.
        """
        if not self.has_tiers:
            return {}
        fetches = self.records.fetches
        return {"cpu_cached_tokens": np.asarray(fetches.cpu_tokens),
                "remote_cached_tokens": np.asarray(fetches.remote_tokens),
                "load_s": self.load_s}

    @property
    def load_s(self) -> NDArray[np.float64]:
        """Time that requests waited for KV from tiers, shape [num_requests]; 0 without tiers."""
        if not self.has_tiers:
            return np.zeros(len(self.records.requests))
        return np.asarray(self.records.fetches.waited_s)

    def _phases(self) -> dict[str, NDArray[np.float64]]:
        """Return how the running time of requests divides [s], shape [num_requests] each; NaN if it is not known.

        `prefill_s` (before the first token), `decode_s` and `recompute_s` (after a preemption, until the next token);
        if steps are not recorded, of requests that were never preempted alone. If they are, and are no
        pipeline's, `interference_s` of `decode_s` went to prompts in the same steps or between them, and `transfer_s`
        to KV over the host link.
        """
        r, phases, settings = self.records.requests, self.records.phases, self.records.settings
        done, smooth = r.state == st.COMPLETED, r.num_preemptions == 0
        apart = self.handover or {"handover_s": np.zeros(len(r)), "prefilled_at_s": r.first_token_s}
        handover_s, prefilled_s = apart["handover_s"], apart["prefilled_at_s"]
        if not settings.records_steps:
            unknown = np.full(len(r), math.nan)
            return {"prefill_s": np.where(smooth, prefilled_s - r.first_scheduled_s - self.load_s, math.nan),
                    "decode_s": np.where(done & smooth, r.finished_s - prefilled_s - handover_s, math.nan),
                    "interference_s": unknown, "transfer_s": unknown,
                    "recompute_s": np.where(done & smooth, 0.0, math.nan)}
        divides = done & (int(settings.pipeline_parallel_size) == 1)
        recompute_s = (r.finished_s - r.first_scheduled_s - r.preempted_s - phases.prefill_s - handover_s
                       - phases.decode_s - self.load_s)
        return {"prefill_s": np.where(np.isnan(prefilled_s), math.nan, phases.prefill_s),
                "decode_s": np.where(done, phases.decode_s, math.nan),
                "interference_s": np.where(divides, phases.interference_s, math.nan),
                "transfer_s": np.where(divides, phases.transfer_s, math.nan),
                "recompute_s": np.where(done, np.where(smooth, 0.0, recompute_s), math.nan)}

    def steps_table(self) -> pl.DataFrame:
        """Return one row a step: when it ran, its content, and how its time divides into terms [s].

        `decodes_alone_s` is the time of its decodes by themselves, `compute_s` and `memory_s` are the times of its
        arithmetic and its HBM traffic at the hardware's peaks. `stopped_by` says why the head of the queue is not
        in it, and is null if the queue is empty.
        """
        steps = self.records.steps
        columns = {name: np.ascontiguousarray(steps[name]) for name in steps.dtype.names or ()
                   if name not in ("num_spared_tokens", "image_s")}
        columns |= self._step_times(steps)
        number = pl.int_range(pl.len(), dtype=pl.Int64).over("replica")
        table = pl.DataFrame(columns).select(number.alias("step"), pl.all())
        stops = pl.col("stopped_by").replace_strict(STOPPED_BY, return_dtype=pl.String)
        return self._with_pools(table.with_columns(stops, pl.col("compute_s", "memory_s").fill_nan(None)))

    def _step_times(self, steps: NDArray[np.void]) -> dict[str, NDArray[np.float64]]:
        """Return how the times of steps divide, each pool's by its own step time."""
        times, first = [], 0
        for pool in pools_of(self.deployment, self.num_replicas):
            part, last = pool.deployment, first + pool.num_replicas
            theirs = steps[slice(*np.searchsorted(steps["replica"], (first, last)))]  # steps are replica by replica
            times.append(step_terms(part.step_time, theirs, part.settings.swap_s_per_token) | step_roofs(part, theirs))
            first = last
        return {name: np.concatenate([terms[name] for terms in times]) for name in times[0]}

    def _with_pools(self, table: pl.DataFrame, replica: str = "replica", name: str = "pool") -> pl.DataFrame:
        """Return a table with the names of the pools that its column of replicas stands for, if replicas differ."""
        if not self.deployment.pools or replica not in table.columns:
            return table
        names = [pool.name for pool in self.deployment.pools for _ in range(pool.num_replicas)]
        named = pl.Series(name, names, dtype=pl.String).gather(table[replica].replace(st.NONE, None))
        return table.with_columns(named)

    def schedule_table(self) -> pl.DataFrame:
        """Return one row per scheduled request and step, in batch order."""
        rows = self.records.schedule
        return self._with_pools(pl.DataFrame(
            {
                "step": np.ascontiguousarray(rows["step"]),
                "request_id": self.trace.requests["request_id"].gather(rows["request"]).cast(pl.String),
                "num_scheduled_tokens": np.ascontiguousarray(rows["num_scheduled_tokens"]),
                **self._replicas(rows),
            }
        ))

    def preemptions_table(self) -> pl.DataFrame:
        """Return one row per preemption."""
        rows = self.records.preemptions
        return self._with_pools(pl.DataFrame(
            {
                "step": np.ascontiguousarray(rows["step"]),
                "request_id": self.trace.requests["request_id"].gather(rows["request"]).cast(pl.String),
                **self._replicas(rows),
            }
        ))

    def attempts_table(self) -> pl.DataFrame:
        """Return one row an attempt, see `Attempts.table`.

        Raises
        ------
        UsageError : the scenario has no rules for overload.
        """
        if self.attempts is None:
            raise UsageError("attempts are not recorded: give a time-out, --max-retries, --fail-replica, "
                             "--router-max-concurrent-requests or --tenants")
        return self.attempts.table(self.trace.request_id, self._never, is_split=self.handover is not None)

    def _replicas(self, rows: NDArray[np.void]) -> dict[str, Any]:
        """Return the column with the replica of the steps, if there are several replicas."""
        return {} if self.replica is None else {"replica": np.ascontiguousarray(rows["replica"])}


def write_table(table: pl.DataFrame, path: Path) -> None:
    """Write a table as .parquet or .csv, whole or not at all.

    Raises
    ------
    UsageError : the ending is neither.
    OutputError : the file cannot be written.
    """
    check_table_path(path)
    write_atomically(path, table.write_parquet if path.suffix == ".parquet" else table.write_csv)


def check_table_path(path: Path) -> None:
    """Raise UsageError if a table cannot be written by that name."""
    if path.suffix not in (".parquet", ".csv"):
        raise UsageError(f"cannot write {path}: the ending must be .parquet or .csv")
