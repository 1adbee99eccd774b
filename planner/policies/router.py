"""A router as a frozen value: the score of a replica's load, and the replicas that it compares."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from planner.policies.functions import check_choice, check_function


class ReplicaLoad(NamedTuple):
    """The values that a router reads of one replica when it places a request: scalars.

    Parameters
    ----------
    outstanding_requests : requests sent to the replica that have not finished [1].
    outstanding_tokens : prompt tokens of the outstanding requests [tokens].
    num_running : running requests, as reported by the engine [1].
    num_waiting : waiting requests, as reported by the engine [1].
    kv_cache_usage : share of KV blocks in use, as reported by the engine [1].
    num_unreported : requests sent to the replica that the engine's last report does not count [1].
    cached_tokens : tokens of this request's prompt in the replica's prefix cache [tokens].
    input_tokens : prompt length of this request [tokens].
    block_size : KV block size [tokens].
    has_adapter : 1 if this request's LoRA adapter is on the replica's GPU, or the request has no adapter; else 0.
    adapter_requests : outstanding requests of the replica with this request's adapter [1].
    free_adapters : adapter slots on the replica's GPU that no request uses [1].
    """

    outstanding_requests: int
    outstanding_tokens: int
    num_running: int
    num_waiting: int
    kv_cache_usage: float
    num_unreported: int
    cached_tokens: int
    input_tokens: int
    block_size: int
    has_adapter: int
    adapter_requests: int
    free_adapters: int


# Fields of `ReplicaLoad` that are looked up when a request is placed, if the score reads one of them.
OF_ENGINES = frozenset({"num_running", "num_waiting", "kv_cache_usage", "num_unreported"})
OF_CACHES = frozenset({"cached_tokens"})
OF_ADAPTERS = frozenset({"has_adapter", "adapter_requests", "free_adapters"})
OF_REQUESTS = frozenset({"input_tokens"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Router:
    """A router: it sends each request to the replica with the least score / weight of its pool.

    Parameters
    ----------
    name : name in reports.
    score : pure function from `ReplicaLoad` to a number. It is compiled: only numbers, comparisons and arithmetic. Of
        equal replicas, the router takes the replica that was sent a request the longest ago.
    num_choices : number of replicas that are drawn at random and compared; 0 compares all.
    takes_turns : whether replicas take turns, for any scores.
    is_sticky : whether a session stays with the replica of its first request.

    Raises
    ------
    PolicyError : a field has an invalid value.
    """

    name: str
    score: Callable[[ReplicaLoad], float]
    num_choices: int = 0
    takes_turns: bool = False
    is_sticky: bool = False

    def __post_init__(self) -> None:
        owner = f"router {self.name!r}"
        check_function(owner, "score", self.score, ("load",))
        check_choice(owner, "num_choices", self.num_choices, (0, 1, 2))
        for field in ("takes_turns", "is_sticky"):
            check_choice(owner, field, getattr(self, field), (False, True))
