"""The replay loop against the rules of vLLM V1 written out plainly, on random cases that nobody has recorded."""

from typing import Any

from helpers import EVERYTHING, play, trace_of
from hypothesis import given, settings
from hypothesis import strategies as some
from naive_v1 import Request, Scheduler, replay


@some.composite
def cases(draw: Any) -> dict[str, Any]:
    """Draw requests that all fit the memory, and the scheduler's settings."""
    block_size = draw(some.sampled_from((1, 2, 4, 8)))
    n = draw(some.integers(1, 12))
    lengths = [(draw(some.integers(1, 30)), draw(some.integers(1, 15))) for _ in range(n)]
    least = max(-(-(p + o) // block_size) for p, o in lengths)
    instants = some.sampled_from((0.0, 0.0, 0.01, 0.02, 0.05, 0.3))
    return {
        "arrivals": sorted(draw(some.lists(instants, min_size=n, max_size=n))),
        "lengths": lengths,
        "priorities": draw(some.lists(some.sampled_from((0.0, 1.0, 2.0)), min_size=n, max_size=n)),
        "ids": [draw(some.lists(some.integers(0, 1), min_size=8, max_size=8)) for _ in range(n)],
        "block_size": block_size,
        "num_gpu_blocks": least + draw(some.integers(0, 12)),
        "max_num_seqs": draw(some.integers(1, 6)),
        "max_num_batched_tokens": draw(some.sampled_from((6, 8, 13, 64))),
        "long_prefill_token_threshold": draw(some.sampled_from((0, 0, 3, 7))),
        "watermark": draw(some.sampled_from((0.0, 0.0, 0.1))),
        "enable_chunked_prefill": draw(some.sampled_from((True, True, True, False))),
        "enable_prefix_caching": draw(some.booleans()),
        "policy": draw(some.sampled_from(("fcfs", "priority"))),
        "scheduler_reserve_full_isl": draw(some.sampled_from((True, True, False))),
    }


@some.composite
def crowded_cases(draw: Any) -> dict[str, Any]:
    """Draw requests of few prompts that mostly wait for memory: blocks that come back are taken in the same step."""
    block_size = draw(some.sampled_from((1, 2, 4)))
    n = draw(some.integers(4, 12))
    lengths = [(draw(some.integers(9, 24)), draw(some.integers(1, 8))) for _ in range(n)]
    least = max(-(-(p + o) // block_size) for p, o in lengths)
    instants = some.sampled_from((0.0, 0.01, 0.02, 0.03, 0.05, 0.08, 0.12))
    return {
        "arrivals": sorted(draw(some.lists(instants, min_size=n, max_size=n))),
        "lengths": lengths,
        "priorities": draw(some.lists(some.sampled_from((0.0, 1.0)), min_size=n, max_size=n)),
        "ids": [[draw(some.integers(0, 1))] * 6 + [draw(some.integers(0, 1))] * 2 for _ in range(n)],
        "block_size": block_size,
        "num_gpu_blocks": least + draw(some.integers(0, 24 // block_size)),
        "max_num_seqs": 8,
        "max_num_batched_tokens": draw(some.sampled_from((13, 64))),
        "long_prefill_token_threshold": draw(some.sampled_from((0, 0, 3))),
        "watermark": draw(some.sampled_from((0.0, 0.0, 0.1))),
        "enable_chunked_prefill": draw(some.sampled_from((True, True, False))),
        "enable_prefix_caching": True,
        "policy": draw(some.sampled_from(("fcfs", "priority"))),
        "scheduler_reserve_full_isl": draw(some.sampled_from((True, True, False))),
    }


ID_TOKENS = 4


@settings(max_examples=400)
@given(case=cases())
def test_the_loop_does_what_the_rules_say(case: dict[str, Any]) -> None:
    assert_same_as_the_rules(case)


@settings(max_examples=600)
@given(case=crowded_cases())
def test_a_head_waits_no_longer_than_the_rules_say(case: dict[str, Any]) -> None:
    """The loop does not look at a blocked head in every step; the rules do."""
    assert_same_as_the_rules(case)


def assert_same_as_the_rules(case: dict[str, Any]) -> None:
    """Steps, preemptions, instants and prefix hits are those of the rules written out plainly."""
    case = dict(case)
    arrivals, lengths, priorities, ids = (case.pop(k) for k in ("arrivals", "lengths", "priorities", "ids"))
    if not case["enable_chunked_prefill"]:  # vLLM asks for a budget that holds any request whole
        case["max_num_batched_tokens"] = 64
    requests = [
        Request(str(k), arrivals[k], [("id", *ids[k][: j // ID_TOKENS + 1], j) for j in range(p)], o, priorities[k])
        for k, (p, o) in enumerate(lengths)
    ]
    scheduler = Scheduler(
        num_blocks=case["num_gpu_blocks"], block_size=case["block_size"], max_num_seqs=case["max_num_seqs"],
        budget=case["max_num_batched_tokens"], threshold=case["long_prefill_token_threshold"],
        watermark=case["watermark"], chunked=case["enable_chunked_prefill"], caching=case["enable_prefix_caching"],
        by_priority=case["policy"] == "priority", reserves_full_isl=case["scheduler_reserve_full_isl"],
    )
    steps, preemptions = replay(requests, scheduler, 0.01, 0.0001)

    rows = [(arrivals[k], p, o) for k, (p, o) in enumerate(lengths)]
    covering = [ids[k][: -(-p // ID_TOKENS)] for k, (p, _) in enumerate(lengths)]
    trace = trace_of(rows, priority=priorities, hash_ids=covering, hash_block_tokens=ID_TOKENS)
    result = play(trace, recording=EVERYTHING, step_time="linear:0.01,0.0001", **case)
    assert set(result.schedule_table().iter_rows()) == steps
    assert set(result.preemptions_table().iter_rows()) == preemptions
    table = result.requests_table()
    assert table["finished_at_s"].to_list() == [r.finished_s for r in requests]
    assert table["first_token_at_s"].to_list() == [r.first_token_s for r in requests]
    assert table["num_cached_tokens"].to_list() == [r.num_cached for r in requests]
