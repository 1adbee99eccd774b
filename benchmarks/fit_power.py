"""Fits the draw of prompts and MI355X's energies to published watts, and prints them.

    python -m benchmarks.fit_power

`prompt_share` of `hardware_db/power.toml`, and `hbm_energy` and `flop_energy` of MI355X, have the printed values. The
running share and the energies of H100 and B200 stay: docs/decisions/power.md has their fit. Work and times come from
replays, at the measured throughput. A run whose output is not within WITHIN of the predicted one stood still for most
of its time and is left out. The held-out errors leave each deployment out in turn.
"""

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from scipy.optimize import least_squares

from planner.catalog.catalog_files import load_gpu
from planner.catalog.gpu_power import Power, power_of
from planner.measured.run_table import read_measured
from planner.measured.validate import predict, served
from planner.replays.fleet.shares import busy_fraction, shares
from planner.results.energy import Work, work_of, work_power_w

MEASURED = Path(os.environ.get("PLANNER_SHARED", Path(__file__).resolve().parents[2] / "shared")) / "measured"
TABLES = ("inferencex_api_closed_loop", "inferencex_api_closed_loop_history", "inferencex_api_disaggregated",
          "inferencex_api_disaggregated_history")
FITTED = "mi355x"  # the GPU whose energies are fitted
START = (0.5, 0.7, 1.9)  # prompts, and FITTED's memory and arithmetic, as shares of limit - idle
WITHIN = 3.0


class Pool(NamedTuple):
    """The steps of one pool: GPUs, their draw by the catalog, busy share, work, and measured over predicted output."""

    gpus: float
    power: Power
    gpu: str
    busy: float
    work: Sequence[Work]
    speed: float


class Row(NamedTuple):
    """A measured draw: the deployment, its pools, and watts of one GPU."""

    deployment: tuple[Any, ...]
    pools: Sequence[Pool]
    watts: float


def main() -> None:
    rows = measured_rows()
    values, gpu = fit(rows), load_gpu(FITTED)
    memory_w, compute_w = values[1:] * (gpu.tdp_w - gpu.idle_w)
    print(f"prompt_share {values[0]:.3f}; {FITTED}: memory_share {values[1]:.3f}, compute_share {values[2]:.3f}, "
          f"hbm_energy {memory_w / gpu.hbm_bandwidth_bytes_per_s:.3g} J/B, "
          f"flop_energy {compute_w / gpu.flops_per_s['bf16']:.3g} J/FLOP")
    print("error of the fit:", errors((row, values) for row in rows))
    print("held out:", errors((row, fitted) for deployment in dict.fromkeys(row.deployment for row in rows)
                              for fitted in [fit([row for row in rows if row.deployment != deployment])]
                              for row in rows if row.deployment == deployment))


def fit(rows: Sequence[Row]) -> Any:
    """Return the three shares, in the order of START."""
    return least_squares(lambda shares_: [np.log(draw_w(row, shares_) / row.watts) for row in rows], START,
                         bounds=(0, 6), loss="soft_l1", f_scale=0.1).x


def draw_w(row: Row, values: Any) -> float:
    """Return the predicted draw of one GPU, the mean over the pools [W]."""
    total = 0.0
    for pool in row.pools:
        span_w = pool.power.limit_w - pool.power.idle_w
        power = replace(pool.power, prompt_w=values[0] * span_w)
        if pool.gpu == FITTED:
            power = replace(power, memory_w=values[1] * span_w, compute_w=values[2] * span_w)
        faster = [kind._replace(flops_s=pool.speed * kind.flops_s, memory_s=pool.speed * kind.memory_s)
                  for kind in pool.work]
        total += pool.gpus * (power.idle_w + pool.busy * (work_power_w(faster, power) - power.idle_w))
    return total / sum(pool.gpus for pool in row.pools)


def errors(fitted: Any) -> Mapping[str, tuple[int, float, float]]:
    """Return the number of rows, and the median and the mean of the absolute error, by GPU."""
    by_gpu: dict[str, list[float]] = {}
    for row, values in fitted:
        by_gpu.setdefault(row.pools[0].gpu, []).append(abs(draw_w(row, values) / row.watts - 1))
    return {gpu: (len(found), round(float(np.median(found)), 3), round(float(np.mean(found)), 3))
            for gpu, found in by_gpu.items()}


def measured_rows() -> list[Row]:
    """Return all rows with watts: DeepSeek-R1 of the later tables, and DeepSeek-V4-Pro on B200."""
    rows = [row for name in TABLES for row in rows_of(MEASURED / f"{name}.csv")]
    table = pl.read_csv(MEASURED / "energy_dsv4pro_b200.csv", infer_schema_length=None).rename({"part": "note_part"})
    gpus = pl.coalesce(pl.col("n_gpus") / pl.col("decode_gpus"), pl.lit(1.0))
    table = table.with_columns(measured_output_tput_per_gpu=pl.col("derived_output_tput_per_gpu") * gpus)
    sides = {str(row["id"]): (row["measured_prefill_power_w"], row["measured_decode_power_w"])
             for row in table.iter_rows(named=True)}
    kept = [name for name in table.columns if not name.startswith(("measured_", "derived_", "n_gpus"))]
    kept += ["measured_output_tput_per_gpu", "measured_avg_power_w"]
    with tempfile.TemporaryDirectory() as folder:
        for name, part, absent in (
                ("together", table.filter(pl.col("prefill_gpus").is_null()), ("prefill_", "decode_")),
                ("apart", table.filter(pl.col("prefill_gpus").is_not_null()), ("tp", "ep", "dp_attention"))):
            part.select(column for column in kept if not column.startswith(absent)).write_csv(Path(folder, name))
            rows += rows_of(Path(folder, name), sides)
    return rows


def rows_of(path: Path, sides: Mapping[str, tuple[float | None, ...]] | None = None) -> list[Row]:
    """Return the rows of a table; `sides` has the draw of prefill and of decode by row, if they were measured."""
    rows = []
    for run in read_measured(path, client="inferencex"):
        watts = run.measured.get("avg_power_w")
        if watts is None or not np.isfinite(watts):
            continue
        assert run.load is not None
        speed = run.measured["output_tput_per_gpu"] / predict(run).predicted["output_tput_per_gpu"]
        if not 1 / WITHIN < speed < WITHIN:
            continue
        result, _ = served(run)
        duration_s = float(np.nanmax(result.records.requests.finished_s))
        pools = [Pool(part.num_gpus, power_of(gpu), gpu.name, busy_fraction([part], duration_s), work, speed)
                 for part in shares(result, duration_s)
                 if (gpu := part.pool.deployment.gpu) is not None and (work := work_of(part)) is not None]
        lengths: Any = run.load.requests["input_tokens"].max(), run.load.requests["output_tokens"].max()
        key = (*run.groups.values(), *lengths)
        measured_sides = (sides or {}).get(str(run.id), (None,))
        rows += ([Row(key, [pool], side) for pool, side in zip(pools, measured_sides, strict=True) if side is not None]
                 if measured_sides[0] is not None else [Row(key, pools, watts)])
    return rows


if __name__ == "__main__":
    main()
