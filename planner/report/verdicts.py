"""Verdicts on a replay's objectives as lines of text."""

from collections.abc import Mapping
from typing import Any

from planner.settings.judged import judged_of, sentences


def objective_lines(summary: Mapping[str, Any]) -> list[str]:
    """Return a line for each objective that is met or missed; nothing where none can be."""
    lines = [f"  {'met' if is_met else 'missed'}: {text}" for text, is_met in sentences(judged_of(summary))]
    return ["Objectives", *lines] if lines else []
