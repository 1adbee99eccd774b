"""The largest load that holds: bisected, then checked around, since attainment need not fall with the load."""

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from planner.errors import UsageError
from planner.planning.missed import UnreachableError
from planner.progress import Stage, in_parallel, later, stage
from planner.settings.objectives import Verdict

TOLERANCE = 0.005  # upper / lower - 1 of the bracket
CHECKED = (0.01, 0.02, 0.05, 0.1, 0.2, 0.35)  # below and above the bracket, as shares of it
NEAR = 0.25  # strain's distance from the edge, next to which rates are tried that lie
FINE = 0.01  # so far apart
STEP = 2.0  # of the search for a first bracket
MOST_RISES, MOST_FALLS = 40, 16  # of them, each way; a 65,536th of a rate has requests run one at a time
ANY = (0.0, math.inf)  # rates [1/s]
MOST_REPAIRS = 5  # brackets that a missed load below sends back to the search


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """The unknown of a search.

    Parameters
    ----------
    name, unit : in words, "rate" and "requests/s".
    is_whole : whether it is a number of things.
    """

    name: str
    unit: str
    is_whole: bool

    def text(self, load: float | None) -> str:
        """Return a load without its unit: whole, or with four digits; a dash if there is none.

        >>> RATE.text(12.3456), UNKNOWNS["sessions"].text(1200)
        ('12.35', '1,200')
        """
        if load is None:
            return "–"
        return f"{round(load):,}" if self.is_whole else f"{load:.4g}"


RATE = Unknown(name="rate", unit="requests/s", is_whole=False)
UNKNOWNS = {
    "requests": RATE,
    "concurrency": Unknown(name="number of users", unit="users", is_whole=True),
    "sessions": Unknown(name="number of open sessions", unit="sessions", is_whole=True),
}


class UnlimitedError(UsageError):
    """Every load keeps the objectives."""


class UnreachableLoadError(UnreachableError):
    """No load keeps the objectives; `lowest` is the lowest that was tried."""

    lowest: float = math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class Bracket:
    """Between which loads the objectives stop being kept, each in the unit of the unknown.

    Parameters
    ----------
    lower, upper : highest load that keeps them with all checked loads below it, and lowest above it that does not.
    is_monotone : whether no checked load above keeps them, and none below misses them.
    kept_above, missed_below : checked loads above that keep the objectives, and below that miss them.
    probes : every load that was tried and its verdict, in ascending order.
    """

    lower: float
    upper: float
    is_monotone: bool
    kept_above: tuple[float, ...]
    missed_below: tuple[float, ...]
    probes: tuple[tuple[float, Verdict], ...]


def find_bracket(evaluate: Callable[[float], Verdict], start: float, *, unknown: Unknown = RATE,
                 tolerance: float = TOLERANCE, checks: tuple[float, ...] = CHECKED, step: float = STEP,
                 limits: tuple[float, float] = ANY, within: tuple[float, float] | None = None,
                 jobs: int = 1) -> Bracket:
    """Find the highest load that keeps the objectives.

    Goes up or down from `start` to a first bracket, by `step` and then by steps that double, up to twofold. Bisects it
    in the logarithm, and then tries loads on either side, densely if the reached value is near the limit. A load
    below that misses moves the bracket under it; one above that keeps is reported, not believed.

    Parameters
    ----------
    evaluate : from a load to its verdict.
    start : first load to try.
    unknown : name and unit of the load; of whole numbers neighbours are a bracket too.
    tolerance : of upper / lower - 1.
    checks : distances at which loads on either side are tried, as shares of the bracket; none to check nothing.
    step : first step from `start`: small if that is near the answer.
    limits : loads below the one and above the other are not tried.
    within : a first bracket, if it is known.
    jobs : loads on either side that are tried at once; -1 for one a core [1].

    Raises
    ------
    UnlimitedError, UnreachableLoadError : every load keeps the objectives, or none does.
    """
    with stage(f"trying {'numbers' if unknown.is_whole else 'rates'}") as trying:
        search = _Search(evaluate=evaluate, unknown=unknown, tolerance=tolerance, checks=checks, limits=limits,
                         step=step, jobs=jobs, known={}, trying=trying)
        low, high = within or search.first_bracket(search.rounded(start))
        trying.total = len(search.known) + _num_loads(low, high, tolerance, checks)
        return search.refined(low, high)


def _num_loads(low: float, high: float, tolerance: float, checks: tuple[float, ...]) -> int:
    """Return about how many loads are tried after the first bracket: the bisection's, and checks around it."""
    halvings = math.log2(math.log(high / low) / math.log1p(tolerance))
    return math.ceil(max(halvings, 0.0)) + 2 * len(checks)


@dataclass(slots=True, kw_only=True)
class _Search:
    """A search under way; it has the parameters of `find_bracket`.

    Parameters
    ----------
    known : every load that was tried, and its verdict.
    trying : the stage that the user sees.
    """

    evaluate: Callable[[float], Verdict]
    unknown: Unknown
    tolerance: float
    checks: tuple[float, ...]
    limits: tuple[float, float]
    step: float
    jobs: int
    known: dict[float, Verdict]
    trying: Stage

    def is_met(self, load: float) -> bool:
        if load not in self.known:
            self.known[load] = self.evaluate(load)
            self.count()
        return self.known[load].is_met

    def try_all(self, loads: Iterable[float]) -> None:
        """Judge loads that are not known yet, several at once."""
        unknown = sorted(set(loads) - self.known.keys())
        self.count(len(unknown))
        calls = [later(self.evaluate)(load) for load in unknown]
        self.known |= zip(unknown, in_parallel("trying loads around the largest", calls, len(calls), self.jobs),
                          strict=True)
        self.count()

    def count(self, coming: int = 0) -> None:
        """Report how many loads are done, and that at least `coming` more follow."""
        total = self.trying.total
        self.trying.move(len(self.known), None if total is None else max(total, len(self.known) + coming))

    def rounded(self, load: float) -> float:
        return float(min(max(round(load), 1), self.limits[1])) if self.unknown.is_whole else load

    def first_bracket(self, start: float) -> tuple[float, float]:
        """Return two loads, of which the lower keeps the objectives and the upper misses them."""
        if not self.is_met(start):
            low = self.falling(start)
            return low, min(load for load in self.known if load > low)
        load, step = start, self.step
        while load < start * STEP ** MOST_RISES:
            higher, step = self.rounded(load * step), min(step * step, STEP)
            if self.unknown.is_whole:
                higher = min(max(higher, load + 1), self.limits[1])
            if higher > self.limits[1] or higher <= load:
                break
            if not self.is_met(higher):
                return load, higher
            load = higher
        raise UnlimitedError(f"the objectives are met at every {self.unknown.name} up to {load:.3g} "
                             f"{self.unknown.unit}: the capacity is unlimited; give tighter limits")

    def falling(self, load: float) -> float:
        """Return a load below that keeps the objectives."""
        start, step = load, self.step
        while load > start / STEP ** MOST_FALLS:
            lower, step = (max(load // step, 1.0) if self.unknown.is_whole else load / step), min(step * step, STEP)
            if self.unknown.is_whole:
                lower = min(lower, max(load - 1, 1.0))
            if lower < self.limits[0] or lower >= load:
                break
            load = lower
            if self.is_met(load):
                return load
        error = UnreachableLoadError(f"the objectives are missed at every {self.unknown.name} down to {load:.3g} "
                                     f"{self.unknown.unit}: {self.known[load].shortfall}; give looser limits or a "
                                     f"faster deployment")
        error.lowest = load
        raise error

    def refined(self, low: float, high: float) -> Bracket:
        """Return the bracket within a first one, with the verdicts on loads around it."""
        known = self.known
        for _ in range(MOST_REPAIRS):
            low, high = self.bisected(low, high)
            below = self.checked([low / (1 + share) for share in (0.0, *self.checks)])
            missed = [load for load in below if load < high and not self.is_met(load)]
            if not missed:
                break
            high = min(missed)
            kept = [load for load in known if load < high and known[load].is_met]
            low = max(kept) if kept else self.falling(high)
        above = self.checked([high * (1 + share) for share in (0.0, *self.checks)])
        kept_above = {load for load in above if load > low and self.is_met(load)}
        kept_above |= {load for load, verdict in known.items() if load > high and verdict.is_met}
        missed_below = tuple(sorted(load for load, verdict in known.items() if load < low and not verdict.is_met))
        return Bracket(lower=low, upper=high, is_monotone=not (kept_above or missed_below),
                       kept_above=tuple(sorted(kept_above)), missed_below=missed_below,
                       probes=tuple(sorted(known.items(), key=lambda item: item[0])))

    def checked(self, loads: list[float]) -> list[float]:
        """Try loads within the limits, and those between two of them of which one is near the edge; return all."""
        tried = sorted({self.rounded(load) for load in loads if self.limits[0] <= load <= self.limits[1]})
        self.try_all(tried)
        found = set(tried)
        for low, high in itertools.pairwise(tried):
            if min(abs(self.known[low].strain - 1), abs(self.known[high].strain - 1)) <= NEAR:
                steps = math.ceil(math.log(high / low) / math.log1p(FINE))
                found |= {self.rounded(low * (high / low) ** (k / steps)) for k in range(1, steps)}
        self.try_all(found)
        return sorted(found)

    def bisected(self, low: float, high: float) -> tuple[float, float]:
        while high / low - 1 > self.tolerance and not (self.unknown.is_whole and high - low <= 1):
            middle = math.sqrt(low * high)
            if self.unknown.is_whole:
                middle = min(max(self.rounded(middle), low + 1), high - 1)
            low, high = (middle, high) if self.is_met(middle) else (low, middle)
        return low, high
