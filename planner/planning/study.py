"""A study: a trace on a deployment with its objectives, as a TOML file or a part of one describes it."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import tomli_w

from planner.catalog.catalog_files import read_toml
from planner.deployment.named_files import beside, trace_beside
from planner.errors import StudyError, UnknownNameError, UsageError, told_as
from planner.files.finite import is_number
from planner.launch import launch_options
from planner.settings.format_spec import spec_of
from planner.settings.load_options import CLOSED_LOOP, SEARCHED
from planner.settings.objectives import Objectives, given_objectives, objectives_text
from planner.settings.option_text import option_value
from planner.settings.scenario import KINDS, OPTION_DEFAULTS, Scenario, given_options, parse_scenario
from planner.traces.gather import BadRows

TRACE_KEYS = ("trace", "format", "column", "where", "on_bad_rows")
OWN_KEYS = (*TRACE_KEYS, "slo", "attainment", "from_command")  # in addition to the options of `Scenario`


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A trace on a deployment.

    Parameters
    ----------
    name : of the file, or of the table that describes it.
    trace, format : as `planner replay` takes them.
    scenario : its deployment and load.
    objectives : for verdicts, goodput, attainment and capacity; None if none are given.
    on_bad_rows : "drop" leaves out rows that cannot be used, "error" refuses them.
    notes : on how it was read.
    """

    name: str
    trace: str
    format: str | None
    scenario: Scenario
    objectives: Objectives | None
    on_bad_rows: BadRows = "error"
    notes: tuple[str, ...] = ()


def read_study(path: Path) -> Study:
    """Read a study from a file of its own. Files that it names are looked for beside it.

    Raises
    ------
    StudyError : the file cannot be read, or something in it is wrong.
    """
    with told_as(StudyError, path):
        return parse_study(path.stem, read_toml(path), path.parent)


def parse_study(name: str, values: Mapping[str, Any], folder: Path) -> Study:
    """Read a study from the keys and values of a table; files that it names are looked for in `folder`.

    Raises
    ------
    UsageError, UnknownNameError : a key or a value is wrong.
    """
    if not name.isprintable():
        raise UsageError("the name has characters that cannot be printed")
    options = {key: beside(folder, key, value) for key, value in values.items() if key not in OWN_KEYS}
    trace, launch = text_of(values, "trace"), text_of(values, "from_command")
    if trace is None:
        raise UsageError("has no trace; give a path, or a bundled sample")
    notes: list[str] = []
    if launch is not None:
        launch = beside(folder, "from_command", launch)
        found, notes = launch_options(launch, model=text_of(options, "model"), beside=options)
        options = found | options
    return Study(name=name, trace=trace_beside(folder, trace), on_bad_rows=_on_bad_rows(values),
                 format=spec_of(text_of(values, "format"), texts_of(values, "column"), texts_of(values, "where")),
                 scenario=parse_scenario(options),
                 objectives=given_objectives(text_of(values, "slo"), number_of(values, "attainment")),
                 notes=tuple(notes))


def _on_bad_rows(values: Mapping[str, Any]) -> BadRows:
    value = text_of(values, "on_bad_rows") or "error"
    if value not in ("error", "drop"):
        raise UsageError(f"on_bad_rows = {value!r}: must be error or drop")
    return "drop" if value == "drop" else "error"


def without_load(scenario: Scenario) -> Scenario:
    """Return a scenario that takes a trace as it is: neither cut nor at another rate, in an open loop."""
    return replace(without_rate(scenario), start_at=0.0, duration=None, limit=None)


def without_rate(scenario: Scenario) -> Scenario:
    """Return a scenario without a rate or a number in flight, for searches that look for one."""
    names = ("rate_scale", "request_rate", *SEARCHED, *CLOSED_LOOP)
    defaults: dict[str, Any] = {name: OPTION_DEFAULTS[name] for name in names}
    return replace(scenario, **defaults)


def times_rate(scenario: Scenario, factor: float) -> Scenario:
    """Return a scenario with `factor` times its rate: its requests per second if given, else the trace's rate."""
    if scenario.request_rate is not None:
        return replace(scenario, request_rate=scenario.request_rate * factor)
    return replace(scenario, rate_scale=(scenario.rate_scale or 1.0) * factor)


def study_toml(study: Study) -> str:
    """Return a study as the text of a file that `read_study` reads."""
    attainment = None if study.objectives is None else study.objectives.attainment
    values: dict[str, Any] = {
        "trace": study.trace, "format": study.format,
        "on_bad_rows": study.on_bad_rows if study.on_bad_rows != "error" else None,
        "slo": objectives_text(study.objectives), "attainment": attainment, **given_options(study.scenario)}
    return tomli_w.dumps({key: value for key, value in values.items() if value is not None})


def command_line(study: Study, command: str = "replay", options: Mapping[str, Any] = MappingProxyType({})) -> str:
    """Return the command that replays a study, or another that is asked of its trace and scenario.

    Parameters
    ----------
    command : "replay", "capacity", "size", "sweep" or "validate".
    options : of the command itself, in place of the scenario's of that name; None leaves one out, a list gives it
        several times.
    """
    words = ["planner", command, study.trace]
    for name, value in ({**given_options(study.scenario), **options}).items():
        if value is None:
            continue
        if isinstance(value, list):
            words += [word for each in value for word in (f"--{name.replace('_', '-')}", str(each))]
            continue
        flag = name.replace("_", "-")
        words += [f"--{flag}" if value else f"--no-{flag}"] if isinstance(value, bool) else [f"--{flag}", str(value)]
    words += ["--format", study.format] if study.format else []
    return shlex.join(words if "slo" in options else words + _objective_words(study.objectives))


def parse_command(line: str) -> Study:
    """Read a `planner replay` command as `command_line` writes it.

    >>> parse_command("planner replay chat --request-rate 12.0 --no-async-scheduling").scenario.request_rate
    12.0

    Raises
    ------
    UsageError, UnknownNameError : it is another command, or an option is wrong.
    """
    words = shlex.split(line)
    if words[:2] != ["planner", "replay"] or len(words) < 3:
        raise UsageError(f"{line[:60]!r}: must be a planner replay command")
    own: dict[str, str] = {}
    options: dict[str, Any] = {}
    flags = iter(words[3:])
    for flag in flags:
        name = flag.removeprefix("--").replace("-", "_")
        switch = name.removeprefix("no_") if name not in KINDS else name
        if bool in KINDS.get(switch, ()):
            options[switch] = switch == name
        elif (text := next(flags, None)) is None:
            raise UsageError(f"{flag}: has no value")
        elif name in ("format", "slo", "attainment", "on_bad_rows"):
            own[name] = text
        elif name in KINDS:
            options[name] = option_value(name, text, flag)
        else:
            raise UnknownNameError("option", name, KINDS)
    attainment = float(own["attainment"]) if "attainment" in own else None
    return Study(name="replay", trace=words[2], format=own.get("format"), scenario=parse_scenario(options),
                 objectives=given_objectives(own.get("slo"), attainment), on_bad_rows=_on_bad_rows(own))


def _objective_words(objectives: Objectives | None) -> list[str]:
    """Return the options that give objectives."""
    slo = objectives_text(objectives)
    words = [] if slo is None else ["--slo", slo]
    if objectives is None or objectives.attainment is None or not objectives.slo.limits_s:
        return words
    return [*words, "--attainment", f"{objectives.attainment:g}"]


def text_of(values: Mapping[str, Any], key: str) -> str | None:
    """Return the text of a key, None if it is not there.

    Raises
    ------
    UsageError : it is something else.
    """
    value = values.get(key)
    if value is not None and not isinstance(value, str):
        raise UsageError(f"{key} = {value!r}: must be text in quotes")
    return value


def texts_of(values: Mapping[str, Any], key: str) -> list[str]:
    """Return the texts of a key that may have a list of them; empty without the key."""
    value = values.get(key)
    return [str(text_of({key: each}, key)) for each in value] if isinstance(value, list) else [
        text for text in [text_of(values, key)] if text is not None]


def number_of(values: Mapping[str, Any], key: str) -> float | None:
    """Return the finite number of a key, None if it is not there.

    Raises
    ------
    UsageError : it is something else.
    """
    value = values.get(key)
    if value is None:
        return None
    if not is_number(value):
        raise UsageError(f"{key} = {value!r}: must be a number")
    return float(value)
