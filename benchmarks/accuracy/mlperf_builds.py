"""What engines of MLPerf Inference 5.1 were built and started with, beyond what their table of settings holds."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.deployment.deploy import Deployment
from planner.loop.state.count_table import node_counts
from planner.model.projections import projections
from planner.model.small_kernels import ACTIVATION_SHARE, small_kernels
from planner.steptime.collective_time import ACTIVATION_BYTES, collectives_s
from planner.steptime.dense_time import gemms_s, projection_format
from planner.steptime.roofline import padded
from planner.steptime.small_time import small_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """TensorRT-LLM's flags of one run.

    Parameters
    ----------
    gemm_swiglu : the product of gate and up applies the activation (`gemm_swiglu_plugin`).
    norm_quant : norms write what the product after them multiplies (`norm_quant_fusion`).
    is_native : NVFP4 products are TensorRT's own, without `gemm_plugin`: what quantizes their input is a layer of the
        graph (`FP4Linear` of TensorRT-LLM's quantization/layers.py), which TensorRT joins with the activation before.
    gemm_allreduce : products add up over the GPUs themselves (`gemm_allreduce_plugin`): the last of each half of a
        layer, which is that plugin's then.
    uses_graphs : it runs CUDA graphs, as the PyTorch backend does; built engines launch their kernels one by one.
    max_num_tokens, max_num_seqs : that it was started with, where that is not what it was built with [1].
    """

    gemm_swiglu: bool = False
    norm_quant: bool = False
    is_native: bool = False
    gemm_allreduce: bool = False
    uses_graphs: bool = False
    max_num_tokens: int | None = None
    max_num_seqs: int | None = None


# What TensorRT's own NVFP4 products take of the time of the plugin's, whose kernels were benchmarked. A round value
# from Llama-2-70B's Offline runs alone: B200's would have 0.78, GB200's 0.89. From so many tokens a step on: Offline's
# have 1,500 and more.
NATIVE_SHARE = 0.8
LEAST_NATIVE_TOKENS = 1024
# By model, precision and scenario: closed/*/configs/*/{Server,Interactive,Offline}/*.py of the round's results, of
# which 84 of 187 were read for Server and Interactive, all that could be, and 11 for Offline; those of a group agree,
# but for the ones below.
BUILDS: Mapping[tuple[str, str, str], Build] = {
    ("llama2-70b", "fp8", "Server"): Build(gemm_swiglu=True),
    ("llama2-70b", "fp4", "Server"): Build(norm_quant=True, is_native=True),
    ("llama3.1-405b", "fp8", "Server"): Build(gemm_allreduce=True, max_num_tokens=2560, max_num_seqs=64),
    ("llama3.1-405b", "fp8", "Interactive"): Build(gemm_allreduce=True, max_num_tokens=2560, max_num_seqs=64),
    ("llama3.1-405b", "fp4", "Server"): Build(gemm_allreduce=True, norm_quant=True, is_native=True),
    ("llama3.1-405b", "fp4", "Interactive"): Build(gemm_allreduce=True, norm_quant=True, is_native=True,
                                                   max_num_tokens=1536),
    ("llama3.1-8b", "fp4", "Server"): Build(uses_graphs=True),
    ("llama3.1-8b", "fp4", "Interactive"): Build(uses_graphs=True),
    ("mixtral-8x7b", "fp8", "Server"): Build(max_num_tokens=8192),
    ("deepseek-r1", "fp4", "Server"): Build(uses_graphs=True),
    ("llama2-70b", "fp8", "Offline"): Build(gemm_swiglu=True),
    ("llama2-70b", "fp4", "Offline"): Build(norm_quant=True, is_native=True),
    ("llama3.1-405b", "fp8", "Offline"): Build(gemm_allreduce=True, max_num_tokens=1536),
    ("llama3.1-405b", "fp4", "Offline"): Build(gemm_allreduce=True, norm_quant=True, is_native=True,
                                               max_num_tokens=1536),
    ("llama3.1-8b", "fp4", "Offline"): Build(uses_graphs=True, max_num_tokens=12_000),
    ("mixtral-8x7b", "fp8", "Offline"): Build(max_num_tokens=9216),
    ("deepseek-r1", "fp4", "Offline"): Build(uses_graphs=True),
}
BUILDS_OF_FILES: Mapping[str, Build] = {
    "closed/GigaComputing/configs/G894-SD1_B200-SXM-180GBx8/Interactive/llama2-70b.py": Build(max_num_tokens=512),
    "closed/HPE/configs/HPE_Cray_XD670_H200_SXM_141GBx8/Server/llama3_1-8b.py": Build(uses_graphs=True),
    "closed/NVIDIA/configs/GB200-NVL72_GB200-186GB_aarch64x4/Server/llama3_1-8b.py": Build(),
    "closed/NVIDIA/configs/GB300-NVL72_GB300-288GB_aarch64x72_TRT/Offline/llama3_1-405b.py":
        Build(norm_quant=True, max_num_tokens=1536),
    "closed/Oracle/configs/B200-SXM-180GBx8/Server/llama3_1-8b.py": Build(uses_graphs=True, max_num_tokens=12_000),
    "closed/Supermicro/configs/SYS-A21GE-NBRT_B200-SXM-180GBx8/Server/llama3_1-8b.py":
        Build(uses_graphs=True, max_num_tokens=12_000),
}
# The README of code/llama3_1-405b runs this one with prefill and decode on GPUs of their own.
DISAGGREGATED = "closed/NVIDIA/configs/GB200-NVL72_GB200-186GB_aarch64x72/Interactive/llama3_1-405b.py"


def build_of(row: Mapping[str, Any]) -> Build:
    """Return what a run's engine was built with; in round 4.1, whose builder.py passes none of these flags, nothing."""
    if row["round"] != "v5.1":
        return Build()
    group = row["base"], row["precision_set"], row["scenario"]
    return BUILDS_OF_FILES.get(row["source_file"], BUILDS.get(group, Build()))


def apply_build(deployment: Deployment, build: Build) -> None:
    """Take what fused kernels save off the time of a deployment's steps."""
    if build.gemm_swiglu:
        fuse_activation(deployment)
    if build.norm_quant:
        fuse_quantization(deployment, "qkv_proj", "gate_up_proj")
    if build.is_native:
        compile_products(deployment, "qkv_proj", "gate_up_proj")
    if build.is_native and not build.gemm_allreduce:
        fuse_quantization(deployment, "down_proj")
        compile_products(deployment, "o_proj", "down_proj")
    if build.gemm_allreduce:
        overlap_reduces(deployment)


def fuse_activation(deployment: Deployment) -> None:
    """Leave out the kernels between the product of gate and up and the next."""
    stack, curve = deployment.stack, deployment.step_time.curve
    assert stack is not None
    counts = token_counts()
    for kernel in small_kernels(stack.arch, stack.engine, stack.layout.tensor_parallel_size):
        if kernel.share == ACTIVATION_SHARE:
            save(curve, "activations_s", kernel.num * small_s(stack, kernel, counts))


def fuse_quantization(deployment: Deployment, *products: str) -> None:
    """Leave out the kernels that quantize what the norms and activations before some products have written."""
    stack, curve = deployment.stack, deployment.step_time.curve
    assert stack is not None
    counts = token_counts()
    for gemm in projections(stack.arch, stack.layout.tensor_parallel_size):
        if gemm.name in products:
            shape = gemm.n, gemm.k, projection_format(stack, gemm)
            apart_s, fused_s = (gemms_s(stack, counts, *shape, is_quantized=given) for given in (False, True))
            save(curve, "linear_s", gemm.count * (apart_s - fused_s))


def compile_products(deployment: Deployment, *products: str) -> None:
    """Let products of many tokens take their share of what the plugin's take; what quantizes their input is apart."""
    stack, curve = deployment.stack, deployment.step_time.curve
    assert stack is not None
    counts = token_counts()
    saved = np.where(counts >= LEAST_NATIVE_TOKENS, 1.0 - NATIVE_SHARE, 0.0)
    for gemm in projections(stack.arch, stack.layout.tensor_parallel_size):
        if gemm.name in products:
            product_s = gemms_s(stack, counts, gemm.n, gemm.k, projection_format(stack, gemm), is_quantized=True)
            save(curve, "linear_s", gemm.count * saved * product_s)


def overlap_reduces(deployment: Deployment) -> None:
    """Let all-reduces run beside the products before them, tile by tile, so that a layer takes the longer of each two.

    An upper bound of what one kernel for both can hide.
    """
    stack, curve = deployment.stack, deployment.step_time.curve
    assert stack is not None
    tp = stack.layout.tensor_parallel_size
    if tp == 1:
        return
    counts = token_counts()
    reduce_s = collectives_s(stack, counts * ACTIVATION_BYTES * stack.arch.hidden_size, "all_reduce", tp)
    for gemm in projections(stack.arch, tp):
        if gemm.name in ("o_proj", "down_proj"):
            product_s = gemms_s(stack, counts, gemm.n, gemm.k, projection_format(stack, gemm))
            hidden_s = gemm.count * np.minimum(reduce_s, product_s)
            hidden_s[0] = 0.0
            save(curve, "collectives_s", hidden_s)


def save(curve: Any, part: str, saved_s: Any) -> None:
    """Take seconds off a part of a step's time, and off its sum; shape of the curve."""
    curve[part] -= saved_s
    curve.tokens_s -= saved_s


def token_counts() -> Any:
    """Return the tokens of a step's curve as its kernels get them."""
    return padded(node_counts()).astype(np.float64)
