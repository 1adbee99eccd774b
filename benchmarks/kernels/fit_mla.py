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
from planner.steptime.mla_time import MLA_HEADS
from planner.steptime.operators.attention import PromptAttention
from planner.steptime.operators.mla import MlaDecode, mla_decode_coefficients, mla_prompt_coefficients

DECODE_START = {"floor_s": 1e-5, "bandwidth_frac": 0.8, "flops_frac": 0.6, "s_per_seq_head": 1e-10,
                "s_per_own_token": 3e-10}
DECODE_BOUNDS = {"floor_s": (1e-7, 1e-3), "bandwidth_frac": (0.01, 1.0), "flops_frac": (0.01, 1.0),
                 "s_per_seq_head": (1e-13, 1e-7), "s_per_own_token": (1e-13, 1e-8)}
HEADS = {MLA_HEADS[0]: (1, 2, 4, 8), **{heads: (heads,) for heads in MLA_HEADS[1:]}}  # of decode kernels; fits
CONSTANTS = tuple(dict.fromkeys((*PROMPT_START, *DECODE_START)))
KEYS = ("engine", "phase", "dtype", "kv_cache_dtype", "num_heads")
FEWEST_POINTS = 30  # of a fit
HEADING = """Constants of steptime/operators/mla.py, by GPU, engine, phase and dtypes; DeepSeek-V3's dimensions.
Written by benchmarks/kernels/fit_mla.py from times of attention alone, measured with the engines' kernels, 1 to 128
heads a GPU. num_heads: decode kernels tile a GPU's heads, and 32 or 64 cost more than 16 or 128 on some, so each has a
fit; 8 is of 1 to 8. Shapes and L2 rule as in attention.toml.
gpu = "prior": medians of the GPUs above, for one that nobody measured."""
# SGLang's kernels that were measured on prompts as decodes are served, queries multiplied with the latent, 3.4 times
# the arithmetic. The engine expands keys and values of fresh prompts (`_handle_attention_backend`, deepseek_v2.py),
# so another engine's kernel stands in.
ABSORBED = ("flash_attention", "triton")
RANK, NOPE, ROPE, VALUE = 512, 128, 64, 128  # DeepSeek-V3


def context_problem(table: pl.DataFrame, gpu: Gpu, dtype: str) -> tuple[Any, Any]:
    """Return the model as a function of its constants, and the measured times [s]."""
    tokens = pl.col("batch_size") * pl.col("isl")
    table = table.filter(pl.col("isl").is_between(128, 16384), pl.col("batch_size") <= 16, tokens <= 65536)
    batch, isl, heads, latency = columns(table, "batch_size", "isl", "num_heads", "latency")

    def model(**constants: float) -> Any:
        base, per_token, _, per_pair = mla_prompt_coefficients(
            num_heads=heads, qk_nope_head_dim=NOPE, qk_rope_head_dim=ROPE, v_head_dim=VALUE,
            bandwidth_bytes_per_s=gpu.hbm_bandwidth_bytes_per_s,
            flops_per_s=gpu.flops_per_s["fp8" if dtype == "fp8" else "bf16"], constants=PromptAttention(**constants))
        return base + batch * isl * per_token + batch * isl * (isl + 1) / 2 * per_pair

    return model, latency * 1e-3


def generation_problem(table: pl.DataFrame, gpu: Gpu, kv_dtype: str) -> tuple[Any, Any]:
    """Return the model as a function of its constants, and the measured times [s].

    What one or two sequences take is bound by their own context's chain of tokens, from L2 as from HBM, and no other
    points show it: all of theirs count.
    """
    table = table.filter(pl.col("step").is_between(127, 131072), pl.col("batch_size") <= 256)
    batch, context, heads, latency = columns(table, "batch_size", "step", "num_heads", "latency")
    kept = is_cold(batch * context * (RANK + ROPE) * BYTES[kv_dtype], gpu) | (batch <= 2)
    batch, context, heads, latency = (x[kept] for x in (batch, context, heads, latency))

    def model(**constants: float) -> Any:
        base, per_context_token = mla_decode_coefficients(
            batch, num_heads=heads, kv_lora_rank=RANK, qk_rope_head_dim=ROPE, kv_bytes_per_element=BYTES[kv_dtype],
            bandwidth_bytes_per_s=gpu.hbm_bandwidth_bytes_per_s, flops_per_s=gpu.flops_per_s["bf16"],
            constants=MlaDecode(**constants))
        return base + batch * context * per_context_token

    return model, latency * 1e-3


def fit_system(system: str, phase: str) -> list[Row]:
    """Fit every engine and pair of dtypes of one system and phase."""
    gpu = gpu_of(system)
    start, bounds = (PROMPT_START, PROMPT_BOUNDS) if phase == "context" else (DECODE_START, DECODE_BOUNDS)
    rows = []
    for (engine, version), whole in tables(system, "mla", f"{phase}_mla_perf").items():
        if phase == "context" and whole["kernel_source"].is_in(ABSORBED).any():
            print(f"{system} {engine}: its prompts were measured with the latent; left out")
            continue
        for (dtype, kv_dtype), table in sorted(whole.group_by("mla_dtype", "kv_cache_dtype"), key=lambda x: x[0]):
            for heads, part in by_heads(main_kernel(table)) if phase == "generation" else [("any", table)]:
                model, measured = (context_problem(part, gpu, str(dtype)) if phase == "context"
                                   else generation_problem(part, gpu, str(kv_dtype)))
                if len(measured) < FEWEST_POINTS:
                    continue
                constants, quality = fit(model, start, bounds, measured)
                rows.append({"gpu": gpu.name, "engine": engine, "version": version, "phase": phase, "dtype": dtype,
                             "kv_cache_dtype": kv_dtype, "num_heads": heads, **constants, **quality, "source": SOURCE})
    return rows


def by_heads(table: pl.DataFrame) -> Iterator[tuple[int | str, pl.DataFrame]]:
    """Yield the tables of each number of heads that decode kernels have a fit for."""
    yield from ((heads, table.filter(pl.col("num_heads").is_in(counts))) for heads, counts in HEADS.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=ROOT / "hardware_db/kernels/mla.toml")
    output = parser.parse_args().output
    rows = [row for phase in ("context", "generation") for system in SYSTEMS for row in fit_system(system, phase)]
    show(rows, CONSTANTS)
    write_fits(output, HEADING, [*rows, *prior_rows(rows, KEYS, CONSTANTS)])


if __name__ == "__main__":
    main()
