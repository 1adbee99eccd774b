"""MLPerf Offline runs with known engine settings: how many samples a second, with all of them there at the start."""

from collections.abc import Mapping
from typing import Any

import joblib
import numpy as np
import polars as pl

from benchmarks.accuracy.data import load_of, replay, times
from benchmarks.accuracy.mlperf_runs import engine_of, gpu_of, lengths_of, runs_of, why_not
from benchmarks.accuracy.section import (
    ERROR_COLUMNS,
    Section,
    Verdict,
    ape,
    error_row,
    four_digits,
    outcomes,
    scatter,
)
from planner.errors import PlannerError
from planner.report.content import Listing

CHOSE = "llama2-70b, fp4"  # whose runs chose what a product takes (`mlperf_builds.NATIVE_SHARE`)


def mlperf_offline() -> Section:
    """Return the section on MLPerf's Offline runs."""
    table = runs_of("Offline")
    rows = joblib.Parallel(n_jobs=-1)(joblib.delayed(_predict)(row) for row in table.iter_rows(named=True))
    table = pl.concat([table, pl.DataFrame(rows, orient="row", schema={"predicted": pl.Float64, "status": pl.String})],
                      how="horizontal")
    good = table.filter(pl.col("status") == "ok")
    good = good.with_columns(group=pl.Series([f"{row['base']}, {row['precision_set']}, {gpu_of(row)}"
                                              for row in good.iter_rows(named=True)], dtype=pl.String))
    parts = {"all": good, "all that chose nothing": good.filter(~pl.col("group").str.starts_with(CHOSE))}
    groups = {group: part for (group,), part in good.sort("group").group_by("group", maintain_order=True)}
    return Section(
        title="MLPerf Offline",
        lead=f"{table.height} runs, {good.height} with known settings: as many samples as the run had, and those of "
             "the dataset at least, all there at the start. No fit has one of them. What TensorRT's own NVFP4 products "
             "take was chosen by Llama-2-70B's in that precision; the Server runs are replayed with it.",
        verdicts=[Verdict(name=f"samples a second, {name}: median APE", limit=None, value=_median(part))
                  for name, part in parts.items()],
        figures={"mlperf_offline": scatter(
            {base: (part["samples_per_s"], part["predicted"]) for (base,), part in good.sort("base").group_by(
                "base", maintain_order=True)},
            "Offline runs", "a point is a run", "samples/s")},
        tables=[Listing(title="By model, precision and GPU", columns=("runs of", *ERROR_COLUMNS), rows=[
                    [name, *error_row(part["predicted"], part["samples_per_s"])]
                    for name, part in (parts | groups).items()]),
                _runs(good),
                Listing(title="All rows", columns=("rows", "what became of them"), rows=outcomes(table))],
        notes=["Builds and limits are those of the settings files that could be read, as for the Server runs; 8B's and "
               "DeepSeek's mean inputs are estimates."])


def _runs(good: pl.DataFrame) -> Listing:
    rows = good.select("round", "submitter", "system", "model", "samples_per_s", "predicted").iter_rows()
    return Listing(title="Runs: samples a second, measured and predicted",
                   columns=("round", "submitter", "system", "model", "measured", "predicted"),
                   rows=four_digits(rows))


def _median(part: pl.DataFrame) -> float | None:
    return float(np.median(ape(part["predicted"], part["samples_per_s"]))) if part.height else None


def _predict(row: Mapping[str, Any]) -> tuple[float | None, str]:
    """Return the samples a second of all replicas and "ok", or why there is nothing."""
    why = why_not(row)
    if why is not None:
        return None, why
    try:
        engine = engine_of(row)
    except PlannerError as error:
        return None, str(error)[:80]
    ran = row["samples_per_s"] * row["min_duration_ms"] / 1e3
    count = int(max(ran, row["performance_sample_count"]) / engine.replicas)
    found = times(replay(engine.deployment, load_of("offline", np.zeros(count), *engine.draw(lengths_of(row), count))))
    return count * engine.replicas / float(found["e2e_s"].max()), "ok"
