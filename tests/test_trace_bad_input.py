"""Bad traces: each kind of bad row and bad file, with the message that names it."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import PlannerError, TraceError, UnknownNameError, UsageError
from planner.traces import Trace, read_trace

HEADER = b"arrival_s,input_tokens,output_tokens"
ROWS = HEADER + b"\n2.5,10,20\n0.5,30,40\n0.5,50,60\n"
AZURE = b"TIMESTAMP,ContextTokens,GeneratedTokens\n"
JSON = b'{"arrival_s": 0, "input_tokens": 5, "output_tokens": 2'
WITH_IDS = JSON + b', "hash_ids": [9], "hash_block_tokens": %d}\n'
DROP = " (--on-bad-rows drop skips such rows)"


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Trace]:
    """Read bytes as a file named t."""
    monkeypatch.chdir(tmp_path)

    def read_bytes(data: bytes, **options: Any) -> Trace:
        Path("t").write_bytes(data)
        return read_trace("t", **options)

    return read_bytes


BAD_ROWS = {
    "negative": (HEADER + b"\n0,1,1\n0,2,-3\n0,0,1\n", "line 3: output_tokens = -3; must be >= 1", "output_tokens < 1"),
    "zero": (HEADER + b"\n0,1,1\n0,2,0\n", "line 3: output_tokens = 0; must be >= 1", "output_tokens < 1"),
    "nan": (HEADER + b"\n0,1,1\nnan,2,1\n", "line 3: arrival_s = nan; must be finite", "arrival_s is not finite"),
    "inf": (HEADER + b"\n0,1,1\n0,inf,1\n", "line 3: input_tokens = inf; must be finite", "input_tokens is not finite"),
    "half": (HEADER + b"\n0,1,1\n0,1.5,1\n", "line 3: input_tokens = 1.5; must be a whole number",
             "input_tokens is not a whole number"),
    "word": (HEADER + b"\n0,1,1\n0,many,1\n", "line 3: input_tokens = many; must be a number",
             "input_tokens is not a number"),
    "empty": (HEADER + b"\n0,1,1\n0,,1\n", "line 3: input_tokens is empty; must be given", "input_tokens is missing"),
    "huge": (HEADER + b"\n0,1,1\n0,1,5000000000\n", "line 3: output_tokens = 5000000000; must be <= 1073741824",
             "output_tokens > 1073741824"),
    "early": (HEADER + b"\n0,1,1\n-0.5,1,1\n", "line 3: arrival_s = -0.5; must be >= 0", "arrival_s < 0"),
    "nanoseconds": (HEADER + b"\n0,1,1\n1.7e18,1,1\n", "line 3: arrival_s = 1.7e18; must be <= 1000000000",
                    "arrival_s > 1000000000"),
    "optional": (HEADER + b",deadline_s\n0,1,1,1\n0,1,1,-1\n", "line 3: deadline_s = -1; must be >= 0",
                 "deadline_s < 0"),
    "blank-line-before": (HEADER + b"\n\n0,1,1\n\n0,1,0\n", "line 5: output_tokens = 0; must be >= 1",
                          "output_tokens < 1"),
    "quoted-newline-before": (HEADER + b',tenant\n0,1,1,"a\nb"\n0,1,0,c\n', "line 4: output_tokens = 0; must be >= 1",
                              "output_tokens < 1"),
    "short": (HEADER + b"\n0,1,1\n0,1", "line 3: has 2 fields; must have the header's 3", "too few fields"),
    "long": (HEADER + b"\n0,1,1\n0,1,1,1\n", "line 3: has 4 fields; must have the header's 3", "too many fields"),
    "quote": (HEADER + b',tenant\n0,1,1,a\n0,1,1,"b\n', "line 3: a quote is not closed; must be closed in",
              "unclosed quote"),
    "repeated": (HEADER + b",request_id\n1,1,1,a\n0,1,1,a\n", "line 3: request_id = a is also on line 2; must be",
                 "request_id is repeated"),
    "json-cut": (JSON + b"}\n" + JSON[:20], "line 2: is not valid JSON", "not JSON"),
    **{f"json-{value}": (JSON + b"}\n" + JSON.replace(b"5", value.encode()) + b"}\n",
                         f"line 2: input_tokens = {value}; must be finite", "input_tokens is not finite")
       for value in ("NaN", "-Infinity", "1e999")},
    "json-deep-infinity": (b'{"ts": 1790000000, "usage": {"prompt_tokens": 5, "completion_tokens": 2}}\n'
                           b'{"ts": 1790000000, "usage": {"prompt_tokens": Infinity, "completion_tokens": 2}}\n',
                           "line 2: usage.prompt_tokens = inf; input_tokens must be finite",
                           "input_tokens is not finite"),
    "ids-nan": (WITH_IDS % 4 + JSON + b', "hash_ids": [NaN]}\n', "line 2: hash_ids = [NaN]; must be a list of ids",
                "hash_ids is not a list"),
    "json-list": (JSON + b"}\n[1]\n", "line 2: is [1]; must be a JSON object", "not a JSON object"),
    "json-null": (JSON + b"}\n" + JSON.replace(b"5", b"null") + b"}\n", "line 2: input_tokens is empty; must be given",
                  "input_tokens is missing"),
    "json-key": (JSON + b'}\n{"arrival_s": 1, "input_tokens": 1}\n', "line 2: output_tokens is empty; must be given",
                 "output_tokens is missing"),
    "ids-null": (WITH_IDS % 4 + JSON + b', "hash_ids": [1, null]}\n', "line 2: hash_ids holds null",
                 "hash_ids holds null"),
    "ids-object": (WITH_IDS % 4 + JSON + b', "hash_ids": {"a": [1]}}\n', 'line 2: hash_ids = {"a": [1]}; must be',
                   "hash_ids is not a list"),
    "mooncake-ids": (b'{"timestamp":0,"input_length":512,"output_length":2,"hash_ids":[1]}\n'
                     b'{"timestamp":0,"input_length":513,"output_length":2,"hash_ids":[1]}\n',
                     "line 2: hash_ids has 1 ids; must have 2 for 513 input tokens in blocks of 512",
                     "hash_ids do not fit the prompt"),
    "mooncake-zero": (b'{"timestamp":0,"input_length":512,"output_length":2,"hash_ids":[1]}\n'
                      b'{"timestamp":0,"input_length":512,"output_length":0,"hash_ids":[1]}\n',
                      "line 2: output_length = 0; output_tokens must be >= 1", "output_tokens < 1"),
    "azure-date": (AZURE + b"2023-11-16 18:15:46.68,1,1\n2023-13-16 18:15:46.68,1,1\n",
                   "line 3: TIMESTAMP = 2023-13-16 18:15:46.68; arrival_s must be a date and time",
                   "arrival_s is not a date and time"),
    "azure-year": (AZURE + b"2023-11-16 18:15:46.68,1,1\n9999-01-01 00:00:00,1,1\n", "line 3: TIMESTAMP = 9999-01-01",
                   "arrival_s is not a date and time"),
}


@pytest.mark.parametrize(("data", "message", "reason"), BAD_ROWS.values(), ids=BAD_ROWS.keys())
def test_bad_rows_are_named_or_dropped_and_counted(read: Callable[..., Trace], data: bytes, message: str,
                                                   reason: str) -> None:
    with pytest.raises(TraceError) as error:
        read(data)
    assert f"trace t {message}" in str(error.value)
    assert str(error.value).endswith(DROP)
    assert error.value.exit_code == 3
    trace = read(data, on_bad_rows="drop")
    assert trace.account.dropped[reason] >= 1
    assert trace.account.rows_kept + sum(trace.account.dropped.values()) == trace.account.rows_read
    assert trace.num_requests == trace.account.rows_kept == 1


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_column_that_is_not_read_may_hold_a_number_that_is_not_finite(read: Callable[..., Trace], value: str) -> None:
    for deep in ("", ', "hash_block_tokens": 4, "hash_ids": [1, 2]'):
        line = JSON + f'{deep}, "request_rate": {value}}}\n'.encode()
        assert read(JSON + b"}\n" + line + line).num_requests == 3


def test_faults_without_a_column_name_none(read: Callable[..., Trace]) -> None:
    with pytest.raises(TraceError, match=r"must have the header's 3 \(all 2 rows are alike\)$"):
        read(HEADER + b"\n0,1\n1,1\n")


BAD_FILES = {
    "empty": (b"", "trace t: is empty; must hold"),
    "blank": (b"\n \n", "trace t: is empty; must hold"),
    "header-only": (HEADER + b"\n", "trace t: has a header but no rows; must have at least one request"),
    "no-header": (b"0.5,1,1\n1.5,1,1\n", "line 1: holds values; must be a header"),
    "carriage-returns": (ROWS.replace(b"\n", b"\r"), "line 1: is not a CSV header"),
    "misspelt": (ROWS.replace(b"output_tokens", b"outptu_tokens"),
                 "column output_tokens is missing; found: arrival_s, input_tokens, outptu_tokens; outptu_tokens may be "
                 "output_tokens; give --column output_tokens=outptu_tokens (--format forces a format)"),
    "twice": (b"input_tokens," + HEADER + b"\n1,1,1,1\n", "column input_tokens appears twice"),
    "gzip-cut": (gzip.compress(ROWS)[:-9], "compressed data ends early; the file is truncated, copy it again"),
    "zstd-cut": (zstandard.compress(ROWS)[:-9], "compressed data ends early; the file is truncated, copy it again"),
    "gzip-damaged": (gzip.compress(ROWS)[:-8] + b"\xff" * 8, "compressed data is damaged ("),
    "zip": (b"PK\x03\x04....", "is a zip archive; must be UTF-8 CSV or JSONL, plain, .gz or .zst"),
    "binary": (bytes(range(256)) * 4, "line 1: byte 0x00 is not UTF-8 text"),
    "utf-16": (ROWS.decode().encode("utf-16"), "is UTF-16 text (iconv -f UTF-16 -t UTF-8 recodes it); must be UTF-8"),
    **{f"utf-16-{order}": (ROWS.decode().encode(f"utf-16-{order}"),
                           f"or Parquet (iconv -f UTF-16{order.upper()} -t UTF-8 recodes") for order in ("le", "be")},
    "docker": (b'{"log": "{}", "stream": "stdout", "time": "2026-11-30T10:00:00Z"}\n' * 2,
               "is Docker's log of a container; jq -j .log FILE takes its lines out"),
    "kubernetes": (b"2026-11-30T10:00:00.1Z stdout F {}\n", "; cut -d' ' -f4- FILE takes Kubernetes' prefix off"),
    "two-encodings": (HEADER + b",tenant\n0,1,1,caf\xe9\n0,1,1,caf\xc3\xa9\n", "line 2: byte 0xe9 is not UTF-8 text"),
    "json-array": (b"[" + JSON + b"}, 7]", "entry 1 is 7; must be a JSON object, or a list of objects"),
    "json-empty": (b"[]", "is empty; must be a JSON object, or a list of objects"),
    "json-cut": (JSON.replace(b",", b",\n"), "line 4: is not valid JSON"),
    "json-deep": (b"[" * 100_000, "cannot be read as a JSON document"),
    "no-block-tokens": (JSON + b', "hash_ids": [1]}\n', "line 1: hash_ids without hash_block_tokens"),
    "zero-block-tokens": (WITH_IDS % 0, "line 1: hash_block_tokens = 0; must be a whole number >= 1"),
    "two-block-tokens": (WITH_IDS % 4 + WITH_IDS % 8, "line 2: hash_block_tokens = 8, but 4 on line 1; must be"),
    **{name: (text, "line 1: '" + text[:20].decode()) for name, text in {
        "log-in-brackets": b"[05/01/2026-08:00:00] [TRT-LLM] [I] Starts\n", "page": b"<html><body>404</body></html>\n",
        "log-of-python": b"2026-05-01 08:00:00,123 - app - INFO - done\n", "listing": b"NAME     READY   STATUS\n",
    }.items()},
    "nothing-left": (HEADER + b"\n0,1,0\n0,1,0\n",
                     "no row is left of 2 (2 output_tokens < 1; line 2: output_tokens = 0; must be >= 1)"),
    "far-dates": (AZURE + b"2023-01-01 00:00:00,1,1\n1971-01-01 00:00:00,1,1\n", "lines 3 and 2: arrivals are 1.64"),
}


@pytest.mark.parametrize(("data", "message"), BAD_FILES.values(), ids=BAD_FILES.keys())
def test_bad_files_are_errors_even_when_rows_may_be_dropped(read: Callable[..., Trace], data: bytes,
                                                            message: str) -> None:
    with pytest.raises(TraceError) as error:
        read(data, on_bad_rows="drop")
    assert str(error.value).startswith("trace t")
    assert message in str(error.value)


def test_unknown_names_offer_the_nearest(read: Callable[..., Trace]) -> None:
    with pytest.raises(UnknownNameError, match="unknown trace format 'moncake'; did you mean 'mooncake'"):
        read(ROWS, format="moncake")
    with pytest.raises(TraceError, match="trace chta: no such file; did you mean the sample 'chat'"):
        read_trace("chta")
    with pytest.raises(TraceError, match=r"trace no/x\.csv: no such file; bundled samples: agents, batch, chat, "):
        read_trace("no/x.csv")
    with pytest.raises(UnknownNameError, match=r"unknown trace format 'x'; docs/formats.md lists all \d\d$"):
        read(ROWS, format="x")
    with pytest.raises(TraceError, match="trace chat: no such file; the bundled sample of this name has no columns to "
                                         "map and no format; leave out --format, --column, --where"):
        read_trace("chat", format="columns,where tenant=a")


def test_rows_that_all_lack_a_length_are_offered_another_column(read: Callable[..., Trace]) -> None:
    """The column that was read is no other one."""
    with pytest.raises(TraceError, match=r"all 2 rows are alike; --column names another column as in --column "
                                         r"input_tokens=COLUMN\)"):
        read(HEADER + b"\n0,-1,1\n1,-2,1\n")


def test_wrong_arguments(read: Callable[..., Trace], tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"line 1: looks like CSV; format 'mooncake' must be JSONL"):
        read(ROWS, format="mooncake")
    with pytest.raises(UsageError, match="on_bad_rows = 'skip'; must be 'error' or 'drop'"):
        read(ROWS, on_bad_rows="skip")
    with pytest.raises(UsageError, match="limit = 0; must be >= 1"):
        read(ROWS, limit=0)
    with pytest.raises(TraceError, match="directory"):
        read_trace(str(tmp_path))


GOOD = (
    HEADER + b',request_id,tenant,priority\n0,1,1,a,"x, y",1\n1,2,3,b,,\n',
    AZURE + b"2023-11-16 18:15:50.9951693,4,5\n2023-11-16 18:15:46.6805900,6,7\n",
    WITH_IDS % 4 + JSON + b', "request_id": "a", "hash_ids": ["u", 7]}\n',
    b'{"timestamp": 0, "input_length": 600, "output_length": 2, "hash_ids": [1, 2]}\n' * 2,
)
PIECES = (*b'"{}[],\n\r\0 -.e9\xff', b"NaN", b"null", b"1e999", b'""', b"\n\n", b"[1]", b"18446744073709551616")


@settings(deadline=None, max_examples=400)
@given(data=st.data())
def test_a_damaged_file_gives_a_trace_or_our_error(tmp_path_factory: pytest.TempPathFactory,
                                                   data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(GOOD))
    for _ in range(data.draw(st.integers(1, 3))):
        start, length = data.draw(st.integers(0, len(text))), data.draw(st.integers(0, 6))
        piece = data.draw(st.sampled_from(PIECES))
        text = text[:start] + (bytes([piece]) if isinstance(piece, int) else piece) + text[start + length :]
    path = tmp_path_factory.getbasetemp() / "damaged"
    path.write_bytes(text)
    for on_bad_rows in ("error", "drop"):
        try:
            trace = read_trace(str(path), on_bad_rows=on_bad_rows)
        except PlannerError as error:
            assert str(error).startswith(f"trace {path}")  # noqa: PT017
        else:
            assert trace.account.rows_kept == trace.num_requests >= 1
