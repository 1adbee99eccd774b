"""Collectives of GPUs on PCIe: directly where they reach each other's memory, else through the host."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers import trace_of
from hypothesis import given
from hypothesis import strategies as some
from steps import ENGINES, stack_of, step, terms_of

from planner.catalog.catalog_files import gpu_names, load_gpu
from planner.deployment.deploy import deploy, resolve
from planner.launch.read_command import read_launch
from planner.model.layout import Layout
from planner.results.notes import notes
from planner.settings.scenario import Scenario
from planner.steptime.collective_time import collectives_s, is_staged
from planner.steptime.kernel_constants import find_fit
from planner.steptime.operators.host_path import HostPathConstants, host_path_s
from planner.steptime.step_context import StepContext

SIZES = np.geomspace(256, 2**29, 120)
ON_PCIE = tuple(name for name in gpu_names() if load_gpu(name).scale_up_link.startswith("PCIe"))
OPS = ("all_reduce", "all_gather", "reduce_scatter", "alltoall")
PAIR: dict[str, Any] = {"model": "qwen3-32b", "gpu": "rtx-pro-6000", "tensor_parallel_size": 2}


def staged(stack: StepContext) -> StepContext:
    return replace(stack, is_staged=True)


def test_a_message_has_a_start_and_a_bandwidth() -> None:
    """Four GPUs send 6/4 of an all-reduce around, at 16 GB/s, and 3/4 of a gathered message."""
    constants = HostPathConstants(latency_s=3e-6, bandwidth_bytes_per_s=16e9)

    def time_s(op: str, direct_s: float) -> float:
        return float(host_path_s(16e6, op=op, num_gpus=4, direct_s=direct_s, constants=constants))

    assert time_s("all_reduce", 0.0) == pytest.approx(3e-6 + 1.5e-3, rel=1e-12)
    assert time_s("all_gather", 0.0) == pytest.approx(3e-6 + 0.75e-3, rel=1e-12)
    assert time_s("all_reduce", 2e-3) == pytest.approx(3e-6 + 2e-3, rel=1e-12)


@pytest.mark.parametrize("gpu", ON_PCIE)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("op", OPS)
def test_through_the_host_is_never_faster_than_directly(gpu: str, engine: str, op: str) -> None:
    stack = stack_of(gpu=gpu, engine=engine)
    for num_gpus in (2, 4, 8):
        direct_s, host_s = (collectives_s(each, SIZES, op, num_gpus) for each in (stack, staged(stack)))
        assert (host_s > direct_s).all()
        assert (np.diff(host_s) >= 0).all()


@given(op=some.sampled_from(OPS), num_gpus=some.sampled_from((2, 3, 4, 8)), faster=some.floats(1, 10))
def test_a_faster_link_is_never_slower(op: str, num_gpus: int, faster: float) -> None:
    for stack in (stack_of(gpu="l40s"), staged(stack_of(gpu="l40s"))):
        gpu = replace(stack.gpu, scale_up_bandwidth_bytes_per_s=faster * stack.gpu.scale_up_bandwidth_bytes_per_s)
        slow_s, fast_s = (collectives_s(each, SIZES, op, num_gpus) for each in (stack, replace(stack, gpu=gpu)))
        assert (fast_s <= slow_s).all()


@pytest.mark.parametrize("op", OPS)
def test_pcie_5_moves_no_less_than_pcie_4(op: str) -> None:
    """Of bandwidth: latencies of small messages were measured on other machines, and differ by a microsecond."""
    large = np.array([2.0**26, 2.0**28])
    for make in (lambda stack: stack, staged):
        four, five = (collectives_s(make(stack_of(gpu=gpu)), large, op, 2) for gpu in ("l40s", "rtx-pro-6000"))
        assert (np.diff(five) <= np.diff(four) * 1.001).all()


@pytest.mark.parametrize(("num_bytes", "measured_us"), [
    (10_240, 16.24), (139_264, 22.78), (1_310_720, 90.59), (20_971_520, 1309.13)])
def test_two_rtx_pro_6000_take_what_was_measured(num_bytes: int, measured_us: float) -> None:
    """NCCL in a CUDA graph, LLMServingSim 2026-09-08: 1, 14, 128 and 2,048 tokens of Qwen3-32B."""
    stack = staged(stack_of(gpu="rtx-pro-6000"))
    found_s = collectives_s(stack, np.array([num_bytes]), "all_reduce", 2)[0]
    assert found_s * 1e6 == pytest.approx(measured_us, rel=0.1)


@pytest.mark.parametrize(("gpu", "is_measured"), [("rtx-pro-6000", True), ("rtx-4090", False)])
def test_the_shipped_constants_are_a_hosts(gpu: str, is_measured: bool) -> None:
    """Less than PCIe 4 has, and a start of microseconds; other cards take the mean of two machines."""
    fit = find_fit(HostPathConstants, "host_paths", gpu=gpu, engine="nccl")
    assert fit.is_measured is is_measured
    assert 8e9 < fit.constants.bandwidth_bytes_per_s < 32e9
    assert 1e-6 < fit.constants.latency_s < 3e-5
    assert fit.row["source"]
    assert fit.row["median_ape"] < 0.05


def test_cards_on_pcie_5_wait_as_long_as_the_one_that_was_measured() -> None:
    """A small all-reduce of two RTX 5090 starts as that of two RTX PRO 6000; two RTX 4090 wait longer."""
    small = {gpu: float(collectives_s(staged(stack_of(gpu=gpu)), np.array([4096.0]), "all_reduce", 2)[0])
             for gpu in ("rtx-5090", "rtx-pro-6000", "rtx-4090")}
    assert small["rtx-5090"] == pytest.approx(small["rtx-pro-6000"], rel=0.1)
    assert small["rtx-4090"] > small["rtx-5090"] + 8e-6


def test_geforce_cards_and_hosts_as_installed_have_no_peer_access() -> None:
    found = {name for name in gpu_names() if is_staged(None, load_gpu(name))}
    assert found == {"rtx-3090", "rtx-4090", "rtx-5090", "rtx-pro-4500", "rtx-pro-5000", "rtx-pro-5000-72gb",
                     "rtx-pro-6000"}
    assert all(load_gpu(name).provenance["host_staged"].source for name in found)


def stack_with(**options: Any) -> StepContext:
    stack = deploy(Scenario(**PAIR | options)).stack
    assert stack is not None
    return stack


def test_a_user_says_what_the_host_is_set_up_for() -> None:
    assert stack_with().is_staged
    assert not stack_with(pcie_p2p=True).is_staged
    assert stack_with(gpu="l40s", pcie_p2p=False).is_staged
    assert not stack_with(gpu="l40s").is_staged
    assert not stack_with(gpu="h100-sxm", pcie_p2p=False).is_staged


def test_a_note_says_so_where_gpus_work_together() -> None:
    trace = trace_of([(0.0, 10, 1)])

    def is_noted(text: str = "through the host", **options: Any) -> bool:
        return any(text in note for note in notes(resolve(Scenario(**PAIR | options), trace), trace))

    assert is_noted()
    assert not is_noted(pcie_p2p=True)
    assert not is_noted(tensor_parallel_size=1)
    assert is_noted("pcie_p2p = True: no effect, since NVLink 4 joins h100-sxm", gpu="h100-sxm", pcie_p2p=True)


@pytest.mark.parametrize("gpu", ["h100-sxm", "l40s", "b200-sxm"])
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_nccl_sends_all_messages_without_the_engines_own_all_reduce(gpu: str, engine: str) -> None:
    """A decode's message of 16 tokens takes longer by NCCL."""
    own = stack_of(gpu=gpu, engine=engine, layout=Layout(tensor_parallel_size=2))
    nccl = replace(own, uses_nccl=True)
    assert terms_of(nccl, step(0, 16, 100))["collectives_s"] > terms_of(own, step(0, 16, 100))["collectives_s"]


@pytest.mark.parametrize("command", [
    "vllm serve m/m --disable-custom-all-reduce",
    "python -m sglang.launch_server --model m/m --disable-custom-all-reduce"])
def test_a_launch_without_the_engines_own_all_reduce(command: str) -> None:
    found = read_launch(command)
    assert found.options["custom_all_reduce"] is False
    assert found.unmodelled == ()
    assert stack_with(gpu="l40s", **{**found.options, "model": "qwen3-32b"}).uses_nccl
