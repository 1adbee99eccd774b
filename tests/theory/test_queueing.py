"""Queueing theory: where the engine is a queue with a known answer, the replay gives that answer."""

import numpy as np
import pytest
from helpers import play, scenario_of, trace_of

from planner.loop.state.engine_settings import Recording
from planner.run import replay
from planner.traces import Trace

FAST = Recording()


def poisson(rate_per_s: float, output_tokens: np.ndarray, seed: int) -> Trace:
    """Return Poisson arrivals of one-token prompts."""
    arrival_s = np.cumsum(np.random.default_rng(seed).exponential(1 / rate_per_s, len(output_tokens)))
    return trace_of([(at_s, 1, n) for at_s, n in zip(arrival_s.tolist(), output_tokens.tolist(), strict=True)])


@pytest.mark.parametrize("output_tokens", [1, 4])
@pytest.mark.parametrize("rho", [0.5, 0.8])
def test_one_slot_is_an_m_d_1_queue(rho: float, output_tokens: int) -> None:
    """A request takes `output_tokens` steps of 10 ms, μ = 100 / output_tokens: mean wait ρ / (2 μ (1 − ρ))."""
    mu_per_s = 100 / output_tokens
    trace = poisson(rho * mu_per_s, np.full(50_000, output_tokens), seed=7)
    result = play(trace, recording=FAST, max_num_seqs=1, step_time="linear:0.01,0")
    assert result.queue_s.mean() == pytest.approx(rho / (2 * mu_per_s * (1 - rho)), rel=0.04)


@pytest.mark.parametrize("rho", [0.5, 0.8])
@pytest.mark.parametrize("lengths", ["equal", "geometric"])
def test_steps_as_long_as_their_tokens_share_the_processor(rho: float, lengths: str) -> None:
    """M/G/1-PS: the mean stay is mean work / (1 − ρ), whatever the distribution of work.

    A step of n decodes takes n times as long as one of a single decode, so each gets 1/n of the engine. An arrival
    waits for the end of the step that it meets, so the replay lies above theory by about a token in a hundred.
    """
    n, mean_tokens, token_s = 200_000, 100, 1e-3
    rng = np.random.default_rng(11)
    tokens = np.full(n, mean_tokens) if lengths == "equal" else rng.geometric(1 / mean_tokens, n)
    trace = poisson(rho / (tokens.mean() * token_s), tokens, seed=12)
    result = play(trace, recording=FAST, max_num_seqs=0, max_num_batched_tokens=0, num_gpu_blocks=10**6,
                  step_time=f"linear:0,{token_s}")
    assert result.e2e_s.mean() == pytest.approx(tokens.mean() * token_s / (1 - rho), rel=0.04)


@pytest.mark.parametrize("slots", [1, 3, 32])
def test_full_slots_give_one_token_each_per_step(slots: int) -> None:
    """Under steps of constant length, a saturated engine's throughput is its slots per step."""
    trace = trace_of([(0.0, 1, 50)] * (slots * 20))
    outcome = replay(trace, scenario_of(max_num_seqs=slots, step_time="linear:0.01,0"), slo=None, recording=FAST)
    assert outcome.summary["output_throughput"] == pytest.approx(slots / 0.01)
    assert outcome.summary["num_steps"] == 20 * 50


def test_littles_law() -> None:
    """Mean number in the system = throughput × mean stay, and the same for those that run."""
    tokens = np.random.default_rng(3).geometric(1 / 30, 3000)
    trace = poisson(20, tokens, seed=4)
    outcome = replay(trace, scenario_of(max_num_seqs=8), slo=None, recording=Recording(steps=True))
    summary, steps, table = outcome.summary, outcome.result.steps_table(), outcome.result.requests_table()
    mean_running = (steps["num_running"] * steps["duration_s"]).sum() / summary["duration"]
    mean_run_s = (table["finished_at_s"] - table["first_scheduled_at_s"]).mean()
    assert mean_running == pytest.approx(summary["request_throughput"] * mean_run_s)
    moments = np.concatenate((table["arrival_s"].to_numpy(), table["finished_at_s"].to_numpy()))
    order = np.argsort(moments, kind="stable")
    present = np.cumsum(np.repeat((1, -1), table.height)[order])[:-1]
    mean_present = present @ np.diff(moments[order]) / summary["duration"]
    assert mean_present == pytest.approx(summary["request_throughput"] * summary["mean_e2el_ms"] / 1e3)
