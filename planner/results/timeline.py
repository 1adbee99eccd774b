"""A replay as a Chrome trace, which Perfetto opens: steps, requests and KV cache use of each replica over time.

Format: Google, "Trace Event Format" (JSON object with `traceEvents`), times in microseconds.
"""

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import polars as pl

from planner.errors import OutputError
from planner.files.writing import write_atomically
from planner.replays.result_tables import ReplayResult

ENDINGS = (".json", ".json.gz")
FIRST_PROCESS, TRACK = 1, 1  # 0 is the idle process of the format's readers
STEP_ARGS = ("num_prompts", "num_prompt_tokens", "num_decodes", "decode_context_tokens", "num_preempted")
COUNTERS = ("num_running", "num_waiting", "num_used_blocks")
CHUNK_ROWS = 100_000
# Spans of a request: name, begin and end [s]. A span without begin or end did not occur.
SPANS = (("queue", "arrival_s", "first_scheduled_at_s"), ("prefill", "first_scheduled_at_s", "prefilled_at_s"),
         ("handover", "prefilled_at_s", "decoding_at_s"), ("decode", "decoding_at_s", "finished_at_s"))


def check_timeline_path(path: Path) -> None:
    """Raise OutputError if a path has neither ending of a Chrome trace."""
    if not path.name.endswith(ENDINGS):
        raise OutputError(f"--timeline {path}: must end with {' or '.join(ENDINGS)}")


def write_timeline(result: ReplayResult, path: Path) -> None:
    """Write a replay's steps and requests as a Chrome trace; steps must be recorded.

    A replica is a process with one track of steps and counters of running requests, waiting requests and KV blocks. The
    requests of a replica are in a process of their own, one track each, with the spans of `SPANS`. A request that never
    ran has the queue's span alone, until it left.

    Raises
    ------
    OutputError : the file cannot be written.
    """
    def write(target: Path) -> None:
        with gzip.open(target, "wb", compresslevel=1) if path.name.endswith(".gz") else target.open("wb") as file:
            _write(file, result)
    write_atomically(path, write)


def _write(file: BinaryIO | gzip.GzipFile, result: ReplayResult) -> None:
    file.write(b'{"displayTimeUnit": "ms", "traceEvents": [\n')
    before = b""
    for events in _events(result):
        for part in events.iter_slices(CHUNK_ROWS):
            if part.height:
                texts = part.select(pl.struct(pl.all()).struct.json_encode()).to_series()
                file.write(before + texts.str.join(",\n")[0].encode())
                before = b",\n"
    file.write(b"\n]}\n")


def _events(result: ReplayResult) -> Iterator[pl.DataFrame]:
    """Yield the events of a replay, one a row, by the names of the format."""
    steps, requests = result.steps_table(), result.requests_table()
    replicas = pl.DataFrame({"replica": range(result.num_replicas)}, schema={"replica": pl.Int64})
    yield _named(replicas, "replica", FIRST_PROCESS)
    yield _named(replicas, "requests of replica", FIRST_PROCESS + result.num_replicas)
    at, number = _us(pl.col("start_s")).alias("ts"), pl.col("replica").cast(pl.Int64) + FIRST_PROCESS
    args = [name for name in STEP_ARGS if name in steps.columns]
    yield steps.select(
        pl.when(pl.col("num_prompts") == 0).then(pl.lit("decodes")).when(pl.col("num_decodes") == 0).then(
            pl.lit("prompts")).otherwise(pl.lit("prompts and decodes")).alias("name"),
        pl.lit("X").alias("ph"), at, _us(pl.col("duration_s")).alias("dur"), number.alias("pid"),
        pl.lit(TRACK).alias("tid"), pl.struct(args).alias("args"))
    for name in COUNTERS:
        changed = steps.filter((pl.col(name) != pl.col(name).shift().over("replica")).fill_null(value=True))
        yield changed.select(pl.lit(name).alias("name"), pl.lit("C").alias("ph"), at, number.alias("pid"),
                             pl.struct(pl.col(name)).alias("args"))
    requests = requests.with_columns(
        (number + result.num_replicas).alias("pid"),
        pl.int_range(pl.len()).cast(pl.String).alias("id"),
        (pl.col("prefilled_at_s") if "prefilled_at_s" in requests.columns else pl.col("first_token_at_s"))
        .alias("prefilled_at_s"),
        pl.coalesce("first_scheduled_at_s", "finished_at_s").alias("first_scheduled_at_s"))
    handover = pl.col("handover_s") if "handover_s" in requests.columns else pl.lit(0.0)
    requests = requests.with_columns((pl.col("prefilled_at_s") + handover).alias("decoding_at_s"))
    whole = pl.format("request {}", pl.col("request_id"))
    yield from _spans(requests, whole, "arrival_s", "finished_at_s", pl.struct(
        "input_tokens", "output_tokens", "status", "ttft_s", "tpot_s", "num_cached_tokens", "num_preemptions"))
    for name, begin, end in SPANS:
        yield from _spans(requests.filter(pl.col(end) > pl.col(begin)), pl.lit(name), begin, end, None)


def _named(replicas: pl.DataFrame, what: str, first: int) -> pl.DataFrame:
    """Return the events that name processes `first` and following."""
    return replicas.select(
        pl.lit("process_name").alias("name"), pl.lit("M").alias("ph"), (pl.col("replica") + first).alias("pid"),
        pl.struct(pl.format(f"{what} {{}}", pl.col("replica")).alias("name")).alias("args"))


def _spans(requests: pl.DataFrame, name: pl.Expr, begin: str, end: str, args: pl.Expr | None) -> Iterator[pl.DataFrame]:
    """Yield the beginnings and the ends of one span of each request that has both."""
    both = requests.filter(pl.col(begin).is_not_null() & pl.col(end).is_not_null())
    track = pl.lit(TRACK).alias("tid")
    common = [name.alias("name"), pl.lit("request").alias("cat"), pl.col("id"), pl.col("pid"), track]
    details = [] if args is None else [args.alias("args")]
    yield both.select(*common, pl.lit("b").alias("ph"), _us(pl.col(begin)).alias("ts"), *details)
    yield both.select(*common, pl.lit("e").alias("ph"), _us(pl.col(end)).alias("ts"))


def _us(seconds: pl.Expr) -> pl.Expr:
    """Return microseconds to the nanosecond."""
    return (seconds * 1e6).round(3)
