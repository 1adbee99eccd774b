"""validate, calibrate and the random load on the command line: exit codes, one clear line, and files that go on."""

import json
from pathlib import Path

import polars as pl
import pytest
from command_line import H100, LINEAR, fails, planner
from measured_runs import row_of, write_runs, write_start, write_synthetic


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_synthetic(tmp_path_factory.mktemp("runs") / "runs.csv", {}, noise=0.05)


def test_validate_prints_writes_and_checks(runs: Path, tmp_path: Path) -> None:
    table = tmp_path / "predictions.csv"
    start = write_start(tmp_path / "start.toml")
    run = planner("validate", runs, "--calibration", start, "--predictions", table,
                  "--json", tmp_path / "v.json", "--max-error", "tpot:20")
    assert run.returncode == 0, run.stderr
    assert "tpot_ms: mape" in run.stdout
    result = json.loads((tmp_path / "v.json").read_text())
    assert result["coverage"] == 1
    assert {"mape", "median_ape", "bias", "n"} == result["overall"]["ttft_ms"].keys()
    assert {g["group"] for g in result["groups"]} >= {"gpu", "engine", "model"}
    rows = pl.read_csv(table)
    assert {"id", "status", "measured_ttft_ms", "predicted_ttft_ms", "measured_tpot_ms"} <= set(rows.columns)
    assert rows.height == 15
    assert planner("validate", runs, "--max-error", "tpot:0.01").returncode == 1


def test_an_error_limit_holds_for_rows_without_a_prediction_too(tmp_path: Path) -> None:
    path = write_runs(tmp_path / "runs.csv", row_of(), row_of(gpu="h999"))
    assert planner("validate", path).returncode == 0
    run = planner("validate", path, "--max-error", "tpot:1000 ttft:1000")
    assert run.returncode == 1
    assert "1 row could not be predicted" in run.stdout
    assert "--max-error holds for all rows" in run.stdout


def test_calibrate_writes_what_replay_and_validate_take(runs: Path, tmp_path: Path) -> None:
    mine = tmp_path / "my.toml"
    run = planner("calibrate", runs, "--fit", "linear_ratio,latency_s", "--folds", 3, "--jobs", 1, "-o", mine)
    assert run.returncode == 0, run.stderr
    assert "3 folds left out" in run.stdout
    checked = planner("validate", runs, "--calibration", mine, "--interval", 0.8, "--json", "-")
    assert 0.5 <= json.loads(checked.stdout)["interval"]["coverage"]["tpot_ms"] <= 1
    load = ("random", *H100, "--num-prompts", 20, "--max-concurrency", 4, "--random-input-len", 64)
    replayed = planner("replay", *load, "--calibration", mine, "--interval", 0.8, "--json", "-")
    summary = json.loads(replayed.stdout)
    low, high = summary["mean_tpot_ms_interval"]
    assert low < high
    assert summary["deployment"]["calibration"] == str(mine)
    assert f"calibration {mine}, fitted to 15 runs of runs.csv" in replayed.stderr
    fails(planner("replay", *load, "--engine", "sglang", "--calibration", mine), 2, "fitted to vllm", "sglang")
    assert "(80 %: " in planner("replay", *load, "--calibration", mine, "--interval", 0.8).stdout


@pytest.mark.parametrize(("arguments", "code", "words"), [
    (("validate", "no.csv"), 3, ("no.csv", "no such file")),
    (("validate", "RUNS", "--gpu", "h100-sxm"), 2, ("--gpu", "its own deployment")),
    (("validate", "RUNS", "--max-error", "itl:4"), 2, ("itl",)),
    (("validate", "RUNS", "--predictions", "p.xlsx"), 2, (".parquet or .csv",)),
    (("validate", "RUNS", "--client", "vlm"), 2, ("did you mean 'vllm'",)),
    (("calibrate", "RUNS", "--fit", "linear_ratio,liner_ratio"), 2, ("liner_ratio",)),
    (("calibrate", "RUNS", "--fit", "moe_layer_s,linear_ratio", "--jobs", "1"), 2, ("moe_layer_s", "no effect")),
    (("calibrate", "RUNS", "--output", "/no/such/folder/x.toml"), 2, ("create it first",)),
    (("replay", "chat", *H100, "--num-prompts", "3"), 2, ("--num-prompts 3", "--limit")),
    (("replay", "random", *LINEAR, "--interval", "0.8"), 2, ("--interval", "linear")),
    (("replay", "random", *LINEAR, "--random-range-ratio", "2"), 2, ("[0, 1)",)),
])
def test_wrong_usage_is_one_line(arguments: tuple[str, ...], code: int, words: tuple[str, ...], runs: Path) -> None:
    named = [str(runs) if argument == "RUNS" else argument for argument in arguments]
    fails(planner(*named), code, *words)


def test_bad_input_is_exit_code_3(tmp_path: Path) -> None:
    path = write_runs(tmp_path / "bad.csv", row_of(), row_of(measured_ttft_ms=-5))
    fails(planner("validate", path), 3, "bad.csv row 1", "measured_ttft_ms = -5")
    path.write_text("")
    fails(planner("validate", path), 3, "bad.csv")
    fails(planner("calibrate", path), 3, "bad.csv")


@pytest.mark.parametrize("command", ["validate", "calibrate"])
def test_help_has_an_example(command: str) -> None:
    shown = planner(command, "--help").stdout
    assert f"Example: planner {command}" in shown
    assert "MEASURED" in shown
