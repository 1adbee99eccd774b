"""Laws of sliding windows: what running requests are charged never exceeds the pool, and all of it comes back."""

from typing import Any
from unittest.mock import patch

import pytest
from cases import Case, cases
from helpers import EVERYTHING, assert_same_requests, play
from hypothesis import given
from hypothesis import strategies as some
from test_laws import check_batches, check_memory, check_requests, check_time, check_tokens

from planner.loop.state.engine_settings import Recording
from planner.loop.state.engine_state import NONE
from planner.policies.builtin_policies import POLICIES

SETTINGS = "planner.deployment.parts.window_settings"
every_policy = pytest.mark.parametrize("policy", POLICIES)
windows = some.fixed_dictionaries({
    "window_tokens": some.sampled_from((1, 4, 9, 30)), "window_chunk": some.sampled_from((1, 8, 64)),
    "window_page_size": some.sampled_from((1, 4, 16)), "window_page_bytes": some.sampled_from((3, 10, 30)),
    "block_bytes": some.just(10)})


@every_policy
@given(case=cases(with_more=True), own=windows)
def test_conservation(policy: str, case: Case, own: dict[str, int]) -> None:
    """Blocks of windows are among those in use, never more than there are, and are empty ones again in the end."""
    with patch(SETTINGS, return_value=own):
        result = case.play(policy, EVERYTHING)
        plain = case.play(policy, Recording())
    check_requests(result)
    check_tokens(case, policy, result)
    check_memory(case, result)
    check_time(case, result)
    check_batches(case, policy, result)
    assert result.records.engine.beside_head == NONE
    assert_same_requests(result.records.requests, plain.records.requests)


@every_policy
@given(case=cases(with_more=True))
def test_windows_without_bytes_change_nothing(policy: str, case: Case) -> None:
    """A window that takes no memory is none."""
    own = {"window_tokens": 4, "window_chunk": 8, "window_page_size": 4, "window_page_bytes": 0, "block_bytes": 10}
    with patch(SETTINGS, return_value=own):
        windowed = case.play(policy, EVERYTHING)
    assert_same_requests(windowed.records.requests, case.play(policy, EVERYTHING).records.requests)


@given(seats=some.integers(1, 12), rows=some.lists(some.tuples(some.just(0.0), some.integers(1, 40), some.integers(
    1, 20)), min_size=1, max_size=12), own=windows)
def test_more_seats_never_reserve_more(seats: int, rows: list[tuple[float, int, int]], own: dict[str, int]) -> None:
    """Requests that would never run at once take as long with a hundred seats as with as many as there are."""
    options: dict[str, Any] = {"block_size": 4, "num_gpu_blocks": 400, "max_model_len": 60}
    with patch(SETTINGS, return_value=own):
        few = play(rows[:seats], max_num_seqs=seats, **options)
        many = play(rows[:seats], max_num_seqs=100, **options)
    assert_same_requests(few.records.requests, many.records.requests)
