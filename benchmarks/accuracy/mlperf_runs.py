"""MLPerf's LLM runs with their settings: lengths of the datasets, and the engine that each ran."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from benchmarks.accuracy.data import MEASURED
from benchmarks.accuracy.mlperf_builds import DISAGGREGATED, apply_build, build_of
from benchmarks.accuracy.older_engines import in_process
from planner.deployment.deploy import Deployment, deploy
from planner.settings.scenario import Scenario

RUNS = ("mlperf_v41_v51.csv", "mlperf_v61.csv")  # the settings of the second are not published: no row is predicted
GPUS = {"GB300": "gb300", "GB200": "gb200", "B200": "b200-sxm", "H200-SXM": "h200-sxm", "H200-NVL": "h200-nvl",
        "H100-SXM": "h100-sxm", "H100-NVL": "h100-nvl", "H100-PCIe": "h100-pcie", "L40S": "l40s",
        "RTX PRO 6000": "rtx-pro-6000"}  # the first whose name is in the run's


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Prompt and output lengths of a dataset: log-normal with the mean, cut at the maximum; a spread of 0 is fixed.

    Parameters
    ----------
    mean_input, mean_output : after the cut, nearly [tokens].
    max_input, max_output : [tokens].
    spread, output_spread : standard deviation of the logarithm [1].
    """

    mean_input: float
    max_input: int
    mean_output: float
    max_output: int
    spread: float
    output_spread: float

    def draw(self, count: int) -> tuple[Any, Any]:
        """Return lengths of so many requests."""
        rng = np.random.default_rng(0)
        found = []
        for mean, most, spread in ((self.mean_input, self.max_input, self.spread),
                                   (self.mean_output, self.max_output, self.output_spread)):
            values = np.exp(rng.normal(math.log(mean) - spread**2 / 2, spread, count))
            found.append(np.clip(np.round(values), 2, most).astype(np.int64))
        return found[0], found[1]


# Maxima as MLCommons publishes them. Prompts: quantiles of its preprocessed datasets (OpenORCA's 24,576 have a mean of
# 224 tokens and a median of 157; 405B's 9,400 and 9,300). Mixtral's 15,000 are a third each of GSM8K's with five
# examples (666 tokens), OpenORCA's (380) and MBXP's (187): means of samples of the lengths that
# openshift-psap/performance-dashboard lists. 8B's and DeepSeek's are estimates. Outputs: mean where a run does not
# state its own, and the spread that the runs' published end-to-end percentiles have over their TPOT.
DATASETS = {
    "llama-2-70b": Lengths(mean_input=224, max_input=1024, mean_output=294.45, max_output=1024, spread=0.7,
                           output_spread=0.55),
    "mixtral-8x7b": Lengths(mean_input=410, max_input=2048, mean_output=144.84, max_output=1024, spread=0.75,
                            output_spread=0.7),
    "llama-3.1-405b": Lengths(mean_input=9400, max_input=20_000, mean_output=684.68, max_output=2000, spread=0.45,
                              output_spread=0.38),
    "llama-3.1-8b": Lengths(mean_input=870, max_input=2540, mean_output=128, max_output=128, spread=0.5,
                            output_spread=0.0),
    "deepseek-v3": Lengths(mean_input=800, max_input=3136, mean_output=3886.2, max_output=20_000, spread=0.7,
                           output_spread=1.1),
}
MODELS = {"llama2-70b": "llama-2-70b", "mixtral-8x7b": "mixtral-8x7b", "llama3.1-405b": "llama-3.1-405b",
          "llama3.1-8b": "llama-3.1-8b", "deepseek-r1": "deepseek-v3"}
POLICIES = {"max_util": "trtllm-max-utilization"}


class Engine(NamedTuple):
    """What serves a share of a run's load.

    Parameters
    ----------
    deployment : one replica, or one rank of data-parallel attention.
    replicas : of them, that share the load [1].
    prompt_limit : prompts are cut there, where they cannot be chunked [tokens].
    """

    deployment: Deployment
    replicas: int
    prompt_limit: int | None

    def draw(self, lengths: Lengths, count: int) -> tuple[Any, Any]:
        """Return prompt and output lengths of so many requests."""
        inputs, outputs = lengths.draw(count)
        return (inputs if self.prompt_limit is None else np.minimum(inputs, self.prompt_limit)), outputs


def runs_of(*scenarios: str) -> pl.DataFrame:
    """Return the runs of MLPerf's scenarios, each with the settings of the same submitter's system, where known."""
    runs = pl.concat([pl.read_csv(MEASURED / name, infer_schema_length=None) for name in RUNS], how="vertical_relaxed")
    runs = runs.filter(pl.col("scenario").is_in(scenarios))
    settings = pl.read_csv(MEASURED / "mlperf_configs_v41_v51.csv", infer_schema_length=None)
    name = pl.col("model").str.replace(r"-99(\.9)?$", "").str.replace_all("_", ".")
    system = pl.col("system").str.replace(r" \(.*$", "").str.replace(r"_TRT(_Triton)?$", "")
    key = system.str.to_lowercase().str.replace_all("[^a-z0-9]", "")
    settings = settings.with_columns(base=name, key=key).unique(("round", "submitter", "scenario", "base", "key"),
                                                                keep="first")
    return runs.with_columns(base=name, key=key).join(
        settings, on=["round", "submitter", "scenario", "base", "key"], how="left", suffix="_set")


def gpu_of(row: Mapping[str, Any]) -> str | None:
    """Return the catalog's name of a run's GPU; None where it has none."""
    return next((ours for name, ours in GPUS.items() if name in str(row["gpu"])), None)


def why_not(row: Mapping[str, Any]) -> str | None:
    """Return why a run cannot be replayed; None where it can."""
    if row["base"] not in MODELS:
        return f"not covered: {row['base']}"
    if gpu_of(row) is None:
        return f"not covered: {row['gpu']}"
    if row["source_file"] is None:
        return "settings not known"
    if row["source_file"] == DISAGGREGATED:
        return "not covered: disaggregated, with limits that are not stated"
    return None


def engine_of(row: Mapping[str, Any]) -> Engine:
    """Return the engine of a run that can be replayed.

    Where experts are spread, attention is data-parallel, and the batch size is a rank's: more requests run than it
    allows all ranks together. One rank is replayed, with its share of the load.
    """
    model, tp, pp = MODELS[row["base"]], int(row["tp"] or 1), int(row["pp"] or 1)
    ranks = tp if row["moe_ep"] else 1
    build = build_of(row)
    max_num_tokens = build.max_num_tokens or int(row["max_num_tokens"] or 8192)
    gpu = gpu_of(row)
    assert gpu is not None
    scenario = Scenario(
        model=model, gpu=gpu, engine="trtllm", policy=POLICIES.get(row["scheduler_policy"]),
        tensor_parallel_size=tp // ranks, pipeline_parallel_size=pp, data_parallel_size=ranks,
        data_parallel_attention=ranks > 1, expert_parallel=ranks > 1,
        quantization={"fp8": "fp8", "fp4": "nvfp4"}[row["precision_set"]], kv_cache_dtype="fp8",
        max_num_seqs=build.max_num_seqs or int(float(str(row["max_batch_size"]).split(",")[0])),
        max_num_batched_tokens=max_num_tokens, enable_chunked_prefill=bool(row["chunked_context"]),
        gpu_memory_utilization=float(row["kv_free_mem_frac"] or 0.9),
        max_model_len=DATASETS[model].max_input + DATASETS[model].max_output + 8,
        cudagraph_mode=None if build.uses_graphs else "none")
    deployment = deploy(scenario, constants=in_process(scenario, is_compiled=not build.uses_graphs))
    apply_build(deployment, build)
    return Engine(deployment=deployment, replicas=ranks * max(int(row["n_gpus"]) // (tp * pp), 1),
                  prompt_limit=None if row["chunked_context"] else max_num_tokens)


def lengths_of(row: Mapping[str, Any]) -> Lengths:
    """Return the lengths of a run: its dataset's, with the mean output that it states, tokens over samples a second.

    Checkpoints of fewer bits end earlier: 274 tokens for llama2-70b in NVFP4, 300 in FP8.
    """
    lengths = DATASETS[MODELS[row["base"]]]
    if not row["tokens_per_s"] or not row["samples_per_s"]:
        return lengths
    return replace(lengths, mean_output=row["tokens_per_s"] / row["samples_per_s"])
