"""Cells in a file's units turned into ours: durations, and instants on several clocks."""

import polars as pl

from planner.files.finite import is_numeral
from planner.schema import MAX_SECONDS, TRACE_COLUMNS
from planner.traces.dates import NS, dates
from planner.traces.reader import ENDED, FIRST_TOKEN, SENT, Reader

PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
UNITS = (*PER_SECOND, "date")
INSTANTS = ("arrival_s", SENT, FIRST_TOKEN, ENDED)

_DURATIONS = {column.name for column in TRACE_COLUMNS if column.unit == "s"} - {"arrival_s"}
_EPOCHS = ((1e17, "ns"), (1e14, "us"), (1e11, "ms"))  # instants since 1970 are larger than this in a unit


def in_our_units(raw: pl.DataFrame, reader: Reader) -> pl.DataFrame:
    """Convert the cells of a block, strings under our column names.

    Durations become seconds. Instants become seconds if arrivals count from the trace's start, and nanoseconds as
    Datetime if they count from the earliest row. The measured times that follow from two instants are added. Cells
    in our units are left as they are.
    """
    table = raw
    for name in raw.columns:
        unit = reader.units.get(reader.columns.get(name, name), "s")
        if name in _DURATIONS and unit != "s":
            table = table.with_columns(quotient(numbers(raw[name]), PER_SECOND[unit]).alias(name))
    instants = [name for name in INSTANTS if name in raw.columns]
    units = {name: _unit(reader, name, raw[name]) for name in instants}
    if reader.clock == "trace" and units == {"arrival_s": "s"}:
        return table
    values = {name: _instants(raw[name], unit, stated_unit(reader, name) is None) for name, unit in units.items()}
    is_other = reader.clock == "other" or units.get("arrival_s", units.get(ENDED)) == "date"
    if not is_other and (reader.clock == "trace" or not _is_epoch(values.get("arrival_s", values.get(ENDED)))):
        values = {name: quotient(value.to_physical(), NS) if value.dtype.is_temporal() else value
                  for name, value in values.items()}
    else:
        values = {name: _as_datetime(value) for name, value in values.items()}
    return _with_times(table.with_columns(value.alias(name) for name, value in values.items()))


def instants_s(text: pl.Series) -> pl.Series:
    """Return instants in seconds, from dates or from numbers, which count from 1970 in a unit if they are large."""
    first = str(next((cell for cell in text if cell not in (None, "")), ""))
    unit = _guessed_unit(first)
    instants = _instants(text, unit, is_one_form=True)
    return quotient(instants.to_physical(), NS) if instants.dtype.is_temporal() else instants


def numbers(text: pl.Series) -> pl.Series:
    """Parse a column of cells as floats; null if a cell is empty or not a number. Blanks around it are allowed.

    A table's own numbers pass as they are.
    """
    value = text.cast(pl.Float64, strict=False)
    if value.null_count() > text.null_count() and text.dtype == pl.String:
        value = text.str.strip_chars().cast(pl.Float64, strict=False)
    return value


def quotient(values: pl.Series, by: float) -> pl.Series:
    """Divide as IEEE 754 has it; Polars multiplies by the reciprocal, and 0.618518284 s get one more digit.

    >>> quotient(pl.Series([618_518_284]), 1e9)[0]
    0.618518284
    """
    if by == 1:
        return values
    divided = pl.Series(values.name, values.cast(pl.Float64).to_numpy() / by)
    return divided.set(values.is_null(), None) if values.null_count() else divided


def stated_unit(reader: Reader, name: str) -> str | None:
    """Return the unit that a reader states for a column; None if the cells show it."""
    return reader.units.get(reader.columns.get(name, name))


def _unit(reader: Reader, name: str, text: pl.Series) -> str:
    """Return the unit of instants: the stated one, or the one that the first cell shows."""
    stated = stated_unit(reader, name)
    if stated is not None:
        return stated
    first = str(next((cell for cell in text if cell not in (None, "")), "")).strip()
    unit = _guessed_unit(first)
    return unit if unit == "date" or reader.clock == "either" else "s"


def _guessed_unit(first: str) -> str:
    if not is_numeral(first):
        return "s" if dates(pl.Series([first])).null_count() else "date"
    return next((unit for least, unit in _EPOCHS if abs(float(first)) >= least), "s")


def _is_epoch(arrival: pl.Series | None) -> bool:
    """Tell whether all arrivals are later than a trace lasts, so that they must count from 1970."""
    if arrival is None:
        return False
    earliest = (quotient(arrival.to_physical(), NS) if arrival.dtype.is_temporal() else arrival).min()
    return isinstance(earliest, float) and earliest > MAX_SECONDS


def _instants(text: pl.Series, unit: str, is_one_form: bool) -> pl.Series:
    """Parse instants: dates and whole numbers to nanoseconds as Datetime, other numbers to seconds as floats.

    Parameters
    ----------
    is_one_form : all cells must be dates if one is.
    """
    if unit == "date":
        instant = dates(text.cast(pl.String))
        if instant.null_count() > text.null_count() and not is_one_form:  # a log may have seconds since 1970
            instant = instant.zip_with(instant.is_not_null(), _as_datetime(numbers(text)))
        return instant
    if unit in ("ms", "us", "ns") and not text.dtype.is_float():
        # Whole numbers are exact; a float of today's nanoseconds is not.
        factor = NS // PER_SECOND[unit]
        whole = text.cast(pl.Int64, strict=False)
        fits = whole.abs() <= (2**63 - 1) // factor
        if whole.null_count() == text.null_count() and fits.fill_null(True).all():
            return (whole * factor).cast(pl.Datetime("ns"))
    return quotient(numbers(text), PER_SECOND[unit])


def _as_datetime(seconds: pl.Series) -> pl.Series:
    """Return instants in seconds as Datetime; null if they do not fit."""
    if seconds.dtype.is_temporal():
        return seconds
    whole = seconds.floor()
    fits = (whole.abs() < 9e9).fill_null(False)
    whole = whole.set(~fits, None)
    rest = ((seconds - whole) * NS).round().cast(pl.Int64, strict=False)
    return (whole.cast(pl.Int64, strict=False) * NS + rest).cast(pl.Datetime("ns"))


def _with_times(table: pl.DataFrame) -> pl.DataFrame:
    """Add the measured times that follow from instants: from when the request was sent, else from its arrival.

    An arrival that is not recorded is the end less the latency.
    """
    if "arrival_s" not in table.columns and {ENDED, "e2e_s"} <= {*table.columns}:
        end, latency_s = table[ENDED], numbers(table["e2e_s"])
        arrival = (end.to_physical() - (latency_s * NS).round().cast(pl.Int64, strict=False)).cast(
            pl.Datetime("ns")) if end.dtype.is_temporal() else end - latency_s
        table = table.with_columns(arrival.alias("arrival_s"))
    begin = SENT if SENT in table.columns else "arrival_s"
    if begin not in table.columns:
        return table
    wanted = {"ttft_s": FIRST_TOKEN, "e2e_s": ENDED}
    return table.with_columns(
        _between(table[begin], table[end]).alias(name)
        for name, end in wanted.items() if end in table.columns and name not in table.columns)


def _between(begin: pl.Series, end: pl.Series) -> pl.Series:
    if begin.dtype.is_temporal() != end.dtype.is_temporal():
        begin, end = (_as_datetime(begin), _as_datetime(end))
    if begin.dtype.is_temporal():
        return quotient(end.to_physical() - begin.to_physical(), NS)
    return end - begin
