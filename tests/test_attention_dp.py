"""Data-parallel attention with balance: one rank's prompts wait for those of the others (TensorRT-LLM)."""

import dataclasses
from pathlib import Path

import polars as pl
import pytest
from helpers import EVERYTHING, Rows, scenario_of, trace_of

from planner.deployment.deploy import deploy
from planner.measured.run_table import read_measured
from planner.measured.validate import deploy_measured
from planner.replays.driver import run

LONG = (0.0, 16, 60)  # decodes all the time: steps of 10 ms, its prompt in the first


def first_steps(rows: Rows, *, ranks: int, iters: int) -> list[int]:
    """Return the step that each request is first scheduled in."""
    trace = trace_of(rows)
    deployment = deploy(scenario_of(policy="trtllm-max-utilization", step_time="linear:0.01,0"), longest_request=200)
    settings = dataclasses.replace(deployment.settings, attention_dp_size=ranks, attention_dp_timeout_iters=iters)
    records = run(trace, deployment.policy, settings, deployment.step_time, EVERYTHING).requests
    return [round(at_s / 0.01) for at_s in records.first_scheduled_s]


@pytest.mark.parametrize(
    ("ranks", "iters", "num_more", "second_runs_in"),
    [
        (8, 0, 0, 3),  # it came at 25 ms
        (1, 50, 0, 3),  # there are no others
        (8, 4, 0, 4),  # every fourth step takes prompts
        (8, 6, 0, 6),
        (8, 50, 0, 50),
        (8, 100, 0, 60),  # no decode is left
        (2, 50, 0, 3),  # 3 steps at one admission in 3: a mean backlog of 1, which is above ln 2
        (4, 50, 0, 50),  # 1 < −ln(1 − 0.5^⅓) = 1.58, at any step
        (4, 50, 1, 3),  # 1 + 1 behind it
        (8, 50, 1, 50),  # 2 < −ln(1 − 0.5^(1/7)) = 2.36
        (8, 50, 2, 3),
    ],
)
def test_prompts_wait_for_the_other_ranks(ranks: int, iters: int, num_more: int, second_runs_in: int) -> None:
    rows = [LONG, *[(0.025, 8, 1)] * (1 + num_more)]
    assert first_steps(rows, ranks=ranks, iters=iters)[1] == second_runs_in


def test_the_recipe_of_a_measured_run_says_how_long(tmp_path: Path) -> None:
    row = {"gpu": "b200_sxm", "engine": "trtllm", "model": "openai/gpt-oss-120b", "precision": "fp4", "isl": 1024,
           "osl": 1024, "concurrency": 32, "tp": 1, "dp": 4, "client": "inferencex", "measured_ttft_ms": 100,
           "measured_tpot_ms": 4}
    pl.DataFrame([row, row | {"dp": 1}]).write_csv(tmp_path / "runs.csv")
    settings = [deploy_measured(run).settings for run in read_measured(tmp_path / "runs.csv")]
    assert [(each.attention_dp_size, each.attention_dp_timeout_iters) for each in settings] == [(4, 50), (1, 0)]
