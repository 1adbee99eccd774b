"""Trace formats: each by a few rows of its own, what is skipped, and the same run in several formats."""

import base64
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from polars.testing import assert_frame_equal

from planner.errors import TraceError
from planner.traces import FORMATS, Trace
from planner.traces.records import document_rows

ZERO = 1_780_000_000  # an instant of 2026, in seconds since 1970, divisible by 60
DAY = "2026-05-28"  # and its date; it is 20:26:40 UTC

# One run, as a client measures it: sent at, input, output, TTFT, end-to-end; the third failed.
RUN = ((0.0, 100, 5, 0.25, 0.75), (0.5, 60, 1, 0.125, 0.125), (1.0, 70, 0, 0.0, 0.0), (2.0, 80, 3, 0.5, 1.0))
SERVED = [row for row in RUN if row[2]]


def lines(*rows: Mapping[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def table(header: str, *rows: str) -> str:
    return "\n".join((header, *rows)) + "\n"


def iso(second: float) -> str:
    return f"{DAY}T20:26:{40 + second:06.3f}Z"


def vllm_bench(**more: Any) -> str:
    sent, inputs, outputs, ttfts, e2e = (list(column) for column in zip(*RUN, strict=True))
    run = {"completed": 3, "failed": 1, "duration": 3.0, "total_input_tokens": 240, "total_output_tokens": 9,
           "request_rate": 1.0, "max_concurrency": None, "input_lens": inputs, "output_lens": outputs, "ttfts": ttfts,
           "latencies": e2e, "start_times": [1034.5 + at for at in sent],
           "errors": ["" if n else "Timeout" for n in outputs]}
    return json.dumps(run | more)


def sglang_bench() -> str:
    run = json.loads(vllm_bench())
    for key in ("start_times", "latencies"):
        del run[key]
    run["itls"] = [[(row[4] - row[3]) / (row[2] - 1)] * (row[2] - 1) if row[2] > 1 else [] for row in RUN]
    return json.dumps(run | {"server_info": {}, "random_range_ratio": 1.0, "cached_tokens": [16, 0, 0, 64]}) + "\n"


def guidellm_v2() -> str:
    rows = [
        {"request_id": str(k), "info": {"timings": {
            "targeted_start": ZERO + at, "request_start": ZERO + at, "first_token_iteration": ZERO + at + ttft,
            "last_token_iteration": ZERO + at + e2e, "request_end": ZERO + at + e2e + 0.01}},
         "input_metrics": {"text_tokens": inputs}, "output_metrics": {"text_tokens": outputs}}
        for k, (at, inputs, outputs, ttft, e2e) in enumerate(RUN)]
    requests = {"successful": [row for row, one in zip(rows, RUN, strict=True) if one[2]], "incomplete": [],
                "errored": [row for row, one in zip(rows, RUN, strict=True) if not one[2]]}
    return json.dumps({"metadata": {"version": 2}, "benchmarks": [{"requests": requests}]}, indent=1)


def guidellm_v1() -> str:
    rows = [{"prompt_tokens": inputs, "output_tokens": outputs, "start_time": ZERO + at, "end_time": ZERO + at + e2e,
             "first_token_time": ZERO + at + ttft, "last_token_time": ZERO + at + e2e}
            for at, inputs, outputs, ttft, e2e in SERVED]
    return json.dumps({"benchmarks": [{"requests": {"successful": rows, "errored": [{}], "incomplete": None}}]})


def aiperf() -> str:
    def line(k: int, row: tuple[float, ...], phase: str) -> dict[str, Any]:
        at, inputs, outputs, ttft, e2e = row
        start_ns = (ZERO + int(at)) * 10**9 + int(at % 1 * 1e9)
        metrics = {"input_sequence_length": {"value": inputs, "unit": "tokens"},
                   "output_sequence_length": {"value": outputs, "unit": "tokens"},
                   "time_to_first_token": {"value": ttft * 1000, "unit": "ms"},
                   "request_latency": {"value": e2e, "unit": "sec"}}
        return {"metadata": {"request_start_ns": start_ns, "credit_issued_ns": start_ns, "benchmark_phase": phase,
                             "was_cancelled": False},
                "metrics": metrics if outputs else {}, "error": None if outputs else {"code": 500}}
    return lines(line(9, RUN[0], "warmup"), *(line(k, row, "profiling") for k, row in enumerate(RUN)))


def otlp() -> str:
    def span(row: tuple[float, ...]) -> dict[str, Any]:
        at, inputs, outputs, ttft, e2e = row
        attributes = {"gen_ai.usage.input_tokens": {"intValue": str(inputs)},
                      "gen_ai.usage.output_tokens": {"intValue": str(outputs)},
                      "gen_ai.operation.name": {"stringValue": "chat"},
                      "gen_ai.response.time_to_first_chunk": {"doubleValue": ttft}}
        return {"spanId": f"{at}", "startTimeUnixNano": str(int((ZERO + at) * 1000) * 10**6),
                "endTimeUnixNano": str(int((ZERO + at + e2e) * 1000) * 10**6), "status": {} if outputs else {"code": 2},
                "attributes": [{"key": key, "value": value} for key, value in attributes.items()]}
    agent = {"startTimeUnixNano": str(ZERO * 10**9), "endTimeUnixNano": str(ZERO * 10**9 + 1), "attributes": [
        {"key": "gen_ai.operation.name", "value": {"stringValue": "invoke_agent"}}]}
    spans = [agent, *map(span, RUN)]
    return json.dumps({"resourceSpans": [{"resource": {}, "scopeSpans": [{"spans": spans}]}]})


def litellm() -> str:
    return lines(*({"request_id": f"r{k}", "call_type": "acompletion", "prompt_tokens": inputs,
                    "completion_tokens": outputs, "startTime": iso(at), "completionStartTime": iso(at + ttft),
                    "endTime": iso(at + e2e), "cache_hit": "None", "status": "success" if outputs else "failure"}
                   for k, (at, inputs, outputs, ttft, e2e) in enumerate(RUN)))


def langfuse() -> str:
    return json.dumps({"data": [
        {"id": f"o{k}", "traceId": "t", "type": "GENERATION", "startTime": iso(at), "endTime": iso(at + e2e),
         "completionStartTime": iso(at + ttft), "usageDetails": {"input": inputs, "output": outputs},
         "level": "DEFAULT" if outputs else "ERROR"} for k, (at, inputs, outputs, ttft, e2e) in enumerate(RUN)]})


def inference_perf() -> str:
    return json.dumps([
        {"start_time": 77.5 + at, "end_time": 77.5 + at + e2e, "request": "{}", "response": "",
         "info": {"request_metrics": {"text": {"input_tokens": inputs}},
                  "response_metrics": {"output_tokens": outputs}},
         "computed_metrics": {"time_to_first_token": ttft}, "error": None if outputs else {"error_type": "Timeout"}}
        for at, inputs, outputs, ttft, e2e in RUN], indent=2)


def genai_perf() -> str:
    def request(row: tuple[float, ...]) -> dict[str, Any]:
        at, inputs, outputs, ttft, e2e = row
        usage = {"usage": {"prompt_tokens": inputs, "completion_tokens": outputs}}
        at_ns, first_ns, last_ns = (int(1e9 * x) for x in (at, at + ttft, at + e2e))
        chunks = ["data: {}", f"data: {json.dumps(usage)}\n\ndata: [DONE]"]
        return {"timestamp": 5000 + at_ns, "response_timestamps": [5000 + first_ns, 5000 + last_ns],
                "response_outputs": [{"response": chunk} for chunk in chunks]}
    return json.dumps({"experiments": [{"experiment": {}, "requests": [request(row) for row in SERVED]}]})


def lmbenchmark() -> str:
    return table("prompt_tokens,generation_tokens,ttft,generation_time,launch_time,finish_time", *(
        f"{inputs},{outputs},{ttft},{e2e - ttft},{ZERO + at},{ZERO + at + e2e}"
        for at, inputs, outputs, ttft, e2e in SERVED))


def dynamo() -> str:
    return lines({"timestamp": 1, "event": {"schema": "dynamo.request.trace.v1", "event_type": "tool_start"}}, *(
        {"timestamp": 1, "event": {"schema": "dynamo.request.trace.v1", "event_type": "request_end", "request": {
            "request_id": str(at), "input_tokens": inputs, "output_tokens": outputs, "ttft_ms": ttft * 1000,
            "total_time_ms": e2e * 1000, "request_received_ms": int((ZERO + at) * 1000)}}}
        for at, inputs, outputs, ttft, e2e in SERVED))


def kv_cache_tester() -> str:
    return table("trace_id,timestamp,input_tokens,output_tokens_actual,ttft,ttlt,success,request_start_time", *(
        f",{ZERO + at + e2e},{inputs},{outputs},{ttft},{e2e},{bool(outputs)},{ZERO + at}"
        for at, inputs, outputs, ttft, e2e in RUN))


def helicone() -> str:
    return table("request_created_at,prompt_tokens,completion_tokens,delay_ms,time_to_first_token,response_status", *(
        f"{iso(at)},{inputs},{outputs},{e2e * 1000},{ttft * 1000},{200 if outputs else 429}"
        for at, inputs, outputs, ttft, e2e in RUN))


SAME_RUN = {"vllm-bench": vllm_bench, "guidellm": guidellm_v2, "guidellm v1": guidellm_v1, "aiperf": aiperf,
            "otel": otlp, "litellm": litellm, "langfuse": langfuse, "inference-perf": inference_perf,
            "genai-perf": genai_perf, "lmbenchmark": lmbenchmark, "dynamo": dynamo, "kv-cache-tester": kv_cache_tester,
            "helicone": helicone}


@pytest.mark.parametrize("name", SAME_RUN)
def test_the_same_run_in_two_formats_is_the_same_table(read: Callable[..., Trace], name: str) -> None:
    trace = read(SAME_RUN[name]())
    assert trace.format == name.split()[0]
    columns = ["arrival_s", "input_tokens", "output_tokens", "ttft_s", "e2e_s"]
    expected = read(table(",".join(columns), *(",".join(map(str, row)) for row in SERVED)))
    assert_frame_equal(trace.requests.select(columns), expected.requests.select(columns), rel_tol=0, abs_tol=1e-6)
    assert trace.requests["tpot_s"].to_list() == pytest.approx([0.125, None, 0.25], abs=1e-6)


@pytest.mark.parametrize(("name", "dropped"), [
    ("vllm-bench", {"the client recorded an error": 1}), ("guidellm", {"GuideLLM says errored": 1}),
    ("aiperf", {"of the warm-up": 1, "the client recorded an error": 1}),
    ("otel", {"the span's status is an error": 1}), ("litellm", {"status is not success": 1}),
    ("langfuse", {"level is ERROR": 1}), ("inference-perf", {"the client recorded an error": 1}),
    ("kv-cache-tester", {"success is not True": 1}), ("helicone", {"response_status is not 2xx": 1}), ("dynamo", {}),
])
def test_failed_requests_are_counted_by_reason(read: Callable[..., Trace], name: str, dropped: dict[str, int]) -> None:
    account = read(SAME_RUN[name]()).account
    assert account.dropped == dropped
    assert account.rows_read == account.rows_kept + sum(dropped.values())


def test_what_is_sent_late_is_counted_from_when_it_was_due(read: Callable[..., Trace]) -> None:
    trace = read(vllm_bench(queue_times=[0.0, 0.25, 0.0, 0.5]))
    assert trace.requests["arrival_s"].to_list() == [0.0, 0.25, 1.5]
    assert trace.requests["ttft_s"].to_list() == [0.25, 0.125, 0.5]
    assert "Requests were sent later, 250 ms in the median" in trace.account.notes[0]


def test_a_closed_loops_result_says_how_validate_replays_it(read: Callable[..., Trace]) -> None:
    """At a rate, validate and replay take the same recorded times; without send times, validate draws arrivals."""
    closed = read(vllm_bench(request_rate="inf", max_concurrency=2)).account.notes
    assert closed[0] == ("the client kept up to 2 requests in flight: the recorded send times follow from the measured "
                         "server; --max-concurrency 2 --ready-at-start replays this closed loop, as planner validate "
                         "does")
    assert not any("validate" in note for note in read(vllm_bench()).account.notes)
    run = json.loads(vllm_bench())
    del run["start_times"]
    assert read(json.dumps(run)).account.notes[0] == ("planner validate draws arrivals at the file's rate; so does "
                                                      "--request-rate 1")


def test_older_results_have_no_start_times_and_no_latencies(read: Callable[..., Trace]) -> None:
    run = json.loads(sglang_bench())
    for key in ("server_info", "random_range_ratio", "cached_tokens"):
        del run[key]
    trace = read(json.dumps(run))
    assert (trace.format, trace.arrivals) == ("vllm-bench", "absent")
    assert trace.requests["e2e_s"].to_list() == [0.75, 0.125, 1.0]


def test_sglang_results_say_nothing_of_arrivals(read: Callable[..., Trace]) -> None:
    assert read(json.dumps({**json.loads(sglang_bench()), "request_rate": float("inf")})).num_requests
    trace = read(sglang_bench())
    assert (trace.format, trace.arrivals) == ("sglang-bench", "absent")
    assert trace.requests["arrival_s"].to_list() == [0.0] * 3
    assert trace.requests["cached_tokens"].to_list() == [16, 0, 64]
    assert trace.requests["tpot_s"].to_list() == [0.125, None, 0.25]
    assert "--request-rate" in trace.account.notes[0]


def test_llmperf_leaves_its_own_inter_token_latency_aside(read: Callable[..., Trace]) -> None:
    trace = read(json.dumps([{"error_code": None, "inter_token_latency_s": 9.0, "ttft_s": 0.5, "number_input_tokens": 7,
                              "end_to_end_latency_s": 1.5, "number_output_tokens": 3},
                             {"error_code": 429, "number_input_tokens": 7, "number_output_tokens": 0}]))
    assert (trace.format, trace.arrivals) == ("llmperf", "absent")
    assert trace.requests["tpot_s"].to_list() == [0.5]
    assert trace.account.dropped == {"the client recorded an error": 1}


def test_several_runs_in_a_file_are_no_trace(read: Callable[..., Trace]) -> None:
    with pytest.raises(TraceError, match="holds several runs, whose clocks differ; must be one"):
        read(vllm_bench() + "\n" + vllm_bench() + "\n")
    with pytest.raises(TraceError, match="holds several runs"):
        read(f"[{vllm_bench()}, {vllm_bench()}]")


def test_timed_traces_are_told_from_mooncakes_by_their_blocks(read: Callable[..., Trace]) -> None:
    row = {"timestamp": 1500, "input_length": 600, "output_length": 2}
    mooncake, timed = read(lines(row | {"hash_ids": [1, 2]})), read(lines(row | {"hash_ids": list(range(38))}))
    assert (mooncake.format, mooncake.requests["arrival_s"][0]) == ("mooncake", 1.5)
    assert (timed.format, timed.requests["arrival_s"][0]) == ("timed-trace", 1500.0)
    assert mooncake.prefix is not None
    assert timed.prefix is not None
    assert (mooncake.prefix.block_tokens, timed.prefix.block_tokens) == (512, 16)


def test_units_and_blocks_of_timed_traces_are_options(read: Callable[..., Trace]) -> None:
    line = lines({"timestamp": 1500, "input_length": 600, "output_length": 2, "hash_ids": [1, 2, 3]})
    trace = read(line, format="timed-trace,arrival_s=timestamp:us,hash_ids=hash_ids:256")
    assert trace.requests["arrival_s"].to_list() == [0.0015]
    assert trace.prefix is not None
    assert trace.prefix.block_tokens == 256
    with pytest.raises(TraceError, match="hash_ids has 3 ids; must have 38 for 600 input tokens in blocks of 16"):
        read(line, format="timed-trace")


def test_aiperf_sessions_wait_for_the_turn_before(read: Callable[..., Trace]) -> None:
    trace = read(lines({"session_id": "a", "timestamp": 1500, "input_length": 600, "output_length": 2},
                       {"session_id": "b", "timestamp": 1600, "input_length": 5, "output_length": 2},
                       {"session_id": "a", "delay": 250, "input_length": 700, "output_length": 3}))
    assert trace.format == "aiperf-trace"
    columns = ("request_id", "arrival_s", "parent_id", "think_time_s")
    assert trace.requests.select(columns).rows() == [
        ("0", 1.5, None, None), ("2", 1.5, "0", 0.25), ("1", 1.6, None, None)]
    untimed = read(lines({"session_id": "a", "input_length": 600, "output_length": 2, "hash_ids": [1, 2]},
                         {"session_id": "a", "input_length": 700, "output_length": 3, "hash_ids": [1, 2]}))
    assert untimed.arrivals == "absent"
    assert untimed.requests["parent_id"].to_list() == [None, "0"]


def test_burstgpt_by_name_of_column(read: Callable[..., Trace]) -> None:
    trace = read(table("Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type",
                       "5.0,a,2,GPT-4,10,20,30,Conversation log", "6.0,,1,ChatGPT,0,0,0,API log",
                       "9.0,a,3,GPT-4,30,40,70,Conversation log"))
    assert trace.account.dropped == {"failed (0 tokens)": 1}
    assert trace.requests["tenant"].to_list() == ["GPT-4", "GPT-4"]
    assert trace.requests.select("parent_id", "think_time_s").rows() == [(None, None), ("0", 2.0)]


def test_bailian_chains_of_chats(read: Callable[..., Trace]) -> None:
    common = {"input_length": 20, "output_length": 3, "type": "text", "hash_ids": [1, 2]}
    trace = read(lines({"chat_id": 55, "parent_chat_id": -1, "timestamp": 1.5, "turn": 1, **common},
                       {"chat_id": 159, "parent_chat_id": 55, "timestamp": 61.114, "turn": 2, **common},
                       {"chat_id": 160, "parent_chat_id": 159, "timestamp": 70, "turn": 3, **common}))
    assert trace.format == "bailian"
    assert trace.requests.select("request_id", "parent_id", "session_id").rows() == [
        ("55", None, "55"), ("159", "55", "55"), ("160", "159", "55")]
    assert trace.prefix is not None
    assert trace.prefix.block_tokens == 16


def test_weka_conversations_have_ids_of_their_own_and_wait_for_sub_agents(read: Callable[..., Trace]) -> None:
    def turn(t: float, **more: Any) -> dict[str, Any]:
        return {"t": t, "type": "n", "model": "m", "in": 130, "out": 5, "hash_ids": [1, 2], "api_time": 2.0,
                "think_time": 3.0, **more}
    agent = {"t": 12.0, "type": "subagent", "duration_ms": 9000, "requests": [turn(0.0), turn(5.0, out=0), turn(6.0)]}
    conversation = {"block_size": 64, "hash_id_scope": "local"}
    trace = read(lines({"id": "a", **conversation, "requests": [turn(0.0, ttft=0.5, type="s"), agent, turn(15.0)]},
                       {"id": "b", **conversation, "requests": [turn(0.0)]}))
    assert trace.account.dropped == {"no output tokens": 1}
    assert trace.requests.select("request_id", "parent_id", "arrival_s", "think_time_s").rows() == [
        ("a/0", None, 0.0, None), ("b/0", None, 0.0, None), ("a/1/0", "a/0", 3.0, 3.0), ("a/1/2", "a/1/1", 9.0, 3.0),
        ("a/2", "a/0;a/1/2", 15.0, 4.0)]
    assert trace.prefix is not None
    assert trace.prefix.values.tolist() == [0, 1, 2, 3, 0, 1, 0, 1, 0, 1]
    assert (trace.requests["ttft_s"][0], trace.prefix.block_tokens) == (0.5, 64)


def test_ragpulse_chunks_become_blocks(read: Callable[..., Trace], tmp_path: Path) -> None:
    ids = {"sys_prompt": [1], "passages_ids": [2, 3], "history": [], "web_search": [], "user_input": [4]}
    rows = ({"timestamp": "27", "input_length": 60, "output_length": 4, "hash_ids": ids, "session_id": "s"},
            {"timestamp": "9", "input_length": 60, "output_length": 4, "hash_ids": ids | {"passages_ids": [2, 5]}})
    plain = read(lines(*rows))
    assert (plain.format, plain.prefix) == ("ragpulse", None)
    (tmp_path / "ragpulse_chunk_token_lengths.csv").write_text("chunk_id,token_length\n1,20\n2,20\n3,10\n4,5\n5,10\n")
    trace = read(lines(*rows))
    assert trace.prefix is not None
    assert trace.prefix.offsets.tolist() == [0, 3, 6]  # of 55 tokens, three blocks of 16 are full
    assert trace.prefix.values.tolist() == [0, 1, 3, 0, 1, 2]  # in order of arrival


def test_llmservingsim_sessions_wait_for_tools(read: Callable[..., Trace]) -> None:
    trace = read(lines({"session_id": "s", "arrival_time_ns": 2_000_000_000, "sub_requests": [
        {"input_toks": 10, "output_toks": 2, "tool_duration_ns": 500_000_000}, {"input_toks": 20, "output_toks": 3}]}))
    assert trace.requests.select("request_id", "parent_id", "think_time_s", "arrival_s").rows() == [
        ("s/0", None, None, 2.0), ("s/1", "s/0", 0.5, 2.0)]


def test_llmservingsim_token_ids_become_blocks(read: Callable[..., Trace]) -> None:
    first = {"arrival_time_ns": 0, "input_toks": 36, "output_toks": 2, "input_tok_ids": [*range(36)]}
    second = {"arrival_time_ns": 5, "input_toks": 33, "output_toks": 2, "input_tok_ids": [*range(16), *range(17)]}
    trace = read(lines(first, second))
    assert trace.prefix is not None
    assert trace.prefix.block_tokens == 16
    assert trace.prefix.values.tolist() == [0, 1, 2, 0, 3, 4]
    assert read(lines({**first, "input_tok_ids": None})).prefix is None


def test_small_formats(read: Callable[..., Trace]) -> None:
    assert read(table("arrival_timestamp,prompt_size,token_size", "0.5,3,4")).format == "splitwise-sim"
    assert read(table("num_prefill_tokens,num_decode_tokens,pd_ratio", "3,4,1")).arrivals == "absent"
    apex = read(lines({"ContextTokens": 3, "GeneratedTokens": 4, "StartTimeOffset": 618518284, "RequestID": "a"}))
    assert (apex.format, apex.requests["arrival_s"][0]) == ("apex", 0.618518284)


def test_envoy_leaves_out_what_has_no_tokens(read: Callable[..., Trace]) -> None:
    line = {"duration": 1526, "genai_model_name": "m", "genai_tokens_input": 15, "genai_tokens_output": 7,
            "response_code": 200, "start_time": "2025-08-30T16:51:37.894Z"}
    trace = read(lines(line, line | {"response_code": 503}, line | {"genai_tokens_output": "-"}))
    assert trace.format == "envoy-ai-gateway"
    assert trace.requests.select("e2e_s", "tenant").rows() == [(1.526, "m")]
    assert trace.account.dropped == {"response_code is not 2xx": 1, "no token counts": 1}


@pytest.mark.parametrize("encoding", ["JSON", "BASE64"])
def test_sagemaker_usage_is_in_the_response(read: Callable[..., Trace], encoding: str) -> None:
    def end(body: Any) -> dict[str, str]:
        text = json.dumps(body)
        return {"data": base64.b64encode(text.encode()).decode() if encoding == "BASE64" else text,
                "encoding": encoding}
    trace = read(lines({"captureData": {"endpointInput": end({"max_tokens": 64}), "endpointOutput": end(
        {"usage": {"prompt_tokens": 12, "completion_tokens": 8}})},
        "eventMetadata": {"eventId": "abc", "inferenceTime": "2026-04-29T00:03:18Z"}}))
    assert trace.requests.select("request_id", "input_tokens", "output_tokens", "max_output_tokens").rows() == [
        ("abc", 12, 8, 64)]


def test_litellm_calls_that_were_not_streamed_have_no_ttft(read: Callable[..., Trace]) -> None:
    row = {"request_id": "a", "prompt_tokens": 5, "completion_tokens": 9, "startTime": iso(0), "endTime": iso(1),
           "completionStartTime": iso(1), "status": "success", "cache_hit": "True", "call_type": "acompletion"}
    trace = read(lines(row, row | {"request_id": "b", "cache_hit": "None"},
                       row | {"request_id": "c", "cache_hit": "False", "call_type": "aembedding"}))
    assert trace.account.dropped == {"answered from the gateway's cache": 1, "generates no text": 1}
    assert (trace.requests["e2e_s"].to_list(), "ttft_s" in trace.requests.columns) == ([1.0], False)


@pytest.mark.parametrize("row", [
    {"endTime": iso(1), "created_at": iso(1), "prompt_tokens": 5, "completion_tokens": 9},
    {"traceId": "t", "updatedAt": iso(1), "endTime": iso(1), "usageDetails": {"input": 5, "output": 9}},
    {"response_created_at": iso(1), "prompt_tokens": 5, "completion_tokens": 9},
])
def test_an_end_is_never_taken_for_an_arrival(read: Callable[..., Trace], row: dict[str, Any]) -> None:
    with pytest.raises(TraceError, match="is JSON in no known format, with the keys"):
        read(lines(row))


def test_litellm_metadata_may_be_text(read: Callable[..., Trace]) -> None:
    usage = {"usage_object": {"prompt_tokens_details": {"cached_tokens": 4}}}
    row = {"prompt_tokens": 5, "completion_tokens": 9, "startTime": ZERO + 0.5, "endTime": ZERO + 1.5}
    for metadata in (usage, json.dumps(usage)):
        trace = read(lines(row | {"metadata": metadata}))
        assert trace.requests.select("cached_tokens", "e2e_s").rows() == [(4, 1.0)]
    text = json.dumps(usage).replace('"', '""')
    trace = read(table("startTime,endTime,prompt_tokens,completion_tokens,metadata", f'{iso(0)},{iso(1)},5,9,"{text}"'))
    assert trace.requests["cached_tokens"].to_list() == [4]


def test_turns_of_a_session_wait_for_the_one_that_ended_last(read: Callable[..., Trace]) -> None:
    rows = [(0, 4, "a"), (1, 2, "a"), (5, 1, "a"), (5, 1, "b"), (6.5, 1, "a")]  # the second overlaps the first
    trace = read(lines(*({"request_id": f"r{k}", "prompt_tokens": 5, "completion_tokens": 9, "startTime": iso(at),
                          "endTime": iso(at + e2e), "session_id": session}
                         for k, (at, e2e, session) in enumerate(rows))))
    assert trace.requests.select("parent_id", "think_time_s").rows() == [
        (None, None), (None, None), ("r0", 1.0), (None, None), ("r2", 0.5)]


def test_a_closed_loop_is_told_by_its_arrivals(read: Callable[..., Trace]) -> None:
    header = "arrival_s,input_tokens,output_tokens,e2e_s"
    closed = table(header, *(f"{k / 4},10,5,0.999" for k in range(80)))
    opened = table(header, *(f"{k / 4},10,5,0.6" for k in range(80)))
    assert "--max-concurrency 4 replays a closed loop" in read(closed).account.notes[0]
    assert read(opened).account.notes == ()


@pytest.mark.parametrize(("text", "message"), [
    (json.dumps({"completed": 1, "duration": 1, "total_input_tokens": 1, "total_output_tokens": 2}),
     "is a summary without requests; save it with --save-detailed"),
    (json.dumps({"schema_version": "1.2", "request_latency": {}}),
     "AIPerf's summary, without requests; give it to planner validate .* or give its profile_export.jsonl"),
    (json.dumps({"load_summary": {}, "successes": {}, "failures": {}}), "summary of a stage"),
    (json.dumps({"Succeed requests": 1, "Average latency (s)": 1.0}), "EvalScope's summary, without requests; give it"),
    (json.dumps({"mean_input_tokens": 1, "num_concurrent_requests": 1}), "LLMPerf's summary.*individual_responses"),
    (json.dumps({"tokens_per_second": 1, "elapsed_time": 1}), "vllm bench throughput.*--save-detailed"),
    (json.dumps({"successful_requests": 1, "total_latency": 1}), "bench_offline_throughput"),
    (table("Type,Name,Request Count,Failure Count", "POST,/v1,1,0"), "Locust's statistics.*it counts no tokens"),
    (json.dumps({"metrics": {}, "root_group": {}}), "k6's summary, without requests; it counts no tokens"),
    (json.dumps({"type": "Point", "data": {}, "metric": "m"}), "k6's output"),
    (json.dumps({"summary": {}, "latencyPercentiles": {}}), "oha's result"),
    (json.dumps({"latencies": {}, "status_codes": {}}), "Vegeta's report"),
    (table("window_start_s,total_rate_req_s", "0,1"), "a series of rates, without requests; give it to planner size"),
    (lines({"session_id": "s", "turns": [{"text": "hi"}]}), "prompts as text"),
    (json.dumps({"benchmarks": []}), "has no requests of format 'guidellm'"),
    (json.dumps({"benchmarks": [{"metrics": {}, "requests": {"successful": [], "errored": []}}]}),
     "trace t: is GuideLLM's summary, without requests; give it to planner validate .* --sample-requests N"),
    (vllm_bench(ttfts=[0.1]), "its lists differ in length"),
    (vllm_bench(ttfts=["x", 0, 0, 0]), "line 1: ttft_s = x; must be a number"),
])
def test_what_is_no_trace_says_what_to_give_instead(read: Callable[..., Trace], text: str, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        read(text)


def test_a_document_is_read_up_to_the_limit(read: Callable[..., Trace]) -> None:
    trace = read(inference_perf(), limit=2)
    assert trace.account.rows_read == 2


def test_every_format_has_a_test() -> None:
    covered = {name.split()[0] for name in SAME_RUN} | {
        "csv", "jsonl", "azure", "mooncake", "aiperf-trace", "vidur",
        "timed-trace", "sglang-bench", "llmperf", "burstgpt", "bailian",
        "weka", "ragpulse", "llmservingsim", "splitwise-sim", "lengths", "apex", "envoy-ai-gateway", "sagemaker",
        "columns"}
    assert covered == set(FORMATS)


@pytest.mark.parametrize("name", [name for name, reader in FORMATS.items() if reader.rows is not None])
@pytest.mark.parametrize("value", [{}, {"event": 3}, {"requests": 7}, {"benchmarks": [None, {"requests": []}]},
                                   {"spans": [None, {"attributes": 1}]}, {"metadata": {}, "metrics": 4},
                                   {"experiments": [{"requests": [3]}]}, {"input_lens": [1], "output_lens": [2]},
                                   {"sub_requests": [1]}, {"id": 1, "requests": [1, {"requests": {}}]},
                                   {"captureData": "{}"}, {"hash_ids": {"history": 3}}])
def test_readers_take_objects_of_any_shape(name: str, value: Any, tmp_path: Path) -> None:
    try:
        document_rows("t", [value], FORMATS[name], tmp_path, None)
    except TraceError as error:
        assert str(error).startswith("trace t: ")  # noqa: PT017 - other readers find no rows
