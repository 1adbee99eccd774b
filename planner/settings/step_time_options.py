"""Options of step times: the model, drafts and CUDA graphs."""

from dataclasses import dataclass
from typing import Literal

from planner.settings.acceptance import MEASURED, cumulative_acceptance
from planner.settings.draft_lengths import draft_lengths
from planner.settings.panel import SGLANG, TRTLLM, in_panel

option = in_panel("Step time")

SpeculativeMethod = Literal["mtp", "deepseek_mtp", "eagle", "eagle3", "dflash", "dspark", "draft_model", "medusa",
                            "ngram", "ngram_gpu", "suffix"]
CudagraphMode = Literal["full_and_piecewise", "piecewise", "full_decode_only", "none"]


@dataclass(frozen=True, kw_only=True)
class StepTimeOptions:
    """The step-time model, drafts and CUDA graphs."""

    step_time: str = option(
        "roofline", "Step-time model: roofline, or linear:BASE_S,PER_TOKEN_S[,PER_CONTEXT_TOKEN_S].",
        label="step-time model")
    num_speculative_tokens: int = option(
        0, "Speculative decoding: drafted tokens per step (SGLang: --speculative-num-steps). 0: off.",
        label="speculative decoding", unit="tokens", least=0)
    num_speculative_tokens_per_batch_size: str | None = option(
        None, "Drafted tokens by the number of requests in the step before, as vLLM's "
              "[[first, last, tokens], ...]: [[1,64,3],[65,128,1],[129,512,0]]. [num_speculative_tokens]",
        label="drafted tokens by batch size")
    speculative_method: SpeculativeMethod | None = option(
        None, "Method that drafts tokens. [draft_model with --speculative-model, else mtp]", label="drafting method")
    speculative_model: str | None = option(
        None, "Draft model, or the head of EAGLE, DFlash or DSpark: a catalog name, or the path of a config.json.",
        label="draft model")
    speculative_acceptance: str | None = option(
        None, "Probability that a drafted token is accepted, given that all drafted tokens before it were accepted; "
              "vLLM's acceptance rate for each position, 0.8,0.6,0.4; the mean acceptance length, length:2.9; or "
              "measured values, `thinking` or `no-thinking`. [thinking if measured for model and method, else 0.7]",
        label="acceptance of drafted tokens", unit="share")
    cudagraph_mode: CudagraphMode | None = option(
        None, "Steps that run as CUDA graphs; `none`: eager mode (vLLM: --enforce-eager). [vllm: "
        "full_and_piecewise; else full_decode_only]", label="CUDA graphs")
    max_cudagraph_capture_size: int | None = option(
        None, "Largest step that runs as a CUDA graph: tokens in vLLM, sequences in SGLang (--cuda-graph-max-bs) and "
              "TensorRT-LLM (cuda_graph_config.max_batch_size). [vllm: 2 × max_num_seqs × tokens per decode, at most "
              "512; sglang: from GPU memory, at most max_num_seqs; trtllm: 128, at most max_num_seqs]",
        label="largest step as a CUDA graph", unit="tokens or sequences")
    piecewise_cuda_graph_max_tokens: int | None = option(
        None, "Largest step with prompts that runs as piecewise graphs [tokens]. "
        "[max_cudagraph_capture_size]",
        label="largest step as piecewise graphs", unit="tokens", engines=(*SGLANG, *TRTLLM))
    custom_all_reduce: bool = option(
        True, "The engine's own all-reduce for small messages. Without it, NCCL sends all messages (vLLM, SGLang: "
              "--disable-custom-all-reduce).", label="the engine's own all-reduce")
    fuse_allreduce_rms: bool | None = option(
        None, "Fused all-reduce + RMSNorm: one kernel for all-reduce, residual and norm (SGLang: "
        "--enable-flashinfer-allreduce-fusion). [on if the engine does so]", label="fused all-reduce + RMSNorm")
    calibration: str | None = option(
        None, "TOML file with step-time constants from `planner calibrate`. [the engine's constants]",
        label="calibration file")
    cold: bool = option(
        False, "Each replica starts cold: its first step takes longer by the first use of kernels, which are built or "
               "loaded then. A replica that an autoscaler starts, and one that is back after a failure, is cold again.",
        label="cold replicas")
    first_use_s: float | None = option(
        None, "First use of kernels by a cold replica [s]. Needs --cold. [measured value of engine, release, GPU and "
              "weight format]", label="first use of kernels", unit="s", above=0, is_finite=True)
    interval: float | None = option(
        None, "Coverage of prediction intervals, as in 0.8. The intervals are computed from held-out errors. [no "
              "intervals]", label="prediction interval", unit="share")


def check_step_time(options: StepTimeOptions) -> None:
    """Raise UsageError if the numbers of drafts make no table, or acceptance is no probability."""
    draft_lengths(options.num_speculative_tokens_per_batch_size, options.num_speculative_tokens)
    if options.speculative_acceptance not in (None, *MEASURED):
        cumulative_acceptance(options.speculative_acceptance, options.num_speculative_tokens)
