"""The replay loop against the rules of Text Embeddings Inference written out plainly, on random cases."""

from typing import Any

import pytest
from helpers import EVERYTHING, batches, trace_of
from hypothesis import given, settings
from hypothesis import strategies as some
from rules_tei import Server
from rules_tei import replay as serve

from planner.run import Outcome, replay
from planner.settings.scenario import Scenario

Load = tuple[list[float], list[int]]
BUDGETS, MOST, INSIDE = [700, 1000, 4096], [0, 1, 2, 5], [0, 0, 3, 8]


@some.composite
def loads(draw: some.DrawFn, gaps: tuple[float, ...] = (0.0, 0.0, 0.003, 0.0211, 0.17)) -> Load:
    """Draw arrivals and prompts, from a server that is hardly used to one that is behind."""
    between = draw(some.lists(some.sampled_from(gaps), min_size=1, max_size=30))
    tokens = draw(some.lists(some.integers(1, 700), min_size=len(between), max_size=len(between)))
    at_s = [0.0]
    for gap in between[1:]:
        at_s.append(round(at_s[-1] + gap, 6))
    return at_s, tokens


def served(load: Load, budget: int, most: int = 0, inside: int = 0) -> Outcome:
    scenario = Scenario(engine="tei", model="bge-m3", step_time="linear:0.01,0.0001", num_gpu_blocks=10**6,
                        max_model_len=700, max_num_batched_tokens=budget, max_num_seqs=most, max_num_queued_reqs=inside)
    return replay(trace_of([(at_s, n, 7) for at_s, n in zip(*load, strict=True)]), scenario, recording=EVERYTHING)


def by_the_rules(load: Load, budget: int, most: int = 0, inside: int = 0, **rules: Any) -> tuple[Server, list[float]]:
    server = Server(load[1], budget, most or 10**9, inside or 10**9, **rules)
    return server, serve(load[0], server)


def steps_of(outcome: Outcome) -> list[list[int]]:
    return [sorted(map(int, step)) for step in batches(outcome.result)]


@pytest.mark.slow
@settings(max_examples=400)
@given(loads(), some.sampled_from(BUDGETS), some.sampled_from(MOST), some.sampled_from(INSIDE))
def test_the_loop_does_what_the_rules_say(load: Load, budget: int, most: int, inside: int) -> None:
    """Each batch has the same requests, each request the same end, and the same requests are refused."""
    outcome = served(load, budget, most, inside)
    server, ends = by_the_rules(load, budget, most, inside, counts_flight=False)
    assert steps_of(outcome) == [batch.requests for batch in server.batches]
    table = outcome.requests
    assert [k for k, status in enumerate(table["status"]) if status == "rejected"] == server.refused
    kept = [k for k in range(len(ends)) if k not in server.refused]
    assert [table["finished_at_s"][k] for k in kept] == pytest.approx([ends[k] for k in kept])


@given(loads(gaps=(0.0,)), some.sampled_from(BUDGETS), some.sampled_from(MOST))
def test_a_server_that_is_behind_is_replayed_exactly(load: Load, budget: int, most: int) -> None:
    outcome = served(load, budget, most)
    server, ends = by_the_rules(load, budget, most)
    assert steps_of(outcome) == [batch.requests for batch in server.batches]
    assert outcome.requests["finished_at_s"].to_list() == pytest.approx(ends)


def test_a_task_that_sleeps_is_woken_by_one_request() -> None:
    """The first to arrive during a batch is the next batch alone; those behind it share the one after that."""
    load = [0.0, 0.001, 0.002, 0.003], [100, 100, 100, 100]
    assert [batch.requests for batch in by_the_rules(load, 4096)[0].batches] == [[0], [1], [2, 3]]
    assert steps_of(served(load, 4096)) == [[0], [1], [2, 3]]


def test_two_batches_in_flight_count_as_concurrent_requests() -> None:
    """The replay limits the waiting requests alone; a note says so."""
    load = [0.001 * k for k in range(5)], [100] * 5
    assert by_the_rules(load, 4096, inside=2)[0].refused == [2, 3, 4]
    outcome = served(load, 4096, inside=2)
    assert [k for k, status in enumerate(outcome.requests["status"]) if status == "rejected"] == [4]
    assert any("waiting requests alone" in note for note in outcome.summary["notes"])
