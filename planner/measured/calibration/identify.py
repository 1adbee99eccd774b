"""Constants that a measurement can tell apart: each moves the predictions in its own direction."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.errors import UsageError
from planner.measured.calibration.constant_fit import ERROR_SCALE, LOOSE, QUANTILE, STEP
from planner.measured.calibration.observations import Evaluate, Observations

Floats = NDArray[np.float64]

MAX_CORRELATION = 0.95
LEAST_EFFECT = 1e-4  # of a constant's logarithm on any logarithm of a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The choice of constants: `names` to fit, and why each of the others stays at its start."""

    names: tuple[str, ...]
    left: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unidentified:
    """The worst of a set of constants, why it cannot be fitted with the others, and how far it is from being fit."""

    index: int
    reason: str


def sensitivities(observed: Observations, start: Mapping[str, float], names: Sequence[str],
                  evaluate: Evaluate) -> Floats:
    """Return ∂ log(time) / ∂ log(constant), weighted as a fit weighs it, shape [num_values, num_constants].

    Central differences; rows are the metrics that were measured.
    """
    sets = [{**start, name: start[name] * float(np.exp(way * STEP))} for name in names for way in (1, -1)]
    logs = np.log(evaluate(sets))
    slopes = (logs[0::2] - logs[1::2]) / (2 * STEP) * np.array(observed.weights)
    jacobian: Floats = np.nan_to_num(slopes[:, np.isfinite(observed.log_measured)].T, nan=0.0)
    return jacobian


def choose(jacobian: Floats, names: Sequence[str], most: int) -> Choice:
    """Drop the constants that the data determine least, one after another, until the rest can be told apart.

    Parameters
    ----------
    jacobian : of `sensitivities`.
    most : constants at most, so that a fit without some of the runs can test them.
    """
    kept, left = list(range(len(names))), {}
    while kept:
        some = jacobian[:, kept], [names[k] for k in kept]
        fault = _worst(*some)
        if fault is None and len(kept) > most:
            fault = Unidentified(index=int(_widths(*some)[0].argmax()), reason="the runs are too few to test it")
        if fault is None:
            break
        left[names[kept[fault.index]]] = fault.reason
        del kept[fault.index]
    return Choice(names=tuple(names[k] for k in kept), left=left)


def check(jacobian: Floats, names: Sequence[str]) -> None:
    """Raise UsageError if a set of constants cannot be told apart, with the pair that is hardest to."""
    fault = _worst(jacobian, names)
    if fault is not None:
        raise UsageError(f"--fit {','.join(names)}: {names[fault.index]}: {fault.reason}; leave one out, or measure "
                         f"other loads")


def _worst(jacobian: Floats, names: Sequence[str]) -> Unidentified | None:
    """Return the constant to drop first, None if all can be fitted."""
    effects = np.abs(jacobian).max(axis=0, initial=0.0)
    if effects.min() < LEAST_EFFECT:
        return Unidentified(index=int(effects.argmin()), reason="has no effect on these runs")
    ratios, widths, correlations = _widths(jacobian, names)
    worst = int(ratios.argmax())
    partner = int(np.abs(correlations[worst]).argmax())
    is_tied = abs(correlations[worst, partner]) > MAX_CORRELATION
    if ratios[worst] <= 1 and np.abs(correlations).max() > MAX_CORRELATION:
        pair = np.unravel_index(int(np.abs(correlations).argmax()), correlations.shape)
        worst, partner = sorted((int(k) for k in pair), key=lambda k: -ratios[k])
        is_tied = True
    if is_tied and (ratios[worst] > 1 or abs(correlations[worst, partner]) > MAX_CORRELATION):
        return Unidentified(index=worst, reason=f"cannot be told apart from {names[partner]} (correlation "
                                                f"{correlations[worst, partner]:+.3f})")
    if ratios[worst] > 1:
        wide, narrow = (np.exp(QUANTILE * min(s, 5.0)) for s in (widths[worst], widths[worst] / ratios[worst]))
        return Unidentified(index=worst, reason=f"these runs leave it within a factor of {wide:.3g}, wider than the "
                                                f"prior's {narrow:.3g}")
    return None


def _widths(jacobian: Floats, names: Sequence[str]) -> tuple[Floats, Floats, Floats]:
    """Return the widths of constants over their priors', the widths, and the correlations of each with the others."""
    scaled = jacobian / np.linalg.norm(jacobian, axis=0)
    information = scaled.T @ scaled
    covariance = np.linalg.inv(information + 1e-12 * np.eye(len(names)))
    deviations = np.sqrt(np.diag(covariance))
    correlations = covariance / np.outer(deviations, deviations)
    np.fill_diagonal(correlations, 0.0)
    widths = deviations / np.linalg.norm(jacobian, axis=0) * ERROR_SCALE
    return widths / np.array([LOOSE.sigma(name) for name in names]), widths, correlations
