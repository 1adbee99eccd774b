"""How far a few runs of a node lower the error of its other runs: `python -m benchmarks.campaigns [MODEL|GPU|ENGINE]…`.

Rows of the published table play a user's node whose model nobody has measured: the constants at the start are fitted
to other models alone. The rule of `planner measure` chooses the runs, `planner calibrate` fits to them, and all other
rows of the node are predicted with both. It writes reports/campaigns.md.
"""

import math
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl
import tomli_w
from numpy.typing import NDArray

from benchmarks.accuracy.folds import QUICK, checkpoint, fit_without
from benchmarks.fit_engines import RUNS, newest_runs, usable
from planner.files.counts import share_text
from planner.files.writing import write_text
from planner.measured.calibration.calibrate import calibrate
from planner.measured.calibration.identify import sensitivities
from planner.measured.calibration.observations import Runs, prepare
from planner.measured.run_table import METRICS, Measurement, read_measured
from planner.planning.measure import choose_runs
from planner.settings.scenario import Scenario
from planner.steptime.engine_constants import bounds

REPORT = Path(__file__).resolve().parents[1] / "reports" / "campaigns.md"
NODES = ("gpt-oss-120b|b200|vllm", "DeepSeek-V3|b200|sglang", "Qwen3.5-397B|b200|sglang", "Llama-3.1-70B|b200|trtllm",
         "Kimi-K2.5|b200|vllm", "GLM-5|b200|sglang")
CAMPAIGNS = (3, 6, 12)  # runs
MOST = 26  # rows of a node
FEWEST_LEFT = 8  # rows to predict

Floats = NDArray[np.float64]


def main(nodes: Sequence[str]) -> None:
    """Write a row for each node and number of runs."""
    lines = ["# Campaigns: the error of a model that nobody has measured, after 3, 6 and 12 runs", "",
             "Absolute errors of the rows that were not calibrated on, median / mean. The constants before know no run "
             "of the model. If no constant is fitted, six runs are missing, or constants fitted without one of "
             "the runs did not predict it better.", "",
             "| node | runs | rows left | constants | TPOT before | after | TTFT before | after |",
             "|---|---|---|---|---|---|---|---|"]
    for node in nodes or NODES:
        for row in _rows(node):
            lines.append(row)
            print(row, flush=True)
    write_text(REPORT, "\n".join(lines) + "\n")


def _rows(node: str) -> Iterator[str]:
    model, gpu, engine = node.split("|")
    every = [run for run in read_measured(RUNS) if run.groups["engine"] == engine]
    runs = [run for run in usable(every) if model in run.groups["model"] and gpu in run.groups["gpu"]]
    runs = runs[::math.ceil(len(runs) / MOST)]
    newest = [run for run in newest_runs() if run.groups["engine"] == engine]
    start = fit_without([*every, *newest], checkpoint, checkpoint(runs[0]), QUICK)
    observed = Runs(prepared=prepare(runs))
    before, slopes = _errors(observed, start), _slopes(observed, start)
    for count in CAMPAIGNS:
        if len(observed.prepared) < count + FEWEST_LEFT:
            continue
        chosen = list(choose_runs(slopes, [0.0] * len(slopes), limit_s=1.0, num_runs=count))
        fitted, constants = _calibrated([observed.prepared[k][0] for k in chosen], start, engine)
        is_left = ~np.isin(np.arange(len(slopes)), chosen)
        after = _errors(observed.part(is_left), constants)
        cells = [_error_text(errors[:, METRICS.index(metric)]) for metric in ("tpot_ms", "ttft_ms")
                 for errors in (before[is_left], after)]
        yield f"| {model} {gpu} {engine} | {count} | {is_left.sum()} | {fitted} | {' | '.join(cells)} |"


def _calibrated(runs: Sequence[Measurement], start: Mapping[str, float],
                engine: str) -> tuple[int, Mapping[str, float]]:
    """Return how many constants `planner calibrate` fits to these rows of the table, and all constants."""
    with tempfile.TemporaryDirectory() as name:
        table, constants = Path(name) / "runs.csv", Path(name) / "start.toml"
        ids = [run.id for run in runs]
        pl.read_csv(RUNS, infer_schema_length=None).filter(pl.col("id").is_in(ids)).write_csv(table)
        constants.write_text(tomli_w.dumps({"constants": dict(start)}))
        answer = calibrate(table, Scenario(engine=engine, calibration=str(constants)), names=None,
                           folds=min(len(ids), CAMPAIGNS[-1]), jobs=-1)
    return len(answer.fitted), answer.constants


def _errors(observed: Runs, constants: Mapping[str, float]) -> Floats:
    with observed.evaluator(-1) as evaluate:
        errors: Floats = np.log(evaluate([constants])[0]) - observed.log_measured
    return errors


def _slopes(observed: Runs, start: Mapping[str, float]) -> Floats:
    """Return `sensitivities` by run, shape [num runs, metrics, constants]; 0 where a metric was not measured."""
    slopes = np.zeros((*observed.log_measured.shape, len(bounds())))
    with observed.evaluator(-1) as evaluate:
        slopes[np.isfinite(observed.log_measured)] = sensitivities(observed, start, list(bounds()), evaluate)
    return slopes


def _error_text(log_errors: Floats) -> str:
    errors = np.abs(np.expm1(log_errors))
    return f"{share_text(float(np.nanmedian(errors)))} / {share_text(float(np.nanmean(errors)))}"


if __name__ == "__main__":
    main(sys.argv[1:])
