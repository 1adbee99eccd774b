"""A workload model fitted to a trace: `fit_workload`."""

from planner.fitting.fit import fit_workload

__all__ = ["fit_workload"]
