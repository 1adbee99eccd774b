"""Options of the fleet: replicas, routers, and prefill apart from decode."""

from dataclasses import dataclass
from typing import Literal

from planner.errors import UsageError
from planner.settings.panel import in_panel

option = in_panel("Fleet")
SLOWDOWN = 0.5, 4.0  # the physical range of prefill_worker_ratio
TOKEN_TIME_US = 0.0, 100.0  # and of prefill_worker_token_time


@dataclass(frozen=True, kw_only=True)
class FleetOptions:
    """Replicas, routers, and prefill apart from decode."""

    data_parallel_size: int = option(1, "Number of engine replicas behind a router.")
    data_parallel_attention: bool = option(
        False, "Data-parallel attention: --data-parallel-size counts the ranks of one engine. They share the "
        "experts of an MoE model and step together (SGLang: --enable-dp-attention; TensorRT-LLM: enable_attention_dp).")
    fleet: str | None = option(None, "TOML file with a [[pool]] table for each kind of replica: fleet.toml.")
    router: str | None = option(
        None, "Router: a name, or my_router.py:name. [random, like a Kubernetes Service; round-robin for ranks and "
              "with --fleet]")
    autoscale: str | None = option(
        None, "Autoscaler: a TOML file with bounds, start-up times and metrics. It replaces "
        "--data-parallel-size. With --fleet, it applies to pools with neither `replicas` nor `autoscale`.")
    router_report_interval: float = option(
        0.0, "Interval of the replicas' load reports to the router [s]. 0: the router always knows the current load.")
    prefill_replicas: int = option(
        0, "Number of replicas, out of --data-parallel-size, that only prefill. The other replicas only decode. 0: "
           "every replica does both.")
    prefill_worker_ratio: float | None = option(
        None, "Time of the GPU for a step on a replica that only prefills / time of its kernels. [the engine's, from "
              "published runs]")
    prefill_worker_token_time: float | None = option(
        None, "Additional time of a step on a replica that only prefills, per prompt token [us]. [the engine's, from "
              "published runs]")
    kv_transfer_bandwidth: float = option(
        50.0, "Bandwidth of a replica's link for KV transfers from prefill to decode, per direction [GB/s].")
    kv_transfer_latency: float = option(0.0, "Latency of each KV transfer from prefill to decode [s].")
    kv_transfer: Literal["whole", "layerwise"] = option(
        "whole", "KV transfer from prefill to decode: after the prompt (whole), or layer by layer during it "
        "(layerwise).")
    local_prefill_below: int = option(
        0, "Prompts with fewer tokens are prefilled on the replica that decodes them. 0: none.")


def check_fleet(options: FleetOptions) -> None:
    """Raise UsageError if a value cannot be, or contradicts another."""
    if options.data_parallel_size < 1:
        raise UsageError(f"data_parallel_size = {options.data_parallel_size}: must be at least 1")
    if not 0 <= options.prefill_replicas < max(options.data_parallel_size, 1):
        raise UsageError(f"prefill_replicas = {options.prefill_replicas} of data_parallel_size = "
                         f"{options.data_parallel_size}: must leave one at least that decodes, and not be negative")
    if options.autoscale is not None and (options.data_parallel_size > 1 or options.prefill_replicas):
        raise UsageError(f"autoscale = {options.autoscale!r} with data_parallel_size = {options.data_parallel_size}, "
                         f"prefill_replicas = {options.prefill_replicas}: its file has the number of replicas "
                         f"(minimum, maximum, initial); leave these out, and give pools in a fleet's file where "
                         f"some prefill and others decode, each with its own autoscale")
    if options.fleet is not None and (options.data_parallel_size > 1 or options.prefill_replicas > 0):
        raise UsageError(f"data_parallel_size = {options.data_parallel_size}, prefill_replicas = "
                         f"{options.prefill_replicas} beside fleet = {options.fleet}: its pools have replicas and "
                         f"roles; leave them out")
    for name, (low, high) in (("prefill_worker_ratio", SLOWDOWN), ("prefill_worker_token_time", TOKEN_TIME_US)):
        value = getattr(options, name)
        if value is not None and not low <= value <= high:
            raise UsageError(f"{name} = {value}: must be a number from {low} to {high}")
    if not options.kv_transfer_bandwidth > 0:
        raise UsageError(f"kv_transfer_bandwidth = {options.kv_transfer_bandwidth}: must be above 0 [GB/s]")
    if not options.kv_transfer_latency >= 0 or options.local_prefill_below < 0:
        raise UsageError(f"kv_transfer_latency = {options.kv_transfer_latency} [s], local_prefill_below = "
                         f"{options.local_prefill_below}: must not be negative")
    if not options.router_report_interval >= 0:
        raise UsageError(f"router_report_interval = {options.router_report_interval}: must not be negative [s]")
