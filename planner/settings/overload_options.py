"""Options of overload: time-outs, retries, failures and the router's queue."""

from dataclasses import dataclass
from typing import Literal

from planner.settings.panel import in_panel

option = in_panel("Overload")


@dataclass(frozen=True, kw_only=True)
class OverloadOptions:
    """Time-outs, retries, failures and the router's queue."""

    ttft_timeout: float | None = option(
        None, "Client's time-out for the first token [s]. After it the client ends the attempt. [no limit]",
        label="client's time-out for the first token", unit="s", above=0)
    request_timeout: float | None = option(
        None, "Client's time-out for the complete answer [s]. After it the client ends the attempt. [no limit]",
        label="client's time-out for the answer", unit="s", above=0)
    max_retries: int = option(
        0, "Maximum number of retries after a rejection or time-out. A request that is lost in a replica's failure is "
           "sent again at least once.", label="retries, at most", unit="retries", least=0)
    retry_initial_backoff: float = option(0.5, "Pause before the first retry [s].",
        label="pause before the first retry", unit="s", least=0, needs={"max_retries": "there are no retries"})
    retry_backoff_multiplier: float = option(2.0, "Factor from one pause between retries to the next.",
        label="growth of the pause between retries", unit="×", least=1, needs={"max_retries": "there are no retries"})
    retry_max_backoff: float = option(8.0, "Longest pause before a retry [s].",
        label="pause before a retry, at most", unit="s", least=0, needs={"max_retries": "there are no retries"})
    retry_jitter_factor: float = option(
        0.0, "Random variation of each pause, as a share of the pause: 0.2 means up to ±20 %. --seed determines the "
             "draws.", label="jitter of the pause before a retry", unit="share", least=0, most=1,
        needs={"max_retries": "there are no retries"})
    fail_replica: str | None = option(
        None, "Failures of replicas: REPLICA@AT[+DURATION][/HEALTH_CHECK][~NOTICE] in seconds, as in "
        "'2@600+120,0@900/5', or a CSV file with the columns replica, at_s, duration_s, health_check_s, notice_s. "
        "HEALTH_CHECK is the time until the router finds out: until then the replica is sent requests and answers "
        "none. NOTICE is the time before the failure in which the router sends it nothing.",
        label="failures of replicas", unit="replica@s")
    router_max_concurrent_requests: int = option(
        0, "Maximum number of requests at all replicas together. Further requests wait in the router's queue. 0: no "
           "limit.", label="requests at all replicas, at most", unit="requests", least=0)
    router_queue: Literal["fcfs", "fair"] = option(
        "fcfs", "Order of the router's queue: by arrival (fcfs), or the least served tenant first (fair).",
        label="order of the router's queue", needs={"router_max_concurrent_requests": "the router has no queue"})
    router_queue_size: int | None = option(
        None, "Maximum number of requests in the router's queue. Further requests are rejected. [no limit]",
        label="router's queue, at most", unit="requests", least=0,
        needs={"router_max_concurrent_requests": "the router has no queue"})
    router_queue_timeout: float | None = option(
        None, "Maximum waiting time in the router's queue [s]. After it the request is rejected. [no limit]",
        label="wait in the router's queue, at most", unit="s", above=0,
        needs={"router_max_concurrent_requests": "the router has no queue"})
    tenants: str | None = option(None, "TOML file with each tenant's quota, fair-share weight, and slo.",
        label="tenants file")
