"""Attention with sinks: vLLM's Triton kernel where no other kernel has them, and the models that have them."""

from typing import Any

import numpy as np
import pytest
from architectures import attention_of
from steps import stack_of, step, terms_of

from planner.catalog.architecture import Architecture
from planner.catalog.catalog_files import load_model
from planner.catalog.layers.gqa import Gqa
from planner.catalog.layers.mlps import Experts
from planner.steptime.expert_time import layer_experts_s, moe_kernels
from planner.steptime.gqa_time import gqa_fits, runs_triton


def sinks_of(arch: Architecture) -> dict[int, bool]:
    return {group.seen_tokens: group.attention.has_sinks for group in arch.layers if isinstance(group.attention, Gqa)}


@pytest.mark.parametrize(("model", "expected"), [
    ("gpt-oss-20b", {0: True, 128: True}), ("llama-3.1-8b", {0: False}), ("gemma-2-9b", {0: False, 4096: False})])
def test_models_have_sinks_or_none(model: str, expected: dict[int, bool]) -> None:
    assert sinks_of(load_model(model)) == expected


@pytest.mark.parametrize(("gpu", "engine", "expected"), [
    ("rtx-pro-6000", "vllm", True), ("a100-sxm", "vllm", True), ("gb10", "vllm", True), ("h100-sxm", "vllm", False),
    ("h100-pcie", "vllm", False), ("b200-sxm", "vllm", False), ("mi300x", "vllm", False),
    ("rtx-pro-6000", "sglang", False)])
def test_triton_runs_where_no_other_kernel_has_sinks(gpu: str, engine: str, expected: bool) -> None:
    stack = stack_of("gpt-oss-20b", gpu, engine)
    assert runs_triton(stack, attention_of(stack.arch, Gqa)) is expected
    plain = stack_of("llama-3.1-8b", gpu, engine)
    assert not runs_triton(plain, attention_of(plain.arch, Gqa))
    fits = gqa_fits(plain, attention_of(plain.arch, Gqa))
    assert not any("triton" in str(fit.row.get("kernel")) for fit in fits)


def test_a_long_prompt_takes_what_was_measured_with_sinks() -> None:
    """gpt-oss-20b under vLLM, a prompt of 128K: 21.4 s on an RTX PRO 6000, of which attention takes all but 2 to 4."""
    def attention_s(model: str) -> float:
        chunks = range(0, 131072, 8192)
        return sum(float(terms_of(stack_of(model, "rtx-pro-6000"), step(8192, cached=cached, window=128))
                         ["attention_prompt_s"]) for cached in chunks)

    assert 17.0 < attention_s("gpt-oss-20b") < 21.4


@pytest.mark.parametrize(("gpu", "engine", "kernel"), [
    ("rtx-pro-6000", "vllm", "w4a16_mxfp4"), ("rtx-5090", "sglang", "w4a16_mxfp4"),
    ("rtx-pro-6000", "trtllm", "w4a8_mxfp4_mxfp8"), ("b200-sxm", "vllm", "w4a8_mxfp4_mxfp8")])
def test_experts_in_mxfp4_run_the_kernel_that_was_measured_under_the_engine(gpu: str, engine: str, kernel: str) -> None:
    assert moe_kernels(stack_of("gpt-oss-120b", gpu, engine))[0] == kernel


@pytest.mark.parametrize(("model", "quantization", "tokens", "measured_s"), [
    ("gpt-oss-20b", None, 4.0, 144e-6), ("gpt-oss-120b", None, 16.0, 488e-6),
    ("qwen3.5-35b-a3b", "nvfp4", 64.0, 301e-6), ("qwen3.5-122b-a10b", "nvfp4", 16.0, 425e-6)])
def test_small_experts_on_a_gddr7_card_take_what_vllm_was_measured_with(
        model: str, quantization: str | None, tokens: float, measured_s: float) -> None:
    """AIConfigurator's table of RTX PRO 6000 under vLLM 0.24, whole experts on one GPU."""
    stack: Any = stack_of(model, "rtx-pro-6000", quantization=quantization)
    [experts] = {layers for _, layers in stack.arch.mlps_of(Experts)}
    assert float(layer_experts_s(stack, experts, np.array([tokens]))[0]) == pytest.approx(measured_s, rel=0.15)
