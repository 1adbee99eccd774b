"""Options of overload: time-outs, retries, failures and the router's queue."""

from dataclasses import dataclass
from typing import Literal

from planner.settings.panel import in_panel

option = in_panel("Overload")


@dataclass(frozen=True, kw_only=True)
class OverloadOptions:
    """Time-outs, retries, failures and the router's queue."""

    ttft_timeout: float | None = option(
        None, "Client's time-out for the first token [s]. After it the client ends the attempt. [no limit]")
    request_timeout: float | None = option(
        None, "Client's time-out for the complete answer [s]. After it the client ends the attempt. [no limit]")
    max_retries: int = option(
        0, "Maximum number of retries after a rejection or time-out. A request that is lost in a replica's failure is "
           "sent again at least once.")
    retry_initial_backoff: float = option(0.5, "Pause before the first retry [s].")
    retry_backoff_multiplier: float = option(2.0, "Factor from one pause between retries to the next.")
    retry_max_backoff: float = option(8.0, "Longest pause before a retry [s].")
    retry_jitter_factor: float = option(
        0.0, "Random variation of each pause, as a share of the pause: 0.2 means up to ±20 %. --seed determines the "
             "draws.")
    fail_replica: str | None = option(
        None, "Failures of replicas: REPLICA@AT[+DURATION] in seconds, as in '2@600+120,0@900', or a CSV "
        "file with the columns replica, at_s, duration_s.")
    router_max_concurrent_requests: int = option(
        0, "Maximum number of requests at all replicas together. Further requests wait in the router's queue. 0: no "
           "limit.")
    router_queue: Literal["fcfs", "fair"] = option(
        "fcfs", "Order of the router's queue: by arrival (fcfs), or the least served tenant first (fair).")
    router_queue_size: int | None = option(
        None, "Maximum number of requests in the router's queue. Further requests are rejected. [no limit]")
    router_queue_timeout: float | None = option(
        None, "Maximum waiting time in the router's queue [s]. After it the request is rejected. [no limit]")
    tenants: str | None = option(None, "TOML file with each tenant's quota, fair-share weight, and slo.")
