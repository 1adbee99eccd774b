"""vLLM: its defaults by release and GPU, memory rules, CUDA graphs, kernels, launch flags and log lines.

Its scheduler is in `loop/`: `serving.py`, `admission.py` and `preemption.py`; `overlap.py` (async scheduling),
`pipeline.py`, `drafts.py`, `batch_wait.py`, `api_server.py`, `fleet/lockstep.py` and `memory/blocks.py`.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import replace

from planner.catalog.architecture import Architecture
from planner.catalog.kv_cache import kv_bytes_per_token_per_gpu, state_bytes_per_seq
from planner.engines.compressed_groups import compressed_groups, compressed_pages
from planner.engines.dialect import (
    MOE_BACKENDS,
    OFF,
    ON,
    OPTIMIZATION_LEVEL,
    QUANTIZATIONS,
    VLLM_KV_DTYPES,
    VLLM_PACKED_KV,
    VLLM_QUANTIZATIONS,
    Dialect,
    Flag,
    RankFlags,
    Switch,
    Tree,
    allowed,
    choice,
    flags_named,
    limit,
    switches_named,
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
    Scheduler,
    TwoBatchOverlap,
)
from planner.engines.kv_groups import logs_pool, reserved_blocks, tokens_in_flight, window_pages
from planner.engines.log_lines import TOGETHER, Found, Lines, LogReader, Look, between
from planner.engines.package import BENCHMARK, CLIENT, Client, Metrics, Package
from planner.engines.releases import Default, is_before
from planner.engines.values import (
    from_one_on,
    largest,
    limits,
    listed_json,
    number,
    one_of,
    positive,
    scaled,
    scaled_or_auto,
    text,
)
from planner.engines.vllm_defaults import BY_GPU, pooling_defaults, sized_defaults
from planner.engines.vllm_flags import FLAGS, OTHER_CONFIG, VARIABLES

SAMPLER_BYTES_PER_LOGIT = 20  # logits in 16 bit and FP32, and the working memory of the Triton sampler
TRITON_SAMPLER_SINCE = "0.17"  # v1/sample/ops/topk_topp_triton.py
# `apply_top_k_top_p` sorts before: logits in 16 bit and FP32, sorted values and their indices (4 + 8), the indices
# before (8), and CUB's other buffer for both (12).
SORTING_BYTES_PER_LOGIT = 2 + 4 + 12 + 8 + 12
# Largest message of FlashInfer's fused all-reduce, by GPU generation and ranks [MiB]:
# FI_ALLREDUCE_FUSION_MAX_SIZE_MB in vllm/compilation/passes/fusion/allreduce_rms_fusion.py.
LARGEST_FUSED_MIB: Mapping[str, Mapping[int, float]] = {
    "hopper": {2: 64, 4: 2, 8: 0.5}, "blackwell": {2: 64, 4: 32, 8: 1}}


# Values of --quantization that a checkpoint of a method takes beside its own, and checkpoints that take any.
OVERRIDES = {"gptq": ("gptq_marlin", "auto_gptq", "marlin", "moe_wna16", "gptq_bitblas", "bitblas"),
             "awq": ("awq_marlin", "auto_awq", "marlin", "moe_wna16"), "auto-round": tuple(QUANTIZATIONS)}
CLAIMED = (("mxfp4", "gpt_oss"), ("fp8", "deepseek_v4"))


def converts_to(version: str | None) -> tuple[str, ...]:
    """Return the formats that vLLM makes of 16-bit weights: `_ONLINE_SHORTHANDS` in vllm/config/quantization.py.

    bitsandbytes left the package with 0.29.

    >>> converts_to(None), converts_to("0.21.0")
    (('fp8', 'mxfp8', 'mxfp4', 'fp8_block', 'w8a16'), ('fp8', 'bnb-4bit'))
    """
    releases = (("fp8", "0"), ("mxfp8", "0.26"), ("mxfp4", "0.29"), ("fp8_block", "0.33"), ("w8a16", "0.33"))
    formats = [name for name, since in releases if not is_before(version, since)]
    return (*formats, *(("bnb-4bit",) if is_before(version, "0.29") else ()))


def refuses_method(method: str, asked: str, model_type: str) -> bool:
    """Tell whether vLLM refuses --quantization: `_verify_quantization` in vllm/config/model.py.

    A value beside the checkpoint's own method is taken if a class of it claims the checkpoint
    (`override_quantization_method` in model_executor/layers/quantization).

    >>> refuses_method("compressed-tensors", "modelopt", "qwen3"), refuses_method("awq", "awq_marlin", "qwen3")
    (True, False)
    """
    if method.startswith("modelopt") or (method, model_type) in CLAIMED or asked == "humming":
        return False
    return asked not in (method, *OVERRIDES.get(method, ()))


def default_context(arch: Architecture, version: str | None) -> int:
    """Return the context limit without --max-model-len: the model's, or that before LongRoPE extends it [tokens].

    Source: `_get_and_verify_max_len` in vllm/config/model.py, since 0.11.1.

    >>> from planner.catalog.catalog_files import load_model
    >>> default_context(load_model("phi-4-mini"), None), default_context(load_model("phi-4-mini"), "0.11.0")
    (4096, 131072)
    """
    is_extended = arch.original_model_len == 0 or is_before(version, "0.11.1")
    return arch.max_model_len if is_extended else arch.original_model_len


def activation_bytes(sizes: Activations) -> float:
    """Return the peak of the largest step [bytes]: its largest layer, or the sampler's logits, which every rank has.

    vLLM's logs of 0.18 and later show 20 bytes a logit, with its Triton kernel (vllm-project/vllm#33538). Logs of 0.6
    to 0.16 show 37 to 39, since PyTorch's sampler sorts the logits, and some show 14, as FlashInfer's would
    (VLLM_USE_FLASHINFER_SAMPLER=1).
    """
    seqs = min(sizes.max_num_seqs, sizes.max_num_batched_tokens)
    per_logit = SORTING_BYTES_PER_LOGIT if is_before(sizes.version, TRITON_SAMPLER_SINCE) else SAMPLER_BYTES_PER_LOGIT
    return sizes.residual + max(sizes.layer, seqs * sizes.vocab_size * per_logit)


def seats_with_states(version: str | None, max_num_seqs: int, graph_seqs: int) -> int:
    """Return the sequences that must each have a block for recurrent states when vLLM starts [1].

    Only full CUDA graphs need them. vLLM 0.20 and newer check max_num_seqs (`resolve_cudagraph_mode_and_sizes` in
    vllm/config/compilation.py). vLLM 0.18 and 0.19 capture smaller graphs instead
    (`adjust_cudagraph_sizes_for_mamba_cache`). Older releases capture all sizes up to max_num_seqs, and the largest
    batch fails (`num_cache_lines >= batch` in causal_conv1d.py). Source: wheels of 0.17.0, 0.18.1, 0.19.0, 0.19.1 and
    0.20.0.

    >>> [seats_with_states(version, 1024, 512) for version in (None, "0.19.1", "0.17.0")]
    [1024, 0, 512]
    >>> seats_with_states(None, 1024, 0)
    0
    """
    if graph_seqs == 0:
        return 0
    if is_before(version, "0.20"):
        return min(max_num_seqs, graph_seqs) if is_before(version, "0.18") else 0
    return max_num_seqs


def state_pages(arch: Architecture, block_size: int, kv_bytes_per_element: float, tensor_parallel_size: int,
                num_drafted: int) -> tuple[int, int]:
    """Return the tokens of a KV block and the blocks of a sequence's recurrent states [tokens], [1].

    vLLM keeps both in one pool. A block grows in steps of 16 tokens until a layer's KV of it is as large as a layer's
    state, and holds one of either for as many layers as have a KV cache. A sequence gets its states' blocks at
    admission, and one more for each drafted token.

    Source: `HybridAttentionMambaModelConfig` and vLLM's design notes on the hybrid KV cache manager. Its logs have
    1,056 tokens for Qwen3.5-35B-A3B, 2,096 with its KV in 8 bit, and 784 for 27B.
    """
    state = state_bytes_per_seq(arch, kv_bytes_per_element, tensor_parallel_size, 1) / arch.num_linear_layers
    per_token = kv_bytes_per_token_per_gpu(arch, kv_bytes_per_element, tensor_parallel_size, 1)
    tokens = 16 * math.ceil(state * arch.num_attention_layers / (16 * per_token))
    groups = -(-arch.num_linear_layers // arch.num_attention_layers)
    return max(block_size, tokens), groups * (1 + num_drafted)


MOES = MOE_BACKENDS | {"flashinfer_cutlass": "cutlass"} | dict.fromkeys(("flashinfer_cutedsl", "deep_gemm_mega_moe"),
                                                                        "auto")
ALL2ALLS = dict.fromkeys(("allgather_reducescatter", "naive"), "allgather_reducescatter") | dict.fromkeys(
    ("nixl_ep",), "alltoall") | dict.fromkeys(
    ("mori", "mori_high_throughput", "mori_low_latency"), "mori") | {
    "pplx": "pplx", "deepep_v2": "deepep",
    "deepep_high_throughput": "deepep_high_throughput", "deepep_low_latency": "deepep_low_latency",
    "flashinfer_nvlink_one_sided": "nvlink_one_sided"} | dict.fromkeys(
    ("flashinfer_all2allv", "flashinfer_nvlink_two_sided"), "nvlink_two_sided")
MATMULS = {"highest": "fp32", "high": "tf32", "medium": "tf32"}
GRAPH_MODES = {mode.upper(): mode for mode in ("full_and_piecewise", "piecewise", "full_decode_only", "none")} | {
    "FULL": "full_and_piecewise"}
MTPS = ("ernie_mtp", "exaone_moe_mtp", "glm4_moe_mtp", "longcat_flash_mtp", "mimo_mtp", "pangu_ultra_moe_mtp",
        "qwen3_5_mtp", "qwen3_next_mtp")  # older names of vLLM's "mtp", by model
TASKS = dict.fromkeys(("auto", "generate", "none"), None) | dict.fromkeys(("embed", "embedding"), "embed") | (
    dict.fromkeys(("classify", "reward", "score"), "score"))  # of --convert and --task: results of a pooling model
DRAFTS = ({name: name for name in ("mtp", "deepseek_mtp", "eagle", "eagle3", "dflash", "dspark", "draft_model",
                                        "medusa", "ngram", "ngram_gpu", "suffix")}
          | dict.fromkeys(MTPS, "mtp"))

DIALECT = Dialect(  # vllm/engine/arg_utils.py
    launch=("vllm", "serve"), overlap_needs_ranks=True,  # `use_ubatching` in v1/worker/ubatch_utils.py
    speculator=re.compile(r"(.+)-speculator\.(eagle3|dflash)"),  # maybe_override_with_speculators
    images=("(?<!lmcache/)vllm-openai", "rocm/vllm(?:-dev)?"),
    commands=(re.compile(r"(?:\S*/|!)?vllm serve"),
              re.compile(r"\S*python\S* -m vllm\.entrypoints\.(?:openai\.)?api_server"),
              re.compile(r"\S*python\S* -m vllm(?:\.entrypoints\.cli\.main)? serve"),
              re.compile(r"\S*python\S* -m dynamo\.vllm"),
              re.compile(r"(?:\S*/)?vllm-openai(?::\S+|@\S+)?")),  # the image, whose arguments follow it
    ranks=RankFlags(needs_switch=False, router="vllm-dp"),  # v1/engine/core.py (DPEngineCoreProc), core_client.py
    lora_switch="--enable-lora", log_opening=("non-default args: {", ":"),
    log_version=re.compile(r"(?:vLLM API server version|\[api_utils\.py:\d+\]\s+version) (\S+)"),
    log_resolved=re.compile(r"Initializing a V\d LLM engine \(v([^)\s]+)\) with config: (.*)"),
    table=FLAGS, connectors=("--kv-transfer-config",),
    roles={"--disaggregation-mode": {"prefill": "prefill", "decode": "decode"}},  # Dynamo's workers
    words_after=("--enable-chunked-prefill", "--multi-step-stream-outputs"),  # StoreBooleanAction, up to 0.8
    role_switches={"--is-prefill-worker": "prefill", "--is-decode-worker": "decode"},
    entries=(
        *flags_named("""
            --tensor-parallel-size|-tp --pipeline-parallel-size|-pp --decode-context-parallel-size|-dcp
            --prefill-context-parallel-size|-pcp --data-parallel-size|-dp
            --block-size --dbo-decode-token-threshold --dbo-prefill-token-threshold --long-prefill-token-threshold
            --prefill-schedule-interval --stream-interval --max-loras --max-cpu-loras --max-lora-rank
            --max-cudagraph-capture-size|--compilation-config.max-cudagraph-capture-size|-O.max-cudagraph-capture-size"""
                     "|-cc.max-cudagraph-capture-size"),
        *switches_named("""
            --language-model-only --enable-eplb --enable-dbo --enable-chunked-prefill --enable-prefix-caching
            --async-scheduling --scheduler-reserve-full-isl --enable-lora""", otherwise=False),
        *flags_named("--max-model-len", read=scaled_or_auto),
        *flags_named("--kv-cache-memory-bytes|--kv-cache-memory", read=scaled),
        *flags_named("--gpu-memory-utilization|--device-memory-utilization --swap-space --kv-offloading-size "
                     "--watermark", read=number),
        *flags_named("--max-num-seqs", read=positive, write=limit),
        *flags_named("--max-num-batched-tokens", read=from_one_on(scaled), write=limit),
        *flags_named("--max-num-active-seqs --max-num-scheduled-tokens --max-num-queued-reqs --max-num-queued-tokens",
                     write=limit),
        Switch(names=("--enable-expert-parallel", "-ep"), option="expert_parallel", otherwise=False),
        Flag(names=("--limit-mm-per-prompt",), option="limits_per_prompt", read=limits, write=unwritten),
        Flag(names=("--eplb-config.num-redundant-experts", "--num-redundant-experts"), option="num_redundant_experts"),
        choice(("--quantization", "-q"), "quantization", VLLM_QUANTIZATIONS),
        choice(("--kv-cache-dtype",), "kv_cache_dtype", VLLM_KV_DTYPES),
        Flag(names=("--num-gpu-blocks-override",), option="num_gpu_blocks"),
        Switch(names=("--disable-hybrid-kv-cache-manager",), option="disable_hybrid_kv_cache_manager",
               otherwise=False),
        Flag(names=("--runner",), option="pooling", read=one_of({"auto": None, "generate": None, "pooling": "embed"}),
             write=lambda result: ("pooling", "--convert", "classify") if result == "score" else "pooling"),
        Flag(names=("--convert",), option="pooling_task", read=one_of(TASKS), write=unwritten),
        Flag(names=("--task",), option="pooling_task", read=one_of(TASKS), write=unwritten),  # up to 0.10
        choice(("--moe-backend", "--kernel-config.moe-backend"), "moe_backend", MOES),
        choice(("--all2all-backend",), "all2all_backend", ALL2ALLS),
        choice(("--scheduling-policy",), "policy", {"fcfs": "fcfs", "priority": "priority"}),
        Switch(names=("--long-prefill-token-threshold-adaptive",), option="long_prefill_token_threshold_adaptive",
               otherwise=False),
        Flag(names=("--speculative-config.num-speculative-tokens", "-sc.num-speculative-tokens", "--spec-tokens",
                    "--num-speculative-tokens"), option="num_speculative_tokens"),
        Flag(names=("--speculative-config.num-speculative-tokens-per-batch-size",
                    "-sc.num-speculative-tokens-per-batch-size"),
             option="num_speculative_tokens_per_batch_size", read=listed_json),
        choice(("--speculative-config.method", "-sc.method", "--spec-method"), "speculative_method", DRAFTS),
        Flag(names=("--speculative-config.model", "-sc.model", "--spec-model", "--speculative-model"),
             option="speculative_model", read=text),
        Switch(names=("--enforce-eager",), option="cudagraph_mode", value="none"),
        Switch(names=("--disable-custom-all-reduce",), option="custom_all_reduce", value=False, otherwise=True),
        choice((OPTIMIZATION_LEVEL,), "optimization_level", {str(level): level for level in range(4)}),
        choice(("--performance-mode",), "performance_mode",
               {name: name for name in ("balanced", "interactivity", "throughput")}),
        Flag(names=("--cudagraph-capture-sizes", "--compilation-config.cudagraph-capture-sizes",
                    "-O.cudagraph-capture-sizes", "-cc.cudagraph-capture-sizes"),
             option="max_cudagraph_capture_size", read=largest, write=unwritten, takes="several"),
        choice(("--compilation-config.cudagraph-mode", "-O.cudagraph-mode", "-cc.cudagraph-mode"), "cudagraph_mode",
                GRAPH_MODES),
        Switch(names=("--compilation-config.use-cudagraph", "-O.use-cudagraph", "-cc.use-cudagraph"),
               option="cudagraph_mode", value=None, otherwise="none"),
        Switch(names=("--compilation-config.full-cuda-graph", "-O.full-cuda-graph", "-cc.full-cuda-graph"),
               option="cudagraph_mode", value="full_and_piecewise"),  # of vLLM 0.9 and 0.10
        choice(("--compilation-config.pass-config.fuse-allreduce-rms", "-O.pass-config.fuse-allreduce-rms",
                 "-cc.pass-config.fuse-allreduce-rms",
                 "--compilation-config.pass-config.enable-fi-allreduce-fusion"), "fuse_allreduce_rms",
                {"true": True, "false": False}),
        Tree(names=("--speculative-config", "-sc", "--eplb-config", "--kernel-config", "--compilation-config", "-O",
                    "-cc", "--compilation-config.pass-config", "-O.pass-config", "-cc.pass-config")),
    ),
    variables={
        "VLLM_MXFP4_USE_MARLIN": choice((), "moe_backend", dict.fromkeys(ON, "marlin") | dict.fromkeys(OFF, "auto")),
        "VLLM_ALL2ALL_BACKEND": choice((), "all2all_backend", ALL2ALLS),
        "VLLM_ALLOW_LONG_MAX_MODEL_LEN": allowed(),
        "VLLM_FLOAT32_MATMUL_PRECISION": choice((), "fp32_matmul", MATMULS),
        "VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE": choice(
            (), "chunks_free_blocks", dict.fromkeys(ON, True) | dict.fromkeys(OFF, False)),
        "LMCACHE_MAX_LOCAL_CPU_SIZE": Flag(names=(), option="lmcache_gib", read=number),
    },
    unmodelled_variables=VARIABLES, refuses_longer_since="0.6",
    refuses_method=refuses_method, config_effects=(OTHER_CONFIG,))

PACKAGE = Package(
    names="vllm", aliases=("llm-d",), image="vllm/vllm-openai:v{}", bench_backend="",
    role_flags={role: ("--kv-transfer-config", f'{{"kv_connector": "NixlConnector", "kv_role": "{name}"}}')
                for role, name in (("prefill", "kv_producer"), ("decode", "kv_consumer"))},
    dynamo_roles={"prefill": ("--is-prefill-worker",), "decode": ("--is-decode-worker",)},
    charts=("kserve", "helm", "llm-d"),
    classes={"vllm.LLM": {"usage_context": "llm_class"}, "vllm.EngineArgs": {"usage_context": "engine_context"},
             "vllm.AsyncEngineArgs": {"usage_context": "engine_context"}},
    others=((r"vllm bench\s+\w+", BENCHMARK), (r"vllm (?:chat|complete|run-batch|collect-env)", CLIENT)))

METRICS = Metrics(
    prefix="vllm", running="num_requests_running",
    histograms={
        "ttft": ("time_to_first_token_seconds",),
        "tpot": ("request_time_per_output_token_seconds",),  # a request's mean, since 0.10
        "itl": ("inter_token_latency_seconds", "time_per_output_token_seconds"),  # all gaps; before, the second name
        "e2el": ("e2e_request_latency_seconds",),
        "input": ("request_prompt_tokens",), "output": ("request_generation_tokens",)},
    totals={"input": "prompt_tokens_total", "output": "generation_tokens_total"},
    cache=("prefix_cache_hits_total", "prefix_cache_queries_total"),
    requests="request_success_total", waiting="num_requests_waiting",  # vllm/v1/metrics/loggers.py
    kv_use=("kv_cache_usage_perc", "gpu_cache_usage_perc"),
    info="cache_config_info",  # CacheConfig.metrics_info in vllm/config/cache.py
    info_options=("block_size", "enable_prefix_caching", "gpu_memory_utilization", "num_gpu_blocks"))

STATISTICS = re.compile(
    r"(?:(Engine \d+): )?Avg prompt throughput: (\d+(?:\.\d+)?) tokens/s, Avg generation throughput: "
    r"(\d+(?:\.\d+)?) tokens/s, Running: (\d+) reqs,.* GPU KV cache usage: (\d+(?:\.\d+)?)%")
ACCEPTED = re.compile(r"Mean acceptance length: (\d+(?:\.\d+)?)")


def read_log(lines: Lines) -> Found:
    """Yield windows of a log with a line every ten seconds (`VLLM_LOG_STATS_INTERVAL`; `LoggingStatLogger`)."""
    looks: dict[str, list[Look]] = {}
    rank = ""
    for line_number, line in lines:
        if "Engines Aggregated" in line:
            yield TOGETHER
        elif match := STATISTICS.search(line):
            rank = match[1] or ""
            looks.setdefault(rank, []).append(Look(
                line=line_number, num_decodes=int(match[4]), kv_share=float(match[5]) / 100,
                tokens_per_s=float(match[3]), has_prompts=float(match[2]) > 0 or "Preemptions:" in line))
        elif looks and (match := ACCEPTED.search(line)):  # about the line before
            looks[rank][-1] = replace(looks[rank][-1], tokens_per_decode=float(match[1]))
    for of_rank in looks.values():
        yield from between(of_rank)


VLLM = Engine(
    name="vllm", title="vLLM",
    defaults=Defaults(
        options=EngineDefaults(policy="fcfs", max_num_seqs=128, max_num_batched_tokens=2048, max_prefill_tokens=0,
                               enable_chunked_prefill=True, async_scheduling=True, gpu_memory_utilization=0.9),
        sized=sized_defaults, by_gpu=BY_GPU, cudagraph_mode="full_and_piecewise", context=default_context,
        pooling=pooling_defaults,
        # Pull requests 27614 (release notes of 0.14.0) and 34299; routers in 32 bit ran cuBLAS until 0.20.
        since=(Default("async_scheduling", "0.14", before=False), Default("fuse_allreduce_rms", "0.16", before=False),
               Default("fp32_matmul", "0.20", before="fp32"))),
    scheduler=Scheduler(
        own_policies=("fcfs", "priority", "vllm-v0"),
        whole_prompts="fitted",  # _set_default_max_num_seqs_and_batched_tokens_args in vllm/engine/arg_utils.py
        replayed_since="0.8",  # VLLM_USE_V1 in vllm/envs.py
        older_policy="vllm-v0",
        before_replayed="runs engine V0 unless VLLM_USE_V1=1 is set, and V1 is replayed; --policy vllm-v0 replays V0's "
                        "scheduler without chunked prefill. Memory and limits are V1's",
        # v1/core/kv_cache_utils.py; SpeculativeConfig.use_eagle
        hashes_next_token=("mtp", "eagle", "eagle3", "dflash"),
        has_worker_processes=True,  # MultiprocExecutor
        rereads_prompts=True),  # toy_proxy_server.py, llm-d's sidecar and vllm-router send the text on
    graphs=Graphs(counts_tokens=True,  # `_set_cudagraph_sizes` in vllm/config/vllm.py
                  capture_size=lambda _, max_num_seqs, per_decode: min(2 * (max_num_seqs or 256) * per_decode, 512),
                  rule="vLLM captures up to 2 × max_num_seqs tokens, at most 512"),
    memory=Memory(
        # get_kv_cache_spec of layers/attention/encoder_only_attention.py
        caches=lambda arch: not arch.is_bidirectional,
        activation_bytes=activation_bytes, state_pages=state_pages, seats_with_states=seats_with_states,
        charges_graphs_since="0.21",  # VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS
        window_pages=window_pages, tokens_in_flight=tokens_in_flight, logs_pool=logs_pool,
        compressed_pages=compressed_pages, compressed_groups=compressed_groups, converts_to=converts_to,
        pads_experts_on=("AMD",),  # VLLM_ROCM_MOE_PADDING and AITER's kernels
        reads_kv_type_since="0.13",  # vllm-project/vllm#29980
        packed_kv=VLLM_PACKED_KV, needs_whole_context=True, fits_context_since="0.14",
        reserved_blocks=reserved_blocks),
    kernels=Kernels(
        index_share=0.1, block_sparse_frac={"hopper": 0.122, "blackwell": 0.2},
        block_sparse_unpadded=("blackwell",),  # a kernel of its own
        runs_flash_attention=True, flashinfer_generations=("blackwell",), shares_contexts=("mla", "gqa"),
        shares_prompts=True, splits_shared_cache=True,
        fuses_allreduce=lambda _, num_stages: num_stages == 1,  # `enable_allreduce_rms_fusion` of -O2
        largest_fused_bytes=lambda generation, num_gpus, _: LARGEST_FUSED_MIB[generation].get(num_gpus, 0.0) * 2.0**20,
        batch_overlap=TwoBatchOverlap(decodes_from=32, prompts_from=512)),  # ParallelConfig
    dialect=DIALECT, package=PACKAGE, client=Client(), metrics=METRICS,
    log=LogReader(mark="Avg generation throughput", line=STATISTICS, read=read_log,
                  kv_tokens=re.compile(r"GPU KV cache size: ([\d,]+) tokens")))
