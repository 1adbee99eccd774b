"""A layout: the sizes that follow from its own, and what it refuses."""

import pytest

from planner.errors import UsageError
from planner.model.layout import Layout


def test_sizes_follow() -> None:
    layout = Layout(tensor_parallel_size=4, pipeline_parallel_size=2, data_parallel_size=2, expert_parallel_size=4)
    assert (layout.num_gpus, layout.num_expert_gpus, layout.expert_tensor_parallel_size) == (16, 8, 2)
    assert (Layout().num_gpus, Layout().expert_tensor_parallel_size) == (1, 1)


@pytest.mark.parametrize("name", [name for name in Layout.__slots__ if name.endswith("_size")])
def test_sizes_are_at_least_one(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} = 0; must be at least 1"):
        Layout(**{name: 0})


def test_a_wait_is_not_negative() -> None:
    with pytest.raises(UsageError, match="attention_dp_timeout_iters = -1; must be at least 0"):
        Layout(attention_dp_timeout_iters=-1)


@pytest.mark.parametrize("size", [3, 16])
def test_experts_are_spread_evenly_over_the_gpus_there_are(size: int) -> None:
    with pytest.raises(UsageError, match=f"expert_parallel_size = {size}; must divide the 8 GPUs"):
        Layout(tensor_parallel_size=4, data_parallel_size=2, expert_parallel_size=size)
