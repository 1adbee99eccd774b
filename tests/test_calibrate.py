"""Fitting constants to runs: those that are known are found again, and those that cannot be told apart are refused."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from measured_runs import error_in, fixed_start, row_of, write_runs, write_start, write_synthetic

from planner.deployment.deploy import deploy
from planner.errors import TraceError, UnknownNameError, UsageError
from planner.files.keys import asdict
from planner.loop.state.engine_settings import Recording
from planner.measured.accuracy import accuracy, predict_file
from planner.measured.calibration.calibrate import calibrate, starting_constants, write_calibration
from planner.measured.calibration.calibrate_answer import CalibrateAnswer
from planner.measured.calibration.constant_fit import fit
from planner.measured.calibration.identify import check, choose
from planner.measured.calibration.observations import Runs, prepare
from planner.measured.run_table import read_measured
from planner.replays.result_tables import write_table
from planner.report.measured_tables import calibration_table
from planner.results.notes import notes
from planner.results.uncertainty import read_residuals
from planner.run import replay
from planner.settings.scenario import Scenario, parse_scenario
from planner.steptime.engine_constants import bounds, read_constants, read_table
from planner.traces.shaping.client_load import client_load

START = fixed_start()
TRUTH = {"linear_ratio": 1.25 * START["linear_ratio"], "latency_s": 1.6 * START["latency_s"]}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_synthetic(tmp_path_factory.mktemp("runs") / "runs.csv", TRUTH, noise=0.02)


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    return Scenario(calibration=str(write_start(tmp_path_factory.mktemp("start") / "start.toml")))


@pytest.fixture(scope="module")
def found(runs: Path, start: Scenario) -> CalibrateAnswer:
    return calibrate(runs, start, names=tuple(TRUTH), folds=3, jobs=1)


def test_known_constants_are_found_again_within_their_intervals(found: CalibrateAnswer) -> None:
    for name, true in TRUTH.items():
        fitted = found.fitted[name]
        assert fitted.value == pytest.approx(true, rel=0.05)
        assert fitted.low < fitted.value < fitted.high
        deviation = math.log(fitted.high / fitted.low) / 2 / 1.2816
        assert abs(math.log(fitted.value / true)) < 3 * deviation  # of an 80 % interval, beyond doubt
        assert deviation < 0.06
    assert {name: found.constants[name] for name in START if name not in TRUTH} == {
        name: value for name, value in START.items() if name not in TRUTH}


@pytest.mark.parametrize(("compute_ratio", "seed"), [(0.93, 1), (0.96, 2), (1.0, 2)])  # slopes of 4 % alone fail
def test_a_fit_looks_past_the_jumps_of_a_replay(compute_ratio: float, seed: int, tmp_path: Path) -> None:
    start = START | {"compute_ratio": compute_ratio}
    path = write_synthetic(tmp_path / "runs.csv", TRUTH | {"compute_ratio": compute_ratio}, noise=0.02, seed=seed)
    observed = Runs(prepared=prepare(read_measured(path), start))
    with observed.evaluator(1) as evaluate:
        constants = fit(observed, start, tuple(TRUTH), evaluate=evaluate).constants
    assert {name: constants[name] for name in TRUTH} == pytest.approx(TRUTH, rel=0.02)


def test_errors_fall_to_the_noise_in_sample_and_on_runs_left_out(found: CalibrateAnswer) -> None:
    for metric in ("ttft_ms", "tpot_ms"):
        before, after, held_out = (error_in(each, metric) for each in (found.before, found.after, found.held_out))
        assert before.mape > 0.08
        assert after.mape * 0.8 < held_out.mape < before.mape / 2
        for errors in (after, held_out):  # not their means: two users may fall into another rhythm
            assert errors.median_ape < 0.03
        assert held_out.n == 15
    assert found.folds == 3
    assert not any("constants from" in note for note in found.notes)  # more runs than constants


def test_the_file_gives_back_the_constants_and_the_errors(found: CalibrateAnswer, runs: Path, tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    write_calibration(found, path)
    assert read_constants(path) == pytest.approx(found.constants, rel=1e-5)
    assert read_table(path, "source")["engine"] == "vllm"
    assert read_table(path, "intervals").keys() == TRUTH.keys()
    assert read_table(path, "held_out")["tpot_ms"] == asdict(error_in(found.held_out, "tpot_ms"))
    assert set(read_residuals(path, "held_out").log_errors) == {"ttft_ms", "tpot_ms", "e2el_ms", "output_throughput"}
    calibrated = Scenario(calibration=str(path), interval=0.8)
    result = accuracy(predict_file(runs, calibrated, client=None, jobs=1), level=0.8, limits={})
    assert asdict(error_in(result.overall.by_metric, "tpot_ms")) == pytest.approx(
        asdict(error_in(found.after, "tpot_ms")), abs=1e-4)
    assert result.interval is not None
    assert all(share >= 0.6 for share in result.interval.coverage.values())
    again = calibrate(runs, Scenario(calibration=str(path)), names=("linear_ratio",), folds=3, jobs=1)
    assert error_in(again.before, "tpot_ms").mape == pytest.approx(error_in(found.after, "tpot_ms").mape, abs=1e-4)


def test_what_the_runs_say_nothing_of_stays_at_its_start(start: Scenario, tmp_path: Path) -> None:
    short = write_synthetic(tmp_path / "runs.csv", TRUTH, noise=0.01, every=2)
    found = calibrate(short, start, names=None, folds=2, jobs=1)
    assert "linear_ratio" in found.fitted or "cannot be told apart" in found.left["linear_ratio"]
    assert "latency_s" in found.fitted or "latency_s" in found.left["frontend_s"]
    assert found.left["moe_layer_s"] == "has no effect on these runs"
    assert found.left["collective_wait_s"] == "has no effect on these runs"
    assert {*found.fitted, *found.left} == set(bounds())
    for name, fitted in found.fitted.items():
        least, most = bounds()[name]
        assert least <= fitted.low <= fitted.high <= most
    assert error_in(found.after, "tpot_ms").mape < 0.03


@pytest.mark.parametrize(("names", "words"), [
    (("moe_layer_s", "linear_ratio"), "moe_layer_s: has no effect"),
    (("latency_s", "frontend_s"), "cannot be told apart from (latency|frontend)_s"),
])
def test_a_list_that_cannot_be_told_apart_is_refused(names: tuple[str, ...], words: str, tmp_path: Path) -> None:
    single = [row_of(isl=n, concurrency=1, id=str(n), measured_ttft_ms=40, measured_tpot_ms=8)
              for n in (128, 512, 1024)]
    with pytest.raises(UsageError, match=words):
        calibrate(write_runs(tmp_path / "r.csv", *single), Scenario(), names=names, folds=3, jobs=1)


def test_of_two_constants_that_do_the_same_one_is_dropped() -> None:
    rng = np.random.default_rng(0)
    slopes = rng.normal(size=(40, 2))
    jacobian = np.column_stack((slopes, 2 * slopes[:, 0] + 1e-6 * rng.normal(size=40), np.zeros(40)))
    names = ("layer_s", "host_s", "overhead_s", "moe_layer_s")
    chosen = choose(jacobian, names, len(names))
    assert chosen.left["moe_layer_s"] == "has no effect on these runs"
    assert len({"layer_s", "overhead_s"} & set(chosen.names)) == 1
    assert "host_s" in chosen.names
    with pytest.raises(UsageError, match=r"(layer_s|overhead_s).*(layer_s|overhead_s)"):
        check(jacobian[:, :3], names[:3])
    check(jacobian[:, :2], names[:2])


def test_one_recorded_run_is_fitted_by_time_blocks(start: Scenario, tmp_path: Path) -> None:
    truth = tmp_path / "truth.toml"
    truth.write_text("[constants]\n" + "\n".join(f"{name} = {value}" for name, value in {**START, **TRUTH}.items()
                                                if name.isidentifier()))
    deployment = replace(start, model="llama-3.1-8b", gpu="h100-sxm")
    scenario = replace(deployment, request_rate=6.0, num_prompts=120, random_range_ratio=0.9, calibration=str(truth))
    outcome = replay(client_load(scenario), scenario, slo=None, recording=Recording())
    write_table(outcome.result.requests_table(), tmp_path / "requests.csv")
    found = calibrate(tmp_path / "requests.csv", deployment, names=tuple(TRUTH), folds=3, jobs=1)
    assert (found.source.num_runs, found.source.num_blocks, found.num_values) == (1, 12, 24)
    assert found.notes[0].startswith(f"{len(TRUTH)} constants from 1 run: the 24 fitted values share its load, so the ")
    assert str(calibration_table(found)).startswith(
        f"vllm: {len(TRUTH)} constants fitted to 24 values of 1 run in 12 blocks of time of requests.csv, 0 left out")
    assert found.folds == 3
    for name, true in TRUTH.items():
        assert found.fitted[name].value == pytest.approx(true, rel=0.1)
    assert error_in(found.held_out, "tpot_ms").mape < 0.02


def test_a_log_of_steps_is_fitted_step_by_step(start: Scenario, tmp_path: Path) -> None:
    truth = tmp_path / "truth.toml"
    moved = {name: 1.25 * START[name] for name in ("linear_ratio", "decode_attention_ratio")}
    truth.write_text("[constants]\n" + "\n".join(f"{name} = {value}" for name, value in {**START, **moved}.items()
                                                if name.isidentifier()))
    deployment = replace(start, model="llama-3.1-8b", gpu="h100-sxm")
    scenario = replace(deployment, request_rate=4.0, num_prompts=60, random_range_ratio=0.9, random_input_len=6000,
                       calibration=str(truth))
    outcome = replay(client_load(scenario), scenario, slo=None, recording=Recording(steps=True))
    write_table(outcome.result.steps_table(), tmp_path / "steps.csv")
    found = calibrate(tmp_path / "steps.csv", deployment, names=tuple(moved), folds=3, jobs=1)
    for name, true in moved.items():
        assert found.fitted[name].value == pytest.approx(true, rel=0.03)
    assert error_in(found.before, "duration_ms").mape > 0.1
    assert error_in(found.held_out, "duration_ms").mape < 0.01
    assert found.folds == 3
    path = tmp_path / "my.toml"
    write_calibration(found, path)
    assert read_table(path, "source")["num_steps"] == error_in(found.before, "duration_ms").n
    assert set(read_residuals(path, "held_out").log_errors) == {"duration_ms"}
    calibrated = replace(scenario, calibration=str(path), interval=0.8)
    with pytest.raises(UsageError, match=r"errors of duration_ms only; for intervals of latencies, calibrate on runs"):
        replay(client_load(calibrated), calibrated, slo=None, recording=Recording())


def test_of_a_table_with_several_engines_one_is_fitted(tmp_path: Path) -> None:
    rows = [row_of(isl=n, concurrency=c) for n in (128, 2048) for c in (1, 16)]
    path = write_runs(tmp_path / "r.csv", *rows, row_of(engine="sglang"), row_of(gpu="h999"))
    found = calibrate(path, Scenario(), names=("linear_ratio",), folds=2, jobs=1)
    assert (found.engine, found.source.num_runs, found.source.num_left_out) == ("vllm", 4, 2)
    unknown = next(reason for reason in found.left_out if "h999" in reason)
    assert found.left_out == {"of the engine sglang": 1, unknown: 1}
    assert str(calibration_table(found)).splitlines()[1:3] == ["  1 of the engine sglang", f"  1 {unknown}"]
    with pytest.raises(UsageError, match=r"tell 3 constants apart|cannot be told apart|within a factor"):
        calibrate(path, Scenario(engine="sglang"), names=("linear_ratio", "latency_s", "layer_s"), folds=2, jobs=1)


def test_a_calibration_knows_the_gpu_and_model_of_its_table_by_any_name(tmp_path: Path) -> None:
    rows = [row_of(isl=n, concurrency=c) for n in (128, 2048) for c in (1, 16)]
    found = calibrate(write_runs(tmp_path / "r.csv", *rows), Scenario(), names=("linear_ratio",), folds=2, jobs=1)
    assert (found.source.gpu, found.source.model) == (("h100-sxm",), ("llama-3.1-8b",))
    write_calibration(found, tmp_path / "my.toml")
    scenario = Scenario(model="llama-3.1-8b", gpu="h100-sxm", calibration=str(tmp_path / "my.toml"), num_prompts=4)
    note = next(note for note in notes(deploy(scenario), client_load(scenario)) if "calibration" in note)
    assert "fitted to 4 runs" in note
    assert "none of them" not in note


def slowed(path: Path, factor: float) -> Path:
    """Write the runs of the model itself as if each time were so much longer."""
    rows = pl.read_csv(path).with_columns(pl.col("measured_ttft_ms", "measured_tpot_ms") * factor)
    rows.write_csv(path)
    return path


def test_constants_of_runs_that_the_deployment_does_not_explain_say_so_wherever_they_go(
        start: Scenario, tmp_path: Path) -> None:
    path = slowed(write_synthetic(tmp_path / "runs.csv", {}, noise=0.01), 2.5)
    found = calibrate(path, start, names=("linear_ratio", "layer_s", "latency_s"), folds=2, jobs=1)
    said = "before the fit, tpot_ms of 15 runs: median prediction 0.4 times"
    assert any(note.startswith(said) for note in found.notes)
    write_calibration(found, tmp_path / "my.toml")
    scenario = Scenario(model="llama-3.1-8b", gpu="h100-sxm", calibration=str(tmp_path / "my.toml"), num_prompts=4)
    assert any("my.toml: before the fit, tpot_ms" in note for note in notes(deploy(scenario), client_load(scenario)))


def test_runs_that_no_constants_explain_are_refused(start: Scenario, tmp_path: Path) -> None:
    path = slowed(write_synthetic(tmp_path / "runs.csv", {}, noise=0.01), 1000.0)
    with pytest.raises(TraceError, match=r"runs\.csv: no constants explain it\. After the fit, ttft_ms of 15 runs: .* "
                                         r"check the unit") as error:
        calibrate(path, start, names=("linear_ratio", "latency_s"), folds=3, jobs=1)
    assert error.value.exit_code == 3


def test_runs_that_are_explained_are_not_questioned(found: CalibrateAnswer) -> None:
    assert found.notes == ()
    assert found.source.doubts is None


@pytest.mark.parametrize(("options", "error", "words"), [
    ({"folds": 1}, UsageError, "--folds 1"),
    ({"names": ("linear_ration",)}, UnknownNameError, "linear_ratio"),
    ({"names": ("linear_ratio", "linear_ratio")}, UsageError, "twice"),
])
def test_wrong_usage(options: dict[str, Any], error: type[Exception], words: str, runs: Path) -> None:
    with pytest.raises(error, match=words):
        calibrate(runs, Scenario(), **{"names": None, "folds": 3, "jobs": 1} | options)


def test_what_cannot_be_fitted_to(tmp_path: Path) -> None:
    unknown = write_runs(tmp_path / "r.csv", row_of(gpu="h999"))
    with pytest.raises(UsageError, match=r"no row can be predicted.*h999"):
        calibrate(unknown, Scenario(), names=None, folds=2, jobs=1)
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(TraceError, match=r"empty\.csv"):
        calibrate(tmp_path / "empty.csv", Scenario(), names=None, folds=2, jobs=1)
    (tmp_path / "s.csv").write_text("duration_s,num_decodes\n1,1\n")
    with pytest.raises(TraceError, match="lacks the columns num_prompts"):
        calibrate(tmp_path / "s.csv", Scenario(model="llama-3.1-8b", gpu="h100-sxm"), names=None, folds=2, jobs=1)


def test_constants_stay_if_fitted_ones_have_no_sure_gain_on_runs_left_out(tmp_path: Path) -> None:
    loads = [(128, 1), (1024, 8), (4096, 2), (512, 32), (2048, 16), (256, 64)]
    factors = (1.2, 0.8, 1.15, 0.85, 0.8, 1.2)  # errors that no constant explains
    rows = []
    for (isl, concurrency), factor in zip(loads, factors, strict=True):
        scenario = parse_scenario({"model": "llama-3.1-8b", "gpu": "h100-sxm", "max_concurrency": concurrency,
                                   "num_prompts": 10 * concurrency, "random_input_len": isl, "random_output_len": 128})
        summary = replay(client_load(scenario), scenario).summary
        rows.append(row_of(isl=isl, osl=128, concurrency=concurrency, id=str(isl),
                           measured_ttft_ms=summary["mean_ttft_ms"] * factor,
                           measured_tpot_ms=summary["mean_tpot_ms"] / factor))
    found = calibrate(write_runs(tmp_path / "r.csv", *rows), Scenario(), names=None, folds=6, jobs=1)
    assert found.fitted == {}
    assert found.constants == starting_constants(Scenario(), "vllm")
    assert found.held_out == found.after == found.before
    assert found.notes[0].startswith("the constants are not changed: fitted without a part of the runs, they predict")
