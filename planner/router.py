"""What a router is, as a frozen value: a score of each replica's load, and among which replicas it chooses."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from planner.errors import PolicyError


class ReplicaLoad(NamedTuple):
    """What a router may look at of one replica when it places a request: scalars."""

    outstanding_requests: int  # sent to it and not finished
    outstanding_tokens: int  # of their prompts
    num_running: int  # as the engine says; 0 where the router does not read the engines
    num_waiting: int
    kv_cache_usage: float  # share of KV blocks in use, likewise
    num_unreported: int  # requests sent to it that it did not count when it last said so
    cached_tokens: int  # of this request's prompt, those that its prefix cache holds; 0 where the router does not look
    input_tokens: int  # of this request
    block_size: int
    has_adapter: int  # 1 where this request's LoRA adapter is on its GPU, or it has none; 0 where it does not look
    adapter_requests: int  # outstanding there with the same adapter, likewise
    free_adapters: int  # places on its GPU whose adapters no request uses, likewise


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
    reads_engines : the score depends on what engines say of themselves: `num_running`, `num_waiting`,
        `kv_cache_usage`.
    reads_caches : it depends on `cached_tokens`.
    reads_adapters : it depends on `has_adapter`, `adapter_requests` or `free_adapters`.

    Raises
    ------
    PolicyError : `num_choices` is not 0, 1 or 2.
    """

    name: str
    score: Callable[[ReplicaLoad], float]
    num_choices: int = 0
    takes_turns: bool = False
    is_sticky: bool = False
    reads_engines: bool = False
    reads_caches: bool = False
    reads_adapters: bool = False

    def __post_init__(self) -> None:
        if self.num_choices not in (0, 1, 2):
            raise PolicyError(f"router {self.name!r}: num_choices = {self.num_choices}; must be 0 (all), 1 or 2")
