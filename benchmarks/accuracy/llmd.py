"""llm-d runs at rising rates: throughput, TPOT and where queueing starts, with caches as the run before left them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benchmarks.accuracy.data import MEASURED, load_of, replay, times
from benchmarks.accuracy.dialogues import block_ids, continued
from benchmarks.accuracy.section import ERROR_COLUMNS, Section, Table, Verdict, error_row, scatter
from planner.deployment import Deployment, deploy
from planner.scenario import Scenario
from planner.trace import Trace
from planner.trace.prefix import PrefixIds

# Of 2025, before async scheduling was the default. KV blocks are those that clients had in flight where requests queue,
# prompts that running turns of a dialogue share counted once: 43,000 tokens and 38,400.
LLAMA_70B = Scenario(model="llama-3.1-70b", gpu="a100-sxm", tensor_parallel_size=2, async_scheduling=False)
DEPLOYMENTS = {
    "baseline-llm-d-70b": replace(LLAMA_70B, num_gpu_blocks=2690),
    "vllm-70b": replace(LLAMA_70B, num_gpu_blocks=2400),
    "vllm-70b-2replicas": replace(LLAMA_70B, num_gpu_blocks=2400),
    "vllm-llama4-tp4": Scenario(model="RedHatAI/Llama-4-Scout-17B-16E-Instruct-FP8-dynamic", gpu="h100-sxm",
                                tensor_parallel_size=4, async_scheduling=False, max_num_seqs=1024,
                                max_num_batched_tokens=8192, fuse_allreduce_rms=False),
}
RUN = ("exp", "config", "workload", "model", "replicas", "target_qps")
QUEUEING = 3.0  # times the median TTFT at the lowest rate: from there on requests queue
BLOCK = 16
PAUSE_S = 3600.0  # between a run and the next; nothing happens in it
WARM_UP_RATE = 2.0  # requests/s of LMBenchmark's warm-up (sharegpt/run.sh)
SEED = 0  # of who gets a request, where there are two


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
    deployment = deploy(DEPLOYMENTS[row["config"]], enable_prefix_caching=True)
    sent, ids = _sent(runs)
    replica = np.random.default_rng(SEED).integers(row["replicas"], size=sent.height)
    arrival_s, is_run = sent["arrival_s"].to_numpy(), np.arange(sent.height) >= sent.height - runs.height
    found = {name: np.full(sent.height, np.nan) for name in ("tpot_s", "ttft_s", "e2e_s")}
    for k in range(row["replicas"]):
        chosen = np.flatnonzero(replica == k)
        part = times(replay(deployment, _trace(sent[chosen], [ids[i] for i in chosen])))
        for name, values in found.items():
            values[chosen] = part[name]
    last_s = (arrival_s + found["e2e_s"])[is_run].max()
    return {"throughput": tokens / float(last_s - arrival_s[is_run][0]),
            "tpot_ms": 1e3 * float(np.nanmedian(found["tpot_s"][is_run])),
            "ttft_ms": 1e3 * float(np.nanmedian(found["ttft_s"][is_run]))}


def _sent(runs: pl.DataFrame) -> tuple[pl.DataFrame, list[NDArray[np.int64]]]:
    """Return what the replicas were sent, a run before this one and the benchmark's warm-up first, and its blocks.

    The warm-up are the dialogues' turns before the run's first ones, which lengths do not tell: the prompt is taken to
    have been shorter by what a turn adds, and the answer as long as the first one's.
    """
    runs = runs.select("arrival_s", "prompt_tokens", "output_tokens")
    prompts = runs["prompt_tokens"].to_numpy()
    before = continued(prompts, runs["output_tokens"])
    ids = block_ids(prompts, before, BLOCK)
    turns = np.flatnonzero(before >= 0)
    warm = runs[: len(runs) - len(turns) if len(turns) else 0]
    added = int(np.median(prompts[turns] - prompts[before[turns]])) if len(turns) else 0
    warm = warm.with_columns(arrival_s=pl.int_range(pl.len()) / WARM_UP_RATE,
                             prompt_tokens=(pl.col("prompt_tokens") - added).clip(1))
    parts = [runs, warm, runs]
    starts = np.cumsum([0.0] + [_end_s(part) + PAUSE_S for part in parts[:-1]])
    sent = pl.concat([part.with_columns(pl.col("arrival_s") + start)
                      for part, start in zip(parts, starts, strict=True)])
    return sent, [*ids, *_cut(ids, warm["prompt_tokens"].to_list(), int(max(map(max, ids))) + 1), *ids]


def _cut(ids: Sequence[NDArray[np.int64]], tokens: Sequence[int], unused: int) -> list[NDArray[np.int64]]:
    """Return the blocks of the first so many tokens of prompts; one that is not full is its own."""
    own = [np.full(min(count % BLOCK, 1), unused + i) for i, count in enumerate(tokens)]
    return [np.concatenate([ids[i][: count // BLOCK], own[i]]) for i, count in enumerate(tokens)]


def _end_s(runs: pl.DataFrame) -> float:
    return float(runs["arrival_s"].max()) if runs.height else 0.0  # type: ignore[arg-type]


def _trace(sent: pl.DataFrame, ids: Sequence[NDArray[np.int64]]) -> Trace:
    """Return requests as a trace, with the blocks of their prompts."""
    load = load_of("llm-d", *(sent[name].to_numpy() for name in ("arrival_s", "prompt_tokens", "output_tokens")))
    offsets = np.concatenate([[0], np.cumsum([len(blocks) for blocks in ids])]).astype(np.int64)
    values = np.unique(np.concatenate(ids), return_inverse=True)[1]
    return replace(load, prefix=PrefixIds(values=values, offsets=offsets, block_tokens=BLOCK))


def _queueing(group: pl.DataFrame, prefix: str) -> str:
    """Return the lowest rate at which the median TTFT is QUEUEING times that of the lowest rate."""
    ttft = group[f"{prefix}ttft_ms"].to_numpy()
    above = group["qps"].to_numpy()[ttft > QUEUEING * ttft[0]]
    return f"{above[0]:g}" if len(above) else "–"


def _shown(row: Sequence[Any]) -> list[Any]:
    return [f"{value:.4g}" if isinstance(value, float) else value for value in row]
