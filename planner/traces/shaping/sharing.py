"""How much of the prompts was seen before: prefix hits by the size of a cache that drops the least recently used."""

import functools
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from planner.loop.compiled.jit import compile_with_signature, jit, numba
from planner.traces.prefix_ids import PrefixIds

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Sharing(NamedTuple):
    """The parts of a trace's prompts that earlier ones have.

    Parameters
    ----------
    shared_blocks : ids from the beginning of each prompt that were all seen before [num_requests].
    parents : the latest request that had the last of them; -1 without any [num_requests].
    visits : how many requests in all have the last of them; 0 without any [num_requests].
    needed_blocks : smallest cache that hits each id at its place, sorted; ids never hit are left out [num_hits].
    hit_tokens : tokens of these ids [num_hits].
    num_blocks : different ids.
    block_tokens : tokens that one id stands for.
    total_tokens : of all prompts.
    """

    shared_blocks: Ints
    parents: Ints
    visits: Ints
    needed_blocks: Ints
    hit_tokens: Ints
    num_blocks: int
    block_tokens: int
    total_tokens: int

    @property
    def infinite_hit_rate(self) -> float:
        """Share of the prompt tokens that a cache without limits has seen before."""
        return float(self.hit_tokens.sum() / self.total_tokens)

    def hit_rate(self, cache_tokens: float) -> float:
        """Return the share of the prompt tokens that a cache of `cache_tokens` tokens serves."""
        upto = int(np.searchsorted(self.needed_blocks, cache_tokens / self.block_tokens, side="right"))
        return float(self.hit_tokens[:upto].sum() / self.total_tokens)

    def cache_tokens(self, share: float) -> int:
        """Return the smallest cache that has a share of the hits of one without limits [tokens]."""
        if not len(self.hit_tokens):
            return 0
        summed = np.cumsum(self.hit_tokens)
        return int(self.needed_blocks[np.searchsorted(summed, share * summed[-1])]) * self.block_tokens


def sharing(prefix: PrefixIds, input_tokens: Ints) -> Sharing:
    """Follow every prefix id through a cache of any size at once, by the distance of its last use.

    The cache is one of the least recently used blocks: a prompt is looked up from its beginning, up to the first id
    that is not there, and all its ids are used then, the last one first, as vLLM's block pool frees them; so a prefix
    is never dropped before its continuations. The smallest cache that hits an id is then the number of different ids
    used since its last use, itself included (Mattson et al. 1970, IBM Systems Journal 9). Requests are taken one after
    the other: blocks that running requests hold are not kept from being dropped.

    Parameters
    ----------
    prefix : of the requests, in order of arrival.
    input_tokens : prompt lengths [num_requests].
    """
    values, offsets = chains(prefix, input_tokens)
    n, num_blocks = len(input_tokens), int(values.max(initial=-1)) + 1
    shared, parents = np.zeros(n, np.int64), np.full(n, -1, np.int64)
    distances = np.zeros(len(values), np.int64)
    tree = np.zeros(len(values) + 1, np.int64)
    used_at, user = np.full(num_blocks, -1, np.int64), np.full(num_blocks, -1, np.int64)
    follow = _compiled()
    follow(values, offsets, shared, parents, distances, tree, used_at, user)
    counts = np.bincount(values, minlength=num_blocks)
    last = np.maximum(offsets[:-1] + shared - 1, 0)
    within = np.arange(len(values)) - np.repeat(offsets[:-1], np.diff(offsets))
    tokens = np.minimum(prefix.block_tokens, np.repeat(input_tokens, np.diff(offsets)) - within * prefix.block_tokens)
    hits = np.flatnonzero(distances)
    order = hits[np.argsort(distances[hits], kind="stable")]
    return Sharing(shared_blocks=shared, parents=parents, needed_blocks=distances[order], hit_tokens=tokens[order],
                   visits=np.where(shared > 0, counts[values[last]], 0) if len(values) else shared,
                   num_blocks=num_blocks, block_tokens=prefix.block_tokens, total_tokens=int(input_tokens.sum()))


def chains(prefix: PrefixIds, input_tokens: Ints) -> tuple[Ints, Ints]:
    """Return ids that each stand for a whole beginning of a prompt, as values and offsets; ids beyond it are left out.

    If an id comes after different ones or at different places it stands for several beginnings, which get ids of
    their own.
    """
    lengths = np.minimum(np.diff(prefix.offsets), -(-input_tokens // prefix.block_tokens))
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
    values = prefix.values[np.repeat(prefix.offsets[:-1], lengths) + within]
    before = np.where(within > 0, np.concatenate(([-1], values[:-1])) if len(values) else values, -1)
    seen = pl.DataFrame({"id": values, "place": within, "before": before}).unique()
    if seen.height == len(np.unique(values)):
        return _dense(values), offsets
    nodes = np.full(len(values), -1, np.int64)
    num_ids, num_nodes = int(values.max()) + 1, 0
    rows = np.flatnonzero(lengths > 0)
    for depth in range(int(lengths.max())):
        rows = rows[lengths[rows] > depth]
        at = offsets[rows] + depth
        keys = values[at] + (num_ids * (nodes[at - 1] + 1) if depth else 0)
        distinct, place = np.unique(keys, return_inverse=True)
        nodes[at] = num_nodes + place
        num_nodes += len(distinct)
    return nodes, offsets


def _dense(values: Ints) -> Ints:
    ranks: Ints = np.unique(values, return_inverse=True)[1].astype(np.int64)
    return ranks


@jit
def _add(tree: Any, place: int, value: int) -> None:
    """Add to a place of a Fenwick tree, places from 0."""
    place += 1
    while place < len(tree):
        tree[place] += value
        place += place & -place


@jit
def _upto(tree: Any, place: int) -> int:
    """Return the sum of a Fenwick tree up to a place and with it."""
    total = 0
    place += 1
    while place > 0:
        total += tree[place]
        place -= place & -place
    return int(total)


def _follow(values: Any, offsets: Any, shared: Any, parents: Any, distances: Any, tree: Any, used_at: Any,
            user: Any) -> None:
    """Fill in `shared`, `parents` and `distances`; `tree` counts the ids whose last use was at a place."""
    num_used, now = 0, 0
    for r in range(len(offsets) - 1):
        begin, end = offsets[r], offsets[r + 1]
        known = begin
        while known < end and used_at[values[known]] >= 0:
            distances[known] = num_used - _upto(tree, used_at[values[known]]) + 1
            known += 1
        shared[r] = known - begin
        if known > begin:
            parents[r] = user[values[known - 1]]
        for k in range(end - 1, begin - 1, -1):
            value = values[k]
            if used_at[value] >= 0:
                _add(tree, used_at[value], -1)
            else:
                num_used += 1
            _add(tree, now, 1)
            used_at[value], user[value] = now, r
            now += 1


_I8 = numba.int64[::1]
_SIGNATURE = numba.void(_I8, _I8, _I8, _I8, _I8, _I8, _I8, _I8)


@functools.cache
def _compiled() -> Any:
    """Return `_follow`, compiled once and kept between processes."""
    return compile_with_signature(_follow, _SIGNATURE)
