"""Closed-loop means: in sample, with whole GPUs, models and layouts held out, and the rows believed mis-recorded."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from benchmarks.accuracy.data import MEASURED
from benchmarks.accuracy.folds import Effort, held_out
from benchmarks.accuracy.section import (
    PREDICTION_COLUMNS,
    Section,
    Verdict,
    grouped,
    measured_and_predicted,
    percent,
    run_by_run,
    scatter,
)
from benchmarks.fit_engines import is_mislabelled
from planner.engines import ENGINES
from planner.measured.run_table import GROUPS, METRICS, Measurement, read_measured
from planner.measured.validate import Prediction, errors, predict_all
from planner.report.content import Listing
from planner.results.uncertainty import of_a_new_group, residuals_of, with_derived

IN_SAMPLE = {"tpot_ms": (0.05, 0.10), "ttft_ms": (0.12, 0.25)}  # targets: median APE, MAPE
HELD_OUT = {"tpot_ms": (0.08, 0.15), "ttft_ms": (0.18, 0.35)}
PEERS = {"tpot_ms": "AIConfigurator 13 / 23 %, AISimulate 10 / 20 %",
         "ttft_ms": "AIConfigurator 38 / 44 %, AISimulate 47 / 47 %"}
NUM_WORST = 25
LEVEL = 0.8  # of the intervals whose coverage is measured


def closed_loop(effort: Effort) -> Section:
    """Return the section on the closed-loop runs.

    Parameters
    ----------
    effort : of the fits of the cross-validation.
    """
    predictions = predict_all(read_measured(MEASURED / "closed_loop_means.csv"))
    reasons = [excluded(p.measurement) for p in predictions]
    scored = [p for p, reason in zip(predictions, reasons, strict=True) if not reason]
    split = held_out([p.measurement for p in predictions], effort)
    return Section(
        title="Closed-loop runs, mean TTFT and TPOT",
        lead=f"{len(predictions):,} runs, {len(scored)} of the stated protocol and scored, the others counted below. "
             "In sample: the bundled constants, fitted to such runs. Held out: constants fitted from the priors "
             f"to the runs without one GPU, model or kind of layout, {effort.max_steps} optimiser steps on one "
             f"row in {effort.thinning}, tested on what was left out.",
        verdicts=[*_in_sample(scored), *_held_out(split)],
        figures={metric: _scatter(scored, metric) for metric in METRICS},
        tables=[_counts(predictions, reasons), *(_by_group(scored, group) for group in GROUPS if group != "client"),
                _apart(predictions, reasons), _without_doubtful(scored), _folds(split), _worst(scored),
                _coverage(split)],
        notes=["Repeats of one configuration differ by 2.7 % (median), 10.6 % (mean) in TTFT, 0.5 %, 3.7 % in TPOT.",
               *_evidence(predictions)],
        data={"residuals": residuals(split, [p.measurement for p in scored])})


def excluded(m: Measurement) -> str:
    """Return why a run is scored apart; nothing where it is not."""
    if m.groups["client"] != "inferencex":
        return "protocol not stated (client = internal)"
    return ""


def doubtful(m: Measurement) -> str:
    """Return why a row is believed to have run otherwise than it says; nothing where it is not."""
    if m.scenario is None:
        return ""
    if is_mislabelled(m):
        return "the engine ran fewer sequences than the stated concurrency"
    return "speculative decoding, which the table does not state" if m.scenario.num_speculative_tokens else ""


def _in_sample(scored: Sequence[Prediction]) -> list[Verdict]:
    verdicts = []
    for metric, (median_limit, mean_limit) in IN_SAMPLE.items():
        found = errors(scored).by_metric[metric]
        assert found is not None, f"no row has {metric}"
        verdicts += [Verdict(name=f"in sample, {metric[:4].upper()} {what}", value=value, limit=limit)
                     for what, value, limit in (("median APE", found.median_ape, median_limit),
                                                ("MAPE", found.mape, mean_limit))]
    return verdicts


def _held_out(split: pl.DataFrame) -> list[Verdict]:
    found = []
    for name in ("GPU", "model", "layout", "none"):
        label = "no fit at all" if name == "none" else f"{name} held out"
        part = split.filter(pl.col("split") == name)
        for metric, limits in HELD_OUT.items():
            off = np.abs(np.expm1(part[metric].to_numpy()))
            off = off[np.isfinite(off)]
            found += [Verdict(name=f"{label}, {metric[:4].upper()} {what}", value=float(value), limit=limit,
                              peers=PEERS[metric])
                      for what, value, limit in zip(("median APE", "MAPE"), (np.median(off), off.mean()), limits,
                                                    strict=True)]
    return found


def _scatter(scored: Sequence[Prediction], metric: str) -> Any:
    series = {}
    for engine in ENGINES:
        part = [p for p in scored if p.measurement.groups["engine"] == engine]
        series[engine] = measured_and_predicted(part, metric)
    return scatter(series, f"Mean {metric[:4].upper()}, in sample", "bundled constants; a point is a run", "ms")


def _counts(predictions: Sequence[Prediction], reasons: Sequence[str]) -> Listing:
    keys = [reason or (p.status if p.status != "ok" else "scored")
            for p, reason in zip(predictions, reasons, strict=True)]
    rows = sorted(((keys.count(key), key) for key in set(keys)), reverse=True)
    return Listing(title="All rows", columns=("rows", "what became of them"), rows=rows)


def _by_group(scored: Sequence[Prediction], group: str) -> Listing:
    return grouped(f"In sample, by {group}", group, scored, lambda p: str(p.measurement.groups[group]))


def _apart(predictions: Sequence[Prediction], reasons: Sequence[str]) -> Listing:
    why = {id(p): reason for p, reason in zip(predictions, reasons, strict=True)}
    rows = [p for p in predictions if why[id(p)]]
    return grouped("Scored apart", "why", rows, lambda p: f"{why[id(p)]}, {p.measurement.groups['engine']}")


def _without_doubtful(scored: Sequence[Prediction]) -> Listing:
    return grouped("The same rows, parted by what is believed of them; all count above", "belief", scored,
                    lambda p: doubtful(p.measurement) or "ran as stated")


def _folds(split: pl.DataFrame) -> Listing:
    rows = []
    for (name, engine, fold), part in split.group_by("split", "engine", "fold", maintain_order=True):
        cells: list[str] = []
        for metric in ("tpot_ms", "ttft_ms"):
            error = part[metric].to_numpy()
            error = error[np.isfinite(error)]
            off = np.abs(np.expm1(error))
            cells += map(percent, (float(np.median(off)), float(off.mean()), float(np.expm1(error.mean()))))
        rows.append([name, engine, fold or "all", "" if part["is_fitted"][0] else "too few left, priors", part.height,
                     *cells])
    columns = ("held out", "engine", "fold", "fit", "rows", *PREDICTION_COLUMNS[2:])
    return Listing(title="Held out, by fold", columns=columns, rows=rows)


def _worst(scored: Sequence[Prediction]) -> Listing:
    def off(p: Prediction) -> float:
        return max((abs(np.log(p.predicted[m] / p.measurement.measured[m])) for m in METRICS if m in p.predicted),
                   default=0.0)

    worst = [p for p in sorted(scored, key=off, reverse=True)[:NUM_WORST] if p.predicted]
    return run_by_run(f"The {NUM_WORST} worst rows, measured → predicted [ms]", worst)


def _evidence(predictions: Sequence[Prediction]) -> list[str]:
    """Return why rows are believed mis-recorded, with their numbers."""
    rows = [p.measurement for p in predictions if doubtful(p.measurement).startswith("the engine")]
    shown = "; ".join(f"{m.id}: TPOT {m.measured['tpot_ms']:.3g} ms, TTFT {m.measured['ttft_ms'] / 1e3:.3g} s"
                      for m in rows)
    return [f"Believed mis-recorded ({len(rows)} rows): their TPOT is that of 4 to 64 running, and their TTFT "
            "about 4.5 times a request's whole service, as with 10 × 512 prompts sent at once to an engine that runs "
            f"fewer; 512 was then the client's limit only. {shown}"]


def residuals(split: pl.DataFrame, measurements: Sequence[Measurement]) -> Mapping[str, Any]:
    """Return each engine's quantiles of log(predicted / measured), to expect of a group that its fits had not seen."""
    by_id = {m.id: m for m in measurements}
    found = {}
    for engine in ENGINES:
        part = split.filter((pl.col("engine") == engine) & (pl.col("split") != "none"))
        rows = [by_id[name] for name in part["id"]]
        measured = {metric: np.array([m.measured.get(metric, np.nan) for m in rows]) for metric in METRICS}
        tokens = np.array([m.load.requests["output_tokens"].mean() for m in rows if m.load is not None], float)
        errors = with_derived({m: part[m].to_numpy() for m in METRICS}, measured, tokens)
        folds = part["fold"].to_list()
        known = residuals_of({m: of_a_new_group(values, folds) for m, values in errors.items()}, "held-out folds")
        found[engine] = {"probabilities": known.probabilities, "log_errors": dict(known.log_errors)}
    return found


def _coverage(split: pl.DataFrame) -> Listing:
    """Return how often the 80 % interval from the errors of other runs, in other folds, holds a fold's runs."""
    rows = []
    for engine in ENGINES:
        part = split.filter((pl.col("engine") == engine) & (pl.col("split") != "none"))
        for metric in METRICS:
            inside = []
            for _, tested in part.group_by("split", "fold"):
                others = part.filter(~pl.col("id").is_in(tested["id"].to_list()))
                if others.height < 10:
                    continue
                expected = of_a_new_group(others[metric].to_numpy(), others["fold"].to_list())
                low, high = np.quantile(expected, ((1 - LEVEL) / 2, (1 + LEVEL) / 2), method="weibull")
                inside += ((tested[metric] >= low) & (tested[metric] <= high)).to_list()
            rows.append([engine, metric, len(inside), percent(float(np.mean(inside)) if inside else None)])
    return Listing(title="Share of held-out runs within the 80 % interval that the errors of all other runs give",
                   columns=("engine", "metric", "n", "covered"), rows=rows)


