"""The step-time model keeps to physics: never below the hardware's floor, and monotone in hardware and load."""

import doctest
from dataclasses import replace
from importlib import import_module
from inspect import isabstract
from pkgutil import iter_modules
from typing import Any

import numpy as np
import pytest
from architectures import attention_of, experts_of
from helpers import num_drawn, trace_of
from hypothesis import given
from hypothesis import strategies as some
from steps import ENGINES, TEXT_ENGINES, gpu_seconds, seconds, stack_of, step, terms_of, with_constants

from planner.catalog import layers
from planner.catalog.attention_reads import readings, window_tokens
from planner.catalog.catalog_files import gpu_names, load_gpu, model_names
from planner.catalog.layers.gqa import Gqa
from planner.catalog.layers.indexers import Indexer
from planner.catalog.layers.latent import Mla
from planner.catalog.layers.layer_group import Attention
from planner.catalog.layers.linear_layers import LinearAttention
from planner.catalog.layers.mlps import Experts, MlpGroup
from planner.catalog.parameters import num_active_parameters
from planner.deployment.engine_limits import graph_sizes
from planner.errors import UsageError
from planner.loop.state.engine_settings import Recording
from planner.model.drafting import Draft
from planner.model.layout import ALL_GATHER, Layout
from planner.model.node_link import NodeLink
from planner.model.precision import WEIGHT_FORMATS, expert_format, weight_format
from planner.model.projections import projections
from planner.model.small_kernels import small_kernels
from planner.run import replay
from planner.settings.scenario import Scenario
from planner.steptime import contribution
from planner.steptime.attention_time import OPERATORS
from planner.steptime.by_term import TERMS, linear, step_terms
from planner.steptime.collective_time import collective_fit, collectives_s
from planner.steptime.dense_time import gemms_s
from planner.steptime.engine_constants import bounds
from planner.steptime.exchange_time import layer_exchange_s
from planner.steptime.expert_time import layer_experts_s, moe_kernels, routed_experts
from planner.steptime.host_time import decode_launch_s, host_times, launches_s, prompt_launch_s
from planner.steptime.indexer_time import INDEX_KERNELS
from planner.steptime.roofline import contributions, padded, priors, roofline
from planner.steptime.step_context import StepContext

MODELS = ("llama-3.1-8b", "gemma-2-9b", "mixtral-8x7b", "gpt-oss-120b", "deepseek-v3", "glm-5", "qwen3.5-397b-a17b",
          "deepseek-v4-flash")
LAYOUTS = (*(Layout(tensor_parallel_size=ranks) for ranks in (1, 2, 4, 8)),
           Layout(tensor_parallel_size=8, expert_parallel_size=8), Layout(data_parallel_size=8, expert_parallel_size=8),
           Layout(data_parallel_size=8, expert_parallel_size=8, exchange="deepep"))
LOADS = ((0, 1, 1000), (0, 64, 1000), (0, 64, 100_000), (512, 0, 0), (8192, 0, 0), (1024, 128, 1000))
LOWEST = {name: low for name, (low, _) in bounds().items()}
OWN = ("h100-sxm", "mi300x")
STACKS = {"dense": stack_of(), "sliding": stack_of("gpt-oss-120b"),
          "linear": stack_of("qwen3.5-35b-a3b", "b200-sxm", "sglang"),
          "latent": stack_of("deepseek-v3", "h200-sxm", "trtllm", Layout(tensor_parallel_size=8)),
          "compressed": stack_of("deepseek-v4-flash", "b200-sxm", "sglang", Layout(tensor_parallel_size=4),
                                 kv_bytes_per_element=1.0),
          "sparse": stack_of("glm-5", "b300-sxm", "sglang", Layout(data_parallel_size=8, expert_parallel_size=8))}
LESS = 1 - 1e-12  # sums are rounded
LINK = NodeLink(bandwidth_bytes_per_s=50e9, latency_s=5e-6)


def floor_s(stack: StepContext, prompt: int, decodes: int, context: int) -> float:
    """Return what one GPU needs at least: its share of the arithmetic at the highest peak, or of what must be read."""
    arch, gpu, layout = stack.arch, stack.gpu, stack.layout
    row, seen = step(prompt, decodes, context, window=window_tokens(arch)), min(context, window_tokens(arch))
    element, of_experts = (WEIGHT_FORMATS[format_of(arch, stack.quantization)].bytes_per_element
                           for format_of in (weight_format, expert_format))
    head = arch.vocab_size * arch.hidden_size
    layers = num_active_parameters(arch) - head
    experts = sum(count * of.num_experts_per_tok * of.expert_parameters(arch.hidden_size)
                  for count, of in arch.mlps_of(Experts))
    read = element * (layers - experts) + of_experts * experts + 2 * head
    flops = 2.0 * layers * (prompt + decodes) + 2.0 * head * (decodes + (prompt > 0))
    for kind in readings(arch):
        entries = decodes * (kind.context * context + kind.window * seen + kind.recent)
        is_dsa = isinstance(kind.attention, Mla) and kind.attention.is_sparse
        if not is_dsa:  # of which the planner reads less than its cache has
            read += kind.attention.kv_bytes(stack.kv_bytes_per_element, 1) * entries
        prompt_entries = (kind.context * int(row.prompt_pairs[0]) + kind.window * int(row.window_pairs[0])
                          + kind.recent * prompt)
        flops += (kind.attention.flops_per_pair(is_decode=False) * prompt_entries
                  + kind.attention.flops_per_pair(is_decode=True) * entries)
    ranks, experts = layout.tensor_parallel_size, layout.num_expert_gpus  # data-parallel ranks have loads of their own
    return max(flops / ranks / max(gpu.flops_per_s.values()), read / experts / gpu.hbm_bandwidth_bytes_per_s)


# `make quick` looks at one GPU.
@pytest.mark.parametrize("gpu", [pytest.param(gpu, marks=[] if gpu == "h100-sxm" else [pytest.mark.slow])
                                 for gpu in gpu_names()])
@pytest.mark.parametrize("model", MODELS)
def test_no_step_beats_the_floor(gpu: str, model: str) -> None:
    """Not with the most optimistic constants, and on one GPU of each maker not with the engines' own.

    Other GPUs take the engines in turn; with PLANNER_LAWS=all each has them all.
    """
    turn = (gpu_names().index(gpu) + MODELS.index(model)) % len(ENGINES)
    for engine in ENGINES if gpu in OWN else [*ENGINES[turn:], *ENGINES[:turn]][:num_drawn(1, len(ENGINES))]:
        for layout in LAYOUTS:
            stack = stack_of(model, gpu, engine, layout)
            if layout.num_gpus > stack.gpu.gpus_per_node:
                continue  # over a network, which is another time
            hopeful = with_constants(stack, **LOWEST)
            step_times = [roofline(each) for each in ((stack, hopeful) if gpu in OWN else (hopeful,))]
            for prompt, decodes, context in LOADS:
                row = step(prompt, decodes, context, window=window_tokens(stack.arch))
                least_s = floor_s(stack, prompt, decodes, context)
                for step_time in step_times:
                    taken = sum(float(values[0]) for values in step_terms(step_time, row, 0.0).values())
                    assert taken >= least_s, (engine, layout, prompt, decodes, context)


@pytest.mark.parametrize("drafted", [0, 3])
@pytest.mark.parametrize("engine", TEXT_ENGINES)
@pytest.mark.parametrize(("model", "gpu", "ranks"), [("llama-3.1-8b", "rtx-pro-6000", 1), ("gemma-2-9b", "l40s", 2),
                                                     ("glm-5", "b300-sxm", 8), ("qwen3.5-35b-a3b", "h100-sxm", 2)])
def test_no_replay_uses_more_than_the_hardware_has(model: str, gpu: str, ranks: int, engine: str,
                                                   drafted: int) -> None:
    scenario = Scenario(model=model, gpu=gpu, engine=engine, tensor_parallel_size=ranks,
                        max_num_seqs=64, kv_cache_dtype="fp8", num_speculative_tokens=drafted,
                        speculative_acceptance="1")
    for rows in ([(0.0, 6000, 400)] * 64, [(0.0, 6000, 1)] * 32):
        summary = replay(trace_of(rows), scenario, slo=None, recording=Recording()).summary
        assert 0 < summary["mbu"] < 1
        assert 0 < summary["mfu"] < 1


@pytest.mark.parametrize("model", model_names())
def test_every_model_has_a_finite_step_time(model: str) -> None:
    terms = terms_of(stack_of(model), step(100, 10, 500))
    assert tuple(terms) == TERMS
    assert all(np.isfinite(value) and value >= 0 for value in terms.values())


@pytest.mark.parametrize("kind", STACKS)
@given(prompt=some.integers(0, 8192), decodes=some.integers(1, 1024), context=some.integers(1, 30_000))
def test_more_work_never_takes_less(kind: str, prompt: int, decodes: int, context: int) -> None:
    stack = STACKS[kind]
    base = LESS * seconds(stack, step(prompt, decodes, context))
    assert seconds(stack, step(prompt + 64, decodes, context)) >= base
    assert seconds(stack, step(prompt, decodes + 1, context)) >= base
    assert seconds(stack, step(prompt, decodes, context + 100)) >= base


@pytest.mark.parametrize("row", [step(0, 1, 100), step(0, 256, 4000), step(8192), step(2000, 48, 1000, cached=4000)])
@pytest.mark.parametrize("changed", ["hbm_bandwidth_bytes_per_s", "scale_up_bandwidth_bytes_per_s", "flops_per_s"])
@pytest.mark.parametrize("model", ["llama-3.1-8b", "gpt-oss-120b", "glm-5", "qwen3.5-35b-a3b"])
def test_doubling_a_peak_never_slows(model: str, row: Any, changed: str) -> None:
    stack = stack_of(model, layout=Layout(tensor_parallel_size=4))
    peak = getattr(stack.gpu, changed)
    doubled: Any = {name: 2 * value for name, value in peak.items()} if changed == "flops_per_s" else 2 * peak
    faster = replace(stack, gpu=replace(stack.gpu, **{changed: doubled}))
    assert gpu_seconds(stack, row) >= LESS * gpu_seconds(faster, row)
    assert seconds(stack, row) >= LESS * seconds(faster, row)


def test_tensor_parallelism_divides_the_weights_but_adds_collectives() -> None:
    found = {ranks: terms_of(stack_of(layout=Layout(tensor_parallel_size=ranks)), step(0, 32, 1000))
             for ranks in (1, 2, 8)}
    assert found[1]["linear_s"] / 2 < found[2]["linear_s"] < 0.6 * found[1]["linear_s"]
    assert found[1]["collectives_s"] == 0 < found[2]["collectives_s"] < found[8]["collectives_s"]


@pytest.mark.parametrize(("gpu", "num_gpus", "kind"), [
    ("l40s", 2, "l40s"), ("l40s", 8, "PCIe 4"), ("a100-pcie", 4, "PCIe 4"), ("h100-pcie", 2, "PCIe 5"),
    ("h100-sxm", 8, "h100-sxm")])
def test_unmeasured_collectives_are_those_of_the_same_link(gpu: str, num_gpus: int, kind: str) -> None:
    fit = collective_fit(stack_of(gpu=gpu), "all_reduce", num_gpus)
    assert (fit.row["gpu"], fit.is_measured) == (kind, kind == gpu)


def test_a_ring_over_pcie_4_has_the_bandwidth_of_a_pair() -> None:
    """Over 8 GPUs 14/8 of a message passes each link: 64 MiB take 1.75 times what two GPUs take, but for latency."""
    message = np.array([2.0**26, 2.0**27])
    pair, ring = (np.diff(collectives_s(stack_of(gpu="l40s"), message, "all_reduce", n)) for n in (2, 8))
    assert ring / pair == pytest.approx(1.75, rel=0.01)


def test_a_single_decode_is_bound_by_the_weights() -> None:
    """8.03e9 bf16 weights less the input embedding, over 3.35e12 B/s; kernels as fast as in their benchmark."""
    read_s = 2 * (8.03e9 - 128256 * 4096) / 3.35e12
    terms = terms_of(with_constants(stack_of(), linear_ratio=1.0), step(0, 1, 1))
    assert read_s < terms["linear_s"] + terms["lm_head_s"] < 1.25 * read_s


@pytest.mark.parametrize(("quantization", "is_shared"), [("nvfp4", True), ("fp8", True), ("fp8_block", False)])
def test_engines_share_the_kernels_of_libraries(quantization: str, is_shared: bool) -> None:
    constants = stack_of().constants
    stacks = [replace(stack_of("llama-3.1-70b", "b200-sxm", engine, quantization=quantization), constants=constants)
              for engine in ENGINES]
    times = [terms_of(stack, step(64, 64, 1000))["linear_s"] for stack in stacks]
    assert (max(times) < 1.000001 * min(times)) == is_shared


def test_blocks_scales_take_a_kernel_of_their_own() -> None:
    """One before each of four products of a layer, where the benchmark's own floor is longer."""
    stack = stack_of("llama-3.1-70b", "b200-sxm", "sglang", quantization="fp8_block")
    slow, fast = (terms_of(with_constants(stack, kernel_floor_s=floor_s), step(0, 1, 1))["linear_s"]
                  for floor_s in (4e-6, 3e-6))
    assert slow - fast == pytest.approx(80 * 4 * 2 * 1e-6, rel=0.01)


def test_sparse_prompts_pay_for_the_heads_that_they_are_padded_to() -> None:
    """GLM-5's 64 heads, and the 8 of a rank, run as 128 on Blackwell and as 64 on Hopper."""
    found = {(gpu, ranks): terms_of(stack_of("glm-5", gpu, "sglang", Layout(tensor_parallel_size=ranks)),
                                    step(8192, window=2048))["attention_prompt_s"]
             for gpu in ("b200-sxm", "h200-sxm") for ranks in (1, 8)}
    assert found["b200-sxm", 8] == found["b200-sxm", 1]
    assert found["h200-sxm", 8] == found["h200-sxm", 1]
    pairs = 2048 * 2049 / 2 + (8192 - 2048) * 2048
    padded_s = 78 * pairs * 2 * 128 * (2 * 512 + 64) / (0.645 * 2250e12)
    assert padded_s < found["b200-sxm", 8] < 1.3 * padded_s


@pytest.mark.parametrize(("ranks", "size", "touched"), [(8, 1, 5.295), (32, 1, 7.267), (4, 2, 5.295)])
def test_a_token_is_sent_to_the_gpus_that_have_its_experts(ranks: int, size: int, touched: float) -> None:
    """DeepSeek-V3 in FP8, 8 of 256 experts: one byte a value on the way there, two back, of 100 tokens a rank."""
    layout = Layout(tensor_parallel_size=size, data_parallel_size=ranks, expert_parallel_size=ranks * size,
                    exchange="alltoall")
    stack = replace(stack_of("deepseek-v3", "h200-sxm", layout=layout), node_link=LINK)
    copies = 100 / size * touched * 7168
    experts = experts_of(stack.arch)
    found = sum(layer_exchange_s(stack, experts, np.array([100.0])))
    there, back = (collectives_s(stack, np.array([width * copies]), "alltoall", ranks * size) for width in (1, 2))
    assert found == pytest.approx(there + back, rel=1e-3)
    to_all = replace(stack, layout=replace(layout, exchange=ALL_GATHER))
    gathered = sum(layer_exchange_s(to_all, experts, np.array([8192.0])))
    assert sum(layer_exchange_s(stack, experts, np.array([8192.0]))) < gathered
    assert "collectives" not in priors(stack) or ranks * size > 8


def test_a_norm_over_all_heads_adds_a_collective() -> None:
    stack = stack_of("minimax-m2.5", "b200-sxm", "vllm", Layout(tensor_parallel_size=4))
    (group,) = stack.arch.layers
    by_head = replace(group, attention=replace(attention_of(stack.arch, Gqa), norms_all_heads=False))
    plain = replace(stack, arch=replace(stack.arch, layers=(by_head,)))
    more_s = terms_of(stack, step(0, 8, 100))["collectives_s"] - terms_of(plain, step(0, 8, 100))["collectives_s"]
    assert 62 * 3e-6 < more_s < 62 * 3e-5


@pytest.mark.parametrize("gpu", ["h100-sxm", "b200-sxm"])
def test_quantized_weights_are_read_faster(gpu: str) -> None:
    formats = ("bf16", "fp8", "nvfp4") if gpu == "b200-sxm" else ("bf16", "fp8", "int4")
    times = [gpu_seconds(stack_of("llama-3.1-70b", gpu, quantization=name), step(0, 1, 1)) for name in formats]
    assert times == sorted(times, reverse=True)


def test_a_gpu_of_another_memory_reads_as_large_a_share_of_its_bandwidth() -> None:
    slower = 2.039 / 1.555  # TB/s of the A100 with 80 GB and with 40
    large, small = (gpu_seconds(stack_of("llama-2-7b", gpu), step(0, 1, 1)) for gpu in ("a100-sxm", "a100-sxm-40gb"))
    assert 1 + 0.8 * (slower - 1) < small / large < slower
    large, small = (gpu_seconds(stack_of("llama-2-7b", gpu), step(4096)) for gpu in ("a100-sxm", "a100-sxm-40gb"))
    assert 1 <= small / large < 1.05


def test_a_format_without_tensor_cores_for_it_computes_in_16_bit() -> None:
    a100, h100 = (stack_of("llama-3.1-8b", gpu, quantization="fp8") for gpu in ("a100-sxm", "h100-sxm"))
    assert gpu_seconds(a100, step(0, 1, 1)) < gpu_seconds(stack_of("llama-3.1-8b", "a100-sxm"), step(0, 1, 1))
    assert gpu_seconds(a100, step(8192)) > 2 * gpu_seconds(h100, step(8192))


def test_sliding_windows_cap_what_decodes_read() -> None:
    gemma = stack_of("gemma-2-9b")
    per_token = float(roofline(gemma).curve[8].decode_s_per_context_token)
    near, far = (terms_of(gemma, step(0, 8, context))["attention_decode_s"] for context in (4096, 8192))
    assert far - near == pytest.approx(8 * 4096 * per_token)
    before, at = (terms_of(gemma, step(0, 8, context))["attention_decode_s"] for context in (2048, 4096))
    assert at - before == pytest.approx(2 * 8 * 2048 * per_token)  # below it all layers read more


def test_sparse_attention_reads_top_k_tokens_and_the_indexers_keys() -> None:
    glm = stack_of("glm-5", "h200-sxm", layout=Layout(tensor_parallel_size=8))
    near, far = (terms_of(glm, step(0, 8, context))["attention_decode_s"] for context in (2048, 4096))
    keys_s = 78 * (128 + 4) / glm.gpu.hbm_bandwidth_bytes_per_s
    assert LESS * keys_s <= (far - near) / (8 * 2048) < 5 * keys_s


def test_linear_attention_costs_the_same_after_any_context() -> None:
    qwen = stack_of("qwen3.5-35b-a3b")
    per_token = roofline(qwen).curve[8].decode_s_per_context_token
    dense = stack_of("qwen3-30b-a3b")
    assert 0 < per_token < roofline(dense).curve[8].decode_s_per_context_token
    assert roofline(qwen).curve[8].decode_s > roofline(dense).curve[8].decode_s


def test_expert_parallelism_spreads_whole_experts() -> None:
    sliced, spread = (stack_of("qwen3-235b-a22b", "h200-sxm", quantization="fp8",
                               layout=Layout(tensor_parallel_size=8, expert_parallel_size=size)) for size in (1, 8))
    one = stack_of("qwen3-235b-a22b", "h200-sxm", quantization="fp8")
    for row in (step(0, 1, 1), step(0, 256, 1), step(8192)):
        alone_s, sliced_s, spread_s = (terms_of(stack, row)["experts_s"] for stack in (one, sliced, spread))
        assert sliced_s < alone_s
        assert spread_s < alone_s


def test_data_parallel_attention_sums_the_tokens_of_its_ranks() -> None:
    """Eight ranks with 64 decodes each send 512 tokens to one set of experts, and attend with all heads."""
    ranks = stack_of("deepseek-v3", "h200-sxm", layout=Layout(data_parallel_size=8, expert_parallel_size=8))
    shared = stack_of("deepseek-v3", "h200-sxm", layout=Layout(tensor_parallel_size=8, expert_parallel_size=8))
    own, whole = terms_of(ranks, step(0, 64, 1000)), terms_of(shared, step(0, 512, 1000))
    assert own["experts_s"] == pytest.approx(whole["experts_s"])
    assert own["attention_decode_s"] > terms_of(shared, step(0, 64, 1000))["attention_decode_s"]
    assert own["collectives_s"] > 0
    assert own["linear_s"] > terms_of(shared, step(0, 64, 1000))["linear_s"]


def test_a_step_checks_all_drafted_tokens() -> None:
    """Eight decodes with three drafted tokens each: the layers and the LM head see 32 tokens, the KV is read once."""
    drafted = Draft(method="ngram", acceptance=(0.5, 0.25, 0.125), arch=None, quantization="bf16", fused_inputs=0,
                    shares_head=False)
    drafting = replace(stack_of(), draft=drafted)
    checked, as_tokens = terms_of(drafting, step(0, 8, 1000)), terms_of(stack_of(), step(0, 32, 0))
    for name in ("linear_s", "activations_s", "lm_head_s"):
        assert checked[name] == as_tokens[name]
    assert checked["attention_decode_s"] == terms_of(stack_of(), step(0, 8, 1000))["attention_decode_s"]
    assert checked["draft_s"] == 0


def test_pipeline_stages_take_one_step_together() -> None:
    """A batch passes all stages one after the other."""
    staged = stack_of(layout=Layout(pipeline_parallel_size=4))
    assert seconds(staged, step(0, 8, 100)) == seconds(stack_of(), step(0, 8, 100))


def test_cuda_graphs_pad_batches() -> None:
    eight, nine, sixteen = (terms_of(stack_of(), step(0, decodes, 1)) for decodes in (8, 9, 16))
    assert eight["linear_s"] < nine["linear_s"] == sixteen["linear_s"]
    sizes = padded(np.arange(2000))
    assert (np.diff(sizes) >= 0).all()
    assert (sizes >= np.arange(2000)).all()


def test_without_a_graph_the_host_launches_every_kernel() -> None:
    graphs = with_constants(stack_of(), launch_s_per_layer=2e-3, decode_launch_s_per_layer=1e-3)
    prompt_s, decode_s = 64e-3, 32e-3
    eager = replace(graphs, graph_seqs=0, graph_tokens=0)
    assert gpu_seconds(eager, step(0, 8, 100)) == pytest.approx(gpu_seconds(graphs, step(0, 8, 100)))
    assert prompt_s > seconds(eager, step(0, 8, 100)) >= decode_s > seconds(graphs, step(0, 8, 100))
    decode_only = replace(graphs, graph_tokens=0)
    assert seconds(decode_only, step(0, 8, 100)) == seconds(graphs, step(0, 8, 100))
    assert seconds(decode_only, step(16, 8, 100)) >= prompt_s > seconds(graphs, step(16, 8, 100))


def test_a_step_with_prompts_is_a_graph_up_to_the_captured_tokens() -> None:
    """TensorRT-LLM and SGLang size graphs by sequences; prompts' own sizes are given apart, and only piecewise."""
    scenario = Scenario(engine="trtllm", max_cudagraph_capture_size=64, piecewise_cuda_graph_max_tokens=8192)
    sizes = [graph_sizes(replace(scenario, cudagraph_mode=mode), None, 0, None)
             for mode in (None, "full_decode_only", "full_and_piecewise", "piecewise", "none")]
    assert [size["graph_tokens"] for size in sizes] == [0, 0, 8192, 8192, 0]
    assert [size["graph_seqs"] for size in sizes] == [64, 64, 64, 64, 0]
    assert graph_sizes(Scenario(max_cudagraph_capture_size=256), None, 0, None)["graph_tokens"] == 256


@pytest.mark.parametrize(("options", "capacity_gib", "graph_seqs"), [
    ({"engine": "trtllm"}, 180, 128), ({"engine": "trtllm", "max_num_seqs": 64}, 180, 64),
    ({"engine": "sglang"}, 24, 24), ({"engine": "sglang"}, 80, 256), ({"engine": "sglang"}, 180, 512),
    ({"engine": "sglang", "tensor_parallel_size": 4}, 24, 80), ({"engine": "sglang", "max_num_seqs": 16}, 80, 16),
    ({"engine": "sglang", "pipeline_parallel_size": 4}, 80, 256),
    ({"engine": "sglang", "data_parallel_size": 4, "data_parallel_attention": True}, 80, 512),
    ({"max_num_seqs": 128}, 80, 256), ({"max_num_seqs": 1024}, 80, 512),
    ({"max_num_seqs": 64, "num_speculative_tokens": 3}, 80, 128),
])
def test_each_engine_captures_graphs_up_to_a_size_of_its_own(options: dict[str, Any], capacity_gib: int,
                                                             graph_seqs: int) -> None:
    gpu = replace(load_gpu("h100-sxm"), hbm_capacity_bytes=capacity_gib * 2.0**30)
    assert graph_sizes(Scenario(**options), gpu, options.get("max_num_seqs", 0), None)["graph_seqs"] == graph_seqs


def test_launches_count_what_a_layer_has() -> None:
    """Worked out: 32 layers; 48 of experts; 61 of MLA, 58 of experts; 60 of experts, 45 of them linear."""
    launches = {"launch_s_per_layer": 0.3e-3, "launch_s_per_moe_layer": 0.5e-3, "launch_s_per_mla_layer": 1e-3,
                "launch_s_per_linear_layer": 2e-3, "launch_s_per_flashinfer_layer": 0.1e-3,
                "decode_launch_s_per_layer": 0.2e-3, "decode_launch_s_per_part": 0.4e-3}
    for model, prompt_s, decode_s in (
            ("llama-3.1-8b", 32 * 0.3e-3, 32 * 0.2e-3), ("qwen3-30b-a3b", 48 * 0.8e-3, 48 * 0.6e-3),
            ("deepseek-r1", 61 * 1.3e-3 + 58 * 0.5e-3, 61 * 0.6e-3 + 58 * 0.4e-3),
            ("qwen3.5-397b-a17b", 60 * 0.8e-3 + 45 * 2e-3, 60 * 0.6e-3 + 45 * 0.4e-3)):
        stack = with_constants(stack_of(model), **launches)
        assert prompt_launch_s(stack) == pytest.approx(prompt_s)
        assert decode_launch_s(stack) == pytest.approx(decode_s)
        assert launches_s(stack) == pytest.approx((prompt_s, decode_s))
        faster = replace(stack, gpu=replace(stack.gpu, launch_speed=1.5))
        terms = roofline(faster).terms
        assert (terms.prompt_launch_s, terms.decode_launch_s) == pytest.approx((prompt_s / 1.5, decode_s / 1.5))
        assert seconds(faster, step(1024)) <= seconds(stack, step(1024))
        blackwell = replace(stack, gpu=load_gpu("b200-sxm"))
        added_s = prompt_launch_s(blackwell) - prompt_s
        assert added_s == pytest.approx(0.1e-3 * stack.arch.num_attention_layers)  # FlashInfer's
        assert prompt_launch_s(replace(blackwell, engine="sglang")) == pytest.approx(prompt_s)
        assert decode_launch_s(blackwell) == pytest.approx(decode_s)


def test_a_prompt_beside_decodes_takes_no_launches_away() -> None:
    """Worked out, 48 layers of experts: beyond graphs decodes take no more than prompts, without any no less."""
    launches = {"launch_s_per_layer": 0.3e-3, "launch_s_per_moe_layer": 0.1e-3, "decode_launch_s_per_layer": 0.2e-3,
                "decode_launch_s_per_part": 0.4e-3}
    stack = with_constants(stack_of("qwen3-30b-a3b"), **launches)
    assert launches_s(stack) == pytest.approx((48 * 0.4e-3, 48 * 0.4e-3))
    assert launches_s(replace(stack, graph_seqs=0, graph_tokens=0)) == pytest.approx((48 * 0.6e-3, 48 * 0.6e-3))


def test_a_cached_latent_is_expanded_again() -> None:
    """By kv_b_proj's 2 · rank · heads · (nope + v) operations a token and layer at least; sparse attention does not."""
    stack = stack_of("deepseek-v3")
    least_s = 61 * 2 * 512 * 128 * 256 / stack.gpu.flops_per_s["fp8"]
    alone, cached = (gpu_seconds(stack, step(256, cached=context)) for context in (0, 30_000))
    expansion_s = float(roofline(stack).terms.prompt_s_per_expanded_token)
    assert least_s < expansion_s < 4 * least_s
    assert cached - alone > 30_000 * expansion_s
    for other in (stack_of("deepseek-v3.2"), stack_of()):
        assert float(roofline(other).terms.prompt_s_per_expanded_token) == 0.0


@pytest.mark.parametrize("num_short", [1, 3, 7, 15])
def test_short_contexts_do_not_hide_a_long_one_of_mla(num_short: int) -> None:
    stack = stack_of("deepseek-v3", "b200-sxm", "sglang", Layout(tensor_parallel_size=8))
    row = step(0, 1 + num_short, 0)
    row.decode_context_tokens, row.longest_context_tokens = 128_000 + 100 * num_short, 128_000
    assert gpu_seconds(stack, row) >= gpu_seconds(stack, step(0, 1, 128_000))


@pytest.mark.parametrize("model", ["deepseek-v3", "glm-4.7-flash"])
@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_one_more_decode_of_a_long_context_is_not_faster(model: str, engine: str) -> None:
    found = [gpu_seconds(replace(stack_of(model), engine=engine), step(0, decodes, 128_000))
             for decodes in range(1, 40)]
    assert (np.diff(found) >= 0).all()


@pytest.mark.parametrize(("layout", "is_overlapped", "expected_s", "expected_s_per_seq"), [
    (Layout(), True, 1e-3, 1e-5), (Layout(), False, 1e-3, 1e-5),
    (Layout(tensor_parallel_size=2), True, 3e-3, 1e-5), (Layout(pipeline_parallel_size=2), True, 3e-3, 1e-5),
    (Layout(tensor_parallel_size=2), False, 1.4e-3, 3e-5), (Layout(pipeline_parallel_size=2), False, 1.4e-3, 3e-5)])
def test_a_step_goes_to_worker_processes_where_there_is_more_than_one_gpu(
        layout: Layout, is_overlapped: bool, expected_s: float, expected_s_per_seq: float) -> None:
    stack = with_constants(stack_of("llama-3.1-70b", layout=layout), host_s=1e-3, host_s_per_seq=1e-5, workers_s=2e-3,
                           serial_workers_s=0.4e-3, serial_workers_s_per_seq=2e-5)
    terms = roofline(replace(stack, is_overlapped=is_overlapped)).terms
    assert (terms.host_s, terms.host_s_per_seq) == pytest.approx((expected_s, expected_s_per_seq))


@pytest.mark.parametrize("engine", ["sglang", "trtllm"])
def test_ranks_that_schedule_for_themselves_take_as_long_without_overlap(engine: str) -> None:
    stack = replace(stack_of("llama-3.1-70b", engine=engine, layout=Layout(tensor_parallel_size=2)), is_overlapped=True)
    assert host_times(replace(stack, is_overlapped=False)) == host_times(stack)


@pytest.mark.parametrize("host_s", [1e-5, 1e-3, 2e-2])
@pytest.mark.parametrize("row", [step(0, 1, 1), step(0, 256, 2000), step(4096)])
def test_a_step_takes_the_longer_of_gpu_and_host(host_s: float, row: Any) -> None:
    stack = replace(with_constants(stack_of(), host_s=host_s, host_s_per_seq=1e-5), graph_tokens=8192)
    seqs = int(row.num_prompts[0] + row.num_decodes[0])
    own_s, hidden_s = gpu_seconds(stack, row), host_s + seqs * 1e-5
    visible_s = stack.constants.overhead_s + seqs * stack.constants.overhead_s_per_seq
    assert seconds(stack, row) == pytest.approx(max(own_s, hidden_s) + visible_s)


def test_the_kernel_for_small_batches_is_slow_on_prompts_of_blackwell_alone() -> None:
    """Published: 1,633 µs for 2,048 tokens by 24,576 x 7,168, six times what DeepGEMM took (sglang#13528).

    With the kernels' own floors, as both were measured.
    """
    def linear_s(gpu: str, model: str, backend: str, tokens: int) -> float:
        stack = replace(stack_of(model, gpu, "sglang", Layout(tensor_parallel_size=8)), fp8_gemm_backend=backend)
        return terms_of(with_constants(stack, kernel_floor_s=bounds()["kernel_floor_s"][1]), step(tokens))["linear_s"]

    for gpu in ("b200-sxm", "b300-sxm"):
        large, small = (linear_s(gpu, "deepseek-v3", "flashinfer_trtllm", tokens) for tokens in (8192, 1024))
        assert 3 < large / linear_s(gpu, "deepseek-v3", "auto", 8192) < 8
        assert small < large
        assert linear_s(gpu, "deepseek-v3", "flashinfer_trtllm", 8) < linear_s(gpu, "deepseek-v3", "auto", 8)
    for gpu, model in (("h200-sxm", "deepseek-v3"), ("b200-sxm", "llama-3.1-70b")):
        assert linear_s(gpu, model, "flashinfer_trtllm", 8192) == linear_s(gpu, model, "auto", 8192)


def test_cublas_multiplies_32_bit_routers_slowly_on_blackwell_alone() -> None:
    """At 64 decodes SGLang's FP32 routers took 9.1 % of a step of MiniMax-M2.5, in TF32 3.3 % (sglang#22744)."""
    def linear_s(gpu: str, model: str, matmul: str, tokens: int = 64) -> float:
        stack = replace(stack_of(model, gpu, layout=Layout(tensor_parallel_size=8)), fp32_matmul=matmul)
        return terms_of(stack, step(0, tokens, 1000))["linear_s"]

    for gpu in ("b200-sxm", "b300-sxm", "gb200"):
        own, tf32, fp32 = (linear_s(gpu, "minimax-m2.5", matmul) for matmul in ("auto", "tf32", "fp32"))
        assert 62 * 4e-6 < tf32 - own < 62 * 12e-6
        assert 62 * 20e-6 < fp32 - own < 62 * 35e-6
        assert linear_s(gpu, "minimax-m2.5", "fp32", 512) > fp32 > linear_s(gpu, "minimax-m2.5", "fp32", 16)
    for gpu, model in (("h200-sxm", "minimax-m2.5"), ("b200-sxm", "gpt-oss-120b"), ("b200-sxm", "llama-3.1-70b")):
        assert linear_s(gpu, model, "fp32") == linear_s(gpu, model, "auto")


def test_vllm_pads_experts_of_mxfp4_for_marlin() -> None:
    """On two GPUs gpt-oss's experts of 2,880 × 1,440 become 3,072 × 1,536; of other formats none does."""
    def weight_bytes(model: str, backend: str) -> float:
        stack = replace(stack_of(model, "h100-sxm", layout=Layout(tensor_parallel_size=2)), moe_backend=backend)
        [found] = routed_experts(stack, np.array([8192.0]))
        return float(found.curve["tokens_bytes"][0])

    assert weight_bytes("gpt-oss-120b", "marlin") / weight_bytes("gpt-oss-120b", "auto") == pytest.approx(
        3072 * 1536 / (2880 * 1440), rel=1e-3)
    assert weight_bytes("kimi-k2.5", "marlin") == pytest.approx(weight_bytes("kimi-k2.5", "auto"), rel=1e-3)


def test_marlin_is_quick_at_a_few_tokens_and_slow_on_prompts() -> None:
    """Beside Triton's kernel of MXFP4 on Hopper; where experts are not of 4 bit it changes nothing."""
    def experts_s(gpu: str, model: str, backend: str, tokens: int) -> float:
        return terms_of(replace(stack_of(model, gpu), moe_backend=backend), step(tokens))["experts_s"]

    for gpu in ("h100-sxm", "h200-sxm"):
        for tokens, faster in ((4, "marlin"), (8192, "auto")):
            times = {backend: experts_s(gpu, "gpt-oss-120b", backend, tokens) for backend in ("auto", "marlin")}
            assert min(times, key=lambda backend: times[backend]) == faster
            assert max(times.values()) < 2 * min(times.values())
    blackwell = replace(stack_of("gpt-oss-120b", "b200-sxm"), moe_backend="marlin")
    assert all("marlin" in fit.row["kernel"] for fit in moe_kernels(blackwell)[1])
    assert experts_s("h100-sxm", "minimax-m2.5", "marlin", 64) == experts_s("h100-sxm", "minimax-m2.5", "auto", 64)


def test_experts_run_the_kernels_of_the_backend_that_is_asked_for() -> None:
    """TensorRT-LLM's own was measured under others; where nobody measured a backend the engine's choice stays."""
    def kernels(backend: str, gpu: str = "b200-sxm", engine: str = "trtllm") -> set[str]:
        stack = replace(stack_of("deepseek-v3", gpu, engine), moe_backend=backend)
        return {fit.row["kernel"] for fit in moe_kernels(stack)[1]}

    assert kernels("deep_gemm") == {"deepgemm"}
    assert kernels("flashinfer_trtllm")
    assert all("trtllm" in name for name in kernels("flashinfer_trtllm"))
    assert kernels("auto") == kernels("flashinfer_trtllm")  # `ModelConfig.resolve_moe_backend`, FP8 blocks on SM100
    assert kernels("auto", "h200-sxm") == kernels("cutlass", "h200-sxm")
    assert kernels("deep_gemm", "h200-sxm", "vllm") == kernels("auto", "h200-sxm", "vllm")
    assert kernels("flashinfer_trtllm", engine="vllm") <= kernels("auto", engine="vllm")


def test_a_kernel_of_another_engine_has_the_imbalance_of_this_engine_and_its_tuner() -> None:
    """TRTLLM's FP8 experts under TensorRT-LLM: SGLang's time up to 256 tokens, and less above, if none are spread."""
    def experts_s(engine: str, layout: Layout, tokens: float) -> float:
        stack = replace(stack_of("deepseek-v3", "b200-sxm", engine, layout), moe_backend="flashinfer_trtllm")
        [experts] = {layers for _, layers in stack.arch.mlps_of(Experts)}
        return float(layer_experts_s(stack, experts, np.array([float(tokens)]))[0])

    whole, spread = Layout(tensor_parallel_size=8), Layout(tensor_parallel_size=8, expert_parallel_size=8)
    assert experts_s("trtllm", whole, 64) == pytest.approx(experts_s("sglang", whole, 64), rel=0.02)
    assert experts_s("trtllm", whole, 4096) == pytest.approx(0.73 * experts_s("sglang", whole, 4096), rel=0.02)
    assert experts_s("trtllm", spread, 4096) < 0.6 * experts_s("sglang", spread, 4096)


def test_experts_of_a_measured_shape_take_what_the_engine_was_measured_with() -> None:
    """gpt-oss-120b under TensorRT-LLM 1.3.0rc20 on one GB200 (AIConfigurator's table), and other models as before."""
    measured_s = {64: 204e-6, 256: 259e-6, 1024: 359e-6, 4096: 609e-6, 8192: 947e-6, 16384: 1614e-6}
    stack = stack_of("gpt-oss-120b", "gb200", "trtllm")
    stack = replace(stack, gpu=replace(stack.gpu, tdp_w=1e6))  # a benchmark is over before clocks fall
    [experts] = {layers for _, layers in stack.arch.mlps_of(Experts)}
    counts = np.array([float(count) for count in measured_s])
    found_s = layer_experts_s(stack, experts, counts)
    assert np.all(np.abs(found_s / list(measured_s.values()) - 1) < 0.1)
    for ranks in (1, 2, 4):
        layout = Layout(data_parallel_size=ranks, expert_parallel_size=ranks)
        rising = layer_experts_s(replace(stack, layout=layout), experts, np.arange(1.0, 20000.0))
        assert np.all(np.diff(rising) >= 0)
    halves = replace(stack, layout=Layout(tensor_parallel_size=2))  # no GPU holds whole experts there
    assert layer_experts_s(halves, experts, counts)[-1] < 0.7 * found_s[-1]


def test_cutlass_multiplies_large_batches_of_experts_slower_than_the_engines_choice() -> None:
    """SGLang's NVFP4 experts on GB200: CUTLASS was measured under other engines, which call the same library."""
    stack = replace(stack_of("deepseek-v3", "gb200", "sglang"), quantization="nvfp4")
    cutlass = replace(stack, moe_backend="cutlass")
    assert all("cutlass" in fit.row["kernel"] for fit in moe_kernels(cutlass)[1])
    times = [terms_of(each, step(16384))["experts_s"] for each in (stack, cutlass)]
    assert 1.3 * times[0] < times[1] < 1.8 * times[0]  # TensorRT-LLM's tables of both kernels: 1.55


def test_triton_is_slower_on_blackwell_and_what_sglang_runs_before() -> None:
    for tokens in (1, 64, 4096):
        base = stack_of("qwen3-235b-a22b", "b200-sxm", "sglang", Layout(tensor_parallel_size=8))
        triton = replace(base, moe_backend="triton")
        assert {fit.row["kernel"] for fit in moe_kernels(triton)[1]} == {"sglang_fused_moe_triton"}
        times = [terms_of(stack, step(tokens))["experts_s"] for stack in (base, triton)]
        assert 1.2 * times[0] < times[1] < 4 * times[0]
    hopper = stack_of("qwen3-235b-a22b", "h100-sxm", "vllm")
    named = {fit.row["kernel"] for fit in moe_kernels(replace(hopper, moe_backend="triton"))[1]}
    assert named == {"vllm_unquantizedfusedmoe_triton_tritonexperts"}


def test_mamba_is_told_from_another_scan_and_says_so() -> None:
    """What is read and written is the states', 23 layers of 64 heads of 64 by 128 in FP32 and the convolution's."""
    stack = stack_of("nemotron-3-nano-30b-a3b", "h100-sxm")
    assert priors(stack) == ("Mamba-2 (as a gated delta net)",)
    assert not priors(stack_of("qwen3-next-80b-a3b", "h100-sxm"))
    few, many = (terms_of(stack, step(decodes=count, context=1))["attention_decode_s"] for count in (256, 512))
    states = 256 * 23 * 2 * 4 * 64 * 64 * 128
    assert states < (many - few) * stack.gpu.hbm_bandwidth_bytes_per_s < 2 * states


def test_layers_without_an_mlp_add_up_once() -> None:
    """Nemotron 3 Nano has 29 layers of attention or Mamba-2 and 23 of experts: 52 all-reduces, each before a norm."""
    stack = stack_of("nemotron-3-nano-30b-a3b", "h100-sxm", layout=Layout(tensor_parallel_size=2))
    alike = replace(stack, arch=replace(stack.arch, mlps=(MlpGroup(29, experts_of(stack.arch)),)))
    taken, of_58 = (terms_of(each, step(decodes=8, context=1))["collectives_s"] for each in (stack, alike))
    assert taken / 52 == pytest.approx(of_58 / 58)
    assert small_kernels(stack.arch, "vllm", 1)[0].num == 52


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_layers_with_other_heads_take_what_models_of_such_layers_take(engine: str) -> None:
    """Attention of Gemma 4: of as many layers as see all tokens, and of those with a window, each by themselves."""
    whole = stack_of("gemma-4-26b-a4b", "h100-sxm", engine, Layout(tensor_parallel_size=2))
    alone = [replace(whole, arch=replace(whole.arch, layers=(group,), mlps=(
        MlpGroup(group.count, experts_of(whole.arch)),))) for group in whole.arch.layers]
    assert len(alone) == 2
    for what in (step(decodes=64, context=3000), step(4096, window=1024)):
        terms, parts = terms_of(whole, what), [terms_of(stack, what) for stack in alone]
        for name in ("attention_prompt_s", "attention_decode_s", "linear_s"):
            assert terms[name] == pytest.approx(sum(part[name] for part in parts), rel=1e-6), name


@pytest.mark.parametrize(("gpu", "quantization"), [("a100-sxm", "fp8"), ("a100-sxm", "awq"), ("h100-sxm", "gptq")])
def test_weights_that_are_widened_read_less_and_multiply_slower(gpu: str, quantization: str) -> None:
    """Decodes gain from what is read, prompts lose arithmetic; TensorRT-LLM's own kernels lose little, as measured."""
    def linear_s(engine: str, quantization: str, tokens: int) -> float:
        return terms_of(stack_of("llama-3.1-70b", gpu, engine, quantization=quantization), step(tokens))["linear_s"]

    assert linear_s("vllm", quantization, 8) < 0.75 * linear_s("vllm", "bf16", 8)
    loss = {engine: linear_s(engine, quantization, 8192) / linear_s(engine, "bf16", 8192) for engine in ENGINES}
    assert loss["vllm"] == pytest.approx(1 / 0.7, rel=0.06)
    assert loss["sglang"] == pytest.approx(1 / 0.7, rel=0.06)
    assert 0.95 < loss["trtllm"] < 1.1


@pytest.mark.parametrize(("model", "engine", "layers"), [
    ("llama-3.1-70b", "vllm", 80.0),
    ("llama-3.1-70b", "trtllm", 80 * 0.76),  # rotary embedding in the attention kernel
    ("gpt-oss-120b", "vllm", 36 * 0.72),  # activation among the experts
    ("gpt-oss-120b", "trtllm", 36 * 0.48),
    ("deepseek-v3", "trtllm", 61.0),  # shared experts have an activation, MLA's rotary embedding a kernel
    ("minimax-m2.5", "vllm", 62 * 1.2),  # a norm of query and key, over all heads
])
def test_small_kernels_are_those_that_a_layer_has(model: str, engine: str, layers: float) -> None:
    stack = stack_of(model, engine=engine)
    assert sum(kernel.num * kernel.share for kernel in small_kernels(stack.arch, engine, 1)) == pytest.approx(layers)
    faster, slower = (terms_of(with_constants(stack, layer_s=layer_s), step(0, 4, 1000)) for layer_s in (8e-6, 1e-5))
    assert slower["activations_s"] - faster["activations_s"] == pytest.approx(layers * 2e-6)


@pytest.mark.parametrize(("model", "engine", "layers"), [
    ("llama-3.1-70b", "vllm", 0), ("deepseek-v3", "vllm", 58), ("deepseek-v3", "sglang", 58),
    ("deepseek-v3", "trtllm", 0),  # its benchmark has the routing
])
def test_routing_counts_where_the_benchmark_is_without_it(model: str, engine: str, layers: int) -> None:
    stack = stack_of(model, engine=engine)
    faster, slower = (terms_of(with_constants(stack, moe_layer_s=moe_layer_s), step(0, 4, 1000))
                      for moe_layer_s in (3e-6, 5e-6))
    assert slower["activations_s"] - faster["activations_s"] == pytest.approx(layers * 2e-6, abs=1e-9)


def test_operators_that_nobody_measured_are_named() -> None:
    assert priors(stack_of()) == ()
    assert priors(stack_of(gpu="mi300x")) == ("dense layers", "attention")
    two = Layout(tensor_parallel_size=2)
    assert priors(stack_of("qwen3.5-35b-a3b", "mi300x", layout=two)) == (
        "dense layers", "experts", "attention", "linear attention", "collectives")
    assert priors(stack_of(gpu="gb200", layout=Layout(tensor_parallel_size=8))) == ("collectives",)


@pytest.mark.parametrize("gpu", ["mi300x", "mi325x"])
def test_on_mi300x_each_engine_runs_its_own_kernel_of_block_scaled_fp8(gpu: str) -> None:
    """SGLang's Triton kernel has 123 and 34 µs in a profile of 64 decodes, AITER's tuned ones 17 and 11."""
    shapes = {(2112, 7168): (123e-6, 17e-6), (7168, 2048): (34e-6, 11e-6)}
    for (n, k), times_s in shapes.items():
        for engine, expected_s in zip(("sglang", "vllm"), times_s, strict=True):
            found_s = gemms_s(stack_of("deepseek-v3", gpu, engine), np.array([64.0]), n, k, "fp8_block",
                              is_quantized=True)
            assert found_s[0] == pytest.approx(expected_s, rel=0.2)


def test_a_measured_line() -> None:
    terms = step_terms(linear("linear:0.02,5e-05,1e-8"), step(100, 10, 50, cached=7), 0.0)
    assert sum(values[0] for values in terms.values()) == pytest.approx(0.02 + 110 * 5e-5 + (500 + 7) * 1e-8)


@pytest.mark.parametrize("text", ["linear:", "linear:1", "linear:a,b", "linear:-1,2", "linear:nan,1", "linear:1,2,3,4",
                                  "quadratic:1,2", "linear:0,0"])
def test_a_malformed_line_says_what_is_expected(text: str) -> None:
    with pytest.raises(UsageError, match="expected linear:BASE_S,PER_TOKEN_S"):
        linear(text)


def test_clocks_fall_where_the_power_limit_binds_and_a_higher_limit_is_never_slower() -> None:
    """989.4 TFLOP/s at 700 W are 1.570 of the density that is fed, cube root 1.162; 165 at 450 W keep the clocks."""
    stack = with_constants(stack_of(gpu="h100-sxm"), compute_ratio=1.0)
    assert stack.compute_ratio("fp8") == stack.compute_ratio("bf16") == pytest.approx(1.1623, abs=1e-4)
    assert with_constants(stack_of(gpu="rtx-4090"), compute_ratio=1.2).compute_ratio("bf16") == 1.2
    assert 1.0 < stack_of(gpu="b200-sxm").compute_ratio("fp4") < stack_of(gpu="b200-sxm").compute_ratio("fp8")
    assert stack_of(gpu="mi300x").compute_ratio("fp8") == pytest.approx(2100 / 1207, rel=0.01)  # AMD measured it
    powers = (400.0, 700.0, 1050.0, 1200.0)
    ratios = [replace(stack, gpu=replace(stack.gpu, tdp_w=watts)).compute_ratio("bf16") for watts in powers]
    assert ratios == sorted(ratios, reverse=True)
    assert ratios[-1] == 1.0
    faster = [replace(stack.gpu, flops_per_s={**stack.gpu.flops_per_s, "bf16": flops})
              for flops in np.linspace(300e12, 2400e12, 22)]
    sustained = [gpu.flops_per_s["bf16"] / replace(stack, gpu=gpu).compute_ratio("bf16") for gpu in faster]
    assert sustained == sorted(sustained)


def test_routed_experts_activation_is_in_the_experts_and_norms_are_counted_in_place() -> None:
    """Mixtral has no shared experts: two norms and a rotary embedding a layer are all that its small kernels touch."""
    arch = stack_of("mixtral-8x7b").arch
    norms, rotary, *others = (kernel for kernel in small_kernels(arch, "vllm", 2) if kernel.num)
    assert (norms.num, norms.elements, norms.distinct) == (64, 4 * 4096, 2 * 4096)
    assert (rotary.num, rotary.elements, rotary.distinct) == (32, 2 * (32 + 8) * 128 / 2, (32 + 8) * 128 / 2)
    assert not others
    mla_rotary = [kernel for kernel in small_kernels(stack_of("deepseek-v3").arch, "vllm", 1) if kernel.num][1]
    assert (mla_rotary.elements, mla_rotary.distinct) == (0.0, 0.0)


@pytest.mark.parametrize(("engine", "gpu", "model", "layout", "is_fused"), [
    ("sglang", "h200-sxm", "deepseek-v3", Layout(tensor_parallel_size=8), True),
    ("sglang", "h200-sxm", "glm-5", Layout(tensor_parallel_size=8), True),
    ("sglang", "h200-sxm", "deepseek-v3.2", Layout(tensor_parallel_size=8), False),
    ("sglang", "h200-sxm", "deepseek-v3", Layout(tensor_parallel_size=8, expert_parallel_size=8), False),
    ("sglang", "b200-sxm", "deepseek-v3", Layout(tensor_parallel_size=8), False),
    ("vllm", "h200-sxm", "deepseek-v3", Layout(tensor_parallel_size=8), False)])
def test_sglang_multiplies_a_shared_expert_with_the_routed_ones(engine: str, gpu: str, model: str, layout: Layout,
                                                                 is_fused: bool) -> None:
    assert stack_of(model, gpu, engine, layout).fuses_shared_experts == is_fused


def test_a_shared_expert_among_the_routed_ones_is_not_launched_but_streams_and_multiplies() -> None:
    """DeepSeek-V3 on 8 GPUs: 3 x 7,168 x 256 weights of 8 bit a layer, 58 layers, and 8,192 tokens through them."""
    stack = stack_of("deepseek-v3", "h200-sxm", "sglang", Layout(tensor_parallel_size=8))
    apart = replace(stack, arch=replace(stack.arch, model_type="deepseek_v32"))
    dense, (count, experts) = stack.arch.mlps[0], next(stack.arch.mlps_of(Experts))
    routed = MlpGroup(count, replace(experts, shared_width=0))
    without = replace(stack, arch=replace(stack.arch, mlps=(dense, routed)))
    weights = 58 * 3 * 7168 * 256
    for tokens, least_s in ((1, weights / 4.8e12), (8192, 2 * weights * 8192 / 1979e12)):
        times_s = [gpu_seconds(each, step(tokens)) for each in (without, stack, apart)]
        assert times_s[0] + least_s <= times_s[1] < times_s[2]


def test_decodes_beside_a_prompt_take_tiles_of_their_own_under_flash_attention_2() -> None:
    """Beside 64 tokens of a prompt 64 decodes of 1,024 tokens took 20.0 ms on an RTX 4090, 9.7 on an RTX PRO 6000."""
    for gpu, alone_s, mixed_s in (("rtx-4090", 10.7e-3, 20.0e-3), ("rtx-pro-6000", 7.1e-3, 9.7e-3)):
        stack = stack_of(gpu=gpu)
        assert terms_of(stack, step(0, 64, 1024))["attention_decode_s"] == pytest.approx(alone_s, rel=0.1)
        assert terms_of(stack, step(64, 64, 1024))["attention_decode_s"] == pytest.approx(mixed_s, rel=0.2)
        more = [terms_of(stack, step(64, n, context))["attention_decode_s"]
                for n, context in ((1, 100), (1, 1000), (9, 1000), (9, 9000))]
        assert more == sorted(more)


@pytest.mark.parametrize(("gpu", "engine", "kv_bytes"), [("h100-sxm", "vllm", 2.0), ("b200-sxm", "vllm", 2.0),
                                                         ("a100-sxm", "sglang", 2.0), ("l40s", "vllm", 1.0)])
def test_other_kernels_take_decodes_as_if_alone(gpu: str, engine: str, kv_bytes: float) -> None:
    stack = stack_of(gpu=gpu, engine=engine, kv_bytes_per_element=kv_bytes)
    alone, mixed = (terms_of(stack, step(prompt, 64, 1024))["attention_decode_s"] for prompt in (0, 64))
    assert mixed == alone


def classes_of(base: type) -> set[type]:
    """Return the classes of a kind of layer, without those that others are made of."""
    modules = (import_module(f"{layers.__name__}.{info.name}") for info in iter_modules(layers.__path__))
    found = {value for module in modules for value in vars(module).values()
             if isinstance(value, type) and issubclass(value, base) and not isabstract(value)}
    return found - {Attention, LinearAttention}


def test_every_kind_of_attention_and_every_indexer_has_an_operator() -> None:
    assert set(OPERATORS) == classes_of(Attention)
    assert set(INDEX_KERNELS) == classes_of(Indexer)


@pytest.mark.parametrize("name", STACKS)
def test_a_steps_time_is_the_sum_of_its_operators(name: str) -> None:
    """Each operator says what it adds by itself: products to the linear term, attention nothing to it."""
    stack = STACKS[name]
    parts, (terms, curve) = list(contributions(stack)), roofline(stack)
    for field in ("linear_s", "experts_s", "activations_s", "collectives_s", "decode_s", "head_s"):
        total = np.zeros(curve.shape)
        for part in parts:
            total += part.curve.get(field, 0.0)
        np.testing.assert_allclose(curve[field][1:], total[1:], rtol=1e-12)
    per_pair = sum(part.terms.get("prompt_s_per_pair", 0.0) for part in parts)
    assert float(terms.prompt_s_per_pair) == pytest.approx(per_pair)
    products = {gemm.name for gemm in projections(stack.arch, stack.layout.tensor_parallel_size)}
    assert {part.name for part in parts if "linear_s" in part.curve} == products
    assert doctest.testmod(contribution).failed == 0
