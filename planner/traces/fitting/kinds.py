"""The kind of each request and its features: shared tokens, new tokens, and its lag."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.stats import norm

from planner.traces import Trace
from planner.traces.shaping.sharing import sharing
from planner.traces.synthesis.links import ALONE, CONTINUES, POPULAR
from planner.traces.synthesis.quantiles import fit_quantiles
from planner.traces.synthesis.tenant_draws import CODES
from planner.traces.synthesis.traffic_model import KINDS, RequestKind

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

POPULAR_FROM = 10  # requests with the same beginning
FLOORS = {"new_tokens": 2.0, "output_tokens": 1.0, "shared_blocks": 0.5, "lag_s": 0.1}


class KindColumns(NamedTuple):
    """Requests in order of arrival, shapes [num_requests]; the variables by name."""

    kinds: Ints
    variables: Mapping[str, Floats]


def describe_requests(trace: Trace) -> KindColumns:
    """Describe the beginning that every request shares with earlier ones.

    It continues the request before it in its session, or the latest one with the same beginning if fewer than
    POPULAR_FROM have that beginning; it begins as is popular if at least as many do. A beginning is as long as all its
    prefix ids were seen before.
    """
    n = trace.num_requests
    table = trace.requests
    arrival_s, input_tokens = (table[name].to_numpy() for name in ("arrival_s", "input_tokens"))
    kinds, parents, shared = np.full(n, ALONE), np.full(n, -1), np.zeros(n, np.int64)
    if trace.prefix is not None:
        shares = sharing(trace.prefix, input_tokens)
        shared, parents = shares.shared_blocks, shares.parents
        kinds = np.where(shared == 0, ALONE, np.where(shares.visits >= POPULAR_FROM, POPULAR, CONTINUES))
    if "session_id" in table.columns:
        earlier = _turns_before(table)
        kinds = np.where(earlier >= 0, CONTINUES, np.where(kinds == CONTINUES, POPULAR, kinds))
        parents = np.where(earlier >= 0, earlier, parents)
    new = input_tokens - shared * (trace.prefix.block_tokens if trace.prefix is not None else 0)
    lag_s = np.where(parents >= 0, arrival_s - arrival_s[parents], 0.0)
    return KindColumns(kinds.astype(np.int64), {
        "new_tokens": new.astype(float), "output_tokens": table["output_tokens"].to_numpy().astype(float),
        "shared_blocks": shared.astype(float), "lag_s": lag_s})


def _turns_before(table: pl.DataFrame) -> Ints:
    """Return the row of the request before in the same session; -1 for none."""
    row = pl.int_range(pl.len())
    before = table.select(pl.when(pl.col("session_id").is_not_null()).then(row.shift(1).over("session_id")))
    return before.to_series().fill_null(-1).to_numpy().astype(np.int64)


def fit_kinds(described: KindColumns, rows: Ints) -> tuple[RequestKind, ...]:
    """Describe the kinds of some requests, each by its share, the law of its variables and their copula."""
    kinds = []
    for name, code in CODES.items():
        mine = rows[described.kinds[rows] == code]
        if len(mine):
            values = [described.variables[variable][mine] for variable in KINDS[name]]
            laws = {variable: fit_quantiles(sample, floor=FLOORS[variable])
                    for variable, sample in zip(KINDS[name], values, strict=True)}
            kinds.append(RequestKind(kind=name, share=float(f"{len(mine) / len(rows):.6g}"), variables=laws,
                                     correlation=_correlation(values)))
    return tuple(kinds)


def _correlation(values: list[Floats]) -> tuple[tuple[float, ...], ...]:
    """Return the correlation of the normal scores; equal values are ranked at random, a constant goes with nothing."""
    rng = np.random.default_rng(0)
    scores = []
    for sample in values:
        ranks = np.empty(len(sample))
        ranks[np.lexsort((rng.random(len(sample)), sample))] = np.arange(len(sample))
        scores.append(norm.ppf((ranks + 0.5) / len(sample)))
    size = len(values)
    correlation = np.corrcoef(scores) if len(values[0]) > 2 else np.eye(size)
    return tuple(tuple(round(float(correlation[i, j]), 4) if i != j else 1.0 for j in range(size)) for i in range(size))
