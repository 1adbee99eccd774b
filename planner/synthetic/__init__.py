"""Generated traces: a workload's TOML and a seed give the same requests every time; the bundled samples are such."""

from planner.synthetic.generate import generate, load_sample, read_spec, read_workload, sample_names
from planner.synthetic.model import Model
from planner.synthetic.spec import Spec

__all__ = ["Model", "Spec", "generate", "load_sample", "read_spec", "read_workload", "sample_names"]
