"""Benchmark results of one deployment: the JSON of `vllm bench serve` and the JSONL of SGLang's `bench_serving`."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from planner.engines import ENGINES
from planner.engines.vllm import VLLM
from planner.errors import TraceError, UsageError
from planner.files.counts import count_text
from planner.files.finite import is_number
from planner.files.nested import parse_json
from planner.measured.other_deployment import refuse_other
from planner.measured.run_row import DRAW_BELOW
from planner.measured.run_table import Measurement
from planner.measured.statistics import IS_PERCENTILE, MAKESPAN, PER_REQUEST, measured_of
from planner.schema import MAX_TOKENS
from planner.settings.scenario import Scenario
from planner.traces import Trace
from planner.traces.formats.vllm_bench import client_rate
from planner.traces.reading import trace_of
from planner.traces.shaping.client_load import NAME, at_client_rate, lower_range_load, random_load
from planner.traces.times import fill_times

# The keys that identify a result.
REQUIRED = ("completed", "duration", "total_input_tokens", "total_output_tokens")
OFFLINE = "total_latency"  # of a benchmark without a server, which has no latencies of requests
MOST_PROMPTS = 10_000_000  # of a summary, which are drawn
INFERENCEX = {"range_ratio": 0.8, "seed": 0}  # how that client draws its lengths


def read_results(path: Path, objects: Sequence[Mapping[str, Any]], scenario: Scenario,
                 client: str | None) -> list[Measurement]:
    """Make a measurement of each result in a file.

    The load is the file's record. With `start_times` these are the arrivals (less the wait for a free place, if the
    file has it), unless the client only limited the requests in flight: then it is replayed as that closed loop, with
    the recorded lengths. Without them, a rate is replayed as the client draws its arrivals. Without lengths, these are
    drawn as the client's random dataset draws them, or stand at their means.

    Parameters
    ----------
    objects : the file's JSON objects, one a run.
    scenario : the deployment; its `max_concurrency` and random lengths go before the file's.
    client : "vllm", "sglang" or "inferencex", how lengths are drawn; None to tell from the file.

    Raises
    ------
    TraceError : a run lacks a required key, or a number in it is impossible.
    UsageError : `client` is "inferencex", and the lengths are not given.
    """
    names = [path.stem if len(objects) == 1 else f"{path.stem}#{k}" for k in range(len(objects))]
    return [_measurement(f"{path} run {k}", name, run, scenario, client)
            for k, (name, run) in enumerate(zip(names, objects, strict=True))]


def is_result(keys: Mapping[str, Any]) -> bool:
    """Tell whether a JSON object is a benchmark's result."""
    return sum(key in keys for key in REQUIRED) >= 2 and OFFLINE not in keys


def _measurement(where: str, name: str, run: Mapping[str, Any], scenario: Scenario, client: str | None) -> Measurement:
    for key in REQUIRED:
        _number(where, run, key, MOST_PROMPTS if key == "completed" else math.inf)
    server = run["server_info"] if isinstance(run.get("server_info"), Mapping) else {}
    named = run.get("model_id") or server.get("model_path")
    refuse_other(where, {"model": [str(named)] if named else []}, scenario, server.get("tp_size"))
    client = client or next((name for name, engine in ENGINES.items() if engine.client is not None
                             and any(key in run for key in engine.client.keys)), VLLM.name)
    concurrency = scenario.max_concurrency or _optional(where, run, "max_concurrency")
    scenario = dataclasses.replace(scenario, max_concurrency=None if concurrency is None else int(concurrency))
    drawn = _recorded(where, run) if "ttfts" in run and "output_lens" in run else _drawn(where, run, scenario, client)
    measured = measured_of(drawn, PER_REQUEST) or _reported(where, run)
    load = _sent(where, drawn, run, scenario)
    if load is not drawn or drawn.format == NAME:  # else the recorded arrivals say when it began
        measured[MAKESPAN] = float(run["duration"])
    return Measurement(id=name, groups={"client": client}, measured=measured, scenario=scenario, load=load,
                       notes=(*_failed(where, run), *_other_engine(run, scenario), *_load_words(drawn, load, scenario)))


def _other_engine(run: Mapping[str, Any], scenario: Scenario) -> tuple[str, ...]:
    """Say that a result names another engine; vLLM's client names itself beside any server."""
    backend = str(run.get("backend"))
    return () if backend == scenario.engine or backend not in ENGINES else (
        f"the benchmark's backend is {backend}, and {ENGINES[scenario.engine].title} is predicted; --engine {backend} "
        f"predicts a server of {ENGINES[backend].title}",)


def _load_words(drawn: Trace, load: Trace, scenario: Scenario) -> Iterator[str]:
    """Yield which load stands for a result with requests, if it is not these at their recorded times."""
    if load is drawn or "e2e_s" not in drawn.requests.columns:
        return
    if drawn.format == NAME and scenario.max_concurrency is None:
        yield "validate draws arrivals at the client's rate: the file has no send times"
    elif drawn.format != NAME:
        yield (f"validate replays a closed loop of {scenario.max_concurrency:,} requests in flight; planner replay "
               f"takes the recorded send times")


def _recorded(where: str, run: Mapping[str, Any]) -> Trace:
    """Return the requests that were answered, with their measured times, all at 0 s if no start is recorded."""
    trace = trace_of(where, [run], format="vllm-bench")
    if "e2e_s" not in trace.requests.columns:
        raise TraceError(f"{where}: has neither latencies nor itls; must have one of them for TPOT")
    table = trace.requests.with_columns(max_output_tokens="output_tokens")
    trace = dataclasses.replace(trace, requests=fill_times(table))
    return dataclasses.replace(trace, format=NAME) if trace.arrivals == "absent" else trace


def _sent(where: str, load: Trace, run: Mapping[str, Any], scenario: Scenario) -> Trace:
    """Return the load with the arrivals that the client offered."""
    rate_per_s = client_rate(run)
    if load.format != NAME:
        is_closed = scenario.max_concurrency is not None and rate_per_s in (None, math.inf)
        return load if not is_closed else dataclasses.replace(
            load, requests=load.requests.with_columns(pl.col("arrival_s") * 0.0))
    if rate_per_s is None and scenario.max_concurrency is None:
        rate = _shown(run.get("request_rate"))
        raise TraceError(f"{where}: request_rate = {rate} without start times or max_concurrency does not give "
                         f"the arrival times; save it with --save-detailed, or give --max-concurrency")
    burstiness = _optional(where, run, "burstiness") or 1.0
    return at_client_rate(load, rate_per_s or math.inf, seed=scenario.seed or 0, burstiness=burstiness)


def _failed(where: str, run: Mapping[str, Any]) -> tuple[str, ...]:
    """Say that requests of the benchmark failed: its statistics leave them out."""
    sent = int(_optional(where, run, "num_prompts", MOST_PROMPTS) or 0)
    lost = sent - int(run["completed"])
    return () if lost <= 0 else (
        f"{lost:,} of {count_text(sent, 'request')} failed in the benchmark. Its latencies leave them out, and the "
        f"server had less work than the replay",)


def _drawn(where: str, run: Mapping[str, Any], scenario: Scenario, client: str) -> Trace:
    """Return a load with the lengths that the header states, or with their means."""
    num_prompts = int(_optional(where, run, "num_prompts", MOST_PROMPTS) or run["completed"])
    stated = {"input": scenario.random_input_len or _optional(where, run, "random_input_len", MAX_TOKENS),
              "output": scenario.random_output_len or _optional(where, run, "random_output_len", MAX_TOKENS)}
    is_stated = None not in stated.values()
    ratio = scenario.random_range_ratio
    if ratio is None and run.get("random_range_ratio"):
        ratio = _number(where, run, "random_range_ratio", 1.0)
    lengths = {"num_prompts": num_prompts,
               **{f"{side}_tokens": int(value or _mean(where, run, f"total_{side}_tokens"))
                  for side, value in stated.items()}}
    if client == "inferencex" and not is_stated:
        raise UsageError("--client inferencex draws lengths below the stated lengths, which are not in the file; give "
                         "--random-input-len and --random-output-len")
    if client == "inferencex":
        return lower_range_load(**lengths, **INFERENCEX, source=where)  # type: ignore[arg-type]
    seed = scenario.seed or 0
    if client in DRAW_BELOW:
        return lower_range_load(**lengths, range_ratio=1.0 if ratio is None or not is_stated else float(ratio),
                                seed=seed, source=where)
    return random_load(**lengths, range_ratio=float(ratio or 0.0) if is_stated else 0.0, seed=seed)


def _mean(where: str, run: Mapping[str, Any], key: str) -> int:
    """Return the mean length that a run's total says."""
    mean: int = round(run[key] / run["completed"])
    if not 1 <= mean <= MAX_TOKENS:
        raise TraceError(f"{where}: {key} = {_shown(run[key])} over {_shown(run['completed'])} requests is a mean of "
                         f"{mean:g} tokens; must be 1 to {MAX_TOKENS}")
    return mean


def _reported(where: str, run: Mapping[str, Any]) -> dict[str, float]:
    """Return the statistics that a summary states.

    vLLM's client writes 0 for the TPOT of answers of one token, which have none.
    """
    times = {}
    one_token = run.get("total_output_tokens") == run.get("completed")
    for name in dict.fromkeys((*PER_REQUEST, *filter(IS_PERCENTILE.fullmatch, run))):
        if one_token and "tpot" in name:
            continue
        for key, factor in ((name, 1.0), (name.replace("e2el", "e2e_latency"), 1.0), (name.removesuffix("_ms"), 1e3)):
            if (value := _optional(where, run, key)) is not None and name not in times:
                times[name] = factor * value
    if not times:
        raise TraceError(f"{where}: has neither requests' times nor statistics such as mean_ttft_ms or median_ttft_ms; "
                         f"nothing to compare")
    return times


def _number(where: str, run: Mapping[str, Any], key: str, most: float = math.inf) -> float:
    value = run.get(key)
    if not is_number(value) or value <= 0:
        raise TraceError(f"{where}: {key} = {_shown(value)}; must be a number above 0")
    if value > most:
        raise TraceError(f"{where}: {key} = {_shown(value)}; must be at most {most:g}")
    return float(value)


def _shown(value: Any) -> str:
    """Return a value as Python writes it, which refuses to write numbers of thousands of digits."""
    try:
        return repr(value)[:60]
    except ValueError:
        return "a number of thousands of digits"


def _optional(where: str, run: Mapping[str, Any], key: str, most: float = math.inf) -> float | None:
    return None if run.get(key) is None else _number(where, run, key, most)


def read_objects(path: Path) -> list[Mapping[str, Any]]:
    """Read a JSON document or JSON lines as a list of objects; empty if the text is neither.

    Raises
    ------
    TraceError : the file cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(f"{path}: cannot be read: {error}") from error
    for whole in (lambda: parse_json(text), lambda: [parse_json(line) for line in text.splitlines() if line.strip()]):
        try:
            read = whole()
        except ValueError:
            continue
        objects = read if isinstance(read, list) else [read]
        return objects if all(isinstance(part, dict) for part in objects) else []
    return []
