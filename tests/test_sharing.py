"""Prefix sharing: hit rates are those of a cache followed block by block, for every size at once."""

import os
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from planner.traces import PrefixIds, read_trace
from planner.traces.shaping.sharing import chains, sharing

SHARED = Path(os.environ.get("PLANNER_SHARED", Path(__file__).parents[2] / "shared")) / "traces"
HIT_RATES = {"mooncake_conversation_trace.jsonl.gz": 0.3736, "mooncake_synthetic_trace.jsonl.gz": 0.6512,
             "mooncake_arxiv_toolagent_slice_1000.jsonl": 0.3907}
BLOCK = 16


def prefix_of(rows: list[list[int]]) -> PrefixIds:
    values = np.array([value for row in rows for value in row], np.int64)
    return PrefixIds(values=values, offsets=np.cumsum([0, *map(len, rows)]).astype(np.int64), block_tokens=BLOCK)


def followed(rows: list[list[tuple[int, ...]]], tokens: list[int], size: int) -> float:
    """Return the hit rate of one cache, block by block, the least recently used dropped first."""
    cache: OrderedDict[tuple[int, ...], None] = OrderedDict()
    hit = 0
    for row, length in zip(rows, tokens, strict=True):
        for place, block in enumerate(row):
            if block not in cache:
                break
            hit += min(BLOCK, length - BLOCK * place)
        for block in reversed(row):
            cache.pop(block, None)
            cache[block] = None
        while len(cache) > size:
            cache.popitem(last=False)
    return hit / sum(tokens)


@given(rows=some.lists(some.lists(some.integers(0, 3), min_size=1, max_size=5), min_size=1, max_size=25),
       size=some.integers(1, 30), partial=some.integers(1, BLOCK))
def test_every_size_is_as_a_cache_that_is_followed(rows: list[list[int]], size: int, partial: int) -> None:
    """Ids come again at other places and after others here, where they mean something else."""
    tokens = [BLOCK * (len(row) - 1) + partial for row in rows]
    whole = [[tuple(row[: k + 1]) for k in range(len(row))] for row in rows]
    found = sharing(prefix_of(rows), np.array(tokens))
    assert found.hit_rate(size * BLOCK) == pytest.approx(followed(whole, tokens, size))
    assert found.infinite_hit_rate == pytest.approx(followed(whole, tokens, 10_000))


@pytest.mark.parametrize("name", HIT_RATES)
def test_published_traces_share_as_much_as_is_known(name: str) -> None:
    if not (SHARED / name).exists():
        pytest.skip(f"{name} is not at hand; PLANNER_SHARED names the folder above traces/")
    trace = read_trace(str(SHARED / name))
    assert trace.prefix is not None
    found = sharing(trace.prefix, trace.requests["input_tokens"].to_numpy())
    assert found.infinite_hit_rate == pytest.approx(HIT_RATES[name], abs=6e-5)
    assert found.hit_rate(found.cache_tokens(1.0)) == pytest.approx(found.infinite_hit_rate)
    assert found.hit_rate(found.cache_tokens(0.5)) == pytest.approx(found.infinite_hit_rate / 2, rel=0.01)


def test_ids_beyond_the_prompt_are_left_out() -> None:
    values, offsets = chains(prefix_of([[1, 2, 3], [1, 2]]), np.array([BLOCK + 1, 5]))
    assert offsets.tolist() == [0, 2, 3]
    assert values[2] == values[0]


def test_parents_are_the_latest_with_the_same_beginning() -> None:
    found = sharing(prefix_of([[1, 2], [1, 3], [1, 2, 4], [9]]), np.array([32, 32, 48, 16]))
    assert found.shared_blocks.tolist() == [0, 1, 2, 0]
    assert found.parents.tolist() == [-1, 0, 0, -1]
    assert found.visits.tolist() == [0, 3, 2, 0]
