"""The files that a user's TOML names, looked for beside it."""

import os
import re
from pathlib import Path
from typing import Any

from planner.traces.shaping.client_load import NAME
from planner.traces.synthesis import sample_names

FILES = ("model", "speculative_model", "gpu", "policy", "router", "autoscale", "fail_replica", "tenants", "calibration",
         "fleet")  # options that are a name or a file
LAUNCH = "from_command"  # a key that is a command or a file


def trace_beside(folder: Path, trace: str) -> str:
    """Return a trace's path as from `folder`; a bundled sample, the random load and a database keep their names."""
    return trace if "://" in trace or trace in (*sample_names(), NAME) else str(folder / trace)


def beside(folder: Path, option: str, value: Any) -> Any:
    """Return an option's value, the path as from `folder` if it is a file there: `config.json`, `mine.py:policy`."""
    if option not in (*FILES, LAUNCH) or not isinstance(value, str):
        return value
    paths = (path_of(value), re.sub(r"#\d+$", "", value))  # the second of start.sh#2, an engine of a file
    return str(folder / value) if any(os.path.exists(folder / path) for path in paths) else value  # of any name


def path_of(value: str) -> str:
    """Return the path in the value of such an option, without the name in the file that may follow it."""
    return value.rpartition(":")[0] if ".py:" in value else value
