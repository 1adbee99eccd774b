"""The planner's own formats: CSV, JSONL with prefix ids, and the same as Parquet."""

import io
from collections.abc import Mapping

import polars as pl

from planner.traces import Trace
from planner.traces.export.export_format import ALL_COLUMNS, Target, csv_bytes, id_lists, jsonl_bytes, no_notes, nothing


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


CSV = Target(name="csv", meaning="the planner's own CSV, without prefix ids", suffix=".csv", columns=ALL_COLUMNS,
             holds_ids=False, write=_csv, check=nothing, notes=no_notes)
JSONL = Target(name="jsonl", meaning="the planner's own JSONL, with prefix ids", suffix=".jsonl", columns=ALL_COLUMNS,
               holds_ids=True, write=_jsonl, check=nothing, notes=no_notes)
PARQUET = Target(name="parquet", meaning="the JSONL's columns as Parquet", suffix=".parquet", columns=ALL_COLUMNS,
                 holds_ids=True, write=_parquet, check=nothing, notes=no_notes)
