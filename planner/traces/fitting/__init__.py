"""A workload model fitted to a trace: `fit_workload`."""

from planner.traces.fitting.workload_fit import fit_workload

__all__ = ["fit_workload"]
