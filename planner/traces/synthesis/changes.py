"""What-ifs on traffic: growth, another tenant, longer prompts and outputs, a shifted mix, and flash crowds."""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from planner.errors import UnknownNameError, UsageError
from planner.schema import MAX_TOKENS
from planner.traces.synthesis.arrival_processes import Process
from planner.traces.synthesis.traffic_model import Model, RequestKind, Tenant

FEWEST_WINDOW_S = 1e-6


def grown(model: Model, factor: float) -> Model:
    """Return the traffic of `factor` times as many users of the same kinds: rates grow, the clock stays."""
    return replace(model, tenants=tuple(_faster(tenant, factor, "--grow") for tenant in model.tenants))


def at_rate(model: Model, rate_per_s: float) -> Model:
    """Return the traffic at a mean rate of all tenants together [1/s]."""
    if not 0 < rate_per_s < math.inf:
        raise UsageError(f"--request-rate {rate_per_s}; must be finite and > 0 requests per second")
    return grown(model, rate_per_s / model.rate_per_s)


def lasting(model: Model, duration_s: float) -> Model:
    """Return a model whose traces last `duration_s`; a series of rates and the epochs begin again at their end [s]."""
    if not 0 < duration_s < math.inf:
        raise UsageError(f"--duration {duration_s}; must be finite and > 0 seconds")
    kept = tuple(replace(tenant, period_s=tenant.epochs_last_s(model.duration_s)) for tenant in model.tenants)
    return replace(model, duration_s=duration_s, tenants=kept)


def mixed(model: Model, factors: Mapping[str, float]) -> Model:
    """Return a shifted mix: the rates of named tenants times a factor; 0 leaves a tenant out.

    Raises
    ------
    UnknownNameError, UsageError : a tenant is unknown, a factor is no number from 0 on, or no tenant is left.
    """
    names = [tenant.name for tenant in model.tenants]
    for name in factors:
        if name not in names:
            raise UnknownNameError("tenant", name, names)
    kept = [_faster(tenant, factors[tenant.name], f"--mix {tenant.name}") if tenant.name in factors else tenant
            for tenant in model.tenants if factors.get(tenant.name, 1.0) != 0.0]
    if not kept:
        raise UsageError("--mix: leaves no tenant; must keep one or more")
    return replace(model, tenants=tuple(kept))


def with_tenant(model: Model, name: str, other: Model, rate_per_s: float | None) -> Model:
    """Return the traffic with another model's traffic added, as a tenant of a name.

    Its prompts share nothing with the others'. Its own tenants come as one each, named after it.

    Parameters
    ----------
    rate_per_s : of the new tenant; None for the other model's own [1/s].

    Raises
    ------
    UsageError : the name is taken, or prefix ids of the two stand for different numbers of tokens.
    """
    if model.block_tokens and other.block_tokens and model.block_tokens != other.block_tokens:
        raise UsageError(f"--add-tenant {name}: a prefix id stands for {other.block_tokens} tokens, in "
                         f"{model.name} for {model.block_tokens}; must be equal")
    source = other if rate_per_s is None else at_rate(other, rate_per_s)
    source = lasting(source, model.duration_s)
    several = len(source.tenants) > 1
    added = [replace(tenant, name=f"{name}/{tenant.name}" if several else name) for tenant in source.tenants]
    taken = {tenant.name for tenant in model.tenants}
    for tenant in added:
        if tenant.name in taken:
            raise UsageError(f"--add-tenant {tenant.name}: this tenant exists already; give another name")
    return replace(model, tenants=(*model.tenants, *added), has_tenants=True,
                   has_sessions=model.has_sessions or other.has_sessions,
                   block_tokens=model.block_tokens or other.block_tokens,
                   maximum_input_tokens=max(model.maximum_input_tokens, other.maximum_input_tokens))


def with_lengths(model: Model, *, input_factor: float = 1.0, output_factor: float = 1.0) -> Model:
    """Return the traffic with prompts and outputs times a factor, shared parts and context limit included."""
    for option, factor in (("--scale-input", input_factor), ("--scale-output", output_factor)):
        if not 0 < factor < math.inf:
            raise UsageError(f"{option} {factor}; must be finite and > 0")
    tenants = tuple(replace(tenant, epochs=tuple(
        replace(epoch, kinds=tuple(_with_lengths(kind, input_factor, output_factor) for kind in epoch.kinds))
        for epoch in tenant.epochs)) for tenant in model.tenants)
    longest = min(math.ceil(model.maximum_input_tokens * input_factor), MAX_TOKENS)
    return replace(model, tenants=tenants, maximum_input_tokens=max(longest, 1))


def _with_lengths(kind: RequestKind, input_factor: float, output_factor: float) -> RequestKind:
    factors = {"new_tokens": input_factor, "shared_blocks": input_factor, "output_tokens": output_factor, "lag_s": 1.0}
    return replace(kind, variables={name: law.scaled(factors[name]) for name, law in kind.variables.items()})


def with_flash(model: Model, *, at_s: float, lasts_s: float, times: float) -> Model:
    """Return the traffic with a flash crowd: rates `times` times as high for a while; every tenant's, once.

    Arrivals of other processes than a series become one with the same mean rate, of Poisson gaps.

    Raises
    ------
    UsageError : the crowd does not come within the model's duration, or a number is out of range.
    """
    if not (0 <= at_s < model.duration_s and lasts_s > 0 and 0 < times < math.inf):
        raise UsageError(f"--flash at={at_s:g},lasts={lasts_s:g},times={times:g}: must begin from 0 to "
                         f"{model.duration_s:g} s, last > 0 s, and multiply the rate by > 0")
    until_s = min(at_s + lasts_s, model.duration_s)
    return replace(model, tenants=tuple(
        replace(tenant, arrivals=_flashed(tenant.arrivals, model.duration_s, at_s, until_s, times),
                period_s=tenant.epochs_last_s(model.duration_s))
        for tenant in model.tenants))


def _flashed(process: Process, duration_s: float, at_s: float, until_s: float, times: float) -> Process:
    """Cut a process's windows at the crowd's beginning and end, and raise the rates between."""
    lengths = np.array(process.window_s if process.process == "series" else (duration_s,))
    rates = np.array(process.window_rates_per_s if process.process == "series" else (process.rate_per_s,))
    rounds = math.ceil(duration_s / lengths.sum())
    edges = np.concatenate(([0.0], np.cumsum(np.tile(lengths, rounds))))
    cut = np.unique(np.concatenate((edges[edges < duration_s], [at_s, until_s, duration_s])))
    cut = cut[np.concatenate(([True], np.diff(cut) > FEWEST_WINDOW_S))]
    middle = (cut[1:] + cut[:-1]) / 2
    high = np.tile(rates, rounds)[np.searchsorted(edges, middle, side="right") - 1]
    high = high * np.where((middle > at_s) & (middle < until_s), times, 1.0)
    widths = np.diff(cut)
    return replace(process, process="series", rate_per_s=float((high * widths).sum() / widths.sum()), gap_shape=1.0,
                   state_mean_s=(), state_rates_per_s=(), window_s=tuple(widths.tolist()),
                   window_rates_per_s=tuple(high.tolist()))


def _faster(tenant: Tenant, factor: float, option: str) -> Tenant:
    if not 0 < factor < math.inf:
        raise UsageError(f"{option} {factor}; must be finite and > 0")
    return replace(tenant, arrivals=tenant.arrivals.faster(factor))
