"""Scales of NVFP4 experts that SGLang holds twice: as its kernel reads them, and in another kernel's layout."""

from planner.catalog.architecture import Architecture
from planner.catalog.gpus import Gpu
from planner.catalog.layers.mlps import Experts
from planner.engines.engine import Memory
from planner.engines.releases import is_before
from planner.model.layout import Layout
from planner.model.precision import expert_format
from planner.steptime.fused_norms import nvlink_generation

WEIGHTS_PER_SCALE = 16  # of NVFP4, each scale a byte
KERNEL = "flashinfer_trtllm"  # of experts in NVFP4 on Blackwell


def kept_scale_bytes(arch: Architecture, gpu: Gpu, layout: Layout, memory: Memory, *, quantization: str | None,
                     version: str | None, moe_backend: str) -> float:
    """Return the memory of scales that no kernel reads, on one GPU [bytes].

    SGLang before 0.5.12 runs TensorRT-LLM's kernel. It kept the scales in the layouts of this kernel and of CUTLASS's
    (`ModelOptNvFp4FusedMoEMethod.create_weights` in layers/quantization/modelopt_quant.py). A start-up log of
    DeepSeek-R1 in NVFP4 on four B200 has 102.1 GiB of weights: 9.5 GiB are these.
    """
    since = memory.drops_scales_since
    if since is None or not is_before(version, since) or moe_backend not in ("auto", KERNEL):
        return 0.0
    if expert_format(arch, quantization) not in ("nvfp4", "fp4") or nvlink_generation(gpu) != "blackwell":
        return 0.0
    layers = sum(count * -(-layout.slots(experts.num_experts) // layout.expert_parallel_size)
                 / layout.expert_tensor_parallel_size * experts.expert_parameters(arch.hidden_size)
                 for count, experts in arch.mlps_of(Experts))
    return layers / layout.pipeline_parallel_size / WEIGHTS_PER_SCALE
