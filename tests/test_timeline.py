"""A replay as a Chrome trace: steps, counters and spans of requests, and paths that cannot be written."""

import gzip
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from helpers import play
from typer.testing import CliRunner

from planner.commands.cli import app
from planner.replays.result_tables import ReplayResult
from planner.results.timeline import write_timeline

SECONDS: dict[str, Any] = {"step_time": "linear:1,0"}
ROWS = [(0.0, 10, 3), (0.5, 20, 2), (0.5, 10, 2)]


def events(result: ReplayResult, path: Path) -> list[dict[str, Any]]:
    write_timeline(result, path)
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    found: list[dict[str, Any]] = json.loads(text)["traceEvents"]
    return found


def spans(found: list[dict[str, Any]], request: str) -> dict[str, tuple[float, float]]:
    """Return where a request's spans begin and end [s]."""
    ends = {event["name"]: event["ts"] for event in found if event["ph"] == "e" and event["id"] == request}
    return {event["name"]: (event["ts"] / 1e6, ends[event["name"]] / 1e6) for event in found
            if event["ph"] == "b" and event["id"] == request}


def test_steps_and_requests_are_where_the_tables_have_them(tmp_path: Path) -> None:
    """One seat: the second request waits for the first's three steps."""
    result = play(ROWS, **SECONDS, max_num_seqs=1)
    found = events(result, tmp_path / "trace.json")
    steps = [event for event in found if event["ph"] == "X"]
    assert [(event["ts"] / 1e6, event["dur"] / 1e6) for event in steps] == result.steps_table().select(
        "start_s", "duration_s").rows()
    assert [event["name"] for event in steps] == ["prompts", "decodes", "decodes", *["prompts", "decodes"] * 2]
    assert spans(found, "0") == {"request 0": (0, 3), "prefill": (0, 1), "decode": (1, 3)}
    assert spans(found, "1") == {"request 1": (0.5, 5), "queue": (0.5, 3), "prefill": (3, 4), "decode": (4, 5)}


def test_every_span_that_begins_ends_in_its_process(tmp_path: Path) -> None:
    found = events(play([(0.1 * k, 20 + k, 1 + k % 5) for k in range(40)], **SECONDS, data_parallel_size=3,
                        max_num_seqs=2), tmp_path / "trace.json.gz")
    key = ("name", "cat", "id", "pid")
    begun, ended = ({tuple(event[name] for name in key): event["ts"] for event in found if event["ph"] == phase}
                    for phase in "be")
    assert begun.keys() == ended.keys()
    assert all(begun[span] <= ended[span] for span in begun)
    named = {event["pid"]: event["args"]["name"] for event in found if event["ph"] == "M"}
    assert {event["pid"] for event in found} <= named.keys()
    assert named[1] == "replica 0"
    assert named[6] == "requests of replica 2"


def test_counters_change_with_each_event(tmp_path: Path) -> None:
    found = events(play(ROWS, **SECONDS, max_num_seqs=1), tmp_path / "trace.json")
    waiting = [event["args"]["num_waiting"] for event in found if event["name"] == "num_waiting"]
    assert waiting == [0, 2, 1, 0]


def test_a_handover_is_a_span(tmp_path: Path) -> None:
    result = play([(0.0, 10, 3)], **SECONDS, data_parallel_size=2, prefill_replicas=1, kv_transfer_latency=0.5)
    assert spans(events(result, tmp_path / "trace.json"), "0") == {
        "request 0": (0, 3.5), "prefill": (0, 1), "handover": (1, 1.5), "decode": (1.5, 3.5)}


def test_a_request_that_never_runs_has_no_phases(tmp_path: Path) -> None:
    found = events(play([(0.0, 999, 3), (0.0, 10, 1)], **SECONDS, max_model_len=100), tmp_path / "trace.json")
    assert set(spans(found, "0")) <= {"request 0", "queue"}
    assert next(event for event in found if event["name"] == "request 0")["args"]["status"] == "rejected"


def test_the_command_writes_it(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    pl.DataFrame({"arrival_s": [0.0, 0.1], "input_tokens": [10, 10], "output_tokens": [2, 2]}).write_csv(trace)
    path = tmp_path / "out.json"
    done = CliRunner().invoke(app, ["replay", str(trace), "--step-time", "linear:0.01,0", "--num-gpu-blocks", "99",
                                    "--timeline", str(path)])
    assert done.exit_code == 0
    assert json.loads(path.read_text())["displayTimeUnit"] == "ms"


@pytest.mark.parametrize("name", ["out.csv", "out"])
def test_another_ending_is_refused_before_the_replay(name: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["replay", "chat", "--step-time", "linear:0.01,0", "--timeline",
                                    str(tmp_path / name)])
    assert f"--timeline {tmp_path / name}: must end with .json or .json.gz" in str(done.exception)
    assert not list(tmp_path.iterdir())
