"""Runs of DeepSeek-R1 that were published later than the runs of the fits, on other GPUs, releases and recipes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from benchmarks.accuracy.data import MEASURED
from benchmarks.accuracy.section import Section, Verdict, ape, error_verdicts, outcomes, percent
from planner.measured.run_table import read_measured
from planner.measured.stalls import STEADY
from planner.measured.validate import predict_all, predictions_table, with_stalls
from planner.report.content import Listing

TABLES = {
    "one node": ("inferencex_api_closed_loop", "inferencex_api_closed_loop_history"),
    "prefill and decode apart": ("inferencex_api_disaggregated", "inferencex_api_disaggregated_history")}
# Median and mean of the absolute error.
TARGETS: dict[str, dict[str, tuple[float | None, float | None]]] = {
    "one node": {"median_tpot_ms": (0.05, 0.10), "median_ttft_ms": (0.10, 0.20), "output_tput_per_gpu": (0.06, 0.12)},
    "prefill and decode apart": {"median_tpot_ms": (0.10, 0.20), "median_ttft_ms": (0.25, 0.50),
                                 "output_tput_per_gpu": (0.10, 0.20)}}
MEAN_OUTPUT = 0.9  # of osl: the client draws lengths from 0.8 of it
COVERAGE, WATTS = 0.98, 0.10  # targets: rows with a prediction, median error of a GPU's power
GROUPS = ("engine", "gpu", "precision", "drafts")
COMPARED = {"TPOT": "median_tpot_ms", "median TTFT": "median_ttft_ms", "steady mean TTFT": STEADY,
            "p99 TTFT": "p99_ttft_ms", "output/GPU": "output_tput_per_gpu"}


def later() -> Section:
    """Return the section on later runs."""
    tables = {kind: pl.concat(map(predicted, names), how="diagonal_relaxed") for kind, names in TABLES.items()}
    verdicts, listings = [], []
    for kind, table in tables.items():
        good = table.filter(pl.col("status") == "ok")
        verdicts.append(Verdict(name=f"{kind}: rows with a prediction", value=good.height / table.height,
                                limit=COVERAGE, at_least=True))
        for statistic, limits in TARGETS[kind].items():
            verdicts += error_verdicts(good, f"{kind}, {statistic}", statistic, limits)
        listings += [Listing(title=f"{kind}, median / mean of the absolute error",
                             columns=[*GROUPS, "rows", "predicted", *COMPARED], rows=group_rows(table)),
                     Listing(title=f"{kind}, runs", columns=["runs", "status"], rows=outcomes(table))]
    watts = pl.concat(tables.values(), how="diagonal_relaxed").filter(pl.col("status") == "ok")
    power = ape(watts["predicted_avg_power_w"], watts["measured_avg_power_w"])
    verdicts.append(Verdict(name="power of a GPU: median APE", limit=WATTS, value=float(np.median(power))))
    return Section(
        title="Runs that were published later",
        lead=f"{sum(table.height for table in tables.values())} runs of DeepSeek-R1 of 2025-10 to 2026-06 from "
             "InferenceX's public results: nine kinds of GPU, later images, with and without MTP. No kernel was "
             "fitted to these rows. The constants of older releases (hardware_db/older_releases.toml) were. "
             "Their launch settings are from the published recipes, by engine, GPU, precision, lengths, layout and "
             "date.",
        verdicts=verdicts, tables=listings,
        notes=["hardware_db/older_releases.toml is fitted to rows without drafts: older SGLang on MI300X and MI355X, "
               "and TensorRT-LLM 1.1 on B200. The median error of these rows is 3 to 17 % if a deployment has the "
               "value of the others.",
               "Four of the five errors are of medians over requests; the p99 TTFT of a run with a stall is the stall, "
               "and these runs are left out of it.",
               "Stalls of single-node rows are among the runs of hardware_db/first_use.toml, which no prediction here "
               "uses.",
               "The output of one single-node run contradicts its own latencies by a factor of 42 (Little's law), so "
               "it is not scored.",
               "Tables of histories have no mean and no image, so that the release is that of the date."])


def predicted(name: str) -> pl.DataFrame:
    """Return the runs of a table with their predictions and stalls."""
    predictions = with_stalls(predict_all(read_measured(MEASURED / f"{name}.csv", client="inferencex")))
    rows = pl.read_csv(MEASURED / f"{name}.csv", infer_schema_length=None)
    drafts = rows["spec_decoding"].replace_strict({"none": "no", "mtp": "MTP"})
    table = predictions_table(predictions).with_columns(
        drafts=drafts, is_stalled=pl.Series([p.stall is not None for p in predictions]))
    return table if "tp" not in rows.columns else table.with_columns(
        pl.when(~contradicts_itself(rows)).then(pl.col("measured_output_tput_per_gpu")))


def contradicts_itself(rows: pl.DataFrame) -> pl.Series:
    """Tell which runs have less than half of the output that their requests in flight and latencies give.

    By Little's law so many requests in flight, each for its end-to-end time, leave at concurrency / time.
    """
    output = rows["concurrency"] * MEAN_OUTPUT * rows["osl"] / (1e-3 * rows["measured_median_e2el_ms"]) / rows["tp"]
    return rows["measured_output_tput_per_gpu"] < output / 2


def group_rows(table: pl.DataFrame) -> list[list[Any]]:
    """Return a row for each group: its runs, the share with a prediction, and the errors of COMPARED."""
    groups = sorted(table.group_by(*GROUPS), key=lambda group: group[0])
    return [[*names, part.height, percent(part.filter(pl.col("status") == "ok").height / part.height),
             *error_cells(part)] for names, part in groups]


def error_cells(table: pl.DataFrame) -> Sequence[str]:
    """Return the median and the mean of the absolute error of each metric of COMPARED, as text."""
    cells = []
    for statistic in COMPARED.values():
        part = table.filter(~pl.col("is_stalled")) if statistic.startswith("p99") else table
        if f"predicted_{statistic}" not in part.columns or not len(
                errors := ape(part[f"predicted_{statistic}"], part[f"measured_{statistic}"])):
            cells.append("–")
            continue
        cells.append(f"{percent(float(np.median(errors)))} / {percent(float(errors.mean()))}")
    return cells
