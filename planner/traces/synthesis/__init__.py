"""Generated traces: a workload file and a seed give the same requests every time."""

from planner.traces.synthesis.generate import generate, load_sample, read_spec, read_workload, sample_names
from planner.traces.synthesis.spec import Spec
from planner.traces.synthesis.traffic_model import Model

__all__ = ["Model", "Spec", "generate", "load_sample", "read_spec", "read_workload", "sample_names"]
