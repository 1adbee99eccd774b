"""Fleets: how fast many replicas are replayed, and what routers and KV tiers come to where prompts share prefixes.

Needs the recorded traces in $PLANNER_SHARED or ../shared; writes reports/fleets.md. Speeds are the best of several
runs of the loop alone; machines differ and are shared, so the curve is what counts.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.replay_speed import MOONCAKE, ROOT, SHARED
from planner.policies.builtin_routers import ROUTERS
from planner.run import replay
from planner.settings.scenario import Scenario
from planner.traces import Trace, read_trace
from planner.traces.table import account_of

TOOLAGENT = SHARED / "traces" / "mooncake_arxiv_toolagent_slice_1000.jsonl"
ONE = Scenario(model="llama-3.1-8b", gpu="h100-sxm", router="least-outstanding-requests")
EIGHT = Scenario(model="llama-3.1-70b", gpu="h100-sxm", tensor_parallel_size=4, data_parallel_size=8)
TIERS: tuple[dict[str, Any], ...] = (
    {}, *({"kv_offloading_size": size} for size in (128.0, 256.0, 512.0, 1024.0)),
    *({"kv_offloading_size": size, "kv_write_policy": "write_back"} for size in (128.0, 256.0, 512.0, 1024.0)),
    {"kv_offloading_size": 256.0, "router": "prefix-aware"},
    *({"kv_remote_size": size} for size in (2048.0, 8192.0)),
    {"kv_offloading_size": 256.0, "kv_remote_size": 8192.0},
    {"kv_remote_size": 8192.0, "kv_remote_bandwidth": 12.5, "kv_remote_latency": 0.005},
)  # what the eight replicas have besides
PER_REPLICA = 18.0  # requests a second that each replica gets


def poisson(num_requests: int, rate_per_s: float) -> Trace:
    """Return a chat-like load: Poisson arrivals, log-normal lengths of 490 and 134 tokens in the median."""
    rng = np.random.default_rng(0)
    table = pl.DataFrame({
        "arrival_s": np.cumsum(rng.exponential(1 / rate_per_s, num_requests)),
        "input_tokens": rng.lognormal(6.2, 0.8, num_requests).clip(8, 8000).astype(int),
        "output_tokens": rng.lognormal(4.9, 0.7, num_requests).clip(1, 2000).astype(int),
        "request_id": np.arange(num_requests),
    })
    account = account_of(table, source="poisson", format="csv", rows_read=num_requests, dropped={}, ignored_columns=())
    return Trace(requests=table, prefix=None, source="poisson", format="csv", sha256="", account=account)


def speed(num_requests: int, num_replicas: int, router: str, repeats: int = 3) -> float:
    """Return the best requests a second of loop time."""
    trace = poisson(num_requests, PER_REPLICA * num_replicas)
    scenario = Scenario(model=ONE.model, gpu=ONE.gpu, data_parallel_size=num_replicas, router=router)
    return max(float(replay(trace, scenario).summary["simulated_requests_per_s"]) for _ in range(repeats))


def curve() -> list[str]:
    """Return the table of speeds over replicas and over requests."""
    routers = ("least-outstanding-requests", "power-of-two", "least-kv")
    speed(1000, 2, routers[0], 1)  # compiles
    rows = [f"| {count} | " + " | ".join(f"{speed(200_000, count, router):,.0f}" for router in routers) + " |"
            for count in (2, 4, 8, 16, 32, 64, 128, 256)]
    grown = [f"{speed(count, 64, routers[0]):,.0f} ({count:,})" for count in (125_000, 250_000, 500_000, 1_000_000)]
    return [f"| replicas | {' | '.join(routers)} |", "|---|---|---|---|", *rows, "",
            "Requests a second of loop time, 200,000 requests at 18 a second for each replica of Llama-3.1-8B on an "
            "H100. `least-kv` reads all engines at each request, so its cost grows with their number.", "",
            f"64 replicas, more and more requests: {', '.join(grown)} (target 1,200,000 a second)."]


def routing(path: Path) -> list[str]:
    """Return the table of what each router comes to on a trace."""
    trace = read_trace(str(path))
    lines = [f"| router, {path.name} | prefix hit rate | mean TTFT [ms] | p99 TTFT [ms] | imbalance |",
             "|---|---|---|---|---|"]
    for router in ROUTERS:
        found = replay(trace, replace(EIGHT, router=router)).summary
        lines.append(f"| {router} | {found['prefix_cache_hit_rate']:.3f} | {found['mean_ttft_ms']:,.0f} | "
                     f"{found['p99_ttft_ms']:,.0f} | {found['replica_imbalance']:.2f} |")
    return lines


def tiers(path: Path) -> list[str]:
    """Return the table of what KV tiers come to on a trace."""
    trace = read_trace(str(path))
    lines = [f"| options, {path.name} | hits on the GPU | host | remote | all | mean TTFT [ms] | p99 | "
             "mean load [ms] | read [TB] | written [TB] |", "|---|---|---|---|---|---|---|---|---|---|"]
    for options in TIERS:
        found = replay(trace, replace(EIGHT, **options)).summary
        named = " ".join(f"--{name.replace('_', '-')} {value if isinstance(value, str) else f'{value:g}'}"
                         for name, value in options.items())
        rates = [found["prefix_cache_hit_rate"] if not options else found["gpu_hit_rate"], found["cpu_hit_rate"],
                 found["remote_hit_rate"], found["prefix_cache_hit_rate"]]
        moved = [(found[f"cpu_{way}_bytes"] or 0) + (found[f"remote_{way}_bytes"] or 0) for way in ("read", "written")]
        lines.append(f"| {named or 'no tier'} | " + " | ".join("–" if rate is None else f"{rate:.3f}" for rate in rates)
                     + f" | {found['mean_ttft_ms']:,.0f} | {found['p99_ttft_ms']:,.0f} | "
                     f"{found['mean_load_ms'] or 0:.1f} | " + " | ".join(f"{each / 1e12:.1f}" for each in moved) + " |")
    return lines


def main() -> None:
    """Run all, print the tables and write them."""
    lines = ["# Fleets", "", *curve(), "", "## Routers and prefixes", "",
             "Eight replicas of Llama-3.1-70B, each on four H100; the router always knows their load. Imbalance: the "
             "tokens of the replica that has most, over the mean.", "", *routing(MOONCAKE), "", *routing(TOOLAGENT), "",
             "## KV tiers", "",
             "The same replicas, requests in turn; 149 GiB of KV on the GPUs of each. Sizes are in GiB, of a replica's "
             "host memory and of the remote store that all share; without other words links are the host's 64 GB/s a "
             "GPU and 50 GB/s a replica, and blocks are written through.", "", *tiers(MOONCAKE), ""]
    print("\n".join(lines))
    (ROOT / "reports" / "fleets.md").write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
