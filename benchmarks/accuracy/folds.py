"""Cross-validation of closed-loop runs: constants fitted without a GPU, a model or a layout, tested on it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from benchmarks.fit_engines import PRIORS, fit_runs, newest_runs, usable
from planner.engines import ENGINES
from planner.errors import UsageError
from planner.measured.calibration.observations import Runs, prepare
from planner.measured.run_table import METRICS, Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How thoroughly folds are fitted: optimiser steps, and every how many-th run a fit sees."""

    max_steps: int
    thinning: int


FEW = 100  # runs left to fit that are not thinned
FULL, QUICK = Effort(max_steps=10, thinning=1), Effort(max_steps=6, thinning=4)


def layout_kind(m: Measurement) -> str:
    """Return the kind of a run's layout: one GPU, tensor parallel, with whole experts, or data-parallel attention."""
    assert m.layout is not None
    if m.layout.data_parallel_size > 1:
        return "data-parallel attention"
    if m.layout.expert_parallel_size > 1:
        return "expert parallel"
    return "tensor parallel" if m.layout.tensor_parallel_size > 1 else "one GPU"


def checkpoint(m: Measurement) -> str:
    """Return which model a run is of, by its architecture: DeepSeek-R1 and V3 are one."""
    return "DeepSeek-V3 and R1" if "DeepSeek" in m.groups["model"] else str(m.groups["model"])


def gpu(m: Measurement) -> str:
    """Return the catalog's name of a run's GPU."""
    assert m.scenario is not None
    return str(m.scenario.gpu)


SPLITS: Mapping[str, Callable[[Measurement], str]] = {
    "GPU": gpu, "model": checkpoint, "layout": layout_kind}


def held_out(measurements: Sequence[Measurement], effort: Effort) -> pl.DataFrame:
    """Return one row a run of the stated protocol and split: log(predicted / measured), fitted without the run's fold.

    The split "none" has the priors' predictions, without any fit. A fold without enough runs left to fit keeps the
    priors, and says so in `is_fitted`.
    """
    rows: list[dict[str, Any]] = []
    newest = newest_runs()
    for engine in ENGINES:
        runs = [m for m in measurements if m.groups["engine"] == engine and m.status == "ok"]
        shown = [*runs, *(m for m in newest if m.groups["engine"] == engine)]
        rows += _tested([m for m in runs if _is_scored(m)], PRIORS, engine, "none", "", True)
        for split, key_of, fold in _folds(runs):
            try:
                constants = fit_without(shown, key_of, fold, effort)
                is_fitted = True
            except UsageError:  # too few runs are left
                constants, is_fitted = PRIORS, False
            test = [m for m in runs if key_of(m) == fold and _is_scored(m)]
            rows += _tested(test, constants, engine, split, fold, is_fitted)
    return pl.DataFrame(rows, infer_schema_length=None)


def fit_without(runs: Sequence[Measurement], key_of: Callable[[Measurement], str], fold: str,
                effort: Effort) -> Mapping[str, float]:
    """Return constants that are fitted to the runs of other folds.

    Raises
    ------
    UsageError : too few runs are left.
    """
    train = usable([m for m in runs if key_of(m) != fold])
    train = train[:: effort.thinning if len(train) > FEW else 1]
    return fit_runs(train, jobs=-1, max_steps=effort.max_steps).constants


def _is_scored(m: Measurement) -> bool:
    return m.groups["client"] == "inferencex"


def _folds(runs: Sequence[Measurement]) -> Iterator[tuple[str, Callable[[Measurement], str], str]]:
    """Yield each split's name, its key, and the value of the key that is left out."""
    for split, key_of in SPLITS.items():
        for fold in sorted({key_of(m) for m in runs if _is_scored(m)}):
            yield split, key_of, fold


def _tested(runs: Sequence[Measurement], constants: Mapping[str, float], engine: str, split: str, fold: str,
            is_fitted: bool) -> list[dict[str, Any]]:
    """Return a row for each run that constants are tested on."""
    prepared = prepare(runs, constants)
    observed = Runs(prepared=prepared)
    with observed.evaluator(-1) as evaluate:
        errors = np.log(evaluate([constants])[0]) - observed.log_measured
    return [{"id": m.id, "engine": engine, "split": split, "fold": fold, "is_fitted": is_fitted,
             **dict(zip(METRICS, map(float, error), strict=True))}
            for (m, _), error in zip(prepared, errors, strict=True)]
