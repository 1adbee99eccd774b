"""Any two features together: everybody's end is told, and no engine keeps a request, a block or a place in a queue."""

import itertools
from pathlib import Path
from typing import Any

import pytest
from helpers import EVERYTHING, trace_of

from planner.errors import PlannerError
from planner.run import replay
from planner.settings.scenario import Scenario
from planner.traces import Trace

SCALE = """minimum = 1
maximum = 3
interval_s = 2
startup = { warmup_s = 1 }
metric = [{ name = "concurrency", target = 4 }]
[down]
stabilization_window_s = 4
"""
APART = """[[pool]]
name = "p"
role = "prefill"
autoscale = "zero.toml"
[[pool]]
name = "d"
role = "decode"
replicas = 2
"""
POOLS = """[[pool]]
name = "a"
replicas = 2
[[pool]]
name = "b"
gpu = "a100-sxm"
max_num_seqs = 4
"""
PARALLEL = {"model": "qwen3-30b-a3b", "tensor_parallel_size": 8, "inter_node_bandwidth": 50.0}
FEATURES: dict[str, dict[str, Any]] = {
    "host tier": {"kv_offloading_size": 0.05},
    "remote tier": {"kv_remote_size": 0.05, "kv_remote_latency": 0.05, "kv_write_policy": "write_through_selective"},
    "drafts": {"num_speculative_tokens": 2, "speculative_method": "eagle3"},
    "adapters": {"max_loras": 2, "max_cpu_loras": 3},
    "time-outs": {"ttft_timeout": 0.6, "request_timeout": 2.0, "max_retries": 2},
    "full queues": {"max_queued_requests": 2, "max_retries": 3, "max_num_seqs": 4},
    "router's queue": {"router_max_concurrent_requests": 6, "router_queue_size": 50, "router_queue_timeout": 1.0},
    "failure": {"fail_replica": "0@1+2", "max_retries": 2},
    "autoscaler": {"autoscale": "scale.toml"},
    "from zero": {"autoscale": "zero.toml"},
    "pools": {"fleet": "pools.toml"},
    "pools apart": {"fleet": "apart.toml"},
    "prefill apart": {"data_parallel_size": 3, "prefill_replicas": 1},
    "replicas": {"data_parallel_size": 3, "router": "prefix-aware"},
    "ranks": {"data_parallel_size": 2, "data_parallel_attention": True, "model": "qwen3-30b-a3b"},
    "swap": {"preemption": "swap"},
    "stages": {"pipeline_parallel_size": 2},
    "decodes in parallel": PARALLEL | {"decode_context_parallel_size": 2},
    "prompts in parallel": PARALLEL | {"prefill_context_parallel_size": 2},
    "sglang": {"engine": "sglang"},
    "priority": {"policy": "priority"},
    "closed loop": {"max_concurrency": 6},
}
REFUSED = {frozenset(pair) for pair in (
    ("autoscaler", "prefill apart"), ("autoscaler", "replicas"), ("from zero", "prefill apart"),
    ("from zero", "replicas"), ("pools", "prefill apart"), ("pools", "replicas"), ("pools apart", "prefill apart"),
    ("pools apart", "replicas"), ("decodes in parallel", "sglang"),
    *(("ranks", each) for each in ("failure", "autoscaler", "from zero", "pools", "pools apart", "prefill apart",
                                   "stages")))}
PAIRS = [(one, other) for one, other in itertools.combinations(FEATURES, 2)  # that are not in each other's place
         if not {*FEATURES[one]} & {*FEATURES[other]} & {"fleet", "autoscale"}]


def load() -> Trace:
    """Return 60 requests in 6 s: conversations of growing prompts, of a few adapters and priorities."""
    rows = [(0.1 * k, 32 * (1 + k // 6), 8 + k % 5) for k in range(60)]
    ids = [[100 * (k % 6) + block for block in range(2 * (1 + k // 6))] for k in range(60)]
    return trace_of(rows, hash_ids=ids, hash_block_tokens=16, priority=[float(k % 3) for k in range(60)],
                    adapter=[("a", "b", "c", None)[k % 4] for k in range(60)])


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_two_features_serve_together(one: str, other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("scale.toml").write_text(SCALE)
    Path("zero.toml").write_text(SCALE.replace("minimum = 1", "minimum = 0"))
    Path("pools.toml").write_text(POOLS)
    Path("apart.toml").write_text(APART)
    options: dict[str, Any] = {"model": "llama-3.1-8b", "gpu": "h100-sxm",
                               "num_gpu_blocks": 60} | FEATURES[one] | FEATURES[other]
    if {one, other} in REFUSED:
        with pytest.raises(PlannerError):
            replay(load(), Scenario(**options))
        return
    result = replay(load(), Scenario(**options), recording=EVERYTHING).result
    ends = ["completed", "rejected", "cancelled", "failed", "timed_out"]
    assert result.requests_table()["status"].is_in(ends).all()
    for replica in result.replicas:
        engine = replica.engine
        assert (engine.num_running, engine.num_waiting, engine.num_loading, engine.num_held) == (0, 0, 0, 0)
        assert engine.num_free_blocks == replica.settings.num_gpu_blocks
