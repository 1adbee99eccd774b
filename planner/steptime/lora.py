"""LoRA adapters: their size on a GPU, and their kernels' time in a step."""

from typing import Any

from planner.catalog.architecture import Architecture
from planner.catalog.gpus import Gpu
from planner.model.projections import projections
from planner.settings.scenario import Scenario
from planner.steptime.contribution import Contribution
from planner.steptime.step_context import StepContext

BYTES_PER_ELEMENT = 2.0  # of adapters' weights, 16-bit under every format of the model's (`lora_dtype`)
# Modules that a fused product stands for, each with a matrix A of its own.
SLICES = {"qkv_proj": 3, "gate_up_proj": 2, "shared_gate_up_proj": 2, "fused_qkv_a_proj": 2}
WITHOUT = ("router", "in_proj_ba", "indexer.wq_b", "indexer.wk", "indexer.weights_proj")  # that adapters leave alone
KERNELS = 2  # of a product: to the rank, and from it (punica's shrink and expand)


def adapter_bytes(arch: Architecture, rank: int, tensor_parallel_size: int) -> float:
    """Return one adapter's weights on one GPU [bytes].

    r · (slices · k + n) of each product of k inputs and n outputs there, over all layers: vLLM stacks adapters of the
    largest rank, sharded as the weights beside them. Routed experts have none.

    Source: Hu et al., LoRA, 2021; vllm/lora/layers.

    >>> from planner.catalog.catalog_files import load_model
    >>> adapter_bytes(load_model("llama-3.1-8b"), 16, 1) / 2**20
    80.0
    """
    return BYTES_PER_ELEMENT * rank * sum(
        gemm.count * (SLICES.get(gemm.name, 1) * gemm.k + gemm.n) for gemm in projections(arch, tensor_parallel_size)
        if gemm.name not in WITHOUT)


def adapters(stack: StepContext, rank: int) -> Contribution:
    """Return the adapters' time in a step: kernels' floors, its tokens' activations, each adapter's weights.

    Products to the rank and back are bound by memory: a token's inputs, its r values, and its outputs read and written.

    Source: Chen et al., Punica, 2023, section 4; Sheng et al., S-LoRA, 2023.
    """
    bandwidth = stack.gpu.hbm_bandwidth_bytes_per_s
    gemms = [gemm for gemm in projections(stack.arch, stack.layout.tensor_parallel_size) if gemm.name not in WITHOUT]
    floor_s = stack.constants.kernel_floor_s
    values = sum(gemm.count * (gemm.k + 2 * SLICES.get(gemm.name, 1) * rank + 2 * gemm.n) for gemm in gemms)
    return Contribution("adapters", {
        "adapters_s": KERNELS * floor_s * sum(gemm.count for gemm in gemms),
        "adapters_s_per_token": BYTES_PER_ELEMENT * values / bandwidth,
        "adapters_s_per_adapter": adapter_bytes(stack.arch, rank, stack.layout.tensor_parallel_size) / bandwidth})


def adapter_settings(scenario: Scenario, architecture: Architecture | None, gpu: Gpu | None) -> dict[str, Any]:
    """Return the fields of `EngineSettings` on adapters: their numbers, and the time to bring one there [s]."""
    if not scenario.max_loras:
        return {"max_cpu_loras": 0}
    size = 0.0 if architecture is None else adapter_bytes(architecture, scenario.max_lora_rank,
                                                          scenario.tensor_parallel_size)
    return {"max_loras": scenario.max_loras,
            "max_cpu_loras": scenario.max_loras if scenario.max_cpu_loras is None else scenario.max_cpu_loras,
            "adapter_load_s": 0.0 if gpu is None else size / gpu.host_bandwidth_bytes_per_s,
            "adapter_read_s": size * scenario.tensor_parallel_size / (1e9 * scenario.lora_disk_bandwidth)}
