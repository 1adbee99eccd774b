"""KV tiers below the GPU: worked cases by hand, bad options, and laws against a plain LRU."""

from collections import OrderedDict
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers import EVERYTHING, trace_of
from hypothesis import given, settings
from hypothesis import strategies as some

from planner.deployment.deploy import pools_of, resolve
from planner.errors import UsageError
from planner.policies.builtin_routers import ROUTERS
from planner.replays.fleet.interleaved import RoutedFleet, fleet_states, run_interleaved
from planner.replays.initial import start_anew
from planner.results.notes import notes
from planner.results.phases import request_phases
from planner.results.story import tell
from planner.run import Outcome, replay
from planner.settings.scenario import Scenario
from planner.traces import Trace

BLOCK = 16  # tokens; 2 MiB of KV with this model
MS_A_BLOCK = 131072 * BLOCK / 1e6  # GB/s of a link that takes 1 ms for each
GIB_A_BLOCK = 131072 * BLOCK / 2**30
PLAIN: dict[str, Any] = {"model": "llama-3.1-8b", "gpu": "h100-sxm", "step_time": "linear:0.1,0", "num_gpu_blocks": 5,
                         "async_scheduling": False}
CPU: dict[str, Any] = {"kv_offloading_size": 1.0, "kv_offloading_bandwidth": MS_A_BLOCK}
REMOTE: dict[str, Any] = {"kv_remote_size": 1.0, "kv_remote_bandwidth": MS_A_BLOCK / 2, "kv_remote_latency": 0.03}
A, B = [0, 1, 2, 3], [10, 11, 12, 13]


def prompts(*ids: list[int], every_s: float = 1.0, output_tokens: int = 1) -> Trace:
    """Return prompts of whole blocks, so often."""
    return trace_of([(k * every_s, BLOCK * len(each), output_tokens) for k, each in enumerate(ids)], hash_ids=ids)


def served(trace: Trace, **options: Any) -> Outcome:
    """Replay a trace; replicas take requests in turn."""
    in_turn = {"router": "round-robin"} if options.get("data_parallel_size", 1) > 1 else {}
    return replay(trace, Scenario(**PLAIN | in_turn | options), recording=EVERYTHING)


def column(outcome: Outcome, name: str) -> list[Any]:
    return outcome.requests[name].to_list()


def test_what_the_gpu_evicted_comes_back_from_the_host() -> None:
    """The GPU keeps one block of A's four beside B's, two come from the host in 1 ms each, the last is computed."""
    found = served(prompts(A, B, A), **CPU)
    assert column(found, "num_cached_tokens") == [0, 0, 48]
    assert column(found, "cpu_cached_tokens") == [0, 0, 32]
    assert column(found, "load_s") == pytest.approx([0.0, 0.0, 0.002], abs=1e-12)
    assert column(found, "ttft_s") == pytest.approx([0.1, 0.1, 0.102])
    assert column(found, "prefill_s") == pytest.approx([0.1, 0.1, 0.1])
    summary = found.summary
    assert (summary["num_gpu_hit_tokens"], summary["num_cpu_hit_tokens"]) == (16, 32)
    assert summary["num_remote_hit_tokens"] is None
    assert (summary["gpu_hit_rate"], summary["cpu_hit_rate"]) == (16 / 192, 32 / 192)
    assert summary["prefix_cache_hit_rate"] == 48 / 192
    assert summary["cpu_read_bytes"] == 2 * BLOCK * 131072
    assert summary["cpu_written_bytes"] == 8 * BLOCK * 131072
    assert summary["mean_load_ms"] == pytest.approx(2 / 3)


def test_a_request_that_loads_leaves_the_engine_to_others() -> None:
    """Four blocks at 100 ms each: another prompt runs meanwhile, and is not delayed."""
    slow = CPU | {"kv_offloading_bandwidth": MS_A_BLOCK / 100}
    trace = trace_of([(0.0, 80, 1), (1.0, 80, 1), (3.0, 80, 1), (3.1, 16, 2)],
                     hash_ids=[[*A, 4], [*B, 14], [*A, 4], [20]])
    found = served(trace, **slow, num_gpu_blocks=7)
    assert column(found, "cpu_cached_tokens") == [0, 0, 32, 0]  # five blocks of B, two of A are on the GPU
    assert column(found, "first_token_at_s") == pytest.approx([0.1, 1.1, 3.3, 3.2])
    assert column(found, "finished_at_s") == pytest.approx([0.1, 1.1, 3.3, 3.3])


def test_transfers_of_an_engine_follow_each_other() -> None:
    """Two requests ask at once for two blocks each: the second's come after the first's."""
    slow = CPU | {"kv_offloading_bandwidth": MS_A_BLOCK / 100}
    other = [30, 31, 32, 33]
    trace = trace_of([(0.0, 64, 1), (1.0, 64, 1), (2.0, 128, 1), (4.0, 64, 1), (4.0, 64, 1)],
                     hash_ids=[A, B, [*other, 34, 35, 36, 37], A, B])
    found = served(trace, **slow, num_gpu_blocks=9)
    assert column(found, "cpu_cached_tokens") == [0, 0, 0, 48, 48]
    assert column(found, "load_s")[3:] == pytest.approx([0.3, 0.6])


def test_who_finds_a_block_on_its_way_waits_for_it() -> None:
    """The same prompt twice, 50 ms apart: loaded once, both run when it is there, the second from the GPU's cache."""
    slow = CPU | {"kv_offloading_bandwidth": MS_A_BLOCK / 100}
    trace = trace_of([(0.0, 64, 1), (1.0, 128, 1), (3.0, 64, 1), (3.05, 64, 1)],
                     hash_ids=[A, [*B, 14, 15, 16, 17], A, A])
    found = served(trace, **slow, num_gpu_blocks=9)
    assert column(found, "cpu_cached_tokens") == [0, 0, 32, 0]
    assert column(found, "num_cached_tokens") == [0, 0, 48, 48]
    assert column(found, "load_s")[2:] == pytest.approx([0.2, 0.15])
    assert column(found, "first_token_at_s")[2:] == pytest.approx([3.3, 3.3])
    assert found.summary["cpu_read_bytes"] == 2 * BLOCK * 131072


def test_what_is_being_written_is_not_found() -> None:
    """Writing takes 0.5 s a block from the end of the step at 0.1: at 1.4 two of four are there."""
    slow = CPU | {"kv_offloading_bandwidth": MS_A_BLOCK / 500}
    found = served(prompts(A, B, A, every_s=0.7), **slow, num_gpu_blocks=4, kv_write_policy="write_through")
    # the last blocks of a step are written first, so that its prefix is the last to be evicted
    assert column(found, "cpu_cached_tokens") == [0, 0, 0]
    found = served(prompts(A, B, A, every_s=2.2), **slow, num_gpu_blocks=4)
    assert column(found, "cpu_cached_tokens") == [0, 0, 48]


def test_another_replica_finds_it_in_the_remote_store() -> None:
    """A is written by the first replica by 0.1 + 8 + 30 ms; the second loads three blocks in 6 + 30 ms."""
    found = served(prompts(A, A), data_parallel_size=2, **REMOTE)
    assert column(found, "replica") == [0, 1]
    assert column(found, "remote_cached_tokens") == [0, 48]
    assert column(found, "load_s") == pytest.approx([0.0, 0.036])
    assert column(found, "ttft_s") == pytest.approx([0.1, 0.136])
    assert found.summary["remote_written_bytes"] == 4 * BLOCK * 131072
    early = served(prompts(A, A, every_s=0.1375), data_parallel_size=2, **REMOTE)
    assert column(early, "remote_cached_tokens") == [0, 0]  # the first block is there 0.5 ms later
    late = served(prompts(A, A, every_s=0.1385), data_parallel_size=2, **REMOTE)
    assert column(late, "remote_cached_tokens") == [0, 48]


@pytest.mark.parametrize("router", ["round-robin", "least-outstanding-requests"])
def test_a_replica_finds_its_own_blocks_on_its_disk(router: str) -> None:
    """A at both replicas, then B, which the GPU keeps instead; then A from the disk of each, in 6 + 30 ms."""
    trace = trace_of([(k // 2 * 1.0, 64, 1) for k in range(6)], hash_ids=[A, A, B, B, A, A])
    found = served(trace, data_parallel_size=2, num_gpu_blocks=4, kv_remote_scope="replica", **REMOTE, router=router)
    assert column(found, "replica") == [0, 1] * 3
    assert column(found, "remote_cached_tokens") == [0, 0, 0, 0, 48, 48]
    assert column(found, "load_s") == pytest.approx([0.0] * 4 + [0.036] * 2)
    assert found.summary["remote_written_bytes"] == 2 * (4 + 4) * BLOCK * 131072
    one = served(trace_of([(0.0, 64, 1), (1.0, 64, 1), (2.0, 64, 1)], hash_ids=[A, B, A]), num_gpu_blocks=4,
                 kv_remote_scope="replica", **REMOTE)
    assert column(one, "ttft_s") == column(found, "ttft_s")[::2]


def test_a_disk_is_of_one_replica() -> None:
    found = served(prompts(A, A), data_parallel_size=2, kv_remote_scope="replica", **REMOTE)
    assert column(found, "remote_cached_tokens") == [0, 0]


def test_a_replica_that_starts_anew_has_an_empty_disk() -> None:
    """It fails after A, and finds nothing on its disk; a store of all replicas has A."""
    trace = prompts(A, A, every_s=4.0)
    options: dict[str, Any] = {**REMOTE, "fail_replica": "0@2+1", "num_gpu_blocks": 5,
                               "router": "least-outstanding-requests"}
    own = served(trace, **options, kv_remote_scope="replica")
    of_all = served(trace, **options)
    assert column(own, "remote_cached_tokens") == [0, 0]
    assert column(of_all, "remote_cached_tokens") == [0, 48]


def test_a_disk_as_fast_as_a_network_is_said() -> None:
    for bandwidth, is_said in ((50.0, True), (7.0, False)):
        disk = Scenario(**PLAIN, kv_remote_size=1.0, kv_remote_scope="replica", kv_remote_bandwidth=bandwidth)
        told = notes(resolve(disk, prompts(A)), prompts(A))
        assert any("one NVMe disk reads about 7 GB/s" in note for note in told) is is_said


def test_remote_blocks_stay_in_host_memory_on_their_way() -> None:
    """The second replica gets A from the remote store once; then it is in its own host memory."""
    trace = trace_of([(0.0, 64, 1), (1.0, 64, 1), (2.0, 64, 1), (3.0, 64, 1), (4.0, 64, 1), (5.0, 64, 1)],
                     hash_ids=[A, A, B, [20, 21, 22, 23], A, A])
    found = served(trace, data_parallel_size=2, num_gpu_blocks=4, **CPU, **REMOTE)
    assert column(found, "remote_cached_tokens") == [0, 48, 0, 0, 0, 0]
    assert column(found, "cpu_cached_tokens") == [0, 0, 0, 0, 48, 48]
    assert found.summary["cpu_written_bytes"] == (4 + 1 + 4 + 4) * BLOCK * 131072  # A's last block was computed twice


def test_write_back_writes_what_is_evicted_and_the_step_waits() -> None:
    """B takes three blocks of A, the last ones, and writes them in 3 ms; selective writes nothing that is used once."""
    found = served(prompts(A, B), **CPU, kv_write_policy="write_back")
    assert column(found, "ttft_s") == pytest.approx([0.1, 0.103])
    assert found.summary["cpu_written_bytes"] == 3 * BLOCK * 131072
    back = served(prompts(A, B, A), **CPU, kv_write_policy="write_back")
    assert column(back, "cpu_cached_tokens") == [0, 0, 32]
    once = served(prompts(A, B, A), **CPU, kv_write_policy="write_through_selective")
    assert once.summary["cpu_written_bytes"] == 1 * BLOCK * 131072  # the one that was still on the GPU
    twice = served(prompts(A, A, B, A), **CPU, kv_write_policy="write_through_selective")
    assert column(twice, "cpu_cached_tokens") == [0, 0, 0, 32]


def test_written_back_blocks_go_on_to_the_remote_store() -> None:
    """Host memory has room for one block: A's others go on."""
    small = {"kv_offloading_size": GIB_A_BLOCK, "kv_offloading_bandwidth": MS_A_BLOCK}
    found = served(prompts(A, B, A), **small, **REMOTE, kv_write_policy="write_back", num_gpu_blocks=4)
    assert found.summary["remote_written_bytes"] >= 3 * BLOCK * 131072
    assert column(found, "cpu_cached_tokens")[2] + column(found, "remote_cached_tokens")[2] == 48


def test_swapped_requests_take_room_from_the_tier() -> None:
    """Both requests outgrow four blocks; the second is swapped out over the tier's link, and comes back."""
    trace = trace_of([(0.0, 32, 20), (0.0, 32, 20)], hash_ids=[[0, 1], [2, 3]])
    found = served(trace, **CPU, num_gpu_blocks=5, preemption="swap")
    assert found.summary["num_preemptions"] == 1
    assert found.summary["num_swapped_tokens"] > 0
    assert found.summary["num_recomputed_tokens"] == 0
    none = served(trace, kv_offloading_size=GIB_A_BLOCK, kv_offloading_bandwidth=MS_A_BLOCK, num_gpu_blocks=5,
                  preemption="swap")
    assert none.summary["num_swapped_tokens"] == 0  # three blocks do not fit
    assert none.summary["num_recomputed_tokens"] > 0


def test_cached_blocks_make_room_for_swapped_ones_at_once() -> None:
    """A's four blocks fill the tier; two swapped ones take the place of its last two. Nothing else is written."""
    trace = trace_of([(0.0, 64, 1), (1.0, 64, 1), (2.0, 32, 20), (2.0, 32, 20), (20.0, 64, 1)],
                     hash_ids=[A, A, [20, 21], [30, 31], A])
    options = {"kv_offloading_size": 4 * GIB_A_BLOCK, "kv_offloading_bandwidth": MS_A_BLOCK,
               "kv_write_policy": "write_through_selective"}
    swapped = served(trace, **options, num_gpu_blocks=5, preemption="swap")
    assert swapped.summary["num_swapped_tokens"] == 2 * 32
    assert column(swapped, "cpu_cached_tokens")[-1] == 32
    assert column(served(trace, **options, num_gpu_blocks=5), "cpu_cached_tokens")[-1] == 48


def test_a_preempted_request_loads_what_it_had_computed() -> None:
    trace = trace_of([(0.0, 32, 20), (0.0, 32, 20)], hash_ids=[[0, 1], [2, 3]])
    with_tier, without = served(trace, **CPU, num_gpu_blocks=5), served(trace, num_gpu_blocks=5)
    assert with_tier.summary["num_preemptions"] == without.summary["num_preemptions"] == 1
    assert with_tier.summary["num_recomputed_tokens"] < without.summary["num_recomputed_tokens"]


def test_phases_and_the_story_name_the_load() -> None:
    slow = CPU | {"kv_offloading_bandwidth": MS_A_BLOCK / 100}
    found = served(prompts(A, B, A), **slow)
    phases = request_phases(found.requests)
    assert phases["load"].to_list() == pytest.approx([0.0, 0.0, 0.2])
    assert phases.drop("e2e_s").sum_horizontal().to_list() == pytest.approx(phases["e2e_s"].to_list())
    story = tell(found.requests, found.steps, found.result.schedule_table(), "2")
    assert "48 prompt tokens were cached (32 in host memory)" in story.sentence
    assert story.events["what"].to_list() == ["loads its KV from the host or a remote store",
                                              "a chunk of its prompt is computed"]
    assert story.events["lasts_ms"].to_list() == pytest.approx([200.0, 100.0])


def test_prefill_replicas_have_tiers() -> None:
    found = served(prompts(A, B, A, output_tokens=3), **CPU, **REMOTE, data_parallel_size=3, prefill_replicas=2)
    assert column(found, "replica") == [0, 1, 0]
    assert column(found, "num_cached_tokens") == [0, 0, 48]
    assert found.summary["completed"] == 3


@pytest.mark.parametrize(("options", "words"), [
    ({"kv_offloading_size": 0.0}, "above 0"),
    ({"kv_offloading_size": float("nan")}, "above 0"),
    ({"kv_remote_size": -1.0}, "above 0"),
    ({"kv_offloading_size": 1.0, "kv_offloading_bandwidth": 0.0}, "above 0"),
    ({"kv_remote_size": 1.0, "kv_remote_bandwidth": 0.0}, "above 0"),
    ({"kv_remote_size": 1.0, "kv_remote_latency": -1.0}, "must be at least 0"),
    ({"kv_remote_size": 1.0, "kv_write_policy": "write_back"}, "give kv_offloading_size"),
    ({"kv_offloading_size": 1.0, "num_cpu_blocks": 5}, "leave one of them out"),
    ({"kv_offloading_bandwidth": 5.0}, "give --kv-offloading-size"),
    ({"kv_offloading_size": GIB_A_BLOCK * 0.99}, "a KV block takes 0.00195 GiB"),
    ({"kv_remote_size": GIB_A_BLOCK * 0.99}, "a KV block takes"),
    ({"kv_offloading_size": 1.0, "enable_prefix_caching": False}, "prefix caching is off"),
    ({"kv_offloading_size": 1.0, "model": None}, "give --model"),
    ({"kv_offloading_size": 1.0, "gpu": None}, "give --gpu or --kv-offloading-bandwidth"),
])
def test_bad_options(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        served(prompts(A), **options)


def test_hits_that_the_trace_recorded_are_no_ground_for_tiers() -> None:
    with pytest.raises(UsageError, match="leave out cached_tokens"):
        served(trace_of([(0.0, 64, 1)], cached_tokens=[32]), **CPU)


def test_sizes_are_of_all_gpus_and_links_of_each() -> None:
    """Llama-3.1-70B on four: 5 MiB a block in all, 1.25 MiB over each link of 64 GB/s."""
    scenario = Scenario(model="llama-3.1-70b", gpu="h100-sxm", tensor_parallel_size=4, kv_offloading_size=1.0,
                        kv_remote_size=2.0)
    found = resolve(scenario, prompts(A)).settings
    assert found.cpu_tier is not None
    assert found.remote_tier is not None
    assert (found.cpu_tier.num_blocks, found.remote_tier.num_blocks) == (204, 409)
    assert found.cpu_tier.s_per_block == pytest.approx(1.25 * 2**20 / 64e9)
    assert found.remote_tier.s_per_block == pytest.approx(5 * 2**20 / 50e9)


class Reference:
    """A GPU cache and tiers as plain lists by content, for requests that come one after the other."""

    def __init__(self, gpu: int, cpu: int, remote: int) -> None:
        self.free: list[int | None] = [None] * gpu  # contents of blocks in the order of their reuse
        self.tiers: list[tuple[int, OrderedDict[int, None]]] = [(cpu, OrderedDict()), (remote, OrderedDict())]

    def serve(self, ids: list[int]) -> tuple[int, int, int]:
        """Return the blocks that a prompt of these finds on the GPU, and in each tier."""
        limit = len(ids) - 1
        hits, found = 0, [0, 0]
        while hits < limit and ids[hits] in self.free:
            hits += 1
        place = hits
        while place < limit:
            having = [k for k, (_, held) in enumerate(self.tiers) if ids[place] in held]
            if not having:
                break
            found[having[0]] += 1
            place += 1
        for content in ids[:hits]:
            self.free.remove(content)
        del self.free[:len(ids) - hits]
        for k in range(len(ids) - 1, -1, -1):
            self.use(ids[k])
            if hits <= k < place:
                self.put(0, ids[k])
        for content in reversed(ids[place:]):
            self.put(0, content)
            self.put(1, content)
        for content in reversed(ids):
            self.use(content)
        self.free += reversed(ids)
        return hits, found[0], found[1]

    def use(self, content: int) -> None:
        for _, held in self.tiers:
            if content in held:
                held.move_to_end(content)

    def put(self, tier: int, content: int) -> None:
        size, held = self.tiers[tier]
        if size and content not in held:
            if len(held) == size:
                held.popitem(last=False)
            held[content] = None


chains = some.lists(some.tuples(some.integers(0, 4), some.integers(2, 6)), min_size=1, max_size=14)


@settings(deadline=None, max_examples=60)
@given(chains, some.integers(6, 12), some.sampled_from((0, 1, 3, 8, 30)), some.sampled_from((0, 2, 5, 40)))
def test_hits_are_those_of_a_plain_lru(shapes: list[tuple[int, int]], gpu: int, cpu: int, remote: int) -> None:
    """One request at a time, so the order of events is that of the trace."""
    ids = [[100 * root + k for k in range(length)] for root, length in shapes]
    sizes = {"kv_offloading_size": cpu * GIB_A_BLOCK or None, "kv_remote_size": remote * GIB_A_BLOCK or None}
    found = served(prompts(*ids), **sizes, num_gpu_blocks=gpu)
    reference = Reference(gpu, cpu, remote)
    expected = [reference.serve(each) for each in ids]
    zero = [0] * len(ids)
    names = found.requests.columns
    below = [column(found, f"{name}_cached_tokens") if f"{name}_cached_tokens" in names else zero
             for name in ("cpu", "remote")]
    on_gpu = np.array(column(found, "num_cached_tokens")) - below[0] - below[1]
    assert list(zip((on_gpu // BLOCK).tolist(), *(np.array(each) // BLOCK for each in below), strict=True)) == expected


@settings(deadline=None, max_examples=40)
@given(chains, some.integers(6, 12), some.sampled_from((1, 3, 8, 30)))
def test_a_tier_never_lowers_the_hits_of_requests_in_turn(shapes: list[tuple[int, int]], gpu: int, cpu: int) -> None:
    ids = [[100 * root + k for k in range(length)] for root, length in shapes]
    with_tier = served(prompts(*ids), kv_offloading_size=cpu * GIB_A_BLOCK, num_gpu_blocks=gpu)
    without = served(prompts(*ids), num_gpu_blocks=gpu)
    assert with_tier.summary["num_gpu_hit_tokens"] == int(without.result.records.engine.num_hit_tokens)
    assert with_tier.summary["prefix_cache_hit_rate"] >= without.summary["prefix_cache_hit_rate"]


@settings(deadline=None, max_examples=40)
@given(chains, some.integers(6, 12), some.sampled_from(("kv_offloading_size", "kv_remote_size")),
       some.sampled_from((0.02, 0.1, 1.0)))
def test_an_infinite_tier_is_an_infinite_gpu_cache(shapes: list[tuple[int, int]], gpu: int, size: str,
                                                   every_s: float) -> None:
    """Hits and times, also where requests overlap, as long as the GPU never runs out."""
    ids = [[100 * root + k for k in range(length)] for root, length in shapes]
    fast = {size: float("inf"), size.replace("size", "bandwidth"): float("inf")}
    trace = prompts(*ids, every_s=every_s)
    with_tier = served(trace, **fast, num_gpu_blocks=gpu, max_num_seqs=1)
    infinite = served(trace, num_gpu_blocks=10_000, max_num_seqs=1)
    for name in ("num_cached_tokens", "finished_at_s"):
        assert column(with_tier, name) == column(infinite, name)


@some.composite
def loads(draw: Any) -> tuple[Trace, dict[str, Any]]:
    """Draw overlapping requests on little memory, and tiers of all kinds."""
    n = draw(some.integers(1, 10))
    rows = [(tick * 0.05, draw(some.integers(1, 90)), draw(some.integers(1, 30))) for tick in
            sorted(draw(some.lists(some.integers(0, 20), min_size=n, max_size=n)))]
    ids = [[*(100 * draw(some.integers(0, 2)) + k for k in range(6))] for _ in range(n)]
    cancels = draw(some.none() | some.lists(some.sampled_from((0.02, 0.3, 9.0)), min_size=n, max_size=n))
    has_cpu, has_remote = draw(some.sampled_from(((True, False), (False, True), (True, True))))
    options: dict[str, Any] = {
        "num_gpu_blocks": draw(some.integers(8, 16)), "max_num_batched_tokens": draw(some.sampled_from((20, 60, 2048))),
        "max_num_seqs": draw(some.sampled_from((1, 2, 5))), "step_time": "linear:0.01,0.0005",
        "data_parallel_size": draw(some.sampled_from((1, 1, 2, 3))), "preemption": draw(some.sampled_from((
            "recompute", "swap"))), "policy": draw(some.sampled_from(("fcfs", "sjf", "vllm-v0", "nano-vllm"))),
        "router": draw(some.sampled_from(("round-robin", "prefix-aware", "least-kv"))),
        "scheduler_reserve_full_isl": draw(some.booleans()), "async_scheduling": draw(some.booleans()),
        "pipeline_parallel_size": draw(some.sampled_from((1, 1, 2))), "block_size": 16,
    }
    if has_cpu:
        options |= {"kv_offloading_size": GIB_A_BLOCK * draw(some.sampled_from((1, 4, 100))),
                    "kv_offloading_bandwidth": MS_A_BLOCK / draw(some.sampled_from((1, 40)))}
        options["kv_write_policy"] = draw(some.sampled_from(("write_through", "write_through_selective", "write_back")))
    if has_remote:
        options |= {"kv_remote_size": GIB_A_BLOCK * draw(some.sampled_from((1, 4, 100))),
                    "kv_remote_bandwidth": MS_A_BLOCK / draw(some.sampled_from((1, 40))),
                    "kv_remote_latency": draw(some.sampled_from((0.0, 0.1)))}
    columns = {} if cancels is None else {"cancel_after_s": cancels}
    return trace_of(rows, hash_ids=ids, **columns), options


@settings(deadline=None, max_examples=60)
@given(loads())
def test_requests_and_time_are_conserved(case: tuple[Trace, dict[str, Any]]) -> None:
    trace, options = case
    found = served(trace, **options)
    table, summary = found.requests, found.summary
    assert summary["unfinished"] == 0
    done = table.filter(status="completed")
    assert (table["cpu_cached_tokens"] + table["remote_cached_tokens"] <= table["num_cached_tokens"]).all()
    assert (table["num_cached_tokens"] < table["input_tokens"]).all()
    phases = request_phases(done)
    assert np.allclose(phases.drop("e2e_s").sum_horizontal().to_numpy(), phases["e2e_s"].to_numpy())
    assert (phases.to_numpy() >= -1e-9).all()
    hits = sum(summary[f"num_{tier}_hit_tokens"] or 0 for tier in ("gpu", "cpu", "remote"))
    assert hits == table["num_cached_tokens"].sum()
    again = served(trace, **options)
    assert again.requests.equals(table)
    plain = replay(trace, Scenario(**PLAIN | options))
    assert plain.requests["finished_at_s"].equals(table["finished_at_s"])


@settings(deadline=None, max_examples=60)
@given(loads())
def test_tiers_end_with_what_they_say(case: tuple[Trace, dict[str, Any]]) -> None:
    """Lists and places agree, nothing is above a capacity, and what swapped requests took has been returned."""
    trace, options = case
    deployment = resolve(Scenario(**PLAIN | options), trace)
    fleet = RoutedFleet(pools=pools_of(deployment, 2), router=ROUTERS["round-robin"], report_interval_s=0.0, seed=0)
    kept: list[Any] = []
    original = fleet_states

    def keep(*args: Any) -> Any:
        states, requests = original(*args)
        kept.extend(states)
        return states, requests

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("planner.replays.fleet.interleaved.fleet_states", keep)
        run_interleaved(trace, fleet, None, EVERYTHING)
    for state in kept:
        assert state.engine.num_free_cpu_blocks == state.settings.num_cpu_blocks
        assert state.engine.num_free_blocks == state.settings.num_gpu_blocks
        assert state.engine.num_loading == 0
        for tier, blocks, places in ((state.cpu[0], state.cpu_blocks, state.cpu_places),
                                     (state.remote[0], state.remote_blocks, state.remote_places)):
            listed, b = [], int(tier.oldest)
            while b >= 0:
                listed.append(b)
                b = int(blocks[b].next)
            assert len(listed) == len(set(listed)) == tier.used <= tier.capacity
            assert sorted(places.block[places.block >= 0]) == sorted(listed)
            assert all(places[blocks[b].content].block == b for b in listed)
        start_anew(state, shares_store=True)
        assert state.cpu[0].used == 0
        assert (state.cpu_places.block < 0).all()
        assert not state.filled.is_listed.any()
    assert kept[0].remote is kept[1].remote or kept[0].remote[0].capacity == 0


@settings(deadline=None, max_examples=25)
@given(loads())
def test_tiers_that_nothing_reaches_change_nothing(case: tuple[Trace, dict[str, Any]]) -> None:
    """Writes that never end: times are those without tiers, under write through."""
    trace, options = case
    never = {name: 1e-12 for name in ("kv_offloading_bandwidth", "kv_remote_bandwidth")
             if name.replace("bandwidth", "size") in options}
    slow = options | never | {"kv_write_policy": "write_through", "preemption": "recompute"}
    bare = {name: value for name, value in slow.items() if not name.startswith("kv_")}
    with_tiers, without = served(trace, **slow), served(trace, **bare)
    for name in ("finished_at_s", "num_cached_tokens", "num_preemptions"):
        assert column(with_tiers, name) == column(without, name)


def test_remote_writes_are_found_in_the_order_of_time() -> None:
    """However requests are routed, nothing is found before the step that computes it has ended."""
    rng = np.random.default_rng(0)
    ids = [[100 * int(rng.integers(6)) + k for k in range(int(rng.integers(2, 8)))] for _ in range(200)]
    trace = prompts(*ids, every_s=0.037, output_tokens=20)
    options = {"kv_remote_size": 1.0, "kv_remote_bandwidth": float("inf"), "num_gpu_blocks": 24,
               "step_time": "linear:0.02,0.0001"}
    by_count = {count: served(trace, **options, data_parallel_size=count, router="least-outstanding-requests")
                for count in (1, 2, 4)}
    for found in by_count.values():
        computed: dict[int, float] = {}
        table = found.requests.with_columns(found.result.trace.requests["request_id"])
        for row, each in sorted(zip(table.to_dicts(), ids, strict=True), key=lambda pair: pair[0]["first_token_at_s"]):
            for content in each:
                computed.setdefault(content, row["first_token_at_s"])
        for row, each in zip(table.to_dicts(), ids, strict=True):
            for content in each[:row["num_cached_tokens"] // BLOCK]:
                assert computed[content] <= row["first_scheduled_at_s"] or row["remote_cached_tokens"] == 0


def test_replicas_write_to_the_store_in_the_order_of_time() -> None:
    """The first replica's second block is full and written at 1.7, while it decodes: the last of three to stay in a
    store of three when another is written at 2.1, so the first block is gone by 2.5. Nothing is recorded, so that
    replicas may run ahead of each other."""
    trace = trace_of([(0.0, 16, 60), (1.0, 16, 1), (2.0, 16, 1), (2.5, 32, 1)], hash_ids=[[0], [10], [20], [0, 99]])
    options = {"kv_remote_bandwidth": float("inf"), "data_parallel_size": 4}
    three, four = (replay(trace, Scenario(**PLAIN | options, kv_remote_size=size * GIB_A_BLOCK)) for size in (3, 4))
    assert column(three, "remote_cached_tokens") == [0, 0, 0, 0]
    assert column(four, "remote_cached_tokens") == [0, 0, 0, 16]


def test_a_scenario_without_tiers_has_no_tier_columns() -> None:
    found = served(prompts(A, B, A))
    assert "load_s" not in found.requests.columns
    assert found.summary["mean_load_ms"] is None
    assert found.summary["gpu_hit_rate"] is None
    assert replace(Scenario(**PLAIN)).kv_write_policy == "write_through"
