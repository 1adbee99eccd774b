"""Runs in which one wave of requests waited, recognised by the mean, the median and the p99 of TTFT together."""

from collections.abc import Mapping
from dataclasses import dataclass

STEADY = "steady_ttft_ms"  # mean TTFT without the stall
MEANS = ("mean_ttft_ms", "ttft_ms")
MEDIANS = ("median_ttft_ms", "p50_ttft_ms")
P99 = "p99_ttft_ms"
OF_STALLS = (*MEANS, P99, "p99_e2el_ms")  # metrics with a stall in them
SHORTEST_S = 0.5  # stalls below that are within the spread of the opening burst
JUMP = 2.0  # measured p99 over the warm one, from which a run is questioned
# Requests that the mean shows to have waited, over the requests in flight. Of the 106 single-node runs with stalls, 102
# show at least 0.86. More than 1 is a later wave that waited for other kernels.
LEAST, MOST = 0.75, 2.0
FAR = 10.0  # measured p99 over the warm one, from which a run stalled even if fewer requests waited


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """One stall of a closed loop.

    Parameters
    ----------
    stall_s : its length [s].
    num_waiting, num_requests : requests that waited for it, and all that count [1].
    steady_ms : mean TTFT without it; None if another share of the requests waited, since the number of requests is not
        known then [ms].
    """

    stall_s: float
    num_waiting: int
    num_requests: int
    steady_ms: float | None


def stall_of(measured: Mapping[str, float], predicted: Mapping[str, float], in_flight: int,
             num_requests: int) -> Stall | None:
    """Return the stall of a closed loop that keeps `in_flight` of `num_requests` requests in flight; None without.

    A stall of S seconds that the C requests in flight wait for, of N, adds S · C / N to the mean TTFT and nothing to
    the median. It is the p99 if C / N > 1 %. Both follow from the definitions of the three statistics. With the
    predictions p of a replay without stalls, and r = max(median / median_p, 1) for a prefill that is slower than
    predicted:

    - S = p99 − r · p99_p.
    - waited = N · (mean − median − r · (mean_p − median_p)) / S, the requests that the mean shows to have waited.
    - steady mean = mean − S · C / N. If waited < C − 1/2, C − 1 stands for C: the first request was served before.

    The opening burst of a closed loop waits too, without a stall; the replay has that wait, so it is in p99_p.

    Parameters
    ----------
    measured, predicted : TTFT's mean, median and p99 by their names [ms].

    >>> warm = {"mean_ttft_ms": 80.0, "median_ttft_ms": 76.0, "p99_ttft_ms": 190.0}
    >>> stall = stall_of({"mean_ttft_ms": 502.0, "median_ttft_ms": 75.0, "p99_ttft_ms": 21500.0}, warm, 4, 200)
    >>> round(stall.stall_s, 1), round(stall.steady_ms)
    (21.3, 76)
    """
    names = [next((name for name in kind if name in measured and name in predicted), "")
             for kind in (MEANS, MEDIANS, (P99,))]
    if not all(names) or not 0.01 * num_requests < in_flight < num_requests:
        return None
    (mean, median, p99), (warm_mean, warm_median, warm_p99) = (
        [values[name] for name in names] for values in (measured, predicted))
    if not min(median, warm_median, warm_p99) > 0:
        return None
    slower = max(median / warm_median, 1.0)
    jump, stall_ms = p99 / (slower * warm_p99), p99 - slower * warm_p99
    if stall_ms < 1e3 * SHORTEST_S or jump < JUMP:
        return None
    waited = num_requests * (mean - median - slower * (warm_mean - warm_median)) / stall_ms
    is_whole = waited >= LEAST * in_flight
    if not 0.01 * num_requests < waited <= MOST * in_flight or not (is_whole or jump >= FAR):
        return None
    num_waiting = in_flight - (waited < in_flight - 0.5) if is_whole else round(waited)
    steady_ms = mean - stall_ms * num_waiting / num_requests
    return Stall(stall_s=stall_ms / 1e3, num_waiting=num_waiting, num_requests=num_requests,
                 steady_ms=steady_ms if is_whole and steady_ms > 0 else None)
