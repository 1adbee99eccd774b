"""Settings in which scenarios differ: as rows of a table, and as short names of the scenarios."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from planner.planning.study import Study
from planner.settings.objectives import objectives_text
from planner.settings.scenario import Scenario

DEFAULT = "default"  # in place of a value that is left to the engine
MOST_IN_A_NAME = 3  # settings; others are in the table


def differing_settings(studies: Sequence[Study]) -> dict[str, list[Any]]:
    """Return by option the values of all scenarios, where they differ; None if it is left to the engine.

    >>> studies = [Study(name="", trace="chat", format=None, objectives=None, scenario=Scenario(max_num_seqs=seqs))
    ...            for seqs in (64, None)]
    >>> differing_settings(studies)
    {'max_num_seqs': [64, None]}
    """
    rows: dict[str, list[Any]] = {
        "trace": [study.trace for study in studies],
        **{f.name: [getattr(study.scenario, f.name) for study in studies] for f in fields(Scenario)},
        "rate_scale": [_rate_scale(study.scenario) for study in studies],
        "slo": [objectives_text(study.objectives) for study in studies],
        "attainment": [None if study.objectives is None else study.objectives.attainment for study in studies]}
    return {option: values for option, values in rows.items() if any(value != values[0] for value in values)}


def _rate_scale(scenario: Scenario) -> float | None:
    return 1.0 if scenario.rate_scale is None and scenario.request_rate is None else scenario.rate_scale


def setting_text(value: Any) -> str:
    """Return the value of a setting as text."""
    if value is None:
        return DEFAULT
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)


def scenario_names(studies: Sequence[Study]) -> list[str]:
    """Return a name of each scenario, made of the settings that differ.

    >>> studies = [Study(name="", trace="chat", format=None, objectives=None, scenario=Scenario(max_num_seqs=seqs))
    ...            for seqs in (64, None)]
    >>> scenario_names(studies), scenario_names(studies[:1])
    (['max_num_seqs 64', 'max_num_seqs default'], ['scenario 1'])
    """
    settings = list(differing_settings(studies).items())[:MOST_IN_A_NAME]
    return [", ".join(f"{option} {setting_text(values[place])}" for option, values in settings)
            or f"scenario {place + 1}" for place in range(len(studies))]
