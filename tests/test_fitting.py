"""Fitted models: what a trace was drawn from is found again, and draws keep the record's burstiness and mixes."""

import dataclasses
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from command_line import planner
from helpers import number, trace_of

from planner.errors import UnknownNameError, UsageError
from planner.traces import Trace, read_trace
from planner.traces.fitting import fit_workload
from planner.traces.fitting.arrival_fit import fit_arrivals
from planner.traces.fitting.windows import mix_windows, rate_windows
from planner.traces.shaping.burstiness import dispersion
from planner.traces.synthesis import generate, load_sample, read_workload
from planner.traces.synthesis.arrival_processes import Process, draw_arrivals
from planner.traces.synthesis.traffic_model import to_toml

SPAN_S = 3000.0
KNOWN = {
    "poisson": Process(process="poisson", rate_per_s=2.0),
    "gamma": Process(process="gamma", rate_per_s=2.0, gap_shape=0.3),
    "weibull": Process(process="weibull", rate_per_s=2.0, gap_shape=0.5),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("seed", [100, 101])
def test_the_process_that_arrivals_were_drawn_from_is_found(name: str, seed: int) -> None:
    arrivals = draw_arrivals(KNOWN[name], SPAN_S, np.random.default_rng(seed))
    found, candidates = fit_arrivals(arrivals - arrivals[0], SPAN_S)
    assert found.process == name
    assert found.gap_shape == pytest.approx(KNOWN[name].gap_shape, rel=0.1)
    assert found.rate_per_s == pytest.approx(2.0, rel=0.15)
    assert len(candidates) == 6


def test_states_of_a_switching_process_are_found() -> None:
    truth = Process(process="mmpp", rate_per_s=2.0, state_rates_per_s=(1.0, 6.0), state_mean_s=(40.0, 10.0))
    arrivals = draw_arrivals(truth, 20_000.0, np.random.default_rng(4))
    found, _ = fit_arrivals(arrivals - arrivals[0], 20_000.0, "mmpp")
    rates, means = zip(*sorted(zip(found.state_rates_per_s, found.state_mean_s, strict=True)), strict=True)
    assert rates == pytest.approx((1.0, 6.0), rel=0.15)
    assert means == pytest.approx((40.0, 10.0), rel=0.3)


def test_a_steady_rate_is_one_window_and_a_step_is_two() -> None:
    rng = np.random.default_rng(1)
    steady = np.sort(rng.uniform(0, 1000, 2000))
    assert rate_windows(steady, 1000.0).tolist() == [0, 2000]
    step = np.concatenate((np.sort(rng.uniform(0, 500, 500)), np.sort(rng.uniform(500, 1000, 2000))))
    cuts = rate_windows(step, 1000.0)
    assert len(cuts) == 3
    assert cuts[1] == pytest.approx(500, abs=30)


def test_a_mix_that_changes_is_cut_there() -> None:
    rng = np.random.default_rng(1)
    classes = np.stack([rng.integers(0, 4, 4000), rng.integers(0, 3, 4000)], axis=1)
    assert mix_windows(classes).tolist() == [0, 4000]
    classes[2500:, 0] = rng.integers(0, 2, 1500)
    cuts = mix_windows(classes)
    assert len(cuts) == 3
    assert cuts[1] == pytest.approx(2500, abs=80)


@pytest.fixture(scope="module")
def busy() -> Trace:
    """A trace with tenants, sessions, a step of the rate and of the lengths."""
    rng = np.random.default_rng(2)
    times = np.concatenate((np.sort(rng.uniform(0, 1000, 1500)), np.sort(rng.uniform(1000, 2000, 4500))))
    later = times > 1000
    inputs = np.where(later, rng.lognormal(7, 0.3, 6000), rng.lognormal(5, 0.5, 6000)).astype(int) + 1
    outputs = np.minimum(rng.lognormal(4, 1.0, 6000).astype(int) + 1, 256)
    tenants = np.where(rng.random(6000) < 0.7, "search", "chat")
    return trace_of(list(zip(times.tolist(), inputs.tolist(), outputs.tolist(), strict=True)), tenant=tenants.tolist())


@pytest.mark.slow
def test_draws_keep_rates_lengths_and_tenants_over_time(busy: Trace) -> None:
    model = fit_workload(busy).model
    drawn = generate(model, seed=3)
    assert {tenant.name for tenant in model.tenants} == {"search", "chat"}
    assert drawn.num_requests == pytest.approx(busy.num_requests, rel=0.01)
    share = [(each.requests["tenant"] == "search").mean() for each in (busy, drawn)]
    assert share[1] == pytest.approx(share[0], abs=0.02)
    for later in (False, True):
        parts = [each.requests.filter((pl.col("arrival_s") > 1000) == later) for each in (busy, drawn)]
        assert parts[1].height == pytest.approx(parts[0].height, rel=0.03)
        for column in ("input_tokens", "output_tokens"):
            found = [np.percentile(part[column], (10, 50, 90)) for part in parts]
            assert found[1] == pytest.approx(found[0], rel=0.12)
    assert number(drawn.requests["output_tokens"].max()) == 256
    assert (drawn.requests["output_tokens"] == 256).mean() == pytest.approx(
        (busy.requests["output_tokens"] == 256).mean(), rel=0.1)


def test_a_draw_is_the_same_for_a_seed_and_differs_for_another(busy: Trace, tmp_path: Path) -> None:
    model = fit_workload(busy).model
    one, two, other = generate(model, seed=1), generate(model, seed=1), generate(model, seed=2)
    assert one.requests.equals(two.requests)
    assert one.sha256 == two.sha256 != other.sha256
    assert not one.requests.equals(other.requests)
    path = tmp_path / "model.toml"
    path.write_text(to_toml(model), encoding="utf-8")
    again = read_workload(path)
    assert dataclasses.replace(again, name=model.name) == model
    assert generate(again, seed=1).requests.equals(one.requests)


def test_correlated_lengths_stay_correlated() -> None:
    rng = np.random.default_rng(0)
    scores = rng.multivariate_normal((0, 0), ((1, 0.8), (0.8, 1)), 5000)
    inputs, outputs = np.exp(6 + scores[:, 0]).astype(int) + 1, np.exp(4 + scores[:, 1]).astype(int) + 1
    trace = trace_of(list(zip(np.cumsum(rng.exponential(1, 5000)).tolist(), inputs.tolist(), outputs.tolist(),
                              strict=True)))
    drawn = generate(fit_workload(trace).model, seed=1).requests
    found = np.corrcoef(np.log(drawn["input_tokens"]), np.log(drawn["output_tokens"]))[0, 1]
    assert found == pytest.approx(0.8, abs=0.03)


def test_sessions_and_prefixes_are_drawn_as_they_were() -> None:
    trace = load_sample("long-context")
    model = fit_workload(trace).model
    drawn = generate(model, seed=1)
    assert model.has_sessions
    assert drawn.prefix is not None
    assert trace.prefix is not None
    from planner.traces.shaping.sharing import sharing

    rates = [sharing(prefix, each.requests["input_tokens"].to_numpy())
             for each, prefix in ((trace, trace.prefix), (drawn, drawn.prefix))]
    assert rates[1].infinite_hit_rate == pytest.approx(rates[0].infinite_hit_rate, abs=0.03)
    for tokens in (400_000, 3_000_000):
        assert rates[1].hit_rate(tokens) == pytest.approx(rates[0].hit_rate(tokens), abs=0.06)
    turns = [each.requests.group_by("session_id").len()["len"].to_numpy() for each in (trace, drawn)]
    assert turns[1].mean() == pytest.approx(turns[0].mean(), rel=0.1)
    assert np.array_equal(np.diff(drawn.prefix.offsets), -(-drawn.requests["input_tokens"].to_numpy() // 512))


def test_draws_are_finer_than_a_coarse_clock(tmp_path: Path) -> None:
    """And a model's file can round them down to a clock."""
    rng = np.random.default_rng(0)
    times = np.floor(np.sort(rng.uniform(0, 3000, 9000)) / 3) * 3
    trace = trace_of([(float(at), 10, 10) for at in times])
    model = fit_workload(trace).model
    tenant = model.tenants[0]
    assert tenant.arrivals.tick_s == 0.0
    smooth = generate(model, seed=1).requests["arrival_s"].to_numpy()
    assert dispersion(smooth, 1.0) == pytest.approx(1.0, abs=0.15)
    coarse = dataclasses.replace(tenant, arrivals=dataclasses.replace(tenant.arrivals, tick_s=3.0))
    drawn = generate(dataclasses.replace(model, tenants=(coarse,)), seed=1).requests["arrival_s"].to_numpy()
    assert np.allclose(drawn / 3, np.rint(drawn / 3))
    log = tmp_path / "log.csv"
    log.write_text("arrival_s,input_tokens,output_tokens\n" + "".join(f"{int(at)},10,10\n" for at in times[:300]))
    run = planner("trace", "synth", log, "--fit", "--output", tmp_path / "drawn.csv")
    assert "the log's clock has a resolution of 3 s: its arrivals are spread evenly over each step" in run.stderr
    again = pl.read_csv(tmp_path / "drawn.csv")["arrival_s"].to_numpy()
    assert np.mean(again % 3 == 0) < 0.05


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_odd_little_traces_can_be_fitted_and_drawn_from(seed: int) -> None:
    """Few requests, many at once, holes in the columns, ids that fit nothing."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 40))
    times = np.sort(rng.integers(0, 5, n) if seed % 2 else np.minimum(np.cumsum(rng.pareto(0.5, n)), 1e9)).astype(float)
    times[-1] = max(times[-1], times[0] + 1e-3)
    inputs = np.minimum(rng.lognormal(4, 2, n).astype(int) + 1, 300)
    holes = [[None if rng.random() < 0.2 else str(k) for k in rng.integers(0, 4, n)] for _ in range(2)]
    ids = [rng.integers(0, 3, rng.integers(0, -(-int(tokens) // 16) + 2)).tolist() for tokens in inputs]
    rows = [(float(at), int(tokens), 9) for at, tokens in zip(times, inputs, strict=True)]
    trace = trace_of(rows, session_id=holes[0], tenant=holes[1], hash_ids=ids)
    drawn = generate(fit_workload(trace).model, seed=seed)
    assert drawn.requests["input_tokens"].is_between(1, int(inputs.max())).all()
    assert drawn.requests["arrival_s"].is_sorted()
    assert drawn.prefix is not None
    assert np.array_equal(np.diff(drawn.prefix.offsets), -(-drawn.requests["input_tokens"].to_numpy() // 16))


def test_what_cannot_be_fitted_is_refused() -> None:
    with pytest.raises(UsageError, match="a model needs 2 or more that arrive at different times"):
        fit_workload(trace_of([(0.0, 1, 1), (0.0, 2, 2)]))
    with pytest.raises(UnknownNameError, match="unknown arrival process 'gama'; did you mean 'gamma'"):
        fit_workload(trace_of([(0.0, 1, 1), (1.0, 2, 2)]), process="gama")
    assert generate(fit_workload(trace_of([(0.0, 5, 7), (1.0, 5, 7)])).model, seed=0).requests["input_tokens"][0] == 5


def test_a_hand_written_sample_can_be_fitted() -> None:
    trace = read_trace("chat", limit=4000)
    drawn = generate(fit_workload(trace).model, seed=0)
    assert drawn.num_requests == pytest.approx(4000, rel=0.05)
