"""llm-d runs at rising rates: throughput, TPOT and the rate at which queueing starts, caches cold and warm."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from benchmarks.accuracy.data import MEASURED, load_of, replay, times
from benchmarks.accuracy.section import ERROR_COLUMNS, Section, Table, Verdict, error_row, scatter
from planner.deployment import Deployment, deploy
from planner.scenario import Scenario
from planner.trace import Trace

# Of 2025, before async scheduling was the default. At 0.9 the weights leave A100 KV blocks for 29,888 tokens, at 0.95
# for 55,856; clients saw 55,500 at once.
DEPLOYMENTS = {
    "Llama-3.1-70B-Instruct": Scenario(model="llama-3.1-70b", gpu="a100-sxm", tensor_parallel_size=2,
                                       gpu_memory_utilization=0.95, async_scheduling=False),
    "Llama-4-Scout-17B-16E-Instruct-FP8-dynamic": Scenario(model="llama-4-scout", gpu="h100-sxm",
                                                           tensor_parallel_size=4, quantization="fp8",
                                                           async_scheduling=False),
}
RUN = ("exp", "config", "workload", "model", "replicas", "target_qps")
QUEUEING = 3.0  # times the median TTFT at the lowest rate: from there on requests queue
BLOCK = 16


def llmd() -> Section:
    """Return the section on the llm-d runs."""
    table = pl.read_csv(MEASURED / "per_request_llmd.csv.gz")
    found = pl.DataFrame([_run(key, runs) for key, runs in table.group_by(RUN)])
    found = found.sort("exp", "config", "workload", "qps")
    groups = list(found.group_by("exp", "config", "workload", maintain_order=True))
    rows, starts = [], []
    for key, group in groups:
        for caches in ("cold", "warm"):
            rows += [[*key, caches, metric, *error_row(group[f"{caches}_{metric}"], group[metric])]
                     for metric in ("throughput", "tpot_ms", "ttft_ms")]
        starts.append([*key, *(_queueing(group, prefix) for prefix in ("", "cold_", "warm_"))])
    tpot = np.abs(found["warm_tpot_ms"] / found["tpot_ms"] - 1)
    throughput = np.abs(found["warm_throughput"] / found["throughput"] - 1)
    return Section(
        title="llm-d: rising rates on vLLM",
        lead=f"{table.height:,} requests in {found.height} runs, replayed with their exact arrivals; two replicas take "
             "requests in turn. Caches were warm at the start, by how much is unknown: once nothing is cached here, "
             "once every whole block of each prompt but its last token is.",
        verdicts=[Verdict(name="throughput, MAPE over runs, warm", value=float(throughput.mean()), limit=None),
                  Verdict(name="median TPOT, MAPE over runs, warm", value=float(tpot.mean()), limit=None)],
        tables=[Table(title="Errors over the rates of each experiment",
                      columns=("experiment", "deployment", "workload", "caches", "metric", *ERROR_COLUMNS), rows=rows),
                Table(title="Rate at which queueing starts [requests/s]",
                      columns=("experiment", "deployment", "workload", "measured", "predicted, cold",
                               "predicted, warm"), rows=starts),
                Table(title="Runs", columns=found.columns, rows=[_shown(row) for row in found.iter_rows()])],
        figures={"llmd_tpot": scatter({f"{e}, {c}, {w}": (g["tpot_ms"], g["warm_tpot_ms"]) for (e, c, w), g in groups},
                                      "Median TPOT of each run", "caches warm", "ms")},
        notes=[f"Queueing starts at the lowest rate whose median TTFT is {QUEUEING:g} times that of the lowest rate "
               "measured; – where none is.",
               "Engine settings are not published: vLLM's defaults, but gpu_memory_utilization 0.95 on A100, inferred "
               "from the tokens that clients had in flight, and no async scheduling, as in the versions of 2025."])


def _run(key: Sequence[Any], runs: pl.DataFrame) -> dict[str, Any]:
    """Replay one run, cold and warm."""
    row = dict(zip(RUN, key, strict=True))
    runs = runs.sort("arrival_s", maintain_order=True)
    tpot = (runs["generation_time_s"] / (runs["output_tokens"] - 1)).to_numpy()
    makespan = float((runs["arrival_s"] + runs["e2e_s"]).max())  # type: ignore[arg-type]
    tokens = int(runs["output_tokens"].sum())
    found = {"exp": row["exp"], "config": row["config"], "workload": row["workload"], "qps": row["target_qps"],
             "requests": runs.height, "throughput": tokens / makespan,
             "tpot_ms": 1e3 * float(np.median(tpot[np.isfinite(tpot)])),
             "ttft_ms": 1e3 * float(np.median(runs["ttft_s"]))}
    for caches in ("cold", "warm"):
        found |= {f"{caches}_{name}": value for name, value in _predicted(row, runs, caches == "warm", tokens).items()}
    return found


def _predicted(row: dict[str, Any], runs: pl.DataFrame, warm: bool, tokens: int) -> dict[str, float]:
    """Return the same statistics of a replay over all replicas."""
    deployment = deploy(DEPLOYMENTS[row["model"]], enable_prefix_caching=warm)
    parts = [_replica(deployment, runs[k :: row["replicas"]], warm) for k in range(row["replicas"])]
    merged = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return {"throughput": tokens / float(merged["end_s"].max()), "tpot_ms": 1e3 * float(np.nanmedian(merged["tpot_s"])),
            "ttft_ms": 1e3 * float(np.nanmedian(merged["ttft_s"]))}


def _replica(deployment: Deployment, runs: pl.DataFrame, warm: bool) -> dict[str, Any]:
    load = load_of("llm-d", runs["arrival_s"], runs["prompt_tokens"], runs["output_tokens"])
    if warm:
        load = _warm(load)
    found = times(replay(deployment, load))
    return {**found, "end_s": load.requests["arrival_s"].to_numpy() + found["e2e_s"]}


def _warm(load: Trace) -> Trace:
    """Return the load with every whole block of a prompt but its last token cached."""
    cached = (pl.col("input_tokens") - 1) // BLOCK * BLOCK
    return replace(load, requests=load.requests.with_columns(cached_tokens=cached))


def _queueing(group: pl.DataFrame, prefix: str) -> str:
    """Return the lowest rate at which the median TTFT is QUEUEING times that of the lowest rate."""
    ttft = group[f"{prefix}ttft_ms"].to_numpy()
    above = group["qps"].to_numpy()[ttft > QUEUEING * ttft[0]]
    return f"{above[0]:g}" if len(above) else "–"


def _shown(row: Sequence[Any]) -> list[Any]:
    return [f"{value:.4g}" if isinstance(value, float) else value for value in row]
