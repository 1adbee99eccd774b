"""Reasons of requests without an answer: by their last state, and by length and limits if they can never run."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from planner.loop.state import engine_state as st
from planner.policies.policy import CONTEXT_KEPT_FREE

REASON = {
    st.COMPLETED: None,
    st.REJECTED: None,  # one of NEVER
    st.FAILED: "kv_cache",  # outgrew it while it ran
    st.CANCELLED: "client",  # its user hung up
    st.TIMED_OUT: "timeout",
    st.OVERLOADED: "queue_full",
    st.THROTTLED: "quota",
    st.UNAVAILABLE: "no_replica",
    st.LOST: "replica_failed",
}
NEVER = ("too_long", "token_budget", "kv_cache")
FAILED = (st.FAILED, st.CANCELLED, st.TIMED_OUT, st.LOST)
REJECTED = (st.REJECTED, st.OVERLOADED, st.THROTTLED, st.UNAVAILABLE)


def why_never(requests: Any, settings: Sequence[Any], replica: NDArray[np.int32] | None) -> pl.Series:
    """Return why each request could never run, if it could not.

    The loop keeps that a request was refused, not why; see `engine.admission.never_fits` for the rule. A prompt that
    fills the context is `too_long`, one that must run whole and exceeds a step's tokens misses the `token_budget`, and
    the others have no room in the `kv_cache`.

    Parameters
    ----------
    requests : with `input_tokens`.
    settings : of each replica, st.SETTINGS.
    replica : that each request went to; None with one alone.
    """
    taker = np.zeros(len(requests), np.int64) if replica is None else np.maximum(replica, 0)  # none took the too long
    is_whole = np.array([int(row.cut) == st.CUT_NONE for row in settings])[taker]
    budget = np.array([int(row.max_num_batched_tokens) for row in settings])[taker]
    tokens = requests.input_tokens.astype(np.int64)
    kept_free = np.array([CONTEXT_KEPT_FREE if int(row.promise) == st.PROMISE_SHARE else 0 for row in settings])[taker]
    max_model_len = np.array([int(row.max_model_len) for row in settings])[taker]
    place = np.where(tokens >= max_model_len - kept_free, 0, np.where(is_whole & (tokens > budget), 1, 2))
    return pl.Series(NEVER, dtype=pl.String).gather(place)


def reasons(state: Any, never: pl.Series) -> pl.Series:
    """Return why requests in such states have no answer; null if they have one, or are still there.

    Parameters
    ----------
    state : of each, shape [n].
    never : of each, see `why_never`.
    """
    states = pl.Series(np.asarray(state))
    known = states.replace_strict(REASON, default=None, return_dtype=pl.String)
    return never.zip_with(states == st.REJECTED, known)
