"""Observations that constants are fitted to: measured runs or a log's steps, and their predictions."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import joblib
import numpy as np
from numpy.typing import NDArray

from planner.deployment.deploy import Deployment, with_constants
from planner.errors import PlannerError
from planner.measured.run_table import METRICS, Measurement, counted
from planner.measured.steplog import METRIC, StepLog
from planner.measured.validate import deploy_measured, replay_measured
from planner.steptime.engine_constants import constants_of

Floats = NDArray[np.float64]
Evaluate = Callable[[Sequence[Mapping[str, float]]], Floats]
WEIGHTS = {"ttft_ms": 0.6, "tpot_ms": 1.0, "itl_ms": 1.0, "e2el_ms": 0.3}  # TTFT's repeats differ five times as much
CHUNKS_PER_PROCESS = 4  # of the runs: some replay far longer than others
QUANTILES_WEIGHT = 0.3  # of a histogram: there are several, and they share their errors with its mean
Prepared = Sequence[tuple[Measurement, Deployment]]


class Observations(Protocol):
    """The measurements that a fit compares with."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the measured metrics of each."""

    @property
    def weights(self) -> tuple[float, ...]:
        """Of an error in each metric, beside the others'."""

    @property
    def log_measured(self) -> Floats:
        """Logarithms of the measured values, shape [num, len(metrics)]; NaN if not measured."""

    def part(self, inside: NDArray[np.bool_]) -> "Observations":
        """Return some of them."""

    def evaluator(self, jobs: int) -> AbstractContextManager[Evaluate]:
        """Yield a function from sets of constants to predictions, shape [num_sets, num, len(metrics)].

        Parameters
        ----------
        jobs : processes at most; -1 for as many as there are cores.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """Measured runs, with the deployment of each; `metrics` has more than METRICS if histograms were measured."""

    prepared: Prepared
    metrics: tuple[str, ...] = METRICS

    @property
    def weights(self) -> tuple[float, ...]:
        """Of an error in each metric, beside the others'."""
        return tuple(WEIGHTS.get(metric, QUANTILES_WEIGHT) for metric in self.metrics)

    @property
    def log_measured(self) -> Floats:
        """Logarithms of the measured values; see `Observations`."""
        values = [[m.measured.get(metric, math.nan) for metric in self.metrics] for m, _ in self.prepared]
        return np.log(values).reshape(-1, len(self.metrics))

    @property
    def mean_output_tokens(self) -> Floats:
        """Mean output of each run's requests [tokens], shape [num]."""
        return np.array([m.load.requests["output_tokens"].mean() for m, _ in self.prepared if m.load is not None])

    def part(self, inside: NDArray[np.bool_]) -> "Runs":
        """Return some of the runs."""
        return replace(self, prepared=[pair for pair, is_in in zip(self.prepared, inside, strict=True) if is_in])

    @contextmanager
    def evaluator(self, jobs: int) -> Iterator[Evaluate]:
        """Yield a function that replays the runs, over processes; see `Observations`."""
        with joblib.Parallel(n_jobs=jobs, mmap_mode="c") as parallel:
            count = CHUNKS_PER_PROCESS * max(joblib.effective_n_jobs(jobs), 1)
            chunks = [list(self.prepared[k::count]) for k in range(count)]

            def evaluate(sets: Sequence[Mapping[str, float]]) -> Floats:
                parts = parallel(joblib.delayed(_replay_all)(chunk, sets, self.metrics) for chunk in chunks if chunk)
                out = np.empty((len(sets), len(self.prepared), len(self.metrics)))
                for k, part in enumerate(parts):
                    out[:, k::count] = part
                return out

            yield evaluate


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """The steps of a log, all of one deployment."""

    log: StepLog
    deployment: Deployment
    metrics: ClassVar[tuple[str, ...]] = (METRIC,)
    weights: ClassVar[tuple[float, ...]] = (1.0,)

    @property
    def log_measured(self) -> Floats:
        """Logarithms of the durations; see `Observations`."""
        return np.log(self.log.measured_ms)[:, np.newaxis]

    def part(self, inside: NDArray[np.bool_]) -> "Steps":
        """Return some of the steps."""
        return replace(self, log=self.log.part(inside))

    @contextmanager
    def evaluator(self, jobs: int) -> Iterator[Evaluate]:
        """Yield a function that evaluates the step-time model; see `Observations`."""
        def evaluate(sets: Sequence[Mapping[str, float]]) -> Floats:
            return np.stack([self.log.predicted_ms(with_constants(self.deployment, constants_of(values)))
                             for values in sets])[..., np.newaxis]

        yield evaluate


def prepare(measurements: Sequence[Measurement],
            constants: Mapping[str, float] | None = None) -> list[tuple[Measurement, Deployment]]:
    """Make the deployments of predictable runs concrete, with these constants or the bundled ones."""
    pairs = []
    for m in measurements:
        if m.status != "ok" or m.scenario is None:
            continue
        try:
            pairs.append((m, deploy_measured(m, None if constants is None else constants_of(constants))))
        except PlannerError:
            continue  # `validate` reports it
    return pairs


def _replay_all(prepared: Prepared, sets: Sequence[Mapping[str, float]], metrics: Sequence[str]) -> Floats:
    out = np.full((len(sets), len(prepared), len(metrics)), math.nan)
    for j, constants in enumerate(sets):
        for i, (m, deployment) in enumerate(prepared):
            predicted = replay_measured(m, with_constants(deployment, constants_of(constants))).predicted
            out[j, i] = [counted(m, metric, predicted[metric]) if metric in predicted and metric in m.measured
                         else math.nan for metric in metrics]
    return out
