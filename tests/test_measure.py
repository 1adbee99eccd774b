"""A campaign on a user's node: the runs that teach the most, their script, and what a calibration learns of them."""

import itertools
import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import H100, fails, planner

from planner.errors import UsageError
from planner.planning.measure import choose_runs, measure
from planner.run import replay
from planner.settings.scenario import Scenario, parse_scenario
from planner.steptime.engine_constants import bounds
from planner.traces.shaping.client_load import client_load

NODE = {"compute_ratio": 1.35, "host_s": 0.004}  # a server with slower kernels and a slower host


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a campaign of six runs."""
    folder: Path = tmp_path_factory.mktemp("campaign") / "node"
    run = planner("measure", *H100, "--runs", "6", "--minutes", "8", "--output", folder, "--json", "-")
    assert run.returncode == 0, run.stderr
    (folder / "answer.json").write_text(run.stdout)
    return folder


@pytest.fixture(scope="module")
def answer(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "answer.json").read_text())
    return found


def measured(answer: dict[str, Any], calibration: Path) -> str:
    """Return the results that a server with other constants gives, as `vllm bench serve` appends them."""
    lines = []
    for run in answer["runs"]:
        load = {name: run[name] for name in ("max_concurrency", "num_prompts", "random_input_len", "random_output_len")}
        scenario = parse_scenario({"model": "llama-3.1-8b", "gpu": "h100-sxm", "calibration": str(calibration), **load})
        summary, count = replay(client_load(scenario), scenario).summary, run["num_prompts"]
        lines.append(json.dumps({
            "duration": count / summary["request_throughput"], "completed": count, "num_prompts": count,
            "total_input_tokens": count * run["random_input_len"], "request_rate": "inf",
            "total_output_tokens": count * run["random_output_len"], "max_concurrency": run["max_concurrency"],
            "mean_ttft_ms": summary["mean_ttft_ms"], "mean_tpot_ms": summary["mean_tpot_ms"]}))
    return "\n".join(lines) + "\n"


def test_runs_fit_into_the_time_and_each_teaches_something(answer: dict[str, Any]) -> None:
    assert len(answer["runs"]) == 6
    assert sum(run["duration_s"] for run in answer["runs"]) == pytest.approx(answer["duration_s"])
    assert answer["duration_s"] <= answer["limit_s"] == 480
    left = [1.0, *(run["uncertainty_left"] for run in answer["runs"])]
    assert all(after < before for before, after in itertools.pairwise(left))
    assert len({(run["max_concurrency"], run["random_input_len"], run["random_output_len"])
                for run in answer["runs"]}) == 6


def test_the_script_warms_up_and_appends_each_run_to_one_file(folder: Path, answer: dict[str, Any]) -> None:
    lines = [line for line in (folder / "measure.sh").read_text().splitlines() if line.startswith("run ")]
    warm_up, *runs = (line.removeprefix("run ") for line in lines)
    assert runs == [run["command"] for run in answer["runs"]]
    assert all(shlex.split(command)[-1] == "results.json" for command in runs)
    assert "--save-result" not in warm_up
    assert runs[0].startswith(warm_up)


def test_a_calibration_on_the_folder_learns_the_node(folder: Path, answer: dict[str, Any], tmp_path: Path) -> None:
    truth, learnt = tmp_path / "truth.toml", tmp_path / "learnt.toml"
    truth.write_text("[constants]\n" + "".join(f"{name} = {value}\n" for name, value in NODE.items()))
    (folder / "results.json").write_text(measured(answer, truth))
    run = planner("calibrate", folder, "--folds", "3", "--output", learnt, "--json", "-")
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert found["source"]["num_runs"] == 6
    for metric in ("ttft_ms", "tpot_ms"):
        assert found["after"][metric]["mape"] < found["before"][metric]["mape"] / 2, metric
    other = {"max_concurrency": 32, "num_prompts": 128, "random_input_len": 2048, "random_output_len": 128,
             "model": "llama-3.1-8b", "gpu": "h100-sxm"}
    times = [_tpot(other | made) for made in ({"calibration": str(truth)}, {}, {"calibration": str(learnt)})]
    assert abs(times[2] - times[0]) < abs(times[1] - times[0]) / 2  # of a load that no run had
    verdict = planner("validate", folder, "--calibration", learnt, "--max-error", "tpot:5 ttft:10")
    assert verdict.returncode == 0, verdict.stdout


def _tpot(options: dict[str, Any]) -> float:
    scenario = parse_scenario(options)
    return float(replay(client_load(scenario), scenario).summary["mean_tpot_ms"])


def test_the_next_run_is_the_one_that_tells_what_the_others_do_not() -> None:
    slopes = np.zeros((4, 2, len(bounds())))
    slopes[0, :, 0] = slopes[1, :, 0] = 1.0  # two runs that show the same constant
    slopes[2, :, 1] = 0.5
    chosen = choose_runs(slopes, [10, 10, 10, 1000], limit_s=100, num_runs=4)
    assert list(chosen)[:2] in ([0, 2], [1, 2])
    assert 3 not in chosen  # it is longer than the limit


@pytest.mark.parametrize(("options", "words"), [
    ({"minutes": 0.0}, "--minutes 0; must be above 0"), ({"num_runs": 0}, "--runs 0; must be at least 1"),
    ({"minutes": 0.1}, "the shortest run takes")])
def test_a_campaign_that_is_none_is_refused(options: dict[str, Any], words: str) -> None:
    asked: dict[str, Any] = {"minutes": 20.0, "num_runs": 6, "folder": Path("node")} | options
    with pytest.raises(UsageError, match=words):
        measure(Scenario(model="llama-3.1-8b", gpu="h100-sxm"), jobs=1, **asked)


def test_folders_are_neither_replaced_nor_guessed(folder: Path, tmp_path: Path) -> None:
    lonely, empty = tmp_path / "lonely", tmp_path / "empty"
    for made in (lonely, empty):
        made.mkdir()
    (lonely / "deployment.toml").write_text((folder / "deployment.toml").read_text())
    for words, code, error in ((("measure", *H100, "--output", folder), 2, "has a measure.sh"),
                               (("measure", "--output", tmp_path / "other"), 2, "--model and --gpu must be given"),
                               (("calibrate", empty), 3, "deployment.toml"),
                               (("calibrate", lonely), 2, "does not exist; run")):
        run = planner(*words)
        fails(run, code, error)
