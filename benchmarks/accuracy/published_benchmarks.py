"""Runs of `vllm bench serve` and `sglang.bench_serving` that others published with their commands and results."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from planner.engines.releases import stated_release
from planner.measured.run_table import Measurement
from planner.model.layout import Layout
from planner.settings.scenario import Scenario
from planner.traces import Trace
from planner.traces.shaping.client_load import burst

# One row a run. `source` is the thread or page that states it, with its commit or the month when it was read; `options`
# are settings of the scenario, as JSON, that its command makes, or its version beyond what `engine_version` does;
# `prompts` are those that were answered; `input_tokens` and `output_tokens` are the totals that the client printed.
# Eleven runs (RTX 5090; MiniMax-M3 on H100) state medians, which stand for means.
BENCHMARKS = Path(__file__).with_suffix(".csv")
SHAREGPT_MEANS = (217, 201)  # prompts and answers of the 1,000 that most runs took [tokens]
NEAR = 0.02  # of the asked length: answers that ended by themselves are further off in the mean

Ints = NDArray[np.int64]


def read_benchmarks(path: Path = BENCHMARKS) -> list[Measurement]:
    """Return a file's runs, each with its mean TTFT and TPOT [ms], and its duration where that was printed [s]."""
    return [_measurement(row) for row in pl.read_csv(path).iter_rows(named=True)]


def _measurement(row: Mapping[str, Any]) -> Measurement:
    gpu, tp = row["gpu"], row["tp"]
    layout = Layout(tensor_parallel_size=tp, expert_parallel_size=tp if row["expert_parallel"] else 1)
    version = stated_release(row["backend_version"])
    scenario = Scenario(
        model=row["model"], gpu=gpu, engine=row["engine"], tensor_parallel_size=tp, engine_version=version,
        expert_parallel=row["expert_parallel"], quantization=row["quantization"] or None,
        max_concurrency=row["concurrency"],
        **json.loads(row["options"] or "{}"))
    measured = {"ttft_ms": row["measured_ttft_ms"], "tpot_ms": row["measured_tpot_ms"], "makespan_s": row["duration_s"]}
    return Measurement(
        id=row["id"], groups={"gpu": gpu, "engine": row["engine"], "load": _load_kind(row, scenario)},
        measured={metric: value for metric, value in measured.items() if value is not None},
        scenario=scenario, layout=layout, load=_load(row))


def _load_kind(row: Mapping[str, Any], scenario: Scenario) -> str:
    if scenario.cudagraph_mode == "none":
        return "without CUDA graphs"
    if row["concurrency"] is not None:
        return "one at a time" if row["concurrency"] == 1 else "limited in flight"
    return "at once, ShareGPT" if row["lengths"] == "sharegpt" else "at once, one length"


def _load(row: Mapping[str, Any]) -> Trace:
    """Return prompts like those of the run: of its lengths' distribution, and of the totals that were printed."""
    rng, n = np.random.default_rng(0), row["prompts"]
    if row["lengths"] == "sharegpt":  # of its first turns vLLM's client takes those of up to 1,024 and 2,048 tokens
        inputs, outputs = (np.minimum(rng.exponential(mean, n), 1024) for mean in SHAREGPT_MEANS)
    elif row["lengths"] == "uniform":  # SGLang's client, without --random-range-ratio
        inputs, outputs = rng.integers(1, row["isl"] + 1, n), rng.integers(1, row["osl"] + 1, n)
    else:
        inputs, outputs = np.full(n, row["isl"]), np.full(n, row["osl"])
        if row["output_tokens"] and abs(row["output_tokens"] / (n * row["osl"]) - 1) > NEAR:
            outputs = np.minimum(rng.exponential(row["output_tokens"] / n, n), row["osl"])
    return burst(_scaled(inputs, row["input_tokens"]), _scaled(outputs, row["output_tokens"]), row["source"])


def _scaled(lengths: Any, total: int | None) -> Ints:
    """Return lengths of one token or more whose sum is about the total; as they are where it is not known."""
    factor = 1.0 if total is None else total / lengths.sum()
    scaled: Ints = np.maximum(np.rint(factor * lengths), 1).astype(np.int64)
    return scaled
