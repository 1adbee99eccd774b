"""A trace described by a workload model: tenant by tenant its arrivals, and the changes of its mix of requests."""

import hashlib
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from planner.errors import UsageError
from planner.traces import Trace
from planner.traces.fitting.arrival_fit import FittedProcess, fit_arrivals
from planner.traces.fitting.kinds import KindColumns, describe_requests, fit_kinds
from planner.traces.fitting.windows import edges_of, mix_windows
from planner.traces.shaping.burstiness import spread_ticks, tick_of
from planner.traces.synthesis.traffic_model import Epoch, Model, Tenant, to_toml

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST_TENANTS = 20  # with a model of their own; the others are described as one
OTHERS = "others"
CLASSES = 8  # that lengths are sorted into to see whether their mix changes
FEWEST_REQUESTS = 2


class FittedWorkload(NamedTuple):
    """A fitted model, and the arrival processes that were tried by tenant."""

    model: Model
    candidates: dict[str, list[FittedProcess]]


def fit_workload(trace: Trace, *, process: str = "auto", seed: int = 0) -> FittedWorkload:
    """Fit a workload model to a trace, on a fine clock: draws have arrivals between the steps of a log's clock.

    Parameters
    ----------
    trace : at least two requests that do not arrive at once.
    process : of arrivals, "auto" to choose one for each tenant; see `fit_arrivals`.
    seed : of traces that are drawn from the model.

    Raises
    ------
    UsageError : the trace is too short.
    UnknownNameError : there is no such process.
    """
    trace, _ = on_fine_clock(trace)
    arrival_s = trace.requests["arrival_s"].to_numpy()
    span_s = float(arrival_s[-1] - arrival_s[0])
    if trace.num_requests < FEWEST_REQUESTS or span_s <= 0:
        raise UsageError(f"{trace.source}: {trace.num_requests} requests over {span_s:g} s; a model needs "
                         f"{FEWEST_REQUESTS} or more that arrive at different times")
    duration_s = float(f"{span_s + span_s / (trace.num_requests - 1):.9g}")
    described = describe_requests(trace)
    tenants, candidates = [], {}
    for name, rows in _by_tenant(trace.requests):
        tenants.append(_fit_tenant(name, arrival_s[rows] - arrival_s[0], duration_s, described, rows, process))
        candidates[name] = tenants[-1][1]
    model = Model(
        name=Path(trace.source).stem, meaning=f"fitted to {trace.num_requests:,} requests over {duration_s:,.6g} s",
        source=_source(trace), seed=seed,
        duration_s=duration_s, block_tokens=0 if trace.prefix is None else trace.prefix.block_tokens,
        has_sessions="session_id" in trace.requests.columns, has_tenants="tenant" in trace.requests.columns,
        maximum_input_tokens=int(_top(trace.requests["input_tokens"])), tenants=tuple(tenant for tenant, _ in tenants))
    return FittedWorkload(marked(model), candidates)


def on_fine_clock(trace: Trace) -> tuple[Trace, list[str]]:
    """Return a trace with the arrivals at one step of a coarse clock spread evenly over the step, and a note on it."""
    arrival_s = trace.requests["arrival_s"].to_numpy()
    tick_s = tick_of(arrival_s)
    if not tick_s:
        return trace, []
    fine_s = spread_ticks(arrival_s, tick_s, float(arrival_s[-1]) + tick_s, np.random.default_rng(0))
    note = (f"the log's clock has a resolution of {tick_s:g} s: its arrivals are spread evenly over each step, so the "
            f"model draws times within it")
    return replace(trace, requests=trace.requests.with_columns(arrival_s=fine_s)), [note]


def _source(trace: Trace) -> str:
    """Return the model's source, without the folder."""
    name = Path(trace.source).name
    return f"{name} (sha256 {trace.sha256})" if trace.sha256 else name


def marked(model: Model) -> Model:
    """Return the model with the hash of its text."""
    return replace(model, sha256=hashlib.sha256(to_toml(model).encode()).hexdigest())


def _top(tokens: pl.Series) -> Any:
    return tokens.max()


def _by_tenant(table: pl.DataFrame) -> list[tuple[str, Ints]]:
    """Return the tenants' rows, the largest first; further or small tenants are put together as others."""
    if "tenant" not in table.columns:
        return [("all", np.arange(table.height))]
    names = table["tenant"].fill_null("")
    sizes = names.value_counts(sort=True)
    enough = sizes.filter(pl.col("count") >= max(FEWEST_REQUESTS, 10)).head(MOST_TENANTS)["tenant"].to_list()
    named = [(name or "(none)", names.eq(name).arg_true().cast(pl.Int64).to_numpy()) for name in enough]
    rest = (~names.is_in(enough)).arg_true().cast(pl.Int64).to_numpy()
    return [*named, (OTHERS, rest)] if len(rest) else named


def _fit_tenant(name: str, arrival_s: Floats, duration_s: float, described: KindColumns, rows: Ints,
                process: str) -> tuple[Tenant, list[FittedProcess]]:
    arrivals, candidates = fit_arrivals(arrival_s, duration_s, process)
    cuts = mix_windows(_classes(described, rows))
    edges_s = edges_of(arrival_s, duration_s)
    epochs = [Epoch(start_s=float(f"{edges_s[first]:.8g}"), kinds=fit_kinds(described, rows[first:last]))
              for first, last in pairwise(cuts.tolist())]
    starts = [epoch.start_s for epoch in epochs]
    kept = [epoch for epoch, later in zip(epochs, [*starts[1:], np.inf], strict=True) if later > epoch.start_s]
    return Tenant(name=name, arrivals=arrivals, epochs=(replace(kept[0], start_s=0.0), *kept[1:])), candidates


def _classes(described: KindColumns, rows: Ints) -> Ints:
    """Sort requests into CLASSES by new prompt tokens and by output, and into kinds."""
    sorted_into = []
    for name in ("new_tokens", "output_tokens"):
        values = described.variables[name][rows]
        edges = np.unique(np.quantile(values, np.arange(1, CLASSES) / CLASSES))
        sorted_into.append(np.searchsorted(edges, values, side="right"))
    return np.stack([*sorted_into, described.kinds[rows]], axis=1).astype(np.int64)
