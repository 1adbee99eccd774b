"""Options of the deployment: model, GPU, parallelism, formats and memory."""

from dataclasses import dataclass
from typing import Literal

from planner.engines import ENGINES, defaults_text
from planner.engines.releases import check_release, is_before
from planner.errors import UsageError
from planner.settings.panel import ATOM, SGLANG, TRTLLM, VLLM, in_panel

option = in_panel("Deployment")


@dataclass(frozen=True, kw_only=True)
class DeploymentOptions:
    """Model, GPU, parallelism, formats and memory."""

    model: str | None = option(None, "Model: a name (llama-3.1-8b, Qwen/Qwen3-32B), or a config.json.", label="model")
    pooling: Literal["embed", "score"] | None = option(
        None, "Pooling model: a prompt's result is an embedding (`embed`) or the score of a pair (`score`), and no "
              "token is generated (vLLM: --runner pooling; SGLang: --is-embedding). [by the model]",
        label="result of a pooling model")
    gpu: str | None = option(None, "GPU: h100-sxm, a100-sxm, mi300x … `planner db list` shows all.", label="GPU")
    engine: str = option("vllm", "Serving engine. It determines the scheduler, the defaults and the step-time "
                                 "constants.", label="serving engine")
    engine_version: str | None = option(
        None, "Release of the engine, as in 0.5.9. Older releases lack some optimizations. [newest]",
        label="engine release")
    tensor_parallel_size: int = option(1, "Tensor parallelism: GPUs that share each layer.",
        label="tensor parallelism", unit="GPUs", least=1)
    pipeline_parallel_size: int = option(
        1, "Pipeline parallelism: number of stages. Each stage has a part of the layers.",
        label="pipeline parallelism", unit="stages", least=1, most=127)
    decode_context_parallel_size: int = option(
        1, "Decode context parallelism (vLLM, SGLang, ATOM): GPUs of the tensor-parallel group that share the KV cache "
           "of each sequence. Each GPU holds a part of the context.",
        label="decode context parallelism", unit="GPUs", engines=(*VLLM, *SGLANG, *ATOM))
    prefill_context_parallel_size: int = option(
        1, "Prefill context parallelism: groups of tensor-parallel GPUs that share the tokens of each prompt. Under "
           "vLLM each group holds a part of each context, under SGLang all of it (--attn-cp-size, "
           "--enable-prefill-cp).", label="prefill context parallelism", unit="groups", engines=(*VLLM, *SGLANG))
    inter_node_bandwidth: float | None = option(
        None, "Network bandwidth between nodes, per GPU and direction [GB/s]: 50 if each GPU has 400 "
        "Gb/s. [the GPU's published network; required if none is known]",
        label="network between nodes, bandwidth per GPU", unit="GB/s")
    # DeepSeek-R1 with TP16 on two nodes of eight H100 has TPOT of 23 to 24 ms (tenstorrent/tt-inference-server#356): 55
    # to 60 us; NCCL's all-reduce of 4 KB between H100 nodes takes 75 us (NVIDIA/nccl#1453): 35 us.
    inter_node_latency: float = option(55e-6, "Latency of each message of a collective between nodes [s].",
        label="network between nodes, latency", unit="s")
    pcie_p2p: bool | None = option(
        None, "Peer-to-peer access between GPUs on PCIe. Without it, NCCL's collectives go through the host, and "
              "the engine's own all-reduce is off. [the GPU's profile]", label="peer-to-peer access over PCIe")
    power_limit: float | None = option(
        None, "Power limit of each GPU [W], as nvidia-smi -pl sets it: prompts are slower, and energy is saved. [the "
              "GPU's profile]", label="power limit of each GPU", unit="W")
    expert_parallel: bool = option(
        False, "Expert parallelism: each GPU holds whole experts, not a slice of each expert (vLLM: "
        "--enable-expert-parallel; SGLang, TensorRT-LLM: ep_size).", label="expert parallelism")
    expert_tensor_parallel_size: int = option(
        1, "With expert parallelism, GPUs that share each expert (TensorRT-LLM: moe_tensor_parallel_size; SGLang: "
           "tp_size over ep_size).", label="tensor parallelism of each expert", unit="GPUs", engines=(*SGLANG, *TRTLLM))
    enable_eplb: bool = option(
        False, "Expert-parallel load balancing (EPLB): experts are placed by their load, as measured while serving.",
        label="expert load balancing (EPLB)")
    num_redundant_experts: int = option(
        0, "With EPLB, copies of experts with much load, over all GPUs of a layer (SGLang: "
           "--ep-num-redundant-experts).", label="redundant experts", unit="experts")
    language_model_only: bool = option(
        False, "Do not load the vision encoder of a multimodal model.", label="without the vision encoder")
    quantization: str | None = option(None, "Weight format: bf16, fp8, int4, mxfp4 … [the checkpoint's]",
        label="weight format")
    kv_cache_dtype: str = option(
        "auto", "KV cache format by the engine's name, such as bf16, fp8, fp8_e5m2 or nvfp4. `auto`: the checkpoint's, "
                "or 16 bit if it states none.", label="KV cache format")
    fp8_gemm_backend: Literal["auto", "flashinfer_trtllm"] = option(
        "auto", "GEMM kernel for dense layers with block-scaled FP8 weights (SGLang: --fp8-gemm-backend). `auto`: the "
                "engine's kernel. `flashinfer_trtllm`: on Blackwell also FlashInfer's kernel for small batches.",
        label="FP8 GEMM kernel", engines=SGLANG)
    moe_backend: Literal["auto", "marlin", "triton", "deep_gemm", "cutlass", "flashinfer_trtllm"] = option(
        "auto", "Kernels of the routed experts: `auto` (the engine's choice), Marlin (4 bit), Triton, "
        "DeepGEMM, CUTLASS, or TensorRT-LLM's kernels (SGLang: --moe-runner-backend; TensorRT-LLM: "
        "moe_config.backend).", label="MoE kernel")
    all2all_backend: Literal["auto", "allgather_reducescatter", "deepep", "deepep_low_latency",
                             "deepep_high_throughput", "nvlink_one_sided", "nvlink_two_sided", "mori",
                             "alltoall"] = option(
        "auto", "How tokens reach the experts with data-parallel attention and expert parallelism. `auto`: the "
        "engine's choice (TensorRT-LLM over the NVLink of GB200 and GB300: `nvlink_one_sided`; else "
        "`allgather_reducescatter`). `allgather_reducescatter` sends each token to all GPUs. The others send each "
        "token only to the GPUs with its experts, by the kernels of DeepEP (`deepep` chooses by batch size), by "
        "TensorRT-LLM's kernels over NVLink, by MoRI's on AMD, or by NCCL's all-to-all (SGLang: --moe-a2a-backend, "
        "--deepep-mode).",
        label="all-to-all kernel")
    dispatch_tokens_per_rank: int | None = option(
        None, "With --all2all-backend mori, tokens of each rank that its buffer holds. The experts' kernels start for "
        "all its rows, also for empty ones (SGLang: SGLANG_MORI_NUM_MAX_DISPATCH_TOKENS_PER_RANK). [4,096]",
        label="tokens in MoRI's buffer", unit="tokens", engines=SGLANG, least=1)
    enable_dbo: bool = option(
        False, "Two-batch overlap: a step's tokens run as two halves. One half computes while the other is exchanged "
        "with the experts (SGLang: --enable-two-batch-overlap). Needs an --all2all-backend that sends tokens to their "
        "experts.", label="two-batch overlap", engines=(*VLLM, *SGLANG))
    dbo_decode_token_threshold: int | None = option(
        None, "With --enable-dbo, tokens of a rank from which a step of decodes is split. [vLLM: 32; SGLang: 2]",
        label="two-batch overlap of decodes from", unit="tokens", engines=(*VLLM, *SGLANG))
    dbo_prefill_token_threshold: int | None = option(
        None, "With --enable-dbo, tokens of a rank from which a step with prompts is split. [vLLM: 512; SGLang: 2]",
        label="two-batch overlap of prompts from", unit="tokens", engines=(*VLLM, *SGLANG))
    enable_single_batch_overlap: bool = option(
        False, "Single-batch overlap: shared experts and the last product of the routed experts run beside the "
        "exchange of their own step (SGLang).", label="single-batch overlap", engines=SGLANG)
    fp32_matmul: Literal["auto", "fp32", "tf32"] = option(
        "auto", "GEMM kernel for FP32 MoE routers on Blackwell (VLLM_FLOAT32_MATMUL_PRECISION). `auto`: the engine's "
                "kernel, as fast as in 16 bit. `fp32`, `tf32`: cuBLAS.", label="FP32 router GEMM")
    gpu_memory_utilization: float | None = option(
        None, "Share of GPU memory that the engine uses. SGLang: mem_fraction_static; its default depends on GPU "
              "memory and chunk size. TensorRT-LLM: free_gpu_memory_fraction, the KV cache's share of free memory. "
              f"{defaults_text('gpu_memory_utilization')}", label="GPU memory used by the engine", unit="share",
        above=0, most=1)
    kv_cache_memory_bytes: int | None = option(
        None, "KV cache of each GPU [bytes] (vLLM). It replaces --gpu-memory-utilization. [from the memory model]",
        label="KV cache of each GPU", unit="bytes", engines=VLLM, least=1,
        excludes={"num_gpu_blocks": "both are the size of the KV cache"})
    max_model_len: int | None = option(
        None, "Longest context [tokens] (SGLang: --context-length; TensorRT-LLM: max_seq_len). -1: the longest that "
        "the KV cache holds (vLLM). [the model's]", label="context limit", unit="tokens")
    num_gpu_blocks: int | None = option(
        None, "KV blocks of a replica (vLLM: --num-gpu-blocks-override). [from the memory model]",
        label="KV cache of a replica", unit="blocks", least=1)
    block_size: int = option(
        16, "KV block size [tokens] (SGLang: --page-size; TensorRT-LLM: tokens_per_block). vLLM's blocks "
        "are larger if the model has linear attention.", label="KV block size", unit="tokens", least=1)
    disable_hybrid_kv_cache_manager: bool = option(
        False, "Layers with a sliding window keep all of the context in the KV cache (SGLang: "
        "--disable-hybrid-swa-memory).", label="full KV cache for sliding-window layers")
    swa_full_tokens_ratio: float | None = option(
        None, "KV tokens of the layers with a sliding window, as a multiple of the other layers' (SGLang). [0.8 for "
        "models that have such a pool]",
        label="KV tokens of sliding-window layers", unit="× the others", engines=SGLANG, above=0, is_finite=True)
    mamba_full_memory_ratio: float | None = option(
        None, "Memory for recurrent states, as a multiple of the KV cache's (SGLang). [0.9]",
        label="memory for recurrent states", unit="× the KV cache", engines=SGLANG, above=0, is_finite=True)
    max_loras: int = option(0, "Maximum number of LoRA adapters in a step. 0: adapters are ignored.",
        label="LoRA adapters in a step, at most", unit="adapters", least=0)
    max_cpu_loras: int | None = option(None, "Maximum number of LoRA adapters in host memory. [max_loras]",
        label="LoRA adapters in host memory, at most", unit="adapters")
    max_lora_rank: int = option(
        16, "LoRA rank. The engine reserves memory for this rank, and every adapter is assumed to have this rank.",
        label="LoRA rank", least=1)
    lora_disk_bandwidth: float = option(
        2.0, "Read bandwidth for LoRA adapters that are not in host memory [GB/s].",
        label="read bandwidth for LoRA adapters", unit="GB/s", above=0)
    swap_space: float = option(
        4.0, "Host memory per GPU for the KV of swapped requests [GiB]. Needs --preemption swap.",
        label="swap space per GPU", unit="GiB")
    num_cpu_blocks: int | None = option(
        None, "Number of KV blocks in host memory for swapped requests. It replaces --swap-space.",
        label="swap space", unit="blocks", excludes={
            "kv_offloading_size": "that memory has swapped KV", "kv_offloading_ratio": "that memory has swapped KV"})


FITTED_LENGTH = -1  # a max_model_len: the longest context that the KV cache holds, up to the model's
# Their product are the GPUs of a rank.
SIZES = ("tensor_parallel_size", "pipeline_parallel_size", "prefill_context_parallel_size")


def check_deployment(options: DeploymentOptions) -> None:
    """Raise UsageError if a value cannot be, or contradicts another."""
    check_release(options.engine_version)
    _check_fitted(options)
    if options.max_cpu_loras is not None and options.max_cpu_loras < options.max_loras:
        raise UsageError(f"max_cpu_loras = {options.max_cpu_loras}: must be at least max_loras = {options.max_loras}")


def given_length(options: DeploymentOptions) -> int | None:
    """Return the context limit that is given [tokens]; None for the model's, which may be fitted to the KV cache."""
    return None if options.max_model_len == FITTED_LENGTH else options.max_model_len


def _check_fitted(options: DeploymentOptions) -> None:
    """Raise UsageError if an engine does not fit the context to its KV cache, and is told to."""
    engine = ENGINES.get(options.engine)
    if options.max_model_len != FITTED_LENGTH or engine is None:
        return
    since = engine.memory.fits_context_since
    if since is None:
        raise UsageError(f"max_model_len = {FITTED_LENGTH}: {engine.title} does not fit the context to its KV cache; "
                         f"give a length [tokens], or leave it out for the model's")
    if is_before(options.engine_version, since):
        raise UsageError(f"max_model_len = {FITTED_LENGTH}: {engine.title} {options.engine_version} refuses it, and "
                         f"{since} is the first release that fits the context to its KV cache; give a length [tokens]")
