"""Fitting an engine's constants to measurements: bounded, robust least squares on log errors."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from planner.errors import UsageError
from planner.measured.calibration.observations import Evaluate, Observations
from planner.progress import counted
from planner.steptime.engine_constants import bounds

Floats = NDArray[np.float64]

ERROR_SCALE = 0.12  # log errors beyond it count as outliers, ever less: rows that ran otherwise than their labels say
STEP = 0.04  # of a constant's logarithm, in finite differences
# Of a fit, one after another: a replay jumps if a request falls into another step, wide secants look past jumps.
STEPS = (0.4, 0.2, 0.1, STEP)
QUANTILE = 1.2816  # half of an 80 % interval, in standard deviations


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """The knowledge of constants before a fit: how far each may stray, and how much that counts beside the runs.

    Parameters
    ----------
    weight : of a constant that strays by one standard deviation, in runs that are off by ERROR_SCALE [1].
    ratio, frac, time, floor : standard deviations of the logarithm of a ratio, a fraction of a peak, a time, and of
        kernel_floor_s.
    """

    weight: float
    ratio: float
    frac: float
    time: float
    floor: float

    def sigma(self, name: str) -> float:
        """Return the standard deviation of a constant's logarithm."""
        if name == "kernel_floor_s":
            return self.floor
        return self.ratio if name.endswith("_ratio") else self.frac if name.endswith("_frac") else self.time


# Of a user's own runs: they are few, and of the very deployment that is asked about.
LOOSE = Prior(weight=0.3, ratio=0.3, frac=0.3, time=1.2, floor=0.4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Fitted constants.

    Parameters
    ----------
    constants : all of the engine's by name, fitted and not.
    intervals : 80 % interval of each fitted one, by its name.
    log_errors : log(predicted / measured) with them, shape [num, len(metrics)]; NaN without one.
    """

    constants: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float]]
    log_errors: Floats


def fit(observed: Observations, start: Mapping[str, float], names: Sequence[str], *, evaluate: Evaluate,
        prior: Prior = LOOSE, max_steps: int = 12) -> Calibration:
    """Fit constants to measurements.

    Minimises Σ w² ρ(log(predicted / measured)) with ρ the Cauchy loss, plus the squared deviations of the constants'
    logarithms from `start` by `prior`, within each constant's physical range.

    Parameters
    ----------
    start : all constants by name; constants that are not in `names` stay.
    names : constants to fit.
    evaluate : the evaluator of `observed`.

    Raises
    ------
    UsageError : there are more constants than measured values, or none of either.
    """
    measured = observed.log_measured
    num_values = int(np.isfinite(measured).sum())
    if not names or num_values <= len(names):
        raise UsageError(f"{num_values} measured values cannot tell {len(names)} constants apart; fit fewer, or "
                         f"measure more loads")
    x0 = np.log([start[name] for name in names])
    low, high = np.log([bounds()[name] for name in names]).T
    sigmas = np.array([prior.sigma(name) for name in names])
    weights = np.array(observed.weights)

    def values(x: Floats) -> dict[str, float]:
        return {**start, **dict(zip(names, np.exp(np.clip(x, low, high)).tolist(), strict=True))}

    def residuals(predicted: Floats, x: Floats) -> Floats:
        errors = np.nan_to_num((np.log(predicted) - measured) * weights, nan=0.0)
        strayed = math.sqrt(prior.weight) * ERROR_SCALE * (x - x0) / sigmas
        return np.concatenate((errors.reshape(-1), strayed))

    def function(x: Floats) -> Floats:
        return residuals(evaluate([values(x)])[0], x)

    def jacobian(x: Floats, step: float) -> Floats:
        moved = [x + np.where(x[k] + step <= high[k], step, -step) * (np.arange(len(x)) == k) for k in range(len(x))]
        times = evaluate([values(x), *map(values, moved)])
        base = residuals(times[0], x)
        return np.stack([(residuals(times[k + 1], moved[k]) - base) / (moved[k][k] - x[k]) for k in range(len(x))], -1)

    x, slopes = np.clip(x0, low + 1e-6, high - 1e-6), []
    for step in counted(f"fitting {len(names)} constants, coarsely and finely", STEPS):
        best_fit = least_squares(function, x, jac=partial(jacobian, step=step), bounds=(low, high), loss="cauchy",
                                 f_scale=ERROR_SCALE, x_scale=sigmas, max_nfev=max_steps, xtol=1e-3, ftol=2e-4)
        x = best_fit.x
        slopes.append(best_fit.jac)
    # The widest: at a jump, a narrow secant is steep, and promises more than the measurements tell.
    spread = QUANTILE * np.max([_deviations(slope, best_fit.fun, ERROR_SCALE) for slope in slopes], axis=0)
    best = values(best_fit.x)
    return Calibration(
        constants=best,
        intervals={name: _around(x, s) for name, x, s in zip(names, best_fit.x, spread, strict=True)},
        log_errors=np.log(evaluate([best])[0]) - measured)


def _deviations(jacobian: Floats, residuals: Floats, scale: float) -> Floats:
    """Return the standard deviation of each constant's logarithm, by the curvature of the cost at its minimum."""
    weights = 1.0 / (1.0 + (residuals / scale) ** 2)
    information = jacobian.T @ (weights[:, None] * jacobian)
    variance = float((weights * residuals**2).sum() / max(len(residuals) - jacobian.shape[1], 1))
    return np.sqrt(np.maximum(np.diag(np.linalg.pinv(information)) * variance, 0.0))


def _around(x: float, spread: float) -> tuple[float, float]:
    """Return exp(x ± spread); infinite if the runs do not determine a constant."""
    with np.errstate(over="ignore"):
        return float(np.exp(x - spread)), float(np.exp(x + spread))
