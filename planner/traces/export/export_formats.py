"""The formats that traces are written in, by name."""

import io
from collections.abc import Mapping
from pathlib import Path

import polars as pl

from planner.errors import UnknownNameError, UsageError
from planner.traces import Trace
from planner.traces.export.export_format import ALL_COLUMNS, Export, csv_bytes, id_lists, jsonl_bytes, no_notes, nothing
from planner.traces.export.simulator_outputs import BLIS, VIDUR
from planner.traces.export.timed_outputs import AIPERF, MOONCAKE, TIMED_TRACE


def _with_ids(trace: Trace) -> pl.DataFrame:
    if trace.prefix is None:
        return trace.requests
    return trace.requests.with_columns(id_lists(trace), hash_block_tokens=pl.lit(trace.prefix.block_tokens))


def _csv(trace: Trace) -> Mapping[str, bytes]:
    return {"": csv_bytes(trace.requests)}


def _jsonl(trace: Trace) -> Mapping[str, bytes]:
    return {"": jsonl_bytes(_with_ids(trace))}


def _parquet(trace: Trace) -> Mapping[str, bytes]:
    buffer = io.BytesIO()
    _with_ids(trace).write_parquet(buffer)
    return {"": buffer.getvalue()}


CSV = Export(name="csv", meaning="the planner's own CSV, without prefix ids", suffix=".csv", columns=ALL_COLUMNS,
             holds_ids=False, write=_csv, check=nothing, notes=no_notes)
JSONL = Export(name="jsonl", meaning="the planner's own JSONL, with prefix ids", suffix=".jsonl", columns=ALL_COLUMNS,
               holds_ids=True, write=_jsonl, check=nothing, notes=no_notes)
PARQUET = Export(name="parquet", meaning="the JSONL's columns as Parquet", suffix=".parquet", columns=ALL_COLUMNS,
                 holds_ids=True, write=_parquet, check=nothing, notes=no_notes)


TARGETS: Mapping[str, Export] = {
    target.name: target for target in (CSV, JSONL, PARQUET, MOONCAKE, TIMED_TRACE, AIPERF, VIDUR, BLIS)}


def find_target(name: str | None, path: Path) -> Export:
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
