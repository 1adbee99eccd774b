"""What a replay says of each request, each step and the schedule, as tables."""

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from planner.driver import ReplayRecords
from planner.engine import state as st
from planner.errors import UsageError
from planner.files import write_atomically
from planner.steptime import step_terms
from planner.trace import Trace

STATUS = {
    st.COMPLETED: "completed",
    st.REJECTED: "rejected",  # longer than the model or the KV cache allows
    st.FAILED: "failed",  # outgrew the KV cache while it ran
    st.CANCELLED: "cancelled",
}


@dataclass(frozen=True, kw_only=True)
class ReplayResult:
    """A replay's outcome. Times of requests are `None` in the tables where the request has none.

    Parameters
    ----------
    trace, records, step_time : what was replayed, by rows of the trace.
    num_replicas : engines that shared the trace [1].
    replica : which of them took each request, shape [num_requests]; None with one alone.
    """

    trace: Trace
    records: ReplayRecords
    step_time: Any
    num_replicas: int = 1
    replica: NDArray[np.int32] | None = None

    @property
    def times_s(self) -> dict[str, NDArray[np.float64]]:
        """TTFT, TPOT and end-to-end latency by the names of objectives [s]."""
        return {"ttft": self.ttft_s, "tpot": self.tpot_s, "e2el": self.e2e_s}

    @cached_property
    def ttft_s(self) -> NDArray[np.float64]:
        """Arrival to first token, shape [num_requests]; NaN without one."""
        requests = self.records.requests
        return np.asarray(requests.first_token_s - requests.arrival_s)

    @cached_property
    def e2e_s(self) -> NDArray[np.float64]:
        """Arrival to last token of completed requests, else NaN, shape [num_requests]."""
        requests = self.records.requests
        return np.where(requests.state == st.COMPLETED, requests.finished_s - requests.arrival_s, math.nan)

    @cached_property
    def tpot_s(self) -> NDArray[np.float64]:
        """(last − first token) / (output tokens − 1) of completed requests; NaN for one-token outputs."""
        requests = self.records.requests
        gaps = np.where(requests.num_output_tokens > 1, requests.num_output_tokens - 1.0, math.nan)
        span = np.where(requests.state == st.COMPLETED, requests.finished_s - requests.first_token_s, math.nan)
        return np.asarray(span / gaps)

    @cached_property
    def queue_s(self) -> NDArray[np.float64]:
        """Arrival to first admission, shape [num_requests]; NaN where never admitted."""
        requests = self.records.requests
        return np.asarray(requests.first_scheduled_s - requests.arrival_s)

    def requests_table(self) -> pl.DataFrame:
        """Return one row a request, in order of arrival."""
        r = self.records.requests
        status = np.full(len(r), "unfinished", dtype=object)
        for code, name in STATUS.items():
            status[r.state == code] = name
        table = pl.DataFrame(
            {
                "request_id": self.trace.requests["request_id"],
                "arrival_s": np.asarray(r.arrival_s),
                "input_tokens": np.asarray(r.input_tokens),
                "output_tokens": np.asarray(r.num_output_tokens),
                "status": pl.Series(status, dtype=pl.String),
                "queue_s": self.queue_s,
                "ttft_s": self.ttft_s,
                "tpot_s": self.tpot_s,
                "e2e_s": self.e2e_s,
                "prefill_s": np.asarray(r.first_token_s - r.first_scheduled_s),
                "decode_s": np.where(r.state == st.COMPLETED, r.finished_s - r.first_token_s, math.nan),
                "stalled_s": np.asarray(r.stalled_s),
                "preempted_s": np.asarray(r.preempted_s),
                "first_scheduled_at_s": np.asarray(r.first_scheduled_s),
                "first_token_at_s": np.asarray(r.first_token_s),
                "finished_at_s": np.asarray(r.finished_s),
                "num_preemptions": np.asarray(r.num_preemptions),
                "num_cached_tokens": np.maximum(r.num_cached_tokens, 0),
                "num_recomputed_tokens": np.asarray(r.num_recomputed_tokens),
                "replica": np.zeros(len(r), np.int32) if self.replica is None else self.replica,
            }
        )
        kept = [name for name in ("tenant", "session_id", "priority") if name in self.trace.requests.columns]
        table = table.with_columns(self.trace.requests[name] for name in kept)
        return table.with_columns(pl.selectors.float().fill_nan(None))

    def steps_table(self) -> pl.DataFrame:
        """Return one row a step: when it ran, what was in it, and how its time divides into terms [s]."""
        steps = self.records.steps
        columns = {name: np.ascontiguousarray(steps[name]) for name in steps.dtype.names or ()}
        table = pl.DataFrame({"step": np.arange(len(steps)), **columns})
        terms = step_terms(self.step_time, steps, float(self.records.settings.swap_s_per_token))
        return table.with_columns(pl.Series(name, values) for name, values in terms.items())

    def schedule_table(self) -> pl.DataFrame:
        """Return one row per scheduled request and step, in batch order."""
        rows = self.records.schedule
        return pl.DataFrame(
            {
                "step": np.ascontiguousarray(rows["step"]),
                "request_id": self.trace.requests["request_id"].gather(rows["request"]),
                "num_scheduled_tokens": np.ascontiguousarray(rows["num_scheduled_tokens"]),
            }
        )

    def preemptions_table(self) -> pl.DataFrame:
        """Return one row per preemption."""
        rows = self.records.preemptions
        return pl.DataFrame(
            {
                "step": np.ascontiguousarray(rows["step"]),
                "request_id": self.trace.requests["request_id"].gather(rows["request"]),
            }
        )


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
    """Raise UsageError where a table cannot be written by that name."""
    if path.suffix not in (".parquet", ".csv"):
        raise UsageError(f"cannot write {path}: the ending must be .parquet or .csv")
