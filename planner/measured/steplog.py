"""A log of steps: measured durations against the step-time model's, by the content of the steps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from planner.deployment.deploy import Deployment, deploy
from planner.engines import ENGINES
from planner.errors import TraceError, UsageError
from planner.files.table_file import columns_of, read_table_file
from planner.loop.rows import STEP_ROW
from planner.loop.state import engine_state as st
from planner.measured.run_table import Measurement
from planner.measured.serverlog import ServerLog, engine_of_log, read_server_log
from planner.measured.validate import Prediction
from planner.settings.scenario import MOST, Scenario
from planner.steptime.by_term import step_terms

Floats = NDArray[np.float64]

# Columns that a step's time depends on; `planner replay --steps` writes them.
SHAPE = ("num_prompts", "num_prompt_tokens", "prompt_context_tokens", "prompt_pairs", "window_pairs", "num_decodes",
         "decode_context_tokens", "num_sampled", "num_swapped_tokens")
DRAFTED = "num_drafted_tokens"  # as many as the scenario drafts for each decode if the log does not tell
OPTIONAL = ("num_accepted_tokens", DRAFTED, "num_dropped", "num_adapters", "adapter_load_s", "longest_context_tokens")
METRIC = "duration_ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLog:
    """The content of each step, and its duration.

    Parameters
    ----------
    steps : records of `loop.rows.STEP_ROW`, shape [num_steps].
    measured_ms : durations, shape [num_steps].
    names : of the steps, shape [num_steps]; empty if their places are enough.
    left_out : number of the log's other steps, or means over steps, by the reason against them.
    """

    steps: Any
    measured_ms: Floats
    names: Sequence[str] = ()
    left_out: Mapping[str, int] = field(default_factory=dict)

    @property
    def account(self) -> str:
        """The counts of read and left-out steps."""
        read = f"read {len(self.measured_ms):,} steps"
        return f"{read}; left out {_counted(self.left_out)}" if self.left_out else read

    def part(self, inside: NDArray[np.bool_]) -> "StepLog":
        """Return some of the steps."""
        return StepLog(steps=self.steps[inside], measured_ms=self.measured_ms[inside])

    def predicted_ms(self, deployment: Deployment) -> Floats:
        """Return the step-time model's time of each step, shape [num_steps]."""
        terms = step_terms(deployment.step_time, self.steps, deployment.settings.swap_s_per_token)
        total: Floats = 1e3 * np.sum(list(terms.values()), axis=0)
        return total


def is_step_log(path: Path) -> bool:
    """Tell whether a file is a log of steps: a table with a row for each, or an engine's own log."""
    columns = columns_of(path)
    return ("duration_s" in columns and "num_decodes" in columns) or engine_of_log(path) is not None


def read_steps(path: Path, scenario: Scenario) -> StepLog:
    """Read a log of steps.

    Parameters
    ----------
    path : a table as `planner replay --steps` writes it, or a log that `serverlog.read_server_log` reads, whose means
        over decodes count as steps.
    scenario : the deployment of the log.

    Raises
    ------
    TraceError : the file cannot be read, lacks a column, a value is impossible, or no decodes can be told apart.
    UsageError : the log comes from another engine than the scenario's, or has drafts that it does not have.
    """
    if engine_of_log(path) is not None:
        return _of_server(path, read_server_log(path), scenario)
    table = _read(path)
    steps = st.records(table.height, STEP_ROW)
    for name in (*SHAPE, *(name for name in OPTIONAL if name in table.columns)):
        steps[name] = table[name].to_numpy()
    if DRAFTED not in table.columns:
        steps[DRAFTED] = scenario.num_speculative_tokens * steps["num_decodes"]
    return StepLog(steps=steps, measured_ms=1e3 * table["duration_s"].to_numpy())


def predict_steps(log: StepLog, scenario: Scenario, groups: dict[str, str]) -> list[Prediction]:
    """Return the step-time model's time of each step of a log.

    Parameters
    ----------
    groups : the deployment's value of each group; the kind of step stands in for the client.
    """
    predicted_ms = log.predicted_ms(deploy(scenario))
    kinds = _kinds(log.steps)
    names = log.names or list(map(str, range(len(predicted_ms))))
    return [
        Prediction(
            measurement=Measurement(id=names[k], groups={**groups, "client": kinds[k]}, scenario=scenario,
                                    measured={METRIC: float(log.measured_ms[k])}),
            predicted={METRIC: float(predicted_ms[k])}, status="ok")
        for k in range(len(predicted_ms))]


def _kinds(steps: Any) -> list[str]:
    """Return the kind of each step: prompts, decodes, by their number if there are no prompts in the log, or both."""
    if not steps["num_prompts"].any():
        low = 2 ** np.floor(np.log2(np.maximum(steps["num_decodes"], 1))).astype(int)
        return [f"decodes of {few}" if few == 1 else f"decodes of {few} to {2 * few - 1}" for few in low]
    kinds = np.where(steps["num_prompts"] == 0, "decodes", np.where(steps["num_decodes"] == 0, "prompts", "mixed"))
    return [str(kind) for kind in kinds]


def _of_server(path: Path, log: ServerLog, scenario: Scenario) -> StepLog:
    """Return the decodes that a server's log tells of."""
    if log.engine != scenario.engine:
        raise UsageError(f"{path}: is a log of {log.engine}, not of {scenario.engine}; give --engine {log.engine}, and "
                         f"the options of that run")
    if not log.windows:
        raise TraceError(f"{path}: has no steps of decodes only: {_counted(log.left_out) or 'one line of statistics'}; "
                         f"must have two lines of statistics with only decodes between them")
    _check_drafts(path, log, scenario)
    count = len(log.windows)
    steps = st.records(count, STEP_ROW)
    running = np.array([window.num_decodes for window in log.windows])
    emitted = running * [window.tokens_per_decode or 1.0 for window in log.windows]
    contexts, measured_ms = _contexts(path, log, scenario), np.array([1e3 * window.step_s for window in log.windows])
    for window, *values in zip(log.windows, emitted, contexts, measured_ms, strict=True):
        if not max(values) < MOST:
            raise TraceError(f"{path} line {window.line}: has {values[0]:g} tokens a step with a context of "
                             f"{values[1]:g}, in {values[2]:g} ms; must be numbers below 2^62")
    steps["num_decodes"] = np.rint(running)
    steps[DRAFTED] = scenario.num_speculative_tokens * steps["num_decodes"]
    steps["num_sampled"] = np.rint(emitted)
    steps["num_accepted_tokens"] = np.rint(emitted - running)
    steps["decode_context_tokens"] = np.rint(contexts)
    return StepLog(steps=steps, measured_ms=measured_ms,
                   names=[f"line {window.line}" for window in log.windows], left_out=log.left_out)


def _check_drafts(path: Path, log: ServerLog, scenario: Scenario) -> None:
    """Raise a UsageError if the log has drafts and the scenario none, or the other way round."""
    accepted = [mean for window in log.windows if (mean := window.tokens_per_decode) is not None]
    if accepted and not scenario.num_speculative_tokens:
        raise UsageError(f"{path}: its decodes emit up to {max(accepted):g} tokens a step, with draft tokens; give "
                         f"--num-speculative-tokens and --speculative-method")
    if not accepted and scenario.num_speculative_tokens and ENGINES[log.engine].log.names_drafts:
        raise UsageError(f"{path}: has no draft tokens; leave out --num-speculative-tokens "
                         f"{scenario.num_speculative_tokens}")


def _contexts(path: Path, log: ServerLog, scenario: Scenario) -> Floats:
    """Return the context of each window's decodes, which vLLM tells by the share of the KV cache alone [tokens]."""
    if all(window.context_tokens is not None for window in log.windows):
        return np.array([window.context_tokens for window in log.windows], float)
    deployment = deploy(scenario)
    arch = deployment.architecture
    if arch is not None and not arch.has_even_layers:
        raise UsageError(f"{path}: gives contexts as a share of the KV cache, but {arch.name} has several kinds of "
                         f"layers, so contexts are unknown; give a benchmark's result, or requests with their times")
    capacity = log.kv_tokens or deployment.settings.num_gpu_blocks * deployment.settings.block_size
    return np.array([capacity * (window.kv_share or 0.0) if window.context_tokens is None else window.context_tokens
                     for window in log.windows])


def _counted(left_out: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in left_out.items())


def _read(path: Path) -> pl.DataFrame:
    table = read_table_file(path)
    missing = [name for name in ("duration_s", *SHAPE) if name not in table.columns]
    if missing:
        raise TraceError(f"{path}: lacks the columns {', '.join(missing)}; a step log has the columns that "
                         f"`planner replay --steps` writes")
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
