"""Fitting an engine's constants to measured runs: bounded, robust least squares on log errors, with held-out folds."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import joblib
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from planner.deployment import Deployment, with_constants
from planner.engines import bounds, resolve_constants
from planner.errors import PlannerError, UsageError
from planner.measured import METRICS, Measurement
from planner.validate import deploy_measured, replay_measured

Floats = NDArray[np.float64]

# A run's error in TPOT weighs more than in TTFT, whose repeats differ five times as much.
METRIC_WEIGHTS = {"ttft_ms": 0.6, "tpot_ms": 1.0}
ERROR_SCALE = 0.12  # log errors beyond it count as outliers, ever less: rows that ran otherwise than their labels say
FACTOR_BOUNDS = (0.6, 1.7)  # of a factor for one kernel or one GPU
STEP = 0.04  # of a constant's logarithm, in finite differences


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """What is known of constants before a fit: how far each may stray, and how much that counts beside the runs.

    Parameters
    ----------
    weight : of a constant that strays by one standard deviation, in runs that are off by ERROR_SCALE [1].
    ratio, frac, time, floor, kernel, gpu : standard deviations of the logarithm of a ratio, a fraction of a peak, a
        time, kernel_floor_s, a factor for one kernel, a factor on one GPU.
    """

    weight: float
    ratio: float
    frac: float
    time: float
    floor: float
    kernel: float
    gpu: float

    def sigma(self, name: str) -> float:
        """Return the standard deviation of a constant's logarithm."""
        if name not in bounds():
            return self.gpu if "@" in name else self.kernel
        if name == "kernel_floor_s":
            return self.floor
        return self.ratio if name.endswith("_ratio") else self.frac if name.endswith("_frac") else self.time


# Of a user's own runs: they are few, and of the very deployment that is asked about.
LOOSE = Prior(weight=0.3, ratio=0.3, frac=0.3, time=1.2, floor=0.4, kernel=0.12, gpu=0.2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Fitted constants.

    Parameters
    ----------
    constants : all of the engine's by flat name, fitted and not.
    intervals : 80 % interval of each fitted one, by its name.
    log_errors : log(predicted / measured) with them, shape [num_runs, len(METRICS)]; NaN where there is none.
    """

    constants: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float]]
    log_errors: Floats


Prepared = Sequence[tuple[Measurement, Deployment]]
Evaluate = Callable[[Sequence[Mapping[str, float]]], Floats]


def prepare(measurements: Sequence[Measurement],
            constants: Mapping[str, float]) -> list[tuple[Measurement, Deployment]]:
    """Make the deployments of those runs that can be predicted concrete."""
    found = []
    for m in measurements:
        if m.status != "ok" or m.scenario is None:
            continue
        try:
            found.append((m, deploy_measured(m, _constants(m, constants))))
        except PlannerError:
            continue  # `validate` reports it
    return found


def fit(prepared: Prepared, start: Mapping[str, float], names: Sequence[str], *, evaluate: Evaluate,
        prior: Prior = LOOSE, max_steps: int = 12) -> Calibration:
    """Fit constants to measured runs.

    Minimises Σ w² ρ(log(predicted / measured)) with ρ the Cauchy loss, plus the squared deviations of the constants'
    logarithms from `start` by `prior`, within each constant's physical range.

    Parameters
    ----------
    start : constants by flat name (see `engines.resolve_constants`); what is not in `names` stays.
    names : constants to fit; a factor for a kernel or GPU that `start` lacks begins at 1.
    evaluate : see `evaluator`, of the same runs.

    Raises
    ------
    UsageError : there are more constants than measured values, or none of either.
    """
    measured = np.log([[m.measured.get(metric, math.nan) for metric in METRICS] for m, _ in prepared])
    num_values = int(np.isfinite(measured).sum())
    if not names or num_values <= len(names):
        raise UsageError(f"{num_values} measured values cannot tell {len(names)} constants apart; fit fewer, or "
                         f"measure more loads")
    begin = {**dict.fromkeys(names, 1.0), **start}
    x0 = np.log([begin[name] for name in names])
    low, high = np.log([_range(name) for name in names]).T
    sigmas = np.array([prior.sigma(name) for name in names])
    weights = np.array([METRIC_WEIGHTS[metric] for metric in METRICS])

    def values(x: Floats) -> dict[str, float]:
        return {**begin, **dict(zip(names, np.exp(np.clip(x, low, high)).tolist(), strict=True))}

    def residuals(predicted: Floats, x: Floats) -> Floats:
        errors = np.nan_to_num((np.log(predicted) - measured) * weights, nan=0.0)
        strayed = math.sqrt(prior.weight) * ERROR_SCALE * (x - x0) / sigmas
        return np.concatenate((errors.reshape(-1), strayed))

    def function(x: Floats) -> Floats:
        return residuals(evaluate([values(x)])[0], x)

    def jacobian(x: Floats) -> Floats:
        moved = [x + np.where(x[k] + STEP <= high[k], STEP, -STEP) * (np.arange(len(x)) == k) for k in range(len(x))]
        found = evaluate([values(x), *map(values, moved)])
        base = residuals(found[0], x)
        return np.stack([(residuals(found[k + 1], moved[k]) - base) / (moved[k][k] - x[k]) for k in range(len(x))], -1)

    inside = np.clip(x0, low + 1e-6, high - 1e-6)
    found = least_squares(function, inside, jac=jacobian, bounds=(low, high), loss="cauchy", f_scale=ERROR_SCALE,
                          x_scale=sigmas, max_nfev=max_steps, xtol=1e-3, ftol=2e-4)
    spread = 1.2816 * _deviations(found.jac, found.fun, ERROR_SCALE)
    best = values(found.x)
    return Calibration(
        constants=best,
        intervals={name: (float(np.exp(x - s)), float(np.exp(x + s)))
                   for name, x, s in zip(names, found.x, spread, strict=True)},
        log_errors=np.log(evaluate([best])[0]) - measured)


@contextmanager
def evaluator(prepared: Prepared, *, jobs: int) -> Iterator[Evaluate]:
    """Yield a function from sets of constants to predictions, shape [num_sets, num_runs, len(METRICS)], over processes.

    Parameters
    ----------
    jobs : processes; -1 for as many as there are cores.
    """
    with joblib.Parallel(n_jobs=jobs) as parallel:
        count = max(joblib.effective_n_jobs(jobs), 1)
        chunks = [list(prepared[k::count]) for k in range(count)]

        def evaluate(sets: Sequence[Mapping[str, float]]) -> Floats:
            parts = parallel(joblib.delayed(_evaluate)(chunk, sets) for chunk in chunks if chunk)
            out = np.empty((len(sets), len(prepared), len(METRICS)))
            for k, part in enumerate(parts):
                out[:, k::count] = part
            return out

        yield evaluate


def _evaluate(prepared: Prepared, sets: Sequence[Mapping[str, float]]) -> Floats:
    out = np.full((len(sets), len(prepared), len(METRICS)), math.nan)
    for j, constants in enumerate(sets):
        for i, (m, deployment) in enumerate(prepared):
            predicted = replay_measured(m, with_constants(deployment, _constants(m, constants))).predicted
            out[j, i] = [predicted.get(metric, math.nan) for metric in METRICS]
    return out


def _constants(m: Measurement, constants: Mapping[str, float]) -> Any:
    return resolve_constants(constants, m.scenario.gpu if m.scenario else None)


def _range(name: str) -> tuple[float, float]:
    return bounds().get(name, FACTOR_BOUNDS)


def _deviations(jacobian: Floats, residuals: Floats, scale: float) -> Floats:
    """Return the standard deviation of each constant's logarithm, by the curvature of the cost at its minimum."""
    weights = 1.0 / (1.0 + (residuals / scale) ** 2)
    information = jacobian.T @ (weights[:, None] * jacobian)
    variance = float((weights * residuals**2).sum() / max(len(residuals) - jacobian.shape[1], 1))
    return np.sqrt(np.maximum(np.diag(np.linalg.pinv(information)) * variance, 0.0))
