"""llm-d runs at rising rates: throughput, TPOT and where queueing starts, with caches as the run before left them."""

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
from planner.trace.prefix import PrefixIds

# Of 2025, before async scheduling was the default. At 0.9 the weights leave A100 KV blocks for 29,888 tokens, at 0.93
# for 45,616, at 0.95 for 55,856; clients saw 55,500 at once of one replica in exp-0, and 93,000 of two in exp-2.
LLAMA_70B = Scenario(model="llama-3.1-70b", gpu="a100-sxm", tensor_parallel_size=2, async_scheduling=False)
DEPLOYMENTS = {
    "exp-0": replace(LLAMA_70B, gpu_memory_utilization=0.95),
    "exp-2": replace(LLAMA_70B, gpu_memory_utilization=0.93),
    "exp-4": Scenario(model="llama-4-scout", gpu="h100-sxm", tensor_parallel_size=4, quantization="fp8",
                      async_scheduling=False, max_num_seqs=1024, max_num_batched_tokens=8192,
                      fuse_allreduce_rms=False),
}
RUN = ("exp", "config", "workload", "model", "replicas", "target_qps")
QUEUEING = 3.0  # times the median TTFT at the lowest rate: from there on requests queue
BLOCK = 16
PAUSE_S = 3600.0  # between a run and the next; nothing happens in it


def llmd() -> Section:
    """Return the section on the llm-d runs."""
    table = pl.read_csv(MEASURED / "per_request_llmd.csv.gz")
    found = pl.DataFrame([_run(key, runs) for key, runs in table.group_by(RUN)])
    found = found.sort("exp", "config", "workload", "qps")
    groups = list(found.group_by("exp", "config", "workload", maintain_order=True))
    rows, starts = [], []
    for key, group in groups:
        rows += [[*key, metric, *error_row(group[f"predicted_{metric}"], group[metric])]
                 for metric in ("throughput", "tpot_ms", "ttft_ms")]
        starts.append([*key, *(_queueing(group, prefix) for prefix in ("", "predicted_"))])
    tpot = np.abs(found["predicted_tpot_ms"] / found["tpot_ms"] - 1)
    throughput = np.abs(found["predicted_throughput"] / found["throughput"] - 1)
    return Section(
        title="llm-d: rising rates on vLLM",
        lead=f"{table.height:,} requests in {found.height} runs, replayed with their exact arrivals; two replicas take "
             "requests in turn. Every run of an experiment sends the same prompts in the same order, so each is "
             "replayed after one of its own: its prefix cache holds what that one left there.",
        verdicts=[Verdict(name="throughput, median APE over runs", value=float(throughput.median()), limit=0.03),
                  Verdict(name="median TPOT, median APE over runs", value=float(tpot.median()), limit=0.05)],
        tables=[Table(title="Errors over the rates of each experiment",
                      columns=("experiment", "deployment", "workload", "metric", *ERROR_COLUMNS), rows=rows),
                Table(title="Rate at which queueing starts [requests/s]",
                      columns=("experiment", "deployment", "workload", "measured", "predicted"), rows=starts),
                Table(title="Runs", columns=found.columns, rows=[_shown(row) for row in found.iter_rows()])],
        figures={"llmd_tpot": scatter({f"{e}, {c}, {w}": (g["tpot_ms"], g["predicted_tpot_ms"])
                                       for (e, c, w), g in groups}, "Median TPOT of each run", "", "ms")},
        notes=[f"Queueing starts at the lowest rate whose median TTFT is {QUEUEING:g} times that of the lowest rate "
               "measured; – where none is.",
               "Engine settings are not published: vLLM's defaults for the GPU, but gpu_memory_utilization 0.95 and "
               "0.93 on A100, inferred from the tokens that clients had in flight, and neither async "
               "scheduling nor fused all-reduces, as in the versions of 2025. In exp-2 a quarter of the prompts had "
               "their first token too early to have been computed whole; what they shared, and with whom, is not "
               "recorded."])


def _run(key: Sequence[Any], runs: pl.DataFrame) -> dict[str, Any]:
    """Replay one run."""
    row = dict(zip(RUN, key, strict=True))
    runs = runs.sort("arrival_s", maintain_order=True)
    tpot = (runs["generation_time_s"] / (runs["output_tokens"] - 1)).to_numpy()
    makespan = float((runs["arrival_s"] + runs["e2e_s"]).max())  # type: ignore[arg-type]
    tokens = int(runs["output_tokens"].sum())
    found = {"exp": row["exp"], "config": row["config"], "workload": row["workload"], "qps": row["target_qps"],
             "requests": runs.height, "throughput": tokens / makespan,
             "tpot_ms": 1e3 * float(np.median(tpot[np.isfinite(tpot)])),
             "ttft_ms": 1e3 * float(np.median(runs["ttft_s"]))}
    return found | {f"predicted_{name}": value for name, value in _predicted(row, runs, tokens).items()}


def _predicted(row: dict[str, Any], runs: pl.DataFrame, tokens: int) -> dict[str, float]:
    """Return the same statistics of a replay over all replicas."""
    deployment = deploy(DEPLOYMENTS[row["exp"]], enable_prefix_caching=True)
    parts = [_replica(deployment, runs[k :: row["replicas"]]) for k in range(row["replicas"])]
    merged = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return {"throughput": tokens / float(merged["end_s"].max()), "tpot_ms": 1e3 * float(np.nanmedian(merged["tpot_s"])),
            "ttft_ms": 1e3 * float(np.nanmedian(merged["ttft_s"]))}


def _replica(deployment: Deployment, runs: pl.DataFrame) -> dict[str, Any]:
    """Return the times of a replica's requests, after a run of the same ones."""
    found = times(replay(deployment, _twice(runs)))
    second = {name: values[runs.height :] for name, values in found.items()}
    return {**second, "end_s": runs["arrival_s"].to_numpy() + second["e2e_s"]}


def _twice(runs: pl.DataFrame) -> Trace:
    """Return a run's requests and, after a pause, the same ones again; every prompt is its own."""
    last_s = float(runs["arrival_s"].max())  # type: ignore[arg-type]
    arrival_s = np.concatenate([runs["arrival_s"], runs["arrival_s"] + last_s + PAUSE_S])
    load = load_of("llm-d", arrival_s, *(np.tile(runs[name], 2) for name in ("prompt_tokens", "output_tokens")))
    num_blocks = -(-runs["prompt_tokens"].to_numpy() // BLOCK)
    values = np.tile(np.arange(num_blocks.sum()), 2)
    offsets = np.concatenate([[0], np.cumsum(np.tile(num_blocks, 2))]).astype(np.int64)
    return replace(load, prefix=PrefixIds(values=values, offsets=offsets, block_tokens=BLOCK))


def _queueing(group: pl.DataFrame, prefix: str) -> str:
    """Return the lowest rate at which the median TTFT is QUEUEING times that of the lowest rate."""
    ttft = group[f"{prefix}ttft_ms"].to_numpy()
    above = group["qps"].to_numpy()[ttft > QUEUEING * ttft[0]]
    return f"{above[0]:g}" if len(above) else "–"


def _shown(row: Sequence[Any]) -> list[Any]:
    return [f"{value:.4g}" if isinstance(value, float) else value for value in row]
