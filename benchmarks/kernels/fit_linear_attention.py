"""Fit the gated delta net's constants to the measured tables and write `hardware_db/kernels/linear_attention.toml`."""

import argparse
from pathlib import Path
from typing import Any

import polars as pl
from fit_attention import Row, columns, is_cold, prior_rows, show
from fitting import ROOT, SOURCE, SYSTEMS, fit, gpu_of, tables, write_fits

from planner.catalog.gpus import Gpu
from planner.steptime.operators.linear_attention import LinearDecode, LinearPrompt, linear_decode_s, linear_prompt_s

START = {"floor_s": 1e-5, "bandwidth_frac": 0.4, "s_per_serial_token": 2e-8}
BOUNDS = {"floor_s": (1e-7, 1e-3), "bandwidth_frac": (0.01, 1.0), "s_per_serial_token": (1e-12, 1e-6)}
KEYS = ("engine", "phase", "dtype", "kv_cache_dtype", "state_bytes_per_element")
HEADING = """Constants of steptime/operators/linear_attention.py, by GPU, engine and phase; Qwen3.5's dimensions.
Written by benchmarks/kernels/fit_linear_attention.py: causal convolution plus delta rule, without projections and
norms. context: 1-16 prompts of 128-16384 tokens. generation: 1-256 sequences; left out where the states lie in the L2
cache between the runs (rule as in attention.toml), as they do not in serving. state_bytes_per_element: mean of reading
and writing the recurrent state: 3 explains the slopes of fused_recurrent_gated_delta_rule on all GPUs, 4 (fp32) those
of its packed_decode variant.
gpu = "prior": medians of the GPUs above, for one that nobody measured."""


def state_bytes(table: pl.DataFrame) -> float:
    """Return what the decode kernel reads and writes of a state's element, on average [B]: inferred from the slopes."""
    return 4.0 if any("packed_decode" in kernel for kernel in table["kernel_source"].unique()) else 3.0


def operator_times(table: pl.DataFrame, phase: str) -> pl.DataFrame:
    """Add up convolution and delta rule of each shape; shapes with only one of them are left out."""
    shape = ("batch_size", "seq_len", "num_k_heads", "num_v_heads")
    table = table.filter(pl.col("phase") == phase).with_columns(
        is_conv=pl.col("kernel_source").str.contains("conv1d"))
    table = table.group_by(*shape, "is_conv").agg(pl.col("latency").mean())
    table = table.group_by(shape).agg(pl.col("latency").sum(), parts=pl.len()).filter(pl.col("parts") == 2)
    if phase == "context":
        tokens = pl.col("batch_size") * pl.col("seq_len")
        return table.filter(pl.col("seq_len").is_between(128, 16384), pl.col("batch_size") <= 16, tokens <= 65536)
    return table.filter(pl.col("batch_size") <= 256)


def problem(table: pl.DataFrame, gpu: Gpu, phase: str, element_bytes: float) -> tuple[Any, Any]:
    """Return the model as a function of its constants, and the measured times [s]."""
    batch, length, k_heads, v_heads, latency = columns(
        table, "batch_size", "seq_len", "num_k_heads", "num_v_heads", "latency")
    shape: dict[str, Any] = {"head_k_dim": 128, "head_v_dim": 128, "conv_kernel_dim": 4,
                             "state_bytes_per_element": element_bytes,
                             "bandwidth_bytes_per_s": gpu.hbm_bandwidth_bytes_per_s}
    if phase == "context":
        return lambda **c: linear_prompt_s(batch * length, batch, num_k_heads=k_heads, num_v_heads=v_heads, **shape,
                                           constants=LinearPrompt(**c)), latency * 1e-3
    cold = is_cold(batch * v_heads * 128 * 128 * 4.0, gpu)
    batch, k_heads, v_heads, latency = (x[cold] for x in (batch, k_heads, v_heads, latency))
    return lambda **c: linear_decode_s(batch, num_k_heads=k_heads, num_v_heads=v_heads, **shape,
                                       constants=LinearDecode(**c)), latency * 1e-3


def fit_system(system: str, phase: str) -> list[Row]:
    """Fit every engine of one system and phase."""
    gpu = gpu_of(system)
    rows = []
    for (engine, version), whole in tables(system, "linear_attention", "gdn_perf").items():
        element_bytes = state_bytes(whole)
        model, measured = problem(operator_times(whole, phase), gpu, phase, element_bytes)
        if len(measured) < 10:
            continue
        start = {name: value for name, value in START.items() if phase == "context" or name != "s_per_serial_token"}
        constants, quality = fit(model, start, BOUNDS, measured)
        rows.append({"gpu": gpu.name, "engine": engine, "version": version, "phase": phase, "dtype": "bfloat16",
                     "kv_cache_dtype": "any", "state_bytes_per_element": element_bytes, **constants, **quality,
                     "source": SOURCE})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=ROOT / "hardware_db/kernels/linear_attention.toml")
    output = parser.parse_args().output
    rows = [row for phase in ("context", "generation") for system in SYSTEMS for row in fit_system(system, phase)]
    show(rows, tuple(START))
    write_fits(output, HEADING, [*rows, *prior_rows(rows, KEYS, tuple(START))])


if __name__ == "__main__":
    main()
