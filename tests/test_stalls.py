"""Stalls of one wave of requests: recognised by mean, median and p99, and scored apart from the steady state."""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from measured_runs import error_in

from planner.measured.accuracy import accuracy, predict_file
from planner.measured.stalls import STEADY, stall_of
from planner.measured.validate_answer import ValidateAnswer
from planner.report.measured_tables import accuracy_table
from planner.settings.scenario import Scenario

ROW: dict[str, Any] = {"gpu": "h100_sxm", "engine": "vllm", "model": "meta-llama/Llama-3.1-8B", "precision": "bf16",
                       "isl": 512, "osl": 32, "concurrency": 8, "tp": 1, "client": "vllm", "num_prompts": 80}
NAMES = ("mean_ttft_ms", "median_ttft_ms", "p99_ttft_ms")
WARM = {"mean_ttft_ms": 90.0, "median_ttft_ms": 80.0, "p99_ttft_ms": 200.0}


def table(path: Path, *rows: Mapping[str, float]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["id", *ROW, *(f"measured_{name}" for name in NAMES)])
        writer.writeheader()
        writer.writerows({"id": f"run{k}", **ROW, **{f"measured_{name}": row[name] for name in NAMES}}
                         for k, row in enumerate(rows))
    return path


def answer(path: Path, level: float | None = None) -> ValidateAnswer:
    return accuracy(predict_file(path, Scenario(), client=None, jobs=1), level=level, limits={})


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    """Statistics of a run that the model itself measured."""
    path = table(tmp_path_factory.mktemp("warm") / "warm.csv", dict.fromkeys(NAMES, 1.0))
    run = predict_file(path, Scenario(), client=None, jobs=1).predictions[0]
    return {name: run.predicted[name] for name in NAMES}


def stalled(warm: Mapping[str, float], stall_ms: float, waiting: float, requests: int) -> dict[str, float]:
    """Return what a client reports if some requests of a run wait once."""
    return {"mean_ttft_ms": warm["mean_ttft_ms"] + stall_ms * waiting / requests,
            "median_ttft_ms": warm["median_ttft_ms"], "p99_ttft_ms": warm["p99_ttft_ms"] + stall_ms}


def test_a_stall_is_found_and_its_length_and_share_are_those_that_were_put_in(
        warm: dict[str, float], tmp_path: Path) -> None:
    result = answer(table(tmp_path / "runs.csv", stalled(warm, 21_500.0, 8, 80), warm))
    assert [row.id for row in result.stalls] == ["run0"]
    row = result.stalls[0]
    assert row.stall_s == pytest.approx(21.5)
    assert (row.num_waiting, row.num_requests) == (8, 80)
    assert row.steady_ttft_ms == pytest.approx(warm["mean_ttft_ms"])
    assert error_in(result.overall.by_metric, STEADY).mape == pytest.approx(0.0, abs=1e-6)
    assert error_in(result.overall.by_metric, "mean_ttft_ms").mape > 0.4
    assert "one stall of 21.5 s" in str(accuracy_table(result))
    assert not any("mean_ttft_ms" in note or "p99" in note for note in result.notes)


def test_without_stalls_no_metric_is_added(warm: dict[str, float], tmp_path: Path) -> None:
    result = answer(table(tmp_path / "runs.csv", warm))
    assert result.stalls == ()
    assert STEADY not in result.overall.by_metric
    assert "stall" not in str(accuracy_table(result))


def test_a_stalled_run_is_judged_by_its_steady_mean(warm: dict[str, float], tmp_path: Path) -> None:
    result = answer(table(tmp_path / "runs.csv", stalled(warm, 21_500.0, 8, 80)), level=0.8)
    assert result.rows is not None
    assert STEADY in result.rows[0].intervals
    assert "mean_ttft_ms" not in result.rows[0].intervals
    assert result.met


def test_a_cold_recipe_predicts_the_stall_and_the_steady_state_is_a_warm_replays(tmp_path: Path) -> None:
    """DeepSeek-R1 in FP4 on MI355X under 0.5.7 stalled for 21 s in each run of its client."""
    path = tmp_path / "runs.csv"
    path.write_text("id,gpu,engine,engine_version,model,precision,isl,osl,concurrency,tp,ep,client,measured_mean_ttft_ms,"
                    "measured_median_ttft_ms,measured_p99_ttft_ms\n"
                    "a,mi355x,sglang,0.5.7,deepseek-ai/DeepSeek-R1,fp4,1024,1024,4,8,1,inferencex,502,78,21240\n"
                    "b,mi355x,sglang,0.5.7,deepseek-ai/DeepSeek-R1,fp4,8192,1024,4,8,1,inferencex,325,300,1310\n")
    cold, warm = predict_file(path, Scenario(), client=None, jobs=1).predictions
    assert cold.stall is not None
    assert cold.stall.stall_s == pytest.approx(21.1, abs=0.2)
    assert cold.predicted["p99_ttft_ms"] == pytest.approx(21_500, rel=0.02)
    assert cold.predicted["mean_ttft_ms"] == pytest.approx(cold.predicted[STEADY] + 21_400 / 50, rel=0.02)
    assert warm.stall is None
    assert warm.predicted["p99_ttft_ms"] < 2_000
    assert warm.predicted[STEADY] == warm.predicted["mean_ttft_ms"]


@pytest.mark.parametrize(("measured", "why"), [
    (stalled(WARM, 300.0, 8, 80), "300 ms are within the spread of an opening burst"),
    (stalled(WARM, 5_000.0, 0.4, 80), "fewer than one request in a hundred waited"),
    (stalled(WARM, 1_500.0, 3, 80), "a part of the wave waited, and not long"),
    (stalled(WARM, 5_000.0, 30, 80), "many more than the requests in flight waited"),
    ({name: 3.0 * value for name, value in WARM.items()}, "prefill is slower throughout"),
])
def test_no_stall(measured: dict[str, float], why: str) -> None:
    assert stall_of(measured, WARM, 8, 80) is None, why


def test_one_request_of_a_wave_may_be_served_before_the_stall() -> None:
    stall = stall_of(stalled(WARM, 70_000.0, 7, 80), WARM, 8, 80)
    assert stall is not None
    assert stall.num_waiting == 7
    assert stall.steady_ms == pytest.approx(90.0)


def test_a_long_stall_of_another_share_is_named_without_a_steady_mean() -> None:
    stall = stall_of(stalled(WARM, 70_000.0, 1.5, 80), WARM, 8, 80)
    assert stall is not None
    assert stall.stall_s == pytest.approx(70.0)
    assert stall.steady_ms is None


@pytest.mark.parametrize("in_flight", [0, 80, 100])
def test_a_run_without_waves_has_no_stall(in_flight: int) -> None:
    assert stall_of(stalled(WARM, 20_000.0, 8, 80), WARM, in_flight, 80) is None


def test_the_steady_state_is_never_slower_than_the_run() -> None:
    for stall_ms in (600.0, 2_000.0, 30_000.0):
        for waiting in (7, 8, 12):
            measured = stalled(WARM, stall_ms, waiting, 80)
            stall = stall_of(measured, WARM, 8, 80)
            assert stall is not None
            assert stall.steady_ms is not None
            assert 0 < stall.steady_ms < measured["mean_ttft_ms"]
            assert 1e3 * stall.stall_s < measured["p99_ttft_ms"]
