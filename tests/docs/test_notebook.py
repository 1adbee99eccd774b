"""The notebook in docs is what its cells give, and what the notebook's functions say is what the commands say."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import planner

ROOT = Path(__file__).resolve().parents[2]
LLAMA = planner.Scenario(model="llama-3.1-8b", gpu="h100-sxm", limit=500)


def outputs(path: Path) -> list[Any]:
    """Return the source of each cell with its outputs as text."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [("".join(cell["source"]), ["".join(output["data"]["text/plain"]) for output in cell.get("outputs", [])
                                       if "data" in output]) for cell in cells]


def test_the_notebook_is_what_its_cells_give(tmp_path: Path) -> None:
    path = tmp_path / "notebook.ipynb"
    done = subprocess.run([sys.executable, ROOT / "docs" / "make_notebook.py", path], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stderr
    assert outputs(path) == outputs(ROOT / "docs" / "notebook.ipynb"), "run make notebook"


def test_a_replay_is_shown_as_a_table() -> None:
    outcome = planner.replay(planner.read_trace("chat"), LLAMA, slo="ttft:500")
    html = outcome._repr_html_()
    assert "<table" in html
    assert "p99_ttft_ms" in html
    assert outcome.requests.height == 500
    assert outcome.steps.is_empty()


def test_answers_are_mappings_that_print_and_show_themselves(tmp_path: Path) -> None:
    """Each of them: keys of the command's JSON, the command's text, and HTML with its table."""
    two = {"one": LLAMA, "two": replace(LLAMA, max_num_seqs=4)}
    answers: dict[str, tuple[Any, str]] = {
        "explain": (planner.explain("chat", LLAMA, slo="ttft:500"), "sentence"),
        "compare": (planner.compare("chat", two, slo="ttft:500"), "two"),
        "capacity": (planner.capacity("chat", LLAMA, "ttft:500", replicates=0, horizon="trace"), "capacity_rps"),
        "size": (planner.size("chat", LLAMA, "ttft:500", gpus=["h100-sxm"], tensor_parallel_sizes=[1], jobs=1),
                 "num_gpus"),
        "sweep": (planner.sweep("chat", LLAMA, {"max_num_seqs": [4, 64]}, output=tmp_path / "s.parquet", jobs=1),
                  "front"),
        "best": (planner.sweep("chat", LLAMA, {"max_num_seqs": [4, 64]}, output=tmp_path / "o.parquet", jobs=1,
                               slo="ttft:500", attainment=0.5, optimize=True,
                               constraints=[{"metric": "p99_ttft_ms", "max": 5000}]), "best"),
    }
    for name, (answer, key) in answers.items():
        assert key in answer, name
        assert list(answer) == list(answer.keys()) == list(dict(**answer))
        html = answer._repr_html_()
        assert "<table" in html, name
        assert str(answer) == repr(answer)
        assert answer.to_polars().height, name
    assert list(answers["compare"][0]) == ["one", "two"]
    assert answers["best"][0]["best"]["max_num_seqs"] in (4, 64)
    assert answers["capacity"][0].capacity == answers["capacity"][0]["capacity_rps"]
    assert repr(answers["capacity"][0]).startswith("capacity ")


def test_the_other_questions_are_answered_too(tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_text('[gpus]\nh100-sxm = 4\n[deployment.chat]\ntrace = "chat"\n'
                                           'model = "llama-3.1-8b"\nslo = "ttft:500"\nlimit = 100\n')
    (tmp_path / "targets.toml").write_text('[scenario.chat]\ntrace = "chat"\nmodel = "llama-3.1-8b"\n'
                                           'gpu = "h100-sxm"\nlimit = 100\n[[scenario.chat.target]]\n'
                                           'metric = "p99_ttft_ms"\nmax = 500\n')
    fleets = planner.share(tmp_path / "cluster.toml", minimize="cost", price="h100-sxm=2", jobs=1)
    verdicts = planner.check(tmp_path / "targets.toml")
    probe = planner.probe("chat", replace(LLAMA, limit=100), "ttft:500")
    for answer, key in ((fleets, "deployments"), (verdicts, "checks"), (probe, "benchmarks")):
        assert answer.to_polars().height == len(answer[key])
        assert "<table" in answer._repr_html_()
    assert fleets.deployments[0].fleet.price_usd_per_gpu_hour == 2.0
    assert verdicts.met


def test_an_option_is_named_as_its_field_or_as_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "prices.toml").write_text("[h100-sxm]\non_demand = 7.0\n")
    small = replace(LLAMA, limit=50)
    one, two = (planner.size("chat", small, "ttft:500", jobs=1, compare_assumptions=False, **options) for options in (
        {"tensor_parallel_size": "1", "price_file": tmp_path / "prices.toml", "spare": 1},
        {"ranks": (1,), "prices": {"h100-sxm": 7.0}, "num_spare": 1}))
    assert one == two
    assert one.cheapest is not None
    assert one.cheapest.price_usd_per_gpu_hour == 7.0
    with pytest.raises(TypeError, match="unexpected keyword argument 'tensor_parallel'"):
        planner.size("chat", small, "ttft:500", tensor_parallel=1)


def test_a_capacity_of_several_replicas_is_more() -> None:
    one, two = (planner.capacity("chat", replace(LLAMA, data_parallel_size=count, router="round-robin"), "ttft:500",
                                 replicates=0, horizon="trace") for count in (1, 2))
    assert 1.8 * one["capacity_rps"] < two["capacity_rps"] < 3 * one["capacity_rps"]


def test_mistakes_are_errors_of_ours() -> None:
    with pytest.raises(planner.PlannerError, match="did you mean 'ttft'"):
        planner.explain("chat", LLAMA, slo="tfft:500")
    with pytest.raises(planner.PlannerError, match="unknown option"):
        planner.sweep("chat", LLAMA, {"max_num_seq": [1]})
