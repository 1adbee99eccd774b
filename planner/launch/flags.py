"""The flags of each engine's launch command, and the options of a scenario that they set.

Sources: vllm/engine/arg_utils.py, sglang/srt/server_args.py, tensorrt_llm/commands/serve.py and llmapi/llm_args.py.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from planner.launch.values import Read, largest, number, one_of, text, whole

Write = Callable[[Any], str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """A flag with a value.

    Parameters
    ----------
    names : with dashes for underscores, the one that is written first; of a table's key its path.
    option : of `Scenario`, that it sets; or what `read` settles with others.
    read : turns the flag's value into the option's.
    write : turns the option's into the flag's; None where the flag has no such value.
    """

    names: tuple[str, ...]
    option: str
    read: Read = whole
    write: Write = str


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """A flag without a value, or a key with a truth value: what it sets an option to."""

    names: tuple[str, ...]
    option: str
    value: Any = True
    otherwise: Any = None  # what the same name with "--no-" before it, or the value false, sets it to; None for neither


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """A flag or key whose value is a table, in JSON or as YAML: its keys are flags by their paths."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How an engine is launched.

    Parameters
    ----------
    engine : its name.
    launch : the words that a written command begins with, up to the model.
    model : flags that name the model, where it is not the first word without one.
    entries : flags and switches that set options.
    file_entries : those that stand in a file alone.
    files : flags that name such a YAML file, of any of them.
    experts : flags that say over how many GPUs the experts are spread.
    kv_tokens : flags that say for how many tokens there is KV cache.
    silent : flags without a value that have no part in a prediction.
    refused : flags that change what a prediction is of, and why there is none.
    variables : those of the environment that set an option, by their names.
    dash : "-" or "_", in what is written.
    """

    engine: str
    launch: tuple[str, ...]
    model: tuple[str, ...]
    entries: tuple[Flag | Switch | Tree, ...]
    files: tuple[str, ...]
    silent: tuple[str, ...]
    refused: Mapping[str, str]
    file_entries: tuple[Flag | Switch | Tree, ...] = ()
    experts: tuple[str, ...] = ()
    kv_tokens: tuple[str, ...] = ()
    variables: Mapping[str, Flag] = field(default_factory=dict)
    dash: str = "-"


def _written(choices: Mapping[str, Any]) -> Write:
    """Return a writer of the first of the words that stand for a value."""
    words: dict[Any, str] = {}
    for word, value in choices.items():
        words.setdefault(value, word)
    return words.get


def _choice(names: tuple[str, ...], option: str, choices: Mapping[str, Any]) -> Flag:
    """Return a flag whose value is one of several words, written as they stand here."""
    return Flag(names=names, option=option, read=one_of(choices), write=_written(choices))


def _never_chunked(enable_chunked_prefill: bool) -> str | None:
    """Return the chunk size that stands for prompts that run whole."""
    return None if enable_chunked_prefill else "-1"


def _limit(value: int) -> str | None:
    """Return a limit as it is written; engines have no word for none."""
    return str(value) if value else None


def _listed(value: int) -> str:
    """Return a list of the one value."""
    return f"[{value}]"


QUANTIZATIONS = {"fp8": "fp8", "awq": "awq", "awq-marlin": "awq", "awq_marlin": "awq", "gptq": "gptq",
                 "gptq-marlin": "gptq", "gptq_marlin": "gptq", "modelopt_fp4": "nvfp4", "nvfp4": "nvfp4",
                 "mxfp4": "mxfp4", "w8a8_int8": "int8", "w8a8_fp8": "fp8", "modelopt": "fp8", "modelopt_fp8": "fp8",
                 "mxfp8": "mxfp8", "modelopt_mxfp8": "mxfp8", "modelopt_mixed": None, "compressed-tensors": None}
KV_DTYPES = {"auto": "auto", "fp8": "fp8", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "fp8_ds_mla": "fp8", "bf16": "bf16",
             "bfloat16": "bf16"}
FP8_GEMMS = {name: name for name in ("auto", "flashinfer_trtllm")} | {"deep_gemm": "auto"}
MOES = {name: name for name in ("auto", "marlin", "triton", "deep_gemm", "flashinfer_trtllm")}
VLLM_MOES = MOES | dict.fromkeys(("cutlass", "flashinfer_cutlass", "flashinfer_cutedsl", "deep_gemm_mega_moe"), "auto")
SGLANG_MOES = MOES | dict.fromkeys(("triton_kernel", "cutlass", "flashinfer_cutlass", "flashinfer_cutedsl",
                                    "flashinfer_mxfp4"), "auto")
TRTLLM_MOES = {"AUTO": "auto", "DEEPGEMM": "deep_gemm", "TRTLLM": "flashinfer_trtllm"} | dict.fromkeys(
    ("CUTLASS", "CUTEDSL", "TRITON", "WIDEEP", "VANILLA"), "auto")
VLLM_ALL2ALLS = dict.fromkeys(("allgather_reducescatter", "naive"), "allgather_reducescatter") | dict.fromkeys(
    ("deepep_high_throughput", "deepep_low_latency", "pplx", "nixl_ep", "mori", "flashinfer_all2allv",
     "flashinfer_nvlink_one_sided", "flashinfer_nvlink_two_sided"), "deepep")
SGLANG_ALL2ALLS = {"none": "allgather_reducescatter"} | dict.fromkeys(
    ("deepep", "mooncake", "megamoe", "nixl", "mori", "flashinfer"), "deepep")
ON = ("1", "true")
OFF = ("0", "false")
MATMULS = {"highest": "fp32", "high": "tf32", "medium": "tf32"}
GRAPH_MODES = {mode.upper(): mode for mode in ("full_and_piecewise", "piecewise", "full_decode_only", "none")} | {
    "FULL": "full_and_piecewise"}
MTPS = ("ernie_mtp", "exaone_moe_mtp", "glm4_moe_mtp", "longcat_flash_mtp", "mimo_mtp", "pangu_ultra_moe_mtp",
        "qwen3_5_mtp", "qwen3_next_mtp")  # older names of vLLM's "mtp", by model
DRAFTS = ({name: name for name in ("mtp", "deepseek_mtp", "eagle", "eagle3", "draft_model", "medusa", "ngram")}
          | dict.fromkeys(MTPS, "mtp"))
SGLANG_DRAFTS = {"EAGLE": "eagle", "EAGLE3": "eagle3", "NEXTN": "mtp", "STANDALONE": "draft_model", "NGRAM": "ngram"}
TRTLLM_DRAFTS = {"MTP": "mtp", "Eagle": "eagle3", "Eagle3": "eagle3", "Draft_Target": "draft_model",
                 "DraftTarget": "draft_model", "Medusa": "medusa", "NGram": "ngram"}
NOT_ALONE = "makes it one engine of several that pass requests on: what is predicted is one that serves them whole"
TENSOR, PIPELINE, REPLICAS, CONTEXT, SEQS, TOKENS = (
    "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "max_model_len", "max_num_seqs",
    "max_num_batched_tokens")

VLLM = Dialect(
    engine="vllm", launch=("vllm", "serve"), model=("--model",), files=("--config",),
    refused={"--kv-transfer-config": NOT_ALONE},
    silent=("--trust-remote-code", "--enable-auto-tool-choice", "--disable-log-requests", "--disable-log-stats",
            "--no-enable-log-requests", "--enable-log-requests", "--disable-uvicorn-access-log", "--headless",
            "--enable-prompt-tokens-details", "--enable-server-load-tracking"),
    entries=(
        Flag(names=("--tensor-parallel-size", "-tp"), option=TENSOR),
        Flag(names=("--pipeline-parallel-size", "-pp"), option=PIPELINE),
        Flag(names=("--data-parallel-size", "-dp"), option=REPLICAS),
        Switch(names=("--enable-expert-parallel", "-ep"), option="expert_parallel", otherwise=False),
        _choice(("--quantization", "-q"), "quantization", QUANTIZATIONS),
        _choice(("--kv-cache-dtype",), "kv_cache_dtype", KV_DTYPES),
        Flag(names=("--gpu-memory-utilization",), option="gpu_memory_utilization", read=number),
        Flag(names=("--max-model-len",), option=CONTEXT),
        Flag(names=("--num-gpu-blocks-override",), option="num_gpu_blocks"),
        Flag(names=("--block-size",), option="block_size"),
        Flag(names=("--swap-space",), option="swap_space", read=number),
        Flag(names=("--kv-offloading-size",), option="kv_offloading_size", read=number),
        _choice(("--moe-backend", "--kernel-config.moe-backend"), "moe_backend", VLLM_MOES),
        _choice(("--all2all-backend",), "all2all_backend", VLLM_ALL2ALLS),
        _choice(("--scheduling-policy",), "policy", {"fcfs": "fcfs", "priority": "priority"}),
        Flag(names=("--max-num-seqs",), option=SEQS, write=_limit),
        Flag(names=("--max-num-batched-tokens",), option=TOKENS, write=_limit),
        Flag(names=("--long-prefill-token-threshold",), option="long_prefill_token_threshold"),
        Switch(names=("--enable-chunked-prefill",), option="enable_chunked_prefill", otherwise=False),
        Switch(names=("--enable-prefix-caching",), option="enable_prefix_caching", otherwise=False),
        Switch(names=("--async-scheduling",), option="async_scheduling", otherwise=False),
        Switch(names=("--scheduler-reserve-full-isl",), option="scheduler_reserve_full_isl", otherwise=False),
        Flag(names=("--stream-interval",), option="stream_interval"),
        Switch(names=("--enable-lora",), option="enable_lora", otherwise=False),
        Flag(names=("--max-loras",), option="max_loras"),
        Flag(names=("--max-cpu-loras",), option="max_cpu_loras"),
        Flag(names=("--max-lora-rank",), option="max_lora_rank"),
        Flag(names=("--speculative-config.num-speculative-tokens",), option="num_speculative_tokens"),
        _choice(("--speculative-config.method",), "speculative_method", DRAFTS),
        Flag(names=("--speculative-config.model",), option="speculative_model", read=text),
        Switch(names=("--enforce-eager", "-O0"), option="cudagraph_mode", value="none"),
        _choice(("--compilation-config.cudagraph-mode", "-O.cudagraph-mode", "-cc.cudagraph-mode"), "cudagraph_mode",
                GRAPH_MODES),
        Flag(names=("--max-cudagraph-capture-size", "--compilation-config.max-cudagraph-capture-size",
                    "-O.max-cudagraph-capture-size", "-cc.max-cudagraph-capture-size"),
             option="max_cudagraph_capture_size"),
        _choice(("--compilation-config.pass-config.fuse-allreduce-rms", "-O.pass-config.fuse-allreduce-rms",
                 "-cc.pass-config.fuse-allreduce-rms",
                 "--compilation-config.pass-config.enable-fi-allreduce-fusion"), "fuse_allreduce_rms",
                {"true": True, "false": False}),
        Tree(names=("--speculative-config", "--kernel-config", "--compilation-config", "-O", "-cc",
                    "--compilation-config.pass-config", "-O.pass-config", "-cc.pass-config")),
    ),
    variables={
        "VLLM_MXFP4_USE_MARLIN": _choice((), "moe_backend", dict.fromkeys(ON, "marlin") | dict.fromkeys(OFF, "auto")),
        "VLLM_FLOAT32_MATMUL_PRECISION": _choice((), "fp32_matmul", MATMULS),
    })

SGLANG = Dialect(
    engine="sglang", launch=("python", "-m", "sglang.launch_server", "--model-path"),
    model=("--model-path", "--model"),
    files=("--config",), experts=("--expert-parallel-size", "--ep-size", "--ep"), kv_tokens=("--max-total-tokens",),
    refused={"--disaggregation-mode": NOT_ALONE},
    silent=("--trust-remote-code", "--enable-metrics", "--log-requests", "--skip-tokenizer-init",
            "--disable-custom-all-reduce", "--enable-p2p-check", "--disable-cuda-graph-padding"),
    entries=(
        Flag(names=("--tensor-parallel-size", "--tp-size", "--tp"), option=TENSOR),
        Flag(names=("--pipeline-parallel-size", "--pp-size", "--pp"), option=PIPELINE),
        Flag(names=("--data-parallel-size", "--dp-size", "--dp"), option=REPLICAS),
        Switch(names=("--enable-dp-attention",), option="data_parallel_attention"),
        _choice(("--quantization",), "quantization", QUANTIZATIONS),
        _choice(("--kv-cache-dtype",), "kv_cache_dtype", KV_DTYPES),
        _choice(("--fp8-gemm-backend", "--fp8-gemm-runner-backend"), "fp8_gemm_backend", FP8_GEMMS),
        Flag(names=("--mem-fraction-static",), option="gpu_memory_utilization", read=number),
        Flag(names=("--context-length",), option=CONTEXT),
        Flag(names=("--page-size",), option="block_size"),
        _choice(("--schedule-policy",), "policy", {"fcfs": "sglang"}),
        Flag(names=("--max-running-requests",), option=SEQS, write=_limit),
        Flag(names=("--chunked-prefill-size",), option=TOKENS, write=_limit),
        Flag(names=("--chunked-prefill-size",), option="enable_chunked_prefill", write=_never_chunked),
        Flag(names=("--max-prefill-tokens",), option="max_prefill_tokens"),
        Flag(names=("--max-queued-requests",), option="max_queued_requests", write=_limit),
        Switch(names=("--disable-radix-cache",), option="enable_prefix_caching", value=False),
        Switch(names=("--disable-overlap-schedule",), option="async_scheduling", value=False),
        Flag(names=("--schedule-conservativeness",), option="schedule_conservativeness", read=number),
        Flag(names=("--scheduler-recv-interval",), option="scheduler_recv_interval"),
        Flag(names=("--stream-interval",), option="stream_interval"),
        Flag(names=("--speculative-num-steps",), option="num_speculative_tokens"),
        _choice(("--speculative-algorithm", "--speculative-algo"), "speculative_method", SGLANG_DRAFTS),
        Flag(names=("--speculative-draft-model-path", "--speculative-draft-model"), option="speculative_model",
             read=text),
        Switch(names=("--disable-cuda-graph",), option="cudagraph_mode", value="none"),
        Flag(names=("--cuda-graph-max-bs",), option="max_cudagraph_capture_size"),
        _choice(("--moe-runner-backend",), "moe_backend", SGLANG_MOES),
        _choice(("--moe-a2a-backend",), "all2all_backend", SGLANG_ALL2ALLS),
        Switch(names=("--enable-flashinfer-allreduce-fusion",), option="fuse_allreduce_rms"),
        Switch(names=("--enforce-disable-flashinfer-allreduce-fusion",), option="fuse_allreduce_rms", value=False),
    ),
    variables={
        "SGLANG_ENABLE_FLASHINFER_GEMM": _choice((), "fp8_gemm_backend",
                                                 dict.fromkeys(ON, "flashinfer_trtllm") | dict.fromkeys(OFF, "auto")),
    })

TRTLLM = Dialect(
    engine="trtllm", launch=("trtllm-serve",), model=("--model",), files=("--config", "--extra-llm-api-options"),
    silent=("--trust-remote-code",), dash="_", experts=("--ep-size", "--moe-expert-parallel-size"),
    kv_tokens=("--kv-cache-config.max-tokens",),
    refused={"--cluster-size": NOT_ALONE},
    entries=(
        Flag(names=("--tp-size", "--tensor-parallel-size"), option=TENSOR),
        Flag(names=("--pp-size", "--pipeline-parallel-size"), option=PIPELINE),
        Flag(names=("--max-batch-size",), option=SEQS, write=_limit),
        Flag(names=("--max-num-tokens",), option=TOKENS, write=_limit),
        Flag(names=("--max-seq-len",), option=CONTEXT),
        Flag(names=("--kv-cache-free-gpu-memory-fraction", "--free-gpu-memory-fraction",
                    "--kv-cache-config.free-gpu-memory-fraction"), option="gpu_memory_utilization", read=number),
    ),
    file_entries=(
        Switch(names=("--enable-attention-dp",), option="data_parallel_attention", otherwise=False),
        _choice(("--kv-cache-config.dtype",), "kv_cache_dtype", KV_DTYPES),
        Flag(names=("--kv-cache-config.tokens-per-block",), option="block_size"),
        Switch(names=("--kv-cache-config.enable-block-reuse",), option="enable_prefix_caching", otherwise=False),
        Switch(names=("--enable-chunked-prefill",), option="enable_chunked_prefill", otherwise=False),
        _choice(("--scheduler-config.capacity-scheduler-policy",), "policy",
                {"GUARANTEED_NO_EVICT": "trtllm-no-evict", "MAX_UTILIZATION": "trtllm-max-utilization"}),
        Switch(names=("--disable-overlap-scheduler",), option="async_scheduling", value=False, otherwise=True),
        Flag(names=("--batch-wait-timeout-iters",), option="batch_wait_timeout_iters"),
        Flag(names=("--batch-wait-max-tokens-ratio",), option="batch_wait_max_tokens_ratio", read=number),
        Flag(names=("--stream-interval",), option="stream_interval"),
        Flag(names=("--speculative-config.num-nextn-predict-layers", "--speculative-config.max-draft-len"),
             option="num_speculative_tokens"),
        _choice(("--speculative-config.decoding-type",), "speculative_method", TRTLLM_DRAFTS),
        Flag(names=("--speculative-config.speculative-model-dir", "--speculative-config.speculative-model"),
             option="speculative_model", read=text),
        Flag(names=("--cuda-graph-config.max-batch-size",), option="max_cudagraph_capture_size"),
        Switch(names=("--torch-compile-config.enable-piecewise-cuda-graph",), option="cudagraph_mode",
               value="full_and_piecewise", otherwise="full_decode_only"),
        Flag(names=("--torch-compile-config.capture-num-tokens",), option="piecewise_cuda_graph_max_tokens",
             read=largest, write=_listed),
        _choice(("--moe-config.backend",), "moe_backend", TRTLLM_MOES),
        Tree(names=("--kv-cache-config", "--scheduler-config", "--speculative-config", "--cuda-graph-config",
                    "--torch-compile-config", "--moe-config")),
    ))

DIALECTS = {dialect.engine: dialect for dialect in (VLLM, SGLANG, TRTLLM)}
