"""The attempts of a replay's requests: the outcome of each, and the cost of attempts without an answer."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from planner.loop.state import client_state as cs
from planner.loop.state import engine_state as st
from planner.replays.reasons import reasons

STATUS = {
    st.COMPLETED: "completed",
    st.REJECTED: "rejected",
    st.FAILED: "failed",
    st.CANCELLED: "cancelled",
    st.TIMED_OUT: "timed_out",
    st.OVERLOADED: "rejected",
    st.THROTTLED: "rejected",
    st.UNAVAILABLE: "rejected",
    st.LOST: "failed",
}
COUNTED = {  # attempts, by how they ended; of some a client tries again
    st.TIMED_OUT: "num_attempts_timed_out",
    st.OVERLOADED: "num_attempts_queue_full",
    st.THROTTLED: "num_attempts_over_quota",
    st.UNAVAILABLE: "num_attempts_no_replica",
    st.LOST: "num_attempts_lost",
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Attempts:
    """The record of clients and the gateway in a replay.

    Parameters
    ----------
    rows : client_state.ATTEMPT_ROW, in order of their ends.
    count : of each request, shape [num_requests].
    retry_s : from the first attempt to the last one [s], shape [num_requests].
    gateway_s : of the last attempt, until the request went to a replica or was turned away [s], shape [num_requests].
    peak_queued : requests in the router's queue at once.
    """

    rows: NDArray[np.void]
    count: NDArray[np.int64]
    retry_s: NDArray[np.float64]
    gateway_s: NDArray[np.float64]
    peak_queued: int

    @property
    def columns(self) -> dict[str, Any]:
        """Columns of the table of requests."""
        return {"num_attempts": self.count, "retry_s": self.retry_s, "gateway_s": self.gateway_s}

    def table(self, request_id: pl.Series, never: pl.Series, *, is_split: bool = False) -> pl.DataFrame:
        """Return one row an attempt, in order of their ends; instants and replica are null without one.

        Parameters
        ----------
        never : why each request could never run, if it could not; see `reasons.why_never`.
        is_split : some replicas prefill and others decode, so that each attempt has two.
        """
        rows = {name: np.ascontiguousarray(self.rows[name]) for name in self.rows.dtype.names or ()}
        table = pl.DataFrame({
            "request_id": request_id.gather(rows["request"]),
            "attempt": rows["number"],
            "replica": pl.Series(rows["replica"]).replace(st.NONE, None),
            **({"decode_replica": pl.Series(rows["decode_replica"]).replace(st.NONE, None)} if is_split else {}),
            "sent_at_s": rows["sent_s"],
            "first_scheduled_at_s": rows["first_scheduled_s"],
            "first_token_at_s": rows["first_token_s"],
            "ended_at_s": rows["ended_s"],
            "status": pl.Series(rows["outcome"]).replace_strict(STATUS, return_dtype=pl.String),
            "reason": reasons(rows["outcome"], never.gather(rows["request"])),
            "output_tokens": rows["num_output_tokens"],
            "num_computed_tokens": rows["num_computed_tokens"],
        })
        return table.with_columns(pl.selectors.float().fill_nan(None))


def attempts_of(rows: NDArray[np.void], clients: Any, requests: Any, peak_queued: int) -> Attempts:
    """Return the attempts of a replay that is through, and let its requests' arrivals be their first attempts'.

    Parameters
    ----------
    rows : taken out of the loop, in order.
    clients : client_state.CLIENT.
    requests : state.REQUEST; of each, `arrival_s` is when its last attempt went to a replica or was turned away.
    """
    retry_s = clients.sent_s - clients.first_sent_s
    gateway_s = np.where(clients.num_attempts > 0, requests.arrival_s - clients.sent_s, 0.0)
    requests.arrival_s[:] = clients.first_sent_s
    return Attempts(rows=rows, count=clients.num_attempts.astype(np.int64), retry_s=retry_s, gateway_s=gateway_s,
                    peak_queued=peak_queued)


def empty_rows() -> NDArray[np.void]:
    """Return no attempt."""
    return np.empty(0, cs.ATTEMPT_ROW)
