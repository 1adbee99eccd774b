"""Text Embeddings Inference: its defaults, the deployments that it runs, and its launch flags.

Its scheduler is the policy `fcfs` with whole prompts, whose batches are composed one ahead: `loop/overlap.py`. Sources:
core/src/queue.rs (`queue_blocking_task`), core/src/infer.rs (`batching_task`), router/src/ and backends/ of
huggingface/text-embeddings-inference.
"""

import re
from typing import Any

from planner.catalog.architecture import Architecture
from planner.catalog.gpus import Gpu
from planner.engines.dialect import Dialect, Flag, Switch, limit, unwritten
from planner.engines.engine import Defaults, Engine, EngineDefaults, Graphs, Kernels, Memory, Scheduler
from planner.engines.flag_table import FULL_PRECISION, FlagTable, Unmodelled, flags
from planner.engines.package import Package
from planner.engines.values import one_of, positive, text

TITLE = "Text Embeddings Inference"
FORMATS = (None, "bf16", "fp16")  # weights that are read
# Model types whose batches FlashAttention packs: backends/candle/src/models.
PACKED = ("bert", "roberta", "xlm-roberta", "modernbert", "nomic_bert", "new", "mistral", "qwen2", "qwen3")
BEFORE_AMPERE = ("t4", "v100")
APPROXIMATE = (
    f"{TITLE}: max_num_queued_reqs limits the waiting requests alone. The server also counts the requests of the two "
    f"batches in flight, and refuses requests earlier",
    f"{TITLE}: no run of it is in a fit. Its constants are vLLM's, without the time of an API server: requests are "
    f"tokenised on all cores")

NO_EFFECT = flags("""
    --revision= --tokenization-workers= --served-model-name= --max-client-batch-size=32 --default-prompt-name=
    --default-prompt= --dense-path= --hf-api-token= --hf-token= --hostname=0.0.0.0 --port|-p=3000 --uds-path=
    --huggingface-hub-cache= --payload-limit=2000000 --api-key= --json-output --disable-spans --otlp-endpoint=
    --otlp-service-name= --prometheus-port=9000 --cors-allow-origin= --device-id=0""")
LIMITS = (
    Flag(names=("--max-batch-tokens",), option="max_num_batched_tokens", read=positive, write=limit),
    Flag(names=("--max-batch-requests",), option="max_num_seqs", read=positive, write=limit),
    Flag(names=("--max-concurrent-requests",), option="max_num_queued_reqs", read=positive, write=limit),
    # --pooling makes an embedding model of a decoder; the files of other models have it.
    Flag(names=("--pooling",), option="pooling", write=unwritten,
         read=one_of(dict.fromkeys(("cls", "mean", "last-token", "splade"), "embed"))))
TRUNCATES = (  # the longest prompt is then the longest that a batch holds; it is written for a lower limit
    Switch(names=("--auto-truncate",), option="truncates_prompts"),
    Flag(names=("--auto-truncate",), option="max_model_len", takes="nothing", write=lambda _: ()))

DIALECT = Dialect(  # router/src/main.rs
    launch=("text-embeddings-router", "--model-id"), model=("--model-id",), images=("text-embeddings-inference",),
    commands=(re.compile(r"(?:\S*/)?text-embeddings-router"),
              re.compile(r"(?:\S*/)?text-embeddings-inference(?:[:@]\S+)?")),  # the image, whose arguments follow it
    entries=(*LIMITS, *TRUNCATES), files=(), has_abbreviations=False, files_tell_pooling=True,
    variables={flag.names[0].removeprefix("--").replace("-", "_").upper(): flag for flag in LIMITS} | {
        "MODEL_ID": Flag(names=(), option="model", read=text)},
    table=FlagTable(no_effect=NO_EFFECT, unmodelled=(
        Unmodelled(effect=FULL_PRECISION, flags=flags("--dtype=float16|bfloat16")),)))


def refusal(scenario: Any, arch: Architecture, gpu: Gpu | None, num_gpus: int) -> str | None:
    """Return why it does not run a deployment; None if it does.

    Batches are padded without FlashAttention-2, which needs 16 bit and a GPU of NVIDIA from Ampere on.
    """
    if arch.pooling is None:
        return (f"{arch.name} generates text, and {TITLE} serves embedding models and rerankers alone; give "
                f"--engine vllm")
    if arch.model_type not in PACKED:
        return (f"{arch.name}: {TITLE} does not serve models of type {arch.model_type}, or pads their batches, which "
                f"is not modelled; give --engine vllm, or a model of type {', '.join(PACKED)}")
    if gpu is not None and (gpu.vendor != "NVIDIA" or gpu.name.startswith(BEFORE_AMPERE)):
        return (f"{gpu.name}: {TITLE} pads batches on it, or does not run; the replay has packed ones. Give a GPU of "
                f"NVIDIA from Ampere on, or --engine vllm")
    if num_gpus > 1:
        return f"{TITLE} runs a model on 1 GPU, and the deployment has {num_gpus}; give --tensor-parallel-size 1"
    if scenario.quantization not in FORMATS:
        return f"quantization = {scenario.quantization}: {TITLE} reads weights in 16 bit; leave it out"
    for name in ("enable_chunked_prefill", "enable_prefix_caching"):
        if getattr(scenario, name):
            return f"--{name.replace('_', '-')}: {TITLE} computes each prompt whole, and keeps no KV; leave it out"
    return None


TEI = Engine(
    name="tei", title=TITLE,
    defaults=Defaults(
        options=EngineDefaults(  # Args in router/src/main.rs; a batch may have any number of requests
            policy="fcfs", max_num_seqs=0, max_num_batched_tokens=16384, max_prefill_tokens=0,
            enable_chunked_prefill=False, async_scheduling=True, gpu_memory_utilization=1.0, max_num_queued_reqs=512),
        cudagraph_mode="none", refusal=refusal,
        pooling=lambda defaults, _: defaults, composes_ahead=True),
    scheduler=Scheduler(whole_prompts="refused", approximate=APPROXIMATE, starts_alone=True),
    graphs=Graphs(capture_size=lambda *_: 0, rule=f"{TITLE} captures no CUDA graphs"),
    memory=Memory(caches=lambda _: False), kernels=Kernels(runs_flash_attention=True), dialect=DIALECT,
    package=Package(
        image="ghcr.io/huggingface/text-embeddings-inference:{}", aliases=("text-embeddings-inference",),
        bench_backend="openai-embeddings"))
