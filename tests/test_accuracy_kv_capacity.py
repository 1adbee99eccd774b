"""Start-up logs of engines: each says where it is from, and the memory model is near what it says."""

import math

import numpy as np
import polars as pl
import pytest

from benchmarks.accuracy.kv_capacity import FITTED, STARTS, kv_capacity, read_starts


def test_every_start_is_named_once_and_says_where_it_is_from() -> None:
    table = pl.read_csv(STARTS)
    assert table["id"].n_unique() == table.height
    assert table["source"].str.contains(r"^([\w.-]+/[\w.-]+(#\d+|:[\w./-]+)|https://\S+|own)$").all()
    assert (table["kv_gib"].is_not_null() | table["kv_tokens"].is_not_null()).all()


def test_weights_are_those_of_the_logs_but_for_what_kernels_pad_and_images_need() -> None:
    for start in read_starts():
        off = start.predicted_weights_gib / start.measured_weights_gib - 1
        assert math.isnan(off) or -0.1 < off < 0.01 or (start.gpu, round(start.measured_weights_gib)) == ("mi300x", 79)


def test_kv_memory_is_near_what_todays_vllm_finds() -> None:
    newest = [start for start in read_starts() if start.kind == FITTED and start.gpu != "mi300x"]
    ratios = np.array([start.predicted / start.measured for start in newest])
    assert len(ratios) > 25
    assert np.median(np.abs(ratios - 1)) < 0.02
    assert (np.abs(ratios - 1) < 0.1).all()


def test_the_section_has_every_start() -> None:
    groups, starts = kv_capacity().tables
    assert len(starts.rows) == pl.read_csv(STARTS).height
    assert sum(row[2] for row in groups.rows if row[0] == "engine") == len(starts.rows)


@pytest.mark.parametrize("engine", ["SGLang", "TensorRT-LLM"])
def test_others_are_within_a_fifth(engine: str) -> None:
    found = [start.predicted / start.measured for start in read_starts() if start.kind == engine]
    assert len(found) >= 4
    assert all(0.8 < ratio < 1.2 for ratio in found)
