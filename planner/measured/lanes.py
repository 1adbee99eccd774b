"""Tables of lanes: each row is a server under live coding-agent sessions for a fixed time."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from planner.catalog.catalog_files import load_gpu
from planner.deployment.deploy import deploy
from planner.deployment.kv_tiers import GIB
from planner.engines import ENGINES
from planner.errors import PlannerError, TraceError, UnknownNameError, UsageError
from planner.measured.agentic_load import REPLAY_TESTER
from planner.measured.lanes_load import Lanes, load_of_lanes
from planner.measured.run_columns import MEASURED, NOTE, is_measured, text_of
from planner.measured.statistics import OF_ALL
from planner.settings.scenario import Scenario, parse_scenario

COLUMNS = ("lanes", "mean_input_tokens", "mean_output_tokens", "measured_duration_s")  # columns that tell such a table
NEEDED = (*COLUMNS, "model", "gpu", "engine", "tp", "measured_requests", "measured_mean_e2el_ms")
HITS = ("gpu_hit_rate", "cpu_hit_rate")  # shares of prompt tokens, found in each
READ = (*NEEDED, "id", "checkpoint", "n_gpus", "engine_version", "attention_dp", "ep", "speculation", "kv_offload",
        "acceptance_length", "kv_offload_gb", "theoretical_hit_rate", "kv_cache_pool_tokens",
        *(f"{MEASURED}{name}" for name in HITS))
UNREAD = ("source", "part", "date", "measured_kv_usage")
ABOVE_0 = (*COLUMNS, "tp", "measured_requests", "measured_mean_e2el_ms")
WHOLE = ("lanes", "tp", "attention_dp", "ep", "n_gpus", "measured_requests", "kv_cache_pool_tokens")
NUMBERS = (*dict.fromkeys((*ABOVE_0, *WHOLE)), "acceptance_length", "kv_offload_gb", "theoretical_hit_rate",
           *(f"{MEASURED}{name}" for name in HITS))


def is_lanes(columns: Sequence[str]) -> bool:
    """Tell whether a table has runs of lanes."""
    return set(COLUMNS) <= set(columns)


def lanes_rows(path: Path, table: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield the fields of each run's `Measurement`.

    Raises
    ------
    TraceError : a column is missing or unknown, or a cell is wrong. An error in the deployment becomes the status.
    """
    if missing := [name for name in NEEDED if name not in table.columns]:
        raise TraceError(f"{path}: lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}; a table of lanes "
                         f"has {', '.join(NEEDED)}")
    for name in table.columns:
        if name not in (*READ, *UNREAD) and not name.startswith(NOTE) and not is_measured(name):
            raise TraceError(f"{path}: column {name}: is no column of a table of lanes; rename it to {NOTE}{name}")
    rows = list(table.iter_rows(named=True))
    names = [name for name in table.columns if name in NUMBERS or is_measured(name)]
    values = [{name: _number(path, k, row, name) for name in names if name in ABOVE_0 or text_of(row, name)}
              for k, row in enumerate(rows)]
    for k, row in enumerate(rows):
        alike = [values[j] for j, cells in enumerate(rows) if text_of(cells, "model") == text_of(row, "model")]
        yield {"id": text_of(row, "id") or str(k), **_run(row, values[k], alike)}


def _number(path: Path, k: int, row: Mapping[str, Any], name: str) -> float:
    text, is_share = text_of(row, name), name.endswith("hit_rate")
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    is_right = (value > 0 or (value == 0 and name not in ABOVE_0)) and value < (1 if is_share else math.inf)
    if not is_right or (name in WHOLE and value % 1):
        kind = "a whole number" if name in WHOLE else "a number"
        bound = "above 0" if name in ABOVE_0 else "from 0 to below 1" if is_share else "of at least 0"
        raise TraceError(f"{path} row {k}: {name} = {text or 'empty'}; must be {kind} {bound}; correct it, or leave "
                         f"the row out")
    return value


def _run(row: Mapping[str, Any], values: Mapping[str, float], alike: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Return a row's measured values, its deployment and its load.

    ITL is AIPerf's: a request's time after the first token over its further tokens, so it is compared as TPOT.
    """
    tp, ranks, ep = (int(values.get(name, 0)) or 1 for name in ("tp", "attention_dp", "ep"))
    measured = {column.removeprefix(MEASURED).replace("itl", "tpot"): value for column, value in values.items()
                if is_measured(column) or column.removeprefix(MEASURED) in HITS}
    measured = {OF_ALL.get(name, name): value / (tp * ranks if name in OF_ALL else 1)
                for name, value in measured.items()}
    is_offloaded = text_of(row, "kv_offload") not in ("", "none")
    groups = {name: text_of(row, name) for name in ("gpu", "engine", "model")} | {
        "precision": "checkpoint", "client": "lanes",
        "layout": f"tp{tp}-dp{ranks}-ep{ep}-lanes{values['lanes']:.0f}{'-offload' * is_offloaded}"}
    notes: list[str] = []
    try:
        scenario = _scenario(_options(row, values, tp, ranks, ep, notes), values, ranks, notes)
        load = load_of_lanes(f"lanes of {text_of(row, 'id')}", _lanes(values, alike, notes))
    except PlannerError as error:
        return {"groups": groups, "measured": measured, "status": str(error)}
    return {"groups": groups, "measured": measured, "scenario": scenario, "load": load,
            "num_opening": int(values["lanes"]), "is_lanes": True, "reading": REPLAY_TESTER.reading,
            "notes": tuple(notes)}


def _lanes(values: Mapping[str, float], alike: Sequence[Mapping[str, float]], notes: list[str]) -> Lanes:
    """Return a row's lanes: their means, the spread of outputs, and the pause."""
    hit_rate, shared = _hit_rate(values), [rate for rate in map(_hit_rate, alike) if rate is not None]
    if not shared:
        raise UsageError("theoretical_hit_rate is empty, and no row of this model has a hit rate; give it")
    if "theoretical_hit_rate" not in values:
        notes.append("theoretical_hit_rate is empty: the load has " + (
            "the row's measured hit rate" if hit_rate is not None else "the mean of the other rows of this model"))
    mean, median = (values.get(f"measured_{kind}_e2el_ms", 0.0) - values.get(f"measured_{kind}_ttft_ms", 0.0)
                    for kind in ("mean", "median"))
    cycle_s = values["lanes"] * values["measured_duration_s"] / values["measured_requests"]
    return Lanes(lanes=int(values["lanes"]), turns=max(round(values["measured_requests"] / values["lanes"]), 1),
                 prompt=values["mean_input_tokens"], output=values["mean_output_tokens"],
                 hit_rate=sum(shared) / len(shared) if hit_rate is None else hit_rate,
                 spread=math.sqrt(2 * math.log(mean / median)) if mean > median > 0 else 0.0,
                 pause_s=max(cycle_s - 1e-3 * values["measured_mean_e2el_ms"], 0.0))


def _hit_rate(values: Mapping[str, float]) -> float | None:
    """Return the hit rate of an endless cache, else of the row's caches."""
    measured = values.get("measured_gpu_hit_rate")
    total = None if measured is None else measured + values.get("measured_cpu_hit_rate", 0.0)
    return values.get("theoretical_hit_rate", total)


def _scenario(options: dict[str, Any], values: Mapping[str, float], ranks: int, notes: list[str]) -> Scenario:
    """Return the scenario of a row, with the logged KV cache of all ranks if the row has it."""
    scenario = parse_scenario(options)
    if not (tokens := values.get("kv_cache_pool_tokens", 0.0)):
        return scenario
    deployment = deploy(scenario, enable_prefix_caching=True)
    if deployment.memory is not None and deployment.memory.compressed is not None:
        notes.append("kv_cache_pool_tokens has no effect: the pool's tokens of compressed KV depend on settings that "
                     "the table lacks; the planner's own pool is used")
        return scenario
    return replace(scenario, num_gpu_blocks=int(tokens / ranks // deployment.settings.block_size))


def _options(row: Mapping[str, Any], values: Mapping[str, float], tp: int, ranks: int, ep: int,
             notes: list[str]) -> dict[str, Any]:
    """Return the options of a row's deployment. A lane stays with its rank of data-parallel attention."""
    engine = text_of(row, "engine")
    if engine not in ENGINES:
        raise UnknownNameError("engine", engine, ENGINES)
    dialect = ENGINES[engine].dialect
    options: dict[str, Any] = {
        "model": text_of(row, "checkpoint") or text_of(row, "model"), "gpu": load_gpu(text_of(row, "gpu")).name,
        "engine": engine, "tensor_parallel_size": tp, "enable_prefix_caching": True,
        "expert_parallel": ep > 1}
    if ranks > 1:
        options |= {"data_parallel_size": ranks, "data_parallel_attention": True, "router": "session-affinity"}
    if ep > 1:
        options["expert_tensor_parallel_size"] = max(tp * ranks // ep, 1)
    version = text_of(row, "engine_version")
    if release := re.search(r"\d+\.\d+(\.\d+)*(rc\d+|\.post\d+)?", version):
        options["engine_version"] = release[0]
    elif version:
        notes.append(f"engine_version = {version} names no release; the newest is assumed")
    if (drafts := text_of(row, "speculation")) not in ("", "none"):
        if not (parts := re.fullmatch(r"(\w+) (\d+)", drafts)):
            raise UsageError(f"speculation = {drafts}: must be a method and its number of drafts, as in mtp 3")
        options |= {"speculative_method": dialect.methods_without_draft.get(parts[1], parts[1]),
                    "num_speculative_tokens": int(parts[2])}
        if length := values.get("acceptance_length"):
            options["speculative_acceptance"] = f"length:{length:g}"
    if (tier := text_of(row, "kv_offload")) not in ("", "none"):
        if tier != "dram":
            raise UsageError(f"kv_offload = {tier}: must be dram or none")
        if size_gb := values.get("kv_offload_gb"):
            options["kv_offloading_size"] = 1e9 * size_gb / GIB / ranks
        elif dialect.tier is not None and dialect.tier.default_ratio:
            options["kv_offloading_ratio"] = dialect.tier.default_ratio
            notes.append(f"kv_offload_gb is empty: {dialect.tier.default_ratio:g} × the GPUs' cache, as the "
                         f"engine's default")
        else:
            raise UsageError("kv_offload = dram, and kv_offload_gb is empty; give the size of the tier")
    return options


def hit_rates(replayed: Any, counts: Any) -> dict[str, float]:
    """Return the shares of the prompts that count that were in the GPUs' cache, and in host memory, by HITS [1]."""
    requests = replayed.requests
    hits, prompts = (float(values[counts].sum()) for values in (np.maximum(requests.num_cached_tokens, 0),
                                                                requests.input_tokens))
    below = float(replayed.fetches.cpu_tokens[counts].sum()) if replayed.settings.has_tiers else 0.0
    return dict(zip(HITS, ((hits - below) / prompts, below / prompts), strict=True))
