"""Runs published elsewhere: each says where, and is predicted on the GPU and under the version that it names."""

from functools import cache

import numpy as np
import polars as pl
import pytest

from benchmarks.accuracy.data import MEASURED
from benchmarks.accuracy.published import published
from benchmarks.accuracy.published_benchmarks import BENCHMARKS, read_benchmarks
from benchmarks.accuracy.section import Section
from benchmarks.fit_engines import PUBLISHED_RUNS
from planner.catalog.catalog_files import data_dir
from planner.measured.run_table import read_measured
from planner.results.uncertainty import read_residuals
from planner.steptime.engine_constants import read_table


@cache
def section() -> Section:
    if not MEASURED.is_dir():
        pytest.skip(f"no measured runs in {MEASURED}; PLANNER_SHARED names the folder above")
    return published()


def test_every_run_is_named_once_says_where_it_is_from_and_can_be_predicted() -> None:
    table = pl.read_csv(PUBLISHED_RUNS)
    assert table["id"].n_unique() == table.height
    assert table["source"].str.contains(r"^SemiAnalysisAI/InferenceX(#\d+|-app:[\w./-]+\.mdx)$").all()
    for row, run in zip(table.iter_rows(named=True), read_measured(PUBLISHED_RUNS), strict=True):
        assert run.status == "ok"
        assert run.scenario is not None
        assert run.id.startswith(f"{str(run.scenario.gpu).removesuffix('-sxm')}-{row['backend_version']}-")
        assert run.tokens_per_counted == 1.0  # measured after the client counted as the engine does


def test_the_section_has_them_all_and_finds_every_one_within_a_factor_of_two_and_a_half() -> None:
    kinds, runs, *_ = section().tables
    assert sum(row[1] for row in kinds.rows) == len(runs.rows) == pl.read_csv(PUBLISHED_RUNS).height
    for row in runs.rows:
        if row[0].startswith("mi"):  # of what AMD's engines do to their kernels nothing was measured
            continue
        for cell in filter("–".__ne__, row[1:]):  # some state TPOT alone
            measured, predicted = map(float, cell.split(" → "))
            assert 1 / 2.5 < predicted / measured < 2.5


def test_amds_gpus_are_told_from_kernels_to_a_fourth_in_the_median_and_new_releases_on_mi355x_to_a_tenth() -> None:
    found = {verdict.name: verdict.value for verdict in section().verdicts}
    value = found["InferenceX on AMD Instinct, TPOT median APE"]
    assert value is not None
    assert value < 1 / 4
    newest = [row for row in section().tables[1].rows if row[0].startswith(("mi355x-0.5.12", "mi355x-0.5.19"))]
    ratios = [predicted / measured for measured, predicted in (map(float, row[2].split(" → ")) for row in newest)]
    assert len(ratios) == 17
    assert np.median(np.abs(np.array(ratios) - 1)) < 0.1


def test_a_benchmark_has_the_load_that_its_client_printed_and_the_settings_of_its_command() -> None:
    table = pl.read_csv(BENCHMARKS)
    assert table["id"].n_unique() == table.height
    assert table["source"].str.contains(r"^([\w.-]+/[\w.-]+(#\d+|:[\w./-]+@([0-9a-f]{7}|20\d\d-\d\d))|https://[\w./-]+)$").all()
    for row, run in zip(table.iter_rows(named=True), read_benchmarks(), strict=True):
        assert run.load is not None
        assert run.scenario is not None
        assert run.load.num_requests == row["prompts"]
        assert run.scenario.max_concurrency == row["concurrency"]
        for name in ("input_tokens", "output_tokens"):
            if row[name]:
                assert run.load.requests[name].sum() == pytest.approx(row[name], rel=5e-3)
        if row["lengths"] == "fixed":
            assert run.load.requests["input_tokens"].n_unique() == 1
        if row["engine"] == "vllm" and not row["options"]:
            assert run.scenario.max_num_seqs is None  # the engine's


def test_benchmarks_without_a_prediction_say_why_and_all_others_are_in_the_tables() -> None:
    *_, groups, runs, refused = section().tables
    assert len(runs.rows) == pl.read_csv(BENCHMARKS).height
    assert {row[0] for row in refused.rows} == {row[0] for row in runs.rows if set(row[2:]) == {"–"}}
    assert all("KV" in why for _, why in refused.rows)
    tpot = [cell for row in runs.rows if (cell := row[2]) != "–"]
    assert sum(row[2] for row in groups.rows if row[1] in ("vllm", "sglang", "trtllm")) == len(tpot)


def test_intervals_of_unmeasured_kernels_hold_gpus_that_are_not_among_them_and_the_engines_do_not() -> None:
    coverage = section().tables[2]
    for metric, gpus, runs, of_engine, of_others in coverage.rows:
        assert gpus >= 5
        assert runs >= 25
        assert float(of_engine.split()[0]) < 80, metric
        assert float(of_others.split()[0]) > 80, metric


def test_the_bundled_errors_of_unmeasured_kernels_are_those_of_the_section() -> None:
    data = section().data["unmeasured"]
    path = data_dir("hardware_db") / "residuals" / "unmeasured_kernels.toml"
    bundled = read_residuals(path, "residuals")
    assert read_table(path, "source")["gpus"] == data["gpus"]
    for metric, errors in data["log_errors"].items():
        assert bundled.log_errors[metric] == pytest.approx(errors, abs=0.02)
