"""What many tests need: a trace from a few numbers, a scenario with a linear step time, and a replay's batches."""

import asyncio
import os
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import is_dataclass
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin

import numpy as np
import polars as pl
import pytest

from planner.files.keys import declared
from planner.loop.state.engine_settings import Recording
from planner.planning import capacity_search, loads, sizing, sought
from planner.planning.size_answer import Fleet, SizeAnswer
from planner.replays.request_columns import COLUMNS, Requests
from planner.replays.result_tables import ReplayResult
from planner.run import replay
from planner.settings.scenario import Scenario
from planner.traces import PrefixIds, Trace
from planner.traces.shaping import rescaling
from planner.traces.table import account_of

EVERYTHING = Recording(steps=True, schedule=True)

Rows = Sequence[tuple[float, int, int]]
T = TypeVar("T")


def trace_of(rows: Rows, *, hash_ids: Sequence[Sequence[int]] | None = None, hash_block_tokens: int = 16,
             **columns: Sequence[Any]) -> Trace:
    """Return the trace of `(arrival_s, input_tokens, output_tokens)` rows in order of arrival, with more columns."""
    arrival_s, input_tokens, output_tokens = zip(*rows, strict=True)
    table = pl.DataFrame(
        {
            "arrival_s": np.array(arrival_s, float),
            "input_tokens": np.array(input_tokens, np.int64),
            "output_tokens": np.array(output_tokens, np.int64),
            "request_id": [str(k) for k in range(len(rows))],
            **columns,
        }
    )
    assert table["arrival_s"].is_sorted()
    account = account_of(table, source="test", format="csv", rows_read=len(rows), dropped={}, ignored_columns=())
    prefix = None if hash_ids is None else _prefix_ids(hash_ids, hash_block_tokens)
    return Trace(requests=table, prefix=prefix, source="test", format="csv", sha256="", account=account)


def _prefix_ids(hash_ids: Sequence[Sequence[int]], block_tokens: int) -> PrefixIds:
    values = np.array([value for ids in hash_ids for value in ids], np.int64)
    offsets = np.cumsum([0, *(len(ids) for ids in hash_ids)]).astype(np.int64)
    return PrefixIds(values=values, offsets=offsets, block_tokens=block_tokens)


def scenario_of(**options: Any) -> Scenario:
    """Return a scenario with plenty of memory, steps of 10 ms + 0.1 ms per token, and arrivals seen at once.

    Replicas take requests in turn.
    """
    plain: dict[str, Any] = {"step_time": "linear:0.01,0.0001", "num_gpu_blocks": 1000, "async_scheduling": False}
    plain |= {"router": "round-robin"} if {"data_parallel_size", "autoscale"} & options.keys() else {}
    return Scenario(**plain | options)


def play(trace: Trace | Rows, *, recording: Recording = EVERYTHING, **options: Any) -> ReplayResult:
    """Replay a trace, or its rows, through `scenario_of(**options)`."""
    trace = trace if isinstance(trace, Trace) else trace_of(trace)
    return replay(trace, scenario_of(**options), slo=None, recording=recording).result


def batches(result: ReplayResult) -> list[dict[str, int]]:
    """Return the scheduled tokens of each step, by request."""
    steps: list[dict[str, int]] = [{} for _ in range(int(result.records.engine.num_steps))]
    for step, request, tokens in result.schedule_table().iter_rows():
        assert request not in steps[step], f"request {request} is twice in step {step}"
        steps[step][request] = tokens
    return steps


def step_tokens(result: ReplayResult) -> list[int]:
    """Return the tokens of each step."""
    return [sum(batch.values()) for batch in batches(result)]


def number(statistic: Any) -> float:
    """Return a column's statistic, of which Polars says that it may be anything, as the number that it is."""
    return float(statistic)


def assert_same_requests(ours: Requests, theirs: Requests) -> None:
    """Every column, bit for bit."""
    for name in COLUMNS:
        assert getattr(ours, name).tobytes() == getattr(theirs, name).tobytes(), name


def num_drawn(few: int, whole: int) -> int:
    """Return how many random cases a test draws: few, or with PLANNER_LAWS=all as many as its law was shown with."""
    return whole if os.environ.get("PLANNER_LAWS") == "all" else few


def shorten_loads(patch: pytest.MonkeyPatch, most: int) -> None:
    """Let loads of searches have at most so many requests, in place of `MOST_REQUESTS`."""
    for module in (rescaling, capacity_search, sought, loads, sizing):
        patch.setattr(module, "MOST_REQUESTS", most)


def leave_out_headroom(patch: pytest.MonkeyPatch) -> None:
    """Let `size` leave the headroom of the cheapest fleet out, which takes most of its time."""
    patch.setattr(sizing, "capacity_headroom", lambda *_: None)


def cheapest(found: SizeAnswer) -> Fleet:
    """Return the cheapest fleet of an answer that has one."""
    assert found.cheapest is not None
    return found.cheapest


def finished(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine, run in a thread: a browser's test may have left a running loop in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def filled(kind: type[T], /, **given: Any) -> T:
    """Return an answer, or a part of one, whose fields have these values; others their default, 1, a text, or nothing.
    """
    return kind(**{each.name: given.get(each.name, _neutral(each.hint) if each.is_required else each.default)
                   for each in declared(kind)})


def _neutral(hint: Any) -> Any:
    if NoneType in get_args(hint):
        return None
    if is_dataclass(hint):
        return filled(hint)  # type: ignore[arg-type]
    empty: dict[Any, Any] = {tuple: (), Mapping: {}, str: "x", int: 1, float: 1.0, bool: True}
    return empty[get_origin(hint) or hint]


def validate_compose(document: Any) -> None:
    """Assert that a compose file keeps the compose specification; skip the test if its schema is not installed."""
    schemas = pytest.importorskip("check_jsonschema.builtin_schemas", reason="check-jsonschema is not installed")
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    jsonschema.validate(document, schemas.get_builtin_schema("vendor.compose-spec"))
