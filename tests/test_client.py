"""The benchmark client's load: lengths and arrivals as `vllm bench serve` and SGLang's client draw them."""

import numpy as np
import pytest
from helpers import scenario_of

from planner.errors import UsageError
from planner.loop.state.engine_settings import Recording
from planner.run import replay
from planner.settings.scenario import Scenario
from planner.traces.shaping.client_load import (
    at_client_rate,
    client_load,
    lower_range_load,
    random_load,
    refuse_client_options,
)


def test_defaults_are_those_of_vllm_bench() -> None:
    requests = client_load(Scenario()).requests
    assert requests.height == 1000
    assert set(requests["input_tokens"]) == {1024}
    assert set(requests["output_tokens"]) == {128}
    assert requests["arrival_s"].max() == 0


def test_lengths_fill_the_range_on_both_sides_and_follow_the_seed() -> None:
    requests = random_load(num_prompts=5000, input_tokens=100, output_tokens=20, range_ratio=0.2, seed=1).requests
    assert (requests["input_tokens"].min(), requests["input_tokens"].max()) == (80, 120)
    assert (requests["output_tokens"].min(), requests["output_tokens"].max()) == (16, 24)
    draws = [client_load(Scenario(seed=seed, random_range_ratio=0.5)).requests["input_tokens"] for seed in (0, 0, 1)]
    assert draws[0].equals(draws[1])
    assert not draws[0].equals(draws[2])


def test_lengths_are_numpys_own_draw_inputs_first() -> None:
    rng = np.random.default_rng(7)
    inputs, outputs = rng.integers(512, 1537, 10), rng.integers(64, 193, 10)
    requests = client_load(Scenario(num_prompts=10, random_range_ratio=0.5, seed=7)).requests
    assert requests["input_tokens"].to_list() == inputs.tolist()
    assert requests["output_tokens"].to_list() == outputs.tolist()


def test_inferencex_lengths_lie_below_the_stated_ones() -> None:
    requests = lower_range_load(num_prompts=4000, input_tokens=1000, output_tokens=100, range_ratio=0.8, seed=0,
                                source="inferencex").requests
    assert (requests["input_tokens"].min(), requests["input_tokens"].max()) == (800, 1000)
    assert (requests["output_tokens"].min(), requests["output_tokens"].max()) == (80, 100)


def test_a_finite_rate_is_a_poisson_process_whose_last_request_is_sent_at_n_over_rate() -> None:
    trace = client_load(Scenario(num_prompts=4000))
    arrival_s = at_client_rate(trace, 8.0, seed=0).requests["arrival_s"].to_numpy()
    gaps_s = np.diff(arrival_s)
    assert arrival_s[-1] == pytest.approx(4000 / 8.0)
    assert gaps_s.std() / gaps_s.mean() == pytest.approx(1.0, abs=0.05)
    steady = np.diff(at_client_rate(trace, 8.0, seed=0, burstiness=100.0).requests["arrival_s"].to_numpy())
    assert steady.std() / steady.mean() == pytest.approx(0.1, abs=0.01)


def test_a_replay_of_the_random_load_keeps_its_concurrency_and_its_rate() -> None:
    nothing = Recording()
    closed = scenario_of(max_concurrency=4, num_prompts=40, random_input_len=50, random_output_len=10, num_warmups=8)
    summary = replay(client_load(closed), closed, slo=None, recording=nothing).summary
    assert (summary["completed"], summary["max_running"]) == (40, 4)
    assert summary["workload"]["num_warmups"] == 8
    assert any("8 warm-up requests" in note for note in summary["notes"])
    paced = scenario_of(request_rate=2.0, num_prompts=40, random_input_len=50, random_output_len=10)
    workload = replay(client_load(paced), paced, slo=None, recording=nothing).summary["workload"]
    assert workload["last_arrival_s"] == pytest.approx(20.0)


@pytest.mark.parametrize("wrong", [
    {"num_prompts": 0}, {"random_input_len": 0}, {"random_range_ratio": 1.0}, {"num_warmups": -1}, {"seed": -1},
])
def test_impossible_loads_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=str(next(iter(wrong.values())))):
        client_load(Scenario(**wrong))  # type: ignore[arg-type]


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan")])
def test_impossible_rates_are_refused(rate: float) -> None:
    with pytest.raises(UsageError, match="above 0"):
        at_client_rate(client_load(Scenario(num_prompts=2)), rate, seed=0)


def test_a_recorded_trace_takes_none_of_these_options() -> None:
    refuse_client_options(Scenario(limit=3), "trace.csv")
    with pytest.raises(UsageError, match=r"--num-prompts 3.*trace.csv.*--limit"):
        refuse_client_options(Scenario(num_prompts=3), "trace.csv")
    with pytest.raises(UsageError, match="--random-input-len"):
        refuse_client_options(Scenario(random_input_len=3), "trace.csv")


def test_a_seed_is_of_a_recorded_trace_where_something_else_is_drawn() -> None:
    with pytest.raises(UsageError, match=r"--seed 0: describes the TRACE `random`"):
        refuse_client_options(Scenario(seed=0), "trace.csv")
    with pytest.raises(UsageError, match="--num-prompts"):
        refuse_client_options(Scenario(seed=0, router="random", num_prompts=3), "trace.csv")
    for drawn in ({"num_speculative_tokens": 2}, {"retry_jitter_factor": 0.2, "max_retries": 1},
                  {"router": "power-of-two"}):
        refuse_client_options(Scenario(seed=7, **drawn), "trace.csv")
