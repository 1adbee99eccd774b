"""What-ifs on traffic do what they say, and say what is wrong with them."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from helpers import number

from planner.errors import UnknownNameError, UsageError
from planner.traces.synthesis import Model, generate
from planner.traces.synthesis.arrival_processes import Process
from planner.traces.synthesis.changes import at_rate, grown, lasting, mixed, with_flash, with_lengths, with_tenant
from planner.traces.synthesis.quantiles import QuantileCurve
from planner.traces.synthesis.traffic_model import Epoch, RequestKind, Tenant


def model_of(*rates: float, duration_s: float = 1000.0, block_tokens: int = 0) -> Model:
    kind = RequestKind(kind="alone", share=1.0, variables={
        "new_tokens": QuantileCurve(at=(0.0, 1.0), values=(100.0, 300.0)),
        "output_tokens": QuantileCurve(at=(0.0, 1.0), values=(10.0, 10.0))}, correlation=((1.0, 0.0), (0.0, 1.0)))
    tenants = tuple(Tenant(name=f"t{k}", arrivals=Process(process="poisson", rate_per_s=rate),
                           epochs=(Epoch(start_s=0.0, kinds=(kind,)),)) for k, rate in enumerate(rates))
    return Model(name="m", meaning="", source="", seed=0, duration_s=duration_s, block_tokens=block_tokens,
                 has_sessions=False, has_tenants=len(rates) > 1, maximum_input_tokens=1000, tenants=tenants)


def counts(model: Model) -> dict[str, int]:
    table = generate(model, seed=1).requests
    if "tenant" not in table.columns:
        return {"all": table.height}
    return dict(table["tenant"].value_counts().rows())


@pytest.mark.slow
def test_growth_and_rates() -> None:
    assert counts(grown(model_of(2.0), 3.0))["all"] == pytest.approx(6000, rel=0.06)
    assert counts(at_rate(model_of(2.0, 2.0), 1.0)) == pytest.approx({"t0": 500, "t1": 500}, rel=0.15)


def test_a_longer_trace_begins_again() -> None:
    series = Process(process="series", rate_per_s=2.0, window_s=(900.0, 100.0), window_rates_per_s=(1.0, 11.0))
    model = model_of(2.0)
    tenant = Tenant(name="t", arrivals=series, epochs=model.tenants[0].epochs)
    long = lasting(replace(model, tenants=(tenant,)), 2500.0)
    found = generate(long, seed=0).requests["arrival_s"].to_numpy()
    assert len(found) == pytest.approx(2000 + 2000 + 500, abs=3)
    assert np.count_nonzero((found >= 1900) & (found < 2000)) == pytest.approx(1100, abs=2)


def test_a_shifted_mix() -> None:
    found = counts(mixed(model_of(2.0, 2.0, 2.0), {"t0": 2.0, "t2": 0.0}))
    assert found == pytest.approx({"t0": 4000, "t1": 2000}, rel=0.1)
    with pytest.raises(UnknownNameError, match="unknown tenant 't9'"):
        mixed(model_of(1.0), {"t9": 2.0})
    with pytest.raises(UsageError, match="leaves no tenant"):
        mixed(model_of(1.0), {"t0": 0.0})


def test_longer_prompts_and_outputs() -> None:
    table = generate(with_lengths(model_of(2.0), input_factor=2.0, output_factor=0.5), seed=1).requests
    assert number(table["input_tokens"].min()) >= 200
    assert table["input_tokens"].mean() == pytest.approx(400, rel=0.03)
    assert set(table["output_tokens"]) == {5}


def test_a_new_tenant_comes_besides() -> None:
    found = counts(with_tenant(model_of(2.0), "new", model_of(5.0, duration_s=100.0), 1.0))
    assert found == pytest.approx({"t0": 2000, "new": 1000}, rel=0.12)
    with pytest.raises(UsageError, match="this tenant exists already"):
        with_tenant(model_of(2.0), "t0", model_of(1.0), None)
    with pytest.raises(UsageError, match="stands for 16 tokens, in m for 512"):
        with_tenant(model_of(2.0, block_tokens=512), "new", model_of(1.0, block_tokens=16), None)


def test_a_flash_crowd_comes_when_it_is_said_and_goes() -> None:
    crowd = with_flash(model_of(2.0), at_s=300.0, lasts_s=100.0, times=10.0)
    found, _ = np.histogram(generate(crowd, seed=0).requests["arrival_s"].to_numpy(), np.arange(0, 1001, 100))
    assert found[3] == pytest.approx(2000, abs=2)
    assert np.delete(found, 3) == pytest.approx(np.full(9, 200), abs=60)
    twice = with_flash(crowd, at_s=350.0, lasts_s=1000.0, times=0.5)
    assert twice.tenants[0].arrivals.rate_per_s == pytest.approx((3 * 200 + 1000 + 500 + 600) / 1000)


@pytest.mark.parametrize("wrong", [lambda m: grown(m, 0.0), lambda m: grown(m, float("nan")),
                                   lambda m: at_rate(m, -1.0), lambda m: lasting(m, float("inf")),
                                   lambda m: with_lengths(m, input_factor=0.0),
                                   lambda m: with_flash(m, at_s=2000.0, lasts_s=1.0, times=2.0),
                                   lambda m: with_flash(m, at_s=0.0, lasts_s=0.0, times=2.0)])
def test_numbers_out_of_range_are_refused(wrong: Callable[[Model], object]) -> None:
    with pytest.raises(UsageError):
        wrong(model_of(1.0))


@pytest.mark.parametrize("process", [
    Process(process="poisson", rate_per_s=2.0),
    Process(process="series", rate_per_s=2.0, window_s=(1000.0,), window_rates_per_s=(2.0,))])
def test_epochs_begin_again_in_longer_traces_with_crowds(process: Process) -> None:
    model = model_of(2.0)
    tenant = model.tenants[0]
    kind = tenant.epochs[0].kinds[0]
    short = replace(kind, variables={**kind.variables, "new_tokens": QuantileCurve(at=(0.0, 1.0), values=(1.0, 1.0))})
    epochs = (Epoch(start_s=0.0, kinds=(short,)), Epoch(start_s=500.0, kinds=(kind,)))
    two = replace(model, tenants=(replace(tenant, arrivals=process, epochs=epochs),))
    crowd = with_flash(lasting(two, 3000.0), at_s=100.0, lasts_s=10.0, times=3.0)
    table = generate(crowd, seed=0).requests
    is_first_half = table["arrival_s"] % 1000 < 500
    assert (table.filter(is_first_half)["input_tokens"] == 1).all()
    assert (table.filter(~is_first_half)["input_tokens"] >= 100).all()
