"""A request's story: its events and its sentence are what the tables say."""

import polars as pl
import pytest
from helpers import EVERYTHING, play, trace_of

from planner.errors import UnknownNameError
from planner.replays.result_tables import ReplayResult
from planner.results.short_times import time_text
from planner.results.spans import spans
from planner.results.story import KINDS, tell

ROWS = [(0.0, 300, 300), (0.02, 700, 30), (0.03, 20, 1), (0.05, 300, 300)]


@pytest.fixture(scope="module")
def result() -> ReplayResult:
    """Four requests in seventy blocks: the prompts take several chunks, and someone is preempted."""
    found = play(trace_of(ROWS), recording=EVERYTHING, num_gpu_blocks=70, max_num_batched_tokens=256)
    assert found.requests_table()["num_preemptions"].sum() > 0
    return found


def tables(result: ReplayResult) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    return result.requests_table(), result.steps_table(), result.schedule_table()


@pytest.mark.parametrize("place", range(4))
def test_its_events_fill_its_time(result: ReplayResult, place: int) -> None:
    """From its arrival at the scheduler to its end without a hole, each as long as its span."""
    requests, steps, schedule = tables(result)
    row = requests.row(place, named=True)
    story = tell(requests, steps, schedule, row["request_id"])
    ends = (story.events["at_ms"] + story.events["lasts_ms"]).to_list()
    assert story.events["at_ms"][1:].to_list() == pytest.approx(ends[:-1])
    assert ends[-1] == pytest.approx(1e3 * row["e2e_s"])
    own = spans(requests.filter(request_id=row["request_id"]), steps, schedule)
    assert story.events["what"].to_list() == [KINDS[kind] for kind in own["kind"]]
    done = story.events.filter(what=KINDS["prompt chunk"])["num_tokens"].sum()
    assert done >= row["input_tokens"]


def test_its_sentence_has_the_numbers_of_the_table(result: ReplayResult) -> None:
    requests, steps, schedule = tables(result)
    row = requests.row(1, named=True)
    said = tell(requests, steps, schedule, row["request_id"]).sentence
    assert said.startswith("700 prompt tokens, 30 output tokens, completed")
    assert f"TTFT {time_text(1e3 * row['ttft_s'])}" in said
    assert f"end to end {time_text(1e3 * row['e2e_s'])}" in said
    preempted = requests.filter(requests["num_preemptions"] > 0).row(0, named=True)
    assert f"preempted {preempted['num_preemptions']} times" in tell(requests, steps, schedule,
                                                                    preempted["request_id"]).sentence


def test_a_token_alone_has_no_time_for_later_ones(result: ReplayResult) -> None:
    assert "TPOT" not in tell(*tables(result), "2").sentence


def test_an_unknown_request_is_said(result: ReplayResult) -> None:
    with pytest.raises(UnknownNameError, match="unknown request 'x'"):
        tell(*tables(result), "x")
