"""Settings in which scenarios differ: as rows of a table, and as short names of the scenarios."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from planner.catalog.gpu_label import gpu_label
from planner.planning.study import Study
from planner.settings.objectives import objectives_text
from planner.settings.scenario import LABELS, Scenario

DEFAULT = "default"  # in place of a value that is left to the engine
OF_A_STUDY = {"trace": "log", "slo": "targets", "attainment": "share within the targets"}  # not of its scenario
MOST_IN_A_NAME = 3  # settings; others are in the table


def differing_settings(studies: Sequence[Study]) -> dict[str, list[Any]]:
    """Return the values of all scenarios by option, for options that differ; None for a value left to the engine.

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


def setting_words(option: str, value: Any) -> str:
    """Return a setting with its value in words.

    >>> setting_words("rate_scale", 3.0), setting_words("gpu", "l40s"), setting_words("max_num_batched_tokens", 8192)
    ('load ×3', 'GPU L40S', 'chunk size 8,192 tokens')
    >>> setting_words("max_num_seqs", None), setting_words("trace", "chat")
    ('running sequences, at most: default', 'log chat')
    """
    if option == "rate_scale" and value is not None:
        return f"{LABELS[option].words} ×{value:g}"
    if option not in LABELS or value is None:
        return f"{setting_label(option)}{'' if option not in LABELS else ':'} {setting_text(value)}"
    return LABELS[option].value_text(gpu_label(value) if option == "gpu" else value)


def setting_label(option: str) -> str:
    """Return an option of a study in words.

    >>> setting_label("max_num_seqs"), setting_label("slo")
    ('running sequences, at most', 'targets')
    """
    return OF_A_STUDY.get(option) or LABELS[option].words


def scenario_names(studies: Sequence[Study]) -> list[str]:
    """Return a name of each scenario, made of the settings that differ.

    >>> studies = [Study(name="", trace="chat", format=None, objectives=None, scenario=Scenario(max_num_seqs=seqs))
    ...            for seqs in (64, None)]
    >>> scenario_names(studies), scenario_names(studies[:1])
    (['running sequences, at most 64', 'running sequences, at most: default'], ['scenario 1'])
    """
    settings = list(differing_settings(studies).items())[:MOST_IN_A_NAME]
    return [", ".join(setting_words(option, values[place]) for option, values in settings)
            or f"scenario {place + 1}" for place in range(len(studies))]
