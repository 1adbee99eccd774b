"""Quotas of tenants and their weights in fair shares: a TOML file, and one record for each tenant of a trace."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from planner.catalog.entries import read_toml
from planner.engine import state as st
from planner.engine.client_state import TENANT
from planner.errors import UnknownNameError, UsageError
from planner.trace import Trace

Excess = Literal["reject", "delay"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """What one tenant may send.

    Parameters
    ----------
    weight : in fair shares, of the tokens that it is served.
    requests_per_second : at which its bucket of requests fills [1/s]; infinite for no limit.
    burst_requests : what the bucket holds; None for a second's worth, one at least.
    tokens_per_minute : at which its bucket of tokens fills, prompt and output [1/min]; infinite for no limit.
    burst_tokens : what the bucket holds; None for a minute's worth.
    excess : a request over the quota is turned away ("reject"), or waits at the gateway ("delay").

    Raises
    ------
    UsageError : a number is not above 0, a bucket holds less than one request, or `excess` is neither.
    """

    weight: float = 1.0
    requests_per_second: float = math.inf
    burst_requests: float | None = None
    tokens_per_minute: float = math.inf
    burst_tokens: float | None = None
    excess: Excess = "reject"

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if f.name == "excess":
                if value not in get_args(Excess):
                    raise UsageError(f"excess = {value!r}; must be 'reject' or 'delay'")
            elif value is not None and not (type(value) in (int, float) and value > 0):
                raise UsageError(f"{f.name} = {value!r}; must be a number above 0")
        if not math.isfinite(self.weight):
            raise UsageError(f"weight = {self.weight}; must be finite")
        if self.burst_requests is not None and self.burst_requests < 1:
            raise UsageError(f"burst_requests = {self.burst_requests}; must be at least 1, or no request ever passes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenants:
    """The quotas of a file.

    Parameters
    ----------
    named : by tenant.
    default : of each other tenant, and of requests without one.
    """

    named: Mapping[str, Quota]
    default: Quota


def read_tenants(path: Path) -> Tenants:
    """Read quotas: tables `[tenant.NAME]`, and `[default]`, with the fields of `Quota`.

    Raises
    ------
    CatalogError : the file is missing or no TOML.
    UsageError, UnknownNameError : a key or a value in it is wrong.
    """
    table = read_toml(path)
    for key in table:
        if key not in ("tenant", "default"):
            raise UnknownNameError(f"{path}: table", key, ("tenant", "default"))
    rows = table.get("tenant", {})
    if not isinstance(rows, dict):
        raise UsageError(f"{path}: tenant = {rows!r}; must be tables, as in [tenant.chat]")
    return Tenants(named={name: _quota(row, f"{path} [tenant.{name}]") for name, row in rows.items()},
                   default=_quota(table.get("default", {}), f"{path} [default]"))


def _quota(row: Any, where: str) -> Quota:
    if not isinstance(row, dict):
        raise UsageError(f"{where}: {row!r}; must be a table, as in [tenant.chat]")
    known = [f.name for f in fields(Quota)]
    for key in row:
        if key not in known:
            raise UnknownNameError(f"{where}: key", key, known)
    try:
        return Quota(**row)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from error


def tenant_records(trace: Trace, tenants: Tenants | None) -> tuple[Any, NDArray[np.int64]]:
    """Return the record of each tenant of a trace, buckets full, and the tenant of each request, shape [num_requests].

    Raises
    ------
    UsageError : tenants are named, and the trace has none.
    """
    tenants = tenants or Tenants(named={}, default=Quota())
    if "tenant" not in trace.requests.columns:
        if tenants.named:
            raise UsageError(f"{trace.source}: has no column tenant, and --tenants names "
                             f"{', '.join(map(repr, tenants.named))}; name the column (--column tenant=…), or leave "
                             f"[default] alone in the file")
        return _records([tenants.default]), np.zeros(trace.num_requests, np.int64)
    names = trace.requests["tenant"].cast(pl.String).fill_null("")
    known = names.unique(maintain_order=True)
    numbers = names.replace_strict(known, pl.int_range(len(known), eager=True), return_dtype=pl.Int64)
    return _records([tenants.named.get(name, tenants.default) for name in known]), numbers.to_numpy()


def _records(quotas: list[Quota]) -> Any:
    records = st.records(len(quotas), TENANT)
    for record, quota in zip(records, quotas, strict=True):
        record.weight = quota.weight
        record.requests_per_s = quota.requests_per_second
        record.most_requests = quota.burst_requests or max(quota.requests_per_second, 1.0)
        record.tokens_per_s = quota.tokens_per_minute / 60
        record.most_tokens = quota.burst_tokens or quota.tokens_per_minute
        record.is_delayed = quota.excess == "delay"
    records.requests, records.tokens = records.most_requests, records.most_tokens
    records.head = records.tail = st.NONE
    return records
