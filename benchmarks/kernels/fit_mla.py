"""Fit multi-head latent attention's constants to the measured tables and write `hardware_db/kernels/mla.toml`."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
from fit_attention import (
    BYTES,
    PROMPT_BOUNDS,
    PROMPT_START,
    Row,
    columns,
    is_cold,
    main_kernel,
    prior_rows,
    show,
)
from fitting import ROOT, SOURCE, SYSTEMS, fit, gpu_of, tables, write_fits

from planner.catalog.gpus import Gpu
from planner.operators.attention import PromptAttention, smooth_max
from planner.operators.mla import MlaBmm, MlaDecode, mla_bmm_s, mla_decode_coefficients, mla_prompt_coefficients
from planner.steptime.attention_time import MLA_HEADS

DECODE_START = {"floor_s": 1e-5, "bandwidth_frac": 0.8, "flops_frac": 0.6, "s_per_seq_head": 1e-10,
                "s_per_own_token": 3e-10}
DECODE_BOUNDS = {"floor_s": (1e-7, 1e-3), "bandwidth_frac": (0.01, 1.0), "flops_frac": (0.01, 1.0),
                 "s_per_seq_head": (1e-13, 1e-7), "s_per_own_token": (1e-13, 1e-8)}
HEADS = {MLA_HEADS[0]: (1, 2, 4, 8), **{heads: (heads,) for heads in MLA_HEADS[1:]}}  # of decode kernels; fits
BMM_START = {"floor_s": 3e-6, "bandwidth_frac": 0.7, "flops_frac": 0.6}
BMM_BOUNDS = {"floor_s": (1e-7, 1e-3), "bandwidth_frac": (0.01, 1.0), "flops_frac": (0.01, 1.0)}
GEMM_START = {"gemm_bandwidth_frac": 0.7, "gemm_flops_frac": 0.6}  # of a module's projections; not the kernel's own
GEMM_BOUNDS = {"gemm_bandwidth_frac": (0.1, 1.0), "gemm_flops_frac": (0.1, 1.0)}
MODULE_BOUNDS = {"flops_frac": (0.01, 0.85)}  # at 16384 tokens no module exceeds 0.85; short ones leave it open
CONSTANTS = tuple(dict.fromkeys((*PROMPT_START, *DECODE_START, *GEMM_START)))
KEYS = ("engine", "phase", "includes", "dtype", "kv_cache_dtype", "num_heads")
FEWEST_POINTS = 30  # of a fit
HEADING = """Constants of planner/operators/mla.py, by GPU, engine, phase and dtypes; DeepSeek-V3's dimensions.
Written by benchmarks/kernels/fit_mla.py from operator times measured with the engines' kernels, 1 to 128 heads a GPU.
includes = "kernel": attention alone. "module": measured with q_a, kv_a, q_b, absorbed or expanding kv_b, o projections,
norms and RoPE, with 16-bit weights; the projections' time is fitted beside (gemm_*) and taken out, but the floor covers
all launches of the module, and what does not depend on context is known less well. num_heads: decode kernels tile a
GPU's heads, and 32 or 64 cost more than 16 or 128 on some, so each has a fit; 8 is of 1 to 8. phase "bmm": one absorbed
projection of 1-1024 tokens; dtype is that of its weights, which lie in the L2 cache between the runs, so that its
bandwidth_frac is too high for serving. Shapes and L2 rule as in attention.toml.
gpu = "prior": medians of the GPUs above, for one that nobody measured."""
# SGLang's kernels that were measured on prompts as decodes are served, queries multiplied with the latent, 3.4 times
# the arithmetic. The engine expands keys and values of fresh prompts (`_handle_attention_backend`, deepseek_v2.py),
# so another engine's kernel stands in.
ABSORBED = ("flash_attention", "triton")
RANK, NOPE, ROPE, VALUE, HIDDEN, QUERY_RANK = 512, 128, 64, 128, 7168, 1536  # DeepSeek-V3


def projection_parameters(heads: Any) -> Any:
    """Return the parameters of all projections of one attention module with this many heads."""
    down = HIDDEN * (QUERY_RANK + RANK + ROPE)
    return down + heads * (QUERY_RANK * (NOPE + ROPE) + RANK * (NOPE + VALUE) + HIDDEN * VALUE)


def projections_s(tokens: Any, heads: Any, gpu: Gpu, *, gemm_bandwidth_frac: float, gemm_flops_frac: float) -> Any:
    """Return the time of a module's projections with 16-bit weights [s]."""
    parameters = projection_parameters(heads)
    stream = 2.0 * parameters / (gpu.hbm_bandwidth_bytes_per_s * gemm_bandwidth_frac)
    return smooth_max(stream, 2.0 * tokens * parameters / (gpu.flops_per_s["bf16"] * gemm_flops_frac))


def split(constants: dict[str, float]) -> tuple[dict[str, float], dict[str, float]]:
    """Return a module's constants as the kernel's and the projections'."""
    gemm = {name: value for name, value in constants.items() if name in GEMM_START}
    return {name: value for name, value in constants.items() if name not in gemm}, gemm


def context_problem(table: pl.DataFrame, gpu: Gpu, dtype: str) -> tuple[Any, Any]:
    """Return the model as a function of its constants, and the measured times [s]."""
    tokens = pl.col("batch_size") * pl.col("isl")
    table = table.filter(pl.col("isl").is_between(128, 16384), pl.col("batch_size") <= 16, tokens <= 65536)
    batch, isl, heads, latency = columns(table, "batch_size", "isl", "num_heads", "latency")

    def model(**constants: float) -> Any:
        kernel, gemm = split(constants)
        base, per_token, _, per_pair = mla_prompt_coefficients(
            num_heads=heads, qk_nope_head_dim=NOPE, qk_rope_head_dim=ROPE, v_head_dim=VALUE,
            bandwidth_bytes_per_s=gpu.hbm_bandwidth_bytes_per_s,
            flops_per_s=gpu.flops_per_s["fp8" if dtype == "fp8" else "bf16"], constants=PromptAttention(**kernel))
        attention = base + batch * isl * per_token + batch * isl * (isl + 1) / 2 * per_pair
        return attention + (projections_s(batch * isl, heads, gpu, **gemm) if gemm else 0.0)

    return model, latency * 1e-3


def generation_problem(table: pl.DataFrame, gpu: Gpu, kv_dtype: str) -> tuple[Any, Any]:
    """Return the model as a function of its constants, and the measured times [s]."""
    table = table.filter(pl.col("step").is_between(127, 32768), pl.col("batch_size") <= 256)
    batch, context, heads, latency = columns(table, "batch_size", "step", "num_heads", "latency")
    cold = is_cold(batch * context * (RANK + ROPE) * BYTES[kv_dtype], gpu)
    batch, context, heads, latency = (x[cold] for x in (batch, context, heads, latency))

    def model(**constants: float) -> Any:
        kernel, gemm = split(constants)
        base, per_context_token = mla_decode_coefficients(
            batch, num_heads=heads, kv_lora_rank=RANK, qk_rope_head_dim=ROPE, kv_bytes_per_element=BYTES[kv_dtype],
            bandwidth_bytes_per_s=gpu.hbm_bandwidth_bytes_per_s, flops_per_s=gpu.flops_per_s["bf16"],
            constants=MlaDecode(**kernel))
        attention = base + batch * context * per_context_token
        return attention + (projections_s(batch, heads, gpu, **gemm) if gemm else 0.0)

    return model, latency * 1e-3


def bmm_problem(table: pl.DataFrame, gpu: Gpu, dtype: str) -> tuple[Any, Any]:
    """Return the model as a function of its constants, and the measured times [s]."""
    table = table.filter(pl.col("num_tokens") <= 1024, pl.col("num_heads") >= 4)
    tokens, heads, latency = columns(table, "num_tokens", "num_heads", "latency")

    def model(**constants: float) -> Any:
        return mla_bmm_s(tokens, num_heads=heads, kv_lora_rank=RANK, head_dim=NOPE, bytes_per_element=BYTES[dtype],
                         bandwidth_bytes_per_s=gpu.hbm_bandwidth_bytes_per_s, constants=MlaBmm(**constants),
                         flops_per_s=gpu.flops_per_s.get("fp8" if dtype == "fp8" else "bf16", gpu.flops_per_s["bf16"]))

    return model, latency * 1e-3


def measured_tables(system: str, phase: str) -> Iterator[tuple[str, str, str, pl.DataFrame]]:
    """Yield engine, version, "kernel" or "module", and table; the kernel first where an engine has both."""
    stems = {"kernel": f"{phase}_mla_perf", "module": f"mla_{phase}_module_perf"}
    for includes, stem in stems.items():
        for (engine, version), table in tables(system, "mla", stem).items():
            if includes == "module":
                table = table.filter(pl.col("gemm_type") == "bfloat16")
            if phase == "context" and table["kernel_source"].is_in(ABSORBED).any():
                print(f"{system} {engine}: its prompts were measured with the latent; left out")
                continue
            yield engine, version, includes, table


def fit_system(system: str, phase: str) -> list[Row]:
    """Fit every engine and pair of dtypes of one system and phase."""
    gpu = gpu_of(system)
    rows = []
    for engine, version, includes, whole in measured_tables(system, phase):
        for (dtype, kv_dtype), table in sorted(whole.group_by("mla_dtype", "kv_cache_dtype"), key=lambda x: x[0]):
            table = main_kernel(table) if phase == "generation" else table
            for heads, part in by_heads(table, phase, includes):
                model, measured = (context_problem(part, gpu, str(dtype)) if phase == "context"
                                   else generation_problem(part, gpu, str(kv_dtype)))
                if len(measured) < FEWEST_POINTS:
                    continue
                start, bounds = (PROMPT_START, PROMPT_BOUNDS) if phase == "context" else (DECODE_START, DECODE_BOUNDS)
                if includes == "module":
                    start, bounds = start | GEMM_START, bounds | GEMM_BOUNDS | MODULE_BOUNDS
                constants, quality = fit(model, start, bounds, measured)
                rows.append({"gpu": gpu.name, "engine": engine, "version": version, "phase": phase,
                             "includes": includes, "dtype": dtype, "kv_cache_dtype": kv_dtype, "num_heads": heads,
                             **constants, **quality, "source": SOURCE})
    return rows


def by_heads(table: pl.DataFrame, phase: str, includes: str) -> Iterator[tuple[int | str, pl.DataFrame]]:
    """Yield the tables that have a fit of their own: of each number of heads for decode kernels, else the whole."""
    if phase == "context" or includes == "module":
        yield "any", table
        return
    yield from ((heads, table.filter(pl.col("num_heads").is_in(counts))) for heads, counts in HEADS.items())


def fit_bmm(system: str) -> list[Row]:
    """Fit the absorbed projections of every engine on one system."""
    gpu = gpu_of(system)
    rows = []
    for (engine, version), whole in tables(system, "mla_bmm", "mla_bmm_perf").items():
        for (dtype,), table in sorted(whole.group_by("bmm_dtype"), key=lambda x: x[0]):
            model, measured = bmm_problem(table, gpu, str(dtype))
            constants, quality = fit(model, BMM_START, BMM_BOUNDS, measured)
            rows.append({"gpu": gpu.name, "engine": engine, "version": version, "phase": "bmm", "includes": "kernel",
                         "dtype": dtype, "kv_cache_dtype": "any", "num_heads": "any", **constants, **quality,
                         "source": SOURCE})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=ROOT / "hardware_db/kernels/mla.toml")
    output = parser.parse_args().output
    rows = [row for phase in ("context", "generation") for system in SYSTEMS for row in fit_system(system, phase)]
    rows += [row for system in SYSTEMS for row in fit_bmm(system)]
    show(rows, CONSTANTS)
    write_fits(output, HEADING, [*rows, *prior_rows(rows, KEYS, CONSTANTS)])


if __name__ == "__main__":
    main()
