"""All-reduces that normalise too: who runs them, up to what size, and what a step saves."""

from dataclasses import replace

import numpy as np
import pytest
from steps import ENGINES, gpu_seconds, stack_of, step

from planner.catalog.architecture import Architecture
from planner.catalog.catalog_files import load_gpu, load_model
from planner.catalog.gpus import Gpu
from planner.deployment.deploy import deploy
from planner.errors import UsageError
from planner.loop.state.count_table import node_counts
from planner.model.layout import Layout
from planner.model.small_kernels import NORM_SHARE
from planner.settings.scenario import Scenario
from planner.steptime.collective_time import collectives_s
from planner.steptime.fused_norms import fuses_norms, largest_fused_bytes, nvlink_generation
from planner.steptime.roofline import roofline

TP8 = Layout(tensor_parallel_size=8)
DENSE, EXPERTS = load_model("llama-3.1-70b"), load_model("gpt-oss-120b")
H100, B200, A100 = load_gpu("h100-sxm"), load_gpu("b200-sxm"), load_gpu("a100-sxm")


def test_a_norm_less_for_each_all_reduce() -> None:
    """Llama-3.1-70B on 8 H100: 160 all-reduces a step, each with a norm after it that is not launched any more."""
    apart = stack_of("llama-3.1-70b", "h100-sxm", "vllm", TP8)
    fused = replace(apart, fuses_norms=True)
    message = np.array([16.0 * 8192 * 2])
    own_s, theirs_s = (float(collectives_s(replace(apart, engine=engine), message, "all_reduce", 8)[0])
                       for engine in ("vllm", "trtllm"))
    saved_s = 160 * (own_s - min(own_s, theirs_s) + NORM_SHARE * apart.constants.layer_s)
    decodes = step(decodes=16, context=1000)
    assert gpu_seconds(apart, decodes) - gpu_seconds(fused, decodes) == pytest.approx(saved_s, rel=1e-6)


@pytest.mark.parametrize(("model", "reduces"), [("falcon-180b", 80), ("bloom-176b", 140)])
def test_falcon_adds_attention_and_mlp_up_together(model: str, reduces: int) -> None:
    """One all-reduce a layer in place of two, apart from the embedding's and the head's."""
    stack, message = stack_of(model, "h100-sxm", "vllm", TP8), 64 * load_model(model).hidden_size * 2.0
    curve = roofline(stack).curve
    one_s = float(collectives_s(stack, np.array([message]), "all_reduce", 8)[0])
    found_s = float(np.interp(64, node_counts(), curve["collectives_s"]))
    assert found_s == pytest.approx(reduces * one_s, rel=0.02)


@pytest.mark.parametrize(("engine", "gpu", "num_gpus", "tokens"), [
    ("vllm", H100, 8, 32), ("vllm", H100, 4, 128), ("vllm", B200, 8, 64), ("vllm", B200, 2, 4096),
    ("vllm", B200, 3, 0), ("sglang", H100, 8, 2048), ("trtllm", B200, 2, 976), ("trtllm", B200, 8, 488),
    ("vllm", A100, 8, 0), ("trtllm", A100, 8, 0)])
def test_up_to_the_engines_size(engine: str, gpu: Gpu, num_gpus: int, tokens: int) -> None:
    """In tokens of hidden size 8,192: 0.5 MiB on 8 H100 are 32."""
    assert largest_fused_bytes(engine, gpu, num_gpus, 8192) // (8192 * 2) == tokens


@pytest.mark.parametrize("engine", [engine for engine in ENGINES if largest_fused_bytes(engine, B200, 8, 8192)])
def test_larger_messages_are_added_up_apart(engine: str) -> None:
    """Of engines with a fused kernel that is modelled: all except ATOM."""
    apart = stack_of("llama-3.1-70b", "b200-sxm", engine, TP8)
    fused = replace(apart, fuses_norms=True)
    assert gpu_seconds(fused, step(prompt=1)) < gpu_seconds(apart, step(prompt=1))
    assert gpu_seconds(fused, step(prompt=8192)) == gpu_seconds(apart, step(prompt=8192))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("gpu", ["h100-sxm", "h200-sxm", "b200-sxm", "b300-sxm", "gb200"])
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_more_tokens_never_take_less(engine: str, gpu: str, ranks: int) -> None:
    stack = replace(stack_of("gpt-oss-120b", gpu, engine, Layout(tensor_parallel_size=ranks)), fuses_norms=True)
    times_s = roofline(stack).curve.tokens_s[node_counts() > 0]
    assert (np.diff(times_s) >= 0).all()


def test_who_fuses_by_itself() -> None:
    def fuses(engine: str, arch: Architecture = DENSE, gpu: Gpu = B200, layout: Layout = TP8) -> bool:
        return fuses_norms(None, engine, arch, gpu, layout)

    assert fuses("vllm")
    assert fuses("trtllm")
    assert fuses("trtllm", EXPERTS)
    assert fuses("sglang", EXPERTS)
    assert not fuses("sglang")
    for engine in ENGINES:
        assert not fuses(engine, EXPERTS, A100)
        assert not fuses(engine, EXPERTS, layout=Layout())
        assert not fuses(engine, EXPERTS, layout=Layout(tensor_parallel_size=2, data_parallel_size=4))
    assert not fuses("vllm", layout=Layout(tensor_parallel_size=4, pipeline_parallel_size=2))
    assert fuses("trtllm", layout=Layout(tensor_parallel_size=4, pipeline_parallel_size=2))


@pytest.mark.parametrize(("model", "is_fused"), [
    ("llama-3.1-8b", False), ("llama-2-13b", True), ("qwen3-32b", False), ("qwen3-235b-a22b", True),
    ("mixtral-8x7b", False), ("minimax-m2.5", False), ("kimi-k2.5", True), ("glm-5", True), ("llama-4-scout", True)])
def test_in_tensorrt_llm_the_models_own_code_decides(model: str, is_fused: bool) -> None:
    assert fuses_norms(None, "trtllm", load_model(model), H100, TP8) == is_fused


def test_the_user_has_the_last_word() -> None:
    scenario = Scenario(model="llama-3.1-70b", gpu="h100-sxm", tensor_parallel_size=4)
    on, off = (deploy(replace(scenario, fuse_allreduce_rms=given)).stack for given in (None, False))
    assert on is not None
    assert on.fuses_norms
    assert off is not None
    assert not off.fuses_norms
    with pytest.raises(UsageError, match=r"--fuse-allreduce-rms: .*a100-sxm has NVLink 3; leave it out"):
        deploy(replace(scenario, gpu="a100-sxm", fuse_allreduce_rms=True))


def test_only_where_nvlink_joins_recent_gpus() -> None:
    assert nvlink_generation(load_gpu("l40s")) is None
    assert nvlink_generation(load_gpu("mi300x")) is None
    assert nvlink_generation(load_gpu("gb200")) == "blackwell"
