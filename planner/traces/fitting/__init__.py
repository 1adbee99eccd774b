"""A workload model fitted to a trace: `fit_workload`, on the fine clock of `on_fine_clock`."""

from planner.traces.fitting.workload_fit import fit_workload, on_fine_clock

__all__ = ["fit_workload", "on_fine_clock"]
