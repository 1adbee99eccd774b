"""A user's table as a file: CSV, plain or compressed, with its cells as text, or Parquet as it is."""

import re
from pathlib import Path

import polars as pl
from polars.exceptions import PanicException, PolarsError

from planner.errors import TraceError

SAYS_SEPARATOR = re.compile(rb"(?:\xef\xbb\xbf)?sep=(.)\s*$", re.IGNORECASE)  # a first line for Excel
DAMAGE = (OSError, PolarsError, PanicException)  # errors of reading; Polars panics at some damaged files


def read_table_file(path: Path, *, what: str = "table") -> pl.DataFrame:
    """Read a table.

    Parameters
    ----------
    what : it should be, for the message.

    Raises
    ------
    TraceError : there is no such file, or it is damaged.
    """
    try:
        path.open("rb").close()  # polars asks no audit hook, and Python does: of a confined process
        return pl.read_parquet(path) if path.suffix == ".parquet" else _read_csv(path)
    except DAMAGE as error:
        raise TraceError(f"{path}: cannot be read as a {what}: {error}") from error


def _read_csv(path: Path) -> pl.DataFrame:
    """Read cells between commas, or between the sign that a first line `sep=;` or a header without commas has."""
    if path.suffix in (".gz", ".zst"):
        return pl.read_csv(path, infer_schema=False)
    with path.open("rb") as file:
        line = file.readline()
    said = SAYS_SEPARATOR.match(line)
    sign = said[1].decode() if said else separator_of(re.sub(rb'"[^"]*"', b"", line))
    return pl.read_csv(path, infer_schema=False, separator=sign, skip_lines=int(said is not None))


def separator_of(header: bytes) -> str:
    """Return the sign between the names of a CSV header: a comma if it has one, else a semicolon, tab or bar.

    >>> separator_of(b"time;rate"), separator_of(b"time")
    (';', ',')
    """
    return next((sign for sign in ",;\t|" if sign.encode() in header), ",")


def columns_of(path: Path) -> list[str]:
    """Return the columns of a table; none if there is no file, or it is no CSV or Parquet.

    Raises
    ------
    TraceError : it is damaged.
    """
    if not path.is_file():
        return []
    try:
        if path.suffix == ".parquet":
            return list(pl.read_parquet_schema(path))
        if path.name.endswith((".csv", ".csv.gz")):
            return pl.read_csv(path, n_rows=0, infer_schema=False).columns
    except DAMAGE as error:
        raise TraceError(f"{path}: cannot be read as a table: {error}") from error
    return []
