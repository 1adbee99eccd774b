"""Agentic runs: users replay recorded sessions against one server, turn by turn, and the server's own samples.

Three files: a table with a run a row, its requests, and samples of the server's metrics. The load of a run is what its
users sent: each turn waits for the turn before it and then as long as it did in the run.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from planner.catalog.catalog_files import load_gpu, load_model
from planner.deployment.deploy import deploy
from planner.errors import PlannerError, TraceError, UsageError
from planner.files.table_file import read_table_file
from planner.launch import read_launch
from planner.measured.run_columns import text_of
from planner.measured.statistics import floats_of, measured_of
from planner.settings.scenario import Scenario, parse_scenario
from planner.traces import Trace
from planner.traces.reading import trace_of
from planner.traces.times import fill_times

RUNS = ("run", "gpu", "engine_version", "command", "kv_cache_tokens", "offload")  # columns that tell such a table
REQUESTS = ("run", "user", "session_id", "turn", "start_s", "input_tokens", "output_tokens", "known_blocks_64",
            "new_blocks_64", "ttft_s", "e2e_s", "success")
NAMES = ("run", "user", "session_id", "success")  # the other columns are numbers
COUNTS = ("turn", "input_tokens", "output_tokens", "known_blocks_64", "new_blocks_64")  # and these are whole
SAMPLES = ("run", "time_s", "kv_cache_usage_pct", "num_requests_running", "prefix_cache_hits", "prompt_tokens_total")
BLOCK_TOKENS = 64  # of known_blocks_64 and new_blocks_64
WARM = "median_warm_ttft_ms"  # of turns whose session had a turn before
OF_SERVER = "prefix_cache_hit_rate"  # measured where the server's samples are
STATISTICS = ("mean_ttft_ms", "median_ttft_ms", "mean_tpot_ms", "median_tpot_ms", "mean_e2el_ms", "median_e2el_ms")
SHORTEST_TPOT_S = 1e-4  # an answer whose tokens came faster was held up on its way, and its times are not the server's


def is_agentic(columns: Sequence[str]) -> bool:
    """Tell whether a table is of agentic runs, whose requests and samples lie beside it."""
    return set(RUNS) <= set(columns)


def agentic_rows(path: Path, table: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield the fields of each run's `Measurement`, or its row's id, groups and what its files lack as its status.

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
    found = next((each for each in (plain, plain.with_name(f"{plain.name}.gz")) if each.is_file()), None)
    if found is None or found == path:
        raise TraceError(f"{path}: is a table of agentic runs, and {plain.name} or {plain.name}.gz is not beside it; "
                         f"must have the runs' {part.replace('_', ' ')}")
    table = read_table_file(found)
    if missing := [name for name in columns if name not in table.columns]:
        raise TraceError(f"{found}: lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}")
    return _with_numbers(found, table.select(columns), [name for name in columns if name not in NAMES])


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
    """Return what a run measured, how it was deployed and what its users sent."""
    groups = {"gpu": text_of(row, "gpu"), "engine": text_of(row, "engine"), "model": text_of(row, "checkpoint"),
              "precision": "checkpoint", "client": "agentic", "layout": f"tp{text_of(row, 'tp')}-ep{text_of(row, 'ep')}"
              f"{'-offload' if text_of(row, 'offload') == 'on' else ''}"}
    try:
        scenario, notes = _scenario(row)
        groups |= {"model": load_model(str(scenario.model)).name}
        load = _load(text_of(row, "run"), requests)
    except PlannerError as error:
        return {"groups": groups, "measured": {}, "status": str(error)}
    return {"groups": groups, "scenario": scenario, "load": load, "notes": notes,
            "measured": _measured(load, samples)}


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
    found = []
    for kind in kinds:
        settings = deploy(parse_scenario({**options, "kv_cache_dtype": kind}), enable_prefix_caching=True).settings
        room = int(settings.num_gpu_blocks) * int(settings.block_size)
        found.append((abs(math.log(room / tokens)), kind, int(settings.block_size)))
    _, kind, block_size = min(found)
    return kind, block_size


def _load(run: str, requests: pl.DataFrame) -> Trace:
    """Return what the users of a run sent, with the times that they measured.

    The ids of a turn's blocks are those of its session so far, as many as it knew, and new ones. A turn waits for the
    turn before it of the same user and session that was answered, and pauses as long as it did. Requests without an
    answer are left out.
    """
    if not requests.height:
        raise TraceError(f"run {run}: the file of requests has none of its requests")
    rows = requests.filter((pl.col("success").str.to_lowercase() == "true") & (pl.col("output_tokens") > 0))
    objects = [each for _, session in rows.group_by("user", "session_id", maintain_order=True)
               for each in _turns(session.sort("start_s"))]
    if not objects:
        raise TraceError(f"run {run}: none of its {requests.height} requests was answered")
    trace = trace_of(f"run {run}", objects, format="jsonl")
    return replace(trace, requests=fill_times(trace.requests))


def _turns(session: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield the turns of one user's session as rows of a trace."""
    ids: list[str] = []
    parent, ended_s = None, 0.0
    for row in session.iter_rows(named=True):
        name = f"{row['user']}/{row['session_id']}/{row['turn']}"
        known = row["known_blocks_64"]
        ids = ids[:known] + [f"{name}:{k}" for k in range(len(ids[:known]), known + row["new_blocks_64"])]
        num_output, num_blocks = row["output_tokens"], math.ceil(row["input_tokens"] / BLOCK_TOKENS)
        streamed = row["e2e_s"] - row["ttft_s"] >= SHORTEST_TPOT_S * max(num_output - 1, 0)
        yield {"request_id": name, "session_id": f"{row['user']}/{row['session_id']}", "arrival_s": row["start_s"],
               "input_tokens": row["input_tokens"], "output_tokens": num_output, "parent_id": parent,
               "think_time_s": None if parent is None else max(row["start_s"] - ended_s, 0.0),
               "ttft_s": row["ttft_s"] if streamed else None, "e2e_s": row["e2e_s"] if streamed else None,
               "hash_ids": [*ids, *[f"{name}:end"] * (num_blocks - len(ids))][:num_blocks],
               "hash_block_tokens": BLOCK_TOKENS}
        parent, ended_s = name, row["start_s"] + row["e2e_s"]


def is_warm(load: Trace) -> NDArray[np.bool_]:
    """Tell which requests of a load have a turn of their session before them."""
    if "parent_id" not in load.requests.columns:
        return np.zeros(load.num_requests, bool)
    return load.requests["parent_id"].is_not_null().to_numpy()


def _measured(load: Trace, samples: pl.DataFrame) -> dict[str, float]:
    """Return the statistics of a run: its clients' times, and the server's hits, running requests and KV use.

    The hit rate is of the prompts that were computed: vLLM's own counter of queries counts a waiting prompt again in
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
    """Return the median TTFT of turns whose session had a turn before; nothing where there is none."""
    kept = ttft_s[warm & np.isfinite(ttft_s)]
    return {WARM: 1e3 * float(np.median(kept))} if len(kept) else {}


def server_figures(replayed: Any, makespan_s: float) -> dict[str, float]:
    """Return what the server's samples show, of a replay: hit rate [1], running requests [1] and KV use [1]."""
    engine, records = replayed.engine, replayed.requests
    running_s = np.nansum(records.finished_s - records.first_scheduled_s)
    prompts = float(engine.num_queried_tokens)
    return {OF_SERVER: float(engine.num_hit_tokens) / prompts if prompts else 0.0,
            "mean_running": float(running_s) / makespan_s,
            "kv_cache_usage_mean": float(engine.kv_block_s) / makespan_s / int(replayed.settings.num_gpu_blocks)}
