"""FlashAttention-2's grid: decodes of uneven contexts wait for the longest, in the formula and in the loop."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from steps import stack_of, step, terms_of
from test_engine_stretch import check

from planner.steptime.operators.flash2 import num_splits, own_s, tiles_at_once
from planner.steptime.roofline import roofline


def uneven(decodes: int, mean: int, longest: int, *, prompt: int = 0) -> Any:
    """Return a step whose decodes have `mean` tokens of context on average and one of them `longest`."""
    row = step(prompt, decodes, mean)
    row.longest_context_tokens = longest
    return row


def decode_s(gpu: str, row: Any, engine: str = "vllm") -> float:
    return terms_of(stack_of(gpu=gpu, engine=engine), row)["attention_decode_s"]


def test_a_grid_by_hand() -> None:
    """Tiles of 64 queries and 128 keys of 128: 80 KiB. 25 · 8 tiles on 128 multiprocessors are less than 204.8."""
    assert tiles_at_once(108, 164 * 1024, 128) == 216
    assert tiles_at_once(142, 100 * 1024, 256) == 142
    assert [num_splits(8 * decodes, 128) for decodes in (8, 16, 25, 26)] == [4, 2, 5, 1]
    assert own_s(1e-10, 32, 128) == pytest.approx(64 * 1e-10 * 128 / 32)


def test_the_longest_context_by_hand() -> None:
    """An RTX 4090 with 32 decodes of 1,000 tokens: each of 128 places has 2,000; a tile of 4,000 goes on for 2,000."""
    terms = roofline(stack_of(gpu="rtx-4090")).terms
    assert terms.decode_share == 8 / 128
    more_s = decode_s("rtx-4090", uneven(32, 1000, 4000)) - decode_s("rtx-4090", step(0, 32, 1000))
    assert more_s == pytest.approx(2000 * float(terms.own_s_per_token))
    assert 32 * 29e-9 < float(terms.own_s_per_token) < 32 * 33e-9  # measured 31.7 ns a layer
    one_s = decode_s("rtx-4090", uneven(1, 16384, 16384, prompt=16))
    assert one_s == pytest.approx(32 * 520e-6, rel=0.15)  # measured 520 us a layer


@pytest.mark.slow
@given(decodes=some.integers(1, 300), mean=some.integers(1, 20_000), more=some.lists(some.integers(0, 20_000)),
       prompt=some.sampled_from((0, 64)))
def test_longer_contexts_never_take_less_and_even_ones_what_benchmarks_say(
        decodes: int, mean: int, more: list[int], prompt: int) -> None:
    for gpu in ("a100-sxm", "rtx-pro-6000"):
        found = [decode_s(gpu, uneven(decodes, mean, mean + each, prompt=prompt)) for each in sorted(more)]
        assert found == sorted(found)
    assert decode_s("a100-sxm", uneven(decodes, mean, mean)) == decode_s("a100-sxm", step(0, decodes, mean))


@pytest.mark.parametrize(("gpu", "engine"), [("h100-sxm", "vllm"), ("b200-sxm", "vllm"), ("l40s", "sglang")])
def test_other_kernels_do_not_wait(gpu: str, engine: str) -> None:
    for prompt in (0, 64):
        assert decode_s(gpu, uneven(32, 1000, 9000, prompt=prompt), engine) == decode_s(
            gpu, step(prompt, 32, 1000), engine)


@given(rows=some.lists(some.tuples(some.floats(0, 2), some.integers(1, 6000), some.integers(1, 900)), min_size=1,
                       max_size=40))
def test_stretches_are_their_steps_one_by_one(rows: list[tuple[float, int, int]]) -> None:
    check(roofline(stack_of(gpu="rtx-4090")), sorted(rows))
