"""Agentic runs: users replay recorded sessions against one server, turn by turn, and the server's own samples.

Three files: a table with a run a row, its requests, and samples of the server's metrics.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from planner.catalog.catalog_files import load_gpu, load_model
from planner.deployment.deploy import deploy
from planner.errors import PlannerError, TraceError, UsageError
from planner.files.table_file import read_table_file
from planner.launch import read_launch
from planner.measured.agentic_load import Counting, counting_of, heard_until_s, is_warm, load_of, num_timed
from planner.measured.run_columns import text_of
from planner.measured.statistics import floats_of, measured_of
from planner.settings.scenario import Scenario, parse_scenario
from planner.traces import Trace

RUNS = ("run", "gpu", "engine_version", "command", "kv_cache_tokens", "offload")  # columns that tell such a table
REQUESTS = ("run", "user", "session_id", "turn", "start_s", "input_tokens", "output_tokens", "known_blocks_64",
            "new_blocks_64", "ttft_s", "e2e_s", "success")
NAMES = ("run", "user", "session_id", "success")  # the other columns are numbers
COUNTS = ("turn", "input_tokens", "output_tokens", "known_blocks_64", "new_blocks_64")  # and these are whole
SAMPLES = ("run", "time_s", "kv_cache_usage_pct", "num_requests_running", "prefix_cache_hits", "prompt_tokens_total")
WARM = "median_warm_ttft_ms"  # of turns whose session had a turn before
OF_SERVER = "prefix_cache_hit_rate"  # measured if there are samples of the server
STATISTICS = ("mean_ttft_ms", "median_ttft_ms", "mean_tpot_ms", "median_tpot_ms", "mean_e2el_ms", "median_e2el_ms")


def is_agentic(columns: Sequence[str]) -> bool:
    """Tell whether a table has agentic runs; their requests and samples lie beside it."""
    return set(RUNS) <= set(columns)


def agentic_rows(path: Path, table: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield the fields of each run's `Measurement`, or its row's id and groups with the lack in its files as status.

    Parameters
    ----------
    path : of the table; its requests and samples have the same name with `requests` and `server_samples` for `runs`.

    Raises
    ------
    TraceError : a file beside it is missing, or lacks a column.
    """
    requests, samples = _beside(path, "requests", REQUESTS), _beside(path, "server_samples", SAMPLES)
    for row in table.iter_rows(named=True):
        run = text_of(row, "run")
        yield {"id": run, **_run(row, requests.filter(pl.col("run") == run), samples.filter(pl.col("run") == run))}


def _beside(path: Path, part: str, columns: Sequence[str]) -> pl.DataFrame:
    """Read a file beside the table of runs, compressed or not."""
    plain = path.with_name(re.sub(r"runs(?=[^/]*$)", part, path.name.removesuffix(".gz")))
    file = next((candidate for candidate in (plain, plain.with_name(f"{plain.name}.gz")) if candidate.is_file()), None)
    if file is None or file == path:
        raise TraceError(f"{path}: is a table of agentic runs, and {plain.name} or {plain.name}.gz is not beside it; "
                         f"must have the runs' {part.replace('_', ' ')}")
    table = read_table_file(file)
    if missing := [name for name in columns if name not in table.columns]:
        raise TraceError(f"{file}: lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}")
    return _with_numbers(file, table.select(columns), [name for name in columns if name not in NAMES])


def _with_numbers(path: Path, table: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """Return a table with its names as text and the rest as numbers.

    Raises
    ------
    TraceError : a cell is no number, or is below 0.
    """
    texts = table.with_columns(pl.all().cast(pl.String).str.strip_chars())
    numbers = texts.with_columns(pl.col(names).cast(pl.Float64, strict=False))
    for name in names:
        bad = ~((numbers[name] >= 0) & numbers[name].is_finite()).fill_null(False)
        if bad.any():
            row = int(bad.arg_true()[0])
            raise TraceError(f"{path} row {row}: {name} = {texts[name][row] or 'empty'}; must be a number of at least "
                             f"0; correct it, or leave the row out")
    return numbers.with_columns(pl.col(name).cast(pl.Int64) for name in names if name in COUNTS)


def _run(row: Mapping[str, Any], requests: pl.DataFrame, samples: pl.DataFrame) -> dict[str, Any]:
    """Return a run's measured values, its deployment and its users' requests."""
    groups = {"gpu": text_of(row, "gpu"), "engine": text_of(row, "engine"), "model": text_of(row, "checkpoint"),
              "precision": "checkpoint", "client": "agentic", "layout": f"tp{text_of(row, 'tp')}-ep{text_of(row, 'ep')}"
              f"{'-offload' if text_of(row, 'offload') == 'on' else ''}"}
    try:
        scenario, notes = _scenario(row)
        groups |= {"model": load_model(str(scenario.model)).name}
        counting = counting_of(str(row.get("client") or ""), requests, samples)
        load = load_of(text_of(row, "run"), requests, counting, heard_until_s(samples))
    except PlannerError as error:
        return {"groups": groups, "measured": {}, "status": str(error)}
    own_notes = _notes(text_of(row, "run"), requests, load, counting)
    return {"groups": groups, "scenario": scenario, "load": load, "reading": counting.reading,
            "notes": (*notes, *own_notes), "measured": _measured(load, samples)}


def _notes(run: str, requests: pl.DataFrame, load: Trace, counting: Counting) -> Iterator[str]:
    """Yield sentences on the requests whose times do not count, and on how a client's counts became the server's."""
    timed = num_timed(load)
    if timed < requests.height:
        yield (f"run {run}: {requests.height - timed:,} of {requests.height:,} requests do not count: they failed, "
               f"were not streamed, or ended after the first gap in the server's samples")
    if counting.keeps_answers:
        yield (f"run {run}: a prompt holds the answers of earlier turns. The client's token counts are multiplied, by "
               f"{counting.first:.2f} for first prompts and by {counting.added:.2f} for the tokens that a turn adds")


def _scenario(row: Mapping[str, Any]) -> tuple[Scenario, tuple[str, ...]]:
    """Return the deployment that a run's command launches, with the KV cache that its server logged.

    The options file that a command names is the source's own and not published: it is left out, with a note.
    """
    command = text_of(row, "command")
    plain = re.sub(r"\s--config[ =]\S+", "", command)
    launch = read_launch(plain, reads_files=False)
    options = dict(launch.options) | {"gpu": load_gpu(text_of(row, "gpu")).name, "enable_prefix_caching": True}
    if version := text_of(row, "engine_version"):
        options["engine_version"] = version
    notes = []
    if plain != command:
        notes.append("the command's --config file is not published, so its options are the engine's defaults")
    tokens = text_of(row, "kv_cache_tokens")
    if tokens and not (tokens.isdecimal() and int(tokens) > 0):
        raise UsageError(f"kv_cache_tokens = {tokens}: must be a whole number above 0")
    if not tokens:
        return parse_scenario(options), tuple(notes)
    kv_dtype, block_size = _nearest_cache(options, int(tokens))
    if kv_dtype != options.get("kv_cache_dtype", "auto"):
        notes.append(f"kv_cache_dtype = {kv_dtype}: a cache of {int(tokens):,} tokens was logged, near what this type "
                     f"leaves room for")
    options |= {"kv_cache_dtype": kv_dtype, "num_gpu_blocks": int(tokens) // block_size}
    return parse_scenario(options), tuple(notes)


def _nearest_cache(options: Mapping[str, Any], tokens: int) -> tuple[str, int]:
    """Return the KV type that leaves room nearest to the logged tokens, and the tokens of a block.

    A command whose options file is missing does not say it; the logged cache does.
    """
    kinds = (options["kv_cache_dtype"],) if "kv_cache_dtype" in options else ("auto", "fp8")
    near = []
    for kind in kinds:
        settings = deploy(parse_scenario({**options, "kv_cache_dtype": kind}), enable_prefix_caching=True).settings
        room = int(settings.num_gpu_blocks) * int(settings.block_size)
        near.append((abs(math.log(room / tokens)), kind, int(settings.block_size)))
    _, kind, block_size = min(near)
    return kind, block_size


def _measured(load: Trace, samples: pl.DataFrame) -> dict[str, float]:
    """Return the statistics of a run: its clients' times, and the server's hits, running requests and KV use.

    The hit rate covers the prompts that were computed: vLLM's own counter of queries counts a waiting prompt again in
    every step. Samples after the last answer do not count, since the requests that they show are not in the file.
    """
    measured = measured_of(load, STATISTICS)
    if measured:
        measured |= warm_ttft(floats_of(load.requests["ttft_s"]), is_warm(load))
    ends_s = load.requests["arrival_s"]  # of an answer whose times do not count, when its request was sent
    if "e2e_s" in load.requests.columns:
        ends_s = (ends_s + load.requests["e2e_s"]).fill_null(ends_s)
    values = samples.filter(pl.col("time_s") <= ends_s.max())
    if values.height and (prompts := float(values["prompt_tokens_total"].to_numpy().max())) > 0:
        measured |= {OF_SERVER: float(values["prefix_cache_hits"].to_numpy().max()) / prompts,
                     "mean_running": float(values["num_requests_running"].to_numpy().mean()),
                     "kv_cache_usage_mean": float(values["kv_cache_usage_pct"].to_numpy().mean()) / 100}
    return measured


def warm_ttft(ttft_s: Any, warm: Any) -> dict[str, float]:
    """Return the median TTFT of turns whose session had a turn before; nothing without such turns."""
    kept = ttft_s[warm & np.isfinite(ttft_s)]
    return {WARM: 1e3 * float(np.median(kept))} if len(kept) else {}


def server_figures(replayed: Any, makespan_s: float, until_s: float) -> dict[str, float]:
    """Return the server samples' values for a replay: hit rate [1], running requests until a time, KV use [1]."""
    engine, records = replayed.engine, replayed.requests
    begin_s, end_s = (np.minimum(times_s, until_s) for times_s in (records.first_scheduled_s, records.finished_s))
    prompts = float(engine.num_queried_tokens)
    return {OF_SERVER: float(engine.num_hit_tokens) / prompts if prompts else 0.0,
            "mean_running": float(np.nansum(end_s - begin_s)) / (until_s - float(records.arrival_s.min())),
            "kv_cache_usage_mean": float(engine.kv_block_s) / makespan_s / int(replayed.settings.num_gpu_blocks)}
