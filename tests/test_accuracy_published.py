"""Runs published elsewhere: each says where, and is predicted on the GPU and under the version that it names."""

import polars as pl

from benchmarks.accuracy.published import RUNS, published
from planner.measured import read_measured


def test_every_run_is_named_once_says_where_it_is_from_and_can_be_predicted() -> None:
    table = pl.read_csv(RUNS)
    assert table["id"].n_unique() == table.height
    assert table["source"].str.contains(r"^SemiAnalysisAI/InferenceX#\d+$").all()
    for row, run in zip(table.iter_rows(named=True), read_measured(RUNS), strict=True):
        assert run.status == "ok"
        assert run.scenario is not None
        assert run.id.startswith(f"{run.scenario.gpu.removesuffix('-sxm')}-{row['backend_version']}-")
        assert run.tokens_per_counted == 1.0  # measured after the client counted as the engine does


def test_the_section_has_them_all_and_finds_every_one_within_a_factor_of_two_and_a_half() -> None:
    section = published()
    kinds, runs = section.tables
    assert sum(row[1] for row in kinds.rows) == len(runs.rows) == pl.read_csv(RUNS).height
    for row in runs.rows:
        for cell in row[1:]:
            measured, predicted = map(float, cell.split(" → "))
            assert 1 / 2.5 < predicted / measured < 2.5
