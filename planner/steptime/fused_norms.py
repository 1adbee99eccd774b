"""All-reduces that add the residual and normalise in one kernel: which engines run them, where, and up to what size."""

from collections.abc import Mapping

from planner.catalog.architecture import Architecture
from planner.catalog.gpus import Gpu
from planner.errors import UsageError
from planner.model.layout import Layout

# Largest message of FlashInfer's kernel that vLLM takes, by GPU generation and ranks [MiB]: FI_ALLREDUCE_FUSION_MAX_
# SIZE_MB in vllm/compilation/passes/fusion/allreduce_rms_fusion.py.
VLLM_LARGEST_MIB: Mapping[str, Mapping[int, float]] = {
    "hopper": {2: 64, 4: 2, 8: 0.5}, "blackwell": {2: 64, 4: 32, 8: 1}}
SGLANG_LARGEST_TOKENS = 2048  # FUSE_ALLREDUCE_MAX_BATCH_SIZE in sglang/srt/layers/communicator.py
# getMaxRequiredWorkspaceSize in TensorRT-LLM's customAllReduceUtils.h [MB]; beyond it NCCL adds up, and another kernel
# normalises.
TRTLLM_LARGEST_MB = {2: 16}
TRTLLM_LARGEST_MB_OF_MORE = 8
# In TensorRT-LLM a model's own code fuses (EagerFusionConfig, PRE_ and POST_MLP_FUSION in tensorrt_llm/_torch/models),
# or does not; LlamaDecoderLayer only above this hidden size, since small models lost accuracy.
TRTLLM_FUSES = ("llama", "llama4_text", "qwen3_moe", "gpt_oss", "glm4_moe", "glm_moe_dsa", "kimi_k2", "deepseek_v3",
                "deepseek_v32")
TRTLLM_SMALL_LLAMA = 4096
KERNELS_OF = "trtllm"  # FlashInfer's kernel is TensorRT-LLM's, so its benchmark is of all three engines'


def generation(gpu: Gpu) -> str | None:
    """Return the generation of a data centre's GPU from Hopper on, with NVLink; None elsewhere.

    >>> from planner.catalog.catalog_files import load_gpu
    >>> [generation(load_gpu(name)) for name in ("h100-sxm", "b200-sxm", "a100-sxm", "rtx-pro-6000")]
    ['hopper', 'blackwell', None, None]
    """
    if not gpu.scale_up_link.startswith("NVLink") or "fp8" not in gpu.flops_per_s:
        return None
    return "blackwell" if "fp4" in gpu.flops_per_s else "hopper"


def fuses_norms(given: bool | None, engine: str, arch: Architecture, gpu: Gpu, layout: Layout) -> bool:
    """Tell whether all-reduces take the norm after them along.

    Parameters
    ----------
    given : what the user says; None leaves it to the engine.

    Raises
    ------
    UsageError : the user asks for it where no such kernel runs.
    """
    if given and generation(gpu) is None:
        raise UsageError(f"--fuse-allreduce-rms: the fused kernels need Hopper or Blackwell GPUs joined by NVLink, and "
                         f"--gpu {gpu.name} has {gpu.scale_up_link}; leave it out")
    return _fuses_by_itself(engine, arch, gpu, layout) if given is None else given


def _fuses_by_itself(engine: str, arch: Architecture, gpu: Gpu, layout: Layout) -> bool:
    """Tell whether an engine fuses all-reduce and norm where its user says nothing of it.

    vLLM from 0.16 on (`enable_allreduce_rms_fusion` of -O2) does for every model, SGLang for models with experts
    (`_handle_model_specific_adjustments` has a list of them), TensorRT-LLM's PyTorch backend for TRTLLM_FUSES; none
    beside data-parallel attention, and vLLM not beside pipeline stages. Where there are several residual streams, they
    are mixed between the two.
    """
    if arch.num_residual_streams > 1:
        return False
    if generation(gpu) is None or layout.tensor_parallel_size == 1 or layout.data_parallel_size > 1:
        return False
    if engine == "vllm":
        return layout.pipeline_parallel_size == 1
    if engine == "trtllm":
        is_small_llama = arch.model_type == "llama" and arch.hidden_size <= TRTLLM_SMALL_LLAMA
        return arch.model_type in TRTLLM_FUSES and not is_small_llama
    return arch.num_moe_layers > 0


def largest_fused_bytes(engine: str, gpu: Gpu, num_gpus: int, hidden_size: int) -> float:
    """Return the largest message that an engine adds up and normalises in one kernel [B]; 0 where it has none.

    Parameters
    ----------
    num_gpus : that add up [1].
    hidden_size : of a token, whose message is 16-bit [1].

    >>> from planner.catalog.catalog_files import load_gpu
    >>> largest_fused_bytes("vllm", load_gpu("h100-sxm"), 8, 8192) // (8192 * 2)
    32.0
    """
    of_generation = generation(gpu)
    if of_generation is None:
        return 0.0
    if engine == "vllm":
        return VLLM_LARGEST_MIB[of_generation].get(num_gpus, 0.0) * 2.0**20
    if engine == "sglang":
        return 2.0 * SGLANG_LARGEST_TOKENS * hidden_size
    return TRTLLM_LARGEST_MB.get(num_gpus, TRTLLM_LARGEST_MB_OF_MORE) * 1e6
