"""The answer of `trace synth`: the workload model, the drawn trace and their closeness."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from planner.files.keys import Key
from planner.traces.synthesis.traffic_model import Model, Tenant


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAnswer:
    """The workload model, the drawn trace and their closeness."""

    name: Annotated[str, Key("", "Name of the model")]
    meaning: Annotated[str, Key("", "Traffic that it describes")]
    source: Annotated[str, Key("", "Trace that it was fitted to, or its origin")]
    duration_s: Annotated[float, Key("s", "Time that it describes")]
    rate_per_s: Annotated[float, Key("requests/s", "Mean rate")]
    num_numbers: Annotated[int, Key("1", "Numbers that describe it")]
    tenants: Annotated[tuple[Mapping[str, Any], ...], Key("", "Name, rate, arrival process, epochs, kinds of requests "
                                                          "and the processes that were tried, of each tenant")]
    closeness: Annotated[Mapping[str, Any] | None, Key("", "Statistics of drawn traces beside the recorded ones, and "
                                                       "predictions with a deployment", only="with --fit")] = None
    drawn: Annotated[str | None, Key("", "The drawn trace in words", only="with --output")] = None


def describe_model(model: Model, tried: Mapping[str, Sequence[Any]]) -> ModelAnswer:
    """Return the answer of a model.

    Parameters
    ----------
    tried : arrival processes that the fit tried, by tenant.
    """
    tenants = [{
        "name": tenant.name, "rate_per_s": tenant.arrivals.rate_per_s, "process": tenant.arrivals.process,
        "num_epochs": len(tenant.epochs),
        "kinds": {name: share for name, share in _mean_shares(tenant).items() if share},
        "tried": [{"process": each.process.process, "deviation": each.deviation,
                   "num_numbers": each.process.num_numbers} for each in tried.get(tenant.name, ())],
    } for tenant in model.tenants]
    return ModelAnswer(name=model.name, meaning=model.meaning, source=model.source, duration_s=model.duration_s,
                       rate_per_s=model.rate_per_s, num_numbers=model.num_numbers, tenants=tuple(tenants))


def _mean_shares(tenant: Tenant) -> dict[str, float]:
    """Return the kinds' shares, epochs counted alike."""
    shares: dict[str, float] = {}
    for epoch in tenant.epochs:
        for kind in epoch.kinds:
            shares[kind.kind] = shares.get(kind.kind, 0.0) + kind.share / len(tenant.epochs)
    return shares
