"""Traces out of tables: a PostgreSQL with LiteLLM's SpendLogs, SQLite, and Parquet files."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from planner.errors import TraceError, UsageError
from planner.traces import read_trace
from planner.traces.tabular import open_table

# The columns of LiteLLM's own table that a log has, of the types that its Prisma schema makes in PostgreSQL.
SPEND_LOGS = """
create table "LiteLLM_SpendLogs" (
    request_id text primary key, call_type text not null, prompt_tokens integer default 0,
    completion_tokens integer default 0, "startTime" timestamp(3) not null, "endTime" timestamp(3) not null,
    "completionStartTime" timestamp(3), model_group text, metadata jsonb default '{}', cache_hit text, team_id text,
    session_id text, status text);
insert into "LiteLLM_SpendLogs" values
    ('a', 'acompletion', 812, 133, '2026-11-12 08:00:00.120', '2026-11-12 08:00:02.930', '2026-11-12 08:00:00.410',
     'llama-70b', '{"usage_object": {"prompt_tokens_details": {"cached_tokens": 512}}}', 'None', 'search', 's',
     'success'),
    ('b', 'acompletion', 900, 40, '2026-11-12 08:00:03.430', '2026-11-12 08:00:04.430', '2026-11-12 08:00:03.530',
     'llama-70b', '{}', 'None', 'search', 's', 'success'),
    ('c', 'acompletion', 5, 0, '2026-11-12 08:00:05', '2026-11-12 08:00:05', null, 'llama-70b', '{}', 'None', null,
     null, 'failure'),
    ('d', 'acompletion', 7, 9, '2026-11-12 08:00:06', '2026-11-12 08:00:07', null, 'mixtral', '{}', 'True', null,
     null, 'success');
"""


def run(*command: str, folder: Path) -> None:
    """Run one of PostgreSQL's programs, as a user who is not root, whom it refuses."""
    options: dict[str, Any] = {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}
    found = shutil.which(command[0]) or next(
        (str(path) for path in sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{command[0]}"), reverse=True)), None)
    if found is None:
        pytest.skip(f"no {command[0]} is installed: apt-get install postgresql")
    done = subprocess.run([found, *command[1:]], cwd=folder, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stderr + done.stdout


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    """Start a PostgreSQL of its own, with the table, and yield its URI."""
    pytest.importorskip("connectorx")
    with tempfile.TemporaryDirectory(prefix="pg", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        if os.geteuid() == 0:
            try:
                shutil.chown(folder, "postgres")
            except LookupError:
                pytest.skip("root has no user postgres to start a database as: apt-get install postgresql")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        run("initdb", "-D", "data", "-A", "trust", "-U", "planner", "--no-sync", folder=folder)
        options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off"
        # A log of its own, or its pipes would stay open in the server.
        run("pg_ctl", "-D", "data", "-o", options, "-l", str(folder / "log"), "-w", "start", folder=folder)
        try:
            run("psql", "-h", "127.0.0.1", "-p", str(port), "-U", "planner", "-v", "ON_ERROR_STOP=1", "-c", SPEND_LOGS,
                "postgres", folder=folder)
            yield f"postgresql://planner:secret@127.0.0.1:{port}/postgres"
        finally:
            run("pg_ctl", "-D", "data", "-m", "immediate", "stop", folder=folder)


def test_litellms_table_is_read_by_name(postgres: str) -> None:
    trace = read_trace(f"{postgres}#LiteLLM_SpendLogs")
    assert trace.format == "litellm"
    assert trace.account.dropped == {"status is not success": 1, "answered from the gateway's cache": 1}
    table = trace.requests.select("request_id", "arrival_s", "input_tokens", "output_tokens", "cached_tokens", "tenant")
    assert table.rows() == [("a", 0.0, 812, 133, 512, "search"), ("b", 3.31, 900, 40, None, "search")]
    times = trace.requests.select("ttft_s", "e2e_s", "parent_id", "think_time_s").rows()
    assert times == [(0.29, 2.81, None, None), (0.1, 1.0, "a", 0.5)]


def test_a_query_and_conditions_choose_rows(postgres: str) -> None:
    query = "select \"startTime\" as at, prompt_tokens, completion_tokens, model_group from \"LiteLLM_SpendLogs\""
    spec = "columns,arrival_s=at:date,input_tokens=prompt_tokens,output_tokens=completion_tokens"
    trace = read_trace(f"{postgres}#{query}", format=f"{spec},where model_group=mixtral")
    assert trace.requests.select("input_tokens", "output_tokens").rows() == [(7, 9)]
    assert trace.account.dropped == {"model_group is not mixtral": 3}


def test_the_same_table_has_the_same_hash_and_no_password_is_told(postgres: str) -> None:
    one, two = (read_trace(f"{postgres}#LiteLLM_SpendLogs") for _ in range(2))
    assert one.sha256 == two.sha256
    assert "secret" not in one.source
    with pytest.raises(TraceError, match=r"the database reports: .*does not exist") as error:
        read_trace(f"{postgres}#no_such_table")
    assert "secret" not in str(error.value)


def test_a_database_needs_a_table() -> None:
    with pytest.raises(UsageError, match=r"postgresql://u@h/db: names no table; add '#table'"):
        open_table("postgresql://u:secret@h/db")


def test_a_connector_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("connectorx", "adbc_driver_manager", "adbc_driver_sqlite"):
        monkeypatch.setitem(sys.modules, name, None)
    (tmp_path / "log.db").touch()
    with pytest.raises(UsageError, match=r"no connector is installed; pip install 'llm-serving-planner\[sql\]'"):
        read_trace(f"sqlite://{tmp_path / 'log.db'}#t")


@pytest.mark.parametrize(("uri", "why"), [
    ("sqlite:///nowhere/at/all.db", "No such file or directory"),
    ("postgresql://u:secret@127.0.0.1:1/db", "Connection refused"),
    ("mysql://u:secret@127.0.0.1:many/db", "Port could not be cast to integer value as 'many'"),
])
def test_a_database_that_is_not_there_is_an_error(uri: str, why: str) -> None:
    with pytest.raises(TraceError, match=rf"#t: the database cannot be reached: .*{why}.*; start it") as error:
        read_trace(f"{uri}#t")
    assert "secret" not in str(error.value)


def test_sqlite(tmp_path: Path) -> None:
    pytest.importorskip("connectorx")
    import sqlite3

    with sqlite3.connect(tmp_path / "log.db") as connection:
        connection.execute("create table log (ts integer, prompt integer, output integer)")
        connection.executemany("insert into log values (?, ?, ?)", [(1_790_000_000_250, 10, 3),
                                                                    (1_790_000_000_000, 20, 4)])
    spec = "columns,arrival_s=ts:ms,input_tokens=prompt,output_tokens=output"
    trace = read_trace(f"sqlite://{tmp_path / 'log.db'}#log", format=spec)
    assert trace.requests.select("arrival_s", "input_tokens", "output_tokens").rows() == [(0.0, 20, 4), (0.25, 10, 3)]


def parquet(path: Path, **columns: object) -> str:
    pl.DataFrame(columns).write_parquet(path)
    return str(path)


def test_parquet_in_our_columns(tmp_path: Path) -> None:
    path = parquet(tmp_path / "t.parquet", arrival_s=[1.5, 0.5], input_tokens=[3, 4], output_tokens=[1, 2],
                   hash_ids=[[7, 8], [7]], hash_block_tokens=[2, 2], note=["a", "b"])
    trace = read_trace(path)
    assert trace.requests.select("arrival_s", "input_tokens", "request_id").rows() == [(0.5, 4, 1), (1.5, 3, 0)]
    assert (trace.format, trace.account.ignored_columns) == ("jsonl", ("note",))
    assert trace.prefix is not None
    assert trace.prefix.values.tolist() == [0, 0, 1]


def test_parquet_of_mooncakes_keys(tmp_path: Path) -> None:
    path = parquet(tmp_path / "t.parquet", timestamp=[1500], input_length=[600], output_length=[2], hash_ids=[[5, 6]])
    trace = read_trace(path)
    assert (trace.format, trace.requests["arrival_s"].to_list()) == ("mooncake", [1.5])


def test_parquet_of_another_format_with_times_and_zones(tmp_path: Path) -> None:
    start = pl.Series(["2026-11-12 08:00:00.5", "2026-11-12 08:00:01"]).str.to_datetime(time_zone="UTC")
    end = start.dt.offset_by("2s").dt.convert_time_zone("Asia/Tokyo")
    path = parquet(tmp_path / "t.parquet", startTime=start, endTime=end, prompt_tokens=[5, 6], completion_tokens=[7, 8],
                   metadata=[{"usage_object": {"prompt_tokens_details": {"cached_tokens": 1}}}] * 2)
    trace = read_trace(path)
    assert trace.format == "litellm"
    assert trace.requests.select("arrival_s", "e2e_s", "cached_tokens").rows() == [(0.0, 2.0, 1), (0.5, 2.0, 1)]


def test_parquet_says_which_row_is_bad(tmp_path: Path) -> None:
    path = parquet(tmp_path / "t.parquet", arrival_s=[1.5, 0.5], input_tokens=[3, 4], output_tokens=[1, -2])
    with pytest.raises(TraceError, match="row 2: output_tokens = -2; must be >= 1"):
        read_trace(path)
    (tmp_path / "cut.parquet").write_bytes(Path(path).read_bytes()[:100])
    with pytest.raises(TraceError, match=r"cut\.parquet: cannot be read as Parquet"):
        read_trace(str(tmp_path / "cut.parquet"))
    empty = parquet(tmp_path / "empty.parquet", arrival_s=[])
    with pytest.raises(TraceError, match="has no rows"):
        read_trace(empty)
