"""The highest rate that holds: bisected, then checked around, since attainment need not fall with the rate."""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

from planner.errors import UsageError
from planner.planning.missed import UnreachableError
from planner.progress import stage
from planner.settings.objectives import Verdict

TOLERANCE = 0.005  # upper / lower - 1 of the bracket
CHECKED = (0.01, 0.02, 0.05, 0.1, 0.2, 0.35)  # below and above the bracket, as shares of it
NEAR = 0.25  # strain's distance from the edge, next to which rates are tried that lie
FINE = 0.01  # so far apart
STEP = 2.0  # of the search for a first bracket
MOST_RISES, MOST_FALLS = 40, 16  # of them, each way; a 65,536th of a rate has requests run one at a time
ANY = (0.0, math.inf)  # rates [1/s]
MOST_REPAIRS = 5  # brackets that a missed rate below sends back to the search


class UnlimitedError(UsageError):
    """Every rate keeps the objectives."""


class UnreachableRateError(UnreachableError):
    """No rate keeps the objectives; `rate_rps` is the lowest that was tried [1/s]."""

    rate_rps: float = math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class Bracket:
    """Between which rates the objectives stop being kept.

    Parameters
    ----------
    lower, upper : highest rate that keeps them with all checked rates below it, and lowest above it that does not
        [1/s].
    is_monotone : whether no checked rate above keeps them, and none below misses them.
    kept_above, missed_below : those that do [1/s].
    probes : every rate that was tried and what came of it, in the order of rates.
    """

    lower: float
    upper: float
    is_monotone: bool
    kept_above: tuple[float, ...]
    missed_below: tuple[float, ...]
    probes: tuple[tuple[float, Verdict], ...]


def find_bracket(evaluate: Callable[[float], Verdict], start: float, *, tolerance: float = TOLERANCE,
                 checks: tuple[float, ...] = CHECKED, limits: tuple[float, float] = ANY) -> Bracket:
    """Find the highest rate that keeps the objectives.

    Doubles or halves from `start` to a first bracket, bisects it in the logarithm, and then tries rates on either side,
    densely where what is reached is near what must be. A rate below that misses moves the bracket under it; one above
    that keeps is reported, not believed.

    Parameters
    ----------
    evaluate : from a rate [1/s] to its verdict.
    start : where to begin [1/s].
    tolerance : of upper / lower - 1.
    checks : distances at which rates on either side are tried, as shares of the bracket; none to check nothing.
    limits : rates below the one and above the other are not tried [1/s].

    Raises
    ------
    UnlimitedError, UnreachableRateError : every rate keeps the objectives, or none does.
    """
    known: dict[float, Verdict] = {}
    with stage("trying rates") as trying:
        def is_met(rate: float) -> bool:
            if rate not in known:
                known[rate] = evaluate(rate)
                trying.move(len(known))
            return known[rate].is_met

        low, high = _first_bracket(is_met, known, start, limits)
        trying.total = len(known) + _num_rates(low, high, tolerance, checks)
        return _refined(is_met, known, low, high, tolerance, checks, limits)


def _num_rates(low: float, high: float, tolerance: float, checks: tuple[float, ...]) -> int:
    """Return about how many rates are tried after the first bracket: those of the bisection, and checks around it."""
    halvings = math.log2(math.log(high / low) / math.log1p(tolerance))
    return math.ceil(max(halvings, 0.0)) + 2 * len(checks)


def _refined(is_met: Callable[[float], bool], known: dict[float, Verdict], low: float, high: float, tolerance: float,
             checks: tuple[float, ...], limits: tuple[float, float]) -> Bracket:
    """Return the bracket within a first one, and what rates around it do."""
    for _ in range(MOST_REPAIRS):
        low, high = _bisected(is_met, low, high, tolerance)
        checked = [low / (1 + share) for share in (0.0, *checks) if low / (1 + share) >= limits[0]]
        missed = [rate for rate in _checked(checked, known, is_met) if not is_met(rate)]
        if not missed:
            break
        high = min(missed)
        below = [rate for rate in known if rate < high and known[rate].is_met]
        low = max(below) if below else _falling(is_met, known, high, limits[0])
    above = _checked([high * (1 + share) for share in (0.0, *checks) if high * (1 + share) <= limits[1]], known, is_met)
    kept = tuple(rate for rate in above if is_met(rate))
    missed_below = tuple(sorted(rate for rate, verdict in known.items() if rate < low and not verdict.is_met))
    kept_above = tuple(sorted({*kept, *(rate for rate, verdict in known.items() if rate > high and verdict.is_met)}))
    return Bracket(lower=low, upper=high, is_monotone=not (kept_above or missed_below), kept_above=kept_above,
                   missed_below=missed_below, probes=tuple(sorted(known.items(), key=lambda item: item[0])))


def _checked(rates: list[float], known: dict[float, Verdict], is_met: Callable[[float], bool]) -> list[float]:
    """Try rates, and those between two of them of which one is near the edge; return all."""
    for rate in rates:
        is_met(rate)
    tried = sorted(rates)
    for low, high in itertools.pairwise(sorted(rates)):
        if min(abs(known[low].strain - 1), abs(known[high].strain - 1)) <= NEAR:
            steps = math.ceil(math.log(high / low) / math.log1p(FINE))
            tried += [low * (high / low) ** (k / steps) for k in range(1, steps)]
    return sorted(tried)


def _first_bracket(is_met: Callable[[float], bool], known: dict[float, Verdict], start: float,
                   limits: tuple[float, float]) -> tuple[float, float]:
    if not is_met(start):
        low = _falling(is_met, known, start, limits[0])
        return low, low * STEP
    rate = start
    for _ in range(MOST_RISES):
        if rate * STEP > limits[1]:
            break
        if not is_met(rate * STEP):
            return rate, rate * STEP
        rate *= STEP
    raise UnlimitedError(f"the objectives are met at every rate up to {rate:.3g} requests/s: the capacity is "
                         f"unlimited; give tighter limits")


def _falling(is_met: Callable[[float], bool], known: dict[float, Verdict], rate: float, least: float) -> float:
    """Return a rate below that keeps the objectives."""
    for _ in range(MOST_FALLS):
        if rate / STEP < least:
            break
        rate /= STEP
        if is_met(rate):
            return rate
    error = UnreachableRateError(f"the objectives are missed at every rate down to {rate:.3g} requests/s: "
                                 f"{known[rate].shortfall}; give looser limits or a faster deployment")
    error.rate_rps = rate
    raise error


def _bisected(is_met: Callable[[float], bool], low: float, high: float, tolerance: float) -> tuple[float, float]:
    while high / low - 1 > tolerance:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if is_met(middle) else (low, middle)
    return low, high
