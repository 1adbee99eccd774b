"""Requests drawn from a fitted workload: each tenant's arrivals, epoch by epoch its requests, and how they link."""

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.random import Generator
from numpy.typing import NDArray

from planner.traces.prefix_ids import PrefixIds, intern_ids
from planner.traces.synthesis.arrival_processes import draw_arrivals
from planner.traces.synthesis.drawn_requests import request_table
from planner.traces.synthesis.links import ALONE, CONTINUES, POPULAR, inherited_ids, link
from planner.traces.synthesis.quantiles import spread_evenly
from planner.traces.synthesis.traffic_model import VARIABLES, Epoch, Model, RequestKind, Tenant

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CODES = {"alone": ALONE, "popular": POPULAR, "continues": CONTINUES}
SMALLEST_EIGENVALUE = 1e-6  # a correlation matrix of rounded numbers may be a hair off being one


class Drawn(NamedTuple):
    """One tenant's requests, in order of arrival; shapes [num_requests]."""

    arrival_s: Floats
    input_tokens: Ints
    output_tokens: Ints
    lengths: Ints
    ids: Ints
    sessions: Ints


def draw_model(model: Model, rng: Generator) -> tuple[pl.DataFrame, PrefixIds | None]:
    """Draw a fitted workload's requests in order of arrival, and their prefix ids if sharing is known."""
    parts = [_draw_tenant(tenant, model, rng) for tenant in model.tenants]
    tenant = np.repeat(np.arange(len(parts)), [len(part.arrival_s) for part in parts])
    order = np.argsort(np.concatenate([part.arrival_s for part in parts]), kind="stable")
    joined = {name: np.concatenate([getattr(part, name) for part in parts])[order]
              for name in ("arrival_s", "input_tokens", "output_tokens")}
    more: dict[str, pl.Series] = {}
    if model.has_sessions:
        apart = np.concatenate([part.sessions for part in parts]) * len(parts) + tenant
        more["session_id"] = pl.Series(apart[order]).cast(pl.String)
    if model.has_tenants:
        more["tenant"] = pl.Series([one.name for one in model.tenants]).gather(tenant[order])
    table = request_table(joined["arrival_s"], joined["input_tokens"], joined["output_tokens"], more)
    return table, _prefix(parts, order, model.block_tokens) if model.block_tokens else None


def _prefix(parts: list[Drawn], order: Ints, block_tokens: int) -> PrefixIds:
    """Put the tenants' prefix ids together, in the order of all requests; tenants share nothing."""
    shifts = np.cumsum([0, *(int(part.ids.max(initial=-1)) + 1 for part in parts)])
    ids = np.concatenate([part.ids + shift for part, shift in zip(parts, shifts, strict=False)])
    lengths = np.concatenate([part.lengths for part in parts])
    starts = np.cumsum(lengths) - lengths
    within = np.arange(len(ids)) - np.repeat(np.cumsum(lengths[order]) - lengths[order], lengths[order])
    return intern_ids([pl.Series(ids[np.repeat(starts[order], lengths[order]) + within])], lengths[order], block_tokens)


def _draw_tenant(tenant: Tenant, model: Model, rng: Generator) -> Drawn:
    times_s = draw_arrivals(tenant.arrivals, model.duration_s, rng)
    kinds = np.zeros(len(times_s), np.int64)
    drawn = {name: np.zeros(len(times_s)) for name in VARIABLES}
    for rows, epoch in _by_epoch(tenant, times_s, tenant.epochs_last_s(model.duration_s)):
        for kind, mine in _by_kind(epoch, rows, rng):
            kinds[mine] = CODES[kind.kind]
            for name, values in draw_kind(kind, len(mine), rng).items():
                drawn[name][mine] = values
    whole = {name: np.rint(drawn[name]).astype(np.int64) for name in VARIABLES if name != "lag_s"}
    links = link(times_s, kinds, whole["shared_blocks"], whole["new_tokens"], drawn["lag_s"],
                 block_tokens=model.block_tokens, maximum_input_tokens=model.maximum_input_tokens)
    tokens = whole["shared_blocks"] * model.block_tokens + whole["new_tokens"]
    input_tokens = np.clip(tokens[links.rows], 1, model.maximum_input_tokens)
    lengths = -(-input_tokens // model.block_tokens) if model.block_tokens else np.zeros(len(times_s), np.int64)
    ids, _ = inherited_ids(lengths, links.parents, links.shared_blocks)
    return Drawn(times_s, input_tokens, np.maximum(whole["output_tokens"][links.rows], 1), lengths, ids, links.sessions)


def _by_epoch(tenant: Tenant, times_s: Floats, period_s: float) -> Iterator[tuple[Ints, Epoch]]:
    """Yield the requests of every epoch, round by round."""
    starts_s = [epoch.start_s for epoch in tenant.epochs]
    for begin_s in np.arange(math.ceil((times_s[-1] + 1e-9) / period_s) if len(times_s) else 0) * period_s:
        edges = np.searchsorted(times_s, [*(begin_s + start_s for start_s in starts_s), begin_s + period_s])
        edges[-1] = max(edges[-1], edges[-2])
        for epoch, first, last in zip(tenant.epochs, edges[:-1], edges[1:], strict=True):
            yield np.arange(first, last), epoch


def _by_kind(epoch: Epoch, rows: Ints, rng: Generator) -> Iterator[tuple[RequestKind, Ints]]:
    """Deal an epoch's requests to its kinds at random, as many to each as its share says, to within one."""
    edges = np.cumsum([kind.share for kind in epoch.kinds])
    places = np.floor(edges / edges[-1] * len(rows) + (rng.random() if len(edges) > 1 else 0.0))
    mixed = rng.permutation(rows)
    for kind, part in zip(epoch.kinds, np.split(mixed, np.minimum(places, len(rows)).astype(int)[:-1]), strict=True):
        yield kind, np.sort(part)


def draw_kind(kind: RequestKind, num: int, rng: Generator) -> Mapping[str, Floats]:
    """Draw the variables of requests of a kind, shape [num] each, correlated as its copula says."""
    size = len(kind.variables)
    values, vectors = np.linalg.eigh(np.array(kind.correlation))
    root = vectors * np.sqrt(np.maximum(values, SMALLEST_EIGENVALUE))
    scores = rng.standard_normal((num, size)) @ root.T
    return {name: law(spread_evenly(scores[:, place], rng)) for place, (name, law) in enumerate(kind.variables.items())}
