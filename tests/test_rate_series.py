"""Rate series as dashboards and Prometheus export them."""

import json
from pathlib import Path

import pytest

from planner.errors import TraceError
from planner.traces.shaping.rate_series import RateSeries, read_rate_series

QUERY = {"status": "success", "data": {"resultType": "matrix", "result": [
    {"metric": {"model_name": "a"}, "values": [[1761955200, "2.1"], [1761955260, "2.6"]]},
    {"metric": {"model_name": "b"}, "values": [[1761955200, "1"], [1761955260, "0"]]}]}}


def read(tmp_path: Path, text: str, choice: str = "", name: str = "rates.csv") -> RateSeries:
    """Read a series from a file with a text."""
    (tmp_path / name).write_text(text)
    return read_rate_series(Path(f"{tmp_path / name}{choice}"))


@pytest.mark.parametrize(("text", "choice", "rates"), [
    ('"Time","Value"\n"2026-11-01 10:00:00",2.1\n"2026-11-01 10:01:00",2.6\n', "", [2.1, 2.6]),
    ("timestamp,rate_rps\n2026-11-01T10:00:00Z,2.1\n2026-11-01T10:01:00Z,2.6\n", "", [2.1, 2.6]),
    ("Time,a,b\n1761955200000,2,1\n1761955260000,3,\n", "", [3.0, 3.0]),
    ("Time,a,b\n1761955200000,2,1\n1761955260000,3,\n", "#a", [2.0, 3.0]),
    ("Time,Value\n1761955200,120\n1761955260,60\n", "#Value/min", [2.0, 1.0]),
    ("Time,requests per minute\n1761955200,120\n1761955260,60\n", "", [2.0, 1.0]),
    ("Time,Value\n1761955200,120 req/min\n1761955260,60 req/min\n", "", [2.0, 1.0]),
    ("Time,model,Value\n0,a,2\n0,b,1\n60,a,4\n60,b,5\n", "", [3.0, 9.0]),
    ("Time,model,Value\n0,a,2\n0,b,1\n60,a,4\n60,b,5\n", "#model=b", [1.0, 5.0]),
    ('sep=;\n"Time";"Requests/min"\n"01/05/2026 08:00:00";"120"\n"01/05/2026 08:01:00";"180"\n', "", [2.0, 3.0]),
    ('"Series";"Time";"sum(a, b)"\n"a";"0";"1.5 req/s"\n"b";"0";"1 req/s"\n"a";"60";"2 req/s"\n', "", [2.5, 2.0]),
    (json.dumps(QUERY), "", [3.1, 2.6]), (json.dumps(QUERY), "#model_name=b", [1.0, 0.0]),
])
def test_exports_are_series(tmp_path: Path, text: str, choice: str, rates: list[float]) -> None:
    name = "query.json" if text.startswith("{") else "rates.csv"
    series = read(tmp_path, text, choice, name)
    assert series.rate_rps.tolist() == pytest.approx(rates)
    assert series.duration_s.tolist() == [60.0, 60.0]


def test_a_counter_is_read_as_its_increase(tmp_path: Path) -> None:
    query = {"status": "success", "data": {"resultType": "matrix", "result": [
        {"metric": {"__name__": "vllm:request_success_total"}, "values": [[0, "10"], [60, "130"], [120, "160"]]}]}}
    series = read(tmp_path, json.dumps(query), name="query.json")
    assert series.rate_rps.tolist() == [2.0, 0.5]


def test_sglangs_log_is_no_json_and_has_requests_a_minute(tmp_path: Path) -> None:
    line = ("[2026-11-01 10:0{}:12 TP0] Prefill batch. #new-seq: {}, #new-token: 812, #cached-token: 0, "
            "token usage: 0.00, #running-req: 0, #queue-req: 0, \n")
    decode = "[2026-11-01 10:01:13 TP0] Decode batch. #running-req: 1, #token: 850, #queue-req: 0, \n"
    series = read(tmp_path, line.format(0, 2) + line.format(1, 3) + decode, name="sglang.log")
    assert series.rate_rps.tolist() == pytest.approx([2 / 60, 3 / 60])


def test_what_was_read_is_told(tmp_path: Path) -> None:
    notes = read(tmp_path, "Time,a,b\n0,2,1\n60,3,4\n").notes
    assert "rates are the sum of a, b" in notes[0]
    assert "counts as requests a second" in notes[1]
    assert read(tmp_path, "start_s,rate_rps\n0,2\n60,3\n").notes == ()


@pytest.mark.parametrize(("text", "choice", "message"), [
    ("Time,Value\nsoon,1\nlater,2\n", "", "row 2: Time = 'soon': must be a number or a date and time"),
    ("Time,Value\n0,1 req/s\n60,2 req/min\n", "", "has the units req/min, req/s; must have one"),
    ("Time;Value\n0;1,5\n60;2\n", "", "row 2: Value = '1,5': must be a number, 0 or more, with a decimal point"),
    ("Time,Value\n0,1\n60,2\n", "#rate", "has no column rate; found: Time, Value"),
    (json.dumps(QUERY), "#model_name=c", "has no series with model_name=c; found: model_name=a; model_name=b"),
    (json.dumps({"status": "success", "data": {"resultType": "vector", "result": [{"metric": {}, "value": [0, "1"]}]}}),
     "", "is JSON without series"),
])
def test_other_exports_are_refused(tmp_path: Path, text: str, choice: str, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        read(tmp_path, text, choice, "query.json" if text.startswith("{") else "rates.csv")
