"""SGLang: its defaults by GPU, memory rules, CUDA graphs, kernels, launch flags and log lines.

Its scheduler is in `loop/`: `prefill_first.py`, `admissible.py` and `reservation.py`; `displacement.py` (priorities),
`overlap.py`, `fleet/lockstep.py`, `memory/radix.py` and `memory/tiers.py`.
"""

import math
import re
from dataclasses import replace
from typing import Any

from planner.catalog.architecture import Architecture
from planner.catalog.kv_cache import kv_bytes_per_token_per_gpu
from planner.catalog.layers.csa import compressor_widths
from planner.engines.dialect import (
    MOE_BACKENDS,
    OFF,
    ON,
    QUANTIZATIONS,
    SGLANG_KV_DTYPES,
    SGLANG_PACKED_KV,
    Dialect,
    DraftFlags,
    Flag,
    RankFlags,
    Switch,
    TierFlags,
    allowed,
    choice,
    flags_named,
    limit,
    never_chunked,
    switches_named,
    unwritten,
)
from planner.engines.engine import (
    Defaults,
    Engine,
    EngineDefaults,
    Graphs,
    Kernels,
    Memory,
    Occupied,
    Scheduler,
    Size,
    TwoBatchOverlap,
)
from planner.engines.log_lines import Found, Lines, LogReader, Look, between
from planner.engines.package import BENCHMARK, Client, Metrics, Package
from planner.engines.sglang_flags import FLAGS, OTHER_CONFIG, VARIABLES
from planner.engines.values import largest, number, one_of, positive, scaled, text

# chunked_prefill_size on GPUs with less memory than this [GiB], and cuda_graph_max_bs at a tp_size below four and from
# there on (`_handle_gpu_memory_settings` in sglang/srt/server_args.py).
SIZES = ((20, 2048, (8, 8)), (35, 2048, (24, 80)), (60, 4096, (32, 160)), (160, 8192, (256, 512)),
         (math.inf, 16384, (512, 512)))
# With a radix cache: a sequence's own state, that of its cached prefix and one that it hands on; and two that take
# turns under overlap scheduling.
STATES_WITH_PREFIXES, STATES_OF_OVERLAP = 3, 2
# Compressed sparse attention: blocks of 256 tokens. Windows have a pool of their own, a tenth as many tokens as that of
# entries (swa_full_tokens_ratio), and each page of 128 of its tokens has 8 of a compressor's rows if entries overlap.
BLOCK_SIZE = 256
SWA_FULL_TOKENS_RATIO, ROWS_PER_TOKEN = 0.1, 8 / 128
ROW_BYTES_PER_ELEMENT = 4
# Models whose sliding layers have a pool of their own (`is_hybrid_swa_model` in sglang/srt/configs/model_config.py),
# and its tokens over the other layers' tokens (swa_full_tokens_ratio). Others' sliding layers keep all of the context.
WINDOW_POOL_RATIO = 0.8
WINDOW_POOL_MODELS = ("llama4_text", "gpt_oss", "mimo_v2_flash", "step3p5", "gemma4_text")
LARGEST_FUSED_TOKENS = 2048  # FUSE_ALLREDUCE_MAX_BATCH_SIZE in sglang/srt/layers/communicator.py


def sized_defaults(defaults: EngineDefaults, size: Size) -> EngineDefaults:
    """Return the defaults on a GPU. Each rank of data-parallel attention has its part of the chunk.

    Source: `_handle_data_parallelism` and `_handle_gpu_memory_settings` in sglang/srt/server_args.py.
    """
    if size.gpu_capacity_bytes is None:
        return replace(defaults, max_num_batched_tokens=max(defaults.max_num_batched_tokens // size.num_ranks, 1))
    tokens, graph_seqs = _sizes(size.gpu_capacity_bytes, size.num_gpus // size.num_stages)
    chunk = size.chunk_tokens * size.num_ranks if size.chunk_tokens else tokens
    share = memory_share(size.gpu_capacity_bytes, chunk, graph_seqs, num_gpus=size.num_gpus,
                         num_ranks=size.num_ranks, draft_method=size.draft_method)
    return replace(defaults, max_num_batched_tokens=max(tokens // size.num_ranks, 1), gpu_memory_utilization=share)


def memory_share(gpu_capacity_bytes: float, chunk_tokens: int, graph_seqs: int, *, num_gpus: int = 1,
                 num_ranks: int = 1, draft_method: str | None = None) -> float:
    """Return mem_fraction_static: the share that activations and CUDA graphs leave [1].

    1.5 MiB a token of the chunk, 2 MiB a sequence of the largest graph, more with attention DP; at least 10 GiB on GPUs
    above 60; 2 GiB more for a draft, 6 for a draft model, none for n-grams. Source: `_handle_gpu_memory_settings` in
    sglang/srt/server_args.py, 2025-09 to 2026-08.

    >>> memory_share(79.65 * 2**30, 8192, 256)  # a log of one H100 has 0.83
    0.835
    """
    capacity = gpu_capacity_bytes / 2**20
    reserved = 512 + 1.5 * max(chunk_tokens, 2048) + 2 * graph_seqs + 128 * num_gpus
    if num_ranks > 1:
        reserved += num_ranks * graph_seqs * (4.5 if graph_seqs > 300 else 3)
    if capacity > 60 * 1024:
        reserved = max(reserved, 10 * 1024)
    if draft_method not in (None, "ngram"):
        reserved += (6 if draft_method == "draft_model" else 2) * 1024
    return round((capacity - reserved) / capacity, 3)


def graph_capture_size(size: Size, max_num_seqs: int, _: int) -> int:
    """Return the largest captured CUDA graph [sequences]: cuda_graph_max_bs, which the seat limit bounds."""
    largest = _sizes(size.gpu_capacity_bytes or math.inf, size.num_gpus // size.num_stages)[1]
    return min(largest, max_num_seqs or largest)


def _sizes(gpu_capacity_bytes: float, num_ranks: int) -> tuple[int, int]:
    """Return the chunk [tokens] and the largest graph [sequences]."""
    return next((tokens, seqs[num_ranks >= 4]) for below_gib, tokens, seqs in SIZES
                if gpu_capacity_bytes < below_gib * 2**30 or math.isinf(below_gib))


def usable_bytes(mem_fraction_static: float, occupied: Occupied) -> float:
    """Return the memory for weights, working memory and KV [bytes].

    The fraction applies to the memory that is free before weights are loaded. Working memory lives in the rest; if it
    does not fit there, allocation fails later.
    """
    usable = mem_fraction_static * (occupied.capacity - occupied.context - occupied.communication)
    return usable + min(occupied.working, occupied.capacity - usable)


def states_per_sequence(enable_prefix_caching: bool | None, async_scheduling: bool) -> int:
    """Return the recurrent states kept for a running sequence; the radix cache keeps prefixes' states too [1].

    Source: `_calculate_mamba_ratio` and `_mamba_radix_cache_resolution` (kv_cache_configurator.py), with
    mamba_radix_cache_strategy = auto.
    """
    if enable_prefix_caching is False:
        return 1
    return STATES_WITH_PREFIXES + (STATES_OF_OVERLAP if async_scheduling else 0)


def compressed_pool(arch: Architecture, kv_bytes_per_element: float, pipeline_parallel_size: int) -> float:
    """Return the bytes of a token of context in all pools on one GPU, windows included [B].

    Source: `DeepSeekV4TokenToKVPool`; its 7,705 B a token of DeepSeek-V4-Flash.

    >>> from planner.catalog.catalog_files import load_model
    >>> round(compressed_pool(load_model("deepseek-v4-flash"), 1, 1), 2)
    7705.45
    """
    window = sum(group.count * group.attention.kv_bytes(kv_bytes_per_element, 1) for group in arch.layers)
    rows = sum(group.count * sum(compressor_widths(group)) * ROW_BYTES_PER_ELEMENT * ROWS_PER_TOKEN
               for group in arch.layers if group.indexer is not None)
    return (kv_bytes_per_token_per_gpu(arch, kv_bytes_per_element, 1, pipeline_parallel_size)
            + SWA_FULL_TOKENS_RATIO * (window + rows) / pipeline_parallel_size)


FP8_GEMMS = {name: name for name in ("auto", "flashinfer_trtllm")} | {"deep_gemm": "auto"}
MOES = MOE_BACKENDS | {"flashinfer_cutlass": "cutlass"} | dict.fromkeys(("triton_kernel", "flashinfer_cutedsl",
                                                                         "flashinfer_mxfp4"), "auto")
ALL2ALLS = {"none": "allgather_reducescatter", "deepep": "deepep", "mooncake": "deepep_low_latency",
            "flashinfer": "nvlink_one_sided", "mori": "mori"} | dict.fromkeys(("megamoe", "nixl"), "alltoall")
DEEPEP_MODES = {"auto": "deepep", "low_latency": "deepep_low_latency", "normal": "deepep_high_throughput"}
ALL2ALL_WORDS: dict[str, str | tuple[str, ...]] = {
    "allgather_reducescatter": "none", "deepep": "deepep", "nvlink_one_sided": "flashinfer", "mori": "mori",
    "deepep_low_latency": ("deepep", "--deepep-mode", "low_latency"),
    "deepep_high_throughput": ("deepep", "--deepep-mode", "normal")}
GRAPHS = {"full": "full_decode_only", "disabled": "none"}
WRITE_POLICIES = ("write_through", "write_through_selective", "write_back")
DRAFTS = {"EAGLE": "eagle", "EAGLE3": "eagle3", "NEXTN": "mtp", "STANDALONE": "draft_model", "NGRAM": "ngram",
          "DFLASH": "dflash", "DSPARK": "dspark"}


def emulated_length(flag: str, value: Any) -> str | None:
    """Return the mean acceptance length that SGLang emulates; None if it does not.

    Source: `SIMULATE_ACC_LEN` of speculative/eagle_utils.py, off at 0 and below.

    >>> emulated_length("SGLANG_SIMULATE_ACC_LEN", "3.5"), emulated_length("SGLANG_SIMULATE_ACC_LEN", "-1")
    ('length:3.5', None)
    """
    length = number(flag, value)
    return f"length:{length:g}" if length > 0 else None


def prefill_cp(size: int) -> tuple[str, ...] | None:
    """Return the words that prefill context parallelism is asked by, after its first flag."""
    return (str(size), "--enable-prefill-cp") if size > 1 else None


DIALECT = Dialect(  # sglang/srt/server_args.py
    commands=(re.compile(r"\S*python\S* -m (?:sglang(?:_router)?\.launch_server|dynamo\.sglang)"),
              re.compile(r"(?:\S*/|!)?sglang serve")),
    images=("sglang",), log_opening=("server_args=ServerArgs(", "="), logs_all_arguments=True,
    ranks=RankFlags(limits_are_of_all=True, sends_whole_experts=True),  # _handle_data_parallelism, _handle_a2a_moe
    methods_without_draft={"eagle": "mtp"},  # EAGLE without a draft model is the target's MTP layer
    launch=("python", "-m", "sglang.launch_server", "--model-path"), lora_switch="--enable-lora",
    tier=TierFlags(size="--hicache-size", unit_bytes=1e9, switch="--enable-hierarchical-cache", default_ratio=2.0),
    whole_prompts_by_flags=True,
    model=("--model-path", "--model"), copies_need_load=True,  # `compute_initial_expert_location_metadata`
    drafts=DraftFlags(steps="--speculative-num-steps", block="--speculative-num-draft-tokens", default_steps=3,
                      ngram_tokens=12),  # of most models: `_auto_choose_speculative_params`
    experts=("--expert-parallel-size", "--ep-size", "--ep"), kv_tokens=("--max-total-tokens",), read_kv_tokens=scaled,
    table=FLAGS, roles={"--disaggregation-mode": {"prefill": "prefill", "decode": "decode"}},
    entries=(
        *flags_named("""
            --tensor-parallel-size|--tp-size|--tp --pipeline-parallel-size|--pp-size|--pp
            --data-parallel-size|--dp-size|--dp --decode-context-parallel-size|--dcp-size
            --priority-scheduling-preemption-threshold --prefill-decode-interval
            --scheduler-recv-interval --stream-interval --max-lora-rank"""),
        *switches_named("""
            --enable-mixed-chunk --enable-priority-scheduling --schedule-low-priority-values-first
            --enable-single-batch-overlap --language-model-only --enable-eplb"""),
        *flags_named("--max-queued-requests", write=limit),
        *flags_named("--max-prefill-tokens", read=scaled),
        *flags_named("--schedule-conservativeness --swa-full-tokens-ratio --mamba-full-memory-ratio", read=number),
        *switches_named("--enable-lora", otherwise=False),
        Flag(names=("--attn-cp-size", "--attention-context-parallel-size"), option="prefill_context_parallel_size",
             write=prefill_cp),
        Switch(names=("--enable-prefill-cp", "--enable-prefill-context-parallel",
                      "--enable-nsa-prefill-context-parallel", "--enable-dsa-prefill-context-parallel"),
               option="shares_prompts"),
        Switch(names=("--is-embedding",), option="pooling", value="embed"),
        Switch(names=("--is-embedding",), option="pooling", value="score"),
        Switch(names=("--enable-dp-attention",), option="data_parallel_attention"),
        Flag(names=("--attn-dp-size", "--attention-data-parallel-size"), option="attention_ranks", write=unwritten),
        choice(("--quantization",), "quantization", QUANTIZATIONS),
        choice(("--kv-cache-dtype",), "kv_cache_dtype", SGLANG_KV_DTYPES),
        choice(("--fp8-gemm-backend", "--fp8-gemm-runner-backend"), "fp8_gemm_backend", FP8_GEMMS),
        Flag(names=("--mem-fraction-static",), option="gpu_memory_utilization", read=number),
        Flag(names=("--context-length",), option="max_model_len", read=scaled),
        Flag(names=("--page-size",), option="block_size"),
        choice(("--schedule-policy",), "schedule_policy", {name: name for name in ("fcfs", "lpm", "lof")}),
        Flag(names=("--max-running-requests",), option="max_num_seqs", read=positive, write=limit),
        Flag(names=("--chunked-prefill-size",), option="max_num_batched_tokens", write=limit),
        Flag(names=("--chunked-prefill-size",), option="enable_chunked_prefill", write=never_chunked),
        Switch(names=("--disable-radix-cache",), option="enable_prefix_caching", value=False),
        Switch(names=("--disable-overlap-schedule",), option="async_scheduling", value=False),
        Flag(names=("--speculative-num-steps",), option="num_speculative_tokens"),
        Flag(names=("--speculative-num-draft-tokens",), option="draft_tokens"),
        Flag(names=("--speculative-dflash-block-size", "--speculative-dspark-block-size"), option="draft_block"),
        choice(("--speculative-algorithm", "--speculative-algo"), "speculative_method", DRAFTS),
        Flag(names=("--speculative-draft-model-path", "--speculative-draft-model"), option="speculative_model",
             read=text),
        Switch(names=("--disable-cuda-graph", "--disable-decode-cuda-graph"), option="cudagraph_mode", value="none"),
        choice(("--cuda-graph-backend-decode",), "cudagraph_mode", GRAPHS),
        Flag(names=("--cuda-graph-max-bs", "--cuda-graph-max-bs-decode"), option="max_cudagraph_capture_size"),
        Flag(names=("--cuda-graph-bs", "--cuda-graph-bs-decode"), option="max_cudagraph_capture_size", read=largest,
             write=unwritten, takes="several"),
        choice(("--moe-runner-backend",), "moe_backend", MOES),
        Flag(names=("--moe-a2a-backend",), option="all2all_backend", read=one_of(ALL2ALLS), write=ALL2ALL_WORDS.get),
        Flag(names=("--deepep-mode",), option="deepep_mode", read=one_of(DEEPEP_MODES), write=unwritten),
        Switch(names=("--enable-deepep-moe",), option="all2all_backend", value="deepep"),
        Switch(names=("--enable-ep-moe",), option="expert_parallel"),
        Switch(names=("--enable-two-batch-overlap",), option="enable_dbo"),
        Flag(names=("--ep-num-redundant-experts",), option="num_redundant_experts"),
        Flag(names=("--init-expert-location",), option="expert_location", read=text, write=unwritten),
        Switch(names=("--disable-custom-all-reduce",), option="custom_all_reduce", value=False),
        Switch(names=("--enable-flashinfer-allreduce-fusion",), option="fuse_allreduce_rms"),
        Switch(names=("--enforce-disable-flashinfer-allreduce-fusion",), option="fuse_allreduce_rms", value=False),
        choice(("--flashinfer-allreduce-fusion-backend",), "fuse_allreduce_rms",
               dict.fromkeys(("auto", "trtllm", "mnnvl", "cutedsl"), True)),
        Switch(names=("--enable-hierarchical-cache", "--enable-hicache"), option="has_tier"),
        Flag(names=("--hicache-ratio",), option="kv_offloading_ratio", read=number),
        choice(("--hicache-write-policy",), "kv_write_policy", {name: name for name in WRITE_POLICIES}),
        Switch(names=("--disable-hybrid-swa-memory",), option="disable_hybrid_kv_cache_manager", otherwise=False),
        Flag(names=("--lora-paths",), option="lora_paths", read=text, write=unwritten, takes="several"),
        Flag(names=("--max-loras-per-batch",), option="max_loras"),
        Flag(names=("--max-loaded-loras",), option="max_cpu_loras"),
    ),
    with_router="sglang_router.launch_server", unmodelled_variables=VARIABLES,
    refuses_longer_since="0.5.1", config_effects=(OTHER_CONFIG,),
    variables={
        "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": allowed(),
        "SGLANG_MORI_NUM_MAX_DISPATCH_TOKENS_PER_RANK": Flag(names=(), option="dispatch_tokens_per_rank"),
        "SGLANG_SIMULATE_ACC_LEN": Flag(names=(), option="speculative_acceptance", read=emulated_length,
                                        write=unwritten),
        "SGLANG_ENABLE_FLASHINFER_GEMM": choice((), "fp8_gemm_backend",
                                                 dict.fromkeys(ON, "flashinfer_trtllm") | dict.fromkeys(OFF, "auto")),
    })

ROLES = {role: ("--disaggregation-mode", role) for role in ("prefill", "decode")}
PACKAGE = Package(
    names="sglang", image="lmsysorg/sglang:v{}", role_flags=ROLES, dynamo_roles=ROLES,
    classes={f"sglang.{name}": {} for name in ("Engine", "ServerArgs", "Runtime")},
    others=((r"sglang\.bench_\w+", BENCHMARK),),
    has_flat_errors=True)  # ErrorResponse in srt/entrypoints/openai/protocol.py

METRICS = Metrics(
    prefix="sglang", running="num_running_reqs",
    histograms={
        "ttft": ("time_to_first_token_seconds",),
        "itl": ("inter_token_latency_seconds", "time_per_output_token_seconds"),
        "e2el": ("e2e_request_latency_seconds",),
        # With --collect-tokens-histogram only.
        "input": ("prompt_tokens_histogram",), "output": ("generation_tokens_histogram",)},
    totals={"input": "prompt_tokens_total", "output": "generation_tokens_total"},
    cache=("cached_tokens_total", "prompt_tokens_total"),
    requests="num_requests_total", waiting="num_queue_reqs", kv_use=("token_usage",))  # srt/metrics/collector.py

BATCH = re.compile(r"\[[-\d: .,]*([A-Z][A-Z\d ]*)?\] (Decode|Prefill) batch\b")
RUNNING = re.compile(r"#running-req: (\d+)")
TOKEN_COUNT = re.compile(r"#(?:full )?token: (\d+)")
ACCEPTED = re.compile(r"accept len: (\d+(?:\.\d+)?)")
SPEED = re.compile(r"gen throughput \(token/s\): (\d+(?:\.\d+)?)")


def read_log(lines: Lines) -> Found:
    """Yield windows of a log with a line every forty decodes (`--decode-log-interval`) and one for each prefill.

    Source: `log_decode_stats`.
    """
    looks: dict[str, list[Look]] = {}
    prefilled: set[str] = set()
    for line_number, line in lines:
        match = BATCH.search(line)
        if match is None:
            continue
        rank = match[1] or ""
        running, context, speed = (pattern.search(line) for pattern in (RUNNING, TOKEN_COUNT, SPEED))
        if match[2] == "Prefill" or running is None or context is None or speed is None:
            prefilled.add(rank)
            continue
        accepted = ACCEPTED.search(line)
        looks.setdefault(rank, []).append(Look(
            line=line_number, num_decodes=int(running[1]), context_tokens=float(context[1]),
            tokens_per_s=float(speed[1]), tokens_per_decode=float(accepted[1]) if accepted else None,
            has_prompts=rank in prefilled))
        prefilled.discard(rank)
    for of_rank in looks.values():
        yield from between(of_rank)


SGLANG = Engine(
    name="sglang", title="SGLang",
    defaults=Defaults(
        # chunked_prefill_size and max_prefill_tokens; max_running_requests is 2,048 to 4,096, by the size of the pool.
        options=EngineDefaults(policy="sglang", max_num_seqs=2048, max_num_batched_tokens=8192,
                               max_prefill_tokens=16384, enable_chunked_prefill=True, async_scheduling=True,
                               gpu_memory_utilization=0.88),
        sized=sized_defaults,
        by_gpu={"max_num_batched_tokens": "by GPU memory", "gpu_memory_utilization": "by GPU memory"},
        compressed_max_num_seqs=256,  # `apply_deepseek_v4_defaults`
        # `_set_default_nsa_kv_cache_dtype` of ServerArgs
        sparse_kv_cache_type=lambda gpu: "fp8" if "fp4" in gpu.flops_per_s else "bf16", max_loras=8,
        # Its encoders need --chunked-prefill-size -1 and --disable-radix-cache.
        pooling=lambda defaults, arch: replace(defaults, enable_chunked_prefill=not arch.needs_whole_prompts)),
    scheduler=Scheduler(
        own_policies=("sglang",), older_rules={"ends_wait": "0.5.17", "strict_prefill": "0.5.10"},
        sends_token_on=True),  # `stream_output` of a prebuilt batch in disaggregation/decode.py
    graphs=Graphs(capture_size=graph_capture_size, rule="SGLang's default depends on the GPU's memory"),
    memory=Memory(
        usable_bytes=usable_bytes, states_per_sequence=states_per_sequence,
        state_ratio=0.9,  # of recurrent states over KV, at most (mamba_full_memory_ratio)
        window_pool_ratio=lambda arch: WINDOW_POOL_RATIO if arch.model_type in WINDOW_POOL_MODELS else None,
        compressed_pages=lambda _, block_size: (max(block_size, BLOCK_SIZE), 0), compressed_pool=compressed_pool,
        converts_to=lambda _: ("fp8", "bnb-4bit"),  # layers/quantization: fp8.py, bitsandbytes.py
        packed_kv=SGLANG_PACKED_KV, widened_kv=("nvfp4",), drops_scales_since="0.5.12"),
    kernels=Kernels(
        newest_since="0.5.11", older_layers=lambda arch: arch.num_layers,  # all, as runs of both lines show
        compressed="vllm",  # FlashMLA, as vLLM's
        block_sparse_frac={"hopper": 0.079, "blackwell": 0.04},
        buffered_tokens={"mori": 4096},  # `_MoriEPDispatcherImplBase` in moriep.py
        shares_prompts=True, shares_contexts=("mla",),  # deepseek_v2.py (sgl-project/sglang#14194)
        fuses_allreduce=lambda arch, _: arch.num_moe_layers > 0,  # `_handle_model_specific_adjustments`
        largest_fused_bytes=lambda _, __, hidden_size: 2.0 * LARGEST_FUSED_TOKENS * hidden_size,  # in 16 bit
        # `determine_num_fused_shared_experts` in deepseek_v2.py and glm4_moe.py
        fused_shared_experts=("deepseek_v3", "glm_moe_dsa", "glm4_moe"),
        # Every step with two parts: `compute_split_seq_index` of two_batch_overlap.py; `prepare_all_gather` of its
        # TboDPAttentionPreparer.
        batch_overlap=TwoBatchOverlap(decodes_from=2, prompts_from=2, whole_prompts_with=("deepep_low_latency",))),
    dialect=DIALECT, package=PACKAGE, metrics=METRICS, client=Client(
        keys=("random_range_ratio", "server_info", "total_output_tokens_retokenized"), draws_below=True),
    log=LogReader(mark=" batch", line=BATCH, read=read_log))
