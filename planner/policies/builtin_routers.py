"""The routers by name: each a score of a line."""

from planner.policies.router import ReplicaLoad, Router

LORA_WEIGHT = 10.0  # requests that an adapter without room is worth


def requests(load: ReplicaLoad) -> float:
    """Return the requests that it has: nginx's least_conn, Envoy's LEAST_REQUEST."""
    return float(load.outstanding_requests)


def tokens(load: ReplicaLoad) -> float:
    """Return the prompt tokens of the requests that it has."""
    return float(load.outstanding_tokens)


def kv_cache(load: ReplicaLoad) -> float:
    """Return the share of its KV cache that is in use."""
    return load.kv_cache_usage


def prefill_and_load(load: ReplicaLoad) -> float:
    """Return the tokens of prompts that it would have to compute, its own and this one's, cached ones left out.

    NVIDIA Dynamo's KV router adds the blocks to prefill and those of active requests (`overlap_score_weight` 1); in
    tokens replicas with other blocks compare. The weighted scorers of llm-d trade prefix against load in the same way.
    """
    return float(load.input_tokens - load.cached_tokens + load.outstanding_tokens)


def vllm_score(load: ReplicaLoad) -> float:
    """Return vLLM's own score of its data-parallel engines, of which the router hears every 100 ms.

    Four for a waiting request, one for a running one; those just sent count as waiting (vllm/v1/engine/core_client.py,
    `DPLBAsyncMPClient.get_core_engine_for_request`).
    """
    return 4.0 * (load.num_waiting + load.num_unreported) + load.num_running


def adapter_and_load(load: ReplicaLoad) -> float:
    """Return the requests that it has, and up to ten more the less the adapter of this one is at home there.

    The parts of ten are those of the Gateway API inference extension's lora-affinity scorer, which llm-d has as well:
    the score is 1 where the adapter is loaded, 0.8 where there is room for it, 0.6 where others wait for it, else 0.
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
