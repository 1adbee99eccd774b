"""Results of a sweep on disk: rows come back as they were, cut lines are left out, and memory has only their places."""

import tracemalloc
from pathlib import Path
from typing import Any

from planner.planning.grid import Points
from planner.planning.sweep_store import SweepStore
from planner.settings.scenario import Scenario

DONE = {"status": "done", "num_gpus": 2, "bottleneck": "compute", "notes": "a\nb", "p99_ttft_ms": 0.1 + 0.2}
FAILED = {"status": "does not fit: “70 GB”"}


def test_rows_come_back_from_the_journal_and_from_the_table(tmp_path: Path) -> None:
    store = SweepStore(tmp_path / "out.parquet")
    rows: dict[str, dict[str, Any]] = {"a": DONE, "b": FAILED, "c": {**DONE, "p99_ttft_ms": None, "kv_use": 0.5}}
    for key, row in rows.items():
        store.add(key, row)
    assert {key: store[key] for key in rows} == rows
    table = store.table(["c", "a", "b"])
    assert table["p99_ttft_ms"].to_list() == [None, DONE["p99_ttft_ms"], None]
    store.settle(["c", "a", "b"], table)
    assert not (tmp_path / "out.parquet.journal").exists()
    assert store["b"] == FAILED
    store.add("d", {**DONE, "num_gpus": 3})
    assert store["d"]["num_gpus"] == 3
    assert store["a"]["num_gpus"] == 2
    assert len(store) == 4


def test_a_line_that_was_cut_off_harms_no_other(tmp_path: Path) -> None:
    output = tmp_path / "out.parquet"
    SweepStore(output).add("a", DONE)
    with (tmp_path / "out.parquet.journal").open("ab") as file:
        file.write('{"key": "b", "row": {"status": "“'.encode()[:-1])
    store = SweepStore(output)
    store.add("c", FAILED)
    for found in (store, SweepStore(output)):
        assert "b" not in found
        assert (found["a"], found["c"]) == (DONE, FAILED)


def test_memory_has_no_rows(tmp_path: Path) -> None:
    store, row = SweepStore(tmp_path / "out.parquet"), {**DONE, **{f"number_{n}": n / 7 for n in range(100)}}
    tracemalloc.start()
    for n in range(1000):
        store.add(f"{n:064}", row)
    grown = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert grown < 1000 * 400  # bytes; a row as a dictionary has more than 5,000


def test_points_are_the_product_of_the_axes() -> None:
    axes = {"max_num_seqs": [1, 2], "replicas": [3], "block_size": [16, 32, 64]}
    points = Points({"gpu": "h100-sxm"}, axes)
    assert [tuple(point.values.values()) for point in points] == [(n, 3, b) for n in (1, 2) for b in (16, 32, 64)]
    assert points[-1].scenario == Scenario(gpu="h100-sxm", max_num_seqs=2, data_parallel_size=3, block_size=64)
    assert points[1:3] == [points[1], points[2]]
    assert list(points[0].values) == list(axes)
