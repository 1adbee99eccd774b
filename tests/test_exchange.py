"""Exchange of tokens with their experts: measured times, the engine's choice of kernels, and laws."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from numpy.typing import NDArray

from planner.catalog.catalog_files import load_gpu, load_model
from planner.catalog.layers.mlps import Experts
from planner.deployment.deploy import deploy
from planner.errors import UsageError
from planner.model.layout import Layout
from planner.model.node_link import NodeLink
from planner.settings.scenario import Scenario
from planner.steptime.engine_constants import load_engine
from planner.steptime.exchange_time import EMPTY_ROW_S, LOW_LATENCY_TOKENS, exchange, layer_exchange_s
from planner.steptime.expert_time import moe_kernels, routed_experts
from planner.steptime.operators.exchange import ExchangeConstants, exchange_s
from planner.steptime.step_context import StepContext

NODES = NodeLink(bandwidth_bytes_per_s=50e9, latency_s=5e-6)


def wide(gpu: str, ranks: int, exchange: str, *, engine: str = "sglang", model: str = "deepseek-v3") -> StepContext:
    layout = Layout(data_parallel_size=ranks, expert_parallel_size=ranks, exchange=exchange)
    stack = StepContext(arch=load_model(model), gpu=load_gpu(gpu), layout=layout, engine=engine, quantization=None,
                        kv_bytes_per_element=2.0, graph_seqs=512, graph_tokens=512, is_overlapped=True,
                        constants=replace(load_engine(engine), collective_wait_s=1e-7, experts_ratio=1.0))
    return replace(stack, node_link=NODES) if ranks > stack.gpu.gpus_per_node else stack


def exchanged_us(stack: StepContext, tokens: float) -> float:
    (experts,) = (mlp for _, mlp in stack.arch.mlps_of(Experts))
    there_s, back_s = layer_exchange_s(stack, experts, np.array([tokens]))
    return float(there_s[0] + back_s[0]) * 1e6


@pytest.mark.parametrize(("gpu", "ranks", "exchange", "tokens", "measured_us", "within"), [
    ("gb200", 4, "deepep_low_latency", 64, 21.6 + 26.0, 0.2),
    ("gb200", 4, "deepep_low_latency", 512, 62.6 + 92.0, 0.2),
    ("gb200", 4, "deepep_high_throughput", 4096, 420.7 + 699.2, 0.35),
    ("h100-sxm", 8, "deepep_low_latency", 128, 39.8 + 72.4, 0.2),
    ("h100-sxm", 16, "deepep_low_latency", 128, 102.1 + 186.2, 0.2),  # over two nodes
    ("h100-sxm", 64, "deepep_low_latency", 128, 166.8 + 304.7, 0.2),
])
def test_an_exchange_takes_what_was_measured(gpu: str, ranks: int, exchange: str, tokens: float,
                                             measured_us: float, within: float) -> None:
    """DeepSeek-V3 in FP8, 8 of 256 experts: sending there and bringing back."""
    assert exchanged_us(wide(gpu, ranks, exchange), tokens) == pytest.approx(measured_us, rel=within)


def test_deepep_takes_low_latency_kernels_as_far_as_their_buffers_go() -> None:
    chosen = wide("h100-sxm", 16, "deepep")
    for tokens, kernel in ((LOW_LATENCY_TOKENS, "deepep_low_latency"), (129, "deepep_high_throughput")):
        assert exchanged_us(chosen, tokens) == exchanged_us(wide("h100-sxm", 16, kernel), tokens)


def test_experts_behind_an_exchange_have_kernels_of_their_own() -> None:
    """SGLang's DeepEP MoE on GB200: 0.159 ms a layer for 4,096 tokens over 32 GPUs; all tokens on each take longer."""
    stack = wide("gb200", 32, "deepep_low_latency")
    (sent,) = routed_experts(stack, np.array([128.0]))
    (gathered,) = routed_experts(wide("gb200", 32, "allgather_reducescatter"), np.array([128.0]))
    assert float(sent.curve["experts_s"][0]) / 58 == pytest.approx(0.159e-3, rel=0.25)
    assert float(gathered.curve["experts_s"][0]) > 2 * float(sent.curve["experts_s"][0])
    assert moe_kernels(stack)[1][0].row["kernel"] == "deepep_masked"


def test_formats_that_nobody_measured_behind_an_exchange_take_other_kernels() -> None:
    stack = wide("h200-sxm", 8, "deepep", model="qwen3-235b-a22b")
    assert moe_kernels(stack)[0] == "bfloat16"


@given(sent=some.floats(0, 1e9), gpus=some.sampled_from((2, 4, 8, 16, 72)), link=some.floats(50e9, 1e12),
       nodes=some.sampled_from((1, 2, 8)))
def test_an_exchange_is_never_slower_over_a_faster_link_nor_faster_with_more(sent: float, gpus: int, link: float,
                                                                            nodes: int) -> None:
    constants = ExchangeConstants(latency_s=1e-5, doubling_s=1e-6, bandwidth_frac=0.5, network_frac=0.9)

    def time_s(bytes_of_copy: float, *, faster: float = 1.0) -> float:
        return float(exchange_s(bytes_of_copy, per_gpu=5.0, per_node=2.0, num_gpus=gpus * nodes, num_nodes=nodes,
                                link_bandwidth_bytes_per_s=faster * link, constants=constants,
                                node_link=NodeLink(bandwidth_bytes_per_s=faster * 50e9, latency_s=0.0)))

    assert time_s(sent, faster=2.0) <= time_s(sent) <= time_s(2 * sent)


@pytest.mark.parametrize("ranks", [8, 16])
def test_experts_start_for_each_empty_row_of_the_buffer(ranks: int) -> None:
    stack, counts = wide("mi355x", ranks, "mori"), np.array([16.0, 4096.0, 20000.0])

    def exchanged_s(tokens: int) -> NDArray[np.float64]:
        (part,) = exchange(replace(stack, dispatch_tokens=tokens), counts)
        return np.asarray(part.curve["collectives_s"])

    more_s = exchanged_s(16384) - exchanged_s(0)
    assert more_s == pytest.approx([58 * EMPTY_ROW_S * ranks * empty for empty in (16368, 12288, 0)])


def test_a_buffer_without_mori_is_refused() -> None:
    with pytest.raises(UsageError, match="only tokens that MoRI sends"):
        deploy(Scenario(model="deepseek-r1", gpu="mi355x", engine="sglang", tensor_parallel_size=8,
                        dispatch_tokens_per_rank=512))
