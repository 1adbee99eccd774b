"""Laws of long logs: the busiest part is replayed, whenever the log begins, and more load never needs fewer GPUs."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import leave_out_headroom, number, shorten_loads, trace_of
from hypothesis import given, settings
from hypothesis import strategies as some

from planner.planning.capacity import capacity
from planner.planning.search_options import Choices, Search
from planner.planning.sizing import size
from planner.run import replay
from planner.settings.objectives import parse_objectives
from planner.settings.scenario import Scenario
from planner.traces import Trace
from planner.traces.shaping.rescaling import MOST_SHIFT_S, SCALINGS, at_rate, rate_of

DAY_S = 86_400.0
SERVER = Scenario(step_time="linear:0.02,0.0002", num_gpu_blocks=4000, max_num_seqs=8, async_scheduling=False)
OBJECTIVES = parse_objectives("ttft:800 tpot:60", 0.95)
ONCE = Search(replicates=0, compare_assumptions=False, horizon="trace", jobs=1)
FEW = 3_000  # requests that a replay may have here, in place of MOST_REQUESTS


@pytest.fixture(autouse=True, scope="module")
def _short() -> "object":
    with pytest.MonkeyPatch.context() as patch:
        shorten_loads(patch, FEW)
        leave_out_headroom(patch)
        yield


@some.composite
def logs(draw: some.DrawFn) -> Trace:
    """Draw a log of a day or a week with a busy part, by a cosine of any depth or by office hours."""
    rng = np.random.default_rng(draw(some.integers(0, 10_000)))
    span_s, depth = draw(some.sampled_from([DAY_S, 7 * DAY_S])), draw(some.floats(0.6, 1.0))
    at_s = rng.uniform(0, span_s, 6000)
    hour = at_s % DAY_S / 3600
    is_office = draw(some.booleans())
    weight = np.where((hour > 9) & (hour < 17), 1.0, 1 - depth) if is_office else (1 - depth * np.cos(
        2 * np.pi * hour / 24)) / (1 + depth)
    at_s = np.sort(at_s[rng.uniform(size=len(at_s)) < weight])
    tokens = rng.integers(50, 400, (len(at_s), 2)).tolist()
    return trace_of([(at, prompt, 1 + answer // 20) for at, (prompt, answer) in zip(at_s.tolist(), tokens,
                                                                                   strict=True)])


def rotated(trace: Trace, share: float) -> Trace:
    """Return a log that begins at another time of its cycle."""
    at_s = trace.requests["arrival_s"].to_numpy()
    span_s = DAY_S * np.ceil(at_s[-1] / DAY_S)
    moved = (at_s + share * span_s) % span_s
    order = np.argsort(moved, kind="stable")
    turned = trace.take(order)
    return replace(turned, requests=turned.requests.with_columns(arrival_s=np.sort(moved)))


def busiest_rps(trace: Trace, span_s: float) -> float:
    """Return the highest rate over a span of a log [1/s]."""
    at_s = trace.requests["arrival_s"].to_numpy()
    return float((np.searchsorted(at_s, at_s + span_s) - np.arange(len(at_s))).max() / span_s)


@given(logs(), some.floats(5.0, 40.0))
@settings(max_examples=20)
def test_the_busiest_part_is_replayed(log: Trace, growth: float) -> None:
    """Copies of users begin up to an hour apart, so a span of the load averages over an hour more of the log."""
    compressed = at_rate(log, growth * rate_of(log), "compress", 0)
    assert busiest_rps(compressed, 3600.0 / growth) == pytest.approx(growth * busiest_rps(log, 3600.0))
    thinned = at_rate(log, growth * rate_of(log), "thin", 0)
    span_s = min(4 * 3600.0, float(thinned.requests["arrival_s"][-1]))
    assert busiest_rps(thinned, span_s) > 0.85 * growth * busiest_rps(log, span_s + MOST_SHIFT_S)
    assert thinned.num_requests <= 1.1 * max(FEW, log.num_requests)


@given(logs(), some.floats(0.05, 0.95))
@settings(max_examples=6)
def test_a_rotation_of_a_log_leaves_its_capacity_within_the_interval(log: Trace, share: float) -> None:
    """Where attainment hardly falls with the rate, capacities lie apart: attainment at the stated one does not.

    The draws of an interval put windows in other orders, so all of them may lie below the capacity.
    """
    turned, stated = rotated(log, share), capacity(log, SERVER, OBJECTIVES, replace(ONCE, replicates=8))
    assert stated.confidence is not None
    found = capacity(turned, SERVER, OBJECTIVES, ONCE).capacity
    low, high = min(stated.confidence.p10, stated.capacity), max(stated.confidence.p90, stated.capacity)
    assert 0.95 * low <= found <= 1.05 * high
    again = replay(turned, replace(SERVER, request_rate=stated.capacity, scaling="thin"), slo=OBJECTIVES)
    assert again.summary["slo_attainment"] == pytest.approx(stated.attainment_at_capacity, abs=0.05)


@given(logs(), some.sampled_from(sorted(SCALINGS)))
@settings(max_examples=8)
def test_a_capacity_is_confirmed_by_its_own_replay(log: Trace, scaling: str) -> None:
    found = capacity(log, SERVER, OBJECTIVES, replace(ONCE, scaling=scaling))
    again = replay(log, replace(SERVER, request_rate=found.capacity, scaling=scaling), slo=OBJECTIVES).summary
    assert again["slo_attainment"] == found.attainment_at_capacity


@given(logs())
@settings(max_examples=3)
def test_more_load_never_needs_fewer_replicas(log: Trace) -> None:
    choices = Choices(gpus=("h100-sxm",), ranks=(1,), compare_assumptions=False, jobs=1)
    server = replace(SERVER, model="llama-3.1-8b")
    one = number(capacity(log, replace(server, gpu="h100-sxm"), OBJECTIVES, ONCE).capacity)
    counts = []
    for factor in (0.5, 1.5, 3.0, 6.0):
        best = size(log, replace(server, request_rate=factor * one), OBJECTIVES, choices).cheapest
        assert best is not None
        counts.append(best.num_replicas)
    assert counts == sorted(counts)
