"""The server of tools, asked by the SDK's own client over both transports, and by clients that mean harm."""

import asyncio
import contextlib
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import run_here
from helpers import finished
from measured_runs import row_of, write_runs

pytest.importorskip("mcp", reason="the mcp package is not installed; pip install 'llm-serving-planner[mcp]'")
psutil = pytest.importorskip("psutil", reason="psutil is not installed; pip install 'llm-serving-planner[mcp]'")

import httpx2 as httpx  # noqa: E402
from mcp import Client, MCPError  # noqa: E402
from mcp.client.stdio import StdioServerParameters  # noqa: E402

from planner.assistant.documents import SKILL  # noqa: E402
from planner.assistant.tools import TOOLS, parameters_of  # noqa: E402
from planner.report.answer_schemas import SCHEMAS  # noqa: E402

DEPLOYMENT = {"model": "llama-3.1-8b", "gpu": "h100-sxm"}
SLO = "ttft:500 tpot:50"
NUM_REQUESTS = 200
TARGETS = """[scenario.chat]
trace = "log.csv"
model = "llama-3.1-8b"
gpu = "h100-sxm"
slo = "ttft:500 tpot:50"
[[scenario.chat.target]]
metric = "slo_attainment"
min = 0.9
"""
CLUSTER = """[gpus]
h100-sxm = 2
[deployment.chat]
trace = "log.csv"
model = "llama-3.1-8b"
slo = "ttft:500 tpot:50"
tensor_parallel_size = 1
"""
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("catalog", {}),
    ("describe_trace", {"source": "log.csv"}),
    ("read_launch", {"command": "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-num-seqs 64", "gpu": "h100-sxm"}),
    ("replay", {"trace": "log.csv", **DEPLOYMENT, "slo": SLO, "options": {"interval": 0.8}}),
    ("explain", {"trace": "log.csv", **DEPLOYMENT, "slo": SLO}),
    ("capacity", {"trace": "log.csv", **DEPLOYMENT, "slo": SLO, "options": {"quick": True}}),
    ("compare", {"sources": ["log.csv"], **DEPLOYMENT, "max_num_seqs": 64, "options": {"policy": "fcfs,sjf"}}),
    ("sweep", {"source": "log.csv", **DEPLOYMENT, "axis": ["max_num_seqs=32,64"], "slo": SLO}),
    ("size", {"trace": "log.csv", **DEPLOYMENT, "slo": SLO, "request_rate": 30,
              "options": {"quick": True, "tensor_parallel_size": "1", "write": "k8s=llm.yaml"}}),
    ("check", {"targets": "targets.toml"}),
    ("share", {"cluster": "cluster.toml"}),
    ("validate", {"measured": "runs.csv"}),
    ("probe", {"trace": "log.csv", **DEPLOYMENT, "slo": SLO, "script": "probe.sh"}),
    ("rollouts", {"trace": "rollouts", **DEPLOYMENT, "prompts": 4, "group_size": 4, "trainer_time": 60.0,
                  "options": {"limit": 128}}),
]
TIMES = {"simulated_requests_per_s", "wall_s"}  # of a computation: no two runs have the same


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "named"
    path.mkdir()
    write_log(path / "log.csv", NUM_REQUESTS)
    (path / "targets.toml").write_text(TARGETS)
    (path / "cluster.toml").write_text(CLUSTER)
    write_runs(path / "runs.csv", row_of(), row_of(concurrency=8))
    return path


def write_log(path: Path, num_requests: int) -> None:
    rows = (f"{0.2 * i:.3f},{100 + 37 * i % 900},{20 + 13 * i % 200}" for i in range(num_requests))
    path.write_text("arrival_s,input_tokens,output_tokens\n" + "\n".join(rows) + "\n")


def words(folder: Path, *options: str) -> list[str]:
    return ["-m", "planner.commands.cli", "mcp", "--folder", str(folder), *options]


@contextlib.asynccontextmanager
async def served(transport: str, folder: Path, *options: str) -> AsyncIterator[Client]:
    """Serve a folder, and connect the SDK's client."""
    if transport == "stdio":
        server = StdioServerParameters(command=sys.executable, args=words(folder, *options), env=dict(os.environ))
        async with Client(server) as client:
            yield client
        return
    with http_server(folder, *options) as url:
        async with Client(url) as client:
            yield client


@contextlib.contextmanager
def http_server(folder: Path, *options: str) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, *words(folder, "--http", str(port), *options)])
    try:
        for _ in range(300):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        process.wait(20)


def call(folder: Path, name: str, arguments: dict[str, Any], *options: str) -> Any:
    """Return the result of one call over stdio."""

    async def ask() -> Any:
        async with served("stdio", folder, *options) as client:
            return await client.call_tool(name, arguments)

    return finished(ask())


def text_of(result: Any) -> str:
    return "\n".join(part.text for part in result.content)


def answered(transport: str, folder: Path, calls: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    """Return the results of calls. The client checks answers against the schemas that are listed."""
    told: list[str] = []

    async def tell(_: float, __: float | None, message: str | None) -> None:
        told.append(message or "")

    async def ask() -> dict[str, Any]:
        async with served(transport, folder) as client:
            assert {tool.name for tool in (await client.list_tools()).tools} == {name for name, _ in CALLS}
            return {name: await client.call_tool(name, arguments, progress_callback=tell) for name, arguments in calls}

    results = finished(ask())
    assert {name: text_of(result) for name, result in results.items() if result.is_error} == {}
    assert any("log.csv" in line for line in told)
    return results


def assert_command_lines(results: dict[str, Any], folder: Path) -> None:
    """Assert that each answer is the command line's to the digit, and has its command line and its notes."""
    for name, result in results.items():
        content = result.structured_content
        run = run_here([*shlex.split(content["command"])[1:], "--json", "-"], folder)
        assert run.returncode == content["exit_code"], run.stderr
        assert timeless(content["answer"]) == timeless(json.loads(run.stdout)), name
        assert f"$ {content['command']}" in text_of(result)
        assert set(content["notes"]) >= {line.removeprefix("note: ") for line in run.stderr.splitlines()
                                         if line.startswith("note: ")}, name


def test_calls_of_all_tools_lead_from_a_log_to_a_deployment_file(folder: Path) -> None:
    results = answered("stdio", folder, CALLS)
    manifest = (folder / "llm.yaml").read_text()
    assert "vllm" in manifest
    assert results["replay"].structured_content["errors"].keys() >= {"mean_ttft_ms_interval"}
    assert results["size"].structured_content["errors"].keys() == {"step_error", "covers_error"}
    assert results["share"].structured_content["errors"].keys() == {"chat.step_error", "chat.covers_error"}
    assert results["validate"].structured_content["errors"]["overall"]["coverage"] == 1
    assert_command_lines(results, folder)


def test_calls_over_http_have_the_same_answers(folder: Path) -> None:
    assert_command_lines(answered("http", folder, CALLS[:6]), folder)


def timeless(answer: Any) -> Any:
    """Return an answer without the times of its computation."""
    if isinstance(answer, list):
        return [timeless(part) for part in answer]
    return {name: value for name, value in answer.items() if name not in TIMES} if isinstance(answer, dict) else answer


def test_documents_are_there(folder: Path) -> None:
    async def ask() -> dict[str, str]:
        async with served("stdio", folder) as client:
            with pytest.raises(MCPError, match=r"unknown document.*known: accuracy, glossary, options, skill"):
                await client.read_resource("planner://../secret")
            listed = (await client.list_resources()).resources
            return {part.name: (await client.read_resource(part.uri)).contents[0].text
                    for part in listed}

    texts = finished(ask())
    assert "`p99_ttft_ms`" in texts["glossary"]
    assert "`max_num_seqs`" in texts["options"]
    assert "TPOT median error" in texts["accuracy"]
    assert "describe_trace" in texts["skill"]


def test_the_skill_names_commands_tools_and_options_that_exist() -> None:
    rows = [line.split("|") for line in SKILL.read_text().splitlines() if line.startswith("| ") and "planner " in line]
    assert len(rows) >= 18
    for _, _, commands, tools, _ in rows:
        named = [words for words in re.findall(r"`planner ([^`]*)`", commands) if not words.startswith("schema")]
        for words in named:
            path = next(path for path in (" ".join(words.split()[:2]), words.split()[0]) if path in SCHEMAS)
            flags = {flag for parameter in parameters_of(path).values() for flag in parameter.flags}
            assert set(re.findall(r"--[a-z-]+", words)) <= flags | {"--json"}, words
        assert all(tool in (*TOOLS, "write") for tool in re.findall(r"`(\w+)`", tools))


def test_no_call_leaves_the_named_folders(folder: Path, tmp_path: Path) -> None:
    """Paths outside are refused in arguments, in links, in files that name other files, and in launch commands."""
    outside = tmp_path / "outside"
    outside.mkdir()
    write_log(outside / "log.csv", 20)
    (outside / "policy.py").write_text("raise SystemExit('this ran')\n")
    (folder / "policy.py").write_text("raise SystemExit('this ran')\n")
    (folder / "link.csv").symlink_to(outside / "log.csv")
    (folder / "far.toml").write_text(TARGETS.replace("log.csv", str(outside / "log.csv")))
    before = sorted(outside.iterdir())
    replayed = {"trace": "log.csv", **DEPLOYMENT}
    calls: list[tuple[str, dict[str, Any]]] = [
        ("replay", {**replayed, "trace": str(outside / "log.csv")}),
        ("replay", {**replayed, "trace": "../outside/log.csv"}),
        ("replay", {**replayed, "trace": "link.csv"}),
        ("replay", {**replayed, "trace": f"sqlite:///{outside}/log.csv#t"}),
        ("replay", {**replayed, "trace": "/proc/self/environ"}),
        ("replay", {**replayed, "options": {"requests": str(outside / "requests.csv")}}),
        ("replay", {**replayed, "options": {"policy": str(outside / "policy.py")}}),
        ("replay", {**replayed, "options": {"policy": "policy.py:mine"}}),
        ("replay", {**replayed, "data_parallel_size": 2, "options": {"fail_replica": str(outside / "log.csv")}}),
        ("replay", {**replayed, "options": {"tenants": str(outside / "log.csv")}}),
        ("replay", {**replayed, "options": {"fleet": str(outside / "log.csv")}}),
        ("replay", {**replayed, "options": {"calibration": str(outside / "log.csv")}}),
        ("replay", {"trace": "log.csv", "gpu": "h100-sxm", "from_command": [str(outside / "log.csv")]}),
        ("read_launch", {"command": str(outside / "log.csv")}),
        ("read_launch", {"command": f"vllm serve --config {outside}/log.csv"}),
        ("check", {"targets": "far.toml"}),
        ("check", {"targets": "targets.toml", "junit": str(outside / "junit.xml")}),
        ("size", {**replayed, "slo": SLO, "options": {"write": f"k8s={outside}/llm.yaml"}}),
        ("sweep", {"source": "log.csv", **DEPLOYMENT, "axis": ["max_num_seqs=64"], "output": "../outside/s.parquet"}),
        ("validate", {"measured": str(outside / "log.csv"), **DEPLOYMENT}),
    ]

    async def ask() -> list[Any]:
        async with served("stdio", folder) as client:
            return [await client.call_tool(name, arguments) for name, arguments in calls]

    answers = [(arguments, result.is_error, text_of(result)) for (_, arguments), result in
               zip(calls, finished(ask()), strict=True)]
    judged = [(arguments, text) for arguments, is_error, text in answers
              if not is_error or not ("outside" in text or "databases cannot" in text) or "this ran" in text]
    assert judged == []
    assert sorted(outside.iterdir()) == before


@pytest.mark.parametrize(("options", "words"), [
    (("--most-requests", "100"), ("has 200 requests", "at most 100")),
    (("--most-memory", "0.05"), ("0.05 GiB of memory", "--most-memory")),
    (("--most-seconds", "0.5"), ("0.5 s", "--most-seconds")),
])
def test_a_call_keeps_to_the_bounds(options: tuple[str, ...], words: tuple[str, ...], folder: Path) -> None:
    result = call(folder, "replay", {"trace": "log.csv", **DEPLOYMENT}, *options)
    assert result.is_error
    assert all(word in text_of(result) for word in words), text_of(result)


def test_five_calls_at_once_take_turns(folder: Path) -> None:
    most = 0

    async def ask() -> list[Any]:
        nonlocal most
        async with served("stdio", folder, "--most-calls", "2") as client:
            calls = [asyncio.create_task(client.call_tool("catalog", {})) for _ in range(5)]
            while not all(task.done() for task in calls):
                most = max(most, len(commands_of_servers()))
                await asyncio.sleep(0.05)
            return [task.result() for task in calls]

    results = finished(ask())
    assert {text_of(result) for result in results} == {text_of(results[0])}
    assert not any(result.is_error for result in results)
    assert most == 2


def commands_of_servers() -> list[Any]:
    """Return the processes of calls that servers of this test have started."""
    below = psutil.Process().children(recursive=True)
    lines = {}
    for process in below:
        with contextlib.suppress(psutil.NoSuchProcess):
            lines[process] = process.cmdline()
    return [process for process, line in lines.items() if "planner.commands.cli" in line and "mcp" not in line]


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_a_cancelled_call_tells_its_stages_until_its_work_ends(transport: str, folder: Path) -> None:
    write_log(folder / "long.csv", 200_000)
    arguments = {"trace": "long.csv", **DEPLOYMENT, "slo": SLO}
    told: list[str] = []

    async def tell(_: float, __: float | None, message: str | None) -> None:
        told.append(message or "")

    async def ask() -> Any:
        async with served(transport, folder) as client:
            asked = asyncio.create_task(client.call_tool("capacity", arguments, progress_callback=tell))
            for _ in range(300):
                await asyncio.sleep(0.1)
                if any("s so far" in line for line in told):
                    break
            assert any("s so far" in line for line in told), told
            assert commands_of_servers()
            asked.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asked
            for _ in range(150):
                await asyncio.sleep(0.1)
                if not commands_of_servers():
                    break
            assert not commands_of_servers()
            return await client.call_tool("catalog", {})

    assert not finished(ask()).is_error


@pytest.mark.parametrize(("transport", "end"), [("stdio", "close"), ("stdio", "terminate"), ("http", "terminate")])
def test_a_server_that_ends_takes_its_calls_along(transport: str, end: str, folder: Path) -> None:
    write_log(folder / "long.csv", 200_000)

    async def ask() -> list[Any]:
        started: list[Any] = []
        with contextlib.suppress(Exception, asyncio.CancelledError):
            async with served(transport, folder) as client:
                asked = asyncio.create_task(client.call_tool("capacity", {"trace": "long.csv", **DEPLOYMENT,
                                                                          "slo": SLO}))
                while not (started := commands_of_servers()) and not asked.done():
                    await asyncio.sleep(0.1)
                if end == "terminate":
                    started[0].parent().terminate()
                    return started
                asked.cancel()
        return started

    started = finished(ask())
    assert started
    assert psutil.wait_procs(started, timeout=20)[1] == []


def test_refused_calls_leave_no_memory(folder: Path) -> None:
    async def ask() -> tuple[int, int]:
        async with served("stdio", folder) as client:
            sizes = []
            for _ in range(2):
                for _ in range(500):
                    assert (await client.call_tool("replay", {"trace": "../x.csv"})).is_error
                sizes.append(sum(process.memory_info().rss for process in psutil.Process().children()))
            return sizes[0], sizes[1]

    first, second = finished(ask())
    assert second - first < 4 * 2**20


STAND_IN = """import sys
from types import SimpleNamespace
from planner.assistant import bounded_run, mcp_server
bounded_run.sys = SimpleNamespace(executable=sys.argv.pop())
mcp_server.main()
"""


@pytest.mark.slow
def test_answered_calls_leave_no_memory(folder: Path, tmp_path: Path) -> None:
    """A script stands in for the command, and gives the answer of a real call. The rest is the server's own work."""
    name, arguments = CALLS[3]
    real = call(folder, name, arguments)
    (tmp_path / "answer.json").write_text(json.dumps(real.structured_content["answer"]))
    (tmp_path / "text").write_text(text_of(real))
    command = tmp_path / "command"
    command.write_text(f'#!/bin/sh\nfor path; do :; done\ncat {tmp_path}/text\necho "note: a" >&2\n'
                       f'cp {tmp_path}/answer.json "$path"\n')
    command.chmod(0o755)
    settings = {"port": None, "folders": [str(folder)], "most_requests": 10**6, "most_bytes": 2**33,
                "most_seconds": 60, "most_calls": 2}
    server = StdioServerParameters(command=sys.executable, args=["-c", STAND_IN, json.dumps(settings), str(command)],
                                   env=dict(os.environ))

    async def ask() -> list[float]:
        sizes = []
        async with Client(server) as client:
            for num_calls in (100, 400):
                for _ in range(num_calls):
                    result = await client.call_tool(name, arguments)
                    assert result.structured_content == real.structured_content | {
                        "notes": result.structured_content["notes"]}
                sizes.append(sum(process.memory_info().rss for process in psutil.Process().children()) / 2**20)
        return sizes

    first, second = finished(ask())
    assert second - first < 2


def test_wrong_arguments_are_named(folder: Path) -> None:
    calls: list[tuple[str, dict[str, Any], str]] = [
        ("replay", {}, "trace: must be given"),
        ("replay", {"trace": "chat", "gpus": "h100-sxm"}, "did you mean 'gpu'"),
        ("replay", {"trace": "chat", "options": {"limitt": 3}}, "did you mean 'limit'"),
        ("replay", {"trace": "chat", "options": "limit"}, "must be an object"),
        ("replay", {"trace": {"name": "chat"}}, "must be text without NUL, a number"),
        ("replay", {"trace": "chat", "options": {"limit": "many"}}, "Invalid value for '--limit'"),
        ("replay", {"trace": "--help"}, "must not start with '-'"),
        ("replay", {"trace": "log.csv\0"}, "must be text without NUL"),
        ("replay", {"trace": "chat", "slo": "ttft:500\0"}, "must be text without NUL"),
        ("replay", {"trace": "chat", "model": "no-such-model", "gpu": "h100-sxm"}, "no-such-model"),
        ("no_such_tool", {}, "unknown tool"),
    ]

    async def ask() -> list[Any]:
        async with served("stdio", folder) as client:
            return [await client.call_tool(name, arguments) for name, arguments, _ in calls]

    for (_, _, said), result in zip(calls, finished(ask()), strict=True):
        assert result.is_error
        assert said in text_of(result), text_of(result)


def test_broken_json_stops_no_server(folder: Path) -> None:
    """Over stdio the server answers the next message, and over HTTP the next request."""
    first = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}}
    lines = ["{broken", '{"jsonrpc": "2.0", "id": 9, "method": 7}', "", "[]", json.dumps(first)]
    with subprocess.Popen([sys.executable, *words(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n".join(lines) + "\n")
        process.stdin.flush()
        answers = iter(process.stdout)
        assert any(json.loads(answer).get("id") == 1 for answer in answers)
        process.stdin.close()
    accepted = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    with http_server(folder) as url:
        assert httpx.post(url, content="{broken", headers=accepted).status_code == 400
        assert httpx.post(url, json=first, headers={**accepted, "Host": "evil.example"}).status_code == 421
        assert httpx.post(url, json=first, headers=accepted).status_code == 200
