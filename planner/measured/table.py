"""Measured serving results as a table of runs: each row's deployment, its load, and what was measured."""

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from planner.catalog.entries import load_gpu, load_model
from planner.errors import PlannerError, TraceError
from planner.files.table_file import read_table_file
from planner.measured.recipes import Run, find_recipe, release_of, tokens_per_counted
from planner.model.layout import Layout
from planner.settings.scenario import Scenario
from planner.trace import Trace
from planner.traffic.client import burst

METRICS = ("ttft_ms", "tpot_ms")  # means over requests
GROUPS = ("gpu", "engine", "model", "precision", "client", "layout")

# Columns that a table must have, and what they hold, by our name; the first name that is there counts.
_COLUMNS = {"gpu": ("gpu", "system"), "engine": ("engine", "backend"), "model": ("model",), "isl": ("isl",),
            "osl": ("osl",), "concurrency": ("concurrency",), "tp": ("tp",)}
# Chance that a drafted token is accepted where prompts are random tokens in a chat template: what InferenceX's runs
# with one drafted token gain over those without, the draft's own time counted. Of three: 2.53 tokens a step; 2.50
# were logged of DeepSeek-R1, as for real prompts, and 3.55 without the template (SemiAnalysisAI/InferenceX#649).
RANDOM_TOKENS_ACCEPTANCE = "0.7"
# What a quantised run of a model loads, where that is another checkpoint than the model's name says.
_CHECKPOINTS = {
    ("deepseek-ai/DeepSeek-R1", "fp4"): "nvidia/DeepSeek-R1-0528-FP4",
    ("deepseek-ai/DeepSeek-V3", "fp4"): "nvidia/DeepSeek-R1-0528-FP4",
    ("moonshotai/Kimi-K2.5", "fp4"): "nvidia/Kimi-K2.5-NVFP4",
    ("Qwen/Qwen3.5-397B-A17B", "fp8"): "Qwen/Qwen3.5-397B-A17B-FP8",
    ("Qwen/Qwen3.5-397B-A17B", "fp4"): "nvidia/Qwen3.5-397B-A17B-NVFP4",
    ("zhipuai/GLM-5", "fp8"): "zai-org/GLM-5-FP8",
    ("zhipuai/GLM-5", "fp4"): "nvidia/GLM-5-NVFP4",
    ("MiniMaxAI/MiniMax-M2.5", "fp4"): "nvidia/MiniMax-M2.5-NVFP4",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One measured run.

    Parameters
    ----------
    id : of the row.
    groups : the row's value of each of GROUPS.
    measured : mean TTFT and TPOT by the names of METRICS, and other statistics by theirs [ms].
    bounds : of those that are known no better than a bucket of a histogram, its edges [ms].
    scenario, layout : what ran; None where the row cannot be understood.
    load : the prompts of one attention rank; all there at 0 s, `max_concurrency` of the scenario in flight.
    tokens_per_counted : the engine's tokens of a prompt for each that the client counted; the load has them [1].
    num_opening : requests that do not count: an opening burst that the measurement does not show [1].
    status : "ok", or why the row cannot be predicted.
    """

    id: str
    groups: Mapping[str, str]
    measured: Mapping[str, float]
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    scenario: Scenario | None = None
    layout: Layout | None = None
    load: Trace | None = field(default=None, repr=False)
    tokens_per_counted: float = 1.0
    num_opening: int = 0
    status: str = "ok"


def counted(measurement: Measurement, metric: str, predicted: float) -> float:
    """Return what a prediction counts as: within the measured value's bucket as right, else as off as from its edge.

    >>> run = Measurement(id="a", groups={}, measured={"p50_ttft_ms": 75.0}, bounds={"p50_ttft_ms": (50.0, 100.0)})
    >>> counted(run, "p50_ttft_ms", 99.0), counted(run, "p50_ttft_ms", 110.0)
    (75.0, 82.5)
    """
    low, high = measurement.bounds.get(metric, (0.0, 0.0))
    nearest = min(max(predicted, low), high)
    return predicted * measurement.measured[metric] / nearest if nearest > 0 else predicted


def read_measured(path: Path) -> list[Measurement]:
    """Read a table of closed-loop runs: one row a run, with its deployment, load and measured means.

    Columns: `gpu` (or `system`), `engine` (or `backend`), `model`, `isl`, `osl`, `concurrency`, `tp`, and
    `measured_ttft_ms`, `measured_tpot_ms`; where there, also `id`, `precision`, `dp`, `moe_tp`, `moe_ep`, `client`,
    `backend_version` and `measured_date`. A row whose deployment cannot be understood keeps the reason in `status`.

    Raises
    ------
    TraceError : the file is missing, is no table, or lacks a column.
    """
    table = read_table_file(path)
    missing = [names[0] for names in _COLUMNS.values() if not set(names) & set(table.columns)]
    missing += [f"measured_{metric}" for metric in METRICS if f"measured_{metric}" not in table.columns]
    if missing:
        raise TraceError(f"{path}: lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}; a table of "
                         f"measured runs has {', '.join(_COLUMNS)}, measured_ttft_ms and measured_tpot_ms")
    return [_measurement(row, k) for k, row in enumerate(table.iter_rows(named=True))]


def _measurement(row: Mapping[str, Any], k: int) -> Measurement:
    """Make sense of one row."""
    text = {name: _text(row, *names) for name, names in _COLUMNS.items()}
    precision = _text(row, "precision") or _precision_of(_text(row, "gemm_quant_mode"))
    groups = {"gpu": text["gpu"], "engine": text["engine"], "model": text["model"], "precision": precision,
              "client": _text(row, "client") or "unknown", "layout": _layout_name(row)}
    measured = {metric: float(value) for metric in METRICS if (value := _text(row, f"measured_{metric}"))}
    common: dict[str, Any] = {"id": _text(row, "id") or str(k), "groups": groups, "measured": measured}
    try:
        return Measurement(**common, **_understand(row, text, groups))
    except (PlannerError, ValueError) as error:
        return Measurement(**common, status=str(error))


def _understand(row: Mapping[str, Any], text: Mapping[str, str], groups: Mapping[str, str]) -> dict[str, Any]:
    """Return the scenario, layout and load of a row."""
    gpu = load_gpu(text["gpu"])
    tp, dp, ep = (int(float(_text(row, name) or 1)) or 1 for name in ("tp", "dp", "moe_ep"))
    isl, osl, concurrency = (int(float(text[name])) for name in ("isl", "osl", "concurrency"))
    run = Run(engine=text["engine"], model=text["model"], precision=groups["precision"], gpu=gpu.name, isl=isl, osl=osl,
              concurrency=concurrency, tp=tp, ep=ep, dp=dp, version=_text(row, "backend_version"),
              date=_text(row, "measured_date")[:10], client=groups["client"])
    recipe = find_recipe("inferencex", run)
    layout = replace(_layout(tp, dp, ep, str(recipe.get("layout", ""))),
                     attention_dp_timeout_iters=int(recipe.get("attention_dp_timeout_iters", 0)))
    in_flight = max(concurrency // layout.data_parallel_size, 1)
    model = _CHECKPOINTS.get((text["model"], groups["precision"]), text["model"])
    is_burst = groups["client"] == "inferencex"
    ratio = tokens_per_counted("inferencex", run) if is_burst else 1.0
    options = _options(recipe, in_flight) | {"engine_version": release_of("inferencex", run)}
    if gpu.vendor == "AMD" and options["kv_cache_dtype"] == "auto":
        options["kv_cache_dtype"] = "bf16"  # 4-bit checkpoints are AMD's own there; what their KV is, is not known
    scenario = Scenario(
        model=model, gpu=gpu.name, engine=text["engine"],  # type: ignore[arg-type]
        tensor_parallel_size=layout.tensor_parallel_size, quantization=_quantization(model, groups["precision"]),
        max_concurrency=in_flight, max_model_len=math.ceil(ratio * isl) + osl + 200, **options)
    prompts = int(recipe.get("num_prompts_per_concurrency", 10)) * in_flight
    return {"scenario": scenario, "layout": layout, "load": _load(isl, osl, prompts, ratio, is_burst=is_burst),
            "tokens_per_counted": ratio, "num_opening": 0 if is_burst else in_flight}


def _text(row: Mapping[str, Any], *names: str) -> str:
    """Return the first of these columns that the row has a value in, as text."""
    texts = (str(row[name]).strip() for name in names if row.get(name) is not None)
    return next((text for text in texts if text), "")


def _precision_of(gemm_mode: str) -> str:
    return {"": "bf16", "nvfp4": "fp4", "fp8_block": "fp8", "int4_wo": "int4"}.get(gemm_mode, gemm_mode)


def _layout_name(row: Mapping[str, Any]) -> str:
    return "-".join(f"{short}{int(float(_text(row, name) or 1))}"
                    for short, name in (("tp", "tp"), ("dp", "dp"), ("ep", "moe_ep")))


def _layout(tp: int, dp: int, ep: int, corrected: str) -> Layout:
    """Return what ran: the row's labels, or what the recipe says where these are wrong."""
    gpus = tp * dp
    if corrected == "tp":
        return Layout(tensor_parallel_size=gpus)
    if corrected == "tp+ep":
        return Layout(tensor_parallel_size=gpus, expert_parallel_size=gpus)
    if corrected == "dp+ep":
        return Layout(data_parallel_size=gpus, expert_parallel_size=gpus)
    return Layout(tensor_parallel_size=tp, data_parallel_size=dp, expert_parallel_size=min(ep, gpus))


def _quantization(model: str, precision: str) -> str | None:
    """Return the weight format where the checkpoint does not say it itself."""
    arch = load_model(model)
    own = arch.quantization or arch.expert_quantization  # Kimi's have their experts alone in 4 bit
    same = {"fp8": ("fp8", "fp8_block"), "fp4": ("nvfp4", "mxfp4", "fp4"), "int4": ("int4", "int4-g32", "awq", "gptq"),
            "bf16": (None,)}
    if own in same.get(precision, ()):
        return None
    return {"fp4": "nvfp4"}.get(precision, precision)


def _options(recipe: Mapping[str, Any], in_flight: int) -> dict[str, Any]:
    """Return a recipe's settings as scenario options."""
    options = {"max_num_seqs": min(int(recipe.get("max_num_seqs", in_flight)), 1024),
               "max_num_batched_tokens": _first(recipe, "max_num_batched_tokens", "chunked_prefill_size"),
               "gpu_memory_utilization": _first(recipe, "gpu_memory_utilization", "mem_fraction_static",
                                                "free_gpu_memory_fraction"),
               "kv_cache_dtype": recipe.get("kv_cache_dtype", "auto"), "enable_prefix_caching": False}
    if "cudagraphs" in recipe:
        options["cudagraph_mode"] = {"full": "full_and_piecewise", "decode": "full_decode_only"}.get(
            recipe["cudagraphs"], recipe["cudagraphs"])
    if "cuda_graph_max_bs" in recipe:
        options["max_cudagraph_capture_size"] = int(recipe["cuda_graph_max_bs"])
    if "speculative_tokens" in recipe:
        options |= {"num_speculative_tokens": int(recipe["speculative_tokens"]),
                    "speculative_method": "mtp", "speculative_acceptance": RANDOM_TOKENS_ACCEPTANCE}
    known = ("async_scheduling", "batch_wait_timeout_iters", "batch_wait_max_tokens_ratio", "scheduler_recv_interval",
             "max_prefill_tokens", "fuse_allreduce_rms", "fp8_gemm_backend", "moe_backend", "fp32_matmul",
             "piecewise_cuda_graph_max_tokens")
    return options | {name: recipe[name] for name in known if name in recipe}


def _first(recipe: Mapping[str, Any], *names: str) -> Any:
    """Return a recipe's value by the first of an engine's names for it; None leaves it to the engine."""
    return next((recipe[name] for name in names if name in recipe), None)


@functools.cache
def _load(isl: int, osl: int, prompts: int, ratio: float, *, is_burst: bool) -> Trace:
    """Return the client's prompts: InferenceX draws lengths from [0.8 · len, len] with seed 0, inputs first.

    `ratio` is what the engine made of each token of a prompt [1].
    """
    if not is_burst:
        return burst(np.full(prompts, isl), np.full(prompts, osl), "fixed lengths")
    rng = np.random.RandomState(0)
    inputs, outputs = (rng.randint(int(0.8 * n), n + 1, prompts) for n in (isl, osl))
    return burst(np.rint(ratio * inputs).astype(int), outputs, "inferencex")
