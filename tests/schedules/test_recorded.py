"""Recorded schedules: given the same requests, limits and step times, the planner does what the real scheduler did."""

import json
import os
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from helpers import number
from typer.testing import CliRunner

from planner.commands.cli import app

SHARED = Path(os.environ.get("PLANNER_SHARED", Path(__file__).parents[3] / "shared"))
SCHEDULES = SHARED / "schedules"
CASES = sorted(path.parent for folder in (SCHEDULES, SHARED / "schedules_engines", SHARED / "schedules_tight",
                                                 SHARED / "schedules_atom")
               for path in folder.glob("*/settings.json"))
FURTHER = {"trt_equal_progress": ["--context-chunking-policy", "EQUAL_PROGRESS"]}  # options that a recording lacks
IDS = {"request_id": pl.String}


# `make quick` replays every sixth recording.
@pytest.fixture(params=[pytest.param(path, id=path.name, marks=[pytest.mark.slow] if place % 6 else [])
                        for place, path in enumerate(CASES or [SCHEDULES])])
def case(request: pytest.FixtureRequest) -> Path:
    if not CASES:
        pytest.skip(f"no recordings in {SCHEDULES}; PLANNER_SHARED names the folder above schedules/")
    path: Path = request.param
    return path


def options_beside(settings: dict[str, Any]) -> list[str]:
    """Return the options that a recording has beside its `arguments`."""
    options = [word for name, value in settings.get("further", {}).items() if isinstance(value, int | float)
               for word in (f"--{name.replace('_', '-')}", str(value))] if "atom" in settings["engine"] else []
    if settings.get("enable_mixed_chunk"):
        options.append("--enable-mixed-chunk")
    if settings.get("server_args", {}).get("enable_priority_scheduling"):
        options.append("--enable-priority-scheduling")
    if "schedule_policy" in settings:
        options += ["--schedule-policy", settings["schedule_policy"]]
    return options


def replay_case(case: Path, *outputs: str) -> None:
    settings = json.loads((case / "settings.json").read_text())
    arguments = [*settings["arguments"], *options_beside(settings), *FURTHER.get(case.name, [])]
    done = CliRunner().invoke(app, ["replay", str(case / "trace.jsonl.gz"), *arguments, *outputs])
    assert done.exit_code == 0, f"{done.exception!r}\n{done.output}"


def assert_same_rows(found: Path, recorded: Path, *by: str) -> None:
    """Order within a step is free: some recordings took it out of a set."""
    wanted = pl.read_csv(recorded, schema_overrides=IDS).sort(by)
    got = pl.read_csv(found, schema_overrides=IDS).select(wanted.columns).sort(by)
    if not got.equals(wanted):
        wrong = got.join(wanted, on=wanted.columns, how="anti").head(3)
        missing = wanted.join(got, on=wanted.columns, how="anti").head(3)
        pytest.fail(f"{recorded.name}: {got.height} rows for {wanted.height}; first wrong {wrong}; missing {missing}")


def assert_same_times(found: pl.DataFrame, recorded: pl.DataFrame, tolerance_s: float) -> None:
    """Requests without a first token were refused; some were dropped later, and say so."""
    answered = recorded["first_token_s"].is_not_null()
    assert found["status"].is_in(("completed", "failed")).to_list() == answered.to_list()
    found, recorded = found.filter(answered), recorded.filter(answered)
    pairs = found.join(recorded, on="request_id", how="full", suffix="_recorded")
    for ours, theirs in (("first_token_at_s", "first_token_s"), ("finished_at_s", "finish_s")):
        difference = (pairs[ours] - pairs[theirs]).abs()
        assert difference.null_count() == 0
        worst = difference.arg_max() or 0
        assert number(difference.max()) <= tolerance_s, f"{ours} of request {pairs['request_id'][worst]}"


def test_schedule_is_the_recorded_one(case: Path, tmp_path: Path) -> None:
    steps, preemptions, requests = (tmp_path / name for name in ("steps.csv", "preemptions.csv", "requests.parquet"))
    replay_case(case, "--schedule", str(steps), "--preemptions", str(preemptions), "--requests", str(requests))
    found, recorded = pl.read_parquet(requests), pl.read_csv(case / "requests.csv", schema_overrides=IDS)
    assert_same_times(found, recorded, 1e-6)
    if case.name.startswith("fleet"):  # its steps are counted by replica, and nobody is preempted or cached
        assert_same_rows(steps, case / "steps.csv.gz", "replica", "step", "request_id")
        assert pl.read_csv(preemptions).is_empty()
        return
    assert_same_rows(steps, case / "steps.csv.gz", "step", "request_id")
    assert_same_rows(preemptions, case / "preemptions.csv", "step", "request_id")
    recorded = recorded.filter(pl.col("first_token_s").is_not_null())
    cached = found.filter(pl.col("status") != "rejected").select("request_id", "num_cached_tokens").sort("request_id")
    assert cached.equals(recorded.select("request_id", "num_cached_tokens").cast(cached.schema).sort("request_id"))


@pytest.mark.slow
def test_times_are_the_recorded_ones_when_nothing_is_recorded(case: Path, tmp_path: Path) -> None:
    """Without a schedule to write, stretches of decodes are taken at once."""
    requests = tmp_path / "requests.parquet"
    replay_case(case, "--requests", str(requests))
    recorded = pl.read_csv(case / "requests.csv", schema_overrides=IDS)
    assert_same_times(pl.read_parquet(requests), recorded, 1e-9)
