"""A router as a frozen value: the score of a replica's load, and the replicas that it chooses among."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from planner.policies.functions import check_choice, check_function


class ReplicaLoad(NamedTuple):
    """What a router may look at of one replica when it places a request: scalars.

    Parameters
    ----------
    outstanding_requests : requests sent to it and not finished [1].
    outstanding_tokens : their prompt tokens [tokens].
    num_running : running requests, as its engine says [1].
    num_waiting : waiting requests, as its engine says [1].
    kv_cache_usage : share of its KV blocks in use, as its engine says [1].
    num_unreported : requests sent to it that its engine did not count when it last said so [1].
    cached_tokens : tokens of this request's prompt in its prefix cache [tokens].
    input_tokens : prompt of this request [tokens].
    block_size : tokens of a KV block [tokens].
    has_adapter : 1 where this request's LoRA adapter is on its GPU, or the request has none; else 0.
    adapter_requests : its outstanding requests with the same adapter [1].
    free_adapters : places on its GPU whose adapters no request uses [1].
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


# Fields of `ReplicaLoad` that are looked up when a request is placed, where the score reads one of them.
OF_ENGINES = frozenset({"num_running", "num_waiting", "kv_cache_usage", "num_unreported"})
OF_CACHES = frozenset({"cached_tokens"})
OF_ADAPTERS = frozenset({"has_adapter", "adapter_requests", "free_adapters"})
OF_REQUESTS = frozenset({"input_tokens"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Router:
    """A router: it sends each request to the replica with the least score, over the weight of its pool.

    Parameters
    ----------
    name : how reports call it.
    score : pure function from `ReplicaLoad` to a number; it is compiled, so it uses numbers, comparisons and
        arithmetic only. Of equals, the one is taken that was sent a request the longest ago.
    num_choices : replicas drawn at random among which it chooses: 0 is all, 1 is a random one, 2 two choices.
    takes_turns : one after the other, whatever the score.
    is_sticky : a session stays with the replica of its first request.

    Raises
    ------
    PolicyError : a field has a value that it cannot have.
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
