"""Number formats: which one a checkpoint has, which kernel a GPU can run, and at what peak."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from steps import stack_of

from planner import Scenario
from planner.catalog.catalog_files import gpu_names, load_gpu, load_model
from planner.catalog.layers.gqa import Gqa
from planner.deployment.deploy import deploy
from planner.engines import ENGINES
from planner.engines.dialect import SGLANG_KV_DTYPES, VLLM_KV_DTYPES
from planner.errors import CatalogError, UnknownNameError, UsageError
from planner.loop.state.count_table import node_counts
from planner.model.precision import (
    KERNELS,
    KV_BYTES_PER_ELEMENT,
    KV_TYPES,
    WEIGHT_FORMATS,
    attention_format,
    kv_bytes_per_element,
    peak_flops_per_s,
    usable_kernels,
    weight_format,
)
from planner.steptime.dense_time import gemms_s
from planner.steptime.gqa_time import gqa_contributions

A100, H100, B200 = load_gpu("a100-sxm"), load_gpu("h100-sxm"), load_gpu("b200-sxm")


@pytest.mark.parametrize("name", WEIGHT_FORMATS)
def test_every_format_runs_on_every_gpu(name: str) -> None:
    """Every choice of kernels ends with one that computes in 16 bit."""
    chosen = WEIGHT_FORMATS[name]
    assert 0.5 < chosen.bytes_per_element <= 2
    assert set(chosen.gemm) | set(chosen.moe) <= set(KERNELS)
    for gpu in map(load_gpu, gpu_names()):
        peak = peak_flops_per_s(gpu, name)
        few = name in ("int8", "w8a8") and gpu.name in ("b300-sxm", "gb300", "vr200")  # units
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
    assert (kv_bytes_per_element("auto", None, "vllm"), kv_bytes_per_element("FP8", None, "vllm")) == (2.0, 1.0)
    assert set(KV_BYTES_PER_ELEMENT.values()) == {1.0, 2.0}
    assert SGLANG_KV_DTYPES["fp4_e2m1"] == "fp4_mx_block16"  # its name before
    names = VLLM_KV_DTYPES | SGLANG_KV_DTYPES
    assert set(names.values()) <= set(KV_TYPES) <= {*names, *names.values()}
    with pytest.raises(UnknownNameError, match="unknown KV cache type 'fp5'"):
        kv_bytes_per_element("fp5", None, "vllm")


@pytest.mark.parametrize(("name", "model", "slot"), [  # a key and a value of 128 elements, as vLLM's own code has them
    ("nvfp4", "qwen3.5-397b-a17b", 2 * (256 // 2 + 256 // 16)),
    ("int8_per_token_head", "llama-3.1-8b", 2 * 128 + 8),
    ("int4_per_token_head", "llama-3.1-8b", 128 + 8),
    ("fp8_per_token_head", "llama-3.1-8b", 2 * 128 + 8),
    ("octave_k3v4", "llama-3.1-8b", 64 + 64 + 2 * 3 + 2),
    ("octave_k3v3", "llama-3.1-8b", 64 + 48 + 2 * 3 + 2),
    ("octave_k3v3_compact", "llama-3.1-8b", 48 + 48 + 4),
    ("turboquant_k8v4", "qwen3.5-397b-a17b", 256 + 128 + 4),
    ("turboquant_3bit_nc", "qwen3.5-397b-a17b", 96 + 2 + 96 + 4),
    ("ultraquant_4bit", "qwen3.5-397b-a17b", 272),
])
def test_a_packed_kv_cache_has_its_scales(name: str, model: str, slot: int) -> None:
    arch = load_model(model)
    head_dim = next(each.head_dim for each, _ in arch.by_attention if isinstance(each, Gqa))
    assert 2 * head_dim * kv_bytes_per_element(name, arch, "vllm") == slot


@pytest.mark.parametrize(("name", "gpu", "slot"), [  # of a key and a value of 128 elements in each of 32 layers
    ("mxfp8", "b200-sxm", 2 * (128 + 128 // 32)),
    ("fp4_mx_block16", "h100-sxm", 2 * (128 // 2 + 128 // 16)),
    ("nvfp4", "b200-sxm", 2 * (128 // 2 + 128 // 16)),
    ("nvfp4", "rtx-pro-6000", 2 * (128 // 2 + 128 // 16) + 2 * 128 / 32),  # one layer in 8 bit for all prompts
])
def test_sglangs_packed_kv_cache_has_its_scales_and_its_workspace(name: str, gpu: str, slot: float) -> None:
    arch = load_model("llama-3.1-8b")
    assert 2 * 128 * kv_bytes_per_element(name, arch, "sglang", load_gpu(gpu)) == slot


@pytest.mark.parametrize(("engine", "name"), [(engine.name, name) for engine in ENGINES.values()
                                              for name in engine.memory.packed_kv])
def test_every_packed_type_of_an_engine_has_its_own_size_or_a_reason(engine: str, name: str) -> None:
    """None takes the size of the default: a server on each GPU below either has the packed cache or is refused."""
    for gpu, model in (("h100-sxm", "llama-3.1-8b"), ("b200-sxm", "deepseek-v3.2"), ("mi355x", "llama-3.1-8b")):
        size = size_or_reason(name, model, engine, gpu)
        assert 0 < size < 1.1 and size != 1 if isinstance(size, float) else f"kv_cache_dtype = {name}: " in size


def size_or_reason(name: str, model: str, engine: str, gpu: str) -> float | str:
    try:
        return kv_bytes_per_element(name, load_model(model), engine, load_gpu(gpu))
    except UsageError as error:
        return str(error)


def test_the_first_and_last_layers_of_a_dense_model_may_stay_in_sixteen_bit() -> None:
    slot = (4 * 512 + 28 * (64 + 2 + 64 + 4)) / 32
    assert 256 * kv_bytes_per_element("turboquant_4bit_nc", load_model("llama-3.1-8b"), "vllm") == slot


def test_a_sparse_latent_can_be_in_four_bit() -> None:
    assert 576 * kv_bytes_per_element("nvfp4_ds_mla", load_model("deepseek-v3.2"), "vllm") == pytest.approx(352)


@pytest.mark.parametrize(("options", "message"), [
    ({"engine": "sglang", "kv_cache_dtype": "octave_k3v4"}, "is vLLM's alone, and the engine is SGLang; give fp8 or b"),
    ({"engine": "sglang", "kv_cache_dtype": "nvfp4"}, "SGLang has a kernel for it on GPUs that multiply in fp4 alone"),
    ({"engine": "atom", "kv_cache_dtype": "mxfp8"}, "is SGLang's alone, and the engine is ATOM"),
    ({"kv_cache_dtype": "nvfp4_4over6"}, "vLLM has a kernel for it on GPUs that multiply in fp4 alone, and h100-sxm"),
    ({"kv_cache_dtype": "octave_k3v4"}, "on GPUs of AMD alone, and h100-sxm is NVIDIA's; give fp8 or bf16"),
    ({"kv_cache_dtype": "int8_per_token_head", "model": "deepseek-v3"}, "no kernel for it with the latent attention"),
    ({"kv_cache_dtype": "nvfp4_ds_mla"}, "only DeepSeek's sparse latent attention"),
])
def test_a_kv_cache_that_the_engine_cannot_have_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        deploy(Scenario(**{"model": "llama-3.1-8b", "gpu": "h100-sxm"} | options))


def test_attention_with_a_packed_kv_cache_takes_the_time_of_the_eight_bit_kernel() -> None:
    seconds = {}
    for name in ("fp8", "nvfp4"):
        stack = deploy(Scenario(model="llama-3.1-8b", gpu="b200-sxm", kv_cache_dtype=name)).stack
        assert stack is not None
        attention = next(each for each, _ in stack.arch.by_attention if isinstance(each, Gqa))
        parts = list(gqa_contributions(stack, attention, stack.arch.layers, node_counts().astype(float)))
        seconds[name] = next(part for part in parts if part.name == "attention")
    assert seconds["nvfp4"].curve["decode_s_per_context_token"] == pytest.approx(
        seconds["fp8"].curve["decode_s_per_context_token"])
    assert seconds["nvfp4"].terms["kv_bytes_per_token"] == 9 / 16 * seconds["fp8"].terms["kv_bytes_per_token"]


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
