"""Compressed sparse attention: the time of whole attention layers beside those that AIConfigurator's tables have."""

from dataclasses import replace

import pytest
from steps import stack_of, step, terms_of

from planner.catalog.attention_reads import window_tokens
from planner.model.layout import Layout
from planner.steptime.step_context import StepContext

TERMS = ("linear_s", "activations_s", "attention_prompt_s", "attention_decode_s")


def one_layer(gpu: str, engine: str, ranks: int, kind: str) -> StepContext:
    """Return a layer of DeepSeek-V4-Flash: its attention alone, with one residual stream and no experts."""
    stack = stack_of("deepseek-v4-flash", gpu, engine, Layout(tensor_parallel_size=ranks), kv_bytes_per_element=1.0)
    group = stack.arch.layers[("csa", "hca").index(kind)]
    arch = replace(stack.arch, layers=(replace(group, count=1),), mlps=(), num_residual_streams=1)
    return replace(stack, arch=arch)


@pytest.mark.parametrize(("gpu", "engine", "ranks", "kind", "prompt", "decodes", "context", "measured_ms"), [
    ("h200-sxm", "sglang", 1, "csa", 8192, 0, 0, 4.965), ("h200-sxm", "sglang", 1, "hca", 8192, 0, 0, 3.115),
    ("b200-sxm", "sglang", 1, "csa", 8192, 0, 32768, 4.207), ("b200-sxm", "sglang", 8, "hca", 8192, 0, 32768, 1.329),
    ("b200-sxm", "sglang", 8, "csa", 0, 1, 65536, 0.1353), ("b200-sxm", "vllm", 1, "csa", 0, 256, 1024, 0.1621),
    ("b200-sxm", "trtllm", 8, "hca", 0, 64, 8192, 0.0625), ("h200-sxm", "sglang", 1, "hca", 0, 256, 1024, 0.1605),
])
def test_a_layers_attention_takes_what_was_measured(gpu: str, engine: str, ranks: int, kind: str, prompt: int,
                                                    decodes: int, context: int, measured_ms: float) -> None:
    stack = one_layer(gpu, engine, ranks, kind)
    row = step(prompt, decodes, context, cached=context if prompt else 0, window=window_tokens(stack.arch))
    terms = terms_of(stack, row)
    assert 1e3 * sum(terms[name] for name in TERMS) == pytest.approx(measured_ms, rel=0.15)


def test_a_heavily_compressed_layer_reads_all_entries_and_the_other_those_chosen() -> None:
    """From 64k tokens on an indexed layer reads its keys alone in addition, the other an entry for each 128 tokens."""
    def slope(kind: str) -> float:
        stack = one_layer("b200-sxm", "vllm", 1, kind)
        long, longer = (terms_of(stack, step(0, 64, context, window=2048))["attention_decode_s"]
                        for context in (65536, 131072))
        return float(longer - long) / (64 * 65536)

    bandwidth = stack_of("deepseek-v4-flash", "b200-sxm").gpu.hbm_bandwidth_bytes_per_s
    assert slope("csa") == pytest.approx(132 / 4 / bandwidth, rel=0.6)  # FP8 arithmetic of 64 heads takes longer
    assert slope("hca") >= 584 / 128 / bandwidth
