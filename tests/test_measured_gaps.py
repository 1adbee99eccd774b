"""Gaps between messages in tables of runs, and numbers that must be whole."""

from pathlib import Path

import numpy as np
import pytest

from planner.errors import TraceError
from planner.measured.accuracy import predict_file
from planner.measured.doubts import doubts, far_off
from planner.measured.run_table import read_measured
from planner.settings.scenario import Scenario

COLUMNS = "gpu,engine,model,isl,osl,concurrency,tp,stream_interval,measured_mean_itl_ms,measured_mean_tpot_ms"


def table(folder: Path, *rows: str) -> Path:
    path = folder / "runs.csv"
    path.write_text("\n".join((COLUMNS, *rows)) + "\n")
    return path


def test_the_mean_gap_is_of_messages(tmp_path: Path) -> None:
    run = "h100-sxm,vllm,llama-3.1-8b,256,129,4,1"
    path = table(tmp_path, f"{run},4,28,7", f"{run},1,7,7")
    chunks, tokens = (each.predicted for each in predict_file(path, Scenario(), client=None, jobs=1).predictions)
    assert tokens["mean_itl_ms"] == pytest.approx(tokens["mean_tpot_ms"], rel=0.01)
    assert chunks["mean_itl_ms"] == pytest.approx(4 * chunks["mean_tpot_ms"], rel=0.02)
    assert chunks["mean_tpot_ms"] == pytest.approx(tokens["mean_tpot_ms"], rel=0.02)


def test_gaps_that_are_far_off_name_the_interval_of_messages() -> None:
    errors = {"mean_itl_ms": np.log([0.05, 0.05]), "mean_tpot_ms": np.log([0.05, 0.05])}
    assert ["check stream_interval" in note for note in doubts(errors)] == [True, False]
    assert ["check stream_interval" in note for note in far_off(errors, ["a", "b"])] == [True, False]


@pytest.mark.parametrize(("row", "said"), [
    ("h100-sxm,vllm,llama-3.1-8b,256,1.5,4,1,1,7,7", "row 0: osl = 1.5; must be a whole number above 0"),
    ("h100-sxm,vllm,llama-3.1-8b,256,128,4,0.5,1,7,7", "row 0: tp = 0.5; must be a whole number of at least 0"),
    ("h100-sxm,vllm,llama-3.1-8b,256,128,4,1,1,fast,7", "row 0: measured_mean_itl_ms = fast; must be a number above 0"),
])
def test_numbers_are_whole_where_they_count(tmp_path: Path, row: str, said: str) -> None:
    with pytest.raises(TraceError) as refused:
        read_measured(table(tmp_path, row))
    assert said in str(refused.value)
    assert "correct it, or leave the row out" in str(refused.value)
