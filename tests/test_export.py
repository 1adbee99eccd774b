"""Traces written for other tools: what is read back is what was written, what is lost is told, and no name survives."""

import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from helpers import trace_of
from hypothesis import given, settings
from hypothesis import strategies as some

from planner.errors import PlannerError, UnknownNameError, UsageError
from planner.schema import REQUIRED_TRACE_COLUMNS, TRACE_COLUMNS, Column
from planner.traces import Trace, read_trace
from planner.traces.export import TARGETS, convert
from planner.traces.export.anonymous import anonymize, check_anonymous
from planner.traces.prefix_ids import intern_ids
from planner.traces.table import account_of

TYPES = {"float": pl.Float64, "int": pl.Int64, "str": pl.String}
BLOCK = 512


def cells(column: Column) -> some.SearchStrategy:
    if column.dtype == "str":
        return some.text(some.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)
    if column.dtype == "int":
        return some.integers(int(column.minimum or 0), min(int(column.maximum or 0), 5000))
    return some.floats(column.minimum, column.maximum, allow_nan=False, allow_infinity=False)


@some.composite
def traces(draw: some.DrawFn, columns: tuple[str, ...], *, has_ids: bool) -> Trace:
    """A trace in order of arrival with any of some columns, and prompts whose ids cover them."""
    num = draw(some.integers(1, 6))
    data = {}
    for column in TRACE_COLUMNS:
        values = some.lists(cells(column), min_size=num, max_size=num, unique=column.name == "request_id")
        if column.name in (*REQUIRED_TRACE_COLUMNS, "request_id"):
            data[column.name] = draw(values)
        elif column.name in columns and draw(some.booleans()):
            kept = draw(some.lists(some.none() | cells(column), min_size=num, max_size=num))
            if any(value is not None for value in kept):
                data[column.name] = kept
    data["arrival_s"] = sorted(data["arrival_s"])
    table = pl.DataFrame(data, schema={c.name: TYPES[c.dtype] for c in TRACE_COLUMNS if c.name in data})
    if "request_id" not in columns:
        table = table.with_columns(request_id=pl.int_range(num, dtype=pl.UInt32))
    lengths = -(-table["input_tokens"].to_numpy() // BLOCK)
    ids = pl.Series(draw(some.lists(some.integers(0, 5), min_size=int(lengths.sum()), max_size=int(lengths.sum()))))
    prefix = intern_ids([ids.cast(pl.Int64)], lengths, BLOCK) if has_ids else None
    account = account_of(table, source="t", format="csv", rows_read=num, dropped={}, ignored_columns=())
    return Trace(requests=table, prefix=prefix, source="t", format="csv", sha256="", account=account)


def same(one: Trace, two: Trace, columns: tuple[str, ...] | None = None) -> None:
    names = columns or tuple(one.requests.columns)
    assert two.requests.select(names).equals(one.requests.select(names))
    assert (one.prefix is None) == (two.prefix is None)
    if one.prefix is not None and two.prefix is not None:
        assert two.prefix.block_tokens == one.prefix.block_tokens
        assert np.array_equal(two.prefix.offsets, one.prefix.offsets)
        assert np.array_equal(two.prefix.values, one.prefix.values)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("out")


ALL = tuple(column.name for column in TRACE_COLUMNS)


@settings(max_examples=100)
@given(trace=traces(ALL, has_ids=False))
def test_csv_is_read_back_as_it_was(folder: Path, trace: Trace) -> None:
    convert(trace, folder / "t.csv")
    same(trace, read_trace(str(folder / "t.csv")))


@pytest.mark.slow
@settings(max_examples=100)
@given(trace=traces(ALL, has_ids=True))
def test_jsonl_is_read_back_as_it_was(folder: Path, trace: Trace) -> None:
    convert(trace, folder / "t.jsonl")
    same(trace, read_trace(str(folder / "t.jsonl")))


@settings(max_examples=50)
@given(trace=traces(ALL, has_ids=True))
def test_parquet_holds_what_jsonl_does(folder: Path, trace: Trace) -> None:
    convert(trace, folder / "t.parquet")
    table = pl.read_parquet(folder / "t.parquet")
    assert table.drop("hash_ids", "hash_block_tokens").equals(trace.requests)
    assert trace.prefix is not None
    assert table["hash_ids"].explode().drop_nulls().to_list() == trace.prefix.values.tolist()


@pytest.mark.slow
@settings(max_examples=100)
@given(trace=traces(("session_id",), has_ids=True))
def test_mooncake_is_read_back_as_it_was(folder: Path, trace: Trace) -> None:
    """Up to the last bit of an arrival, since milliseconds divided by a thousand do not reach every number."""
    convert(trace, folder / "t.mooncake", to="mooncake")
    again = read_trace(str(folder / "t.mooncake"), format="mooncake")
    written, read = trace.requests["arrival_s"].to_numpy(), again.requests["arrival_s"].to_numpy()
    assert read == pytest.approx(written, rel=3e-16, abs=0)
    same(trace, again, tuple(name for name in trace.requests.columns if name != "arrival_s"))


@settings(max_examples=60)
@given(milliseconds=some.lists(some.integers(0, 10**12), min_size=1, max_size=8))
def test_whole_milliseconds_stay_what_they_are(folder: Path, milliseconds: list[int]) -> None:
    read = [each / 1000 for each in sorted(milliseconds)]
    trace = trace_of([(at, 10, 1) for at in read], hash_ids=[[0]] * len(read), hash_block_tokens=512)
    convert(trace, folder / "t.mooncake", to="mooncake")
    written = [json.loads(line)["timestamp"] for line in (folder / "t.mooncake").read_text().splitlines()]
    assert written == sorted(milliseconds)
    assert read_trace(str(folder / "t.mooncake")).requests["arrival_s"].equals(trace.requests["arrival_s"])


@settings(max_examples=60)
@given(trace=traces((), has_ids=False))
def test_vidur_is_read_back_as_it_was(folder: Path, trace: Trace) -> None:
    convert(trace, folder / "t.vidur", to="vidur")
    same(trace, read_trace(str(folder / "t.vidur"), format="vidur"), REQUIRED_TRACE_COLUMNS)


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


TURNS = trace_of([(0.0, 600, 5), (0.5, 700, 6), (2.25, 1300, 7)], hash_ids=[[0, 1], [2, 3], [0, 1, 4]],
                 hash_block_tokens=512, session_id=["a", "b", "a"], parent_id=[None, None, "0"],
                 think_time_s=[None, None, 1.5])


def test_a_timed_trace_is_in_seconds_with_ids_of_its_own_size(tmp_path: Path) -> None:
    account = convert(TURNS, tmp_path / "t.jsonl", to="timed-trace", lossy=True)
    assert rows_of(tmp_path / "t.jsonl")[2] == {"timestamp": 2.25, "input_length": 1300, "output_length": 7,
                                               "hash_ids": [0, 1, 4]}
    assert account.lost == {"session_id": 3, "parent_id": 1, "think_time_s": 1}
    assert "--timed-trace-chunk-hash-size 512" in account.notes[0]
    alone = convert(trace_of([(0.0, 33, 5), (0.5, 16, 6)]), tmp_path / "u.jsonl", to="timed-trace")
    assert [row["hash_ids"] for row in rows_of(tmp_path / "u.jsonl")] == [[0, 1, 2], [3]]
    assert "no hash_ids" in alone.notes[0]


def test_aiperf_gets_delays_for_turns_that_wait(tmp_path: Path) -> None:
    convert(TURNS, tmp_path / "t.jsonl", to="aiperf")
    first, _, third = rows_of(tmp_path / "t.jsonl")
    assert first == {"session_id": "a", "timestamp": 0.0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}
    assert third == {"session_id": "a", "delay": 1500.0, "input_length": 1300, "output_length": 7,
                     "hash_ids": [0, 1, 4]}
    with pytest.raises(UsageError, match="has parent_id without session_id"):
        convert(trace_of([(0.0, 1, 1), (1.0, 1, 1)], parent_id=[None, "0"]), tmp_path / "u.jsonl", to="aiperf")


def test_blis_gets_microseconds_and_a_header(tmp_path: Path) -> None:
    trace = trace_of([(0.0, 60, 5), (0.5, 70, 6), (2.25, 130, 7)], session_id=["a", "b", "a"], tenant=["x", None, "x"],
                     priority=[0.0, 2.0, 1.0], deadline_s=[0.3, None, 0.2], cancel_after_s=[None, 10.0, None],
                     ttft_s=[0.1, None, 0.25], e2e_s=[0.4, None, 1.0])
    account = convert(trace, tmp_path / "t.csv", to="blis")
    assert [path.name for path in account.paths] == ["t.csv", "t.csv.yaml"]
    assert (tmp_path / "t.csv.yaml").read_text().splitlines()[:2] == ["trace_version: 2", "time_unit: microseconds"]
    table = pl.read_csv(tmp_path / "t.csv")
    assert table["arrival_time_us"].to_list() == [0, 500_000, 2_250_000]
    assert table["round_index"].to_list() == [0, 0, 1]
    assert table["vllm_priority"].to_list() == [0, 2, 1]
    assert table["slo_target_us"].to_list() == [300_000, 0, 200_000]
    assert table["deadline_us"].to_list() == [0, 10_500_000, 0]
    assert table["last_chunk_time_us"].to_list() == [400_000, 0, 3_250_000]
    assert table.columns[:5] == ["request_id", "client_id", "tenant_id", "slo_class", "vllm_priority"]
    with pytest.raises(UsageError, match=r"request 0 has priority -1; BLIS needs whole numbers >= 0"):
        convert(trace_of([(0.0, 1, 1)], priority=[-1.0]), tmp_path / "u.csv", to="blis")


def test_what_would_say_something_else_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    out = tmp_path / "out"
    small = trace_of([(0.0, 20, 1)], hash_ids=[[0, 1]], hash_block_tokens=16)
    short = trace_of([(0.0, 1000, 1)], hash_ids=[[0]], hash_block_tokens=512)
    cases = [(TURNS, "csv", "cannot store prefix ids"), (TURNS, "mooncake", "cannot store parent_id"),
             (small, "mooncake", "an id stands for 16 tokens, in mooncake for 512"),
             (short, "mooncake", r"first request 0 with 1 ids for 1,000 tokens; must be 2"),
             (trace_of([(0.0, 1, 1)]), "mooncake", "has no hash_ids")]
    for trace, to, message in cases:
        with pytest.raises(UsageError, match=message):
            convert(trace, out, to=to)
    with pytest.raises(UnknownNameError, match="unknown format 'vidor'; did you mean 'vidur'"):
        convert(small, out, to="vidor")
    with pytest.raises(UsageError, match=r"the ending one of \.csv, \.jsonl, \.parquet"):
        convert(small, out)
    with pytest.raises(UsageError, match="--salt: needs --anonymize"):
        convert(small, tmp_path / "t.jsonl", salt="s")
    assert not list(tmp_path.iterdir())


# Begun as no number, and no word of a format, is.
ANY = some.characters(codec="utf-8", exclude_categories=["Cs", "Cc"])
NAMES = some.text(ANY, min_size=4, max_size=18).map("Q~".__add__)


@pytest.mark.slow
@pytest.mark.parametrize("to", TARGETS)
@settings(max_examples=25)
@given(names=some.lists(NAMES, min_size=3, max_size=3, unique=True), salt=some.text(max_size=5))
def test_no_name_survives_in_any_format(folder: Path, to: str, names: list[str], salt: str) -> None:
    trace = trace_of([(5.0, 600, 5), (5.5, 700, 6), (7.25, 1300, 7)], hash_ids=[[7, 1], [2, 3], [7, 1, 4]],
                     hash_block_tokens=512, session_id=[names[0], names[1], names[0]],
                     tenant=[names[2], None, names[2]])
    trace = dataclasses.replace(trace, requests=trace.requests.with_columns(request_id=pl.Series(names)))
    account = convert(trace, folder / "anonymous", to=to, anonymous=True, salt=salt, lossy=True)
    assert account.names_checked is not None
    for path in account.paths:
        content = path.read_bytes()
        assert not any(name.encode() in content for name in names)


def test_an_anonymous_trace_keeps_timing_lengths_and_sharing_and_replays_the_same(tmp_path: Path) -> None:
    original = read_trace("long-context", limit=300)
    convert(original, tmp_path / "a.jsonl", anonymous=True, salt="secret")
    found = read_trace(str(tmp_path / "a.jsonl"))
    columns = ("input_tokens", "output_tokens")
    assert found.requests.select(columns).equals(original.requests.select(columns))
    since = original.requests["arrival_s"] - original.requests["arrival_s"][0]
    assert found.requests["arrival_s"].to_numpy() == pytest.approx(since.to_numpy(), abs=1e-9)
    assert original.prefix is not None
    assert found.prefix is not None
    assert np.array_equal(found.prefix.values, intern_ids([pl.Series(original.prefix.values)],
                                                          np.diff(original.prefix.offsets), 512).values)
    pairs = set(zip(original.requests["session_id"], found.requests["session_id"], strict=True))
    assert len(pairs) == original.requests["session_id"].n_unique() == found.requests["session_id"].n_unique()


def test_salts_tell_files_apart_and_join_them() -> None:
    one, same_salt, other = (anonymize(TURNS, salt).requests["session_id"].to_list() for salt in ("s", "s", "t"))
    assert one == same_salt
    assert not set(one) & set(other)
    parents = anonymize(TURNS, "s").requests
    assert parents["parent_id"][2] == parents["request_id"][0]


def test_each_of_several_parents_is_named_anew(tmp_path: Path) -> None:
    children = trace_of([(0.0, 600, 5), (0.5, 700, 6), (2.25, 1300, 7)], request_id=["plan", "search", "answer"],
                        parent_id=[None, "", "plan; search"])
    convert(children, tmp_path / "a.csv", anonymous=True, salt="s")
    found = read_trace(str(tmp_path / "a.csv")).requests
    assert found["parent_id"].to_list() == [None, None, ";".join(found["request_id"][:2])]
    assert "search" not in (tmp_path / "a.csv").read_text()


def test_text_columns_of_the_source_do_not_come_along(tmp_path: Path) -> None:
    source = tmp_path / "log.csv"
    source.write_text("arrival_s,input_tokens,output_tokens,prompt,tenant\n0,5,5,my secret plan,acme-corp\n"
                      "1,6,6,another secret,acme-corp\n")
    convert(read_trace(str(source)), tmp_path / "a.csv", anonymous=True)
    content = (tmp_path / "a.csv").read_text()
    assert "secret" not in content
    assert "acme" not in content


def test_a_name_that_is_a_word_of_the_format_is_no_finding(tmp_path: Path) -> None:
    named = trace_of([(0.0, 600, 5), (0.5, 700, 6)], request_id=["tokens", "arrived"])
    convert(named, tmp_path / "a.csv", to="vidur", anonymous=True, salt="s")
    assert (tmp_path / "a.csv").read_text().splitlines()[0] == "arrived_at,num_prefill_tokens,num_decode_tokens"


@pytest.mark.parametrize("content", [b'{"arrival_s": 0, "note": "hello"}\n', b"arrival_s,note\n0,hello\n",
                                     b'{"ids": [["deep"]]}\n'])
def test_the_check_can_fail(content: bytes) -> None:
    with pytest.raises(PlannerError, match="the anonymous trace would hold"):
        check_anonymous({"": content}, anonymize(TURNS, "s"), TURNS)
    with pytest.raises(PlannerError, match="would hold '0' as request_id"):
        check_anonymous({}, TURNS, TURNS)
    buffer = io.BytesIO()
    pl.DataFrame({"note": ["hello"]}).write_parquet(buffer)
    with pytest.raises(PlannerError, match="'hello'"):
        check_anonymous({"": buffer.getvalue()}, anonymize(TURNS, "s"), TURNS)
