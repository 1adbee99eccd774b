"""Fits `planner.steptime.operators.gemm` to measured dense GEMMs and writes hardware_db/kernels/gemm.toml."""

import argparse
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from fitting import KERNELS, ROOT, SOURCE, SYSTEMS, fit, gpu_of, tables, write_fits

from planner.catalog.catalog_files import load_model
from planner.model.projections import projections
from planner.steptime.operators.gemm import Floats, GemmConstants, gemm_s

Row = dict[str, Any]


class Format(NamedTuple):
    """Bytes of a weight with its scales and of an activation as multiplied, and the precision multiplied in."""

    weight: float
    activation: float
    precision: str


FORMATS = {"bfloat16": Format(2.0, 2.0, "bf16"), "fp8": Format(1.0, 1.0, "fp8"), "fp8_block": Format(1.0, 1.0, "fp8"),
           "nvfp4": Format(0.5625, 0.5625, "fp4"), "sq": Format(1.0, 1.0, "int8"), "int8_wo": Format(1.0, 2.0, "bf16"),
           "int4_wo": Format(0.516, 2.0, "bf16"), "w4a16_mxfp4": Format(0.53125, 2.0, "bf16"),
           "w4a8_mxfp4_mxfp8": Format(0.53125, 1.0, "fp8"), "fp8_block_trtllm": Format(1.0, 1.0, "fp8")}
# As many small batches, which stream weights, as large ones, half of them off the tile sizes.
TOKENS = (1, 2, 4, 8, 13, 16, 17, 32, 33, 48, 64, 65, 96, 128, 129, 192, 193, 256, 257, 512, 513, 768, 769, 1024, 1281,
          1536, 2048, 2305, 3072, 3585, 4096, 4097, 8192, 16384)
# Where weights of one shape, measured again and again, stay in the L2 cache [B].
L2_BYTES = {"l40s": 96e6, "rtx_pro_6000_server": 128e6, "rtx-4090": 72e6}
COPIED = "constants and errors are of"
HOST_BOUND_S = 25e-6  # a smallest call above it is launched by a slower host, which CUDA graphs hide
START = {"flops_frac": 0.7, "bandwidth_frac": 0.85, "quantize_bandwidth_frac": 0.5, "floor_s": 4e-6, "depth_s": 4e-10,
         "idle_outputs": 1e5, "sharpness": 3.0}
BOUNDS = {"flops_frac": (0.02, 1.0), "bandwidth_frac": (0.02, 1.0), "quantize_bandwidth_frac": (0.02, 1.0),
          "floor_s": (1e-7, 1e-3), "depth_s": (1e-13, 1e-8), "idle_outputs": (1.0, 3e6), "sharpness": (1.0, 20.0),
          "narrow_frac": (0.5, 1.0)}
# Ada's 16-bit kernels of one narrow tile are 10 % faster. Fitted elsewhere the constant is 1 on A100 and RTX PRO 6000,
# 0.98 to 0.99 on Hopper, 0.95 to 0.97 on B200, and errors are the same without it.
NARROW_START = {"l40s": 0.95}


CONSUMER = "rtx-4090"
CONSUMER_NOTE = ("one model, Llama-3.1-8B, in 16 bit, 1-2048 tokens; depth_s, idle_outputs, sharpness and narrow_frac "
                 "are of l40s: five shapes cannot tell them apart; weights that L2 could hold left out up to 512 "
                 "tokens")
# FlashInfer's product of block-scaled FP8 by TensorRT-LLM's kernel, on a B200: (m, n, µs), k = 7168; without the calls
# that the table's host bounds.
SMALL_BATCH = "fp8_block_trtllm"
SMALL_BATCH_K = 7168
SMALL_BATCH_TIMES = ((8, 24576, 47.136), (16, 24576, 47.104), (32, 24576, 47.392), (64, 24576, 69.92),
                     (128, 24576, 125.216), (256, 24576, 223.52), (1024, 24576, 826.192), (2048, 24576, 1632.544),
                     (1024, 576, 28.704), (2048, 576, 41.216), (4096, 576, 63.488))
SMALL_BATCH_SOURCE = "github.com/sgl-project/sglang/pull/13528 (Apache-2.0), read 2026-11"
# Products whose weights are read faster than the rows of one tile are multiplied. An H20 has 37 operations for a byte
# that it reads, an H100 295, and a token of Qwen3-8B and 32B takes three times as long in 16 bit as its weights take to
# read (Qwen's table of speeds): 64 rows account for it, the least of Hopper's instruction. Marlin's tiles have 16.
PADDED, PADDED_TOKENS = "h20", {"bfloat16": 64.0, "int4_wo": 16.0}
PADDED_SOURCE = ("prior medians, and the rows of a tile: qwen.readthedocs.io, speed benchmark of Qwen3 under SGLang "
                 "0.4.6 on H20, read 2026-11")
ORDER = (*SYSTEMS.values(), CONSUMER, PADDED, "prior")
HEADING = """Constants of steptime/operators/gemm.py; written by benchmarks/kernels/fit_gemm.py, not by hand.
Fractions are of the peaks in hardware_db/gpus. gpu = "prior" and engine = "prior": medians."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gpu", nargs="?", choices=ORDER[:-1],
                        help="fit this GPU only; the rows of all others, the priors' too, stay as they are")
    only = parser.parse_args().gpu
    path = ROOT / "hardware_db/kernels/gemm.toml"
    rows = [row for row in tomllib.loads(path.read_text(encoding="utf-8"))["fit"] if row["gpu"] != only] if only else []
    rows += [row for system, gpu in SYSTEMS.items() if only in (None, gpu) for row in fit_system(system)]
    if only in (None, SYSTEMS["b200_sxm"]):
        rows.append(fit_small_batch(rows))
    if only is None:
        rows += priors(rows, list(START), ("dtype",))
    if only in (None, CONSUMER):
        rows.append(fit_consumer(rows))
    if only in (None, PADDED):
        rows += padded(rows)
    write_fits(path, HEADING, sorted(rows, key=lambda row: ORDER.index(row["gpu"])))


def fit_system(system: str) -> list[Row]:
    """Fit every engine and dtype of one system, vLLM last: its host-bound tables lean on the others' fits."""
    rows: list[Row] = []
    found = tables(system, "gemm", "gemm_perf")
    for (engine, version), table in sorted(found.items(), key=lambda item: item[0][0] == "vllm"):
        for dtype in sorted(set(table["gemm_dtype"]) & set(FORMATS)):
            others = [row for row in rows if row["dtype"] == dtype]
            row = fit_dtype(system, engine, version, dtype, table.filter(pl.col("gemm_dtype") == dtype), others)
            if row is not None:
                rows.append(row)
                report(row)
    return rows


def fit_small_batch(rows: Sequence[Row]) -> Row:
    """Fit what was published of the kernel for small batches; its floor, and how it sums k, are as with one scale."""
    like = next(row for row in rows if (row["gpu"], row["engine"], row["dtype"]) == ("b200-sxm", "sglang", "fp8"))
    table = pl.DataFrame(SMALL_BATCH_TIMES, schema=("m", "n", "us"), orient="row").with_columns(k=SMALL_BATCH_K)
    free = ("flops_frac", "bandwidth_frac", "idle_outputs", "sharpness")
    copied = {name: like[name] for name in ("floor_s", "depth_s")}
    constants, quality = fit(lambda **given: predict("b200_sxm", SMALL_BATCH, table, copied | given),
                             {name: START[name] for name in free}, BOUNDS, table["us"].to_numpy() * 1e-6)
    row = {"gpu": "b200-sxm", "engine": "sglang", "version": "0.5.5", "dtype": SMALL_BATCH,
           "quantize_bandwidth_frac": 1.0, **copied, **constants, **quality, "source": SMALL_BATCH_SOURCE,
           "note": "floor_s, depth_s are of fp8; m 8 to 4096, n 576 and 24576"}
    report(row)
    return row


def fit_consumer(rows: Sequence[Row]) -> Row:
    """Fit the RTX 4090's shares of its peaks and its smallest call; the rest is the L40S's, of the same architecture.

    The LM head, four times as large as the next product, tells the smallest call from the bandwidth.
    """
    like = next(row for row in rows if (row["gpu"], row["engine"], row["dtype"]) == ("l40s", "vllm", "bfloat16"))
    table = select(CONSUMER, "bfloat16", consumer_table())
    free = ("flops_frac", "bandwidth_frac", "floor_s")
    copied = {name: like[name] for name in ("depth_s", "idle_outputs", "sharpness", "narrow_frac")}
    constants, quality = fit(lambda **given: predict(CONSUMER, "bfloat16", table, copied | given),
                             {name: START[name] for name in free}, BOUNDS, table["latency"].to_numpy() * 1e-3,
                             table["weight"].to_numpy())
    row = {"gpu": CONSUMER, "engine": "vllm", "version": "0.19.0", "dtype": "bfloat16", "quantize_bandwidth_frac": 1.0,
           **constants, **copied, **quality, "source": "LLMServingSim profiles of vLLM (MIT), read 2026-11",
           "note": CONSUMER_NOTE}
    report(row)
    return row


def consumer_table() -> pl.DataFrame:
    """Return Llama-3.1-8B's GEMMs on the RTX 4090 with the columns of `tables`, in ms; without the small kernels."""
    arch = load_model("llama-3.1-8b")
    gemms = [(gemm.name, gemm.n, gemm.k) for gemm in projections(arch, tensor_parallel_size=1)]
    shapes = pl.DataFrame([*gemms, ("lm_head", arch.vocab_size, arch.hidden_size)], schema=("layer", "n", "k"),
                          orient="row")
    folder = KERNELS / "consumer/RTX4090/meta-llama/Llama-3.1-8B/bf16/tp1"
    measured = pl.concat([pl.read_csv(folder / "dense.csv").rename({"tokens": "m"}),
                          pl.read_csv(folder / "per_sequence.csv").rename({"sequences": "m"})])
    return measured.join(shapes, on="layer", maintain_order="left").with_columns(latency=pl.col("time_us") * 1e-3)


def padded(rows: Sequence[Row]) -> list[Row]:
    """Return the prior's rows for a GPU on which the rows of a tile show; nothing is fitted."""
    return [{**row, "gpu": PADDED, "medians": True, "tile_tokens": PADDED_TOKENS[row["dtype"]], "source": PADDED_SOURCE}
            for row in rows if row["gpu"] == "prior" and row["dtype"] in PADDED_TOKENS]


def fit_dtype(system: str, engine: str, version: str, dtype: str, table: pl.DataFrame,
              others: Sequence[Row]) -> Row | None:
    """Fit one table's rows of one dtype; where the host bounds them, floor and depth are of another engine's fit."""
    chosen = select(system, dtype, table)
    start, bounds, note = dict(START), dict(BOUNDS), ""
    if FORMATS[dtype].activation == 2.0:
        del start["quantize_bandwidth_frac"]
        if system in NARROW_START:
            start["narrow_frac"] = NARROW_START[system]
    smallest_s = smallest_call_s(table)
    if smallest_s > HOST_BOUND_S:
        if not others:
            return None
        other = others[0]
        note = f"calls below {1e6 * smallest_s:.0f} us are host launch; "
        chosen = chosen.filter(pl.col("latency") > 2e3 * smallest_s)
        if chosen.height < 1000:
            return {**other, "engine": engine, "version": version, "note": f"{note}{COPIED} {other['engine']}"}
        note += f"floor_s, depth_s are of {other['engine']}"
        for name in ("floor_s", "depth_s"):
            start[name] = other[name]
            bounds[name] = (other[name] * (1 - 1e-4), other[name] * (1 + 1e-4))
    if chosen.height < 100:
        return None
    constants, quality = fit(lambda **given: predict(system, dtype, chosen, given), start, bounds,
                             chosen["latency"].to_numpy() * 1e-3, chosen["weight"].to_numpy())
    row = {"gpu": SYSTEMS[system], "engine": engine, "version": version, "dtype": dtype,
           "quantize_bandwidth_frac": 1.0, **constants, **quality, "source": SOURCE}
    return row | {"note": note} if note else row


def smallest_call_s(table: pl.DataFrame) -> float:
    """Return the median time of calls too small for the GPU to need more than its floor [s]."""
    small = table.filter((pl.col("n") <= 1024) & (pl.col("k") <= 1024) & (pl.col("m") <= 64))
    return float(np.median(small["latency"].to_numpy())) * 1e-3


def select(system: str, dtype: str, table: pl.DataFrame) -> pl.DataFrame:
    """Keep the shapes that serving meets, without weights that a large L2 cache may hold, unless too few to matter.

    Such weights are left out up to 512 tokens, which keeps a fourth of the shapes there on an RTX PRO 6000. The column
    `weight` lets each count of tokens weigh the same, so that those above do not decide the fit.
    """
    n, k, m = pl.col("n"), pl.col("k"), pl.col("m")
    weights = n * k * FORMATS[dtype].weight
    smallest = profile(system).hbm_bandwidth_bytes_per_s * 1e-6
    is_cold = (m > 512) | (weights < smallest) | (weights > L2_BYTES.get(system, 0.0))
    kept = table.filter((n >= 512) & (k >= 512) & (k <= 16384) & m.is_in(TOKENS) & is_cold)
    return kept.with_columns(weight=kept.height / (kept["m"].n_unique() * pl.len().over("m")))


def predict(system: str, dtype: str, table: pl.DataFrame, given: Mapping[str, float]) -> Floats:
    """Return the formula's times of a table's rows."""
    gpu, form = profile(system), FORMATS[dtype]
    m, n, k = (table[name].to_numpy() for name in ("m", "n", "k"))
    constants = GemmConstants(**{"quantize_bandwidth_frac": 1.0, **given})
    return gemm_s(m, n, k, weight_bytes_per_element=form.weight, activation_bytes_per_element=form.activation,
                  flops_per_s=gpu.flops_per_s[form.precision], bandwidth_bytes_per_s=gpu.hbm_bandwidth_bytes_per_s,
                  constants=constants)


def priors(rows: Sequence[Row], names: Sequence[str], keys: tuple[str, ...]) -> list[Row]:
    """Return the median of each constant over GPUs by engine and `keys`, and over engines as engine "prior"."""
    result: list[Row] = []
    rows = [row for row in rows if COPIED not in row.get("note", "")]
    kinds = {(engine, *(row[key] for key in keys)) for row in rows for engine in (row["engine"], "prior")}
    for kind in sorted(kinds, key=str):
        alike = [row for row in rows if all(row[key] == value for key, value in zip(keys, kind[1:], strict=True))
                 and kind[0] in (row["engine"], "prior")]
        medians = {name: float(np.median([row[name] for row in alike])) for name in names}
        result.append({"gpu": "prior", "engine": kind[0], "version": "", **dict(zip(keys, kind[1:], strict=True)),
                       **medians, "num_points": sum(row["num_points"] for row in alike),
                       "median_ape": float(np.median([row["median_ape"] for row in alike])),
                       "p90_ape": float(np.median([row["p90_ape"] for row in alike])),
                       "bias": float(np.median([row["bias"] for row in alike])),
                       "source": f"median of {len(alike)} fits; errors are of those fits, not of these medians"})
    return result


def report(row: Row) -> None:
    """Print a fit in a line."""
    print("  ".join(f"{value:.3g}" if isinstance(value, float) else str(value)
                    for key, value in row.items() if key != "source"), flush=True)


def profile(system: str) -> Any:
    """Return the catalog's profile, read once."""
    if system not in _GPUS:
        _GPUS[system] = gpu_of(system)
    return _GPUS[system]


_GPUS: dict[str, Any] = {}


if __name__ == "__main__":
    main()
