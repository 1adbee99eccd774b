"""A fitted workload: tenants, each with its arrivals and, epoch by epoch, its kinds of requests; as TOML and back."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tomli_w

from planner.errors import UnknownNameError, UsageError
from planner.schema import MAX_TOKENS
from planner.traces.synthesis.arrival_processes import Process
from planner.traces.synthesis.fields import fill, not_negative, not_too_many, positive, whole
from planner.traces.synthesis.quantiles import QuantileCurve

VARIABLES = ("new_tokens", "output_tokens", "shared_blocks", "lag_s")
KIND_KEYS = ("kind", "share", "correlation")  # beside the variables
KINDS = {  # a request's relation to earlier ones, and the variables that describe it
    "alone": ("new_tokens", "output_tokens"),
    "popular": ("new_tokens", "output_tokens", "shared_blocks", "lag_s"),
    "continues": ("new_tokens", "output_tokens", "shared_blocks", "lag_s"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestKind:
    """Requests of one kind.

    Parameters
    ----------
    kind : a name of `KINDS`: "alone" shares nothing, "popular" begins as many others do, "continues" an earlier one.
    share : of the epoch's requests [1].
    variables : law of each variable of the kind: `new_tokens` of the prompt beyond its shared part [tokens],
        `output_tokens` [tokens], `shared_blocks` of the prefix ids, `lag_s` since the request that it begins like [s].
    correlation : of their normal scores, a row a variable [1]: a Gaussian copula.
    """

    kind: str
    share: float
    variables: Mapping[str, QuantileCurve]
    correlation: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UnknownNameError("kind of request", str(self.kind), KINDS)
        positive("share", self.share)
        if tuple(self.variables) != KINDS[self.kind]:
            raise UsageError(f"kind {self.kind!r} has {', '.join(self.variables)}; must have "
                             f"{', '.join(KINDS[self.kind])}")
        for name, law in self.variables.items():
            if max(abs(law.values[0]), abs(law.values[-1])) > MAX_TOKENS:
                raise UsageError(f"{name} of kind {self.kind!r} goes from {law.values[0]:g} to {law.values[-1]:g}; "
                                 f"must be within {MAX_TOKENS}")
        size = len(self.variables)
        if np.shape(self.correlation) != (size, size) or not (np.abs(self.correlation) <= 1).all():
            raise UsageError(f"correlation of kind {self.kind!r} must be {size} rows of {size} numbers from -1 to 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """A stretch of time in which the mix of requests stays.

    Parameters
    ----------
    start_s : of it, from the model's beginning; it lasts until the next [s].
    kinds : each kind once.
    """

    start_s: float
    kinds: tuple[RequestKind, ...]

    def __post_init__(self) -> None:
        not_negative("start_s", self.start_s)
        names = [kind.kind for kind in self.kinds]
        if not names or len(set(names)) < len(names):
            raise UsageError(f"the epoch at {self.start_s} s has the kinds {names}; must have one or more, each once")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """One tenant's traffic.

    Parameters
    ----------
    name, arrivals : the tenant's name, and how its requests arrive.
    epochs : of its mix, the first from 0 on.
    period_s : after which the epochs begin again; 0 for the length of a series of rates, or else the model's [s].
    """

    name: str
    arrivals: Process
    epochs: tuple[Epoch, ...]
    period_s: float = 0.0

    def __post_init__(self) -> None:
        not_negative("period_s", self.period_s)
        starts = [epoch.start_s for epoch in self.epochs]
        if not starts or starts[0] != 0 or (np.diff(starts) <= 0).any():
            raise UsageError(f"tenant {self.name!r}: its epochs start at {starts} s; must start at 0 and increase")


    def epochs_last_s(self, duration_s: float) -> float:
        """Return after how long the epochs begin again in a model of a duration [s]."""
        return self.period_s or sum(self.arrivals.window_s) or max(duration_s, self.epochs[-1].start_s + 1e-9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A fitted workload.

    Parameters
    ----------
    name : of the model.
    meaning : one line about it.
    source : the record to which it was fitted.
    seed : of the PCG64 generator.
    duration_s : how long the record was, and how long a drawn trace is; longer ones begin again [s].
    block_tokens : tokens that one prefix id stands for; 0 if sharing is unknown [tokens].
    has_sessions : whether requests that continue others make up sessions.
    has_tenants : whether requests name their tenant.
    maximum_input_tokens : no prompt is longer [tokens].
    tenants : one or more.
    sha256 : of the model's text.
    """

    name: str
    meaning: str
    source: str
    seed: int
    duration_s: float
    block_tokens: int
    has_sessions: bool
    has_tenants: bool
    maximum_input_tokens: int
    tenants: tuple[Tenant, ...]
    sha256: str = ""

    def __post_init__(self) -> None:
        positive("duration_s", self.duration_s)
        whole("maximum_input_tokens", self.maximum_input_tokens)
        whole("block_tokens", self.block_tokens, least=0)
        if not isinstance(self.seed, int) or self.seed < 0:
            raise UsageError(f"seed = {self.seed!r}; must be a whole number >= 0")
        names = [tenant.name for tenant in self.tenants]
        if not names or len(set(names)) < len(names):
            raise UsageError(f"tenants {names}; must be one or more, each once")
        not_too_many(self.rate_per_s, self.duration_s)

    @property
    def rate_per_s(self) -> float:
        """The mean rate of all tenants [1/s]."""
        return sum(tenant.arrivals.rate_per_s for tenant in self.tenants)

    @property
    def num_numbers(self) -> int:
        """How many numbers the model is made of."""
        kinds = [kind for tenant in self.tenants for epoch in tenant.epochs for kind in epoch.kinds]
        laws = sum(2 * len(law.at) for kind in kinds for law in kind.variables.values())
        correlations = sum(len(kind.variables) * (len(kind.variables) - 1) // 2 + 1 for kind in kinds)
        epochs = sum(len(tenant.epochs) for tenant in self.tenants)
        return laws + correlations + epochs + sum(tenant.arrivals.num_numbers for tenant in self.tenants)


def model_of(table: Mapping[str, Any]) -> Model:
    """Make a model of the tables of its TOML.

    Raises
    ------
    UnknownNameError, UsageError : a key is unknown or missing, or its value out of range.
    """
    tenants = tuple(_tenant(row, f"tenants[{place}]") for place, row in enumerate(_rows(table, "tenants")))
    return fill(Model, {**table, "tenants": tenants}, "the model")


def _rows(table: Mapping[str, Any], key: str) -> list[Any]:
    rows = table.get(key)
    if not isinstance(rows, list) or not rows:
        raise UsageError(f"{key} must be one table or more, as [[{key}]]")
    return rows


def _tenant(row: Any, where: str) -> Tenant:
    arrivals = dict(row.get("arrivals") or {}) if isinstance(row, Mapping) else {}
    if "gaps" in arrivals:
        arrivals["gaps"] = fill(QuantileCurve, arrivals["gaps"], f"{where}.arrivals.gaps")
    process = fill(Process, arrivals, f"{where}.arrivals")
    epochs = tuple(_epoch(epoch, f"{where}.epochs[{place}]") for place, epoch in enumerate(_rows(row, "epochs")))
    return fill(Tenant, {**row, "arrivals": process, "epochs": epochs}, where)


def _epoch(row: Any, where: str) -> Epoch:
    kinds = tuple(_kind(kind, f"{where}.kinds[{place}]") for place, kind in enumerate(_rows(row, "kinds")))
    return fill(Epoch, {**row, "kinds": kinds}, where)


def _kind(row: Mapping[str, Any], where: str) -> RequestKind:
    for key in row:
        if key not in (*KIND_KEYS, *VARIABLES):
            raise UnknownNameError(f"key in {where}", key, (*KIND_KEYS, *VARIABLES))
    laws = {name: fill(QuantileCurve, row[name], f"{where}.{name}") for name in VARIABLES if name in row}
    rest = {key: value for key, value in row.items() if key not in VARIABLES}
    rows = tuple(tuple(line) for line in rest.get("correlation", ()))
    return fill(RequestKind, {**rest, "variables": laws, "correlation": rows}, where)


def to_toml(model: Model) -> str:
    """Return the model as TOML, which `model_of` reads back as it is."""
    head = {key: getattr(model, key) for key in ("meaning", "source", "seed", "duration_s", "block_tokens",
                                                 "has_sessions", "has_tenants", "maximum_input_tokens")}
    return ("# Written by `planner trace synth --fit`; `planner trace synth` draws traces from it.\n"
            + tomli_w.dumps({**head, "tenants": [_tenant_table(tenant) for tenant in model.tenants]}))


def _tenant_table(tenant: Tenant) -> dict[str, Any]:
    period = {"period_s": tenant.period_s} if tenant.period_s else {}
    epochs = [{"start_s": epoch.start_s, "kinds": [
        {"kind": kind.kind, "share": kind.share, "correlation": kind.correlation,
         **{name: {"at": law.at, "values": law.values} for name, law in kind.variables.items()}}
        for kind in epoch.kinds]} for epoch in tenant.epochs]
    return {"name": tenant.name, **period, "arrivals": _given(tenant.arrivals), "epochs": epochs}


def _given(process: Process) -> dict[str, Any]:
    """Return the fields of a process that differ from their defaults, its gaps as a table."""
    values = {field.name: getattr(process, field.name) for field in dataclasses.fields(process)
              if getattr(process, field.name) != field.default}
    if process.gaps is not None:
        values["gaps"] = {"at": process.gaps.at, "values": process.gaps.values}
    return values
