"""The noise floor of the accuracy report, and the errors of later runs: pairs, differences and groups by hand."""

from pathlib import Path

import polars as pl
import pytest

from benchmarks.accuracy import noise
from benchmarks.accuracy.data import MEASURED
from benchmarks.accuracy.later import error_cells, group_rows

ROW = {"engine": "sglang", "gpu": "b200_sxm", "model": "a/B", "precision": "fp4", "isl": 1, "osl": 2, "concurrency": 4,
       "tp": 8, "spec_decoding": "none", "checkpoint": "c", "image": "i", "engine_version": "1"}
VALUES = {f"measured_{name}": 10.0 for name in noise.STATISTICS}


def test_a_pair_is_two_measurements_of_one_deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another release is a pair of its own kind; another concurrency is another deployment."""
    rows = [ROW | VALUES | {"id": "r1"}, ROW | VALUES | {"id": "r2", "measured_mean_ttft_ms": 12.0},
            ROW | VALUES | {"id": "r3", "engine_version": "2", "measured_median_tpot_ms": 5.0},
            ROW | VALUES | {"id": "r4", "concurrency": 8, "measured_median_tpot_ms": 99.0}]
    pl.DataFrame(rows).write_csv(tmp_path / "runs.csv")
    monkeypatch.setattr(noise, "MEASURED", tmp_path)
    monkeypatch.setattr(noise, "TABLES", {"one node": ("runs",)})
    pairs = noise.pairs_of("one node")
    assert pairs["release"].to_list() == [noise.SAME, noise.OTHER]
    assert pairs["mean_ttft_ms"].to_list() == pytest.approx([0.2, 0.2])
    assert pairs["median_tpot_ms"].to_list() == pytest.approx([0.0, 1.0])


@pytest.mark.skipif(not MEASURED.is_dir(), reason="needs the measured runs")
def test_the_interval_of_an_answer_holds_the_spread_of_measurements() -> None:
    """The errors behind intervals are against measurements, whose own spread is in them."""
    pairs = pl.concat([noise.pairs_of(kind) for kind in noise.TABLES], how="diagonal_relaxed")
    rows = noise.interval_rows(pairs)
    assert {row[0] for row in rows} == {"vllm", "sglang", "trtllm"}
    for _, _, interval, spread in rows:
        low, high = (abs(float(part.removesuffix(" %"))) for part in interval.split(" to "))
        assert float(spread.removeprefix("± ").removesuffix(" %")) < min(low, high)


def test_errors_of_a_group_leave_the_p99_of_stalled_runs_out() -> None:
    table = pl.DataFrame({
        "engine": ["sglang"] * 3, "gpu": ["b200"] * 3, "precision": ["fp4"] * 3, "drafts": ["no"] * 3,
        "status": ["ok", "ok", "unknown"], "is_stalled": [False, True, False],
        "predicted_median_tpot_ms": [11.0, 8.0, None], "measured_median_tpot_ms": [10.0, 10.0, 10.0],
        "predicted_p99_ttft_ms": [90.0, 1.0, None], "measured_p99_ttft_ms": [100.0, 100.0, 100.0]})
    cells = ["15.0 % / 15.0 %", "–", "–", "10.0 % / 10.0 %", "–"]
    assert error_cells(table) == cells
    assert group_rows(table) == [["sglang", "b200", "fp4", "no", 3, "66.7 %", *cells]]
