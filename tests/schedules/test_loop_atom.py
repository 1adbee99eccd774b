"""The replay loop against ATOM's rules written out plainly, on random cases that nobody has recorded."""

from typing import Any

import pytest
from helpers import EVERYTHING, play, trace_of
from hypothesis import assume, given, settings
from hypothesis import strategies as some
from rules_atom import Request, Scheduler, replay

from planner.loop.state.engine_settings import Recording

ID_TOKENS = 4
STEP = "linear:0.01,0.0001"


@some.composite
def cases(draw: Any) -> dict[str, Any]:
    """Draw requests, most of which fit the memory, and the scheduler's settings."""
    drafts = draw(some.sampled_from((0, 0, 0, 1, 3)))
    size = draw(some.sampled_from((1, 2, 4, 16) if drafts == 0 else (8, 16)))
    n = draw(some.integers(1, 12))
    lengths = [(draw(some.integers(1, 90)), draw(some.integers(1, 30))) for _ in range(n)]
    ends = [draw(some.booleans()) for _ in range(n)]
    instants = some.sampled_from((0.0, 0.0, 0.003, 0.012, 0.02, 0.05, 0.3, 0.9))
    budget = draw(some.sampled_from((16, 32, 70, 100, 200, 1000)))
    chunks = draw(some.sampled_from((True, True, True, False)))
    return {
        "arrivals": sorted(draw(some.lists(instants, min_size=n, max_size=n))),
        "lengths": lengths,
        "limits": [output if by_length else output + 5 for (_, output), by_length in zip(lengths, ends, strict=True)],
        "ids": [[draw(some.integers(0, 1))] * 12 + draw(some.lists(some.integers(0, 1), min_size=12, max_size=12))
                for _ in range(n)],
        "accepted": draw(some.integers(0, drafts)),
        "drafts": drafts,
        "block_size": size,
        "num_gpu_blocks": draw(some.sampled_from((80, 100, 140, 200, 400))) // size + 4,
        "max_num_seqs": draw(some.integers(1, 8)),
        "max_num_batched_tokens": budget if chunks else max(budget, 100),
        "max_model_len": draw(some.sampled_from((4096, 100))),
        "long_prefill_token_threshold": draw(some.sampled_from((0, 0, 16, 30, 64))),
        "scheduler_delay_factor": draw(some.sampled_from((0.0, 0.0, 0.0, 0.5, 2.0))),
        "enable_chunked_prefill": chunks,
        "enable_prefix_caching": draw(some.booleans()),
    }


@some.composite
def tight_cases(draw: Any) -> dict[str, Any]:
    """Draw requests with few prompts among them, in memory that hardly holds two: preemption, cuts, hits and drops."""
    drafts = draw(some.sampled_from((0, 0, 1, 3)))
    size = draw(some.sampled_from((1, 1, 2, 4) if drafts == 0 else (8,)))
    n = draw(some.integers(2, 6))
    prompts = draw(some.lists(some.tuples(some.integers(2, 70), some.integers(0, 2)), min_size=1, max_size=3))
    chosen = [draw(some.sampled_from(prompts)) for _ in range(n)]
    lengths = [(p, draw(some.integers(1, 24))) for p, _ in chosen]
    ends = [chosen.count(prompt) > 1 or draw(some.booleans()) for prompt in chosen]  # equal prompts have equal tokens
    longest = max(p + o for p, o in lengths)
    chunks = draw(some.sampled_from((True, True, False)))
    instants = some.sampled_from((0.0, 0.0, 0.003, 0.012, 0.02, 0.05, 0.3))
    return {
        "arrivals": sorted(draw(some.lists(instants, min_size=n, max_size=n))),
        "lengths": lengths,
        "limits": [output if by_length else output + 5 for (_, output), by_length in zip(lengths, ends, strict=True)],
        "ids": [[first] + [0] * 17 for _, first in chosen],
        "accepted": draw(some.integers(0, drafts)),
        "drafts": drafts,
        "block_size": size,
        "num_gpu_blocks": max(longest + draw(some.sampled_from((-10, 4, 8, 30, 60))), 0) // size + 2,
        "max_num_seqs": draw(some.integers(1, 8)),
        "max_num_batched_tokens": draw(some.sampled_from((16, 30, 70, 100))),
        "max_model_len": draw(some.sampled_from((4096, 4096, *(p for p, _ in prompts)))),
        "long_prefill_token_threshold": draw(some.sampled_from((0, 16, 30, 64))),
        "scheduler_delay_factor": draw(some.sampled_from((0.0, 0.0, 1.0, 2.0))),
        "enable_chunked_prefill": chunks,
        "enable_prefix_caching": draw(some.sampled_from((True, True, False))),
    }


@pytest.mark.slow
@settings(max_examples=300)
@given(case=cases() | tight_cases())
def test_the_loop_does_what_the_rules_say(case: dict[str, Any]) -> None:
    assume(is_equal(case))


def case_of(lengths: list[tuple[int, int]], arrivals: list[float], prompts: list[int],
            **changes: Any) -> dict[str, Any]:
    """Return a case with 8 tokens a block whose requests end by length; requests with the same prompt share it all."""
    usual = {
        "arrivals": arrivals, "lengths": lengths, "limits": [output for _, output in lengths],
        "ids": [[first] + [0] * 29 for first in prompts], "accepted": 0, "drafts": 0, "block_size": 8,
        "max_num_seqs": 4, "max_num_batched_tokens": 70, "max_model_len": 4096,
        "long_prefill_token_threshold": 0, "scheduler_delay_factor": 0.0, "enable_chunked_prefill": True,
        "enable_prefix_caching": True}
    return usual | changes


RARE = {  # rules that a few hundred random cases do not reach
    "blocks of the last tokens are found": case_of(
        [(12, 6), (34, 2), (34, 4), (12, 12)], [0.0, 0.003, 0.05, 0.05], [2, 1, 1, 2], block_size=2, num_gpu_blocks=21,
        max_num_batched_tokens=4),
    "a full budget ends the turn before an impossible prompt is dropped": case_of(
        [(38, 13), (28, 4), (38, 3)], [0.0, 0.0, 0.012], [0, 1, 0], drafts=1, num_gpu_blocks=6, max_num_seqs=2,
        max_num_batched_tokens=4, max_model_len=28),
    "a request that yields and is cut at once does not get its token": case_of(
        [(85, 19), (6, 6), (2, 4)], [0.0, 0.05, 0.15], [2, 1, 0], limits=[19, 11, 4], drafts=3, num_gpu_blocks=13,
        max_num_batched_tokens=72, enable_prefix_caching=False),
    "accepted drafts after a limit are in the table": case_of(
        [(20, 8), (20, 11), (20, 2), (20, 2)], [0.0, 0.1, 0.3, 0.4], [0, 2, 2, 0], drafts=3, accepted=2,
        num_gpu_blocks=6, max_num_seqs=2),
    "accepted drafts after an end are not in the table": case_of(
        [(18, 1), (15, 8), (12, 7), (18, 10)], [0.1, 0.1, 0.2, 0.4], [2, 0, 1, 2], limits=[1, 13, 12, 10], drafts=3,
        accepted=3, num_gpu_blocks=7, max_num_seqs=2)}


@pytest.mark.parametrize("name", RARE)
def test_rules_that_are_seldom_reached(name: str) -> None:
    assert is_equal(RARE[name])


def is_equal(case: dict[str, Any]) -> bool:
    """Assert that the loop and the plain rules give the same steps, preemptions, instants and prefix hits.

    Return whether the rules say them: a request may go round for ever, and tokens may be written over others.
    """
    case = dict(case)
    arrivals, lengths, limits, ids, accepted, drafts = (
        case.pop(k) for k in ("arrivals", "lengths", "limits", "ids", "accepted", "drafts"))
    requests = requests_of(arrivals, lengths, limits, ids)
    scheduler = scheduler_of(case, drafts, accepted)
    try:
        steps, preemptions = replay(requests, scheduler, 0.01, 0.0001)
    except AssertionError:  # a request goes round for ever
        return False
    if scheduler.num_kept_drafts:  # such tokens are written over others
        return False

    rows = [(arrivals[k], p, o) for k, (p, o) in enumerate(lengths)]
    covering = [own[: -(-p // ID_TOKENS)] for own, (p, _) in zip(ids, lengths, strict=True)]
    trace = trace_of(rows, max_output_tokens=limits, hash_ids=covering, hash_block_tokens=ID_TOKENS)
    if drafts:
        case |= {"num_speculative_tokens": drafts, "speculative_method": "mtp",
                 "speculative_acceptance": ",".join("1" if k < accepted else "0" for k in range(drafts))}
    case |= {"engine": "atom", "step_time": STEP, "async_scheduling": True}
    result = play(trace, recording=EVERYTHING, **case)
    assert set(result.schedule_table().iter_rows()) == steps
    assert set(result.preemptions_table().iter_rows()) == preemptions
    for table in (result.requests_table(), play(trace, recording=Recording(), **case).requests_table()):
        told = [r.first_token_s is not None for r in requests]
        assert table["first_token_at_s"].to_list() == [r.first_token_s for r in requests]
        assert table["status"].to_list() == ["completed" if not r.is_dropped else "failed" if has else "rejected"
                                             for r, has in zip(requests, told, strict=True)]
        assert table.filter(told)["finished_at_s"].to_list() == [
            r.finished_s for r, has in zip(requests, told, strict=True) if has]
        assert table["num_cached_tokens"].to_list() == [r.num_cached or 0 for r in requests]
    return True


def requests_of(arrivals: Any, lengths: Any, limits: Any, ids: Any) -> list[Request]:
    prompts = [[("id", *own[: j // ID_TOKENS + 1], j) for j in range(p)]
               for own, (p, _) in zip(ids, lengths, strict=True)]
    return [Request(str(k), arrivals[k], prompts[k], output, limits[k] == output)
            for k, (_, output) in enumerate(lengths)]


def scheduler_of(case: dict[str, Any], drafts: int, accepted: int) -> Scheduler:
    own = {name: value for name, value in case.items() if name != "num_gpu_blocks"}
    return Scheduler(num_blocks=case["num_gpu_blocks"], num_speculative_tokens=drafts, num_accepted=accepted, **own)
