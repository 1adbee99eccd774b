"""TensorRT-LLM (PyTorch backend): its defaults, memory rules, CUDA graphs, kernels, launch flags and log lines.

Its scheduler is in `loop/`: `serving.py`, `admission.py` and `reservation.py`; `equal_chunks.py`, `batch_wait.py`,
`emission.py` (streams), `overlap.py` and `fleet/lockstep.py`.
"""

import json
import re
from typing import Any

from planner.catalog.architecture import Architecture
from planner.catalog.gpus import Gpu
from planner.catalog.layers.latent import Mla
from planner.engines.dialect import (
    KV_DTYPES,
    Dialect,
    Flag,
    RankFlags,
    Switch,
    TierFlags,
    Tree,
    choice,
    flags_named,
    limit,
    listed,
    unwritten,
)
from planner.engines.engine import (
    Activations,
    Defaults,
    Engine,
    EngineDefaults,
    Graphs,
    Kernels,
    Memory,
    Occupied,
    Scheduler,
)
from planner.engines.log_lines import NO_CONTEXT, NOTHING, WITH_PROMPTS, DecodeWindow, Found, Lines, LogReader
from planner.engines.package import BENCHMARK, Metrics, Package
from planner.engines.trtllm_flags import FLAGS
from planner.engines.values import largest, number, positive, text
from planner.errors import UsageError

DECODER_BYTES_PER_LOGIT = 27  # 8.5 in runtime buffers, 18.5 in the decoder (see activation_bytes)
MOST_REQUESTS = 1 << 20  # of a batch in draft lengths by batch size
# NVIDIA/TensorRT-LLM#14812 puts explicit flags over the file. Opened on 1 June 2026 and merged that month, it is in no
# release that is known to be older than the branch from 10 June on, 1.3.0rc19.
FILES_FIRST_UNTIL = "1.3.0rc19"
GRAPH_SEQS = 128  # `CudaGraphConfig` in tensorrt_llm/llmapi/llm_args.py
# getMaxRequiredWorkspaceSize in customAllReduceUtils.h [MB]; beyond it NCCL adds up, and another kernel normalises.
LARGEST_FUSED_MB = {2: 16}
LARGEST_FUSED_MB_OF_MORE = 8
# A model's own code fuses (EagerFusionConfig, PRE_ and POST_MLP_FUSION in tensorrt_llm/_torch/models), or does not;
# LlamaDecoderLayer only above this hidden size, since small models lost accuracy.
FUSES = ("llama", "llama4_text", "qwen3_moe", "gpt_oss", "glm4_moe", "glm_moe_dsa", "kimi_k2", "deepseek_v3",
         "deepseek_v32")
SMALL_LLAMA = 4096


def usable_bytes(free_gpu_memory_fraction: float, occupied: Occupied) -> float:
    """Return the memory for weights, working memory and KV [bytes]; KV takes the fraction of the rest."""
    taken = occupied.weights + occupied.working
    return taken + free_gpu_memory_fraction * max(occupied.capacity - occupied.context - taken, 0.0)


def activation_bytes(sizes: Activations) -> float:
    """Return the peak of the largest step [bytes], with the decoder's buffers for max_num_seqs from the start.

    A log of 2,048 sequences of 151,936 logits has 2.66 GB of runtime buffers and 5.76 GB of its decoder
    (NVIDIA/TensorRT-LLM#1188): 27 bytes a logit.
    """
    return sizes.residual + sizes.layer + sizes.max_num_seqs * sizes.vocab_size * DECODER_BYTES_PER_LOGIT


def older_layers(arch: Architecture) -> int:
    """Return the layers with more kernels in older releases [1]: layers with multi-head latent attention.

    As runs of both show: gpt-oss takes no longer under 1.1 than under 1.2, DeepSeek 40 µs a layer.
    """
    return sum(group.count for group in arch.layers if isinstance(group.attention, Mla))


def draft_schedule(flag: str, value: Any) -> str:
    """Return draft lengths by the largest batch that has each as ranges; no tokens are drafted for larger ones.

    Source: `draft_len_schedule` of DecodingBaseConfig in llmapi/llm_args.py.

    >>> draft_schedule("--speculative-config.draft-len-schedule", {4: 3, 16: 1})
    '[[1,4,3],[5,16,1],[17,1048576,0]]'

    Raises
    ------
    UsageError : it is no table of whole numbers.
    """
    if not isinstance(value, dict) or not value or not all(
            type(number) is int and number >= 0 for pair in value.items() for number in pair):
        raise UsageError(f"--from-command: {flag} {value}: must be a table of batch sizes and draft lengths, as in "
                         "{4: 3, 16: 1}")
    sizes = sorted(value)
    first = [1, *(size + 1 for size in sizes)]
    rows = [[start, size, value[size]] for start, size in zip(first, sizes, strict=False)]
    if value[sizes[-1]]:
        rows.append([first[-1], MOST_REQUESTS, 0])
    return json.dumps(rows, separators=(",", ":"))


def as_draft_schedule(ranges: str) -> str | None:
    """Return ranges of draft lengths as the engine's table; None if a later batch has drafts without an end."""
    rows = json.loads(ranges)
    return None if rows[-1][2] else "{" + ", ".join(f"{last}: {tokens}" for _, last, tokens in rows[:-1]) + "}"


NODE_GPUS = 8  # of the largest node without NVLink to other nodes


def expert_slots(flag: str, value: Any) -> int:
    """Return the places of experts and their copies, of `moe_config.load_balancer`.

    Raises
    ------
    UsageError : it names a file, or no number of places.
    """
    slots = value.get("num_slots") if isinstance(value, dict) else None
    if type(slots) is not int:
        raise UsageError(f"--from-command: {flag} {value}: must be a table with num_slots; if it names a file, put the "
                         "file's keys in its place")
    return slots


def exchange(gpu: Gpu, num_gpus: int, visited: int) -> str | None:
    """Return the exchange that `select_alltoall_method_type` chooses (_torch/modules/fused_moe); None for all GPUs.

    Racks whose nodes share one NVLink (MNNVL) send tokens if more GPUs share the experts than a token visits experts.
    """
    return "nvlink_one_sided" if gpu.gpus_per_node > NODE_GPUS and num_gpus > visited else None


MOES = {"AUTO": "auto", "DEEPGEMM": "deep_gemm", "TRTLLM": "flashinfer_trtllm"} | dict.fromkeys(
    ("CUTLASS", "CUTEDSL", "TRITON", "WIDEEP", "VANILLA"), "auto")
COMMUNICATIONS = {  # `CommunicationFactory` (_torch/modules/fused_moe/communication), and older names
    "NVLINK_ONE_SIDED": "nvlink_one_sided", "NVLINK_TWO_SIDED": "nvlink_two_sided",
    "ALLGATHER": "allgather_reducescatter", "DEEPEP": "deepep_high_throughput", "DeepEP": "deepep_high_throughput",
    "DEEPEPLOWLATENCY": "deepep_low_latency", "DeepEPLowLatency": "deepep_low_latency"}
DRAFTS = {"MTP": "mtp", "Eagle": "eagle3", "Eagle3": "eagle3", "Draft_Target": "draft_model",
          "DraftTarget": "draft_model", "Medusa": "medusa", "NGram": "ngram"}

DIALECT = Dialect(  # tensorrt_llm/commands/serve.py and llmapi/llm_args.py
    commands=(re.compile(r"(?:\S*/|!)?trtllm-serve(?: serve)?"), re.compile(r"\S*python\S* -m dynamo\.trtllm")),
    images=("tensorrt-llm/release",),
    ranks=RankFlags(are_all_gpus=True),  # tensorrt_llm/mapping.py
    launch=("trtllm-serve",), model=("--model", "--model-path"),
    files=("--config", "--extra-llm-api-options", "--extra-engine-args"),
    files_first={"--config": FILES_FIRST_UNTIL, "--extra-llm-api-options": FILES_FIRST_UNTIL,
                 "--extra-engine-args": None},  # Dynamo's: `update_llm_args_with_extra_options` of its worker
    table=FLAGS, has_abbreviations=False, dash="_",
    refuses_abbreviations=(re.compile(r"(?:\S*/)?trtllm-serve"),),  # a click command: tensorrt_llm/commands/serve.py
    experts=("--ep-size", "--moe-expert-parallel-size", "--expert-parallel-size"),
    kv_tokens=("--kv-cache-config.max-tokens",),
    roles={"--server-role": {"context": "prefill", "generation": "decode"},
           "--disaggregation-mode": {"prefill": "prefill", "decode": "decode"}},  # Dynamo's workers
    connectors=("--cache-transceiver-config",),
    variables={name: choice((), "all2all_backend", COMMUNICATIONS)
               for name in ("TRTLLM_FORCE_COMM_METHOD", "TRTLLM_FORCE_ALLTOALL_METHOD")},
    tier=TierFlags(size="--kv-cache-config.host-cache-size", unit_bytes=1.0),
    entries=(
        Flag(names=("--tp-size", "--tensor-parallel-size"), option="tensor_parallel_size"),
        Flag(names=("--pp-size", "--pipeline-parallel-size"), option="pipeline_parallel_size"),
        Flag(names=("--max-batch-size",), option="max_num_seqs", read=positive, write=limit),
        Flag(names=("--max-num-tokens",), option="max_num_batched_tokens", read=positive, write=limit),
        Flag(names=("--max-seq-len",), option="max_model_len"),
        Flag(names=("--kv-cache-free-gpu-memory-fraction", "--free-gpu-memory-fraction",
                    "--kv-cache-config.free-gpu-memory-fraction"), option="gpu_memory_utilization", read=number),
    ),
    file_entries=(
        # AutoDeploy: _torch/auto_deploy/llm_args.py
        Flag(names=("--world-size",), option="tensor_parallel_size", write=unwritten),
        choice(("--compile-backend",), "cudagraph_mode", {
            "torch-cudagraph": None, "torch-opt": None, "torch-simple": "none", "torch-compile": "none"}),
        Flag(names=("--moe-tensor-parallel-size",), option="expert_tensor_parallel_size", write=unwritten),
        Switch(names=("--enable-attention-dp",), option="data_parallel_attention", otherwise=False),
        choice(("--kv-cache-config.dtype", "--kv-cache-dtype"), "kv_cache_dtype", KV_DTYPES | {"nvfp4": "nvfp4"}),
        Flag(names=("--kv-cache-config.tokens-per-block", "--kv-block-size"), option="block_size"),
        Switch(names=("--kv-cache-config.enable-block-reuse",), option="enable_prefix_caching", otherwise=False),
        Switch(names=("--enable-chunked-prefill",), option="enable_chunked_prefill", otherwise=False),
        choice(("--scheduler-config.capacity-scheduler-policy",), "policy",
               {"GUARANTEED_NO_EVICT": "trtllm-no-evict", "MAX_UTILIZATION": "trtllm-max-utilization",
                "STATIC_BATCH": "trtllm-static"}),
        choice(("--scheduler-config.context-chunking-policy",), "context_chunking_policy",
               {name: name for name in ("FIRST_COME_FIRST_SERVED", "EQUAL_PROGRESS")}),
        Switch(names=("--disable-overlap-scheduler",), option="async_scheduling", value=False, otherwise=True),
        *flags_named("--batch-wait-timeout-iters --stream-interval"),
        *flags_named("--batch-wait-max-tokens-ratio", read=number),
        Flag(names=("--speculative-config.num-nextn-predict-layers", "--speculative-config.max-draft-len"),
             option="num_speculative_tokens"),
        choice(("--speculative-config.decoding-type",), "speculative_method", DRAFTS),
        Flag(names=("--speculative-config.speculative-model-dir", "--speculative-config.speculative-model"),
             option="speculative_model", read=text),
        Flag(names=("--speculative-config.draft-len-schedule",), option="num_speculative_tokens_per_batch_size",
             read=draft_schedule, write=as_draft_schedule),
        Flag(names=("--cuda-graph-config.max-batch-size",), option="max_cudagraph_capture_size"),
        Flag(names=("--cuda-graph-config.batch-sizes",), option="max_cudagraph_capture_size", read=largest,
             write=unwritten),
        Switch(names=("--torch-compile-config.enable-piecewise-cuda-graph",), option="cudagraph_mode",
               value="full_and_piecewise", otherwise="full_decode_only"),
        Flag(names=("--torch-compile-config.capture-num-tokens",), option="piecewise_cuda_graph_max_tokens",
             read=largest, write=listed),
        choice(("--moe-config.backend",), "moe_backend", MOES),
        Flag(names=("--moe-config.load-balancer",), option="expert_slots", read=expert_slots, write=unwritten),
        Tree(names=("--kv-cache-config", "--scheduler-config", "--speculative-config", "--cuda-graph-config",
                    "--torch-compile-config", "--moe-config")),
    ))

PACKAGE = Package(
    names="tensorrt[-_]?llm", aliases=("trt",), image="nvcr.io/nvidia/tensorrt-llm/release:{}",
    role_flags={"prefill": ("--server_role", "CONTEXT"), "decode": ("--server_role", "GENERATION")},
    classes={"tensorrt_llm.LLM": {}},
    class_backends={"_tensorrt_engine": "tensorrt", "auto_deploy": "_autodeploy", "": "pytorch"},
    others=((r"trtllm-bench", BENCHMARK),),
    has_flat_errors=True)  # ErrorResponse in tensorrt_llm/serve/openai_protocol.py

METRICS = Metrics(  # tensorrt_llm/metrics/collector.py: no histograms of lengths
    prefix="trtllm", separator="_", running="num_requests_running",
    histograms={"ttft": ("time_to_first_token_seconds",), "tpot": ("time_per_output_token_seconds",),
                "e2el": ("e2e_request_latency_seconds",)},
    totals={"input": "prompt_tokens_total", "output": "generation_tokens_total"},
    cache=("prompt_cached_tokens_total", "prompt_tokens_total"),
    requests="request_success_total", waiting="num_requests_waiting", kv_use=("kv_cache_utilization",))

ITERATION = re.compile(r"\biter = (\d+), .*host_step_time = ")
RANK = re.compile(r"\bglobal_rank = (\d+)")
SCHEDULED = re.compile(r"num_scheduled_requests\s*[:=] (\d+)")
STEP = re.compile(r"prev_device_step_time = (\d+(?:\.\d+)?)ms")
PROMPTS = re.compile(r"'num_ctx_tokens': (\d+)")
CACHED = re.compile(r"'?cached_kv_(?:tokens|len)'?\s*[:=] (\d+)")
SHARE = re.compile(r"kv_cache_util = (\d+(?:\.\d+)?)")


def read_log(lines: Lines) -> Found:
    """Yield windows of a log with a line for each iteration, as `print_iter_log` writes it.

    Source: `PyExecutor._profiler`, whose `prev_device_step_time` belongs to the iteration before.
    """
    before: dict[str, tuple[int, int, str]] = {}
    for line_number, line in lines:
        match = ITERATION.search(line)
        if match is None:
            continue
        ranked, step = RANK.search(line), STEP.search(line)
        rank = ranked[1] if ranked else "0"
        last = before.get(rank)
        before[rank] = (line_number, int(match[1]), line)
        if last is not None and step is not None and int(match[1]) == last[1] + 1:
            yield _iteration(last[0], last[2], float(step[1]) / 1e3)


def _iteration(line_number: int, line: str, step_s: float) -> DecodeWindow | str:
    """Return an iteration of decodes alone, or the reason against it."""
    scheduled, prompts = SCHEDULED.search(line), PROMPTS.search(line)
    cached, share = CACHED.search(line), SHARE.search(line)
    if scheduled is None or int(scheduled[1]) == 0 or step_s <= 0:
        return NOTHING
    if prompts is None or int(prompts[1]) > 0:
        return WITH_PROMPTS
    if cached is None and share is None:
        return NO_CONTEXT
    return DecodeWindow(line=line_number, num_decodes=int(scheduled[1]), step_s=step_s,
                        context_tokens=float(cached[1]) if cached else None,
                        kv_share=float(share[1]) if share else None)


TRTLLM = Engine(
    name="trtllm", title="TensorRT-LLM",
    # max_batch_size, max_num_tokens and enable_chunked_prefill of tensorrt_llm/llmapi/llm_args.py.
    defaults=Defaults(options=EngineDefaults(
        policy="trtllm-no-evict", max_num_seqs=2048, max_num_batched_tokens=8192, max_prefill_tokens=0,
        enable_chunked_prefill=False, async_scheduling=True, gpu_memory_utilization=0.9)),
    scheduler=Scheduler(
        policies={"static": "trtllm-static"},
        own_policies=("trtllm-no-evict", "trtllm-max-utilization", "trtllm-static", "static"),
        streams_by_step=True,  # `py_decoding_iter` in `_handle_responses` of its py_executor.py
        sends_token_on=True),  # `_handle_first_token_response`, before `_forward_step`
    graphs=Graphs(capture_size=lambda _, max_num_seqs, __: min(GRAPH_SEQS, max_num_seqs or GRAPH_SEQS),
                  rule="TensorRT-LLM captures up to 128 sequences by default"),
    memory=Memory(usable_bytes=usable_bytes, activation_bytes=activation_bytes, packed_kv={"nvfp4": "fp4"}),
    kernels=Kernels(
        newest_since="1.2", older_layers=older_layers,
        routes_with_experts=True,  # `create_moe` was measured as a module, from the router's logits on
        rotates_in_attention=True,  # `rope_fusion` of its Attention
        widens_weights=False, index_share=0.5, compressed="trtllm",
        exchange=exchange,
        # The TRTLLM backend in NVFP4 on B200 with TP8, measured under TensorRT-LLM and SGLang (AIConfigurator):
        # equal up to 256 tokens. TensorRT-LLM's tuner is faster above: 0.72 at 512 tokens, 0.74 at 4,096.
        borrowed_experts=((256.0, 512.0), (1.0, 0.73)),
        # `ModelConfig.resolve_moe_backend` (_torch/model_config.py): TRTLLM for FP8 blocks on SM100 and SM103
        auto_experts={("blackwell", "fp8_block"): "flashinfer_trtllm"},
        fuses_allreduce=lambda arch, _: arch.model_type in FUSES and not (
            arch.model_type == "llama" and arch.hidden_size <= SMALL_LLAMA),
        largest_fused_bytes=lambda _, num_gpus, __: LARGEST_FUSED_MB.get(num_gpus, LARGEST_FUSED_MB_OF_MORE) * 1e6),
    dialect=DIALECT, package=PACKAGE, metrics=METRICS,
    log=LogReader(mark="host_step_time", line=ITERATION, read=read_log, names_drafts=False,
                  kv_tokens=re.compile(r"max tokens in paged KV cache \(([\d,]+)\)")))
