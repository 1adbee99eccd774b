"""llm-d runs at rising rates: throughput, TPOT and where queueing starts, with the dialogues that prompts belong to."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benchmarks.accuracy.data import BLOCK, MEASURED, load_of, replay, times
from benchmarks.accuracy.dialogues import block_ids, continued
from benchmarks.accuracy.section import ERROR_COLUMNS, Section, Verdict, error_row, four_digits, median, scatter
from planner.deployment.deploy import Deployment, deploy
from planner.report.content import Listing
from planner.settings.scenario import Scenario
from planner.traces import Trace
from planner.traces.prefix_ids import intern_ids

# Of 2025, before async scheduling was the default. KV blocks are those that clients had in flight where requests queue,
# what running turns of a dialogue share counted once: 41,600 tokens of llm-d's image and 36,800 of vLLM's.
LLAMA_70B = Scenario(model="llama-3.1-70b", gpu="a100-sxm", tensor_parallel_size=2, async_scheduling=False)
DEPLOYMENTS = {
    "baseline-llm-d-70b": replace(LLAMA_70B, num_gpu_blocks=2600),
    "vllm-70b": replace(LLAMA_70B, num_gpu_blocks=2300),
    "vllm-70b-2replicas": replace(LLAMA_70B, num_gpu_blocks=2300),
    "vllm-llama4-tp4": Scenario(model="RedHatAI/Llama-4-Scout-17B-16E-Instruct-FP8-dynamic", gpu="h100-sxm",
                                tensor_parallel_size=4, async_scheduling=False, max_num_seqs=1024,
                                max_num_batched_tokens=8192, fuse_allreduce_rms=False),
}
RUN = ("exp", "config", "workload", "model", "replicas", "target_qps")
QUEUEING = 3.0  # times the median TTFT at the lowest rate: from there on requests queue
NEAR = 0.1  # of the measured rate: the target
PAUSE_S = 3600.0  # between warm-up and run; nothing happens in it
WARM_UP_RATE = 2.0  # requests/s of LMBenchmark's warm-up (sharegpt/run.sh)
SEED, DRAWS = 0, 9  # of who gets a request, where there are two


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
    tpot = (found["predicted_tpot_ms"] / found["tpot_ms"] - 1).abs()
    throughput = (found["predicted_throughput"] / found["throughput"] - 1).abs()
    return Section(
        title="llm-d: rising rates on vLLM",
        lead=f"{table.height:,} requests in {found.height} runs, replayed with their exact arrivals. Prompts are turns "
             "of dialogues, found by their lengths, whose prefix may still be cached; before a run LMBenchmark sends "
             "the turns before its first ones. Who of two replicas gets a request is drawn.",
        verdicts=[Verdict(name="throughput, median APE over runs", value=median(throughput), limit=0.03),
                  Verdict(name="median TPOT, median APE over runs", value=median(tpot), limit=0.05),
                  Verdict(name=f"deployments whose queueing starts within {100 * NEAR:g} % of the measured rate",
                          value=_share_near(starts), limit=1.0, at_least=True)],
        tables=[Listing(title="Errors over the rates of each experiment",
                        columns=("experiment", "deployment", "workload", "metric", *ERROR_COLUMNS), rows=rows),
                Listing(title="Rate at which queueing starts [requests/s]",
                        columns=("experiment", "deployment", "workload", "measured", "predicted"),
                        rows=four_digits(starts)),
                Listing(title="Runs", columns=found.columns, rows=four_digits(found.iter_rows()))],
        figures={"llmd_tpot": scatter({f"{e}, {c}, {w}": (g["tpot_ms"], g["predicted_tpot_ms"])
                                       for (e, c, w), g in groups}, "Median TPOT of each run", "", "ms")},
        notes=["What several GPUs wait for their worker processes without asynchronous scheduling was chosen with "
               "these runs and those of vLLM 0.12 above in view.",
               f"Queueing starts at the lowest rate whose median TTFT is {QUEUEING:g} times that of the lowest rate "
               "measured; – where none is. That of exp-4 seems not the engine's: once some 5,000 tokens a second "
               "stream, which is from 28 requests/s on, first tokens come 0.3 to 1.3 s late in the order of their "
               "requests, by a lag that stays for seconds, while others end as before, more run at once with every "
               "rate, to 240, and TPOT holds. A client's event loop would wait so, each round of which serves all "
               "streams and takes a new request one turn further; nobody looked into it.",
               "Engine settings are not published: vLLM's defaults for the GPU, but KV blocks as many as clients had "
               "in flight on A100, and neither async scheduling nor fused all-reduces, as in the versions of 2025. "
               "Short inputs are of no dialogues that lengths tell: they are replayed after a run of the same ones.",
               f"Of two replicas the medians over {DRAWS} draws of who gets which request."])


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
    """Return the same statistics of a replay over all replicas, medians where who gets which request is drawn."""
    deployment, (sent, ids) = deploy(DEPLOYMENTS[row["config"]], enable_prefix_caching=True), _sent(runs)
    rng = np.random.default_rng([SEED, int(1e3 * row["target_qps"])])
    drawn = []
    for _ in range(DRAWS if row["replicas"] > 1 else 1):
        replica = rng.integers(row["replicas"], size=sent.height)
        found = _replayed(deployment, sent, ids, replica)[-runs.height:]
        end_s = found["e2e_s"].to_numpy() + runs["arrival_s"].to_numpy()
        drawn.append((tokens / end_s.max(), 1e3 * np.nanmedian(found["tpot_s"]), 1e3 * np.nanmedian(found["ttft_s"])))
    names = ("throughput", "tpot_ms", "ttft_ms")
    return {name: float(np.median(values)) for name, values in zip(names, zip(*drawn, strict=True), strict=True)}


def _replayed(deployment: Deployment, sent: pl.DataFrame, ids: Sequence[NDArray[np.int64]],
              replica: NDArray[np.int64]) -> pl.DataFrame:
    """Return the times of requests that so numbered replicas take [s]."""
    parts = []
    for k in np.unique(replica):
        chosen = np.flatnonzero(replica == k)
        parts.append(pl.DataFrame(times(replay(deployment, _trace(sent[chosen], [ids[i] for i in chosen.tolist()])))
                                  | {"request": chosen}))
    return pl.concat(parts).sort("request")


def _sent(runs: pl.DataFrame) -> tuple[pl.DataFrame, list[NDArray[np.int64]]]:
    """Return what the replicas were sent, the benchmark's warm-up before the run, and the blocks of its prompts.

    The warm-up are the dialogues' turns before the run's first ones, which lengths do not tell: the prompt is taken to
    have been shorter by what a turn adds, and the answer as long as the first one's. Without dialogues it is the run.
    """
    runs = runs.select("arrival_s", "prompt_tokens", "output_tokens")
    prompts = runs["prompt_tokens"].to_numpy()
    before = continued(prompts, runs["output_tokens"])
    ids = block_ids(prompts, before, BLOCK)
    turns = np.flatnonzero(before >= 0)
    if len(turns):
        added = int(np.median(prompts[turns] - prompts[before[turns]]))
        warm = runs[: len(runs) - len(turns)].with_columns(
            arrival_s=pl.int_range(pl.len()) / WARM_UP_RATE, prompt_tokens=(pl.col("prompt_tokens") - added).clip(1))
    else:
        warm = runs
    start_s = float(warm["arrival_s"].max()) + PAUSE_S  # type: ignore[arg-type]
    sent = pl.concat([warm, runs.with_columns(pl.col("arrival_s") + start_s)])
    return sent, [*_cut(ids, warm["prompt_tokens"].to_list(), sum(map(len, ids))), *ids]


def _cut(ids: Sequence[NDArray[np.int64]], tokens: Sequence[int], unused: int) -> list[NDArray[np.int64]]:
    """Return the blocks of the first so many tokens of prompts; one that is not full is its own."""
    own = [np.full(min(count % BLOCK, 1), unused + i) for i, count in enumerate(tokens)]
    return [np.concatenate([ids[i][: count // BLOCK], own[i]]) for i, count in enumerate(tokens)]


def _trace(sent: pl.DataFrame, ids: Sequence[NDArray[np.int64]]) -> Trace:
    """Return requests as a trace, with the blocks of their prompts."""
    arrival_s, prompts, outputs = (sent[name].to_numpy() for name in ("arrival_s", "prompt_tokens", "output_tokens"))
    load = load_of("llm-d", arrival_s, prompts, outputs)
    lengths = np.array([len(blocks) for blocks in ids])
    return replace(load, prefix=intern_ids([pl.Series(np.concatenate(ids))], lengths, BLOCK))


def _queueing(group: pl.DataFrame, prefix: str) -> float | None:
    """Return the lowest rate at which the median TTFT is QUEUEING times that of the lowest rate; None for none."""
    ttft = group[f"{prefix}ttft_ms"].to_numpy()
    above = group["qps"].to_numpy()[ttft > QUEUEING * ttft[0]]
    return float(above[0]) if len(above) else None


def _share_near(starts: Sequence[Sequence[Any]]) -> float:
    """Return the share of what queued, measured or predicted, that did both at rates NEAR each other."""
    queued = [(measured, predicted) for *_, measured, predicted in starts if measured or predicted]
    return sum(bool(m and p and abs(p / m - 1) <= NEAR) for m, p in queued) / len(queued)
