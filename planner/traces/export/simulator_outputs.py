"""Traces for other simulators: Vidur's CSV, and BLIS's trace of a CSV with a YAML header beside it."""

from collections.abc import Mapping

import numpy as np
import polars as pl

from planner.errors import UsageError
from planner.traces import Trace
from planner.traces.export.export_format import Export, csv_bytes, no_notes, nothing

BLIS_HEADER = "trace_version: 2\ntime_unit: microseconds\nmode: generated\nwarm_up_requests: 0\n"


def _vidur(trace: Trace) -> Mapping[str, bytes]:
    table = trace.requests
    return {"": csv_bytes(table.select(arrived_at="arrival_s", num_prefill_tokens="input_tokens",
                                       num_decode_tokens="output_tokens"))}


def _microseconds(seconds: pl.Series) -> pl.Series:
    return (seconds * 1e6).round().cast(pl.Int64)


def _check_blis(trace: Trace) -> None:
    """Refuse priorities that a whole number from 0 on cannot hold."""
    if "priority" not in trace.requests.columns:
        return
    priority = trace.requests["priority"].fill_null(0.0)
    wrong = ((priority < 0) | (priority != priority.floor())).arg_true()
    if not wrong.is_empty():
        row = int(wrong[0])
        raise UsageError(f"{trace.source}: request {trace.requests['request_id'][row]} has priority {priority[row]:g}; "
                         f"BLIS needs whole numbers >= 0; write --to csv")


def _blis(trace: Trace) -> Mapping[str, bytes]:
    table, n = trace.requests, trace.num_requests
    arrival = _microseconds(table["arrival_s"])

    def column(name: str, otherwise: str | float) -> pl.Series:
        if name not in table.columns:
            return pl.Series([otherwise]).extend_constant(otherwise, n - 1)
        return table[name].fill_null(otherwise)

    def after(name: str) -> pl.Series:
        """Return when a duration that began at arrival ends; 0 if it is not known."""
        if name not in table.columns:
            return pl.Series([0]).extend_constant(0, n - 1)
        return (arrival + _microseconds(table[name])).fill_null(0)

    zeros = pl.Series(np.zeros(n, np.int64))
    images = column("image_tokens", 0).cast(pl.Int64)
    columns = {
        "request_id": pl.Series(np.arange(n)), "client_id": column("tenant", ""), "tenant_id": column("tenant", ""),
        "slo_class": pl.Series([""]).extend_constant("", n - 1)}
    if "priority" in table.columns:
        columns["vllm_priority"] = column("priority", 0.0).cast(pl.Int64)
    columns |= {
        "session_id": column("session_id", ""), "round_index": _rounds(table), "prefix_group": columns["slo_class"],
        "prefix_length": zeros, "streaming": pl.Series([True]).extend_constant(True, n - 1),
        "input_tokens": table["input_tokens"], "output_tokens": table["output_tokens"],
        "text_tokens": table["input_tokens"] - images, "image_tokens": images, "audio_tokens": zeros,
        "video_tokens": zeros,
        "reason_ratio": zeros.cast(pl.Float64), "model": columns["slo_class"], "deadline_us": after("cancel_after_s")}
    if "deadline_s" in table.columns:
        columns["slo_target_us"] = _microseconds(table["deadline_s"]).fill_null(0)
    columns |= {
        "server_input_tokens": zeros, "arrival_time_us": arrival, "send_time_us": arrival,
        "first_chunk_time_us": after("ttft_s"), "last_chunk_time_us": after("e2e_s"), "num_chunks": zeros,
        "status": pl.Series(["ok"]).extend_constant("ok", n - 1), "error_message": columns["slo_class"],
        "finish_reason": columns["slo_class"]}
    return {"": csv_bytes(pl.DataFrame(columns)), ".yaml": BLIS_HEADER.encode()}


def _rounds(table: pl.DataFrame) -> pl.Series:
    """Return the place of each request in its session, from 0; 0 without one."""
    if "session_id" not in table.columns:
        return pl.Series(np.zeros(table.height, np.int64))
    place = pl.int_range(pl.len()).over("session_id")
    return table.select(pl.when(pl.col("session_id").is_null()).then(0).otherwise(place)).to_series()


def _blis_notes(trace: Trace) -> list[str]:
    exact = (trace.requests["arrival_s"] * 1e6).round()
    moved = int(((exact / 1e6 - trace.requests["arrival_s"]).abs() > 1e-9).sum())
    rounded = [f"{moved:,} arrivals are rounded to microseconds"] if moved else []
    return ["blis replay --trace-header PATH.yaml --trace-data PATH; the header lies beside the CSV", *rounded]


VIDUR = Export(name="vidur", meaning="Vidur CSV: arrived_at, num_prefill_tokens, num_decode_tokens", suffix="",
               columns=("arrival_s", "input_tokens", "output_tokens"), holds_ids=False, write=_vidur, check=nothing,
               notes=no_notes)
BLIS = Export(name="blis", meaning="BLIS trace: a CSV in microseconds, and its YAML header beside it", suffix="",
              columns=("arrival_s", "input_tokens", "output_tokens", "tenant", "session_id", "priority", "deadline_s",
                       "cancel_after_s", "ttft_s", "e2e_s"), holds_ids=False, write=_blis, check=_check_blis,
              notes=_blis_notes)
