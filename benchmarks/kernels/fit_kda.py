"""Fit Kimi delta attention's constants to the measured tables and write `hardware_db/kernels/kda.toml`."""

import argparse
from pathlib import Path

import polars as pl
from fit_attention import Row, prior_rows, show
from fit_linear_attention import BOUNDS, START, problem
from fitting import ROOT, SYSTEMS, fit, gpu_of, write_fits

from planner.errors import UsageError

SHAPE = ("batch_size", "seq_len", "num_k_heads", "num_v_heads")
SOURCE = "NVIDIA AIConfigurator operator measurements (Apache-2.0), aiconfigurator-core 0.12.0 on PyPI, read 2026-11"
KEYS = ("engine", "phase", "dtype", "kv_cache_dtype", "state_bytes_per_element")
# An engine's kernels, the one first that it prefers for the shapes that it has.
KERNELS = {"context": ("flashkda_fwd", "chunk_kda", "chunk_kda_with_fused_gate"),
           "generation": ("fused_kda_decode", "kda_fused_decode", "fused_recurrent_kda_packed_decode")}
WHOLE = ("fused_kda_decode", "kda_fused_decode")  # with the convolution in it
CONVOLUTIONS = {"context": "causal_conv1d_fn_qkv3", "generation": "causal_conv1d_update"}
FP32 = 4.0
HEADING = """Constants of steptime/operators/linear_attention.py for Kimi delta attention, by GPU, engine and phase.
Written by benchmarks/kernels/fit_kda.py: convolution plus delta rule, without projections and norms; 12 to 96 heads of
128. context: 1-16 prompts of 128-16384 tokens; the convolution before vLLM's kernel is SGLang's, since 0.4 to 1.4 ms of
host work were in its own (as the tables' notes say). generation: 1-256 sequences, as in linear_attention.toml.
gpu = "prior": medians of the GPUs above, for one that nobody measured."""


def operator_times(folder: Path, engine: str, phase: str) -> tuple[str, str, pl.DataFrame]:
    """Return the version of an engine's tables, its kernel for most shapes, and the times with the convolution."""
    path = next(iter(sorted((folder / "kda" / engine).glob("*/kda_perf.parquet"))))
    others = next(iter(sorted((folder / "kda/sglang").glob("*/kda_perf.parquet"))))
    kernels = {name: number for number, name in enumerate(KERNELS[phase])}
    table = pl.read_parquet(path).filter(pl.col("phase") == phase, pl.col("kernel_source").is_in(kernels))
    table = table.sort(pl.col("kernel_source").replace_strict(kernels)).unique(SHAPE, keep="first", maintain_order=True)
    convolution = pl.read_parquet(path if phase == "generation" else others).filter(
        pl.col("phase") == phase, pl.col("kernel_source") == CONVOLUTIONS[phase]).select(*SHAPE, more="latency")
    is_whole = pl.col("kernel_source").is_in(WHOLE)
    table = table.join(convolution, on=SHAPE, how="left").filter(is_whole | pl.col("more").is_not_null()).with_columns(
        latency=pl.col("latency") + pl.when(is_whole).then(0.0).otherwise(pl.col("more")))
    kernel = table["kernel_source"].mode().sort()[0]
    if phase == "context":
        tokens = pl.col("batch_size") * pl.col("seq_len")
        table = table.filter(pl.col("seq_len").is_between(128, 16384), pl.col("batch_size") <= 16, tokens <= 65536)
    return path.parent.name, kernel, table.filter(pl.col("batch_size") <= 256)


def fit_system(systems: Path, system: str, phase: str) -> list[Row]:
    """Fit both engines of one system and phase."""
    gpu, rows = gpu_of(system), []
    for engine in ("sglang", "vllm"):
        version, kernel, table = operator_times(systems / system, engine, phase)
        model, measured = problem(table, gpu, phase, FP32)
        start = {name: value for name, value in START.items() if phase == "context" or name != "s_per_serial_token"}
        constants, quality = fit(model, start, BOUNDS, measured)
        rows.append({"gpu": gpu.name, "engine": engine, "version": version, "kernel": kernel, "phase": phase,
                     "dtype": "bfloat16", "kv_cache_dtype": "any", "state_bytes_per_element": FP32,
                     **constants, **quality, "source": SOURCE})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("systems", type=Path, help="aiconfigurator_core/systems/data of the unpacked wheel")
    parser.add_argument("--output", type=Path, default=ROOT / "hardware_db/kernels/kda.toml")
    given = parser.parse_args()
    measured = [system for system in SYSTEMS if (given.systems / system / "kda").is_dir()]
    if not measured:
        raise UsageError(f"{given.systems}: has no table of Kimi delta attention; give the folder of the systems' data")
    rows = [row for phase in ("context", "generation") for system in measured
            for row in fit_system(given.systems, system, phase)]
    show(rows, tuple(START))
    write_fits(given.output, HEADING, [*rows, *prior_rows(rows, KEYS, tuple(START))])


if __name__ == "__main__":
    main()
