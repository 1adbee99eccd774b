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

    data_parallel_size: int = option(1, "Number of engine replicas behind a router.", label="replicas", unit="replicas",
        least=1)
    data_parallel_attention: bool = option(
        False, "Data-parallel attention: --data-parallel-size counts the ranks of one engine. They share the "
        "experts of an MoE model and step together (SGLang: --enable-dp-attention; TensorRT-LLM: enable_attention_dp).",
        label="data-parallel attention", excludes={
            "fleet": "each pool has its own ranks; its table has both options",
            "pipeline_parallel_size": "tensor_parallel_size and data_parallel_size spread the model",
            "prefill_replicas": "a fleet's file has a pool that prefills and one that decodes, each with its ranks",
            "autoscale": "replicas that come and go have no ranks",
            "fail_replica": "a rank that fails takes all with it, which is not modelled"})
    fleet: str | None = option(None, "TOML file with a [[pool]] table for each kind of replica: fleet.toml. Or its "
        "text: 'pool = [{replicas = 2}]'.",
        label="fleet file", excludes={
            "data_parallel_size": "its pools have replicas", "prefill_replicas": "its pools have roles"})
    router: str | None = option(
        None, "Router: a name, or my_router.py:name. [random, like a Kubernetes Service; round-robin for ranks and "
              "with --fleet]", label="router")
    autoscale: str | None = option(
        None, "Autoscaler: a TOML file with bounds, start-up times and metrics, or a HorizontalPodAutoscaler or "
        "ScaledObject of Kubernetes in YAML. It replaces --data-parallel-size. With --fleet, it applies to pools with "
        "neither `replicas` nor `autoscale`.",
        label="autoscaler file", excludes={
            "data_parallel_size": "its file has the number of replicas",
            "prefill_replicas": "a fleet's file has pools that prefill and that decode, each with its autoscaler"})
    router_report_interval: float = option(
        0.0, "Interval of the replicas' load reports to the router [s]. 0: the router always knows the current load.",
        label="interval of load reports to the router", unit="s", least=0)
    prefill_replicas: int = option(
        0, "Number of replicas, out of --data-parallel-size, that only prefill. The other replicas only decode. 0: "
           "every replica does both.", label="replicas that only prefill", unit="replicas", least=0)
    prefill_worker_ratio: float | None = option(
        None, "Time of the GPU for a step on a replica that only prefills / time of its kernels. [the engine's, from "
              "published runs]", label="time of a step on a prefill replica, relative", unit="× its kernels'",
        least=SLOWDOWN[0], most=SLOWDOWN[1])
    prefill_worker_token_time: float | None = option(
        None, "Additional time of a step on a replica that only prefills, per prompt token [us]. [the engine's, from "
              "published runs]", label="additional time of a step on a prefill replica", unit="µs per prompt token",
        least=TOKEN_TIME_US[0], most=TOKEN_TIME_US[1])
    kv_transfer_bandwidth: float = option(
        50.0, "Bandwidth of a replica's link for KV transfers from prefill to decode, per direction [GB/s].",
        label="KV transfer bandwidth", unit="GB/s", above=0)
    kv_transfer_latency: float = option(0.0, "Latency of each KV transfer from prefill to decode [s].",
        label="KV transfer latency", unit="s", least=0)
    kv_transfer: Literal["whole", "layerwise"] = option(
        "whole", "KV transfer from prefill to decode: after the prompt (whole), or layer by layer during it "
        "(layerwise).", label="KV transfer")
    local_prefill_below: int = option(
        0, "Prompts with fewer tokens are prefilled on the replica that decodes them. 0: none.",
        label="local prefill of prompts below", unit="tokens", least=0)


def check_fleet(options: FleetOptions) -> None:
    """Raise UsageError if no replica is left to decode."""
    if options.prefill_replicas >= max(options.data_parallel_size, 1):
        raise UsageError(f"prefill_replicas = {options.prefill_replicas} of data_parallel_size = "
                         f"{options.data_parallel_size}: must leave one at least that decodes")
