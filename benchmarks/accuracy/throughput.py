"""Loads on one deployment: TensorRT-LLM's maximum throughput and rate sweeps, vLLM's rate stages, low-load runs."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from benchmarks.accuracy.data import BLOCK, MEASURED, load_of, replay, times
from benchmarks.accuracy.older_engines import V1_ALONE, in_process, least, with_v0_host
from benchmarks.accuracy.section import ERROR_COLUMNS, Section, Verdict, error_row, outcomes, scatter
from benchmarks.accuracy.static_batch import predicted_rows
from planner.catalog.architecture import Architecture
from planner.catalog.catalog_files import load_gpu, load_model
from planner.catalog.gpus import Gpu
from planner.catalog.kv_cache import kv_bytes_per_token_per_gpu
from planner.catalog.parameters import num_parameters
from planner.deployment.deploy import deploy
from planner.deployment.engine_limits import scenario_constants
from planner.model.precision import KV_BYTES_PER_ELEMENT, WEIGHT_FORMATS
from planner.report.content import Listing
from planner.settings.scenario import Scenario
from planner.traces import PrefixIds
from planner.traces.prefix_ids import intern_ids

MODELS = {"Llama-3.1-8B": "llama-3.1-8b", "Llama-3.1-70B": "llama-3.1-70b", "Llama-3.3-70B": "llama-3.1-70b",
          "Llama-3.1-405B": "llama-3.1-405b", "Mistral-7B": "mistral-7b", "Mixtral-8x7B": "mixtral-8x7b",
          "Mixtral-8x22B": "mixtral-8x22b", "Llama-4-Maverick": "llama-4-maverick"}
GPUS = {"A100 PCIe": "a100-pcie", "A100 SXM4": "a100-sxm", "B200": "b200-sxm", "H100 SXM": "h100-sxm",
        "H200 SXM": "h200-sxm", "L40S": "l40s", "GH200": "gh200-96gb"}
FORMATS = {"FP16": (None, "auto"), "BF16": (None, "auto"), "FP8": ("fp8", "fp8"), "FP4": ("nvfp4", "fp8")}
MOST_REQUESTS, BATCHES = 4000, 5  # more than either change the throughput by 1 %, but for the drain at the end
MAX_BATCH, MAX_TOKENS = 2048, 8192  # of trtllm-build, and of trtllm-bench before 0.15
TUNED_SINCE = 0.15  # the version of trtllm-bench that chooses both by the dataset
KV_SHARE = 0.95  # "in many cases" above the default of 0.9, says the overview that has the tables
RATIO_TARGET, SIGMA_TARGET = 0.05, 0.20


def throughput() -> Section:
    """Return the section on throughput and rates."""
    most, sweep, stages, low = _max_throughput(), _sweep(), _stages(), _low_load()
    good = most.filter(pl.col("status") == "ok")
    logs = np.log(good["predicted"].to_numpy() / good["measured"].to_numpy())
    return Section(
        title="Throughput and rates",
        lead="TensorRT-LLM's offline maximum, all requests there at once; its online rate sweep; vLLM's rate stages of "
             "one minute; and runs of vLLM 0.6 at low load with their own arrivals.",
        verdicts=[
            Verdict(name="maximum throughput, |geometric mean ratio − 1|", value=abs(float(np.expm1(logs.mean()))),
                    limit=RATIO_TARGET),
            Verdict(name="maximum throughput, sigma of the log ratio", value=float(logs.std()), limit=SIGMA_TARGET),
            *(Verdict(name=f"{name}: median APE of {metric}", limit=None, value=_median(table, metric))
              for name, table, metric in (("rate sweep", sweep, "TTFT"), ("rate sweep", sweep, "ITL"),
                                          ("rate stages", stages, "e2e"), ("low load", low, "TTFT"),
                                          ("low load", low, "TPOT")))],
        tables=[_by(most, "maximum throughput", ("gpu", "model", "precision", "tp", "version")),
                *(_by(table, name, ("metric", *keys)) for name, table, keys in (
                    ("rate sweep", sweep, ("gpu", "model")), ("rate stages", stages, ("config", "stage")),
                    ("low load", low, ("workload", "n_gpus")))),
                _counts({"maximum throughput": most, "rate sweep": sweep, "rate stages": stages, "low load": low})],
        figures={"max_throughput": scatter({str(gpu): (part["measured"], part["predicted"])
                                            for (gpu,), part in good.group_by("gpu", maintain_order=True)},
                                           "Maximum output throughput", "TensorRT-LLM 0.14 to 0.20", "tokens/s")},
        notes=[f"At most {MOST_REQUESTS:,} requests a row are replayed, or {BATCHES} batches, and tokens between 20 % "
               "and 80 % of the output counted where that cuts the run; batch and token limits are those of "
               "trtllm-bench's table before 0.15, and of its rule for a dataset since.",
               "The rate stages' TPOT column is half the time between tokens: the client counts two chunks each; the "
               "end-to-end time, the tokens it counts and the rate are used.",
               "The stages of eagle (acceptance unknown) and of quantization (whose single request takes what 16-bit "
               "weights take) are not covered; those of vLLM's old engine have the host of Argonne's runs, in which "
               "they had no part. With prefix caching, 100 prompts come in turn, as inference-perf's shared_prefix "
               "makes them. The prior of a host's time on one GPU is from the other stages, and what vLLM 0.6's V0 "
               "engine waits for its worker processes from the runs at low load."])


def _median(table: pl.DataFrame, metric: str) -> float:
    part = table.filter((pl.col("metric") == metric) & (pl.col("status") == "ok"))
    return float(np.median(np.abs(part["predicted"] / part["measured"] - 1)))


def _max_throughput() -> pl.DataFrame:
    table = pl.read_csv(MEASURED / "trtllm_max_throughput.csv", infer_schema_length=None)
    return predicted_rows(table.with_columns(measured=pl.col("output_tokens_per_s")), _predict_most)


def _predict_most(row: Mapping[str, Any]) -> float:
    weights, kv = FORMATS[row["precision"]]
    model, gpu = load_model(MODELS[row["model"]]), load_gpu(GPUS[row["gpu"]])
    if row["version"] < TUNED_SINCE:
        seqs, tokens = preset(model.name, row["tp"], row["isl"] + row["osl"])
    else:
        seqs, tokens = tuned(model, gpu, row["tp"], row["isl"], row["osl"],
                             WEIGHT_FORMATS[weights or "bf16"].bytes_per_element, KV_BYTES_PER_ELEMENT[kv])
    is_compiled = "PyTorch" not in row["backend"]
    scenario = Scenario(model=model.name, gpu=gpu.name, engine="trtllm", quantization=weights,
                        kv_cache_dtype=kv, tensor_parallel_size=row["tp"], max_num_seqs=seqs,
                        max_num_batched_tokens=tokens, gpu_memory_utilization=KV_SHARE, enable_chunked_prefill=True,
                        max_model_len=row["isl"] + row["osl"] + 8, cudagraph_mode="none" if is_compiled else None,
                        max_cudagraph_capture_size=seqs,  # as trtllm-bench asks for
                        fuse_allreduce_rms=False if is_compiled else None)
    deployment = deploy(scenario, constants=in_process(scenario, is_compiled=is_compiled))
    count = min(row["num_requests"] or MOST_REQUESTS, max(MOST_REQUESTS, BATCHES * seqs))
    records = replay(deployment, load_of("offline", np.zeros(count), np.full(count, row["isl"]),
                                         np.full(count, row["osl"]))).requests
    done = np.sort(records.finished_s)
    first, last = int(0.2 * count), int(0.8 * count)
    if count == (row["num_requests"] or 0):
        return float(count * row["osl"] / float(done[-1]))
    return float((last - first) * row["osl"] / float(done[last] - done[first]))


# Sequences and tokens of a step by model and ranks, in trtllm-bench's own table (tensorrt_llm/bench/build/
# benchmark_config.yml) before 0.15; Llama 3.1 by the entries of Llama 3.
PRESETS = {
    ("llama-3.1-8b", 1): (2048, 8192), ("llama-3.1-70b", 1): (2048, 2048), ("llama-3.1-70b", 2): (256, 1024),
    ("llama-3.1-70b", 4): (2048, 1024), ("llama-3.1-70b", 8): (8192, 16_384), ("mistral-7b", 1): (4098, 8192),
    ("mixtral-8x7b", 2): (2048, 3072), ("mixtral-8x7b", 4): (8192, 8192),
}


PRESETS_BY_LENGTH = {("llama-3.1-70b", 2, 4096): (2048, 1024)}  # of requests of so many tokens


def preset(model: str, tp: int, seq_len: int) -> tuple[int, int]:
    """Return the sequences and tokens of a step that trtllm-bench took before 0.15 [1], [tokens].

    >>> preset("llama-3.1-70b", 2, 2000), preset("llama-3.1-70b", 2, 4096), preset("mixtral-8x22b", 8, 2000)
    ((256, 1024), (2048, 1024), (2048, 8192))
    """
    general = PRESETS.get((model, tp), (MAX_BATCH, MAX_TOKENS))
    return PRESETS_BY_LENGTH.get((model, tp, seq_len), general)


def tuned(model: Architecture, gpu: Gpu, tp: int, isl: int, osl: int, weight_bytes: float,
          kv_bytes: float) -> tuple[int, int]:
    """Return the sequences and tokens of a step that trtllm-bench chooses for a dataset [1], [tokens].

    As many sequences as all GPUs' memory less the weights holds, at most 4,096, and their share of prompts in a step,
    at most 32,768 tokens; rounded up, to 64 sequences and 2,048 tokens at least. Source: `calc_engine_setting` and
    `finetune_setting` of TensorRT-LLM 0.15 and later.

    >>> tuned(load_model("llama-3.1-70b"), load_gpu("h100-sxm"), 1, 1000, 1000, 1.0, 1.0)
    (64, 2048)
    >>> tuned(load_model("llama-3.1-8b"), load_gpu("h200-sxm"), 1, 128, 128, 1.0, 1.0)
    (4096, 8192)
    """
    free = gpu.hbm_capacity_bytes * tp - num_parameters(model) * weight_bytes
    per_token = tp * kv_bytes_per_token_per_gpu(model, kv_bytes, tp, 1)
    seqs = min(KV_SHARE * free / per_token / (isl + osl), 4096)
    tokens = min(seqs * (1 + isl / osl), 32_768)
    return (_up(max(seqs, 64), 32 if seqs < 256 else 128 if seqs < 1024 else 256),
            _up(max(tokens, 2048), 256 if tokens < 4096 else 512 if tokens < 8192 else 1024))


def _up(value: float, unit: int) -> int:
    return unit * math.ceil(value / unit)


def _sweep() -> pl.DataFrame:
    table = pl.read_csv(MEASURED / "trtllm_online_rate_sweep.csv", infer_schema_length=None)
    columns = ("mean_ttft_ms", "mean_itl_ms", "achieved_req_s")
    long = table.unpivot(columns, variable_name="column", value_name="measured",
                         index=("gpu", "model", "precision", "tp", "input_len", "output_len", "offered_qps",
                                "num_requests"))
    names = {"mean_ttft_ms": "TTFT", "mean_itl_ms": "ITL", "achieved_req_s": "requests/s"}
    return predicted_rows(long.with_columns(pl.col("measured").cast(pl.Float64, strict=False),
                                            metric=pl.col("column").replace(names)), _predict_sweep)


def _predict_sweep(row: Mapping[str, Any]) -> float:
    scenario = Scenario(model=MODELS[row["model"]], gpu=GPUS[row["gpu"]], engine="trtllm",
                        tensor_parallel_size=row["tp"], max_num_seqs=2048, max_num_batched_tokens=8192,
                        gpu_memory_utilization=0.9, cudagraph_mode="none", fuse_allreduce_rms=False)
    count = int(row["num_requests"])
    rate = float("inf") if str(row["offered_qps"]).upper() == "INF" else float(row["offered_qps"])
    gaps = np.random.default_rng(0).exponential(size=count)
    gaps *= count / gaps.sum() / rate  # a draw of 500 is up to a tenth lighter or heavier than what was offered
    load = load_of("sweep", np.cumsum(gaps), np.full(count, row["input_len"]), np.full(count, row["output_len"]))
    found = times(replay(deploy(scenario, constants=in_process(scenario)), load))
    end_s = float((load.requests["arrival_s"].to_numpy() + found["e2e_s"]).max())
    shown = {"TTFT": 1e3 * found["ttft_s"].mean(), "ITL": 1e3 * np.nanmean(found["tpot_s"]),
             "requests/s": count / end_s}
    return float(shown[row["metric"]])


STAGE = {"rate": "load_summary.achieved_rate", "count": "successes.count", "input": "successes.prompt_len.mean",
         "output": "successes.output_len.mean", "e2e": "successes.latency.request_latency.mean",
         "TTFT": "successes.latency.time_to_first_token.mean", "requests/s": "successes.throughput.requests_per_sec",
         "asked": "load_summary.requested_rate"}


# Acceptance is not stated; what was quantized: one request takes as long as with 16-bit weights.
UNKNOWN_STAGES = ("vllm+eagle", "vllm+quantization")
STAGE_SEQS = {"vllm+chunking_and_prefix_caching": 128, "vllm+v0_engine": 256}  # the latter is V0's default
# How long the GPU waits for the worker processes of V0 in vLLM 0.6: a round value from the runs at low load themselves.
V0_WORKERS_S = 2e-3


def _stages() -> pl.DataFrame:
    table = pl.read_csv(MEASURED / "vllm_rate_stages_8b_h100.csv", infer_schema_length=None)
    short = table.select("config", "stage", *(pl.col(column).alias(name) for name, column in STAGE.items()))
    long = short.unpivot(("e2e", "TTFT", "requests/s"), variable_name="metric", value_name="measured",
                         index=("config", "stage", "rate", "count", "input", "output", "asked"))
    return predicted_rows(long, _predict_stage)


def _predict_stage(row: Mapping[str, Any]) -> float:
    """Replay a stage on one H100: vLLM 0.11, without asynchronous scheduling, or V0; steady arrivals.

    Its 100 prompts in turn are those of inference-perf's `shared_prefix`: 10 system prompts of 128 tokens, 10 questions
    to each. V0's host is that of Argonne's runs, of vLLM 0.5.
    """
    if row["config"] in UNKNOWN_STAGES:
        raise KeyError(row["config"])
    if row["metric"] != "requests/s" and row["rate"] < 0.97 * row["asked"]:
        raise KeyError("latency of a stage beyond capacity: the client's limit decides it")
    is_caching, is_v0 = row["config"] == "vllm+chunking_and_prefix_caching", row["config"] == "vllm+v0_engine"
    scenario = Scenario(model="llama-3.1-8b", gpu="h100-sxm", max_num_seqs=STAGE_SEQS.get(row["config"], 1024),
                        max_num_batched_tokens=8192, async_scheduling=False, policy="vllm-v0" if is_v0 else None)
    count, size = int(row["count"]), round(row["input"])
    load = load_of("stage", np.arange(count) / row["rate"], np.full(count, size),
                   np.full(count, round(row["output"])), shared_prompts(count, size) if is_caching else None)
    constants = with_v0_host(scenario_constants(scenario)) if is_v0 else None
    found = times(replay(deploy(scenario, enable_prefix_caching=is_caching, constants=constants), load))
    end_s = float((load.requests["arrival_s"].to_numpy() + found["e2e_s"]).max())
    shown = {"e2e": found["e2e_s"].mean(), "TTFT": found["ttft_s"].mean(), "requests/s": count / end_s}
    return float(shown[row["metric"]])


def shared_prompts(count: int, size: int) -> PrefixIds:
    """Return the blocks of prompts of so many tokens, the r-th of which asks question r % 100 after prompt r % 10."""
    blocks = np.arange(-(-size // BLOCK))
    question = np.arange(count)[:, None] % 100
    content = np.where(blocks < 128 // BLOCK, question % 10, 10 + question) * len(blocks) + blocks
    return intern_ids([pl.Series(content.ravel())], np.full(count, len(blocks)), BLOCK)


def _low_load() -> pl.DataFrame:
    table = pl.read_csv(MEASURED / "low_load_runs_llama70b_h100.csv", infer_schema_length=None)
    long = table.unpivot(("ttft_s", "tpot_excl_first_s", "mean_e2e_s"), variable_name="column", value_name="measured",
                         index=("n_gpus", "parallel", "workload", "kind", "workload_csv", "chunked_prefill"))
    names = {"ttft_s": "TTFT", "tpot_excl_first_s": "TPOT", "mean_e2e_s": "e2e"}
    return predicted_rows(long.with_columns(metric=pl.col("column").replace(names)), _predict_low)


def _predict_low(row: Mapping[str, Any]) -> float:
    is_chunked = row["chunked_prefill"].startswith("on")
    scenario = Scenario(model="llama-3.1-70b", gpu="h100-sxm", tensor_parallel_size=row["n_gpus"], max_num_seqs=256,
                        max_num_batched_tokens=512 if is_chunked else 32_768, async_scheduling=False,
                        policy="chunked" if is_chunked else "vllm-v0",
                        gpu_memory_utilization=0.95, max_model_len=None if is_chunked else 32_000,
                        fuse_allreduce_rms=False)
    trace = pl.read_csv(MEASURED / row["workload_csv"])
    load = load_of("apex", trace["arrival_s"], trace["prompt_tokens"], trace["output_tokens"])
    constants = replace(scenario_constants(scenario), serial_workers_s=V0_WORKERS_S, **least(V1_ALONE))
    found = times(replay(deploy(scenario, constants=constants), load))
    means = {"TTFT": found["ttft_s"].mean(), "TPOT": np.nanmean(found["tpot_s"]), "e2e": found["e2e_s"].mean()}
    return float(means[row["metric"]])


def _by(table: pl.DataFrame, name: str, keys: tuple[str, ...]) -> Listing:
    good = table.filter((pl.col("status") == "ok") & pl.col("measured").is_not_null())
    rows = [["all", "", *error_row(good["predicted"], good["measured"])]]
    first = keys[0]
    for key in keys:
        groups = (key,) if key == first or first != "metric" else (first, key)
        for values, part in good.group_by(groups, maintain_order=True):
            rows.append([", ".join(groups), ", ".join(map(str, values)),
                         *error_row(part["predicted"], part["measured"])])
    return Listing(title=f"Errors: {name}", columns=("by", "value", *ERROR_COLUMNS), rows=rows)


def _counts(found: Mapping[str, pl.DataFrame]) -> Listing:
    rows = [[name, *row] for name, table in found.items() for row in outcomes(table)]
    return Listing(title="All rows (a row and metric each)", columns=("source", "rows", "what became of them"),
                   rows=rows)
