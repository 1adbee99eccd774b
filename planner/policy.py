"""The public names for policy files of users; defined in `policies/policy.py`."""

from planner.policies.policy import DECODES_FIRST, IN_ORDER, PROMPTS_ALONE, PROMPTS_FIRST, Policy, StepPlan, StepState

__all__ = ["DECODES_FIRST", "IN_ORDER", "PROMPTS_ALONE", "PROMPTS_FIRST", "Policy", "StepPlan", "StepState"]
