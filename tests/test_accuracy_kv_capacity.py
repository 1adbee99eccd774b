"""Start-up logs of engines: each says where it is from, and the memory model is near what it says."""

import math

import numpy as np
import polars as pl
import pytest

from benchmarks.accuracy.kv_capacity import DOUBTED, FITTED, STARTS, kv_capacity, read_starts


def test_every_start_is_named_once_and_says_where_it_is_from() -> None:
    table = pl.read_csv(STARTS)
    assert table["id"].n_unique() == table.height
    assert table["source"].str.contains(r"^([\w.-]+/[\w.-]+(#\d+|:[\w./-]+)|https://\S+|own)$").all()
    assert (table["kv_gib"].is_not_null() | table["kv_tokens"].is_not_null()).all()


def test_weights_are_those_of_the_logs_except_of_experts_that_kernels_pad() -> None:
    for start in read_starts():
        off = start.predicted_weights_gib / start.measured_weights_gib - 1
        # NVFP4-v2 of DeepSeek-R1 has o_proj in 4 bit, which the catalog has in 16 bit
        most = 0.015 if start.id == "sgl-r1fp4-b200-tp4" else 0.01
        assert math.isnan(off) or -0.07 < off < most or start.notes


def test_none_is_far_off_without_a_note_that_says_why() -> None:
    far = [start for start in read_starts() if not abs(start.predicted / start.measured - 1) <= DOUBTED]
    assert far
    assert all(any("padding of 16-bit experts on AMD" in note for note in start.notes) for start in far)
    assert f"; {far[-1].id} (" in kv_capacity().notes[-1]


def test_older_releases_sort_logits() -> None:
    """With the newest sampler's memory the median was 3.7 % off, and the worst 93 %."""
    older = [start for start in read_starts() if start.kind == "vLLM before" and start.gpu != "mi300x"]
    ratios = np.array([start.predicted / start.measured for start in older])
    assert len(ratios) > 20
    assert np.median(np.abs(ratios - 1)) < 0.03
    assert (np.abs(ratios - 1) < 0.12).all()


def test_errors_are_grouped_by_family() -> None:
    families = {row[1]: row[2] for row in kv_capacity().tables[0].rows if row[0] == "family"}
    assert families["llama"] > 20
    assert sum(families.values()) == pl.read_csv(STARTS).height
    assert {"llama4", "gpt_oss", "deepseek_v3", "qwen3_5_moe"} <= set(families)


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
