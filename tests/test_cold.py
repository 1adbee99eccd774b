"""Cold replicas: measured first use, its choice by engine, release, GPU and format, and who pays it."""

from pathlib import Path
from typing import Any

import pytest
from helpers import play
from test_autoscale import spans, write

from planner.catalog.catalog_files import data_dir, gpu_names
from planner.deployment.deploy import deploy
from planner.engines import ENGINES
from planner.errors import CatalogError, UsageError
from planner.results.notes import notes
from planner.settings.scenario import Scenario
from planner.steptime import first_use
from planner.steptime.first_use import first_use_of, measured_first_uses
from planner.traces.shaping.client_load import random_load

SECONDS: dict[str, Any] = {"step_time": "linear:1,0", "cold": True, "first_use_s": 7.0}
DEEPSEEK: dict[str, Any] = {"model": "nvidia/DeepSeek-R1-0528-FP4", "gpu": "mi355x", "engine": "sglang",
                            "tensor_parallel_size": 8}


def first_use_s(**options: Any) -> float:
    return deploy(Scenario(**{**DEEPSEEK, **options})).settings.first_use_s


def test_a_replica_is_warm_by_default() -> None:
    assert first_use_s(engine_version="0.5.7") == 0.0
    assert first_use_s(engine_version="0.5.7", first_use_s=3.0) == 0.0


@pytest.mark.parametrize(("version", "of"), [
    ("0.5.6.post2", "0.5.6"), ("0.5.7", "0.5.7"), ("0.5.8", "0.5.7"), ("0.5.4", "0.5.6"), (None, "0.5.9")])
def test_the_newest_release_up_to_the_replayed_one_counts(version: str | None, of: str) -> None:
    row = first_use_of("sglang", version, "mi355x", "mxfp4")
    assert row.engine_version == of
    assert first_use_s(engine_version=version, cold=True) == row.first_use_s


def test_the_users_value_goes_first() -> None:
    assert first_use_s(engine_version="0.5.7", cold=True, first_use_s=3.0) == 3.0


def test_what_was_not_measured_is_refused_with_a_remedy() -> None:
    with pytest.raises(UsageError, match=r"no first use of vllm on h100-sxm in bf16 .* give --first-use-s.*mi355x in"):
        deploy(Scenario(model="llama-3.1-8b", gpu="h100-sxm", cold=True))
    with pytest.raises(UsageError, match="give both, or --first-use-s"):
        play([(0.0, 10, 10)], step_time="linear:1,0", cold=True)
    assert deploy(Scenario(model="llama-3.1-8b", gpu="h100-sxm", cold=True, first_use_s=2.0)).settings.first_use_s == 2


def test_a_note_names_the_runs() -> None:
    load = random_load(num_prompts=1, input_tokens=8, output_tokens=8, range_ratio=0.0, seed=0)
    lines = notes(deploy(Scenario(**DEEPSEEK, engine_version="0.5.7", cold=True)), load)
    assert any("first step takes longer by 21.4 s, the median of 20 runs of DeepSeek-R1 in fp4" in line
               for line in lines)
    idle = notes(deploy(Scenario(**DEEPSEEK, first_use_s=3.0)), load)
    assert "first_use_s = 3.0: no effect without --cold" in idle


def test_the_bundled_values_are_of_known_engines_and_gpus_and_between_their_ends() -> None:
    rows = measured_first_uses()
    assert len({(row.engine, row.gpu, row.precision, row.engine_version) for row in rows}) == len(rows)
    for row in rows:
        assert row.engine in ENGINES
        assert row.gpu in gpu_names()
        assert 0 < row.shortest_s <= row.first_use_s <= row.longest_s
        assert row.num_runs >= 2


@pytest.mark.parametrize(("change", "words"), [
    ({"first_use_s": 0.0}, "first_use_s = 0.0; must be a number above 0"), ({"gpu": None}, "lacks gpu"),
    ({"gpus": 1}, "unknown keys gpus")])
def test_a_bad_row_says_its_place(change: dict[str, Any], words: str, tmp_path: Path,
                                  monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"engine": '"sglang"', "gpu": '"mi355x"', "precision": '"fp4"', "engine_version": '"1"', "model": '"m"',
           "first_use_s": 1.0, "shortest_s": 1.0, "longest_s": 1.0, "num_runs": 2} | change
    text = "".join(f"{name} = {value}\n" for name, value in row.items() if value is not None)
    (tmp_path / "first_use.toml").write_text(f"[[first_use]]\n{text}")
    monkeypatch.setattr(first_use, "data_dir", lambda _: tmp_path)
    with pytest.raises(CatalogError, match=words):
        measured_first_uses.__wrapped__()
    assert (data_dir("hardware_db") / "first_use.toml").exists()


def test_a_replica_that_an_autoscaler_starts_pays_first_use(tmp_path: Path) -> None:
    """Two seats, a second a step; the second replica serves from 5 on, and its first step takes eight seconds.

    The request of 6 would have its first token at 7 and ends at 16 on a warm replica: now it has it at 14, and ends at
    23. The requests of 0 wait for the first replica's first use.
    """
    path = write(tmp_path)
    rows = [(0.0, 10, 10), (0.0, 10, 10), (0.0, 10, 10), (6.0, 10, 10)]
    result = play(rows, **SECONDS, max_num_seqs=2, autoscale=path, router="least-outstanding-requests")
    assert result.replica is not None
    assert result.replica.tolist() == [0, 0, 0, 1]
    assert result.records.requests.first_token_s.tolist() == [8.0, 8.0, 18.0, 14.0]
    assert result.records.requests.finished_s[3] == 23.0
    assert spans(result)[1][:2] == (1, 2.0)


def test_a_replica_that_is_back_after_a_failure_is_cold_again() -> None:
    rows = [(0.0, 10, 2), (20.0, 10, 2), (40.0, 10, 2)]
    result = play(rows, **SECONDS, fail_replica="0@30+5", router="round-robin")
    assert (result.records.requests.first_token_s - result.records.requests.arrival_s).tolist() == [8.0, 1.0, 8.0]
