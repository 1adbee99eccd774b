"""Number formats: which one a checkpoint has, which kernel a GPU can run, and at what peak."""

from dataclasses import replace

import numpy as np
import pytest
from steps import stack_of

from planner.catalog.catalog_files import gpu_names, load_gpu, load_model
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
from planner.steptime.dense_time import gemms_s

A100, H100, B200 = load_gpu("a100-sxm"), load_gpu("h100-sxm"), load_gpu("b200-sxm")


@pytest.mark.parametrize("name", WEIGHT_FORMATS)
def test_every_format_runs_on_every_gpu(name: str) -> None:
    """Every choice of kernels ends with one that computes in 16 bit."""
    chosen = WEIGHT_FORMATS[name]
    assert 0.5 < chosen.bytes_per_element <= 2
    assert set(chosen.gemm) | set(chosen.moe) <= set(KERNELS)
    for gpu in map(load_gpu, gpu_names()):
        peak = peak_flops_per_s(gpu, name)
        few = name in ("int8", "w8a8") and gpu.name in ("b300-sxm", "gb300")  # units
        assert peak >= gpu.flops_per_s["bf16"] or few
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


def test_eight_bit_integers_on_both_sides_are_twice_as_fast_as_sixteen_bit_where_fp8_is_not() -> None:
    """An A100's own measured kernels; weights alone in 8 bit are read faster and multiplied in 16."""
    counts = np.array([1.0, 4096.0])
    plain, both, weights = (gemms_s(stack_of(gpu="a100-sxm"), counts, 28672, 4096, name)
                            for name in ("bf16", "int8", "w8a16"))
    assert both[1] == pytest.approx(plain[1] / 2, rel=0.15)
    assert weights[1] >= plain[1]
    assert both[0] < 0.8 * plain[0]
    assert weights[0] < 0.8 * plain[0]


def test_bitsandbytes_widens_all_weights_before_each_product() -> None:
    """A decode reads the 4-bit weights, writes them in 16 bit and reads them again."""
    counts = np.array([1.0, 8192.0])
    plain, widened, packed = (gemms_s(stack_of(gpu="a100-sxm"), counts, 28672, 4096, name)
                              for name in ("bf16", "bnb-4bit", "awq"))
    assert 2.0 * plain[0] < widened[0] < 2.6 * plain[0]
    assert packed[0] < 0.5 * plain[0]
    assert WEIGHT_FORMATS["bnb-4bit"].bytes_per_element < WEIGHT_FORMATS["awq"].bytes_per_element


def test_names_of_weights_and_activations_are_formats() -> None:
    assert (WEIGHT_FORMATS["w4a16"], WEIGHT_FORMATS["w8a8"]) == (WEIGHT_FORMATS["int4"], WEIGHT_FORMATS["int8"])
