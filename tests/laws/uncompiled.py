"""Replay a fixed set of small cases under every policy and print one line per case; run as a script by the test."""

import dataclasses
import hashlib
import json
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from helpers import EVERYTHING, num_drawn, scenario_of, trace_of

from planner.deployment.deploy import resolve
from planner.deployment.shaped_load import shape_load
from planner.loop.state.engine_settings import Recording
from planner.policies.builtin_policies import POLICIES
from planner.policies.builtin_routers import ROUTERS
from planner.replays.fleet.replicas import is_blind, serve
from planner.replays.request_columns import COLUMNS
from planner.replays.result_tables import ReplayResult
from planner.traces import Trace

ROWS = [(0.05 * (k // 3), 5 + 7 * k % 23, 1 + 5 * k % 14) for k in range(14)]
IDS = [[0, 1, 2 + k % 3, 10 + k % 2, 20 + k, 30 + k, 40 + k] for k in range(14)]
COMMON: dict[str, Any] = {"block_size": 4, "num_gpu_blocks": 16, "max_model_len": 48, "max_num_batched_tokens": 20,
                          "max_num_seqs": 6, "enable_prefix_caching": False}
CASES: dict[str, dict[str, Any]] = {
    "plain": {"max_num_batched_tokens": 40},
    "recompute": {"num_gpu_blocks": 12},
    "swap": {"preemption": "swap", "num_cpu_blocks": 6},
    "prefix": {"enable_prefix_caching": True, "num_gpu_blocks": 14},
    "victims": {"victim": "fewest-generated", "admission": "first-fit", "async_scheduling": True},
    "limits": {"long_prefill_token_threshold": 3, "watermark": 0.1, "scheduler_reserve_full_isl": False},
    "waiting": {"batch_wait_timeout_iters": 3, "batch_wait_max_tokens_ratio": 0.9, "max_prefill_tokens": 16},
    "looking": {"scheduler_recv_interval": 4, "stream_interval": 3, "schedule_conservativeness": 0.2},
    "late tokens": {"scheduler_delay_factor": 0.5, "async_scheduling": True, "num_gpu_blocks": 14,
                    "enable_prefix_caching": True},
    "adapters": {"max_loras": 2},
    "mixing": {"enable_mixed_chunk": True, "schedule_policy": "lof", "prefill_decode_interval": 1,
               "enable_prefix_caching": True, "async_scheduling": True},
    "prefixes first": {"schedule_policy": "lpm", "enable_prefix_caching": True, "num_gpu_blocks": 14},
    "displacing": {"enable_priority_scheduling": True, "priority_scheduling_preemption_threshold": 0,
                   "max_num_seqs": 2},
    "drafts": {"num_speculative_tokens": 2, "speculative_acceptance": "0.8,0.3", "num_gpu_blocks": 14},
    "pipeline": {"pipeline_parallel_size": 2, "step_time": "linear:0.01,0.0005,0.0001"},
}
TIERS: dict[str, Any] = {"model": "llama-3.1-8b", "gpu": "h100-sxm", "kv_offloading_size": 12 / 2048,
                         "kv_offloading_bandwidth": 0.1, "kv_remote_size": 30 / 2048, "kv_remote_bandwidth": 0.05,
                         "kv_remote_latency": 0.007}
CASES |= {f"tiers {policy}": CASES["prefix"] | TIERS | {"kv_write_policy": policy, "preemption": preemption}
          for policy, preemption in (("write_through", "swap"), ("write_through_selective", "recompute"),
                                     ("write_back", "swap"))}

WINDOWS = {"window_tokens": 6, "window_chunk": 8, "window_page_size": 2, "window_page_bytes": 5, "block_bytes": 10}

POOLS: dict[str, Any] = {"data_parallel_size": 3, "prefill_replicas": 1, "kv_transfer_latency": 0.013,
                         "local_prefill_below": 8, "router": "least-outstanding-tokens"}

FLEET = """
[[pool]]
accepts = "input_tokens < 12"
[[pool]]
replicas = 2
accepts = "input_tokens >= 8 and priority < 2"
[[pool]]
weight = 2
"""

OVERLOAD: dict[str, Any] = {"data_parallel_size": 2, "router": "power-of-two", "fail_replica": "1@0.11+0.2",
                            "max_queued_requests": 3, "ttft_timeout": 0.2, "request_timeout": 0.6, "max_retries": 4,
                            "retry_initial_backoff": 0.02, "retry_jitter_factor": 0.3,
                            "router_max_concurrent_requests": 5, "router_queue": "fair"}


def play(trace: Trace, *, recording: Recording = EVERYTHING, **options: Any) -> ReplayResult:
    """Replay a trace without its summary, which takes a quarter of the time."""
    scenario = scenario_of(**options)
    shaped = shape_load(scenario, trace)
    return serve(shaped, resolve(scenario, shaped), recording=recording)


def outcome(result: ReplayResult) -> str:
    """Return a digest of every bit of the outcome."""
    records, digest = result.records, hashlib.sha256()
    for part in (*(getattr(records.requests, name) for name in COLUMNS), records.phases, records.engine,
                 records.gaps.values_s, records.gaps.counts, records.steps, records.schedule, records.preemptions,
                 records.links, records.fetches,
                 np.empty(0) if result.attempts is None else result.attempts.rows):
        digest.update(np.asarray(part).tobytes())
    return digest.hexdigest()


def outcomes(*, alone: bool = True) -> dict[str, str]:
    """Return the digest of each policy under each case, with and without recording.

    Parameters
    ----------
    alone : whether replicas that are replayed one by one are among them.
    """
    trace = trace_of(ROWS, hash_ids=IDS, hash_block_tokens=4, priority=[float(k % 3) for k in range(len(ROWS))],
                     cancel_after_s=[0.3 if k % 5 == 4 else None for k in range(len(ROWS))],
                     adapter=[("a", "b", None, "c")[3 * k % 4] for k in range(len(ROWS))])
    waiting = trace_of(ROWS, hash_ids=IDS, hash_block_tokens=4, session_id=[str(k % 4) for k in range(len(ROWS))],
                       think_time_s=[0.03 * (k % 3) if k > 5 else None for k in range(len(ROWS))])
    routers = [name for name, router in ROUTERS.items() if alone or not is_blind(router)]
    fleets = {
        f"{router} {interval_s} {name} {kind} {len(tiers)}": outcome(play(served, recording=recording, policy="fcfs",
                                                                          **COMMON | CASES["prefix"] | fleet | tiers))
        for router in routers
        for tiers in ({}, *([TIERS] if router in ("round-robin", "prefix-aware") else []))
        for interval_s in (0.0, 0.07)
        for name, served in (("open", trace), ("waiting", waiting))
        for kind, recording in (("whole", EVERYTHING), ("plain", Recording()))
        for fleet in [{"data_parallel_size": 3, "router": router, "router_report_interval": interval_s}]
    }
    pools = {
        f"{policy} pools {name} {kind}": outcome(play(served, recording=recording, policy=policy,
                                                      **COMMON | CASES["recompute"] | POOLS))
        for policy in ("fcfs", "vllm-v0", "sglang")
        for name, served in (("open", trace), ("waiting", waiting))
        for kind, recording in (("whole", EVERYTHING), ("plain", Recording()))
    }
    ranks = {
        f"{policy} ranks {name} {kind}": outcome(play(trace, recording=recording, policy=policy, **COMMON | options
                                                      | {"data_parallel_size": 3, "data_parallel_attention": True}))
        for policy in ("fcfs", "prefill-first", "sglang")
        for name, options in CASES.items() if name in ("recompute", "swap", "prefix", "looking", "drafts")
        for kind, recording in (("whole", EVERYTHING), ("steps", Recording(steps=True)), ("plain", Recording()))
    }
    tenants = dataclasses.replace(trace, requests=trace.requests.with_columns(tenant=trace.requests["priority"]))
    together = fleets | pools | ranks | overloads_of(tenants) | routes_of(tenants, routers)
    return together | alone_of(trace) if alone else together


def overloads_of(tenants: Trace) -> dict[str, str]:
    """Return the digest of policies that reject, time out and retry: one replica, and prefill apart."""
    overloaded = {
        f"{policy} overload {name} {kind}": outcome(play(tenants, recording=recording, policy=policy,
                                                         **COMMON | CASES[name] | OVERLOAD))
        for policy in ("fcfs", "priority", "sglang")
        for name in ("swap", "prefix", "pipeline")
        for kind, recording in (("whole", EVERYTHING), ("plain", Recording()))
    }
    return overloaded | {
        f"{policy} overload apart {kind}": outcome(play(tenants, recording=recording, policy=policy,
                                                        **COMMON | CASES["prefix"] | POOLS | OVERLOAD | apart))
        for policy in ("fcfs", "sglang")
        for kind, apart in (("prefill", {"data_parallel_size": 4, "prefill_replicas": 2}),
                            ("decode", {"router": "lora-affinity", "max_loras": 1}))
        for recording in (EVERYTHING,)
    }


def alone_of(trace: Trace) -> dict[str, str]:
    """Return the digest of policies under cases of one replica, and with windows: all pairs, or each fifth of them.

    Five divides neither number of cases, so that every policy and every case is among each fifth.
    """
    every = num_drawn(5, 1)
    windowed = ("recompute", "swap", "prefix", "mixing", "drafts", "pipeline")
    with patch("planner.deployment.parts.window_settings", return_value=WINDOWS):
        windows = {
            f"{policy} windows {name} {kind}": outcome(play(trace, recording=recording, policy=policy,
                                                            **COMMON | CASES[name] | {"num_gpu_blocks": 24}))
            for policy, name in [*product(POLICIES, windowed)][::every]
            for kind, recording in (("whole", EVERYTHING), ("plain", Recording()))
        }
    return windows | {
        f"{policy} {name} {kind}": outcome(play(trace, recording=recording, policy=policy, **COMMON | CASES[name]))
        for policy, name in [*product(POLICIES, CASES)][::every]
        for kind, recording in (("whole", EVERYTHING), ("plain", Recording()))
    }


def routes_of(trace: Trace, routers: Sequence[str]) -> dict[str, str]:
    """Return the digest of routers where pools accept some of the requests."""
    with TemporaryDirectory() as folder:
        fleet = Path(folder) / "fleet.toml"
        fleet.write_text(FLEET)
        return {
            f"{router} routes {name}": outcome(play(trace, policy="fcfs", **COMMON | CASES["adapters"] | options
                                                    | {"fleet": str(fleet), "router": router}))
            for router in routers
            for name, options in (("plain", {"data_parallel_size": 1}),
                                  ("overload", OVERLOAD | {"data_parallel_size": 1}))
        }


def field(record: Any, name: str) -> Any:
    """Return a field of a record, as NumPy does after it has failed to find an attribute of that name."""
    try:
        return np.void.__getitem__(record, name)
    except ValueError:
        return np.void.__getattribute__(record, name)


def set_field(record: Any, name: str, value: Any) -> None:
    np.void.__setitem__(record, name, value)


if __name__ == "__main__":
    np.record.__getattribute__ = field  # type: ignore[method-assign]  # NumPy's own takes most of the time
    np.record.__setattr__ = set_field  # type: ignore[method-assign]
    json.dump(outcomes(alone="together" not in sys.argv), sys.stdout)
