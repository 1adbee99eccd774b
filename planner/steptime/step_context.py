"""Inputs of the step-time model: model, hardware, sharding, number formats, engine."""

from dataclasses import dataclass

from planner.catalog.architecture import Architecture
from planner.catalog.gpu_power import clock_share
from planner.catalog.gpus import Gpu
from planner.catalog.layers.latent import Mla
from planner.engines import ENGINES
from planner.model.batch_overlap import BatchOverlap
from planner.model.drafting import Draft
from planner.model.layout import Layout
from planner.model.node_link import NodeLink
from planner.model.precision import expert_format
from planner.steptime.engine_constants import EngineConstants
from planner.steptime.fused_norms import nvlink_generation
from planner.steptime.older_releases import NUMBERS, OlderRelease, measured_release

# Density of arithmetic (16-bit peak over the power limit) up to which large products keep the clocks of the peak. H100
# and H200 have 1.4e12, B200 and B300 2.1 to 2.3e12; A100 SXM 0.78e12, RTX PRO 6000 0.80e12, RTX 4090 0.37e12.
POWER_BOUND_FLOPS_PER_J = 0.9e12
# NVFP4 products reach 0.54 of their peak, 8-bit and 16-bit ones 0.72 and 0.77 (medians over GPUs in gemm.toml), so that
# they draw less; an operation takes power as its width, and each peak is that much higher.
FP4_UTILIZATION = 0.54 / 0.75


@dataclass(frozen=True, slots=True, kw_only=True)
class StepContext:
    """One model on one kind of GPU under one engine.

    Parameters
    ----------
    arch, gpu, layout : the model, one GPU's profile, and how the model is spread.
    quantization : weight format; None for the checkpoint's own.
    kv_bytes_per_element : 2 for a 16-bit KV cache, 1 for fp8 [B].
    engine : the name of the engine whose kernels run.
    constants : that engine's.
    is_overlapped : whether the host works on the next step while the GPU works on this one.
    node_link : network between nodes; None if the GPUs share one.
    draft : how tokens are drafted; None without drafts.
    lora_rank : of LoRA adapters, 0 without them [1].
    is_staged : whether collectives inside a node go through the host (`planner.steptime.collective_time.is_staged`).
    uses_nccl : whether NCCL sends all messages, and the engine's own all-reduce none.
    fuses_norms : whether all-reduces take the norm after them along (`planner.steptime.fused_norms`).
    fp8_gemm_backend : "auto", or "flashinfer_trtllm" if block-scaled FP8 is multiplied by that kernel.
    moe_backend : "auto", or the kernels of the routed experts: a name of `roofline.MOE_BACKENDS`.
    engine_version : the engine's release; None for the newest.
    fp32_matmul : "auto", or "fp32" or "tf32" if cuBLAS multiplies the routers that stay in 32 bit.
    dispatch_tokens : of a rank in the exchange's buffer, for all of which experts' kernels start; 0 without one [1].
    overlap : work beside the exchange of tokens with their experts.
    graph_seqs, graph_tokens : steps of at most this many decodes [1], or tokens with prompts, run as CUDA graphs.
    """

    arch: Architecture
    gpu: Gpu
    layout: Layout
    quantization: str | None
    kv_bytes_per_element: float
    engine: str
    constants: EngineConstants
    graph_seqs: int
    graph_tokens: int
    is_overlapped: bool
    node_link: NodeLink | None = None
    draft: Draft | None = None
    lora_rank: int = 0
    is_staged: bool = False
    uses_nccl: bool = False
    fuses_norms: bool = False
    fp8_gemm_backend: str = "auto"
    moe_backend: str = "auto"
    fp32_matmul: str = "auto"
    engine_version: str | None = None
    dispatch_tokens: int = 0
    overlap: BatchOverlap = BatchOverlap()

    @property
    def tokens_per_decode(self) -> int:
        """Tokens of a decode that a step checks: its own, and those drafted [1]."""
        return 1 if self.draft is None else 1 + self.draft.num_tokens

    @property
    def measured_kv_bytes(self) -> float:
        """Size of a KV element to the measured attention kernels, which read no less than 8 bit [B]."""
        return max(self.kv_bytes_per_element, 1.0)

    @property
    def fuses_shared_experts(self) -> bool:
        """Whether a layer's shared expert is one more of the routed ones, in their kernel.

        SGLang's is if each GPU holds a slice of every expert. On Blackwell it runs FlashInfer's kernels, which
        switch that off.
        """
        is_blackwell = "fp4" in self.gpu.flops_per_s
        is_fused = self.arch.model_type in ENGINES[self.engine].kernels.fused_shared_experts
        return is_fused and not is_blackwell and self.layout.expert_parallel_size == 1

    @property
    def older_release(self) -> OlderRelease | None:
        """How much longer steps take under this release than under a later one; None if no run shows it.

        Models with latent attention take the value of published runs on a GPU with these kernels, others the
        engine's `older_layer_s`.
        """
        engine, precision = ENGINES[self.engine], expert_format(self.arch, self.quantization)
        precision = next((name for name in ("fp4", "fp8") if name in precision), precision)
        rows = measured_release(self.engine, self.engine_version, self.gpu.kernels_of, precision)
        if rows and any(isinstance(group.attention, Mla) for group in self.arch.layers):
            shown = {name: row[name] for row in rows for name in NUMBERS & row.keys()}
            newest = next((row["until"] for row in rows if "layer_s" in row), str(engine.kernels.newest_since))
            return OlderRelease(**{"layer_s": self.constants.older_layer_s} | shown, num_layers=self.arch.num_layers,
                                newest=newest)
        num_layers = engine.kernels.older_layers(self.arch)
        if not num_layers or not engine.is_older(self.engine_version):
            return None
        return OlderRelease(layer_s=self.constants.older_layer_s, num_layers=num_layers,
                            newest=str(engine.kernels.newest_since))

    def compute_ratio(self, precision: str) -> float:
        """Return how much longer large steps' arithmetic takes than in short benchmarks [1]: clocks under load.

        Parameters
        ----------
        precision : that is multiplied at, a key of `gpu.flops_per_s`.
        """
        return self.constants.compute_ratio * power_ratio(self.gpu, precision)


def power_ratio(gpu: Gpu, precision: str) -> float:
    """Return the peak's clocks over the clocks that large products keep [1].

    Power goes with the cube of the clocks (voltage follows them), so beyond the density that its limit feeds a GPU
    sustains the cube root of the limit's share, if its clocks under load were not measured. A lowered limit lowers
    the clocks further (`gpu_power.clock_share`).

    >>> from planner.catalog.catalog_files import load_gpu
    >>> [round(gpu.flops_per_s["bf16"] / gpu.tdp_w / POWER_BOUND_FLOPS_PER_J, 2)
    ...  for gpu in map(load_gpu, ("b200-sxm", "h100-sxm", "a100-sxm"))]
    [2.5, 1.57, 0.87]
    """
    if gpu.sustained_clock:
        return 1.0 / gpu.sustained_clock / clock_share(gpu)
    density = gpu.flops_per_s["bf16"] / gpu.tdp_w * (FP4_UTILIZATION if precision == "fp4" else 1.0)
    return float(max(density / POWER_BOUND_FLOPS_PER_J, 1.0) ** (1 / 3)) / clock_share(gpu)


def runs_flashinfer(engine: str, gpu: Gpu) -> bool:
    """Tell whether vLLM's attention is FlashInfer's, as on Blackwell with HBM; elsewhere it is FlashAttention's.

    >>> from planner.catalog.catalog_files import load_gpu
    >>> [runs_flashinfer("vllm", load_gpu(name)) for name in ("b200-sxm", "rtx-pro-6000", "h100-sxm", "mi355x")]
    [True, False, False, False]
    """
    return nvlink_generation(gpu) in ENGINES[engine].kernels.flashinfer_generations
