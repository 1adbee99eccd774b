"""Arrival processes: gaps of a law on an operational clock, which runs at a steady, a switching or a recorded rate."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from planner.errors import UnknownNameError, UsageError
from planner.traces.synthesis.fields import not_negative, positive
from planner.traces.synthesis.quantiles import QuantileCurve, spread_evenly

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PROCESSES = {  # from the fewest numbers to the most
    "poisson": "exponential gaps at a steady rate",
    "gamma": "gamma-distributed gaps",
    "weibull": "Weibull-distributed gaps",
    "mmpp": "Poisson at a rate that switches between states of exponential length",
    "series": "a recorded series of rates, each window with its count, and gaps of a recorded law in it",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """How requests arrive.

    Parameters
    ----------
    process : a name of `PROCESSES`.
    rate_per_s : mean rate [1/s].
    tick_s : arrivals are rounded down to multiples of it, as the log's clock did; 0 for none [s].
    gap_shape : of gamma and weibull gaps; 1 is exponential, less is more clumped [1].
    state_rates_per_s, state_mean_s : of an mmpp's states, which follow each other in turn [1/s], [s].
    window_s, window_rates_per_s : lengths of a series' windows, and the mean rate of each; past its end it begins
        again [s], [1/s].
    gaps : law of a series' gaps within windows, in mean gaps; None for exponential ones.
    """

    process: str
    rate_per_s: float
    tick_s: float = 0.0
    gap_shape: float = 1.0
    state_rates_per_s: tuple[float, ...] = ()
    state_mean_s: tuple[float, ...] = ()
    window_s: tuple[float, ...] = ()
    window_rates_per_s: tuple[float, ...] = ()
    gaps: QuantileCurve | None = None

    def __post_init__(self) -> None:
        if self.process not in PROCESSES:
            raise UnknownNameError("arrival process", str(self.process), PROCESSES)
        positive("rate_per_s", self.rate_per_s)
        positive("gap_shape", self.gap_shape)
        not_negative("tick_s", self.tick_s)
        self._check_pieces("mmpp", "state_mean_s", self.state_mean_s, "state_rates_per_s", self.state_rates_per_s)
        self._check_pieces("series", "window_s", self.window_s, "window_rates_per_s", self.window_rates_per_s)

    def _check_pieces(self, process: str, name: str, lengths_s: tuple[float, ...], rates_name: str,
                      rates_per_s: tuple[float, ...]) -> None:
        positive(name, *lengths_s)
        not_negative(rates_name, *rates_per_s)
        if len(lengths_s) != len(rates_per_s):
            raise UsageError(f"{name} has {len(lengths_s)} numbers and {rates_name} {len(rates_per_s)}; must be as "
                             f"many")
        if self.process == process and not any(rates_per_s):
            raise UsageError(f"{rates_name} has no number above 0; an arrival process {process!r} must have one")

    @property
    def num_numbers(self) -> int:
        """How many numbers describe the process."""
        return (1 + (self.process in ("gamma", "weibull")) + 2 * len(self.state_mean_s) + 2 * len(self.window_s)
                + (2 * len(self.gaps.at) if self.gaps else 0))

    def faster(self, factor: float) -> "Process":
        """Return the process at `factor` times its rate, on the same clock: more users of the same kind."""
        return replace(self, rate_per_s=self.rate_per_s * factor,
                       state_rates_per_s=tuple(rate * factor for rate in self.state_rates_per_s),
                       window_rates_per_s=tuple(rate * factor for rate in self.window_rates_per_s))


def draw_arrivals(process: Process, duration_s: float, rng: Generator) -> Floats:
    """Draw arrivals in [0, duration_s), sorted [s]."""
    edges_s, counts = _CLOCKS[process.process](process, duration_s, rng)
    times_s = (_within_windows if process.process == "series" else _renewals)(process, edges_s, counts, rng)
    if process.tick_s:
        times_s = np.floor(times_s / process.tick_s + 1e-9) * process.tick_s
    return np.minimum(times_s, np.nextafter(duration_s, 0.0))


def _steady(process: Process, duration_s: float, rng: Generator) -> tuple[Floats, Floats]:
    return np.array([0.0, duration_s]), np.array([process.rate_per_s * duration_s])


def _switching(process: Process, duration_s: float, rng: Generator) -> tuple[Floats, Floats]:
    """Return the edges of states that follow each other in turn, from one drawn by its share of time; mean counts."""
    mean_s, rates = np.array(process.state_mean_s), np.array(process.state_rates_per_s)
    first = rng.choice(len(mean_s), p=mean_s / mean_s.sum())
    num_rounds = duration_s / mean_s.sum()
    state = (first + np.arange(len(mean_s) * int(num_rounds + 12 * math.sqrt(num_rounds) + 64))) % len(mean_s)
    ends_s = np.cumsum(rng.exponential(mean_s[state]))
    last = int(np.searchsorted(ends_s, duration_s))
    edges_s = np.concatenate(([0.0], ends_s[:last], [duration_s]))
    return edges_s, np.diff(edges_s) * rates[state[: last + 1]]


def _recorded(process: Process, duration_s: float, rng: Generator) -> tuple[Floats, Floats]:
    """Return the edges of a series' windows, begun again as often as it takes, and their mean counts."""
    lengths_s, rates = np.array(process.window_s), np.array(process.window_rates_per_s)
    rounds = math.ceil(duration_s / lengths_s.sum())
    ends_s = np.cumsum(np.tile(lengths_s, rounds))
    last = int(np.searchsorted(ends_s, duration_s))
    edges_s = np.concatenate(([0.0], ends_s[:last], [duration_s]))
    return edges_s, np.diff(edges_s) * np.tile(rates, rounds)[: last + 1]


_CLOCKS: Mapping[str, Callable[[Process, float, Generator], tuple[Floats, Floats]]] = {
    "poisson": _steady, "gamma": _steady, "weibull": _steady, "mmpp": _switching, "series": _recorded}


def _renewals(process: Process, edges_s: Floats, counts: Floats, rng: Generator) -> Floats:
    """Draw gaps of mean 1 on a clock that gains a window's mean count in it."""
    clock = np.concatenate(([0.0], np.cumsum(counts)))
    shape = process.gap_shape
    num = int(clock[-1] + 12.0 * math.sqrt(clock[-1] / min(shape, 1.0) ** 2) + 64)
    if process.process == "gamma":
        gaps = rng.gamma(shape, 1.0 / shape, num)
    elif process.process == "weibull":
        gaps = rng.weibull(shape, num) / math.gamma(1.0 + 1.0 / shape)
    else:
        gaps = rng.exponential(1.0, num)
    ticks = np.cumsum(gaps)
    return np.asarray(np.interp(ticks[ticks < clock[-1]], clock, edges_s))


def _within_windows(process: Process, edges_s: Floats, counts: Floats, rng: Generator) -> Floats:
    """Give every window its count, to within one, and spread it by drawn gaps.

    A window's rate is its count in the record, noise included; drawing the count again would add that noise twice.
    """
    clock = np.concatenate(([0.0], np.cumsum(counts)))
    num = np.diff(np.floor(clock + rng.random())).astype(np.int64)
    total = int(num.sum())
    even = spread_evenly(rng.random(total), rng)
    gaps = -np.log1p(-even) if process.gaps is None else np.maximum(process.gaps(even), 0.0)
    gaps += 1e-9  # a window of nothing but zero gaps has no length to be spread over
    window = np.repeat(np.arange(len(num)), num)
    first = np.cumsum(num) - num
    filled = first[num > 0]
    summed = np.cumsum(gaps)
    before = (summed - gaps)[first[window]] if total else summed
    lead = gaps[first[window]] if total else gaps
    phase = rng.random(len(num))[window]  # the first gap lies partly before the window's first request
    lengths = np.zeros(len(num))
    lengths[num > 0] = np.add.reduceat(gaps, filled) if total else 0.0
    place = (summed - before - (1.0 - phase) * lead) / lengths[window]
    return np.asarray(edges_s[window] + place * np.diff(edges_s)[window])
