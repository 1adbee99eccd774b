"""A map of columns: any file by its own names and units, conditions on its rows, and what is wrong with a map."""

import json
from collections.abc import Callable

import pytest

from planner.errors import TraceError, UnknownNameError, UsageError
from planner.settings.format_spec import parse_format, spec_of
from planner.traces import Trace
from planner.traces.dates import dates

LOG = "ts,prompt,out,model,first_ms\n1790000000500,10,3,a,120\n1790000000000,20,4,b,80\n1790000001000,30,5,a,\n"
SPEC = "columns,arrival_s=ts:ms,input_tokens=prompt,output_tokens=out"


def test_columns_have_names_and_units(read: Callable[..., Trace]) -> None:
    trace = read(LOG, format=f"{SPEC},ttft_s=first_ms:ms,tenant=model")
    assert trace.requests.select("arrival_s", "input_tokens", "ttft_s", "tenant").rows() == [
        (0.0, 20, 0.08, "b"), (0.5, 10, 0.12, "a"), (1.0, 30, None, "a")]
    assert trace.format == f"{SPEC},ttft_s=first_ms:ms,tenant=model"


def test_conditions_choose_rows_and_count_the_others(read: Callable[..., Trace]) -> None:
    trace = read(LOG, format=f"{SPEC},where model=a")
    assert trace.requests["input_tokens"].to_list() == [10, 30]
    assert trace.account.dropped == {"model is not a": 1}


def test_conditions_alone_leave_the_format_to_the_file(read: Callable[..., Trace]) -> None:
    text = "arrival_s,input_tokens,output_tokens,tenant\n0,1,2,x\n1,3,4,y\n"
    trace = read(text, format=spec_of(None, None, ["tenant=y"]))
    assert trace.requests["input_tokens"].to_list() == [3]


def test_nested_json_is_named_with_dots(read: Callable[..., Trace]) -> None:
    rows = [{"t": {"start": at}, "usage": {"prompt": 5 + at, "completion": 2}} for at in (3.25, 1.0)]
    spec = "columns,arrival_s=t.start,input_tokens=usage.prompt,output_tokens=usage.completion"
    for text in ("".join(json.dumps(row) + "\n" for row in rows[1:]), json.dumps(rows[1:], indent=1)):
        assert read(text, format=spec).requests.select("arrival_s", "input_tokens").rows() == [(1.0, 6)]
    with pytest.raises(TraceError, match=r"usage\.prompt = 8\.25; input_tokens must be a whole number"):
        read(json.dumps(rows), format=spec)


@pytest.mark.parametrize(("row", "path"), [
    ({"attributes": {"gen_ai.usage.input_tokens": {"value": 7, "type": "integer"}}},
     "attributes.gen_ai.usage.input_tokens.value"),
    ({"a.b": {"c.d": {"e": {"f.g": 7}}}}, "a.b.c.d.e.f.g"),
    ({"a": {"x": 1}, "a.b": {"c": 7}}, "a.b.c"),  # the first key that leads nowhere is no end
    ({"tags": [{"key": "http.status", "value": 200}, {"key": "llm.tokens", "type": "int64", "value": 7}]},
     "tags.llm.tokens"),
])
def test_keys_have_dots_at_any_level(read: Callable[..., Trace], row: dict[str, object], path: str) -> None:
    spec = f"columns,input_tokens={path},output_tokens=out"
    for text in (json.dumps(row | {"out": 3}), json.dumps([row | {"out": 3}], indent=1)):
        assert read(text, format=spec).requests.select("input_tokens", "output_tokens").rows() == [(7, 3)]


def test_keys_have_dots_in_json_inside_a_column(read: Callable[..., Trace]) -> None:
    text = 'out,span.attrs\n1,"{""gen_ai.usage"": {""in"": 7}}"\n1,"{""gen_ai.usage"": {""in"": 8}}"\n'
    trace = read(text, format="columns,input_tokens=span.attrs.gen_ai.usage.in,output_tokens=out")
    assert trace.requests["input_tokens"].to_list() == [7, 8]


ROWS = [{"ts": 1790000000000 + 500 * k, "n": 10 + k, "out": 3} for k in range(2)]
NAMED = "columns,arrival_s=ts:ms,input_tokens=n,output_tokens=out"
IN_PLACE = "columns,arrival_s=PATH.ts:ms,input_tokens=PATH.n,output_tokens=PATH.out"


@pytest.mark.parametrize(("document", "spec"), [
    ({"data": ROWS}, NAMED),
    ({"records": ROWS, "errors": [], "count": 2}, NAMED),
    ({"took": 3, "hits": {"total": {"value": 2}, "hits": [{"_id": str(k), "_source": row}
                                                          for k, row in enumerate(ROWS)]}}, NAMED),
    ({"hits": {"hits": [{"_source": row} for row in ROWS]}}, IN_PLACE.replace("PATH", "_source")),
    ({"data": [{"traceID": "t", "spans": ROWS[:1], "processes": {"p": {"tags": [{"key": "a", "value": 1}]}}},
               {"traceID": "u", "spans": ROWS[1:], "processes": {}}]}, NAMED),
    ({"records": ROWS}, IN_PLACE.replace("PATH", "records")),
    ({"calls": ROWS, "warnings": [{"code": 1}]}, IN_PLACE.replace("PATH", "calls")),  # one list of two is named
    ({"result": {"calls": ROWS}}, IN_PLACE.replace("PATH", "result.calls")),
])
def test_an_envelope_is_opened(read: Callable[..., Trace], document: dict[str, object], spec: str) -> None:
    for text in (json.dumps(document), json.dumps(document, indent=1), json.dumps([document])):
        trace = read(text, format=spec)
        assert trace.requests.select("arrival_s", "input_tokens").rows() == [(0.0, 10), (0.5, 11)]


def test_every_line_may_be_an_envelope(read: Callable[..., Trace]) -> None:
    text = "".join(json.dumps({"records": [row]}) + "\n" for row in ROWS)
    assert read(text, format=NAMED).requests["input_tokens"].to_list() == [10, 11]
    with pytest.raises(TraceError, match="line 3: is not valid JSON"):
        read(text + "{", format=NAMED)


def test_a_known_format_is_found_in_an_envelope(read: Callable[..., Trace]) -> None:
    rows = [{"timestamp": 500 * k, "input_length": 600, "output_length": 2, "hash_ids": [0, k]} for k in (1, 2)]
    assert read(json.dumps({"items": rows})).format == "mooncake"


@pytest.mark.parametrize(("text", "message"), [
    (json.dumps({"alpha": 1, "beta": {"gamma": [1]}}), "trace t: is JSON in no known format, with the keys alpha, beta;"
                                                       " name its columns, as in --column arrival_s=COLUMN "
                                                       "--column input_tokens=COLUMN"),
    (json.dumps({f"k{k}": k for k in range(20)}), "k10, k11 and 8 more; name its columns"),
    ("# a report\n---\nversion: '2'\nresults:\n  - ttft: 3\nnotes:\n", "is YAML with the keys version, results, notes; "
                                                                       "a trace must be CSV, JSON or Parquet"),
])
def test_an_unknown_file_is_told_by_its_keys(read: Callable[..., Trace], text: str, message: str) -> None:
    with pytest.raises(TraceError) as error:
        read(text)
    assert message in str(error.value)


def test_a_map_that_fits_no_envelope_names_the_keys(read: Callable[..., Trace]) -> None:
    with pytest.raises(TraceError, match="JSON: columns prompt, out are missing; its keys: records"):
        read(json.dumps({"records": ROWS}), format="columns,input_tokens=prompt,output_tokens=out")


@pytest.mark.parametrize(("text", "lengths"), [
    ("input_tokens,output_tokens,model\n10,3,a\n20,4,b\n", [(10, 3), (20, 4)]),
    ("isl,osl\n10,3\n", [(10, 3)]),
    ('{"prompt_len": 10, "output_len": 3}\n{"prompt_len": 11, "output_len": 3}\n', [(10, 3), (11, 3)]),
    ('[{"prompt_tokens": 10, "completion_tokens": 3, "ttft_ms": 5}]', [(10, 3)]),
])
def test_lengths_alone_are_a_trace_without_arrivals(read: Callable[..., Trace], text: str,
                                                    lengths: list[tuple[int, int]]) -> None:
    trace = read(text)
    assert (trace.format, trace.arrivals) == ("lengths", "absent")
    assert trace.requests.select("input_tokens", "output_tokens").rows() == lengths


@pytest.mark.parametrize("name", ["start", "request_timestamp", "sent_at", "t", "end_time", "arrival"])
def test_lengths_beside_a_time_under_another_name_are_not_alone(read: Callable[..., Trace], name: str) -> None:
    message = f"{name} looks like arrival_s, but {name} = 1 does not say its unit"
    with pytest.raises(TraceError, match="column arrival_s is missing" if name == "end_time" else message):
        read(f"{name},input_tokens,output_tokens\n1,10,3\n")


def test_json_in_a_column_is_named_with_dots(read: Callable[..., Trace]) -> None:
    text = 'arrival_s,output_tokens,meta\n0,1,"{""a b"": {""[["": 7}}"\n1,1,"{""a b"": {""[["": 8}}"\n'
    trace = read(text, format="columns,input_tokens=meta.a b.[[")
    assert trace.requests["input_tokens"].to_list() == [7, 8]


def test_instants_give_measured_times(read: Callable[..., Trace]) -> None:
    text = "begin,first,end,n,m\n100.5,100.75,101.5,7,5\n100.0,100.5,102.5,8,1\n"
    instants = "arrival_s=begin,first_token_at_s=first,ended_at_s=end"
    trace = read(text, format=f"columns,{instants},input_tokens=n,output_tokens=m")
    assert trace.requests.select("arrival_s", "ttft_s", "e2e_s", "tpot_s").rows() == [
        (100.0, 0.5, 2.5, None), (100.5, 0.25, 1.0, 0.1875)]


def test_without_arrivals_a_map_makes_a_trace_without(read: Callable[..., Trace]) -> None:
    trace = read("prompt,out\n10,3\n", format="columns,input_tokens=prompt,output_tokens=out")
    assert trace.arrivals == "absent"


@pytest.mark.parametrize(("unit", "cells"), [
    ("s", ("1790000000.25", "1790000000.5")), ("ms", ("1790000000250", "1790000000500")),
    ("us", ("1790000000250000", "1790000000500000")), ("ns", ("1790000000250000000", "1790000000500000000")),
    ("date", ("2026-09-21 10:13:20.25", "2026-09-21T10:13:20.500Z")),
    ("date", ("2026-09-21T12:13:20.25+02:00", "2026-09-21T06:43:20.5-0330")),
    ("date", ("1790000000.25", "1790000000.5")),
])
def test_clocks(read: Callable[..., Trace], unit: str, cells: tuple[str, str]) -> None:
    text = "ts,prompt,out\n" + "".join(f"{cell},10,3\n" for cell in cells)
    trace = read(text, format=f"columns,arrival_s=ts:{unit},input_tokens=prompt,output_tokens=out")
    assert trace.requests["arrival_s"].to_list() == pytest.approx([0.0, 0.25], abs=1e-6)


def test_a_trace_clock_is_kept(read: Callable[..., Trace]) -> None:
    trace = read("ts,prompt,out\n1500,10,3\n", format="columns,arrival_s=ts:ms,input_tokens=prompt,output_tokens=out")
    assert trace.requests["arrival_s"].to_list() == [1.5]


def test_two_clocks_in_a_file_are_an_error(read: Callable[..., Trace]) -> None:
    text = "ts,prompt,out\n1500,10,3\n1790000000250,10,3\n"
    with pytest.raises(TraceError, match="line 3: ts = 1790000000250; arrival_s must be <= 1000000000"):
        read(text, format=SPEC)


def test_dates_of_all_kinds() -> None:
    import polars as pl

    texts = ["2026-09-21 10:13:20", " 2026-09-21T10:13:20.1234567Z ", "2026-09-21T10:13:20+00", "soon", None,
             "2026-13-01 00:00:00", "0001-01-01 00:00:00", "2026-09-21"]
    found = dates(pl.Series(texts))
    zero = found[0]
    assert [None if each is None else (each - zero).total_seconds() for each in found] == [
        0.0, 0.123456, 0.0, None, None, None, None, None]


@pytest.mark.parametrize(("spec", "message"), [
    ("colums", "unknown trace format 'colums'; did you mean 'columns'"),
    ("columns,arrival=ts", "unknown trace column 'arrival'; did you mean 'arrival_s'"),
    ("columns,arrival_s", "'arrival_s' must be OURS=THEIRS"),
    ("columns,arrival_s=ts:mins", "unknown unit 'mins'; must be one of s, ms, us, ns, date"),
    ("columns,input_tokens=n:ms", "input_tokens has no unit 'ms'"),
    ("columns,ttft_s=t:date", "ttft_s has no unit 'date'"),
    ("columns,hash_ids=h:0", "'0' must be the number of tokens of one id"),
    ("columns,input_tokens=n,output_tokens=n", "input_tokens is read from n already; must be another column"),
    ("columns,arrival_s=t:s,ended_at_s=t:ms", "arrival_s is read from t already; must be another column"),
    ('columns,input_tokens=m."n', "must be without quotes"),
    ('columns,where m\\n=1', "must be without quotes"),
    ("aiperf,input_tokens=n", "format 'aiperf' finds its own columns"),
])
def test_a_map_that_is_wrong(read: Callable[..., Trace], spec: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        read(LOG, format=spec)
    assert message in str(error.value)


@pytest.mark.parametrize(("spec", "message"), [
    (f"{SPEC},ttft_s=firsts:ms", "column firsts is missing; found: ts, prompt, out, model, first_ms; did you mean"),
    ("columns,input_tokens=prompts,output_tokens=out", "column prompts is missing"),
    (f"{SPEC},where modle=a", "column modle is missing; found: ts, prompt, out, model, first_ms; did you mean 'model'"),
])
def test_what_a_map_names_must_be_there(read: Callable[..., Trace], spec: str, message: str) -> None:
    with pytest.raises(TraceError) as error:
        read(LOG, format=spec)
    assert message in str(error.value)


def test_options_become_a_spec() -> None:
    assert spec_of(None, None, None) is None
    assert spec_of("azure", None, None) == "azure"
    assert spec_of("azure", ["tenant=x"], ["y=z"]) == "azure,tenant=x,where y=z"
    assert parse_format("azure, tenant = x ,where y=z") == ("azure", {"tenant": "x"}, {"y": "z"})
    with pytest.raises(UsageError, match="must be OURS=THEIRS"):
        spec_of(None, ["arrival_s"], None)
    with pytest.raises(UnknownNameError, match="unknown trace column"):
        parse_format("columns,x=y")


@pytest.mark.parametrize("column", ["http_code", "status_code", "response.status"])
def test_requests_that_failed_by_their_http_status_are_left_out(read: Callable[..., Trace], column: str) -> None:
    rows = "".join(f"2026-01-01T00:00:0{at}Z,100,10,{code}\n" for at, code in enumerate((200, 429, 503, 201, 404)))
    trace = read(f"received_at,prompt_tokens,out_tokens,{column}\n{rows}", format=None)
    assert trace.account.dropped == {f"{column} is 4xx or 5xx": 3}
    named = read(f"at,in,out,{column}\n{rows}", format="columns,arrival_s=at:date,input_tokens=in,output_tokens=out")
    assert named.num_requests == 2
