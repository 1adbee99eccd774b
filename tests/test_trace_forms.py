"""Times, numbers, separators and encodings in the forms that people export, and columns under likely names."""

import json
from collections.abc import Callable
from datetime import datetime

import polars as pl
import pytest

from planner.errors import TraceError
from planner.traces import Trace, read_trace
from planner.traces.dates import dates

LENGTHS = "input_tokens=p,output_tokens=o"


@pytest.mark.parametrize("times", [
    ("2026-11-01T12:00:00+02:00", "2026-11-01T10:00:01Z"), ("2026-11-01 10:00:00,000", "2026-11-01 10:00:01,000"),
    ("01/Nov/2026:10:00:00 +0000", "01/Nov/2026:10:00:01 +0000"), ("11/01/2026 10:00:00", "11/01/2026 10:00:01"),
    ("Sun, 01 Nov 2026 10:00:00 GMT", "Sun, 01 Nov 2026 10:00:01 GMT"), ("1793527200", "1793527201"),
    ("1793527200000", "1793527201000"), ("1793527200000000000", "1793527201000000000"), ("0.5", "1.5"),
    ("01.11.2026 10:00:00", "01.11.2026 10:00:01"), ("2026/11/01 10:00:00", "2026/11/01 10:00:01"),
    ("Nov 1, 2026 @ 10:00:00.250", "Nov 1, 2026 @ 10:00:01.250"),
])
def test_times_need_no_unit(read: Callable[..., Trace], times: tuple[str, str]) -> None:
    trace = read("".join(["ts,p,o\n", *(f'"{time}",5,2\n' for time in times)]),
                 format=f"columns,arrival_s=ts,{LENGTHS}")
    first, second = trace.requests["arrival_s"]
    assert second - first == 1.0


def test_day_and_month_are_told_apart_by_the_column() -> None:
    assert dates(pl.Series(["13/01/2026 10:00", "11/02/2026 10:00"])).to_list() == [
        datetime(2026, 1, 13, 10), datetime(2026, 2, 11, 10)]
    assert dates(pl.Series(["01/02/2026 10:00", "11/02/2026 10:00"])).to_list() == [None, None]


@pytest.mark.parametrize(("text", "message"), [
    ("ts,p,o\n2026-11-01T10:00:00Z,5,2\n1793527201,5,2\n",
     r"line 3: ts = 1793527201; arrival_s must be a date and time, like 2026-11-01T10:00:00Z: the times of a file"),
    ("ts,p,o\n1793527200,5,2\n2026-11-01T10:00:01Z,5,2\n",
     r"line 3: ts = 2026-11-01T10:00:01Z; arrival_s must be a number, like 1793527200: the times of a file"),
    ("ts,p,o\n01/02/2026 10:00,5,2\n11/02/2026 10:00,5,2\n", r"all 2 rows are alike; day and month cannot be told"),
    ("ts,p,o\nsoon,5,2\nlater,5,2\n",
     r"ts = soon; arrival_s must be a number or a date and time \(all 2 rows are alike; --column names another column "
     r"as in --column arrival_s=COLUMN; or write times as 2026-11-30 10:00:00"),
    ("ts,p,o\n00:00:01.250,5,2\n00:00:02,5,2\n", "a time of day lacks its date; write 2026-11-30 10:00:00, or seconds"),
    ("ts,p,o\n1790000000,5,2\n1790000001500,5,2\n",
     "line 3: ts = 1790000001500; arrival_s must be in the unit of 1790000000: the times of a file must have one unit"),
    ("ts,p,o\n1790000001,5,2\n1790000001500,5,2\n1790000002,5,2\n", "line 3: ts = 1790000001500; arrival_s must be in"),
    ("ts,p,o\n1.5,5,2\n1790000001500,5,2\n",
     "line 3: ts = 1790000001500; arrival_s must be <= 1000000000, or all times count from 1970 in one unit"),
])
def test_a_remedy_fits_the_fault(read: Callable[..., Trace], text: str, message: str) -> None:
    with pytest.raises(TraceError, match=message) as error:
        read(text, format=f"columns,arrival_s=ts,{LENGTHS}")
    assert ("drop" in str(error.value)) == ("line 3" in str(error.value))


@pytest.mark.parametrize(("cells", "tokens"), [
    (('"1,234"', '"12,345"', "900"), [1234, 12345, 900]), (("1.234", "12.345", "900"), [1234, 12345, 900]),
    (("1 234", "12 345", "900"), [1234, 12345, 900]), (("1'234", "12'345", "900"), [1234, 12345, 900]),
    (('"1,234.0"', '"12,345.0"', "900"), [1234, 12345, 900]),
])
def test_separators_of_thousands_are_read_if_the_column_agrees(read: Callable[..., Trace], cells: tuple[str, ...],
                                                               tokens: list[int]) -> None:
    trace = read("arrival_s,input_tokens,output_tokens\n" + "".join(f"0,{cell},2\n" for cell in cells))
    assert trace.requests["input_tokens"].to_list() == tokens
    assert any("input_tokens is read with thousands" in note for note in trace.account.notes)


@pytest.mark.parametrize("row", ['0,"1,234",2\n0,12345,2\n',
                                 '0,"1,234",2\n0,"1.234",2\n', '"0,500",5,2\n"1,250",5,2\n'])
def test_columns_that_do_not_agree_are_refused_with_their_remedy(read: Callable[..., Trace], row: str) -> None:
    with pytest.raises(TraceError, match="write numbers without separators of thousands and with a decimal point"):
        read("arrival_s,input_tokens,output_tokens\n" + row)


def test_semicolons_with_decimal_commas_are_read(read: Callable[..., Trace]) -> None:
    trace = read("sep=;\narrival_s;input_tokens;output_tokens\n0,5;1.234;2\n1,25;2.345;2\n")
    assert trace.requests.select("arrival_s", "input_tokens").rows() == [(0.5, 1234), (1.25, 2345)]
    assert trace.account.notes[:2] == ("columns are separated by ';'", "arrival_s is read with decimals ','")


def test_days_of_spreadsheets_are_told(read: Callable[..., Trace]) -> None:
    rows, fact = "ts,input_tokens,output_tokens\n46327.41667,5,2\n46327.5,5,2\n", "ts = 46327.41667 looks like a day"
    with pytest.raises(TraceError, match=fact):
        read(rows)
    assert any(note.startswith(fact) for note in read(rows, format="columns,arrival_s=ts:s").account.notes)
    assert not read(rows.replace(".5,", ",").replace(".41667", ""), format="columns,arrival_s=ts:s").account.notes


def test_windows_1252_is_read_with_a_note(tmp_path: object) -> None:
    path = f"{tmp_path}/t.csv"
    with open(path, "wb") as file:
        file.write("arrival_s,input_tokens,output_tokens,tenant\n0,5,2,Müller\n".encode("cp1252"))
    trace = read_trace(path)
    assert trace.requests["tenant"].to_list() == ["Müller"]
    assert "read as Windows-1252" in trace.account.notes[0]


def test_likely_names_are_read_with_a_note(read: Callable[..., Trace]) -> None:
    rows = "2026-11-01T10:00:00+01:00,100,10,m,1.2\n2026-11-01T10:00:02+01:00,120,12,m,1.4\n"
    trace = read("ts,prompt_tok,completion_tok,model_name,latency\n" + rows)
    assert trace.requests.select("arrival_s", "input_tokens", "output_tokens").rows() == [
        (0.0, 100, 10), (2.0, 120, 12)]
    assert "ts as arrival_s, prompt_tok as input_tokens, completion_tok as output_tokens" in trace.account.notes[0]
    assert read("ts,prompt_tok,completion_tok\n" + "2026-11-01T10:00:00Z,100,10\n",
                format="columns,arrival_s=ts").requests["input_tokens"].to_list() == [100]


def test_likely_names_are_offered(read: Callable[..., Trace]) -> None:
    with pytest.raises(TraceError, match=r"ts looks like arrival_s; .* latency looks like e2e_s: "
                                         "--column e2e_s=latency:UNIT"):
        read("ts,tokens,latency\n2026-11-01T10:00:00Z,100,10\n")


def test_a_file_of_several_models_says_so_and_how_to_keep_one(read: Callable[..., Trace]) -> None:
    text = "arrival_s,input_tokens,output_tokens,model_name\n" + "".join(
        f"{k},100,10,{name}\n" for k, name in enumerate(["a b", "c", "a b", "", "d"]))
    note = ("the file has 3 models: a b (2 rows), c (1 row), d (1 row). All of them count as requests to one model; "
            "--where 'model_name=a b' keeps one")
    assert note in read(text).account.notes
    kept = read(text, format="columns,where model_name=a b")
    assert (kept.num_requests, kept.account.notes) == (2, ())
    objects = [{"ts": k, "in": {"prompt_tokens": 5, "model": f"m{k % 2}"}, "completion_tokens": 3} for k in range(4)]
    nested = read("\n".join(map(json.dumps, objects)), format="columns,arrival_s=ts,input_tokens=in.prompt_tokens,"
                                                              "output_tokens=completion_tokens")
    assert "the file has 2 models: m0 (2 rows), m1 (2 rows)" in nested.account.notes[0]
    assert "--where in.model=m0 keeps one" in nested.account.notes[0]


@pytest.mark.parametrize(("format", "message"), [
    (None, "columns arrival_s, input_tokens, output_tokens are missing; found: when_ms, ptok_x, answer_len, model; "
           "ptok_x may be input_tokens; answer_len may be output_tokens; give --column arrival_s=COLUMN --column "
           "input_tokens=ptok_x --column output_tokens=answer_len; model looks like tenant"),
    ("columns,input_tokens=ptok_x,arrival_s=when:ms", "columns when, output_tokens are missing; found: when_ms, "
     "ptok_x, answer_len, model; did you mean 'when_ms' for when; answer_len may be output_tokens; give --column "
     "input_tokens=ptok_x --column arrival_s=when_ms:ms --column output_tokens=answer_len; model looks"),
    ("columns,output_tokens=answer_len,tenant=model,where modle=a", "columns input_tokens, modle are missing; found: "
     "when_ms, ptok_x, answer_len, model; ptok_x may be input_tokens; did you mean 'model' for modle; give --column "
     "output_tokens=answer_len --column tenant=model --column input_tokens=ptok_x --where model=a$"),
])
def test_all_missing_columns_are_named_at_once_with_their_candidates(
    read: Callable[..., Trace], format: str | None, message: str
) -> None:
    with pytest.raises(TraceError, match=message):
        read("when_ms,ptok_x,answer_len,model\n1,100,20,a\n", format=format)


@pytest.mark.parametrize(("text", "lengths", "fact"), [
    ("total_tokens,completion_tokens", (100, 20), "input_tokens is total_tokens - completion_tokens"),
    ("total_tokens,prompt_tokens", (20, 100), "output_tokens is total_tokens - prompt_tokens"),
])
def test_a_length_is_the_total_less_the_other(read: Callable[..., Trace], text: str, lengths: tuple[int, int],
                                              fact: str) -> None:
    rows = f"timestamp,{text}\n2026-11-01T10:00:00Z,120,20\n"
    for trace in (read(rows), read(rows, format="columns,arrival_s=timestamp")):
        assert trace.requests.select("input_tokens", "output_tokens").rows() == [lengths]
        assert any(note.startswith(fact) for note in trace.account.notes)
    with pytest.raises(TraceError, match=rf"line 3: {fact.split(' is ')[1]} = -5; \S+ must be >= 1"):
        read(rows + "2026-11-01T10:00:00Z,15,20\n")


@pytest.mark.parametrize(("text", "message"), [
    ('{"time_local": "01/Nov/2026:10:00:00 +0100", "request": "POST /", "request_time": "2.5"}\n',
     "as in --column arrival_s=time_local --column input_tokens=COLUMN --column output_tokens=COLUMN; request_time "
     "looks like e2e_s"),
    ("request time,prompt size x,kind\n1,2,a\n",
     "give --column arrival_s=COLUMN --column 'input_tokens=prompt size x' --column output_tokens=COLUMN; request time "
     "looks like e2e_s: --column 'e2e_s=request time':UNIT (s or ms)"),
    ("total_tokens,completion_tokens,queue_time\n1,2,3\n",
     "input_tokens is total_tokens - completion_tokens; completion_tokens looks like output_tokens; give --column "
     "arrival_s=COLUMN --column output_tokens=completion_tokens"),
    ("request_rate,max_concurrency,mean_ttft_ms,output_throughput\n1,,70,100\n",
     "is a table of runs, without requests; planner validate reads it if"),
    ("end_time,latency,prompt_tokens,completion_tokens\n2026-11-01 10:00:00,2,9,9\n",
     "end_time looks like ended_at_s; prompt_tokens looks like input_tokens; completion_tokens looks like "
     "output_tokens; give --column ended_at_s=end_time --column e2e_s=latency:UNIT --column input_tokens=prompt_tokens "
     "--column output_tokens=completion_tokens (--format"),
    ("end_time,latency_ms,prompt_tokens,completion_tokens\n5,2,9,9\n",
     "end_time looks like ended_at_s, but end_time does not say its unit; give --column ended_at_s=end_time:s or"),
])
def test_a_column_is_offered_for_its_own_meaning_alone(read: Callable[..., Trace], text: str, message: str) -> None:
    with pytest.raises(TraceError) as error:
        read(text)
    assert message in str(error.value)


def test_arrivals_follow_from_ends_and_latencies(read: Callable[..., Trace]) -> None:
    lengths = "prompt_tokens,completion_tokens"
    dated = f"end_time,latency_ms,{lengths}\n2026-11-01T10:00:10Z,9000,9,2\n2026-11-01T10:00:11.5Z,500,9,2\n"
    for text, spec in ((dated, None), (dated, "columns,ended_at_s=end_time,e2e_s=latency_ms:ms"),
                       (f"done,took,{lengths}\n1790000010,9,9,2\n1790000011.5,.5,9,2\n",
                        "columns,ended_at_s=done,e2e_s=took"),
                       (f"done,took,{lengths}\n9,9,9,2\n10.5,0.5,9,2\n", "columns,ended_at_s=done,e2e_s=took")):
        trace = read(text, format=spec)
        assert trace.requests.select("arrival_s", "e2e_s").rows() == [(0.0, 9.0), (10.0, 0.5)]
        assert any("because the file has no column of arrivals" in note for note in trace.account.notes)
    with pytest.raises(TraceError, match="line 3: end - latency_s is empty; arrival_s must be given"):
        read(f"end,latency_s,{lengths}\n1790000000123,1.5,6,7\n1790000001123,,6,7\n")
    taken = read(dated, format="columns,arrival_s=end_time").account.notes
    assert any(note.startswith("arrivals are read from end_time, which has the name of an end") for note in taken)
