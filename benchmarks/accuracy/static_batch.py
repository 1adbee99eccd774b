"""Batches of a stated size: whole-batch latency and throughput, and the times of single steps."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import joblib
import numpy as np
import polars as pl

from benchmarks.accuracy.data import MEASURED, load_of, replay, times, without
from benchmarks.accuracy.older_engines import (
    NO_SERVER,
    choose_alike,
    in_process,
    multiply_as_in_2023,
    read_by_each_head,
)
from benchmarks.accuracy.section import ERROR_COLUMNS, Section, Verdict, ape, error_row, outcomes, scatter
from planner.catalog.catalog_files import load_model
from planner.deployment.deploy import deploy
from planner.errors import PlannerError
from planner.report.content import Listing
from planner.settings.scenario import Scenario

TARGET = 0.10  # median APE
MODELS = {
    "LLaMA 7B": "llama-2-7b", "LLaMA 70B": "llama-2-70b",
    "Mistral 7B": "mistral-7b-v0.1", "Mixtral 8x7B": "mixtral-8x7b",
    "meta-llama/Llama-2-7b-hf": "llama-2-7b", "meta-llama/Llama-2-70b-hf": "llama-2-70b",
    "meta-llama/Meta-Llama-3-8B": "llama-3-8b", "meta-llama/Meta-Llama-3-70B": "llama-3-70b",
    "mistralai/Mistral-7B-v0.1": "mistral-7b-v0.1", "mistralai/Mixtral-8x7B-v0.1": "mixtral-8x7b",
    "GPT-J 6B": "gpt-j-6b", "Falcon 180B": "falcon-180b", "EleutherAI/gpt-j-6b": "gpt-j-6b",
    "bloom-176b": "bloom-176b", "llama2-70b": "llama-2-70b", "huggyllama/llama-7b": "llama-2-7b",
    "Qwen/Qwen2-7B": "qwen2.5-7b", "Qwen/Qwen2-72B": "qwen2.5-72b",  # of the same shapes
}
GPUS = {"A100": "a100-sxm", "H100": "h100-sxm", "L40S": "l40s", "H200": "h200-sxm", "Nvidia A100 GPU": "a100-sxm-40gb",
        "Nvidia H100 GPU": "h100-sxm", "A100-80GB-SXM": "a100-sxm", "H100-80GB-SXM": "h100-sxm"}
ENGINES = {"TensorRT-LLM": "trtllm", "vLLM": "vllm"}
LEAST_TOKENS = 2048  # of a step; static engines are built for a batch's prompts in one
TRTLLM_TOKENS = 8192  # of trtllm-build


def static_batch() -> Section:
    """Return the section on batches of a stated size."""
    sources: Mapping[str, Callable[[], pl.DataFrame]] = {
        "TensorRT-LLM tables 0.5 to 0.9": _trtllm, "Argonne LLM-Inference-Bench": _argonne,
        "Splitwise step times": _splitwise, "Sarathi batch times": _sarathi}
    found = {name: read() for name, read in sources.items()}
    scored = {name: table.filter(pl.col("status") == "ok") for name, table in found.items()}
    errors = {name: ape(t["predicted"], t["measured"]) for name, t in scored.items()}
    errors["all of them"] = np.concatenate(list(errors.values()))
    return Section(
        title="Static batches and step times",
        lead="All requests of a batch start at once, run to the end. Versions of 2023, 2024 under constants fitted to "
             "those of 2025 and 2026, without what a server adds; TensorRT engines also without Python's host work "
             "and CUDA graphs.",
        verdicts=[Verdict(name=f"{name}: median APE", limit=TARGET,
                          value=float(np.median(off)) if len(off) else None) for name, off in errors.items()],
        tables=[_errors(scored), _uncovered(found)],
        figures={"static_batch": scatter({name: (t["measured"], t["predicted"]) for name, t in scored.items()},
                                         "Batches and steps", "latency [s], throughput [tokens/s], as published", "-")},
        notes=["Argonne's throughput is recomputed from latency: batch · (input + output) / latency counts both; here "
               "latency itself is compared.",
               "Splitwise rows with a flag (derived, stopped early, batch split) are left out; it ran without graphs, "
               "and on V0 with Ray workers, of which Sarathi's is a fork. Their host takes four times, "
               "and dense products a factor, from its own steps of Llama-2-70B to 2,048 tokens: each GPU's rows "
               "those that fit the other's best; BLOOM and Sarathi none. Longer prompts over four and eight GPUs seem "
               "to wait for all-reduces of over 64 MB, which no other source shows and the model has not.",
               "Sarathi's decodes are each the mean of some six steps of a fresh server, its first among them, and the "
               "one of its table 2 the median of steps of which half had a timer around each operator.",
               "TensorRT-LLM to 0.11 reads keys once for 1, 8 or 16 query heads, else once for each, at a bandwidth "
               "that Mistral-7B's tables ask for.",
               "vLLM's V0 host takes three times from Argonne's own runs; chosen on one GPU's runs, they leave the "
               "other's 6 % off. Without them all of Argonne's are 13 % off."])


@functools.cache
def batch(scenario: Scenario, size: int, isl: int, osl: int, *, uses_ray: bool = False,
          is_copied: bool = False) -> dict[str, float]:
    """Replay one batch and return `ttft_s` of its last request, mean `tpot_s`, and `latency_s` of the whole.

    uses_ray : whether vLLM runs Ray workers, as in 2023.
    is_copied : whether all prompts are one and the same.
    """
    deployment = deploy(replace(scenario, max_num_seqs=size, max_model_len=isl + osl + 8,
                                max_num_batched_tokens=(scenario.max_num_batched_tokens
                                                        or max(size * isl, LEAST_TOKENS))),
                        constants=in_process(scenario, uses_ray=uses_ray))
    read_by_each_head(deployment)
    if uses_ray:
        multiply_as_in_2023(deployment)
    if is_copied:
        choose_alike(deployment)
    deployment = without(deployment, NO_SERVER)  # handed over as one list: all are there before the first step
    found = times(replay(deployment, load_of("batch", np.zeros(size), np.full(size, isl), np.full(size, osl))))
    return {"ttft_s": float(found["ttft_s"].max()), "latency_s": float(found["e2e_s"].max()),
            "tpot_s": float(np.nanmean(found["tpot_s"])) if osl > 1 else float("nan")}


def predicted_rows(table: pl.DataFrame, predict: Callable[[Mapping[str, Any]], float]) -> pl.DataFrame:
    """Return the table with `predicted` and `status`: "ok", or why a row is not covered."""
    rows = joblib.Parallel(n_jobs=-1)(joblib.delayed(_row)(predict, row) for row in table.iter_rows(named=True))
    return table.with_columns(predicted=pl.Series([row[0] for row in rows], dtype=pl.Float64),
                              status=pl.Series([row[1] for row in rows], dtype=pl.String))


def _row(predict: Callable[[Mapping[str, Any]], float], row: Mapping[str, Any]) -> tuple[float | None, str]:
    try:
        return predict(row), "ok"
    except KeyError as missing:
        return None, f"not covered: {missing.args[0]}"
    except PlannerError as error:
        return None, _short(error)


def _short(error: PlannerError) -> str:
    text = str(error)
    return "does not fit: the memory model finds no room" if "does not fit" in text else text[:90]


def _scenario(row: Mapping[str, Any], engine: str, tp: int, precision: str) -> Scenario:
    is_fp8 = precision.upper() == "FP8"
    return Scenario(model=MODELS[row["model"]], gpu=GPUS[row["gpu"]], engine=engine,
                    tensor_parallel_size=tp, quantization="fp8" if is_fp8 else None,
                    kv_cache_dtype="fp8" if is_fp8 else "auto", gpu_memory_utilization=0.95,
                    cudagraph_mode="none" if engine == "trtllm" else None, fuse_allreduce_rms=False)


def _trtllm() -> pl.DataFrame:
    table = pl.read_csv(MEASURED / "trtllm_static_batch.csv", infer_schema_length=None)
    scale = pl.when(pl.col("metric") == "first_token_latency_ms").then(1e-3).otherwise(1.0)
    return predicted_rows(table.with_columns(measured=pl.col("value") * scale), _predict_trtllm)


def _predict_trtllm(row: Mapping[str, Any]) -> float:
    scenario = _scenario(row, "trtllm", row["tp"], row["precision"])
    if row["metric"] == "first_token_latency_ms":
        return batch(scenario, row["batch_size"], row["isl"], 1)["ttft_s"]
    latency_s = batch(scenario, row["batch_size"], row["isl"], row["osl"])["latency_s"]
    return float(row["batch_size"] * row["osl"] / latency_s / (row["tp"] if row["metric"].endswith("per_gpu") else 1))


def _argonne() -> pl.DataFrame:
    table = pl.read_csv(MEASURED / "static_batch_argonne.csv", infer_schema_length=None)
    return predicted_rows(table.with_columns(measured=pl.col("latency_s")), _predict_argonne)


def _predict_argonne(row: Mapping[str, Any]) -> float:
    """Return a batch's latency under TensorRT-LLM 0.11 or vLLM 0.5, whose V0 engine cuts no prompt.

    TensorRT-LLM's prompts are one word, over and over, the same for all (`generate_input` of argonne-lcf's run.py);
    vLLM's are drawn.
    """
    scenario = replace(_scenario(row, ENGINES[row["engine"]], row["n_gpus"], "FP16"), gpu_memory_utilization=0.9,
                       max_num_batched_tokens=TRTLLM_TOKENS)
    if scenario.engine == "vllm":
        scenario = replace(scenario, max_num_batched_tokens=load_model(str(scenario.model)).max_model_len,
                           policy="vllm-v0", async_scheduling=False)
    found = batch(scenario, row["batch_size"], row["isl"], row["osl"], is_copied=scenario.engine == "trtllm")
    return found["latency_s"]


def _splitwise() -> pl.DataFrame:
    table = pl.read_csv(MEASURED / "step_times_splitwise.csv", infer_schema_length=None).rename({"hardware": "gpu"})
    long = table.unpivot(("prefill_ms", "decode_ms_per_token"), variable_name="part",
                         index=("model", "gpu", "tp", "batch_size", "prompt_tokens", "flags"))
    is_long = pl.col("batch_size") * pl.col("prompt_tokens") > 2048
    part = (pl.when(pl.col("part") == "decode_ms_per_token").then(pl.lit("decodes"))
            .when(is_long).then(pl.lit("prompts, more than 2,048 tokens")).otherwise(pl.lit("prompts, fewer")))
    return predicted_rows(long.filter(pl.col("value").is_not_null())
                          .with_columns(measured=pl.col("value") / 1e3, part=part), _predict_splitwise)


def _predict_splitwise(row: Mapping[str, Any]) -> float:
    if row["flags"]:
        raise KeyError(f"flag {row['flags']}")
    scenario = replace(_scenario(row, "vllm", row["tp"], "FP16"), cudagraph_mode="none", async_scheduling=False,
                       policy="vllm-v0")
    found = batch(scenario, row["batch_size"], row["prompt_tokens"], 128, uses_ray=True)
    return found["tpot_s"] if row["part"] == "decodes" else found["ttft_s"]


def _sarathi() -> pl.DataFrame:
    table = pl.read_csv(MEASURED / "batch_times_sarathi.csv", infer_schema_length=None)
    return predicted_rows(table.with_columns(measured=pl.col("batch_ms") / 1e3), _predict_sarathi)


def _predict_sarathi(row: Mapping[str, Any]) -> float:
    """Return the time of the step with this prompt and these decodes."""
    if "OUTLIER" in (row["note"] or "").upper():
        raise KeyError(f"note: {row['note']}")
    model = {"Yi-34B": "yi-34b"}[row["model"]]
    decodes, prompt, context = row["decode_tokens"], row["prefill_tokens"], row["context_tokens"] or 1
    scenario = Scenario(model=model, gpu="a100-pcie-nvlink", tensor_parallel_size=row["tp"], max_num_seqs=decodes + 1,
                        max_num_batched_tokens=max(decodes * context + prompt, LEAST_TOKENS), max_model_len=20_000,
                        gpu_memory_utilization=0.95, cudagraph_mode="none", async_scheduling=False)
    deployment = deploy(scenario, constants=in_process(replace(scenario, policy="vllm-v0"), uses_ray=True))
    multiply_as_in_2023(deployment)
    arrivals = np.concatenate((np.zeros(decodes), [60.0] if prompt else []))
    inputs = np.concatenate((np.full(decodes, context), [prompt] if prompt else []))
    most = 20_000 - 8 - context
    outputs = np.concatenate((np.full(decodes, most if prompt else 12), [1] if prompt else []))
    steps = replay(deployment, load_of("step", arrivals, inputs, outputs), steps=True).steps
    kept = steps[(steps["num_prompt_tokens"] == prompt) & (steps["num_decodes"] == decodes)]
    if not len(kept):
        raise KeyError("the replay has no such step")
    return float(kept["duration_s"][-1])


def _errors(scored: Mapping[str, pl.DataFrame]) -> Listing:
    rows = []
    for name, table in scored.items():
        keys = [key for key in ("metric", "part", "gpu", "engine", "phase", "model") if key in table.columns]
        rows.append([name, "all", *error_row(table["predicted"], table["measured"])])
        for key in keys:
            rows += [[name, f"{key} = {value}", *error_row(part["predicted"], part["measured"])]
                     for (value,), part in table.group_by(key, maintain_order=True)]
    return Listing(title="Errors", columns=("source", "rows", *ERROR_COLUMNS), rows=rows)


def _uncovered(found: Mapping[str, pl.DataFrame]) -> Listing:
    rows = [[name, *row] for name, table in found.items() for row in outcomes(table)]
    return Listing(title="All rows", columns=("source", "rows", "what became of them"), rows=rows)
