"""Number formats: which one a checkpoint has, which kernel a GPU can run, and at what peak."""

from dataclasses import replace

import pytest

from planner.catalog.entries import gpu_names, load_gpu, load_model
from planner.errors import CatalogError, UnknownNameError
from planner.model.precision import (
    KERNELS,
    KV_BYTES_PER_ELEMENT,
    WEIGHT_FORMATS,
    attention_format,
    kv_bytes_per_element,
    peak_flops_per_s,
    usable_kernels,
    weight_format,
)

A100, H100, B200 = load_gpu("a100-sxm"), load_gpu("h100-sxm"), load_gpu("b200-sxm")


@pytest.mark.parametrize("name", WEIGHT_FORMATS)
def test_every_format_runs_on_every_gpu(name: str) -> None:
    """Every choice of kernels ends with one that computes in 16 bit."""
    chosen = WEIGHT_FORMATS[name]
    assert 0.5 < chosen.bytes_per_element <= 2
    assert set(chosen.gemm) | set(chosen.moe) <= set(KERNELS)
    for gpu in map(load_gpu, gpu_names()):
        assert peak_flops_per_s(gpu, name) >= gpu.flops_per_s["bf16"]
        assert usable_kernels(chosen.moe, gpu)


def test_a_gpu_multiplies_in_the_first_precision_that_it_has() -> None:
    choices = WEIGHT_FORMATS["fp8"].gemm
    assert usable_kernels(choices, A100) == ("bfloat16",)
    assert usable_kernels(choices, H100) == ("fp8", "bfloat16")
    assert peak_flops_per_s(B200, "nvfp4") == B200.flops_per_s["fp4"]
    assert peak_flops_per_s(H100, "nvfp4") == H100.flops_per_s["bf16"]
    assert peak_flops_per_s(H100, "int4") == H100.flops_per_s["bf16"]  # weights only: activations are 16-bit


def test_a_gpu_without_the_precision_is_refused() -> None:
    with pytest.raises(CatalogError, match="GPU h100-sxm states no FLOP/s for bf16; add it"):
        peak_flops_per_s(replace(H100, flops_per_s={"fp8": 1.0}), "bf16")
    with pytest.raises(CatalogError, match="states no FLOP/s for fp8 or bf16"):
        peak_flops_per_s(replace(H100, flops_per_s={}), "fp8")


def test_the_format_is_the_checkpoints_own_unless_another_is_asked_for() -> None:
    llama, gpt_oss = load_model("llama-3.1-8b"), load_model("gpt-oss-20b")
    assert (weight_format(llama, None), weight_format(llama, "FP8")) == ("bf16", "fp8")
    assert (weight_format(gpt_oss, None), attention_format(gpt_oss, None)) == ("mxfp4", "bf16")
    assert attention_format(gpt_oss, "fp8") == "fp8"  # quantized at start-up: everything is
    with pytest.raises(UnknownNameError, match="unknown quantization 'fp9'; did you mean"):
        weight_format(llama, "fp9")


def test_kv_cache_types() -> None:
    assert (kv_bytes_per_element("auto"), kv_bytes_per_element("FP8")) == (2.0, 1.0)
    assert set(KV_BYTES_PER_ELEMENT.values()) == {1.0, 2.0}
    with pytest.raises(UnknownNameError, match="unknown KV cache type 'fp5'"):
        kv_bytes_per_element("fp5")
