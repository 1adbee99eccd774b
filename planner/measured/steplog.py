"""A log of single steps: measured durations against those of the step-time model, by what the steps held."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from planner.deployment.deploy import Deployment, deploy
from planner.engine import state as st
from planner.engine.rows import STEP_ROW
from planner.errors import TraceError
from planner.files.table_file import read_table_file
from planner.measured.table import Measurement
from planner.measured.validate import Prediction
from planner.settings.scenario import MOST, Scenario
from planner.steptime.by_term import step_terms

Floats = NDArray[np.float64]

# Columns that a step's time depends on; `planner replay --steps` writes them.
SHAPE = ("num_prompts", "num_prompt_tokens", "prompt_context_tokens", "prompt_pairs", "window_pairs", "num_decodes",
         "decode_context_tokens", "num_sampled", "num_swapped_tokens")
OPTIONAL = ("num_accepted_tokens", "num_adapters", "adapter_load_s", "longest_context_tokens")
METRIC = "duration_ms"


def is_step_log(columns: Any) -> bool:
    """Tell whether a table with these columns is a log of steps."""
    return "duration_s" in columns and "num_decodes" in columns


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLog:
    """What each step held, and how long it took.

    Parameters
    ----------
    steps : records of `engine.rows.STEP_ROW`, shape [num_steps].
    measured_ms : durations, shape [num_steps].
    """

    steps: Any
    measured_ms: Floats

    def part(self, inside: NDArray[np.bool_]) -> "StepLog":
        """Return some of the steps."""
        return StepLog(steps=self.steps[inside], measured_ms=self.measured_ms[inside])

    def predicted_ms(self, deployment: Deployment) -> Floats:
        """Return what the step-time model says of each step, shape [num_steps]."""
        terms = step_terms(deployment.step_time, self.steps, deployment.settings.swap_s_per_token)
        total: Floats = 1e3 * np.sum(list(terms.values()), axis=0)
        return total


def read_steps(path: Path) -> StepLog:
    """Read a log of steps.

    Raises
    ------
    TraceError : the file cannot be read, lacks a column, or a value is impossible.
    """
    table = _read(path)
    steps = st.records(table.height, STEP_ROW)
    for name in (*SHAPE, *(name for name in OPTIONAL if name in table.columns)):
        steps[name] = table[name].to_numpy()
    return StepLog(steps=steps, measured_ms=1e3 * table["duration_s"].to_numpy())


def predict_steps(path: Path, scenario: Scenario, groups: dict[str, str]) -> list[Prediction]:
    """Return what the step-time model says of each step of a log.

    Parameters
    ----------
    groups : the deployment's value of each group; the kind of step stands in for the client.

    Raises
    ------
    TraceError : as `read_steps`.
    """
    log = read_steps(path)
    predicted_ms = log.predicted_ms(deploy(scenario))
    kinds = np.where(log.steps["num_prompts"] == 0, "decodes",
                     np.where(log.steps["num_decodes"] == 0, "prompts", "mixed"))
    return [
        Prediction(
            measurement=Measurement(id=str(k), groups={**groups, "client": str(kinds[k])}, scenario=scenario,
                                    measured={METRIC: float(log.measured_ms[k])}),
            predicted={METRIC: float(predicted_ms[k])}, status="ok")
        for k in range(len(predicted_ms))]


def _read(path: Path) -> pl.DataFrame:
    table = read_table_file(path)
    missing = [name for name in ("duration_s", *SHAPE) if name not in table.columns]
    if missing:
        raise TraceError(f"{path}: lacks the columns {', '.join(missing)}; a step log has what `planner replay "
                         f"--steps` writes")
    kept = [name for name in ("duration_s", *SHAPE, *OPTIONAL) if name in table.columns]
    table = table.select(pl.col(kept).cast(pl.Float64, strict=False))
    for name in table.columns:
        inside = table[name].is_finite() & (table[name] >= 0) & (table[name] < MOST)
        bad = ~inside.fill_null(False)
        if name == "duration_s":
            bad |= (table[name] <= 0).fill_null(True)
        if bad.any():
            row = int(bad.arg_true()[0])
            raise TraceError(f"{path} row {row}: {name} = {table[name][row]}; must be a number "
                             f"{'above 0' if name == 'duration_s' else 'of at least 0'}, and below 2^62")
    if not table.height:
        raise TraceError(f"{path}: has no rows; must have at least one step")
    return table
