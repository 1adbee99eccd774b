"""Which process describes arrivals: each fitted, and the one of fewest numbers chosen that is as bursty."""

import functools
import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import gamma

from planner.errors import UnknownNameError
from planner.loop.compiled.jit import compile_with_signature, numba
from planner.traces.fitting.windows import edges_of, rate_windows
from planner.traces.shaping.burstiness import dispersion, gap_cv, spread_ticks
from planner.traces.synthesis.arrival_processes import PROCESSES, Process, draw_arrivals
from planner.traces.synthesis.quantiles import fit_quantiles

Floats = NDArray[np.float64]

CLOSE = 1.75  # how far off burstiness may be and still count as the same: the noise of record and draw alone is sqrt(2)
TOLERANCE = 0.05  # of burstiness, beside its noise
DRAWS = 3
NOISE_DRAWS = 8
WINDOWS_S = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3600.0, 10_800.0)
FEWEST_WINDOWS = 30  # in the record, for a window to be compared
SHORT_GAPS = (0.01, 0.1, 0.5)  # in mean gaps
PARTS = 10  # of the record, whose counts are compared
FEWEST_REQUESTS = 10  # for a choice
STATE_CELLS = 50_000  # that the record is cut into to look for states
STATE_ROUNDS = 60


class FittedProcess(NamedTuple):
    """A fitted process, and how far its burstiness is off, in its tolerance [1]."""

    process: Process
    deviation: float


def fit_arrivals(arrival_s: Floats, duration_s: float, process: str = "auto") -> tuple[Process, list[FittedProcess]]:
    """Fit all processes to arrivals, or a named one, and choose.

    Burstiness is the coefficient of variation of the gaps, the share of short ones, the index of dispersion over
    windows of which the record has FEWEST_WINDOWS or more, and the counts in ten parts of the record. How far off a
    process is, is the root mean square, over three draws, of the logarithms of the ratios to the record's, each over
    its tolerance: 5 %, and the noise that a Poisson process of as many arrivals has. The choice is the process with
    the fewest numbers that is within CLOSE, or else the one that is least off.

    Parameters
    ----------
    arrival_s : sorted, from 0 on [s].
    duration_s : of the record, beyond its last arrival [s].
    process : a name of `PROCESSES`, or "auto".

    Returns
    -------
    The process, and all that were fitted.
    """
    if process not in ("auto", *PROCESSES):
        raise UnknownNameError("arrival process", process, ("auto", *PROCESSES))
    apart_s = spread_ticks(arrival_s, 0.0, duration_s, np.random.default_rng(0))
    names = list(PROCESSES) if process == "auto" and len(arrival_s) >= FEWEST_REQUESTS else [process]
    if process == "auto" and len(names) == 1:
        names = ["poisson"]
    fitted = [law for name in names for law in _FITS[name](apart_s, duration_s)]
    measures, tolerance = _burstiness(apart_s, apart_s, duration_s), _tolerance(apart_s, duration_s)
    candidates = [FittedProcess(law, _deviation(law, measures, tolerance, apart_s, duration_s)) for law in fitted]
    close = [candidate for candidate in candidates if candidate.deviation <= CLOSE]
    chosen = min(close, key=lambda candidate: (candidate.process.num_numbers, candidate.deviation)) if close else min(
        candidates, key=lambda candidate: candidate.deviation)
    return chosen.process, candidates


def _tolerance(arrival_s: Floats, duration_s: float) -> Floats:
    """Return how far off each measure of burstiness may be, as the logarithm of a ratio."""
    steady = Process(process="poisson", rate_per_s=_rate(arrival_s, duration_s))
    drawn = [draw_arrivals(steady, duration_s, np.random.default_rng(seed)) for seed in range(NOISE_DRAWS)]
    measures = [_burstiness(draw, arrival_s, duration_s) for draw in drawn if len(draw) > 2]
    return np.asarray(np.hypot(TOLERANCE, np.log(measures).std(axis=0) if measures else 1.0))


def _deviation(process: Process, recorded: Floats, tolerance: Floats, arrival_s: Floats, duration_s: float) -> float:
    errors = []
    for seed in range(DRAWS):
        drawn = draw_arrivals(process, duration_s, np.random.default_rng(seed))
        measures = _burstiness(drawn, arrival_s, duration_s) if len(drawn) > 2 else recorded * 1e-3
        errors.append(np.log(measures / recorded) / tolerance)
    return float(np.sqrt(np.mean(np.concatenate(errors) ** 2)))


def _burstiness(arrival_s: Floats, recorded_s: Floats, duration_s: float) -> Floats:
    """Return the statistics to compare, one number each, above 0."""
    windows = [window for window in WINDOWS_S if recorded_s[-1] >= FEWEST_WINDOWS * window
               and window * len(recorded_s) >= duration_s / 100]
    counts, _ = np.histogram(arrival_s, np.linspace(0.0, duration_s, PARTS + 1))
    spread = [dispersion(np.concatenate(([0.0], arrival_s)), window) or 1e-3 for window in windows]
    gaps = np.diff(arrival_s) * (len(recorded_s) / duration_s)
    short = [np.mean(gaps < limit) + 1e-4 for limit in SHORT_GAPS]
    return np.array([gap_cv(arrival_s) or 1e-3, *short, *spread, *(counts + 1.0)])


def _poisson(arrival_s: Floats, duration_s: float) -> list[Process]:
    return [Process(process="poisson", rate_per_s=_rate(arrival_s, duration_s))]


def _rate(arrival_s: Floats, duration_s: float) -> float:
    return len(arrival_s) / duration_s


def _gamma(arrival_s: Floats, duration_s: float) -> list[Process]:
    """Fit gaps by their coefficient of variation, which is 1 / sqrt(shape)."""
    shape = (gap_cv(arrival_s) or 1.0) ** -2
    return [Process(process="gamma", rate_per_s=_rate(arrival_s, duration_s), gap_shape=_rounded(min(shape, 1e3)))]


def _weibull(arrival_s: Floats, duration_s: float) -> list[Process]:
    """Fit gaps by their coefficient of variation, sqrt(Γ(1 + 2/k) / Γ(1 + 1/k)² − 1)."""
    wanted = gap_cv(arrival_s) or 1.0
    shape = brentq(lambda k: math.log(gamma(1 + 2 / k) / gamma(1 + 1 / k) ** 2 - 1) / 2 - math.log(wanted), 0.12, 60,
                   full_output=True, disp=False)[0] if 0.02 < wanted < 100 else 0.12 if wanted >= 100 else 60.0
    return [Process(process="weibull", rate_per_s=_rate(arrival_s, duration_s), gap_shape=_rounded(float(shape)))]


def _series(arrival_s: Floats, duration_s: float) -> list[Process]:
    """Fit windows of steady rates, with exponential gaps in them and with a law of their own, in the window's mean."""
    cuts = rate_windows(arrival_s, duration_s)
    edges_s = edges_of(arrival_s, duration_s)[cuts]
    gaps = np.diff(np.interp(arrival_s, edges_s, cuts))
    widths = [_rounded(width, 8) for width in np.diff(edges_s)]
    rates = [_rounded(count / width, 8) for count, width in zip(np.diff(cuts), widths, strict=True)]
    plain = Process(process="series", rate_per_s=_rate(arrival_s, duration_s), window_s=tuple(widths),
                    window_rates_per_s=tuple(rates))
    return [plain, replace(plain, gaps=fit_quantiles(gaps / gaps.mean(), floor=0.01))]


def _mmpp(arrival_s: Floats, duration_s: float) -> list[Process]:
    """Fit two states to counts in equal cells of time, by expectation and maximisation (Baum and Welch)."""
    cell_s = duration_s / min(STATE_CELLS, max(len(arrival_s) // 2, 8))
    counts = np.bincount((arrival_s / cell_s).astype(np.int64), minlength=8).astype(float)
    high = np.quantile(counts, 0.9) + 0.5
    means, stay = np.array([max(counts[counts < high].mean() / 2, 1e-3), high]), np.array([0.95, 0.9])
    for _ in range(STATE_ROUNDS):
        weights, moves = _expected(counts, means, stay)
        means = np.maximum((weights * counts[:, None]).sum(axis=0) / weights.sum(axis=0), 1e-6)
        stay = np.clip(np.diag(moves) / moves.sum(axis=1), 0.01, 1 - 1 / len(counts))
    mean_s = cell_s / (1.0 - stay)
    rates = means / cell_s
    rates *= _rate(arrival_s, duration_s) / ((rates * mean_s).sum() / mean_s.sum())
    return [Process(process="mmpp", rate_per_s=_rate(arrival_s, duration_s),
                    state_rates_per_s=tuple(_rounded(rate) for rate in rates),
                    state_mean_s=tuple(_rounded(mean) for mean in mean_s))]


def _expected(counts: Floats, means: Floats, stay: Floats) -> tuple[Floats, Floats]:
    """Return how likely each cell is in each state [cells, 2], and how often a state follows a state [2, 2]."""
    log = counts[:, None] * np.log(means) - means
    seen = np.exp(log - log.max(axis=1, keepdims=True))
    steps = np.array([[stay[0], 1 - stay[0]], [1 - stay[1], stay[1]]])
    forward, backward = np.empty_like(seen), np.ones_like(seen)
    _compiled()(seen, steps, forward, backward)
    weights = forward * backward
    weights /= weights.sum(axis=1, keepdims=True)
    joint = forward[:-1, :, None] * steps * (seen[1:] * backward[1:])[:, None, :]
    return weights, (joint / joint.sum(axis=(1, 2), keepdims=True)).sum(axis=0)


def _sweep(seen: Any, steps: Any, forward: Any, backward: Any) -> None:
    """Fill in how likely each state is by the arrivals up to a cell, and by the arrivals after it."""
    low, high = steps[1, 0], steps[0, 1]
    for k in range(len(seen)):
        low, high = low * seen[k, 0], high * seen[k, 1]
        total = low + high
        forward[k, 0], forward[k, 1] = low / total, high / total
        low, high = ((low * steps[0, 0] + high * steps[1, 0]) / total, (low * steps[0, 1] + high * steps[1, 1]) / total)
    for k in range(len(seen) - 2, -1, -1):
        low, high = seen[k + 1, 0] * backward[k + 1, 0], seen[k + 1, 1] * backward[k + 1, 1]
        low, high = steps[0, 0] * low + steps[0, 1] * high, steps[1, 0] * low + steps[1, 1] * high
        backward[k, 0], backward[k, 1] = low / (low + high), high / (low + high)


_CELLS = numba.float64[:, ::1]
_SIGNATURE = numba.void(_CELLS, _CELLS, _CELLS, _CELLS)


def _rounded(value: float, digits: int = 6) -> float:
    return float(f"{value:.{digits}g}")


_FITS = {"poisson": _poisson, "gamma": _gamma, "weibull": _weibull, "mmpp": _mmpp, "series": _series}


@functools.cache
def _compiled() -> Any:
    """Return `_sweep`, compiled once and kept between processes."""
    return compile_with_signature(_sweep, _SIGNATURE)
