"""Logs and metrics of servers: requests where lines have them, else the sentence that says what the text has."""

from pathlib import Path

import polars as pl
import pytest
from command_line import fails, planner

from planner.errors import TraceError
from planner.measured.logged_arrivals import with_lengths
from planner.traces import read_trace
from planner.traces.shaping.rate_series import read_rate_series

ACCESS = "".join(
    f'10.0.0.4 - - [01/Nov/2026:10:0{minute}:0{second} +0000] "POST {path} HTTP/1.1" {status} 3411 "-" "client/1.0"\n'
    for minute, second, path, status in ((0, 0, "/v1/chat/completions", 200), (0, 3, "/health", 200),
                                         (0, 5, "/v1/chat/completions", 200), (1, 0, "/v1/completions", 500),
                                         (2, 0, "/v1/completions", 200)))
SCRAPE = "".join(
    f'# TYPE vllm:request_{kind}_tokens histogram\n'
    f'vllm:request_{kind}_tokens_bucket{{le="{edge}.0",model_name="m"}} 1000.0\n'
    f'vllm:request_{kind}_tokens_bucket{{le="+Inf",model_name="m"}} 1000.0\n'
    f'vllm:request_{kind}_tokens_sum{{model_name="m"}} {1000 * mean}\n'
    f'vllm:request_{kind}_tokens_count{{model_name="m"}} 1000.0\n'
    for kind, edge, mean in (("prompt", 1000, 700), ("generation", 200, 120)))
VLLM = """INFO 11-01 10:00:00 [logger.py:43] Received request chatcmpl-a1: prompt: None, params: SamplingParams(n=1)
INFO 11-01 10:00:10 [loggers.py:118] Engine 000: Avg prompt throughput: 310.2 tokens/s, Avg generation throughput: \
64.0 tokens/s, Running: 3 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.2%, Prefix cache hit rate: 12.0%
"""
SGLANG = """[2026-11-01 10:00:12 TP0] Prefill batch. #new-seq: 1, #new-token: 812, #cached-token: 100, token usage: 0.00
[2026-11-01 10:00:13 TP0] Prefill batch. #new-seq: 2, #new-token: 401, #cached-token: 0, token usage: 0.00
[2026-11-01 10:00:13 TP1] Prefill batch. #new-seq: 2, #new-token: 401, #cached-token: 0, token usage: 0.00
[2026-11-01 10:00:15 TP0] Decode batch. #running-req: 3, #token: 850, token usage: 0.00, gen throughput (token/s): 142.1
"""
FINISHED = """[2026-11-01 10:00:12] Finish: obj=GenerateReqInput(), out={'text': 'x', 'meta_info': {'id': 'a', \
'prompt_tokens': 50, 'completion_tokens': 20, 'cached_tokens': 32, 'e2e_latency': 1.5}}
[2026-11-01 10:00:13] Finish: obj=GenerateReqInput(), out={'text': 'x', 'meta_info': {'id': 'b', \
'prompt_tokens': 60, 'completion_tokens': 30, 'cached_tokens': 0, 'e2e_latency': 0.5}}
"""


@pytest.fixture
def write(tmp_path: Path) -> Path:
    """Write all texts, and return their folder."""
    for name, text in (("access.log", ACCESS), ("metrics.prom", SCRAPE), ("vllm.log", VLLM), ("sglang.log", SGLANG),
                       ("finished.log", FINISHED)):
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(("name", "message"), [
    ("access.log", "is an access log with the times of 3 requests, without token counts; planner trace convert"),
    ("metrics.prom", "is a scrape of /metrics, without single requests; its histograms give lengths: --lengths"),
    ("vllm.log", "is vLLM's log with 1 received request, without token counts. On average over 1 interval line: 310.2 "
                 "prompt tokens/s, 64 out"),
])
def test_a_text_without_lengths_says_what_it_has(write: Path, name: str, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        read_trace(str(write / name))


def test_prefill_lines_are_arrivals_with_prompts(write: Path) -> None:
    trace = read_trace(str(write / "sglang.log"))
    assert trace.requests.select("arrival_s", "input_tokens", "cached_tokens", "output_tokens").rows() == [
        (0.0, 912, 100, 40), (1.0, 201, 0, 40), (1.0, 200, 0, 40)]
    assert trace.format == "sglang-log"
    assert "3 prefill lines" not in trace.account.notes[0]  # another rank's line is the same step


def test_finished_requests_arrive_a_latency_before(write: Path) -> None:
    trace = read_trace(str(write / "finished.log"))
    columns = ["arrival_s", "input_tokens", "output_tokens", "cached_tokens", "e2e_s"]
    assert trace.requests.select(columns).rows() == [(0.0, 50, 20, 32, 1.5), (2.0, 60, 30, 0, 0.5)]


def test_an_access_log_with_the_lengths_of_a_scrape_is_a_trace(write: Path) -> None:
    trace = with_lengths(str(write / "access.log"), write / "metrics.prom")
    assert trace.requests["arrival_s"].to_list() == [0.0, 5.0, 120.0]
    assert trace.requests["input_tokens"].mean() == pytest.approx(700, abs=1)
    assert trace.requests["output_tokens"].mean() == pytest.approx(120, abs=1)
    assert any("1 of other paths, 1 with another status than 2xx" in note for note in trace.account.notes)
    planner("trace", "convert", write / "access.log", "--output", write / "t.csv", "--lengths", write / "metrics.prom")
    assert pl.read_csv(write / "t.csv").height == 3


def test_a_log_is_a_rate_series(write: Path) -> None:
    assert read_rate_series(write / "access.log").rate_rps.tolist() == [2 / 60, 0.0, 1 / 60]


def test_interval_lines_are_a_rate_series_with_a_mean_prompt(write: Path) -> None:
    line = VLLM.splitlines()[1]
    path = write / "intervals.log"
    path.write_text(f"{line}\n{line.replace('10:00:10', '10:00:20').replace('310.2', '155.1')}\n")
    series = read_rate_series(Path(f"{path}#prompt_tokens=155.1"))
    assert (series.rate_rps.tolist(), series.duration_s.tolist()) == ([2.0, 1.0], [10.0, 10.0])
    with pytest.raises(TraceError, match="#prompt_tokens=700 makes rates of vLLM's interval lines"):
        read_rate_series(path)


def test_convert_takes_its_output_once(write: Path) -> None:
    for paths in ((), (write / "a.csv", "--output", write / "b.csv")):
        fails(planner("trace", "convert", "chat", *paths), 2, "give the file to write once, as OUT or with --output")
    planner("trace", "convert", "chat", write / "a.csv")
    planner("trace", "convert", "chat", "-o", write / "b.csv")
    assert (write / "a.csv").read_bytes() == (write / "b.csv").read_bytes()
