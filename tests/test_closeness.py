"""How close draws are: the same trace is as close as can be, another one is not, and predictions are compared."""

import os
from pathlib import Path

import pytest
from helpers import scenario_of

from planner.errors import UsageError
from planner.planning.closeness import compare_predictions, compare_statistics
from planner.report.trace_tables import closeness_table
from planner.settings.objectives import parse_objectives
from planner.settings.scenario import Scenario
from planner.traces import read_trace
from planner.traces.fitting import fit_workload
from planner.traces.shaping.window_and_rate import scale_rate
from planner.traces.synthesis import generate

SHARED = Path(os.environ.get("PLANNER_SHARED", Path(__file__).parents[2] / "shared")) / "traces"


def test_a_trace_is_as_close_to_itself_as_can_be() -> None:
    trace = read_trace("chat", limit=2000)
    found = compare_statistics(trace, [trace])
    assert set(found["ks"].values()) == {0.0}
    assert all(pair["drawn"] == pair["recorded"] for pair in found["dispersion"].values())
    replayed = compare_predictions(trace, [trace, trace], scenario_of(), None, loads=(1.0, 2.0))
    assert replayed["capacity_rps"] is None
    for load in replayed["loads"]:
        assert load["p99_ttft_ms"]["difference"] == load["p99_ttft_ms"]["low"] == load["p99_ttft_ms"]["high"] == 0.0


def test_another_trace_is_not() -> None:
    trace = read_trace("chat", limit=2000)
    found = compare_statistics(trace, [scale_rate(trace, 3.0)])
    assert found["ks"]["gap_s"] > 0.3
    assert found["ks"]["input_tokens"] == 0.0
    assert found["request_rate"]["drawn"] == pytest.approx(3 * found["request_rate"]["recorded"])


def test_a_rate_of_its_own_is_refused() -> None:
    trace = read_trace("chat", limit=50)
    with pytest.raises(UsageError, match=r"--request-rate 3\.0: this command chooses the loads"):
        compare_predictions(trace, [trace], scenario_of(request_rate=3.0), None)


H100 = Scenario(model="llama-3.1-8b", gpu="h100-sxm")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "slo", "within"), [
    ("azure_llm_2023_conv.csv", "ttft:500 tpot:50", 0.1), ("azure_llm_2023_code.csv", "ttft:500 tpot:50", 0.14)])
def test_draws_of_published_traces_predict_what_the_record_does(name: str, slo: str, within: float) -> None:
    """Up to 60 % of the capacity; reports/synthesis.md has all loads, and says where tails are noise."""
    if not (SHARED / name).exists():
        pytest.skip(f"{name} is not at hand; PLANNER_SHARED names the folder above traces/")
    trace = read_trace(str(SHARED / name))
    model = fit_workload(trace).model
    draws = [generate(model, seed=seed) for seed in range(3)]
    found = compare_predictions(trace, draws, H100, parse_objectives(slo, 0.99), loads=(0.3, 0.6))
    assert abs(found["capacity_rps"]["difference"]) < 0.2
    for load in found["loads"]:
        for metric in ("median_ttft_ms", "p99_ttft_ms", "median_tpot_ms", "p99_tpot_ms", "request_goodput"):
            assert abs(load[metric]["difference"]) < within, (load["load"], metric, load[metric])
    assert "capacity [requests/s]" in str(closeness_table({"statistics": compare_statistics(trace, draws),
                                                       "predictions": found}))
    assert model.num_numbers < trace.num_requests / 5
