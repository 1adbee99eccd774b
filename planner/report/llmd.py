"""A saved result as an llm-d Benchmark Report v0.2, so that predicted and measured runs stand side by side."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import yaml
from numpy.typing import NDArray

from planner.errors import UsageError
from planner.files.writing import write_text
from planner.results.saved import SavedResult
from planner.results.summary_answer import EngineTotals, Figures, Summary

Floats = NDArray[np.float64]

VERSION = "0.2"
POINTS = {"min": 0, "p0p1": 0.1, "p1": 1, "p5": 5, "p10": 10, "p25": 25, "p50": 50, "p75": 75, "p90": 90, "p95": 95,
          "p99": 99, "p99p9": 99.9, "max": 100}
ENGINE_LABEL = "engine"
KEYWORDS = ["predicted", "planner"]


def write_llmd_report(result: SavedResult, path: Path) -> None:
    """Write a result as a Benchmark Report, in YAML or, by the path's ending .json, in JSON.

    Raises
    ------
    UsageError : the ending is neither.
    OutputError : the file cannot be written.
    """
    check_llmd_path(path)
    report = llmd_report(result)
    write_text(path, json.dumps(report, indent=2) + "\n" if path.suffix == ".json" else
               yaml.safe_dump(report, sort_keys=False, allow_unicode=True))


def check_llmd_path(path: Path) -> None:
    """Raise UsageError if a Benchmark Report cannot be written by that name."""
    if path.suffix not in (".json", ".yaml", ".yml"):
        raise UsageError(f"cannot write {path}: the ending must be .yaml, .yml or .json")


def llmd_report(result: SavedResult) -> dict[str, Any]:
    """Return a result in the schema of llm-d-benchmark's `schema_v0_2`.

    Times are in seconds, and percentiles linear. `inter_token_latency` has the values of the summary, which are over
    all gaps between tokens; rates have a mean alone, over the duration. Values that the result has not are left out.
    """
    summary, requests = result.summary, result.requests
    workload = summary.workload
    return {
        "version": VERSION,
        "run": {"uid": _hash(summary.trace_sha256, summary.deployment, summary.policy, workload),
                "time": {"duration": f"PT{summary.figures.duration:.6f}S"},
                "description": f"{result.name}: predicted by a replay of {workload['source']}, not measured",
                "keywords": KEYWORDS},
        "scenario": {"stack": [_engine(summary)], "load": _load(summary, requests)},
        "results": {"request_performance": {"aggregate": {
            "requests": _requests(summary.figures, requests), "latency": _latency(summary.figures, requests),
            "throughput": _throughput(summary.figures)}},
            "observability": {"components": [_observed(summary.figures.engine)]}},
    }


def _hash(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:32]


def _engine(summary: Summary) -> dict[str, Any]:
    deployment = summary.deployment
    tp, dp = int(deployment["tensor_parallel_size"]), int(deployment.get("data_parallel_size") or 1)
    ranks = dp if deployment.get("data_parallel_attention") else 1
    parallelism = {"tp": tp, "pp": int(deployment["pipeline_parallel_size"]), "dp": dp,
                   "ep": tp * ranks // int(deployment["expert_tensor_parallel_size"])
                   if deployment["expert_parallel"] else 1}
    return {
        "metadata": {"label": ENGINE_LABEL, "cfg_id": _hash(deployment, summary.policy),
                     "description": "modelled by planner"},
        "standardized": {
            "kind": "inference_engine", "tool": str(deployment["engine"]),
            "tool_version": f"planner {summary.versions['planner']}", "role": "replica",
            "replicas": int(deployment.get("num_replicas") or 1) // ranks,
            "model": {"name": str(deployment["model"] or "not named")},
            "accelerator": {"model": str(deployment["gpu"] or "not named"), "count": int(deployment["num_gpus"]),
                            "parallelism": parallelism}},
        "native": {"config": {"deployment": _plain(deployment), "policy": _plain(summary.policy)}},
    }


def _plain(table: Mapping[str, Any]) -> Any:
    return json.loads(json.dumps(table, default=str))


def _load(summary: Summary, requests: pl.DataFrame) -> dict[str, Any]:
    workload = summary.workload
    span_s = workload["last_arrival_s"] - workload["first_arrival_s"]
    rate = {} if span_s <= 0 else {"rate_qps": (workload["num_requests"] - 1) / span_s}
    limit = workload.get("max_concurrency")
    return {
        "metadata": {"cfg_id": _hash(workload, summary.trace_sha256),
                     "description": f"replay of {workload['source']} ({workload['format']})"},
        "standardized": {
            "tool": "planner", "tool_version": summary.versions["planner"], "source": "unknown",
            "input_seq_len": _length(requests["input_tokens"]), "output_seq_len": _length(requests["output_tokens"]),
            **rate, **({"concurrency": int(limit)} if limit else {})},
        "native": {"config": _plain(workload)},
    }


def _length(tokens: pl.Series) -> dict[str, Any]:
    values = tokens.to_numpy()
    if len(values) and values.min() == values.max():
        return {"distribution": "fixed", "value": int(values[0])}
    return {"distribution": "other", "value": float(values.mean()), "std_dev": float(values.std()),
            "min": int(values.min()), "max": int(values.max())}


def _requests(figures: Figures, requests: pl.DataFrame) -> dict[str, Any]:
    done = requests.filter(pl.col("status") == "completed")
    lengths = {name: _statistics(done[column].to_numpy(), "count") for name, column in (
        ("input_length", "input_tokens"), ("output_length", "output_tokens"))} if done.height else {}
    return {"total": requests.height, "failures": figures.failed + figures.rejected,
            "incomplete": requests.height - figures.completed - figures.failed - figures.rejected, **lengths}


def _statistics(values: Any, units: str) -> dict[str, Any]:
    points = np.percentile(values, list(POINTS.values()))
    return {"units": units, "mean": float(np.mean(values)), "stddev": float(np.std(values)),
            **{name: float(point) for name, point in zip(POINTS, points, strict=True)}}


def _latency(figures: Figures, requests: pl.DataFrame) -> dict[str, Any]:
    normalized = (requests["e2e_s"] / requests["output_tokens"]).drop_nulls()
    columns = {"time_to_first_token": (requests["ttft_s"], "s"),
               "normalized_time_per_output_token": (normalized, "s/token"),
               "time_per_output_token": (requests["tpot_s"], "s/token"), "request_latency": (requests["e2e_s"], "s")}
    statistics = {name: _statistics(values.drop_nulls().to_numpy(), units) for name, (values, units) in columns.items()
                  if values.drop_nulls().len()}
    itl = figures.itl
    if itl is not None and itl.mean is not None:
        values_ms = {"mean": itl.mean, "stddev": itl.std, "p50": itl.median, "p90": itl.p90, "p95": itl.p95,
                     "p99": itl.p99}
        statistics["inter_token_latency"] = {"units": "s/token", **{
            name: value / 1e3 for name, value in values_ms.items() if value is not None}}
    return statistics


def _throughput(figures: Figures) -> dict[str, Any]:
    duration = figures.duration
    rates = {"input_token_rate": (figures.total_input_tokens / duration if duration else None, "tokens/s"),
             "output_token_rate": (figures.output_throughput, "tokens/s"),
             "total_token_rate": (figures.total_token_throughput, "tokens/s"),
             "request_rate": (figures.request_throughput, "queries/s")}
    return {name: {"units": units, "mean": float(rate)} for name, (rate, units) in rates.items() if rate is not None}


def _observed(engine: EngineTotals) -> dict[str, Any]:
    values = {"kv_cache_usage": (engine.kv_cache_usage_mean, engine.kv_cache_usage_peak, "fraction"),
              "cache_hit_rate": (engine.prefix_cache_hit_rate, None, "fraction"),
              "gpu_utilization": (engine.gpu_busy_fraction, None, "fraction"),
              "preemptions": (engine.num_preemptions, None, "count")}
    found = {name: {"units": units, "mean": float(mean)} | ({} if peak is None else {"max": float(peak)})
             for name, (mean, peak, units) in values.items() if mean is not None}
    return {"component_label": ENGINE_LABEL, "aggregate": found}
