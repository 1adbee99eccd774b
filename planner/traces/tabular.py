"""Traces that are tables already: Parquet files, and tables or queries of a SQL database."""

import hashlib
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

import numpy as np
import polars as pl

from planner.errors import TraceError, UsageError
from planner.files.table_file import DAMAGE
from planner.schema import TRACE_COLUMNS
from planner.traces.lines import BlockRows, cell_of
from planner.traces.reader import Head, Reader

HEAD_ROWS = 100
SLICE_ROWS = 1_000_000  # whose cells are held as strings at once
PATIENCE_S = 10.0  # for a database to answer
PORTS = {"postgresql": 5432, "postgres": 5432, "mysql": 3306, "mssql": 1433, "redshift": 5439}
CONNECTORS: tuple[Literal["connectorx"], Literal["adbc"]] = ("connectorx", "adbc")

_NUMBERS = {column.name for column in TRACE_COLUMNS if column.dtype != "str"}
_URI = re.compile(r"^[a-z][a-z0-9+]*://")
_SECRET = re.compile(r"(://[^:/@]*):[^@]*@")


def is_tabular(source: str) -> bool:
    """Tell whether a source is a database's URI or a Parquet file, by its first bytes."""
    if _URI.match(source):
        return True
    try:
        with Path(source).open("rb") as file:
            return Path(source).is_file() and file.read(4) == b"PAR1"
    except OSError:
        return False  # the reader of the file reports it


def open_table(source: str) -> tuple[str, pl.DataFrame, str]:
    """Return a table's name, without a password that was in it, its rows, and a hash of them.

    Raises
    ------
    TraceError : it cannot be read; for a database, with its message.
    UsageError : a database's URI names no table.
    """
    if not _URI.match(source):
        try:
            table = pl.read_parquet(source)
        except DAMAGE as error:
            raise TraceError(f"trace {source}: cannot be read as Parquet ({_brief(error)})") from None
        with Path(source).open("rb") as file:
            return source, _checked(source, table), hashlib.file_digest(file, "sha256").hexdigest()
    uri, _, what = source.partition("#")
    name = _SECRET.sub(r"\1@", source)
    if not what.strip():
        raise UsageError(f"trace {name}: names no table; add '#table', or '#select …', in quotes")
    _look_for(name, uri)
    table = _checked(name, _query(name, uri, what.strip()))
    return name, table, hashlib.sha256(table.hash_rows(seed=0).to_numpy().tobytes()).hexdigest()


def _checked(name: str, table: pl.DataFrame) -> pl.DataFrame:
    if not table.height or not table.width:
        raise TraceError(f"trace {name}: has no rows; must have at least one request")
    return table


def _look_for(name: str, uri: str) -> None:
    """Raise TraceError if no database is at its address: connectors go on trying for half a minute."""
    parts = urlsplit(uri)
    file, port = Path(unquote(parts.netloc + parts.path)), PORTS.get(parts.scheme)
    try:
        if parts.scheme == "sqlite":
            file.open("rb").close()
        elif parts.hostname and (port := parts.port or port):
            socket.create_connection((parts.hostname, port), timeout=PATIENCE_S).close()
    except (OSError, ValueError) as error:  # a port may be no number
        raise TraceError(f"trace {name}: the database cannot be reached: {_brief(error)}; start it, or correct its "
                         f"address") from None


def _query(name: str, uri: str, what: str) -> pl.DataFrame:
    """Run a query, or select all of a table, through the first of the connectors that is installed."""
    table = what.replace('"', '""')
    query = what if re.match(r"(?i)(select|with)\s", what) else f'SELECT * FROM "{table}"'
    for connector in CONNECTORS:
        try:
            rows: pl.DataFrame = pl.read_database_uri(query, uri, engine=connector)
            return rows
        except ImportError:
            continue
        except BaseException as error:  # connectors raise errors and panics of their own kinds
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            raise TraceError(
                f"trace {name}: the database reports: {_brief(error)}; give postgresql://user@host/database#table, or "
                "#select … in quotes"
            ) from None
    raise UsageError(f"trace {name}: no connector is installed; pip install 'llm-serving-planner[sql]'")


def _brief(error: BaseException) -> str:
    text = " ".join(str(error).split())
    text = _SECRET.sub(r"\1@", text)
    return text if len(text) <= 200 else text[:197] + "..."


def table_head(table: pl.DataFrame) -> Head:
    """Return the names of a table's columns, and its first rows, as a head."""
    return Head(layout="table", columns=tuple(table.columns), objects=tuple(table.head(HEAD_ROWS).to_dicts()))


def table_rows(table: pl.DataFrame, head: Head, reader: Reader, limit: int | None) -> Iterator[BlockRows]:
    """Yield a table's rows, counted from 1, under our column names; cells are strings, except in numeric columns."""
    wanted = {name: cell_of(path, head, lambda at: head.columns[at]) for name, path in reader.columns.items()
              if head.has(path)}
    table = table if limit is None else table.head(limit)
    looked_at = {name for skip in reader.skips for name in skip.where.meta.root_names()}
    kept = {path for name, path in reader.columns.items() if name in _NUMBERS and name not in looked_at}
    for start in range(0, table.height, SLICE_ROWS):
        part = _as_cells(table.slice(start, SLICE_ROWS), kept)
        numbers = np.arange(start, start + part.height, dtype=np.int64)
        yield BlockRows(table=part.select(cell.alias(name) for name, cell in wanted.items()), lines=numbers + 1,
                        numbers=numbers, faults=(), num_rows=part.height, place="row")


def _as_cells(table: pl.DataFrame, kept: set[str]) -> pl.DataFrame:
    """Return all columns as strings but lists, and numbers that are `kept`; times as UTC text, structures as JSON."""
    return table.select(column if column.name in kept and column.dtype.is_numeric() and not column.dtype.is_decimal()
                        else _as_text(column) for column in table)


def _as_text(column: pl.Series) -> pl.Series:
    dtype = column.dtype
    if isinstance(dtype, pl.Datetime):
        plain = column if dtype.time_zone is None else column.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
        return plain.cast(pl.Datetime("ns"), strict=False).dt.to_string("%Y-%m-%d %H:%M:%S%.9f").alias(column.name)
    if isinstance(dtype, pl.Struct):
        return column.struct.json_encode().alias(column.name)
    if isinstance(dtype, pl.List):
        return column
    if dtype == pl.Binary:
        return column.cast(pl.String, strict=False)
    return column.cast(pl.String, strict=False)
