"""Quotas, fair shares and objectives of tenants: a TOML file, and one record for each tenant of a trace."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from planner.catalog.catalog_files import read_toml
from planner.errors import UnknownNameError, UsageError
from planner.loop.state import engine_state as st
from planner.loop.state.client_state import TENANT
from planner.settings.objectives import Objectives, given_objectives
from planner.settings.scenario import Scenario
from planner.settings.slo import DEADLINE, METRICS
from planner.traces import Trace

Excess = Literal["reject", "delay"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """Requests that one tenant may send, and the objectives that they are held to.

    Parameters
    ----------
    weight : in fair shares, of the tokens that it is served.
    requests_per_second : at which its bucket of requests fills [1/s]; infinite for no limit.
    burst_requests : size of the bucket; None for a second's worth, one at least.
    tokens_per_minute : at which its bucket of tokens fills, prompt and output [1/min]; infinite for no limit.
    burst_tokens : size of the bucket; None for a minute's worth.
    excess : a request over the quota is turned away ("reject"), or waits at the gateway ("delay").
    slo : the tenant's own objectives, in place of the objectives of all requests, as `parse_objectives` reads them.
    attainment : share of its requests that must meet them; None if no share is asked for [1].

    Raises
    ------
    UsageError : a number is not above 0, a bucket holds less than one request, `excess` is neither, or the objectives
        cannot be read.
    """

    weight: float = 1.0
    requests_per_second: float = math.inf
    burst_requests: float | None = None
    tokens_per_minute: float = math.inf
    burst_tokens: float | None = None
    excess: Excess = "reject"
    slo: str | None = None
    attainment: float | None = None

    def __post_init__(self) -> None:
        if self.excess not in get_args(Excess):
            raise UsageError(f"excess = {self.excess!r}; must be 'reject' or 'delay'")
        if self.slo is not None and not isinstance(self.slo, str):
            raise UsageError(f"slo = {self.slo!r}; must be text in quotes, as in 'ttft:500 tpot:50'")
        for f in fields(self):
            value = getattr(self, f.name)
            if f.name in ("excess", "slo"):
                continue
            if value is not None and not (type(value) in (int, float) and value > 0):
                raise UsageError(f"{f.name} = {value!r}; must be a number above 0")
        if not math.isfinite(self.weight):
            raise UsageError(f"weight = {self.weight}; must be finite")
        if self.burst_requests is not None and self.burst_requests < 1:
            raise UsageError(f"burst_requests = {self.burst_requests}; must be at least 1, or no request ever passes")
        _ = self.objectives

    @property
    def objectives(self) -> Objectives | None:
        """The tenant's own objectives; None if the objectives of all requests hold."""
        return given_objectives(self.slo, self.attainment)


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

    def of(self, name: str) -> Quota:
        """Return the quota of a tenant, "" for requests without one."""
        return self.named.get(name, self.default)


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
                             f"{', '.join(map(repr, tenants.named))}; name the column (--column tenant=…), or keep "
                             f"only [default] in the file")
        return _records([tenants.default]), np.zeros(trace.num_requests, np.int64)
    names = tenant_names(trace)
    known = names.unique(maintain_order=True)
    numbers = names.replace_strict(known, pl.int_range(len(known), eager=True), return_dtype=pl.Int64)
    return _records([tenants.of(name) for name in known]), numbers.to_numpy()


def tenant_names(trace: Trace) -> pl.Series:
    """Return the tenant of each request, "" without one, shape [num_requests]."""
    return trace.requests["tenant"].cast(pl.String).fill_null("")


def own_limits_s(trace: Trace, tenants: Tenants | None) -> dict[str, NDArray[np.float64]]:
    """Return the limits that single requests have of their own, by metric, shape [num_requests] each [s].

    A request's deadline limits its end-to-end latency, its tenant's objectives replace the objectives of all requests:
    infinite for a metric that they do not limit, NaN if a request's tenant has none.
    """
    limits_s = {}
    if "deadline_s" in trace.requests.columns:
        limits_s[DEADLINE] = trace.requests["deadline_s"].cast(pl.Float64).fill_null(math.inf).to_numpy()
    if tenants is None:
        return limits_s
    names = (tenant_names(trace) if "tenant" in trace.requests.columns
             else pl.repeat("", trace.num_requests, dtype=pl.String, eager=True))
    objectives = {name: tenants.of(name).objectives for name in names.unique()}
    limits = {name: objective.slo.limits_s for name, objective in objectives.items() if objective is not None}
    for metric in METRICS if limits else ():
        by_name = {name: tenants_s.get(metric, math.inf) for name, tenants_s in limits.items()}
        limits_s[metric] = names.replace_strict(by_name, default=math.nan, return_dtype=pl.Float64).to_numpy()
    return limits_s


def refuse_tenant_thresholds(scenario: Scenario) -> None:
    """Refuse verdicts on single tenants, for commands that judge all requests together.

    Raises
    ------
    UsageError : a tenant has a share of requests, or a statistic, to keep.
    """
    tenants = None if scenario.tenants is None else read_tenants(Path(scenario.tenants))
    for name, quota in {} if tenants is None else {**tenants.named, "default": tenants.default}.items():
        objectives = quota.objectives
        if objectives is not None and (objectives.statistics or objectives.attainment is not None):
            raise UsageError(f"{scenario.tenants} {name}: slo = {quota.slo!r}, attainment = {quota.attainment}: this "
                             f"command judges all requests together; give only limits of each request, without "
                             f"attainment")


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
