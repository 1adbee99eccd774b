"""Values that belong to one engine: they do not cross to another engine, whose defaults stand in their place."""

from collections.abc import Mapping, Sequence
from typing import Any

from planner.engines import ENGINES
from planner.errors import UsageError
from planner.settings.scenario import LABELS, OPTION_DEFAULTS

# Options of several engines whose values are one engine's: its releases, kernels, shares of memory and rules.
OWN_VALUES = ("engine_version", "gpu_memory_utilization", "moe_backend", "all2all_backend", "fp32_matmul",
              "max_cudagraph_capture_size", "max_prefill_tokens", "watermark", "scheduler_reserve_full_isl",
              "kv_write_policy", "swap_space")
EAGER = "none"  # the mode without CUDA graphs, which all engines have


def crossed(options: Mapping[str, Any], owners: Mapping[str, str], engine: str) -> tuple[dict[str, Any], list[str]]:
    """Return options as an engine takes them, and a note on values that belong to another engine.

    Parameters
    ----------
    options : of a scenario, by name.
    owners : the engine that each value was given for, by option; options without one stay.
    engine : that takes them.

    >>> crossed({"engine_version": "0.11.0", "max_num_seqs": 64}, {"engine_version": "vllm"}, "sglang")[0]
    {'max_num_seqs': 64}
    """
    dropped: dict[str, dict[str, Any]] = {}
    for name, value in options.items():
        owner = owners.get(name, engine)
        if owner != engine and value not in (None, OPTION_DEFAULTS.get(name)) and _belongs(name, value, owner, engine):
            dropped.setdefault(owner, {})[name] = value
    left_out = {name for values in dropped.values() for name in values}
    return ({name: value for name, value in options.items() if name not in left_out},
            [_note(values, owner, engine) for owner, values in dropped.items()])


def _belongs(name: str, value: Any, owner: str, engine: str) -> bool:
    """Tell whether a value of one engine says nothing of another."""
    if name == "policy":
        return value in ENGINES[owner].scheduler.own_policies
    if name == "cudagraph_mode":
        return bool(value != EAGER)
    engines = LABELS[name].engines if name in LABELS else ()
    return name in OWN_VALUES or (bool(engines) and engine not in engines
                                  and name not in ENGINES[engine].dialect.options)


def _note(values: Mapping[str, Any], owner: str, engine: str) -> str:
    """Say which values are left out, and which stand in their place."""
    title, owners = ENGINES[engine].title, ENGINES[owner].title
    known = {"engine_version": "the newest release", "policy": f"policy {ENGINES[engine].defaults.options.policy}"}
    pairs = ", ".join(f"{name} = {value}" for name, value in values.items())
    places = ", ".join(known.get(name, f"the default {name}") for name in values)
    return f"{title} is replayed without {owners}'s {pairs}; in their place: {places}"


def check_axes(axes: Mapping[str, Sequence[Any]]) -> None:
    """Raise UsageError if releases vary beside engines: a release belongs to one engine."""
    engines, releases = axes.get("engine", ()), axes.get("engine_version", ())
    if len(engines) > 1 and len(releases) > 1:
        raise UsageError(f"engine_version = {', '.join(map(str, releases))} beside engine = "
                         f"{', '.join(map(str, engines))}: a release is of one engine; give each engine with its "
                         f"releases in a command or file of its own")
