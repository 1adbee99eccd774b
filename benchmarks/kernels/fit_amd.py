"""Fits the operators to kernels measured on AMD's GPUs and writes their rows in hardware_db/kernels.

The times are AITER's, which tunes its kernels shape by shape and ships what each took, and those that its
documentation and threads about it print (`amd_times.csv`). Peaks are those that large products keep, so that arithmetic
is as measured; what nobody measured there keeps the medians of others' kernels.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fit_attention
import fit_collectives
import fit_gemm
import fit_mla
import fit_moe
import numpy as np
import polars as pl
from fit_attention import columns, show
from fit_gemm import FORMATS, Row
from fitting import ROOT, fit, gpu_of, read_fits, replace_amds

from planner.catalog.gpus import Gpu
from planner.errors import UsageError
from planner.steptime.operators.attention import (
    DecodeAttention,
    PromptAttention,
    decode_attention_s,
    prompt_attention_s,
)
from planner.steptime.operators.collectives import CollectiveConstants, collective_s
from planner.steptime.operators.gemm import GemmConstants, gemm_s
from planner.steptime.operators.mla import MlaDecode, mla_decode_coefficients
from planner.steptime.operators.moe import MoeConstants, moe_s
from planner.steptime.step_context import power_ratio

KERNELS = ROOT / "hardware_db/kernels"
TIMES = Path(__file__).with_name("amd_times.csv")
WHEEL = "AMD AITER's tuned kernels (MIT), amd-aiter 0.1.7.post2 on PyPI, read 2026-11"
COMPUTE_UNITS = {"mi300x": 304, "mi355x": 256}  # by which AITER's tables tell GPUs apart
# What AITER multiplies, by its tables: MXFP4 stands for NVFP4, whose scales are twice as many.
GEMMS = {"fp8_block": ("a8w8_blockscale_tuned_gemm", "a8w8_blockscale_bpreshuffle_tuned_gemm",
                       "model_configs/a8w8_blockscale_bpreshuffle_tuned_gemm_dsv3",
                       "model_configs/a8w8_blockscale_tuned_gemm_ds_v3"),
         "fp8": ("a8w8_bpreshuffle_tuned_gemm",), "nvfp4": ("a4w4_blockscale_tuned_gemm",)}
MOES = {"bfloat16": "QuantType.No", "fp8_block": "QuantType.per_1x128", "fp8": "QuantType.per_Token"}
QUALITY = ("median_ape", "p90_ape", "bias")
# Seven links join a GPU with each of its peers; of 64 GB/s 48 are left beside the protocol (ROCm blogs, Understanding
# RCCL Bandwidth and xGMI Performance on MI300X, 2025-03).
NUM_LINKS, LINK_FRAC = 7, 0.75
# A sequence's own time of a context token in latent attention [s], which no time shows: SGLang's medians where few
# splits are made (three and more sequences). AITER makes 16 at most (`get_meta_param` in its mla.py), others many more.
OWN_S = {"bfloat16": 1.24e-9, "fp8": 7.763e-10}
BOUNDS = fit_gemm.BOUNDS | {"depth_s": (1e-13, 1e-7)}  # kernels that do not split k take ten times as long for it


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("configs", type=Path, help="aiter/configs of the unpacked wheel")
    configs = parser.parse_args().configs
    if not (configs / "tuned_fmoe.csv").is_file():
        raise UsageError(f"{configs}: has no tuned_fmoe.csv; give the folder aiter/configs of the unpacked wheel")
    for family, rows in {"gemm": gemm_rows(configs), "moe": moe_rows(configs), "collectives": collective_rows(),
                         "attention": attention_rows(), "mla": mla_rows()}.items():
        replace_amds(KERNELS / f"{family}.toml", rows)
        constants = dict.fromkeys(name for row in rows for name, value in row.items() if isinstance(value, float))
        show([row for row in rows if "bias" in row], [name for name in constants if name not in QUALITY])


def published(gpu: str, op: str, dtype: str) -> pl.DataFrame:
    """Return the times that were published of an operator: a column of each measure of its shape, `us`, `source`."""
    found = [dict(pair.split("=") for pair in row["shape"].split(";"))
             | {"us": row["us"], "source": row["source"]}
             for row in pl.read_csv(TIMES).filter(gpu=gpu, op=op, dtype=dtype).iter_rows(named=True)]
    return pl.DataFrame(found).with_columns(pl.exclude("us", "source").cast(pl.Float64))


def source(table: pl.DataFrame) -> str:
    """Return where a table's times come from: AITER's tables, but for what is said to be published elsewhere."""
    elsewhere = table["source"] if "source" in table.columns else pl.Series([None])
    threads = [f"{thread}, read 2026-11" for thread in elsewhere.drop_nulls().unique().sort()]
    return "; ".join([*([WHEEL] if elsewhere.has_nulls() else []), *threads])


def kept_flops_per_s(gpu: Gpu, precision: str) -> float:
    """Return the peak at the clocks that large products keep [FLOP/s]."""
    return gpu.flops_per_s[precision] / power_ratio(gpu, precision)


def gemm_rows(configs: Path) -> list[Row]:
    """Fit dense products; on MI300X blocks of FP8 alone were measured."""
    rows = [gemm_row("mi355x", dtype, tuned_gemms(configs, "mi355x", dtype)) for dtype in GEMMS]
    rows.append(gemm_row("mi355x", "bfloat16", published("mi355x", "gemm", "bfloat16")))
    blocks = pl.concat([tuned_gemms(configs, "mi300x", "fp8_block"), published("mi300x", "gemm", "fp8_block")],
                       how="diagonal")
    tuned = gemm_row("mi300x", "fp8_block", blocks)
    return [*rows, tuned, triton_gemm_row(tuned),
            *(copied(row, "mi300x") for row in rows if row["dtype"] in ("fp8", "bfloat16"))]


def tuned_gemms(configs: Path, gpu: str, dtype: str) -> pl.DataFrame:
    """Return AITER's times of a format's products on one GPU, of the fastest kernel for each shape."""
    found = [pl.read_csv(configs / f"{name}.csv", infer_schema_length=None, ignore_errors=True)
             .filter(pl.col("cu_num") == COMPUTE_UNITS[gpu])
             .select(*(pl.col(name).cast(pl.Float64).alias(name.lower()) for name in "MNK"), pl.col("us"))
             for name in GEMMS[dtype]]
    return pl.concat(found).group_by("m", "n", "k", maintain_order=True).agg(pl.col("us").min())


def gemm_row(gpu_name: str, dtype: str, table: pl.DataFrame, known: Mapping[str, float] | None = None) -> Row:
    """Fit one format's products on one GPU, each count of tokens weighing the same.

    Activations come quantized in AITER's tables; what quantizes them before takes the medians' time.
    """
    gpu, form = gpu_of(gpu_name), FORMATS[dtype]
    known = known or {"quantize_bandwidth_frac": prior("gemm", dtype=dtype)["quantize_bandwidth_frac"]}
    table = table.filter(pl.col("n") >= 512, pl.col("k") >= 512)
    m, n, k, us = columns(table, "m", "n", "k", "us")

    def model(**given: float) -> Any:
        return gemm_s(m, n, k, weight_bytes_per_element=form.weight, activation_bytes_per_element=form.activation,
                      flops_per_s=kept_flops_per_s(gpu, form.precision), quantizes=False,
                      bandwidth_bytes_per_s=gpu.hbm_bandwidth_bytes_per_s,
                      constants=GemmConstants(**known, **given))

    start = {name: value for name, value in fit_gemm.START.items() if name not in known}
    weights = 1.0 / np.array([(m == count).sum() for count in m])
    constants, quality = fit(model, start, BOUNDS, us * 1e-6, weights / weights.mean())
    return {"gpu": gpu_name, "engine": "aiter", "version": "", "dtype": dtype, **known, **constants, **quality,
            "source": source(table)}


def triton_gemm_row(tuned: Row) -> Row:
    """Fit AITER's Triton kernel for blocks of FP8, which SGLang runs on MI300X in place of the tuned ones.

    It has one shape of tile there, whose sum over k it does not split (MI300X-GEMM-A8W8_BLOCKSCALE.json of the wheel),
    so the smallest product takes as long as one tile. What large ones reach is taken from the tuned kernels.
    """
    known = {name: tuned[name] for name in fit_gemm.START if name != "depth_s"}
    row = gemm_row("mi300x", "fp8_block", published("mi300x", "gemm", "fp8_block_triton"), known)
    return row | {"engine": "sglang", "version": "0.5.9",
                  "note": "64 tokens on MI325X; the rest is of AITER's tuned kernels"}


def prior(family: str, *, engine: str = "prior", **keys: Any) -> Row:
    """Return the medians over GPUs of an engine's kernels, or of all engines'."""
    keys |= {"gpu": "prior", "engine": engine}
    return next(row for row in read_fits(KERNELS / f"{family}.toml") if keys.items() <= row.items())


def copied(row: Row, gpu: str) -> Row:
    """Return another GPU's row as this one's: shares of its own peaks, which nobody measured."""
    return {**row, "gpu": gpu, "medians": True, "note": f"constants and errors are of {row['gpu']}"}


def moe_rows(configs: Path) -> list[Row]:
    """Fit routed experts; MI300X was measured with blocks of FP8 alone, but for one batch from 1,024 tokens on."""
    blocks = pl.concat([tuned_moes(configs, "fp8_block"), published("mi355x", "moe", "fp8_block")], how="diagonal")
    rows = [moe_row("mi355x", "fp8_block", blocks), moe_row("mi355x", "nvfp4", published("mi355x", "moe", "nvfp4"))]
    arithmetic = {"flops_frac": rows[0]["flops_frac"]}
    rows += [moe_row("mi355x", dtype, tuned_moes(configs, dtype), arithmetic)
             | {"note": "16 to 1024 tokens, which read weights; flops_frac is fp8_block's"}
             for dtype in ("bfloat16", "fp8")]
    like = {row["dtype"]: row for row in rows}
    return [*rows, few_moe_row("mi355x", "w4a8_mxfp4_mxfp8", like["nvfp4"]),
            few_moe_row("mi300x", "fp8_block", like["fp8_block"]),
            *(copied(like[dtype], "mi300x") for dtype in ("bfloat16", "fp8"))]


def tuned_moes(configs: Path, dtype: str) -> pl.DataFrame:
    """Return AITER's times of a format's routed experts on MI355X, of the fastest kernel for each shape."""
    shape = {"tokens": "token", "hidden": "model_dim", "inter": "inter_dim", "experts": "expert", "topk": "topk"}
    table = pl.read_csv(configs / "tuned_fmoe.csv", infer_schema_length=None)
    return (table.filter(pl.col("cu_num") == COMPUTE_UNITS["mi355x"], pl.col("q_type") == MOES[dtype])
            .select(**{name: pl.col(column).cast(pl.Float64) for name, column in shape.items()}, us=pl.col("us"))
            .group_by(*shape, maintain_order=True).agg(pl.col("us").min()))


def few_moe_row(gpu: str, dtype: str, like: Row) -> Row:
    """Fit the shares of the peaks alone, to times of few shapes; the rest is that of a kernel that was measured."""
    known = {name: like[name] for name in fit_moe.START if name not in ("flops_frac", "bandwidth_frac")}
    table = published(gpu, "moe", dtype)
    note = f"{table.height} points; the rest is of {like['dtype']} on {like['gpu']}"
    return moe_row(gpu, dtype, table, known) | {"note": note}


def moe_row(gpu_name: str, dtype: str, table: pl.DataFrame, known: Mapping[str, float] | None = None) -> Row:
    """Fit one format's routed experts on one GPU.

    AITER routes at random: tokens touch new experts as fast as can be, and no GPU has more to do than others. So what
    real routing does of both is the medians of kernels that were measured with it.
    """
    gpu, form, skewed = gpu_of(gpu_name), FORMATS[dtype], prior("moe", dtype=dtype)
    routed = {name: skewed[name] for name in ("spread_frac", "imbalance_exponent")}
    even, known = {"spread_frac": 1.0, "imbalance_exponent": 0.0}, known or {}
    tokens, hidden, inter, experts, topk, us = columns(table, "tokens", "hidden", "inter", "experts", "topk", "us")
    start = {name: value for name, value in fit_moe.START.items() if name not in {**known, **even}}

    def model(**given: float) -> Any:
        return moe_s(tokens, hidden=hidden, inter=inter, topk=topk, num_experts=experts, moe_tp=1, moe_ep=1,
                     weight_bytes_per_element=form.weight, flops_per_s=kept_flops_per_s(gpu, form.precision),
                     bandwidth_bytes_per_s=gpu.hbm_bandwidth_bytes_per_s,
                     constants=MoeConstants(**{**known, **even, **given}))

    constants, quality = fit(model, start, fit_moe.BOUNDS, us * 1e-6)
    ordered = {name: {**known, **routed, **constants}[name] for name in fit_moe.START}
    return {"gpu": gpu_name, "engine": "aiter", "version": "", "dtype": dtype, "kernel": "aiter", "default": True,
            **ordered, **quality, "source": source(table)}


def collective_rows() -> list[Row]:
    """Fit all-reduces over xGMI; what was not measured moves at the links' rate.

    A GPU and each of its peers have one link, so p GPUs use p - 1 of them. An all-reduce scatters sums and gathers
    them, each time a p-th of the message over every link; the other operations do one of the two. SGLang's image sends
    8 bits an element from 2 MB on (`ROCM_QUICK_REDUCE_QUANTIZATION`), which was measured of two GPUs.
    """
    four = collective_row("mi300x", "vllm", 4)
    rows = [*(collective_row("mi300x", engine, 2) for engine in ("vllm", "sglang")), four,
            *(collective_row("mi355x", engine, 8, links_frac("all_reduce", 8)) for engine in ("vllm", "sglang"))]
    unmeasured = [(op, count) for op in ("all_gather", "reduce_scatter", "alltoall") for count in (2, 4, 8)]
    note = "latencies and errors are of four mi300x's all-reduce; the rate is links_frac of fit_amd.py"
    return rows + [{**four, "engine": "prior", "op": op, "num_gpus": count, "note": note,
                    "large_bandwidth_frac": links_frac(op, count)} for op, count in unmeasured]


def links_frac(op: str, num_gpus: int) -> float:
    """Return the share of all links' bandwidth at which a collective's message moves, as `sent_bytes` counts it [1].

    >>> round(links_frac("all_reduce", 8), 3), round(links_frac("all_gather", 4), 3)
    (0.429, 0.321)
    """
    used = LINK_FRAC / NUM_LINKS
    return used * num_gpus / 2 if op == "all_reduce" else used * (num_gpus - 1)


def collective_row(gpu_name: str, engine: str, num_gpus: int, large_bandwidth_frac: float | None = None) -> Row:
    """Fit one engine's all-reduce; the rate of large messages is given where only small ones were measured."""
    table = published(gpu_name, "all_reduce", engine).filter(pl.col("gpus") == num_gpus).sort("bytes")
    link = gpu_of(gpu_name).scale_up_bandwidth_bytes_per_s
    size, us = columns(table, "bytes", "us")
    known = {} if large_bandwidth_frac is None else {"large_bandwidth_frac": large_bandwidth_frac}
    start = {"small_latency_s": us[0] * 1e-6, "small_bandwidth_frac": 0.05, "large_latency_s": 2e-6 * us[0],
             "large_bandwidth_frac": 0.2}

    def model(**given: float) -> Any:
        return collective_s(size, op="all_reduce", num_gpus=num_gpus, link_bandwidth_bytes_per_s=link,
                            constants=CollectiveConstants(**known, **given))

    constants, quality = fit(model, {name: value for name, value in start.items() if name not in known},
                             fit_collectives.BOUNDS, us * 1e-6)
    return {"gpu": "xGMI", "engine": engine, "version": "", "op": "all_reduce", "num_gpus": num_gpus, **constants,
            **known, **quality, "source": source(table), "note": f"measured on {gpu_name}"}


def attention_rows() -> list[Row]:
    """Fit prompts' attention, and decodes' on MI355X; MI300X's kernel is the one that MI355X's was compiled from.

    So it is taken to read as many bytes a second there (ROCm/aiter#4794).
    """
    rows = [prompt_row(gpu) for gpu in ("mi300x", "mi355x")]
    decode = decode_row()
    slower, faster = gpu_of("mi300x"), gpu_of("mi355x")
    same = decode["bandwidth_frac"] * faster.hbm_bandwidth_bytes_per_s / slower.hbm_bandwidth_bytes_per_s
    return [*rows, decode, copied(decode, "mi300x") | {
        "bandwidth_frac": same, "note": "as many bytes a second as on mi355x, whose kernel was compiled from this one"}]


def prompt_row(gpu_name: str) -> Row:
    """Fit the attention of prompts on one GPU; one head_dim cannot tell softmax's cost from the share of the peak."""
    gpu, table = gpu_of(gpu_name), published(gpu_name, "prompt_attention", "bfloat16")
    batch, heads, kv_heads, tokens, us = columns(table, "batch", "heads", "kv_heads", "tokens", "us")
    like = prior("attention", engine="sglang", phase="context", kv_cache_dtype="bfloat16")
    known = {name: like[name] for name in ("softmax_flops_per_pair", "bandwidth_frac")}

    def model(**given: float) -> Any:
        return prompt_attention_s(batch * tokens, 0.0, batch * tokens * (tokens + 1) / 2, num_heads=heads,
                                  num_kv_heads=kv_heads, head_dim=128, kv_bytes_per_element=2.0,
                                  bandwidth_bytes_per_s=gpu.hbm_bandwidth_bytes_per_s,
                                  flops_per_s=kept_flops_per_s(gpu, "bf16"),
                                  constants=PromptAttention(**known, **given))

    free = {name: value for name, value in fit_attention.PROMPT_START.items() if name not in known}
    constants, quality = fit(model, free, fit_attention.PROMPT_BOUNDS, us * 1e-6)
    return {"gpu": gpu_name, "engine": "aiter", "version": "", "phase": "context", "dtype": "bfloat16",
            "kv_cache_dtype": "bfloat16", "kernel": "fmha_v3", **constants, **known, **quality,
            "source": source(table), "note": "softmax_flops_per_pair, bandwidth_frac are SGLang's medians"}


def decode_row() -> Row:
    """Fit the attention of decodes on MI355X: 64 query and 8 key-value heads of 128."""
    gpu, table = gpu_of("mi355x"), published("mi355x", "decode_attention", "bfloat16")
    batch, context, us = columns(table, "batch", "context", "us")

    def model(**given: float) -> Any:
        return decode_attention_s(batch, batch * context, num_heads=64, num_kv_heads=8, head_dim=128,
                                  kv_bytes_per_element=2.0, bandwidth_bytes_per_s=gpu.hbm_bandwidth_bytes_per_s,
                                  flops_per_s=gpu.flops_per_s["bf16"], constants=DecodeAttention(**given))

    constants, quality = fit(model, fit_attention.DECODE_START, fit_attention.DECODE_BOUNDS, us * 1e-6)
    return {"gpu": "mi355x", "engine": "aiter", "version": "", "phase": "generation", "dtype": "bfloat16",
            "kv_cache_dtype": "bfloat16", "kernel": "paged_attention", **constants, **quality, "source": source(table)}


def mla_rows() -> list[Row]:
    """Fit the decodes of latent attention on MI355X, and take MI300X's to reach the same shares of its peaks."""
    rows = [mla_row(dtype) for dtype in ("bfloat16", "fp8")]
    return rows + [copied(row, "mi300x") for row in rows]


def mla_row(kv_dtype: str) -> Row:
    """Fit the decodes of 32 heads with one type of cache; the medians' fields stand where 4,096 tokens do not tell."""
    gpu, table = gpu_of("mi355x"), published("mi355x", "mla_decode", kv_dtype)
    batch, context, us = columns(table, "batch", "context", "us")
    like = prior("mla", engine="sglang", phase="generation", kv_cache_dtype=kv_dtype, num_heads=32)
    known = {name: like[name] for name in ("flops_frac", "s_per_seq_head")} | {"s_per_own_token": OWN_S[kv_dtype]}

    def model(**given: float) -> Any:
        base, per_token = mla_decode_coefficients(
            batch, num_heads=32, kv_lora_rank=fit_mla.RANK, qk_rope_head_dim=fit_mla.ROPE,
            kv_bytes_per_element=fit_attention.BYTES[kv_dtype], bandwidth_bytes_per_s=gpu.hbm_bandwidth_bytes_per_s,
            flops_per_s=gpu.flops_per_s["bf16"], constants=MlaDecode(**known, **given))
        return base + batch * context * per_token

    free = {name: fit_mla.DECODE_START[name] for name in ("floor_s", "bandwidth_frac")}
    constants, quality = fit(model, free, fit_mla.DECODE_BOUNDS, us * 1e-6)
    return {"gpu": "mi355x", "engine": "aiter", "version": "", "phase": "generation", "dtype": "bfloat16",
            "kv_cache_dtype": kv_dtype, "num_heads": 32, **constants, **known, **quality, "source": source(table),
            "note": "flops_frac, s_per_seq_head are SGLang's medians, s_per_own_token is OWN_S of fit_amd.py"}


if __name__ == "__main__":
    main()
