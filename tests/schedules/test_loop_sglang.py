"""The replay loop against SGLang's rules written out plainly, on random cases that nobody has recorded."""

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
    assert set(result.schedule_table().iter_rows()) == steps
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
