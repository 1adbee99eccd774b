"""How far an outcome may lie from its prediction: intervals from the errors that a fit made on runs it had not seen."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from planner.catalog.catalog_files import data_dir, load_gpu
from planner.deployment.deploy import Deployment
from planner.errors import CatalogError, UsageError
from planner.files.counts import share_text
from planner.files.keys import asdict
from planner.results.summary_answer import Figures, Intervals
from planner.steptime.engine_constants import read_table
from planner.steptime.roofline import priors

Floats = NDArray[np.float64]

PROBABILITIES = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975, 0.99)
# Keys of the summary that get an interval, and whose errors it comes from.
SUMMARY_KEYS = {"mean_ttft_ms": "ttft_ms", "mean_tpot_ms": "tpot_ms", "mean_e2el_ms": "e2el_ms",
                "request_throughput": "output_throughput", "output_throughput": "output_throughput"}
THROUGHPUT = "output_throughput"
EVENLY = (np.arange(999) + 0.5) / 999  # shares of runs, to read quantiles off
STUDENT = (np.arange(99) + 0.5) / 99  # shares at which the bias of a further group is taken


@dataclass(frozen=True, slots=True, kw_only=True)
class Residuals:
    """Quantiles of log(predicted / measured) over runs that the constants were not fitted to.

    Parameters
    ----------
    probabilities : of the quantiles, rising.
    log_errors : the quantiles by metric, as many as `probabilities`.
    source : their file, or the runs for which they stand.
    basis : the source of the errors if the deployment's own kernels were not measured, as a sentence; else empty.
    """

    probabilities: tuple[float, ...]
    log_errors: Mapping[str, tuple[float, ...]]
    source: str
    basis: str = ""

    def interval(self, metric: str, predicted: float, level: float) -> tuple[float, float] | None:
        """Return the bounds between which a share `level` of outcomes lies; None for a metric without errors.

        >>> wide = Residuals(probabilities=(0.1, 0.9), log_errors={"tpot_ms": (-0.1, 0.2)}, source="example")
        >>> [round(bound, 2) for bound in wide.interval("tpot_ms", 20.0, 0.8)]
        [16.37, 22.1]

        Raises
        ------
        UsageError : `level` is no share, or larger than the quantiles reach.
        """
        self.check_level(level)
        if metric not in self.log_errors:
            return None
        low, high = np.interp(((1 - level) / 2, (1 + level) / 2), self.probabilities, self.log_errors[metric])
        return predicted * math.exp(-high), predicted * math.exp(-low)

    def half_within(self, metric: str) -> float | None:
        """Return the relative error that half of the runs do not exceed [1]; None for a metric without errors.

        >>> even = Residuals(probabilities=(0.0, 1.0), log_errors={"tpot_ms": (-0.2, 0.2)}, source="example")
        >>> round(even.half_within("tpot_ms"), 2)
        0.1
        """
        if metric not in self.log_errors:
            return None
        return float(np.median(self._relative(metric)))

    def mean_error(self, metric: str) -> float | None:
        """Return the mean of the runs' relative errors [1]; None for a metric without errors.

        >>> uneven = Residuals(probabilities=(0.0, 0.9, 1.0), log_errors={"tpot_ms": (0.0, 0.0, 0.7)}, source="example")
        >>> round(uneven.half_within("tpot_ms"), 3), round(uneven.mean_error("tpot_ms"), 3)
        (0.0, 0.045)
        """
        return float(np.mean(self._relative(metric))) if metric in self.log_errors else None

    def _relative(self, metric: str) -> Floats:
        errors: Floats = np.abs(np.expm1(np.interp(EVENLY, self.probabilities, self.log_errors[metric])))
        return errors

    def check_level(self, level: float) -> None:
        """Raise UsageError if `level` is no share, or larger than the quantiles reach."""
        largest = 1 - 2 * max(self.probabilities[0], 1 - self.probabilities[-1])
        if not 0 < level <= largest + 1e-9:
            raise UsageError(f"--interval {level}: must be a share above 0 and at most {largest:.2f}, the largest that "
                             f"the errors in {self.source} allow")


def residuals_of(log_errors: Mapping[str, Floats], source: str) -> Residuals:
    """Return the quantiles of errors; of n they are at the ranks (n + 1) · p, the first and the last at their ends.

    Beyond 1 / (n + 1) nothing is known, so that few errors give no wide intervals: six reach to 71 %.

    Parameters
    ----------
    log_errors : log(predicted / measured) by metric; NaN without one. A metric without any is left out.
    """
    kept = {metric: values[np.isfinite(values)] for metric, values in log_errors.items()}
    least = 1 / (1 + min((len(values) for values in kept.values() if len(values)), default=1))
    inside = [p for p in PROBABILITIES if least < p < 1 - least]
    probabilities = PROBABILITIES if len(inside) == len(PROBABILITIES) else (least, *inside, 1 - least)
    return Residuals(
        probabilities=probabilities, source=source,
        log_errors={metric: tuple(np.quantile(values, probabilities, method="weibull").tolist())
                    for metric, values in kept.items() if len(values)})


def of_a_new_group(log_errors: Floats, groups: Sequence[str]) -> Floats:
    """Return the errors to expect of a group that is not among those seen: its bias, and each run's own error.

    Errors of one GPU, model or layout share a bias, so that the runs of another one may all lie on one side. Biases are
    the groups' medians. One more of k normal values lies at their mean + s · sqrt(1 + 1/k) · t, with their standard
    deviation s and Student's t of k − 1 degrees of freedom (Hahn and Meeker, Statistical Intervals, 1991, 4.7), of
    which evenly spaced quantiles are put to every run's own error.

    Parameters
    ----------
    log_errors : log(predicted / measured), shape [num_runs]; NaN without one.
    groups : of each run.

    Returns
    -------
    Floats
        Shape [num_runs with an error · len(STUDENT)]; with one group the errors as they are.

    >>> wide = of_a_new_group(np.array([0.1, 0.3, -0.2]), ["a", "a", "b"])
    >>> np.quantile(wide, (0.25, 0.5, 0.75)).round(2).tolist()
    [-0.36, 0.0, 0.36]
    """
    known = np.isfinite(log_errors)
    errors, names = log_errors[known], np.asarray(groups)[known]
    biases = {str(name): float(np.median(errors[names == name])) for name in np.unique(names)}
    if len(biases) < 2:
        return errors
    from scipy.special import stdtrit  # not at start: most commands do without

    unbiased = errors - np.array([biases[str(name)] for name in names])
    medians = np.array(list(biases.values()))
    one_more = medians.std(ddof=1) * math.sqrt(1 + 1 / len(medians)) * stdtrit(len(medians) - 1, STUDENT)
    spread: Floats = unbiased[:, None] + medians.mean() + one_more
    return spread.reshape(-1)


def with_derived(log_errors: Mapping[str, Floats], measured: Mapping[str, Floats],
                 output_tokens: Floats) -> dict[str, Floats]:
    """Add the errors in E2EL and in a closed loop's throughput that follow from the errors in mean TTFT and mean TPOT.

    E2EL = TTFT + (n − 1) · TPOT, and a closed loop with c in flight emits c · n / E2EL tokens a second.

    Parameters
    ----------
    log_errors, measured : by "ttft_ms" and "tpot_ms", shape [num_runs].
    output_tokens : mean of each run.
    """
    gaps = output_tokens - 1
    predicted = {metric: measured[metric] * np.exp(log_errors[metric]) for metric in ("ttft_ms", "tpot_ms")}
    e2el = np.log((predicted["ttft_ms"] + gaps * predicted["tpot_ms"])
                  / (measured["ttft_ms"] + gaps * measured["tpot_ms"]))
    return {**log_errors, "e2el_ms": e2el, THROUGHPUT: -e2el}


def read_residuals(path: Path, table: str) -> Residuals:
    """Read the quantiles from `[residuals]` of an engine's file, or `[held_out]` of a calibration's.

    Raises
    ------
    CatalogError : the file has no such table, or `planner calibrate` did not write it.
    """
    stored = read_table(path, table)
    try:
        probabilities = tuple(float(p) for p in stored["probabilities"])
        log_errors = {metric: tuple(float(q) for q in values) for metric, values in stored["log_errors"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CatalogError(f"{path}: has no held-out errors in [{table}], and intervals need them; give "
                           f"--calibration a file that `planner calibrate --output` wrote") from error
    if not any(log_errors.values()):
        raise CatalogError(f"{path}: has no held-out errors: it was fitted to too few runs to leave any out; leave "
                           f"--interval out, or calibrate on more runs")
    rising = all(a < b for a, b in itertools.pairwise(probabilities))
    is_whole = bool(log_errors) and all(len(q) == len(probabilities) for q in log_errors.values())
    if len(probabilities) < 2 or not rising or not is_whole:
        raise CatalogError(f"{path}: [{table}]: probabilities must rise, and log_errors must have one or more lists "
                           f"with as many values")
    return Residuals(probabilities=probabilities, log_errors=log_errors, source=str(path))


def residuals_for(deployment: Deployment) -> Residuals:
    """Return the errors to expect of a deployment's step times.

    The errors of its calibration, if that has runs on this GPU; else of the engine's constants on runs left out of
    their fit. A deployment with a prior among its kernels has the errors of such deployments on GPUs that no fit saw,
    and one that drafts tokens has the errors of runs with drafts, of which the engines' fits have none.

    Raises
    ------
    UsageError : its step times are a line.
    CatalogError : as `read_residuals`.
    """
    scenario, names = deployment.scenario, unmeasured_operators(deployment)
    if deployment.stack is None:
        raise UsageError(f"--interval: --step-time {scenario.step_time} has no held-out errors")
    if scenario.calibration is not None and (not names or _has_runs_on(scenario.calibration, scenario.gpu)):
        return read_residuals(Path(scenario.calibration), "held_out")
    if names:
        own = _errors_of(deployment.stack.gpu.name)
        return _of_runs(own if own.exists() else _errors_of("unmeasured_kernels"), "were left out of the fit",
                        f"the kernels of {', '.join(names)} were not measured on {scenario.gpu}")
    if deployment.draft is not None:
        return _of_runs(_errors_of("drafts"), "verify drafts", "the constants are fitted to runs without drafts")
    return read_residuals(data_dir("hardware_db") / "engines" / f"{scenario.engine}.toml", "residuals")


def step_factors(deployment: Deployment, quantiles: Floats) -> Floats:
    """Return how much longer steps take than predicted at quantiles of log(predicted / measured) in TPOT [1].

    They are 1 if step times are a line, or the errors are not known.
    """
    errors = {} if deployment.stack is None else (residuals := residuals_for(deployment)).log_errors
    if "tpot_ms" not in errors:
        return np.ones(len(quantiles))
    return np.asarray(np.exp(-np.interp(quantiles, residuals.probabilities, errors["tpot_ms"])))


def unmeasured_operators(deployment: Deployment) -> tuple[str, ...]:
    """Return the operators of a deployment whose kernels were not measured on its GPU; none if step times are a line.

    On a MIG slice no operator was measured.
    """
    if deployment.stack is None:
        return ()
    return ("every operator",) if deployment.stack.gpu.slice_of else priors(deployment.stack)


def _has_runs_on(calibration: str, gpu: str | None) -> bool:
    """Tell whether a calibration has runs on a GPU; True if it does not say which GPUs it has."""
    measured_on = read_table(Path(calibration), "source").get("gpu")
    return measured_on is None or gpu is None or load_gpu(gpu).name in measured_on


def _of_runs(path: Path, which: str, reason: str) -> Residuals:
    """Return the errors of runs whose number and GPUs a file states."""
    source = read_table(path, "source")
    return replace(read_residuals(path, "residuals"), basis=(
        f"intervals use the errors of {source['num_runs']} runs on {len(source['gpus'])} GPUs "
        f"({', '.join(source['gpus'])}) that {which}: {reason}"))


def _errors_of(runs: str) -> Path:
    return data_dir("hardware_db") / "residuals" / f"{runs}.toml"


def runs_note(gpu: str) -> list[str]:
    """Return the note that the errors of a GPU's measured runs carry, in a list; empty without such a file."""
    return [str(read_table(_errors_of(gpu), "source")["note"])] if _errors_of(gpu).exists() else []


def summary_intervals(figures: Figures, deployment: Deployment, level: float) -> tuple[Intervals, list[str]]:
    """Return the intervals of SUMMARY_KEYS, and remarks on them, a sentence each.

    An interval is None if the figures, or the errors, have no value. Throughput has one in a closed loop only:
    elsewhere it follows the arrivals.
    """
    residuals = residuals_for(deployment)
    residuals.check_level(level)
    if not set(residuals.log_errors) & set(SUMMARY_KEYS.values()):
        raise UsageError(f"--interval: {residuals.source} has errors of {', '.join(residuals.log_errors)} only; for "
                         f"intervals of latencies, calibrate on runs or requests")
    values, intervals = asdict(figures), {}
    notes = [residuals.basis] if residuals.basis else []
    for key, metric in SUMMARY_KEYS.items():
        hidden = metric == THROUGHPUT and not deployment.scenario.is_closed_loop
        bounds = None if hidden or values[key] is None else residuals.interval(metric, values[key], level)
        intervals[key] = bounds
        if bounds is not None and not bounds[0] <= values[key] <= bounds[1]:
            notes.append(_outside(key, values[key], bounds, residuals, level))
    return Intervals(**intervals), notes


def _outside(key: str, value: float, bounds: tuple[float, float], residuals: Residuals, level: float) -> str:
    """Say why a prediction is not within its own interval: the errors have a bias that is wider than the interval."""
    median = float(np.interp(0.5, residuals.probabilities, residuals.log_errors[SUMMARY_KEYS[key]]))
    return (f"{key} = {value:.4g} is outside its {share_text(level)} interval, {bounds[0]:.4g} to {bounds[1]:.4g}: "
            f"the median prediction for runs left out of the fit was {math.exp(median):.3g} times the measured value "
            f"({residuals.source}). Use the interval instead of the value, or calibrate on runs of this deployment")
