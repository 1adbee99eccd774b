"""What is written as native CSV or JSONL is read back as it was."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.schema import REQUIRED_TRACE_COLUMNS, TRACE_COLUMNS, Column
from planner.traces import read_trace

BLOCK_TOKENS = 16


def cells(column: Column) -> st.SearchStrategy:
    if column.dtype == "str":
        return st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)
    low, high = column.minimum, column.maximum
    if column.dtype == "int":
        return st.integers(int(low or 0), int(high or 0))
    return st.floats(low, high, allow_nan=False, allow_infinity=False)


@st.composite
def tables(draw: st.DrawFn) -> pl.DataFrame:
    """Requests with any of the optional columns, some cells empty, in any order of arrival."""
    num = draw(st.integers(1, 6))
    data = {}
    for column in TRACE_COLUMNS:
        if column.name in REQUIRED_TRACE_COLUMNS:
            data[column.name] = draw(st.lists(cells(column), min_size=num, max_size=num))
        elif column.name == "request_id":
            data[column.name] = draw(st.lists(cells(column), min_size=num, max_size=num, unique=True))
        elif draw(st.booleans()):
            data[column.name] = draw(st.lists(st.none() | cells(column), min_size=num, max_size=num))
    types = {"float": pl.Float64, "int": pl.Int64, "str": pl.String}
    return pl.DataFrame(data, schema={c.name: types[c.dtype] for c in TRACE_COLUMNS if c.name in data})


def expected(table: pl.DataFrame) -> pl.DataFrame:
    empty = [name for name in table.columns if table[name].null_count() == table.height]
    return table.drop(empty).sort("arrival_s", maintain_order=True)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trace") / "trace"


@pytest.mark.slow
@settings(deadline=None, max_examples=150)
@given(table=tables())
def test_csv(path: Path, table: pl.DataFrame) -> None:
    table.write_csv(path)
    assert read_trace(str(path)).requests.equals(expected(table))


@pytest.mark.slow
@settings(deadline=None, max_examples=150)
@given(table=tables(), data=st.data())
def test_jsonl_with_ids(path: Path, table: pl.DataFrame, data: st.DataObject) -> None:
    ids = [
        data.draw(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=min(4, -(-tokens // BLOCK_TOKENS))))
        for tokens in table["input_tokens"]
    ]
    lines = [
        json.dumps({**row, "hash_ids": list_, "hash_block_tokens": BLOCK_TOKENS})
        for row, list_ in zip(table.rows(named=True), ids, strict=True)
    ]
    path.write_text("\n".join(lines))
    trace = read_trace(str(path))
    assert trace.requests.equals(expected(table))
    order = np.argsort(table["arrival_s"].to_numpy(), kind="stable")
    wanted = [id_ for row in order for id_ in ids[row]]
    assert trace.prefix is not None
    assert np.diff(trace.prefix.offsets).tolist() == [len(ids[row]) for row in order]
    pairs = set(zip(wanted, trace.prefix.values.tolist(), strict=True))
    assert len(pairs) == len(set(wanted)) == len(set(trace.prefix.values.tolist()))
