"""KV tiers of pools that differ: who finds whose blocks, one store's room, and each pool's own host memory."""

import itertools
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import EVERYTHING, trace_of
from hypothesis import given, settings
from hypothesis import strategies as some
from test_pools import fleet_of
from test_tiers import BLOCK, GIB_A_BLOCK, MS_A_BLOCK, PLAIN, A, B, chains, column, loads, prompts, served

from planner.deployment.deploy import pools_of, resolve
from planner.errors import FleetError
from planner.replays.fleet.interleaved import RoutedFleet, fleet_states
from planner.report.summary_tables import summary_table
from planner.run import replay
from planner.settings.scenario import Scenario
from planner.traces import Trace

REMOTE: dict[str, Any] = {"kv_remote_size": 1.0, "kv_remote_bandwidth": MS_A_BLOCK}
SHORT = [99]  # of which 15 tokens are asked for: no full block


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fleets")


@pytest.mark.parametrize(("other", "found"), [
    ({"gpu": "a100-sxm", "num_gpu_blocks": 9, "policy": "sjf"}, 48),
    ({"block_size": 32}, 0), ({"kv_cache_dtype": "fp8"}, 0), ({"tensor_parallel_size": 2}, 0),
    ({"pipeline_parallel_size": 2}, 0), ({"engine": "sglang"}, 0), ({"quantization": "fp8"}, 0),
    ({"num_speculative_tokens": 1, "speculative_method": "eagle3"}, 0), ({"max_loras": 1}, 0),
])
def test_blocks_of_one_kind_are_found_by_all(folder: Path, other: dict[str, Any], found: int) -> None:
    """The first pool writes A's four blocks in 4 ms; a second later the other finds the first three, or none."""
    fleet = fleet_of(folder, {}, other)
    assert column(served(prompts(A, A), fleet=fleet, **REMOTE), "remote_cached_tokens") == [0, found]


def test_kinds_of_blocks_take_room_from_each_other(folder: Path) -> None:
    """Room for A's four blocks: the two of the other pool, each twice as large, take all of it; in twice that, none."""
    fleet = fleet_of(folder, {"replicas": 2}, {"block_size": 32})
    trace = trace_of([(0.0, 64, 1), (1.0, 15, 1), (2.0, 64, 1), (3.0, 15, 1), (4.0, 64, 1)],
                     hash_ids=[A, SHORT, B, SHORT, A])
    hits = [column(served(trace, fleet=fleet, kv_remote_size=count * GIB_A_BLOCK), "remote_cached_tokens")
            for count in (4, 6, 8)]
    assert hits == [[0, 0, 0, 0, 0], [0, 0, 0, 0, 32], [0, 0, 0, 0, 48]]
    half = served(trace, fleet=fleet_of(folder, {"replicas": 2}, {"kv_cache_dtype": "fp8"}),
                  kv_remote_size=4 * GIB_A_BLOCK)  # blocks of half the size: two of A's four are left
    assert column(half, "remote_cached_tokens") == [0, 0, 0, 0, 32]
    assert half.summary["remote_written_bytes"] == (4 + 2 + 4) * BLOCK * 131072 - 2 * BLOCK * 131072


def test_each_pool_has_its_own_host_memory(folder: Path) -> None:
    """One block at 1 ms in the first pool, all at 2 ms in the second, nothing in the third."""
    fleet = fleet_of(folder, *({"name": name, "num_gpu_blocks": 4, **own} for name, own in {
        "small": {"kv_offloading_size": GIB_A_BLOCK, "kv_offloading_bandwidth": MS_A_BLOCK},
        "large": {"kv_offloading_size": 1.0, "kv_offloading_bandwidth": MS_A_BLOCK / 2}, "none": {}}.items()))
    found = served(prompts(A, A, A, B, B, B, A, A, A), fleet=fleet)
    assert column(found, "cpu_cached_tokens") == [0, 0, 0, 0, 0, 0, 0, 48, 0]
    assert column(found, "load_s") == pytest.approx([0, 0, 0, 0, 0, 0, 0, 0.006, 0])
    assert [pool["cpu_hit_rate"] for pool in found.summary["pools"]] == [0.0, 48 / 192, None]
    assert found.summary["cpu_hit_rate"] == 48 / 576
    assert found.summary["cpu_read_bytes"] == 3 * BLOCK * 131072
    assert "cpu_hit_rate" in str(summary_table(found.summary))


def test_a_pool_without_tiers_may_be_the_first(folder: Path) -> None:
    """What a request had from tiers is told wherever it was, and of its last attempt."""
    own = {"num_gpu_blocks": 4, "kv_offloading_size": 1.0, "kv_offloading_bandwidth": MS_A_BLOCK / 100}
    fleet = fleet_of(folder, {}, own)
    options: dict[str, Any] = {"fleet": fleet, "router": "least-outstanding-requests"}
    trace = trace_of([(0.0, 64, 1), (0.0, 64, 1), (1.0, 64, 1), (1.0, 64, 1), (2.0, 64, 1), (2.0, 64, 1)],
                     hash_ids=[A, A, B, B, A, A])
    assert column(served(trace, **options), "cpu_cached_tokens") == [0, 0, 0, 0, 0, 48]
    failed = served(trace, **options, fail_replica="1@2.05", retry_initial_backoff=0.5, max_retries=1)
    assert column(failed, "replica")[-1] == 0
    assert column(failed, "cpu_cached_tokens") == [0] * 6
    assert column(failed, "load_s") == [0.0] * 6


def test_prefill_pools_that_differ_share_the_store(folder: Path) -> None:
    fleet = fleet_of(folder, {"role": "prefill"}, {"role": "prefill", "gpu": "a100-sxm"}, {"role": "decode"})
    found = served(prompts(A, A, output_tokens=3), fleet=fleet, **REMOTE)
    assert column(found, "replica") == [0, 1]
    assert column(found, "remote_cached_tokens") == [0, 48]
    assert [pool["remote_hit_rate"] for pool in found.summary["pools"]] == [0.0, 48 / 64, None]


@pytest.mark.parametrize(("pools", "words"), [
    ([{"kv_remote_size": 1.0}], "kv_remote_size: is an option of the whole fleet"),
    ([{}, {"name": "b", "enable_prefix_caching": False}], "pool 'b': KV tiers are found by prefix"),
    ([{}, {"name": "b", "block_size": 4096}], "pool 'b': --kv-remote-size 0.25: a KV block takes"),
    ([{}, {"name": "b", "kv_offloading_bandwidth": 5.0}], "pool 'b': --kv-offloading-bandwidth 5: there is no tier"),
    ([{}, {"kv_write_policy": "write_back"}], "pool 2: .*give kv_offloading_size"),
])
def test_bad_files(folder: Path, pools: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(FleetError, match=words):
        served(prompts(A), fleet=fleet_of(folder, *pools), kv_remote_size=0.25)


def test_what_a_pool_changes_is_read_beside_the_rest(folder: Path) -> None:
    """A pool may write back where the command line gives the host memory."""
    found = served(prompts(A, A, B, B), fleet=fleet_of(folder, {}, {"kv_write_policy": "write_back"}),
                   kv_offloading_size=1.0, kv_offloading_bandwidth=MS_A_BLOCK)
    written = [replica.links[0].num_written_blocks for replica in found.result.replicas]
    assert written == [8, 3]  # computed, and evicted


@settings(deadline=None, max_examples=30)
@given(case=loads(), split=some.integers(1, 2))
def test_equal_pools_are_a_plain_fleet(case: tuple[Trace, dict[str, Any]], split: int, folder: Path) -> None:
    trace, options = case
    options = options | {"data_parallel_size": 3}
    plain = served(trace, **options)
    options = options | {"data_parallel_size": 1, "fleet": fleet_of(folder, {"replicas": split},
                                                                   {"replicas": 3 - split})}
    pooled = served(trace, **options)
    assert pooled.requests.drop("pool").equals(plain.requests)
    for name in ("cpu_read_bytes", "remote_written_bytes", "num_gpu_hit_tokens", "mean_load_ms"):
        assert pooled.summary[name] == plain.summary[name]


@settings(deadline=None, max_examples=40)
@given(shapes=some.lists(some.tuples(some.integers(1, 90), some.integers(1, 40), some.integers(0, 3)), min_size=1,
                         max_size=8), policies=some.permutations(("fcfs", "orca", "static", "sjf")))
def test_equal_contents_have_equal_numbers(shapes: list[tuple[int, int, int]], policies: list[str],
                                           folder: Path) -> None:
    """Whatever policies reserve ahead: prompts, their ends that no id covers, and what is generated."""
    trace = trace_of([(0.0, inputs, outputs) for inputs, outputs, _ in shapes],
                     hash_ids=[[100 * root + k for k in range(3)] for _, _, root in shapes])
    fleet = fleet_of(folder, *({"policy": policy} for policy in policies))
    deployment = resolve(Scenario(**PLAIN | REMOTE | {"fleet": fleet, "max_model_len": 200}), trace)
    router: Any = None  # nobody is routed
    routed = RoutedFleet(pools=pools_of(deployment, 4), router=router, report_interval_s=0.0, seed=0)
    states, _ = fleet_states(trace, routed, EVERYTHING)
    for i in range(trace.num_requests):
        own = []
        for state in states:
            starts = [*state.prefixes.slot_start.tolist(), len(state.slots)]
            own.append(state.slots.content[starts[i]:starts[i + 1]].tolist())
        for one, other in itertools.combinations(own, 2):
            assert all(a == b for a, b in zip(one, other, strict=False))
    for state in states:
        assert state.slots.content.max() < len(state.entries)
        assert state.remote_places is states[0].remote_places


def hits_of(shapes: list[tuple[int, int]], gpus: list[int], sizes: list[int], room: int) -> list[int]:
    """Return the blocks that prompts find in a store that two engines share, by turns, one after the other.

    Parameters
    ----------
    gpus, sizes : of each engine, its blocks and the trace's blocks in each; `room` is in the trace's blocks.
    """
    free: list[list[Any]] = [[None] * count for count in gpus]
    held: OrderedDict[Any, int] = OrderedDict()
    found = []
    for turn, (root, length) in enumerate(shapes):
        own, size = free[turn % 2], sizes[turn % 2]
        contents = [(size, root, k) for k in range(length // size)]
        there, limit = 0, len(contents) - 1
        while there < limit and contents[there] in own:
            there += 1
        loaded = there
        while loaded < limit and contents[loaded] in held:
            loaded += 1
        found.append((loaded - there) * size)
        for content in contents[:there]:
            own.remove(content)
        del own[:len(contents) - there]
        for content in reversed(contents):
            if content in held:
                held.move_to_end(content)
        for content in reversed(contents[loaded:]):
            if content not in held and size <= room:
                while sum(held.values()) + size > room:
                    held.popitem(last=False)
                held[content] = size
        for content in reversed(contents):
            if content in held:
                held.move_to_end(content)
        own += reversed(contents)
    return found


@settings(deadline=None, max_examples=60)
@given(shapes=chains, gpu=some.integers(6, 12), room=some.sampled_from((2, 3, 5, 8, 40)),
       size=some.sampled_from((1, 2)))
def test_hits_are_those_of_one_plain_lru(shapes: list[tuple[int, int]], gpu: int, room: int, size: int,
                                         folder: Path) -> None:
    shapes = [(root, 2 * (length // 2)) for root, length in shapes]
    ids = [[100 * root + k for k in range(length)] for root, length in shapes]
    fleet = fleet_of(folder, {"num_gpu_blocks": gpu}, {"num_gpu_blocks": gpu, "block_size": size * BLOCK})
    found = replay(prompts(*ids), Scenario(**PLAIN | {"fleet": fleet, "kv_remote_size": room * GIB_A_BLOCK}))
    blocks = np.array(column(found, "remote_cached_tokens")) // BLOCK
    assert blocks.tolist() == hits_of(shapes, [gpu, gpu], [1, size], room)
