"""A scenario: one deployment, its scheduling and its load, of the options that each panel's file declares."""

import json
import typing
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from planner.engines import ENGINES
from planner.errors import UnknownNameError, UsageError
from planner.settings.deployment_options import DeploymentOptions, check_deployment
from planner.settings.fleet_options import FleetOptions, check_fleet
from planner.settings.load_options import LoadOptions
from planner.settings.option_types import of_no_type, types_in
from planner.settings.overload_options import OverloadOptions
from planner.settings.panel import Label, Range
from planner.settings.scheduling_options import SchedulingOptions
from planner.settings.step_time_options import StepTimeOptions, check_step_time
from planner.settings.tier_options import TierOptions, check_tier_options

ALIASES = {"replicas": "data_parallel_size"}  # of options, in files and on the command line
MOST = 2**62  # of a whole number, so that 64 bits hold it


def names_in(panel: str) -> tuple[str, ...]:
    """Return the names of a panel's options.

    >>> names_in("Step time")[0]
    'step_time'
    """
    return tuple(f.name for f in fields(Scenario) if f.metadata["panel"] == panel)


@dataclass(frozen=True, kw_only=True)
class Scenario(LoadOptions, StepTimeOptions, OverloadOptions, SchedulingOptions, FleetOptions, TierOptions,
               DeploymentOptions):
    """All options that a what-if can change. Names and defaults are vLLM's if vLLM has the option. `None`: not given.

    The command line's options, the axes of a sweep and the keys of a targets file are these fields. Each panel's fields
    have their own file; the fields of a dataclass begin with its last base's.
    """

    def __post_init__(self) -> None:
        check_declared(self)
        if self.data_parallel_attention and self.data_parallel_size < 2:
            raise UsageError(f"data_parallel_attention with data_parallel_size = {self.data_parallel_size}: one rank "
                             f"steps with no other; give --data-parallel-size N, the ranks")
        check_deployment(self)
        check_tier_options(self)
        check_fleet(self)
        check_step_time(self)


def check_declared(scenario: Scenario) -> None:
    """Raise UsageError if an option has a number out of its range, lacks an option, or excludes one that is set.

    >>> check_declared(Scenario(watermark=0.5))
    """
    for name, values in RANGES.items():
        value = getattr(scenario, name)
        if value is not None and value not in values:
            unit = LABELS[name].unit
            raise UsageError(f"{name} = {value}: must be {values}{f' [{unit}]' if unit else ''}")
    for (name, relation), others in RELATIONS.items():
        value = getattr(scenario, name)
        if value == OPTION_DEFAULTS[name]:
            continue
        for other, reason in others.items():
            beside = getattr(scenario, other)
            is_set = beside != OPTION_DEFAULTS[other]
            if relation == "needs" and not is_set:
                raise UsageError(f"{name} = {value}: {reason}; give --{other.replace('_', '-')}")
            if relation == "excludes" and is_set:
                raise UsageError(f"{name} = {value!r} and {other} = {beside!r}: {reason}; leave one of them out")


OPTION_DEFAULTS = {f.name: f.default for f in fields(Scenario)}
LABELS: dict[str, Label] = {f.name: f.metadata["label"] for f in fields(Scenario)}
LOAD_OPTIONS = tuple(name for name in names_in("Load") if name != "seed")  # the seed also draws for a router
RANGES: dict[str, Range] = {f.name: f.metadata["range"] for f in fields(Scenario) if f.metadata["range"] is not None}
RELATIONS: dict[tuple[str, str], dict[str, str]] = {
    (f.name, relation): f.metadata[relation] for f in fields(Scenario) for relation in ("needs", "excludes")
    if f.metadata[relation]}
NO_LIMITS = tuple(f.name for f in fields(Scenario) if f.metadata["no_limit"])  # 0 means no limit to the scheduler
OPTION_TYPES = typing.get_type_hints(Scenario)  # by name; finding them out takes a while
OPTION_TYPES["engine"] = Literal[tuple(ENGINES)]
KINDS = {name: types_in(hint) for name, hint in OPTION_TYPES.items()}  # types of an option's values, without None


def scenario_from(options: dict[str, Any]) -> Scenario:
    """Return a scenario from option values. A value None means the default of its option."""
    return Scenario(**{name: value for name, value in options.items()
                       if value is not None or OPTION_DEFAULTS[name] is None})


def parse_scenario(options: Mapping[str, Any]) -> Scenario:
    """Build a scenario from the keys and values of a file. A value None leaves out an option without a default.

    >>> parse_scenario({"gpu": "h100-sxm", "watermark": 0}).watermark
    0.0

    Raises
    ------
    UnknownNameError : a key is not an option.
    UsageError : a value does not have its option's type, or is not one of its choices.
    """
    values: dict[str, Any] = {}
    for key, value in options.items():
        name = ALIASES.get(key, key)
        if name in values:
            raise UsageError(f"{key} = {value!r}: is {name}, which is there already; leave one of them out")
        if name not in OPTION_TYPES:
            raise UnknownNameError("option", name, OPTION_TYPES)
        values[name] = None if value is None and OPTION_DEFAULTS[name] is None else _of_kind(name, value)
    return Scenario(**values)


def attention_ranks(scenario: Scenario) -> int:
    """Return the data-parallel attention ranks of a replica; 1 if `data_parallel_size` counts replicas.

    >>> attention_ranks(Scenario(data_parallel_size=8)), attention_ranks(
    ...     Scenario(data_parallel_size=8, data_parallel_attention=True))
    (1, 8)
    """
    return scenario.data_parallel_size if scenario.data_parallel_attention else 1


def given_options(scenario: Scenario) -> dict[str, Any]:
    """Return the options of a scenario that differ from their defaults, as `parse_scenario` reads them.

    >>> given_options(Scenario(gpu="h100-sxm", block_size=16))
    {'gpu': 'h100-sxm'}
    """
    return {f.name: getattr(scenario, f.name) for f in fields(Scenario) if getattr(scenario, f.name) != f.default}


def _of_kind(name: str, value: Any) -> Any:
    """Return a value as the first of its option's types that fits. A whole number fits a float."""
    if type(value) is int and abs(value) >= MOST:
        raise UsageError(f"{name} = {value}: must be below {MOST}")
    if name in ("speculative_acceptance", "session_start_fraction") and isinstance(value, int | float | list):
        return ",".join(map(str, value)) if isinstance(value, list) else str(value)
    if name == "num_speculative_tokens_per_batch_size" and isinstance(value, list):
        return json.dumps(value, separators=(",", ":"))
    for kind in KINDS[name]:
        choices = typing.get_args(kind)
        if value in choices or (not choices and type(value) is kind):
            return value
        if kind is float and type(value) is int:
            return float(value)
    raise of_no_type(name, value, KINDS[name])
