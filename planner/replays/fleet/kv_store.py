"""The remote KV store of a fleet: whose blocks each engine finds in it, and its room, which all of them share.

Engines find the blocks of others under equal keys. LMCache's name the engine's format, the model, the number of
ranks, the rank and the tokens (`CacheEngineKey`), Mooncake's and SGLang's the same, so that blocks of one layout are no
use to another, as are blocks of another size, number format or draft. Such kinds of blocks have contents of their
own, and compete for the room: the least recently used block of any kind goes.
"""

import math
from collections.abc import Hashable, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from planner.deployment.deploy import Deployment, Pool
from planner.deployment.kv_tiers import GIB, empty
from planner.loop.state import engine_state as st
from planner.loop.state import entries
from planner.model.precision import weight_format
from planner.settings.tier_options import shares_store

MOST_UNITS = 2**40


def kind_of(engine: Deployment) -> Hashable:
    """Return the properties that two engines must share to find each other's blocks."""
    scenario, arch = engine.scenario, engine.architecture
    drafts = (scenario.speculative_method, scenario.speculative_model) if scenario.num_speculative_tokens else None
    return (scenario.engine, None if arch is None else weight_format(arch, scenario.quantization),
            engine.resolved.kv_cache_dtype, engine.resolved.block_size, scenario.tensor_parallel_size,
            scenario.pipeline_parallel_size, drafts, scenario.max_loras > 0)


def numbered_blocks(pools: Sequence[Pool], states: Sequence[st.State]) -> list[NDArray[np.int64] | None]:
    """Return for how many blocks of each request each pool has to number contents, shape [num_requests] each.

    Block tables of one kind differ if policies reserve ahead, and equal contents must have equal numbers all the
    same. None stands for a pool's own.
    """
    lengths = {k: np.diff(np.append(states[k].prefixes.slot_start, len(states[k].slots))) for k in _users(states)}
    numbers: list[NDArray[np.int64] | None] = [None] * len(states)
    for k, count in lengths.items():
        alike = [other for j, other in lengths.items() if kind_of(pools[j].deployment) == kind_of(pools[k].deployment)]
        most = np.maximum.reduce(alike)
        numbers[k] = None if np.array_equal(count, most) else most
    return numbers


def sharing_store(pools: Sequence[Pool], states: Sequence[st.State]) -> list[st.State]:
    """Return the memories of the pools' engines, with one remote store if they have one.

    It counts its room in the largest unit of which the blocks of all kinds are multiples.
    """
    users = _users(states)
    if len(users) < 2 or not shares_store(pools[users[0]].deployment.scenario):
        return list(states)
    kinds = [kind_of(pools[k].deployment) for k in users]
    sizes = [Fraction(_block_bytes(pools[k])) for k in users]
    unit = sizes[0]
    for size in sizes[1:]:
        unit = Fraction(math.gcd(unit.numerator * size.denominator, size.numerator * unit.denominator),
                        unit.denominator * size.denominator)
    counts = {kind: len(states[k].entries) for kind, k in zip(kinds, users, strict=True)}
    firsts = dict(zip(counts, np.cumsum([0, *counts.values()]).tolist(), strict=False))
    size_gib = pools[users[0]].deployment.scenario.kv_remote_size
    assert size_gib is not None
    room = MOST_UNITS if math.isinf(size_gib) else int(min(Fraction(size_gib) * int(GIB) // unit, MOST_UNITS))
    total = sum(counts.values())
    record, places = st.records(1, entries.TIER), st.records(total, entries.PLACE)
    blocks = st.records(int(max(min(room * unit // min(sizes), total), 1)), entries.TIER_BLOCK)
    record.capacity = room
    empty(record[0], blocks, places)
    shared = list(states)
    for k, kind, size in zip(users, kinds, sizes, strict=True):
        shared[k] = states[k]._replace(remote=record, remote_blocks=blocks, remote_places=places)
        shared[k].settings.remote_units = int(size / unit)
        shared[k].settings.first_remote = firsts[kind]
    return shared


def _users(states: Sequence[st.State]) -> list[int]:
    """Return which pools' engines have a remote store."""
    return [k for k, state in enumerate(states) if state.remote[0].capacity > 0]


def _block_bytes(pool: Pool) -> float:
    tier = pool.deployment.settings.remote_tier
    assert tier is not None
    return tier.block_bytes
