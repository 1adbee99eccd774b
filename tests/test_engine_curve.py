"""Curves: a node for each small count, eight to an octave beyond, and straight lines that pass through them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from planner.loop.state.count_table import EXACT, NUM_NODES, between, node_counts, table_index

NODES = node_counts()
LAST = int(NODES[-1])
index_of, line = table_index.py_func, between.py_func  # type: ignore[attr-defined]


def value_at(values: np.ndarray, count: int) -> float:
    node, fraction = index_of(count)
    return float(line(values[node], values[node + 1], fraction))


def test_nodes_rise_and_lie_close() -> None:
    assert len(NODES) == NUM_NODES
    assert NODES[: EXACT + 1].tolist() == list(range(EXACT + 1))
    assert (np.diff(NODES) > 0).all()
    assert (np.diff(NODES)[EXACT:] / NODES[EXACT:-1]).max() <= 1 / 8
    assert LAST == EXACT << 18


@pytest.mark.parametrize("k", range(NUM_NODES - 1))
def test_a_node_is_met_exactly(k: int) -> None:
    assert value_at(NODES**1.5, int(NODES[k])) == NODES[k] ** 1.5


@given(some.integers(0, LAST))
def test_a_count_lies_between_its_nodes(count: int) -> None:
    node, fraction = index_of(count)
    assert NODES[node] <= count <= NODES[node + 1]
    assert 0 <= fraction <= 1
    assert value_at(3.0 * NODES + 1.0, count) == pytest.approx(3.0 * count + 1.0)


@given(some.integers(0, 2 * LAST), some.integers(1, 5000))
def test_interpolation_is_monotone(count: int, more: int) -> None:
    values = np.sqrt(NODES) + 0.01 * NODES
    assert value_at(values, count + more) > value_at(values, count)


def test_beyond_the_last_node_the_last_line_goes_on() -> None:
    assert value_at(2.0 * NODES, 3 * LAST) == pytest.approx(6.0 * LAST)
