"""Reading traces: order, defaults, formats, the account, compression, stdin and blocks."""

import gzip
import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

from planner.errors import PlannerError, TraceError
from planner.traces import FORMATS, Trace, read_trace
from planner.traces.source import line_blocks

HEADER = b"arrival_s,input_tokens,output_tokens"
ROWS = HEADER + b"\n2.5,10,20\n0.5,30,40\n0.5,50,60\n"
AZURE = b"TIMESTAMP,ContextTokens,GeneratedTokens\n"


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Trace]:
    """Read bytes as a file named t."""
    monkeypatch.chdir(tmp_path)

    def read_bytes(data: bytes, **options: Any) -> Trace:
        Path("t").write_bytes(data)
        return read_trace("t", **options)

    return read_bytes


def rows(trace: Trace) -> list[tuple[Any, ...]]:
    return trace.requests.select("arrival_s", "input_tokens", "output_tokens", trace.request_id).rows()


def test_rows_are_sorted_and_ties_keep_file_order(read: Callable[..., Trace]) -> None:
    trace = read(ROWS)
    assert rows(trace) == [(0.5, 30, 40, "1"), (0.5, 50, 60, "2"), (2.5, 10, 20, "0")]
    assert (trace.format, trace.source, trace.prefix) == ("csv", "t", None)
    assert len(trace.sha256) == 64


def test_a_path_is_read_as_its_text_is(read: Callable[..., Trace]) -> None:
    assert read(ROWS).sha256 == read_trace(Path("t")).sha256


def test_account_says_what_became_of_the_rows(read: Callable[..., Trace]) -> None:
    data = HEADER + b",note,\n0,10,1,x,\n4,0,1,x,\n8,30,0,x,\n9,30,3,x,\n10,30,-1,x,\n"
    account = read(data, on_bad_rows="drop").account
    assert (account.rows_read, account.rows_kept, account.span_s) == (5, 2, 9.0)
    assert account.dropped == {"input_tokens < 1": 1, "output_tokens < 1": 2}
    assert str(account) == (
        "trace t (csv): read 5 rows, kept 2, dropped 3 (1 input_tokens < 1, 2 output_tokens < 1); span 9 s, "
        "0.1111 requests/s; input p50 20, p99 29.8 tokens; output p50 2, p99 2.98 tokens; "
        "ignored columns: note, (unnamed)"
    )


@pytest.mark.parametrize(
    "data",
    [
        b"\xef\xbb\xbf" + ROWS,
        ROWS.replace(b"\n", b"\r\n"),
        ROWS.replace(b"\n", b"\n\n"),
        b"\n \n" + ROWS.replace(b"\n", b"\r\n\r\n") + b"  \n",
        ROWS.rstrip(),
        ROWS.replace(b",", b" , "),
        ROWS.replace(b"10", b'"10"').replace(b"arrival_s", b'"arrival_s"'),
        ROWS.replace(b"20", b"20.0"),
        gzip.compress(ROWS[:40]) + gzip.compress(ROWS[40:]) + b"\0\0",
        zstandard.compress(ROWS[:40]) + zstandard.compress(ROWS[40:]),
    ],
    ids=["bom", "crlf", "blank-lines", "blanks-around", "no-last-feed", "spaces", "quotes", "floats", "gzip", "zstd"],
)
def test_the_same_table_in_other_clothes(read: Callable[..., Trace], data: bytes) -> None:
    assert rows(read(data)) == rows(read(ROWS))


def test_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(gzip.compress(ROWS))))
    assert read_trace("-").num_requests == 3


def test_optional_cells_may_be_empty_and_empty_columns_are_absent(read: Callable[..., Trace]) -> None:
    trace = read(HEADER + b',priority,tenant,session_id\n0,1,1,,a,\n1,1,1,2.5,"",\n2,1,1, ,"b, c",\n')
    assert trace.requests["priority"].to_list() == [None, 2.5, None]
    assert trace.requests["tenant"].to_list() == ["a", None, "b, c"]
    assert "session_id" not in trace.requests.columns


def test_request_ids_default_to_the_row_number_in_the_file(read: Callable[..., Trace]) -> None:
    data = HEADER + b",request_id\n3,1,1,\n2,1,0,b\n1,1,1,c\n0,1,1,\n"
    assert read(data, on_bad_rows="drop").requests["request_id"].to_list() == ["3", "c", "0"]


def test_limit_reads_the_first_rows_of_the_file_and_hashes_all(read: Callable[..., Trace]) -> None:
    trace = read(ROWS + b"garbage\n", limit=2)
    assert rows(trace) == [(0.5, 30, 40, "1"), (2.5, 10, 20, "0")]
    assert trace.account.rows_read == 2
    assert trace.sha256 == read(ROWS + b"garbage\n", on_bad_rows="drop").sha256


def test_hash_ids_are_interned_by_first_appearance_and_follow_the_sort(read: Callable[..., Trace]) -> None:
    line = b'{"arrival_s": %d, "input_tokens": 9, "output_tokens": 1, "hash_ids": %s, "hash_block_tokens": 4}\n'
    data = line % (2, b"[70, 7]") + line % (1, b"null") + line % (0, b'["70", "x", 18446744073709551615]')
    prefix = read(data).prefix
    assert prefix is not None
    assert prefix.block_tokens == 4
    assert prefix.offsets.tolist() == [0, 3, 3, 5]
    assert prefix.values.tolist() == [0, 2, 3, 0, 1]
    assert prefix.values.dtype == prefix.offsets.dtype == np.int64


def test_azure_arrivals_count_from_the_earliest_to_a_tenth_of_a_microsecond(read: Callable[..., Trace]) -> None:
    data = b"2023-11-16 18:15:50.9951693,4,5\n2023-11-16T18:15:46.6805900Z,6,7\n2023-11-16 18:15:47,1,1\n"
    trace = read(AZURE + data)
    assert trace.requests["arrival_s"].to_list() == [0.0, 0.31941, 4.3145793]
    assert trace.format == "azure"


def test_azure_images_are_named_as_ignored(read: Callable[..., Trace]) -> None:
    trace = read(b"TIMESTAMP,ContextTokens,GeneratedTokens,NumImages\n2025-01-01 00:00:00.1,4,5,2\n")
    assert trace.account.ignored_columns == ("NumImages",)


def test_vidur(read: Callable[..., Trace]) -> None:
    trace = read(b"arrived_at,num_prefill_tokens,num_decode_tokens\n0.25,3,4\n")
    assert (trace.format, rows(trace)) == ("vidur", [(0.25, 3, 4, "0")])


def test_forced_format_reads_what_detection_leaves(read: Callable[..., Trace]) -> None:
    line = b'{"timestamp": 1500, "input_length": 600, "output_length": 2}\n'
    with pytest.raises(TraceError, match="timestamp looks like arrival_s, but timestamp = 1500 does not say its unit"):
        read(line)
    assert rows(read(line, format="mooncake")) == [(1.5, 600, 2, "0")]


def test_formats_are_named_by_their_keys() -> None:
    assert {"csv", "jsonl", "azure", "mooncake", "vidur"} <= set(FORMATS)
    assert all(name == reader.name for name, reader in FORMATS.items())
    assert all(reader.meaning and reader.time and reader.tokens for reader in FORMATS.values())


@pytest.mark.parametrize("block_bytes", [1, 7, 64, 10_000])
def test_blocks_hold_whole_lines_also_where_quotes_span_them(block_bytes: int) -> None:
    text = HEADER + b',tenant\n0,1,1,"a\nb"\n1,1,1,c\n2,1,1,"d ""e"" \n\nf"\n3,1,1,g'
    chunks = (text[at : at + 5] for at in range(0, len(text), 5))
    blocks = list(line_blocks(chunks, block_bytes))
    assert b"".join(blocks) == text + b"\n"
    assert all(block.endswith(b"\n") and block.count(b'"') % 2 == 0 for block in blocks)


def test_small_blocks_give_the_same_trace(read: Callable[..., Trace], monkeypatch: pytest.MonkeyPatch) -> None:
    line = b'{"arrival_s": %d, "input_tokens": 900, "output_tokens": 1, "hash_ids": [%s], "hash_block_tokens": 4}\n'
    data = b"".join(line % (99 - i, b'"s%d", 1' % i if i % 3 else b"%d" % i) for i in range(99))
    whole = read(data)
    monkeypatch.setattr("planner.traces.reading.BLOCK_BYTES", 500)
    monkeypatch.setattr("planner.traces.source.RAW_BYTES", 100)
    pieces = read(data)
    assert pieces.requests.equals(whole.requests)
    assert pieces.sha256 == whole.sha256
    assert whole.prefix is not None
    assert pieces.prefix is not None
    assert np.array_equal(pieces.prefix.values, whole.prefix.values)
    assert np.array_equal(pieces.prefix.offsets, whole.prefix.offsets)
    with pytest.raises(PlannerError, match="line 100: input_tokens = 0"):
        read(data + line.replace(b"900", b"0") % (1, b""))


def test_import_needs_only_numpy_and_polars() -> None:
    heavy = "numba", "plotly", "typer", "zstandard", "scipy", "pandas", "pyarrow"
    code = f"import sys, planner.traces; print([m for m in {heavy!r} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
