"""The KV cache of a draft's own layers, which the target's blocks hold."""

from planner.catalog.kv_cache import kv_bytes_per_token_per_gpu
from planner.model.drafting import Draft


def draft_layers(draft: Draft | None) -> int:
    """Return the layers of a draft that keep KV in the target's blocks [1]."""
    return 0 if draft is None or draft.arch is None or not draft.num_lookahead_tokens else draft.arch.num_layers


def draft_kv_bytes_per_token(draft: Draft | None, kv_bytes_per_element: float, tensor_parallel_size: int) -> float:
    """KV of one token in the draft's own layers, which blocks hold beside the target's, on one GPU [bytes]."""
    if draft is None or draft.arch is None or not draft_layers(draft):
        return 0.0
    return kv_bytes_per_token_per_gpu(draft.arch, kv_bytes_per_element, tensor_parallel_size, 1)
