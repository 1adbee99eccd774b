"""What runs of 2023 and 2024 had that those of today, which constants are fitted to, have not: hosts, kernels, prompts.
"""

from dataclasses import replace

import numpy as np

from benchmarks.accuracy.mlperf_builds import save, token_counts
from planner.catalog.attention_reads import readings
from planner.catalog.catalog_files import load_gpu
from planner.catalog.layers.gqa import Gqa
from planner.catalog.layers.mlps import Experts
from planner.deployment.deploy import Deployment
from planner.deployment.engine_limits import scenario_constants
from planner.model.precision import KV_BYTES_PER_ELEMENT
from planner.settings.scenario import Scenario
from planner.steptime.engine_constants import EngineConstants, bounds
from planner.steptime.roofline import roofline

# Requests come in-process.
NO_SERVER = ("frontend_s", "frontend_s_per_token", "latency_s", "latency_s_per_token", "latency_s_per_seq")
# A TensorRT engine, from C++.
NO_PYTHON = ("host_s", "host_s_per_seq", "workers_s", "serial_workers_s", "serial_workers_s_per_seq",
             "launch_s_per_moe_layer", "launch_s_per_mla_layer", "launch_s_per_linear_layer",
             "decode_launch_s_per_part")
# Launching a layer's kernels one by one, as TensorRT engines do (their CUDA graphs are off by default): H200's least
# times between tokens in the online rate sweep are 15 ms over 80 layers and 5 to 6 ms over 32, where kernels take 13
# and 5.
ENGINE_LAUNCH_S = 180e-6
# The host of vLLM's V0 engine, in series with the GPU: it schedules, prepares and detokenises sequence by sequence in
# Python. Taken from Argonne's own runs, of a few round values; those that fit one GPU best leave the other's runs 5.8
# and 6.1 % off in the median, these 4.9 (H100) and 6.0 %.
V0_HOST = {"host_s": 1e-3, "host_s_per_seq": 60e-6, "serial_workers_s": 0.7e-3}
V1_ALONE = ("serial_workers_s_per_seq",)  # what V0 has none of
# More of it in vLLM 0.2, which ships each step's sequences to Ray workers: waiting, by sequence, launching a layer of
# decodes and one with prompts, on a host with H100s. By the chip whose steps are predicted: of a few round values,
# those that leave the least mean error in the other GPU's steps of Llama-2-70B (decodes; prompts to 2,048 tokens), so
# that no row has a part in what it is judged by.
RAY_HOSTS = {
    "a100-sxm": {"serial_workers_s": 8e-3, "host_s_per_seq": 0.3e-3, "decode_launch_s_per_layer": 0.25e-3,
                 "launch_s_per_layer": 0.55e-3},
    "h100-sxm": {"serial_workers_s": 8e-3, "host_s_per_seq": 0.4e-3, "decode_launch_s_per_layer": 0.25e-3,
                 "launch_s_per_layer": 0.4e-3},
}
# Dense products of 2023 take so much longer than today's, from some tokens on (64 to 512 are alike). Chosen with the
# launches, by each GPU's prompts for the other's: both choose this round value.
PRODUCTS_OF_2023 = 1.25
LEAST_PRODUCT_TOKENS = 128
# Query heads to one of keys for which TensorRT-LLM, to 0.11, has kernels that read these once (`nbQHeadsPerKV` of
# decoderXQARunner.h). With others each query head reads keys and values by itself, all but once from the L2 cache, at a
# round value that fits Mistral-7B's tables best. Of the rest, which it is not from, Falcon-180B's tables are 10 % off
# (24 read once) and Argonne's Llama-3-8B and Qwen2-7B 5.8 and 10 % (6.6 and 11); 3 to 6 TB/s leave all tables 7.6 to
# 9.2 % off.
GROUPED_HEADS = (1, 8, 16)
L2_BYTES_PER_S = 4e12


def in_process(scenario: Scenario, *, is_compiled: bool = True, uses_ray: bool = False) -> EngineConstants:
    """Return an engine's constants without what a server adds; vLLM's V0 and TensorRT engines have hosts of their own.

    is_compiled : whether TensorRT-LLM runs such an engine, as it did until PyTorch became its default.
    uses_ray : whether vLLM's V0 runs Ray workers, as in 2023.
    """
    found = scenario_constants(scenario)
    if scenario.policy == "vllm-v0":
        found = replace(with_v0_host(found), **least(NO_SERVER))
        return replace(found, **RAY_HOSTS[load_gpu(str(scenario.gpu)).kernels_of]) if uses_ray else found
    if scenario.engine != "trtllm" or not is_compiled:
        return replace(found, **least(NO_SERVER))
    return replace(found, launch_s_per_layer=ENGINE_LAUNCH_S, decode_launch_s_per_layer=ENGINE_LAUNCH_S,
                   **least(NO_SERVER + NO_PYTHON))


def with_v0_host(constants: EngineConstants) -> EngineConstants:
    """Return an engine's constants with the host of vLLM's V0 in place of its own."""
    return replace(constants, **V0_HOST, **least(V1_ALONE))


def least(names: tuple[str, ...]) -> dict[str, float]:
    """Return the least that constants can be, in place of none of them."""
    return {name: bounds()[name][0] for name in names}


def multiply_as_in_2023(deployment: Deployment) -> None:
    """Let the dense products of many tokens take what those of vLLM 0.2's libraries did."""
    curve = deployment.step_time.curve
    longer = np.where(token_counts() >= LEAST_PRODUCT_TOKENS, PRODUCTS_OF_2023 - 1.0, 0.0)
    save(curve, "linear_s", -longer * curve.linear_s)


def read_by_each_head(deployment: Deployment) -> None:
    """Let each query head of a TensorRT engine read keys and values by itself, where no kernel has such groups."""
    stack, curve = deployment.stack, deployment.step_time.curve
    assert stack is not None
    for each in readings(stack.arch):
        attention = each.attention
        is_grouped = isinstance(attention, Gqa) and attention.num_heads // attention.num_kv_heads in GROUPED_HEADS
        if stack.engine != "trtllm" or not isinstance(attention, Gqa) or is_grouped:
            return
        head_bytes = 2 * attention.head_dim * KV_BYTES_PER_ELEMENT[deployment.resolved.kv_cache_dtype]
        layer_s = head_bytes * attention.num_heads / stack.layout.tensor_parallel_size / L2_BYTES_PER_S
        for name, num_layers in (("decode_s_per_context_token", each.context),
                                 ("decode_s_per_window_token", each.window)):
            setattr(curve, name, np.maximum(getattr(curve, name), num_layers * layer_s))


def choose_alike(deployment: Deployment) -> None:
    """Let all tokens of a step choose the same experts, as those of one prompt's copies do."""
    stack, curve = deployment.stack, deployment.step_time.curve
    assert stack is not None
    if not stack.arch.num_moe_layers:
        return
    mlps = tuple(replace(group, mlp=replace(group.mlp, num_experts=group.mlp.num_experts_per_tok))
                 if isinstance(group.mlp, Experts) else group for group in stack.arch.mlps)
    chosen = replace(stack, arch=replace(stack.arch, mlps=mlps))
    alike = roofline(chosen).curve
    save(curve, "experts_s", curve.experts_s - alike.experts_s)
    curve.shared_s, curve.tokens_bytes = alike.shared_s, alike.tokens_bytes
