"""The noise floor: how far two measurements of one deployment differ, which no prediction can undercut."""

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl

from benchmarks.accuracy.data import MEASURED, ROOT
from benchmarks.accuracy.section import Section, Verdict, percent
from planner.engines import ENGINES
from planner.report.content import Listing
from planner.results.uncertainty import read_residuals

TABLES = {"one node": ("closed_loop_percentiles", "inferencex_api_closed_loop", "inferencex_api_closed_loop_history"),
          "prefill and decode apart": ("disaggregated", "inferencex_api_disaggregated",
                                       "inferencex_api_disaggregated_history")}
STATISTICS = ("median_tpot_ms", "mean_tpot_ms", "median_ttft_ms", "mean_ttft_ms", "p99_ttft_ms", "output_tput_per_gpu")
# Columns that are no part of a deployment: two rows that are equal in all others measured the same one.
OTHERS = ("id", "image", "date", "engine_version", "framework", "checkpoint")
LEVEL = 0.8
SAME, OTHER = "same release", "another release or day"


def noise() -> Section:
    """Return the section on repeated measurements."""
    pairs = pl.concat([pairs_of(kind) for kind in TABLES], how="diagonal_relaxed")
    verdicts = [Verdict(name=f"{kind}, {statistic}, {SAME}: {shown}", limit=None, value=value)
                for kind in TABLES for statistic in STATISTICS
                for shown, value in _spread(pairs.filter(kind=kind, release=SAME)[statistic])]
    return Section(
        title="Noise floor: one deployment measured twice",
        lead="Where the tables have a deployment more than once (GPU, engine, model, precision, drafts, lengths, "
             "concurrency and layout), each measurement is compared with the next one: the larger over the smaller, "
             "less 1. The figures are the median and the mean of these differences.",
        verdicts=verdicts,
        tables=[Listing(title=f"{kind}, by engine and GPU: median / mean difference",
                        columns=["engine", "gpu", "pairs", "measured", *STATISTICS],
                        rows=_rows(pairs.filter(kind=kind))) for kind in TABLES]
        + [Listing(title=f"the {LEVEL:.0%} interval of a prediction, and the spread of a measurement in it",
                   columns=["engine", "statistic", "interval", "spread"], rows=interval_rows(pairs))],
        notes=["A stall at first use is in the mean and in the p99 of TTFT of some measurements and not of others: "
               "p99 differs by a factor of 30 on B200 in FP4.",
               "Between releases, kernels and recipes change: that part is no noise, and the error of a prediction for "
               "a release can be less.",
               "Intervals of answers rest on errors against such measurements, so that they contain the spread. A "
               "measurement's own spread is the difference of two over the square root of two."])


def pairs_of(kind: str) -> pl.DataFrame:
    """Return a row for each pair of measurements that follow one another: its deployment and its differences."""
    table = pl.concat([pl.read_csv(MEASURED / f"{name}.csv", infer_schema_length=None) for name in TABLES[kind]],
                      how="diagonal_relaxed").with_columns(pl.col("model").str.split("/").list.last())
    measured = [name for name in table.columns if name.startswith("measured_")]
    keys = [name for name in table.columns if name not in (*OTHERS, *measured)]
    rows = [row for _, group in table.group_by(*keys, maintain_order=True) for row in _pairs(kind, group)]
    return pl.DataFrame(rows, infer_schema_length=None)


def _pairs(kind: str, group: pl.DataFrame) -> Iterator[dict[str, Any]]:
    ordered = group.with_row_index().sort("date", "index", nulls_last=False) if "date" in group.columns else group
    for one, other in itertools.pairwise(ordered.iter_rows(named=True)):
        is_same = one["engine_version"] is not None and one["engine_version"] == other["engine_version"]
        yield {"kind": kind, "engine": one["engine"], "gpu": one["gpu"], "release": SAME if is_same else OTHER,
               **{name: difference(one[f"measured_{name}"], other[f"measured_{name}"]) for name in STATISTICS}}


def interval_rows(pairs: pl.DataFrame) -> list[list[str]]:
    """Return the interval of each engine's predictions, as they leave other runs out, and the spread of repeats in it.

    The difference of two equal, independent errors has √2 times the spread of one of them.
    """
    rows = []
    for engine in ENGINES:
        path = ROOT / "hardware_db" / "engines" / f"{engine}.toml"
        repeats = pairs.filter(engine=engine, kind="one node", release=SAME)
        if repeats.is_empty():
            continue
        for statistic in ("mean_ttft_ms", "mean_tpot_ms"):
            bounds = read_residuals(path, "residuals").interval(statistic.removeprefix("mean_"), 1.0, LEVEL)
            assert bounds is not None
            spread = np.log1p(repeats[statistic].drop_nulls().to_numpy()) / math.sqrt(2.0)
            rows.append([engine, statistic, f"{percent(bounds[0] - 1)} to {percent(bounds[1] - 1)}",
                         f"± {percent(math.expm1(float(np.quantile(spread, LEVEL))))}"])
    return rows


def difference(one: float | None, other: float | None) -> float | None:
    """Return by how much the larger of two measurements exceeds the smaller one [1]; None without one.

    >>> round(difference(10.0, 12.0), 2), difference(10.0, None)
    (0.2, None)
    """
    return math.expm1(abs(math.log(one / other))) if one and other else None


def _spread(differences: pl.Series) -> list[tuple[str, float | None]]:
    values = differences.drop_nulls().to_numpy()
    if not len(values):
        return [("median", None), ("mean", None)]
    return [("median", float(np.median(values))), ("mean", float(values.mean()))]


def _rows(pairs: pl.DataFrame) -> list[list[Any]]:
    groups = sorted(pairs.group_by("engine", "gpu", "release"), key=lambda group: group[0])
    return [[engine, gpu, part.height, release, *(
        " / ".join(percent(value) for _, value in _spread(part[name])) for name in STATISTICS)]
        for (engine, gpu, release), part in groups]
