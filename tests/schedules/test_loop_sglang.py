"""The replay loop against SGLang's rules written out plainly, on random cases that nobody has recorded."""

import random
from typing import Any

import pytest
from helpers import EVERYTHING, play, trace_of
from hypothesis import given, settings
from hypothesis import strategies as some
from rules_sglang import Scheduler, replay
from rules_sglang_memory import Request

from planner.loop.state.engine_settings import Recording

ID_TOKENS = 4


@some.composite
def cases(draw: Any) -> dict[str, Any]:
    """Draw requests that all fit the memory, and the scheduler's settings."""
    page = draw(some.sampled_from((1, 1, 2, 4, 16)))
    n = draw(some.integers(1, 14))
    lengths = [(draw(some.integers(1, 60)), draw(some.integers(1, 30))) for _ in range(n)]
    limits = [draw(some.sampled_from((None, output, output + 3, output + 40))) for _, output in lengths]
    instants = some.sampled_from((0.0, 0.0, 0.01, 0.02, 0.05, 0.3, 0.9))
    order = draw(some.sampled_from(("arrival", "arrival", "priority", "lpm", "lof")))
    return {
        "arrivals": sorted(draw(some.lists(instants, min_size=n, max_size=n))),
        "lengths": lengths,
        "limits": limits,
        "priorities": draw(some.lists(some.sampled_from((0, 1, 12, 30)), min_size=n, max_size=n)),
        "ids": [[draw(some.integers(0, 1))] * 8 + draw(some.lists(some.integers(0, 1), min_size=7, max_size=7))
                for _ in range(n)],
        "block_size": page,
        "num_gpu_blocks": draw(some.integers(-(-72 // page), 200 // page)),
        "max_num_seqs": draw(some.integers(1, 6)),
        "max_num_batched_tokens": draw(some.sampled_from((16, 32, 48, 128))),
        "max_prefill_tokens": draw(some.sampled_from((16384, 40, 16))),
        "max_model_len": draw(some.sampled_from((4096, 80))),
        "schedule_conservativeness": draw(some.sampled_from((1.0, 0.0, 0.1, 0.4, 2.0))),
        "enable_chunked_prefill": draw(some.sampled_from((True, True, True, False))),
        "enable_prefix_caching": draw(some.booleans()) or order == "lpm",
        "enable_mixed_chunk": draw(some.sampled_from((False, False, True))),
        "enable_priority_scheduling": order == "priority",
        "schedule_low_priority_values_first": draw(some.booleans()),
        "priority_scheduling_preemption_threshold": draw(some.sampled_from((10, 0))),
        "async_scheduling": draw(some.booleans()),
        "engine_version": draw(some.sampled_from((None, None, "0.5.16", "0.5.9"))),
        "prefill_decode_interval": draw(some.sampled_from((0, 0, 0, 1, 4))),
        "schedule_policy": order if order in ("lpm", "lof") else "fcfs",
    }


@some.composite
def tight_cases(draw: Any) -> dict[str, Any]:
    """Draw cases with the radix cache in which most of the output is not reserved, so that requests are retracted."""
    case: dict[str, Any] = draw(cases())
    page, n = case["block_size"], len(case["lengths"])
    lengths = [(draw(some.integers(1, 40)), draw(some.integers(4, 60))) for _ in range(n)]
    return case | {
        "lengths": lengths,
        "limits": [draw(some.sampled_from((None, output, output, output + 3))) for _, output in lengths],
        "num_gpu_blocks": draw(some.integers(-(-110 // page), 160 // page)),
        "max_num_seqs": draw(some.integers(3, 12)),
        "schedule_conservativeness": draw(some.sampled_from((0.0, 0.0, 0.1))),
        "enable_prefix_caching": True,
        "async_scheduling": draw(some.sampled_from((True, True, False))),
    }


def crowded_case(seed: int) -> dict[str, Any]:
    """Draw bursts of requests with shared prefixes in little memory, so that the tree evicts and some are retracted."""
    draw = random.Random(seed)
    page, n, now_s, arrivals = draw.choice((1, 4, 16, 16)), draw.randint(20, 50), 0.0, list[float]()
    while len(arrivals) < n:
        now_s += draw.choice((0.02, 0.02, 0.1, 0.3, 0.6, 1.2))
        arrivals += [now_s] * draw.choice((1, 1, 2, 4))
    lengths = [(draw.choice((draw.randint(1, 8), draw.randint(10, 60), draw.randint(30, 120), draw.randint(100, 260))),
                draw.randint(1, 60)) for _ in range(n)]
    ids = []
    for k, (prompt, _) in enumerate(lengths):
        group, shared = 1000 * draw.randint(0, 3), 4 * draw.choice((0, 1, 2, 5, 9))
        rest = draw.choice((group, group, group + 500, 1_000_000 + 1000 * k))
        ids.append([(group if j < shared else rest) + j for j in range(-(-prompt // ID_TOKENS))])
    order = draw.choice(("fcfs", "fcfs", "fcfs", "lpm", "priority"))
    return {
        "arrivals": arrivals[:n],
        "lengths": lengths,
        "limits": [draw.choice((output, output, output + 1, output + 10, output + 60)) for _, output in lengths],
        "priorities": [draw.choice((0, 1, 12, 30)) for _ in range(n)],
        "ids": ids,
        "block_size": page,
        "num_gpu_blocks": draw.randint(420, 760) // page,
        "max_num_seqs": draw.choice((6, 12, 12, 24)),
        "max_num_batched_tokens": draw.choice((64, 96, 96, 128, 256)),
        "max_prefill_tokens": draw.choice((16384, 16384, 128)),
        "max_model_len": 4096,
        "schedule_conservativeness": draw.choice((0.0, 0.1, 0.1, 0.3)),
        "enable_chunked_prefill": draw.random() < 0.85,
        "enable_prefix_caching": True,
        "enable_mixed_chunk": draw.random() < 0.2,
        "enable_priority_scheduling": order == "priority",
        "schedule_low_priority_values_first": False,
        "priority_scheduling_preemption_threshold": 10,
        "async_scheduling": draw.random() < 0.7,
        "engine_version": None,
        "prefill_decode_interval": 0,
        "schedule_policy": "lpm" if order == "lpm" else "fcfs",
    }


@pytest.mark.slow
@settings(max_examples=160)
@given(case=cases())
def test_the_loop_does_what_the_rules_say(case: dict[str, Any]) -> None:
    """Steps, retractions, instants and prefix hits are those of the rules written out plainly."""
    assert_as_the_rules_say(case)


@pytest.mark.slow
@settings(max_examples=160)
@given(case=tight_cases())
def test_the_loop_does_what_the_rules_say_in_tight_memory(case: dict[str, Any]) -> None:
    assert_as_the_rules_say(case)


@pytest.mark.slow
@settings(max_examples=40)
@given(seed=some.integers(0, 2**32))
def test_the_loop_does_what_the_rules_say_of_crowds(seed: int) -> None:
    assert_as_the_rules_say(crowded_case(seed))


def assert_as_the_rules_say(case: dict[str, Any]) -> int:
    """Compare the loop with the rules; return the number of retractions."""
    case = dict(case)
    arrivals, lengths, limits, priorities, ids = (
        case.pop(k) for k in ("arrivals", "lengths", "limits", "priorities", "ids"))
    prompts = [[("id", *own[: j // ID_TOKENS + 1], j) for j in range(p)]
               for own, (p, _) in zip(ids, lengths, strict=True)]
    requests = [Request(str(k), arrivals[k], prompts[k], lengths[k][1], limits[k], priorities[k])
                for k in range(len(lengths))]
    steps, preemptions = replay(requests, scheduler_of(case), 0.01, 0.0001)

    rows = [(arrivals[k], p, o) for k, (p, o) in enumerate(lengths)]
    covering = [own[: -(-p // ID_TOKENS)] for own, (p, _) in zip(ids, lengths, strict=True)]
    trace = trace_of(rows, priority=priorities, max_output_tokens=limits, hash_ids=covering,
                     hash_block_tokens=ID_TOKENS)
    result = play(trace, recording=EVERYTHING, engine="sglang", step_time="linear:0.01,0.0001", **case)
    assert result.schedule_table().rows() == steps  # in batch order: after a retraction it is another
    assert set(result.preemptions_table().iter_rows()) == preemptions
    for table in (result.requests_table(), play(trace, recording=Recording(), engine="sglang",
                                                step_time="linear:0.01,0.0001", **case).requests_table()):
        assert table["finished_at_s"].to_list() == [r.finished_s for r in requests]
        assert table["first_token_at_s"].to_list() == [r.first_token_s for r in requests]
        assert table["num_cached_tokens"].to_list() == [r.num_cached or 0 for r in requests]
    return len(preemptions)


def scheduler_of(case: dict[str, Any]) -> Scheduler:
    return Scheduler(
        num_pages=case["num_gpu_blocks"], page_size=case["block_size"],
        chunk=case["max_num_batched_tokens"] if case["enable_chunked_prefill"] else None,
        max_prefill_tokens=case["max_prefill_tokens"], seats=case["max_num_seqs"], context=case["max_model_len"],
        conservativeness=case["schedule_conservativeness"], caching=case["enable_prefix_caching"],
        mixed=case["enable_mixed_chunk"], by_priority=case["enable_priority_scheduling"],
        low_first=case["schedule_low_priority_values_first"], gap=case["priority_scheduling_preemption_threshold"],
        ends_wait=case["engine_version"] is not None, strict_prefill=case["engine_version"] == "0.5.9",
        overlap=case["async_scheduling"], interval=case["prefill_decode_interval"],
        lpm=case["schedule_policy"] == "lpm", lof=case["schedule_policy"] == "lof",
    )
