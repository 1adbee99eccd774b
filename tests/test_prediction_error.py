"""Trust in a fleet: the statistics of its objectives, the error of its prediction, and the size of the sample."""

from dataclasses import replace

import pytest
from helpers import cheapest, filled, trace_of

from planner.deployment.deploy import resolve
from planner.planning.prediction_error import doubts, keeps_with_error, needed_requests, step_error
from planner.planning.search_options import Choices
from planner.planning.size_answer import Fleet, KindNames, UnableFleet
from planner.planning.sizing import size
from planner.replays.fleet.replicas import serve
from planner.report.plan_tables import _fleet_rows, sizing_table
from planner.results.saved import to_json
from planner.settings.objectives import judge, parse_objectives
from planner.settings.scenario import Scenario

H100 = Scenario(model="llama-3.1-8b", gpu="h100-sxm", router="round-robin")
PLAIN = Choices(gpus=("h100-sxm",), ranks=(1,), compare_assumptions=False, jobs=1)
TRACE = trace_of([(0.05 * k, 200, 20) for k in range(200)])


def fleet_of(gpu: str, num_replicas: int, cost: float, **values: object) -> Fleet:
    return filled(Fleet, kind=filled(KindNames, gpu=gpu, tensor_parallel_size=1, quantization="bf16"),
                  num_replicas=num_replicas, prefill_replicas=0, num_gpus=num_replicas, cost_usd_per_hour=cost,
                  **values)


def test_an_answer_has_the_statistics_that_were_asked_for() -> None:
    found = size(TRACE, H100, parse_objectives("p95_ttft:1000 p50_tpot:50"), PLAIN)
    values = {reached.objective: reached.value_ms for reached in cheapest(found).reached}
    text = str(sizing_table(found))
    assert f"predicted: p95 TTFT {values['p95_ttft']:,.4g} ms of 1,000 ms, p50 TPOT" in text
    assert '"objective": "p95_ttft"' in to_json(found)


@pytest.mark.parametrize("pause_s", [None, 0.2])
@pytest.mark.parametrize("limit_ms", [120, 150, 200, 400])
def test_an_error_of_steps_is_that_of_slower_servers(limit_ms: int, pause_s: float | None) -> None:
    """A server whose steps take 0.11 s keeps what one of 0.1 s keeps with an error of a tenth."""
    rows = [(0.13 * k, 1, 1) for k in range(100)]
    trace = trace_of(rows) if pause_s is None else trace_of(
        rows, session_id=[str(k % 3) for k in range(100)], think_time_s=[None] * 3 + [pause_s] * 97)
    objectives = parse_objectives(f"p90_ttft:{limit_ms}")
    servers = [Scenario(step_time=f"linear:{step_s},0", num_gpu_blocks=4000, max_num_seqs=1, async_scheduling=False)
               for step_s in (0.1, 0.11)]
    fast, slow = (serve(trace, resolve(server, trace), 1) for server in servers)
    verdict = judge(objectives, fast.times_s)
    assert keeps_with_error(fast, 1, objectives, verdict, 0.1) == judge(objectives, slow.times_s).is_met
    assert keeps_with_error(fast, 1, objectives, verdict, None) is None


def test_each_row_says_its_error_and_whether_the_headroom_covers_it() -> None:
    found = size(TRACE, H100, parse_objectives("p99_ttft:1000"), PLAIN)
    best = cheapest(found)
    error = step_error(resolve(replace(H100), TRACE))
    assert best.step_error == error
    assert error is not None
    assert 0.01 < error < 0.5
    assert best.covers_error is True
    assert f"steps may take {100 * error:.0f} % longer than predicted" in str(sizing_table(found))
    edge = best.reached[0].value_ms
    assert edge is not None
    tight = size(TRACE, H100, parse_objectives(f"p99_ttft:{1.001 * edge}"), PLAIN)
    assert cheapest(tight).covers_error is False
    assert "doubt: the headroom does not cover the error" in str(sizing_table(tight))


def test_servers_without_a_known_error_say_so() -> None:
    server = replace(H100, step_time="linear:0.1,1e-9", num_gpu_blocks=4000)
    best = cheapest(size(TRACE, server, parse_objectives("p50_ttft:1000"), PLAIN))
    assert (best.step_error, best.covers_error) == (None, None)


@pytest.mark.parametrize(("slo", "attainment", "needed"), [
    ("ttft:500", 0.99, 1_000), ("ttft:500", 0.999, 10_000), ("ttft:500", 1.0, 0), ("p95_ttft:500", 0.99, 200),
    ("p99_ttft:500 p50_tpot:20", None, 1_000), ("mean_ttft:500", None, 0)])
def test_the_requests_that_a_percentile_needs(slo: str, attainment: float | None, needed: int) -> None:
    objectives = parse_objectives(slo, attainment)
    assert needed_requests(objectives) == needed
    fleets = [fleet_of("h100-sxm", 3, 9.0, covers_error=True)]
    said = doubts(max(needed - 1, 0), 1_000_000, 3, fleets, objectives, None)
    assert [f"needs {needed:,}" in sentence for sentence in said] == [True] * (needed > 0)
    assert not doubts(needed, 1_000_000, 3, fleets, objectives, None)


def test_a_load_too_small_for_its_replicas_and_a_fleet_that_covers_its_error() -> None:
    fleets = [fleet_of("l40s", 141, 100.0, covers_error=False, step_error=0.1),
              fleet_of("h100-sxm", 50, 150.0, covers_error=True)]
    error, sample = doubts(1_200, 1_200, 141, fleets, parse_objectives("p99_ttft:500"), 220)
    assert "steps may take 10 % longer" in error
    assert "220 replicas of this kind keep them, for about 156.03 USD/h" in error
    assert "50 replicas of 1 × h100-sxm bf16, 150.00 USD/h" in error
    assert "8.51 requests per replica" in sample
    assert "14,100 requests" in sample


def test_dozens_of_replicas_at_several_times_the_price_have_no_row() -> None:
    kept = [fleet_of("h100-sxm", 8, 24.0), fleet_of("l40s", 30, 60.0), fleet_of("a100-sxm", 20, 90.0)]
    unable = filled(UnableFleet, kind=filled(KindNames, gpu="t4"), reason="too slow")
    rows = _fleet_rows([*kept, fleet_of("rtx-6000-ada", 209, 200.0), unable]).lines()
    assert [row.split()[0] for row in rows[1:5]] == ["h100-sxm", "l40s", "a100-sxm", "t4"]
    assert rows[-1] == ("not shown, over 3 times the price of the cheapest: 209 × 1 rtx-6000-ada; the JSON has them")
