"""Traces with prefix ids for load generators: Mooncake's, vLLM's timed trace and AIPerf's inputs."""

from collections.abc import Mapping

import numpy as np
import polars as pl

from planner.errors import UsageError
from planner.traces import Trace
from planner.traces.export.export_format import Export, id_lists, jsonl_bytes, milliseconds, no_notes

MOONCAKE_BLOCK_TOKENS = 512
TIMED_BLOCK_TOKENS = 16  # default of `vllm bench serve --timed-trace-chunk-hash-size`

REQUIRED = ("arrival_s", "input_tokens", "output_tokens")


def _lengths(trace: Trace) -> dict[str, pl.Series]:
    return {"input_length": trace.requests["input_tokens"], "output_length": trace.requests["output_tokens"]}


def _check_mooncake(trace: Trace) -> None:
    """Refuse traces whose prompts Mooncake's fixed block of 512 tokens would change."""
    if trace.prefix is None:
        raise UsageError(f"{trace.source}: has no hash_ids, and mooncake needs them; write --to aiperf, where ids may "
                         f"be left out, or --to vidur")
    if trace.prefix.block_tokens != MOONCAKE_BLOCK_TOKENS:
        raise UsageError(f"{trace.source}: an id stands for {trace.prefix.block_tokens} tokens, in mooncake for "
                         f"{MOONCAKE_BLOCK_TOKENS}; write --to timed-trace, whose block size is an option")
    _check_covered(trace)


def _check_covered(trace: Trace) -> None:
    """Refuse prompts that go on beyond their ids: readers make prompts of the ids alone."""
    if trace.prefix is None:
        return
    wanted = -(-trace.requests["input_tokens"].to_numpy() // trace.prefix.block_tokens)
    short = np.flatnonzero(np.diff(trace.prefix.offsets) < wanted)
    if len(short):
        row = int(short[0])
        raise UsageError(f"{trace.source}: {len(short):,} prompts are longer than their ids cover, first request "
                         f"{trace.requests['request_id'][row]} with {int(np.diff(trace.prefix.offsets)[row])} ids for "
                         f"{trace.requests['input_tokens'][row]:,} tokens; must be {int(wanted[row])}; write "
                         f"--to jsonl")


def _mooncake(trace: Trace) -> Mapping[str, bytes]:
    rows = pl.DataFrame({"timestamp": milliseconds(trace.requests["arrival_s"]), **_lengths(trace),
                         "hash_ids": id_lists(trace), **_sessions(trace)})
    return {"": jsonl_bytes(rows)}


def _sessions(trace: Trace) -> dict[str, pl.Series]:
    return {"session_id": trace.requests["session_id"]} if "session_id" in trace.requests.columns else {}


def _timed(trace: Trace) -> Mapping[str, bytes]:
    ids = id_lists(trace) if trace.prefix is not None else _ids_of_their_own(trace)
    return {"": jsonl_bytes(pl.DataFrame({"timestamp": trace.requests["arrival_s"], **_lengths(trace),
                                          "hash_ids": ids}))}


def _ids_of_their_own(trace: Trace) -> pl.Series:
    """Return ids that no two prompts share."""
    blocks = -(-trace.requests["input_tokens"].to_numpy() // TIMED_BLOCK_TOKENS)
    ends = np.cumsum(blocks)
    spans = pl.DataFrame({"first": ends - blocks, "last": ends})
    return spans.select(pl.int_ranges("first", "last").alias("hash_ids")).to_series()


def _timed_notes(trace: Trace) -> list[str]:
    size = TIMED_BLOCK_TOKENS if trace.prefix is None else trace.prefix.block_tokens
    lead = ["the trace has no hash_ids: each prompt is written with its own content"] if trace.prefix is None else []
    return [*lead, f"vllm bench serve --dataset-name timed_trace --timed-trace-chunk-hash-size {size}; it makes "
                   f"prompts of whole ids, so they are up to {size - 1} tokens longer than recorded"]


def _check_aiperf(trace: Trace) -> None:
    """Refuse turns that wait for another session's request, which AIPerf cannot say."""
    _check_covered(trace)
    if "parent_id" in trace.requests.columns and "session_id" not in trace.requests.columns:
        raise UsageError(f"{trace.source}: has parent_id without session_id, and aiperf orders only the turns of a "
                         f"session; add session_id, or write --to jsonl")


def _aiperf(trace: Trace) -> Mapping[str, bytes]:
    table = trace.requests
    timestamp = milliseconds(table["arrival_s"])
    columns: dict[str, pl.Series] = {}
    if "parent_id" in table.columns:  # a turn that waits for another has a delay in place of a time
        waits = table["parent_id"].is_not_null()
        think = table["think_time_s"] if "think_time_s" in table.columns else pl.Series([None] * table.height,
                                                                                        dtype=pl.Float64)
        columns["delay"] = milliseconds(think.fill_null(0.0)).cast(pl.Float64).zip_with(
            waits, pl.Series([None], dtype=pl.Float64))
        timestamp = timestamp.cast(pl.Float64).zip_with(~waits, pl.Series([None], dtype=pl.Float64))
    ids = {} if trace.prefix is None else {"hash_ids": id_lists(trace)}
    rows = pl.DataFrame({**_sessions(trace), "timestamp": timestamp, **columns, **_lengths(trace), **ids})
    return {"": b"".join(_without_nulls(line) for line in jsonl_bytes(rows).splitlines(keepends=True))}


def _without_nulls(line: bytes) -> bytes:
    """Leave out keys without a value: AIPerf takes a null for a value."""
    for key in (b'"session_id":null,', b'"timestamp":null,', b'"delay":null,'):
        line = line.replace(key, b"", 1)
    return line


def _aiperf_notes(trace: Trace) -> list[str]:
    block = [] if trace.prefix is None else [f"ids stand for {trace.prefix.block_tokens} tokens (AIPerf's own default "
                                             f"is {MOONCAKE_BLOCK_TOKENS})"]
    return ["aiperf profile --custom-dataset-type mooncake_trace", *block]


MOONCAKE = Export(name="mooncake", meaning="Mooncake JSONL: timestamp (ms), input_length, output_length, hash_ids of "
                  "512 tokens", suffix="", columns=(*REQUIRED, "session_id"), holds_ids=True, write=_mooncake,
                  check=_check_mooncake, notes=no_notes)
TIMED_TRACE = Export(name="timed-trace", meaning="vllm bench serve --dataset-name timed_trace: the same in seconds, "
                     "ids of any size", suffix="", columns=REQUIRED, holds_ids=True, write=_timed,
                     check=_check_covered, notes=_timed_notes)
AIPERF = Export(name="aiperf", meaning="AIPerf inputs (mooncake_trace): the same with sessions, delays, and ids where "
                "known", suffix="", columns=(*REQUIRED, "session_id", "parent_id", "think_time_s"), holds_ids=True,
                write=_aiperf, check=_check_aiperf, notes=_aiperf_notes)
