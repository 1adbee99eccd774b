"""Latent attention on Blackwell: each row of a step has an equal part of the GPU, so that the longest sets the time."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from steps import stack_of, step, terms_of
from test_engine_stretch import check

from planner.loop.state.count_table import node_counts
from planner.model.layout import Layout
from planner.steptime.roofline import roofline

R1: dict[str, Any] = {"model": "deepseek-r1", "gpu": "b200-sxm", "layout": Layout(tensor_parallel_size=8)}


def decodes_s(decodes: int, mean: int, longest: int, **options: Any) -> float:
    """Return the attention of decodes that have `mean` tokens of context on average and one of them `longest` [s]."""
    row = step(0, decodes, mean)
    row.longest_context_tokens = longest
    return terms_of(stack_of(**R1 | options), row)["attention_decode_s"]


def test_the_longest_of_a_steps_contexts_counts_for_all() -> None:
    for decodes in (2, 8, 64):
        floor_s = decodes_s(decodes, 1, 1)
        even_s, uneven_s = (decodes_s(decodes, mean, 100_000) - floor_s for mean in (100_000, 25_000))
        assert uneven_s == pytest.approx(even_s, rel=0.25 if decodes == 2 else 0.02)


def test_a_row_of_padding_has_its_part() -> None:
    """Nine decodes run in a graph of sixteen."""
    full_s, padded_s = (decodes_s(n, 50_000, 50_000) - decodes_s(n, 1, 1) for n in (16, 9))
    assert padded_s == pytest.approx(full_s, rel=0.05)


def test_more_rows_than_multiprocessors_follow_one_another() -> None:
    counts, part = node_counts(), roofline(stack_of(**R1)).curve["decode_part"]
    assert part.max() == 148.0
    assert (part[counts >= 512] == 148.0).all()
    even_s, longer_s, longest_s = (decodes_s(512, 2_000, longest) for longest in (2_000, 6_000, 60_000))
    assert longer_s == even_s  # a multiprocessor is through with 6,000 tokens before the others have all theirs
    assert longest_s > 2 * even_s


@pytest.mark.slow
@given(decodes=some.integers(1, 300), mean=some.integers(1, 20_000), more=some.lists(some.integers(0, 20_000)))
def test_longer_contexts_never_take_less_and_even_ones_take_their_sum(decodes: int, mean: int, more: list[int]) -> None:
    found = [decodes_s(decodes, mean, mean + each) for each in sorted(more)]
    assert found == sorted(found)
    assert decodes_s(decodes, mean, mean) == pytest.approx(
        terms_of(stack_of(**R1), step(0, decodes, mean))["attention_decode_s"], rel=1e-9)


def test_kernels_of_hopper_share_contexts_out() -> None:
    even_s, uneven_s = (decodes_s(64, 8_000, longest, gpu="h200-sxm") for longest in (8_000, 32_000))
    assert uneven_s == even_s


@given(rows=some.lists(some.tuples(some.floats(0, 2), some.integers(1, 6000), some.integers(1, 900)), min_size=1,
                       max_size=40))
def test_stretches_are_their_steps_one_by_one(rows: list[tuple[float, int, int]]) -> None:
    check(roofline(stack_of(**R1)), sorted(rows))
