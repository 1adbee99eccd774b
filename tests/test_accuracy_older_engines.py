"""What the accuracy report takes engines of 2023 and 2024 to have been: their hosts, and decode attention by heads."""

import numpy as np
import pytest

from benchmarks.accuracy.older_engines import (
    ENGINE_LAUNCH_S,
    L2_BYTES_PER_S,
    PRODUCTS_OF_2023,
    RAY_HOSTS,
    V0_HOST,
    choose_alike,
    in_process,
    multiply_as_in_2023,
    read_by_each_head,
)
from planner.deployment.deploy import deploy
from planner.loop.state.count_table import node_counts
from planner.settings.scenario import Scenario


def test_a_tensorrt_engine_launches_its_kernels_without_python() -> None:
    scenario = Scenario(model="llama-3.1-8b", gpu="h100-sxm", engine="trtllm")
    engine, pytorch = in_process(scenario), in_process(scenario, is_compiled=False)
    assert engine.launch_s_per_layer == ENGINE_LAUNCH_S < pytorch.launch_s_per_layer
    assert engine.host_s < pytorch.host_s
    assert engine.frontend_s == pytorch.frontend_s


def test_the_v0_engine_has_its_own_host() -> None:
    v0, v1 = (in_process(Scenario(model="llama-3.1-8b", gpu="h100-sxm", policy=policy)) for policy in ("vllm-v0", None))
    assert v0.host_s_per_seq == V0_HOST["host_s_per_seq"] > v1.host_s_per_seq
    assert v0.launch_s_per_layer == v1.launch_s_per_layer


def test_ray_workers_are_waited_for_as_on_the_other_gpu() -> None:
    """No GPU's rows are predicted with what was chosen on them, and all else is V0's."""
    scenario = Scenario(model="llama-2-70b", gpu="a100-sxm", policy="vllm-v0")
    v0, ray = in_process(scenario), in_process(scenario, uses_ray=True)
    assert {name: getattr(ray, name) for name in RAY_HOSTS["a100-sxm"]} == RAY_HOSTS["a100-sxm"]
    assert (ray.serial_workers_s, ray.host_s_per_seq) == (8e-3, 0.3e-3)
    assert (ray.decode_launch_s_per_layer, ray.launch_s_per_layer) == (0.25e-3, 0.55e-3)
    assert ray.serial_workers_s > v0.serial_workers_s
    assert ray.host_s_per_seq > v0.host_s_per_seq
    assert ray.decode_launch_s_per_layer < ray.launch_s_per_layer
    assert (ray.host_s, ray.frontend_s) == (v0.host_s, v0.frontend_s)


def test_products_of_2023_take_longer_where_they_do_not_wait_for_weights() -> None:
    deployment = deploy(Scenario(model="llama-2-70b", gpu="h100-sxm", tensor_parallel_size=8))
    curve = deployment.step_time.curve
    before = curve.copy()
    multiply_as_in_2023(deployment)
    changed = [name for name in curve.dtype.names if not np.array_equal(curve[name], before[name])]
    assert changed == ["tokens_s", "linear_s"]
    few, many = node_counts() < 100, node_counts() > 128
    np.testing.assert_array_equal(curve["linear_s"][few], before["linear_s"][few])
    np.testing.assert_allclose(curve["linear_s"][many], PRODUCTS_OF_2023 * before["linear_s"][many])
    np.testing.assert_allclose(curve["tokens_s"] - before["tokens_s"], curve["linear_s"] - before["linear_s"])


@pytest.mark.parametrize(("model", "engine", "heads", "layers", "term"), [
    ("llama-3-8b", "trtllm", 32, 32, "decode_s_per_context_token"),
    ("mistral-7b-v0.1", "trtllm", 32, 32, "decode_s_per_window_token"),
    ("falcon-180b", "trtllm", 232, 80, "decode_s_per_context_token"),
    ("llama-3-8b", "vllm", 0, 0, ""), ("llama-2-7b", "trtllm", 0, 0, ""), ("llama-2-70b", "trtllm", 0, 0, "")])
def test_each_head_reads_keys_by_itself_where_no_kernel_has_its_group(
        model: str, engine: str, heads: int, layers: int, term: str) -> None:
    """Groups of 4 and 29; not of 1 and 8, nor under vLLM. Mistral's first version has windows in all layers."""
    deployment = deploy(Scenario(model=model, gpu="h100-sxm", engine=engine, tensor_parallel_size=8))
    curve = deployment.step_time.curve
    before = curve.copy()
    read_by_each_head(deployment)
    changed = [name for name in curve.dtype.names if not np.array_equal(curve[name], before[name])]
    assert changed == ([term] if term else [])
    if term:
        head_dim = 64 if model == "falcon-180b" else 128
        np.testing.assert_allclose(curve[term], layers * 2 * heads / 8 * head_dim * 2 / L2_BYTES_PER_S)
        assert (curve[term] > before[term]).all()


def test_copies_of_a_prompt_read_the_same_experts() -> None:
    """16 tokens of Mixtral read two experts a layer, not all eight; one token reads two in any case."""
    drawn, copied = (deploy(Scenario(model="mixtral-8x7b", gpu="a100-sxm", engine="trtllm", tensor_parallel_size=4))
                     for _ in range(2))
    choose_alike(copied)
    before, after = drawn.step_time.curve, copied.step_time.curve
    np.testing.assert_allclose(after["tokens_s"] - before["tokens_s"], after["experts_s"] - before["experts_s"])
    counts = node_counts()
    expert_bytes = 32 * 3 * 4096 * 14336 * 2 / 4
    saved_bytes = np.interp([1, 16], counts, before["tokens_bytes"] - after["tokens_bytes"])
    np.testing.assert_allclose(saved_bytes / expert_bytes, [0, 6], atol=0.2)
    assert np.interp(16, counts, after["experts_s"]) < 0.5 * np.interp(16, counts, before["experts_s"])


def test_a_dense_model_chooses_nothing() -> None:
    deployment = deploy(Scenario(model="llama-2-7b", gpu="a100-sxm", engine="trtllm"))
    before = deployment.step_time.curve.copy()
    choose_alike(deployment)
    np.testing.assert_array_equal(deployment.step_time.curve, before)
