"""Sessions of which a limited number is open at once: the next one starts when one has ended."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.traces import Trace
from planner.traces.shaping.session_start import session_numbers


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sessions:
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


def sessions(trace: Trace, most: int, num_parents: NDArray[np.int64]) -> Sessions:
    """Return the sessions of a trace, `most` of which are open at once.

    Parameters
    ----------
    num_parents : requests that each request waits for, shape [num_requests].
    """
    of_request = session_numbers(trace)
    roots = np.flatnonzero(num_parents == 0)
    roots = roots[np.argsort(of_request[roots], kind="stable")]
    count = int(of_request.max(initial=-1)) + 1
    return Sessions(most=most, of_request=of_request, num_requests=np.bincount(of_request, minlength=count),
                    first_root=np.searchsorted(of_request[roots], np.arange(count + 1)), roots=roots)
