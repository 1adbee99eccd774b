"""Fit attention's constants to the measured tables and write `hardware_db/kernels/attention.toml`."""

import argparse
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import polars as pl
from fitting import KERNELS, ROOT, SOURCE, SYSTEMS, fit, gpu_of, tables, write_fits

from planner.catalog.catalog_files import load_gpu
from planner.catalog.gpus import Gpu
from planner.steptime.operators.attention import (
    DecodeAttention,
    PromptAttention,
    decode_attention_s,
    prompt_attention_s,
)

L2_BYTES = {"a100-sxm": 40e6, "h100-sxm": 50e6, "h200-sxm": 50e6, "b200-sxm": 126e6, "b300-sxm": 126e6,
            "gb200": 126e6, "l40s": 96e6, "rtx-pro-6000": 128e6, "rtx-4090": 72e6}  # vendor's architecture papers
BYTES = {"bfloat16": 2.0, "fp8": 1.0}
PROMPT_START = {"floor_s": 1e-5, "flops_frac": 0.7, "softmax_flops_per_pair": 100.0, "bandwidth_frac": 0.5,
                "s_per_token_head": 1e-10}
PROMPT_BOUNDS = {"floor_s": (1e-7, 1e-3), "flops_frac": (0.01, 1.0), "softmax_flops_per_pair": (0.1, 2e3),
                 "bandwidth_frac": (0.05, 1.0), "s_per_token_head": (1e-13, 1e-7)}
DECODE_START = {"floor_s": 1e-5, "bandwidth_frac": 0.8, "s_per_seq_head": 1e-9}
DECODE_BOUNDS = {"floor_s": (1e-7, 1e-3), "bandwidth_frac": (0.01, 1.0), "s_per_seq_head": (1e-13, 1e-6)}
PERFECT = {"floor_s": 0.0, "bandwidth_frac": 1.0, "s_per_seq_head": 0.0}  # a decode at the peak
SINK_KERNEL, SINK_WIDTHS = "vllm_triton_attn", (192,)
SINK_GPUS = ("l40s", "rtx-pro-6000")  # on the others that were measured, other kernels have sinks
SINK_HEADING = """Constants of steptime/operators/attention.py for layers with attention sinks, where no kernel but
Triton's has them; written by benchmarks/kernels/fit_attention.py. head_dim 192, keys and values in FP8;
softmax_flops_per_pair is that of rtx-pro-6000 in attention.toml. gpu = "prior": medians of the GPUs above."""
CONSTANTS = tuple(dict.fromkeys((*PROMPT_START, *DECODE_START)))
HEADING = """Constants of steptime/operators/attention.py, by GPU, engine, phase and dtypes.
Written by benchmarks/kernels/fit_attention.py from operator times measured with the engines' kernels; head_dim 64,
128 and 256, at least 8 query heads, 4 to 16 for each key-value head, with and without windows. context: 1-16 prompts
of 128-16384 tokens. generation: 1-256 sequences of 128-32768 tokens; left out where the KV lies in the L2 cache
between the runs (up to 1.5 times its size, from 0.1 times or 2 us of HBM on), as it does not in serving. rtx-4090:
softmax_flops_per_pair is that of rtx-pro-6000, as one model was measured there.
gpu = "prior": medians of the GPUs above, for one that nobody measured."""

Row = dict[str, Any]


def main_kernel(table: pl.DataFrame) -> pl.DataFrame:
    """Keep the kernel with the most rows: tables mix an engine's default with the ones that it falls back to."""
    counts = table["kernel_source"].value_counts().sort("count", "kernel_source")
    return table.filter(pl.col("kernel_source") == counts["kernel_source"][-1])


def columns(table: pl.DataFrame, *names: str) -> list[Any]:
    return [table[name].to_numpy().astype(float) for name in names]


def is_cold(footprint_bytes: Any, gpu: Gpu) -> Any:
    """Whether an input of this size is read from HBM as in serving, or so small that it does not matter."""
    small = min(0.1 * L2_BYTES[gpu.name], 2e-6 * gpu.hbm_bandwidth_bytes_per_s)
    return (footprint_bytes < small) | (footprint_bytes > 1.5 * L2_BYTES[gpu.name])


def select(table: pl.DataFrame, phase: str, widths: Sequence[int] = (64, 128, 256)) -> pl.DataFrame:
    """Keep serving's shapes, with a window of 0 where the table has no windows."""
    if "window_size" not in table.columns:
        table = table.with_columns(window_size=pl.lit(0))
    heads = pl.col("num_heads")
    grouped = (heads / pl.col("num_key_value_heads")).is_between(4, 16)
    table = table.filter(pl.col("head_dim").is_in(widths), heads >= 8, grouped)
    if phase == "context":
        tokens = pl.col("batch_size") * pl.col("isl")
        return table.filter(pl.col("isl").is_between(128, 16384), pl.col("batch_size") <= 16, tokens <= 65536)
    return table.filter(pl.col("step").is_between(127, 32767), pl.col("batch_size") <= 256)


def context_problem(table: pl.DataFrame, gpu: Gpu, dtype: str, kv_dtype: str) -> tuple[Any, Any]:
    """Return the model as a function of its constants, and the measured times [s]."""
    batch, isl, window, heads, kv_heads, dim, latency = columns(
        table, "batch_size", "isl", "window_size", "num_heads", "num_key_value_heads", "head_dim", "latency")
    seen = np.where(window > 0, np.minimum(window, isl), isl)
    pairs = batch * (seen * (seen + 1) / 2 + (isl - seen) * seen)

    def model(**constants: float) -> Any:
        return prompt_attention_s(
            batch * isl, 0.0, pairs, num_heads=heads, num_kv_heads=kv_heads, head_dim=dim,
            kv_bytes_per_element=BYTES[kv_dtype], bandwidth_bytes_per_s=gpu.hbm_bandwidth_bytes_per_s,
            flops_per_s=gpu.flops_per_s["fp8" if dtype == "fp8" else "bf16"], constants=PromptAttention(**constants))

    return model, latency * 1e-3


def generation_problem(table: pl.DataFrame, gpu: Gpu, dtype: str, kv_dtype: str) -> tuple[Any, Any]:
    """Return the model as a function of its constants, and the measured times [s], without those from the L2 cache."""
    batch, step, window, heads, kv_heads, dim, latency = columns(
        table, "batch_size", "step", "window_size", "num_heads", "num_key_value_heads", "head_dim", "latency")
    context = batch * np.where(window > 0, np.minimum(window, step + 1), step + 1)
    cold = is_cold(2 * context * kv_heads * dim * BYTES[kv_dtype], gpu)
    batch, context, heads, kv_heads, dim, latency = (
        x[cold] for x in (batch, context, heads, kv_heads, dim, latency))

    def model(**constants: float) -> Any:
        return decode_attention_s(
            batch, context, num_heads=heads, num_kv_heads=kv_heads, head_dim=dim,
            kv_bytes_per_element=BYTES[kv_dtype], bandwidth_bytes_per_s=gpu.hbm_bandwidth_bytes_per_s,
            flops_per_s=gpu.flops_per_s["bf16"], constants=DecodeAttention(**constants))

    return model, latency * 1e-3


PROBLEMS = {"context": (context_problem, PROMPT_START, PROMPT_BOUNDS),
            "generation": (generation_problem, DECODE_START, DECODE_BOUNDS)}


def fit_system(system: str, phase: str) -> list[Row]:
    """Fit every engine and pair of dtypes of one system and phase."""
    gpu = gpu_of(system)
    problem, start, bounds = PROBLEMS[phase]
    rows = []
    for (engine, version), whole in tables(system, "attention", f"{phase}_attention_perf").items():
        chosen = select(whole, phase)
        for (dtype, kv_dtype), table in sorted(chosen.group_by("attn_dtype", "kv_cache_dtype"), key=lambda x: x[0]):
            table = main_kernel(table)
            model, measured = problem(table, gpu, str(dtype), str(kv_dtype))
            if len(measured) < 300:
                continue
            if phase == "generation" and (impossible := np.mean(measured < model(**PERFECT))) > 0.05:
                print(f"{gpu.name} {engine} {version} {phase} {dtype}/{kv_dtype}: left out, {impossible:.0%} of the "
                      "times are shorter than reading the KV at the peak")
                continue
            constants, quality = fit(model, start, bounds, measured)
            rows.append({"gpu": gpu.name, "engine": engine, "version": version, "phase": phase, "dtype": dtype,
                         "kv_cache_dtype": kv_dtype, "kernel": table["kernel_source"][0], **constants, **quality,
                         "source": SOURCE})
    return rows


def fit_sinks(system: str, phase: str, softmax: float) -> list[Row]:
    """Fit vLLM's Triton kernel, which models with attention sinks run where no other kernel has them.

    Its tables have heads of one width, which cannot tell softmax's cost from the share of the peak.
    """
    gpu, rows = gpu_of(system), []
    problem, start, bounds = PROBLEMS[phase]
    free = {name: value for name, value in start.items() if name != "softmax_flops_per_pair"}
    given = {"softmax_flops_per_pair": softmax} if phase == "context" else {}
    for (engine, version), whole in tables(system, "attention", f"{phase}_attention_perf").items():
        table = select(whole.filter(pl.col("kernel_source") == SINK_KERNEL), phase, SINK_WIDTHS)
        if not table.height or gpu.name not in SINK_GPUS:
            continue
        model, measured = problem(table, gpu, "bfloat16", "fp8")
        constants, quality = fit(functools.partial(model, **given), free, bounds, measured)
        rows.append({"gpu": gpu.name, "engine": engine, "version": version, "phase": phase, "dtype": "bfloat16",
                     "kv_cache_dtype": "fp8", "kernel": SINK_KERNEL, **constants, **given, **quality, "source": SOURCE})
    return rows


def consumer_problem(table: pl.DataFrame, gpu: Gpu, phase: str, softmax: float) -> tuple[Any, Any]:
    """Return model and times of one phase of a consumer table: Llama-3.1-8B, one layer, 16-bit."""
    shape = {"num_heads": 32, "num_kv_heads": 8, "head_dim": 128, "kv_bytes_per_element": 2.0,
             "bandwidth_bytes_per_s": gpu.hbm_bandwidth_bytes_per_s, "flops_per_s": gpu.flops_per_s["bf16"]}
    chunk, cached, batch, step, micros = columns(
        table, "prefill_chunk", "kv_prefill", "n_decode", "kv_decode", "time_us")
    if phase == "context":
        keep = (batch == 0) & (chunk >= 128)
        chunk, cached, micros = chunk[keep], cached[keep], micros[keep]
        pairs = chunk * cached + chunk * (chunk + 1) / 2
        return lambda **c: prompt_attention_s(
            chunk, cached, pairs, **shape, constants=PromptAttention(softmax_flops_per_pair=softmax, **c)
        ), micros * 1e-6
    keep = (chunk == 0) & (step >= 128) & is_cold(4096.0 * batch * step, gpu)
    batch, step, micros = batch[keep], step[keep], micros[keep]
    return lambda **c: decode_attention_s(batch, batch * step, **shape, constants=DecodeAttention(**c)), micros * 1e-6


def fit_consumer(softmax: float) -> list[Row]:
    """Fit the RTX 4090; softmax's cost is given, as one head_dim cannot tell it from the share of the peak."""
    gpu = load_gpu("rtx-4090")
    table = pl.read_csv(KERNELS / "consumer/RTX4090/meta-llama/Llama-3.1-8B/bf16/tp1/attention.csv")
    rows = []
    for phase, (_, start, bounds) in PROBLEMS.items():
        model, measured = consumer_problem(table, gpu, phase, softmax)
        free = {name: value for name, value in start.items() if name != "softmax_flops_per_pair"}
        constants, quality = fit(model, free, bounds, measured)
        if phase == "context":
            constants["softmax_flops_per_pair"] = softmax
        rows.append({"gpu": gpu.name, "engine": "vllm", "version": "0.19.0", "phase": phase, "dtype": "bfloat16",
                     "kv_cache_dtype": "bfloat16", "kernel": "default", **constants, **quality,
                     "source": "LLMServingSim profiles of vLLM (MIT), read 2026-11"})
    return rows


def prior_rows(rows: Sequence[Row], keys: Sequence[str], constants: Sequence[str]) -> list[Row]:
    """Return the median of each constant over the GPUs of each engine, phase and dtypes.

    One GPU says little of others: where another engine's kernel was measured on several, that one's median stands.
    """
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    several = {key[1:] for key, group in groups.items() if len(group) > 1}
    groups = {key: group for key, group in groups.items() if len(group) > 1 or key[1:] not in several}
    return [
        {"gpu": "prior", **dict(zip(keys, key, strict=True)),
         **{name: median(row[name] for row in group) for name in constants if name in group[0]},
         "num_gpus": len(group), "source": "median of the GPUs above"}
        for key, group in sorted(groups.items())
    ]


def show(rows: Sequence[Mapping[str, Any]], constants: Sequence[str]) -> None:
    """Print one line a fit."""
    for row in rows:
        keys = ("gpu", "engine", "phase", "dtype", "kv_cache_dtype")
        names = [str(row[key]) for key in keys if key in row]
        found = ", ".join(f"{name} {row[name]:.3g}" for name in constants if name in row)
        print(f"{' '.join(names):62} n {row['num_points']:5} median {row['median_ape']:.1%} p90 {row['p90_ape']:.0%} "
              f"bias {row['bias']:+.1%}  {found}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=ROOT / "hardware_db/kernels/attention.toml")
    output = parser.parse_args().output
    rows = [row for phase in PROBLEMS for system in SYSTEMS for row in fit_system(system, phase)]
    like = next(row for row in rows if (row["gpu"], row["engine"], row["phase"], row["kv_cache_dtype"])
                == ("rtx-pro-6000", "vllm", "context", "bfloat16"))
    rows += fit_consumer(like["softmax_flops_per_pair"])
    keys = ("engine", "phase", "dtype", "kv_cache_dtype")
    show(rows, CONSTANTS)
    write_fits(output, HEADING, [*rows, *prior_rows(rows, keys, CONSTANTS)])
    sinks = [row for phase in PROBLEMS for system in SYSTEMS
             for row in fit_sinks(system, phase, like["softmax_flops_per_pair"])]
    show(sinks, CONSTANTS)
    write_fits(output.with_name("sink_attention.toml"), SINK_HEADING, [*sinks, *prior_rows(sinks, keys, CONSTANTS)])


if __name__ == "__main__":
    main()
