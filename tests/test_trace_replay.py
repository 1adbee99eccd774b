"""Formats at the command line: traces without arrivals, measured files under other names, and conditions on rows."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from helpers import number
from typer.testing import CliRunner

from planner.commands.cli import app
from planner.errors import UsageError
from planner.measured.accuracy import predict_file
from planner.planning.capacity import capacity
from planner.planning.search_options import Search
from planner.planning.study import read_study
from planner.run import replay
from planner.settings.objectives import parse_objectives
from planner.settings.scenario import Scenario
from planner.traces import read_trace

SHARED = Path(os.environ.get("PLANNER_SHARED", Path(__file__).parents[2] / "shared"))
DEPLOYMENT = ("--step-time", "linear:0.01,0.0001", "--num-gpu-blocks", "1000")
SCENARIO: dict[str, Any] = {"step_time": "linear:0.01,0.0001", "num_gpu_blocks": 1000, "async_scheduling": False}
LLMD = "columns,input_tokens=prompt_tokens"
LENGTHS = "num_prefill_tokens,num_decode_tokens\n" + "".join(f"{50 + k},{1 + k % 7}\n" for k in range(40))


@pytest.fixture
def lengths(tmp_path: Path) -> str:
    path = tmp_path / "lengths.csv"
    path.write_text(LENGTHS)
    return str(path)


def test_a_replay_without_arrivals_asks_for_a_rate(lengths: str) -> None:
    with pytest.raises(UsageError, match="has no arrival times; give --request-rate"):
        replay(read_trace(lengths), Scenario(**SCENARIO))


def test_a_rate_draws_poisson_arrivals(lengths: str) -> None:
    trace = read_trace(lengths)
    one, two, other = (replay(trace, Scenario(**SCENARIO, request_rate=4.0, seed=seed)) for seed in (1, 1, 2))
    arrivals = one.requests["arrival_s"]
    assert arrivals.max() == pytest.approx(10.0)  # the last of n at n / rate, as the client does it
    assert arrivals.diff().drop_nulls().std() == pytest.approx(0.25, rel=0.4)
    assert one.requests.equals(two.requests)
    assert not arrivals.equals(other.requests["arrival_s"])
    assert any("has no arrival times" in note for note in one.summary["notes"])


def test_a_closed_loop_needs_no_arrivals(lengths: str) -> None:
    assert replay(read_trace(lengths), Scenario(**SCENARIO, max_concurrency=3)).summary["max_running"] == 3


def test_capacity_takes_lengths_alone_as_a_poisson_process(lengths: str) -> None:
    objectives = parse_objectives("ttft:100", 0.9)
    with pytest.raises(UsageError, match="--scaling poisson"):
        capacity(read_trace(lengths), Scenario(**SCENARIO), objectives, Search(replicates=0))
    search = Search(scaling="poisson", horizon="trace", replicates=0)
    assert capacity(read_trace(lengths), Scenario(**SCENARIO), objectives, search).capacity > 1


def test_options_name_columns_and_rows(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("ts,prompt,out,model\n" + "".join(f"{1_790_000_000_000 + 100 * k},{9 + k},2,{'ab'[k % 2]}\n"
                                                      for k in range(10)))
    columns = [word for each in ("arrival_s=ts:ms", "input_tokens=prompt", "output_tokens=out")
               for word in ("--column", each)]
    done = CliRunner().invoke(app, ["replay", str(path), *DEPLOYMENT, *columns, "--where", "model=a", "--json", "-"])
    assert done.exit_code == 0, done.output
    workload = json.loads(done.stdout)["workload"]
    assert (workload["rows_kept"], workload["dropped"]) == (5, {"model is not a": 5})
    assert "dropped 5 (5 model is not a)" in done.stderr


def test_a_study_names_columns_in_its_format(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("ts,n,m\n0,9,2\n1,8,3\n")
    spec = "columns,arrival_s=ts,input_tokens=n,output_tokens=m"
    (tmp_path / "a.toml").write_text(f'trace = "log.csv"\nformat = "{spec}"\n')
    study = read_study(tmp_path / "a.toml")
    assert read_trace(study.trace, format=study.format).num_requests == 2


def test_a_study_keeps_a_databases_uri(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('trace = "postgresql://u@h/db#t"\n')
    assert read_study(tmp_path / "a.toml").trace == "postgresql://u@h/db#t"


def test_replayed_requests_in_parquet_are_measured_runs(tmp_path: Path) -> None:
    trace = tmp_path / "t.csv"
    trace.write_text("arrival_s,input_tokens,output_tokens\n" + "".join(f"{k / 10},{100 + k},{1 + k % 5}\n"
                                                                        for k in range(30)))
    path = tmp_path / "r.parquet"
    done = CliRunner().invoke(app, ["replay", str(trace), *DEPLOYMENT, "--requests", str(path)])
    assert done.exit_code == 0, done.output
    found = predict_file(path, Scenario(**SCENARIO), client=None, jobs=1).predictions[0]
    assert found.measurement.load is not None
    assert found.measurement.load.num_requests == 30


@pytest.mark.parametrize(("name", "spec", "num"), [
    ("per_request_rtx4090_llama31_8b_tp1.csv", None, 300),
    ("per_request_rtx4090_llama31_8b_tp1.csv", "columns,ttft_s=ttft_client_ms:ms,e2e_s=e2e_client_ms:ms", 300),
    ("per_request_llmd.csv.gz", f"{LLMD},where exp=exp-0,where config=baseline-llm-d-70b,where target_qps=0.5", 252),
])
def test_measured_files_come_through_the_same_readers(name: str, spec: str | None, num: int) -> None:
    """The files' own columns give the mean that they are compared with."""
    import polars as pl

    path = SHARED / "measured" / name
    if not path.exists():
        pytest.skip(f"{name} is not at hand; PLANNER_SHARED names the folder above measured/")
    scenario = Scenario(**SCENARIO | {"num_gpu_blocks": 20_000})
    found = predict_file(path, scenario, client=None, jobs=1, format=spec).predictions[0]
    assert found.measurement.load is not None
    assert found.measurement.load.num_requests == num
    table = pl.read_csv(path)
    if "exp" in table.columns:
        baseline = (pl.col("exp") == "exp-0") & (pl.col("config") == "baseline-llm-d-70b")
        expected = number(table.filter(baseline, pl.col("target_qps") == 0.5)["ttft_s"].mean()) * 1000
    else:
        expected = number(table["ttft_ms" if spec is None else "ttft_client_ms"].mean())
    assert found.measurement.measured["mean_ttft_ms"] == pytest.approx(expected)


def test_a_benchmark_in_another_tools_format_is_validated(tmp_path: Path) -> None:
    rows = [{"error_code": None, "ttft_s": 0.05, "end_to_end_latency_s": 0.05 + 0.01 * k, "number_input_tokens": 100,
             "number_output_tokens": 1 + k % 9} for k in range(1, 30)]
    path = tmp_path / "individual_responses.json"
    path.write_text(json.dumps(rows))
    found = predict_file(path, Scenario(**SCENARIO, max_concurrency=2), client=None, jobs=1).predictions[0]
    assert found.status == "ok"
    assert found.measurement.measured["mean_ttft_ms"] == pytest.approx(50)
