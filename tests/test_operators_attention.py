"""Attention operators: never faster than the hardware, monotone, and the shipped constants reproduce their tables."""

import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.catalog.catalog_files import load_gpu
from planner.errors import UsageError
from planner.steptime.operators.attention import (
    DecodeAttention,
    PromptAttention,
    decode_attention_s,
    prompt_attention_s,
    smooth_max,
)
from planner.steptime.operators.linear_attention import (
    LinearDecode,
    LinearPrompt,
    linear_decode_s,
    linear_prompt_s,
    state_traffic_bytes,
)
from planner.steptime.operators.mla import MlaDecode, mla_decode_coefficients, mla_prompt_coefficients

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks/kernels"))

fitting = pytest.importorskip("fitting", reason="the fits need scipy")
measured_only = pytest.mark.skipif(not fitting.KERNELS.is_dir(), reason="measured tables are not in this checkout")

FRACTION = st.floats(0.01, 1.0)
SECONDS = st.floats(0.0, 1e-4)
COUNT = st.integers(1, 256)
TOKENS = st.integers(1, 32768)
BANDWIDTH = st.floats(5e11, 1e13)
FLOPS = st.floats(1e14, 1e16)
PROMPT = st.builds(PromptAttention, floor_s=SECONDS, flops_frac=FRACTION, bandwidth_frac=FRACTION,
                   softmax_flops_per_pair=st.floats(0.0, 1e3), s_per_token_head=st.floats(0.0, 1e-9))
DECODE = st.builds(DecodeAttention, floor_s=SECONDS, bandwidth_frac=FRACTION, s_per_seq_head=st.floats(0.0, 1e-8))
MLA = st.builds(MlaDecode, floor_s=SECONDS, bandwidth_frac=FRACTION, flops_frac=FRACTION,
                s_per_seq_head=st.floats(0.0, 1e-8), s_per_own_token=st.floats(0.0, 1e-8))
GQA = st.sampled_from([(64, 8, 128), (8, 1, 128), (32, 8, 128), (64, 4, 128), (64, 8, 64), (48, 8, 128), (32, 2, 256)])
KV_BYTES = st.sampled_from([1.0, 2.0])
MLA_SHAPE: dict[str, Any] = {"kv_lora_rank": 512, "qk_rope_head_dim": 64}
GDN: dict[str, Any] = {"num_k_heads": 16, "num_v_heads": 64, "head_k_dim": 128, "head_v_dim": 128, "conv_kernel_dim": 4,
                       "state_bytes_per_element": 4.0}
SLACK = 1 - 1e-12


def gqa(shape: tuple[int, int, int], kv_bytes: float, bandwidth: float, flops: float, constants: Any) -> dict[str, Any]:
    heads, kv_heads, dim = shape
    return {"num_heads": heads, "num_kv_heads": kv_heads, "head_dim": dim, "kv_bytes_per_element": kv_bytes,
            "bandwidth_bytes_per_s": bandwidth, "flops_per_s": flops, "constants": constants}


def mla_decode_s(decodes: int, context: int, heads: int, kv_bytes: float, bandwidth: float, flops: float,
                 constants: MlaDecode) -> float:
    base, per_token = mla_decode_coefficients(
        decodes, num_heads=heads, kv_bytes_per_element=kv_bytes, bandwidth_bytes_per_s=bandwidth, flops_per_s=flops,
        constants=constants, **MLA_SHAPE)
    return float(base + context * per_token)


@given(GQA, KV_BYTES, BANDWIDTH, FLOPS, PROMPT, TOKENS, TOKENS)
def test_prompt_attention_laws(shape: tuple[int, int, int], kv_bytes: float, bandwidth: float, flops: float,
                               constants: PromptAttention, tokens: int, context: int) -> None:
    keywords = gqa(shape, kv_bytes, bandwidth, flops, constants)
    pairs = tokens * context + tokens * (tokens + 1) / 2
    time = prompt_attention_s(tokens, context, pairs, **keywords)
    heads, kv_heads, dim = shape
    assert time >= SLACK * 4 * heads * dim * pairs / flops
    assert time >= SLACK * (4 * heads * dim * tokens + 2 * kv_heads * dim * kv_bytes * (tokens + context)) / bandwidth
    for more in ((tokens + 1, context, pairs), (tokens, context + 1, pairs), (tokens, context, pairs + 1)):
        assert prompt_attention_s(*more, **keywords) >= time
    for key in ("bandwidth_bytes_per_s", "flops_per_s"):
        assert prompt_attention_s(tokens, context, pairs, **keywords | {key: 2 * keywords[key]}) <= time


@given(GQA, KV_BYTES, BANDWIDTH, FLOPS, DECODE, COUNT, TOKENS)
def test_decode_attention_laws(shape: tuple[int, int, int], kv_bytes: float, bandwidth: float, flops: float,
                               constants: DecodeAttention, decodes: int, length: int) -> None:
    keywords = gqa(shape, kv_bytes, bandwidth, flops, constants)
    context = decodes * length
    time = decode_attention_s(decodes, context, **keywords)
    heads, kv_heads, dim = shape
    assert time >= SLACK * 2 * kv_heads * dim * kv_bytes * context / bandwidth
    assert time >= SLACK * 4 * heads * dim * context / flops
    assert decode_attention_s(decodes + 1, context, **keywords) >= time
    assert decode_attention_s(decodes, context + 1, **keywords) >= time
    for key in ("bandwidth_bytes_per_s", "flops_per_s"):
        assert decode_attention_s(decodes, context, **keywords | {key: 2 * keywords[key]}) <= time


@given(st.sampled_from([8, 16, 64, 128]), KV_BYTES, BANDWIDTH, FLOPS, MLA, COUNT, TOKENS)
def test_mla_decode_laws(heads: int, kv_bytes: float, bandwidth: float, flops: float, constants: MlaDecode,
                         decodes: int, length: int) -> None:
    context = decodes * length
    given_hardware = (heads, kv_bytes, bandwidth, flops, constants)
    time = mla_decode_s(decodes, context, *given_hardware)
    assert time >= SLACK * context * 576 * kv_bytes / bandwidth
    assert time >= SLACK * 2 * heads * 1088 * context / flops
    assert time >= SLACK * length * constants.s_per_own_token
    assert mla_decode_s(decodes + 1, context + length, *given_hardware) >= SLACK * time
    assert mla_decode_s(decodes, context + 1, *given_hardware) >= time
    assert mla_decode_s(decodes, context, heads, kv_bytes, 2 * bandwidth, flops, constants) <= time
    assert mla_decode_s(decodes, context, heads, kv_bytes, bandwidth, 2 * flops, constants) <= time


@given(st.sampled_from([16, 128]), BANDWIDTH, FLOPS, PROMPT)
def test_mla_prompt_coefficients_are_above_the_roofs(heads: int, bandwidth: float, flops: float,
                                                     constants: PromptAttention) -> None:
    dims = {"qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
    base, token, context, pair = mla_prompt_coefficients(
        num_heads=heads, bandwidth_bytes_per_s=bandwidth, flops_per_s=flops, constants=constants, **dims)
    assert base >= 0
    assert pair >= SLACK * 640 * heads / flops
    assert token >= context >= SLACK * 640 * heads / bandwidth


@given(COUNT, BANDWIDTH, SECONDS, FRACTION)
def test_linear_decode_laws(decodes: int, bandwidth: float, floor: float, frac: float) -> None:
    constants = LinearDecode(floor_s=floor, bandwidth_frac=frac)
    time = linear_decode_s(decodes, bandwidth_bytes_per_s=bandwidth, constants=constants, **GDN)
    assert time >= SLACK * decodes * state_traffic_bytes(**GDN) / bandwidth
    assert linear_decode_s(decodes + 1, bandwidth_bytes_per_s=bandwidth, constants=constants, **GDN) >= time
    assert linear_decode_s(decodes, bandwidth_bytes_per_s=2 * bandwidth, constants=constants, **GDN) <= time


@given(TOKENS, st.integers(1, 16), BANDWIDTH, SECONDS, FRACTION, st.floats(0.0, 1e-7))
def test_linear_prompt_laws(tokens: int, prompts: int, bandwidth: float, floor: float, frac: float,
                            serial: float) -> None:
    constants = LinearPrompt(floor_s=floor, bandwidth_frac=frac, s_per_serial_token=serial)
    keywords: dict[str, Any] = {"constants": constants, **GDN}
    time = linear_prompt_s(tokens, prompts, bandwidth_bytes_per_s=bandwidth, **keywords)
    traffic = 2 * (3 * 12288 + 8192)
    assert time >= SLACK * (prompts * state_traffic_bytes(**GDN) + tokens * traffic) / bandwidth
    assert linear_prompt_s(tokens + 1, prompts, bandwidth_bytes_per_s=bandwidth, **keywords) >= time * SLACK
    assert linear_prompt_s(tokens, prompts, bandwidth_bytes_per_s=2 * bandwidth, **keywords) <= time


@settings(max_examples=50)
@given(st.floats(1e-15, 1.0), st.floats(1e-15, 1.0))
def test_smooth_max_is_above_both(a: float, b: float) -> None:
    assert max(a, b) * SLACK <= smooth_max(a, b) <= 2**0.25 * max(a, b) / SLACK


@pytest.mark.parametrize("frac", [0.0, 1.01, float("nan")])
def test_fractions_outside_zero_and_one_raise(frac: float) -> None:
    with pytest.raises(UsageError, match="bandwidth_frac"):
        LinearDecode(floor_s=1e-6, bandwidth_frac=frac)


def shipped(name: str) -> list[dict[str, Any]]:
    with (ROOT / "hardware_db/kernels" / f"{name}.toml").open("rb") as file:
        rows: list[dict[str, Any]] = tomllib.load(file)["fit"]
    return rows


@pytest.mark.parametrize("name", ["attention", "mla", "linear_attention"])
def test_shipped_constants_are_physical(name: str) -> None:
    for row in shipped(name):
        assert all(0 < value <= 1 for key, value in row.items() if key.endswith("_frac")), row
        assert row["floor_s"] > 0
        assert row["gpu"] == "prior" or load_gpu(row["gpu"]).name == row["gpu"]
    assert any(row["gpu"] == "prior" for row in shipped(name))


@measured_only
@pytest.mark.parametrize(("system", "phase"), [("h100_sxm", "generation"), ("l40s", "context")])
def test_shipped_attention_constants_reproduce_their_error(system: str, phase: str) -> None:
    fit_attention = pytest.importorskip("fit_attention")
    gpu = fitting.gpu_of(system)
    (row,) = (row for row in shipped("attention") if row["gpu"] == gpu.name and row["phase"] == phase
              and row["engine"] == "vllm" and row["kv_cache_dtype"] == "bfloat16")
    table = fitting.tables(system, "attention", f"{phase}_attention_perf")["vllm", row["version"]]
    dtypes = {name: row[key] for name, key in (("attn_dtype", "dtype"), ("kv_cache_dtype", "kv_cache_dtype"))}
    table = fit_attention.main_kernel(fit_attention.select(table.filter(**dtypes), phase))
    problem, start, _ = fit_attention.PROBLEMS[phase]
    model, measured = problem(table, gpu, row["dtype"], row["kv_cache_dtype"])
    error = np.abs(model(**{name: row[name] for name in start}) / measured - 1)
    assert len(measured) == row["num_points"]
    assert np.median(error) == pytest.approx(row["median_ape"], rel=0.02)
