"""The formats that traces are written in, by name."""

from collections.abc import Mapping
from pathlib import Path

from planner.errors import UnknownNameError, UsageError
from planner.traces.export.export_format import Target
from planner.traces.export.native_outputs import CSV, JSONL, PARQUET
from planner.traces.export.simulator_outputs import BLIS, VIDUR
from planner.traces.export.timed_outputs import AIPERF, MOONCAKE, TIMED_TRACE

TARGETS: Mapping[str, Target] = {
    target.name: target for target in (CSV, JSONL, PARQUET, MOONCAKE, TIMED_TRACE, AIPERF, VIDUR, BLIS)}


def find_target(name: str | None, path: Path) -> Target:
    """Return the format of a name, or the planner's own that the ending of a path stands for.

    Raises
    ------
    UnknownNameError : there is no such format.
    UsageError : no name is given, and the ending is none of the planner's own.
    """
    if name is not None:
        if name not in TARGETS:
            raise UnknownNameError("format", name, TARGETS)
        return TARGETS[name]
    known = {target.suffix: target for target in TARGETS.values() if target.suffix}
    if path.suffix not in known:
        raise UsageError(f"cannot write {path}: --to must be one of {', '.join(TARGETS)}, or the ending one of "
                         f"{', '.join(known)}")
    return known[path.suffix]
