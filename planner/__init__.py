"""Trace-driven capacity planning and what-if analysis for LLM serving."""

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from planner.errors import PlannerError
    from planner.notebook import capacity, check, compare, explain, probe, rollouts, share, size, sweep
    from planner.policies.policy import DECODES_FIRST, IN_ORDER, PROMPTS_ALONE, PROMPTS_FIRST, Policy, StepPlan
    from planner.run import replay
    from planner.settings.scenario import Scenario
    from planner.traces import read_trace

_HOMES = {
    "planner.errors": ("PlannerError",),
    "planner.notebook": ("capacity", "check", "compare", "explain", "probe", "rollouts", "share", "size", "sweep"),
    "planner.policies.policy": ("DECODES_FIRST", "IN_ORDER", "PROMPTS_ALONE", "PROMPTS_FIRST", "Policy", "StepPlan"),
    "planner.run": ("replay",),
    "planner.settings.scenario": ("Scenario",),
    "planner.traces": ("read_trace",),
}

__all__ = [
    "DECODES_FIRST",
    "IN_ORDER",
    "PROMPTS_ALONE",
    "PROMPTS_FIRST",
    "PlannerError",
    "Policy",
    "Scenario",
    "StepPlan",
    "capacity",
    "check",
    "compare",
    "explain",
    "probe",
    "read_trace",
    "replay",
    "rollouts",
    "share",
    "size",
    "sweep",
]


def __getattr__(name: str) -> Any:
    """Load a public name when it is first asked for: `planner --help` needs none of them."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(home), name)
    raise AttributeError(f"module 'planner' has no attribute {name!r}")


if os.environ.get("PLANNER_FOLDERS"):  # this process may open files below these folders only
    from pathlib import Path

    from planner.files.confined import confine

    confine([Path(folder) for folder in os.environ["PLANNER_FOLDERS"].split(os.pathsep)])
