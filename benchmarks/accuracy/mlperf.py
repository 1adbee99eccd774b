"""MLPerf Server and Interactive runs with known engine settings: on which side of its limit each p99 falls."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import joblib
import numpy as np
import polars as pl

from benchmarks.accuracy.data import MEASURED, load_of, replay, times
from benchmarks.accuracy.mlperf_builds import DISAGGREGATED, apply_build, build_of
from benchmarks.accuracy.older_engines import in_process
from benchmarks.accuracy.section import ERROR_COLUMNS, Section, Table, Verdict, error_row, outcomes, percent, scatter
from planner.deployment.deploy import Deployment, deploy
from planner.errors import PlannerError
from planner.settings.scenario import Scenario

TARGET = 0.90
MOST_REQUESTS = 20_000
DURATION_S = 600.0  # MLPerf's least
NUM_HALVINGS = 7  # of the search for the largest rate: to 1.6 % of the offered one
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
# 224 tokens and a median of 157; 405B's 9,400 and 9,300). Outputs: mean where a run does not state its own, and the
# spread that the runs' published end-to-end percentiles have over their TPOT.
DATASETS = {
    "llama-2-70b": Lengths(mean_input=224, max_input=1024, mean_output=294.45, max_output=1024, spread=0.7,
                           output_spread=0.55),
    "mixtral-8x7b": Lengths(mean_input=180, max_input=2048, mean_output=144.84, max_output=1024, spread=0.5,
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


def mlperf() -> Section:
    """Return the section on MLPerf."""
    table = _joined()
    rows = joblib.Parallel(n_jobs=-1)(joblib.delayed(_predict)(row) for row in table.iter_rows(named=True))
    table = pl.concat([table, pl.DataFrame(rows, orient="row", schema={"ttft": pl.Float64, "tpot": pl.Float64,
                                                                        "capacity": pl.Float64, "status": pl.String})],
                      how="horizontal")
    good = table.filter(pl.col("status") == "ok")
    sides = {name: (good[name] <= good[f"{name}_limit_ms"]).to_numpy() for name in ("ttft", "tpot")}
    both = np.concatenate(list(sides.values()))
    return Section(
        title="MLPerf Server and Interactive",
        lead=f"{table.height} runs, {good.height} with known settings: Poisson arrivals at the offered rate, dealt to "
             "the replicas in turn, 600 s or 20,000 requests of one replica. All were valid: measured p99 is within "
             "the limit, and rates were tuned until it just was, so a small error in speed is a large one in p99 TTFT.",
        verdicts=[Verdict(name="p99 TTFT and TPOT on the measured side of the limit", limit=TARGET, at_least=True,
                          value=float(both.mean()) if len(both) else None),
                  Verdict(name="largest rate within both limits over the offered one, median, less 1", limit=None,
                          value=float(good["capacity"].median()) - 1 if good.height else None)],
        figures={"mlperf": scatter({name.upper(): (good[f"{name}_p99_ms"], good[name]) for name in sides},
                                   "p99 of Server and Interactive runs", "a point is a run", "ms")},
        tables=[_by_model(good, sides), _runs(good), _counts(table)],
        notes=["Lengths are log-normal, cut at the published maxima: prompts by the datasets' quantiles, outputs by "
               "the mean that each run states and the spread of its end-to-end times. Mixtral's, 8B's and DeepSeek's "
               "mean inputs are estimates.", "Speculative decoding, where it was used, is not stated in the settings.",
               "Kernels fused and limits lowered at the start are those of the runs' settings files, as far as they "
               "could be read (84 of 187 of round 5.1; those of a group agree). R1's batch size is taken as a rank's: "
               "more requests run than it allows all ranks together.",
               "Rows that state fp16 in v4.1 are taken with the precision of their settings, fp8."])


def _joined() -> pl.DataFrame:
    """Return the runs, each with the settings of the same submitter's system, where they are known."""
    runs = pl.read_csv(MEASURED / "mlperf_v41_v51.csv", infer_schema_length=None)
    runs = runs.filter(pl.col("scenario").is_in(["Server", "Interactive"]))
    settings = pl.read_csv(MEASURED / "mlperf_configs_v41_v51.csv", infer_schema_length=None)
    name = pl.col("model").str.replace(r"-99(\.9)?$", "").str.replace_all("_", ".")
    system = pl.col("system").str.replace(r" \(.*$", "").str.replace(r"_TRT(_Triton)?$", "")
    key = system.str.to_lowercase().str.replace_all("[^a-z0-9]", "")
    settings = settings.with_columns(base=name, key=key).unique(("round", "submitter", "scenario", "base", "key"),
                                                                keep="first")
    return runs.with_columns(base=name, key=key).join(
        settings, on=["round", "submitter", "scenario", "base", "key"], how="left", suffix="_set")


def _predict(row: Mapping[str, Any]) -> tuple[float | None, float | None, float | None, str]:
    """Return what `_p99` does and "ok", or why there is nothing."""
    if row["base"] not in MODELS:
        return None, None, None, f"not covered: {row['base']}"
    gpu = next((ours for name, ours in GPUS.items() if name in str(row["gpu"])), None)
    if gpu is None:
        return None, None, None, f"not covered: {row['gpu']}"
    if row["source_file"] is None:
        return None, None, None, "settings not known"
    if row["source_file"] == DISAGGREGATED:
        return None, None, None, "not covered: disaggregated, with limits that are not stated"
    try:
        found = _p99(row, gpu)
    except PlannerError as error:
        return None, None, None, str(error)[:80]
    return (*found, "ok")


def _p99(row: Mapping[str, Any], gpu: str) -> tuple[float, float, float]:
    """Return p99 TTFT and TPOT [ms] at the offered rate, and the largest rate within both limits over the offered.

    Where experts are spread, attention is data-parallel, and the batch size is a rank's: more requests run than it
    allows all ranks together. One rank is replayed, with its share of the load.
    """
    model = MODELS[row["base"]]
    tp = int(row["tp"] or 1)
    ranks = tp if row["moe_ep"] else 1
    replicas = ranks * max(int(row["n_gpus"]) // (tp * int(row["pp"] or 1)), 1)
    rate = float(row["scheduled_samples_per_s"] or row["target_qps"]) / replicas
    weights = {"fp8": "fp8", "fp4": "nvfp4"}[row["precision_set"]]
    build = build_of(row)
    max_num_seqs = build.max_num_seqs or int(float(str(row["max_batch_size"]).split(",")[0]))
    max_num_tokens = build.max_num_tokens or int(row["max_num_tokens"] or 8192)
    scenario = Scenario(
        model=model, gpu=gpu, engine="trtllm", policy=POLICIES.get(row["scheduler_policy"]),
        tensor_parallel_size=tp // ranks, pipeline_parallel_size=int(row["pp"] or 1), data_parallel_size=ranks,
        data_parallel_attention=ranks > 1, expert_parallel=ranks > 1, quantization=weights,
        kv_cache_dtype="fp8", max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_tokens,
        enable_chunked_prefill=bool(row["chunked_context"]),
        gpu_memory_utilization=float(row["kv_free_mem_frac"] or 0.9),
        max_model_len=DATASETS[model].max_input + DATASETS[model].max_output + 8,
        cudagraph_mode=None if build.uses_graphs else "none")
    deployment = deploy(scenario, constants=in_process(scenario, is_compiled=not build.uses_graphs))
    apply_build(deployment, build)
    prompt_limit = None if row["chunked_context"] else max_num_tokens
    lengths = lengths_of(row)
    found = p99(deployment, lengths, rate, prompt_limit, replicas)
    low, high = 0.0, 2.0
    for _ in range(NUM_HALVINGS):
        middle = (low + high) / 2
        ttft, tpot = p99(deployment, lengths, middle * rate, prompt_limit, replicas)
        is_within = ttft <= row["ttft_limit_ms"] and tpot <= row["tpot_limit_ms"]
        low, high = (middle, high) if is_within else (low, middle)
    return (*found, low)


def lengths_of(row: Mapping[str, Any]) -> Lengths:
    """Return the lengths of a run: its dataset's, with the mean output that it states, tokens over samples a second.

    Checkpoints of fewer bits end earlier: 274 tokens for llama2-70b in NVFP4, 300 in FP8.
    """
    lengths = DATASETS[MODELS[row["base"]]]
    if not row["tokens_per_s"] or not row["samples_per_s"]:
        return lengths
    return replace(lengths, mean_output=row["tokens_per_s"] / row["samples_per_s"])


def p99(deployment: Deployment, lengths: Lengths, rate: float, prompt_limit: int | None,
        replicas: int) -> tuple[float, float]:
    """Return p99 TTFT and TPOT [ms] of one replica that takes every `replicas`-th of Poisson arrivals, `rate` a second.
    """
    count = int(min(max(rate * DURATION_S, 500), MOST_REQUESTS))
    inputs, outputs = lengths.draw(count)
    if prompt_limit is not None:
        inputs = np.minimum(inputs, prompt_limit)
    arrivals = np.cumsum(np.random.default_rng(1).gamma(replicas, 1 / (rate * replicas), count))
    found = times(replay(deployment, load_of("mlperf", arrivals, inputs, outputs)))
    return (1e3 * float(np.nanpercentile(found["ttft_s"], 99)), 1e3 * float(np.nanpercentile(found["tpot_s"], 99)))


def _by_model(good: pl.DataFrame, sides: Mapping[str, Any]) -> Table:
    rows = []
    for (model, scenario), part in good.with_row_index("at").group_by("base", "scenario", maintain_order=True):
        at = part["at"].to_numpy()
        for name, side in sides.items():
            rows.append([model, scenario, name.upper(), percent(float(side[at].mean())),
                         *error_row(part[name], part[f"{name}_p99_ms"])])
    return Table(title="By model", columns=("model", "scenario", "p99", "right side", *ERROR_COLUMNS), rows=rows)


def _runs(good: pl.DataFrame) -> Table:
    columns = ("round", "submitter", "system", "model", "scenario", "ttft_limit_ms", "ttft_p99_ms", "ttft",
               "tpot_limit_ms", "tpot_p99_ms", "tpot", "capacity")
    rows = [[f"{value:.4g}" if isinstance(value, float) else value for value in row]
            for row in good.select(columns).iter_rows()]
    title = "Runs: limit, measured p99 and predicted p99 [ms], largest rate over offered"
    return Table(title=title, columns=columns, rows=rows)


def _counts(table: pl.DataFrame) -> Table:
    return Table(title="All rows", columns=("rows", "what became of them"), rows=outcomes(table))
