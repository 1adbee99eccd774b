"""Rejected requests: how many for which reason, and a note with the option that would let them in."""

from collections.abc import Mapping

import numpy as np

from planner.deployment.deploy import Deployment
from planner.replays.reasons import REJECTED
from planner.replays.result_tables import ReplayResult

SINGULAR = {"have": "has", "need": "needs"}  # verbs of `WHY`
WHY = {  # by reason: the fault of the requests, and the option that lets them in
    "too_long": "have prompts of {more}max_model_len = {max_model_len} tokens{or_more}; --max-model-len raises the "
                "limit as far as the model and the KV cache allow",
    "token_budget": "have prompts above max_num_batched_tokens = {max_num_batched_tokens}, and prompts are not split "
                    "into chunks; --max-num-batched-tokens raises the limit",
    "kv_cache": "need more than the {num_gpu_blocks} KV blocks of a replica; --gpu-memory-utilization, more GPUs or "
                "a smaller KV format add blocks",
    "queue_full": "found a full queue; --max-queued-requests (vLLM: --max-num-queued-reqs, --max-num-queued-tokens) or "
                  "more replicas make room",
    "quota": "exceeded their tenant's quota of --tenants",
    "no_replica": "arrived while no replica was available",
}


def rejected_by_reason(result: ReplayResult) -> dict[str, int]:
    """Return how many requests were rejected for which reason; reasons that do not occur are left out."""
    rejected = np.isin(np.asarray(result.records.requests.state), REJECTED)
    if not rejected.any():
        return {}
    counts = dict(result.reasons.filter(rejected).value_counts().iter_rows())
    return {name: counts[name] for name in WHY if name in counts}


def rejection_notes(deployment: Deployment, counts: Mapping[str, int]) -> list[str]:
    """Return a note for each reason, with the limits of all pools."""
    pools = [pool.deployment.settings for pool in deployment.pools] or [deployment.settings]
    limits = {name: " or ".join(dict.fromkeys(f"{getattr(settings, name):,}" for settings in pools))
              for name in ("max_model_len", "max_num_batched_tokens", "num_gpu_blocks")}
    words = {"more": "more than " if deployment.pooling else "", "or_more": "" if deployment.pooling else " or more"}
    return [_note(count, WHY[name].format(**limits, **words)) for name, count in counts.items()]


def _note(count: int, why: str) -> str:
    if count != 1:
        return f"{count:,} requests are rejected: they {why}"
    verb, _, rest = why.partition(" ")
    return f"1 request is rejected: it {SINGULAR.get(verb, verb)} {rest}"
