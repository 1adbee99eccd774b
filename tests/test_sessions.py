"""A limited number of sessions open at once: conversations with pauses and sub-agents, started in the middle or not."""

from typing import Any

import numpy as np
import polars as pl
import pytest
from helpers import play, trace_of
from hypothesis import given, settings
from hypothesis import strategies as some

from planner.errors import UsageError
from planner.results.session_notes import session_notes
from planner.run import replay
from planner.settings.scenario import Scenario
from planner.traces import Trace

TURNS = trace_of([(0.0, 10, 5)] * 12, session_id=[str(k // 4) for k in range(12)],
                 think_time_s=[None if k % 4 == 0 else 0.5 for k in range(12)])


@some.composite
def conversations(draw: Any) -> Trace:
    """A few sessions, some of them with sub-agents beside their turns, and requests without a session."""
    rows: list[dict[str, Any]] = []
    for session in range(draw(some.integers(1, 6))):
        begin_s = draw(some.sampled_from((0.0, 0.0, 0.3, 2.0)))
        name = draw(some.sampled_from((str(session), str(session), None)))
        parent = None
        for turn in range(draw(some.integers(1, 4)) if name else 1):
            own = f"{session}/{turn}"
            row = {"arrival_s": begin_s, "input_tokens": draw(some.integers(1, 60)), "session_id": name,
                   "output_tokens": draw(some.integers(1, 12)),
                   "think_time_s": draw(some.sampled_from((0.0, 0.2, 1.0)))}
            rows.append(row | {"request_id": own, "parent_id": parent})
            joined = parent = own
            if draw(some.booleans()) and name:
                rows.append(row | {"request_id": f"{own}/agent", "parent_id": own})
                joined = f"{own};{own}/agent"
            parent = joined
    rows.sort(key=lambda row: row["arrival_s"])
    given_rows = [(row["arrival_s"], row["input_tokens"], row["output_tokens"]) for row in rows]
    others = ("session_id", "think_time_s", "request_id", "parent_id")
    columns: dict[str, Any] = {name: pl.Series(name, [row[name] for row in rows],
                                               pl.Float64 if name == "think_time_s" else pl.String) for name in others}
    return trace_of(given_rows, **columns)


def spans(table: pl.DataFrame) -> pl.DataFrame:
    """Return when each session began and ended, in the order of the trace; a request without one is its own."""
    own = pl.coalesce("session_id", pl.format("alone {}", "request_id"))
    return table.group_by(own.alias("session"), maintain_order=True).agg(
        begin_s=pl.col("arrival_s").min(), end_s=pl.col("finished_at_s").max())


def most_open(table: pl.DataFrame) -> int:
    """Return how many sessions are open at once; one that begins as another ends takes its place."""
    found = spans(table)
    changes = [(end_s, -1) for end_s in found["end_s"]] + [(begin_s, 1) for begin_s in found["begin_s"]]
    return int(np.cumsum([change for _, change in sorted(changes)]).max())


@pytest.mark.slow
@given(trace=conversations(), most=some.integers(1, 4), replicas=some.sampled_from((1, 3)))
@settings(max_examples=60)
def test_sessions_open_at_once_never_exceed_the_limit(trace: Trace, most: int, replicas: int) -> None:
    """The next one begins when one ends, or at its own arrival: none waits without need, and all are served."""
    options: dict[str, Any] = {"data_parallel_size": replicas, "num_gpu_blocks": 60}
    found = play(trace, max_sessions=most, **options).requests_table()
    assert set(found["status"]) == {"completed"}
    assert most_open(found) <= most
    begun, ends = spans(found), sorted(spans(found)["end_s"])
    for place, begin_s in enumerate(sorted(begun["begin_s"])):
        due_s = ends[place - most] if place >= most else -np.inf
        assert begin_s in trace.requests["arrival_s"] or begin_s == pytest.approx(due_s, abs=1e-9)
    assert play(trace, max_sessions=10, **options).requests_table().equals(play(trace, **options).requests_table(),
                                                                           null_equal=True)


def test_the_next_session_starts_when_one_has_ended() -> None:
    one, two = (play(TURNS, max_sessions=most).requests_table() for most in (1, 2))
    begun = spans(one)
    assert begun["begin_s"].to_list()[1:] == begun["end_s"].to_list()[:-1]
    assert spans(two)["begin_s"].to_list() == [0.0, 0.0, spans(two)["end_s"].min()]


@pytest.mark.parametrize(("fractions", "kept"), [("0,0", [4, 4, 4]), ("0.5,0.5", [2, 2, 4]), ("1,1", [1, 1, 4])])
def test_the_sessions_that_are_open_at_the_start_leave_out_their_first_requests(fractions: str,
                                                                               kept: list[int]) -> None:
    table = play(TURNS, max_sessions=2, session_start_fraction=fractions).requests_table()
    sizes = table.group_by("session_id", maintain_order=True).len()["len"].to_list()
    assert sizes == kept
    assert table["arrival_s"].to_list()[:1] == [0.0]


def test_where_a_session_starts_is_drawn_by_the_seed() -> None:
    counts = {tuple(play(TURNS, max_sessions=3, session_start_fraction="0,1", seed=seed).requests_table()["request_id"])
              for seed in (1, 1, 2, 3, 4)}
    assert 1 < len(counts) < 5


@pytest.mark.parametrize(("options", "words"), [
    ({"max_sessions": 0}, "--max-sessions 0; must be at least 1"),
    ({"session_start_fraction": "0,1"}, "needs --max-sessions"),
    ({"max_sessions": 2, "session_start_fraction": "0.5"}, "must be LOW,HIGH"),
    ({"max_sessions": 2, "session_start_fraction": "0.7,0.2"}, "must be LOW,HIGH"),
    ({"max_sessions": 2, "wait_for_parents": False}, "leave one of them out"),
])
def test_what_makes_no_sense_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        play(TURNS, **options)


def test_a_trace_without_sessions_has_none_to_limit() -> None:
    with pytest.raises(UsageError, match="has no session_id, so no request belongs to a session; use --max-concurr"):
        play([(0.0, 10, 5)], max_sessions=2)


def test_a_limit_of_requests_in_flight_names_the_limit_of_conversations() -> None:
    scenario = Scenario(step_time="linear:0.01,0", num_gpu_blocks=100, max_concurrency=2)
    assert any("--max-sessions limits conversations" in note for note in session_notes(scenario, TURNS))


def test_turns_that_repeat_the_turn_before_without_prefixes_are_said() -> None:
    grown, alone = [(5.0 * k, 100 + 30 * k, 20) for k in range(4)], [(5.0 * k, 50, 20) for k in range(4)]
    for turns, words in ((grown, "3 of 3 later turns have a prompt as long as the turn before"), (alone, None)):
        trace = trace_of(turns, session_id=["a"] * 4)
        found = [note for note in session_notes(Scenario(), trace) if "later turn" in note]
        assert [note.partition(" with its answer")[0] for note in found] == ([words] if words else [])


def test_a_session_has_its_cost() -> None:
    """The price of the replay over the trace's sessions; without sessions there is none."""
    rows = [(0.5 * k, 100, 20) for k in range(12)]
    scenario = Scenario(model="llama-3.1-8b", gpu="h100-sxm")
    of_sessions = replay(trace_of(rows, session_id=[f"s{k % 3}" for k in range(12)]), scenario).summary
    assert of_sessions["cost_usd_per_session"] == of_sessions["cost_usd"] / 3
    assert replay(trace_of(rows), scenario).summary["cost_usd_per_session"] is None
