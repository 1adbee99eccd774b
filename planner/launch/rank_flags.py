"""Ranks of data-parallel attention in launch commands, by the flags and counts of each engine (`RankFlags`).

- vLLM: `--data-parallel-size N` of a mixture of experts; each rank has the limits. Its API server deals requests to
  ranks, or to replicas of a dense model, by a score of its own.
- SGLang: `--enable-dp-attention --dp-size N`; `--tp-size` counts all GPUs, and all ranks share the limits.
- TensorRT-LLM: `enable_attention_dp`; the ranks are the GPUs of `--tp_size`, and each rank has the limits.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from planner.engines import ENGINES
from planner.engines.dialect import RankFlags
from planner.errors import UsageError
from planner.launch.checkpoint_format import known_model
from planner.model.layout import ALL_GATHER
from planner.settings.default_router import router_of
from planner.settings.scenario import Scenario

OF_ALL_RANKS = ("max_num_seqs", "max_num_batched_tokens")  # in SGLang's flags


def read_ranks(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as a scenario counts them, from an engine's flags.

    Raises
    ------
    UsageError : SGLang's ranks do not divide its GPUs.
    """
    flags = ENGINES[found["engine"]].dialect.ranks
    found = _with_experts(_with_prompt_shares(found) if flags.needs_switch else found, flags)
    size, ranks = found.get("tensor_parallel_size", 1), found.get("data_parallel_size", 1)
    if not flags.needs_switch:
        if ranks == 1:
            return dict(found)
        return dict(found) | {"router": flags.router} | (
            {"data_parallel_attention": True} if has_experts(found["model"]) else {})
    options = {name: value for name, value in found.items() if name != "data_parallel_attention"}
    if flags.are_all_gpus:
        ranks = size
    if not found.get("data_parallel_attention") or ranks == 1:
        return options
    if size % ranks:
        raise UsageError(f"--from-command: {ranks} ranks of data-parallel attention over {size} GPUs; must divide them "
                         f"(--tp-size counts the GPUs of all ranks)")
    if flags.limits_are_of_all:
        options |= {name: max(options[name] // ranks, 1) for name in OF_ALL_RANKS if options.get(name, 0) > 0}
    return options | {"tensor_parallel_size": size // ranks, "data_parallel_size": ranks,
                      "data_parallel_attention": True}


def _with_prompt_shares(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return SGLang's options with the groups of GPUs that share prompts apart from tensor parallelism.

    `--tp-size` counts the GPUs of all groups and ranks; without `--attn-cp-size` each GPU of a rank is a group.

    Raises
    ------
    UsageError : the groups do not divide the GPUs.
    """
    is_on, shares = found.get("shares_prompts", False), found.get("prefill_context_parallel_size")
    kept = {name: value for name, value in found.items() if name != "shares_prompts"}
    if not is_on and (shares or 1) == 1:
        return kept
    size, ranks = kept.get("tensor_parallel_size", 1), _own_ranks(kept)
    shares = shares or max(size // ranks, 1)
    if size % (ranks * shares):
        raise UsageError(f"--from-command: {ranks} x {shares} groups of GPUs, by --dp-size and --attn-cp-size, over "
                         f"{size} GPUs; must divide them")
    return kept | {"tensor_parallel_size": size // shares, "prefill_context_parallel_size": shares}


def _own_ranks(found: Mapping[str, Any]) -> int:
    """Return the ranks of SGLang's data-parallel attention; 1 without."""
    return int(found.get("data_parallel_size", 1)) if found.get("data_parallel_attention") else 1


def _with_experts(found: Mapping[str, Any], flags: RankFlags) -> Mapping[str, Any]:
    """Return options with whole experts if SGLang's tokens are sent to their experts (`_handle_a2a_moe`).

    If ranks have no tokens of their own, all GPUs have all tokens, and none are sent.
    """
    if found.get("all2all_backend", ALL_GATHER) == ALL_GATHER:
        return found
    whole = flags.sends_whole_experts or bool(found.get("expert_parallel")) or found.get("experts", 1) > 1
    ranks = found.get("tensor_parallel_size" if flags.are_all_gpus else "data_parallel_size", 1)
    own = ranks > 1 and (not flags.needs_switch or bool(found.get("data_parallel_attention")))
    own = own or found.get("prefill_context_parallel_size", 1) > 1
    kept = {name: value for name, value in found.items() if name != "all2all_backend" or (own and whole)}
    return kept | ({"expert_parallel": True} if whole else {})


def written_ranks(scenario: Scenario) -> tuple[Scenario, dict[str, str]]:
    """Return a scenario's options as its engine's flags count them, and those without a flag, with why they lack it.

    An option that lacks nothing has an empty text.
    """
    size = scenario.tensor_parallel_size * scenario.prefill_context_parallel_size
    ranks, flags = scenario.data_parallel_size, ENGINES[scenario.engine].dialect.ranks
    if not flags.needs_switch:
        return scenario, _without_a_flag(scenario, flags)
    if not scenario.data_parallel_attention:
        return replace(scenario, tensor_parallel_size=size), {}
    if flags.are_all_gpus:
        return replace(scenario, tensor_parallel_size=size * ranks), {
            "data_parallel_size": "" if size == 1 else f"tensor_parallel_size = {size} of a rank"}
    limits: dict[str, Any] = {name: getattr(scenario, name) * ranks for name in OF_ALL_RANKS if getattr(scenario, name)}
    return replace(scenario, tensor_parallel_size=size * ranks, **limits), {}


def _without_a_flag(scenario: Scenario, flags: RankFlags) -> dict[str, str]:
    """Return the options about its ranks that an engine without a switch has no flag for, as `written_ranks`."""
    ranks = scenario.data_parallel_size
    if ranks == 1:
        return {}
    if not scenario.data_parallel_attention and scenario.model is not None and has_experts(scenario.model):
        return {"data_parallel_size": f"data_parallel_size = {ranks}"}
    return {"data_parallel_attention": "", "router": "" if router_of(scenario) == flags.router else
            f"router = {router_of(scenario)}"}


def has_experts(model: str) -> bool:
    """Tell whether a model that is known is a mixture of experts."""
    arch = known_model(model)
    return arch is not None and arch.num_moe_layers > 0
