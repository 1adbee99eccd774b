"""How evenly experts load their GPUs: the loads of a power law, and EPLB's placement of experts and copies."""

import functools

import numpy as np
from numpy.typing import NDArray

EXPONENT = 1.01  # of the power law of loads in AIConfigurator's kernel tables (`power_law_1.01`)
LARGEST_LOAD = 1000.0  # of the law over its smallest: the tables have 0.8 times the tokens of a step


def power_law_loads(num_experts: int) -> NDArray[np.float64]:
    """Return each expert's share of the tokens under a power law, the smallest first, shape [num_experts].

    The quantiles of the density x^-a on [1, m], a = 1.01 and m = 1000, at the middle of each expert's share.

    >>> loads = power_law_loads(256)
    >>> round(float(loads.sum()), 6), round(float(loads.max() * 256), 1)
    (1.0, 7.0)
    """
    power = 1.0 - EXPONENT
    middles = (np.arange(num_experts) + 0.5) / num_experts
    loads = ((LARGEST_LOAD**power - 1.0) * middles + 1.0) ** (1.0 / power)
    shares: NDArray[np.float64] = loads / loads.sum()
    return shares


@functools.lru_cache(maxsize=64)
def balanced_load(num_experts: int, num_slots: int, num_gpus: int) -> float:
    """Return the busiest GPU's load over the mean under EPLB, with the loads of a power law [1].

    DeepSeek's algorithm (deepseek-ai/EPLB, `replicate_experts` and `balanced_packing`): each redundant slot goes to the
    expert with the largest load a copy; then slots, the most loaded first, go to the least loaded GPU with room.

    Parameters
    ----------
    num_slots : experts and their copies, a multiple of `num_gpus`.

    >>> [round(balanced_load(256, slots, 64), 2) for slots in (256, 320)]  # an expert of seven times the mean
    [1.75, 1.1]
    """
    loads, copies = power_law_loads(num_experts), np.ones(num_experts)
    for _ in range(num_slots - num_experts):
        copies[np.argmax(loads / copies)] += 1
    slots = np.sort(np.repeat(loads / copies, copies.astype(int)))[::-1]
    held, count = np.zeros(num_gpus), np.zeros(num_gpus, int)
    for load in slots:
        gpu = np.argmin(np.where(count < num_slots // num_gpus, held, np.inf))
        held[gpu] += load
        count[gpu] += 1
    return float(held.max() * num_gpus)
