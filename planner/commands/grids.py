"""What-ifs and grids from the options of a command: every combination of values, and the plan of a sweep."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from planner.engines import ENGINES
from planner.errors import UsageError
from planner.planning.grid import Sweep, parse_axis, parse_constraint, plan_sweep, read_sweep
from planner.settings.crossing import check_axes, crossed
from planner.settings.scenario import OPTION_DEFAULTS, Scenario, parse_scenario

SPEAKING = ("policy", "gpu", "model", "quantization")  # options whose values name a what-if without the option's name


def what_ifs(choices: Mapping[str, Sequence[Any]], axes: Sequence[str],
             launched: Mapping[str, Any] = MappingProxyType({})) -> dict[str, tuple[Scenario, list[str]]]:
    """Return every combination of values as a scenario with notes, by a name of its varied values.

    Parameters
    ----------
    choices : values by option.
    axes : more of them, as `--axis` has them.
    launched : options of a launch command that are among the values. They belong to its engine, and other single
        values to the first engine. An axis replaces them, with a note.

    Raises
    ------
    UsageError, UnknownNameError : an axis cannot be read, or its option has
        values already that are not the launch command's.
    """
    given, replaced = dict(choices), []
    for name, values in map(parse_axis, axes):
        if name in given and (name not in launched or given[name] != [launched[name]]):
            raise UsageError(f"--axis {name}: has values already; give all of them in one")
        if name in given:
            replaced.append(f"--axis {name} replaces the launch command's {name} = {_text(given[name][0])}")
        given[name] = values
    order = [name for name in SPEAKING if name in given] + [name for name in given if name not in SPEAKING]
    varied = [name for name in order if len(given[name]) > 1]
    combined = [dict(zip(order, values, strict=True)) for values in itertools.product(*(given[name] for name in order))]
    engines = given.get("engine", [OPTION_DEFAULTS["engine"]])
    check_axes(given)
    owners = {name: launched["engine"] if name in launched else engines[0] for name in order if name not in varied}
    found = {}
    for chosen in combined:
        options, left_out = crossed(chosen, owners, str(chosen.get("engine", engines[0])))
        scenario, notes = parse_scenario(options), [*replaced, *left_out]
        found[" ".join(_word(axis, chosen[axis]) for axis in varied) or _policy(scenario)] = scenario, notes
    return found


def _word(option: str, value: Any) -> str:
    """Return a value as part of a what-if's name."""
    return str(value) if option in SPEAKING else f"{option}={_text(value)}"


def _text(value: Any) -> str:
    """Return a value as an option's text."""
    is_word = value is None or isinstance(value, bool)
    return f"{value:g}" if isinstance(value, float) else str(value).lower() if is_word else str(value)


def _policy(scenario: Scenario) -> str:
    return scenario.policy or ENGINES[scenario.engine].defaults.options.policy


def sweep_plan(source: str, scenario: Scenario, options: Mapping[str, Any]) -> Sweep:
    """Return the plan of a sweep's file, or of options.

    Raises
    ------
    UsageError : options are given beside a file, an option is an axis twice.
    PlannerError : as `read_sweep` and `plan_sweep`.
    """
    given = {name: value for name, value in options.items() if value}
    if source.endswith(".toml"):
        if given or scenario != Scenario():
            raise UsageError(f"options beside {source}: write them into the file")
        return read_sweep(Path(source))
    axes = [parse_axis(text) for text in given.pop("axes", ())]
    if len(dict(axes)) < len(axes):
        raise UsageError("--axis: an option is given twice; give all its values in one")
    if "front" in given:
        given["front"] = given["front"].replace(",", " ").split()
    constraints = [parse_constraint(text) for text in given.pop("constraints", ())]
    return plan_sweep(source, scenario, dict(axes), constraints=constraints, **given)
