"""MLPerf Server and Interactive runs with known engine settings: on which side of its limit each p99 falls."""

from collections.abc import Mapping
from typing import Any

import joblib
import numpy as np
import polars as pl

from benchmarks.accuracy.data import load_of, replay, times
from benchmarks.accuracy.mlperf_runs import Engine, Lengths, engine_of, lengths_of, runs_of, why_not
from benchmarks.accuracy.section import (
    ERROR_COLUMNS,
    Section,
    Verdict,
    error_row,
    four_digits,
    median,
    outcomes,
    percent,
    scatter,
)
from planner.errors import PlannerError
from planner.report.content import Listing

TARGET = 0.90
MOST_REQUESTS = 20_000
DURATION_S = 600.0  # MLPerf's least
NUM_HALVINGS = 7  # of the search for the largest rate: to 1.6 % of the offered one


def mlperf() -> Section:
    """Return the section on MLPerf."""
    table = runs_of("Server", "Interactive")
    rows = joblib.Parallel(n_jobs=-1)(joblib.delayed(_predict)(row) for row in table.iter_rows(named=True))
    table = pl.concat([table, pl.DataFrame(rows, orient="row", schema={"ttft": pl.Float64, "tpot": pl.Float64,
                                                                        "capacity": pl.Float64, "status": pl.String})],
                      how="horizontal")
    good = table.filter(pl.col("status") == "ok")
    sides = {name: (good[name] <= good[f"{name}_limit_ms"]).to_numpy() for name in ("ttft", "tpot")}
    both = np.concatenate(list(sides.values()))
    return Section(
        title="MLPerf Server and Interactive",
        lead=f"{table.height} runs, {good.height} with known settings: Poisson arrivals at the offered rate, dealt to "
             "the replicas in turn, 600 s or 20,000 requests of one replica. All were valid: measured p99 is within "
             "the limit, and rates were tuned until it just was, so a small error in speed is a large one in p99 TTFT.",
        verdicts=[Verdict(name="p99 TTFT and TPOT on the measured side of the limit", limit=TARGET, at_least=True,
                          value=float(both.mean()) if len(both) else None),
                  Verdict(name="largest rate within both limits over the offered one, median, less 1", limit=None,
                          value=median(good["capacity"]) - 1 if good.height else None)],
        figures={"mlperf": scatter({name.upper(): (good[f"{name}_p99_ms"], good[name]) for name in sides},
                                   "p99 of Server and Interactive runs", "a point is a run", "ms")},
        tables=[_by_model(good, sides), _runs(good), _counts(table)],
        notes=["Lengths are log-normal, cut at the published maxima: prompts by the datasets' quantiles, outputs by "
               "the mean that each run states and the spread of its end-to-end times. 8B's and DeepSeek's mean inputs "
               "are estimates.", "Speculative decoding, where it was used, is not stated in the settings.",
               "Kernels fused and limits lowered at the start are those of the runs' settings files, as far as they "
               "could be read (84 of 187 of round 5.1; those of a group agree). R1's batch size is taken as a rank's: "
               "more requests run than it allows all ranks together.",
               "NVFP4 products that TensorRT compiled itself take 0.8 of the benchmarked plugin's time in steps of "
               "1,024 tokens and more, by Llama-2-70B's Offline runs (below), which are not among these. Without it "
               "87.0 % of the sides are right.",
               "Rows that state fp16 in v4.1 are taken with the precision of their settings, fp8."])


def _predict(row: Mapping[str, Any]) -> tuple[float | None, float | None, float | None, str]:
    """Return what `_p99` does and "ok", or why there is nothing."""
    why = why_not(row)
    if why is not None:
        return None, None, None, why
    try:
        return (*_p99(row), "ok")
    except PlannerError as error:
        return None, None, None, str(error)[:80]


def _p99(row: Mapping[str, Any]) -> tuple[float, float, float]:
    """Return p99 TTFT and TPOT [ms] at the offered rate, and the largest rate within both limits over the offered."""
    engine, lengths = engine_of(row), lengths_of(row)
    rate = float(row["scheduled_samples_per_s"] or row["target_qps"]) / engine.replicas
    found = p99(engine, lengths, rate)
    low, high = 0.0, 2.0
    for _ in range(NUM_HALVINGS):
        middle = (low + high) / 2
        ttft, tpot = p99(engine, lengths, middle * rate)
        is_within = ttft <= row["ttft_limit_ms"] and tpot <= row["tpot_limit_ms"]
        low, high = (middle, high) if is_within else (low, middle)
    return (*found, low)


def p99(engine: Engine, lengths: Lengths, rate: float) -> tuple[float, float]:
    """Return p99 TTFT and TPOT [ms] of one replica that takes its turn of Poisson arrivals, `rate` a second."""
    count = int(min(max(rate * DURATION_S, 500), MOST_REQUESTS))
    inputs, outputs = engine.draw(lengths, count)
    arrivals = np.cumsum(np.random.default_rng(1).gamma(engine.replicas, 1 / (rate * engine.replicas), count))
    found = times(replay(engine.deployment, load_of("mlperf", arrivals, inputs, outputs)))
    return (1e3 * float(np.nanpercentile(found["ttft_s"], 99)), 1e3 * float(np.nanpercentile(found["tpot_s"], 99)))


def _by_model(good: pl.DataFrame, sides: Mapping[str, Any]) -> Listing:
    rows = []
    for (model, scenario), part in good.with_row_index("at").group_by("base", "scenario", maintain_order=True):
        at = part["at"].to_numpy()
        for name, side in sides.items():
            rows.append([model, scenario, name.upper(), percent(float(side[at].mean())),
                         *error_row(part[name], part[f"{name}_p99_ms"])])
    return Listing(title="By model", columns=("model", "scenario", "p99", "right side", *ERROR_COLUMNS), rows=rows)


def _runs(good: pl.DataFrame) -> Listing:
    columns = ("round", "submitter", "system", "model", "scenario", "ttft_limit_ms", "ttft_p99_ms", "ttft",
               "tpot_limit_ms", "tpot_p99_ms", "tpot", "capacity")
    return Listing(title="Runs: limit, measured p99 and predicted p99 [ms], largest rate over offered",
                   columns=columns, rows=four_digits(good.select(columns).iter_rows()))


def _counts(table: pl.DataFrame) -> Listing:
    return Listing(title="All rows", columns=("rows", "what became of them"), rows=outcomes(table))
