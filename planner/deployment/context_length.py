"""The context limit of a deployment: the scenario's, the model's, the trace's, or the longest that the KV cache holds.
"""

from typing import Any

from planner.catalog.architecture import Architecture
from planner.deployment.sliding_windows import Windows
from planner.engines import ENGINES
from planner.engines.compressed_groups import CompressedGroups
from planner.errors import CapacityError, UsageError
from planner.policies.policy import CONTEXT_KEPT_FREE, Policy
from planner.settings.deployment_options import FITTED_LENGTH, given_length
from planner.settings.scenario import Scenario


def asked_context(scenario: Scenario, architecture: Architecture) -> int:
    """Return the context limit before it is fitted: the scenario's, or the engine's for the model [tokens]."""
    return given_length(scenario) or ENGINES[scenario.engine].defaults.context(architecture, scenario.engine_version)


def longest_context(scenario: Scenario, policy: Policy, architecture: Architecture | None,
                    longest_request: int) -> int:
    """Return the context limit [tokens]: the scenario's, or the engine's for the model, or the longest request."""
    if architecture is not None:
        return asked_context(scenario, architecture)
    if (asked := given_length(scenario)) is not None:
        return asked
    if scenario.max_model_len == FITTED_LENGTH:
        raise UsageError(f"max_model_len = {FITTED_LENGTH}: the engine fits the model's context to the KV cache, and "
                         f"no model is given; give --model, or a length")
    return longest_request + (CONTEXT_KEPT_FREE if policy.promises == "share" else 0)


def fitted_context(longest: int, *, num_gpu_blocks: int, **rules: Any) -> int:
    """Return the longest context of one request that the KV cache holds, at most the model's [tokens].

    Parameters
    ----------
    longest, num_gpu_blocks, rules : as of `longest_fitting`.

    Raises
    ------
    CapacityError : the KV cache does not hold one token.
    """
    fitted = longest_fitting(longest, num_gpu_blocks=num_gpu_blocks, **rules)
    if fitted < 1:
        raise CapacityError(f"max_model_len = {FITTED_LENGTH}: the KV cache of {num_gpu_blocks:,} blocks does not hold "
                            f"one token; raise gpu_memory_utilization or tensor_parallel_size")
    return fitted


def longest_fitting(longest: int, *, engine: str, version: str | None, num_gpu_blocks: int, block_size: int,
                    state_blocks: int, windows: Windows | None, compressed: CompressedGroups | None = None) -> int:
    """Return the longest context of one request that the KV cache holds, 0 if it holds no token [tokens].

    Parameters
    ----------
    longest : context at most [tokens].
    state_blocks : blocks of a sequence's recurrent states or compressed windows [1].
    windows : of sliding layers; None if the blocks are given.
    compressed : of compressed sparse attention; None elsewhere.

    Notes
    -----
    A request takes blocks for its context, its states and its windows. Source: `_auto_fit_max_model_len` in
    vllm/v1/core/kv_cache_utils.py of 0.14, and kv_cache_planning.py of 0.33.
    """
    usable = num_gpu_blocks - ENGINES[engine].memory.reserved_blocks(version) - state_blocks

    def fits(length: int) -> bool:
        if compressed is not None:
            return compressed.needed_bytes(length) <= num_gpu_blocks * compressed.block_bytes
        needed = -(-length // block_size)
        if windows is not None:
            needed += windows.window_blocks(length, windows.window_chunk)
        return needed <= usable

    if fits(longest):
        return longest
    least, most = 0, longest - 1
    while least < most:
        middle = (least + most + 1) // 2
        least, most = (middle, most) if fits(middle) else (least, middle - 1)
    return least
