"""Placement of experts by their load: laws, memory, and measured kernels with EPLB."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from steps import stack_of, step, terms_of

from planner.catalog.catalog_files import load_model
from planner.deployment.deploy import deploy
from planner.deployment.memory import weight_bytes
from planner.errors import UsageError
from planner.model.expert_balance import balanced_load, power_law_loads
from planner.model.layout import Layout
from planner.settings.scenario import Scenario


@given(num_gpus=some.sampled_from((2, 4, 8, 16, 32, 64)), per_gpu=some.integers(1, 8), copies=some.integers(0, 4))
def test_placement_by_load_never_raises_the_largest_load(num_gpus: int, per_gpu: int, copies: int) -> None:
    """Experts in the order of their numbers, the worst and a random order, are no more even; copies help."""
    experts = num_gpus * per_gpu
    loads = power_law_loads(experts)
    balanced = balanced_load(experts, experts, num_gpus)
    for order in (loads, np.random.default_rng(7).permutation(loads)):
        assert balanced <= order.reshape(num_gpus, per_gpu).sum(axis=1).max() * num_gpus + 1e-9
    assert balanced_load(experts, experts + copies * num_gpus, num_gpus) >= 1 - 1e-9
    assert balanced_load(experts, experts + num_gpus, num_gpus) <= balanced * (1 + 1 / per_gpu)


@pytest.mark.parametrize("ranks", [8, 32, 64])
def test_a_step_is_never_longer_with_experts_placed_by_load(ranks: int) -> None:
    common: dict[str, Any] = {"data_parallel_size": ranks, "expert_parallel_size": ranks}
    plain, placed = (stack_of("deepseek-v3", "gb200", layout=Layout(**common, enable_eplb=is_placed))
                     for is_placed in (False, True))
    for row in (step(0, 1, 1000), step(0, 64, 1000), step(2048, 64, 1000)):
        times = [terms_of(stack, row)["experts_s"] for stack in (plain, placed)]
        assert times[1] <= times[0]
    assert times[1] < 0.8 * times[0]


def test_copies_take_memory() -> None:
    """32 copies over 32 GPUs: a ninth expert on each, of three matrices of 7,168 by 2,048 in 58 layers, 8 bit."""
    common: dict[str, Any] = {"data_parallel_size": 32, "expert_parallel_size": 32, "enable_eplb": True}
    arch = load_model("deepseek-v3")
    none, some_copies = (weight_bytes(arch, None, Layout(**common, num_redundant_experts=copies)) for copies in (0, 32))
    assert some_copies - none == pytest.approx(58 * 3 * 7168 * 2048, rel=0.01)


@pytest.mark.parametrize(("options", "said"), [
    ({"enable_eplb": True}, "give --expert-parallel"),
    ({"expert_parallel": True, "num_redundant_experts": 8}, "give --enable-eplb"),
    ({"expert_parallel": True, "enable_eplb": True, "num_redundant_experts": -1}, "must be at least 0"),
    ({"expert_parallel": True, "enable_eplb": True, "num_redundant_experts": 3},
     "259 experts and copies cannot be divided over 8 GPUs; 8 can"),
])
def test_placements_that_cannot_be_are_refused(options: dict[str, Any], said: str) -> None:
    scenario = Scenario(model="deepseek-v3", gpu="h200-sxm", tensor_parallel_size=8, **options)
    with pytest.raises(UsageError, match=said):
        deploy(scenario)
