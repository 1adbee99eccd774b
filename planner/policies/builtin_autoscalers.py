"""The autoscalers by name: each metric is one line."""

from planner.policies.autoscaler import Autoscaler, FleetLoad


def waiting(load: FleetLoad) -> float:
    """Return the waiting requests per replica: vllm:num_requests_waiting, divided as in KEDA's trigger."""
    return load.num_waiting / load.num_replicas


def running(load: FleetLoad) -> float:
    """Return the running requests per replica: vllm:num_requests_running, the batch size."""
    return load.num_running / load.num_replicas


def outstanding(load: FleetLoad) -> float:
    """Return the requests in flight per replica: Knative's `concurrency`."""
    return (load.num_running + load.num_waiting) / load.num_replicas


def kv_cache(load: FleetLoad) -> float:
    """Return the share of the KV cache in use: vllm:kv_cache_usage_perc. Starting replicas count as 0."""
    return load.kv_cache_usage * load.num_ready / load.num_replicas


def rate(load: FleetLoad) -> float:
    """Return the request rate per replica: Knative's `rps`."""
    return load.request_rate / load.num_replicas


def forecast(load: FleetLoad) -> float:
    """Return the request rate per replica that is expected when a replica that starts now serves."""
    return load.forecast_rate / load.num_replicas


def percentile(load: FleetLoad) -> float:
    """Return percentile / limit of the worst objective. Starting replicas count as 0."""
    return load.slo_use * load.num_ready / load.num_replicas


def attainment(load: FleetLoad) -> float:
    """Return the share of requests that meet their objectives."""
    return load.attainment


def towards_attainment(load: FleetLoad, target: float) -> float:
    """Return more replicas if attainment is below its target, up to twice as many; one less if that is enough.

    One less is enough if the percentile stays within its limit when it grows like the load of each remaining replica:
    slo_use · n / (n − 1) ≤ 1.
    """
    if load.attainment < target:
        return load.num_ready * (2.0 - load.attainment / target)
    has_slack = load.slo_use * load.num_ready <= load.num_ready - 1.0
    return load.num_replicas - 1.0 if has_slack else float(load.num_replicas)


def scheduled(load: FleetLoad) -> float:
    """Return the replicas of the schedule, like KEDA's cron trigger."""
    return load.scheduled


def as_scheduled(load: FleetLoad, _: float) -> float:
    """Return the replicas of the schedule."""
    return load.scheduled


AUTOSCALERS = {
    autoscaler.name: autoscaler
    for autoscaler in (
        Autoscaler(name="queue", metric=waiting),
        Autoscaler(name="running", metric=running),
        Autoscaler(name="concurrency", metric=outstanding),
        Autoscaler(name="kv-cache", metric=kv_cache),
        Autoscaler(name="request-rate", metric=rate, uses=("window_s",)),
        Autoscaler(name="forecast", metric=forecast, needs=("target", "history"),
                   uses=("window_s", "season_s", "starts_at", "lead_s")),
        Autoscaler(name="slo-percentile", metric=percentile, needs=("target", "slo", "percentile"), uses=("window_s",)),
        Autoscaler(name="slo-attainment", metric=attainment, desired=towards_attainment, needs=("target", "slo"),
                   uses=("window_s",)),
        Autoscaler(name="schedule", metric=scheduled, desired=as_scheduled, needs=("schedule",),
                   uses=("starts_at", "lead_s")),
    )
}
