"""The highest rate that holds: bisected, then checked around, since attainment need not fall with the rate."""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

from planner.errors import UsageError
from planner.settings.objectives import Verdict

TOLERANCE = 0.005  # upper / lower - 1 of the bracket
CHECKED = (0.01, 0.02, 0.05, 0.1, 0.2, 0.35)  # below and above the bracket, as shares of it
NEAR = 0.25  # strain's distance from the edge, next to which rates are tried that lie
FINE = 0.01  # so far apart
STEP = 2.0  # of the search for a first bracket
MOST_RISES, MOST_FALLS = 40, 16  # of them, each way; a 65,536th of a rate has requests run one at a time
MOST_REPAIRS = 5  # brackets that a missed rate below sends back to the search


class UnlimitedError(UsageError):
    """Every rate keeps the objectives."""


class UnreachableError(UsageError):
    """No rate keeps the objectives."""


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
                 checks: tuple[float, ...] = CHECKED) -> Bracket:
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

    Raises
    ------
    UnlimitedError, UnreachableError : every rate keeps the objectives, or none does.
    """
    known: dict[float, Verdict] = {}

    def is_met(rate: float) -> bool:
        if rate not in known:
            known[rate] = evaluate(rate)
        return known[rate].is_met

    low, high = _first_bracket(is_met, known, start)
    for _ in range(MOST_REPAIRS):
        low, high = _bisected(is_met, low, high, tolerance)
        missed = [rate for rate in _checked([low / (1 + share) for share in (0.0, *checks)], known, is_met)
                  if not is_met(rate)]
        if not missed:
            break
        high = min(missed)
        below = [rate for rate in known if rate < high and known[rate].is_met]
        low = max(below) if below else _falling(is_met, known, high)
    above = _checked([high * (1 + share) for share in (0.0, *checks)], known, is_met)
    kept = tuple(rate for rate in above if is_met(rate))
    missed_below = tuple(sorted(rate for rate, verdict in known.items() if rate < low and not verdict.is_met))
    kept_above = tuple(sorted({*kept, *(rate for rate, verdict in known.items() if rate > high and verdict.is_met)}))
    return Bracket(lower=low, upper=high, is_monotone=not (kept_above or missed_below), kept_above=kept_above,
                   missed_below=missed_below, probes=tuple(sorted(known.items(), key=lambda item: item[0])))


def _checked(rates: list[float], known: dict[float, Verdict], is_met: Callable[[float], bool]) -> list[float]:
    """Try rates, and those between two of them of which one is near the edge; return all."""
    for rate in rates:
        is_met(rate)
    found = sorted(rates)
    for low, high in itertools.pairwise(sorted(rates)):
        if min(abs(known[low].strain - 1), abs(known[high].strain - 1)) <= NEAR:
            steps = math.ceil(math.log(high / low) / math.log1p(FINE))
            found += [low * (high / low) ** (k / steps) for k in range(1, steps)]
    return sorted(found)


def _first_bracket(is_met: Callable[[float], bool], known: dict[float, Verdict], start: float) -> tuple[float, float]:
    if not is_met(start):
        low = _falling(is_met, known, start)
        return low, low * STEP
    rate = start
    for _ in range(MOST_RISES):
        if not is_met(rate * STEP):
            return rate, rate * STEP
        rate *= STEP
    raise UnlimitedError(f"the objectives are kept at every rate up to {rate:.3g} requests/s: the capacity is "
                         f"unlimited; give limits that a load can miss")


def _falling(is_met: Callable[[float], bool], known: dict[float, Verdict], rate: float) -> float:
    """Return a rate below that keeps the objectives."""
    for _ in range(MOST_FALLS):
        rate /= STEP
        if is_met(rate):
            return rate
    worst = known[rate]
    raise UnreachableError(f"the objectives are missed at every rate down to {rate:.3g} requests/s, where a request "
                           f"meets only those that come with it: {worst.shortfall}; give limits that a request alone "
                           f"can keep, or a faster deployment")


def _bisected(is_met: Callable[[float], bool], low: float, high: float, tolerance: float) -> tuple[float, float]:
    while high / low - 1 > tolerance:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if is_met(middle) else (low, middle)
    return low, high
