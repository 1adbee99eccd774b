"""Clients' rules where some replicas prefill and others decode: either half may end an attempt, and both give way."""

from typing import Any

import pytest
from helpers import EVERYTHING, play, trace_of
from test_disaggregation import SECONDS, column, model

from planner.replays.result_tables import ReplayResult
from planner.run import replay

ONCE: dict[str, Any] = {"max_retries": 1, "retry_initial_backoff": 0.5}


def attempts(result: ReplayResult, *names: str) -> list[tuple[Any, ...]]:
    return result.attempts_table().select(names).rows()


def test_a_time_out_while_it_decodes() -> None:
    """Prefilled by 1, and 3.5 s after it was sent its client hangs up, in the step that ends at 4: four tokens. The
    second attempt begins at 4.5 and goes the same way, by 8.5."""
    result = play([(0.0, 10, 10)], **SECONDS, **ONCE, request_timeout=3.5)
    names = ("sent_at_s", "first_token_at_s", "ended_at_s", "reason", "output_tokens", "num_computed_tokens",
             "replica", "decode_replica")
    assert attempts(result, *names) == [(0.0, 1.0, 4.0, "timeout", 4, 13, 0, 1),
                                        (4.5, 5.5, 8.5, "timeout", 4, 13, 0, 1)]
    assert column(result, "status") == ["timed_out"]
    assert column(result, "finished_at_s") == [8.5]
    assert column(result, "output_tokens") == [4]
    assert column(result, "retry_s") == [4.5]


def test_an_answer_in_time_is_one_of_the_second_attempt() -> None:
    """Both are prefilled at once, one seat decodes: the second waits from 1 to 4, hangs up at 3, and comes back to an
    empty fleet."""
    result = play([(0.0, 10, 4), (0.0, 10, 2)], **SECONDS, max_retries=1, retry_initial_backoff=3.0,
                  request_timeout=4.5, max_num_seqs=2, ttft_timeout=1.5)
    assert column(result, "status") == ["completed", "completed"]
    assert column(result, "num_attempts") == [1, 1]
    seats = play([(0.0, 10, 4), (0.0, 10, 2)], **SECONDS, max_retries=1, retry_initial_backoff=3.0,
                 request_timeout=3.5, max_num_batched_tokens=10, max_num_seqs=1)
    assert attempts(seats, "request_id", "sent_at_s", "first_token_at_s", "ended_at_s", "reason") == [
        ("0", 0.0, 1.0, 4.0, "timeout"), ("1", 0.0, 2.0, 4.0, "timeout"),
        ("0", 7.0, 8.0, 11.0, "timeout"), ("1", 7.0, 9.0, 11.0, "timeout")]


def test_a_time_out_before_the_first_token() -> None:
    """One prompt a second: the third's first token would come at 3; its client is gone at 2.5, in that step."""
    rows = [(0.0, 10, 2), (0.0, 10, 2), (0.0, 10, 2)]
    result = play(rows, **SECONDS, max_num_batched_tokens=10, ttft_timeout=2.5)
    assert column(result, "status") == ["completed", "completed", "timed_out"]
    assert column(result, "prefilled_at_s") == [1.0, 2.0, 3.0]
    assert column(result, "finished_at_s") == [2.0, 3.0, 3.0]
    assert column(result, "decode_replica") == [1, 1, 0]


def test_who_hangs_up_gives_the_senders_blocks_back() -> None:
    """Four blocks each: the second's KV waits for the first to leave the decoder. It hangs up at 2, so that the third
    is prefilled when it comes, at 2.5, and not at 6."""
    trace = trace_of([(0.0, 32, 5), (0.0, 32, 2), (2.5, 64, 1)], cancel_after_s=[None, 2.0, None])
    result = play(trace, **SECONDS, **ONCE, num_gpu_blocks=4, block_size=16, enable_prefix_caching=False)
    assert column(result, "prefilled_at_s") == [1.0, 1.0, 3.5]
    assert column(result, "status") == ["completed", "cancelled", "completed"]
    assert column(result, "finished_at_s") == [5.0, 2.0, 3.5]


def test_who_hangs_up_leaves_both_links() -> None:
    """Transfers of a second each. The first's is half done when its client hangs up at 1.5; the second is told 3 when
    both are prefilled, and the third, prefilled at 2, finds the links free at 2.5 and not at 3."""
    trace = trace_of([(0.0, 100_000, 3), (0.0, 100_000, 3), (0.5, 100_000, 3)], cancel_after_s=[1.5, None, None])
    options = model(max_num_batched_tokens=200_000, max_retries=1)
    result = replay(trace, options, recording=EVERYTHING).result
    assert column(result, "prefilled_at_s") == [1.0, 1.0, 2.0]
    assert column(result, "status") == ["cancelled", "completed", "completed"]
    assert column(result, "handover_s")[1:] == pytest.approx([2.0, 1.5])


def test_a_queue_of_the_decoder_that_is_full() -> None:
    """One seat and one place each. Prompts are prefilled by 1, 2 and 3: the first decodes from 1 to 5, the second waits
    there, the third is turned away. It comes back at 5.5, when the second decodes, waits from 6.5, and is through."""
    result = play([(0.0, 10, 5), (0.5, 10, 3), (1.5, 10, 2)], **SECONDS, max_retries=1, retry_initial_backoff=2.5,
                  max_num_seqs=1, max_queued_requests=1)
    assert attempts(result, "request_id", "attempt", "ended_at_s", "reason", "num_computed_tokens") == [
        ("2", 1, 3.0, "queue_full", 10), ("0", 1, 5.0, None, 14), ("1", 1, 7.0, None, 12), ("2", 2, 8.0, None, 11)]
    assert column(result, "prefilled_at_s") == [1.0, 2.0, 6.5]


def test_the_routers_queue_counts_a_request_until_it_is_decoded() -> None:
    result = play([(0.0, 10, 3), (0.0, 10, 3)], **SECONDS, router_max_concurrent_requests=1)
    assert column(result, "gateway_s") == [0.0, 3.0]
    assert column(result, "finished_at_s") == [3.0, 6.0]


def test_a_decoder_fails() -> None:
    """At 2.5, in the step of the third of four tokens: lost, sent again at once, and turned away: nobody decodes."""
    result = play([(0.0, 10, 4), (4.0, 10, 2)], **SECONDS, fail_replica="1@2.5+3.5")
    assert attempts(result, "request_id", "attempt", "ended_at_s", "reason", "output_tokens", "decode_replica") == [
        ("0", 1, 2.5, "replica_failed", 3, 1), ("0", 2, 2.5, "no_replica", 0, None),
        ("1", 1, 4.0, "no_replica", 0, None)]
    two = play([(0.0, 10, 4)], **SECONDS | {"data_parallel_size": 3}, fail_replica="1@2.5")
    assert attempts(two, "ended_at_s", "reason", "decode_replica") == [(2.5, "replica_failed", 1), (6.5, None, 2)]


def test_a_decoder_that_is_down_when_the_prompt_is_through() -> None:
    """Prefilled at 1, when nobody decodes: turned away there, and sent again half a second later, when one does."""
    result = play([(0.0, 10, 3)], **SECONDS, **ONCE, fail_replica="1@0.5+0.75")
    assert attempts(result, "ended_at_s", "reason", "decode_replica") == [(1.0, "no_replica", 0), (4.5, None, 1)]
    assert column(result, "num_cached_tokens") == [0]


def test_kv_that_was_not_taken_is_lost_with_its_sender() -> None:
    """The transfer takes from 1 to 2. The sender fails at 1.5: lost, and sent again to the other; at 2.5: no matter."""
    options: dict[str, Any] = SECONDS | {"data_parallel_size": 3, "prefill_replicas": 2, "kv_transfer_latency": 1.0}
    early = play([(0.0, 10, 3)], **options, fail_replica="0@1.5")
    assert attempts(early, "replica", "ended_at_s", "reason") == [(0, 1.5, "replica_failed"), (1, 5.5, None)]
    late = play([(0.0, 10, 3)], **options, fail_replica="0@2.5")
    assert attempts(late, "replica", "ended_at_s", "reason") == [(0, 4.0, None)]


def test_kv_that_waits_for_a_seat_is_lost_with_its_sender() -> None:
    """One seat decodes until 6. The second's KV waits at the first replica from 2 on, which fails at 3."""
    rows = [(0.0, 10, 6), (0.5, 10, 3)]
    options: dict[str, Any] = SECONDS | {"data_parallel_size": 3, "prefill_replicas": 2, "max_num_seqs": 1}
    result = play(rows, **options, router="least-outstanding-requests", fail_replica="1@3+1")
    assert column(result, "replica") == [0, 0]
    assert column(result, "num_attempts") == [1, 2]
    assert column(result, "prefilled_at_s") == [1.0, 4.0]
    assert column(result, "finished_at_s") == [6.0, 8.0]
