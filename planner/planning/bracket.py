"""The largest load that holds: foretold from strains, bracketed, then checked around: attainment need not fall."""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from planner.errors import UsageError
from planner.planning.missed import UnreachableError
from planner.planning.strain import MOST_FORETOLD, STEEP, STRONG, foretold, slope_of, strains
from planner.progress import Stage, in_parallel, later, stage
from planner.settings.objectives import Verdict

TOLERANCE = 0.005  # upper / lower - 1 of the bracket
CHECKED = (0.01, 0.02, 0.05, 0.1, 0.2, 0.35)  # below and above the bracket, as shares of it
FINE = 0.01  # distance of tried loads near the edge if chance may decide, as a share
CHANCE = 0.01  # spread of strain by chance [1], unless strains nearby scatter more
MAY_FLIP, CANNOT_FLIP = 3.0, 6.0  # spreads of chance between strain and 1
SURE = 4.0  # tolerances between a load and the foretold edge, up to which loads on both its sides are tried at once
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """The load at which the objectives stop being kept, known within a tolerance but not bracketed by it.

    Parameters
    ----------
    load : in the unit of the unknown.
    slope : power of the load with which strain grows there [1].
    probes : loads that were tried, with their verdicts.
    """

    load: float
    slope: float
    probes: Mapping[float, Verdict]


def find_bracket(evaluate: Callable[[float], Verdict], start: float, *, unknown: Unknown = RATE,
                 tolerance: float = TOLERANCE, checks: tuple[float, ...] = CHECKED, step: float = STEP,
                 limits: tuple[float, float] = ANY, known: Mapping[float, Verdict] = MappingProxyType({}),
                 jobs: int = 1, checks_above: bool = True) -> Bracket:
    """Find the highest load that keeps the objectives.

    Goes up or down from `start` to a first bracket, by `step` and then by steps that double, up to twofold. Narrows it
    around the load at which strain, as a power of the load, would reach 1; by bisection if strains do not tell. Then
    tries loads on either side, outward until chance cannot bridge the distance of strain from 1, and densely if it
    may. A load below that misses moves the bracket under it; one above that keeps is reported, not believed.

    Parameters
    ----------
    evaluate : from a load to its verdict.
    start : first load to try.
    unknown : name and unit of the load; of whole numbers neighbours are a bracket too.
    tolerance : of upper / lower - 1.
    checks : distances at which loads on either side are tried, as shares of the bracket; none to check nothing.
    step : first step from `start`: small if that is near the answer.
    limits : loads below the one and above the other are not tried.
    known : loads that were tried before, with their verdicts.
    jobs : loads that are tried at once; -1 for one a core [1].
    checks_above : whether loads above the bracket are tried too; `lower` does not depend on them.

    Raises
    ------
    UnlimitedError, UnreachableLoadError : every load keeps the objectives, or none does.
    """
    with stage(f"trying {'numbers' if unknown.is_whole else 'rates'}") as trying:
        search = _LoadSearch(evaluate=evaluate, unknown=unknown, tolerance=tolerance, checks=checks, limits=limits,
                             step=step, jobs=jobs, checks_above=checks_above, known=dict(known), trying=trying)
        low, high = search.first_bracket(search.rounded(start))
        trying.total = len(search.known) + _num_loads(low, high, tolerance, checks)
        return search.refined(low, high)


def find_edge(evaluate: Callable[[float], Verdict], start: float, *, unknown: Unknown = RATE,
              tolerance: float = TOLERANCE, step: float = STEP, limits: tuple[float, float] = ANY,
              slope: float = STEEP, known: Mapping[float, Verdict] = MappingProxyType({})) -> Edge:
    """Find about how high the load is that just keeps the objectives.

    Ends as soon as a tried load is within the tolerance of the load at which strain is foretold to be 1; without
    strains, at the lower end of a bracket.

    Parameters
    ----------
    slope : power of the load with which strain grows, until two strains tell it [1].

    The other parameters, and the errors, are as of `find_bracket`.
    """
    with stage(f"trying {'numbers' if unknown.is_whole else 'rates'}") as trying:
        search = _LoadSearch(evaluate=evaluate, unknown=unknown, tolerance=tolerance, checks=(), limits=limits,
                             step=step, jobs=1, known=dict(known), trying=trying, slope=slope, is_rough=True)
        low, high = search.narrowed(*search.first_bracket(search.rounded(start)))
        edge = search.foretold(low, high)
        return Edge(load=low if edge is None else edge, slope=slope_of(search.known, slope), probes=search.known)


def _num_loads(low: float, high: float, tolerance: float, checks: tuple[float, ...]) -> int:
    """Return about how many loads are tried after the first bracket: the bisection's, and checks around it."""
    halvings = math.log2(math.log(high / low) / math.log1p(tolerance))
    return math.ceil(max(halvings, 0.0)) + 2 * len(checks)


@dataclass(slots=True, kw_only=True)
class _LoadSearch:
    """A search under way; it has the parameters of `find_bracket`.

    Parameters
    ----------
    known : every load that was tried, and its verdict.
    trying : the stage that the user sees.
    slope : power of the load with which strain grows, until two strains tell it [1].
    is_rough : whether a load within the tolerance of the foretold edge is enough.
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
    slope: float = STEEP
    is_rough: bool = False
    checks_above: bool = True

    def is_met(self, load: float) -> bool:
        if load not in self.known:
            self.count(1)
            self.known[load] = self.evaluate(load)
            self.count()
        return self.known[load].is_met

    def try_all(self, loads: Iterable[float]) -> None:
        """Judge loads that are not known yet, several at once."""
        unknown = sorted(set(loads) - self.known.keys())
        if len(unknown) == 1:
            self.is_met(unknown[0])
            return
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

    def foretold(self, low: float, high: float) -> float | None:
        """Return the foretold edge; None if it is not known or far outside. By chance it may lie a little outside."""
        edge, close = foretold(self.known, self.slope), (1 + self.tolerance) ** SURE
        if edge is None or not low / close <= edge <= high * close:
            return None
        return min(max(edge, low), high)

    def chance(self) -> float:
        """Return the spread of strain by chance: how far strains lie from the line through their neighbours'."""
        told = sorted((math.log(load), strain) for load, strain in strains(self.known) if abs(strain) <= STRONG)
        off = [(two[1] - one[1] - (three[1] - one[1]) * (two[0] - one[0]) / (three[0] - one[0])) ** 2 / 1.5
               for one, two, three in zip(told, told[1:], told[2:], strict=False)]
        return max(CHANCE, math.sqrt(sum(off) / max(len(off), 1)))

    def distance(self, edge: float) -> float:
        """Return how far the foretold edge is from the nearest load whose strain is known, as a share."""
        return min(abs(math.log(load / edge)) for load, _ in strains(self.known))

    def is_enough(self, low: float, high: float) -> bool:
        """Tell whether a bracket is as narrow as asked for."""
        if high <= low * (1 + self.tolerance) * (1 + 1e-12) or (
                self.unknown.is_whole and 0 < low >= high - 1):
            return True
        edge = self.foretold(low, high) if self.is_rough else None
        return edge is not None and self.distance(edge) <= self.tolerance

    def first_bracket(self, start: float) -> tuple[float, float]:
        """Return two loads, of which the lower keeps the objectives and the upper misses them.

        In a rough search one of them may be 0 or infinite.
        """
        kept = [load for load, verdict in self.known.items() if verdict.is_met]
        missed = [load for load, verdict in self.known.items() if not verdict.is_met]
        if kept and missed and max(kept) < min(missed):
            return max(kept), min(missed)
        if not self.is_met(start):
            return self.falling(start)
        load, step, foretold = start, self.step, 0
        while load < start * STEP ** MOST_RISES:
            if self.is_rough and self.is_enough(load, math.inf):
                return load, math.inf
            edge = self.foretold(load, load * STEP) if foretold < MOST_FORETOLD else None
            if edge is None:
                higher, step, foretold = self.rounded(load * step), min(step * step, STEP), 0
            else:
                higher, foretold = self.rounded(max(edge, load * (1 + self.tolerance))), foretold + 1
            if self.unknown.is_whole:
                higher = min(max(higher, load + 1), self.limits[1])
            if higher > self.limits[1] or higher <= load:
                break
            if not self.is_met(higher):
                return load, higher
            load = higher
        raise UnlimitedError(f"the objectives are met at every {self.unknown.name} up to {load:.3g} "
                             f"{self.unknown.unit}: the capacity is unlimited; give tighter limits")

    def falling(self, load: float) -> tuple[float, float]:
        """Return a load below that keeps the objectives, and the lowest above it that misses them."""
        start, step, foretold = load, self.step, 0
        while load > start / STEP ** MOST_FALLS:
            if self.is_rough and self.is_enough(0.0, load):
                return 0.0, load
            edge = self.foretold(load / STEP, load) if foretold < MOST_FORETOLD else None
            if edge is None:
                lower, foretold = (max(load // step, 1.0) if self.unknown.is_whole else load / step), 0
                step = min(step * step, STEP)
            else:
                lower, foretold = self.rounded(min(edge, load / (1 + self.tolerance))), foretold + 1
            if self.unknown.is_whole:
                lower = min(lower, max(load - 1, 1.0))
            if lower < self.limits[0] or lower >= load:
                break
            if self.is_met(lower):
                return lower, load
            load = lower
        error = UnreachableLoadError(f"the objectives are missed at every {self.unknown.name} down to {load:.3g} "
                                     f"{self.unknown.unit}: {self.known[load].shortfall}; give looser limits or a "
                                     f"faster deployment")
        error.lowest = load
        raise error

    def refined(self, low: float, high: float) -> Bracket:
        """Return the bracket within a first one, with the verdicts on loads around it."""
        known = self.known
        for _ in range(MOST_REPAIRS):
            low, high = self.narrowed(low, high)
            below = self.checked([low / (1 + share) for share in (0.0, *self.checks)])
            missed = [load for load in below if load < high and not self.is_met(load)]
            if not missed:
                break
            high = min(missed)
            kept = [load for load in known if load < high and known[load].is_met]
            low = max(kept) if kept else self.falling(high)[0]
        above = self.checked([high * (1 + share) for share in (0.0, *self.checks)]) if self.checks_above else []
        kept_above = {load for load in above if load > low and self.is_met(load)}
        kept_above |= {load for load, verdict in known.items() if load > high and verdict.is_met}
        missed_below = tuple(sorted(load for load, verdict in known.items() if load < low and not verdict.is_met))
        return Bracket(lower=low, upper=high, is_monotone=not (kept_above or missed_below),
                       kept_above=tuple(sorted(kept_above)), missed_below=missed_below,
                       probes=tuple(sorted(known.items(), key=lambda item: item[0])))

    def checked(self, loads: list[float]) -> list[float]:
        """Try loads within the limits, and those between two of them of which one is near the edge; return all.

        Parameters
        ----------
        loads : outward from the bracket. Beyond one that chance cannot flip no other is tried, except the lowest, which
            shows the statistics of a light load.
        """
        inside = list(dict.fromkeys(self.rounded(load) for load in loads
                                    if self.limits[0] <= load <= self.limits[1]))
        tried: list[float] = []
        while len(tried) < len(inside) and not (tried and self.is_beyond(tried[-1], CANNOT_FLIP)):
            tried = inside[:len(tried) + 2]
            self.try_all(tried)
        lowest = inside[-1:] if loads[-1] < loads[0] else []
        self.try_all(lowest)
        between = {*tried, *lowest}
        for low, high in itertools.pairwise(sorted(tried)):
            if not (self.is_beyond(low, MAY_FLIP) or self.is_beyond(high, MAY_FLIP)):
                steps = math.ceil(math.log(high / low) / math.log1p(FINE))
                between |= {self.rounded(low * (high / low) ** (k / steps)) for k in range(1, steps)}
        self.try_all(between)
        return sorted(between)

    def is_beyond(self, load: float, spreads: float) -> bool:
        """Tell whether a tried load's strain is more spreads of chance away from 1."""
        strain = self.known[load].strain
        return strain == math.inf or (strain >= 0 and abs(math.log(max(strain, 1e-9))) > spreads * self.chance())

    def narrowed(self, low: float, high: float) -> tuple[float, float]:
        """Narrow a bracket around the foretold edge; in its middle if the last load there has not halved it."""
        is_trusted = True
        while not self.is_enough(low, high):
            width, edge = high / low if low > 0 else math.inf, self.foretold(low, high) if is_trusted else None
            loads = [math.sqrt(low * high)] if edge is None else self.around(edge, low, high)
            if self.unknown.is_whole:
                loads = [min(max(self.rounded(load), low + 1), high - 1) for load in loads]
            self.try_all(loads)
            for load in sorted(load for load in self.known if low < load < high):
                low, high = (load, high) if self.known[load].is_met else (low, load)
                if high == load:
                    break
            is_trusted = edge is None or high / low <= math.sqrt(width)
        return low, high

    def around(self, edge: float, low: float, high: float) -> list[float]:
        """Return the loads within a bracket that test the foretold edge.

        If a known load is near, these are loads on both sides of the edge, so that the bracket closes; else the edge.
        """
        least, half = 1 + self.tolerance, math.sqrt(1 + self.tolerance)
        if self.is_rough or self.distance(edge) > SURE * self.tolerance:
            return [min(max(edge, low * half), high / half)]
        loads, above = [edge / half], edge * half
        if loads[0] <= low * half:
            loads, above = [], low * least
        if above < high / half:
            return [*loads, above]
        return [high / least] if loads else [math.sqrt(low * high)]
