"""Rows of published benchmarks: the settings that their recipes state, and the load that their clients send."""

import functools
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from planner.catalog.catalog_files import load_gpu
from planner.catalog.gpus import Gpu
from planner.errors import CatalogError, UsageError
from planner.measured.recipes import find_recipe, release_of, tokens_per_counted
from planner.measured.run_columns import LAYOUT, LOAD
from planner.measured.run_row import PROMPTS_PER_CONCURRENCY, Row, check_drafts, quantization_of
from planner.model.layout import Layout
from planner.settings.scenario import Scenario
from planner.traces import Trace
from planner.traces.shaping.client_load import burst

# The clients of the runs that the recipes were read for: InferenceX's, and AIConfigurator's own.
BENCHMARKS = ("inferencex", "internal")
RECIPES = "inferencex"  # the file in hardware_db/recipes
# Chance that a drafted token is accepted if prompts are random tokens in a chat template: the gain of InferenceX's runs
# with one drafted token over runs without, the draft's own time counted. Of three: 2.53 tokens a step; 2.50
# were logged of DeepSeek-R1, as for real prompts, and 3.55 without the template (SemiAnalysisAI/InferenceX#649).
RANDOM_TOKENS_ACCEPTANCE = "0.7"
# The checkpoint of a quantised run of a model, if it is another one than the model's name.
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
# A recipe's names of the scenario's options, if they are not its own.
_OPTION_NAMES = {
    "chunked_prefill_size": "max_num_batched_tokens", "mem_fraction_static": "gpu_memory_utilization",
    "free_gpu_memory_fraction": "gpu_memory_utilization", "cuda_graph_max_bs": "max_cudagraph_capture_size",
    "speculative_tokens": "num_speculative_tokens"}
_OPTIONS = ("max_num_batched_tokens", "gpu_memory_utilization", "kv_cache_dtype", "async_scheduling",
            "batch_wait_timeout_iters", "batch_wait_max_tokens_ratio", "scheduler_recv_interval", "max_prefill_tokens",
            "fuse_allreduce_rms", "block_size", "fp8_gemm_backend", "moe_backend", "fp32_matmul",
            "piecewise_cuda_graph_max_tokens", "cold", *_OPTION_NAMES)
_GRAPHS = {"full": "full_and_piecewise", "decode": "full_decode_only"}  # vLLM's names of a recipe's `cudagraphs`
# Settings that a recipe records and that set no option of a run, and why.
RECORDED_ONLY = {
    "enable_prefix_caching": "prompts are random tokens, and share no prefix",
    "stream_interval": "read for ITL alone: TTFT and TPOT use first and last tokens, which are sent at once",
    "attention_dp_balance": "attention_dp_timeout_iters sets how long a rank waits",
    "attention_dp_batching_wait_iters": "not modelled; 0 in all recipes but one",
    "moe_activations": "kernels for MXFP4 times MXFP8 were not measured",
}


def published_run(row: Row, *, has_gaps: bool = False) -> dict[str, Any]:
    """Return the scenario, layout and load of a published benchmark's row, by the names of `Measurement`.

    Parameters
    ----------
    has_gaps : whether ITL was measured, which alone depends on the recipe's `stream_interval`.

    Raises
    ------
    PlannerError : the deployment is impossible, or no recipe is for its engine.
    """
    fixed = next((name for name in (*LOAD, *LAYOUT) if name in row.options), None)
    if fixed is not None:
        raise UsageError(f"{fixed} = {row.options[fixed]}: client = {row.client} sets its own load and layout; leave "
                         f"out the column, or the client")
    if row.concurrency is None:
        raise UsageError(f"concurrency is empty: client = {row.client} limits requests in flight; give it")
    precision = row.precision or "bf16"
    gpu = load_gpu(row.gpu)
    run = replace(row, precision=precision, gpu=gpu.name,
                  drafts=None if "num_speculative_tokens" in row.options else row.drafts)
    release = release_of(RECIPES, run)
    if row.has_attention and not row.version and release:  # a table with all labels needs no corrections of old runs
        run = replace(run, version=release)
    chosen = find_recipe(RECIPES, run)
    recipe = dict(chosen.settings)
    notes = [chosen.note] if chosen.note else []
    if row.drafts is False:
        recipe.pop("speculative_tokens", None)
    elif "speculative_tokens" not in recipe:
        check_drafts(row)
    elif row.drafts and "num_speculative_tokens" not in row.options:
        notes.append(f"spec_decoding: the recipe drafts {recipe['speculative_tokens']} tokens a step; a column "
                     f"num_speculative_tokens has another number")
    chunks = {"stream_interval": int(recipe.get("stream_interval", 1))} if has_gaps else {}
    corrected = str(recipe.pop("layout", ""))
    layout = replace(_layout(row, "" if row.has_attention else corrected),
                     attention_dp_timeout_iters=int(recipe.pop("attention_dp_timeout_iters", 0)))
    in_flight = max(row.concurrency // layout.data_parallel_size, 1)
    prompts = int(recipe.pop("num_prompts_per_concurrency", PROMPTS_PER_CONCURRENCY)) * in_flight
    model = checkpoint_of(row.model, precision)
    is_burst = row.client == "inferencex"
    ratio = tokens_per_counted(RECIPES, run) if is_burst else 1.0
    options = _options(recipe, in_flight) | {"engine_version": release}
    if options["kv_cache_dtype"] == "auto":
        options["kv_cache_dtype"] = kv_type_of(gpu)
    scenario = Scenario(**{
        "model": model, "gpu": gpu.name, "engine": row.engine, "tensor_parallel_size": layout.tensor_parallel_size,
        "quantization": quantization_of(model, precision), "max_concurrency": in_flight,
        "max_model_len": math.ceil(ratio * row.isl) + row.osl + 200, **options, **chunks, **row.settings})
    return {"scenario": scenario, "layout": layout,
            "load": inferencex_load(row.isl, row.osl, prompts, ratio, is_burst=is_burst),
            "tokens_per_counted": ratio, "num_opening": 0 if is_burst else in_flight, "notes": tuple(notes)}


def checkpoint_of(model: str, precision: str) -> str:
    """Return the checkpoint of a run of a model in a precision."""
    return _CHECKPOINTS.get((model, precision), model)


def kv_type_of(gpu: Gpu) -> str:
    """Return the KV cache's type if a recipe says "auto"."""
    return "bf16" if gpu.vendor == "AMD" else "auto"  # AMD's 4-bit checkpoints are its own; their KV type is not known


def _layout(row: Row, corrected: str) -> Layout:
    """Return the layout of a run: the row's labels, or the recipe's correction if these are wrong."""
    gpus = row.tp * row.dp
    if corrected == "tp":
        return Layout(tensor_parallel_size=gpus)
    if corrected == "tp+ep":
        return Layout(tensor_parallel_size=gpus, expert_parallel_size=gpus)
    if corrected == "dp+ep":
        return Layout(data_parallel_size=gpus, expert_parallel_size=gpus)
    return Layout(tensor_parallel_size=row.tp, data_parallel_size=row.dp, expert_parallel_size=min(row.ep, gpus))


def _options(recipe: Mapping[str, Any], in_flight: int) -> dict[str, Any]:
    """Return a recipe's settings as scenario options.

    Raises
    ------
    CatalogError : the recipe has a setting that nothing reads.
    """
    left = dict(recipe)
    options: dict[str, Any] = {"max_num_seqs": min(int(left.pop("max_num_seqs", in_flight)), 1024),
                               "kv_cache_dtype": "auto", "enable_prefix_caching": False}
    if "cudagraphs" in left:
        named = left.pop("cudagraphs")
        options["cudagraph_mode"] = _GRAPHS.get(named, named)
    if "speculative_tokens" in left:
        options |= {"speculative_method": "mtp", "speculative_acceptance": RANDOM_TOKENS_ACCEPTANCE}
    options |= {_OPTION_NAMES.get(name, name): left.pop(name) for name in _OPTIONS if name in left}
    unread = sorted(left.keys() - RECORDED_ONLY)
    if unread:
        raise CatalogError(f"hardware_db/recipes/{RECIPES}.toml: a recipe sets {', '.join(unread)}, which nothing "
                           f"reads; correct the name, or add it to RECORDED_ONLY in planner/measured/inferencex.py")
    return options


@functools.cache
def inferencex_load(isl: int, osl: int, prompts: int, ratio: float, *, is_burst: bool) -> Trace:
    """Return the client's prompts: InferenceX draws lengths from [0.8 · len, len] with seed 0, inputs first.

    `ratio` is the engine's number of tokens for each token of a prompt [1].
    """
    if not is_burst:
        return burst(np.full(prompts, isl), np.full(prompts, osl), "fixed lengths")
    rng = np.random.RandomState(0)
    inputs, outputs = (rng.randint(int(0.8 * n), n + 1, prompts) for n in (isl, osl))
    return burst(np.rint(ratio * inputs).astype(int), outputs, "inferencex")
