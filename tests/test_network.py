"""Replicas over several nodes: formulas by hand, laws of the network, stages, and what is refused."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers import play, trace_of
from hypothesis import given
from hypothesis import strategies as some
from steps import stack_of, step, terms_of

from planner.deployment.deploy import deploy, resolve
from planner.errors import UsageError
from planner.model.layout import Layout
from planner.model.node_link import NodeLink
from planner.results.notes import notes
from planner.run import replay
from planner.settings.scenario import Scenario
from planner.steptime.collective_time import collectives_s
from planner.steptime.operators.network import network_s
from planner.steptime.step_context import StepContext

LINK = NodeLink(bandwidth_bytes_per_s=50e9, latency_s=5e-6)
OPS = ("all_reduce", "all_gather", "reduce_scatter", "alltoall")
TWO_NODES: dict[str, Any] = {"model": "llama-3.1-405b", "gpu": "h100-sxm", "quantization": "fp8",
                             "inter_node_bandwidth": 50.0}


def stack_over_nodes(layout: Layout, link: NodeLink = LINK, model: str = "llama-3.1-405b",
                     **changes: Any) -> StepContext:
    return replace(stack_of(model, layout=layout), node_link=link, **changes)


@pytest.mark.parametrize(("op", "num_nodes", "per_node", "steps", "sent"), [
    ("all_reduce", 2, 8, 2, 2 * 1 / 2 * 1e6),  # an eighth of the message, twice the half of it
    ("all_reduce", 4, 8, 4, 2 * 3 / 4 * 1e6),
    ("all_reduce", 3, 8, 4, 2 * 2 / 3 * 1e6),
    ("all_gather", 4, 8, 2, 3 / 4 * 1e6),
    ("reduce_scatter", 4, 8, 2, 3 / 4 * 1e6),
    ("alltoall", 4, 8, 3, 3 / 4 * 8e6),  # each GPU sends its own
    ("all_reduce", 2, 1, 2, 8e6),
    ("all_reduce", 1, 8, 0, 0.0),
])
def test_formulas_by_hand(op: str, num_nodes: int, per_node: int, steps: int, sent: float) -> None:
    found = float(network_s(8e6, op=op, num_nodes=num_nodes, gpus_per_node=per_node, link=LINK))
    assert found == pytest.approx(steps * 5e-6 + sent / 50e9, rel=1e-12)


def test_an_operation_without_a_formula_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown collective 'broadcast'; one of all_reduce"):
        network_s(1.0, op="broadcast", num_nodes=2, gpus_per_node=8, link=LINK)


@given(op=some.sampled_from(OPS), sizes=some.tuples(some.floats(0, 1e9), some.floats(0, 1e9)),
       nodes=some.tuples(some.integers(1, 32), some.integers(1, 32)), per_node=some.sampled_from((1, 2, 4, 8, 72)),
       slower=some.floats(1, 100))
def test_more_bytes_more_nodes_and_slower_links_take_no_less(op: str, sizes: tuple[float, float],
                                                             nodes: tuple[int, int], per_node: int,
                                                             slower: float) -> None:
    few, many = sorted(nodes)
    small, large = sorted(sizes)
    least = float(network_s(small, op=op, num_nodes=few, gpus_per_node=per_node, link=LINK))
    assert 0 <= least <= float(network_s(large, op=op, num_nodes=few, gpus_per_node=per_node, link=LINK))
    assert least <= float(network_s(small, op=op, num_nodes=many, gpus_per_node=per_node, link=LINK))
    slow = NodeLink(bandwidth_bytes_per_s=50e9 / slower, latency_s=5e-6 * slower)
    assert least <= float(network_s(small, op=op, num_nodes=few, gpus_per_node=per_node, link=slow)) * (1 + 1e-12)


@given(op=some.sampled_from(("all_reduce", "all_gather", "reduce_scatter")), num_bytes=some.floats(1, 1e9),
       nodes=some.sampled_from((2, 4, 8)), fast=some.sampled_from((50e9, 1e15)))
def test_over_nodes_is_never_faster_than_inside_one(op: str, num_bytes: float, nodes: int, fast: float) -> None:
    """However fast the network: neither than eight GPUs of one node, nor than as many in one."""
    link = NodeLink(bandwidth_bytes_per_s=fast, latency_s=0.0)
    stack = stack_over_nodes(Layout(tensor_parallel_size=8 * nodes), link)
    one = replace(stack, gpu=replace(stack.gpu, gpus_per_node=8 * nodes))
    size = np.array([num_bytes])
    over_s = collectives_s(stack, size, op, 8 * nodes)
    assert over_s >= collectives_s(one, size, op, 8 * nodes)
    assert over_s >= collectives_s(one, size, op, 8)


def test_a_step_over_two_nodes_takes_what_the_network_adds() -> None:
    """Two all-reduces a layer of 64 hidden states, and the gathered logits: the rest of the step is as in one node."""
    layout = Layout(tensor_parallel_size=16)
    stack = stack_over_nodes(layout)
    one = replace(stack, gpu=replace(stack.gpu, gpus_per_node=16))
    row = step(0, 64, 1000)
    over, inside = terms_of(stack, row), terms_of(one, row)
    added_s = 2 * stack.arch.num_layers * float(network_s(
        64 * 2 * stack.arch.hidden_size, op="all_reduce", num_nodes=2, gpus_per_node=8, link=LINK))
    assert over["collectives_s"] - inside["collectives_s"] == pytest.approx(added_s, rel=1e-6)
    assert over["linear_s"] == inside["linear_s"]


def test_data_parallel_ranks_gather_over_nodes() -> None:
    layout = Layout(data_parallel_size=16, expert_parallel_size=16)
    stack = stack_over_nodes(layout, model="deepseek-v3")
    one = replace(stack, gpu=replace(stack.gpu, gpus_per_node=16))
    row = step(0, 8, 1000)
    assert terms_of(stack, row)["collectives_s"] > terms_of(one, row)["collectives_s"] > 0


def test_stages_hand_on_over_the_network() -> None:
    """Two states of 16,384 in 16 bit, a part of each GPU's over 50 GB/s and gathered at 450, and a message.

    Of four stages of four GPUs one step of three crosses nodes.
    """
    state = 2 * 2 * 16384
    trace = trace_of([(0.0, 10, 1)])
    two = resolve(Scenario(**TWO_NODES, tensor_parallel_size=8, pipeline_parallel_size=2), trace).settings
    assert two.stage_transfer_s_per_token == pytest.approx(state / 8 * (1 / 50e9 + 7 / 450e9), rel=1e-12)
    assert two.stage_transfer_latency_s == 55e-6
    four = resolve(Scenario(**TWO_NODES, tensor_parallel_size=4, pipeline_parallel_size=4), trace).settings
    assert four.stage_transfer_s_per_token == pytest.approx(
        state / 4 * (3 / 450e9 + (2 / 450e9 + 1 / 50e9) / 3), rel=1e-12)
    assert four.stage_transfer_latency_s == pytest.approx(55e-6 / 3, rel=1e-12)
    inside = resolve(Scenario(**TWO_NODES, tensor_parallel_size=4, pipeline_parallel_size=2), trace).settings
    assert inside.stage_transfer_s_per_token == pytest.approx(state / 450e9, rel=1e-12)
    assert inside.stage_transfer_latency_s == 0.0


def test_a_request_waits_for_the_network() -> None:
    """A step of a second in two halves, and between them ten tokens' states and a message of a second."""
    options = TWO_NODES | {"tensor_parallel_size": 8, "pipeline_parallel_size": 2, "inter_node_latency": 1.0,
                           "step_time": "linear:1,0"}
    result = play([(0.0, 10, 1)], **options)
    assert float(result.records.requests.finished_s[0]) == pytest.approx(
        2.0 + 10 * 2 * 2 * 16384 / 8 * (1 / 50e9 + 7 / 450e9), rel=1e-12)


@pytest.mark.parametrize(("layout", "crossings"), [
    (Layout(tensor_parallel_size=8), 0), (Layout(tensor_parallel_size=8, pipeline_parallel_size=3), 2),
    (Layout(tensor_parallel_size=2, pipeline_parallel_size=12), 2), (Layout(pipeline_parallel_size=8), 0),
    (Layout(tensor_parallel_size=16, pipeline_parallel_size=2), 1),
])
def test_stages_that_begin_a_node(layout: Layout, crossings: int) -> None:
    assert layout.num_node_crossings(8) == crossings


def test_what_is_refused() -> None:
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"tensor_parallel_size": 16, "gpu": "a100-sxm"},
         "16 a100-sxm spans 2 nodes of 8: give --inter-node-bandwidth"),
        ({"tensor_parallel_size": 12}, "tensor_parallel_size = 12 on nodes of 8 GPUs: where a replica spans"),
        ({"tensor_parallel_size": 3, "pipeline_parallel_size": 3}, "= 3 on nodes of 8"),
        ({"tensor_parallel_size": 16, "inter_node_bandwidth": 0.0}, "inter_node_bandwidth = 0: must be above 0"),
        ({"tensor_parallel_size": 16, "inter_node_bandwidth": 50.0, "inter_node_latency": -1.0}, "not be negative"),
    )
    for options, said in cases:
        with pytest.raises(UsageError, match=said):
            deploy(Scenario(**{"model": "llama-3.1-405b", "gpu": "h100-sxm", **options}))


@pytest.mark.parametrize(("gpu", "bandwidth"), [("h100-sxm", 50.0), ("b300-sxm", 100.0), ("mi355x", 50.0)])
def test_a_replica_over_nodes_has_the_published_network_and_a_note(gpu: str, bandwidth: float) -> None:
    """The option overrides it, without the note."""
    options: dict[str, Any] = {"model": "llama-3.1-405b", "gpu": gpu, "tensor_parallel_size": 16}
    published = deploy(Scenario(**options))
    stated = deploy(Scenario(**options, inter_node_bandwidth=bandwidth))
    assert published.stack is not None
    assert published.stack.node_link == NodeLink(bandwidth_bytes_per_s=bandwidth * 1e9, latency_s=55e-6)
    assert published.step_time.curve.tobytes() == stated.step_time.curve.tobytes()
    about = f"the network of published {gpu} clusters applies, {bandwidth:g} GB/s per GPU"
    assert any(about in note for note in notes(published, trace_of([(0.0, 10, 2)])))
    assert not any(about in note for note in notes(stated, trace_of([(0.0, 10, 2)])))


def test_nobody_has_measured_it() -> None:
    trace = trace_of([(0.0, 10, 1)])
    over, inside = (notes(resolve(Scenario(**TWO_NODES, tensor_parallel_size=size), trace), trace) for size in (16, 8))
    assert any("collectives between nodes" in note for note in over)
    assert not any("between nodes" in note for note in inside)


def test_two_nodes_of_h100_take_what_they_were_measured_with() -> None:
    """DeepSeek-R1 in FP8, TP16, SGLang, one request at a time: TPOT of 23.1 to 24.0 ms (tt-inference-server#356)."""
    found = replay(trace_of([(0.0, 1024, 32)]), Scenario(
        model="deepseek-v3", gpu="h100-sxm", engine="sglang", engine_version="0.4.8", tensor_parallel_size=16,
        inter_node_bandwidth=50.0)).summary
    assert found["mean_tpot_ms"] == pytest.approx(23.5, rel=0.15)
