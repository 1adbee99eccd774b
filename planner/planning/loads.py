"""The load that a fleet is sized for: a trace's traffic, at the rate that is asked for, by a way of scaling."""

from dataclasses import dataclass, replace

from planner.deployment.shaped_load import shape_load
from planner.errors import UsageError
from planner.planning.user_loads import of_users, think_time
from planner.settings.load_options import MEASURING
from planner.settings.scenario import Scenario
from planner.traces import Trace
from planner.traces.shaping.client_load import NAME
from planner.traces.shaping.closed_load import in_turn, load_of, with_pauses
from planner.traces.shaping.rate_series import RateSeries
from planner.traces.shaping.rescaling import (
    MOST_REQUESTS,
    at_rate,
    copies_lasting,
    lasting,
    num_requests_at,
    rate_of,
    rates_of,
    repeated,
)
from planner.traces.shaping.strata import at_rates, strata_of
from planner.traces.shaping.window_and_rate import limit

MOST_PREFIX_IDS = 4_000_000  # of the load of all strata: agents with 28,000 tokens a prompt have 440 each
LEAST_OF_A_RATE = 200  # requests


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Traffic:
    """A trace's traffic, which can be had at any rate.

    Parameters
    ----------
    trace : as it was cut, at its own rate. If it has no send times, they are drawn at the rate asked for.
    rate_rps : the rate asked for; None for the trace's own [1/s].
    duration_s : how long the load must last; None for as long as the trace gives [s].
    scaling : a name of `rescaling.SCALINGS`.
    seed : of the draws of a way of scaling.
    is_drawn : whether the arrivals were drawn, as a Poisson process.
    """

    trace: Trace
    rate_rps: float | None
    duration_s: float | None
    scaling: str
    seed: int
    is_drawn: bool

    @property
    def mean_rps(self) -> float:
        """The rate of the load [1/s]."""
        return rate_of(self.trace) if self.rate_rps is None else self.rate_rps

    @property
    def can_last(self) -> bool:
        """Whether the load may be longer than the trace."""
        return self.rate_rps is not None and self.duration_s is None

    @property
    def named_scaling(self) -> str:
        """The way of scaling, by its name for users: arrivals that were drawn are a Poisson process at any rate."""
        return "poisson" if self.is_drawn else self.scaling

    @property
    def is_rescaled(self) -> bool:
        """Whether the load rests on the way of scaling."""
        return self.rate_rps is not None and not self.is_drawn

    @property
    def num_requests(self) -> int:
        """About how many requests the load has."""
        return num_requests_at(self.trace, self.mean_rps, self.scaling) if self.is_rescaled else self.trace.num_requests

    def load(self, times: int = 1) -> Trace:
        """Return the load of the trace, repeated `times` times."""
        if not self.is_rescaled:
            return repeated(self.trace, times)
        if self.duration_s is not None:
            return self.lasting(self.mean_rps, self.duration_s)
        return at_rate(repeated(self.trace, times), self.mean_rps, self.scaling, self.seed)

    def at(self, rate_rps: float) -> Trace:
        """Return the traffic at another rate; arrivals that were drawn stay a Poisson process when compressed."""
        return at_rate(self.trace, rate_rps, self._growing, self.seed)

    def first(self, parts: int) -> "Traffic":
        """Return the traffic of the first of some parts of the trace, which have equal numbers of requests."""
        part = limit(self.trace, max(self.trace.num_requests // parts, 2))
        share = rate_of(part) / rate_of(self.trace)
        return replace(self, trace=part, rate_rps=None if self.rate_rps is None else self.rate_rps * share)

    def grown(self, factor: float, times: int) -> Trace:
        """Return the load of the trace, repeated `times` times, at a multiple of its rate."""
        rate_rps = self.mean_rps * factor
        if self.duration_s is not None:
            return self.lasting(rate_rps, self.duration_s)
        return at_rate(repeated(self.trace, times), rate_rps, self._growing, self.seed)

    def replayed(self, scenario: Scenario, times: int) -> Scenario | None:
        """Return a scenario that replays the load of `load(times)` from the trace as read; None if no options do."""
        if self.rate_rps is None or self.is_drawn:
            return replace(scenario, trace_copies=times)
        if self.duration_s is not None:
            times = copies_lasting(self.trace, self.rate_rps, self.duration_s, self.scaling)
        return replace(scenario, rate_scale=None, request_rate=self.rate_rps, scaling=self.scaling, trace_copies=times)

    @property
    def limits_rps(self) -> tuple[float, float]:
        """The lowest and the highest rate that the traffic can be had at [1/s]."""
        return rates_of(self.trace, self._growing)

    @property
    def _growing(self) -> str:
        return "compress" if self.is_drawn else self.scaling

    def lasting(self, rate_rps: float, duration_s: float) -> Trace:
        """Return the traffic at a rate, for at least `duration_s`."""
        return lasting(self.trace, rate_rps, duration_s, self.scaling, self.seed)

    def alike(self, scaling: str, num_requests: int) -> Trace:
        """Return the load by another way of scaling, with about as many requests."""
        other = replace(self, scaling=scaling)
        return other.load(max(round(min(num_requests, MOST_REQUESTS) / other.num_requests), 1))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StrataTraffic(Traffic):
    """A trace's traffic at the rates of a series, all of whose time counts.

    Parameters
    ----------
    rate_rps : the mean over time [1/s].
    strata_rps : rates from low to high, each of an equal share of the series' requests [1/s].
    num_stood_for : requests of the series [1].
    """

    strata_rps: tuple[float, ...]
    num_stood_for: float

    @property
    def can_last(self) -> bool:
        """Whether the load may be longer than the trace: it stands for all of the series."""
        return False

    @property
    def num_requests(self) -> int:
        """How many requests the load has: about as many as a trace that goes on with itself may have."""
        return len(self.strata_rps) * self._each

    @property
    def _each(self) -> int:
        """How many requests each rate has: fewer if prompts have many prefix ids, which take the memory."""
        prefix = self.trace.prefix
        per_request = 1.0 if prefix is None else max(len(prefix.values) / self.trace.num_requests, 1.0)
        most = min(MOST_REQUESTS, round(MOST_PREFIX_IDS / per_request))
        return max(most // len(self.strata_rps), LEAST_OF_A_RATE)

    def load(self, times: int = 1) -> Trace:
        """Return the load."""
        return self.grown(1.0, times)

    def replayed(self, scenario: Scenario, times: int) -> Scenario | None:
        """Return None: no options of a replay give several rates one after the other."""
        return None

    def at(self, rate_rps: float) -> Trace:
        """Return the traffic at another mean rate: all rates of the series grow alike."""
        return self.grown(rate_rps / self.mean_rps, 1)

    def grown(self, factor: float, times: int) -> Trace:
        """Return the load at a multiple of its rates."""
        rates = [rate * factor for rate in self.strata_rps]
        return at_rates(self.trace, rates, [self._each] * len(rates), self.scaling, self.seed)

    def drawn_again(self, number: int) -> Trace:
        """Return another draw of the load."""
        return replace(self, seed=self.seed + number * len(self.strata_rps)).load()

    @property
    def limits_rps(self) -> tuple[float, float]:
        """The lowest and the highest mean rate that the traffic can be had at [1/s]."""
        lowest, highest = rates_of(self.trace, self.scaling)
        return lowest * self.mean_rps / self.strata_rps[0], highest * self.mean_rps / self.strata_rps[-1]

    def alike(self, scaling: str, num_requests: int) -> Trace:
        """Return the load by another way of scaling."""
        return replace(self, scaling=scaling).load()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UsersLoad(Traffic):
    """A trace's requests or sessions, sent one after the other by each of a number of users.

    Parameters
    ----------
    trace : as `closed_load.in_turn`.
    of : "concurrency" or "sessions".
    users : at once [1].
    think_time_s : pause that is asked for; None for the trace's [s].
    assumption : on pauses, in words.
    """

    of: str
    users: int
    think_time_s: float | None
    assumption: str

    @property
    def can_last(self) -> bool:
        """Whether the load may be longer than the trace: users go on."""
        return True

    def load(self, times: int = 1) -> Trace:
        """Return the load of the trace, repeated `times` times."""
        return self.with_users(self.users, times)

    def replayed(self, scenario: Scenario, times: int) -> Scenario | None:
        """Return a scenario that replays the load of `load(times)` from the trace as read."""
        return of_users(scenario, self.of, self.users, self.think_time_s, times)

    def with_users(self, users: int, times: int = 1) -> Trace:
        """Return the load of another number of users."""
        return load_of(repeated(self.trace, times), self.of, users, self.think_time_s)


def users_of(trace: Trace, scenario: Scenario, think_time_s: float | None) -> UsersLoad:
    """Return the traffic of the users that a scenario asks for, by `max_sessions` or `max_concurrency`.

    Raises
    ------
    UsageError : options contradict each other; the trace has not as many users.
    """
    if scenario.max_sessions is not None and scenario.max_concurrency is not None:
        raise UsageError("--max-sessions and --max-concurrency count users in two ways; give one of them")
    of = "concurrency" if scenario.max_sessions is None else "sessions"
    users = scenario.max_sessions if scenario.max_concurrency is None else scenario.max_concurrency
    if users is None or users < 1:
        raise UsageError(f"--max-{of} {users}: must be at least 1")
    for name in ("rate_scale", "request_rate", "session_start_fraction", *MEASURING):
        if getattr(scenario, name) not in (None, False):
            raise UsageError(f"--{name.replace('_', '-')} {getattr(scenario, name)}: a closed loop of {users:,} users "
                             f"has none; leave it out")
    cut = with_pauses(shape_load(scenario, trace), of, think_time_s)
    turns = in_turn(cut, of)
    there = turns.requests["arrival_s"].n_unique()
    if users > there:
        raise UsageError(f"--max-{of} {users}: {trace.source} has {there:,} "
                         f"{'requests' if of == 'concurrency' else 'sessions'}; must be at most as many")
    return UsersLoad(trace=turns, rate_rps=None, duration_s=None, scaling=of, seed=scenario.seed or 0, is_drawn=False,
                     of=of, users=users, think_time_s=think_time_s, assumption=think_time(cut, of, think_time_s)[1])


def traffic_of(trace: Trace, scenario: Scenario, scaling: str, series: RateSeries | None,
               num_strata: int | None = None) -> Traffic:
    """Return the traffic that a scenario, or a series of rates, asks for.

    Parameters
    ----------
    num_strata : rates that stand for all of the series [1]; None for its highest window.

    Raises
    ------
    UsageError : options contradict each other; the trace has no rate to change.
    """
    asked = {name: getattr(scenario, name) for name in ("rate_scale", "request_rate")}
    given = {name: rate for name, rate in asked.items() if rate is not None}
    if len(given) > 1:
        raise UsageError("--rate-scale and --request-rate exclude each other; give one of them")
    for name, rate in given.items() if series is not None else ():
        raise UsageError(f"--{name.replace('_', '-')} {rate}: the rate series sets the rates; leave it out")
    is_drawn = scenario.request_rate is not None and (trace.format == NAME or trace.arrivals == "absent")
    cut = shape_load(scenario if is_drawn else replace(scenario, rate_scale=None, request_rate=None), trace)
    if series is not None and num_strata is not None:
        rates = strata_of(series, num_strata)
        return StrataTraffic(trace=cut, rate_rps=series.mean_rps, duration_s=None, scaling=scaling,
                             seed=scenario.seed or 0, is_drawn=is_drawn, strata_rps=tuple(rates.tolist()),
                             num_stood_for=float((series.rate_rps * series.duration_s).sum()))
    rate, duration_s = scenario.request_rate, None
    if scenario.rate_scale is not None:
        rate = rate_of(cut) * scenario.rate_scale
    if series is not None:
        rate, duration_s = series.peak_rps, float(series.duration_s[int(series.rate_rps.argmax())])
    return Traffic(trace=cut, rate_rps=rate, duration_s=duration_s, scaling=scaling, seed=scenario.seed or 0,
                   is_drawn=is_drawn)
