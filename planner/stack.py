"""What a step's time depends on besides the step: model, hardware, spread, formats, engine."""

from dataclasses import dataclass

from planner.architecture import Architecture
from planner.catalog import Gpu
from planner.drafting import Draft
from planner.engines import EngineConstants
from planner.layout import Layout
from planner.operators.network import NodeLink

# Beyond this density of arithmetic (16-bit peak over the power limit) large products draw the limit, and clocks fall.
# H100, H200, B200 and B300 have 1.4 to 2.3e12; A100 SXM has 0.78e12, RTX PRO 6000 0.80e12 and RTX 4090 0.37e12.
POWER_BOUND_FLOPS_PER_J = 0.9e12


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """One model on one kind of GPU under one engine.

    Parameters
    ----------
    arch, gpu, layout : the model, one GPU's profile, and how the model is spread.
    quantization : weight format; None for the checkpoint's own.
    kv_bytes_per_element : 2 for a 16-bit KV cache, 1 for fp8 [B].
    engine : whose kernels run: "vllm", "sglang" or "trtllm".
    constants : that engine's.
    is_overlapped : whether the host works on the next step while the GPU works on this one.
    node_link : what joins nodes; None where the GPUs are of one.
    draft : how tokens are drafted; None where they are not.
    lora_rank : of LoRA adapters, 0 without them [1].
    fuses_norms : whether all-reduces take the norm after them along (`planner.fused_norms`).
    graph_seqs, graph_tokens : steps of so many decodes [1], or with prompts of so many tokens, run as CUDA graphs.
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
    fuses_norms: bool = False

    @property
    def tokens_per_decode(self) -> int:
        """Tokens of a decode that a step checks: its own, and those drafted [1]."""
        return 1 if self.draft is None else 1 + self.draft.num_tokens

    @property
    def compute_ratio(self) -> float:
        """How much longer large steps' arithmetic takes than in short benchmarks [1]: not at all where clocks stay.

        >>> from planner.catalog import load_gpu
        >>> [round(load_gpu(gpu).flops_per_s["bf16"] / load_gpu(gpu).tdp_w / POWER_BOUND_FLOPS_PER_J, 2)
        ...  for gpu in ("h100-sxm", "a100-pcie", "a100-sxm", "rtx-4090")]
        [1.57, 1.16, 0.87, 0.41]
        """
        beyond = self.gpu.flops_per_s["bf16"] / (POWER_BOUND_FLOPS_PER_J * self.gpu.tdp_w)
        return min(self.constants.compute_ratio, max(beyond, 1.0))
