"""Closed-loop runs with statistics beside the mean, which no fit uses: the shape of TTFT's distribution."""

import polars as pl

from benchmarks.accuracy.data import MEASURED
from benchmarks.accuracy.section import ERROR_COLUMNS, Section, error_verdicts, outcomes, statistic_rows
from planner.measured.run_table import read_measured
from planner.measured.stalls import STEADY
from planner.measured.validate import predict_all, predictions_table, with_stalls
from planner.report.content import Listing

STATISTICS = ("mean_ttft_ms", STEADY, "median_ttft_ms", "p99_ttft_ms", "mean_tpot_ms", "p99_tpot_ms")
# Median and mean of the absolute error, by vendor and statistic; None for no target.
TARGETS: dict[tuple[str, str], tuple[float | None, float | None]] = {
    ("NVIDIA", "mean_ttft_ms"): (0.09, 0.15), ("NVIDIA", "median_ttft_ms"): (0.10, 0.15),
    ("NVIDIA", "p99_ttft_ms"): (0.15, 0.22), ("NVIDIA", "mean_tpot_ms"): (0.045, 0.065),
    ("NVIDIA", "p99_tpot_ms"): (0.05, 0.07), ("NVIDIA", STEADY): (None, None),
    ("AMD", "mean_ttft_ms"): (0.25, 0.35), ("AMD", STEADY): (None, None), ("AMD", "p99_ttft_ms"): (None, None),
    ("AMD", "median_ttft_ms"): (None, None),
    ("AMD", "mean_tpot_ms"): (0.12, 0.15)}


def percentiles() -> Section:
    """Return the section on statistics of single-node runs."""
    predictions = with_stalls(predict_all(read_measured(MEASURED / "closed_loop_percentiles.csv")))
    stalled = pl.Series([p.stall is not None for p in predictions])
    is_amd = pl.col("gpu").str.starts_with("mi")
    table = predictions_table(predictions).with_columns(
        is_stalled=stalled, vendor=pl.when(is_amd).then(pl.lit("AMD")).otherwise(pl.lit("NVIDIA")))
    good = table.filter(pl.col("status") == "ok")
    return Section(
        title="Closed-loop runs, mean, median and p99",
        lead="InferenceMAX's single-node runs of late 2025, each with the mean, median and p99 of TTFT and TPOT. No "
             "constant was fitted to them, except the first use of cold servers.",
        verdicts=[verdict for (vendor, name), limits in TARGETS.items()
                  for verdict in error_verdicts(good.filter(vendor=vendor), f"{vendor}, {name}", name, limits)]
        + error_verdicts(good.filter(~pl.col("is_stalled"), vendor="AMD"), "AMD, p99_ttft_ms without stalls",
                         "p99_ttft_ms", (None, None)),
        tables=[Listing(title="by engine and GPU", columns=["engine", "gpu", "statistic", *ERROR_COLUMNS],
                        rows=statistic_rows(good, ("engine", "gpu"), STATISTICS)),
                Listing(title="runs", columns=["runs", "status"], rows=outcomes(table))],
        notes=["The opening burst is a tenth of the requests (a fiftieth or a twentieth on MI355X), and p99 of TTFT "
               "lies in it. The client of that time did not warm the server up: kernels that are compiled at first use "
               f"hold the burst up once under SGLang. {int(stalled.sum())} runs show such a stall by their mean, "
               "median and p99. The steady mean is the mean without it, against a warm replay.",
               "The recipe of DeepSeek-R1 in FP4 on MI355X with prompts of 1,024 tokens is cold. Its 60 runs are "
               "predicted with the first use of hardware_db/first_use.toml, the median of these very runs; the median "
               "of the runs with other loads is 1 to 4 % off. All other predictions are of warm servers."])

