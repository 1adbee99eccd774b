"""An engine is one file, one table of constants and one line of registration; then every question has an answer.

The questions go to a made-up engine, and to ATOM, which came last and keeps the same contract.

The engine is added to a copy of the package, which a process of its own imports, so that this process never knows it.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest
import yaml

from planner.catalog.catalog_files import data_dir
from planner.engines import ENGINES

ROOT = Path(__file__).parents[1]
FILE = '''
"""A made-up engine. Its scheduler is in `loop/`: `serving.py` and `admission.py`."""

import re

from planner.engines.dialect import Dialect, Flag
from planner.engines.engine import Defaults, Engine, EngineDefaults
from planner.engines.package import Metrics, Package

MADE_UP = Engine(
    name="madeup", title="Made Up",
    defaults=Defaults(options=EngineDefaults(
        policy="fcfs", max_num_seqs=96, max_num_batched_tokens=4096, max_prefill_tokens=0,
        enable_chunked_prefill=True, async_scheduling=True, gpu_memory_utilization=0.85)),
    dialect=Dialect(launch=("madeup", "run", "--model"), commands=(re.compile("madeup run"),),
                    images=("madeup/server",), roles={"--role": {"prefill": "prefill", "decode": "decode"}},
                    entries=(Flag(names=("--seats",), option="max_num_seqs"),
                             Flag(names=("--gpus",), option="tensor_parallel_size"),
                             Flag(names=("--context",), option="max_model_len"))),
    metrics=Metrics(prefix="madeup", running="running", cache=("hits", "queries"),
                    histograms={name: (name,) for name in ("ttft", "itl", "input", "output")},
                    totals={"input": "read", "output": "written"}),
    package=Package(names="madeup", image="madeup/server:{}", classes={"madeup.LLM": {}},
                    role_flags={role: ("--role", role) for role in ("prefill", "decode")}))
'''
DEPLOYMENT = ("--engine", "madeup", "--model", "llama-3.1-8b", "--gpu", "h100-sxm")


@dataclass(frozen=True, kw_only=True)
class Known:
    """What the answers for an engine have."""

    name: str
    title: str
    seats: int
    launch: str
    image: str
    seats_flag: str
    backend: str

    @property
    def deployment(self) -> tuple[str, ...]:
        return ("--engine", self.name, *DEPLOYMENT[2:])


KNOWN = (
    Known(name="madeup", title="Made Up", seats=96, launch="madeup run --model", image="madeup/server:latest",
          seats_flag="--seats", backend="openai"),
    Known(name="atom", title="ATOM", seats=512, launch="python -m atom.entrypoints.openai_server --model",
          image="rocm/atom:latest", seats_flag="--max-num-seqs", backend="vllm"))
of_both = pytest.mark.parametrize("engine", KNOWN, ids=lambda engine: engine.name)
LOAD = ("chat", "--limit", "100")
Run = Callable[..., str]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package and its data, with the engine."""
    house = tmp_path_factory.mktemp("house")
    for name in ("planner", "hardware_db", "workloads", "reports"):
        shutil.copytree(ROOT / name, house / name, ignore=shutil.ignore_patterns("__pycache__"))
    (house / "planner/engines/made_up.py").write_text(FILE.lstrip(), encoding="utf-8")
    shutil.copy(data_dir("hardware_db") / "engines/vllm.toml", house / "hardware_db/engines/madeup.toml")
    registry = house / "planner/engines/__init__.py"
    text = registry.read_text(encoding="utf-8")
    registered = text.replace("ATOM, TEI)", "ATOM, TEI, made_up.MADE_UP)")
    assert registered != text
    registry.write_text(registered.replace("from planner.engines.engine", "from planner.engines import made_up\n"
                                           "from planner.engines.engine", 1), encoding="utf-8")
    return house


@pytest.fixture
def run(house: Path, tmp_path: Path) -> Run:
    """Return a function that runs a command of the copied package in a temporary folder and returns its output.

    With `-c` it runs a Python program.
    """
    def run_words(*words: object) -> str:
        head = () if words[0] == "-c" else ("-m", "planner.commands.cli")
        done = subprocess.run(
            [sys.executable, *head, *map(str, words)], cwd=tmp_path, capture_output=True, text=True, check=False,
            env=os.environ | {"PYTHONPATH": str(house), "COLUMNS": "200", "NO_COLOR": "1", "PLANNER_ANSWERS": ""})
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout
    return run_words


def test_this_process_does_not_know_it() -> None:
    assert "madeup" not in ENGINES


@of_both
def test_it_replays_with_its_defaults(run: Run, engine: Known) -> None:
    found = json.loads(run("replay", *LOAD, *engine.deployment, "--json", "-"))
    assert found["deployment"]["engine"] == engine.name
    assert found["deployment"]["memory"]["max_num_seqs"] == engine.seats
    assert found["deployment"]["value_sources"]["max_num_seqs"] == "engine"
    assert found["completed"] == 100


@of_both
def test_prefill_apart_has_the_mean_slowdown_with_its_note(run: Run, engine: Known) -> None:
    found = json.loads(run("replay", *LOAD, *engine.deployment, "--data-parallel-size", 2, "--prefill-replicas", 1,
                           "--json", "-"))
    note = next(note for note in found["notes"] if f"no published run shows {engine.title}'s" in note)
    assert note.startswith("a step takes 1.14 times its kernels")


@of_both
def test_a_sized_fleet_is_written_and_read_back(run: Run, engine: Known, tmp_path: Path) -> None:
    said = run("size", *LOAD, *engine.deployment, "--slo", "ttft:2000", "--tensor-parallel-size", 1, "--max-num-seqs",
               64, "--no-compare-assumptions", "--write", "k8s=llm.yaml")
    assert engine.launch in said
    container = yaml.safe_load((tmp_path / "llm.yaml").read_text())["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == engine.image
    assert container["command"][-2:] == [engine.seats_flag, "64"]
    found = json.loads(run("replay", *LOAD, "--from-command", "llm.yaml", "--gpu", "h100-sxm", "--json", "-"))
    assert (found["deployment"]["engine"], found["policy"]["max_num_seqs"]) == (engine.name, 64)


def test_a_fleet_with_prefill_apart_is_sized_and_written(run: Run) -> None:
    found = json.loads(run("size", *LOAD, *DEPLOYMENT, "--slo", "ttft:4000", "--tensor-parallel-size", 1,
                           "--disaggregate", "--no-compare-assumptions", "--json", "-"))
    apart = next(fleet for fleet in found["alternatives"] if fleet["prefill_replicas"])
    said = run("-c", "import sys; from planner.launch.write_manifest import EngineGroup, manifest; "
                     "print(manifest('compose', [EngineGroup(command=sys.argv[1], replicas=1, role='decode')]))",
               apart["decode_command"])
    assert yaml.safe_load(said)["services"]["llm-decode"]["entrypoint"][-2:] == ["--role", "decode"]


@of_both
def test_benchmarks_are_named_for_it(run: Run, engine: Known) -> None:
    said = run("probe", *LOAD, *engine.deployment, "--slo", "ttft:2000")
    assert engine.launch in said
    assert f"vllm bench serve --backend {engine.backend}" in said


@of_both
def test_measured_runs_are_compared_with_it(run: Run, engine: Known, tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text(
        "engine,model,gpu,isl,osl,concurrency,tp,measured_ttft_ms,measured_tpot_ms\n"
        f"{engine.name},llama-3.1-8b,h100-sxm,1000,100,4,1,60,8\n", encoding="utf-8")
    run("validate", "runs.csv", "--predictions", "predicted.csv")
    row = pl.read_csv(tmp_path / "predicted.csv").row(0, named=True)
    assert (row["engine"], row["predicted_ttft_ms"] > 0) == (engine.name, True)


def test_a_scrape_of_its_metrics_is_compared_with_it(run: Run, tmp_path: Path) -> None:
    upper = {"ttft": 0.1, "itl": 0.01, "input": 800, "output": 100}
    (tmp_path / "metrics.prom").write_text("".join(
        f'madeup:{name}_bucket{{le="{edge}"}} 40\nmadeup:{name}_count 40\nmadeup:{name}_sum {20 * edge}\n'
        for name, edge in upper.items()), encoding="utf-8")
    run("validate", "metrics.prom", *DEPLOYMENT, "--max-concurrency", 4, "--predictions", "predicted.csv")
    row = pl.read_csv(tmp_path / "predicted.csv").row(0, named=True)
    assert (row["engine"], row["measured_ttft_ms"]) == ("madeup", 50.0)


@pytest.mark.parametrize("text", [
    "madeup run --model meta-llama/Llama-3.1-8B --seats 32 --gpus 2 --context 9000",
    "docker run madeup/server:1.2.3 madeup run --model meta-llama/Llama-3.1-8B --seats 32 --gpus 2 --context 9000"])
def test_its_launch_is_read_and_written(run: Run, text: str) -> None:
    said = run("-c", "import sys; from planner.launch import launch_command, read_launch; "
                     "from planner.settings.scenario import Scenario; found = read_launch(sys.argv[1]); "
                     "print(found.options['engine'], launch_command(Scenario(**found.options)))", text)
    engine, _, written = said.partition(" ")
    assert engine == "madeup"
    assert written.strip() == ("('madeup run --model meta-llama/Llama-3.1-8B --gpus 2 --context 9000 --seats 32', ())")


def test_its_python_class_and_its_file_are_read(run: Run, tmp_path: Path) -> None:
    (tmp_path / "serve.py").write_text("from madeup import LLM\nLLM('meta-llama/Llama-3.1-8B', seats=16)\n")
    (tmp_path / "args.yaml").write_text("seats: 16\ngpus: 1\ncontext: 9000\n")
    for path in ("serve.py", "args.yaml"):
        found = json.loads(run("replay", *LOAD, *DEPLOYMENT[2:], "--from-command", path, "--json", "-"))
        assert (found["deployment"]["engine"], found["policy"]["max_num_seqs"]) == ("madeup", 16), path


@of_both
def test_it_is_compared_with_other_engines(run: Run, engine: Known) -> None:
    said = run("compare", *LOAD, *DEPLOYMENT[2:], "--engine", f"vllm,{engine.name}")
    assert re.search(rf"engine=vllm +engine={engine.name}", said)


def test_the_dashboard_draws_its_card(run: Run, tmp_path: Path) -> None:
    (tmp_path / "page.py").write_text("""
import streamlit as st
from planner.planning.search_options import Choices
from planner.planning.sizing import size
from planner.settings.objectives import parse_objectives
from planner.settings.scenario import Scenario
from planner.traces import read_trace
from planner.ui.fleet_answer import card, published_error
trace, scenario = read_trace("chat"), Scenario(model="llama-3.1-8b", gpu="h100-sxm", engine="madeup", limit=100)
found = size(trace, scenario, parse_objectives("ttft:2000"), Choices(ranks=(1,), compare_assumptions=False))
error = published_error(trace, scenario, found.cheapest)
card(found, found.cheapest, 0.0, error, "chat")
st.text(error[1])
""", encoding="utf-8")
    said = run("-c", "from streamlit.testing.v1 import AppTest; page = AppTest.from_file('page.py').run(timeout=60); "
                     "assert not page.exception, page.exception; print(page.code[0].value, page.text[0].value)")
    assert "madeup run --model" in said
    assert "Half of the measured Made Up runs" in said
