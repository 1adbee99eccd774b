"""Predictions against measurements: tables, benchmark results, requests and steps, and what is wrong with a file."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from measured_runs import error_in, fixed_start, row_of, write_runs, write_start, write_synthetic

from planner.errors import PlannerError, TraceError, UnknownNameError, UsageError
from planner.loop.state.engine_settings import Recording
from planner.measured.accuracy import Predicted, accuracy, bounds_of, interval_coverage, parse_max_error, predict_file
from planner.measured.run_table import read_measured
from planner.measured.validate import Prediction, deploy_measured, predict, predictions_table, replay_measured
from planner.measured.validate_answer import ErrorLimit, ErrorSummary, ValidateAnswer
from planner.replays.result_tables import write_table
from planner.run import replay
from planner.settings.scenario import Scenario
from planner.steptime.engine_constants import constants_of
from planner.traces.shaping.client_load import client_load

BENCHED: dict[str, Any] = {"model": "llama-3.1-8b", "gpu": "h100-sxm"}
LINEAR: dict[str, Any] = {"step_time": "linear:0.01,0.0001", "num_gpu_blocks": 4000, "async_scheduling": False}


def predicted(path: Path, scenario: Scenario | None = None, client: str | None = None) -> list[Prediction]:
    return list(predict_file(path, scenario or Scenario(), client=client, jobs=1).predictions)


def result_of(path: Path, scenario: Scenario | None = None) -> ValidateAnswer:
    return accuracy(predict_file(path, scenario or Scenario(), client=None, jobs=1), level=None, limits={})


def test_what_the_model_itself_measured_is_predicted_without_error(tmp_path: Path) -> None:
    start = Scenario(calibration=str(write_start(tmp_path / "start.toml")))
    found = result_of(write_synthetic(tmp_path / "runs.csv", {}, noise=0.0), start)
    assert found.coverage == 1
    assert {"ttft_ms", "tpot_ms"} <= found.overall.by_metric.keys()
    assert found.overall.by_metric["tpot_ms"] == ErrorSummary(n=15, mape=0, median_ape=0, bias=0)


def test_errors_are_those_of_their_definitions(tmp_path: Path) -> None:
    first = predicted(write_runs(tmp_path / "a.csv", row_of()))[0].predicted["tpot_ms"]
    path = write_runs(tmp_path / "b.csv", row_of(measured_tpot_ms=first / 1.1), row_of(measured_tpot_ms=first / 0.8),
                      row_of(measured_tpot_ms=first))
    found = error_in(result_of(path).overall.by_metric, "tpot_ms")
    assert found.mape == pytest.approx((0.1 + 0.2 + 0) / 3, abs=1e-5)
    assert found.median_ape == pytest.approx(0.1, abs=1e-5)
    assert found.bias == pytest.approx((1.1 * 0.8) ** (1 / 3) - 1, abs=1e-5)


def test_a_row_that_cannot_be_predicted_is_kept_with_its_reason(tmp_path: Path) -> None:
    path = write_runs(tmp_path / "runs.csv", row_of(), row_of(gpu="h999"), row_of(model="meta-llama/Llama-3.1-405B"))
    found = predicted(path)
    table = predictions_table(found)
    assert table["id"].to_list() == ["0", "1", "2"]
    assert table["status"][0] == "ok"
    assert "h999" in table["status"][1]
    assert table["predicted_tpot_ms"].null_count() == 2
    assert table["measured_tpot_ms"].to_list() == [9.0, 9.0, 9.0]
    result = accuracy(Predicted(predictions=found), level=None, limits={})
    assert result.coverage == pytest.approx(1 / 3)
    assert [row.id for row in result.unpredicted] == ["1", "2"]
    (errors,) = (row.errors for row in result.groups if (row.group, row.value) == ("gpu", "h999"))
    assert (errors.n, errors.coverage, errors.by_metric["tpot_ms"]) == (1, 0, None)


def test_reading_a_prompt_takes_what_its_text_takes_whatever_tokens_it_makes(tmp_path: Path) -> None:
    [run] = read_measured(write_runs(tmp_path / "runs.csv", row_of(isl=1024, concurrency=1)))
    constants = constants_of(fixed_start())
    deployment = deploy_measured(run, constants)
    usual = replay_measured(run, deployment).predicted
    text = replay_measured(replace(run, tokens_per_counted=4.0), deployment).predicted
    saved_ms = 1e3 * 1024 * constants.frontend_s_per_token * (1 - 1 / 4)  # of 1024 tokens 256 were counted
    assert usual["ttft_ms"] - text["ttft_ms"] == pytest.approx(saved_ms, rel=1e-6)
    assert text["tpot_ms"] == pytest.approx(usual["tpot_ms"])
    assert replay_measured(run, deployment).predicted == usual  # the deployment stays as it is


def test_a_run_whose_requests_do_not_fit_has_no_prediction_and_says_why(tmp_path: Path) -> None:
    [run] = read_measured(write_runs(tmp_path / "runs.csv", row_of(isl=1024, osl=16)))
    assert run.scenario is not None
    found = predict(replace(run, scenario=replace(run.scenario, num_gpu_blocks=40)))
    assert found.predicted == {}
    assert re.match(r"(\d+) of \1 requests were served but do not fit, the longest with 1,0\d\d tokens: .*hold 640",
                    found.status)
    assert predict(replace(run, scenario=replace(run.scenario, num_gpu_blocks=80))).status == "ok"


def test_a_metric_that_was_not_measured_does_not_count(tmp_path: Path) -> None:
    found = result_of(write_runs(tmp_path / "runs.csv", row_of(measured_ttft_ms=""), row_of()))
    assert (error_in(found.overall.by_metric, "ttft_ms").n, error_in(found.overall.by_metric, "tpot_ms").n) == (1, 2)


def test_rows_of_other_clients_are_left_out(tmp_path: Path) -> None:
    path = write_runs(tmp_path / "runs.csv", row_of(client="inferencex"), row_of(), row_of(client=""))
    found = predicted(path, client="inferencex")
    assert [p.measurement.id for p in found] == ["0", "2"]
    assert found[0].predicted == found[1].predicted  # the client that the table does not name is this one
    assert [p.measurement.id for p in predicted(path, client="internal")] == ["1", "2"]
    with pytest.raises(UnknownNameError, match="inferencex"):
        predicted(path, client="inferenceX")


@pytest.mark.parametrize(("text", "words"), [
    ("", "cannot be read as a table"),
    ("id,gpu,engine,model,isl,osl,concurrency,tp,measured_ttft_ms,measured_tpot_ms\n", "no rows"),
    ("gpu,isl,osl,measured_ttft_ms\nh100_sxm,1,1,1\n", "engine, model, concurrency, tp; a table"),
    ("a,b\n1,2\n", "columns arrival_s, input_tokens, output_tokens are missing"),
    ("arrival_s,input_tokens,output_tokens\n0,5,5\n", "ttft_s, tpot_s, e2e_s"),
    ("arrival_s,input_tokens,output_tokens,ttft_s\n0,5,5,-1\n", "ttft_s = -1"),
    ("duration_s,num_decodes\n0.1,3\n", "lacks the columns num_prompts"),
])
def test_a_bad_table_says_what_is_wrong(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(TraceError, match=rf"bad\.csv.*{words}") as error:
        predicted(path, Scenario() if "gpu" in text else Scenario(**LINEAR))
    assert error.value.exit_code == 3


@pytest.mark.parametrize(("column", "value"), [
    ("measured_ttft_ms", -4), ("measured_tpot_ms", 0), ("measured_tpot_ms", "fast"), ("isl", 0), ("concurrency", "inf"),
])
def test_an_impossible_number_is_an_error_with_its_row(column: str, value: object, tmp_path: Path) -> None:
    path = write_runs(tmp_path / "runs.csv", row_of(), row_of(**{column: value}))
    with pytest.raises(TraceError, match=rf"runs\.csv row 1: {column} = {value}; must be"):
        predicted(path)


def test_a_table_takes_no_deployment(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--gpu h100-sxm: each row"):
        predicted(write_runs(tmp_path / "runs.csv", row_of()), Scenario(gpu="h100-sxm"))


def replayed(scenario: Scenario, path: Path, table: str = "requests") -> Path:
    outcome = replay(client_load(scenario), scenario, slo=None, recording=Recording(steps=True))
    write_table(outcome.result.requests_table() if table == "requests" else outcome.result.steps_table(), path)
    return path


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("load", [{"request_rate": 5.0}, {"max_concurrency": 4}])
def test_our_own_requests_are_predicted_without_error(ending: str, load: dict[str, Any], tmp_path: Path) -> None:
    scenario = Scenario(**LINEAR, **load, num_prompts=60, random_range_ratio=0.5)
    path = replayed(scenario, tmp_path / f"r.{ending}")
    deployment = Scenario(**LINEAR, max_concurrency=scenario.max_concurrency)
    found = predicted(path, deployment)[0]
    assert {"mean_ttft_ms", "median_tpot_ms", "p99_e2el_ms", "makespan_s"} <= found.predicted.keys()
    assert dict(found.predicted) == pytest.approx(dict(found.measurement.measured), rel=1e-6)


def test_requests_that_were_not_completed_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text("arrival_s,input_tokens,output_tokens,status,ttft_s,tpot_s,e2e_s\n"
                    "0,5,5,completed,0.1,0.01,0.14\n1,900,0,rejected,,,\n")
    found = predicted(path, Scenario(**LINEAR))[0]
    assert found.measurement.load is not None
    assert found.measurement.load.num_requests == 1
    assert found.measurement.measured["mean_tpot_ms"] == pytest.approx(10)
    path.write_text("arrival_s,input_tokens,output_tokens,status,ttft_s\n1,900,0,rejected,\n")
    with pytest.raises(TraceError, match="1 status is not completed"):
        predicted(path, Scenario(**LINEAR))


def test_our_own_steps_are_predicted_without_error(tmp_path: Path) -> None:
    scenario = Scenario(model="llama-3.1-8b", gpu="h100-sxm", max_concurrency=8, num_prompts=20,
                        async_scheduling=False)
    path = replayed(scenario, tmp_path / "s.parquet", "steps")
    found = result_of(path, Scenario(model="llama-3.1-8b", gpu="h100-sxm", max_num_seqs=128, async_scheduling=False))
    assert error_in(found.overall.by_metric, "duration_ms").mape < 0.001
    assert {row.value for row in found.groups if row.group == "client"} <= {"decodes", "prompts", "mixed"}


def detailed(scenario: Scenario, *, starts: bool = True, **header: Any) -> dict[str, Any]:
    """Return what vLLM's client would have saved of a replay with --save-detailed."""
    table = replay(client_load(scenario), scenario, slo=None, recording=Recording()).result.requests_table()
    gaps = table["output_tokens"] - 1
    run = {
        "num_prompts": table.height, "request_rate": "inf", "max_concurrency": None, "completed": table.height,
        "duration": (table["arrival_s"] + table["e2e_s"]).max(), "total_input_tokens": int(table["input_tokens"].sum()),
        "total_output_tokens": int(table["output_tokens"].sum()), "input_lens": table["input_tokens"].to_list(),
        "output_lens": table["output_tokens"].to_list(), "ttfts": table["ttft_s"].to_list(),
        "itls": [[tpot] * n for tpot, n in zip(table["tpot_s"], gaps, strict=True)], "errors": [""] * table.height,
    }
    return run | ({"start_times": (table["arrival_s"] + 1000.0).to_list()} if starts else {}) | header


def write_json(path: Path, *runs: dict[str, Any]) -> Path:
    path.write_text("\n".join(map(json.dumps, runs)))
    return path


@pytest.mark.parametrize(("load", "header", "starts"), [
    ({"request_rate": 5.0}, {"request_rate": 5.0}, True),
    ({"max_concurrency": 4}, {"max_concurrency": 4}, True),
    ({"max_concurrency": 4}, {"max_concurrency": 4}, False),
    ({"request_rate": 5.0, "max_concurrency": 8}, {"request_rate": 5.0, "max_concurrency": 8}, False),
])
def test_a_detailed_result_is_replayed_as_it_was_sent(load: dict[str, Any], header: dict[str, Any], starts: bool,
                                                      tmp_path: Path) -> None:
    scenario = Scenario(**LINEAR, **load, num_prompts=50, random_range_ratio=0.5)
    path = write_json(tmp_path / "bench.json", detailed(scenario, starts=starts, **header))
    found = predicted(path, Scenario(**LINEAR))[0]
    measured = dict(found.measurement.measured)
    assert len(measured) == 10
    assert {k: v for k, v in found.predicted.items() if k in measured} == pytest.approx(measured, rel=1e-5)


def test_failed_requests_of_a_result_do_not_count(tmp_path: Path) -> None:
    run = detailed(Scenario(**LINEAR, num_prompts=10, request_rate=5.0), request_rate=5.0)
    for key, value in (("ttfts", 0.0), ("output_lens", 0), ("errors", "Timeout"), ("itls", [])):
        run[key][3] = value
    found = predicted(write_json(tmp_path / "b.json", run), Scenario(**LINEAR))[0]
    assert found.measurement.load is not None
    assert found.measurement.load.num_requests == 9


def test_a_benchmark_whose_requests_failed_is_said(tmp_path: Path) -> None:
    run = detailed(Scenario(**LINEAR, num_prompts=10, request_rate=5.0), request_rate=5.0, num_prompts=15)
    found = predicted(write_json(tmp_path / "b.json", run), Scenario(**LINEAR))[0]
    assert any("5 of 15 requests failed in the benchmark" in note for note in found.measurement.notes)


def test_a_summary_is_replayed_with_its_mean_lengths(tmp_path: Path) -> None:
    scenario = Scenario(**LINEAR, max_concurrency=4, num_prompts=40)
    summary = replay(client_load(scenario), scenario, slo=None, recording=Recording()).summary
    keys = ("completed", "duration", "total_input_tokens", "total_output_tokens", "mean_ttft_ms", "p99_ttft_ms",
            "mean_tpot_ms")
    run = {"num_prompts": 40, "request_rate": "inf", "max_concurrency": 4, **{key: summary[key] for key in keys}}
    found = predicted(write_json(tmp_path / "b.json", run, run), Scenario(**LINEAR))
    assert [p.measurement.id for p in found] == ["b#0", "b#1"]
    measured = dict(found[0].measurement.measured)
    assert measured.keys() == {"mean_ttft_ms", "p99_ttft_ms", "mean_tpot_ms", "makespan_s"}
    assert {k: found[0].predicted[k] for k in measured} == pytest.approx(measured, rel=1e-6)


def test_sglangs_lengths_are_drawn_below_the_stated_ones(tmp_path: Path) -> None:
    run = {"request_rate": 3.0, "max_concurrency": None, "random_input_len": 200, "random_output_len": 40,
           "random_range_ratio": 0.5, "completed": 50, "duration": 20.0, "total_input_tokens": 7500,
           "total_output_tokens": 1500, "mean_ttft_ms": 20.0, "mean_tpot_ms": 12.0, "mean_e2e_latency_ms": 400.0}
    found = predicted(write_json(tmp_path / "s.jsonl", run), Scenario(**LINEAR))[0].measurement
    assert found.load is not None
    inputs = found.load.requests["input_tokens"].to_numpy()
    assert 100 <= inputs.min() < inputs.max() <= 200
    assert found.load.requests["arrival_s"].max() == pytest.approx(50 / 3)
    assert (found.measured["mean_e2el_ms"], found.groups["client"]) == (400.0, "sglang")


@pytest.mark.parametrize(("change", "words"), [
    ({"duration": 0}, "duration = 0"), ({"completed": "many"}, "completed = 'many'"),
    ({"ttfts": [0.1, -0.2]}, "row 2: ttft_s = -0.2"), ({"ttfts": [0.1]}, "differ in length"),
    ({"itls": None}, "neither latencies nor itls"), ({"output_lens": [0, 0]}, "no row is left of 2"),
])
def test_a_bad_result_says_what_is_wrong(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    run = detailed(Scenario(**LINEAR, num_prompts=2, request_rate=5.0)) | change
    with pytest.raises(TraceError, match=rf"b\.json run 0.*{words}"):
        predicted(write_json(tmp_path / "b.json", run), Scenario(**LINEAR))


def test_a_result_needs_its_deployment(tmp_path: Path) -> None:
    run = detailed(Scenario(**LINEAR, num_prompts=2, request_rate=5.0))
    with pytest.raises(UsageError, match="--model and --gpu missing"):
        predicted(write_json(tmp_path / "b.json", run))


@pytest.mark.parametrize(("option", "value", "other"), [
    ("model", "Qwen/Qwen3-32B", "--model llama-3.1-8b"), ("gpu", "NVIDIA H200", "--gpu h100-sxm"),
    ("engine", "sglang", "--engine vllm")])
def test_requests_of_another_deployment_are_refused(option: str, value: str, other: str, tmp_path: Path) -> None:
    rows = f"arrival_s,input_tokens,output_tokens,ttft_s,e2e_s,{option}\n" + f"0,100,10,0.05,0.5,{value}\n" * 6
    path = tmp_path / "log.csv"
    path.write_text(rows, "utf-8")
    with pytest.raises(UsageError, match=f"was measured on {option} = {value}, and {other} would be predicted; give "
                                         f"--{option} {value}"):
        predicted(path, Scenario(**BENCHED))
    path.write_text(rows.replace(value, "our-own-name"), "utf-8")
    assert predicted(path, Scenario(**BENCHED))[0].status == "ok"
    same = {"model": "meta-llama/Llama-3.1-8B-Instruct", "gpu": "H100", "engine": "vLLM"}[option]
    path.write_text(rows.replace(value, same), "utf-8")
    assert predicted(path, Scenario(**BENCHED))[0].status == "ok"


def test_limits_take_short_names_and_full_ones() -> None:
    names = ["mean_ttft_ms", "p99_ttft_ms", "makespan_s"]
    assert parse_max_error("ttft:25 p99_ttft_ms:40,makespan:5", names) == {
        "mean_ttft_ms": 0.25, "p99_ttft_ms": 0.4, "makespan_s": 0.05}
    for wrong in ("tpot:5", "ttft", "ttft:-1", "ttft:x", ""):
        with pytest.raises(UsageError):
            parse_max_error(wrong, names)


def test_a_limit_without_a_prediction_is_missed(tmp_path: Path) -> None:
    found = accuracy(predict_file(write_runs(tmp_path / "r.csv", row_of(gpu="h999")), Scenario(), client=None, jobs=1),
                     level=None, limits={"tpot_ms": 1.0})
    assert found.max_error["tpot_ms"] == ErrorLimit(limit=1.0, mape=None, met=False)
    assert not found.met


def test_an_intervals_coverage_is_the_share_of_rows_inside(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text("[constants]\nlinear_ratio = 1.0\n[held_out]\nprobabilities = [0.05, 0.95]\n"
                    "log_errors = {tpot_ms = [-0.1, 0.1]}\n")
    base = predicted(write_runs(tmp_path / "a.csv", row_of()), Scenario(calibration=str(file)))[0].predicted["tpot_ms"]
    factors = np.exp([-0.2, -0.05, 0.05, 0.2])
    path = write_runs(tmp_path / "b.csv", *(row_of(measured_tpot_ms=base * f) for f in factors))
    predictions = predicted(path, Scenario(calibration=str(file)))
    found = interval_coverage(predictions, bounds_of(predictions, 0.9), 0.9)
    assert found.coverage == {"tpot_ms": 0.5}
    assert found.n == {"tpot_ms": 4}


def test_a_calibration_of_another_engine_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('[constants]\nlinear_ratio = 1.0\n[source]\nengine = "sglang"\n')
    with pytest.raises(UsageError, match="was fitted to an engine that is not in the table"):
        predicted(write_runs(tmp_path / "a.csv", row_of()), Scenario(calibration=str(file)))


def test_what_is_no_measurement_is_refused(tmp_path: Path) -> None:
    for name in ("nothing.csv", "nothing.json"):
        with pytest.raises(TraceError, match="no such file"):
            predicted(tmp_path / name)
    path = tmp_path / "x.json"
    path.write_text("[1, 2]")
    with pytest.raises(PlannerError, match=r"x\.json"):
        predicted(path)
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "x.parquet")
    with pytest.raises(PlannerError, match=r"x\.parquet"):
        predicted(tmp_path / "x.parquet")


def test_validate_says_which_load_stands_for_a_result_and_replay_gives_it(tmp_path: Path) -> None:
    """A client that kept four requests in flight: the options that a replay's note names replay the same load."""
    at = [0.25 * k for k in range(40)]
    run = {"completed": 40, "duration": 10.0, "total_input_tokens": 12_000, "total_output_tokens": 800,
           "max_concurrency": 4, "request_rate": "inf", "input_lens": [300] * 40, "output_lens": [20] * 40,
           "ttfts": [0.1] * 40, "latencies": [0.9] * 40, "start_times": at}
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(run))
    scenario = Scenario(**BENCHED)
    [closed] = predicted(path, scenario)
    assert closed.measurement.notes == (
        "validate replays a closed loop of 4 requests in flight; planner replay takes the recorded send times",)
    again = replay(str(path), replace(scenario, max_concurrency=4, ready_at_start=True), recording=Recording())
    assert again.summary["mean_ttft_ms"] == pytest.approx(closed.predicted["mean_ttft_ms"], rel=0.01)
    as_sent = replay(str(path), scenario, recording=Recording())
    assert as_sent.summary["mean_ttft_ms"] != pytest.approx(closed.predicted["mean_ttft_ms"], rel=0.05)
    path.write_text(json.dumps(run | {"request_rate": 5.0}))
    [rated] = predicted(path, scenario)
    assert rated.measurement.notes == ()
    del run["start_times"]
    path.write_text(json.dumps(run | {"request_rate": 5.0, "max_concurrency": None}))
    [drawn] = predicted(path, scenario)
    assert drawn.measurement.notes == (
        "validate draws arrivals at the client's rate: the file has no send times",)
