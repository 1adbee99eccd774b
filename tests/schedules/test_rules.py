"""The schedulers' rules as plain programs: they do what was recorded, and the replay loop does as they do at random."""

import csv
import gzip
import json
import os
import random
from collections import Counter
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import rules_clock
import rules_trtllm
import rules_vllm
from helpers import EVERYTHING, play, trace_of
from hypothesis import example, given, settings
from hypothesis import strategies as some

from planner.loop.state.engine_settings import Recording

SHARED = Path(os.environ.get("PLANNER_SHARED", Path(__file__).parents[3] / "shared"))
NO_LIMIT = 2**60  # of a request that says none

VLLM_MODES = ("synchronous", "crowded", "asynchronous", "model-len", "options", "drafts")
TRTLLM_MODES = ("whole", "chunks", "batch-wait", "static", "overlap")


def recorded(engine: str) -> list[Any]:
    """Return the recorded cases of an engine, or one that is skipped."""
    found = [path for path in sorted(SHARED.glob("schedules*/*/settings.json"))
             if json.loads(path.read_text())["engine"].startswith(f"{engine} ")]
    reason = f"no recordings of {engine} in {SHARED}; PLANNER_SHARED names the folder above schedules/"
    none = pytest.param(SHARED, marks=pytest.mark.skip(reason=reason))
    return [pytest.param(path.parent, id=path.parent.name) for path in found] or [none]


def settings_and_rows(case: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    with gzip.open(case / "trace.jsonl.gz", "rt") as lines:
        return json.loads((case / "settings.json").read_text()), [json.loads(line) for line in lines]


def assert_as_recorded(case: Path, steps: Any, preemptions: Any, requests: Any) -> None:
    """Compare with the recording: rows and preemptions of each step, cached tokens, and times to 1 ns."""
    with gzip.open(case / "steps.csv.gz", "rt") as lines:
        rows = list(csv.DictReader(lines))
    assert steps == {(int(row["step"]), row["request_id"], int(row["num_scheduled_tokens"])) for row in rows}
    rows = list(csv.DictReader((case / "preemptions.csv").read_text().splitlines()))
    assert preemptions == {(int(row["step"]), row["request_id"]) for row in rows}
    rows = list(csv.DictReader((case / "requests.csv").read_text().splitlines()))
    named = {request.name: request for request in requests}
    assert named.keys() == {row["request_id"] for row in rows}
    for row in rows:
        request = named[row["request_id"]]
        assert request.num_cached == int(row["num_cached_tokens"])
        assert request.first_token_s == pytest.approx(float(row["first_token_s"]), rel=0, abs=1e-9)
        assert request.finished_s == pytest.approx(float(row["finish_s"]), rel=0, abs=1e-9)


@pytest.mark.parametrize("case", recorded("vllm"))
def test_rules_of_vllm_are_those_recorded(case: Path) -> None:
    said, rows = settings_and_rows(case)
    requests = []
    for row in rows:
        ids, size = row.get("hash_ids", ()), row.get("hash_block_tokens", 1)
        prompt = [("id", ids[j // size], j % size) if ids else ("own", row["request_id"], j)
                  for j in range(row["input_tokens"])]
        requests.append(rules_vllm.Request(
            row["request_id"], row["arrival_s"], prompt, row["output_tokens"], row.get("max_output_tokens", NO_LIMIT),
            row.get("priority", 0.0)))
    known = {f.name for f in fields(rules_vllm.Scheduler)}
    scheduler = rules_vllm.Scheduler(**{key: value for key, value in said.items() if key in known} | {
        "async_scheduling": "AsyncScheduler" in said["engine"], "num_accepted": said.get("accept_cycle", [0])[0],
        "hashes_next_token": said.get("spec_lookahead", 0) > 0})
    steps, preemptions = rules_clock.replay(requests, scheduler, said["step_base_s"], said["step_per_token_s"])
    assert_as_recorded(case, steps, preemptions, requests)
    assert scheduler.num_rows_after_the_end == said.get("num_rows_after_the_end", 0)


@pytest.mark.parametrize("case", recorded("tensorrt_llm"))
def test_rules_of_trtllm_are_those_recorded(case: Path) -> None:
    said, rows = settings_and_rows(case)
    requests = [rules_trtllm.Request(row["request_id"], row["arrival_s"], row["input_tokens"], row["output_tokens"],
                                     row.get("max_output_tokens", NO_LIMIT)) for row in rows]
    known = {f.name for f in fields(rules_trtllm.Scheduler)}
    scheduler = rules_trtllm.Scheduler(**{key: value for key, value in said.items() if key in known})
    steps, pauses = rules_clock.replay(requests, scheduler, said["step_base_s"], said["step_per_token_s"])
    assert_as_recorded(case, steps, pauses, requests)


ID_TOKENS = 4
INSTANTS = (0.0, 0.0, 0.01, 0.02, 0.05, 0.3)
CAPACITY_POLICIES = {"trtllm-no-evict": "GUARANTEED_NO_EVICT", "trtllm-max-utilization": "MAX_UTILIZATION",
                     "static": "STATIC_BATCH"}
MORE_OPTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    "synchronous": {},
    "crowded": {},
    "asynchronous": {"async_scheduling": (True,), "max_model_len": (64,)},
    "model-len": {"async_scheduling": (False, True), "max_model_len": (31, 34, 40)},
    "options": {
        "async_scheduling": (False, True),
        "max_model_len": (64,),
        "max_num_active_seqs": (None, 2, 3),
        "max_num_scheduled_tokens": (None, 5, 11),
        "long_prefill_token_threshold_adaptive": (False, True),
        "prefill_schedule_interval": (1, 2, 4),
    },
    "drafts": {
        "async_scheduling": (False, True),
        "num_speculative_tokens": (1, 2, 3),
        "speculative_method": ("eagle3", "ngram"),
        "num_accepted": (0, 1, 2, 3),
        "max_model_len": (40, 64),
    },
}


@some.composite
def vllm_cases(draw: Any, mode: str) -> dict[str, Any]:
    """Draw requests that each fit the memory alone, and the scheduler's settings under their names in `play`.

    Crowded: requests of few prompts mostly wait for memory, so blocks that come back are taken in the same step.
    """
    is_crowded = mode == "crowded"
    block_size = draw(some.sampled_from((1, 2, 4) if is_crowded else (1, 2, 4, 8)))
    n = draw(some.integers(4, 12) if is_crowded else some.integers(1, 12))
    prompts, outputs = ((9, 24), (1, 8)) if is_crowded else ((1, 30), (1, 15))
    lengths = [(draw(some.integers(*prompts)), draw(some.integers(*outputs))) for _ in range(n)]
    bits = some.integers(0, 1)
    ids = some.tuples(*[bits] * 8).map(list)
    if is_crowded:
        ids = some.tuples(bits, bits).map(lambda pair: [pair[0]] * 6 + [pair[1]] * 2)
    case = {
        "arrivals": sorted(draw(some.lists(some.sampled_from(INSTANTS + (0.03, 0.08, 0.12) * is_crowded),
                                           min_size=n, max_size=n))),
        "lengths": lengths,
        "rests": draw(some.lists(some.sampled_from((0, 0, 1, 7, None)), min_size=n, max_size=n)),
        "priorities": draw(some.lists(some.sampled_from((0.0, 1.0, 2.0)), min_size=n, max_size=n)),
        "ids": [draw(ids) for _ in range(n)],
        "block_size": block_size,
        "max_num_seqs": 8 if is_crowded else draw(some.integers(1, 6)),
        "max_num_batched_tokens": draw(some.sampled_from((13, 64) if is_crowded else (6, 8, 13, 64))),
        "long_prefill_token_threshold": draw(some.sampled_from((0, 0, 3) if is_crowded else (0, 0, 3, 7))),
        "watermark": draw(some.sampled_from((0.0, 0.0, 0.1))),
        "enable_chunked_prefill": draw(some.sampled_from((True, True, True, False))),
        "enable_prefix_caching": is_crowded or draw(some.booleans()),
        "policy": draw(some.sampled_from(("fcfs", "priority"))),
        "scheduler_reserve_full_isl": draw(some.sampled_from((True, True, False))),
    }
    case |= {option: draw(some.sampled_from(values)) for option, values in MORE_OPTIONS[mode].items()}
    if not case["enable_chunked_prefill"]:  # vLLM asks for a budget that holds any request whole
        case |= {"max_num_batched_tokens": 64} | ({"max_num_scheduled_tokens": None} if mode == "options" else {})
    drafts = case.get("num_speculative_tokens", 0)
    longest = case.get("max_model_len") or NO_LIMIT
    case["lengths"] = [(p, min(o, longest - p)) for p, o in lengths]
    least = max(-(-(p + o + 3 * drafts) // block_size) for p, o in lengths)  # rows, those in flight, and lookahead
    case["num_gpu_blocks"] = least + draw(some.integers(0, 24 // block_size if is_crowded else 12))
    return {option: value for option, value in case.items() if value is not None}


def ask_rules_of_vllm(case: dict[str, Any]) -> tuple[Any, ...]:
    """Return the steps, preemptions and requests of a case by the rules."""
    limits = limits_of(case)
    requests = []
    for k, (p, o) in enumerate(case["lengths"]):
        prompt = [("id", *case["ids"][k][: j // ID_TOKENS + 1], j) for j in range(p)]
        requests.append(rules_vllm.Request(str(k), case["arrivals"][k], prompt, o, limits[k] or NO_LIMIT,
                                           case["priorities"][k]))
    drafts = case.get("num_speculative_tokens", 0)
    has_head = case.get("speculative_method") == "eagle3"
    known = {f.name for f in fields(rules_vllm.Scheduler)}
    scheduler = rules_vllm.Scheduler(
        num_blocks=case["num_gpu_blocks"], spec_lookahead=drafts * has_head, hashes_next_token=has_head,
        **{option: value for option, value in case.items() if option in known})
    return *rules_clock.replay(requests, scheduler, 0.01, 0.0001), requests


@some.composite
def trtllm_cases(draw: Any, mode: str) -> dict[str, Any]:
    """Draw requests that each fit the memory alone, and the scheduler's settings under their names in `play`."""
    n = draw(some.integers(1, 12))
    lengths = [(draw(some.integers(1, 30)), draw(some.integers(1, 15))) for _ in range(n)]
    block_size = draw(some.sampled_from((1, 2, 4, 8)))
    is_chunked = mode == "chunks" or (mode != "whole" and draw(some.booleans()))
    policies = {"static": ("static",)}
    case = {
        "engine": "trtllm",
        "policy": draw(some.sampled_from(policies.get(mode, ("trtllm-no-evict", "trtllm-max-utilization")))),
        "arrivals": sorted(draw(some.lists(some.sampled_from(INSTANTS), min_size=n, max_size=n))),
        "lengths": lengths,
        "rests": draw(some.lists(some.sampled_from((0, 0, 1, 7, None)), min_size=n, max_size=n)),
        "block_size": block_size,
        "max_model_len": draw(some.sampled_from((45, 64))),
        "max_num_seqs": draw(some.integers(1, 6)),
        "max_num_batched_tokens": draw(some.sampled_from((8, 13, 21) if is_chunked else (45, 50, 64))),
        "enable_chunked_prefill": is_chunked,
        "enable_prefix_caching": False,
        "async_scheduling": mode == "overlap",
    }
    if is_chunked:
        case["context_chunking_policy"] = draw(some.sampled_from(("FIRST_COME_FIRST_SERVED", "EQUAL_PROGRESS")))
    if mode in ("batch-wait", "overlap"):
        case["batch_wait_timeout_iters"] = draw(some.integers(0, 4))
        case["batch_wait_max_tokens_ratio"] = draw(some.sampled_from((0.0, 0.3, 0.9)))
    if case["policy"] == "trtllm-max-utilization":
        largest = [p + o for p, o in lengths]
    else:
        largest = [min(p + (limit or NO_LIMIT), case["max_model_len"])
                   for (p, _), limit in zip(lengths, limits_of(case), strict=True)]
    case["num_gpu_blocks"] = -(-max(largest) // block_size) + draw(some.integers(0, 12))
    return case


def crowded_trtllm_case(seed: int) -> dict[str, Any]:
    """Draw bursts of requests under MAX_UTILIZATION in little memory, so that one to dozens of requests pause."""
    draw, now_s, arrivals = random.Random(seed), 0.0, list[float]()
    n, block_size, is_chunked = draw.randint(10, 40), draw.choice((1, 2, 4, 8, 16)), draw.random() < 0.7
    while len(arrivals) < n:
        now_s += draw.choice((0.01, 0.02, 0.02, 0.05, 0.1, 0.3, 0.6))
        arrivals += [now_s] * draw.choice((1, 1, 2, 4))
    lengths = [(draw.choice((draw.randint(1, 8), draw.randint(10, 60), draw.randint(30, 120))), draw.randint(1, 60))
               for _ in range(n)]
    return {
        "engine": "trtllm",
        "policy": "trtllm-max-utilization",
        "arrivals": arrivals[:n],
        "lengths": lengths,
        "rests": [draw.choice((0, 0, 1, 7, None)) for _ in range(n)],
        "block_size": block_size,
        "num_gpu_blocks": -(-max(map(sum, lengths)) // block_size) + draw.randint(0, -(-100 // block_size)),
        "max_model_len": 200,
        "max_num_seqs": draw.choice((4, 8, 16)),
        "max_num_batched_tokens": draw.choice((48, 64, 96, 128) if is_chunked else (200, 256)),
        "enable_chunked_prefill": is_chunked,
        "enable_prefix_caching": False,
        "async_scheduling": draw.random() < 0.7,
        "context_chunking_policy": draw.choice(("FIRST_COME_FIRST_SERVED", "EQUAL_PROGRESS")),
    }


def ask_rules_of_trtllm(case: dict[str, Any]) -> tuple[Any, ...]:
    """Return the steps, pauses and requests of a case by the rules."""
    limits = limits_of(case)
    requests = [rules_trtllm.Request(str(k), case["arrivals"][k], p, o, limits[k] or NO_LIMIT)
                for k, (p, o) in enumerate(case["lengths"])]
    known = {f.name for f in fields(rules_trtllm.Scheduler)}
    scheduler = rules_trtllm.Scheduler(
        capacity_scheduler_policy=CAPACITY_POLICIES[case["policy"]], num_blocks=case["num_gpu_blocks"],
        max_batch_size=case["max_num_seqs"], max_num_tokens=case["max_num_batched_tokens"],
        max_seq_len=case["max_model_len"], overlap=case["async_scheduling"],
        chunking_policy=case.get("context_chunking_policy", "FIRST_COME_FIRST_SERVED"),
        **{option: value for option, value in case.items() if option in known})
    return *rules_clock.replay(requests, scheduler, 0.01, 0.0001), requests


def limits_of(case: dict[str, Any]) -> list[int | None]:
    """Return the limits on the outputs that the requests say: those of ends by length are their outputs."""
    return [None if rest is None else o + rest for rest, (_, o) in zip(case["rests"], case["lengths"], strict=True)]


def assert_loop_does_the_same(case: dict[str, Any], steps: Any, preemptions: Any, requests: Any) -> None:
    """Replay a case, and compare steps, preemptions, times and prefix hits with what the rules say."""
    case = {"max_model_len": 262_144} | case
    columns: dict[str, Any] = {"max_output_tokens": limits_of(case)}
    arrivals, lengths, _ = (case.pop(key) for key in ("arrivals", "lengths", "rests"))
    if "ids" in case:
        columns["priority"], ids = case.pop("priorities"), case.pop("ids")
        columns["hash_ids"] = [ids[k][: -(-p // ID_TOKENS)] for k, (p, _) in enumerate(lengths)]
    if "num_accepted" in case:
        accepted, drafts = case.pop("num_accepted"), case["num_speculative_tokens"]
        case["speculative_acceptance"] = ",".join("1" if k < accepted else "0" for k in range(drafts))
    rows = [(arrivals[k], p, o) for k, (p, o) in enumerate(lengths)]
    trace = trace_of(rows, hash_block_tokens=ID_TOKENS, **columns)
    result = play(trace, recording=EVERYTHING, step_time="linear:0.01,0.0001", **case)
    assert set(result.schedule_table().iter_rows()) == steps
    assert set(result.preemptions_table().iter_rows()) == preemptions
    in_stretches = play(trace, recording=Recording(), step_time="linear:0.01,0.0001", **case)
    for table in (result.requests_table(), in_stretches.requests_table()):
        assert table["finished_at_s"].to_list() == [r.finished_s for r in requests]
        assert table["first_token_at_s"].to_list() == [r.first_token_s for r in requests]
        assert table["num_cached_tokens"].to_list() == [r.num_cached for r in requests]


@pytest.mark.parametrize("mode", VLLM_MODES)
@settings(max_examples=100)
@given(data=some.data())
def test_the_loop_does_what_the_rules_of_vllm_say(mode: str, data: Any) -> None:
    """Among them: the loop does not look at a blocked head in every step; the rules do."""
    case = data.draw(vllm_cases(mode))
    assert_loop_does_the_same(case, *ask_rules_of_vllm(case))


@pytest.mark.parametrize("mode", TRTLLM_MODES)
@settings(max_examples=100)
@given(data=some.data())
def test_the_loop_does_what_the_rules_of_trtllm_say(mode: str, data: Any) -> None:
    case = data.draw(trtllm_cases(mode))
    assert_loop_does_the_same(case, *ask_rules_of_trtllm(case))


@settings(max_examples=100)
@given(seed=some.integers(0, 2**32))
@example(seed=329)  # a context without a chunk stands before the last request that pauses
def test_the_loop_does_what_the_rules_of_trtllm_say_of_crowds(seed: int) -> None:
    case = crowded_trtllm_case(seed)
    assert_loop_does_the_same(case, *ask_rules_of_trtllm(case))


@pytest.mark.parametrize("mode", VLLM_MODES)
@given(data=some.data())
def test_the_rules_of_vllm_get_on(mode: str, data: Any) -> None:
    case = data.draw(vllm_cases(mode))
    assert_gets_on(case, *ask_rules_of_vllm(case))


@pytest.mark.parametrize("mode", TRTLLM_MODES)
@given(data=some.data())
def test_the_rules_of_trtllm_get_on(mode: str, data: Any) -> None:
    case = data.draw(trtllm_cases(mode))
    assert_gets_on(case, *ask_rules_of_trtllm(case))


def assert_gets_on(case: dict[str, Any], steps: Any, _: Any, requests: Any) -> None:
    """Every request ends, and no step has more than its budget."""
    tokens = Counter[int]()
    for step, _, n in steps:
        tokens[step] += n
    assert max(tokens.values()) <= case["max_num_batched_tokens"]
    for request, (_, num_outputs) in zip(requests, case["lengths"], strict=True):
        assert request.emitted == num_outputs
        assert request.first_token_s <= request.finished_s
