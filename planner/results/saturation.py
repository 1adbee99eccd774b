"""The verdict on saturation: whether a replayed deployment keeps up with its load, since when not, and how sure.

A queue is compared with the one that a deployment exactly at its capacity would have. Such a queue is a Brownian motion
reflected at 0 (Iglehart and Whitt, "Multiple channel queues in heavy traffic", 1970): after a time in which n requests
came it is as long as |Z| · s, with Z standard normal and s² the variance of arrivals less departures over that time.
Three findings contradict a deployment that keeps up, and two one that does not:

- The queue grew further than that: P(|Z| > growth / s).
- The requests need more seats than there are: by Little's law λ · E[S] are occupied in the mean, with S the time in a
  seat, and a queue for c seats is stable only below c (Loynes, "The stability of a queue with non-independent
  inter-arrival and service times", 1962). S is as short as it was in the replay, so the finding is on the safe side.
- Requests that are turned away, or whose time-out ends before their first token, stay in the queue for ever: a
  deployment that keeps up only because others are refused does not keep up.
- The engine was idle for longer: as the reflection's local time has the law of |Z| · s too (Lévy), in requests that it
  could have served.
- The queue stayed closer to its beginning: the motion stays within m · s with the probability of `_stays_within`
  (Feller, "An Introduction to Probability Theory and Its Applications" II, X.5). While batches still fill no request
  waits, at any load. Then all requests in the deployment count, not only waiting ones.

Each conclusion is drawn if its probability under the opposite is below `LEVEL`, shared by the findings that lead to it
(Bonferroni). If none is, or if they contradict each other, the verdict is that the replay cannot tell.
"""

import math
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from planner.files.counts import figure_text
from planner.loop.state import engine_state as st
from planner.replays.result_tables import ReplayResult
from planner.results.summary_answer import Saturation

YES, NO, CANNOT_TELL = "yes", "no", "unknown"
NUMBER = {NO: 0.0, CANNOT_TELL: 0.5, YES: 1.0}  # of a verdict, for targets and sweeps
LEVEL = 0.005  # probability of a wrong conclusion at the capacity itself; less elsewhere
FINDINGS = {YES: 3, NO: 2}  # that lead to each: growth in all and in the second half, seats; idle, near its beginning
SURE = 0.999  # confidence
NUM_BATCHES = 20  # of a load, whose counts give the variance
LEAST_REQUESTS = 10 * NUM_BATCHES  # of a load that is judged
LEAST_STAYS = 50  # of requests in a row, for a queue of many servers to wander as a Brownian motion does
NUM_MEANS = 10  # of requests' times in the second half
MOST_DRIFT = 0.199  # of such means of a Brownian motion from the first, in s: less with a probability of 0.0025
TURNED_AWAY = (st.OVERLOADED, st.UNAVAILABLE)
NEVER_RUN = (st.REJECTED, st.THROTTLED)  # at any load
TERMS_OF_SERIES = 20

Floats = NDArray[np.float64]
_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Queue:
    """The requests of a replay that wait for their first token, while requests come from outside.

    Parameters
    ----------
    arrival_s, left_s : sorted; a request leaves with its first token, or without one, or never (inf) [s].
    begin_s, end_s : first and last arrival from outside; requests that follow others come later too [s].
    came_s, finished_s : arrivals and ends of all requests in the deployment, sorted; inf without an end [s].
    """

    arrival_s: Floats
    left_s: Floats
    begin_s: float
    end_s: float
    came_s: Floats
    finished_s: Floats

    @property
    def span_s(self) -> float:
        """How long requests come from outside [s]."""
        return self.end_s - self.begin_s

    def length_at(self, at_s: Floats | float) -> NDArray[np.int64]:
        """Return how many wait just after some times."""
        return np.asarray(np.searchsorted(self.arrival_s, at_s, side="right")
                          - np.searchsorted(self.left_s, at_s, side="right"))

    def path(self, begin_s: float) -> tuple[Floats, NDArray[np.int64]]:
        """Return the arrivals from a time on, and how many wait just after each."""
        first, end = np.searchsorted(self.arrival_s, (begin_s, self.end_s), side="right")
        at_s = self.arrival_s[max(first - 1, 0):end]
        return at_s, self.length_at(at_s)

    def variances(self, begin_s: float) -> tuple[float, float]:
        """Return the variance of the number of arrivals, and of departures, in the time from `begin_s` on [1].

        Counts in batches have the variance of differences in a row (von Neumann), which a slow change of the rate
        does not add to; of arrivals it is at least that of a Poisson process.
        """
        edges = np.linspace(begin_s, self.end_s, NUM_BATCHES + 1)
        came, went = (np.diff(np.searchsorted(times, edges, side="right")) for times in (self.arrival_s, self.left_s))
        variances = [NUM_BATCHES * float(np.mean(np.diff(counts) ** 2)) / 2 for counts in (came, went)]
        return max(variances[0], float(came.sum())), variances[1]

    def scale(self, begin_s: float) -> float:
        """Return s of the time from `begin_s` on [1]."""
        return math.sqrt(sum(self.variances(begin_s)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Seats:
    """Seats for running requests: their number, the mean need, and how sure it is that the need is more.

    Parameters
    ----------
    rate : requests that the seats can serve [1/s].
    """

    count: int
    needed: float
    rate: float
    confidence: float


def saturation(result: ReplayResult) -> Saturation:
    """Return the verdict on a replay, with the rates offered and served."""
    scenario, queue = result.deployment.scenario, _queue(result)
    if scenario.is_closed_loop:
        limit, what = ((scenario.max_sessions, "sessions open") if scenario.max_concurrency is None else
                       (scenario.max_concurrency, "requests in flight"))
        verdict = _verdict(NO, f"closed loop: with at most {limit:,} {what} the load adapts")
    elif queue is None:
        verdict = _verdict(CANNOT_TELL, "every request is rejected, at any load")
    elif queue.span_s <= 0:
        verdict = _verdict(CANNOT_TELL, "one request has no rate" if len(queue.arrival_s) == 1 else
                           "the requests have no rate: all arrive at once")
    elif len(queue.arrival_s) < LEAST_REQUESTS:
        verdict = _verdict(CANNOT_TELL, f"fewer than {LEAST_REQUESTS} requests show no trend")
    else:
        verdict = _judged(result, queue)
    offered, served = _rates(result, queue, verdict)
    return replace(verdict, offered_request_rate=offered, served_request_rate=served)


def _verdict(saturated: str, reason: str, sure: float | None = None, since_s: float | None = None,
             served_rate: float | None = None) -> Saturation:
    """Return a conclusion, with the finding that led to it; `served_rate` is the most that too few seats can serve."""
    return Saturation(saturated=saturated, saturation_reason=reason, saturation_confidence=sure,
                      saturated_since_s=since_s, served_request_rate=served_rate)


def is_surely_steady(result: ReplayResult) -> bool:
    """Tell whether the queue of a replay does not grow, with a confidence of more than 99.9 %."""
    verdict = saturation(result)
    return verdict.saturated == NO and (verdict.saturation_confidence or 0.0) > SURE


def saturation_sentence(found: Saturation) -> str:
    """Return the verdict in one sentence; empty if an earlier release has written the summary.

    >>> saturation_sentence(Saturation(saturated="no", saturation_confidence=0.9991, offered_request_rate=4.0,
    ...     served_request_rate=4.0, saturation_reason="the queue does not grow"))
    'saturated: no (> 99.9 % sure), 4/s offered, 4/s served: the queue does not grow'
    """
    verdict, sure, since_s = found.saturated, found.saturation_confidence, found.saturated_since_s
    if verdict is None:
        return ""
    since = "" if since_s is None else f" since {figure_text(since_s)} s"
    how = "" if sure is None or verdict == CANNOT_TELL else f" ({_percent(sure)} sure)"
    rates = [f"{figure_text(rate)}/s {what}" for rate, what in (
        (found.offered_request_rate, "offered"), (found.served_request_rate, "served"))
        if rate is not None and sure is not None]
    marked = "; latencies depend on the trace's length" if verdict == YES else ""
    between = ": " if rates else ", "
    word = "cannot tell" if verdict == CANNOT_TELL else verdict
    return ", ".join([f"saturated: {word}{since}{how}", *rates]) + f"{between}{found.saturation_reason}{marked}"


def _percent(sure: float) -> str:
    return "> 99.9 %" if sure > SURE else f"{math.floor(1000 * sure) / 10:g} %"


def _queue(result: ReplayResult) -> Queue | None:
    """Return the queue of a replay; None if no request can ever run."""
    r = result.records.requests
    state = np.asarray(r.state)
    able = ~np.isin(state, NEVER_RUN)
    arrival_s = np.asarray(r.arrival_s)
    outside = able & (arrival_s == result.trace.requests["arrival_s"].to_numpy()) if result.num_followers else able
    if not outside.any():
        return None
    left_s = np.where(np.isnan(r.first_token_s), r.finished_s, r.first_token_s)
    gave_up = np.isnan(r.first_token_s) & (state == st.TIMED_OUT)
    left_s = np.where(gave_up | np.isin(state, TURNED_AWAY) | np.isnan(left_s), math.inf, left_s)
    return Queue(arrival_s=np.sort(arrival_s[able], kind="stable"), left_s=np.sort(left_s[able], kind="stable"),
                 begin_s=float(arrival_s[outside].min()), end_s=float(arrival_s[outside].max()),
                 came_s=np.sort(arrival_s, kind="stable"),
                 finished_s=np.sort(np.nan_to_num(np.asarray(r.finished_s), nan=math.inf), kind="stable"))


def _judged(result: ReplayResult, queue: Queue) -> Saturation:
    """Return the conclusion from all findings."""
    middle_s = (queue.begin_s + queue.end_s) / 2
    grown = {"": _growth(queue, queue.begin_s), " in the second half": _growth(queue, middle_s)}
    idle, near = _idle(result, queue), _near(result, queue)
    seats = _seats(result, queue)
    is_grown = _confident(grown[""], YES)
    if _confident(seats.confidence, YES):
        since_s = _since_s(queue, queue.begin_s) if is_grown else queue.begin_s
        return _verdict(YES, f"the requests need {seats.needed:,.0f} running sequences at once; at most "
                        f"{seats.count:,} run", seats.confidence, since_s, None if is_grown else seats.rate)
    for when, sure in grown.items():
        contradicted = not when and _confident(idle, NO)
        if _confident(sure, YES) and not contradicted:
            begin_s = middle_s if when else queue.begin_s
            length = int(queue.length_at(queue.end_s))
            return _verdict(YES, f"the queue grows{when}, to {length:,} requests at the last arrival", sure,
                            _since_s(queue, begin_s))
    for sure, why in ((near, "the queue does not grow"), (idle, "the engine is idle at times")):
        if _confident(sure, NO) and not is_grown:
            return _verdict(NO, why, sure)
    return _verdict(CANNOT_TELL, "the load is near the capacity, or the trace too short",
                    max(near, idle, *grown.values()))


def _confident(sure: float, conclusion: str) -> bool:
    return sure > 1 - LEVEL / FINDINGS[conclusion]


def _growth(queue: Queue, begin_s: float) -> float:
    """Return how sure it is that the queue grew more than at the capacity [1]."""
    grown = int(queue.length_at(queue.end_s)) - int(queue.length_at(begin_s))
    return _within(grown / queue.scale(begin_s))


def _within(z: float) -> float:
    """Return P(|Z| < z) of a standard normal Z."""
    return max(2 * _NORMAL.cdf(z) - 1, 0.0)


def _stays_within(m: float) -> float:
    """Return the probability that a Brownian motion of variance 1 stays within m of its beginning.

    >>> round(_stays_within(0.5046), 4), round(_stays_within(3.0), 3)
    (0.01, 0.995)
    """
    if m <= 0:
        return 0.0
    terms = ((-1) ** k / (2 * k + 1) * math.exp(-((2 * k + 1) * math.pi / m) ** 2 / 8) for k in range(TERMS_OF_SERIES))
    return float(min(4 / math.pi * sum(terms), 1.0))


def _near(result: ReplayResult, queue: Queue) -> float:
    """Return how sure it is that waiting requests stay nearer to their beginning than at the capacity [1].

    Of all requests in the deployment this holds in any case. Of requests in the queue alone it holds if batches do not
    still fill: with room in them for all that may yet come, or with requests that take no longer than before.
    """
    at_s, length = queue.path(queue.begin_s)
    scale = queue.scale(queue.begin_s)
    inside = np.searchsorted(queue.came_s, at_s, side="right") - np.searchsorted(queue.finished_s, at_s, side="right")
    shed = np.maximum(length - inside, 0)  # requests that were turned away are in the queue for ever
    is_filled = _has_room(result, queue, at_s, inside) or _is_steady(result, queue)
    furthest = length if is_filled else inside + shed
    return 1 - _stays_within(int(furthest.max()) / scale)


def _has_room(result: ReplayResult, queue: Queue, at_s: Floats, inside: NDArray[np.int64]) -> bool:
    """Tell whether the batches have free seats and KV blocks for the growth of another load of the same length.

    That is twice the growth that the second half shows at most: how many more requests there were at its end than at
    its beginning, and the growth that chance may have hidden.

    Parameters
    ----------
    at_s, inside : arrivals, and the requests in the deployment just after each.
    """
    middle_s = (queue.begin_s + queue.end_s) / 2
    first = int(inside[np.searchsorted(at_s, middle_s, side="right") - 1])
    hidden = _NORMAL.inv_cdf(1 - LEVEL / FINDINGS[NO]) * queue.scale(middle_s)
    fullest = max((max(int(replica.engine.max_running) / max(int(replica.settings.max_num_seqs), 1),
                       int(replica.engine.peak_blocks) / max(int(replica.settings.num_gpu_blocks), 1))
                   for replica in result.replicas), default=1.0)
    if result.scaling is not None or not 0 < fullest < 1 or not _has_left(result, queue, middle_s):
        return False
    return float(inside[-1]) * (1 / fullest - 1) >= 2 * (max(int(inside[-1]) - first, 0) + hidden)


def _has_left(result: ReplayResult, queue: Queue, begin_s: float) -> bool:
    """Tell whether half of the requests that came from a time on have left before the last arrival."""
    r = result.records.requests
    came = (np.asarray(r.arrival_s) >= begin_s) & (np.asarray(r.arrival_s) <= queue.end_s)
    return bool((np.asarray(r.finished_s)[came] <= queue.end_s).mean() >= 0.5)


def _is_steady(result: ReplayResult, queue: Queue) -> bool:
    """Tell whether the requests' own times do not drift in the second half of a load of `LEAST_STAYS`.

    The time due to their lengths is subtracted (least squares), and the rest in means of requests in a row is
    compared with the first mean.
    """
    r = result.records.requests
    begin_s = (queue.begin_s + queue.end_s) / 2
    came = np.flatnonzero((np.asarray(r.state) == st.COMPLETED) & (np.asarray(r.arrival_s) >= begin_s)
                          & (np.asarray(r.arrival_s) <= queue.end_s))
    stay_s = np.asarray(r.finished_s - r.arrival_s)[came]
    if len(came) < NUM_MEANS or stay_s.mean() * LEAST_STAYS > queue.span_s:
        return False
    lengths = np.column_stack((np.ones(len(came)), r.input_tokens[came], r.num_output_tokens[came])).astype(np.float64)
    rest_s = stay_s - lengths @ np.linalg.lstsq(lengths, stay_s, rcond=None)[0]
    means = np.array([part.mean() for part in np.array_split(rest_s, NUM_MEANS)])
    rate = len(came) / (queue.end_s - begin_s)
    return bool(rate * np.abs(means - means[0]).max() <= MOST_DRIFT * queue.scale(begin_s))


def _idle(result: ReplayResult, queue: Queue) -> float:
    """Return how sure it is that the engine was idle for longer than at the capacity, 0 of several engines [1]."""
    if result.num_replicas > 1:
        return 0.0
    came_s, finished_s = queue.came_s, queue.finished_s
    alone = np.searchsorted(finished_s, came_s, side="right") == np.arange(len(came_s))  # no other request is there
    since_s = finished_s[np.maximum(np.arange(len(came_s)) - 1, 0)]
    inside = alone & (came_s > queue.begin_s) & (came_s <= queue.end_s)
    idle_s = float((came_s - since_s)[inside].sum())
    busy_s = queue.span_s - idle_s
    spare = len(queue.arrival_s) * idle_s / busy_s if busy_s > 0 else math.inf
    return _within(spare / queue.scale(queue.begin_s))


def _seats(result: ReplayResult, queue: Queue) -> Seats:
    """Compare the seats with the requests' need; nothing is sure if other limits than seats count.

    If requests follow others, their number depends on how they are served.
    """
    r, settings = result.records.requests, [replica.settings for replica in result.replicas]
    done = np.asarray(r.state) == st.COMPLETED
    count = sum(int(row.max_num_seqs) for row in settings)
    seated_s = np.asarray(r.finished_s - r.first_scheduled_s - r.preempted_s)[done]
    if (result.handover is not None or result.scaling is not None or result.num_followers or seated_s.sum() <= 0
            or any(bool(row.limits_batch_only) for row in settings)):
        return Seats(count=count, needed=0.0, rate=math.inf, confidence=0.0)
    num_requests, mean_s = len(queue.arrival_s), float(seated_s.mean())
    needed = (num_requests - 1) / queue.span_s * mean_s
    variance = queue.variances(queue.begin_s)[0] + num_requests * float(seated_s.var()) / mean_s ** 2
    spread = math.sqrt(variance) / num_requests
    return Seats(count=count, needed=needed, rate=count / mean_s, confidence=_NORMAL.cdf((1 - count / needed) / spread))


def _since_s(queue: Queue, begin_s: float) -> float:
    """Return the last time at which the queue was no longer than chance makes it, from a time on."""
    at_s, length = queue.path(begin_s)
    return float(at_s[np.flatnonzero(length <= length[0] + queue.scale(begin_s))[-1]])


def _rates(result: ReplayResult, queue: Queue | None, verdict: Saturation) -> tuple[float | None, float | None]:
    """Return how many requests come, and how many get their first token, while requests come from outside [1/s].

    Of a queue that grows that is from when on it does, and served are those until the last first token.
    """
    since_s = verdict.saturated_since_s
    begin_s = math.nan if queue is None else queue.begin_s if since_s is None else since_s
    if queue is None or queue.end_s <= begin_s:
        return None, None
    offered = int(((queue.arrival_s > begin_s) & (queue.arrival_s <= queue.end_s)).sum()) / (queue.end_s - begin_s)
    if verdict.served_request_rate is not None:
        return offered, verdict.served_request_rate
    first_token_s = np.asarray(result.records.requests.first_token_s)
    end_s = queue.end_s if since_s is None else float(np.nanmax(np.append(first_token_s, queue.end_s)))
    return offered, int(((first_token_s > begin_s) & (first_token_s <= end_s)).sum()) / (end_s - begin_s)
