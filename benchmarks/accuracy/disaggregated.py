"""Published runs with prefill and decode apart. Each deployment has the slowdown that the others were fitted to."""

import polars as pl

from benchmarks.accuracy.data import MEASURED
from benchmarks.accuracy.section import ERROR_COLUMNS, Section, Verdict, error_verdicts, outcomes, statistic_rows
from benchmarks.fit_prefill_workers import held_out
from planner.measured.run_table import read_measured
from planner.measured.stalls import STEADY
from planner.measured.validate import predict_all, predictions_table, with_stalls
from planner.report.content import Listing

# Median and mean of the absolute error; None for no target.
TARGETS: dict[str, tuple[float | None, float | None]] = {
    "mean_tpot_ms": (0.10, 0.20), "mean_ttft_ms": (0.25, 0.40), STEADY: (None, None), "median_ttft_ms": (None, None),
    "output_tput_per_gpu": (0.10, 0.20)}
# AIConfigurator's errors. It predicts 137 of its own disaggregated runs.
PEERS = {"mean_tpot_ms": "AIConfigurator: 23 % / 33 %", "mean_ttft_ms": "AIConfigurator: 75 % / 67 %"}
STATISTICS = ("mean_ttft_ms", STEADY, "median_ttft_ms", "p99_ttft_ms", "mean_tpot_ms", "p99_tpot_ms",
              "output_tput_per_gpu")


def disaggregated() -> Section:
    """Return the section on runs with prefill and decode apart."""
    runs = read_measured(MEASURED / "disaggregated.csv")
    predictions = predict_all([held_out(run) if run.status == "ok" else run for run in runs])
    table = predictions_table(with_stalls(predictions))
    good = table.filter(pl.col("status") == "ok")
    verdicts = [Verdict(name="rows with a prediction", value=good.height / table.height, limit=1.0, at_least=True)]
    for statistic, limits in TARGETS.items():
        verdicts += error_verdicts(good, statistic, statistic, limits, PEERS.get(statistic, ""))
    return Section(
        title="Prefill and decode apart",
        lead="InferenceMAX's runs of DeepSeek-R1 and gpt-oss-120b on GB200 (Dynamo with TensorRT-LLM and SGLang) and "
             "MI355X (SGLang), with the settings of their published recipes. One number for each engine was fitted to "
             "such runs: how much longer a step takes on a worker that only prefills. Each deployment has the number "
             "that all others give; MI355X is in none. The recipes are of 2025; newer ones are among the "
             "runs that were published later.",
        verdicts=verdicts,
        tables=[Listing(title="by deployment", columns=["engine", "gpu", "model", "statistic", *ERROR_COLUMNS],
                        rows=statistic_rows(good, ("engine", "gpu", "model"), STATISTICS)),
                Listing(title="runs", columns=["runs", "status"], rows=outcomes(table))],
        notes=["Prefill on attention ranks of MI355X is predicted too fast, with MoRI's published times of the "
               "exchange.",
               "Where a run is the first of its kind on a server, kernels are compiled during its opening burst (2 to "
               "120 s under SGLang). The steady mean leaves such a stall out."])

