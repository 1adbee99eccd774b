"""LoRA adapters: who is passed over, what is brought to the GPU, and what it takes in time and memory."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from helpers import batches, play, trace_of
from hypothesis import given, settings
from hypothesis import strategies as some
from steps import stack_of, step, terms_of

from planner.catalog.catalog_files import load_gpu, load_model
from planner.deployment.deploy import deploy
from planner.errors import UsageError
from planner.replays.result_tables import ReplayResult
from planner.run import replay
from planner.settings.scenario import Scenario
from planner.steptime.lora import adapter_bytes
from planner.traces import read_trace

LLAMA = {"model": "llama-3.1-8b", "gpu": "h100-sxm"}
LAYER_VALUES = 4096 * 3 + 6144 + 4096 * 2 + 4096 * 2 + 28672 + 14336 + 4096  # (slices · k + n) of its four products


def played(adapters: Sequence[str | None], rows: list[tuple[float, int, int]] | None = None,
           **options: Any) -> ReplayResult:
    rows = rows or [(0.0, 4, 3)] * len(adapters)
    return play(trace_of(rows, adapter=adapters), **{"max_loras": 1} | options)


def test_requests_of_other_adapters_are_passed_over() -> None:
    """One adapter at a time: b waits while the second request of a, behind it, runs, and one without an adapter."""
    result = played(["a", "b", "a", None])
    assert batches(result) == [{"0": 4, "2": 4, "3": 4}, *[{"0": 1, "2": 1, "3": 1}] * 2, {"1": 4}, {"1": 1}, {"1": 1}]
    steps = result.steps_table()
    assert steps["stopped_by"].to_list() == ["max_loras"] * 3 + [None] * 3
    assert steps["num_adapters"].to_list() == [1] * 6
    assert result.records.engine.total_adapter_loads == 2


def test_as_many_adapters_run_as_may() -> None:
    assert batches(played(["a", "b", "c", "a"], max_loras=2))[0] == {"0": 4, "1": 4, "3": 4}


def test_what_does_not_fit_still_blocks_those_behind_it() -> None:
    """A seat for two: b is passed over, the second a takes the other seat, and c waits for it whatever its adapter."""
    result = played(["a", "b", "a", None], max_num_seqs=2)
    assert batches(result)[0] == {"0": 4, "2": 4}
    assert batches(result)[3] == {"1": 4, "3": 4}


def test_the_adapter_used_longest_ago_goes_first() -> None:
    """Two places, one after the other: a, b, a, c, b, a. c takes b's, b takes a's, a takes c's."""
    order = ["a", "b", "a", "c", "b", "a"]
    rows = [(float(k), 4, 1) for k in range(len(order))]
    assert played(order, rows, max_loras=2).records.engine.total_adapter_loads == 5
    assert played(order, rows, max_loras=3).records.engine.total_adapter_loads == 3


def test_loads_take_the_host_link_and_reads_the_disk() -> None:
    """Rank 16 is 80 MiB: from the host over PCIe, at first from disk at 2 GB/s; c drives b out of the host, not a."""
    order = ["a", "b", "a", "c", "a"]
    trace = trace_of([(float(k), 100, 1) for k in range(len(order))], adapter=order)
    scenario = Scenario(**LLAMA, max_loras=1, max_cpu_loras=2, async_scheduling=False)  # type: ignore[arg-type]
    found = replay(trace, scenario, recording=_steps()).result.steps_table()["adapter_load_s"].to_list()
    size = 32 * 2 * 16 * LAYER_VALUES
    assert size == adapter_bytes(load_model("llama-3.1-8b"), 16, 1) == 80 * 2**20
    load_s, read_s = size / load_gpu("h100-sxm").host_bandwidth_bytes_per_s, size / 2e9
    assert found == pytest.approx([load_s + read_s, load_s + read_s, load_s, load_s + read_s, load_s])
    small = replace(scenario, max_cpu_loras=1)
    found = replay(trace, small, recording=_steps()).result.steps_table()["adapter_load_s"].to_list()
    assert found == pytest.approx([load_s + read_s] * 5)


def _steps() -> Any:
    from planner.loop.state.engine_settings import Recording
    return Recording(steps=True)


def test_places_are_taken_from_the_kv_cache() -> None:
    plain, four = (deploy(Scenario(**LLAMA, max_loras=places)).memory for places in (0, 4))  # type: ignore[arg-type]
    assert plain is not None
    assert four is not None
    assert four.kv_bytes == plain.kv_bytes - 4 * 80 * 2**20


def test_kernels_take_time_by_step_token_and_adapter() -> None:
    stack = replace(stack_of(), lora_rank=16)
    row = step(0, 8, 1000)
    assert terms_of(stack, row) == terms_of(stack_of(), row)
    row.num_adapters = 1
    one_s = terms_of(stack, row)["adapters_s"]
    floors_s = 2 * 4 * 32 * stack.constants.kernel_floor_s
    bandwidth = stack.gpu.hbm_bandwidth_bytes_per_s
    values = 32 * (4096 * 3 + 14336 + 2 * 16 * (3 + 1 + 2 + 1) + 2 * (6144 + 4096 + 28672 + 4096))
    assert one_s == pytest.approx(floors_s + (8 * 2 * values + 80 * 2**20) / bandwidth)
    row.num_adapters = 3
    assert terms_of(stack, row)["adapters_s"] - one_s == pytest.approx(2 * 80 * 2**20 / bandwidth)


def test_prefixes_are_shared_within_an_adapter_alone() -> None:
    rows, ids = [(0.1 * k, 32, 1) for k in range(4)], [[1, 2]] * 4
    trace = trace_of(rows, adapter=["a", "b", None, "a"], hash_ids=ids, hash_block_tokens=16)
    table = play(trace, max_loras=2).requests_table()
    assert table["num_cached_tokens"].to_list() == [0, 0, 0, 16]
    assert play(trace).requests_table()["num_cached_tokens"].to_list() == [0, 16, 16, 16]


def test_files_name_adapters(tmp_path: Any) -> None:
    path = tmp_path / "t.csv"
    path.write_text("arrival_s,input_tokens,output_tokens,adapter\n0,10,5,sql\n1,10,5,\n2,10,5,chat\n")
    assert read_trace(str(path)).requests["adapter"].to_list() == ["sql", None, "chat"]
    summary = replay(read_trace(str(path)), Scenario(**LLAMA)).summary  # type: ignore[arg-type]
    assert "the trace's LoRA adapters are ignored; --max-loras replays them" in summary["notes"]
    assert summary["num_adapter_loads"] is None
    found = replay(read_trace(str(path)), Scenario(**LLAMA, max_loras=2)).summary  # type: ignore[arg-type]
    assert found["num_adapter_loads"] == 2


@pytest.mark.parametrize("options", [{"max_loras": -1}, {"max_lora_rank": 0}, {"lora_disk_bandwidth": 0.0},
                                     {"max_loras": 4, "max_cpu_loras": 2}])
def test_options_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"must be (at least|above)"):
        Scenario(**options)


CASES = some.lists(some.tuples(some.integers(0, 20), some.integers(1, 30), some.integers(1, 15),
                               some.sampled_from(("a", "b", "c", "d", None))), min_size=1, max_size=12)


@settings(max_examples=30)
@given(case=CASES, max_loras=some.integers(1, 3), policy=some.sampled_from(("fcfs", "priority", "sglang", "vllm-v0")),
       blocks=some.integers(8, 60), depth=some.sampled_from((1, 2)))
def test_no_step_has_more_adapters_than_may_be(case: Any, max_loras: int, policy: str, blocks: int, depth: int) -> None:
    rows = sorted((0.01 * tick, *rest) for tick, *rest in [(t, i, o, a or "") for t, i, o, a in case])
    adapters = [row[3] or None for row in rows]
    result = played(adapters, [row[:3] for row in rows], max_loras=max_loras, policy=policy, num_gpu_blocks=blocks,
                    block_size=4, max_model_len=60, pipeline_parallel_size=depth)
    for batch in batches(result):
        assert len({adapters[int(i)] for i in batch} - {None}) <= max_loras
    engine = result.records.engine
    assert engine.num_adapters == engine.num_running == engine.num_waiting == 0
    assert engine.num_free_blocks == blocks
    assert len(set(adapters) - {None}) >= min(engine.total_adapter_loads, 1)
    assert (result.steps_table()["num_adapters"] <= max_loras).all()


@settings(max_examples=30)
@given(case=CASES, policy=some.sampled_from(("fcfs", "priority", "sglang")))
def test_with_a_place_for_each_adapter_nothing_changes(case: Any, policy: str) -> None:
    """Where the step time is a line and no prefix is shared, all that adapters do is wait for a place."""
    rows = sorted((0.01 * tick, *rest) for tick, *rest in [(t, i, o, a or "") for t, i, o, a in case])
    plain, adapted = (played([row[3] or None for row in rows], [row[:3] for row in rows], max_loras=places,
                             policy=policy, max_num_seqs=4) for places in (0, 4))
    assert plain.requests_table().equals(adapted.requests_table(), null_equal=True)
