"""A map of columns: any file by its own names and units, conditions on its rows, and what is wrong with a map."""

import json
from collections.abc import Callable

import pytest

from planner.errors import TraceError, UnknownNameError, UsageError
from planner.settings.format_spec import parse_format, spec_of
from planner.traces import Trace
from planner.traces.units import dates

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
