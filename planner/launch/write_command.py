"""A launch command written: the flags that set an engine to a scenario's options."""

import shlex
from dataclasses import replace
from typing import Any

import yaml

from planner.engines import ENGINES
from planner.engines.dialect import Dialect, DraftFlags, Flag, Switch, Tree
from planner.errors import PlannerError
from planner.launch.checkpoint_format import is_own_format, missing_checkpoint, served_name
from planner.launch.flag_names import nested
from planner.launch.rank_flags import written_ranks
from planner.model.drafting import BLOCKS
from planner.model.loaded_model import loaded_model
from planner.settings.default_router import router_of
from planner.settings.scenario import Scenario, given_options, names_in
from planner.settings.tier_options import has_host_tier

FILE = "engine.yaml"
OWN_DRAFTS = ("eagle", "eagle3", "dflash", "dspark", "medusa")  # heads of a model, in checkpoints of their own
NOT_THE_SERVERS = {"model", "gpu", "inter_node_bandwidth", "inter_node_latency", "pcie_p2p", "power_limit", "engine",
                   "engine_version", "step_time", "calibration", "interval", "speculative_acceptance"}


def launch_command(scenario: Scenario) -> tuple[str, tuple[str, ...]]:
    """Return the command that launches a scenario's engine, and the list of its gaps: options without a flag, weights.

    Options at the engine's defaults are left out. If some options stand in a file alone, the command writes it
    first.

    >>> print(launch_command(Scenario(model="qwen3-32b", max_num_seqs=256))[0])
    vllm serve Qwen/Qwen3-32B --max-num-seqs 256
    """
    dialect = ENGINES[scenario.engine].dialect
    scenario, without = written_ranks(_pooled(scenario, dialect))
    words, in_file, lacking = [*dialect.launch, served_name(scenario.model)], {}, [*filter(None, without.values())]
    weights = missing_checkpoint(scenario)
    for name, value in _given(scenario):
        if name in without or (name == "quantization" and is_own_format(scenario)):
            continue
        if (flag := _flag(dialect, dialect.entries, name, value, scenario)) is not None:
            words += flag
        elif (entry := _flag(dialect, dialect.file_entries, name, value, scenario)) is not None:
            in_file[entry[0]] = entry[1] if len(entry) > 1 else True
        elif name != "quantization" or weights is None:
            lacking.append(f"{name} = {value}")
    lacking += [] if weights is None else [weights]
    if dialect.drafts is not None and scenario.speculative_method in BLOCKS and scenario.num_speculative_tokens:
        _name_block(words, dialect.drafts, scenario)
    if scenario.num_speculative_tokens and scenario.speculative_method in OWN_DRAFTS and not scenario.speculative_model:
        lacking.append(f"speculative_model, the checkpoint that {scenario.speculative_method} drafts with")
    if dialect.lora_switch is not None and scenario.max_loras:
        words.append(dialect.lora_switch)
    if dialect.tier is not None and dialect.tier.switch is not None and has_host_tier(scenario):
        words.append(dialect.tier.switch)
    command = shlex.join(words)
    if in_file:
        tables = nested((flag.removeprefix("--"), yaml.safe_load(value) if isinstance(value, str) else value)
                        for flag, value in in_file.items())
        command = (f"cat > {FILE} <<'EOF'\n{yaml.safe_dump(tables, sort_keys=False)}EOF\n"
                   f"{command} {_spelled(dialect, dialect.files[0])} {FILE}")
    return command, tuple(lacking)


def _pooled(scenario: Scenario, dialect: Dialect) -> Scenario:
    """Return a scenario with the options of its pooling model that flags set."""
    try:
        arch = loaded_model(scenario)
    except PlannerError:
        return scenario
    if arch is None or arch.pooling is None:
        return scenario
    pooled = scenario if dialect.files_tell_pooling else replace(scenario, pooling=arch.pooling)
    is_told = arch.needs_whole_prompts and dialect.whole_prompts_by_flags
    return replace(pooled, enable_chunked_prefill=False, enable_prefix_caching=False) if is_told else pooled


def _name_block(words: list[str], flags: DraftFlags, scenario: Scenario) -> None:
    """Put the size of a block in place of a number of steps; DFlash's block has the last token too."""
    at = words.index(flags.steps)
    size = scenario.num_speculative_tokens + (scenario.speculative_method == "dflash")
    words[at:at + 2] = [flags.block, str(size)]


def describe_launch(scenario: Scenario) -> dict[str, Any]:
    """Return the command as `command`, and its gaps as `command_lacks`, for results."""
    command, lacking = launch_command(scenario)
    return {"command": command, "command_lacks": list(lacking)}


def _given(scenario: Scenario) -> list[tuple[str, Any]]:
    """Return the options of the deployment and its scheduling that are not at their defaults."""
    load, default = set(names_in("Load")), ("router", router_of(replace(scenario, router=None)))
    return [option for option in given_options(scenario).items()
            if option[0] not in load | NOT_THE_SERVERS and option != default]


def _flag(dialect: Dialect, entries: tuple[Flag | Switch | Tree, ...], option: str, value: Any,
          scenario: Scenario) -> list[str] | None:
    """Return the words that set an option, None if there are none among the entries."""
    if option == "expert_parallel" and dialect.experts and entries is dialect.entries:
        spread = scenario.tensor_parallel_size // scenario.expert_tensor_parallel_size
        return [_spelled(dialect, dialect.experts[0]), str(spread)]
    if option == "expert_tensor_parallel_size" and dialect.experts:
        return []  # follows from both sizes
    if option == "num_gpu_blocks" and dialect.kv_tokens and ("." in dialect.kv_tokens[0]) != (
            entries is dialect.entries):
        return [_spelled(dialect, dialect.kv_tokens[0]), str(value * scenario.block_size)]
    if option == "kv_offloading_size" and dialect.tier is not None:
        return _tier_size(dialect, value, scenario) if ("." in dialect.tier.size) != (
            entries is dialect.entries) else None
    for entry in entries:
        if isinstance(entry, Tree) or entry.option != option:
            continue
        name = _spelled(dialect, entry.names[0])
        if isinstance(entry, Switch):
            if value == entry.value:
                return [name]
            if value == entry.otherwise and entries is dialect.entries:
                return [f"--no-{name.removeprefix('--')}"]
            if value == entry.otherwise:
                return [name, "false"]
        elif (text := entry.write(value)) is not None:
            return [name, *((text,) if isinstance(text, str) else text)]
    return None


def _tier_size(dialect: Dialect, gib: float, scenario: Scenario) -> list[str] | None:
    """Return the words that set a tier's size, which counts one GPU's; None if it is no whole number there."""
    assert dialect.tier is not None
    gpus = scenario.tensor_parallel_size * scenario.pipeline_parallel_size
    size = gib * 2**30 / gpus / dialect.tier.unit_bytes
    return [_spelled(dialect, dialect.tier.size), str(int(size))] if size == int(size) else None


def _spelled(dialect: Dialect, name: str) -> str:
    """Return a flag as the engine's documents write it: the keys of tables with underscores."""
    flag, dot, key = name.removeprefix("--").partition(".")
    return f"--{flag.replace('-', dialect.dash)}{dot}{key.replace('-', '_')}"
