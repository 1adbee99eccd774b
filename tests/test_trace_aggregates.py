"""Rows that stand for many requests: sums and counts taken apart, and sums without a count refused."""

import json
from collections.abc import Callable

import pytest

from planner.errors import TraceError
from planner.traces import Trace
from planner.traces.shaping.anomalies import find_anomalies

BUCKETS = {"object": "page", "data": [
    {"object": "bucket", "start_time": 1761955200 + 3600 * hour, "end_time": 1761958800 + 3600 * hour, "results": [
        {"object": "usage.result", "input_tokens": tokens, "output_tokens": 62000, "num_model_requests": requests}]}
    for hour, tokens, requests in ((0, 248001, 310), (1, 512000, 640))]}


def test_buckets_of_a_usage_api_are_their_requests_of_mean_length(read: Callable[..., Trace]) -> None:
    trace = read(json.dumps(BUCKETS))
    table = trace.requests
    assert table.height == 950
    assert table["input_tokens"].sum() == 760_001
    assert table["input_tokens"].unique().sort().to_list() == [800, 801]
    assert (table["arrival_s"] < 3600).sum() == 310
    assert table["arrival_s"].max() < 7200  # type: ignore[operator]
    assert "e2e_s" not in table.columns
    assert any("no spread within a row" in note for note in trace.account.notes)
    assert not find_anomalies(trace)  # a mean that many requests share is no limit


@pytest.mark.parametrize(("text", "rows"), [
    ("input_tokens,output_tokens,count\n512,128,4100\n2048,256,900\n", {(512, 128): 4100, (2048, 256): 900}),
    ("isl,osl,n\n1024,128,2\n8192,512,1\n", {(1024, 128): 2, (8192, 512): 1}),
    ("model,requests,prompt_tokens,completion_tokens\na,2,8000000,401\n", {(4000000, 201): 1, (4000000, 200): 1}),
    ("model,calls,total_prompt_tokens,total_completion_tokens\na,2,800,40\n", {(400, 20): 2}),
    ("model,calls,avg_prompt_tokens,avg_completion_tokens\na,2,800,40\n", {(800, 40): 2}),
    ("model,requests,prompt_tokens,completion_tokens\na,2,800,40\nb,1,500,30\nTotal,3,1300,70\n",
     {(400, 20): 2, (500, 30): 1}),
    ("Day;Requests;Prompt tokens;Completion tokens\n01.11.2026;1.000;1.248.000;62.000\n", {(1248, 62): 1000}),
    ('[{"date": "2026-11-01", "countTraces": 9, "usage": [{"inputUsage": 800, "outputUsage": 40, "countTraces": 2}]}]',
     {(400, 20): 2}),
    ("day,invocations,input_tokens,output_tokens\n2026-11-01,0,0,0\n2026-11-02,2,800,40\n", {(400, 20): 2}),
    ("n,sum(prompt_tokens),sum(completion_tokens)\n2,800,40\n", {(400, 20): 2}),
])
def test_sums_are_shared_out_and_lengths_are_repeated(read: Callable[..., Trace], text: str,
                                                      rows: dict[tuple[int, int], int]) -> None:
    table = read(text).requests
    counted = table.group_by("input_tokens", "output_tokens").len().rows()
    assert {(a, b): n for a, b, n in counted} == rows


def test_a_column_says_which_meaning_a_count_has(read: Callable[..., Trace]) -> None:
    text = "user,input_tokens,output_tokens,count\na,60000,3000,30\n"
    with pytest.raises(TraceError, match="by column count, and token counts may be sums over them or lengths of each"):
        read(text)
    for unit, tokens, height in ((":sums", 2000, 30), (":lengths", 60000, 30)):
        table = read(text, format=f"columns,num_requests=count{unit}").requests
        assert (table.height, table["input_tokens"][0]) == (height, tokens)
    assert read(text, format="columns,num_requests=1").requests["input_tokens"].to_list() == [60000]


def test_the_texts_of_an_embeddings_request_arrive_at_once(read: Callable[..., Trace]) -> None:
    text = "arrival_s,input_tokens,output_tokens,request_id,num_texts\n0.5,100,2,a,2\n3,101,1,b,1\n"
    trace = read(text)
    assert trace.requests.select("arrival_s", "input_tokens").rows() == [(0.5, 50), (0.5, 50), (3.0, 101)]
    assert any("2 rows stand for 3 requests, by column num_texts" in note and "they arrive at once" in note
               for note in trace.account.notes)
    other = read(text.replace("num_texts", "docs"), format="columns,num_requests=docs:lengths").requests
    assert other.select("arrival_s", "input_tokens").rows() == [(0.5, 100), (0.5, 100), (3.0, 101)]


@pytest.mark.parametrize(("text", "reason"), [
    ("date,input_tokens,output_tokens\n2026-11-01,50000,9000\n2026-11-02,600,9000\n", "times are days"),
    ("time,input_tokens,output_tokens\n2026-11-01T10:00:00Z,50000,9000\n2026-11-01T10:05:00Z,60000,9000\n"
     "2026-11-01T10:10:00Z,60000,9000\n", "times are 300 s apart"),
    ("user,prompt_tokens,completion_tokens\na,50000000,90000\n", "half of the prompts have more than 1,048,576 tokens"),
    ("starting_at,ending_at,uncached_input_tokens,output_tokens\n2026-11-01T00:00:00Z,2026-11-02T00:00:00Z,5000,90\n",
     "each lasts 86400 s"),
    ("hour,rps,prompt_tokens,completion_tokens\n2026-11-01T10:00:00Z,1,80000,900\n2026-11-01T11:00:00Z,1,90000,900\n",
     "times are 3600 s apart"),
    ("ts,avg_input_tokens,avg_output_tokens\n2026-11-01T10:00:03Z,800,90\n", "by the names"),
    ("date,total_input_tokens,total_output_tokens\n2026-11-01 10:00:03,50000,9000\n", "by the names"),
])
def test_sums_without_a_number_of_requests_are_refused(read: Callable[..., Trace], text: str, reason: str) -> None:
    with pytest.raises(TraceError, match=rf"rows are sums over many requests \([^)]*{reason}.*--column num_requests="):
        read(text)


@pytest.mark.parametrize(("text", "message"), [
    ("day,requests,input_tokens,output_tokens\n2026-11-01,2,800,40\n2026-11-02,9,100,0\n",
     "line 3: output_tokens = 0 over 9 requests is a mean of 0 tokens"),
    ("day,requests,input_tokens,output_tokens\n2026-11-01,2,800,40\n2026-11-02,,100,5\n",
     "line 3: requests = empty beside 100 input tokens; must be at least 1"),
    ("model,requests,input_tokens,output_tokens\na,20000000,90000000000,40000000\n",
     "requests adds up to 20,000,000 requests; must be 1 to 10,000,000"),
    ("day,requests,input_tokens,output_tokens\n2026-11-01,2.5,800,40\n", "requests = 2.5; num_requests must be a"),
])
def test_counts_that_do_not_fit_are_named(read: Callable[..., Trace], text: str, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        read(text)


@pytest.mark.parametrize("text", ["percentile,input_tokens,output_tokens\np50,512,128\np99,8192,512\n",
                                  "input_tokens,output_tokens,share\n512,128,0.7\n2048,256,0.3\n"])
def test_statistics_and_shares_are_no_requests(read: Callable[..., Trace], text: str) -> None:
    with pytest.raises(TraceError, match="is a table of statistics or shares of lengths, without requests"):
        read(text)


def test_regular_times_with_usual_lengths_are_requests_with_a_note(read: Callable[..., Trace]) -> None:
    trace = read("ts,input_tokens,output_tokens\n" + "".join(
        f"2026-11-01T10:0{minute}:00Z,{400 + minute},90\n" for minute in range(4)))
    assert trace.num_requests == 4
    assert any("their times are 60 s apart: every row is read as one request" in note for note in trace.account.notes)


def test_a_log_of_requests_with_a_count_of_something_stays_a_log(read: Callable[..., Trace]) -> None:
    trace = read("arrival_s,input_tokens,output_tokens,n\n0,10,3,4\n1,10,3,4\n")
    assert trace.num_requests == 2
    assert trace.account.ignored_columns == ("n",)
