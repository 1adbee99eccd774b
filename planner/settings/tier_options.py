"""Options of KV tiers: memory for KV blocks below the GPU's."""

from dataclasses import dataclass
from typing import Literal

from planner.errors import UsageError
from planner.settings.panel import in_panel

option = in_panel("Cache tiers")


@dataclass(frozen=True, kw_only=True)
class TierOptions:
    """KV memory below the GPU."""

    kv_offloading_size: float | None = option(
        None, "Host memory for KV blocks, for all GPUs of an engine [GiB]. [none]",
        label="host memory for KV blocks", unit="GiB", above=0)
    kv_offloading_ratio: float | None = option(
        None, "Host memory for KV blocks, as a multiple of the GPU's KV cache (SGLang: --hicache-ratio). It replaces "
        "--kv-offloading-size. [none]", label="host memory for KV blocks, relative", unit="× the GPU's",
        above=0, is_finite=True, excludes={"kv_offloading_size": "both are the size of the tier"})
    kv_offloading_bandwidth: float | None = option(
        None, "Bandwidth between a GPU and host memory, per direction [GB/s]. [the GPU's host link]",
        label="host link bandwidth", unit="GB/s", above=0)
    kv_remote_size: float | None = option(None, "Remote KV store below host memory [GiB]. [none]",
        label="remote KV store", unit="GiB", above=0)
    kv_remote_scope: Literal["fleet", "replica"] = option(
        "fleet", "Whether all replicas share the store (fleet), or each has its own of this size, as on a disk of its "
        "node (replica).", label="remote KV store, shared by")
    kv_remote_bandwidth: float = option(
        50.0, "Bandwidth between a replica and the remote store, per direction [GB/s].",
        label="remote KV store, bandwidth", unit="GB/s", above=0)
    kv_remote_latency: float = option(0.0, "Latency of each transfer from or to the remote store [s].",
        label="remote KV store, latency", unit="s", least=0, is_finite=True)
    kv_write_policy: Literal["write_through", "write_through_selective", "write_back"] = option(
        "write_through", "When KV blocks are copied to the next tier: when they are computed "
        "(write_through), when they are used again (write_through_selective), or when the GPU evicts them "
        "(write_back). SGLang: --hicache-write-policy.", label="copies of KV blocks to the next tier")


def check_tier_options(options: TierOptions) -> None:
    """Raise UsageError if a value cannot be, or contradicts another."""
    if options.kv_write_policy == "write_back" and not has_host_tier(options):
        raise UsageError("kv_write_policy = write_back: blocks go to host memory when the GPU evicts them; give "
                         "kv_offloading_size")


def has_host_tier(options: TierOptions) -> bool:
    """Tell whether there is a tier in host memory."""
    return options.kv_offloading_size is not None or options.kv_offloading_ratio is not None


def shares_store(options: TierOptions) -> bool:
    """Tell whether replicas find each other's KV in a remote store."""
    return options.kv_remote_size is not None and options.kv_remote_scope == "fleet"


def has_tiers(options: TierOptions) -> bool:
    """Tell whether there is a tier below the GPU's memory."""
    return has_host_tier(options) or options.kv_remote_size is not None
