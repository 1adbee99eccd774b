"""All-reduces fused with the next norm: GPUs and largest message."""

from planner.catalog.architecture import Architecture
from planner.catalog.gpus import Gpu
from planner.engines import ENGINES
from planner.errors import UsageError
from planner.model.layout import Layout

KERNELS_OF = "trtllm"  # FlashInfer's kernel is TensorRT-LLM's, so its benchmark holds for all three engines


def nvlink_generation(gpu: Gpu) -> str | None:
    """Return the generation of a data centre's GPU from Hopper on, with NVLink; None elsewhere.

    >>> from planner.catalog.catalog_files import load_gpu
    >>> [nvlink_generation(load_gpu(name)) for name in ("h100-sxm", "b200-sxm", "a100-sxm", "rtx-pro-6000")]
    ['hopper', 'blackwell', None, None]
    """
    if not gpu.scale_up_link.startswith("NVLink") or "fp8" not in gpu.flops_per_s:
        return None
    return "blackwell" if "fp4" in gpu.flops_per_s else "hopper"


def fuses_norms(choice: bool | None, engine: str, arch: Architecture, gpu: Gpu, layout: Layout) -> bool:
    """Tell whether all-reduces take the norm after them along.

    Parameters
    ----------
    choice : the user's choice; None leaves it to the engine.

    Raises
    ------
    UsageError : the user asks for it although no such kernel runs.
    """
    if choice and nvlink_generation(gpu) is None:
        raise UsageError(f"--fuse-allreduce-rms: the fused kernels need Hopper or Blackwell GPUs joined by NVLink, and "
                         f"--gpu {gpu.name} has {gpu.scale_up_link}; leave it out")
    return _fuses_by_itself(engine, arch, gpu, layout) if choice is None else choice


def _fuses_by_itself(engine: str, arch: Architecture, gpu: Gpu, layout: Layout) -> bool:
    """Tell whether an engine fuses all-reduce and norm if its user does not choose.

    `Kernels.fuses_allreduce` says for which models. None does beside data-parallel attention, or with several residual
    streams, which are mixed between the two.
    """
    if arch.num_residual_streams > 1:
        return False
    if nvlink_generation(gpu) is None or layout.tensor_parallel_size == 1 or layout.data_parallel_size > 1:
        return False
    return ENGINES[engine].kernels.fuses_allreduce(arch, layout.pipeline_parallel_size)


def largest_fused_bytes(engine: str, gpu: Gpu, num_gpus: int, hidden_size: int) -> float:
    """Return the largest message that an engine adds up and normalises in one kernel [B]; 0 without such a kernel.

    Parameters
    ----------
    num_gpus : that add up [1].
    hidden_size : of a token, whose message is 16-bit [1].

    >>> from planner.catalog.catalog_files import load_gpu
    >>> largest_fused_bytes("vllm", load_gpu("h100-sxm"), 8, 8192) // (8192 * 2)
    32.0
    """
    of_generation = nvlink_generation(gpu)
    if of_generation is None:
        return 0.0
    return ENGINES[engine].kernels.largest_fused_bytes(of_generation, num_gpus, hidden_size)
