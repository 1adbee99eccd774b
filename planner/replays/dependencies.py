"""Dependencies of requests: turns of a session, and requests with parents, are sent once earlier ones have finished."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from planner.errors import TraceError
from planner.traces import Trace
from planner.traces.parents import Pairs, named_parents, parent_rows, session_pairs
from planner.traces.shaping.session_start import session_numbers


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TraceSessions:
    """The sessions of a trace, numbered in the order in which they start; a request without a session is its own.

    Parameters
    ----------
    most : sessions open at once, from the first request's sending to the last request's end [1].
    of_request : number of each request's session, shape [num_requests].
    num_requests : of each session, its sub-agents' included, shape [num_sessions].
    first_root : session k begins with the requests ``roots[first_root[k]:first_root[k + 1]]``, shape
        [num_sessions + 1].
    roots : requests that wait for no other, by session and arrival.
    """

    most: int
    of_request: NDArray[np.int64]
    num_requests: NDArray[np.int64]
    first_root: NDArray[np.int64]
    roots: NDArray[np.int64]


def sessions(trace: Trace, most: int, num_parents: NDArray[np.int64]) -> TraceSessions:
    """Return the sessions of a trace, `most` of which are open at once.

    Parameters
    ----------
    num_parents : requests that each request waits for, shape [num_requests].
    """
    of_request = session_numbers(trace)
    roots = np.flatnonzero(num_parents == 0)
    roots = roots[np.argsort(of_request[roots], kind="stable")]
    count = int(of_request.max(initial=-1)) + 1
    return TraceSessions(most=most, of_request=of_request, num_requests=np.bincount(of_request, minlength=count),
                         first_root=np.searchsorted(of_request[roots], np.arange(count + 1)), roots=roots)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dependencies:
    """The children of each request, as compressed sparse rows.

    Parameters
    ----------
    first_child : request i's children are ``children[first_child[i]:first_child[i + 1]]`` [num_requests + 1].
    children : rows of the trace [num of pairs].
    num_parents : requests that each waits for [num_requests].
    think_s : pause from the end of the last of them [s], shape [num_requests].
    sessions : of which a limited number is open at once; None without a limit.
    """

    first_child: NDArray[np.int64]
    children: NDArray[np.int64]
    num_parents: NDArray[np.int64]
    think_s: NDArray[np.float64]
    sessions: TraceSessions | None = None


def dependencies(trace: Trace, max_sessions: int | None = None) -> Dependencies | None:
    """Return the dependencies among the requests of a trace, or None without any.

    A request with `parent_id` (several are separated by ";") waits for these. One without, that has a `session_id` and
    a `think_time_s`, waits for the request of its session before it. Their `arrival_s` is not used. A parent that was
    cut off by the load's window or limit is not waited for; a request all of whose parents were, arrives as recorded.
    With `max_sessions`, the first request of a session waits until fewer sessions than these are open.

    Raises
    ------
    TraceError : a parent is no request of the trace, or requests wait for each other in a circle.
    """
    columns = trace.requests.columns
    pairs = _by_parent(trace) if "parent_id" in columns and named_parents(trace.requests).height else []
    pairs += session_pairs(trace.requests)
    if not pairs and max_sessions is None:
        return None
    nobody = np.empty(0, np.int64)
    parents, children = (np.concatenate(part) for part in zip((nobody, nobody), *pairs, strict=True))
    n = trace.requests.height
    order = np.lexsort((children, parents))
    num_parents = np.bincount(children, minlength=n).astype(np.int64)
    waits = Dependencies(
        first_child=np.searchsorted(parents[order], np.arange(n + 1)), children=children[order],
        num_parents=num_parents, think_s=_think_s(trace),
        sessions=None if max_sessions is None else sessions(trace, max_sessions, num_parents),
    )
    _check_order(trace, waits)
    return waits


def _by_parent(trace: Trace) -> list[Pairs]:
    """Return the pairs that `parent_id` names."""
    pairs = parent_rows(trace.requests)
    unknown = pairs.filter(pl.col("parent_row").is_null())
    if not unknown.is_empty() and trace.num_requests == trace.account.rows_read:
        row, parent, _ = unknown.row(0)
        raise TraceError(f"{trace.source} request {trace.request_id[row]}: parent_id = {parent!r} is not a request_id "
                         f"of the trace; correct it, or leave the cell empty")
    pairs = pairs.drop_nulls("parent_row")
    return [(pairs["parent_row"].to_numpy(), pairs["row"].to_numpy())]


def _think_s(trace: Trace) -> NDArray[np.float64]:
    if "think_time_s" not in trace.requests.columns:
        return np.zeros(trace.requests.height)
    return trace.requests["think_time_s"].fill_null(0.0).to_numpy().astype(np.float64)


def _check_order(trace: Trace, waits: Dependencies) -> None:
    """Raise TraceError if requests wait for each other in a circle: some can never be sent."""
    left = waits.num_parents.copy()
    free = np.flatnonzero(left == 0)
    while len(free):
        spans = [waits.children[waits.first_child[i]:waits.first_child[i + 1]] for i in free.tolist()]
        children: Any = np.concatenate(spans)
        np.subtract.at(left, children, 1)
        children = np.unique(children)
        free = children[left[children] == 0]
    if left.any():
        first = trace.requests["request_id"][int(np.flatnonzero(left)[0])]
        raise TraceError(f"{trace.source} request {first}: its parent_id leads into a cycle; "
                         f"{int((left > 0).sum())} requests can never be sent. Remove the cycle")
