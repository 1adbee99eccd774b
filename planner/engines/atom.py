"""ATOM, AMD's engine: its defaults, memory rules, CUDA graphs and launch flags.

Its scheduler is in `loop/`: `placeholders.py` (tokens that are handed over late), `admission.py` and `serving.py`.
"""

import re

from planner.engines.dialect import (
    KV_DTYPES,
    Dialect,
    Flag,
    RankFlags,
    Switch,
    choice,
    flags_named,
    limit,
    switches_named,
)
from planner.engines.engine import Defaults, Engine, EngineDefaults, Scheduler
from planner.engines.package import Package
from planner.engines.values import number, positive, text

DIALECT = Dialect(  # atom/model_engine/arg_utils.py and atom/entrypoints/openai_server.py
    commands=(re.compile(r"\S*python\S* -m atom\.entrypoints\.openai_server"),),
    images=("rocm/atom", "rocm/atom-dev"),
    launch=("python", "-m", "atom.entrypoints.openai_server", "--model"),
    ranks=RankFlags(),
    entries=(
        *flags_named("--tensor-parallel-size|-tp --pipeline-parallel-size|-pp --data-parallel-size|-dp "
                     "--decode-context-parallel-size|-dcp --block-size --max-model-len "
                     "--long-prefill-token-threshold --num-speculative-tokens"),
        *flags_named("--max-num-seqs --max-num-batched-tokens", read=positive, write=limit),
        *flags_named("--gpu-memory-utilization --scheduler-delay-factor", read=number),
        *switches_named("--enable-prefix-caching --enable-chunked-prefill", otherwise=False),
        choice(("--kv-cache-dtype",), "kv_cache_dtype", KV_DTYPES),
        choice(("--method",), "speculative_method", {name: name for name in ("mtp", "eagle3", "dspark")}),
        Switch(names=("--enforce-eager",), option="cudagraph_mode", value="none"),
        Switch(names=("--enable-expert-parallel",), option="expert_parallel"),
        Switch(names=("--enable-dp-attention",), option="data_parallel_attention"),
        Flag(names=("--draft-model",), option="speculative_model", read=text),
    ))

ATOM = Engine(
    name="atom", title="ATOM",
    defaults=Defaults(options=EngineDefaults(
        policy="atom", max_num_seqs=512, max_num_batched_tokens=16384, max_prefill_tokens=0,
        enable_chunked_prefill=True, async_scheduling=True, gpu_memory_utilization=0.9)),
    scheduler=Scheduler(own_policies=("atom",)),
    dialect=DIALECT, package=Package(names="atom", image="rocm/atom:{}"))
