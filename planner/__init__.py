"""Trace-driven capacity planning and what-if analysis for LLM serving."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from planner.errors import PlannerError
    from planner.policy import DECODES_FIRST, IN_ORDER, PROMPTS_ALONE, PROMPTS_FIRST, Policy, StepPlan, StepState
    from planner.run import Outcome, replay
    from planner.scenario import Scenario
    from planner.settings import Recording
    from planner.slo import Slo, parse_slo
    from planner.trace import read_trace

_HOMES = {
    "planner.errors": ("PlannerError",),
    "planner.policy": ("DECODES_FIRST", "IN_ORDER", "PROMPTS_ALONE", "PROMPTS_FIRST", "Policy", "StepPlan",
                       "StepState"),
    "planner.run": ("Outcome", "replay"),
    "planner.scenario": ("Scenario",),
    "planner.settings": ("Recording",),
    "planner.slo": ("Slo", "parse_slo"),
    "planner.trace": ("read_trace",),
}

__all__ = [
    "DECODES_FIRST",
    "IN_ORDER",
    "PROMPTS_ALONE",
    "PROMPTS_FIRST",
    "Outcome",
    "PlannerError",
    "Policy",
    "Recording",
    "Scenario",
    "Slo",
    "StepPlan",
    "StepState",
    "parse_slo",
    "read_trace",
    "replay",
]


def __getattr__(name: str) -> Any:
    """Load a public name when it is first asked for: `planner --help` needs none of them."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(home), name)
    raise AttributeError(f"module 'planner' has no attribute {name!r}")
