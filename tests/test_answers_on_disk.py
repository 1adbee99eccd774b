"""Answers kept on disk: the same question is answered without a search, and any other question is searched."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers import scenario_of, trace_of

from planner.planning import capacity_search
from planner.planning.answers_on_disk import answers_kept
from planner.planning.capacity import capacity
from planner.planning.fingerprint import scenario_sha256
from planner.planning.search_options import Search
from planner.settings.objectives import parse_objectives
from planner.settings.scenario import Scenario

SEARCH = Search(replicates=0, horizon="trace", compare_assumptions=False)
ROWS = [(0.1 * k, 100, 10) for k in range(300)]


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[float]:
    """Count searches by their starts; answers are kept in a folder of the test."""
    monkeypatch.setenv("PLANNER_ANSWERS", str(tmp_path / "answers"))
    starts: list[float] = []
    search = capacity_search.settled

    def counted(load: Any, start: float) -> Any:
        starts.append(start)
        return search(load, start)

    monkeypatch.setattr("planner.planning.capacity.settled", counted)
    return starts


def answer(rows: list[tuple[float, int, int]] = ROWS, slo: str = "ttft:2000", **options: Any) -> Any:
    of_search = {name: options.pop(name) for name in ("scaling", "seed", "jobs") if name in options}
    scenario = scenario_of(max_num_seqs=4, step_time="linear:0.05,0", **options)
    with answers_kept():
        return capacity(trace_of(rows), scenario, parse_objectives(slo, 0.9), replace(SEARCH, **of_search))


def test_the_same_question_is_searched_once(searches: list[float]) -> None:
    first = answer(jobs=1)
    assert answer(jobs=2) == first  # the number of processes changes no answer
    assert len(searches) == 1
    with answers_kept(False):
        again = capacity(trace_of(ROWS), scenario_of(max_num_seqs=4, step_time="linear:0.05,0"),
                         parse_objectives("ttft:2000", 0.9), SEARCH)
    assert again == first
    assert len(searches) == 2


@pytest.mark.parametrize("other", [
    {"rows": [*ROWS[:-1], (29.9, 101, 10)]}, {"rows": ROWS[:-1]}, {"slo": "ttft:2001"}, {"max_num_batched_tokens": 600},
    {"scaling": "compress"}, {"seed": 1}], ids=str)
def test_another_question_is_searched(searches: list[float], other: dict[str, Any]) -> None:
    answer()
    answer(**other)
    assert len(searches) == 2


def test_without_a_block_nothing_is_kept(searches: list[float], tmp_path: Path) -> None:
    for _ in range(2):
        capacity(trace_of(ROWS), scenario_of(max_num_seqs=4, step_time="linear:0.05,0"),
                 parse_objectives("ttft:2000", 0.9), SEARCH)
    assert len(searches) == 2
    assert not (tmp_path / "answers").exists()


def test_a_damaged_answer_is_searched_anew(searches: list[float], tmp_path: Path,
                                           caplog: pytest.LogCaptureFixture) -> None:
    first = answer()
    (kept,) = tmp_path.rglob("output.pkl")
    kept.write_bytes(b"no pickle")
    assert answer() == first
    assert "Exception while loading results" in caplog.text
    assert len(searches) == 2


def test_the_oldest_answers_make_room(searches: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planner.planning.answers_on_disk.KEPT_BYTES", 20_000)
    for limit in range(2000, 2012):
        answer(slo=f"ttft:{limit}")
    size = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert 0 < size < 22_000
    assert len(list(tmp_path.rglob("output.pkl"))) < 12


@pytest.mark.parametrize("changed", ["config.json", "hf_quant_config.json"])
@pytest.mark.parametrize("named", ["", "config.json"])
def test_a_checkpoint_counts_by_its_files(tmp_path: Path, changed: str, named: str) -> None:
    for name in ("config.json", "hf_quant_config.json"):
        (tmp_path / name).write_text(json.dumps({"model_type": "llama"}))
    scenario = Scenario(model=str(tmp_path / named), gpu="h100-sxm")
    before = scenario_sha256(scenario)
    assert scenario_sha256(scenario) == before
    (tmp_path / changed).write_text(json.dumps({"model_type": "qwen2"}))
    assert scenario_sha256(scenario) != before


def test_tests_keep_no_answers() -> None:
    assert os.environ["PLANNER_ANSWERS"] == ""
