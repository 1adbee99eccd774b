"""The routers by name: each score is one line."""

from planner.policies.router import ReplicaLoad, Router

LORA_WEIGHT = 10.0  # requests that count as much as an adapter without room


def requests(load: ReplicaLoad) -> float:
    """Return the outstanding requests of the replica, like nginx's least_conn and Envoy's LEAST_REQUEST."""
    return float(load.outstanding_requests)


def tokens(load: ReplicaLoad) -> float:
    """Return the prompt tokens of the replica's outstanding requests."""
    return float(load.outstanding_tokens)


def kv_cache(load: ReplicaLoad) -> float:
    """Return the share of the replica's KV cache in use."""
    return load.kv_cache_usage


def prefill_and_load(load: ReplicaLoad) -> float:
    """Return the prompt tokens to compute: outstanding prompts and this request's prompt, without its cached tokens.

    NVIDIA Dynamo's KV router adds the blocks to prefill and the blocks of active requests (`overlap_score_weight` 1).
    Here the unit is tokens, so that replicas with different block sizes compare. llm-d's weighted scorers trade prefix
    against load in the same way.
    """
    return float(load.input_tokens - load.cached_tokens + load.outstanding_tokens)


def vllm_score(load: ReplicaLoad) -> float:
    """Return the score of vLLM's data-parallel load balancer: 4 × waiting requests + running requests.

    Requests just sent count as waiting. vLLM's engines report every 100 ms. Source: vllm/v1/engine/core_client.py,
    `DPLBAsyncMPClient.get_core_engine_for_request`.
    """
    return 4.0 * (load.num_waiting + load.num_unreported) + load.num_running


def adapter_and_load(load: ReplicaLoad) -> float:
    """Return the outstanding requests, plus up to 10 if the request's LoRA adapter is not loaded on the replica.

    The affinity is that of the lora-affinity scorer of the Gateway API inference extension and of llm-d: 1 if the
    adapter is loaded, 0.8 if there is room for it, 0.6 if other requests wait for it, else 0.
    """
    affinity = 0.6 if load.adapter_requests > 0 else 0.0
    if load.free_adapters > 0:
        affinity = 0.8
    if load.has_adapter:
        affinity = 1.0
    return load.outstanding_requests + LORA_WEIGHT * (1.0 - affinity)


ROUTERS = {
    router.name: router
    for router in (
        Router(name="round-robin", score=requests, takes_turns=True),
        Router(name="random", score=requests, num_choices=1),
        Router(name="least-outstanding-requests", score=requests),
        Router(name="least-outstanding-tokens", score=tokens),
        Router(name="power-of-two", score=requests, num_choices=2),
        Router(name="least-kv", score=kv_cache),
        Router(name="session-affinity", score=requests, is_sticky=True),
        Router(name="prefix-aware", score=prefill_and_load),
        Router(name="lora-affinity", score=adapter_and_load),
        Router(name="vllm-dp", score=vllm_score),
    )
}
