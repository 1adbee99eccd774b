"""Intervals from held-out errors: their quantiles, their file, and where there are none."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner.catalog.catalog_files import data_dir
from planner.deployment.deploy import deploy
from planner.errors import CatalogError, UsageError
from planner.loop.state.engine_settings import Recording
from planner.measured.calibration.calibrate import quantiles
from planner.results.uncertainty import (
    STUDENT,
    Residuals,
    of_a_new_group,
    read_residuals,
    residuals_for,
    residuals_of,
    with_derived,
)
from planner.run import replay
from planner.settings.scenario import Scenario
from planner.traces.shaping.client_load import client_load

H100 = {"model": "llama-3.1-8b", "gpu": "h100-sxm"}


def write_residuals(path: Path, found: Residuals, constants: str = "") -> Path:
    plain = quantiles(found)
    lines = [f"{metric} = {json.dumps(values)}" for metric, values in plain.log_errors.items()]
    path.write_text(constants + "[held_out]\nprobabilities = " + json.dumps(plain.probabilities)
                    + "\n[held_out.log_errors]\n" + "\n".join(lines) + "\n")
    return path


@pytest.fixture
def known() -> Residuals:
    errors = np.random.default_rng(0).normal(0.05, 0.1, 4000)
    return residuals_of(dict.fromkeys(("ttft_ms", "tpot_ms", "e2el_ms", "output_throughput"), errors), "test")


def test_an_interval_is_the_prediction_over_the_errors_quantiles(known: Residuals) -> None:
    low, high = known.interval("tpot_ms", 10.0, 0.8) or (0, 0)
    assert low == pytest.approx(10 * math.exp(-0.05 - 1.2816 * 0.1), rel=0.02)
    assert high == pytest.approx(10 * math.exp(-0.05 + 1.2816 * 0.1), rel=0.02)
    assert known.interval("unknown_ms", 10.0, 0.8) is None


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9])
def test_an_interval_holds_its_share_of_outcomes_that_err_alike(known: Residuals, level: float) -> None:
    measured = 10.0 / np.exp(np.random.default_rng(1).normal(0.05, 0.1, 4000))
    low, high = known.interval("ttft_ms", 10.0, level) or (0, 0)
    assert np.mean((low <= measured) & (measured <= high)) == pytest.approx(level, abs=0.03)


def test_few_errors_reach_to_their_own_ends_and_no_further() -> None:
    """Of three the first is at a quarter and the last at three: half of all lies between them."""
    few = residuals_of({"tpot_ms": np.array([-0.1, 0.0, 0.1])}, "test")
    low, high = few.interval("tpot_ms", 1.0, 0.5) or (0, 0)
    assert (math.log(low), math.log(high)) == pytest.approx((-0.1, 0.1))
    with pytest.raises(UsageError, match=r"--interval 0\.8: .* at most 0\.50, the largest that the errors in test"):
        few.interval("tpot_ms", 1.0, 0.8)


@pytest.mark.parametrize("level", [0.0, 1.0, 0.999, -0.5])
def test_a_level_that_the_errors_do_not_reach_is_refused(known: Residuals, level: float) -> None:
    with pytest.raises(UsageError, match=r"at most 0\.98"):
        known.interval("tpot_ms", 1.0, level)


def test_errors_in_e2el_and_throughput_follow() -> None:
    log_errors = {"ttft_ms": np.array([0.3]), "tpot_ms": np.array([-0.1])}
    measured = {"ttft_ms": np.array([100.0]), "tpot_ms": np.array([10.0])}
    found = with_derived(log_errors, measured, np.array([11.0]))
    expected = math.log((100 * math.exp(0.3) + 100 * math.exp(-0.1)) / 200)
    assert found["e2el_ms"][0] == pytest.approx(expected)
    assert found["output_throughput"][0] == pytest.approx(-expected)


def test_a_file_gives_back_what_was_written(known: Residuals, tmp_path: Path) -> None:
    read = read_residuals(write_residuals(tmp_path / "c.toml", known), "held_out")
    assert read.probabilities == known.probabilities
    assert read.log_errors["tpot_ms"] == pytest.approx(known.log_errors["tpot_ms"], abs=1e-5)


@pytest.mark.parametrize("text", ["", "[held_out]\n", "held_out = 3\n", "[held_out]\nprobabilities = [0.1, 0.9]\n",
                                  "[held_out]\nprobabilities = [0.9, 0.1]\nlog_errors = {tpot_ms = [1.0, 2.0]}\n",
                                  "[held_out]\nprobabilities = [0.1, 0.9]\nlog_errors = {tpot_ms = [1.0]}\n"])
def test_a_file_without_errors_says_so(text: str, tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(text)
    with pytest.raises(CatalogError, match=r"c\.toml.*held_out"):
        read_residuals(path, "held_out")


def test_a_file_of_too_few_runs_says_so(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text("[held_out]\nprobabilities = [0.1, 0.9]\nlog_errors = {}\n")
    with pytest.raises(CatalogError, match=r"c\.toml: has no held-out errors: it was fitted to too few runs"):
        read_residuals(path, "held_out")


def test_a_line_has_no_errors() -> None:
    with pytest.raises(UsageError, match="linear:1,1"):
        residuals_for(deploy(Scenario(step_time="linear:1,1", max_model_len=1024, num_gpu_blocks=64)))


def test_a_summary_has_intervals_around_its_means_and_throughput_in_a_closed_loop_alone(
        known: Residuals, tmp_path: Path) -> None:
    path = write_residuals(tmp_path / "c.toml", known, "[constants]\nlinear_ratio = 1.0\n")
    common = {**H100, "calibration": str(path), "interval": 0.8, "num_prompts": 20}
    for load, is_closed in (({"max_concurrency": 4}, True), ({"request_rate": 4.0}, False)):
        scenario = Scenario(**common, **load)  # type: ignore[arg-type]
        summary = replay(client_load(scenario), scenario, slo=None, recording=Recording()).summary
        low, high = summary["mean_tpot_ms_interval"]
        assert low < summary["mean_tpot_ms"] < high
        assert (summary["output_throughput_interval"] is not None) == is_closed
        assert any("throughput has no interval" in note for note in summary["notes"]) != is_closed
        assert summary["deployment"]["calibration"] == str(path)
        assert any(str(path) in note for note in summary["notes"])


def interval_of(scenario: Scenario) -> tuple[float, float, list[str]]:
    """Return mean TPOT's interval as factors of the prediction, and the notes."""
    summary = replay(client_load(scenario), scenario, slo=None, recording=Recording()).summary
    low, high = summary["mean_tpot_ms_interval"]
    return low / summary["mean_tpot_ms"], high / summary["mean_tpot_ms"], summary["notes"]


def closed(**options: Any) -> Scenario:
    plain: dict[str, Any] = {"model": "llama-3.1-8b", "max_concurrency": 4, "num_prompts": 20, "interval": 0.8}
    return Scenario(**plain | options)


def own_profile(path: Path, kernels_of: str | None = None) -> str:
    """Write an H100's profile under another name; its kernels are unmeasured unless they are said to be another's."""
    text = (data_dir("hardware_db") / "gpus" / "h100-sxm.toml").read_text()
    _, _, rest = text.partition('vendor = "NVIDIA"')
    kernels = f'\nkernels_of = "{kernels_of}"' if kernels_of else ""
    path.write_text(f'name = "my-gpu"\nvendor = "NVIDIA"{kernels}{rest}')
    return str(path)


def test_intervals_of_gpus_that_nobody_measured_are_wider_and_say_on_what_they_rest(tmp_path: Path) -> None:
    low, high, said = interval_of(closed(gpu="h100-sxm"))
    assert 0.9 < low < 1 < high < 1.15
    assert not any("intervals use" in note for note in said)
    for gpu in ("mi300x", "a40", "h20", own_profile(tmp_path / "my-gpu.toml")):
        low, high, said = interval_of(closed(gpu=gpu))
        assert low < 0.87 < 1.6 < high
        assert any(note.startswith("intervals use the errors of 128 runs on 9 GPUs")
                   and "dense layers, attention" in note for note in said)
    borrowed = interval_of(closed(gpu=own_profile(tmp_path / "my-h100.toml", kernels_of="h100-sxm")))
    assert borrowed[1] < 1.15


def test_an_accelerator_whose_runs_contradict_the_prediction_has_their_errors_and_a_note() -> None:
    """Gaudi 3: the range holds times that were 4 times the prediction, and a note says so without a range too."""
    low, high, said = interval_of(closed(gpu="gaudi-3"))
    assert low < 1 < 3.8 < high
    assert any("8 published runs on gaudi-3 took 3.1 to 4.4 times the predicted TPOT" in note for note in said)
    assert any(note.startswith("intervals use the errors of 136 runs on 10 GPUs (gaudi-3, ") for note in said)


def test_operators_that_nobody_measured_widen_them_too() -> None:
    _, high, said = interval_of(closed(gpu="a100-sxm", model="gpt-oss-20b"))
    assert high > 1.6
    assert any("kernels of experts, attention were not measured on a100-sxm" in note for note in said)


def test_a_calibration_has_its_own_errors_on_its_own_gpu_alone(known: Residuals, tmp_path: Path) -> None:
    source = '[source]\nengine = "vllm"\ngpu = ["h20"]\n[constants]\nlinear_ratio = 1.0\n'
    path = str(write_residuals(tmp_path / "c.toml", known, source))
    assert residuals_for(deploy(closed(gpu="h20", calibration=path))).source == path
    assert residuals_for(deploy(closed(gpu="h100-sxm", calibration=path))).source == path
    other = residuals_for(deploy(closed(gpu="mi300x", calibration=path)))
    assert other.source.endswith("unmeasured_kernels.toml")
    assert "mi300x" in other.basis


def test_a_fleet_of_measured_gpus_and_others_has_no_one_interval(tmp_path: Path) -> None:
    pools = "".join(f'[[pool]]\nname = "{gpu}"\ngpu = "{gpu}"\nreplicas = 1\n' for gpu in ("h100-sxm", "mi300x"))
    (tmp_path / "fleet.toml").write_text(pools)
    scenario = closed(gpu="h100-sxm", fleet=str(tmp_path / "fleet.toml"), max_concurrency=None, request_rate=2.0)
    with pytest.raises(UsageError, match="differ in engine, calibration or measured GPU"):
        replay(client_load(scenario), scenario, slo=None, recording=Recording())


def test_a_value_outside_its_interval_is_explained(tmp_path: Path) -> None:
    """Held-out runs that all came out shorter than predicted put the interval below the value."""
    low = residuals_of(dict.fromkeys(("ttft_ms", "tpot_ms"), np.linspace(0.3, 0.6, 50)), "test")
    path = write_residuals(tmp_path / "c.toml", low, "[constants]\nlinear_ratio = 1.0\n")
    below, above, said = interval_of(closed(gpu="h100-sxm", calibration=str(path)))
    assert below < above < 1
    explained = [note for note in said if "outside its 80 % interval" in note]
    assert [note.partition(" = ")[0] for note in explained] == ["mean_ttft_ms", "mean_tpot_ms"]
    assert all("was 1.57 times the measured value" in note for note in explained)


@pytest.mark.parametrize(("num_groups", "together_below", "apart_below"),
                         [(2, 0.56, 0.85), (3, 0.66, 0.85), (5, 0.71, 0.82), (10, 0.76, 0.82)])
def test_errors_of_groups_with_their_own_bias_cover_a_group_that_is_not_among_them(
        num_groups: int, together_below: float, apart_below: float) -> None:
    """Groups of 50 runs, biases twice as wide as runs' own errors: runs of one more, 1,000 times."""
    rng = np.random.default_rng(5)
    groups = np.repeat([f"g{k}" for k in range(num_groups)], 50).tolist()
    together: list[float] = []
    apart: list[float] = []
    for _ in range(1000):
        errors = np.repeat(rng.normal(0, 0.2, num_groups), 50) + rng.normal(0, 0.1, 50 * num_groups)
        new = rng.normal(0, 0.2) + rng.normal(0, 0.1, 50)
        for found, expected in ((together, errors), (apart, of_a_new_group(errors, groups))):
            low, high = np.quantile(expected, (0.1, 0.9))
            found.append(float(np.mean((new >= low) & (new <= high))))
    assert np.mean(together) < together_below
    assert 0.79 < np.mean(apart) < apart_below


def test_one_group_has_its_errors_and_missing_ones_are_left_out() -> None:
    errors = np.array([0.1, np.nan, -0.2])
    assert of_a_new_group(errors, ["a", "b", "a"]).tolist() == [0.1, -0.2]
    assert len(of_a_new_group(np.array([0.1, np.nan, -0.2]), ["a", "a", "b"])) == 2 * len(STUDENT)


def test_a_deployment_that_drafts_has_the_errors_of_runs_with_drafts() -> None:
    """GLM-5.2 in NVFP4 on 8 B200 (sgl-project/sglang#29674), not among those runs: 1.85 ms of TPOT at 1 in flight."""
    drafting = deploy(Scenario(model="nvidia/GLM-5.2-NVFP4", gpu="b200-sxm", engine="sglang", tensor_parallel_size=8,
                               num_speculative_tokens=5, speculative_acceptance="length:3.5", max_model_len=16384))
    found = residuals_for(drafting)
    assert found.source.endswith("drafts.toml")
    assert "8 runs on 4 GPUs (b200-sxm, b300-sxm, gb300, h200-sxm) that verify drafts" in found.basis
    low, high = found.interval("tpot_ms", 3.23, 0.8) or (0.0, 0.0)
    assert low < 1.85 < 3.23 < high
    alone = deploy(Scenario(model="nvidia/GLM-5.2-NVFP4", gpu="b200-sxm", engine="sglang", tensor_parallel_size=8,
                            max_model_len=16384))
    assert residuals_for(alone).source.endswith("sglang.toml")
