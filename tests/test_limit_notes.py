"""Notes say what limits cost: steps outside CUDA graphs, rejected requests, and conversations that start at once."""

import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from helpers import EVERYTHING, number, play, scenario_of, trace_of
from typer.testing import CliRunner

from planner import Scenario, replay
from planner.commands.cli import app
from planner.results.notes import idle_options
from planner.run import Outcome
from planner.traces import Trace

OUTSIDE = re.compile(r"outside CUDA graphs")


def graph_note(outcome: Outcome) -> str:
    found = [note for note in outcome.summary["notes"] if OUTSIDE.search(note)]
    assert len(found) == 1
    return str(found[0])


def no_graph_note(outcome: Outcome) -> bool:
    return not any(OUTSIDE.search(note) for note in outcome.summary["notes"])


def lost_ms(note: str) -> float:
    found = re.search(r"takes ([\d.]+) ms longer", note)
    assert found
    return float(found[1])


def alone(tokens: int) -> Trace:
    return trace_of([(10.0 * k, tokens, 20) for k in range(20)])


def test_a_prompt_beyond_the_largest_graph_says_what_it_costs_and_what_lifts_it() -> None:
    """128 seats leave a B200 with graphs of 256 tokens: 512 tokens alone take longer there than on an H100."""
    small, large = (replay(alone(512), Scenario(model="llama-3.1-8b", gpu="b200-sxm", max_num_seqs=seats))
                    for seats in (128, 256))
    note = graph_note(small)
    assert note.startswith("20 of 20 prompts are in steps of more than 256 tokens")
    assert "--max-cudagraph-capture-size 512 captures such steps (vLLM captures up to 2 × max_num_seqs tokens" in note
    assert lost_ms(note) == pytest.approx(small.summary["mean_ttft_ms"] - large.summary["mean_ttft_ms"], rel=0.01)
    assert lost_ms(note) > 10
    assert no_graph_note(large)
    lifted = replay(alone(512), Scenario(model="llama-3.1-8b", gpu="b200-sxm", max_num_seqs=128,
                                         max_cudagraph_capture_size=512))
    assert lifted.summary["mean_ttft_ms"] == pytest.approx(large.summary["mean_ttft_ms"], rel=1e-6)
    assert no_graph_note(lifted)


@pytest.mark.parametrize(("step_s", "is_said"), [(1.0, True), (0.2, False)])
def test_a_clock_of_a_second_is_said(step_s: float, is_said: bool) -> None:
    trace = trace_of([(step_s * (k // 4), 10, 2) for k in range(120)])
    notes = replay(trace, Scenario(step_time="linear:0.001,0", num_gpu_blocks=1000)).summary["notes"]
    assert any("clock resolution of 1 s: 75.6 % of the requests" in note for note in notes) is is_said


def test_prompts_whose_kernels_take_longer_than_launching_them_lose_nothing() -> None:
    assert no_graph_note(replay(alone(8000), Scenario(model="llama-3.1-8b", gpu="h100-sxm")))
    eager = Scenario(model="llama-3.1-8b", gpu="b200-sxm", cudagraph_mode="none")  # which is no limit
    assert no_graph_note(replay(alone(512), eager))


@pytest.mark.parametrize("records", [False, True])
def test_decodes_beyond_the_largest_graph_say_what_a_step_costs(records: bool) -> None:
    trace = trace_of([(0.0, 500, 200)] * 512)
    options: dict[str, Any] = {"model": "gpt-oss-120b", "gpu": "h100-sxm", "engine": "trtllm", "max_concurrency": 256,
                               "tensor_parallel_size": 2, "max_model_len": 2048}
    recording: dict[str, Any] = {"recording": EVERYTHING} if records else {}
    note = graph_note(replay(trace, Scenario(**options), **recording))
    steps = [replay(trace, Scenario(**options, max_cudagraph_capture_size=size), recording=EVERYTHING).steps
             for size in (128, 256)]
    large = (pl.col("num_decodes") > 128) & (pl.col("num_prompt_tokens") == 0)
    slow, fast = (number(found.filter(large)["duration_s"].mean()) for found in steps)
    assert lost_ms(note) == pytest.approx(1e3 * (slow - fast), rel=0.05)
    assert "with more than 128 decodes run outside CUDA graphs" in note
    assert "--max-cudagraph-capture-size 256 captures such steps (TensorRT-LLM captures up to 128 sequences" in note
    assert no_graph_note(replay(trace, Scenario(**options, max_cudagraph_capture_size=256)))


REJECTIONS = [
    ({"max_model_len": 300}, {"too_long": 2}, "prompts of max_model_len = 300 tokens or more; --max-model-len"),
    ({"num_gpu_blocks": 20}, {"kv_cache": 2}, "need more than the 20 KV blocks of a replica"),
    ({"enable_chunked_prefill": False, "max_num_batched_tokens": 350, "max_model_len": 400},
     {"too_long": 1, "token_budget": 1}, "prompts above max_num_batched_tokens = 350, and prompts are not split"),
    ({"max_queued_requests": 1, "max_num_seqs": 1}, {"queue_full": 3}, "found a full queue; --max-queued-requests"),
]


@pytest.mark.parametrize(("options", "counts", "words"), REJECTIONS)
def test_rejected_requests_are_counted_by_reason(options: dict[str, Any], counts: dict[str, int], words: str) -> None:
    trace = trace_of([(0.0, 100, 5), (0.0, 200, 5), (0.0, 380, 5), (0.0, 500, 5)])
    outcome = replay(trace, scenario_of(**options))
    assert outcome.summary["rejected_by_reason"] == counts
    assert outcome.summary["rejected"] == sum(counts.values())
    found = [note for note in outcome.summary["notes"] if " rejected: " in note]
    assert len(found) == len(counts)
    assert any(words in note for note in found)


def test_nothing_is_said_where_nothing_is_rejected() -> None:
    outcome = replay(trace_of([(0.0, 100, 5)]), scenario_of())
    assert outcome.summary["rejected_by_reason"] == {}
    assert not any("rejected" in note for note in outcome.summary["notes"])


def test_reasons_of_the_table_tell_too_long_from_no_room() -> None:
    """With rules for overload the tables of requests and attempts name a reason; both were `too_long`."""
    found = play(trace_of([(0.0, 100, 5), (0.0, 380, 5), (0.0, 500, 5)]), num_gpu_blocks=20, max_model_len=400,
                 max_retries=1)
    assert found.requests_table()["reason"].to_list() == [None, "kv_cache", "too_long"]
    by_request = dict(found.attempts_table().select("request_id", "reason").iter_rows())
    assert (by_request["1"], by_request["2"]) == ("kv_cache", "too_long")


def test_the_terminal_lists_reasons_below_the_number_of_rejected(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("arrival_s,input_tokens,output_tokens\n0,100,5\n0,500,5\n")
    text = CliRunner().invoke(app, ["replay", str(path), "--model", "llama-3.1-8b", "--gpu", "h100-sxm",
                                    "--max-model-len", "300"]).output
    assert re.search(r"rejected +1\n +too_long +1\n", text)
    assert "1 request is rejected: it has prompts of max_model_len = 300 tokens or more" in text


def conversations(num: int, apart_s: float) -> Trace:
    rows = sorted((apart_s * k + 5.0 * turn, k, turn) for k in range(num) for turn in range(3))
    return trace_of([(at_s, 100, 5) for at_s, _, _ in rows], session_id=[f"s{k}" for _, k, _ in rows],
                    think_time_s=[None if turn == 0 else 1.0 for _, _, turn in rows])


def said(trace: Trace, words: str, **options: Any) -> list[str]:
    return [note for note in replay(trace, scenario_of(**options)).summary["notes"] if words in note]


def test_conversations_that_all_start_at_once_are_told() -> None:
    found = said(conversations(40, 0.0), "sessions start within")
    assert found == [
        "40 of 40 sessions start within 1 s, so all these conversations are open at once: queues are longer and prefix "
        "hits rarer than with sessions that start over time; --max-sessions limits the conversations that are open at "
        "once"]
    assert not said(conversations(40, 20.0), "sessions start within")
    assert not said(trace_of([(0.0, 100, 5)] * 40, session_id=[f"s{k}" for k in range(40)]), "sessions start within")


def test_most_of_the_sessions_are_enough() -> None:
    late, early = conversations(10, 300.0), conversations(15, 0.0)
    later = late.requests.with_columns(session_id=pl.col("session_id") + "x", request_id=pl.col("request_id") + "x")
    table = pl.concat([early.requests, later]).sort("arrival_s")
    trace = trace_of(table.select("arrival_s", "input_tokens", "output_tokens").rows(),
                     session_id=table["session_id"].to_list(), think_time_s=table["think_time_s"].to_list())
    assert said(trace, "16 of 25 sessions start within 1 s")


def test_a_limit_in_flight_says_that_it_counts_requests() -> None:
    assert said(conversations(4, 20.0), "limits requests in flight, not conversations", max_concurrency=2)
    assert not said(conversations(4, 20.0), "limits requests in flight")
    assert not said(trace_of([(0.0, 100, 5)] * 4), "limits requests in flight", max_concurrency=2)


def test_a_router_without_a_choice_is_a_note() -> None:
    alone, several = Scenario(router="round-robin"), Scenario(router="random", data_parallel_size=2)
    assert idle_options(alone) == ["router = round-robin: no effect with one replica"]
    assert idle_options(several) == idle_options(Scenario(router="random")) == []


def test_objectives_say_that_rejected_requests_count(tmp_path: Path) -> None:
    """The p99 of the objective counts them as infinitely late; the summary's p99 is of completed requests."""
    (tmp_path / "t.csv").write_text("arrival_s,input_tokens,output_tokens\n0,100,20\n1,3000,20\n2,120,20\n")
    command = ["replay", str(tmp_path / "t.csv"), "--model", "llama-3.1-8b", "--gpu", "h100-sxm", "--slo",
               "p50_ttft:500"]
    words = "these values count 1 request without an answer as infinitely late"
    assert words in CliRunner().invoke(app, [*command, "--max-model-len", "2048"]).output
    assert words not in CliRunner().invoke(app, command).output
