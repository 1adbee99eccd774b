"""JSON Schema of answers: valid schemas, which the JSON of each command keeps."""

import inspect
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import planner, run_here
from measured_runs import row_of, write_runs

from planner.commands.cli import app
from planner.commands.db_cli import db
from planner.commands.trace_cli import trace
from planner.report.answer_schemas import SCHEMAS, answer_schema

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed; pip install '.[dev]'")

H100 = "--model llama-3.1-8b --gpu h100-sxm --limit 100"
SLO = "--slo 'ttft:500 tpot:50'"
TARGETS = """[scenario.chat]
trace = "chat"
limit = 50
model = "llama-3.1-8b"
gpu = "h100-sxm"
slo = "ttft:500"
[[scenario.chat.target]]
metric = "slo_attainment"
min = 0.9
"""
CLUSTER = """[gpus]
h100-sxm = 2
[deployment.chat]
trace = "chat"
limit = 50
model = "llama-3.1-8b"
slo = "ttft:500 tpot:50"
tensor_parallel_size = 1
"""
FLEET = "[[pool]]\nrole = 'prefill'\n[[pool]]\nrole = 'decode'\n"
COMMANDS = {
    "replay": [f"chat {H100} {SLO} --interval 0.8 --explain",
               f"agents {H100} --data-parallel-size 2 --prefill-replicas 1 --max-retries 1",
               f"rag {H100} --enable-prefix-caching --kv-offloading-size 8 --kv-remote-size 8",
               f"chat {H100} --fleet fleet.toml"],
    "compare": [f"chat {H100} --policy fcfs,sjf --explain"],
    "capacity": [f"chat {H100} {SLO} --replicates 2", f"chat {H100} --slo ttft:500 --of concurrency --quick",
                 f"chat {H100} --slo ttft:1 --quick"],
    "probe": [f"chat {H100} {SLO}"],
    "size": [f"chat --model llama-3.1-8b --gpu h100-sxm,a10 --limit 100 --request-rate 20 {SLO} --quick",
             f"chat {H100} --request-rate 20 {SLO} --quick --tensor-parallel-size 1 --sensitivity --growth 2x/year"],
    "share": ["cluster.toml"],
    "rollouts": ["rollouts --limit 64 --model qwen3-8b --gpu h100-sxm --prompts 2 --trainer-time 9 --steps 1"],
    "sweep": [f"chat {H100} --axis max_num_seqs=64,128 {SLO}"],
    "check": ["targets.toml"],
    "validate": ["runs.csv"],
    "launch": ["'vllm serve meta-llama/Llama-3.1-8B-Instruct --max-num-seqs 64 --no-such-flag'"],
    "trace describe": ["chat"],
    "trace synth": ["chat --output drawn.csv"],
    "trace convert": ["fitted-chat out.jsonl"],
    "trace from-prometheus": ["rates.csv"],
    "db list": [""],
    "db show": ["h100-sxm", "llama-3.1-8b"],
    "db prices": ["--gpu h100-sxm", "--cloud aws"],
    "db apis": [""],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "targets.toml").write_text(TARGETS)
    (tmp_path / "cluster.toml").write_text(CLUSTER)
    (tmp_path / "fleet.toml").write_text(FLEET)
    (tmp_path / "rates.csv").write_text("start_s,rate_rps\n0,2\n60,3\n")
    write_runs(tmp_path / "runs.csv", row_of(), row_of(concurrency=8))
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(("command", "options"),
                         [(command, options) for command, lines in COMMANDS.items() for options in lines])
def test_the_json_of_a_command_keeps_its_schema(command: str, options: str, folder: Path) -> None:
    run_here([*command.split(), *shlex.split(options), "--json", "answer.json"], folder)
    answer = json.loads((folder / "answer.json").read_text())
    jsonschema.Draft202012Validator(answer_schema(command)).validate(answer)


def test_schemas_are_valid_and_have_the_units() -> None:
    for command in SCHEMAS:
        jsonschema.Draft202012Validator.check_schema(answer_schema(command))
    assert COMMANDS.keys() | {"calibrate", "measure", "watch"} == SCHEMAS.keys()
    run = planner("schema", "trace", "describe")
    assert json.loads(run.stdout) == answer_schema("trace describe")
    summary: dict[str, Any] = json.loads(planner("schema").stdout)["replay"]["properties"]
    assert summary["p99_ttft_ms"]["description"].endswith("Unit: ms")


def test_a_wrong_answer_does_not_keep_the_schema() -> None:
    schema = jsonschema.Draft202012Validator(answer_schema("check"))
    answer = {"targets": "t.toml", "met": True, "checks": [], "scenarios": {}, "notes": []}
    assert schema.is_valid(answer)
    assert not schema.is_valid(answer | {"met": "yes"})
    assert not schema.is_valid(answer | {"more": 1})
    assert not schema.is_valid({name: value for name, value in answer.items() if name != "checks"})


def test_a_launch_command_is_read_as_options() -> None:
    run = planner("launch", "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-num-seqs 64 --no-such-flag", "--gpu",
                  "h100-sxm", "--json", "-")
    answer = json.loads(run.stdout)
    assert answer["options"] == {"engine": "vllm", "model": "meta-llama/Llama-3.1-8B-Instruct", "max_num_seqs": 64,
                                 "gpu": "h100-sxm"}
    assert "--no-such-flag" in " ".join(answer["notes"])
    assert planner(*shlex.split(answer["replay_command"])[1:], "--limit", "5").returncode == 0


def test_every_command_with_json_has_a_schema() -> None:
    commands = {f"{group}{entry.name or entry.callback.__name__}": parameters
                for group, commands in (("", app), ("db ", db), ("trace ", trace))
                for entry in commands.registered_commands if entry.callback is not None
                for parameters in [inspect.signature(entry.callback).parameters]}
    assert {name for name, parameters in commands.items() if {"json", "json_lines"} & parameters.keys()} == {*SCHEMAS}


def test_the_schemas_load_no_compiler() -> None:
    """The assistant's server lists the schemas at its start. It keeps the loaded modules until it ends."""
    script = "import sys, planner.report.answer_schemas; print(*{'numba', 'scipy.stats'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "\n"
