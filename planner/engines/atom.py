"""ATOM, AMD's engine: its defaults, CUDA graphs, launch flags, metrics and benchmark client.

Its scheduler is in `loop/`: `placeholders.py` (tokens that are handed over late), `admission.py` and `serving.py`.
"""

import re
from typing import Any

from planner.engines.dialect import (
    KV_DTYPES,
    Dialect,
    Flag,
    RankFlags,
    Switch,
    choice,
    flags_named,
    limit,
    listed,
    switches_named,
)
from planner.engines.engine import Defaults, Engine, EngineDefaults, Graphs, Scheduler, Size
from planner.engines.flag_table import COMPILED, NO_TEXT, FlagTable, Unmodelled, flags
from planner.engines.package import BENCHMARK, Client, Metrics, Package
from planner.engines.values import largest, number, positive, text

CAPTURED = 512  # largest of --cudagraph-capture-sizes

NO_EFFECT = flags("""
    --host=0.0.0.0 --server-port=8000 --port=8006 --trust-remote-code --served-model-name= --load-dummy
    --torch-profiler-dir= --default-chat-template-kwargs= --tool-call-parser= --reasoning-parser= --log-level=
    --disable-uvicorn-access-log --mark-trace --data-parallel-master-ip= --data-parallel-master-port=
    --data-parallel-base-port= --data-parallel-rank= --data-parallel-size-local= --state-checkpoint-interval-tokens=8192
    --attn-prefill-chunk-size=16384""")

UNMODELLED = (
    Unmodelled(effect="passes a share of the drafts as accepted; give --speculative-acceptance", flags=flags(
        "--spec-decode-acceptance-rate= --spec-decode-acceptance-length= --dspark-config=")),
    Unmodelled(effect="runs prefill and decode as two processes on one GPU, whose schedulers are not modelled",
               flags=flags("--enable-rapidserve")),
    Unmodelled(effect="passes KV on to another engine or to other memory", flags=flags("--kv-transfer-config=")),
    Unmodelled(effect=COMPILED, flags=flags("--level=3 --cudagraph-mode=full --online-quant-config=")),
    Unmodelled(effect="overlaps the exchange of two batches with compute", flags=flags("--enable-tbo=")),
    Unmodelled(effect="spreads prompts over GPUs", flags=flags("--prefill-context-parallel-size|-pcp=1")),
    Unmodelled(effect="chooses how tokens reach their experts, or which rank gets a request", flags=flags(
        "--all2all-backend=high-throughput --dp-load-balance=least_requests --fake-eplb --index-cache-dtype=")),
    Unmodelled(effect=NO_TEXT, is_refused=True, flags=flags("--image-model=")))

DIALECT = Dialect(  # atom/model_engine/arg_utils.py, atom/entrypoints/openai_server.py
    commands=(re.compile(r"\S*python\S*(?: -u)? -m atom\.entrypoints\.openai(?:_server|\.api_server)"),),
    images=("rocm/atom", "rocm/atom-dev"), launch=("python", "-m", "atom.entrypoints.openai_server", "--model"),
    table=FlagTable(no_effect=NO_EFFECT, unmodelled=UNMODELLED), ranks=RankFlags(limits_are_of_all=False),
    methods_without_draft={"eagle": "mtp"},
    entries=(
        *flags_named("""
            --tensor-parallel-size|-tp --pipeline-parallel-size|-pp --data-parallel-size|-dp
            --decode-context-parallel-size|-dcp --block-size --max-model-len --long-prefill-token-threshold
            --num-speculative-tokens"""),
        *flags_named("--max-num-seqs --max-num-batched-tokens", read=positive, write=limit),
        *flags_named("--gpu-memory-utilization --scheduler-delay-factor", read=number),
        *switches_named("--enable-prefix-caching --enable-chunked-prefill", otherwise=False),
        choice(("--kv-cache-dtype",), "kv_cache_dtype", KV_DTYPES),
        choice(("--method",), "speculative_method", {name: name for name in ("mtp", "eagle3", "dspark")}),
        Flag(names=("--draft-model",), option="speculative_model", read=text),
        Switch(names=("--enforce-eager",), option="cudagraph_mode", value="none"),
        Flag(names=("--cudagraph-capture-sizes",), option="max_cudagraph_capture_size", read=largest, write=listed),
        Switch(names=("--enable-expert-parallel",), option="expert_parallel"),
        Switch(names=("--enable-dp-attention",), option="data_parallel_attention"),
    ))

METRICS = Metrics(  # atom/entrypoints/openai/metrics.py and request_metrics.py
    prefix="atom", running="requests_running",
    histograms={"ttft": ("time_to_first_token_seconds",), "itl": ("inter_token_latency_seconds",)},
    totals={"input": "prompt_tokens_total", "output": "generation_tokens_total"},
    cache=("prefix_cache_cached_tokens_total", "prefix_cache_full_tokens_total"))


def capture_size(_: Size, max_num_seqs: int, __: Any) -> int:
    """Return the largest captured CUDA graph [sequences]."""
    return min(CAPTURED, max_num_seqs or CAPTURED)


ATOM = Engine(
    name="atom", title="ATOM",
    defaults=Defaults(options=EngineDefaults(  # EngineArgs in atom/model_engine/arg_utils.py
        policy="atom", max_num_seqs=512, max_num_batched_tokens=16384, max_prefill_tokens=0,
        enable_chunked_prefill=True, async_scheduling=True, gpu_memory_utilization=0.9)),
    scheduler=Scheduler(own_policies=("atom",)),
    graphs=Graphs(capture_size=capture_size, rule="ATOM captures up to 512 sequences by default"),
    dialect=DIALECT, client=Client(draws_below=True), metrics=METRICS,
    package=Package(
        names="atom", image="rocm/atom:{}", classes={"atom.LLMEngine": {}}, bench_backend="vllm",
        others=((r"python\S* -m atom\.benchmarks\.\w+", BENCHMARK),)))
